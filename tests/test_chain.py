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

from . import oracle, reference
from .support import strategies
from .support.batches import forbid_all, in_precision, random_potentials
from .support.strategies import allowed_NK, constraints_NK, potentials_NK

INSTRUCTION_SETS = native.instruction_sets()
TOLERANCE = {"float32": 2e-4, "float64": 1e-9}


class Query(NamedTuple):
    """A query of potentials and what else it needs: the value of each sequence, token or segment,
    with its gradient, by enumeration; the one at an index by recursions; how the rest is drawn."""

    define: Callable[[Potentials, Any], list[oracle.Value]]
    refer: Callable[[Potentials, Any, int], oracle.Value]
    draw: Callable[[Potentials], st.SearchStrategy] = lambda potentials: st.none()


def places(potentials: Potentials) -> list[tuple[int, int]]:
    """The sequence and the position of each token."""
    return [(b, t) for b, n in enumerate(potentials.lengths.tolist()) for t in range(n)]


def of_sequences(value: Callable[..., oracle.Value]) -> Callable[..., list[oracle.Value]]:
    return lambda p, more: [value(p, more, b) for b in range(len(p.lengths))]


def of_path(potentials: Potentials, tags: Any, b: int) -> oracle.Value:
    path = tags[oracle.spans(potentials)[b]]
    score = oracle.score(potentials, b, path)
    is_legal = float(score > -math.inf)
    return oracle.Value(score, is_legal * oracle.vector(oracle.features(potentials, b, path)))


def restricted(potentials: Potentials, tokens: slice, tags: Any) -> Potentials:
    """The potentials, with only some tags allowed at some tokens: a tag or a mask of each."""
    allowed = numpy.ones(potentials.emissions.shape, dtype=bool)
    allowed[tokens] = chain.to_mask(numpy.asarray(tags), allowed.shape[1])
    return chain.restrict(potentials, allowed)


def refer_prob(potentials: Potentials, b: int, some: Potentials) -> oracle.Value:
    return reference.difference(reference.log_sum(some, b), reference.log_sum(potentials, b))


def refer_excluding(potentials: Potentials, allowed: Any, b: int) -> oracle.Value:
    """The paths that leave the set at each token."""
    parts = [oracle.Value(-math.inf, oracle.vector(oracle.zeros(potentials)))]
    start, stop = oracle.spans(potentials)[b].start, oracle.spans(potentials)[b].stop
    for t in range(start, stop):
        until = numpy.concatenate([allowed[start:t], ~allowed[t : t + 1]])
        parts.append(reference.log_sum(restricted(potentials, slice(start, t + 1), until), b))
    return reference.log_total(parts)


def refer_marginal(potentials: Potentials, allowed: Any, token: int) -> oracle.Value:
    some = restricted(potentials, slice(token, token + 1), allowed[token : token + 1])
    return refer_prob(potentials, places(potentials)[token][0], some)


def refer_segment(potentials: Potentials, segments: chain.Segments, s: int) -> oracle.Value:
    begin, end = int(segments.begin[s]), int(segments.end[s])
    first = int((segments.end - segments.begin)[:s].sum())
    some = restricted(potentials, slice(begin, end), segments.tags[first : first + end - begin])
    b = places(potentials)[begin][0]
    if segments.after is not None and end < oracle.spans(potentials)[b].stop:
        some = restricted(some, slice(end, end + 1), segments.after[s : s + 1])
    return refer_prob(potentials, b, some)


def refer_entropy(potentials: Potentials, _: None, b: int) -> oracle.Value:
    """log Z - E[s] of small scores: the largest of each token is 0."""
    largest = numpy.nan_to_num(potentials.emissions.max(axis=1, keepdims=True), neginf=0.0)
    lowered = potentials._replace(emissions=potentials.emissions - largest)
    mean = reference.expectation(lowered, b, lowered, step=1e-5)
    log_z = reference.log_sum(lowered, b).value
    return oracle.Value(log_z - mean.value if log_z > -math.inf else 0.0, -mean.gradient)


