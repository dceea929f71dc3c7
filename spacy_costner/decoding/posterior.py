"""The posterior: exact probabilities of tags, entities and paths, without sampling or beam search.

For the chain, an entity is a segment: a run of tokens with given tags, after which no tag continues
the entity. The chain of a doc may be cut into several sequences, which are independent.

In shapes, D is the number of docs in a batch, B of sequences, N of tokens, K of tags of the chain,
E of entities, and S of segments.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy
from thinc.api import to_numpy
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d, Ints2d
from thinc.util import is_cupy_array

from .. import chain
from ..caching import cached_property
from ..ragged import last_tokens, ranges, sequence_ids, sum_sequences
from ..tags import Entities, Tags
from ..types import Potentials, map_scores

LEAST_PROB = 0.01
"""The least probability of entities that are searched for. The possible entities that contain the
same token exclude each other, so a token is in at most 1 / `LEAST_PROB` of the entities that are
found."""

LEAST_PROB_OF_SETS = 0.001
"""The least probability of entities that are searched for to make guaranteed sets. Such a set
misses at most a guaranteed share of the true entities."""


class Temperature(NamedTuple):
    """The temperature by which scores are divided before probabilities are computed.

    overall (float): The temperature of all scores.
    labels (Mapping[str, float]): The temperature of the emissions of single labels, instead of the
        overall one.
    """

    overall: float = 1.0
    labels: Mapping[str, float] = {}


def temper(potentials: Potentials, tags: Tags, temperature: Temperature) -> Potentials:
    """Divide scores by a temperature: above 1, the posterior is less certain.

        p(y) = exp(s(y) / temperature) / Z

    The emissions of a label may have their own temperature: see `Temperature`.

    Guo et al., 2017, "On Calibration of Modern Neural Networks", eq 9.
    """
    overall = temperature.overall
    tempered = potentials
    if overall != 1:
        tempered = map_scores(lambda scores: scores / overall, potentials)
    if temperature.labels:
        label_temperatures = [temperature.labels.get(label, overall) for label in tags.labels]
        # O has the overall temperature. Its label is -1, which as an index is the last entry.
        label_temperatures.append(overall)
        dtype = potentials.emissions.dtype
        tag_temperatures = numpy.asarray(label_temperatures, dtype=dtype)[tags.label_of]
        tempered = tempered._replace(emissions=potentials.emissions / tag_temperatures)
    return tempered


@dataclass(eq=False)
class Posterior:
    """The posterior of a batch. Messages are computed when they are first needed.

    scores (Potentials): The scores of the model. They are minus infinity where tags or transitions
        are impossible.
    tags (Tags): The tags of the chain. It may have several tags for O; marginals and paths have the
        tags of `tags.collapsed`, with a single O.
    temperature (Temperature): The temperature that scores are divided by.
    is_space (Array1d | None): True for whitespace tokens. They can't end an entity: if the tags of
        an entity continue into the whitespace after it, it is still the same entity. None: no token
        is whitespace. Shape: (N,)
    doc_of_sequence (Ints1d | None): The doc of each sequence, as its number in the batch. Each doc
        has at least one sequence. None: each sequence is a doc. Shape: (B,)
    """

    scores: Potentials
    tags: Tags
    temperature: Temperature = Temperature()  # noqa: RUF009
    is_space: Array1d = None
    doc_of_sequence: Ints1d = None

    def __post_init__(self) -> None:
        if self.doc_of_sequence is None:
            self.doc_of_sequence = numpy.arange(len(self.scores.lengths))
        if self.is_space is None:
            self.is_space = numpy.zeros(len(self.scores.emissions), dtype=bool)

    def with_temperature(self, temperature: Temperature) -> "Posterior":
        """Return the posterior of the same scores at another temperature."""
        return replace(self, temperature=temperature)

    @cached_property
    def doc_lengths(self) -> Ints1d:
        """The number of tokens of each doc. Shape: (D,)"""
        lengths = numpy.bincount(self.doc_of_sequence, weights=self.scores.lengths)
        return lengths.astype("int32")

    @cached_property
    def doc_of_token(self) -> Ints1d:
        """The doc of each token. Shape: (N,)"""
        return numpy.repeat(self.doc_of_sequence, self.scores.lengths)

    def sum_by_doc(self, rows: Floats2d) -> Floats2d:
        """Sum the rows of the tokens of each doc. Shapes: (N, M) to (D, M)"""
        return sum_sequences(rows, self.doc_lengths)

    @cached_property
    def potentials(self) -> Potentials:
        """The scores divided by the temperature, as NumPy arrays."""
        scores = self.scores
        if is_cupy_array(scores.emissions):
            scores = map_scores(to_numpy, scores)
        return temper(scores, self.tags, self.temperature)

    @cached_property
    def forward_backward(self) -> chain.ForwardBackward:
        """The messages of forward-backward, from which all probabilities are computed."""
        return chain.forward_backward(self.potentials)

    @cached_property
    def marginals(self) -> Floats2d:
        """The probability of each tag at each token, where all tags of O count as one.
        Shape: (N, tags of `tags.collapsed`)"""
        return self.tags.collapse(self.chain_marginals)

    @cached_property
    def chain_marginals(self) -> Floats2d:
        """The probability of each tag of the chain at each token. Shape: (N, K)"""
        return self.forward_backward.marginals()

    @property
    def entropy(self) -> Floats1d:
        """The entropy of the path of each doc, in nats. Shape: (D,)"""
        # The sequences of a doc are independent: their entropies add up.
        entropies, _ = self.forward_backward.entropy()
        return numpy.bincount(self.doc_of_sequence, weights=entropies)

    def best_paths(self, k: int) -> tuple[Ints2d, Floats2d]:
        """Find the k most probable paths of each doc.

        k (int): The number of paths.
        RETURNS (tuple[Ints2d, Floats2d]): The tags of the paths; and their log-probabilities, in
            descending order, minus infinity if a doc has fewer paths. Shapes: (k, N), (k, D)
        """
        chain_paths, scores = chain.k_best(self.potentials, k)
        log_z, _ = self.forward_backward.log_partition()
        paths = self.tags.collapsed_of[chain_paths]
        log_probs = numpy.minimum(scores - log_z, 0.0)  # rounding can make them larger than 0
        n_docs = len(self.doc_lengths)
        if n_docs == len(self.doc_of_sequence):  # each doc is one sequence
            return paths, log_probs

        # A path of a doc has a path in each of its sequences, and their log-probabilities add up.
        # `ranks` has, for each path of a doc, the rank of the path in each sequence: 0 is the best
        # one of the sequence. Shape: (k, B)
        ranks = numpy.zeros(log_probs.shape, dtype="int64")
        doc_log_probs = numpy.empty((k, n_docs))
        # The sequences of a doc are adjacent: the sequences of doc i begin at bounds[i], and end
        # before bounds[i + 1].
        bounds = numpy.searchsorted(self.doc_of_sequence, numpy.arange(n_docs + 1))
        for doc, (first_sequence, next_sequence) in enumerate(pairwise(bounds.tolist())):
            sequences = slice(first_sequence, next_sequence)
            ranks_of_doc, log_probs_of_doc = best_sums(log_probs[:, sequences])
            ranks[:, sequences] = ranks_of_doc
            doc_log_probs[:, doc] = log_probs_of_doc

        # Take the tag of each token from the path of that rank in its sequence. Shape: (k, N)
        token_ranks = ranks[:, sequence_ids(self.scores.lengths)]
        doc_paths = numpy.take_along_axis(paths, token_ranks, axis=0)
        return doc_paths, doc_log_probs

    def entity_probs(self, entities: Entities, covers: Array2d | None = None) -> Floats1d:
        """Compute the probability that exactly the tokens of an entity, from b to e - 1, are an
        entity with its label x. It is the probability of the paths that have these tags:

            B-x at b, I-x at the tokens after it, and L-x at e - 1           BILUO
            B-x at b, I-x at the tokens after it, and not I-x at e           IOB2

        In BILUO, a single token has U-x. In IOB2, whitespace at e may have I-x: see `is_space`.

        entities (Entities): Any entities. They may overlap.
        covers (Array2d | None): For each label that the entities have, True at the labels of the
            chain that it covers, as a node of a label tree does. The probability of an entity is
            then a sum over the covered labels. None: the entities have labels of the chain.
            Shape: (labels of the entities, labels of the chain)
        RETURNS (Floats1d): The probabilities, in float64. They are 0 for an entity with tokens of
            two sequences. Shape: (E,)
        """
        if not len(entities.label):  # without entities no messages are needed
            return numpy.zeros(0)
        entity_tags = self.tags.entity_tags
        if covers is None:
            return self.forward_backward.entity_probs(entities, entity_tags, self.is_space)

        # Make an entity for each entity and each label that its label covers. `entity_number` says
        # which entity it was made of.
        entity_number, label = numpy.nonzero(covers[entities.label])
        covered_entities = entities.select(entity_number)._replace(label=label)
        probs = self.forward_backward.entity_probs(covered_entities, entity_tags, self.is_space)
        sums = numpy.bincount(entity_number, weights=probs, minlength=len(entities.label))
        return numpy.minimum(sums, 1.0)  # rounding can make them larger than 1

    def outside_probs(self, begin: Ints1d, end: Ints1d) -> Floats1d:
        """Compute the probability that all tokens of a span are O.

        The chain may have several tags for O: tag 0, and tags for an O directly before an entity.
        So all tokens but the last have tag 0, and the last one has any tag of O. With a span
        from b to e - 1:

            sum over the tags o of O:  p(y_b = ... = y_{e-2} = 0, y_{e-1} = o)

        begin (Ints1d), end (Ints1d): The first token of each span, and the one after its last. A
            span has at least one token. Shapes: (E,)
        RETURNS (Floats1d): The probabilities, in float64. Shape: (E,)
        """
        pieces = self._cut_spans(begin, end)
        n_pieces = len(pieces.span)

        # Make a segment for each piece and each tag of O that its last token may have. `piece` is
        # the piece of each segment. Shape: (pieces * tags of O,)
        outside_tags = numpy.flatnonzero(self.tags.label_of < 0)
        piece = numpy.repeat(numpy.arange(n_pieces), len(outside_tags))
        segment_begin = pieces.begin[piece]
        segment_end = pieces.end[piece]
        # The tags of all segments, one segment after another.
        sizes = segment_end - segment_begin
        path = numpy.zeros(int(sizes.sum()), dtype="int32")
        path[last_tokens(sizes)] = numpy.tile(outside_tags, n_pieces)
        segments = chain.Segments(segment_begin, segment_end, tags=path)
        log_probs, _ = self.forward_backward.segment_log_probs(segments)

        # A path has only one of the segments of a piece: their probabilities add up.
        piece_probs = numpy.bincount(piece, weights=numpy.exp(log_probs), minlength=n_pieces)
        # Sequences are independent: the probabilities of the pieces of a span are multiplied.
        probs = numpy.ones(len(begin))
        piece_probs = numpy.minimum(piece_probs, 1.0)  # rounding can make them larger than 1
        numpy.multiply.at(probs, pieces.span, piece_probs)
        return probs

    def _cut_spans(self, begin: Ints1d, end: Ints1d) -> "SpanPieces":
        """Cut spans of tokens where a sequence ends, so that each piece is within a sequence.
        `begin` has the first tokens, `end` the tokens after the last ones. Shapes: (E,)"""
        first_sequence, last_sequence = self._find_sequences(begin, end)
        # A piece for each span and each sequence that it has tokens of.
        span, sequence = ranges(first_sequence, last_sequence + 1)
        piece_begin = numpy.maximum(begin[span], self._sequence_bounds[sequence])
        piece_end = numpy.minimum(end[span], self._sequence_bounds[sequence + 1])
        has_tokens = piece_begin < piece_end  # not so for sequences without tokens
        return SpanPieces(span[has_tokens], piece_begin[has_tokens], piece_end[has_tokens])

    def crosses_border(self, entities: Entities) -> Array1d:
        """Find the entities with tokens of two or more sequences. Their probability is 0. Returns
        True for these. Shape: (E,)"""
        first_sequence, last_sequence = self._find_sequences(entities.begin, entities.end)
        return first_sequence != last_sequence

    @cached_property
    def _sequence_bounds(self) -> Ints1d:
        """Sequence i has the tokens from `_sequence_bounds[i]` to `_sequence_bounds[i + 1]` - 1.
        Shape: (B + 1,)"""
        return numpy.append(0, numpy.cumsum(self.scores.lengths))

    def _find_sequences(self, begin: Ints1d, end: Ints1d) -> tuple[Ints1d, Ints1d]:
        """Find the sequence of the first token of each span of tokens, and the sequence of its
        last token. `begin` has the first tokens, `end` the tokens after the last ones.
        Shapes: (E,)"""
        # A token is in the last sequence that begins at or before it.
        first_sequence = numpy.searchsorted(self._sequence_bounds, begin, side="right") - 1
        last_sequence = numpy.searchsorted(self._sequence_bounds, end - 1, side="right") - 1
        return first_sequence, last_sequence

    def entity_log_probs(self, entities: Entities) -> "SegmentLogProbs":
        """Compute the log-probabilities of the segments of entities, with their gradient. The
        probability of an entity is the sum over its segments.

        An entity has several segments if whitespace follows it: the tags of the entity may end with
        its last word, or continue into the whitespace. Memory grows with the number of tokens of
        all segments.

        entities (Entities): Any entities. An entity with tokens of two sequences has no segments.
        RETURNS (SegmentLogProbs): The log-probabilities.
        """
        tags = self.tags
        # At first each entity has one segment. `entity_number` is the entity of each segment.
        entity_number = numpy.flatnonzero(~self.crosses_border(entities))
        segments = entities.select(entity_number)

        next_tags = None  # which tags the token after a segment may have; None: all. Shape: (S, K)
        # In IOB2 the last tag of an entity, I-x, may also stand inside of it. Only the tag of the
        # next token, which is not I-x, says that the entity is over. In BILUO, L-x says it, which
        # whitespace doesn't have (see `possible_paths`): each entity has one segment.
        inner_prefixes = {prefix for prefix, _ in tags.scheme.within}
        next_tag_ends_entity = not inner_prefixes.isdisjoint(tags.scheme.closing)
        if next_tag_ends_entity:
            if self.is_space.any():
                entity_number, segments = self._extend_into_space(entity_number, segments)
            continues_label = tags.continuing & (tags.label_of == segments.label[:, None])
            next_tags = ~continues_label

        # Make the tags of all segments, one segment after another: encode them as if they were
        # adjacent entities of one text.
        sizes = segments.end - segments.begin
        ends = numpy.cumsum(sizes)
        side_by_side = Entities(begin=ends - sizes, end=ends, label=segments.label)
        path = tags.encode(side_by_side, int(sizes.sum()))
        chain_segments = chain.Segments(segments.begin, segments.end, tags=path, after=next_tags)
        log_probs, backprop = self.forward_backward.segment_log_probs(chain_segments)
        return SegmentLogProbs(log_probs, entity_number, backprop)

    def _extend_into_space(
        self, entity_number: Ints1d, segments: Entities
    ) -> tuple[Ints1d, Entities]:
        """Find all segments of entities that whitespace follows. One segment ends with the entity.
        Another one continues through the first whitespace token, another one through the first two
        tokens, and so on. `segments` has the first of these segments for each entity. Returns the
        index of the entity of each segment; and the segments, entity after entity. Shapes: (E,),
        (E,) to (S,), (S,)"""
        # A segment ends before the next word or with the sequence, whichever comes first. The end
        # of the batch counts as a word.
        words = numpy.append(numpy.flatnonzero(~self.is_space), len(self.is_space))
        next_word = words[numpy.searchsorted(words, segments.end)]
        sequence, _ = self._find_sequences(segments.begin, segments.end)
        sequence_end = self._sequence_bounds[sequence + 1]
        last_end = numpy.minimum(next_word, sequence_end)
        # Each entity gets a segment for each end from its own to the last one. For example, an
        # entity that ends at 5 and may continue up to 7 gets segments that end at 5, 6 and 7.
        original, end = ranges(segments.end, last_end + 1)
        longer_segments = Entities(segments.begin[original], end, segments.label[original])
        return entity_number[original], longer_segments

    def likely_entities(
        self, floor: float, *, lowest_floor: float = LEAST_PROB
    ) -> tuple[Entities, Floats1d]:
        """Find all entities with at least a certain probability. They may overlap.

        It takes memory for the result only. Entities that contain the same token exclude each
        other, so the entities of the result have at most N / floor tokens in total. For example, in
        10,000 tokens, the floor .01 finds at most a million entities of 32 bytes each.

        floor (float): The least probability of an entity.
        lowest_floor (float): A lower `floor` is raised to this one, as memory has a limit.
        RETURNS (tuple[Entities, Floats1d]): The entities, ordered by begin and end; and their
            probabilities. Shape: (E,)
        """
        begin, end, label, probs = self.forward_backward.likely_entities(
            max(floor, lowest_floor), self.tags.entity_tags, self.is_space
        )
        return Entities(begin, end, label), probs


class SegmentLogProbs(NamedTuple):
    """The log-probabilities of the S segments of entities: see `Posterior.entity_log_probs`.

    log_probs (Floats1d): The log-probability of each segment. Shape: (S,)
    entity_number (Ints1d): The index of the entity of each segment. Shape: (S,)
    backprop (Any): The callback that takes the derivative with respect to the log-probabilities to
        the derivative with respect to the potentials.
    """

    log_probs: Floats1d
    entity_number: Ints1d
    backprop: Any


class SpanPieces(NamedTuple):
    """Pieces of spans of tokens. Each piece is within one sequence. P is their number.

    span (Ints1d): The index of the span that each piece is cut from. Shape: (P,)
    begin (Ints1d): The first token of each piece, counted over the batch. Shape: (P,)
    end (Ints1d): The token after the last one of each piece. Shape: (P,)
    """

    span: Ints1d
    begin: Ints1d
    end: Ints1d


def best_sums(terms: Floats2d) -> tuple[Ints2d, Floats1d]:
    """Find the k largest sums that have one term from each column. A column has the
    log-probabilities of the paths of a sequence, so that the sums are the log-probabilities of the
    paths of a doc.

    The columns are added one after another, and only the k largest sums so far are kept. No other
    sum can lead to one of the k largest in the end. `terms` has, for each of the B sequences of a
    doc, its k terms in descending order. Returns, for each sum, the rank of its term in each
    column, where 0 is the largest; and the sums, in descending order.
    Shapes: (k, B) to (k, B), (k,)
    """
    k, n_sequences = terms.shape
    # For each sum up to column b, what it was made of: the rank of the sum up to column b - 1, and
    # the rank of the term of column b. Shapes: (B, k)
    previous_rank = numpy.zeros((n_sequences, k), dtype="int64")
    term_rank = numpy.zeros((n_sequences, k), dtype="int64")
    term_rank[0] = numpy.arange(k)
    sums = terms[:, 0]  # the k largest sums of the columns so far, descending. Shape: (k,)
    for b in range(1, n_sequences):
        # Add each term to each sum so far. Candidate i is the sum of rank i // k, plus the term of
        # rank i % k. Shape: (k * k,)
        candidates = (sums[:, None] + terms[:, b]).reshape(-1)
        largest = numpy.argsort(-candidates, kind="stable")[:k]
        previous_rank[b] = largest // k
        term_rank[b] = largest % k
        sums = candidates[largest]

    # Go back from the last column to the first to find the terms of each sum.
    ranks = numpy.empty((k, n_sequences), dtype="int64")
    sum_rank = numpy.arange(k)  # of the sums up to column b
    for b in range(n_sequences - 1, -1, -1):
        ranks[:, b] = term_rank[b, sum_rank]
        sum_rank = previous_rank[b, sum_rank]
    return ranks, sums
