"""The queries of the chain that have a gradient, each against its definition.

`QUERIES` is the table: all tests run on all of them. Short sequences are judged by enumeration
(`oracle`), long ones, many tags and scores that underflow by recursions in the log domain
(`reference`), on every instruction set.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from spacy_costner import chain
from spacy_costner.chain import native
from spacy_costner.types import Potentials

from .. import oracle, reference
from ..support import strategies
from ..support.batches import forbid_all, in_precision, random_potentials
from ..support.strategies import allowed_NK, constraints_NK, potentials_NK

INSTRUCTION_SETS = native.instruction_sets()
TOLERANCE = {"float32": 2e-4, "float64": 1e-9}


class Query(NamedTuple):
    """A query of the chain, such as log_marginals, and what judges it. Many take an argument beside
    the potentials: tags, sets of tags, values or segments."""

    enumerate: Callable[[Potentials, Any], list[oracle.Value]]
    """Value and gradient for each sequence, token or segment, from all paths: short sequences."""
    recur: Callable[[Potentials, Any, int], oracle.Value]
    """Value and gradient for the sequence, token or segment with that index, by `reference`."""
    draw: Callable[[Potentials], st.SearchStrategy] = lambda potentials: st.none()
    """The argument for a batch; None for a query without argument."""


def sequence_and_position(potentials: Potentials) -> list[tuple[int, int]]:
    """For each token, return the number of its sequence, and its position in the sequence."""
    return [(b, t) for b, n in enumerate(potentials.lengths.tolist()) for t in range(n)]


def for_each_sequence(value: Callable[..., oracle.Value]) -> Callable[..., list[oracle.Value]]:
    """The function that calls `value` with each index of a sequence."""
    return lambda p, argument: [value(p, argument, b) for b in range(len(p.lengths))]


def path_score(potentials: Potentials, tags: Any, b: int) -> oracle.Value:
    """s(y) of the path of sequence b, and how often it takes each step; 0 if it is illegal."""
    path = tags[oracle.spans(potentials)[b]]
    score = oracle.score(potentials, b, path)
    gradient = oracle.vector(oracle.features(potentials, b, path))
    if score == -math.inf:
        gradient = numpy.zeros_like(gradient)
    return oracle.Value(score, gradient)


def restricted(potentials: Potentials, tokens: slice, tags: Any) -> Potentials:
    """The potentials, with only some tags allowed at some tokens: a tag or a mask of each."""
    allowed = numpy.ones(potentials.emissions.shape, dtype=bool)
    allowed[tokens] = chain.to_mask(numpy.asarray(tags), allowed.shape[1])
    return chain.restrict(potentials, allowed)


def recur_log_prob(potentials: Potentials, b: int, subset: Potentials) -> oracle.Value:
    """log Z of the paths that `subset` allows, less that of all: their log probability."""
    return reference.difference(reference.log_sum(subset, b), reference.log_sum(potentials, b))


def recur_excluding(potentials: Potentials, allowed: Any, b: int) -> oracle.Value:
    """log Z of the paths with a tag that isn't allowed: the sum over the token t that has the first
    such tag, of the paths that are allowed before t and not at t."""
    nothing = oracle.Value(-math.inf, oracle.vector(oracle.zeros(potentials)))
    log_z_of_first = [nothing]
    tokens = oracle.spans(potentials)[b]
    for t in range(tokens.start, tokens.stop):
        until_t = numpy.concatenate([allowed[tokens.start : t], ~allowed[t : t + 1]])
        leaving_at_t = restricted(potentials, slice(tokens.start, t + 1), until_t)
        log_z_of_first.append(reference.log_sum(leaving_at_t, b))
    return reference.log_total(log_z_of_first)


def recur_marginal(potentials: Potentials, allowed: Any, token: int) -> oracle.Value:
    """The log probability that a token has an allowed tag."""
    subset = restricted(potentials, slice(token, token + 1), allowed[token : token + 1])
    b, _ = sequence_and_position(potentials)[token]
    return recur_log_prob(potentials, b, subset)


def recur_segment(potentials: Potentials, segments: chain.Segments, s: int) -> oracle.Value:
    """The log probability of the tags of segment s, and of an allowed tag after it."""
    begin = int(segments.begin[s])
    end = int(segments.end[s])
    # The tags of all segments stand one after another.
    first = int((segments.end - segments.begin)[:s].sum())
    tags = segments.tags[first : first + end - begin]
    subset = restricted(potentials, slice(begin, end), tags)
    b, _ = sequence_and_position(potentials)[begin]
    if segments.after is not None and end < oracle.spans(potentials)[b].stop:
        subset = restricted(subset, slice(end, end + 1), segments.after[s : s + 1])
    return recur_log_prob(potentials, b, subset)


def recur_entropy(potentials: Potentials, _: None, b: int) -> oracle.Value:
    """log Z - E[s], whose gradient is minus that of E[v] for values v = s. The largest emission of
    each token is made 0, so that the difference is one of small numbers: entropy stays the same."""
    largest = numpy.nan_to_num(potentials.emissions.max(axis=1, keepdims=True), neginf=0.0)
    lowered = potentials._replace(emissions=potentials.emissions - largest)
    mean = reference.expectation(lowered, b, lowered, step=1e-5)
    log_z = reference.log_sum(lowered, b).value
    entropy = log_z - mean.value if log_z > -math.inf else 0.0
    return oracle.Value(entropy, -mean.gradient)


def value_of_path(values: Potentials, b: int, tags: oracle.Tags) -> float:
    """The sum of the values of the steps of a path; minus infinity counts 0."""
    finite = Potentials(*(numpy.nan_to_num(a, neginf=0.0) for a in values[:4]), values.lengths)
    return oracle.score(finite, b, tags)


def leaves(allowed: numpy.ndarray, potentials: Potentials, b: int, tags: oracle.Tags) -> bool:
    """Whether a path of sequence b has a tag that isn't allowed."""
    first = oracle.spans(potentials)[b].start
    return any(not allowed[first + t, tag] for t, tag in enumerate(tags))


