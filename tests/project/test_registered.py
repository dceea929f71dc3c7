"""What holds for every registered loss, cost and decoding. A new entry point is tested, too.

Kinds of features have tests of the same sort: `features/test_kinds_of_features.py`.
"""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import srsly
from numpy.testing import assert_array_equal
from spacy.util import registry
from thinc.api import Config

from spacy_costner import chain
from spacy_costner.decoding import Decoding, Posterior
from spacy_costner.losses import LossSchedule
from spacy_costner.tags import SCHEMES, Tags
from spacy_costner.types import CostTable, Gold, Loss, LossResult, Potentials

from ..oracle import vector
from ..support.batches import in_precision, random_potentials
from ..support.config import REQUIRED, declared, resolve
from ..support.gradients import check_forbidden
from ..support.posteriors import rows
from ..support.strategies import random_entities

LABELS = ["city", "sports-team"]
LOSSES = list(declared("thinc_losses"))
COSTS = [name for name in declared("spacy_misc") if name.endswith("Cost.v1")]
DECODINGS = [name for name in declared("spacy_misc") if name.endswith("Decoding.v1")]

LENGTHS: dict[str, list[int]] = {
    "no docs": [],
    "an empty doc": [0],
    "a token": [1],
    "docs": [4, 0, 1, 3],
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda built: pickle.loads(pickle.dumps(built)),
    "deepcopy": copy.deepcopy,
}

each_loss = pytest.mark.parametrize("name", LOSSES)
each_cost = pytest.mark.parametrize("name", COSTS)
each_decoding = pytest.mark.parametrize("name", DECODINGS)
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)
each_batch = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
each_precision = pytest.mark.parametrize("dtype", ["float32", "float64"])
each_copy = pytest.mark.parametrize("make_copy", COPIES.values(), ids=COPIES.keys())


def build_from_text(group: str, name: str) -> Any:
    """Build a block that was written as a config file and read again."""
    config = Config({"block": {f"@{group}": name, **REQUIRED.get(name, {})}})
    text = config.to_str()
    return registry.resolve(Config().from_str(text))["block"]


def scores_of(tags: Tags, lengths: list[int], dtype: str) -> Potentials:
    """Random scores under the constraints of a scheme."""
    scores = in_precision(random_potentials(lengths, len(tags)), dtype)
    return chain.constrain(scores, tags.constraints)


def freeze(*tuples: Any) -> None:
    """Make arrays of named tuples read-only: a write to one is an error."""
    for arrays in tuples:
        for array in arrays:
            if isinstance(array, numpy.ndarray):
                array.flags.writeable = False


# Losses


def gold_of(tags: Tags, lengths: list[int], table: CostTable | None, *, is_partial: bool) -> Gold:
    """Gold with all that a loss may use; if partial, every second doc is not annotated."""
    rng = numpy.random.default_rng(1)
    n_tokens = sum(lengths)
    entities = random_entities(rng, numpy.asarray(lengths, dtype="int32"), len(tags.labels))
    path = tags.encode(entities, n_tokens)
    gold = Gold(
        tags=path,
        costs=None if table is None else table[path],
        token_weights=rng.uniform(0.5, 2, size=n_tokens),
        weights=rng.uniform(0.5, 2, size=len(lengths)),
        opening=tags.opening,
        continuing=tags.continuing,
        features=rng.integers(-1, 4, size=(n_tokens, 3)),
    )
    if not is_partial:
        return gold

    is_missing = numpy.repeat(numpy.arange(len(lengths)) % 2 == 1, lengths)
    allowed = (path[:, None] == numpy.arange(len(tags))) | is_missing[:, None]
    if gold.costs is not None:
        gold = gold._replace(costs=numpy.where(is_missing[:, None], 0, gold.costs))
    return gold._replace(tags=numpy.where(is_missing, -1, path), allowed=allowed)


def compute(
    loss: Loss | LossSchedule, lengths: list[int], *, dtype: str = "float64", is_partial: bool
) -> list[LossResult]:
    """The results of all stages of a loss for a batch that can't be written to."""
    tags = Tags(LABELS)
    results: list[LossResult] = []
    for stage in loss.stages:
        table = None if stage.cost is None else stage.cost(tags).astype(dtype)
        potentials = scores_of(tags, lengths, dtype)
        gold = gold_of(tags, lengths, table, is_partial=is_partial)
        freeze(potentials, gold)
        result = stage.compute(potentials, gold)
        check_forbidden(result.gradient, potentials)
        results.append(result)
    return results


@each_loss
def test_a_loss_is_built_from_a_config(name: str) -> None:
    assert isinstance(build_from_text("losses", name), (Loss, LossSchedule))


@each_loss
@each_batch
@each_precision
@pytest.mark.parametrize("is_partial", [False, True])
def test_a_loss_has_finite_values_and_gradients_for_any_batch(
    name: str, lengths: list[int], dtype: str, *, is_partial: bool
) -> None:
    """Its value is finite and its gradient has the shapes and the type of the scores. It writes
    to none of its arguments."""
    scores = scores_of(Tags(LABELS), lengths, dtype)
    for value, gradient in compute(
        resolve("losses", name), lengths, dtype=dtype, is_partial=is_partial
    ):
        assert type(value) is float and numpy.isfinite(value)
        # The four arrays of potentials. What follows them are the lengths.
        for array, expected in zip(gradient[:4], scores[:4]):
            assert array.shape == expected.shape and array.dtype == dtype
            assert numpy.isfinite(array).all()
        if not sum(lengths):  # nothing can be wrong
            assert value == pytest.approx(0) and not vector(gradient).any()


