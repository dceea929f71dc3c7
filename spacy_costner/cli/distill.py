"""The command `distill`."""

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code, setup_gpu, show_validation_error
from typer import Argument, Option

from ..analysis.distillation import distill
from ..analysis.loading import read_config
from .command_line import command
from .options import CodeOption, GpuOption, read_overrides
from .output import JsonOption, errors_shown, print_result
from .tables import text_table


@command(
    distill,
    options={
        "min_confidence": Option("--min-confidence", min=0, max=1),
        "gold_path": Option("--gold", exists=True),
        "gold_weight": Option("--gold-weight", min=0),
        "n_seeds": Option("--seeds", min=1),
    },
)
def distill_cli(
    run: partial[Any],
    ctx: typer.Context,
    teacher: Annotated[
        str,
        Argument(help="Pipeline that sets doc.ents: a package or a folder; or its answers, JSONL"),
    ],
    config_path: Annotated[Path, Argument(help="Config of the student", exists=True)],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for answers and student")
    ],
    raw: Annotated[
        list[str] | None, Argument(help="Text: .txt, a doc per line, or a corpus of any format")
    ] = None,
    others: Annotated[
        list[str] | None, Option("--teacher", "-t", help="Another teacher. Repeatable")
    ] = None,
    *,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Distill a teacher, such as a transformer, into a student, such as a linear model: the teacher
    annotates text, and the student is trained on that. Answers are kept in the output folder, and
    a run that was interrupted goes on where it was. Override settings of the student as in
    `spacy train`, e.g. --paths.dev ./dev.spacy.
    """
    # Settings of the config, "--name value" or "--name=value", may stand among the texts.
    raw_paths, rest = [], iter([*(raw or ()), *ctx.args])
    ctx.args = []
    for argument in rest:
        if not argument.startswith("--"):
            raw_paths.append(Path(argument))
        else:
            ctx.args += [argument, *islice(rest, 0 if "=" in argument else 1)]
    overrides = read_overrides(ctx)
    setup_gpu(use_gpu, silent=True)
    import_code(code_path)
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        config = read_config(config_path, overrides)
        teachers = [teacher, *(others or ())]
        result = run(teachers, config, raw_paths, output_path)
    table = [["dev", "P", "R", "F", "tokens/s", "MB"]]
    for name, *scores, speed, size in result.rows:
        table.append([name, *(f"{100 * x:.2f}" for x in scores), f"{speed:,.0f}", f"{size:.1f}"])
    missing = f"; {result.n_missing:,} are missing, being uncertain" if result.n_missing else ""
    text = f"{result.n_docs:,} docs with {result.n_entities:,} entities of the teacher{missing}"
    print_result(result, f"{text}\n\n{text_table(table)}", print_json, result.path)
