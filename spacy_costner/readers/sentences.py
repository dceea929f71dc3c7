"""Tokens and their tags to docs. Each format is read as one long list of tokens and one of tags."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE, IDX, ORTH, SENT_START, SPACY, TAG
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.types import Array1d, Ints1d

from .context import Context
from .documents import with_metadata
from .files import DATASET_INFO, SURROGATE, FilePlace, Values, shown
from .schemes import decode_tags

TAG_KEYS = ("ner_tags", "tags", "ner", "labels")
IGNORED = -100
"""The number of tags that don't count."""


class TaggedTokens(NamedTuple):
    """The tokens of a file. Shapes: (N,)

    words (Sequence[str]): Their texts.
    tags (Sequence[str]): Their tags, of any scheme.
    sent_start (Array1d): True for the first token of a sentence.
    n_docstarts (Ints1d): How many -DOCSTART- lines are before a token.
    pos (Sequence[str] | None): Parts of speech, for `token.tag_`.
    """

    words: Sequence[str]
    tags: Sequence[str]
    sent_start: Array1d
    n_docstarts: Ints1d
    pos: Sequence[str] | None = None


def make_docs(
    tokens: TaggedTokens,
    place_of: Callable[[int], FilePlace],
    format_name: str,
    context: Context,
    n_sents: int | None,
) -> Iterator[Doc]:
    """Make docs of the tagged tokens of a file. It is not known where spaces are:
    `doc.has_unknown_spaces`.

    tokens (TaggedTokens): The tokens.
    place_of (Callable[[int], FilePlace]): The place of a token.
    format_name (str): The format of the file.
    context (Context): What the reader needs. Its info gets the format, the scheme, and the tags
        that don't fit the scheme.
    n_sents (int | None): Sentences of a doc: see `ReadOptions`.
    YIELDS (Doc): The docs.
    RAISES (CorpusError): If something isn't a tag, or the tags belong to several schemes.
    """
    words, tags = tokens.words, tokens.tags

    def refuse(token: int, message: str) -> Exception:
        return place_of(token).refuse(message)

    decoded = decode_tags(tags, tokens.sent_start, refuse)
    context.info.add_file(format_name, decoded.scheme)
    n_irregular = len(decoded.irregular)
    if n_irregular:
        first = int(decoded.irregular[0])
        message = f"tags don't fit {decoded.scheme}: they are read as conlleval does"
        text = f"{words[first]} {tags[first]}"
        context.info.add_problem(message, place_of(first), text, more=n_irregular - 1)

    strings = context.nlp.vocab.strings
    attrs = [SENT_START, ENT_IOB, ENT_TYPE]
    # A label of -1, for none, is the 0 at the end.
    label_ids = numpy.asarray([*map(strings.add, decoded.labels), 0], dtype="uint64")
    columns = [
        _sent_start_values(tokens.sent_start),
        decoded.iob.astype("uint64"),
        label_ids[decoded.label],
    ]
    if tokens.pos is not None:
        attrs.append(TAG)
        columns.append(_add_strings(strings, tokens.pos))
    values = numpy.stack(columns, axis=1)  # (N, attributes)
    orth: Any = _add_strings(strings, words)
    starts = _first_tokens_of_docs(tokens, n_sents).tolist()
    ends = [*starts[1:], len(words)]
    for start, end in zip(starts, ends):
        doc = Doc(context.nlp.vocab, words=orth[start:end])
        yield doc.from_array(attrs, values[start:end])


def _sent_start_values(sent_start: Array1d) -> Array1d:
    """The values of spaCy's SENT_START: 1, or -1 as the unsigned number with the same bits.
    Shape: (T,)"""
    return numpy.where(sent_start, 1, -1).astype("int64").view("uint64")


def _add_strings(strings: StringStore, texts: Sequence[str]) -> Array1d:
    """Add the text of each token to the vocab. Returns their hashes. Shape: (N,)"""
    hash_of = {text: strings.add(text) for text in dict.fromkeys(texts)}
    return numpy.asarray([hash_of[text] for text in texts], dtype="uint64")


def _first_tokens_of_docs(tokens: TaggedTokens, n_sents: int | None) -> Ints1d:
    """The token with which each doc begins. Shape: (number of docs,)"""
    first_tokens = numpy.flatnonzero(tokens.sent_start)
    # Of S sentences: whether a sentence is the first of the file, or after a -DOCSTART- line. (S,)
    begins_document = numpy.diff(tokens.n_docstarts[first_tokens], prepend=-1) > 0
    if n_sents is None:
        has_documents = tokens.n_docstarts[-1] > 0
        n_sents = 0 if has_documents else 1
    if n_sents == 0:  # a doc is a document, between two -DOCSTART- lines
        return first_tokens[begins_document]
    # The number of a sentence within its document is its number in the file, less that of the first
    # sentence of the document, which is the largest so far. (S,)
    number = numpy.arange(len(first_tokens))
    first_number = numpy.maximum.accumulate(numpy.where(begins_document, number, 0))
    begins_doc = (number - first_number) % n_sents == 0
    return first_tokens[begins_doc]


def copy_tokens(doc: Doc, vocab: Vocab | None = None, *, sentences: bool = False) -> Doc:
    """Make a doc of the words and spaces of another. It has no other annotation.

    doc (Doc): The doc.
    vocab (Vocab | None): The vocab of the copy. None: the same.
    sentences (bool): Whether the copy has the starts of sentences, unknown spaces, and short values
        of `user_data`, too.
    """
    words, spaces = doc.to_array([ORTH, SPACY]).T.tolist()
    if vocab not in (None, doc.vocab):
        # Another vocab doesn't know the hashes.
        words = [token.text for token in doc]
    copy = Doc(vocab or doc.vocab, words=words, spaces=spaces)
    if sentences:
        copy.has_unknown_spaces = doc.has_unknown_spaces
        copy.from_array([SENT_START], doc.to_array([SENT_START]))
        with_metadata(copy, doc.user_data)
    return copy


