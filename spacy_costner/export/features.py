"""Description of the features of a linear model for a web page, which computes them using
`javascript/features.js`.

A column is a kind of feature, e.g. the lowercase word. For each class of columns, there is a
function that describes its columns as JSON and arrays. Columns that aren't supported in a page
raise an error.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy
from spacy.attrs import IDS
from spacy.lang.lex_attrs import LEX_ATTRS
from spacy.strings import get_string_id
from spacy.symbols import IDS as SYMBOLS
from spacy.vocab import Vocab
from thinc.types import Array1d, ArrayXd

from ..features import Features
from ..features.attributes import AttributeColumn, CaselessColumn
from ..features.clusters import ClusterColumn
from ..features.column import Column
from ..features.document import DocumentColumn
from ..features.elsewhere import ElsewhereColumn
from ..features.gazetteers import GazetteerColumn
from ..features.ids import LOWEST_32_BITS
from ..features.memory import MemoryColumn
from ..features.pairs import PairColumn
from ..features.static_vectors import VectorColumn
from ..features.words import FLAGS, WordColumn

Description = dict[str, Any]
"""A column in the header of a model file. "arrays" contains the names of its arrays in the file."""

WORD_ATTRIBUTES = ("ORTH", "LOWER", "SHAPE", "PREFIX", "SUFFIX")
"""The spaCy attributes that a page computes itself. See `ATTRIBUTES` in words.js."""

PAGE_FLAGS = (
    "IS_ALPHA",
    "IS_ASCII",
    "IS_DIGIT",
    "IS_LOWER",
    "IS_PUNCT",
    "IS_SPACE",
    "IS_TITLE",
    "IS_UPPER",
    "has_digit",
    "has_hyphen",
    "has_upper",
    "ends_with_period",
    "is_first_upper",
)
"""The flags that a page computes itself. See `FLAGS` in words.js."""

WHOLE_WORDS = ("ORTH", "LOWER", "caseless")
"""The columns whose values are complete words."""

AFFIX = re.compile("(prefix|suffix)([0-9]+)")
"""Matches the name of a column of prefixes or suffixes, with their length."""

LONGEST_AFFIX = 4
"""The maximum length of prefixes and suffixes that don't count as words. Longer ones may be
complete names."""

LEAST_COUNT = 10
"""Words with a lower count in the training data, or without a count, are considered rare."""


class WebFeatures(NamedTuple):
    """The features of a model, described for a web page.

    columns (list[Description]): The columns, in the order of their weight rows.
    arrays (dict[str, ArrayXd]): The arrays of the columns, by name.
    """

    columns: list[Description]
    arrays: dict[str, ArrayXd]


def describe_features(features: Features, vocab: Vocab) -> WebFeatures:
    """Describe the features of a model for a web page.

    features (Features): The features.
    vocab (Vocab): The vocab of the pipeline, which provides word attributes.
    RETURNS (WebFeatures): The description.
    RAISES (ValueError): If a feature isn't supported in a page. The message names the feature.
    """
    columns: list[Description] = []
    arrays: dict[str, ArrayXd] = {}
    for column in features.lookup.columns:
        if isinstance(column, VectorColumn) and not column.dim:
            continue  # there were no vectors, so the column has no weight rows
        column_arrays: dict[str, ArrayXd] = {}
        description = {
            **describe_column(column, column_arrays),
            "name": column.name,
            "offsets": [*column.offsets],
            "n_values": column.n_values,
        }
        # The names of the column's arrays in the file
        array_names: dict[str, str] = {}
        for key, array in column_arrays.items():
            array_names[key] = f"{column.name}.{key}"
            arrays[array_names[key]] = array
        if array_names:
            description["arrays"] = array_names
        columns.append(description)
    _check_lexeme_attributes(features.lookup.columns, vocab)
    return WebFeatures(columns, arrays)


def spacy_symbols() -> dict[str, int]:
    """Return the lowest 32 bits of the hashes of spaCy's symbols, keyed by symbol name. The hash of
    a symbol's string, e.g. "ORTH", is the number of the symbol."""
    return {name: number & int(LOWEST_32_BITS) for name, number in SYMBOLS.items() if name}


