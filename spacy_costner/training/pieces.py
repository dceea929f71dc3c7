"""Pieces of docs, so that each step of training has about as many words, however long docs are.

A piece is a doc or a part of it. For the chain it is a sequence. Its features are those of its
tokens in the whole doc, so they also come from the tokens around it: both are its window.

Each token's own values and targets are stored once, in memory or in files: `TokenStore` has what
both segmentations share (see `segmentations`), a `PieceStore` for each of them the rest. Tokens are
numbered over the corpus. The features of a piece are gathered when its batch is used.
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
from ..annotation import sentence_starts
from ..features import FeatureBatch, Features, StaticVectors
from ..ml import find_features, linear_part
from ..progress import progress
from ..ragged import ranges
from ..tags import Tags
from .columns import Columns
from .objective import Objective
from .online import Batch, Batches, read_batches
from .segmentations import Segmentations
from .soft_targets import cut_as_taught, is_taught, read_soft_targets
from .targets import Targets

MOST_WORDS = 256
"""Docs with more words are cut. Chosen on development data: see docs/linear.md."""

N_DOCS = 256
"""Number of docs that are read together."""


@dataclass(slots=True)
class Piece:
    """A doc or a part of it. Batchers take it in place of an example: it has a length.

    store (PieceStore): Where its targets are.
    number (int): Its number there.
    n_tokens (int): The number of its tokens.
    example (Example | None): The example that it is of; None if docs are not kept.
    """

    store: "PieceStore"
    number: int
    n_tokens: int
    example: Example | None

    def __len__(self) -> int:
        return self.n_tokens

    def __getattr__(self, name: str) -> Any:
        """The attributes of the example. A batcher with a `get_length` may look at its docs."""
        if self.example is None:
            raise ValueError(
                "cache: expected a training.batcher that needs the lengths of docs only, as docs "
                "are not kept, got one that looks at docs"
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
    """Read the training examples of a linear model, and divide them into batches: of pieces, or of
    whole docs if there may be incorrect spans in them, which a cut could divide.

    model (Model): A linear model that knows its features, or a hybrid one.
    objective (Objective): The training objective.
    tags (Tags): The tags of the chain.
    examples (Iterable[Example]): The examples.
    batcher (Callable): Divides pieces, or examples, into batches.
    shuffle (Callable): Shuffles a list in place.
    cache (Path | None): As in `read_pieces`.
    RETURNS (Batches): The batches for both segmentations.
    """
    if objective.annotation.incorrect_spans_key is not None:
        docs = list(examples)
        shuffle(docs)
        return read_batches(model, objective, tags, batcher(docs))

    def make_batches(pieces: list[Piece]) -> list[Batch]:
        shuffle(pieces)
        return [join(batch) for batch in batcher(pieces)]

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
    """Read the features and targets of docs, and cut docs into pieces: those with more words than
    `most_words` at the beginnings of sentences or, if the doc has none, of any tokens, and never
    within an entity. Where docs are cut at their borders, pieces are their sequences. Docs with
    soft targets stay whole.

    model (Model): A linear model that knows its features, or a hybrid one.
    objective (Objective): Makes the targets.
    tags (Tags): The tags of the chain.
    examples (Iterable[Example]): The examples.
    most_words (int | None): The words of the longest piece, if a doc can be cut so. None:
        `MOST_WORDS`.
    cache (Path | None): A folder for the features and targets of tokens. Docs are not kept then.
    RETURNS (Segmentations[list[Piece]]): The pieces of docs with tokens, in order.
    RAISES (ValueError): If there is a cache, and a doc has soft targets.
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
        if cache is not None and any(is_taught(eg) for eg in batch):
            raise ValueError(
                "cache: expected docs without soft targets, got soft targets, as `costner distill "
                "--soft` writes them"
            )
        feature_batch = find_features(model, [eg.predicted for eg in batch], is_train=True)
        targets = objective.targets(batch, tags)
        first_token = token_store.add(feature_batch, targets.by_doc)

        cuts = cut_long_docs(batch, targets.by_doc, most_words or MOST_WORDS)
        by_doc += doc_store.add(batch, targets.by_doc, cuts, first_token)
        if objective.annotation.sentence_boundaries:
            # Also if these docs have no borders, as others of the corpus may have some.
            cuts = cut_at_borders(batch, targets.finest)
            by_sequence += sequence_store.add(batch, targets.finest, cuts, first_token)
        if targets.by_sequence is not None:
            has_borders = True

    for columns in (token_store.columns, doc_store.columns, sequence_store.columns):
        columns.finish(token_store.n_tokens)
    if not has_borders:
        return Segmentations(by_doc)
    return Segmentations(by_doc, by_sequence)


