"""Count the labels of words in the training docs, for label memory.

Label memory provides features that describe how often a word had each label in the training docs.
In training, a doc must not see its own labels. Labels are therefore counted separately for each
*unit*: a doc, several consecutive docs, or all docs with the same value for an attribute, depending
on the setting `memory_unit`.

`LabelCounts` counts labels batch by batch. Until all docs have been counted, attribute values,
labels and units are identified by *keys*, which are hashes or, for units with a fixed number of
docs, doc indices. The result, `Counts`, replaces the keys with consecutive numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d, Ints2d

from ..annotation.equal_texts import text_id
from ..annotation.iob import MISSING
from ..tags import OUTSIDE
from .ids import LOWEST_32_BITS
from .tokens import EXTENSION, Tokens, string_of

DOC = "doc"
"""The label memory unit for single docs. Docs with the same text are in the same unit."""

LEAST_UNITS = 24
"""The minimum number of units if `memory_unit` is a number of docs. With fewer units, too few
labels would remain after subtracting a doc's own unit, so units are made smaller in short corpora.
If a corpus has fewer docs than this, each doc is a unit."""


class UnitCounts(NamedTuple):
    """A table with E rows. Each row contains the number of times a value had a label in a unit.

    unit (Array1d): The key of the unit. Shape: (E,)
    value (Array1d): The lowest 32 bits of the value's hash. Shape: (E,)
    label (Array1d): The hash of the label (0 for O), or its index once all labels are known.
        Shape: (E,)
    n_times (Ints1d): How often the value had the label in the unit. Shape: (E,)
    """

    unit: Array1d
    value: Array1d
    label: Array1d
    n_times: Ints1d


class Counts(NamedTuple):
    """How often each of V attribute values had each of L labels, in each of U units and in total.

    The counts by unit are stored in a table with E rows. Each row contains the number of times a
    value had a label in a unit. Zeros are left out. The rows of a unit are adjacent.

    keys (Array1d): The lowest 32 bits of the values' hashes, in ascending order. Shape: (V,)
    total (Ints2d): The number of times each value had each label across all units. Shape: (V, L)
    starts (Ints1d): The first row of each unit in the table, followed by the total number of rows.
        Shape: (U + 1,)
    value (Ints1d): The index of each row's value. Shape: (E,)
    label (Ints1d): The index of each row's label. Shape: (E,)
    n_times (Ints1d): How often the value had the label in the unit, for each row. Shape: (E,)
    """

    keys: Array1d
    total: Ints2d
    starts: Ints1d
    value: Ints1d
    label: Ints1d
    n_times: Ints1d

    @classmethod
    def with_totals(
        cls,
        *,
        keys: Array1d,
        n_labels: int,
        starts: Ints1d,
        value: Ints1d,
        label: Ints1d,
        n_times: Ints1d,
    ) -> "Counts":
        """Create counts from the table of units. The field `total` is computed from the table.

        n_labels (int): The number of labels, L.
        keys, starts, value, label, n_times: The other fields.
        """
        total = numpy.zeros((len(keys), n_labels), dtype="int32")
        numpy.add.at(total, (value, label), n_times)
        return cls(keys, total, starts, value, label, n_times)

    def select(self, is_kept: Array1d) -> "Counts":
        """Return the counts of the values for which the mask, of shape (V,), is True."""
        is_row_kept = is_kept[self.value]
        # The number of kept rows before each row, followed by the total number of kept rows.
        # Shape: (E + 1,)
        n_kept_rows_before = numpy.append(0, numpy.cumsum(is_row_kept))
        # The new index of a value is the number of kept values before it. Shape: (V,)
        new_index = numpy.cumsum(is_kept) - 1
        return Counts(
            keys=self.keys[is_kept],
            total=self.total[is_kept],
            starts=n_kept_rows_before[self.starts].astype("int32"),
            value=new_index[self.value[is_row_kept]].astype("int32"),
            label=self.label[is_row_kept],
            n_times=self.n_times[is_row_kept],
        )


class LabelCounts:
    """Counts how often attribute values have each label in the training docs. Unannotated tokens
    are ignored. Docs are processed in batches and not kept in memory.

    attributes (Sequence[str]): The attributes whose values are counted. If empty, only the labels
        are collected.
    unit (int | str): The unit of label memory: see the setting `memory_unit`.
    """

    def __init__(self, attributes: Sequence[str], unit: int | str) -> None:
        self.unit = unit
        self.n_docs = 0
        # The names of labels, keyed by hash. O isn't an entity type and has the hash 0.
        self._label_names = {0: OUTSIDE}
        # For each batch of docs, store the text id and unit key of each doc, and a table of counts
        # for each attribute. Label memory looks up the unit of a training doc by text id. The lists
        # start with an empty entry, so that they can be concatenated even if there are no docs.
        no_keys = numpy.zeros(0, dtype="uint64")
        self._text_ids = [no_keys]
        self._unit_keys = [no_keys]
        self._counts: dict[str, list[UnitCounts]] = {}
        for attribute in attributes:
            no_counts = UnitCounts(
                unit=no_keys, value=no_keys, label=no_keys, n_times=numpy.zeros(0, dtype="int32")
            )
            self._counts[attribute] = [no_counts]

    @property
    def labels(self) -> list[str]:
        """The labels. O is first, followed by the others in alphabetical order."""
        return [self._label_names[key] for key in self._label_keys()]

    def add_labels(self, labels: Sequence[str]) -> None:
        """Add labels that may be missing from the docs, so that they're included in the label
        indices."""
        for label in labels:
            self._label_names[get_string_id(label)] = label

    def add(self, docs: Sequence[Doc], tokens: Tokens) -> None:
        """Count the labels in a batch of docs.

        docs (Sequence[Doc]): The docs. There has to be at least one.
        tokens (Tokens): The tokens of the docs, as read by `TokenReader`.
        """
        annotation = numpy.concatenate([doc.to_array([ENT_IOB, ENT_TYPE]) for doc in docs])
        iob, label_keys = annotation.T
        self._add_label_names(label_keys, tokens)
        if not self._counts:
            return  # without attributes, only collect the labels

        unit_keys = self._add_docs(docs)
        unit_of_token = numpy.repeat(unit_keys, tokens.lengths)
        for attribute, counts in self._counts.items():
            value_keys = tokens.keys[attribute]
            is_counted = (iob != MISSING) & (value_keys != 0)  # annotated and has a value
            counts_of_tokens = UnitCounts(
                unit=unit_of_token[is_counted],
                value=value_keys[is_counted] & LOWEST_32_BITS,
                label=label_keys[is_counted],
                n_times=numpy.ones(int(is_counted.sum()), dtype="int32"),
            )
            counts.append(count_rows(counts_of_tokens))

    def _add_label_names(self, label_keys: Array1d, tokens: Tokens) -> None:
        """Look up the names of labels by their hashes and store them. Shape: (N,)"""
        stores = [vocab.strings for vocab in tokens.vocabs]
        for key in numpy.unique(label_keys).tolist():
            if key not in self._label_names:
                self._label_names[key] = string_of(key, stores)

    def _add_docs(self, docs: Sequence[Doc]) -> Array1d:
        """Store the text ids and units of docs. Returns the unit key of each doc. Shape: (B,)"""
        unit_keys = []
        text_ids = []
        for index, doc in enumerate(docs, start=self.n_docs):
            unit_keys.append(unit_key(doc, index, self.unit))
            text_ids.append(text_id(doc))
        self.n_docs += len(docs)
        self._unit_keys.append(numpy.asarray(unit_keys, dtype="uint64"))
        self._text_ids.append(numpy.asarray(text_ids, dtype="uint64"))
        return self._unit_keys[-1]

    def doc_units(self) -> tuple[Array1d, Ints1d]:
        """Return the text id and the unit of each of the D docs. Label memory uses them to look up
        the unit of a training doc.

        RETURNS (tuple[Array1d, Ints1d]): The text ids in ascending order, and the index of each
            doc's unit. Shapes: (D,)
        """
        text_ids = numpy.concatenate(self._text_ids)
        _, units = numpy.unique(self._unit_of_docs(), return_inverse=True)
        order = numpy.argsort(text_ids, kind="stable")
        return text_ids[order], units[order].astype("int32")

    def take_counts(self, attribute: str) -> Counts:
        """Return the counts for an attribute once all docs have been counted. Can only be called
        once per attribute, because the attribute's data is removed to save memory.

        attribute (str): The attribute to return the counts for.
        RETURNS (Counts): The counts. Label indices refer to `labels`.
        """
        # Join the rows of all batches. All docs are known now, so units and labels get their final
        # keys.
        batches = self._counts.pop(attribute)
        unit_keys = numpy.concatenate([batch.unit for batch in batches])
        label_keys = numpy.concatenate([batch.label for batch in batches])
        joined = UnitCounts(
            unit=self._merge_units(unit_keys),
            value=numpy.concatenate([batch.value for batch in batches]),
            label=self._label_ids(label_keys),
            n_times=numpy.concatenate([batch.n_times for batch in batches]),
        )
        batches.clear()  # free the memory
        merged_rows = count_rows(joined)

        keys, value_ids = numpy.unique(merged_rows.value, return_inverse=True)
        # `merged_rows` is sorted by unit, so `searchsorted` finds the first row of each unit. Units
        # without annotations have no rows.
        units = numpy.unique(self._unit_of_docs())
        first_rows = numpy.searchsorted(merged_rows.unit, units)
        starts = numpy.append(first_rows, len(merged_rows.unit))
        return Counts.with_totals(
            keys=keys,
            n_labels=len(self._label_names),
            starts=starts.astype("int32"),
            value=value_ids.astype("int32"),
            label=merged_rows.label.astype("int32"),
            n_times=merged_rows.n_times.astype("int32"),
        )

    def _label_keys(self) -> list[int]:
        """Return the hashes of the labels, in the same order as `labels`."""
        keys = [key for key in self._label_names if key != 0]
        return [0, *sorted(keys, key=lambda key: self._label_names[key])]

    def _label_ids(self, hashes: Array1d) -> Ints1d:
        """Look up E labels by their hashes. Returns the index of each label in `labels`.
        Shape: (E,)"""
        label_keys = numpy.asarray(self._label_keys(), dtype="uint64")
        # `searchsorted` requires sorted hashes. It returns the rank of each label's hash, and
        # `order` maps ranks to label indices.
        order = numpy.argsort(label_keys)
        ranks = numpy.searchsorted(label_keys[order], hashes)
        return order[ranks]

    def _unit_of_docs(self) -> Array1d:
        """Return the unit key of each doc. Shape: (D,)"""
        return self._merge_units(numpy.concatenate(self._unit_keys))

    def _merge_units(self, unit_keys: Array1d) -> Array1d:
        """Group docs into units if a unit is defined as a number of docs. In this case, the keys
        are doc indices, and docs in the same unit get the same key. In short corpora, units contain
        fewer docs, so that there are at least `LEAST_UNITS` units. Other keys aren't changed. The
        shape stays the same."""
        if not isinstance(self.unit, int):
            return unit_keys
        n_docs_of_unit = max(1, min(self.unit, self.n_docs // LEAST_UNITS))
        return unit_keys // numpy.uint64(n_docs_of_unit)


def unit_key(doc: Doc, index: int, unit: int | str) -> int:
    """Return the key of a doc's unit: a 64-bit hash or, if `unit` is a number of docs, a doc index.
    `index` is the index of the doc in the corpus. `unit` is a number of docs, `DOC`, or an
    extension attribute of docs such as "_.source", in which case docs with the same value form a
    unit.

    RAISES (ValueError): If the extension attribute isn't registered.
    """
    if isinstance(unit, int):
        if index < LEAST_UNITS * unit:
            # Keep the index of each doc for now. In a short corpus, `_merge_units` has to create
            # smaller units to get at least `LEAST_UNITS` of them.
            return index
        # Use the index of the unit's first doc, so that `count_rows` can merge its docs right away.
        return index - index % unit
    if unit == DOC:
        return text_id(doc)
    name = unit.removeprefix(EXTENSION)
    if not Doc.has_extension(name):
        expected = "expected an extension attribute, registered with Doc.set_extension"
        raise ValueError(f"spacy_costner.Features: memory_unit: {expected}, got {unit!r}")
    return get_string_id(str(doc._.get(name)))


def count_rows(counts: UnitCounts) -> UnitCounts:
    """Merge rows with the same unit, value and label and sum their `n_times`. Returns the rows
    sorted by unit, value and label."""
    # Encode the unit, value and label of each row as a single number, so that rows can be compared
    # and sorted. Each column is replaced with ranks, and the number is (unit rank * number of
    # values + value rank) * number of labels + label rank. Shape: (E,)
    row_numbers = numpy.zeros(len(counts.n_times), dtype="int64")
    for column in (counts.unit, counts.value, counts.label):
        distinct, rank_in_column = numpy.unique(column, return_inverse=True)
        row_numbers = row_numbers * len(distinct) + rank_in_column

    # The first row of each group of equal rows, and the group of each row.
    _, first_rows, group_of_row = numpy.unique(row_numbers, return_index=True, return_inverse=True)
    return UnitCounts(
        unit=counts.unit[first_rows],
        value=counts.value[first_rows],
        label=counts.label[first_rows],
        n_times=numpy.bincount(group_of_row, weights=counts.n_times).astype("int32"),
    )
