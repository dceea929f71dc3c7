"""Batches with gold."""

from typing import Any

import numpy

from spacy_costner.types import Gold

from .batches import random_potentials

GAP = 1e-3
"""How far apart two paths have to be for a step of a difference not to change their order."""


def example(lengths: list[int], n_tags: int, dtype: str = "float64", scale: float = 1.0) -> Any:
    """A batch with complete and partial gold and the Hamming cost. Tag 0 is O, 1 opens an entity, 2
    continues it, others are like O. In partial gold some tokens and entities are missing.

    RETURNS (tuple[Potentials, Gold, Gold]): Potentials, complete gold, partial gold.
    """
    potentials = random_potentials(lengths, n_tags, scale, dtype)
    rng = numpy.random.default_rng(1)
    tags = rng.integers(n_tags, size=sum(lengths))
    right = tags[:, None] == numpy.arange(n_tags)
    opening, continuing = (numpy.arange(n_tags) == tag for tag in (1, 2))
    complete = Gold(tags, None, (~right).astype(dtype), opening=opening, continuing=continuing)
    # The tokens of an entity are missing together: each has the number of its entity.
    entity_of_token = numpy.cumsum(tags != 2)
    missing = (rng.uniform(size=len(tags) + 1) < 0.3)[entity_of_token]
    partial_gold = complete._replace(
        tags=numpy.where(missing, -1, tags),
        allowed=right | missing[:, None],
        costs=complete.costs * ~missing[:, None],
    )
    return potentials, complete, partial_gold
