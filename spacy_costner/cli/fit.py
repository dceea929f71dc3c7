"""Train a linear model and print its scores.

The decorator `command` adds the options of `fit`. `run` is `fit` with these options set."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from spacy.cli._util import import_code, show_validation_error
from typer import Argument, Option

from ..readers import ReadOptions
from ..workflows.fitting.fit_corpora import ignore_corpus
from ..workflows.fitting.fitted import Fitted
from ..workflows.fitting.fitting import fit
from .command_line import command, reads_corpora, words_of_command
from .options import FILE_TOKENS_HELP, CodeOption, read_overrides
from .output import (
    LANGUAGE_OF_PIPELINE,
    LANGUAGE_OPTION,
    JsonOption,
    errors_shown,
    print_corpus,
    print_result,
)


@command(
    fit,
    options={
        "lang": Option("--lang", "-l", show_default="en"),
        "train_path": Option("--train", help="Training corpus, as --paths.train", exists=True),
        "dev_path": Option("--dev", help="Development corpus, as --paths.dev", exists=True),
        "calibrate": Option(help="Calibrate on --dev, or without it on held-out folds"),
        "raw_paths": Option("--raw", exists=True, show_default=False),
        "n_seeds": Option("--seeds", help="Number of trainings, whose weights are averaged", min=1),
        "file_tokens": Option(help=FILE_TOKENS_HELP.format(docs="development docs")),
        "cache": Option("--cache", file_okay=False),
    },
    without=("reading", "overrides", "command", "on_corpus"),
)
@reads_corpora
def fit_cli(
    run: partial[Fitted],  # `fit` with its options set by `command`
    ctx: typer.Context,
    config_path: Annotated[
        Path | None,
        Argument(help="Config of a linear model", show_default="written to the output folder"),
    ] = None,
    output_path: Annotated[
        Path, Option("--output", "-o", help="Output folder for the pipeline, model-best")
    ] = ...,  # type: ignore[assignment]  # required, despite the preceding optional argument
    *,
    reading: ReadOptions,
    print_json: JsonOption = False,
    code_path: CodeOption = None,
) -> None:
    """
    Train a linear model (spacy_costner.SparseCRF.v1), and optionally calibrate and tune it. If you
    don't pass a config, the config that `costner init` creates for the corpora is used and saved.

    This is faster than `spacy train`: training runs until max_epochs or max_steps, and only the
    final model is evaluated. With fewer than 1,000 sentences, the model is trained on all docs at
    once, which gives better scores. Override settings as in `spacy train`, e.g. --nlp.lang es.
    Press Ctrl-C to stop and save the current model.
    """
    if config_path is not None and str(config_path).startswith("-"):
        # If overrides such as --nlp.lang es are passed without a config, Typer parses the first
        # one as the path of the config. Move it to `ctx.args`.
        ctx.args.insert(0, str(config_path))
        ctx.params["config_path"] = None
        config_path = None
    overrides = read_overrides(ctx)
    import_code(code_path)
    new_config_path = None  # path of the config that `fit` writes if none is given
    language_setting = LANGUAGE_OF_PIPELINE
    if config_path is None:
        new_config_path = output_path / "config.cfg"
        language_setting = LANGUAGE_OPTION
    # Don't show spaCy's hint to fill the config first, because `fit` fills it automatically.
    with (
        errors_shown(language_setting=language_setting),
        show_validation_error(config_path or new_config_path, hint_fill=False),
    ):
        fitted = run(
            config_path,
            output_path,
            reading=reading,
            overrides=overrides,
            command=words_of_command(ctx),
            # With --json, the summary is part of the result.
            on_corpus=ignore_corpus if print_json else print_corpus,
        )
    print_result(fitted.as_dict(), fitted.as_text(), print_json, new_config_path, fitted.path)
