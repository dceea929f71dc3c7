"""The feature template in the config and the columns it creates.

A column provides one kind of value for each token. A *kind* is a name in the setting `windows`,
such as "LOWER" or "prefix". `FEATURE_KINDS` maps kinds to functions that create their columns. A
kind can have several columns, such as one for each prefix length. Any other kind is a token
attribute, such as "TAG".
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
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
    "NORM", "PREFIX", "SUFFIX", "LEMMA", "POS", "TAG", "DEP", "MORPH", "ENT_TYPE", "ENT_ID",
    "ENT_KB_ID", "LANG",
)  # fmt: skip
"""The spaCy attributes that are read from each token, because tokens of the same word can have
different values. ORTH, LOWER and SHAPE only depend on the word and are defined in `WORD_VIEWS`."""

GAZETTEER = "gazetteer"
CLUSTERS = "clusters"
VECTORS = "vectors"
STATIC_VECTORS = "static_vectors"
"""Kinds that require another setting in addition to `windows`, such as the paths of gazetteers."""

DEFAULT_WINDOWS = {"ORTH": 2, "LOWER": 2, "SHAPE": 2, "prefix": 1, "suffix": 1, "flags": 1}
AFFIXES = (1, 2, 3, 4)
"""The default lengths of prefixes and suffixes."""

DEFAULT_FLAGS = ("is_first_upper", "IS_UPPER", "IS_DIGIT", "has_digit", "has_hyphen")


class Template:
    """The feature template, which defines the features of tokens.

    windows (dict[str, int] | None): The window size of each kind of feature: the number of tokens
        on either side whose values are also used as features. 0 uses only the token itself. Kinds
        are spaCy attributes such as ORTH, LOWER, NORM, SHAPE, TAG, POS and LEMMA; "_.name" for an
        extension attribute of tokens; "prefix", "suffix", "flags", "character_type" and
        "gazetteer"; and "caseless", the lowercase form of words in docs that are all lowercase or
        all uppercase. None: 2 for ORTH, LOWER and SHAPE, and 1 for prefix, suffix and flags.
    affixes (Sequence[int]): The lengths of prefixes and suffixes in characters.
    flags (Sequence[str]): The flags of the kind "flags": spaCy's boolean lexeme attributes, such as
        IS_TITLE, as well as has_digit, has_hyphen, has_upper, is_first_upper and ends_with_period.
    bigrams (dict[str, int] | None): Kinds in `windows` for which pairs of adjacent tokens' values
        are also used as features, with their window sizes. Not available for clusters and vectors.
    gazetteers (dict[str, str] | None): Paths of files with one phrase per line, keyed by name. The
        names are used in feature names. Matching is case-insensitive. The kind in `windows` is
        "gazetteer", with a default size of 1.
    min_count (int | dict[str, int]): The minimum number of times a value has to occur in the
        training docs. Either a number for all kinds or a dictionary of numbers for some kinds.
        "LOWER+LOWER" is the kind for pairs of LOWER.
    memory (dict[str, int] | None): Attributes such as LOWER, or extension attributes, for label
        memory, with their window sizes. Label memory provides features that describe how often a
        token's value had each label in the training docs. In training, the labels in the token's
        own unit are ignored.
    memory_unit (int | str): The unit of label memory: "doc" for single docs, a number for groups of
        that many consecutive docs, or "_.name" to group docs by the value of an extension attribute
        of docs.
    elsewhere (dict[str, int] | None): Kinds in `windows` for features based on other occurrences of
        a capitalised word in the same doc: the values of the tokens before and after those
        occurrences. The number specifies how many of the nearest occurrences to use.
    document (dict[str, int] | None): Attributes such as LOWER, or extension attributes, with their
        window sizes. They provide features based on the labels that a first pass predicts for other
        occurrences of the same word in the doc. Only words that are capitalised or contain a digit
        have these features. Words are the same if they have the same value for the attribute. The
        first pass is a separate model without these features: see `FirstPass`.
    clusters (Sequence[str]): Paths of files with word clusters: see `read_clusters`. The kind in
        `windows` is "clusters", with a default size of 2.
    vectors (Sequence[int]): The numbers of clusters to create from the words with static vectors.
        The kind in `windows` is "vectors", with a default size of 2.
    include_static_vectors (bool): Whether to use the static word vectors as inputs, with a weight
        for each dimension and tag. The kind in `windows` is "static_vectors", with a default size
        of 0.
    RAISES (ValueError): If a setting is invalid, for example if a kind or a flag is unknown or a
        number is out of range.
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
            self.windows.setdefault(STATIC_VECTORS, 0)

        # Remove duplicates, because they would create the same features twice.
        self.affixes = tuple(dict.fromkeys(affixes))
        self.flags = tuple(dict.fromkeys(flags))
        self.vectors = tuple(dict.fromkeys(vectors))

        self.bigrams = bigrams or {}
        self.gazetteers = gazetteers or {}
        self.min_count = min_count
        self.memory = memory or {}
        self.memory_unit = memory_unit
        self.elsewhere = elsewhere or {}
        self.document = document or {}
        self.clusters = tuple(clusters)
        self.include_static_vectors = include_static_vectors
        self.hidden_window: int | None = None  # set by `with_hidden_window`
        _check(self)

    def with_hidden_window(self, size: int) -> "Template":
        """Return a copy of the template for a model with a hidden layer. The inputs to the layer
        are the types and static vectors of the token and of up to `size` tokens on either side."""
        template = copy(self)
        template.hidden_window = size
        return template

    def make_columns(self) -> list[Column]:
        """Create the columns without values, in the order of their features. A column that depends
        on another column comes after it."""
        columns: list[Column] = []
        columns_of_kind: dict[str, list[Column]] = {}
        for kind, size in self.windows.items():
            window = Window(offsets_around(size), self.min_count_of(kind))
            if kind in FEATURE_KINDS:
                columns_of_kind[kind] = FEATURE_KINDS[kind](self, window)
            else:
                columns_of_kind[kind] = [AttributeColumn(kind, window)]
            columns.extend(columns_of_kind[kind])

        for kind, size in self.bigrams.items():
            # Each token in the window except the last one starts a pair.
            window = Window(offsets_around(size)[:-1], self.min_count_of(f"{kind}+{kind}"))
            for base in columns_of_kind[kind]:
                columns.append(PairColumn(base, window))

        for attribute, size in self.memory.items():
            columns.append(MemoryColumn(attribute, Window(offsets_around(size))))
        for attribute, n_nearest in self.elsewhere.items():
            (base,) = columns_of_kind[attribute]  # attributes have a single column
            columns.append(ElsewhereColumn(base, side=-1, n_nearest=n_nearest))
            columns.append(ElsewhereColumn(base, side=1, n_nearest=n_nearest))
        for attribute, size in self.document.items():
            columns.append(DocumentColumn(attribute, Window(offsets_around(size))))
        return columns

    @property
    def cluster_files(self) -> dict[str, str]:
        """The paths of cluster files, keyed by column name. For example, the column name for
        "corpus/brown.txt" is "clusters:brown"."""
        return {f"{CLUSTERS}:{Path(path).stem}": path for path in self.clusters}

    def min_count_of(self, kind: str) -> int:
        """Return the minimum number of times a value of this kind has to occur in the training
        docs."""
        if isinstance(self.min_count, Mapping):
            return self.min_count.get(kind, 1)
        return self.min_count


