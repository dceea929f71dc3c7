"""Check whether the forecasts of `forecast` are accurate, and whether their intervals contain the
truth as often as claimed.

    OMP_NUM_THREADS=1 python benchmarks/forecast.py results.jsonl DATA [corpus ...] [--draws 0 10]
    python benchmarks/forecast.py results.jsonl --table [--draws 0 10]

DATA is the folder with the corpora: conll2002_es, conll2000, genia. The docs are sentences and
articles of Spanish, sentences of chunks, and abstracts of GENIA with the five JNLPBA labels.
Duplicate texts are left out.

A draw is a random order of the texts. Learning curves are measured on the first texts, with 100,
200, 400 and 1,000 sentences. The truth is the F of models trained as by `fit` on the first 1, 2 and
4 times as many texts. They are tested on the last texts of the draw, with 3,000 sentences, which
are never used for training. All counts are added to the file, so that the benchmark can be resumed,
and other models of the curve can be compared without training.
"""

import argparse
import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import product
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
from thinc.types import Floats1d

from experiments import corpora
from spacy_costner.annotation.equal_texts import number_texts
from spacy_costner.cli.tables import markdown_table
from spacy_costner.metrics import f_score
from spacy_costner.metrics.learning_curves import ScoreCounts
from spacy_costner.workflows import init
from spacy_costner.workflows.fitting.folds import FoldTraining
from spacy_costner.workflows.forecasting.curve_forecast import (
    MIN_ENTITIES,
    TIMES,
    count_annotated,
    fit_score,
)
from spacy_costner.workflows.forecasting.learning_curve import (
    LearningCurve,
    count_entities,
    measure_curve,
)

SIZES = (1, 2, 4, 10)
"""The sizes of the curves, in units of `N_UNIT` sentences."""

N_UNIT = 100
N_TEST = 3_000  # sentences
VOCAB = spacy.blank("xx").vocab
LABELS_OF_GENIA = {"protein", "DNA", "RNA", "cell_type", "cell_line"}


class Corpus(NamedTuple):
    """The texts of a corpus, their language code, and the number of sentences per text."""

    docs: list[Doc]
    lang: str
    n_sentences: float = 1.0


class Setting(NamedTuple):
    """A curve or the truth for the first texts of a draw."""

    corpus: str
    draw: int
    is_curve: bool
    n: int  # texts


class Result(NamedTuple):
    """The numbers of texts and the counts of a curve, or the number of texts and the counts on the
    test texts. Shapes: (P,) and (P, U, L + 1, 3), or () and (L + 1, 3)"""

    n_texts: Any
    labels: list[str]
    counts: Any
    seconds: float


def read_spanish(data: Path) -> Corpus:
    """Read the sentences of the Spanish corpus."""
    docs: list[Doc] = []
    for part in ("train", "testa", "testb"):
        docs += corpora.read_docs(data / "conll2002_es" / f"esp.{part}", VOCAB)
    return Corpus(docs, "es")


def read_articles(data: Path) -> Corpus:
    """Read the articles of the Spanish corpus."""
    sentences = read_spanish(data).docs
    articles = corpora.join_groups(sentences, corpora.by_dateline(sentences))
    return Corpus(articles, "es", len(sentences) / len(articles))


def read_chunks(data: Path) -> Corpus:
    """Read the sentences of the chunking corpus."""
    docs: list[Doc] = []
    for part in ("train", "test"):
        docs += corpora.read_docs(data / "conll2000" / f"{part}.txt", VOCAB)
    return Corpus(docs, "en")


def read_genia(data: Path) -> Corpus:
    """Read the abstracts of GENIA, with the JNLPBA labels: protein_molecule becomes protein."""
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
    """Keep only the first doc with each text."""
    _, firsts = numpy.unique(number_texts(corpus.docs), return_index=True)
    return corpus._replace(docs=[corpus.docs[i] for i in sorted(firsts)])


def make_training(docs: Sequence[Doc], lang: str) -> FoldTraining:
    """Set up training on docs as by `fit` without a config: `init` writes the config."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "train.spacy")
        DocBin(docs=docs).to_disk(path)
        config = Config().from_str(init(train_path=path, lang=lang), interpolate=False)
    labels = sorted({ent.label_ for doc in docs for ent in doc.ents})
    return FoldTraining(
        config, labels, n_seeds=1, is_small=None, keeps_starts=False, prepare_component=None
    )


def as_examples(docs: Sequence[Doc]) -> list[Example]:
    """Make examples from docs. Models can't see the annotation: see `FoldTraining.copies`."""
    return [Example(doc, doc) for doc in docs]


