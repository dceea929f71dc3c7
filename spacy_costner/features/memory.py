"""Label memory: how often a value of an attribute, such as a word, had each label in the training
docs.

It gives a token features such as "the word was LOC in half to three quarters of its occurrences".
`share_ids` finds the ids of such features from counts. In training a doc must not see its own
labels. So labels are counted separately for each *unit*, a doc or several docs, and the counts of a
doc's own unit are subtracted: see `label_counts`. A *text id* is the hash of the text of a doc, by
which a doc is recognised.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy
from thinc.types import Array1d, Ints1d, Ints2d

from ..ragged import places_in, sequence_ids
from .column import BatchColumn, SavedColumns, Selection, Window
from .counts import TrainingCounts
from .ids import LOWEST_32_BITS, id_map, pack, pack_hashes, unpack, unpack_hashes
from .label_counts import Counts, LabelCounts
from .shares import share_ids, share_names
from .tokens import TokenBatch

OFTEN = 16
"""The number of docs with the same text above which the counts of their units are summed only once,
and kept: each of these docs needs the sum, which takes long."""


class MemoryColumn(BatchColumn):
    """The column of label memory. Its values say which labels the token's value of an attribute had
    in the training docs, and how often: see `LabelMemory`.

    attribute (str): An attribute or extension attribute of tokens.
    """

    wants_labels = True

    def __init__(self, attribute: str, window: Window) -> None:
        super().__init__(f"memory:{attribute}", window)
        self.attribute = attribute
        self.attributes = (attribute,)
        # Before `collect`, the memory is empty. Without docs the unit doesn't matter.
        no_counts = LabelCounts([attribute], unit=1)
        self._set_memory(LabelMemory.from_counts(no_counts, attribute))

    def _set_memory(self, memory: "LabelMemory") -> None:
        """Set the memory, and the training docs that it was counted in."""
        self._memory = memory
        self.text_ids = memory.text_ids

    def collect(self, counts: TrainingCounts) -> None:
        """Make the memory of the labels that were counted in the training docs."""
        self._set_memory(LabelMemory.from_counts(counts.labels, self.attribute))

    def recount(self, labels: LabelCounts) -> "MemoryColumn":
        """Make a column whose memory has counted only some of the training docs.

        labels (LabelCounts): The labels of these docs.
        RETURNS (MemoryColumn): The column.
        """
        # The ids of features follow from the list of labels. So labels that are missing in these
        # docs are added. The first label is O, which `LabelCounts` has already.
        labels.add_labels(self._memory.labels[1:])
        column = MemoryColumn(self.attribute, Window(self.offsets, self.min_count))
        column._set_memory(LabelMemory.from_counts(labels, self.attribute))
        return column

    def select(self, selection: Selection) -> "MemoryColumn":
        """Make a copy of the column whose memory lacks the values of the attribute, such as words,
        none of whose features has a weight. All features keep their ids, as these follow from the
        labels.

        selection (Selection): Its `is_needed` has, under the name of the column, whether each
            feature has a weight. Shape: (n_values,)
        RETURNS (MemoryColumn): The copy.
        """
        column = copy(self)
        column._set_memory(self._memory.select(selection.is_needed[self.name]))
        return column

    def save(self, saved: SavedColumns) -> None:
        """Write the memory: see `LabelMemory.save`."""
        self._memory.save(saved["memory"], self.attribute)

    def load(self, saved: SavedColumns) -> None:
        """Read the memory, and check it."""
        self._set_memory(LabelMemory.load(saved["memory"], self.attribute))

    @property
    def values_with_features(self) -> tuple[Array1d, Ints2d]:
        """The keys of the V values that the memory knows (see `Counts.keys`); and for each the ids
        of the features that it has outside of training, -1 for none. Shapes: (V,), (V, width)"""
        return self._memory.counts.keys, self._memory.features

    @property
    def value_counts(self) -> tuple[Array1d, Ints1d]:
        """The keys of the V values that the memory knows (see `Counts.keys`), and how often each
        occurred in the training docs. Shapes: (V,)"""
        counts = self._memory.counts
        return counts.keys, counts.total.sum(axis=1)

    @property
    def value_names(self) -> list[str]:
        """The names of the shares of labels: see `share_names`."""
        return share_names(self._memory.labels)

    @property
    def width(self) -> int:
        """The maximum number of features that a token has: see `LabelMemory`."""
        return self._memory.width

    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Write the features of each token to `value_ids`. In training, the labels in the unit of
        its doc don't count."""
        tokens = batch.tokens
        keys = tokens.keys[self.attribute]
        if tokens.text_ids is None:
            value_ids[:] = self._memory.find(keys)
        else:  # in training
            value_ids[:] = self._memory.find_in_training(keys, tokens.lengths, tokens.text_ids)


