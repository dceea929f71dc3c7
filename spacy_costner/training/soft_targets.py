"""Soft targets: the distribution of a teacher's paths as a target of training.

    sum_y  p(y) log (p(y) / q(y))  =  log Z_q - E_p[s_q(y)] - H(p)

So a student q needs only the expected counts of tags and transitions under its teacher p, and the
entropy. These are saved with the doc over `Tags.finest`: a student may have another scheme, and the
tags of any scheme follow from the finest ones. A doc with soft targets is called taught.

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
    """The Kullback-Leibler divergence of a student's paths q from those of its teacher p, in nats:
    the sum over the sequences, with their weights. Its gradient with respect to the scores is the
    expectations of tags and transitions under q without those under p.

    scores (Potentials): The scores of the student, without constraints.
    soft (SoftTargets): The soft targets.
    RETURNS (LossResult): The divergence and its gradient.
    """
    asarray = get_array_module(scores.emissions).asarray
    weights = asarray(soft.weights)
    log_z, backprop = chain.log_partition(chain.constrain(scores, soft.constraints))

    # log Z_q - H(p). The gradient of log Z_q is the expectations under q.
    gradient = backprop(weights)
    value = float((weights * log_z).sum()) - soft.entropy

    # Then - E_p[s_q], for emissions, transitions, start and end: the first four fields.
    for d_scores, saved_counts, array in zip(gradient[:4], soft.expected[:4], scores[:4]):
        expected_counts = asarray(saved_counts)
        d_scores -= expected_counts  # in place
        value -= float((expected_counts * array).sum())
    return LossResult(value, gradient)


def expectations(
    potentials: Potentials, tags: Tags, doc_of: Ints1d | None = None
) -> Iterator[Saved]:
    """Compute the soft targets of docs, to be saved with them, from a teacher's potentials.

    potentials (Potentials): The potentials of the teacher over its tags.
    tags (Tags): These tags.
    doc_of (Ints1d | None): The doc of each sequence; None: each is one. Shape: (B,)
    YIELDS (Saved): The soft targets of a doc.
    """
    if doc_of is None:
        doc_of = numpy.arange(len(potentials.lengths))
    finest = Tags(sorted(tags.labels)).finest
    # The scores of a path over the finest tags are those of the same entities over the teacher's.
    # Expectations are sums of small numbers: in float64. Shapes: (N, K), (K, K), (K,), (K,)
    tag_of_teacher = finest.counts_as(tags)
    emissions = potentials.emissions[:, tag_of_teacher].astype("float64")
    transitions = potentials.transitions[numpy.ix_(tag_of_teacher, tag_of_teacher)]
    transitions = transitions.astype("float64")
    start = potentials.start[tag_of_teacher].astype("float64")
    end = potentials.end[tag_of_teacher].astype("float64")

    first_token = 0
    for lengths in _lengths_by_doc(potentials.lengths, doc_of):
        end_token = first_token + int(lengths.sum())
        doc_emissions = emissions[first_token:end_token]
        first_token = end_token
        scores = Potentials(doc_emissions, transitions, start, end, lengths)
        scores = chain.constrain(scores, finest.constraints)
        # The gradient of log Z is the expected number of times that a path has each tag and each
        # transition.
        _, backprop = chain.log_partition(scores)
        counts = map_scores(_round_down, backprop(numpy.ones(len(lengths))))
        entropies, _ = chain.entropy(scores)

        saved: Saved = dict(zip(Potentials._fields, counts[:4]))
        if len(lengths) > 1:
            saved["lengths"] = lengths
        saved["labels"] = list(finest.labels)
        saved["entropy"] = float(entropies.sum())
        yield saved


def _lengths_by_doc(lengths: Ints1d, doc_of: Ints1d) -> list[Ints1d]:
    """The lengths of the sequences of each doc, from the length and the doc of each sequence, in
    the order of docs. A doc has a sequence at least. Shapes: (B,), (B,)"""
    if not len(doc_of):
        return []
    # The first sequence of each doc but the first.
    first_sequences = numpy.flatnonzero(numpy.diff(doc_of)) + 1
    return numpy.split(lengths, first_sequences)


def _round_down(counts: ArrayXd) -> ArrayXd:
    """Make expectations smaller to save: in float32, and the least as 0, as many equal numbers
    compress well."""
    return numpy.where(counts < LEAST, 0, counts).astype("float32")


def mean(saved: Sequence[Saved]) -> Saved:
    """Average the soft targets of several teachers with the same labels. The divergence from the
    average is the mean of the divergences from each teacher.

    saved (Sequence[Saved]): The soft targets of a doc by each teacher.
    RETURNS (Saved): Their mean.
    RAISES (ValueError): If the teachers cut the doc at other borders.
    """
    lengths_of_teachers = {tuple(targets.get("lengths", ())) for targets in saved}
    if len(lengths_of_teachers) > 1:
        raise ValueError("soft targets: expected teachers with the same sentence_boundaries")
    averages = dict(saved[0])
    for name in ("emissions", "transitions", "start", "end", "entropy"):
        total = sum(targets[name] for targets in saved)
        averages[name] = total / len(saved)
    return averages


def labels_of(doc: Doc) -> set[str]:
    """The labels that a model needs to learn from a training doc: those of its entities, and all
    that its teacher has."""
    labels = {ent.label_ for ent in doc.ents}
    saved: Saved = doc.user_data.get(KEY, {})
    labels.update(saved.get("labels", ()))
    return labels


def is_taught(example: Example) -> bool:
    """Whether an example has soft targets, and they are for the tokens of its predicted doc. Soft
    targets can't be aligned with other tokens."""
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
            whole_doc = [lengths_by_doc[i].sum()]
            lengths_by_doc[i] = saved.get("lengths", whole_doc)
    n_sequences = [len(lengths_of_doc) for lengths_of_doc in lengths_by_doc]
    doc_of = numpy.repeat(numpy.arange(len(examples)), n_sequences)
    return numpy.concatenate(lengths_by_doc).astype("int32"), doc_of


