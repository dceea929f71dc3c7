"""Kill the commands that save pipelines, at random moments, and fill the disk: by hand.

    python -m tests.kills --kills 100
    mount -t tmpfs -o size=8m tmpfs disk; python -m tests.kills --kills 0 --disk disk

After each the old pipeline loads under the output path or the new one does, each as it was saved.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Callable, Dict, List, NamedTuple, Optional, Tuple

import spacy
import srsly
import typer
from spacy.cli._util import app
from spacy.util import registry

from .support.experiment import CONFIG, SEQUENTIAL, make_corpus

ROOM = 1_000_000
"""Bytes: the least that a disk has to have, so that all that is left can be taken by halves."""

ENDED = "had ended"

SPARSE = """
[components.ner.model]
@architectures = "spacy_costner.SparseCRF.v1"

[components.ner.model.features]
@misc = "spacy_costner.Features.v1"
windows = {"ORTH":2,"LOWER":2,"SHAPE":2}

[training]
"""


Expected = Dict[str, Dict[str, str]]
Found = Counter[Tuple[str, str, str]]


class Task(NamedTuple):
    """A command that saves.

    name (str): What it is called here.
    arguments (List[str]): The command line.
    output (Path): What it is to save to.
    saved (Path): Where the pipeline is, below.
    older (Optional[Path]): What is there before: a copy of this.
    """

    name: str
    arguments: List[str]
    output: Path
    saved: Path
    older: Optional[Path]

    @property
    def path(self) -> Path:
        return self.output / self.saved

    def reset(self) -> None:
        """Have there be what is there before."""
        shutil.rmtree(self.output, ignore_errors=True)
        for left in self.output.parent.glob(f".{self.output.name}.*"):
            shutil.rmtree(left)
        if self.older is not None:
            shutil.copytree(self.older, self.output)


class Timing(NamedTuple):
    """Seconds that a command takes, and those of them after it has begun to write."""

    whole: float
    writing: float


def main(
    kills: Annotated[int, typer.Option(help="How many processes to kill")] = 100,
    disk: Annotated[
        Optional[Path], typer.Option(help="Folder on a small disk, to fill that up", exists=True)
    ] = None,
    fills: Annotated[int, typer.Option(help="How often to fill it")] = 50,
    seed: Annotated[int, typer.Option(help="Of the moments")] = 0,
) -> None:
    """Kill, and fill."""
    registry.cli.get_all()
    rng = random.Random(seed)
    found: Found = Counter()
    with tempfile.TemporaryDirectory() as name:
        sources = prepare(Path(name))
        tasks = make_tasks(sources, Path(name) / "work")
        expected = {task.name: signatures(task) for task in tasks}
        kill_them(tasks, expected, found, rng, kills)
        if disk is None:
            typer.echo("full disk: left out, no --disk given")
        elif not ROOM < shutil.disk_usage(disk).free <= 64 * ROOM:
            typer.echo(f"full disk: left out, expected 1 to 64 MB free on {disk}")
        else:
            fill_it(make_tasks(sources, disk / "work"), expected, found, rng, fills, disk)
    for (task, moment, state), n in sorted(found.items()):
        typer.echo(f"{task:<26}{moment:<16}{state:<8}{n:>4}")
    for moment in sorted({moment for _, moment, _ in found}):
        typer.echo(f"{moment}: {sum(n for key, n in found.items() if key[1] == moment)}")
    sys.exit(any(state == "BROKEN" for *_, state in found))


def kill_them(
    tasks: List[Task], expected: Expected, found: Found, rng: random.Random, kills: int
) -> None:
    """Kill commands, half of them while they write, until so many have been killed."""
    timings = {task.name: measure(task) for task in tasks} if kills else {}
    i = done = 0
    while done < kills:
        task = tasks[i // 2 % len(tasks)]
        moment = kill(task, timings[task.name], rng, while_writing=i % 2 == 1)
        found[task.name, moment, judge(task, expected[task.name])] += 1
        if i % 5 == 0:
            again(task, expected[task.name])
        done += moment != ENDED
        i += 1


def fill_it(
    tasks: List[Task], expected: Expected, found: Found, rng: random.Random, fills: int, disk: Path
) -> None:
    """Carry commands out on a disk without enough room."""
    for i in range(fills):
        task = tasks[i % len(tasks)]
        how = fill(task, disk, rng)
        found[task.name, how, judge(task, expected[task.name])] += 1
        again(task, expected[task.name])


def prepare(folder: Path) -> Path:
    """Corpus, configs and pipelines to begin with."""
    corpus = folder / "corpus.spacy"
    make_corpus(corpus)
    dense = CONFIG.format(corpus=corpus)
    head, rest = dense.split("[components.ner.model]")
    sparse = head + SPARSE + rest.split("[training]")[1] + "max_epochs = 2\n"
    (folder / "base.cfg").write_text(sparse)
    (folder / "sequential.cfg").write_text(SEQUENTIAL)
    for steps, name in ((2, "older"), (1, "pipeline")):
        command = ["fit", str(folder / "base.cfg"), "--max-iter", str(steps)]
        run([*command, "--output", str(folder / name)])
    run(compare(folder, folder / "compared", rate=0.01))
    return folder


def compare(folder: Path, output: Path, *, rate: float) -> List[str]:
    """The command line."""
    given = ["compare", str(folder / "base.cfg"), "--losses", str(folder / "sequential.cfg")]
    given += ["--output", str(output)]
    test = ["--test", str(folder / "corpus.spacy"), "--samples", "9"]
    return [*given, *test, "--components.ner.model.learn_rate", str(rate)]


def make_tasks(folder: Path, work: Path) -> List[Task]:
    """All commands: onto their input, over an older pipeline, and where there is nothing yet."""
    config, corpus = str(folder / "base.cfg"), str(folder / "corpus.spacy")
    pipeline, older = folder / "pipeline" / "model-last", folder / "older" / "model-last"
    tasks, here, best = [], Path(), Path("sequential", "seed-0", "model-best")
    last, output = Path("model-last"), str(work)
    for where, old in (("over older", folder / "older"), ("new", None)):
        for name, options in (("fit", []), ("fit --online", ["--online"])):
            given = ["fit", config, "--output", output, *options]
            tasks.append(Task(f"{name}, {where}", given, work, last, old))
        before = None if old is None else folder / "compared"
        given = compare(folder, work, rate=0.02)
        tasks.append(Task(f"compare, {where}", given, work, best, before))
    places = (
        ("in place", work, pipeline),
        ("over older", pipeline, older),
        ("new", pipeline, None),
    )
    for where, source, before in places:
        for name in ("calibrate", "tune"):
            given = [name, str(source), corpus, "--output", output]
            tasks.append(Task(f"{name}, {where}", given, work, here, before))
    return tasks


def start(arguments: List[str]) -> int:
    """Begin a command in a process of its own. RETURNS (int): Its number."""
    process = os.fork()
    if process == 0:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            os._exit(app(["costner", *arguments], standalone_mode=False) or 0)
        except BaseException:
            os._exit(1)
    return process


def run(arguments: List[str]) -> None:
    """Carry out a command.

    RAISES (RuntimeError): If it fails.
    """
    if os.waitpid(start(arguments), 0)[1]:
        raise RuntimeError(f"expected to end well: {' '.join(arguments)}")


def is_writing(task: Task) -> bool:
    """Whether there is something on the way to the output."""
    if task.arguments[0] == "compare":
        return (task.path.parent / "training" / "model-last").exists()
    return any(task.path.parent.glob(f".{task.path.name}.*"))


def wait_for(process: int, task: Task, until: Callable[[], bool]) -> bool:
    """Wait until something is so. RETURNS (bool): False if the process has ended before."""
    while not until():
        if os.waitpid(process, os.WNOHANG)[0]:
            return False
        time.sleep(2e-4)
    return True


def measure(task: Task) -> Timing:
    """How long a command takes."""
    task.reset()
    begin = time.perf_counter()
    process = start(task.arguments)
    wrote = wait_for(process, task, lambda: is_writing(task))
    middle = time.perf_counter()
    if wrote:
        os.waitpid(process, 0)
    return Timing(time.perf_counter() - begin, time.perf_counter() - middle)


def kill(task: Task, timing: Timing, rng: random.Random, *, while_writing: bool) -> str:
    """Kill a command. RETURNS (str): What it was doing."""
    task.reset()
    process = start(task.arguments)
    if while_writing:
        alive = wait_for(process, task, lambda: is_writing(task))
        time.sleep(rng.uniform(0, timing.writing))
    else:
        end = time.perf_counter() + rng.uniform(0, timing.whole)
        alive = wait_for(process, task, lambda: time.perf_counter() > end)
    if alive:
        os.kill(process, signal.SIGKILL)
        alive = os.WIFSIGNALED(os.waitpid(process, 0)[1])
    return ("killed writing" if is_writing(task) else "killed") if alive else ENDED


def fill(task: Task, disk: Path, rng: random.Random) -> str:
    """Carry out a command on a disk that has not enough room. RETURNS (str): How it ended."""
    task.reset()
    needed = sum(path.stat().st_size for path in disk.rglob("*") if path.is_file()) or ROOM
    filler = disk / "filler"
    with filler.open("wb") as file:
        file.write(bytes(max(0, shutil.disk_usage(disk).free - int(rng.uniform(0, 1) * needed))))
    failed = os.waitpid(start(task.arguments), 0)[1]
    filler.unlink()
    return "disk full" if failed else "disk held it"


def signature(path: Path) -> str:
    """Whether two pipelines are the same: what they load as, and how they answer."""
    nlp = spacy.load(path)
    ner = nlp.get_pipe("ner")
    settings: Dict = {**ner.cfg, "config": nlp.config["components"]}
    digest = sha256(srsly.json_dumps(settings, sort_keys=True).encode())
    digest.update(ner.model.to_bytes())
    return digest.hexdigest()


def signatures(task: Task) -> Dict[str, str]:
    """Old and new pipeline of a command that isn't killed.

    RAISES (RuntimeError): If they are the same.
    """
    task.reset()
    old = signature(task.path) if task.path.exists() else "nothing"
    run(task.arguments)
    new = signature(task.path)
    if new == old:
        raise RuntimeError(f"{task.name}: expected another pipeline than the older one")
    return {old: "old", new: "new"}


def judge(task: Task, expected: Dict[str, str]) -> str:
    """What is under the output path now: "old", "new" or "BROKEN"."""
    if not task.path.exists():
        return expected.get("nothing", "BROKEN")
    try:
        return expected.get(signature(task.path), "BROKEN")
    except Exception as error:
        typer.echo(f"{task.name}: {type(error).__name__}: {error}")
        return "BROKEN"


def again(task: Task, expected: Dict[str, str]) -> None:
    """What was killed can be done again, and leaves nothing else.

    RAISES (RuntimeError): If not.
    """
    run(task.arguments)
    if is_writing(task) or (task.older is None and judge(task, expected) != "new"):
        raise RuntimeError(f"{task.name}: expected the new pipeline, and nothing beside it")


if __name__ == "__main__":
    typer.run(main)
