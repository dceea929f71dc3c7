"""Hold out folds: predict docs with models that were trained on the other docs.

Folds are parts of the docs of about the same size. To hold out a fold means to train a model on all
other docs and to predict the docs of the fold. If each fold is held out once, all docs are
predicted by models that have not seen them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import load_model_from_config
from thinc.api import Config
from thinc.types import Array1d, Ints1d

from ...annotation.equal_texts import assign_folds, number_texts
from ...pipeline.component import CostSensitiveNER
from ...progress import progress
from ...readers.sentences import copy_without_annotation
from ...training.lbfgs import MOST_ITERATIONS
from ...training.online import INTERRUPTED
from ..corpora import are_few
from ..evaluation.predictions import DevPredictions, predict_dev
from ..runs import Failed, MakeExecutor, Run, import_once, run_all
from .linear_training import LinearPipeline, load_linear, prepare, train_linear

SEEN_BY_START = (
    "expected null without a development corpus: the model to start from may have seen the "
    "training docs that are held out instead"
)
"""The message of an error: docs can't be held out if training starts from another model."""

PrepareComponent = Callable[[CostSensitiveNER], object]
"""Changes a component before it is initialized."""


class Fold(NamedTuple):
    """Docs that were held out, and the predictions for them of a model that was trained on the
    others.

    docs (Ints1d): The indices of the held-out docs among all docs. Shape: (D,)
    dev (DevPredictions): The predictions for them.
    """

    docs: Ints1d
    dev: DevPredictions


@dataclass(frozen=True)
class FoldTraining:
    """How the models of folds are trained. It is the same for all folds, and workers get it
    pickled. `is_small`: whether all docs together are few: each model is trained as one on all
    docs would be. None: the docs of each model are counted. `max_iterations`: see `train_linear`.
    See `hold_out` for the other fields."""

    config: Config
    labels: Sequence[str]
    n_seeds: int
    is_small: bool | None
    keeps_starts: bool
    prepare_component: PrepareComponent | None
    max_iterations: int = MOST_ITERATIONS

    def train(self, examples: Iterable[Example]) -> LinearPipeline:
        """Train a model on docs.

        examples (Iterable[Example]): The docs.
        RETURNS (LinearPipeline): The pipeline with the model.
        RAISES (KeyboardInterrupt): If training is interrupted: a part of a fold is of no use.
        """
        linear = load_linear(self.config)
        nlp, ner, _ = linear
        # Labels are added to the component, not to the config: there, `initialize` would take a
        # label such as "${paths.train}" for a variable. The empty list in the config says that
        # there are no others.
        nlp.config["initialize"]["components"].setdefault(ner.name, {})["labels"] = []
        for label in self.labels:
            ner.add_label(label)
        if self.prepare_component is not None:
            self.prepare_component(ner)

        training_examples = list(self.copies(nlp, examples))
        prepared = prepare(linear, lambda nlp: training_examples)
        trained = train_linear(
            linear,
            prepared,
            n_seeds=self.n_seeds,
            is_small=self.is_small,
            max_iterations=self.max_iterations,
        )
        if trained.reason == INTERRUPTED:
            raise KeyboardInterrupt
        return linear

    def fit(self, examples: Sequence[Example], is_held_out: Array1d) -> Fold:
        """Train a model on the docs outside of a fold, and predict the docs of the fold.

        examples (Sequence[Example]): All docs.
        is_held_out (Array1d): Whether each doc is in the fold. Shape: (docs,)
        RAISES (KeyboardInterrupt): If training is interrupted: a part of a fold is of no use.
        """
        linear = self.train(compress(examples, ~is_held_out))
        predictions = self.predict(linear, compress(examples, is_held_out))
        return Fold(docs=numpy.flatnonzero(is_held_out), dev=predictions)

    def predict(self, linear: LinearPipeline, examples: Iterable[Example]) -> DevPredictions:
        """Predict held-out docs by a model of `train`, as development docs are predicted."""
        nlp, ner, _ = linear
        return predict_dev(nlp, ner, self.copies(nlp, examples))

    def copies(self, nlp: Language, examples: Iterable[Example]) -> Iterator[Example]:
        """Make examples with the same annotation and with new predicted docs, which have the vocab
        of the pipeline and only the tokens, the user data and, with `keeps_starts`, the sentence
        starts of the old ones."""
        for eg in examples:
            doc = copy_without_annotation(eg.predicted, nlp.vocab, sentences=self.keeps_starts)
            doc.user_data.update(eg.predicted.user_data)
            yield Example(doc, eg.reference)


