"""Variants of one config: each loss, with each value of the swept settings, with each seed.

A loss is given as a short config of its own: its blocks take the place of those of the base
config.
"""

import json
import shutil
import warnings
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import (
    Annotated,
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

import numpy
import spacy
import srsly
import typer
from confection import SimpleFrozenDict
from spacy.cli._util import import_code, setup_gpu
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_config, registry
from srsly import json_loads
from thinc.api import Config
from thinc.types import Floats2d, FloatsXd
from typer import Argument, BadParameter, Option

from ..costs.tables import HAMMING
from ..metrics import (
    Difference,
    f_score,
    markdown_table,
    mean_and_deviation,
    paired_differences,
    precision,
    ratio,
    recall,
)
from ..pipeline.scorers import DocCounts, count_docs
from ..readers import make_reader
from ..saving import replace_folder, save_file
from ..settings import check_overrides, check_settings
from ..training.evaluation import CALLBACK, Evaluations, read_evaluations
from .options import AddressOption, CodeOption, GpuOption, read_overrides
from .output import JsonOption, errors_shown, print_result, stdout_for
from .runs import (
    Done,
    Ended,
    Failed,
    MakeExecutor,
    Run,
    fingerprint,
    local_processes,
    ray_cluster,
    remembered,
    run_all,
)

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


UNTRAINED = "the best model was not trained past the first step"


class Finished(NamedTuple):
    """A variant that is trained and evaluated.

    loss (str): The name of the loss.
    seed (int): The seed.
    seconds (float): Training time.
    counts (DocCounts): Correct and wrong predictions of each doc.
    is_trained (bool): Whether the best model was trained past the first step.
    """

    loss: str
    seed: int
    seconds: float
    counts: DocCounts
    is_trained: bool = True


class Row(NamedTuple):
    """The scores of a loss.

    loss (str): The name of the loss.
    seconds (float): Mean training time.
    scores (Dict[str, float]): The scores of `scores_of`, averaged over seeds. Empty if the loss
        has untrained seeds.
    by_seed (Dict[str, List[float]]): The scores of each seed.
    differences (Dict[str, Difference]): The differences from the first loss. Empty if one of the
        two has untrained seeds.
    untrained (List[int]): The seeds whose best model was not trained past the first step.
    """

    loss: str
    seconds: float
    scores: Dict[str, float]
    by_seed: Dict[str, List[float]]
    differences: Dict[str, Difference]
    untrained: List[int]

    def as_json(self) -> Dict[str, Any]:
        """The row as JSON."""
        differences = {name: found._asdict() for name, found in self.differences.items()}
        return {**self._asdict(), "differences": differences}


def summarise(finished: Sequence[Finished], *, n_samples: int = 10_000) -> List[Row]:
    """Average the scores of each loss over seeds, and compare each loss with the first.

    A loss with a model that was not trained past the first step gets no scores, and no
    differences from it are computed.

    finished (Sequence[Finished]): Variants, with the same seeds for each loss.
    n_samples (int): Number of bootstrap samples.
    RETURNS (List[Row]): A row for each loss, in the order in which they first come.
    RAISES (ValueError): If there was no doc to score.
    """
    untrained: Dict[str, List[int]] = {one.loss: [] for one in finished}
    for one in finished:
        untrained[one.loss] += [] if one.is_trained else [one.seed]
    rows_of = _score([one for one in finished if not untrained[one.loss]], n_samples)
    rows = []
    for loss, seeds in untrained.items():
        seconds = mean(one.seconds for one in finished if one.loss == loss)
        row = rows_of.get(loss, Row(loss, seconds, {}, {}, {}, seeds))
        rows.append(row if next(iter(untrained)) in rows_of else row._replace(differences={}))
    return rows


def _score(finished: Sequence[Finished], n_samples: int) -> Dict[str, Row]:
    """The rows of losses, compared with the first of them.

    The bootstrap samples docs, the same docs for all variants. The score of a sample is the
    mean over seeds.
    """
    losses = list(dict.fromkeys(one.loss for one in finished))
    if not losses:
        return {}
    of_loss = {loss: [one for one in finished if one.loss == loss] for loss in losses}
    # Shape: (L, S, D, C): losses, seeds, docs, and what is counted.
    counts = numpy.stack([[columns_of(one.counts) for one in of_loss[loss]] for loss in losses])
    if not counts.shape[2]:
        raise ValueError("compare: test: expected docs with annotated entities, got none")
    by_seed = scores_of(counts.sum(axis=2))
    differences = paired_differences(
        counts, lambda sums: numpy.stack([*scores_of(sums).values()]), n_samples=n_samples
    )
    return {
        loss: Row(
            loss=loss,
            seconds=mean(one.seconds for one in of_loss[loss]),
            scores={name: float(values[i].mean()) for name, values in by_seed.items()},
            by_seed={name: values[i].tolist() for name, values in by_seed.items()},
            differences={name: found[i] for name, found in zip(by_seed, differences)},
            untrained=[],
        )
        for i, loss in enumerate(losses)
    }


def columns_of(counts: DocCounts) -> Floats2d:
    """The counts that `scores_of` takes, for each doc. Shape: (D, C)"""
    exact = (counts.fp == 0) & (counts.fn == 0)
    return numpy.stack([*counts, exact, numpy.ones_like(exact)], axis=-1).astype("float64")


def scores_of(sums: FloatsXd) -> Dict[str, FloatsXd]:
    """Compute scores from counts: F, precision and recall of entities, mean cost of a token,
    and the share of docs with all entities correct and no others.

    sums (FloatsXd): Counts, summed over docs. Shape: (..., C)
    RETURNS (Dict[str, FloatsXd]): The scores by spaCy's and the cost scorer's names. 0 where
        the denominator is 0. Shape: (...)
    """
    right, wrong, missed, cost, tokens, exact, docs = numpy.moveaxis(sums, -1, 0)
    return {
        "ents_f": f_score(right, wrong, missed),
        "ents_p": precision(right, wrong),
        "ents_r": recall(right, missed),
        "ents_cost": ratio(cost, tokens),
        "ents_sent_acc": ratio(exact, docs),
    }


def table(rows: Sequence[Row]) -> str:
    """Write rows as a table, in Markdown.

    rows (Sequence[Row]): The rows.
    RETURNS (str): The table. All scores except the cost are in percent, followed by their
        standard deviation if there are several seeds. Below it, what is not in it, and why.
    """
    head = ["loss", "F", "P", "R", "cost", "sentences", "seconds", "p of F", "p of cost"]
    notes = [
        f"{row.loss}: {UNTRAINED}, with seed {', '.join(map(str, row.untrained))}: no scores, and "
        "no significance of differences from it"
        for row in rows
        if row.untrained
    ]
    return "\n".join([markdown_table(head, [_cells(row) for row in rows], align=True), *notes])


def _cells(row: Row) -> List[str]:
    if not row.scores:
        return [row.loss, *["-"] * 5, f"{row.seconds:.0f}", "-", "-"]
    percents = [
        mean_and_deviation([100 * value for value in row.by_seed[f"ents_{name}"]])
        for name in ("f", "p", "r", "sent_acc")
    ]
    cost = mean_and_deviation(row.by_seed["ents_cost"], 4)
    names = ("ents_f", "ents_cost")
    levels = [f"{row.differences[name].p:.4f}" if row.differences else "-" for name in names]
    return [row.loss, *percents[:3], cost, percents[3], f"{row.seconds:.0f}", *levels]


def compare(
    config_path: Path,
    loss_paths: Sequence[Path],
    test_path: Path,
    output_path: Path,
    *,
    seeds: Sequence[int] = (0,),
    overrides: Mapping[str, Any] = SimpleFrozenDict(),
    sweep: Mapping[str, Sequence[Any]] = SimpleFrozenDict(),
    n_samples: int = 10_000,
    jobs: int = 1,
    use_gpu: int = -1,
    code_path: Optional[Path] = None,
    make_executor: Optional[MakeExecutor] = None,
    on_end: Optional[Callable[[str, Ended], None]] = None,
    on_objection: Callable[[str], None] = warnings.warn,
) -> List[Row]:
    """Train one config with several losses, or values of settings, and compare the scores.

    Variants that are finished in the output folder are not trained again.

    config_path (Path): The base config. The cost of its scorer is used if that is
        `spacy_costner.cost_scorer.v1`, the Hamming cost otherwise.
    loss_paths (Sequence[Path]): A config for each loss. The file name is the name of the loss,
        and its blocks replace those of the base config: see `config_variants.put_onto`. May be
        empty if there is a sweep.
    test_path (Path): The corpus to score on, of any format.
    output_path (Path): The folder for the variants and for the rows, `comparison.json`.
    seeds (Sequence[int]): Each loss is trained with each seed.
    overrides (Mapping[str, Any]): Settings for all variants, such as "paths.train".
    sweep (Mapping[str, Sequence[Any]]): Values of settings, each tried with each loss: see
        `config_variants.make_variants`.
    n_samples (int): Number of bootstrap samples.
    jobs (int): Number of parallel trainings, each in a process of its own.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Optional[Path]): A Python file with registered functions to be imported.
    make_executor (Optional[MakeExecutor]): Makes the executor; `jobs` local processes if None:
        see `runs.run_all`.
    on_end (Optional[Callable[[str, Ended], None]]): Called with the name of each variant and its
        result, when it ends.
    on_objection (Callable[[str], None]): Called with a message for each loss whose training
        evaluates less than once in an epoch.
    RETURNS (List[Row]): A row for each loss and combination of values.
    RAISES (ValueError): If an argument is out of range, if the configs don't fit each other, if a
        training would evaluate only its first step or, after all others are finished, if a
        variant failed.
    """
    n_variants = len(loss_paths) + len(sweep)
    sizes = {
        "losses and swept settings": n_variants,
        "seeds": len(seeds),
        "samples": n_samples,
        "jobs": jobs,
    }
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"compare: {name}: expected at least 1, got {size}")
    seeds = list(dict.fromkeys(seeds))
    tried: Dict[str, Any] = {"seeds": seeds, "overrides": overrides, "sweep": sweep}
    variants = make_variants(config_path, loss_paths, test_path, output_path, **tried)
    ended: Dict[str, Ended] = {}
    import_once(code_path)
    object_to_evaluations(variants, on_objection)
    settings: Dict[str, Any] = {"jobs": jobs, "use_gpu": use_gpu, "code_path": code_path}
    for name, end in run_variants(variants, make_executor=make_executor, **settings):
        ended[name] = end
        if on_end is not None:
            on_end(name, end)
    finished = all_finished({variant.name: ended[variant.name] for variant in variants})
    rows = summarise(finished, n_samples=n_samples)
    record = {
        "config": str(config_path),
        "test": str(test_path),
        "overrides": dict(overrides),
        "sweep": {name: list(values) for name, values in sweep.items()},
        "seeds": seeds,
        "samples": n_samples,
        "cost": variants[0].measure.cost,
        "losses": [row.as_json() for row in rows],
    }
    save_file(output_path / "comparison.json", partial(srsly.write_json, data=record))
    return rows


