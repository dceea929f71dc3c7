"""Counts of labels in training docs, from which label memory is made.

Label memory tells the model how often a word had each label in the training docs. In training a doc
must not see its own labels, so labels are counted for each unit: a doc, or several that are alike.

Values of attributes, labels and units are known by their hashes, called keys, until the counts are
made. Then values and labels have ids, and units are numbered.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d, Ints2d

from ..tags import OUTSIDE
from .ids import LOWEST_32_BITS
from .tokens import EXTENSION, Tokens, string_of, text_id

DOC = "doc"
"""The unit of label memory that is a single doc."""

LEAST_UNITS = 24
"""The least number of units where a unit is a number of docs; with fewer docs, each is a unit. In
training a doc doesn't see the labels of its unit: with few units, little would be left to see."""


class UnitCounts(NamedTuple):
    """How often values of an attribute had labels, by unit: a table of E rows, each of which says
    how often a value had a label in a unit.

    unit (Array1d): The hash of the unit. Shape: (E,)
    value (Array1d): The lowest 32 bits of the hash of the value. Shape: (E,)
    label (Array1d): The hash of the label, 0 for O; or its index. Shape: (E,)
    n_times (Ints1d): How often. Shape: (E,)
    """

    unit: Array1d
    value: Array1d
    label: Array1d
    n_times: Ints1d


