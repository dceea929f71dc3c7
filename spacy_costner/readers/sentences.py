"""Tokens and their tags to docs.

The sentences of a file are read as one long list of N tokens, with their tags and masks such as
which token begins a sentence (`TaggedTokens`). A row is a sentence of a file of JSON or of a
dataset: its words under "tokens", its tags under one of `TAG_KEYS`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

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
    """Make docs with entities of the tagged tokens of a file. Where spaces are isn't known, so docs
    have `doc.has_unknown_spaces`.

    tokens (TaggedTokens): The tokens.
    place_of (Callable[[int], FilePlace]): The place of a token.
    format_name (str): The format of the file.
    context (Context): What the reader needs. Its info gets the format, the scheme, and the tags
        that don't fit the scheme.
    n_sents (int | None): Sentences of a doc: see `ReadOptions`.
    YIELDS (Doc): The docs.
    RAISES (CorpusError): If something isn't a tag, or the tags belong to several schemes.
    """

    def refuse(token: int, message: str) -> Exception:
        return place_of(token).refuse(message)

    decoded = decode_tags(tokens.tags, tokens.sent_start, refuse)
    context.info.add_file(format_name, decoded.scheme)
    n_irregular = len(decoded.irregular)
    if n_irregular:
        first = int(decoded.irregular[0])
        message = f"tags don't fit {decoded.scheme}: they are read as conlleval does"
        text = f"{tokens.words[first]} {tokens.tags[first]}"
        context.info.add_problem(message, place_of(first), text, more=n_irregular - 1)

    # The attributes of all tokens are one table, of which each doc gets its rows: setting them
    # token by token would be slow.
    strings = context.nlp.vocab.strings
    hashes_of_labels = [strings.add(label) for label in decoded.labels]
    no_label = 0  # at the end, where the index -1 finds it
    label_hashes = numpy.asarray([*hashes_of_labels, no_label], dtype="uint64")
    attrs = [SENT_START, ENT_IOB, ENT_TYPE]
    columns = [
        _sent_start_values(tokens.sent_start),
        decoded.iob.astype("uint64"),
        label_hashes[decoded.label],
    ]
    if tokens.pos is not None:
        attrs.append(TAG)
        columns.append(_add_strings(strings, tokens.pos))
    attr_values = numpy.stack(columns, axis=1)  # (N, attributes)
    word_hashes: Any = _add_strings(strings, tokens.words)

    starts = _first_tokens_of_docs(tokens, n_sents).tolist()
    ends = [*starts[1:], len(tokens.words)]
    for start, end in zip(starts, ends):
        doc = Doc(context.nlp.vocab, words=word_hashes[start:end])
        yield doc.from_array(attrs, attr_values[start:end])


def _sent_start_values(sent_start: Array1d) -> Array1d:
    """The values of SENT_START for `Doc.from_array`: 1, or -1 where no sentence starts. The array
    is unsigned, so -1 is the number with the same bits. Shape: (T,)"""
    return numpy.where(sent_start, 1, -1).astype("int64").view("uint64")


def _add_strings(strings: StringStore, texts: Sequence[str]) -> Array1d:
    """Add the texts of tokens to the vocab, each different one once. Returns the hash of each
    token's. Shape: (N,)"""
    hash_of_text = {text: strings.add(text) for text in dict.fromkeys(texts)}
    return numpy.asarray([hash_of_text[text] for text in texts], dtype="uint64")


def _first_tokens_of_docs(tokens: TaggedTokens, n_sents: int | None) -> Ints1d:
    """Find the token with which each doc begins, if a doc has `n_sents` sentences of a document: 0
    for all of them. A document begins with the file and after each -DOCSTART- line. None: docs are
    documents if there are such lines, and else sentences. Shape: (number of docs,)"""
    first_tokens = numpy.flatnonzero(tokens.sent_start)
    # Whether each of S sentences is the first of its document: more -DOCSTART- lines are before it
    # than before the last sentence. Before the first they count as -1, so it begins one. (S,)
    begins_document = numpy.diff(tokens.n_docstarts[first_tokens], prepend=-1) > 0
    if n_sents is None:
        has_documents = tokens.n_docstarts[-1] > 0
        n_sents = 0 if has_documents else 1
    if n_sents == 0:
        return first_tokens[begins_document]
    # The number of a sentence within its document is its number in the file, less that of the first
    # sentence of the document. With documents that begin at 0 and 3: where(…) is 0 0 0 3 0, and the
    # largest so far 0 0 0 3 3. (S,)
    number = numpy.arange(len(first_tokens))
    first_number = numpy.maximum.accumulate(numpy.where(begins_document, number, 0))
    begins_doc = (number - first_number) % n_sents == 0
    return first_tokens[begins_doc]


