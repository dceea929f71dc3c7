"""Hold out folds: make predictions for docs with models that were trained on the other docs.

Folds are parts of the docs of approximately equal size. To hold out a fold, a model is trained on
all other docs and then predicts the docs of the fold. If each fold is held out once, every doc is
predicted by a model that hasn't seen it.
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
from ...annotation.settings import Annotation
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
"""An error message: docs can't be held out if training starts from another model."""

SEEN_BY_SOURCE = (
    "expected no source: the model to start from may have seen the docs that are held out"
)
"""An error message: docs can't be held out if the component continues the training of a model."""

PrepareComponent = Callable[[CostSensitiveNER], object]
"""Function that modifies a component before it is initialized."""


class Fold(NamedTuple):
    """Held-out docs, and the predictions of a model that was trained on the other docs.

    docs (Ints1d): The indices of the held-out docs among all docs. Shape: (D,)
    dev (DevPredictions): The predictions for the held-out docs.
    """

    docs: Ints1d
    dev: DevPredictions


@dataclass(frozen=True)
class FoldTraining:
    """The training settings shared by the models of all folds. They are pickled and sent to
    workers. `is_small` indicates whether there are few docs in total, which determines the training
    method. If it is None, the docs of each model are counted. For `max_iterations`, see
    `train_linear`. For the other fields, see `hold_out`."""

    config: Config
    labels: Sequence[str]
    n_seeds: int
    is_small: bool | None
    keeps_starts: bool
    prepare_component: PrepareComponent | None
    max_iterations: int = MOST_ITERATIONS

    def train(self, examples: Iterable[Example]) -> LinearPipeline:
        """Train a model on docs.

        examples (Iterable[Example]): The training examples.
        RETURNS (LinearPipeline): The pipeline with the trained model.
        RAISES (ValueError): If the component is sourced from a trained pipeline.
        RAISES (KeyboardInterrupt): If training is interrupted, because a partially trained fold
            can't be used.
        """
        linear = load_linear(self.config)
        nlp, ner, _, sourced = linear
        if ner.name in sourced:
            raise ValueError(f"components.{ner.name}.source: {SEEN_BY_SOURCE}")
        # Add the labels to the component, not to the config, where `initialize` would interpret a
        # label such as "${paths.train}" as a variable. The empty list in the config prevents other
        # labels from being added.
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
        """Train a model on the docs outside a fold, and make predictions for the docs in the fold.

        examples (Sequence[Example]): All examples.
        is_held_out (Array1d): Whether each doc is in the fold. Shape: (docs,)
        RAISES (KeyboardInterrupt): If training is interrupted, because a partially trained fold
            can't be used.
        """
        linear = self.train(compress(examples, ~is_held_out))
        predictions = self.predict(linear, compress(examples, is_held_out))
        return Fold(docs=numpy.flatnonzero(is_held_out), dev=predictions)

    def predict(self, linear: LinearPipeline, examples: Iterable[Example]) -> DevPredictions:
        """Make predictions for held-out docs with a model returned by `train`, in the same way as
        for development docs."""
        nlp, ner, _, _ = linear
        return predict_dev(nlp, ner, self.copies(nlp, examples))

    def copies(self, nlp: Language, examples: Iterable[Example]) -> Iterator[Example]:
        """Create examples with the same reference docs and new predicted docs. The new docs use the
        vocab of the pipeline and only contain the tokens, the user data and, with `keeps_starts`,
        the sentence starts of the old ones."""
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
    annotation: Annotation = Annotation(),  # noqa: B008 (immutable)
    keeps_starts: bool = False,
    prepare_component: PrepareComponent | None = None,
    make_executor: MakeExecutor | None = None,
    code_path: Path | None = None,
    desc: str = "folds",
) -> list[Fold]:
    """Split docs into folds (see `find_folds`). For each fold, train the linear model of a config
    on all other docs and predict the docs of the fold. The training method depends on the total
    number of docs: see `train_linear`. The features, the label memory (`features.memory`) and the
    first pass are rebuilt for each fold, so that they don't contain information about the docs in
    it.

    config (Config): The config.
    examples (Sequence[Example]): The non-empty docs. Only the tokens and the user data of the
        predicted docs are used.
    labels (Sequence[str]): The labels of the component.
    n_folds (int): Number of folds.
    n_seeds (int): Number of training runs per fold whose weights are averaged.
    seed (int | None): Random seed for assigning texts to folds: see `assign_folds`.
    annotation (Annotation): Where the component reads the annotation of docs.
    keeps_starts (bool): Whether models may use the sentence starts of predicted docs.
    prepare_component (PrepareComponent | None): Callback that receives the component of each fold
        before it is initialized. It must be importable by workers.
    make_executor (MakeExecutor | None): Function that creates an executor, which runs one task per
        fold (see `run_all`). The resulting folds don't contain examples. If None, the folds are
        trained in this process and contain their examples.
    code_path (Path | None): Python file for workers to import.
    desc (str): The description shown next to the progress bar.
    RETURNS (list[Fold]): The folds.
    RAISES (ValueError): If `fit` can't train the component of the config, the component is sourced
        from a trained pipeline, there are too few folds or texts (see `assign_folds`), a fold has
        no annotated tokens, or a worker failed.
    """
    fold_of_doc = find_folds([eg.reference for eg in examples], n_folds, seed, annotation)
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
    # The runs may finish in a different order.
    return [fold_of_run[run.name] for run in runs]


