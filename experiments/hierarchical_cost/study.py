"""Ten folds of GENIA: methods are tuned on a part of the first one's training data, then tested."""

import random
from functools import lru_cache, partial
from statistics import mean
from typing import (
    Any,
    Callable,
    Dict,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy
import spacy
from spacy.training import Example
from thinc.types import FloatsXd

from spacy_costner.costs import make_hierarchical_cost
from spacy_costner.hierarchy import make_tree
from spacy_costner.scorers import cost_scores, count_docs
from spacy_costner.significance import Difference

from ..cells import Cell, Result, Runner
from ..corpora import as_examples
from ..genia import TREE, genia
from ..linear import fit_online, make_linear
from ..scores import paired_differences, spread
from ..tagger import Block, Tagger, answers
from .methods import METHODS, PROTOCOLS

SEED = 0
N_FOLDS = 10
HELD_OUT = 4
"""One in so many sentences or abstracts of the training data is held out for tuning."""

SCHEME = "IOB2"

COST = make_hierarchical_cost(tree=TREE)
LEVELS = make_tree(TREE, "experiments.hierarchical_cost")


@lru_cache
def read(tokenization: str) -> Tuple[List[Example], List[str]]:
    """All examples, and the abstract of each."""
    docs, abstracts = genia(tokenization, spacy.blank("xx").vocab)
    return as_examples(docs), abstracts


def deal(groups: Sequence[Any], n_folds: int, seed: int = SEED) -> List[List[int]]:
    """Deal out a corpus by chance.

    groups (Sequence[Any]): For each sentence what it belongs to; groups stay together.
    n_folds (int): How many folds.
    seed (int): For chance.
    RETURNS (List[List[int]]): The sentences of each fold.
    """
    names = sorted(set(groups))
    random.Random(seed).shuffle(names)
    fold_of = {name: i % n_folds for i, name in enumerate(names)}
    folds: List[List[int]] = [[] for _ in range(n_folds)]
    for i, group in enumerate(groups):
        folds[fold_of[group]].append(i)
    return folds


def take_out(groups: Sequence[Any], n_folds: int, fold: int) -> Tuple[List[int], List[int]]:
    """The sentences that are not in a fold, and those that are."""
    folds = deal(groups, n_folds)
    rest = sorted(i for number, some in enumerate(folds) if number != fold for i in some)
    return rest, folds[fold]


def divide(
    tokenization: str, by_abstract: bool, limit: Optional[int], fold: int, held_out: bool = False
) -> Tuple[List[Example], List[Example]]:
    """Divide the corpus.

    tokenization (str), by_abstract (bool): See `Protocol`.
    limit (Optional[int]): The most sentences.
    fold (int): The fold that is tested.
    held_out (bool): Whether a part of its training data is tested in its place.
    RETURNS (Tuple[List[Example], List[Example]]): What to train on, and what to test on.
    """
    examples, abstracts = read(tokenization)
    groups: Sequence[Any] = abstracts[:limit] if by_abstract else range(len(examples[:limit]))
    train, test = take_out(groups, N_FOLDS, fold)
    if held_out:
        learn, held = take_out([groups[i] for i in train], HELD_OUT, 0)
        train, test = [train[i] for i in learn], [train[i] for i in held]
    return [examples[i] for i in train], [examples[i] for i in test]


def fit(
    examples: Sequence[Example],
    *,
    loss: Block,
    model: Block,
    features: Block,
    batch_size: int,
    epochs: int,
    on_epoch: Callable[[Tagger], None] = lambda linear: None,
) -> Tagger:
    """Train a model.

    examples (Sequence[Example]): What it learns from.
    loss, model, features (Block): The blocks of the config.
    batch_size (int): Sentences in a step.
    epochs (int): How often it goes through the examples.
    on_epoch (Callable[[Tagger], None]): Takes the model after each epoch.
    RETURNS (Tagger): The model, with averaged weights.
    """
    linear = make_linear(examples, features=features, loss=loss, model=model, seed=SEED)
    fit_online(
        linear,
        examples,
        epochs=epochs,
        batch_size=batch_size,
        on_epoch=lambda: on_epoch(linear),
    )
    return linear


def score(linear: Tagger, examples: Sequence[Example]) -> Tuple[Result, List[Example]]:
    """Average cost of a token (eq 11) and F in per cent: "cost", "f", and "levels" of the tree;
    and the answers."""
    found = answers(linear, [eg.reference for eg in examples])
    scores = cost_scores(COST, LEVELS, found, labels=linear.ner.labels, scheme=SCHEME)
    levels = [100 * scores[f"ents_f_level_{level}"] for level in range(1, LEVELS.depth + 1)]
    return {"cost": scores["ents_cost"], "f": 100 * scores["ents_f"], "levels": levels}, found


def validate(data: Dict[str, Any], training: Dict[str, Any]) -> Result:
    """Train on a part of the first fold's training data, and score the rest of it after each
    epoch: "cost" and "f"."""
    train, test = divide(**data, fold=0, held_out=True)
    scores: List[Result] = []
    fit(train, **training, on_epoch=lambda linear: scores.append(score(linear, test)[0]))
    return {name: [found[name] for found in scores] for name in ("cost", "f")}


def cross_validate(data: Dict[str, Any], training: Dict[str, Any], fold: int) -> Result:
    """Train on all but a fold, and score that. "counts" are what `count_docs` counts in each
    sentence."""
    train, test = divide(**data, fold=fold)
    linear = fit(train, **training)
    scores, found = score(linear, test)
    counts = count_docs(found, COST, labels=linear.ner.labels, scheme=SCHEME)
    return {**scores, "counts": numpy.stack(counts, axis=1).tolist()}


class Tuning(NamedTuple):
    """What held-out training data said of a method.

    values (Tuple[float, ...]): The values of its dial.
    costs (List[List[float]]): For each of them the average cost after each epoch.
    """

    values: Tuple[float, ...]
    costs: List[List[float]]

    @property
    def chosen(self) -> Tuple[float, int]:
        """The value and the number of epochs with the least cost."""
        _, value, epochs = min(
            (cost, value, i + 1)
            for value, costs in zip(self.values, self.costs)
            for i, cost in enumerate(costs)
        )
        return value, epochs

    def least(self) -> List[float]:
        """The cost at the best number of epochs, of each value."""
        return [min(costs) for costs in self.costs]


class Size(NamedTuple):
    """How much of it all is run.

    limit (Optional[int]): The most sentences.
    epochs (int): The most epochs.
    values (int): The most values of a dial.
    folds (int): The most folds that are tested.
    """

    limit: Optional[int]
    epochs: int
    values: int
    folds: int


DIGITS = {"cost": 3, "f": 1}
"""Behind the point."""

FULL, QUICK = Size(None, 10, 10, N_FOLDS), Size(2000, 3, 2, 2)


class Outcome(NamedTuple):
    """What came of a protocol.

    tunings (Dict[str, Tuning]): For each method.
    folds (Dict[str, List[Result]]): The scores of the folds of each method.
    """

    tunings: Dict[str, Tuning]
    folds: Dict[str, List[Result]]

    def mean(self, method: str, what: str) -> float:
        """The mean of "cost" or "f" over the folds of a method."""
        return mean(fold[what] for fold in self.folds[method])

    def spread(self, method: str, what: str) -> str:
        """The mean, and how much folds differ."""
        return spread([fold[what] for fold in self.folds[method]], DIGITS[what])

    def difference(self, one: str, other: str, what: str) -> Difference:
        """How far a method is from another over the folds that both have, by a paired bootstrap
        over sentences."""
        pairs = list(zip(self.folds[other], self.folds[one]))
        counts = numpy.asarray(
            [[[row for fold in folds for row in fold["counts"]]] for folds in zip(*pairs)]
        )
        return paired_differences(counts, partial(rate, what=what))[1]


def rate(counts: FloatsXd, what: str) -> FloatsXd:
    """The "cost" or "f" of counts of entities that are right, wrong and missed, of cost and of
    tokens. Shape: (..., 5) to (...)"""
    right, wrong, missed, cost, tokens = numpy.moveaxis(counts, -1, 0)
    return cost / tokens if what == "cost" else 200 * right / (2 * right + wrong + missed)


def run_protocol(run: Runner, name: str, size: Size) -> Outcome:
    """Tune the methods of a protocol, and test them.

    run (Runner): Runs the cells.
    name (str): The protocol.
    size (Size): How much of it.
    RETURNS (Outcome): The scores.
    """
    protocol = PROTOCOLS[name]
    data = protocol.data(size.limit)
    tunings = tune(run, name, data, size)
    tests = [(method, fold) for fold in range(size.folds) for method in protocol.methods]
    cells = [
        Cell(
            f"{name}_{method}_fold_{fold}",
            cross_validate,
            {
                "data": data,
                "training": METHODS[method].training(*tunings[method].chosen),
                "fold": fold,
            },
        )
        for method, fold in tests
    ]
    folds: Dict[str, List[Result]] = {method: [] for method in protocol.methods}
    for (method, _), result in zip(tests, run(cells)):
        folds[method].append(result)
    return Outcome(tunings, folds)


def tune(run: Runner, name: str, data: Dict[str, Any], size: Size) -> Dict[str, Tuning]:
    """Train each method of a protocol with each value of its dial, on held-out training data."""
    protocol = PROTOCOLS[name]
    epochs = min(protocol.epochs, size.epochs)
    grids = {
        method: protocol.grids.get(method, METHODS[method].grid)[: size.values]
        for method in protocol.methods
    }
    cells = [
        Cell(
            f"{name}_{method}_{value}",
            validate,
            {"data": data, "training": METHODS[method].training(value, epochs)},
        )
        for method, grid in grids.items()
        for value in grid
    ]
    results = iter(run(cells))
    return {
        method: Tuning(grid, [next(results)["cost"] for _ in grid])
        for method, grid in grids.items()
    }
