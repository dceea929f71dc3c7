"""Find probable mistakes in the annotation of a corpus.

The docs are divided into folds, and each fold is predicted by a model trained on the other folds.
Spans with improbable annotation are suspects: see `suspects`. Suggested corrections can be accepted
or rejected: see `corrections`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Config
from thinc.types import Array2d, Floats2d

from ...annotation import iob as ent_iob
from ...decoding import Temperature
from ...ml import first_pass_of
from ...pipeline.component import CostSensitiveNER
from ...readers.sentences import copy_without_annotation
from ..calibration.temperature import fit_temperature, predict_best
from ..evaluation.recurrence import note_copies
from ..fitting.folds import Fold, hold_out
from ..fitting.variants import component_name
from ..reports.mistake_costs import find_cost
from ..runs import MakeExecutor
from .suspects import SUSPECT_KINDS, Suspect, make_cost, rank

ANNOTATED = "spacy_costner_annotated"
"""The key in `doc.user_data` for the array returned by `one_hot_labels`."""

TEMPERATURES = (0.5, 5.0)
"""The minimum and maximum temperature of a fold. Without limits, the temperature would be 0 if all
predictions of a fold were right, and infinite if all were wrong."""


class Audit(NamedTuple):
    """The result of an audit.

    suspects (list[Suspect]): All suspects, the most probable mistakes first.
    kinds (dict[str, int]): The number of suspects of each kind in `SUSPECT_KINDS` whose suggestion
        is more probable than the annotation. "inconsistent" is the number of such suspects, of any
        kind, whose words have the suggested annotation more often than the current one elsewhere.
    docs, tokens (int): The number of docs and tokens.
    entities (int): The number of annotated entities.
    over_borders (int): The number of annotated entities that cross a boundary between sequences. No
        model can predict them.
    notes (list[str]): Notes about docs that are copies of each other.
    """

    suspects: list[Suspect]
    kinds: dict[str, int]
    docs: int
    tokens: int
    entities: int
    over_borders: int
    notes: list[str]


def audit(
    config: Config,
    docs: Sequence[Doc],
    *,
    n_folds: int = 5,
    n_seeds: int = 1,
    seed: int | None = None,
    file_tokens: bool = False,
    make_executor: MakeExecutor | None = None,
    code_path: Path | None = None,
) -> Audit:
    """Find probable mistakes in the annotation of docs.

    config (Config): The config of a linear model. Its corpora are not read. If its component has
        costs, probabilities are multiplied by them.
    docs (Sequence[Doc]): The annotated docs, which must not be empty. Models use their
        tokenization, so suggestions consist of whole tokens.
    n_folds (int): Number of folds.
    n_seeds (int): Number of training runs per fold. The weights are averaged.
    seed (int | None): Random seed for assigning docs to folds.
    file_tokens (bool): Whether the models also see the sentence starts from the file.
    make_executor (MakeExecutor | None): Creates an executor that runs a task for each fold, such as
        `local_processes(2)`. If None, folds are processed sequentially in this process.
    code_path (Path | None): Python file with registered functions to import.
    RETURNS (Audit): All suspects, and the number of suspects of each kind.
    RAISES (ValueError): If the config doesn't contain exactly one component that writes `doc.ents`
        and can be fitted, or contains an unused setting; if there are too few docs, or no entities;
        or if a worker failed.
    """
    name = component_name(config, Path("config"))  # The path is only used in error messages.
    component_config = config.interpolate()["components"][name]
    make_table, _, cost_name = find_cost(component_config)
    folds = cross_fit(
        config,
        docs,
        n_folds=n_folds,
        n_seeds=n_seeds,
        seed=seed,
        keeps_starts=file_tokens,
        make_executor=make_executor,
        code_path=code_path,
    )
    mistake_cost = None  # all mistakes cost the same
    if cost_name:
        tags = folds[0].dev.posterior.tags.collapsed  # cost tables have a single O tag
        mistake_cost = make_cost(make_table(tags), tags)
    suspects = rank(folds, docs, mistake_cost)

    # Count each suspect under its kind, and also as inconsistent if it is.
    kinds = dict.fromkeys([*SUSPECT_KINDS, "inconsistent"], 0)
    for suspect in suspects:
        if suspect.is_probable:  # other suspects are written to the file, but not counted
            kinds[suspect.kind] += 1
            kinds["inconsistent"] += int(suspect.is_inconsistent)
    # No model can predict an entity that crosses a boundary of the chain, e.g. the end of a
    # sentence.
    n_over_borders = 0
    for fold in folds:
        n_over_borders += int(fold.dev.posterior.crosses_border(fold.dev.gold).sum())
    return Audit(
        suspects=suspects,
        kinds=kinds,
        docs=len(docs),
        tokens=sum(len(doc) for doc in docs),
        entities=sum(len(doc.ents) for doc in docs),
        over_borders=n_over_borders,
        notes=note_copies(docs, "the corpus"),
    )


def cross_fit(
    config: Config,
    docs: Sequence[Doc],
    *,
    n_folds: int = 5,
    n_seeds: int = 1,
    seed: int | None = None,
    keeps_starts: bool = False,
    make_executor: MakeExecutor | None = None,
    code_path: Path | None = None,
) -> list[Fold]:
    """Predict docs with models that were trained on other docs. The scores of each fold are divided
    by a temperature: the geometric mean of the temperatures fitted to the other folds.

    If the `document` features are enabled, the second pass of a model normally sees the labels that
    the first pass predicts for other occurrences of a word in the doc. Here, it sees their
    annotated labels instead, in training and in prediction. It never sees the label of the word
    itself.

    The docs must not be empty. See `hold_out` for the arguments.

    RETURNS (list[Fold]): The folds with their predictions.
    RAISES (ValueError): See `hold_out`. Also if there are no annotated entities.
    """
    labels: set[str] = set()
    for doc in docs:
        labels.update(ent.label_ for ent in doc.ents)
    if not labels:
        raise ValueError("audit: expected docs with annotated entities, got none")
    sorted_labels = sorted(labels)
    examples = [Example(copy_without_annotation(doc, sentences=True), doc) for doc in docs]
    for eg in examples:
        # The second pass reads the annotated labels from here: see `read_labels_of_annotation`.
        eg.predicted.user_data[ANNOTATED] = one_hot_labels(eg.reference, sorted_labels)
    folds = hold_out(
        config,
        examples,
        sorted_labels,
        n_folds=n_folds,
        n_seeds=n_seeds,
        seed=seed,
        keeps_starts=keeps_starts,
        prepare_component=read_labels_of_annotation,
        make_executor=make_executor,
        code_path=code_path,
        desc="audit",
    )
    temperatures = means_of_other_folds([find_temperature(fold) for fold in folds])
    calibrated: list[Fold] = []
    for fold, temperature in zip(folds, temperatures):
        dev = fold.dev.with_temperature(Temperature(temperature))
        calibrated.append(fold._replace(dev=dev))
    return calibrated


def one_hot_labels(doc: Doc, labels: Sequence[str]) -> Array2d:
    """Convert the annotated labels of a doc to one-hot rows: column 0 is O, and column i + 1 is
    `labels[i]`. The row of a token without annotation is all False. Shape: (T, L + 1)"""
    column_of_type = {"": 0}  # The `ent_type_` of a token outside of entities is empty.
    for i, label in enumerate(labels):
        column_of_type[label] = i + 1
    one_hot = numpy.zeros((len(doc), len(column_of_type)), dtype=bool)
    for token in doc:
        if token.ent_iob != ent_iob.MISSING:
            one_hot[token.i, column_of_type[token.ent_type_]] = True
    return one_hot


def find_temperature(fold: Fold) -> float:
    """Fit the temperature of a fold by minimising the log loss of its predicted entities: see
    `fit_temperature`. The temperature is 1 if no entities are predicted."""
    predicted = predict_best(fold.dev)
    if not len(predicted.is_correct):
        return 1.0
    return fit_temperature([predicted], per_label=False).overall


def means_of_other_folds(temperatures: Sequence[float]) -> list[float]:
    """For each fold, compute the geometric mean of the other folds' temperatures, so that the
    temperature of a fold doesn't depend on its own docs.

    temperatures (Sequence[float]): The temperatures of at least two folds. They are clipped to the
        range `TEMPERATURES`.
    RETURNS (list[float]): The mean for each fold.
    """
    logs = numpy.log(numpy.clip(temperatures, *TEMPERATURES))
    sums_of_others = logs.sum() - logs
    return numpy.exp(sums_of_others / (len(logs) - 1)).tolist()


def read_labels_of_annotation(ner: CostSensitiveNER) -> None:
    """Let the second pass of a component read the annotated labels of other occurrences of a word,
    instead of the labels predicted by its first pass: see `FirstPass`."""
    first_pass = first_pass_of(ner.model)
    if first_pass is not None:
        first_pass.read_labels = annotated_labels


def annotated_labels(docs: Iterable[Doc]) -> Floats2d:
    """Return the annotated labels of all tokens, which `cross_fit` stores in the docs: see
    `one_hot_labels`. Shape: (N, L + 1)"""
    return numpy.concatenate([doc.user_data[ANNOTATED] for doc in docs], dtype="float32")
