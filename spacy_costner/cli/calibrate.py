"""The command `calibrate`."""

from functools import partial
from typing import Any

from ..analysis.calibration import Calibration, calibrate
from ..readers.files import encodable
from ..saving import check_folder, save_folder
from .command_line import command
from .options import CodeOption, DevArg, GpuOption, ModelArg, OutputOption, load
from .output import JsonOption, errors_shown, print_result
from .tables import text_table


@command(calibrate, without=("source",))
def calibrate_cli(
    run: partial[Any],
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    *,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Calibrate confidences, so that about 70 % of the entities with confidence 0.7 are correct.
    Fits a temperature on development docs, which should not be training docs, and turns confidences
    on. Predictions of Viterbi decoding don't change.
    """
    with errors_shown():
        check_folder(output_path)
        nlp, examples = load(
            model, dev_path, use_gpu, code_path, file_tokens=run.keywords["file_tokens"]
        )
        result = run(nlp, examples, source=encodable(dev_path))
        save_folder(output_path, nlp.to_disk)
    print_result(result, describe(result), print_json, output_path)


def describe(result: Calibration) -> str:
    """The temperatures, and confidence compared with the share of entities that are right."""
    rows: list[Any] = [["confidence", "entities", "mean", "right"]]
    for row in result.reliability:
        if row["n"]:
            bounds = "{from:.1f} to {to:.1f}".format(**row)
            rows.append([bounds, row["n"], row["confidence"], row["right"]])
    labels = [f"  {label}: {t:.3f}" for label, t in result.temperature.labels.items()]
    return "\n".join([f"{text_table(rows)}\n", result.describe(), *labels])
