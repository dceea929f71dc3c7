"""The template of features in the config, and the kinds of values of words."""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from spacy.attrs import IDS
from spacy.lexeme import Lexeme

WordView = Callable[[Lexeme, str], str | None]
"""A kind of value of a word: maps a lexeme and its text, which is slow to get, to the value or
None."""

YES = "yes"

OWN_FLAGS: dict[str, Callable[[str], bool]] = {
    "has_digit": lambda word: any(map(str.isdigit, word)),
    "has_hyphen": lambda word: "-" in word,
    "has_upper": lambda word: any(map(str.isupper, word)),
    "ends_with_period": lambda word: word.endswith("."),
    "is_first_upper": lambda word: word[:1].isupper(),
}
LEXEME_FLAGS = tuple(
    name for name in IDS if re.match("(IS|LIKE)_", name) and hasattr(Lexeme, name.lower())
)
FLAGS = (*LEXEME_FLAGS, *OWN_FLAGS)


def affix(kind: str, size: int) -> WordView:
    """The first or last characters, of words that are long enough."""
    part = slice(size) if kind == "prefix" else slice(-size, None)
    return lambda _, word: word[part] if len(word) >= size else None


def flag(name: str) -> WordView:
    """A yes-or-no attribute of a word."""
    is_so, attribute = OWN_FLAGS.get(name), name.lower()
    if is_so is None:
        return lambda lexeme, _: YES if getattr(lexeme, attribute) else None
    return lambda _, word: YES if is_so(word) else None


GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|"
    "sigma|tau|upsilon|phi|chi|psi|omega"
)
SPELLINGS = {
    "Roman numeral": re.compile("(?=.)(?:X{0,3})(?:IX|IV|V?I{0,3})"),
    "Greek letter": re.compile(f"(?i:{GREEK})|[\u0391-\u03c9]"),
    "base sequence": re.compile("[ACGTU]{4,}"),
}
"""Types that are a matter of certain letters. They come before the others."""

OUTLINES = {
    "comma": re.compile(","),
    "full stop": re.compile(r"\.+|…"),
    "bracket": re.compile(r"[\[\](){}<>]+"),
    "punctuation": re.compile("[^Aa0]+"),
    "one digit": re.compile("0"),
    "digits": re.compile("0+"),
    "number": re.compile("[-+]?0+(?:[.,:/]0+)+"),
    "one capital": re.compile("A"),
    "capitals": re.compile("A+"),
    "capitalised": re.compile("Aa+"),
    "lower case": re.compile("a+"),
    "mixed case": re.compile("[Aa]+"),
    "letters, then digits": re.compile("[Aa]+[-./]?0+"),
    "digits, then letters": re.compile("0+[-./]?[Aa]+"),
}
"""Types of words in which each capital is A, each other letter a, each digit 0."""


def character_type(_: Lexeme, word: str) -> str:
    """The first of 17 types that fits a word as a whole, after those of Zhou and Su (2004);
    "other" if none does."""
    outline = "".join(map(_outline, word))
    for types, written in ((SPELLINGS, word), (OUTLINES, outline)):
        for name, pattern in types.items():
            if pattern.fullmatch(written):
                return name
    return "other"


def _outline(character: str) -> str:
    if character.isdigit():
        return "0"
    if character.isalpha():
        return "A" if character.isupper() else "a"
    return character


WORD_VIEWS: dict[str, WordView] = {
    "ORTH": lambda _, word: word,
    "LOWER": lambda lexeme, _: lexeme.lower_,
    "SHAPE": lambda lexeme, _: lexeme.shape_,
    "character_type": character_type,
}

ATTRIBUTES = (
    "NORM", "PREFIX", "SUFFIX", "CLUSTER", "LEMMA", "POS", "TAG", "DEP", "MORPH", "ENT_TYPE",
    "ENT_ID", "ENT_KB_ID", "LANG",
)  # fmt: skip
"""Those of spaCy that are looked up in docs, as a token can have its own, beside ORTH, LOWER
and SHAPE."""

EXTENSION = "_."
CASELESS = "caseless"
GAZETTEER = "gazetteer"
MEMORY = "memory"
ELSEWHERE = "elsewhere"
DOCUMENT = "document"
CLUSTERS = "clusters"
VECTORS = "vectors"
DOC = "doc"
WINDOWS = {"ORTH": 2, "LOWER": 2, "SHAPE": 2, "prefix": 1, "suffix": 1, "flags": 1}
AFFIXES = (1, 2, 3, 4)
DEFAULT_FLAGS = ("is_first_upper", "IS_UPPER", "IS_DIGIT", "has_digit", "has_hyphen")


class Form(Enum):
    """Where the values of a column come from."""

    WORD = "the word"
    TOKEN = "the token, as its doc has it"
    CLUSTER = "the clusters of the word: Clusters"
    PAIR = "another column, at the token and at the next"
    MEMORY = "the labels of the token's attribute in the training data: LabelMemory"
    BEFORE = "another column, before other occurrences: nearest_elsewhere"
    AFTER = "another column, after other occurrences: nearest_elsewhere"
    DOCUMENT = "the labels of other occurrences in a first pass: find_labels_elsewhere"


