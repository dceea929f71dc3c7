"""A separate learning rate for the chain, which can be higher than the encoder's learning rate.

A pretrained encoder requires a low learning rate, such as 5e-5. The weights of the chain are
initialized to 0 and, with Adam, change by about the learning rate per step, so they require a
higher rate.
"""

import math
import warnings

from spacy.language import Language
from spacy.util import registry
from thinc.api import Model, Optimizer

from ..validation import as_number

LOW_RATE = 2e-4
"""Learning rates below this value are assumed to be intended for a pretrained encoder."""

N_STEPS = 1000
"""The number of steps for which a learning rate schedule is checked."""


def check_factor(factor: float, model: Model, name: str) -> float:
    """Validate the learning rate factor.

    factor (float): The value in the config.
    model (Model): The model of the component. Linear models don't support a factor, because they
        aren't trained with the optimizer in the config.
    name (str): The name of the component, for error messages.
    RETURNS (float): The factor as a number.
    RAISES (ValueError): If the factor isn't a finite number above 0, or the model doesn't support a
        factor other than 1.
    """
    where = f"{name}: learn_rate_factor"
    value = as_number(factor)
    if not 0 < value < math.inf:
        raise ValueError(f"{where}: expected a finite number above 0, got {factor!r}")
    if value != 1 and not model.has_ref("tok2vec"):
        raise ValueError(
            f"{where}: expected 1 for {model.name}, which has its own learn_rate in "
            f"[components.{name}.model], got {factor!r}"
        )
    return value


def finish_update(model: Model, optimizer: Optimizer, factor: float) -> None:
    """Update the weights of a model with its gradients. The encoder (the model's reference
    "tok2vec") is updated with the learning rate of the optimizer, and all other weights are updated
    with the learning rate times the factor.

    model (Model): The model, whose gradients have been computed.
    optimizer (Optimizer): The optimizer. `nlp.rehearse` passes a function instead, which doesn't
        support the factor.
    factor (float): The learning rate factor.
    RAISES (ValueError): If the optimizer is Thinc's RAdam, which can't use a different learning
        rate for some of the weights.
    """
    if factor == 1 or not isinstance(optimizer, Optimizer):
        model.finish_update(optimizer)
        return
    if optimizer.use_radam:
        raise ValueError(
            "learn_rate_factor: expected Adam.v1 or SGD.v1 in [training.optimizer], got RAdam.v1, "
            "which can't train some weights at a different rate"
        )

    encoder_ids = {node.id for node in model.get_ref("tok2vec").walk()}
    for node in model.walk():
        for shim in node.shims:
            shim.finish_update(optimizer)  # a linear part has its own learning rate
        scale = 1.0 if node.id in encoder_ids else factor
        for param_name in node.param_names:
            if not node.has_grad(param_name):
                continue
            weights = node.get_param(param_name)
            gradient = node.get_grad(param_name)
            # The optimizer stores its moments under this key, which is also used by Thinc's
            # `finish_update`.
            key = (node.id, param_name)
            new_weights, _ = optimizer(key, weights, gradient, lr_scale=scale)
            node.set_param(param_name, new_weights)


def make_optimizer(nlp: Language) -> Optimizer:
    """Create a new optimizer from the config of a pipeline. Its schedules, such as a warm-up, begin
    with their first values. Schedules can't be reset, so training that starts anew requires a new
    optimizer."""
    block = nlp.config.interpolate()["training"]["optimizer"]
    optimizer: Optimizer = registry.resolve({"optimizer": block})["optimizer"]
    return optimizer


def warn_of_low_rate(nlp: Language | None, model: Model, factor: float, name: str) -> None:
    """Warn if the chain is trained with a learning rate that is probably intended for a pretrained
    encoder (see `LOW_RATE`).

    nlp (Language | None): The pipeline with the config to check, if any.
    model (Model): The model of the component.
    factor (float): The learning rate factor.
    name (str): The name of the component.
    """
    if nlp is None or factor != 1 or not model.has_ref("tok2vec"):
        return
    optimizer = make_optimizer(nlp)
    highest_rate = 0.0
    for _ in range(N_STEPS):
        highest_rate = max(highest_rate, optimizer.learn_rate)
        optimizer.step_schedules()
    if highest_rate < LOW_RATE:
        warnings.warn(
            f"{name}: learn_rate_factor: expected more than 1, such as 20, with a learning rate of "
            f"at most {highest_rate:.2g} in the first {N_STEPS:,} steps, got 1: the chain would "
            "learn hardly anything for hundreds of steps",
            stacklevel=3,
        )
