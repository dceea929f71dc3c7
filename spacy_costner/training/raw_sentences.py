"""The sentences of raw text that static vectors were learned from: their hashes, in a file beside
the vectors. Text that vectors were learned from measures a pipeline as little as training text."""

import json
from collections.abc import Iterable
from pathlib import Path

from spacy.util import get_model_meta, get_package_path, is_package
from thinc.types import Array1d

from .known_text import pack_ids, unpack_ids

FILE = "raw_text.json"
"""In the folder of the pipeline that has the vectors."""


def save_raw_sentences(folder: Path, ids: Iterable[int]) -> None:
    """Save the hashes of sentences: see `sentence_ids`."""
    text = json.dumps({"sentences": pack_ids(ids)})
    (folder / FILE).write_text(text, encoding="utf8")


def has_raw_sentences(folder: Path) -> bool:
    """Whether vectors in a folder were learned by `learn_vectors`, which saves the hashes."""
    return (folder / FILE).is_file()


def read_raw_sentences(vectors: str | None) -> Array1d:
    """Read the hashes of the sentences that vectors were learned from. Of other vectors there are
    none. Shape: (S,)

    vectors (str | None): The package or the folder of a pipeline, as in initialize.vectors.
    RAISES (ValueError): If the file of the hashes is damaged.
    """
    if vectors is None or not has_raw_sentences(pipeline_folder(vectors)):
        return unpack_ids("")
    path = pipeline_folder(vectors) / FILE
    try:
        return unpack_ids(json.loads(path.read_text(encoding="utf8"))["sentences"])
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path}: expected what `costner vectors` writes: {error}") from error


def pipeline_folder(name: str) -> Path:
    """The folder of a pipeline, from its package or its folder."""
    if not is_package(name):
        return Path(name)
    package = get_package_path(name)
    meta = get_model_meta(package)
    return package / f"{meta['lang']}_{meta['name']}-{meta['version']}"
