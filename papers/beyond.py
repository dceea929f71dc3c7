"""Losses, costs and decoding that none of the papers put together: docs/reproduction.md.

python -m papers.beyond [--quick] [--jobs 2]
"""

import json
from functools import partial
from itertools import groupby, islice
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy
import spacy
from spacy.tokens import Doc
from spacy.util import registry
from spacy.vocab import Vocab
from thinc.types import Floats1d, Floats2d, FloatsXd

from spacy_costner.scorers import count_docs
from spacy_costner.significance import Difference

from .cells import ROOT, Cell, Result, Runner, command, table
from .corpora import ASSETS, as_examples, conll2002, read_docs
from .linear import Linear, answers, fit_online, make_linear, paired_differences

SEEDS = (0, 1, 2)
FIRST_EPOCHS, SECOND_EPOCHS = 6, 2
QUICK = 200
SECOND_RATE = 0.01
"""The learning rate of a second loss."""

HAMMING = {"@misc": "spacy_costner.HammingCost.v1"}
GENIA = ROOT / "corpus" / "genia"
TREE = json.loads((ROOT / "papers" / "genia_tree.json").read_text())
TREE_COST = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": TREE}
FLAGS = ["is_first_upper", "IS_UPPER", "IS_DIGIT", "has_digit", "has_hyphen"]
WORDS = {"ORTH": 2, "LOWER": 2, "SHAPE": 2, "prefix": 1, "suffix": 1, "flags": 1}

Block = Dict[str, Any]
Docs = Dict[str, List[Doc]]


class Corpus(NamedTuple):
    """What is learned, and what mistakes cost.

    read (Callable[[Vocab, bool], Docs]): Reads the docs "train", "dev" and "test"; fewer if
        it is to be quick.
    cost (Block): The cost.
    multiplier (float): How much score a unit of it is worth in a margin.
    alpha (float): The same for the perceptron; that of GENIA is the one that
        papers.hierarchical_cost chose, whose steps are 20 times as long.
    features (Block): What is seen of tokens.
    """

    read: Callable[[Vocab, bool], Docs]
    cost: Block
    multiplier: float
    alpha: float
    features: Block


class Method(NamedTuple):
    """A way of training: a loss, and perhaps another one after it.

    losses (Tuple[Block, ...]): The losses.
    is_new (bool): Whether it is in none of the papers.
    """

    losses: Tuple[Block, ...]
    is_new: bool


class Score(NamedTuple):
    """What is wanted.

    name (str): What it is called.
    of (Callable[[FloatsXd], FloatsXd]): From sums of the columns of COUNTS.
    sign (int): 1 if more is better, -1 if less is.
    digits (int): Behind the point, in tables.
    """

    name: str
    of: Callable[[FloatsXd], FloatsXd]
    sign: int
    digits: int


COUNTS = ("right", "wrong", "missed", "cost", "tokens", "whole", "docs")
"""What is counted in each doc; "whole": no mistake; "docs": 1."""


def f_of_mistakes(sums: FloatsXd) -> FloatsXd:
    right, wrong, missed = numpy.moveaxis(sums, -1, 0)[:3]
    return 200 * right / (2 * right + wrong + missed)


SCORES = (
    Score("F", f_of_mistakes, 1, 2),
    Score("average cost", lambda sums: sums[..., 3] / sums[..., 4], -1, 4),
    Score("sentences right", lambda sums: 100 * sums[..., 5] / sums[..., 6], 1, 2),
)


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
    docs = read_docs(GENIA / "genia.iob2", vocab)
    tenth = len(docs) // 10
    return parts(docs[: 4 * tenth], docs[-2 * tenth : -tenth], docs[-tenth:], quick)


def parts(train: List[Doc], dev: List[Doc], test: List[Doc], quick: bool) -> Docs:
    """The parts of a corpus, or the beginning of each."""
    limit = QUICK if quick else None
    return {"train": train[:limit], "dev": dev[:limit], "test": test[:limit]}


