"""Print some texts of a corpus with the entities that a pipeline predicts, and how sure it is."""

from itertools import islice
from pathlib import Path
from typing import Any

import spacy
import typer
from spacy.tokens import Doc, DocBin

MISS = 5.0
"""What a miss costs in the example; a false alarm costs 1."""


def least_confidence(doc: Doc) -> float:
    return min((ent._.confidence for ent in doc.ents), default=1.0)


def main(model: Path, corpus: Path, limit: int = 6) -> None:
    """Show what MODEL, calibrated and with a guarantee, predicts in the texts of CORPUS of which it
    is least sure."""
    nlp = spacy.load(model)
    texts = [gold.text for gold in islice(DocBin().from_disk(corpus).get_docs(nlp.vocab), 200)]
    docs = sorted(nlp.pipe(texts), key=least_confidence)
    ner: Any = nlp.get_pipe("ner")
    for doc in docs[:limit]:
        typer.secho(doc.text, bold=True)
        (begin, end, label), probs = ner.posterior([doc]).likely_entities(1 / (1 + MISS))
        predicted = {(ent.start, ent.end, ent.label_) for ent in doc.ents}
        for b, e, i, prob in zip(begin.tolist(), end.tolist(), label.tolist(), probs):
            name = ner.labels[i]
            is_new = (b, e, name) not in predicted
            note = f"  <- not predicted; worth a look if a miss costs {MISS:g}" if is_new else ""
            typer.echo(f"    {prob:.2f}  {doc[b:e].text}  {name}{note}")
    promise = nlp.meta["guarantee"]["ner"]
    n_spans = sum(len(doc.spans["confidence_guaranteed"]) for doc in docs)
    typer.echo(
        f"\nPromised of texts like these: doc.spans['confidence_guaranteed'] misses at most "
        f"{promise['miss']:.0%}\nof the entities of a doc: {n_spans} spans here, and "
        f"{sum(len(doc.ents) for doc in docs)} predicted entities."
    )


if __name__ == "__main__":
    typer.run(main)
