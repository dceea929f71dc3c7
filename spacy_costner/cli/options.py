"""Arguments and options shared by several commands, and functions to read their values."""

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
"""The help text of --file-tokens. See `readers.inputs` for the two ways to read docs."""

FileTokensOption = Annotated[
    bool, Option("--file-tokens", help=FILE_TOKENS_HELP.format(docs="docs"))
]
"""The --file-tokens option of commands that evaluate a pipeline."""


def read_overrides(ctx: typer.Context) -> dict[str, Any]:
    """Parse config overrides, such as --paths.train. Click stores them in `ctx.args`, because they
    aren't options of the command. As in spaCy, overrides in the environment variable
    SPACY_CONFIG_OVERRIDES are included and take precedence."""
    try:
        return parse_config_overrides([*ctx.args])
    except NoSuchOption as error:
        # Typer may use a different version of Click than spaCy and not handle this exception.
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
    """Load a pipeline and the annotated docs to evaluate it on.

    model (str): Package name or path of the pipeline.
    dev_path (Path): The annotated docs, in any supported format. If the pipeline's components use a
        `spans_key`, the annotation is read into `doc.spans`, and otherwise into `doc.ents`.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Path | None): Python file with registered functions to be imported.
    reading (ReadOptions): The options for reading the docs.
    file_tokens (bool): Whether to use the tokens and sentence starts of the file. See
        `FileTokensOption`.
    RETURNS (tuple[Language, list[Example]]): The pipeline and the examples.
    """
    nlp = load_pipeline(model, code_path, use_gpu)
    # If the components use different keys, or only some use a key, `doc.ents` is used.
    spans_keys = {ner.annotation.spans_key for ner in find_components(nlp).values()}
    spans_key = None
    if len(spans_keys) == 1:
        spans_key = spans_keys.pop()
    reader = make_reader(dev_path, spans_key=spans_key, **reading.settings())
    examples = examples_to_measure(nlp, reader, file_tokens=file_tokens)
    return nlp, list(progress(examples, desc="read", unit="doc"))
