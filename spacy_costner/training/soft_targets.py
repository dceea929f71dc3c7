"""Soft targets: a student model learns its teacher's distribution p over paths instead of a single
gold path.

The student's distribution is q. Its loss is the Kullback-Leibler divergence, a sum over paths y:

    sum_y  p(y) log (p(y) / q(y))  =  log Z_q - E_p[s_q(y)] - H(p)

The score s_q(y) is a sum over the tags and transitions of y. So the loss depends only on the
entropy H(p) and the expected counts of tags and transitions in the teacher's paths. These numbers
are saved with the doc. They are saved for the tags of `Tags.finest`, which determine the tags in
any other scheme, so the student's tag scheme may differ from its teacher's.

Hinton et al. (2015): Distilling the knowledge in a neural network, applied to paths instead of
classes.

In shapes, D is the number of docs, B the number of sequences, N the number of tokens in a batch, T
the number of tokens in a doc, K the number of the student's tags, and K' the number of the finest
tags.
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
from ..annotation.user_data import SOFT_TARGETS_KEY
from ..tags import Tags
from ..types import Constraints, LossResult, Potentials, map_scores, zero_scores

LEAST = 1e-6
"""Expected counts below this number are saved as 0."""

SavedSoftTargets = dict[str, Any]
"""The saved soft targets of one doc. "labels" contains the teacher's labels, and "entropy" the
entropy of its paths. The expected counts of the finest tags are stored in "emissions" (T, K'),
"start" (K',) and "end" (K',), and the expected counts of their transitions in "transitions" (K',
K'). If the teacher cut the doc into several sequences, "lengths" contains the number of tokens in
each of them. Shape: (B,)"""


class SoftTargets(NamedTuple):
    """The soft targets of a batch.

    expected (Potentials): The teacher's expected counts: each tag at each token, each
        transition, and each tag at the start and the end. Transitions, start and end are summed
        over docs. All counts are multiplied by the weights of the docs.
        Shapes: (N, K), (K, K), (K,), (K,)
    entropy (float): The entropy of the teacher's paths in nats, as a weighted sum over docs.
    weights (Floats1d): The weight of each sequence, or 0 if it has no soft targets. Shape: (B,)
    constraints (Constraints): The possible paths. In docs with soft targets, labels unknown to the
        teacher are impossible.
    """

    expected: Potentials
    entropy: float
    weights: Floats1d
    constraints: Constraints


def divergence(scores: Potentials, soft: SoftTargets) -> LossResult:
    """Compute the Kullback-Leibler divergence between a teacher's and a student's distribution in
    nats, as a weighted sum over sequences. Its gradient with respect to a score is the student's
    expected count minus the teacher's expected count.

    scores (Potentials): The student's scores, without constraints.
    soft (SoftTargets): The soft targets.
    RETURNS (LossResult): The divergence and its gradient.
    """
    asarray = get_array_module(scores.emissions).asarray
    weights = asarray(soft.weights)
    log_z, backprop = chain.log_partition(chain.constrain(scores, soft.constraints))

    # log Z_q - H(p). The gradient of log Z_q contains the student's expected counts.
    gradient = backprop(weights)
    value = float((weights * log_z).sum()) - soft.entropy

    # -E_p[s_q]: the teacher's expected counts, multiplied by the student's scores. The first four
    # fields are emissions, transitions, start and end.
    for d_scores, counts_of_teacher, array in zip(gradient[:4], soft.expected[:4], scores[:4]):
        expected_counts = asarray(counts_of_teacher)
        d_scores -= expected_counts  # modifies the array in `gradient`
        value -= float((expected_counts * array).sum())
    return LossResult(value, gradient)


def expectations(
    potentials: Potentials, tags: Tags, doc_of_sequence: Ints1d | None = None
) -> Iterator[SavedSoftTargets]:
    """Compute the soft targets of docs from a teacher's potentials, to be saved with the docs.

    potentials (Potentials): The teacher's potentials.
    tags (Tags): The tags of the teacher's chain.
    doc_of_sequence (Ints1d | None): The doc of each sequence. If None, each sequence is a
        doc. Shape: (B,)
    YIELDS (SavedSoftTargets): The soft targets of each doc.
    """
    if doc_of_sequence is None:
        doc_of_sequence = numpy.arange(len(potentials.lengths))
    # Sort the labels, so that teachers with the same labels use the same tags: see `mean`.
    finest = Tags(sorted(tags.labels)).finest
    # Each of the finest tags gets the scores of the corresponding tag of the teacher, so that a set
    # of entities has the same score in both tag schemes. Use float64, because expected counts are
    # sums of many small numbers. Shapes: (N, K'), (K', K'), (K',), (K',)
    tag_of_teacher = finest.counts_as(tags)
    emissions = potentials.emissions[:, tag_of_teacher].astype("float64")
    transitions = potentials.transitions[numpy.ix_(tag_of_teacher, tag_of_teacher)]
    transitions = transitions.astype("float64")
    start = potentials.start[tag_of_teacher].astype("float64")
    end = potentials.end[tag_of_teacher].astype("float64")

    first_token = 0
    for lengths in _lengths_by_doc(potentials.lengths, doc_of_sequence):
        end_token = first_token + int(lengths.sum())
        doc_emissions = emissions[first_token:end_token]
        first_token = end_token
        scores = Potentials(doc_emissions, transitions, start, end, lengths)
        scores = chain.constrain(scores, finest.constraints)
        # The gradient of log Z contains the expected counts of tags and transitions.
        log_z, backprop = chain.log_partition(scores)
        expected_counts = backprop(numpy.ones(len(lengths)))
        counts = map_scores(_round_down, expected_counts)
        # H(p) = log Z - E_p[s]. It is 0 for sequences without a possible path.
        log_z = log_z[~numpy.isneginf(log_z)]
        entropy = float(log_z.sum()) - _sum_of_products(expected_counts, scores)

        # The first four fields: "emissions", "transitions", "start" and "end"
        saved: SavedSoftTargets = dict(zip(Potentials._fields, counts[:4]))
        if len(lengths) > 1:
            saved["lengths"] = lengths
        saved["labels"] = list(finest.labels)
        saved["entropy"] = entropy
        yield saved


def _lengths_by_doc(lengths: Ints1d, doc_of_sequence: Ints1d) -> list[Ints1d]:
    """Group the lengths of sequences by doc. Docs are in ascending order, and each has at least one
    sequence. Shapes: (B,), (B,)"""
    if not len(doc_of_sequence):
        return []  # `split` would return one empty group
    # Split before the first sequence of each doc except the first doc.
    first_sequences = numpy.flatnonzero(numpy.diff(doc_of_sequence)) + 1
    return numpy.split(lengths, first_sequences)


def _sum_of_products(expected_counts: Potentials, scores: Potentials) -> float:
    """Compute the expected score, which is the sum of all scores multiplied by their expected
    counts. Scores of minus infinity have the expected count 0 and are skipped."""
    total = 0.0
    for counts, array in zip(expected_counts[:4], scores[:4]):
        is_possible = counts > 0
        total += float(counts[is_possible] @ array[is_possible])
    return total


def _round_down(counts: ArrayXd) -> ArrayXd:
    """Convert expected counts to numbers that compress well: float32, with counts below `LEAST` set
    to 0."""
    return numpy.where(counts < LEAST, 0, counts).astype("float32")


def mean(saved: Sequence[SavedSoftTargets]) -> SavedSoftTargets:
    """Compute the mean of several teachers' soft targets for one doc. All teachers have the same
    labels. A student trained on the mean minimises the mean divergence from all teachers.

    saved (Sequence[SavedSoftTargets]): The soft targets of each teacher.
    RETURNS (SavedSoftTargets): The mean soft targets.
    RAISES (ValueError): If the teachers cut the doc into different sequences.
    """
    lengths_of_teachers = {tuple(targets.get("lengths", ())) for targets in saved}
    if len(lengths_of_teachers) > 1:
        raise ValueError("soft targets: expected teachers with the same sentence_boundaries")
    averages = dict(saved[0])  # labels and lengths are the same for all teachers
    for name in ("emissions", "transitions", "start", "end", "entropy"):
        total = sum(targets[name] for targets in saved)
        averages[name] = total / len(saved)
    return averages


def labels_of(doc: Doc) -> set[str]:
    """Return the labels that a model needs to learn from a training doc: the labels of its entities
    and, if it has soft targets, all labels of its teacher."""
    return {ent.label_ for ent in doc.ents} | labels_of_teacher(doc)


def labels_of_teacher(doc: Doc) -> set[str]:
    """Return the labels of a training doc's teacher, or an empty set if the doc has no soft
    targets."""
    saved: SavedSoftTargets = doc.user_data.get(SOFT_TARGETS_KEY, {})
    return set(saved.get("labels", ()))


def count_expected_entities(doc: Doc) -> dict[str, float]:
    """Return the expected number of entities in a training doc according to its teacher, by label.
    Empty if the doc has no soft targets."""
    if SOFT_TARGETS_KEY not in doc.user_data:
        return {}
    saved: SavedSoftTargets = doc.user_data[SOFT_TARGETS_KEY]
    finest = Tags(saved["labels"]).finest
    # The expected number of tokens that begin an entity of each label. Shape: (labels,)
    n_entities = (saved["emissions"] @ finest.opens_label).sum(axis=0)
    return dict(zip(finest.labels, n_entities.tolist()))


def has_soft_targets(example: Example) -> bool:
    """Check whether an example has soft targets that can be used. Soft targets are stored per token
    and can't be aligned, so the predicted doc and the reference doc need to have the same
    tokens."""
    if SOFT_TARGETS_KEY not in example.reference.user_data:
        return False
    words = example.predicted.to_array([ORTH])
    reference_words = example.reference.to_array([ORTH])
    return bool(numpy.array_equal(words, reference_words))


def cut_as_teacher(
    examples: Sequence[Example], lengths: Ints1d, doc_of_sequence: Ints1d
) -> tuple[Ints1d, Ints1d]:
    """Cut docs with soft targets into their teacher's sequences, because soft targets describe the
    paths of these sequences. Other docs are not changed.

    examples (Sequence[Example]): The batch. Each example has at least one sequence.
    lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
    doc_of_sequence (Ints1d): The index of each sequence's example. Shape: (B,)
    RETURNS (tuple[Ints1d, Ints1d]): The new lengths and the index of each new sequence's example.
        Shapes: (B',)
    """
    if not any(has_soft_targets(eg) for eg in examples):
        return lengths, doc_of_sequence
    lengths_by_doc = _lengths_by_doc(lengths, doc_of_sequence)
    for i, eg in enumerate(examples):
        if has_soft_targets(eg):
            saved: SavedSoftTargets = eg.reference.user_data[SOFT_TARGETS_KEY]
            # If no lengths were saved, the teacher didn't cut the doc.
            n_tokens = lengths_by_doc[i].sum()
            lengths_by_doc[i] = saved.get("lengths", [n_tokens])
    n_sequences = [len(lengths_of_doc) for lengths_of_doc in lengths_by_doc]
    doc_of_sequence = numpy.repeat(numpy.arange(len(examples)), n_sequences)
    return numpy.concatenate(lengths_by_doc).astype("int32"), doc_of_sequence


class SoftTargetDoc(NamedTuple):
    """A doc with soft targets in a batch.

    example_number (int): The index of the doc's example in the batch.
    tokens (slice): The doc's tokens in the batch.
    saved (SavedSoftTargets): The doc's soft targets.
    student_tag_masks (Array2d): For each of the finest tags, a mask that is True for the
        corresponding tag of the student: see `_map_to_student_tags`. Shape: (K', K)
    """

    example_number: int
    tokens: slice
    saved: SavedSoftTargets
    student_tag_masks: Array2d

    def add_expectations(self, total: Potentials, weight: float) -> None:
        """Add the weighted expected counts of this doc to the expected counts of the batch, in
        place. If several of the finest tags correspond to the same tag of the student, their counts
        are summed."""
        transitions = self.student_tag_masks.T @ self.saved["transitions"] @ self.student_tag_masks
        # Each token belongs to only one doc, so its counts can be assigned instead of added.
        total.emissions[self.tokens] = weight * (self.saved["emissions"] @ self.student_tag_masks)
        total.transitions[:] += weight * transitions
        total.start[:] += weight * (self.saved["start"] @ self.student_tag_masks)
        total.end[:] += weight * (self.saved["end"] @ self.student_tag_masks)


def read_soft_targets(
    examples: Sequence[Example],
    tags: Tags,
    constraints: Constraints,
    lengths: Ints1d,
    doc_of_sequence: Ints1d,
    weights: Floats1d | None,
) -> tuple[SoftTargets | None, Array1d]:
    """Read the soft targets of a batch. A doc with soft targets is excluded by setting its weight
    to 0 if its preset entities make all paths of its teacher impossible. This is the case if a
    preset entity has a label unknown to the teacher, or crosses the end of one of the teacher's
    sequences.

    examples (Sequence[Example]): The batch.
    tags (Tags): The tags of the student's chain.
    constraints (Constraints): The student's possible paths.
    lengths (Ints1d): The number of tokens in each sequence. Shape: (B,)
    doc_of_sequence (Ints1d): The index of each sequence's example. Shape: (B,)
    weights (Floats1d | None): The weights of the examples. If None, they are 1. Shape: (D,)
    RETURNS (tuple[SoftTargets | None, Array1d]): The soft targets, or None if no doc has any, and a
        mask that is True for excluded examples. Shape: (D,)
    RAISES (ValueError): If a teacher's label isn't in the student's tags.
    """
    soft_target_docs = _find_soft_target_docs(examples, tags, lengths, doc_of_sequence)
    is_left_out = numpy.zeros(len(examples), dtype=bool)
    if not soft_target_docs:
        return None, is_left_out

    # The tags that are possible for both the student and its teacher at each token. Shape: (N, K)
    is_possible = numpy.ones((lengths.sum(), len(tags)), dtype=bool)
    if constraints.emissions is not None:
        is_possible = constraints.emissions.copy()
    for doc in soft_target_docs:
        # If none of the finest tags corresponds to a student tag, the teacher doesn't know the
        # tag's label.
        is_possible[doc.tokens] &= doc.student_tag_masks.any(axis=0)

    # Without preset entities, at least one path is possible for both the student and its teacher: O
    # at each token.
    has_path = numpy.ones(len(examples), dtype=bool)
    if constraints.emissions is not None:
        path = chain.any_path(constraints._replace(emissions=is_possible), lengths)
        lacks_path = numpy.isneginf(path.scores)  # per sequence, (B,)
        has_path[doc_of_sequence[lacks_path]] = False

    soft_weights = numpy.zeros(len(examples))
    expected = zero_scores(lengths, len(tags), dtype="float64")  # counts are added below
    entropy = 0.0
    for doc in soft_target_docs:
        if has_path[doc.example_number]:
            weight = 1.0 if weights is None else float(weights[doc.example_number])
            soft_weights[doc.example_number] = weight
            doc.add_expectations(expected, weight)
            entropy += weight * doc.saved["entropy"]
        else:
            is_left_out[doc.example_number] = True
            # Without a possible path, log Z would be minus infinity, and multiplying it by 0 would
            # give NaN.
            is_possible[doc.tokens] = True

    constraints = constraints._replace(emissions=is_possible)
    # Each sequence gets the weight of its doc.
    soft_targets = SoftTargets(expected, entropy, soft_weights[doc_of_sequence], constraints)
    return soft_targets, is_left_out


def _find_soft_target_docs(
    examples: Sequence[Example], tags: Tags, lengths: Ints1d, doc_of_sequence: Ints1d
) -> list[SoftTargetDoc]:
    """Return the docs with soft targets in a batch, in the same order as the examples. `lengths`
    and `doc_of_sequence` contain the number of tokens and the example of each sequence.
    Shapes: (B,), (B,)

    RAISES (ValueError): If a teacher's label isn't in the student's tags.
    """
    # The sum of each doc's sequence lengths. Shape: (D,)
    sums = numpy.bincount(doc_of_sequence, weights=lengths, minlength=len(examples))
    n_tokens_of_docs = sums.astype(int)
    soft_target_docs: list[SoftTargetDoc] = []
    end = 0
    for i, n_tokens in enumerate(n_tokens_of_docs.tolist()):
        begin = end
        end += n_tokens
        if has_soft_targets(examples[i]):
            saved: SavedSoftTargets = examples[i].reference.user_data[SOFT_TARGETS_KEY]
            soft_target_doc = SoftTargetDoc(
                example_number=i,
                tokens=slice(begin, end),
                saved=saved,
                student_tag_masks=_map_to_student_tags(saved, tags),
            )
            soft_target_docs.append(soft_target_doc)
    return soft_target_docs


def _map_to_student_tags(saved: SavedSoftTargets, tags: Tags) -> Array2d:
    """Map the finest tags, which soft targets are saved for, to the tags of a student. Several of
    the finest tags may correspond to the same tag of the student. Returns, for each of the finest
    tags, a mask that is True for the corresponding tag of the student. The matrix product of
    expected counts and this mask sums the counts for each tag of the student. Shape: (K', K)

    RAISES (ValueError): If a teacher's label isn't in the student's tags.
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
