"""Read .spacy files: docs that spaCy's `DocBin` has saved."""

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
"""The number of bytes in memory up to which a file may be compressed as much as zlib can."""

MOST_COMPRESSED = 100
"""For larger files, the largest number of bytes in memory for a byte of the file. A corpus has 10
to 20."""


def read_docbin(path: Path, context: Context) -> Iterator[Doc]:
    """Read a .spacy file.

    path (Path): The .spacy file.
    context (Context): The pipeline, the options, and the info for problems.
    YIELDS (Doc): The docs, as they were saved.
    RAISES (CorpusError): If it is damaged.
    """
    try:
        docbin = _load_docbin(path.read_bytes())
        context.info.add_file("spaCy's binary format")
        for number, doc in enumerate(docbin.get_docs(context.nlp.vocab), start=1):
            for group in doc.spans.values():
                # spaCy makes the spans of a group only when they are read, and then refuses spans
                # outside of the doc.
                list(group)
            yield context.placed(doc, FilePlace(path, number, "doc"))
    except (ValueError, LookupError, TypeError, AttributeError, zlib.error) as error:
        expected = "a file that spaCy's DocBin has saved"
        raise CorpusError(f"{path}: expected {expected}: {error}") from error


def _load_docbin(data: bytes) -> DocBin:
    """Load a DocBin from the bytes of a file, and check that its parts fit together, which spaCy
    doesn't check. Damage raises errors of several types: see `read_docbin`."""
    most_bytes = max(SMALL_DOCBIN, MOST_COMPRESSED * len(data))
    saved = srsly.msgpack_loads(inflate(data, most_bytes))
    if not saved["attrs"]:
        raise ValueError("expected token attributes, got none")
    docbin = DocBin().from_bytes(data)

    # "lengths" has the number of tokens of each doc, "spaces" a truth value for each token.
    lengths = numpy.frombuffer(saved["lengths"], dtype="int32")
    n_tokens = len(saved["spaces"])
    if (lengths < 0).any() or lengths.sum(dtype="int64") != n_tokens:
        got = shown(lengths.tolist())
        raise ValueError(f"expected lengths of docs that sum to {n_tokens} tokens, got {got}")

    # Each of these lists has an item for each doc.
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
