"""Combine losses, costs and decodings as none of the papers did, on four corpora, with linear
models, a CNN and a hybrid.

A method is one loss, or two losses where the second starts from the weights of the first. A system
consists of an architecture, a method and a decoding. It is new if it isn't in any of the papers.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby, product
from typing import Any

from spacy.util import load_config

from spacy_costner.cli.tables import markdown_table

from .corpora import COSTS, ROOT
from .runner import Figures, Runner, spec
from .scores import COST, F, Score, System, Trial, best_on_dev, compare, system, train_all
from .training import BEST_PATH, Block, Stage, filled, linear_block

ARCHITECTURES = ("linear", "CNN", "hybrid")
SECOND_EPOCHS = 3
"""With a CNN, the number of epochs with the first loss for each epoch with the second."""

TAG_ROWS = 500
"""The number of rows in the part-of-speech embedding, which isn't in configs/cnn.cfg."""

SPEC = spec("combinations")
LEARN_RATES = SPEC["learn_rates"]
CORPORA = {corpus["title"]: {**SPEC["defaults"], **corpus} for corpus in SPEC["corpora"].values()}
Corpus = Mapping[str, Any]


def blocks(kind: str, corpus: Corpus, architecture: str = "linear") -> dict[str, Block]:
    """Get the blocks of one kind ("losses" or "decodings") from the spec, filled with the cost of a
    corpus and its weight."""
    alpha = corpus["multiplier"]  # the value of the corpus is for linear models only
    if architecture == "linear":
        alpha = corpus["alpha"]
    cost = COSTS[corpus["cost"]]
    settings = {"cost": cost, "multiplier": corpus["multiplier"], "alpha": alpha}
    return {name: filled(block, **settings) for name, block in SPEC[kind].items()}


def methods(architecture: str) -> dict[str, Any]:
    """Get the training methods of an architecture by name: their "losses", in order. Methods with
    Mixed are only used for linear models, to save time."""
    if architecture == "linear":
        return dict(SPEC["methods"])
    return {name: method for name, method in SPEC["methods"].items() if "Mixed" not in name}


def model(corpus: Corpus, architecture: str, share: float = 1.0) -> Block:
    """Make the block of a linear model, the CNN of configs/cnn.cfg or the hybrid of
    configs/hybrid.cfg. The learning rate of sparse features is multiplied by `share`."""
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
            "eps": 1e-8,
            "part_dropout": 1.0,
        }
    return {**block, "tok2vec": tok2vec(corpus["attributes"])}


def tok2vec(attributes: Sequence[str]) -> Block:
    """Get the block of the CNN in configs/cnn.cfg, with embeddings of the given attributes: some of
    its own, or TAG."""
    block = load_config(ROOT / "configs" / "cnn.cfg")["components"]["tok2vec"]["model"]
    embed = block["embed"]
    rows_of_attribute = {**dict(zip(embed["attrs"], embed["rows"])), "TAG": TAG_ROWS}
    settings = {
        "width": block["encode"]["width"],
        "attrs": list(attributes),
        "rows": [rows_of_attribute[name] for name in attributes],
    }
    return {**block, "embed": {**embed, **settings}}


def stage(
    corpus: Corpus,
    architecture: str,
    loss: str,
    seed: int,
    is_second: bool,
    size: Mapping[str, Any],
) -> Stage:
    """Make the stage that trains with a loss. The second loss of a method uses smaller steps, and
    starts from the weights after the first loss, which is stage 0."""
    share = 1.0  # of the learning rate
    n_epochs = corpus["epochs"]
    after = None
    if is_second:
        share = size["second"]
        n_epochs //= SECOND_EPOCHS
        after = 0

    if architecture == "linear":
        fit = "online"
        # The spec has one number for the first loss, and one for the second.
        i = int(is_second)
        settings = {"epochs": [size["epochs"][i]], "batch_size": size["batches"][i]}
    else:
        fit = "neural"
        settings = {
            "epochs": n_epochs,
            "words": corpus["words"],
            "learn_rate": LEARN_RATES["CNN"] * share,
        }

    return {
        "fit": fit,
        "model": model(corpus, architecture, share),
        "loss": blocks("losses", corpus, architecture)[loss],
        "seed": seed,
        "after": after,
        "settings": settings,
    }