def is_path(tags: Any, potentials: Potentials, b: int, path: oracle.Tags) -> bool:
    """Whether a path of sequence b has these tags."""
    return list(path) == tags[oracle.spans(potentials)[b]].tolist()


def token_log_probs(potentials: Potentials, allowed: Any) -> list[oracle.Value]:
    """The log probability that a token has an allowed tag, for each token."""
    values = []
    for token, (b, t) in enumerate(sequence_and_position(potentials)):

        def is_allowed(path: oracle.Tags, token: int = token, t: int = t) -> bool:
            return bool(allowed[token, path[t]])

        values.append(oracle.log_probability(potentials, b, is_allowed))
    return values


def segment_log_probs(potentials: Potentials, segments: chain.Segments) -> list[oracle.Value]:
    """The log probability of each segment."""
    values = []
    for s in range(len(segments.begin)):
        b, has_segment = oracle.has_segment(potentials, segments, s)
        values.append(oracle.log_probability(potentials, b, has_segment))
    return values


# In the lambdas, p are potentials, b is the index of a sequence, y a path of it.
QUERIES: dict[str, Query] = {
    "log_partition": Query(
        for_each_sequence(lambda p, _, b: oracle.log_sum(p, b)),
        lambda p, _, b: reference.log_sum(p, b),
    ),
    "path_score": Query(for_each_sequence(path_score), path_score, strategies.tags_N),
    "path_log_prob": Query(
        for_each_sequence(
            lambda p, tags, b: oracle.log_probability(p, b, lambda y: is_path(tags, p, b, y))
        ),
        lambda p, tags, b: recur_log_prob(p, b, restricted(p, slice(None), tags)),
        strategies.tags_N,
    ),
    "expectation": Query(
        for_each_sequence(
            lambda p, values, b: oracle.mean(p, b, lambda y: value_of_path(values, b, y))
        ),
        lambda p, values, b: reference.expectation(p, b, values),
        strategies.values_NK,
    ),
    "entropy": Query(for_each_sequence(lambda p, _, b: oracle.entropy(p, b)), recur_entropy),
    "log_partition_excluding": Query(
        for_each_sequence(
            lambda p, allowed, b: oracle.log_sum(p, b, lambda y: leaves(allowed, p, b, y))
        ),
        recur_excluding,
        allowed_NK,
    ),
    "log_marginals": Query(token_log_probs, recur_marginal, allowed_NK),
    "segment_log_probs": Query(segment_log_probs, recur_segment, strategies.segments_S),
}
each_query = pytest.mark.parametrize("name", QUERIES)


