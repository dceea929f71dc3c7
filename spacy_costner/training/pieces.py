"""Pieces of docs: steps of about as many words, however long docs are.

The features of a piece are those of its tokens in the whole doc. For the chain it is a sequence.
Each token's own values and targets are stored once, in memory or in files. The features of a piece
are gathered when its batch is used.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy
from spacy.attrs import ORTH, SENT_START
from spacy.training import Example
from spacy.util import minibatch
from thinc.api import Model
from thinc.types import Array1d, Array2d, Floats1d, Ints1d, Ints2d

from .. import chain
from ..features import FeatureBatch, Features, StaticVectors
from ..ml import find_features, linear_part
from ..progress import progress
from ..ragged import ranges
from ..tags import Tags
from .columns import Columns
from .objective import Objective
from .online import Batch, Batches, read_batches
from .segmentations import Segmentations
from .soft_targets import is_taught, read_soft_targets, taught_lengths
from .targets import Targets

MOST_WORDS = 256
"""Docs with more words are cut. Chosen on development data: see docs/linear.md."""

N_DOCS = 256
"""Number of docs that are read together."""


@dataclass(slots=True)
class Piece:
    """A doc or a part of it, as batchers take it: it has a length.

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
        """For batchers with a `get_length`, attributes are those of the example."""
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
    """Cut long docs into pieces and make batches of them: see `read_pieces`. Docs stay whole if
    there may be incorrect spans in them.

    batcher (Callable): Divides pieces, or examples, into batches.
    shuffle (Callable): Shuffles a list in place.
    RETURNS (Batches): The batches for both segmentations.
    """
    if objective.annotation.incorrect_spans_key is not None:
        docs = list(examples)
        shuffle(docs)
        return read_batches(model, objective, tags, batcher(docs))

    def make_batches(pieces: list[Piece]) -> list[Batch]:
        shuffle(pieces)
        return [join(batch) for batch in batcher(pieces)]

    return read_pieces(model, objective, tags, examples, cache=cache).map(make_batches)


