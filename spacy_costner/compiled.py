"""Dispatch between compiled code, which runs on the CPU, and array code.

A subpackage with compiled code (`chain`, `sparse`) has it in the extension module `native`, where
each function and class has the name that it has in array code. Arrays on a GPU are copied to the
host and results back: the scores of a batch are small, so that this takes less time than the many
small kernels that array code would start.
"""

from contextlib import contextmanager
from functools import cache, wraps
from importlib import import_module
from typing import Any, Callable, Iterator, Optional, TypeVar, cast

import numpy
from thinc.util import get_array_module, is_cupy_array, to_numpy

FormT = TypeVar("FormT", bound=Callable[..., Any])

_in_use = True


@cache
def native_of(subpackage: str) -> Any:
    """The extension module of a subpackage; None if it was not built."""
    try:
        return import_module(f"{__package__}.{subpackage}.native")
    except ImportError:
        return None


@cache
def _native_form(array_form: FormT) -> Optional[FormT]:
    """Array code itself if it has no compiled form; None if there are none at all."""
    native = native_of(array_form.__module__.split(".")[1])
    return native and getattr(native, array_form.__name__, array_form)


def form_of(array_form: FormT, *args: Any) -> FormT:
    """The compiled form of a function or class where it can be used, or else its array code.

    array_form (Callable): The array code.
    *args (Any): Its arguments.
    RETURNS (Callable): The form to call. For CuPy arrays it copies arguments to the host and
        results back.
    """
    form = _native_form(array_form)
    if form is None or not _in_use:
        return array_form
    for arg in args:
        array = getattr(arg, "emissions", arg)
        if is_cupy_array(array):
            return cast(FormT, OnHost(form, get_array_module(array).asarray))
    return form


def compiled(function: FormT) -> FormT:
    """Make a function run on the CPU, and compiled if it has a compiled form.

    function (Callable): The array code.
    RETURNS (Callable): The same function.
    """
    if _native_form(function) is None:
        return function

    @wraps(function)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        return form_of(function, *args, *kwargs.values())(*args, **kwargs)

    return cast(FormT, dispatch)


@contextmanager
def array_code() -> Iterator[None]:
    """Use array code in place of compiled code, to compare them."""
    global _in_use
    before, _in_use = _in_use, False
    try:
        yield
    finally:
        _in_use = before


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
        if isinstance(value, tuple):
            on_device, lengths = _rebuild(value, self._to_device), getattr(value, "lengths", None)
            return on_device if lengths is None else on_device._replace(lengths=lengths)
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
