"""The section of what is beyond the papers on the page."""

from itertools import groupby
from typing import List

from ..cells import Runner, command, table
from ..scores import spread
from .grid import CORPORA
from .study import (
    LINEAR_BATCHES,
    LINEAR_EPOCHS,
    SCORES,
    SECOND,
    SEEDS,
    Outcome,
    Score,
    compare,
    run_corpus,
)


def describe(outcomes: List[Outcome]) -> str:
    """The scores on the test set, each with the best of the papers against the best of the
    others, both chosen on the dev set: for each architecture, then for all, as the papers have
    linear models."""
    groups = [list(own) for _, own in groupby(outcomes, key=lambda one: one.architecture)]
    new = [[one for one in own if one.is_new] for own in groups]
    known = [[one for one in own if not one.is_new] for own in groups]
    others = [*new[0], *(one for own in groups[1:] for one in own)]
    pairs = [*zip(new, known), (others, known[0])]
    return "\n\n".join(
        f"{score_table(outcomes, score)}\n\n"
        f"{table(BEST_HEADER, [best_row(*pair, score) for pair in pairs])}"
        for score in SCORES
    )


BEST_HEADER = (
    "the best on dev",
    "the best of the papers on dev",
    "difference on test",
    "95 %",
    "p",
)


def score_table(outcomes: List[Outcome], score: Score) -> str:
    """A score on the test set: a row for each method, a column for each decoding."""
    rows = []
    for (architecture, method), own in groupby(
        outcomes, key=lambda outcome: (outcome.architecture, outcome.method)
    ):
        values = [spread(outcome.on("test", score), score.digits) for outcome in own]
        rows.append([architecture, method, *values])
    return table(["", score.name, *dict.fromkeys(outcome.decoding for outcome in outcomes)], rows)


def best_row(some: List[Outcome], known: List[Outcome], score: Score) -> List[object]:
    """The best of some against the best of what is known, both chosen on the dev set and judged
    on the test set."""
    ours, theirs = (
        max(group, key=lambda one: score.sign * one.on("dev", score).mean())
        for group in (some, known)
    )
    value, low, high, p = compare(ours, theirs, score)
    digits = score.digits
    interval = f"{low:+.{digits}f} to {high:+.{digits}f}"
    return [ours.name, theirs.name, f"{value:+.{digits}f}", interval, f"{p:.2g}"]


def experiment(run: Runner, quick: bool) -> str:
    sections = [f"### {corpus}\n\n{describe(run_corpus(run, corpus, quick))}" for corpus in CORPORA]
    return f"{INTRODUCTION}\n\n" + "\n\n".join(sections)


INTRODUCTION = f"""\
Linear models, online, by AdaGrad with averaging: {LINEAR_EPOCHS[0]} epochs of the first loss in
batches of {LINEAR_BATCHES[0]}; {LINEAR_EPOCHS[1]} epochs of the second one, if there is one, in
batches of {LINEAR_BATCHES[1]}, with {SECOND} of the learning rate. The CNN is that of
`configs/cnn.cfg`, the hybrid that of `configs/hybrid.cfg`, by Adam with averaging, batches of
1,000 tokens, 500 for chunks and 250 for 500 sentences: 3 epochs, 5 for chunks and 15 with 500
sentences, and a third of that of a second loss. Seeds {SEEDS}; means and standard deviations on
the test set. Mixed losses are for linear models only, to save time.

"The papers" are the losses with costs that one of the papers has, answered by the best path; in
the last row of each table those of linear models, which is what they have.

Costs: of wrong tags (Hamming) with a multiplier of 1 and, for GENIA, the distance in its tree,
with 0.1. MCEF, by exact expected counts, knows no cost: the tree comes from the loss before it
and from decoding. "Least cost" answers by expected cost, "threshold" with the entities of about
that probability or more.

GENIA: sentences in the order of the corpus, the first 40 % for training, the last 20 % for dev
and test, tokens of `genia.iob2`.

Differences are judged by the paired bootstrap over sentences, the counts of all seeds added up.
Nothing was tuned but the perceptron's alpha of GENIA, which is that of the experiment above; and
two losses have more epochs than one."""

main = command("combinations", "Beyond the papers", experiment)
