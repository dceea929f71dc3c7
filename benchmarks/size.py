"""Measure the size of a linear model, with all weights and pruned: see "Size" in docs/linear.md.

    OMP_NUM_THREADS=1 python benchmarks/size.py [seeds [models ...]]

The corpora are Spanish, chunks and GENIA of experiments/linear.cfg, with a doc per article. Models
are trained by `costner fit`, with and without `keep_all`. Bytes, seconds and memory are for the
first seed. F and the calibration error (ECE), on development data and without calibration, are
means over the seeds, and so is F after training the saved model for ten more epochs on the same
docs by `fit`.

A pipeline is loaded in a separate process, which has already loaded the pipeline without its
component. The results are the growth of the process, and the lowest CPU seconds of several
repetitions.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import spacy
import srsly
from few import NAMES, read, save
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.metrics.calibration import calibration_error
from spacy_costner.readers import examples_to_measure
from spacy_costner.workflows.calibration.temperature import predict_best
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.corpora import find_corpora
from spacy_costner.workflows.evaluation.predictions import predict_dev
from spacy_costner.workflows.fitting.fitted import Fitted
from spacy_costner.workflows.fitting.fitting import fit

ONE_PASS = None
TWO_PASSES = {"LOWER": 1}
N_MORE_EPOCHS = 10
N_LOADS = 10
KB = 1e3
MB = 1e6


class Model(NamedTuple):
    """A corpus, and the features of its model: one pass or two."""

    corpus: str
    document: dict[str, int] | None  # the feature setting: `ONE_PASS` or `TWO_PASSES`


MODELS = {
    "Spanish": Model("spanish", ONE_PASS),
    "Spanish, two passes": Model("spanish", TWO_PASSES),
    "chunks": Model("chunks", ONE_PASS),
    "chunks, two passes": Model("chunks", TWO_PASSES),
    "GENIA": Model("genia", ONE_PASS),
}

PARTS = (
    "weights",
    "values",
    "label memory",
    "hashes of training text",
    "strings of the vocab",
    "vectors",
    "tokenizer, config and rest",
)


class Scores(NamedTuple):
    """F in percent, the calibration error, and F after more epochs."""

    f: float
    ece: float
    f_later: float


class Cost(NamedTuple):
    """The costs of a saved pipeline."""

    n_bytes: dict[str, int]  # by part
    seconds: float  # of CPU, to load it
    memory: float  # bytes


# Training


def fit_model(model: Model, folder: Path, seed: int, *, keep_all: bool) -> Fitted:
    """Fit a model on the corpora in a folder."""
    text = init(
        train_path=folder / "train.spacy", dev_path=folder / "dev.spacy", lang=NAMES[model.corpus]
    )
    config = Config().from_str(text, overrides={"system.seed": seed}, interpolate=False)
    block = config["components"]["ner"]["model"]
    block["keep_all"] = keep_all
    block["features"]["document"] = model.document
    return fit(config, folder / f"seed{seed}_{keep_all}")


def train_on(path: Path, output: Path) -> float:
    """Train a saved model for more epochs. Returns its F."""
    config = load_config(path / "config.cfg")
    config["components"]["ner"] = {"source": str(path)}
    config["training"]["max_epochs"] = N_MORE_EPOCHS
    return 100 * fit(config, output).scores["ents_f"]


def score(fitted: Fitted) -> Scores:
    """Compute the scores of a pipeline, now and after more epochs."""
    _, dev_corpus = find_corpora(fitted.nlp)
    assert dev_corpus is not None
    (ner,) = fitted.ners
    dev = predict_dev(fitted.nlp, ner, examples_to_measure(fitted.nlp, dev_corpus))
    answers = predict_best(dev)
    probs = dev.posterior.entity_probs(answers.entities)
    return Scores(
        f=100 * fitted.scores["ents_f"],
        ece=calibration_error(probs, answers.is_correct),
        f_later=train_on(fitted.path, fitted.path.parent / "later"),
    )


# Costs


def measure_parts(path: Path) -> dict[str, int]:
    """Measure the bytes of each part of a saved pipeline."""
    sizes = dict.fromkeys(PARTS, 0)
    model = srsly.msgpack_loads((path / "ner" / "model").read_bytes())
    for shim in chain.from_iterable(model["shims"]):
        saved = srsly.msgpack_loads(shim)
        if "columns" in saved:  # the features; other shims contain the weights of a pass
            sizes["label memory"] += len(srsly.msgpack_dumps(saved.pop("memory")))
            sizes["values"] += len(srsly.msgpack_dumps(saved))
        else:
            sizes["weights"] += len(shim)

    cfg = srsly.read_json(path / "ner" / "cfg")
    sizes["hashes of training text"] = len(cfg["trained_on"])
    vocab = path / "vocab"
    sizes["strings of the vocab"] = (vocab / "strings.json").stat().st_size
    sizes["vectors"] = sum((vocab / name).stat().st_size for name in ("vectors", "key2row"))
    total = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    sizes["tokenizer, config and rest"] = total - sum(sizes.values())
    return sizes


def memory_now() -> int:
    """Get the memory of this process in bytes, on Linux."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    _, after_name = status.split("VmRSS:")
    kilobytes = int(after_name.split()[0])
    return 1024 * kilobytes


