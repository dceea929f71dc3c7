"""Docs of several sequences: where they are cut, and their results, which follow from the
sequences."""

import math
import random
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, Token
from spacy.training import Example
from spacy.util import registry
from thinc.api import Adam

from spacy_costner import chain
from spacy_costner.annotation.borders import cut, find_borders
from spacy_costner.annotation.sentence_starts import sentence_starts
from spacy_costner.annotation.settings import Annotation
from spacy_costner.costs.tables import make_hamming_cost
from spacy_costner.decoding import (
    Decoding,
    Posterior,
    make_min_cost,
    make_threshold,
    make_viterbi,
)
from spacy_costner.ml import first_pass_of, linear_part
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.readers.examples import make_reader
from spacy_costner.training.lbfgs import TotalLoss
from spacy_costner.training.objective import Objective
from spacy_costner.training.online import Batch, read_batches, train
from spacy_costner.training.pieces import batch_pieces, join_pieces, read_pieces
from spacy_costner.training.segmentations import Segmentations, concatenate
from spacy_costner.training.soft_targets import SOFT_TARGETS_KEY, expectations
from spacy_costner.training.targets import WEIGHT
from spacy_costner.types import Gold, LossResult, Potentials, Progress, map_scores, zero_scores
from spacy_costner.workflows.reports.explanation import explain_tokens

from .. import oracle, oracle_losses
from ..support.batches import single
from ..support.config import FEATURES
from ..support.fitting import examples_of, initialized, loss_block
from ..support.gradients import check_loss_directions
from ..support.split import split_of

WORDS = ["Ana", "saw", "Rome", "saw", "Ana", "Lee"]
STARTS = [0, 2, 5]
"""The tokens that begin a sentence."""

SEEN = {**FEATURES, "document": {"LOWER": 1}, "memory": {"LOWER": 1}, "memory_unit": 4}
TWO_PASSES = {"@architectures": "spacy_costner.SparseCRF.v1", "features": SEEN}


def doc_of(nlp: Language, tags: str | None = None, *, starts: bool = True) -> Doc:
    """The words as a doc, with IOB2 tags or without annotation, with or without its sentences."""
    sent_starts: Any = [i in STARTS for i in range(len(WORDS))] if starts else None
    return Doc(
        nlp.vocab,
        words=WORDS,
        sent_starts=sent_starts,
        ents=None if tags is None else tags.split(),
    )


def random_model(boundaries: Any = True, **settings: Any) -> Language:
    """A linear model with weights drawn by lot."""
    nlp, _ = initialized(sentence_boundaries=boundaries, **settings)
    weights = linear_part(nlp.get_pipe("ner").model)[1]
    weights.rows[:] = numpy.random.default_rng(1).normal(size=weights.rows.shape)
    return nlp


def sequences_of(ner: CostSensitiveNER, scores: Potentials, lengths: list[int]) -> Potentials:
    """The scores of sequences, one after another."""
    scores = scores._replace(lengths=numpy.asarray(lengths, dtype="int32"))
    return chain.constrain(scores, ner.chain_tags.constraints)


@pytest.mark.parametrize(
    "boundaries, borders", [(False, []), ("sentences", [3]), (True, [2, 3, 6])], ids=str
)
def test_borders_are_sentence_starts_and_what_follows_line_breaks(
    boundaries: Any, borders: list[int]
) -> None:
    nlp, _ = initialized()
    words = ["a", "\n ", "b", "c", " ", "\r\n", "d", "\n"]
    doc = Doc(nlp.vocab, words=words, sent_starts=[i in (0, 3) for i in range(8)])
    no_tokens = Doc(nlp.vocab)
    is_border = find_borders([doc, no_tokens, doc], boundaries)
    borders_of_last = [len(words) + i for i in borders]
    assert numpy.flatnonzero(is_border).tolist() == [*borders, *borders_of_last]


