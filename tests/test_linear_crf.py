"""The CRF on sparse features, alone and with a Tok2Vec, from its gradients to its files."""

import math
from itertools import pairwise
from typing import Any

import numpy
import pytest
import spacy
import srsly
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Optimizer, use_ops

from spacy_costner.features import FeatureBatch, Template
from spacy_costner.losses import sequential
from spacy_costner.ml import SparseWeights, find_features, linear_part
from spacy_costner.types import Gold, Potentials

from .support.config import HAMMING, REQUIRED, TOK2VEC, declared, resolve
from .support.fitting import examples_of
from .support.gradients import central_difference
from .support.linear import DOCS, HYBRID, SPARSE, crf
from .support.pipelines import TEXTS, TRAIN, ents, examples, pipeline, train

COST = [[0, 1, 2], [1, 1, 0], [3, 0, 1], [2, 0, 2], [0, 1, 1], [1, 2, 0], [1, 0, 1]]
GOLD = Gold(
    tags=numpy.asarray([0, 2, 1, 1, 0, 2, 1], dtype="int32"),
    cost=numpy.asarray(COST, dtype="float32"),
    opening=numpy.asarray([False, True, True]),
    continuing=numpy.zeros(3, dtype=bool),
)
both = pytest.mark.parametrize("model", [SPARSE, HYBRID], ids=["sparse", "hybrid"])


def found(nlp: Language) -> list[Any]:
    return [ents(doc) for doc in nlp.pipe(TEXTS)]


EXPECTED = [gold["entities"] for _, gold in TRAIN]


@pytest.mark.parametrize("name", [n for n in declared("thinc_losses") if "Schedule" not in n])
def test_gradients_are_those_of_the_loss(name: str) -> None:
    compute = resolve("losses", name).compute
    with use_ops("numpy"):
        model = crf()

    def value() -> float:
        return resolve("losses", name).compute(model.begin_update(DOCS)[0], GOLD).value

    potentials, backprop = model.begin_update(DOCS)
    backprop(compute(potentials, GOLD).gradient)
    weights = linear_part(model)[1]
    rows, part = weights.gradient()
    gradient = numpy.zeros_like(weights.rows)
    gradient[rows] = part
    for index in numpy.ndindex(gradient.shape):
        expected = central_difference(value, weights.rows, index)
        assert gradient[index] == pytest.approx(expected, abs=2e-3), index
    assert gradient.any()


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        *(("emissions", name) for name in "Wb"),
        *(("output_layer", name) for name in ("transitions", "start", "end")),
    ],
)
def test_gradients_of_the_dense_model(ref: str, name: str) -> None:
    with use_ops("numpy"):
        model = resolve("architectures", "spacy_costner.LinearChainCRF.v1", nO=3)
    model.initialize(X=DOCS)
    layer, rng = model.get_ref(ref), numpy.random.default_rng(0)
    for each in (model.get_ref("emissions"), model.get_ref("output_layer")):
        for param in map(each.get_param, each.param_names):
            param[:] = rng.normal(size=param.shape)
    potentials, backprop = model.begin_update(DOCS)
    backprop(sequential(potentials, GOLD).gradient)
    for index in numpy.ndindex(layer.get_param(name).shape):
        expected = central_difference(
            lambda: sequential(model.predict(DOCS), GOLD).value, layer.get_param(name), index
        )
        assert layer.get_grad(name)[index] == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(("words", "step"), [("Ana saw Rome", 3 / 24), ("Ana saw Ana", 3 / 32)])
def test_a_step_of_mira_is_that_of_the_paper(words: str, step: float) -> None:
    """tau = cost / || difference of features ||^2, from weights of 0, after which the margin is
    the cost. Names are entities; the rival has it the other way round."""
    features = {"@misc": "spacy_costner.Features.v1", "windows": {"ORTH": 1, "SHAPE": 0}}
    loss = {"@losses": "spacy_costner.MIRA.v1", "cost": HAMMING, "aggressiveness": 100.0}
    nlp = pipeline(model={**SPARSE, "features": features}, loss=loss, scheme="IOB2")
    tags = " ".join("B-X" if word.istitle() else "O" for word in words.split())
    batch = examples_of(nlp, [(words, tags)])
    nlp.initialize(lambda: batch)
    ner, docs = nlp.get_pipe("ner"), [eg.predicted for eg in batch]
    potentials, backprop = ner.model.begin_update(docs)
    gradient = ner.get_loss(batch, potentials)[1]
    found = gradient.emissions.max()
    assert found == pytest.approx(step, rel=1e-6)
    backprop(gradient)
    weights = linear_part(ner.model)[1]
    rows, part = weights.gradient()
    weights.rows[rows] -= part
    after = ner.model.predict(docs)
    margin = -sum(float((a * b).sum()) for a, b in zip(after[:4], gradient[:4])) / found
    assert margin == pytest.approx(3, rel=1e-5)


