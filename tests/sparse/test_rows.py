"""Sparse rows of weights do what dense ones would do."""

import pickle
import re
from typing import Any

import numpy
import pytest

from spacy_costner import sparse
from spacy_costner.sparse import AdaGrad, Table, merge_equal

V, K, S, N = 11, 3, 4, 9
"""Rows of weights, weights of a row, slots of a token, tokens."""

REGULARISATIONS = [(0.0, 0.0), (0.2, 0.0), (0.0, 0.1), (0.2, 0.3), (3.0, 0.0)]
"""L1 and L2."""


def random_rows(rng: numpy.random.Generator, n_tokens: int = N) -> numpy.ndarray:
    """The rows of tokens, some of them -1, some twice. Shape: (n_tokens, S)"""
    return rng.integers(-1, V, size=(n_tokens, S)).astype("int32")


def normal(rng: numpy.random.Generator, *shape: int) -> numpy.ndarray:
    """Random numbers as float32."""
    return rng.normal(size=shape).astype("float32")


def incidence(rows: numpy.ndarray) -> numpy.ndarray:
    """How often each token has each row. Shape: (N, V)"""
    return (rows[:, :, None] == numpy.arange(V)).sum(axis=1)


def ints(*numbers: int) -> numpy.ndarray:
    return numpy.asarray(numbers, dtype="int32")


def floats(*shape: int) -> numpy.ndarray:
    return numpy.zeros(shape, dtype="float32")


def table_with(**parts: numpy.ndarray) -> Table:
    """A table of zeros, but for these parts."""
    arrays = {name: floats(V, K) for name in ("weights", "squares", "totals")}
    return Table(**{**arrays, "last": ints(*[0] * V), **parts})


def test_scores_are_those_of_a_dense_product() -> None:
    rng = numpy.random.default_rng(0)
    rows = random_rows(rng)
    weights = normal(rng, V, K)
    scores = sparse.sum_rows(rows, weights)
    numpy.testing.assert_allclose(scores, incidence(rows) @ weights, rtol=1e-5)


def test_without_tokens_or_slots_scores_are_empty_or_0() -> None:
    rng = numpy.random.default_rng(0)
    rows = random_rows(rng)
    weights = normal(rng, V, K)
    assert sparse.sum_rows(rows[:0], weights).shape == (0, K)
    assert sparse.sum_rows(rows[:, :0], weights).tolist() == [[0.0] * K] * N


def test_collected_gradients_are_those_of_a_dense_product() -> None:
    """Rows of which all tokens have a gradient of 0 are left out: here, those of token 2 alone."""
    rng = numpy.random.default_rng(0)
    rows = random_rows(rng)
    d_scores = normal(rng, N, K)
    d_scores[2] = 0
    place_of = numpy.full(V, -1, dtype="int32")

    active, active_gradient = sparse.collect_rows(rows, d_scores, place_of)

    gradient = numpy.zeros((V, K))
    gradient[active] = active_gradient
    numpy.testing.assert_allclose(gradient, incidence(rows).T @ d_scores, atol=1e-5)
    rows_of_others = numpy.delete(rows, 2, axis=0)
    assert sorted(active.tolist()) == numpy.unique(rows_of_others[rows_of_others >= 0]).tolist()
    assert (place_of == -1).all()


def test_gradients_are_added_to_those_that_are_there() -> None:
    """Without tokens or slots nothing is added."""
    rng = numpy.random.default_rng(0)
    rows = random_rows(rng)
    d_scores = normal(rng, N, K)
    gradient = rng.normal(size=(V, K))
    expected = gradient + incidence(rows).T @ d_scores

    sparse.add_rows(rows, d_scores, gradient)
    sparse.add_rows(rows[:0], d_scores[:0], gradient)
    sparse.add_rows(rows[:, :0].copy(), d_scores, gradient)

    numpy.testing.assert_allclose(gradient, expected, rtol=1e-6)


