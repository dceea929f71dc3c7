"""`costner annotate` compared with loops over nlp.pipe, in turns, and its files while workers die.

    python benchmarks/annotate.py training/model-best texts.txt
    python benchmarks/annotate.py training/model-best texts.txt --scale [address of a Ray cluster]

--scale: a loop over nlp.pipe, one process, two, and a cluster, one after another: wall time, CPU
time, memory of a process, and start-up time.
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

from spacy_costner.analysis.annotating import annotate

TURNS = 5
PART = 250
"""Lines of a part, while workers die."""


def as_line(doc: Doc, number: int) -> str:
    """What `annotate` writes for a model without confidence."""
    ents = [
        {"start": e.start_char, "end": e.end_char, "label": e.label_, "score": None}
        for e in doc.ents
    ]
    value = {"id": number, "text": doc.text, "entities": ents}
    return json.dumps(value, ensure_ascii=False) + "\n"


def tasks(nlp: Language, model: str, path: Path, folder: Path) -> dict[str, Callable[[], object]]:
    """Loops and the command, all in this process."""

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


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*-*.jsonl")}


def with_deaths(model: str, path: Path, folder: Path) -> None:
    """Kill a worker every few seconds, and compare the files with those of workers that live."""
    stop, rng, deaths = Event(), random.Random(0), []

    def kill() -> None:
        while not stop.wait(rng.uniform(2.5, 5)):
            for worker in active_children()[:1]:
                os.kill(worker.pid or 0, SIGKILL)
                deaths.append(worker.pid)

    annotate(model, [path], folder / "alive", n_rows=PART)
    Thread(target=kill, daemon=True).start()
    found = annotate(model, [path], folder / "killed", n_rows=PART, jobs=2)
    stop.set()
    same = written(folder / "alive") == written(folder / "killed")
    print(f"{len(deaths)} deaths, {found.docs:,} docs, same files: {same}, errors: {found.errors}")


def scale(model: str, path: str, *addresses: str) -> None:
    """Print a row for each way to annotate a file. CPU time and memory of a cluster don't count."""
    nlp, texts = spacy.load(model), Path(path).read_text(encoding="utf8").splitlines()
    list(nlp.pipe(["warm up"]))
    begin, cpu, n = perf_counter(), process_time(), len(texts)
    assert sum(1 for _ in nlp.pipe(texts)) == n
    seconds, cpu = perf_counter() - begin, process_time() - cpu
    print(f"nlp.pipe: {n:,} texts, {seconds:.1f} s, {1e6 * cpu / n:.1f} CPU microseconds a text")
    clusters = [["--address", address] for address in addresses]
    for options in (["--jobs", "1"], ["--jobs", "2"], *clusters):
        with TemporaryDirectory() as name:
            short = Path(name, "short.txt")
            short.write_text("One.\n", encoding="utf8")
            start, cpu_of_start = run_command(model, str(short), name + "/short", *options)
            seconds, cpu = run_command(model, path, name + "/long", *options)
        memory = getrusage(RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"{' '.join(options)}: {seconds:.1f} s, one text {start:.1f} s, a process at most")
        print(f"{memory:.0f} MB, {1e6 * (cpu - cpu_of_start) / n:.1f} CPU microseconds a text")


def run_command(model: str, path: str, output: str, *options: str) -> tuple[float, float]:
    """Seconds on the clock, and of the processor in all processes that are waited for."""
    words = ["-W", "ignore", "-m", "spacy", "costner", "annotate", model, path, "--output", output]
    begin, before = perf_counter(), getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words, *options], check=True, stdout=sys.stderr)
    after = getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return perf_counter() - begin, cpu


def main(model: str, text_path: str, *modes: str) -> None:
    if modes:
        scale(model, text_path, *modes[1:])
        return
    nlp, path = spacy.load(model), Path(text_path)
    with TemporaryDirectory() as name:
        folder = Path(name)
        seconds: dict[str, list[float]] = {}
        for turn in range(TURNS + 1):
            for label, task in tasks(nlp, model, path, folder).items():
                begin = process_time()
                task()
                if turn:  # The first warms up.
                    seconds.setdefault(label, []).append(process_time() - begin)
        for label, values in seconds.items():
            print(f"{label:20} {median(values):8.2f} CPU seconds")
        with_deaths(model, path, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
