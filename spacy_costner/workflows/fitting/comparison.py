"""Train one config with several losses, values of settings and seeds, and compare the scores.

A variant is the config with one loss, one seed and, if values of settings are tried (a sweep), one
value of each of these settings. Each variant is trained and evaluated in its own folder, where a
later run finds it. The variants that differ only in their seed make a row of the result, which is
named by the loss and the values.
"""

import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any, NamedTuple

import numpy
import spacy
import srsly
from confection import SimpleFrozenDict
from spacy.cli._util import setup_gpu
from spacy.util import registry
from thinc.api import Config
from thinc.types import FloatsXd

from ...costs.tables import HAMMING
from ...files.saving import as_json, replace_folder, save_file
from ...metrics import Difference, f_score, paired_differences, precision, ratio, recall
from ...pipeline.scorers import DocCounts, count_docs, select_annotated
from ...progress import phase
from ...readers import DEFAULTS, ReadOptions, examples_to_measure, make_reader
from ...training.eval_frequency import CALLBACK, Evaluations, read_evaluations
from ..components import get_component
from ..config.initial_config import make_loss, parse_losses
from ..config.loading import open_config, with_reading
from ..config.trainable import FACTORY, can_be_fitted
from ..config.unknown_settings import check_overrides, check_settings
from ..evaluation.recurrence import KnownText, note_recurrence, units_of_docs
from ..executors import (
    Ended,
    Failed,
    MakeExecutor,
    Run,
    fingerprint,
    import_once,
    local_processes,
    remembered,
    run_all,
)
from .fitting import train_pipeline

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

UNTRAINED = "the best model was not trained past the first step"
"""Says why a loss has no scores."""


@dataclass(frozen=True)
class Measure:
    """How all variants are scored."""

    component: str  # the name of the component
    scheme: str  # the tag scheme
    cost: dict[str, Any]  # the block of the cost
    test_path: str  # the test corpus
    file_tokens: bool  # see `compare`
    reading: dict[str, Any]  # the settings of its reader


class Variant(NamedTuple):
    """A config with one loss, one value of each swept setting, and one seed."""

    loss: str  # the name of the loss, followed by the values, such as "Sequential L2=0.1"
    seed: int
    config: Config  # with variables filled in
    measure: Measure
    path: Path  # the folder of the variant


class Finished(NamedTuple):
    """A variant that is trained and evaluated."""

    loss: str  # see `Variant`
    seed: int
    seconds: float  # how long training took
    counts: DocCounts  # the counts of its predictions on the test corpus
    is_trained: bool = True  # whether the best model was trained past the first step
    units: Sequence[int] = ()  # the unit of each test doc: see `Predicted`
    notes: Sequence[str] = ()  # which texts of the test corpus recur

    def columns(self) -> FloatsXd:
        """The counts of each of the D test docs, of which `scores_of` computes scores. The columns
        are those of `DocCounts` (entities that are correct, wrong and missed; the cost; the
        tokens), then 1 if all entities of the doc are correct and 0 otherwise, then 1 for the doc
        itself. Shape: (D, C)"""
        is_exact = (self.counts.fp == 0) & (self.counts.fn == 0)
        columns = [*self.counts, is_exact, numpy.ones_like(is_exact)]
        return numpy.stack(columns, axis=-1).astype("float64")

    def f_score(self) -> float:
        """The F score on all test docs."""
        return float(scores_of(self.columns().sum(axis=0))["ents_f"])


class Predicted(NamedTuple):
    """The predictions of a variant for the test corpus.

    counts (list[list[float]]): The columns of `DocCounts`, each with a number for each doc.
    units (list[int]): The unit of each doc. Docs that are copies of each other are one unit of the
        bootstrap: see `units_of_docs`.
    notes (list[str]): Which texts of the docs recur: see `note_recurrence`.
    """

    counts: list[list[float]]
    units: list[int]
    notes: list[str]


