"""The template of features in the config, and the columns that it makes.

A column has the values of tokens. A *kind* is a name in the setting `windows`, such as "LOWER" or
"prefix". `FEATURE_KINDS` has the functions that make the columns of kinds: one, or several, such as
one for each length of prefixes. Other kinds are attributes of tokens, such as "TAG".
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
    "NORM", "PREFIX", "SUFFIX", "CLUSTER", "LEMMA", "POS", "TAG", "DEP", "MORPH", "ENT_TYPE",
    "ENT_ID", "ENT_KB_ID", "LANG",
)  # fmt: skip
"""The attributes of spaCy whose values are read from each token, as tokens of the same word can
differ. ORTH, LOWER and SHAPE depend on the word alone: they are in `WORD_VIEWS`."""

GAZETTEER = "gazetteer"
CLUSTERS = "clusters"
VECTORS = "vectors"
STATIC_VECTORS = "static_vectors"
"""The kinds in windows that need another setting, too, such as files of phrases."""

DEFAULT_WINDOWS = {"ORTH": 2, "LOWER": 2, "SHAPE": 2, "prefix": 1, "suffix": 1, "flags": 1}
AFFIXES = (1, 2, 3, 4)
"""The default lengths of prefixes and suffixes."""

DEFAULT_FLAGS = ("is_first_upper", "IS_UPPER", "IS_DIGIT", "has_digit", "has_hyphen")


class Template:
    """The template of features: which features tokens have.

    windows (dict[str, int] | None): The kinds of features, and for each the number of tokens to
        either side whose values are features of a token, too; 0 for the token alone. Kinds are
        attributes of spaCy such as ORTH, LOWER, NORM, SHAPE, TAG, POS and LEMMA; "_.name" for an
        extension attribute of tokens; "prefix", "suffix", "flags", "character_type" and
        "gazetteer"; and "caseless", the word in lower case if its doc has only one case. None:
        ORTH, LOWER and SHAPE with 2, prefix, suffix and flags with 1.
    affixes (Sequence[int]): The lengths of prefixes and suffixes in characters.
    flags (Sequence[str]): The flags of the kind "flags": spaCy's yes-or-no attributes of words,
        such as IS_TITLE, and has_digit, has_hyphen, has_upper, is_first_upper and
        ends_with_period.
    bigrams (dict[str, int] | None): Kinds in windows whose pairs of values at neighbouring tokens
        are features, too; and for each the number of tokens to either side. Kinds of clusters and
        vectors have no pairs.
    gazetteers (dict[str, str] | None): Files with a phrase on each line, by names, which their
        features get. Upper and lower case don't matter. Their kind in windows is "gazetteer", with
        1 by default.
    min_count (int | dict[str, int]): How often a value has to occur in the training docs to be a
        feature: a number for all kinds, or a number for some kinds. "LOWER+LOWER" is the kind of
        pairs of LOWER.
    memory (dict[str, int] | None): Attributes such as LOWER, or extension attributes, for label
        memory: a token has features that say how often its value had each label in the training
        docs. And for each the number of tokens to either side. In training, the labels of a token's
        own unit don't count.
    memory_unit (int | str): What a unit is: "doc", a single doc; a number of docs that follow each
        other; or the docs with the same value of an extension attribute of docs, "_.name".
    elsewhere (dict[str, int] | None): Kinds in windows for features of the other occurrences of a
        capitalised word in its doc: the values of the tokens before and after them. And for each
        the number of nearest occurrences that count.
    document (dict[str, int] | None): Attributes such as LOWER, or extension attributes, for
        features of the labels that a first pass predicts for the other occurrences of a word in
        its doc: words that are capitalised or have a digit, with the same value of the attribute.
        And for each the number of tokens to either side. The first pass is a separate model,
        without these features: see `FirstPass`.
    clusters (Sequence[str]): Files of the clusters of words: see `read_clusters`. Their kind in
        windows is "clusters", with 2 by default.
    vectors (Sequence[int]): The numbers of clusters into which the words with a static vector are
        divided. Their kind in windows is "vectors", with 2 by default.
    include_static_vectors (bool): Whether the numbers of the static word vectors are inputs, each
        with a weight for each tag. Their kind in windows is "static_vectors", with 0 by default.
    RAISES (ValueError): If a setting is wrong: if a kind or a flag is unknown, for example, or a
        number is out of its range.
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

        # A column is made for each length, flag and number, so none may be there twice.
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
        self.hidden_window: int | None = None  # `with_hidden_window` sets it.
        _check(self)

    def with_hidden_window(self, size: int) -> "Template":
        """The same template for a model with a hidden layer. Its inputs are the types and the
        static vectors of a token and of up to `size` tokens to either side."""
        template = copy(self)
        template.hidden_window = size
        return template

    def make_columns(self) -> list[Column]:
        """Make the columns, which have no values yet, in the order of their features. A column that
        is made of the values of another one comes after it."""
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
            # A pair begins at each token of the window but the last.
            window = Window(offsets_around(size)[:-1], self.min_count_of(f"{kind}+{kind}"))
            for base in columns_of_kind[kind]:
                columns.append(PairColumn(base, window))

        for attribute, size in self.memory.items():
            columns.append(MemoryColumn(attribute, Window(offsets_around(size))))
        for attribute, n_nearest in self.elsewhere.items():
            (base,) = columns_of_kind[attribute]  # an attribute has a single column
            columns.append(ElsewhereColumn(base, side=-1, n_nearest=n_nearest))
            columns.append(ElsewhereColumn(base, side=1, n_nearest=n_nearest))
        for attribute, size in self.document.items():
            columns.append(DocumentColumn(attribute, Window(offsets_around(size))))
        return columns

    @property
    def cluster_files(self) -> dict[str, str]:
        """The files of clusters, keyed by the names of their columns. The name of the column for
        "corpus/brown.txt" is "clusters:brown"."""
        return {f"{CLUSTERS}:{Path(path).stem}": path for path in self.clusters}

    def min_count_of(self, kind: str) -> int:
        """How often a value of a kind has to occur in the training docs to be a feature."""
        if isinstance(self.min_count, Mapping):
            return self.min_count.get(kind, 1)
        return self.min_count


