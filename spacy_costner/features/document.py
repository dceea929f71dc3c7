"""Features of the labels that a first pass predicts for the other occurrences of a word in its doc.

A *first pass* is a separate model, which predicts all docs before the model with these features
does: see `ml.first_pass`. Tokens of a doc that have the same value of an attribute, such as the
word in lower case, are *occurrences* of this value, and form a *group*.
"""

from collections.abc import Sequence

import numpy
from thinc.types import Array1d, Floats2d, Ints1d, Ints2d

from ..tags import OUTSIDE
from .column import LabelColumn, SavedColumns, Window, check_strings
from .counts import TrainingCounts
from .elsewhere import group_occurrences
from .shares import share_ids, share_names
from .tokens import TokenBatch

WIDTH = 8
"""The maximum number of these features that a token has: one for its most probable label, and one
for each of up to 7 labels, whether or not it is the most probable one."""


class DocumentColumn(LabelColumn):
    """The column of the labels that a first pass predicts for the other occurrences of a word. Only
    capitalised words and words with a digit have such features.

    attribute (str): An attribute or extension attribute of tokens. Tokens of a doc with the same
        value of it are occurrences of the same word.
    """

    wants_labels = True

    def __init__(self, attribute: str, window: Window) -> None:
        super().__init__(f"document:{attribute}", window)
        self.attribute = attribute
        self.attributes = (attribute,)
        self.labels: list[str] = []

    def collect(self, counts: TrainingCounts) -> None:
        """Collect the labels of the training docs, O first."""
        self.labels = counts.labels.labels

    def save(self, saved: SavedColumns) -> None:
        """Write the labels, which are the same for all columns of this class."""
        saved["labels"] = self.labels

    def load(self, saved: SavedColumns) -> None:
        """Read the labels, and check them."""
        check_strings("labels", saved["labels"])
        self.labels = saved["labels"]

    @property
    def value_names(self) -> list[str]:
        """The names of the shares of labels: see `share_names`."""
        return share_names(self.labels)

    @property
    def width(self) -> int:
        """The maximum number of features that a token has."""
        return WIDTH

    def group_tokens(self, batch: TokenBatch) -> Ints1d:
        """Group the tokens of each doc by the value of the attribute. Only capitalised words and
        words with a digit that occur again in the doc are in a group. Returns the index of each
        token's group, -1 for none. Shape: (N,)"""
        keys = batch.tokens.keys[self.attribute]
        has_value = keys != 0
        takes_part = (batch.is_capitalised | batch.has_digit) & has_value
        return number_groups(keys, takes_part, batch.tokens.lengths)

    def find_label_values(
        self, probabilities: Floats2d, labels: Sequence[str], groups: Ints1d
    ) -> Ints2d:
        """Find the shares of labels at the other occurrences of each token's value."""
        # The ids of features follow from the order of the labels in training, so the probabilities
        # are put in this order. A label unknown to the first pass has the probability 0: a column
        # of zeros is added at the end, where the index -1 finds it.
        index_of_label = {label: i for i, label in enumerate([OUTSIDE, *labels])}
        indices = [index_of_label.get(label, -1) for label in self.labels]
        zeros = numpy.zeros_like(probabilities[:, :1])
        with_zeros = numpy.append(probabilities, zeros, axis=1)
        in_training_order = with_zeros[:, indices]
        return find_labels_elsewhere(in_training_order, groups)


def number_groups(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> Ints1d:
    """Number the groups of tokens that have the same value in a doc: see `group_occurrences`.
    Returns the index of each token's group, -1 for a token without a group. Shapes: (N,), (N,),
    (B,) to (N,)"""
    group_of_token = numpy.full(len(keys), -1, dtype="int32")
    tokens, groups = group_occurrences(keys, takes_part, lengths)
    group_of_token[tokens] = groups
    return group_of_token


def find_labels_elsewhere(probabilities: Floats2d, groups: Ints1d) -> Ints2d:
    """Find the features of tokens from the mean probability that each label has at the other tokens
    of their group. `groups` is what `number_groups` returns. Returns ids in the order of
    `share_names`, -1 for none. Shapes: (N, L + 1), (N,) to (N, WIDTH)"""
    ids = numpy.full((len(groups), WIDTH), -1, dtype="int32")
    tokens = numpy.flatnonzero(groups >= 0)
    if not len(tokens):
        return ids
    group_of_token = groups[tokens]
    # The sums of the probabilities in each group. Shape: (number of groups, L + 1)
    sums = numpy.zeros((group_of_token.max() + 1, probabilities.shape[1]))
    numpy.add.at(sums, group_of_token, probabilities[tokens])
    # The sums over the other tokens of the group, without the token itself. `share_ids` divides
    # them by the number of these tokens.
    sums_elsewhere = sums[group_of_token] - probabilities[tokens]
    ids[tokens] = share_ids(sums_elsewhere, WIDTH)
    return ids
