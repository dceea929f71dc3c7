"""Checks of the arguments of the chain's functions, which raise a ValueError that says what was
expected. native.pyx has fast checks of its own, and calls these where one fails."""

from typing import Any, Tuple

import numpy
from thinc.util import is_cupy_array

from ..types import Potentials

FLOATS = (numpy.dtype("float32"), numpy.dtype("float64"))

MOST_TOKENS = 2**31 - 1
"""Maximum length of a sequence: the kernels have 32-bit lengths."""


def check_potentials(potentials: Potentials, name: str = "potentials") -> None:
    """Check the scores of a batch: types, shapes and lengths."""
    _check_floats(f"{name}.emissions", potentials.emissions, 2)
    n_tokens, n_tags = potentials.emissions.shape
    if n_tags < 1:
        raise ValueError(f"{name}.emissions: expected scores of at least 1 tag, got 0")
    shapes = {"transitions": (n_tags, n_tags), "start": (n_tags,), "end": (n_tags,)}
    for field, shape in shapes.items():
        scores = getattr(potentials, field)
        _check_floats(f"{name}.{field}", scores, len(shape))
        _check_shape(f"{name}.{field}", scores, shape, f"scores of {n_tags} tags")
    _check_lengths(f"{name}.lengths", potentials.lengths, n_tokens)


def check_values(values: Potentials, potentials: Potentials) -> None:
    """Check values of the tags and transitions of a batch: they have the shapes of its scores."""
    for field, scores in zip(Potentials._fields[:4], potentials):
        array = getattr(values, field)
        _check_floats(f"values.{field}", array, scores.ndim)
        _check_shape(f"values.{field}", array, scores.shape, "the shape of the scores")
    if values.lengths is potentials.lengths:
        return
    _check_lengths("values.lengths", values.lengths, len(values.emissions))
    if not numpy.array_equal(values.lengths, potentials.lengths):
        raise ValueError(
            f"values.lengths: expected those of the potentials, {potentials.lengths}, "
            f"got {values.lengths}"
        )


def check_tags(tags: Any, potentials: Potentials, name: str = "tags") -> None:
    """Check a tag for each token. Shape: (N,)"""
    n_tokens, n_tags = potentials.emissions.shape
    _check_kind(name, tags, "iu", "integers", 1)
    if tags.shape != (n_tokens,) or ((tags < 0) | (tags >= n_tags)).any():
        raise ValueError(
            f"{name}: expected a tag from 0 to {n_tags - 1} for each of the {n_tokens} tokens, "
            f"got {tags}"
        )


def check_allowed(allowed: Any, potentials: Potentials) -> None:
    """Check a set of tags for each token. Shape: (N, K) or (N,)"""
    if getattr(allowed, "ndim", 2) == 1:
        return check_tags(allowed, potentials, "allowed")
    _check_kind("allowed", allowed, "b", "truth values", 2)
    _check_shape("allowed", allowed, potentials.emissions.shape, "a truth value a token and tag")


def check_log_probs(log_probs: Any, potentials: Potentials) -> None:
    """Check the log-probability of each tag at each token. Shape: (N, K)"""
    _check_floats("log_probs", log_probs, 2)
    _check_shape("log_probs", log_probs, potentials.emissions.shape, "one a token and tag")


def check_segments(segments: Any, potentials: Potentials) -> None:
    """Check that segments are spans of tokens, each within one sequence."""
    begin, end, tags, after = segments
    for field, places in zip(segments._fields, (begin, end, tags)):
        _check_kind(f"segments.{field}", places, "iu", "integers", 1)
    n_tags = potentials.emissions.shape[1]
    _check_shape("segments.end", end, begin.shape, "as many as of segments.begin")
    sequence_ends = numpy.append(numpy.cumsum(potentials.lengths, dtype="int64"), -1)
    past = sequence_ends[numpy.searchsorted(sequence_ends[:-1], begin, side="right")]
    wrong = (begin < 0) | (begin >= end) | (end > past)
    if wrong.any():
        raise ValueError(
            "segments: expected begin < end within one sequence, got (begin, end) = "
            f"({begin[wrong][0]}, {end[wrong][0]}), lengths {potentials.lengths}"
        )
    _check_shape("segments.tags", tags, (int((end - begin).sum()),), "a tag for each token")
    if ((tags < 0) | (tags >= n_tags)).any():
        raise ValueError(f"segments.tags: expected tags from 0 to {n_tags - 1}, got {tags}")
    if after is not None:
        _check_kind("segments.after", after, "b", "truth values", 2)
        _check_shape("segments.after", after, (len(begin), n_tags), "truth values of each tag")


def check_derivatives(d_values: Any, shape: Tuple[int, ...], what: str = "sequences") -> None:
    """Check what is handed to a callback: derivatives in the shape of the values."""
    _check_kind("derivatives", d_values, "fiu", "real numbers", len(shape))
    _check_shape("derivatives", d_values, shape, f"one for each of the {shape[-1]} {what}")


def check_tolerance(tolerance: Any) -> None:
    """Check a difference of scores."""
    if not (isinstance(tolerance, (int, float, numpy.number)) and tolerance >= 0):
        raise ValueError(f"tolerance: expected a number of at least 0, got {tolerance!r}")


def check_count(name: str, count: Any) -> None:
    """Check a number of paths."""
    is_integer = isinstance(count, (int, numpy.integer)) and not isinstance(count, bool)
    if not is_integer or count < 1:
        raise ValueError(f"{name}: expected an integer of at least 1, got {count!r}")


def _check_floats(name: str, scores: Any, n_dimensions: int) -> None:
    _check_kind(name, scores, "f", "float32 or float64", n_dimensions)
    if scores.dtype not in FLOATS:
        raise ValueError(f"{name}: expected float32 or float64, got {scores.dtype}")


def _check_kind(name: str, array: Any, kinds: str, what: str, n_dimensions: int) -> None:
    if not (isinstance(array, numpy.ndarray) or is_cupy_array(array)):
        raise ValueError(f"{name}: expected an array of {what}, got {type(array).__name__}")
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name}: expected {what}, got an array of {array.dtype}")
    if array.ndim != n_dimensions:
        raise ValueError(f"{name}: expected {n_dimensions} dimensions, got the shape {array.shape}")


def _check_shape(name: str, array: Any, shape: Tuple[int, ...], what: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name}: expected {what}, shape {shape}, got {array.shape}")


def _check_lengths(name: str, lengths: Any, n_tokens: int) -> None:
    _check_kind(name, lengths, "iu", "integers", 1)
    in_range = ((lengths >= 0) & (lengths <= min(n_tokens, MOST_TOKENS))).all()
    if not in_range or int(lengths.sum(dtype="int64")) != n_tokens:
        raise ValueError(
            f"{name}: expected lengths that add up to the {n_tokens} rows of the emissions, "
            f"got {lengths}"
        )
