"""Soft targets: the divergence by enumeration, whatever the schemes; and in training."""

import math
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
from numpy.testing import assert_allclose
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.api import Adam

from spacy_costner import chain
from spacy_costner.tags import Tags
from spacy_costner.training.pieces import join_pieces
from spacy_costner.training.pieces import read_pieces as pieces_of_corpus
from spacy_costner.training.soft_targets import (
    SOFT_TARGETS_KEY,
    SoftTargets,
    divergence,
    expectations,
    has_soft_targets,
    mean,
    read_soft_targets,
)
from spacy_costner.training.targets import WEIGHT
from spacy_costner.types import LossResult, Potentials

from .. import oracle
from ..support.batches import random_potentials
from ..support.fitting import initialized, loss_block, read_batches, read_pieces
from ..support.gradients import check_loss_gradient
from ..support.vocabs import blank_vocab

LENGTHS = [3, 0, 1]
"""The tokens of the docs of a batch."""

CLOSE = 1e-5
"""The tolerance of comparisons: expectations are saved in float32, and the smallest not at all."""

ENTITIES = tuple[tuple[int, int, str], ...]
STUDENTS = [
    Tags(labels, scheme, outside)
    for labels in (["y", "x"], ["w", "x", "y"])
    for scheme in ("IOB2", "BILUO")
    for outside in ("single", "before")
    if (len(labels), scheme, outside) != (3, "BILUO", "before")  # too many paths
]
TEACHERS = [
    Tags(["x", "y"], scheme, outside)
    for scheme in ("IOB2", "BILUO")
    for outside in ("single", "before")
]


def names(tags: Tags) -> str:
    """Scheme, outside and number of labels, as the id of a test."""
    return f"{tags.scheme.name}-{tags.outside}-{len(tags.labels)}"


def constrained(tags: Tags, seed: int = 0) -> Potentials:
    """Random scores of LENGTHS under the constraints of tags."""
    potentials = random_potentials(LENGTHS, len(tags), scale=1.5, seed=seed)
    return chain.constrain(potentials, tags.constraints)


def entities(tags: Tags, path: Sequence[int]) -> ENTITIES:
    """The entities of a path, in order: begin, end, label."""
    decoded = tags.decode(numpy.asarray(path, dtype="int32"), numpy.asarray([len(path)]))
    rows = numpy.stack(decoded, axis=1).tolist()
    return tuple((begin, end, tags.labels[label]) for begin, end, label in rows)


def distribution(potentials: Potentials, tags: Tags, b: int) -> dict[ENTITIES, float]:
    """The probability of each set of entities of a doc, by enumeration."""
    paths = oracle.paths(potentials, b)
    probabilities: dict[ENTITIES, float] = {}
    for path, probability in zip(paths, oracle.probabilities(paths)):
        probabilities[entities(tags, path.tags)] = probability
    assert len(probabilities) == len(paths)
    return probabilities


def enumerated(scores: Potentials, student: Tags, teacher: Potentials, tags: Tags) -> float:
    """sum_y p(y) log (p(y) / q(y)) over sets of entities with the teacher's labels."""
    total = 0.0
    constrained_scores = chain.constrain(scores, student.constraints)
    for b in range(len(LENGTHS)):
        p = distribution(teacher, tags, b)
        q = distribution(constrained_scores, student, b)
        # The student may have more labels: q is taken among the entities that the teacher may have.
        q_of_teacher = math.fsum(q[y] for y in p)
        for y, p_y in p.items():
            if p_y:
                total += p_y * math.log(p_y / (q[y] / q_of_teacher))
    return total


def soft_for(student: Tags, saved: Sequence[Any], weights: Any = None) -> SoftTargets:
    """The soft targets of a batch, read for a student, as they were saved with each doc."""
    vocab = blank_vocab()
    examples = []
    for n_tokens, saved_with_doc in zip(LENGTHS, saved):
        words = ["a"] * n_tokens
        reference = Doc(vocab, words=words)
        reference.user_data[SOFT_TARGETS_KEY] = saved_with_doc
        examples.append(Example(Doc(vocab, words=words), reference))

    soft, is_left_out = read_soft_targets(
        examples,
        student,
        student.constraints,
        lengths=numpy.asarray(LENGTHS, dtype="int32"),
        doc_of_sequence=numpy.arange(len(LENGTHS)),
        weights=weights,
    )
    assert soft is not None and not is_left_out.any()
    return soft


