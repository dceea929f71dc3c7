"""Tokens and their tags to docs. Each format is read as one long list of tokens and one of tags."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE, IDX, ORTH, SENT_START, SPACY, TAG
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.types import Array1d, Ints1d

from .context import Context
from .documents import with_data
from .files import DATASET_INFO, SURROGATE, Place, Values, shown
from .schemes import decode_tags

ATTRS = [SENT_START, ENT_IOB, ENT_TYPE]
TAG_KEYS = ("ner_tags", "tags", "ner", "labels")
IGNORED = -100
"""The number of tags that don't count."""


def make_docs(
    words: Sequence[str],
    tags: Sequence[str],
    sent_start: Array1d,
    part: Ints1d,
    place: Callable[[int], Place],
    form: str,
    context: Context,
    n_sents: int | None,
    pos: Sequence[str] | None = None,
) -> Iterator[Doc]:
    """Make docs of the tagged tokens of a file in some format. It is not known where spaces are:
    `doc.has_unknown_spaces`. The context gets the format, the scheme and the tags that don't fit
    it. `sent_start` is true for the first token of a sentence, `part` the number of the -DOCSTART-
    part of a token, 0 before the first, and `place` gives the place of a token. `pos` are parts of
    speech, for `token.tag_`. Shapes: (N,)

    RAISES (CorpusError): If something isn't a tag, or the tags belong to several schemes.
    """
    iob, label, labels, scheme, irregular = decode_tags(
        tags, sent_start, lambda token, message: place(token).refuse(message)
    )
    context.info.add_file(form, scheme)
    if n := len(irregular):
        token = int(irregular[0])
        message = f"tags don't fit {scheme}: they are read as conlleval does"
        context.info.add_problem(message, place(token), f"{words[token]} {tags[token]}", more=n - 1)
    vocab = context.nlp.vocab
    names = [vocab.strings.add(name) for name in labels]
    attrs = ATTRS if pos is None else [*ATTRS, TAG]
    columns = numpy.empty((len(words), len(attrs)), dtype="uint64")
    columns[:, 0] = numpy.where(sent_start, 1, -1).astype("int64").view("uint64")
    columns[:, 1] = iob
    columns[:, 2] = numpy.asarray([*names, 0], dtype="uint64")[label]
    if pos is not None:
        pos_ids = {name: vocab.strings.add(name) for name in dict.fromkeys(pos)}
        columns[:, 3] = [pos_ids[name] for name in pos]
    orth_of = {word: vocab.strings.add(word) for word in dict.fromkeys(words)}
    orth: Any = numpy.fromiter(map(orth_of.__getitem__, words), dtype="uint64", count=len(words))
    first = numpy.flatnonzero(sent_start)
    is_new, number = numpy.diff(part[first], prepend=-1) > 0, numpy.arange(len(first))
    if n_sents is None:
        n_sents = 0 if part[-1] > 0 else 1
    if n_sents > 0:
        is_new = (number - numpy.maximum.accumulate(number * is_new)) % n_sents == 0
    starts = first[is_new].tolist()
    for start, end in zip(starts, [*starts[1:], len(words)]):
        yield Doc(vocab, words=orth[start:end]).from_array(attrs, columns[start:end])


def copy_tokens(doc: Doc, vocab: Vocab | None = None, *, sentences: bool = False) -> Doc:
    """Make a doc of the words and spaces of another. It has no other annotation.

    doc (Doc): The doc.
    vocab (Vocab | None): The vocab of the copy. None: the same.
    sentences (bool): Whether the copy has the starts of sentences, unknown spaces, and short values
        of `user_data`, too.
    """
    words, spaces = doc.to_array([ORTH, SPACY]).T.tolist()
    if vocab not in (None, doc.vocab):
        words = [token.text for token in doc]
    copy = Doc(vocab or doc.vocab, words=words, spaces=spaces)
    if sentences:
        copy.has_unknown_spaces = doc.has_unknown_spaces
        copy.from_array([SENT_START], doc.to_array([SENT_START]))
        with_data(copy, doc.user_data)
    return copy


