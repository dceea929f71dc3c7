"""Print some texts of a corpus with the entities that a pipeline predicts, and how sure it is."""

from itertools import islice
from pathlib import Path
from typing import Any

import spacy
import typer
from spacy.tokens import Doc, DocBin

MISS = 5.0
"""What a miss costs in the example; a false alarm costs 1."""

N_TEXTS = 200
"""How many texts of the corpus are read. Some of them are shown."""


def least_confidence(doc: Doc) -> float:
    """The confidence of the entity of a doc that the model is least sure of; 1 without entities."""
    return min((ent._.confidence for ent in doc.ents), default=1.0)


def main(model: Path, corpus: Path, limit: int = 6) -> None:
    """Show what MODEL, calibrated and with a guarantee, predicts in the first texts of CORPUS: in
    the LIMIT texts of which it is least sure."""
    nlp = spacy.load(model)
    gold_docs = islice(DocBin().from_disk(corpus).get_docs(nlp.vocab), N_TEXTS)
    docs = sorted(nlp.pipe([gold.text for gold in gold_docs]), key=least_confidence)
    ner: Any = nlp.get_pipe("ner")

    # At this probability, checking an entity in vain costs as much as the misses that it avoids.
    worth_a_look = 1 / (1 + MISS)
    for doc in docs[:limit]:
        typer.secho(doc.text, bold=True)
        predicted = {(ent.start, ent.end, ent.label_) for ent in doc.ents}
        entities, probs = ner.posterior([doc]).likely_entities(worth_a_look)
        begins = entities.begin.tolist()
        ends = entities.end.tolist()
        for begin, end, label_id, prob in zip(begins, ends, entities.label.tolist(), probs):
            label = ner.labels[label_id]
            line = f"    {prob:.2f}  {doc[begin:end].text}  {label}"
            if (begin, end, label) not in predicted:
                line += f"  <- not predicted; worth a look if a miss costs {MISS:g}"
            typer.echo(line)

    promise = nlp.meta["guarantee"]["ner"]
    n_spans = sum(len(doc.spans["confidence_guaranteed"]) for doc in docs)
    n_predicted = sum(len(doc.ents) for doc in docs)
    typer.echo(
        f"\nGuaranteed for texts like these: doc.spans['confidence_guaranteed'] misses at most "
        f"{promise['miss']:.0%}\nof the entities of a doc: {n_spans} spans in {len(docs)} texts, "
        f"and {n_predicted} predicted entities."
    )


if __name__ == "__main__":
    typer.run(main)
