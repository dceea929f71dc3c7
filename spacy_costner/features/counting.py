"""Count the labels of the training data: what a label memory is made of."""

from typing import Dict, List, Sequence, Tuple, Union

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d, Ints2d

from .. import sparse
from .memory import Counts, LabelMemory
from .template import DOC, EXTENSION
from .tokens import Tokens, text_id

OUTSIDE = "O"


def unit_of(doc: Doc, index: int, unit: Union[int, str]) -> int:
    """The unit of a doc.

    doc (Doc): The doc.
    index (int): How many docs come before it.
    unit (Union[int, str]): The setting `memory_unit`.
    RETURNS (int): The unit, in 64 bits.
    RAISES (ValueError): If the setting is an extension attribute that is not set.
    """
    if isinstance(unit, int):
        return index // unit
    if unit == DOC:
        return text_id(doc)
    name = unit.removeprefix(EXTENSION)
    if not Doc.has_extension(name):
        raise ValueError(
            f"spacy_costner.Features: memory_unit: expected {unit} to be set with "
            "Doc.set_extension before training, it is not"
        )
    return get_string_id(str(doc._.get(name)))


class Ranking:
    """Numbers for keys of 64 bits, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers, self._n_keys = sparse.IdMap(), 0
        self._keys: List[Array1d] = []

    def number(self, keys: Array1d) -> Ints1d:
        """The numbers of keys. Shape: (N,)"""
        numbers = self._numbers.find(keys)
        if (numbers < 0).any():
            new = numpy.unique(keys[numbers < 0])
            end = self._n_keys + len(new)
            self._numbers.set(new, numpy.arange(self._n_keys, end, dtype="int32"))
            self._keys.append(new)
            self._n_keys = end
            numbers = self._numbers.find(keys)
        return numbers

    @property
    def keys(self) -> Array1d:
        """The key of each number. Shape: (K,)"""
        return numpy.concatenate([numpy.zeros(0, dtype="uint64"), *self._keys])

    def rank(self) -> Ints1d:
        """The index of each number's key among the sorted keys. In int32. Shape: (K,)"""
        ranks = numpy.empty(self._n_keys, dtype="int32")
        ranks[numpy.argsort(self.keys)] = numpy.arange(self._n_keys, dtype="int32")
        return ranks


class LabelCounts:
    """Counts the labels of training docs: what a label memory is made of. Tokens without annotation
    are not counted."""

    def __init__(self, attributes: Sequence[str], unit: Union[int, str]) -> None:
        """Begin without docs.

        attributes (Sequence[str]): The attributes whose labels are counted.
        unit (Union[int, str]): The setting `memory_unit`.
        """
        self.unit, self.n_docs = unit, 0
        self.labels, self.units = Ranking(), Ranking()
        self.values = {name: Ranking() for name in attributes}
        self.text_ids: List[Array1d] = []
        self.unit_of: List[Ints1d] = []
        self.entries: Dict[str, List[Ints2d]] = {name: [] for name in attributes}
        self.labels.number(numpy.zeros(1, dtype="uint64"))  # O

    def add(self, docs: Sequence[Doc], tokens: Tokens) -> None:
        """Count the labels of docs.

        docs (Sequence[Doc]): The docs.
        tokens (Tokens): Their tokens.
        """
        columns = [doc.to_array([ENT_IOB, ENT_TYPE]).reshape(len(doc), 2) for doc in docs]
        iob, hashes = numpy.concatenate(columns).T
        known = iob != 0
        label = self.labels.number(numpy.ascontiguousarray(hashes[known]))
        if not self.values:
            return
        ids = [unit_of(doc, i, self.unit) for i, doc in enumerate(docs, self.n_docs)]
        unit = self.units.number(numpy.asarray(ids, dtype="uint64"))
        self.n_docs += len(docs)
        self.unit_of.append(unit)
        self.text_ids.append(numpy.asarray([text_id(doc) for doc in docs], dtype="uint64"))
        of_token = numpy.repeat(unit, tokens.lengths)[known]
        for name, ranking in self.values.items():
            keys = tokens.keys[name][known]
            there = keys != 0
            value = ranking.number(keys[there])
            entries = numpy.stack([of_token[there], value, label[there]])
            entries, n_times = _count_columns(entries, numpy.ones(len(value), dtype="int32"))
            self.entries[name].append(numpy.vstack([entries, n_times]))

    def names(self, strings: StringStore) -> List[str]:
        """The labels, O first."""
        names = [strings[key] for key in self.labels.keys.tolist()[1:]]
        return [OUTSIDE, *sorted(names)]

    def memory(self, strings: StringStore) -> LabelMemory:
        """The memory of what was counted."""
        names = self.names(strings)
        number = {name: i for i, name in enumerate(names)}
        rank = [number[strings[key]] for key in self.labels.keys.tolist()[1:]]
        labels, units = numpy.asarray([0, *rank], dtype="int32"), self.units.rank()
        counts = {name: self._count(name, labels, units) for name in self.values}
        none = numpy.zeros(0, dtype="uint64")
        text_ids = numpy.concatenate([none, *self.text_ids])
        order = numpy.argsort(text_ids, kind="stable")
        unit = units[numpy.concatenate([none.astype("int32"), *self.unit_of])]
        return LabelMemory(names, counts, text_ids[order], unit[order])

    def _count(self, name: str, labels: Ints1d, units: Ints1d) -> Counts:
        """The counts of an attribute, with the ranks of labels and of units as their numbers."""
        ranking = self.values[name]
        every = numpy.concatenate([numpy.zeros((4, 0), dtype="int32"), *self.entries.pop(name)], 1)
        for row, rank in zip(every, (units, ranking.rank(), labels)):
            row[:] = rank[row]
        (unit, value, label), n_times = _count_columns(every[:3], every[3])
        total = numpy.zeros((len(ranking.keys), len(labels)), dtype="int32")
        numpy.add.at(total, (value, label), n_times)
        starts = numpy.searchsorted(unit, numpy.arange(len(units) + 1)).astype("int32")
        return Counts(numpy.sort(ranking.keys), total, starts, value, label, n_times)


def _count_columns(columns: Ints2d, n_times: Ints1d) -> Tuple[Ints2d, Ints1d]:
    """The columns that are there, in order, and how often.

    columns (Ints2d): Not negative, in int32. Shape: (3, N)
    n_times (Ints1d): How often each counts. In int32. Shape: (N,)
    RETURNS (Tuple[Ints2d, Ints1d]): In int32. Shapes: (3, M), (M,)
    """
    sizes = columns.max(axis=1, initial=0).astype("int64") + 1
    place = (columns[0] * sizes[1] + columns[1]) * sizes[2] + columns[2]
    order = numpy.argsort(place)
    place = place[order]
    first = numpy.flatnonzero(numpy.diff(place, prepend=-1))
    sums = numpy.add.reduceat(n_times[order], first) if len(first) else n_times[:0]
    return columns[:, order[first]], sums
