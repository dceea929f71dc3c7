"""Label memory: how often a value of an attribute had each label in the training data."""

import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d, Array2d, Ints1d, Ints2d

from .. import sparse
from ..ragged import places_in, sequence_ids
from ..tags import OUTSIDE
from .template import DOC, EXTENSION
from .tokens import Tokens, text_id

BORDERS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
"""Between the 8 bins of shares. A share in the lowest is no feature."""

RANGES = [f"{low:g}-{high:g}" for low, high in zip((0, *BORDERS), (*BORDERS, 1))]
OFTEN = 16
"""Docs with the same text, above which what their units add is remembered: there may be many
such docs, each in many units."""

LEAST_UNITS = 24
"""A number of docs for each unit is a maximum: there are at least so many units, or one for each
doc. With few units, most of what is remembered would be subtracted."""

N_TIMES = ("1", "2-3", "4+")
"""The bins of the number of times that a value was there."""


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


PACKED = ("starts", "value", "label", "n_times")
"""What is saved in few bytes. `total` is their sum: see `counts_of`."""

Counted = tuple[list[Array1d], Ints1d]
"""The rows of a table, as columns, and how often each is there. Shapes: (N,)"""


class LabelMemory:
    """How often values of attributes had each label in the training data.

    With n(v, l) how often value v had label l, or O, a token of value v has these features:

        l and the bin of n(v, l) / sum_m n(v, m), for each l
        l, its bin and the bin of sum_m n(v, m), for the l for which n(v, l) is largest

    In training, what the token's own unit adds to n is subtracted. A unit is a doc or
    several. A doc is known by its text: see `text_id`. If several units have this text, what they
    add is subtracted, too.
    """

    def __init__(
        self, labels: Sequence[str], counts: dict[str, Counts], text_ids: Array1d, units: Ints1d
    ) -> None:
        """labels (Sequence[str]): The L labels, O first.
        counts (dict[str, Counts]): The counts, by attribute.
        text_ids (Array1d): The hash of each doc, ascending. Shape: (D,)
        units (Ints1d): The number of its unit. Shape: (D,)
        """
        self.labels, self.counts = list(labels), counts
        self.text_ids, self.units = text_ids, units
        self._numbers = {name: number_keys(found.keys) for name, found in counts.items()}
        # V times the unit + the value of each count, ascending. In int64. Shapes: (E,)
        self._places = {
            name: sequence_ids(numpy.diff(of.starts)) * len(of.keys) + of.value
            for name, of in counts.items()
        }
        self._of_often: dict[tuple[str, int, int], Ints1d] = {}

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return LabelMemory, (self.labels, self.counts, self.text_ids, self.units)

    @cached_property
    def _features(self) -> dict[str, Ints2d]:
        """The features of all values outside of training, by attribute. The last row is for unknown
        values. Shape: (V + 1, width)"""
        features = {}
        for name, counts in self.counts.items():
            most = int((counts.total > 0).sum(axis=1).max(initial=0))
            features[name] = features_of(numpy.pad(counts.total, ((0, 1), (0, 0))), most + 1)
        return features

    def width(self, attribute: str) -> int:
        """The largest number of features of an attribute that a token has."""
        return self._features[attribute].shape[1]

    def find(self, attribute: str, tokens: Tokens) -> Ints2d:
        """The numbers of the features of tokens, -1 for none. Shape: (N, width)"""
        values = self._numbers[attribute].find(tokens.keys[attribute])
        features = self._features[attribute]
        if tokens.text_ids is None:
            return features[values]  # -1 is the last row: that of unknown values
        # Each value is counted once in each doc, and what the doc's units add is subtracted.
        known, n_values = values >= 0, max(len(self.counts[attribute].keys), 1)
        places = (sequence_ids(tokens.lengths) * n_values + values)[known]
        places, which = numpy.unique(places, return_inverse=True)
        doc, value = numpy.divmod(places, n_values)
        counts, ids = self.counts[attribute].total[value], tokens.text_ids[doc]
        first, stop = (numpy.searchsorted(self.text_ids, ids, side) for side in ("left", "right"))
        often = stop - first > OFTEN
        counts[~often] -= self._of_units(attribute, ids[~often], value[~often])
        for i in numpy.flatnonzero(often).tolist():
            key = (attribute, int(ids[i]), int(value[i]))
            if key not in self._of_often:
                self._of_often[key] = self._of_units(attribute, ids[[i]], value[[i]])[0]
            counts[i] -= self._of_often[key]
        found = numpy.full((len(values), features.shape[1]), -1, dtype="int32")
        found[known] = features_of(counts, features.shape[1])[which]
        return found

    def _of_units(self, attribute: str, text_ids: Array1d, values: Ints1d) -> Ints2d:
        """The counts of values in all units with docs of these texts, a text and a value each.
        Shapes: (M,), (M,) to (M, L)"""
        of = self.counts[attribute]
        which, index = places_in(self.text_ids, text_ids)
        n_units = max(len(of.starts) - 1, 1)
        which, unit = numpy.divmod(numpy.unique(which * n_units + self.units[index]), n_units)
        part, index = places_in(self._places[attribute], unit * len(of.keys) + values[which])
        counts = numpy.zeros((len(values), len(self.labels)), dtype="int32")
        numpy.add.at(counts, (which[part], of.label[index]), of.n_times[index])
        return counts

    def to_dict(self) -> dict[str, Any]:
        """What is saved."""
        counts = {}
        for name, found in self.counts.items():
            packed = {field: pack(getattr(found, field)) for field in PACKED}
            counts[name] = {"keys": found.keys.astype("<u8").tobytes(), **packed}
        ids, units = self.text_ids.astype("<u8").tobytes(), pack(self.units)
        return {"labels": self.labels, "counts": counts, "text_ids": ids, "units": units}

    @classmethod
    def from_dict(cls, saved: dict[str, Any], attributes: Sequence[str]) -> "LabelMemory":
        """Load the memory of some attributes."""
        labels, units = saved["labels"], unpack(saved["units"])
        text_ids = numpy.frombuffer(saved["text_ids"], dtype="<u8").astype("uint64")
        counts = {name: _load_counts(saved["counts"][name], len(labels)) for name in attributes}
        n_units = min((len(found.starts) for found in counts.values()), default=1) - 1
        fit = len(text_ids) == len(units) and ((units >= 0) & (units < n_units)).all()
        if not (fit and (text_ids[1:] >= text_ids[:-1]).all()):
            raise ValueError(f"memory: expected the docs of {n_units} units, in order")
        if not labels or not all(isinstance(label, str) for label in labels):
            raise ValueError(f"memory: expected labels, got {labels!r}")
        return cls(labels, counts, text_ids, units)