def measure(setting: Setting, docs: Sequence[Doc], test: Sequence[Doc], lang: str) -> Result:
    """Measure a curve or the truth for docs."""
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


def measure_all(
    path: Path, data: Path, names: Sequence[str], draws: range, sizes: Sequence[int]
) -> None:
    """Measure everything that isn't in the file yet, one draw after another. `sizes` contains the
    sizes of the curves: see `SIZES`."""
    results = read_results(path, Setting, Result)
    corpus_of_name = {name: without_copies(READERS[name](data)) for name in names}
    for draw in draws:
        for name, corpus in corpus_of_name.items():
            docs = random.Random(draw).sample(corpus.docs, len(corpus.docs))
            unit = round(N_UNIT / corpus.n_sentences)
            test = docs[-round(N_TEST / corpus.n_sentences) :]
            n_of_truths = {unit * size * times for size in sizes for times in TIMES}
            assert max(n_of_truths) + len(test) <= len(docs)
            settings = [Setting(name, draw, True, unit * size) for size in sizes]
            settings += [Setting(name, draw, False, n) for n in n_of_truths]
            for setting in sorted(settings, key=lambda setting: setting.n):
                if setting in results:
                    continue
                result = measure(setting, docs[: setting.n], test, corpus.lang)
                add_result(path, setting, result)
                print(*setting, f"{result.seconds:.0f} s", file=sys.stderr, flush=True)


class Cell(NamedTuple):
    """A forecast of F and the truth, in points."""

    corpus: str
    n_sentences: int
    draw: int
    times: int
    truth: float
    value: float
    low: float
    high: float
    peers: dict[str, float]


def f_of(counts: Any) -> Floats1d:
    """Compute F from tp, fp and fn. Shape: (..., 3) to (...)"""
    return 100 * f_score(*numpy.moveaxis(numpy.asarray(counts, dtype="float64"), -1, 0))


def power_law(n: Floats1d, f: Floats1d, n_more: Floats1d) -> Floats1d:
    """Fit 100 - F = floor + scale n^-power by least squares, with the best of many powers."""
    best_error = numpy.inf
    forecast = numpy.zeros(len(n_more))
    for power in numpy.linspace(0.02, 2, 100):
        columns = numpy.stack([numpy.ones(len(n)), n**-power], axis=1)
        coefficients, *_ = numpy.linalg.lstsq(columns, 100 - f, rcond=None)
        if coefficients[0] < 0:  # the floor
            scale = (columns[:, 1] @ (100 - f)) / (columns[:, 1] @ columns[:, 1])
            coefficients = numpy.asarray([0, scale])
        error = numpy.square(columns @ coefficients - (100 - f)).sum()
        if error < best_error:
            best_error = error
            forecast = 100 - coefficients[0] - coefficients[1] * n_more**-power
    return forecast


def line(n: Floats1d, f: Floats1d, n_more: Floats1d) -> Floats1d:
    """Fit F as linear in log n, by least squares."""
    return numpy.polyval(numpy.polyfit(numpy.log(n), f, 1), numpy.log(n_more))


def log_line(n: Floats1d, f: Floats1d, n_more: Floats1d) -> Floats1d:
    """Fit log(100 - F) as linear in log n, by least squares."""
    return 100 - numpy.exp(line(n, numpy.log(100 - f), n_more))


def last_gain(n: Floats1d, f: Floats1d, n_more: Floats1d) -> Floats1d:
    """Repeat the gain between the last two points, which is for a doubling, for each further
    doubling."""
    return f[-1] + (f[-1] - f[-2]) / numpy.log(n[-1] / n[-2]) * numpy.log(n_more / n[-1])


PEERS = {"power law": power_law, "line": line, "log line": log_line, "last gain": last_gain}


