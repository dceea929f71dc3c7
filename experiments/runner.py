"""The engine: runs what a spec lists, keeps the results, and fills in the page."""

import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib import import_module
from importlib.metadata import version
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any

from spacy.util import load_config
from thinc.api import Config
from tqdm import tqdm

from spacy_costner.analysis.runs import (
    Done,
    Failed,
    MakeExecutor,
    Run,
    kept,
    local_processes,
    ray_cluster,
    run_all,
)
from spacy_costner.cli.plots import save

from .corpora import ROOT

OUTPUT = ROOT / "training" / "experiments"
PAGE = ROOT / "docs" / "reproduction.md"
PACKAGES = ("spacy-costner", "spacy", "thinc", "numpy", "scipy")

Figures = dict[str, Any]
"""What a page has places for: numbers, words and tables."""


class Runner:
    """Runs what has no result yet, and adds up the CPU time of all."""

    def __init__(
        self,
        folder: Path,
        make_executor: MakeExecutor | None = None,
        figures: Path | None = None,
    ) -> None:
        """Initialize.

        folder (Path): Where results are kept, in files named by the runs.
        make_executor (MakeExecutor | None): See `spacy_costner.analysis.runs.run_all`.
        figures (Path | None): The folder of pictures; None: that of the results.
        """
        self.folder = folder
        self.make_executor = make_executor
        self.figures = figures or folder
        self.seconds = 0.0

    def __call__(self, runs: Sequence[Run]) -> list[Any]:
        """Run, or take what is kept: what each function returned. Each run has a name of its own.

        RAISES (ValueError): If any failed, once the others have come to their end.
        """
        runs = [run._replace(path=self.folder / f"{run.name}.json") for run in runs]
        found = {run.name: kept(run.path, run.key) for run in runs if run.path}
        todo = [run for run in runs if found[run.name] is None]
        ended = run_all(todo, self.make_executor if len(todo) > 1 else None)
        for run, one in tqdm(ended, total=len(todo), unit="run"):
            found[run.name] = one
        failed = [
            f"{name}: {one.reason}\n{one.trace}"
            for name, one in found.items()
            if isinstance(one, Failed)
        ]
        if failed:
            raise ValueError("\n".join([f"{len(failed)} of {len(runs)} runs failed", *failed]))
        done = [Done._make(found[run.name] or ()) for run in runs]
        self.seconds += sum(one.seconds for one in done)
        return [one.value for one in done]

    def grid(self, name: str, function: Callable[..., Any], **values: Any) -> dict[Any, Any]:
        """Run a function with all combinations of some values of its arguments: what it returned,
        by the combination."""
        cells = [*product(*values.values())]
        runs = [
            Run("-".join(map(str, (name, *cell))), function, dict(zip(values, cell)))
            for cell in cells
        ]
        return dict(zip(cells, self(runs)))

    def picture(self, name: str, figure: Any) -> str:
        """Save a figure of matplotlib: the name of the file."""
        self.figures.mkdir(parents=True, exist_ok=True)
        save(figure, self.figures / f"{name}.svg")
        return f"{name}.svg"


def run_experiment(name: str, *, quick: bool, jobs: int, address: str | None = None) -> str:
    """Run an experiment, with so many jobs side by side, or on a Ray cluster: its section of the
    page, which is written if it isn't a quick part of it only."""
    folder = OUTPUT / name / ("quick" if quick else "full")
    figures = None if quick else PAGE.parent / "figures"
    runner = Runner(folder, ray_cluster(address) or local_processes(jobs), figures)
    text = section(name, runner, quick)
    if not quick:
        write_section(PAGE, name, text)
    return text


def section(name: str, runner: Runner, quick: bool) -> str:
    """Run an experiment and fill in its page with what the spec says of its size, what it returns
    and where that comes from."""
    size = size_of(spec(name), quick)
    figures = import_module(f"experiments.{name}").experiment(runner, size)
    return fill(template(name), {**size, **figures, "provenance": provenance(name, runner.seconds)})


def spec(name: str) -> Config:
    """What an experiment is made of: corpora, settings, methods, grids, published figures."""
    return load_config(ROOT / "experiments" / f"{name}.cfg", interpolate=True)


def size_of(config: Mapping[str, Any], quick: bool) -> dict[str, Any]:
    """How much is run: [full] of a spec, with what [quick] has in the place of it."""
    return {**config["full"], **(config["quick"] if quick else {})}


def provenance(name: str, seconds: float) -> str:
    """Where figures come from: the command, the time of all runs, the versions."""
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return (
        f"`python -m experiments {name}`, {date.today()}: {seconds / 60:.0f} minutes of one core, "
        f"Python {platform.python_version()}, {versions}."
    )


def template(name: str) -> str:
    """The page of an experiment, with places in braces for the figures."""
    return (ROOT / "experiments" / f"{name}.md").read_text(encoding="utf8")


class _Page(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        """Values of a list stand one after another; the format says what is before the last one."""
        if not isinstance(value, list):
            return str(super().format_field(value, format_spec))
        *most, last = (f"{one:g}" if isinstance(one, float) else str(one) for one in value)
        return (format_spec or ", ").join([", ".join(most), last] if most else [last])


def fill(text: str, figures: Mapping[str, Any]) -> str:
    """Fill in a template."""
    return _Page().vformat(text, (), figures).strip()


def write_section(page: Path, name: str, text: str) -> None:
    """Put a section on a page in the place of the one of the same name, or at its end."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n\n{text}\n\n{end}"
    before = page.read_text(encoding="utf8") if page.exists() else ""
    if begin in before:
        head, rest = before.split(begin)
        section = head + section + rest.split(end)[1]
    else:
        section = f"{before.rstrip()}\n\n{section}\n"
    page.write_text(section, encoding="utf8")
