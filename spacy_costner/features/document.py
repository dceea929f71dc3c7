"""Features of the labels that a first pass predicts for the other occurrences of a word in its doc.

A first pass is a model of its own: see `ml.first_pass`. Tokens of a doc that have the same value of
an attribute, such as the word in lower case, are occurrences of each other, and form a group.
"""

from collections.abc import Sequence

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from ..tags import OUTSIDE
from .column import LabelColumn, Saved, Window, check_strings
from .counts import TrainingCounts
from .elsewhere import group_occurrences
from .shares import share_ids, share_names
from .tokens import TokenBatch

WIDTH = 8
"""The largest number of features that a token has: one of its most probable label, and one for each
of up to 7 labels."""


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
        """Take the labels of the training docs."""
        self.labels = counts.labels.labels

    def save(self, saved: Saved) -> None:
        """Write the labels. All document columns have the same."""
        saved["labels"] = self.labels

    def load(self, saved: Saved) -> None:
        """Read the labels, and check them."""
        check_strings("labels", saved["labels"])
        self.labels = saved["labels"]

    @property
    def value_names(self) -> list[str]:
        """The names of the shares of labels: see `share_names`."""
        return share_names(self.labels)

    @property
    def width(self) -> int:
        """The same for all tokens, whatever the labels are."""
        return WIDTH

    def group_tokens(self, batch: TokenBatch) -> Ints1d:
        """Group the occurrences of words with a capital or a digit, by the attribute's value."""
        keys = batch.tokens.keys[self.attribute]
        takes_part = (batch.is_capitalised | batch.has_digit) & (keys != 0)
        return number_occurrences(keys, takes_part, batch.tokens.lengths)

    def find_label_values(
        self, probabilities: Floats2d, labels: Sequence[str], groups: Ints1d
    ) -> Ints2d:
        """Find the shares of labels at the other occurrences of each token's value."""
        # Ids count the labels of training, so these need a probability each, in their order. One
        # that the first pass lacks has 0, that of a last column (index -1), which is added.
        index_of_label = {label: i for i, label in enumerate([OUTSIDE, *labels])}
        indices = [index_of_label.get(label, -1) for label in self.labels]
        zeros = numpy.zeros_like(probabilities[:, :1])
        with_zeros = numpy.append(probabilities, zeros, axis=1)
        return find_labels_elsewhere(with_zeros[:, indices].astype("float32"), groups)


def number_occurrences(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> Ints1d:
    """Give all occurrences of a value in a doc the same number; tokens without other occurrences
    have -1. The arguments are those of `group_occurrences`. Shape: (N,)"""
    group_of_token = numpy.full(len(keys), -1, dtype="int32")
    tokens, groups = group_occurrences(keys, takes_part, lengths)
    group_of_token[tokens] = groups
    return group_of_token


def find_labels_elsewhere(probabilities: Floats2d, groups: Ints1d) -> Ints2d:
    """Find the features of the mean probability of each label at the other occurrences of a token.

    probabilities (Floats2d): The probabilities of O and of the L labels, by the first pass.
        Shape: (N, L + 1)
    groups (Ints1d): The number that all occurrences of a value in a doc have, -1 for tokens without
        other occurrences: see `number_occurrences`. Shape: (N,)
    RETURNS (Ints2d): Ids in the order of `share_names`, -1 for none. Shape: (N, WIDTH)
    """
    ids = numpy.full((len(groups), WIDTH), -1, dtype="int32")
    tokens = numpy.flatnonzero(groups >= 0)
    if not len(tokens):
        return ids
    group_of_token = groups[tokens]
    sums = numpy.zeros((group_of_token.max() + 1, probabilities.shape[1]))
    numpy.add.at(sums, group_of_token, probabilities[tokens])  # the sum of each group
    # The sum over the other occurrences: that of the group without the token itself.
    sums_elsewhere = sums[group_of_token] - probabilities[tokens]
    ids[tokens] = share_ids(sums_elsewhere, WIDTH)
    return ids
