"""Soft targets: the divergence by enumeration, whatever the schemes; and in training."""

import math
from collections.abc import Sequence
from typing import Any

import numpy
import pytest
import spacy
from numpy.testing import assert_allclose
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_costner import chain
from spacy_costner.tags import Tags
from spacy_costner.training.pieces import join
from spacy_costner.training.soft_targets import (
    KEY,
    SoftTargets,
    divergence,
    expectations,
    is_taught,
    mean,
    read_soft_targets,
)
from spacy_costner.training.targets import WEIGHT
from spacy_costner.types import Potentials

from . import oracle
from .support.batches import random_potentials
from .support.fitting import initialized, loss_block, read_batches, read_pieces
from .support.gradients import check_loss_gradient

LENGTHS = [3, 0, 1]
CLOSE = 1e-5
"""Expectations are saved in float32, and the smallest not at all."""
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
    return f"{tags.scheme.name}-{tags.outside}-{len(tags.labels)}"


def constrained(tags: Tags, seed: int = 0) -> Potentials:
    potentials = random_potentials(LENGTHS, len(tags), scale=1.5, seed=seed)
    return chain.constrain(potentials, tags.constraints)


def entities(tags: Tags, path: Sequence[int]) -> ENTITIES:
    found = tags.decode(numpy.asarray(path, dtype="int32"), numpy.asarray([len(path)]))
    return tuple((int(b), int(e), tags.labels[x]) for b, e, x in zip(*found))


def distribution(potentials: Potentials, tags: Tags, b: int) -> dict[ENTITIES, float]:
    """The probability of each set of entities."""
    paths = oracle.paths(potentials, b)
    found = {entities(tags, path.tags): p for path, p in zip(paths, oracle.probabilities(paths))}
    assert len(found) == len(paths)
    return found


def enumerated(scores: Potentials, student: Tags, teacher: Potentials, tags: Tags) -> float:
    """sum_y p(y) log (p(y) / q(y)) over sets of entities with the teacher's labels."""
    total = 0.0
    for b in range(len(LENGTHS)):
        p = distribution(teacher, tags, b)
        q = distribution(chain.constrain(scores, student.constraints), student, b)
        known = math.fsum(q[y] for y in p)
        total += sum(p_y * math.log(p_y / (q[y] / known)) for y, p_y in p.items() if p_y)
    return total


def pairs_of(saved: Sequence[Any]) -> list[Example]:
    vocab = spacy.blank("xx").vocab
    docs = [Doc(vocab, words=["a"] * n) for n in LENGTHS]
    for doc, soft in zip(docs, saved):
        doc.user_data[KEY] = soft
    return [Example(Doc(vocab, words=["a"] * len(doc)), doc) for doc in docs]


def soft_for(student: Tags, saved: Sequence[Any], weights: Any = None) -> SoftTargets:
    lengths = numpy.asarray(LENGTHS, dtype="int32")
    pairs = pairs_of(saved)
    of = numpy.arange(len(pairs))
    soft, _ = read_soft_targets(pairs, student, student.constraints, lengths, of, weights)
    assert soft is not None
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


def test_gradient_of_the_divergence() -> None:
    student, teacher = Tags(["w", "y", "x"], "IOB2", "before"), Tags(["x", "y"], "BILUO")
    scores = random_potentials(LENGTHS, len(student), scale=1.5, seed=1)
    soft = soft_for(student, list(expectations(constrained(teacher), teacher)), numpy.arange(1, 4))
    check_loss_gradient(
        lambda moved: divergence(moved, soft), lambda moved: divergence(moved, soft).value, scores
    )
    nowhere = student.label_of == student.labels.index("w")
    assert not divergence(scores, soft).gradient.emissions[:, nowhere].any()


def test_divergence_from_several_teachers_is_the_mean() -> None:
    student = Tags(["x", "y"], "BILUO")
    scores = random_potentials(LENGTHS, len(student), seed=1)
    teachers = [*TEACHERS[:2], Tags(["y", "x"], "BILUO")]
    each = [list(expectations(constrained(tags, seed), tags)) for seed, tags in enumerate(teachers)]
    together = divergence(scores, soft_for(student, [mean(saved) for saved in zip(*each)]))
    apart = [divergence(scores, soft_for(student, saved)) for saved in each]
    assert together.value == pytest.approx(numpy.mean([one.value for one in apart]), abs=CLOSE)
    for array, *arrays in zip(together.gradient[:4], *(one.gradient[:4] for one in apart)):
        assert_allclose(array, numpy.mean(arrays, axis=0), atol=CLOSE)


