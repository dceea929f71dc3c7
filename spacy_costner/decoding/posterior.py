"""The posterior: exact probabilities of tags, entities and paths.

An entity is a segment: a run of tokens with given tags, after which no tag continues it. There is
no sampling and no beam search.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy
from thinc.api import to_numpy
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d, Ints2d

from .. import chain
from ..ragged import last_tokens, ranges, sequence_ids
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
    if temperature == Temperature():
        return potentials
    tempered = map_scores(lambda scores: scores / temperature.overall, potentials)
    names = [*tags.labels, None]
    of_label = [temperature.labels.get(str(name), temperature.overall) for name in names]
    of_tag = numpy.asarray(of_label, dtype=potentials.emissions.dtype)[tags.label_of]
    return tempered._replace(emissions=potentials.emissions / of_tag)


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

    @property
    def doc_lengths(self) -> Ints1d:
        """Tokens of each doc. Shape: (D,)"""
        return numpy.bincount(self.doc_of, self.scores.lengths).astype("int32")

    @cached_property
    def potentials(self) -> Potentials:
        """The calibrated scores, as NumPy arrays."""
        return temper(map_scores(to_numpy, self.scores), self.tags, self.temperature)

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
        tags, scores = chain.k_best(self.potentials, k)
        log_z = self.forward_backward.log_partition()[0]
        log_probs, paths = numpy.minimum(scores - log_z, 0.0), self.tags.collapsed_of[tags]
        n_docs = len(self.doc_lengths)
        if n_docs == len(self.doc_of):
            return paths, log_probs
        ranks = numpy.zeros(log_probs.shape, dtype="int64")
        best = numpy.empty((k, n_docs))
        # The sequences of a doc stand one after another.
        bounds = numpy.searchsorted(self.doc_of, numpy.arange(n_docs + 1))
        for doc, (first, past) in enumerate(pairwise(bounds.tolist())):
            chosen, best[:, doc] = best_sums(log_probs[:, first:past])
            ranks[:, first:past] = chosen
        token_ranks = ranks[:, sequence_ids(self.scores.lengths)]
        return numpy.take_along_axis(paths, token_ranks, axis=0), best

    def entity_probs(self, entities: Entities, covers: Array2d | None = None) -> Floats1d:
        """The probability that exactly these tokens are an entity with this label, in float64.
        0 for an entity across the end of a sequence. Shape: (E,)

            p(y has B-x at b, I-x … after it, L-x at e - 1)          BILUO
            p(y has B-x at b, I-x … after it, and not I-x at e)      IOB2

        entities (Entities): Any entities; they may overlap.
        covers (Array2d | None): The labels of the chain that each label of the entities covers,
            if not itself: their probabilities are summed. Shape: (labels of the entities, labels)
        """
        covered, which = entities, None
        if covers is not None:
            which, label = numpy.nonzero(covers[entities.label])
            covered = entities.select(which)._replace(label=label)
        tags = self.tags.entity_tags
        probs = self.forward_backward.entity_probs(covered, tags, self.is_space)
        if which is None:
            return probs
        return numpy.minimum(numpy.bincount(which, probs, minlength=len(entities.label)), 1.0)

    def outside_probs(self, begin: Ints1d, end: Ints1d) -> Floats1d:
        """The probability that all tokens of a non-empty stretch, from and to, are O, in
        float64. Shapes: (E,)

            sum over tags o of O:  p(y_b = … = y_{e-2} = O, y_{e-1} = o)

        If O is split, only the last of them can be one that has an entity after it.
        """
        stretch, piece_begin, piece_end = self._pieces(begin, end)
        # Each piece, (P,), with each tag that its last token may have
        outside = numpy.flatnonzero(self.tags.label_of < 0)
        piece = numpy.repeat(numpy.arange(len(stretch)), len(outside))
        sizes = (piece_end - piece_begin)[piece]
        path = numpy.zeros(int(sizes.sum()), dtype="int32")
        path[last_tokens(sizes)] = numpy.tile(outside, len(stretch))
        segments = chain.Segments(piece_begin[piece], piece_end[piece], path)
        probs = numpy.exp(self.forward_backward.segment_log_probs(segments)[0])
        of_pieces = numpy.minimum(numpy.bincount(piece, probs, minlength=len(stretch)), 1.0)
        # Sequences are independent: a stretch over borders has the product of its pieces.
        product = numpy.ones(len(begin))
        numpy.multiply.at(product, stretch, of_pieces)
        return product

    def _pieces(self, begin: Ints1d, end: Ints1d) -> tuple[Ints1d, Ints1d, Ints1d]:
        """Cut stretches, (E,), at the borders in them: the stretch of each piece, its first token
        and the one after its last, (P,)."""
        first, last = self._sequences_of(begin, end)
        stretch, sequence = ranges(first, last + 1)
        piece_begin = numpy.maximum(begin[stretch], self._starts[sequence])
        piece_end = numpy.minimum(end[stretch], self._starts[sequence + 1])
        has_tokens = piece_begin < piece_end
        return stretch[has_tokens], piece_begin[has_tokens], piece_end[has_tokens]

    def crosses_border(self, entities: Entities) -> Array1d:
        """True for the entities with tokens of more than one sequence, whose probability is 0.
        Shape: (E,)"""
        first, last = self._sequences_of(entities.begin, entities.end)
        return first != last

    @cached_property
    def _starts(self) -> Ints1d:
        """The first token of each sequence, then the number of tokens. Shape: (B + 1,)"""
        return numpy.append(0, numpy.cumsum(self.scores.lengths))

    def _sequences_of(self, begin: Ints1d, end: Ints1d) -> tuple[Ints1d, Ints1d]:
        """The sequence of the first token of each stretch, and that of the last. Shape: (E,)"""
        first = numpy.searchsorted(self._starts, begin, side="right") - 1
        return first, numpy.searchsorted(self._starts, end - 1, side="right") - 1

    def entity_log_probs(self, entities: Entities) -> tuple[Floats1d, Ints1d, Any]:
        """`entity_probs` with a gradient, for each of the ways in which a path can have an entity:
        the log-probabilities, (S,), the entities that they are ways of, (S,), and the callback from
        the derivative with respect to the former to that of the calibrated scores. An entity over a
        border has no way. It takes memory for the tags of all tokens of the entities."""
        tags = self.tags
        after = None
        which = numpy.flatnonzero(~self.crosses_border(entities))
        ways = entities.select(which)
        if any(prefix in tags.scheme.closing for prefix, _ in tags.scheme.within):  # not BILUO
            if self.is_space.any():
                which, ways = self._into_space(which, ways)
            after = ~tags.continuing | (tags.label_of != ways.label[:, None])
        begin, end, label = ways
        stops = numpy.cumsum(end - begin)
        path = tags.encode(Entities(stops - (end - begin), stops, label), int((end - begin).sum()))
        segments = chain.Segments(begin, end, path, after)
        log_probs, backprop = self.forward_backward.segment_log_probs(segments)
        return log_probs, which, backprop

    def _into_space(self, which: Ints1d, entities: Entities) -> tuple[Ints1d, Entities]:
        """Each entity as it is and, in turn, with the white space that follows it."""
        stops = numpy.cumsum(self.potentials.lengths)
        words = numpy.append(numpy.flatnonzero(~self.is_space), len(self.is_space))
        next_word = words[numpy.searchsorted(words, entities.end)]
        stop = stops[numpy.searchsorted(stops, entities.begin, side="right")]
        way, end = ranges(entities.end, numpy.minimum(next_word, stop) + 1)
        return which[way], Entities(entities.begin[way], end, entities.label[way])

    def likely_entities(self, floor: float, *, least: float = LEAST) -> tuple[Entities, Floats1d]:
        """All entities with at least some probability, including overlapping ones, ordered by
        begin and end; and their probabilities, (E,). `least` is in place of a lower floor.

        Memory is that of the answer. Its entities have at most N / floor tokens in all, since those
        that contain the same token exclude each other. So 10,000 tokens of flat scores have fewer
        than a million, of 32 bytes each, at the lowest floor.
        """
        floor, tags = max(floor, least), self.tags.entity_tags
        *columns, probs = self.forward_backward.likely_entities(floor, tags, self.is_space)
        return Entities(*columns), probs


def best_sums(values: Floats2d) -> tuple[Ints2d, Floats1d]:
    """Choose one of k values, in descending order, of each of B sequences, so that the sum is
    largest; and the k - 1 next ways. Shape: (k, B). Returns the chosen values as indices, (k, B),
    and their sums, (k,)."""
    k, n = values.shape
    before = numpy.zeros((n, k), dtype="int64")  # the rank of the sum over the sequences before
    here = numpy.zeros((n, k), dtype="int64")  # the value that it is added to
    here[0] = numpy.arange(k)
    total = values[:, 0]
    for b in range(1, n):
        sums = (total[:, None] + values[:, b]).reshape(-1)
        order = numpy.argsort(-sums, kind="stable")[:k]
        before[b], here[b] = numpy.divmod(order, k)
        total = sums[order]
    chosen = numpy.empty((k, n), dtype="int64")
    rank = numpy.arange(k)
    for b in range(n - 1, -1, -1):
        chosen[:, b] = here[b, rank]
        rank = before[b, rank]
    return chosen, total