def ask(name: str, potentials: Potentials, argument: Any) -> tuple[numpy.ndarray, Callable]:
    """The answer of the chain to a query: values and their callback."""
    query = getattr(chain, name)
    return query(potentials) if argument is None else query(potentials, argument)


def random_argument(name: str, potentials: Potentials, seed: int = 0) -> Any:
    """An argument of a query, for a batch; with odd seeds the best path where paths are asked for,
    as a random one has hardly any probability. None if the query has no argument."""
    rng = numpy.random.default_rng(seed)
    n_tokens, n_tags = potentials.emissions.shape
    wants_best_path = seed % 2 == 1
    if name == "expectation":
        return random_potentials(potentials.lengths.tolist(), n_tags, seed=seed)
    if name == "log_partition_excluding" and wants_best_path:
        return chain.to_mask(chain.best_path(potentials).tags, n_tags)
    if name in ("log_marginals", "log_partition_excluding"):
        return rng.uniform(size=(n_tokens, n_tags)) < 0.5
    if name in ("path_score", "path_log_prob") and wants_best_path:
        return chain.best_path(potentials).tags
    if name in ("path_score", "path_log_prob"):
        return rng.integers(n_tags, size=n_tokens)
    if name == "segment_log_probs":
        begin = numpy.flatnonzero(rng.uniform(size=n_tokens) < 0.3)
        end_of_sequence = numpy.repeat(numpy.cumsum(potentials.lengths), potentials.lengths)
        end = numpy.minimum(begin + 1 + rng.integers(2, size=len(begin)), end_of_sequence[begin])
        tags = rng.integers(n_tags, size=int((end - begin).sum()))
        return chain.Segments(begin, end, tags, rng.uniform(size=(len(begin), n_tags)) < 0.8)
    return None


def rounding_error(potentials: Potentials) -> float:
    """What rounding leaves where totals as large as these scores cancel."""
    finite = [abs(array[numpy.isfinite(array)]).max(initial=0) for array in potentials[:4]]
    longest = potentials.lengths.max(initial=0)
    return float(numpy.finfo(potentials.emissions.dtype).eps * sum(finite) * longest)


def check_answer(
    answer: tuple[numpy.ndarray, Callable],
    potentials: Potentials,
    expected: dict[int, oracle.Value],
    rtol: float,
    atol: float,
) -> None:
    """Check values and gradients of an answer at the indices in `expected`. Gradients are checked
    together, as that of a sum with random weights."""
    values, backprop = answer
    indices = list(expected)
    weights = numpy.zeros(values.shape)
    weights[indices] = numpy.random.default_rng(0).normal(size=len(indices))
    gradient = backprop(weights)

    assert values.dtype == "float64"
    expected_values = [expected[i].value for i in indices]
    assert_allclose(values[indices], expected_values, rtol=rtol, atol=atol)
    assert_array_equal(gradient.lengths, potentials.lengths)
    for array, scores in zip(gradient[:4], potentials[:4]):
        assert (array.dtype, array.shape) == (potentials.emissions.dtype, scores.shape)
        assert (array[numpy.isneginf(scores)] == 0).all()
    expected_gradient = oracle.vector(oracle.zeros(potentials))
    for i in indices:
        expected_gradient += weights[i] * expected[i].gradient
    atol *= max(1.0, abs(expected_gradient).max(initial=0))
    assert_allclose(oracle.vector(gradient), expected_gradient, rtol=rtol, atol=atol)


