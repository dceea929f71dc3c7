"""Tag schemes and tag sets, and converting entities to tags and back.

A *scheme*, such as BILUO, says how tags encode entities. A *tag* is O, or a prefix of the scheme
and a label, such as B-city. A tag set keeps the prefix and the label of each tag separately and
never parses the name of a tag, so labels may have hyphens. A *path* is a tag for each token.

With `outside = "before"`, O is split: a token directly before an entity has a special tag for the
label of that entity, such as O-city. The tag of O follows from the next token, so a sequence of
entities still has exactly one path. Only the chain has these tags. Annotation and costs have
`Tags.collapsed`, the tag set with a single O.

In shapes, K is the number of tags, B the number of sequences in a batch, N the number of their
tokens, E the number of their entities.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Array2d, Floats2d, Ints1d

from .caching import cached_property
from .types import Constraints, EntityTags

OUTSIDE = "O"
"""The tag of tokens outside of entities. If it is split, the prefix of its parts."""

SINGLE = "single"
"""The setting `outside` that gives all tokens outside of entities the tag O."""

BEFORE = "before"
"""The setting `outside` that splits O: a token directly before an entity of label l has O-l."""


class Scheme(NamedTuple):
    """How tags encode entities.

    name (str): The name in configs.
    begin (str): The prefix of the first token of an entity.
    inside (str): The prefix of a token in the middle.
    last (str): The prefix of the last token.
    unit (str): The prefix of the only token.
    within (frozenset[tuple[str, str]]): The prefixes that may follow each other inside an entity,
        (from, to). A prefix that may end an entity can also be followed by a new entity or O.
    """

    name: str
    begin: str
    inside: str
    last: str
    unit: str
    within: frozenset[tuple[str, str]]

    @property
    def prefixes(self) -> tuple[str, str, str, str]:
        """The prefixes of the four positions in an entity. Two positions may share a prefix."""
        return (self.begin, self.inside, self.last, self.unit)

    @property
    def closing(self) -> frozenset[str]:
        """The prefixes that may end an entity."""
        return frozenset([self.last, self.unit])


SCHEMES: dict[str, Scheme] = {
    "BILUO": Scheme(
        "BILUO",
        begin="B",
        inside="I",
        last="L",
        unit="U",
        within=frozenset([("B", "I"), ("B", "L"), ("I", "I"), ("I", "L")]),
    ),
    "IOB2": Scheme(
        "IOB2",
        begin="B",
        inside="I",
        last="I",
        unit="B",
        within=frozenset([("B", "I"), ("I", "I")]),
    ),
}


class Entities(NamedTuple):
    """The entities of a batch, in order and without overlap.

    begin (Ints1d): The first token of each entity, counted over the batch. Shape: (E,)
    end (Ints1d): The token after the last one of each entity. Shape: (E,)
    label (Ints1d): The label of each entity, as an index. Shape: (E,)
    """

    begin: Ints1d
    end: Ints1d
    label: Ints1d

    def select(self, which: Array1d) -> "Entities":
        """Select some of the entities. `which` is a mask, (E,), or indices in the new order."""
        return Entities(self.begin[which], self.end[which], self.label[which])

    def as_tuples(self) -> list[tuple[int, int, int]]:
        """Begin, end and label of each entity, as Python integers."""
        return list(zip(self.begin.tolist(), self.end.tolist(), self.label.tolist()))

    def is_in(self, others: "Entities") -> Array1d:
        """True for the entities that are among other ones: the same tokens with the same label.
        Shape: (E,)"""
        other_tuples = set(others.as_tuples())
        is_among_others = [entity in other_tuples for entity in self.as_tuples()]
        return numpy.asarray(is_among_others, dtype=bool)

    def trim(self, is_space: Array1d) -> "Entities":
        """Remove whitespace from both ends of entities, and drop entities that are only whitespace.

        is_space (Array1d): True for whitespace tokens. Shape: (N,)
        RETURNS (Entities): The remaining entities.
        """
        if not is_space.any():
            return self
        # The indices of tokens that are words, ascending. The index after the last token is added,
        # as `searchsorted` needs a value for whitespace at the end of the batch.
        words = numpy.append(numpy.flatnonzero(~is_space), len(is_space))
        # The first word at `begin` or after it, and the last word before `end`. Shapes: (E,)
        first_word = words[numpy.searchsorted(words, self.begin)]
        last_word = words[numpy.searchsorted(words, self.end) - 1]
        has_words = first_word < self.end
        return Entities(first_word, last_word + 1, self.label).select(has_words)


class Tags:
    """All tags of a scheme over some labels.

    Tag 0 is O. The tags of the first label come next, then the tags of the second label, and so on.
    Each label has one tag with each prefix of the scheme and, if O is split, the O before an entity
    of the label. So a label that is added at the end doesn't change the numbers of other tags.

    prefix_of (tuple[str, ...]): The prefix of each tag; "O" for tags outside of entities. Length: K
    label_of (Ints1d): The label of each tag, as an index; -1 outside of entities. Shape: (K,)
    next_label_of (Ints1d): For each tag the label of the entity that has to follow it; -1 if
        anything may follow. Shape: (K,)
    """

    def __init__(self, labels: Iterable[str], scheme: str = "BILUO", outside: str = SINGLE) -> None:
        """Make the tags.

        labels (Iterable[str]): The labels, without repetition.
        scheme (str): The scheme, "BILUO" or "IOB2".
        outside (str): Whether O is split: "single", or "before".
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
        # The prefixes of the tags of each label. In IOB2, two positions in an entity share one.
        prefixes = list(dict.fromkeys(self.scheme.prefixes))
        if outside == BEFORE:
            prefixes.append(OUTSIDE)
        self._prefixes_of_label = tuple(prefixes)

        self.prefix_of: tuple[str, ...] = (OUTSIDE, *(self._prefixes_of_label * len(self.labels)))
        label_ids = numpy.repeat(numpy.arange(len(self.labels)), len(prefixes))
        # The label in the name of each tag; -1 for O. For O-city it is city, although the tag is
        # outside of entities. Shape: (K,)
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
        """Make the names of the tags from their prefixes, of this scheme or another one.
        Length: K"""
        names = [OUTSIDE]  # tag 0 has no label
        for prefix, label in zip(prefixes[1:], self._label_in_name[1:]):
            names.append(f"{prefix}-{self.labels[label]}")
        return tuple(names)

    @property
    def is_split(self) -> bool:
        """Whether O before an entity has special tags."""
        return self.outside == BEFORE

    @cached_property
    def collapsed(self) -> "Tags":
        """The tag set with a single O, for annotation and costs. If O is not split, it is this tag
        set itself."""
        if not self.is_split:
            return self
        return Tags(self.labels, self.scheme.name)

    @property
    def finest(self) -> "Tags":
        """The tag set of the same labels that makes the most distinctions: BILUO, with O split. The
        tag of a token in any other tag set of these labels follows from its tag here."""
        return Tags(self.labels, "BILUO", BEFORE)

    def counts_as(self, other: "Tags") -> Ints1d:
        """Find the tag in another tag set that corresponds to each tag of this one. For example,
        L-PER in BILUO is I-PER in IOB2. This tag set has to be one that `finest` returns. For other
        sets the tag can be ambiguous: I-PER in IOB2 may be I-PER or L-PER in BILUO.

        other (Tags): The other tag set. It has the same labels, and any scheme.
        RETURNS (Ints1d): For each tag of this set, the tag of the other set. Shape: (K,)
        """
        # Both schemes have their four prefixes in the same order: for the first, an inner, the last
        # and the only token of an entity. IOB2 has the same prefix for several of these.
        prefix_in_other = dict(zip(self.scheme.prefixes, other.scheme.prefixes))
        prefix_in_other[OUTSIDE] = OUTSIDE
        # The name of each tag of this set in the other set.
        names_in_other = self._make_names([prefix_in_other[prefix] for prefix in self.prefix_of])
        other_tag_of_name = {name: tag for tag, name in enumerate(other.names)}
        # If the other set doesn't split O, O-city is O there, tag 0.
        other_tags = [other_tag_of_name.get(name, 0) for name in names_in_other]
        return numpy.asarray(other_tags, dtype="int32")

    @cached_property
    def collapsed_of(self) -> Ints1d:
        """The tag of `collapsed` for each tag. All tags of O become its single O. Shape: (K,)"""
        is_outside = self.label_of < 0
        # O is tag 0 of `collapsed`. The entity tags follow in the same order as here, so they are
        # numbered from 1.
        entity_tag_number = numpy.cumsum(~is_outside)
        return numpy.where(is_outside, 0, entity_tag_number).astype("int32")

    def collapse(self, table: Array2d) -> Array2d:
        """Convert a table with a column for each tag to a table with a column for each tag of
        `collapsed`. The columns of all tags of O are added up or, if they are booleans, joined by
        "or". Shape: (N, K) to (N, tags of `collapsed`)"""
        if not self.is_split:
            return table
        # Whether a tag becomes a tag of `collapsed`. Shape: (K, tags of `collapsed`)
        counts_as = self.collapsed_of[:, None] == numpy.arange(len(self.collapsed))
        return table @ counts_as.astype(table.dtype)

    def index(self, prefix: str, label: Ints1d) -> Ints1d:
        """Find the tags that have a prefix and a label. `label` is the index of a label, or an
        array of indices."""
        # Tag 0 is O. It is followed by all tags of the first label, then of the second, and so on.
        position = self._prefixes_of_label.index(prefix)
        return 1 + label * len(self._prefixes_of_label) + position

    def having(self, prefixes: Iterable[str]) -> Array1d:
        """True for the tags that have one of these prefixes. Shape: (K,)"""
        return numpy.isin(self.prefix_of, list(prefixes))

    @cached_property
    def opening(self) -> Array1d:
        """True for the tags that begin an entity. Shape: (K,)"""
        return self.having([self.scheme.begin, self.scheme.unit])

    @cached_property
    def continuing(self) -> Array1d:
        """True for the tags that continue the entity of the token before. Shape: (K,)"""
        return self.having(next_prefix for _prefix, next_prefix in self.scheme.within)

    @cached_property
    def at_border(self) -> Array1d:
        """True for the tags that only the first or the last token of an entity has. Shape: (K,)"""
        scheme = self.scheme
        return self.having({scheme.begin, scheme.last, scheme.unit} - {scheme.inside})

    @cached_property
    def constraints(self) -> Constraints:
        """The transitions, starts and ends that the scheme allows."""
        may_start = (self.label_of < 0) | self.opening
        # A path doesn't end with O-l: an entity has to follow.
        may_end = self.having([OUTSIDE, *self.scheme.closing]) & (self.next_label_of < 0)
        # A tag that may end a path can be followed by any tag that may start one. Other transitions
        # are within an entity.
        transitions = (may_end[:, None] & may_start) | self.within
        if self.is_split:
            # O, which is tag 0, is only followed by tags outside of entities. O-l is only followed
            # by the first tag of an entity of label l.
            is_announced = self.next_label_of[:, None] == self.label_of
            transitions[0] &= ~self.opening
            transitions |= self.opening & is_announced
        return Constraints(transitions=transitions, start=may_start, end=may_end)

    @cached_property
    def within(self) -> Array2d:
        """True for the transitions inside an entity, [from, to]. Both tags have the same label, and
        prefixes that may follow each other. Shape: (K, K)"""
        has_same_label = (self.label_of[:, None] == self.label_of) & (self.label_of >= 0)
        has_prefixes = numpy.zeros((len(self), len(self)), dtype=bool)
        for prefix, next_prefix in self.scheme.within:
            has_prefixes |= self.having([prefix])[:, None] & self.having([next_prefix])
        return has_same_label & has_prefixes

    @cached_property
    def entity_tags(self) -> EntityTags:
        """The arrays from which the native code finds the entities of paths."""
        closing = self.having(self.scheme.closing)
        return EntityTags(self.label_of, self.opening, closing, self.within)

    @cached_property
    def opens_label(self) -> Floats2d:
        """For each tag and label, 1 if the tag begins an entity of the label, else 0. Multiply the
        probabilities of tags by it, (N, K) @ (K, labels), to get the probabilities that a token
        begins an entity of each label. Shape: (K, labels)"""
        return self.opening[:, None] * self.has_label[:, 1:]

    @cached_property
    def has_label(self) -> Floats2d:
        """For each tag, 1 in the column of its label, else 0. The first column is for O. Multiply
        the probabilities of tags by it, (N, K) @ (K, labels + 1), to get the probabilities of O and
        of the labels. Shape: (K, labels + 1)"""
        columns = numpy.arange(-1, len(self.labels))
        return (self.label_of[:, None] == columns).astype("float32")

    def encode(self, entities: Entities, n_tokens: int) -> Ints1d:
        """Convert entities to tags. Tokens outside of entities have tag 0, even if O is split: see
        `split_outside`.

        entities (Entities): The entities of the batch.
        n_tokens (int): The number of tokens, N.
        RETURNS (Ints1d): The tag of each token. Shape: (N,)
        """
        begin, end, label = entities
        scheme = self.scheme
        tags = numpy.zeros(n_tokens, dtype="int32")
        # 1 at the first token of each entity, minus 1 at the token after its last. The cumulative
        # sum is 1 at tokens in an entity, else 0. Shape: (N + 1,)
        steps = numpy.zeros(n_tokens + 1, dtype="int8")
        steps[begin] = 1
        steps[end] -= 1
        in_entity = steps[:-1].cumsum(dtype="int8") == 1

        # First, all tokens of entities get the prefix of an inner token. Then the first, the last
        # and the only tokens get their own prefixes.
        tags[in_entity] = self.index(scheme.inside, numpy.repeat(label, end - begin))
        tags[begin] = self.index(scheme.begin, label)
        tags[end - 1] = self.index(scheme.last, label)
        is_unit = end - begin == 1
        tags[begin[is_unit]] = self.index(scheme.unit, label[is_unit])
        return tags

    def gold_path(self, entities: Entities, is_annotated: Array1d) -> Ints1d:
        """Convert annotation to the gold tag of each token. Tokens outside of entities have tag 0,
        even if O is split: see `split_outside`.

        entities (Entities): The annotated entities. An entity with the label -1, which isn't in the
            tag set, counts as O.
        is_annotated (Array1d): False for tokens whose annotation is missing. Shape: (N,)
        RETURNS (Ints1d): The tags; -1 where annotation is missing. Shape: (N,)
        """
        has_label = entities.label >= 0
        path = self.encode(entities.select(has_label), len(is_annotated))
        return numpy.where(is_annotated, path, -1)

    def follows_entity(self, path: Ints1d, lengths: Ints1d) -> Array1d:
        """True for the tokens directly after a token of the same sequence that is known to be in an
        entity. `path` has the tag of each token; -1 if it is unknown. Shapes: (N,), (B,) to (N,)"""
        is_in_entity = (path >= 0) & (self.label_of[path] >= 0)
        follows = numpy.zeros(len(path), dtype=bool)
        follows[1:] = is_in_entity[:-1]
        return follows & has_token_before(lengths)

    def agreeing(self, path: Ints1d, lengths: Ints1d) -> Array2d:
        """Find the tags that agree with annotation. If the annotation of a token is missing, all
        tags agree. But a token directly after an annotated entity can't continue the entity.

        path (Ints1d): The annotated tag of each token; -1 if it is missing. Shape: (N,)
        lengths (Ints1d): The number of tokens of each sequence. Shape: (B,)
        RETURNS (Array2d): True for the tags that agree. Shape: (N, K)
        """
        is_missing = path < 0
        # A tag agrees if it is the same as the annotated tag in `collapsed`. Several tags may
        # agree, as O may be split. Where annotation is missing, the index -1 finds a wrong tag, but
        # there all tags agree anyway. Shape: (N, K)
        agrees = self.collapsed_of[path][:, None] == self.collapsed_of
        agreeing = is_missing[:, None] | agrees
        is_after_entity = is_missing & self.follows_entity(path, lengths)
        agreeing[is_after_entity] &= ~self.continuing
        return agreeing

    def split_outside(self, path: Ints1d, lengths: Ints1d) -> Ints1d:
        """If O is split, give each token directly before an entity the O of that entity's label.

        path (Ints1d): The tag of each token; -1 if it is unknown. Shape: (N,)
        lengths (Ints1d): The number of tokens of each sequence. Shape: (B,)
        RETURNS (Ints1d): The path with these tags. Shape: (N,)
        """
        if not self.is_split or not len(path):
            return path
        begins_entity = (path >= 0) & self.opening[path] & has_token_before(lengths)
        is_single_outside = path == 0
        # The tokens with the tag O before a token that begins an entity.
        before_entity = numpy.flatnonzero(begins_entity[1:] & is_single_outside[:-1])
        next_label = self.label_of[path[before_entity + 1]]
        split_path = path.copy()
        split_path[before_entity] = self.index(OUTSIDE, next_label)
        return split_path

    def decode(self, tags: Ints1d, lengths: Ints1d) -> Entities:
        """Convert the tags of tokens to entities.

        tags (Ints1d): The tag of each token. All transitions have to be allowed by the scheme.
            Shape: (N,)
        lengths (Ints1d): The number of tokens of each sequence. Shape: (B,)
        RETURNS (Entities): The entities of the batch.
        """
        begin, end = runs(self.opening[tags], self.continuing[tags], lengths)
        return Entities(begin, end, self.label_of[tags[begin]])


