"""The CRF on sparse features, alone and with a Tok2Vec, from its gradients to its files."""

import math
from itertools import pairwise
from typing import Any, NamedTuple

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

from ..support.config import HAMMING, REQUIRED, TOK2VEC, declared, resolve
from ..support.fitting import examples_of
from ..support.gradients import central_difference
from ..support.linear import DOCS, HYBRID, SPARSE, crf
from ..support.pipelines import TEXTS, TRAIN, ents, examples, pipeline, train

COST = [[0, 1, 2], [1, 1, 0], [3, 0, 1], [2, 0, 2], [0, 1, 1], [1, 2, 0], [1, 0, 1]]
GOLD = Gold(
    tags=numpy.asarray([0, 2, 1, 1, 0, 2, 1], dtype="int32"),
    costs=numpy.asarray(COST, dtype="float32"),
    opening=numpy.asarray([False, True, True]),
    continuing=numpy.zeros(3, dtype=bool),
)
"""Of the 7 tokens of DOCS; the tags are O and two of single tokens."""

both_models = pytest.mark.parametrize("model", [SPARSE, HYBRID], ids=["sparse", "hybrid"])

GOLD_ENTITIES = [gold["entities"] for _, gold in TRAIN]


def predicted_entities(nlp: Language) -> list[list[tuple[int, int, str]]]:
    """What a pipeline predicts for the texts of TRAIN."""
    return [ents(doc) for doc in nlp.pipe(TEXTS)]


@pytest.mark.parametrize("name", [n for n in declared("thinc_losses") if "Schedule" not in n])
def test_gradients_of_sparse_weights_are_central_differences_of_the_loss(name: str) -> None:
    with use_ops("numpy"):
        model = crf()
    weights = linear_part(model)[1]

    def loss() -> float:
        potentials, _ = model.begin_update(DOCS)
        # Built anew each time, as some losses keep state.
        return resolve("losses", name).compute(potentials, GOLD).value

    potentials, backprop = model.begin_update(DOCS)
    backprop(resolve("losses", name).compute(potentials, GOLD).gradient)
    rows, gradient_of_rows = weights.gradient()
    gradient = numpy.zeros_like(weights.rows)
    gradient[rows] = gradient_of_rows

    for index in numpy.ndindex(gradient.shape):
        expected = central_difference(loss, weights.rows, index)
        assert gradient[index] == pytest.approx(expected, abs=2e-3), index
    assert gradient.any()


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("emissions", "W"),
        ("emissions", "b"),
        ("output_layer", "transitions"),
        ("output_layer", "start"),
        ("output_layer", "end"),
    ],
)
def test_gradients_of_dense_weights_are_central_differences_of_the_loss(
    ref: str, name: str
) -> None:
    with use_ops("numpy"):
        model = resolve("architectures", "spacy_costner.LinearChainCRF.v1", nO=3)
    model.initialize(X=DOCS)
    rng = numpy.random.default_rng(0)
    for layer in (model.get_ref("emissions"), model.get_ref("output_layer")):
        for param_name in layer.param_names:
            param = layer.get_param(param_name)
            param[:] = rng.normal(size=param.shape)
    layer = model.get_ref(ref)

    def loss() -> float:
        return sequential(model.predict(DOCS), GOLD).value

    potentials, backprop = model.begin_update(DOCS)
    backprop(sequential(potentials, GOLD).gradient)

    for index in numpy.ndindex(layer.get_param(name).shape):
        expected = central_difference(loss, layer.get_param(name), index)
        assert layer.get_grad(name)[index] == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(("text", "step_size"), [("Ana saw Rome", 3 / 24), ("Ana saw Ana", 3 / 32)])