def measure_load(path: str) -> dict[str, float]:
    """Load a pipeline several times. Call it in a new process. Returns the lowest CPU "seconds",
    and the growth of the process's "memory" in bytes."""
    lang = load_config(Path(path) / "config.cfg")["nlp"]["lang"]
    blank = spacy.blank(lang)
    blank("All that is loaded once is there now.")
    spacy.load(path, exclude=["ner"])
    bytes_before = memory_now()
    nlp = spacy.load(path)
    memory = memory_now() - bytes_before
    del nlp

    seconds: list[float] = []
    for _ in range(N_LOADS):
        began = time.process_time()
        spacy.load(path)
        seconds.append(time.process_time() - began)
    return {"seconds": min(seconds), "memory": memory}


def measure_cost(path: Path) -> Cost:
    """Measure the costs of a saved pipeline."""
    command = [sys.executable, "-W", "ignore", __file__, "--load", str(path)]
    measured = json.loads(subprocess.check_output(command))
    return Cost(measure_parts(path), measured["seconds"], measured["memory"])


# Tables


def measure(model: Model, n_seeds: int, *, keep_all: bool) -> tuple[Cost, Scores]:
    """Measure the cost of a model, and the means of its scores."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for part in ("train", "dev"):
            save(read(model.corpus, part), folder / f"{part}.spacy")
        scores: list[Scores] = []
        for seed in range(n_seeds):
            fitted = fit_model(model, folder, seed, keep_all=keep_all)
            if seed == 0:
                cost = measure_cost(fitted.path)
            scores.append(score(fitted))
    return cost, Scores(*map(mean, zip(*scores)))


def make_rows(cost: Cost, scores: Scores) -> dict[str, str]:
    """Make the cells of a model, by row heading."""
    rows = {f"{part}, kB": f"{n_bytes / KB:,.0f}" for part, n_bytes in cost.n_bytes.items()}
    rows["all, kB"] = f"{sum(cost.n_bytes.values()) / KB:,.0f}"
    rows["seconds to load"] = f"{cost.seconds:.3f}"
    rows["memory, MB"] = f"{cost.memory / MB:.0f}"
    rows["F"] = f"{scores.f:.2f}"
    rows["ECE"] = f"{scores.ece:.4f}"
    rows[f"F after {N_MORE_EPOCHS} more epochs"] = f"{scores.f_later:.2f}"
    return rows


def main(n_seeds: int, titles: Sequence[str]) -> None:
    """Print the table, with two columns for each model: with all weights, and pruned."""
    columns: list[dict[str, Any]] = []
    for title in titles:
        before = make_rows(*measure(MODELS[title], n_seeds, keep_all=True))
        after = make_rows(*measure(MODELS[title], n_seeds, keep_all=False))
        columns.append({row: f"{before[row]} -> {after[row]}" for row in before})
        print(f"{title}: {columns[-1]}", file=sys.stderr, flush=True)
    print(f"| | {' | '.join(titles)} |\n|---|{'---|' * len(columns)}")
    for row in columns[0]:
        print(f"| {row} | {' | '.join(column[row] for column in columns)} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        print(json.dumps(measure_load(sys.argv[2])))
    else:
        n_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
        main(n_seeds, sys.argv[2:] or [*MODELS])
