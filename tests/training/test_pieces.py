"""Pieces of docs: where they are cut, and that they are parts of the same targets and features."""

import random
from itertools import accumulate
from typing import Any

import numpy
import pytest
from numpy.testing import assert_array_equal
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from spacy.util import minibatch
from thinc.api import Adam

from spacy_costner.ml import linear_part
from spacy_costner.tags import SCHEMES
from spacy_costner.training.pieces import batch_pieces, join_pieces

from ..support.config import HAMMING
from ..support.fitting import initialized, loss_block, read_batches, read_pieces, train

SENTENCES: list[tuple[list[str], list[str]]] = [
    (["Ana", "Lee", "saw", "Rome"], ["B-X", "I-X", "O", "B-X"]),
    (["Rome", "saw", "Lee"], ["B-X", "O", "B-X"]),
    (["saw", "\n", "Ana"], ["O", "O", "B-X"]),
]


def article(nlp: Language, *sentences: int, has_starts: bool = True) -> Example:
    """An example of these sentences, by number, with or without their starts annotated."""
    words: list[str] = []
    tags: list[Any] = []
    sent_starts: list[Any] = []
    for i in sentences:
        words_of_sentence, tags_of_sentence = SENTENCES[i]
        words += words_of_sentence
        tags += tags_of_sentence
        sent_starts += [True] + [False] * (len(words_of_sentence) - 1)
    reference = Doc(
        nlp.vocab, words=words, ents=tags, sent_starts=sent_starts if has_starts else None
    )
    return Example(Doc(nlp.vocab, words=words), reference)


def corpus(**settings: Any) -> tuple[Language, list[Example]]:
    """A pipeline of a linear model, and six examples: three sentences and three articles."""
    nlp, examples = initialized(**settings)
    examples += [article(nlp, 0, 1, 2), article(nlp, 2, 2, 0, 1), article(nlp, 1)]
    nlp.initialize(lambda: examples)
    return nlp, examples


def begins_of(nlp: Language, eg: Example, most_words: int) -> list[int]:
    """The first tokens of the pieces of an example, which have at most so many words where the
    example may be cut."""
    pieces = read_pieces(nlp.get_pipe("ner"), [eg], most_words)
    lengths = [len(piece) for piece in pieces]
    assert sum(lengths) == len(eg.reference)
    return [0, *accumulate(lengths[:-1])]


@pytest.mark.parametrize(
    ("most_words", "begins"),
    [(99, [0]), (10, [0]), (9, [0, 7]), (7, [0, 7]), (6, [0, 4]), (5, [0, 4, 7]), (1, [0, 4, 7])],
)
def test_docs_are_cut_at_the_starts_of_sentences(most_words: int, begins: list[int]) -> None:
    """Sentences begin at tokens 0, 4 and 7 of ten. A piece has as many of them as it may."""
    nlp, _ = initialized()
    assert begins_of(nlp, article(nlp, 0, 1, 2), most_words) == begins


def test_docs_without_sentences_are_cut_between_entities() -> None:
    """Only "Ana Lee", tokens 0 and 1, is not cut."""
    nlp, _ = initialized()
    eg = article(nlp, 0, 1, 2, has_starts=False)
    assert begins_of(nlp, eg, most_words=1) == [0, 2, 3, 4, 5, 6, 7, 8, 9]


def test_docs_without_annotation_are_not_cut() -> None:
    """Any token may be within an entity that nobody has annotated."""
    nlp, _ = initialized()
    eg = article(nlp, 0, 1, 2, has_starts=False)
    eg.reference.set_ents([], default="missing")
    assert begins_of(nlp, eg, most_words=1) == [0]


