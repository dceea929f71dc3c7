"""Damage to saved pipelines, at random: by hand, after a change of how they are saved or loaded.

    python -m tests.damage corrupt --cases 1000 --seed 0
    python -m tests.damage kill --kills 100
    mount -t tmpfs -o size=8m tmpfs disk; python -m tests.damage kill --kills 0 --disk disk

`corrupt`: each damaged model is refused at load by a ValueError, or answers as before. Ours, and so
damaged: `ner/cfg` and `ner/model`, which belong to one save, and the block `[components.ner]` of
config.cfg, from the file or overridden at load. Not ours: the vocab, the tokenizer, meta.json, the
rest of config.cfg, and other components, a shared tok2vec among them; and decoding, confidence,
temperature and scorer, which are made to be changed without training. `tests/test_serialization.py`
does the same with few cases.

`kill`: commands that save pipelines are killed, or fill the disk. After each the old pipeline loads
under the output path or the new one does, each as it was saved.
"""

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy
import spacy
import srsly
import typer
from spacy.cli._util import app as spacy_app
from spacy.language import Language
from spacy.util import registry
from thinc.api import fix_random_seed, to_numpy

from spacy_costner.saving import clear

from .support.experiment import CONFIG, SEQUENTIAL, make_corpus
from .support.pipelines import SMALL, TEXTS, TRAIN, examples

app = typer.Typer()

# Corruption

TOK2VEC = SMALL["model"]["tok2vec"]
FEATURES = {
    "@misc": "spacy_costner.Features.v1",
    "windows": {"ORTH": 1, "SHAPE": 1, "prefix": 0, "flags": 1},
    "affixes": [1, 2],
    "bigrams": {"SHAPE": 1},
}
SPARSE = {"@architectures": "spacy_costner.SparseCRF.v1", "features": FEATURES}
MODELS: Dict[str, Dict[str, Any]] = {
    "sparse": SPARSE,
    "hybrid": {**SPARSE, "@architectures": "spacy_costner.HybridCRF.v1", "tok2vec": TOK2VEC},
    "cnn": SMALL["model"],
}
HOSTILE: List[Any] = [
    None, True, False, 0, 1, -1, 3, 1e-9, -0.5, 1e39, 2**31, 2**40, "", "x", "nan", "inf", [], {},
    [1], ["LOC"], ["LOC", "LOC"], {"x": 1}, [[0.0]], b"", b"\x00" * 8,
]  # fmt: skip
SECONDS = 60
GIGABYTES = 16
Answer = List[Any]


class Case(NamedTuple):
    """One way to damage a model: files with their new content, and overrides at load. `expected` is
    what may be predicted; None: anything, but no error."""

    name: str
    files: Dict[str, bytes]
    config: Dict[str, Any]
    expected: Optional[Answer]


class Subject(NamedTuple):
    """A model to damage, another training of the same config, and what the model answers."""

    path: Path
    other: Path
    answer: Answer


def train(kind: str, seed: int, path: Path) -> None:
    """Train a small pipeline and save it."""
    fix_random_seed(seed)
    nlp = spacy.blank("xx")
    nlp.add_pipe("cost_sensitive_ner", name="ner", config={"model": MODELS[kind]})
    batch = examples(nlp)[: len(TRAIN) - seed]
    optimizer = nlp.initialize(lambda: examples(nlp))
    for _ in range(15):
        nlp.update(batch, sgd=optimizer, losses={})
    nlp.get_pipe("ner").cfg["temperature"] = {"overall": 1.5, "labels": {"LOC": 1.25}}
    nlp.to_disk(path)


def answer(nlp: Language) -> Answer:
    """Entities, with all the digits of their probabilities and of the scores."""
    docs = [nlp(text) for text in TEXTS]
    ner = nlp.get_pipe("ner")
    scores = to_numpy(ner.posterior(docs).potentials.emissions).astype("float64")
    ents = [[(ent.start, ent.end, ent.label_, ent._.confidence) for ent in d.ents] for d in docs]
    return json.loads(json.dumps([list(ner.labels), ents, scores.tolist()]))


def load(path: Path, config: Dict[str, Any]) -> Answer:
    """What a saved pipeline answers. Confidence is on, so that every probability counts."""
    confidence = {"components.ner.confidence": {"@misc": "spacy_costner.Confidence.v1"}}
    return answer(spacy.load(path, config={**confidence, **config}))


def make_subject(kind: str, folder: Path) -> Subject:
    """Train a model and find out what it answers."""
    path, other = folder / kind, folder / f"{kind}-other"
    train(kind, 0, path)
    train(kind, 1, other)
    return Subject(path, other, load(path, {}))


