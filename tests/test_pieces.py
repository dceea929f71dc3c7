"""Pieces of docs: where they are cut, and that they are parts of the same targets and features."""

import random
from itertools import accumulate
from typing import Any

import numpy
import pytest
from numpy.testing import assert_array_equal
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from spacy.util import minibatch
from thinc.api import Adam

from spacy_costner.ml import linear_part
from spacy_costner.training.pieces import batch_pieces, join, sentence_starts

from .support.config import HAMMING
from .support.fitting import initialized, loss_block, read_batches, read_pieces, train

SENTENCES: list[tuple[list[str], list[str]]] = [
    (["Ana", "Lee", "saw", "Rome"], ["B-X", "I-X", "O", "B-X"]),
    (["Rome", "saw", "Lee"], ["B-X", "O", "B-X"]),
    (["saw", "\n", "Ana"], ["O", "O", "B-X"]),
]


def article(nlp: Language, *sentences: int, starts: bool = True) -> Example:
    chosen = [SENTENCES[i] for i in sentences]
    words = [word for some, _ in chosen for word in some]
    ents = [tag for _, tags in chosen for tag in tags]
    begins = [i == 0 for some, _ in chosen for i in range(len(some))] if starts else None
    reference = Doc(nlp.vocab, words=words, ents=ents, sent_starts=begins)  # type: ignore[arg-type]
    return Example(Doc(nlp.vocab, words=words), reference)


def corpus(**settings: Any) -> tuple[Language, list[Example]]:
    nlp, examples = initialized(**settings)
    examples += [article(nlp, 0, 1, 2), article(nlp, 2, 2, 0, 1), article(nlp, 1)]
    nlp.initialize(lambda: examples)
    return nlp, examples


def begins_of(nlp: Language, eg: Example, most_words: int = 1) -> list[int]:
    """The first tokens of the pieces of an example."""
    sizes = [len(piece) for piece in read_pieces(nlp.get_pipe("ner"), [eg], most_words)]
    assert sum(sizes) == len(eg.reference)
    return [0, *accumulate(sizes[:-1])]


@pytest.mark.parametrize(
    ("most_words", "begins"),
    [(99, [0]), (10, [0]), (9, [0, 7]), (7, [0, 7]), (6, [0, 4]), (5, [0, 4, 7]), (1, [0, 4, 7])],
)
def test_docs_are_cut_at_the_starts_of_sentences(most_words: int, begins: list[int]) -> None:
    nlp, _ = initialized()
    assert begins_of(nlp, article(nlp, 0, 1, 2), most_words) == begins


def test_docs_are_cut_between_entities() -> None:
    """If there are no sentences. Entities that cross them stay whole."""
    nlp, _ = initialized()
    eg = article(nlp, 0, 1, 2, starts=False)
    assert begins_of(nlp, eg) == [0, 2, 3, 4, 5, 6, 7, 8, 9]
    eg.reference.set_ents([], default="missing")
    assert begins_of(nlp, eg) == [0]
    eg = article(nlp, 1, 0)
    eg.reference[4].is_sent_start = True
    assert begins_of(nlp, eg) == [0, 3]


def test_sentences_of_other_tokens() -> None:
    nlp, _ = initialized()
    eg = article(nlp, 1, 1)
    assert numpy.flatnonzero(sentence_starts(eg)).tolist() == [3]
    words = ["Rome", "sawLee", "Rome", "saw", "Lee"]
    other = Doc(nlp.vocab, words=words, sent_starts=[1, 0, 1, 0, 0])
    assert numpy.flatnonzero(sentence_starts(Example(other, eg.reference))).tolist() == [2]