def test_a_step_of_mira_is_that_of_the_paper(text: str, step_size: float) -> None:
    """tau = cost / || difference of features ||^2, from weights of 0, after which the margin is
    the cost: 3, as the best rival has all three tokens wrong. It takes names for O, and "saw" for
    an entity.

    Each name has 3 features and "saw" has 4: the shape, the word itself and the words beside it.
    Each feature counts 1 more with the tag of gold and 1 less with that of the rival, so 10
    features have a squared difference of 20. The start and the end add 2 each, which makes 24. Both
    paths have the same transitions, from O to B-X and back. Names that are the same word share
    their word and their shape, which differ by 2 in place of 1: 2 * 8 + 6 * 2 + 4 = 32."""
    features = {"@misc": "spacy_costner.Features.v1", "windows": {"ORTH": 1, "SHAPE": 0}}
    loss = {"@losses": "spacy_costner.MIRA.v1", "cost": HAMMING, "aggressiveness": 100.0}
    nlp = pipeline(model={**SPARSE, "features": features}, loss=loss, scheme="IOB2")
    batch = examples_of(nlp, [(text, "B-X O B-X")])
    nlp.initialize(lambda: batch)
    ner = nlp.get_pipe("ner")
    docs = [eg.predicted for eg in batch]

    potentials, backprop = ner.model.begin_update(docs)
    _, gradient = ner.get_loss(batch, potentials)
    # The gradient is tau where only the rival is, and -tau where only gold is.
    tau = gradient.emissions.max()
    assert tau == pytest.approx(step_size, rel=1e-6)

    backprop(gradient)
    weights = linear_part(ner.model)[1]
    rows, gradient_of_rows = weights.gradient()
    weights.rows[rows] -= gradient_of_rows
    potentials_after = ner.model.predict(docs)
    margin = 0.0
    for scores, gradient_of_scores in zip(potentials_after[:4], gradient[:4]):
        margin -= float((scores * gradient_of_scores).sum()) / tau
    assert margin == pytest.approx(3, rel=1e-5)


def test_transitions_are_learned_without_features() -> None:
    template = {"@misc": "spacy_costner.Features.v1", "windows": {}}
    nlp = pipeline(model={**SPARSE, "features": template})
    train(nlp)
    features, weights = linear_part(nlp.get_pipe("ner").model)
    assert not len(features) and weights.transitions.any() and weights.start.any()


@both_models
@pytest.mark.parametrize("scheme", ["BILUO", "IOB2"])
def test_a_pipeline_learns_the_training_texts(model: dict[str, Any], scheme: str) -> None:
    nlp = pipeline(model=model, scheme=scheme)
    train(nlp)
    assert predicted_entities(nlp) == GOLD_ENTITIES


def initialized(
    n_examples: int = 4, loss: dict[str, Any] | None = None, **model_settings: Any
) -> tuple[Language, list[Example], SparseWeights]:
    """A pipeline that was initialized with the first examples of TRAIN, of which the fourth is
    empty; these examples; and the weights of its linear part."""
    settings = {} if loss is None else {"loss": loss}
    nlp = pipeline(model={**SPARSE, **model_settings}, **settings)
    batch = examples(nlp)[:n_examples]
    nlp.initialize(lambda: batch)
    return nlp, batch, linear_part(nlp.get_pipe("ner").model)[1]


@pytest.mark.parametrize("name", declared("thinc_losses"))
def test_a_pipeline_learns_the_training_texts_with_any_loss(name: str) -> None:
    """Training starts from random weights, as the gradient of some losses is 0 at weights of 0."""
    loss = {"@losses": name, **REQUIRED.get(name, {})}
    nlp, batch, weights = initialized(loss=loss, learn_rate=0.2, eps=0.1)
    weights.rows[:] = numpy.random.default_rng(0).normal(size=weights.rows.shape) / 10
    assert predicted_entities(nlp) != GOLD_ENTITIES

    for _ in range(60):
        nlp.update(batch, sgd=Optimizer(0.01), losses={})

    assert predicted_entities(nlp) == GOLD_ENTITIES


def average_over_periods(weights_of_steps: list[numpy.ndarray], power: float) -> numpy.ndarray:
    """The average that training keeps, by its definition: the first period has 8 steps, and each
    ends after 1.5 times as many steps as the one before. The weight of a period that ends n_end of
    n steps is (n_end / n)^(power + 1), less that of its start; its steps count the same."""
    n_steps = len(weights_of_steps)
    ends = [0, 8]
    while ends[-1] < n_steps:
        ends.append(math.ceil(1.5 * ends[-1]))
    average = numpy.zeros_like(weights_of_steps[0])
    for begin, end in pairwise(ends):
        if begin >= n_steps:
            break
        end = min(end, n_steps)
        share = (end ** (power + 1) - begin ** (power + 1)) / n_steps ** (power + 1)
        average += share * numpy.mean(weights_of_steps[begin:end], axis=0)
    return average


class AveragedTraining(NamedTuple):
    """A pipeline that was trained with averages of its weights."""

    nlp: Language
    optimizer: Optimizer
    weights: SparseWeights
    weights_of_steps: list[numpy.ndarray]  # after each step


