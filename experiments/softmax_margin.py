"""Gimpel & Smith (2010): softmax-margin and six other ways of training, table 1."""

import json
from functools import partial
from itertools import product
from statistics import mean
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from spacy_costner.commands.runs import Run
from spacy_costner.costs.tables import HAMMING
from spacy_costner.ml import linear_part

from .corpora import ASSETS
from .runner import ROOT, Figures, Runner, listed
from .scores import F, System, best_on_dev, compare
from .tagger import (
    SEQUENTIAL,
    Block,
    features_of,
    linear_block,
    loss_block,
    make_tagger,
)
from .training import Stage, as_examples, read
from .tuning import Trial, test, tune

CORPORA = {
    "CoNLL-2003 English": ASSETS / "conll2003_en" / "eng",
    "CoNLL-2002 Spanish": ASSETS / "conll2002_es" / "esp",
}
"""Corpora and their files, without ".train" and so on. The first that is there is taken."""

FEATURES = features_of("softmax_margin")
SEEDS = (0, 1, 2)
N_SAMPLES = 10_000
BATCH_SIZE = 16
LEARN_RATE = 0.05
SGD_STEP = 0.01
"""The paper's, for all methods that have no step size of their own."""

CS = (0.01, 0.1, 1.0)
MS = (0.2, 1, 5, 20)
EPOCHS: Sequence[int] = (3, 6)
EPOCHS_OF_RISK: Sequence[int] = (2, 5)
BOTH = (False, True)
BASELINES = ("crf", "softmax_margin")


class Facts(NamedTuple):
    """What a method has to know of its corpus.

    n_batches (int): Batches of an epoch.
    """

    n_batches: int


class Training(NamedTuple):
    """How a linear CRF is trained.

    loss (Block): The loss.
    optimizer (Block): The settings of AdaGrad.
    batch_size (int): Sentences in a step.
    """

    loss: Block
    optimizer: Block
    batch_size: int = BATCH_SIZE

    def stage(self, epochs: Sequence[int], averaged: Sequence[bool], seed: int) -> Stage:
        """The stage of this training: see `training.fit_online`."""
        settings = {"epochs": epochs, "averaged": averaged, "batch_size": self.batch_size}
        model = linear_block(FEATURES, **self.optimizer)
        return {
            "fit": "online",
            "loss": self.loss,
            "model": model,
            "seed": seed,
            "settings": settings,
        }


def ada_grad(facts: Facts, c: Optional[float]) -> Block:
    """AdaGrad, with the penalty C ||w||^2 on the loss of an epoch."""
    return {"learn_rate": LEARN_RATE, "L2": penalty(facts, c)}


def sgd(step: float, l2: float = 0.0) -> Block:
    """Steps of a fixed size: AdaGrad with an eps beside which the sum of the squared gradients is
    nothing."""
    eps = 1e6
    return {"learn_rate": step * eps, "eps": eps, "L2": l2}


def penalty(facts: Facts, c: Optional[float]) -> float:
    """What L2 makes C ||w||^2 of the steps of an epoch."""
    return 2 * (c or 0.0) / facts.n_batches


def likelihood(facts: Facts, c: float, m: None) -> Training:
    """CLL, eq 3."""
    return Training(SEQUENTIAL, ada_grad(facts, c))


def cost_augmented(name: str, facts: Facts, c: float, m: float) -> Training:
    """Max-margin, eq 4, and softmax-margin, eq 6."""
    return Training(loss_block(name, cost=HAMMING, multiplier=m), ada_grad(facts, c))


def perceptron(facts: Facts, c: None, m: None, *, built_in: bool = False) -> Training:
    """The perceptron of Collins (2002), by AdaGrad or by its own steps, after each sentence."""
    loss = loss_block("Perceptron")
    return Training(loss, sgd(1.0), 1) if built_in else Training(loss, ada_grad(facts, None))


def mira(facts: Facts, c: float, m: float, *, built_in: bool = False) -> Training:
    """1-best MIRA, by AdaGrad or by its own steps, after each sentence."""
    loss = loss_block("MIRA", cost=HAMMING, multiplier=m, aggressiveness=c)
    return Training(loss, sgd(1.0), 1) if built_in else Training(loss, ada_grad(facts, None))


