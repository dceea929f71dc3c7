"""The best Z-score in closed form: against the dense solution of enumerated equations."""

import sys
from functools import partial
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple

import numpy
import pytest
import spacy
from numpy.testing import assert_allclose
from spacy.tokens import Doc
from spacy.training import Example

from spacy_costner.chain import constrain
from spacy_costner.cli.fitting import TotalLoss, ZScoreEquations, fit, solve
from spacy_costner.training.sampled import SampledPaths, draw
from spacy_costner.types import Potentials

from . import oracle
from .support.commands import run
from .support.config import HAMMING
from .support.experiment import Experiment
from .support.fitting import SPARSE, TEXTS, initialized, loss_block, sparse_config

ZSCORE = {"components": {"ner": {"loss": loss_block("ZScore")}}}
C2 = 0.05


class Dense:
    """C* and b*, of all weights, by listing all legal paths of each example."""

    def __init__(
        self,
        equations: ZScoreEquations,
        examples: List[Example],
        gold: List[str],
        may_be_right: Callable[[int, oracle.Tags], bool] = lambda b, y: True,
        weights: Optional[List[float]] = None,
    ) -> None:
        self.names = list(equations.ner.chain_tags.names)
        self.rows = equations.features.find([eg.predicted for eg in examples]).rows
        self.n_features, n_tags = equations.weights.n_features, len(self.names)
        size = (self.n_features + n_tags + 2) * n_tags
        self.matrix, self.right = numpy.zeros((size, size)), numpy.zeros(size)
        lengths = numpy.asarray([len(eg.predicted) for eg in examples], dtype="int32")
        shapes = ((int(lengths.sum()), n_tags), (n_tags, n_tags), n_tags, n_tags)
        level = Potentials(*(numpy.zeros(shape) for shape in shapes), lengths=lengths)
        self.level = constrain(level, equations.ner.chain_tags.constraints)
        for b, names in enumerate(gold):
            some = [path.tags for path in oracle.paths(self.level, b)]
            counts = numpy.asarray([self.count(b, y) for y in some])
            right = [self.agrees(y, names.split()) and may_be_right(b, y) for y in some]
            if set(names.split()) != {"-"}:
                weight = 1.0 if weights is None else weights[b]
                self.matrix += weight * numpy.cov(counts.T, bias=True)
                self.right += weight * (counts[right].mean(axis=0) - counts.mean(axis=0))

    def count(self, b: int, y: oracle.Tags) -> numpy.ndarray:
        steps = oracle.features(self.level, b, y)
        emissions = numpy.zeros((self.n_features, len(self.names)))
        for slots, counted in zip(self.rows, steps.emissions):
            emissions[slots[slots >= 0]] += counted
        below = [steps.transitions, steps.start[None], steps.end[None]]
        return numpy.concatenate([emissions, *below]).ravel()

    def agrees(self, y: oracle.Tags, gold: List[str]) -> bool:
        """Whether a path has the gold tags where there are any, and entities end where known
        ones do."""
        got = ["O" if self.names[tag] == "O-X" else self.names[tag] for tag in y]
        ends = [g == "-" and i and gold[i - 1] in ("B-X", "I-X") for i, g in enumerate(gold)]
        return all(g in ("-", name) for g, name in zip(gold, got)) and not any(
            ended and name == "I-X" for ended, name in zip(ends, got)
        )

    def solution(self, c2: float) -> numpy.ndarray:
        ridge = 2 * c2 * numpy.eye(len(self.right))
        return numpy.linalg.solve(self.matrix + ridge, self.right)


GOLD = [tags for _, tags in TEXTS]


def read(
    c2: float = C2, outside: str = "single", **settings: Any
) -> Tuple[ZScoreEquations, List[Example]]:
    nlp, examples = initialized(loss=loss_block("ZScore"), outside=outside)
    return ZScoreEquations(nlp.get_pipe("ner"), examples, c2=c2, **settings), examples


def solved(equations: ZScoreEquations) -> numpy.ndarray:
    """The weights of all features, steps, starts and ends."""
    found = solve(equations, equations.right, tolerance=0.0)
    assert found.reason.startswith("converged")
    equations.write_weights(found.vector)
    return equations.weights.rows.astype("float64").ravel()


