"""Draw a random sample of docs for people to annotate. Then estimate from it how many entities
texts have, and how good a pipeline is on these texts.

The command gets the function `estimate` as `run`, which has the options of the command line: see
`command_line.command`.
"""

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from spacy.language import Language
from typer import Argument, BadParameter, Option

from ..files.saving import check_file
from ..progress import progress
from ..readers import CorpusInfo, ReadOptions, check_task_form, read_docs, read_texts, save_tasks
from ..readers.files import shown
from ..readers.task_docs import NOT_ACCEPTED
from ..serve.store import MEASURE_FILE, TEXTS_FILE
from ..workflows.config.loading import load_pipeline
from ..workflows.sampling.drawing import DrawnDoc, draw
from ..workflows.sampling.estimation import Estimate, LabelEstimate, MeasureEstimate, estimate
from .command_line import command, reads_corpora
from .options import CodeOption, GpuOption, ModelArg
from .output import JsonOption, errors_shown, print_result
from .plots import draw_estimates, require_matplotlib, save_figure
from .tables import text_table

N_PRINTED = 10
"""The number of drawn docs that are printed."""

MEASURES = ("entities", "precision", "recall", "f")
"""The measures of a `LabelEstimate`, in the order of the table."""


@command(
    estimate,
    options={
        "confidence": Option(help="Probability that an interval contains the true number"),
        "simple_random": Option(
            help="The annotated docs are a simple random sample that you drew yourself, without "
            "replacement, instead of with --draw"
        ),
        "name": Option("--name"),
    },
    without=["n_left_out"],
)
@reads_corpora
def estimate_cli(
    run: partial[Estimate],  # `estimate` with the options that `command` adds
    model: ModelArg,
    docs_path: Annotated[
        Path,
        Argument(
            help="Annotated docs that --draw drew, or the folder of a session of `serve`; with "
            "--draw, the texts to draw from",
            exists=True,
        ),
    ],
    texts_path: Annotated[
        Path | None,
        Option("--texts", help="All texts that the docs were drawn from", exists=True),
    ] = None,
    n: Annotated[  # the name that it has in `draw`, so that errors of `draw` name the option
        int | None,
        Option("--draw", help="Draw N docs to annotate, with replacement", metavar="N", min=1),
    ] = None,
    output_path: Annotated[
        Path | None, Option("--output", "-o", help="With --draw: output file")
    ] = None,
    form: Annotated[
        str,
        Option(
            "--format",
            "-f",
            help="With --draw: format of the output: prodigy, doccano, label-studio",
        ),
    ] = "prodigy",
    with_predictions: Annotated[
        bool,
        Option(
            "--predictions",
            help="With --draw: show annotators the predicted entities. That is faster, but they "
            "may accept wrong ones",
        ),
    ] = False,
    seed: Annotated[int, Option("--seed", help="With --draw: random seed")] = 0,
    plot_path: Annotated[
        Path | None, Option("--plot", help="Plot the estimates (requires matplotlib)")
    ] = None,
    *,
    reading: ReadOptions,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Estimate how many entities texts have, and the precision, recall and F of a pipeline on them,
    with intervals. Run it twice: with --draw, to draw docs that you annotate; then with the
    annotated docs, and with --texts for all texts that they were drawn from. A session of `serve`
    has both: give its folder.
    Intervals are valid for any model, also on texts that are unlike its training docs.
    """
    if n is not None:  # the number of drawings
        if output_path is None or texts_path is not None or plot_path is not None:
            raise BadParameter("--draw takes the texts and --output, without --texts and --plot")
        with errors_shown():
            check_file(output_path, inputs=[model, docs_path])
            check_task_form(form, output_path)
            nlp = load_pipeline(model, code_path, use_gpu)
            component = run.keywords["name"]  # the option --name, which `command` adds
            drawn_docs = read_and_draw(nlp, docs_path, reading, n=n, seed=seed, name=component)
            tasks = (doc.task(with_predictions=with_predictions) for doc in drawn_docs)
            save_tasks(output_path, tasks, form)
        rows = drawn_rows(drawn_docs)
        print_result({"docs": rows}, drawn_text(rows, n), print_json, output_path)
        return

    # The docs are annotated: estimate from them.
    docs_path, texts_path = files_of_session(docs_path, texts_path)
    if texts_path is None or output_path is not None:
        raise BadParameter("expected --texts with annotated docs, or --draw and --output")
    with errors_shown():
        if plot_path is not None:
            check_file(plot_path, inputs=[model, docs_path, texts_path])
            require_matplotlib()
        nlp = load_pipeline(model, code_path, use_gpu)
        result = read_and_estimate(run, nlp, docs_path, texts_path, reading)
        if plot_path is not None:
            save_figure(draw_estimates(result), plot_path)
    print_result(result, estimate_text(result), print_json, plot_path)


def read_and_draw(
    nlp: Language, texts_path: Path, reading: ReadOptions, *, n: int, seed: int, name: str
) -> list[DrawnDoc]:
    """Read the texts from a file, and draw docs for people to annotate: see `draw`."""
    texts = progress(read_texts(nlp, texts_path, reading), desc="draw", unit="doc")
    return draw(nlp, texts, n=n, seed=seed, name=name)


def files_of_session(docs_path: Path, texts_path: Path | None) -> tuple[Path, Path | None]:
    """Find the annotated docs and all texts in the folder of a session of `serve`. Other paths stay
    as they are. So does the path of the texts, if one is given. Returns the paths of the docs and
    of the texts."""
    measure_path = docs_path / MEASURE_FILE
    if not measure_path.exists():
        return docs_path, texts_path
    texts_of_session = docs_path / TEXTS_FILE
    if texts_path is None and texts_of_session.exists():
        texts_path = texts_of_session
    return measure_path, texts_path


def read_and_estimate(
    run: partial[Estimate],
    nlp: Language,
    docs_path: Path,
    texts_path: Path,
    reading: ReadOptions,
) -> Estimate:
    """Read the annotated docs and the texts from files, and estimate. Errors name the file of the
    annotated docs."""
    info = CorpusInfo()
    drawn_docs = list(read_docs(nlp, docs_path, reading, info))
    # The reader leaves out docs that annotators have skipped. Other problems get a warning.
    n_left_out = 0
    for problem in info.problems:
        if problem.message == NOT_ACCEPTED:
            n_left_out += problem.n
        else:
            warnings.warn(problem.as_text(), stacklevel=2)
    texts = progress(read_texts(nlp, texts_path, reading), desc="estimate", unit="doc")
    try:
        return run(nlp, drawn_docs, texts, n_left_out=n_left_out)
    except ValueError as error:
        raise ValueError(f"{docs_path}: {error}") from None


def drawn_rows(drawn: Sequence[DrawnDoc]) -> list[dict[str, Any]]:
    """The facts of each drawn doc that --json prints: its text, its number, its size, and how it
    was drawn."""
    rows: list[dict[str, Any]] = []
    for doc, drawing in drawn:
        rows.append(
            {
                "text": doc.text,
                "doc": drawing.doc,
                "tokens": len(doc),
                "times": drawing.times,
                "probability": drawing.probability,
            }
        )
    return rows


def drawn_text(rows: Sequence[dict[str, Any]], n_drawings: int) -> str:
    """Write a table of the first drawn docs (see `drawn_rows`), the number of drawings, and the
    number of drawn docs."""
    table: list[Sequence[Any]] = [["text", "doc", "tokens", "times", "probability"]]
    for row in rows[:N_PRINTED]:
        probability = f"{row['probability']:.3g}"
        table.append([shown(row["text"]), row["doc"], row["tokens"], row["times"], probability])
    n_tokens = sum(row["tokens"] for row in rows)
    count = (
        f"{n_drawings:,} drawings: {len(rows):,} docs, {n_tokens:,} tokens. Annotate all of them."
    )
    return f"{text_table(table)}\n\n{count}"


def estimate_text(result: Estimate) -> str:
    """Write a table of the estimates with their intervals. Below it is what isn't estimated, and
    the number of drawings that would halve the intervals."""
    level = f"{100 * result.confidence:g} % interval"
    header = ["label", "of all texts", "estimate", level, "model alone", "annotated docs alone"]
    rows: list[Sequence[Any]] = [header]
    refusals: list[str] = []
    for estimate_of_label in result.labels:
        rows += rows_of_label(estimate_of_label)
        refusals += refusals_of_label(estimate_of_label)
    lines = [text_table(rows), ""]
    if refusals:
        lines += ["not estimated:", *(f"    {refusal}" for refusal in refusals), ""]
    lines += [f"note: {note}" for note in result.notes]
    lines.append(
        f"{result.drawings:,} drawings, {result.annotated:,} annotated docs of {result.docs:,}. "
        f"{result.drawings_for_half:,} drawings in total would halve the intervals."
    )
    return "\n".join(lines)


def rows_of_label(estimate_of_label: LabelEstimate) -> list[Sequence[Any]]:
    """The rows of the table for a label: one for each measure that has an estimate, or a single one
    if no drawn doc has the label."""
    label = estimate_of_label.label
    if estimate_of_label.most_docs is not None:
        # No drawn doc has the label. The estimate is 0, and the interval counts docs, not entities.
        docs_interval = f"in 0 to {estimate_of_label.most_docs:,} docs"
        model_alone = as_count(estimate_of_label.entities.model_alone)
        return [[label, "entities", "0", docs_interval, model_alone, "-"]]
    rows: list[Sequence[Any]] = []
    for name in MEASURES:
        measure: MeasureEstimate = getattr(estimate_of_label, name)
        if measure.estimate is None or measure.annotated_alone is None:
            continue
        write = as_count if name == "entities" else as_percent
        value, low, high = measure.estimate
        interval = f"{write(low)} to {write(high)}"
        _, low_alone, high_alone = measure.annotated_alone
        interval_alone = f"{write(low_alone)} to {write(high_alone)}"
        title = "F" if name == "f" else name
        model_alone = write(measure.model_alone)
        rows.append([label, title, write(value), interval, model_alone, interval_alone])
    return rows


def refusals_of_label(estimate_of_label: LabelEstimate) -> list[str]:
    """Write which measures of a label have no estimate, and why. Measures with the same reason are
    on one line."""
    names_by_reason: dict[str, list[str]] = {}
    for name in MEASURES:
        reason = getattr(estimate_of_label, name).refusal
        if reason:
            title = "F" if name == "f" else name
            names_by_reason.setdefault(reason, []).append(title)
    lines: list[str] = []
    for reason, names in names_by_reason.items():
        lines.append(f"{estimate_of_label.label}: {', '.join(names)}: {reason}")
    return lines


def as_count(number: float) -> str:
    """Format a number of entities for the table."""
    return f"{number:,.0f}"


def as_percent(share: float) -> str:
    """Format a score for the table, in percent."""
    return f"{100 * share:.1f}"
