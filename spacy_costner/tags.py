"""Tag schemes as data; tag sets; entities to tags and back.

A tag is O, or a scheme's prefix and a label. A tag set keeps the prefix and the label of each tag
separately and never parses the name of a tag, so labels may have hyphens.

With `outside = "before"`, O directly before an entity is a tag of its own, by the label of that
entity: O-city. The split is a function of the other tags, so each sequence of entities still has
one path. It is for the chain alone. Whatever has tags as annotation has them, such as costs, uses
`Tags.collapsed`, where all of these are O again.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Array2d, Ints1d

from .ragged import first_tokens, ranges
from .types import Constraints, EntityTags

OUTSIDE = "O"

SINGLE, BEFORE = "single", "before"
"""The tags of tokens outside of entities: O, or O and O-l directly before entities of label l."""


class Scheme(NamedTuple):
    """How tags encode entities: the prefixes of the first, a middle, the last and the only token,
    and the allowed transitions inside an entity. After a token that may be the last of an entity, a
    new entity or O may follow."""

    name: str
    begin: str
    inside: str
    last: str
    unit: str
    within: frozenset[tuple[str, str]]

    @property
    def closing(self) -> frozenset[str]:
        """The prefixes that may end an entity."""
        return frozenset([self.last, self.unit])


BILUO_WITHIN = frozenset([("B", "I"), ("B", "L"), ("I", "I"), ("I", "L")])
SCHEMES: dict[str, Scheme] = {
    "BILUO": Scheme("BILUO", "B", "I", "L", "U", BILUO_WITHIN),
    "IOB2": Scheme("IOB2", "B", "I", "I", "B", frozenset([("B", "I"), ("I", "I")])),
}


class Entities(NamedTuple):
    """The entities of a batch, in order and without overlap.

    begin (Ints1d): First token of each, counted over the batch. Shape: (E,)
    end (Ints1d): The token after its last. Shape: (E,)
    label (Ints1d): Its label, as an index. Shape: (E,)
    """

    begin: Ints1d
    end: Ints1d
    label: Ints1d

    def select(self, which: Array1d) -> "Entities":
        """Some of them: `which` is a mask, shape (E,), or their indices in the wanted order."""
        return Entities(self.begin[which], self.end[which], self.label[which])

    def trim(self, is_space: Array1d) -> "Entities":
        """Remove white space, (N,), from both ends, and drop entities of white space only."""
        if not is_space.any():
            return self
        words = numpy.append(numpy.flatnonzero(~is_space), len(is_space))
        first = words[numpy.searchsorted(words, self.begin)]
        last = words[numpy.searchsorted(words, self.end) - 1]
        return Entities(first, last + 1, self.label).select(first < self.end)


class Tags:
    """All tags of a scheme over some labels.

    Tag 0 is O; then, label after label, the scheme's prefixes and, if O is split, O before that
    label. Adding a label at the end doesn't change the numbers of the others.

    prefix_of (tuple[str, ...]): The prefix of each tag, "O" outside of entities. Length: K
    label_of (Ints1d): Its label, as an index; -1 outside of entities. Shape: (K,)
    next_label_of (Ints1d): The label of the entity that has to follow; -1 if none has to.
        Shape: (K,)
    """

    def __init__(self, labels: Iterable[str], scheme: str = "BILUO", outside: str = SINGLE) -> None:
        """labels (Iterable[str]): The labels, without repetition.
        scheme (str): "BILUO" or "IOB2".
        outside (str): "single" or "before".
        RAISES (ValueError): If the scheme or `outside` is unknown.
        """
        if outside not in (SINGLE, BEFORE):
            raise ValueError(f"outside: expected {SINGLE!r} or {BEFORE!r}, got {outside!r}")
        if scheme not in SCHEMES:
            expected = " or ".join(map(repr, SCHEMES))
            raise ValueError(f"scheme: expected {expected}, got {scheme!r}")
        self.scheme = SCHEMES[scheme]
        self.labels = tuple(labels)
        self.outside = outside
        prefixes = [*self.scheme[1:5], *([OUTSIDE] if outside == BEFORE else [])]
        self._block = tuple(dict.fromkeys(prefixes))
        self.prefix_of: tuple[str, ...] = (OUTSIDE, *(self._block * len(self.labels)))
        names = numpy.repeat(numpy.arange(len(self.labels)), len(self._block))
        self._named: Ints1d = numpy.concatenate([[-1], names]).astype("int32")
        is_outside = self.having([OUTSIDE])
        self.label_of: Ints1d = numpy.where(is_outside, numpy.int32(-1), self._named)
        self.next_label_of: Ints1d = numpy.where(is_outside, self._named, numpy.int32(-1))

    def __len__(self) -> int:
        return len(self.prefix_of)

    @property
    def names(self) -> tuple[str, ...]:
        """The tags as people write them: O, B-PER, I-PER, …; O-PER for O before a PER."""
        return tuple(
            prefix if label == -1 else f"{prefix}-{self.labels[label]}"
            for prefix, label in zip(self.prefix_of, self._named)
        )

    @property
    def is_split(self) -> bool:
        """Whether O before an entity has tags of its own."""
        return self.outside == BEFORE

    @cached_property
    def collapsed(self) -> "Tags":
        """The tags with a single O: itself if O is not split."""
        return Tags(self.labels, self.scheme.name) if self.is_split else self

    @property
    def finest(self) -> "Tags":
        """The tags that distinguish most: the tag of a token in any scheme, with any `outside`,
        follows from it."""
        return Tags(self.labels, "BILUO", BEFORE)

    def counts_as(self, other: "Tags") -> Ints1d:
        """The tag that each of the finest tags is in another set, of any scheme, that has these
        labels. Shape: (K,)"""
        prefixes = dict(zip(self.scheme[1:5], other.scheme[1:5]))
        index = {name: tag for tag, name in enumerate(other.names)}
        named = zip(self.prefix_of[1:], self._named[1:])
        names = [f"{prefixes.get(prefix, prefix)}-{self.labels[label]}" for prefix, label in named]
        return numpy.asarray([0, *(index.get(name, 0) for name in names)], dtype="int32")

    @cached_property
    def collapsed_of(self) -> Ints1d:
        """The tag of `collapsed` that each tag is. Shape: (K,)"""
        is_outside = self.label_of < 0
        return numpy.where(is_outside, 0, numpy.cumsum(~is_outside)).astype("int32")

    def collapse(self, values: Array2d) -> Array2d:
        """Sum numbers, or join truth values, over the tags that are one in `collapsed`.
        Shape: (N, K)"""
        if not self.is_split:
            return values
        is_of = self.collapsed_of[:, None] == numpy.arange(len(self.collapsed))
        return values @ is_of.astype(values.dtype)

    def index(self, prefix: str, label: Ints1d) -> Ints1d:
        """The tags of a prefix and some labels, all by index."""
        return 1 + label * len(self._block) + self._block.index(prefix)

    def having(self, prefixes: Iterable[str]) -> Array1d:
        """True for the tags that have one of these prefixes. Shape: (K,)"""
        return numpy.isin(self.prefix_of, list(prefixes))

    @cached_property
    def opening(self) -> Array1d:
        """True for the tags that begin an entity. Shape: (K,)"""
        return self.having([self.scheme.begin, self.scheme.unit])

    @cached_property
    def continuing(self) -> Array1d:
        """True for the tags that go on with the entity of the token before. Shape: (K,)"""
        return self.having(to for _, to in self.scheme.within)

    @cached_property
    def at_border(self) -> Array1d:
        """True for the tags that only the first or the last token of an entity has. Shape: (K,)"""
        scheme = self.scheme
        return self.having({scheme.begin, scheme.last, scheme.unit} - {scheme.inside})

    @cached_property
    def constraints(self) -> Constraints:
        """The transitions, starts and ends that the scheme allows."""
        opening = (self.label_of < 0) | self.opening
        closing = self.having([OUTSIDE, *self.scheme.closing]) & (self.next_label_of < 0)
        transitions = (closing[:, None] & opening) | self.within
        if self.is_split:
            transitions[0] &= ~self.opening
            transitions |= self.opening & (self.next_label_of[:, None] == self.label_of)
        return Constraints(transitions=transitions, start=opening, end=closing)

    @cached_property
    def within(self) -> Array2d:
        """True for the transitions inside an entity, [from, to]. Shape: (K, K)"""
        same_label = (self.label_of[:, None] == self.label_of) & (self.label_of >= 0)
        goes_on = [[(a, b) in self.scheme.within for b in self.prefix_of] for a in self.prefix_of]
        return same_label & numpy.asarray(goes_on)

    @cached_property
    def entity_tags(self) -> EntityTags:
        """What the chain needs to find entities in paths."""
        closing = self.having(self.scheme.closing)
        return EntityTags(self.label_of, self.opening, closing, self.within)

    def encode(self, entities: Entities, n_tokens: int) -> Ints1d:
        """Entities without overlap to tags, of all N tokens. Shape: (N,)"""
        (begin, end, label), scheme = entities, self.scheme
        which, inside = ranges(begin, end)
        tags = numpy.zeros(n_tokens, dtype="int32")
        tags[inside] = self.index(scheme.inside, label[which])
        tags[begin] = self.index(scheme.begin, label)
        tags[end - 1] = self.index(scheme.last, label)
        is_unit = end - begin == 1
        tags[begin[is_unit]] = self.index(scheme.unit, label[is_unit])
        return tags

    def gold_path(self, entities: Entities, is_annotated: Array1d) -> Ints1d:
        """The gold tag of each token, without the split of O: -1 where annotation is missing.
        Entities of other labels, -1, are O. Shapes: (N,), (N,)"""
        known = entities.select(entities.label >= 0)
        return numpy.where(is_annotated, self.encode(known, len(is_annotated)), -1)

    def follows_entity(self, path: Ints1d, lengths: Ints1d) -> Array1d:
        """True if the token before, of the same doc, is known to be in an entity. Shape: (N,)"""
        follows = numpy.zeros(len(path), dtype=bool)
        follows[1:] = (path[:-1] >= 0) & (self.label_of[path[:-1]] >= 0)
        follows[first_tokens(lengths)] = False
        return follows

    def split_outside(self, path: Ints1d, lengths: Ints1d) -> Ints1d:
        """Replace O directly before an entity by the O of its label, if O is split. -1 stands for a
        tag that is not known. Shapes: (N,), (B,)"""
        if not self.is_split or not len(path):
            return path
        opens = (path >= 0) & self.opening[path]
        opens[first_tokens(lengths)] = False
        before = numpy.flatnonzero(opens[1:] & (path[:-1] == 0))
        split = path.copy()
        split[before] = self.index(OUTSIDE, self.label_of[path[before + 1]])
        return split

    def decode(self, tags: Ints1d, lengths: Ints1d) -> Entities:
        """Tags, as the scheme allows them, to entities. Shapes: (N,), (B,)"""
        begin, end = runs(self.opening[tags], self.continuing[tags], lengths)
        return Entities(begin, end, self.label_of[tags[begin]])


def runs(opening: Array1d, goes_on: Array1d, lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Find the first token of each run, and the one after its last. A run begins at a true token of
    `opening`, goes on at those of `goes_on`, and never leaves its sequence. Shapes: (N,), (N,),
    (B,)"""
    # Methods in place of functions of numpy, as this is a good part of the time of a short text.
    begin = opening.nonzero()[0]
    if not len(begin):
        return begin, begin
    stops = numpy.ones(len(goes_on) + 1, dtype=bool)
    numpy.logical_not(goes_on, out=stops[:-1])
    stops[lengths.cumsum()] = True
    breaks = stops.nonzero()[0]
    return begin, breaks[breaks.searchsorted(begin, side="right")]
