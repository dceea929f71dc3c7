"""Experiments as tables of cells: finished ones are kept, the others are run side by side.

    python -m experiments.mixed_loss [--quick] [--jobs 2]

A cell is a function of its settings, and what it returned is kept as a file of JSON, named by the
cell. So an experiment that was stopped goes on where it was, and a cell whose settings were changed
is run anew.
"""

import json
import platform
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import typer
from tqdm import tqdm
from typer import Option

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "training" / "experiments"
PAGE = ROOT / "docs" / "reproduction.md"
PACKAGES = ("spacy-costner", "spacy", "thinc", "numpy", "scipy")

Result = Dict[str, Any]


class Cell(NamedTuple):
    """One training, or one of whatever a table is made of.

    name (str): Its name, for its file.
    function (Callable[..., Result]): A function of a module, with what JSON can keep as its
        result.
    settings (Dict[str, Any]): Its arguments, by name; what JSON can keep, too.
    """

    name: str
    function: Callable[..., Result]
    settings: Dict[str, Any]

    def identity(self) -> Dict[str, Any]:
        """What a result has to have been made by, to be that of this cell."""
        return {"function": self.function.__qualname__, "settings": self.settings}


class Runner:
    """Runs cells, and keeps what they return, with the seconds of a core that they took."""

    def __init__(self, folder: Path, jobs: int = 1) -> None:
        """Initialize.

        folder (Path): Where results are kept.
        jobs (int): How many cells are run at a time, each in a process of its own.
        """
        self.folder = folder
        self.jobs = jobs
        self.seconds = 0.0
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, cells: Sequence[Cell]) -> List[Result]:
        """Run the cells that have no result yet.

        cells (Sequence[Cell]): The cells, each with a name of its own.
        RETURNS (List[Result]): The result of each; its "seconds" are added.
        """
        results = {cell.name: self._kept(cell) for cell in cells}
        todo = [cell for cell in cells if results[cell.name] is None]
        with tqdm(total=len(cells), initial=len(cells) - len(todo), unit="cell") as bar:
            for cell, result in self._run(todo):
                self._path(cell).write_text(json.dumps({**cell.identity(), "result": result}))
                results[cell.name] = result
                bar.set_postfix_str(cell.name, refresh=False)
                bar.update()
        found = [result for result in results.values() if result is not None]
        self.seconds += sum(result["seconds"] for result in found)
        return found

    def _run(self, cells: Sequence[Cell]) -> Iterator[Tuple[Cell, Result]]:
        if self.jobs == 1 or len(cells) <= 1:
            yield from ((cell, timed(cell)) for cell in cells)
            return
        pool = ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn"))
        try:
            running = {pool.submit(timed, cell): cell for cell in cells}
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.name}.json"

    def _kept(self, cell: Cell) -> Optional[Result]:
        if not self._path(cell).exists():
            return None
        kept = json.loads(self._path(cell).read_text())
        result = kept.pop("result")
        return result if kept == json.loads(json.dumps(cell.identity())) else None


def timed(cell: Cell) -> Result:
    """Run a cell; its result, and the seconds of a core that it took."""
    began = time.process_time()
    result = cell.function(**cell.settings)
    return {**result, "seconds": time.process_time() - began}


Experiment = Callable[[Runner, bool], str]
"""Takes what runs cells, and whether it is to be quick, to the tables in Markdown."""


def command(name: str, title: str, experiment: Experiment) -> Callable[[], None]:
    """The command line of an experiment.

    name (str): The name of its module.
    title (str): What it is called on the page.
    experiment (Experiment): The experiment.
    RETURNS (Callable[[], None]): Reads the arguments, runs it and prints its tables; in full
        it writes them to docs/reproduction.md, too.
    """

    def main(
        quick: Annotated[bool, Option("--quick", help="A part of it, in a few minutes")] = False,
        jobs: Annotated[int, Option("--jobs", "-j", help="Cells run at a time", min=1)] = 2,
    ) -> None:
        runner = Runner(OUTPUT / name / ("quick" if quick else "full"), jobs)
        text = experiment(runner, quick)
        typer.echo(text)
        if not quick:
            write_section(PAGE, name, title, f"{provenance(name, runner.seconds)}\n\n{text}")

    return lambda: typer.run(main)


def provenance(name: str, seconds: float) -> str:
    """Where figures come from: the command, the time of all cells, the versions."""
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return (
        f"`python -m experiments.{name}`, {date.today()}: {seconds / 60:.0f} minutes of one core, "
        f"Python {platform.python_version()}, {versions}."
    )


def write_section(page: Path, name: str, title: str, text: str) -> None:
    """Put a section on a page in the place of the one of the same name, or at its end.

    page (Path): A file in Markdown.
    name (str): The name of the section.
    title (str): Its heading.
    text (str): What stands below that.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n\n## {title}\n\n{text.strip()}\n\n{end}"
    before = page.read_text(encoding="utf8") if page.exists() else ""
    if begin in before:
        head, rest = before.split(begin)
        section = head + section + rest.split(end)[1]
    else:
        section = f"{before.rstrip()}\n\n{section}\n"
    page.write_text(section, encoding="utf8")


def table(header: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown. Floats have two digits."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_text, line))} |" for line in lines)


def _text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