def check_by_enumeration(
    name: str, potentials: Potentials, argument: Any, rtol: float, atol: float
) -> None:
    """Check all values of a query, and their gradients, in the precision of the potentials."""
    expected = QUERIES[name].enumerate(in_precision(potentials, "float64"), argument)
    answer = ask(name, potentials, argument)
    assert len(answer[0]) == len(expected)
    check_answer(answer, potentials, dict(enumerate(expected)), rtol, atol)


# Short sequences


@each_query
@given(st.data())
@settings(max_examples=40)
def test_values_and_gradients_are_those_of_enumeration(name: str, data: st.DataObject) -> None:
    potentials = data.draw(potentials_NK(longest=4))
    argument = data.draw(QUERIES[name].draw(potentials))
    in_float32 = in_precision(potentials, "float32")

    check_by_enumeration(name, potentials, argument, rtol=1e-7, atol=1e-7)
    check_by_enumeration(name, in_float32, argument, rtol=1e-3, atol=1e-3)


@each_query
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [30, 300, 3_000, 10_000])
def test_scores_beyond_the_range_of_exponentials(name: str, scale: float, dtype: str) -> None:
    """exp(89) is too large for float32, exp(710) for float64."""
    for seed in range(4):
        potentials = random_potentials([4, 1, 0, 3], 3, scale, dtype, seed)
        argument = random_argument(name, potentials, seed)

        check_by_enumeration(name, potentials, argument, rtol=1e-4, atol=2e-4)


@each_query
def test_sequences_do_not_disturb_each_other(name: str) -> None:
    """Sequence 1 loses its legal paths and the scores of 3 become extreme: the gradients of 0, 4
    and 5 stay as they are."""
    potentials = random_potentials([3, 2, 0, 4, 3, 1], 3, dtype="float32")
    tokens = oracle.spans(potentials)
    argument = random_argument(name, potentials)
    if name == "segment_log_probs":  # none, as none has a value in a sequence without legal path
        argument = chain.Segments(*(numpy.zeros(0, "int64") for _ in range(3)))
    disturbed = forbid_all(potentials, 1)
    disturbed.emissions[tokens[3]] *= 5_000

    values, backprop = ask(name, potentials, argument)
    _, backprop_disturbed = ask(name, disturbed, argument)
    gradient = backprop(numpy.ones(len(values)))
    gradient_disturbed = backprop_disturbed(numpy.ones(len(values)))

    check_by_enumeration(name, disturbed, argument, rtol=1e-5, atol=1e-5)
    assert (gradient_disturbed.emissions[tokens[1]] == 0).all()
    for b in (0, 4, 5):
        assert_allclose(
            gradient_disturbed.emissions[tokens[b]], gradient.emissions[tokens[b]], atol=1e-6
        )


@given(potentials_NK())
def test_marginals_are_the_expected_numbers_of_tags(potentials: Potentials) -> None:
    """The potentials are not changed."""
    copies = [array.copy() for array in potentials]

    marginals = chain.marginals(potentials)

    expected = oracle.zeros(potentials).emissions
    for b in range(len(potentials.lengths)):  # 0 at the tokens of other sequences
        expected += oracle.expected_features(potentials, b).emissions
    assert_allclose(marginals, expected, rtol=1e-9, atol=1e-9)
    for array, copy in zip(potentials, copies):
        assert_array_equal(array, copy)