def train_with_averages(n_steps: int, **model_settings: Any) -> AveragedTraining:
    """Train on one text a step, and check the average where periods end, and beside it. Averages
    are used as they are, not slim."""
    nlp, batch, weights = initialized(n_examples=3, **model_settings, keep_all=True)
    optimizer = Optimizer(0.01, use_averages=True)
    weights_of_steps: list[numpy.ndarray] = []
    for i in range(n_steps):
        nlp.update([batch[i % 3]], sgd=optimizer, losses={})
        weights_of_steps.append(weights.rows.copy())
        if i + 1 in (1, 7, 8, 12, 13, n_steps):
            expected = average_over_periods(weights_of_steps, model_settings["average_power"])
            with nlp.use_params(optimizer.averages):
                numpy.testing.assert_allclose(weights.rows, expected, atol=1e-6)
    return AveragedTraining(nlp, optimizer, weights, weights_of_steps)


regularisations = pytest.mark.parametrize(
    "regularisation", [{}, {"L1": 0.05}, {"L1": 0.01, "L2": 0.1}], ids=["none", "L1", "L1, L2"]
)
powers = pytest.mark.parametrize("power", [0.0, 1.0, 3.0])


@regularisations
@powers
def test_averages_are_close_to_those_with_each_step_weighed_by_a_power(
    regularisation: dict[str, float], power: float
) -> None:
    """The weight of step i is (i + 0.5)^power. With a power of 0, the averages are exactly those:
    a period counts as much as its steps. A higher power differs more within a period, where
    training weighs all steps the same."""
    training = train_with_averages(41, **regularisation, average_power=power)
    nlp = training.nlp

    nlp.update([examples(nlp)[3]], sgd=training.optimizer, losses={})  # the empty doc: no step

    weights_by_step = (numpy.arange(41) + 0.5) ** power
    expected = numpy.average(training.weights_of_steps, axis=0, weights=weights_by_step)
    with nlp.use_params(training.optimizer.averages):
        numpy.testing.assert_allclose(training.weights.rows, expected, atol=0.003 * power + 1e-6)
    numpy.testing.assert_array_equal(training.weights.rows, training.weights_of_steps[-1])


@regularisations
@powers
def test_a_pipeline_is_saved_with_averages_in_use(
    regularisation: dict[str, float], power: float
) -> None:
    training = train_with_averages(41, **regularisation, average_power=power)

    with training.nlp.use_params(training.optimizer.averages):
        saved = training.nlp.to_bytes()

    loaded = pipeline(model={**SPARSE, **regularisation, "keep_all": True}).from_bytes(saved)
    weights = linear_part(loaded.get_pipe("ner").model)[1]
    expected = average_over_periods(training.weights_of_steps, power)
    # Weights are saved in two bytes each.
    numpy.testing.assert_allclose(weights.rows, expected, atol=2e-3)


def test_an_added_label_leaves_the_averages_of_others_as_they_were() -> None:
    training = train_with_averages(20, average_power=2.0)
    nlp, weights = training.nlp, training.weights
    n_tags = weights.n_tags
    # Rows are features, then transitions from each tag, then start and end.
    n_rows_before_start = weights.n_features + n_tags
    with nlp.use_params(training.optimizer.averages):
        before = weights.rows.copy()

    nlp.get_pipe("ner").add_label("GPE")

    with nlp.use_params(training.optimizer.averages):
        averages = weights.rows[:, :n_tags]
        numpy.testing.assert_allclose(
            averages[:n_rows_before_start], before[:n_rows_before_start], atol=1e-6
        )
        numpy.testing.assert_allclose(averages[-2:], before[-2:], atol=1e-6)

    # The next step is one of 21: it changes the averages, but not by much.
    nlp.update(examples(nlp)[:3], sgd=training.optimizer, losses={})
    with nlp.use_params(training.optimizer.averages):
        averages = weights.rows[:n_rows_before_start, :n_tags]
        change = numpy.abs(averages - before[:n_rows_before_start]).max()
    assert 0 < change < 0.05


def test_lazy_regularisation_gives_the_same_weights_when_they_are_read_between_steps() -> None:
    """Reading brings all rows up to date."""
    weights_of_runs = []
    for reads_weights in (False, True):
        nlp, batch, weights = initialized(L1=0.02, L2=0.05)
        for i in range(20):
            nlp.update([batch[i % 4]], sgd=Optimizer(0.01), losses={})
            if reads_weights:
                assert weights.rows.any()
        weights_of_runs.append(weights.rows.copy())
    unread, read = weights_of_runs
    numpy.testing.assert_allclose(read, unread, atol=1e-6)