@pytest.mark.parametrize("outside", ["single", "before"])
def test_theta_is_the_dense_solution(outside: str) -> None:
    equations, examples = read(outside=outside)
    dense = Dense(equations, examples, GOLD)
    assert_allclose(solved(equations), dense.solution(C2), atol=2e-5)


def test_with_incorrect_spans() -> None:
    """Of the right paths some are taken out one by one: that first 'Rome' is not an X."""
    nlp, examples = initialized(loss=loss_block("ZScore"), incorrect_spans_key="wrong")
    reference = examples[1].reference
    reference.set_ents([reference.ents[1]], outside=[reference[3:]], default="missing")
    reference.spans["wrong"] = [spacy.tokens.Span(reference, 0, 1, "X")]
    equations = ZScoreEquations(nlp.get_pipe("ner"), examples, c2=C2)
    begin, inside = (equations.ner.tags.names.index(name) for name in ("B-X", "I-X"))

    def may_be_right(b: int, y: oracle.Tags) -> bool:
        return b != 1 or not (y[0] == begin and y[1] != inside)

    gold = [GOLD[0], "- - B-X O", GOLD[2]]
    dense, plain = Dense(equations, examples, gold, may_be_right), Dense(equations, examples, gold)
    assert_allclose(solved(equations), dense.solution(C2), atol=2e-5)
    assert abs(dense.solution(C2) - plain.solution(C2)).max() > 0.01


@pytest.mark.parametrize("outside", ["single", "before"])
def test_partial_annotation_and_none(outside: str) -> None:
    """Gold is the mean of the paths that agree; a doc without annotation says nothing."""
    nlp, examples = initialized(loss=loss_block("ZScore"), outside=outside)
    first, second = examples[0].reference, examples[1].reference
    first.set_ents([first.ents[0]], missing=[first[1:]])
    second.set_ents([], default="missing")
    equations = ZScoreEquations(nlp.get_pipe("ner"), examples, c2=C2)
    dense = Dense(equations, examples, ["B-X - -", "- - - -", "B-X I-X"])
    assert_allclose(solved(equations), dense.solution(C2), atol=2e-5)


def test_weights_of_examples() -> None:
    Doc.set_extension("share", default=1.0, force=True)
    weights = {"@misc": "spacy_costner.Weights.v1", "example": "share"}
    nlp, examples = initialized(loss=loss_block("ZScore"), weights=weights)
    examples[1].reference._.share = 0.25
    equations = ZScoreEquations(nlp.get_pipe("ner"), examples, c2=C2)
    dense = Dense(equations, examples, GOLD, weights=[1.0, 0.25, 1.0])
    assert_allclose(solved(equations), dense.solution(C2), atol=2e-5)


def test_the_loss_is_at_its_least_there() -> None:
    """Without penalty; and it is - sqrt(b'C^-1 b)."""
    equations, examples = read(c2=0.0)
    dense = Dense(equations, examples, GOLD)
    found = solve(equations, equations.right, tolerance=0.0).vector
    value, gradient = TotalLoss(equations.ner, examples, c2=0.0)(found)
    best = dense.right @ numpy.linalg.pinv(dense.matrix) @ dense.right
    assert value == pytest.approx(-(best**0.5), rel=1e-5)
    assert_allclose(gradient, 0, atol=1e-4)


def test_it_is_the_first_step_that_newton_takes_from_zero() -> None:
    """b* and C* are slope and curvature of `Sequential` at weights of 0."""
    equations, _ = read(c2=0.0)
    nlp, examples = initialized()
    total = TotalLoss(nlp.get_pipe("ner"), examples, c2=0.0)
    zero = numpy.zeros_like(equations.right)
    assert_allclose(equations.right, -total(zero)[1], atol=1e-5)
    step = 1e-2 * numpy.random.default_rng(0).normal(size=zero.shape)
    difference = (total(step)[1] - total(-step)[1]) / 2
    assert_allclose(equations(step), difference, atol=1e-5)


