"""Create the variants of a config that `compare` trains.

A variant is the config with one loss, one seed and, in a sweep, one value of each swept setting.
"""

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from confection import SimpleFrozenDict
from spacy.util import registry
from thinc.api import Config

from ...costs.tables import HAMMING
from ...readers import DEFAULTS, ReadOptions
from ...training.eval_frequency import (
    CALLBACK,
    Evaluations,
    complete_config,
    read_evaluations,
    read_examples,
)
from ...training.soft_targets import labels_of
from ...training.stages import count_passes, find_unused_loss
from ..config.corpus_statistics import CorpusStatistics
from ..config.cost_blocks import find_cost_files
from ..config.loading import open_config, with_reading
from ..config.loss_blocks import (
    SCHEDULE,
    choose_epochs,
    choose_multiplier,
    count_needed_epochs,
    make_loss,
    parse_losses,
)
from ..config.trainable import FACTORY, can_be_fitted
from ..config.unknown_settings import check_overrides, check_settings
from ..result_cache import fingerprint
from .variant_checks import check_loss, check_seeds, check_sweep

COST_SCORER = "spacy_costner.cost_scorer.v1"
"""If the base config uses this scorer, variants are compared using the scorer's cost."""

CONFIG_SUFFIX = ".cfg"
"""The suffix of config files, which distinguishes them from names of losses."""

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
"""The settings of [training] that are the same for all losses and can't be changed by the config of
a loss."""


@dataclass(frozen=True)
class ScoringSettings:
    """The scoring settings shared by all variants.

    component (str): The name of the component.
    scheme (str): The tag scheme.
    cost (dict[str, Any]): The block of the cost.
    test_path (str): The path of the test corpus.
    file_tokens (bool): See `compare`.
    reading (dict[str, Any]): The settings for reading the test corpus.
    """

    component: str
    scheme: str
    cost: dict[str, Any]
    test_path: str
    file_tokens: bool
    reading: dict[str, Any]


class Variant(NamedTuple):
    """A config with one loss, one value of each swept setting, and one seed.

    loss (str): The name of the loss, followed by the values, e.g. "Sequential L2=0.1".
    seed (int): The random seed.
    config (Config): The config, with interpolated variables.
    scoring (ScoringSettings): The scoring settings.
    path (Path): The folder of the variant.
    """

    loss: str
    seed: int
    config: Config
    scoring: ScoringSettings
    path: Path


def check_schedules(variants: Sequence[Variant]) -> None:
    """Check that training lasts until the last loss of each schedule.

    RAISES (ValueError): If a loss would never be used.
    """
    # All seeds of a loss have the same settings, so only check the first one.
    variant_of_loss: dict[str, Variant] = {}
    for variant in variants:
        variant_of_loss.setdefault(variant.loss, variant)
    for loss, variant in variant_of_loss.items():
        block = variant.config["components"][variant.scoring.component].get("loss")
        if block is None or block.get("@losses") != SCHEDULE:
            continue
        schedule = registry.resolve({"loss": block})["loss"]
        config = complete_config(variant.config)
        counted = None if can_be_fitted(config) else partial(read_examples, config)
        objection = find_unused_loss(schedule, config["training"], counted)
        if objection:
            raise ValueError(f"compare: {loss}: {objection}")