class Column(NamedTuple):
    """One kind of value of a token. A token may have several values of one kind, in any order.

    name (str): The start of the names of its features.
    offsets (tuple[int, ...]): The offsets of its slots, 0 for the token itself.
    kind (str): Its name in the config.
    form (Form): Where its values come from.
    view (WordView | None): Computes the value of a word.
    of (str): The other column, or the attribute, that its values are made of.
    n_nearest (int): The number of other occurrences.
    """

    name: str
    offsets: tuple[int, ...]
    kind: str
    form: Form = Form.TOKEN
    view: WordView | None = None
    of: str = ""
    n_nearest: int = 0


class Template:
    """The template of features.

    windows (dict[str, int] | None): For each kind of feature, up to how many tokens to either
        side it is used; 0 for the token only. Kinds are attributes of spaCy such as ORTH,
        LOWER, NORM, SHAPE, TAG, POS and LEMMA; "_.name" for an extension attribute of tokens;
        "prefix", "suffix", "flags", "character_type" and "gazetteer"; "caseless", the word in docs
        in lower case or in capitals. If left out, ORTH, LOWER and SHAPE with 2, prefix, suffix and
        flags with 1.
    affixes (Sequence[int]): The lengths of prefixes and suffixes in characters.
    flags (Sequence[str]): What "flags" are: spaCy's yes-or-no attributes of words,
        such as IS_TITLE, and has_digit, has_hyphen, has_upper, is_first_upper and
        ends_with_period.
    bigrams (dict[str, int] | None): The kinds, of those in windows, of which pairs of
        neighbours are features too, and how far to either side.
    gazetteers (dict[str, str] | None): Files with a phrase on each line, by the name that
        their features get. Upper and lower case are the same to them.
    min_count (int | dict[str, int]): How often a value has to be in the training data
        to be a feature; for all kinds, or by kind. "LOWER+LOWER" is that of pairs.
    memory (dict[str, int] | None): Attributes such as LOWER, or extension attributes, of
        which tokens see how often their value had each label in the training data, and up to
        how many tokens to either side. In training they see it in other units than their own.
    memory_unit (int | str): What a unit is: a "doc"; this number of docs, one after
        another; or the docs with the same value of an extension attribute of docs, "_.name".
    elsewhere (dict[str, int] | None): The kinds, of those in windows, of which capitalised
        words see the values before and after their nearest other occurrences in the doc, and of
        how many of them.
    document (dict[str, int] | None): Attributes such as LOWER, or extension attributes, of
        which capitalised words and words with a digit see the labels that a first pass predicts
        for the other occurrences of their value in the doc, and up to how many tokens to either
        side. The first pass is a model of its own, without these features: see `FirstPass`.
    clusters (Sequence[str]): Files of the clusters of words: see `read_clusters`. Their kind in
        windows is "clusters".
    vectors (Sequence[int]): Numbers of clusters that the words with a static vector are divided
        into. Their kind in windows is "vectors".
    RAISES (ValueError): If a kind or a flag is unknown, or a number is out of its range.
    """

    def __init__(
        self,
        *,
        windows: dict[str, int] | None = None,
        affixes: Sequence[int] = AFFIXES,
        flags: Sequence[str] = DEFAULT_FLAGS,
        bigrams: dict[str, int] | None = None,
        gazetteers: dict[str, str] | None = None,
        min_count: int | dict[str, int] = 1,
        memory: dict[str, int] | None = None,
        memory_unit: int | str = DOC,
        elsewhere: dict[str, int] | None = None,
        document: dict[str, int] | None = None,
        clusters: Sequence[str] = (),
        vectors: Sequence[int] = (),
    ) -> None:
        self.windows = dict(WINDOWS if windows is None else windows)
        if gazetteers and GAZETTEER not in self.windows:
            self.windows[GAZETTEER] = 1
        for kind, given in ((CLUSTERS, clusters), (VECTORS, vectors)):
            if given and kind not in self.windows:
                self.windows[kind] = 2
        self.affixes, self.flags = tuple(affixes), tuple(flags)
        self.bigrams, self.gazetteers = bigrams or {}, gazetteers or {}
        self.min_count = min_count
        self.memory, self.memory_unit = memory or {}, memory_unit
        self.elsewhere, self.document = elsewhere or {}, document or {}
        self.clusters, self.vectors = tuple(clusters), tuple(dict.fromkeys(vectors))
        _check(self)

    @property
    def columns(self) -> list[Column]:
        """The columns, in the order of their features."""
        columns = []
        clusterings = {VECTORS: [VECTORS][: len(self.vectors)], CLUSTERS: [*self.cluster_files]}
        for kind, window in self.windows.items():
            for name, view in self._views(kind).items():
                form = Form.WORD if view else Form.TOKEN
                columns.append(Column(name, around(window), kind, form, view))
            for name in clusterings.get(kind, ()):
                columns.append(Column(name, around(window), kind, Form.CLUSTER, of="LOWER"))
        for kind, window in self.bigrams.items():
            for name in self._views(kind):
                two, both = f"{name}+{name}", f"{kind}+{kind}"
                columns.append(Column(two, around(window)[:-1], both, Form.PAIR, of=name))
        for kind, window in self.memory.items():
            name = f"{MEMORY}:{kind}"
            columns.append(Column(name, around(window), MEMORY, Form.MEMORY, of=kind))
        for kind, n_nearest in self.elsewhere.items():
            for place, form in (("[-1]", Form.BEFORE), ("[+1]", Form.AFTER)):
                name = f"{ELSEWHERE}:{kind}{place}"
                columns.append(Column(name, (0,), ELSEWHERE, form, None, kind, n_nearest))
        for kind, window in self.document.items():
            name = f"{DOCUMENT}:{kind}"
            columns.append(Column(name, around(window), DOCUMENT, Form.DOCUMENT, of=kind))
        return columns

    @property
    def cluster_files(self) -> dict[str, str]:
        """The files of clusters, by the names of their columns."""
        return {f"{CLUSTERS}:{Path(path).stem}": path for path in self.clusters}

    def least_count(self, kind: str) -> int:
        """How often a value has to occur to be a feature."""
        counts = self.min_count
        return counts.get(kind, 1) if isinstance(counts, Mapping) else counts

    def _views(self, kind: str) -> dict[str, WordView | None]:
        """The columns of a kind, with their views of words; None for values of tokens."""
        if kind in ("prefix", "suffix"):
            return {f"{kind}{size}": affix(kind, size) for size in self.affixes}
        if kind == "flags":
            return {name: flag(name) for name in self.flags}
        if kind in (CLUSTERS, VECTORS):
            return {}
        if kind == GAZETTEER:
            return {f"{kind}:{name}": None for name in self.gazetteers}
        return {kind: WORD_VIEWS.get(kind)}


