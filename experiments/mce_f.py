"""Suzuki, McDermott & Isozaki (2006): chunking and entities with ML, MAP, MCE and MCE-F."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from spacy_costner.metrics import Difference, markdown_table

from .runner import ROOT, Figures, Runner, spec
from .scores import WHOLE, F, System, best_on_dev, compare
from .tagger import SEQUENTIAL, Block, features_of, linear_block
from .training import Stage
from .tuning import Trial, test, tune

DEVELOPMENT = 2000
"""Sentences at the end of the training data that settings are chosen on, where there is no
part for that: footnote 3."""


class Task(NamedTuple):
    """A task of the paper, or one in its place.

    title (str): What it is called on the page.
    files (Mapping[str, str]): Those of "train", "test" and perhaps "dev".
    features (Block): What is seen of tokens.
    scheme (str): The tag scheme.
    published (Mapping[str, Tuple[float, float]]): By row, F and the share of right sentences:
        tables 1 and 2.
    """

    title: str
    files: Mapping[str, str]
    features: Block
    scheme: str = "IOB2"
    published: Mapping[str, Tuple[float, float]] = {}


SPEC = spec("mce_f")
TASKS = {
    name: Task(
        **{
            **task,
            "features": {**features_of("mce_f"), **SPEC["features"][task["features"]]},
            "published": SPEC["published"][task["published"]],
        }
    )
    for name, task in SPEC["tasks"].items()
}


class Setting(NamedTuple):
    """How a criterion is trained.

    title (str): What that is called in the tables.
    fit (str), settings (Mapping[str, Any]): See `training.FITS`.
    optimizer (Mapping[str, Any]): The settings of AdaGrad.
    """

    title: str
    fit: str
    settings: Mapping[str, Any]
    optimizer: Mapping[str, Any] = {}


def batch(n: Optional[int], max_iter: Optional[int] = None) -> Setting:
    """L-BFGS, with the penalty |w|^2 / C, C = 10^n, or without one; stopped, if that is said."""
    title = "no penalty" if n is None else f"C = 10^{n}"
    title += "" if max_iter is None else f", {max_iter} iterations"
    c2 = 0.0 if n is None else 10.0**-n
    return Setting(title, "batch", {"c2": c2, "max_iter": max_iter, "tolerance": 1e-4})


def online(learn_rate: float, epochs: int = 5) -> Setting:
    """AdaGrad with averaged weights, four sentences at a time."""
    title, settings = f"steps of {learn_rate}, {epochs} epochs", {"batch_size": 4}
    return Setting(title, "online", {**settings, "epochs": [epochs]}, {"learn_rate": learn_rate})


class Criterion(NamedTuple):
    """A row of the tables: what is minimised, from where and how.

    name (str): Its name.
    loss (Block): Its block of the config.
    settings (Sequence[Setting]): What is tried on the development part.
    from_map (bool): Whether it starts from the MAP model, or from weights of 0.
    seeds (Sequence[int]): For the order of the sentences, when the test part is scored.
    """

    name: str
    loss: Block
    settings: Sequence[Setting]
    from_map: bool = False
    seeds: Sequence[int] = (0,)


ML_ONLINE, BY_F, BY_EXPECTED_F = "ML, online", "MCE-F", "MCE-F, expected counts"


class Plan(NamedTuple):
    """What is done with a task.

    by_map (Sequence[Setting]): What is tried for the MAP model, with a smaller C first.
    others (Sequence[Criterion]): The other rows.
    limit (Optional[int]): The most sentences of each file.
    """

    by_map: Sequence[Setting]
    others: Sequence[Criterion]
    limit: Optional[int] = None


def plan_of(
    exponents: Sequence[int],
    groups: Sequence[str],
    seeds: Sequence[int],
    steps: Sequence[float],
    limit: Optional[int] = None,
) -> Plan:
    """A plan of the spec."""
    settings = {
        "stopped": ([batch(None, 50)], (0,)),
        "from 0": ([online(0.1)], (0,)),
        "from MAP": ([online(step) for step in steps], seeds),
    }
    rows = [
        Criterion(
            name, row["loss"], settings[row["group"]][0], row["from_map"], settings[row["group"]][1]
        )
        for name, row in SPEC["rows"].items()
        if row["group"] in groups
    ]
    return Plan([batch(n) for n in exponents], rows, limit)


def data_of(task: Task, part: str, limit: Optional[int]) -> Dict[str, Any]:
    """The training data and a part: see `training.read`. Where a task has no development part, that
    is the end of the training data."""
    train, other = task.files["train"], task.files.get(part)
    if other is not None:
        return {"train": [train, 0, limit], part: [other, 0, limit]}
    n_held_out = DEVELOPMENT if limit is None else min(DEVELOPMENT, limit // 4)
    begin = -n_held_out if limit is None else limit - n_held_out
    return {"train": [train, 0, begin], part: [train, begin, limit]}


def stage(task: Task, row: Criterion, setting: Setting, seed: int = 0) -> Stage:
    """The training of a row."""
    model = linear_block(task.features, **setting.optimizer)
    made_of = {"model": model, "loss": row.loss, "seed": seed, "scheme": task.scheme}
    return {"fit": setting.fit, "settings": setting.settings, **made_of}


def chain(task: Task, row: Criterion, settings: Sequence[Setting]) -> List[Stage]:
    """Trainings with one setting after another, each from the weights of the one before."""
    after = [None, *range(len(settings))]
    return [{**stage(task, row, each), "after": i} for each, i in zip(settings, after)]


def systems_of(run: Runner, name: str, plan: Plan) -> List[System]:
    """Settings are chosen on the development part, then the models are trained with them on all
    training data and scored on the test part.

    run (Runner): Runs the trainings.
    name (str), plan (Plan): The task, and what is done with it.
    RETURNS (List[System]): One for each row, MAP first; "setting" is what was chosen.
    """
    task, by_map = TASKS[name], Criterion("MAP", SEQUENTIAL, plan.by_map)

    def trial(
        part: str, row: Criterion, setting: Setting, start: Sequence[Stage], seed: int = 0
    ) -> Trial:
        key = f"{name}-{part}-{setting.title}-{seed}".replace(" ", "_")
        data, chosen = data_of(task, part, plan.limit), {"setting": setting}
        return Trial(row.name, key, data, stage(task, row, setting, seed), chosen, start)

    def choose(rows: Sequence[Criterion], start: Sequence[Stage]) -> Dict[str, System]:
        tried = [(row, each) for row in rows for each in row.settings]
        found = tune(
            run, [trial("dev", *pair, start if pair[0].from_map else ()) for pair in tried]
        )
        return {row: best_on_dev(systems) for row, systems in found.items()}

    best = choose([by_map], ())
    used = by_map.settings[: by_map.settings.index(best["MAP"].settings["setting"]) + 1]
    best |= choose(
        [row for row in plan.others if len(row.settings) > 1], chain(task, by_map, used[-1:])
    )
    # From one C to the next, which comes to the same weights in less time.
    path = chain(task, by_map, used)
    trials = [trial("test", by_map, used[-1], path[:-1])]
    for row in plan.others:
        setting = best[row.name].settings["setting"] if row.name in best else row.settings[0]
        start = path if row.from_map else ()
        trials += [trial("test", row, setting, start, seed) for seed in row.seeds]
    return [
        one._replace(dev=best[row].dev if row in best else one.dev)
        for row, one in test(run, trials).items()
    ]


def section(run: Runner, name: str, plan: Plan) -> str:
    """The table of a task, or what is missing for it."""
    task = TASKS[name]
    if missing := [file for file in task.files.values() if not (ROOT / file).exists()]:
        names = ", ".join(f"`{file}`" for file in missing)
        return f"### {task.title}\n\nNot run: it takes {names}."
    systems = systems_of(run, name, plan)
    table = markdown_table(HEADER, [line(one, systems[0], task.published) for one in systems])
    size = f" The first {plan.limit:,} sentences of each file." if plan.limit else ""
    return f"### {task.title}\n\n{table}\n\n{against_online(systems)}{size}"


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
    *("F above MAP", "p", "sentences above MAP", "p"),
)


def line(one: System, by_map: System, published: Mapping[str, Tuple[float, float]]) -> List[object]:
    """A row of the table as it is shown."""
    theirs = [f"{value:.2f}" for value in published.get(one.name, ())] or ["", ""]
    gaps: List[object] = ["", "", "", ""]
    if one is not by_map:
        found = [gap for (gap,) in compare([one], by_map, (F, WHOLE))]
        gaps = [text for gap in found for text in (interval(gap), f"{gap.p:.4f}")]
    dev = float(one.on("dev", F)[0]) if len(one.dev) else ""
    ours = [one.spread(score) for score in (F, WHOLE)]
    title = one.settings["setting"].title
    return [one.name, title, dev, theirs[0], ours[0], theirs[1], ours[1], *gaps]


def interval(gap: Difference) -> str:
    """A difference, and where 95 % of the samples are."""
    return f"{gap.value:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]"


def experiment(run: Runner, quick: bool) -> Figures:
    """All tables."""
    plans = {name: plan_of(**each) for name, each in SPEC["quick" if quick else "full"].items()}
    return {
        "tasks": "\n\n".join(section(run, name, plan) for name, plan in plans.items()),
        "development": DEVELOPMENT,
        "ml_online": ML_ONLINE,
    }
