"""Calls of the chain with one argument spoiled: wrong shapes, types, lengths and numbers.

    python -m tests.hostile [number of calls] [seed]

Each is refused by a ValueError that names an argument, or answered as the same numbers in the usual
types are. Built with sanitizers, compiled code must not read or write outside.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

from spacy_costner import chain
from spacy_costner.tags import Entities
from spacy_costner.types import EntityTags, Potentials

from .support.batches import random_potentials

Rng = numpy.random.Generator
NUMBERS = (numpy.nan, numpy.inf, -numpy.inf, -1, 0, 1, 5, 1e30, 2**31, 2**32 + 3, 2**63 - 1)
TYPES = ("float16", "float32", "float64", "longdouble", "complex128", "object", "str", "bool")
TYPES += ("int8", "int32", "int64", "uint64", ">f8", ">i4")


class Call(NamedTuple):
    """A function of the chain, its arguments (potentials and segments are taken apart, as
    `potentials.start`), and what its callback takes, if it has one."""

    name: str
    arguments: dict[str, Any]
    derivatives: Any = None


def random_call(rng: Rng) -> Call:
    """A call that is right."""
    lengths = rng.integers(0, 7, size=rng.integers(1, 5))
    potentials = random_potentials(
        list(lengths), int(rng.choice([1, 2, 5, 17])), float(rng.choice([1.0, 100.0])),
        str(rng.choice(["float32", "float64"])), seed=int(rng.integers(2**32)),
    )  # fmt: skip
    for scores in potentials[:4]:
        scores[rng.uniform(size=scores.shape) < rng.choice([0.0, 0.3])] = -numpy.inf
    n_tokens = len(potentials.emissions)
    name = str(rng.choice(list(MORE_ARGUMENTS)))
    arguments = {f"potentials.{field}": a for field, a in potentials._asdict().items()}
    arguments.update(MORE_ARGUMENTS[name](potentials, rng))
    n = len(arguments.get("segments.begin", ()))
    shapes = {"segment_log_probs": (n,), "segment_max_scores": (2, n), "log_marginals": (n_tokens,)}
    return Call(name, arguments, rng.normal(size=shapes.get(name, (len(lengths),))))


def _tags(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    return {"tags": rng.integers(potentials.emissions.shape[1], size=len(potentials.emissions))}


def _allowed(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    if rng.integers(2):
        return {"allowed": _tags(potentials, rng)["tags"]}
    return {"allowed": rng.uniform(size=potentials.emissions.shape) < 0.5}


def _values(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    values = [rng.normal(size=scores.shape) for scores in potentials[:4]]
    return {f"values.{f}": a for f, a in zip(potentials._fields, [*values, potentials.lengths])}


def random_segments(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    tokens = numpy.flatnonzero(rng.uniform(size=len(potentials.emissions)) < 0.5)
    ends = numpy.cumsum(potentials.lengths)
    past = ends[numpy.searchsorted(ends, tokens, side="right")]
    end = rng.integers(tokens, past) + 1
    n_tags = potentials.emissions.shape[1]
    return {
        "segments.begin": tokens,
        "segments.end": end,
        "segments.tags": rng.integers(n_tags, size=int((end - tokens).sum())),
        "segments.after": rng.choice([None, 1]) and rng.uniform(size=(len(tokens), n_tags)) < 0.7,
    }


def _entity_tags(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    n_tokens, n_tags = potentials.emissions.shape
    label_of = rng.integers(-1, min(n_tags, 3), size=n_tags)
    masks = rng.uniform(size=(n_tags + 2, n_tags)) < 0.6
    return {
        "entity_tags.label_of": label_of,
        "entity_tags.opening": masks[0],
        "entity_tags.closing": masks[1],
        "entity_tags.inside": masks[2:] & (label_of[:, None] == label_of),
        "is_space": rng.choice([None, 1]) and rng.uniform(size=n_tokens) < 0.3,
    }


def _entities(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    segments = random_segments(potentials, rng)
    begin = segments["segments.begin"]
    return {
        "entities.begin": begin,
        "entities.end": segments["segments.end"],
        "entities.label": rng.integers(-1, 4, size=len(begin)),
        **_entity_tags(potentials, rng),
    }


def _floor(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    return {"floor": float(rng.choice([1e-9, 0.01, 0.5, 1.0])), **_entity_tags(potentials, rng)}


MORE_ARGUMENTS: dict[str, Callable[[Potentials, Rng], dict[str, Any]]] = {
    **dict.fromkeys(("log_partition", "marginals", "best_path", "entropy"), lambda *_: {}),
    **dict.fromkeys(("path_score", "path_log_prob"), _tags),
    **dict.fromkeys(("best_path_excluding", "log_partition_excluding", "log_marginals"), _allowed),
    "expectation": _values,
    "entity_probs": _entities,
    "likely_entities": _floor,
    **dict.fromkeys(("segment_log_probs", "segment_max_scores"), random_segments),
    "k_best": lambda potentials, rng: {"k": int(rng.integers(1, 6))},
    "sample_paths": lambda potentials, rng: {"n": int(rng.integers(1, 6))},
    "best_of_tied": lambda potentials, rng: {
        "log_probs": rng.normal(size=potentials.emissions.shape),
        "tolerance": float(rng.uniform()),
    },
}


def spoil(call: Call, rng: Rng) -> Call:
    """Make one argument, or what the callback takes, into something else."""
    parts = {**call.arguments, "derivatives": call.derivatives}
    name = [*parts][rng.integers(len(parts))]
    how = WAYS[rng.integers(len(WAYS))] if parts[name] is not None else _to_something_else
    with numpy.errstate(invalid="ignore", over="ignore"):
        parts[name] = how(parts[name], rng)
    return Call(call.name, parts, parts.pop("derivatives"))


def _to_type(array: Any, rng: Rng) -> Any:
    return numpy.asarray(array).astype(str(rng.choice(TYPES)))


def _to_size(array: Any, rng: Rng) -> Any:
    array = numpy.atleast_1d(array)
    shape = [int(rng.choice([0, 1, n, n + 1, max(n - 1, 0), 2 * n])) for n in array.shape]
    return numpy.resize(array, shape)


def _to_shape(array: Any, rng: Rng) -> Any:
    array = numpy.atleast_1d(array)
    shapes = (array.T, array.ravel(), array[None], array[..., None], array[..., ::-1])
    return shapes[rng.integers(len(shapes))]


def _with_number(array: Any, rng: Rng) -> Any:
    array, number = numpy.array(array), NUMBERS[rng.integers(len(NUMBERS))]
    if array.dtype.kind in "iu" and numpy.isfinite(number):
        array = array.astype("int64")
    if array.size:
        array.flat[rng.integers(array.size)] = numpy.asarray(number).astype(array.dtype)
    return array


def _to_something_else(array: Any, rng: Rng) -> Any:
    others: list[Any] = [None, 0, -1, "B", [], numpy.asarray(array).tolist(), numpy.zeros(())]
    return others[rng.integers(len(others))]


ARGUMENTS = "potentials values segments tags allowed log_probs tolerance k n".split()  # noqa: SIM905
ARGUMENTS += ["entities", "entity_tags", "is_space", "floor"]
FORMS: dict[str, Callable[..., Any]] = {
    "potentials": Potentials,
    "values": Potentials,
    "segments": chain.Segments,
    "entities": Entities,
    "entity_tags": EntityTags,
}
WAYS = (_to_type, _to_size, _to_size, _to_shape, _with_number, _with_number, _to_something_else)


def answer(call: Call, seed: int) -> list[numpy.ndarray]:
    """Make a call: what it returns, and what its callback does. A ValueError if it is refused."""
    arguments = {name: value for name, value in call.arguments.items() if "." not in name}
    for whole, form in FORMS.items():
        names = [name for name in call.arguments if name.startswith(f"{whole}.")]
        if names:
            arguments[whole] = form(**{n.split(".")[1]: call.arguments[n] for n in names})
    if call.name == "sample_paths":
        arguments["rng"] = numpy.random.default_rng(seed)
    result = getattr(chain, call.name)(**arguments)
    if not isinstance(result, tuple):
        return [result]
    if callable(result[-1]):
        return [result[0], *result[-1](call.derivatives)[:4]]
    return [*result]


def in_usual_form(call: Call) -> Call:
    """The same numbers in C-contiguous arrays of the usual types, which compiled code reads at
    once."""
    dtype = call.arguments["potentials.emissions"].dtype

    def usual(value: Any) -> Any:
        if not isinstance(value, numpy.ndarray):
            return value
        types = {"f": dtype, "i": "int64", "u": "int64"}
        return numpy.ascontiguousarray(value, types.get(value.dtype.kind, value.dtype))

    arguments = {name: usual(value) for name, value in call.arguments.items()}
    for name in (name for name in arguments if name.endswith(".lengths")):
        arguments[name] = arguments[name].astype("int32")
    derivatives = call.derivatives
    if getattr(derivatives, "dtype", numpy.dtype(object)).kind in "fiu":
        derivatives = numpy.ascontiguousarray(derivatives, dtype="float64")
    return call._replace(arguments=arguments, derivatives=derivatives)


def is_refused(seed: int, i: int) -> bool:
    """Spoil a call and make it. A right call isn't refused, a refusal names an argument, and an
    answer is the one to the same numbers in the usual form."""
    rng = numpy.random.default_rng([seed, i])
    right = random_call(rng)
    answer(right, i)
    call = spoil(right, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = answer(call, i)
        except ValueError as error:
            named = str(error).partition(":")[0]
            assert named.partition(".")[0] in {*ARGUMENTS, "derivatives"}, (seed, i, call, error)
            return True
        for one, other in zip(got, answer(in_usual_form(call), i)):
            numpy.testing.assert_array_equal(one, other, err_msg=f"{seed}, {i}: {call}")
    return False


def main(n_calls: int = 10_000, seed: int = 0) -> None:
    refused = sum(is_refused(seed, i) for i in range(n_calls))
    print(f"{n_calls} calls, {refused} refused, {n_calls - refused} predicted")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
