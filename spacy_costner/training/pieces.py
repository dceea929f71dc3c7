"""Division of docs into pieces, so that all training steps have about the same number of words,
regardless of how long the docs are.

A piece is a doc or a part of a doc. The chain treats it as a separate sequence. Its tokens have the
same features as in the whole doc, including features of tokens just before and after the piece. The
piece and these tokens together are called its window. Soft targets are the probabilities of another
model, used instead of gold tags: see `soft_targets`.

The tokens of the corpus are numbered from 0. The data of each token is stored once, in memory or in
files. There are two segmentations of the same docs (see `segmentations`): one cuts only long docs,
and the other cuts docs at all borders of their chains, such as sentence boundaries. A `TokenStore`
holds the data shared by both segmentations. A `PieceStore` for each segmentation holds its pieces
and gold tags. The features and targets of pieces are computed whenever their batch is used.

In shapes, B is the number of pieces in a batch, N the number of their tokens, C the number of
columns of values (see `features`), S the number of features per token, and K the number of tags.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy
from spacy.training import Example
from spacy.util import minibatch
from thinc.api import Model
from thinc.types import Array2d, Floats1d, Ints1d, Ints2d

from .. import chain
from ..annotation.sentence_starts import sentence_starts
from ..features import FeatureBatch, Features, StaticVectors
from ..ml import find_features, linear_part
from ..progress import progress
from ..ragged import ranges
from ..tags import Tags
from .columns import Columns
from .objective import Objective
from .online import Batch, Batches, read_batches
from .segmentations import Segmentations
from .soft_targets import cut_as_teacher, has_soft_targets, read_soft_targets
from .targets import Targets

MOST_WORDS_OF_PIECE = 256
"""Docs with more words than this are cut. Chosen on development data: see docs/linear.md."""

N_DOCS = 256
"""The number of docs to process at a time."""


@dataclass(slots=True)
class Piece:
    """A doc or a part of a doc. Batchers can divide pieces in the same way as examples, because a
    piece has a length and the attributes of its example.

    store (PieceStore): The store that contains the piece.
    number (int): The index of the piece in the store.
    n_tokens (int): The number of tokens in the piece.
    example (Example | None): The example that the piece belongs to. None if docs are not kept.
    """

    store: "PieceStore"
    number: int
    n_tokens: int
    example: Example | None

    def __len__(self) -> int:
        return self.n_tokens

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the example. Batchers with a custom `get_length` may read
        attributes of docs.

        RAISES (ValueError): If docs are not kept.
        """
        if self.example is None:
            raise ValueError(
                "cache: expected a training.batcher that only needs the lengths of docs, as docs "
                "are not kept, got one that reads docs"
            )
        return getattr(self.example, name)


def batch_pieces(
    model: Model,
    objective: Objective,
    tags: Tags,
    examples: Iterable[Example],
    batcher: Callable[[Iterable], Iterable[list]],
    shuffle: Callable[[list], None],
    cache: Path | None = None,
) -> Batches:
    """Read the training examples of a linear model, and divide them into batches of pieces. If the
    component is trained on incorrect spans, all data is kept in memory, and long docs aren't cut,
    because a cut could divide an incorrect span.

    model (Model): A linear model whose feature vocabulary has been built, or a hybrid model.
    objective (Objective): The training objective.
    tags (Tags): The tags of the chain.
    examples (Iterable[Example]): The training examples. They are read once.
    batcher (Callable): Divides pieces or examples into batches.
    shuffle (Callable): Shuffles a list in place.
    cache (Path | None): The directory for cache files, if the corpus is too large for memory: see
        `read_pieces`.
    RETURNS (Batches): The batches, in both segmentations.
    RAISES (ValueError): If there is a cache and the batcher reads docs. See also `read_pieces`.
    """
    if objective.annotation.incorrect_spans_key is not None:
        docs = list(examples)
        shuffle(docs)
        return read_batches(model, objective, tags, batcher(docs))

    def make_batches(pieces: list[Piece]) -> list[Batch]:
        """Divide the pieces of a segmentation into batches, in random order."""
        shuffle(pieces)
        return [join_pieces(batch) for batch in batcher(pieces)]

    segmentations = read_pieces(model, objective, tags, examples, cache=cache)
    return segmentations.map(make_batches)


