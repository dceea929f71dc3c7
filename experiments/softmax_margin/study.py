"""Settings are chosen on the development data, then the methods are tested."""

import json
from functools import lru_cache
from itertools import product
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy
import spacy
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Adam
from thinc.types import Floats2d, FloatsXd

from spacy_costner.fit import read_batches, train
from spacy_costner.layers import linear_part

from ..cells import Cell, Result, Runner
from ..corpora import ASSETS, as_examples, conll
from ..linear import make_linear, shuffled_batches
from ..scores import f_score, paired_differences, sentence_counts
from ..tagger import Block, Tagger, answers
from .methods import FEATURES, METHODS, Corpus

CORPORA = {
    "CoNLL-2003 English": ASSETS / "conll2003_en" / "eng",
    "CoNLL-2002 Spanish": ASSETS / "conll2002_es" / "esp",
}
"""Corpora and their files, without ".train" and so on. The first that is there is taken."""

SEEDS = (0, 1, 2)
N_SAMPLES = 10_000


class Choice(NamedTuple):
    """Settings, and what they came to on the development data.

    c, m (Optional[float]): C and m.
    epochs (int): Epochs of training.
    averaged (bool): Whether the weights are the averages over all steps.
    f (float): F of entities.
    """

    c: Optional[float]
    m: Optional[float]
    epochs: int
    averaged: bool
    f: float

    def describe(self) -> str:
        """As in the last column of table 1, with the epochs."""
        numbers = [f"{x:g}" for x in (self.c, self.m) if x is not None]
        return ", ".join([*numbers, str(self.epochs), "Y" if self.averaged else "N"])


@lru_cache(maxsize=1)
def read_corpus(name: str, limit: Optional[int]) -> Tuple[List[Example], List[Doc], List[Doc]]:
    """Examples to train on, development docs and test docs."""
    parts = conll(CORPORA[name], spacy.blank("xx").vocab, limit)
    return as_examples(parts["train"]), parts["testa"], parts["testb"]


def checkpoints(
    examples: Sequence[Example],
    *,
    loss: Block,
    model: Block,
    batch_size: int,
    epochs: Sequence[int],
    seed: int,
    start: Optional[Floats2d] = None,
) -> Iterator[Tuple[int, bool, Tagger]]:
    """Train a linear CRF online, and look at it on the way.

    examples (Sequence[Example]): What it learns from.
    loss (Block), model (Block), batch_size (int): See `Training`.
    epochs (Sequence[int]): After how many epochs to look at it, ascending.
    seed (int): For the order of the examples.
    start (Optional[Floats2d]): Its first weights.
    RETURNS (Iterator[Tuple[int, bool, Tagger]]): The epochs so far; whether the weights are
        averages; and the model, which has these weights until the next is asked for.
    """
    linear = make_linear(examples, features=FEATURES, loss=loss, model=model, seed=seed)
    if start is not None:
        linear.rows[:] = start
    batches = read_batches(linear.ner, shuffled_batches(examples, batch_size))
    optimizer = Adam(use_averages=True)
    for before, after in zip([0, *epochs], epochs):
        train(linear.ner, batches, optimizer, max_epochs=after - before)
        yield after, False, linear
        with linear.nlp.use_params(optimizer.averages):
            yield after, True, linear


def at_choice(
    examples: Sequence[Example], seed: int, epochs: int, averaged: bool, **training: Any
) -> Tagger:
    """Train a linear CRF with the settings that were chosen; arguments as of `checkpoints`. For
    averages it is a model that has them as its weights."""
    for _, is_average, linear in checkpoints(examples, seed=seed, epochs=[epochs], **training):
        if is_average == averaged:
            weights = linear.rows.copy()
    linear.rows[:] = weights
    return linear


@lru_cache(maxsize=1)
def start_weights(corpus: str, limit: Optional[int], start: str) -> Optional[Floats2d]:
    """The weights to start from.

    start (str): Arguments of `at_choice`, in JSON, or null.
    RETURNS (Optional[Floats2d]): The weights, None for those of 0.
    """
    settings = json.loads(start)
    if settings is None:
        return None
    return at_choice(read_corpus(corpus, limit)[0], **settings).rows.copy()


def survey(corpus: str, limit: Optional[int]) -> Result:
    """A cell: what there is in a corpus."""
    examples, dev, test = read_corpus(corpus, limit)
    linear = make_linear(examples, features=FEATURES)
    features, _ = linear_part(linear.ner.model)
    rows = features.find([eg.reference for eg in examples]).rows
    return {
        "sentences": [len(examples), len(dev), len(test)],
        "entities": [sum(len(doc.ents) for doc in docs) for docs in (dev, test)],
        "features": len(features),
        "weights": linear.rows.size,
        "n_active": round(float((rows >= 0).sum(axis=1).mean()), 1),
    }


def tune(
    corpus: str,
    limit: Optional[int],
    start: Optional[Mapping[str, Any]],
    training: Mapping[str, Any],
    epochs: Sequence[int],
    seed: int,
) -> Result:
    """A cell: F on the development data after some epochs, with and without averages.

    start (Optional[Mapping[str, Any]]): See `start_weights`.
    training (Mapping[str, Any]): A `Training`.
    RETURNS (Result): "f": epochs, averaged or not, and F.
    """
    examples, dev, _ = read_corpus(corpus, limit)
    weights = start_weights(corpus, limit, json.dumps(start))
    on_the_way = checkpoints(examples, epochs=epochs, seed=seed, start=weights, **training)
    return {"f": [[n, averaged, total_f(count(linear, dev))] for n, averaged, linear in on_the_way]}


