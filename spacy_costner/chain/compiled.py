"""Dispatch between compiled code, which runs on the CPU, and array code."""

import warnings
from contextlib import contextmanager
from functools import wraps
from typing import Any, Callable, Iterator, TypeVar, cast

import numpy
from thinc.util import get_array_module, is_cupy_array

from ..types import Potentials
from .host import OnHost

try:
    from . import native
except ImportError:
    native = None  # type: ignore[assignment]
    warnings.warn(
        "spacy_costner runs without its compiled chain: training and decoding take 10 to 100 "
        "times as long in the CRF. Installed with a C++ compiler at hand, it builds it.",
        stacklevel=2,
    )

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_in_use = native is not None


def form_of(array_form: FunctionT, potentials: Potentials) -> FunctionT:
    """The compiled form of a function or class where it can be used, or else its array code.

    array_form (Callable): The array code; the compiled form has the same name in `native`.
    potentials (Potentials): The scores of a batch.
    RETURNS (Callable): The form to call. For CuPy arrays it copies arguments to the host and
        results back.
    """
    if not _in_use:
        return array_form
    form = getattr(native, array_form.__name__, array_form)
    if is_cupy_array(potentials.emissions):
        return cast(FunctionT, OnHost(form, get_array_module(potentials.emissions).asarray))
    return cast(FunctionT, form if type(potentials.emissions) is numpy.ndarray else array_form)


def compiled(function: FunctionT) -> FunctionT:
    """Make a function of potentials run on the CPU, and compiled if it has a compiled form.

    function (Callable): The array code, taking potentials first.
    RETURNS (Callable): The same function.
    """
    if native is None:
        return function

    @wraps(function)
    def dispatch(potentials: Potentials, *args: Any, **kwargs: Any) -> Any:
        return form_of(function, potentials)(potentials, *args, **kwargs)

    return cast(FunctionT, dispatch)


def query(messages: Callable[[Potentials], Any], function: FunctionT) -> FunctionT:
    """Make a function of a query of messages.

    messages (Callable): Takes potentials and returns an object that has the query as a method.
    function (Callable): The array code, of the name of the method, taking potentials first.
    RETURNS (Callable): The same function.
    """

    @wraps(function)
    def dispatch(potentials: Potentials, *args: Any, **kwargs: Any) -> Any:
        return getattr(messages(potentials), function.__name__)(*args, **kwargs)

    return cast(FunctionT, dispatch)


def set_threads(n_threads: int) -> None:
    """Distribute the sequences of each batch over threads; the default is one.

    Only compiled code does; a small batch uses fewer threads.

    n_threads (int): Maximum number of threads.
    RAISES (ValueError): If it is less than 1.
    """
    if n_threads < 1:
        raise ValueError(f"expected at least 1 thread, got {n_threads}")
    if native is not None:
        native.set_threads(n_threads)


@contextmanager
def array_code() -> Iterator[None]:
    """Use array code in place of compiled code, to compare them."""
    global _in_use
    before, _in_use = _in_use, False
    try:
        yield
    finally:
        _in_use = before