def has_token_before(lengths: Ints1d) -> Array1d:
    """True for the tokens that are not the first of their sequence. Shapes: (B,) to (N,)"""
    # The array has one more entry, as an empty sequence at the end of the batch begins after the
    # last token.
    has_one_before = numpy.ones(int(lengths.sum()) + 1, dtype=bool)
    begins = lengths.cumsum() - lengths
    has_one_before[begins] = False
    return has_one_before[:-1]


def runs(opening: Array1d, continuing: Array1d, lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Find runs of tokens, such as entities. A run consists of an opening token and the continuing
    tokens that follow it in the same sequence.

    opening (Array1d): True for the tokens that begin a run. Shape: (N,)
    continuing (Array1d): True for the tokens that continue the run of the token before.
        Shape: (N,)
    lengths (Ints1d): The number of tokens of each sequence. Shape: (B,)
    RETURNS (tuple[Ints1d, Ints1d]): The first token of each of R runs, and the token after its last
        one. Shapes: (R,)
    """
    # Methods of arrays are faster than NumPy's functions, and this function takes a large part of
    # the time of a short text.
    begin = opening.nonzero()[0]
    if not len(begin):
        return begin, begin
    # A run ends before the next token that doesn't continue it, or that begins a sequence. One more
    # entry, which is True, is for the end of the batch. Shape: (N + 1,)
    ends_run = numpy.ones(len(continuing) + 1, dtype=bool)
    numpy.logical_not(continuing, out=ends_run[:-1])
    ends_run[lengths.cumsum()] = True
    possible_ends = ends_run.nonzero()[0]
    # The end of a run is the first possible end after its beginning.
    return begin, possible_ends[possible_ends.searchsorted(begin, side="right")]
