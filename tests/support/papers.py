"""What the papers' experiments read and compare."""

from typing import Any, List

import numpy

from experiments.scores import System

CORPUS = """\
-DOCSTART- -X- O

Ana NC B-PER
Lee AQ I-PER
ve VMI O
Roma NC I-LOC

Roma NC B-LOC
duerme VMI O
"""


def rows_of(*right: int, n_docs: int = 30) -> List[Any]:
    """For each seed the counts of docs with an entity each, of which so many are found."""
    docs = numpy.arange(n_docs)
    ones = numpy.ones(n_docs)
    found = [(docs < n).astype(float) for n in right]
    return [numpy.stack([f, 0 * f, 1 - f, 1 - f, 2 * ones, f, ones], axis=1) for f in found]


def system_of(name: str, dev: List[int], test: List[int]) -> System:
    return System(name, numpy.stack([one.sum(axis=0) for one in rows_of(*dev)]), rows_of(*test))
