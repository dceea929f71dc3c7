"""Checks of the arguments of the chain's functions, which raise a ValueError that says what was
expected. native.pyx has fast checks of its own, and calls these where one fails."""

from typing import Any, Optional, Tuple

import numpy
from thinc.util import is_cupy_array

from ..types import Potentials

KINDS = {"f": "float32 or float64", "iu": "integers", "b": "truth values", "fiu": "real numbers"}
"""The kinds of types that arrays may have, for NumPy and in messages."""

MOST_TOKENS = 2**31 - 1
"""Maximum length of a sequence: the kernels have 32-bit lengths."""


def check_potentials(potentials: Potentials, name: str = "potentials") -> None:
    """Check the scores of a batch: types, shapes and lengths."""
    _check(f"{name}.emissions", potentials.emissions, "f", (None, None))
    n_tokens, n_tags = potentials.emissions.shape
    if n_tags < 1:
        raise ValueError(f"{name}.emissions: expected scores of at least 1 tag, got 0")
    shapes = {"transitions": (n_tags, n_tags), "start": (n_tags,), "end": (n_tags,)}
    for field, shape in shapes.items():
        scores = getattr(potentials, field)
        _check(f"{name}.{field}", scores, "f", shape, f"scores of {n_tags} tags")
    lengths = potentials.lengths
    _check(f"{name}.lengths", lengths, "iu", (None,))
    in_range = ((lengths >= 0) & (lengths <= min(n_tokens, MOST_TOKENS))).all()
    if not in_range or int(lengths.sum(dtype="int64")) != n_tokens:
        expected = f"lengths that add up to the {n_tokens} rows of the emissions"
        raise ValueError(f"{name}.lengths: expected {expected}, got {lengths}")


def check_values(values: Potentials, potentials: Potentials) -> None:
    """Check values of the tags and transitions of a batch: they have the shapes of its scores."""
    for field, scores in zip(Potentials._fields[:4], potentials):
        array = getattr(values, field)
        _check(f"values.{field}", array, "f", scores.shape, "the shape of the scores")
    _check("values.lengths", values.lengths, "iu", (None,))
    if not numpy.array_equal(values.lengths, potentials.lengths):
        expected = f"those of the potentials, {potentials.lengths}"
        raise ValueError(f"values.lengths: expected {expected}, got {values.lengths}")


def check_tags(tags: Any, potentials: Potentials, name: str = "tags") -> None:
    """Check a tag for each token. Shape: (N,)"""
    n_tokens, n_tags = potentials.emissions.shape
    _check(name, tags, "iu", (None,))
    if tags.shape != (n_tokens,) or ((tags < 0) | (tags >= n_tags)).any():
        expected = f"a tag from 0 to {n_tags - 1} for each of the {n_tokens} tokens"
        raise ValueError(f"{name}: expected {expected}, got {tags}")


def check_allowed(allowed: Any, potentials: Potentials) -> None:
    """Check a set of tags for each token. Shape: (N, K) or (N,)"""
    if getattr(allowed, "ndim", 2) == 1:
        return check_tags(allowed, potentials, "allowed")
    shape = potentials.emissions.shape
    _check("allowed", allowed, "b", shape, "a truth value a token and tag")


def check_log_probs(log_probs: Any, potentials: Potentials) -> None:
    """Check the log-probability of each tag at each token. Shape: (N, K)"""
    _check("log_probs", log_probs, "f", potentials.emissions.shape, "one a token and tag")


def check_segments(segments: Any, potentials: Potentials) -> None:
    """Check that segments are spans of tokens, each within one sequence."""
    begin, end, tags, after = segments
    for field, places in zip(segments._fields, (begin, end, tags)):
        _check(f"segments.{field}", places, "iu", (None,))
    n_tags = potentials.emissions.shape[1]
    _check("segments.end", end, "iu", begin.shape, "as many as of segments.begin")
    sequence_ends = numpy.append(numpy.cumsum(potentials.lengths, dtype="int64"), -1)
    past = sequence_ends[numpy.searchsorted(sequence_ends[:-1], begin, side="right")]
    wrong = (begin < 0) | (begin >= end) | (end > past)
    if wrong.any():
        got = f"(begin, end) = ({begin[wrong][0]}, {end[wrong][0]}), lengths {potentials.lengths}"
        raise ValueError(f"segments: expected begin < end within one sequence, got {got}")
    _check("segments.tags", tags, "iu", (int((end - begin).sum()),), "a tag for each token")
    if ((tags < 0) | (tags >= n_tags)).any():
        raise ValueError(f"segments.tags: expected tags from 0 to {n_tags - 1}, got {tags}")
    if after is not None:
        _check("segments.after", after, "b", (len(begin), n_tags), "truth values of each tag")


def check_derivatives(d_values: Any, shape: Tuple[int, ...], what: str = "sequences") -> None:
    """Check what is handed to a callback: derivatives in the shape of the values."""
    _check("derivatives", d_values, "fiu", shape, f"one for each of the {shape[-1]} {what}")


def check_tolerance(tolerance: Any) -> None:
    """Check a difference of scores."""
    if not (isinstance(tolerance, (int, float, numpy.number)) and tolerance >= 0):
        raise ValueError(f"tolerance: expected a number of at least 0, got {tolerance!r}")


def check_count(name: str, count: Any) -> None:
    """Check a number of paths."""
    is_integer = isinstance(count, (int, numpy.integer)) and not isinstance(count, bool)
    if not is_integer or count < 1:
        raise ValueError(f"{name}: expected an integer of at least 1, got {count!r}")


def _check(
    name: str, array: Any, kinds: str, shape: Tuple[Optional[int], ...], what: str = ""
) -> None:
    """Check the type and the shape of an array. None in the shape is any length."""
    if not (isinstance(array, numpy.ndarray) or is_cupy_array(array)):
        raise ValueError(f"{name}: expected an array of {KINDS[kinds]}, got {type(array).__name__}")
    is_usual = kinds != "f" or array.dtype in ("float32", "float64")
    if array.dtype.kind not in kinds or not is_usual:
        raise ValueError(f"{name}: expected {KINDS[kinds]}, got an array of {array.dtype}")
    if array.ndim != len(shape):
        raise ValueError(f"{name}: expected {len(shape)} dimensions, got the shape {array.shape}")
    if any(n not in (None, got) for n, got in zip(shape, array.shape)):
        raise ValueError(f"{name}: expected {what}, shape {shape}, got {array.shape}")