def run_variants(
    variants: Sequence[Variant],
    *,
    jobs: int = 1,
    use_gpu: int = -1,
    code_path: Optional[Path] = None,
    make_executor: Optional[MakeExecutor] = None,
) -> Iterator[Tuple[str, Ended]]:
    """Train and score variants. One that fails doesn't stop the others.

    variants (Sequence[Variant]): The variants.
    jobs (int): Number of parallel trainings; with more than 1 each has its own process.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Optional[Path]): A Python file with registered functions to be imported.
    make_executor (Optional[MakeExecutor]): Makes the executor; `jobs` local processes if None:
        see `runs.run_all`.
    YIELDS (Tuple[str, Ended]): The names of the variants and their results, each a `Finished`, in
        the order in which they end. A traceback is in the variant's `log.txt`, too.
    """
    settings = {"use_gpu": use_gpu, "code_path": code_path}
    runs = [Run(one.name, run_variant, {"variant": one, **settings}) for one in variants]
    for run, ended in run_all(runs, make_executor or local_processes(jobs)):
        if isinstance(ended, Failed):
            folder = run.settings["variant"].path
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "log.txt").open("a", encoding="utf8") as log:
                log.write(ended.trace)
        yield run.name, ended


def run_variant(variant: Variant, use_gpu: int = -1, code_path: Optional[Path] = None) -> Finished:
    """Train and score a variant, or read what was kept of it.

    variant (Variant): The variant.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Optional[Path]): A Python file with registered functions to be imported.
    RETURNS (Finished): Its training time and counts.
    """
    import_once(code_path)
    setup_gpu(use_gpu, silent=True)
    seconds = remembered(
        variant.path / "trained.json",
        fingerprint(variant.config),
        lambda: train_variant(variant, use_gpu),
    )
    counts = remembered(
        variant.path / "counts.json",
        fingerprint(variant.config, variant.measure),
        lambda: [column.tolist() for column in count_predictions(variant)],
    )
    columns = DocCounts(*map(numpy.asarray, counts))
    return Finished(variant.loss, variant.seed, seconds, columns, is_trained(variant))