def cut_long_docs(
    examples: Sequence[Example], targets: Targets, most_words: int
) -> list[list[int]]:
    """Choose where to cut docs with more than so many words.

    examples (Sequence[Example]): The examples.
    targets (Targets): Their targets, where each doc is one sequence.
    most_words (int): The words of the longest piece, if a doc can be cut so.
    RETURNS (list[list[int]]): For each doc the first tokens of all its pieces but the first,
        counted in the doc. None in docs with soft targets, which are of the whole doc.
    """
    constraints = targets.tags.constraints
    assert constraints.start is not None and constraints.end is not None
    path = targets.gold.tags
    # A doc can be cut before a token if a sequence may begin with its gold tag, and another end
    # with that of the token before. Neither is known where gold is missing, -1. Shapes: (N,)
    may_begin = constraints.start[path] & (path >= 0)
    may_end = constraints.end[path] & (path >= 0)
    is_separable = may_begin & numpy.roll(may_end, 1)  # `roll`: at the token before

    cuts: list[list[int]] = []
    end = 0
    for eg in examples:
        begin = end
        end = begin + len(eg.predicted)
        n_tokens = end - begin
        if n_tokens <= most_words or is_taught(eg):
            cuts.append([])
            continue
        may_cut = is_separable[begin:end]
        starts = sentence_starts(eg)
        if starts.any():
            may_cut = may_cut & starts
        places = numpy.flatnonzero(may_cut)
        cuts.append(_choose_cuts(places, n_tokens, most_words))
    return cuts


def cut_at_borders(examples: Sequence[Example], targets: Targets) -> list[list[int]]:
    """Find where targets cut docs into sequences, so that each sequence becomes a piece. Docs with
    soft targets are one piece, whose sequences `PieceStore.read` makes.

    examples (Sequence[Example]): The examples.
    targets (Targets): Their targets.
    RETURNS (list[list[int]]): For each doc the first tokens of all its sequences but the first,
        counted in the doc.
    """
    sequence_begins = numpy.cumsum(targets.lengths) - targets.lengths  # in tokens, over the batch
    cuts: list[list[int]] = []
    end = 0
    for eg in examples:
        begin = end
        end = begin + len(eg.predicted)
        if is_taught(eg):
            cuts.append([])
        else:
            is_in_doc = (begin < sequence_begins) & (sequence_begins < end)
            cuts.append((sequence_begins[is_in_doc] - begin).tolist())
    return cuts


def _choose_cuts(places: Ints1d, n_tokens: int, most_words: int) -> list[int]:
    """Choose before which tokens to cut a doc, so that its pieces are as long as allowed. `places`
    has the tokens before which it can be cut, (P,) in ascending order. A piece is too long where
    the next place is too far away."""
    cuts: list[int] = []
    piece_begin = 0
    while n_tokens - piece_begin > most_words:
        later_places = places[places > piece_begin]
        if not len(later_places):
            break
        # The last place that the piece may reach or, if there is none, the next one.
        next_cut = later_places[0]
        places_in_reach = later_places[later_places <= piece_begin + most_words]
        if len(places_in_reach):
            next_cut = places_in_reach[-1]
        piece_begin = int(next_cut)
        cuts.append(piece_begin)
    return cuts


def join(pieces: Sequence[Piece]) -> Batch:
    """Join pieces of one store, at least one, into a batch of training. Its features and targets
    are read each time that it is used, to save memory. With soft targets, which take long to read,
    it is read once and kept."""
    store = pieces[0].store
    numbers = numpy.asarray([piece.number for piece in pieces])
    examples = [piece.example for piece in pieces if piece.example is not None]
    if any(is_taught(eg) for eg in examples):
        features_and_targets = store.read(numbers, examples)
        return Batch(len(pieces), lambda: features_and_targets)
    return Batch(len(pieces), partial(store.read, numbers))


