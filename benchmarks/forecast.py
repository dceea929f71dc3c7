"""Are forecasts of `forecast` right, and do their intervals contain the truth as often as they say?

    OMP_NUM_THREADS=1 python benchmarks/forecast.py results.jsonl DATA [corpus ...] [--draws 0 10]
    python benchmarks/forecast.py results.jsonl --table

DATA is the folder with the corpora: conll2002_es, conll2000, genia. Spanish as sentences and as
articles, sentences of chunks, abstracts of GENIA with the five labels of JNLPBA. Copies of texts are
left out.

A draw orders the texts by chance. On the first ones, with 100, 200, 400 and 1,000 sentences,
learning curves are measured. Models of the first 1, 2 and 4 times as many texts, which are trained
as `fit` does, are tested on the last texts of the draw, with 3,000 sentences, which no model is
trained on: their F is the truth. The counts of all are added to the file, so that the benchmark
continues where it stopped, and so that other models of the curve can be compared without training.
"""

import argparse
import random
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple

import numpy
import spacy
from results import add_result, read_results
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from thinc.api import Config

from experiments import corpora
from spacy_costner.annotation.equal_texts import number_texts
from spacy_costner.workflows import init
from spacy_costner.workflows.fitting.folds import FoldTraining
from spacy_costner.workflows.forecasting.learning_curve import count_entities, measure_curve

SIZES = (1, 2, 4, 10)
"""The numbers of texts of the curves, in units of `N_UNIT` sentences."""

N_UNIT = 100
TIMES = (1, 2, 4)
N_TEST = 3_000  # sentences
VOCAB = spacy.blank("xx").vocab
LABELS_OF_GENIA = {"protein", "DNA", "RNA", "cell_type", "cell_line"}


class Corpus(NamedTuple):
    """The texts of a corpus, the code of their language, and how many sentences a text has."""

    docs: list[Doc]
    lang: str
    n_sentences: float = 1.0


class Setting(NamedTuple):
    """A curve, or the truth, of the first texts of a draw."""

    corpus: str
    draw: int
    is_curve: bool
    n: int  # texts


class Result(NamedTuple):
    """The numbers of texts and the counts of a curve, or the counts on the test texts. Shapes: (P,)
    and (P, U, L + 1, 3), or () and (L + 1, 3)"""

    n_texts: Any
    labels: list[str]
    counts: Any
    seconds: float


def read_spanish(data: Path) -> Corpus:
    """The sentences of Spanish."""
    docs: list[Doc] = []
    for part in ("train", "testa", "testb"):
        docs += corpora.read_docs(data / "conll2002_es" / f"esp.{part}", VOCAB)
    return Corpus(docs, "es")


def read_articles(data: Path) -> Corpus:
    """The articles of Spanish."""
    sentences = read_spanish(data).docs
    articles = corpora.join_groups(sentences, corpora.by_dateline(sentences))
    return Corpus(articles, "es", len(sentences) / len(articles))


def read_chunks(data: Path) -> Corpus:
    """The sentences of chunks."""
    docs: list[Doc] = []
    for part in ("train", "test"):
        docs += corpora.read_docs(data / "conll2000" / f"{part}.txt", VOCAB)
    return Corpus(docs, "en")


def read_genia(data: Path) -> Corpus:
    """The abstracts of GENIA, with the labels of JNLPBA: protein_molecule is a protein."""
    sentences, abstracts = corpora.read_genia("genia", data / "genia")
    docs = corpora.join_groups(sentences, abstracts)
    for doc in docs:
        kept = []
        for ent in doc.ents:
            label = ent.label_
            if label.partition("_")[0] in LABELS_OF_GENIA:
                label = label.partition("_")[0]
            if label in LABELS_OF_GENIA:
                ent.label_ = label
                kept.append(ent)
        doc.set_ents(kept)
    return Corpus(docs, "en", len(sentences) / len(docs))


READERS = {
    "spanish": read_spanish,
    "articles": read_articles,
    "chunks": read_chunks,
    "genia": read_genia,
}


def without_copies(corpus: Corpus) -> Corpus:
    """The first one of the docs of each text."""
    _, firsts = numpy.unique(number_texts(corpus.docs), return_index=True)
    return corpus._replace(docs=[corpus.docs[i] for i in sorted(firsts)])


def make_training(docs: Sequence[Doc], lang: str) -> FoldTraining:
    """How `fit` trains a model on docs without a config: `init` writes it."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "train.spacy")
        DocBin(docs=docs).to_disk(path)
        config = Config().from_str(init(train_path=path, lang=lang), interpolate=False)
    labels = sorted({ent.label_ for doc in docs for ent in doc.ents})
    return FoldTraining(
        config, labels, n_seeds=1, is_small=None, keeps_starts=False, prepare_component=None
    )


def as_examples(docs: Sequence[Doc]) -> list[Example]:
    """Examples of docs, whose annotation models don't see: see `FoldTraining.copies`."""
    return [Example(doc, doc) for doc in docs]


def measure(setting: Setting, docs: Sequence[Doc], test: Sequence[Doc], lang: str) -> Result:
    """Measure a curve, or the truth, of docs."""
    began = process_time()
    training = make_training(docs, lang)
    if setting.is_curve:
        curve = measure_curve(training, as_examples(docs), seed=setting.draw)
        return Result(
            curve.n_texts.tolist(),
            list(curve.labels),
            curve.counts.astype(int).tolist(),
            process_time() - began,
        )
    linear = training.train(as_examples(docs))
    dev = training.predict(linear, as_examples(test))
    labels = list(training.labels)
    counts = count_entities(
        dev,
        dev.decode(linear.ner.decoding),
        numpy.zeros(len(test), dtype="int64"),
        (1, len(labels) + 1, 3),
        labels,
    )
    return Result(len(docs), labels, counts[0].astype(int).tolist(), process_time() - began)


def measure_all(path: Path, data: Path, names: Sequence[str], draws: range) -> None:
    """Measure all that isn't in the file yet, one draw after another."""
    results = read_results(path, Setting, Result)
    corpus_of_name = {name: without_copies(READERS[name](data)) for name in names}
    for draw in draws:
        for name, corpus in corpus_of_name.items():
            docs = random.Random(draw).sample(corpus.docs, len(corpus.docs))
            unit = round(N_UNIT / corpus.n_sentences)
            test = docs[-round(N_TEST / corpus.n_sentences) :]
            sizes = sorted({unit * size * times for size in SIZES for times in TIMES})
            assert sizes[-1] + len(test) <= len(docs)
            settings = [Setting(name, draw, True, unit * size) for size in SIZES]
            settings += [Setting(name, draw, False, size) for size in sizes]
            for setting in sorted(settings, key=lambda setting: setting.n):
                if setting in results:
                    continue
                result = measure(setting, docs[: setting.n], test, corpus.lang)
                add_result(path, setting, result)
                print(*setting, f"{result.seconds:.0f} s", file=sys.stderr, flush=True)


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("corpora", nargs="*", default=list(READERS))
    parser.add_argument("--draws", type=int, nargs=2, default=(0, 10))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    measure_all(options.results, options.data, options.corpora, range(*options.draws))


if __name__ == "__main__":
    main()