@pytest.mark.parametrize("student", STUDENTS, ids=names)
@pytest.mark.parametrize("teacher", TEACHERS, ids=names)
def test_divergence_is_that_of_enumerated_entities(student: Tags, teacher: Tags) -> None:
    scores = random_potentials(LENGTHS, len(student), scale=1.5, seed=1)
    potentials = constrained(teacher)
    soft = soft_for(student, list(expectations(potentials, teacher)))
    expected = enumerated(scores, student, potentials, teacher)
    assert expected > 0.1
    assert divergence(scores, soft).value == pytest.approx(expected, abs=CLOSE)


def test_the_entropy_is_0_for_a_doc_without_a_possible_path() -> None:
    """It is the entropy of the others."""
    tags = Tags(["X"], "IOB2")
    potentials = constrained(tags)
    entropies, _ = chain.entropy(potentials)
    first_length = potentials.lengths[0]
    potentials.emissions[:first_length] = -numpy.inf

    saved = [targets["entropy"] for targets in expectations(potentials, tags)]

    assert_allclose(saved, [0.0, *entropies[1:]], atol=1e-6)


def test_the_gradient_of_the_divergence_is_its_derivative() -> None:
    student = Tags(["w", "y", "x"], "IOB2", "before")
    teacher = Tags(["x", "y"], "BILUO")
    scores = random_potentials(LENGTHS, len(student), scale=1.5, seed=1)
    saved = list(expectations(constrained(teacher), teacher))
    soft = soft_for(student, saved, weights=numpy.asarray([1.0, 2.0, 3.0]))
    check_loss_gradient(
        lambda moved: divergence(moved, soft), lambda moved: divergence(moved, soft).value, scores
    )
    # Of the label that the teacher lacks nothing is said.
    is_unknown_label = student.label_of == student.labels.index("w")
    assert not divergence(scores, soft).gradient.emissions[:, is_unknown_label].any()


def test_divergence_from_several_teachers_is_the_mean() -> None:
    student = Tags(["x", "y"], "BILUO")
    scores = random_potentials(LENGTHS, len(student), seed=1)
    teachers = [*TEACHERS[:2], Tags(["y", "x"], "BILUO")]
    saved_by_teacher = []
    for seed, tags in enumerate(teachers):
        saved_by_teacher.append(list(expectations(constrained(tags, seed), tags)))
    averages = [mean(saved_with_doc) for saved_with_doc in zip(*saved_by_teacher)]

    from_mean = divergence(scores, soft_for(student, averages))
    from_teachers = [divergence(scores, soft_for(student, saved)) for saved in saved_by_teacher]

    mean_value = numpy.mean([result.value for result in from_teachers])
    assert from_mean.value == pytest.approx(mean_value, abs=CLOSE)
    for field in ("emissions", "transitions", "start", "end"):
        gradients = [getattr(result.gradient, field) for result in from_teachers]
        mean_gradient = numpy.mean(gradients, axis=0)
        assert_allclose(getattr(from_mean.gradient, field), mean_gradient, atol=CLOSE)


def test_a_student_has_the_labels_of_its_teacher() -> None:
    """The label Y is among them, which no entity of the examples has."""
    nlp, examples = initialized()
    tags = Tags(["X", "Y"])
    teach(examples[0], tags, seed=0)

    nlp.initialize(lambda: examples)

    assert nlp.get_pipe("ner").labels == ("X", "Y")


def teach(example: Example, tags: Tags, seed: int) -> None:
    """Give a doc the soft targets of random potentials."""
    potentials = random_potentials([len(example.reference)], len(tags), scale=2, seed=seed)
    legal = chain.constrain(potentials, tags.constraints)
    (example.reference.user_data[SOFT_TARGETS_KEY],) = expectations(legal, tags)


def test_a_student_without_a_label_of_its_teacher_is_refused() -> None:
    saved = list(expectations(constrained(TEACHERS[0]), TEACHERS[0]))
    with pytest.raises(ValueError, match=r"labels of its teacher, got \['x'\], without \['y'\]"):
        soft_for(Tags(["x"]), saved)


# In training


