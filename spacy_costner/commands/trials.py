"""Trainings of one config with several losses: what is trained, and what comes of it.

What a loss is, is said by a config, a short one: its blocks take the place of those of the
config to start from. spaCy does the training. Each trial has a folder of its own:

    config.cfg     what was trained
    log.txt        spaCy's training table or, if it failed, why
    training       the pipeline while it is trained
    model-best     the pipeline
    trained.json   that training came to its end, and the seconds that it took
    counts.json    what the pipeline gets right and wrong in each doc

What is there already is used as long as the config and the files that it names are the
same. So trials that were stopped go on where they were.
"""

import shutil
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

import numpy
import spacy
from spacy.cli._util import import_code, setup_gpu
from spacy.training import Corpus
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import load_config, registry
from thinc.api import Config

from ..pipeline.scorers import DocCounts, count_docs
from ..saving import replace_folder
from ..settings import check_overrides, check_settings
from .runs import Failed as RunFailed
from .runs import (
    MakeExecutor,
    Run,
    fingerprint,
    local_processes,
    remembered,
    run_all,
)

FACTORY = "cost_sensitive_ner"
COST_SCORER = "spacy_costner.cost_scorer.v1"
HAMMING = {"@misc": "spacy_costner.HammingCost.v1"}
SAME_FOR_ALL = frozenset(
    [
        *("seed", "gpu_allocator", "train_corpus", "dev_corpus"),
        *("max_steps", "max_epochs", "patience", "eval_frequency"),
    ]
)
"""Settings of [training] in which a loss has no say: where, on what, and for how long."""

CALLBACKS = ("before_init", "after_init")


class Measure(NamedTuple):
    """What answers are measured by, the same for all losses.

    component (str): The name of the component.
    scheme (str): The tag scheme that the cost is of.
    cost (Dict[str, Any]): The block of the cost.
    test_path (str): The corpus: a .spacy file or a folder of them.
    """

    component: str
    scheme: str
    cost: Dict[str, Any]
    test_path: str


class Trial(NamedTuple):
    """A training to do.

    loss (str): The name of the loss.
    seed (int): The seed.
    config (Config): The config, its variables filled in.
    measure (Measure): What the answers are measured by.
    path (Path): The folder.
    """

    loss: str
    seed: int
    config: Config
    measure: Measure
    path: Path


class Finished(NamedTuple):
    """What came of a trial.

    loss (str): The name of the loss.
    seed (int): The seed.
    seconds (float): How long training took.
    counts (DocCounts): What is right and wrong in each doc.
    """

    loss: str
    seed: int
    seconds: float
    counts: DocCounts


class Failed(NamedTuple):
    """A trial that didn't come to its end, and why."""

    loss: str
    seed: int
    reason: str


Outcome = Union[Finished, Failed]


def plan(
    config_path: Path,
    loss_paths: Sequence[Path],
    test_path: Path,
    output_path: Path,
    *,
    seeds: Sequence[int],
    overrides: Mapping[str, Any],
) -> List[Trial]:
    """Make a trial of each loss with each seed.

    config_path (Path): The config to start from. If its scorer is
        `spacy_costner.cost_scorer.v1`, that says what mistakes cost; else each wrong tag 1.
    loss_paths (Sequence[Path]): A config for each loss, which is named as its file.
    test_path (Path): The corpus to score on.
    output_path (Path): The folder of the trials' folders, `<loss>/seed-<seed>`.
    seeds (Sequence[int]): The seeds.
    overrides (Mapping[str, Any]): Settings that hold for all, such as "paths.train".
    RETURNS (List[Trial]): The trials: all losses with the first seed, then with the next.
    RAISES (ValueError): If the configs don't go together.
    """
    base = load_config(config_path, interpolate=False)
    check_overrides(base, overrides)
    check_settings(base, config_path)
    component = component_name(base, config_path)
    measure = what_to_measure(fill_in(base, overrides), component, test_path)
    losses = read_losses(loss_paths, component)
    trials = []
    for seed in seeds:
        for loss, changes in losses.items():
            seeded = put_onto(put_onto(base, changes), _seed(seed))
            path = output_path / loss / f"seed-{seed}"
            config = fill_in(seeded, overrides)
            check_settings(config, loss)
            trials.append(Trial(loss, seed, config, measure, path))
    return trials


def component_name(config: Config, path: Path) -> str:
    """The name of the one component of our factory in a config.

    RAISES (ValueError): If there is none or more than one.
    """
    blocks = config.get("components", {}).items()
    names = [name for name, block in blocks if block.get("factory") == FACTORY]
    if len(names) != 1:
        raise ValueError(f"{path}: expected one component of factory {FACTORY!r}, found: {names}")
    return names[0]


def what_to_measure(config: Config, component: str, test_path: Path) -> Measure:
    """Read from a config what answers are measured by."""
    block = config["components"][component]
    scorer = block.get("scorer") or {}
    cost = scorer["cost"] if scorer.get("@scorers") == COST_SCORER else HAMMING
    return Measure(component, block.get("scheme", "BILUO"), cost, str(test_path))


