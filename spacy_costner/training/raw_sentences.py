"""Hashes of the sentences of raw text that static vectors were learned from, in a file next to the
vectors.

Such text is known to the model, as training text is. So a pipeline should not be evaluated on it,
and the hashes show whether it is: see `known_text`.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from spacy.util import get_model_meta, get_package_path, is_package
from thinc.types import Array1d

from .known_text import pack_ids, unpack_ids

FILE = "raw_text.json"
"""The name of the file, in the folder of the pipeline that has the vectors."""


def save_raw_sentences(folder: Path, ids: Iterable[int]) -> None:
    """Save hashes of sentences, as `known_text.sentence_ids` makes them, in the folder of a
    pipeline."""
    text = json.dumps({"sentences": pack_ids(ids)})
    (folder / FILE).write_text(text, encoding="utf8")


def are_learned_vectors(folder: Path) -> bool:
    """Whether the vectors in a folder were learned from raw text by `learn_vectors`, which saves
    the hashes of its sentences."""
    return (folder / FILE).is_file()


def read_raw_sentences(vectors: str | None) -> Array1d:
    """Read the hashes of the sentences that static vectors were learned from.

    vectors (str | None): The package or the folder of the pipeline with the vectors, as in the
        setting initialize.vectors.
    RETURNS (Array1d): The hashes. Empty if `learn_vectors` did not make the vectors.
    RAISES (ValueError): If the file of the hashes is damaged.
    """
    if vectors is None or not are_learned_vectors(pipeline_folder(vectors)):
        return unpack_ids("")  # no hashes
    path = pipeline_folder(vectors) / FILE
    try:
        saved = json.loads(path.read_text(encoding="utf8"))
        return unpack_ids(saved["sentences"])
    except Exception as error:  # damaged hashes may raise any: see `unpack_ids`
        expected = "expected hashes as `learn_vectors` saves them"
        raise ValueError(f"{path}: {expected}: {error}") from error


def pipeline_folder(name: str) -> Path:
    """Return the folder of a pipeline. `name` is the name of a package or the path of a folder."""
    if not is_package(name):
        return Path(name)
    package = get_package_path(name)
    # `spacy package` puts the pipeline into a folder of this name in the package.
    meta = get_model_meta(package)
    return package / f"{meta['lang']}_{meta['name']}-{meta['version']}"
