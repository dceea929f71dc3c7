"""Decode tags of any scheme into entities.

An entity tag consists of a prefix and a label, such as B-PER. A prefix *opens* an entity if it
marks the first token (B, U, S), and *closes* it if it marks the last token (L, E, U, S). The prefix
may also follow the label (PER-B). In IO without prefixes, the tag is the label.

`find_scheme` infers the scheme from all tags of a corpus. A label may look like a prefix and a
label (E-MAIL), so letters such as E and S are only read as prefixes if other tags in the corpus
confirm this. If tags match no scheme, or the scheme is ambiguous, an error is raised.

`decode_tags` decodes the entities. An entity begins at a token whose tag opens one, where the label
changes, and after a tag that closes one. These are the rules of conlleval (Tjong Kim Sang & De
Meulder, 2003), which are correct for every scheme. Tags that are invalid in the scheme are called
*irregular*. They are decoded by the same rules and reported.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Ints1d

from ..annotation.iob import BEGIN, INSIDE, MISSING, OUTSIDE
from .files import CorpusError, FilePlace, shown

NOT_ANNOTATED = frozenset(["-", "_"])
"""Tags of tokens that weren't annotated."""

PREFIXES = frozenset("BILUES")
"""Prefixes that can't be labels. M is a prefix in BMES, but may also be a label."""

PREFIXED = re.compile(r"(?P<prefix>[BILUESM])(?P<separator>[-_])(?P<label>.+)")
"""Matches an entity tag whose prefix comes first, such as B-PER."""

SUFFIXED = re.compile(r"(?P<label>.+)(?P<separator>[-_])(?P<prefix>[BILUESM])")
"""Matches an entity tag whose prefix follows the label, such as PER-B."""

LIKE_PREFIXED = re.compile(r"(?P<prefix>[BILUESM])[-_.:/|](?P<label>.+)")
LIKE_SUFFIXED = re.compile(r"(?P<label>.+)[-_.:/|](?P<prefix>[BILUESM])")
"""Match an uppercase tag that looks like a prefix and a label, with any common separator."""

OPENING = frozenset("BUS")
"""The prefixes that open an entity."""

CLOSING = frozenset("LEUS")
"""The prefixes that close an entity."""

IO_WITHOUT_PREFIXES = "IO without prefixes"
"""The name of the scheme in which an entity tag is just the label."""

EXCLUDED_PREFIXES = [("E", "LU"), ("S", "LU"), ("M", "ILU")]
"""Incompatible prefixes: no scheme combines the first one with any of the others."""

PREFIXES_OF_SCHEME = {
    "IO": "I",
    "IOB1": "BI",
    "IOB2": "BI",
    "IOE": "IE",
    "BILUO": "BILU",
    "IOBES": "BIES",
    "BMES": "BMES",
}
"""The prefixes of each scheme, except IO without prefixes."""

SUFFIX = "-suffix"
"""The suffix of scheme names such as "IOB2-suffix", in which prefixes follow the label."""

LABELS = "labels"
"""A short name of `IO_WITHOUT_PREFIXES` for the setting `scheme`."""

OTHER_NAMES = {
    "BIO": "IOB2",
    "BIO2": "IOB2",
    "BIO1": "IOB1",
    "IOE1": "IOE",
    "IOE2": "IOE",
    "BILOU": "BILUO",
    "BIOLU": "BILUO",
    "BIOES": "IOBES",
    "BIOSE": "IOBES",
    "BMESO": "BMES",
    "BMEOS": "BMES",
}
"""Alternative names of schemes that the setting `scheme` also accepts."""

SCHEME_NAMES = f"{', '.join(PREFIXES_OF_SCHEME)}, one of these with {SUFFIX}, or {LABELS}"
"""The values of the setting `scheme`, for error messages."""

HINT = f"the setting `scheme` says how tags are read ({SCHEME_NAMES})"
"""The end of error messages about tags that can't be read."""


class SplitTag(NamedTuple):
    """The prefix and label of an entity tag. In IO without prefixes, the prefix is empty."""

    prefix: str
    label: str


