"""Sparse rows of weights do what dense ones would do."""

import pickle
import re
from typing import Any

import numpy
import pytest

from spacy_costner import sparse
from spacy_costner.sparse import AdaGrad, Table, merge_equal

V, K, S, N = 11, 3, 4, 9
REGULARISATIONS = [(0.0, 0.0), (0.2, 0.0), (0.0, 0.1), (0.2, 0.3), (3.0, 0.0)]


def random_rows(rng: numpy.random.Generator, n_tokens: int = N) -> numpy.ndarray:
    """Features of tokens, some missing, some twice."""
    return rng.integers(-1, V, size=(n_tokens, S)).astype("int32")


def normal(rng: numpy.random.Generator, *shape: int) -> numpy.ndarray:
    return rng.normal(size=shape).astype("float32")


def incidence(rows: numpy.ndarray) -> numpy.ndarray:
    """How often each token has each row. Shape: (N, V)"""
    return (rows[:, :, None] == numpy.arange(V)).sum(axis=1)


def ints(*numbers: int) -> numpy.ndarray:
    return numpy.asarray(numbers, dtype="int32")


def floats(*shape: int) -> numpy.ndarray:
    return numpy.zeros(shape, dtype="float32")


def table_with(**parts: numpy.ndarray) -> Table:
    arrays = {name: floats(V, K) for name in ("weights", "squares", "totals")}
    return Table(**{**arrays, "last": ints(*[0] * V), **parts})


def test_sums_and_gradients_are_those_of_a_dense_product() -> None:
    """Gradients are also added to those that are there."""
    rng = numpy.random.default_rng(0)
    rows, weights, d_scores = random_rows(rng), normal(rng, V, K), normal(rng, N, K)
    d_scores[2] = 0
    dense = incidence(rows)
    numpy.testing.assert_allclose(sparse.sum_rows(rows, weights), dense @ weights, rtol=1e-5)
    assert sparse.sum_rows(rows[:0], weights).shape == (0, K)
    assert not sparse.sum_rows(rows[:, :0], weights).any()
    place_of = numpy.full(V, -1, dtype="int32")
    active, found = sparse.collect_rows(rows, d_scores, place_of)
    gradient = numpy.zeros((V, K))
    gradient[active] = found
    numpy.testing.assert_allclose(gradient, dense.T @ d_scores, atol=1e-5)
    touched = numpy.delete(rows, 2, axis=0)
    assert sorted(active.tolist()) == sorted(set(touched[touched >= 0].tolist()))
    assert (place_of == -1).all()
    gradient = rng.normal(size=(V, K))
    expected = gradient + dense.T @ d_scores
    for tokens, slots in ((N, S), (0, S), (N, 0)):
        sparse.add_rows(rows[:tokens, :slots].copy(), d_scores[:tokens], gradient)
        numpy.testing.assert_allclose(gradient, expected, rtol=1e-6)


@pytest.mark.parametrize(("l1", "l2"), REGULARISATIONS)
def test_lazy_steps_equal_eager_ones(l1: float, l2: float) -> None:
    """Weights and their sum over the steps, against steps that touch every weight."""
    rng = numpy.random.default_rng(2)
    settings, table = AdaGrad(learn_rate=0.3, L1=l1, L2=l2), table_with()
    weights, squares, totals = numpy.zeros((3, V, K))
    taken_to_0 = False
    for now in range(1, 40):
        rows = random_rows(rng, n_tokens=2)[:, :2].copy()
        d_scores = normal(rng, 2, K)
        active, gradient = sparse.collect_rows(rows, d_scores, numpy.full(V, -1, dtype="int32"))
        sparse.adagrad(table, active, gradient, now, settings)
        dense = incidence(rows).T @ d_scores
        squares += dense**2
        step = settings.learn_rate / (numpy.sqrt(squares) + settings.eps)
        moved = weights - step * dense
        weights = numpy.sign(moved) * numpy.maximum(abs(moved) - step * l1, 0) / (1 + step * l2)
        totals += weights
        taken_to_0 |= bool(((weights == 0) & (squares > 0)).any())
        if now % 13 == 0:
            sparse.lazy_regularise(table, ints(3, -1, 3, 5), now, settings)
    assert (table.last < now).any(), "all rows were active: nothing was lazy"
    sparse.lazy_regularise(table, numpy.arange(V, dtype="int32"), now, settings)
    numpy.testing.assert_allclose(table.weights, weights, atol=1e-5)
    numpy.testing.assert_allclose(table.totals, totals, atol=1e-3)
    assert taken_to_0 == (l1 > 0)
    assert ((table.weights == 0) == (weights == 0)).all()


