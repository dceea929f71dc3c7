"""From spaCy's docs to what the chain may do and what is right.

Docs are read into arrays once a batch; nothing here runs once a token in Python, except
where the tokens of gold and of the prediction differ.
"""

from dataclasses import dataclass, field
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE, IS_SPACE, ORTH, SENT_START
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Array1d, Array2d, Floats1d, Floats2d, Ints1d

from ..tags import OUTSIDE as OUTSIDE_TAG
from ..tags import Entities, Tags, runs
from ..types import CostTable
from ..validation import check_cost
from .incorrect_spans import IncorrectSpan

MISSING, INSIDE, OUTSIDE, BEGIN = range(4)
"""The values of spaCy's ENT_IOB. BEGIN without a type is a blocked token."""

NEGATED = "!"
"""What spaCy 2 put in front of the label of a span that is no entity. spaCy 3 refuses it."""


class Tokens(NamedTuple):
    """The tokens of a batch of docs.

    orth (Ints1d): Hash of the word. Shape: (N,)
    iob (Ints1d): ENT_IOB, as above. Shape: (N,)
    label (Ints1d): Hash of the entity label, 0 for none. Shape: (N,)
    is_space (Array1d): True for white space. Shape: (N,)
    sent_start (Array1d): True for the first token of any sentence but the first of its
        doc. Shape: (N,)
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    """

    orth: Ints1d
    iob: Ints1d
    label: Ints1d
    is_space: Array1d
    sent_start: Array1d
    lengths: Ints1d

    def of_doc(self, i: int) -> slice:
        """Where the tokens of a doc stand."""
        end = int(self.lengths[: i + 1].sum())
        return slice(end - int(self.lengths[i]), end)


def read_docs(docs: Sequence[Doc]) -> Tokens:
    """Read the tokens of a batch.

    docs (Sequence[Doc]): The docs.
    RETURNS (Tokens): Their tokens.
    """
    attrs = [ORTH, ENT_IOB, ENT_TYPE, IS_SPACE, SENT_START]
    arrays = [doc.to_array(attrs) for doc in docs]
    columns = numpy.concatenate([numpy.zeros((0, len(attrs)), dtype="uint64"), *arrays]).T
    lengths = numpy.asarray([len(doc) for doc in docs], dtype="int32")
    sent_start = columns[4] == 1
    sent_start[(numpy.cumsum(lengths) - lengths)[lengths > 0]] = False
    return Tokens(
        orth=columns[0],
        iob=columns[1].astype("int32"),
        label=columns[2],
        is_space=columns[3] == 1,
        sent_start=sent_start,
        lengths=lengths,
    )


def read_presets(docs: Sequence[Doc]) -> Tokens:
    """Read the tokens of docs that are to be predicted. Whoever sets `doc.ents`, as an entity
    ruler does, makes O of all other tokens and means nothing by it. So O is only taken as
    preset in docs that have missing tokens too, those where it was chosen.

    docs (Sequence[Doc]): The docs.
    RETURNS (Tokens): Their tokens; missing where nothing is preset.
    """
    tokens = read_docs(docs)
    of_doc = numpy.repeat(numpy.arange(len(tokens.lengths)), tokens.lengths)
    n_missing = numpy.bincount(of_doc, tokens.iob == MISSING, len(tokens.lengths))
    by_the_way = (tokens.iob == OUTSIDE) & (n_missing == 0)[of_doc]
    return tokens._replace(iob=numpy.where(by_the_way, MISSING, tokens.iob))


def read_reference(examples: Sequence[Example], predicted: Tokens) -> Tokens:
    """Read gold, token by token of the prediction.

    examples (Sequence[Example]): The examples.
    predicted (Tokens): The tokens of their predicted docs.
    RETURNS (Tokens): The same tokens with the entities of the reference. Tokens that
        can't be aligned, or whose entity can't, are missing.
    """
    reference = read_docs([eg.reference for eg in examples])
    if numpy.array_equal(reference.orth, predicted.orth) and numpy.array_equal(
        reference.lengths, predicted.lengths
    ):
        return predicted._replace(iob=reference.iob, label=reference.label)
    iob, label = numpy.zeros_like(predicted.iob), numpy.zeros_like(predicted.label)
    for i, eg in enumerate(examples):
        here, there = predicted.of_doc(i), reference.of_doc(i)
        if numpy.array_equal(predicted.orth[here], reference.orth[there]):
            iob[here], label[here] = reference.iob[there], reference.label[there]
        else:
            iob[here], label[here] = _align(eg)
    return predicted._replace(iob=iob, label=label)


def _align(eg: Example) -> Tuple[Ints1d, Ints1d]:
    outside = [iob == OUTSIDE for iob in eg.get_aligned("ENT_IOB")]
    iob = numpy.where(outside, OUTSIDE, MISSING)
    label = numpy.zeros(len(iob), dtype="uint64")
    for span in eg.get_aligned_spans_y2x(eg.reference.ents):
        iob[span.start : span.end] = INSIDE
        iob[span.start] = BEGIN
        label[span.start : span.end] = span.label
    return iob, label


