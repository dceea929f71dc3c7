"""The posterior: exact probabilities of tags, entities and paths.

An entity is a segment: a run of tokens with given tags, after which no tag continues it. There is
no sampling and no beam search. A batch has D docs. The chain of a doc may be cut into several
sequences, B in all, with N tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy
from thinc.api import to_numpy
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d, Ints2d
from thinc.util import is_cupy_array

from .. import chain
from ..ragged import last_tokens, ranges, sequence_ids, sum_sequences
from ..tags import Entities, Tags
from ..types import Potentials, map_scores

LEAST = 0.01
"""The least probability of entities that are searched for. The entities that contain a token
exclude each other, so a token is in at most 1 / LEAST of them."""

FINEST = 0.001
"""The same for guaranteed sets."""


class Temperature(NamedTuple):
    """The temperature by which scores are divided before probabilities are computed: the overall
    one, and that of the emissions of single labels."""

    overall: float = 1.0
    labels: Mapping[str, float] = {}


def temper(potentials: Potentials, tags: Tags, temperature: Temperature) -> Potentials:
    """Divide scores by a temperature: above 1, the posterior is less certain.

        p(y) = exp(s(y) / temperature) / Z

    Guo et al., 2017, "On Calibration of Modern Neural Networks", eq 9.
    """
    overall = temperature.overall
    tempered = potentials
    if overall != 1:
        tempered = map_scores(lambda scores: scores / overall, potentials)
    if temperature.labels:
        of_labels = [temperature.labels.get(label, overall) for label in tags.labels]
        # The label of O is -1, which takes the last element: O has the overall temperature.
        of_labels.append(overall)
        of_tags = numpy.asarray(of_labels, dtype=potentials.emissions.dtype)[tags.label_of]
        tempered = tempered._replace(emissions=potentials.emissions / of_tags)
    return tempered


@dataclass(eq=False)
class Posterior:
    """The posterior of a batch. Messages are computed when they are first needed.

    scores (Potentials): The model's scores, under all constraints.
    tags (Tags): Their tags, those of the chain. Marginals and paths are over `tags.collapsed`, with
        a single O.
    temperature (Temperature): The temperature of the scores.
    is_space (Array1d | None): True for white space, which can't end an entity: an entity that
        continues into it counts as the entity before it. Shape: (N,)
    doc_of (Ints1d | None): The doc of each sequence. Each has one, at least. None: each sequence
        is a doc. Shape: (B,)
    """

    scores: Potentials
    tags: Tags
    temperature: Temperature = Temperature()  # noqa: RUF009
    is_space: Array1d = None
    doc_of: Ints1d = None

    def __post_init__(self) -> None:
        if self.doc_of is None:
            self.doc_of = numpy.arange(len(self.scores.lengths))
        if self.is_space is None:
            self.is_space = numpy.zeros(len(self.scores.emissions), dtype=bool)

    def with_temperature(self, temperature: Temperature) -> "Posterior":
        """The posterior of the same scores at another temperature."""
        return replace(self, temperature=temperature)

    @cached_property
    def doc_lengths(self) -> Ints1d:
        """Tokens of each doc. Shape: (D,)"""
        return numpy.bincount(self.doc_of, self.scores.lengths).astype("int32")

    @cached_property
    def doc_of_token(self) -> Ints1d:
        """The doc of each token. Shape: (N,)"""
        return numpy.repeat(self.doc_of, self.scores.lengths)

    def sum_by_doc(self, rows: Floats2d) -> Floats2d:
        """Sum the rows of the tokens of each doc. Shapes: (N, M) to (D, M)"""
        return sum_sequences(rows, self.doc_lengths)

    @cached_property
    def potentials(self) -> Potentials:
        """The calibrated scores, as NumPy arrays."""
        scores = self.scores
        if is_cupy_array(scores.emissions):
            scores = map_scores(to_numpy, scores)
        return temper(scores, self.tags, self.temperature)

    @cached_property
    def forward_backward(self) -> chain.ForwardBackward:
        """The distribution of paths."""
        return chain.forward_backward(self.potentials)

    @cached_property
    def marginals(self) -> Floats2d:
        """The probability of each tag at each token. Shape: (N, tags.collapsed)"""
        return self.tags.collapse(self.chain_marginals)

    @cached_property
    def chain_marginals(self) -> Floats2d:
        """The probability of each tag of the chain at each token. Shape: (N, K)"""
        return self.forward_backward.marginals()

    @property
    def entropy(self) -> Floats1d:
        """The entropy of the path of each doc, in nats. Shape: (D,)"""
        return numpy.bincount(self.doc_of, self.forward_backward.entropy()[0])

    def best_paths(self, k: int) -> tuple[Ints2d, Floats2d]:
        """The tags of the k most probable paths, (k, N), and their log-probabilities, descending,
        (k, D); minus infinity where a doc has no further path."""
        chain_paths, scores = chain.k_best(self.potentials, k)
        log_z, _ = self.forward_backward.log_partition()
        paths = self.tags.collapsed_of[chain_paths]
        log_probs = numpy.minimum(scores - log_z, 0.0)  # above 0 by rounding alone
        n_docs = len(self.doc_lengths)
        if n_docs == len(self.doc_of):  # each doc is one sequence
            return paths, log_probs

        # A path of a doc is a path of each of its sequences, and their log-probabilities add up.
        # `ranks`: which path each sequence has in each path of its doc. Shape: (k, B)
        ranks = numpy.zeros(log_probs.shape, dtype="int64")
        doc_log_probs = numpy.empty((k, n_docs))
        # The sequences of a doc stand one after another: the first of each doc, then B.
        bounds = numpy.searchsorted(self.doc_of, numpy.arange(n_docs + 1))
        for doc, (first, past) in enumerate(pairwise(bounds.tolist())):
            sequence_ranks, sums = best_sums(log_probs[:, first:past])
            ranks[:, first:past] = sequence_ranks
            doc_log_probs[:, doc] = sums

        # Each token has the tag of that path of its sequence. Shape: (k, N)
        token_ranks = ranks[:, sequence_ids(self.scores.lengths)]
        doc_paths = numpy.take_along_axis(paths, token_ranks, axis=0)
        return doc_paths, doc_log_probs

    def entity_probs(self, entities: Entities, covers: Array2d | None = None) -> Floats1d:
        """The probability that exactly these tokens are an entity with this label, in float64.
        0 for an entity across the end of a sequence. Shape: (E,)

            p(y has B-x at b, I-x … after it, L-x at e - 1)          BILUO
            p(y has B-x at b, I-x … after it, and not I-x at e)      IOB2

        entities (Entities): Any entities; they may overlap.
        covers (Array2d | None): The labels of the chain that each label of the entities covers,
            if not itself: their probabilities are summed. Shape: (labels of the entities, labels)
        """
        if not len(entities.label):  # then messages may not be needed at all
            return numpy.zeros(0)
        entity_tags = self.tags.entity_tags
        if covers is None:
            return self.forward_backward.entity_probs(entities, entity_tags, self.is_space)

        # An entity of a node is one of any label below it: `entity` is its index, once for each
        # label that it covers.
        entity, label = numpy.nonzero(covers[entities.label])
        covered = entities.select(entity)._replace(label=label)
        probs = self.forward_backward.entity_probs(covered, entity_tags, self.is_space)
        sums = numpy.bincount(entity, probs, minlength=len(entities.label))
        return numpy.minimum(sums, 1.0)  # above 1 by rounding alone

    def outside_probs(self, begin: Ints1d, end: Ints1d) -> Floats1d:
        """The probability that all tokens of a non-empty stretch, from and to, are O, in
        float64. Shapes: (E,)

            sum over tags o of O:  p(y_b = … = y_{e-2} = O, y_{e-1} = o)

        If O is split, only the last of them can be one that has an entity after it.
        """
        pieces = self._cut_stretches(begin, end)
        n_pieces = len(pieces.stretch)

        # One segment for each piece and each tag of O that its last token may have: `piece` is the
        # piece of each segment, (pieces * tags of O,).
        outside_tags = numpy.flatnonzero(self.tags.label_of < 0)
        piece = numpy.repeat(numpy.arange(n_pieces), len(outside_tags))
        segment_begin = pieces.begin[piece]
        segment_end = pieces.end[piece]
        # The tags of all segments, one after another. All tokens but the last have tag 0, O.
        sizes = segment_end - segment_begin
        path = numpy.zeros(int(sizes.sum()), dtype="int32")
        path[last_tokens(sizes)] = numpy.tile(outside_tags, n_pieces)
        segments = chain.Segments(segment_begin, segment_end, path)
        log_probs, _ = self.forward_backward.segment_log_probs(segments)

        # The probability of a piece is the sum over its segments, as a path has one of them.
        piece_probs = numpy.bincount(piece, numpy.exp(log_probs), minlength=n_pieces)
        # Sequences are independent: the probability of a stretch is the product over its pieces.
        probs = numpy.ones(len(begin))
        numpy.multiply.at(probs, pieces.stretch, numpy.minimum(piece_probs, 1.0))
        return probs

    def _cut_stretches(self, begin: Ints1d, end: Ints1d) -> "Pieces":
        """Cut stretches of tokens, from and to, at the borders of sequences in them.
        Shapes: (E,)"""
        first, last = self._find_sequences(begin, end)
        # Each stretch with each of its sequences. Shapes: (stretches and sequences,)
        stretch, sequence = ranges(first, last + 1)
        piece_begin = numpy.maximum(begin[stretch], self._bounds[sequence])
        piece_end = numpy.minimum(end[stretch], self._bounds[sequence + 1])
        has_tokens = piece_begin < piece_end  # false for sequences without tokens
        return Pieces(stretch[has_tokens], piece_begin[has_tokens], piece_end[has_tokens])

    def crosses_border(self, entities: Entities) -> Array1d:
        """True for the entities with tokens of more than one sequence, whose probability is 0.
        Shape: (E,)"""
        first, last = self._find_sequences(entities.begin, entities.end)
        return first != last

    @cached_property
    def _bounds(self) -> Ints1d:
        """The first token of each sequence, then the number of tokens. Shape: (B + 1,)"""
        return numpy.append(0, numpy.cumsum(self.scores.lengths))

    def _find_sequences(self, begin: Ints1d, end: Ints1d) -> tuple[Ints1d, Ints1d]:
        """The sequence of the first token of each stretch, from and to, and that of the last.
        Shapes: (E,)"""
        # A token is in the last sequence that begins at or before it.
        first = numpy.searchsorted(self._bounds, begin, side="right") - 1
        last = numpy.searchsorted(self._bounds, end - 1, side="right") - 1
        return first, last

    def entity_log_probs(self, entities: Entities) -> tuple[Floats1d, Ints1d, Any]:
        """The log-probabilities of entities, with a gradient.

        A path can have an entity in several ways if white space follows it, as the path may also go
        on with the entity's tags through the white space. Each way has its own tags. The
        probability of the entity is the sum over its ways. It takes memory for the tags of all
        tokens of all ways.

        entities (Entities): Any entities. One across the end of a sequence has no way.
        RETURNS (tuple[Floats1d, Ints1d, Any]): The log-probability of each way, (S,); its entity,
            as an index, (S,); and the callback from the derivative with respect to the
            log-probabilities to that with respect to the calibrated scores.
        """
        tags = self.tags
        # At first each entity has one way. `entity` is the entity of each way, as an index. (S,)
        entity = numpy.flatnonzero(~self.crosses_border(entities))
        ways = entities.select(entity)

        next_tags = None  # which tags the token after a way may have: any. (S, K)
        inner_prefixes = {prefix for prefix, _ in tags.scheme.within}
        if not inner_prefixes.isdisjoint(tags.scheme.closing):
            # IOB2: the last tag of an entity may also stand inside of it, so that only the tag of
            # the next token says that it is over.
            if self.is_space.any():
                entity, ways = self._extend_into_space(entity, ways)
            continues_label = tags.continuing & (tags.label_of == ways.label[:, None])
            next_tags = ~continues_label

        # The tags of all ways, one way after another: as of entities that stand side by side
        sizes = ways.end - ways.begin
        ends = numpy.cumsum(sizes)
        side_by_side = Entities(ends - sizes, ends, ways.label)
        path = tags.encode(side_by_side, int(sizes.sum()))
        segments = chain.Segments(ways.begin, ways.end, path, next_tags)
        log_probs, backprop = self.forward_backward.segment_log_probs(segments)
        return log_probs, entity, backprop

    def _extend_into_space(self, entity: Ints1d, ways: Entities) -> tuple[Ints1d, Entities]:
        """Find all ways in which a path can have an entity. White space at the end of an entity
        doesn't count, so on a path it may also go on through the first, the first two, … tokens of
        white space after it.

        entity (Ints1d): The index of each entity, for its ways. Shape: (E,)
        ways (Entities): The way of each entity without white space after it. Shape: (E,)
        RETURNS (tuple[Ints1d, Entities]): The index of the entity of each way, and the ways of one
            entity after those of another. Shape: (S,)
        """
        # A way ends at the latest before the next word, or with the sequence, if that comes first.
        # The end of the batch is as if a word followed.
        words = numpy.append(numpy.flatnonzero(~self.is_space), len(self.is_space))
        next_word = words[numpy.searchsorted(words, ways.end)]
        sequence, _ = self._find_sequences(ways.begin, ways.end)
        sequence_end = self._bounds[sequence + 1]
        last_end = numpy.minimum(next_word, sequence_end)
        # For each entity all ends from its own to the last, one entity after another, and which
        # entity each end is of. An entity that ends at 5, and may go on up to 7, has 5, 6 and 7.
        parent, end = ranges(ways.end, last_end + 1)
        longer_ways = Entities(ways.begin[parent], end, ways.label[parent])
        return entity[parent], longer_ways

    def likely_entities(self, floor: float, *, least: float = LEAST) -> tuple[Entities, Floats1d]:
        """All entities with at least some probability, including overlapping ones, ordered by
        begin and end; and their probabilities, (E,). `least` is in place of a lower floor.

        Memory is that of the answer. Its entities have at most N / floor tokens in all, since those
        that contain the same token exclude each other. So 10,000 tokens of flat scores have fewer
        than a million, of 32 bytes each, at the lowest floor.
        """
        begin, end, label, probs = self.forward_backward.likely_entities(
            max(floor, least), self.tags.entity_tags, self.is_space
        )
        return Entities(begin, end, label), probs


class Pieces(NamedTuple):
    """Pieces of stretches of tokens, each within one sequence.

    stretch (Ints1d): The stretch of each piece, as an index. Shape: (P,)
    begin (Ints1d): Its first token, counted over the batch. Shape: (P,)
    end (Ints1d): The token after its last. Shape: (P,)
    """

    stretch: Ints1d
    begin: Ints1d
    end: Ints1d


def best_sums(terms: Floats2d) -> tuple[Ints2d, Floats1d]:
    """The k largest sums of one term from each column. With a column for each sequence of a doc,
    and the log-probabilities of its paths as terms, the sums are those of the best paths of the
    doc. Column after column, only the k largest sums are kept: no other can be among the k largest
    in the end.

    terms (Floats2d): k terms of each of B sequences, in descending order. Shape: (k, B)
    RETURNS (tuple[Ints2d, Floats1d]): The rank of the term of each sequence in each sum, (k, B),
        and the sums, in descending order, (k,).
    """
    k, n_sequences = terms.shape
    # What each sum of the first b + 1 columns is made of: the rank of the sum before it, and that
    # of the term of column b. Shapes: (B, k)
    previous_rank = numpy.zeros((n_sequences, k), dtype="int64")
    term_rank = numpy.zeros((n_sequences, k), dtype="int64")
    term_rank[0] = numpy.arange(k)
    sums = terms[:, 0]  # of the columns so far, descending. Shape: (k,)
    for b in range(1, n_sequences):
        # Each sum so far with each term. Candidate i is the sum of rank i // k and the term of rank
        # i % k. Shape: (k * k,)
        candidates = (sums[:, None] + terms[:, b]).reshape(-1)
        largest = numpy.argsort(-candidates, kind="stable")[:k]
        previous_rank[b] = largest // k
        term_rank[b] = largest % k
        sums = candidates[largest]

    # From the last sequence back to the first, follow what each sum is made of.
    ranks = numpy.empty((k, n_sequences), dtype="int64")
    sum_rank = numpy.arange(k)
    for b in range(n_sequences - 1, -1, -1):
        ranks[:, b] = term_rank[b, sum_rank]
        sum_rank = previous_rank[b, sum_rank]
    return ranks, sums
