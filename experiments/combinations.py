"""Losses, costs and decodings that none of the papers put together, on four corpora, with linear
models, a CNN and a hybrid.

A method is one loss or two, the second of which starts from the weights after the first. A system
is an architecture, a method and a decoding; it is new if none of the papers has it.
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
"""With a CNN, the number of epochs of the first loss for one epoch of the second."""

TAG_ROWS = 500
"""Rows of the embedding of parts of speech, which configs/cnn.cfg doesn't have."""

SPEC = spec("combinations")
LEARN_RATES = SPEC["learn_rates"]
CORPORA = {corpus["title"]: {**SPEC["defaults"], **corpus} for corpus in SPEC["corpora"].values()}
Corpus = Mapping[str, Any]


def blocks(kind: str, corpus: Corpus, architecture: str = "linear") -> dict[str, Block]:
    """The blocks of the spec of a kind, "losses" or "decodings", with the cost of a corpus and its
    weight."""
    alpha = corpus["multiplier"]  # the value of the corpus is for linear models only
    if architecture == "linear":
        alpha = corpus["alpha"]
    cost = COSTS[corpus["cost"]]
    settings = {"cost": cost, "multiplier": corpus["multiplier"], "alpha": alpha}
    return {name: filled(block, **settings) for name, block in SPEC[kind].items()}


def methods(architecture: str) -> dict[str, Any]:
    """The methods of training, by name: their "losses", one after another. Methods with Mixed are
    for linear models only, to save time."""
    if architecture == "linear":
        return dict(SPEC["methods"])
    return {name: method for name, method in SPEC["methods"].items() if "Mixed" not in name}


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
            "eps": 1e-8,
            "part_dropout": 1.0,
        }
    return {**block, "tok2vec": tok2vec(corpus["attributes"])}


def tok2vec(attributes: Sequence[str]) -> Block:
    """The block of the CNN of configs/cnn.cfg, with embeddings of some of the same attributes of
    tokens, or of TAG."""
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
    """The training with a loss. The second loss of a method has shorter steps, and starts from the
    weights after the first one, which is stage 0."""
    share = 1.0  # of the learning rate
    n_epochs = corpus["epochs"]
    after = None
    if is_second:
        share = size["second"]
        n_epochs //= SECOND_EPOCHS
        after = 0

    if architecture == "linear":
        fit = "online"
        # The spec has a number for the first loss, and one for the second.
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
    architecture and the method of each stage of each trial. For the size see combinations.cfg."""
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
            # The methods that begin with this loss share its training. It is the first of them.
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
    architecture, method and decoding. "is_new" in its settings is whether none of the papers has
    it."""
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
"""Of the table of scores: score and decoding, None for the threshold of the architecture."""

THRESHOLDS = {"linear": "threshold 0.3", "CNN": "threshold 0.4", "hybrid": "threshold 0.4"}
"""The decoding with a threshold that the table shows for each architecture."""

ALWAYS_SHOWN = ("Sequential", "SoftmaxMargin")

BEST_HEADER = ("", "our best", "best of the papers", "difference, 95 %", "p")


def scores_text(systems: Sequence[System], *scores: Score) -> str:
    """The scores on the test set; and by each of `scores` the best new system compared with the
    best system of the papers, both chosen on the dev set: for each architecture, and then the best
    of all other architectures with the papers' best linear model. The papers only have linear
    models."""
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
    """The mean scores on the test set, with the deviation of the first: for each architecture, the
    methods that are always shown, and the methods that are the best in a column."""
    rows: list[list[str]] = []
    for architecture, group in groupby(systems, lambda system: system.settings["architecture"]):
        # The cells of each method, such as "81.23 ± 0.12", and their means alone, "81.23": as they
        # are shown, so that methods with the same mean are both the best.
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
            # Higher is better, also of costs.
            values = {method: score.sign * float(means_of[method][i]) for method in means_of}
            best_value = max(values.values())
            shown_methods.update(method for method in values if values[method] == best_value)

        for method, cells in cells_of.items():
            if method in shown_methods:
                first_with_deviation = cells[0]
                rows.append([architecture, method, first_with_deviation, *means_of[method][1:]])
    return markdown_table(["", "loss", *COLUMNS], rows)


def best_row(new: Sequence[System], published: Sequence[System], score: Score) -> list[object]:
    """The best of the new systems compared with the best of the papers' systems. Both are chosen on
    the dev set and compared on the test set, with the counts of all seeds of a doc."""
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
    """A section for each corpus. If the cost is the cost of a tree, it also decides which system is
    the best."""
    sections = []
    for name, corpus in CORPORA.items():
        scores = (F, COST) if corpus["cost"] == "tree" else (F,)
        systems = run_corpus(run, name, size)
        sections.append(f"### {name}\n\n{scores_text(systems, *scores)}")
    return {"corpora": "\n\n".join(sections)}
