"""The vocabulary of features: what training finds, and a model saves."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
from thinc.types import Array1d

from .clusters import Clusters
from .elsewhere import WIDTH
from .memory import LabelMemory, share_names
from .template import GAZETTEER, Column, Form


class Vocabulary(NamedTuple):
    """The values of columns.

    values (dict[str, list[str]]): The values of the columns of words and of tokens, in the order
        of their numbers.
    pairs (dict[str, Array1d]): Those of columns of pairs, as `pair_up` writes them.
    phrases (dict[str, list[str]]): The phrases of each column of a gazetteer.
    memory (LabelMemory | None): The labels of the training data, if there are such columns.
    clusters (dict[str, Clusters]): The clusters of words of each column of a file of clusters.
    labels (Sequence[str]): O and the labels of the first pass, if there are such columns.
    """

    values: dict[str, list[str]]
    pairs: dict[str, Array1d]
    phrases: dict[str, list[str]]
    memory: LabelMemory | None
    clusters: dict[str, Clusters]
    labels: Sequence[str] = ()

    def size(self, column: Column) -> int:
        """The number of values of a column."""
        if column.form == Form.PAIR:
            return len(self.pairs.get(column.name, ()))
        return len(self.names(column))

    def width(self, column: Column) -> int:
        """The largest number of values that a token has."""
        if column.form == Form.MEMORY:
            return self._memory.width(column.of)
        if column.form == Form.DOCUMENT:
            return WIDTH
        if column.form == Form.CLUSTER:
            return self.clusters[column.name].numbers.shape[1]
        return column.n_nearest or 1

    def names(self, column: Column) -> list[str]:
        """The names of the values of a column, in the order of their numbers."""
        if column.form == Form.PAIR:
            names, keys = self.values[column.of], self.pairs[column.name].tolist()
            return [f"{names[key >> 32]}+{names[key & 0xFFFFFFFF]}" for key in keys]
        if column.form == Form.MEMORY:
            return share_names(self._memory.labels)
        if column.form == Form.DOCUMENT:
            return share_names(self.labels)
        is_of_another = column.form in (Form.BEFORE, Form.AFTER)
        return self.values[column.of if is_of_another else column.name]

    @property
    def _memory(self) -> LabelMemory:
        assert self.memory is not None  # where there is a column of it
        return self.memory

    def to_dict(self) -> dict[str, Any]:
        """What is saved."""
        pairs = {name: keys.astype("<i8").tobytes() for name, keys in self.pairs.items()}
        saved: dict[str, Any] = {"values": self.values, "pairs": pairs, "phrases": self.phrases}
        if self.memory is not None:
            saved["memory"] = self.memory.to_dict()
        if self.clusters:
            saved["clusters"] = {name: found.to_dict() for name, found in self.clusters.items()}
        if self.labels:
            saved["labels"] = [*self.labels]
        return saved

    @classmethod
    def from_dict(cls, saved: dict[str, Any], columns: Sequence[Column]) -> "Vocabulary":
        """Load the vocabulary of some columns. Raises an error if it is damaged."""
        pairs = {name: numpy.frombuffer(keys, dtype="<i8") for name, keys in saved["pairs"].items()}
        memory = None
        if attributes := [column.of for column in columns if column.form == Form.MEMORY]:
            memory = LabelMemory.from_dict(saved["memory"], attributes)
        labels = saved.get("labels", [])
        values, phrases = saved["values"], saved["phrases"]
        for name, names in [*values.items(), *phrases.items(), ("labels", labels)]:
            if not isinstance(names, list) or not all(isinstance(value, str) for value in names):
                raise ValueError(f"{name}: expected a list of strings, got {type(names).__name__}")
            if name in values and name not in phrases and len(set(names)) < len(names):
                raise ValueError(f"{name}: expected each value once")
        clusters = {}
        for column in columns:
            name, keys = column.name, pairs.get(column.name, numpy.zeros(0, dtype="<i8"))
            if column.form == Form.PAIR and len(keys):
                numbers, n = numpy.stack([keys >> 32, keys & 0xFFFFFFFF]), len(values[column.of])
                if not (numbers.min() >= 0 and numbers.max() < n):
                    raise ValueError(f"{name}: expected pairs of {n} values")
            if column.kind == GAZETTEER and name not in phrases:
                raise ValueError(f"{name}: expected phrases, found none")
            if column.form == Form.CLUSTER:
                clusters[name] = Clusters.from_dict(saved["clusters"][name], len(values[name]))
        return cls(values, pairs, phrases, memory, clusters, labels)
