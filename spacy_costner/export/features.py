"""The features of a linear model for a web page, which finds them by `javascript/features.js`.

A column is a kind of feature, such as the word in lower case. For each class of columns there is a
function that describes its columns in JSON and arrays. Columns that a page can't have are refused,
with an error that names them.
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
"""A column in the header of a model file. Under "arrays" it has the names of arrays of the file."""

WORD_ATTRIBUTES = ("ORTH", "LOWER", "SHAPE", "PREFIX", "SUFFIX")
"""The attributes of spaCy that a page computes itself: `ATTRIBUTES` of words.js."""

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
"""The flags that a page computes itself: `FLAGS` of words.js."""

WHOLE_WORDS = ("ORTH", "LOWER", "caseless")
"""The columns whose values are whole words."""

LEAST_COUNT = 10
"""Words that occur fewer times in the training data are rare. Words without a count are rare,
too."""


class WebFeatures(NamedTuple):
    """Features as a page has them.

    columns (list[Description]): The columns, in the order of their rows of weights.
    arrays (dict[str, ArrayXd]): Their arrays, by name.
    """

    columns: list[Description]
    arrays: dict[str, ArrayXd]


def describe_features(features: Features, vocab: Vocab) -> WebFeatures:
    """Describe the features of a model for a page.

    features (Features): The features.
    vocab (Vocab): The vocab of the pipeline, whose attributes of words they see.
    RETURNS (WebFeatures): Their description.
    RAISES (ValueError): If a page can't have one of them. The message names it.
    """
    columns: list[Description] = []
    arrays: dict[str, ArrayXd] = {}
    for column in features.lookup.columns:
        if isinstance(column, VectorColumn) and not column.dim:
            continue  # there were no vectors, so it has no rows of weights
        column_arrays: dict[str, ArrayXd] = {}
        description = {
            **describe_column(column, column_arrays),
            "name": column.name,
            "offsets": [*column.offsets],
            "n_values": column.n_values,
        }
        # The names that the arrays of the column have in the file
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
    """Find the lowest 32 bits of the hashes of spaCy's symbols, keyed by symbol name. The hash of
    such a string, for example "ORTH", is the number of the symbol."""
    return {name: number & int(LOWEST_32_BITS) for name, number in SYMBOLS.items() if name}


def describe_column(column: Column, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column of features for the header of the model file that a web page reads, and add
    the arrays of the column to `arrays`. The "kind" of the description is the function of
    features.js that finds the values. The functions for the single classes of columns, below, take
    and return the same. Columns that a page can't have are refused."""
    for column_type, describe in DESCRIBE_BY_CLASS.items():
        if isinstance(column, column_type):
            return describe(column, arrays)
    raise refusal(f"features of the kind {column.name}")


