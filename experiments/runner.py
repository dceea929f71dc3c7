"""Run an experiment as its spec describes, cache the results, and fill in its template.

A run is a function with arguments. If there are several runs, they are called in other processes.
The result is saved in a file, which is read the next time. A template has placeholders in braces
for the figures.
"""

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

from spacy_costner.cli.plots import save_figure
from spacy_costner.workflows.executors import local_processes
from spacy_costner.workflows.ray_executor import ray_cluster
from spacy_costner.workflows.result_cache import read_cache
from spacy_costner.workflows.runs import Done, Failed, MakeExecutor, Run, run_all

from .corpora import ROOT

OUTPUT = ROOT / "training" / "experiments"
PAGE = ROOT / "docs" / "reproduction.md"
PACKAGES = ("spacy-costner", "spacy", "thinc", "numpy", "scipy")

Figures = dict[str, Any]
"""The values for the placeholders of a template: numbers, words and tables."""


class Runner:
    """Executes runs that have no cached result yet, and adds up the CPU time of all runs."""

    def __init__(
        self,
        folder: Path,
        make_executor: MakeExecutor | None = None,
        figures: Path | None = None,
    ) -> None:
        """Initialize.

        folder (Path): The folder for the results, in files named after the runs.
        make_executor (MakeExecutor | None): See `spacy_costner.workflows.executors.run_all`.
        figures (Path | None): The folder for pictures. None: the folder for the results.
        """
        self.folder = folder
        self.make_executor = make_executor
        self.figures = figures or folder
        self.seconds = 0.0

    def __call__(self, runs: Sequence[Run]) -> list[Any]:
        """Execute the runs that have no cached result. Returns the return values of all runs, in
        order.

        runs (Sequence[Run]): The runs, with different names.
        RAISES (ValueError): If any run failed. The other runs are finished first.
        """
        results: dict[str, Any] = {}
        missing: list[Run] = []
        for run in runs:
            path = self.folder / f"{run.name}.json"
            results[run.name] = read_cache(path, run.key)
            if results[run.name] is None:
                missing.append(run._replace(path=path))
        # A single run doesn't need other processes.
        make_executor = self.make_executor if len(missing) > 1 else None
        ended_runs = run_all(missing, make_executor)
        for run, result in tqdm(ended_runs, total=len(missing), unit="run"):
            results[run.name] = result

        failures: list[str] = []
        for name, result in results.items():
            if isinstance(result, Failed):
                failures.append(f"{name}: {result.reason}\n{result.trace}")
        if failures:
            raise ValueError("\n".join([f"{len(failures)} of {len(runs)} runs failed", *failures]))

        # A cached result is a list: value and seconds.
        done = [Done._make(results[run.name]) for run in runs]
        self.seconds += sum(result.seconds for result in done)
        return [result.value for result in done]

    def grid(self, name: str, function: Callable[..., Any], **values: Any) -> dict[Any, Any]:
        """Run a function with all combinations of argument values.

        name (str): The prefix for the names of the runs.
        function (Callable[..., Any]): The function.
        **values (Any): The values of each argument.
        RETURNS (dict[Any, Any]): The results by combination, which is a tuple of values.
        """
        combinations = list(product(*values.values()))
        runs: list[Run] = []
        for combination in combinations:
            run_name = "-".join(str(part) for part in (name, *combination))
            runs.append(Run(run_name, function, dict(zip(values, combination))))
        return dict(zip(combinations, self(runs)))

    def picture(self, name: str, figure: Any) -> str:
        """Save a matplotlib figure for the page. Returns the file name."""
        self.figures.mkdir(parents=True, exist_ok=True)
        save_figure(figure, self.figures / f"{name}.svg")
        return f"{name}.svg"


