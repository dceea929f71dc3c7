"""Docs of several sequences: where they are cut, and that answers are those of the sequences."""

import math
import random
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.util import registry
from thinc.api import Adam

from spacy_costner import chain
from spacy_costner.analysis.explanation import explain_tokens
from spacy_costner.annotation import Annotation
from spacy_costner.borders import cut, find_borders
from spacy_costner.costs.tables import make_hamming_cost
from spacy_costner.decoding import Posterior, make_min_cost, make_threshold, make_viterbi
from spacy_costner.ml import first_pass_of, linear_part
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.readers.corpus import make_reader
from spacy_costner.training.lbfgs import TotalLoss
from spacy_costner.training.objective import Objective
from spacy_costner.training.online import Batch, read_batches, train
from spacy_costner.training.pieces import batch_pieces, join, read_pieces
from spacy_costner.training.segmentations import Segmentations, concatenate
from spacy_costner.training.soft_targets import KEY, expectations
from spacy_costner.training.targets import WEIGHT
from spacy_costner.types import Gold, LossResult, Potentials, Progress, map_scores, no_scores

from . import oracle, oracle_losses
from .support.batches import single
from .support.config import FEATURES
from .support.fitting import examples_of, initialized
from .support.gradients import check_loss_directions
from .support.split import split_of

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


@pytest.mark.parametrize("outside", ["single", "before"])
@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
def test_marginals_and_entropies_are_those_of_enumerated_sequences(
    scheme: str, outside: str
) -> None:
    nlp = random_model(scheme=scheme, outside=outside)
    ner = nlp.get_pipe("ner")
    second_doc = doc_of(nlp, starts=False)[:2].as_doc()
    posterior = ner.posterior([doc_of(nlp), second_doc])
    scores = sequences_of(ner, ner.model.predict([doc_of(nlp)]), [2, 3, 1])
    paths = [oracle.paths(scores, b) for b in range(3)]
    probs = [oracle.probabilities(paths_of_sequence) for paths_of_sequence in paths]
    marginals = numpy.concatenate([marginals_of(ner, scores, b) for b in range(3)])
    assert_allclose(posterior.marginals[:6], ner.chain_tags.collapse(marginals), atol=1e-5)
    entropy = sum(oracle.entropy(scores, b).value for b in range(3))
    assert posterior.entropy[0] == pytest.approx(entropy, abs=1e-4)
    assert len(posterior.entropy) == 2 and posterior.doc_lengths.tolist() == [6, 2]

    # A path of a doc is a path of each of its sequences.
    doc_probs = sorted(map(math.prod, product(*probs)), reverse=True)
    best, best_of_second = ner.k_best([doc_of(nlp), second_doc], 20)
    assert_allclose([alternative.prob for alternative in best], doc_probs[:20], rtol=1e-4)
    ents = {tuple((e.start, e.end, e.label_) for e in alternative.ents) for alternative in best}
    assert len(ents) == 20
    for alone, together in zip(ner.k_best([second_doc], 9)[0], best_of_second):
        assert alone.log_probability == pytest.approx(together.log_probability, abs=1e-5)
    for decoding in (make_viterbi(bias=0.7), make_threshold(threshold=0.1)):
        ner.set_decoding(decoding)
        expected = []
        for b, begin in enumerate(STARTS):
            alone = Posterior(single(scores, b), ner.chain_tags)
            entities = decoding.decode(alone, decoding.settings).entities
            expected += zip(begin + entities.begin, begin + entities.end)
        assert [(e.start, e.end) for e in ner(doc_of(nlp)).ents] == expected != []


