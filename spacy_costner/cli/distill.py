"""Distill teachers into a student: train a small model on the predictions of larger models, and
print the scores of all models.

The decorator `command` adds the options of `distill`. `run` is `distill` with these options set.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from spacy.cli._util import import_code, setup_gpu, show_validation_error
from typer import Argument, Option

from ..files.saving import check_file, save_text
from ..pages.rendering import render
from ..readers import ReadOptions
from ..workflows.config.loading import read_config, with_reading
from ..workflows.noisy_labels.channel_distillation import LearnedNoise
from ..workflows.noisy_labels.distillation import Distilled, distill
from ..workflows.noisy_labels.noise_channel import CHANNEL
from .command_line import command, reads_corpora
from .options import CodeOption, GpuOption, read_overrides
from .output import JsonOption, errors_shown, print_result
from .tables import text_table


@command(
    distill,
    options={
        "soft": Option(help="Train on the probabilities of the teachers, not on their entities"),
        "incomplete": Option(
            help="The teachers find only some of the entities, as rules do. A token outside of "
            "these is O only if its word is almost never in entities. Otherwise its annotation is "
            "missing"
        ),
        "noise": Option(
            help="channel: learn from --gold how each teacher errs, and train on the probabilities "
            "of tags given the text and the answers of all teachers, which are corpora or "
            "pipelines"
        ),
        "min_confidence": Option(
            "--min-confidence",
            help="Minimum confidence of the teachers. Annotation is missing where they are less "
            "confident, whether in an entity or in O",
            min=0,
            max=1,
        ),
        "gold_path": Option("--gold", help="Additional annotated corpus to train on", exists=True),
        "gold_weight": Option(
            "--gold-weight",
            help="Weight of each doc of --gold. A doc of a teacher has weight 1",
            min=0,
        ),
        "n_seeds": Option(
            "--seeds",
            help="Linear student: number of trainings, whose weights are averaged",
            min=1,
        ),
    },
    without=("reading",),
)
@reads_corpora
def distill_cli(
    run: partial[Distilled],  # `distill` with its options set by `command`
    ctx: typer.Context,
    teacher: Annotated[
        str,
        Argument(
            help="Pipeline that sets doc.ents: a package or a folder. Or its answers: JSONL or, "
            "with --noise, any corpus"
        ),
    ],
    config_path: Annotated[Path, Argument(help="Config of the student", exists=True)],
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for answers and student")
    ],
    raw: Annotated[
        list[str] | None, Argument(help="Texts: .txt with a doc per line, or corpora of any format")
    ] = None,
    other_teachers: Annotated[
        list[str] | None, Option("--teacher", "-t", help="Another teacher. Repeatable")
    ] = None,
    html_path: Annotated[
        Path | None,
        Option("--html", help="With --noise: output HTML page of how each teacher errs"),
    ] = None,
    *,
    reading: ReadOptions,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Distill a teacher, such as a transformer, into a student, such as a linear model: the teacher
    annotates texts, and the student is trained on its answers. The answers are kept in the output
    folder, so that an interrupted run can be continued. Override settings of the student as in
    `spacy train`, e.g. --paths.dev ./dev.spacy.
    """
    # The texts may be mixed with config overrides, such as --paths.dev dev.spacy. Typer doesn't
    # recognize these, and assigns some of the words to `raw` and others to `ctx.args`.
    words = [*(raw or ()), *ctx.args]
    raw_paths, ctx.args = split_arguments(words)
    overrides = read_overrides(ctx)
    teachers = [teacher, *(other_teachers or ())]
    setup_gpu(use_gpu, silent=True)
    import_code(code_path)
    with errors_shown(), show_validation_error(config_path, hint_fill=False):
        if html_path is not None and run.keywords["noise"] is None:
            raise ValueError(f"{html_path}: --html: expected --noise channel with it")
        gold_paths = [path for path in [run.keywords["gold_path"]] if path is not None]
        check_file(html_path, [config_path, *teachers, *gold_paths, *raw_paths])
        config = with_reading(read_config(config_path, overrides), reading)
        distilled = run(teachers, config, raw_paths, output_path, reading=reading)
        if html_path is not None:
            save_text(html_path, noise_page(distilled))
    print_result(distilled, distilled_text(distilled), print_json, distilled.path, html_path)


