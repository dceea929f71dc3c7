"""The posterior: exact probabilities of tags, entities and paths, without sampling or beam search.

On the chain, an entity is a segment: a run of tokens with given tags, followed by a tag that
doesn't continue the entity. The chain of a doc may be split into several independent sequences.

In shapes, D is the number of docs in a batch, B the number of sequences, N the total number of
tokens, K the number of chain tags, E the number of entities and S the number of segments.
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
"""The minimum probability of entities to find. Possible entities that share a token are mutually
exclusive, so at most 1 / `LEAST_PROB` of them are found for each token."""

LEAST_PROB_OF_SETS = 0.001
"""The minimum probability of entities to find for guaranteed sets. A guaranteed set misses at most
a guaranteed fraction of the true entities."""


class Temperature(NamedTuple):
    """The temperature used to scale the scores before probabilities are computed.

    overall (float): The temperature of all scores.
    labels (Mapping[str, float]): The temperatures for the emissions of individual labels, which
        override the overall temperature.
    """

    overall: float = 1.0
    labels: Mapping[str, float] = {}


def temper(potentials: Potentials, tags: Tags, temperature: Temperature) -> Potentials:
    """Divide scores by a temperature. Temperatures above 1 make the posterior less certain.

        p(y) = exp(s(y) / temperature) / Z

    The emissions of individual labels can have a different temperature. See `Temperature`.

    Guo et al., 2017, "On Calibration of Modern Neural Networks", eq 9.
    """
    overall = temperature.overall
    tempered = potentials
    if overall != 1:
        tempered = map_scores(lambda scores: scores / overall, potentials)
    if temperature.labels:
        label_temperatures = [temperature.labels.get(label, overall) for label in tags.labels]
        # O uses the overall temperature. Its label index is -1, which selects the last element.
        label_temperatures.append(overall)
        dtype = potentials.emissions.dtype
        tag_temperatures = numpy.asarray(label_temperatures, dtype=dtype)[tags.label_of]
        tempered = tempered._replace(emissions=potentials.emissions / tag_temperatures)
    return tempered


@dataclass(eq=False)
class Posterior:
    """The posterior of a batch. Messages are computed lazily.

    scores (Potentials): The scores of the model, minus infinity for impossible tags and
        transitions.
    tags (Tags): The chain tags, possibly with several tags for O. Marginals and paths use
        `tags.collapsed`, which has a single O.
    temperature (Temperature): The temperature of the scores.
    is_space (Array1d | None): True for whitespace tokens. Trailing whitespace is not part of an
        entity, even if the entity's tags continue into it. If None, there are no whitespace tokens.
        Shape: (N,)
    doc_of_sequence (Ints1d | None): The index of the doc of each sequence. Each doc has at least
        one sequence. If None, each sequence is a doc. Shape: (B,)
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
        """Return the posterior for the same scores at a different temperature."""
        return replace(self, temperature=temperature)

    @cached_property
    def doc_lengths(self) -> Ints1d:
        """The number of tokens in each doc. Shape: (D,)"""
        lengths = numpy.bincount(self.doc_of_sequence, weights=self.scores.lengths)
        return lengths.astype("int32")

    @cached_property
    def doc_of_token(self) -> Ints1d:
        """The index of the doc of each token. Shape: (N,)"""
        return numpy.repeat(self.doc_of_sequence, self.scores.lengths)

    def sum_by_doc(self, rows: Floats2d) -> Floats2d:
        """Sum the rows of each doc's tokens. Shapes: (N, M) to (D, M)"""
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
        """The forward-backward messages used to compute all probabilities."""
        return chain.forward_backward(self.potentials)

    @cached_property
    def marginals(self) -> Floats2d:
        """The probability of each tag at each token. The tags for O are combined.
        Shape: (N, tags of `tags.collapsed`)"""
        return self.tags.collapse(self.chain_marginals)

    @cached_property
    def chain_marginals(self) -> Floats2d:
        """The probability of each chain tag at each token. Shape: (N, K)"""
        return self.forward_backward.marginals()

    @property
    def entropy(self) -> Floats1d:
        """The entropy of the paths of each doc, in nats. Shape: (D,)"""
        # The sequences of a doc are independent, so their entropies add up.
        entropies, _ = self.forward_backward.entropy()
        return numpy.bincount(self.doc_of_sequence, weights=entropies)

    def best_paths(self, k: int) -> tuple[Ints2d, Floats2d]:
        """Find the k most probable paths of each doc.

        k (int): The number of paths.
        RETURNS (tuple[Ints2d, Floats2d]): The tags of the paths and their log-probabilities, in
            descending order. The log-probability is minus infinity if a doc has fewer than k paths.
            Shapes: (k, N), (k, D)
        """
        chain_paths, scores = chain.k_best(self.potentials, k)
        log_z, _ = self.forward_backward.log_partition()
        paths = self.tags.collapsed_of[chain_paths]
        log_probs = numpy.minimum(scores - log_z, 0.0)  # may exceed 0 due to rounding
        n_docs = len(self.doc_lengths)
        if n_docs == len(self.doc_of_sequence):  # each doc is a single sequence
            return paths, log_probs

        # A path of a doc consists of one path per sequence, and their log-probabilities add up.
        # `ranks` contains the rank of each sequence's path for each path of the doc, where 0 is the
        # best path of the sequence. Shape: (k, B)
        ranks = numpy.zeros(log_probs.shape, dtype="int64")
        doc_log_probs = numpy.empty((k, n_docs))
        # The sequences of a doc are adjacent. The sequences of doc i begin at bounds[i] and end
        # before bounds[i + 1].
        bounds = numpy.searchsorted(self.doc_of_sequence, numpy.arange(n_docs + 1))
        for doc, (first_sequence, next_sequence) in enumerate(pairwise(bounds.tolist())):
            sequences = slice(first_sequence, next_sequence)
            ranks_of_doc, log_probs_of_doc = best_sums(log_probs[:, sequences])
            ranks[:, sequences] = ranks_of_doc
            doc_log_probs[:, doc] = log_probs_of_doc

        # Select the tag of each token from the path with this rank. Shape: (k, N)
        token_ranks = ranks[:, sequence_ids(self.scores.lengths)]
        doc_paths = numpy.take_along_axis(paths, token_ranks, axis=0)
        return doc_paths, doc_log_probs

    def entity_probs(self, entities: Entities, covers: Array2d | None = None) -> Floats1d:
        """Compute the probability that each entity occurs, with exactly the tokens from b to e - 1
        and the label x. This is the probability of all paths with these tags:

            B-x at b, I-x at the tokens after it, and L-x at e - 1           BILUO
            B-x at b, I-x at the tokens after it, and not I-x at e           IOB2

        In BILUO, a single-token entity has the tag U-x. In IOB2, whitespace at e may have the tag
        I-x. See `is_space`.

        entities (Entities): Arbitrary entities. They may overlap.
        covers (Array2d | None): True for the chain labels covered by each label of the entities.
            For example, a node of a label tree covers the labels below it. The probability of an
            entity is then the sum over all covered labels. If None, the entities have chain labels.
            Shape: (labels of the entities, labels of the chain)
        RETURNS (Floats1d): The probabilities, in float64. 0 for entities that cross sequences.
            Shape: (E,)
        """
        if not len(entities.label):  # avoid computing messages if there are no entities
            return numpy.zeros(0)
        entity_tags = self.tags.entity_tags
        if covers is None:
            return self.forward_backward.entity_probs(entities, entity_tags, self.is_space)

        # Create one entity per covered label. `entity_number` is the index of the original entity.
        entity_number, label = numpy.nonzero(covers[entities.label])
        covered_entities = entities.select(entity_number)._replace(label=label)
        probs = self.forward_backward.entity_probs(covered_entities, entity_tags, self.is_space)
        sums = numpy.bincount(entity_number, weights=probs, minlength=len(entities.label))
        return numpy.minimum(sums, 1.0)  # may exceed 1 due to rounding

    def outside_probs(self, begin: Ints1d, end: Ints1d) -> Floats1d:
        """Compute the probability that all tokens of a span are O.

        The chain may have several tags for O: tag 0, and tags for an O directly before an entity.
        All tokens except the last one therefore have tag 0, and the last one may have any tag for
        O. For a span from b to e - 1:

            sum over the tags o of O:  p(y_b = ... = y_{e-2} = 0, y_{e-1} = o)

        begin (Ints1d), end (Ints1d): The index of each span's first token, and the index after
            its last token. Spans must not be empty. Shapes: (E,)
        RETURNS (Floats1d): The probabilities, in float64. Shape: (E,)
        """
        pieces = self._cut_spans(begin, end)
        n_pieces = len(pieces.span)

        # Create a segment for each piece and each tag for O that its last token may have. `piece`
        # is the index of the piece of each segment. Shape: (pieces * tags of O,)
        outside_tags = numpy.flatnonzero(self.tags.label_of < 0)
        piece = numpy.repeat(numpy.arange(n_pieces), len(outside_tags))
        segment_begin = pieces.begin[piece]
        segment_end = pieces.end[piece]
        # The concatenated tags of all segments.
        sizes = segment_end - segment_begin
        path = numpy.zeros(int(sizes.sum()), dtype="int32")
        path[last_tokens(sizes)] = numpy.tile(outside_tags, n_pieces)
        segments = chain.Segments(segment_begin, segment_end, tags=path)
        log_probs, _ = self.forward_backward.segment_log_probs(segments)

        # A path contains at most one of the segments of a piece, so their probabilities add up.
        piece_probs = numpy.bincount(piece, weights=numpy.exp(log_probs), minlength=n_pieces)
        # Sequences are independent, so the probabilities of the pieces of a span are multiplied.
        probs = numpy.ones(len(begin))
        piece_probs = numpy.minimum(piece_probs, 1.0)  # may exceed 1 due to rounding
        numpy.multiply.at(probs, pieces.span, piece_probs)
        return probs

    def _cut_spans(self, begin: Ints1d, end: Ints1d) -> "SpanPieces":
        """Split spans of tokens at sequence boundaries. `begin` contains the first token of each
        span, `end` the token after the last one. Shapes: (E,)"""
        first_sequence, last_sequence = self._find_sequences(begin, end)
        # One piece for each span and each sequence that it overlaps.
        span, sequence = ranges(first_sequence, last_sequence + 1)
        piece_begin = numpy.maximum(begin[span], self._sequence_bounds[sequence])
        piece_end = numpy.minimum(end[span], self._sequence_bounds[sequence + 1])
        has_tokens = piece_begin < piece_end  # false for empty sequences
        return SpanPieces(span[has_tokens], piece_begin[has_tokens], piece_end[has_tokens])

    def crosses_border(self, entities: Entities) -> Array1d:
        """Return a mask of the entities that cross a sequence boundary. Their probability is 0.
        Shape: (E,)"""
        first_sequence, last_sequence = self._find_sequences(entities.begin, entities.end)
        return first_sequence != last_sequence

    @cached_property
    def _sequence_bounds(self) -> Ints1d:
        """The bounds of the sequences. Sequence i consists of the tokens from `_sequence_bounds[i]`
        to `_sequence_bounds[i + 1]` - 1. Shape: (B + 1,)"""
        return numpy.append(0, numpy.cumsum(self.scores.lengths))

    def _find_sequences(self, begin: Ints1d, end: Ints1d) -> tuple[Ints1d, Ints1d]:
        """Find the sequences that contain each span's first and last token. `begin` contains the
        first token of each span, `end` the token after the last one. Shapes: (E,)"""
        # A token belongs to the last sequence that begins at or before it.
        first_sequence = numpy.searchsorted(self._sequence_bounds, begin, side="right") - 1
        last_sequence = numpy.searchsorted(self._sequence_bounds, end - 1, side="right") - 1
        return first_sequence, last_sequence

    def entity_log_probs(self, entities: Entities) -> "SegmentLogProbs":
        """Compute the log-probabilities of the segments of entities, with their gradient. The
        probability of an entity is the sum over its segments.

        An entity has several segments if it is followed by whitespace: its tags may end with the
        last word or continue into the whitespace. The memory usage is proportional to the number of
        tokens in all segments.

        entities (Entities): Arbitrary entities. Entities that cross sequences have no segments.
        RETURNS (SegmentLogProbs): The log-probabilities.
        """
        tags = self.tags
        # Start with one segment per entity. `entity_number` is the entity index of each segment.
        entity_number = numpy.flatnonzero(~self.crosses_border(entities))
        segments = entities.select(entity_number)

        next_tags = None  # the tags allowed after each segment, None for all. Shape: (S, K)
        # In IOB2, the last tag of an entity (I-x) can also be an inner tag, so an entity only ends
        # if the tag of the next token is not I-x. In BILUO, L-x marks the end. Since whitespace
        # can't be tagged L-x (see `possible_paths`), there is one segment per entity.
        inner_prefixes = {prefix for prefix, _ in tags.scheme.within}
        next_tag_ends_entity = not inner_prefixes.isdisjoint(tags.scheme.closing)
        if next_tag_ends_entity:
            if self.is_space.any():
                entity_number, segments = self._extend_into_space(entity_number, segments)
            continues_label = tags.continuing & (tags.label_of == segments.label[:, None])
            next_tags = ~continues_label

        # Encode the segments as if they were adjacent entities of a single text, to get their
        # concatenated tags.
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
        """Find all segments of entities that are followed by whitespace. The first segment ends
        with the entity, the second one includes the first whitespace token, the third one the first
        two whitespace tokens, and so on. `segments` contains the first segment of each entity.
        Return the entity index of each segment, and the segments in the order of the entities.
        Shapes: (E,), (E,) to (S,), (S,)"""
        # A segment ends before the next word or at the end of the sequence, whichever is first. The
        # end of the batch is treated as a word.
        words = numpy.append(numpy.flatnonzero(~self.is_space), len(self.is_space))
        next_word = words[numpy.searchsorted(words, segments.end)]
        sequence, _ = self._find_sequences(segments.begin, segments.end)
        sequence_end = self._sequence_bounds[sequence + 1]
        last_end = numpy.minimum(next_word, sequence_end)
        # Create a segment for each possible end. For example, an entity that ends at 5 and may
        # continue up to 7 gets segments that end at 5, 6 and 7.
        original, end = ranges(segments.end, last_end + 1)
        longer_segments = Entities(segments.begin[original], end, segments.label[original])
        return entity_number[original], longer_segments

    def likely_entities(
        self, floor: float, *, lowest_floor: float = LEAST_PROB
    ) -> tuple[Entities, Floats1d]:
        """Find all entities with at least the given probability. They may overlap.

        Only the result is stored in memory. Entities that share a token are mutually exclusive, so
        the resulting entities have at most N / floor tokens in total. For example, for 10,000
        tokens and a floor of 0.01, there are at most a million entities of 32 bytes each.

        floor (float): The minimum probability of an entity.
        lowest_floor (float): The lowest allowed `floor`, which limits the memory usage.
        RETURNS (tuple[Entities, Floats1d]): The entities, sorted by start and end, and their
            probabilities. Shape: (E,)
        """
        begin, end, label, probs = self.forward_backward.likely_entities(
            max(floor, lowest_floor), self.tags.entity_tags, self.is_space
        )
        return Entities(begin, end, label), probs