def places(value: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """The ways to all that is in a structure."""
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, (dict, list)):
            yield from places(part, (*path, key))
        else:
            yield (*path, key)


def edit(value: Any, path: Tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A structure with another value at one place."""
    if not path:
        return change(value)
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = edit(copied[path[0]], path[1:], change)
    return copied


def change_at_random(rng: random.Random) -> Callable[[Any], Any]:
    """Some change of a value: another one, its order reversed, a part of it gone or twice."""

    def change(value: Any) -> Any:
        kind = rng.randrange(5)
        if isinstance(value, numpy.ndarray) and value.size:
            changed = value.copy()
            changed.flat[rng.randrange(value.size)] = rng.choice([numpy.nan, numpy.inf, 3.0, -1e30])
            return [changed, changed[:1], changed[::-1].copy(), value * 2, value.T.copy()][kind]
        if isinstance(value, (list, bytes)) and value and kind:
            return [value[::-1], value[1:], value[:1], value + value[:1]][kind - 1]
        if isinstance(value, dict) and value and kind:
            return {name: value[name] for name in list(value)[1:]}
        if isinstance(value, (int, float)) and kind > 2:
            return value + rng.choice([1, -1, 0.5])
        return rng.choice(HOSTILE)

    return change


def flip(data: bytes, rng: random.Random) -> bytes:
    """One bit, or a few bytes at one place, turned over."""
    place, changed = rng.randrange(len(data)), bytearray(data)
    if rng.random() < 0.7:
        changed[place] ^= 1 << rng.randrange(8)
    else:
        changed[place : place + 4] = rng.randbytes(4)
    return bytes(changed)


def edit_model(data: bytes, rng: random.Random) -> bytes:
    """Something in the msgpack of a model changed, that of its shims included."""
    saved = srsly.msgpack_loads(data)
    saved["shims"] = [[srsly.msgpack_loads(shim) for shim in shims] for shims in saved["shims"]]
    top = rng.choice([name for name in saved if any(saved[name])])
    path = rng.choice([path for path in places(saved) if path[:1] == (top,)])
    changed = edit(saved, path, change_at_random(rng))
    with suppress(TypeError):  # no lists any more
        changed["shims"] = [[srsly.msgpack_dumps(s) for s in shims] for shims in changed["shims"]]
    return srsly.msgpack_dumps(changed)


def edit_config(text: str, rng: random.Random) -> Tuple[str, str]:
    """Something in the model or the scheme of the config changed; what is free stays. Returns the
    setting and the text."""
    lines = text.splitlines(keepends=True)
    ours, section = {}, ""
    for i, line in enumerate(lines):
        section = line.strip(" []\n") if line.startswith("[") else section
        if section == "components.ner" or section.startswith("components.ner.model"):
            ours[i] = section
    free = ("confidence", "spans_key", "own_labels")
    place = rng.choice([i for i in ours if "=" in lines[i] and not lines[i].startswith(free)])
    name, value = lines[place].split("=", 1)
    others = ["null", "0", "1", "2", "true", '"x"', "[]", "{}", '{"ORTH":2}', '"IOB2"', "nan"]
    kind = rng.randrange(3)
    if kind == 2:
        value = flip(value.encode(), rng).decode("latin1").replace("\n", " ") + "\n"
    lines[place] = [f"{name}={rng.choice(others)}\n", "", f"{name}={value}"][kind]
    return f"{ours[place]}.{name.strip()}", "".join(lines)


WINDOWS: Any = FEATURES["windows"]
OVERRIDES: Dict[str, List[Any]] = {
    "scheme": ["IOB2", "x"],
    "outside": ["before"],
    "loss": [{"@losses": "spacy_costner.Perceptron.v1"}],
    "incorrect_spans_key": ["wrong"],
    "model": [*MODELS.values()],
    "model.nO": [3, 13],
    "model.learn_rate": [1.0],
    "model.dropout": [0.5],
    "model.part_dropout": [0.5],
    "model.L1": [0.1],
    "model.features.windows": [
        {**WINDOWS, "ORTH": 2},
        {"SHAPE": 1, "ORTH": 1, "prefix": 0, "flags": 1},
        {"ORTH": 1, "LOWER": 1, "prefix": 0, "flags": 1},
        dict.fromkeys(WINDOWS, 9),
    ],
    "model.features.affixes": [[2, 1], [1, 3]],
    "model.features.flags": [["IS_UPPER", "is_first_upper"]],
    "model.features.bigrams": [{}, {"SHAPE": 2}],
    "model.features.min_count": [2],
    "model.tok2vec.width": [8],
    "model.tok2vec.depth": [2],
    "model.tok2vec.embed_size": [100],
    "model.tok2vec.window_size": [2],
    "model.tok2vec.maxout_pieces": [3],
    "model.tok2vec.subword_features": [False],
}


KINDS = "flip cut swap json json model model config override override".split()  # noqa: SIM905
FREE = ("decoding", "confidence", "temperature")


def free_settings(cfg: bytes) -> List[Any]:
    """What may be edited in cfg: other digits there are other settings."""
    try:
        saved = srsly.json_loads(cfg)
        return [saved.get(name) for name in FREE]
    except (ValueError, AttributeError):
        return []


def make_case(subject: Subject, rng: random.Random) -> Case:
    """One case, by chance."""
    names = ["cfg", "model"]
    old = {name: (subject.path / "ner" / name).read_bytes() for name in names}
    other = {name: (subject.other / "ner" / name).read_bytes() for name in names}
    part = rng.choice(names)
    file, data, same = f"ner/{part}", old[part], subject.answer
    kind = rng.choice(KINDS)
    if kind == "flip":
        changed = flip(data, rng)
        sets = part == "cfg" and free_settings(changed) != free_settings(data)
        return Case(f"{kind} {part}", {file: changed}, {}, None if sets else same)
    if kind == "cut":
        return Case(kind, {file: data[: rng.randrange(len(data))]}, {}, same)
    if kind == "swap":
        return Case(f"{kind} {part}", {file: other[part]}, {}, same)
    if kind == "json":
        cfg = json.loads(old["cfg"])
        return Case(*edit_cfg(cfg, rng), {}, same)
    if kind == "model":
        return Case(kind, {"ner/model": edit_model(old["model"], rng)}, {}, same)
    if kind == "config":
        where, text = edit_config((subject.path / "config.cfg").read_text(encoding="utf8"), rng)
        return Case(f"{kind} {where}", {"config.cfg": text.encode("utf8")}, {}, same)
    name = rng.choice([*OVERRIDES])
    value = rng.choice(OVERRIDES[name])
    return Case(f"{kind} {name} = {value}", {}, {f"components.ner.{name}": value}, same)


def edit_cfg(cfg: Dict[str, Any], rng: random.Random) -> Tuple[str, Dict[str, bytes]]:
    """Something in cfg changed. A free setting gets only what it can't be."""
    path = rng.choice([path for path in places(cfg) if path])
    change = change_at_random(rng)
    if path[0] in FREE:
        bad = [None, "x", float("nan"), float("inf"), [], [[1]], "nan", "inf", {"x": 1}]
        change = lambda _: rng.choice(bad)  # noqa: E731
    changed = edit(cfg, path, change)
    text = json.dumps(changed, default=lambda value: value.hex())
    return f"json {'.'.join(map(str, path))}", {"ner/cfg": text.encode()}


def outcome(case: Case, path: Path) -> str:
    """What becomes of a case: "refused", "same" or what is wrong."""
    before = {name: (path / name).read_bytes() for name in case.files}
    for name, content in case.files.items():
        (path / name).write_bytes(content)
    try:
        found = load(path, case.config)
    except ValueError:
        return "refused"
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"
    finally:
        for name, content in before.items():
            (path / name).write_bytes(content)
    if case.expected is None:
        return "predicted"
    return "same" if found == case.expected else "different"


def run_cases(subject: Subject, cases: List[Case]) -> List[str]:
    """The outcomes of cases, in a process that is replaced if it crashes."""

    def new_pool() -> ProcessPoolExecutor:
        limits = (resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))
        context = multiprocessing.get_context("fork")
        return ProcessPoolExecutor(1, context, resource.setrlimit, limits)

    pool, outcomes = new_pool(), []
    for case in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a fork; and of the cases, there
            future = pool.submit(outcome, case, subject.path)
        try:
            outcomes.append(future.result(SECONDS))
        except (BrokenProcessPool, TimeoutError) as error:
            outcomes.append(f"crash: {error!r}")
            pool = new_pool()
    pool.shutdown()
    return outcomes


