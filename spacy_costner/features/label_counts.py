"""Counts of labels in training docs, from which label memory is made."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.strings import get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d, Ints2d

from ..tags import OUTSIDE
from .tokens import EXTENSION, Tokens, string_of, text_id

DOC = "doc"
"""The unit of label memory that is a single doc."""

LEAST_UNITS = 24
"""A number of docs for each unit is a maximum: there are at least so many units, or one for each
doc. With few units, most of what is remembered would be subtracted."""


class UnitCounts(NamedTuple):
    """How often values of an attribute had labels, by unit. In each row a value had a label in a
    unit `n_times`.

    unit (Array1d), value (Array1d): The hashes of the unit and of the value. Shapes: (E,)
    label (Array1d): The hash of the label, 0 for O. Shape: (E,)
    n_times (Ints1d): Shape: (E,)
    """

    unit: Array1d
    value: Array1d
    label: Array1d
    n_times: Ints1d


class Counts(NamedTuple):
    """How often each of V values of an attribute had each of L labels, in all and in U units.

    keys (Array1d): The hashes of the values, ascending. Shape: (V,)
    total (Ints2d): How often, in all. Shape: (V, L)
    starts (Ints1d): Where the counts of a unit begin below, and where the last end.
        Shape: (U + 1,)
    value (Ints1d), label (Ints1d), n_times (Ints1d): How often a value had a label in a unit,
        if it had. Shapes: (E,)
    """

    keys: Array1d
    total: Ints2d
    starts: Ints1d
    value: Ints1d
    label: Ints1d
    n_times: Ints1d


class LabelCounts:
    """Counts the labels of training docs, but for tokens without annotation. Docs are not kept.

    attributes (Sequence[str]): The attributes whose values have labels.
    unit (int | str): What a unit is: see the setting `memory_unit`.
    """

    def __init__(self, attributes: Sequence[str], unit: int | str) -> None:
        self.unit = unit
        self.n_docs = 0
        self._label_names = {0: OUTSIDE}
        no_keys = numpy.zeros(0, dtype="uint64")
        self._text_ids = [no_keys]
        self._unit_keys = [no_keys]
        self._counts: dict[str, list[UnitCounts]] = {}
        for attribute in attributes:
            no_counts = UnitCounts(no_keys, no_keys, no_keys, numpy.zeros(0, dtype="int32"))
            self._counts[attribute] = [no_counts]

    @property
    def labels(self) -> list[str]:
        """The labels, O first."""
        return [OUTSIDE, *(self._label_names[key] for key in self._sorted_label_keys())]

    def add_labels(self, labels: Sequence[str]) -> None:
        """Add labels that the docs need not have."""
        for label in labels:
            self._label_names[get_string_id(label)] = label

    def add(self, docs: Sequence[Doc], tokens: Tokens) -> None:
        """Count the labels of docs, at least one, with their tokens."""
        annotation = [doc.to_array([ENT_IOB, ENT_TYPE]).reshape(len(doc), 2) for doc in docs]
        iob, label_keys = numpy.concatenate(annotation).T
        for key in numpy.unique(label_keys).tolist():
            if key not in self._label_names:
                stores = (vocab.strings for vocab in tokens.vocabs)
                self._label_names[key] = string_of(key, stores)
        if not self._counts:
            return
        unit_keys = [unit_of(doc, i, self.unit) for i, doc in enumerate(docs, self.n_docs)]
        self.n_docs += len(docs)
        self._unit_keys.append(numpy.asarray(unit_keys, dtype="uint64"))
        self._text_ids.append(numpy.asarray([text_id(doc) for doc in docs], dtype="uint64"))
        unit_of_token = numpy.repeat(self._unit_keys[-1], tokens.lengths)
        for attribute, counts in self._counts.items():
            value_keys = tokens.keys[attribute]
            is_counted = (iob != 0) & (value_keys != 0)  # annotated, and with a value
            counts_of_tokens = UnitCounts(
                unit=unit_of_token[is_counted],
                value=value_keys[is_counted],
                label=label_keys[is_counted],
                n_times=numpy.ones(int(is_counted.sum()), dtype="int32"),
            )
            counts.append(count_rows(counts_of_tokens))

    def doc_units(self) -> tuple[Array1d, Ints1d]:
        """The hashes of the texts of all docs, ascending, and the number of the unit of each.
        Shapes: (D,)"""
        text_ids = numpy.concatenate(self._text_ids)
        _, unit = numpy.unique(self._merge_units(self._all_units()), return_inverse=True)
        order = numpy.argsort(text_ids, kind="stable")
        return text_ids[order], unit[order].astype("int32")

    def take_counts(self, attribute: str) -> Counts:
        """The counts of an attribute, with labels in the order of `labels`. They are not kept: take
        them once."""
        parts = self._counts.pop(attribute)
        # The columns of all parts, joined: units, values, labels, numbers.
        unit, value, label, n_times = (numpy.concatenate(column) for column in zip(*parts))
        parts.clear()
        label_keys = numpy.asarray([0, *self._sorted_label_keys()], dtype="uint64")
        # The index of each label in `label_keys`. `searchsorted` needs them in ascending order.
        order = numpy.argsort(label_keys)
        label = order[numpy.searchsorted(label_keys[order], label)]
        merged = count_rows(UnitCounts(self._merge_units(unit), value, label, n_times))
        keys, value_ids = numpy.unique(merged.value, return_inverse=True)
        units = numpy.unique(self._merge_units(self._all_units()))
        # Rows are in the order of their units.
        starts = numpy.append(numpy.searchsorted(merged.unit, units), len(merged.unit))
        return counts_of(
            keys,
            len(label_keys),
            starts.astype("int32"),
            value_ids.astype("int32"),
            merged.label.astype("int32"),
            merged.n_times.astype("int32"),
        )

    def _sorted_label_keys(self) -> list[int]:
        """The hashes of the labels but O, in the order of their names."""
        keys = [key for key in self._label_names if key]
        return sorted(keys, key=self._label_names.__getitem__)

    def _all_units(self) -> Array1d:
        return numpy.concatenate(self._unit_keys)

    def _merge_units(self, units: Array1d) -> Array1d:
        """Put the first docs of a corpus, which have units of their own, into larger units, where
        units are a number of docs."""
        if not isinstance(self.unit, int):
            return units
        n_docs = max(1, min(self.unit, self.n_docs // LEAST_UNITS))
        return units // numpy.uint64(n_docs)


def unit_of(doc: Doc, index: int, unit: int | str) -> int:
    """The unit of the doc of this index, in 64 bits, for the setting `memory_unit`. Of a number
    of docs, the index of the first, but the first docs of a corpus have their own."""
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
    """Merge equal rows: the different ones in ascending order, with the sums of `n_times`."""
    # The rank of each row: a number in a system whose digits are the ranks of its columns.
    rank = numpy.zeros(len(counts.n_times), dtype="int64")
    for column in counts[:3]:
        distinct, rank_in_column = numpy.unique(column, return_inverse=True)
        rank = rank * len(distinct) + rank_in_column
    _, first_rows, group = numpy.unique(rank, return_index=True, return_inverse=True)
    return UnitCounts(
        unit=counts.unit[first_rows],
        value=counts.value[first_rows],
        label=counts.label[first_rows],
        n_times=numpy.bincount(group, counts.n_times).astype("int32"),
    )


def counts_of(
    keys: Array1d, n_labels: int, starts: Ints1d, value: Ints1d, label: Ints1d, n_times: Ints1d
) -> Counts:
    """The counts of values, with their sums over units: see `Counts`."""
    total = numpy.zeros((len(keys), n_labels), dtype="int32")
    numpy.add.at(total, (value, label), n_times)
    return Counts(keys, total, starts, value, label, n_times)