class TagScheme(NamedTuple):
    """The tag scheme of a corpus.

    name (str): The name of the scheme, or "" if there are no entities.
    split_tags (Mapping[str, SplitTag]): The prefix and label of each entity tag.
    """

    name: str
    split_tags: Mapping[str, SplitTag]


class DecodedTags(NamedTuple):
    """The entities of N tokens, decoded from their tags.

    iob (Ints1d): spaCy's ENT_IOB value of each token. Shape: (N,)
    label (Ints1d): The index of each token's label in `labels`, or -1 if it has none. Shape: (N,)
    labels (list[str]): The labels.
    irregular (Ints1d): The indices of tokens whose tags are invalid in the scheme.
    """

    iob: Ints1d
    label: Ints1d
    labels: list[str]
    irregular: Ints1d


class TokenTags(NamedTuple):
    """The parsed tags of N tokens. All arrays have the shape (N,).

    label (Ints1d): The index of each tag's label, or -1 if it has none.
    opens (Array1d): True if the tag's prefix opens an entity.
    closes (Array1d): True if the tag's prefix closes an entity.
    is_missing (Array1d): True if the token wasn't annotated.
    """

    label: Ints1d
    opens: Array1d
    closes: Array1d
    is_missing: Array1d


class TagCounts:
    """The tags of a corpus, with the first occurrence of each tag and the counts of tag pairs.

    places (dict[str, FilePlace]): The location of the first token with each tag.
    pairs (Counter[tuple[str, str]]): The number of times each pair of tags occurs on consecutive
        tokens. At the start of a sentence, the first tag of the pair is "".
    """

    def __init__(self) -> None:
        self.places: dict[str, FilePlace] = {}
        self.pairs: Counter[tuple[str, str]] = Counter()

    def add(
        self, tags: Sequence[str], sent_start: Array1d, place_of: Callable[[int], FilePlace]
    ) -> None:
        """Add the tags of a file to the counts.

        tags (Sequence[str]): The tag of each token. Must not be empty.
        sent_start (Array1d): True for the first token of a sentence. Shape: (N,)
        place_of (Callable[[int], FilePlace]): Returns the location of the token at an index.
        """
        # The K distinct tags, preceded by the empty tag before each sentence.
        tag_set = ["", *dict.fromkeys(tags)]
        id_of_tag = {tag: i for i, tag in enumerate(tag_set)}
        tag_ids = numpy.asarray([id_of_tag[tag] for tag in tags])  # (N,)
        for tag in tag_set[1:]:
            if tag not in self.places:
                self.places[tag] = place_of(int(numpy.argmax(tag_ids == id_of_tag[tag])))

        ids_before = numpy.zeros_like(tag_ids)  # (N,)
        ids_before[1:] = numpy.where(sent_start[1:], 0, tag_ids[:-1])
        # Encode each pair of tags as a single number: row * (K + 1) + column.
        pair_ids, counts = numpy.unique(ids_before * len(tag_set) + tag_ids, return_counts=True)
        for pair_id, count in zip(pair_ids.tolist(), counts.tolist()):
            before, tag_id = divmod(pair_id, len(tag_set))
            self.pairs[tag_set[before], tag_set[tag_id]] += count

    def refuse(self, tag: str, message: str) -> CorpusError:
        """Create an error at the first occurrence of a tag. The caller raises it."""
        return self.places[tag].refuse(message)


def check_scheme(name: str) -> str:
    """Return the canonical name of a scheme. Case is ignored.

    name (str): The name of the scheme, or an alternative name such as "BIO".
    RETURNS (str): The name that readers report, such as "IOB2".
    RAISES (ValueError): If there is no scheme with this name.
    """
    if name.lower() in (LABELS, IO_WITHOUT_PREFIXES.lower()):
        return IO_WITHOUT_PREFIXES
    suffix = SUFFIX if name.lower().endswith(SUFFIX) else ""
    upper_name = name[: len(name) - len(suffix)].upper()
    scheme = OTHER_NAMES.get(upper_name, upper_name)
    if scheme not in PREFIXES_OF_SCHEME:
        raise ValueError(f"scheme: expected one of {SCHEME_NAMES}, got {name!r}")
    return scheme + suffix