def test_more_batches_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = read()
    monkeypatch.setattr("spacy_costner.training.examples.BATCH_SIZE", 2)
    two, _ = read()
    assert (len(one.batches), len(two.batches)) == (1, 2)
    assert_allclose(solved(two), solved(one), atol=1e-5)


def test_sampled_paths_come_closer_as_they_grow_more() -> None:
    exact = solved(read()[0])
    distances = []
    for n in (10, 300, 10_000):
        several = [solved(read(n_sampled=n, seed=seed)[0]) for seed in range(3)]
        distances.append(max(abs(each - exact).max() for each in several))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.05 * abs(exact).max()
    again = solved(read(n_sampled=300, seed=0)[0])
    assert_allclose(again, solved(read(n_sampled=300, seed=0)[0]), atol=0)


def test_means_and_covariances_of_what_was_drawn() -> None:
    """With a sequence of one token and one of none; a path is drawn that no other is."""
    rng = numpy.random.default_rng(4)
    lengths = numpy.asarray([3, 0, 1, 2], dtype="int32")
    shapes = ((6, 3), (3, 3), 3, 3)
    values = Potentials(*(rng.normal(size=shape) for shape in shapes), lengths=lengths)
    legal = Potentials(*(numpy.zeros(shape) for shape in shapes), lengths=lengths)
    legal.transitions[0, 2] = legal.start[1] = -numpy.inf
    tags, weights = draw(legal, 40, rng), rng.uniform(size=4)
    assert tags.shape == (40, 6) and tags.itemsize == 1
    paths = SampledPaths(tags, lengths, 3)
    average, covariance = paths.average(weights), paths.covariance(values, weights)
    mean_expected, expected = oracle.vector(oracle.zeros(legal)), oracle.vector(oracle.zeros(legal))
    for b, tokens in enumerate(oracle.spans(legal)):
        drawn = [tuple(row[tokens].tolist()) for row in tags]
        counts = numpy.asarray([oracle.vector(oracle.features(legal, b, y)) for y in drawn])
        scores = numpy.asarray([oracle.score(values, b, y) for y in drawn])
        assert {*drawn} <= {path.tags for path in oracle.paths(legal, b)}
        mean_expected += weights[b] * counts.mean(axis=0)
        expected += weights[b] * (counts - counts.mean(axis=0)).T @ scores / len(drawn)
    assert_allclose(oracle.vector(average), mean_expected, atol=1e-12)
    assert_allclose(oracle.vector(covariance), expected, atol=1e-12)


# Conjugate gradient


def random_equations(n: int, rank: int) -> Tuple[numpy.ndarray, numpy.ndarray]:
    factor = numpy.random.default_rng(7).normal(size=(n, rank))
    return factor @ factor.T, factor @ numpy.random.default_rng(8).normal(size=rank)


@pytest.mark.parametrize("rank", [12, 5])
def test_solve_finds_the_shortest_solution(rank: int) -> None:
    matrix, right = random_equations(12, rank)
    steps: List[Any] = []
    found = solve(matrix.__matmul__, right, tolerance=1e-14, on_step=steps.append)
    assert_allclose(found.vector, numpy.linalg.pinv(matrix) @ right, atol=1e-6)
    assert found.value == pytest.approx(-0.5 * right @ found.vector)
    assert [step.iteration for step in steps] == list(range(1, found.n_iterations + 1))
    assert (numpy.diff([step.value for step in steps]) < 1e-12).all()
    assert found.reason.startswith("converged")


@pytest.mark.parametrize("dtype, rounding", [("float32", 1e-5), ("float64", 1e-13)])
def test_solve_stays_with_the_shortest_solution(dtype: str, rounding: float) -> None:
    """However long it is let run."""
    for n, rank in ((12, 5), (60, 20)):
        matrix, right = random_equations(n, rank)
        single = matrix.astype(dtype)
        found = solve(single.__matmul__, right.astype(dtype), tolerance=-1.0, max_iter=1000)
        expected = numpy.linalg.pinv(matrix, rcond=1e-10) @ right
        assert_allclose(found.vector, expected, atol=rounding * abs(expected).max())
        assert found.n_iterations < 1.5 * rank


