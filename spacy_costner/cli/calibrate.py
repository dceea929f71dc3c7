"""`python -m spacy costner calibrate`."""

from typing import Annotated

import typer
from typer import Option

from ..commands.calibrate import Calibration, calibrate
from ..metrics import text_table
from ..saving import check_folder, save_folder
from .options import (
    CodeOption,
    DevArg,
    GpuOption,
    ModelArg,
    NameOption,
    OutputOption,
    errors_shown,
    load,
)


def calibrate_cli(
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    per_label: Annotated[
        bool, Option("--per-label", help="Fit a temperature for each label")
    ] = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Calibrate confidences, so that about 70 % of the entities with confidence 0.7 are correct.
    Fits a temperature on development docs, which should not be training docs. Predictions of
    Viterbi decoding don't change.
    """
    with errors_shown():
        check_folder(output_path)
        nlp, examples = load(model, dev_path, use_gpu, code_path)
        result = calibrate(nlp, examples, name=name, per_label=per_label, source=str(dev_path))
        save_folder(output_path, nlp.to_disk)
    show(result)
    typer.echo(f"Saved to {output_path}")


def show(result: Calibration) -> None:
    """Print the temperatures, and confidence compared with precision."""
    typer.echo(f"temperature: {result.temperature.overall:.3f}")
    for label, temperature in result.temperature.labels.items():
        typer.echo(f"  {label}: {temperature:.3f}")
    rows = [
        [
            f"{row['from']:.1f} to {row['to']:.1f}",
            row["n"],
            f"{row['confidence']:.3f}",
            f"{row['right']:.3f}",
        ]
        for row in result.reliability
        if row["n"]
    ]
    typer.echo("\n" + text_table([["confidence", "entities", "mean", "precision"], *rows]))
    typer.echo(
        f"\nexpected calibration error: {result.error:.4f}, before: {result.error_before:.4f}"
    )