def risk(facts: Facts, c: float, m: float) -> Training:
    """Risk, eq 5, times m: steps that are m times as long, with a penalty that isn't."""
    return Training(loss_block("Risk", cost=HAMMING), sgd(SGD_STEP * m, penalty(facts, c) / m))


def jensen_risk_bound(facts: Facts, c: float, m: float) -> Training:
    """JRB, section 3.1."""
    loss = loss_block("JensenRiskBound", cost=HAMMING, multiplier=m)
    return Training(loss, sgd(SGD_STEP, penalty(facts, c)))


class Method(NamedTuple):
    """A row of table 1.

    training (Callable[..., Training]): Takes the facts, C and m.
    grid (Sequence[Tuple]): What C and m are tried, None where a method has none.
    epochs (Sequence[int]): What numbers of epochs are tried.
    from_crf (bool): Whether it starts from the weights of the likelihood.
    """

    training: Callable[..., Training]
    grid: Sequence[Tuple[Optional[float], Optional[float]]]
    epochs: Sequence[int] = EPOCHS
    from_crf: bool = False


NO_GRID = ((None, None),)
GRID_OF_MARGIN = tuple(product(CS[:2], MS))
GRID_OF_RISK = tuple(product(CS[:1], MS[:3]))
METHODS = {
    "perceptron": Method(perceptron, NO_GRID),
    "perceptron_built_in": Method(partial(perceptron, built_in=True), NO_GRID),
    "mira": Method(mira, tuple(product(CS, MS))),
    "mira_built_in": Method(partial(mira, built_in=True), tuple((c, 1) for c in CS)),
    "crf": Method(likelihood, tuple((c, None) for c in CS)),
    "max_margin": Method(partial(cost_augmented, "MaxMargin"), GRID_OF_MARGIN),
    "risk": Method(risk, GRID_OF_RISK, EPOCHS_OF_RISK, from_crf=True),
    "jrb": Method(jensen_risk_bound, GRID_OF_RISK, EPOCHS_OF_RISK, from_crf=True),
    "softmax_margin": Method(partial(cost_augmented, "SoftmaxMargin"), GRID_OF_MARGIN),
}
"""In the order of table 1, whose titles and published figures are in the page."""


class Plan(NamedTuple):
    """What is run.

    data (Mapping[str, Any]): The files: see `training.read`.
    facts (Facts): What methods have to know of them.
    seeds (Sequence[int]): Seeds of the settings that are chosen. They are chosen with the first.
    grid (slice), epochs (slice): What is tried of a method's grid and numbers of epochs.
    """

    data: Mapping[str, Any]
    facts: Facts
    seeds: Sequence[int] = SEEDS
    grid: slice = slice(None)
    epochs: slice = slice(None)

    def stage(self, name: str, settings: Mapping[str, Any], seed: int) -> Stage:
        """The stage of a method with the settings that were chosen."""
        method = METHODS[name].training(self.facts, settings["c"], settings["m"])
        return method.stage([settings["epochs"]], [settings["averaged"]], seed)

    def tune(
        self, run: Runner, names: Sequence[str], crf: Optional[System]
    ) -> Dict[str, List[System]]:
        """Try the grids of some methods: of each the systems of all settings.

        crf (Optional[System]): The likelihood to start from; None for weights of 0.
        """
        seed = self.seeds[0]
        start = [] if crf is None else [self.stage("crf", crf.settings, seed)]
        data = {part: ends for part, ends in self.data.items() if part != "test"}
        trials = []
        for name in names:
            epochs = METHODS[name].epochs[self.epochs]
            for c, m in METHODS[name].grid[self.grid]:
                stage = METHODS[name].training(self.facts, c, m).stage(epochs, BOTH, seed)
                trials.append(Trial(name, f"tune-{c}-{m}", data, stage, {"c": c, "m": m}, start))
        return tune(run, trials)

    def test(self, run: Runner, chosen: Mapping[str, System]) -> Dict[str, System]:
        """Train with the settings that were chosen, with all seeds."""
        trials = []
        for seed, name in product(self.seeds, METHODS):
            crf = [self.stage("crf", chosen["crf"].settings, seed)]
            start, settings = crf if METHODS[name].from_crf else [], chosen[name].settings
            stage = self.stage(name, settings, seed)
            trials.append(Trial(name, f"test-{seed}", self.data, stage, settings, start))
        return test(run, trials)