@given(potentials_NK(constrained=False), st.data())
def test_a_constraint_forbids_what_it_says_and_nothing_else(
    potentials: Potentials, data: st.DataObject
) -> None:
    constraints = data.draw(constraints_NK(*potentials.emissions.shape))

    constrained = chain.constrain(potentials, constraints)

    for scores, before, possible in zip(constrained, potentials, constraints):
        expected = before if possible is None else numpy.where(possible, before, -numpy.inf)
        assert_array_equal(scores, expected)


@given(potentials_NK(constrained=False), st.data())
def test_restricted_potentials_have_the_paths_through_allowed_tags(
    potentials: Potentials, data: st.DataObject
) -> None:
    """The paths are those that constraints allow, too."""
    constraints = data.draw(constraints_NK(*potentials.emissions.shape))
    constrained = chain.constrain(potentials, constraints)
    allowed = data.draw(allowed_NK(potentials))

    log_z, _ = chain.log_partition(chain.restrict(constrained, allowed))

    expected = oracle.log_partition(constrained, allowed)
    assert_allclose(log_z, expected, rtol=1e-9, atol=1e-9)


def test_without_a_set_of_tags_nothing_is_restricted() -> None:
    potentials = random_potentials([2], 3)

    assert chain.restrict(potentials, None).emissions is potentials.emissions


# Long sequences, many tags, numbers of each width


@pytest.fixture(autouse=True)
def first_instruction_set() -> Iterator[None]:
    """It is in use again after each test."""
    yield
    native.use_instruction_set(INSTRUCTION_SETS[0])


def check_by_reference(potentials: Potentials, n_values: int = 3) -> None:
    """Check that all queries, answered from the same messages, agree with recursions, at a few
    random sequences, tokens or segments, on every instruction set of this machine. The recursions
    are slow: each is computed once for all instruction sets."""
    exact = in_precision(potentials, "float64")
    dtype = str(potentials.emissions.dtype)
    tolerance = max(TOLERANCE[dtype], rounding_error(exact))
    arguments = {name: random_argument(name, potentials, seed) for seed, name in enumerate(QUERIES)}
    rng = numpy.random.default_rng(0)
    expected: dict[str, dict[int, oracle.Value]] = {}  # by query and index
    for instruction_set in INSTRUCTION_SETS:
        native.use_instruction_set(instruction_set)
        messages = chain.forward_backward(potentials)
        for name, query in QUERIES.items():
            argument = arguments[name]
            if name == "path_score":  # needs no messages
                answer = chain.path_score(potentials, argument)
            elif argument is None:
                answer = getattr(messages, name)()
            else:
                answer = getattr(messages, name)(argument)

            if name not in expected:
                indices = rng.permutation(len(answer[0]))[:n_values].tolist()
                expected[name] = {i: query.recur(exact, argument, i) for i in indices}
            # `reference` differentiates these two numerically.
            rtol = max(tolerance, 1e-5) if name in ("expectation", "entropy") else tolerance
            atol = max(rtol, rounding_error(potentials))
            check_answer(answer, potentials, expected[name], rtol, atol)


def biluo_transitions(n_labels: int) -> numpy.ndarray:
    """The transitions that BILUO allows. The tags are B of each label, then I, L, U, then O.
    Shape: (4 n_labels + 1, 4 n_labels + 1)"""
    prefix = numpy.asarray([*numpy.repeat(["B", "I", "L", "U"], n_labels), "O"])
    label = numpy.asarray([*numpy.tile(range(n_labels), 4), -1])
    begins_anew = numpy.isin(prefix, ["B", "U", "O"])
    continues = numpy.isin(prefix, ["I", "L"])
    is_unfinished = numpy.isin(prefix, ["B", "I"])
    goes_on = continues & (label[:, None] == label)
    return numpy.where(is_unfinished[:, None], goes_on, begins_anew)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_tags", [1, 3, 4, 8, 9, 16, 17, 33, 73, 150])
