"""Trees of labels."""

from pathlib import Path

from spacy_costner.costs.label_tree import Tree

GENIA = Path(__file__).parents[3] / "shared" / "data" / "genia" / "GENIA_ontology.json"


def leaves_of(tree: Tree) -> list:
    inner = {node for lineage in tree.lineages.values() for node in lineage[:-1]}
    return [node for node in tree.lineages if node not in inner]
