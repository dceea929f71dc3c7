"""Features based on the labels that a first pass predicts for other occurrences of a word in a doc.

The *first pass* is a separate model that predicts labels before the main model does: see
`ml.first_pass`. Tokens in a doc that have the same value for an attribute, such as the lowercase
form, are *occurrences* of this value and form a *group*.
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
"""The maximum number of these features for a token: one for its most probable label and up to 7 for
the shares of labels, which may include the most probable label."""


class DocumentColumn(LabelColumn):
    """Column of the labels that a first pass predicts for a word's other occurrences. Only words
    that are capitalised or contain a digit have these features.

    attribute (str): A token attribute or extension attribute. Tokens in a doc with the same value
        for the attribute are occurrences of the same word.
    """

    wants_labels = True

    def __init__(self, attribute: str, window: Window) -> None:
        super().__init__(f"document:{attribute}", window)
        self.attribute = attribute
        self.attributes = (attribute,)
        self.labels: list[str] = []

    def collect(self, counts: TrainingCounts) -> None:
        """Collect the labels of the training docs, with O first."""
        self.labels = counts.labels.labels

    def save(self, saved: SavedColumns) -> None:
        """Write the labels, which are the same for all columns of this class."""
        saved["labels"] = self.labels

    def load(self, saved: SavedColumns) -> None:
        """Read the labels and validate them."""
        check_strings("labels", saved["labels"])
        self.labels = saved["labels"]

    @property
    def value_names(self) -> list[str]:
        """The names of the label shares: see `share_names`."""
        return share_names(self.labels)

    @property
    def width(self) -> int:
        """The maximum number of features per token."""
        return WIDTH

    def group_tokens(self, batch: TokenBatch) -> Ints1d:
        """Group the tokens in each doc by attribute value. Groups only contain words that are
        capitalised or contain a digit and that occur more than once in the doc. Returns the index
        of each token's group, or -1. Shape: (N,)"""
        keys = batch.tokens.keys[self.attribute]
        has_value = keys != 0
        takes_part = (batch.is_capitalised | batch.has_digit) & has_value
        return number_groups(keys, takes_part, batch.tokens.lengths)

    def find_label_values(
        self, probabilities: Floats2d, labels: Sequence[str], groups: Ints1d
    ) -> Ints2d:
        """Compute the label shares for the other occurrences of each token's value."""
        # Feature ids depend on the order of the labels in training, so reorder the probabilities.
        # Labels that the first pass doesn't predict have a probability of 0: the index -1 refers to
        # a column of zeros that is added at the end.
        index_of_label = {label: i for i, label in enumerate([OUTSIDE, *labels])}
        indices = [index_of_label.get(label, -1) for label in self.labels]
        zeros = numpy.zeros_like(probabilities[:, :1])
        with_zeros = numpy.append(probabilities, zeros, axis=1)
        in_training_order = with_zeros[:, indices]
        return find_labels_elsewhere(in_training_order, groups)


def number_groups(keys: Array1d, takes_part: Array1d, lengths: Ints1d) -> Ints1d:
    """Number the groups of tokens in each doc that have the same value: see `group_occurrences`.
    Returns the index of each token's group, or -1 if it's not in a group.
    Shapes: (N,), (N,), (B,) to (N,)"""
    group_of_token = numpy.full(len(keys), -1, dtype="int32")
    tokens, groups = group_occurrences(keys, takes_part, lengths)
    group_of_token[tokens] = groups
    return group_of_token


def find_labels_elsewhere(probabilities: Floats2d, groups: Ints1d) -> Ints2d:
    """Compute each token's features from the mean probability of each label over the other tokens
    in its group. `groups` is the result of `number_groups`. Returns feature ids, which are indices
    into the result of `share_names`, or -1 for none. Shapes: (N, L + 1), (N,) to (N, WIDTH)"""
    ids = numpy.full((len(groups), WIDTH), -1, dtype="int32")
    tokens = numpy.flatnonzero(groups >= 0)
    if not len(tokens):
        return ids
    group_of_token = groups[tokens]
    # The sum of the probabilities in each group. Shape: (number of groups, L + 1)
    sums = numpy.zeros((group_of_token.max() + 1, probabilities.shape[1]))
    numpy.add.at(sums, group_of_token, probabilities[tokens])
    # The sums over the other tokens in each token's group. `share_ids` divides them by the number
    # of these tokens.
    sums_elsewhere = sums[group_of_token] - probabilities[tokens]
    ids[tokens] = share_ids(sums_elsewhere, WIDTH)
    return ids
