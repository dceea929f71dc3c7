"""Pieces of docs: steps of about as many words, however long docs are.

The features of a piece are those of its tokens in the whole doc. For the chain it is a sequence.
Each token's own values and targets are stored once, in memory or in files. The features of a piece
are gathered when its batch is used.
"""

import io
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
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
from thinc.types import Array1d, Array2d, ArrayXd, Ints1d, Ints2d

from .. import chain
from ..features import FeatureBatch, Features
from ..ml import find_features, linear_part
from ..progress import progress
from ..ragged import ranges
from ..tags import Tags
from .objective import Objective
from .online import Batch, Turns, read_batches
from .soft_targets import is_taught, read_soft_targets, taught_lengths
from .targets import Targets

MOST_WORDS = 256
"""Docs with more words are cut. Chosen on development data: see docs/linear.md."""

N_DOCS = 256
"""Number of docs that are read together."""


@dataclass(slots=True)
class Piece:
    """A doc or a part of it, as batchers take it: it has a length."""

    store: "Store"
    number: int
    n_tokens: int
    kept: Example | None

    def __len__(self) -> int:
        return self.n_tokens

    def __getattr__(self, name: str) -> Any:
        """For batchers with a `get_length`, attributes are those of the example that it is of."""
        if self.kept is None:
            raise ValueError(
                "fit: --cache: expected a training.batcher that needs the lengths of docs only, as "
                "docs are not kept, got one that looks at docs"
            )
        return getattr(self.kept, name)


def batch_pieces(
    model: Model,
    objective: Objective,
    tags: Tags,
    examples: Iterable[Example],
    batcher: Callable[[Iterable], Iterable[list]],
    shuffle: Callable[[list], None],
    cache: Path | None = None,
) -> Turns:
    """Cut long docs into pieces and make batches of them: see `read_pieces`. Docs stay whole if
    there may be incorrect spans in them. `shuffle` shuffles a list in place."""
    if objective.incorrect_spans_key is not None:
        docs = list(examples)
        shuffle(docs)
        return read_batches(model, objective, tags, batcher(docs))
    turns = read_pieces(model, objective, tags, examples, cache=cache)
    for pieces in turns:
        shuffle(pieces)
    return [[join(batch) for batch in batcher(pieces)] for pieces in turns]


def read_pieces(
    model: Model,
    objective: Objective,
    tags: Tags,
    examples: Iterable[Example],
    *,
    most_words: int | None = None,
    cache: Path | None = None,
) -> list[list[Piece]]:
    """Read docs, and cut those with more words than `most_words`, by default `MOST_WORDS`: at the
    beginnings of sentences or, if the doc has none, of any tokens, and never within an entity. If
    docs have borders, another list has their sequences. Docs with soft targets stay whole.

    cache (Path | None): A folder for the features and targets of tokens. Docs are not kept then.
    RETURNS (list[list[Piece]]): The pieces of docs with tokens, in order, for each turn of epochs.
    RAISES (ValueError): If there is a cache, and a doc has soft targets.
    """
    most_words = most_words or MOST_WORDS
    store, has_borders = Store(linear_part(model)[0], tags, cache), False
    pieces: list[list[Piece]] = [[], []] if objective.sentence_boundaries else [[]]
    marks = cast(tuple[Array1d, Array1d], tags.constraints[2:])
    docs = progress(examples, desc="features", unit="doc")
    for batch in minibatch((eg for eg in docs if len(eg.predicted)), N_DOCS):
        if cache is not None and any(map(is_taught, batch)):
            raise ValueError(
                "fit: --cache: expected docs without soft targets, got soft targets, as `costner "
                "distill --soft` writes them"
            )
        seen = find_features(model, [eg.predicted for eg in batch], is_train=True)
        turns = objective.turns(batch, tags)
        has_borders = has_borders or len(turns) > 1
        turns = [turns[min(turn, len(turns) - 1)] for turn in range(len(pieces))]
        for turn, targets in enumerate(turns):
            path, weights = targets.gold.tags, targets.gold.weights
            may_begin, may_end = (mark[path] & (path >= 0) for mark in marks)
            separable = may_begin & numpy.roll(may_end, 1)  # one sequence may end, another begin
            ends, end = numpy.cumsum(targets.lengths), 0
            for i, eg in enumerate(batch):
                begin, end = end, end + len(eg.predicted)
                if turn and not is_taught(eg):
                    own = ends[(begin < ends) & (ends <= end)] - begin
                    cuts: Iterable[tuple[int, int]] = pairwise([0, *own.tolist()])
                else:
                    places = separable[begin:end] & (not is_taught(eg))
                    if end - begin > most_words:
                        starts = sentence_starts(eg)
                        places = places & starts if starts.any() else places
                    cuts = _cut(numpy.flatnonzero(places), end - begin, most_words)
                doc = slice(store.n_tokens + begin, store.n_tokens + end)
                weight = numpy.nan
                if weights is not None:
                    weight = weights[numpy.searchsorted(targets.doc_of, i)]
                for first, last in cuts:
                    number = store.add_piece(doc.start + first, doc.start + last, doc, weight, turn)
                    pieces[turn].append(Piece(store, number, last - first, None if cache else eg))
        store.add(cast(Ints2d, seen.value_ids), turns)
    store.finish()
    return pieces if has_borders else pieces[:1]


