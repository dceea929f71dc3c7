"""Suzuki, McDermott & Isozaki (2006): chunking and entities with ML, MAP, MCE and MCE-F."""

from collections.abc import Mapping, Sequence
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
    """L-BFGS, with the penalty |w|^2 / C, C = 10^n, or without one; stopped, if that is said."""
    title = "no penalty" if n is None else f"C = 10^{n}"
    title += "" if max_iter is None else f", {max_iter} iterations"
    settings = {"c2": 0.0 if n is None else 10.0**-n, "max_iter": max_iter, "tolerance": 1e-4}
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
    made_of = {"model": linear_block(features, **setting["optimizer"]), "scheme": task["scheme"]}
    fit = {key: setting[key] for key in ("fit", "settings")}
    return {**made_of, **fit, "loss": row["loss"], "seed": seed}


def trials(
    name: str, limit: int | None, part: str, rows: Mapping[str, Criterion], start: Any = ()
) -> list[Trial]:
    """The trials of rows on a part of a task, with what each tries and each of its seeds for the
    test; of the development part, with the first one."""
    data, task = data_of(TASKS[name], part, limit), TASKS[name]
    return [
        Trial(
            criterion,
            f"{name}-{part}-{each['title']}-{seed}",
            data,
            [stage(task, row, each, seed)],
            {"setting": each},
            start if row["from_map"] else (),
        )
        for criterion, row in rows.items()
        for each in row["tried"]
        for seed in (row["seeds"] if part == "test" else [0])
    ]


def systems_of(
    run: Runner, name: str, rows: Mapping[str, Criterion], limit: int | None = None
) -> list[System]:
    """Settings are chosen on the development part, then the models are trained with them on all
    training data and scored on the test part: a system for each row; "setting" is what was chosen.
    MAP is the first row, and tries a smaller C first."""

    def choose(some: Mapping[str, Criterion], start: Sequence[Stage] = ()) -> dict[str, System]:
        tried = tune(run, trials(name, limit, "dev", some, start))
        return {row: best_on_dev(systems) for row, systems in tried.items()}

    def chain(settings: Sequence[Setting]) -> list[Stage]:
        first = stage(TASKS[name], by_map, settings[0])
        return in_turn(first, [each["settings"] for each in settings])

    by_map, others = rows["MAP"], {row: each for row, each in rows.items() if row != "MAP"}
    best = choose({"MAP": by_map})
    used = by_map["tried"][: by_map["tried"].index(best["MAP"].settings["setting"]) + 1]
    tried = {row: each for row, each in others.items() if len(each["tried"]) > 1}
    best |= choose(tried, chain(used[-1:]))
    chosen = {
        row: {**each, "tried": [best[row].settings["setting"]] if row in best else each["tried"]}
        for row, each in rows.items()
    }
    # From one C to the next, which comes to the same weights in less time.
    path = chain(used)
    first, *on_test = trials(name, limit, "test", chosen, path)
    on_test = [first._replace(start=path[:-1]), *on_test]
    return [
        one._replace(dev=best[row].dev if row in best else one.dev)
        for row, one in test(run, on_test).items()
    ]


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