class TokenStore:
    """What both segmentations share of the tokens of docs: their features, weights and possible
    tags. Of its features a token has its own values here, such as its word and its suffix. Those of
    its neighbours are added when a batch is made.

    features (Features): The features of the model.
    folder (Path | None): Where files are. None: all is in memory.
    """

    def __init__(self, features: Features, folder: Path | None = None) -> None:
        self.features = features
        self.folder = folder
        self.columns = Columns(folder)
        self.n_tokens = 0
        self.vectors: StaticVectors | None = None

    def add(self, batch: FeatureBatch, targets: Targets) -> int:
        """Add the tokens of docs: their own values, and what targets say of them. Returns the
        number of the first one among all tokens of the corpus."""
        first_token = self.n_tokens
        value_ids = cast(Ints2d, batch.value_ids)
        self.columns.write("value_ids", first_token, value_ids)
        self.vectors = batch.vectors  # the same for all docs in training: see `Lookup`
        self.columns.write("token_weights", first_token, targets.gold.token_weights)
        self.columns.write("possible", first_token, targets.constraints.emissions)
        self.n_tokens += len(value_ids)
        return first_token

    def gather(self, value_ids: Ints2d, lengths: Ints1d) -> FeatureBatch:
        """The features of the tokens of some sequences, from the ids of their own values, (N, C),
        and the lengths of the sequences, (B,). A token sees the values of its neighbours in its
        sequence."""
        rows = self.features.gather(value_ids, lengths)
        batch = FeatureBatch(rows, lengths, vectors=self.vectors)
        if self.vectors is None:
            return batch
        return self.features.add_vectors(batch, value_ids, lengths)


