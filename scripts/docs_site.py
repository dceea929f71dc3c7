"""The hooks of mkdocs.yml: add pages generated from the code, and adapt links out of docs/.

mkdocs calls the functions `on_…`, griffe calls `ListParameters`. The other functions generate the
pages.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import getdoc, isclass, signature, unwrap
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import griffe
import typer
from mkdocs.structure.files import File, Files
from thinc.api import Config

from spacy_costner import workflows
from spacy_costner.cli import COMMANDS, costner

PARSERS: dict[str, Any] = typer.main.get_command(costner).commands  # type: ignore[attr-defined]
"""The commands as click objects, by name, with their arguments, options and help."""

ROOT = Path(__file__).parent.parent
COPIED = {"CHANGELOG.md": "changelog.md", "benchmarks/RESULTS.md": "benchmarks.md"}
LINKS = {**COPIED, "configs": "reference/config.md"}
"""The pages of the site that links out of docs/ lead to."""

GROUPS = {
    "spacy_factories": "The component",
    "thinc_losses": "Losses: Equations and papers are in [losses](../losses.md).",
    "spacy_misc": "Costs, decoding, features and more: See [costs](../losses.md#costs), "
    "[decoding](../decoding.md) and [features](../linear.md#features).",
    "spacy_architectures": "Models",
    "spacy_readers": "The reader of corpora: See [data](../data.md).",
    "spacy_augmenters": "Augmenters",
    "spacy_scorers": "Scorers",
    "spacy_callbacks": "Callbacks of initialization",
    "spacy_loggers": "Loggers",
}
"""The groups of entry points, in the order of the page."""

ROOMS = {
    "config": "Configs",
    "fitting": "Training",
    "forecasting": "Forecasts",
    "reports": "Reports",
    "calibration": "Calibration and guarantees",
    "sampling": "Sampling",
    "noisy_labels": "Noisy labels",
    "apply": "Many files",
    "vectors": "Vectors",
}
"""The rooms of `spacy_costner.workflows` with public functions, and the titles of their pages."""

LOSSES = "likelihood margin perceptron mce fscore zscore schedule"
API = {
    "component": [
        "pipeline.component",
        "pipeline.saved_pipe",
        "pipeline.promises",
        "annotation.settings",
    ],
    "readers": ["readers"],
    "presidio": ["integrations.presidio"],
    "serve": ["serve.app", "serve.session", "serve.store"],
    "losses": [*(f"losses.{name}" for name in LOSSES.split()), "types"],
    "costs": ["costs.tables", "costs.label_tree", "costs.cost_matrix"],
    "decoding": ["decoding"],
    "chain": ["chain", "chain.queries", "chain.constraints"],
    "metrics": ["metrics", "metrics.calibration", "metrics.conformal"],
}
"""The modules on each of the other pages of the Python API."""

API_MEMBERS = {
    "integrations.presidio": ["CostnerNlpEngine", "CostnerRecognizer"],
    "serve.app": ["make_app"],
    "serve.session": ["AnnotationSession"],
    "serve.store": ["AnnotationStore"],
}
"""The members called by users, for modules that also contain other members."""

THEME_WIDTHS = {"76.25em": "68.75em", "76.234375em": "68.734375em"}
"""The widths in the theme's style sheets and scripts, and ours. Narrow windows have a button
instead of the navigation. The theme shows the navigation from 1,220 pixels, our site from 1,100."""

LIVE_PAGE = "live.html"
LIVE_PLACE = "<!-- live page -->"
"""The placeholder for a link to the live page, which only exists on the site."""

LIVE_LINK = (
    f"[**Try it**]({LIVE_PAGE}): a pipeline that has learned the made-up people, companies and "
    "places of the demo corpus."
)
LIVE_TEXTS = [
    "Grace Olsen studied medicine at Lyon University before opening a clinic in Singapore.",
    "Orbis Steel has bought Quantix for 40 million dollars. Its factory in Cork stays open.",
    "In a speech in New Seville, Marsh promised lower taxes. Robert Silva, a surgeon, left.",
]
MAKE_LIVE_PAGE = f"""
python {ROOT}/scripts/make_demo_corpus.py .
python {ROOT}/scripts/make_demo_corpus.py more --seed 1
python -m spacy costner fit --train train.spacy --dev dev.spacy --calibrate --output fitted
python -m spacy costner guarantee fitted/model-best more/test.spacy --miss 0.05 --output model
"""
"""The commands that make the pipeline for the live page: the commands of the demo, with a different
limit for the miss rate."""

ABOUT_PAPERS = """The losses come from Gimpel & Smith, Higashiyama et al., Ricci et al., Suzuki et
al. and Tsuboi & Kashima. We have [repeated](reproduction.md) their experiments. Each entry links to
the pages that cite the paper."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages generated from the code. mkdocs calls this function before it reads the
    files."""
    pages: dict[str, str] = {}
    for source, page in COPIED.items():
        pages[page] = (ROOT / source).read_text("utf8")
    pages["papers.md"] = papers()
    pages["reference/config.md"] = "\n".join(config_reference())
    pages["reference/commands.md"] = "\n".join(command_reference())
    pages["reference/python/index.md"] = "\n".join(workflow_list())
    for room in ROOMS:
        pages[f"reference/python/{room}.md"] = "\n".join(room_page(room))
    for name, modules in API.items():
        pages[f"reference/python/{name}.md"] = api(name, modules)
    pages[LIVE_PAGE] = live_page()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links out of docs/ into links within the site, and add the link to the live page. mkdocs
    calls this function for each page."""
    for old, new in LINKS.items():
        markdown = markdown.replace(f"](../{old})", f"]({new})")
    markdown = markdown.replace(LIVE_PLACE, LIVE_LINK)
    return markdown.replace("](docs/", "](")  # in the changelog