class ScoredLoss(NamedTuple):
    """The scores of a loss. The keys are the names of scores: see `scores_of`."""

    by_seed: dict[str, list[float]]  # the score of each seed
    differences: dict[str, Difference]  # the difference from the first loss that has scores


class ComparedLoss(NamedTuple):
    """A row of the result: a loss with its scores. It has no scores if the best model of any seed
    is untrained.

    loss (str): The name of the loss, and the values of settings: see `Variant`.
    seconds (float): The mean training time.
    scores (dict[str, float]): The scores, averaged over seeds: see `scores_of`.
    by_seed (dict[str, list[float]]): The scores of each seed.
    differences (dict[str, Difference]): How each score differs from that of the first loss. Empty
        for the first loss, and if one of the two has no scores.
    untrained (list[int]): The seeds whose best model was not trained past the first step.
    notes (Sequence[str]): What may make the scores misleading: which texts of the test corpus
        recur.
    """

    loss: str
    seconds: float
    scores: dict[str, float]
    by_seed: dict[str, list[float]]
    differences: dict[str, Difference]
    untrained: list[int]
    notes: Sequence[str] = ()


def compare(
    config_path: Path,
    losses: Sequence[str | Path],
    test_path: Path,
    output_path: Path,
    *,
    seeds: Sequence[int] = (0,),
    overrides: Mapping[str, Any] = SimpleFrozenDict(),
    sweep: Mapping[str, Sequence[Any]] = SimpleFrozenDict(),
    n_samples: int = 10_000,
    file_tokens: bool = False,
    reading: ReadOptions = DEFAULTS,
    jobs: int = 1,
    use_gpu: int = -1,
    code_path: Path | None = None,
    make_executor: MakeExecutor | None = None,
    on_end: Callable[[str, Ended], None] | None = None,
) -> list[ComparedLoss]:
    """Train one config with several losses, or values of settings, and compare the scores: a row
    for each loss and combination of values. Variants that are finished in the output folder are
    not trained again.

    config_path (Path): The base config. If its scorer is `spacy_costner.cost_scorer.v1`, variants
        are scored by the cost of the scorer, and losses that are given by name have this cost, too.
        Otherwise variants are scored by the Hamming cost.
    losses (Sequence[str | Path]): The names of losses, or configs: the name of the file is
        the name of the loss, and its blocks replace those of the base config.
    test_path (Path): The test corpus.
    output_path (Path): The folder for the variants, `<loss>/seed-<seed>`, and `comparison.json`.
    seeds (Sequence[int]): Each variant is trained with each of them.
    overrides (Mapping[str, Any]): Settings for all variants, such as "paths.train".
    sweep (Mapping[str, Sequence[Any]]): Values of settings, such as
        {"components.ner.loss.multiplier": [0.5, 1]}. All combinations are tried with each loss.
    n_samples (int): Number of bootstrap samples.
    file_tokens (bool): Whether the test docs have the tokens and sentence starts of their file.
        Otherwise they are read as `spacy evaluate` does.
    reading (ReadOptions): How to read the corpora.
    jobs (int): Number of parallel trainings.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Path | None): Python file with registered functions to be imported.
    make_executor (MakeExecutor | None): Makes another executor: see `runs.run_all`.
    on_end (Callable[[str, Ended], None] | None): Called with the name and result of a variant.
    RETURNS (list[ComparedLoss]): The scores of each loss and combination of values.
    RAISES (ValueError): If there is nothing to train; if a config can't be read, has an unknown
        setting or doesn't fit the others; if a training would evaluate only its first step; after
        all others are finished, if a variant failed; or if no test doc is annotated.
    """
    if not losses and not sweep:
        raise ValueError("compare: losses and sweeps: expected at least 1, got 0")
    if not seeds:
        raise ValueError("compare: seeds: expected at least 1, got 0")
    unique_seeds = list(dict.fromkeys(seeds))
    # First, so that the settings of its functions are checked, too.
    import_once(code_path)
    variants = make_variants(
        config_path,
        losses,
        test_path,
        output_path,
        file_tokens=file_tokens,
        reading=reading,
        seeds=unique_seeds,
        overrides=overrides,
        sweep=sweep,
    )
    check_evaluations(variants)

    finished_variants = train_variants(
        variants,
        use_gpu=use_gpu,
        code_path=code_path,
        make_executor=make_executor or local_processes(jobs),
        on_end=on_end,
    )
    rows = summarise(finished_variants, n_samples=n_samples)
    record = {
        "config": str(config_path),
        "test": str(test_path),
        "overrides": dict(overrides),
        "sweep": {name: list(values) for name, values in sweep.items()},
        "seeds": unique_seeds,
        "samples": n_samples,
        "cost": variants[0].measure.cost,
        "losses": rows,
    }
    save_file(output_path / "comparison.json", partial(srsly.write_json, data=as_json(record)))
    return rows