def sentence_starts(example: Example) -> Array1d:
    """True for the tokens of the predicted doc that begin a sentence, (T,), as the reference has it
    or, if its tokens are others, the predicted doc itself."""
    docs = (example.reference, example.predicted)
    (words, known), (others, own) = (doc.to_array([ORTH, SENT_START]).T for doc in docs)
    starts = known if numpy.array_equal(words, others) else own
    return cast(Array1d, (starts == 1) & (numpy.arange(len(starts)) > 0))


def _cut(places: Array1d, n_tokens: int, most_words: int) -> Iterator[tuple[int, int]]:
    """Cut a sequence at some places into parts that are as long as allowed."""
    begin = 0
    while n_tokens - begin > most_words:
        later = places[places > begin]
        if not len(later):
            break
        within = later[later <= begin + most_words]
        cut = int(within[-1] if len(within) else later[0])
        yield begin, cut
        begin = cut
    yield begin, n_tokens


def join(pieces: Sequence[Piece]) -> Batch:
    """Join pieces of one turn, at least one, into a batch. It is read when it is used; once, if
    there are soft targets."""
    store, numbers = pieces[0].store, numpy.asarray([piece.number for piece in pieces])
    examples = [piece.kept for piece in pieces if piece.kept is not None]
    if any(map(is_taught, examples)):
        batch = store.read(numbers, examples)
        return len(numbers), lambda: batch
    return len(numbers), partial(store.read, numbers)


