"""The linear model with its features of documents, against the features of windows only."""

from collections.abc import Mapping
from typing import Any

from spacy_costner.cli.tables import markdown_table

from .corpora import COSTS
from .runner import Figures, Runner, spec
from .scores import COST, F, Trial, system, train_all
from .training import Block, Stage, filled

SPEC = spec("linear")
CORPORA = [{**SPEC["defaults"], **each} for each in SPEC["corpora"].values()]
Corpus = Mapping[str, Any]


def features(corpus: Corpus, name: str) -> Block:
    """The features of a system on a corpus."""
    plain, own = SPEC["plain"], filled(SPEC["systems"][name], unit=corpus["unit"])
    return {
        **plain,
        **corpus["more"],
        **own,
        "windows": {**plain["windows"], **corpus["windows"]},
    }


def stage(corpus: Corpus, name: str, loss: str, seed: int, epochs: int) -> Stage:
    """The training of a system."""
    return {
        "fit": "online",
        "model": {**SPEC["model"], "features": features(corpus, name)},
        "loss": filled(SPEC["losses"][loss], cost=COSTS[corpus["cost"]]),
        "outside": corpus["outside"],
        "seed": seed,
        "settings": {"epochs": [epochs], "batch_size": corpus["batch_size"]},
    }


def table(run: Runner, corpus: Corpus, size: Mapping[str, Any]) -> str:
    """F and the cost of all systems on a corpus: a row for each."""
    data: dict[str, Any] = {part: corpus[part] for part in ("train", "dev", "test")}
    if size["limit"]:
        data = {part: (file, i, (i or 0) + size["limit"]) for part, (file, i, _) in data.items()}
    data["documents"] = corpus["documents"]
    cost = COSTS[corpus["cost"]]
    ways = {name: filled(block, cost=cost) for name, block in SPEC["decodings"].items()}
    rows: list[list[object]] = []
    for name in corpus["systems"]:
        for loss in corpus["losses"]:
            stages = [stage(corpus, name, loss, seed, size["epochs"]) for seed in size["seeds"]]
            key = f"{corpus['title']}-{loss}".replace(",", "")
            trials = [
                Trial(name, f"{key}-{seed}", data, [one])
                for seed, one in zip(size["seeds"], stages)
            ]
            looks = [look for (look,) in train_all(run, trials, decodings=ways, cost=cost)]
            for way in ways if corpus["cost"] == "tree" else ["best path"]:
                found = system(name, looks, way)
                dev = f"{found.on('dev', F).mean():.2f}"
                rows.append([name, loss, way, dev, found.spread(F), found.spread(COST)])
    header = ["features", "loss", "decoding", "F on dev", "F on test", "cost on test"]
    return markdown_table(header, rows)


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """A section for each corpus."""
    sections = [f"### {each['title']}\n\n{table(run, each, size)}" for each in CORPORA]
    return {"corpora": "\n\n".join(sections)}