def test_queries_with_any_number_of_tags(n_tags: int, dtype: str) -> None:
    """Below, at and above the widths of registers. 73 tags are those of BILUO with 18 labels: the
    chain leaves forbidden transitions out of its products."""
    lengths = [7, 0, 1, 12, 2, 30, 1, 9, 9, 4, 5] if n_tags < 100 else [7, 0, 3, 12, 2]
    potentials = random_potentials(lengths, n_tags, dtype=dtype)
    if n_tags == 73:
        potentials.transitions[~biluo_transitions(18)] = -numpy.inf

    check_by_reference(potentials)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_tags", [3, 17])
def test_a_batch_whose_sequences_need_numbers_of_each_width(n_tags: int, dtype: str) -> None:
    """Small scores fit into float32, large ones need float64, and the largest need numbers with
    longer exponents. Sequence 10 has no legal path."""
    potentials = random_potentials([20] * 12, n_tags, seed=n_tags, dtype=dtype)
    rng = numpy.random.default_rng(n_tags)
    forbidden = rng.uniform(size=(n_tags, n_tags)) < 0.2
    potentials.transitions[forbidden & ~numpy.eye(n_tags, dtype=bool)] = -numpy.inf
    scale_of_sequence = numpy.array([1, 10, 20, 40, 80, 160, 320, 640, 1280, 1e4, 3, 60])
    potentials.emissions[:] *= numpy.repeat(scale_of_sequence, 20)[:, None]
    potentials = forbid_all(potentials, 10)

    check_by_reference(potentials, n_values=12)


@pytest.mark.parametrize("gap", [60.0, 80.0, 200.0, 1e4])
def test_a_path_that_underflows_until_it_is_the_only_one(gap: float) -> None:
    """The last token allows only a tag that all tokens before make improbable."""
    potentials = random_potentials([6], 3, dtype="float32")
    potentials.emissions[:-1, 0] -= numpy.float32(gap)
    potentials.transitions[1:, 0] = -numpy.inf
    potentials.emissions[-1, 1:] = -numpy.inf

    check_by_reference(potentials)


@pytest.mark.parametrize("gap", [0.0, 500.0, 5000.0])
def test_no_digit_of_a_probability_is_lost_to_the_size_of_scores(gap: float) -> None:
    """Scores are multiples of 1/64, so that every sum is exact. With a gap some are so much smaller
    that scaled messages lose the sequence."""
    rng = numpy.random.default_rng(0)
    potentials = random_potentials([5, 1, 4], 3, 2.0)
    for array in potentials[:4]:
        array[:] = numpy.round(array * 64) / 64
    potentials.emissions[:] += numpy.round(rng.uniform(-1e6, 1e6, size=(10, 1)))
    potentials.transitions[:] += 12345
    potentials.emissions[[1, 7], [0, 2]] -= gap

    marginals = chain.marginals(potentials)
    entropy, _ = chain.entropy(potentials)

    expected_marginals = numpy.zeros_like(potentials.emissions)
    expected_entropy = numpy.zeros(3)
    for b, tokens in enumerate(oracle.spans(potentials)):
        paths = oracle.paths(potentials, b)
        best = max(path.score for path in paths)
        weights = [math.exp(path.score - best) for path in paths]
        for path, weight in zip(paths, weights):
            p = weight / math.fsum(weights)
            expected_marginals[range(tokens.start, tokens.stop), path.tags] += p
            if p > 0:
                expected_entropy[b] -= p * math.log(p)
    assert_allclose(marginals, expected_marginals, rtol=1e-12)
    assert_allclose(entropy, expected_entropy, rtol=1e-12)


