"""Each loss against Sequential on the same batch: value and gradient.

    OMP_NUM_THREADS=1 python benchmarks/losses.py [turns]

32 sequences of 13 to 38 tokens, complete gold, what BILUO forbids forbidden, float32. Gold is drawn
from the model, and O raised so that an entity begins at one token in 14, as in CoNLL-2002 Spanish.
"""

import math
import sys
from collections.abc import Callable
from functools import partial

import numpy
from timing import compare

from spacy_costner import chain, losses
from spacy_costner.tags import Tags
from spacy_costner.types import Gold, Potentials

LOSSES: dict[str, Callable] = {
    "Sequential": losses.sequential,
    "SoftmaxMargin": losses.softmax_margin,
    "MaxMargin": losses.max_margin,
    "Perceptron": partial(losses.perceptron, alpha=1.0),
    "Pointwise": losses.pointwise,
    "Mixed": partial(losses.mixed, lam=0.5),
    "Risk": losses.risk,
    "JensenRiskBound": losses.jensen_risk_bound,
    "MIRA": losses.mira,
    "ZScore": losses.zscore,
    "MCE, psi = 1": losses.mce,
    "MCE, psi = inf": partial(losses.mce, psi=math.inf),
    "MCEF, psi = 1": losses.mce_f,
    "MCEF, psi = inf": partial(losses.mce_f, psi=math.inf),
}
RAISE_OF_OUTSIDE = {4: 4.9, 18: 9.8}
"""By the number of labels."""


def random_batch(n_labels: int) -> tuple[Potentials, Gold]:
    """Random scores that favour O, and gold drawn from them."""
    rng = numpy.random.default_rng(0)
    tags = Tags([f"L{i}" for i in range(n_labels)])
    lengths = rng.integers(13, 39, size=32).astype("int32")
    shapes = ((int(lengths.sum()), len(tags)), (len(tags), len(tags)), len(tags), len(tags))
    emissions, transitions, start, end = (
        rng.normal(size=shape).astype("float32") for shape in shapes
    )
    emissions[:, 0] += RAISE_OF_OUTSIDE[n_labels]
    scores = Potentials(emissions, transitions, start, end, lengths)
    potentials = chain.constrain(scores, tags.constraints)
    path = chain.sample_paths(potentials, 1, rng)[0]
    wrong = path[:, None] != numpy.arange(len(tags))
    gold = Gold(
        tags=path,
        cost=wrong.astype("float32"),
        opening=tags.opening,
        continuing=tags.continuing,
    )
    return potentials, gold


def main(turns: int = 15) -> None:
    print("\n## One step of each loss, relative to Sequential\n")
    print("Value and gradient, 32 sequences of mean length 25: median over turns, and quartiles.\n")
    columns = []
    for n_labels in RAISE_OF_OUTSIDE:
        batch = random_batch(n_labels)
        tasks: dict[str, Callable[..., object]] = {
            name: partial(loss, *batch) for name, loss in LOSSES.items()
        }
        columns.append((len(batch[0].start), compare(tasks, "Sequential", turns)))
    print(f"| loss | {' | '.join(f'K = {n_tags}' for n_tags, _ in columns)} |")
    print("|---|---|---|")
    for name in LOSSES:
        timed = [column[name] for _, column in columns]
        cells = [f"{loss.ratio:.2f} ({loss.low:.2f} to {loss.high:.2f})" for loss in timed]
        if name == "Sequential":
            cells = [f"{loss.seconds * 1e6:,.0f} µs" for loss in timed]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
