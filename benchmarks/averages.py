"""How averages should weigh the steps of the linear model: F on development data.

    python benchmarks/averages.py train.spacy dev.spacy [docs] [epochs] [seeds]

The steps are those of `costner fit --online` with configs/sparse.cfg. Each row is another average
of the weights after each step: none, the mean of all, and with weights t^p after step t. `docs`: as
many docs of the training corpus, drawn by chance; 0 for all. `epochs`: separated by commas.
"""

import random
import sys
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Dict, List, Optional, Tuple

from spacy.language import Language
from spacy.training import Corpus, Example
from spacy.util import fix_random_seed, load_config, load_model_from_config, registry
from thinc.api import Adam, Optimizer

from spacy_costner.ml import linear_part
from spacy_costner.training.online import Trained, train
from spacy_costner.training.pieces import batch_pieces

CONFIG = Path(__file__).parent.parent / "configs" / "sparse.cfg"
POWERS = (None, 0.0, 1.0, 2.0, 3.0, 4.0, 8.0)
"""None: the weights after the last step."""

Scores = Dict[Tuple[Optional[float], int], List[float]]
"""F of each seed, by power and epochs."""


def make_pipeline(seed: int) -> Language:
    fix_random_seed(seed)
    config = load_config(CONFIG, overrides={"nlp.lang": "xx", "initialize.before_init": None})
    return load_model_from_config(config, auto_fill=True)


def run(paths: Tuple[str, str], n_docs: int, epochs: List[int], seed: int, scores: Scores) -> None:
    """Train with each power from the same batches, in the same order."""
    nlp = make_pipeline(seed)
    ner = nlp.get_pipe("ner")
    examples, dev = (list(Corpus(path)(nlp)) for path in paths)
    examples = random.Random(0).sample(examples, n_docs) if n_docs else examples
    nlp.initialize(lambda: examples)
    batcher = registry.resolve({"batcher": nlp.config["training"]["batcher"]})["batcher"]
    parts = (ner.model, ner.objective, ner.chain_tags)
    batches = batch_pieces(*parts, examples, batcher, random.shuffle)
    features, weights = linear_part(ner.model)
    for power in POWERS:
        random.seed(seed)
        weights.allocate(weights.n_features, weights.n_tags)
        weights.average_power = power or 0.0
        optimizer = Adam(use_averages=power is not None)
        found = {some: scores.setdefault((power, some), []) for some in epochs}
        look = partial(record, nlp=nlp, dev=dev, optimizer=optimizer, found=found)
        settings = {"max_epochs": max(epochs), "dropout": features.dropout, "on_epoch": look}
        train(weights, ner.objective, list(batches), optimizer, **settings)


def record(
    trained: Trained,
    nlp: Language,
    dev: List[Example],
    optimizer: Optimizer,
    found: Dict[int, List[float]],
) -> None:
    """Evaluate after the epochs that are asked for."""
    if trained.n_epochs in found:
        with nlp.use_params(optimizer.averages or {}):
            found[trained.n_epochs].append(100 * nlp.evaluate(dev)["ents_f"])


def main(
    train_path: str, dev_path: str, n_docs: str = "0", epochs: str = "5,8", n_seeds: str = "3"
) -> None:
    chosen, scores = [int(some) for some in epochs.split(",")], {}
    for seed in range(int(n_seeds)):
        run((train_path, dev_path), int(n_docs), chosen, seed, scores)
    print("| average | " + " | ".join(f"{some} epochs" for some in chosen) + " |")
    print("|---" * (len(chosen) + 1) + "|")
    for power in POWERS:
        name = "none" if power is None else "mean" if not power else f"t^{power:g}"
        cells = [
            f"{mean(found):.2f} ± {stdev(found):.2f}" if len(found) > 1 else f"{found[0]:.2f}"
            for found in (scores[power, some] for some in chosen)
        ]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