def around(window: int) -> tuple[int, ...]:
    """The offsets of a window to both sides of a token."""
    return tuple(range(-window, window + 1))


def attributes_of(columns: Sequence[Column]) -> list[str]:
    """What columns read of tokens besides their words: attributes, extension attributes, names of
    columns of gazetteers."""
    others = [column for column in columns if column.form not in (Form.WORD, Form.PAIR)]
    return [*dict.fromkeys(column.of or column.name for column in others)]


def _check(template: Template) -> None:
    attributes = [name for name in (*WORD_VIEWS, *ATTRIBUTES) if name in IDS]
    others = ["character_type", "prefix", "suffix", "flags", CASELESS, GAZETTEER, CLUSTERS, VECTORS]
    leasts = {"windows": 0, "bigrams": 1, MEMORY: 0, ELSEWHERE: 1, DOCUMENT: 0}
    for setting, least in leasts.items():
        known = attributes + (others if setting in ("windows", "bigrams") else [])
        some = f"some of {', '.join(known)} or an extension attribute such as {EXTENSION}name"
        for kind, value in getattr(template, setting).items():
            _expect(kind in known or _is_extension(kind), setting, some, kind)
            _expect_number(value, least, f"{setting}.{kind}")
    some = f"some of the kinds in windows, {', '.join(template.windows)}"
    for setting in ("bigrams", ELSEWHERE):
        for kind in getattr(template, setting):
            _expect(kind in template.windows, setting, some, kind)
    for setting in (VECTORS, "affixes"):
        for size in getattr(template, setting):
            _expect_number(size, 1, setting)
    for name in template.flags:
        _expect(name in FLAGS, "flags", f"some of {', '.join(FLAGS)}", name)
    are_named_apart = len(template.cluster_files) == len(template.clusters)
    _expect(are_named_apart, CLUSTERS, "files of different names", [*template.clusters])
    unit = template.memory_unit
    some = f"{DOC!r}, a number of docs or an extension attribute of docs such as {EXTENSION}name"
    is_number = isinstance(unit, int) and unit >= 1
    _expect(is_number or unit == DOC or _is_extension(unit), "memory_unit", some, unit)
    counts = template.min_count if isinstance(template.min_count, Mapping) else {}
    kinds = sorted({*template.windows, *(f"{kind}+{kind}" for kind in template.bigrams)})
    for kind in counts:
        _expect(kind in kinds, "min_count", f"some of {', '.join(kinds)}", kind)
    for kind in counts or [""]:
        _expect_number(template.least_count(kind), 1, "min_count")


def _is_extension(kind: object) -> bool:
    return isinstance(kind, str) and kind.startswith(EXTENSION) and len(kind) > len(EXTENSION)


def _expect_number(value: int, least: int, setting: str) -> None:
    is_right = isinstance(value, int) and value >= least
    _expect(is_right, setting, f"a whole number of at least {least}", value)


def _expect(is_right: bool, setting: str, expected: str, value: object) -> None:
    if not is_right:
        raise ValueError(f"spacy_costner.Features: {setting}: expected {expected}, got {value!r}")