def describe_column(column: Column, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a feature column for the header of the model file, and add its arrays to `arrays`.
    The "kind" of the description is the name of the function in features.js that computes the
    values. The functions for individual column classes below have the same signature.

    RAISES (ValueError): If the column isn't supported in a page.
    """
    for column_type, describe in DESCRIBE_BY_CLASS.items():
        if isinstance(column, column_type):
            return describe(column, arrays)
    raise refusal(f"features of the kind {column.name}")


def describe_words(column: WordColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column whose values depend only on the word."""
    name = column.name
    values = {"values": column.values}
    affix = AFFIX.fullmatch(name)
    if affix is not None:
        return {"kind": affix[1], "size": int(affix[2]), **values}
    if name == "character_type":
        return {"kind": name, **values}
    if name in PAGE_FLAGS:
        return {"kind": "flag", "flag": name, **values}
    if name in FLAGS:  # provided by spaCy, but not supported in a page
        raise refusal(f"the flag {name}")
    return {"kind": "attribute", "attribute": _word_attribute(name), **values}


def describe_attribute(column: AttributeColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe the column of a token attribute, if the attribute depends only on the word."""
    attribute = _word_attribute(column.name)
    return {"kind": "attribute", "attribute": attribute, "values": column.values}


def describe_caseless(column: CaselessColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe the column of lowercase words for texts that are entirely in lower or upper case."""
    return {"kind": "caseless", "values": column.values}


def describe_gazetteer(column: GazetteerColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe the column of a gazetteer. Phrases are matched by their lowercase words."""
    phrases: list[list[str]] = []
    for phrase in column.gazetteer.phrases:
        phrases.append([word.lower() for word in phrase.split()])
    return {"kind": "gazetteer", "values": column.values, "phrases": phrases}


def describe_clusters(column: ClusterColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column of clusters, using a table of the clusters of each word, keyed by hash."""
    word_keys, cluster_ids = column.words
    _add_table(word_keys, cluster_ids, arrays)
    return {"kind": "clusters"}


def describe_memory(column: MemoryColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column of label memory, using a table of the features of each value, keyed by
    hash. The counts per unit of training docs are omitted, because they are only needed for
    training."""
    value_keys, feature_ids = column.values_with_features
    _add_table(value_keys, feature_ids, arrays)
    return {"kind": "memory", "attribute": _word_attribute(column.attribute)}


def describe_pairs(column: PairColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column of pairs of adjacent values, if the values depend only on the word."""
    if not isinstance(column.base, (WordColumn, AttributeColumn)):
        raise refusal(f"features of pairs of {column.base.name}")
    # The ids of each pair's two values in the base column. Shapes: (P,)
    left, right = column.pairs
    arrays["left"] = left.astype("int32")
    arrays["right"] = right.astype("int32")
    return {"kind": "pairs", "base": column.base.name}


def describe_elsewhere(column: ElsewhereColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column with the values next to other occurrences of the word."""
    base = _word_attribute(column.base.name)
    return {"kind": "elsewhere", "base": base, "side": column.side, "n_nearest": column.n_nearest}


def describe_document(column: DocumentColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column with the labels that the first pass predicts for other occurrences of the
    word."""
    attribute = _word_attribute(column.attribute)
    return {
        "kind": "document",
        "attribute": attribute,
        "labels": column.labels,
        "width": column.width,
    }


def refuse_vectors(column: VectorColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Raise an error for static word vectors, which aren't supported in a page."""
    raise refusal("static word vectors as inputs (include_static_vectors)")


# All of these functions have the same parameters, even if a column needs no arrays.
DESCRIBE_BY_CLASS: dict[Any, Callable[[Any, dict[str, ArrayXd]], Description]] = {
    WordColumn: describe_words,
    AttributeColumn: describe_attribute,
    CaselessColumn: describe_caseless,
    GazetteerColumn: describe_gazetteer,
    ClusterColumn: describe_clusters,
    MemoryColumn: describe_memory,
    PairColumn: describe_pairs,
    ElsewhereColumn: describe_elsewhere,
    DocumentColumn: describe_document,
    VectorColumn: refuse_vectors,
}
"""The function that describes the columns of each class."""


def refusal(feature: str) -> ValueError:
    """Create the error for a feature that isn't supported in a page.

    feature (str): The name of the feature, or of another part of the pipeline.
    """
    return ValueError(
        f"page: expected a linear model with features of words and their text, got {feature}, "
        "which a page can't have"
    )


def find_private_rows(features: Features) -> Array1d:
    """Find the weight rows that could reveal annotations or rare words, e.g. names of people: the
    rows for label memory, for words that are rare in the training data, and for features derived
    from these words. Long prefixes and suffixes count as words. They are excluded from a page
    unless `keep_memory` is set.

    features (Features): The features of the model.
    RETURNS (Array1d): True for private rows. Shape: (V,)
    """
    columns = features.lookup.columns
    counts = _count_words(columns)
    is_private_value: dict[str, Array1d] = {}
    for column in columns:
        is_private_value[column.name] = _private_values(column, counts, is_private_value)

    # `concatenate` requires at least one array, even if there are no columns.
    rows: list[Array1d] = [numpy.zeros(0, dtype=bool)]
    for column in columns:
        # A column has one row per value at each offset.
        rows.append(numpy.tile(is_private_value[column.name], len(column.offsets)))
    return numpy.concatenate(rows)


def _private_values(
    column: Column, counts: dict[int, int], is_private_value: dict[str, Array1d]
) -> Array1d:
    """Find which values of a column have private rows (see `find_private_rows`), based on the word
    counts (see `_count_words`) and the results for the previous columns, by name. Return a mask of
    shape (n_values,)."""
    if isinstance(column, MemoryColumn):
        return numpy.ones(column.n_values, dtype=bool)
    if isinstance(column, ElsewhereColumn):  # uses the values of another column
        return is_private_value[column.base.name]
    if isinstance(column, PairColumn):
        left, right = column.pairs
        is_private = is_private_value[column.base.name]
        return is_private[left] | is_private[right]
    if not has_words(column.name):
        return numpy.zeros(column.n_values, dtype=bool)
    is_rare: list[bool] = []
    for word in column.value_names:
        count = counts.get(key_of(word.lower()), 0)
        is_rare.append(count < LEAST_COUNT)
    return numpy.asarray(is_rare, dtype=bool)


def has_words(name: str) -> bool:
    """Check whether the values of a column are words, or prefixes or suffixes that are so long that
    they may be words.

    name (str): The name of the column.
    """
    affix = AFFIX.fullmatch(name)
    is_long_affix = affix is not None and int(affix[2]) > LONGEST_AFFIX
    return name in WHOLE_WORDS or is_long_affix


def _count_words(columns: Iterable[Column]) -> dict[int, int]:
    """Return the counts of words in the training data, based on label memory. The keys are the
    hashes of the lowercase words (see `key_of`). Words that aren't in label memory are missing."""
    counts: dict[int, int] = {}
    for column in columns:
        if isinstance(column, MemoryColumn) and column.attribute == "LOWER":
            value_keys, n_times = column.value_counts
            counts.update(zip(value_keys.tolist(), n_times.tolist()))
    return counts


def key_of(word: str) -> int:
    """Return the lowest 32 bits of the hash of a word."""
    return get_string_id(word) & int(LOWEST_32_BITS)


def _word_attribute(name: str) -> str:
    """Check that a page can compute an attribute from the word, and return the attribute's name."""
    if name not in WORD_ATTRIBUTES:
        raise refusal(f"the attribute {name} of tokens")
    return name


def _add_table(keys: Array1d, ids: ArrayXd, arrays: dict[str, ArrayXd]) -> None:
    """Add a table to the arrays of a column: "keys" contains the word hashes in ascending order,
    and "table" the row of ids of each key.
    Shapes: (n,) and (n, ids of a word)"""
    order = numpy.argsort(keys)
    arrays["keys"] = keys[order].astype("uint32")
    arrays["table"] = ids[order].astype("int32")


def _check_lexeme_attributes(columns: Sequence[Column], vocab: Vocab) -> None:
    """Check that the word attributes used by the columns are computed by spaCy's default functions,
    and not by custom or language-specific functions."""
    getters: dict[int, Any] = vocab.lex_attr_getters  # type: ignore[attr-defined]
    # Regardless of the columns, the page needs IS_SPACE to strip whitespace from entities, and
    # LOWER for texts that are entirely in one case.
    names = ["IS_SPACE", "LOWER"]
    # `attributes` are token attributes, `lexeme_attributes` are attributes of words in the vocab.
    # Extension attributes have already been rejected by `describe_column`.
    for column in columns:
        names.extend(column.attributes)
        names.extend(column.lexeme_attributes)
    for name in names:
        attribute = IDS[name]
        if attribute in getters and getters[attribute] is not LEX_ATTRS.get(attribute):
            raise refusal(f"{name} by the rules of this language")