def corrupt(kind: str, n_cases: int, seed: int) -> List[Tuple[Case, str]]:
    """Damage a model of a kind so often. Returns cases and outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        subject, rng = make_subject(kind, Path(folder)), random.Random(seed)
        cases = [make_case(subject, rng) for _ in range(n_cases)]
        return list(zip(cases, run_cases(subject, cases)))


def is_right(case: Case, found: str) -> bool:
    """Whether an outcome is as it should be. Registries are not ours, nor is a tok2vec: they have
    errors of their own for what is of the wrong type."""
    if case.name.startswith("config") and ("tok2vec" in case.name or "@" in case.name):
        return found in ("refused", "same") or found.startswith("error")
    return found in ("refused", "same") or (found == "predicted" and case.expected is None)


@app.command("corrupt")
def corrupt_models(cases: int = 1000, seed: int = 0) -> None:
    """Damage each kind of model so often."""
    n_wrong = 0
    for kind in MODELS:
        results = corrupt(kind, cases, seed)
        wrong = [(case, found) for case, found in results if not is_right(case, found)]
        n_wrong += len(wrong)
        print(kind, dict(Counter(found.split(":")[0] for _, found in results)), len(wrong), "wrong")
        for case, found in wrong:
            print(f"  {case.name} {list(case.files)} {case.config}: {found}")
    sys.exit(n_wrong > 0)


# Kills and full disks

ROOM = 1_000_000
"""Bytes: the least that a disk has to have, so that all that is left can be taken by halves."""

ENDED = "had ended"

SPARSE_CONFIG = """
[components.ner.loss]
@losses = "spacy_costner.Perceptron.v1"

