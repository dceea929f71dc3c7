"""Check whether the intervals of `estimate` contain the truth as often as guaranteed, and measure
their width.

    python benchmarks/estimate.py MODEL DOCS [MODEL DOCS ...] [--sentences 20] [--drawings 2000]

DOCS are annotated docs that are new to the model. They are the population, whose counts and scores
are known. Samples of 30, 50 and 100 docs are drawn from it repeatedly, with the docs unchanged, in
lower case, and with 5 % of their characters garbled. Counts and scores are refused if `estimate`
refuses them.

The first table covers the counts and scores of labels with at least 100 entities, and of all labels
together. Coverage is the percentage of samples whose interval contains the truth. The table
contains the number of counts or scores, the percentages of these with a coverage of 93 to 97 % and
above, the lowest coverage, and the percentage of refused samples.

The second table contains half of the width of the interval, as a percentage of the true count or in
points of the score, as the mean over labels of the median over samples. It is given for the
estimate, for the estimate with simple random docs, and for the annotated docs without the model (a
rate per token). The last column is the model's error without the estimate.
"""

import argparse
import random
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
import spacy
from shifts import SHIFTS, shift_doc
from spacy.language import Language
from spacy.tokens import Doc
from thinc.types import Array1d, Floats1d, Floats2d, Ints2d

from spacy_costner.cli.tables import text_table
from spacy_costner.readers import ReadOptions, read_docs
from spacy_costner.workflows.sampling.drawn_counts import EntityKey, count_table, entity_keys
from spacy_costner.workflows.sampling.estimation import MIN_ENTITIES, MIN_OF_EACH
from spacy_costner.workflows.sampling.estimators import (
    Count,
    Interval,
    Sample,
    drawing_probs,
    estimate_ratio,
    estimate_share,
    estimate_total,
)
from spacy_costner.workflows.sampling.expected_counts import (
    ExpectedCounts,
    concatenate_counts,
    expect_counts,
)

SIZES = (30, 50, 100)
MIN_IN_POPULATION = 100
"""Labels with fewer entities in the population are left out."""


class Column(NamedTuple):
    """The annotated and the expected count in each doc of the population. Shapes: (D,)"""

    annotated: Floats1d
    expected: Floats1d

    def __add__(self, other: "Column") -> "Column":  # type: ignore[override]
        """Add two counts in each doc."""
        return Column(self.annotated + other.annotated, self.expected + other.expected)

    def drawn(self, docs: Ints2d) -> Count:
        """Get the count in sampled docs, (samples, n)."""
        return Count(self.annotated[docs], self.expected[docs], float(self.expected.sum()))


class Labelled(NamedTuple):
    """The counts of a label, or of all labels."""

    annotated: Column
    correct: Column
    predicted: Column


class Population(NamedTuple):
    """Annotated docs, and what the model expects in them. Shapes: (D,)"""

    labels: list[Labelled]  # first all labels together, then each label with enough entities
    mistakes: Floats1d  # expected
    n_tokens: Column


class Drawing(NamedTuple):
    """Samples of docs, as indices, (samples, n), and how they were drawn."""

    docs: Ints2d
    sample: Sample


class Simulated(NamedTuple):
    """The results of many samples for one measure of one label."""

    measure: str
    coverage: float  # of the samples that are not refused
    refused: float  # proportion of samples
    half_width: float  # median
    half_width_simple: float  # of simple random docs
    half_width_alone: float  # of simple random docs without the model
    error_of_model: float


