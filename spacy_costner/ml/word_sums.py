"""The sums of the weights of words, kept from one prediction to the next.

What a word adds to the scores of a token depends on the word and its offset from the token alone.
So it is summed once for each word and offset. W is the number of words.
"""

from typing import NamedTuple

import numpy
from thinc.types import Array1d, Floats2d, Floats3d, Ints1d, Ints2d

from .. import sparse
from ..features import WordCache, WordSlots
from .vector_inputs import VectorInputs, side_by_side

MOST_BYTES = 1 << 27
"""The size of the sums that are kept: those of the words that were seen first. Sixty thousand words
have 25 MB for 4 labels, but 2 GB for 300."""


class WordSums(NamedTuple):
    """At each offset the sum of the weights of each word: what a word at this offset adds to the
    scores of a token. Threads can share it.

    weights (Floats2d): The weights: V rows of features, M of static vectors, then others, such as
        those of the chain. Shape: (V + M + others, K)
    n_features (int): V.
    n_vector_rows (int): M.
    cache (WordCache): The words.
    slots (WordSlots): The slots of words that have these weights.
    sums (Floats3d): The sums of its first words, with room for more. Shape: (W, offsets, K)
    n_words (int): The number of words that have sums.
    """

    weights: Floats2d
    n_features: int
    n_vector_rows: int
    cache: WordCache
    slots: WordSlots
    sums: Floats3d
    n_words: int

    @classmethod
    def empty(
        cls,
        weights: Floats2d,
        n_features: int,
        n_vector_rows: int,
        cache: WordCache,
        slots: WordSlots,
    ) -> "WordSums":
        """The sums of no word."""
        n_offsets = len(slots.by_offset)
        sums = numpy.zeros((0, n_offsets, weights.shape[1]), dtype="float32")
        return cls(weights, n_features, n_vector_rows, cache, slots, sums, 0)

    def are_of(self, weights: Floats2d, cache: WordCache) -> bool:
        """Whether they are sums of these weights, not of others that took their place."""
        return self.weights is weights and self.cache is cache

    def with_all_words(self) -> "WordSums":
        """The sums of all words of the cache, up to `MOST_BYTES`. If several threads add words at
        once, each makes what it needs; they write the same sums."""
        if self.n_words == self.cache.n_words:
            return self
        _, n_offsets, n_tags = self.sums.shape
        bytes_of_word = max(self.weights.itemsize * n_offsets * n_tags, 1)
        most_words = MOST_BYTES // bytes_of_word
        n_words = min(self.cache.n_words, most_words)
        if n_words <= self.n_words:
            return self

        sums = self.sums
        if n_words > len(sums):
            n_rows = min(2 * n_words, most_words)
            sums = numpy.empty((n_rows, n_offsets, n_tags), dtype="float32")
            sums[: self.n_words] = self.sums[: self.n_words]

        new_words = self.cache.table[self.n_words : n_words]
        # Written at once, when they are complete: another thread may write the same sums.
        sums[self.n_words : n_words] = self._sum_weights(new_words)
        return self._replace(sums=sums, n_words=n_words)

    def _sum_weights(self, words: Ints2d) -> Floats3d:
        """The sums of some words, from their rows in the table of the cache.
        Shapes: (W, width) to (W, offsets, K)"""
        cache = self.cache
        _, n_offsets, n_tags = self.sums.shape
        sums = numpy.empty((len(words), n_offsets, n_tags), dtype="float32")
        for i, slots in enumerate(self.slots.by_offset.values()):
            # A word by itself, without a window: a sequence of all words.
            rows = slots.gather(words, numpy.asarray([len(words)], dtype="int32"))
            sums[:, i] = sparse.sum_rows(rows, self._feature_weights)

        if cache.vectors is not None:
            # A row of the cache has the id of the word's vector: all slots read the same place.
            vectors = cache.vectors.read(words[:, self.slots.vectors.places[0]])
            weights = side_by_side(self._vector_weights, vectors.shape[1])
            # Not by BLAS: the sums of a word are the same, whatever other words there are.
            products = sparse.multiply_rows(vectors, weights)
            # Vectors may have a smaller window than other values of words.
            offsets = [*self.slots.by_offset]
            places = [offsets.index(offset) for offset in self.slots.vectors.offsets]
            sums[:, places] += products.reshape(len(words), len(places), n_tags)
        return sums

    @property
    def _feature_weights(self) -> Floats2d:
        """The weights of features. Shape: (V, K)"""
        return self.weights[: self.n_features]

    @property
    def _vector_weights(self) -> Floats2d:
        """The weights of static vectors. Shape: (M, K)"""
        return self.weights[self.n_features : self.n_features + self.n_vector_rows]

    def sum_windows(self, word_ids: Ints1d, lengths: Ints1d) -> Floats2d:
        """What the words in their windows add to the scores of tokens. Shapes: (N,), (B,) to
        (N, K)"""
        _, n_offsets, n_tags = self.sums.shape
        has_sums = word_ids < self.n_words
        all_have_sums = has_sums.all()
        # With `sums` as a table that has a row for each word and offset, the first row of each word
        # is its id times the number of offsets. A token without sums has none. Shape: (N,)
        first_rows = word_ids * n_offsets
        if not all_have_sums:
            first_rows[~has_sums] = -1
        rows = self.slots.window.gather(first_rows[:, None], lengths)
        scores = sparse.sum_rows(rows, self.sums.reshape(-1, n_tags))
        if not all_have_sums:
            self._add_words_without_sums(scores, word_ids, has_sums, lengths)
        return scores

    def _add_words_without_sums(
        self, scores: Floats2d, word_ids: Ints1d, has_sums: Array1d, lengths: Ints1d
    ) -> None:
        """Add to scores, in place, the weights of the words for which there was no room.

        scores (Floats2d): The scores of tokens so far. Shape: (N, K)
        word_ids (Ints1d): The word of each token, by its id in the cache. Shape: (N,)
        has_sums (Array1d): True for the tokens whose words have sums. Shape: (N,)
        lengths (Ints1d): Tokens of each doc. Shape: (B,)
        """
        cache = self.cache
        value_ids = cache.table[word_ids]
        value_ids[has_sums] = -1  # what these words add is in the scores
        for offset, slots in self.slots.by_offset.items():
            slots_in_window = slots._replace(offsets=slots.offsets + offset)
            rows = slots_in_window.gather(value_ids, lengths)
            scores += sparse.sum_rows(rows, self._feature_weights)
        if cache.vectors is not None:
            vector_ids = self.slots.vectors.gather(value_ids, lengths)
            inputs = VectorInputs.of_ids(cache.vectors, vector_ids)
            scores += inputs.score(self._vector_weights)
