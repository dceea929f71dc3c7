"""`costner annotate` compared with loops over nlp.pipe, in turns, and its files while workers die.

python benchmarks/annotate.py training/model-best texts.txt
"""

import json
import os
import random
import sys
from multiprocessing import active_children
from pathlib import Path
from signal import SIGKILL
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import process_time
from typing import Callable, Dict, List

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_costner.commands.annotate import Settings, annotate_files

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

    def annotate(form: str) -> None:
        with TemporaryDirectory(dir=folder) as output:
            annotate_files(model, [path], output, Settings(format=form))

    return {
        "nlp.pipe": lambda: [None for _ in nlp.pipe(texts())],
        "nlp.pipe, JSONL": write_lines,
        "annotate, JSONL": lambda: annotate("jsonl"),
        "nlp.pipe, .spacy": lambda: DocBin(docs=nlp.pipe(texts())).to_disk(folder / "loop.spacy"),
        "annotate, .spacy": lambda: annotate("spacy"),
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

    annotate_files(model, [path], folder / "alive", n_rows=PART)
    Thread(target=kill, daemon=True).start()
    found = annotate_files(model, [path], folder / "killed", n_rows=PART, jobs=2)
    stop.set()
    same = written(folder / "alive") == written(folder / "killed")
    print(f"{len(deaths)} deaths, {found.docs:,} docs, same files: {same}, errors: {found.errors}")


def main(model: str, text_path: str) -> None:
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
