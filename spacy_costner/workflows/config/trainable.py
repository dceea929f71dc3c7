"""Find the components of a config that `fit` can train."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spacy.language import Language
from spacy.util import get_lang_class, load_config
from thinc.api import Config

from ...ml import is_linear
from ...pipeline.component import CostSensitiveNER
from ...training.raw_sentences import pipeline_folder
from .unknown_settings import check_settings

FACTORY = "cost_sensitive_ner"
"""The factory of our component."""

LINEAR_MODEL = "spacy_costner.SparseCRF.v1"
"""The architecture of linear models."""


def check_end(training: Mapping[str, Any]) -> None:
    """Check that the number of training epochs or steps is limited. spaCy's value of -1 epochs, for
    streamed corpora, isn't supported.

    training (Mapping[str, Any]): The settings of the [training] block.
    RAISES (ValueError): If neither number is limited, or a limit is negative.
    """
    limits = {name: training[name] for name in ("max_epochs", "max_steps")}
    # In spaCy, 0 means no limit, so at least one of the values must be positive.
    if max(limits.values()) <= 0 or min(limits.values()) < 0:
        raise ValueError(
            "training: expected max_epochs or max_steps of at least 1, and neither below 0, got "
            f"{limits}"
        )


def components_to_fit(nlp: Language, frozen: Iterable[str]) -> list[CostSensitiveNER]:
    """Find the components of a pipeline that `fit` trains: one component, or several components
    with the same `spans_key`.

    frozen (Iterable[str]): The names of components that aren't trained.
    RAISES (ValueError): If the pipeline has no such component, if other components need training,
        or if a model isn't linear.
    """
    trainable: list[str] = []
    ners: list[CostSensitiveNER] = []
    for name, pipe in nlp.pipeline:
        # Function components don't have this attribute.
        is_trainable = getattr(pipe, "is_trainable", False)
        if name in frozen or not is_trainable:
            continue
        trainable.append(name)
        if isinstance(pipe, CostSensitiveNER):
            ners.append(pipe)
    fit_together = are_fitted_together([ner.annotation.spans_key for ner in ners])
    if len(ners) < len(trainable) or not fit_together:
        raise ValueError(
            f"nlp.pipeline: expected one component to train, of factory {FACTORY!r}, and others in "
            f"training.frozen_components, got {trainable}"
        )
    for ner in ners:
        if not is_linear(ner.model):
            architecture = nlp.config["components"][ner.name]["model"].get("@architectures")
            raise ValueError(
                f"components.{ner.name}.model: expected {LINEAR_MODEL}, got {architecture}"
            )
    return ners


def are_fitted_together(spans_keys: Sequence[str | None]) -> bool:
    """Check whether `fit` can train components with these values of `spans_key` in a single run:
    one component, or several components with the same key."""
    if len(spans_keys) <= 1:
        return len(spans_keys) == 1
    return None not in spans_keys and len(set(spans_keys)) == 1


def can_be_fitted(config: Config) -> bool:
    """Check whether `fit` can train the pipeline of a config: all models to train are linear and
    can be trained together, the training time is limited, and all settings are known. This only
    reads configs and doesn't build a pipeline."""
    try:
        check_settings(config)
        complete = Config(Language.default_config).merge(config).interpolate()
        check_end(complete["training"])
        blocks = blocks_to_train(complete)
    except ValueError:
        return False
    for block in blocks:
        is_ours = block["factory"] == FACTORY
        if not is_ours or block["model"]["@architectures"] != LINEAR_MODEL:
            return False
    return are_fitted_together([block.get("spans_key") for block in blocks])


def blocks_to_train(config: Config) -> list[dict[str, Any]]:
    """Return the blocks of the components that are updated in training: components with a model
    that are neither frozen nor disabled. Missing settings are filled in with the defaults of the
    factory."""
    language = get_lang_class(config["nlp"]["lang"])
    not_trained = {*config["nlp"]["disabled"], *config["training"]["frozen_components"]}
    blocks: list[dict[str, Any]] = []
    for name in config["nlp"]["pipeline"]:
        if name in not_trained:
            continue
        block = component_block(config, name)
        defaults = language.get_factory_meta(block["factory"]).default_config
        block = {**(defaults or {}), **block}
        if isinstance(block.get("model"), Mapping):
            blocks.append(block)
    return blocks


def component_block(config: Config, name: str) -> dict[str, Any]:
    """Return the block of a component in an interpolated config. For a component that is sourced
    from another pipeline (`source`), the block is taken from the config of that pipeline."""
    block = config["components"][name]
    if "source" not in block:
        return block
    components = read_pipeline_config(block["source"])["components"]
    name_in_source = block.get("component", name)
    return components[name_in_source]


def read_pipeline_config(name: str) -> Config:
    """Read the config of a trained pipeline (a package or a folder)."""
    return load_config(pipeline_folder(name) / "config.cfg", interpolate=True)
