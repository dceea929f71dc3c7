"""Models are trained, and what is right and wrong is counted."""

from functools import partial
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy
import spacy
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch, registry
from thinc.types import Floats1d, Floats2d, FloatsXd

from spacy_costner.annotate import rate
from spacy_costner.gold import read_presets
from spacy_costner.scorers import count_docs
from spacy_costner.significance import Difference

from ..cells import Cell, Result, Runner
from ..corpora import as_examples, bare
from ..linear import fit_online, make_linear
from ..neural import LEARN_RATE, cnn_block, fit_neural, hybrid_block
from ..scores import paired_differences
from ..tagger import Tagger, make_tagger
from .grid import CORPORA, Block, Corpus, Docs, Method, decodings, methods

SEEDS = (0, 1, 2)
LINEAR_EPOCHS = (6, 2)
"""Of the first loss, and of the second one."""
LINEAR_BATCHES = (16, 64)
"""Sentences."""
ADAGRAD = {"linear": 0.05, "hybrid": 0.1}
"""Learning rates of the sparse features."""
SECOND = 0.2
"""What a second loss has of the learning rates of the first one."""
SECOND_EPOCHS = 3
"""One epoch of the second loss for so many of the first one, with a CNN."""


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


def train_linear(
    corpus: Corpus, examples: Sequence[Example], loss: Block, seed: int, start: Optional[Tagger]
) -> Tagger:
    """Train a linear model.

    corpus (Corpus), examples (Sequence[Example]): What it learns from.
    loss (Block): The loss.
    seed (int): For chance.
    start (Optional[Tagger]): A model to start from, with shorter steps.
    RETURNS (Tagger): The model.
    """
    is_second = start is not None
    model = {"learn_rate": ADAGRAD["linear"] * (SECOND if is_second else 1)}
    tagger = make_linear(examples, features=corpus.features, loss=loss, model=model, seed=seed)
    if start is not None:
        tagger.write_weights(start.read_weights())
    epochs, batch_size = LINEAR_EPOCHS[is_second], LINEAR_BATCHES[is_second]
    fit_online(tagger, examples, epochs=epochs, batch_size=batch_size)
    return tagger


def train_neural(
    corpus: Corpus,
    examples: Sequence[Example],
    loss: Block,
    seed: int,
    start: Optional[Tagger],
    is_hybrid: bool,
) -> Tagger:
    """Train a model with a CNN: see `train_linear`.

    is_hybrid (bool): Whether there are sparse features beside it.
    """
    share = 1 if start is None else SECOND
    block = cnn_block(corpus.attributes)
    if is_hybrid:
        block = hybrid_block(corpus.attributes, corpus.features, ADAGRAD["hybrid"] * share)
    tagger = make_tagger(examples, model=block, loss=loss, seed=seed)
    epochs = corpus.epochs
    if start is not None:
        tagger.write_weights(start.read_weights())
        epochs //= SECOND_EPOCHS
    rate = LEARN_RATE * share
    fit_neural(tagger, examples, epochs=epochs, words=corpus.words, learn_rate=rate)
    return tagger


ARCHITECTURES: Dict[str, Callable[..., Tagger]] = {
    "linear": train_linear,
    "CNN": partial(train_neural, is_hybrid=False),
    "hybrid": partial(train_neural, is_hybrid=True),
}


def train_and_count(corpus: str, architecture: str, first: str, seed: int, quick: bool) -> Result:
    """Train with a loss, then with each that comes second to it; and count what is right and
    wrong in dev and test, for each decoding. The result has the names of the methods.

    corpus (str), architecture (str): Their names.
    first (str): The method of one loss.
    """
    of, train = CORPORA[corpus], ARCHITECTURES[architecture]
    docs = of.read(spacy.blank("xx").vocab, quick)
    examples = as_examples(docs["train"])
    available = methods(of, architecture)
    start = train(of, examples, available[first].losses[0], seed, None)
    counts = {first: count_parts(start, docs, of)}
    for name in seconds(available, first):
        tagger = train(of, examples, available[name].losses[1], seed, start)
        counts[name] = count_parts(tagger, docs, of)
    return counts


def seconds(available: Dict[str, Method], first: str) -> List[str]:
    """The methods that go on from one of one loss."""
    losses = available[first].losses
    return [
        name
        for name, method in available.items()
        if len(method.losses) == 2 and method.losses[:1] == losses
    ]


