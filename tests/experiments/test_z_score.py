"""The experiments of the Z-score's paper: the equations against enumeration, the margin, HMMs."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from spacy.tokens import Doc

from experiments import chains, z_score
from experiments.chains import (
    HMM,
    ComponentSequences,
    Sequences,
    best_hamming_z_score,
    best_z_score,
)
from experiments.corpora import ASSETS, as_examples
from experiments.runner import Runner
from experiments.training import linear_block, make_ner
from experiments.z_score import FULL, HMP, HMP_AVERAGED, MM, MM_H_OPTIMUM, Z, vary

from .. import oracle
from ..support.batches import random_potentials
from ..support.fitting import TEXTS, initialized, loss_block
from ..support.vocabs import blank_vocab

N_TAGS = 2
N_SYMBOLS = 3
LENGTH = 4
"""Of the sequences that are compared with a list of all their paths."""
CORPUS = ASSETS / "conll2002_es" / "esp.train"


def sample_sequences(n: int = 3, seed: int = 0) -> Sequences:
    """Sequences of four tokens, from a random HMM of two tags and three symbols."""
    rng = default_rng(seed)
    return chains.random_hmm(N_TAGS, N_SYMBOLS, rng).sample(n, LENGTH, rng)


def feature_counts(sequences: Sequences, b: int, tags: Any) -> numpy.ndarray:
    """How often each feature is in a path of sequence b: a symbol with a tag, or a tag after
    another; flat. A step counts with the value that the sequences give it."""
    counts = numpy.zeros((N_SYMBOLS + N_TAGS, N_TAGS))
    symbols = sequences.features.toarray()[b * LENGTH : (b + 1) * LENGTH]
    for token, tag in enumerate(tags):
        counts[:N_SYMBOLS, tag] += symbols[token]
        if token > 0:
            previous = tags[token - 1]
            counts[N_SYMBOLS + previous, tag] += sequences.steps[previous, tag]
    return counts.ravel()


class MomentsByEnumeration:
    """The moments of the paper, by a list of all paths, which are equally likely; summed over the
    sequences.

    covariance: C*, of the feature counts. gold_lead: b*, by how much the feature counts of gold are
    above the mean. loss_covariance: c_l, of the feature counts and the Hamming loss. mean_loss:
    mu_l, of the Hamming loss.
    """

    def __init__(self, sequences: Sequences) -> None:
        paths = list(product(range(N_TAGS), repeat=LENGTH))
        self.covariance = numpy.zeros((sequences.size, sequences.size))
        self.gold_lead = numpy.zeros(sequences.size)
        self.loss_covariance = numpy.zeros(sequences.size)
        self.mean_loss = 0.0
        for b in range(len(sequences.lengths)):
            gold = sequences.tags[b * LENGTH : (b + 1) * LENGTH]
            counts = numpy.asarray([feature_counts(sequences, b, path) for path in paths])
            mean_counts = counts.mean(axis=0)
            losses = (numpy.asarray(paths) != gold).sum(axis=1)
            self.covariance += numpy.cov(counts.T, bias=True)
            self.gold_lead += feature_counts(sequences, b, gold) - mean_counts
            self.loss_covariance += (counts - mean_counts).T @ losses / len(paths)
            self.mean_loss += losses.mean()

    def solve(self, c2: float, right_side: numpy.ndarray) -> numpy.ndarray:
        """Solve (C* + 2 c2 I) x = right side, with the L2 penalty c2."""
        return numpy.linalg.solve(self.covariance + 2 * c2 * numpy.eye(len(right_side)), right_side)


@pytest.mark.parametrize("step_to_other_tag", [1.0, 0.5])
def test_the_z_score_is_the_solution_of_its_equation(step_to_other_tag: float) -> None:
    """C* theta = b*, with an L2 penalty of 0.01, also where steps have other values than 1."""
    steps = numpy.asarray([[1.0, step_to_other_tag], [step_to_other_tag, 1.0]])
    sequences = sample_sequences()._replace(steps=steps)
    moments = MomentsByEnumeration(sequences)

    theta = best_z_score(sequences, c2=0.01)

    gold_lead = chains.Moments(sequences, c2=0.0).right
    assert_allclose(gold_lead, moments.gold_lead, atol=1e-9)
    assert_allclose(theta, moments.solve(0.01, moments.gold_lead), atol=1e-6)


def test_the_hamming_z_score_has_the_least_variance_at_a_lead_of_1() -> None:
    """Gold leads the mean path by 1 more than the mean Hamming loss. Of all such weights the least
    variance of score plus loss is at (margin / b* x) x - y, where C* x = b*, C* y = c_l, and the
    margin is 1 + mu_l + b* y."""
    sequences = sample_sequences()
    moments = MomentsByEnumeration(sequences)

    theta = best_hamming_z_score(sequences, c2=0.01)

    lead = moments.gold_lead @ theta - moments.mean_loss
    assert lead == pytest.approx(1, abs=1e-6)
    x = moments.solve(0.01, moments.gold_lead)
    y = moments.solve(0.01, moments.loss_covariance)
    margin = 1 + moments.mean_loss + moments.gold_lead @ y
    expected = margin / (moments.gold_lead @ x) * x - y
    assert_allclose(theta, expected, atol=1e-6)


def leads_of_wrong_paths(sequences: Sequences) -> list[numpy.ndarray]:
    """For each sequence, the feature counts of all wrong paths minus the feature counts of gold: a
    row for each path."""
    leads: list[numpy.ndarray] = []
    for b in range(len(sequences.lengths)):
        gold = tuple(sequences.tags[b * LENGTH : (b + 1) * LENGTH].tolist())
        paths = [path for path in product(range(N_TAGS), repeat=LENGTH) if path != gold]
        counts = numpy.asarray([feature_counts(sequences, b, path) for path in paths])
        leads.append(counts - feature_counts(sequences, b, gold))
    return leads


@pytest.mark.parametrize("c", [0.0, 0.3, 100.0])
@pytest.mark.parametrize("seed, can_hold", [(2, True), (4, False)])
def test_the_z_score_with_constraints_is_the_optimum_with_all_of_them(
    seed: int, can_hold: bool, c: float
) -> None:
    """With all wrong paths in a list, each sequence has a slack of its own: how far its best wrong
    path is above gold. Without a weight of the slack it is the closed form, which doesn't keep to
    the constraints. With a large weight all constraints hold, if there are such weights."""
    c2 = 0.05
    sequences = sample_sequences(6, seed)
    moments = MomentsByEnumeration(sequences)
    matrix = moments.covariance + 2 * c2 * numpy.eye(sequences.size)
    closed_form = moments.solve(c2, moments.gold_lead)
    size = sequences.size
    leads = leads_of_wrong_paths(sequences)

    def objective(values: numpy.ndarray) -> float:
        """Of the weights, then the slacks."""
        theta, slacks = values[:size], values[size:]
        return float(theta @ matrix @ theta) / 2 + c * float(slacks.sum())

    def distances(values: numpy.ndarray) -> numpy.ndarray:
        """All constraints; they hold where these are at least 0."""
        theta, slacks = values[:size], values[size:]
        lead = moments.gold_lead @ (theta - closed_form)
        of_paths = [slack - rows @ theta for slack, rows in zip(slacks, leads)]
        return numpy.concatenate([[lead], slacks, *of_paths])

    start = numpy.append(closed_form, [(rows @ closed_form).max().clip(0) for rows in leads])
    optimum = minimize(
        objective,
        start,
        method="SLSQP",
        constraints={"type": "ineq", "fun": distances},
        options={"ftol": 1e-12, "maxiter": 500},
    )

    found = chains.best_constrained_z_score(sequences, c2=c2, c=c, tolerance=1e-5)

    assert found.reason == "converged"
    assert found.value == pytest.approx(optimum.fun, rel=1e-4)
    if c == 0:
        assert_allclose(found.vector, closed_form, atol=1e-6)
    violation = sum((rows @ found.vector).max().clip(0) for rows in leads)
    has_to_hold = can_hold and c == 100
    assert bool(violation < 1e-2) is has_to_hold


def test_the_margin_of_whole_sequences_is_that_of_its_definition() -> None:
    """Value by enumeration, gradient by central differences."""
    sequences = sample_sequences()
    vector = default_rng(3).normal(size=sequences.size)

    def by_enumeration(vector: numpy.ndarray) -> float:
        violations = [1 + (rows @ vector).max() for rows in leads_of_wrong_paths(sequences)]
        return sum(max(0.0, violation) for violation in violations)

    loss = chains.loss_of_weights(sequences, chains.sequence_margin)
    value, gradient = loss(vector)

    assert value == pytest.approx(by_enumeration(vector))
    assert value > 0
    step = 1e-6
    differences = []
    for direction in numpy.eye(sequences.size):
        above, below = (by_enumeration(vector + sign * step * direction) for sign in (1, -1))
        differences.append((above - below) / (2 * step))
    assert_allclose(gradient, differences, atol=1e-6)


def test_the_perceptron_ends_when_gold_is_best() -> None:
    """There are weights with which gold is best in each sequence, so it finds some. They are whole
    numbers, as each step has the size 1."""
    sequences = sample_sequences()

    weights = chains.hidden_markov_perceptron(sequences, n_epochs=200)

    assert_allclose(weights, weights.round())
    for rows in leads_of_wrong_paths(sequences):
        assert (rows @ weights).max() < 0
    more = chains.hidden_markov_perceptron(sequences, n_epochs=1000)
    assert_allclose(more, weights)


def test_the_averaged_perceptron_sums_the_weights_after_each_sequence() -> None:
    """In one epoch, the weights after two sequences are those that are learned from these two."""
    sequences = sample_sequences()
    each_sequence = sequences.apart()
    total = numpy.zeros(sequences.size)
    for n in range(1, len(each_sequence) + 1):
        first_ones = sequences._replace(
            features=sequences.features[: n * LENGTH],
            tags=sequences.tags[: n * LENGTH],
            lengths=sequences.lengths[:n],
        )
        total += chains.hidden_markov_perceptron(first_ones, n_epochs=1)

    averaged = chains.hidden_markov_perceptron(sequences, n_epochs=1, averaged=True)

    assert_allclose(averaged, total)
    assert not numpy.allclose(averaged, chains.hidden_markov_perceptron(sequences, n_epochs=1))


@pytest.mark.parametrize("outside", ["single", "before"])
def test_the_z_score_of_a_component_is_the_solution_of_its_equation(outside: str) -> None:
    """All its weights, with the moments of all legal paths of each example. With "before" the tag O
    has a variant before each label, O-X, which counts as O. The examples are `TEXTS`."""
    nlp, examples = initialized(loss=loss_block("ZScore"), outside=outside)
    ner = nlp.get_pipe("ner")
    c2 = 0.05
    sequences = ComponentSequences(ner, examples)
    weights = sequences.total.weights
    tag_names = list(ner.chain_tags.names)
    rows_of_tokens = sequences.total.features.find([eg.predicted for eg in examples]).rows
    legal = sequences.score(numpy.zeros(sequences.size))

    def count_features(b: int, path: oracle.Tags) -> numpy.ndarray:
        """How often a path has each feature, in the order of the weights."""
        path_counts = oracle.features(legal, b, path)
        emissions = numpy.zeros((weights.n_features, len(tag_names)))
        for rows, tag_counts in zip(rows_of_tokens, path_counts.emissions):
            emissions[rows[rows >= 0]] += tag_counts
        transitions = [path_counts.transitions, path_counts.start[None], path_counts.end[None]]
        return numpy.concatenate([emissions, *transitions]).ravel()

    covariance = numpy.zeros((weights.rows.size, weights.rows.size))
    gold_lead = numpy.zeros(weights.rows.size)
    for b, (_, gold) in enumerate(TEXTS):
        paths = [path.tags for path in oracle.paths(legal, b)]
        counts = numpy.asarray([count_features(b, path) for path in paths])
        texts = [" ".join(tag_names[tag] for tag in path).replace("O-X", "O") for path in paths]
        covariance += numpy.cov(counts.T, bias=True)
        gold_lead += counts[texts.index(gold)] - counts.mean(axis=0)
    penalty = 2 * c2 * numpy.eye(weights.rows.size)
    expected = numpy.linalg.solve(covariance + penalty, gold_lead)

    sequences.total.write_weights(best_z_score(sequences, c2=c2))

    assert_allclose(weights.rows.ravel(), expected, atol=1e-4)


def test_means_and_covariances_of_sampled_paths() -> None:
    """Forty legal paths of each sequence are drawn. Their mean feature counts, and the covariances
    of these counts with the scores of the paths, are computed again path by path. Both are sums
    over the sequences, one of which has no token."""
    lengths = [3, 0, 1, 2]
    potentials = random_potentials(lengths, 3, scale=1.0)
    # All legal paths are equally likely. Tag 1 can't be first, and tag 2 can't follow tag 0.
    legal = random_potentials(lengths, 3, scale=0.0)
    legal.transitions[0, 2] = -numpy.inf
    legal.start[1] = -numpy.inf

    paths = chains.SampledPaths(legal, 40, default_rng(4))

    mean = oracle.vector(oracle.zeros(legal))
    covariance = oracle.vector(oracle.zeros(legal))
    for b, tokens in enumerate(oracle.spans(legal)):
        sampled_paths = [tuple(path_of_batch[tokens].tolist()) for path_of_batch in paths.tags]
        legal_paths = {path.tags for path in oracle.paths(legal, b)}
        assert set(sampled_paths) <= legal_paths

        features = [oracle.features(legal, b, path) for path in sampled_paths]
        counts = numpy.asarray([oracle.vector(feature) for feature in features])  # (40, features)
        scores = numpy.asarray([oracle.score(potentials, b, path) for path in sampled_paths])
        mean_counts = counts.mean(axis=0)
        mean += mean_counts
        covariance += (counts - mean_counts).T @ scores / len(sampled_paths)
    assert_allclose(oracle.vector(paths.average()), mean, atol=1e-12)
    assert_allclose(oracle.vector(paths.covariance(potentials)), covariance, atol=1e-12)


def test_cutting_planes_find_a_kink() -> None:
    """The minimum of 2 (|x - 1| + 3 |y + 2|) + (x² + y²) / 2 is at the kink x = 1, y = -2, where
    only the squares are left: 5 / 2."""

    def value_and_slope(vector: numpy.ndarray) -> Any:
        distance = vector - [1, -2]
        value = float(abs(distance) @ [1, 3])
        return value, numpy.sign(distance) * [1, 3]

    minimum = chains.cutting_planes(value_and_slope, 2, c=2.0, tolerance=1e-6)

    assert_allclose(minimum.vector, [1, -2], atol=1e-2)
    assert minimum.value == pytest.approx(5 / 2, rel=1e-5)
    assert minimum.reason == "converged"


def test_all_methods_learn_what_is_certain() -> None:
    """Each tag has a symbol of its own in 98 % of tokens. Weights of the other sign predict the
    other tag. Errors are in per cent: the true weights are below 3, and learned ones below 6."""
    steps = numpy.asarray([[0.9, 0.1], [0.2, 0.8]])
    symbols = numpy.asarray([[0.98, 0.01, 0.01], [0.01, 0.98, 0.01]])
    hmm = HMM(steps, symbols)
    rng = default_rng(0)
    train = hmm.sample(30, 20, rng)
    test = hmm.sample(30, 20, rng)
    assert test.error(hmm.weights) < 3

    weights_of_methods = [
        best_z_score(train, c2=1e-3),
        best_hamming_z_score(train, c2=1e-3),
        chains.most_likely(train, c2=1e-2),
        chains.largest_margin(train, c=1.0, tolerance=1e-3).vector,
        chains.largest_margin(train, c=1.0, tolerance=1e-3, loss=chains.sequence_margin).vector,
        chains.hidden_markov_perceptron(train, n_epochs=20, averaged=True),
        chains.best_constrained_z_score(train, c2=1e-3, c=1.0, tolerance=1e-2).vector,
    ]

    for weights in weights_of_methods:
        assert test.error(weights) < 6
        assert test.error(-weights) > 50


@pytest.mark.slow
def test_hmms_are_as_hard_as_wanted() -> None:
    """HMMs are drawn until the weights of one predict about 20 % of its tags wrongly. That is
    judged on a sample. Another sample differs, so the tolerance here is five times the tolerance of
    the draw."""
    (hmm,), n_drawn = z_score.hmms_as_hard(error=20.0, n_symbols=3, n=1)
    test = hmm.sample(2000, 100, default_rng(7))
    assert test.error(hmm.weights) == pytest.approx(20, abs=5 * FULL["near"])
    assert n_drawn > 1


def make_docs() -> list[Doc]:
    """Ana Lee (PER) ve Roma (LOC); Roma (LOC) duerme."""
    vocab = blank_vocab()
    first = Doc(vocab, words=["Ana", "Lee", "ve", "Roma"], ents=["B-PER", "I-PER", "O", "B-LOC"])
    return [first, Doc(vocab, words=["Roma", "duerme"], ents=["B-LOC", "O"])]


@pytest.fixture
def ner() -> Any:
    """A component that is initialized with `make_docs()`."""
    return make_ner(as_examples(make_docs()), model=linear_block(z_score.FEATURES["S2"]))


def test_docs_as_sequences_have_their_tags_and_features(ner: Any) -> None:
    """The features "S2" are the word and the words before and after it in its sentence: three, or
    two at the start and the end of a sentence."""
    sequences = z_score.as_sequences(ner, make_docs())
    tags = [ner.tags.names[tag] for tag in sequences.tags]
    assert tags == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "O"]
    assert sequences.lengths.tolist() == [4, 2]
    assert sequences.features.toarray().sum(axis=1).tolist() == [2, 3, 3, 2, 2, 2]


def test_the_values_of_steps_can_be_varied(ner: Any) -> None:
    """All steps have the value 0.01, except the step from O (tag 0) to O, which counts nothing."""
    sequences = z_score.as_sequences(ner, make_docs())
    varied = vary(sequences, ner, step=0.01, o_after_o=False)
    assert varied.steps[0, 0] == 0
    assert varied.steps[1, 0] == 0.01


def test_illegal_paths_can_be_left_out(ner: Any) -> None:
    """I-PER doesn't follow O, which is tag 0."""
    sequences = z_score.as_sequences(ner, make_docs())
    legal = vary(sequences, ner, legal=True)
    inside = ner.tags.names.index("I-PER")
    weights = numpy.zeros(legal.size)
    assert legal.score(weights).transitions[0, inside] == -numpy.inf
    assert sequences.score(weights).transitions[0, inside] == 0