def value_of_path(values: Potentials, b: int, tags: oracle.Tags) -> float:
    finite = Potentials(*(numpy.nan_to_num(a, neginf=0.0) for a in values[:4]), values.lengths)
    return oracle.score(finite, b, tags)


def leaves(allowed: numpy.ndarray, potentials: Potentials, b: int, tags: oracle.Tags) -> bool:
    first = oracle.spans(potentials)[b].start
    return any(not allowed[first + t, tag] for t, tag in enumerate(tags))


QUERIES: dict[str, Query] = {
    "log_partition": Query(
        of_sequences(lambda p, _, b: oracle.log_sum(p, b)), lambda p, _, b: reference.log_sum(p, b)
    ),
    "path_score": Query(of_sequences(of_path), of_path, strategies.tags_N),
    "path_log_prob": Query(
        of_sequences(
            lambda p, tags, b: oracle.log_probability(
                p, b, lambda y: list(y) == tags[oracle.spans(p)[b]].tolist()
            )
        ),
        lambda p, tags, b: refer_prob(p, b, restricted(p, slice(None), tags)),
        strategies.tags_N,
    ),
    "expectation": Query(
        of_sequences(lambda p, v, b: oracle.mean(p, b, lambda y: value_of_path(v, b, y))),
        lambda p, values, b: reference.expectation(p, b, values),
        strategies.values_NK,
    ),
    "entropy": Query(of_sequences(lambda p, _, b: oracle.entropy(p, b)), refer_entropy),
    "log_partition_excluding": Query(
        of_sequences(lambda p, sets, b: oracle.log_sum(p, b, lambda y: leaves(sets, p, b, y))),
        refer_excluding,
        allowed_NK,
    ),
    "log_marginals": Query(
        lambda p, sets: [
            oracle.log_probability(p, b, lambda y, n=n, t=t: sets[n, y[t]])
            for n, (b, t) in enumerate(places(p))
        ],
        refer_marginal,
        allowed_NK,
    ),
    "segment_log_probs": Query(
        lambda p, segments: [
            oracle.log_probability(p, *oracle.has_segment(p, segments, s))
            for s in range(len(segments.begin))
        ],
        refer_segment,
        strategies.segments_S,
    ),
}
each_query = pytest.mark.parametrize("name", QUERIES)


def ask(name: str, potentials: Potentials, more: Any) -> tuple[numpy.ndarray, Callable]:
    return getattr(chain, name)(potentials, *([] if more is None else [more]))


def example(name: str, potentials: Potentials, seed: int = 0) -> Any:
    """What else a query needs, for an example batch."""
    rng = numpy.random.default_rng(seed)
    n_tokens, n_tags = potentials.emissions.shape
    if name == "expectation":
        return random_potentials(potentials.lengths.tolist(), n_tags, seed=seed)
    if name == "log_partition_excluding" and seed % 2:
        return chain.to_mask(chain.best_path(potentials).tags, n_tags)
    if name in ("log_marginals", "log_partition_excluding"):
        return rng.uniform(size=(n_tokens, n_tags)) < 0.5
    if name in ("path_score", "path_log_prob"):
        return chain.best_path(potentials).tags if seed % 2 else rng.integers(n_tags, size=n_tokens)
    if name == "segment_log_probs":
        begin = numpy.flatnonzero(rng.uniform(size=n_tokens) < 0.3)
        past = numpy.repeat(numpy.cumsum(potentials.lengths), potentials.lengths)[begin]
        end = numpy.minimum(begin + 1 + rng.integers(2, size=len(begin)), past)
        tags = rng.integers(n_tags, size=int((end - begin).sum()))
        return chain.Segments(begin, end, tags, rng.uniform(size=(len(begin), n_tags)) < 0.8)
    return None


