"""Tag schemes as data; tag sets; entities to tags and back.

A tag is O, or a scheme's prefix and a label. A tag set keeps the prefix and the label of each tag
separately and never parses the name of a tag, so labels may have hyphens.

With `outside = "before"`, O directly before an entity is a tag of its own, by the label of that
entity: O-city. The split is a function of the other tags, so each sequence of entities still has
one path. It is for the chain alone. Whatever has tags as annotation has them, such as costs, uses
`Tags.collapsed`, where all of these are O again.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Array2d, Floats2d, Ints1d

from .types import Constraints, EntityTags

OUTSIDE = "O"

SINGLE = "single"
"""The tag of all tokens outside of entities is O."""

BEFORE = "before"
"""Directly before an entity of label l it is O-l, else O."""


class Scheme(NamedTuple):
    """How tags encode entities. After a token that may be the last of an entity, a new entity or O
    may follow.

    name (str): Its name in configs.
    begin, inside, last, unit (str): The prefixes of the first token of an entity, of those in the
        middle, of the last token, and of the only one.
    within (frozenset[tuple[str, str]]): The allowed transitions inside an entity, (from, to).
    """

    name: str
    begin: str
    inside: str
    last: str
    unit: str
    within: frozenset[tuple[str, str]]

    @property
    def prefixes(self) -> tuple[str, str, str, str]:
        """The prefixes by position; some schemes have one prefix in two positions."""
        return (self.begin, self.inside, self.last, self.unit)

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

    begin (Ints1d): First token of each entity, counted over the batch. Shape: (E,)
    end (Ints1d): The token after its last. Shape: (E,)
    label (Ints1d): Its label, as an index. Shape: (E,)
    """

    begin: Ints1d
    end: Ints1d
    label: Ints1d

    def select(self, which: Array1d) -> "Entities":
        """Select some of the entities. `which` is a mask, shape (E,), or indices in the wanted
        order."""
        return Entities(self.begin[which], self.end[which], self.label[which])

    def trim(self, is_space: Array1d) -> "Entities":
        """Remove white space from both ends of entities, and drop entities of white space only.
        `is_space` is true for white space, (N,)."""
        if not is_space.any():
            return self
        # The tokens that are words, ascending. The end of the batch is as if a word followed, for
        # entities of white space there.
        words = numpy.append(numpy.flatnonzero(~is_space), len(is_space))
        # The first word at or after the begin, and the last word before the end. Shapes: (E,)
        first = words[numpy.searchsorted(words, self.begin)]
        last = words[numpy.searchsorted(words, self.end) - 1]
        has_words = first < self.end
        return Entities(first, last + 1, self.label).select(has_words)


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
        prefixes = list(dict.fromkeys(self.scheme.prefixes))
        if outside == BEFORE:
            prefixes.append(OUTSIDE)
        self._prefixes_of_label = tuple(prefixes)

        # Label after label, each with all prefixes.
        self.prefix_of: tuple[str, ...] = (OUTSIDE, *(self._prefixes_of_label * len(self.labels)))
        label_ids = numpy.repeat(numpy.arange(len(self.labels)), len(prefixes))
        # The label in the name of each tag: that of O-city is city, though it is outside of
        # entities; -1 for O. Shape: (K,)
        self._label_in_name: Ints1d = numpy.append(-1, label_ids).astype("int32")
        is_outside = self.having([OUTSIDE])
        self.label_of: Ints1d = numpy.where(is_outside, numpy.int32(-1), self._label_in_name)
        self.next_label_of: Ints1d = numpy.where(is_outside, self._label_in_name, numpy.int32(-1))

    def __len__(self) -> int:
        return len(self.prefix_of)

    @property
    def names(self) -> tuple[str, ...]:
        """The tags as people write them: O, B-PER, I-PER, …; O-PER for O before a PER."""
        return self._make_names(self.prefix_of)

    def _make_names(self, prefixes: Sequence[str]) -> tuple[str, ...]:
        """Make the names of the tags, with these prefixes: their own, or those of another scheme.
        Length: K"""
        names = [OUTSIDE]  # which has no label
        for prefix, label in zip(prefixes[1:], self._label_in_name[1:]):
            names.append(f"{prefix}-{self.labels[label]}")
        return tuple(names)

    @property
    def is_split(self) -> bool:
        """Whether O before an entity has tags of its own."""
        return self.outside == BEFORE

    @cached_property
    def collapsed(self) -> "Tags":
        """The tag set with a single O, as annotation and costs have it: itself if O is not
        split."""
        if not self.is_split:
            return self
        return Tags(self.labels, self.scheme.name)

    @property
    def finest(self) -> "Tags":
        """The tags that distinguish most: the tag of a token in any scheme, with any `outside`,
        follows from it."""
        return Tags(self.labels, "BILUO", BEFORE)

    def counts_as(self, other: "Tags") -> Ints1d:
        """Find which tag of another set each tag of `finest` is. The other set has the same labels,
        but may have another scheme: what is L-PER here is I-PER in IOB2. Shape: (K,)"""
        # The prefix that the other scheme has in the position of each prefix of this one.
        other_prefix_of = dict(zip(self.scheme.prefixes, other.scheme.prefixes))
        other_prefix_of[OUTSIDE] = OUTSIDE
        other_names = self._make_names([other_prefix_of[prefix] for prefix in self.prefix_of])
        tag_of_name = {name: tag for tag, name in enumerate(other.names)}
        # The name O-city isn't found where O is not split: there it is O, tag 0.
        other_tags = [tag_of_name.get(name, 0) for name in other_names]
        return numpy.asarray(other_tags, dtype="int32")

    @cached_property
    def collapsed_of(self) -> Ints1d:
        """The tag of `collapsed` that each tag counts as: all tags of O are O there. Shape: (K,)"""
        is_outside = self.label_of < 0
        # The tags of entities keep their order after O, which is 0: they are numbered from 1.
        rank = numpy.cumsum(~is_outside)
        return numpy.where(is_outside, 0, rank).astype("int32")

    def collapse(self, table: Array2d) -> Array2d:
        """Sum the numbers of a table, or join its truth values, over the tags that are one in
        `collapsed`. Shape: (N, K) to (N, tags of `collapsed`)"""
        if not self.is_split:
            return table
        # Which tags each tag of `collapsed` stands for, as a mask, (K, tags of `collapsed`). The
        # product with it sums over them.
        is_part = self.collapsed_of[:, None] == numpy.arange(len(self.collapsed))
        return table @ is_part.astype(table.dtype)

    def index(self, prefix: str, label: Ints1d) -> Ints1d:
        """Find the tags that have a prefix and some labels, by their indices: one label, or an
        array. After tag 0, O, tags stand label after label, each with all of its prefixes."""
        place = self._prefixes_of_label.index(prefix)
        return 1 + label * len(self._prefixes_of_label) + place

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
        may_start = (self.label_of < 0) | self.opening
        may_end = self.having([OUTSIDE, *self.scheme.closing]) & (self.next_label_of < 0)
        # From where a path may end to where one may start, and inside an entity.
        transitions = (may_end[:, None] & may_start) | self.within
        if self.is_split:
            # No entity begins after O, tag 0, and one of label l has to begin after O-l.
            is_announced = self.next_label_of[:, None] == self.label_of
            transitions[0] &= ~self.opening
            transitions |= self.opening & is_announced
        return Constraints(transitions=transitions, start=may_start, end=may_end)

    @cached_property
    def within(self) -> Array2d:
        """True for the transitions inside an entity, [from, to]: between tags of one label, with
        prefixes that may follow each other. Shape: (K, K)"""
        has_same_label = (self.label_of[:, None] == self.label_of) & (self.label_of >= 0)
        has_prefixes = numpy.zeros((len(self), len(self)), dtype=bool)
        for prefix, next_prefix in self.scheme.within:
            has_prefixes |= self.having([prefix])[:, None] & self.having([next_prefix])
        return has_same_label & has_prefixes

    @cached_property
    def entity_tags(self) -> EntityTags:
        """What the chain needs to find entities in paths."""
        closing = self.having(self.scheme.closing)
        return EntityTags(self.label_of, self.opening, closing, self.within)

    @cached_property
    def opens_label(self) -> Floats2d:
        """1 for the tags that begin an entity of each label, else 0. The product of the
        probabilities of tags with it, (N, K) @ (K, labels), are those that a token begins an entity
        of each label. Shape: (K, labels)"""
        return self.opening[:, None] * self.has_label[:, 1:]

    @cached_property
    def has_label(self) -> Floats2d:
        """1 for the tags of O, in the first column, and for all tags of each label, in the others;
        else 0. The product of the probabilities of tags with it are those of O and of labels.
        Shape: (K, labels + 1)"""
        columns = numpy.arange(-1, len(self.labels))
        return (self.label_of[:, None] == columns).astype("float32")

    def encode(self, entities: Entities, n_tokens: int) -> Ints1d:
        """Convert entities to the tags of all tokens, of which there are `n_tokens`: O outside of
        entities. Shape: (N,)"""
        begin, end, label = entities
        scheme = self.scheme
        tags = numpy.zeros(n_tokens, dtype="int32")
        # 1 where an entity begins, and 1 less after its end: up to a token in an entity, the sum of
        # these is 1.
        steps = numpy.zeros(n_tokens + 1, dtype="int8")
        steps[begin] = 1
        steps[end] -= 1
        in_entity = steps[:-1].cumsum(dtype="int8") == 1

        # All tokens of entities first, then the first and the last, then the only ones.
        tags[in_entity] = self.index(scheme.inside, numpy.repeat(label, end - begin))
        tags[begin] = self.index(scheme.begin, label)
        tags[end - 1] = self.index(scheme.last, label)
        is_unit = end - begin == 1
        tags[begin[is_unit]] = self.index(scheme.unit, label[is_unit])
        return tags

    def gold_path(self, entities: Entities, is_annotated: Array1d) -> Ints1d:
        """Convert annotation to the gold tag of each token, without the split of O: -1 where the
        annotation is missing. Entities whose label the tag set doesn't have, -1, are O.
        `is_annotated` is False for missing annotation, (N,). Shape: (N,)"""
        has_label = entities.label >= 0
        path = self.encode(entities.select(has_label), len(is_annotated))
        return numpy.where(is_annotated, path, -1)

    def follows_entity(self, path: Ints1d, lengths: Ints1d) -> Array1d:
        """True for the tokens that stand directly after a token that is known to be in an entity.
        `path` has the tag of each token, -1 if it isn't known, (N,); `lengths` are those of the
        docs, (B,). Shape: (N,)"""
        is_in_entity = (path >= 0) & (self.label_of[path] >= 0)
        follows = numpy.zeros(len(path), dtype=bool)
        follows[1:] = is_in_entity[:-1]
        return follows & has_token_before(lengths)

    def agreeing(self, path: Ints1d, lengths: Ints1d) -> Array2d:
        """The tags that agree with annotation. Where it is missing, -1, all do, but the token after
        an entity can't continue it.

        path (Ints1d): The annotated tag of each token, or -1. Shape: (N,)
        lengths (Ints1d): The number of tokens of each sequence. Shape: (B,)
        RETURNS (Array2d): True for the tags that agree. Shape: (N, K)
        """
        is_missing = path < 0
        # All tags that count as the annotated tag, as O may be split. Where it is missing, -1 finds
        # some tag, which the next line makes irrelevant. (N, K)
        agrees = self.collapsed_of[path][:, None] == self.collapsed_of
        agreeing = is_missing[:, None] | agrees
        is_after_entity = is_missing & self.follows_entity(path, lengths)
        agreeing[is_after_entity] &= ~self.continuing
        return agreeing

    def split_outside(self, path: Ints1d, lengths: Ints1d) -> Ints1d:
        """Replace O directly before an entity by the O of its label, if O is split. `path` has the
        tag of each token, -1 if it isn't known, (N,); `lengths` those of the sequences, (B,)."""
        if not self.is_split or not len(path):
            return path
        begins_entity = (path >= 0) & self.opening[path] & has_token_before(lengths)
        is_single_outside = path == 0
        # The tokens of O whose next token begins an entity.
        before_entity = numpy.flatnonzero(begins_entity[1:] & is_single_outside[:-1])
        next_label = self.label_of[path[before_entity + 1]]
        split_path = path.copy()
        split_path[before_entity] = self.index(OUTSIDE, next_label)
        return split_path

    def decode(self, tags: Ints1d, lengths: Ints1d) -> Entities:
        """Convert the tags of tokens, (N,), as the scheme allows them, to entities. `lengths` are
        those of the sequences, (B,)."""
        begin, end = runs(self.opening[tags], self.continuing[tags], lengths)
        return Entities(begin, end, self.label_of[tags[begin]])


