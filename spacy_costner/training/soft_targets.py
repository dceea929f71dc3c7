"""Soft targets: the distribution of a teacher's paths as a target of training.

    sum_y  p(y) log (p(y) / q(y))  =  log Z_q - E_p[s_q(y)] - H(p)

So a student q needs only the expected counts of tags and transitions under its teacher p, and the
entropy. These are saved with the doc over `Tags.finest`, as a student may have another scheme.

Hinton et al. (2015): Distilling the knowledge in a neural network, for paths in place of classes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy
from spacy.attrs import ORTH
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Array2d, Floats1d, Ints1d
from thinc.util import get_array_module

from .. import chain
from ..tags import Tags
from ..types import Constraints, LossResult, Potentials, map_scores, no_scores

KEY = "spacy_costner.soft_targets"
"""The key in `doc.user_data` of the reference doc."""

LEAST = 1e-6
"""Smaller expectations are saved as 0."""

Saved = dict[str, Any]
"""The soft targets of a doc: "labels", "entropy", and expectations over the finest tags:
"emissions" (T, K), "transitions" (K, K), "start" (K,), "end" (K,); and, if the teacher's chain of
the doc was cut, the "lengths" of its sequences (B,)."""


class SoftTargets(NamedTuple):
    """The soft targets of a batch.

    expected (Potentials): The expected number of times that a path has each tag at each token and
        each transition, summed over the docs with their weights. Shapes: (N, K), (K, K), (K,), (K,)
    entropy (float): The entropy of the paths in nats, summed in the same way.
    weights (Floats1d): The weight of each sequence; 0 for those without soft targets. Shape: (B,)
    constraints (Constraints): The possible paths: only those of labels that the teacher has.
    """

    expected: Potentials
    entropy: float
    weights: Floats1d
    constraints: Constraints


def divergence(scores: Potentials, soft: SoftTargets) -> LossResult:
    """The Kullback-Leibler divergence of a student's paths from those of its teacher, in nats:
    the sum over the sequences, with their weights. Its gradient with respect to the scores is
    the difference of the expectations under q and p."""
    asarray = get_array_module(scores.emissions).asarray
    weights, expected = asarray(soft.weights), map_scores(asarray, soft.expected)
    log_z, backprop = chain.log_partition(chain.constrain(scores, soft.constraints))
    gradient, value = backprop(weights), float((weights * log_z).sum()) - soft.entropy
    for mine, its, score in zip(gradient[:4], expected, scores):
        mine -= its
        value -= float((its * score).sum())
    return LossResult(value, gradient)


def expectations(
    potentials: Potentials, tags: Tags, doc_of: Ints1d | None = None
) -> Iterator[Saved]:
    """The soft targets of each doc, to be saved with it, from a teacher's potentials over these
    tags, and the doc of each of its sequences, (B,); None: each is one."""
    finest = Tags(sorted(tags.labels)).finest
    doc_of = numpy.arange(len(potentials.lengths)) if doc_of is None else doc_of
    of, firsts = finest.counts_as(tags), numpy.flatnonzero(numpy.diff(doc_of)) + 1
    lengths = numpy.split(potentials.lengths, firsts) if len(doc_of) else []
    ends = numpy.cumsum([int(own.sum()) for own in lengths])
    emissions = numpy.split(potentials.emissions[:, of].astype("float64"), ends)
    others = [potentials.transitions[numpy.ix_(of, of)], potentials.start[of], potentials.end[of]]
    others = [array.astype("float64") for array in others]
    for rows, own in zip(emissions, lengths):
        doc = Potentials._make([rows, *others, own])
        doc = chain.constrain(doc, finest.constraints)
        counts = chain.log_partition(doc)[1](numpy.ones(len(own)))
        counts = map_scores(lambda n: numpy.where(n < LEAST, 0, n).astype("float32"), counts)
        saved = dict(zip(Potentials._fields, counts[:4]))
        entropy = float(chain.entropy(doc)[0].sum())
        cuts = {"lengths": own} if len(own) > 1 else {}
        yield {**saved, **cuts, "labels": list(finest.labels), "entropy": entropy}


def mean(saved: Sequence[Saved]) -> Saved:
    """The soft targets of several teachers with the same labels. The divergence from them is the
    mean of the divergences from each."""
    if len({tuple(each.get("lengths", ())) for each in saved}) > 1:
        raise ValueError("soft targets: expected teachers with the same sentence_boundaries")
    names = saved[0].keys() - {"labels", "lengths"}
    return {**saved[0], **{name: sum(s[name] for s in saved) / len(saved) for name in names}}


def labels_of(doc: Doc) -> set[str]:
    """The labels of a training doc: of its entities, and those that its teacher has."""
    return {*(ent.label_ for ent in doc.ents), *doc.user_data.get(KEY, {}).get("labels", ())}


def is_taught(example: Example) -> bool:
    """Whether an example has soft targets for the tokens of its predicted doc."""
    if KEY not in example.reference.user_data:
        return False
    mine, its = (doc.to_array([ORTH]) for doc in (example.predicted, example.reference))
    return bool(numpy.array_equal(mine, its))


def taught_lengths(example: Example) -> Ints1d | None:
    """The lengths of the sequences of a doc with soft targets; None if it has none."""
    if not is_taught(example):
        return None
    n_tokens = [len(example.predicted)]
    return numpy.asarray(example.reference.user_data[KEY].get("lengths", n_tokens), dtype="int32")


def find_impossible(
    examples: Sequence[Example],
    tags: Tags,
    constraints: Constraints,
    lengths: Ints1d,
    doc_of: Ints1d,
) -> Array1d:
    """True for examples with soft targets of which no path agrees with the presets: these have a
    label that the teacher lacks, or are across a border of its sequences. The arguments are those
    of `read_soft_targets`. Shape: (D,)"""
    taught = numpy.asarray([is_taught(eg) for eg in examples], dtype=bool)
    is_impossible = numpy.zeros(len(examples), dtype=bool)
    if constraints.emissions is None or not taught.any():
        return is_impossible
    possible = constraints.emissions.copy()
    example_of = numpy.repeat(doc_of, lengths)
    for i in numpy.flatnonzero(taught).tolist():
        to = _to_student(examples[i].reference.user_data[KEY], tags)
        possible[example_of == i] &= to.any(axis=0)
    zeros = no_scores(lengths, len(tags), "float32")
    paths = chain.best_path(chain.constrain(zeros, constraints._replace(emissions=possible)))
    is_impossible[doc_of[numpy.isneginf(paths.scores)]] = True
    return is_impossible & taught


def _to_student(saved: Saved, tags: Tags) -> Array2d:
    """Which tag of a student each of the finest tags of its teacher counts as. Shape: (K', K)"""
    if unknown := sorted({*saved["labels"]} - {*tags.labels}):
        raise ValueError(
            f"soft targets: expected a student with the labels of its teacher, got "
            f"{list(tags.labels)}, without {unknown}"
        )
    finest = Tags(saved["labels"]).finest
    return finest.counts_as(tags)[:, None] == numpy.arange(len(tags))


def read_soft_targets(
    examples: Sequence[Example],
    tags: Tags,
    constraints: Constraints,
    lengths: Ints1d,
    doc_of: Ints1d,
    weights: Floats1d | None,
) -> SoftTargets | None:
    """Read the soft targets of a batch, if there are some, from examples, with their weights, (D,),
    and the lengths of sequences and the example of each, (B,). An example with soft targets is a
    whole doc. Raises a ValueError if the teacher has a label that the tags don't have."""
    taught = numpy.asarray([is_taught(eg) for eg in examples])
    if not taught.any():
        return None
    n_tokens = numpy.bincount(doc_of, lengths, len(examples)).astype(int)
    n_tags, ends = len(tags), numpy.cumsum(n_tokens)
    own = taught * (1.0 if weights is None else weights)
    expected, entropy = no_scores(lengths, n_tags, "float64"), 0.0
    possible = numpy.ones(expected.emissions.shape, dtype=bool)
    for i in numpy.flatnonzero(own).tolist():
        saved = examples[i].reference.user_data[KEY]
        to = _to_student(saved, tags)
        rows = slice(ends[i] - n_tokens[i], ends[i])
        expected.emissions[rows] = own[i] * (saved["emissions"] @ to)
        expected.transitions[:] += own[i] * (to.T @ saved["transitions"] @ to)
        expected.start[:] += own[i] * (saved["start"] @ to)
        expected.end[:] += own[i] * (saved["end"] @ to)
        entropy += own[i] * saved["entropy"]
        possible[rows] = to.any(axis=0)
    if constraints.emissions is not None:
        possible &= constraints.emissions
    return SoftTargets(expected, entropy, own[doc_of], constraints._replace(emissions=possible))