@each_loss
@each_copy
def test_a_copy_of_a_loss_computes_the_same(name: str, make_copy: Callable[[Any], Any]) -> None:
    loss = resolve("losses", name)
    compute(loss, [5, 2], is_partial=False)  # some losses keep state
    loss_copy = make_copy(loss)
    for again in range(2):
        results = compute(loss, LENGTHS["docs"], is_partial=False)
        results_of_copy = compute(loss_copy, LENGTHS["docs"], is_partial=False)
        for result, result_of_copy in zip(results, results_of_copy, strict=True):
            assert result.value == result_of_copy.value, again
            assert_array_equal(vector(result.gradient), vector(result_of_copy.gradient))


@each_loss
def test_a_loss_computes_the_same_after_forget(name: str) -> None:
    """Some losses keep counts of the batches before."""
    loss = resolve("losses", name)
    first = compute(loss, LENGTHS["docs"], is_partial=False)
    for stage in loss.stages:
        stage.forget()
    second = compute(loss, LENGTHS["docs"], is_partial=False)
    assert [result.value for result in second] == [result.value for result in first]


# Costs


@each_cost
@each_scheme
@pytest.mark.parametrize("labels", [[], LABELS[:1], LABELS])
def test_a_table_of_costs_has_0_on_its_diagonal_and_is_never_negative(
    name: str, scheme: str, labels: list[str]
) -> None:
    """What is missed and what is a false alarm costs something: tag 0 is O."""
    tags = Tags(labels, scheme)
    table = build_from_text("misc", name)(tags)
    assert table.shape == (len(tags), len(tags)) and table.dtype == "float32"
    assert (table >= 0).all() and numpy.isfinite(table).all() and not table.diagonal().any()
    assert (table[0, 1:] > 0).all() and (table[1:, 0] > 0).all()


@each_cost
@each_copy
def test_a_copy_of_a_cost_has_the_same_table(name: str, make_copy: Callable[[Any], Any]) -> None:
    tags = Tags(LABELS)
    cost = resolve("misc", name)
    table = cost(tags)
    expected = table.copy()
    table += 1  # a table is the caller's: the next one is not changed with it
    for built in (cost, make_copy(cost)):
        assert_array_equal(built(tags), expected)


# Decodings


def build_decoding(name: str) -> Decoding:
    """Build a decoding that changes the scores, if it can."""
    settings = {"bias": 0.5} if "Viterbi" in name else {}
    decoding: Decoding = resolve("misc", name, **settings)
    return decoding


def decode(
    decoding: Decoding, tags: Tags, lengths: list[int], *, dtype: str = "float64"
) -> list[tuple[int, int, str]]:
    """The predicted entities for scores that can't be written to. Checks that they are in order,
    without overlap and without tokens of two docs."""
    scores = scores_of(tags, lengths, dtype)
    freeze(scores)
    settings = copy.deepcopy(decoding.settings)
    decoding.check(tags, decoding.settings)
    entities, labels, covers = decoding.decode(Posterior(scores, tags), decoding.settings)
    assert decoding.settings == settings
    assert covers is None or covers.shape == (len(labels), len(tags.labels))
    doc_ends = numpy.cumsum([0, *lengths])
    last_end = 0
    for begin, end, _ in rows(entities):
        assert last_end <= begin < end <= sum(lengths)
        assert not ((doc_ends > begin) & (doc_ends < end)).any()
        last_end = end
    return [(begin, end, labels[label]) for begin, end, label in rows(entities)]


@each_decoding
@each_scheme
@each_batch
@pytest.mark.parametrize("labels", [[], LABELS])
@pytest.mark.parametrize("outside", ["single", "before"])
def test_a_decoding_predicts_legal_entities_for_any_batch(
    name: str, scheme: str, lengths: list[int], labels: list[str], outside: str
) -> None:
    """It writes neither to scores nor to settings (`decode` checks it). What it predicts is the
    same for scores in float32."""
    tags = Tags(labels, scheme, outside)
    predicted = decode(build_decoding(name), tags, lengths)
    assert decode(build_decoding(name), tags, lengths, dtype="float32") == predicted
    if not labels or not sum(lengths):
        assert predicted == []


@each_decoding
@each_copy
def test_a_copy_of_a_decoding_predicts_the_same(name: str, make_copy: Callable[[Any], Any]) -> None:
    tags = Tags(LABELS)
    decoding = build_from_text("misc", name)
    predicted = decode(decoding, tags, [20, 10])
    assert predicted
    assert decode(make_copy(decoding), tags, [20, 10]) == predicted


@each_decoding
def test_a_decoding_predicts_the_same_after_it_was_saved_as_json(name: str) -> None:
    """Its settings are saved. Some decodings also have tables, which `restore` reads. All others
    follow from their settings."""
    tags = Tags(LABELS)
    decoding = build_decoding(name)
    predicted = decode(decoding, tags, [20, 10])

    saved_settings = srsly.json_dumps(decoding.settings)

    assert srsly.json_loads(saved_settings) == decoding.settings
    assert (decoding.tables is None) == (decoding.restore is None)
    if decoding.tables is None or decoding.restore is None:
        return
    saved_tables = srsly.json_dumps(decoding.tables(tags))
    restored = build_decoding(name)
    restored.restore(srsly.json_loads(saved_tables))
    assert decode(restored, tags, [20, 10]) == predicted
