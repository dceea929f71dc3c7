"""Turn runs into scores: try settings on the dev part, train with the chosen settings for the test
part, and test differences for significance.

A trial is a planned training. A look contains the counts of its model. A system contains the looks
of models that were trained in the same way. Sums and counts have a column for each of COUNTS.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, FloatsXd

from spacy_costner.cli.tables import mean_and_deviation
from spacy_costner.metrics import (
    Difference,
    f_score,
    paired_differences,
    precision,
    ratio,
    recall,
)
from spacy_costner.workflows.runs import Run

from .runner import Runner
from .training import BEST_PATH, Look, Stage, train_and_count

COUNTS = ("right", "wrong", "missed", "cost", "tokens", "whole", "docs")
"""The counts of each doc; "whole": no mistake; "docs": 1."""


class Score(NamedTuple):
    """A score of a system.

    name (str): The name.
    compute (Callable[[FloatsXd], FloatsXd]): Computes the score from sums of COUNTS. Shape:
        (..., columns) to (...)
    sign (int): 1 if higher is better, -1 if lower is better.
    digits (int): The number of decimals in tables.
    """

    name: str
    compute: Callable[[FloatsXd], FloatsXd]
    sign: int = 1
    digits: int = 2


# The columns of sums are COUNTS.
F = Score("F", lambda sums: 100 * f_score(sums[..., 0], sums[..., 1], sums[..., 2]))
PRECISION = Score("precision", lambda sums: 100 * precision(sums[..., 0], sums[..., 1]))
RECALL = Score("recall", lambda sums: 100 * recall(sums[..., 0], sums[..., 2]))
COST = Score("average cost", lambda sums: ratio(sums[..., 3], sums[..., 4]), sign=-1, digits=4)
WHOLE = Score("sentences right", lambda sums: 100 * ratio(sums[..., 5], sums[..., 6]))


class System(NamedTuple):
    """The counts of models that were trained in the same way, one for each seed or fold.

    name (str): The name.
    dev (Floats2d): The sums of COUNTS over the dev part, for each seed. Shape: (seeds, columns)
    test (Sequence[Floats2d]): The COUNTS of the test part, for each seed or fold. Shape: each
        (docs, columns)
    settings (Mapping[str, Any]): The training settings, and others that distinguish the system.
    wrong_tags (Sequence[Sequence[int]]): The tokens of the test part with a wrong tag in the best
        path, for each seed: see `training.count`.
    """

    name: str
    dev: Floats2d
    test: Sequence[Floats2d] = ()
    settings: Mapping[str, Any] = {}
    wrong_tags: Sequence[Sequence[int]] = ()

    def on(self, part: str, score: Score) -> Floats1d:
        """Compute a score on "dev" or "test" for each seed. Shape: (seeds,)"""
        sums = self.dev
        if part == "test":
            sums = numpy.stack([counts.sum(axis=0) for counts in self.test])
        return score.compute(sums)

    def spread(self, score: Score) -> str:
        """Format the mean on the test part and the standard deviation over seeds for a table."""
        return mean_and_deviation(self.on("test", score), score.digits)

    def with_folds_joined(self) -> "System":
        """Join the test docs of all folds into one test set."""
        return self._replace(test=[numpy.concatenate(self.test)])

    def with_seeds_summed(self) -> "System":
        """Sum the counts of each test doc over all seeds."""
        return self._replace(test=[sum(self.test)])


def system(name: str, looks: Sequence[Look], decoding: str = BEST_PATH, **settings: Any) -> System:
    """Make a system from the counts of its models.

    name (str): The name.
    looks (Sequence[Look]): One for each seed: see `training.train_and_count`.
    decoding (str): The decoding whose counts to use.
    **settings (Any): The training settings.
    """
    dev = [numpy.asarray(look["dev"][decoding]) for look in looks if "dev" in look]
    test = [numpy.asarray(look["test"][decoding]) for look in looks if "test" in look]
    # Results cached by an earlier version don't contain them.
    wrong_tags = [look["wrong_tags"] for look in looks if "wrong_tags" in look]
    return System(name, numpy.asarray(dev), test, settings, wrong_tags)


class Trial(NamedTuple):
    """A planned run of `training.train_and_count`.

    name (str): The name of the system.
    key (str): Together with the name of the system, the name of the run.
    data (Mapping[str, Any]), stages (Sequence[Stage]), start (Sequence[Stage]): Arguments of
        `train_and_count`.
    settings (Mapping[str, Any]): The settings that distinguish the trial from others with the same
        name.
    """

    name: str
    key: str
    data: Mapping[str, Any]
    stages: Sequence[Stage]
    settings: Mapping[str, Any] = {}
    start: Sequence[Stage] = ()


def train_all(run: Runner, trials: Sequence[Trial], **more: Any) -> list[list[Look]]:
    """Run trials, or use their cached results. Returns the looks of each trial.

    run (Runner): The runner.
    trials (Sequence[Trial]): The trials.
    **more (Any): Other arguments of `train_and_count`, for all trials.
    """
    runs: list[Run] = []
    for trial in trials:
        name = f"{trial.key}-{trial.name}".replace(" ", "_")
        arguments = {"data": trial.data, "stages": trial.stages, "start": trial.start, **more}
        runs.append(Run(name, train_and_count, arguments))
    return run(runs)


def tune(run: Runner, trials: Sequence[Trial], **more: Any) -> dict[str, list[System]]:
    """Train in order to choose settings. Returns a system for each look, by the name of the trial,
    with the settings of the trial and stage, the number of epochs, and whether weights are
    averaged. See `train_all` for the arguments."""
    systems: dict[str, list[System]] = {trial.name: [] for trial in trials}
    for trial, looks in zip(trials, train_all(run, trials, **more)):
        for look in looks:
            stage = trial.stages[look["stage"]]
            facts = {key: look[key] for key in ("epochs", "averaged") if key in look}
            settings = {**stage["settings"], **trial.settings, **facts}
            systems[trial.name].append(system(trial.name, [look], **settings))
    return systems


def test(run: Runner, trials: Sequence[Trial], **more: Any) -> dict[str, System]:
    """Train in order to report scores. Returns a system for each name, from all trials with this
    name. Each trial has one look. "levels" in the settings contains the levels of each trial: see
    `training.count`. See `train_all` for the arguments."""
    looks_by_name: dict[str, list[Look]] = {trial.name: [] for trial in trials}
    settings = {trial.name: trial.settings for trial in trials}
    for trial, (look,) in zip(trials, train_all(run, trials, **more)):
        looks_by_name[trial.name].append(look)
    systems: dict[str, System] = {}
    for name, looks in looks_by_name.items():
        levels = [look.get("levels") for look in looks]
        systems[name] = system(name, looks, **settings[name], levels=levels)
    return systems


def best_on_dev(systems: Sequence[System], score: Score = F) -> System:
    """Get the system with the best mean score on the dev part. If several are equally good, get the
    first."""
    return max(systems, key=lambda system: score.sign * system.on("dev", score).mean())


def compare(
    systems: Sequence[System], baseline: System, scores: Sequence[Score] = (F,), **settings: Any
) -> list[list[Difference]]:
    """Compare the mean scores of systems with the scores of a baseline on the same sentences, by a
    paired bootstrap.

    systems (Sequence[System]), baseline (System): The systems. The largest number of seeds must be
        a multiple of every other number of seeds.
    scores (Sequence[Score]): The scores to compare.
    **settings (Any): See `paired_differences`.
    RETURNS (list[list[Difference]]): The differences of the systems, for each score.
    """
    counts_of_systems = [baseline.test, *(system.test for system in systems)]
    n_seeds = max(len(counts_of_seeds) for counts_of_seeds in counts_of_systems)
    # Counts of systems with fewer seeds are repeated, so that all have the same number.
    repeated: list[list[Floats2d]] = []
    for counts_of_seeds in counts_of_systems:
        n_times = n_seeds // len(counts_of_seeds)
        repeated.append([*counts_of_seeds] * n_times)
    # Shape: (systems, seeds, docs, columns)
    counts = numpy.asarray(repeated, dtype="float64")

    def compute(sums: FloatsXd) -> FloatsXd:
        return numpy.stack([score.compute(sums) for score in scores])

    differences_by_score = paired_differences(counts, compute, **settings)
    # The first system is the baseline, whose difference from itself is 0.
    return [differences[1:] for differences in differences_by_score]


def mcnemar(first: System, second: System) -> tuple[float, float]:
    """Compare two systems by McNemar's test. Returns the two-sided p-values for tags and for
    sentences. Only the first seed of each system is used, and only tags and sentences that one
    system has right and the other wrong: see `binomial_p`.

    McNemar (1947), as in Suzuki, McDermott & Isozaki (2006), section 5.3.
    """
    first_wrong_tags = set(first.wrong_tags[0])
    second_wrong_tags = set(second.wrong_tags[0])
    p_of_tags = binomial_p(
        len(first_wrong_tags - second_wrong_tags), len(second_wrong_tags - first_wrong_tags)
    )
    whole = COUNTS.index("whole")
    first_is_right = first.test[0][:, whole] > 0
    second_is_right = second.test[0][:, whole] > 0
    p_of_sentences = binomial_p(
        int((first_is_right & ~second_is_right).sum()),
        int((second_is_right & ~first_is_right).sum()),
    )
    return p_of_tags, p_of_sentences


def binomial_p(n_first: int, n_second: int) -> float:
    """Compute the probability that two counts differ by at least this much, if each of their n
    units is equally likely to be in either.

        p = min(1, 2 sum_{k <= min(n_first, n_second)} binomial(n, k) / 2^n)
    """
    n = n_first + n_second
    # Integers, so that nothing overflows or is rounded before the division.
    n_ways = sum(math.comb(n, k) for k in range(min(n_first, n_second) + 1))
    return min(1.0, 2 * n_ways / 2**n)
