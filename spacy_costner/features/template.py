"""The template of features in the config."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
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
    offsets (Tuple[int, ...]): The offsets of its slots, 0 for the token itself.
    kind (str): Its name in the config.
    form (Form): Where its values come from.
    view (Optional[WordView]): Computes the value of a word.
    of (str): The other column, or the attribute, that its values are made of.
    n_nearest (int): The number of other occurrences.
    """

    name: str
    offsets: Tuple[int, ...]
    kind: str
    form: Form = Form.TOKEN
    view: Optional[WordView] = None
    of: str = ""
    n_nearest: int = 0

    @property
    def has_values(self) -> bool:
        """Whether it has values of its own, counted in the training data."""
        return self.form in (Form.WORD, Form.TOKEN, Form.CLUSTER)


@dataclass(frozen=True)
class Template:
    """The template of features: see `make_features`."""

    windows: Mapping[str, int] = field(default_factory=lambda: dict(WINDOWS))
    affixes: Sequence[int] = AFFIXES
    flags: Sequence[str] = DEFAULT_FLAGS
    bigrams: Mapping[str, int] = field(default_factory=dict)
    gazetteers: Mapping[str, str] = field(default_factory=dict)
    min_count: Union[int, Mapping[str, int]] = 1
    memory: Mapping[str, int] = field(default_factory=dict)
    memory_unit: Union[int, str] = DOC
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    document: Mapping[str, int] = field(default_factory=dict)
    clusters: Sequence[str] = ()
    vectors: Sequence[int] = ()

    @property
    def columns(self) -> List[Column]:
        """The columns, in the order of their features."""
        columns = []
        for kind, window in self.windows.items():
            offsets = tuple(range(-window, window + 1))
            columns += [
                Column(name, offsets, kind, Form.WORD if view else Form.TOKEN, view)
                for name, view in self._views(kind).items()
            ]
            columns += [
                Column(name, offsets, kind, Form.CLUSTER, of="LOWER")
                for name in self._clusterings(kind)
            ]
        for kind, window in self.bigrams.items():
            offsets = tuple(range(-window, window))
            columns += [
                Column(f"{name}+{name}", offsets, f"{kind}+{kind}", Form.PAIR, of=name)
                for name in self._views(kind)
            ]
        for kind, window in self.memory.items():
            offsets = tuple(range(-window, window + 1))
            columns.append(Column(f"{MEMORY}:{kind}", offsets, MEMORY, Form.MEMORY, of=kind))
        for kind, n_nearest in self.elsewhere.items():
            columns += [
                Column(f"{ELSEWHERE}:{kind}{place}", (0,), ELSEWHERE, form, None, kind, n_nearest)
                for place, form in (("[-1]", Form.BEFORE), ("[+1]", Form.AFTER))
            ]
        for kind, window in self.document.items():
            offsets = tuple(range(-window, window + 1))
            columns.append(Column(f"{DOCUMENT}:{kind}", offsets, DOCUMENT, Form.DOCUMENT, of=kind))
        return columns

    @property
    def cluster_files(self) -> Dict[str, str]:
        """The files of clusters, by the names of their columns."""
        return {f"{CLUSTERS}:{Path(path).stem}": path for path in self.clusters}

    def _clusterings(self, kind: str) -> List[str]:
        """The columns of clusters of a kind."""
        if kind == VECTORS:
            return [VECTORS] if self.vectors else []
        return [*self.cluster_files] if kind == CLUSTERS else []

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
        if kind in (CLUSTERS, VECTORS):
            return {}
        if kind == GAZETTEER:
            return {f"{kind}:{name}": None for name in self.gazetteers}
        return {kind: WORD_VIEWS.get(kind)}


