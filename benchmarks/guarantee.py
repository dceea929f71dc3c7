"""Check whether guarantees hold, on random halves of annotated docs: thresholds are chosen on one
half and tested on the other.

    python benchmarks/guarantee.py MODEL DOCS [DOCS ...] [--splits 200] [--shifted DOCS]
        [--by-group KEY] [--found exact ...] [--by doc] [--per-label]

DOCS must be fully annotated, and the model must not have been trained or calibrated on them. The
last three options are options of `costner guarantee`. `mean` is the guarantee of the expected miss
rate, `sure` the guarantee with confidence 0.95, `naive` the largest threshold that keeps the limit
on the first half. `miss` is the mean miss rate on the second half, marked if it exceeds the limit
by more than two standard errors; `over` the percentage of all splits in which there is a guarantee,
but the miss rate exceeds the limit; `spans` the size of the set per annotated entity. The number of
splits without a guarantee is in brackets. `p` is the size for the same guarantee with the
probability as score. By group, `own` is the guarantee with a threshold for each value of the key,
`one` with one threshold for all.

The last line is the number of splits in which `watch` raises an alarm on the second half, with the
first half as calibration docs. Both halves are from the same source, so every alarm is false.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import numpy
import spacy
from spacy.training import Example

from spacy_costner.cli.tables import text_table
from spacy_costner.decoding import LEAST_PROB_OF_SETS
from spacy_costner.metrics import conformal
from spacy_costner.metrics.shift import digest_of_scores, find_shift, in_random_order, rounded
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.pipeline.promises import FOUND, Terms
from spacy_costner.readers import make_reader
from spacy_costner.workflows.calibration.scored_spans import score_spans
from spacy_costner.workflows.calibration.set_thresholds import MIN_THRESHOLD
from spacy_costner.workflows.components import get_component
from spacy_costner.workflows.evaluation.predictions import predict_dev

LIMITS = (0.01, 0.02, 0.05, 0.1)
COLUMNS = ("miss", "over", "spans")
Half = tuple[Any, Any]
"""The docs of a half, or all docs: tables of their spans and annotated entities. A row contains the
doc, the label and the score: see `score_spans`."""


def losses_of(gold: Any, by: str) -> conformal.Losses:
    """Compute the losses (misses) of the docs with annotated entities."""
    return conformal.miss_losses(gold["score"], gold["doc"], by=by)


class Tally:
    """The results of one way to choose thresholds: for each split, the miss rate on the second half
    and the size of the set per annotated entity."""

    def __init__(self) -> None:
        self.miss_rates: list[float] = []
        self.spans_per_entity: list[float] = []
        self.n_refused = 0  # splits in which nothing could be guaranteed

    def add(self, threshold: float | None, half: Half, by: str) -> None:
        """Count what a threshold misses on the second half of a split."""
        if threshold is None:
            self.n_refused += 1
            return
        spans, gold = half
        (miss_rate,) = losses_of(gold, by).mean(numpy.asarray([threshold])).tolist()
        n_in_set = int((spans["score"] >= threshold).sum())
        self.miss_rates.append(miss_rate)
        self.spans_per_entity.append(n_in_set / len(gold))

    def cells(self, limit: float) -> list[str]:
        """Make the cells of COLUMNS for a guaranteed limit."""
        if not self.miss_rates:
            return ["-", "-", f"- ({self.n_refused})"]
        miss_rates = numpy.asarray(self.miss_rates)
        miss = f"{miss_rates.mean():.4f}"
        standard_error = miss_rates.std() / len(miss_rates) ** 0.5
        if miss_rates.mean() > limit + 2 * standard_error:
            miss += " !"
        n_splits = len(miss_rates) + self.n_refused
        over = f"{100 * (miss_rates > limit).sum() / n_splits:.1f} %"
        spans = f"{numpy.mean(self.spans_per_entity):.2f}"
        if self.n_refused > 0:
            spans += f" ({self.n_refused})"
        return [miss, over, spans]


def of_docs(half: Half, is_wanted: Any) -> Half:
    """Select the spans and entities of some docs. `is_wanted` contains a boolean for each doc,
    (D,)."""
    spans, gold = half
    return spans[is_wanted[spans["doc"]]], gold[is_wanted[gold["doc"]]]


def halves(all_docs: Half, n_docs: int, seed: int) -> tuple[Half, Half]:
    """Split the docs into random halves."""
    is_first = numpy.random.default_rng(seed).permutation(n_docs) < n_docs // 2
    return of_docs(all_docs, is_first), of_docs(all_docs, ~is_first)


def naive(losses: conformal.Losses, limit: float) -> float | None:
    """Find the largest threshold that meets the limit on the calibration docs."""
    candidates = numpy.unique(numpy.clip(losses.score, MIN_THRESHOLD, 1))
    passes = losses.mean(candidates) <= limit
    if not passes.any():
        return None
    return float(candidates[passes][-1])


def run(limit: float, by: str, all_docs: Half, plain: Half, n_docs: int, splits: int) -> list[str]:
    """Make the cells for a limit of the miss rate: the results of each way to choose thresholds.
    `all_docs` contains our scores, `plain` the probabilities as scores for the same docs. They are
    split `splits` times. For `by`, see `Terms`."""
    mean_tally = Tally()
    sure_tally = Tally()
    naive_tally = Tally()
    plain_tally = Tally()
    for seed in range(splits):
        (_, gold), test = halves(all_docs, n_docs, seed)
        losses = losses_of(gold, by)
        mean_threshold = conformal.threshold(losses, limit, floor=MIN_THRESHOLD)
        mean_tally.add(mean_threshold, test, by)
        sure_threshold = conformal.threshold(losses, limit, delta=0.05, floor=MIN_THRESHOLD)
        sure_tally.add(sure_threshold, test, by)
        naive_tally.add(naive(losses, limit), test, by)

        (_, plain_gold), plain_test = halves(plain, n_docs, seed)
        plain_losses = losses_of(plain_gold, by)
        plain_threshold = conformal.threshold(plain_losses, limit, floor=MIN_THRESHOLD)
        if plain_threshold is not None and plain_threshold < LEAST_PROB_OF_SETS:
            # For the plain score, spans below the floor of the search are unknown.
            plain_threshold = None
        plain_tally.add(plain_threshold, plain_test, by)

    cells: list[str] = []
    for tally in (mean_tally, sure_tally, naive_tally):
        cells += tally.cells(limit)
    *_, spans_of_plain = plain_tally.cells(limit)
    return [*cells, spans_of_plain]


def run_groups(by: str, all_docs: Half, groups: Any, splits: int) -> list[list[str]]:
    """Measure the miss rate of each group, with separate thresholds and with one threshold for all
    groups. `groups` contains the group of each doc. Shape: (D,)"""
    own_columns = [f"own {column}" for column in COLUMNS]
    one_columns = [f"one {column}" for column in COLUMNS]
    rows = [["group", "limit", *own_columns, *one_columns]]

    for limit, group in product(LIMITS, numpy.unique(groups)):
        is_in_group = groups == group
        with_own_threshold = Tally()
        with_one_threshold = Tally()
        for seed in range(splits):
            first_half, second_half = halves(all_docs, len(groups), seed)
            group_of_first_half = of_docs(first_half, is_in_group)
            test = of_docs(second_half, is_in_group)
            for tally, (_, gold) in (
                (with_own_threshold, group_of_first_half),
                (with_one_threshold, first_half),
            ):
                threshold = conformal.threshold(losses_of(gold, by), limit, floor=MIN_THRESHOLD)
                tally.add(threshold, test, by)
        cells = [*with_own_threshold.cells(limit), *with_one_threshold.cells(limit)]
        rows.append([group, f"{limit:g}", *cells])
    return rows


def shift(by: str, calibration: Half, shifted: Half) -> list[list[str]]:
    """Make a guarantee on all docs, and measure the miss rate on docs of another kind."""
    _, gold = calibration
    rows = []
    for limit in LIMITS:
        tally = Tally()
        threshold = conformal.threshold(losses_of(gold, by), limit, floor=MIN_THRESHOLD)
        tally.add(threshold, shifted, by)
        rows.append([f"{limit:g}", *tally.cells(limit)])
    return rows


def of_label(half: Half, i: int) -> Half:
    """Select the spans and entities with the i-th label."""
    spans, gold = half
    return spans[spans["label"] == i], gold[gold["label"] == i]


def rows_of(
    found: str, ner: CostSensitiveNER, all_docs: Half, plain: Half, n_docs: int, options: Any
) -> list[list[str]]:
    """Make the rows of the table for one setting of `found`: a row for each limit and, if
    guarantees are per label, each label. See `run` for the other arguments."""
    halves_of_labels = [("", all_docs, plain)]
    if options.per_label:
        halves_of_labels = []
        for i, label in enumerate(ner.labels):
            halves_of_labels.append((label, of_label(all_docs, i), of_label(plain, i)))
    rows: list[list[str]] = []
    for (label, docs, plain_docs), limit in product(halves_of_labels, LIMITS):
        cells = run(limit, options.by, docs, plain_docs, n_docs, options.splits)
        rows.append([found, label, f"{limit:g}", *cells])
    return rows


def count_alarms(scores: Any, splits: int) -> int:
    """Count the splits in which `watch` raises an alarm on the second half. It tests the scores of
    docs, (D,)."""
    n_alarms = 0
    for seed in range(splits):
        is_first = numpy.random.default_rng(seed).permutation(len(scores)) < len(scores) // 2
        first_half = scores[is_first]
        calibration = {
            "scores": sorted(first_half.tolist()),
            "digest": digest_of_scores(first_half),
            "approximate": False,
        }
        new_scores = in_random_order(scores[~is_first].tolist(), seed)
        shift = find_shift(calibration, new_scores, seed=seed)
        n_alarms += shift.alarm is not None
    return n_alarms


def read_options() -> Any:
    """Read the command-line options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("docs", nargs="+", type=Path)
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--found", nargs="*", default=FOUND)
    parser.add_argument("--by", default="doc")
    parser.add_argument("--per-label", action="store_true")
    parser.add_argument("--shifted", type=Path)
    parser.add_argument("--by-group")
    return parser.parse_args()


