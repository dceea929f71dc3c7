"""A pipeline with a component that fails, dies or takes its time; texts for it; and its output."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import spacy
from spacy.cli._util import import_code
from thinc.api import fix_random_seed

from spacy_costner.workflows.calibration.guarantees import guarantee

from .pipelines import TEXTS, numbered_examples, pipeline, train

CODE = """
import os
import signal
import time
from pathlib import Path
from spacy.language import Language

@Language.factory("poison", default_config={"loads": ""})
def make_poison(nlp, name, loads):
    path = Path(loads, f"{os.getpid()}.txt")
    path.write_text((path.read_text() if path.exists() else "") + "loaded\\n")
    return poison

def poison(doc):
    mark = Path(doc.text.partition("killer ")[2])
    if mark.name and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if "deadly" in doc.text:
        os.kill(os.getpid(), signal.SIGKILL)
    if "slow" in doc.text:
        time.sleep(0.3)
    if "poison" in doc.text:
        raise RuntimeError("poisoned")
    if "swallow" in doc.text:
        doc.spans["no such group"].append(None)
    return doc
"""
"""A component that raises an error, kills its process, takes its time or spoils the doc, where the
text says so. After "killer" comes a file, so that it dies but once."""

SENTENCES = [f"{text} {i}" for i, text in enumerate(TEXTS[:3] * 8)]


class Saved(NamedTuple):
    """A saved pipeline with its code; the same without the component that needs the code; and the
    folder with a file for each process that has loaded it, with a line for each time."""

    model: Path
    harmless: Path
    code: Path
    loads: Path


def save_pipeline(folder: Path) -> Saved:
    """Train and save a pipeline with alternatives and a guarantee."""
    fix_random_seed(0)  # made once for several tests, whichever is first
    saved = Saved(
        model=folder / "model",
        harmless=folder / "harmless",
        code=folder / "poison.py",
        loads=folder / "loads",
    )
    saved.loads.mkdir()
    saved.code.write_text(CODE)
    import_code(saved.code)

    nlp = pipeline(confidence={"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.01})
    train(nlp, steps=20)
    guarantee(nlp, numbered_examples(nlp, 10), miss=0.1)
    nlp.to_disk(saved.harmless)

    nlp.add_pipe("poison", first=True, config={"loads": str(saved.loads)})
    nlp.to_disk(saved.model)
    return saved


def write_inputs(folder: Path, *texts: str) -> Path:
    """A folder with JSONL, and with a text file in a folder below, both of the same texts."""
    (folder / "sub").mkdir(parents=True)
    write_lines(folder / "sub" / "a.txt", [*texts])
    write_lines(folder / "b.jsonl", [*texts])
    return folder


def write_lines(path: Path, texts: list[Any]) -> Path:
    """A text file, or JSONL with ids."""
    if path.suffix == ".txt":
        lines = texts
    else:
        lines = [json.dumps({"id": f"d{i}", "text": text}) for i, text in enumerate(texts)]
    path.write_text("".join(f"{line}\n" for line in lines), "utf8")
    return path


def rows(output: Path) -> list[dict[str, Any]]:
    """The rows that `annotate` wrote as JSONL, of all parts in order."""
    files = sorted(path for path in output.rglob("*.jsonl") if path.name != "manifest.jsonl")
    rows_of_all = []
    for path in files:
        lines = path.read_text("utf8").split("\n")[:-1]
        rows_of_all += [json.loads(line) for line in lines]
    return rows_of_all


def files(output: Path) -> dict[str, bytes]:
    """All files but the manifest, whose lines are in the order in which parts end."""
    contents = {path.name: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    contents.pop("manifest.jsonl")
    return contents


def plain(model: Path, texts: list[str]) -> list[list[tuple[int, int, str]]]:
    """Start, end and label of the entities of each text, by the pipeline without `annotate`."""
    docs = spacy.load(model).pipe(texts)
    return [[(e.start_char, e.end_char, e.label_) for e in doc.ents] for doc in docs]


def places(spans: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    """Start, end and label of the spans of a row."""
    return [(span["start"], span["end"], span["label"]) for span in spans]