class Store:
    """The features and targets of the tokens of docs, as columns of numbers.

    Features are the values of a token's own columns, from which its slots are gathered when a batch
    is made. Masks of tags have rows only where a batch of docs needs them. The folder is for files;
    None: in memory.
    """

    def __init__(self, features: Features, tags: Tags, folder: Path | None = None) -> None:
        self.features, self.tags, self.folder = features, tags, folder
        self.n_tokens = 0
        self._columns: dict[str, Column] = {}
        self._common: Targets
        self._places, self._weights = array("q"), array("d")
        self._rows: dict[str, ArrayXd] = {}

    def add(self, values: Ints2d, turns: Sequence[Targets]) -> None:
        """Add docs: the values of their tokens, (N, C), and their targets in each turn."""
        rows: dict[str, ArrayXd | None] = {
            "values": values,
            "token_weights": turns[0].gold.token_weights,
            "possible": turns[0].constraints.emissions,
        }
        for i, targets in enumerate(turns):
            rows[f"tags{i}"] = targets.gold.tags.astype("int64")
            rows[f"allowed{i}"] = targets.gold.allowed
        for name, part in rows.items():
            if part is not None:
                if name not in self._columns:
                    self._columns[name] = Column(self.folder, part)
                self._columns[name].write(self.n_tokens, part)
        self.n_tokens += len(values)
        self._common = turns[0]

    def add_piece(self, first: int, end: int, doc: slice, weight: float, turn: int) -> int:
        """Add the piece from token `first` to `end` of a doc, with the weight of the doc, NaN for
        none, for a turn of epochs. Returns its number."""
        reach = self.features.reach
        window = [max(doc.start, first - reach), min(doc.stop, end + reach)]
        self._places.extend([first, end, *window, turn])
        self._weights.append(weight)
        return len(self._weights) - 1

    def finish(self) -> None:
        """End what is added, before the first batch is read."""
        for column in self._columns.values():
            column.write(self.n_tokens, numpy.zeros((1, *column.shape)))
        self._rows = {name: column.read() for name, column in self._columns.items()}

    def read(
        self, pieces: Ints1d, examples: Sequence[Example] = ()
    ) -> tuple[FeatureBatch, Targets]:
        """Make a batch of pieces of one turn, (B,), by their numbers. Their examples are needed if
        some have soft targets."""
        places = numpy.frombuffer(self._places, dtype="int64").reshape(-1, 5)[pieces]
        first, end, begin, stop, (turn, *_) = places.T
        of, tokens = ranges(begin, stop)
        values = cast(Ints2d, self._rows["values"][tokens])
        rows = self.features.gather(values, (stop - begin).astype("int32"))
        inside = (tokens >= first[of]) & (tokens < end[of])
        if not inside.all():
            rows, tokens = rows[inside], tokens[inside]
        lengths, piece_of = (end - first).astype("int32"), numpy.arange(len(pieces))
        if examples:
            own = [taught_lengths(eg) for eg in examples]
            cuts = [[n] if of is None else of for n, of in zip(lengths.tolist(), own)]
            lengths = numpy.concatenate(cuts).astype("int32")
            piece_of = numpy.repeat(piece_of, [*map(len, cuts)])

        tags = self._rows[f"tags{turn}"][tokens]
        allowed, possible = self._mask(f"allowed{turn}", tokens), self._mask("possible", tokens)
        if allowed is not None:
            is_known = ~allowed.any(axis=1)
            allowed[is_known] = chain.to_mask(tags[is_known], len(self.tags))
        if possible is not None:
            possible[~possible.any(axis=1)] = True
        token_weights = self._rows.get("token_weights")
        weights = numpy.frombuffer(self._weights)[pieces]
        of_pieces = None if numpy.isnan(weights).all() else numpy.nan_to_num(weights, nan=1.0)
        gold = self._common.gold._replace(
            tags=tags,
            allowed=allowed,
            token_weights=None if token_weights is None else token_weights[tokens],
            weights=None if of_pieces is None else of_pieces[piece_of],
            features=rows,
        )
        constraints = self._common.constraints._replace(emissions=possible)
        targets = Targets(self.tags, gold, constraints, lengths, piece_of)
        if examples:
            known = (self.tags, constraints, lengths, piece_of, of_pieces)
            targets = targets._replace(soft=read_soft_targets(examples, *known))
        return FeatureBatch(rows, lengths), targets

    def _mask(self, name: str, tokens: Ints1d) -> Array2d | None:
        """The mask of tokens, False throughout where there is none. None: nowhere is one."""
        mask = self._rows[name][tokens] if name in self._rows else None
        return mask if mask is not None and mask.any() else None


class Column:
    """Rows of numbers, written from any place on. Rows that are not written are 0."""

    def __init__(self, folder: Path | None, like: ArrayXd) -> None:
        """Begin without rows, of the type and the width of others. Their file in the folder has no
        name and ends with the process. None: in memory."""
        self.folder, self.dtype, self.shape = folder, like.dtype, like.shape[1:]
        self.file: Any = io.BytesIO()
        if folder is not None:
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open while it is used)

    def write(self, first: int, rows: ArrayXd) -> None:
        """Write rows from a place on. Raises an OSError if the disk is full."""
        try:
            self.file.seek(first * self.dtype.itemsize * int(numpy.prod(self.shape)))
            self.file.write(numpy.ascontiguousarray(rows, dtype=self.dtype).data)
        except OSError as error:
            raise OSError(f"fit: --cache: {self.folder}: {error}") from error

    def read(self) -> ArrayXd:
        """All rows. Nothing can be written afterwards."""
        self.file.flush()
        if isinstance(self.file, io.BytesIO):
            rows = numpy.frombuffer(self.file.getbuffer(), dtype=self.dtype)
        else:
            rows = numpy.asarray(numpy.memmap(self.file, dtype=self.dtype, mode="r"))
        return rows.reshape(-1, *self.shape)

    def __del__(self) -> None:
        with suppress(OSError, BufferError):  # of a full disk; of memory that is still in use
            self.file.close()