def read_pieces(
    model: Model,
    objective: Objective,
    tags: Tags,
    examples: Iterable[Example],
    *,
    most_words: int | None = None,
    cache: Path | None = None,
) -> Segmentations[list[Piece]]:
    """Read the features and targets of docs, and cut the docs into pieces, in both segmentations.

    In the first segmentation, docs with more than `most_words` words are cut at sentence starts.
    Docs without sentence starts may be cut anywhere except within an entity. In the second
    segmentation, docs are cut at all borders. Docs with soft targets stay whole in both
    segmentations.

    model (Model): A linear model whose feature vocabulary has been built, or a hybrid model.
    objective (Objective): The training objective, which creates the targets.
    tags (Tags): The tags of the chain.
    examples (Iterable[Example]): The training examples. They are read once.
    most_words (int | None): The maximum number of words in a piece, which is exceeded only if the
        doc can't be cut. Defaults to `MOST_WORDS_OF_PIECE`.
    cache (Path | None): The directory for files with the features and targets of tokens. If set,
        docs are not kept in memory.
    RETURNS (Segmentations[list[Piece]]): The pieces of all docs that have tokens, in order.
    RAISES (ValueError): If there is a cache and a doc has soft targets. See also
        `Objective.targets`.
    RAISES (OSError): If a cache file can't be written.
    """
    features, _ = linear_part(model)
    token_store = TokenStore(features, cache)
    doc_store = PieceStore(token_store, tags)
    sequence_store = PieceStore(token_store, tags)

    by_doc: list[Piece] = []
    by_sequence: list[Piece] = []
    has_borders = False
    bar = progress(examples, desc="features", unit="doc")
    examples_with_tokens = (eg for eg in bar if len(eg.predicted))
    for batch in minibatch(examples_with_tokens, N_DOCS):
        if cache is not None and any(has_soft_targets(eg) for eg in batch):
            raise ValueError(
                "cache: expected docs without soft targets, got soft targets, which `distill` "
                "writes with `soft`"
            )
        feature_batch = find_features(model, [eg.predicted for eg in batch], is_train=True)
        targets = objective.targets(batch, tags)
        first_token = token_store.add(feature_batch, targets.by_doc)

        cuts = cut_long_docs(batch, targets.by_doc, most_words or MOST_WORDS_OF_PIECE)
        by_doc += doc_store.add(batch, targets.by_doc, cuts, first_token)
        if objective.annotation.sentence_boundaries:
            # Also add docs without borders, because other docs in the corpus may have borders.
            cuts = cut_at_borders(batch, targets.finest)
            by_sequence += sequence_store.add(batch, targets.finest, cuts, first_token)
        if targets.by_sequence is not None:
            has_borders = True

    # All tokens are stored. From now on, rows can be read.
    for columns in (token_store.columns, doc_store.columns, sequence_store.columns):
        columns.finish(token_store.n_tokens)
    if not has_borders:
        return Segmentations(by_doc)
    return Segmentations(by_doc, by_sequence)


def cut_long_docs(
    examples: Sequence[Example], targets: Targets, most_words: int
) -> list[list[int]]:
    """Choose where to cut docs with more than `most_words` words. In `targets`, each doc is one
    sequence. Returns, for each doc, the first token of each piece except the first, counted from
    the beginning of the doc. The list is empty if the doc isn't cut. Docs with soft targets are
    never cut, because soft targets describe the whole doc."""
    constraints = targets.tags.constraints
    assert constraints.start is not None and constraints.end is not None
    path = targets.gold.tags
    # A doc can be cut before a token if its gold tag may begin a sequence and the previous gold tag
    # may end one. If gold is missing (-1), a cut might divide an entity. Shapes: (N,)
    may_begin = constraints.start[path] & (path >= 0)
    may_end = constraints.end[path] & (path >= 0)
    # `roll` shifts the values by one token. The last value moves to the front, but that has no
    # effect, because docs are never cut before their first token.
    token_before_may_end = numpy.roll(may_end, 1)
    is_separable = may_begin & token_before_may_end

    cuts: list[list[int]] = []
    end = 0
    for eg in examples:
        begin = end
        end = begin + len(eg.predicted)
        n_tokens = end - begin
        if n_tokens <= most_words or has_soft_targets(eg):
            cuts.append([])
            continue
        may_cut = is_separable[begin:end]
        starts = sentence_starts(eg)
        if starts.any():
            may_cut = may_cut & starts
        possible_cuts = numpy.flatnonzero(may_cut)
        cuts.append(_choose_cuts(possible_cuts, n_tokens, most_words))
    return cuts