class LabelMemory:
    """How often values of an attribute had each label in the training docs, and the features that
    follow from it.

    Let n(v, l) be the number of times that the value v had the label l, which may be O. A token
    with the value v has these features:

    - for each label l, l and the bin of its share n(v, l) / sum_m n(v, m), but for the lowest bin;
    - for the most frequent label l, also l, the bin of its share, and the bin of sum_m n(v, m).

    In training, the counts of the token's own unit are subtracted from n. Otherwise the model would
    learn to copy the annotation. A doc is known by the hash of its text: see `text_id`. If docs
    with the same text are in several units, the counts of all these units are subtracted.

    labels (Sequence[str]): The L labels, O first.
    counts (Counts): How often each of V values had each label, by unit and in total.
    text_ids (Array1d): The text ids of the D training docs, ascending. Shape: (D,)
    units (Ints1d): The unit of each of these docs, as an index. Shape: (D,)
    """

    def __init__(
        self, labels: Sequence[str], counts: Counts, text_ids: Array1d, units: Ints1d
    ) -> None:
        self.labels = list(labels)
        self.counts = counts
        self.text_ids = text_ids
        self.units = units
        # `starts` has the first row of each unit, and at the end the number of rows.
        self._n_units = len(counts.starts) - 1
        self._value_ids = id_map(counts.keys)

        # The unit and the value of each of the E counts, as one number: V * unit + value, in int64.
        # The numbers are ascending, so `places_in` can find them. Shape: (E,)
        unit_of_count = sequence_ids(numpy.diff(counts.starts))
        self._units_and_values = unit_of_count * len(counts.keys) + counts.value

        # A token has a feature for each label that its value has had, and one for the most frequent
        # of them.
        n_labels_of_value = (counts.total > 0).sum(axis=1)
        self.width = int(n_labels_of_value.max(initial=0)) + 1
        # The features of each value outside of training. The last row is for unknown values.
        # Shape: (V + 1, width)
        counts_with_unknown = numpy.pad(counts.total, ((0, 1), (0, 0)))
        self._features = share_ids(counts_with_unknown, self.width)
        # The results of `_sum_over_units` for texts that many docs have, by text id and value.
        # Shapes: (L,)
        self._counts_of_frequent_texts: dict[tuple[int, int], Ints1d] = {}

    @classmethod
    def from_counts(cls, labels: LabelCounts, attribute: str) -> "LabelMemory":
        """Make the memory of an attribute. The counts of the attribute are removed from `labels`,
        to free their memory."""
        text_ids, units = labels.doc_units()
        return cls(labels.labels, labels.take_counts(attribute), text_ids, units)

    def select(self, is_feature_used: Array1d) -> "LabelMemory":
        """The memory without the values none of whose features is used.

        is_feature_used (Array1d): Whether each of F features is used. Shape: (F,)
        RETURNS (LabelMemory): The smaller memory.
        """
        # The id -1, which stands for no feature, finds the last entry.
        is_id_used = numpy.append(is_feature_used, False)
        is_value_used = is_id_used[self.features].any(axis=1)  # (V, width) to (V,)
        counts = self.counts.select(is_value_used)
        return LabelMemory(self.labels, counts, self.text_ids, self.units)

    @property
    def features(self) -> Ints2d:
        """The ids of the features that each of the V values has outside of training, -1 for none.
        Shape: (V, width)"""
        return self._features[:-1]  # the last row is for unknown values

    def find(self, keys: Array1d) -> Ints2d:
        """Find the features of tokens outside of training.

        keys (Array1d): The hashes of the values of tokens. Shape: (N,)
        RETURNS (Ints2d): Ids in the order of `share_names`, -1 for none. Shape: (N, width)
        """
        # An unknown value has the index -1: the last row.
        return self._features[self._find_values(keys)]

    def _find_values(self, keys: Array1d) -> Ints1d:
        """Look values up by their hashes. Returns the index of each, -1 if it is unknown.
        Shape: (N,)"""
        return self._value_ids.find(
            keys & LOWEST_32_BITS
        )  # the memory has only these bits of hashes

    def find_in_training(self, keys: Array1d, lengths: Ints1d, text_ids: Array1d) -> Ints2d:
        """Find the features of tokens in training: without the counts of the units of their docs.
        `keys` has the hash of each token's value, `text_ids` the text id of each doc. Returns ids
        in the order of `share_names`, -1 for none. Shapes: (N,), (B,), (B,) to (N, width)"""
        value_of_token = self._find_values(keys)
        is_known = value_of_token >= 0

        # All tokens of a doc that have the same value have the same features. So features are
        # computed once for each of the M pairs of a doc and a value. To find the distinct pairs,
        # a pair is made one number, V * doc + value, and `divmod` splits it again.
        n_values = max(len(self.counts.keys), 1)  # `divmod` can't divide by 0
        doc_and_value = sequence_ids(lengths) * n_values + value_of_token
        pairs, pair_of_token = numpy.unique(doc_and_value[is_known], return_inverse=True)
        docs, value_ids = numpy.divmod(pairs, n_values)

        counts_in_units = self._count_in_units(text_ids[docs], value_ids)
        counts_elsewhere = self.counts.total[value_ids] - counts_in_units
        features_of_pair = share_ids(counts_elsewhere, self.width)  # (M, width)
        features = numpy.full((len(keys), self.width), -1, dtype="int32")
        features[is_known] = features_of_pair[pair_of_token]
        return features

    def _count_in_units(self, text_ids: Array1d, value_ids: Ints1d) -> Ints2d:
        """Sum counts as `_sum_over_units` does, but keep the sums for texts that many docs have.
        Shapes: (M,), (M,) to (M, L)"""
        # How many training docs have the text of each pair. Text ids are ascending, so docs with
        # the same text are adjacent. Shapes: (M,)
        first_doc = numpy.searchsorted(self.text_ids, text_ids, side="left")
        doc_after_last = numpy.searchsorted(self.text_ids, text_ids, side="right")
        n_docs_with_text = doc_after_last - first_doc
        is_frequent = n_docs_with_text > OFTEN

        counts = numpy.zeros((len(value_ids), len(self.labels)), dtype="int32")  # (M, L)
        counts[~is_frequent] = self._sum_over_units(text_ids[~is_frequent], value_ids[~is_frequent])
        for i in numpy.flatnonzero(is_frequent).tolist():
            text_and_value = (int(text_ids[i]), int(value_ids[i]))
            if text_and_value not in self._counts_of_frequent_texts:
                sums = self._sum_over_units(text_ids[[i]], value_ids[[i]])
                self._counts_of_frequent_texts[text_and_value] = sums[0]
            counts[i] = self._counts_of_frequent_texts[text_and_value]
        return counts

    def _sum_over_units(self, text_ids: Array1d, value_ids: Ints1d) -> Ints2d:
        """For M pairs of a text and a value, sum the counts of the value over all units that have
        docs with this text. Shapes: (M,), (M,) to (M, L)"""
        # The docs that have the text of each pair, and their units. A unit with several of these
        # docs counts once. So a pair and a unit are made one number, and `divmod` splits it again.
        pair_of_doc, doc = places_in(self.text_ids, text_ids)
        n_units = max(self._n_units, 1)  # `divmod` can't divide by 0
        pair_and_unit = numpy.unique(pair_of_doc * n_units + self.units[doc])
        pair_of_unit, unit = numpy.divmod(pair_and_unit, n_units)

        # The rows of the table of counts that are about such a unit and the value of the pair. Both
        # are made one number, as in `_units_and_values`. `entry_of_row` has, for each row, the
        # index of the entry of `pair_of_unit` and `unit` that it was found for.
        unit_and_value = unit * len(self.counts.keys) + value_ids[pair_of_unit]
        entry_of_row, row = places_in(self._units_and_values, unit_and_value)
        pair_of_row = pair_of_unit[entry_of_row]

        sums = numpy.zeros((len(value_ids), len(self.labels)), dtype="int32")
        numpy.add.at(sums, (pair_of_row, self.counts.label[row]), self.counts.n_times[row])
        return sums

    def save(self, saved: dict[str, Any], attribute: str) -> None:
        """Write the memory of an attribute to `saved`, the part of a saved model that has the
        memories of all attributes."""
        if not saved:
            # The first attribute writes the parts that all of them share.
            saved["labels"] = self.labels
            saved["counts"] = {}
            saved["text_ids"] = self.text_ids.astype("<u8").tobytes()
            saved["units"] = pack(self.units)
        saved["counts"][attribute] = {
            "short_keys": pack_hashes(self.counts.keys),
            "starts": pack(self.counts.starts),
            "value": pack(self.counts.value),
            "label": pack(self.counts.label),
            "n_times": pack(self.counts.n_times),
        }

    @classmethod
    def load(cls, saved: dict[str, Any], attribute: str) -> "LabelMemory":
        """Load the memory of an attribute, and check that its parts are consistent.

        saved (dict[str, Any]): The part of a saved model that has the memories of all attributes.
        attribute (str): The name of the attribute.
        RETURNS (LabelMemory): The memory.
        RAISES (ValueError): If its parts are inconsistent.
        """
        labels = saved["labels"]
        counts = load_counts(saved["counts"][attribute], len(labels))
        text_ids = numpy.frombuffer(saved["text_ids"], dtype="<u8").astype("uint64")
        units = unpack(saved["units"], most=len(text_ids))

        # Each training doc has a text id and a unit. Text ids must be ascending, because docs are
        # found by bisection.
        n_units = len(counts.starts) - 1
        is_valid_unit = (units >= 0) & (units < n_units)
        is_ascending = text_ids[1:] >= text_ids[:-1]
        if len(text_ids) != len(units) or not is_valid_unit.all() or not is_ascending.all():
            raise ValueError(f"memory: expected the docs of {n_units} units, in order")
        if not labels or not all(isinstance(label, str) for label in labels):
            raise ValueError(f"memory: expected labels, got {labels!r}")
        return cls(labels, counts, text_ids, units)