class TaughtDoc(NamedTuple):
    """A doc with soft targets in a batch.

    i (int): The index of its example.
    tokens (slice): Its tokens, counted over the batch.
    saved (Saved): Its soft targets.
    to_student (Array2d): True for the tag of the student that each of the finest tags of its
        teacher counts as. Shape: (K', K)
    """

    i: int
    tokens: slice
    saved: Saved
    to_student: Array2d

    def add_expectations(self, total: Potentials, weight: float) -> None:
        """Add the expectations of this doc over the tags of the student, with a weight, to those of
        the batch, in place."""
        transitions = self.to_student.T @ self.saved["transitions"] @ self.to_student
        total.emissions[self.tokens] = weight * (self.saved["emissions"] @ self.to_student)
        total.transitions[:] += weight * transitions
        total.start[:] += weight * (self.saved["start"] @ self.to_student)
        total.end[:] += weight * (self.saved["end"] @ self.to_student)


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
    taught_docs = _find_taught(examples, tags, lengths, doc_of)
    is_left_out = numpy.zeros(len(examples), dtype=bool)
    if not taught_docs:
        return None, is_left_out

    # The tags that both the student and its teacher can have at each token. Shape: (N, K)
    possible = numpy.ones((lengths.sum(), len(tags)), dtype=bool)
    if constraints.emissions is not None:
        possible = constraints.emissions.copy()
    for doc in taught_docs:
        # A tag of the student that no tag of the teacher counts as has a label that it lacks.
        possible[doc.tokens] &= doc.to_student.any(axis=0)

    has_path = numpy.ones(len(examples), dtype=bool)
    if constraints.emissions is not None:
        path = chain.any_path(constraints._replace(emissions=possible), lengths)
        lacks_path = numpy.isneginf(path.scores)  # of each sequence, (B,)
        has_path[doc_of[lacks_path]] = False

    soft_weights = numpy.zeros(len(examples))
    expected = no_scores(lengths, len(tags), "float64")
    entropy = 0.0
    for doc in taught_docs:
        if has_path[doc.i]:
            weight = 1.0 if weights is None else float(weights[doc.i])
            soft_weights[doc.i] = weight
            doc.add_expectations(expected, weight)
            entropy += weight * doc.saved["entropy"]
        else:
            is_left_out[doc.i] = True
            # Its score would be minus infinity, which the weight 0 doesn't make 0.
            possible[doc.tokens] = True

    constraints = constraints._replace(emissions=possible)
    # All sequences of a doc have its weight.
    soft_targets = SoftTargets(expected, entropy, soft_weights[doc_of], constraints)
    return soft_targets, is_left_out


def _find_taught(
    examples: Sequence[Example], tags: Tags, lengths: Ints1d, doc_of: Ints1d
) -> list[TaughtDoc]:
    """Find the docs with soft targets in a batch, for a student with these tags. The lengths and
    the docs are those of its sequences. Shapes: (B,)"""
    n_tokens_of_docs = numpy.bincount(doc_of, lengths, len(examples)).astype(int)
    taught_docs: list[TaughtDoc] = []
    end = 0
    for i, n_tokens in enumerate(n_tokens_of_docs.tolist()):
        begin = end
        end += n_tokens
        if is_taught(examples[i]):
            saved: Saved = examples[i].reference.user_data[KEY]
            to_student = _to_student(saved, tags)
            taught_docs.append(TaughtDoc(i, slice(begin, end), saved, to_student))
    return taught_docs


def _to_student(saved: Saved, tags: Tags) -> Array2d:
    """Map the tags of soft targets to those of a student.

    Soft targets are saved for K' tags, those of the finest scheme (see `Tags.finest`), so that a
    student of any scheme can learn from them. Of its K tags each may stand for several of these.

    RETURNS (Array2d): True where a tag of the soft targets counts as a tag of the student. The
        product of expectations with it sums those that count as the same. Shape: (K', K)
    RAISES (ValueError): If the student lacks a label.
    """
    unknown = sorted({*saved["labels"]} - {*tags.labels})
    if unknown:
        raise ValueError(
            f"soft targets: expected a student with the labels of its teacher, got "
            f"{list(tags.labels)}, without {unknown}"
        )
    finest = Tags(saved["labels"]).finest
    tag_of_student = finest.counts_as(tags)  # (K',)
    return tag_of_student[:, None] == numpy.arange(len(tags))
