"""Suzuki, McDermott & Isozaki (2006): chunking and entities with ML, MAP, MCE and MCE-F.

A training criterion is a row of the tables. Its settings, such as the penalty, are chosen on a
development part. It is then trained on all training data and scored on the test part.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from spacy_costner.cli.tables import markdown_table
from spacy_costner.metrics import Difference

from .corpora import ROOT
from .runner import Figures, Runner, spec
from .scores import WHOLE, F, System, Trial, best_on_dev, compare, mcnemar, test, tune
from .training import Stage, features_of, in_turn, linear_block

DEVELOPMENT = 2000
"""If a corpus has no development part, settings are chosen on this many sentences at the end of the
training data: footnote 3."""

SPEC = spec("mce_f")
TASKS = {name: {"scheme": "IOB2", **task} for name, task in SPEC["tasks"].items()}
ML_ONLINE = "ML, online"
BY_F = "MCE-F"
BY_EXPECTED_F = "MCE-F, expected counts"
FROM_0 = ", from 0"
"""The suffix for the rows of table 1, which start from weights of 0."""

Task = Mapping[str, Any]
"""A task of the paper, or a replacement: see mce_f.cfg."""

Setting = Mapping[str, Any]
"""How a criterion is trained: the "title" in the tables, the "fit" with its "settings", and the
settings of the "optimizer", if any."""

Criterion = Mapping[str, Any]
"""A row of the tables: the "loss"; whether training starts "from_map" or from weights of 0; the
settings "tried" on the development part; and, for the test part, the "seeds" for the order of the
sentences."""


def batch(n: int | None, max_iter: int | None = None) -> Setting:
    """Make the setting for L-BFGS with the penalty |w|^2 / C, C = 10^n, or without a penalty if n
    is None. Training stops after `max_iter` iterations."""
    title = "no penalty"
    c2 = 0.0
    if n is not None:
        title = f"C = 10^{n}"
        c2 = 10.0**-n
    if max_iter is not None:
        title += f", {max_iter} iterations"
    settings = {"c2": c2, "max_iter": max_iter, "tolerance": 1e-4}
    return {"title": title, "fit": "batch", "settings": settings, "optimizer": {}}


def online(learn_rate: float, epochs: int = 5) -> Setting:
    """Make the setting for AdaGrad with averaged weights, four sentences at a time."""
    return {
        "title": f"steps of {learn_rate}",
        "fit": "online",
        "settings": {"batch_size": 4, "epochs": [epochs]},
        "optimizer": {"learn_rate": learn_rate},
    }


def criteria(size: Mapping[str, Any]) -> dict[str, Criterion]:
    """Make the rows of a task, MAP first. `size` contains the task's settings in [full] or [quick]
    of the spec."""
    settings_of_group = {
        "MAP": [batch(n) for n in size["exponents"]],
        "stopped": [batch(None, 50)],
        "from 0": [online(0.1)],
        "from MAP": [online(step) for step in size["steps"]],
    }
    rows: dict[str, Criterion] = {}
    for name, row in SPEC["rows"].items():
        group = row["group"]
        if group not in ["MAP", *size["groups"]]:
            continue
        starts_from_map = group == "from MAP"
        rows[name] = {
            "loss": row["loss"],
            "from_map": starts_from_map,
            "tried": settings_of_group[group],
            "seeds": size["seeds"] if starts_from_map else [0],
        }
    return rows


def data_of(task: Task, part: str, limit: int | None) -> dict[str, Any]:
    """Get the training data and a part, "dev" or "test": see `corpora.read`. If a task has no
    development part, the end of the training data is used. `limit` is the maximum number of
    sentences per file."""
    train_file = task["files"]["train"]
    file_of_part = task["files"].get(part)
    if file_of_part is not None:
        return {"train": [train_file, 0, limit], part: [file_of_part, 0, limit]}
    # The sentence at which the part starts, as in a slice.
    begin = -DEVELOPMENT  # counted from the end
    if limit is not None:
        begin = limit - min(DEVELOPMENT, limit // 4)
    return {"train": [train_file, 0, begin], part: [train_file, begin, limit]}


def stage(task: Task, row: Criterion, setting: Setting, seed: int = 0) -> Stage:
    """Make the stage that trains a row."""
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
    """Make the trials of rows on a part of a task, "dev" or "test": one for each setting of a row
    and, on the test part, each of its seeds. The development part uses one seed. Rows that start
    from MAP start with the stages in `start`. `limit` is the maximum number of sentences per
    file."""
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
    """Choose settings on the development part, train the models with them on all training data, and
    score them on the test part. Returns a system for each row, with the chosen "setting". MAP is
    the first row. See `trials` for the arguments."""

    def choose(rows: Mapping[str, Criterion], start: Sequence[Stage] = ()) -> dict[str, System]:
        """Get the system of each row with the best setting on the development part."""
        systems_of_rows = tune(run, trials(name, limit, "dev", rows, start))
        return {row: best_on_dev(systems) for row, systems in systems_of_rows.items()}

    # MAP comes first, because others start from it. On the development part, it is trained from one
    # C to the next, which takes less time than starting from 0 for each.
    map_row = rows["MAP"]
    setting_of_penalty = {setting["settings"]["c2"]: setting for setting in map_row["tried"]}
    data = data_of(TASKS[name], "dev", limit)
    first_stage = stage(TASKS[name], map_row, map_row["tried"][0])
    stages = in_turn(first_stage, [setting["settings"] for setting in map_row["tried"]])
    map_on_dev = Trial("MAP", f"{name}-dev", data, stages)
    best_map = best_on_dev(tune(run, [map_on_dev])["MAP"])
    map_setting = setting_of_penalty[best_map.settings["c2"]]
    best = {"MAP": best_map._replace(settings={"setting": map_setting})}
    map_start = [stage(TASKS[name], map_row, map_setting)]

    # The other rows with several settings.
    rows_with_choice: dict[str, Criterion] = {}
    for criterion, row in rows.items():
        if criterion != "MAP" and len(row["tried"]) > 1:
            rows_with_choice[criterion] = row
    best |= choose(rows_with_choice, map_start)

    # All rows on the test part, with the chosen settings.
    chosen_rows = dict(rows)
    for criterion, system in best.items():
        chosen_rows[criterion] = {**rows[criterion], "tried": [system.settings["setting"]]}
    test_trials = trials(name, limit, "test", chosen_rows, map_start)

    systems = []
    for criterion, system in test(run, test_trials).items():
        if criterion in best:
            system = system._replace(dev=best[criterion].dev)
        systems.append(system)
    return systems


def section(run: Runner, name: str, size: Mapping[str, Any]) -> str:
    """Write the section of a task, with its table or a list of missing files."""
    task = TASKS[name]
    missing_files = [file for file in task["files"].values() if not (ROOT / file).exists()]
    if missing_files:
        names = ", ".join(f"`{file}`" for file in missing_files)
        return f"### {task['title']}\n\nNot run: it takes {names}."
    limit = size.get("limit")
    published = SPEC["published"][task["published"]]
    systems = systems_of(run, name, criteria(size), limit)
    by_map = systems[0]
    rows = [table_row(system, by_map, published) for system in systems]
    note = ""
    if limit:
        note = f" The first {limit:,} sentences of each file."
    table = markdown_table(HEADER, rows)
    return f"### {task['title']}\n\n{table}\n\n{against_online(systems)}{note}"


def against_online(systems: Sequence[System]) -> str:
    """Describe the gain of MCE-F over the likelihood trained in the same way from the same weights:
    from MAP and, if the task has these rows, from 0."""
    system_by_name = {system.name: system for system in systems}
    sentences: list[str] = []
    for start in ("", FROM_0):
        if ML_ONLINE + start not in system_by_name:
            continue
        by_f = [system_by_name[name + start] for name in (BY_F, BY_EXPECTED_F)]
        (differences,) = compare(by_f, system_by_name[ML_ONLINE + start])
        texts: list[str] = []
        for system, difference in zip(by_f, differences):
            texts.append(f"{system.name} {interval(difference)}, p = {difference.p:.4f}")
        sentences.append(f"F above that of {ML_ONLINE}{start}: {'; '.join(texts)}.")
    return " ".join(sentences)


HEADER = (
    *("criterion", "setting", "F, development", "F, paper", "F", "sentences, paper", "sentences"),
    *("F above MAP", "p", "McNemar, tags", "McNemar, sentences"),
)


def table_row(
    system: System, by_map: System, published: Mapping[str, Sequence[float]]
) -> list[object]:
    """Make the table row of a system, with the columns of HEADER. `by_map` is the system of MAP,
    `published` contains the paper's F and percentage of correct sentences, by criterion."""
    setting = system.settings["setting"]["title"]
    dev_f: object = ""
    if len(system.dev):
        dev_f = float(system.on("dev", F)[0])
    paper_f = ""
    paper_whole = ""
    if system.name in published:
        paper_f, paper_whole = (f"{value:.2f}" for value in published[system.name])
    above_map = ""
    p = ""
    p_of_tags = ""
    p_of_sentences = ""
    if system is not by_map:
        ((difference,),) = compare([system], by_map)
        above_map = interval(difference)
        p = f"{difference.p:.4f}"
        if system.wrong_tags and by_map.wrong_tags:
            p_of_tags, p_of_sentences = (f"{value:.2g}" for value in mcnemar(system, by_map))
    our_f = system.spread(F)
    our_whole = system.spread(WHOLE)
    of_f = [dev_f, paper_f, our_f]
    of_sentences = [paper_whole, our_whole]
    significance = [above_map, p, p_of_tags, p_of_sentences]
    return [system.name, setting, *of_f, *of_sentences, *significance]


def interval(difference: Difference) -> str:
    """Format a difference with its 95 % interval."""
    return f"{difference.value:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]"


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Make all tables."""
    sections = [section(run, name, size[name]) for name in size["tasks"]]
    exponents = sorted({n for name in size["tasks"] for n in size[name]["exponents"]})
    figures = {"development": DEVELOPMENT, "ml_online": ML_ONLINE, "exponents": exponents}
    return {**figures, "tasks": "\n\n".join(sections)}