def load_counts(saved: dict[str, bytes], n_labels: int) -> Counts:
    """Load counts, and check that they are consistent. The sums over all units are not saved: they
    are computed again.

    RAISES (ValueError): If the counts are inconsistent.
    """
    keys = unpack_hashes(saved["short_keys"]).astype("uint64")
    starts = unpack(saved["starts"])
    value = unpack(saved["value"])
    label = unpack(saved["label"], most=len(value))
    n_times = unpack(saved["n_times"], most=len(value))

    have_equal_lengths = len(value) == len(label) == len(n_times)
    # The first unit begins at row 0, each one begins where the one before ends, and the last one
    # ends with the table.
    divide_table = len(starts) > 0 and starts[0] == 0 and starts[-1] == len(value)
    if not have_equal_lengths or not divide_table or not (numpy.diff(starts) >= 0).all():
        raise ValueError("memory: expected a value, a label and a number for each count")

    is_value = (value >= 0) & (value < len(keys))
    is_label = (label >= 0) & (label < n_labels)
    if not (is_value & is_label & (n_times > 0)).all():
        raise ValueError(f"memory: expected counts of {len(keys)} values and {n_labels} labels")
    return Counts.with_totals(
        keys=keys, n_labels=n_labels, starts=starts, value=value, label=label, n_times=n_times
    )
