"""The perceptrons and passive-aggressive, and the two ways to divide GENIA."""

from typing import (
    Any,
    Dict,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from ..genia import GOLD, PLAIN, TREE
from ..tagger import Block, features_of

FEATURES = features_of("hierarchical_cost")
PAPER_FEATURES: Block = {
    "@misc": FEATURES["@misc"],
    "windows": {kind: size for kind, size in FEATURES["windows"].items() if kind != "SHAPE"},
    "affixes": FEATURES["affixes"],
    "min_count": {kind: FEATURES["min_count"][kind] for kind in ("prefix", "suffix")},
}
"""Without what stands in for features of pairs of tags."""

ADAGRAD: Block = {"learn_rate": 1.0}
STEPS_OF_ONE: Block = {"learn_rate": 1e6, "eps": 1e6}
"""AdaGrad as plain SGD: what it has added up is nothing beside eps."""

PERCEPTRON = "spacy_costner.Perceptron.v1"
TREE_COST: Block = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
ZERO_ONE_COST: Block = {"@misc": "spacy_costner.ZeroOneCost.v1"}


class Method(NamedTuple):
    """A way of training.

    title (str): What it is called.
    loss (Block): The loss, without what is tuned.
    dial (Optional[str]): What is tuned of the loss.
    grid (Tuple[float, ...]): The values that are tried.
    model (Block): The optimizer.
    batch_size (int): Sentences in a step.
    features (Block): What is seen of tokens.
    """

    title: str
    loss: Block
    dial: Optional[str] = None
    grid: Tuple[float, ...] = (0.0,)
    model: Block = ADAGRAD
    batch_size: int = 16
    features: Block = FEATURES

    def training(self, value: float, epochs: int) -> Dict[str, Any]:
        """The settings of `fit`.

        value (float): That of the dial.
        epochs (int): How often the training data is gone through.
        """
        return {
            "loss": {**self.loss, **({self.dial: value} if self.dial else {})},
            "model": self.model,
            "features": self.features,
            "batch_size": self.batch_size,
            "epochs": epochs,
        }


METHODS = {
    "none": Method("perceptron, no cost", {"@losses": PERCEPTRON}),
    "zero_one": Method(
        "perceptron, 0/1 cost",
        {"@losses": PERCEPTRON, "cost": ZERO_ONE_COST},
        "alpha",
        (2.0, 4.0, 8.0, 16.0),
    ),
    "tree": Method(
        "perceptron, tree cost",
        {"@losses": PERCEPTRON, "cost": TREE_COST},
        "alpha",
        (0.2, 0.4, 0.8, 1.6, 3.2),
    ),
    "paper_features": Method(
        "perceptron, tree cost, features of the paper only",
        {"@losses": PERCEPTRON, "cost": TREE_COST},
        "alpha",
        (0.8, 1.6),
        features=PAPER_FEATURES,
    ),
    "pa": Method(
        "PA, tree cost",
        {"@losses": "spacy_costner.MIRA.v1", "cost": TREE_COST},
        "aggressiveness",
        (0.1, 0.3),
        STEPS_OF_ONE,
        8,
    ),
}


class Protocol(NamedTuple):
    """How the corpus is divided.

    title (str): What it is called.
    tokenization (str): PLAIN or GOLD.
    by_abstract (bool): Whether the sentences of an abstract stay together.
    methods (Sequence[str]): The methods that are tested.
    epochs (int): The most epochs.
    grids (Mapping[str, Tuple[float, ...]]): The values that are tried, where not all are.
    """

    title: str
    tokenization: str
    by_abstract: bool
    methods: Sequence[str]
    epochs: int
    grids: Mapping[str, Tuple[float, ...]] = {}

    def data(self, limit: Optional[int]) -> Dict[str, Any]:
        """The settings of `divide`, but for the fold."""
        return {
            "tokenization": self.tokenization,
            "by_abstract": self.by_abstract,
            "limit": limit,
        }


PROTOCOLS = {
    "paper": Protocol(
        "the paper's",
        GOLD,
        False,
        ("none", "zero_one", "tree", "pa", "paper_features"),
        10,
    ),
    "honest": Protocol(
        "the honest",
        PLAIN,
        True,
        ("none", "zero_one", "tree"),
        6,
        {"zero_one": (4.0, 8.0, 16.0), "tree": (0.4, 0.8, 1.6)},
    ),
}