def make_population(nlp: Language, docs: Sequence[Doc]) -> Population:
    """Count the annotated, predicted and expected entities in docs."""
    # The entities of each doc, annotated and correctly predicted
    annotated_keys: list[set[EntityKey]] = []
    correct_keys: list[set[EntityKey]] = []
    counts_of_batches: list[ExpectedCounts] = []
    i = 0  # the doc
    for batch, batch_counts in expect_counts(nlp, "ner", docs):
        counts_of_batches.append(batch_counts)
        for predicted_doc in batch:
            gold = entity_keys(docs[i])
            annotated_keys.append(gold)
            correct_keys.append(gold & entity_keys(predicted_doc))
            i += 1
    counts = concatenate_counts(counts_of_batches)
    # Entities with labels that are never predicted don't count.
    labels = counts.labels
    annotated = count_table(annotated_keys, labels)
    correct = count_table(correct_keys, labels)

    # The annotated and the expected counts for each column of `Labelled`. Shapes: (D, labels)
    tables: list[tuple[Floats2d, Floats2d]] = [
        (annotated, counts.annotated),
        (correct, counts.correct),
        (counts.predicted, counts.predicted),
    ]
    # All labels together, then each label
    every_label = numpy.ones(len(labels), dtype=bool)
    masks = [numpy.arange(len(labels)) == k for k in range(len(labels))]
    labelled: list[Labelled] = []
    for mask in [every_label, *masks]:
        if annotated[:, mask].sum() < MIN_IN_POPULATION:
            continue
        columns: list[Column] = []
        for annotated_table, expected_table in tables:
            columns.append(
                Column(
                    annotated=annotated_table[:, mask].sum(axis=1),
                    expected=expected_table[:, mask].sum(axis=1),
                )
            )
        labelled.append(Labelled(*columns))
    n_tokens = counts.n_tokens.astype("float64")
    return Population(labelled, counts.mistakes(), Column(n_tokens, n_tokens))


def simulate(
    population: Population, n: int, n_samples: int, rng: numpy.random.Generator
) -> Iterator[Simulated]:
    """Draw many samples of n docs from a population, and estimate all counts and scores from each
    sample: by the design, and with simple random docs, with and without the model. Yields the
    results of each measure for each label."""
    n_docs = len(population.mistakes)
    probs = drawing_probs(population.mistakes)
    docs = rng.choice(n_docs, size=(n_samples, n), p=probs)
    by_design = Drawing(docs, Sample(probs[docs], n_docs))
    # Also with replacement: populations are small, and the correction would hide the effect of the
    # design.
    docs = rng.integers(n_docs, size=(n_samples, n))
    simple = Drawing(docs, Sample(numpy.full((n_samples, n), 1 / n_docs), n_docs))

    for i, labelled in enumerate(population.labels):
        of_all = " of all" if i == 0 else ""
        total = simulate_total(labelled.annotated, population.n_tokens, by_design, simple)
        yield total._replace(measure=f"{total.measure}{of_all}")
        for score in simulate_scores(labelled, by_design, simple):
            yield score._replace(measure=f"{score.measure}{of_all}")


def simulate_total(
    annotated: Column, n_tokens: Column, by_design: Drawing, simple: Drawing
) -> Simulated:
    """Compute the results of the samples for the number of entities with a label. Without the
    model, the rate of entities per token is estimated."""
    total = annotated.annotated.sum()
    with_design = estimate_total(annotated.drawn(by_design.docs), by_design.sample)
    with_model = estimate_total(annotated.drawn(simple.docs), simple.sample)
    rate = estimate_ratio(
        annotated.drawn(simple.docs).without_model(),
        n_tokens.drawn(simple.docs).without_model(),
        simple.sample,
    )
    # From a rate to a fraction of the total
    scale = n_tokens.annotated.sum() / total
    n_annotated = annotated.annotated[by_design.docs].sum(axis=1)
    return Simulated(
        "entities",
        *coverage(with_design, total, n_annotated >= MIN_ENTITIES),
        half_width=half_width(with_design) / total,
        half_width_simple=half_width(with_model) / total,
        half_width_alone=half_width(rate) * scale,
        error_of_model=abs(annotated.expected.sum() / total - 1),
    )


def simulate_scores(labelled: Labelled, by_design: Drawing, simple: Drawing) -> Iterator[Simulated]:
    """Yield the results of the samples for precision, recall and F of a label."""
    annotated, correct, predicted = labelled
    n_annotated = annotated.annotated[by_design.docs].sum(axis=1)
    n_correct = correct.annotated[by_design.docs].sum(axis=1)
    n_false_alarms = predicted.annotated[by_design.docs].sum(axis=1) - n_correct
    n_missed = n_annotated - n_correct
    # Each score is a ratio of two counts: F is 2 correct / (predicted + annotated).
    scores = (
        ("precision", correct, predicted, n_false_alarms),
        ("recall", correct, annotated, n_missed),
        ("F", correct + correct, predicted + annotated, n_false_alarms + n_missed),
    )
    for name, numerator, denominator, n_wrong in scores:
        truth = numerator.annotated.sum() / max(denominator.annotated.sum(), 1)
        expected = numerator.expected.sum() / max(denominator.expected.sum(), 1)
        with_design = estimate_share(
            numerator.drawn(by_design.docs), denominator.drawn(by_design.docs), by_design.sample
        )
        numerator_drawn = numerator.drawn(simple.docs)
        denominator_drawn = denominator.drawn(simple.docs)
        with_model = estimate_share(numerator_drawn, denominator_drawn, simple.sample)
        alone = estimate_share(
            numerator_drawn.without_model(), denominator_drawn.without_model(), simple.sample
        )
        is_estimated = numpy.minimum(n_correct, n_wrong) >= MIN_OF_EACH
        yield Simulated(
            name,
            *coverage(with_design, truth, is_estimated),
            half_width=half_width(with_design),
            half_width_simple=half_width(with_model),
            half_width_alone=half_width(alone),
            error_of_model=abs(expected - truth),
        )


