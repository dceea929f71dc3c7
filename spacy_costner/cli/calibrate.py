"""Calibrate a pipeline and print its temperature and the reliability of its confidences.

The decorator `command` adds the options of `calibrate`, except for the parameters in `without`.
`run` is `calibrate` with these options set."""

from functools import partial
from typing import Any

from ..files.saving import check_folder
from ..readers import ReadOptions
from ..readers.files import encodable
from ..workflows.calibration.temperature import Calibration, calibrate
from ..workflows.saved_strings import save_pipeline
from .command_line import command, reads_corpora
from .options import (
    CodeOption,
    DevArg,
    FileTokensOption,
    GpuOption,
    ModelArg,
    OutputOption,
    load_with_examples,
)
from .output import JsonOption, errors_shown, print_result
from .tables import text_table


@command(calibrate, without=("file_tokens", "source"))
@reads_corpora
def calibrate_cli(
    run: partial[Calibration],  # `calibrate` with its options set by `command`
    model: ModelArg,
    dev_path: DevArg,
    output_path: OutputOption,
    *,
    reading: ReadOptions,
    file_tokens: FileTokensOption = False,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Calibrate confidences, so that about 70% of the entities with confidence 0.7 are correct. Fits a
    temperature on development docs and turns confidences on. Use docs that the pipeline was not
    trained on. Viterbi predictions don't change.
    """
    with errors_shown():
        check_folder(output_path)
        nlp, examples = load_with_examples(
            model, dev_path, use_gpu, code_path, reading=reading, file_tokens=file_tokens
        )
        # The path is stored in the pipeline's meta as JSON, so it must be valid Unicode.
        docs_name = encodable(dev_path)
        calibration = run(nlp, examples, file_tokens=file_tokens, source=docs_name)
        save_pipeline(output_path, nlp)
    print_result(calibration, calibration_text(calibration), print_json, output_path)


def calibration_text(calibration: Calibration) -> str:
    """Format a calibration as text: a table with the proportion of correct entities in each
    confidence bin, followed by the overall temperature and the temperatures per label."""
    rows: list[list[Any]] = [["confidence", "entities", "mean", "right"]]
    for confidence_bin in calibration.reliability:
        if confidence_bin["n"] > 0:
            bounds = f"{confidence_bin['from']:.1f} to {confidence_bin['to']:.1f}"
            mean_confidence = confidence_bin["confidence"]
            rows.append([bounds, confidence_bin["n"], mean_confidence, confidence_bin["right"]])
    lines = [text_table(rows), "", calibration.as_text()]
    for label, temperature in calibration.temperature.labels.items():
        lines.append(f"  {label}: {temperature:.3f}")
    return "\n".join(lines)