def has_token_before(lengths: Ints1d) -> Array1d:
    """True for the tokens that are not the first of their sequence. Shapes: (B,) to (N,)"""
    # One place more than tokens: the last sequences may be empty, and then begin after all tokens.
    is_later = numpy.ones(int(lengths.sum()) + 1, dtype=bool)
    is_later[lengths.cumsum() - lengths] = False
    return is_later[:-1]


def runs(opening: Array1d, continuing: Array1d, lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Find the runs of tokens that an opening token begins and continuing ones go on with. A run
    never leaves its sequence.

    opening (Array1d): True for the tokens that begin a run. Shape: (N,)
    continuing (Array1d): True for those that go on with the run of the token before. Shape: (N,)
    lengths (Ints1d): Tokens of each sequence. Shape: (B,)
    RETURNS (tuple[Ints1d, Ints1d]): The first token of each run, and the one after its last.
    """
    # Methods in place of functions of numpy, as this is a good part of the time of a short text.
    begin = opening.nonzero()[0]
    if not len(begin):
        return begin, begin
    # A run stops before the next token that doesn't continue it or that begins a sequence, and at
    # the end of all tokens. Shape: (N + 1,)
    stops = numpy.ones(len(continuing) + 1, dtype=bool)
    numpy.logical_not(continuing, out=stops[:-1])
    stops[lengths.cumsum()] = True
    stopping = stops.nonzero()[0]
    return begin, stopping[stopping.searchsorted(begin, side="right")]
