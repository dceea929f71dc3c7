"""The variants of a config that `compare` trains.

A variant is the config with one loss, one seed and, if values of settings are tried (a sweep), one
value of each of these settings.
"""

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from confection import SimpleFrozenDict
from thinc.api import Config

from ...costs.tables import HAMMING
from ...readers import DEFAULTS, ReadOptions
from ...training.eval_frequency import CALLBACK, Evaluations, read_evaluations
from ..config.loading import open_config, with_reading
from ..config.loss_blocks import make_loss, parse_losses
from ..config.trainable import FACTORY, can_be_fitted
from ..config.unknown_settings import check_overrides, check_settings
from ..result_cache import fingerprint

COST_SCORER = "spacy_costner.cost_scorer.v1"
"""If the base config has this scorer, variants are compared by the cost of the scorer."""

SAME_FOR_ALL = {
    "seed",
    "gpu_allocator",
    "train_corpus",
    "dev_corpus",
    "max_steps",
    "max_epochs",
    "patience",
    "eval_frequency",
}
"""The settings of [training] that are the same for all losses: the config of a loss doesn't change
them."""


@dataclass(frozen=True)
class ScoringSettings:
    """How all variants are scored.

    component (str): The name of the component.
    scheme (str): The tag scheme.
    cost (dict[str, Any]): The block of the cost.
    test_path (str): The test corpus.
    file_tokens (bool): See `compare`.
    reading (dict[str, Any]): The settings of its reader.
    """

    component: str
    scheme: str
    cost: dict[str, Any]
    test_path: str
    file_tokens: bool
    reading: dict[str, Any]


class Variant(NamedTuple):
    """A config with one loss, one value of each swept setting, and one seed.

    loss (str): The name of the loss, followed by the values, such as "Sequential L2=0.1".
    seed (int): The random seed.
    config (Config): The config, with variables filled in.
    scoring (ScoringSettings): How it is scored.
    path (Path): The folder of the variant.
    """

    loss: str
    seed: int
    config: Config
    scoring: ScoringSettings
    path: Path


def check_evaluations(variants: Sequence[Variant]) -> None:
    """Check how often the trainings of variants would evaluate the model. There is a warning if it
    is less than once in an epoch.

    RAISES (ValueError): If it is only after the first step.
    """
    # All seeds of a loss have the same settings, so the config of the first seed is enough.
    config_of_loss: dict[str, Config] = {}
    for variant in variants:
        config_of_loss.setdefault(variant.loss, variant.config)

    # The corpus has to be read to know how often. It is read once for all losses that have
    # the same settings in these sections.
    sections = ("paths", "nlp", "corpora", "training", "initialize")
    evaluations_by_key: dict[str, Evaluations | None] = {}
    for loss, config in config_of_loss.items():
        if can_be_fitted(config):
            continue  # `fit` trains it, which only evaluates at the end.
        key = fingerprint({name: config.get(name) for name in sections})
        if key not in evaluations_by_key:
            evaluations_by_key[key] = read_evaluations(config)
        evaluations = evaluations_by_key[key]
        # None: the corpus is a stream, which isn't read beforehand.
        if evaluations is None or evaluations.are_enough:
            continue
        if not evaluations.are_after_training:  # There is only the one after the first step.
            raise ValueError(f"compare: {loss}: {evaluations.objection()}")
        warnings.warn(f"{loss}: {evaluations.objection()}", stacklevel=3)


def make_variants(
    config_path: Path,
    losses: Sequence[str | Path],
    test_path: Path,
    output_path: Path,
    *,
    seeds: Sequence[int],
    file_tokens: bool = False,
    reading: ReadOptions = DEFAULTS,
    overrides: Mapping[str, Any] = SimpleFrozenDict(),
    sweep: Mapping[str, Sequence[Any]] = SimpleFrozenDict(),
) -> list[Variant]:
    """Make a variant for each seed, each loss and each combination of values of the swept settings,
    in this order.

    config_path (Path): The base config. If its scorer is `spacy_costner.cost_scorer.v1`, variants
        are scored by the cost of the scorer, and losses that are given by name have this cost, too.
        Otherwise variants are scored by the Hamming cost.
    losses (Sequence[str | Path]): The names of losses, or configs whose blocks replace blocks of
        the base config. Without losses, the loss of the base config is trained.
    test_path (Path): The test corpus.
    output_path (Path): The folder for the variants.
    seeds (Sequence[int]): Each variant is trained with each of them.
    file_tokens (bool): Whether the test docs have the tokens and sentence starts of their file.
    reading (ReadOptions): How to read the corpora.
    overrides (Mapping[str, Any]): Settings for all variants, such as "paths.train".
    sweep (Mapping[str, Sequence[Any]]): Values of settings, keyed by the names of the settings.
    RETURNS (list[Variant]): The variants.
    RAISES (ValueError): If a config can't be read, has an unknown setting, or doesn't fit the
        others.
    """
    base = open_config(config_path)
    check_overrides(base, overrides)
    check_settings(base, config_path)
    base = with_reading(base, reading)
    component = component_name(base, config_path)
    component_block = fill_in(base, overrides)["components"][component]
    scorer_cost = cost_of_scorer(component_block)
    scoring = ScoringSettings(
        component=component,
        scheme=component_block.get("scheme", "BILUO"),
        cost=scorer_cost or HAMMING,
        test_path=str(test_path),
        file_tokens=file_tokens,
        reading=reading.settings(),
    )
    # A name becomes a path as well: `read_losses` tells a name from a file by the suffix.
    changes_of_losses = read_losses([Path(loss) for loss in losses], component, scorer_cost)
    if not changes_of_losses:
        # Without losses, the loss of the base config is trained. It has no name.
        changes_of_losses[""] = {}

    shown_settings = short_names(sweep)
    # All combinations of values. Without a sweep, `product` makes a single empty one.
    combinations = list(product(*sweep.values()))
    variants: list[Variant] = []
    for seed, loss, values in product(seeds, changes_of_losses, combinations):
        name = variant_name(loss, dict(zip(shown_settings, values)))
        changes_of_seed = {"system": {"seed": seed}, "training": {"seed": seed}}
        variant_config = change_config(base, changes_of_losses[loss])
        variant_config = change_config(variant_config, changes_of_seed)
        swept_settings = dict(zip(sweep, values))
        config = fill_in(variant_config, {**overrides, **swept_settings})
        check_settings(config, name)
        # A value in the name, such as a path, may have slashes.
        path = output_path / name.replace("/", "_") / f"seed-{seed}"
        variants.append(Variant(name, seed, config, scoring, path))
    return variants


