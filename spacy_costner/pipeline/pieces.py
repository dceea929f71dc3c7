"""Pieces of docs: steps of about as many words, whatever a doc is.

The features of a piece are those of its tokens in the whole doc. For the chain it is a sequence.
"""

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
from spacy.training import Example
from spacy.util import minibatch
from thinc.types import Array1d, Array2d

from .. import chain
from ..features import FeatureBatch
from ..progress import progress
from ..tags import Tags
from ..types import Gold
from .online import Batch, read_batches
from .soft_targets import is_taught, read_soft_targets
from .targets import Targets

if TYPE_CHECKING:
    from .component import CostSensitiveNER

MOST_WORDS = 256
"""Docs with more words are cut. Chosen on development data: see docs/linear.md."""

N_DOCS = 256
"""Number of docs that are read together."""

OF_TOKENS = ("tags", "allowed", "token_weights", "features")
"""The fields of `Gold` that have a row for each token. `cost` is not set yet."""


class Piece:
    """A doc or a part of it, as batchers take it.

    predicted, reference (Doc): The whole docs, for batchers with a `get_length`.
    seen (FeatureBatch), targets (Targets): Of this part, as a batch of one sequence.
    """

    def __init__(self, example: Example, seen: FeatureBatch, targets: Targets) -> None:
        self.predicted = example.predicted
        self.reference = example.reference
        self.seen = seen
        self.targets = targets

    def __len__(self) -> int:
        """The number of its tokens."""
        return len(self.seen.rows)


def batch_pieces(
    ner: "CostSensitiveNER",
    examples: Sequence[Example],
    batcher: Callable[[Iterable], Iterable[List]],
    shuffle: Callable[[List], None],
) -> List[Batch]:
    """Cut long docs into pieces and make batches of them. Docs stay whole if there may be incorrect
    spans in them.

    ner (CostSensitiveNER): An initialized component with a linear model.
    examples (Sequence[Example]): The examples.
    batcher (Callable): Makes batches of things that have a length.
    shuffle (Callable): Shuffles a list in place.
    RETURNS (List[Batch]): The batches, as those of `read_batches`.
    """
    if ner.objective.incorrect_spans_key is not None:
        docs = list(examples)
        shuffle(docs)
        return read_batches(ner, batcher(docs))
    pieces = list(read_pieces(ner, examples, MOST_WORDS))
    shuffle(pieces)
    return [join(batch, ner.chain_tags) for batch in batcher(pieces)]


def read_pieces(
    ner: "CostSensitiveNER", examples: Sequence[Example], most_words: int
) -> Iterator[Piece]:
    """Read docs, and cut those with more words than that: at the beginnings of sentences or, if
    the doc has none, of any tokens, and never within an entity. Docs with soft targets stay whole.

    ner (CostSensitiveNER): An initialized component with a linear model.
    examples (Sequence[Example]): The examples.
    most_words (int): The most tokens of a piece, if there is a place to cut.
    YIELDS (Piece): The pieces of docs with tokens, in order.
    """
    seen_docs = progress(examples, desc="features", unit="doc")
    for batch in minibatch((eg for eg in seen_docs if len(eg.predicted)), N_DOCS):
        ((seen, targets),) = read_batches(ner, [batch])
        separable = _separable(targets.gold, ner.chain_tags)
        end = 0
        for i, eg in enumerate(batch):
            begin, end = end, end + len(eg.predicted)
            places = separable[begin:end] & (not is_taught(eg))
            if end - begin > most_words:
                starts = sentence_starts(eg)
                places = places & starts if starts.any() else places
            for first, last in _cut(numpy.flatnonzero(places), end - begin, most_words):
                yield Piece(eg, *_part(seen, targets, i, slice(begin + first, begin + last)))


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


def _part(
    seen: FeatureBatch, targets: Targets, i: int, tokens: slice
) -> Tuple[FeatureBatch, Targets]:
    """The tokens of a doc, as a batch of one sequence."""
    gold, possible = targets.gold, targets.constraints.emissions
    lengths = numpy.asarray([tokens.stop - tokens.start], dtype="int32")
    of_tokens = {
        name: getattr(gold, name)[tokens] for name in OF_TOKENS if getattr(gold, name) is not None
    }
    weights = None if gold.weights is None else gold.weights[i : i + 1]
    constraints = targets.constraints._replace(
        emissions=None if possible is None else possible[tokens]
    )
    part = targets._replace(
        gold=gold._replace(weights=weights, **of_tokens),
        constraints=constraints,
        lengths=lengths,
        soft=None,
    )
    return FeatureBatch(seen.rows[tokens], lengths), part


def join(pieces: Sequence[Piece], tags: Tags) -> Batch:
    """Join pieces into a batch.

    pieces (Sequence[Piece]): The pieces, at least one.
    tags (Tags): The tags of the chain.
    RETURNS (Batch): As those of `read_batches`.
    """
    n_tags = len(tags)
    parts = [piece.targets for piece in pieces]
    first = parts[0].gold
    fields = {
        name: numpy.concatenate([getattr(part.gold, name) for part in parts])
        for name in ("tags", "token_weights", "features")
        if getattr(first, name) is not None
    }
    if any(part.gold.weights is not None for part in parts):
        own = [numpy.ones(1) if p.gold.weights is None else p.gold.weights for p in parts]
        fields["weights"] = numpy.concatenate(own)
    if any(part.gold.allowed is not None for part in parts):
        masks = [chain.to_mask(part.gold.paths, n_tags) for part in parts]
        fields["allowed"] = numpy.concatenate(masks)
    lengths = numpy.concatenate([part.lengths for part in parts])
    rows = numpy.concatenate([piece.seen.rows for piece in pieces])
    constraints = parts[0].constraints._replace(emissions=_possible(parts, n_tags))
    soft = read_soft_targets(pieces, tags, constraints, lengths, fields.get("weights"))
    targets = parts[0]._replace(
        gold=first._replace(**fields), constraints=constraints, lengths=lengths, soft=soft
    )
    return FeatureBatch(rows, lengths), targets


def _possible(parts: Sequence[Targets], n_tags: int) -> Optional[Array2d]:
    """The tags that are possible at each token; None if all are. Shape: (N, K)"""
    masks = [part.constraints.emissions for part in parts]
    if all(mask is None for mask in masks):
        return None
    every = [
        numpy.ones((len(part.gold.tags), n_tags), dtype=bool) if mask is None else mask
        for part, mask in zip(parts, masks)
    ]
    return cast(Array2d, numpy.concatenate(every))
