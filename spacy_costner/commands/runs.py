"""Independent runs, carried out by an executor: local processes, or a cluster.

A run is a function of a module with settings that JSON can hold. What is kept is a file of JSON
with a key, the fingerprint of what it depends on: a file with another key is no use. It is written
beside and then renamed, so that what is there is whole.
"""

import json
import traceback
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from os.path import isdir, isfile
from pathlib import Path
from time import process_time
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

ValueT = TypeVar("ValueT")
MakeExecutor = Callable[[], Executor]
"""Starts what runs are handed to. Its workers have to see the files that we see."""


class Run(NamedTuple):
    """Something to run.

    name (str): Its name.
    function (Callable[..., Any]): A function of a module.
    settings (Dict[str, Any]): Its arguments, by name.
    path (Optional[Path]): Where its result is kept, which JSON has to be able to hold then, with
        the settings; None if it isn't kept, or the function does that itself.
    """

    name: str
    function: Callable[..., Any]
    settings: Dict[str, Any]
    path: Optional[Path] = None

    @property
    def key(self) -> str:
        """What a kept result has to have been made by."""
        function = f"{self.function.__module__}.{self.function.__qualname__}"
        return fingerprint(function, self.settings)


class Done(NamedTuple):
    """A run that came to its end.

    value (Any): What the function returned.
    seconds (float): The CPU time that it took.
    """

    value: Any
    seconds: float


class Failed(NamedTuple):
    """A run that didn't, and why: in a line, and in full."""

    reason: str
    trace: str


Ended = Union[Done, Failed]


def run_all(
    runs: Sequence[Run], make_executor: Optional[MakeExecutor] = None
) -> Iterator[Tuple[Run, Ended]]:
    """Carry out runs. One that fails doesn't stop the others.

    runs (Sequence[Run]): The runs.
    make_executor (Optional[MakeExecutor]): Starts the executor, such as `local_processes(4)`;
        None: they run here, one after another.
    YIELDS (Tuple[Run, Ended]): What came of each, as they end.
    """
    if make_executor is None:
        yield from ((run, run_one(run)) for run in runs)
        return
    executor = make_executor()
    try:
        futures = {executor.submit(run_one, run): run for run in runs}
        for future in as_completed(futures):
            yield futures[future], _ended(future.result)
    finally:
        executor.shutdown(cancel_futures=True)


def local_processes(jobs: int) -> Optional[MakeExecutor]:
    """So many processes on this machine; with one job, none but this."""
    if jobs == 1:
        return None
    return partial(ProcessPoolExecutor, jobs, mp_context=get_context("spawn"))


def run_one(run: Run) -> Ended:
    """Carry out a run, or read what was kept of it."""
    if run.path is None:
        return _ended(lambda: _timed(run))
    path = run.path
    return _ended(lambda: Done(*remembered(path, run.key, lambda: _timed(run))))


def _timed(run: Run) -> Done:
    begin = process_time()
    value = run.function(**run.settings)
    return Done(value, process_time() - begin)


def _ended(get: Callable[[], Ended]) -> Ended:
    """What is returned, or why nothing is: a worker that was killed is a failure, too."""
    try:
        return get()
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}", traceback.format_exc())


def fingerprint(*parts: Any) -> str:
    """A digest of settings and of the files that they name.

    *parts (Any): Settings, as JSON can hold them.
    RETURNS (str): The digest. In folders only .spacy files count.
    """
    digest = sha256(json.dumps(parts, sort_keys=True).encode("utf8"))
    for text in sorted(set(_texts(parts))):
        for file in sorted(Path(text).rglob("*.spacy")) if isdir(text) else [Path(text)]:
            if isfile(file):
                digest.update(file.read_bytes())
    return digest.hexdigest()


def _texts(settings: Any) -> Iterator[str]:
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        yield from _texts(list(settings.values()))
    elif isinstance(settings, (list, tuple)):
        for setting in settings:
            yield from _texts(setting)


def kept(path: Path, key: str) -> Optional[Any]:
    """Read a value that was kept; None if there is none of that key."""
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf8"))
    return found["value"] if found["key"] == key else None


def remembered(path: Path, key: str, make: Callable[[], ValueT]) -> ValueT:
    """Read a value from a file, or make it and write it down.

    path (Path): The file.
    key (str): What the value depends on; a file with another key is no use.
    make (Callable[[], ValueT]): Makes the value, which JSON can hold and which isn't None.
    RETURNS (ValueT): The value, as JSON holds it, floats to the last digit.
    """
    value = kept(path, key)
    if value is None:
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".part")
        text = json.dumps({"key": key, "value": made})
        written.write_text(text, encoding="utf8")
        written.replace(path)
        value = json.loads(text)["value"]
    return value