def find_corpus() -> str:
    """The first corpus that is there.

    RAISES (FileNotFoundError): If there is none.
    """
    for name, path in CORPORA.items():
        if path.with_suffix(".train").exists():
            return name
    raise FileNotFoundError(f"assets: expected any of {', '.join(CORPORA)}, found none")


def files(path: Any, limit: Optional[int]) -> Dict[str, Any]:
    """The parts of a corpus of the shared tasks of 2002 and 2003: see `training.read`."""
    suffixes = {"train": ("train", limit), "dev": ("testa", None), "test": ("testb", None)}
    return {part: [f"{path}.{end}", 0, most] for part, (end, most) in suffixes.items()}


def survey(data: Mapping[str, Any]) -> Dict[str, Any]:
    """A run: what there is in a corpus."""
    docs = read(json.dumps(data))
    tagger = make_tagger(as_examples(docs["train"]), model=linear_block(FEATURES))
    features, _ = linear_part(tagger.ner.model)
    rows = features.find(docs["train"]).rows
    return {
        **{part: len(docs[part]) for part in docs},
        "entities": sum(len(doc.ents) for doc in docs["test"]),
        "features": len(features),
        "n_active": round(float((rows >= 0).sum(axis=1).mean()), 1),
    }


def describe(settings: Mapping[str, Any]) -> str:
    """C, m, the epochs, and whether weights are averaged."""
    numbers = [f"{settings[name]:g}" for name in ("c", "m") if settings[name] is not None]
    return ", ".join([*numbers, str(settings["epochs"]), "Y" if settings["averaged"] else "N"])


def results(found: Mapping[str, System]) -> Figures:
    """Of each method the cells of table 1 that are ours."""
    judged = {
        baseline: compare([*found.values()], found[baseline], n_samples=N_SAMPLES)[0]
        for baseline in BASELINES
    }
    rows = {}
    for i, (name, one) in enumerate(found.items()):
        levels = ["" if name == base else f"{judged[base][i].p:.4f}" for base in BASELINES]
        dev = f"{mean(one.on('dev', F)):.2f}"
        rows[name] = " | ".join([dev, one.spread(F), describe(one.settings), *levels])
    return rows


def best_settings(tried: Sequence[System]) -> str:
    """The best F on the development data with each setting, whatever the other settings."""
    columns = [
        *(("c", c) for c in CS),
        *(("m", m) for m in MS),
        *(("averaged", averaged) for averaged in BOTH),
    ]
    cells = []
    for name, value in columns:
        having = [one.on("dev", F)[0] for one in tried if one.settings[name] == value]
        cells.append(f"{max(having):.2f}" if having else "")
    return " | ".join(cells)


def experiment(run: Runner, quick: bool) -> Figures:
    """Tune on development data, then train with what was chosen."""
    corpus = find_corpus()
    data = files(CORPORA[corpus].relative_to(ROOT), 600 if quick else None)
    (facts,) = run([Run("corpus", survey, {"data": data})])
    plan = Plan(data, Facts(-(-facts["train"] // BATCH_SIZE)))
    if quick:
        plan = plan._replace(seeds=(0,), grid=slice(None, None, 4), epochs=slice(1))
    tried = plan.tune(run, [name for name in METHODS if not METHODS[name].from_crf], None)
    crf = best_on_dev(tried["crf"])
    tried |= plan.tune(run, [name for name in METHODS if METHODS[name].from_crf], crf)
    found = plan.test(run, {name: best_on_dev(tried[name]) for name in METHODS})
    return {
        **facts,
        "corpus": corpus,
        "seeds": listed(plan.seeds),
        "first_seed": plan.seeds[0],
        "n_samples": N_SAMPLES,
        "step": SGD_STEP,
        "learn_rate": LEARN_RATE,
        "batch_size": BATCH_SIZE,
        "epochs": listed(EPOCHS[plan.epochs], " or "),
        "epochs_of_risk": listed(EPOCHS_OF_RISK[plan.epochs], " or "),
        "ours": results(found),
        "tried": {name: best_settings(systems) for name, systems in tried.items()},
    }