def test_weights_of_a_copied_model_are_its_own() -> None:
    """The copy has another id, by which an optimizer keeps its averages."""
    model = crf()
    weights = linear_part(model)[1]
    copied_weights = linear_part(model.copy())[1]

    assert copied_weights.id != weights.id
    copied_weights.rows[:] = 0
    assert weights.rows.any()


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_weights_of_any_size_are_saved_in_two_bytes_each(scale: float) -> None:
    """Half of the features have weights, of 10 tags; each of these may have two bytes more. Weights
    are multiples of a power of 2, 2^15 times smaller than the next above the largest."""
    weights = SparseWeights()
    weights.allocate(5000, 10)
    n_bytes_of_zeros = len(weights.to_bytes())
    weights.emissions[::2] = numpy.random.default_rng(0).normal(size=(2500, 10)) * scale

    saved = weights.to_bytes()

    assert len(saved) - n_bytes_of_zeros < 2500 * (10 * 2 + 2) + 200  # 200 for names and lengths
    loaded = SparseWeights().from_bytes(saved)
    assert (loaded.n_features, loaded.n_tags) == (5000, 10)
    largest = numpy.abs(weights.rows).max()
    numpy.testing.assert_allclose(loaded.rows, weights.rows, rtol=0, atol=largest / 2**15)


def test_no_weights_are_loaded_in_place_of_others() -> None:
    """A model that was saved before it had weights has none when it is loaded into another one."""
    weights = SparseWeights()
    weights.allocate(3, 2, n_vector_rows=4)
    weights.from_bytes(SparseWeights().to_bytes())
    assert not weights.is_allocated
    assert (weights.n_features, weights.n_vector_rows) == (0, 0)


@pytest.mark.parametrize("most_bytes", [1 << 27, 300, 0])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_predictions_sum_the_weights_of_features(
    penalty: float, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums of a word are kept until weights change; a larger table has them, too. Those of
    words for which there is no room are not kept."""
    monkeypatch.setattr("spacy_costner.ml.word_sums.MOST_BYTES", most_bytes)
    model = crf(L2=penalty)
    _, weights = linear_part(model)
    vocab = DOCS[0].vocab
    many_new_words = " ".join(f"b w{i} d" for i in range(50))
    batches = [DOCS]
    for text in ("a c b", "d", "A A x a", many_new_words):
        batches.append([Doc(vocab, words=text.split())])

    for _ in range(3):
        for docs in batches + batches[::-1]:
            expected = weights.potentials(find_features(model, docs)).emissions
            numpy.testing.assert_allclose(model.predict(docs).emissions, expected, atol=1e-5)
            assert weights._word_sums is not None
            assert weights._word_sums.sums.nbytes <= most_bytes
        update_weights(model, Optimizer(0.1))


def update_weights(model: Any, optimizer: Optimizer) -> None:
    """Change the weights by a step, with the scores of DOCS as their gradient."""
    _, weights = linear_part(model)
    potentials, backprop = weights.begin_update(find_features(model, DOCS))
    backprop(potentials)
    weights.finish_update(optimizer)


def test_sums_of_words_follow_weights_that_are_written() -> None:
    model = crf()
    weights = linear_part(model)[1]
    before = model.predict(DOCS).emissions

    weights.rows[:] += 1.0

    after = model.predict(DOCS).emissions
    expected = weights.potentials(find_features(model, DOCS)).emissions
    numpy.testing.assert_allclose(after, expected, atol=1e-5)
    assert not numpy.allclose(after, before)


def test_sums_of_words_are_of_the_weights_in_use() -> None:
    """They are right, too, where averages take the place of the weights, with the same words."""
    model = crf()
    _, weights = linear_part(model)
    optimizer = Optimizer(0.1, use_averages=True)
    for _ in range(3):
        update_weights(model, optimizer)
    with_last_weights = model.predict(DOCS).emissions
    assert optimizer.averages is not None
    with weights.use_params(optimizer.averages):
        expected = weights.potentials(find_features(model, DOCS)).emissions
        numpy.testing.assert_allclose(model.predict(DOCS).emissions, expected, atol=1e-5)
    assert not numpy.allclose(with_last_weights, expected, atol=1e-5)


def test_sums_of_words_are_of_the_words_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cache takes the place of one that is full. Its words have other numbers."""
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_CACHED_WORDS", 2)
    model = crf()
    _, weights = linear_part(model)
    for text in ("a b c d", "d c x", "b a"):
        docs = [Doc(DOCS[0].vocab, words=text.split())]
        expected = weights.potentials(find_features(model, docs)).emissions
        numpy.testing.assert_allclose(model.predict(docs).emissions, expected, atol=1e-5)


def test_features_without_weights_are_refused() -> None:
    """The rows below those of the features are there, but they are transitions."""
    features, weights = linear_part(crf())
    beyond = numpy.asarray([[0, len(features)]], dtype="int32")
    message = f"rows: expected less than {len(features)}, got {len(features)}"
    with pytest.raises(ValueError, match=message):
        weights.potentials(FeatureBatch(beyond, numpy.asarray([1], dtype="int32")))


SAVED_WEIGHTS = linear_part(crf())[1].to_bytes()
SAVED_FIELDS = srsly.msgpack_loads(SAVED_WEIGHTS)


@pytest.mark.parametrize(
    "damaged",
    [
        SAVED_WEIGHTS[:-4],
        b"",
        srsly.msgpack_dumps([]),
        srsly.msgpack_dumps({**SAVED_FIELDS, "chain": SAVED_FIELDS["features"]}),
        srsly.msgpack_dumps({**SAVED_FIELDS, "n_features": 1}),
    ],
    ids=[
        "cut off",
        "empty",
        "a list",
        "too many of the chain",
        "weights of features that are not there",
    ],
)
def test_damaged_weights_are_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="weights of a linear CRF: expected saved weights"):
        SparseWeights().from_bytes(damaged)