def run_experiment(
    name: str, *, quick: bool, jobs: int, variant: str | None = None, address: str | None = None
) -> str:
    """Run an experiment. Returns its section of the page, and writes it to the page unless `quick`.
    A variant has a separate section.

    name (str): The name of its files in experiments/.
    quick (bool): Whether to run only a small part.
    jobs (int): The number of parallel runs, on this machine.
    variant (str | None): The name of alternative settings in the spec, or None.
    address (str | None): The Ray cluster to run on, instead of this machine.
    """
    section_name = name
    if variant is not None:
        section_name = f"{name}-{variant}"
    folder = OUTPUT / section_name / "full"
    figures: Path | None = PAGE.parent / "figures"
    if quick:
        folder = OUTPUT / section_name / "quick"
        figures = None
    make_executor = ray_cluster(address) or local_processes(jobs)
    runner = Runner(folder, make_executor, figures)
    text = section(name, runner, quick, variant)
    if not quick:
        write_section(PAGE, section_name, text)
    return text


def section(name: str, runner: Runner, quick: bool, variant: str | None = None) -> str:
    """Run an experiment, and fill in its template with its size in the spec, its results and their
    provenance."""
    size = size_of(spec(name), quick, variant)
    module = import_module(f"experiments.{name}")
    figures = module.experiment(runner, size)
    # Only now does the runner have the seconds of all runs.
    command = name
    if variant is not None:
        command = f"{name} --variant {variant}"
    text = template(name, variant)
    source = provenance(command, runner.seconds)
    return fill(text, {**size, **figures, "provenance": source})


def spec(name: str) -> Config:
    """Load the spec of an experiment: corpora, settings, methods, grids, published figures."""
    return load_config(ROOT / "experiments" / f"{name}.cfg", interpolate=True)


def size_of(config: Mapping[str, Any], quick: bool, variant: str | None = None) -> dict[str, Any]:
    """Get the size of an experiment: the settings in [full] of the spec, overridden by the variant,
    then by [quick]. Raises an error if the spec doesn't contain the variant."""
    size = dict(config["full"])
    if variant is not None:
        variants = config.get("variants", {})
        if variant not in variants:
            expected = ", ".join(variants) or "none, as the experiment has no variants"
            raise ValueError(f"variant: expected {expected}, got {variant!r}")
        size |= variants[variant]
    if quick:
        size |= config["quick"]
    return size


def provenance(command: str, seconds: float) -> str:
    """Describe where figures come from: the command, the total time of the runs, the versions."""
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return (
        f"`python -m experiments {command}`, {date.today()}: {seconds / 60:.0f} minutes of one "
        f"core, Python {platform.python_version()}, {versions}."
    )


def template(name: str, variant: str | None = None) -> str:
    """Read the template of an experiment, with placeholders in braces for the figures. A variant
    that has no template of its own gets the one of the experiment, with its name in the heading."""
    folder = ROOT / "experiments"
    text = (folder / f"{name}.md").read_text(encoding="utf8")
    if variant is None:
        return text
    path = folder / f"{name}-{variant}.md"
    if path.exists():
        return path.read_text(encoding="utf8")
    heading, rest = text.split("\n", 1)
    return f"{heading}, variant: {variant}\n{rest}"


class _PageFormatter(Formatter):
    """Formats numbers and text as `str.format` does, and lists as "1, 2 or 3"."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format the value of a placeholder. The format of a list is the text before the last item:
        {sizes: or }."""
        if not isinstance(value, list):
            return str(super().format_field(value, format_spec))
        texts: list[str] = []
        for item in value:
            if isinstance(item, float):
                texts.append(f"{item:g}")
            else:
                texts.append(str(item))
        *all_but_last, last = texts
        if not all_but_last:
            return last
        return ", ".join(all_but_last) + (format_spec or ", ") + last


def fill(text: str, figures: Mapping[str, Any]) -> str:
    """Fill in a template: replace each name in braces with its figure."""
    return _PageFormatter().vformat(text, (), figures).strip()


def write_section(page: Path, name: str, text: str) -> None:
    """Write a section to a page. The section replaces an existing one with the same name, or is
    added at the end."""
    begin = f"<!-- {name} -->"
    end = f"<!-- end of {name} -->"
    section = f"{begin}\n\n{text}\n\n{end}"
    page_text = ""
    if page.exists():
        page_text = page.read_text(encoding="utf8")
    if begin in page_text:
        before, old_section_and_after = page_text.split(begin)
        _, after = old_section_and_after.split(end)
        page_text = before + section + after
    else:
        page_text = f"{page_text.rstrip()}\n\n{section}\n"
    page.write_text(page_text, encoding="utf8")
