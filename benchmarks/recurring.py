"""Count missed mentions of names that occur several times in a doc, if another mention is found.

    OMP_NUM_THREADS=1 python benchmarks/recurring.py WORKPLACE [steps of ner]

The corpus is CoNLL-2002 Spanish, with a doc per article (by the datelines). Models are trained on
train, and mentions are counted on testa, from words. One pass is configs/sparse.cfg and two passes
is configs/sparse_document.cfg, both trained by `costner fit`. spaCy's `ner` is
configs/baseline_ner.cfg, trained by `spacy train` for 2,000 steps by default. Pipelines in
WORKPLACE are not trained again.

A name recurs if a doc contains several entities with its text. A mention is found if predicted
entities cover all of its tokens, with any labels.
"""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import spacy
from spacy.tokens import Doc, DocBin, Span

from spacy_costner.cli.tables import text_table

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))

from experiments import corpora  # noqa: E402

CONFIGS = ROOT / "configs"
CORPUS = ROOT / "assets" / "conll2002_es"
NLP = spacy.blank("es")


class Counts(NamedTuple):
    """Mentions of recurring names."""

    mentions: int
    partly_missed: int  # missed, but another mention of the name is found
    wholly_missed: int  # missed, like all mentions of the name


def write_articles(folder: Path) -> None:
    """Write train and testa as .spacy files, with a doc for each article."""
    for part in ("train", "testa"):
        sentences = corpora.read_docs(CORPUS / f"esp.{part}", NLP.vocab)
        docs = corpora.join_groups(sentences, corpora.by_dateline(sentences))
        DocBin(docs=docs).to_disk(folder / f"{part}.spacy")


def train(output: Path, *arguments: object) -> Path:
    """Train with a spaCy command, unless the output exists. Returns the path of the pipeline."""
    if not output.exists():
        corpus = output.parent
        paths = ["--paths.train", corpus / "train.spacy", "--paths.dev", corpus / "testa.spacy"]
        words = [*arguments, "--output", output, "--nlp.lang", "es", *paths]
        command = [sys.executable, "-W", "ignore", "-m", "spacy", *map(str, words)]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return output / "model-best"


def mentions_of_names(doc: Doc) -> Iterator[list[Span]]:
    """Yield the mentions of each recurring name in an annotated doc."""
    mentions: dict[str, list[Span]] = defaultdict(list)
    for ent in doc.ents:
        mentions[ent.text].append(ent)
    for spans in mentions.values():
        if len(spans) > 1:
            yield spans


def count(path: Path, gold_docs: list[Doc]) -> Counts:
    """Count the mentions that a pipeline misses."""
    nlp = spacy.load(path)
    docs = [Doc(nlp.vocab, [token.text for token in doc]) for doc in gold_docs]
    n_mentions = n_partly_missed = n_wholly_missed = 0
    for gold_doc, doc in zip(gold_docs, nlp.pipe(docs)):
        covered = {token.i for ent in doc.ents for token in ent}
        for spans in mentions_of_names(gold_doc):
            n_missed = sum(any(token.i not in covered for token in span) for span in spans)
            n_mentions += len(spans)
            if n_missed < len(spans):
                n_partly_missed += n_missed
            else:
                n_wholly_missed += n_missed
    return Counts(n_mentions, n_partly_missed, n_wholly_missed)


def main(workplace: str, n_steps: int = 2_000) -> None:
    """Train the pipelines, and print a row for each."""
    folder = Path(workplace)
    folder.mkdir(parents=True, exist_ok=True)
    write_articles(folder)
    ner = ("train", CONFIGS / "baseline_ner.cfg", "--training.max_steps", n_steps)
    limits = ("--training.patience", 0, "--training.eval_frequency", 500)
    pipelines = {
        "one pass": train(folder / "one", "costner", "fit", CONFIGS / "sparse.cfg"),
        "two passes": train(folder / "two", "costner", "fit", CONFIGS / "sparse_document.cfg"),
        f"`ner`, {n_steps:,} steps": train(folder / f"ner{n_steps}", *ner, *limits),
    }
    gold_docs = list(DocBin().from_disk(folder / "testa.spacy").get_docs(NLP.vocab))
    rows = [["", "mentions", "missed, another found", "missed, as all are"]]
    for title, path in pipelines.items():
        rows.append([title, *(f"{number:,}" for number in count(path, gold_docs))])
    print(text_table(rows))


if __name__ == "__main__":
    workplace, *n_steps = sys.argv[1:]
    main(workplace, *map(int, n_steps))
