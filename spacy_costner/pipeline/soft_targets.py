"""Soft targets: the distribution of a teacher's paths, as a target of training.

The divergence of a student from a teacher needs of the teacher's distribution p only the expected
number of times that a path has each tag and each transition, and its entropy. These are saved with
the doc, over `Tags.finest`, so that a student may have another scheme or another `outside`.

Hinton et al. (2015): Distilling the knowledge in a neural network, for paths in place of classes.
"""

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Protocol, Sequence

import numpy
from spacy.attrs import ORTH
from spacy.tokens import Doc
from thinc.types import Floats1d, Ints1d
from thinc.util import get_array_module

from .. import chain
from ..tags import Tags
from ..types import Constraints, Gold, LossResult, Potentials, map_scores

KEY = "spacy_costner.soft_targets"
"""The key in `doc.user_data` of the reference doc."""

SCORES = ("emissions", "transitions", "start", "end")
LEAST = 1e-6
"""Smaller expectations are saved as 0."""

Saved = Dict[str, Any]
"""The soft targets of a doc: "labels", "entropy", and the arrays of `SCORES` over the tags of
`finest`. Shapes: (T, K), (K, K), (K,), (K,)"""


class DocPair(Protocol):
    """An `Example`, or a piece of one."""

    @property
    def predicted(self) -> Doc: ...

    @property
    def reference(self) -> Doc: ...


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

    def leave_the_others(self, gold: Gold) -> Gold:
        """The gold of the sequences without soft targets: the others have the weight 0."""
        others = get_array_module(gold.tags).asarray(self.weights == 0, dtype="float64")
        return gold._replace(weights=others if gold.weights is None else gold.weights * others)


def divergence(scores: Potentials, soft: SoftTargets) -> LossResult:
    """The Kullback-Leibler divergence of a student's paths q from those of its teacher p.

        sum_y  p(y) log (p(y) / q(y))  =  log Z_q - E_p[s_q(y)] - H(p)

    scores (Potentials): The student's scores of a batch. Shapes: (N, K), (K, K), (K,), (K,)
    soft (SoftTargets): The soft targets.
    RETURNS (LossResult): The sum over the sequences, with their weights, in nats; and its gradient
        with respect to the scores: the difference of the expectations under q and p.
    """
    asarray = get_array_module(scores.emissions).asarray
    log_z, backprop = chain.log_partition(chain.constrain(scores, soft.constraints))
    expected = map_scores(lambda counts: asarray(counts, dtype="float64"), soft.expected)
    weights = asarray(soft.weights)
    cross = sum(float((mine * its).sum()) for mine, its in zip(scores[:4], expected[:4]))
    value = float((weights * log_z)[weights > 0].sum()) - cross - soft.entropy
    gradient = [mine - its for mine, its in zip(backprop(weights)[:4], expected[:4])]
    gradient = [array.astype(mine.dtype) for array, mine in zip(gradient, scores)]
    return LossResult(value, Potentials(*gradient, scores.lengths))


def expectations(potentials: Potentials, tags: Tags) -> Iterator[Saved]:
    """What is saved of the distribution of each doc.

    potentials (Potentials): The potentials of a batch of docs, minus infinity where impossible.
    tags (Tags): Their tags.
    YIELDS (Saved): The soft targets of each doc.
    """
    finest = Tags(sorted(tags.labels), tags.finest.scheme.name, tags.finest.outside)
    of = finest.counts_as(tags)
    start = 0
    for length in potentials.lengths.tolist():
        end = start + length
        doc = Potentials(
            emissions=potentials.emissions[start:end, of],
            transitions=potentials.transitions[numpy.ix_(of, of)],
            start=potentials.start[of],
            end=potentials.end[of],
            lengths=numpy.asarray([length], dtype="int32"),
        )
        doc = map_scores(lambda scores: scores.astype("float64"), doc)
        doc = chain.constrain(doc, finest.constraints)
        counts = chain.log_partition(doc)[1](numpy.ones(1))
        arrays = [numpy.where(array < LEAST, 0, array).astype("float32") for array in counts[:4]]
        entropy = float(chain.entropy(doc)[0][0])
        yield {"labels": list(finest.labels), "entropy": entropy, **dict(zip(SCORES, arrays))}
        start = end


def mean(saved: Sequence[Saved]) -> Saved:
    """The soft targets of several teachers: the divergence from them is, but for a constant, the
    mean of the divergences.

    saved (Sequence[Saved]): Those of each teacher, with the same labels.
    """
    first = saved[0]
    means = {name: sum(each[name] for each in saved) / len(saved) for name in (*SCORES, "entropy")}
    return {"labels": first["labels"], **means}


def is_taught(example: DocPair) -> bool:
    """Whether an example has soft targets, of the tokens that its predicted doc has."""
    words = [doc.to_array(ORTH) for doc in (example.reference, example.predicted)]
    return KEY in example.reference.user_data and numpy.array_equal(*words)


def read_soft_targets(
    examples: Sequence[DocPair],
    tags: Tags,
    constraints: Constraints,
    lengths: Ints1d,
    weights: Optional[Floats1d],
) -> Optional[SoftTargets]:
    """Read the soft targets of a batch.

    examples (Sequence[Example]): The example of each sequence. Those with soft targets are one
        sequence.
    tags (Tags): The tags of the chain.
    constraints (Constraints): The possible paths.
    lengths (Ints1d): Number of tokens of each sequence. Shape: (B,)
    weights (Optional[Floats1d]): The weight of each sequence; None: 1. Shape: (B,)
    RETURNS (Optional[SoftTargets]): None if there are none.
    RAISES (ValueError): If the teacher has a label that the tags don't have.
    """
    taught = numpy.asarray([is_taught(eg) for eg in examples])
    if not taught.any():
        return None
    n_tags = len(tags)
    own = taught * (numpy.ones(len(taught)) if weights is None else weights)
    emissions = numpy.zeros((int(lengths.sum()), n_tags), dtype="float32")
    transitions, start, end = (
        numpy.zeros(shape) for shape in ((n_tags, n_tags), (n_tags,), (n_tags,))
    )
    possible = numpy.ones(emissions.shape, dtype=bool)
    entropy, last = 0.0, numpy.cumsum(lengths)
    for i in numpy.flatnonzero(own):
        saved = examples[i].reference.user_data[KEY]
        of = _tags_of(saved["labels"], tags)
        to = of[:, None] == numpy.arange(n_tags)
        rows = slice(last[i] - lengths[i], last[i])
        emissions[rows] = own[i] * (saved["emissions"] @ to)
        transitions += own[i] * (to.T @ saved["transitions"] @ to)
        start += own[i] * (saved["start"] @ to)
        end += own[i] * (saved["end"] @ to)
        entropy += own[i] * saved["entropy"]
        possible[rows] = to.any(axis=0)
    if constraints.emissions is not None:
        possible &= constraints.emissions
    expected = Potentials(emissions, transitions, start, end, lengths)
    return SoftTargets(expected, entropy, own, constraints._replace(emissions=possible))


def _tags_of(labels: List[str], tags: Tags) -> Ints1d:
    """The tag that each of the finest tags counts as. Shape: (K of the finest,)"""
    unknown = sorted({*labels} - {*tags.labels})
    if unknown:
        raise ValueError(
            f"soft targets: expected a student with the labels of its teacher {labels}, got "
            f"{list(tags.labels)}, without {unknown}"
        )
    return Tags(labels, tags.finest.scheme.name, tags.finest.outside).counts_as(tags)
