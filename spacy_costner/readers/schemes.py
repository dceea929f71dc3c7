"""Tags of any scheme to entities: IOB1, IOB2, BILUO, IOBES, IOE and IO, found from the tags.

An entity begins at a tag B, U or S, where the label changes, and after L, E, U or S. These are the
rules of conlleval (Tjong Kim Sang & De Meulder, 2003), and right for every scheme. Tags that the
scheme doesn't allow are read by the same rules and reported.
"""

import re
from collections.abc import Callable, Sequence

import numpy
from thinc.types import Array1d, Ints1d

from ..ent_iob import BEGIN, INSIDE, MISSING, OUTSIDE
from .files import shown

NOT_ANNOTATED = frozenset(["-", "_"])
"""Tags of tokens that nobody has annotated."""

PREFIXED = re.compile(r"([BILUES])([-_])(.+)")
OPENING, CLOSING = "BUS", "LEUS"
IO_WITHOUT_PREFIXES = "IO without prefixes"


def decode_tags(
    tags: Sequence[str], sent_start: Array1d, refuse: Callable[[int, str], Exception]
) -> tuple[Ints1d, Ints1d, list[str], str, Ints1d]:
    """Find the scheme of tags, and the entities. `sent_start` is true for the first token of a
    sentence; `refuse` makes an error from the index of a token and a message. Returns ENT_IOB and
    the label of each token, as an index, -1 for none; the labels; the scheme, empty if there are no
    entities; and the tokens whose tags don't fit it.
    Shapes: (N,) but for the last, (M,)

    RAISES (CorpusError): If something isn't a tag, or the tags belong to several schemes.
    """
    index = {tag: i for i, tag in enumerate(dict.fromkeys(tags))}
    ids = numpy.fromiter(map(index.__getitem__, tags), dtype="int64", count=len(tags))

    def at(tag: str, message: str) -> Exception:
        return refuse(int(numpy.argmax(ids == index[tag])), message)

    split = _split_tags([*index], at)
    prefixes = [split.get(tag, ("", ""))[0] for tag in index]
    number = {name: i for i, name in enumerate(dict.fromkeys(name for _, name in split.values()))}
    label = numpy.asarray([number[split[tag][1]] if tag in split else -1 for tag in index])[ids]
    opens, closes = (numpy.isin(prefixes, [*some])[ids] for some in (OPENING, CLOSING))
    follows = numpy.zeros(len(ids), dtype=bool)
    follows[1:] = (label[1:] == label[:-1]) & (label[1:] >= 0) & ~sent_start[1:]
    begins = (label >= 0) & (opens | ~follows)
    begins[1:] |= follows[1:] & closes[:-1]
    iob = numpy.where(label >= 0, numpy.where(begins, BEGIN, INSIDE), OUTSIDE)
    iob[numpy.asarray([tag in NOT_ANNOTATED for tag in index])[ids]] = MISSING
    used = {prefix for prefix, _ in split.values()}
    scheme, irregular = _find_scheme(used, opens, closes, begins, follows)
    return iob, label, [*number], scheme, numpy.flatnonzero(irregular & (label >= 0))


def _split_tags(
    tags: Sequence[str], at: Callable[[str, str], Exception]
) -> dict[str, tuple[str, str]]:
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
        known, other = separators["-"], separators["_"]
        raise at(other, f"expected a tag such as {known!r}, got {other!r}")
    letters = {match[1]: tag for tag, match in split.items()}
    ours, theirs = [letters[x] for x in "LU" if x in letters], [*filter(letters.get, "ES")]
    if ours and theirs:
        tag = letters[theirs[0]]
        raise at(tag, f"expected one scheme, got {tag!r} (IOBES) beside {ours[0]!r} (BILUO)")
    return {tag: (match[1], match[3]) for tag, match in split.items()} | {
        tag: ("", tag) for tag in without
    }


def _find_scheme(
    used: set[str], opens: Array1d, closes: Array1d, begins: Array1d, follows: Array1d
) -> tuple[str, Array1d]:
    """Find the scheme of the prefixes that are used, empty if there are no entities; and the tags
    of entities that it doesn't allow where they are. `opens` and `closes` are true for prefixes
    that open or close an entity, `follows` after a token of the same label and sentence.
    Shapes: (N,)"""
    if used <= {"", "I", "E"}:
        name = "IOE" if "E" in used else "IO" if "I" in used else IO_WITHOUT_PREFIXES
        return name if used else "", numpy.zeros(len(begins), dtype=bool)
    no_begin, no_other_before = begins & ~opens, opens & ~follows
    if used & {*"LUES"}:
        is_last = numpy.ones(len(begins), dtype=bool)
        is_last[:-1] = ~follows[1:] | begins[1:]
        return "BILUO" if used & {*"LU"} else "IOBES", no_begin | (is_last & ~closes)
    # IOB1 has B only between entities of one label. A few tags may be wrong.
    is_iob1 = no_other_before.sum() < no_begin.sum()
    return ("IOB1", no_other_before) if is_iob1 else ("IOB2", no_begin)
