"""Cross-fitting: the posterior of every doc by a model that was trained on other docs."""

from functools import partial
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Config
from thinc.types import Floats2d, Ints1d

from ..decoding import Temperature
from ..ml import first_pass_of
from ..pipeline.component import CostSensitiveNER
from ..pipeline.online import INTERRUPTED
from ..pipeline.token_attrs import read_docs
from ..readers.sentences import copy_tokens
from ..training import check_end, prepare, train_online
from .calibrate import fit, predicted_part
from .dev_predictions import DevPredictions, predict_dev

ANNOTATED = "spacy_costner_annotated"
"""In `doc.user_data`: the label of each token as annotated, by index; -1 for O, -2 if missing."""

NOT_KNOWN = -2

TEMPERATURES = (0.5, 5.0)
"""The range of temperatures: where all predictions are right, or wrong, none fits."""


class Fold(NamedTuple):
    """Docs that were held out, and their posterior.

    docs (Ints1d): Their numbers in the corpus. Shape: (D,)
    dev (DevPredictions): Their annotation and posterior, by a model trained on others.
    """

    docs: Ints1d
    dev: DevPredictions


def assign_folds(n_docs: int, n_folds: int, seed: Optional[int] = None) -> Ints1d:
    """Divide docs into folds of about as many docs.

    n_docs (int): D, the number of docs.
    n_folds (int): The number of folds, at least 2.
    seed (Optional[int]): Draw them by chance. None: each fold is a block of docs in their order.
    RETURNS (Ints1d): The fold of each doc. Shape: (D,)
    RAISES (ValueError): If there are fewer folds than 2, or fewer docs than folds.
    """
    if n_folds < 2:
        raise ValueError(f"folds: expected at least 2, got {n_folds}")
    if n_docs < n_folds:
        raise ValueError(
            f"folds: expected at most as many as docs, got {n_folds} folds of {n_docs} docs"
        )
    folds = numpy.arange(n_docs) * n_folds // n_docs
    return folds if seed is None else numpy.random.default_rng(seed).permutation(folds)


def cross_fit(
    config: Config,
    docs: Sequence[Doc],
    *,
    n_folds: int = 5,
    n_seeds: int = 1,
    seed: Optional[int] = None,
    on_fold: Callable[[], object] = lambda: None,
) -> List[Fold]:
    """Audit docs by models that have not seen them: see `hold_out`. The temperature of a fold is
    that which fits the other folds.

    With `document` in its features, the second pass sees the annotation of a word's other
    occurrences in the doc, where it otherwise sees what a first pass predicts. It doesn't see
    that of the word itself, neither in training nor after it.

    config (Config), n_folds (int), n_seeds (int), seed (Optional[int]), on_fold (Callable): See
        `hold_out`.
    docs (Sequence[Doc]): The annotated docs, none of them empty.
    RETURNS (List[Fold]): The folds, with calibrated posteriors.
    RAISES (ValueError): See `hold_out`, or if there are no entities.
    """
    assign_folds(len(docs), n_folds, seed)
    labels = sorted({ent.label_ for doc in docs for ent in doc.ents})
    if not labels:
        raise ValueError("audit: expected docs with annotated entities, got none")

    def read_annotation(ner: CostSensitiveNER) -> None:
        if first_pass := first_pass_of(ner.model):
            first_pass.read_labels = partial(_read_labels, n_labels=len(labels))

    examples = [Example(_with_annotation(doc, labels), doc) for doc in docs]
    folds = hold_out(
        config,
        examples,
        labels,
        n_folds=n_folds,
        n_seeds=n_seeds,
        seed=seed,
        before=read_annotation,
        on_fold=on_fold,
    )
    return _calibrated(folds)


