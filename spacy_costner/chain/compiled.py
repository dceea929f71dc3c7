"""Which form of a recursion runs: the compiled one for NumPy arrays, where it is there,
and array code for the rest."""

import warnings
from contextlib import contextmanager
from functools import wraps
from typing import Any, Callable, Iterator, TypeVar, cast

import numpy

from ..types import Potentials

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


def is_used_for(potentials: Potentials) -> bool:
    """Whether the compiled form works on these arrays."""
    return _in_use and type(potentials.emissions) is numpy.ndarray


def compiled(function: FunctionT) -> FunctionT:
    """Give a function of potentials its compiled form, of the same name in `native`.

    function (Callable): The array code, taking potentials first.
    RETURNS (Callable): The same function, fast on NumPy arrays.
    """
    if native is None:
        return function
    native_form = getattr(native, function.__name__)

    @wraps(function)
    def choose(potentials: Potentials, *args: Any, **kwargs: Any) -> Any:
        form = native_form if is_used_for(potentials) else function
        return form(potentials, *args, **kwargs)

    return cast(FunctionT, choose)


def query(messages: Callable[[Potentials], Any], function: FunctionT) -> FunctionT:
    """Make a function of what is asked of messages.

    messages (Callable): Takes potentials to an object with a method of the function's name.
    function (Callable): The array code, taking potentials first.
    RETURNS (Callable): The same function, fast on NumPy arrays.
    """

    @wraps(function)
    def ask(potentials: Potentials, *args: Any, **kwargs: Any) -> Any:
        return getattr(messages(potentials), function.__name__)(*args, **kwargs)

    return cast(FunctionT, ask)


def set_threads(n_threads: int) -> None:
    """Spread the sequences of each batch over threads; the default is one.

    Only the compiled chain does; a batch that is too small for it takes fewer.

    n_threads (int): How many at most.
    RAISES (ValueError): If it is less than 1.
    """
    if n_threads < 1:
        raise ValueError(f"expected at least 1 thread, got {n_threads}")
    if native is not None:
        native.set_threads(n_threads)


@contextmanager
def array_code() -> Iterator[None]:
    """Leave the compiled chain unused, to compare with it."""
    global _in_use
    before, _in_use = _in_use, False
    try:
        yield
    finally:
        _in_use = before
