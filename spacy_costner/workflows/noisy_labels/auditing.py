"""Find probable mistakes in the annotation of a corpus.

The docs are divided into folds, and each fold is predicted by a model that was trained on the
others. Places whose annotation is improbable are suspects: see `suspects`. People accept or reject
the suggested corrections: see `corrections`.
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
"""A key of `doc.user_data`. Its value is the array of `one_hot_labels`."""

TEMPERATURES = (0.5, 5.0)
"""The lowest and the highest temperature of a fold. Without limits it would be 0 if all predictions
of a fold are right, and infinite if all are wrong."""


class Audit(NamedTuple):
    """The result of an audit.

    suspects (list[Suspect]): All suspects, the most probable mistakes first.
    kinds (dict[str, int]): The number of suspects whose suggestion is more probable than the
        annotation, for each kind in `SUSPECT_KINDS`. "inconsistent" is the number of those, of any
        kind, whose words are also more often annotated elsewhere as suggested.
    docs, tokens (int): The number of docs and of tokens.
    entities (int): The number of annotated entities.
    over_borders (int): How many annotated entities cross a border between sequences. No model can
        predict these.
    notes (list[str]): Whether docs are copies of each other.
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

    config (Config): A config of a linear model. Its corpora are not read. If its component has a
        cost, probabilities are multiplied by it.
    docs (Sequence[Doc]): The annotated docs, none of them empty. Models see the tokens of these
        docs, so suggestions consist of whole tokens.
    n_folds (int): Number of folds.
    n_seeds (int): Number of trainings for each fold, whose weights are averaged.
    seed (int | None): Random seed with which docs are assigned to folds.
    file_tokens (bool): Whether the models also see the sentence starts of the file.
    make_executor (MakeExecutor | None): Makes an executor of a task for each fold, such as
        `local_processes(2)`. None: one fold after another, in this process.
    code_path (Path | None): Python file with registered functions to be imported.
    RETURNS (Audit): All suspects, and their numbers by kind.
    RAISES (ValueError): If the config doesn't have exactly one component that can be fitted and
        writes `doc.ents`, has a setting that nothing reads, there are too few docs or no entities,
        or a worker failed.
    """
    name = component_name(config, Path("config"))  # The path is only for an error.
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
        tags = folds[0].dev.posterior.tags.collapsed  # the tags of costs, with a single O
        mistake_cost = make_cost(make_table(tags), tags)
    suspects = rank(folds, docs, mistake_cost)

    # Each suspect counts under its kind. Those that are inconsistent count there, too.
    kinds = dict.fromkeys([*SUSPECT_KINDS, "inconsistent"], 0)
    for suspect in suspects:
        if suspect.is_probable:  # the others are in the file, but don't count as mistakes
            kinds[suspect.kind] += 1
            kinds["inconsistent"] += int(suspect.is_inconsistent)
    # No model can predict an entity over a border of the chain, such as the end of a sentence.
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
    """Predict docs, none of them empty, by models that have not seen them. The temperature of a
    fold, which its scores are divided by, is the geometric mean of the temperatures that fit the
    other folds.

    If the features of the config have `document`, the second pass of a model normally sees which
    labels a first pass predicts for other occurrences of a word in the doc. Here it sees the
    annotated labels of these other occurrences instead, in training and in prediction. It never
    sees the label of the word itself.

    See `hold_out` for the arguments.

    RETURNS (list[Fold]): The folds with their predictions.
    RAISES (ValueError): See `hold_out`, or if there are no entities.
    """
    labels: set[str] = set()
    for doc in docs:
        labels.update(ent.label_ for ent in doc.ents)
    if not labels:
        raise ValueError("audit: expected docs with annotated entities, got none")
    sorted_labels = sorted(labels)
    examples = [Example(copy_without_annotation(doc, sentences=True), doc) for doc in docs]
    for eg in examples:
        # `read_labels_of_annotation` has the second pass look for the annotated labels here.
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
    """The annotated labels of the tokens of a doc as rows with a single True, in column 0 for O and
    in column i + 1 for `labels[i]`. A token without annotation has no True. Shape: (T, L + 1)"""
    column_of_type = {"": 0}  # The `ent_type_` of a token outside entities is empty.
    for i, label in enumerate(labels):
        column_of_type[label] = i + 1
    one_hot = numpy.zeros((len(doc), len(column_of_type)), dtype=bool)
    for token in doc:
        if token.ent_iob != ent_iob.MISSING:
            one_hot[token.i, column_of_type[token.ent_type_]] = True
    return one_hot


def find_temperature(fold: Fold) -> float:
    """Find the temperature of a fold that minimises the log loss of its predicted entities: see
    `fit_temperature`. It is 1 if no entity is predicted."""
    predicted = predict_best(fold.dev)
    if not len(predicted.is_correct):
        return 1.0
    return fit_temperature([predicted], per_label=False).overall


def means_of_other_folds(temperatures: Sequence[float]) -> list[float]:
    """For each fold the geometric mean of the temperatures of all other folds, so that its own
    docs have no effect on the temperature that is used for it.

    temperatures (Sequence[float]): The temperatures of at least two folds. Those outside of the
        range `TEMPERATURES` count as its nearest end.
    """
    logs = numpy.log(numpy.clip(temperatures, *TEMPERATURES))
    sums_of_others = logs.sum() - logs
    return numpy.exp(sums_of_others / (len(logs) - 1)).tolist()


def read_labels_of_annotation(ner: CostSensitiveNER) -> None:
    """Have the second pass of a component see the annotated labels of other occurrences of a word,
    where it otherwise sees those that its first pass predicts: see `FirstPass`."""
    first_pass = first_pass_of(ner.model)
    if first_pass is not None:
        first_pass.read_labels = annotated_labels


def annotated_labels(docs: Iterable[Doc]) -> Floats2d:
    """The annotated labels of the tokens of all docs: see `one_hot_labels`. `cross_fit` has put
    them into the docs. Shape: (N, L + 1)"""
    return numpy.concatenate([doc.user_data[ANNOTATED] for doc in docs], dtype="float32")
