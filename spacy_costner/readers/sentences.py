"""Create docs from tokens and their tags, and copy tokens and sentences between docs.

The sentences of a file are stored as a single list of N tokens with their tags, and a mask that
marks the first token of each sentence (`TaggedTokens`). A *row* is a sentence in a JSON file or a
dataset. It contains words under the key "tokens", and tags under one of `TAG_KEYS`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE, ORTH, SENT_START, SPACY, TAG
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.types import Array1d, Ints1d

from ..annotation.sentence_starts import starts_at_same_characters
from .context import Context
from .documents import with_metadata
from .files import DATASET_INFO, SURROGATE, FilePlace, Values, shown
from .schemes import TagCounts, decode_tags, find_scheme

TAG_KEYS = ("ner_tags", "tags", "ner", "labels")
"""The keys under which a row may store its tags. The first one that exists is used."""

IGNORED = -100
"""The number that stands for missing annotation in datasets. PyTorch's losses ignore it."""


class TaggedTokens(NamedTuple):
    """The N tokens of a file and their tags.

    words (Sequence[str]): The text of each token. Length: N
    tags (Sequence[str]): The tag of each token, in any scheme. Length: N
    sent_start (Array1d): True for the first token of each sentence. Shape: (N,)
    n_docstarts (Ints1d): The number of -DOCSTART- lines before each token. Shape: (N,)
    pos (Sequence[str] | None): The part of speech of each token, for `token.tag_`. None if unknown.
        Length: N
    """

    words: Sequence[str]
    tags: Sequence[str]
    sent_start: Array1d
    n_docstarts: Ints1d
    pos: Sequence[str] | None = None


def count_tags(tokens: TaggedTokens, place_of: Callable[[int], FilePlace]) -> TagCounts:
    """Count the tags of a file. For the arguments, see `make_docs`."""
    counts = TagCounts()
    counts.add(tokens.tags, tokens.sent_start, place_of)
    return counts


def make_docs(
    tokens: TaggedTokens,
    place_of: Callable[[int], FilePlace],
    format_name: str,
    context: Context,
    n_sents: int | None,
    columns: str = "",
) -> Iterator[Doc]:
    """Create docs from the tokens of a file, with entities decoded from the tags. The original
    whitespace is unknown, so `doc.has_unknown_spaces` is True.

    tokens (TaggedTokens): All tokens of the file, with their tags.
    place_of (Callable[[int], FilePlace]): Returns the location of the token at an index.
    format_name (str): The name of the file's format.
    context (Context): The pipeline and the options. The format, the scheme, and any tags that are
        invalid in the scheme are added to `context.info`.
    n_sents (int | None): The number of sentences per doc: see `ReadOptions`.
    columns (str): A description of the columns that are read, if the file has columns.
    YIELDS (Doc): The docs, with their entities.
    RAISES (CorpusError): If a tag is invalid, or the tags don't belong to one scheme.
    """

    # The scheme of column files doesn't apply to JSON rows in the same folder.
    scheme = context.scheme if columns else None
    if scheme is None:
        scheme = find_scheme(count_tags(tokens, place_of), context.options.scheme)
    decoded = decode_tags(tokens.tags, tokens.sent_start, scheme)
    context.info.add_file(format_name, scheme.name if decoded.labels else "", columns)
    n_irregular = len(decoded.irregular)
    if n_irregular:  # show the first irregular tag and count the others
        first_irregular = int(decoded.irregular[0])
        message = f"tags don't fit {scheme.name}: they are read as conlleval does"
        text = f"{tokens.words[first_irregular]} {tokens.tags[first_irregular]}"
        place = place_of(first_irregular)
        context.info.add_problem(message, place, text, more=n_irregular - 1)

    # Store the attributes of all tokens in one array, and set the rows of each doc at once. Setting
    # attributes token by token would be slow.
    strings = context.nlp.vocab.strings
    hashes_of_labels = [strings.add(label) for label in decoded.labels]
    # Tokens without a label have the index -1, so the hash for no label is the last item.
    no_label = 0
    label_hashes = numpy.asarray([*hashes_of_labels, no_label], dtype="uint64")
    attrs = [SENT_START, ENT_IOB, ENT_TYPE]
    values_of_attrs = [
        _sent_start_values(tokens.sent_start),
        decoded.iob.astype("uint64"),
        label_hashes[decoded.label],
    ]
    if tokens.pos is not None:
        attrs.append(TAG)
        values_of_attrs.append(_add_strings(strings, tokens.pos))
    attr_values = numpy.stack(values_of_attrs, axis=1)  # (N, number of attributes)
    word_hashes: Any = _add_strings(strings, tokens.words)

    # Each doc ends where the next one starts.
    starts = _first_tokens_of_docs(tokens, n_sents).tolist()
    ends = [*starts[1:], len(tokens.words)]
    for start, end in zip(starts, ends):
        # `Doc` also accepts hashes instead of strings.
        doc = Doc(context.nlp.vocab, words=word_hashes[start:end])
        doc.from_array(attrs, attr_values[start:end])
        yield context.placed(doc, place_of(start))