def cut_at_borders(examples: Sequence[Example], targets: Targets) -> list[list[int]]:
    """Return the cuts that make each sequence of `targets` a piece. In `targets`, docs are cut at
    their borders. A doc with soft targets is a single piece, which `PieceStore.read` cuts into
    sequences. The result has the same format as in `cut_long_docs`."""
    # The first token of each sequence, counted over the batch. Shape: (B,)
    sequence_begins = numpy.cumsum(targets.lengths) - targets.lengths
    cuts: list[list[int]] = []
    end = 0
    for eg in examples:
        begin = end
        end = begin + len(eg.predicted)
        if has_soft_targets(eg):
            cuts.append([])
        else:
            begins_later_in_doc = (begin < sequence_begins) & (sequence_begins < end)
            cuts.append((sequence_begins[begins_later_in_doc] - begin).tolist())
    return cuts


def _choose_cuts(possible_cuts: Ints1d, n_tokens: int, most_words: int) -> list[int]:
    """Choose where to cut a doc of `n_tokens` tokens, so that each piece is as long as possible,
    but has at most `most_words` words. A piece is longer only if there is no possible cut within
    this limit. `possible_cuts` contains the tokens before which the doc can be cut, in ascending
    order. Returns the chosen tokens."""
    cuts: list[int] = []
    piece_begin = 0
    while n_tokens - piece_begin > most_words:
        later_cuts = possible_cuts[possible_cuts > piece_begin]
        if not len(later_cuts):
            break
        # The last cut that keeps the piece short enough or, if there is none, the next cut.
        next_cut = later_cuts[0]
        cuts_in_time = later_cuts[later_cuts <= piece_begin + most_words]
        if len(cuts_in_time):
            next_cut = cuts_in_time[-1]
        piece_begin = int(next_cut)
        cuts.append(piece_begin)
    return cuts


def join_pieces(pieces: Sequence[Piece]) -> Batch:
    """Combine pieces of the same store into a training batch. `pieces` must not be empty.

    To save memory, the features and targets of a batch are recomputed each time the batch is used.
    Batches with soft targets are kept in memory, because reading soft targets is slow.
    """
    store = pieces[0].store
    piece_numbers = numpy.asarray([piece.number for piece in pieces])
    # Docs with soft targets are never cut, so their pieces are whole docs.
    examples = [piece.example for piece in pieces if piece.example is not None]
    any_soft_targets = any(has_soft_targets(eg) for eg in examples)
    if not any_soft_targets:
        return Batch(n_sequences=len(pieces), read=partial(store.read, piece_numbers))

    features_and_targets = store.read(piece_numbers, examples)
    return Batch(n_sequences=len(pieces), read=lambda: features_and_targets)


class TokenStore:
    """The token data shared by both segmentations: values, weights and possible tags.

    The values of a token include, for example, its word and its suffix. The features of a token are
    its values and the values of its neighbours. Only the token's values are stored. Its neighbours'
    values are added when a batch is created.

    features (Features): The features of the model.
    folder (Path | None): The directory for files. If None, all data is kept in memory.
    """

    def __init__(self, features: Features, folder: Path | None = None) -> None:
        self.features = features
        self.folder = folder
        self.columns = Columns(folder)  # "value_ids", "token_weights" and "possible": see `add`
        self.n_tokens = 0
        self.vectors: StaticVectors | None = None

    def add(self, batch: FeatureBatch, targets: Targets) -> int:
        """Add the tokens of docs.

        batch (FeatureBatch): The features of the docs.
        targets (Targets): The targets of the docs, in either segmentation: token weights and
            possible tags are the same in both.
        RETURNS (int): The index of the first added token in the corpus.
        """
        first_token = self.n_tokens
        value_ids = cast(Ints2d, batch.value_ids)
        self.columns.write("value_ids", first_token, value_ids)
        self.vectors = batch.vectors  # the same for all training docs: see `Lookup`
        self.columns.write("token_weights", first_token, targets.gold.token_weights)
        self.columns.write("possible", first_token, targets.constraints.emissions)
        self.n_tokens += len(value_ids)
        return first_token

    def gather(self, value_ids: Ints2d, lengths: Ints1d) -> FeatureBatch:
        """Create the features of tokens from their values and the values of their neighbours.

        value_ids (Ints2d): The value IDs of the tokens. Shape: (N, C)
        lengths (Ints1d): The number of tokens in each window. Only neighbours in the same window
            are used. Shape: (B,)
        RETURNS (FeatureBatch): The features.
        """
        rows = self.features.gather(value_ids, lengths)
        batch = FeatureBatch(rows, lengths, vectors=self.vectors)
        if self.vectors is None:
            return batch
        return self.features.add_vectors(batch, value_ids, lengths)


