"""Tags of any scheme to entities: IOB1, IOB2, BILUO, IOBES, IOE and IO, found from the tags.

An entity begins at a tag B, U or S, where the label changes, and after L, E, U or S. These are the
rules of conlleval (Tjong Kim Sang & De Meulder, 2003), and right for every scheme. Tags that the
scheme doesn't allow are read by the same rules and reported.
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
OPENING = frozenset("BUS")
"""Prefixes at which an entity begins."""

CLOSING = frozenset("LEUS")
"""Prefixes after which an entity has ended."""

IO_WITHOUT_PREFIXES = "IO without prefixes"


class DecodedTags(NamedTuple):
    """The entities of N tokens, from their tags.

    iob (Ints1d): ENT_IOB of each token. Shape: (N,)
    label (Ints1d): The label of each token as an index in `labels`, -1 for none. Shape: (N,)
    labels (list[str]): The labels.
    scheme (str): The name of the scheme, empty if there are no entities.
    irregular (Ints1d): The tokens whose tags the scheme doesn't allow there.
    """

    iob: Ints1d
    label: Ints1d
    labels: list[str]
    scheme: str
    irregular: Ints1d


class SplitTag(NamedTuple):
    """The tag of an entity. Without prefixes, as in IO, the prefix is empty."""

    prefix: str
    label: str


def decode_tags(
    tags: Sequence[str], sent_start: Array1d, refuse: Callable[[int, str], Exception]
) -> DecodedTags:
    """Find the scheme of tags, and the entities.

    tags (Sequence[str]): The tag of each token.
    sent_start (Array1d): True for the first token of a sentence. Shape: (N,)
    refuse (Callable[[int, str], Exception]): Makes an error from the index of a token and a
        message.
    RETURNS (DecodedTags): The entities, and the tokens whose tags don't fit the scheme.
    RAISES (CorpusError): If something isn't a tag, or the tags belong to several schemes.
    """
    tag_set = list(dict.fromkeys(tags))
    id_of_tag = {tag: i for i, tag in enumerate(tag_set)}
    tag_ids = numpy.asarray([id_of_tag[tag] for tag in tags])

    def refuse_tag(tag: str, message: str) -> Exception:
        first_token = int(numpy.argmax(tag_ids == id_of_tag[tag]))
        return refuse(first_token, message)

    split_tags = _split_tags(tag_set, refuse_tag)
    labels = list(dict.fromkeys(split_tag.label for split_tag in split_tags.values()))
    id_of_label = {label: i for i, label in enumerate(labels)}

    # What a tag says is found once for each of the K tags, (K,), then for all tokens, (N,).
    label_of_tag = numpy.full(len(tag_set), -1)
    tag_opens = numpy.zeros(len(tag_set), dtype=bool)
    tag_closes = numpy.zeros(len(tag_set), dtype=bool)
    for tag, split_tag in split_tags.items():
        tag_id = id_of_tag[tag]
        label_of_tag[tag_id] = id_of_label[split_tag.label]
        tag_opens[tag_id] = split_tag.prefix in OPENING
        tag_closes[tag_id] = split_tag.prefix in CLOSING
    tag_is_missing = numpy.asarray([tag in NOT_ANNOTATED for tag in tag_set])
    label = label_of_tag[tag_ids]
    opens = tag_opens[tag_ids]
    closes = tag_closes[tag_ids]
    is_missing = tag_is_missing[tag_ids]
    is_entity = label >= 0

    # Tokens after one of the same label in the same sentence.
    follows = numpy.zeros(len(tags), dtype=bool)
    follows[1:] = is_entity[1:] & (label[1:] == label[:-1]) & ~sent_start[1:]
    begins = is_entity & (opens | ~follows)
    begins[1:] |= follows[1:] & closes[:-1]
    iob = numpy.full(len(tags), OUTSIDE)
    iob[is_entity] = INSIDE
    iob[begins] = BEGIN
    iob[is_missing] = MISSING
    prefixes = {split_tag.prefix for split_tag in split_tags.values()}
    scheme, is_irregular = _find_scheme(prefixes, opens, closes, begins, follows)
    irregular = numpy.flatnonzero(is_irregular & is_entity)
    return DecodedTags(iob, label, labels, scheme, irregular)


def _split_tags(
    tag_set: Sequence[str], refuse_tag: Callable[[str, str], Exception]
) -> dict[str, SplitTag]:
    """Split the tags of entities, all but O and missing ones, into prefix and label."""
    entity_tags = [tag for tag in tag_set if tag != "O" and tag not in NOT_ANNOTATED]
    without_label = [tag for tag in entity_tags if tag.rstrip("-_") in PREFIXES]
    if without_label:
        tag = without_label[0]
        raise refuse_tag(tag, f"expected a tag with a label, such as B-PER, got {tag!r}")
    matches: dict[str, re.Match[str]] = {}
    without_prefix: list[str] = []
    for tag in entity_tags:
        match = PREFIXED.fullmatch(tag)
        if match is None:
            without_prefix.append(tag)
        else:
            matches[tag] = match
    if not without_prefix:
        _check_prefixes(matches, refuse_tag)
        return {tag: SplitTag(match[1], match[3]) for tag, match in matches.items()}
    tag = without_prefix[0]
    if matches:
        with_prefix = next(iter(matches))
        raise refuse_tag(tag, f"expected a tag such as {with_prefix!r}, got {shown(tag)}")
    # Any word could be a label of IO without prefixes: parts of speech, for example. These have
    # no O.
    if "O" not in tag_set:
        raise refuse_tag(tag, f"expected tags, O among them, got only such as {shown(tag)}")
    return {tag: SplitTag("", tag) for tag in without_prefix}


def _check_prefixes(
    matches: Mapping[str, re.Match[str]], refuse_tag: Callable[[str, str], Exception]
) -> None:
    """Check that all tags have the same separator, and prefixes of one scheme."""
    tag_of_separator = {match[2]: tag for tag, match in matches.items()}
    if len(tag_of_separator) > 1:
        expected = tag_of_separator["-"]
        tag = tag_of_separator["_"]
        raise refuse_tag(tag, f"expected a tag such as {expected!r}, got {tag!r}")
    tag_of_prefix = {match[1]: tag for tag, match in matches.items()}
    biluo = [tag_of_prefix[prefix] for prefix in "LU" if prefix in tag_of_prefix]
    iobes = [tag_of_prefix[prefix] for prefix in "ES" if prefix in tag_of_prefix]
    if biluo and iobes:
        got = f"{iobes[0]!r} (IOBES) beside {biluo[0]!r} (BILUO)"
        raise refuse_tag(iobes[0], f"expected one scheme, got {got}")


def _find_scheme(
    prefixes: set[str], opens: Array1d, closes: Array1d, begins: Array1d, follows: Array1d
) -> tuple[str, Array1d]:
    """Find the scheme of the prefixes that are used, empty if there are no entities; and the tags
    of entities that it doesn't allow where they are. `opens` and `closes` are true for prefixes
    that open or close an entity, `follows` after a token of the same label and sentence.
    Shapes: (N,)"""
    if prefixes <= {"", "I", "E"}:
        scheme = ""
        if "E" in prefixes:
            scheme = "IOE"
        elif "I" in prefixes:
            scheme = "IO"
        elif prefixes:
            scheme = IO_WITHOUT_PREFIXES
        return scheme, numpy.zeros(len(begins), dtype=bool)
    begins_without_b = begins & ~opens
    if prefixes & {"L", "U", "E", "S"}:
        is_last = numpy.ones(len(begins), dtype=bool)
        is_last[:-1] = ~follows[1:] | begins[1:]
        scheme = "BILUO" if prefixes & {"L", "U"} else "IOBES"
        return scheme, begins_without_b | (is_last & ~closes)
    # IOB1 has B only where an entity follows another of its label, IOB2 at each entity. A few tags
    # may be wrong, so it is the scheme that fewer contradict.
    b_without_entity_before = opens & ~follows
    if b_without_entity_before.sum() < begins_without_b.sum():
        return "IOB1", b_without_entity_before
    return "IOB2", begins_without_b