import_once = lru_cache(import_code)
"""Imports the functions of a file once in each process."""


def train_variant(variant: Variant, use_gpu: int) -> float:
    """Train a pipeline. An older one is kept until the new one is complete.

    RETURNS (float): Training time in seconds.
    """
    work = variant.path / "training"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    variant.config.to_disk(variant.path / "config.cfg")
    begin = perf_counter()
    with (variant.path / "log.txt").open("w", encoding="utf8") as log:
        nlp = init_nlp(variant.config, use_gpu=use_gpu)
        train(nlp, work, use_gpu=use_gpu, stdout=log, stderr=log)
    seconds = perf_counter() - begin
    (variant.path / "trained.json").unlink(missing_ok=True)
    replace_folder(work / "model-best", variant.path / "model-best")
    shutil.rmtree(work)
    return seconds


def count_predictions(variant: Variant) -> DocCounts:
    """Count the correct and wrong predictions of a variant on the test corpus."""
    nlp = spacy.load(variant.path / "model-best")
    component, scheme, cost, test_path = variant.measure
    examples = list(make_reader(Path(test_path))(nlp))
    for eg, doc in zip(examples, nlp.pipe([eg.predicted for eg in examples])):
        eg.predicted = doc
    return count_docs(
        examples,
        registry.resolve({"cost": cost})["cost"],
        labels=nlp.pipe_labels.get(component, ()),
        scheme=scheme,
    )