def share_names(labels: Sequence[str]) -> list[str]:
    """The names of the features of shares of labels, O first, in the order of their numbers."""
    shares = [f"{label}:{share}" for label in labels for share in RANGES[1:]]
    pairs = [(label, share) for label in labels for share in RANGES]
    return shares + [f"best:{label}:{share}:{n}" for label, share in pairs for n in N_TIMES]


def features_of(counts: Array2d, width: int) -> Ints2d:
    """The features of values with these counts, or sums of probabilities: numbers in the order of
    `share_names`, -1 for none. All labels fit if the width is one more than the most labels of a
    value. Shape: (M, L) to (M, width)"""
    n_labels = counts.shape[1]
    total = numpy.rint(counts.sum(axis=1))
    bins = numpy.searchsorted(BORDERS, counts / numpy.maximum(total, 1)[:, None], side="right")
    n_shares = len(BORDERS)
    shares = numpy.where(bins > 0, numpy.arange(n_labels) * n_shares + bins - 1, -1)
    best = counts.argmax(axis=1)
    of_best = best * len(RANGES) + bins[numpy.arange(len(best)), best]
    n_times = (total > 1).astype(int) + (total > 3)
    numbers = numpy.full((len(counts), width), -1, dtype="int32")
    best_pair = n_labels * n_shares + of_best * len(N_TIMES) + n_times
    numbers[:, 0] = numpy.where(total == 0, -1, best_pair)
    packed = -numpy.sort(-shares, axis=1)[:, : width - 1]
    numbers[:, 1 : 1 + packed.shape[1]] = packed
    return numbers


def _load_counts(saved: dict[str, bytes], n_labels: int) -> Counts:
    """Load counts, and check that they fit each other."""
    keys = numpy.frombuffer(saved["keys"], dtype="<u8").astype("uint64")
    columns = starts, value, label, n_times = [unpack(saved[field]) for field in PACKED]
    fit = len(value) == len(label) == len(n_times) and len(starts) > 0
    fit = fit and starts[0] == 0 and starts[-1] == len(value) and (numpy.diff(starts) >= 0).all()
    if not fit:
        raise ValueError("memory: expected a value, a label and a number for each count")
    in_range = (value >= 0) & (value < len(keys)) & (label >= 0) & (label < n_labels)
    if not (in_range & (n_times > 0)).all():
        raise ValueError(f"memory: expected counts of {len(keys)} values and {n_labels} labels")
    return counts_of(keys, columns, n_labels)


def counts_of(keys: Array1d, columns: Sequence[Ints1d], n_labels: int) -> Counts:
    """The counts of values, from the columns of `PACKED`."""
    _, value, label, n_times = columns
    total = numpy.zeros((len(keys), n_labels), dtype="int32")
    numpy.add.at(total, (value, label), n_times)
    return Counts(keys, total, *columns)


def unit_of(doc: Doc, index: int, unit: int | str) -> int:
    """The unit of the doc of this index, in 64 bits, for the setting `memory_unit`. Of a number
    of docs, the index of the first, but the first docs of a corpus have their own."""
    if isinstance(unit, int):
        return index if index < LEAST_UNITS * unit else index - index % unit
    if unit == DOC:
        return text_id(doc)
    name = unit.removeprefix(EXTENSION)
    if not Doc.has_extension(name):
        expected = f"expected {unit} to be set with Doc.set_extension before training, it is not"
        raise ValueError(f"spacy_costner.Features: memory_unit: {expected}")
    return get_string_id(str(doc._.get(name)))