def test_without_features_the_transitions_are_learned() -> None:
    features = {"@misc": "spacy_costner.Features.v1", "windows": {}}
    nlp = pipeline(model={**SPARSE, "features": features})
    train(nlp)
    features_, weights = linear_part(nlp.get_pipe("ner").model)
    assert not len(features_) and weights.transitions.any() and weights.start.any()


@both
@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
def test_overfitting(model: dict[str, Any], scheme: str) -> None:
    nlp = pipeline(model=model, scheme=scheme)
    train(nlp)
    assert found(nlp) == EXPECTED


def started(batch: slice = slice(None), loss: Any = None, **settings: Any) -> Any:
    """A pipeline, examples, and the weights of its linear part."""
    nlp = pipeline(model={**SPARSE, **settings}, **({"loss": loss} if loss else {}))
    some = examples(nlp)[batch]
    nlp.initialize(lambda: some)
    return nlp, some, linear_part(nlp.get_pipe("ner").model)[1]


@pytest.mark.parametrize("name", declared("thinc_losses"))
def test_every_loss_learns(name: str) -> None:
    """From random weights, as some can't start from nothing."""
    loss = {"@losses": name, **REQUIRED.get(name, {})}
    nlp, batch, weights = started(loss=loss, learn_rate=0.2, eps=0.1)
    weights.rows[:] = numpy.random.default_rng(0).normal(size=weights.rows.shape) / 10
    assert found(nlp) != EXPECTED
    for _ in range(60):
        nlp.update(batch, sgd=Optimizer(0.01), losses={})
    assert found(nlp) == EXPECTED


def average_of(seen: list[numpy.ndarray], power: float) -> numpy.ndarray:
    """Where periods end by definition, and all weights in a period count the same."""
    ends = [0, 8]
    while ends[-1] < len(seen):
        ends.append(math.ceil(1.5 * ends[-1]))
    periods = [(a, min(b, len(seen))) for a, b in pairwise(ends) if a < len(seen)]
    shares = [(b ** (power + 1) - a ** (power + 1)) / len(seen) ** (power + 1) for a, b in periods]
    means = [numpy.mean(seen[a:b], axis=0) for a, b in periods]
    return sum(share * mean for share, mean in zip(shares, means))  # type: ignore[return-value]


@pytest.mark.parametrize("regularisation", [{}, {"L1": 0.05}, {"L1": 0.01, "L2": 0.1}])
@pytest.mark.parametrize("power", [0.0, 1.0, 3.0])
def test_averages_weigh_steps_by_a_power(regularisation: dict[str, float], power: float) -> None:
    nlp, batch, weights = started(slice(3), **regularisation, average_power=power, keep_all=True)
    optimizer, seen = Optimizer(0.01, use_averages=True), []
    for i in range(41):
        nlp.update([batch[i % 3]], sgd=optimizer, losses={})
        seen.append(weights.rows.copy())
        if i + 1 in (1, 7, 8, 12, 13, 41):
            with nlp.use_params(optimizer.averages):
                numpy.testing.assert_allclose(weights.rows, average_of(seen, power), atol=1e-6)
    exact = numpy.average(seen, axis=0, weights=(numpy.arange(41) + 0.5) ** power)
    nlp.update([examples(nlp)[3]], sgd=optimizer, losses={})  # the empty doc makes no step
    with nlp.use_params(optimizer.averages):
        numpy.testing.assert_allclose(weights.rows, exact, atol=0.003 * power + 1e-6)
        saved = nlp.to_bytes()
    numpy.testing.assert_array_equal(weights.rows, seen[-1])
    again = pipeline(model={**SPARSE, **regularisation, "keep_all": True}).from_bytes(saved)
    loaded = linear_part(again.get_pipe("ner").model)[1].rows
    numpy.testing.assert_allclose(loaded, average_of(seen, power), atol=2e-3)


