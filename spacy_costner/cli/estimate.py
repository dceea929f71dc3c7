"""Draw a random sample of docs to annotate. Then use the annotated sample to estimate the number of
entities in all texts and the scores of a pipeline on these texts.

The decorator `command` adds the options of `estimate`. `run` is `estimate` with these options set.
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
"""Maximum number of drawn docs to print."""

MEASURES = ("entities", "precision", "recall", "f")
"""The measures in a `LabelEstimate`, in the order shown in the table."""


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
    run: partial[Estimate],  # `estimate` with its options set by `command`
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
    n: Annotated[  # named as in `draw`, so that its errors refer to the option
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
    Estimate the number of entities in texts, and a pipeline's precision, recall and F on these
    texts, with intervals. Run the command twice: first with --draw, to draw docs to annotate, and
    then with the annotated docs and --texts for all texts that they were drawn from. For a session
    of `serve`, you only need to pass its folder. The intervals are valid for any model, even on
    texts that are unlike its training docs.
    """
    if n is not None:  # the number of draws
        if output_path is None or texts_path is not None or plot_path is not None:
            raise BadParameter("--draw takes the texts and --output, without --texts and --plot")
        with errors_shown():
            check_file(output_path, inputs=[model, docs_path])
            check_task_form(form, output_path)
            nlp = load_pipeline(model, code_path, use_gpu)
            component = run.keywords["name"]  # the value of --name
            drawn_docs = read_and_draw(nlp, docs_path, reading, n=n, seed=seed, name=component)
            tasks = (doc.task(with_predictions=with_predictions) for doc in drawn_docs)
            save_tasks(output_path, tasks, form)
        rows = drawn_rows(drawn_docs)
        print_result({"docs": rows}, drawn_text(rows, n), print_json, output_path)
        return

    # Without --draw, estimate from annotated docs.
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
    """Read texts from a file and draw docs to annotate. See `draw`."""
    texts = progress(read_texts(nlp, texts_path, reading), desc="draw", unit="doc")
    return draw(nlp, texts, n=n, seed=seed, name=name)


def files_of_session(docs_path: Path, texts_path: Path | None) -> tuple[Path, Path | None]:
    """Return the paths of the annotated docs and of all texts. If `docs_path` is the folder of a
    `serve` session, they are looked up in the folder. An explicit `texts_path` takes precedence."""
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
    """Read the annotated docs and all texts from files, and compute the estimate. Error messages
    start with the path of the annotated docs."""
    info = CorpusInfo()
    drawn_docs = list(read_docs(nlp, docs_path, reading, info))
    # Count the docs that annotators have skipped, and warn about other problems.
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
    """Convert drawn docs to dictionaries for --json, with the text, the index, the number of
    tokens, how often the doc was drawn, and its probability."""
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
    """Format the first rows of `drawn_rows` as a table, followed by the numbers of draws, docs and
    tokens."""
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
    """Format the estimates and intervals as a table, followed by the measures that can't be
    estimated and the number of draws needed to halve the intervals."""
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
    """Create the table rows for a label: a row for each measure with an estimate, or a single row
    if no drawn doc contains the label."""
    label = estimate_of_label.label
    if estimate_of_label.most_docs is not None:
        # If no drawn doc contains the label, the estimate is 0 and the interval counts docs, not
        # entities.
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
    """Format the reasons why measures of a label can't be estimated, with one line per reason."""
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
    """Format a score as a percentage for the table."""
    return f"{100 * share:.1f}"
