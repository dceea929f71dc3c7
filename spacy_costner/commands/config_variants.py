"""Variants of one config: each loss, with each value of the swept settings, with each seed.

A loss is given as a short config of its own: its blocks take the place of those of the base
config.
"""

import json
from itertools import product
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import srsly
from confection import SimpleFrozenDict
from spacy.util import load_config
from thinc.api import Config

from ..costs.tables import HAMMING
from ..settings import check_overrides, check_settings
from ..training.evaluation import CALLBACK, Evaluations, read_evaluations
from .runs import fingerprint

FACTORY = "cost_sensitive_ner"
COST_SCORER = "spacy_costner.cost_scorer.v1"
SAME_FOR_ALL = frozenset(
    [
        *("seed", "gpu_allocator", "train_corpus", "dev_corpus"),
        *("max_steps", "max_epochs", "patience", "eval_frequency"),
    ]
)
"""Settings of [training] that the config of a loss does not change."""

CALLBACKS = ("before_init", "after_init")
NOT_OF_A_LOSS = (None, {"@callbacks": CALLBACK})
"""Values of before_init that the config of a loss does not change: how often to evaluate."""


READ = ("paths", "nlp", "corpora", "training", "initialize")
"""The sections by which a training knows when to evaluate."""


class Measure(NamedTuple):
    """How predictions are scored, the same for all losses.

    component (str): The name of the component.
    scheme (str): The tag scheme of the cost.
    cost (Dict[str, Any]): The block of the cost.
    test_path (str): The corpus, of any format.
    """

    component: str
    scheme: str
    cost: Dict[str, Any]
    test_path: str


class Variant(NamedTuple):
    """The config with one loss, one value of each swept setting, and one seed.

    loss (str): The name of the loss and the values.
    seed (int): The seed.
    config (Config): The config, with variables filled in.
    measure (Measure): How its predictions are scored.
    path (Path): Its folder.
    """

    loss: str
    seed: int
    config: Config
    measure: Measure
    path: Path

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.loss}, seed {self.seed}"


def make_variants(
    config_path: Path,
    loss_paths: Sequence[Path],
    test_path: Path,
    output_path: Path,
    *,
    seeds: Sequence[int],
    overrides: Mapping[str, Any],
    sweep: Mapping[str, Sequence[Any]] = SimpleFrozenDict(),
) -> List[Variant]:
    """Make a variant of each loss with each value of the swept settings and each seed.

    config_path (Path): The base config. The cost of its scorer is used if that is
        `spacy_costner.cost_scorer.v1`, the Hamming cost otherwise.
    loss_paths (Sequence[Path]): A config for each loss. The file name is the name of the loss.
        If there is none, the loss is that of the base config.
    test_path (Path): The corpus to score on.
    output_path (Path): The folder for the variants' folders, `<loss>/seed-<seed>`.
    seeds (Sequence[int]): The seeds.
    overrides (Mapping[str, Any]): Settings for all variants, such as "paths.train".
    sweep (Mapping[str, Sequence[Any]]): The values of settings, such as
        {"components.ner.loss.multiplier": [0.5, 1]}. Several settings: all combinations.
    RETURNS (List[Variant]): The variants: all losses with the first seed, then with the next.
    RAISES (ValueError): If the configs don't fit each other.
    """
    base = load_config(config_path, interpolate=False)
    check_overrides(base, overrides)
    check_settings(base, config_path)
    component = component_name(base, config_path)
    measure = what_to_measure(fill_in(base, overrides), component, test_path)
    losses = read_losses(loss_paths, component) or {"": {}}
    variants = []
    for seed in seeds:
        for loss, (values, settings) in product(losses, _combinations(sweep)):
            seeded = put_onto(put_onto(base, losses[loss]), _seed(seed))
            name = " ".join(filter(None, [loss, values]))
            path = output_path / name.replace("/", "_") / f"seed-{seed}"
            config = fill_in(seeded, {**overrides, **settings})
            check_settings(config, name)
            variants.append(Variant(name, seed, config, measure, path))
    return variants


def _combinations(sweep: Mapping[str, Sequence[Any]]) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """All combinations of the values of settings, each with a name. Without settings, one."""
    ends = [name.rpartition(".")[2] for name in sweep]
    shown = ends if len(set(ends)) == len(ends) else list(sweep)
    for values in product(*sweep.values()):
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
        name = " ".join(f"{setting}={text}" for setting, text in zip(shown, texts))
        yield name, dict(zip(sweep, values))


