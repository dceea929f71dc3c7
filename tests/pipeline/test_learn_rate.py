"""The factor of the learning rate scales the steps of the chain, and of nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from spacy.language import Language
from thinc.api import SGD, Adam, Model, Optimizer, RAdam, Shim, fix_random_seed

from ..support.linear import HYBRID, SPARSE
from ..support.pipelines import TEXTS, ents, examples, listening, load, pipeline, train

FACTOR = 8.0
"""A power of 2: steps from 0 are scaled exactly, of any size."""

WARMUP = {"@schedules": "warmup_linear.v1", "warmup_steps": 250, "total_steps": 20000}


def pipeline_without_listener(factor: float) -> Language:
    """A component whose listener was replaced by the Tok2Vec itself."""
    nlp = listening(learn_rate_factor=factor)
    nlp.initialize(lambda: examples(nlp))
    nlp.replace_listeners("tok2vec", "ner", ["model.tok2vec"])
    nlp.remove_pipe("tok2vec")
    return nlp


def cnn_pipeline(factor: float, **settings: Any) -> Language:
    """An initialized pipeline, by default of a CNN, whose component has this factor."""
    nlp = pipeline(learn_rate_factor=factor, **settings)
    nlp.initialize(lambda: examples(nlp))
    return nlp


def hybrid_pipeline(factor: float) -> Language:
    """The same of a hybrid model."""
    return cnn_pipeline(factor, model=HYBRID)


def head(model: Model) -> list[Model]:
    """The linear layer and, unless the linear part of a hybrid has its scores, the chain."""
    return [model.get_ref(ref) for ref in ("emissions", "output_layer") if model.has_ref(ref)]


def check_scaled(with_factor_1: Model, with_factor_8: Model, scaled_nodes: list[Model]) -> int:
    """Check that weights of these nodes of the first model are 8 times as large in the second, and
    all others equal. RETURNS (int): The number of scaled arrays of weights that are not 0."""
    n_scaled = 0
    for node, node_with_factor_8 in zip(with_factor_1.walk(), with_factor_8.walk(), strict=True):
        factor = FACTOR if node in scaled_nodes else 1.0
        for name in node.param_names:
            expected = factor * node.get_param(name)
            numpy.testing.assert_array_equal(node_with_factor_8.get_param(name), expected)
            if node in scaled_nodes and expected.any():
                n_scaled += 1
    return n_scaled


def set_gradients(model: Model, seed: int) -> None:
    """Give all weights random gradients."""
    rng = numpy.random.default_rng(seed)
    for node in model.walk():
        for name in node.param_names:
            if node.has_param(name):
                shape = node.get_param(name).shape
                node.set_grad(name, rng.normal(size=shape).astype("float32"))


def adam() -> Optimizer:
    """Adam without weight decay, which would depend on the size of weights."""
    return Adam(0.001, L2=0.0, use_averages=True)


def sgd() -> Optimizer:
    """Gradient descent, which clips gradients of a norm above 1."""
    return SGD(0.01, L2=0.0, grad_clip=1.0)


@pytest.mark.parametrize("make_optimizer", [adam, sgd])
@pytest.mark.parametrize(
    "make_pipeline, n_scaled",
    [
        # W and b of the linear layer; transitions, start and end of the chain
        (cnn_pipeline, 5),
        (pipeline_without_listener, 5),
        # W and b: the linear part has the chain
        (hybrid_pipeline, 2),
    ],
)
def test_the_factor_scales_the_steps_of_the_chain_exactly(
    make_pipeline: Callable[[float], Language],
    n_scaled: int,
    make_optimizer: Callable[[], Optimizer],
) -> None:
    """Three steps with equal gradients: weights and averages of the chain, which start at 0, are
    8 times as large as with factor 1, all others equal."""
    model, optimizer = model_after_three_steps(make_pipeline, 1.0, make_optimizer)
    scaled_model, optimizer_of_scaled = model_after_three_steps(
        make_pipeline, FACTOR, make_optimizer
    )

    assert check_scaled(model, scaled_model, head(model)) == n_scaled
    with (
        model.use_params(optimizer.averages),
        scaled_model.use_params(optimizer_of_scaled.averages),
    ):
        assert check_scaled(model, scaled_model, head(model)) == n_scaled


def model_after_three_steps(
    make_pipeline: Callable[[float], Language],
    factor: float,
    make_optimizer: Callable[[], Optimizer],
) -> tuple[Model, Optimizer]:
    """A model after three steps with random gradients, and its optimizer."""
    fix_random_seed(0)
    ner = make_pipeline(factor).get_pipe("ner")
    optimizer = make_optimizer()
    for seed in range(3):
        set_gradients(ner.model, seed)
        ner.finish_update(optimizer)
    return ner.model, optimizer


def test_gradients_are_0_after_a_step_with_a_factor() -> None:
    model, _ = model_after_three_steps(cnn_pipeline, FACTOR, adam)
    gradients = [node.get_grad(name) for node in model.walk() for name in node.grad_names]
    assert gradients and not any(gradient.any() for gradient in gradients)


def test_the_factor_scales_accumulated_gradients_and_not_a_shared_tok2vec() -> None:
    """Gradients are accumulated over several updates before one step, as with `accumulate_gradient`
    in the config. The component itself has five arrays: W and b of the linear layer, and
    transitions, start and end. The Tok2Vec is another component."""
    pipelines = []
    for factor in (1.0, FACTOR):
        fix_random_seed(0)
        nlp = listening(learn_rate_factor=factor)
        optimizer = adam()
        batch = examples(nlp)
        nlp.initialize(lambda batch=batch: batch)
        nlp.update(batch[:2], sgd=False)
        nlp.update(batch[2:], sgd=False)
        for _, pipe in nlp.pipeline:
            pipe.finish_update(optimizer)
        pipelines.append(nlp)

    model, scaled_model = (nlp.get_pipe("ner").model for nlp in pipelines)
    assert check_scaled(model, scaled_model, scaled_nodes=[*model.walk()]) == 5
    tok2vec, tok2vec_of_scaled = (nlp.get_pipe("tok2vec").model for nlp in pipelines)
    assert check_scaled(tok2vec, tok2vec_of_scaled, scaled_nodes=[]) == 0


class RecordingShim(Shim):
    """Weights that Thinc doesn't see, such as the weights of PyTorch. `_model` is the list of the
    optimizers that should have updated them."""

    def finish_update(self, optimizer: Optimizer) -> None:
        """Note the optimizer."""
        self._model.append(optimizer)


def test_shims_are_updated_once_in_a_step_with_a_factor() -> None:
    ner = cnn_pipeline(FACTOR).get_pipe("ner")
    optimizer = adam()
    optimizers: list[Optimizer] = []
    ner.model.get_ref("tok2vec").shims.append(RecordingShim(optimizers))

    ner.finish_update(optimizer)

    assert optimizers == [optimizer]


def test_the_factor_is_a_setting_of_the_config_without_influence_on_predictions(
    tmp_path: Path,
) -> None:
    nlp = pipeline(learn_rate_factor=FACTOR)
    train(nlp, optimizer=Adam(0.005))
    nlp.to_disk(tmp_path)
    expected = [ents(doc) for doc in nlp.pipe(TEXTS)]
    assert any(expected)

    assert load(tmp_path).get_pipe("ner").learn_rate_factor == FACTOR
    loaded = load(tmp_path, learn_rate_factor=2)
    assert loaded.get_pipe("ner").learn_rate_factor == 2
    assert [ents(doc) for doc in loaded.pipe(TEXTS)] == expected


@pytest.mark.parametrize(
    ("factor", "settings", "message"),
    [
        (0.0, {}, "expected a finite number above"),
        (-1.0, {}, "expected a finite number above"),
        ("nan", {}, "expected a finite number above"),
        (20.0, {"model": SPARSE}, "expected 1 for sparse_crf.*got 20"),
    ],
)
def test_bad_factors_are_refused(factor: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"ner: learn_rate_factor: {message}"):
        pipeline(**settings, learn_rate_factor=factor)


def test_radam_is_refused_with_a_factor() -> None:
    """Without a factor, which is a factor of 1, it isn't refused."""
    nlp = cnn_pipeline(FACTOR)
    with pytest.raises(ValueError, match=r"learn_rate_factor: expected Adam\.v1 or SGD.v1"):
        nlp.update(examples(nlp), sgd=RAdam(0.001))
    nlp_without_factor = cnn_pipeline(1.0)
    nlp_without_factor.update(examples(nlp_without_factor), sgd=RAdam(0.001))


def initialize_with_rate(rate: Any, **settings: Any) -> None:
    """Initialize a pipeline whose config has this learning rate, or schedule of rates."""
    nlp = pipeline(**settings)
    nlp.config["training"]["optimizer"]["learn_rate"] = rate
    nlp.initialize(lambda: examples(nlp))


@pytest.mark.parametrize("rate", [5e-5, {**WARMUP, "initial_rate": 5e-5}])
def test_a_learning_rate_too_low_for_the_chain_gets_a_warning(rate: Any) -> None:
    message = "ner: learn_rate_factor: expected more than 1.*at most 5e-05 in the first"
    with pytest.warns(UserWarning, match=message):
        initialize_with_rate(rate)


@pytest.mark.parametrize(
    ("rate", "settings"),
    [
        (5e-5, {"learn_rate_factor": 20.0}),
        (5e-5, {"model": SPARSE}),
        (2e-4, {}),
        ({**WARMUP, "initial_rate": 5e-4}, {}),  # the first rates alone are low
    ],
    ids=["factor", "sparse", "high enough", "warmup"],
)
def test_other_learning_rates_get_no_warning(rate: Any, settings: dict[str, Any]) -> None:
    initialize_with_rate(rate, **settings)  # a warning would be an error
