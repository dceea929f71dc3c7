"""Train a config with several losses, settings and seeds, and compare the scores.

A variant is the config with one loss, one seed and, in a sweep, one value of each swept setting.
Each variant is trained and evaluated in a separate folder, where later runs can reuse its results.
Variants that only differ in their seed form a row of the result, which is named after the loss and
the values.
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
from .variants import check_evaluations, check_schedules, make_variants


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
    """Train a config with several losses or settings, and compare the scores. The result contains a
    row for each loss and combination of values. Variants that are already finished in the output
    folder aren't trained again.

    config_path (Path): The base config. If its scorer is `spacy_costner.cost_scorer.v1`, the
        scorer's cost is used to score variants, and for losses specified by name. Otherwise, the
        Hamming cost is used.
    losses (Sequence[str | Path]): The names of losses, or config files whose blocks replace blocks
        of the base config. A loss in a config file is named after the file.
    test_path (Path): The test corpus.
    output_path (Path): The folder for the variants, `<loss>/seed-<seed>`, and `comparison.json`.
    seeds (Sequence[int]): The random seeds. Each variant is trained with each seed.
    overrides (Mapping[str, Any]): Settings for all variants, e.g. "paths.train".
    sweep (Mapping[str, Sequence[Any]]): Values of settings, e.g. {"components.ner.loss.multiplier":
        [0.5, 1]}. All combinations are trained with each loss.
    n_samples (int): Number of bootstrap samples.
    file_tokens (bool): Whether to use the tokens and sentence starts of the test file. Otherwise,
        the test docs are read as in `spacy evaluate`.
    reading (ReadOptions): Options for reading the corpora.
    jobs (int): Number of training runs in parallel.
    use_gpu (int): GPU ID, or -1 for CPU.
    code_path (Path | None): Python file with registered functions to import.
    make_executor (MakeExecutor | None): Function that creates a custom executor: see
        `runs.run_all`.
    on_end (Callable[[str, Ended], None] | None): Callback that receives the name and result of each
        variant.
    RETURNS (list[ComparedLoss]): The scores of each loss and combination of values.
    RAISES (ValueError): If there is nothing to train; if a config can't be read, contains an
        unknown setting or isn't compatible with the others; if training would end before the last
        loss of a schedule begins; if a model would only be evaluated after its first step; if a
        variant fails (raised after all others have finished); or if no test doc is annotated.
    """
    if not losses and not sweep:
        raise ValueError("compare: losses and sweeps: expected at least 1, got 0")
    if not seeds:
        raise ValueError("compare: seeds: expected at least 1, got 0")
    unique_seeds = list(dict.fromkeys(seeds))
    # Import the code first, so that the settings of its functions can be checked.
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
    check_schedules(variants)
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