def live_page() -> str:
    """Generate the live page, for a pipeline trained on the demo corpus, whose texts are made
    up."""
    with TemporaryDirectory() as folder:
        page = ["page", "model", "--output", "page.html"]
        for text in LIVE_TEXTS:
            page += ["--text", text]
        commands = [line.split() for line in MAKE_LIVE_PAGE.strip().splitlines()]
        commands.append(["python", "-m", "spacy", "costner", *page])
        for _, *arguments in commands:  # "python" becomes this interpreter
            subprocess.run([sys.executable, *arguments], cwd=folder, check=True)
        return (Path(folder) / "page.html").read_text(encoding="utf8")


def papers() -> str:
    """Generate the page of all papers listed on other pages, with links to these pages. Papers are
    sorted by the surname of the first author."""
    links_of_paper: dict[str, list[str]] = {}
    for path in sorted((ROOT / "docs").glob("*.md")):
        _, _, list_of_papers = path.read_text("utf8").partition("\n## Papers\n")
        # Continuation lines of an entry start with two spaces.
        for entry in re.findall(r"^- (.*(?:\n  .*)*)", list_of_papers, flags=re.MULTILINE):
            paper = " ".join(entry.split())
            links_of_paper.setdefault(paper, []).append(f"[{path.stem}]({path.name})")
    items: list[str] = []
    for paper in sorted(links_of_paper, key=from_surname):
        items.append(f"- {paper} {', '.join(links_of_paper[paper])}")
    return "\n".join(["# Papers", "", ABOUT_PAPERS, "", *items])


def from_surname(paper: str) -> str:
    """Remove the initials of the first author from a paper such as "J. D. Lafferty …"."""
    return re.sub(r"^(\S+\. )+", "", paper)


def config_reference() -> Iterator[str]:
    """Generate the config reference: a config with every setting, then every registered
    function."""
    yield "# Config\n\n## Every setting\n\n`configs/base.cfg`:\n\n```ini"
    yield (ROOT / "configs" / "base.cfg").read_text("utf8") + "```\n"
    for group, title in GROUPS.items():
        heading, _, introduction = title.partition(": ")
        yield f"## {heading}\n\n{introduction}\n"
        for entry in sorted(entry_points(group=group)):
            if not entry.value.startswith("spacy_costner."):
                continue  # an entry point of another package
            name = entry.name.removeprefix("spacy_costner.").removesuffix(".v1")
            yield f"### {name}\n\n```ini\n{block(group, entry)}\n```\n"
            yield f"::: {entry.module}.{entry.attr}"
            yield "    options: {show_root_heading: false, show_root_toc_entry: false}\n"