def test_added_labels_keep_the_average() -> None:
    nlp, batch, weights = started(slice(3), average_power=2.0)
    optimizer, seen = Optimizer(0.01, use_averages=True), []
    for i in range(20):
        nlp.update([batch[i % 3]], sgd=optimizer, losses={})
        seen.append(weights.rows.copy())
    n_tags, n_features = weights.n_tags, weights.n_features
    with nlp.use_params(optimizer.averages):
        before = weights.rows.copy()
    nlp.get_pipe("ner").add_label("GPE")
    with nlp.use_params(optimizer.averages):
        kept = n_features + n_tags
        numpy.testing.assert_allclose(weights.rows[:kept, :n_tags], before[:kept], atol=1e-6)
        numpy.testing.assert_allclose(weights.rows[-2:, :n_tags], before[-2:], atol=1e-6)
    nlp.update(batch, sgd=optimizer, losses={})
    with nlp.use_params(optimizer.averages):
        change = numpy.abs(weights.rows[:kept, :n_tags] - before[:kept]).max()
    assert 0 < change < 0.05


def test_lazy_regularisation_is_not_put_off_by_reading() -> None:
    """Training in which all weights are looked at after each step, and one in which none is."""
    results = []
    for look in (False, True):
        nlp, batch, weights = started(L1=0.02, L2=0.05)
        for i in range(20):
            nlp.update([batch[i % 4]], sgd=Optimizer(0.01), losses={})
            if look:
                assert weights.rows.any()
        results.append(weights.rows.copy())
    numpy.testing.assert_allclose(*results, atol=1e-6)


def test_a_copy_is_another_model_to_an_optimizer() -> None:
    model = crf()
    copied = model.copy()
    original, weights = linear_part(model)[1], linear_part(copied)[1]
    assert weights.id != original.id
    weights.rows[:] = 0
    assert original.rows.any()


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_weights_of_any_size_are_saved(scale: float) -> None:
    """In two bytes, or little more, for each weight that is used. They are multiples of a power of
    2 that is 2^15 times smaller than the next above the largest."""
    weights = SparseWeights()
    weights.allocate(5000, 10)
    empty = len(weights.to_bytes())
    weights.emissions[::2] = numpy.random.default_rng(0).normal(size=(2500, 10)) * scale
    assert len(weights.to_bytes()) - empty < 2500 * (10 * 2 + 2) + 200
    again = SparseWeights().from_bytes(weights.to_bytes())
    assert (again.n_features, again.n_tags) == (5000, 10)
    largest = numpy.abs(weights.rows).max()
    numpy.testing.assert_allclose(again.rows, weights.rows, rtol=0, atol=largest / 2**15)