[components.ner.model]
@architectures = "spacy_costner.SparseCRF.v1"

[components.ner.model.features]
@misc = "spacy_costner.Features.v1"
windows = {"ORTH":2,"LOWER":2,"SHAPE":2}

[training]
"""


class Task(NamedTuple):
    """A command that saves: its name here, its command line, the output folder, the place of the
    pipeline below that, and the folder that is there before, if there is one."""

    name: str
    arguments: List[str]
    output: Path
    saved: str
    older: Optional[Path]

    @property
    def path(self) -> Path:
        return self.output / self.saved

    def is_writing(self) -> bool:
        """Whether there is something on the way to the output."""
        if self.arguments[0] == "compare":
            return (self.path.parent / "training" / "model-best").exists()
        return any(self.path.parent.glob(f".{self.path.name}.*"))

    def reset(self) -> None:
        """Put the older folder in place."""
        shutil.rmtree(self.output, ignore_errors=True)
        for left in self.output.parent.glob(f".{self.output.name}.*"):
            shutil.rmtree(left)
        if self.older is not None:
            shutil.copytree(self.older, self.output)


def prepare(folder: Path) -> None:
    """Corpus, configs and pipelines to begin with."""
    corpus = folder / "corpus.spacy"
    make_corpus(corpus)
    head, rest = CONFIG.format(corpus=corpus).split("[components.ner.model]")
    sparse = head + SPARSE_CONFIG + rest.split("[training]")[1] + "max_epochs = 2\n"
    (folder / "base.cfg").write_text(sparse)
    (folder / "sequential.cfg").write_text(SEQUENTIAL.replace("Sequential", "Perceptron"))
    for scheme, name in (("BILUO", "older"), ("IOB2", "pipeline")):
        given = ["fit", f"{folder}/base.cfg", "--output", f"{folder}/{name}"]
        run_command([*given, "--components.ner.scheme", scheme])
    run_command(compare(folder, folder / "compared", rate=0.01))


def compare(folder: Path, output: Path, *, rate: float) -> List[str]:
    """The command line."""
    given = ["compare", f"{folder}/base.cfg", "--losses", f"{folder}/sequential.cfg"]
    given += ["--output", str(output), "--test", f"{folder}/corpus.spacy", "--samples", "9"]
    return [*given, "--components.ner.model.learn_rate", str(rate)]


def make_tasks(folder: Path, work: Path) -> List[Task]:
    """All commands: onto their input, over an older pipeline, and where there is nothing yet."""
    pipeline, older = folder / "pipeline" / "model-best", folder / "older" / "model-best"
    fit, tasks = ["fit", f"{folder}/base.cfg", "--output", str(work)], []
    for where, is_new in (("over older", False), ("new", True)):
        before = None if is_new else folder / "older"
        tasks.append(Task(f"fit, {where}", fit, work, "model-best", before))
        given, before = compare(folder, work, rate=0.02), None if is_new else folder / "compared"
        best = "sequential/seed-0/model-best"
        tasks.append(Task(f"compare, {where}", given, work, best, before))
    for where, source, old in (
        ("in place", work, pipeline),
        ("over older", pipeline, older),
        ("new", pipeline, None),
    ):
        for name in ("calibrate", "tune"):
            given = [name, str(source), f"{folder}/corpus.spacy", "--output", str(work)]
            tasks.append(Task(f"{name}, {where}", given, work, "", old))
    return tasks


def start(arguments: List[str]) -> int:
    """Begin a command in a process of its own: its number."""
    process = os.fork()
    if process == 0:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            os._exit(spacy_app(["costner", *arguments], standalone_mode=False) or 0)
        except BaseException:
            os._exit(1)
    return process


def run_command(arguments: List[str]) -> None:
    """Carry out a command that has to end well."""
    if os.waitpid(start(arguments), 0)[1]:
        raise RuntimeError(f"expected to end well: {' '.join(arguments)}")


def kill(task: Task, seconds: float, rng: random.Random, *, while_writing: bool) -> str:
    """Kill a command in the time that it takes, or while it writes. Returns what it was doing."""
    task.reset()
    process = start(task.arguments)
    end = time.perf_counter() + rng.uniform(0, seconds)
    while not (task.is_writing() if while_writing else time.perf_counter() > end):
        if os.waitpid(process, os.WNOHANG)[0]:
            return ENDED
        time.sleep(2e-4)
    if while_writing:
        time.sleep(rng.uniform(0, seconds / 10))
    os.kill(process, signal.SIGKILL)
    if not os.WIFSIGNALED(os.waitpid(process, 0)[1]):
        return ENDED
    return "killed writing" if task.is_writing() else "killed"


def fill(task: Task, disk: Path, rng: random.Random) -> str:
    """Carry out a command on a disk that has not enough room. Returns how it ended."""
    task.reset()
    needed = sum(path.stat().st_size for path in disk.rglob("*") if path.is_file()) or ROOM
    filler = disk / "filler"
    filler.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - int(rng.random() * needed))))
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


def measure(task: Task) -> Tuple[Dict[str, str], float]:
    """Old and new pipeline of a command that isn't killed, which have to be different, and the
    seconds that it takes."""
    task.reset()
    old = signature(task.path) if task.path.exists() else "nothing"
    begin = time.perf_counter()
    failed = os.waitpid(start(task.arguments), 0)[1]
    seconds = time.perf_counter() - begin
    new = signature(task.path)
    if failed or new == old:
        raise RuntimeError(f"{task.name}: expected another pipeline than the older one")
    return {old: "old", new: "new"}, seconds


def judge(task: Task, expected: Dict[str, str]) -> str:
    """What is under the output path now: "old", "new" or "BROKEN"."""
    clear(task.path)  # it was killed between two renames, maybe
    try:
        return expected.get(signature(task.path) if task.path.exists() else "nothing", "BROKEN")
    except Exception as error:
        print(f"{task.name}: {type(error).__name__}: {error}")
        return "BROKEN"


def again(task: Task, expected: Dict[str, str]) -> None:
    """What was killed can be done again, and leaves nothing else."""
    run_command(task.arguments)
    if task.is_writing() or (task.older is None and judge(task, expected) != "new"):
        raise RuntimeError(f"{task.name}: expected the new pipeline, and nothing beside it")


@app.command("kill")
def kill_commands(
    kills: int = 100,
    disk: Annotated[Optional[Path], typer.Option(help="Folder on a small disk, to fill")] = None,
    fills: int = 50,
    seed: int = 0,
) -> None:
    """Kill commands, half of them while they write, and fill the disk under others."""
    registry.cli.get_all()
    rng, found = random.Random(seed), Counter[Tuple[str, str, str]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        tasks = make_tasks(folder, folder / "work")
        measured = {task.name: measure(task) for task in tasks}
        i = done = 0
        while done < kills:
            task = tasks[i // 2 % len(tasks)]
            expected, seconds = measured[task.name]
            moment = kill(task, seconds, rng, while_writing=i % 2 == 1)
            found[task.name, moment, judge(task, expected)] += 1
            if i % 5 == 0:
                again(task, expected)
            done += moment != ENDED
            i += 1
        if disk is None or not ROOM < shutil.disk_usage(disk).free <= 64 * ROOM:
            print("full disk: left out, expected --disk with 1 to 64 MB free")
        else:
            tasks = make_tasks(folder, disk / "work")
            for task in (tasks[i % len(tasks)] for i in range(fills)):
                expected, _ = measured[task.name]
                how = fill(task, disk, rng)
                found[task.name, how, judge(task, expected)] += 1
                again(task, expected)
    for (name, moment, state), n in sorted(found.items()):
        print(f"{name:<26}{moment:<16}{state:<8}{n:>4}")
    sys.exit(any(state == "BROKEN" for *_, state in found))


if __name__ == "__main__":
    app()
