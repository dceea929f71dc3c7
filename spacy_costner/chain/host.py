"""Support for GPU arrays. Arguments are copied to the host, where the chain runs, and the results
are copied back.

The scores of a batch are small, so copying them takes less time than running the many small kernels
of the recursions on a GPU.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy
from thinc.util import get_array_module, is_cupy_array, to_numpy

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def on_host(function: FunctionT) -> FunctionT:
    """Make a function of NumPy arrays accept CuPy arrays. The function still runs on the host, and
    its results are returned as CuPy arrays."""

    @wraps(function)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        """Call the function, via the host if any argument contains GPU arrays."""
        for argument in (*args, *kwargs.values()):
            # All arrays in `Potentials` are of the same kind, so it suffices to check one of them.
            array = getattr(argument, "emissions", argument)
            if is_cupy_array(array):
                asarray = get_array_module(array).asarray
                return OnHost(function, asarray)(*args, **kwargs)
        return function(*args, **kwargs)

    return cast(FunctionT, dispatch)


class OnHost:
    """A wrapper that runs a function, or the methods of an object, on the host for GPU arrays.

    target (Any): The function or object.
    asarray (Callable[[Any], Any]): Function that copies a NumPy array to the GPU.
    """

    def __init__(self, target: Any, asarray: Callable[[Any], Any]) -> None:
        self.target = target
        self.asarray = asarray

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with host copies of the arrays and copy the result back to the GPU."""
        host_args = [_to_host(argument) for argument in args]
        host_kwargs = {name: _to_host(argument) for name, argument in kwargs.items()}
        result = self.target(*host_args, **host_kwargs)
        return self._to_device(result)

    def __getattr__(self, name: str) -> "OnHost":
        """Return a method of the object, wrapped to copy its arguments and results."""
        return OnHost(getattr(self.target, name), self.asarray)

    def _to_device(self, result: Any) -> Any:
        """Copy the arrays in a result to the GPU. A result that is not an array, e.g. messages or a
        callback, stays on the host and is wrapped in an `OnHost`."""
        if isinstance(result, tuple):
            device_result = _map_tuple(result, self._to_device)
            if hasattr(result, "lengths"):  # these are potentials: lengths stay on the host
                return device_result._replace(lengths=result.lengths)
            return device_result
        if isinstance(result, numpy.ndarray):
            return self.asarray(result)
        return OnHost(result, self.asarray)


def _to_host(argument: Any) -> Any:
    """Copy the arrays in an argument to the host. The inverse of `OnHost._to_device`."""
    if isinstance(argument, OnHost):
        return argument.target
    if isinstance(argument, tuple):
        return _map_tuple(argument, _to_host)
    return to_numpy(argument) if is_cupy_array(argument) else argument


def _map_tuple(items: Any, copy: Callable[[Any], Any]) -> Any:
    """Copy each item of a tuple. The type of a named tuple is preserved."""
    copies = [copy(item) for item in items]
    if hasattr(items, "_make"):
        return items._make(copies)
    return tuple(copies)