def check_evaluations(variants: Sequence[Variant]) -> None:
    """Check how often the models of the variants will be evaluated during training. Issues a
    warning if this is less than once per epoch.

    RAISES (ValueError): If a model would only be evaluated after the first step.
    """
    # All seeds of a loss have the same settings, so only check the first one.
    config_of_loss: dict[str, Config] = {}
    for variant in variants:
        config_of_loss.setdefault(variant.loss, variant.config)

    # This requires reading the corpus, so read it once for all losses with the same settings in
    # these sections.
    sections = ("paths", "nlp", "corpora", "training", "initialize")
    evaluations_by_key: dict[str, Evaluations | None] = {}
    for loss, config in config_of_loss.items():
        if can_be_fitted(config):
            continue  # trained with `fit`, which only evaluates at the end
        key = fingerprint({name: config.get(name) for name in sections})
        if key not in evaluations_by_key:
            evaluations_by_key[key] = read_evaluations(config)
        evaluations = evaluations_by_key[key]
        # None for streamed corpora, which aren't read in advance
        if evaluations is None or evaluations.are_enough:
            continue
        if not evaluations.are_after_training:  # only after the first step
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
    """Create a variant for each seed, each loss and each combination of values of the swept
    settings, in this order.

    config_path (Path): The base config. If its scorer is `spacy_costner.cost_scorer.v1`, the
        scorer's cost is used to score variants, and for losses specified by name. Otherwise, the
        Hamming cost is used.
    losses (Sequence[str | Path]): The names of losses, or config files whose blocks replace blocks
        of the base config. If empty, the loss of the base config is used.
    test_path (Path): The test corpus.
    output_path (Path): The folder for the variants.
    seeds (Sequence[int]): The random seeds. Each variant is trained with each seed.
    file_tokens (bool): Whether to use the tokens and sentence starts of the test file.
    reading (ReadOptions): Options for reading the corpora.
    overrides (Mapping[str, Any]): Settings for all variants, e.g. "paths.train".
    sweep (Mapping[str, Sequence[Any]]): Values of settings, keyed by setting name.
    RETURNS (list[Variant]): The variants.
    RAISES (ValueError): If a config can't be read, contains an unknown setting, or isn't compatible
        with the others; if overrides or swept settings replace the settings in which variants
        differ; or if two variants have the same folder.
    """
    base = open_config(config_path)
    component = component_name(base, config_path)
    check_seeds(overrides, sweep)
    check_sweep(overrides, sweep)
    if losses:
        check_loss(f"components.{component}.loss", overrides, sweep)
    check_overrides(base, overrides)
    check_settings(base, config_path)
    base = with_reading(base, reading)
    filled_base = fill_in(base, overrides)
    component_block = filled_base["components"][component]
    scorer_cost = cost_of_scorer(component_block)
    scoring = ScoringSettings(
        component=component,
        scheme=component_block.get("scheme", "BILUO"),
        cost=scorer_cost or HAMMING,
        test_path=str(test_path),
        file_tokens=file_tokens,
        reading=reading.settings(),
    )
    # Convert names to paths, too: `read_losses` distinguishes names from files by the suffix.
    named_losses = {Path(loss).stem for loss in losses if Path(loss).suffix != CONFIG_SUFFIX}
    multiplier = 1.0
    if named_losses and scorer_cost is not None:
        multiplier = read_multiplier(scorer_cost, filled_base)
    changes_of_losses = read_losses(
        [Path(loss) for loss in losses], component, scorer_cost, multiplier
    )
    if not changes_of_losses:
        # If no losses are given, use the loss of the base config, which has no name.
        changes_of_losses[""] = {}

    shown_settings = short_names(sweep)
    # All combinations of values. Without a sweep, there is a single empty combination.
    combinations = list(product(*sweep.values()))
    variants: list[Variant] = []
    # What each variant sets: its loss and seed, and the swept settings.
    settings_of_variants: list[tuple[Config, dict[str, Any]]] = []
    known_epochs: dict[str, float] = {}  # the numbers of epochs that have already been counted
    for seed, loss, values in product(seeds, changes_of_losses, combinations):
        name = variant_name(loss, dict(zip(shown_settings, values)))
        changes_of_seed = {"system": {"seed": seed}, "training": {"seed": seed}}
        variant_config = change_config(base, changes_of_losses[loss])
        variant_config = change_config(variant_config, changes_of_seed)
        swept_settings = dict(zip(sweep, values))
        check_overrides(variant_config, swept_settings)  # may be settings of the loss
        settings = {**overrides, **swept_settings}
        config = fill_in(variant_config, settings)
        check_settings(config, name)
        if loss in named_losses and f"components.{component}.loss.epochs" not in settings:
            shorten_schedule(config, component, known_epochs)
        # Values in the name may contain slashes, e.g. paths.
        path = output_path / name.replace("/", "_") / f"seed-{seed}"
        variants.append(Variant(name, seed, config, scoring, path))
        settings_of_variants.append((variant_config, swept_settings))
    check_distinct(variants, settings_of_variants)
    return variants


def check_distinct(variants: Sequence[Variant], settings_of_variants: Sequence[Any]) -> None:
    """Check that variants have different folders, and that overrides and swept settings don't make
    the configs of two variants equal. `settings_of_variants` contains the settings in which the
    variants differ before that."""
    paths: set[Path] = set()
    # The first variant with each config, as an index
    index_of_config: dict[str, int] = {}
    for i, variant in enumerate(variants):
        if variant.path in paths:
            raise ValueError(f"{variant.loss}: expected one variant in {variant.path}, got two")
        paths.add(variant.path)
        first = index_of_config.setdefault(variant.config.to_str(), i)
        if settings_of_variants[first] != settings_of_variants[i]:
            raise ValueError(
                f"{variant.loss}: expected another config than {variants[first].loss}, got the "
                "same: overrides or swept settings replace the settings in which they differ"
            )


