"""Chains whose O is split, beside the same batches as annotation has them."""

from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy
from hypothesis import strategies as st

from spacy_costner.tags import Tags
from spacy_costner.types import Cost, Gold, Potentials

from .. import oracle
from ..oracle_losses import Split
from .strategies import (
    Problem,
    golds_N,
    mask,
    one_hot,
    random_entities,
    random_scores,
    random_truths,
    scales,
    seeds,
    shares,
)

SPLIT_TAGS = tuple(
    Tags(labels, scheme, "before")
    for labels, scheme in ((["a", "b"], "IOB2"), (["a"], "BILUO"), (["a", "b"], "BILUO"))
)
split_tag_sets = st.sampled_from(SPLIT_TAGS)


def split_path(tags: Tags, path: oracle.Tags) -> oracle.Tags:
    """The path of the chain for one over `tags.collapsed`, by definition: O before an entity is the
    O of its label."""
    plain, split = _names(tags)
    names = [plain[tag] for tag in path]
    for t, (name, following) in enumerate(pairwise(list(names))):
        if name == "O" and following[:2] in ("B-", "U-"):
            names[t] = f"O-{following[2:]}"
    return tuple(split.index(name) for name in names)


@cache
def _names(tags: Tags) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the tags of annotation, and of those of the chain. They are kept, as they are
    needed for thousands of paths."""
    return tags.collapsed.names, tags.names


def split_of(tags: Tags) -> Split:
    """The split for `oracle_losses`."""
    chain_tag = tuple(tags.names.index(name) for name in tags.collapsed.names)
    return Split(chain_tag, lambda path: split_path(tags, path))


class SplitBatch(NamedTuple):
    """A batch whose O is split."""

    tags: Tags
    potentials: Potentials  # of the chain
    golds: list[tuple[Gold, Gold]]  # complete and partial: of the chain, and of the annotation


@st.composite
def split_NK(draw: Any, cost: Cost) -> SplitBatch:  # noqa: N802
    """Ragged batches with gold, weights and costs, some tags and transitions ruled out."""
    tags = draw(split_tag_sets)
    rng = draw(seeds)
    plain = tags.collapsed
    longest = 3 if len(tags) > 8 else 4  # so that all paths can be listed
    lengths = rng.integers(longest + 1, size=rng.integers(1, 3)).astype("int32")
    n_tokens = int(lengths.sum())
    path = plain.encode(random_entities(rng, lengths, len(tags.labels)), n_tokens)
    split_tags: list[int] = []
    for path_of_sequence in numpy.split(path, lengths.cumsum()):
        split_tags += split_path(tags, tuple(path_of_sequence.tolist()))
    split = numpy.asarray(split_tags, dtype="int32")

    # Tags of the chain are ruled out one by one, and all of a tag of annotation; never those of
    # the path.
    is_gold = one_hot(split, len(tags))
    possible = random_truths(rng, (n_tokens, len(tags)), draw(shares)) | is_gold
    possible_in_plain = random_truths(rng, (n_tokens, len(plain)), draw(shares))
    possible &= possible_in_plain[:, tags.collapsed_of] | is_gold
    scores = mask(
        random_scores(rng, lengths, len(tags), draw(scales)),
        tags.constraints._replace(emissions=possible),
    )

    table = cost(plain).astype("float64")
    golds = draw(golds_N(Problem(scores, path, table, plain.opening, plain.continuing)))
    return SplitBatch(tags, scores, [(on_chain(tags, split, gold), gold) for gold in golds])


def on_chain(tags: Tags, split: numpy.ndarray, gold: Gold) -> Gold:
    """Gold of annotation for the chain, with the path that it is of."""
    columns = tags.collapsed_of
    return gold._replace(
        tags=numpy.where(gold.tags < 0, -1, split),
        allowed=None if gold.allowed is None else gold.allowed[:, columns],
        costs=None if gold.costs is None else gold.costs[:, columns],
        opening=tags.opening,
        continuing=tags.continuing,
        collapsed_of=columns,
    )