@each_query
def test_float32_keeps_its_digits_over_ten_thousand_tokens(name: str) -> None:
    potentials = random_potentials([10_000], 3, scale=3, dtype="float32")
    argument = random_argument(name, potentials)

    values, backprop = ask(name, potentials, argument)
    exact_values, exact_backprop = ask(name, in_precision(potentials, "float64"), argument)
    weights = numpy.random.default_rng(0).normal(size=len(values))
    gradient = backprop(weights)
    exact_gradient = exact_backprop(weights)

    assert_allclose(values, exact_values, rtol=1e-5, atol=1e-3)
    for field, array in zip(gradient._fields, gradient[:4]):
        # Transitions add up over all tokens.
        atol = 1e-2 if field == "transitions" else 1e-4
        expected = getattr(exact_gradient, field)
        assert_allclose(array, expected, rtol=1e-3, atol=atol, err_msg=field)


@each_query
@pytest.mark.parametrize("scale", [3, 100])
def test_values_and_gradients_of_ten_thousand_tokens_are_finite(name: str, scale: float) -> None:
    """Values may be minus infinity: the logarithm of nothing."""
    potentials = random_potentials([10_000], 3, scale, dtype="float32")
    argument = random_argument(name, potentials)

    values, backprop = ask(name, potentials, argument)
    gradient = backprop(numpy.random.default_rng(0).normal(size=len(values)))

    assert not any(numpy.isnan(values))
    assert all(numpy.isfinite(array).all() for array in gradient[:4])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_log_partition_of_ten_thousand_tokens_is_that_of_the_recursion(dtype: str) -> None:
    potentials = random_potentials([10_000], 5, scale=100, dtype=dtype)

    log_z, backprop = chain.log_partition(potentials)
    gradient = oracle.vector(backprop(numpy.ones(1)))

    expected = reference.log_sum(in_precision(potentials, "float64"), 0)
    assert_allclose(log_z, expected.value, rtol=1e-6)
    assert_allclose(gradient, expected.gradient, rtol=1e-3, atol=1e-4)


# Paths outside a set, shared messages, threads


def test_log_partition_excluding_keeps_its_digits_where_the_set_has_all_the_probability() -> None:
    """The set is tag 0 at each token, whose score is 60 larger: the paths outside have about
    exp(-60) of the probability, less than a rounding error of 1."""
    potentials = random_potentials([6], 3)
    potentials.emissions[:, 0] += 60

    log_z, _ = chain.log_partition_excluding(potentials, numpy.zeros(6, dtype="int64"))

    expected = oracle.log_sum(potentials, 0, lambda y: any(tag != 0 for tag in y)).value
    assert_allclose(log_z, expected, rtol=1e-12)


def test_log_partition_excluding_has_a_path_whose_message_is_tiny() -> None:
    """The path 1, 2 leaves the set by its 2, and scores -46 - 60. exp(-106) is 0 in float32."""
    potentials = in_precision(random_potentials([2], 3, scale=0), "float32")
    potentials.emissions[0] = [0, -46, -numpy.inf]
    potentials.transitions[:2, 2] = [-numpy.inf, -60]
    allowed = numpy.asarray([[True, True, False]] * 2)

    log_z, _ = chain.log_partition_excluding(potentials, allowed)

    assert_allclose(log_z, [-106], rtol=1e-6)


def test_log_partition_excluding_has_a_path_whose_product_of_messages_is_tiny() -> None:
    """The path 1, 0 leaves the set 0, 0 by its 1, and scores -46 - 60."""
    potentials = in_precision(random_potentials([2], 2, scale=0), "float32")
    potentials.emissions[0, 1] = -46
    potentials.transitions[:] = [[0, -numpy.inf], [-60, -numpy.inf]]

    log_z, _ = chain.log_partition_excluding(potentials, numpy.asarray([0, 0]))

    assert_allclose(log_z, [-106], rtol=1e-6)


def mixed_batch() -> Potentials:
    """Five sequences of 40 tokens, of which 1 underflows in float32, 2 and 4 in float64, and 3 has
    no legal path."""
    potentials = forbid_all(random_potentials([40] * 5, 9, dtype="float32", seed=1), 3)
    scales = numpy.float32([1, 40, 1e3, 1, 1e4])
    potentials.emissions[:] *= numpy.repeat(scales, 40)[:, None]
    return potentials