def component_name(config: Config, path: Path) -> str:
    """The name of the one component of our factory in a config.

    RAISES (ValueError): If there is none or more than one.
    """
    blocks = config.get("components", {}).items()
    names = [name for name, block in blocks if block.get("factory") == FACTORY]
    if len(names) != 1:
        raise ValueError(f"{path}: expected one component of factory {FACTORY!r}, got {names}")
    return names[0]


def what_to_measure(config: Config, component: str, test_path: Path) -> Measure:
    """Read from a config how predictions are scored."""
    block = config["components"][component]
    scorer = block.get("scorer") or {}
    cost = scorer["cost"] if scorer.get("@scorers") == COST_SCORER else HAMMING
    return Measure(component, block.get("scheme", "BILUO"), cost, str(test_path))


def read_losses(paths: Sequence[Path], component: str) -> Dict[str, Dict[str, Any]]:
    """Read the blocks that each loss changes.

    paths (Sequence[Path]): A config for each loss.
    component (str): The name of the component.
    RETURNS (Dict[str, Dict[str, Any]]): For each file name its [components], its [training]
        without `SAME_FOR_ALL`, and its initialization callbacks.
    RAISES (ValueError): If two files have the same name, or one has no such component.
    """
    losses: Dict[str, Dict[str, Any]] = {}
    for path in paths:
        config = load_config(path, interpolate=False)
        if path.stem in losses:
            raise ValueError(f"{path}: expected files of different names, as they name the losses")
        if component not in config.get("components", {}):
            raise ValueError(f"{path}: expected a component {component!r}, as the config has it")
        training, initialize = config.get("training", {}), dict(config.get("initialize", {}))
        if initialize.get("before_init") in NOT_OF_A_LOSS:
            initialize.pop("before_init", None)
        losses[path.stem] = {
            "components": config["components"],
            "training": {name: training[name] for name in training if name not in SAME_FOR_ALL},
            "initialize": {name: initialize[name] for name in CALLBACKS if name in initialize},
        }
    return losses


def put_onto(config: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """Merge blocks into a config.

    A block with a registered function or another factory replaces the whole block. Of other
    blocks, only the settings given are replaced.

    config (Mapping[str, Any]): The config. It is not modified.
    changes (Mapping[str, Any]): The blocks.
    RETURNS (Config): The new config.
    """
    merged = Config(dict(config))
    for name, value in changes.items():
        there = config.get(name)
        if isinstance(value, dict) and isinstance(there, dict) and not _is_other(value, there):
            value = put_onto(there, value)
        merged[name] = value
    return merged


def _is_other(block: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Whether a block replaces the whole block of that name."""
    names_function = any(name.startswith("@") for name in block)
    return names_function or block.get("factory", there.get("factory")) != there.get("factory")


def _seed(seed: int) -> Dict[str, Dict[str, int]]:
    return {"system": {"seed": seed}, "training": {"seed": seed}}


def fill_in(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Fill in variables and overrides.

    RAISES (ConfigValidationError): If an override's section doesn't exist.
    """
    return Config().from_str(config.to_str(interpolate=False), overrides=dict(overrides))


def object_to_evaluations(variants: Sequence[Variant], on_objection: Callable[[str], None]) -> None:
    """Count how often trainings evaluate.

    variants (Sequence[Variant]): The variants. Only one of each loss is looked at.
    on_objection (Callable[[str], None]): Called if that is less than once in an epoch.
    RAISES (ValueError): If the only evaluation is that of the first step.
    """
    read: Dict[str, Optional[Evaluations]] = {}
    for variant in {variant.loss: variant for variant in reversed(variants)}.values():
        key = fingerprint({name: variant.config.get(name) for name in READ})
        if key not in read:
            read[key] = read_evaluations(variant.config)
        found = read[key]
        if found is None or not (objection := found.objection()):
            continue
        if not found.are_after_training:
            raise ValueError(f"compare: {variant.loss}: {objection}")
        on_objection(f"{variant.loss}: {objection}")


def is_trained(variant: Variant) -> bool:
    """Whether the best model of a variant was trained past the first step, which spaCy evaluates,
    too. A step is an update or, with `accumulate_gradient`, several."""
    cfg = srsly.read_json(variant.path / "model-best" / variant.measure.component / "cfg")
    return cfg["progress"]["steps"] >= 2 * variant.config["training"].get("accumulate_gradient", 1)