MakeColumns = Callable[[Template, Window], list[Column]]
"""Makes the columns of a kind, with the settings of a template."""


def word_column_maker(kind: str) -> MakeColumns:
    """Return a function that makes the column of a kind whose values depend on the word alone, such
    as its shape. `WORD_VIEWS` says how the values of each of these kinds are computed."""

    def make_word_column(template: Template, window: Window) -> list[Column]:
        return [WordColumn(kind, window, WORD_VIEWS[kind])]

    return make_word_column


def make_prefix_columns(template: Template, window: Window) -> list[Column]:
    """Make a column for each length of prefixes."""
    return [WordColumn(f"prefix{size}", window, prefix(size)) for size in template.affixes]


def make_suffix_columns(template: Template, window: Window) -> list[Column]:
    """Make a column for each length of suffixes."""
    return [WordColumn(f"suffix{size}", window, suffix(size)) for size in template.affixes]


def make_flag_columns(template: Template, window: Window) -> list[Column]:
    """Make a column for each flag."""
    return [WordColumn(name, window, flag(name)) for name in template.flags]


def make_caseless_column(template: Template, window: Window) -> list[Column]:
    """Make the column of words in docs that are all in lower case or all in capitals."""
    return [CaselessColumn("caseless", window)]


def make_gazetteer_columns(template: Template, window: Window) -> list[Column]:
    """Make a column for each gazetteer."""
    columns: list[Column] = []
    for name, path in template.gazetteers.items():
        columns.append(GazetteerColumn(f"{GAZETTEER}:{name}", window, path))
    return columns


def make_cluster_columns(template: Template, window: Window) -> list[Column]:
    """Make a column for each file of clusters."""
    columns: list[Column] = []
    for name, path in template.cluster_files.items():
        columns.append(FileClusterColumn(name, window, path))
    return columns