def rounding_of(potentials: Potentials) -> float:
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
    """Check values at some indices, and the gradient of their sum, weighted."""
    values, backprop = answer
    assert values.dtype == "float64"
    which = list(expected)
    assert_allclose(values[which], [expected[i].value for i in which], rtol=rtol, atol=atol)
    weights = numpy.zeros(values.shape)
    weights[which] = numpy.random.default_rng(0).normal(size=len(which))
    wanted = oracle.vector(oracle.zeros(potentials))
    wanted += sum((weights[i] * expected[i].gradient for i in which), 0 * wanted)
    gradient = backprop(weights)
    assert_array_equal(gradient.lengths, potentials.lengths)
    for array, like in zip(gradient[:4], potentials[:4]):
        assert (array.dtype, array.shape) == (potentials.emissions.dtype, like.shape)
        assert (array[numpy.isneginf(like)] == 0).all()
    atol *= max(1.0, abs(wanted).max(initial=0))
    assert_allclose(oracle.vector(gradient), wanted, rtol=rtol, atol=atol)


def check_by_enumeration(
    name: str, potentials: Potentials, more: Any, rtol: float, atol: float
) -> None:
    expected = QUERIES[name].define(in_precision(potentials, "float64"), more)
    assert len(ask(name, potentials, more)[0]) == len(expected)
    check_answer(ask(name, potentials, more), potentials, dict(enumerate(expected)), rtol, atol)


# Short sequences


@each_query
@given(st.data())
@settings(max_examples=40)
def test_values_and_gradients(name: str, data: st.DataObject) -> None:
    potentials = data.draw(potentials_NK(longest=4))
    more = data.draw(QUERIES[name].draw(potentials))
    check_by_enumeration(name, potentials, more, rtol=1e-7, atol=1e-7)
    check_by_enumeration(name, in_precision(potentials, "float32"), more, rtol=1e-3, atol=1e-3)


@each_query
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [30, 300, 3_000, 10_000])
def test_scores_beyond_the_range_of_exponentials(name: str, scale: float, dtype: str) -> None:
    for seed in range(4):
        potentials = random_potentials([4, 1, 0, 5, 3], 3, scale, dtype, seed)
        more = example(name, potentials, seed)
        check_by_enumeration(name, potentials, more, rtol=1e-4, atol=2e-4)


@each_query
def test_sequences_do_not_disturb_each_other(name: str) -> None:
    """Whatever the neighbours are: without a legal path, empty, or of extreme scores."""
    potentials = random_potentials([3, 2, 0, 4, 3, 1], 3, dtype="float32")
    more = example(name, potentials)
    if name == "segment_log_probs":
        more = chain.Segments(*(numpy.zeros(0, "int64") for _ in range(3)))
    disturbed = forbid_all(potentials, 1)
    disturbed.emissions[oracle.spans(potentials)[3]] *= 5_000
    check_by_enumeration(name, disturbed, more, rtol=1e-5, atol=1e-5)
    with_all, (values, backprop) = ask(name, potentials, more)[1], ask(name, disturbed, more)
    gradient, before = backprop(numpy.ones(len(values))), with_all(numpy.ones(len(values)))
    assert (gradient.emissions[oracle.spans(potentials)[1]] == 0).all()
    for b in (0, 4, 5):
        tokens = oracle.spans(potentials)[b]
        assert_allclose(gradient.emissions[tokens], before.emissions[tokens], atol=1e-6)


@given(potentials_NK())
def test_marginals(potentials: Potentials) -> None:
    each = range(len(potentials.lengths))
    expected = [oracle.expected_features(potentials, b).emissions for b in each]
    before = [array.copy() for array in potentials]
    total = sum(expected, oracle.zeros(potentials).emissions)
    assert_allclose(chain.marginals(potentials), total, rtol=1e-9, atol=1e-9)
    assert all((array == copy).all() for array, copy in zip(potentials, before))