def attributes_of(columns: Sequence[Column]) -> List[str]:
    """What columns read of tokens besides their words: attributes, extension attributes, names of
    columns of gazetteers."""
    names = [
        column.name if column.form == Form.TOKEN else column.of
        for column in columns
        if column.form not in (Form.WORD, Form.PAIR)
    ]
    return [*dict.fromkeys(names)]


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
    memory: Optional[Dict[str, int]] = None,
    memory_unit: Union[int, str] = DOC,
    elsewhere: Optional[Dict[str, int]] = None,
    document: Optional[Dict[str, int]] = None,
    clusters: Sequence[str] = (),
    vectors: Sequence[int] = (),
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
    memory (Optional[Dict[str, int]]): Attributes such as LOWER, or extension attributes, of
        which tokens see how often their value had each label in the training data, and up to
        how many tokens to either side. In training they see it in other units than their own.
    memory_unit (Union[int, str]): What a unit is: a "doc"; this number of docs, one after
        another; or the docs with the same value of an extension attribute of docs, "_.name".
    elsewhere (Optional[Dict[str, int]]): The kinds, of those in windows, of which capitalised
        words see the values before and after their nearest other occurrences in the doc, and of
        how many of them.
    document (Optional[Dict[str, int]]): Attributes such as LOWER, or extension attributes, of
        which capitalised words and words with a digit see the labels that a first pass predicts
        for the other occurrences of their value in the doc, and up to how many tokens to either
        side. The first pass is a model of its own, without these features: see `FirstPass`.
    clusters (Sequence[str]): Files of the clusters of words: see `read_clusters`. Their kind in
        windows is "clusters".
    vectors (Sequence[int]): Numbers of clusters that the words with a static vector are divided
        into. Their kind in windows is "vectors".
    RETURNS (Template): The template.
    RAISES (ValueError): If a kind or a flag is unknown, or a number is out of its range.
    """
    windows = dict(WINDOWS) if windows is None else dict(windows)
    if gazetteers and GAZETTEER not in windows:
        windows[GAZETTEER] = 1
    for kind, given in ((CLUSTERS, clusters), (VECTORS, vectors)):
        if given and kind not in windows:
            windows[kind] = 2
    template = Template(
        windows,
        tuple(affixes),
        tuple(flags),
        bigrams or {},
        gazetteers or {},
        min_count,
        memory or {},
        memory_unit,
        elsewhere or {},
        document or {},
        tuple(clusters),
        tuple(dict.fromkeys(vectors)),
    )
    _check(template)
    return template


def _check(template: Template) -> None:
    where = "spacy_costner.Features"
    leasts = {"windows": 0, "bigrams": 1, MEMORY: 0, ELSEWHERE: 1, DOCUMENT: 0}
    for field_name, least in leasts.items():
        is_attribute = field_name in (MEMORY, ELSEWHERE, DOCUMENT)
        for kind, value in getattr(template, field_name).items():
            _check_kind(kind, f"{where}: {field_name}", is_attribute=is_attribute)
            _check_count(value, least, f"{where}: {field_name}.{kind}")
    for field_name in ("bigrams", "elsewhere"):
        for kind in getattr(template, field_name):
            if kind not in template.windows:
                raise ValueError(
                    f"{where}: {field_name}: expected some of the kinds in windows, "
                    f"{', '.join(template.windows)}, got {kind!r}"
                )
    for size in template.vectors:
        _check_count(size, 1, f"{where}: vectors")
    for size in template.affixes:
        _check_count(size, 1, f"{where}: affixes")
    for name in template.flags:
        if name not in FLAGS:
            raise ValueError(f"{where}: flags: expected some of {', '.join(FLAGS)}, got {name!r}")
    if len(template.cluster_files) < len(template.clusters):
        raise ValueError(
            f"{where}: clusters: expected files of different names, got {[*template.clusters]}"
        )
    _check_unit(template.memory_unit, f"{where}: memory_unit")
    _check_min_count(template, f"{where}: min_count")


def _check_min_count(template: Template, where: str) -> None:
    by_kind = template.min_count
    for count in by_kind.values() if isinstance(by_kind, Mapping) else (by_kind,):
        _check_count(count, 1, where)
    if isinstance(by_kind, Mapping):
        kinds = {*template.windows, *(f"{kind}+{kind}" for kind in template.bigrams)}
        if unknown := sorted(set(by_kind) - kinds):
            raise ValueError(
                f"{where}: expected some of {', '.join(sorted(kinds))}, got {', '.join(unknown)}"
            )


def _check_kind(kind: str, where: str, *, is_attribute: bool) -> None:
    """Check a kind, or one that each token has one value of which spaCy knows."""
    known = [name for name in (*WORD_VIEWS, *ATTRIBUTES) if name in IDS]
    if not is_attribute:
        known += ["character_type", "prefix", "suffix", "flags", GAZETTEER, CLUSTERS, VECTORS]
    if kind in known or (kind.startswith(EXTENSION) and len(kind) > len(EXTENSION)):
        return
    raise ValueError(
        f"{where}: expected some of {', '.join(known)} or an extension attribute such as "
        f"{EXTENSION}name, got {kind!r}"
    )


def _check_unit(unit: Union[int, str], where: str) -> None:
    if (isinstance(unit, int) and unit >= 1) or unit == DOC:
        return
    if not (isinstance(unit, str) and unit.startswith(EXTENSION) and len(unit) > len(EXTENSION)):
        raise ValueError(
            f"{where}: expected {DOC!r}, a number of docs or an extension attribute of docs such "
            f"as {EXTENSION}name, got {unit!r}"
        )


def _check_count(value: int, least: int, where: str) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{where}: expected a whole number of at least {least}, got {value!r}")