def make_vector_columns(template: Template, window: Window) -> list[Column]:
    """Make the column of the clusters of static vectors. There is no such column if `vectors` is
    empty."""
    if not template.vectors:
        return []
    return [VectorClusterColumn(VECTORS, window, template.vectors)]


def make_static_vector_columns(template: Template, window: Window) -> list[Column]:
    """Make the column of static vectors, if they are inputs."""
    if not template.include_static_vectors:
        return []
    # A hidden layer has its own window.
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
"""The function that makes the columns of each kind in windows. Kinds that aren't here are
attributes of tokens, each with an `AttributeColumn`."""


def offsets_around(size: int) -> tuple[int, ...]:
    """The offsets of a window of `size` tokens to either side and the token itself: for 1, these
    are -1, 0 and 1."""
    return tuple(range(-size, size + 1))


def _check(template: Template) -> None:
    """Check the settings of a template.

    RAISES (ValueError): If one is wrong. The message names it.
    """
    # The kinds of features are spaCy's attributes, whose names `IDS` has, and our own kinds.
    word_attributes = [kind for kind in WORD_VIEWS if kind in IDS]  # ORTH, LOWER and SHAPE
    attributes = [*word_attributes, *ATTRIBUTES]
    own_kinds = [kind for kind in FEATURE_KINDS if kind not in IDS]
    kinds = [*attributes, *own_kinds]
    _check_windows("windows", template.windows, kinds, least=0)
    # A bigram is a pair of values, one of each token. A word may have several clusters, and vectors
    # are no values.
    without_pairs = (CLUSTERS, VECTORS, STATIC_VECTORS)
    kinds_of_pairs = [kind for kind in kinds if kind not in without_pairs]
    _check_windows("bigrams", template.bigrams, kinds_of_pairs, least=1)
    _check_windows("memory", template.memory, attributes, least=0)
    _check_windows("elsewhere", template.elsewhere, attributes, least=1)
    _check_windows("document", template.document, attributes, least=0)

    # `_expect` raises an error unless its first argument is true.
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
    # The columns of two files with the same name would have the same name.
    have_different_names = len(template.cluster_files) == len(template.clusters)
    _expect(have_different_names, CLUSTERS, "files with different names", [*template.clusters])
    _check_memory_unit(template.memory_unit)
    _check_min_count(template)


def _check_windows(
    setting: str, windows: Mapping[str, int], kinds: Sequence[str], *, least: int
) -> None:
    """Check a setting that has a number for each kind of feature, such as `windows`. The kinds are
    those in `kinds` and extension attributes, the numbers at least `least`.

    RAISES (ValueError): If a kind or a number is wrong.
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
    """Check the setting `min_count`: a number for all kinds, or numbers for some of the kinds and
    pairs that the template has."""
    if not isinstance(template.min_count, Mapping):
        _expect_number("min_count", template.min_count, least=1)
        return
    pairs = [f"{kind}+{kind}" for kind in template.bigrams]
    kinds = sorted({*template.windows, *pairs})
    for kind, count in template.min_count.items():
        _expect(kind in kinds, "min_count", f"one of {', '.join(kinds)}", kind)
        _expect_number("min_count", count, least=1)


def _is_extension(kind: object) -> bool:
    """Whether this is the name of an extension attribute, such as "_.source"."""
    return isinstance(kind, str) and kind.startswith(EXTENSION) and len(kind) > len(EXTENSION)


def _expect_number(setting: str, number: object, *, least: int) -> None:
    """Check that a setting is a whole number of at least `least`, and raise a ValueError if it
    isn't."""
    is_right = isinstance(number, int) and number >= least
    _expect(is_right, setting, f"a whole number of at least {least}", number)


def _expect(is_right: bool, setting: str, expected: str, value: object) -> None:
    """Raise a ValueError if the value of a setting isn't right. The message says what was
    expected."""
    if not is_right:
        raise ValueError(f"spacy_costner.Features: {setting}: expected {expected}, got {value!r}")