def cost_of_scorer(component_block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the cost block of a component's scorer, or None if its scorer has no cost."""
    scorer = component_block.get("scorer")
    if scorer and scorer.get("@scorers") == COST_SCORER:
        return scorer["cost"]
    return None


def short_names(settings: Iterable[str]) -> list[str]:
    """Shorten the names of settings for the names of variants: use the last part of each name, e.g.
    L2, or the full names if the last parts aren't unique."""
    names = list(settings)
    last_parts = [name.rpartition(".")[2] for name in names]
    if len(set(last_parts)) < len(last_parts):
        return names
    return last_parts


def variant_name(loss: str, values: Mapping[str, Any]) -> str:
    """Combine the name of a loss and the values of the swept settings, e.g. "Sequential L2=0.1".
    For the loss of the base config, `loss` is empty."""
    words: list[str] = []
    if loss:
        words.append(loss)
    for setting, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words.append(f"{setting}={text}")
    return " ".join(words)


def read_multiplier(cost: Mapping[str, Any], config: Config) -> float:
    """Choose the factor for the scores of costs as `init` does: see `choose_multiplier`. Unless the
    training corpus is streamed, it is read, because the costs depend on its labels.

    cost (Mapping[str, Any]): The block of the scorer's cost.
    config (Config): The base config, with interpolated variables.
    """
    config = complete_config(config)
    label_counts: Counter[str] = Counter()
    if config["training"]["max_epochs"] >= 0:
        for eg in read_examples(config):
            label_counts.update(labels_of(eg.reference))
    corpus = CorpusStatistics(label_counts=label_counts)
    return choose_multiplier(dict(cost), find_cost_files(cost), corpus)


def read_losses(
    losses: Sequence[Path], component: str, cost: dict[str, Any] | None, multiplier: float
) -> dict[str, dict[str, Any]]:
    """Read the changes that each loss makes to the base config. A loss is specified by name or by a
    config file. Named losses use the given cost or, if it is None, the Hamming cost, and the given
    factor for the score per unit of cost. Returns the changed blocks, keyed by the name of the
    loss. Raises a ValueError if two losses have the same name."""
    changes: dict[str, dict[str, Any]] = {}
    for path in losses:
        # For named losses, the stem is the name.
        if path.stem in changes:
            raise ValueError(
                f"{path}: expected files with different names, as losses are named after them"
            )
        if path.suffix == CONFIG_SUFFIX:
            changes[path.stem] = read_changes(path, component)
        else:
            names = parse_losses(str(path), option="`losses`")
            epochs = choose_epochs(names, count_needed_epochs(len(names)))
            loss_block = make_loss(names, cost, multiplier=multiplier, epochs=epochs)
            changes[path.stem] = {"components": {component: {"loss": loss_block}}}
    return changes


def shorten_schedule(config: Config, component: str, known_epochs: dict[str, float]) -> None:
    """Shorten the schedule of a named loss if training ends before all of its losses have been used
    for long enough: see `choose_epochs`. Other losses aren't changed. If the number of steps is
    limited, the corpus is read, to count the epochs. They are stored in `known_epochs`."""
    block = config["components"][component]["loss"]
    if block["@losses"] != SCHEDULE:
        return
    names = list(block["*"])
    config = complete_config(config)
    training = config["training"]
    # The number of epochs doesn't depend on the seed.
    inputs = {name: config.get(name) for name in ("paths", "nlp", "corpora")}
    key = fingerprint({**inputs, "training": {**training, "seed": None}, "n_losses": len(names)})
    if key not in known_epochs:
        known_epochs[key] = count_passes(
            training, partial(read_examples, config), most=count_needed_epochs(len(names))
        )
    block["epochs"] = choose_epochs(names, known_epochs[key])


def component_name(config: Config, path: Path) -> str:
    """Find the name of the only `cost_sensitive_ner` component in a config.

    path (Path): The path of the config, for error messages.
    RAISES (ValueError): If there isn't exactly one such component, or if it doesn't write
        `doc.ents`.
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
    """Read the changes that the config of a loss makes to the base config: all of its [components],
    its [training] settings except `SAME_FOR_ALL`, and the callbacks in [initialize], except for the
    callback that sets the evaluation frequency. The config must contain the component."""
    config = open_config(path)
    if component not in config.get("components", {}):
        raise ValueError(f"{path}: expected a component {component!r}, as the config has it")
    training = config.get("training", {})
    initialize = config.get("initialize", {})
    # The evaluation frequency is the same for all losses and is set in the base config.
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
    """Copy a config and change some of its blocks and settings.

    config (Mapping[str, Any]): The config, or a block of it.
    changes (Mapping[str, Any]): The new blocks and settings. A new block replaces the entire old
        block if it has a registered function or another factory. Otherwise, only its settings are
        replaced.
    RETURNS (Config): The changed copy.
    """
    changed_config = Config(dict(config))
    for name, value in changes.items():
        old_value = config.get(name)
        if isinstance(value, dict) and isinstance(old_value, dict):
            old_factory = old_value.get("factory")
            has_same_factory = value.get("factory", old_factory) == old_factory
            # A setting such as "@losses" refers to a registered function.
            has_function = any(setting.startswith("@") for setting in value)
            if has_same_factory and not has_function:
                value = change_config(old_value, value)
        changed_config[name] = value
    return changed_config


def fill_in(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Copy a config, override settings, and interpolate all variables, such as ${paths.train}."""
    return Config().from_str(config.to_str(interpolate=False), overrides=dict(overrides))