def cost_of_scorer(component_block: Mapping[str, Any]) -> dict[str, Any] | None:
    """The block of the cost in the scorer of a component. None: its scorer has no cost."""
    scorer = component_block.get("scorer")
    if scorer and scorer.get("@scorers") == COST_SCORER:
        return scorer["cost"]
    return None


def short_names(settings: Iterable[str]) -> list[str]:
    """The names of settings in the names of variants: their last part, such as L2, or the whole
    names if two settings have the same last part."""
    names = list(settings)
    last_parts = [name.rpartition(".")[2] for name in names]
    if len(set(last_parts)) < len(last_parts):
        return names
    return last_parts


def variant_name(loss: str, values: Mapping[str, Any]) -> str:
    """The name of a loss with the values of the swept settings, such as "Sequential L2=0.1". The
    loss of the base config has the name ""."""
    words: list[str] = []
    if loss:
        words.append(loss)
    for setting, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words.append(f"{setting}={text}")
    return " ".join(words)


def read_losses(
    losses: Sequence[Path], component: str, cost: dict[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """Read the changes of each loss to the base config. A loss is a name or the file of a config.
    Named losses get the block of the cost or, without one, the Hamming cost. Returns the blocks of
    each loss, keyed by its name. Two losses with the same name are an error."""
    changes: dict[str, dict[str, Any]] = {}
    for path in losses:
        # The stem of a loss that is no file is its name.
        if path.stem in changes:
            raise ValueError(
                f"{path}: expected files with different names, as losses are named after them"
            )
        if path.suffix == ".cfg":
            changes[path.stem] = read_changes(path, component)
        else:
            loss_block = make_loss(parse_losses(str(path), option="`losses`"), cost)
            changes[path.stem] = {"components": {component: {"loss": loss_block}}}
    return changes


def component_name(config: Config, path: Path) -> str:
    """Find the name of the only component of the factory `cost_sensitive_ner` in a config.

    path (Path): The config, for errors.
    RAISES (ValueError): If there isn't exactly one, or if it doesn't write `doc.ents`.
    """
    blocks = config.get("components", {}).items()
    names = [name for name, block in blocks if block.get("factory") == FACTORY]
    if len(names) != 1:
        raise ValueError(f"{path}: expected one component of factory {FACTORY!r}, got {names}")
    (name,) = names
    key = config["components"][name].get("spans_key")
    if key is not None:
        raise ValueError(
            f"{path}: expected a component that writes doc.ents, got one with the spans_key {key!r}"
        )
    return name


def read_changes(path: Path, component: str) -> dict[str, Any]:
    """Read the changes of a loss's config to the base config: all of its [components], its
    [training] except `SAME_FOR_ALL`, and the callbacks in its [initialize], except one that says
    how often to evaluate. The config must have the component."""
    config = open_config(path)
    if component not in config.get("components", {}):
        raise ValueError(f"{path}: expected a component {component!r}, as the config has it")
    training = config.get("training", {})
    initialize = config.get("initialize", {})
    # How often to evaluate is the same for all losses: it is in the base config.
    before_init = initialize.get("before_init")
    says_how_often = before_init == {"@callbacks": CALLBACK}
    callbacks: dict[str, Any] = {}
    if before_init is not None and not says_how_often:
        callbacks["before_init"] = before_init
    if "after_init" in initialize:
        callbacks["after_init"] = initialize["after_init"]
    return {
        "components": config["components"],
        "training": {name: training[name] for name in training if name not in SAME_FOR_ALL},
        "initialize": callbacks,
    }


def change_config(config: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """Make a copy of a config, and change some of its blocks and settings.

    config (Mapping[str, Any]): The config, or a block of it.
    changes (Mapping[str, Any]): The new blocks and settings. A new block that has a registered
        function or another factory replaces the old block as a whole. Otherwise only its settings
        are replaced.
    RETURNS (Config): The changed copy.
    """
    changed_config = Config(dict(config))
    for name, value in changes.items():
        old_value = config.get(name)
        if isinstance(value, dict) and isinstance(old_value, dict):
            old_factory = old_value.get("factory")
            has_same_factory = value.get("factory", old_factory) == old_factory
            # A setting such as "@losses" names a registered function.
            has_function = any(setting.startswith("@") for setting in value)
            if has_same_factory and not has_function:
                value = change_config(old_value, value)
        changed_config[name] = value
    return changed_config


def fill_in(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Make a copy of a config with overridden settings, and with all variables, such as
    ${paths.train}, filled in."""
    return Config().from_str(config.to_str(interpolate=False), overrides=dict(overrides))
