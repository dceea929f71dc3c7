"""Are promises kept? Random halves of annotated docs: one to choose thresholds, one to look.

    python benchmarks/guarantee.py MODEL DOCS [DOCS ...] [--splits 200] [--shifted DOCS]
        [--by-group KEY]

Docs on which the model was neither trained nor calibrated. `mean` is the promise of the expected
miss rate, `sure` that with confidence 0.95, `naive` the largest threshold that keeps the limit on
the first half. `miss` is the mean miss rate on the second half, marked if it is above the limit by
more than two standard errors; `over` the share of splits in which it is promised and above the
limit; `spans` the size of the set for each annotated entity. In brackets: splits in which nothing
could be promised. `p` is the size at the same promise with the probability as score. By group,
`own` is the promise with a threshold for each value of the key, `one` with the same for all.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import numpy
import spacy

from spacy_costner.analysis.guarantees import LOWEST, score_spans
from spacy_costner.analysis.predictions import get_component
from spacy_costner.cli.tables import text_table
from spacy_costner.metrics import conformal
from spacy_costner.pipeline.promises import FOUND, Terms
from spacy_costner.readers import make_reader

LIMITS = (0.01, 0.02, 0.05, 0.1)
COLUMNS = ("miss", "over", "spans")
Half = tuple[Any, Any]
"""Tables of spans and of annotated entities: see `score_spans`."""


def losses_of(gold: Any, by: str) -> conformal.Losses:
    return conformal.miss_losses(gold["score"], gold["doc"], by=by)


class Tally:
    """What the splits showed of one way to choose thresholds."""

    def __init__(self) -> None:
        self.misses: list[float] = []
        self.sizes: list[float] = []
        self.refused = 0

    def add(self, at: float | None, half: Half, by: str) -> None:
        if at is None:
            self.refused += 1
            return
        spans, gold = half
        self.misses.append(float(losses_of(gold, by).mean(numpy.asarray([at]))[0]))
        self.sizes.append(float((spans["score"] >= at).sum() / len(gold)))

    def cells(self, limit: float) -> list[str]:
        if not self.misses:
            return ["-", "-", f"- ({self.refused})"]
        misses, refused = numpy.asarray(self.misses), f" ({self.refused})" * (self.refused > 0)
        error = misses.std() / len(misses) ** 0.5
        late = " !" * bool(misses.mean() > limit + 2 * error)
        over = f"{100 * (misses > limit).sum() / (len(misses) + self.refused):.1f} %"
        return [f"{misses.mean():.4f}{late}", over, f"{numpy.mean(self.sizes):.2f}{refused}"]


def halves(both: Half, n_docs: int, seed: int) -> tuple[Half, Half]:
    first = numpy.random.default_rng(seed).permutation(n_docs) < n_docs // 2
    one, other = (tuple(each[which[each["doc"]]] for each in both) for which in (first, ~first))
    return (one[0], one[1]), (other[0], other[1])


def naive(losses: conformal.Losses, limit: float) -> float | None:
    """The largest threshold that keeps the limit on the calibration docs."""
    candidates = numpy.unique(numpy.clip(losses.score, LOWEST, 1))
    kept = losses.mean(candidates) <= limit
    return float(candidates[kept][-1]) if kept.any() else None


def run(limit: float, by: str, both: Half, plain: Half, n_docs: int, splits: int) -> list[str]:
    tallies: dict[str, Tally] = {name: Tally() for name in ("mean", "sure", "naive", "p")}
    for seed in range(splits):
        (_, gold), test = halves(both, n_docs, seed)
        (_, plain_gold), plain_test = halves(plain, n_docs, seed)
        losses = losses_of(gold, by)
        for name, delta in (("mean", None), ("sure", 0.05)):
            at = conformal.threshold(losses, limit, delta=delta, floor=LOWEST)
            tallies[name].add(at, test, by)
        tallies["naive"].add(naive(losses, limit), test, by)
        at = conformal.threshold(losses_of(plain_gold, by), limit, floor=LOWEST)
        # Below what is searched for, the plain set is not known.
        tallies["p"].add(None if at is not None and at < 0.001 else at, plain_test, by)
    cells = [tally.cells(limit) for tally in tallies.values()]
    return [*cells[0], *cells[1], *cells[2], cells[3][-1]]


def run_groups(by: str, both: Half, groups: Any, splits: int) -> list[list[str]]:
    """What is missed of each group, with a threshold of its own and with one for all. `groups` has
    the group of each doc. Shape: (D,)"""
    rows = [["group", "limit", *(f"{way} {cell}" for way in ("own", "one") for cell in COLUMNS)]]
    for limit, group in product(LIMITS, numpy.unique(groups)):
        tallies = Tally(), Tally()
        for seed in range(splits):
            (_, gold), test = halves(both, len(groups), seed)
            spans, wanted = (each[groups[each["doc"]] == group] for each in test)
            for tally, rows_ in zip(tallies, (gold[groups[gold["doc"]] == group], gold)):
                at = conformal.threshold(losses_of(rows_, by), limit, floor=LOWEST)
                tally.add(at, (spans, wanted), by)
        rows.append([group, f"{limit:g}", *tallies[0].cells(limit), *tallies[1].cells(limit)])
    return rows


def shift(by: str, both: Half, other: Half) -> list[list[str]]:
    """A promise on all docs, and what is missed of docs of another kind."""
    rows = []
    for limit in LIMITS:
        at, tally = conformal.threshold(losses_of(both[1], by), limit, floor=LOWEST), Tally()
        tally.add(at, other, by)
        rows.append([f"{limit:g}", *tally.cells(limit)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("docs", nargs="+", type=Path)
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--found", nargs="*", default=FOUND)
    parser.add_argument("--by", default="doc")
    parser.add_argument("--per-label", action="store_true")
    parser.add_argument("--shifted", type=Path)
    parser.add_argument("--by-group")
    given = parser.parse_args()
    nlp = spacy.load(given.model)
    ner = get_component(nlp, "ner")
    examples = [eg for path in given.docs for eg in make_reader(path)(nlp)]
    names = [f"{way} {cell}" for way in ("mean", "sure", "naive") for cell in COLUMNS]
    rows: list[list[str]] = [["found", "label", "limit", *names, "p spans"]]
    for found in given.found:
        terms = Terms(miss=0.5, found=found, by=given.by, per_label=given.per_label)
        plain_terms = Terms(false_alarm=0.5, found=found, per_label=given.per_label)
        both = score_spans(nlp, ner, examples, terms)[:2]
        if given.by_group:
            groups = numpy.asarray([str(eg.reference.user_data[given.by_group]) for eg in examples])
            print(f"{found}\n{text_table(run_groups(given.by, both, groups, given.splits))}")
            continue
        plain = score_spans(nlp, ner, examples, plain_terms)[:2]
        if given.shifted and found == "exact":
            shifted = list(make_reader(given.shifted)(nlp))
            other = score_spans(nlp, ner, shifted, terms)[:2]
            rows_of_shift = shift(given.by, both, other)
            print(text_table([["limit", *COLUMNS], *rows_of_shift]), flush=True)
        for i, label in enumerate(ner.labels if given.per_label else [""]):
            some, plainly = both, plain
            if given.per_label:
                some, plainly = (
                    (spans[spans["label"] == i], gold[gold["label"] == i])
                    for spans, gold in (both, plain)
                )
            for limit in LIMITS:
                cells = run(limit, given.by, some, plainly, len(examples), given.splits)
                rows.append([found, label, f"{limit:g}", *cells])
    print(f"{len(examples):,} docs, {given.splits} splits, by {given.by}")
    if not given.by_group:
        print(f"\n{text_table(rows)}")


if __name__ == "__main__":
    main()
