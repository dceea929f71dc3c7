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
from thinc.types import Array1d, Array2d, ArrayXd, Floats1d, Ints1d
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
    the difference of the expectations under q and p.

    scores (Potentials): The scores of the student, without constraints.
    soft (SoftTargets): The soft targets.
    RETURNS (LossResult): The divergence and its gradient.
    """
    asarray = get_array_module(scores.emissions).asarray
    weights = asarray(soft.weights)
    log_z, backprop = chain.log_partition(chain.constrain(scores, soft.constraints))
    # log Z_q - H(p); then - E_p[s_q], part by part.
    gradient = backprop(weights)
    value = float((weights * log_z).sum()) - soft.entropy
    for d_score, saved_count, score in zip(gradient[:4], soft.expected[:4], scores[:4]):
        expected_count = asarray(saved_count)
        d_score -= expected_count
        value -= float((expected_count * score).sum())
    return LossResult(value, gradient)


def expectations(
    potentials: Potentials, tags: Tags, doc_of: Ints1d | None = None
) -> Iterator[Saved]:
    """The soft targets of each doc, to be saved with it, from a teacher's potentials.

    potentials (Potentials): The potentials of the teacher over its tags.
    tags (Tags): These tags.
    doc_of (Ints1d | None): The doc of each sequence; None: each is one. Shape: (B,)
    YIELDS (Saved): The soft targets of a doc.
    """
    if doc_of is None:
        doc_of = numpy.arange(len(potentials.lengths))
    finest = Tags(sorted(tags.labels)).finest
    tag_of_teacher = finest.counts_as(tags)
    emissions = potentials.emissions[:, tag_of_teacher].astype("float64")
    transitions = potentials.transitions[numpy.ix_(tag_of_teacher, tag_of_teacher)]
    transitions = transitions.astype("float64")
    start = potentials.start[tag_of_teacher].astype("float64")
    end = potentials.end[tag_of_teacher].astype("float64")
    first_token = 0
    for lengths in _lengths_by_doc(potentials.lengths, doc_of):
        end_token = first_token + int(lengths.sum())
        rows = emissions[first_token:end_token]
        first_token = end_token
        doc = Potentials(rows, transitions, start, end, lengths)
        doc = chain.constrain(doc, finest.constraints)
        # The gradient of log Z is the expected number of times that a path has each.
        _, backprop = chain.log_partition(doc)
        counts = map_scores(_round_down, backprop(numpy.ones(len(lengths))))
        entropies, _ = chain.entropy(doc)
        saved: Saved = dict(zip(Potentials._fields, counts[:4]))
        if len(lengths) > 1:
            saved["lengths"] = lengths
        saved["labels"] = list(finest.labels)
        saved["entropy"] = float(entropies.sum())
        yield saved


def _lengths_by_doc(lengths: Ints1d, doc_of: Ints1d) -> list[Ints1d]:
    """The lengths of the sequences of each doc, from those of all, (B,)."""
    if not len(doc_of):
        return []
    first_sequences = numpy.flatnonzero(numpy.diff(doc_of)) + 1
    return numpy.split(lengths, first_sequences)


def _round_down(counts: ArrayXd) -> ArrayXd:
    """Expectations as they are saved: the smallest as 0, which compresses well."""
    return numpy.where(counts < LEAST, 0, counts).astype("float32")


def mean(saved: Sequence[Saved]) -> Saved:
    """The soft targets of several teachers with the same labels. The divergence from them is the
    mean of the divergences from each.

    saved (Sequence[Saved]): The soft targets of a doc by each teacher.
    RETURNS (Saved): Their mean.
    RAISES (ValueError): If the teachers cut the doc at other borders.
    """
    segmentations = {tuple(targets.get("lengths", ())) for targets in saved}
    if len(segmentations) > 1:
        raise ValueError("soft targets: expected teachers with the same sentence_boundaries")
    means = dict(saved[0])
    for name in ("emissions", "transitions", "start", "end", "entropy"):
        means[name] = sum(targets[name] for targets in saved) / len(saved)
    return means


def labels_of(doc: Doc) -> set[str]:
    """The labels of a training doc: of its entities, and those that its teacher has."""
    labels = {ent.label_ for ent in doc.ents}
    saved: Saved = doc.user_data.get(KEY, {})
    labels.update(saved.get("labels", ()))
    return labels


def is_taught(example: Example) -> bool:
    """Whether an example has soft targets for the tokens of its predicted doc."""
    if KEY not in example.reference.user_data:
        return False
    words = example.predicted.to_array([ORTH])
    reference_words = example.reference.to_array([ORTH])
    return bool(numpy.array_equal(words, reference_words))


def cut_as_taught(
    examples: Sequence[Example], lengths: Ints1d, doc_of: Ints1d
) -> tuple[Ints1d, Ints1d]:
    """Cut docs with soft targets into the sequences that their teacher's chain had, as the soft
    targets are the expectations over its paths.

    examples (Sequence[Example]): The examples, each with a sequence at least.
    lengths (Ints1d), doc_of (Ints1d): The length and the example of each sequence, as docs are cut
        otherwise. Shapes: (B,)
    RETURNS (tuple[Ints1d, Ints1d]): The same of the sequences of all docs.
    """
    if not any(is_taught(eg) for eg in examples):
        return lengths, doc_of
    lengths_by_doc = _lengths_by_doc(lengths, doc_of)
    for i, eg in enumerate(examples):
        if is_taught(eg):
            saved: Saved = eg.reference.user_data[KEY]
            lengths_by_doc[i] = saved.get("lengths", [lengths_by_doc[i].sum()])
    n_sequences = [len(lengths_of_doc) for lengths_of_doc in lengths_by_doc]
    doc_of = numpy.repeat(numpy.arange(len(examples)), n_sequences)
    return numpy.concatenate(lengths_by_doc).astype("int32"), doc_of


class TaughtDoc(NamedTuple):
    """A doc with soft targets in a batch.

    number (int): The number of its example.
    tokens (slice): Its tokens, counted over the batch.
    saved (Saved): Its soft targets.
    to_student (Array2d): True for the tag of the student that each of the finest tags of its
        teacher counts as. Shape: (K', K)
    """

    number: int
    tokens: slice
    saved: Saved
    to_student: Array2d


def read_soft_targets(
    examples: Sequence[Example],
    tags: Tags,
    constraints: Constraints,
    lengths: Ints1d,
    doc_of: Ints1d,
    weights: Floats1d | None,
) -> tuple[SoftTargets | None, Array1d]:
    """Read the soft targets of a batch, if there are some. An example with soft targets is a whole
    doc. It is left out, with the weight 0, if no path of its teacher has its preset entities: these
    have a label that the teacher lacks, or are across a border of its sequences.

    examples (Sequence[Example]): The examples.
    tags (Tags): The tags of the student's chain.
    constraints (Constraints): Its possible paths.
    lengths (Ints1d), doc_of (Ints1d): The length and the example of each sequence. Shapes: (B,)
    weights (Floats1d | None): The weights of the examples. Shape: (D,)
    RETURNS (tuple[SoftTargets | None, Array1d]): The soft targets, None if no example has some; and
        True for the examples that are left out. Shape: (D,)
    RAISES (ValueError): If a teacher has a label that the tags don't have.
    """
    has_teacher = numpy.asarray([is_taught(eg) for eg in examples], dtype=bool)
    if not has_teacher.any():
        return None, has_teacher
    possible = numpy.ones((lengths.sum(), len(tags)), dtype=bool)
    if constraints.emissions is not None:
        possible = constraints.emissions.copy()
    taught_docs: list[TaughtDoc] = []
    n_tokens = numpy.bincount(doc_of, lengths, len(examples)).astype(int)
    ends = numpy.cumsum(n_tokens)
    for i in numpy.flatnonzero(has_teacher).tolist():
        tokens = slice(ends[i] - n_tokens[i], ends[i])
        saved: Saved = examples[i].reference.user_data[KEY]
        to_student = _to_student(saved, tags)
        # Tags of the student that no tag of the teacher counts as have a label that it lacks.
        possible[tokens] &= to_student.any(axis=0)
        taught_docs.append(TaughtDoc(i, tokens, saved, to_student))

    is_left_out = numpy.zeros(len(examples), dtype=bool)
    if constraints.emissions is not None:
        path = chain.any_path(constraints._replace(emissions=possible), lengths)
        is_left_out[doc_of[numpy.isneginf(path.scores)]] = True
        is_left_out &= has_teacher
    soft_weights = numpy.where(has_teacher, 1.0 if weights is None else weights, 0.0)
    soft_weights[is_left_out] = 0.0
    expected = no_scores(lengths, len(tags), "float64")
    entropy = 0.0
    for doc in taught_docs:
        if is_left_out[doc.number]:
            # The weight 0 doesn't make a score of minus infinity 0: the doc needs a path.
            possible[doc.tokens] = True
            continue
        weight = soft_weights[doc.number]
        # Sums over the tags of the teacher that count as one of the student.
        to_student = doc.to_student
        expected.emissions[doc.tokens] = weight * (doc.saved["emissions"] @ to_student)
        transitions = to_student.T @ doc.saved["transitions"] @ to_student
        expected.transitions[:] += weight * transitions
        expected.start[:] += weight * (doc.saved["start"] @ to_student)
        expected.end[:] += weight * (doc.saved["end"] @ to_student)
        entropy += weight * doc.saved["entropy"]
    constraints = constraints._replace(emissions=possible)
    soft_targets = SoftTargets(expected, entropy, soft_weights[doc_of], constraints)
    return soft_targets, is_left_out


def _to_student(saved: Saved, tags: Tags) -> Array2d:
    """True for the tag of a student that each of the finest tags of its teacher counts as.
    Shape: (K', K)"""
    unknown = sorted({*saved["labels"]} - {*tags.labels})
    if unknown:
        raise ValueError(
            f"soft targets: expected a student with the labels of its teacher, got "
            f"{list(tags.labels)}, without {unknown}"
        )
    finest = Tags(saved["labels"]).finest
    return finest.counts_as(tags)[:, None] == numpy.arange(len(tags))