def test_a_student_has_the_labels_of_its_teacher() -> None:
    """Those that are not in its best reading, too."""
    nlp, examples = initialized()
    tags = Tags(["X", "Y"])
    potentials = random_potentials([len(examples[0].reference)], len(tags))
    constrained = chain.constrain(potentials, tags.constraints)
    (examples[0].reference.user_data[KEY],) = expectations(constrained, tags)
    nlp.initialize(lambda: examples)
    assert nlp.get_pipe("ner").labels == ("X", "Y")


def test_labels_of_the_teacher_are_needed() -> None:
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
        potentials = random_potentials([len(eg.reference)], len(tags), scale=2, seed=seed)
        constrained = chain.constrain(potentials, tags.constraints)
        (eg.reference.user_data[KEY],) = expectations(constrained, tags)
    return nlp, ner, examples


def test_a_batch_has_gold_and_soft_targets() -> None:
    """The loss is that of gold for the others, plus the divergence; each counts once."""
    _, ner, examples = taught()
    scores = ner.model.predict([eg.predicted for eg in examples])
    loss, gradient = ner.get_loss(examples, scores)
    ends = numpy.cumsum([len(eg.predicted) for eg in examples])
    alone = []
    for eg, end in zip(examples, ends):
        length = numpy.asarray([len(eg.predicted)])
        own = scores._replace(emissions=scores.emissions[end - length[0] : end], lengths=length)
        value, its = ner.get_loss([eg], own)
        alone.append((value * len(eg.predicted), its))
    assert loss * ends[-1] == pytest.approx(sum(value for value, _ in alone), abs=CLOSE)
    emissions, *others = zip(*(its[:4] for _, its in alone))
    assert_allclose(gradient.emissions, numpy.concatenate(emissions), atol=CLOSE)
    for arrays, array in zip(others, gradient[1:4]):
        assert_allclose(array, sum(arrays), atol=CLOSE)
    plain = examples[2]
    reference = plain.reference.copy()
    gold = ner.get_loss([Example(plain.predicted, reference)], own)[0]
    assert gold == value > 0


def test_gold_of_taught_docs_does_not_count() -> None:
    _, ner, examples = taught()
    scores = ner.model.predict([eg.predicted for eg in examples])
    before = ner.get_loss(examples, scores)
    examples[0].reference.set_ents([])
    after = ner.get_loss(examples, scores)
    assert before[0] == after[0]
    assert_allclose(before[1].emissions, after[1].emissions)


def test_docs_of_other_tokens_keep_their_gold() -> None:
    nlp, ner, examples = taught(1)
    words = [*(token.text for token in examples[0].reference[:-1]), "Ro", "me"]
    other = Example(Doc(nlp.vocab, words=words), examples[0].reference)
    assert is_taught(examples[0]) and not is_taught(other)
    assert ner.objective.targets([other], ner.chain_tags).finest.soft is None


def test_weights_of_docs_are_read() -> None:
    _, ner, examples = taught(1)
    scores = ner.model.predict([eg.predicted for eg in examples])
    before, n = ner.get_loss(examples, scores)[0], sum(len(eg.predicted) for eg in examples)
    alone = [
        ner.get_loss([eg], ner.model.predict([eg.predicted]))[0] * len(eg.predicted)
        for eg in examples
    ]
    for weight, eg in zip((3.0, 0.5), examples):
        eg.reference.user_data[WEIGHT] = weight
    after = ner.get_loss(examples, scores)[0]
    assert (after - before) * n == pytest.approx(2 * alone[0] - 0.5 * alone[1], abs=CLOSE)


def test_a_ratio_is_refused() -> None:
    _, ner, examples = taught(loss=loss_block("ZScore"))
    with pytest.raises(ValueError, match="sum over docs, as there are soft targets, got a ratio"):
        ner.objective.targets(examples, ner.chain_tags)


def test_pieces_with_soft_targets_are_whole() -> None:
    _, ner, examples = taught(1)
    lengths = [len(piece) for piece in read_pieces(ner, examples, most_words=1)]
    assert lengths[0] == len(examples[0].predicted) and lengths[1:] == [1] * 4 + [2]
    _, targets = join(read_pieces(ner, examples, most_words=100)).read()
    ((_, read),) = read_batches(ner, [examples])
    _, expected = read()
    scores = ner.model.predict([eg.predicted for eg in examples])
    found = [ner.objective.evaluate(each, scores, ner.progress)[0] for each in (targets, expected)]
    assert found[0].value == pytest.approx(found[1].value)
    assert_allclose(found[0].gradient.emissions, found[1].gradient.emissions)


