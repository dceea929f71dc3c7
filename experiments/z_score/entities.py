"""CoNLL-2002 Spanish as the Z-score's paper has it: table 2 and the times of training."""

import random
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence

import numpy
import spacy
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Floats1d

from spacy_costner.fit import ZScoreEquations, solve
from spacy_costner.layers import linear_part

from ..cells import Result
from ..corpora import as_examples, conll2002
from ..linear import fit_online, make_linear
from ..tagger import Tagger, answers, features_of
from .chains import (
    Sequences,
    best_hamming_z_score,
    best_z_score,
    features_as_matrix,
    most_likely,
)
from .markov import C2
from .published import ALL_O, CRF, MM_H, Z_H, Z

N_SENTENCES = 300
N_FOLDS = 5
N_SAMPLED = 150
TIMED_C2 = 0.1
EPOCHS = 10
FLAGS = ["is_first_upper", "IS_UPPER", "IS_DIGIT", "has_digit", "has_hyphen"]
S2 = features_of("z_score")
FEATURES: Dict[str, Dict[str, Any]] = {
    "S1": {**S2, "windows": {"ORTH": 0}},
    "S2": S2,
    "S2+": {**S2, "windows": {"ORTH": 1, "flags": 1}, "flags": FLAGS},
}
Z_SCORE = {"@losses": "spacy_costner.ZScore.v1"}
MAX_MARGIN = {
    "@losses": "spacy_costner.MaxMargin.v1",
    "cost": {"@misc": "spacy_costner.HammingCost.v1"},
}
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
    docs = conll2002(spacy.blank("xx").vocab, limit)["train"]
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


def named_entities(source: str, features: str, fold: int) -> Result:
    """Table 2: train on all folds but one by each method, and count its errors on that one. What
    there is to choose is chosen by training on three of the four and counting on the fourth.

    source (str), features (str): See `SOURCES` and `FEATURES`.
    fold (int): Which fold is the test set.
    RETURNS (Result): How many "tokens" there are; of each of the "methods" its error in per
        cent and the chosen setting; and of the first of them the "largest" weights.
    """
    parts = folds(source)
    test, held_out = parts[fold], parts[(fold + 1) % N_FOLDS]
    inner = [doc for part in parts if part not in (test, held_out) for doc in part]
    train = inner + held_out
    linear = make_linear(as_examples(train), features=FEATURES[features])
    three, fourth, four, fifth = (
        as_sequences(linear, docs) for docs in (inner, held_out, train, test)
    )
    found: Dict[str, List[Any]] = {ALL_O: [100 * float((fifth.tags != 0).mean()), None]}
    for name, method in METHODS.items():
        errors = [method.error(linear, each, three, fourth) for each in method.settings]
        best = method.settings[int(numpy.argmin(errors))]
        found[name] = [method.error(linear, best, four, fifth), list(best)]
    margin = fitted_margin(train, features)
    found[MM_H] = [token_error(answers(margin, test)), None]
    plain = best_z_score(four, c2=C2).reshape(-1, four.n_tags)
    largest = [float(plain[-four.n_tags, 0]), float(plain[: -four.n_tags].max())]
    return {"tokens": len(fifth.tags), "methods": found, "largest": largest}


def fitted_margin(train: Sequence[Doc], features: str) -> Tagger:
    """The margin method with the Hamming loss as the library has it: by online training."""
    examples = as_examples(train)
    linear = make_linear(examples, features=FEATURES[features], loss=MAX_MARGIN)
    fit_online(linear, examples, epochs=EPOCHS)
    return linear


def token_error(found: Iterable[Example]) -> float:
    """How many tags are wrong, in per cent."""
    pairs = [
        (tag, answer)
        for eg in found
        for tag, answer in zip(tags_of(eg.reference), tags_of(eg.predicted))
    ]
    return 100 * sum(tag != answer for tag, answer in pairs) / len(pairs)


def training_times(features: str) -> Result:
    """How long the library's own training takes, on four of the shuffled folds: the Z-score by
    `ZScoreEquations`, with all paths and with sampled ones, and the margin.

    features (str): See `FEATURES`.
    RETURNS (Result): Of each of the "methods" the error on the fifth fold and the seconds.
    """
    test, *others = folds("shuffled")
    train = [doc for part in others for doc in part]
    examples = as_examples(train)
    found = {}
    for name, n_sampled in (("exact", None), ("sampled", N_SAMPLED)):
        linear = make_linear(examples, features=FEATURES[features], loss=Z_SCORE)
        began = time.process_time()
        equations = ZScoreEquations(linear.ner, examples, c2=TIMED_C2, n_sampled=n_sampled)
        equations.write_weights(solve(equations, equations.right).vector)
        seconds = time.process_time() - began
        found[name] = [token_error(answers(linear, test)), seconds]
    began = time.process_time()
    linear = fitted_margin(train, features)
    seconds = time.process_time() - began
    found["margin"] = [token_error(answers(linear, test)), seconds]
    return {"methods": found}
