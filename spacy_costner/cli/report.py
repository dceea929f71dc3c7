"""`python -m spacy costner report`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ..commands.plots import require_matplotlib
from ..commands.report import gather, page
from ..saving import check_file, save_file
from .options import CodeOption, GpuOption, ModelArg, NameOption, load
from .output import errors_shown


def report_cli(
    model: ModelArg,
    test_path: Annotated[Path, Argument(help="Test corpus: see `costner convert`", exists=True)],
    output_path: Annotated[Path, Option("--output", "-o", help="Output HTML file")],
    name: NameOption = "ner",
    n_mistakes: Annotated[
        int, Option("--mistakes", "-n", help="Number of mistakes to show, costliest first", min=0)
    ] = 20,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Write an HTML report of a pipeline on a test corpus: scores by label and by level of the
    label tree, the precision-recall curve, calibration, the confusion matrix by cost, the
    costliest mistakes in their sentences, and the transition weights. The file is
    self-contained.
    """
    with errors_shown():
        check_file(output_path, [model, test_path])
        require_matplotlib()
        nlp, examples = load(model, test_path, use_gpu, code_path)
        found = gather(
            nlp, examples, name=name, source=model, corpus=str(test_path), n_mistakes=n_mistakes
        )
        save_file(output_path, partial(Path.write_text, data=page(found), encoding="utf8"))
    typer.echo(f"Written to {output_path}")