@pytest.mark.parametrize(("l1", "l2"), REGULARISATIONS)
def test_lazy_steps_equal_eager_ones(l1: float, l2: float) -> None:
    """A lazy step changes only rows that have a gradient. The regularisation of other rows is made
    up for later. After all steps, the weights and their sums over the steps are those of eager
    steps, which change every weight by the formula in the docstring of `AdaGrad`."""
    rng = numpy.random.default_rng(2)
    settings = AdaGrad(learn_rate=0.3, L1=l1, L2=l2)
    table = table_with()  # of the lazy steps
    # The same arrays of the eager steps
    weights = numpy.zeros((V, K))
    squares = numpy.zeros((V, K))
    totals = numpy.zeros((V, K))
    was_taken_to_0 = False
    for now in range(1, 40):
        # The lazy step. Two tokens have at most 4 of the 11 rows: the others wait.
        rows = random_rows(rng, n_tokens=2)[:, :2].copy()
        d_scores = normal(rng, 2, K)
        active, gradient = sparse.collect_rows(rows, d_scores, numpy.full(V, -1, dtype="int32"))
        sparse.adagrad(table, active, gradient, now, settings)
        if now % 13 == 0:
            # Some rows catch up in between, one of which is named twice. -1 is no row.
            sparse.lazy_regularise(table, ints(3, -1, 3, 5), now, settings)

        # The eager step
        dense_gradient = incidence(rows).T @ d_scores
        squares += dense_gradient**2
        step = settings.learn_rate / (numpy.sqrt(squares) + settings.eps)
        moved = weights - step * dense_gradient
        weights = numpy.sign(moved) * numpy.maximum(abs(moved) - step * l1, 0) / (1 + step * l2)
        totals += weights
        was_taken_to_0 |= bool(((weights == 0) & (squares > 0)).any())
    assert (table.last < now).any(), "all rows were active: nothing was lazy"
    sparse.lazy_regularise(table, numpy.arange(V, dtype="int32"), now, settings)
    numpy.testing.assert_allclose(table.weights, weights, atol=1e-5)
    numpy.testing.assert_allclose(table.totals, totals, atol=1e-3)
    assert was_taken_to_0 == (l1 > 0)
    assert ((table.weights == 0) == (weights == 0)).all()


def test_tokens_have_the_rows_of_their_neighbours() -> None:
    """Three slots: a token's first column, that of the token before it, and the second column two
    tokens to the right. Rows are the value plus 100, 200 or 300; -1 where a neighbour has no value
    or is in another sequence."""
    values = numpy.asarray([[0, 5], [1, -1], [2, 7], [3, 8]], dtype="int32")
    rows = sparse.gather_window(
        values,
        lengths=ints(3, 0, 1),
        columns=ints(0, 0, 1),
        offsets=ints(0, -1, 2),
        first_rows=ints(100, 200, 300),
    )
    assert rows.dtype == numpy.int32
    assert rows.tolist() == [[100, -1, 307], [101, 200, -1], [102, 201, -1], [103, -1, -1]]


def test_keys_have_the_numbers_that_were_set() -> None:
    """There are thousands of keys, so that the hash table has to grow. Of 1,000 keys the numbers
    are never set: `find` returns -1 for them."""
    rng = numpy.random.default_rng(3)
    keys = numpy.unique(rng.integers(0, 2**63, size=5000, dtype="uint64"))
    keys = numpy.append(keys, numpy.arange(100, dtype="uint64"))
    id_map = sparse.IdMap()
    assert (id_map.find(keys) == -1).all()

    id_map.set(keys[:3000], numpy.arange(3000, dtype="int32"))
    id_map.set(keys[4000:], numpy.arange(4000, len(keys), dtype="int32"))

    expected = numpy.arange(len(keys))
    expected[3000:4000] = -1
    numpy.testing.assert_array_equal(id_map.find(keys), expected)


def test_merged_rows_are_those_that_tokens_have_together() -> None:
    """Of 7 rows, 0 and 3 are always together, and so are 1 and 4. No token has row 6."""
    rows = numpy.asarray([[0, 3, 5], [4, -1, 1], [3, 2, 0], [-1, -1, -1]], dtype="int32")

    merged = merge_equal(rows, 7)

    rows_of_groups = {tuple(numpy.flatnonzero(merged.group_of == g)) for g in merged.group_of}
    assert rows_of_groups == {(0, 3), (1, 4), (2,), (5,), (6,)}
    # The root of the number of rows in the group of each row.
    roots = merged.roots[merged.group_of]
    numpy.testing.assert_allclose(roots**2, [2, 2, 1, 2, 2, 1, 1], rtol=1e-6)
    assert merged.rows.shape == (4, 2)  # no token has more than two groups
    assert (merged.rows[3] == -1).all()


