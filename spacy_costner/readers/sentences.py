"""Tagged sentences to docs. Formats of tokens and tags are read as one long list of each."""

from typing import Any, Iterator, List, NamedTuple, Optional, Sequence

import numpy
from spacy.attrs import ENT_IOB, ENT_TYPE, ORTH, SENT_START, SPACY
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.types import Array1d, Ints1d

from .files import Place
from .found import Context
from .schemes import Decoded, decode_tags

ATTRS = [SENT_START, ENT_IOB, ENT_TYPE]


class Sentences(NamedTuple):
    """The tokens of a file.

    words (Sequence[str]): Each token.
    tags (Sequence[str]): Its tag.
    places (Ints1d): Its line in the file. Shape: (N,)
    sent_start (Array1d): True for the first token of a sentence. Shape: (N,)
    part (Ints1d): The number of the -DOCSTART- part it is in, 0 before the first. Shape: (N,)
    """

    words: Sequence[str]
    tags: Sequence[str]
    places: Ints1d
    sent_start: Array1d
    part: Ints1d


def make_docs(sentences: Sentences, source: Place, form: str, context: Context) -> Iterator[Doc]:
    """Make docs of tagged sentences. Where spaces are is not known: `doc.has_unknown_spaces`.

    sentences (Sentences): The tokens of a file.
    source (Place): The file.
    form (str): The name of its format.
    context (Context): Its options have how many sentences a doc has. Gets the format, the scheme
        and the irregular tags.
    RETURNS (Iterator[Doc]): The docs.
    RAISES (CorpusError): If something isn't a tag, or the tags belong to several schemes.
    """

    def place(token: int) -> Place:
        return source._replace(number=int(sentences.places[token]))

    decoded = decode_tags(
        sentences.tags, sentences.sent_start, lambda token, message: place(token).refuse(message)
    )
    context.found.add_file(form, decoded.scheme)
    if n := len(decoded.irregular):
        token = int(decoded.irregular[0])
        text = f"{sentences.words[token]} {sentences.tags[token]}"
        message = f"tags don't fit {decoded.scheme}: they are read as conlleval does"
        context.found.add_problem(message, place(token), text, more=n - 1)
    return _make(context.nlp.vocab, sentences, decoded, context.options.n_sents)


def _make(
    vocab: Vocab, sentences: Sentences, decoded: Decoded, n_sents: Optional[int]
) -> Iterator[Doc]:
    labels = [vocab.strings.add(label) for label in decoded.labels]
    columns = numpy.empty((len(sentences.words), len(ATTRS)), dtype="uint64")
    columns[:, 0] = numpy.where(sentences.sent_start, 1, -1).astype("int64").view("uint64")
    columns[:, 1] = decoded.iob
    columns[:, 2] = numpy.asarray([*labels, 0], dtype="uint64")[decoded.label]
    index = {word: i for i, word in enumerate(dict.fromkeys(sentences.words))}
    ids = numpy.fromiter(map(index.__getitem__, sentences.words), dtype="int64")
    words: Any = Doc(vocab, words=[*index]).to_array(ORTH)[ids]
    starts = doc_starts(sentences.sent_start, sentences.part, n_sents)
    for start, end in zip(starts, [*starts[1:], len(words)]):
        yield Doc(vocab, words=words[start:end]).from_array(ATTRS, columns[start:end])


def copy_tokens(doc: Doc, vocab: Optional[Vocab] = None, *, sentences: bool = False) -> Doc:
    """Make a doc of the words and spaces of another. It has no other annotation.

    doc (Doc): The doc.
    vocab (Optional[Vocab]): The vocab of the copy. None: the same.
    sentences (bool): Whether the copy has the starts of sentences, and unknown spaces, too.
    RETURNS (Doc): The copy.
    """
    words, spaces = doc.to_array([ORTH, SPACY]).T.tolist()
    if vocab not in (None, doc.vocab):
        words = [token.text for token in doc]
    copy = Doc(vocab or doc.vocab, words=words, spaces=spaces)
    if sentences:
        copy.has_unknown_spaces = doc.has_unknown_spaces
        copy.from_array([SENT_START], doc.to_array([SENT_START]))
    return copy


def doc_starts(sent_start: Array1d, part: Ints1d, n_sents: Optional[int]) -> List[int]:
    """The first tokens of docs.

    sent_start (Array1d): True for the first token of a sentence. Shape: (N,)
    part (Ints1d): The number of the -DOCSTART- part. Shape: (N,)
    n_sents (Optional[int]): See `ReadOptions`.
    RETURNS (List[int]): The tokens.
    """
    first = numpy.flatnonzero(sent_start)
    parts = part[first]
    is_new = numpy.concatenate([[True], parts[1:] != parts[:-1]])
    if n_sents is None:
        n_sents = 0 if part[-1] > 0 else 1
    if n_sents > 0:
        begin = numpy.maximum.accumulate(numpy.where(is_new, numpy.arange(len(first)), 0))
        is_new = (numpy.arange(len(first)) - begin) % n_sents == 0
    return first[is_new].tolist()