MakeColumns = Callable[[Template, Window], list[Column]]
"""Function that creates the columns of a kind, using the settings of a template."""


def word_column_maker(kind: str) -> MakeColumns:
    """Return a function that creates a column of the given kind, for kinds that depend only on the
    word, such as its shape. `WORD_VIEWS` defines how the values of these kinds are computed."""

    def make_word_column(template: Template, window: Window) -> list[Column]:
        return [WordColumn(kind, window, WORD_VIEWS[kind])]

    return make_word_column


def make_prefix_columns(template: Template, window: Window) -> list[Column]:
    """Create a column for each prefix length."""
    return [WordColumn(f"prefix{size}", window, prefix(size)) for size in template.affixes]


def make_suffix_columns(template: Template, window: Window) -> list[Column]:
    """Create a column for each suffix length."""
    return [WordColumn(f"suffix{size}", window, suffix(size)) for size in template.affixes]


def make_flag_columns(template: Template, window: Window) -> list[Column]:
    """Create a column for each flag."""
    return [WordColumn(name, window, flag(name)) for name in template.flags]


def make_caseless_column(template: Template, window: Window) -> list[Column]:
    """Create the column for words in docs that are all lowercase or all uppercase."""
    return [CaselessColumn("caseless", window)]


def make_gazetteer_columns(template: Template, window: Window) -> list[Column]:
    """Create a column for each gazetteer."""
    columns: list[Column] = []
    for name, path in template.gazetteers.items():
        columns.append(GazetteerColumn(f"{GAZETTEER}:{name}", window, path))
    return columns


def make_cluster_columns(template: Template, window: Window) -> list[Column]:
    """Create a column for each cluster file."""
    columns: list[Column] = []
    for name, path in template.cluster_files.items():
        columns.append(FileClusterColumn(name, window, path))
    return columns


def make_vector_columns(template: Template, window: Window) -> list[Column]:
    """Create the column for clusters of static vectors. Returns an empty list if `vectors` is
    empty."""
    if not template.vectors:
        return []
    return [VectorClusterColumn(VECTORS, window, template.vectors)]


def make_static_vector_columns(template: Template, window: Window) -> list[Column]:
    """Create the column for static vectors. Returns an empty list if they aren't used as inputs."""
    if not template.include_static_vectors:
        return []
    # The hidden layer has a separate window.
    hidden_offsets: tuple[int, ...] = ()
    if template.hidden_window is not None:
        hidden_offsets = offsets_around(template.hidden_window)
    return [VectorColumn(STATIC_VECTORS, window, hidden_offsets)]