def taught(n_taught: int = 2, **settings: Any) -> Any:
    """A component, and examples the first of which have soft targets from other potentials."""
    nlp, examples = initialized(**settings)
    ner = nlp.get_pipe("ner")
    tags = Tags(ner.labels, "BILUO")
    for seed, eg in enumerate(examples[:n_taught]):
        teach(eg, tags, seed)
    return nlp, ner, examples


def loss_of_doc(ner: Any, scores: Potentials, example: Example, first_token: int) -> Any:
    """Value, summed over tokens, and gradient of one doc of a batch, from its first token on."""
    n_tokens = len(example.predicted)
    emissions = scores.emissions[first_token : first_token + n_tokens]
    doc_scores = scores._replace(emissions=emissions, lengths=numpy.asarray([n_tokens]))
    value, gradient = ner.get_loss([example], doc_scores)
    return value * n_tokens, gradient


def test_a_batch_has_gold_and_soft_targets() -> None:
    """Two docs have soft targets, and the third has only gold. The loss of the batch is the sum of
    the losses of its docs alone: two divergences, and the loss of gold. The gradient is their sum,
    too; that of the emissions has the tokens of one doc after another."""
    _, ner, examples = taught(n_taught=2)
    scores = ner.model.predict([eg.predicted for eg in examples])

    loss_of_token, gradient_of_batch = ner.get_loss(examples, scores)

    first_token = 0
    sum_of_losses = 0.0
    gradients = []
    for eg in examples:
        value_of_doc, gradient_of_doc = loss_of_doc(ner, scores, eg, first_token)
        sum_of_losses += value_of_doc
        gradients.append(gradient_of_doc)
        first_token += len(eg.predicted)

    n_tokens = sum(len(eg.predicted) for eg in examples)
    assert loss_of_token * n_tokens == pytest.approx(sum_of_losses, abs=CLOSE)
    emissions = numpy.concatenate([gradient.emissions for gradient in gradients])
    assert_allclose(gradient_of_batch.emissions, emissions, atol=CLOSE)
    for field in ("transitions", "start", "end"):
        sum_over_docs = sum(getattr(gradient, field) for gradient in gradients)
        assert_allclose(getattr(gradient_of_batch, field), sum_over_docs, atol=CLOSE)


def test_a_doc_without_soft_targets_has_the_loss_of_its_gold() -> None:
    """By default minus the log probability of the gold path: -log p(y)."""
    _, ner, examples = taught(n_taught=2)
    eg = examples[2]
    scores = ner.model.predict([eg.predicted])
    value, _ = ner.get_loss([eg], scores)
    gold = ner.objective.targets([eg], ner.chain_tags).finest.gold
    log_probs, _ = chain.path_log_prob(
        chain.constrain(scores, ner.chain_tags.constraints), gold.tags
    )
    assert value * len(eg.predicted) == pytest.approx(-log_probs.sum(), abs=CLOSE)
    assert value > 0


def test_gold_of_taught_docs_does_not_count() -> None:
    _, ner, examples = taught()
    scores = ner.model.predict([eg.predicted for eg in examples])
    expected, expected_gradient = ner.get_loss(examples, scores)
    examples[0].reference.set_ents([])
    value, gradient = ner.get_loss(examples, scores)
    assert value == expected
    assert_allclose(gradient.emissions, expected_gradient.emissions)


def test_docs_of_other_tokens_keep_their_gold() -> None:
    """Soft targets are by token. Here the reference, which has them, ends with the token "Rome",
    and the predicted doc with the tokens "Ro" and "me". So the loss is that of the gold, in which
    the entity "Rome" has both tokens."""
    nlp, ner, examples = taught(1)
    reference = examples[0].reference
    words = ["Ana", "saw", "Ro", "me"]
    other = Example(Doc(nlp.vocab, words=words), reference)
    gold = Doc(nlp.vocab, words=words, ents=["B-X", "O", "B-X", "I-X"])
    with_gold_alone = Example(Doc(nlp.vocab, words=words), gold)
    assert has_soft_targets(examples[0]) and not has_soft_targets(other)
    assert ner.objective.targets([other], ner.chain_tags).finest.soft is None

    scores = ner.model.predict([other.predicted])
    value, gradient = ner.get_loss([other], scores)
    expected, expected_gradient = ner.get_loss([with_gold_alone], scores)

    assert value == expected > 0
    assert_allclose(gradient.emissions, expected_gradient.emissions)


