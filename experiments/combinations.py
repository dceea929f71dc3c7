"""Losses, costs and decodings that none of the papers put together, on four corpora, with linear
models, a CNN and a hybrid."""

from itertools import groupby
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from spacy_costner.costs.tables import HAMMING
from spacy_costner.metrics import markdown_table

from .genia import TREE
from .runner import Figures, Runner, spec
from .scores import COST, WHOLE, F, Score, System, best_on_dev, compare, system
from .tagger import (
    SEQUENTIAL,
    Block,
    cnn_block,
    hybrid_block,
    linear_block,
    loss_block,
)
from .training import BEST_PATH, LEARN_RATE, VITERBI, Stage, training

SEEDS = (0, 1, 2)
QUICK = 200
LINEAR_EPOCHS = (6, 2)
"""Of the first loss, and of the second one."""
LINEAR_BATCHES = (16, 64)
"""Sentences."""
ADAGRAD = {"linear": 0.05, "hybrid": 0.1}
"""Learning rates of the sparse features."""
SECOND = 0.2
"""What a second loss has of the learning rates of the first one."""
SECOND_EPOCHS = 3
"""One epoch of the second loss for so many of the first one, with a CNN."""

SCORES = (F, COST, WHOLE)
ARCHITECTURES = ("linear", "CNN", "hybrid")
TREE_COST: Block = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
SPEC = spec("combinations")


class Corpus(NamedTuple):
    """What is learned, and what mistakes cost.

    data (Dict[str, Any]): The files and sentences of its parts: see `training.read`.
    cost (Block): The cost.
    multiplier (float): How much score a unit of it is worth in a margin.
    alpha (float): The same for the perceptron of linear models.
    features (Block): What a linear model sees of tokens.
    attributes (Sequence[str]): What a CNN sees of them.
    epochs (int): How often a CNN goes through it.
    words (int): Tokens in a batch for a CNN.
    """

    data: Dict[str, Any]
    cost: Block
    multiplier: float
    alpha: float
    features: Block
    attributes: Sequence[str]
    epochs: int
    words: int


def corpus(settings: Mapping[str, Any]) -> Corpus:
    """A corpus of the spec. What it doesn't say is that of Spanish entities."""
    features, more = (
        SPEC["features"],
        {key: settings[key] for key in ["bigrams"] if key in settings},
    )
    windows = {**features["windows"], **settings.get("windows", {})}
    return Corpus(
        {part: settings[part] for part in ("train", "dev", "test")},
        TREE_COST if "cost" in settings else HAMMING,
        settings.get("multiplier", 1.0),
        settings.get("alpha", 1.0),
        {**features, "windows": windows, **more},
        settings.get("attributes", ("NORM", "PREFIX", "SUFFIX", "SHAPE")),
        settings.get("epochs", 3),
        settings.get("words", 1_000),
    )


CORPORA = {each["title"]: corpus(each) for each in SPEC["corpora"].values()}


class Method(NamedTuple):
    """A way of training: a loss, and perhaps another one after it.

    losses (Tuple[Block, ...]): The losses.
    is_new (bool): Whether it is in none of the papers.
    """

    losses: Tuple[Block, ...]
    is_new: bool


def methods(corpus: Corpus, architecture: str) -> Dict[str, Method]:
    """The ways of training, with the cost of a corpus. Those with Mixed are for linear models
    only, to save time."""
    cost = {"cost": corpus.cost}
    margin = {**cost, "multiplier": corpus.multiplier}
    alpha = corpus.alpha if architecture == "linear" else corpus.multiplier
    losses = {
        "Sequential": SEQUENTIAL,
        "Mixed": loss_block("Mixed", k=3.0),
        "MixedMargin": loss_block("Mixed", k=3.0, **margin),
        "SoftmaxMargin": loss_block("SoftmaxMargin", **margin),
        "Perceptron": loss_block("Perceptron", **cost, alpha=alpha),
        "MCEF": loss_block("MCEF", decay=0.99),
        "Risk": loss_block("Risk", **cost),
    }
    new = {"any", "tree"} if corpus.cost is TREE_COST else {"any"}
    return {
        name: Method(
            tuple(losses[each] for each in method["losses"]), method.get("new_with") in new
        )
        for name, method in SPEC["methods"].items()
        if architecture == "linear" or "Mixed" not in name
    }