def test_features_are_those_of_the_whole_doc() -> None:
    windows = {"ORTH": 2, "LOWER": 1}
    features = {"@misc": "spacy_costner.Features.v1", "windows": windows}
    model = {"@architectures": "spacy_costner.SparseCRF.v1", "features": features}
    nlp, examples = corpus(model=model)
    pieces = [*read_pieces(nlp.get_pipe("ner"), examples, 4)]
    assert len(pieces) > len(examples)
    whole = linear_part(nlp.get_pipe("ner").model)[0].find([eg.predicted for eg in examples])
    found = [join([piece]).read()[0].rows for piece in pieces]
    assert_array_equal(numpy.concatenate(found), whole.rows)
    seen, _ = join(pieces).read()
    assert_array_equal(seen.rows, whole.rows)


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
def test_joined_pieces_are_a_batch(
    settings: dict[str, Any], n_docs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of docs with and without missing annotation and white space, cut at all sentences, and of the
    same sentences as docs of their own: the same loss and gradient of emissions. Docs are read
    together or one by one: then some have masks of tags, and others none."""
    monkeypatch.setattr("spacy_costner.training.pieces.N_DOCS", n_docs)
    Doc.set_extension("piece_weight", default=1.0, force=True)
    nlp, _ = corpus(**settings)
    ner = nlp.get_pipe("ner")
    articles = [article(nlp, 0, 1, 2), article(nlp, 2, 0), article(nlp, 1, 1)]
    single = [article(nlp, i) for i in (0, 1, 2, 2, 0, 1, 1)]
    weights = [2.0, 3.0, 5.0] + [2.0] * 3 + [3.0] * 2 + [5.0] * 2
    for eg, weight in zip([*articles, *single], weights):
        eg.reference._.piece_weight = weight
    for gold in (articles[2].reference, single[5].reference):
        spans = [ent for ent in gold.ents if ent.start >= 2]
        gold.set_ents(spans, missing=[gold[:2]], default="outside")
    pieces = [*read_pieces(ner, articles, 1)]
    assert len(pieces) == len(single)
    (batch,) = read_batches(ner, [single])
    (_, expected), (seen, targets) = batch.read(), join(pieces).read()
    linear = linear_part(ner.model)[1]
    linear.rows[:] = numpy.random.default_rng(0).normal(size=linear.rows.shape)
    scores = linear.potentials(seen)
    assert_array_equal(targets.lengths, expected.lengths)
    expected = expected._replace(gold=expected.gold._replace(features=seen.rows))
    found, other = (
        ner.objective.evaluate(each, scores, ner.progress) for each in (targets, expected)
    )
    assert found[0].value == pytest.approx(other[0].value)
    for one, two in zip(found[0].gradient, other[0].gradient):
        numpy.testing.assert_allclose(one, two, atol=1e-6)
    assert found[1] == other[1]


def test_a_pass_over_pieces_is_an_epoch() -> None:
    nlp, examples = corpus()
    ner = nlp.get_pipe("ner")
    examples.append(Example(nlp.make_doc(""), nlp.make_doc("")))
    ner.cfg["n_examples"] = len(examples)
    pieces = [*read_pieces(ner, examples, 3)]
    batches = [join(batch) for batch in minibatch_by_words(pieces, 6)]
    sizes = [len(read()[0].rows) for _, read in batches]
    assert max(sizes) <= 7 and len(pieces) > len(examples)
    trained = train(ner, batches, Adam(), max_epochs=3)
    assert trained.n_epochs == 3 and ner.progress.epochs == 3
    assert ner.progress.steps == 3 * len(batches)


def test_docs_of_incorrect_spans_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spacy_costner.training.pieces.MOST_WORDS", 1)
    for settings, are_whole in (({}, False), ({"incorrect_spans_key": "wrong"}, True)):
        nlp, examples = corpus(**settings)
        ner = nlp.get_pipe("ner")
        parts = (ner.model, ner.objective, ner.chain_tags)
        batches = batch_pieces(*parts, examples, lambda docs: minibatch(docs, 2), random.shuffle)
        assert batches.by_sequence is None
        n_sequences = sum(batch.n_sequences for batch in batches.by_doc)
        assert (n_sequences == len(examples)) is are_whole