class Counts(NamedTuple):
    """How often each of V values of an attribute had each of L labels, in all and in U units.

    keys (Array1d): The lowest 32 bits of the hashes of the values, ascending; all 64 bits in models
        that were saved up to 0.3.0. Shape: (V,)
    total (Ints2d): How often each value had each label in all units. Shape: (V, L)
    starts (Ints1d): Where the rows of each unit begin in the table below, and where those of the
        last unit end. Shape: (U + 1,)
    value (Ints1d), label (Ints1d), n_times (Ints1d): A table of what is not 0: how often a value
        had a label in a unit. Shapes: (E,)
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
        """Make counts from the table of counts by unit, whose sums over all units are computed. The
        arguments are the fields, and L."""
        total = numpy.zeros((len(keys), n_labels), dtype="int32")
        numpy.add.at(total, (value, label), n_times)
        return cls(keys, total, starts, value, label, n_times)

    def select(self, is_kept: Array1d) -> "Counts":
        """The counts of some of the values. Shape: (V,)"""
        is_row_kept = is_kept[self.value]
        # How many rows are kept before each row, and before the end. Shape: (E + 1,)
        n_rows_before = numpy.append(0, numpy.cumsum(is_row_kept))
        # A kept value has as its new id the number of kept values before it. Shape: (V,)
        new_ids = numpy.cumsum(is_kept) - 1
        return Counts(
            keys=self.keys[is_kept],
            total=self.total[is_kept],
            starts=n_rows_before[self.starts].astype("int32"),
            value=new_ids[self.value[is_row_kept]].astype("int32"),
            label=self.label[is_row_kept],
            n_times=self.n_times[is_row_kept],
        )


class LabelCounts:
    """Counts the labels of training docs, but for tokens without annotation. Docs are not kept.

    attributes (Sequence[str]): The attributes whose values have labels.
    unit (int | str): What a unit is: see the setting `memory_unit`.
    """

    def __init__(self, attributes: Sequence[str], unit: int | str) -> None:
        self.unit = unit
        self.n_docs = 0
        self._label_names = {0: OUTSIDE}  # by hash; spaCy's hash of no entity type is 0
        # Of each batch of docs an array. The first ones are empty, for a corpus without docs.
        no_keys = numpy.zeros(0, dtype="uint64")
        self._text_ids = [no_keys]
        self._unit_keys = [no_keys]
        self._counts: dict[str, list[UnitCounts]] = {}
        for attribute in attributes:
            no_counts = UnitCounts(no_keys, no_keys, no_keys, numpy.zeros(0, dtype="int32"))
            self._counts[attribute] = [no_counts]

    @property
    def labels(self) -> list[str]:
        """The labels, O first, the others in alphabetical order."""
        return [self._label_names[key] for key in self._label_keys()]

    def add_labels(self, labels: Sequence[str]) -> None:
        """Add labels that no counted doc need have."""
        for label in labels:
            self._label_names[get_string_id(label)] = label

    def add(self, docs: Sequence[Doc], tokens: Tokens) -> None:
        """Count the labels of docs, at least one, with what a `TokenReader` read of them."""
        annotation = numpy.concatenate([doc.to_array([ENT_IOB, ENT_TYPE]) for doc in docs])
        iob, label_keys = annotation.T
        self._add_label_names(label_keys, tokens)
        if not self._counts:
            return  # only the names of the labels are wanted

        unit_keys = self._add_docs(docs)
        unit_of_token = numpy.repeat(unit_keys, tokens.lengths)
        for attribute, counts in self._counts.items():
            value_keys = tokens.keys[attribute]
            is_counted = (iob != 0) & (value_keys != 0)  # annotated, and with a value
            counts_of_tokens = UnitCounts(
                unit=unit_of_token[is_counted],
                value=value_keys[is_counted] & LOWEST_32_BITS,
                label=label_keys[is_counted],
                n_times=numpy.ones(int(is_counted.sum()), dtype="int32"),
            )
            counts.append(count_rows(counts_of_tokens))

    def _add_label_names(self, label_keys: Array1d, tokens: Tokens) -> None:
        """Find the names of labels by their hashes. Shape: (N,)"""
        stores = [vocab.strings for vocab in tokens.vocabs]
        for key in numpy.unique(label_keys).tolist():
            if key not in self._label_names:
                self._label_names[key] = string_of(key, stores)

    def _add_docs(self, docs: Sequence[Doc]) -> Array1d:
        """Remember which texts the docs have and in which units they are. Returns the hashes of the
        units. Shape: (B,)"""
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
        """Which texts are in which units, for label memory to leave out the unit of a training doc:
        the hashes of the texts of all D docs, ascending, and the number of the unit of each.
        Shapes: (D,)"""
        text_ids = numpy.concatenate(self._text_ids)
        _, units = numpy.unique(self._unit_of_docs(), return_inverse=True)
        order = numpy.argsort(text_ids, kind="stable")
        return text_ids[order], units[order].astype("int32")

    def take_counts(self, attribute: str) -> Counts:
        """Make the counts of an attribute from what was counted so far. This is possible once, as
        they are large, and not kept here. Labels have their indices in `labels` as ids."""
        # The rows of all batches, in which units and labels are numbered now.
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
        merged = count_rows(joined)

        keys, value_ids = numpy.unique(merged.value, return_inverse=True)
        # Rows are in the order of their units, so those of a unit begin where it would be inserted.
        # A unit without a label has none.
        units = numpy.unique(self._unit_of_docs())
        starts = numpy.append(numpy.searchsorted(merged.unit, units), len(merged.unit))
        return Counts.with_totals(
            keys=keys,
            n_labels=len(self._label_names),
            starts=starts.astype("int32"),
            value=value_ids.astype("int32"),
            label=merged.label.astype("int32"),
            n_times=merged.n_times.astype("int32"),
        )

    def _label_keys(self) -> list[int]:
        """The hashes of the labels, in the order of `labels`."""
        keys = [key for key in self._label_names if key != 0]
        return [0, *sorted(keys, key=lambda key: self._label_names[key])]

    def _label_ids(self, hashes: Array1d) -> Ints1d:
        """The index in `labels` of the label of each hash. Shape: (E,)"""
        label_keys = numpy.asarray(self._label_keys(), dtype="uint64")
        # `searchsorted` finds the rank of a hash among all; `order` has the index of each rank.
        order = numpy.argsort(label_keys)
        ranks = numpy.searchsorted(label_keys[order], hashes)
        return order[ranks]

    def _unit_of_docs(self) -> Array1d:
        """The unit of each doc, as a hash or a number. Shape: (D,)"""
        return self._merge_units(numpy.concatenate(self._unit_keys))

    def _merge_units(self, unit_keys: Array1d) -> Array1d:
        """Number the units, now that the number of docs is known, where they are a number of docs.
        `unit_key` gave the first docs a unit each, as it couldn't know how many there would be.
        Other units stay as they are. Shape: (E,)"""
        if not isinstance(self.unit, int):
            return unit_keys
        n_docs_of_unit = max(1, min(self.unit, self.n_docs // LEAST_UNITS))
        return unit_keys // numpy.uint64(n_docs_of_unit)


def unit_key(doc: Doc, index: int, unit: int | str) -> int:
    """The unit of a doc, as a hash of 64 bits or a number.

    doc (Doc): The doc.
    index (int): Its index in the corpus.
    unit (int | str): What a unit is: see the setting `memory_unit`. If it is a number of docs, the
        unit is the index of its first doc, but that of the doc itself at the beginning of a corpus:
        in a short one units are smaller.
    """
    if isinstance(unit, int):
        if index < LEAST_UNITS * unit:
            return index
        return index - index % unit
    if unit == DOC:
        return text_id(doc)
    name = unit.removeprefix(EXTENSION)
    if not Doc.has_extension(name):
        expected = f"expected {unit} to be set with Doc.set_extension before training, it is not"
        raise ValueError(f"spacy_costner.Features: memory_unit: {expected}")
    return get_string_id(str(doc._.get(name)))


def count_rows(counts: UnitCounts) -> UnitCounts:
    """Merge rows of the same unit, value and label, with the sum of their `n_times`. After that the
    rows are in ascending order."""
    # Each row as one number, so that equal rows are equal numbers and a row before another is a
    # lower number: (rank of unit * number of values + rank of value) * number of labels + rank of
    # label. Shape: (E,)
    row_numbers = numpy.zeros(len(counts.n_times), dtype="int64")
    for column in (counts.unit, counts.value, counts.label):
        distinct, rank_in_column = numpy.unique(column, return_inverse=True)
        row_numbers = row_numbers * len(distinct) + rank_in_column

    # The first of the rows that are equal, and which of these groups each row belongs to.
    _, first_rows, group_of_row = numpy.unique(row_numbers, return_index=True, return_inverse=True)
    return UnitCounts(
        unit=counts.unit[first_rows],
        value=counts.value[first_rows],
        label=counts.label[first_rows],
        n_times=numpy.bincount(group_of_row, counts.n_times).astype("int32"),
    )