def find_scheme(counts: TagCounts, name: str | None = None) -> TagScheme:
    """Find the tag scheme of a corpus.

    counts (TagCounts): All tags of the corpus.
    name (str | None): The canonical name of the scheme: see `check_scheme`. If None, the scheme is
        inferred from the tags.
    RETURNS (TagScheme): The scheme, with the prefix and label of each tag.
    RAISES (CorpusError): If a tag is empty or isn't part of the named scheme, if no scheme contains
        all tags, or if the scheme is ambiguous.
    """
    for tag in counts.places:
        if not tag.strip():
            raise counts.refuse(tag, f"expected a tag, or - if it is missing, got {tag!r}")
    tags = [tag for tag in counts.places if tag != "O" and tag not in NOT_ANNOTATED]
    if name is not None:
        return _split_by_name(counts, tags, name)
    if not tags:
        return TagScheme("", {})

    for tag in tags:
        if tag.rstrip("-_") in PREFIXES:  # such as "B", "B-" and "B_"
            expected = "expected a tag with a label, such as B-PER"
            raise counts.refuse(tag, f"{expected}, got {tag!r}: {HINT}")
    refusals: list[CorpusError] = []
    for pattern, suffix in ((PREFIXED, ""), (SUFFIXED, SUFFIX)):
        split_tags = _split(tags, pattern)
        if len(split_tags) < len(tags) or _are_labels(split_tags, pattern):
            continue
        refusal = _find_contradiction(counts, tags, pattern)
        if refusal is None:
            return TagScheme(_name_scheme(counts, split_tags) + suffix, split_tags)
        refusals.append(refusal)
    if refusals:
        # If the tags could have either prefixes or suffixes, report the error for prefixes, which
        # are more common.
        raise refusals[0]
    _check_labels(counts, tags)
    return TagScheme(IO_WITHOUT_PREFIXES, _as_labels(tags))


def decode_tags(tags: Sequence[str], sent_start: Array1d, scheme: TagScheme) -> DecodedTags:
    """Decode tags into entities.

    tags (Sequence[str]): The tag of each token.
    sent_start (Array1d): True for the first token of a sentence. Shape: (N,)
    scheme (TagScheme): The tag scheme.
    RETURNS (DecodedTags): The entities, and the tokens whose tags are invalid in the scheme.
    """
    tag_set = list(dict.fromkeys(tags))  # the K distinct tags
    id_of_tag = {tag: i for i, tag in enumerate(tag_set)}
    tag_ids = numpy.asarray([id_of_tag[tag] for tag in tags])  # (N,)

    split_tags = {tag: scheme.split_tags[tag] for tag in tag_set if tag in scheme.split_tags}
    labels = list(dict.fromkeys(split_tag.label for split_tag in split_tags.values()))
    token_tags = _look_up(tag_set, tag_ids, split_tags, labels)
    follows_label, begins = _find_begins(token_tags, sent_start)
    is_entity = token_tags.label >= 0
    iob = numpy.full(len(tags), OUTSIDE)
    iob[is_entity] = INSIDE
    iob[begins] = BEGIN
    iob[token_tags.is_missing] = MISSING

    is_irregular = _find_irregular(scheme.name, token_tags, begins, follows_label)
    irregular = numpy.flatnonzero(is_irregular & is_entity)
    return DecodedTags(iob, token_tags.label, labels, irregular)


