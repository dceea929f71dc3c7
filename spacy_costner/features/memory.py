"""Label memory: how often each value of an attribute, such as a word, had each label in the
training docs.

It provides features such as "the word was LOC in 50 to 75% of its occurrences". `share_ids`
computes the ids of these features from the counts. In training, a doc must not see its own labels.
Labels are therefore counted separately for each *unit*, which consists of one or more docs, and the
counts of a doc's own unit are subtracted: see `label_counts`. A *text id* is the hash of a doc's
text and identifies the doc.
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
"""If more than this many docs have the same text, the summed counts of their units are cached. The
sums are slow to compute and needed for each of these docs."""


class MemoryColumn(BatchColumn):
    """Label memory column. Its values describe how often the token's value for the attribute had
    each label in the training docs: see `LabelMemory`.

    attribute (str): A token attribute or extension attribute.
    """

    wants_labels = True

    def __init__(self, attribute: str, window: Window) -> None:
        super().__init__(f"memory:{attribute}", window)
        self.attribute = attribute
        self.attributes = (attribute,)
        # The memory is empty until `collect` is called. Without docs, the unit is irrelevant.
        no_counts = LabelCounts([attribute], unit=1)
        self._set_memory(LabelMemory.from_counts(no_counts, attribute))

    def _set_memory(self, memory: "LabelMemory") -> None:
        """Set the memory and the text ids of its docs."""
        self._memory = memory
        self.text_ids = memory.text_ids

    def collect(self, counts: TrainingCounts) -> None:
        """Create the memory from the label counts of the training docs."""
        self._set_memory(LabelMemory.from_counts(counts.labels, self.attribute))

    def recount(self, labels: LabelCounts) -> "MemoryColumn":
        """Create a column whose memory only counts a subset of the training docs.

        labels (LabelCounts): The label counts of these docs.
        RETURNS (MemoryColumn): The column with the new counts.
        """
        # Feature ids depend on the list of labels, so add the labels that are missing from these
        # docs. The first label is O, which is already in `LabelCounts`.
        labels.add_labels(self._memory.labels[1:])
        column = MemoryColumn(self.attribute, Window(self.offsets, self.min_count))
        column._set_memory(LabelMemory.from_counts(labels, self.attribute))
        return column

    def select(self, selection: Selection) -> "MemoryColumn":
        """Create a copy of the column without attribute values whose features all have zero
        weights. Feature ids don't change, because they only depend on the labels.

        selection (Selection): The values to keep. For this column, `is_needed` specifies whether
            each feature has a weight. Shape: (n_values,)
        RETURNS (MemoryColumn): The copy with the remaining values.
        """
        column = copy(self)
        column._set_memory(self._memory.select(selection.is_needed[self.name]))
        return column

    def save(self, saved: SavedColumns) -> None:
        """Write the memory: see `LabelMemory.save`."""
        self._memory.save(saved["memory"], self.attribute)

    def load(self, saved: SavedColumns) -> None:
        """Read the memory and validate it."""
        self._set_memory(LabelMemory.load(saved["memory"], self.attribute))

    @property
    def values_with_features(self) -> tuple[Array1d, Ints2d]:
        """The keys of the V values in the memory (see `Counts.keys`) and the ids of their features
        outside of training, -1 for none. Shapes: (V,), (V, width)"""
        return self._memory.counts.keys, self._memory.features

    @property
    def value_counts(self) -> tuple[Array1d, Ints1d]:
        """The keys of the V values in the memory (see `Counts.keys`) and the number of times each
        occurred in the training docs. Shapes: (V,)"""
        counts = self._memory.counts
        return counts.keys, counts.total.sum(axis=1)

    @property
    def value_names(self) -> list[str]:
        """The names of the label shares: see `share_names`."""
        return share_names(self._memory.labels)

    @property
    def width(self) -> int:
        """The maximum number of features per token: see `LabelMemory`."""
        return self._memory.width

    def write_value_ids(self, batch: TokenBatch, value_ids: Ints2d) -> None:
        """Write the feature ids of each token to `value_ids`. In training, the labels in the unit
        of the token's doc are ignored."""
        tokens = batch.tokens
        keys = tokens.keys[self.attribute]
        if tokens.text_ids is None:
            value_ids[:] = self._memory.find(keys)
        else:  # in training
            value_ids[:] = self._memory.find_in_training(keys, tokens.lengths, tokens.text_ids)


