"""Losses, costs and decodings that none of the papers put together, on four corpora, with linear
models, a CNN and a hybrid."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from spacy.util import load_config

from spacy_costner.cli.tables import markdown_table

from .corpora import COSTS, ROOT
from .runner import Figures, Runner, spec
from .scores import COST, F, Score, System, Trial, best_on_dev, compare, system, train_all
from .training import BEST_PATH, Block, Stage, filled, linear_block

ARCHITECTURES = ("linear", "CNN", "hybrid")
SECOND_EPOCHS = 3
"""One epoch of the second loss for so many of the first one, with a CNN."""

TAG_ROWS = 500
"""Rows of the embedding of parts of speech, which configs/cnn.cfg hasn't."""

SPEC = spec("combinations")
LEARN_RATES = SPEC["learn_rates"]
CORPORA = {each["title"]: {**SPEC["defaults"], **each} for each in SPEC["corpora"].values()}
Corpus = Mapping[str, Any]


def blocks(kind: str, corpus: Corpus, architecture: str = "linear") -> dict[str, Block]:
    """The "losses" or the "decodings", with the cost of a corpus and its weight."""
    alpha = corpus["alpha" if architecture == "linear" else "multiplier"]
    own = {"cost": COSTS[corpus["cost"]], "multiplier": corpus["multiplier"], "alpha": alpha}
    return {name: filled(block, **own) for name, block in SPEC[kind].items()}


def methods(architecture: str) -> dict[str, Any]:
    """The ways of training. Those with Mixed are for linear models only, to save time."""
    return {
        name: method
        for name, method in SPEC["methods"].items()
        if architecture == "linear" or "Mixed" not in name
    }


def model(corpus: Corpus, architecture: str, share: float = 1.0) -> Block:
    """A linear model, the CNN of configs/cnn.cfg or the hybrid of configs/hybrid.cfg, with a share
    of the learning rate of its sparse features."""
    features = {**SPEC["features"], **corpus["more"]}
    features["windows"] = {**features["windows"], **corpus["windows"]}
    if architecture == "linear":
        return linear_block(features, learn_rate=LEARN_RATES["linear"] * share)
    block: Block = {"@architectures": "spacy_costner.LinearChainCRF.v1"}
    if architecture == "hybrid":
        block = {
            "@architectures": "spacy_costner.HybridCRF.v1",
            "average_power": 0.0,
            "features": features,
            "learn_rate": LEARN_RATES["hybrid"] * share,
            "part_dropout": 1.0,
        }
    return {**block, "tok2vec": tok2vec(corpus["attributes"])}


def tok2vec(attributes: Sequence[str]) -> Block:
    """The CNN of configs/cnn.cfg, which sees some of the same attributes of tokens, and TAG."""
    block = load_config(ROOT / "configs" / "cnn.cfg")["components"]["tok2vec"]["model"]
    rows = {**dict(zip(block["embed"]["attrs"], block["embed"]["rows"])), "TAG": TAG_ROWS}
    sizes = {"attrs": list(attributes), "rows": [rows[name] for name in attributes]}
    return {**block, "embed": {**block["embed"], "width": block["encode"]["width"], **sizes}}