CORPORA = {
    "Spanish entities": Corpus(read_spanish, HAMMING, 1.0, 1.0, features()),
    "Spanish entities, 500 sentences": Corpus(
        partial(read_spanish, limit=500), HAMMING, 1.0, 1.0, features()
    ),
    "English chunks, 4,000 sentences": Corpus(
        read_chunks, HAMMING, 1.0, 1.0, features(windows={**WORDS, "TAG": 2}, bigrams={"TAG": 2})
    ),
    "GENIA terms": Corpus(read_genia, TREE_COST, 0.1, 0.04, features()),
}


def loss(name: str, **settings: Any) -> Block:
    return {"@losses": f"spacy_costner.{name}.v1", **settings}


def methods(corpus: Corpus) -> Dict[str, Method]:
    """The ways of training, with the cost of a corpus."""
    cost = {"cost": corpus.cost}
    margin = {**cost, "multiplier": corpus.multiplier}
    sequential, softmax_margin = loss("Sequential"), loss("SoftmaxMargin", **margin)
    mixed_margin = loss("Mixed", k=3.0, **margin)
    is_tree = corpus.cost is TREE_COST
    mce_f = loss("MCEF", decay=0.99)
    return {
        "Sequential": Method((sequential,), False),
        "Mixed": Method((loss("Mixed", k=3.0),), False),
        "SoftmaxMargin": Method((softmax_margin,), is_tree),
        "Perceptron with the cost": Method(
            (loss("Perceptron", **cost, alpha=corpus.alpha),), False
        ),
        "Sequential, MCEF": Method((sequential, mce_f), False),
        "Sequential, Risk": Method((sequential, loss("Risk", **cost)), is_tree),
        "Mixed with a margin": Method((mixed_margin,), True),
        "SoftmaxMargin, MCEF": Method((softmax_margin, mce_f), True),
        "SoftmaxMargin, Risk": Method((softmax_margin, loss("Risk", **cost)), True),
    }


