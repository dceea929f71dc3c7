"""What a Tok2Vec adds to the linear part of a hybrid model: F on development data.

    python benchmarks/hybrid.py train.spacy dev.spacy [seeds] [steps] [frequency] [docs] [a.b=c ...]

For each seed, F of the linear part that `configs/hybrid.cfg` trains at initialization, and of the
whole model after each `frequency` steps of 1,000 words; and CPU seconds of both, evaluation apart.
`docs`: the first ones of the training corpus; 0 for all. Further arguments are settings of the
config, such as components.ner.outside=single.
"""

import json
import random
import sys
from pathlib import Path
from time import process_time
from typing import Any, Dict, Iterator, List

from spacy.language import Language
from spacy.training import Corpus, Example
from spacy.training.batchers import minibatch_by_words
from spacy.util import fix_random_seed, load_config, load_model_from_config, registry

CONFIG = Path(__file__).parent.parent / "configs" / "hybrid.cfg"
SETTINGS = {"nlp.lang": "xx", "initialize.before_init": None}


def make_pipeline(seed: int, settings: Dict[str, Any]) -> Language:
    fix_random_seed(seed)
    config = load_config(CONFIG, overrides={**SETTINGS, **settings})
    return load_model_from_config(config, auto_fill=True)


def run(
    paths: List[str], seed: int, n_steps: int, frequency: int, n_docs: int, settings: Dict[str, Any]
) -> None:
    """Train with a seed, and print each evaluation."""
    nlp = make_pipeline(seed, {"training.max_steps": n_steps, **settings})
    examples, dev = (list(Corpus(path)(nlp)) for path in paths)
    examples = examples[:n_docs] if n_docs else examples
    begin = process_time()
    training = registry.resolve(nlp.config.interpolate()["training"])
    optimizer = nlp.initialize(lambda: examples, sgd=training["optimizer"])
    seconds, of_linear = 0.0, process_time() - begin
    scores = [100 * nlp.evaluate(dev)["ents_f"]]
    print(f"seed {seed}: linear part {scores[0]:.2f}, {of_linear:.0f} s", flush=True)
    begin = process_time()
    for step, batch in enumerate(batches(examples), 1):
        nlp.update(batch, sgd=optimizer, drop=training["dropout"])
        optimizer.step_schedules()
        if step % frequency == 0:
            seconds += process_time() - begin
            with nlp.use_params(optimizer.averages or {}):
                scores.append(100 * nlp.evaluate(dev)["ents_f"])
            print(f"  step {step}: {scores[-1]:.2f}, {seconds:.0f} s", flush=True)
            begin = process_time()
        if step == n_steps:
            break
    low, last = min(scores) - scores[0], scores[-1] - scores[0]
    print(f"seed {seed}: lowest {low:+.2f}, last {last:+.2f}", flush=True)


def batches(examples: List[Example]) -> Iterator[List[Example]]:
    """Batches of about 1,000 words, without end."""
    order = list(examples)
    while True:
        random.shuffle(order)
        yield from minibatch_by_words(order, size=1000)


def main(
    train: str,
    dev: str,
    seeds: str = "0,1,2",
    steps: str = "1000",
    frequency: str = "200",
    docs: str = "0",
    *settings: str,
) -> None:
    changed = {}
    for setting in settings:
        path, _, text = setting.partition("=")
        try:
            changed[path] = json.loads(text)
        except json.JSONDecodeError:
            changed[path] = text
    for seed in seeds.split(","):
        run([train, dev], int(seed), int(steps), int(frequency), int(docs), changed)


if __name__ == "__main__":
    main(*sys.argv[1:])
