"""Two segmentations of training docs, which epochs alternate between.

A doc with borders (see `borders`) is learned in two ways: as one sequence of the chain, and as the
sequences between its borders. The first epoch takes docs as one sequence, the next one cuts them,
and so on, so that a model learns both.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
ResultT = TypeVar("ResultT")


SHARE_OF_SEQUENCES = 0.3
"""How much the loss of cut docs counts where training takes both segmentations at once; that of
whole docs has the rest. Chosen on development data: see docs/linear.md."""


def cuts_docs(epoch: int) -> bool:
    """Whether an epoch cuts docs at their borders: every other one. The first epoch is number 0."""
    # Other shares of the epochs are no better on development data: see docs/linear.md.
    return epoch % 2 == 1


@dataclass(frozen=True)
class Segmentations(Generic[T]):
    """What epochs of training take: one object for those with whole docs, and another for those
    that cut docs at their borders. T is the type of both: `Targets`, say, or a list of batches.

    by_doc (T): For docs that are one sequence each.
    by_sequence (T | None): For docs that are cut at their borders. None: no doc has borders, and
        all epochs take `by_doc`.
    """

    by_doc: T
    by_sequence: T | None = None

    @property
    def finest(self) -> T:
        """The parts of docs that are cut at their borders. If no doc has borders, these are whole
        docs: `by_doc`."""
        if self.by_sequence is None:
            return self.by_doc
        return self.by_sequence

    def in_epoch(self, epoch: int) -> T:
        """What an epoch takes. The first epoch is number 0."""
        if cuts_docs(epoch):
            return self.finest
        return self.by_doc

    def to_list(self) -> list[T]:
        """One object, or two that differ: for training that takes both at once in place of
        alternating."""
        if self.by_sequence is None:
            return [self.by_doc]
        return [self.by_doc, self.by_sequence]

    @property
    def shares(self) -> list[float]:
        """How much the loss of each object of `to_list` counts: 1 in sum."""
        if self.by_sequence is None:
            return [1.0]
        return [1 - SHARE_OF_SEQUENCES, SHARE_OF_SEQUENCES]

    def map(self, function: Callable[[T], ResultT]) -> "Segmentations[ResultT]":
        """Apply a function to both objects, or to the only one if no doc has borders."""
        if self.by_sequence is None:
            return Segmentations(function(self.by_doc))
        return Segmentations(function(self.by_doc), function(self.by_sequence))


def concatenate(parts: Iterable[Segmentations[list[T]]]) -> Segmentations[list[T]]:
    """Join the lists of several parts of a corpus. A part without borders has the same list in both
    segmentations."""
    by_doc: list[T] = []
    by_sequence: list[T] = []
    has_borders = False
    for part in parts:
        by_doc += part.by_doc
        by_sequence += part.finest
        if part.by_sequence is not None:
            has_borders = True
    if not has_borders:
        return Segmentations(by_doc)
    return Segmentations(by_doc, by_sequence)
