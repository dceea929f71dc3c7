"""What is trained for the experiment with the Z-score: by sequences of hidden Markov models, and on
CoNLL-2002 Spanish."""

import random
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

import numpy
import spacy
from numpy.random import default_rng
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Floats1d

from spacy_costner.costs.tables import HAMMING
from spacy_costner.ml import linear_part
from spacy_costner.training import ZScoreEquations, solve

from .chains import (
    HMM,
    Sequences,
    best_hamming_z_score,
    best_z_score,
    features_as_matrix,
    largest_margin,
    most_likely,
    random_hmm,
)
from .corpora import ASSETS, as_examples, read_docs
from .tagger import FLAGS, Tagger, features_of, linear_block, loss_block, make_tagger
from .training import BEST_PATH, fit_online, predict

Z, Z_100, Z_H, MM_H, CRF = "Z-score", "Z-score (100)", "Z-score (H)", "MM (H)", "CRF"
TRUE, ALL_O = "true HMM", "O for everything"

C2 = 1e-3
CRF_C2 = 1e-2
MARGIN = {"c": 1.0, "tolerance": 1e-3}

N_TEST = 100

LONG = 100
N_TRAINING = 50
KINDS: Dict[str, Dict[str, Any]] = {
    "any": {},
    "states that are equally frequent": {"balanced": True},
    "transitions that are nearly even": {"transitions": 20.0, "emissions": 0.3},
}
N_JUDGING = 1000
NEAR = 0.1
MOST_DRAWN = 20_000


def measured(train: Sequences, test: Sequences, *, sampled: bool) -> Dict[str, List[float]]:
    """Train by each method. Those with a penalty have the same everywhere.

    train (Sequences), test (Sequences): The data.
    sampled (bool): Whether by sampled paths too.
    RETURNS (Dict[str, List[float]]): Of each method the test error, the seconds of training.
    """
    methods: Dict[str, Callable[[], Floats1d]] = {
        Z: lambda: best_z_score(train, c2=C2),
        Z_H: lambda: best_hamming_z_score(train, c2=C2),
        MM_H: lambda: largest_margin(train, **MARGIN).vector,
        CRF: lambda: most_likely(train, c2=CRF_C2),
    }
    if sampled:
        methods[Z_100] = lambda: best_z_score(train, c2=C2, n_sampled=100)
    found = {}
    for name, method in methods.items():
        began = time.process_time()
        weights = method()
        seconds = time.process_time() - began
        found[name] = [test.error(weights), seconds]
    return found


def mean_of(found: Iterable[Mapping[str, Sequence[float]]]) -> Dict[str, List[float]]:
    """The means of what was measured several times."""
    rows = list(found)
    return {name: numpy.mean([row[name] for row in rows], axis=0).tolist() for name in rows[0]}


def short_sequences(size: int, n_runs: int) -> Dict[str, Any]:
    """Figure 1: sequences of 10 tokens, of HMMs of 3 states and 4 symbols, another one in each run.

    size (int): How many sequences are trained on.
    n_runs (int): Runs.
    RETURNS (Dict[str, Any]): The means of "methods".
    """
    found = []
    for run in range(n_runs):
        rng = default_rng([1, run])
        hmm = random_hmm(3, 4, rng)
        test, train = hmm.sample(N_TEST, 10, rng), hmm.sample(size, 10, rng)
        true = {TRUE: [test.error(hmm.weights), 0.0]}
        found.append({**true, **measured(train, test, sampled=False)})
    return {"methods": mean_of(found)}


def long_sequences(
    error: float, n_symbols: int, kind: str, n_hmms: int, n_runs: int
) -> Dict[str, Any]:
    """Table 1: sequences of 100 tokens, of HMMs of 2 states that are as hard as the paper's.

    error (float), n_symbols (int): See `hmms_as_hard`.
    kind (str): See `KINDS`.
    n_hmms (int), n_runs (int): How many of them, and how often each is trained.
    RETURNS (Dict[str, Any]): The means of "methods", and those "of_each" HMM; how many were
        "drawn".
    """
    hmms, n_drawn = hmms_as_hard(error, n_symbols, n_hmms, **KINDS[kind])
    of_each = []
    for i, hmm in enumerate(hmms):
        found = []
        for run in range(n_runs):
            rng = default_rng([3, n_symbols, i, run])
            train, test = hmm.sample(N_TRAINING, LONG, rng), hmm.sample(N_TEST, LONG, rng)
            true = {TRUE: [test.error(hmm.weights), 0.0]}
            found.append({**true, **measured(train, test, sampled=True)})
        of_each.append(mean_of(found))
    return {"methods": mean_of(of_each), "of_each": of_each, "drawn": n_drawn}


