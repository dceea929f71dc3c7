"""Train one config with several losses, values of settings and seeds, and compare the scores.

A variant is the config with one loss, one seed and, if values of settings are tried (a sweep), one
value of each of these settings. Each variant is trained and evaluated in its own folder, where a
later run finds it. The variants that differ only in their seed make a row of the result, which is
named by the loss and the values.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import srsly
from confection import SimpleFrozenDict

from ...files.saving import as_json, save_file
from ...readers import DEFAULTS, ReadOptions
from ..executors import local_processes
from ..runs import Ended, MakeExecutor, import_once
from .variant_runs import train_variants
from .variant_scores import ComparedLoss, summarise
from .variants import check_evaluations, make_variants


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
        the name of the loss, and its blocks replace the blocks of the base config.
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
    make_executor (MakeExecutor | None): Makes another executor: see `executors.run_all`.
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
        "cost": variants[0].scoring.cost,
        "losses": rows,
    }
    save_file(output_path / "comparison.json", partial(srsly.write_json, data=as_json(record)))
    return rows
