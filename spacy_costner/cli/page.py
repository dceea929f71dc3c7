"""Export a pipeline as an HTML page or a JavaScript module.

The decorator `command` adds the options of `make_web_model`. `run` is `make_web_model` with these
options set. A model with *label memory* stores which labels each word had in the training docs."""

import gzip
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from markupsafe import Markup
from typer import Option

from ..export.bundling import bundle, module_names, read_source
from ..export.model import WebModel, make_web_model
from ..files.saving import check_file, save_file, save_text
from ..pages.formatting import number
from ..pages.label_colours import label_colours
from ..pages.rendering import render
from ..pipeline.promises import Promise
from ..workflows.components import find_components
from ..workflows.config.loading import load_pipeline
from ..workflows.reports.reporting import MISS_COSTS
from .command_line import command
from .options import CodeOption, ModelArg
from .output import errors_shown
from .promises import promise_text

MODEL_FILE = "model.bin"
LICENSE = "LICENSE"
"""The licence of the modules, including spaCy's copyright notice, because some modules were ported
from spaCy."""

TYPES = "ner.d.ts"
"""The TypeScript declarations of the module."""

EXAMPLES = ("index.html", "example.mjs", "package.json")
"""Examples of how to use the module in a web page and in Node."""


@command(
    make_web_model,
    options={
        "keep_memory": Option(
            "--memory/--no-memory",
            help="Whether the model file has label memory and the words that are rare in the "
            "training docs. A page publishes them, including names of people",
        )
    },
)
def page_cli(
    run: partial[WebModel],  # `make_web_model` with its options set by `command`
    model: ModelArg,
    output_path: Annotated[
        Path | None, Option("--output", "-o", help="Output HTML file", dir_okay=False)
    ] = None,
    *,
    module_path: Annotated[
        Path | None,
        Option(
            "--module",
            help="Output folder for a JavaScript module, the model file, and examples for a page "
            "and for Node",
            file_okay=False,
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        Option("--text", "-t", help="Text that the page starts with. Repeatable"),
    ] = None,
    code_path: CodeOption = None,
) -> None:
    """
    Export a linear pipeline as a single HTML file that runs in the browser, without Python or a
    network connection, or as a JavaScript module. Both publish words that the model has learned,
    including names of people: see --no-memory.
    """
    with errors_shown():
        if output_path is None and module_path is None:
            raise ValueError("page: expected --output or --module, got neither")
        check_file(output_path, inputs=[model])
        nlp = load_pipeline(model, code_path)
        web_model = run(nlp)
        if output_path is not None:
            (ner,) = find_components(nlp).values()  # `make_web_model` requires exactly one
            promise = ner.guarantee
            save_text(output_path, ner_page(web_model, promise, texts or []))
            typer.echo(f"Written to {output_path}: {size_text(output_path.read_bytes())}")
        if module_path is not None:
            save_module(module_path, web_model)
            typer.echo(f"Written to {module_path}: {MODEL_FILE} has {size_text(web_model.data)}")
        typer.echo(published_text(web_model))
        if run.keywords["keep_memory"]:
            typer.echo("--no-memory leaves out label memory and rare words.")


def ner_page(web_model: WebModel, promise: Promise | None, texts: list[str]) -> str:
    """Render a self-contained page that predicts entities. The first text is shown initially, and
    the others can be selected."""
    info = web_model.info
    # The model file doesn't include guarantees per group, because the group of a text on the page
    # is unknown.
    promise_line = None
    if info["promise"] is not None and promise is not None:
        promise_line = promise_text(promise)
    # The initial value of the threshold slider is 0.5 if the pipeline has no threshold.
    threshold = info["threshold"]
    if threshold is None:
        threshold = 0.5
    data = {
        "model": b64encode(web_model.data).decode("ascii"),
        "worker": bundle("page_worker.js"),
        "colours": label_colours(info["labels"]),
        "miss_costs": MISS_COSTS,
        "texts": texts,
    }
    return render(
        "ner.html",
        info=info,
        data=data,
        script=Markup(bundle("page.js")),
        decoding=decoding_text(info),
        start=threshold,
        promise=promise_line,
        published=published_text(web_model),
        license=read_source(LICENSE),
    )


def save_module(folder: Path, web_model: WebModel) -> None:
    """Save the modules, their type declarations and licence, the model file and examples to a
    folder. Other files in the folder are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in [*module_names("ner.js"), TYPES, LICENSE, *EXAMPLES]:
        save_text(folder / name, read_source(name))
    save_file(folder / MODEL_FILE, lambda path: path.write_bytes(web_model.data))


def decoding_text(info: dict[str, Any]) -> str:
    """Describe in words how a pipeline selects entities: "a threshold of 0.5 (0.2 for PER)"."""
    if info["decoding"] == "min-cost":
        return "the lowest expected cost"
    # The thresholds or biases of individual labels
    settings_of_labels = info["thresholds_of_labels"]
    exceptions = ""
    if settings_of_labels:
        values = [f"{value:g} for {label}" for label, value in settings_of_labels.items()]
        exceptions = f" ({', '.join(values)})"
    if info["decoding"] == "threshold":
        return f"a threshold of {info['threshold']:g}{exceptions}"
    if info["bias"] or settings_of_labels:
        return f"the best path, with a bias of {info['bias']:g}{exceptions}"
    return "the best path"


def published_text(web_model: WebModel) -> str:
    """Describe the potentially private data contained in a page or model file."""
    text = f"It publishes {number(web_model.n_words)} words of the training texts"
    if web_model.n_remembered:
        text += (
            f", and hashes of {number(web_model.n_remembered)} words that label memory remembers, "
            "which reveal whether it remembers a given word"
        )
    return f"{text}. They may include names of people."


def size_text(content: bytes) -> str:
    """Format the uncompressed and compressed size of a file."""
    compressed = gzip.compress(content)
    return f"{number(len(content) / 1000)} kB, {number(len(compressed) / 1000)} kB gzipped"
