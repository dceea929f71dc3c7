"""The experiments of the Z-score's paper: the equations against enumeration, the margin, HMMs."""

from itertools import product
from typing import Any

import numpy
import pytest
import spacy
from numpy.random import default_rng
from numpy.testing import assert_allclose
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
from experiments.training import linear_block, make_ner
from experiments.z_score import FULL, Z, vary

from . import oracle
from .support.batches import random_potentials
from .support.fitting import TEXTS, initialized, loss_block

K, SYMBOLS, LENGTH = 2, 3, 4
CORPUS = ASSETS / "conll2002_es" / "esp.train"


def drawn(n: int = 3, length: int = LENGTH) -> Sequences:
    rng = default_rng(0)
    return chains.random_hmm(K, SYMBOLS, rng).sample(n, length, rng)


def counts(sequences: Sequences, b: int, tags: Any) -> numpy.ndarray:
    """How often a path of a sequence has each feature."""
    found = numpy.zeros((SYMBOLS + K, K))
    seen = sequences.features.toarray()[b * LENGTH : (b + 1) * LENGTH]
    for t, tag in enumerate(tags):
        found[:SYMBOLS, tag] += seen[t]
        if t:
            found[SYMBOLS + tags[t - 1], tag] += sequences.steps[tags[t - 1], tag]
    return found.ravel()


class Dense:
    """C*, b*, c_l and mu_l by listing the paths."""

    def __init__(self, sequences: Sequences) -> None:
        paths = list(product(range(K), repeat=LENGTH))
        self.matrix = numpy.zeros((sequences.size, sequences.size))
        self.right, self.of_loss = numpy.zeros((2, sequences.size))
        self.mean_loss = 0.0
        for b in range(len(sequences.lengths)):
            gold = sequences.tags[b * LENGTH : (b + 1) * LENGTH]
            of_paths = numpy.asarray([counts(sequences, b, tags) for tags in paths])
            losses = (numpy.asarray(paths) != gold).sum(axis=1)
            self.matrix += numpy.cov(of_paths.T, bias=True)
            self.right += counts(sequences, b, gold) - of_paths.mean(axis=0)
            self.of_loss += (of_paths - of_paths.mean(axis=0)).T @ losses / len(paths)
            self.mean_loss += losses.mean()

    def solve(self, c2: float, right: numpy.ndarray) -> numpy.ndarray:
        return numpy.linalg.solve(self.matrix + 2 * c2 * numpy.eye(len(right)), right)


def test_z_scores_are_the_dense_solutions() -> None:
    """That of the Hamming loss is the least variance at a lead of 1."""
    sequences, c2 = drawn(), 0.01
    for value in (1.0, 0.5):
        other = sequences._replace(steps=numpy.asarray([[1.0, value], [value, 1.0]]))
        dense = Dense(other)
        assert_allclose(chains.Moments(other, c2=0.0).right, dense.right, atol=1e-9)
        assert_allclose(best_z_score(other, c2=c2), dense.solve(c2, dense.right), atol=1e-6)
    dense = Dense(sequences)
    theta = best_hamming_z_score(sequences, c2=c2)
    assert dense.right @ theta - dense.mean_loss == pytest.approx(1, abs=1e-6)
    of_gold, of_loss = dense.solve(c2, dense.right), dense.solve(c2, dense.of_loss)
    margin = 1 + dense.mean_loss + dense.right @ of_loss
    expected = margin / (dense.right @ of_gold) * of_gold - of_loss
    assert_allclose(theta, expected, atol=1e-6)


@pytest.mark.parametrize("outside", ["single", "before"])
def test_the_z_score_of_a_component_is_the_dense_solution(outside: str) -> None:
    """Of all its weights, by listing all legal paths of each example."""
    nlp, examples = initialized(loss=loss_block("ZScore"), outside=outside)
    ner, c2 = nlp.get_pipe("ner"), 0.05
    sequences = ComponentSequences(ner, examples)
    weights, names = sequences.total.weights, list(ner.chain_tags.names)
    rows = sequences.total.features.find([eg.predicted for eg in examples]).rows
    k, size = len(names), weights.rows.size
    matrix, right = 2 * c2 * numpy.eye(size), numpy.zeros(size)
    legal = sequences.score(numpy.zeros(sequences.size))

    def count(b: int, y: oracle.Tags) -> numpy.ndarray:
        steps, emissions = oracle.features(legal, b, y), numpy.zeros((weights.n_features, k))
        for slots, counted in zip(rows, steps.emissions):
            emissions[slots[slots >= 0]] += counted
        below = [steps.transitions, steps.start[None], steps.end[None]]
        return numpy.concatenate([emissions, *below]).ravel()

    for b, (_, tags) in enumerate(TEXTS):
        some = [path.tags for path in oracle.paths(legal, b)]
        of_paths = numpy.asarray([count(b, y) for y in some])
        plain = [" ".join("O" if names[tag] == "O-X" else names[tag] for tag in y) for y in some]
        matrix += numpy.cov(of_paths.T, bias=True)
        right += of_paths[plain.index(tags)] - of_paths.mean(axis=0)
    sequences.total.write_weights(best_z_score(sequences, c2=c2))
    assert_allclose(weights.rows.ravel(), numpy.linalg.solve(matrix, right), atol=1e-4)


