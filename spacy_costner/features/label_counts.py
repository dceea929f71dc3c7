"""Count the labels of the words in training docs, for label memory.

Label memory tells the model how often a word had each label in the training docs. In training a doc
must not see its own labels. So labels are counted separately for each *unit*: a doc, several docs
that follow each other, or the docs that share a value, as the setting `memory_unit` says.

`LabelCounts` counts batch by batch. Until it has seen all docs, values of attributes, labels and
units are known by *keys*: hashes or, if a unit is a number of docs, the index of a doc. In
`Counts`, the result, they are numbered.
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
"""The unit of label memory that is a single doc. Docs with the same text are one unit."""

LEAST_UNITS = 24
"""If a unit is a number of docs, units are made smaller in short corpora, so that there are at
least this many of them. With few units, too few labels would be left to learn from after
subtracting a doc's own unit. A corpus with fewer docs has a unit for each."""


class UnitCounts(NamedTuple):
    """A table of E rows. Each row says how often a value had a label in a unit.

    unit (Array1d): The key of the unit. Shape: (E,)
    value (Array1d): The lowest 32 bits of the hash of the value. Shape: (E,)
    label (Array1d): The hash of the label, which is 0 for O; or the index of the label, once all
        labels are known. Shape: (E,)
    n_times (Ints1d): The number of times. Shape: (E,)
    """

    unit: Array1d
    value: Array1d
    label: Array1d
    n_times: Ints1d


