"""A CRF against spaCy's `ner` on one pretrained transformer: F after some steps, with one learning
rate and with a higher one for what stands on the transformer.

    python benchmarks/learning_curve.py train.spacy dev.spacy TRANSFORMER [component:factor ...]

`configs/transformer.cfg` with batches of 500 words, and the learning rate rising for a tenth of the
steps and falling to 0 at the last one. The transformer is the name or the folder of one. All runs
have the same batches. `ner` has no learn_rate_factor: here the same function scales its steps, of
all weights that don't belong to the transformer. Seconds are those of the processor in training.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import random  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, Dict, Iterator, List  # noqa: E402

import torch  # noqa: E402
from spacy.language import Language  # noqa: E402
from spacy.training import Example  # noqa: E402
from spacy.training.initialize import init_nlp  # noqa: E402
from spacy.util import fix_random_seed, load_config, registry  # noqa: E402
from thinc.api import Config, Model, Optimizer  # noqa: E402

from spacy_costner.metrics.table import markdown_table  # noqa: E402

CONFIG = Path(__file__).parent.parent / "configs" / "transformer.cfg"
STEPS, EVERY, SEED, N_DEV = 320, 80, 0, 60
RUNS = ["costner:1", "ner:1", "costner:20", "ner:20"]
NER = {
    "@architectures": "spacy.TransitionBasedParser.v2",
    "state_type": "ner",
    "extra_state_tokens": False,
    "hidden_width": 64,
    "maxout_pieces": 2,
    "use_upper": False,
}


def make_config(component: str, factor: float, train: str, dev: str, name: str) -> Config:
    settings: Dict[str, Any] = {
        "paths.train": train,
        "paths.dev": dev,
        "components.transformer.model.name": name,
        "system.seed": SEED,
        "system.gpu_allocator": None,
        "training.max_steps": STEPS,
        "training.batcher.size": 500,
        "training.optimizer.learn_rate.warmup_steps": STEPS // 10,
        "training.optimizer.learn_rate.total_steps": STEPS,
    }
    config = load_config(CONFIG, overrides=settings)
    ner = config["components"]["ner"]
    if component == "costner":
        ner["learn_rate_factor"] = factor
    else:
        model = {**NER, "tok2vec": ner["model"]["tok2vec"]}
        config["components"]["ner"] = {"factory": "ner", "model": model}
    return config


def finish_update(model: Model, optimizer: Optimizer, factor: float) -> None:
    """As `spacy_costner.pipeline.learn_rate.finish_update`, for spaCy's `ner` too."""
    for node in model.walk():
        for name in node.param_names:
            if node.has_grad(name):
                weights, gradient = node.get_param(name), node.get_grad(name)
                key = (node.id, name)
                node.set_param(name, optimizer(key, weights, gradient, lr_scale=factor)[0])


def batches(nlp: Language, settings: Any, batcher: Any) -> Iterator[List[Example]]:
    examples = list(settings["train"](nlp))
    while True:
        random.shuffle(examples)
        yield from batcher(examples)


def curve(component: str, factor: float, *paths: str) -> Iterator[List[object]]:
    """Rows of the table: F and seconds after some steps."""
    fix_random_seed(SEED)
    nlp = init_nlp(make_config(component, factor, *paths))
    config = nlp.config.interpolate()
    corpora = registry.resolve(config["corpora"])
    optimizer = registry.resolve({"optimizer": config["training"]["optimizer"]})["optimizer"]
    batcher = registry.resolve({"batcher": config["training"]["batcher"]})["batcher"]
    source, dev = batches(nlp, corpora, batcher), list(corpora["dev"](nlp))[:N_DEV]
    seconds = 0.0
    for step in range(1, STEPS + 1):
        batch, began = next(source), time.process_time()
        nlp.update(batch, drop=config["training"]["dropout"], sgd=False)
        for name, pipe in nlp.pipeline:
            if (name, component) == ("ner", "ner"):
                finish_update(pipe.model, optimizer, factor)
            else:
                pipe.finish_update(optimizer)
        optimizer.step_schedules()
        seconds += time.process_time() - began
        if step % EVERY == 0:
            f = nlp.evaluate(dev)["ents_f"] or 0.0
            row = [component, f"{factor:g}", step, f"{100 * f:.1f}", f"{seconds:.0f}"]
            print(*row, file=sys.stderr, flush=True)
            yield row


def main(train: str, dev: str, transformer: str, *runs: str) -> None:
    torch.set_num_threads(1)
    rows: List[List[object]] = []
    for run in runs or RUNS:
        component, factor = run.split(":")
        rows += curve(component, float(factor), train, dev, transformer)
    print(markdown_table(["component", "factor", "steps", "F", "CPU seconds"], rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