class SegmentLogProbs(NamedTuple):
    """The log-probabilities of the S segments of entities. See `Posterior.entity_log_probs`.

    log_probs (Floats1d): The log-probability of each segment. Shape: (S,)
    entity_number (Ints1d): The entity index of each segment. Shape: (S,)
    backprop (Any): Callback that converts the derivative with respect to the log-probabilities to
        the gradient with respect to the potentials.
    """

    log_probs: Floats1d
    entity_number: Ints1d
    backprop: Any


class SpanPieces(NamedTuple):
    """The P pieces that spans of tokens are split into. Each piece is within a single sequence.

    span (Ints1d): The index of the original span of each piece. Shape: (P,)
    begin (Ints1d): The index of each piece's first token in the batch. Shape: (P,)
    end (Ints1d): The index after each piece's last token. Shape: (P,)
    """

    span: Ints1d
    begin: Ints1d
    end: Ints1d


def best_sums(terms: Floats2d) -> tuple[Ints2d, Floats1d]:
    """Find the k largest sums with one term per column. The columns contain the log-probabilities
    of the paths of the sequences in a doc, and the sums are the log-probabilities of the doc's
    paths.

    The columns are added one by one, keeping only the k largest sums so far. No other sum can lead
    to one of the k largest sums in the end. `terms` contains k terms in descending order for each
    of the B sequences. Return the rank in each column of the term used for each sum, where 0 is the
    largest term, and the sums in descending order. Shapes: (k, B) to (k, B), (k,)
    """
    k, n_sequences = terms.shape
    # Backpointers for each sum up to column b: the rank of the sum up to column b - 1, and the rank
    # of the term in column b. Shapes: (B, k)
    previous_rank = numpy.zeros((n_sequences, k), dtype="int64")
    term_rank = numpy.zeros((n_sequences, k), dtype="int64")
    term_rank[0] = numpy.arange(k)
    sums = terms[:, 0]  # the k largest sums so far, in descending order. Shape: (k,)
    for b in range(1, n_sequences):
        # Add each term to each sum so far. Candidate i is the sum with rank i // k plus the term
        # with rank i % k. Shape: (k * k,)
        candidates = (sums[:, None] + terms[:, b]).reshape(-1)
        largest = numpy.argsort(-candidates, kind="stable")[:k]
        previous_rank[b] = largest // k
        term_rank[b] = largest % k
        sums = candidates[largest]

    # Follow the backpointers from the last column to the first.
    ranks = numpy.empty((k, n_sequences), dtype="int64")
    sum_rank = numpy.arange(k)  # the ranks of the sums up to column b
    for b in range(n_sequences - 1, -1, -1):
        ranks[:, b] = term_rank[b, sum_rank]
        sum_rank = previous_rank[b, sum_rank]
    return ranks, sums