def _look_up(
    tag_set: Sequence[str],
    tag_ids: Ints1d,
    split_tags: Mapping[str, SplitTag],
    labels: Sequence[str],
) -> TokenTags:
    """Look up the meaning of each token's tag. `tag_set` contains the K distinct tags, `tag_ids`
    contains the index of each token's tag in `tag_set`, and `split_tags` contains the prefix and
    label of each entity tag. Shape of `tag_ids`: (N,)"""
    # The values for each distinct tag. Shapes: (K,)
    id_of_label = {label: i for i, label in enumerate(labels)}
    label_of_tag = numpy.full(len(tag_set), -1)
    tag_opens = numpy.zeros(len(tag_set), dtype=bool)
    tag_closes = numpy.zeros(len(tag_set), dtype=bool)
    tag_is_missing = numpy.zeros(len(tag_set), dtype=bool)
    for i, tag in enumerate(tag_set):
        tag_is_missing[i] = tag in NOT_ANNOTATED
        if tag in split_tags:
            prefix, label = split_tags[tag]
            label_of_tag[i] = id_of_label[label]
            tag_opens[i] = prefix in OPENING
            tag_closes[i] = prefix in CLOSING
    # The values for each token. Shapes: (N,)
    return TokenTags(
        label=label_of_tag[tag_ids],
        opens=tag_opens[tag_ids],
        closes=tag_closes[tag_ids],
        is_missing=tag_is_missing[tag_ids],
    )


def _find_begins(token_tags: TokenTags, sent_start: Array1d) -> tuple[Array1d, Array1d]:
    """Find the first tokens of entities according to conlleval's rules.

    Returns two masks. The first is True for tokens that may continue the previous token's entity,
    because both have the same label and are in the same sentence. The second is True for the first
    tokens of entities. All arrays have the shape (N,).
    """
    label = token_tags.label
    is_entity = label >= 0
    # Below, [1:] selects all tokens except the first one, and [:-1] the token before each of them.
    follows_label = numpy.zeros(len(label), dtype=bool)
    follows_label[1:] = is_entity[1:] & (label[1:] == label[:-1]) & ~sent_start[1:]
    begins = is_entity & (token_tags.opens | ~follows_label)
    begins[1:] |= follows_label[1:] & token_tags.closes[:-1]
    return follows_label, begins


def _as_labels(tags: Collection[str]) -> dict[str, SplitTag]:
    """Read tags as labels, without prefixes."""
    return {tag: SplitTag(prefix="", label=tag) for tag in tags}


def _split(tags: Collection[str], pattern: re.Pattern[str]) -> dict[str, SplitTag]:
    """Split tags into prefix and label using `PREFIXED` or `SUFFIXED`. Tags that don't match the
    pattern are omitted."""
    split_tags: dict[str, SplitTag] = {}
    for tag in tags:
        match = pattern.fullmatch(tag)
        if match is not None:
            split_tags[tag] = SplitTag(match["prefix"], match["label"])
    return split_tags


def _are_labels(split_tags: Mapping[str, SplitTag], pattern: re.Pattern[str]) -> bool:
    """Check whether the last letters of tags belong to the labels, as in SIZE-S and SIZE-L. They
    only count as prefixes if one of them is B or I."""
    if pattern is not SUFFIXED:
        return False
    return not any(split_tag.prefix in "BI" for split_tag in split_tags.values())


def _split_by_name(counts: TagCounts, tags: Sequence[str], name: str) -> TagScheme:
    """Split entity tags by the prefixes of the scheme that the user has specified: see
    `find_scheme`."""
    if name == IO_WITHOUT_PREFIXES:
        return TagScheme(name, _as_labels(tags))
    prefixes = PREFIXES_OF_SCHEME[name.removesuffix(SUFFIX)]
    split_tags = _split(tags, SUFFIXED if name.endswith(SUFFIX) else PREFIXED)
    for tag in tags:
        split_tag = split_tags.get(tag)
        if split_tag is None or split_tag.prefix not in prefixes:
            expected = f"scheme: expected tags of {name} with the prefixes {', '.join(prefixes)}"
            raise counts.refuse(tag, f"{expected}, got {shown(tag)}")
        if split_tag.label == "O":
            raise counts.refuse(
                tag, f"scheme: expected tags of {name}, got {tag!r}: O isn't a label"
            )
    return TagScheme(name, split_tags)


