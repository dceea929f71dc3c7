"""Weight sums of words, which are cached between predictions.

Many features of a token belong to a word at some offset from it. The scores that the word adds only
depend on the word and the offset. They're therefore computed once for each word and offset, and
predictions add up these sums.

A slot reads a value of the word at one offset from a token and looks up its weight row: see `Slots`
and `WordSlots` in `features.lookup`. In shapes, W is the number of words, N the number of tokens, B
the number of docs, K the number of tags, and O the number of offsets.
"""

from typing import NamedTuple

import numpy
from thinc.types import Array1d, Floats2d, Floats3d, Ints1d, Ints2d

from .. import sparse
from ..features import WordCache, WordSlots
from .vector_inputs import VectorInputs, side_by_side

MOST_BYTES = 1 << 27  # 128 MB
"""The maximum memory for the sums in bytes. Once it's used up, no sums are stored for new words.
(The sums of 60,000 words take up 25 MB for 4 labels, but 2 GB for 300 labels.)"""


class WordSums(NamedTuple):
    """Cached weight sums for each word and offset: the sum of the weights of the word's features at
    this offset, which the word adds to the scores of a token. Can be shared between threads.

    weights (Floats2d): The weights: V rows for features, M rows for static vectors, and any further
        rows, which are ignored, such as the rows of the chain. Shape: (V + M or more, K)
    n_features (int): The number of rows for features, V.
    n_vector_rows (int): The number of rows for static vectors, M.
    cache (WordCache): All words that have been seen so far, with the ids of their values.
    slots (WordSlots): The slots that depend only on the word at their offset.
    sums (Floats3d): The sums of the words in the cache, in the same order. The array may have extra
        space for more words. Shape: (W or more, O, K)
    n_words (int): The number of words with sums, W.
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
        """Create an empty object for the given weights and cache.

        weights (Floats2d): The weights: V rows for features, M rows for static vectors, and any
            further rows, which are ignored. Shape: (V + M or more, K)
        n_features (int): The number of rows for features, V.
        n_vector_rows (int): The number of rows for static vectors, M.
        cache (WordCache): All words that have been seen so far.
        slots (WordSlots): The slots that depend only on the word at their offset.
        RETURNS (WordSums): The new object.
        """
        n_offsets = len(slots.by_offset)
        sums = numpy.zeros((0, n_offsets, weights.shape[1]), dtype="float32")
        return cls(weights, n_features, n_vector_rows, cache, slots, sums, n_words=0)

    def matches(self, weights: Floats2d, cache: WordCache) -> bool:
        """Check whether these sums were computed from the given weights and cache. If not, the
        weights or the cache have been replaced."""
        return self.weights is weights and self.cache is cache

    def with_all_words(self) -> "WordSums":
        """Add the sums of new words in the cache, up to `MOST_BYTES`. Returns a new object, or the
        same object if no sums were added. The two objects may share an array. If several threads
        add words at once, they all write the same sums."""
        if self.n_words == self.cache.n_words:
            return self
        _, n_offsets, n_tags = self.sums.shape
        # At least 1 to avoid dividing by 0. Templates may have no slots that depend only on the
        # word.
        bytes_of_word = max(self.weights.itemsize * n_offsets * n_tags, 1)
        most_words = MOST_BYTES // bytes_of_word
        n_words = min(self.cache.n_words, most_words)
        if n_words <= self.n_words:
            return self

        sums = self.sums
        if n_words > len(sums):
            # Allocate twice the required space, so that the array is rarely copied.
            n_rows = min(2 * n_words, most_words)
            sums = numpy.empty((n_rows, n_offsets, n_tags), dtype="float32")
            sums[: self.n_words] = self.sums[: self.n_words]

        new_words = self.cache.table[self.n_words : n_words]
        # Only write complete sums, because another thread may read them.
        sums[self.n_words : n_words] = self._sum_weights(new_words)
        return self._replace(sums=sums, n_words=n_words)

    def _sum_weights(self, words: Ints2d) -> Floats3d:
        """Compute the weight sums of words for each of O offsets and each tag. `words` contains the
        words' rows in the cache's table, which are the ids of their values.
        Shapes: (W, width of the table) to (W, O, K)"""
        cache = self.cache
        _, n_offsets, n_tags = self.sums.shape
        sums = numpy.empty((len(words), n_offsets, n_tags), dtype="float32")
        # `gather` expects sequences of tokens. These slots only read the token itself, so all words
        # can be passed in as one sequence.
        one_sequence = numpy.asarray([len(words)], dtype="int32")
        for i, slots in enumerate(self.slots.by_offset.values()):
            rows = slots.gather(words, one_sequence)
            sums[:, i] = sparse.sum_rows(rows, self._feature_weights)

        if cache.vectors is not None:
            # The vector slots only differ in their offset. They all read the vector id from the
            # same column.
            id_column = self.slots.vectors.places[0]
            vectors = cache.vectors.read(words[:, id_column])
            weights = side_by_side(self._vector_weights, vectors.shape[1])
            # Don't use BLAS, which may round a word's product differently depending on the other
            # words.
            products = sparse.multiply_rows(vectors, weights)
            # Vectors may be used at fewer offsets than other features.
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
        """Compute the scores that the words in the tokens' windows add to the tokens.

        word_ids (Ints1d): The cache id of each token's word. Shape: (N,)
        lengths (Ints1d): The number of tokens in each doc. Shape: (B,)
        RETURNS (Floats2d): The scores to add. Shape: (N, K)
        """
        _, n_offsets, n_tags = self.sums.shape
        has_sums = word_ids < self.n_words
        all_have_sums = has_sums.all()
        # Treat `sums` as a table of shape (W O, K), with one row for each word and offset. The
        # first row of a word is its id times the number of offsets, or -1 if it has no sums.
        # Shape: (N,)
        first_rows = word_ids * n_offsets
        if not all_have_sums:
            first_rows[~has_sums] = -1
        # The row of the word at each offset from each token, (N, O): see `WordSlots.window`.
        rows = self.slots.window.gather(first_rows[:, None], lengths)
        scores = sparse.sum_rows(rows, self.sums.reshape(-1, n_tags))
        if not all_have_sums:
            self._add_words_without_sums(scores, word_ids, has_sums, lengths)
        return scores

    def _add_words_without_sums(
        self, scores: Floats2d, word_ids: Ints1d, has_sums: Array1d, lengths: Ints1d
    ) -> None:
        """Add the weights of words without sums, which exceeded the maximum memory, to `scores` in
        place. Each of these words adds to the scores of all tokens that have it in their window.
        `word_ids` contains the cache id of each token's word, and `has_sums` is True for tokens
        whose word has sums. Shapes: (N, K), (N,), (N,), (B,)"""
        cache = self.cache
        value_ids = cache.table[word_ids]
        value_ids[has_sums] = -1  # already added
        for offset, slots in self.slots.by_offset.items():
            # Turn the slots of a single word into slots for the word at this offset from a token.
            slots_in_window = slots._replace(offsets=slots.offsets + offset)
            rows = slots_in_window.gather(value_ids, lengths)
            scores += sparse.sum_rows(rows, self._feature_weights)
        if cache.vectors is not None:
            vector_ids = self.slots.vectors.gather(value_ids, lengths)
            inputs = VectorInputs.from_ids(cache.vectors, vector_ids)
            scores += inputs.score(self._vector_weights)