@given(potentials_NK(constrained=False), st.data())
def test_constraints(potentials: Potentials, data: st.DataObject) -> None:
    n_tokens, n_tags = potentials.emissions.shape
    constraints = data.draw(constraints_NK(n_tokens, n_tags))
    constrained = chain.constrain(potentials, constraints)
    for scores, before, possible in zip(constrained, potentials, constraints):
        kept = numpy.ones(before.shape, dtype=bool) if possible is None else possible
        assert_array_equal(scores, numpy.where(kept, before, -numpy.inf))
    allowed = data.draw(allowed_NK(potentials))
    expected = oracle.log_partition(constrained, allowed)
    of_allowed = chain.log_partition(chain.restrict(constrained, allowed))[0]
    assert_allclose(of_allowed, expected, rtol=1e-9, atol=1e-9)
    assert chain.restrict(potentials, None).emissions is potentials.emissions


# Long sequences, many tags, numbers of each width


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    native.use_instruction_set(request.param)
    yield request.param
    native.use_instruction_set(INSTRUCTION_SETS[0])


def check_by_reference(
    potentials: Potentials, tolerance: float | None = None, n_places: int = 3
) -> None:
    """Check all queries, of the same messages, at some sequences, tokens and segments."""
    exact, dtype = in_precision(potentials, "float64"), str(potentials.emissions.dtype)
    messages, rng = chain.forward_backward(potentials), numpy.random.default_rng(0)
    tolerance = max(tolerance or TOLERANCE[dtype], rounding_of(exact))
    for seed, (name, query) in enumerate(QUERIES.items()):
        more = example(name, potentials, seed)
        asked = messages if name != "path_score" else chain.queries
        arguments = [potentials] * (name == "path_score") + [more] * (more is not None)
        values, backprop = getattr(asked, name)(*arguments)
        some = rng.permutation(len(values))[:n_places].tolist()
        expected = {i: query.refer(exact, more, i) for i in some}
        rtol = max(tolerance, 1e-5) if name in ("expectation", "entropy") else tolerance
        atol = max(rtol, rounding_of(potentials))
        check_answer((values, backprop), potentials, expected, rtol, atol)


def biluo(n_labels: int) -> numpy.ndarray:
    """The transitions that the scheme allows: those that it forbids are left out of the
    products."""
    prefix, label = numpy.divmod(numpy.arange(4 * n_labels), n_labels)
    kind, label = numpy.append(prefix, 4), numpy.append(label, -1)  # B, I, L, U, O
    opens, continues = numpy.isin(kind, [0, 3, 4]), numpy.isin(kind, [1, 2])
    unfinished = numpy.isin(kind, [0, 1])
    return numpy.where(unfinished[:, None], continues & (label[:, None] == label), opens)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_tags", [1, 3, 4, 8, 9, 16, 17, 33, 73, 150])
def test_each_number_of_tags(instruction_set: str, n_tags: int, dtype: str) -> None:
    lengths = [7, 0, 1, 12, 2, 30, 1, 9, 9, 4, 5] if n_tags < 100 else [7, 0, 3, 12, 2]
    potentials = random_potentials(lengths, n_tags, dtype=dtype)
    if n_tags == 73:
        potentials.transitions[~biluo(18)] = -numpy.inf
    check_by_reference(potentials)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_tags", [3, 17])
def test_sequences_that_need_numbers_of_each_width(
    instruction_set: str, n_tags: int, dtype: str
) -> None:
    """Each query has other sequences that need float64, and numbers with longer exponents."""
    potentials = random_potentials([20] * 12, n_tags, seed=n_tags, dtype=dtype)
    rng = numpy.random.default_rng(n_tags)
    forbidden = rng.uniform(size=(n_tags, n_tags)) < 0.2
    potentials.transitions[forbidden & ~numpy.eye(n_tags, dtype=bool)] = -numpy.inf
    scales = numpy.array([1, 10, 20, 40, 80, 160, 320, 640, 1280, 1e4, 3, 60])
    potentials.emissions[:] *= numpy.repeat(scales, 20)[:, None]
    potentials.emissions[-30, :] = -numpy.inf
    check_by_reference(potentials, n_places=12)