def _sent_start_values(sent_start: Array1d) -> Array1d:
    """Convert a mask to values of spaCy's SENT_START for `Doc.from_array`: 1 for tokens that start
    a sentence, and -1 for all others. Shape: (T,)"""
    # `from_array` expects unsigned integers, so -1 is reinterpreted as one with the same bits.
    return numpy.where(sent_start, 1, -1).astype("int64").view("uint64")


def _add_strings(strings: StringStore, texts: Sequence[str]) -> Array1d:
    """Add the texts of tokens to the string store. Each distinct text is only added once. Returns
    the hash of each token's text. Shape: (N,)"""
    hash_of_text = {text: strings.add(text) for text in dict.fromkeys(texts)}
    return numpy.asarray([hash_of_text[text] for text in texts], dtype="uint64")


def _first_tokens_of_docs(tokens: TaggedTokens, n_sents: int | None) -> Ints1d:
    """Find the first token of each doc. A document begins at the start of the file and after each
    -DOCSTART- line, and is split into docs of `n_sents` sentences. If `n_sents` is 0, each document
    becomes one doc. If it is None, it defaults to 0 for files with -DOCSTART- lines, and to 1
    otherwise. Shape: (number of docs,)"""
    # The first token of each of the S sentences. Shape: (S,)
    sentence_starts = numpy.flatnonzero(tokens.sent_start)
    # A sentence begins a document if it is preceded by more -DOCSTART- lines than the previous
    # sentence. Since `prepend` is -1, the first sentence always begins a document. Shape: (S,)
    begins_document = numpy.diff(tokens.n_docstarts[sentence_starts], prepend=-1) > 0
    if n_sents is None:
        has_documents = tokens.n_docstarts[-1] > 0
        n_sents = 0 if has_documents else 1
    if n_sents == 0:
        return sentence_starts[begins_document]
    # The index of each sentence, and the index of the first sentence in its document. If documents
    # begin at sentences 0 and 3 of 5, `where` returns 0 0 0 3 0, and the running maximum is
    # 0 0 0 3 3. Shapes: (S,)
    sentence = numpy.arange(len(sentence_starts))
    first_sentence = numpy.maximum.accumulate(numpy.where(begins_document, sentence, 0))
    sentence_in_document = sentence - first_sentence
    begins_doc = sentence_in_document % n_sents == 0
    return sentence_starts[begins_doc]


