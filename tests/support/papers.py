"""What the papers' experiments read and compare."""

from typing import Any, List

import numpy

from experiments.scores import System


def rows_of(*right: int, n_docs: int = 30) -> List[Any]:
    """For each seed the counts of docs with an entity each, of which so many are found."""
    docs = numpy.arange(n_docs)
    ones = numpy.ones(n_docs)
    found = [(docs < n).astype(float) for n in right]
    return [numpy.stack([f, 0 * f, 1 - f, 1 - f, 2 * ones, f, ones], axis=1) for f in found]


def system_of(name: str, dev: List[int], test: List[int], **settings: Any) -> System:
    found = numpy.stack([one.sum(axis=0) for one in rows_of(*dev)])
    return System(name, found, rows_of(*test), settings)


def system_with(dev: float, *test: float, name: str = "", **settings: Any) -> System:
    """A system with this F on dev and, for each seed, on test, of 100 entities."""
    sums = [numpy.asarray([[f, 100 - f, 100 - f, 0, 1, 0, 1]]) for f in (dev, *test)]
    return System(name, sums[0], sums[1:], settings)
