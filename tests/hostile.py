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
    arguments = {f"potentials.{field}": array for field, array in potentials._asdict().items()}
    arguments.update(MORE_ARGUMENTS[name](potentials, rng))
    n_segments = len(arguments.get("segments.begin", ()))
    shape_of_values = {
        "segment_log_probs": (n_segments,),
        "segment_max_scores": (2, n_segments),
        "log_marginals": (n_tokens,),
    }.get(name, (len(lengths),))
    return Call(name, arguments, rng.normal(size=shape_of_values))


def _tags(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    """A tag for each token."""
    return {"tags": rng.integers(potentials.emissions.shape[1], size=len(potentials.emissions))}


def _allowed(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    """A tag for each token, or a mask of tags."""
    if rng.integers(2):
        return {"allowed": _tags(potentials, rng)["tags"]}
    return {"allowed": rng.uniform(size=potentials.emissions.shape) < 0.5}


def _values(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    """A value of each step."""
    arguments: dict[str, Any] = {"values.lengths": potentials.lengths}
    for field, scores in zip(potentials._fields, potentials[:4]):
        arguments[f"values.{field}"] = rng.normal(size=scores.shape)
    return arguments


def random_segments(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    """Segments that begin at half of the tokens, with or without the tags allowed after them."""
    n_tokens, n_tags = potentials.emissions.shape
    begin = numpy.flatnonzero(rng.uniform(size=n_tokens) < 0.5)
    ends = numpy.cumsum(potentials.lengths)
    end_of_sequence = ends[numpy.searchsorted(ends, begin, side="right")]
    end = rng.integers(begin, end_of_sequence) + 1
    after = rng.uniform(size=(len(begin), n_tags)) < 0.7 if rng.choice([None, 1]) else None
    return {
        "segments.begin": begin,
        "segments.end": end,
        "segments.tags": rng.integers(n_tags, size=int((end - begin).sum())),
        "segments.after": after,
    }


def _entity_tags(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    """Tags of up to three labels, those of a scheme or not; with or without whitespace."""
    n_tokens, n_tags = potentials.emissions.shape
    label_of = rng.integers(-1, min(n_tags, 3), size=n_tags)
    opening, closing, *inside = rng.uniform(size=(n_tags + 2, n_tags)) < 0.6
    is_space = rng.uniform(size=n_tokens) < 0.3 if rng.choice([None, 1]) else None
    return {
        "entity_tags.label_of": label_of,
        "entity_tags.opening": opening,
        "entity_tags.closing": closing,
        "entity_tags.inside": numpy.asarray(inside) & (label_of[:, None] == label_of),
        "is_space": is_space,
    }


def _entities(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    """Entities with labels from -1 to 3, not all of which there are."""
    segments = random_segments(potentials, rng)
    begin = segments["segments.begin"]
    return {
        "entities.begin": begin,
        "entities.end": segments["segments.end"],
        "entities.label": rng.integers(-1, 4, size=len(begin)),
        **_entity_tags(potentials, rng),
    }


def _floor(potentials: Potentials, rng: Rng) -> dict[str, Any]:
    """The least probability of likely entities."""
    return {"floor": float(rng.choice([1e-9, 0.01, 0.5, 1.0])), **_entity_tags(potentials, rng)}


# What each function of the chain takes beside the potentials.
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
    arguments = {**call.arguments, "derivatives": call.derivatives}
    name = [*arguments][rng.integers(len(arguments))]
    ways = [_to_something_else] if arguments[name] is None else WAYS
    way = ways[rng.integers(len(ways))]
    with numpy.errstate(invalid="ignore", over="ignore"):
        arguments[name] = way(arguments[name], rng)
    derivatives = arguments.pop("derivatives")
    return Call(call.name, arguments, derivatives)


def _to_type(array: Any, rng: Rng) -> Any:
    """Numbers of another type, or text."""
    return numpy.asarray(array).astype(str(rng.choice(TYPES)))


def _to_size(array: Any, rng: Rng) -> Any:
    """More or fewer numbers, with as many axes."""
    array = numpy.atleast_1d(array)
    shape = [int(rng.choice([0, 1, n, n + 1, max(n - 1, 0), 2 * n])) for n in array.shape]
    return numpy.resize(array, shape)


def _to_shape(array: Any, rng: Rng) -> Any:
    """The same numbers with other axes, or in another order."""
    array = numpy.atleast_1d(array)
    shapes = (array.T, array.ravel(), array[None], array[..., None], array[..., ::-1])
    return shapes[rng.integers(len(shapes))]


def _with_number(array: Any, rng: Rng) -> Any:
    """One number replaced by an extreme one."""
    array = numpy.array(array)
    number = NUMBERS[rng.integers(len(NUMBERS))]
    if array.dtype.kind in "iu" and numpy.isfinite(number):
        array = array.astype("int64")
    if array.size:
        array.flat[rng.integers(array.size)] = numpy.asarray(number).astype(array.dtype)
    return array


def _to_something_else(array: Any, rng: Rng) -> Any:
    """No array of the numbers, or a list of them."""
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
    for argument, make in FORMS.items():
        fields = {}
        for name, value in call.arguments.items():
            if name.startswith(f"{argument}."):
                fields[name.split(".")[1]] = value
        if fields:
            arguments[argument] = make(**fields)
    if call.name == "sample_paths":
        arguments["rng"] = numpy.random.default_rng(seed)
    result = getattr(chain, call.name)(**arguments)
    if not isinstance(result, tuple):
        return [result]
    if callable(result[-1]):
        values, backprop = result
        gradient = backprop(call.derivatives)
        return [values, *gradient[:4]]
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
    for name in arguments:
        if name.endswith(".lengths"):
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
            arrays = answer(call, i)
        except ValueError as error:
            field = str(error).partition(":")[0]
            argument = field.partition(".")[0]
            assert argument in {*ARGUMENTS, "derivatives"}, (seed, i, call, error)
            return True
        for array, expected in zip(arrays, answer(in_usual_form(call), i)):
            numpy.testing.assert_array_equal(array, expected, err_msg=f"{seed}, {i}: {call}")
    return False


def main(n_calls: int = 10_000, seed: int = 0) -> None:
    """Make so many calls, and say how many were refused."""
    n_refused = sum(is_refused(seed, i) for i in range(n_calls))
    print(f"{n_calls} calls, {n_refused} refused, {n_calls - n_refused} answered")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