class Counts(NamedTuple):
    """How often each of V values of an attribute had each of L labels, in each of U units and in
    all of them.

    The counts in units are a table of E rows. Each row says how often a value had a label in a
    unit, and there is a row only if it did. The rows of a unit are adjacent.

    keys (Array1d): The lowest 32 bits of the hashes of the values, ascending. Shape: (V,)
    total (Ints2d): How often each value had each label in all units together. Shape: (V, L)
    starts (Ints1d): The first row of each unit in the table, and at the end the number of rows.
        Shape: (U + 1,)
    value (Ints1d): The index of the value of each row. Shape: (E,)
    label (Ints1d): The index of the label of each row. Shape: (E,)
    n_times (Ints1d): The number of times of each row. Shape: (E,)
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
        """Make counts from the table of the units. The field `total` is computed from it.

        n_labels (int): The number of labels, L.
        keys, starts, value, label, n_times: The other fields of the counts.
        """
        total = numpy.zeros((len(keys), n_labels), dtype="int32")
        numpy.add.at(total, (value, label), n_times)
        return cls(keys, total, starts, value, label, n_times)

    def select(self, is_kept: Array1d) -> "Counts":
        """The counts of some of the values, for which the mask is True, (V,)."""
        is_row_kept = is_kept[self.value]
        # The number of kept rows before each row; at the end, the number of all kept rows.
        # Shape: (E + 1,)
        n_kept_rows_before = numpy.append(0, numpy.cumsum(is_row_kept))
        # The new index of a kept value is the number of kept values before it. Shape: (V,)
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
    """Counts how often the values of attributes have each label in training docs. Tokens without
    annotation don't count. Docs are read batch by batch, and not kept.

    attributes (Sequence[str]): The attributes whose values are counted. Without attributes, only
        the labels are collected.
    unit (int | str): The kind of unit: see the setting `memory_unit`.
    """

    def __init__(self, attributes: Sequence[str], unit: int | str) -> None:
        self.unit = unit
        self.n_docs = 0
        # The names of labels, keyed by hash. The hash of O, which is no entity type, is 0.
        self._label_names = {0: OUTSIDE}
        # For each batch of docs: the hashes of their texts, by which label memory finds the unit of
        # a training doc; the keys of their units; and a table of counts for each attribute. The
        # lists begin with an empty entry, so that they can be joined even without docs.
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
        """The labels, O first, the others in alphabetical order."""
        return [self._label_names[key] for key in self._label_keys()]

    def add_labels(self, labels: Sequence[str]) -> None:
        """Add labels that may not be in the docs, so that they get an index, too."""
        for label in labels:
            self._label_names[get_string_id(label)] = label

    def add(self, docs: Sequence[Doc], tokens: Tokens) -> None:
        """Count the labels of a batch of docs.

        docs (Sequence[Doc]): The docs, at least one.
        tokens (Tokens): Their tokens, as a `TokenReader` has read them.
        """
        annotation = numpy.concatenate([doc.to_array([ENT_IOB, ENT_TYPE]) for doc in docs])
        iob, label_keys = annotation.T
        self._add_label_names(label_keys, tokens)
        if not self._counts:
            return  # no attributes: only the labels are collected

        unit_keys = self._add_docs(docs)
        unit_of_token = numpy.repeat(unit_keys, tokens.lengths)
        for attribute, counts in self._counts.items():
            value_keys = tokens.keys[attribute]
            is_counted = (iob != MISSING) & (value_keys != 0)  # annotated, and with a value
            counts_of_tokens = UnitCounts(
                unit=unit_of_token[is_counted],
                value=value_keys[is_counted] & LOWEST_32_BITS,
                label=label_keys[is_counted],
                n_times=numpy.ones(int(is_counted.sum()), dtype="int32"),
            )
            counts.append(count_rows(counts_of_tokens))

    def _add_label_names(self, label_keys: Array1d, tokens: Tokens) -> None:
        """Look up the names of the labels of tokens, by their hashes, (N,), and remember them."""
        stores = [vocab.strings for vocab in tokens.vocabs]
        for key in numpy.unique(label_keys).tolist():
            if key not in self._label_names:
                self._label_names[key] = string_of(key, stores)

    def _add_docs(self, docs: Sequence[Doc]) -> Array1d:
        """Remember the texts and the units of docs. Returns the key of the unit of each doc.
        Shape: (B,)"""
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
        """The text and the unit of each of the D docs, by which label memory finds the unit of a
        training doc.

        RETURNS (tuple[Array1d, Ints1d]): The hashes of the texts, ascending, and the number of the
            unit of each. Shapes: (D,)
        """
        text_ids = numpy.concatenate(self._text_ids)
        _, units = numpy.unique(self._unit_of_docs(), return_inverse=True)
        order = numpy.argsort(text_ids, kind="stable")
        return text_ids[order], units[order].astype("int32")

    def take_counts(self, attribute: str) -> Counts:
        """Make the counts of an attribute, when all docs were counted. It can be done only once:
        to save memory, nothing of the attribute is kept here.

        attribute (str): The attribute.
        RETURNS (Counts): The counts. Labels have the same index as in `labels`.
        """
        # The rows of all batches. As all docs are known now, units and labels get their final keys.
        batches = self._counts.pop(attribute)
        unit_keys = numpy.concatenate([batch.unit for batch in batches])
        label_keys = numpy.concatenate([batch.label for batch in batches])
        joined = UnitCounts(
            unit=self._merge_units(unit_keys),
            value=numpy.concatenate([batch.value for batch in batches]),
            label=self._label_ids(label_keys),
            n_times=numpy.concatenate([batch.n_times for batch in batches]),
        )
        batches.clear()  # they are joined now, and the memory is needed
        merged_rows = count_rows(joined)

        keys, value_ids = numpy.unique(merged_rows.value, return_inverse=True)
        # `merged_rows` is ordered by unit, so `searchsorted` finds the first row of each unit. A
        # unit without annotation has no rows.
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
        """The hashes of the labels, in the order of `labels`."""
        keys = [key for key in self._label_names if key != 0]
        return [0, *sorted(keys, key=lambda key: self._label_names[key])]

    def _label_ids(self, hashes: Array1d) -> Ints1d:
        """Find the index in `labels` of each of E labels, by their hashes. Shape: (E,)"""
        label_keys = numpy.asarray(self._label_keys(), dtype="uint64")
        # `searchsorted` needs sorted hashes. It finds the position of a label among them, and
        # `order` has the index of the label at each position.
        order = numpy.argsort(label_keys)
        ranks = numpy.searchsorted(label_keys[order], hashes)
        return order[ranks]

    def _unit_of_docs(self) -> Array1d:
        """The key of the unit of each doc. Shape: (D,)"""
        return self._merge_units(numpy.concatenate(self._unit_keys))

    def _merge_units(self, unit_keys: Array1d) -> Array1d:
        """Divide the docs into units, now that the number of docs is known, if a unit is a number
        of docs. The keys of `unit_key` are then indices of docs, and docs of the same unit get the
        same key. In a short corpus units have fewer docs, so that there are at least `LEAST_UNITS`.
        Other keys stay as they are. The shape stays the same."""
        if not isinstance(self.unit, int):
            return unit_keys
        n_docs_of_unit = max(1, min(self.unit, self.n_docs // LEAST_UNITS))
        return unit_keys // numpy.uint64(n_docs_of_unit)


def unit_key(doc: Doc, index: int, unit: int | str) -> int:
    """The key of the unit of a doc: a hash of 64 bits or, if a unit is a number of docs, the index
    of a doc. `index` is the index of the doc in the corpus. `unit` is a number of docs, `DOC`, or
    an extension attribute of docs, such as "_.source", each value of which is a unit.

    RAISES (ValueError): If a unit is an extension attribute that isn't set.
    """
    if isinstance(unit, int):
        if index < LEAST_UNITS * unit:
            # If the corpus ends soon, units get fewer docs: there have to be `LEAST_UNITS` units.
            # So each doc keeps its own index, until `_merge_units` knows the number of docs.
            return index
        # The index of the first doc of the unit: `count_rows` can merge the docs of a unit at once.
        return index - index % unit
    if unit == DOC:
        return text_id(doc)
    name = unit.removeprefix(EXTENSION)
    if not Doc.has_extension(name):
        expected = "expected an extension attribute, registered with Doc.set_extension"
        raise ValueError(f"spacy_costner.Features: memory_unit: {expected}, got {unit!r}")
    return get_string_id(str(doc._.get(name)))


def count_rows(counts: UnitCounts) -> UnitCounts:
    """Merge the rows that have the same unit, value and label to one row, with the sum of their
    `n_times`. The rows that are returned are ordered by unit, value and label."""
    # Combine the unit, value and label of each row: equal rows have equal numbers, and the numbers
    # have the order of the rows. Each column is replaced with ranks, and the number is (rank of
    # unit
    # * number of values + rank of value) * number of labels + rank of label. Shape: (E,)
    row_numbers = numpy.zeros(len(counts.n_times), dtype="int64")
    for column in (counts.unit, counts.value, counts.label):
        distinct, rank_in_column = numpy.unique(column, return_inverse=True)
        row_numbers = row_numbers * len(distinct) + rank_in_column

    # Equal rows form a group. The first row of each group, and the group of each row.
    _, first_rows, group_of_row = numpy.unique(row_numbers, return_index=True, return_inverse=True)
    return UnitCounts(
        unit=counts.unit[first_rows],
        value=counts.value[first_rows],
        label=counts.label[first_rows],
        n_times=numpy.bincount(group_of_row, weights=counts.n_times).astype("int32"),
    )
