"""Properties that are computed once per object, without a lock."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 (the same name as in `functools`)
    """A property that is computed on first access and then stored in the object.

    In Python 3.10 and 3.11, the property in `functools` uses a single lock for all objects of a
    class. While one thread computes a large batch, all other threads wait, and a process forked
    during this time waits forever. This class never blocks: if several threads access a new object
    at the same time, each of them may compute the value, but all of them get the value that was
    stored first.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "cached_property[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> "cached_property[T] | T":
        """Compute the value and store it. This method is not called again for the same object,
        because Python then finds the value in the object's attributes."""
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self.name, self.compute(instance))
        return value