def copy_sentences(doc: Doc, other: Doc) -> None:
    """Copy the sentence starts of a doc to another of the same text, where a token begins at the
    same character. Without sentences nothing is changed."""
    if not doc.has_annotation("SENT_START"):
        return
    sent_start, first_chars = doc.to_array([SENT_START, IDX]).T
    is_start = numpy.isin(other.to_array([IDX]), first_chars[sent_start == 1])
    other.from_array([SENT_START], _sent_start_values(is_start).reshape(-1, 1))


def find_tag_key(record: Any) -> str | None:
    """The key of the tags, if the first record of a file has tokens and tags."""
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
    """Make docs of rows of tokens and tags, as datasets of Hugging Face have them. A row is a
    sentence.

    rows (Values): The rows, at least one.
    key (str): The key of the tags.
    format_name (str): The format of the file.
    names (Sequence[str] | None): The names of tags that are numbers.
    context (Context): What the reader needs.
    YIELDS (Doc): The docs.
    RAISES (CorpusError): If a row has no tokens and tags, or others than words and tags.
    """
    words: list[str] = []
    tags: list[str] = []
    places: list[FilePlace] = []
    row_of_first_token: dict[int, Any] = {}
    for place, row in rows:
        row_words, row_tags = _read_row(row, key, names, place)
        if row_words:
            row_of_first_token[len(words)] = row
        words += row_words
        tags += row_tags
        places += [place] * len(row_words)
    if not words:
        raise place.refuse("expected tokens and their tags, got none")
    sent_start = numpy.zeros(len(words), dtype=bool)
    sent_start[list(row_of_first_token)] = True
    n_docstarts = numpy.zeros(len(words), dtype="int64")
    tokens = TaggedTokens(words, tags, sent_start, n_docstarts)
    format_name = f"{format_name} of tokens and {key}"
    doc_id = context.options.doc_id
    if doc_id is None:
        n_sents = context.options.n_sents
        yield from make_docs(tokens, places.__getitem__, format_name, context, n_sents)
    else:
        # A doc for each row, with its id: `join_documents` joins them.
        docs = make_docs(tokens, places.__getitem__, format_name, context, 1)
        for doc, row in zip(docs, row_of_first_token.values()):
            yield with_metadata(doc, row, doc_id)


def _read_row(
    row: Any, key: str, names: Sequence[str] | None, place: FilePlace
) -> tuple[list[str], list[str]]:
    """Read the tokens and the tags of a row."""
    words: Any = row.get("tokens") if isinstance(row, dict) else None
    tags: Any = row.get(key) if isinstance(row, dict) else None
    if not isinstance(words, list) or not isinstance(tags, list):
        raise place.refuse(f"expected tokens and {key}, got {shown(row)}")
    for word in words:
        if not isinstance(word, str) or not word:
            raise place.refuse(f"tokens: expected words, got {shown(word)}")
    for word in words:
        if SURROGATE.search(word):
            expected = "expected words that can be UTF-8"
            raise place.refuse(f"tokens: {expected}, got {shown(word)}")
    if len(words) != len(tags):
        raise place.refuse(f"{key}: expected {len(words)} tags, one a token, got {len(tags)}")
    tag_names = [
        tag if isinstance(tag, str) else _name_of_number(tag, key, names, place) for tag in tags
    ]
    for name in tag_names:
        if SURROGATE.search(name):
            raise place.refuse(f"{key}: expected tags that can be UTF-8, got {shown(name)}")
    return words, tag_names


def _name_of_number(tag: Any, key: str, names: Sequence[str] | None, place: FilePlace) -> str:
    """The name of a tag that is a number."""
    if type(tag) is not int:  # JSON's true is an int, too
        raise place.refuse(f"{key}: expected tags, got {shown(tag)}")
    if tag == IGNORED:
        return "-"
    if names is None:
        where = f"(tag_names, or {DATASET_INFO[0]} beside the file)"
        hint = f"give the names in the order of their numbers {where}"
        raise place.refuse(f"{key}: expected names of tags, got {tag}: {hint}")
    if not 0 <= tag < len(names):
        raise place.refuse(f"{key}: expected a tag from 0 to {len(names) - 1}, got {tag}")
    return names[tag]


def find_tag_names(path: Path, key: str) -> list[str] | None:
    """The names of tags that are numbers, from the description of a dataset beside a file.

    path (Path): The file.
    key (str): The key of the tags.
    RETURNS (list[str] | None): The names in the order of their numbers; None if nothing has them.
    RAISES (CorpusError): If the description isn't JSON.
    """
    for name in DATASET_INFO:
        info_path = path.parent / name
        if not info_path.is_file():
            continue
        try:
            info = json.loads(info_path.read_text(encoding="utf8"))
        except ValueError as error:
            place = FilePlace(info_path, getattr(error, "lineno", 1))
            raise place.refuse(f"expected JSON: {error}") from None
        return _names_in(info, key)
    return None


def _names_in(info: Any, key: str) -> list[str] | None:
    """Look for {key: {"feature": {"names": […]}}} in a description, wherever it is."""
    if not isinstance(info, dict):
        return None
    feature: Any = info.get(key)
    while isinstance(feature, dict):
        if isinstance(feature.get("names"), list):
            return [str(name) for name in feature["names"]]
        feature = feature.get("feature")
    for block in info.values():
        names = _names_in(block, key)
        if names:
            return names
    return None