def test_neighbours() -> None:
    values = numpy.asarray([[0, 5], [1, -1], [2, 7], [3, 8]], dtype="int32")
    slots = {"columns": [0, 0, 1], "offsets": [0, -1, 2], "first_rows": [100, 200, 300]}
    arguments = {name: numpy.asarray(slot, dtype="int32") for name, slot in slots.items()}
    lengths = numpy.asarray([3, 0, 1], dtype="int32")
    rows = sparse.gather_window(values, lengths, **arguments)
    assert rows.dtype == numpy.int32
    assert rows.tolist() == [[100, -1, 307], [101, 200, -1], [102, 201, -1], [103, -1, -1]]


def test_numbers_of_keys() -> None:
    rng = numpy.random.default_rng(3)
    keys = numpy.unique(rng.integers(0, 2**63, size=5000, dtype="uint64"))
    keys = numpy.append(keys, numpy.arange(100, dtype="uint64"))
    numbers = sparse.IdMap()
    assert numbers.find(keys).max() == -1
    numbers.set(keys[:3000], numpy.arange(3000, dtype="int32"))
    numbers.set(keys[4000:], numpy.arange(4000, len(keys), dtype="int32"))
    expected = numpy.arange(len(keys))
    expected[3000:4000] = -1
    numpy.testing.assert_array_equal(numbers.find(keys), expected)


def test_merged_rows_are_those_that_tokens_have_together() -> None:
    rows = numpy.asarray([[0, 3, 5], [4, -1, 1], [3, 2, 0], [-1, -1, -1]], dtype="int32")
    merged = merge_equal(rows, 7)
    groups = [{*numpy.flatnonzero(merged.group_of == g)} for g in merged.group_of]
    assert groups == [{0, 3}, {1, 4}, {2}, {0, 3}, {1, 4}, {5}, {6}]
    assert merged.rows.shape == (4, 2) and (merged.rows[3] == -1).all()
    assert (merged.roots[merged.group_of] == numpy.sqrt([2, 2, 1, 2, 2, 1, 1])).all()


@pytest.mark.parametrize("seed", range(5))
def test_merged_rows_score_as_all_rows_do(seed: int) -> None:
    rng = numpy.random.default_rng(seed)
    rows = rng.permuted(numpy.tile(numpy.arange(V), (N, 1)), axis=1)[:, :S].astype("int32")
    rows[rng.random(size=rows.shape) < 0.4] = -1
    rows = numpy.concatenate([rows, numpy.where(rows[:, :1] == 2, V, -1)], axis=1).astype("int32")
    merged = merge_equal(rows, V + 1)
    vectors = rng.normal(size=(len(merged.roots), K))
    weights = merged.spread(vectors)
    numpy.testing.assert_allclose(merged.merge(weights), vectors)
    assert (vectors**2).sum() == pytest.approx((weights**2).sum())
    expected = sparse.sum_rows(rows, weights.astype("float32"))
    found = sparse.sum_rows(merged.rows, (vectors * merged.roots[:, None]).astype("float32"))
    numpy.testing.assert_allclose(found, expected, atol=1e-5)