def hmms_as_hard(error: float, n_symbols: int, n: int, **settings: Any) -> Tuple[List[HMM], int]:
    """Draw HMMs of 2 states until there are so many whose own error is as wanted.

    error (float): The error of the best path under the true probabilities, in per cent, with
        a tolerance of NEAR.
    n_symbols (int), **settings (Any): See `random_hmm`.
    n (int): How many.
    RETURNS (Tuple[List[HMM], int]): The HMMs, and how many were drawn.
    RAISES (ValueError): If they are too rare.
    """
    found: List[HMM] = []
    for n_drawn in range(1, MOST_DRAWN + 1):
        rng = default_rng([2, n_symbols, n_drawn])
        hmm = random_hmm(2, n_symbols, rng, **settings)
        if all(
            abs(hmm.sample(size, LONG, rng).error(hmm.weights) - error) < tolerance
            for size, tolerance in ((N_JUDGING // 20, 10 * NEAR), (N_JUDGING, NEAR))
        ):
            found.append(hmm)
        if len(found) == n:
            return found, n_drawn
    raise ValueError(f"hmms_as_hard: error: expected one that occurs, got {error}")


N_SENTENCES = 300
N_FOLDS = 5
N_SAMPLED = 150
TIMED_C2 = 0.1
EPOCHS = 10
S2 = features_of("z_score")
FEATURES: Dict[str, Dict[str, Any]] = {
    "S1": {**S2, "windows": {"ORTH": 0}},
    "S2": S2,
    "S2+": {**S2, "windows": {"ORTH": 1, "flags": 1}, "flags": FLAGS},
}
Z_SCORE, MAX_MARGIN = loss_block("ZScore"), loss_block("MaxMargin", cost=HAMMING)
SOURCES = {
    "shuffled": "the first 300 sentences of the training set, shuffled, in 5 folds",
    "blocks": "the first 300 sentences in 5 folds of 60 that follow each other",
    "drawn": "300 sentences drawn from the training set, in 5 folds",
}


class Setting(NamedTuple):
    """What a model of the named entities is trained with.

    c2 (float): Weight of the penalty.
    step (float): The value of a transition as a feature; its penalty is c2 / step^2 then, and
        at 0 it has no weight.
    o_after_o (bool): Whether the transition from O to O has a weight.
    legal (bool): Whether only legal paths are possible.
    """

    c2: float
    step: float = 1.0
    o_after_o: bool = True
    legal: bool = False

    def of(self, sequences: Sequences, linear: Tagger) -> Sequences:
        """Sequences as this has them."""
        steps = numpy.full((sequences.n_tags, sequences.n_tags), self.step)
        if not self.o_after_o:
            steps[0, 0] = 0.0
        constraints = linear.ner.tags.constraints if self.legal else sequences.constraints
        return sequences._replace(steps=steps, constraints=constraints)


class Method(NamedTuple):
    """A row of table 2.

    train (Callable): Takes sequences and c2 to weights.
    settings (List[Setting]): What to choose from on a fold of the training data.
    """

    train: Callable[..., Floats1d]
    settings: List[Setting]

    def error(self, linear: Tagger, setting: Setting, train: Sequences, test: Sequences) -> float:
        """Train, and count the errors, in per cent."""
        weights = self.train(setting.of(train, linear), c2=setting.c2)
        return setting.of(test, linear).error(weights)


PENALTIES = (1e-2, 1e-1, 1.0)
LOW_PENALTIES = (1e-3, 1e-2, 1e-1)
APART = "Z-score, transitions penalised more"
METHODS = {
    Z: Method(best_z_score, [Setting(c2) for c2 in PENALTIES]),
    "Z-score, legal paths only": Method(
        best_z_score, [Setting(c2, legal=True) for c2 in PENALTIES]
    ),
    "Z-score without O after O": Method(
        best_z_score, [Setting(c2, o_after_o=False) for c2 in PENALTIES]
    ),
    "Z-score without transitions": Method(best_z_score, [Setting(c2, 0.0) for c2 in PENALTIES]),
    APART: Method(
        best_z_score, [Setting(c2, step) for c2 in (1e-2, 1e-1) for step in (1e-1, 1e-2, 1e-3)]
    ),
    Z_H: Method(best_hamming_z_score, [Setting(c2) for c2 in LOW_PENALTIES]),
    CRF: Method(most_likely, [Setting(c2) for c2 in PENALTIES[:2]]),
}


def folds(source: str) -> List[List[Doc]]:
    """The sentences, in 5 folds.

    source (str): Which, and in which order: see `SOURCES`.
    """
    limit = None if source == "drawn" else N_SENTENCES
    path = ASSETS / "conll2002_es" / "esp.train"
    docs = read_docs(path, spacy.blank("xx").vocab, 0, limit)
    if source != "blocks":
        docs = random.Random(0).sample(docs, N_SENTENCES)
    size = N_SENTENCES // N_FOLDS
    return [docs[i : i + size] for i in range(0, N_SENTENCES, size)]


def as_sequences(linear: Tagger, docs: Sequence[Doc]) -> Sequences:
    """Docs as sequences.

    linear (Tagger): Says what the features and the tags are.
    docs (Sequence[Doc]): The docs, annotated.
    """
    features, weights = linear_part(linear.ner.model)
    number = {name: i for i, name in enumerate(linear.ner.tags.names)}
    tags = [number[tag] for doc in docs for tag in tags_of(doc)]
    return Sequences(
        features_as_matrix(features.find(docs).rows, weights.n_features),
        numpy.asarray(tags, dtype="int32"),
        numpy.asarray([len(doc) for doc in docs], dtype="int32"),
        numpy.ones((len(number), len(number))),
    )


def tags_of(doc: Doc) -> List[str]:
    """The IOB2 tag of each token."""
    return [f"{t.ent_iob_}-{t.ent_type_}" if t.ent_type_ else "O" for t in doc]


def named_entities(source: str, features: str, fold: int) -> Dict[str, Any]:
    """Table 2: train on all folds but one by each method, and count its errors on that one. What
    there is to choose is chosen by training on three of the four and counting on the fourth.

    source (str), features (str): See `SOURCES` and `FEATURES`.
    fold (int): Which fold is the test set.
    RETURNS (Dict[str, Any]): How many "tokens" there are; of each of the "methods" its error in per
        cent and the chosen setting; and of the first of them the "largest" weights.
    """
    parts = folds(source)
    test, held_out = parts[fold], parts[(fold + 1) % N_FOLDS]
    inner = [doc for part in parts if part not in (test, held_out) for doc in part]
    train = inner + held_out
    linear = make_tagger(as_examples(train), model=linear_block(FEATURES[features]))
    three, fourth, four, fifth = (
        as_sequences(linear, docs) for docs in (inner, held_out, train, test)
    )
    found: Dict[str, List[Any]] = {ALL_O: [100 * float((fifth.tags != 0).mean()), None]}
    for name, method in METHODS.items():
        errors = [method.error(linear, each, three, fourth) for each in method.settings]
        best = method.settings[int(numpy.argmin(errors))]
        found[name] = [method.error(linear, best, four, fifth), list(best)]
    margin = fitted_margin(train, features)
    found[MM_H] = [token_error(predict(margin, test)[BEST_PATH]), None]
    plain = best_z_score(four, c2=C2).reshape(-1, four.n_tags)
    largest = [float(plain[-four.n_tags, 0]), float(plain[: -four.n_tags].max())]
    return {"tokens": len(fifth.tags), "methods": found, "largest": largest}


def fitted_margin(train: Sequence[Doc], features: str) -> Tagger:
    """The margin method with the Hamming loss as the library has it: by online training."""
    examples = as_examples(train)
    linear = make_tagger(examples, model=linear_block(FEATURES[features]), loss=MAX_MARGIN)
    fit_online(linear, examples, lambda **facts: None, epochs=[EPOCHS])
    return linear


def token_error(found: Iterable[Example]) -> float:
    """How many tags are wrong, in per cent."""
    pairs = [
        (tag, answer)
        for eg in found
        for tag, answer in zip(tags_of(eg.reference), tags_of(eg.predicted))
    ]
    return 100 * sum(tag != answer for tag, answer in pairs) / len(pairs)


def training_times(features: str) -> Dict[str, Any]:
    """How long the library's own training takes, on four of the shuffled folds: the Z-score by
    `ZScoreEquations`, with all paths and with sampled ones, and the margin.

    features (str): See `FEATURES`.
    RETURNS (Dict[str, Any]): Of each of the "methods" the error on the fifth fold and the seconds.
    """
    test, *others = folds("shuffled")
    train = [doc for part in others for doc in part]
    examples = as_examples(train)
    found = {}
    for name, n_sampled in (("exact", None), ("sampled", N_SAMPLED)):
        linear = make_tagger(examples, model=linear_block(FEATURES[features]), loss=Z_SCORE)
        began = time.process_time()
        equations = ZScoreEquations(linear.ner, examples, c2=TIMED_C2, n_sampled=n_sampled)
        equations.write_weights(solve(equations, equations.right).vector)
        seconds = time.process_time() - began
        found[name] = [token_error(predict(linear, test)[BEST_PATH]), seconds]
    began = time.process_time()
    linear = fitted_margin(train, features)
    seconds = time.process_time() - began
    found["margin"] = [token_error(predict(linear, test)[BEST_PATH]), seconds]
    return {"methods": found}