def block(group: str, entry: EntryPoint) -> str:
    """Get the config block of a registered function, including settings with a default. The group
    of the entry point is spacy_ or thinc_ and the name of the registry."""
    _, registry_name = group.split("_")
    key = f"@{registry_name}"
    if registry_name == "factories":
        key = "factory"
    settings: dict[str, Any] = {key: entry.name}
    for name, parameter in signature(entry.load()).parameters.items():
        if isinstance(parameter.default, (bool, int, float, str, list, tuple, type(None))):
            settings[name] = parameter.default
    _, _, lines = Config({"block": settings}).to_str().partition("\n")  # without [block]
    return lines


def command_reference() -> Iterator[str]:
    """Generate the command reference: every command with its arguments and options, grouped by
    use."""
    yield "# Commands\n"
    # The first field of a row of COMMANDS is the name of the command, the third its purpose.
    for group, commands in groupby(COMMANDS, key=lambda command: command[2]):
        links = ", ".join(f"[`{name}`](#{name})" for name, *_ in commands)
        yield f"- {group}: {links}"
    yield ""

    for name, *_ in COMMANDS:
        command = PARSERS[name]
        yield f"## {name}\n\n{' '.join((command.help or '').split())}\n"
        words = [name, *command.collect_usage_pieces(typer.Context(command))]
        yield f"```text\npython -m spacy costner {' '.join(words)}\n```\n"
        yield "| argument or option | description | default |\n|---|---|---|"
        for parameter in command.params:
            if not parameter.hidden:
                names = [*parameter.opts, *parameter.secondary_opts]
                cell = ", ".join(f"`{name}`" for name in names)
                yield f"| {cell} | {parameter.help or ''} | {default(parameter)} |"
        yield ""


def default(parameter: Any) -> str:
    """Format the default of an argument or option for the table."""
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if parameter.default in (None, False):
        return ""
    return f"`{parameter.default}`"


def functions_of(room: str) -> list[Callable]:
    """Get the public functions of a room of `spacy_costner.workflows`, sorted by name."""
    functions: list[Callable] = []
    for name in workflows.__all__:
        function = getattr(workflows, name)
        module = function.__module__.removeprefix("spacy_costner.workflows.")
        if module.split(".")[0] == room:
            functions.append(function)
    return functions


def workflow_list() -> Iterator[str]:
    """Generate the first page of the Python API: every public function, by room."""
    yield "# Python API\n\nMost commands have a function of the same name:\n"
    yield "```python\nfrom spacy_costner.workflows import calibrate, fit, guarantee\n```\n"
    yield "| function | does |\n|---|---|"
    for room, title in ROOMS.items():
        yield f"| **[{title}]({room}.md)** | |"
        for function in functions_of(room):
            link = f"{room}.md#{place(function)}"
            yield f"| [`{function.__name__}`]({link}) | {summary(function)} |"
    yield "\nSee also the [component](component.md) and the [readers](readers.md) of corpora."


def summary(function: Callable) -> str:
    """Get the first sentence of a docstring."""
    paragraph = (getdoc(function) or "").partition("\n\n")[0]
    return re.split(r"(?<=\.)\s", paragraph)[0].replace("\n", " ")


def room_page(room: str) -> Iterator[str]:
    """Generate a page of the Python API: the public functions of a room, and the types of their
    options and results."""
    functions = functions_of(room)
    names = ", ".join(function.__name__ for function in functions)
    yield f"# {ROOMS[room]}\n"
    yield f"```python\nfrom spacy_costner.workflows import {names}\n```\n"
    for function in functions:
        yield f"::: {place(function)}"
        yield f"    options: {{{SHOWN}, heading_level: 2}}\n"
        for options_type in options_types(function):
            yield f"::: {place(options_type)}"
            yield f"    options: {{{SHOWN}, members: false}}\n"
        for result_type in result_types(function):
            yield f"::: {place(result_type)}"
            yield f"    options: {{{SHOWN}}}\n"


SHOWN = "show_root_heading: true, show_root_toc_entry: true, show_root_full_path: false"
"""The mkdocstrings options that show a function or class with its name and signature."""