@given(st.lists(st.lists(st.booleans(), max_size=5), max_size=4))
def test_docs_are_cut_at_borders(docs: list[list[bool]]) -> None:
    """`docs` says of each token of each doc whether it is a border, at which a sequence begins."""
    borders: list[bool] = []
    expected: list[tuple[int, int]] = []
    for number, doc in enumerate(docs):
        doc_borders = [False, *doc[1:]][: len(doc)]  # the first token is no border
        bounds = [0, *numpy.flatnonzero(doc_borders).tolist(), len(doc)]
        borders += doc_borders
        expected += [(end - begin, number) for begin, end in pairwise(bounds)]

    doc_lengths = numpy.asarray([len(doc) for doc in docs], dtype="int32")
    lengths, doc_of_sequence = cut(doc_lengths, numpy.asarray(borders, bool))

    assert list(zip(lengths.tolist(), doc_of_sequence.tolist())) == expected


def marginals_of(ner: CostSensitiveNER, scores: Potentials, b: int) -> numpy.ndarray:
    """p(y_t = k) of the tokens of sequence b, by enumeration. Shape: (T, K)"""
    one_hot = numpy.eye(len(ner.chain_tags))
    marginals = numpy.zeros((int(scores.lengths[b]), len(ner.chain_tags)))
    paths = oracle.paths(scores, b)
    for p, path in zip(oracle.probabilities(paths), paths):
        marginals += p * one_hot[list(path.tags)]
    return marginals


each_scheme_and_outside = pytest.mark.parametrize(
    "scheme, outside", list(product(["BILUO", "IOB2"], ["single", "before"]))
)


def two_docs(nlp: Language) -> list[Doc]:
    """The words as three sequences of 2, 3 and 1 tokens, and the first two as one sequence."""
    return [doc_of(nlp), doc_of(nlp, starts=False)[:2].as_doc()]


def scores_of_sequences(nlp: Language) -> Potentials:
    """The scores of the three sequences of the words."""
    ner = nlp.get_pipe("ner")
    return sequences_of(ner, ner.model.predict([doc_of(nlp)]), [2, 3, 1])


@each_scheme_and_outside
def test_marginals_are_those_of_enumerated_sequences(scheme: str, outside: str) -> None:
    nlp = random_model(scheme=scheme, outside=outside)
    ner = nlp.get_pipe("ner")

    posterior = ner.posterior(two_docs(nlp))

    scores = scores_of_sequences(nlp)
    expected = numpy.concatenate([marginals_of(ner, scores, b) for b in range(3)])
    assert posterior.doc_lengths.tolist() == [6, 2]
    assert_allclose(posterior.marginals[:6], ner.chain_tags.collapse(expected), atol=1e-5)


@each_scheme_and_outside
def test_the_entropy_of_a_doc_is_the_sum_of_those_of_its_sequences(
    scheme: str, outside: str
) -> None:
    nlp = random_model(scheme=scheme, outside=outside)

    entropy, _ = nlp.get_pipe("ner").posterior(two_docs(nlp)).entropy

    scores = scores_of_sequences(nlp)
    expected = sum(oracle.entropy(scores, b).value for b in range(3))
    assert entropy == pytest.approx(expected, abs=1e-4)


@each_scheme_and_outside
def test_the_k_best_of_a_doc_are_made_of_paths_of_its_sequences(scheme: str, outside: str) -> None:
    """Their probability is the product of the probabilities of the paths, with or without another
    doc."""
    nlp = random_model(scheme=scheme, outside=outside)
    ner = nlp.get_pipe("ner")
    doc, other_doc = two_docs(nlp)

    best, best_of_other = ner.k_best([doc, other_doc], 20)

    scores = scores_of_sequences(nlp)
    probs_of_sequences = [oracle.probabilities(oracle.paths(scores, b)) for b in range(3)]
    probs = sorted(map(math.prod, product(*probs_of_sequences)), reverse=True)
    assert_allclose([alternative.prob for alternative in best], probs[:20], rtol=1e-4)
    answers = {tuple(map(place_of, alternative.ents)) for alternative in best}
    assert len(answers) == 20
    (best_alone,) = ner.k_best([other_doc], 9)
    for alone, together in zip(best_alone, best_of_other):
        assert alone.log_probability == pytest.approx(together.log_probability, abs=1e-5)


