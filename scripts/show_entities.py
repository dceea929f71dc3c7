"""Print some texts of a corpus with the entities predicted by a pipeline, and their confidences."""

from itertools import islice
from pathlib import Path
from typing import Any

import spacy
import typer
from spacy.tokens import Doc, DocBin

MISS = 5.0
"""The cost of a miss in the example; a false alarm costs 1."""

N_TEXTS = 200
"""The number of texts to read from the corpus. Some of them are shown."""


def least_confidence(doc: Doc) -> float:
    """Get the lowest confidence of any entity in a doc, or 1 if there are none."""
    return min((ent._.confidence for ent in doc.ents), default=1.0)


def main(model: Path, corpus: Path, limit: int = 6) -> None:
    """Show the predictions of MODEL, calibrated and with a guarantee, for the LIMIT least certain
    of the first texts in CORPUS."""
    nlp = spacy.load(model)
    gold_docs = islice(DocBin().from_disk(corpus).get_docs(nlp.vocab), N_TEXTS)
    docs = sorted(nlp.pipe([gold.text for gold in gold_docs]), key=least_confidence)
    ner: Any = nlp.get_pipe("ner")

    # At this probability, checking entities in vain costs as much as the misses that it avoids.
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
