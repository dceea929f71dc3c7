"""The template of features in the config, and the columns that it makes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from spacy.attrs import IDS

from .attributes import AttributeColumn, CaselessColumn
from .clusters import FileClusterColumn, VectorClusterColumn
from .column import Column, Window
from .document import DocumentColumn
from .elsewhere import ElsewhereColumn
from .gazetteers import GazetteerColumn
from .label_counts import DOC
from .memory import MemoryColumn
from .pairs import PairColumn
from .static_vectors import VectorColumn
from .tokens import EXTENSION
from .words import FLAGS, WORD_VIEWS, WordColumn, flag, prefix, suffix

ATTRIBUTES = (
    "NORM", "PREFIX", "SUFFIX", "CLUSTER", "LEMMA", "POS", "TAG", "DEP", "MORPH", "ENT_TYPE",
    "ENT_ID", "ENT_KB_ID", "LANG",
)  # fmt: skip
"""Those of spaCy that are looked up in docs, as a token can have its own, beside ORTH, LOWER
and SHAPE."""

GAZETTEER = "gazetteer"
CLUSTERS = "clusters"
VECTORS = "vectors"
STATIC_VECTORS = "static_vectors"

DEFAULT_WINDOWS = {"ORTH": 2, "LOWER": 2, "SHAPE": 2, "prefix": 1, "suffix": 1, "flags": 1}
AFFIXES = (1, 2, 3, 4)
DEFAULT_FLAGS = ("is_first_upper", "IS_UPPER", "IS_DIGIT", "has_digit", "has_hyphen")


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
    include_static_vectors (bool): Whether the numbers of the static vectors of words are inputs,
        each with a weight for each tag. Their kind in windows is "static_vectors".
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
        include_static_vectors: bool = False,
    ) -> None:
        self.windows = dict(DEFAULT_WINDOWS if windows is None else windows)
        if gazetteers:
            self.windows.setdefault(GAZETTEER, 1)
        if clusters:
            self.windows.setdefault(CLUSTERS, 2)
        if vectors:
            self.windows.setdefault(VECTORS, 2)
        if include_static_vectors:
            self.windows.setdefault(STATIC_VECTORS, 1)
        self.affixes = tuple(affixes)
        self.flags = tuple(flags)
        self.bigrams = bigrams or {}
        self.gazetteers = gazetteers or {}
        self.min_count = min_count
        self.memory = memory or {}
        self.memory_unit = memory_unit
        self.elsewhere = elsewhere or {}
        self.document = document or {}
        self.clusters = tuple(clusters)
        self.vectors = tuple(dict.fromkeys(vectors))
        self.include_static_vectors = include_static_vectors
        _check(self)

    def make_columns(self) -> list[Column]:
        """Make the columns, without values, in the order of their features. A column that is made
        of another's values stands after it."""
        columns: list[Column] = []
        columns_of_kind: dict[str, list[Column]] = {}
        for kind, size in self.windows.items():
            window = Window(around(size), self.least_count(kind))
            columns_of_kind[kind] = self._make_columns_of_kind(kind, window)
            columns += columns_of_kind[kind]
        for kind, size in self.bigrams.items():
            if kind in (CLUSTERS, VECTORS, STATIC_VECTORS):
                continue  # a word may have several clusters or numbers, which make no single pair
            window = Window(around(size)[:-1], self.least_count(f"{kind}+{kind}"))
            columns += [PairColumn(base, window) for base in columns_of_kind[kind]]
        for attribute, size in self.memory.items():
            columns.append(MemoryColumn(attribute, Window(around(size))))
        for attribute, n_nearest in self.elsewhere.items():
            (base,) = columns_of_kind[attribute]
            columns.append(ElsewhereColumn(base, -1, n_nearest))
            columns.append(ElsewhereColumn(base, 1, n_nearest))
        for attribute, size in self.document.items():
            columns.append(DocumentColumn(attribute, Window(around(size))))
        return columns

    def _make_columns_of_kind(self, kind: str, window: Window) -> list[Column]:
        """The columns of a kind in windows. Other kinds than those of `KINDS` are attributes."""
        if kind in KINDS:
            return KINDS[kind](self, window)
        return [AttributeColumn(kind, window)]

    @property
    def cluster_files(self) -> dict[str, str]:
        """The files of clusters, by the names of their columns."""
        return {f"{CLUSTERS}:{Path(path).stem}": path for path in self.clusters}

    def least_count(self, kind: str) -> int:
        """How often a value has to occur to be a feature."""
        if isinstance(self.min_count, Mapping):
            return self.min_count.get(kind, 1)
        return self.min_count


MakeColumns = Callable[[Template, Window], list[Column]]
"""Makes the columns of a kind, with the settings of a template."""


def make_word_columns(name: str) -> MakeColumns:
    """The only column of a kind in `WORD_VIEWS`."""
    return lambda template, window: [WordColumn(name, window, WORD_VIEWS[name])]


def make_prefix_columns(template: Template, window: Window) -> list[Column]:
    """A column for each length."""
    sizes = dict.fromkeys(template.affixes)
    return [WordColumn(f"prefix{size}", window, prefix(size)) for size in sizes]


