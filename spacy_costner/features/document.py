"""Features of the labels that a first pass predicts for the other occurrences in the doc."""

from collections.abc import Sequence

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from .column import LabelColumn, Saved, Window, check_strings
from .counts import TrainingCounts
from .elsewhere import group_occurrences
from .shares import share_ids, share_names
from .tokens import TokenBatch

WIDTH = 8
"""The largest number of features of labels of a token: the most probable label, and shares of 7."""


class DocumentColumn(LabelColumn):
    """The labels that a first pass predicts for the other occurrences of a capitalised word, or of
    a word with a digit.

    attribute (str): An attribute or extension attribute of tokens. Tokens of the same value are
        occurrences of each other.
    """

    wants_labels = True

    def __init__(self, attribute: str, window: Window) -> None:
        super().__init__(f"document:{attribute}", window)
        self.attribute = attribute
        self.attributes = (attribute,)
        self.labels: list[str] = []

    def collect(self, counts: TrainingCounts) -> None:
        self.labels = counts.labels.labels

    def save(self, saved: Saved) -> None:
        saved["labels"] = self.labels

    def load(self, saved: Saved) -> None:
        check_strings("labels", saved["labels"])
        self.labels = saved["labels"]

    @property
    def value_names(self) -> list[str]:
        return share_names(self.labels)

    @property
    def width(self) -> int:
        return WIDTH

    def group_tokens(self, batch: TokenBatch) -> Ints1d:
        keys = batch.tokens.keys[self.attribute]
        takes_part = (batch.is_capitalised | batch.has_digit) & (keys != 0)
        return number_occurrences(keys, takes_part, batch.tokens.lengths)

    def find_label_values(
        self, probabilities: Floats2d, labels: Sequence[str], groups: Ints1d
    ) -> Ints2d:
        # The column of each label that was there in training. One that the first pass lacks has the
        # last column, which is 0.
        columns = {label: i for i, label in enumerate(["O", *labels])}
        places = [columns.get(label, -1) for label in self.labels]
        no_label = numpy.zeros_like(probabilities[:, :1])
        padded = numpy.append(probabilities, no_label, axis=1)
        return find_labels_elsewhere(padded[:, places].astype("float32"), groups)


def number_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> Ints1d:
    """The same number for all occurrences of a value in a doc, -1 for those that are the only one:
    see `group_occurrences`. Shape: (N,)"""
    groups = numpy.full(len(keys), -1, dtype="int32")
    tokens, group = group_occurrences(keys, takes_part, lengths)
    groups[tokens] = group
    return groups


def find_labels_elsewhere(probabilities: Floats2d, groups: Ints1d) -> Ints2d:
    """Find the features of the mean probabilities of O and each label, by the first pass, at the
    other occurrences: see `number_occurrences` and `share_names`; -1 for none.
    Shapes: (N, L + 1), (N,) to (N, WIDTH)"""
    ids = numpy.full((len(groups), WIDTH), -1, dtype="int32")
    tokens = numpy.flatnonzero(groups >= 0)
    if len(tokens):
        group = groups[tokens]
        sums = numpy.zeros((group.max() + 1, probabilities.shape[1]))
        numpy.add.at(sums, group, probabilities[tokens])
        # The sum over the other occurrences: that of the group without the token itself.
        ids[tokens] = share_ids(sums[group] - probabilities[tokens], WIDTH)
    return ids