def train_variants(
    variants: Sequence[Variant],
    *,
    use_gpu: int,
    code_path: Path | None,
    make_executor: MakeExecutor | None,
    on_end: Callable[[str, Ended], None] | None,
) -> list[Finished]:
    """Train and score all variants.

    variants (Sequence[Variant]): The variants.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Path | None): Python file with registered functions to be imported.
    make_executor (MakeExecutor | None): Makes the executor that trains them.
    on_end (Callable[[str, Ended], None] | None): Called with the name and result of a variant.
    RETURNS (list[Finished]): The results, in the order of the variants.
    RAISES (ValueError): If a variant fails. It is raised after all others are finished.
    """
    variant_of_run = {f"{variant.loss}, seed {variant.seed}": variant for variant in variants}
    runs: list[Run] = []
    for name, variant in variant_of_run.items():
        arguments = {"variant": variant, "use_gpu": use_gpu, "code_path": code_path}
        runs.append(Run(name, run_variant, arguments))
    finished_variants: dict[str, Finished] = {}
    failures: list[str] = []
    for run, ended in run_all(runs, make_executor):
        if isinstance(ended, Failed):
            failures.append(f"{run.name}: {ended.reason}")
            log_failure(variant_of_run[run.name], ended)
        else:
            finished_variants[run.name] = ended.value
        if on_end is not None:
            on_end(run.name, ended)
    if failures:
        summary = f"compare: {len(failures)} of {len(runs)} failed"
        raise ValueError("\n".join([summary, *failures]))
    return [finished_variants[name] for name in variant_of_run]


def log_failure(variant: Variant, failed: Failed) -> None:
    """Add the traceback of a variant to its log."""
    variant.path.mkdir(parents=True, exist_ok=True)
    with (variant.path / "log.txt").open("a", encoding="utf8") as log:
        log.write(failed.trace)


def read_seeds(text: str) -> list[int]:
    """Read the seeds of the command line: whole numbers, separated by commas.

    RAISES (ValueError): If they are something else.
    """
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        message = f"--seeds: expected whole numbers with commas between, got {text!r}"
        raise ValueError(message) from None


