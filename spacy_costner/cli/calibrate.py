"""`python -m spacy costner calibrate`."""

from typing import Annotated

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
    load,
)
from .output import JsonOption, errors_shown, print_result


def calibrate_cli(
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    per_label: Annotated[
        bool, Option("--per-label", help="Fit a temperature for each label")
    ] = False,
    print_json: JsonOption = False,
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
    print_result(result, describe(result), print_json, output_path)


def describe(result: Calibration) -> str:
    """The temperatures, and confidence compared with the share of entities that are right."""
    rows = [
        [f"{row['from']:.1f} to {row['to']:.1f}", row["n"], row["confidence"], row["right"]]
        for row in result.reliability
        if row["n"]
    ]
    labels = [f"  {label}: {t:.3f}" for label, t in result.temperature.labels.items()]
    table = text_table([["confidence", "entities", "mean", "right"], *rows])
    return "\n".join([f"{table}\n", result.describe(), *labels])