def make_suffix_columns(template: Template, window: Window) -> list[Column]:
    """A column for each length."""
    sizes = dict.fromkeys(template.affixes)
    return [WordColumn(f"suffix{size}", window, suffix(size)) for size in sizes]


def make_flag_columns(template: Template, window: Window) -> list[Column]:
    """A column for each flag."""
    return [WordColumn(name, window, flag(name)) for name in dict.fromkeys(template.flags)]


def make_gazetteer_columns(template: Template, window: Window) -> list[Column]:
    """A column for each gazetteer."""
    files = template.gazetteers.items()
    return [GazetteerColumn(f"{GAZETTEER}:{name}", window, path) for name, path in files]


def make_cluster_columns(template: Template, window: Window) -> list[Column]:
    """A column for each file of clusters."""
    files = template.cluster_files.items()
    return [FileClusterColumn(name, window, path) for name, path in files]


def make_vector_columns(template: Template, window: Window) -> list[Column]:
    """One column for all numbers of clusters of static vectors."""
    if not template.vectors:
        return []
    return [VectorClusterColumn(VECTORS, window, template.vectors)]


def make_static_vector_columns(template: Template, window: Window) -> list[Column]:
    """A column of vectors as they are, not of their clusters."""
    if not template.include_static_vectors:
        return []
    return [VectorColumn(STATIC_VECTORS, window)]


KINDS: dict[str, MakeColumns] = {
    **{name: make_word_columns(name) for name in WORD_VIEWS},
    "prefix": make_prefix_columns,
    "suffix": make_suffix_columns,
    "flags": make_flag_columns,
    "caseless": lambda template, window: [CaselessColumn("caseless", window)],
    GAZETTEER: make_gazetteer_columns,
    CLUSTERS: make_cluster_columns,
    VECTORS: make_vector_columns,
    STATIC_VECTORS: make_static_vector_columns,
}
"""The kinds in windows besides attributes of tokens: what makes their columns."""


def around(size: int) -> tuple[int, ...]:
    """The offsets of a window to both sides of a token."""
    return tuple(range(-size, size + 1))


def _check(template: Template) -> None:
    """Check the settings of a template."""
    word_attributes = [name for name in WORD_VIEWS if name in IDS]
    attributes = [*word_attributes, *ATTRIBUTES]
    kinds = [*attributes, *(name for name in KINDS if name not in IDS)]
    _check_windows("windows", template.windows, kinds, least=0)
    _check_windows("bigrams", template.bigrams, kinds, least=1)
    _check_windows("memory", template.memory, attributes, least=0)
    _check_windows("elsewhere", template.elsewhere, attributes, least=1)
    _check_windows("document", template.document, attributes, least=0)
    in_windows = f"some of the kinds in windows, {', '.join(template.windows)}"
    for kind in template.bigrams:
        _expect(kind in template.windows, "bigrams", in_windows, kind)
    for attribute in template.elsewhere:
        _expect(attribute in template.windows, "elsewhere", in_windows, attribute)
    for size in template.vectors:
        _expect_number(size, 1, VECTORS)
    for size in template.affixes:
        _expect_number(size, 1, "affixes")
    for name in template.flags:
        _expect(name in FLAGS, "flags", f"some of {', '.join(FLAGS)}", name)
    have_different_names = len(template.cluster_files) == len(template.clusters)
    _expect(have_different_names, CLUSTERS, "files of different names", [*template.clusters])
    _check_memory_unit(template.memory_unit)
    _check_min_count(template)


def _check_windows(
    setting: str, windows: Mapping[str, int], kinds: Sequence[str], *, least: int
) -> None:
    """Check the kinds of a setting, and the number of each."""
    expected = f"some of {', '.join(kinds)} or an extension attribute such as {EXTENSION}name"
    for kind, size in windows.items():
        _expect(kind in kinds or _is_extension(kind), setting, expected, kind)
        _expect_number(size, least, f"{setting}.{kind}")


def _check_memory_unit(unit: object) -> None:
    is_number = isinstance(unit, int) and unit >= 1
    is_unit = is_number or unit == DOC or _is_extension(unit)
    extension = f"an extension attribute of docs such as {EXTENSION}name"
    _expect(is_unit, "memory_unit", f"{DOC!r}, a number of docs or {extension}", unit)


def _check_min_count(template: Template) -> None:
    if not isinstance(template.min_count, Mapping):
        _expect_number(template.min_count, 1, "min_count")
        return
    pairs = [f"{kind}+{kind}" for kind in template.bigrams]
    kinds = sorted({*template.windows, *pairs})
    for kind, count in template.min_count.items():
        _expect(kind in kinds, "min_count", f"some of {', '.join(kinds)}", kind)
        _expect_number(count, 1, "min_count")


def _is_extension(kind: object) -> bool:
    return isinstance(kind, str) and kind.startswith(EXTENSION) and len(kind) > len(EXTENSION)


def _expect_number(number: int, least: int, setting: str) -> None:
    is_right = isinstance(number, int) and number >= least
    _expect(is_right, setting, f"a whole number of at least {least}", number)


def _expect(is_right: bool, setting: str, expected: str, value: object) -> None:
    if not is_right:
        raise ValueError(f"spacy_costner.Features: {setting}: expected {expected}, got {value!r}")