def main() -> None:
    """Split the docs into halves repeatedly, and print whether guarantees hold."""
    options = read_options()
    nlp = spacy.load(options.model)
    ner = get_component(nlp, "ner")
    examples: list[Example] = []
    for path in options.docs:
        examples += make_reader(path)(nlp)

    header = ["found", "label", "limit"]
    for way in ("mean", "sure", "naive"):
        header += [f"{way} {column}" for column in COLUMNS]
    rows: list[list[str]] = [[*header, "p spans"]]
    for found in options.found:
        # The limits of the guarantee don't matter: only its scores are needed. If false alarms are
        # limited, the score is the probability: see `guarantee_scores`.
        terms = Terms(miss=0.5, found=found, by=options.by, per_label=options.per_label)
        plain_terms = Terms(false_alarm=0.5, found=found, per_label=options.per_label)
        # The first two returned tables contain the spans and the annotated entities.
        all_docs = score_spans(nlp, ner, examples, terms)[:2]
        if options.by_group:
            key = options.by_group
            groups = numpy.asarray([str(eg.reference.user_data[key]) for eg in examples])
            table = run_groups(options.by, all_docs, groups, options.splits)
            print(f"{found}\n{text_table(table)}")
            continue
        if options.shifted and found == "exact":
            shifted_examples = list(make_reader(options.shifted)(nlp))
            shifted = score_spans(nlp, ner, shifted_examples, terms)[:2]
            rows_of_shift = shift(options.by, all_docs, shifted)
            print(text_table([["limit", *COLUMNS], *rows_of_shift]), flush=True)
        plain = score_spans(nlp, ner, examples, plain_terms)[:2]
        rows += rows_of(found, ner, all_docs, plain, len(examples), options)

    print(f"{len(examples):,} docs, {options.splits} splits, by {options.by}")
    if not options.by_group:
        print(f"\n{text_table(rows)}")
    scores = rounded(predict_dev(nlp, ner, examples).entropies())
    n_alarms = count_alarms(scores, options.splits)
    print(f"`watch` alarms in {n_alarms} of {options.splits} splits")


if __name__ == "__main__":
    main()
