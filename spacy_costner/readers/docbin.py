"""Read .spacy files, which are saved by spaCy's `DocBin`."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy
import srsly
from spacy.tokens import Doc, DocBin

from ..files.compression import inflate
from .context import Context
from .files import CorpusError, FilePlace, shown

DOCBIN = ".spacy"

SMALL_DOCBIN = 1 << 28
"""The uncompressed size, in bytes, up to which any compression ratio is allowed."""

MOST_COMPRESSED = 100
"""The maximum compression ratio of larger files. The ratio of a corpus is usually 10 to 20."""


def read_docbin(path: Path, context: Context) -> Iterator[Doc]:
    """Read the docs of a .spacy file.

    path (Path): The .spacy file.
    context (Context): The pipeline, the options, and the info that collects problems.
    YIELDS (Doc): The docs, as they were saved.
    RAISES (CorpusError): If the file is invalid.
    """
    try:
        docbin = _load_docbin(path.read_bytes())
        context.info.add_file("spaCy's binary format")
        for number, doc in enumerate(docbin.get_docs(context.nlp.vocab), start=1):
            for group in doc.spans.values():
                # spaCy only creates the spans of a group when they are accessed. Access them here,
                # so that invalid spans raise an error.
                list(group)
            yield context.placed(doc, FilePlace(path, number, "doc"))
    except (ValueError, LookupError, TypeError, AttributeError, zlib.error) as error:
        expected = "a file that spaCy's DocBin has saved"
        raise CorpusError(f"{path}: expected {expected}: {error}") from error


def _load_docbin(data: bytes) -> DocBin:
    """Load a DocBin from bytes, and check that its parts are consistent, which spaCy doesn't do.
    Invalid data raises errors of various types: see `read_docbin`."""
    most_bytes = max(SMALL_DOCBIN, MOST_COMPRESSED * len(data))
    saved = srsly.msgpack_loads(inflate(data, most_bytes))
    if not saved["attrs"]:
        raise ValueError("expected token attributes, got none")
    docbin = DocBin().from_bytes(data)

    # "lengths" contains the number of tokens in each doc, and "spaces" contains a boolean for each
    # token.
    lengths = numpy.frombuffer(saved["lengths"], dtype="int32")
    n_tokens = len(saved["spaces"])
    if (lengths < 0).any() or lengths.sum(dtype="int64") != n_tokens:
        got = shown(lengths.tolist())
        raise ValueError(f"expected lengths of docs that sum to {n_tokens} tokens, got {got}")

    # Each of these lists must contain one item per doc.
    n_docs_of_lists = {
        len(docbin.tokens),
        len(docbin.spaces),
        len(docbin.cats),
        len(docbin.flags),
        len(docbin.span_groups),
        len(docbin.user_data),
    }
    if len(n_docs_of_lists) > 1:
        raise ValueError(f"expected one item per doc in each list, got {sorted(n_docs_of_lists)}")

    for tokens, spaces in zip(docbin.tokens, docbin.spaces):
        if len(tokens) != len(spaces):
            raise ValueError("expected one space value per token")
    return docbin