def test_more_rows_than_32_bits_can_number_are_refused() -> None:
    saved = srsly.msgpack_dumps({**SAVED_FIELDS, "n_vector_rows": 2**31})
    with pytest.raises(ValueError, match="and 2147483648 rows of vectors"):
        SparseWeights().from_bytes(saved)


DENSE = {"@architectures": "spacy_costner.LinearChainCRF.v1", "tok2vec": TOK2VEC}


@pytest.mark.parametrize("model", [SPARSE, HYBRID, DENSE], ids=["sparse", "hybrid", "dense"])
def test_a_label_that_is_added_to_a_trained_model_changes_no_score_and_is_learned(
    model: dict[str, Any],
) -> None:
    nlp = pipeline(model=model)
    optimizer = Optimizer(0.01, use_averages=False)
    train(nlp, 40, optimizer)
    ner = nlp.get_pipe("ner")
    names_before = ner.tags.names
    ids_of_layers_before = {layer.id for layer in ner.model.walk()}
    entities_before = predicted_entities(nlp)
    before = ner.model.predict(DOCS)

    ner.add_label("GPE")

    n_before = len(names_before)
    assert ner.tags.names[:n_before] == names_before
    assert predicted_entities(nlp) == entities_before
    after = ner.model.predict(DOCS)
    assert after.emissions.shape[1] == len(ner.tags) > n_before
    numpy.testing.assert_allclose(after.emissions[:, :n_before], before.emissions, atol=1e-6)
    numpy.testing.assert_array_equal(after.transitions[:n_before, :n_before], before.transitions)
    numpy.testing.assert_array_equal(after.end[:n_before], before.end)
    # Layers that grow are new ones: what an optimizer keeps of the old ones has another shape.
    for ref in ("emissions", "output_layer"):
        if ner.model.has_ref(ref):
            assert ner.model.get_ref(ref).id not in ids_of_layers_before

    ghana = Example.from_dict(nlp.make_doc("In Ghana"), {"entities": [(3, 8, "GPE")]})
    for _ in range(40):
        nlp.update([*examples(nlp), ghana], sgd=optimizer, losses={})
    assert [ent.label_ for ent in nlp("In Ghana").ents] == ["GPE"]
    assert predicted_entities(nlp) == GOLD_ENTITIES


@pytest.mark.slow
def test_dropout_leaves_the_mean_of_scores_as_it_is() -> None:
    """Predictions have no dropout: their scores are always the same."""
    numpy.random.seed(0)
    model = crf(dropout=0.5)
    expected = model.predict(DOCS).emissions

    emissions_of_runs = [model.begin_update(DOCS)[0].emissions for _ in range(4000)]

    numpy.testing.assert_allclose(numpy.mean(emissions_of_runs, axis=0), expected, atol=0.12)
    assert not numpy.allclose(emissions_of_runs[0], emissions_of_runs[1])
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
def test_bad_settings_are_refused_by_name(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"spacy_costner.SparseCRF: {message}"):
        crf(**settings)


