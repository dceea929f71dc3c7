"""The noise channel: the posterior given text and answers by enumeration; tables."""

import math
from collections.abc import Sequence

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from spacy_costner import chain
from spacy_costner.tags import Tags
from spacy_costner.training.noise_channel import (
    Answers,
    Batch,
    add_evidence,
    estimate_tables,
    expect_counts,
    make_answers,
    ties,
)
from spacy_costner.training.soft_targets import expectations
from spacy_costner.types import Potentials

from .. import oracle
from ..support.batches import random_potentials

LENGTHS = [3, 0, 1, 2]
LABELS = ["x", "y"]
N_OBSERVED = 5
"""O, B-x, I-x, B-y, I-y"""

ALL_TAGS = [
    Tags(LABELS, scheme, outside)
    for scheme in ("IOB2", "BILUO")
    for outside in ("single", "before")
]


def names(tags: Tags) -> str:
    """The tag set as the id of a test."""
    return f"{tags.scheme.name}-{tags.outside}"


def scores_of(tags: Tags, seed: int, lengths: list[int] = LENGTHS) -> Potentials:
    """Random scores under the constraints of tags."""
    potentials = random_potentials(lengths, len(tags), scale=1.5, seed=seed)
    return chain.constrain(potentials, tags.constraints)


def random_answers(
    seed: int, lengths: list[int] = LENGTHS, *, share_without: float = 0.2
) -> Answers:
    """Random observed tags, some of them missing."""
    rng = numpy.random.default_rng(seed)
    n_tokens = sum(lengths)
    tags = rng.integers(N_OBSERVED, size=n_tokens)
    tags[rng.random(n_tokens) < share_without] = -1
    return make_answers(tags, numpy.asarray(lengths))


def random_table(seed: int) -> numpy.ndarray:
    """A random table: 0 where an annotator would continue an entity that it hasn't begun."""
    rng = numpy.random.default_rng(seed)
    table = rng.uniform(0.1, 1, size=(3, N_OBSERVED, N_OBSERVED))
    for state in range(3):
        for observed in (2, 4):
            if state != observed // 2:
                table[state, :, observed] = 0
    return table / table.sum(axis=-1, keepdims=True)


def as_iob2(tags: Tags, path: Sequence[int]) -> list[int]:
    """The tags of a path in IOB2, by their names."""
    numbers = {"O": 0, "B-x": 1, "I-x": 2, "B-y": 3, "I-y": 4}
    names_in_iob2: list[str] = []
    for tag in path:
        prefix, _, label = tags.names[tag].partition("-")
        prefix = {"U": "B", "L": "I"}.get(prefix, prefix)
        names_in_iob2.append("O" if prefix == "O" else f"{prefix}-{label}")
    return [numbers[name] for name in names_in_iob2]


def log_likelihood(
    answers: Answers, table: numpy.ndarray, true_tags: Sequence[int], first: int
) -> float:
    """log p(o | y) of a sequence whose first token has this number in the batch, as it is defined:
    the state of a token is the label of the observed entity at the token before, or none."""
    total = 0.0
    for t, true_tag in enumerate(true_tags):
        observed = int(answers.tags[first + t])
        before = int(answers.tags[first + t - 1]) if t else -1
        state = (before + 1) // 2 if before > 0 else 0
        if observed >= 0:
            total += math.log(table[state, true_tag, observed])
    return total


