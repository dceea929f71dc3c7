"""Properties that are computed once for each object, without a lock."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 (the same name as in `functools`)
    """A property that is computed when it is first read, and then kept in the object.

    On Python 3.10 and 3.11, the one in `functools` has one lock for all objects of a class.
    While one thread computes a large batch, all others wait, and a process that is forked during
    that time waits forever. Here no thread waits: threads that read a new object at the same time
    may each compute the value, and all get the value that was kept first.
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
        """Compute the value and keep it. This isn't called again for the same object, as Python
        then finds the value among the attributes of the object."""
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self.name, self.compute(instance))
        return value