def find_folds(
    docs: Sequence[Doc],
    n_folds: int,
    seed: int | None = None,
    annotation: Annotation = Annotation(),  # noqa: B008 (immutable)
) -> Ints1d:
    """Assign docs to folds, keeping equal texts in the same fold. Texts without annotation are
    divided separately, because a fold without annotated tokens can't be evaluated. `annotation`
    defines where the annotation is stored in docs. For the other arguments and errors, see
    `assign_folds`. Shape: (docs,)"""
    text_of_doc = number_texts(docs)
    has_annotation = numpy.asarray([annotation.is_annotated(doc) for doc in docs], dtype=bool)
    is_annotated = numpy.zeros(text_of_doc.max(initial=-1) + 1, dtype=bool)  # shape: (texts,)
    is_annotated[text_of_doc[has_annotation]] = True
    n_annotated = int(is_annotated.sum())
    if n_annotated < n_folds:  # some folds would have no annotated text in any case
        return assign_folds(text_of_doc, n_folds, seed)
    fold_of_text = numpy.zeros(len(is_annotated), dtype="int64")
    fold_of_text[is_annotated] = assign_folds(numpy.arange(n_annotated), n_folds, seed)
    n_others = len(is_annotated) - n_annotated  # may be fewer than folds
    fold_of_text[~is_annotated] = numpy.arange(n_others) * n_folds // max(n_others, 1)
    return fold_of_text[text_of_doc]


def make_fold_runs(
    training: FoldTraining,
    examples: Sequence[Example],
    fold_of_doc: Ints1d,
    code_path: Path | None,
) -> list[Run]:
    """Create a run for each fold. Each worker receives all docs in serialized form. `fold_of_doc`
    is the fold number of each doc. Shape: (docs,)"""
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
    """Serialize docs, including their user data, for `fit_in_worker`."""
    return DocBin(docs=docs, store_user_data=True).to_bytes()


def fit_in_worker(
    training: FoldTraining,
    predicted: bytes,
    reference: bytes,
    is_held_out: Array1d,
    code_path: Path | None,
) -> Fold:
    """Train the model for a fold in a worker, and make predictions for the fold: see
    `FoldTraining.fit`. The docs of all examples are serialized: see `pack_docs`. The returned fold
    doesn't contain examples, because the caller already has them. `is_held_out` is True for the
    docs in the fold. Shape: (docs,)"""
    import_once(code_path)
    # A `DocBin` doesn't include the vocab. Use the vocab of the pipeline that will be trained,
    # because lexical attributes such as the lower case and shape of words depend on the language.
    vocab = load_model_from_config(training.config, auto_fill=True).vocab
    predicted_docs = DocBin().from_bytes(predicted).get_docs(vocab)
    reference_docs = DocBin().from_bytes(reference).get_docs(vocab)
    examples: list[Example] = []
    for predicted_doc, reference_doc in zip(predicted_docs, reference_docs):
        examples.append(Example(predicted_doc, reference_doc))
    fold = training.fit(examples, is_held_out)
    # `DevPredictions` contains two lists of examples.
    dev_without_examples = fold.dev._replace(examples=[], originals=[])
    return fold._replace(dev=dev_without_examples)
