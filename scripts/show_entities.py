"""Print a few texts of a corpus with the entities that a pipeline finds in them."""

from itertools import islice
from pathlib import Path

import spacy
import typer
from spacy.tokens import Doc, DocBin


def bracket(doc: Doc) -> str:
    """Write the entities of a doc into its text.

    doc (Doc): The doc.
    RETURNS (str): For instance "Rain in [Paris | city] ."
    """
    text, end = "", 0
    for ent in doc.ents:
        text += f"{doc.text[end : ent.start_char]}[{ent.text} | {ent.label_}]"
        end = ent.end_char
    return text + doc.text[end:]


def main(model: Path, corpus: Path, limit: int = 12) -> None:
    """Show what MODEL finds in the first texts of CORPUS, and the annotation where it differs."""
    nlp = spacy.load(model)
    for gold in islice(DocBin().from_disk(corpus).get_docs(nlp.vocab), limit):
        found, annotated = bracket(nlp(gold.text)), bracket(gold)
        typer.echo(found)
        if found != annotated:
            typer.echo(f"    annotated: {annotated}")


if __name__ == "__main__":
    typer.run(main)
