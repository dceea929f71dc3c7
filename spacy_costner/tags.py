"""Tagging schemes and tag sets, and conversion between entities and tags.

A *scheme*, e.g. BILUO, defines how tags encode entities. A *tag* is O or a prefix of the scheme
followed by a label, e.g. B-city. A tag set stores the prefix and the label of each tag separately
and never parses tag names, so labels may contain hyphens. A *path* assigns a tag to each token.

With `outside = "before"`, O is split: a token directly before an entity gets a special tag for the
entity's label, e.g. O-city. The next token determines the correct tag for a token outside of
entities, so there is still exactly one path for a sequence of entities. Only the chain uses these
tags. Annotations and costs use `Tags.collapsed`, the tag set with a single O.

In shapes, K is the number of tags, B the number of sequences in a batch, N the total number of
tokens and E the number of entities.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Array2d, Floats2d, Ints1d

from .caching import cached_property
from .types import Constraints, EntityTags

OUTSIDE = "O"
"""The tag of tokens outside of entities. If O is split, this is the prefix of its variants."""

SINGLE = "single"
"""The value of `outside` that assigns the tag O to all tokens outside of entities."""

BEFORE = "before"
"""The value of `outside` that splits O: a token directly before an entity of label l gets O-l."""


class Scheme(NamedTuple):
    """A tagging scheme, which defines how tags encode entities.

    name (str): The name used in configs.
    begin (str): The prefix of the first token of an entity.
    inside (str): The prefix of an inner token.
    last (str): The prefix of the last token.
    unit (str): The prefix of a single-token entity.
    within (frozenset[tuple[str, str]]): The pairs of consecutive prefixes allowed within an entity,
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
        """The prefixes for the four positions in an entity. Two positions may share a prefix."""
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
    """The entities of a batch, in order and without overlaps.

    begin (Ints1d): The index of each entity's first token in the batch. Shape: (E,)
    end (Ints1d): The index after each entity's last token. Shape: (E,)
    label (Ints1d): The label index of each entity. Shape: (E,)
    """

    begin: Ints1d
    end: Ints1d
    label: Ints1d

    def select(self, which: Array1d) -> "Entities":
        """Select some of the entities, using a mask, (E,), or indices in the desired order."""
        return Entities(self.begin[which], self.end[which], self.label[which])

    def as_tuples(self) -> list[tuple[int, int, int]]:
        """Return the start, end and label of each entity as Python integers."""
        return list(zip(self.begin.tolist(), self.end.tolist(), self.label.tolist()))

    def is_in(self, others: "Entities") -> Array1d:
        """Check for each entity whether `others` contains an entity with the same tokens and the
        same label. Shape: (E,)"""
        other_tuples = set(others.as_tuples())
        is_among_others = [entity in other_tuples for entity in self.as_tuples()]
        return numpy.asarray(is_among_others, dtype=bool)

    def contain(self, is_marked: Array1d) -> Array1d:
        """Check which entities contain a marked token. Shapes: (N,) to (E,)"""
        # The number of marked tokens before each token, followed by their total number. An entity
        # contains none if this number is the same at its start and at its end. Shape: (N + 1,)
        n_marked_before = numpy.append(0, is_marked.cumsum())
        return n_marked_before[self.end] != n_marked_before[self.begin]

    def trim(self, is_space: Array1d) -> "Entities":
        """Strip whitespace tokens from both ends of entities and drop whitespace-only entities.

        is_space (Array1d): True for whitespace tokens. Shape: (N,)
        RETURNS (Entities): The remaining entities.
        """
        if not is_space.any():
            return self
        # The indices of non-whitespace tokens in ascending order. The index after the last token is
        # appended as a sentinel for entities that end with the whitespace at the end of the batch.
        words = numpy.append(numpy.flatnonzero(~is_space), len(is_space))
        # The first word at or after `begin`, and the last word before `end`. Shapes: (E,)
        first_word = words[numpy.searchsorted(words, self.begin)]
        last_word = words[numpy.searchsorted(words, self.end) - 1]
        has_words = first_word < self.end
        return Entities(first_word, last_word + 1, self.label).select(has_words)


