"""The template of features in the config."""

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from spacy.attrs import IDS

from .words import (
    FLAGS,
    WordView,
    character_type,
    flag,
    lower,
    orth,
    prefix,
    shape,
    suffix,
)

ATTRIBUTES = (
    "NORM", "PREFIX", "SUFFIX", "CLUSTER", "LEMMA", "POS", "TAG", "DEP", "MORPH", "ENT_TYPE",
    "ENT_ID", "ENT_KB_ID", "LANG",
)  # fmt: skip
"""Those of spaCy that are looked up in docs, as a token can have its own, beside ORTH, LOWER
and SHAPE."""

EXTENSION = "_."
GAZETTEER = "gazetteer"
WINDOWS = {"ORTH": 2, "LOWER": 2, "SHAPE": 2, "prefix": 1, "suffix": 1, "flags": 1}
AFFIXES = (1, 2, 3, 4)
DEFAULT_FLAGS = ("is_first_upper", "IS_UPPER", "IS_DIGIT", "has_digit", "has_hyphen")


class Column(NamedTuple):
    """One kind of value of a token.

    name (str): The start of the names of its features.
    offsets (Tuple[int, ...]): The offsets of its slots, 0 for the token itself.
    kind (str): Its name in the config.
    view (Optional[WordView]): Computes the value of a word. None if it depends on the token and
        not only on the word.
    pair_of (Optional[str]): The column of which this one has the values at a token and at
        the next.
    """

    name: str
    offsets: Tuple[int, ...]
    kind: str
    view: Optional[WordView] = None
    pair_of: Optional[str] = None


@dataclass(frozen=True)
class Template:
    """The template of features: see `make_features`."""

    windows: Mapping[str, int] = field(default_factory=lambda: dict(WINDOWS))
    affixes: Sequence[int] = AFFIXES
    flags: Sequence[str] = DEFAULT_FLAGS
    bigrams: Mapping[str, int] = field(default_factory=dict)
    gazetteers: Mapping[str, str] = field(default_factory=dict)
    min_count: Union[int, Mapping[str, int]] = 1

    @property
    def columns(self) -> List[Column]:
        """The columns, in the order of their features."""
        columns = []
        for kind, window in self.windows.items():
            offsets = tuple(range(-window, window + 1))
            columns += [
                Column(name, offsets, kind, view) for name, view in self._views(kind).items()
            ]
        for kind, window in self.bigrams.items():
            offsets = tuple(range(-window, window))
            columns += [
                Column(f"{name}+{name}", offsets, f"{kind}+{kind}", pair_of=name)
                for name in self._views(kind)
            ]
        return columns

    def least_count(self, kind: str) -> int:
        """How often a value has to occur to be a feature."""
        if isinstance(self.min_count, int):
            return self.min_count
        return self.min_count.get(kind, 1)

    def _views(self, kind: str) -> Dict[str, Optional[WordView]]:
        if kind in ("prefix", "suffix"):
            cut = prefix if kind == "prefix" else suffix
            return {f"{kind}{size}": cut(size) for size in self.affixes}
        if kind == "flags":
            return {name: flag(name) for name in self.flags}
        if kind == GAZETTEER:
            return {f"{kind}:{name}": None for name in self.gazetteers}
        return {kind: WORD_VIEWS.get(kind)}


WORD_VIEWS: Dict[str, WordView] = {
    "ORTH": orth,
    "LOWER": lower,
    "SHAPE": shape,
    "character_type": character_type,
}


def make_features(
    *,
    windows: Optional[Dict[str, int]] = None,
    affixes: Sequence[int] = AFFIXES,
    flags: Sequence[str] = DEFAULT_FLAGS,
    bigrams: Optional[Dict[str, int]] = None,
    gazetteers: Optional[Dict[str, str]] = None,
    min_count: Union[int, Dict[str, int]] = 1,
) -> Template:
    """Build a template of features.

    windows (Optional[Dict[str, int]]): For each kind of feature, up to how many tokens to either
        side it is used; 0 for the token only. Kinds are attributes of spaCy such as ORTH,
        LOWER, NORM, SHAPE, TAG, POS and LEMMA; "_.name" for an extension attribute of tokens;
        "prefix", "suffix", "flags", "character_type" and "gazetteer". If left out, ORTH,
        LOWER and SHAPE with 2, prefix, suffix and flags with 1.
    affixes (Sequence[int]): The lengths of prefixes and suffixes in characters.
    flags (Sequence[str]): What "flags" are: spaCy's yes-or-no attributes of words,
        such as IS_TITLE, and has_digit, has_hyphen, has_upper, is_first_upper and
        ends_with_period.
    bigrams (Optional[Dict[str, int]]): The kinds, of those in windows, of which pairs of
        neighbours are features too, and how far to either side.
    gazetteers (Optional[Dict[str, str]]): Files with a phrase on each line, by the name that
        their features get. Upper and lower case are the same to them.
    min_count (Union[int, Dict[str, int]]): How often a value has to be in the training data
        to be a feature; for all kinds, or by kind. "LOWER+LOWER" is that of pairs.
    RETURNS (Template): The template.
    RAISES (ValueError): If a kind or a flag is unknown, or a number is out of its range.
    """
    windows = dict(WINDOWS) if windows is None else dict(windows)
    if gazetteers and GAZETTEER not in windows:
        windows[GAZETTEER] = 1
    template = Template(
        windows, tuple(affixes), tuple(flags), bigrams or {}, gazetteers or {}, min_count
    )
    _check(template)
    return template


def _check(template: Template) -> None:
    where = "spacy_costner.Features"
    for field_name in ("windows", "bigrams"):
        for kind, window in getattr(template, field_name).items():
            _check_kind(kind, f"{where}: {field_name}")
            least = 0 if field_name == "windows" else 1
            _check_count(window, least, f"{where}: {field_name}.{kind}")
    for kind in template.bigrams:
        if kind not in template.windows:
            raise ValueError(
                f"{where}: bigrams: expected some of the kinds in windows, "
                f"{', '.join(template.windows)}, got {kind!r}"
            )
    for size in template.affixes:
        _check_count(size, 1, f"{where}: affixes")
    for name in template.flags:
        if name not in FLAGS:
            raise ValueError(f"{where}: flags: expected some of {', '.join(FLAGS)}, got {name!r}")
    by_kind = template.min_count
    for count in by_kind.values() if isinstance(by_kind, Mapping) else (by_kind,):
        _check_count(count, 1, f"{where}: min_count")
    if isinstance(by_kind, Mapping):
        kinds = {column.kind for column in template.columns}
        if unknown := sorted(set(by_kind) - kinds):
            raise ValueError(
                f"{where}: min_count: expected some of {', '.join(sorted(kinds))}, "
                f"got {', '.join(unknown)}"
            )


def _check_kind(kind: str, where: str) -> None:
    known = (*WORD_VIEWS, *ATTRIBUTES, "prefix", "suffix", "flags", GAZETTEER)
    if kind in known and (kind not in ATTRIBUTES or kind in IDS):
        return
    if not (kind.startswith(EXTENSION) and len(kind) > len(EXTENSION)):
        raise ValueError(
            f"{where}: expected some of {', '.join(known)} or an extension attribute such as "
            f"{EXTENSION}name, got {kind!r}"
        )


def _check_count(value: int, least: int, where: str) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{where}: expected a whole number of at least {least}, got {value!r}")