def read_losses(paths: Sequence[Path], component: str) -> Dict[str, Dict[str, Any]]:
    """Read what is to be put onto a config for each loss.

    paths (Sequence[Path]): A config for each.
    component (str): The name of the component.
    RETURNS (Dict[str, Dict[str, Any]]): By the name of the file, its blocks of components,
        of training without budget and corpora, and the callbacks of initialization.
    RAISES (ValueError): If two files have one name, or one has no such component.
    """
    losses: Dict[str, Dict[str, Any]] = {}
    for path in paths:
        config = load_config(path, interpolate=False)
        if path.stem in losses:
            raise ValueError(f"{path}: expected files of different names, as they name the losses")
        if component not in config.get("components", {}):
            raise ValueError(f"{path}: expected a component {component!r}, as the config has it")
        training, initialize = config.get("training", {}), config.get("initialize", {})
        losses[path.stem] = {
            "components": config["components"],
            "training": {name: training[name] for name in training if name not in SAME_FOR_ALL},
            "initialize": {name: initialize[name] for name in CALLBACKS if name in initialize},
        }
    return losses


def put_onto(config: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """Put blocks in the place of those of a config.

    A block that names a registered function, or another factory, takes the place of the
    whole block; of other blocks only the settings do that are named.

    config (Mapping[str, Any]): The config; it stays as it is.
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
    """Whether a block has nothing to do with the one in its place."""
    names_function = any(name.startswith("@") for name in block)
    return names_function or block.get("factory", there.get("factory")) != there.get("factory")


def _seed(seed: int) -> Dict[str, Dict[str, int]]:
    return {"system": {"seed": seed}, "training": {"seed": seed}}


def fill_in(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Fill in variables, and settings of the command line.

    RAISES (ConfigValidationError): If the section of a setting isn't there.
    """
    return Config().from_str(config.to_str(interpolate=False), overrides=dict(overrides))


def run_trials(
    trials: Sequence[Trial],
    *,
    jobs: int = 1,
    use_gpu: int = -1,
    code_path: Optional[Path] = None,
    make_executor: Optional[MakeExecutor] = None,
) -> Iterator[Outcome]:
    """Train and score. A trial that fails doesn't stop the others.

    trials (Sequence[Trial]): The trials.
    jobs (int): How many go side by side; more than one in processes of their own.
    use_gpu (int): The GPU, or -1.
    code_path (Optional[Path]): A Python file that registers further functions.
    make_executor (Optional[MakeExecutor]): Starts the executor, if it isn't to be `jobs` local
        processes: see `runs.run_all`.
    YIELDS (Outcome): What comes of them, one after another as they end. Why one failed is in its
        `log.txt`, too.
    """
    settings = {"use_gpu": use_gpu, "code_path": code_path}
    runs = [Run(f"{t.loss}/seed-{t.seed}", run_trial, {"trial": t, **settings}) for t in trials]
    for run, ended in run_all(runs, make_executor or local_processes(jobs)):
        trial = run.settings["trial"]
        if isinstance(ended, RunFailed):
            trial.path.mkdir(parents=True, exist_ok=True)
            with (trial.path / "log.txt").open("a", encoding="utf8") as log:
                log.write(ended.trace)
            yield Failed(trial.loss, trial.seed, ended.reason)
        else:
            yield ended.value


def run_trial(trial: Trial, use_gpu: int = -1, code_path: Optional[Path] = None) -> Finished:
    """Train and score, as far as that isn't done yet.

    trial (Trial): The trial.
    use_gpu (int): The GPU, or -1.
    code_path (Optional[Path]): A Python file that registers further functions.
    RETURNS (Finished): What came of it.
    """
    import_once(code_path)
    setup_gpu(use_gpu, silent=True)
    seconds = remembered(
        trial.path / "trained.json",
        fingerprint(trial.config),
        lambda: train_trial(trial, use_gpu),
    )
    counts = remembered(
        trial.path / "counts.json",
        fingerprint(trial.config, trial.measure),
        lambda: [column.tolist() for column in count_answers(trial)],
    )
    return Finished(trial.loss, trial.seed, seconds, DocCounts(*map(numpy.asarray, counts)))


import_once = lru_cache(import_code)
"""Registers the functions of a file, once in each process."""


def train_trial(trial: Trial, use_gpu: int) -> float:
    """Train a pipeline. An older one stays until the new one is whole.

    RETURNS (float): The seconds that it took.
    """
    work = trial.path / "training"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    trial.config.to_disk(trial.path / "config.cfg")
    begin = perf_counter()
    with (trial.path / "log.txt").open("w", encoding="utf8") as log:
        nlp = init_nlp(trial.config, use_gpu=use_gpu)
        train(nlp, work, use_gpu=use_gpu, stdout=log, stderr=log)
    seconds = perf_counter() - begin
    (trial.path / "trained.json").unlink(missing_ok=True)
    replace_folder(work / "model-best", trial.path / "model-best")
    shutil.rmtree(work)
    return seconds


def count_answers(trial: Trial) -> DocCounts:
    """Count what the pipeline of a trial gets right and wrong."""
    nlp = spacy.load(trial.path / "model-best")
    component, scheme, cost, test_path = trial.measure
    examples = list(Corpus(test_path)(nlp))
    for eg, doc in zip(examples, nlp.pipe([eg.predicted for eg in examples])):
        eg.predicted = doc
    return count_docs(
        examples,
        registry.resolve({"cost": cost})["cost"],
        labels=nlp.pipe_labels.get(component, ()),
        scheme=scheme,
    )
