"""Gimpel & Smith (2010): softmax-margin and six other ways of training, table 1."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import mean
from typing import Any

from spacy_costner.analysis.runs import Run
from spacy_costner.costs.tables import HAMMING
from spacy_costner.ml import linear_part

from .corpora import ROOT, as_examples, parts_of, read
from .runner import Figures, Runner, spec
from .scores import F, System, Trial, best_on_dev, compare, test, tune
from .training import Block, Stage, features_of, filled, linear_block, make_ner

CORPORA = {
    "CoNLL-2003 English": "assets/conll2003_en/eng",
    "CoNLL-2002 Spanish": "assets/conll2002_es/esp",
}
"""Corpora and their files, without ".train" and so on. The first that is there is taken."""

SPEC = spec("softmax_margin")
METHODS = {name: {**SPEC["defaults"], **method} for name, method in SPEC["methods"].items()}
FEATURES = features_of("softmax_margin")
BASELINES = ("crf", "softmax_margin")
Settings = Mapping[str, Any]
"""C as "c", "m", None where a method has none; the "epochs", and whether weights are "averaged"."""


class Plan:
    """What is run on a corpus."""

    def __init__(self, data: Mapping[str, Any], size: Mapping[str, Any], n_train: int) -> None:
        """Initialize.

        data (Mapping[str, Any]): The files: see `corpora.read`.
        size (Mapping[str, Any]): How much is run: see softmax_margin.cfg.
        n_train (int): How many sentences it learns from.
        """
        self.data, self.size = data, size
        self.n_batches = -(-n_train // size["batch_size"])

    def penalty(self, c: float | None) -> float:
        """What L2 makes C ||w||^2 of the steps of an epoch."""
        return 2 * (c or 0.0) / self.n_batches

    def optimizer(self, name: str, c: float | None, m: float | None) -> Block:
        """The settings of AdaGrad for a method. Steps of a fixed size are AdaGrad with an eps
        beside which the sum of the squared gradients is nothing. Risk, eq 5, times m: steps that
        are m times as long, with a penalty that isn't."""
        kind, l2 = METHODS[name]["optimizer"], self.penalty(c)
        if kind == "AdaGrad":
            l2 = l2 if METHODS[name]["penalty"] else 0.0
            return {"learn_rate": self.size["learn_rate"], "L2": l2}
        share = m if m and METHODS[name]["step_times_m"] else 1.0
        step, l2 = (1.0, 0.0) if kind == "own" else (self.size["step"] * share, l2 / share)
        return {"learn_rate": step * 1e6, "eps": 1e6, "L2": l2}

    def stage(self, name: str, settings: Settings, seed: int) -> Stage:
        """The training by a method: see `training.fit_online`. "epochs" and "averaged" may be
        several."""
        method, (c, m) = METHODS[name], (settings["c"], settings["m"])
        epochs, averaged = (
            one if isinstance(one, (list, tuple)) else [one]
            for one in (settings["epochs"], settings["averaged"])
        )
        batch_size = 1 if method["optimizer"] == "own" else self.size["batch_size"]
        return {
            "fit": "online",
            "loss": filled(method["loss"], cost=HAMMING, c=c, m=m),
            "model": linear_block(FEATURES, **self.optimizer(name, c, m)),
            "seed": seed,
            "settings": {"epochs": epochs, "averaged": averaged, "batch_size": batch_size},
        }

    def tune(
        self, run: Runner, names: Sequence[str], crf: System | None = None
    ) -> dict[str, list[System]]:
        """Try the grids of some methods: of each the systems of all settings.

        crf (System | None): The likelihood to start from; None for weights of 0.
        """
        seed = self.size["seeds"][0]
        start = [] if crf is None else [self.stage("crf", crf.settings, seed)]
        data = {part: ends for part, ends in self.data.items() if part != "test"}
        trials = []
        for name in names:
            epochs = self.size["epochs_of_risk" if METHODS[name]["from_crf"] else "epochs"]
            grid = [*product(METHODS[name]["c"], METHODS[name]["m"])]
            for c, m in grid[:: self.size["every"]]:
                cell = {"c": c, "m": m}
                more = {"epochs": epochs, "averaged": (False, True)}
                stage = self.stage(name, {**cell, **more}, seed)
                trials.append(Trial(name, f"tune-{c}-{m}", data, [stage], cell, start))
        return tune(run, trials)

    def test(self, run: Runner, chosen: Mapping[str, Settings]) -> dict[str, System]:
        """Train with the settings that were chosen, with all seeds."""
        trials = []
        for seed, name in product(self.size["seeds"], METHODS):
            from_crf = METHODS[name]["from_crf"]
            start = [self.stage("crf", chosen["crf"], seed)] if from_crf else []
            stages = [self.stage(name, chosen[name], seed)]
            trials.append(Trial(name, f"test-{seed}", self.data, stages, chosen[name], start))
        return test(run, trials)


def find_corpus() -> str:
    """The first corpus that is there.

    RAISES (FileNotFoundError): If there is none.
    """
    for name, path in CORPORA.items():
        if (ROOT / f"{path}.train").exists():
            return name
    raise FileNotFoundError(f"assets: expected any of {', '.join(CORPORA)}, found none")


def survey(data: Mapping[str, Any]) -> dict[str, Any]:
    """A run: what there is in a corpus."""
    docs = read(json.dumps(data))
    ner = make_ner(as_examples(docs["train"]), model=linear_block(FEATURES))
    features, _ = linear_part(ner.model)
    rows = features.find(docs["train"]).rows
    return {
        **{part: len(docs[part]) for part in docs},
        "entities": sum(len(doc.ents) for doc in docs["test"]),
        "features": len(features),
        "n_active": round(float((rows >= 0).sum(axis=1).mean()), 1),
    }


def settings_text(settings: Settings) -> str:
    """C, m, the epochs, and whether weights are averaged."""
    numbers = [f"{settings[name]:g}" for name in ("c", "m") if settings[name] is not None]
    return ", ".join([*numbers, str(settings["epochs"]), "Y" if settings["averaged"] else "N"])


def results(found: Mapping[str, System], n_samples: int) -> Figures:
    """Of each method the cells of table 1 that are ours."""
    judged = {
        baseline: compare([*found.values()], found[baseline], n_samples=n_samples)[0]
        for baseline in BASELINES
    }
    rows = {}
    for i, (name, one) in enumerate(found.items()):
        levels = ["" if name == base else f"{judged[base][i].p:.4f}" for base in BASELINES]
        dev = f"{mean(one.on('dev', F)):.2f}"
        rows[name] = " | ".join([dev, one.spread(F), settings_text(one.settings), *levels])
    return rows


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Tune on development data, then train with what was chosen."""
    corpus = find_corpus()
    data = parts_of(CORPORA[corpus], size["limit"])
    (facts,) = run([Run("corpus", survey, {"data": data})])
    plan = Plan(data, size, facts["train"])
    tried = plan.tune(run, [name for name in METHODS if not METHODS[name]["from_crf"]])
    crf = best_on_dev(tried["crf"])
    tried |= plan.tune(run, [name for name in METHODS if METHODS[name]["from_crf"]], crf)
    found = plan.test(run, {name: best_on_dev(tried[name]).settings for name in METHODS})
    return {
        **facts,
        "corpus": corpus,
        "ours": results(found, size["n_samples"]),
    }