@pytest.mark.parametrize("method", ["update", "resume"])
def test_an_added_label_is_trained_by_soft_targets(method: str) -> None:
    """No entity has the label Y, but the teacher knows it. The label Z is only in the gold of a doc
    with soft targets, which doesn't count."""
    nlp, examples = initialized()
    ner: Any = nlp.get_pipe("ner")
    ner.add_label("Z")
    eg = examples[0]
    teach(eg, Tags(["X", "Y"]), seed=0)
    eg.reference.set_ents([Span(eg.reference, 0, 1, "Z")])

    if method == "update":
        ner.update([eg], sgd=Adam(0.01))
    else:
        ner.resume(lambda: [eg])

    assert ner.labels == ("X", "Z", "Y")
    assert ner.cfg["untrained"] == ["Z"]


def test_weights_of_docs_are_read() -> None:
    """The first doc, which has soft targets, counts 3 times, and the second, with gold, half."""
    _, ner, examples = taught(n_taught=1)
    scores = ner.model.predict([eg.predicted for eg in examples])
    n_tokens = sum(len(eg.predicted) for eg in examples)
    value_before, _ = ner.get_loss(examples, scores)
    loss_of_first, _ = loss_of_doc(ner, scores, examples[0], 0)
    loss_of_second, _ = loss_of_doc(ner, scores, examples[1], len(examples[0].predicted))

    examples[0].reference.user_data[WEIGHT] = 3.0
    examples[1].reference.user_data[WEIGHT] = 0.5
    value, _ = ner.get_loss(examples, scores)

    # By the weights less 1: 3 - 1 = 2, and 0.5 - 1 = -0.5.
    increase = (value - value_before) * n_tokens
    assert increase == pytest.approx(2 * loss_of_first - 0.5 * loss_of_second, abs=CLOSE)


def test_a_loss_that_is_a_ratio_is_refused() -> None:
    _, ner, examples = taught(loss=loss_block("ZScore"))
    with pytest.raises(ValueError, match="sum over docs, as there are soft targets, got a ratio"):
        ner.objective.targets(examples, ner.chain_tags)


def test_docs_with_soft_targets_are_not_cut_into_pieces() -> None:
    """The first doc has three words and soft targets. The four words of the second doc are four
    pieces. The third doc is the entity "Ana Lee", which isn't cut."""
    _, ner, examples = taught(n_taught=1)
    lengths = [len(piece) for piece in read_pieces(ner, examples, most_words=1)]
    assert lengths == [3, 1, 1, 1, 1, 2]


def test_docs_with_soft_targets_are_not_cut_at_borders() -> None:
    """Both docs have two sentences. The first has three words and soft targets, of a teacher that
    cuts it between the sentences, too: reading the piece does so. The second has four words."""
    _, ner, examples = taught(n_taught=0, sentence_boundaries=True)
    examples = examples[:2]
    cut_soft_targets(examples[0], [2, 1], Tags(["X"], "BILUO"))
    for eg in examples:
        for doc in (eg.predicted, eg.reference):
            for token in doc:
                token.is_sent_start = token.i in (0, 2)

    pieces = pieces_of_corpus(ner.model, ner.objective, ner.chain_tags, examples).by_sequence

    assert [len(piece) for piece in pieces] == [3, 2, 2]
    _, targets = join_pieces(pieces).read()
    assert targets.lengths.tolist() == [2, 1, 2, 2]


def test_pieces_have_soft_targets() -> None:
    _, ner, examples = taught(n_taught=1)
    scores = ner.model.predict([eg.predicted for eg in examples])
    _, targets_of_pieces = join_pieces(read_pieces(ner, examples, most_words=100)).read()
    (batch,) = read_batches(ner, [examples])
    _, targets_of_docs = batch.read()

    result, _ = ner.objective.evaluate(targets_of_pieces, scores, ner.progress)
    expected, _ = ner.objective.evaluate(targets_of_docs, scores, ner.progress)

    assert result.value == pytest.approx(expected.value)
    assert_allclose(result.gradient.emissions, expected.gradient.emissions)