def split_arguments(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Split command-line arguments into the paths of texts and config overrides, which may be in
    any order. Overrides have the form "--name value" or "--name=value"."""
    paths: list[Path] = []
    settings: list[str] = []
    is_value = False  # whether the argument is the value of the preceding option
    for argument in arguments:
        if is_value:
            settings.append(argument)
            is_value = False
        elif argument.startswith("--"):
            settings.append(argument)
            is_value = "=" not in argument  # applies to the next argument
        else:
            paths.append(Path(argument))
    return paths, settings


def distilled_text(distilled: Distilled) -> str:
    """Format the result as text: the size of the student's training corpus or the estimated noise,
    and a table with the scores of the teachers and the student."""
    text = f"{distilled.n_docs:,} docs with {distilled.n_entities:,} entities of the teacher"
    if distilled.n_missing:
        text += f"; {distilled.n_missing:,} uncertain ones are missing annotation"
    if distilled.n_unknown:
        text += f"; {distilled.n_unknown:,} tokens are unknown"
    lines = [text]
    if distilled.noise is not None:
        lines = noise_lines(distilled.noise)
    if distilled.rows:
        table = [["dev", "P", "R", "F", "tokens/s", "MB"]]
        for row in distilled.rows:
            speed_and_size = [f"{row.tokens_per_second:,.0f}", f"{row.megabytes:.1f}"]
            table.append([row.name, *percentages(*row[1:4]), *speed_and_size])
        lines += ["", text_table(table)]
    lines += [f"note: {note}" for note in distilled.notes]
    return "\n".join(lines)


def noise_page(distilled: Distilled) -> str:
    """Render an HTML page with the estimated errors of the annotators."""
    return render(
        "noise.html", noise=distilled.noise, student=distilled.path, notes=distilled.notes
    )


def percentages(*shares: float | None) -> list[str]:
    """Format proportions as percentages with two decimal places. None becomes an empty string."""
    return ["" if share is None else f"{100 * share:.2f}" for share in shares]


def noise_lines(noise: LearnedNoise) -> list[str]:
    """Format the estimated annotation noise as lines of text: each annotator's scores on checked
    texts and confusion matrix, the corrections made by the channel model, and the scores of each
    method."""
    table = [["annotator", "texts", "checked", "P", "R", "F", "false alarms"]]
    for errors in noise.annotators:
        scores = percentages(errors.precision, errors.recall, errors.f_score)
        counts = [f"{errors.n_texts:,}", f"{errors.n_checked:,}"]
        table.append([errors.name, *counts, *scores, f"{errors.false_alarms:.1f}"])
    lines = [text_table(table), "false alarms: per 1,000 tokens outside of entities"]
    for errors in noise.annotators:
        labels = list(errors.found)
        table = [[f"{errors.name}: % of", *labels, "missed"]]
        for label, shares in errors.found.items():
            percents = [f"{100 * shares[other]:.1f}" for other in labels]
            table.append([label, *percents, f"{100 * errors.missed[label]:.1f}"])
        lines += ["", text_table(table)]
    corrections = noise.corrections
    lines += [
        "",
        f"unchecked texts: {corrections.n_added:,} entities added to the annotators' labels, "
        f"{corrections.n_dropped:,} removed, {corrections.n_changed:,} changed",
        "",
    ]
    table = [[f"{noise.n_checked:,} checked texts, held out", "P", "R", "F", "log-prob", "lead"]]
    for method in noise.methods:
        scores = percentages(method.precision, method.recall, method.f_score)
        lead = f"{method.lead:+.4f} ± {method.lead_error:.4f}"
        if method.name == CHANNEL:
            lead = ""
        table.append([method.name, *scores, f"{method.log_prob:.4f}", lead])
    lines += [
        text_table(table),
        "log-prob: log-probability of the annotation in nats per token; lead: difference from the "
        "noise channel and its standard error",
    ]
    return [*lines, f"kept: {noise.kept}"]
