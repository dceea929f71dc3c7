"""`python -m spacy costner guarantee`."""

from typing import Annotated, Optional

from typer import Option

from ..commands.guarantee import Guarantee, Terms, guarantee
from ..metrics import text_table
from ..progress import progress
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


def guarantee_cli(
    model: ModelArg,
    docs_path: DevArg,
    output_path: OutputOption,
    name: NameOption = "ner",
    miss: Annotated[
        Optional[float], Option("--miss", help="Highest share of entities that are not found")
    ] = None,
    false_alarm: Annotated[
        Optional[float],
        Option("--false-alarm", help="In place of it: highest share of the set that is wrong"),
    ] = None,
    confidence: Annotated[
        Optional[float],
        Option("--confidence", help="Of the promise, such as 0.95; without it, it is of the mean"),
    ] = None,
    found: Annotated[
        str, Option("--found", help="What counts as found: exact, span, covered, touched")
    ] = "exact",
    by: Annotated[
        str, Option("--by", help="Share of each doc (doc), of all entities (entity), of docs (any)")
    ] = "doc",
    per_label: Annotated[
        bool, Option("--per-label", help="A promise and a threshold for each label")
    ] = False,
    most: Annotated[
        Optional[int], Option("--most", help="With --by entity: most entities that a doc may have")
    ] = None,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Guarantee a miss rate: choose, on calibration docs, the threshold of a set of spans that
    misses at most a share of the entities of other docs from the same source. The set is in
    doc.spans["confidence_guaranteed"]. Use docs that the pipeline was not trained on.
    """
    terms = Terms(miss, false_alarm, confidence, found, by, per_label, most)
    with errors_shown():
        check_folder(output_path)
        terms.check()
        nlp, examples = load(model, docs_path, use_gpu, code_path)
        with progress(desc="guarantee", unit="doc", total=len(examples)) as bar:
            result = guarantee(
                nlp, examples, terms, name=name, source=str(docs_path), on_docs=bar.update
            )
        save_folder(output_path, nlp.to_disk)
    print_result(result, describe(result), print_json, output_path)


def describe(result: Guarantee) -> str:
    """What is promised, and on what."""
    rows = [
        [
            part.label or "all",
            part.docs,
            part.entities,
            "-" if part.threshold is None else f"{part.threshold:g}",
            f"{part.spans:.2f}",
            "-" if part.reachable is None else f"{part.reachable:.4f}",
            "-" if part.docs_needed is None else f"{part.docs_needed:,}",
        ]
        for part in result.parts
    ]
    header = ["label", "docs", "entities", "threshold", "spans/entity", "reachable", "docs needed"]
    lines = [text_table([header, *rows])]
    counts = result.promise["not_counted"].items()
    if not_counted := [f"{n:,} {reason}" for reason, n in counts if n]:
        lines.append(f"\nnot counted: {', '.join(not_counted)}")
    lines += [f"note: {note}" for note in result.notes]
    return "\n".join([*lines, f"\n{in_words(result)}"])


def in_words(result: Guarantee) -> str:
    """The promise as a sentence."""
    promise = result.promise
    limit = promise["miss"] if promise["false_alarm"] is None else promise["false_alarm"]
    what = {
        "doc": f"at most {limit:.3g} of the entities of a doc are missed",
        "entity": f"at most {limit:.3g} of all entities are missed",
        "any": f"at most {limit:.3g} of the docs with entities have one that is missed",
    }[promise["by"]]
    if promise["false_alarm"] is not None:
        what = f"at most {limit:.3g} of the set of a doc is wrong"
    sure = "in the mean over calibrations"
    if promise["confidence"] is not None:
        sure = f"in the mean over docs, with confidence {promise['confidence']:g}"
    each = ", for each label with a threshold" if promise["per_label"] else ""
    return (
        f"Promised of docs like {promise['source']}: {what}, {sure}{each} "
        f"(found: {promise['found']})."
    )