def _find_contradiction(
    counts: TagCounts, tags: Sequence[str], pattern: re.Pattern[str]
) -> CorpusError | None:
    """Find a reason to doubt that the entity tags belong to one scheme, although they all match the
    pattern. Returns an error for the caller to raise, or None if the tags belong to one scheme."""
    tag_of_separator: dict[str, str] = {}  # an example of a tag for each separator
    tag_of_prefix: dict[str, str] = {}
    prefixes_of_label: dict[str, set[str]] = defaultdict(set)
    for tag in tags:
        match = pattern.fullmatch(tag)
        assert match is not None
        tag_of_separator.setdefault(match["separator"], tag)
        tag_of_prefix.setdefault(match["prefix"], tag)
        prefixes_of_label[match["label"]].add(match["prefix"])
    if len(tag_of_separator) > 1:
        tag = tag_of_separator["_"]
        expected = f"expected a tag such as {tag_of_separator['-']!r}"
        return counts.refuse(tag, f"{expected}, got {shown(tag)}: {HINT}")
    excluded = _find_excluded_prefixes(tag_of_prefix)
    if excluded is not None:
        tag, other_tag = excluded
        got = f"got {shown(tag)} and {shown(other_tag)}"
        return counts.refuse(tag, f"expected one scheme, {got}: {HINT}")

    is_confirmed = _confirm_prefixes(set(tag_of_prefix), prefixes_of_label)
    for tag in tags:
        match = pattern.fullmatch(tag)
        assert match is not None
        prefix = match["prefix"]
        label = match["label"]
        # In B-B-PER, for example, the label would be the tag B-PER.
        is_label_a_tag = PREFIXED.fullmatch(label) and prefixes_of_label[label] == {label[0]}
        if label == "O" or is_label_a_tag:
            got = f"got {shown(tag)}, whose label would be the tag {shown(label)}"
            return counts.refuse(tag, f"expected a prefix and a label, {got}: {HINT}")
        if not is_confirmed(prefix, label):
            got = f"got {shown(tag)}, which may be a label, or a prefix and a label"
            return counts.refuse(tag, f"expected tags of one scheme, {got}: {HINT}")
    has_several_prefixes = any(len(prefixes) > 1 for prefixes in prefixes_of_label.values())
    if pattern is SUFFIXED and not has_several_prefixes:
        got = f"got {shown(tags[0])}, which may be a label, or a label and a prefix"
        return counts.refuse(tags[0], f"expected tags of one scheme, {got}: {HINT}")
    return None


def _find_excluded_prefixes(tag_of_prefix: Mapping[str, str]) -> tuple[str, str] | None:
    """Find two tags with prefixes that no scheme combines. `tag_of_prefix` maps each prefix to a
    tag. Returns None if there are no such tags."""
    for prefix, others in EXCLUDED_PREFIXES:
        for other in others:
            if prefix in tag_of_prefix and other in tag_of_prefix:
                return tag_of_prefix[prefix], tag_of_prefix[other]
    return None


def _confirm_prefixes(
    prefixes: Collection[str], prefixes_of_label: Mapping[str, Collection[str]]
) -> Callable[[str, str], bool]:
    """Return a function that checks, for a prefix and a label, whether other tags confirm the
    prefix. An unconfirmed prefix may be part of the label, as in E-MAIL. `prefixes` are the
    prefixes of all tags.

    B, I and U are always read as prefixes. S and M are confirmed if any label occurs with B and E.
    E is only confirmed if, in addition, its own label occurs with B, I or M. For L (the E of
    BILUO), only this second condition applies. Without B, the only scheme with E is IOE, so E is
    confirmed if any label occurs with I and E.
    """
    some_has_b_and_e = any(
        {"B", "E"}.issubset(label_prefixes) for label_prefixes in prefixes_of_label.values()
    )
    some_has_i_and_e = any(
        {"I", "E"}.issubset(label_prefixes) for label_prefixes in prefixes_of_label.values()
    )

    def is_confirmed(prefix: str, label: str) -> bool:
        if prefix in "BIU":
            return True
        if "B" not in prefixes and prefix == "E":
            return some_has_i_and_e
        is_continued = not {"B", "I", "M"}.isdisjoint(prefixes_of_label[label])
        if prefix == "L":
            return is_continued
        return some_has_b_and_e and (prefix == "S" or is_continued)

    return is_confirmed


