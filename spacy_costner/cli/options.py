"""Arguments and options that several commands have, and functions that read their values."""

from pathlib import Path
from typing import Annotated, Any

import typer
from click import NoSuchOption
from spacy.cli._util import parse_config_overrides
from spacy.language import Language
from spacy.training import Example
from typer import Argument, Option

from ..progress import progress
from ..readers import DEFAULTS, ReadOptions, examples_to_measure, make_reader
from ..workflows.components import find_components
from ..workflows.config.loading import load_pipeline

ModelArg = Annotated[str, Argument(help="Trained pipeline: a package or a folder")]


DevArg = Annotated[Path, Argument(help="Development corpus: see `costner convert`", exists=True)]


OutputOption = Annotated[Path, Option("--output", "-o", help="Output folder for the pipeline")]


NameOption = Annotated[str, Option("--name", help="Name of the component")]


GpuOption = Annotated[int, Option("--gpu-id", "-g", help="GPU ID or -1 for CPU")]


CodeOption = Annotated[
    Path | None,
    Option("--code", "-c", help="Python file with registered functions to be imported"),
]

AddressOption = Annotated[
    str | None,
    Option(
        "--address", help="Ray cluster, as host:port or auto", show_default="none: this machine"
    ),
]

FILE_TOKENS_HELP = (
    "Read {docs} with the tokens and sentence starts of their file, as `spacy apply` and "
    "`annotate` do. Otherwise only their text is read, as `spacy evaluate` does"
)
"""The help text of --file-tokens. `readers.inputs` explains the two ways to read docs."""

FileTokensOption = Annotated[
    bool, Option("--file-tokens", help=FILE_TOKENS_HELP.format(docs="docs"))
]
"""The option of commands that evaluate a pipeline on docs."""


def read_overrides(ctx: typer.Context) -> dict[str, Any]:
    """Read the settings of the config that the command line overrides, such as --paths.train. click
    has put them into `ctx.args`, as the command has no options with these names. As in spaCy, the
    settings of the environment variable SPACY_CONFIG_OVERRIDES are read, too, and come first."""
    try:
        return parse_config_overrides([*ctx.args])
    except NoSuchOption as error:
        # Typer may use a different version of click than spaCy, and wouldn't know this error.
        ctx.fail(error.format_message())


def load_with_examples(
    model: str,
    dev_path: Path,
    use_gpu: int,
    code_path: Path | None,
    *,
    reading: ReadOptions = DEFAULTS,
    file_tokens: bool = False,
) -> tuple[Language, list[Example]]:
    """Load a pipeline, and the annotated docs to measure it on.

    model (str): The pipeline: a package or a folder.
    dev_path (Path): The docs; any format. Their annotation is read from where the components of the
        pipeline have theirs: from a key of `doc.spans` or, without one, from `doc.ents`.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Path | None): Python file with registered functions to be imported.
    reading (ReadOptions): How to read the docs.
    file_tokens (bool): Whether docs have the tokens and sentence starts of their file: see
        `FileTokensOption`.
    RETURNS (tuple[Language, list[Example]]): The pipeline and the docs.
    """
    nlp = load_pipeline(model, code_path, use_gpu)
    # If components have different keys, or only some of them have a key, `doc.ents` is read.
    spans_keys = {ner.annotation.spans_key for ner in find_components(nlp).values()}
    spans_key = None
    if len(spans_keys) == 1:
        spans_key = spans_keys.pop()
    reader = make_reader(dev_path, spans_key=spans_key, **reading.settings())
    examples = examples_to_measure(nlp, reader, file_tokens=file_tokens)
    return nlp, list(progress(examples, desc="read", unit="doc"))