def hold_out(
    config: Config,
    examples: Sequence[Example],
    labels: Sequence[str],
    *,
    n_folds: int,
    n_seeds: int = 1,
    seed: int | None = None,
    keeps_starts: bool = False,
    prepare_component: PrepareComponent | None = None,
    make_executor: MakeExecutor | None = None,
    code_path: Path | None = None,
    desc: str = "folds",
) -> list[Fold]:
    """Divide docs into folds, with equal texts in one fold. For each fold, train the linear model
    of a config on all other docs, and predict the docs of the fold. Each model is trained as one on
    all docs would be: see `train_linear`. Features, label memory (`features.memory`) and first pass
    are rebuilt for each fold, so that they don't know its docs.

    config (Config): The config.
    examples (Sequence[Example]): The docs, none of them empty. Only the tokens and the user data of
        predicted docs are used.
    labels (Sequence[str]): The labels of the component.
    n_folds (int): Number of folds.
    n_seeds (int): Number of trainings for each fold, whose weights are averaged.
    seed (int | None): Random seed that assigns texts to folds: see `assign_folds`.
    keeps_starts (bool): Whether models also see the sentence starts of predicted docs.
    prepare_component (PrepareComponent | None): Is called with the component of each fold before it
        is initialized. Workers must be able to import it.
    make_executor (MakeExecutor | None): Makes an executor, which has a task for each fold (see
        `run_all`). Its folds have no examples. None: folds are trained in this process, and have
        their examples.
    code_path (Path | None): Python file that workers import.
    desc (str): The text next to the progress bar.
    RETURNS (list[Fold]): The folds.
    RAISES (ValueError): If the component of the config can't be fitted, there are too few folds or
        texts (see `assign_folds`), no token of a fold is annotated, or a worker failed.
    """
    text_of_doc = number_texts(eg.reference for eg in examples)
    fold_of_doc = assign_folds(text_of_doc, n_folds, seed)
    training = FoldTraining(
        config,
        labels,
        n_seeds=n_seeds,
        is_small=are_few(eg.reference for eg in examples),
        keeps_starts=keeps_starts,
        prepare_component=prepare_component,
    )
    if make_executor is None:
        fold_numbers = progress(range(n_folds), desc=desc, unit="fold")
        return [training.fit(examples, fold_of_doc == fold) for fold in fold_numbers]

    runs = make_fold_runs(training, examples, fold_of_doc, code_path)
    fold_of_run: dict[str, Fold] = {}
    ended_runs = run_all(runs, make_executor)
    for run, ended in progress(ended_runs, desc=desc, unit="fold", total=n_folds):
        if isinstance(ended, Failed):
            raise ValueError(f"fold {run.name}: {ended.reason}")
        fold_of_run[run.name] = ended.value
    # Runs may end in a different order from the one they were started in.
    return [fold_of_run[run.name] for run in runs]


def make_fold_runs(
    training: FoldTraining,
    examples: Sequence[Example],
    fold_of_doc: Ints1d,
    code_path: Path | None,
) -> list[Run]:
    """Make a run for each fold. Its worker gets all docs as bytes. `fold_of_doc` has the number of
    the fold of each doc. Shape: (docs,)"""
    predicted = pack_docs([eg.predicted for eg in examples])
    reference = pack_docs([eg.reference for eg in examples])
    runs: list[Run] = []
    for fold in numpy.unique(fold_of_doc):
        arguments = {
            "training": training,
            "predicted": predicted,
            "reference": reference,
            "is_held_out": fold_of_doc == fold,
            "code_path": code_path,
        }
        runs.append(Run(str(fold), fit_in_worker, arguments))
    return runs


def pack_docs(docs: Iterable[Doc]) -> bytes:
    """Turn docs into bytes, with their user data, for `fit_in_worker`."""
    return DocBin(docs=docs, store_user_data=True).to_bytes()


def fit_in_worker(
    training: FoldTraining,
    predicted: bytes,
    reference: bytes,
    is_held_out: Array1d,
    code_path: Path | None,
) -> Fold:
    """Train and predict a fold in a worker: see `FoldTraining.fit`. The docs of all examples are
    bytes: see `pack_docs`. `is_held_out` is True for the docs of the fold. Shape: (docs,) The fold
    is returned without examples, as `hold_out` has them."""
    import_once(code_path)
    # A `DocBin` keeps no vocab. Docs get one of the pipeline that is trained, as its language says
    # what the lower case or the shape of a word is.
    vocab = load_model_from_config(training.config, auto_fill=True).vocab
    predicted_docs = DocBin().from_bytes(predicted).get_docs(vocab)
    reference_docs = DocBin().from_bytes(reference).get_docs(vocab)
    examples: list[Example] = []
    for predicted_doc, reference_doc in zip(predicted_docs, reference_docs):
        examples.append(Example(predicted_doc, reference_doc))
    fold = training.fit(examples, is_held_out)
    # The predictions have two lists of examples: see `DevPredictions`.
    dev_without_examples = fold.dev._replace(examples=[], originals=[])
    return fold._replace(dev=dev_without_examples)
