"""Measure a learning curve: train models on increasingly large parts of a corpus, and score them on
held-out docs.

The texts are shuffled and divided into K consecutive folds. The models that predict a fold are
trained on different numbers of the texts following it, from a small part to all K - 1 other folds.
The order wraps around from the last text to the first. Smaller parts are therefore contained in
larger parts, each text occurs equally often in the parts of each size, and each doc is predicted by
one model for each size. Docs with the same text are treated as a single text.
"""

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy
from spacy.training import Example
from thinc.types import Array1d, Floats1d, Floats3d, Floats4d, Ints1d

from ...annotation.equal_texts import assign_folds, number_texts
from ...progress import progress
from ...tags import Entities, concatenate_entities
from ..evaluation.predictions import DevPredictions
from ..fitting.folds import FoldTraining

N_FOLDS = 5
"""The number of folds."""

SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""The sizes of the parts, as fractions of the texts in all other folds."""


class LearningCurve(NamedTuple):
    """Entity counts on held-out texts, for models trained on parts of different sizes. P is the
    number of parts, U the number of distinct texts, and L the number of labels.

    n_texts (Floats1d): The number of distinct training texts in each part, averaged over folds, in
        ascending order. Shape: (P,)
    labels (Sequence[str]): The labels.
    counts (Floats4d): The number of correct, wrong and missed entities (tp, fp, fn) for each text
        and label, averaged over all docs with this text. The last label column counts all other
        labels, such as inner nodes of a label tree. Shape: (P, U, L + 1, 3)
    """

    n_texts: Floats1d
    labels: Sequence[str]
    counts: Floats4d

    @property
    def n_docs(self) -> int:
        """The number of docs with distinct texts, U."""
        return self.counts.shape[1]

    def of_all_labels(self) -> Floats3d:
        """Sum the counts over all labels. Shape: (P, U, 3)"""
        return self.counts.sum(axis=2)

    def of_label(self, label: str) -> Floats3d:
        """Return the counts of a label. Shape: (P, U, 3)"""
        return self.counts[:, :, self.labels.index(label)]


class Fold(NamedTuple):
    """The docs of a fold, and the training docs for each part.

    is_held_out (Array1d): Whether each doc is in the fold. Shape: (docs,)
    parts (list[Array1d]): For each part, whether each doc is in the part. Shapes: (docs,)
    """

    is_held_out: Array1d
    parts: list[Array1d]


def divide(text_of_doc: Ints1d, *, n_folds: int, seed: int) -> tuple[list[Fold], Floats1d]:
    """Divide docs into folds, and select increasingly large parts of the docs outside each fold.

    text_of_doc (Ints1d): The text index of each doc. See `number_texts`. Shape: (docs,)
    n_folds (int): The number of folds.
    seed (int): The random seed for the order of the texts.
    RETURNS (tuple[list[Fold], Floats1d]): The folds, and the number of texts in each part, averaged
        over folds. Shape: (P,)
    RAISES (ValueError): If there are fewer than 2 folds, or fewer distinct texts than folds.
    """
    n_texts = int(text_of_doc.max(initial=-1)) + 1
    place_of_text = numpy.random.default_rng(seed).permutation(n_texts)
    # Without a seed, each fold consists of consecutive positions.
    fold_of_text = assign_folds(place_of_text, n_folds)
    folds: list[Fold] = []
    sizes_of_folds: list[list[int]] = []
    for i in range(n_folds):
        is_held_out = fold_of_text == i
        n_others = n_texts - int(is_held_out.sum())
        # The position of each text if the order starts after the fold, so that the fold is last
        first_place = place_of_text[is_held_out].max() + 1
        place_after_fold = (place_of_text - first_place) % n_texts
        # If there are few texts, two sizes may be equal after rounding. In this case, keep only
        # one.
        sizes = sorted({max(1, round(share * n_others)) for share in SHARES})
        parts = [(place_after_fold < size)[text_of_doc] for size in sizes]
        folds.append(Fold(is_held_out[text_of_doc], parts))
        sizes_of_folds.append(sizes)
    # Folds may differ in size by one text, and therefore in the number of distinct sizes.
    n_parts = min(len(sizes) for sizes in sizes_of_folds)
    folds = [fold._replace(parts=fold.parts[-n_parts:]) for fold in folds]
    n_texts_of_parts = numpy.mean([sizes[-n_parts:] for sizes in sizes_of_folds], axis=0)
    return folds, n_texts_of_parts


def measure_curve(
    training: FoldTraining, examples: Sequence[Example], *, n_folds: int = N_FOLDS, seed: int = 0
) -> LearningCurve:
    """Measure a learning curve as described in the module docstring.

    training (FoldTraining): The training settings of the models, with all labels of the component.
    examples (Sequence[Example]): The docs. They must not be empty.
    n_folds (int): The number of folds.
    seed (int): The random seed for the order of the texts.
    RETURNS (LearningCurve): The counts.
    RAISES (ValueError): If there are fewer than 2 folds, fewer distinct texts than folds, or a fold
        without any annotated tokens.
    RAISES (KeyboardInterrupt): If training is interrupted.
    """
    text_of_doc = number_texts(eg.reference for eg in examples)
    folds, n_texts = divide(text_of_doc, n_folds=n_folds, seed=seed)
    labels = sorted(training.labels)
    n_parts = len(n_texts)
    n_different_texts = int(text_of_doc.max()) + 1
    # True positives, false positives and false negatives of each label, and of other labels
    counts = numpy.zeros((n_parts, n_different_texts, len(labels) + 1, 3), dtype="float32")
    with progress(desc="learning curve", unit="model", total=n_folds * len(n_texts)) as bar:
        for fold in folds:
            held_out = list(compress(examples, fold.is_held_out))
            texts = text_of_doc[fold.is_held_out]
            for i, is_in_part in enumerate(fold.parts):
                linear = training.train(compress(examples, is_in_part))
                dev = training.predict(linear, held_out)
                predicted = dev.decode(linear.ner.decoding)
                counts[i] += count_entities(dev, predicted, texts, counts[i].shape, labels)
                bar.update()
    # Average over the copies of each text.
    counts /= numpy.bincount(text_of_doc)[:, None, None]
    return LearningCurve(n_texts, labels, counts)


def count_entities(
    dev: DevPredictions,
    predicted: Entities,
    text_of_doc: Ints1d,
    shape: tuple[int, ...],
    labels: Sequence[str],
) -> Floats3d:
    """Count the correct, wrong and missed entities by text and label.

    dev (DevPredictions): The held-out docs.
    predicted (Entities): The predicted entities to count.
    text_of_doc (Ints1d): The text index of each held-out doc. Shape: (docs,)
    shape (tuple[int, ...]): The shape of the result.
    labels (Sequence[str]): The labels, in the order of the result.
    RETURNS (Floats3d): The counts tp, fp and fn. Shape: (U, L + 1, 3)
    """
    # The column of each label of the model. Inner nodes of a label tree have higher indices, and
    # labels unknown to the model have index -1. Both are counted in the last column.
    columns = [labels.index(label) for label in dev.posterior.tags.labels]
    column_of_label = numpy.asarray([*columns, len(labels)])
    gold_is_predicted = numpy.isin(dev.entity_keys(dev.gold), dev.entity_keys(predicted))
    is_correct = dev.is_correct(predicted)
    correct = predicted.select(is_correct)
    wrong = predicted.select(~is_correct)
    missed = concatenate_entities(dev.gold.select(~gold_is_predicted), dev.misaligned)
    counts = numpy.zeros(shape, dtype="float32")
    for i, entities in enumerate((correct, wrong, missed)):
        texts = text_of_doc[dev.doc_of_entity(entities)]
        label_columns = column_of_label[numpy.minimum(entities.label, len(columns))]
        # `add.at` also counts multiple entities with the same text and label.
        numpy.add.at(counts, (texts, label_columns, i), 1)
    return counts