class PieceStore:
    """The pieces of docs in one segmentation, and the gold of their tokens.

    tokens (TokenStore): What the tokens have in both segmentations.
    tags (Tags): The tags of the chain.
    """

    def __init__(self, tokens: TokenStore, tags: Tags) -> None:
        self.tokens = tokens
        self.tags = tags
        self.columns = Columns(tokens.folder)
        # Targets of any batch: fields that are the same in all of them, such as `Gold.opening`.
        self._template: Targets
        # Four numbers for each piece: its first token and the one after its last; the same of its
        # window, the tokens that its features come from.
        self._places = array("q")
        # The weight of the doc of each piece, NaN for none.
        self._weights = array("d")

    def add(
        self,
        examples: Sequence[Example],
        targets: Targets,
        cuts: Sequence[Sequence[int]],
        first_token: int,
    ) -> list[Piece]:
        """Add docs, and cut them into pieces.

        examples (Sequence[Example]): The examples.
        targets (Targets): Their targets in this segmentation.
        cuts (Sequence[Sequence[int]]): For each doc the first tokens of all its pieces but the
            first, counted in the doc.
        first_token (int): The number of the first token, as `TokenStore.add` returned it.
        RETURNS (list[Piece]): The pieces.
        """
        self._template = targets
        self.columns.write("tags", first_token, targets.gold.tags.astype("int64"))
        self.columns.write("allowed", first_token, targets.gold.allowed)

        pieces: list[Piece] = []
        doc_end = first_token
        for i, eg in enumerate(examples):
            doc_begin = doc_end
            doc_end = doc_begin + len(eg.predicted)
            doc = slice(doc_begin, doc_end)  # its tokens
            weight = numpy.nan
            if targets.gold.weights is not None:
                # All sequences of a doc have the weight of its first one.
                first_sequence = numpy.searchsorted(targets.doc_of, i)
                weight = targets.gold.weights[first_sequence]
            # Files are for a corpus that is too large for memory.
            kept_example = eg if self.tokens.folder is None else None
            for first, end in pairwise([0, *cuts[i], len(eg.predicted)]):
                number = self._add_piece(doc_begin + first, doc_begin + end, doc, weight)
                pieces.append(Piece(self, number, end - first, kept_example))
        return pieces

    def _add_piece(self, first: int, end: int, doc: slice, weight: float) -> int:
        """Add a piece of a doc: its tokens, from `first` to the one before `end`, those of the doc,
        and the weight of the doc. Returns the number of the piece."""
        reach = self.tokens.features.reach  # how far features look to either side
        window = [max(doc.start, first - reach), min(doc.stop, end + reach)]
        self._places.extend([first, end, *window])
        self._weights.append(weight)
        return len(self._weights) - 1

    def read(
        self, pieces: Ints1d, examples: Sequence[Example] = ()
    ) -> tuple[FeatureBatch, Targets]:
        """Make the features and targets of a batch of pieces.

        pieces (Ints1d): The numbers of the pieces. Shape: (B,)
        examples (Sequence[Example]): Their examples, if some have soft targets, which are not
            stored.
        RETURNS (tuple[FeatureBatch, Targets]): The features and the targets.
        """
        # The rows of these pieces, as `_add_piece` stores them. Shape: (B, 4)
        places = numpy.frombuffer(self._places, dtype="int64").reshape(-1, 4)[pieces]
        first, end, window_begin, window_end = places.T
        features, tokens = self._gather(first, end, window_begin, window_end)

        # The length of each sequence and its piece. A piece is one sequence, but a doc with soft
        # targets is as many as its teacher's chain had.
        lengths = (end - first).astype("int32")
        piece_of = numpy.arange(len(pieces))
        if examples:
            lengths, piece_of = cut_as_taught(examples, lengths, piece_of)

        weights = self._weights_of(pieces)
        possible = self._possible(tokens)
        gold = self._template.gold._replace(
            tags=self.columns["tags"][tokens],
            allowed=self._allowed(tokens),
            token_weights=self.tokens.columns.read("token_weights", tokens),
            weights=None if weights is None else weights[piece_of],
            features=features.rows,
        )
        constraints = self._template.constraints._replace(emissions=possible)
        targets = Targets(self.tags, gold, constraints, lengths, piece_of)

        if examples:
            soft, _ = read_soft_targets(
                examples, self.tags, constraints, lengths, piece_of, weights
            )
            targets = targets._replace(soft=soft)
        return features._replace(lengths=lengths), targets

    def _gather(
        self, first: Ints1d, end: Ints1d, window_begin: Ints1d, window_end: Ints1d
    ) -> tuple[FeatureBatch, Ints1d]:
        """Gather the features of pieces. Takes their places, (B,) each, as `_places` has them;
        returns the features, with the lengths of windows, and the numbers of their tokens in the
        corpus, (N,)."""
        # The tokens of all windows, one window after another.
        piece_of_token, tokens = ranges(window_begin, window_end)
        value_ids = cast(Ints2d, self.tokens.columns["value_ids"][tokens])
        window_lengths = (window_end - window_begin).astype("int32")
        features = self.tokens.gather(value_ids, window_lengths)

        # The other tokens of the windows were needed for the features alone.
        is_in_piece = (tokens >= first[piece_of_token]) & (tokens < end[piece_of_token])
        if is_in_piece.all():
            return features, tokens
        return features.select_tokens(is_in_piece), tokens[is_in_piece]

    def _allowed(self, tokens: Ints1d) -> Array2d | None:
        """The tags that agree with gold, (N, K); None if all gold is complete, so that the column
        "tags" says it all."""
        allowed = self.columns.read("allowed", tokens)
        if allowed is None or not allowed.any():
            return None
        # Docs with complete gold were added without a mask. Their rows are False throughout.
        is_complete = ~allowed.any(axis=1)
        gold_tags = self.columns["tags"][tokens[is_complete]]
        allowed[is_complete] = chain.to_mask(gold_tags, len(self.tags))
        return allowed

    def _possible(self, tokens: Ints1d) -> Array2d | None:
        """The possible tags, (N, K). None: all are."""
        possible = self.tokens.columns.read("possible", tokens)
        if possible is None or not possible.any():
            return None
        # Docs of which all tags are possible were added without a mask.
        possible[~possible.any(axis=1)] = True
        return possible

    def _weights_of(self, pieces: Ints1d) -> Floats1d | None:
        """The weights of pieces, (B,); None if none of their docs has one."""
        weights = numpy.frombuffer(self._weights)[pieces]
        if numpy.isnan(weights).all():
            return None
        # Docs without a weight count once.
        return numpy.nan_to_num(weights, nan=1.0)