NO_ENTITIES = Entities(*numpy.zeros((3, 0), dtype="int64"))


def concatenate_entities(first: Entities, second: Entities) -> Entities:
    """Concatenate two sets of entities. The result isn't sorted, and may contain overlaps."""
    # The starts, ends and labels of both
    columns = [numpy.concatenate(pair) for pair in zip(first, second)]
    return Entities(*columns)


class Tags:
    """The tags of a scheme for a set of labels.

    Tag 0 is O. It is followed by the tags of the first label, then the tags of the second label,
    and so on. Each label has one tag per prefix of the scheme and, if O is split, a tag for the O
    before its entities. Adding a label at the end doesn't change the indices of existing tags.

    prefix_of (tuple[str, ...]): The prefix of each tag, "O" for tags outside of entities. Length: K
    label_of (Ints1d): The label index of each tag, or -1 outside of entities. Shape: (K,)
    next_label_of (Ints1d): The label index of the entity that has to follow each tag, or -1 if
        anything may follow. Shape: (K,)
    """

    def __init__(self, labels: Iterable[str], scheme: str = "BILUO", outside: str = SINGLE) -> None:
        """Create the tag set.

        labels (Iterable[str]): The unique labels.
        scheme (str): The scheme, "BILUO" or "IOB2".
        outside (str): Whether to split O: "single" or "before".
        RAISES (ValueError): If `scheme` or `outside` is unknown.
        """
        if outside not in (SINGLE, BEFORE):
            raise ValueError(f"outside: expected {SINGLE!r} or {BEFORE!r}, got {outside!r}")
        if scheme not in SCHEMES:
            expected = " or ".join(map(repr, SCHEMES))
            raise ValueError(f"scheme: expected {expected}, got {scheme!r}")

        self.scheme = SCHEMES[scheme]
        self.labels = tuple(labels)
        self.outside = outside
        # The tag prefixes of each label. In IOB2, two positions in an entity use the same prefix.
        prefixes = list(dict.fromkeys(self.scheme.prefixes))
        if outside == BEFORE:
            prefixes.append(OUTSIDE)
        self._prefixes_of_label = tuple(prefixes)

        self.prefix_of: tuple[str, ...] = (OUTSIDE, *(self._prefixes_of_label * len(self.labels)))
        label_ids = numpy.repeat(numpy.arange(len(self.labels)), len(prefixes))
        # The label in the name of each tag, -1 for O. For O-city it is city, although the tag is
        # outside of entities. Shape: (K,)
        self._label_in_name: Ints1d = numpy.append(-1, label_ids).astype("int32")
        is_outside = self.having([OUTSIDE])
        self.label_of: Ints1d = numpy.where(is_outside, numpy.int32(-1), self._label_in_name)
        self.next_label_of: Ints1d = numpy.where(is_outside, self._label_in_name, numpy.int32(-1))

    def __len__(self) -> int:
        return len(self.prefix_of)

    @property
    def names(self) -> tuple[str, ...]:
        """The tag names, e.g. O, B-PER, I-PER, and O-PER for O before a PER entity."""
        return self._make_names(self.prefix_of)

    def _make_names(self, prefixes: Sequence[str]) -> tuple[str, ...]:
        """Create the tag names from prefixes, which may be from this or another scheme.
        Length: K"""
        names = [OUTSIDE]  # tag 0 has no label
        for prefix, label in zip(prefixes[1:], self._label_in_name[1:]):
            names.append(f"{prefix}-{self.labels[label]}")
        return tuple(names)

    @property
    def is_split(self) -> bool:
        """Whether there are special tags for O before an entity."""
        return self.outside == BEFORE

    @cached_property
    def collapsed(self) -> "Tags":
        """The tag set with a single O, used for annotations and costs: this tag set itself if O
        is not split."""
        if not self.is_split:
            return self
        return Tags(self.labels, self.scheme.name)

    @property
    def finest(self) -> "Tags":
        """The most fine-grained tag set for the same labels: BILUO with O split. Its tags determine
        the tags in any other tag set for these labels."""
        return Tags(self.labels, "BILUO", BEFORE)

    def counts_as(self, other: "Tags") -> Ints1d:
        """Map each tag to the corresponding tag in another tag set, e.g. L-PER in BILUO to I-PER in
        IOB2. Only supported for tag sets returned by `finest`. For other tag sets, the mapping can
        be ambiguous: I-PER in IOB2 may be I-PER or L-PER in BILUO.

        other (Tags): The other tag set, with the same labels and any scheme.
        RETURNS (Ints1d): For each tag, the corresponding tag in the other tag set. Shape: (K,)
        """
        # Both schemes list their four prefixes in the same order: first, inner, last and only token
        # of an entity. IOB2 uses the same prefix for several positions.
        prefix_in_other = dict(zip(self.scheme.prefixes, other.scheme.prefixes))
        prefix_in_other[OUTSIDE] = OUTSIDE
        # For each tag, the name of the corresponding tag in the other tag set.
        names_in_other = self._make_names([prefix_in_other[prefix] for prefix in self.prefix_of])
        other_tag_of_name = {name: tag for tag, name in enumerate(other.names)}
        # If the other tag set doesn't split O, O-city maps to O, which is tag 0.
        other_tags = [other_tag_of_name.get(name, 0) for name in names_in_other]
        return numpy.asarray(other_tags, dtype="int32")

    @cached_property
    def collapsed_of(self) -> Ints1d:
        """For each tag, the corresponding tag in `collapsed`. All O tags map to the single O.
        Shape: (K,)"""
        is_outside = self.label_of < 0
        # O is tag 0 of `collapsed`. The entity tags follow in the same order as in this tag set, so
        # they are numbered from 1.
        entity_tag_number = numpy.cumsum(~is_outside)
        return numpy.where(is_outside, 0, entity_tag_number).astype("int32")

    def collapse(self, table: Array2d) -> Array2d:
        """Convert a table with one column per tag to a table with one column per tag of
        `collapsed`. The columns of all variants of O are summed, or combined by logical OR for
        booleans. Shape: (N, K) to (N, tags of `collapsed`)"""
        if not self.is_split:
            return table
        # Whether a tag maps to a tag of `collapsed`. Shape: (K, tags of `collapsed`)
        counts_as = self.collapsed_of[:, None] == numpy.arange(len(self.collapsed))
        return table @ counts_as.astype(table.dtype)

    def index(self, prefix: str, label: Ints1d) -> Ints1d:
        """Return the tags with the given prefix and label. `label` is a label index or an array of
        label indices."""
        # Tag 0 is O, followed by all tags of the first label, then the second label, and so on.
        position = self._prefixes_of_label.index(prefix)
        return 1 + label * len(self._prefixes_of_label) + position

    def having(self, prefixes: Iterable[str]) -> Array1d:
        """Return a mask of the tags with one of the given prefixes. Shape: (K,)"""
        return numpy.isin(self.prefix_of, list(prefixes))

    @cached_property
    def opening(self) -> Array1d:
        """True for the tags that begin an entity. Shape: (K,)"""
        return self.having([self.scheme.begin, self.scheme.unit])

    @cached_property
    def continuing(self) -> Array1d:
        """True for the tags that continue the entity of the previous token. Shape: (K,)"""
        return self.having(next_prefix for _prefix, next_prefix in self.scheme.within)

    @cached_property
    def at_border(self) -> Array1d:
        """True for the tags used only for the first or last token of an entity. Shape: (K,)"""
        scheme = self.scheme
        return self.having({scheme.begin, scheme.last, scheme.unit} - {scheme.inside})

    @cached_property
    def constraints(self) -> Constraints:
        """The transitions, starts and ends that the scheme allows."""
        may_start = (self.label_of < 0) | self.opening
        # A path can't end with O-l, because an entity has to follow.
        may_end = self.having([OUTSIDE, *self.scheme.closing]) & (self.next_label_of < 0)
        # A tag that may end a path can be followed by any tag that may start a path. All other
        # transitions are within an entity.
        transitions = (may_end[:, None] & may_start) | self.within
        if self.is_split:
            # O (tag 0) can only be followed by tags outside of entities, and O-l only by the first
            # tag of an entity with label l.
            is_announced = self.next_label_of[:, None] == self.label_of
            transitions[0] &= ~self.opening
            transitions |= self.opening & is_announced
        return Constraints(transitions=transitions, start=may_start, end=may_end)

    @cached_property
    def within(self) -> Array2d:
        """True for the transitions within an entity, [from, to]. The two tags have the same label
        and prefixes that may follow each other. Shape: (K, K)"""
        has_same_label = (self.label_of[:, None] == self.label_of) & (self.label_of >= 0)
        has_prefixes = numpy.zeros((len(self), len(self)), dtype=bool)
        for prefix, next_prefix in self.scheme.within:
            has_prefixes |= self.having([prefix])[:, None] & self.having([next_prefix])
        return has_same_label & has_prefixes

    @cached_property
    def entity_tags(self) -> EntityTags:
        """The arrays used by the native code to extract entities from paths."""
        closing = self.having(self.scheme.closing)
        return EntityTags(self.label_of, self.opening, closing, self.within)

    @cached_property
    def opens_label(self) -> Floats2d:
        """1 if the tag begins an entity with the label, otherwise 0. Multiply tag probabilities by
        it, (N, K) @ (K, labels), to get the probability that a token begins an entity with each
        label. Shape: (K, labels)"""
        return self.opening[:, None] * self.has_label[:, 1:]

    @cached_property
    def has_label(self) -> Floats2d:
        """1 in the column of the tag's label, otherwise 0. The first column is for O. Multiply tag
        probabilities by it, (N, K) @ (K, labels + 1), to get the probabilities of O and the labels.
        Shape: (K, labels + 1)"""
        columns = numpy.arange(-1, len(self.labels))
        return (self.label_of[:, None] == columns).astype("float32")

    def encode(self, entities: Entities, n_tokens: int) -> Ints1d:
        """Convert entities to tags. Tokens outside of entities get tag 0, even if O is split. See
        `split_outside`.

        entities (Entities): The entities of the batch.
        n_tokens (int): The number of tokens, N.
        RETURNS (Ints1d): The tag of each token. Shape: (N,)
        """
        begin, end, label = entities
        scheme = self.scheme
        tags = numpy.zeros(n_tokens, dtype="int32")
        # 1 at the first token of each entity, -1 at the token after the last one. The cumulative
        # sum is 1 for tokens in an entity and 0 for all other tokens. Shape: (N + 1,)
        steps = numpy.zeros(n_tokens + 1, dtype="int8")
        steps[begin] = 1
        steps[end] -= 1
        in_entity = steps[:-1].cumsum(dtype="int8") == 1

        # Assign the prefix of inner tokens to all entity tokens first. Then overwrite the first,
        # last and only tokens.
        tags[in_entity] = self.index(scheme.inside, numpy.repeat(label, end - begin))
        tags[begin] = self.index(scheme.begin, label)
        tags[end - 1] = self.index(scheme.last, label)
        is_unit = end - begin == 1
        tags[begin[is_unit]] = self.index(scheme.unit, label[is_unit])
        return tags

    def gold_path(self, entities: Entities, is_annotated: Array1d) -> Ints1d:
        """Convert annotation to the gold tag of each token. Tokens outside of entities get tag 0,
        even if O is split. See `split_outside`.

        entities (Entities): The annotated entities. An entity whose label isn't in the tag set has
            the label -1 and is treated as O.
        is_annotated (Array1d): False for tokens with missing annotation. Shape: (N,)
        RETURNS (Ints1d): The gold tags, or -1 for missing annotation. Shape: (N,)
        """
        has_label = entities.label >= 0
        path = self.encode(entities.select(has_label), len(is_annotated))
        return numpy.where(is_annotated, path, -1)

    def follows_entity(self, path: Ints1d, lengths: Ints1d) -> Array1d:
        """Return a mask of the tokens directly after a token of the same sequence that is known to
        be in an entity. `path` contains the tag of each token, or -1 if unknown.
        Shapes: (N,), (B,) to (N,)"""
        is_in_entity = (path >= 0) & (self.label_of[path] >= 0)
        follows = numpy.zeros(len(path), dtype=bool)
        follows[1:] = is_in_entity[:-1]
        return follows & has_token_before(lengths)

    def agreeing(self, path: Ints1d, lengths: Ints1d) -> Array2d:
        """Return the tags that are consistent with the annotation. If the annotation of a token is
        missing, all tags are consistent, except that a token directly after an annotated entity
        can't continue the entity.

        path (Ints1d): The annotated tag of each token, or -1 if missing. Shape: (N,)
        lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
        RETURNS (Array2d): True for the tags that are consistent. Shape: (N, K)
        """
        is_missing = path < 0
        # A tag agrees if it collapses to the annotated tag. Several tags can agree, because O may
        # be split. For missing annotation, the index -1 selects an arbitrary
        # tag, but all tags agree in this case anyway. Shape: (N, K)
        agrees = self.collapsed_of[path][:, None] == self.collapsed_of
        agreeing = is_missing[:, None] | agrees
        is_after_entity = is_missing & self.follows_entity(path, lengths)
        agreeing[is_after_entity] &= ~self.continuing
        return agreeing

    def split_outside(self, path: Ints1d, lengths: Ints1d) -> Ints1d:
        """Replace O directly before an entity with the O for the entity's label, if O is split.

        path (Ints1d): The tag of each token, or -1 if unknown. Shape: (N,)
        lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
        RETURNS (Ints1d): The updated path. Shape: (N,)
        """
        if not self.is_split or not len(path):
            return path
        begins_entity = (path >= 0) & self.opening[path] & has_token_before(lengths)
        is_single_outside = path == 0
        # The tokens tagged O directly before a token that begins an entity.
        before_entity = numpy.flatnonzero(begins_entity[1:] & is_single_outside[:-1])
        next_label = self.label_of[path[before_entity + 1]]
        split_path = path.copy()
        split_path[before_entity] = self.index(OUTSIDE, next_label)
        return split_path

    def decode(self, tags: Ints1d, lengths: Ints1d) -> Entities:
        """Convert tags to entities.

        tags (Ints1d): The tag of each token. All transitions must be allowed by the scheme.
            Shape: (N,)
        lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
        RETURNS (Entities): The entities of the batch.
        """
        begin, end = runs(self.opening[tags], self.continuing[tags], lengths)
        return Entities(begin, end, self.label_of[tags[begin]])