def describe_words(column: WordColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column whose values depend on the word alone."""
    name = column.name
    values = {"values": column.values}
    affix = re.fullmatch("(prefix|suffix)([0-9]+)", name)
    if affix is not None:
        return {"kind": affix[1], "size": int(affix[2]), **values}
    if name == "character_type":
        return {"kind": name, **values}
    if name in PAGE_FLAGS:
        return {"kind": "flag", "flag": name, **values}
    if name in FLAGS:  # spaCy has it, but a page can't compute it
        raise refusal(f"the flag {name}")
    return {"kind": "attribute", "attribute": _word_attribute(name), **values}


def describe_attribute(column: AttributeColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe the column of an attribute of tokens, if the attribute depends on the word alone."""
    attribute = _word_attribute(column.name)
    return {"kind": "attribute", "attribute": attribute, "values": column.values}


def describe_caseless(column: CaselessColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe the column of words in lower case, for texts all in lower case or all in
    capitals."""
    return {"kind": "caseless", "values": column.values}


def describe_gazetteer(column: GazetteerColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe the column of a gazetteer. Its phrases are found by their words in lower case."""
    phrases: list[list[str]] = []
    for phrase in column.gazetteer.phrases:
        phrases.append([word.lower() for word in phrase.split()])
    return {"kind": "gazetteer", "values": column.values, "phrases": phrases}


def describe_clusters(column: ClusterColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column of clusters: a table with the clusters of each word, found by its hash."""
    word_keys, cluster_ids = column.words
    _add_table(column.name, word_keys, cluster_ids, arrays)
    return {"kind": "clusters"}


def describe_memory(column: MemoryColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column of label memory: a table with the features of each value, found by its
    hash. The counts of each unit of training docs are left out: only training needs them."""
    value_keys, feature_ids = column.values_with_features
    _add_table(column.name, value_keys, feature_ids, arrays)
    return {"kind": "memory", "attribute": _word_attribute(column.attribute)}


def describe_pairs(column: PairColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column of pairs of neighbouring values, if the values depend on the word alone."""
    if not isinstance(column.base, (WordColumn, AttributeColumn)):
        raise refusal(f"features of pairs of {column.base.name}")
    # The ids of both values of each pair, in the base column. Shapes: (P,)
    left, right = column.pairs
    arrays["left"] = left.astype("int32")
    arrays["right"] = right.astype("int32")
    return {"kind": "pairs", "base": column.base.name}


def describe_elsewhere(column: ElsewhereColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column of the values next to other occurrences of the word."""
    base = _word_attribute(column.base.name)
    return {"kind": "elsewhere", "base": base, "side": column.side, "n_nearest": column.n_nearest}


def describe_document(column: DocumentColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Describe a column of the labels that a first pass predicts for other occurrences of the
    word."""
    attribute = _word_attribute(column.attribute)
    return {
        "kind": "document",
        "attribute": attribute,
        "labels": column.labels,
        "width": column.width,
    }


def refuse_vectors(column: VectorColumn, arrays: dict[str, ArrayXd]) -> Description:
    """Refuse static word vectors, which a page can't have."""
    raise refusal("static word vectors as inputs (include_static_vectors)")


# All of these functions have the same parameters, though some columns need no arrays.
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
    """Make the error for a feature that a page can't have.

    feature (str): The name of the feature, which may also be another part of the pipeline.
    """
    return ValueError(
        f"page: expected a linear model with features of words and their text, got {feature}, "
        "which a page can't have"
    )


def find_private_rows(features: Features) -> Array1d:
    """Find the rows of weights that could show what was annotated, or show rare words such as names
    of people: the rows of label memory, of words that are rare in the training data, and of
    features that are made of these words. Without `keep_memory`, pages leave them out.

    features (Features): The features of the model.
    RETURNS (Array1d): True for these rows. Shape: (V,)
    """
    columns = features.lookup.columns
    counts = _count_words(columns)
    is_private_value: dict[str, Array1d] = {}
    for column in columns:
        is_private_value[column.name] = _private_values(column, counts, is_private_value)

    # `concatenate` needs at least one array, and there may be no columns.
    rows: list[Array1d] = [numpy.zeros(0, dtype=bool)]
    for column in columns:
        # The rows of a column: each offset has one for each value.
        rows.append(numpy.tile(is_private_value[column.name], len(column.offsets)))
    return numpy.concatenate(rows)


def _private_values(
    column: Column, counts: dict[int, int], is_private_value: dict[str, Array1d]
) -> Array1d:
    """Find the values of a column whose rows `find_private_rows` finds, from the counts of words
    (see `_count_words`), and from the results for the columns before this one, by name. Returns
    True for these values, with the shape (n_values,)."""
    if isinstance(column, MemoryColumn):
        return numpy.ones(column.n_values, dtype=bool)
    if isinstance(column, ElsewhereColumn):  # it has the values of another column
        return is_private_value[column.base.name]
    if isinstance(column, PairColumn):
        left, right = column.pairs
        is_private = is_private_value[column.base.name]
        return is_private[left] | is_private[right]
    if column.name not in WHOLE_WORDS:
        return numpy.zeros(column.n_values, dtype=bool)
    is_rare: list[bool] = []
    for word in column.value_names:
        count = counts.get(key_of(word.lower()), 0)
        is_rare.append(count < LEAST_COUNT)
    return numpy.asarray(is_rare, dtype=bool)


def _count_words(columns: Iterable[Column]) -> dict[int, int]:
    """Read from label memory how often words were in the training data. Returns the counts by the
    key of the word in lower case: see `key_of`. Words that label memory doesn't have are
    missing."""
    counts: dict[int, int] = {}
    for column in columns:
        if isinstance(column, MemoryColumn) and column.attribute == "LOWER":
            value_keys, n_times = column.value_counts
            counts.update(zip(value_keys.tolist(), n_times.tolist()))
    return counts


def key_of(word: str) -> int:
    """The lowest 32 bits of the hash of a word."""
    return get_string_id(word) & int(LOWEST_32_BITS)


def _word_attribute(name: str) -> str:
    """Return the name of an attribute, after a check that a page can compute it from the word."""
    if name not in WORD_ATTRIBUTES:
        raise refusal(f"the attribute {name} of tokens")
    return name


def _add_table(name: str, keys: Array1d, ids: ArrayXd, arrays: dict[str, ArrayXd]) -> None:
    """Add a table to the arrays of a column: "keys", the hashes of words in ascending order, and
    "table", which has the row of ids of each key. The name of the column is for the error. Shapes:
    (n,) and (n, ids of a word)"""
    order = numpy.argsort(keys)
    arrays["keys"] = keys[order].astype("uint32")
    arrays["table"] = ids[order].astype("int32")


def _check_lexeme_attributes(columns: Sequence[Column], vocab: Vocab) -> None:
    """Check that the attributes of words that columns see are spaCy's own, and not computed by a
    function of a language or a user."""
    getters: dict[int, Any] = vocab.lex_attr_getters  # type: ignore[attr-defined]
    # With any columns, the page needs IS_SPACE, as it removes whitespace from the ends of entities,
    # and LOWER for texts that are all in one case.
    names = ["IS_SPACE", "LOWER"]
    # `attributes` belong to tokens, `lexeme_attributes` to words in the vocab. Extension attributes
    # are not among them: `describe_column` has refused these.
    for column in columns:
        names.extend(column.attributes)
        names.extend(column.lexeme_attributes)
    for name in names:
        attribute = IDS[name]
        if attribute in getters and getters[attribute] is not LEX_ATTRS.get(attribute):
            raise refusal(f"{name} by the rules of this language")
