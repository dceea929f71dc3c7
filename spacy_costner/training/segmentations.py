"""Two segmentations of training docs, between which epochs alternate.

A border is a position at which a doc's chain is cut, such as the end of a sentence (see `borders`).
Docs with borders are learned both as one sequence of the chain and as the sequences between their
borders. The first epoch uses whole docs, the second uses cut docs, and so on, so that a model
learns both.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
ResultT = TypeVar("ResultT")

SHARE_OF_SEQUENCES = 0.3
"""The weight of the loss of cut docs, if both segmentations are used at once. The weights of cut
docs and whole docs add up to 1. Chosen on development data: see docs/linear.md."""


def cuts_docs(epoch: int) -> bool:
    """Check whether docs are cut at their borders in an epoch. They are cut in every other epoch,
    starting with the second one. Epochs are numbered from 0."""
    # Cutting docs in more or fewer epochs doesn't improve results on development data: see
    # docs/linear.md.
    return epoch % 2 == 1


@dataclass(frozen=True)
class Segmentations(Generic[T]):
    """The same docs in both segmentations. T is the type of the data for one segmentation, such as
    `Targets` or a list of batches.

    by_doc (T): The data for whole docs.
    by_sequence (T | None): The data for docs that are cut at their borders. If None, no doc
        has borders, and all epochs use `by_doc`.
    """

    by_doc: T
    by_sequence: T | None = None

    @property
    def finest(self) -> T:
        """The data for epochs in which docs are cut at their borders: `by_sequence` or, if no doc
        has borders, `by_doc`."""
        if self.by_sequence is None:
            return self.by_doc
        return self.by_sequence

    def in_epoch(self, epoch: int) -> T:
        """Return the data for an epoch. Epochs are numbered from 0."""
        if cuts_docs(epoch):
            return self.finest
        return self.by_doc

    def to_list(self) -> list[T]:
        """Return a list of `by_doc` and, if any doc has borders, `by_sequence`, for training on
        both segmentations at once instead of alternating between them."""
        if self.by_sequence is None:
            return [self.by_doc]
        return [self.by_doc, self.by_sequence]

    @property
    def shares(self) -> list[float]:
        """The loss weight of each element of `to_list`. The weights add up to 1."""
        if self.by_sequence is None:
            return [1.0]
        return [1 - SHARE_OF_SEQUENCES, SHARE_OF_SEQUENCES]

    def map(self, function: Callable[[T], ResultT]) -> "Segmentations[ResultT]":
        """Apply a function to the data for each segmentation, or only to `by_doc` if no doc has
        borders."""
        if self.by_sequence is None:
            return Segmentations(function(self.by_doc))
        return Segmentations(function(self.by_doc), function(self.by_sequence))


def concatenate(parts: Iterable[Segmentations[list[T]]]) -> Segmentations[list[T]]:
    """Concatenate the lists of several parts of a corpus, such as batches. Parts without borders
    are added to both segmentations."""
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
