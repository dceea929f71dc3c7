"""Hashes of the raw-text sentences used to train static vectors, stored in a file next to the
vectors.

A model has seen this text, just as it has seen its training text. A pipeline should therefore not
be evaluated on it, and the hashes make it possible to detect this: see `known_text`.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from spacy.util import get_model_meta, get_package_path, is_package
from thinc.types import Array1d

from .known_text import pack_ids, unpack_ids

FILE = "raw_text.json"
"""The name of the file in the directory of the pipeline with the vectors."""


def save_raw_sentences(folder: Path, ids: Iterable[int]) -> None:
    """Save hashes of sentences, as returned by `known_text.sentence_ids`, in the directory of a
    pipeline."""
    text = json.dumps({"sentences": pack_ids(ids)})
    (folder / FILE).write_text(text, encoding="utf8")


def are_learned_vectors(folder: Path) -> bool:
    """Check whether the vectors in a directory were trained on raw text by `learn_vectors`, which
    saves the hashes of the sentences."""
    return (folder / FILE).is_file()


def read_raw_sentences(vectors: str | None) -> Array1d:
    """Read the hashes of the sentences that static vectors were trained on.

    vectors (str | None): The package or directory of the pipeline with the vectors, as in the
        setting initialize.vectors.
    RETURNS (Array1d): The hashes. Empty if the vectors weren't created by `learn_vectors`.
    RAISES (ValueError): If the file with the hashes is invalid.
    """
    if vectors is None or not are_learned_vectors(pipeline_folder(vectors)):
        return unpack_ids("")  # no hashes
    path = pipeline_folder(vectors) / FILE
    try:
        saved = json.loads(path.read_text(encoding="utf8"))
        return unpack_ids(saved["sentences"])
    except Exception as error:  # invalid hashes may raise any error: see `unpack_ids`
        expected = "expected hashes as `learn_vectors` saves them"
        raise ValueError(f"{path}: {expected}: {error}") from error


def pipeline_folder(name: str) -> Path:
    """Return the directory of a pipeline. `name` is the name of a package or the path of a
    directory."""
    if not is_package(name):
        return Path(name)
    package = get_package_path(name)
    # `spacy package` stores the pipeline in a subdirectory with this name.
    meta = get_model_meta(package)
    return package / f"{meta['lang']}_{meta['name']}-{meta['version']}"
