"""The options of `init`, and whether they go together."""

from pathlib import Path
from typing import Literal

from spacy.util import is_package

Model = Literal["linear", "cnn", "hybrid", "transformer"]


Decoding = Literal["viterbi", "threshold", "min-cost"]


def check_raw_option(vectors: str | None, model: Model) -> None:
    """Check that vectors that are learned from raw text can be inputs of the model.

    RAISES (ValueError): If other vectors are given, too, or the model takes no static vectors.
    """
    if vectors is not None:
        raise ValueError("`raw_paths`: expected no `vectors` with it, as these are learned")
    if model == "transformer":
        raise ValueError("`raw_paths`: expected `model` linear, cnn or hybrid, got transformer")


def check_vectors_option(vectors: str, model: Model) -> None:
    """Check that given vectors can be inputs of the model.

    RAISES (ValueError): If there is no such pipeline, or the model takes no static vectors.
    """
    if model == "transformer":
        raise ValueError("`vectors`: expected `model` linear, cnn or hybrid, got transformer")
    if not is_package(vectors) and not Path(vectors).is_dir():
        raise ValueError(
            "`vectors`: expected the package or the folder of a pipeline with static vectors, got "
            f"{vectors!r}"
        )


def refuse_existing(path: Path) -> None:
    """Check that there is nothing at the path of a new file or folder.

    RAISES (ValueError): If there is something.
    """
    if path.exists():
        raise ValueError(f"{path}: expected a new file, got one that exists: use `force`")