class LabelMemory:
    """Counts how often each value of an attribute had each label in the training docs, and computes
    features from the counts.

    Let n(v, l) be the number of times that value v had label l, which may be O. A token with value
    v has the following features:

    - for each label l, the label and the bin of its share n(v, l) / sum_m n(v, m), unless it's the
      lowest bin
    - for the most frequent label l, the label, the bin of its share, and the bin of sum_m n(v, m)

    In training, the counts of the token's own unit are subtracted from n. Otherwise, the model
    would learn to copy the annotations. Docs are identified by the hash of their text: see
    `text_id`. If docs with the same text are in several units, the counts of all these units are
    subtracted.

    labels (Sequence[str]): The L labels, with O first.
    counts (Counts): How often each of V values had each label, by unit and in total.
    text_ids (Array1d): The text ids of the D training docs, in ascending order. Shape: (D,)
    units (Ints1d): The index of each doc's unit. Shape: (D,)
    """

    def __init__(
        self, labels: Sequence[str], counts: Counts, text_ids: Array1d, units: Ints1d
    ) -> None:
        self.labels = list(labels)
        self.counts = counts
        self.text_ids = text_ids
        self.units = units
        # `starts` contains the first row of each unit, followed by the total number of rows.
        self._n_units = len(counts.starts) - 1
        self._value_ids = id_map(counts.keys)

        # Encode the unit and value of each of the E counts as a single int64: V * unit + value.
        # These numbers are ascending, so that `places_in` can search them. Shape: (E,)
        unit_of_count = sequence_ids(numpy.diff(counts.starts))
        self._units_and_values = unit_of_count * len(counts.keys) + counts.value

        # A token has one feature for each label that its value had, and another for the most
        # frequent label.
        n_labels_of_value = (counts.total > 0).sum(axis=1)
        self.width = int(n_labels_of_value.max(initial=0)) + 1
        # The features of each value outside of training. The last row is for unknown values.
        # Shape: (V + 1, width)
        counts_with_unknown = numpy.pad(counts.total, ((0, 1), (0, 0)))
        self._features = share_ids(counts_with_unknown, self.width)
        # Cached results of `_sum_over_units` for frequent texts, keyed by text id and value.
        # Shapes: (L,)
        self._counts_of_frequent_texts: dict[tuple[int, int], Ints1d] = {}

    @classmethod
    def from_counts(cls, labels: LabelCounts, attribute: str) -> "LabelMemory":
        """Create the memory of an attribute. The attribute's counts are removed from `labels` to
        free memory."""
        text_ids, units = labels.doc_units()
        return cls(labels.labels, labels.take_counts(attribute), text_ids, units)

    def select(self, is_feature_used: Array1d) -> "LabelMemory":
        """Return a copy without the values whose features are all unused.

        is_feature_used (Array1d): Whether each of F features is used. Shape: (F,)
        RETURNS (LabelMemory): The memory with the remaining values.
        """
        # The id -1 (no feature) refers to the last entry.
        is_id_used = numpy.append(is_feature_used, False)
        is_value_used = is_id_used[self.features].any(axis=1)  # (V, width) to (V,)
        counts = self.counts.select(is_value_used)
        return LabelMemory(self.labels, counts, self.text_ids, self.units)

    @property
    def features(self) -> Ints2d:
        """The feature ids of each of the V values outside of training, -1 for none.
        Shape: (V, width)"""
        return self._features[:-1]  # the last row is for unknown values

    def find(self, keys: Array1d) -> Ints2d:
        """Look up the features of tokens outside of training.

        keys (Array1d): The hashes of the tokens' values. Shape: (N,)
        RETURNS (Ints2d): Feature ids, which are indices into the result of `share_names`, or -1 for
            none. Shape: (N, width)
        """
        # Unknown values have the index -1, which is the last row.
        return self._features[self._find_values(keys)]

    def _find_values(self, keys: Array1d) -> Ints1d:
        """Look up values by their hashes. Returns the index of each value, or -1 if it's unknown.
        Shape: (N,)"""
        # The memory only stores these bits of the hashes.
        return self._value_ids.find(keys & LOWEST_32_BITS)

    def find_in_training(self, keys: Array1d, lengths: Ints1d, text_ids: Array1d) -> Ints2d:
        """Compute the features of tokens in training, excluding the counts for their docs' units.
        `keys` contains the hash of each token's value and `text_ids` the text id of each doc.
        Returns feature ids, which are indices into the result of `share_names`, or -1 for none.
        Shapes: (N,), (B,), (B,) to (N, width)"""
        value_of_token = self._find_values(keys)
        is_known = value_of_token >= 0

        # All tokens with the same value in a doc have the same features, so compute the features
        # once for each of the M pairs of doc and value. To find the distinct pairs, encode each
        # pair as V * doc + value. `divmod` decodes it.
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
        """Sum counts like `_sum_over_units`, but cache the sums for frequent texts.
        Shapes: (M,), (M,) to (M, L)"""
        # The number of training docs with the text of each pair. Text ids are ascending, so docs
        # with the same text are adjacent. Shapes: (M,)
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
        """For M pairs of a text and a value, sum the counts of the value over all units that
        contain docs with this text. Shapes: (M,), (M,) to (M, L)"""
        # The docs with the text of each pair, and their units. A unit is only counted once, even if
        # it contains several of these docs. Pairs and units are encoded as one number and decoded
        # by `divmod`.
        pair_of_doc, doc = places_in(self.text_ids, text_ids)
        n_units = max(self._n_units, 1)  # `divmod` can't divide by 0
        pair_and_unit = numpy.unique(pair_of_doc * n_units + self.units[doc])
        pair_of_unit, unit = numpy.divmod(pair_and_unit, n_units)

        # The rows of the count table for each unit and value, encoded as in `_units_and_values`.
        # `entry_of_row` is the index in `pair_of_unit` and `unit` that each row was found for.
        unit_and_value = unit * len(self.counts.keys) + value_ids[pair_of_unit]
        entry_of_row, row = places_in(self._units_and_values, unit_and_value)
        pair_of_row = pair_of_unit[entry_of_row]

        sums = numpy.zeros((len(value_ids), len(self.labels)), dtype="int32")
        numpy.add.at(sums, (pair_of_row, self.counts.label[row]), self.counts.n_times[row])
        return sums

    def save(self, saved: dict[str, Any], attribute: str) -> None:
        """Write the memory of an attribute to `saved`, the part of a saved model that contains the
        memories of all attributes."""
        if not saved:
            # The first attribute writes the parts that all attributes share.
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
        """Load the memory of an attribute and check that its parts are consistent.

        saved (dict[str, Any]): The part of a saved model that contains the memories of all
            attributes.
        attribute (str): The name of the attribute.
        RETURNS (LabelMemory): The memory of the attribute.
        RAISES (ValueError): If its parts are inconsistent.
        """
        labels = saved["labels"]
        counts = load_counts(saved["counts"][attribute], len(labels))
        text_ids = numpy.frombuffer(saved["text_ids"], dtype="<u8").astype("uint64")
        units = unpack(saved["units"], most=len(text_ids))

        # Each training doc has a text id and a unit. Text ids must be ascending for binary search.
        n_units = len(counts.starts) - 1
        is_valid_unit = (units >= 0) & (units < n_units)
        is_ascending = text_ids[1:] >= text_ids[:-1]
        if len(text_ids) != len(units) or not is_valid_unit.all() or not is_ascending.all():
            raise ValueError(f"memory: expected the docs of {n_units} units, in order")
        if not labels or not all(isinstance(label, str) for label in labels):
            raise ValueError(f"memory: expected labels, got {labels!r}")
        return cls(labels, counts, text_ids, units)


def load_counts(saved: dict[str, bytes], n_labels: int) -> Counts:
    """Load counts and check that they are consistent. The totals over all units aren't saved, so
    they're recomputed.

    RAISES (ValueError): If the counts are inconsistent.
    """
    keys = unpack_hashes(saved["short_keys"]).astype("uint64")
    starts = unpack(saved["starts"])
    value = unpack(saved["value"])
    label = unpack(saved["label"], most=len(value))
    n_times = unpack(saved["n_times"], most=len(value))

    have_equal_lengths = len(value) == len(label) == len(n_times)
    # The first unit starts at row 0, and the last unit ends at the end of the table.
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