def test_hybrid_emissions_are_the_sum_of_both_parts() -> None:
    nlp = pipeline(model=HYBRID)
    train(nlp, steps=5)
    model = nlp.get_pipe("ner").model
    sparse_part, dense_part = model.layers

    potentials = model.predict(DOCS)

    sparse = sparse_part.predict(DOCS)
    dense_emissions = dense_part.predict(DOCS).data
    assert dense_emissions.any() and sparse.emissions.any()
    expected = sparse.emissions + dense_emissions
    numpy.testing.assert_allclose(potentials.emissions, expected, rtol=1e-5)
    numpy.testing.assert_array_equal(potentials.transitions, sparse.transitions)


def test_part_dropout_leaves_out_a_part_of_the_hybrid_in_some_docs() -> None:
    """A hybrid has two parts: sparse and dense. With the probability 0.6 a doc has one of them,
    twice: each in 0.3 of the docs. The gradient of a part is 2 where it is alone, and on average
    1, as without."""
    numpy.random.seed(0)
    nlp = pipeline(model={**HYBRID, "part_dropout": 0.6})
    train(nlp, steps=5)
    model = nlp.get_pipe("ner").model
    sparse_part, dense_part = model.layers
    docs = [nlp.make_doc("London")] * 3000
    dense = dense_part.predict(docs).data
    sparse = sparse_part.predict(docs).emissions

    potentials, backprop = model.begin_update(docs)

    by_doc = potentials.emissions.reshape(len(docs), -1)
    shares = {}
    for name, total in (("sum", sparse + dense), ("sparse", 2 * sparse), ("dense", 2 * dense)):
        same = numpy.isclose(by_doc, total.reshape(len(docs), -1), rtol=1e-4, atol=1e-6)
        shares[name] = same.all(axis=1).mean()
    assert shares == pytest.approx({"sum": 0.4, "sparse": 0.3, "dense": 0.3}, abs=0.03)
    assert sum(shares.values()) == 1

    backprop(potentials._replace(emissions=numpy.ones_like(potentials.emissions)))
    features, weights = linear_part(model)
    rows, gradient = weights.gradient()
    london = gradient[rows == features.names().index("ORTH=London")]
    assert london / len(docs) == pytest.approx(1.0, abs=0.06)
    predicted = model.predict(docs).emissions
    numpy.testing.assert_allclose(predicted, sparse + dense, rtol=1e-4, atol=1e-6)


def test_gradients_of_the_dense_part_of_a_hybrid_are_central_differences() -> None:
    """The loss is a sum of emissions with random weights. Three parameters are tested."""
    nlp = pipeline(model=HYBRID)
    train(nlp, steps=3)
    ner = nlp.get_pipe("ner")
    docs = [nlp.make_doc(text) for text in TEXTS]
    shape = ner.model.predict(docs).emissions.shape
    weights = numpy.random.default_rng(0).normal(size=shape).astype("float32")

    def weighted_sum() -> float:
        return float((ner.model.predict(docs).emissions * weights).sum())

    potentials, backprop = ner.model.begin_update(docs)
    zeros = [numpy.zeros_like(array) for array in potentials[1:4]]
    backprop(Potentials(weights, *zeros, lengths=potentials.lengths))

    layer = ner.model.get_ref("emissions")
    gradient = layer.get_grad("W")
    for index in [(0, 0), (3, 5), (7, 2)]:
        expected = central_difference(weighted_sum, layer.get_param("W"), index)
        assert gradient[index] == pytest.approx(expected, rel=0.05, abs=1e-2)


def test_add_pipe_needs_only_the_name_of_the_architecture() -> None:
    """The template is the default one then, and the pipeline can be saved and loaded."""
    nlp = spacy.blank("xx")
    model = {"@architectures": "spacy_costner.SparseCRF.v1"}
    nlp.add_pipe("cost_sensitive_ner", "ner", config={"model": model})
    features, _ = linear_part(nlp.get_pipe("ner").model)
    layouts = [column.layout for column in features.template.make_columns()]
    assert layouts == [column.layout for column in Template().make_columns()]

    train(nlp, steps=5)
    loaded = spacy.blank("xx").from_config(nlp.config)
    loaded.from_bytes(nlp.to_bytes())

    assert predicted_entities(loaded) == predicted_entities(nlp)
