"""Watch whether texts are still like the calibration docs of a pipeline, without labels."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.tokens import Doc
from typer import Argument, Option

from ..metrics import text_table
from ..metrics.shift import ALARM, ENOUGH, Shift, find_shift, in_random_order
from ..pipeline.annotations import add_measures
from ..pipeline.component import CostSensitiveNER, refuse_doc
from ..pipeline.reading import read_reading
from ..progress import progress
from ..readers.texts import divide, read_rows
from ..saving import check_file
from .annotate import annotate_rows, describe_error, find_sources, load_pipeline
from .options import CodeOption, GpuOption, ModelArg, NameOption, options_of
from .output import JsonOption, errors_shown, print_result
from .plots import draw_martingale, require_matplotlib, save
from .predictions import get_component


def watch(
    ner: CostSensitiveNER,
    docs: Iterable[Doc],
    *,
    key: Annotated[
        str | None,
        Option("--key", help="Key of doc.user_data: a test for the docs with each of its values"),
    ] = None,
    seed: Annotated[int, Option("--seed", help="Seed of the random order and of ties")] = 0,
    in_order: bool = False,
) -> tuple[dict[str, Any], Shift]:
    """Test docs without labels, and compute the scores that are expected of them.

    docs (Iterable[Doc]): Docs that the pipeline of the component has predicted.
    key (str | None): A key of `doc.user_data`: the docs with each of its values are tested
        against the calibration docs with this value, and the tests share what may fail.
    in_order (bool): Whether to test docs in their order, which sees changes within it, too.
    RETURNS (tuple[dict[str, Any], Shift]): The number of "docs"; whether there is an "alarm", of
        any test; the "tests" of all docs, or of those with a "value": see `Shift.summary`;
        "untested", the docs by value with too few calibration docs; and the scores "expected": see
        `Shift.expected`. The test of all docs.
    RAISES (ValueError): If the component has no scores of calibration docs, or none for the key.
    """
    refuse_doc(docs)
    counts = ner.shift([]).counts  # which checks that there are scores
    kept, confidence = ner.cfg["shift"], ner.confidence
    assert confidence is not None
    if key is not None and key not in kept["keys"]:
        raise ValueError(
            f"key: expected one with a value that {ENOUGH} calibration docs have, of "
            f"{[*kept['keys']]}, got {key!r}"
        )
    scores: list[float] = []
    values: list[str | None] = []
    n_docs = 0
    for doc in docs:
        own = add_measures(doc, confidence.spans_key, ner.name, ner.own_labels, counts)
        values += [key and str(doc.user_data.get(key))] * len(own)
        scores += own
        n_docs += 1

    def test(pool: list[float], own: list[float], level: float) -> Shift:
        ordered: Any = own if in_order else in_random_order(own, seed)
        return find_shift({**kept, "scores": pool}, ordered, counts, seed=seed, level=level)

    whole = test(kept["scores"], scores, ALARM)
    pools = {None: kept["scores"]} if key is None else kept["keys"][key]
    tested = [value for value in pools if key is None or value in values]
    tests = []
    for value in tested:
        own = [score for score, other in zip(scores, values) if other == value]
        found = test(pools[value], own, ALARM * len(tested))
        tests.append({"value": value, "calibration": len(pools[value]), **found.summary})
    result = {
        "docs": n_docs,
        "failed": 0,
        "alarm": any(one["alarm"] is not None for one in tests),
        "tests": tests,
        "untested": Counter(value for value in values if value not in pools),
        "expected": whole.expected,
    }
    return result, whole


def has_file_tokens(ner: CostSensitiveNER) -> bool:
    """Whether the calibration docs were read with the tokens and sentence starts of their file, so
    that other docs have to be read in the same way. Pipelines that were calibrated before this was
    kept were calibrated on text."""
    calibration = ner.cfg["shift"] or {}
    reading = read_reading(calibration.get("reading"))
    return reading is not None and reading.file_tokens


@options_of(watch)
def watch_cli(
    model: ModelArg,
    inputs: Annotated[
        list[Path],
        Argument(help="Files or folders: .txt with a text a line, .jsonl, .spacy, .parquet"),
    ],
    name: NameOption = "ner",
    plot_path: Annotated[
        Path | None,
        Option("--plot", help="Test in the order of the input, and plot it (requires matplotlib)"),
    ] = None,
    text: Annotated[str, Option("--text", help="Key or column of the text")] = "text",
    *,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
    **options: Any,
) -> None:
    """
    Test without labels whether texts are still like the calibration docs of `guarantee`, and
    compute the precision, recall and F to expect. The exit code is 1 after an alarm, of which there
    are at most 1 % for texts like the calibration docs. Files are read as the calibration docs
    were: their text or, if those were read with --file-tokens, their tokens and sentence starts.
    """
    with errors_shown():
        if plot_path is not None:
            check_file(plot_path, inputs)
            require_matplotlib()
        sources = find_sources(inputs)
        nlp = load_pipeline(model, code_path, use_gpu)
        ner = get_component(nlp, name)
        file_tokens = has_file_tokens(ner)
        errors = []

        def docs() -> Iterator[Doc]:
            parts = (part for path in sources.values() for part in divide(path, 10_000))
            read = partial(read_rows, nlp, text=text, file_tokens=file_tokens)
            rows = chain.from_iterable(map(read, parts))
            for _, answer in annotate_rows(nlp, progress(rows, desc="watch", unit="doc")):
                if isinstance(answer, Doc):
                    yield answer
                else:
                    errors.append(answer)

        in_order = plot_path is not None
        result, whole = watch(ner, docs(), in_order=in_order, **options)
        result["failed"] = len(errors)
        if not result["docs"]:
            reason = f": {describe_error(errors[0])}" if errors else ""
            raise ValueError(f"watch: expected texts, could read none{reason}")
        result["file_tokens"] = file_tokens
        if plot_path is not None:
            save(draw_martingale(whole.log_martingale, whole.level), plot_path)
    print_result(result, describe(result), print_json, plot_path)
    if result["alarm"]:
        raise typer.Exit(1)


def describe(result: Mapping[str, Any]) -> str:
    """The tests and the expected scores."""
    rows: list[Any] = [
        ["docs", "number", "calibration docs", "martingale", "alarm above", "alarm at"]
    ]
    for one in result["tests"]:
        at = "-" if one["alarm"] is None else f"doc {one['alarm']:,}"
        numbers = [one["docs"], one["calibration"], f"{one['martingale']:.3g}", f"{one['level']:g}"]
        rows.append([one["value"] or "all", *numbers, at])
    lines = [text_table(rows)]
    for value, n in result["untested"].items():
        few = f"fewer than {ENOUGH} calibration docs have it"
        lines.append(f"not tested: {n:,} docs with {value!r}: {few}")
    lines += [f"not read: {result['failed']:,} docs"] * bool(result["failed"])
    if result["alarm"]:
        lines.append("Alarm: the model is less sure of these texts than of the calibration docs.")
    if any(one["approximate"] for one in result["tests"]):
        lines.append("note: `calibrate` saw these calibration docs: false alarms may exceed 1 %")
    rows = [["expected, an upper guess" if result["alarm"] else "expected", *"PRF"]]
    expected = result["expected"]
    overall = {one: expected[f"ents_{one}"] for one in "prf"}
    for label, scores in {"all": overall, **expected["ents_per_type"]}.items():
        cells = [scores[one] for one in "prf"]
        rows.append([label, *("-" if cell is None else 100 * cell for cell in cells)])
    return "\n".join([*lines, "", text_table(rows)])