def place_of(ent: Span) -> tuple[int, int, str]:
    """First token, last token + 1, label."""
    return ent.start, ent.end, ent.label_


@each_scheme_and_outside
@pytest.mark.parametrize(
    "decoding",
    [make_viterbi(bias=0.7), make_threshold(threshold=0.1)],
    ids=["viterbi", "threshold"],
)
def test_entities_of_a_doc_are_those_of_its_sequences(
    scheme: str, outside: str, decoding: Decoding
) -> None:
    nlp = random_model(scheme=scheme, outside=outside)
    ner = nlp.get_pipe("ner")
    ner.set_decoding(decoding)

    doc = ner(doc_of(nlp))

    expected = []
    for b, begin in enumerate(STARTS):
        posterior = Posterior(single(scores_of_sequences(nlp), b), ner.chain_tags)
        entities = decoding.decode(posterior, decoding.settings).entities
        expected += zip(begin + entities.begin, begin + entities.end)
    assert expected
    assert [(ent.start, ent.end) for ent in doc.ents] == expected


GOLD_TAGS = "B-X O B-X O B-X I-X"
"""Of WORDS. The last entity is across the second border."""


@pytest.mark.parametrize("name", oracle_losses.LOSSES)
def test_losses_are_those_of_enumerated_sequences(name: str) -> None:
    """The entity across the second border joins two sequences: there are two, of 2 and 4 tokens."""
    row = oracle_losses.LOSSES[name]
    ner = SPLIT.get_pipe("ner")
    eg = Example(doc_of(SPLIT), doc_of(SPLIT, GOLD_TAGS))

    def compute(scores: Potentials) -> LossResult:
        """By the package, with a loss anew each time, as some keep count."""
        make_loss = registry.losses.get(f"spacy_costner.{name.split(',')[0]}.v1")
        cost = {"cost": make_hamming_cost()} if row.has_cost else {}
        annotation = Annotation(sentence_boundaries=True)
        objective = Objective(
            "ner", SPLIT.vocab.strings, make_loss(**row.settings, **cost), annotation=annotation
        )
        targets = objective.targets([eg], ner.chain_tags).finest
        assert targets.lengths.tolist() == [2, 4]
        assert targets.doc_of_sequence.tolist() == [0, 0]
        result, _ = objective.evaluate(targets, scores, Progress())
        return result

    scores = map_scores(lambda x: x.astype("float64"), ner.model.predict([eg.predicted]))
    result = compute(scores)

    tags = ner.chain_tags.collapsed
    path = numpy.asarray([tags.names.index(tag) for tag in GOLD_TAGS.split()])
    cost_of_tags = make_hamming_cost()(tags)[path] if row.has_cost else None
    gold = Gold(path, costs=cost_of_tags, opening=tags.opening, continuing=tags.continuing)
    legal = sequences_of(ner, scores, [2, 4])
    batch = oracle_losses.sequences(legal, gold, split=split_of(ner.chain_tags))
    assert result.value == pytest.approx(row.define(batch), rel=1e-8)
    assert_array_equal(result.gradient.lengths, [6])
    check_loss_directions(compute, scores)