def test_weights_of_some_docs_survive_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docs are read in chunks, some of which may have no weights."""
    _, ner, examples = taught(0)
    examples[0].reference.user_data[WEIGHT] = 3.0
    monkeypatch.setattr("spacy_costner.training.pieces.N_DOCS", 1)
    pieces = read_pieces(ner, examples, most_words=100)
    for some, weights in ((pieces, [3, 1, 1]), (pieces[::-1], [1, 1, 3])):
        assert join(some).read()[1].gold.weights.tolist() == weights
    assert join(pieces[1:]).read()[1].gold.weights is None


# Presets and gold that the teacher contradicts


def alone(ner: Any, scores: Potentials, example: Example, first: int) -> Any:
    """Value, summed over tokens, and gradient of one doc of a batch, from its first token on."""
    n_tokens = len(example.predicted)
    emissions = scores.emissions[first : first + n_tokens]
    part = scores._replace(emissions=emissions, lengths=numpy.asarray([n_tokens]))
    value, gradient = ner.get_loss([example], part)
    return value * n_tokens, gradient


def cut_soft_targets(example: Example, lengths: Sequence[int], tags: Tags) -> None:
    """Give a doc the soft targets of a teacher that cuts it."""
    constrained = chain.constrain(random_potentials(lengths, len(tags), seed=5), tags.constraints)
    of_doc = numpy.zeros(len(lengths), dtype=int)
    (example.reference.user_data[KEY],) = expectations(constrained, tags, of_doc)


@pytest.mark.parametrize("problem", ["label", "border"])
@pytest.mark.parametrize("agrees", [True, False])
@pytest.mark.parametrize("in_pieces", [True, False])
def test_an_impossible_preset_leaves_a_doc_out(
    problem: str, agrees: bool, in_pieces: bool, recwarn: Any
) -> None:
    """The teacher lacks its label, or cuts the doc within it. Its gold has the preset, or not."""
    _, ner, examples = taught()
    scored = ner.model.predict([eg.predicted for eg in examples])
    if problem == "label":
        ner.add_label("Z")
    scores = random_potentials(scored.lengths, len(ner.chain_tags), seed=3)
    eg = examples[1]
    label, end = ("Z", 1) if problem == "label" else ("X", 2)
    if problem == "border":
        cut_soft_targets(eg, [1, 3], Tags(["X"], "BILUO"))
    eg.predicted.set_ents([Span(eg.predicted, 0, end, label)], default="missing")
    if agrees:
        eg.reference.set_ents([Span(eg.reference, 0, end, label)])
    first, last = alone(ner, scores, examples[0], 0), alone(ner, scores, examples[2], 7)
    recwarn.clear()
    if in_pieces:
        _, targets = join(read_pieces(ner, examples, most_words=100)).read()
    else:
        targets = ner.objective.targets(examples, ner.chain_tags).finest
    messages = {str(warning.message) for warning in recwarn}
    result, _ = ner.objective.evaluate(targets, scores, ner.progress)
    assert result.value == pytest.approx(first[0] + last[0], abs=CLOSE)
    assert not result.gradient.emissions[3:7].any()
    for array, *arrays in zip(result.gradient[1:4], first[1][1:4], last[1][1:4]):
        assert_allclose(array, sum(arrays), atol=CLOSE)
    reason = "no path of its teacher has its preset entities"
    assert messages == {f"ner: left out of training, as {reason}: 'Rome saw Rome saw'"}


def test_gold_across_a_border_of_the_teacher_does_not_count(recwarn: Any) -> None:
    _, ner, examples = taught()
    eg = examples[1]
    cut_soft_targets(eg, [1, 3], Tags(["X"], "BILUO"))
    scores = ner.model.predict([eg.predicted for eg in examples])
    expected = ner.objective.evaluate(
        ner.objective.targets(examples, ner.chain_tags).finest, scores, ner.progress
    )[0]
    eg.reference.set_ents([Span(eg.reference, 0, 2, "X")])
    found = ner.objective.evaluate(
        ner.objective.targets(examples, ner.chain_tags).finest, scores, ner.progress
    )[0]
    assert found.value == pytest.approx(expected.value)
    assert_allclose(found.gradient.emissions, expected.gradient.emissions, atol=1e-6)
    assert not len(recwarn)
