"""Batch fit against CRFsuite: the same features, the same objective, L-BFGS, one thread.

    python benchmarks/fit_speed.py [docs] [c2]

The first 2,000 sentences of CoNLL-2002 Spanish, L2 of 0.1, unless told otherwise.
The objectives are made equal: all features with all labels and all transitions on both sides; as
CRFsuite knows no forbidden transitions, ours are allowed here; as it has no weights of the first
and the last label, it gets a feature for the first and the last token. Both stop when ten
iterations gain less than 1e-5. Seconds are those of the processor, from features to weights;
features are found beforehand, and CRFsuite's are handed to it before the clock starts.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import List, NamedTuple, Tuple  # noqa: E402

import pycrfsuite  # noqa: E402
import spacy  # noqa: E402
from spacy.training import Corpus, Example  # noqa: E402
from spacy.util import load_config  # noqa: E402

from spacy_costner.training.lbfgs import TotalLoss, minimise  # noqa: E402
from spacy_costner.types import Constraints  # noqa: E402

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "configs" / "sparse.cfg"
TRAIN = ROOT / "corpus" / "conll2002_es" / "train" / "esp.spacy"


class Run(NamedTuple):
    """What an L-BFGS came to."""

    objective: float
    iterations: int
    seconds: float


def read(n_docs: int) -> Tuple[TotalLoss, List[Example], float]:
    """Make a component and its objective, with all transitions allowed."""
    nlp = spacy.blank("xx")
    model = load_config(CONFIG)["components"]["ner"]["model"]
    ner = nlp.add_pipe("cost_sensitive_ner", config={"model": model, "scheme": "IOB2"})
    examples = list(Corpus(TRAIN, limit=n_docs)(nlp))
    nlp.initialize(lambda: examples)
    began = time.process_time()
    total = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=0.0)
    seconds = time.process_time() - began
    total.batches = [
        (rows, targets._replace(constraints=Constraints())) for rows, targets in total.batches
    ]
    return total, examples, seconds


def ours(total: TotalLoss, c2: float) -> Run:
    total.c2 = c2
    began = time.process_time()
    found = minimise(total, 0 * total.read_weights())
    total.write_weights(found.vector)
    return Run(found.value, found.n_iterations, time.process_time() - began)


def crfsuite(total: TotalLoss, examples: List[Example], c2: float) -> Run:
    trainer = pycrfsuite.Trainer(verbose=False)
    names = total.tags.collapsed.names
    for batch, eg in _docs(total, examples):
        seen = total.features.find([eg.predicted]).rows
        words = [[str(row) for row in slots[slots >= 0]] for slots in seen]
        if words:
            words[0].append("first")
            words[-1].append("last")
            trainer.append(words, [names[tag] for tag in batch])
    trainer.select("lbfgs", "crf1d")
    trainer.set_params(
        {
            "c1": 0.0,
            "c2": c2,
            "feature.possible_states": True,
            "feature.possible_transitions": True,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        trainer.train(str(Path(folder) / "model"))
        seconds = time.process_time() - began
    last = trainer.logparser.last_iteration
    return Run(last["loss"], last["num"], seconds)


def _docs(total: TotalLoss, examples: List[Example]):
    paths = [tag for _, targets in total.batches for tag in targets.gold.tags.tolist()]
    start = 0
    for eg in examples:
        yield paths[start : start + len(eg.predicted)], eg
        start += len(eg.predicted)


def main() -> None:
    given = sys.argv[1:]
    total, examples, reading = read(int(given[0]) if given else 2_000)
    c2 = float(given[1]) if len(given) > 1 else 0.1
    n_tokens = sum(len(eg.predicted) for eg in examples)
    print("\n## Batch fit against CRFsuite\n")
    print(
        f"{len(examples)} docs, {n_tokens} tokens, {total.weights.n_tags} tags, "
        f"{total.weights.n_features} features, {len(total.merged.roots)} after merging "
        f"({reading:.1f} s to find, merge and read gold), c2 = {c2}\n"
    )
    print("| | objective | iterations | CPU seconds |\n|---|---|---|---|")
    runs = {"spacy_costner": ours(total, c2), "CRFsuite": crfsuite(total, examples, c2)}
    for name, run in runs.items():
        print(f"| {name} | {run.objective:.4f} | {run.iterations} | {run.seconds:.1f} |")
    mine, theirs = runs.values()
    print(
        f"\nObjectives differ by {abs(mine.objective / theirs.objective - 1):.1e}; "
        f"ours takes {mine.seconds / theirs.seconds:.2f} of the time."
    )


if __name__ == "__main__":
    main()
