"""The command `guarantee`."""

from functools import partial
from typing import Any

from typer import Option

from ..analysis.guarantees import Guarantee, check_terms, guarantee
from ..readers.files import encodable
from ..saving import check_folder, save_folder
from .command_line import command
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
from .tables import text_table


@command(
    guarantee,
    options={
        "confidence": Option(show_default="none: it holds on average; with --false-alarm 0.95")
    },
    without=("name", "source"),
)
def guarantee_cli(
    run: partial[Any],
    model: ModelArg,
    docs_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    *,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Guarantee a miss rate: choose, on calibration docs, the threshold of a set of spans that
    misses at most a share of the entities of other docs from the same source. The set is in
    doc.spans["confidence_guaranteed"]. Use docs that the pipeline was not trained on.
    """
    with errors_shown():
        check_folder(output_path)
        check_terms(run.keywords)
        nlp, examples = load(
            model, docs_path, use_gpu, code_path, file_tokens=run.keywords["file_tokens"]
        )
        result = run(nlp, examples, name=name, source=encodable(docs_path))
        save_folder(output_path, nlp.to_disk)
    print_result(result, describe(result), print_json, output_path)


def describe(result: Guarantee) -> str:
    """The parts, and the promise in words."""
    promise, keys = result.promise, {"group": "by_group", "label": "per_label"}
    names = [name for name, key in keys.items() if promise[key]]
    header = ["docs", "entities", "threshold", "spans/entity", "reachable", "docs needed"]
    rows: list[Any] = [[*(names or ["label"]), *header]]
    formats = {"threshold": "g", "spans": ".2f", "reachable": ".4f", "docs_needed": ","}
    for part in result.parts:
        cells = ["-" if part[key] is None else f"{part[key]:{f}}" for key, f in formats.items()]
        of = [part[name] for name in names] or ["all"]
        rows.append([*of, part["docs"], part["entities"], *cells])
    lines = [text_table(rows)]
    if kinds := [f"{n:,} {kind}" for kind, n in promise["not_counted"].items() if n]:
        lines.append(f"\nnot counted: {', '.join(kinds)}")
    lines += [f"note: {note}" for note in result.notes]

    what = "the docs with entities have one that is missed"
    if promise["miss"] is None:
        what = "the set of a doc is wrong"
    elif promise["by"] == "doc":
        what = "the entities of a doc are missed"
    limit = promise["false_alarm"] if promise["miss"] is None else promise["miss"]
    sure = "in the mean over calibrations"
    if promise["confidence"] is not None:
        sure = f"in the mean over docs, with confidence {promise['confidence']:g}"
    each = f", for each {' and '.join(names)} with a threshold" if names else ""
    terms = f"at most {limit:.3g} of {what}, {sure}{each} (found: {promise['found']})"
    return "\n".join([*lines, f"\nPromised of docs like {promise['source']}: {terms}."])