def read_pieces(
    model: Model,
    objective: Objective,
    tags: Tags,
    examples: Iterable[Example],
    *,
    most_words: int | None = None,
    cache: Path | None = None,
) -> Segmentations[list[Piece]]:
    """Read docs, and cut those with more words than `most_words`, by default `MOST_WORDS`: at the
    beginnings of sentences or, if the doc has none, of any tokens, and never within an entity.
    Where docs are cut at their borders, pieces are their sequences. Docs with soft targets stay
    whole.

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
    for batch in minibatch((eg for eg in bar if len(eg.predicted)), N_DOCS):
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
            # Other docs of the corpus may have borders, even if these have none.
            cuts = cut_at_borders(batch, targets.finest)
            by_sequence += sequence_store.add(batch, targets.finest, cuts, first_token)
        has_borders = has_borders or targets.by_sequence is not None
    for columns in (token_store.columns, doc_store.columns, sequence_store.columns):
        columns.finish(token_store.n_tokens)
    return Segmentations(by_doc, by_sequence if has_borders else None)


def cut_long_docs(
    examples: Sequence[Example], targets: Targets, most_words: int
) -> list[list[int]]:
    """Where to cut docs with more than so many words: the first tokens of all pieces of a doc but
    the first, counted in the doc."""
    constraints = targets.tags.constraints
    assert constraints.start is not None and constraints.end is not None
    path = targets.gold.tags
    # A sequence may end at one token, and another begin at the next one. Shape: (N,)
    may_begin = constraints.start[path] & (path >= 0)
    may_end = constraints.end[path] & (path >= 0)
    is_separable = may_begin & numpy.roll(may_end, 1)
    cuts: list[list[int]] = []
    end = 0
    for eg in examples:
        begin = end
        end = begin + len(eg.predicted)
        if end - begin <= most_words or is_taught(eg):
            cuts.append([])
            continue
        may_cut = is_separable[begin:end]
        starts = sentence_starts(eg)
        if starts.any():
            may_cut = may_cut & starts
        cuts.append(_choose_cuts(numpy.flatnonzero(may_cut), end - begin, most_words))
    return cuts


def cut_at_borders(examples: Sequence[Example], targets: Targets) -> list[list[int]]:
    """The first tokens of all sequences of a doc but the first, counted in the doc. Docs with soft
    targets stay whole."""
    sequence_begins = numpy.cumsum(targets.lengths) - targets.lengths
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


def sentence_starts(example: Example) -> Array1d:
    """True for the tokens of the predicted doc that begin a sentence, but for its first, as the
    reference has it or, if its tokens are others, the predicted doc itself. Shape: (T,)"""
    words, starts = example.predicted.to_array([ORTH, SENT_START]).T
    reference_words, reference_starts = example.reference.to_array([ORTH, SENT_START]).T
    if numpy.array_equal(words, reference_words):
        starts = reference_starts
    is_start = starts == 1
    is_start[:1] = False
    return cast(Array1d, is_start)


def _choose_cuts(places: Ints1d, n_tokens: int, most_words: int) -> list[int]:
    """Choose the places at which to cut a doc, (P,), so that its pieces are as long as allowed. A
    piece is longer where the next place is too far away."""
    cuts: list[int] = []
    begin = 0
    while n_tokens - begin > most_words:
        later = places[places > begin]
        if not len(later):
            break
        within_reach = later[later <= begin + most_words]
        begin = int(within_reach[-1] if len(within_reach) else later[0])
        cuts.append(begin)
    return cuts


def join(pieces: Sequence[Piece]) -> Batch:
    """Join pieces of one store, at least one, into a batch. It is read when it is used; once, if
    there are soft targets."""
    store = pieces[0].store
    numbers = numpy.asarray([piece.number for piece in pieces])
    examples = [piece.example for piece in pieces if piece.example is not None]
    if any(is_taught(eg) for eg in examples):
        features_and_targets = store.read(numbers, examples)
        return Batch(len(pieces), lambda: features_and_targets)
    return Batch(len(pieces), partial(store.read, numbers))


class TokenStore:
    """What both segmentations share of the tokens of docs: their features, weights and possible
    tags. Features are the values of a token's own columns, from which its slots are gathered when a
    batch is made.

    features (Features): The features.
    folder (Path | None): For files. None: in memory.
    """

    def __init__(self, features: Features, folder: Path | None = None) -> None:
        self.features = features
        self.folder = folder
        self.columns = Columns(folder)
        self.n_tokens = 0
        self.vectors: StaticVectors | None = None

    def add(self, batch: FeatureBatch, targets: Targets) -> int:
        """Add docs: the values of their tokens, and their targets. Returns the number of their
        first token."""
        first_token = self.n_tokens
        values = cast(Ints2d, batch.value_ids)
        self.columns.write("values", first_token, values)
        self.vectors = batch.vectors  # the same for all docs in training: see `Lookup`
        self.columns.write("token_weights", first_token, targets.gold.token_weights)
        self.columns.write("possible", first_token, targets.constraints.emissions)
        self.n_tokens += len(values)
        return first_token

    def gather(self, values: Ints2d, lengths: Ints1d) -> FeatureBatch:
        """The features of tokens, from the values in their windows, (N, C), and the lengths of the
        sequences that these stand in, (B,)."""
        rows = self.features.gather(values, lengths)
        if self.vectors is None:
            return FeatureBatch(rows, lengths)
        vector_ids = self.features.gather_vectors(values, lengths)
        return FeatureBatch(rows, lengths, vectors=self.vectors, vector_ids=vector_ids)


class PieceStore:
    """The pieces of docs in one segmentation, and the gold of their tokens."""

    def __init__(self, tokens: TokenStore, tags: Tags) -> None:
        self.tokens = tokens
        self.tags = tags
        self.columns = Columns(tokens.folder)
        self._template: Targets
        # Of each piece the first token and the one after its last; the same of its window, the
        # tokens that its features come from; and the weight of its doc, NaN for none.
        self._places = array("q")
        self._weights = array("d")

    def add(
        self,
        examples: Sequence[Example],
        targets: Targets,
        cuts: Sequence[Sequence[int]],
        first_token: int,
    ) -> list[Piece]:
        """Add docs, whose first token has this number, cut at some tokens of each. Returns their
        pieces."""
        self._template = targets
        self.columns.write("tags", first_token, targets.gold.tags.astype("int64"))
        self.columns.write("allowed", first_token, targets.gold.allowed)
        pieces: list[Piece] = []
        begin = first_token
        for i, eg in enumerate(examples):
            doc = slice(begin, begin + len(eg.predicted))
            begin = doc.stop
            weight = numpy.nan
            if targets.gold.weights is not None:
                # All sequences of a doc have the weight of its first one.
                weight = targets.gold.weights[numpy.searchsorted(targets.doc_of, i)]
            kept_example = eg if self.tokens.folder is None else None
            for first, end in pairwise([0, *cuts[i], len(eg.predicted)]):
                number = self._add_piece(doc.start + first, doc.start + end, doc, weight)
                pieces.append(Piece(self, number, end - first, kept_example))
        return pieces

    def _add_piece(self, first: int, end: int, doc: slice, weight: float) -> int:
        """Add the piece from token `first` to `end` of a doc. Returns its number."""
        reach = self.tokens.features.reach
        window = [max(doc.start, first - reach), min(doc.stop, end + reach)]
        self._places.extend([first, end, *window])
        self._weights.append(weight)
        return len(self._weights) - 1

    def read(
        self, pieces: Ints1d, examples: Sequence[Example] = ()
    ) -> tuple[FeatureBatch, Targets]:
        """Make a batch of pieces, (B,), by their numbers. Their examples are needed if some have
        soft targets."""
        # Four numbers a piece, as `_add_piece` stores them. Shape: (B, 4)
        places = numpy.frombuffer(self._places, dtype="int64").reshape(-1, 4)[pieces]
        first, end, window_begin, window_end = places.T
        features, tokens = self._gather(first, end, window_begin, window_end)
        lengths = (end - first).astype("int32")
        piece_of = numpy.arange(len(pieces))
        if examples:
            lengths, piece_of = _cut_as_taught(examples, lengths)
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
            soft = read_soft_targets(examples, self.tags, constraints, lengths, piece_of, weights)
            targets = targets._replace(soft=soft)
        return features._replace(lengths=lengths), targets

    def _gather(
        self, first: Ints1d, end: Ints1d, window_begin: Ints1d, window_end: Ints1d
    ) -> tuple[FeatureBatch, Ints1d]:
        """The features of the tokens of pieces, and the numbers of these tokens, (N,), from the
        places of pieces, (B,) each. Lengths are those of the windows."""
        # The tokens of all windows, one window after another.
        piece_of_token, tokens = ranges(window_begin, window_end)
        values = cast(Ints2d, self.tokens.columns["values"][tokens])
        window_lengths = (window_end - window_begin).astype("int32")
        features = self.tokens.gather(values, window_lengths)
        # The other tokens of the windows were needed for the features alone.
        is_in_piece = (tokens >= first[piece_of_token]) & (tokens < end[piece_of_token])
        if is_in_piece.all():
            return features, tokens
        return features.select_tokens(is_in_piece), tokens[is_in_piece]

    def _allowed(self, tokens: Ints1d) -> Array2d | None:
        """The tags that agree with gold, (N, K). None: `tags` says it all."""
        allowed = self.columns.read("allowed", tokens)
        if allowed is None or not allowed.any():
            return None
        # Tokens of docs that were added without a mask.
        has_none = ~allowed.any(axis=1)
        allowed[has_none] = chain.to_mask(self.columns["tags"][tokens[has_none]], len(self.tags))
        return allowed

    def _possible(self, tokens: Ints1d) -> Array2d | None:
        """The possible tags, (N, K). None: all are."""
        possible = self.tokens.columns.read("possible", tokens)
        if possible is None or not possible.any():
            return None
        # Tokens of docs that were added without a mask.
        possible[~possible.any(axis=1)] = True
        return possible

    def _weights_of(self, pieces: Ints1d) -> Floats1d | None:
        """The weights of pieces, (B,), if their docs have some."""
        weights = numpy.frombuffer(self._weights)[pieces]
        if numpy.isnan(weights).all():
            return None
        # Of docs that were read with others that have no weights.
        return numpy.nan_to_num(weights, nan=1.0)


def _cut_as_taught(examples: Sequence[Example], lengths: Ints1d) -> tuple[Ints1d, Ints1d]:
    """Cut pieces with soft targets as their teacher did. Takes the lengths of the pieces, (D,), and
    returns the lengths of the sequences and the piece of each, (B,)."""
    cut_lengths: list[Ints1d] = []
    for i, eg in enumerate(examples):
        lengths_of_teacher = taught_lengths(eg)
        cut_lengths.append(lengths[i : i + 1] if lengths_of_teacher is None else lengths_of_teacher)
    n_sequences = [len(sequences) for sequences in cut_lengths]
    piece_of = numpy.repeat(numpy.arange(len(examples)), n_sequences)
    return numpy.concatenate(cut_lengths).astype("int32"), piece_of