def coverage(interval: Interval, truth: float, is_estimated: Array1d) -> tuple[float, float]:
    """Compute the proportion of estimated samples whose interval contains the truth, or NaN if more
    than three quarters of the samples are refused, and the proportion of refused samples.
    `interval` contains an interval for each sample, `is_estimated` is False for refused samples."""
    refused = 1 - float(is_estimated.mean())
    if refused > 0.75:
        return numpy.nan, refused
    has_truth = (interval.low <= truth) & (truth <= interval.high)
    return float(has_truth[is_estimated].mean()), refused


def half_width(interval: Interval) -> float:
    """Compute the median over samples of half the width of the interval."""
    return float(numpy.median(interval.high - interval.low) / 2)


def coverage_row(results: Sequence[Simulated]) -> list[str]:
    """Make the cells of the first table, from the results of all labels."""
    covered = numpy.asarray([result.coverage for result in results])
    refused = numpy.mean([result.refused for result in results])
    covered = covered[~numpy.isnan(covered)]
    if not len(covered):
        return ["0", "-", "-", "-", f"{100 * refused:.0f} %"]
    above = (covered > 0.97).mean()
    within = ((covered >= 0.93) & (covered <= 0.97)).mean()
    return [
        str(len(covered)),
        f"{100 * within:.0f} %",
        f"{100 * above:.0f} %",
        f"{100 * covered.min():.1f}",
        f"{100 * refused:.0f} %",
    ]


def width_row(results: Sequence[Simulated]) -> list[str]:
    """Make the cells of the second table: means over labels whose measure is mostly estimated."""
    estimated = [result for result in results if not numpy.isnan(result.coverage)]
    if not estimated:
        return ["-"] * 4
    cells: list[str] = []
    for name in ("half_width", "half_width_simple", "half_width_alone", "error_of_model"):
        mean = numpy.mean([getattr(result, name) for result in estimated])
        cells.append(f"{100 * mean:.1f}")
    return cells


def main() -> None:
    """Sample docs repeatedly from each population, and print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models_and_docs", nargs="+")
    parser.add_argument("--sentences", type=int, help="sentences of a doc")
    parser.add_argument("--drawings", type=int, default=2000)
    options = parser.parse_args()

    pairs = zip(options.models_and_docs[::2], options.models_and_docs[1::2])
    results: dict[tuple[str, int, str], list[Simulated]] = {}
    for model, path in pairs:
        nlp = spacy.load(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            docs = list(read_docs(nlp, Path(path), ReadOptions(n_sents=options.sentences)))
        for shift in SHIFTS:
            rng = random.Random(0)
            population = make_population(nlp, [shift_doc(doc, shift, rng) for doc in docs])
            for n in SIZES:
                generator = numpy.random.default_rng(n)
                for result in simulate(population, n, options.drawings, generator):
                    results.setdefault((shift, n, result.measure), []).append(result)
        print(f"{model} {path}: {len(docs):,} docs", flush=True)

    of_coverage = [["text", "n", "measure", "number", "93-97 %", "above", "lowest", "refused"]]
    of_width = [["text", "n", "measure", "estimate", "simple", "docs alone", "model alone"]]
    for (shift, n, measure), simulated in results.items():
        of_coverage.append([shift, str(n), measure, *coverage_row(simulated)])
        of_width.append([shift, str(n), measure, *width_row(simulated)])
    print(f"\n{text_table(of_coverage)}\n\n{text_table(of_width)}")


if __name__ == "__main__":
    main()