def decodings(corpus: Corpus) -> Dict[str, Block]:
    """The ways to predict."""
    threshold = {"@misc": "spacy_costner.ThresholdDecoding.v1"}
    return {
        **VITERBI,
        "least cost": {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": corpus.cost},
        "threshold 0.3": {**threshold, "threshold": 0.3},
        "threshold 0.4": {**threshold, "threshold": 0.4},
    }


def stage(corpus: Corpus, architecture: str, loss: Block, seed: int, is_second: bool) -> Stage:
    """The training with a loss. The second one has shorter steps, from where the first one came
    to."""
    share, after = (SECOND, 0) if is_second else (1.0, None)
    what = {"loss": loss, "seed": seed, "after": after}
    if architecture == "linear":
        model = linear_block(corpus.features, learn_rate=ADAGRAD["linear"] * share)
        settings = {"epochs": [LINEAR_EPOCHS[is_second]], "batch_size": LINEAR_BATCHES[is_second]}
        return {**what, "fit": "online", "model": model, "settings": settings}
    model = cnn_block(corpus.attributes)
    if architecture == "hybrid":
        learn_rate = ADAGRAD["hybrid"] * share
        model = hybrid_block(corpus.attributes, corpus.features, learn_rate)
    epochs = corpus.epochs // SECOND_EPOCHS if is_second else corpus.epochs
    settings = {"epochs": epochs, "words": corpus.words, "learn_rate": LEARN_RATE * share}
    return {**what, "fit": "neural", "model": model, "settings": settings}


class Outcome(NamedTuple):
    """What came of a method with an architecture and a decoding.

    architecture, method, decoding (str): Their names.
    is_new (bool): Whether none of the papers has that.
    system (System): What was counted, with the counts of all seeds.
    """

    architecture: str
    method: str
    decoding: str
    is_new: bool
    system: System


def run_corpus(run: Runner, name: str, quick: bool) -> List[Outcome]:
    """Run all methods with all architectures and seeds: a loss in each run, with those that come
    second to it."""
    corpus, seeds = CORPORA[name], SEEDS[:1] if quick else SEEDS
    data = corpus.data
    if quick:
        data = {part: (file, begin, begin + QUICK) for part, (file, begin, _) in data.items()}
    grid = {architecture: methods(corpus, architecture) for architecture in ARCHITECTURES}
    runs, trained = [], []
    for seed in seeds:
        for architecture, available in grid.items():
            for first, method in available.items():
                own = [m for m, each in available.items() if each.losses[:1] == method.losses]
                if len(method.losses) == 1:
                    stages = [
                        stage(corpus, architecture, available[m].losses[-1], seed, m != first)
                        for m in own
                    ]
                    key = f"{name}-{architecture}-{first}-{seed}".replace(" ", "_")
                    more = {"decodings": decodings(corpus), "cost": corpus.cost}
                    runs.append(training(key, data, stages, **more))
                    trained.append([(architecture, m) for m in own])
    looks: Dict[Tuple[str, str], List[Any]] = {}
    for keys, found in zip(trained, run(runs)):
        for pair, look in zip(keys, found):
            looks.setdefault(pair, []).append(look)
    return [
        Outcome(
            architecture,
            method,
            decoding,
            available[method].is_new or decoding != BEST_PATH,
            system(f"{architecture}: {method}; {decoding}", looks[architecture, method], decoding),
        )
        for architecture, available in grid.items()
        for method in available
        for decoding in decodings(corpus)
    ]


BEST_HEADER = (
    *("the best on dev", "the best of the papers on dev"),
    *("difference on test", "95 %", "p"),
)


def describe(outcomes: Sequence[Outcome]) -> str:
    """The scores on the test set, each with the best of the papers against the best of the
    others, both chosen on the dev set: for each architecture, then for all, as the papers have
    linear models."""
    groups = [list(own) for _, own in groupby(outcomes, key=lambda one: one.architecture)]
    new, known = (
        [[one.system for one in own if one.is_new == is_new] for own in groups]
        for is_new in (True, False)
    )
    others = [*new[0], *(one.system for own in groups[1:] for one in own)]
    pairs = [*zip(new, known), (others, known[0])]
    return "\n\n".join(
        f"{score_table(outcomes, score)}\n\n"
        f"{markdown_table(BEST_HEADER, [best_row(*pair, score) for pair in pairs])}"
        for score in SCORES
    )


def score_table(outcomes: Sequence[Outcome], score: Score) -> str:
    """A score on the test set: a row for each method, a column for each decoding."""
    groups = groupby(outcomes, key=lambda outcome: (outcome.architecture, outcome.method))
    rows = [[*names, *(outcome.system.spread(score) for outcome in own)] for names, own in groups]
    ways = dict.fromkeys(outcome.decoding for outcome in outcomes)
    return markdown_table(["", score.name, *ways], rows)


def best_row(some: Sequence[System], known: Sequence[System], score: Score) -> List[object]:
    """The best of some against the best of what is known, both chosen on the dev set and judged
    on the test set, each doc with what all seeds made of it."""
    ours, theirs = best_on_dev(some, score), best_on_dev(known, score)
    (((value, low, high, p),),) = compare([ours.added()], theirs.added(), [score])
    digits = score.digits
    interval = f"{low:+.{digits}f} to {high:+.{digits}f}"
    return [ours.name, theirs.name, f"{value:+.{digits}f}", interval, f"{p:.2g}"]


def experiment(run: Runner, quick: bool) -> Figures:
    """A section for each corpus."""
    sections = [f"### {name}\n\n{describe(run_corpus(run, name, quick))}" for name in CORPORA]
    return {
        "epochs": LINEAR_EPOCHS,
        "batches": LINEAR_BATCHES,
        "second": SECOND,
        "seeds": SEEDS,
        "corpora": "\n\n".join(sections),
    }