def _check_labels(counts: TagCounts, tags: Sequence[str]) -> None:
    """Check that the entity tags, some of which have no prefix, can be labels. Raises an error if
    they look like the tags of a scheme, or like a column that doesn't annotate entities."""
    split_tags = _split(tags, PREFIXED)
    without_prefix = next(tag for tag in tags if tag not in split_tags)
    for tag, split_tag in split_tags.items():
        if split_tag.prefix in "BI":
            expected = f"expected a tag such as {tag!r}"
            raise counts.refuse(without_prefix, f"{expected}, got {shown(without_prefix)}: {HINT}")
    # Any column of words could contain labels without prefixes. If there is no O, assume that it
    # contains something else, such as parts of speech.
    if "O" not in counts.places:
        expected = "expected tags, O among them"
        got = f"got only tags such as {shown(without_prefix)}"
        raise counts.refuse(without_prefix, f"{expected}, {got}: {HINT}")

    for pattern in (LIKE_PREFIXED, LIKE_SUFFIXED):
        tags_of_label: dict[str, dict[str, str]] = defaultdict(dict)  # by their prefixes
        n_with_begin_or_inside = 0
        for tag in tags:
            match = pattern.fullmatch(tag.upper())
            if match is not None:
                tags_of_label[match["label"]][match["prefix"]] = tag
                n_with_begin_or_inside += match["prefix"] in "BI"
        for similar in tags_of_label.values():
            if len(similar) > 1 and not {"B", "I"}.isdisjoint(similar):
                tag, other, *_ = similar.values()
                got = f"got {shown(tag)} and {shown(other)}, which may have prefixes"
                raise counts.refuse(tag, f"expected labels, {got}: {HINT}")
        if n_with_begin_or_inside == len(tags):
            got = f"got {shown(tags[0])}, which may have a prefix"
            raise counts.refuse(tags[0], f"expected labels, {got}: {HINT}")


def _name_scheme(counts: TagCounts, split_tags: Mapping[str, SplitTag]) -> str:
    """Return the name of the scheme that uses the prefixes of these tags."""
    prefixes = {split_tag.prefix for split_tag in split_tags.values()}
    if prefixes <= {"I"}:
        return "IO"
    if prefixes <= {"I", "E"}:
        return "IOE"
    if "M" in prefixes:
        return "BMES"
    if prefixes & {"L", "U"}:
        return "BILUO"
    if prefixes & {"E", "S"}:
        return "IOBES"

    # IOB2 uses B at the beginning of each entity. IOB1 only uses B directly after another entity
    # with the same label. A few tags may be wrong, so choose the scheme with fewer invalid tags.
    n_needless = 0  # B tags that are invalid in IOB1
    n_unopened = 0  # I tags that are invalid in IOB2
    no_tag = SplitTag(prefix="", label="")
    for (tag_before, tag), n_tokens in counts.pairs.items():
        prefix, label = split_tags.get(tag, no_tag)
        _, label_before = split_tags.get(tag_before, no_tag)
        if label and label != label_before:
            if prefix == "B":
                n_needless += n_tokens
            else:
                n_unopened += n_tokens
    return "IOB1" if n_needless < n_unopened else "IOB2"


def _find_irregular(
    scheme: str, token_tags: TokenTags, begins: Array1d, follows_label: Array1d
) -> Array1d:
    """Find the tokens whose tags are invalid in a scheme. `follows_label` is returned by
    `_find_begins`. The returned mask may also be True outside of entities, where it should be
    ignored. All arrays have the shape (N,)."""
    name = scheme.removesuffix(SUFFIX)
    if name == "IOB1":
        opens_needlessly: Array1d = token_tags.opens & ~follows_label
        return opens_needlessly
    begins_unopened: Array1d = begins & ~token_tags.opens
    if name == "IOB2":
        return begins_unopened
    if name in ("BILUO", "IOBES", "BMES"):
        # A token is the last of its entity if the next token begins an entity or can't continue
        # this one, or if there is no next token.
        is_last = numpy.ones(len(begins), dtype=bool)
        is_last[:-1] = ~follows_label[1:] | begins[1:]
        return begins_unopened | (is_last & ~token_tags.closes)
    # In the other schemes, no prefix marks the first token of an entity, so every tag is valid.
    return numpy.zeros(len(begins), dtype=bool)