def decodings(corpus: Corpus) -> Dict[str, Block]:
    threshold = {"@misc": "spacy_costner.ThresholdDecoding.v1"}
    return {
        "best path": {"@misc": "spacy_costner.ViterbiDecoding.v1"},
        "least cost": {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": corpus.cost},
        "threshold 0.3": {**threshold, "threshold": 0.3},
        "threshold 0.4": {**threshold, "threshold": 0.4},
    }


def train_and_count(corpus: str, method: str, seed: int, quick: bool) -> Result:
    """Train, and count what is right and wrong in dev and test, for each decoding."""
    of = CORPORA[corpus]
    docs = of.read(spacy.blank("xx").vocab, quick)
    examples = as_examples(docs["train"])
    first, *rest = methods(of)[method].losses
    linear = make_linear(examples, features=of.features, loss=first, seed=seed)
    fit_online(linear, examples, epochs=FIRST_EPOCHS)
    for second in rest:
        model = {"learn_rate": SECOND_RATE}
        last = make_linear(examples, features=of.features, loss=second, model=model, seed=seed)
        last.rows[:] = linear.rows
        fit_online(last, examples, epochs=SECOND_EPOCHS, batch_size=64)
        linear = last
    return {
        part: {name: count(linear, docs[part], of, block) for name, block in decodings(of).items()}
        for part in ("dev", "test")
    }


def count(
    linear: Linear, docs: Sequence[Doc], corpus: Corpus, decoding: Block
) -> List[List[float]]:
    """What is counted in each doc: see COUNTS."""
    linear.ner.set_decoding(registry.resolve({"decoding": decoding})["decoding"])
    cost = registry.resolve({"cost": corpus.cost})["cost"]
    labels = linear.ner.labels
    counts = count_docs(answers(linear, docs), cost, labels=labels, scheme="IOB2")
    whole = (counts.wrong + counts.missed) == 0
    columns = [*counts, whole, numpy.ones(len(whole))]
    return numpy.stack(columns, axis=1).astype(float).round(3).tolist()


class Outcome(NamedTuple):
    """What came of a method with a decoding.

    method, decoding (str): Their names.
    is_new (bool): Whether none of the papers has that.
    dev, test (Floats2d): What was counted, of each seed. Shape: (seeds, docs, columns)
    """

    method: str
    decoding: str
    is_new: bool
    dev: Floats2d
    test: Floats2d

    @property
    def name(self) -> str:
        return f"{self.method}; {self.decoding}"

    def on(self, part: str, score: Score) -> Floats1d:
        """A score of each seed."""
        return score.of(getattr(self, part).sum(axis=1))


def cell(corpus: str, method: str, seed: int, quick: bool) -> Cell:
    settings = {"corpus": corpus, "method": method, "seed": seed}
    name = "-".join(map(str, settings.values())).replace(" ", "_")
    return Cell(name, train_and_count, {**settings, "quick": quick})


def run_corpus(run: Runner, corpus: str, quick: bool) -> List[Outcome]:
    """Run all methods with all seeds."""
    seeds = SEEDS[:1] if quick else SEEDS
    available = methods(CORPORA[corpus])
    cells = [cell(corpus, name, seed, quick) for name in available for seed in seeds]
    results = iter(run(cells))
    outcomes = []
    for name, method in available.items():
        own = list(islice(results, len(seeds)))
        for decoding in decodings(CORPORA[corpus]):
            dev, test = (
                numpy.asarray([result[part][decoding] for result in own])
                for part in ("dev", "test")
            )
            is_new = method.is_new or decoding != "best path"
            outcomes.append(Outcome(name, decoding, is_new, dev, test))
    return outcomes


def compare(ours: Outcome, other: Outcome, score: Score) -> Difference:
    """Judge by a paired bootstrap over docs, each with what all seeds made of it."""
    counts = numpy.stack([other.test.sum(axis=0), ours.test.sum(axis=0)])[:, None]
    return paired_differences(counts, score.of)[1]


def describe(outcomes: List[Outcome]) -> str:
    """The scores on the test set, each with the best of the papers against the best of the
    others, both chosen on the dev set."""
    return "\n\n".join(
        f"{score_table(outcomes, score)}\n\n{describe_best(outcomes, score)}" for score in SCORES
    )


def score_table(outcomes: List[Outcome], score: Score) -> str:
    """A score on the test set: a row for each method, a column for each decoding."""
    rows = [
        [method, *(mean(outcome.on("test", score), score.digits) for outcome in some)]
        for method, some in groupby(outcomes, key=lambda outcome: outcome.method)
    ]
    return table([score.name, *dict.fromkeys(outcome.decoding for outcome in outcomes)], rows)


def mean(values: Floats1d, digits: int) -> str:
    spread = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{spread}"


def describe_best(outcomes: List[Outcome], score: Score) -> str:
    new, known = (
        max(
            (outcome for outcome in outcomes if outcome.is_new == is_new),
            key=lambda outcome: score.sign * outcome.on("dev", score).mean(),
        )
        for is_new in (True, False)
    )
    value, low, high, p = compare(new, known, score)
    digits = score.digits
    return (
        f"Best of the others on the dev set: {new.name}. Best of the papers: {known.name}. Their "
        f"difference on the test set: {value:+.{digits}f} (95 %: {low:+.{digits}f} to "
        f"{high:+.{digits}f}), p = {p:.2g}."
    )


def experiment(run: Runner, quick: bool) -> str:
    sections = [f"### {corpus}\n\n{describe(run_corpus(run, corpus, quick))}" for corpus in CORPORA]
    return f"{INTRODUCTION}\n\n" + "\n\n".join(sections)


INTRODUCTION = f"""\
Linear models, online, by AdaGrad with averaging: {FIRST_EPOCHS} epochs of the first loss in
batches of 16; {SECOND_EPOCHS} epochs of the second one, if there is one, in batches of 64, with
a learning rate of {SECOND_RATE}. Seeds {SEEDS}; means and standard deviations on the test set.
"In a paper" are the losses with costs that one of the papers has, answered by the best path.
Costs: of wrong tags (Hamming) with a multiplier of 1 and, for GENIA, the distance in its tree,
with 0.1. GENIA: sentences in the order of the corpus, the first 40 % for training, the last 20 %
for dev and test, tokens of `genia.iob2`. "Least cost" answers by expected cost, "threshold" with
the entities of about that probability or more. Differences are judged by the paired bootstrap
over sentences, the counts of all seeds added up. Nothing was tuned but the perceptron's alpha of
GENIA, which is that of the experiment above; and two losses have two epochs more than one."""

main = command("beyond", "Beyond the papers", experiment)

if __name__ == "__main__":
    main()