def copy_sentences(doc: Doc, other: Doc) -> None:
    """Copy the sentence starts of a doc to another of the same text, where a token begins at the
    same character. Without sentences nothing is changed."""
    if not doc.has_annotation("SENT_START"):
        return
    starts, begins = doc.to_array([SENT_START, IDX]).T
    own = numpy.isin(other.to_array([IDX]), begins[starts == 1]).reshape(-1, 1)
    other.from_array([SENT_START], numpy.where(own, 1, -1).astype("int64").view("uint64"))


def find_tag_key(value: Any) -> str | None:
    """The key of the tags, if the first value of a file has tokens and tags."""
    tokens = value.get("tokens") if isinstance(value, dict) else None
    if not isinstance(tokens, list) or any(not isinstance(token, str) for token in tokens):
        return None
    return next((key for key in TAG_KEYS if isinstance(value.get(key), list)), None)


def read_tagged(
    rows: Values, key: str, form: str, names: Sequence[str] | None, context: Context
) -> Iterator[Doc]:
    """Make docs of rows of tokens and tags, as datasets of Hugging Face have them. A row is a
    sentence. `names` are those of tags that are numbers."""
    words: list[str] = []
    tags: list[str] = []
    places: list[Place] = []
    sources: dict[int, Any] = {}
    for place, row in rows:
        tokens, given = (row.get(k) if isinstance(row, dict) else None for k in ("tokens", key))
        if not isinstance(tokens, list) or not isinstance(given, list):
            raise place.refuse(f"expected tokens and {key}, got {shown(row)}")
        if wrong := [token for token in tokens if not isinstance(token, str) or not token]:
            raise place.refuse(f"tokens: expected words, got {shown(wrong[0])}")
        if wrong := [token for token in tokens if SURROGATE.search(token)]:
            expected = "expected words that can be UTF-8"
            raise place.refuse(f"tokens: {expected}, got {shown(wrong[0])}")
        if len(tokens) != len(given):
            raise place.refuse(f"{key}: expected {len(tokens)} tags, one a token, got {len(given)}")
        if tokens:
            sources[len(words)] = row
        words += tokens
        row_tags = [tag if type(tag) is str else _name(tag, key, names, place) for tag in given]
        if wrong := [tag for tag in row_tags if SURROGATE.search(tag)]:
            raise place.refuse(f"{key}: expected tags that can be UTF-8, got {shown(wrong[0])}")
        tags += row_tags
        places += [place] * len(tokens)
    if not words:
        raise place.refuse("expected tokens and their tags, got none")
    part = numpy.zeros(len(words), dtype="int64")
    sent_start, doc_id = part.astype(bool), context.options.doc_id
    sent_start[[*sources]] = True
    n_sents = context.options.n_sents if doc_id is None else 1
    form = f"{form} of tokens and {key}"
    docs = make_docs(words, tags, sent_start, part, places.__getitem__, form, context, n_sents)
    if doc_id is None:
        yield from docs
    else:
        for doc, row in zip(docs, sources.values()):
            yield with_data(doc, row, doc_id)


def _name(tag: Any, key: str, names: Sequence[str] | None, place: Place) -> str:
    """The name of a tag that is a number."""
    if type(tag) is not int:
        raise place.refuse(f"{key}: expected tags, got {shown(tag)}")
    if tag == IGNORED:
        return "-"
    if names is None:
        where = f"(tag_names, or {DATASET_INFO[0]} beside the file)"
        give = f"give the names in the order of their numbers {where}"
        raise place.refuse(f"{key}: expected names of tags, got {tag}: {give}")
    if not 0 <= tag < len(names):
        raise place.refuse(f"{key}: expected a tag from 0 to {len(names) - 1}, got {tag}")
    return names[tag]


def tag_names_beside(path: Path, key: str) -> list[str] | None:
    """The names of tags that are numbers, from the description of a dataset beside a file; None if
    nothing has them."""
    for name in DATASET_INFO:
        beside = path.parent / name
        if beside.is_file():
            try:
                return _names_in(json.loads(beside.read_text(encoding="utf8")), key)
            except ValueError as error:
                place = Place(beside, getattr(error, "lineno", 1))
                raise place.refuse(f"expected JSON: {error}") from None
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
    return next(filter(None, (_names_in(value, key) for value in info.values())), None)