def has_token_before(lengths: Ints1d) -> Array1d:
    """Return a mask of the tokens that are not the first of their sequence. Shapes: (B,) to (N,)"""
    # One extra element, because an empty sequence at the end of the batch begins after the last
    # token.
    has_one_before = numpy.ones(int(lengths.sum()) + 1, dtype=bool)
    begins = lengths.cumsum() - lengths
    has_one_before[begins] = False
    return has_one_before[:-1]


def runs(opening: Array1d, continuing: Array1d, lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Find runs of tokens, e.g. entities. A run consists of an opening token and the continuing
    tokens directly after it in the same sequence.

    opening (Array1d): True for the tokens that begin a run. Shape: (N,)
    continuing (Array1d): True for the tokens that continue the run of the previous token.
        Shape: (N,)
    lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
    RETURNS (tuple[Ints1d, Ints1d]): For each of the R runs, the index of the first token and the
        index after the last token. Shapes: (R,)
    """
    # Array methods are faster than NumPy functions, and this function accounts for much of the
    # runtime on short texts.
    begin = opening.nonzero()[0]
    if not len(begin):
        return begin, begin
    # A run ends before the next token that doesn't continue it or that begins a sequence. The extra
    # element, which is always True, marks the end of the batch. Shape: (N + 1,)
    ends_run = numpy.ones(len(continuing) + 1, dtype=bool)
    numpy.logical_not(continuing, out=ends_run[:-1])
    ends_run[lengths.cumsum()] = True
    possible_ends = ends_run.nonzero()[0]
    # A run ends at the first possible end after its beginning.
    return begin, possible_ends[possible_ends.searchsorted(begin, side="right")]
