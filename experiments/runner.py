"""The engine: runs what a spec lists, keeps the results, and fills in the page."""

import platform
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from spacy.util import load_config
from thinc.api import Config
from tqdm import tqdm

from spacy_costner.commands.runs import (
    Done,
    Failed,
    MakeExecutor,
    Run,
    kept,
    local_processes,
    run_all,
)

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "training" / "experiments"
PAGE = ROOT / "docs" / "reproduction.md"
PACKAGES = ("spacy-costner", "spacy", "thinc", "numpy", "scipy")

Figures = Dict[str, Any]
"""What a page has places for: numbers, words and tables."""


class Runner:
    """Runs what has no result yet, and adds up the CPU time of all."""

    def __init__(self, folder: Path, make_executor: Optional[MakeExecutor] = None) -> None:
        """Initialize.

        folder (Path): Where results are kept, in files named by the runs.
        make_executor (Optional[MakeExecutor]): See `spacy_costner.commands.runs.run_all`.
        """
        self.folder = folder
        self.make_executor = make_executor
        self.seconds = 0.0

    def __call__(self, runs: Sequence[Run]) -> List[Any]:
        """Run, or take what is kept.

        runs (Sequence[Run]): The runs, each with a name of its own.
        RETURNS (List[Any]): What each function returned.
        RAISES (ValueError): If any failed, once the others have come to their end.
        """
        paths = {run.name: self.folder / f"{run.name}.json" for run in runs}
        runs = [run._replace(path=paths[run.name]) for run in runs]
        found = {run.name: kept(paths[run.name], run.key) for run in runs}
        todo = [run for run in runs if found[run.name] is None]
        failed: List[str] = []
        with tqdm(total=len(runs), initial=len(runs) - len(todo), unit="run") as bar:
            for run, ended in run_all(todo, self.make_executor if len(todo) > 1 else None):
                found[run.name] = ended
                if isinstance(ended, Failed):
                    failed.append(f"{run.name}: {ended.reason}\n{ended.trace}")
                bar.set_postfix_str(run.name, refresh=False)
                bar.update()
        if failed:
            raise ValueError("\n".join([f"{len(failed)} of {len(runs)} runs failed", *failed]))
        done = [Done._make(found[run.name] or ()) for run in runs]
        self.seconds += sum(one.seconds for one in done)
        return [one.value for one in done]


def run_experiment(name: str, *, quick: bool, jobs: int) -> str:
    """Run an experiment.

    name (str): The name of its spec.
    quick (bool): Whether only a part of it; else its section of the page is written.
    jobs (int): How many runs go side by side.
    RETURNS (str): Its section.
    """
    runner = Runner(OUTPUT / name / ("quick" if quick else "full"), local_processes(jobs))
    figures = import_module(f"experiments.{name}").experiment(runner, quick)
    text = fill(template(name), {"provenance": provenance(name, runner.seconds), **figures})
    if not quick:
        write_section(PAGE, name, text)
    return text


def spec(name: str) -> Config:
    """What an experiment is made of: corpora, settings, methods, grids, published figures."""
    return load_config(ROOT / "experiments" / f"{name}.cfg", interpolate=True)


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


def fill(text: str, figures: Mapping[str, Any]) -> str:
    """Fill in a template."""
    return text.format_map(figures).strip()


def write_section(page: Path, name: str, text: str) -> None:
    """Put a section on a page in the place of the one of the same name, or at its end.

    page (Path): A file in Markdown.
    name (str): The name of the section.
    text (str): The section.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n\n{text}\n\n{end}"
    before = page.read_text(encoding="utf8") if page.exists() else ""
    if begin in before:
        head, rest = before.split(begin)
        section = head + section + rest.split(end)[1]
    else:
        section = f"{before.rstrip()}\n\n{section}\n"
    page.write_text(section, encoding="utf8")


def listed(values: Sequence[object], last: str = ", ") -> str:
    """Values in a sentence."""
    *most, end = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return last.join([", ".join(most), end]) if most else end
