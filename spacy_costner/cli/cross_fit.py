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

from ..decoding import Temperature
from ..ml import first_pass_of
from ..pipeline.component import CostSensitiveNER
from ..readers.sentences import copy_tokens
from ..training.online import INTERRUPTED
from ..training.token_attrs import read_docs
from .calibrate import fit_temperature, predict_best
from .compare import import_once
from .predictions import DevPredictions, predict_dev
from .preparation import check_end, prepare, train_online
from .runs import Failed, MakeExecutor, Run, run_all

Before = Callable[[CostSensitiveNER], object]
"""Is called with a component before it is initialized. Workers need to import it."""

ANNOTATED = "spacy_costner_annotated"
"""In `doc.user_data`: the label of each token as annotated, by index; -1 for O, -2 if missing."""

TEMPERATURES = (0.5, 5.0)
"""The range of temperatures: where all predictions are right, or wrong, none fits."""


class Fold(NamedTuple):
    """Docs that were held out: their numbers in the corpus, shape (D,), and their annotation and
    posterior, by a model that was trained on the others."""

    docs: Ints1d
    dev: DevPredictions


def cross_fit(
    config: Config, docs: Sequence[Doc], *, n_folds: int = 5, **settings: Any
) -> List[Fold]:
    """Audit docs, none of them empty, by models that have not seen them: see `hold_out`. The
    temperature of a fold is the geometric mean of the temperatures that fit the other folds.

    With `document` in its features, the second pass sees the annotation of a word's other
    occurrences in the doc, where it otherwise sees what a first pass predicts. It doesn't see
    that of the word itself, neither in training nor after it.

    RAISES (ValueError): See `hold_out`, or if there are no entities.
    """
    assign_folds(len(docs), n_folds)
    labels = sorted({ent.label_ for doc in docs for ent in doc.ents})
    if not labels:
        raise ValueError("audit: expected docs with annotated entities, got none")
    examples = [Example(with_annotation(doc, labels), doc) for doc in docs]
    before = partial(read_annotation, n_labels=len(labels))
    folds = hold_out(config, examples, labels, n_folds=n_folds, before=before, **settings)

    predicted = [predict_best(fold.dev) for fold in folds]
    temperatures = [
        fit_temperature([each], per_label=False).overall if len(each[2]) else 1.0
        for each in predicted
    ]
    logs = numpy.log(numpy.clip(temperatures, *TEMPERATURES))
    others = numpy.exp((logs.sum() - logs) / (len(logs) - 1)).tolist()
    return [
        fold._replace(dev=fold.dev.at(Temperature(temperature)))
        for fold, temperature in zip(folds, others)
    ]


def hold_out(
    config: Config,
    examples: Sequence[Example],
    labels: Sequence[str],
    *,
    n_folds: int,
    n_seeds: int = 1,
    seed: Optional[int] = None,
    before: Optional[Before] = None,
    make_executor: Optional[MakeExecutor] = None,
    code_path: Optional[str] = None,
    on_fold: Callable[[], object] = lambda: None,
) -> List[Fold]:
    """Train the linear model of a config once for each fold, on all other docs, by the updates of
    `spacy train`: see `train_online`. Features, label memory and first pass are made anew.

    examples (Sequence[Example]): The docs, none of them empty. Only the tokens and the user data
        of the predicted docs are taken.
    n_seeds (int): Number of trainings for each fold, whose weights are averaged.
    before (Optional[Before]): Called with each component before it is initialized.
    make_executor (Optional[MakeExecutor]): Makes the executor, such as `local_processes(2)`, for
        a task a fold. None: one after another, in this process; folds then have the examples.
    code_path (Optional[str]): A Python file with registered functions that workers import.
    RAISES (ValueError): If the config's component can't be fitted, there are too few docs, or a
        worker failed.
    """
    fold_of = assign_folds(len(examples), n_folds, seed)
    settings: Any = {"config": config, "labels": labels, "n_seeds": n_seeds, "before": before}
    folds: Dict[str, Fold] = {}
    if make_executor is None:
        for i in range(n_folds):
            folds[str(i)] = fit_fold(examples, fold_of == i, **settings)
            on_fold()
    else:
        sides = [eg.predicted for eg in examples], [eg.reference for eg in examples]
        docs = tuple(DocBin(docs=side, store_user_data=True).to_bytes() for side in sides)
        settings.update(docs=docs, code_path=code_path)
        runs = [
            Run(str(i), work, {**settings, "is_held_out": fold_of == i}) for i in range(n_folds)
        ]
        for run, ended in run_all(runs, make_executor):
            if isinstance(ended, Failed):
                raise ValueError(f"fold {run.name}: {ended.reason}")
            folds[run.name] = ended.value
            on_fold()
    return [folds[str(i)] for i in range(n_folds)]