def hold_out(
    config: Config,
    examples: Sequence[Example],
    labels: Sequence[str],
    *,
    n_folds: int,
    n_seeds: int = 1,
    seed: Optional[int] = None,
    before: Callable[[CostSensitiveNER], object] = lambda ner: None,
    on_fold: Callable[[], object] = lambda: None,
) -> List[Fold]:
    """Train the linear model of a config once for each fold, on all other docs, by the updates of
    `spacy train`: see `training.fit_online`. Features, label memory and first pass are made anew.

    config (Config): A config for `spacy train`. Its corpora are not read.
    examples (Sequence[Example]): The docs, none of them empty. Only the tokens and the user data
        of the predicted docs are taken.
    labels (Sequence[str]): The labels.
    n_folds (int), seed (Optional[int]): See `assign_folds`.
    n_seeds (int): Number of trainings for each fold, whose weights are averaged.
    before (Callable): Called with each component before it is initialized.
    on_fold (Callable): Called after each fold.
    RETURNS (List[Fold]): The folds, with the posteriors that the models have without calibration.
    RAISES (ValueError): If the config's component can't be fitted, or there are too few docs.
    """

    def check(nlp: Language, ner: CostSensitiveNER) -> None:
        check_end(nlp)
        nlp.config["initialize"]["components"].setdefault(ner.name, {})["labels"] = list(labels)
        before(ner)

    fold_of, found = assign_folds(len(examples), n_folds, seed), []
    for i in range(n_folds):
        inside, outside = numpy.flatnonzero(fold_of != i), numpy.flatnonzero(fold_of == i)
        ready = prepare(config.copy(), None, check, partial(_copies, examples, inside))
        if train_online(ready, n_seeds=n_seeds).reason == INTERRUPTED:
            raise KeyboardInterrupt
        held_out = _copies(examples, outside, ready.nlp)
        found.append(Fold(outside, predict_dev(ready.nlp, ready.ner.name, held_out)))
        on_fold()
    return found


def _copies(examples: Sequence[Example], which: Ints1d, nlp: Language) -> List[Example]:
    """Some of the examples, with predicted docs of a pipeline's vocab."""
    copies = []
    for i in which.tolist():
        doc = examples[i].predicted
        spaces = [bool(token.whitespace_) for token in doc]
        predicted = Doc(nlp.vocab, words=[token.text for token in doc], spaces=spaces)
        predicted.user_data.update(doc.user_data)
        copies.append(Example(predicted, examples[i].reference))
    return copies


def _with_annotation(doc: Doc, labels: Sequence[str]) -> Doc:
    """The tokens of a doc, with their labels in its user data: see `ANNOTATED`."""
    number: Dict[int, int] = {doc.vocab.strings.add(label): i for i, label in enumerate(labels)}
    tokens, copy = read_docs([doc]), copy_tokens(doc)
    label = [number.get(key, -1) for key in tokens.label.tolist()]
    copy.user_data[ANNOTATED] = numpy.where(tokens.is_annotated, label, NOT_KNOWN)
    return copy


def _read_labels(docs: Sequence[Doc], n_labels: int) -> Floats2d:
    """The labels as annotated: see `FirstPass`. Shape: (N, L + 1)"""
    label = numpy.concatenate([doc.user_data[ANNOTATED] for doc in docs])
    return (label[:, None] == numpy.arange(-1, n_labels)).astype("float32")


def _calibrated(folds: List[Fold]) -> List[Fold]:
    """Set the temperature of each fold: the geometric mean of those that fit the others."""
    logs = numpy.log(numpy.clip([_fit_temperature(fold.dev) for fold in folds], *TEMPERATURES))
    others = (logs.sum() - logs) / (len(logs) - 1)
    return [
        fold._replace(dev=fold.dev.at(Temperature(temperature)))
        for fold, temperature in zip(folds, numpy.exp(others).tolist())
    ]


def _fit_temperature(dev: DevPredictions) -> float:
    part = predicted_part(dev)
    return fit([part], per_label=False).overall if len(part[2]) else 1.0
