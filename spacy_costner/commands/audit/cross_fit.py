"""Cross-fitting: the posterior of every doc by a model that was trained on other docs."""

from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import load_model_from_config
from thinc.api import Config
from thinc.types import Array1d, Floats2d, Ints1d

from ...decoding import Posterior, Temperature, make_viterbi
from ...ml import first_pass_of
from ...pipeline.component import CostSensitiveNER
from ...pipeline.online import INTERRUPTED
from ...pipeline.token_attrs import read_docs
from ...training import check_end, prepare, train_online
from ..calibrate import fit
from ..compare import import_once
from ..dev_predictions import DevPredictions, predict_dev
from ..runs import Failed, MakeExecutor, Run, run_all

ANNOTATED = "spacy_costner_annotated"
"""In `doc.user_data`: the label of each token as annotated, by index; -1 for O, -2 if missing."""

NOT_KNOWN = -2

TEMPERATURES = (0.5, 5.0)
"""The range of temperatures: where all predictions are right, or wrong, none fits."""


class Fold(NamedTuple):
    """Docs that were held out, and their posterior.

    docs (Ints1d): Their numbers in the corpus. Shape: (D,)
    dev (DevPredictions): Their annotation and calibrated posterior, by a model trained on others.
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
        raise ValueError(f"audit: folds: expected at least 2, got {n_folds}")
    if n_docs < n_folds:
        raise ValueError(
            f"audit: folds: expected at most as many as docs, got {n_folds} folds of {n_docs} docs"
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
    make_executor: Optional[MakeExecutor] = None,
    code_path: Optional[str] = None,
    on_fold: Callable[[], object] = lambda: None,
) -> List[Fold]:
    """Train the linear model of a config once for each fold, on all other docs, by the updates of
    `spacy train`: see `training.fit_online`. Features, label memory and temperature are made anew.
    The temperature of a fold is that which fits the other folds.

    With `document` in its features, the second pass sees the annotation of a word's other
    occurrences in the doc, where it otherwise sees what a first pass predicts. It doesn't see
    that of the word itself, neither in training nor after it.

    config (Config): A config for `spacy train`. Its corpora are not read.
    docs (Sequence[Doc]): The annotated docs, none of them empty.
    n_folds (int), seed (Optional[int]): See `assign_folds`.
    n_seeds (int): Number of trainings for each fold, whose weights are averaged.
    make_executor (Optional[MakeExecutor]): Makes the executor, such as `local_processes(2)`, for
        a task a fold: see `runs.run_all`. None: one after another, in this process.
    code_path (Optional[str]): A Python file with registered functions that workers import.
    on_fold (Callable): Called after each fold.
    RETURNS (List[Fold]): The folds. Without an executor, they have the examples.
    RAISES (ValueError): If the config's component can't be fitted, there are too few docs, no
        entities, or if a worker failed.
    """
    fold = assign_folds(len(docs), n_folds, seed)
    labels = sorted({ent.label_ for doc in docs for ent in doc.ents})
    if not labels:
        raise ValueError("audit: expected docs with annotated entities, got none")
    found: Dict[str, Fold] = {}
    if make_executor is None:
        for i in range(n_folds):
            found[str(i)] = _fit_fold(docs, fold == i, labels, config, n_seeds)
            on_fold()
    else:
        shared = (DocBin(docs=docs, store_user_data=True).to_bytes(), labels, config, n_seeds)
        given = dict(zip(("docs", "labels", "config", "n_seeds"), shared), code_path=code_path)
        runs = [Run(str(i), fit_fold, {**given, "is_held_out": fold == i}) for i in range(n_folds)]
        for run, ended in run_all(runs, make_executor):
            if isinstance(ended, Failed):
                raise ValueError(f"audit: fold {run.name}: {ended.reason}")
            found[run.name] = ended.value
            on_fold()
    return _calibrated([found[str(i)] for i in range(n_folds)])


def fit_fold(docs: bytes, config: Config, code_path: Optional[str], **settings: Any) -> Fold:
    """What a worker does: see `_fit_fold`. It returns no examples.

    docs (bytes): All docs, as a `DocBin`.
    config (Config): The config. Docs have the vocabulary of its language.
    code_path (Optional[str]): A Python file to be imported.
    """
    import_once(code_path)
    vocab = load_model_from_config(config, auto_fill=True).vocab
    every = list(DocBin().from_bytes(docs).get_docs(vocab))
    fold = _fit_fold(every, config=config, **settings)
    return fold._replace(dev=fold.dev._replace(examples=[]))


def _fit_fold(
    docs: Sequence[Doc],
    is_held_out: Array1d,
    labels: Sequence[str],
    config: Config,
    n_seeds: int,
) -> Fold:
    """Train on the other docs, and predict those that are held out."""
    inside, outside = numpy.flatnonzero(~is_held_out), numpy.flatnonzero(is_held_out)
    nlp, name = _train([docs[j] for j in inside.tolist()], labels, config, n_seeds)
    held_out = _examples(nlp, [docs[j] for j in outside.tolist()], labels)
    return Fold(outside, predict_dev(nlp, name, held_out))


def _train(
    docs: Sequence[Doc], labels: Sequence[str], config: Config, n_seeds: int
) -> Tuple[Language, str]:
    """Train on docs. Returns the pipeline and the name of the component."""

    def before(nlp: Language, ner: CostSensitiveNER) -> None:
        check_end(nlp)
        nlp.config["initialize"]["components"].setdefault(ner.name, {})["labels"] = list(labels)
        if first_pass := first_pass_of(ner.model):
            first_pass.read_labels = partial(_read_labels, n_labels=len(labels))

    ready = prepare(config.copy(), None, before, lambda nlp: _examples(nlp, docs, labels))
    if train_online(ready, n_seeds=n_seeds).reason == INTERRUPTED:
        raise KeyboardInterrupt
    return ready.nlp, ready.ner.name


def _examples(nlp: Language, docs: Sequence[Doc], labels: Sequence[str]) -> List[Example]:
    """Examples of docs with the tokens of their annotation."""
    number: Dict[int, int] = {nlp.vocab.strings.add(label): i for i, label in enumerate(labels)}
    examples = []
    for doc in docs:
        tokens = read_docs([doc])
        label = [number.get(key, -1) for key in tokens.label.tolist()]
        words = [token.text for token in doc]
        predicted = Doc(nlp.vocab, words=words, spaces=[bool(token.whitespace_) for token in doc])
        predicted.user_data[ANNOTATED] = numpy.where(tokens.is_annotated, label, NOT_KNOWN)
        examples.append(Example(predicted, doc))
    return examples


def _read_labels(docs: Sequence[Doc], n_labels: int) -> Floats2d:
    """The labels as annotated: see `FirstPass`. Shape: (N, L + 1)"""
    label = numpy.concatenate([doc.user_data[ANNOTATED] for doc in docs])
    return (label[:, None] == numpy.arange(-1, n_labels)).astype("float32")


def _calibrated(folds: List[Fold]) -> List[Fold]:
    """Set the temperature of each fold: the geometric mean of those that fit the others."""
    logs = numpy.log(numpy.clip([_fit_temperature(fold.dev) for fold in folds], *TEMPERATURES))
    others = (logs.sum() - logs) / (len(logs) - 1)
    return [
        fold._replace(dev=fold.dev._replace(posterior=_at(fold.dev.posterior, temperature)))
        for fold, temperature in zip(folds, numpy.exp(others).tolist())
    ]


def _fit_temperature(dev: DevPredictions) -> float:
    predicted = dev.decode(make_viterbi())
    if not len(predicted.begin):
        return 1.0
    return fit(dev.posterior, predicted, dev.right(predicted), per_label=False).overall


def _at(posterior: Posterior, temperature: float) -> Posterior:
    return Posterior(
        posterior.scores,
        posterior.tags,
        temperature=Temperature(temperature),
        is_space=posterior.is_space,
    )
