"""Lists of tokens and tags, as datasets of Hugging Face have them."""

import json
from pathlib import Path
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import numpy
from spacy.tokens import Doc

from .documents import mark
from .files import DATASET_INFO, Place, shown
from .found import Context
from .sentences import Sentences, make_docs

TAG_KEYS = ("ner_tags", "tags", "ner", "labels")
IGNORED = -100
"""The number of tags that don't count."""


def find_tag_key(value: Any) -> Optional[str]:
    """The key of the tags, if the first value of a file has tokens and tags.

    value (Any): The value.
    RETURNS (Optional[str]): The key; None if it has something else.
    """
    tokens = value.get("tokens") if isinstance(value, dict) else None
    if not isinstance(tokens, list) or any(not isinstance(token, str) for token in tokens):
        return None
    return next((key for key in TAG_KEYS if isinstance(value.get(key), list)), None)


def read_tagged(
    rows: Iterator[Tuple[Place, Any]], source: Place, key: str, form: str, context: Context
) -> Iterator[Doc]:
    """Make docs of tokens and tags: each row is a sentence.

    rows (Iterator[Tuple[Place, Any]]): The rows.
    source (Place): The file.
    key (str): The key of the tags.
    form (str): The name of the format.
    context (Context): Its options have the names of tags that are numbers, and how many sentences a
        doc has.
    RETURNS (Iterator[Doc]): The docs.
    RAISES (CorpusError): If a row has something else than tokens and as many tags.
    """
    words: List[str] = []
    tags: List[str] = []
    places: List[int] = []
    starts: List[int] = []
    sources: List[Any] = []
    names = context.options.tag_names
    for place, row in rows:
        tokens, given = _check_row(row, key, place)
        if tokens:
            starts.append(len(words))
            sources.append(row)
        words += tokens
        tags += [tag if type(tag) is str else _name(tag, key, names, place) for tag in given]
        places += [place.number] * len(tokens)
    if not words:
        raise source.refuse("expected tokens and their tags, got none")
    sent_start = numpy.zeros(len(words), dtype=bool)
    sent_start[starts] = True
    part = numpy.zeros(len(words), dtype="int64")
    sentences = Sentences(words, tags, numpy.asarray(places), sent_start, part)
    name = context.options.doc_id
    if name is not None:
        context = context._replace(options=context.options._replace(n_sents=1))
    docs = make_docs(sentences, source, f"{form} of tokens and {key}", context)
    return (mark(doc, row, name) for doc, row in zip(docs, sources)) if name else docs


def _check_row(row: Any, key: str, place: Place) -> Tuple[List[str], List[Any]]:
    tokens, tags = (row.get(name) if isinstance(row, dict) else None for name in ("tokens", key))
    if not isinstance(tokens, list) or not isinstance(tags, list):
        raise place.refuse(f"expected tokens and {key}, got {shown(row)}")
    wrong = [token for token in tokens if not isinstance(token, str) or not token]
    if wrong:
        raise place.refuse(f"tokens: expected words, got {shown(wrong[0])}")
    if len(tokens) != len(tags):
        raise place.refuse(f"{key}: expected {len(tokens)} tags, one a token, got {len(tags)}")
    return tokens, tags


def _name(tag: Any, key: str, names: Optional[Sequence[str]], place: Place) -> str:
    """The name of a tag that is a number."""
    if type(tag) is not int:
        raise place.refuse(f"{key}: expected tags, got {shown(tag)}")
    if tag == IGNORED:
        return "-"
    if names is None:
        raise place.refuse(
            f"{key}: expected names of tags, got {tag}: give the names in the order of their "
            f"numbers (tag_names, or {DATASET_INFO[0]} beside the file)"
        )
    if not 0 <= tag < len(names):
        raise place.refuse(f"{key}: expected a tag from 0 to {len(names) - 1}, got {tag}")
    return names[tag]


def tag_names_beside(path: Path, key: str) -> Optional[List[str]]:
    """The names of tags that are numbers, from the description of a dataset beside a file.

    path (Path): The file.
    key (str): The key of the tags.
    RETURNS (Optional[List[str]]): The names; None if nothing has them.
    """
    for name in DATASET_INFO:
        beside = path.parent / name
        if beside.is_file():
            try:
                return _names_in(json.loads(beside.read_text(encoding="utf8")), key)
            except ValueError as error:
                raise Place(beside, getattr(error, "lineno", 1)).refuse(
                    f"expected JSON: {error}"
                ) from None
    return None


def _names_in(info: Any, key: str) -> Optional[List[str]]:
    """Look for {key: {"feature": {"names": […]}}} in a description, wherever it is."""
    if not isinstance(info, dict):
        return None
    feature: Any = info.get(key)
    while isinstance(feature, dict):
        if isinstance(feature.get("names"), list):
            return [str(name) for name in feature["names"]]
        feature = feature.get("feature")
    return next(filter(None, (_names_in(value, key) for value in info.values())), None)