@pytest.mark.parametrize("seed", range(3))
def test_the_least_expected_cost_is_that_of_enumerated_sequences(seed: int) -> None:
    """The doc is cut into sequences of 2, 3 and 1 tokens, or is one sequence."""
    nlp = random_model(scheme="BILUO", outside="before")
    ner = nlp.get_pipe("ner")
    # The five tags of annotation are those of BILUO for one label.
    table = numpy.random.default_rng(seed).uniform(size=(5, 5))
    ner.set_decoding(make_min_cost(cost=lambda tags: table))
    lengths = numpy.asarray([2, 3, 1, 6], dtype="int32")
    docs = [doc_of(nlp), doc_of(nlp, starts=False)]
    posterior = ner.posterior(docs)

    spans: list[tuple[int, int]] = []
    for first_token, doc in zip((0, 6), docs):
        spans += [(first_token + ent.start, first_token + ent.end) for ent in ner(doc).ents]

    tags = ner.chain_tags.collapsed
    # All legal paths of annotation, with the score 0.
    legal = chain.constrain(zero_scores(lengths, len(tags), "float64"), tags.constraints)
    cheapest: list[int] = []
    for b, length in enumerate(lengths.tolist()):
        marginals = ner.chain_tags.collapse(marginals_of(ner, posterior.scores, b))
        cost_of_answer = marginals @ table  # expected. Shape: (T, K)
        cost_of_path: dict[tuple[int, ...], float] = {}
        for path in oracle.paths(legal, b):
            cost_of_path[path.tags] = cost_of_answer[range(length), path.tags].sum()
        cheapest += min(cost_of_path, key=lambda path: cost_of_path[path])
    entities = tags.decode(numpy.asarray(cheapest), lengths)
    assert spans
    assert spans == [*zip(entities.begin.tolist(), entities.end.tolist())]


