"""Find the entities that tags stand for, in any scheme: IOB1, IOB2, BILUO, IOBES, IOE or IO. The
scheme is found from the tags.

A tag of an entity consists of a prefix and a label, such as B-PER. A prefix *opens* an entity if it
says that one begins here (B, U, S), and *closes* it if it says that one ends here (L, E, U, S).

An entity begins at a token whose tag opens one, where the label changes, and after a tag that
closes one. These are the rules of conlleval (Tjong Kim Sang & De Meulder, 2003), and they are right
for every scheme. Tags that the scheme doesn't allow are called *irregular*: they are read by the
same rules, and reported.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy
from thinc.types import Array1d, Ints1d

from ..ent_iob import BEGIN, INSIDE, MISSING, OUTSIDE
from .files import shown

NOT_ANNOTATED = frozenset(["-", "_"])
"""Tags of tokens that nobody has annotated."""

PREFIXES = frozenset("BILUES")
PREFIXED = re.compile(r"([BILUES])([-_])(.+)")
"""Matches a tag of an entity. The groups are its prefix, its separator and its label."""

OPENING = frozenset("BUS")
"""The prefixes that open an entity."""

CLOSING = frozenset("LEUS")
"""The prefixes that close an entity."""

IO_WITHOUT_PREFIXES = "IO without prefixes"
"""The name of the scheme in which the tag of an entity is its label alone."""


class DecodedTags(NamedTuple):
    """The entities of N tokens, as their tags say.

    iob (Ints1d): spaCy's ENT_IOB of each token. Shape: (N,)
    label (Ints1d): The label of each token as an index in `labels`; -1 for none. Shape: (N,)
    labels (list[str]): The labels.
    scheme (str): The name of the scheme; "" if there are no entities.
    irregular (Ints1d): The indices of the tokens whose tags the scheme doesn't allow.
    """

    iob: Ints1d
    label: Ints1d
    labels: list[str]
    scheme: str
    irregular: Ints1d


class SplitTag(NamedTuple):
    """The prefix and the label of the tag of an entity. In IO without prefixes the prefix is ""."""

    prefix: str
    label: str


class TokenTags(NamedTuple):
    """What the tag of each of N tokens says. Shapes: (N,)

    label (Ints1d): The label of the tag, as an index; -1 for none.
    opens (Array1d): True if its prefix opens an entity.
    closes (Array1d): True if its prefix closes an entity.
    is_missing (Array1d): True if it stands for missing annotation.
    """

    label: Ints1d
    opens: Array1d
    closes: Array1d
    is_missing: Array1d


def decode_tags(
    tags: Sequence[str], sent_start: Array1d, refuse: Callable[[int, str], Exception]
) -> DecodedTags:
    """Find the scheme of tags, and the entities that they stand for.

    tags (Sequence[str]): The tag of each token.
    sent_start (Array1d): True for the first token of a sentence. Shape: (N,)
    refuse (Callable[[int, str], Exception]): Makes an error for a token, from its index and a
        message.
    RETURNS (DecodedTags): The entities, and the tokens whose tags don't fit the scheme.
    RAISES (CorpusError): If something isn't a tag, or the tags belong to several schemes.
    """
    tag_set = list(dict.fromkeys(tags))  # the K different tags
    id_of_tag = {tag: i for i, tag in enumerate(tag_set)}
    tag_ids = numpy.asarray([id_of_tag[tag] for tag in tags])  # (N,)

    def refuse_tag(tag: str, message: str) -> Exception:
        first_token = int(numpy.argmax(tag_ids == id_of_tag[tag]))  # that has the tag
        return refuse(first_token, message)

    split_tags = _split_tags(tag_set, refuse_tag)
    labels = list(dict.fromkeys(split_tag.label for split_tag in split_tags.values()))
    token_tags = _look_up(tag_set, tag_ids, split_tags, labels)
    follows_label, begins = _find_begins(token_tags, sent_start)
    is_entity = token_tags.label >= 0
    iob = numpy.full(len(tags), OUTSIDE)
    iob[is_entity] = INSIDE
    iob[begins] = BEGIN
    iob[token_tags.is_missing] = MISSING

    prefixes = {split_tag.prefix for split_tag in split_tags.values()}
    scheme, is_irregular = _find_scheme(prefixes, token_tags, begins, follows_label)
    irregular = numpy.flatnonzero(is_irregular & is_entity)
    return DecodedTags(iob, token_tags.label, labels, scheme, irregular)


def _look_up(
    tag_set: Sequence[str],
    tag_ids: Ints1d,
    split_tags: Mapping[str, SplitTag],
    labels: Sequence[str],
) -> TokenTags:
    """Find out what the tag of each token says.

    tag_set (Sequence[str]): The K different tags.
    tag_ids (Ints1d): The index in `tag_set` of the tag of each token. Shape: (N,)
    split_tags (Mapping[str, SplitTag]): The prefix and the label of each tag of an entity.
    labels (Sequence[str]): All labels.
    RETURNS (TokenTags): What the tag of each token says.
    """
    # First for each different tag. Shapes: (K,)
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
    # Then for each token. Shapes: (N,)
    return TokenTags(
        label=label_of_tag[tag_ids],
        opens=tag_opens[tag_ids],
        closes=tag_closes[tag_ids],
        is_missing=tag_is_missing[tag_ids],
    )


def _find_begins(token_tags: TokenTags, sent_start: Array1d) -> tuple[Array1d, Array1d]:
    """Find the first tokens of entities by the rules of conlleval. All arrays have the shape (N,).

    token_tags (TokenTags): What the tag of each token says.
    sent_start (Array1d): True for the first token of a sentence.
    RETURNS (tuple[Array1d, Array1d]): Two masks. The first is true for tokens that may continue the
        entity of the token before: that token has the same label, and is in the same sentence. The
        second is true for the first tokens of entities.
    """
    label = token_tags.label
    is_entity = label >= 0
    # In these lines, [1:] stands for the tokens after the first, and [:-1] for the token before
    # each of them.
    follows_label = numpy.zeros(len(label), dtype=bool)
    follows_label[1:] = is_entity[1:] & (label[1:] == label[:-1]) & ~sent_start[1:]
    begins = is_entity & (token_tags.opens | ~follows_label)
    begins[1:] |= follows_label[1:] & token_tags.closes[:-1]
    return follows_label, begins


def _split_tags(
    tag_set: Sequence[str], refuse_tag: Callable[[str, str], Exception]
) -> dict[str, SplitTag]:
    """Split the tags of entities into prefix and label. Other tags are left out: O, and "-" or "_"
    for missing annotation.

    tag_set (Sequence[str]): The different tags of a file.
    refuse_tag (Callable[[str, str], Exception]): Makes an error from a tag and a message.
    RETURNS (dict[str, SplitTag]): The prefix and the label of each tag of an entity.
    RAISES (CorpusError): If something isn't a tag, or the tags belong to several schemes.
    """
    matches: dict[str, re.Match[str]] = {}
    without_prefix: list[str] = []
    for tag in tag_set:
        if tag == "O" or tag in NOT_ANNOTATED:
            continue
        if tag.rstrip("-_") in PREFIXES:  # such as "B", "B-" and "B_"
            raise refuse_tag(tag, f"expected a tag with a label, such as B-PER, got {tag!r}")
        match = PREFIXED.fullmatch(tag)
        if match is None:
            without_prefix.append(tag)
        else:
            matches[tag] = match
    if not without_prefix:
        _check_prefixes(matches, refuse_tag)
        split_tags: dict[str, SplitTag] = {}
        for tag, match in matches.items():
            prefix, _separator, label = match.groups()
            split_tags[tag] = SplitTag(prefix, label)
        return split_tags

    tag = without_prefix[0]
    if matches:
        with_prefix = next(iter(matches))
        raise refuse_tag(tag, f"expected a tag such as {with_prefix!r}, got {shown(tag)}")
    # Any column of words could be tags of IO without prefixes. Without an O, they are taken for
    # something else, such as parts of speech.
    if "O" not in tag_set:
        raise refuse_tag(tag, f"expected tags, O among them, got only such as {shown(tag)}")
    return {tag: SplitTag(prefix="", label=tag) for tag in without_prefix}


def _check_prefixes(
    matches: Mapping[str, re.Match[str]], refuse_tag: Callable[[str, str], Exception]
) -> None:
    """Check that all tags have the same separator, "-" or "_", and prefixes of one scheme.

    matches (Mapping[str, re.Match[str]]): The match of `PREFIXED` with each tag.
    refuse_tag (Callable[[str, str], Exception]): Makes an error from a tag and a message.
    RAISES (CorpusError): If two tags contradict each other.
    """
    tag_of_separator: dict[str, str] = {}  # an example of a tag with each separator
    # For the last and the only token of an entity BILUO has the prefixes L and U, IOBES E and S.
    biluo_tags: list[str] = []
    iobes_tags: list[str] = []
    for tag, match in matches.items():
        prefix, separator, _ = match.groups()
        tag_of_separator[separator] = tag
        if prefix in ("L", "U"):
            biluo_tags.append(tag)
        elif prefix in ("E", "S"):
            iobes_tags.append(tag)

    if len(tag_of_separator) > 1:
        expected = tag_of_separator["-"]
        tag = tag_of_separator["_"]
        raise refuse_tag(tag, f"expected a tag such as {expected!r}, got {tag!r}")
    if biluo_tags and iobes_tags:
        got = f"{iobes_tags[0]!r} (IOBES) beside {biluo_tags[0]!r} (BILUO)"
        raise refuse_tag(iobes_tags[0], f"expected one scheme, got {got}")


def _find_scheme(
    prefixes: set[str], token_tags: TokenTags, begins: Array1d, follows_label: Array1d
) -> tuple[str, Array1d]:
    """Find the scheme that uses these prefixes, and the tokens whose tags it doesn't allow. All
    arrays have the shape (N,).

    prefixes (set[str]): All prefixes of the file. "" stands for tags that are labels alone.
    token_tags (TokenTags): What the tag of each token says.
    begins (Array1d): True for the first tokens of entities.
    follows_label (Array1d): True for tokens that may continue the entity of the token before: see
        `_find_begins`.
    RETURNS (tuple[str, Array1d]): The name of the scheme, "" if there are no entities; and a mask
        of the tokens whose tags it doesn't allow. Tokens outside of entities may be in the mask,
        too, and don't count.
    """
    # In these schemes no prefix says that an entity begins, so every tag is allowed.
    no_token = numpy.zeros(len(begins), dtype=bool)
    if not prefixes:
        return "", no_token
    if prefixes == {""}:
        return IO_WITHOUT_PREFIXES, no_token
    if prefixes == {"I"}:
        return "IO", no_token
    if prefixes <= {"I", "E"}:
        return "IOE", no_token

    begins_unopened = begins & ~token_tags.opens
    if prefixes & {"L", "U", "E", "S"}:
        # A token is the last of its entity if the next token begins another or can't continue it.
        # The last token of the file has no next one.
        is_last = numpy.ones(len(begins), dtype=bool)
        is_last[:-1] = ~follows_label[1:] | begins[1:]
        scheme = "BILUO" if prefixes & {"L", "U"} else "IOBES"
        return scheme, begins_unopened | (is_last & ~token_tags.closes)

    # IOB2 has B at the beginning of each entity, IOB1 only directly after another entity with the
    # same label. As a few tags may be wrong, the scheme is the one that contradicts fewer tags.
    opens_needlessly = token_tags.opens & ~follows_label  # irregular in IOB1
    if opens_needlessly.sum() < begins_unopened.sum():
        return "IOB1", opens_needlessly
    return "IOB2", begins_unopened
