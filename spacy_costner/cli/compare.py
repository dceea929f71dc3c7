"""`python -m spacy costner compare`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, List, Tuple

import typer
from srsly import json_loads
from typer import Argument, BadParameter, Option

from ..commands.compare import compare, describe
from ..commands.comparison import table
from ..commands.ray_executor import ray_cluster
from .options import AddressOption, CodeOption, GpuOption, read_overrides
from .output import JsonOption, errors_shown, print_result, stdout_for

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