def test_preset_entities_across_a_border_join_two_sequences() -> None:
    """The sequences have 2 and 3 tokens, and the entity has the tokens 1 and 2. It is on every
    legal path."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    doc = doc_of(nlp)
    doc.set_ents([Span(doc, 1, 3, "X")], default="missing")

    without_preset = ner.posterior([doc])
    posterior = ner.posterior([doc], preset=True)

    assert without_preset.scores.lengths.tolist() == [2, 3, 1]
    assert posterior.scores.lengths.tolist() == [5, 1]
    paths = oracle.paths(posterior.scores, 0)
    assert paths
    for path in paths:
        entities = ner.chain_tags.decode(numpy.asarray(path.tags), numpy.asarray([5]))
        assert (1, 3) in zip(entities.begin, entities.end)
    entropy = sum(oracle.entropy(posterior.scores, b).value for b in range(2))
    assert posterior.entropy[0] == pytest.approx(entropy, abs=1e-4)
    assert (1, 3) in [(ent.start, ent.end) for ent in ner(doc).ents]


MODEL = random_model()
SPLIT = random_model(outside="before")


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 4))
def test_predicted_entities_do_not_depend_on_the_batch(kinds: list[int], batch_size: int) -> None:
    text_of_kind = ["Ana Lee\nsaw\n\nRome", "Rome", "\nAna\n Lee saw Rome"]
    texts = [text_of_kind[kind] for kind in kinds]
    places_alone = [[place_of(ent) for ent in MODEL(text).ents] for text in texts]

    docs = MODEL.pipe(texts, batch_size=batch_size)

    assert [[place_of(ent) for ent in doc.ents] for doc in docs] == places_alone


@pytest.mark.parametrize("loss", ["Sequential", "MCEF", "ZScore"])
def test_training_at_once_weighs_the_losses_of_docs_and_of_their_sequences(loss: str) -> None:
    """The loss over all examples is .7 of that of whole docs and .3 of that of their sequences
    (`SHARE_OF_SEQUENCES`), plus the penalty: c2 times the sum of the squared weights. MCEF has no
    counts of the whole docs when it gets their sequences."""
    nlp = random_model(loss=loss_block(loss))
    ner = nlp.get_pipe("ner")
    examples = [Example(doc_of(nlp), doc_of(nlp, "B-X O B-X O B-X I-X")), *examples_of(nlp)]

    total_loss = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=0.3)
    vector = total_loss.read_weights()
    value, gradient = total_loss(vector)
    total_loss.write_weights(vector)

    scores = ner.model.predict([eg.predicted for eg in examples])
    targets = ner.objective.targets(examples, ner.chain_tags)
    assert targets.by_sequence is not None
    ner.objective.forget()
    by_doc, _ = ner.objective.evaluate(targets.by_doc, scores, ner.progress)
    ner.objective.forget()
    by_sequence, _ = ner.objective.evaluate(targets.by_sequence, scores, ner.progress)
    penalty = 0.3 * float(vector @ vector)
    assert by_doc.value != pytest.approx(by_sequence.value, rel=1e-3)
    mean = 0.7 * by_doc.value + 0.3 * by_sequence.value
    assert value == pytest.approx(penalty + mean, rel=1e-5)

    # The gradient agrees with central differences.
    step = 1e-2 * numpy.random.default_rng(2).normal(size=vector.shape)
    value_before, _ = total_loss(vector - step)
    value_after, _ = total_loss(vector + step)
    expected_difference = 2 * float(gradient @ step)
    assert value_after - value_before == pytest.approx(expected_difference, rel=2e-3, abs=2e-4)


def test_pieces_of_epochs_alternate_between_docs_and_sequences() -> None:
    """The first doc has 6 tokens, in sequences of 2 and 4, as its last entity is across the second
    border. The docs of `examples_of` have 3, 4 and 2 tokens, and no borders."""
    nlp = random_model(outside="before")
    ner = nlp.get_pipe("ner")
    examples = [Example(doc_of(nlp), doc_of(nlp, "B-X O B-X O B-X I-X")), *examples_of(nlp)]
    pieces = read_pieces(ner.model, ner.objective, ner.chain_tags, examples)
    assert pieces.by_sequence is not None
    assert [len(piece) for piece in pieces.by_doc] == [6, 3, 4, 2]
    assert [len(piece) for piece in pieces.by_sequence] == [2, 4, 3, 4, 2]
    for epoch in range(3):
        features, targets = join_pieces(pieces.in_epoch(epoch)).read()
        expected = ner.objective.targets_in_epoch(examples, ner.chain_tags, epoch)
        assert_array_equal(targets.lengths, expected.lengths)
        assert_array_equal(targets.gold.tags, expected.gold.tags)
        assert_array_equal(features.lengths, expected.lengths)


def test_batches_of_docs_alternate_between_docs_and_sequences() -> None:
    """With incorrect spans, training is on docs instead of pieces. One of the four docs is cut
    into two sequences in odd epochs, so there are 5."""
    nlp = random_model(outside="before")
    ner = nlp.get_pipe("ner")
    examples = [Example(doc_of(nlp), doc_of(nlp, "B-X O B-X O B-X I-X")), *examples_of(nlp)]
    ner.objective.annotation = replace(ner.annotation, incorrect_spans_key="wrong")

    batches = batch_pieces(
        ner.model,
        ner.objective,
        ner.chain_tags,
        examples,
        batcher=lambda docs: [docs],
        shuffle=random.shuffle,
    )

    for epoch, n_sequences in ((0, 4), (1, 5), (2, 4)):
        (batch,) = batches.in_epoch(epoch)
        assert batch.n_sequences == n_sequences


def test_docs_without_borders_have_one_segmentation() -> None:
    nlp = random_model(outside="before")
    ner = nlp.get_pipe("ner")
    pieces = read_pieces(ner.model, ner.objective, ner.chain_tags, examples_of(nlp))
    assert len(pieces.by_doc) == 3 and pieces.by_sequence is None


def test_a_student_is_cut_into_the_sequences_of_its_teacher() -> None:
    """The teacher has cut the first doc into its sentences, of 2, 3 and 1 tokens. The second doc,
    of 6 tokens, had no sentence starts and stayed whole. The student, which is the teacher itself,
    is cut in the same way whatever its own setting, so their divergence is 0."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    posterior = ner.posterior([doc_of(nlp), doc_of(nlp, starts=False)])
    saved_with_docs = expectations(posterior.potentials, posterior.tags, posterior.doc_of_sequence)
    examples = []
    for saved, has_starts in zip(saved_with_docs, (True, False)):
        reference = doc_of(nlp)
        reference.user_data[SOFT_TARGETS_KEY] = saved
        examples.append(Example(doc_of(nlp, starts=has_starts), reference))

    for boundaries in (True, False):
        ner.objective.annotation = replace(ner.annotation, sentence_boundaries=boundaries)
        scores = ner.model.predict([eg.predicted for eg in examples])
        for targets in ner.objective.targets(examples, ner.chain_tags).to_list():
            assert targets.lengths.tolist() == [2, 3, 1, 6]
            result, _ = ner.objective.evaluate(targets, scores, Progress())
            assert result.value == pytest.approx(0, abs=1e-4)
            assert_allclose(result.gradient.emissions, 0, atol=1e-5)

        pieces = read_pieces(ner.model, ner.objective, ner.chain_tags, examples)
        features, targets = join_pieces(pieces.by_doc).read()
        assert features.lengths.tolist() == targets.lengths.tolist() == [2, 3, 1, 6]
        assert targets.soft is not None and targets.soft.weights.tolist() == [1, 1, 1, 1]