@pytest.mark.parametrize("gap", [60.0, 80.0, 200.0, 1e4])
def test_a_path_that_underflows_until_it_is_the_only_one(gap: float) -> None:
    """The last token allows only a tag that all tokens before make improbable."""
    potentials = random_potentials([6], 3, dtype="float32")
    potentials.emissions[:-1, 0] -= numpy.float32(gap)
    potentials.transitions[1:, 0] = -numpy.inf
    potentials.emissions[-1, 1:] = -numpy.inf
    check_by_reference(potentials)


@pytest.mark.parametrize("gap", [0.0, 500.0, 5000.0])
def test_probabilities_of_large_scores(gap: float) -> None:
    """Scores of which every sum is exact: no digit of a probability is lost to their size, nor
    where some scores are so much smaller that scaled messages lose the sequence."""
    rng = numpy.random.default_rng(0)
    potentials = random_potentials([5, 1, 4], 3, 2.0)
    for array in potentials[:4]:
        array[:] = numpy.round(array * 64) / 64
    potentials.emissions[:] += numpy.round(rng.uniform(-1e6, 1e6, size=(10, 1)))
    potentials.transitions[:] += 12345
    potentials.emissions[[1, 7], [0, 2]] -= gap
    expected, entropy = numpy.zeros_like(potentials.emissions), numpy.zeros(3)
    for b, tokens in enumerate(oracle.spans(potentials)):
        paths = oracle.paths(potentials, b)
        best = max(path.score for path in paths)
        weights = [math.exp(path.score - best) for path in paths]
        for path, weight in zip(paths, weights):
            p = weight / math.fsum(weights)
            expected[range(tokens.start, tokens.stop), path.tags] += p
            entropy[b] -= p * math.log(p) if p else 0.0
    assert_allclose(chain.marginals(potentials), expected, rtol=1e-12)
    assert_allclose(chain.entropy(potentials)[0], entropy, rtol=1e-12)


@each_query
@pytest.mark.parametrize("scale", [3, 100])
def test_long_sequence_in_single_precision(name: str, scale: float) -> None:
    potentials = random_potentials([10_000], 3, scale, dtype="float32")
    more = example(name, potentials)
    values, backprop = ask(name, potentials, more)
    exact, exact_backprop = ask(name, in_precision(potentials, "float64"), more)
    weights = numpy.random.default_rng(0).normal(size=len(values))
    gradient, expected = backprop(weights), exact_backprop(weights)
    assert not any(numpy.isnan(values)) and all(numpy.isfinite(x).all() for x in gradient[:4])
    if scale == 3:
        assert_allclose(values, exact, rtol=1e-5, atol=1e-3)
        for field, array in zip(gradient._fields, gradient[:4]):
            atol = 1e-2 if field == "transitions" else 1e-4
            assert_allclose(array, getattr(expected, field), rtol=1e-3, atol=atol, err_msg=field)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_sequence_of_large_scores(dtype: str) -> None:
    potentials = random_potentials([10_000], 5, scale=100, dtype=dtype)
    log_z, backprop = chain.log_partition(potentials)
    expected = reference.log_sum(in_precision(potentials, "float64"), 0)
    assert_allclose(log_z, expected.value, rtol=1e-6)
    assert_allclose(oracle.vector(backprop(numpy.ones(1))), expected.gradient, rtol=1e-3, atol=1e-4)


# Identities, threads and layouts


def test_outside_keeps_its_digits_where_the_set_has_all_the_probability() -> None:
    potentials = random_potentials([6], 3)
    tags = numpy.zeros(6, dtype="int64")
    potentials.emissions[:, 0] += 60
    expected = oracle.log_sum(potentials, 0, lambda y: any(y)).value
    assert_allclose(chain.log_partition_excluding(potentials, tags)[0], expected, rtol=1e-12)