def copy_tokens(doc: Doc, vocab: Vocab | None = None, *, sentences: bool = False) -> Doc:
    """Make a doc of the tokens of another, without its annotation, as a pipeline gets it.

    doc (Doc): The doc.
    vocab (Vocab | None): The vocab of the copy. None: the same.
    sentences (bool): Whether the copy has the starts of sentences, unknown spaces, and short values
        of `user_data`, too.
    RETURNS (Doc): The copy.
    """
    word_hashes, spaces = doc.to_array([ORTH, SPACY]).T.tolist()
    words: Any = word_hashes  # which `Doc` takes as well as texts
    if vocab is not None and vocab is not doc.vocab:
        # Another vocab doesn't know the hashes.
        words = [token.text for token in doc]
    copy = Doc(vocab or doc.vocab, words=words, spaces=spaces)
    if sentences:
        copy.has_unknown_spaces = doc.has_unknown_spaces
        copy.from_array([SENT_START], doc.to_array([SENT_START]))
        with_metadata(copy, doc.user_data)
    return copy


def copy_sentences(doc: Doc, other: Doc) -> None:
    """Copy the sentence starts of a doc to another doc of the same text, whose tokens may differ: a
    start is left out where no token of the other begins at the same character. If the doc has no
    sentences, the other stays as it is."""
    if not doc.has_annotation("SENT_START"):
        return
    is_start = starts_at_same_characters(doc, other)
    # A table of one column, for one attribute. (T, 1)
    other.from_array([SENT_START], _sent_start_values(is_start).reshape(-1, 1))


def starts_at_same_characters(doc: Doc, other: Doc) -> Array1d:
    """True for the tokens of another doc of the same text that begin where a sentence of this doc
    does. Shape: (T,)"""
    sent_start, first_chars = doc.to_array([SENT_START, IDX]).T
    return cast(Array1d, numpy.isin(other.to_array(IDX), first_chars[sent_start == 1]))


def find_tag_key(record: Any) -> str | None:
    """The key of the tags, such as "ner_tags", if the first record of a file has a list of words
    and a list of tags; otherwise None."""
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
    places: list[FilePlace] = []  # of each token
    row_of_first_token: dict[int, Any] = {}  # by the number of the token that the row begins with
    for place, row in rows:
        row_words, row_tags = _read_row(row, key, names, place)
        if row_words:
            row_of_first_token[len(words)] = row
        words += row_words
        tags += row_tags
        places += [place] * len(row_words)
    if not words:
        # `place` is that of the last row.
        raise place.refuse("expected tokens and their tags, got none")

    def place_of(token: int) -> FilePlace:
        return places[token]

    sent_start = numpy.zeros(len(words), dtype=bool)
    sent_start[list(row_of_first_token)] = True
    n_docstarts = numpy.zeros(len(words), dtype="int64")  # there are no such lines
    tokens = TaggedTokens(words, tags, sent_start, n_docstarts)
    format_name = f"{format_name} of tokens and {key}"

    doc_id = context.options.doc_id
    if doc_id is None:
        yield from make_docs(tokens, place_of, format_name, context, context.options.n_sents)
        return
    # A doc for each row, with its id: `join_documents` makes a doc of those of a document.
    docs = make_docs(tokens, place_of, format_name, context, n_sents=1)
    for doc, row in zip(docs, row_of_first_token.values()):
        yield with_metadata(doc, row, doc_id)


def _read_row(
    row: Any, key: str, names: Sequence[str] | None, place: FilePlace
) -> tuple[list[str], list[str]]:
    """Read the words of a row and the names of their tags, and check them.

    row (Any): The row.
    key (str): The key of the tags.
    names (Sequence[str] | None): The names of tags that are numbers.
    place (FilePlace): The place of the row, for errors.
    """
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
            expected = "expected words that can be UTF-8"
            raise place.refuse(f"tokens: {expected}, got {shown(word)}")
    if len(words) != len(tags):
        raise place.refuse(f"{key}: expected {len(words)} tags, one a token, got {len(tags)}")

    tag_names: list[str] = []
    for tag in tags:
        if isinstance(tag, str):
            tag_names.append(tag)
        else:
            tag_names.append(_name_of_number(tag, key, names, place))
    for name in tag_names:
        if SURROGATE.search(name):
            raise place.refuse(f"{key}: expected tags that can be UTF-8, got {shown(name)}")
    return words, tag_names


def _name_of_number(tag: Any, key: str, names: Sequence[str] | None, place: FilePlace) -> str:
    """The name of a tag that is a number: its place in `names`, the option or the description of
    the dataset. `key` is that of the tags, for errors."""
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
        info_path = path.parent / name  # the description
        if not info_path.is_file():
            continue
        try:
            info = json.loads(info_path.read_text(encoding="utf8"))
        except ValueError as error:
            place = FilePlace(info_path, getattr(error, "lineno", 1))
            raise place.refuse(f"expected JSON: {error}") from None
        return _find_names(info, key)
    return None


def _find_names(info: Any, key: str) -> list[str] | None:
    """Look for {key: {"feature": {"names": […]}}} in the description of a dataset, at any depth:
    dataset_infos.json has the features of each configuration. Returns the names of the tags under
    the key; None if it isn't there."""
    if not isinstance(info, dict):
        return None
    feature: Any = info.get(key)
    while isinstance(feature, dict):
        if isinstance(feature.get("names"), list):
            return [str(name) for name in feature["names"]]
        feature = feature.get("feature")

    for nested_info in info.values():
        names = _find_names(nested_info, key)
        if names:
            return names
    return None
