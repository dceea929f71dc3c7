"""The seven methods of table 1: what is trained with which settings, and what the paper has."""

from functools import partial
from itertools import product
from typing import (
    Callable,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from ..tagger import Block, features_of

FEATURES = features_of("softmax_margin")
HAMMING = {"@misc": "spacy_costner.HammingCost.v1"}

BATCH_SIZE = 16
LEARN_RATE = 0.05
SGD_STEP = 0.01
"""The paper's, for all methods that have no step size of their own."""

CS = (0.01, 0.1, 1.0)
CS_OF_MARGIN = CS[:2]
CS_OF_RISK = (0.01,)
MS = (0.2, 1, 5, 20)
MS_OF_RISK = (0.2, 1, 5)
EPOCHS: Tuple[int, ...] = (3, 6)
EPOCHS_OF_RISK: Tuple[int, ...] = (2, 5)

Chosen = Tuple[Optional[float], Optional[float]]
"""C and m, None where a method has none."""


class Corpus(NamedTuple):
    """What a method has to know of its corpus.

    n_batches (int): Batches of an epoch.
    n_active (float): Features that a token has on average.
    """

    n_batches: int
    n_active: float


class Training(NamedTuple):
    """How a linear CRF is trained.

    loss (Block), model (Block): The blocks of the config.
    batch_size (int): Sentences of a step.
    """

    loss: Block
    model: Block
    batch_size: int = BATCH_SIZE


class Published(NamedTuple):
    """A row of table 1.

    dev (float), test (float): F.
    chosen (str): C, m, and whether weights are averaged.
    """

    dev: float
    test: float
    chosen: str


class Method(NamedTuple):
    """A way to train a linear CRF.

    title (str): What it is called.
    published (Published): What the paper has of it.
    training (Callable[..., Training]): Takes the corpus, C and m.
    grid (Sequence[Chosen]): What C and m are tried.
    epochs (Sequence[int]): What numbers of epochs are tried.
    from_crf (bool): Whether it starts from the weights of the likelihood.
    """

    title: str
    published: Published
    training: Callable[..., Training]
    grid: Sequence[Chosen]
    epochs: Sequence[int] = EPOCHS
    from_crf: bool = False


def ada_grad(corpus: Corpus, c: Optional[float]) -> Block:
    """A model that learns by AdaGrad, with the penalty C ||w||^2 on the loss of an epoch."""
    return {"learn_rate": LEARN_RATE, "L2": penalty(corpus, c)}


def sgd(step: float, l2: float = 0.0) -> Block:
    """A model that learns by steps of a fixed size: AdaGrad with an eps beside which the sum of
    the squared gradients is nothing."""
    eps = 1e6
    return {"learn_rate": step * eps, "eps": eps, "L2": l2}


def penalty(corpus: Corpus, c: Optional[float]) -> float:
    """What L2 makes C ||w||^2 of the steps of an epoch."""
    return 2 * (c or 0.0) / corpus.n_batches


def likelihood(corpus: Corpus, c: float, m: None) -> Training:
    """CLL, eq 3."""
    return Training({"@losses": "spacy_costner.Sequential.v1"}, ada_grad(corpus, c))


def cost_augmented(name: str, corpus: Corpus, c: float, m: float) -> Training:
    """Max-margin, eq 4, and softmax-margin, eq 6."""
    loss = {"@losses": f"spacy_costner.{name}.v1", "cost": HAMMING, "multiplier": m}
    return Training(loss, ada_grad(corpus, c))


def perceptron(corpus: Corpus, c: None, m: None, *, built_in: bool = False) -> Training:
    """The perceptron of Collins (2002), by AdaGrad or by its own steps, after each sentence."""
    loss = {"@losses": "spacy_costner.Perceptron.v1"}
    return Training(loss, sgd(1.0), 1) if built_in else Training(loss, ada_grad(corpus, None))


def mira(corpus: Corpus, c: float, m: float, *, built_in: bool = False) -> Training:
    """1-best MIRA, by AdaGrad or by its own steps, after each sentence.

    The loss measures steps on the scores of tokens and transitions. A token's score is the sum of
    the weights of its features, which a step of the same length moves by their number.
    """
    loss = {
        "@losses": "spacy_costner.MIRA.v1",
        "cost": HAMMING,
        "multiplier": m,
        "aggressiveness": c * corpus.n_active,
    }
    if built_in:
        return Training(loss, sgd(1 / corpus.n_active), 1)
    return Training(loss, ada_grad(corpus, None))


def risk(corpus: Corpus, c: float, m: float) -> Training:
    """Risk, eq 5, times m: steps that are m times as long, with a penalty that isn't."""
    loss = {"@losses": "spacy_costner.Risk.v1", "cost": HAMMING}
    return Training(loss, sgd(SGD_STEP * m, penalty(corpus, c) / m))


def jensen_risk_bound(corpus: Corpus, c: float, m: float) -> Training:
    """JRB, section 3.1."""
    loss = {"@losses": "spacy_costner.JensenRiskBound.v1", "cost": HAMMING, "multiplier": m}
    return Training(loss, sgd(SGD_STEP, penalty(corpus, c)))


NO_GRID: Sequence[Chosen] = ((None, None),)
GRID: Sequence[Chosen] = tuple(product(CS, MS))
GRID_OF_MARGIN: Sequence[Chosen] = tuple(product(CS_OF_MARGIN, MS))
GRID_OF_RISK: Sequence[Chosen] = tuple(product(CS_OF_RISK, MS_OF_RISK))

OF_PERCEPTRON = Published(90.48, 83.98, "Y")
OF_MIRA = Published(91.13, 85.72, "0.01, 20, Y")

METHODS = {
    "perceptron": Method("Perceptron", OF_PERCEPTRON, perceptron, NO_GRID),
    "perceptron_built_in": Method(
        "Perceptron, its own steps", OF_PERCEPTRON, partial(perceptron, built_in=True), NO_GRID
    ),
    "mira": Method("MIRA", OF_MIRA, mira, GRID),
    "mira_built_in": Method(
        "MIRA, its own steps",
        OF_MIRA,
        partial(mira, built_in=True),
        tuple((c, 1) for c in CS),
    ),
    "crf": Method(
        "CLL (CRF)", Published(90.79, 85.46, "0.01, N"), likelihood, [(c, None) for c in CS]
    ),
    "max_margin": Method(
        "Max-Margin",
        Published(91.17, 85.28, "0.01, 1, Y"),
        partial(cost_augmented, "MaxMargin"),
        GRID_OF_MARGIN,
    ),
    "risk": Method(
        "Risk",
        Published(91.14, 85.59, "0.01, 10, N"),
        risk,
        GRID_OF_RISK,
        EPOCHS_OF_RISK,
        from_crf=True,
    ),
    "jrb": Method(
        "JRB",
        Published(91.05, 85.65, "0.01, 1, N"),
        jensen_risk_bound,
        GRID_OF_RISK,
        EPOCHS_OF_RISK,
        from_crf=True,
    ),
    "softmax_margin": Method(
        "Softmax-Margin",
        Published(91.30, 85.84, "0.01, 5, N"),
        partial(cost_augmented, "SoftmaxMargin"),
        GRID_OF_MARGIN,
    ),
}
"""In the order of table 1."""

BASELINES = ("crf", "softmax_margin")