def test_the_shortest_best_z_score() -> None:
    """Scores are in float32."""
    equations, examples = read(c2=0.0)
    dense = Dense(equations, examples, GOLD)
    precision = float(numpy.finfo("float32").eps)
    found = solve(equations, equations.right, tolerance=-1.0, max_iter=1000, precision=precision)
    equations.write_weights(found.vector)
    shortest = numpy.linalg.pinv(dense.matrix, rcond=1e-8) @ dense.right
    assert_allclose(equations.weights.rows.ravel(), shortest, atol=2e-5)


def test_solve_ends_where_it_is_told_to() -> None:
    matrix, right = random_equations(12, 12)
    few = solve(matrix.__matmul__, right, max_iter=3)
    assert (few.n_iterations, few.reason) == (3, "iterations used up")
    x = few.vector
    assert few.value == pytest.approx(0.5 * x @ matrix @ x - right @ x)
    nothing = solve(matrix.__matmul__, numpy.zeros(12))
    assert (nothing.n_iterations, nothing.value, nothing.reason) == (0, 0.0, "converged")


def test_an_interruption_leaves_the_best_so_far() -> None:
    matrix, right = random_equations(12, 12)
    calls = 0

    def multiply(vector: numpy.ndarray) -> numpy.ndarray:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return matrix @ vector

    found = solve(multiply, right)
    assert (found.reason, found.n_iterations) == ("interrupted", 3)
    assert_allclose(found.vector, solve(matrix.__matmul__, right, max_iter=3).vector)


# As users ask for it


@pytest.mark.parametrize("n_sampled", [None, 1000])
def test_fit_makes_an_ordinary_pipeline(experiment: Experiment, n_sampled: Optional[int]) -> None:
    config = sparse_config(experiment, **ZSCORE)
    fitted = fit(config, experiment.output_path, c2=0.01, n_sampled=n_sampled)
    nlp = spacy.load(fitted.path)
    assert fitted.outcome.reason == "converged" and fitted.outcome.value < 0
    assert fitted.scores["ents_f"] == nlp.meta["performance"]["ents_f"] == 1.0
    doc = nlp(Doc(nlp.vocab, words=["Rain", "in", "Paris", ",", "France", "."]))
    assert [ent.text for ent in doc.ents] == ["Paris", "France"]
    assert nlp.config["components"]["ner"]["model"]["@architectures"] == SPARSE["@architectures"]


def test_scipy_is_not_needed(monkeypatch: pytest.MonkeyPatch, experiment: Experiment) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    fitted = fit(sparse_config(experiment, **ZSCORE), experiment.output_path, max_iter=2)
    assert fitted.outcome.reason == "iterations used up"


def test_with_a_cost_it_is_descended(experiment: Experiment) -> None:
    changes = {"components": {"ner": {"loss": loss_block("ZScore", cost=HAMMING)}}}
    fitted = fit(sparse_config(experiment, **changes), experiment.output_path, max_iter=3)
    assert fitted.outcome.n_evaluations > fitted.outcome.n_iterations


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (ZSCORE, {"n_sampled": 1}, "sampled: expected at least 2 paths of each doc, got 1"),
        (ZSCORE, {"n_sampled": 9, "c2": 0.0}, "c2: expected more than 0 with sampled paths"),
        ({}, {"n_sampled": 9}, "sampled: expected the loss spacy_costner.ZScore.v1 without a cost"),
    ],
)
def test_options_that_will_not_do(
    experiment: Experiment, changes: Any, options: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit(sparse_config(experiment, **changes), experiment.output_path, **options)


def test_command_line(experiment: Experiment, tmp_path: Path) -> None:
    path = tmp_path / "zscore.cfg"
    sparse_config(experiment, **ZSCORE).to_disk(path)
    given = partial(run, "fit", path, "--output", tmp_path / "fitted", "--c2", 0.01)
    result = given("--sampled", 1000)
    assert result.exit_code == 0, result.output
    assert "converged" in result.output and "dev: F 100.00" in result.output
    result = given("--sampled", 1)
    assert result.exit_code == 1 and "at least 2 paths" in result.output