@pytest.mark.parametrize("outside", ["single", "before"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_docs_are_not_cut_where_an_entity_may_go_on(scheme: str, outside: str) -> None:
    """The entity that begins at token 0 may go on at tokens 1 and 2, as they have no annotation.
    The other tokens are O: there is a piece for each of them, but perhaps for the first."""
    nlp, _ = initialized(scheme=scheme, outside=outside)
    eg = article(nlp, 0, 1, 2, has_starts=False)
    doc = eg.reference
    doc.set_ents([Span(doc, 0, 1, "X")], outside=[doc[3:]], default="missing")

    begins = begins_of(nlp, eg, most_words=1)

    assert not {1, 2} & {*begins}
    assert {*range(4, 10)} < {*begins}


def test_an_entity_across_a_sentence_start_is_not_cut() -> None:
    """The second sentence begins with "Ana Lee", tokens 3 and 4. A third one begins at "Lee"."""
    nlp, _ = initialized()
    eg = article(nlp, 1, 0)
    eg.reference[4].is_sent_start = True
    assert begins_of(nlp, eg, most_words=1) == [0, 3]


def test_features_are_those_of_the_whole_doc() -> None:
    """The windows of features reach over the borders of pieces."""
    windows = {"ORTH": 2, "LOWER": 1}
    template = {"@misc": "spacy_costner.Features.v1", "windows": windows}
    model = {"@architectures": "spacy_costner.SparseCRF.v1", "features": template}
    nlp, examples = corpus(model=model)
    ner = nlp.get_pipe("ner")
    pieces = read_pieces(ner, examples, most_words=4)
    assert len(pieces) > len(examples)
    template_features, _ = linear_part(ner.model)
    expected = template_features.find([eg.predicted for eg in examples]).rows
    rows_of_pieces = []
    for piece in pieces:
        features, _ = join_pieces([piece]).read()
        rows_of_pieces.append(features.rows)
    assert_array_equal(numpy.concatenate(rows_of_pieces), expected)
    features_of_batch, _ = join_pieces(pieces).read()
    assert_array_equal(features_of_batch.rows, expected)


WEIGHTS = {"@misc": "spacy_costner.Weights.v1", "labels": {"X": 2.0}, "boundary": 3.0}


@pytest.mark.parametrize("n_docs", [1, 256])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss": loss_block("MIRA", cost=HAMMING)},
        {"loss": loss_block("SoftmaxMargin", cost=HAMMING), "weights": WEIGHTS},
        {"weights": {"@misc": "spacy_costner.Weights.v1", "example": "piece_weight"}},
    ],
)
def test_articles_in_pieces_have_the_loss_of_their_sentences_as_docs(
    settings: dict[str, Any], n_docs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Articles are cut at each sentence, and the pieces are joined to a batch. Its loss and
    gradient are those of a batch with each sentence as a doc of its own, also with whitespace and
    with missing annotation. Articles are read together or one by one. In the second case some of
    them have masks of possible tags, and others none."""
    monkeypatch.setattr("spacy_costner.training.pieces.N_DOCS", n_docs)
    Doc.set_extension("piece_weight", default=1.0, force=True)
    nlp, _ = corpus(**settings)
    ner = nlp.get_pipe("ner")
    _, linear_weights = linear_part(ner.model)
    linear_weights.rows[:] = numpy.random.default_rng(0).normal(size=linear_weights.rows.shape)

    # A sentence has the weight of its article.
    articles: list[Example] = []
    sentences: list[Example] = []
    for numbers, weight in (((0, 1, 2), 2.0), ((2, 0), 3.0), ((1, 1), 5.0)):
        articles.append(article(nlp, *numbers))
        articles[-1].reference._.piece_weight = weight
        for i in numbers:
            sentences.append(article(nlp, i))
            sentences[-1].reference._.piece_weight = weight
    # The annotation of two tokens is missing: the first two of the last article, which are the
    # first two of sentence 5.
    for reference in (articles[2].reference, sentences[5].reference):
        entities = [ent for ent in reference.ents if ent.start >= 2]
        reference.set_ents(entities, missing=[reference[:2]], default="outside")

    pieces = read_pieces(ner, articles, most_words=1)
    assert len(pieces) == len(sentences)
    features, targets = join_pieces(pieces).read()
    (batch,) = read_batches(ner, [sentences])
    _, expected_targets = batch.read()
    assert_array_equal(targets.lengths, expected_targets.lengths)
    # The features of a piece are those of its article, as windows reach into other sentences. So
    # losses that use features get the same ones for both batches.
    gold = expected_targets.gold._replace(features=features.rows)
    expected_targets = expected_targets._replace(gold=gold)

    scores = linear_weights.potentials(features)
    result, n_annotated = ner.objective.evaluate(targets, scores, ner.progress)
    expected, expected_n_annotated = ner.objective.evaluate(expected_targets, scores, ner.progress)
    assert result.value == pytest.approx(expected.value)
    for array, expected_array in zip(result.gradient, expected.gradient):
        numpy.testing.assert_allclose(array, expected_array, atol=1e-6)
    assert n_annotated == expected_n_annotated


def test_a_pass_over_pieces_is_an_epoch() -> None:
    """There are more pieces than examples, one of which is empty and has no piece."""
    nlp, examples = corpus()
    ner = nlp.get_pipe("ner")
    examples.append(Example(nlp.make_doc(""), nlp.make_doc("")))
    ner.cfg["n_examples"] = len(examples)
    pieces = read_pieces(ner, examples, most_words=3)
    assert len(pieces) > len(examples)
    batches = [join_pieces(batch) for batch in minibatch_by_words(pieces, 6)]
    for batch in batches:
        features, _ = batch.read()
        # spaCy lets a batch have a fifth more words than 6: 7.2.
        assert len(features.rows) <= 7
    trained = train(ner, batches, Adam(), max_epochs=3)
    assert trained.n_epochs == 3 and ner.progress.epochs == 3
    assert ner.progress.steps == 3 * len(batches)


@pytest.mark.parametrize(
    "settings, are_whole", [({}, False), ({"incorrect_spans_key": "wrong"}, True)]
)
def test_docs_stay_whole_if_they_may_have_incorrect_spans(
    settings: dict[str, Any], are_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut could divide an incorrect span. Other docs are cut at each sentence here."""
    monkeypatch.setattr("spacy_costner.training.pieces.MOST_WORDS_OF_PIECE", 1)
    nlp, examples = corpus(**settings)
    ner = nlp.get_pipe("ner")
    batches = batch_pieces(
        ner.model,
        ner.objective,
        ner.chain_tags,
        examples,
        batcher=lambda docs: minibatch(docs, 2),
        shuffle=random.shuffle,
    )
    assert batches.by_sequence is None
    n_sequences = sum(batch.n_sequences for batch in batches.by_doc)
    assert (n_sequences == len(examples)) is are_whole
