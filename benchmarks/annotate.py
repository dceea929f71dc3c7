"""Compare `costner annotate` with loops over nlp.pipe, in turns, and check its files while workers
die.

    python benchmarks/annotate.py training/model-best texts.txt
    python benchmarks/annotate.py training/model-best texts.txt --scale [address of a Ray cluster]

With --scale, compare a loop over nlp.pipe, one process, two processes and a cluster, one after
another, by wall time, CPU time, memory per process and start-up time. A worker is a process of
`annotate --jobs`. Workers die because this benchmark kills them.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from signal import SIGKILL
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter, process_time
from typing import Literal

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_costner.workflows.apply.annotating import annotate

TURNS = 5
ROWS_OF_PART = 250
"""The number of lines that a worker annotates at a time, in the test with deaths."""


def as_line(doc: Doc, number: int) -> str:
    """Format a doc as `annotate` does for a model without confidence."""
    entities = [
        {"start": ent.start_char, "end": ent.end_char, "label": ent.label_, "score": None}
        for ent in doc.ents
    ]
    row = {"id": number, "text": doc.text, "entities": entities}
    return json.dumps(row, ensure_ascii=False) + "\n"


def tasks(nlp: Language, model: str, path: Path, folder: Path) -> dict[str, Callable[[], object]]:
    """Make the tasks: the loops and the command, all in this process."""

    def texts() -> list[str]:
        return path.read_text(encoding="utf8").splitlines()

    def write_lines() -> None:
        with (folder / "loop.jsonl").open("w", encoding="utf8") as file:
            for i, doc in enumerate(nlp.pipe(texts())):
                file.write(as_line(doc, i + 1))

    def annotate_all(form: Literal["jsonl", "parquet", "spacy"]) -> None:
        with TemporaryDirectory(dir=folder) as output:
            annotate(model, [path], output, form=form)

    return {
        "nlp.pipe": lambda: [None for _ in nlp.pipe(texts())],
        "nlp.pipe, JSONL": write_lines,
        "annotate, JSONL": lambda: annotate_all("jsonl"),
        "nlp.pipe, .spacy": lambda: DocBin(docs=nlp.pipe(texts())).to_disk(folder / "loop.spacy"),
        "annotate, .spacy": lambda: annotate_all("spacy"),
    }


def output_files(folder: Path) -> dict[str, bytes]:
    """Read the contents of the files written by `annotate`, by file name."""
    # Not the manifest, because its lines are in the order in which parts finish.
    return {path.name: path.read_bytes() for path in folder.glob("*-*.jsonl")}


def with_deaths(model: str, path: Path, folder: Path) -> None:
    """Kill a worker every few seconds, and compare the files with the files of an undisturbed
    run."""
    stop = Event()
    rng = random.Random(0)
    n_deaths = 0

    def kill_workers() -> None:
        nonlocal n_deaths
        while not stop.wait(rng.uniform(2.5, 5)):
            workers = active_children()
            if workers:
                pid = workers[0].pid
                assert pid is not None  # it is running
                os.kill(pid, SIGKILL)
                n_deaths += 1

    annotate(model, [path], folder / "alive", n_rows=ROWS_OF_PART)
    Thread(target=kill_workers, daemon=True).start()
    summary = annotate(model, [path], folder / "killed", n_rows=ROWS_OF_PART, jobs=2)
    stop.set()
    is_same = output_files(folder / "alive") == output_files(folder / "killed")
    print(
        f"{n_deaths} deaths, {summary.docs:,} docs, same files: {is_same}, errors: {summary.errors}"
    )


def scale(model: str, path: str, *addresses: str) -> None:
    """Print a row for each way to annotate a file. CPU time and memory include the processes
    started by the command, but not a cluster."""
    nlp = spacy.load(model)
    texts = Path(path).read_text(encoding="utf8").splitlines()
    n_texts = len(texts)
    list(nlp.pipe(["warm up"]))

    began = perf_counter()
    cpu_began = process_time()
    for _ in nlp.pipe(texts):
        pass
    seconds = perf_counter() - began
    cpu_seconds = process_time() - cpu_began
    microseconds = 1e6 * cpu_seconds / n_texts
    print(
        f"nlp.pipe: {n_texts:,} texts, {seconds:.1f} s, {microseconds:.1f} CPU microseconds a text"
    )

    clusters = [["--address", address] for address in addresses]
    for options in (["--jobs", "1"], ["--jobs", "2"], *clusters):
        with TemporaryDirectory() as folder:
            # The CPU time for one text is the CPU time for start-up.
            short_path = Path(folder, "short.txt")
            short_path.write_text("One.\n", encoding="utf8")
            start_seconds, start_cpu_seconds = run_command(
                model, str(short_path), f"{folder}/short", *options
            )
            seconds, cpu_seconds = run_command(model, path, f"{folder}/long", *options)
        # The largest process that has finished so far, in kilobytes on Linux
        megabytes = getrusage(RUSAGE_CHILDREN).ru_maxrss / 1024
        microseconds = 1e6 * (cpu_seconds - start_cpu_seconds) / n_texts
        print(
            f"{' '.join(options)}: {seconds:.1f} s, one text {start_seconds:.1f} s, a process at "
            f"most\n{megabytes:.0f} MB, {microseconds:.1f} CPU microseconds a text"
        )


def run_command(model: str, path: str, output: str, *options: str) -> tuple[float, float]:
    """Annotate a file with the command. Returns the wall-clock seconds, and the CPU seconds of all
    child processes."""
    words = ["-W", "ignore", "-m", "spacy", "costner", "annotate", model, path, "--output", output]
    began = perf_counter()
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words, *options], check=True, stdout=sys.stderr)
    after = getrusage(RUSAGE_CHILDREN)
    user_seconds = after.ru_utime - before.ru_utime
    system_seconds = after.ru_stime - before.ru_stime
    return perf_counter() - began, user_seconds + system_seconds


def main(model: str, text_path: str, *options: str) -> None:
    """Compare in turns or, with --scale and optionally an address, annotate in several ways."""
    if options:
        _, *addresses = options  # the first option is --scale
        scale(model, text_path, *addresses)
        return

    nlp = spacy.load(model)
    path = Path(text_path)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        seconds_of_tasks: dict[str, list[float]] = {}
        for turn in range(TURNS + 1):
            for name, task in tasks(nlp, model, path, folder).items():
                began = process_time()
                task()
                if turn > 0:  # the first one warms up
                    seconds_of_tasks.setdefault(name, []).append(process_time() - began)
        for name, seconds in seconds_of_tasks.items():
            print(f"{name:20} {median(seconds):8.2f} CPU seconds")
        with_deaths(model, path, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