def test_token_errors_by_hand() -> None:
    """The prediction lacks the entity of two tokens, Ana Lee: two of six tags are wrong."""
    examples = as_examples(make_docs())
    first, second = make_docs()
    _, roma = first.ents
    first.set_ents([roma])
    for eg, answer in zip(examples, [first, second]):
        eg.predicted.set_ents(list(answer.ents))

    assert z_score.token_error(examples) == pytest.approx(100 * 2 / 6)


def test_iterative_methods_learn_on_all_folds_but_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each fold has the same two sentences, so all methods know those of the tested fold. Columns
    of table 2 with other features are empty."""
    monkeypatch.setattr(z_score, "folds", lambda source: [make_docs() for _ in range(5)])
    size = {
        "sources_used": ["shuffled"],
        "iterative_features": ["S1"],
        "tested": 2,
        "hmp_epochs": 20,
    }
    columns = [("S1", "shuffled"), ("S2", "shuffled")]

    errors = z_score.errors_of_iterative_methods(Runner(tmp_path), size, columns)

    assert errors.keys() == {"Z-score, constraints (3)", MM, MM_H_OPTIMUM, HMP, HMP_AVERAGED}
    assert [*errors.values()] == [[0.0, ""]] * 5


def test_parts_of_a_fold_are_the_tested_one_the_next_and_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(z_score, "folds", lambda source: [[number] for number in range(5)])
    assert z_score.parts_of_fold("shuffled", 4) == ([1, 2, 3], [0], [4])


def test_figure_1_and_table_1_have_their_methods() -> None:
    rng = default_rng(0)
    hmm = chains.random_hmm(3, 4, rng)
    train, test = hmm.sample(5, 4, rng), hmm.sample(5, 4, rng)

    of_figure = z_score.measured(hmm, train, test, of_figure_1=True)
    of_table = z_score.measured(hmm, train, test, of_figure_1=False)

    assert of_figure.keys() == z_score.COLOURS.keys()
    assert of_table.keys() == {*z_score.HEADER_1[2:-1]}


def test_pooled_errors_weigh_parts_by_their_tokens() -> None:
    """20 % of 10 tokens and none of 30: 2 of 40."""
    of_10 = {"tokens": 10, "methods": {Z: [20.0, None]}}
    of_30 = {"tokens": 30, "methods": {Z: [0.0, None]}}
    assert z_score.pooled([of_10, of_30], Z) == pytest.approx(100 * 2 / 40)


def test_the_expected_step_by_hand() -> None:
    """K^2 p(O, O) - 2 K p(O) + 1, where there are K = 2 tags, three of four pairs of tags are O, O,
    and seven of the eight tags of these pairs are O."""
    vocab = blank_vocab()
    doc = Doc(vocab, words=[*"abcde"], ents=["O", "O", "O", "O", "B-LOC"])
    assert z_score.expected_step([[doc]]) == pytest.approx(2**2 * 3 / 4 - 2 * 2 * 7 / 8 + 1)


@pytest.mark.skipif(not CORPUS.exists(), reason="needs CoNLL-2002 Spanish: spacy project assets")
@pytest.mark.parametrize("source", z_score.SPEC["sources"])
def test_folds_have_each_sentence_once(source: str) -> None:
    """The five folds are equally large. The folds "blocks" have the sentences in the order of the
    corpus, so the first one begins as the corpus does. The others are shuffled."""
    n_sentences = FULL["n_sentences"]

    folds = z_score.folds(source)

    assert [len(docs) for docs in folds] == [n_sentences // 5] * 5
    all_docs = [doc for docs in folds for doc in docs]
    assert len({id(doc) for doc in all_docs}) == n_sentences
    first_words = " ".join(token.text for token in all_docs[0])
    begins_with_corpus = first_words == "Melbourne ( Australia ) , 25 may ( EFE ) ."
    assert begins_with_corpus is (source == "blocks")