def stage(
    corpus: Corpus,
    architecture: str,
    loss: str,
    seed: int,
    is_second: bool,
    size: Mapping[str, Any],
) -> Stage:
    """The training with a loss. The second one has shorter steps, from where the first one came
    to."""
    share = size["second"] if is_second else 1.0
    settings: dict[str, Any] = {"epochs": corpus["epochs"] // (SECOND_EPOCHS if is_second else 1)}
    settings |= {"words": corpus["words"], "learn_rate": LEARN_RATES["CNN"] * share}
    if architecture == "linear":
        epochs, batch_size = (size[each][is_second] for each in ("epochs", "batches"))
        settings = {"epochs": [epochs], "batch_size": batch_size}
    return {
        "fit": "online" if architecture == "linear" else "neural",
        "model": model(corpus, architecture, share),
        "loss": blocks("losses", corpus, architecture)[loss],
        "seed": seed,
        "after": 0 if is_second else None,
        "settings": settings,
    }


def run_corpus(run: Runner, name: str, size: Mapping[str, Any]) -> list[System]:
    """Run all methods with all architectures and seeds: a loss in each run, with those that come
    second to it. A system for each decoding; "is_new" says whether none of the papers has it."""
    corpus, limit = CORPORA[name], size["limit"]
    data = {part: corpus[part] for part in ("train", "dev", "test")}
    if limit:
        data = {part: (file, begin, begin + limit) for part, (file, begin, _) in data.items()}
    trials: list[Trial] = []
    trained: list[list[tuple[str, str]]] = []
    for seed in size["seeds"]:
        for architecture in ARCHITECTURES:
            grid = {m: each["losses"] for m, each in methods(architecture).items()}
            for first in (m for m, each in grid.items() if len(each) == 1):
                own = [m for m, each in grid.items() if each[:1] == grid[first]]
                stages = [
                    stage(corpus, architecture, grid[m][-1], seed, m != first, size) for m in own
                ]
                trials.append(Trial(f"{first}-{seed}", f"{name}-{architecture}", data, stages))
                trained.append([(architecture, m) for m in own])
    ways, cost = blocks("decodings", corpus), COSTS[corpus["cost"]]
    looks: dict[tuple[str, str], list[Any]] = {}
    for keys, found in zip(trained, train_all(run, trials, decodings=ways, cost=cost)):
        for pair, look in zip(keys, found):
            looks.setdefault(pair, []).append(look)
    return [
        system(
            f"{architecture}: {method}; {decoding}",
            looks[architecture, method],
            decoding,
            architecture=architecture,
            method=method,
            is_new=each.get("new_with") in ("any", corpus["cost"]) or decoding != BEST_PATH,
        )
        for architecture in ARCHITECTURES
        for method, each in methods(architecture).items()
        for decoding in ways
    ]


COLUMNS = {
    "F, best path": (F, BEST_PATH),
    "F, threshold": (F, None),
    "average cost, best path": (COST, BEST_PATH),
    "average cost, least cost": (COST, "least cost"),
}
"""Of the table of scores: score and decoding, None for the threshold of the architecture."""

THRESHOLDS = {"linear": "threshold 0.3", "CNN": "threshold 0.4", "hybrid": "threshold 0.4"}
ALWAYS_SHOWN = ("Sequential", "SoftmaxMargin")

BEST_HEADER = ("", "our best", "best of the papers", "difference, 95 %", "p")


def describe(systems: Sequence[System], *scores: Score) -> str:
    """The scores on the test set, and the best of the papers against the best of the others by some
    of them, both chosen on the dev set: for each architecture, then for all, as the papers have
    linear models."""
    groups = [list(own) for _, own in groupby(systems, lambda one: one.settings["architecture"])]
    new, known = (
        [[one for one in own if one.settings["is_new"] == is_new] for own in groups]
        for is_new in (True, False)
    )
    others = [*new[0], *(one for own in groups[1:] for one in own)]
    pairs = [*zip(new, known), (others, known[0])]
    best = [best_row(*pair, score) for score in scores for pair in pairs]
    return f"{score_table(systems)}\n\n{markdown_table(BEST_HEADER, best)}"


def score_table(systems: Sequence[System]) -> str:
    """The mean scores on the test set, and the deviation of the first: for each architecture, the
    methods that are always shown and those that are best in a column."""
    rows: list[list[str]] = []
    for architecture, own in groupby(systems, lambda one: one.settings["architecture"]):
        found: dict[str, list[str]] = {}
        for method, some in groupby(own, lambda one: one.settings["method"]):
            by_decoding = dict(zip(SPEC["decodings"], some))
            found[method] = [
                by_decoding[decoding or THRESHOLDS[architecture]].spread(score)
                for score, decoding in COLUMNS.values()
            ]
        means = {name: [float(cell.split()[0]) for cell in found[name]] for name in found}
        best = [
            max(column) if score.sign > 0 else min(column)
            for column, (score, _) in zip(zip(*means.values()), COLUMNS.values())
        ]
        for method, (first, *others) in found.items():
            if method in ALWAYS_SHOWN or any(map(float.__eq__, means[method], best)):
                rows.append([architecture, method, first, *(cell.split()[0] for cell in others)])
    return markdown_table(["", "loss", *COLUMNS], rows)


def best_row(some: Sequence[System], known: Sequence[System], score: Score) -> list[object]:
    """The best of some against the best of what is known, both chosen on the dev set and judged
    on the test set, each doc with what all seeds made of it."""
    ours, theirs = best_on_dev(some, score), best_on_dev(known, score)
    (((value, low, high, p),),) = compare(
        [ours.with_seeds_summed()], theirs.with_seeds_summed(), [score]
    )
    digits = score.digits
    interval = f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
    return [score.name, ours.name, theirs.name.split(";")[0], interval, f"{p:.2g}"]


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """A section for each corpus. The cost decides what is best where it is that of a tree."""
    sections = []
    for name, corpus in CORPORA.items():
        scores = (F, COST) if corpus["cost"] == "tree" else (F,)
        sections.append(f"### {name}\n\n{describe(run_corpus(run, name, size), *scores)}")
    return {"corpora": "\n\n".join(sections)}