AROUND = (ints(0, 1, 2, 3).reshape(2, 2), ints(2), ints(0, 1), ints(0, 1), ints(0, 9))
ROWS = ints(*range(4)).reshape(2, 2)
BEYOND = ints(0, -1, V, 1).reshape(2, 2)
WRONG = {
    "gather_window": [
        ("sum of lengths: expected 2, got 3", {1: ints(3)}),
        ("lengths: expected at least 0, got -1", {1: ints(3, -1)}),
        ("columns: expected less than 2, got 2", {2: ints(0, 2)}),
        ("columns: expected at least 0, got -1", {2: ints(0, -1)}),
        ("length of offsets: expected 2, got 1", {3: ints(0)}),
        ("length of first_rows: expected 2, got 3", {4: ints(0, 9, 9)}),
    ],
    "sum_rows": [(f"rows: expected less than {V}, got {V}", {0: BEYOND})],
    "collect_rows": [
        (f"rows: expected less than {V}, got {V}", {0: BEYOND}),
        ("length of d_scores: expected 2, got 1", {1: floats(1, K)}),
    ],
    "add_rows": [
        (f"rows: expected less than {V}, got {V}", {0: BEYOND}),
        ("length of d_scores: expected 2, got 3", {1: floats(3, K)}),
        ("width of gradient: expected 2, got 3", {1: floats(2, 2)}),
    ],
    "multiply_rows": [("length of weights: expected 3, got 11", {1: floats(V, K)})],
    "lazy_regularise": [
        (f"rows: expected less than {V}, got {V}", {1: BEYOND.reshape(-1)}),
        (f"width of table.totals: expected {K}, got 2", {0: table_with(totals=floats(V, 2))}),
        (f"length of table.squares: expected {V}, got 2", {0: table_with(squares=floats(2, K))}),
    ],
    "adagrad": [
        (f"rows: expected less than {V}, got {V}", {1: ints(0, V)}),
        ("rows: expected at least 0, got -1", {1: ints(0, -1)}),
        ("length of gradient: expected 2, got 1", {2: floats(1, K)}),
        (f"width of gradient: expected {K}, got 4", {2: floats(2, 4)}),
        (f"length of table.last: expected {V}, got 2", {0: table_with(last=ints(0, 0))}),
    ],
}


@pytest.mark.parametrize(
    ("name", "message", "changes"),
    [(name, *case) for name, cases in WRONG.items() for case in cases],
)
def test_what_does_not_fit_is_named(name: str, message: str, changes: Any) -> None:
    """Nothing reads or writes outside of its arguments, nor changes them before it says so."""
    table, settings = table_with(), AdaGrad(L2=0.1)
    right = {
        "gather_window": AROUND,
        "sum_rows": (ROWS, floats(V, K)),
        "collect_rows": (ROWS, floats(2, K), numpy.full(V, -1, dtype="int32")),
        "add_rows": (ROWS, floats(2, K), numpy.zeros((V, K))),
        "multiply_rows": (floats(2, 3), floats(3, K)),
        "lazy_regularise": (table, ROWS.reshape(-1), 1, settings),
        "adagrad": (table, ints(0, 1), floats(2, K), 1, settings),
    }[name]
    getattr(sparse, name)(*right)
    before = pickle.dumps(right)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        getattr(sparse, name)(*(changes.get(i, value) for i, value in enumerate(right)))
    assert pickle.dumps(right) == before


def test_products_of_rows_do_not_depend_on_other_rows() -> None:
    """They are those of matrices, and the same bit for bit for a row by itself."""
    rng = numpy.random.default_rng(0)
    inputs, weights = normal(rng, 50, 37), normal(rng, 37, K)
    products = sparse.multiply_rows(inputs, weights)
    numpy.testing.assert_allclose(products, inputs @ weights, rtol=1e-4, atol=1e-5)
    for i in range(len(inputs)):
        alone = sparse.multiply_rows(inputs[i : i + 1], weights)
        numpy.testing.assert_array_equal(alone, products[i : i + 1])
    assert sparse.multiply_rows(inputs[:0], weights).shape == (0, K)
    assert not sparse.multiply_rows(inputs[:, :0], weights[:0]).any()


def test_wrong_numbers_are_named() -> None:
    numbers, keys = sparse.IdMap(), numpy.arange(2, dtype="uint64")
    with pytest.raises(ValueError, match=r"^length of numbers: expected 2, got 1$"):
        numbers.set(keys, ints(0))
    with pytest.raises(ValueError, match=r"^numbers: expected at least 0, got -1$"):
        numbers.set(keys, ints(0, -1))
    assert numbers.find(keys).tolist() == [-1, -1]
