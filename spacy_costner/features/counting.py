"""Count the labels of the training data: what a label memory is made of."""

from typing import Dict, List, Sequence, Tuple, Union

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc
from thinc.types import Array1d, Ints1d

from .memory import Counts, LabelMemory
from .template import DOC, EXTENSION
from .tokens import Tokens, text_id

OUTSIDE = "O"

Counted = Tuple[List[Array1d], Ints1d]
"""The rows of a table, as columns, and how often each is there. Shapes: (N,)"""


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


class LabelCounts:
    """Counts the labels of training docs: what a label memory is made of. Tokens without annotation
    are not counted. Docs are not kept."""

    def __init__(self, attributes: Sequence[str], unit: Union[int, str]) -> None:
        """Begin without docs.

        attributes (Sequence[str]): The attributes whose labels are counted.
        unit (Union[int, str]): The setting `memory_unit`.
        """
        self.unit, self.n_docs, none = unit, 0, numpy.zeros(0, dtype="uint64")
        self.labels, self.text_ids, self.units = {0}, [none], [none]
        self.counted: Dict[str, List[Counted]] = {name: [] for name in attributes}

    def add(self, docs: Sequence[Doc], tokens: Tokens) -> None:
        """Count the labels of docs.

        docs (Sequence[Doc]): The docs.
        tokens (Tokens): Their tokens.
        """
        columns = [doc.to_array([ENT_IOB, ENT_TYPE]).reshape(len(doc), 2) for doc in docs]
        iob, label = numpy.concatenate(columns).T
        self.labels.update(numpy.unique(label).tolist())
        if not self.counted:
            return
        units = [unit_of(doc, i, self.unit) for i, doc in enumerate(docs, self.n_docs)]
        self.n_docs += len(docs)
        self.units.append(numpy.asarray(units, dtype="uint64"))
        self.text_ids.append(numpy.asarray([text_id(doc) for doc in docs], dtype="uint64"))
        unit = numpy.repeat(self.units[-1], tokens.lengths)
        for name, counted in self.counted.items():
            there = (iob != 0) & (tokens.keys[name] != 0)
            rows = [column[there] for column in (unit, tokens.keys[name], label)]
            counted.append(count_rows(rows, numpy.ones(int(there.sum()), dtype="int32")))

    def names(self, strings: StringStore) -> List[str]:
        """The labels, O first."""
        return [OUTSIDE, *sorted(strings[key] for key in self.labels if key)]

    def memory(self, strings: StringStore) -> LabelMemory:
        """The memory of what was counted. It can't be asked for twice."""
        by_name = {strings[key]: key for key in self.labels if key}
        names = self.names(strings)
        labels = numpy.asarray([0, *(by_name[name] for name in names[1:])], dtype="uint64")
        text_ids = numpy.concatenate(self.text_ids)
        units, unit = numpy.unique(numpy.concatenate(self.units), return_inverse=True)
        order = numpy.argsort(text_ids, kind="stable")
        counts = {name: _join(self.counted.pop(name), labels, units) for name in [*self.counted]}
        return LabelMemory(names, counts, text_ids[order], unit[order].astype("int32"))


def _join(counted: List[Counted], labels: Array1d, units: Array1d) -> Counts:
    """Join the counts of an attribute."""
    none: Counted = ([numpy.zeros(0, dtype="uint64")] * 3, numpy.zeros(0, dtype="int32"))
    rows = [numpy.concatenate([part[0][i] for part in [none, *counted]]) for i in range(3)]
    n_times = numpy.concatenate([part[1] for part in [none, *counted]])
    counted.clear()
    rank = _index(rows[2], labels)
    (unit, value, label), n_times = count_rows([*rows[:2], rank.astype("uint64")], n_times)
    keys, value = numpy.unique(value, return_inverse=True)
    total = numpy.zeros((len(keys), len(labels)), dtype="int32")
    numpy.add.at(total, (value, label), n_times)
    return Counts(
        keys=keys,
        total=total,
        starts=numpy.append(numpy.searchsorted(unit, units), len(unit)).astype("int32"),
        value=value.astype("int32"),
        label=label.astype("int32"),
        n_times=n_times,
    )


def _index(keys: Array1d, among: Array1d) -> Ints1d:
    """The index of each key in an array that has it."""
    order = numpy.argsort(among)
    return order[numpy.searchsorted(among[order], keys)]


def count_rows(columns: Sequence[Array1d], n_times: Ints1d) -> Counted:
    """Count equal rows of a table.

    columns (Sequence[Array1d]): Its columns. Shapes: (N,)
    n_times (Ints1d): How often each row counts. In int32. Shape: (N,)
    RETURNS (Counted): The rows that are there, in ascending order, as columns; and how often.
    """
    place = numpy.zeros(len(n_times), dtype="int64")
    for column in columns:
        own, number = numpy.unique(column, return_inverse=True)
        place = place * len(own) + number
    order = numpy.argsort(place)
    first = numpy.flatnonzero(numpy.diff(place[order], prepend=-1))
    sums = numpy.add.reduceat(n_times[order], first) if len(first) else n_times
    return [column[order[first]] for column in columns], sums