class Annotation(NamedTuple):
    """Entities, and where it is known that there are none.

    entities (Entities): The entities. Label -1 is one that the tag set doesn't have.
    known (Array1d): True for the tokens that are annotated. Shape: (N,)
    """

    entities: Entities
    known: Array1d


def annotation(tokens: Tokens, tags: Tags, strings: StringStore) -> Annotation:
    """Find the entities of a batch.

    tokens (Tokens): The tokens, with entities.
    tags (Tags): The tag set.
    strings (StringStore): What the hashes of the labels mean.
    RETURNS (Annotation): The entities and the annotated tokens.
    """
    opening = (tokens.iob == BEGIN) & (tokens.label != 0)
    begin, end = runs(opening, tokens.iob == INSIDE, tokens.lengths)
    known = {strings.as_int(label): i for i, label in enumerate(tags.labels)}
    label = [known.get(int(hash_), -1) for hash_ in tokens.label[begin]]
    entities = Entities(begin, end, numpy.asarray(label, dtype="int32"))
    return Annotation(entities, tokens.iob != MISSING)


@dataclass(frozen=True)
class Weights:
    """How much single tokens and whole examples count in training.

    labels (Mapping[str, float]): Of the tokens of a gold entity of each label; "O" stands
        for tokens outside. 1 for labels not named.
    boundary (float): Of the first and the last token of a gold entity, on top.
    token (Optional[str]): Extension attribute of the reference's tokens to multiply by.
    example (Optional[str]): Extension attribute of the reference doc to multiply by.
    """

    labels: Mapping[str, float] = field(default_factory=dict)
    boundary: float = 1.0
    token: Optional[str] = None
    example: Optional[str] = None

    @property
    def weighs_tokens(self) -> bool:
        return bool(self.labels) or self.boundary != 1 or self.token is not None


def make_weights(
    *,
    labels: Optional[Mapping[str, float]] = None,
    boundary: float = 1.0,
    token: Optional[str] = None,
    example: Optional[str] = None,
) -> Weights:
    """Build weights: see `Weights`.

    RAISES (ValueError): If a weight is negative or not finite.
    """
    where = "spacy_costner.Weights"
    checked = {
        label: check_cost(weight, f"{where}: labels.{label}")
        for label, weight in (labels or {}).items()
    }
    return Weights(checked, check_cost(boundary, f"{where}: boundary"), token, example)


def token_weights(
    weights: Weights, annotated: Annotation, tags: Tags, examples: Sequence[Example], tokens: Tokens
) -> Optional[Floats1d]:
    """How much each token counts.

    weights (Weights): What the config says.
    annotated (Annotation): Gold entities.
    tags (Tags): The tag set.
    examples (Sequence[Example]): The examples, for weights of their own.
    tokens (Tokens): The tokens of their predicted docs.
    RETURNS (Optional[Floats1d]): None if all count 1. Shape: (N,)
    """
    if not weights.weighs_tokens:
        return None
    begin, end, label = annotated.entities
    by_label = [weights.labels.get(name, 1.0) for name in (*tags.labels, OUTSIDE_TAG)]
    label_of = numpy.full(len(tokens.iob), -1)
    label_of[numpy.concatenate([numpy.arange(b, e) for b, e in zip(begin, end)] or [begin])] = (
        numpy.repeat(label, end - begin)
    )
    values = numpy.asarray(by_label, dtype="float32")[label_of]
    values[numpy.unique(numpy.concatenate([begin, end - 1]))] *= weights.boundary
    if weights.token is not None:
        own = [_own_weights(eg, weights.token) for eg in examples]
        values *= numpy.concatenate([numpy.zeros(0, dtype="float32"), *own])
    return values


def _own_weights(eg: Example, attribute: str) -> Floats1d:
    """The weights that the tokens of an example have themselves; 1 where not aligned."""
    weights = numpy.asarray([token._.get(attribute) for token in eg.reference], dtype="float32")
    aligned = eg.alignment.x2y
    return numpy.asarray(
        [
            weights[aligned[i][0]] if aligned.lengths[i] == 1 else 1.0
            for i in range(len(eg.predicted))
        ],
        dtype="float32",
    )


def example_weights(weights: Weights, examples: Sequence[Example]) -> Optional[Floats1d]:
    """How much each example counts; None if all count 1. Shape: (B,)"""
    if weights.example is None:
        return None
    return numpy.asarray([eg.reference._.get(weights.example) for eg in examples], dtype="float64")


def read_incorrect_spans(
    examples: Sequence[Example], key: str, tags: Tags, tokens: Tokens
) -> List[IncorrectSpan]:
    """The spans that are known not to be entities.

    examples (Sequence[Example]): The examples.
    key (str): Where their reference docs have them in `doc.spans`. A span without a
        label is an entity of no label at all.
    tags (Tags): The tag set.
    tokens (Tokens): The tokens of their predicted docs.
    RETURNS (List[IncorrectSpan]): The spans, one a label.
    """
    found = []
    for i, eg in enumerate(examples):
        spans = list(eg.reference.spans.get(key, ()))
        start = tokens.of_doc(i).start
        for span in eg.get_aligned_spans_y2x(spans, allow_overlap=True) if spans else ():
            labels = [span.label_] if span.label_ else tags.labels
            found += [
                IncorrectSpan(i, start + span.start, start + span.end, tags.labels.index(label))
                for label in labels
                if label in tags.labels
            ]
    return found


