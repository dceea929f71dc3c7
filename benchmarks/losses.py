"""Compare each loss with Sequential on the same batch: value and gradient.

    OMP_NUM_THREADS=1 python benchmarks/losses.py [turns]

The batch contains 32 sequences of 13 to 38 tokens with complete gold annotation, BILUO constraints
and float32 scores. Gold is sampled from the model, and the scores of O are raised so that an entity
starts at one token in 14, as in CoNLL-2002 Spanish.
"""

import math
import sys
from collections.abc import Callable
from functools import partial

import numpy
from timing import Comparison, compare

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
"""The number added to the scores of O, by the number of labels."""


def random_batch(n_labels: int) -> tuple[Potentials, Gold]:
    """Make random scores that favour O, and gold sampled from them."""
    rng = numpy.random.default_rng(0)
    tags = Tags([f"L{i}" for i in range(n_labels)])
    lengths = rng.integers(13, 39, size=32).astype("int32")
    n_tags = len(tags)
    emissions = rng.normal(size=(int(lengths.sum()), n_tags)).astype("float32")
    transitions = rng.normal(size=(n_tags, n_tags)).astype("float32")
    start = rng.normal(size=n_tags).astype("float32")
    end = rng.normal(size=n_tags).astype("float32")
    emissions[:, 0] += RAISE_OF_OUTSIDE[n_labels]

    scores = Potentials(emissions, transitions, start, end, lengths)
    potentials = chain.constrain(scores, tags.constraints)
    path = chain.sample_paths(potentials, 1, rng)[0]
    is_wrong = path[:, None] != numpy.arange(n_tags)  # (N, K)
    gold = Gold(
        tags=path,
        costs=is_wrong.astype("float32"),
        opening=tags.opening,
        continuing=tags.continuing,
    )
    return potentials, gold


def main(turns: int = 15) -> None:
    """Print how long each loss takes, compared with Sequential."""
    print("\n## One step of each loss, relative to Sequential\n")
    print("Value and gradient, 32 sequences of mean length 25: median and quartiles over turns.\n")
    # A column for each number of labels, with the times of all losses.
    headings: list[str] = []
    columns: list[dict[str, Comparison]] = []
    for n_labels in RAISE_OF_OUTSIDE:
        potentials, gold = random_batch(n_labels)
        tasks: dict[str, Callable[..., object]] = {}
        for name, loss in LOSSES.items():
            tasks[name] = partial(loss, potentials, gold)
        headings.append(f"K = {len(potentials.start)}")
        columns.append(compare(tasks, "Sequential", turns))

    print(f"| loss | {' | '.join(headings)} |")
    print("|---|---|---|")
    for name in LOSSES:
        cells: list[str] = []
        for column in columns:
            timed = column[name]
            if name == "Sequential":
                cells.append(f"{timed.seconds * 1e6:,.0f} µs")
            else:
                cells.append(f"{timed.ratio:.2f} ({timed.low:.2f} to {timed.high:.2f})")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
