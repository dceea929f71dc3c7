"""What is put together: corpora, ways of training, ways of decoding."""

from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from spacy.tokens import Doc
from spacy.vocab import Vocab

from ..corpora import ASSETS, conll2002, read_docs
from ..genia import PLAIN, TREE, genia

QUICK = 200

HAMMING = {"@misc": "spacy_costner.HammingCost.v1"}
TREE_COST = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
FLAGS = ["is_first_upper", "IS_UPPER", "IS_DIGIT", "has_digit", "has_hyphen"]
WORDS = {"ORTH": 2, "LOWER": 2, "SHAPE": 2, "prefix": 1, "suffix": 1, "flags": 1}
ATTRIBUTES = ("NORM", "PREFIX", "SUFFIX", "SHAPE")

Block = Dict[str, Any]
Docs = Dict[str, List[Doc]]


class Corpus(NamedTuple):
    """What is learned, and what mistakes cost.

    read (Callable[[Vocab, bool], Docs]): Reads the docs "train", "dev" and "test"; fewer if
        it is to be quick.
    cost (Block): The cost.
    multiplier (float): How much score a unit of it is worth in a margin.
    alpha (float): The same for the perceptron of linear models; that of GENIA is the one that
        experiments.hierarchical_cost chose, whose steps are 20 times as long.
    features (Block): What a linear model sees of tokens.
    attributes (Sequence[str]): What a CNN sees of them.
    epochs (int): How often a CNN goes through it.
    words (int): Tokens in a batch for a CNN.
    """

    read: Callable[[Vocab, bool], Docs]
    cost: Block
    multiplier: float
    alpha: float
    features: Block
    attributes: Sequence[str] = ATTRIBUTES
    epochs: int = 3
    words: int = 1_000


class Method(NamedTuple):
    """A way of training: a loss, and perhaps another one after it.

    losses (Tuple[Block, ...]): The losses.
    is_new (bool): Whether it is in none of the papers.
    """

    losses: Tuple[Block, ...]
    is_new: bool


def features(**more: Any) -> Block:
    settings = {"windows": WORDS, "affixes": [1, 2, 3, 4], "flags": FLAGS}
    return {"@misc": "spacy_costner.Features.v1", **settings, **more}


def read_spanish(vocab: Vocab, quick: bool, limit: int = 8_323) -> Docs:
    docs = conll2002(vocab, limit)
    return parts(docs["train"], docs["testa"], docs["testb"], quick)


def read_chunks(vocab: Vocab, quick: bool) -> Docs:
    train = read_docs(ASSETS / "conll2000" / "train.txt", vocab)
    test = read_docs(ASSETS / "conll2000" / "test.txt", vocab)
    return parts(train[:4_000], train[8_000:], test, quick)


def read_genia(vocab: Vocab, quick: bool) -> Docs:
    """The first 40 % of the abstracts, about, then 10 % for dev and the last 10 % for test."""
    docs, _ = genia(PLAIN, vocab)
    tenth = len(docs) // 10
    return parts(docs[: 4 * tenth], docs[-2 * tenth : -tenth], docs[-tenth:], quick)


def parts(train: List[Doc], dev: List[Doc], test: List[Doc], quick: bool) -> Docs:
    """The parts of a corpus, or the beginning of each."""
    limit = QUICK if quick else None
    return {"train": train[:limit], "dev": dev[:limit], "test": test[:limit]}


CORPORA = {
    "Spanish entities": Corpus(read_spanish, HAMMING, 1.0, 1.0, features()),
    "Spanish entities, 500 sentences": Corpus(
        partial(read_spanish, limit=500), HAMMING, 1.0, 1.0, features(), epochs=15, words=250
    ),
    "English chunks, 4,000 sentences": Corpus(
        read_chunks,
        HAMMING,
        1.0,
        1.0,
        features(windows={**WORDS, "TAG": 2}, bigrams={"TAG": 2}),
        (*ATTRIBUTES, "TAG"),
        epochs=5,
        words=500,
    ),
    "GENIA terms": Corpus(read_genia, TREE_COST, 0.1, 0.04, features()),
}


def loss(name: str, **settings: Any) -> Block:
    return {"@losses": f"spacy_costner.{name}.v1", **settings}


def methods(corpus: Corpus, architecture: str) -> Dict[str, Method]:
    """The ways of training, with the cost of a corpus. Those with Mixed are for linear models
    only, to save time."""
    cost = {"cost": corpus.cost}
    margin = {**cost, "multiplier": corpus.multiplier}
    sequential, softmax_margin = loss("Sequential"), loss("SoftmaxMargin", **margin)
    alpha = corpus.alpha if architecture == "linear" else corpus.multiplier
    is_tree = corpus.cost is TREE_COST
    mce_f, risk = loss("MCEF", decay=0.99), loss("Risk", **cost)
    all_methods = {
        "Sequential": Method((sequential,), False),
        "Mixed": Method((loss("Mixed", k=3.0),), False),
        "SoftmaxMargin": Method((softmax_margin,), is_tree),
        "Perceptron with the cost": Method((loss("Perceptron", **cost, alpha=alpha),), False),
        "Sequential, MCEF": Method((sequential, mce_f), False),
        "Sequential, Risk": Method((sequential, risk), is_tree),
        "Mixed with a margin": Method((loss("Mixed", k=3.0, **margin),), True),
        "SoftmaxMargin, MCEF": Method((softmax_margin, mce_f), True),
        "SoftmaxMargin, Risk": Method((softmax_margin, risk), True),
    }
    return {
        name: method
        for name, method in all_methods.items()
        if architecture == "linear" or "Mixed" not in name
    }


def decodings(corpus: Corpus) -> Dict[str, Block]:
    threshold = {"@misc": "spacy_costner.ThresholdDecoding.v1"}
    return {
        "best path": {"@misc": "spacy_costner.ViterbiDecoding.v1"},
        "least cost": {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": corpus.cost},
        "threshold 0.3": {**threshold, "threshold": 0.3},
        "threshold 0.4": {**threshold, "threshold": 0.4},
    }