def test_pieces_have_the_weights_of_their_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docs are read in chunks, of which only the first has weights here."""
    _, ner, examples = taught(n_taught=0)
    examples[0].reference.user_data[WEIGHT] = 3.0
    monkeypatch.setattr("spacy_costner.training.pieces.N_DOCS", 1)
    pieces = read_pieces(ner, examples, most_words=100)
    for batch, weights in (
        (pieces, [3, 1, 1]),
        (pieces[::-1], [1, 1, 3]),
    ):
        _, targets = join_pieces(batch).read()
        assert targets.gold.weights.tolist() == weights
    _, targets = join_pieces(pieces[1:]).read()
    assert targets.gold.weights is None


# Presets and gold that the teacher contradicts


def cut_soft_targets(example: Example, lengths: Sequence[int], tags: Tags) -> None:
    """Give a doc the soft targets of a teacher that cuts it into sequences of these lengths. No
    entity of the teacher crosses a border between them."""
    potentials = random_potentials(lengths, len(tags), seed=5)
    legal = chain.constrain(potentials, tags.constraints)
    doc_of_sequence = numpy.zeros(len(lengths), dtype=int)
    (example.reference.user_data[SOFT_TARGETS_KEY],) = expectations(legal, tags, doc_of_sequence)


@pytest.mark.parametrize("problem", ["label", "border"])
@pytest.mark.parametrize("agrees", [True, False])
@pytest.mark.parametrize("in_pieces", [True, False])
def test_an_impossible_preset_leaves_a_doc_out(
    problem: str, agrees: bool, in_pieces: bool, recwarn: Any
) -> None:
    """The teacher lacks the label Z of the preset entity, or cuts the doc within the entity. Gold
    has the preset entity, or not. The doc is the second of three, tokens 3 to 6."""
    _, ner, examples = taught(n_taught=2)
    eg = examples[1]
    if problem == "label":
        label = "Z"
        end = 1
        ner.add_label("Z")
    else:
        label = "X"
        end = 2
        cut_soft_targets(eg, [1, 3], Tags(["X"], "BILUO"))
    eg.predicted.set_ents([Span(eg.predicted, 0, end, label)], default="missing")
    if agrees:
        eg.reference.set_ents([Span(eg.reference, 0, end, label)])

    scores = random_potentials([3, 4, 2], len(ner.chain_tags), seed=3)
    first_value, first_gradient = loss_of_doc(ner, scores, examples[0], 0)
    last_value, last_gradient = loss_of_doc(ner, scores, examples[2], 7)

    recwarn.clear()
    if in_pieces:
        _, targets = join_pieces(read_pieces(ner, examples, most_words=100)).read()
    else:
        targets = ner.objective.targets(examples, ner.chain_tags).finest
    messages = {str(warning.message) for warning in recwarn}
    result, _ = ner.objective.evaluate(targets, scores, ner.progress)

    assert result.value == pytest.approx(first_value + last_value, abs=CLOSE)
    assert not result.gradient.emissions[3:7].any()
    for field in ("transitions", "start", "end"):
        expected = getattr(first_gradient, field) + getattr(last_gradient, field)
        assert_allclose(getattr(result.gradient, field), expected, atol=CLOSE)
    reason = "no path of its teacher has its preset entities"
    assert messages == {f"ner: left out of training, because {reason}: 'Rome saw Rome saw'"}


def test_gold_across_a_border_of_the_teacher_does_not_count(recwarn: Any) -> None:
    """A doc with soft targets is taught by these alone. So its gold entity, tokens 0 and 1, changes
    nothing, though no path of the teacher has it: the teacher cuts the doc between these tokens.
    The doc is not left out with a warning either."""
    _, ner, examples = taught(n_taught=2)
    taught_example = examples[1]
    cut_soft_targets(taught_example, [1, 3], Tags(["X"], "BILUO"))
    scores = ner.model.predict([eg.predicted for eg in examples])

    def evaluate() -> LossResult:
        targets = ner.objective.targets(examples, ner.chain_tags).finest
        result, _ = ner.objective.evaluate(targets, scores, ner.progress)
        return result

    before = evaluate()
    reference = taught_example.reference
    reference.set_ents([Span(reference, 0, 2, "X")])
    after = evaluate()

    assert after.value == pytest.approx(before.value)
    assert_allclose(after.gradient.emissions, before.gradient.emissions, atol=1e-6)
    assert not len(recwarn)