def place(function_or_type: Any) -> str:
    """Get the path of a function or class, which mkdocstrings also uses as its anchor."""
    return f"{function_or_type.__module__}.{function_or_type.__name__}"


def options_types(function: Callable) -> list[type]:
    """Get the dataclasses whose fields are arguments of a function, such as `InitOptions` for
    `init`: see `takes_fields_of`, which wraps a function of the dataclass."""
    wrapped = unwrap(function)
    if wrapped is function:
        return []
    types: list[type] = []
    for parameter in signature(wrapped).parameters.values():
        if isclass(parameter.annotation) and is_dataclass(parameter.annotation):
            types.append(parameter.annotation)
    return types


def result_types(function: Callable) -> list[type]:
    """Get the classes in the return annotation of a function that are from the same module."""
    annotation = signature(function).return_annotation
    types: list[type] = []
    for result in (annotation, *get_args(annotation)):
        if isclass(result) and result.__module__ == function.__module__:
            types.append(result)
    return types


def api(name: str, modules: list[str]) -> str:
    """Generate a page of the Python API. mkdocstrings replaces each ":::" with the docstrings of a
    module."""
    blocks = [f"# {name.capitalize()}\n"]
    for module in modules:
        blocks.append(f"## {module}\n\n::: spacy_costner.{module}")
        if module in API_MEMBERS:
            blocks.append(f"    options: {{members: {API_MEMBERS[module]}}}")
        blocks.append("")
    return "\n".join(blocks)


def on_post_build(config: Any) -> None:
    """Make the theme show the navigation in windows of 1,100 pixels. mkdocs calls this function at
    the end."""
    assets = Path(config["site_dir"], "assets")
    for path in [*assets.glob("stylesheets/*.css"), *assets.glob("javascripts/*.js")]:
        text = path.read_text("utf8")
        for theme_width, width in THEME_WIDTHS.items():
            text = text.replace(theme_width, width)
        path.write_text(text, encoding="utf8")


PARAMETERS = r"^(?:\w+ \([^)\n]*\),? ?)+(?=: )"
"""The start of a docstring line up to the colon: one or several parameters with a common
description."""


def list_parameters(match: re.Match) -> str:
    """Convert a match of PARAMETERS to a list item, with bold names."""
    return "- " + re.sub(r"(\w+) \(([^)]*)\)", r"**\1** (`\2`)", match[0])


class ListParameters(griffe.Extension):
    """Converts parameters in docstrings, in spaCy's format `name (Type): …`, to lists, and
    references to functions to links."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object. griffe calls this method for each object."""
        if obj.docstring is None:
            return
        text = re.sub(PARAMETERS, list_parameters, obj.docstring.value, flags=re.MULTILINE)

        # "see `name`" becomes a link if the module contains the name. "\1" stands for the name.
        public_names = [name for name in obj.module.members if not name.startswith("_")]
        reference = rf"(?<=[Ss]ee )`({'|'.join(public_names)})`"
        target = rf"{obj.module.path}.\1"
        link = rf'<autoref optional identifier="{target}"><code>\1</code></autoref>'
        obj.docstring.value = re.sub(reference, link, text)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """List the fields of a dataclass or NamedTuple, with their comments. griffe calls this
        method for each class."""
        if cls.docstring is None or "__init__" in cls.members:
            return
        lines = cls.lines_collection[cls.filepath]
        items: list[str] = []
        for field in cls.attributes.values():
            is_described = field.docstring or f"**{field.name}**" in cls.docstring.value
            if field.annotation and not is_described and not field.name.startswith("_"):
                items.append(f"- **{field.name}** (`{field.annotation}`){comment(lines, field)}")
        cls.docstring.value += "\n\n" + "\n".join(items)


def comment(lines: list[str], field: griffe.Attribute) -> str:
    """Get the comment after a field of a class, or above it, preceded by a colon. Returns an empty
    string if there is none."""
    first, last = field.lineno or 0, field.endlineno or 0
    _, _, text = lines[last - 1].partition("  # ")
    above: list[str] = []
    while not text and lines[first - 2 - len(above)].strip().startswith("# "):
        above.insert(0, lines[first - 2 - len(above)].strip()[2:])
    text = text or " ".join(above)
    return f": {text}" if text else ""
