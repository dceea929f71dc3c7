"""The linear model with document features, compared with window features only.

A system is a set of features, such as the features with label memory: see linear.cfg. Each system
is trained with several losses and seeds.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

from spacy_costner.cli.tables import markdown_table

from .corpora import COSTS
from .runner import Figures, Runner, spec
from .scores import COST, F, Trial, system, train_all
from .training import Block, Stage, filled

SPEC = spec("linear")
CORPORA = [{**SPEC["defaults"], **corpus} for corpus in SPEC["corpora"].values()]
Corpus = Mapping[str, Any]


def features(corpus: Corpus, name: str) -> Block:
    """Get the features of a system on a corpus."""
    plain = SPEC["plain"]
    of_system = filled(SPEC["systems"][name], unit=corpus["unit"])
    return {
        **plain,
        **corpus["more"],
        **of_system,
        "windows": {**plain["windows"], **corpus["windows"]},
    }


def stage(corpus: Corpus, name: str, loss: str, seed: int, epochs: int) -> Stage:
    """Make the stage that trains a system."""
    return {
        "fit": "online",
        "model": {**SPEC["model"], "features": features(corpus, name)},
        "loss": filled(SPEC["losses"][loss], cost=COSTS[corpus["cost"]]),
        "outside": corpus["outside"],
        "seed": seed,
        "settings": {"epochs": [epochs], "batch_size": corpus["batch_size"]},
    }


def table(run: Runner, corpus: Corpus, size: Mapping[str, Any]) -> str:
    """Make the table of F and cost on a corpus, with a row for each system, loss and decoding."""
    data: dict[str, Any] = {"documents": corpus["documents"]}
    for part in ("train", "dev", "test"):
        file, begin, end = corpus[part]
        if size["limit"]:
            end = (begin or 0) + size["limit"]
        data[part] = (file, begin, end)
    cost = COSTS[corpus["cost"]]
    decodings = {name: filled(block, cost=cost) for name, block in SPEC["decodings"].items()}
    shown_decodings = ["best path"]
    if corpus["cost"] == "tree":
        shown_decodings = list(decodings)

    rows: list[list[object]] = []
    for name, loss in product(corpus["systems"], corpus["losses"]):
        key = f"{corpus['title']}-{loss}".replace(",", "")  # used in file names
        trials: list[Trial] = []
        for seed in size["seeds"]:
            stages = [stage(corpus, name, loss, seed, size["epochs"])]
            trials.append(Trial(name, f"{key}-{seed}", data, stages))
        # A trial has a single look, at its end.
        looks = [look for (look,) in train_all(run, trials, decodings=decodings, cost=cost)]
        for decoding in shown_decodings:
            trained = system(name, looks, decoding)
            dev_f = f"{trained.on('dev', F).mean():.2f}"
            rows.append([name, loss, decoding, dev_f, trained.spread(F), trained.spread(COST)])
    header = ["features", "loss", "decoding", "F on dev", "F on test", "cost on test"]
    return markdown_table(header, rows)


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Write a section for each corpus."""
    sections = [f"### {corpus['title']}\n\n{table(run, corpus, size)}" for corpus in CORPORA]
    return {"corpora": "\n\n".join(sections)}