def trim(entities: Entities, is_space: Array1d) -> Entities:
    """Take white space off both ends of entities, and drop those that are nothing else.

    entities (Entities): The entities.
    is_space (Array1d): True for white space. Shape: (N,)
    RETURNS (Entities): The entities that are left.
    """
    if not is_space.any():
        return entities
    begin, end, label = entities
    words = numpy.append(numpy.flatnonzero(~is_space), len(is_space))
    first = words[numpy.searchsorted(words, begin)]
    last = words[numpy.searchsorted(words, end) - 1]
    keep = first < end
    return Entities(first[keep], last[keep] + 1, label[keep])


def gold_tags(annotated: Annotation, tags: Tags) -> Ints1d:
    """The gold tags of a batch.

    annotated (Annotation): Entities and annotated tokens.
    tags (Tags): The tag set. Entities of other labels are O.
    RETURNS (Ints1d): The tag of each token, -1 where it is missing. Shape: (N,)
    """
    begin, end, label = annotated.entities
    ours = label >= 0
    entities = Entities(begin[ours], end[ours], label[ours])
    path = tags.encode(entities, len(annotated.known))
    return numpy.where(annotated.known, path, -1)


def possible_tags(
    tokens: Tokens, tags: Tags, strings: StringStore, *, sentence_boundaries: bool
) -> Optional[Array2d]:
    """What the docs themselves rule out: tags that contradict preset annotation, that
    begin or end an entity in white space or, if asked for, that lead one across the
    beginning of a sentence. Presets come first.

    tokens (Tokens): The tokens of the docs.
    tags (Tags): The tag set.
    strings (StringStore): What the hashes of the labels mean.
    sentence_boundaries (bool): Whether entities end where sentences do.
    RETURNS (Optional[Array2d]): True where a token may have a tag; None if any may have
        any. Shape: (N, K)
    """
    crossing = tokens.sent_start & sentence_boundaries
    preset = tokens.iob != MISSING
    if not (tokens.is_space.any() or crossing.any() or preset.any()):
        return None
    possible = numpy.ones((len(tokens.iob), len(tags)), dtype=bool)
    scheme = tags.scheme
    at_border = tags.having({scheme.begin, scheme.last, scheme.unit} - {scheme.inside})
    possible[tokens.is_space] &= ~at_border
    possible[crossing] &= ~tags.continuing
    path = gold_tags(annotation(tokens, tags, strings), tags)
    possible[preset] = path[preset, None] == numpy.arange(len(tags))
    possible[~preset & _follows_entity(path, tags, tokens.lengths)] &= ~tags.continuing
    return possible


def allowed_tags(path: Ints1d, tags: Tags, lengths: Ints1d) -> Optional[Array2d]:
    """The tags that agree with gold. What is missing right after an entity of gold may be
    anything but more of that entity.

    path (Ints1d): Gold tags, -1 where missing. Shape: (N,)
    tags (Tags): The tag set.
    lengths (Ints1d): Tokens of each doc. Shape: (B,)
    RETURNS (Optional[Array2d]): None if nothing is missing. Shape: (N, K)
    """
    missing = path < 0
    if not missing.any():
        return None
    allowed = missing[:, None] | (path[:, None] == numpy.arange(len(tags)))
    allowed[missing & _follows_entity(path, tags, lengths)] &= ~tags.continuing
    return allowed


def _follows_entity(path: Ints1d, tags: Tags, lengths: Ints1d) -> Array1d:
    """True where the token before, of the same doc, is known to be in an entity. Shape: (N,)"""
    follows = numpy.zeros(len(path), dtype=bool)
    follows[1:] = (path[:-1] >= 0) & (tags.label_of[path[:-1]] >= 0)
    follows[(numpy.cumsum(lengths) - lengths)[lengths > 0]] = False
    return follows


def gold_cost(path: Ints1d, table: CostTable, weights: Optional[Floats1d]) -> Floats2d:
    """What each answer costs at each token; nothing where gold is missing.

    path (Ints1d): Gold tags, -1 where missing. Shape: (N,)
    table (CostTable): What each mistake costs. Shape: (K, K)
    weights (Optional[Floats1d]): How much each token counts. Shape: (N,)
    RETURNS (Floats2d): Shape: (N, K)
    """
    counts = path >= 0 if weights is None else weights * (path >= 0)
    return table[path] * counts[:, None]


def first_words(doc: Doc, n_words: int = 8) -> str:
    """The beginning of a doc, by which a message names it."""
    text = doc[:n_words].text
    return repr(text + " …" if len(doc) > n_words else text)
