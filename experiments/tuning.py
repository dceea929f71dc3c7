"""Settings are tried on the dev part; the chosen ones are trained for the test part."""

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from .runner import Runner
from .scores import System, system
from .training import Stage, training


class Trial(NamedTuple):
    """A training of one stage.

    name (str): What the system is called.
    key (str): What makes a name for the run, with that of the system.
    data (Mapping[str, Any]): See `training.read`.
    stage (Stage): The stage.
    settings (Mapping[str, Any]): What tells it from others of its name.
    start (Sequence[Stage]): The stages before it.
    """

    name: str
    key: str
    data: Mapping[str, Any]
    stage: Stage
    settings: Mapping[str, Any] = {}
    start: Sequence[Stage] = ()


def tune(run: Runner, trials: Sequence[Trial], **more: Any) -> Dict[str, List[System]]:
    """Train, and make a system of each look.

    run (Runner): Runs the trials.
    trials (Sequence[Trial]): The trials.
    **more (Any): See `training.train_and_count`.
    RETURNS (Dict[str, List[System]]): By name, the systems with their settings, and with the
        epochs that they had and whether weights are averaged.
    """
    found: Dict[str, List[System]] = {trial.name: [] for trial in trials}
    for trial, looks in zip(trials, _run(run, trials, more)):
        for look in looks:
            facts = {key: look[key] for key in ("epochs", "averaged") if key in look}
            found[trial.name].append(system(trial.name, [look], **trial.settings, **facts))
    return found


def test(run: Runner, trials: Sequence[Trial], **more: Any) -> Dict[str, System]:
    """Train, and make a system of all trials with a name: see `tune`. "levels" are a setting,
    too, those of each trial."""
    looks: Dict[str, List[Any]] = {trial.name: [] for trial in trials}
    settings = {trial.name: trial.settings for trial in trials}
    for trial, (look,) in zip(trials, _run(run, trials, more)):
        looks[trial.name].append(look)
    return {
        name: system(name, own, **settings[name], levels=[look.get("levels") for look in own])
        for name, own in looks.items()
    }


def _run(run: Runner, trials: Sequence[Trial], more: Mapping[str, Any]) -> List[Any]:
    return run(
        [
            training(f"{one.key}-{one.name}", one.data, [one.stage], start=one.start, **more)
            for one in trials
        ]
    )