class Enumerated:
    """The posterior given text and answers, by enumeration of all paths of each sequence."""

    def __init__(
        self,
        potentials: Potentials,
        tags: Tags,
        answers: Sequence[Answers],
        tables: Sequence[numpy.ndarray],
    ) -> None:
        self.marginals = numpy.zeros(potentials.emissions.shape)
        self.counts = [numpy.zeros(table.shape) for table in tables]
        self.log_likelihood = 0.0
        for b, tokens in enumerate(oracle.spans(potentials)):
            paths = oracle.paths(potentials, b)
            joint: list[float] = []
            for path in paths:
                true_tags = as_iob2(tags, path.tags)
                score = path.score
                for annotator_answers, table in zip(answers, tables):
                    score += log_likelihood(annotator_answers, table, true_tags, tokens.start)
                joint.append(score)
            log_z = oracle.log_sum_exp(joint)
            self.log_likelihood += log_z - oracle.log_sum_exp([path.score for path in paths])
            for path, score in zip(paths, joint):
                p = math.exp(score - log_z)
                self._add(path.tags, as_iob2(tags, path.tags), tokens.start, answers, p)

    def _add(
        self,
        path: Sequence[int],
        true_tags: Sequence[int],
        first: int,
        answers: Sequence[Answers],
        p: float,
    ) -> None:
        for t, tag in enumerate(path):
            self.marginals[first + t, tag] += p
            for counts, annotator_answers in zip(self.counts, answers):
                observed = annotator_answers.tags[first + t]
                if observed >= 0:
                    state = annotator_answers.states[first + t]
                    counts[state, true_tags[t], observed] += p


@pytest.mark.parametrize("tags", ALL_TAGS, ids=names)
def test_the_posterior_given_answers_is_that_of_bayes_theorem(tags: Tags) -> None:
    """Two annotators, sequences of several lengths, tokens without an answer."""
    potentials = scores_of(tags, seed=1)
    answers = [random_answers(2), random_answers(3, share_without=0.0)]
    tables = [random_table(4), random_table(5)]
    expected = Enumerated(potentials, tags, answers, tables)

    posterior = chain.forward_backward(add_evidence(potentials, tags, answers, tables))

    assert_allclose(posterior.marginals(), expected.marginals, atol=1e-12)
    log_z, _ = posterior.log_partition()
    log_z_of_text, _ = chain.log_partition(potentials)
    assert_allclose((log_z - log_z_of_text).sum(), expected.log_likelihood)


@pytest.mark.parametrize("tags", ALL_TAGS, ids=names)
def test_expected_counts_are_those_of_all_paths(tags: Tags) -> None:
    """In two batches, whose models differ."""
    batches: list[Batch] = []
    enumerated: list[Enumerated] = []
    tables = [random_table(4), random_table(5)]
    for seed in (1, 2):
        potentials = scores_of(tags, seed)
        answers = [random_answers(seed), random_answers(seed + 10)]
        batches.append(Batch(potentials, tags, answers, numpy.arange(len(LENGTHS))))
        enumerated.append(Enumerated(potentials, tags, answers, tables))

    expected = expect_counts(batches, tables)

    first, second = enumerated
    assert_allclose(expected.log_likelihood, first.log_likelihood + second.log_likelihood)
    for counts, of_first, of_second in zip(expected.counts, first.counts, second.counts):
        assert_allclose(counts, of_first + of_second, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), is_known=st.booleans())
def test_expectation_maximisation_never_lowers_the_objective(seed: int, is_known: bool) -> None:
    """The log-likelihood of the answers and of the added counts, with known counts or without."""
    tags = ALL_TAGS[seed % len(ALL_TAGS)]
    lengths = [4, 1, 6]
    potentials = scores_of(tags, seed, lengths)
    answers = [random_answers(seed, lengths), random_answers(seed + 1, lengths)]
    batch = Batch(potentials, tags, answers, numpy.arange(len(lengths)))
    known = [10.0 * is_known * random_table(seed + i) for i in range(2)]

    objective = estimate_tables([batch], known, n_iterations=8).objective

    assert numpy.diff(objective).min(initial=0) > -1e-9


def test_with_tables_of_annotators_who_never_err_the_answers_are_the_truth() -> None:
    """The text, which says something else, doesn't matter."""
    tags = Tags(LABELS)
    observed = numpy.asarray([1, 2, 0, 3, 0, 1])
    answers = make_answers(observed, numpy.asarray(LENGTHS))
    # Every true tag is observed as it is. What follows what doesn't matter.
    table = numpy.tile(numpy.eye(N_OBSERVED), (3, 1, 1))

    potentials = add_evidence(scores_of(tags, seed=1), tags, [answers], [table])

    marginals = chain.forward_backward(potentials).marginals()
    of_iob2 = numpy.asarray(as_iob2(tags, range(len(tags))))
    assert_allclose(marginals[of_iob2 == observed[:, None]].sum(), len(observed))


