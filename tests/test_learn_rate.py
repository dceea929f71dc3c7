"""The factor of the learning rate scales the steps of the chain, and of nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from spacy.language import Language
from thinc.api import SGD, Adam, Model, Optimizer, RAdam, Shim, fix_random_seed

from .support.linear import HYBRID, SPARSE
from .support.pipelines import TEXTS, examples, listening, load, pipeline

FACTOR = 8.0
"""A power of 2: steps from 0 are scaled exactly, whatever their size."""

LOW = {"@schedules": "warmup_linear.v1", "warmup_steps": 250, "total_steps": 20000}


def replaced(factor: float) -> Language:
    """A component with an encoder of its own in place of the listener."""
    nlp = listening(learn_rate_factor=factor)
    nlp.initialize(lambda: examples(nlp))
    nlp.replace_listeners("tok2vec", "ner", ["model.tok2vec"])
    nlp.remove_pipe("tok2vec")
    return nlp


def alone(factor: float, **settings: Any) -> Language:
    nlp = pipeline(learn_rate_factor=factor, **settings)
    nlp.initialize(lambda: examples(nlp))
    return nlp


def hybrid(factor: float) -> Language:
    return alone(factor, model=HYBRID)


def head(model: Model) -> list[Model]:
    """The linear layer and, unless the linear part of a hybrid has its scores, the chain."""
    return [model.get_ref(ref) for ref in ("emissions", "output_layer") if model.has_ref(ref)]


def check_scaled(one: Model, scaled: Model, heads: list[Model]) -> int:
    """Check that weights of these nodes are 8 times as large, others equal. Returns how many."""
    n_head = 0
    for node, twin in zip(one.walk(), scaled.walk(), strict=True):
        for name in node.param_names:
            factor = FACTOR if node in heads else 1.0
            expected = factor * node.get_param(name)
            n_head += factor != 1 and expected.any()
            numpy.testing.assert_array_equal(twin.get_param(name), expected)
    return n_head


def set_gradients(model: Model, seed: int) -> None:
    rng = numpy.random.default_rng(seed)
    for node in model.walk():
        for name in node.param_names:
            if node.has_param(name):
                shape = node.get_param(name).shape
                node.set_grad(name, rng.normal(size=shape).astype("float32"))


def adam() -> Optimizer:
    return Adam(0.001, L2=0.0, use_averages=True)


def sgd() -> Optimizer:
    return SGD(0.01, L2=0.0, grad_clip=1.0)


@pytest.mark.parametrize("make_optimizer", [adam, sgd])
@pytest.mark.parametrize("make", [alone, replaced, hybrid])
def test_it_scales_the_steps_of_the_chain_exactly(
    make: Callable[[float], Language], make_optimizer: Callable[[], Optimizer]
) -> None:
    """Three steps with equal gradients: weights and averages of the chain, which start at 0, are
    8 times those of factor 1, the others equal."""
    models, optimizers = [], [make_optimizer(), make_optimizer()]
    for factor, optimizer in zip((1.0, FACTOR), optimizers):
        fix_random_seed(0)
        ner = make(factor).get_pipe("ner")
        for seed in range(3):
            set_gradients(ner.model, seed)
            ner.finish_update(optimizer)
        models.append(ner.model)
    n_head = 2 if make is hybrid else 5
    assert check_scaled(*models, head(models[0])) == n_head
    gradients = [node.get_grad(name) for node in models[1].walk() for name in node.grad_names]
    assert gradients and not any(gradient.any() for gradient in gradients)
    with models[0].use_params(optimizers[0].averages), models[1].use_params(optimizers[1].averages):
        assert check_scaled(*models, head(models[0])) == n_head


def test_it_scales_accumulated_gradients_and_not_a_shared_tok2vec() -> None:
    """As `accumulate_gradient` of the config does it: several updates, then one step."""
    pipelines = []
    for factor in (1.0, FACTOR):
        fix_random_seed(0)
        nlp, optimizer = listening(learn_rate_factor=factor), adam()
        batch = examples(nlp)
        nlp.initialize(lambda batch=batch: batch)
        for part in (batch[:2], batch[2:]):
            nlp.update(part, sgd=False)
        for _, pipe in nlp.pipeline:
            pipe.finish_update(optimizer)
        pipelines.append(nlp)
    for name, n_scaled in (("ner", 5), ("tok2vec", 0)):
        one, scaled = (nlp.get_pipe(name).model for nlp in pipelines)
        assert check_scaled(one, scaled, [*one.walk()] if n_scaled else []) == n_scaled


class Steps(Shim):
    """Weights that Thinc doesn't see, as those of PyTorch: notes who asks it for a step."""

    def finish_update(self, optimizer: Optimizer) -> None:
        self._model.append(optimizer)


def test_shims_take_their_steps() -> None:
    ner, optimizer, asked = alone(FACTOR).get_pipe("ner"), adam(), []
    ner.model.get_ref("tok2vec").shims.append(Steps(asked))
    ner.finish_update(optimizer)
    assert asked == [optimizer]


def test_it_is_a_setting_of_the_config(tmp_path: Path) -> None:
    nlp = alone(FACTOR)
    nlp.to_disk(tmp_path)
    assert load(tmp_path).get_pipe("ner").learn_rate_factor == FACTOR
    assert load(tmp_path, learn_rate_factor=2).get_pipe("ner").learn_rate_factor == 2
    assert [doc.ents for doc in nlp.pipe(TEXTS)] == [doc.ents for doc in load(tmp_path).pipe(TEXTS)]


@pytest.mark.parametrize(
    ("factor", "settings", "message"),
    [
        (0.0, {}, "expected a finite number above"),
        (-1.0, {}, "expected a finite number above"),
        ("nan", {}, "expected a finite number above"),
        (20.0, {"model": SPARSE}, "expected 1 for sparse_crf.*got 20"),
    ],
)
def test_bad_factors_are_named(factor: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"ner: learn_rate_factor: {message}"):
        pipeline(**settings, learn_rate_factor=factor)


def test_radam_has_none() -> None:
    nlp = alone(FACTOR)
    with pytest.raises(ValueError, match=r"learn_rate_factor: expected Adam\.v1 or SGD.v1"):
        nlp.update(examples(nlp), sgd=RAdam(0.001))
    alone(1.0).update(examples(nlp), sgd=RAdam(0.001))


def start(rate: Any, **settings: Any) -> None:
    nlp = pipeline(**settings)
    nlp.config["training"]["optimizer"]["learn_rate"] = rate
    nlp.initialize(lambda: examples(nlp))


@pytest.mark.parametrize("rate", [5e-5, {**LOW, "initial_rate": 5e-5}])
def test_warns_of_a_rate_that_is_too_low_for_the_chain(rate: Any) -> None:
    message = "ner: learn_rate_factor: expected more than 1.*at most 5e"
    with pytest.warns(UserWarning, match=message):
        start(rate)


@pytest.mark.parametrize(
    ("rate", "settings"),
    [
        (5e-5, {"learn_rate_factor": 20.0}),
        (5e-5, {"model": SPARSE}),
        (2e-4, {}),
        ({**LOW, "initial_rate": 5e-4}, {}),
    ],
)
def test_does_not_warn_otherwise(rate: Any, settings: dict[str, Any]) -> None:
    """Of the last one, the first rates are low."""
    start(rate, **settings)  # a warning is an error
