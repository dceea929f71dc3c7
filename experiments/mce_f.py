"""Suzuki, McDermott & Isozaki (2006): chunking and entities with ML, MAP, MCE and MCE-F."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from spacy_costner.cli.tables import markdown_table
from spacy_costner.metrics import Difference

from .corpora import ROOT
from .runner import Figures, Runner, spec
from .scores import WHOLE, F, System, Trial, best_on_dev, compare, test, tune
from .training import Stage, features_of, in_turn, linear_block

DEVELOPMENT = 2000
"""Sentences at the end of the training data that settings are chosen on, where there is no
part for that: footnote 3."""

SPEC = spec("mce_f")
TASKS = {name: {"scheme": "IOB2", **task} for name, task in SPEC["tasks"].items()}
ML_ONLINE, BY_F, BY_EXPECTED_F = "ML, online", "MCE-F", "MCE-F, expected counts"

Task = Mapping[str, Any]
"""Of the paper, or one in its place: see mce_f.cfg."""

Setting = Mapping[str, Any]
"""How a criterion is trained: the "title" in the tables, the "fit" with its "settings", and those
of the "optimizer" if it has one."""

Criterion = Mapping[str, Any]
"""A row of the tables: the "loss"; whether it starts "from_map", or from weights of 0; what is
"tried" on the development part; the "seeds" for the order of the sentences, for the test part."""


def batch(n: int | None, max_iter: int | None = None) -> Setting:
    """L-BFGS with the penalty |w|^2 / C, C = 10^n, or without one where n is None; stopped after
    `max_iter` iterations."""
    if n is None:
        title, c2 = "no penalty", 0.0
    else:
        title, c2 = f"C = 10^{n}", 10.0**-n
    if max_iter is not None:
        title += f", {max_iter} iterations"
    settings = {"c2": c2, "max_iter": max_iter, "tolerance": 1e-4}
    return {"title": title, "fit": "batch", "settings": settings, "optimizer": {}}


def online(learn_rate: float, epochs: int = 5) -> Setting:
    """AdaGrad with averaged weights, four sentences at a time."""
    return {
        "title": f"steps of {learn_rate}",
        "fit": "online",
        "settings": {"batch_size": 4, "epochs": [epochs]},
        "optimizer": {"learn_rate": learn_rate},
    }


def criteria(size: Mapping[str, Any]) -> dict[str, Criterion]:
    """The rows of a task, MAP first."""
    tried = {
        "MAP": [batch(n) for n in size["exponents"]],
        "stopped": [batch(None, 50)],
        "from 0": [online(0.1)],
        "from MAP": [online(step) for step in size["steps"]],
    }
    return {
        name: {
            "loss": row["loss"],
            "from_map": row["group"] == "from MAP",
            "tried": tried[row["group"]],
            "seeds": size["seeds"] if row["group"] == "from MAP" else [0],
        }
        for name, row in SPEC["rows"].items()
        if row["group"] in ["MAP", *size["groups"]]
    }


def data_of(task: Task, part: str, limit: int | None) -> dict[str, Any]:
    """The training data and a part: see `corpora.read`. Where a task has no development part, that
    is the end of the training data."""
    train, other = task["files"]["train"], task["files"].get(part)
    if other is not None:
        return {"train": [train, 0, limit], part: [other, 0, limit]}
    n_held_out = DEVELOPMENT if limit is None else min(DEVELOPMENT, limit // 4)
    begin = -n_held_out if limit is None else limit - n_held_out
    return {"train": [train, 0, begin], part: [train, begin, limit]}


def stage(task: Task, row: Criterion, setting: Setting, seed: int = 0) -> Stage:
    """The training of a row."""
    features = {**features_of("mce_f"), **SPEC["features"][task["features"]]}
    return {
        "model": linear_block(features, **setting["optimizer"]),
        "scheme": task["scheme"],
        "fit": setting["fit"],
        "settings": setting["settings"],
        "loss": row["loss"],
        "seed": seed,
    }


def trials(
    name: str, limit: int | None, part: str, rows: Mapping[str, Criterion], start: Any = ()
) -> list[Trial]:
    """The trials of rows on a part of a task: each setting that a row tries, on the test part with
    each of its seeds, on the development part with one. `start` are the stages of MAP, for rows
    that start from it."""
    task = TASKS[name]
    data = data_of(task, part, limit)
    all_trials = []
    for criterion, row in rows.items():
        seeds = row["seeds"] if part == "test" else [0]
        start_of_row = start if row["from_map"] else ()
        for setting, seed in product(row["tried"], seeds):
            trial = f"{name}-{part}-{setting['title']}-{seed}"
            stages = [stage(task, row, setting, seed)]
            all_trials.append(
                Trial(criterion, trial, data, stages, {"setting": setting}, start_of_row)
            )
    return all_trials


def systems_of(
    run: Runner, name: str, rows: Mapping[str, Criterion], limit: int | None = None
) -> list[System]:
    """Settings are chosen on the development part, then the models are trained with them on all
    training data and scored on the test part: a system for each row; "setting" is what was chosen.
    MAP is the first row, and tries a smaller C first."""

    def choose(rows: Mapping[str, Criterion], start: Sequence[Stage] = ()) -> dict[str, System]:
        """The system of each row with the setting that is best on the development part."""
        tried = tune(run, trials(name, limit, "dev", rows, start))
        return {row: best_on_dev(systems) for row, systems in tried.items()}

    def chain(settings: Sequence[Setting]) -> list[Stage]:
        """MAP with one setting after another, each from the weights of the one before."""
        first = stage(TASKS[name], by_map, settings[0])
        return in_turn(first, [each["settings"] for each in settings])

    by_map = rows["MAP"]
    best = choose({"MAP": by_map})
    # MAP is trained with each C up to the one chosen: see `chain`.
    position = by_map["tried"].index(best["MAP"].settings["setting"])
    map_settings = by_map["tried"][: position + 1]
    with_choice = {}
    for criterion, row in rows.items():
        if criterion != "MAP" and len(row["tried"]) > 1:
            with_choice[criterion] = row
    best |= choose(with_choice, chain(map_settings[-1:]))

    chosen = dict(rows)
    for criterion, system in best.items():
        chosen[criterion] = {**rows[criterion], "tried": [system.settings["setting"]]}
    # From one C to the next, which comes to the same weights in less time.
    map_stages = chain(map_settings)
    map_trial, *on_test = trials(name, limit, "test", chosen, map_stages)
    # The last of these stages is that of the trial of MAP itself.
    map_trial = map_trial._replace(start=map_stages[:-1])

    systems = []
    for criterion, system in test(run, [map_trial, *on_test]).items():
        if criterion in best:
            system = system._replace(dev=best[criterion].dev)
        systems.append(system)
    return systems


def section(run: Runner, name: str, size: Mapping[str, Any]) -> str:
    """The table of a task, or what is missing for it."""
    task = TASKS[name]
    if missing := [file for file in task["files"].values() if not (ROOT / file).exists()]:
        names = ", ".join(f"`{file}`" for file in missing)
        return f"### {task['title']}\n\nNot run: it takes {names}."
    limit, published = size.get("limit"), SPEC["published"][task["published"]]
    systems = systems_of(run, name, criteria(size), limit)
    table = markdown_table(HEADER, [line(one, systems[0], published) for one in systems])
    note = f" The first {limit:,} sentences of each file." if limit else ""
    return f"### {task['title']}\n\n{table}\n\n{against_online(systems)}{note}"


def against_online(systems: Sequence[System]) -> str:
    """What MCE-F gains over the likelihood that is trained in the same way."""
    of_name = {one.name: one for one in systems}
    ours = [of_name[name] for name in (BY_F, BY_EXPECTED_F)]
    found = [
        f"{one.name} {interval(gap)}, p = {gap.p:.4f}"
        for one, gap in zip(ours, compare(ours, of_name[ML_ONLINE])[0])
    ]
    return f"F above that of {ML_ONLINE}: {'; '.join(found)}."


HEADER = (
    *("criterion", "setting", "F, development", "F, paper", "F", "sentences, paper", "sentences"),
    *("F above MAP", "p"),
)


def line(one: System, by_map: System, published: Mapping[str, Sequence[float]]) -> list[object]:
    """A row of the table as it is shown."""
    theirs = [f"{value:.2f}" for value in published.get(one.name, ())] or ["", ""]
    gap = ["", ""]
    if one is not by_map:
        ((found,),) = compare([one], by_map)
        gap = [interval(found), f"{found.p:.4f}"]
    dev = float(one.on("dev", F)[0]) if len(one.dev) else ""
    ours = [one.spread(score) for score in (F, WHOLE)]
    title = one.settings["setting"]["title"]
    return [one.name, title, dev, theirs[0], ours[0], theirs[1], ours[1], *gap]


def interval(gap: Difference) -> str:
    """A difference, and where 95 % of the samples are."""
    return f"{gap.value:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]"


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """All tables."""
    sections = [section(run, name, size[name]) for name in size["tasks"]]
    figures = {"development": DEVELOPMENT, "ml_online": ML_ONLINE}
    return {**figures, "tasks": "\n\n".join(sections)}