def check_evaluations(variants: Sequence[Variant]) -> None:
    """Check how often the trainings of variants would evaluate the model. There is a warning if it
    is less than once in an epoch.

    RAISES (ValueError): If it is only after the first step.
    """
    # All seeds of a loss have the same settings, so the config of the first seed is enough.
    config_of_loss: dict[str, Config] = {}
    for variant in variants:
        config_of_loss.setdefault(variant.loss, variant.config)

    # It takes a reading of the corpus to know how often. It is read once for all losses that have
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
    losses (Sequence[str | Path]): The names of losses, or configs whose blocks replace those of the
        base config. If there are none, the loss of the base config is trained.
    test_path (Path): The test corpus.
    output_path (Path): The folder for the variants.
    seeds (Sequence[int]): Each variant is trained with each of them.
    file_tokens (bool): Whether the test docs have the tokens and sentence starts of their file.
    reading (ReadOptions): How to read the corpora.
    overrides (Mapping[str, Any]): Settings for all variants, such as "paths.train".
    sweep (Mapping[str, Sequence[Any]]): Values of settings, by the names of the settings.
    RETURNS (list[Variant]): The variants.
    RAISES (ValueError): If a config can't be read, has an unknown setting, or doesn't fit the
        others.
    """
    base = open_config(config_path)
    check_overrides(base, overrides)
    check_settings(base, config_path)
    base = with_reading(base, reading)
    component = component_name(base, config_path)
    filled_in_base = fill_in(base, overrides)
    component_block = filled_in_base["components"][component]
    scorer = component_block.get("scorer")
    scorer_cost = None
    if scorer and scorer.get("@scorers") == COST_SCORER:
        scorer_cost = scorer["cost"]
    measure = Measure(
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

    # In the name of a variant, a setting is shown by the last part of its name, such as L2, unless
    # two settings have the same last part.
    shown_settings = [setting.rpartition(".")[2] for setting in sweep]
    if len(set(shown_settings)) < len(shown_settings):
        shown_settings = list(sweep)

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
        variants.append(Variant(name, seed, config, measure, path))
    return variants


def variant_name(loss: str, values: Mapping[str, Any]) -> str:
    """The name of a loss with the values of the swept settings, such as "Sequential L2=0.1".

    loss (str): The name of the loss; empty for the loss of the base config.
    values (Mapping[str, Any]): The values by the names of settings, as they are shown.
    """
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
    """Read what each loss changes in the base config.

    losses (Sequence[Path]): The losses. Each is the name of a loss, or a config.
    component (str): The name of the component that is trained.
    cost (dict[str, Any] | None): The block of the cost that named losses get. None: the Hamming
        cost.
    RETURNS (dict[str, dict[str, Any]]): The blocks of each loss, by the name of the loss.
    RAISES (ValueError): If two losses have the same name, there is no loss with a name, or a config
        can't be read or doesn't have the component.
    """
    changes: dict[str, dict[str, Any]] = {}
    for path in losses:
        # The stem of a loss that is no file is its name.
        if path.stem in changes:
            raise ValueError(f"{path}: expected files of different names, as they name the losses")
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
    """Read what the config of a loss changes in the base config: all of its [components], its
    [training] except `SAME_FOR_ALL`, and the callbacks in its [initialize], except one that says
    how often to evaluate.

    RAISES (ValueError): If the file isn't a config, or doesn't have the component.
    """
    config = open_config(path)
    if component not in config.get("components", {}):
        raise ValueError(f"{path}: expected a component {component!r}, as the config has it")
    training = config.get("training", {})
    initialize = config.get("initialize", {})
    # How often to evaluate is the same for all losses: the base config says it.
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


def run_variant(variant: Variant, use_gpu: int = -1, code_path: Path | None = None) -> Finished:
    """Train and score a variant. This is what a worker does. What an earlier run has left in the
    folder of the variant is not done again."""
    import_once(code_path)
    setup_gpu(use_gpu, silent=True)
    path = variant.path
    trained_key = key_of_training(variant.config, code_path)
    predicted_key = fingerprint(trained_key, asdict(variant.measure), Predicted._fields)
    seconds = remembered(
        path / "trained.json", trained_key, lambda: train_variant(variant, use_gpu)
    )
    predicted = Predicted(
        *remembered(path / "counts.json", predicted_key, lambda: count_predictions(variant))
    )

    # spaCy also evaluates the model after the first step, and that may be the best model. The saved
    # component says how many updates it had. If gradients are accumulated, several are one step.
    component_settings = srsly.read_json(path / "model-best" / variant.measure.component / "cfg")
    n_updates = component_settings["progress"]["steps"]
    updates_per_step = variant.config["training"].get("accumulate_gradient", 1)
    n_steps = n_updates // updates_per_step
    columns = [numpy.asarray(column) for column in predicted.counts]
    return Finished(
        loss=variant.loss,
        seed=variant.seed,
        seconds=seconds,
        counts=DocCounts(*columns),
        is_trained=n_steps >= 2,
        units=predicted.units,
        notes=predicted.notes,
    )


def key_of_training(config: Config, code_path: Path | None) -> str:
    """The fingerprint of what a trained pipeline depends on: the config, the files that it names,
    and the Python file with registered functions. `fingerprint` reads any file whose path it is
    given."""
    if code_path is None:
        return fingerprint(config)
    return fingerprint(config, str(code_path))


def train_variant(variant: Variant, use_gpu: int) -> float:
    """Train the pipeline of a variant, and save it in the folder of the variant. An older pipeline
    there is kept until the new one is complete.

    RETURNS (float): How many seconds training took.
    """
    # Remove what an interrupted training may have left.
    unfinished = variant.path / "training"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    variant.config.to_disk(variant.path / "config.cfg")
    begin = perf_counter()
    log_file = (variant.path / "log.txt").open("w", encoding="utf8")
    with log_file as log, phase(f"{variant.loss}, seed {variant.seed}"):
        trained_path = train_pipeline(variant.config, unfinished, log, use_gpu=use_gpu)
    seconds = perf_counter() - begin
    # The note that an older pipeline is trained is removed before that pipeline is replaced. So the
    # note never counts for the new pipeline, even if this process is killed in between.
    (variant.path / "trained.json").unlink(missing_ok=True)
    replace_folder(trained_path, variant.path / "model-best")
    shutil.rmtree(unfinished)
    return seconds


def count_predictions(variant: Variant) -> Predicted:
    """Predict the test corpus with the trained pipeline of a variant, and count its correct and
    wrong predictions in each doc.

    variant (Variant): The variant. Its `path` is the folder where it was trained.
    RETURNS (Predicted): The counts, as lists, which can be saved as JSON.
    """
    nlp = spacy.load(variant.path / "model-best")
    measure = variant.measure
    reader = make_reader(Path(measure.test_path), **measure.reading)
    examples = list(examples_to_measure(nlp, reader, file_tokens=measure.file_tokens))
    known = KnownText.of_component(nlp, get_component(nlp, measure.component))
    notes = note_recurrence(known, [eg.reference for eg in examples], measure.test_path)
    unpredicted_docs = [eg.predicted for eg in examples]
    for eg, predicted_doc in zip(examples, nlp.pipe(unpredicted_docs)):
        eg.predicted = predicted_doc

    # The config has the cost as a block. `resolve` makes objects of the blocks of a dictionary.
    cost = registry.resolve({"cost": measure.cost})["cost"]
    labels = nlp.pipe_labels.get(measure.component, ())
    counts = count_docs(examples, cost, labels=labels, scheme=measure.scheme)
    annotated = [eg.reference for eg in select_annotated(examples)]  # the docs of the counts
    return Predicted(
        counts=[column.tolist() for column in counts],
        units=units_of_docs(annotated).tolist(),
        notes=notes,
    )


def summarise(finished: Sequence[Finished], *, n_samples: int = 10_000) -> list[ComparedLoss]:
    """Average the scores of each loss over its seeds, and compare each loss with the first one.

    The bootstrap draws samples of docs, the same docs for all variants. Docs that are copies of
    each other are drawn together. The score of a sample is the mean over seeds, to which the spread
    over seeds is added: see `paired_differences`. A loss gets no scores if one of its models was
    not trained past the first step. If that is the first loss, there are no differences.

    finished (Sequence[Finished]): The results of all variants. All losses have the same seeds.
    n_samples (int): Number of bootstrap samples.
    RETURNS (list[ComparedLoss]): A row for each loss, in the order of its first variant.
    RAISES (ValueError): If no test doc is annotated.
    """
    runs_of_loss: dict[str, list[Finished]] = {}
    for run in finished:
        runs_of_loss.setdefault(run.loss, []).append(run)
    trained_runs: dict[str, list[Finished]] = {}
    for loss, runs in runs_of_loss.items():
        if all(run.is_trained for run in runs):
            trained_runs[loss] = runs
    scored_losses = score_losses(trained_runs, n_samples)
    first_loss = finished[0].loss

    rows: list[ComparedLoss] = []
    for loss, runs in runs_of_loss.items():
        scores_by_seed: dict[str, list[float]] = {}
        differences: dict[str, Difference] = {}
        if loss in scored_losses:
            scores_by_seed = scored_losses[loss].by_seed
            if loss != first_loss and first_loss in scored_losses:
                differences = scored_losses[loss].differences
        rows.append(
            ComparedLoss(
                loss,
                seconds=mean(run.seconds for run in runs),
                scores={name: float(numpy.mean(row)) for name, row in scores_by_seed.items()},
                by_seed=scores_by_seed,
                differences=differences,
                untrained=[run.seed for run in runs if not run.is_trained],
                notes=list(dict.fromkeys(note for run in runs for note in run.notes)),
            )
        )
    return rows


def score_losses(
    runs_of_loss: Mapping[str, Sequence[Finished]], n_samples: int
) -> dict[str, ScoredLoss]:
    """Score each loss with each seed, and compute the differences of each from the first of these
    losses.

    runs_of_loss (Mapping[str, Sequence[Finished]]): The trained variants of each loss, one for each
        seed.
    n_samples (int): Number of bootstrap samples.
    RETURNS (dict[str, ScoredLoss]): The scores by loss.
    RAISES (ValueError): If no test doc is annotated.
    """
    if not runs_of_loss:
        return {}
    # Shape of the counts of a loss: (S, D, C), for seeds, docs and what is counted
    counts_of_losses: list[FloatsXd] = []
    for runs in runs_of_loss.values():
        counts_of_losses.append(numpy.stack([run.columns() for run in runs]))
    counts = numpy.stack(counts_of_losses)  # shape: (L, S, D, C), for L losses
    n_docs = counts.shape[2]
    if n_docs == 0:
        raise ValueError("compare: test: expected docs with annotated entities, got none")
    scores = scores_of(counts.sum(axis=2))  # shape of each score: (L, S)

    def stack_scores(sums: FloatsXd) -> FloatsXd:
        """Stack all scores in one array. Shapes: (..., C) to (scores, ...)"""
        return numpy.stack(list(scores_of(sums).values()))

    # For each score a list of the differences of all losses from the first one
    counts_of_units = counts
    units = next(iter(runs_of_loss.values()))[0].units  # All variants have the same test docs.
    if units:
        # Sum the counts of the docs of each unit. Shapes for U units: (U, L, S, C), (L, S, U, C)
        by_doc = numpy.moveaxis(counts, 2, 0)
        by_unit = numpy.zeros((max(units) + 1, *by_doc.shape[1:]))
        numpy.add.at(by_unit, numpy.asarray(units), by_doc)
        counts_of_units = numpy.moveaxis(by_unit, 0, 2)
    differences = paired_differences(
        counts_of_units, stack_scores, n_samples=n_samples, with_seeds=True
    )
    scored_losses: dict[str, ScoredLoss] = {}
    for i, loss in enumerate(runs_of_loss):
        by_seed = {name: array[i].tolist() for name, array in scores.items()}
        from_first = {name: losses[i] for name, losses in zip(scores, differences)}
        scored_losses[loss] = ScoredLoss(by_seed, from_first)
    return scored_losses


def scores_of(sums: FloatsXd) -> dict[str, FloatsXd]:
    """Compute scores: F, precision and recall of entities, the mean cost of a token, and the share
    of docs whose predicted entities are exactly the annotated ones. A score is 0 if its denominator
    is 0.

    sums (FloatsXd): The counts of `Finished.columns`, summed over docs. Shape: (..., C)
    RETURNS (dict[str, FloatsXd]): The scores, by the names that spaCy and the cost scorer give
        them. Shape: (...)
    """
    tp, fp, fn, total_cost, n_tokens, n_exact, n_docs = numpy.moveaxis(sums, -1, 0)
    return {
        "ents_f": f_score(tp, fp, fn),
        "ents_p": precision(tp, fp),
        "ents_r": recall(tp, fn),
        "ents_cost": ratio(total_cost, n_tokens),
        "ents_sent_acc": ratio(n_exact, n_docs),
    }
