"""Pieces of docs: steps of about as many words, whatever a doc is.

The features of a piece are those of its tokens in the whole doc. For the chain it is a sequence.
"""

from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Callable,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    cast,
)

import numpy
from spacy.attrs import ORTH, SENT_START
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import Array1d

from ..ml import find_values
from ..progress import progress
from ..tags import Tags
from ..types import Gold
from .online import Batch, read_batches
from .soft_targets import is_taught
from .stored_tokens import StoredTokens

if TYPE_CHECKING:
    from ..pipeline.component import CostSensitiveNER

MOST_WORDS = 256
"""Docs with more words are cut. Chosen on development data: see docs/linear.md."""

N_DOCS = 256
"""Number of docs that are read together."""

SOFT = "soft targets, as `costner distill --soft` writes them"


class Piece:
    """A doc or a part of it, as batchers take it.

    store (StoredTokens): Where its features and targets are.
    number (int): Its number there.
    """

    __slots__ = ("_example", "_n_tokens", "number", "store")

    def __init__(
        self, store: StoredTokens, number: int, n_tokens: int, example: Optional[Example]
    ) -> None:
        self.store, self.number = store, number
        self._n_tokens, self._example = n_tokens, example

    def __len__(self) -> int:
        """The number of its tokens."""
        return self._n_tokens

    @property
    def example(self) -> Example:
        """The example that it is a piece of.

        RAISES (ValueError): If docs are not kept.
        """
        if self._example is None:
            raise ValueError(
                "fit: --cache: expected a training.batcher that needs the lengths of docs only, as "
                "docs are not kept, got one that looks at docs"
            )
        return self._example

    @property
    def predicted(self) -> Doc:
        """The whole predicted doc, for batchers with a `get_length`."""
        return self.example.predicted

    @property
    def reference(self) -> Doc:
        """The whole reference doc."""
        return self.example.reference


def batch_pieces(
    ner: "CostSensitiveNER",
    examples: Iterable[Example],
    batcher: Callable[[Iterable], Iterable[List]],
    shuffle: Callable[[List], None],
    cache: Optional[Path] = None,
) -> List[Batch]:
    """Cut long docs into pieces and make batches of them. Docs stay whole if there may be incorrect
    spans in them.

    ner (CostSensitiveNER): An initialized component with a linear model.
    examples (Iterable[Example]): The examples.
    batcher (Callable): Makes batches of things that have a length.
    shuffle (Callable): Shuffles a list in place.
    cache (Optional[Path]): See `read_pieces`.
    RETURNS (List[Batch]): The batches, as those of `read_batches`.
    """
    if ner.objective.incorrect_spans_key is not None:
        docs = list(examples)
        shuffle(docs)
        return read_batches(ner, batcher(docs))
    pieces = read_pieces(ner, examples, MOST_WORDS, cache)
    shuffle(pieces)
    return [join(batch, keeps_docs=cache is None) for batch in batcher(pieces)]


def read_pieces(
    ner: "CostSensitiveNER",
    examples: Iterable[Example],
    most_words: int,
    cache: Optional[Path] = None,
) -> List[Piece]:
    """Read docs, and cut those with more words than that: at the beginnings of sentences or, if
    the doc has none, of any tokens, and never within an entity. Docs with soft targets stay whole.

    ner (CostSensitiveNER): An initialized component with a linear model.
    examples (Iterable[Example]): The examples.
    most_words (int): The most tokens of a piece, if there is a place to cut.
    cache (Optional[Path]): A folder for the features and targets of tokens. Docs are not kept then.
        None: in memory.
    RETURNS (List[Piece]): The pieces of docs with tokens, in order.
    RAISES (ValueError): If there is a cache, and a doc has soft targets.
    """
    store, pieces = StoredTokens(ner, cache), []
    seen_docs = progress(examples, desc="features", unit="doc")
    for batch in minibatch((eg for eg in seen_docs if len(eg.predicted)), N_DOCS):
        if cache is not None and any(map(is_taught, batch)):
            raise ValueError(f"fit: --cache: expected docs without soft targets, got {SOFT}")
        values = find_values(ner.model, [eg.predicted for eg in batch], is_train=True)
        targets, end = ner.targets(batch), 0
        separable, weights = _separable(targets.gold, ner.chain_tags), targets.gold.weights
        for i, eg in enumerate(batch):
            begin, end = end, end + len(eg.predicted)
            places = separable[begin:end] & (not is_taught(eg))
            if end - begin > most_words:
                starts = sentence_starts(eg)
                places = places & starts if starts.any() else places
            doc = slice(store.n_tokens + begin, store.n_tokens + end)
            weight = None if weights is None else weights[i]
            for first, last in _cut(numpy.flatnonzero(places), end - begin, most_words):
                number = store.add_piece(doc.start + first, doc.start + last, doc, weight)
                pieces.append(Piece(store, number, last - first, None if cache else eg))
        store.add(values.values, targets)
    store.finish()
    return pieces


def sentence_starts(example: Example) -> Array1d:
    """True for the tokens of the predicted doc that begin a sentence, as the reference has it or,
    if its tokens are others, the predicted doc itself. Shape: (T,)"""
    docs = (example.reference, example.predicted)
    (words, known), (others, own) = (doc.to_array([ORTH, SENT_START]).T for doc in docs)
    starts = known if numpy.array_equal(words, others) else own
    return cast(Array1d, (starts == 1) & (numpy.arange(len(starts)) > 0))


def _separable(gold: Gold, tags: Tags) -> Array1d:
    """True for tokens before which the gold path may be cut: one sequence may end there, and
    another begin. Shape: (N,)"""
    paths, known = tags.constraints, gold.tags >= 0
    begins = known & cast(Array1d, paths.start)[gold.tags]
    ends = known & cast(Array1d, paths.end)[gold.tags]
    return cast(Array1d, begins & numpy.roll(ends, 1))


def _cut(places: Array1d, n_tokens: int, most_words: int) -> Iterator[Tuple[int, int]]:
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


def join(pieces: Sequence[Piece], *, keeps_docs: bool = True) -> Batch:
    """Join pieces into a batch. It is read when it is used; once, if there are soft targets.

    pieces (Sequence[Piece]): The pieces, at least one.
    keeps_docs (bool): Whether they know their docs.
    RETURNS (Batch): As those of `read_batches`.
    """
    store, numbers = pieces[0].store, numpy.asarray([piece.number for piece in pieces])
    if keeps_docs and any(is_taught(piece) for piece in pieces):
        return Batch.of(*store.read(numbers, pieces))
    return Batch(len(numbers), partial(store.read, numbers))