def all_finished(ended: Mapping[str, Ended]) -> List[Finished]:
    """Check that no variant failed.

    RAISES (ValueError): If one did.
    """
    failed = [f"{name}: {end.reason}" for name, end in ended.items() if isinstance(end, Failed)]
    if failed:
        raise ValueError("\n".join([f"compare: {len(failed)} of {len(ended)} failed", *failed]))
    return [end.value for end in ended.values() if isinstance(end, Done)]


def describe(name: str, ended: Ended) -> str:
    """Describe the result of a variant in a line."""
    if isinstance(ended, Failed):
        return f"{name}: failed"
    found: Finished = ended.value
    if not found.is_trained:
        return f"{name}: {UNTRAINED}, {found.seconds:.0f} s"
    f = float(scores_of(columns_of(found.counts).sum(axis=0))["ents_f"])
    return f"{name}: F {100 * f:.2f}, {found.seconds:.0f} s"


GO_ON = "Finished trainings are kept: run the same command again to continue."


def compare_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, Argument(help="Base config", exists=True)],
    test_path: Annotated[
        Path, Option("--test", "-t", help="Test corpus: see `costner convert`", exists=True)
    ],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for pipelines and results")
    ],
    losses: Annotated[
        str, Option("--losses", "-l", help="Comma-separated paths of configs, one per loss")
    ] = "",
    sweeps: Annotated[
        List[str],
        Option("--sweep", help="Values to try, as section.setting=1,2; repeat for combinations"),
    ] = [],  # noqa: B006
    seeds: Annotated[str, Option("--seeds", "-s", help="Comma-separated random seeds")] = "0",
    n_samples: Annotated[int, Option("--samples", help="Number of bootstrap samples")] = 10_000,
    jobs: Annotated[int, Option("--jobs", "-j", help="Number of parallel trainings")] = 1,
    address: AddressOption = None,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Train a config with several losses, or several values of any settings, and compare their
    scores. All get the same data, training budget and seeds. Each loss is given as a config:
    its [components] and [training] settings replace those of the base config. Override
    settings of all variants as in `spacy train`, e.g. --paths.train ./train.spacy. Finished
    trainings are kept in the output folder and not repeated.

    The last two columns are p-values of the differences in F and in cost from the first
    row (paired bootstrap over docs, two-sided).
    """
    with errors_shown(GO_ON), stdout_for(address):
        rows = compare(
            config_path,
            [Path(path.strip()) for path in losses.split(",") if path.strip()],
            test_path,
            output_path,
            seeds=[int(seed) for seed in seeds.split(",")],
            overrides=read_overrides(ctx),
            sweep=dict(_read_sweep(text) for text in sweeps),
            n_samples=n_samples,
            jobs=jobs,
            use_gpu=use_gpu,
            code_path=code_path,
            make_executor=ray_cluster(address, use_gpu),
            on_end=lambda name, ended: typer.echo(describe(name, ended), err=print_json),
            on_objection=partial(typer.echo, err=True),
        )
    result = {"losses": [row.as_json() for row in rows]}
    print_result(result, f"\n{table(rows)}\n", print_json, output_path / "comparison.json")


def _read_sweep(text: str) -> Tuple[str, List[Any]]:
    """Read the values of a setting: JSON, separated by commas, or else text."""
    setting, equals, values = (part.strip() for part in text.partition("="))
    if not (equals and values and "." in setting):
        raise BadParameter(f"--sweep: expected section.setting=value,value, got {text!r}")
    try:
        return setting, json_loads(f"[{values}]")
    except ValueError:
        return setting, [value.strip() for value in values.split(",")]
