"""The label tree, a hierarchy of labels that defines their similarity.

A tree is defined by nested mappings in a config block or in a JSON or YAML file. Leaves are empty:
{} or null. Any node can be a label.

    {"location": {"city": {}, "country": {}}, "person": {}}

The top nodes have level 1. They are children of an unnamed root. The lineage of a node consists of
all nodes on the path from the top to the node itself, e.g. ("location", "city").
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import srsly
from thinc.types import Ints2d

from ..caching import cached_property
from ..validation import check_config_names, without_repetition

TreeSource = str | Path | dict[str, Any]
"""The definition of a tree in the config: the path to a file, or nested mappings."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A label tree. If it is defined in a file, the file is only read when it is needed.

    source (TreeSource): The mappings, or the path to a JSON or YAML file.
    where (str): The name of the tree in error messages.
    """

    source: TreeSource
    where: str

    @cached_property
    def lineages(self) -> dict[str, tuple[str, ...]]:
        """The lineage of each node.

        RAISES (ValueError): If the file can't be read or the mappings don't form a tree.
        """
        nodes = self.source
        if not isinstance(nodes, dict):
            nodes = _read_nodes(nodes, self.where)
        lineages: dict[str, tuple[str, ...]] = {}
        for lineage in _walk_lineages(nodes, above=(), where=self.where):
            node = lineage[-1]
            if node in lineages:
                raise ValueError(f"{self.where}: expected each node once, got {node!r} twice")
            lineages[node] = lineage
        if not lineages:
            raise ValueError(f"{self.where}: expected at least one node, got none")
        return lineages

    @property
    def depth(self) -> int:
        """The number of levels."""
        return max(len(lineage) for lineage in self.lineages.values())

    def lineage(self, label: str) -> tuple[str, ...]:
        """Return the lineage of a label.

        RAISES (ValueError): If the label is not a node.
        """
        if label not in self.lineages:
            expected = "expected a node for every label"
            raise ValueError(f"{self.where}: {expected}, got none for {label!r}")
        return self.lineages[label]

    def ancestor(self, label: str, level: int) -> str:
        """Return the ancestor of a label at the given level, or the label itself if it is above
        this level.

        RAISES (ValueError): If the label is not a node.
        """
        ancestors_to_level = self.lineage(label)[:level]
        return ancestors_to_level[-1]

    def distances(self, labels: Sequence[str]) -> Ints2d:
        """Compute the number of edges between each pair of labels. Shape: (labels, labels)

            d(i, j) = level(i) + level(j) - 2 level(lowest common ancestor of i and j)

        RAISES (ValueError): If a label is not a node.

        Higashiyama et al., before eq 8.
        """
        index_of_node = {node: i for i, node in enumerate(self.lineages)}
        # The lineage of each label as node indices, padded with -1. Shape: (labels, depth)
        lineages = numpy.full((len(labels), self.depth), -1)
        for i, label in enumerate(labels):
            nodes = self.lineage(label)
            lineages[i, : len(nodes)] = [index_of_node[node] for node in nodes]
        is_node = lineages >= 0
        levels = is_node.sum(axis=1)
        # Two labels share all nodes from the top to their lowest common ancestor. The number of
        # shared nodes is the level of the ancestor. Shape: (labels, labels, depth)
        is_shared = (lineages[:, None] == lineages) & is_node
        level_of_ancestor = is_shared.sum(axis=2)
        return levels[:, None] + levels - 2 * level_of_ancestor


def make_tree(source: TreeSource, where: str) -> Tree:
    """Create a label tree. A config block is checked immediately. A file is only checked when it is
    read, because the pipeline must also load on machines without the file.

    source (TreeSource): The mappings, or the path to a JSON or YAML file.
    where (str): The name of the tree in error messages. For a file, the path is appended.
    RAISES (ValueError): If a block is not a tree, or if a node is not a valid name in a config.
    """
    if not isinstance(source, dict):
        return Tree(source, f"{where}: {source}")
    tree = Tree(source, where)
    _ = tree.lineages  # accessing the property checks the tree
    # The config is saved with the pipeline, and the nodes are the names of its blocks.
    check_config_names(source, where)
    return tree


def _walk_lineages(nodes: Any, above: tuple[str, ...], where: str) -> Iterator[tuple[str, ...]]:
    """Yield the lineage of each node of a tree, with parents before their children. `nodes` should
    map each child of a node to that child's children. `above` is the lineage of the node, empty at
    the top. `where` is the name of the tree in error messages.

    RAISES (ValueError): If `nodes` is not a tree of strings.
    """
    if not isinstance(nodes, Mapping):
        place = "at the top"
        if above:
            place = f"under {above[-1]!r}"
        raise ValueError(f"{where}: expected a mapping of nodes {place}, got {nodes!r}")
    for node, children in nodes.items():
        if not isinstance(node, str) or not node:
            raise ValueError(f"{where}: expected strings as names, got {node!r}")
        if node in above:  # in a YAML file, a mapping can contain itself
            raise ValueError(f"{where}: expected a tree, got {node!r} under itself")
        lineage = (*above, node)
        yield lineage
        if children is not None:  # null denotes a leaf
            yield from _walk_lineages(children, lineage, where)


def _read_nodes(path: str | Path, where: str) -> Any:
    """Read nested mappings from a JSON or YAML file.

    RAISES (ValueError): If the file can't be read or a mapping contains duplicate names.
    """
    try:
        if Path(path).suffix in (".yaml", ".yml"):
            return srsly.read_yaml(path)
        text = Path(path).read_text(encoding="utf-8-sig")  # skips a byte order mark
        # The hook rejects duplicate names. By default, JSON uses the last value.
        return json.loads(text, object_pairs_hook=without_repetition)
    except (OSError, ValueError) as error:
        expected = "expected a JSON or YAML file of nodes"
        raise ValueError(f"{where}: {expected}, but could not read it: {error}") from error
