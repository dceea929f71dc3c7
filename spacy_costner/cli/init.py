"""Create a config and show the commands to run next. See `workflows.init`.

The decorator `command` adds an option for each field of `InitOptions`, except for the fields in
`without`. `run` is `InitOptions` with these options set."""

import textwrap
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ..files.saving import save_text
from ..readers import ReadOptions
from ..workflows.config.init_options import InitOptions, refuse_existing
from ..workflows.config.initial_config import make_config
from .command_line import command, reads_corpora, words_of_command
from .output import LANGUAGE_OPTION, errors_shown

COST = Option(show_default="1, or 0 with --tree or --cost")
"""The settings shared by the options for the costs of mistakes."""


@command(
    InitOptions,
    options={
        "model": Option("--model", "-m"),
        "lang": Option("--lang", "-l"),
        "train_path": Option("--train", exists=True),
        "dev_path": Option("--dev", exists=True),
        "aim": Option(
            "--aim", "-a", show_default="cost if you give costs of mistakes, otherwise f"
        ),
        "miss": COST,
        "false_alarm": COST,
        "wrong_label": COST,
        "wrong_boundary": COST,
        "tree_path": Option("--tree"),
        "loss": Option(show_default="by model, aim and size"),
        "decoding": Option(show_default="by loss and aim"),
        "spans_key": Option("--spans-key", show_default="sc with --groups"),
        "groups_path": Option(
            "--groups", show_default="by the labels that overlap in --train", exists=True
        ),
        "transformer": Option(show_default="as `spacy init config`"),
        "raw_paths": Option(
            "--raw",
            exists=True,
            show_default=False,
            help="Text without annotation: learn vectors from it and from --train, to the folder "
            "vectors next to the config. See `costner vectors`.",
        ),
    },
    without=("reading", "force", "command"),
)
@reads_corpora
@errors_shown(language_setting=LANGUAGE_OPTION)
def init_cli(
    run: partial[InitOptions],
    ctx: typer.Context,
    output_path: Annotated[
        Path, Argument(help="Config file to write, or - for the terminal", allow_dash=True)
    ],
    *,
    reading: ReadOptions,
    force: Annotated[bool, Option("--force", "-F", help="Overwrite the output file")] = False,
) -> None:
    """
    Create a config for `spacy train` for your model, language, corpora, costs of mistakes and aim.
    With --train, the batch size and the evaluation frequency are adapted to the size of the corpus.
    The config starts with the commands to run next. If you set several options for costs, the cost
    of a mistake is their sum.
    """
    if output_path == Path("-"):  # the terminal
        if run.keywords["raw_paths"]:
            raise ValueError(
                "--raw: expected a file for the config, as vectors are saved next to it"
            )
        options = run(reading=reading, force=force, command=words_of_command(ctx))
        typer.echo(make_config(options), nl=False)
        return
    if not force:
        refuse_existing(output_path)
    options = run(output_path, reading=reading, force=force, command=words_of_command(ctx))
    text = make_config(options)
    save_text(output_path, text)
    # The config starts with a comment that contains the commands to run next. Print it without "#".
    head, _, _ = text.partition("\n\n")
    commands = textwrap.dedent(head.replace("#", " "))
    typer.echo(f"{commands}\n\nWritten to {output_path}")