def make_trials(
    name: str, size: Mapping[str, Any]
) -> tuple[list[Trial], list[list[tuple[str, str]]]]:
    """Make the trials of a corpus: one for each first loss, architecture and seed. The stages of a
    trial are the training with this loss, and then with each second loss. Also returns the
    architecture and method of each stage of each trial. For the size, see combinations.cfg."""
    corpus = CORPORA[name]
    data: dict[str, Any] = {}
    for part in ("train", "dev", "test"):
        file, begin, end = corpus[part]
        if size["limit"]:
            end = begin + size["limit"]
        data[part] = (file, begin, end)

    trials: list[Trial] = []
    keys_of_trials: list[list[tuple[str, str]]] = []
    for seed, architecture in product(size["seeds"], ARCHITECTURES):
        losses_of: dict[str, list[str]] = {}
        for method, settings in methods(architecture).items():
            losses_of[method] = list(settings["losses"])
        for first_method, losses in losses_of.items():
            if len(losses) > 1:
                continue
            # The methods that start with this loss share its training. The method with only this
            # loss comes first.
            same_start = [method for method in losses_of if losses_of[method][:1] == losses]
            stages: list[Stage] = []
            for method in same_start:
                is_second = method != first_method
                loss = losses_of[method][-1]
                stages.append(stage(corpus, architecture, loss, seed, is_second, size))
            trials.append(Trial(f"{first_method}-{seed}", f"{name}-{architecture}", data, stages))
            keys_of_trials.append([(architecture, method) for method in same_start])
    return trials, keys_of_trials


def run_corpus(run: Runner, name: str, size: Mapping[str, Any]) -> list[System]:
    """Run all methods with all architectures and seeds on a corpus. Returns a system for each
    architecture, method and decoding. "is_new" in its settings says whether it isn't in any of the
    papers."""
    corpus = CORPORA[name]
    trials, keys_of_trials = make_trials(name, size)
    decodings = blocks("decodings", corpus)
    cost = COSTS[corpus["cost"]]
    looks: dict[tuple[str, str], list[Any]] = {}
    looks_of_trials = train_all(run, trials, decodings=decodings, cost=cost)
    for keys, looks_of_trial in zip(keys_of_trials, looks_of_trials):
        for key, look in zip(keys, looks_of_trial):
            looks.setdefault(key, []).append(look)

    systems: list[System] = []
    for architecture in ARCHITECTURES:
        settings_of_methods = methods(architecture)
        for method, decoding in product(settings_of_methods, decodings):
            new_with = settings_of_methods[method].get("new_with")
            is_new_method = new_with in ("any", corpus["cost"])
            systems.append(
                system(
                    f"{architecture}: {method}; {decoding}",
                    looks[architecture, method],
                    decoding,
                    architecture=architecture,
                    method=method,
                    is_new=is_new_method or decoding != BEST_PATH,
                )
            )
    return systems


COLUMNS = {
    "F, best path": (F, BEST_PATH),
    "F, threshold": (F, None),
    "average cost, best path": (COST, BEST_PATH),
    "average cost, least cost": (COST, "least cost"),
}
"""The score and decoding of each column in the score table. None: the threshold of the
architecture."""

THRESHOLDS = {"linear": "threshold 0.3", "CNN": "threshold 0.4", "hybrid": "threshold 0.4"}
"""The threshold decoding shown in the table for each architecture."""

ALWAYS_SHOWN = ("Sequential", "SoftmaxMargin")

BEST_HEADER = ("", "our best", "best of the papers", "difference, 95 %", "p")


