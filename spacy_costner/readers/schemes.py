"""Tags of any scheme to entities: IOB1, IOB2, BILUO, IOBES, IOE and IO, found from the tags.

An entity begins at a tag B, U or S, where the label changes, and after L, E, U or S. These are the
rules of conlleval (Tjong Kim Sang & De Meulder, 2003), and right for every scheme. Tags that the
scheme doesn't allow are read by the same rules and reported.
"""

import re
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy
from thinc.types import Array1d, Ints1d

from .files import shown

MISSING, INSIDE, OUTSIDE, BEGIN = range(4)
"""The values of spaCy's ENT_IOB."""

NOT_ANNOTATED = frozenset(["-", "_"])
"""Tags of tokens that nobody has annotated."""

PREFIXED = re.compile(r"([BILUES])([-_])(.+)")
OPENING, CLOSING = ("B", "U", "S"), ("L", "E", "U", "S")
NO_LABEL = -1

Refuse = Callable[[int, str], Exception]
"""Makes an error from the index of a token and a message."""


class Decoded(NamedTuple):
    """What the tags of a file say.

    iob (Ints1d): ENT_IOB of each token. Shape: (N,)
    label (Ints1d): Its label, as an index; -1 for none. Shape: (N,)
    labels (List[str]): The labels.
    scheme (str): The name of the scheme; empty if there are no entities.
    irregular (Ints1d): The tokens whose tags don't fit the scheme. Shape: (M,)
    """

    iob: Ints1d
    label: Ints1d
    labels: List[str]
    scheme: str
    irregular: Ints1d


def decode_tags(tags: Sequence[str], sent_start: Array1d, refuse: Refuse) -> Decoded:
    """Find the scheme of tags, and the entities.

    tags (Sequence[str]): The tag of each token.
    sent_start (Array1d): True for the first token of a sentence. Shape: (N,)
    refuse (Refuse): Makes the error for a token.
    RETURNS (Decoded): The entities.
    RAISES (CorpusError): If something isn't a tag, or the tags belong to several schemes.
    """
    index = {tag: i for i, tag in enumerate(dict.fromkeys(tags))}
    ids = numpy.fromiter(map(index.__getitem__, tags), dtype="int64", count=len(tags))

    def at(tag: str, message: str) -> Exception:
        return refuse(int(numpy.argmax(ids == index[tag])), message)

    split = _split_tags([*index], at)
    labels = list(dict.fromkeys(label for _, label in split.values() if label))
    number = {label: i for i, label in enumerate(labels)}
    prefix = numpy.asarray([split.get(tag, ("", ""))[0] for tag in index])[ids]
    label = numpy.asarray([number[split[tag][1]] if tag in split else NO_LABEL for tag in index])
    label = label[ids]
    is_missing = numpy.asarray([tag in NOT_ANNOTATED for tag in index])[ids]
    follows = numpy.concatenate([[False], label[1:] == label[:-1]]) & ~sent_start & (label >= 0)
    after = numpy.concatenate([[""], prefix[:-1]])
    begin = (label >= 0) & (numpy.isin(prefix, OPENING) | ~follows | numpy.isin(after, CLOSING))
    iob = numpy.where(label >= 0, numpy.where(begin, BEGIN, INSIDE), OUTSIDE)
    iob[is_missing] = MISSING
    scheme, irregular = _find_scheme(prefix, begin, follows)
    return Decoded(iob, label, labels, scheme, irregular)


def _split_tags(
    tags: Sequence[str], at: Callable[[str, str], Exception]
) -> Dict[str, Tuple[str, str]]:
    """The prefix and the label of each tag but O and missing ones. Labels without prefixes have
    the prefix ""."""
    entities = [tag for tag in tags if tag != "O" and tag not in NOT_ANNOTATED]
    bare = [tag for tag in entities if tag.rstrip("-_") in set("BILUES")]
    if bare:
        raise at(bare[0], f"expected a tag with a label, such as B-PER, got {bare[0]!r}")
    split = {tag: match for tag in entities if (match := PREFIXED.fullmatch(tag))}
    without = [tag for tag in entities if tag not in split]
    if split and without:
        known = next(iter(split))
        raise at(without[0], f"expected a tag such as {known!r}, got {shown(without[0])}")
    if without and "O" not in tags:
        raise at(without[0], f"expected tags, O among them, got only such as {shown(without[0])}")
    separators = {match[2]: tag for tag, match in split.items()}
    if len(separators) > 1:
        raise at(separators["_"], f"expected a tag such as {separators['-']!r}, got another form")
    letters = {match[1]: tag for tag, match in split.items()}
    ours, theirs = [letters[x] for x in "LU" if x in letters], [*filter(letters.get, "ES")]
    if ours and theirs:
        tag = letters[theirs[0]]
        raise at(tag, f"expected one scheme, got {tag!r} (IOBES) beside {ours[0]!r} (BILUO)")
    return {tag: (match[1], match[3]) for tag, match in split.items()} | {
        tag: ("", tag) for tag in without
    }


def _find_scheme(prefix: Array1d, begin: Array1d, follows: Array1d) -> Tuple[str, Ints1d]:
    """The scheme, and the tokens whose tags don't fit it."""
    none = numpy.zeros(0, dtype="int64")
    is_entity = (prefix != "") | begin
    used = {str(letter) for letter in numpy.unique(prefix[is_entity])}
    begins_inside = begin & ~numpy.isin(prefix, OPENING)
    if not used or used == {""}:
        return "IO without prefixes" if used else "", none
    if used <= {"I", "E"}:
        return "IOE" if "E" in used else "IO", none
    if used & {*"LUES"}:
        continued = numpy.concatenate([follows[1:] & ~begin[1:], [False]])
        not_closed = is_entity & ~continued & ~numpy.isin(prefix, CLOSING)
        scheme = "BILUO" if used & {*"LU"} else "IOBES"
        return scheme, numpy.flatnonzero(begins_inside | not_closed)
    needless = (prefix == "B") & ~follows  # IOB1 has B only between entities of one label
    is_iob1 = needless.sum() < begins_inside.sum()
    return (
        ("IOB1", numpy.flatnonzero(needless))
        if is_iob1
        else (
            "IOB2",
            numpy.flatnonzero(begins_inside),
        )
    )