def compare(results: dict[Setting, Result], of_label: bool = False) -> Iterator[Cell]:
    """Compare forecasts with the truth, if both are in the file: F of all labels together, or F of
    each label with enough entities for a forecast."""
    units = {name: min(s.n for s in results if s.corpus == name) for name, *_ in results}
    for setting, result in results.items():
        if not setting.is_curve:
            continue
        curve = LearningCurve(
            numpy.asarray(result.n_texts),
            result.labels,
            numpy.asarray(result.counts, dtype="float64"),
        )
        n_sentences = N_UNIT * setting.n // units[setting.corpus]
        for times in TIMES:
            truth = results.get(setting._replace(is_curve=False, n=setting.n * times))
            if truth is None:
                continue
            n_more = numpy.asarray([setting.n * times], dtype="float64")
            pairs = [(curve.of_all_labels(), numpy.sum(truth.counts, axis=0))]
            if of_label:
                pairs = []
                for label, true_counts in zip(truth.labels, truth.counts):
                    if label in curve.labels:
                        pairs.append((curve.of_label(label), numpy.asarray(true_counts)))
            for counts, true_counts in pairs:
                if of_label and count_annotated(counts) < MIN_ENTITIES:
                    continue
                fitted = fit_score(curve.n_texts, counts, ScoreCounts.of_f)
                value, low, high = (100 * float(bound[0]) for bound in fitted.forecast(n_more))
                measured = f_of(counts.sum(axis=1))
                peers = {
                    name: float(peer(curve.n_texts, measured, n_more)[0])
                    for name, peer in PEERS.items()
                }
                yield Cell(
                    setting.corpus,
                    n_sentences,
                    setting.draw,
                    times,
                    float(f_of(true_counts)),
                    value,
                    low,
                    high,
                    peers,
                )


def mean_error(cells: Sequence[Cell], method: str) -> str:
    """Format the mean error of a method ("forecast" or the name of a peer), or "-" without
    cells."""
    errors: list[float] = []
    for cell in cells:
        value = cell.value if method == "forecast" else cell.peers[method]
        errors.append(abs(value - cell.truth))
    return f"{numpy.mean(errors):.1f}" if errors else "-"


def row_of_cells(cells: Sequence[Cell]) -> list[str]:
    """Make a row: the number of curves and, for 2 and 4 times as many texts, the mean error and the
    width and coverage of the interval."""
    row = [str(len({(cell.corpus, cell.n_sentences, cell.draw) for cell in cells}))]
    for times in (2, 4):
        chosen = [cell for cell in cells if cell.times == times]
        width = numpy.mean([cell.high - cell.low for cell in chosen])
        covered = sum(cell.low <= cell.truth <= cell.high for cell in chosen)
        row += [mean_error(chosen, "forecast"), f"{width:.1f}", f"{covered} of {len(chosen)}"]
    return row


def print_tables(cells: Sequence[Cell]) -> None:
    """Print a table of the forecasts, with a row for each corpus and size, and a table of the mean
    errors of all methods, by size. Only curves with both truths are used."""
    measures = ["error", "width", "covered"]
    columns = [f"{name} at {times}" for times in (2, 4) for name in measures]
    rows: list[list[str]] = []
    names = list(dict.fromkeys(cell.corpus for cell in cells))
    for name, size in product([*names, "all"], [*SIZES, 0]):
        chosen = [
            cell
            for cell in cells
            if name in (cell.corpus, "all") and size in (cell.n_sentences // N_UNIT, 0)
        ]
        if {2, 4} <= {cell.times for cell in chosen}:
            rows.append([name, str(size * N_UNIT or "all"), *row_of_cells(chosen)])
    print(markdown_table(["corpus", "sentences", "curves", *columns], rows, align=True), "\n")

    methods = ["forecast", *PEERS]
    rows = []
    for size, times in product(SIZES, (2, 4)):
        chosen = [
            cell for cell in cells if cell.n_sentences == size * N_UNIT and cell.times == times
        ]
        errors = [mean_error(chosen, method) for method in methods]
        rows.append([str(size * N_UNIT), str(times), *errors])
    print(markdown_table(["sentences", "times as many", *methods], rows, align=True), "\n")


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--corpora", nargs="+", default=list(READERS))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--draws", type=int, nargs=2, default=(0, 10))
    options = parser.parse_args()
    if options.table:
        results = read_results(options.results, Setting, Result)
        draws = range(*options.draws)
        for of_label in (False, True):
            print("F of each label\n" if of_label else "F of all labels\n")
            print_tables([cell for cell in compare(results, of_label) if cell.draw in draws])
        return
    warnings.simplefilter("ignore")
    measure_all(
        options.results, options.data, options.corpora, range(*options.draws), options.sizes
    )


if __name__ == "__main__":
    main()