@pytest.mark.parametrize("name", oracle_losses.LOSSES)
def test_losses_are_those_of_enumerated_sequences(name: str) -> None:
    """The entity across the second border joins two sequences."""
    ner, row = SPLIT.get_pipe("ner"), oracle_losses.LOSSES[name]
    eg = Example(doc_of(SPLIT), doc_of(SPLIT, "B-X O B-X O B-X I-X"))
    cost = {"cost": make_hamming_cost()} if row.has_cost else {}

    def compute(scores: Potentials) -> LossResult:
        loss = registry.losses.get(f"spacy_costner.{name.split(',')[0]}.v1")(**row.settings, **cost)
        annotation = Annotation(sentence_boundaries=True)
        objective = Objective("ner", SPLIT.vocab.strings, loss, annotation=annotation)
        targets = objective.targets([eg], ner.chain_tags).finest
        assert targets.lengths.tolist() == [2, 4] and targets.doc_of.tolist() == [0, 0]
        return objective.evaluate(targets, scores, Progress())[0]

    tags = ner.chain_tags.collapsed
    gold = numpy.asarray([tags.names.index(tag) for tag in ["B-X", "O", "B-X", "O", "B-X", "I-X"]])
    of_gold = make_hamming_cost()(tags)[gold] if row.has_cost else None
    annotation = Gold(gold, cost=of_gold, opening=tags.opening, continuing=tags.continuing)
    scores = map_scores(lambda x: x.astype("float64"), ner.model.predict([eg.predicted]))
    legal = sequences_of(ner, scores, [2, 4])
    batch = oracle_losses.sequences(legal, annotation, split=split_of(ner.chain_tags))
    result = compute(scores)
    assert result.value == pytest.approx(row.define(batch), rel=1e-8)
    assert_array_equal(result.gradient.lengths, [6])
    check_loss_directions(compute, scores)


@pytest.mark.parametrize("seed", range(3))
def test_the_least_expected_cost_is_that_of_enumerated_sequences(seed: int) -> None:
    nlp = random_model(scheme="BILUO", outside="before")
    ner = nlp.get_pipe("ner")
    table = numpy.random.default_rng(seed).uniform(size=(5, 5))
    ner.set_decoding(make_min_cost(cost=lambda tags: table))
    docs = [doc_of(nlp), doc_of(nlp, starts=False)]
    posterior = ner.posterior(docs)
    tags = ner.chain_tags.collapsed
    lengths = numpy.asarray([2, 3, 1, 6], dtype="int32")
    # All legal paths of annotation, with the score 0
    legal = chain.constrain(no_scores(lengths, len(tags), "float64"), tags.constraints)
    best: list[int] = []
    for b, length in enumerate(lengths.tolist()):
        marginals = ner.chain_tags.collapse(marginals_of(ner, posterior.scores, b))
        expected_costs = marginals @ table
        costs: dict[tuple[int, ...], float] = {}
        for path in oracle.paths(legal, b):
            costs[path.tags] = expected_costs[numpy.arange(length), list(path.tags)].sum()
        best += min(costs, key=lambda path: costs[path])
    expected = tags.decode(numpy.asarray(best), lengths)
    spans: list[tuple[int, int]] = []
    for first_token, doc in zip((0, 6), docs):
        spans += [(first_token + e.start, first_token + e.end) for e in ner(doc).ents]
    assert spans == [*zip(expected.begin.tolist(), expected.end.tolist())] != []


def test_preset_entities_across_a_border_join_two_sequences() -> None:
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    doc = doc_of(nlp)
    doc.set_ents([Span(doc, 1, 3, "X")], default="missing")
    posterior = ner.posterior([doc], preset=True)
    assert posterior.scores.lengths.tolist() == [5, 1]
    assert ner.posterior([doc]).scores.lengths.tolist() == [2, 3, 1]
    assert (1, 3) in [(ent.start, ent.end) for ent in ner(doc).ents]
    tags = ner.chain_tags
    paths = oracle.paths(posterior.scores, 0)
    for path in paths:
        assert (1, 3) in zip(*tags.decode(numpy.asarray(path.tags), numpy.asarray([5]))[:2])
    assert paths
    entropy = sum(oracle.entropy(posterior.scores, b).value for b in range(2))
    assert posterior.entropy[0] == pytest.approx(entropy, abs=1e-4)


MODEL, SPLIT = random_model(), random_model(outside="before")


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 4))
def test_predicted_entities_do_not_depend_on_the_batch(kinds: list[int], batch_size: int) -> None:
    text_of_kind = ["Ana Lee\nsaw\n\nRome", "Rome", "\nAna\n Lee saw Rome"]
    texts = [text_of_kind[kind] for kind in kinds]
    entities_alone = [entities_in_tokens(MODEL(text)) for text in texts]
    docs = MODEL.pipe(texts, batch_size=batch_size)
    assert [entities_in_tokens(doc) for doc in docs] == entities_alone


def entities_in_tokens(doc: Doc) -> list[tuple[int, int, str]]:
    return [(ent.start, ent.end, ent.label_) for ent in doc.ents]