def copy_without_annotation(
    doc: Doc, vocab: Vocab | None = None, *, sentences: bool = False
) -> Doc:
    """Copy the tokens of a doc without its annotation, so that a pipeline can annotate the copy.

    doc (Doc): The doc, with or without annotation.
    vocab (Vocab | None): The vocab of the copy. Defaults to the doc's vocab.
    sentences (bool): Whether to also copy the other attributes that `spacy apply` passes to a
        pipeline: sentence starts, `doc.has_unknown_spaces`, and metadata (see `with_metadata`).
    RETURNS (Doc): The copy.
    """
    if vocab is None:
        vocab = doc.vocab
    word_hashes, spaces = doc.to_array([ORTH, SPACY]).T.tolist()
    words: Any = word_hashes  # `Doc` also accepts hashes instead of strings
    if vocab is not doc.vocab:
        # The other vocab may not contain the strings.
        words = [token.text for token in doc]
    copy = Doc(vocab, words=words, spaces=spaces)
    if sentences:
        copy.has_unknown_spaces = doc.has_unknown_spaces
        copy.from_array([SENT_START], doc.to_array([SENT_START]))
        with_metadata(copy, doc.user_data)
    return copy


def copy_sentences(doc: Doc, other: Doc) -> None:
    """Copy the sentence starts of a doc to another doc with the same text. The tokens may differ. A
    sentence start is skipped if no token of the other doc begins there. If the sentences of the
    first doc are unknown, nothing is copied.

    doc (Doc): The doc to copy from.
    other (Doc): The doc to copy to. It is modified in place.
    """
    if not doc.has_annotation("SENT_START"):
        return
    is_start = starts_at_same_characters(doc, other)
    # `from_array` expects a 2D array with one column per attribute. Shape: (T, 1)
    other.from_array([SENT_START], _sent_start_values(is_start).reshape(-1, 1))


def find_tag_key(record: Any) -> str | None:
    """Find the key of the tags, such as "ner_tags", in the first record of a file. Returns None if
    the record isn't a row, i.e. if it lacks a list of words or a list of tags."""
    if not isinstance(record, dict):
        return None
    tokens = record.get("tokens")
    if not isinstance(tokens, list) or any(not isinstance(token, str) for token in tokens):
        return None
    for key in TAG_KEYS:
        if isinstance(record.get(key), list):
            return key
    return None


def read_tagged(
    rows: Values, key: str, format_name: str, names: Sequence[str] | None, context: Context
) -> Iterator[Doc]:
    """Create docs from rows of tokens and tags, as in Hugging Face datasets. A row is a sentence.

    rows (Values): The rows. There must be at least one.
    key (str): The key of the tags.
    format_name (str): The name of the file's format.
    names (Sequence[str] | None): The names of numeric tags.
    context (Context): The pipeline, the options, and the info that collects problems.
    YIELDS (Doc): The docs, with their entities.
    RAISES (CorpusError): If a row doesn't contain a list of words and a tag for each word, all rows
        are empty, or the tags don't belong to one scheme.
    """
    words: list[str] = []
    tags: list[str] = []
    places: list[FilePlace] = []  # the location of each token
    row_of_first_token: dict[int, Any] = {}  # non-empty rows, by the index of their first token
    for place, row in rows:
        row_words, row_tags = _read_row(row, key, names, place)
        if row_words:
            row_of_first_token[len(words)] = row
        words += row_words
        tags += row_tags
        places += [place] * len(row_words)
    if not words:
        raise place.refuse("expected tokens and their tags, got none")  # at the last row

    def place_of(token: int) -> FilePlace:
        return places[token]

    sent_start = numpy.zeros(len(words), dtype=bool)
    sent_start[list(row_of_first_token)] = True
    n_docstarts = numpy.zeros(len(words), dtype="int64")  # there are no -DOCSTART- lines in JSON
    tokens = TaggedTokens(words, tags, sent_start, n_docstarts)
    format_name = f"{format_name} of tokens and {key}"

    doc_id = context.options.doc_id
    if doc_id is None:
        yield from make_docs(tokens, place_of, format_name, context, context.options.n_sents)
        return
    # Create one doc per row, with the ID of its document. `join_documents` joins them later.
    docs = make_docs(tokens, place_of, format_name, context, n_sents=1)
    for doc, row in zip(docs, row_of_first_token.values()):
        yield with_metadata(doc, row, doc_id)