def test_a_first_pass_predicts_each_sequence_alone() -> None:
    nlp = random_model(model=TWO_PASSES)
    ner = nlp.get_pipe("ner")
    first_pass = first_pass_of(ner.model)
    assert first_pass is not None
    rows = first_pass.weights.rows
    rows[:] = numpy.random.default_rng(1).normal(size=rows.shape)
    features, _ = linear_part(ner.model)
    doc = doc_of(nlp)
    feature_batch = features.find([doc])

    probabilities = first_pass.predict(feature_batch, [doc])

    scores = first_pass.weights.potentials(feature_batch)
    scores = scores._replace(lengths=numpy.asarray([2, 3, 1], dtype="int32"))
    marginals = chain.marginals(chain.constrain(scores, first_pass.tags.constraints))
    is_outside = first_pass.tags.label_of < 0
    prob_of_outside = probabilities[:, 0]
    assert_allclose(prob_of_outside, marginals[:, is_outside].sum(axis=1), atol=1e-5)


def test_reasons_of_explain_add_up_to_the_score_of_the_best_path() -> None:
    """The doc has three sequences, whose starts and ends are among the reasons."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    doc = nlp.make_doc("Ana Lee\nsaw\nRome saw")
    reasons = explain_tokens(ner, doc, linear_part(ner.model)[0].names(), 3)
    best = chain.best_path(ner.posterior([doc]).scores).scores
    assert len(best) == 3
    total = sum(reason.score + reason.transition for reason in reasons)
    assert total == pytest.approx(best.sum(), rel=1e-4)


@pytest.mark.parametrize(
    "setting, has_starts, is_cut",
    [(None, False, True), (True, True, True), (False, False, False)],
    ids=str,
)
@pytest.mark.parametrize("name", ["a.conll", "a.spacy"])
def test_training_cuts_docs_at_the_sentences_of_a_file_of_any_format(
    name: str, setting: bool | None, has_starts: bool, is_cut: bool, tmp_path: Path
) -> None:
    """Unless `sentences = false`. Predicted docs have the sentences only if it is true. In the
    .spacy file the tokenizer makes three tokens of "Ana left."."""
    nlp, _ = initialized(sentence_boundaries=True)
    ner = nlp.get_pipe("ner")
    columns = "-DOCSTART-\n\nAna O\nleft. O\n\nOslo O\n. O\n\nSo O\n"
    (tmp_path / "a.conll").write_text(columns)
    words = ["Ana", "left.", "Oslo", ".", "So"]
    spaces = [True] * 5
    reference = Doc(nlp.vocab, words, spaces, sent_starts=[1, -1, 1, -1, 1], ents=["O"] * 5)
    DocBin(docs=[reference]).to_disk(tmp_path / "a.spacy")

    (eg,) = make_reader(tmp_path / name, sentences=setting)(nlp)

    assert eg.predicted.has_annotation("SENT_START") is has_starts
    targets = ner.objective.targets([eg], ner.chain_tags)
    first_sentence = 2 if name == "a.conll" else 3
    whole_doc = [first_sentence + 3]
    assert targets.by_doc.lengths.tolist() == whole_doc
    assert targets.finest.lengths.tolist() == ([first_sentence, 2, 1] if is_cut else whole_doc)


def test_sentences_of_training_are_those_of_predicted_docs_if_they_are_known() -> None:
    """A component may have set them. Otherwise a sentence begins at a token of the predicted doc
    that begins at the same character as a sentence of the reference. The last sentence of the
    reference begins within "Leesaw"."""
    nlp, _ = initialized()
    words = ["Rome", "saw", "Lee", "Lee", "saw"]
    spaces = [True, True, True, False, False]
    reference = Doc(nlp.vocab, words, spaces, sent_starts=[1, -1, 1, -1, 1])
    words_of_predicted = ["Rome", "saw", "Lee", "Leesaw"]
    predicted = Doc(nlp.vocab, words_of_predicted, spaces[:4])
    annotated = Doc(nlp.vocab, words_of_predicted, spaces[:4], sent_starts=[1, 1, -1, -1])

    of_reference = sentence_starts(Example(predicted, reference))
    of_component = sentence_starts(Example(annotated, reference))

    assert of_reference.tolist() == [False, False, True, False]
    assert of_component.tolist() == [False, True, False, False]


def test_training_has_no_sentences_where_neither_doc_has_them() -> None:
    nlp, _ = initialized()
    eg = Example(doc_of(nlp, starts=False), doc_of(nlp, starts=False))
    assert not sentence_starts(eg).any()


def test_training_has_no_sentences_of_another_text() -> None:
    """In a text with more whitespace, other tokens begin at the same characters."""
    nlp, _ = initialized()
    predicted = Doc(nlp.vocab, ["Rome", "saw", "Lee"])
    words = ["Rome", "    ", "saw", "Lee"]
    spaces = [True, False, True, True]
    reference = Doc(nlp.vocab, words, spaces, sent_starts=[1, -1, 1, -1])
    assert not sentence_starts(Example(predicted, reference)).any()


def test_features_of_training_docs_are_those_of_texts_without_sentence_starts() -> None:
    """This holds even for features of sentence starts, which an extension attribute may read. The
    sentence starts of the reference are for the chain alone: it has one sequence or three, as no
    entity is across a border here."""
    Token.set_extension("begins", getter=lambda token: bool(token.is_sent_start), force=True)
    features = {**FEATURES, "windows": {"ORTH": 1, "_.begins": 1}}
    nlp, _ = initialized(model={**TWO_PASSES, "features": features}, sentence_boundaries=True)
    eg = Example(doc_of(nlp, starts=False), doc_of(nlp, "B-X O B-X O B-X O"))
    nlp.initialize(lambda: [eg])
    ner = nlp.get_pipe("ner")
    features_of_model, _ = linear_part(ner.model)
    with_starts = features_of_model.find([doc_of(nlp)])
    without_starts = features_of_model.find([doc_of(nlp, starts=False)])
    assert (with_starts.rows != without_starts.rows).any()

    pieces = read_pieces(ner.model, ner.objective, ner.chain_tags, [eg])

    assert [len(segmentation) for segmentation in pieces.to_list()] == [1, 3]
    for segmentation in pieces.to_list():
        in_training, _ = join_pieces(segmentation).read()
        assert_array_equal(in_training.rows, without_starts.rows)


def test_a_model_of_two_passes_learns_from_one_doc() -> None:
    """Its first pass is trained in several folds, and all of them but one have no docs."""
    nlp, _ = initialized(model=TWO_PASSES)
    eg = Example(doc_of(nlp), doc_of(nlp, "B-X O B-X O B-X O"))
    nlp.initialize(lambda: [eg])
    assert nlp.update([eg])["ner"] > 0


# What an epoch or an update takes


def test_updates_of_even_epochs_take_docs_and_those_of_odd_ones_sequences() -> None:
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    batch = [Example(doc_of(nlp), doc_of(nlp, "B-X O B-X O B-X I-X"))]
    scores = ner.model.predict([eg.predicted for eg in batch])
    targets = ner.objective.targets(batch, ner.chain_tags)
    expected = []
    for of_segmentation in targets.to_list():
        result, _ = ner.objective.evaluate(of_segmentation, scores, Progress())
        expected.append(result.value / len(WORDS))
    assert expected[0] != pytest.approx(expected[1])
    for epoch in range(4):
        ner.cfg["progress"] = Progress(epochs=epoch)._asdict()
        assert ner.get_loss(batch, scores)[0] == pytest.approx(expected[epoch % 2])


def test_epochs_of_online_training_alternate_between_docs_and_sequences() -> None:
    """The doc is one sequence, or two, as its last entity is across the second border."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    examples = [Example(doc_of(nlp), doc_of(nlp, "B-X O B-X O B-X I-X"))]
    batches = read_batches(ner.model, ner.objective, ner.chain_tags, [examples])
    assert batches.by_sequence is not None
    n_sequences_of_steps = []

    def recorded(batch: Batch) -> Batch:
        def read_and_record() -> Any:
            n_sequences_of_steps.append(batch.n_sequences)
            return batch.read()

        return Batch(batch.n_sequences, read_and_record)

    recorded_batches = batches.map(lambda of_epoch: [recorded(batch) for batch in of_epoch])
    weights = linear_part(ner.model)[1]
    train(weights, ner.objective, recorded_batches, Adam(), max_epochs=5)
    assert n_sequences_of_steps == [1, 2, 1, 2, 1]


