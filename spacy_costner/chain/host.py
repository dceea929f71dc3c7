"""Arrays on a GPU: they are copied to the host, where the chain runs, and results are copied back.

The scores of a batch are small, so this takes less time than the many small kernels of the
recursions would.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy
from thinc.util import get_array_module, is_cupy_array, to_numpy

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def on_host(function: FunctionT) -> FunctionT:
    """Make a function of NumPy arrays accept CuPy arrays, too."""

    @wraps(function)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        for arg in (*args, *kwargs.values()):
            array = getattr(arg, "emissions", arg)
            if is_cupy_array(array):
                return OnHost(function, get_array_module(array).asarray)(*args, **kwargs)
        return function(*args, **kwargs)

    return cast(FunctionT, dispatch)


class OnHost:
    """A function, or an object with methods, that runs on the host. `asarray` copies results to the
    device."""

    def __init__(self, target: Any, asarray: Callable[[Any], Any]) -> None:
        self.target = target
        self.asarray = asarray

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        on_host = {name: _to_host(value) for name, value in kwargs.items()}
        return self._to_device(self.target(*map(_to_host, args), **on_host))

    def __getattr__(self, name: str) -> "OnHost":
        return OnHost(getattr(self.target, name), self.asarray)

    def _to_device(self, value: Any) -> Any:
        """Lengths stay on the host; messages and callbacks run there."""
        if isinstance(value, tuple):
            on_device, lengths = _rebuild(value, self._to_device), getattr(value, "lengths", None)
            return on_device if lengths is None else on_device._replace(lengths=lengths)
        if isinstance(value, numpy.ndarray):
            return self.asarray(value)
        return OnHost(value, self.asarray)


def _to_host(value: Any) -> Any:
    if isinstance(value, OnHost):
        return value.target
    if isinstance(value, tuple):
        return _rebuild(value, _to_host)
    return to_numpy(value) if is_cupy_array(value) else value


def _rebuild(values: Any, copy: Callable[[Any], Any]) -> Any:
    copies = [copy(value) for value in values]
    return values._make(copies) if hasattr(values, "_make") else tuple(copies)
