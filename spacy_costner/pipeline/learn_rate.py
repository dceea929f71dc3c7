"""The learning rate of the chain, which can be higher than the rate of the encoder below it.

A pretrained encoder needs a low learning rate: 5e-5, say. The weights of the chain start at 0 and
with Adam change by about the learning rate in a step, so they need a higher one.
"""

import math
import warnings

from spacy.language import Language
from spacy.util import registry
from thinc.api import Model, Optimizer

from ..validation import as_number

LOW_RATE = 2e-4
"""A learning rate below this is meant for a pretrained encoder."""

N_STEPS = 1000
"""The number of first steps of a schedule in which the learning rate is checked."""


def check_factor(factor: float, model: Model, name: str) -> float:
    """Check the factor of the learning rate.

    factor (float): The factor, as the config has it.
    model (Model): The model of the component. The linear model can't have a factor, as the
        optimizer of the config doesn't train it.
    name (str): The name of the component, for errors.
    RETURNS (float): The factor as a number.
    RAISES (ValueError): If it isn't a finite number above 0, or the model can't have a factor.
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
    """Update the weights of a model with its gradients. The weights of the encoder, which is the
    model's reference "tok2vec", have the learning rate of the optimizer. All other weights have the
    learning rate times the factor.

    model (Model): The model, with gradients.
    optimizer (Optimizer): The optimizer. `nlp.rehearse` gives a function instead: then the factor
        has no effect.
    factor (float): The factor of the learning rate.
    RAISES (ValueError): If the optimizer is Thinc's RAdam, which can't have several learning rates.
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
            # The optimizer keeps its moments under this key, which is the same as in Thinc's own
            # `finish_update`.
            key = (node.id, param_name)
            new_weights, _ = optimizer(key, weights, gradient, lr_scale=scale)
            node.set_param(param_name, new_weights)


def warn_of_low_rate(nlp: Language | None, model: Model, factor: float, name: str) -> None:
    """Warn if the learning rate of the config is so low that it must be meant for a pretrained
    encoder, and the chain has the same learning rate.

    nlp (Language | None): The pipeline with the config. None: there is no config to check.
    model (Model): The model of the component.
    factor (float): The factor of the learning rate.
    name (str): The name of the component.
    """
    if nlp is None or factor != 1 or not model.has_ref("tok2vec"):
        return
    # Make a second optimizer from the config, as going through its first steps changes it.
    block = nlp.config.interpolate()["training"]["optimizer"]
    optimizer = registry.resolve({"optimizer": block})["optimizer"]
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