def try_out(
    corpus: str,
    limit: Optional[int],
    start: Optional[Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> Result:
    """A cell: the settings that were chosen, on the development and the test data.

    start (Optional[Mapping[str, Any]]): See `start_weights`.
    settings (Mapping[str, Any]): Other arguments of `at_choice`.
    RETURNS (Result): "dev": F; "counts": those of `sentence_counts` of the test data.
    """
    examples, dev, test = read_corpus(corpus, limit)
    weights = start_weights(corpus, limit, json.dumps(start))
    linear = at_choice(examples, start=weights, **settings)
    return {
        "dev": total_f(count(linear, dev)),
        "counts": count(linear, test).tolist(),
    }


def count(linear: Tagger, docs: Sequence[Doc]) -> Floats2d:
    """What `sentence_counts` counts, as an array. Shape: (D, 3)"""
    return numpy.asarray(sentence_counts(answers(linear, docs)), dtype="float64")


def total_f(counts: Floats2d) -> float:
    """F of all sentences together."""
    return float(f_score(counts.sum(axis=0)))


def levels(counts: FloatsXd, baseline: int, *, n_samples: int = N_SAMPLES) -> List[float]:
    """How likely differences as large in the mean F of the seeds are by chance: the paired
    bootstrap over sentences, two-sided.

    counts (FloatsXd): For each method, seed and sentence those of `f_score`. Shape: (M, S, D, 3)
    baseline (int): The method that the others are compared with.
    n_samples (int): Samples of sentences.
    RETURNS (List[float]): The level of each method.
    """
    found = paired_differences(counts, f_score, baseline=baseline, n_samples=n_samples)
    return [one.p for one in found]


class Plan(NamedTuple):
    """What is run.

    corpus (str): One of CORPORA.
    limit (Optional[int]): The most sentences to train on.
    seeds (Sequence[int]): Seeds of the settings that are chosen. They are chosen with the first.
    grid (slice), epochs (slice): What is tried of a method's grid and numbers of epochs.
    """

    corpus: str
    limit: Optional[int] = None
    seeds: Sequence[int] = SEEDS
    grid: slice = slice(None)
    epochs: slice = slice(None)

    @property
    def where(self) -> Dict[str, Any]:
        """The first arguments of cells."""
        return {"corpus": self.corpus, "limit": self.limit}


def find_corpus() -> str:
    """The first corpus that is there.

    RAISES (FileNotFoundError): If there is none.
    """
    for name, path in CORPORA.items():
        if path.with_suffix(".train").exists():
            return name
    raise FileNotFoundError(f"assets: expected any of {', '.join(CORPORA)}, found none")


Tried = Dict[str, List[Choice]]
"""Of each method all settings that were tried."""

Choices = Dict[str, Choice]
"""Of each method the settings that were chosen."""


def tune_all(run: Runner, plan: Plan, corpus: Corpus) -> Tried:
    """Try all grids; those of methods that start from the likelihood after that."""
    first = [name for name, method in METHODS.items() if not method.from_crf]
    tried = tune_some(run, plan, corpus, first, None)
    then = [name for name, method in METHODS.items() if method.from_crf]
    tried.update(tune_some(run, plan, corpus, then, best_of(tried["crf"])))
    return {name: tried[name] for name in METHODS}


def tune_some(
    run: Runner, plan: Plan, corpus: Corpus, names: Sequence[str], crf: Optional[Choice]
) -> Tried:
    """Try the grids of some methods.

    crf (Optional[Choice]): The settings of the likelihood to start from; None for weights of 0.
    """
    tried, cells = [], []
    for name in names:
        for c, m in METHODS[name].grid[plan.grid]:
            settings = {
                **plan.where,
                "start": start_of(corpus, crf, plan.seeds[0]),
                "training": METHODS[name].training(corpus, c, m)._asdict(),
                "epochs": METHODS[name].epochs[plan.epochs],
                "seed": plan.seeds[0],
            }
            tried.append((name, c, m))
            cells.append(Cell(f"tune-{name}-{c}-{m}", tune, settings))
    found: Tried = {name: [] for name in names}
    for (name, c, m), result in zip(tried, run(cells)):
        found[name] += [Choice(c, m, n, averaged, f) for n, averaged, f in result["f"]]
    return found


def best_of(choices: Sequence[Choice]) -> Choice:
    """The best on the development data; of several the first."""
    return max(choices, key=lambda choice: choice.f)


def start_of(corpus: Corpus, crf: Optional[Choice], seed: int) -> Optional[Result]:
    """What `start_weights` takes, before it is JSON."""
    if crf is None:
        return None
    return arguments(corpus, "crf", crf, seed)


def arguments(corpus: Corpus, name: str, choice: Choice, seed: int) -> Result:
    """The arguments of `at_choice`, for a method, but for its examples."""
    training = METHODS[name].training(corpus, choice.c, choice.m)
    numbers = {"epochs": choice.epochs, "averaged": choice.averaged, "seed": seed}
    return {**training._asdict(), **numbers}


def try_all(run: Runner, plan: Plan, corpus: Corpus, choices: Choices) -> Dict[str, List[Result]]:
    """Train with the settings that were chosen; for each method the results of the seeds."""
    tried, cells = list(product(plan.seeds, METHODS)), []
    for seed, name in tried:
        crf = choices["crf"] if METHODS[name].from_crf else None
        settings = {
            **plan.where,
            "start": start_of(corpus, crf, seed),
            "settings": arguments(corpus, name, choices[name], seed),
        }
        cells.append(Cell(f"test-{name}-{seed}", try_out, settings))
    found: Dict[str, List[Result]] = {name: [] for name in METHODS}
    for (_, name), result in zip(tried, run(cells)):
        found[name].append(result)
    return found