@pytest.mark.parametrize("seed", range(5))
def test_merged_rows_score_as_all_rows_do(seed: int) -> None:
    """A token has the scores of its groups if each vector counts sqrt(c) times."""
    rng = numpy.random.default_rng(seed)
    # Each token has up to S different rows; those with row 2 in their first slot have row V, too.
    rows = rng.permuted(numpy.tile(numpy.arange(V), (N, 1)), axis=1)[:, :S].astype("int32")
    rows[rng.random(size=rows.shape) < 0.4] = -1
    row_with_2 = numpy.where(rows[:, :1] == 2, V, -1)
    rows = numpy.concatenate([rows, row_with_2], axis=1).astype("int32")

    merged = merge_equal(rows, V + 1)

    vectors = rng.normal(size=(len(merged.roots), K))
    weights = merged.spread(vectors)
    numpy.testing.assert_allclose(merged.merge(weights), vectors)
    assert (vectors**2).sum() == pytest.approx((weights**2).sum())
    expected = sparse.sum_rows(rows, weights.astype("float32"))
    group_weights = (vectors * merged.roots[:, None]).astype("float32")
    scores = sparse.sum_rows(merged.rows, group_weights)
    numpy.testing.assert_allclose(scores, expected, atol=1e-5)


# For each function, what makes its arguments wrong: the message, and by the place of an argument
# another value. The right arguments are in the test below. `WINDOW` has two tokens and two columns.
# `BEYOND` has the row V, one more than the last.
WINDOW = (ints(0, 1, 2, 3).reshape(2, 2), ints(2), ints(0, 1), ints(0, 1), ints(0, 9))
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
        # The gradient keeps its K = 3 columns, and those of d_scores are now 2.
        ("width of gradient: expected 2, got 3", {1: floats(2, 2)}),
    ],
    # The inputs have 3 columns, and the weights V rows.
    "multiply_rows": [(f"length of weights: expected 3, got {V}", {1: floats(V, K)})],
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
    "average": [
        ("now: expected more than 2, got 2", {2: 2}),
        (f"length of before: expected {V}, got 1", {4: floats(1, K)}),
        (f"width of before: expected {K}, got 4", {4: floats(V, 4)}),
    ],
}


@pytest.mark.parametrize(
    ("name", "message", "changes"),
    [(name, *case) for name, cases in WRONG.items() for case in cases],
)
def test_arguments_that_do_not_fit_are_named_and_not_changed(
    name: str, message: str, changes: dict[int, Any]
) -> None:
    table = table_with()
    settings = AdaGrad(L2=0.1)
    function = getattr(sparse, name)
    arguments: tuple[Any, ...] = {
        "gather_window": WINDOW,
        "sum_rows": (ROWS, floats(V, K)),
        "collect_rows": (ROWS, floats(2, K), numpy.full(V, -1, dtype="int32")),
        "add_rows": (ROWS, floats(2, K), numpy.zeros((V, K))),
        "multiply_rows": (floats(2, 3), floats(3, K)),
        "lazy_regularise": (table, ROWS.reshape(-1), 1, settings),
        "adagrad": (table, ints(0, 1), floats(2, K), 1, settings),
        "average": (table, 2, 3, 0.5, floats(V, K)),
    }[name]
    function(*arguments)
    before = pickle.dumps(arguments)
    wrong_arguments = [changes.get(i, argument) for i, argument in enumerate(arguments)]

    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        function(*wrong_arguments)

    assert pickle.dumps(arguments) == before


def test_products_of_rows_do_not_depend_on_other_rows() -> None:
    """Products are those of matrices. The product of a row by itself is the same, bit for bit."""
    rng = numpy.random.default_rng(0)
    inputs = normal(rng, 50, 37)
    weights = normal(rng, 37, K)
    products = sparse.multiply_rows(inputs, weights)
    numpy.testing.assert_allclose(products, inputs @ weights, rtol=1e-4, atol=1e-5)
    for i in range(len(inputs)):
        alone = sparse.multiply_rows(inputs[i : i + 1], weights)
        numpy.testing.assert_array_equal(alone, products[i : i + 1])


def test_products_of_nothing_are_0() -> None:
    assert sparse.multiply_rows(floats(0, 3), floats(3, K)).shape == (0, K)
    numpy.testing.assert_array_equal(sparse.multiply_rows(floats(2, 0), floats(0, K)), floats(2, K))


def test_wrong_numbers_of_keys_are_refused_and_none_is_set() -> None:
    """Each key needs a number of at least 0. `find` returns -1 for a key without a number."""
    id_map = sparse.IdMap()
    keys = numpy.arange(2, dtype="uint64")
    with pytest.raises(ValueError, match=r"^length of numbers: expected 2, got 1$"):
        id_map.set(keys, ints(0))
    with pytest.raises(ValueError, match=r"^numbers: expected at least 0, got -1$"):
        id_map.set(keys, ints(0, -1))
    assert id_map.find(keys).tolist() == [-1, -1]