@pytest.mark.parametrize("most_bytes", [1 << 27, 300, 0])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_predictions_sum_the_weights_of_features(
    penalty: float, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums of a word are kept until weights change; a larger table has them, too. Those of
    words for which there is no room are not kept."""
    monkeypatch.setattr("spacy_costner.ml.word_sums.MOST_BYTES", most_bytes)
    model = crf(L2=penalty)
    weights, vocab = linear_part(model)[1], DOCS[0].vocab
    texts = ["a c b", "d", "A A x a", " ".join(f"b w{i} d" for i in range(50))]
    batches = [[Doc(vocab, words=text.split())] for text in texts] + [DOCS]
    for _ in range(3):
        for docs in batches + batches[::-1]:
            expected = weights.potentials(find_features(model, docs)).emissions
            numpy.testing.assert_allclose(model.predict(docs).emissions, expected, atol=1e-5)
            assert weights._word_sums is not None
            assert weights._word_sums.sums.nbytes <= most_bytes
        weights.begin_update(find_features(model, DOCS))[1](model.predict(DOCS))
        weights.finish_update(Optimizer(0.1))


def test_sums_of_words_follow_weights_that_are_written() -> None:
    model = crf()
    weights = linear_part(model)[1]
    before = model.predict(DOCS).emissions
    weights.rows[:] += 1.0
    expected = weights.potentials(find_features(model, DOCS)).emissions
    found = model.predict(DOCS).emissions
    numpy.testing.assert_allclose(found, expected, atol=1e-5)
    assert not numpy.allclose(found, before)


def test_sums_of_words_are_of_the_weights_in_use() -> None:
    """Also where averages take the place of the weights, with the same words."""
    model = crf()
    weights = linear_part(model)[1]
    optimizer = Optimizer(0.1, use_averages=True)
    for _ in range(3):
        weights.begin_update(find_features(model, DOCS))[1](model.predict(DOCS))
        weights.finish_update(optimizer)
    with_last_weights = model.predict(DOCS).emissions
    assert optimizer.averages is not None
    with weights.use_params(optimizer.averages):
        expected = weights.potentials(find_features(model, DOCS)).emissions
        numpy.testing.assert_allclose(model.predict(DOCS).emissions, expected, atol=1e-5)
    assert not numpy.allclose(with_last_weights, expected, atol=1e-5)


def test_sums_of_words_are_of_the_words_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cache takes the place of one that is full. Its words have other numbers."""
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_WORDS", 2)
    model = crf()
    weights, vocab = linear_part(model)[1], DOCS[0].vocab
    for text in ("a b c d", "d c x", "b a"):
        docs = [Doc(vocab, words=text.split())]
        expected = weights.potentials(find_features(model, docs)).emissions
        numpy.testing.assert_allclose(model.predict(docs).emissions, expected, atol=1e-5)


def test_features_without_weights_are_refused() -> None:
    """The rows below those of the features are there, but they are transitions."""
    features, weights = linear_part(crf())
    beyond = numpy.asarray([[0, len(features)]], dtype="int32")
    message = f"rows: expected less than {len(features)}, got {len(features)}"
    with pytest.raises(ValueError, match=message):
        weights.potentials(FeatureBatch(beyond, numpy.asarray([1], dtype="int32")))


def test_damaged_weights_are_refused() -> None:
    data = linear_part(crf())[1].to_bytes()
    saved = srsly.msgpack_loads(data)
    beyond = srsly.msgpack_dumps({**saved, "n_features": 1})
    for damaged in (data[:-4], b"", srsly.msgpack_dumps([]), beyond):
        with pytest.raises(ValueError, match="weights of a linear CRF: expected saved weights"):
            SparseWeights().from_bytes(damaged)


DENSE = {"@architectures": "spacy_costner.LinearChainCRF.v1", "tok2vec": TOK2VEC}


@pytest.mark.parametrize("model", [SPARSE, HYBRID, DENSE], ids=["sparse", "hybrid", "dense"])
def test_labels_can_be_added_to_a_trained_model(model: dict[str, Any]) -> None:
    """Layers that grow are new ones: optimizers keep nothing of theirs."""
    nlp = pipeline(model=model)
    optimizer = Optimizer(0.01, use_averages=False)
    train(nlp, 40, optimizer)
    ner = nlp.get_pipe("ner")
    before, predicted = ner.model.predict(DOCS), found(nlp)
    old, layers = ner.tags, {node.id for node in ner.model.walk()}
    ner.add_label("GPE")
    for ref in ("emissions", "output_layer"):
        assert not ner.model.has_ref(ref) or ner.model.get_ref(ref).id not in layers
    assert found(nlp) == predicted
    after = ner.model.predict(DOCS)
    n_old = len(old)
    names = [ner.tags.names.index(name) for name in old.names]
    assert names == list(range(n_old)) and after.emissions.shape[1] == len(ner.tags) > n_old
    numpy.testing.assert_allclose(after.emissions[:, :n_old], before.emissions, atol=1e-6)
    numpy.testing.assert_array_equal(after.transitions[:n_old, :n_old], before.transitions)
    numpy.testing.assert_array_equal(after.end[:n_old], before.end)
    more = Example.from_dict(nlp.make_doc("In Ghana"), {"entities": [(3, 8, "GPE")]})
    for _ in range(40):
        nlp.update([*examples(nlp), more], sgd=optimizer, losses={})
    assert [ent.label_ for ent in nlp("In Ghana").ents] == ["GPE"] and found(nlp) == EXPECTED


def test_dropout_leaves_the_mean_of_scores_as_it_is() -> None:
    numpy.random.seed(0)
    model = crf(dropout=0.5)
    expected = model.predict(DOCS).emissions
    runs = [model.begin_update(DOCS)[0].emissions for _ in range(4000)]
    numpy.testing.assert_allclose(numpy.mean(runs, axis=0), expected, atol=0.12)
    assert not numpy.allclose(runs[0], runs[1])
    numpy.testing.assert_array_equal(model.predict(DOCS).emissions, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learn_rate": 0.0}, "learn_rate: expected a number above 0"),
        ({"eps": 0.0}, "eps: expected a number above 0"),
        ({"dropout": 1.0}, "dropout: expected at least 0 and less than 1"),
        ({"L1": -1.0}, "L1: expected a finite number"),
        ({"average_power": -1.0}, "average_power: expected a finite number"),
        ({"L2": float("nan")}, "L2: expected a finite number"),
        ({"first_pass_epochs": 0}, "first_pass_epochs: expected a number of at least 1"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"spacy_costner.SparseCRF: {message}"):
        crf(**settings)


def test_hybrid_emissions_are_the_sum_of_both_parts() -> None:
    nlp = pipeline(model=HYBRID)
    train(nlp, steps=5)
    model = nlp.get_pipe("ner").model
    sparse, dense = model.layers
    potentials, alone = model.predict(DOCS), sparse.predict(DOCS)
    vectors = dense.predict(DOCS).data
    assert vectors.any() and alone.emissions.any()
    numpy.testing.assert_allclose(potentials.emissions, alone.emissions + vectors, rtol=1e-5)
    numpy.testing.assert_array_equal(potentials.transitions, alone.transitions)


def test_hybrid_parts_take_turns() -> None:
    """Each doc has the sum of the parts, or one of them twice; and both have their gradients."""
    numpy.random.seed(0)
    nlp = pipeline(model={**HYBRID, "part_dropout": 0.6})
    train(nlp, steps=5)
    model = nlp.get_pipe("ner").model
    sparse_part, dense_part = model.layers
    docs = [nlp.make_doc("London")] * 3000
    dense = dense_part.predict(docs).data
    alone = sparse_part.predict(docs).emissions
    potentials, backprop = model.begin_update(docs)
    per_doc = potentials.emissions.reshape(len(docs), -1)
    counts = {}
    for name, total in (("sum", alone + dense), ("sparse", 2 * alone), ("dense", 2 * dense)):
        same = numpy.isclose(per_doc, total.reshape(len(docs), -1), rtol=1e-4, atol=1e-6)
        counts[name] = same.all(axis=1).mean()
    assert counts == pytest.approx({"sum": 0.4, "sparse": 0.3, "dense": 0.3}, abs=0.03)
    assert sum(counts.values()) == 1
    backprop(potentials._replace(emissions=numpy.ones_like(potentials.emissions)))
    features, weights = linear_part(model)
    rows, gradient = weights.gradient()
    london = gradient[rows == features.names().index("ORTH=London")]
    assert london / len(docs) == pytest.approx(1.0, abs=0.06)
    predicted = model.predict(docs).emissions
    numpy.testing.assert_allclose(predicted, alone + dense, rtol=1e-4, atol=1e-6)


def test_hybrid_gradients_reach_the_tok2vec() -> None:
    nlp = pipeline(model=HYBRID)
    train(nlp, steps=3)
    ner, batch = nlp.get_pipe("ner"), examples(nlp)
    docs = [eg.predicted for eg in batch]

    def total() -> float:
        return float((ner.model.predict(docs).emissions * weights).sum())

    shape = ner.model.predict(docs).emissions.shape
    weights = numpy.random.default_rng(0).normal(size=shape).astype("float32")
    potentials, backprop = ner.model.begin_update(docs)
    zeros = [numpy.zeros_like(array) for array in potentials[1:4]]
    backprop(Potentials(weights, *zeros, lengths=potentials.lengths))
    emissions = ner.model.get_ref("emissions")
    param, found_gradient = emissions.get_param("W"), emissions.get_grad("W")
    for index in [(0, 0), (3, 5), (7, 2)]:
        expected = central_difference(total, param, index)
        assert found_gradient[index] == pytest.approx(expected, rel=0.05, abs=1e-2)


def test_the_template_of_features_has_a_default() -> None:
    """`add_pipe` needs only the name of the architecture, and the pipeline is saved and loaded."""
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy_costner.SparseCRF.v1"}
    nlp.add_pipe("cost_sensitive_ner", "ner", config={"model": model})
    features, _ = linear_part(nlp.get_pipe("ner").model)
    layouts = [column.layout for column in features.template.make_columns()]
    assert layouts == [column.layout for column in Template().make_columns()]
    train(nlp, steps=5)
    loaded = spacy.blank("en").from_config(nlp.config)
    loaded.from_bytes(nlp.to_bytes())
    assert found(loaded) == found(nlp)
