"""From runs to scores of systems: settings are tried on the dev part, the chosen ones are trained
for the test part, and differences are judged."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
from thinc.types import Floats1d, Floats2d, FloatsXd

from spacy_costner.analysis.runs import Run
from spacy_costner.cli.tables import mean_and_deviation
from spacy_costner.metrics import Difference, f_score, paired_differences, precision, ratio, recall

from .runner import Runner
from .training import BEST_PATH, Look, Stage, train_and_count

COUNTS = ("right", "wrong", "missed", "cost", "tokens", "whole", "docs")
"""What is counted in each doc; "whole": no mistake; "docs": 1."""


class Score(NamedTuple):
    """What is wanted.

    name (str): What it is called.
    of (Callable[[FloatsXd], FloatsXd]): From sums of COUNTS. Shape: (..., columns) to (...)
    sign (int): 1 if more is better, -1 if less is.
    digits (int): Behind the point, in tables.
    """

    name: str
    of: Callable[[FloatsXd], FloatsXd]
    sign: int = 1
    digits: int = 2


F = Score("F", lambda sums: 100 * f_score(sums[..., 0], sums[..., 1], sums[..., 2]))
P = Score("precision", lambda sums: 100 * precision(sums[..., 0], sums[..., 1]))
R = Score("recall", lambda sums: 100 * recall(sums[..., 0], sums[..., 2]))
COST = Score("average cost", lambda sums: ratio(sums[..., 3], sums[..., 4]), -1, 4)
WHOLE = Score("sentences right", lambda sums: 100 * ratio(sums[..., 5], sums[..., 6]))


class System(NamedTuple):
    """What came of a way of training.

    name (str): What it is called.
    dev (Floats2d): The sums of COUNTS over the dev part, of each seed. Shape: (seeds, columns)
    test (Sequence[Floats2d]): The COUNTS of the test part, of each seed or fold. Shape: each
        (docs, columns)
    settings (Mapping[str, Any]): What it was trained with, and what else tells it from others.
    """

    name: str
    dev: Floats2d
    test: Sequence[Floats2d] = ()
    settings: Mapping[str, Any] = {}

    def on(self, part: str, score: Score) -> Floats1d:
        """A score on "dev" or "test", of each seed."""
        sums = self.dev if part == "dev" else numpy.stack([one.sum(axis=0) for one in self.test])
        return score.of(sums)

    def spread(self, score: Score) -> str:
        """The mean on the test part and the standard deviation over seeds, for a table."""
        return mean_and_deviation(self.on("test", score), score.digits)

    def joined(self) -> "System":
        """The same, with the docs of all folds one after another."""
        return self._replace(test=[numpy.concatenate(self.test)])

    def added(self) -> "System":
        """The same, with the counts of all seeds added up in each doc."""
        return self._replace(test=[sum(self.test)])


def system(name: str, looks: Sequence[Look], decoding: str = BEST_PATH, **settings: Any) -> System:
    """A system of what was seen of it, one look for each seed: see `training.train_and_count`."""
    dev, test = (
        [numpy.asarray(look[part][decoding]) for look in looks if part in look]
        for part in ("dev", "test")
    )
    return System(name, numpy.asarray(dev), test, settings)


class Trial(NamedTuple):
    """A run of `training.train_and_count`.

    name (str): What the system is called.
    key (str): What makes a name for the run, with that of the system.
    data (Mapping[str, Any]), stages (Sequence[Stage]), start (Sequence[Stage]): See there.
    settings (Mapping[str, Any]): What tells it from others of its name.
    """

    name: str
    key: str
    data: Mapping[str, Any]
    stages: Sequence[Stage]
    settings: Mapping[str, Any] = {}
    start: Sequence[Stage] = ()


def train_all(run: Runner, trials: Sequence[Trial], **more: Any) -> list[list[Look]]:
    """Run trials: the looks of each. What else there is, is that of `train_and_count`."""
    return run(
        [
            Run(
                f"{one.key}-{one.name}".replace(" ", "_"),
                train_and_count,
                {"data": one.data, "stages": one.stages, "start": one.start, **more},
            )
            for one in trials
        ]
    )


def tune(run: Runner, trials: Sequence[Trial], **more: Any) -> dict[str, list[System]]:
    """Train, and make a system of each look: see `train_all`. By name, the systems with the
    settings of their trial and stage, and with the epochs that they had and whether weights are
    averaged."""
    found: dict[str, list[System]] = {trial.name: [] for trial in trials}
    for trial, looks in zip(trials, train_all(run, trials, **more)):
        for look in looks:
            facts = {key: look[key] for key in ("epochs", "averaged") if key in look}
            settings = {**trial.stages[look["stage"]]["settings"], **trial.settings, **facts}
            found[trial.name].append(system(trial.name, [look], **settings))
    return found


def test(run: Runner, trials: Sequence[Trial], **more: Any) -> dict[str, System]:
    """Train, and make a system of all trials with a name, which have a look each: see
    `train_all`. "levels" are a setting, too, those of each trial."""
    looks: dict[str, list[Look]] = {trial.name: [] for trial in trials}
    settings = {trial.name: trial.settings for trial in trials}
    for trial, (look,) in zip(trials, train_all(run, trials, **more)):
        looks[trial.name].append(look)
    return {
        name: system(name, own, **settings[name], levels=[look.get("levels") for look in own])
        for name, own in looks.items()
    }


def best_on_dev(systems: Sequence[System], score: Score = F) -> System:
    """The best on the dev part; of several the first."""
    return max(systems, key=lambda one: score.sign * one.on("dev", score).mean())


def compare(
    systems: Sequence[System], baseline: System, scores: Sequence[Score] = (F,), **settings: Any
) -> list[list[Difference]]:
    """How far the mean scores of systems are from those of one of them on the same sentences, and
    whether that may be chance: the paired bootstrap.

    systems (Sequence[System]), baseline (System): The systems. The one of them with the most
        seeds has a multiple of the number of those of each other.
    **settings (Any): See `paired_differences`.
    RETURNS (list[list[Difference]]): For each score one for each system.
    """
    tests = [one.test for one in (baseline, *systems)]
    n_seeds = max(map(len, tests))
    counts = numpy.asarray([[*test] * (n_seeds // len(test)) for test in tests], dtype="float64")
    found = paired_differences(
        counts, lambda sums: numpy.stack([score.of(sums) for score in scores]), **settings
    )
    return [of_systems[1:] for of_systems in found]