def test_training_at_once_takes_the_mean_loss_of_docs_and_of_their_sequences() -> None:
    """The loss over all examples is the mean over both segmentations, plus the penalty."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    examples = [Example(doc_of(nlp), doc_of(nlp, "B-X O B-X O B-X I-X")), *examples_of(nlp)]
    total_loss = TotalLoss(ner.model, ner.objective, ner.chain_tags, examples, c2=0.3)
    vector = total_loss.read_weights()
    value, gradient = total_loss(vector)
    total_loss.write_weights(vector)
    scores = ner.model.predict([eg.predicted for eg in examples])
    targets = ner.objective.targets(examples, ner.chain_tags)
    assert targets.by_sequence is not None
    by_doc, _ = ner.objective.evaluate(targets.by_doc, scores, ner.progress)
    by_sequence, _ = ner.objective.evaluate(targets.by_sequence, scores, ner.progress)
    penalty = 0.3 * float(vector @ vector)
    assert value == pytest.approx(penalty + (by_doc.value + by_sequence.value) / 2, rel=1e-5)

    # The gradient is that of central differences.
    step = 1e-2 * numpy.random.default_rng(2).normal(size=vector.shape)
    value_before, _ = total_loss(vector - step)
    value_after, _ = total_loss(vector + step)
    expected = 2 * float(gradient @ step)
    assert value_after - value_before == pytest.approx(expected, rel=2e-3, abs=2e-4)


def test_pieces_of_epochs_alternate_between_docs_and_sequences() -> None:
    nlp = random_model(outside="before")
    ner = nlp.get_pipe("ner")
    examples = [Example(doc_of(nlp), doc_of(nlp, "B-X O B-X O B-X I-X")), *examples_of(nlp)]
    pieces = read_pieces(ner.model, ner.objective, ner.chain_tags, examples)
    assert pieces.by_sequence is not None
    assert [len(piece) for piece in pieces.by_doc] == [6, 3, 4, 2]
    assert [len(piece) for piece in pieces.by_sequence] == [2, 4, 3, 4, 2]
    for epoch in range(3):
        features, targets = join(pieces.in_epoch(epoch)).read()
        expected = ner.objective.targets_in_epoch(examples, ner.chain_tags, epoch)
        assert_array_equal(targets.lengths, expected.lengths)
        assert_array_equal(targets.gold.tags, expected.gold.tags)
        assert_array_equal(features.lengths, expected.lengths)


def test_batches_of_docs_alternate_between_docs_and_sequences() -> None:
    """With incorrect spans training is on docs in place of pieces. One of the four has a border."""
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
    """The divergence of a model from itself is 0, whatever the student's setting."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    posterior = ner.posterior([doc_of(nlp), doc_of(nlp, starts=False)])
    saved_with_docs = expectations(posterior.potentials, posterior.tags, posterior.doc_of)
    examples = []
    for saved, has_starts in zip(saved_with_docs, (True, False)):
        reference = doc_of(nlp)
        reference.user_data[KEY] = saved
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
        features, targets = join(pieces.by_doc).read()
        assert features.lengths.tolist() == targets.lengths.tolist() == [2, 3, 1, 6]
        assert targets.soft is not None and targets.soft.weights.tolist() == [1, 1, 1, 1]


def test_a_first_pass_predicts_each_sequence_alone() -> None:
    nlp = random_model(model=TWO_PASSES)
    ner = nlp.get_pipe("ner")
    first_pass, features = first_pass_of(ner.model), linear_part(ner.model)[0]
    assert first_pass is not None
    rows = first_pass.weights.rows
    rows[:] = numpy.random.default_rng(1).normal(size=rows.shape)
    doc = doc_of(nlp)
    feature_batch = features.find([doc])
    scores = first_pass.weights.potentials(feature_batch)
    scores = scores._replace(lengths=numpy.asarray([2, 3, 1], dtype="int32"))
    marginals = chain.marginals(chain.constrain(scores, first_pass.tags.constraints))
    is_outside = first_pass.tags.label_of < 0
    expected = marginals[:, is_outside].sum(axis=1)

    probabilities = first_pass.predict(feature_batch, [doc])

    prob_of_outside = probabilities[:, 0]
    assert_allclose(prob_of_outside, expected, atol=1e-5)


