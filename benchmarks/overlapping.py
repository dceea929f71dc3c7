"""Compare models for overlapping entities with spaCy's spancat: F, CPU seconds of training, tokens
per CPU second.

    OMP_NUM_THREADS=1 python benchmarks/overlapping.py genia_nested.jsonl index.tsv 600 [systems]

The corpus is GENIA with its nested terms, as written by scripts/convert_genia.py. It is divided by
abstracts: the first 600 for training, every other development abstract, and all test abstracts.
`index.tsv` is `sentences.tsv` of that script with an additional column for the part that each
sentence's abstract belongs to: train, dev or test. Labels are coarse: DNA, RNA, protein, cell_line,
cell_type.

The systems are linear and cnn (ours, with a component for each label), flat (ours, with one
component) and spancat, as configured by `spacy init config`, with the span lengths of the training
corpus up to the 99th percentile.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy
import spacy
from spacy.cli.init_config import init_config
from spacy.cli.train import train
from spacy.scorer import PRFScore
from spacy.tokens import Doc, DocBin, Span
from spacy.util import filter_spans

from spacy_costner.readers import ReadOptions, read_docs
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.fitting.fitting import fit

KEY = "sc"
PARTS = ("train", "dev", "test")
COARSE = ("DNA", "RNA", "protein", "cell_line", "cell_type")
SYSTEMS = ("linear", "flat", "cnn", "spancat")
Spans = set[tuple[int, int, str]]


def read_corpus(path: Path, index: Path, n_train: int, folder: Path) -> dict[str, list[Doc]]:
    """Read the abstracts with coarse labels, and save them in a folder as .spacy files. Returns the
    docs of each part, one per abstract. Each line of the index is a sentence: the second field is
    its abstract, the fourth the part of the abstract."""
    part_of_abstract: dict[str, str] = {}
    for line in index.read_text("utf8").splitlines():
        _, abstract, _, part, *_ = line.split("\t")
        part_of_abstract[abstract] = part
    corpora: dict[str, list[Doc]] = {part: [] for part in PARTS}
    options = ReadOptions(spans_key=KEY, doc_id="abstract")
    for doc in read_docs(spacy.blank("en"), path, options):
        # Terms with the same tokens may have the same coarse label.
        spans: set[tuple[int, int, str]] = set()
        for span in doc.spans[KEY]:
            for label in COARSE:
                if span.label_.startswith(label):
                    spans.add((span.start, span.end, label))
                    break
        doc.spans[KEY] = [Span(doc, begin, end, label) for begin, end, label in sorted(spans)]
        corpora[part_of_abstract[doc._.abstract]].append(doc)

    corpora["train"] = corpora["train"][:n_train]
    corpora["dev"] = corpora["dev"][::2]
    for part, docs in corpora.items():
        DocBin(docs=docs).to_disk(folder / f"{part}.spacy")
    return corpora


def train_system(name: str, train_docs: list[Doc], folder: Path) -> Path:
    """Train a system. Returns its path."""
    paths = {part: folder / f"{part}.spacy" for part in ("train", "dev")}
    output = folder / name
    config = folder / f"{name}.cfg"
    if name == "spancat":
        lengths: list[int] = []
        for doc in train_docs:
            lengths += [len(span) for span in doc.spans[KEY]]
        longest = int(numpy.quantile(lengths, 0.99))
        spancat = init_config(lang="en", pipeline=["spancat"], optimize="efficiency", silent=True)
        spancat["components"]["spancat"]["suggester"]["sizes"] = list(range(1, longest + 1))
        spancat.to_disk(config)
    else:
        # The labels for each component.
        groups: dict[str, Sequence[str]] = {f"ner_{label}": [label] for label in COARSE}
        if name == "flat":
            groups = {"ner": COARSE}
        (folder / "groups.json").write_text(json.dumps(groups))
        text = init(
            model="cnn" if name == "cnn" else "linear",
            groups_path=folder / "groups.json",
            train_path=paths["train"],
            dev_path=paths["dev"],
        )
        config.write_text(text)

    if name in ("linear", "flat"):
        return fit(config, output).path
    train(config, output, overrides={f"paths.{part}": str(path) for part, path in paths.items()})
    return output / "model-best"


def score(gold: Iterable[Spans], predicted: Iterable[Spans]) -> float:
    """Compute the F of spans and their labels, in percent."""
    total = PRFScore()
    for gold_spans, predicted_spans in zip(gold, predicted):
        total.score_set(predicted_spans, gold_spans)
    return 100 * total.fscore


def spans_of(docs: Iterable[Doc], *, outermost: bool = False) -> list[Spans]:
    """Get the character offsets and labels of the spans in each doc, or only of spans that aren't
    inside another span."""
    spans_of_docs: list[Spans] = []
    for doc in docs:
        spans = list(doc.spans[KEY])
        if outermost:
            spans = filter_spans(spans)
        spans_of_docs.append({(span.start_char, span.end_char, span.label_) for span in spans})
    return spans_of_docs


def main(path: Path, index: Path, n_train: int, systems: Iterable[str]) -> None:
    """Train and test the systems, and print a JSON object for each."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        Doc.set_extension("abstract", default=None)
        corpora = read_corpus(path, index, n_train, folder)
        for name in systems:
            began = process_time()
            nlp = spacy.load(train_system(name, corpora["train"], folder))
            row = {"system": name, "seconds": round(process_time() - began)}
            for part in ("dev", "test"):
                copies = [nlp.make_doc(doc.text) for doc in corpora[part]]  # as in training
                began = process_time()
                docs = list(nlp.pipe(copies))
                row[f"{part} tokens/s"] = round(sum(map(len, docs)) / (process_time() - began))
                nested_f = score(spans_of(corpora[part]), spans_of(docs))
                row[f"{part} nested F"] = round(nested_f, 2)
                gold = spans_of(corpora[part], outermost=True)
                outermost_f = score(gold, spans_of(docs, outermost=True))
                row[f"{part} outermost F"] = round(outermost_f, 2)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    corpus_name, index_name, n_docs, *names = sys.argv[1:]
    main(Path(corpus_name), Path(index_name), int(n_docs), names or SYSTEMS)