class PieceStore:
    """The pieces of all docs in one segmentation, and the gold tags of their tokens.

    tokens (TokenStore): The token data shared by both segmentations.
    tags (Tags): The tags of the chain.
    """

    def __init__(self, tokens: TokenStore, tags: Tags) -> None:
        self.tokens = tokens
        self.tags = tags
        self.columns = Columns(tokens.folder)  # "tags" and "allowed": see `add`
        # The targets of any batch, used as a template for new batches. Some fields, such as
        # `Gold.opening`, are the same for all batches.
        self._template: Targets
        # The position of each piece in the corpus, as four token indices: the start and end
        # (exclusive) of the piece, and the start and end (exclusive) of its window.
        self._places = array("q")
        # The weight of each piece, which is the weight of its doc. NaN: the doc has no weight.
        self._weights = array("d")

    def add(
        self,
        examples: Sequence[Example],
        targets: Targets,
        cuts: Sequence[Sequence[int]],
        first_token: int,
    ) -> list[Piece]:
        """Add docs and cut them into pieces.

        examples (Sequence[Example]): The examples of the docs.
        targets (Targets): The targets of these examples in this segmentation.
        cuts (Sequence[Sequence[int]]): For each doc, the first token of each piece except the
            first, counted from the beginning of the doc.
        first_token (int): The index of the docs' first token in the corpus, as returned by
            `TokenStore.add`.
        RETURNS (list[Piece]): The pieces.
        """
        self._template = targets
        # Use the type that the chain expects. Otherwise, the first batch would determine it.
        self.columns.write("tags", first_token, targets.gold.tags.astype("int64"))
        self.columns.write("allowed", first_token, targets.gold.allowed)

        pieces: list[Piece] = []
        doc_end = first_token
        for i, eg in enumerate(examples):
            doc_begin = doc_end
            doc_end = doc_begin + len(eg.predicted)
            tokens_of_doc = slice(doc_begin, doc_end)
            weight = numpy.nan
            if targets.gold.weights is not None:
                # All sequences of a doc have the same weight, so use the weight of the first one.
                # `searchsorted` finds it, because `doc_of_sequence` is in ascending order.
                first_sequence = numpy.searchsorted(targets.doc_of_sequence, i)
                weight = targets.gold.weights[first_sequence]
            # If there is a cache, the corpus is too large for memory, so docs aren't kept.
            kept_example = eg if self.tokens.folder is None else None
            for first, end in pairwise([0, *cuts[i], len(eg.predicted)]):
                tokens_of_piece = slice(doc_begin + first, doc_begin + end)
                number = self._add_piece(tokens_of_piece, tokens_of_doc, weight)
                pieces.append(Piece(self, number, n_tokens=end - first, example=kept_example))
        return pieces

    def _add_piece(self, tokens: slice, tokens_of_doc: slice, weight: float) -> int:
        """Add a piece, and return its index. `tokens` and `tokens_of_doc` are the slices of the
        corpus that contain the piece and its doc. `weight` is the weight of the doc, or NaN if it
        has none."""
        reach = self.tokens.features.reach  # how many neighbours on each side features use
        window_begin = max(tokens_of_doc.start, tokens.start - reach)
        window_end = min(tokens_of_doc.stop, tokens.stop + reach)
        self._places.extend([tokens.start, tokens.stop, window_begin, window_end])
        self._weights.append(weight)
        return len(self._weights) - 1

    def read(
        self, pieces: Ints1d, examples: Sequence[Example] = ()
    ) -> tuple[FeatureBatch, Targets]:
        """Create the features and targets of a batch of pieces.

        pieces (Ints1d): The indices of the pieces. Shape: (B,)
        examples (Sequence[Example]): The example of each piece. Only needed if any of them has soft
            targets, which are not stored.
        RETURNS (tuple[FeatureBatch, Targets]): The features and the targets.
        """
        # Four numbers per piece, as stored by `_add_piece`. Shape: (B, 4)
        places = numpy.frombuffer(self._places, dtype="int64").reshape(-1, 4)[pieces]
        first, end, window_begin, window_end = places.T
        features, tokens = self._gather(first, end, window_begin, window_end)

        # The length and the piece of each sequence. Most pieces are a single sequence. Docs with
        # soft targets use their teacher's sequences.
        lengths = (end - first).astype("int32")
        piece_of = numpy.arange(len(pieces))
        if examples:
            lengths, piece_of = cut_as_teacher(examples, lengths, piece_of)

        # Weights and masks are None if they aren't needed for any token.
        weights = self._read_weights(pieces)
        is_possible = self._read_possible_tags(tokens)
        gold = self._template.gold._replace(
            tags=self.columns["tags"][tokens],
            allowed=self._read_allowed_tags(tokens),
            token_weights=self.tokens.columns.read("token_weights", tokens),
            weights=None if weights is None else weights[piece_of],
            features=features.rows,
        )
        constraints = self._template.constraints._replace(emissions=is_possible)
        targets = Targets(self.tags, gold, constraints, lengths, doc_of_sequence=piece_of)

        if examples:
            soft, _ = read_soft_targets(
                examples, self.tags, constraints, lengths, piece_of, weights
            )
            targets = targets._replace(soft=soft)
        return features._replace(lengths=lengths), targets

    def _gather(
        self, first: Ints1d, end: Ints1d, window_begin: Ints1d, window_end: Ints1d
    ) -> tuple[FeatureBatch, Ints1d]:
        """Gather the features of the tokens in pieces. The arguments are the start and end
        (exclusive) of each piece and its window, as token indices in the corpus. Returns the
        features, whose `lengths` are still the lengths of the windows, and the indices of the
        pieces' tokens. Shapes: (B,) to (N,)"""
        # The tokens of all windows, one window after another.
        piece_of_token, tokens = ranges(window_begin, window_end)
        value_ids = cast(Ints2d, self.tokens.columns["value_ids"][tokens])
        window_lengths = (window_end - window_begin).astype("int32")
        features = self.tokens.gather(value_ids, window_lengths)

        # Remove the tokens around the pieces. They were only needed for the features of the pieces'
        # tokens.
        is_in_piece = (tokens >= first[piece_of_token]) & (tokens < end[piece_of_token])
        if is_in_piece.all():
            return features, tokens
        return features.select_tokens(is_in_piece), tokens[is_in_piece]

    def _read_allowed_tags(self, tokens: Ints1d) -> Array2d | None:
        """Return a mask of the tags that agree with gold, for the given tokens of the corpus.
        Return None if gold is complete for all of them, because the column "tags" is then
        sufficient. Shapes: (N,) to (N, K)"""
        is_allowed = self.columns.read("allowed", tokens)
        if is_allowed is None or not is_allowed.any():
            return None
        # Docs with complete gold were added without a mask, so their rows are all False here.
        is_complete = ~is_allowed.any(axis=1)
        gold_tags = self.columns["tags"][tokens[is_complete]]
        is_allowed[is_complete] = chain.to_mask(gold_tags, len(self.tags))
        return is_allowed

    def _read_possible_tags(self, tokens: Ints1d) -> Array2d | None:
        """Return a mask of the possible tags, for the given tokens of the corpus, or None if all
        tags are possible. Shapes: (N,) to (N, K)"""
        is_possible = self.tokens.columns.read("possible", tokens)
        if is_possible is None or not is_possible.any():
            return None
        # Docs whose tags are all possible were added without a mask, so their rows are all False
        # here.
        is_possible[~is_possible.any(axis=1)] = True
        return is_possible

    def _read_weights(self, pieces: Ints1d) -> Floats1d | None:
        """Return the weights of pieces, given their indices, or None if no doc has a weight.
        Shapes: (B,)"""
        weights = numpy.frombuffer(self._weights)[pieces]
        if numpy.isnan(weights).all():
            return None
        # Docs without a weight get the weight 1.
        return numpy.nan_to_num(weights, nan=1.0)