def test_reasons_of_explain_add_up_to_the_score_of_the_best_path() -> None:
    """Of three sequences: their starts and ends are among the reasons."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    doc = nlp.make_doc("Ana Lee\nsaw\nRome saw")
    reasons = explain_tokens(ner, doc, linear_part(ner.model)[0].names(), 3)
    best = chain.best_path(ner.posterior([doc]).scores).scores
    assert len(best) == 3
    total = sum(reason.score + reason.transition for reason in reasons)
    assert total == pytest.approx(best.sum(), rel=1e-4)


@pytest.mark.parametrize(
    "setting, of_columns, of_docbin", [(None, 3, 0), (True, 3, 3), (False, 0, 0)], ids=str
)
def test_readers_set_sentence_starts_of_predicted_docs(
    setting: bool | None, of_columns: int, of_docbin: int, tmp_path: Path
) -> None:
    """Of columns by default, of .spacy files if they are asked to; where the tokenizer makes other
    tokens ("left" and "."), too."""
    nlp = spacy.blank("xx")
    reference = Doc(nlp.vocab, words=["Ana", "left.", "Oslo", ".", "So"])
    for token in reference:
        token.is_sent_start = token.i in (0, 2, 4)
    reference.set_ents([])
    DocBin(docs=[reference]).to_disk(tmp_path / "a.spacy")
    columns = "-DOCSTART-\n\nAna O\nleft. O\n\nOslo O\n. O\n\nSo O\n"
    (tmp_path / "a.conll").write_text(columns)
    for name, n_sentences in (("a.conll", of_columns), ("a.spacy", of_docbin)):
        (eg,) = make_reader(tmp_path / name, sentences=setting)(nlp)
        starts = [token.text for token in eg.predicted if token.is_sent_start]
        assert starts[:n_sentences] == ["Ana", "Oslo", "So"][:n_sentences]
        assert eg.predicted.has_annotation("SENT_START") is (n_sentences > 0)


def test_a_model_of_two_passes_learns_from_one_doc() -> None:
    """The folds that its first pass is trained in have no docs but in one."""
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
    """Of a corpus of which another part has borders."""
    cut = Segmentations(["doc"], ["begin", "end"])
    plain = Segmentations(["line"])
    joined = concatenate([plain, cut, plain])
    assert joined.by_doc == joined.in_epoch(2) == ["line", "doc", "line"]
    assert joined.by_sequence == joined.in_epoch(3) == ["line", "begin", "end", "line"]
    assert concatenate([plain, plain]) == Segmentations(["line", "line"])


@pytest.mark.parametrize("is_gold", [True, False])
def test_a_gold_or_preset_entity_across_a_border_joins_sequences(is_gold: bool) -> None:
    """Of 2, 3 and 1 tokens: the entity is tokens 1 and 2."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    predicted = doc_of(nlp)
    reference = doc_of(nlp)
    doc = reference if is_gold else predicted
    doc.set_ents([Span(doc, 1, 3, "X")], default="missing")
    targets = ner.objective.targets([Example(predicted, reference)], ner.chain_tags)
    assert targets.finest.lengths.tolist() == [5, 1]


def test_the_loss_of_rehearsal_is_that_of_sequences() -> None:
    """Here features are of a token alone: docs of one sequence each have the same ones."""
    nlp = random_model("sentences")
    ner = nlp.get_pipe("ner")
    nlp.resume_training()
    rows = linear_part(ner.model)[1].rows
    rows[:] += numpy.random.default_rng(2).normal(size=rows.shape)
    whole = Example(doc_of(nlp), doc_of(nlp))
    loss = ner.rehearse([whole])["ner"]
    parts = []
    for begin, end in pairwise([*STARTS, len(WORDS)]):
        part = Doc(nlp.vocab, words=WORDS[begin:end])
        parts.append(ner.rehearse([Example(part, part.copy())])["ner"] * (end - begin))
    assert loss * len(WORDS) == pytest.approx(sum(parts), rel=1e-4)


def test_sequences_have_the_weight_of_their_doc() -> None:
    """Where docs are cut, so that a doc has several, and where they are not."""
    nlp = random_model()
    ner = nlp.get_pipe("ner")
    examples = [Example(doc_of(nlp), doc_of(nlp)) for _ in range(3)]
    for eg, weight in zip(examples, (2.0, 3.0, 5.0)):
        eg.reference.user_data[WEIGHT] = weight
    pieces = read_pieces(ner.model, ner.objective, ner.chain_tags, examples)
    weights = []
    for of_segmentation in pieces.to_list():
        _, targets = join(of_segmentation).read()
        weights.append(targets.gold.weights.tolist())
    assert weights == [[2, 3, 5], [2, 2, 2, 3, 3, 3, 5, 5, 5]]