class LabelCounts:
    """Counts the labels of training docs, but for tokens without annotation. Docs are not kept."""

    def __init__(self, attributes: Sequence[str], unit: int | str) -> None:
        self.unit, self.n_docs, none = unit, 0, numpy.zeros(0, dtype="uint64")
        self.labels, self.text_ids, self.units = {0}, [none], [none]
        self.counted: dict[str, list[Counted]] = {name: [] for name in attributes}

    def add(self, docs: Sequence[Doc], tokens: Tokens) -> None:
        """Count the labels of docs, with their tokens."""
        columns = [doc.to_array([ENT_IOB, ENT_TYPE]).reshape(len(doc), 2) for doc in docs]
        iob, label = numpy.concatenate(columns).T
        self.labels.update(numpy.unique(label).tolist())
        if not self.counted:
            return
        units = [unit_of(doc, i, self.unit) for i, doc in enumerate(docs, self.n_docs)]
        self.n_docs += len(docs)
        self.units.append(numpy.asarray(units, dtype="uint64"))
        self.text_ids.append(numpy.asarray([*map(text_id, docs)], dtype="uint64"))
        unit = numpy.repeat(self.units[-1], tokens.lengths)
        for name, counted in self.counted.items():
            there = (iob != 0) & (tokens.keys[name] != 0)
            rows = [column[there] for column in (unit, tokens.keys[name], label)]
            counted.append(count_rows(rows, numpy.ones(int(there.sum()), dtype="int32")))

    def names(self, strings: StringStore) -> list[str]:
        """The labels, O first."""
        return [OUTSIDE, *sorted(strings[key] for key in self.labels if key)]

    def memory(self, strings: StringStore) -> LabelMemory:
        """The memory of what was counted. It can't be asked for twice."""
        names = self.names(strings)
        labels = numpy.asarray([0, *map(strings.__getitem__, names[1:])], dtype="uint64")
        text_ids = numpy.concatenate(self.text_ids)
        if isinstance(self.unit, int):
            size = numpy.uint64(max(1, min(self.unit, self.n_docs // LEAST_UNITS)))
            self.units = [unit // size for unit in self.units]
            for counted in self.counted.values():
                counted[:] = [([unit // size, *rest], n) for (unit, *rest), n in counted]
        units, unit = numpy.unique(numpy.concatenate(self.units), return_inverse=True)
        order = numpy.argsort(text_ids, kind="stable")
        counts = {name: _join(self.counted.pop(name), labels, units) for name in [*self.counted]}
        return LabelMemory(names, counts, text_ids[order], unit[order].astype("int32"))


def _join(counted: list[Counted], labels: Array1d, units: Array1d) -> Counts:
    """Join the counts of an attribute."""
    none: Counted = ([numpy.zeros(0, dtype="uint64")] * 3, numpy.zeros(0, dtype="int32"))
    parts = [(*columns, n) for columns, n in [none, *counted]]
    counted.clear()
    unit, value, label, n_times = map(numpy.concatenate, zip(*parts))
    order = numpy.argsort(labels)
    label = order[numpy.searchsorted(labels[order], label)]
    (unit, value, label), n_times = count_rows([unit, value, label], n_times)
    keys, value = numpy.unique(value, return_inverse=True)
    starts = numpy.append(numpy.searchsorted(unit, units), len(unit))
    columns = [each.astype("int32") for each in (starts, value, label, n_times)]
    return counts_of(keys, columns, len(labels))


def count_rows(columns: Sequence[Array1d], n_times: Ints1d) -> Counted:
    """Count equal rows of a table of columns, where a row counts `n_times`. Returns the different
    rows in ascending order, and their counts, in int32. Shapes: (N,)"""
    place = numpy.zeros(len(n_times), dtype="int64")
    for column in columns:
        own, number = numpy.unique(column, return_inverse=True)
        place = place * len(own) + number
    _, first, which = numpy.unique(place, return_index=True, return_inverse=True)
    return [column[first] for column in columns], numpy.bincount(which, n_times).astype("int32")


def number_keys(keys: Array1d) -> sparse.IdMap:
    """Map each key to its index."""
    numbers = sparse.IdMap()
    numbers.set(keys, numpy.arange(len(keys), dtype="int32"))
    return numbers


def pack(numbers: Ints1d) -> bytes:
    """Whole numbers of 32 bits as bytes, few if neighbours differ little. Shape: (N,)"""
    return zlib.compress(numpy.diff(numbers, prepend=0).astype("<i4").tobytes())


def unpack(data: bytes) -> Ints1d:
    """The numbers that were packed, in int32. Shape: (N,)"""
    return numpy.cumsum(numpy.frombuffer(zlib.decompress(data), dtype="<i4"), dtype="int32")
