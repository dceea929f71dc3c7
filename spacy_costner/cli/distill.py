"""`python -m spacy costner distill`."""

from itertools import islice
from pathlib import Path
from typing import Annotated, List, Optional, Tuple

import typer
from spacy.cli._util import import_code, setup_gpu, show_validation_error
from spacy.util import load_config
from typer import Argument, Option

from ..commands.distill import Distilled, Options, distill
from ..metrics import text_table
from ..progress import progress
from ..settings import check_overrides
from .options import CodeOption, GpuOption, read_overrides
from .output import JsonOption, errors_shown, print_result


def distill_cli(
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
        Optional[List[str]], Argument(help="Text: .txt, a doc per line, or a corpus of any format")
    ] = None,
    others: Annotated[
        Optional[List[str]], Option("--teacher", "-t", help="Another teacher. Repeatable")
    ] = None,
    soft: Annotated[
        bool, Option("--soft", help="Learn the probabilities of the teachers, not their entities")
    ] = False,
    min_confidence: Annotated[
        float,
        Option("--min-confidence", help="Less certain entities are missing, not O", min=0, max=1),
    ] = 0.0,
    gold_path: Annotated[
        Optional[Path], Option("--gold", help="Annotated corpus to learn from, too", exists=True)
    ] = None,
    gold_weight: Annotated[float, Option("--gold-weight", help="Its docs' weight", min=0)] = 1.0,
    n_seeds: Annotated[
        int, Option("--seeds", help="Train a linear student so many times: see `fit`", min=1)
    ] = 1,
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
    raw_paths, ctx.args = split_overrides([*(raw or ()), *ctx.args])
    overrides = read_overrides(ctx)
    setup_gpu(use_gpu, silent=True)
    import_code(code_path)
    options = Options(soft, min_confidence, gold_path, gold_weight, n_seeds)
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        check_overrides(load_config(config_path, interpolate=False), overrides)
        config = load_config(config_path, overrides=overrides, interpolate=False)
        with progress(desc="teacher", unit="doc") as bar:
            teachers = [teacher, *(others or ())]
            result = distill(
                teachers, config, raw_paths, output_path, options, on_answers=bar.update
            )
    print_result(result, describe(result), print_json, result.path)


def split_overrides(arguments: List[str]) -> Tuple[List[Path], List[str]]:
    """Paths, and settings of the config: "--name value" or "--name=value"."""
    paths: List[Path] = []
    settings: List[str] = []
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("--"):
            paths.append(Path(argument))
        elif "=" in argument:
            settings.append(argument)
        else:
            settings += [argument, *islice(rest, 1)]
    return paths, settings


def describe(result: Distilled) -> str:
    """The result as text, with a table."""
    rows = [
        [
            row.name,
            *(f"{100 * value:.2f}" for value in row[1:4]),
            f"{row.tokens_per_second:,.0f}",
            f"{row.megabytes:.1f}",
        ]
        for row in result.rows
    ]
    missing = f"; {result.n_missing:,} are missing, being uncertain" if result.n_missing else ""
    return (
        f"{result.n_docs:,} docs with {result.n_entities:,} entities of the teacher{missing}\n\n"
        + text_table([["dev", "P", "R", "F", "tokens/s", "MB"], *rows])
    )