def assign_folds(n_docs: int, n_folds: int, seed: Optional[int] = None) -> Ints1d:
    """The fold of each doc, in blocks or, with a seed, drawn by chance. Shape: (D,)

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


def work(
    docs: Tuple[bytes, bytes], config: Config, code_path: Optional[str], **settings: Any
) -> Fold:
    """Fit a fold in a worker. All docs, predicted and reference, come as two `DocBin`s; no
    examples are returned."""
    import_once(code_path)
    vocab = load_model_from_config(config, auto_fill=True).vocab
    predicted, reference = (DocBin().from_bytes(side).get_docs(vocab) for side in docs)
    fold = fit_fold(list(map(Example, predicted, reference)), config=config, **settings)
    return fold._replace(dev=fold.dev._replace(examples=[]))


def fit_fold(
    examples: Sequence[Example],
    is_held_out: Array1d,
    labels: Sequence[str],
    config: Config,
    n_seeds: int,
    before: Optional[Before],
) -> Fold:
    """Train on the other docs, and predict those that are held out. Shape of these: (D,)"""
    inside, outside = numpy.flatnonzero(~is_held_out), numpy.flatnonzero(is_held_out)

    def check(nlp: Language, ner: CostSensitiveNER) -> None:
        check_end(nlp)
        nlp.config["initialize"]["components"].setdefault(ner.name, {})["labels"] = list(labels)
        if before is not None:
            before(ner)

    def copies(which: Ints1d, nlp: Language) -> List[Example]:
        """Some of the examples, with predicted docs of the pipeline's vocab."""
        chosen = []
        for eg in (examples[i] for i in which.tolist()):
            words = [token.text for token in eg.predicted]
            spaces = [bool(token.whitespace_) for token in eg.predicted]
            predicted = Doc(nlp.vocab, words, spaces, user_data=dict(eg.predicted.user_data))
            chosen.append(Example(predicted, eg.reference))
        return chosen

    ready = prepare(config.copy(), None, check, partial(copies, inside))
    if train_online(ready, n_seeds=n_seeds).reason == INTERRUPTED:
        raise KeyboardInterrupt
    return Fold(outside, predict_dev(ready.nlp, ready.ner.name, copies(outside, ready.nlp)))


# In an audit, the annotation takes the place of a first pass.


def with_annotation(doc: Doc, labels: Sequence[str]) -> Doc:
    """The tokens of a doc, with their labels in its user data: see `ANNOTATED`."""
    number: Dict[int, int] = {doc.vocab.strings.add(label): i for i, label in enumerate(labels)}
    tokens, copy = read_docs([doc]), copy_tokens(doc)
    label = [number.get(key, -1) for key in tokens.label.tolist()]
    copy.user_data[ANNOTATED] = numpy.where(tokens.is_annotated, label, -2)
    return copy


def read_annotation(ner: CostSensitiveNER, n_labels: int) -> None:
    """Have a component's first pass read the labels as annotated."""
    if first_pass := first_pass_of(ner.model):
        first_pass.read_labels = partial(read_labels, n_labels=n_labels)


def read_labels(docs: Sequence[Doc], n_labels: int) -> Floats2d:
    """The labels as annotated: see `FirstPass`. Shape: (N, L + 1)"""
    label = numpy.concatenate([doc.user_data[ANNOTATED] for doc in docs])
    return (label[:, None] == numpy.arange(-1, n_labels)).astype("float32")