def test_the_gradient_of_several_queries_is_the_sum_of_their_gradients() -> None:
    potentials = mixed_batch()
    messages = chain.forward_backward(potentials)
    callbacks = []
    expected = oracle.vector(oracle.zeros(potentials))
    for name in QUERIES:
        if name == "path_score":  # needs no messages
            continue
        argument = random_argument(name, potentials)
        arguments = [] if argument is None else [argument]
        values, backprop = getattr(messages, name)(*arguments)
        weights = numpy.random.default_rng(2).normal(size=len(values))
        callbacks.append((backprop, weights))
        _, backprop_alone = ask(name, potentials, argument)
        expected += oracle.vector(backprop_alone(weights))

    gradient = messages.backprop(*callbacks)

    assert_allclose(oracle.vector(gradient), expected, rtol=2e-3, atol=2e-3)


def test_marginals_agree_with_log_marginals_of_the_same_messages() -> None:
    """The marginals of tag 0 at each token. They are 0 in the sequence without a legal path."""
    potentials = mixed_batch()
    messages = chain.forward_backward(potentials)

    log_p, _ = messages.log_marginals(numpy.zeros(200, dtype="int64"))
    marginals = messages.marginals()

    assert_allclose(marginals[:, 0], numpy.exp(log_p), rtol=2e-4, atol=2e-4)
    assert (marginals[oracle.spans(potentials)[3]] == 0).all()


def test_threads_change_nothing_but_the_last_digits() -> None:
    """Best paths stay the same; sums do up to their rounding, and from one call to the next."""
    potentials = random_potentials([200, 3, 0, 150, 90, 40, 77] * 5, 30, dtype="float32")
    ones = numpy.ones(35)
    gradient_of_one_thread = chain.log_partition(potentials)[1](ones)
    best_two_of_one_thread = chain.k_best(potentials, 2)

    chain.set_threads(3)
    try:
        gradient = chain.log_partition(potentials)[1](ones)
        gradient_again = chain.log_partition(potentials)[1](ones)
        best_two = chain.k_best(potentials, 2)
        best = chain.best_path(potentials)
    finally:
        chain.set_threads(1)

    assert_array_equal(best_two.tags, best_two_of_one_thread.tags)
    assert_array_equal(best.tags, best_two_of_one_thread.tags[0])
    for array, again, expected in zip(gradient[:4], gradient_again, gradient_of_one_thread):
        assert_array_equal(array, again)
        assert_allclose(array, expected, rtol=1e-3, atol=1e-4)


def test_a_score_that_is_nan_makes_its_sequence_nan_and_no_other() -> None:
    potentials = random_potentials([3, 2], 4, dtype="float32")
    potentials.emissions[1, 2] = numpy.nan

    log_z, _ = chain.log_partition(potentials)

    assert numpy.isnan(log_z[0]) and numpy.isfinite(log_z[1])


@pytest.mark.parametrize("gap", [60.0, 1e4])
def test_samples_stay_the_same_beside_a_sequence_that_needs_wider_numbers(gap: float) -> None:
    """The three tokens of sequence 1 get scores that underflow: tag 0 alone is probable at its
    first token and improbable at its second."""
    potentials = random_potentials([40, 3, 50], 4, dtype="float32")
    emissions = potentials.emissions.copy()
    emissions[40, 1:] -= numpy.float32(gap)
    emissions[41, 0] -= numpy.float32(gap)
    underflowing = potentials._replace(emissions=emissions)

    samples = chain.sample_paths(underflowing, 5, numpy.random.default_rng(0))

    expected = chain.sample_paths(potentials, 5, numpy.random.default_rng(0))
    tokens_beside = numpy.r_[0:40, 43:93]
    assert_array_equal(samples[:, tokens_beside], expected[:, tokens_beside])
