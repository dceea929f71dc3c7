"""`costner annotate` compared with loops over nlp.pipe, in turns, and its files while workers die.

python benchmarks/annotate.py training/model-best texts.txt
python benchmarks/annotate.py training/model-best texts.txt --scale

--scale: a loop over nlp.pipe, one process, two, and two workers of Ray, if it is installed, one
after another: wall time, CPU time, memory of a worker, and start-up time.
"""

import json
import os
import random
import sys
from concurrent.futures import Executor, Future
from importlib.util import find_spec
from multiprocessing import active_children
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from signal import SIGKILL
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter, process_time
from typing import Any, Callable, Dict, List, NamedTuple, Tuple, cast

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_costner.cli.annotate import annotate
from spacy_costner.cli.runs import MakeExecutor, Processes, ray_cluster

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


def tasks(nlp: Language, model: str, path: Path, folder: Path) -> Dict[str, Callable[[], object]]:
    """Loops and the command, all in this process."""

    def texts() -> List[str]:
        return path.read_text(encoding="utf8").splitlines()

    def write_lines() -> None:
        with (folder / "loop.jsonl").open("w", encoding="utf8") as file:
            for i, doc in enumerate(nlp.pipe(texts())):
                file.write(as_line(doc, i + 1))

    def annotate_all(form: str) -> None:
        with TemporaryDirectory(dir=folder) as output:
            annotate(model, [path], output, form=form)

    return {
        "nlp.pipe": lambda: [None for _ in nlp.pipe(texts())],
        "nlp.pipe, JSONL": write_lines,
        "annotate, JSONL": lambda: annotate_all("jsonl"),
        "nlp.pipe, .spacy": lambda: DocBin(docs=nlp.pipe(texts())).to_disk(folder / "loop.spacy"),
        "annotate, .spacy": lambda: annotate_all("spacy"),
    }


def written(folder: Path) -> Dict[str, bytes]:
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


class Work(NamedTuple):
    """What a run of a worker took.

    per_text (float): CPU seconds for a text.
    worker (int): Its process.
    cpu (float): CPU seconds of the worker since it was started.
    memory (float): Megabytes of it at most.
    """

    per_text: float
    worker: int
    cpu: float
    memory: float


def measured(function: Callable[..., Any], run: Any) -> Tuple[Any, Work]:
    """In a worker: what a run returns, and what it took."""
    ended = function(run)
    memory = getrusage(RUSAGE_SELF).ru_maxrss / 1024
    return ended, Work(ended.seconds / ended.value["docs"], os.getpid(), process_time(), memory)


class Measured:
    """An executor that keeps what runs took."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.works: List[Work] = []
        self.shutdown = executor.shutdown

    def submit(self, function: Callable[..., Any], run: Any) -> Future:
        outer: Future = Future()

        def end(inner: Future) -> None:
            ended, work = inner.result()
            self.works.append(work)
            outer.set_result(ended)

        self.executor.submit(measured, function, run).add_done_callback(end)
        return outer


def executors() -> Dict[str, MakeExecutor]:
    """One process, two, and Ray with two workers on this machine, that no other can reach."""
    found: Dict[str, MakeExecutor] = {
        "1 process": lambda: Processes(1),
        "2 processes": lambda: Processes(2),
    }
    if find_spec("ray"):
        os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_AUTH_MODE="disabled")
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="warning")
        found["Ray, 2 workers"] = cast(MakeExecutor, ray_cluster("auto"))
    return found


def scale(model: str, path: Path) -> None:
    """Print a row for each way to annotate a file."""
    nlp = spacy.load(model)
    list(nlp.pipe(["warm up"]))
    begin, cpu = perf_counter(), process_time()
    n = sum(1 for _ in nlp.pipe(path.read_text(encoding="utf8").splitlines()))
    seconds, cpu = perf_counter() - begin, process_time() - cpu
    print(f"nlp.pipe: {n:,} texts, {seconds:.1f} s, {1e6 * cpu / n:.1f} CPU microseconds a text")
    for name, make in executors().items():
        with TemporaryDirectory() as output:
            print(f"{name}: {annotated(model, path, Path(output), make, n)}")


def annotated(model: str, path: Path, folder: Path, make: MakeExecutor, n: int) -> str:
    """Annotate a file of n texts. The time for a text is that of the median part."""
    short = folder / "short.txt"
    short.write_text("One.\n", encoding="utf8")
    begin = perf_counter()
    annotate(model, [short], folder / "short", make_executor=make)
    start, begin, executor = perf_counter() - begin, perf_counter(), Measured(make())
    given: Any = lambda: executor  # noqa: E731
    found = annotate(model, [path], folder / "long", make_executor=given)
    seconds, works = perf_counter() - begin, executor.works
    assert found.docs == n and not found.errors, found
    cpu = {work.worker: work.cpu for work in sorted(works, key=lambda work: work.cpu)}
    return (
        f"{seconds:.1f} s, {1e6 * median(w.per_text for w in works):.1f} CPU microseconds a text, "
        f"{sum(cpu.values()):.1f} CPU seconds in all, a worker at most "
        f"{max(work.memory for work in works):.0f} MB, one text {start:.1f} s"
    )


def main(model: str, text_path: str, *modes: str) -> None:
    if modes:
        scale(model, Path(text_path))
        return
    nlp, path = spacy.load(model), Path(text_path)
    with TemporaryDirectory() as name:
        folder = Path(name)
        seconds: Dict[str, List[float]] = {}
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