def test_outside_that_only_tiny_messages_lead_to() -> None:
    """The one way out of the set counts exp(-106), which float32 does not hold: in a message, and
    in the product of two."""
    one, other = (in_precision(random_potentials([2], n, scale=0), "float32") for n in (3, 2))
    one.emissions[0] = [0, -46, -numpy.inf]
    one.transitions[:2, 2] = [-numpy.inf, -60]
    other.emissions[0, 1] = -46
    other.transitions[:] = [[0, -numpy.inf], [-60, -numpy.inf]]
    for potentials, tags in ((one, [[True, True, False]] * 2), (other, [0, 0])):
        values = chain.log_partition_excluding(potentials, numpy.asarray(tags))[0]
        assert_allclose(values, [-106], rtol=1e-6)


def test_queries_of_the_same_messages() -> None:
    """Some sequences underflow in float32, some in float64, and one has no legal path."""
    potentials = forbid_all(random_potentials([40] * 5, 9, dtype="float32", seed=1), 3)
    potentials.emissions[:] *= numpy.repeat(numpy.float32([1, 40, 1e3, 1, 1e4]), 40)[:, None]
    messages = chain.forward_backward(potentials)
    more = {name: example(name, potentials) for name in QUERIES if name != "path_score"}
    vjps, alone = [], oracle.vector(oracle.zeros(potentials))
    for name, argument in more.items():
        values, backprop = getattr(messages, name)(*([] if argument is None else [argument]))
        weights = numpy.random.default_rng(2).normal(size=len(values))
        vjps.append((backprop, weights))
        alone += oracle.vector(ask(name, potentials, argument)[1](weights))
    assert_allclose(oracle.vector(messages.backprop(*vjps)), alone, rtol=2e-3, atol=2e-3)
    log_p, _ = messages.log_marginals(numpy.zeros(200, dtype="int64"))
    assert_allclose(messages.marginals()[:, 0], numpy.exp(log_p), rtol=2e-4, atol=2e-4)
    assert (messages.marginals()[120:160] == 0).all()


def test_threads_change_nothing_but_the_last_digits() -> None:
    potentials = random_potentials([200, 3, 0, 150, 90, 40, 77] * 5, 30, dtype="float32")
    expected = chain.log_partition(potentials)[1](numpy.ones(35))
    of_two = chain.k_best(potentials, 2)
    chain.set_threads(3)
    try:
        first, second = (chain.log_partition(potentials)[1](numpy.ones(35)) for _ in range(2))
        assert_array_equal(chain.k_best(potentials, 2).tags, of_two.tags)
        assert_array_equal(chain.best_path(potentials).tags, of_two.tags[0])
    finally:
        chain.set_threads(1)
    for array, again, wanted in zip(first[:4], second[:4], expected[:4]):
        assert_array_equal(array, again)
        assert_allclose(array, wanted, rtol=1e-3, atol=1e-4)


def test_what_is_not_a_number_comes_out_as_that() -> None:
    potentials = random_potentials([3, 2], 4, dtype="float32")
    potentials.emissions[1, 2] = numpy.nan
    log_z, _ = chain.log_partition(potentials)
    assert numpy.isnan(log_z[0]) and numpy.isfinite(log_z[1])


@pytest.mark.parametrize("gap", [60.0, 1e4])
def test_paths_beside_a_sequence_that_needs_wider_numbers(gap: float) -> None:
    """The samples of the other sequences are those that they have without it."""
    potentials = random_potentials([40, 3, 50], 4, dtype="float32")
    emissions = potentials.emissions.copy()
    emissions[40, 1:] -= numpy.float32(gap)
    emissions[41, 0] -= numpy.float32(gap)
    beside = numpy.r_[0:40, 43:93]
    expected = chain.sample_paths(potentials, 5, numpy.random.default_rng(0))
    found = chain.sample_paths(
        potentials._replace(emissions=emissions), 5, numpy.random.default_rng(0)
    )
    assert_array_equal(found[:, beside], expected[:, beside])