def test_means_and_covariances_of_sampled_paths() -> None:
    """With a sequence of one token and one of none."""
    rng = default_rng(4)
    lengths = numpy.asarray([3, 0, 1, 2], dtype="int32")
    values, legal = (random_potentials(lengths.tolist(), 3, scale) for scale in (1.0, 0.0))
    legal.transitions[0, 2] = legal.start[1] = -numpy.inf
    paths = chains.SampledPaths(legal, 40, rng)
    mean, expected = oracle.vector(oracle.zeros(legal)), oracle.vector(oracle.zeros(legal))
    for b, tokens in enumerate(oracle.spans(legal)):
        drawn = [tuple(row[tokens].tolist()) for row in paths.tags]
        counts = numpy.asarray([oracle.vector(oracle.features(legal, b, y)) for y in drawn])
        scores = numpy.asarray([oracle.score(values, b, y) for y in drawn])
        assert {*drawn} <= {path.tags for path in oracle.paths(legal, b)}
        mean += counts.mean(axis=0)
        expected += (counts - counts.mean(axis=0)).T @ scores / len(drawn)
    assert_allclose(oracle.vector(paths.average()), mean, atol=1e-12)
    assert_allclose(oracle.vector(paths.covariance(values)), expected, atol=1e-12)


def test_cutting_planes_find_a_kink() -> None:
    """|x - 1| + 3 |y + 2| twice, and half the squares: at x = 1 and y = -2."""

    def value_and_slope(vector: numpy.ndarray) -> Any:
        off = vector - [1, -2]
        return float(abs(off) @ [1, 3]), numpy.sign(off) * [1, 3]

    found = chains.cutting_planes(value_and_slope, 2, c=2.0, tolerance=1e-6)
    assert_allclose(found.vector, [1, -2], atol=1e-2)
    assert found.value == pytest.approx(2.5, rel=1e-5)
    assert found.reason == "converged"


def test_all_methods_learn_what_is_certain() -> None:
    sure = numpy.asarray([[0.98, 0.01, 0.01], [0.01, 0.98, 0.01]])
    hmm, rng = HMM(numpy.asarray([[0.9, 0.1], [0.2, 0.8]]), sure), default_rng(0)
    train, test = hmm.sample(30, 20, rng), hmm.sample(30, 20, rng)
    assert test.error(hmm.weights) < 3
    found = [best_z_score(train, c2=1e-3), best_hamming_z_score(train, c2=1e-3)]
    found += [chains.most_likely(train, c2=1e-2)]
    for weights in (*found, chains.largest_margin(train, c=1.0, tolerance=1e-3).vector):
        assert test.error(weights) < 6 and test.error(-weights) > 50


def test_hmms_are_as_hard_as_wanted() -> None:
    (hmm,), n_drawn = z_score.hmms_as_hard(20.0, 3, 1)
    test = hmm.sample(2000, 100, default_rng(7))
    assert test.error(hmm.weights) == pytest.approx(20, abs=5 * FULL["near"])
    assert n_drawn > 1


def docs() -> list[Doc]:
    vocab = spacy.blank("xx").vocab
    first = Doc(vocab, words=["Ana", "Lee", "ve", "Roma"], ents=["B-PER", "I-PER", "O", "B-LOC"])
    return [first, Doc(vocab, words=["Roma", "duerme"], ents=["B-LOC", "O"])]


def test_docs_as_sequences() -> None:
    ner = make_ner(as_examples(docs()), model=linear_block(z_score.FEATURES["S2"]))
    sequences = z_score.as_sequences(ner, docs())
    names = ner.tags.names
    assert [names[tag] for tag in sequences.tags] == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "O"]
    assert sequences.lengths.tolist() == [4, 2]
    seen = sequences.features.toarray()
    assert seen.sum(axis=1).tolist() == [2, 3, 3, 2, 2, 2]
    apart = vary(sequences, ner, step=0.01, o_after_o=False)
    assert apart.steps[0, 0] == 0
    assert apart.steps[1, 0] == 0.01
    legal = vary(sequences, ner, legal=True)
    inside = names.index("I-PER")
    assert legal.score(numpy.zeros(legal.size)).transitions[0, inside] == -numpy.inf
    assert sequences.score(numpy.zeros(legal.size)).transitions[0, inside] == 0


def test_errors_and_the_step_that_is_expected() -> None:
    """3 of 4 pairs are O, O, and 7 of 8 tags of pairs O; 2 tags."""
    gold = docs()
    gold[0].set_ents([gold[0].ents[1]])
    egs = as_examples(docs())
    for eg, answer in zip(egs, gold):
        eg.predicted.set_ents(list(answer.ents))
    assert z_score.token_error(egs) == pytest.approx(100 * 2 / 6)
    results = [{"tokens": n, "methods": {Z: [error, None]}} for n, error in ((10, 20.0), (30, 0.0))]
    assert z_score.pooled(results, Z) == pytest.approx(5)
    doc = Doc(gold[0].vocab, words=[*"abcde"], ents=["O", "O", "O", "O", "B-LOC"])
    assert z_score.expected_step([[doc]]) == pytest.approx(4 * 3 / 4 - 4 * 7 / 8 + 1)


@pytest.mark.skipif(not CORPUS.exists(), reason="needs CoNLL-2002 Spanish: spacy project assets")
@pytest.mark.parametrize("source", z_score.SPEC["sources"])
def test_folds_have_each_sentence_once(source: str) -> None:
    parts = z_score.folds(source)
    assert [len(part) for part in parts] == [FULL["n_sentences"] // 5] * 5
    assert len({id(doc) for part in parts for doc in part}) == FULL["n_sentences"]
    first = [" ".join(token.text for token in doc) for doc in parts[0]]
    assert (first[0] == "Melbourne ( Australia ) , 25 may ( EFE ) .") == (source == "blocks")