FEATURE_KINDS: dict[str, MakeColumns] = {
    **{kind: word_column_maker(kind) for kind in WORD_VIEWS},
    "prefix": make_prefix_columns,
    "suffix": make_suffix_columns,
    "flags": make_flag_columns,
    "caseless": make_caseless_column,
    GAZETTEER: make_gazetteer_columns,
    CLUSTERS: make_cluster_columns,
    VECTORS: make_vector_columns,
    STATIC_VECTORS: make_static_vector_columns,
}
"""Functions that create the columns of each kind in `windows`. Kinds that aren't listed here are
token attributes and use `AttributeColumn`."""


def offsets_around(size: int) -> tuple[int, ...]:
    """Return the offsets of a window with `size` tokens on either side. For example, the offsets
    for a size of 1 are -1, 0 and 1."""
    return tuple(range(-size, size + 1))


def _check(template: Template) -> None:
    """Validate the settings of a template.

    RAISES (ValueError): If a setting is invalid. The error message includes its name.
    """
    # The kinds are spaCy's attributes, which are listed in `IDS`, and custom kinds.
    word_attributes = [kind for kind in WORD_VIEWS if kind in IDS]  # ORTH, LOWER and SHAPE
    attributes = [*word_attributes, *ATTRIBUTES]
    own_kinds = [kind for kind in FEATURE_KINDS if kind not in IDS]
    kinds = [*attributes, *own_kinds]
    _check_windows("windows", template.windows, kinds, least=0)
    # Bigrams require a single value per token. A word can have several clusters, and vectors have
    # no values.
    without_pairs = (CLUSTERS, VECTORS, STATIC_VECTORS)
    kinds_of_pairs = [kind for kind in kinds if kind not in without_pairs]
    _check_windows("bigrams", template.bigrams, kinds_of_pairs, least=1)
    _check_windows("memory", template.memory, attributes, least=0)
    _check_windows("elsewhere", template.elsewhere, attributes, least=1)
    _check_windows("document", template.document, attributes, least=0)

    # `_expect` raises an error if its first argument is False.
    in_windows = f"one of the kinds in windows, {', '.join(template.windows)}"
    for kind in template.bigrams:
        _expect(kind in template.windows, "bigrams", in_windows, kind)
    for attribute in template.elsewhere:
        _expect(attribute in template.windows, "elsewhere", in_windows, attribute)

    for size in template.vectors:
        _expect_number(VECTORS, size, least=1)
    for size in template.affixes:
        _expect_number("affixes", size, least=1)
    for name in template.flags:
        _expect(name in FLAGS, "flags", f"one of {', '.join(FLAGS)}", name)
    # Column names are based on file names, so file names have to be unique.
    have_different_names = len(template.cluster_files) == len(template.clusters)
    _expect(have_different_names, CLUSTERS, "files with different names", [*template.clusters])
    _check_memory_unit(template.memory_unit)
    _check_min_count(template)


def _check_windows(
    setting: str, windows: Mapping[str, int], kinds: Sequence[str], *, least: int
) -> None:
    """Validate a setting that maps kinds of features to numbers, such as `windows`. Each kind must
    be in `kinds` or an extension attribute, and each number must be at least `least`.

    RAISES (ValueError): If a kind or a number is invalid.
    """
    expected = f"one of {', '.join(kinds)} or an extension attribute such as {EXTENSION}name"
    for kind, size in windows.items():
        _expect(kind in kinds or _is_extension(kind), setting, expected, kind)
        _expect_number(f"{setting}.{kind}", size, least=least)


def _check_memory_unit(unit: object) -> None:
    """Check that the unit of label memory is "doc", a number of docs, or an extension attribute."""
    is_number = isinstance(unit, int) and unit >= 1
    is_unit = is_number or unit == DOC or _is_extension(unit)
    extension = f"an extension attribute of docs such as {EXTENSION}name"
    _expect(is_unit, "memory_unit", f"{DOC!r}, a number of docs or {extension}", unit)


def _check_min_count(template: Template) -> None:
    """Validate the setting `min_count`, which is either a single number or a dictionary of numbers
    for kinds and pairs in the template."""
    if not isinstance(template.min_count, Mapping):
        _expect_number("min_count", template.min_count, least=1)
        return
    pairs = [f"{kind}+{kind}" for kind in template.bigrams]
    kinds = sorted({*template.windows, *pairs})
    for kind, count in template.min_count.items():
        _expect(kind in kinds, "min_count", f"one of {', '.join(kinds)}", kind)
        _expect_number("min_count", count, least=1)


def _is_extension(kind: object) -> bool:
    """Check whether a kind is the name of an extension attribute, such as "_.source"."""
    return isinstance(kind, str) and kind.startswith(EXTENSION) and len(kind) > len(EXTENSION)


def _expect_number(setting: str, number: object, *, least: int) -> None:
    """Raise a ValueError if a setting isn't an integer of at least `least`."""
    is_right = isinstance(number, int) and number >= least
    _expect(is_right, setting, f"a whole number of at least {least}", number)


def _expect(is_right: bool, setting: str, expected: str, value: object) -> None:
    """Raise a ValueError if the value of a setting is invalid. `expected` describes the valid
    values for the error message."""
    if not is_right:
        raise ValueError(f"spacy_costner.Features: {setting}: expected {expected}, got {value!r}")