def test_joined_segmentations_have_docs_without_borders_in_all_epochs() -> None:
    """Another part of the corpus has borders."""
    cut = Segmentations(["doc"], ["begin", "end"])
    plain = Segmentations(["line"])
    joined = concatenate([plain, cut, plain])
    assert joined.by_doc == joined.in_epoch(2) == ["line", "doc", "line"]
    assert joined.by_sequence == joined.in_epoch(3) == ["line", "begin", "end", "line"]
    assert concatenate([plain, plain]) == Segmentations(["line", "line"])


@pytest.mark.parametrize("is_gold", [True, False])
def test_a_gold_or_preset_entity_across_a_border_joins_sequences(is_gold: bool) -> None:
    """The sequences have 2, 3 and 1 tokens, and the entity has the tokens 1 and 2."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    predicted = doc_of(nlp)
    reference = doc_of(nlp)
    doc = reference if is_gold else predicted
    doc.set_ents([Span(doc, 1, 3, "X")], default="missing")
    targets = ner.objective.targets([Example(predicted, reference)], ner.chain_tags)
    assert targets.finest.lengths.tolist() == [5, 1]


def test_the_loss_of_rehearsal_is_that_of_sequences() -> None:
    """Features are of a token alone here, so a doc for each sequence has the same features."""
    nlp = random_model("sentences")
    ner = nlp.get_pipe("ner")
    nlp.resume_training()
    rows = linear_part(ner.model)[1].rows
    rows[:] += numpy.random.default_rng(2).normal(size=rows.shape)

    loss_by_token = ner.rehearse([Example(doc_of(nlp), doc_of(nlp))])["ner"]

    losses_of_sequences = []
    for begin, end in pairwise([*STARTS, len(WORDS)]):
        doc = Doc(nlp.vocab, words=WORDS[begin:end])
        losses_of_sequences.append(ner.rehearse([Example(doc, doc.copy())])["ner"] * (end - begin))
    assert loss_by_token * len(WORDS) == pytest.approx(sum(losses_of_sequences), rel=1e-4)


def test_sequences_have_the_weight_of_their_doc() -> None:
    """This holds where docs are cut into several sequences, and where they are not."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    examples = [Example(doc_of(nlp), doc_of(nlp)) for _ in range(3)]
    for eg, weight in zip(examples, (2.0, 3.0, 5.0)):
        eg.reference.user_data[WEIGHT] = weight
    pieces = read_pieces(ner.model, ner.objective, ner.chain_tags, examples)
    weights = []
    for of_segmentation in pieces.to_list():
        _, targets = join_pieces(of_segmentation).read()
        weights.append(targets.gold.weights.tolist())
    assert weights == [[2, 3, 5], [2, 2, 2, 3, 3, 3, 5, 5, 5]]