def test_a_table_without_information_changes_nothing() -> None:
    """If what an annotator says doesn't depend on the truth, the soft targets are those of the
    model alone."""
    tags = Tags(LABELS)
    potentials = scores_of(tags, seed=1)
    table = numpy.repeat(random_table(4)[:, :1], N_OBSERVED, axis=1)

    with_answers = add_evidence(potentials, tags, [random_answers(2)], [table])

    pairs = zip(expectations(with_answers, tags), expectations(potentials, tags), strict=True)
    for saved, expected in pairs:
        for name in ("emissions", "transitions", "start", "end", "entropy"):
            assert_allclose(saved[name], expected[name], atol=1e-6)


def test_tables_of_many_known_tags_are_the_observed_shares() -> None:
    """With so many counts those that are added don't matter."""
    table = random_table(4)

    (estimated,) = estimate_tables([], [1e6 * table]).tables

    assert_allclose(estimated, table, atol=1e-4)


def test_without_known_tags_annotators_are_taken_to_agree_with_the_truth() -> None:
    """A label that nobody has seen has the errors of the annotator's other labels."""
    (table,) = estimate_tables([], [numpy.zeros((3, N_OBSERVED, N_OBSERVED))]).tables

    assert_allclose(table.sum(axis=-1), 1)
    assert table[0, 0, 0] == pytest.approx(0.8)  # O is O
    assert table[0, 1, 1] == pytest.approx(0.8)  # an entity begins
    assert table[1, 2, 2] == pytest.approx(0.8)  # it goes on
    assert table[0, 2, 0] == pytest.approx(0.8)  # the annotator hasn't begun it
    assert not table[0, :, [2, 4]].any()  # nothing goes on that hasn't begun

    known = numpy.zeros((3, N_OBSERVED, N_OBSERVED))
    known[0, 1, 0] = 60  # a missed entity of x
    known[0, 1, 1] = 40
    (table,) = estimate_tables([], [known]).tables
    assert table[0, 3, 0] == pytest.approx(table[0, 1, 0], abs=0.01)  # y is missed as often


def test_an_entity_that_goes_on_elsewhere_begins_anew() -> None:
    """In the next sequence, after a token without an answer, and after another label."""
    answers = make_answers(numpy.asarray([1, 2, 2, -1, 2, 3, 2]), numpy.asarray([2, 5]))

    assert answers.tags.tolist() == [1, 2, 1, -1, 1, 3, 1]
    assert answers.states.tolist() == [0, 1, 0, 1, 0, 1, 2]


def test_ties_have_a_kind_for_each_possible_entry() -> None:
    """Impossible entries are those that continue another entity than the one before."""
    tied = ties(2)

    assert tied.is_possible.sum() == 3 * 5 * 3 + 2 * 5  # O, B-x, B-y, and one I in two states
    assert tied.rows.tolist() == [[0, 3, 6, 3, 6], [1, 4, 7, 5, 8], [1, 5, 8, 4, 7]]


def test_shapes_that_do_not_fit_are_refused() -> None:
    """A table of other labels, and answers to other texts."""
    tags = Tags(LABELS)
    potentials = scores_of(tags, seed=1)

    with pytest.raises(
        ValueError, match=r"tables: expected the shape \(3, 5, 5\), got \(2, 3, 3\)"
    ):
        add_evidence(potentials, tags, [random_answers(2)], [numpy.ones((2, 3, 3))])
    with pytest.raises(ValueError, match="answers: expected 6 tokens, got 1"):
        add_evidence(potentials, tags, [random_answers(2, [1])], [random_table(4)])
