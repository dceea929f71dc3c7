"""Compiled code for arrays on a GPU: arguments are copied to the host and results back.

The scores of a batch are small, so that the copies take less time than the many small kernels
that array code would start.
"""

from typing import Any, Callable

import numpy
from thinc.util import is_cupy_array, to_numpy

from ..types import Potentials, map_scores


class OnHost:
    """A function, or an object with methods, that runs on the host for arrays on a device.

    target (Any): The function, class or object.
    asarray (Callable): Copies a NumPy array to the device.
    """

    def __init__(self, target: Any, asarray: Callable[[Any], Any]) -> None:
        self.target = target
        self.asarray = asarray

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        on_host = {name: _to_host(value) for name, value in kwargs.items()}
        result = self.target(*map(_to_host, args), **on_host)
        if isinstance(self.target, type):
            return OnHost(result, self.asarray)
        return self._to_device(result)

    def __getattr__(self, name: str) -> "OnHost":
        return OnHost(getattr(self.target, name), self.asarray)

    def _to_device(self, value: Any) -> Any:
        """Lengths stay on the host; callbacks run there."""
        if isinstance(value, Potentials):
            return map_scores(self.asarray, value)
        if isinstance(value, tuple):
            return _rebuild(value, self._to_device)
        if isinstance(value, numpy.ndarray):
            return self.asarray(value)
        return OnHost(value, self.asarray) if callable(value) else value


def _to_host(value: Any) -> Any:
    if isinstance(value, OnHost):
        return value.target
    if isinstance(value, tuple):
        return _rebuild(value, _to_host)
    return to_numpy(value) if is_cupy_array(value) else value


def _rebuild(values: Any, copy: Callable[[Any], Any]) -> Any:
    copies = [copy(value) for value in values]
    return values._make(copies) if hasattr(values, "_make") else tuple(copies)