def _read_row(
    row: Any, key: str, names: Sequence[str] | None, place: FilePlace
) -> tuple[list[str], list[str]]:
    """Read the words of a row, and the names of the tags under `key`. `names` are the names of
    numeric tags. Raises an error if the row contains no words or tags."""
    words: Any = None
    tags: Any = None
    if isinstance(row, dict):
        words = row.get("tokens")
        tags = row.get(key)
    if not isinstance(words, list) or not isinstance(tags, list):
        raise place.refuse(f"expected tokens and {key}, got {shown(row)}")
    for word in words:
        if not isinstance(word, str) or not word:
            raise place.refuse(f"tokens: expected words, got {shown(word)}")
    for word in words:
        if SURROGATE.search(word):
            expected = "expected words that can be encoded in UTF-8"
            raise place.refuse(f"tokens: {expected}, got {shown(word)}")
    if len(words) != len(tags):
        raise place.refuse(f"{key}: expected {len(words)} tags, one per token, got {len(tags)}")

    tag_names: list[str] = []
    for tag in tags:
        if isinstance(tag, str):
            tag_names.append(tag)
        else:
            tag_names.append(_name_of_number(tag, key, names, place))
    for name in tag_names:
        if SURROGATE.search(name):
            raise place.refuse(
                f"{key}: expected tags that can be encoded in UTF-8, got {shown(name)}"
            )
    return words, tag_names


def _name_of_number(tag: Any, key: str, names: Sequence[str] | None, place: FilePlace) -> str:
    """Look up the name of a numeric tag, which is "-" for `IGNORED`. `names` are in numerical order
    and are provided by the user or the description of the dataset. Raises an error if the tag has
    no name."""
    if type(tag) is not int:  # `isinstance` can't be used because True is also an instance of int
        raise place.refuse(f"{key}: expected tags, got {shown(tag)}")
    if tag == IGNORED:
        return "-"  # missing annotation
    if names is None:
        info_file = f"{DATASET_INFO[0]} with the file"
        where = f"`tag_names`, or {info_file}"
        hint = f"give the names in the order of their numbers: {where}"
        raise place.refuse(f"{key}: expected names of tags, got {tag}: {hint}")
    if not 0 <= tag < len(names):
        raise place.refuse(f"{key}: expected a tag from 0 to {len(names) - 1}, got {tag}")
    return names[tag]


def find_tag_names(path: Path, key: str) -> list[str] | None:
    """Look up the names of numeric tags in the description of a dataset, which is in the same
    folder as the file.

    path (Path): The file with the tags.
    key (str): The key of the tags.
    RETURNS (list[str] | None): The names in numerical order, or None if there is no description or
        it doesn't contain the names.
    RAISES (CorpusError): If the description isn't valid JSON, or its configurations have different
        names.
    """
    for name in DATASET_INFO:
        info_path = path.parent / name
        if not info_path.is_file():
            continue
        try:
            text = info_path.read_text(encoding="utf-8-sig")  # skips a byte order mark
            info = json.loads(text)
        except (ValueError, RecursionError) as error:
            place = FilePlace(info_path, getattr(error, "lineno", 1))
            raise place.refuse(f"expected JSON: {error}") from None
        lists = list(_find_names(info, key))
        if any(names != lists[0] for names in lists):
            message = f"{key}: expected the same names in all configurations, got"
            got = " and ".join(map(shown, lists))
            raise FilePlace(info_path, 1).refuse(f"{message} {got}: give the names in `tag_names`")
        return lists[0] if lists else None
    return None


def _find_names(info: Any, key: str) -> Iterator[list[str]]:
    """Yield the lists of tag names for a key in the description of a dataset. They are in an object
    {key: {"feature": {"names": […]}}}, which may be nested: dataset_infos.json contains one for
    each configuration."""
    if not isinstance(info, dict):
        return
    feature: Any = info.get(key)
    while isinstance(feature, dict):
        if isinstance(feature.get("names"), list):
            yield [str(name) for name in feature["names"]]
            return
        feature = feature.get("feature")

    for nested_info in info.values():
        yield from _find_names(nested_info, key)
