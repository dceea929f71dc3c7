"""Gimpel & Smith (2010): softmax-margin and six other training methods, table 1.

A method has two settings: C, its regularisation, and m, the multiplier of its cost. A grid contains
pairs of these. Risk and the Jensen risk bound ("jrb") start from the weights of the likelihood
("crf"), the other methods from 0. The variant "paper" of the spec uses the epochs and grids of the
paper, and the variant "epochs" its epochs with fewer values of C. The variant "gazetteers" adds
features from lists of phrases.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from math import ceil
from statistics import mean
from typing import Any

from spacy_costner.cli.tables import markdown_table
from spacy_costner.costs.tables import HAMMING
from spacy_costner.ml import linear_part
from spacy_costner.workflows.runs import Run

from .corpora import ROOT, as_examples, parts_of, read
from .runner import Figures, Runner, spec
from .scores import F, System, Trial, best_on_dev, compare, test, tune
from .training import Block, Stage, features_of, filled, linear_block, make_ner

CORPORA = {
    "CoNLL-2003 English": "assets/conll2003_en/eng",
    "CoNLL-2002 Spanish": "assets/conll2002_es/esp",
}
"""Corpora and their files, without suffixes such as ".train". The first existing corpus is used."""

SPEC = spec("softmax_margin")
METHODS = {name: {**SPEC["defaults"], **method} for name, method in SPEC["methods"].items()}
FEATURES = features_of("softmax_margin")
BASELINES = ("crf", "softmax_margin")
Settings = Mapping[str, Any]
"""C as "c" and "m" (None if a method doesn't have it), the "epochs", and whether weights are
"averaged"."""


class Plan:
    """The trainings on a corpus."""

    def __init__(self, data: Mapping[str, Any], size: Mapping[str, Any], n_train: int) -> None:
        """Initialize.

        data (Mapping[str, Any]): The files: see `corpora.read`.
        size (Mapping[str, Any]): The size of the experiment: see softmax_margin.cfg.
        n_train (int): The number of training sentences.
        """
        self.data = data
        self.size = size
        self.n_batches = ceil(n_train / size["batch_size"])
        self.features = features_with(size["gazetteers"])

    def penalty(self, c: float | None) -> float:
        """Compute the L2 per step such that the steps of an epoch add up to the penalty C
        ||w||^2."""
        # Each step adds L2 w to the gradient. The gradient of C ||w||^2 is 2 C w.
        return 2 * (c or 0.0) / self.n_batches

    def optimizer(self, name: str, c: float | None, m: float | None) -> Block:
        """Get the AdaGrad settings for a method, with its C and m.

        For steps of a fixed size, eps is so large that the sum of squared gradients doesn't matter.
        Multiplying risk (eq 5) by m makes the steps m times as long, but leaves the penalty
        unchanged.
        """
        method = METHODS[name]
        if method["optimizer"] == "AdaGrad":
            l2 = self.penalty(c) if method["penalty"] else 0.0
            return {"learn_rate": self.size["learn_rate"], "L2": l2}
        if method["optimizer"] == "own":  # 1 for the perceptron; MIRA's loss sets the step size
            step = 1.0
            l2 = 0.0
        else:  # SGD
            factor = m if m and method["step_times_m"] else 1.0
            step = self.size["step"] * factor
            l2 = self.penalty(c) / factor
        return {"learn_rate": step * 1e6, "eps": 1e6, "L2": l2}

    def stage(self, name: str, settings: Settings, seed: int) -> Stage:
        """Make the stage that trains with a method: see `training.fit_online`. "epochs" and
        "averaged" may be lists."""
        method = METHODS[name]
        c = settings["c"]
        m = settings["m"]
        batch_size = self.size["batch_size"]
        if method["optimizer"] == "own":
            batch_size = 1
        return {
            "fit": "online",
            "loss": filled(method["loss"], cost=HAMMING, c=c, m=m),
            "model": linear_block(self.features, **self.optimizer(name, c, m)),
            "seed": seed,
            "settings": {
                "epochs": as_list(settings["epochs"]),
                "averaged": as_list(settings["averaged"]),
                "batch_size": batch_size,
            },
        }

    def values(self, grid: Any) -> list[Any]:
        """Get the values of C or m to try, from a list or the name of a list in the size."""
        if isinstance(grid, str):
            grid = self.size[grid]
        return list(grid)

    def tune(
        self, run: Runner, names: Sequence[str], crf: System | None = None
    ) -> dict[str, list[System]]:
        """Try the grids of some methods. Returns the systems of all settings, by method. Training
        starts from the weights of `crf`, if given, otherwise from weights of 0."""
        seed = self.size["seeds"][0]
        start: list[Stage] = []
        if crf is not None:
            start = [self.stage("crf", crf.settings, seed)]
        data = {part: files for part, files in self.data.items() if part != "test"}

        trials = []
        for name in names:
            method = METHODS[name]
            epochs = self.size["epochs"]
            if method["from_crf"]:
                epochs = self.size["epochs_of_risk"]
            grid = [*product(self.values(method["c"]), self.values(method["m"]))]
            for c, m in grid[:: self.size["every"]]:
                c_and_m = {"c": c, "m": m}
                settings = {**c_and_m, "epochs": epochs, "averaged": (False, True)}
                stage = self.stage(name, settings, seed)
                trials.append(Trial(name, f"tune-{c}-{m}", data, [stage], c_and_m, start))
        return tune(run, trials)

    def test(self, run: Runner, chosen: Mapping[str, Settings]) -> dict[str, System]:
        """Train with the chosen settings and all seeds."""
        trials = []
        for seed, name in product(self.size["seeds"], METHODS):
            start: list[Stage] = []
            if METHODS[name]["from_crf"]:
                start = [self.stage("crf", chosen["crf"], seed)]
            stages = [self.stage(name, chosen[name], seed)]
            trials.append(Trial(name, f"test-{seed}", self.data, stages, chosen[name], start))
        return test(run, trials)


def as_list(setting: Any) -> list[Any]:
    """Turn a setting into a list, unless it already is one."""
    if isinstance(setting, (list, tuple)):
        return list(setting)
    return [setting]


def find_corpus() -> str:
    """Find the first existing corpus. Raises an error if there is none."""
    for name, path in CORPORA.items():
        if (ROOT / f"{path}.train").exists():
            return name
    raise FileNotFoundError(f"assets: expected any of {', '.join(CORPORA)}, found none")


def features_with(folder: str | None) -> dict[str, Any]:
    """Get the feature settings, with a gazetteer for each text file in a folder, if given. The
    files contain a phrase on each line. Raises an error if the folder contains no text files."""
    if folder is None:
        return FEATURES
    paths = sorted((ROOT / folder).glob("*.txt"))
    if not paths:
        raise FileNotFoundError(f"{folder}: expected gazetteers, *.txt, found none")
    return {**FEATURES, "gazetteers": {path.stem: str(path) for path in paths}}


def survey(data: Mapping[str, Any], gazetteers: str | None) -> dict[str, Any]:
    """Count the sentences of each part of a corpus, the entities in the test part, the features of
    the training data, and the mean number of features per token. Called as a run."""
    docs = read(json.dumps(data))
    ner = make_ner(as_examples(docs["train"]), model=linear_block(features_with(gazetteers)))
    features, _ = linear_part(ner.model)
    rows = features.find(docs["train"]).rows  # (N, S), -1 for none
    n_features_of_token = (rows >= 0).sum(axis=1)
    return {
        **{part: len(docs[part]) for part in docs},
        "entities": sum(len(doc.ents) for doc in docs["test"]),
        "features": len(features),
        "n_active": round(float(n_features_of_token.mean()), 1),
    }


def settings_text(settings: Settings) -> str:
    """Format C and m, if the method has them, the epochs, and whether weights are averaged (Y or
    N)."""
    texts: list[str] = []
    for name in ("c", "m"):
        if settings[name] is not None:
            texts.append(f"{settings[name]:g}")
    texts.append(str(settings["epochs"]))
    texts.append("Y" if settings["averaged"] else "N")
    return ", ".join(texts)


def results(systems: Mapping[str, System], n_samples: int) -> Figures:
    """Make the cells of table 1 with our results, by method."""
    differences_from = {}
    for baseline in BASELINES:
        (differences,) = compare([*systems.values()], systems[baseline], n_samples=n_samples)
        differences_from[baseline] = dict(zip(systems, differences))
    rows = {}
    for name, system in systems.items():
        p_values: list[str] = []
        for baseline in BASELINES:
            p = differences_from[baseline][name].p
            p_values.append("" if name == baseline else f"{p:.4f}")
        dev_f = f"{mean(system.on('dev', F)):.2f}"
        cells = [dev_f, system.spread(F), settings_text(system.settings), *p_values]
        rows[name] = " | ".join(cells)
    return rows


def table_by_epochs(tuned: Mapping[str, Sequence[System]], size: Mapping[str, Any]) -> str:
    """Make the table of F on the development data after each number of epochs, with a row for each
    method and m. C and averaging are the best for this m and number of epochs."""
    header = ["", "m"]
    for epochs, epochs_of_risk in zip(size["epochs"], size["epochs_of_risk"], strict=True):
        title = f"{epochs} epochs"
        if epochs_of_risk != epochs:
            title += f" (risk and JRB: {epochs_of_risk})"
        header.append(title)

    rows: list[list[str]] = []
    for name, method in METHODS.items():
        for m, systems_of_m in group_by(tuned[name], "m").items():
            row = [method["title"], "" if m is None else f"{m:g}"]
            for systems in group_by(systems_of_m, "epochs").values():
                (dev_f,) = best_on_dev(systems).on("dev", F)
                row.append(f"{dev_f:.2f}")
            rows.append(row)
    return markdown_table(header, rows)


def group_by(systems: Sequence[System], setting: str) -> dict[Any, list[System]]:
    """Group systems by the value of a setting, in order of its first occurrence."""
    groups: dict[Any, list[System]] = {}
    for system in systems:
        groups.setdefault(system.settings[setting], []).append(system)
    return groups


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Tune on the development data, then train with the chosen settings."""
    corpus = find_corpus()
    data = parts_of(CORPORA[corpus], size["limit"])
    (facts,) = run([Run("corpus", survey, {"data": data, "gazetteers": size["gazetteers"]})])
    plan = Plan(data, size, facts["train"])
    from_zero = [name for name in METHODS if not METHODS[name]["from_crf"]]
    from_crf = [name for name in METHODS if METHODS[name]["from_crf"]]
    tuned = plan.tune(run, from_zero)
    tuned |= plan.tune(run, from_crf, crf=best_on_dev(tuned["crf"]))
    chosen = {name: best_on_dev(tuned[name]).settings for name in METHODS}
    systems = plan.test(run, chosen)
    gazetteers = ""
    if size["gazetteers"]:
        gazetteers = f", and gazetteers: {', '.join(plan.features['gazetteers'])}"
    return {
        **facts,
        "corpus": corpus,
        "lists": gazetteers,
        "titles": {name: method["title"] for name, method in METHODS.items()},
        "ours": results(systems, size["n_samples"]),
        "by_epochs": table_by_epochs(tuned, size),
    }