def scores_text(systems: Sequence[System], *scores: Score) -> str:
    """Make both tables of a corpus. The first contains the scores on the test set. The second
    compares, for each of `scores`, the best new system with the best system of the papers, both
    chosen on the dev set: first for each architecture, then the best of all other systems with the
    papers' best linear model, because the papers only have linear models."""
    new_and_published: list[tuple[list[System], list[System]]] = []
    published_linear: list[System] = []
    all_but_published_linear: list[System] = []
    for architecture, group in groupby(systems, lambda system: system.settings["architecture"]):
        new: list[System] = []
        published: list[System] = []
        for candidate in group:
            is_new = candidate.settings["is_new"]
            if is_new:
                new.append(candidate)
            else:
                published.append(candidate)
            if architecture == "linear" and not is_new:
                published_linear.append(candidate)
            else:
                all_but_published_linear.append(candidate)
        new_and_published.append((new, published))
    new_and_published.append((all_but_published_linear, published_linear))

    rows: list[list[object]] = []
    for score, (new, published) in product(scores, new_and_published):
        rows.append(best_row(new, published, score))
    return f"{score_table(systems)}\n\n{markdown_table(BEST_HEADER, rows)}"


def score_table(systems: Sequence[System]) -> str:
    """Make the table of mean scores on the test set, with the standard deviation of the first
    score. For each architecture, it contains the methods that are always shown, and the best
    methods of each column."""
    rows: list[list[str]] = []
    for architecture, group in groupby(systems, lambda system: system.settings["architecture"]):
        # The cells of each method, such as "81.23 ± 0.12", and only their means, "81.23". The means
        # are compared as displayed, so methods that show the same mean are tied.
        cells_of: dict[str, list[str]] = {}
        means_of: dict[str, list[str]] = {}
        for method, systems_of_method in groupby(group, lambda system: system.settings["method"]):
            by_decoding = dict(zip(SPEC["decodings"], systems_of_method))
            cells: list[str] = []
            for score, decoding in COLUMNS.values():
                if decoding is None:  # with the threshold that is set for the architecture
                    decoding = THRESHOLDS[architecture]
                cells.append(by_decoding[decoding].spread(score))
            cells_of[method] = cells
            means_of[method] = [cell.split()[0] for cell in cells]

        shown_methods = set(ALWAYS_SHOWN)
        for i, (score, _) in enumerate(COLUMNS.values()):
            # With the sign, higher is better, also for costs.
            values = {method: score.sign * float(means_of[method][i]) for method in means_of}
            best_value = max(values.values())
            shown_methods.update(method for method in values if values[method] == best_value)

        for method, cells in cells_of.items():
            if method in shown_methods:
                first_with_deviation = cells[0]
                rows.append([architecture, method, first_with_deviation, *means_of[method][1:]])
    return markdown_table(["", "loss", *COLUMNS], rows)


def best_row(new: Sequence[System], published: Sequence[System], score: Score) -> list[object]:
    """Compare the best new system with the best of the papers' systems. Both are chosen on the dev
    set and compared on the test set, with each doc's counts summed over seeds."""
    best_new = best_on_dev(new, score)
    best_published = best_on_dev(published, score)
    baseline = best_published.with_seeds_summed()
    ((difference,),) = compare([best_new.with_seeds_summed()], baseline, [score])
    value, low, high, p = difference
    digits = score.digits
    interval = f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
    name_without_decoding = best_published.name.split(";")[0]
    return [score.name, best_new.name, name_without_decoding, interval, f"{p:.2g}"]


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Write a section for each corpus. If the cost comes from a tree, systems are also compared by
    cost."""
    sections = []
    for name, corpus in CORPORA.items():
        scores = (F, COST) if corpus["cost"] == "tree" else (F,)
        systems = run_corpus(run, name, size)
        sections.append(f"### {name}\n\n{scores_text(systems, *scores)}")
    return {"corpora": "\n\n".join(sections)}