def count_parts(tagger: Tagger, docs: Docs, corpus: Corpus) -> Result:
    """What is counted in dev and test, for each decoding."""
    return {part: count(tagger, docs[part], corpus) for part in ("dev", "test")}


def count(tagger: Tagger, docs: Sequence[Doc], corpus: Corpus) -> Dict[str, List[List[float]]]:
    """What is counted in each doc, for each decoding: see COUNTS."""
    cost = registry.resolve({"cost": corpus.cost})["cost"]
    counted = {}
    for name, examples in answers_by_decoding(tagger, docs, corpus).items():
        counts = count_docs(examples, cost, labels=tagger.ner.labels, scheme="IOB2")
        whole = (counts.wrong + counts.missed) == 0
        columns = [*counts, whole, numpy.ones(len(whole))]
        counted[name] = numpy.stack(columns, axis=1).astype(float).round(3).tolist()
    return counted


def answers_by_decoding(
    tagger: Tagger, docs: Sequence[Doc], corpus: Corpus
) -> Dict[str, List[Example]]:
    """Examples of the answers and of the gold, for each decoding. The model is asked once."""
    ner, blocks = tagger.ner, decodings(corpus)
    found: Dict[str, List[Example]] = {name: [] for name in blocks}
    for batch in minibatch(docs, 256):
        beliefs = ner.beliefs(batch)
        for name, block in blocks.items():
            ner.set_decoding(registry.resolve({"decoding": block})["decoding"])
            predicted = [bare(doc) for doc in batch]
            answered = rate(ner.answer(beliefs), beliefs, read_presets(predicted), None)
            ner.set_annotations(predicted, answered)
            found[name] += map(Example, predicted, batch)
    return found


class Outcome(NamedTuple):
    """What came of a method with an architecture and a decoding.

    architecture, method, decoding (str): Their names.
    is_new (bool): Whether none of the papers has that.
    dev, test (Floats2d): What was counted, of each seed. Shape: (seeds, docs, columns)
    """

    architecture: str
    method: str
    decoding: str
    is_new: bool
    dev: Floats2d
    test: Floats2d

    @property
    def name(self) -> str:
        return f"{self.architecture}: {self.method}; {self.decoding}"

    def on(self, part: str, score: Score) -> Floats1d:
        """A score of each seed."""
        return score.of(getattr(self, part).sum(axis=1))


def cell(corpus: str, architecture: str, first: str, seed: int, quick: bool) -> Cell:
    settings = {"corpus": corpus, "architecture": architecture, "first": first, "seed": seed}
    name = "-".join(map(str, settings.values())).replace(" ", "_")
    return Cell(name, train_and_count, {**settings, "quick": quick})


def run_corpus(run: Runner, corpus: str, quick: bool) -> List[Outcome]:
    """Run all methods with all architectures and seeds."""
    seeds = SEEDS[:1] if quick else SEEDS
    grid = {name: methods(CORPORA[corpus], name) for name in ARCHITECTURES}
    firsts = [
        (architecture, first)
        for architecture, available in grid.items()
        for first, method in available.items()
        if len(method.losses) == 1
    ]
    keys = [(*pair, seed) for seed in seeds for pair in firsts]
    results = dict(zip(keys, run([cell(corpus, *key, quick) for key in keys])))
    trained = {
        (architecture, method): [results[architecture, first, seed][method] for seed in seeds]
        for architecture, first in firsts
        for method in (first, *seconds(grid[architecture], first))
    }
    return [
        make_outcome(architecture, method, available[method], decoding, own)
        for architecture, available in grid.items()
        for method in available
        for own in [trained[architecture, method]]
        for decoding in decodings(CORPORA[corpus])
    ]


def make_outcome(
    architecture: str, name: str, method: Method, decoding: str, results: Sequence[Result]
) -> Outcome:
    """What came of a method, from what was counted with each seed."""
    dev, test = (
        numpy.asarray([result[part][decoding] for result in results]) for part in ("dev", "test")
    )
    is_new = method.is_new or decoding != "best path"
    return Outcome(architecture, name, decoding, is_new, dev, test)


def compare(ours: Outcome, other: Outcome, score: Score) -> Difference:
    """Judge by a paired bootstrap over docs, each with what all seeds made of it."""
    counts = numpy.stack([other.test.sum(axis=0), ours.test.sum(axis=0)])[:, None]
    return paired_differences(counts, score.of)[1]
