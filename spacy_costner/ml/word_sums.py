"""The sums of the weights of words, kept from one prediction to the next.

Many features of a token belong to a word at some offset from it. The scores that such a word adds
depend only on the word and the offset. So they are computed once for each word and offset, and
prediction adds up these sums.

A slot reads a value of the word at one offset from a token, and finds its row of weights: see
`Slots` and `WordSlots` in `features.lookup`.
In shapes, W is the number of words, N of tokens, B of docs, K of tags, and O of offsets.
"""

from typing import NamedTuple

import numpy
from thinc.types import Array1d, Floats2d, Floats3d, Ints1d, Ints2d

from .. import sparse
from ..features import WordCache, WordSlots
from .vector_inputs import VectorInputs, side_by_side

MOST_BYTES = 1 << 27  # 128 MB
"""The maximum number of bytes that sums may take. Words that come up when this memory is full have
no sums. (The sums of 60,000 words take 25 MB for 4 labels, but 2 GB for 300 labels.)"""


class WordSums(NamedTuple):
    """For each word and offset the sum of the weights of the word's features there, which the word
    adds to the scores of a token. Threads can share it.

    weights (Floats2d): The weights: V rows of features, M rows of static vectors, and below them
        rows that are not used here, such as the rows of the chain. Shape: (V + M or more, K)
    n_features (int): The number of rows of features, V.
    n_vector_rows (int): The number of rows of static vectors, M.
    cache (WordCache): All words that were seen so far, with the ids of their values.
    slots (WordSlots): The slots that depend on the word at their offset alone.
    sums (Floats3d): The sums of the words of the cache, in the order of the cache. The array may be
        larger than it has to be, so that there is room for more words. Shape: (W or more, O, K)
    n_words (int): The number of words that have sums, W.
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
        """Make an object without sums.

        weights (Floats2d): The weights: V rows of features, M rows of static vectors, and below
            them rows that are not used here. Shape: (V + M or more, K)
        n_features (int): The number of rows of features, V.
        n_vector_rows (int): The number of rows of static vectors, M.
        cache (WordCache): All words that were seen so far.
        slots (WordSlots): The slots that depend on the word at their offset alone.
        RETURNS (WordSums): The object.
        """
        n_offsets = len(slots.by_offset)
        sums = numpy.zeros((0, n_offsets, weights.shape[1]), dtype="float32")
        return cls(weights, n_features, n_vector_rows, cache, slots, sums, n_words=0)

    def matches(self, weights: Floats2d, cache: WordCache) -> bool:
        """Whether these are the sums of the words of a cache by these weights. If they aren't, the
        weights or the cache have been replaced since."""
        return self.weights is weights and self.cache is cache

    def with_all_words(self) -> "WordSums":
        """Add the sums of the words that are new in the cache, as long as there is room: see
        `MOST_BYTES`. Returns an object that has them, too, or this one if no sums are added. Both
        may share their array: if several threads add words at once, all of them write the same
        sums."""
        if self.n_words == self.cache.n_words:
            return self
        _, n_offsets, n_tags = self.sums.shape
        # At least 1, to divide by: the template may have no slots that depend on the word alone.
        bytes_of_word = max(self.weights.itemsize * n_offsets * n_tags, 1)
        most_words = MOST_BYTES // bytes_of_word
        n_words = min(self.cache.n_words, most_words)
        if n_words <= self.n_words:
            return self

        sums = self.sums
        if n_words > len(sums):
            # Twice the room that is needed, so that the array is seldom copied.
            n_rows = min(2 * n_words, most_words)
            sums = numpy.empty((n_rows, n_offsets, n_tags), dtype="float32")
            sums[: self.n_words] = self.sums[: self.n_words]

        new_words = self.cache.table[self.n_words : n_words]
        # They are written at once, when they are complete, as another thread may read them.
        sums[self.n_words : n_words] = self._sum_weights(new_words)
        return self._replace(sums=sums, n_words=n_words)

    def _sum_weights(self, words: Ints2d) -> Floats3d:
        """Compute the sums of the weights of words, for each of O offsets and each tag. `words` has
        the rows of the words in the table of the cache: the ids of their values.
        Shapes: (W, width of the table) to (W, O, K)"""
        cache = self.cache
        _, n_offsets, n_tags = self.sums.shape
        sums = numpy.empty((len(words), n_offsets, n_tags), dtype="float32")
        # `gather` expects tokens of sequences. The slots here read no token other than their own,
        # so that all words may be one sequence.
        one_sequence = numpy.asarray([len(words)], dtype="int32")
        for i, slots in enumerate(self.slots.by_offset.values()):
            rows = slots.gather(words, one_sequence)
            sums[:, i] = sparse.sum_rows(rows, self._feature_weights)

        if cache.vectors is not None:
            # The slots of vectors differ in their offset only: all of them read the id of a vector
            # in the same column.
            id_column = self.slots.vectors.places[0]
            vectors = cache.vectors.read(words[:, id_column])
            weights = side_by_side(self._vector_weights, vectors.shape[1])
            # BLAS may round the product of a word differently if there are other words next to it.
            # This function doesn't.
            products = sparse.multiply_rows(vectors, weights)
            # Vectors may have fewer offsets than `sums`.
            offsets = list(self.slots.by_offset)
            offset_places = [offsets.index(offset) for offset in self.slots.vectors.offsets]
            sums[:, offset_places] += products.reshape(len(words), len(offset_places), n_tags)
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
        """Compute the scores that the words in the windows of tokens add to the scores of the
        tokens.

        word_ids (Ints1d): The word of each token, by its id in the cache. Shape: (N,)
        lengths (Ints1d): The number of tokens of each doc. Shape: (B,)
        RETURNS (Floats2d): The scores to add. Shape: (N, K)
        """
        _, n_offsets, n_tags = self.sums.shape
        has_sums = word_ids < self.n_words
        all_have_sums = has_sums.all()
        # Take `sums` as a table with a row for each word and offset, (W O, K). The rows of a word
        # begin at its id times the number of offsets; -1 if it has no sums. Shape: (N,)
        first_rows = word_ids * n_offsets
        if not all_have_sums:
            first_rows[~has_sums] = -1
        # The row of the word at each offset from a token, (N, O): see `WordSlots.window`.
        rows = self.slots.window.gather(first_rows[:, None], lengths)
        scores = sparse.sum_rows(rows, self.sums.reshape(-1, n_tags))
        if not all_have_sums:
            self._add_words_without_sums(scores, word_ids, has_sums, lengths)
        return scores

    def _add_words_without_sums(
        self, scores: Floats2d, word_ids: Ints1d, has_sums: Array1d, lengths: Ints1d
    ) -> None:
        """Add the weights of the words without sums, for which there was no room, to scores, in
        place. Such a word adds to the scores of all tokens that have it in their window. `word_ids`
        has the id of each token's word in the cache, and `has_sums` is True for the tokens whose
        words have sums. Shapes: (N, K), (N,), (N,), (B,)"""
        cache = self.cache
        value_ids = cache.table[word_ids]
        value_ids[has_sums] = -1  # the scores of these words are already added
        for offset, slots in self.slots.by_offset.items():
            # The slots of a word by itself become the slots of the word at this offset from a
            # token.
            slots_in_window = slots._replace(offsets=slots.offsets + offset)
            rows = slots_in_window.gather(value_ids, lengths)
            scores += sparse.sum_rows(rows, self._feature_weights)
        if cache.vectors is not None:
            vector_ids = self.slots.vectors.gather(value_ids, lengths)
            inputs = VectorInputs.from_ids(cache.vectors, vector_ids)
            scores += inputs.score(self._vector_weights)
