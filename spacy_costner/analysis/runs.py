"""Run independent tasks with an executor, local processes or a Ray cluster, and cache results.

A run is a module-level function with settings that can be written as JSON. Its result is cached as
a JSON file with a key, the fingerprint of the settings and of the files they name. A file with
another key, or one that is damaged, is not used.
"""

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from importlib.metadata import version
from multiprocessing import get_context, parent_process
from os.path import exists
from pathlib import Path
from socket import create_connection
from threading import Thread
from time import process_time
from traceback import format_exception
from typing import Any, NamedTuple, TypeVar

from spacy.cli._util import import_code

from ..readers.files import digest
from ..saving import save_text
from ..validation import require

ValueT = TypeVar("ValueT")


MakeExecutor = Callable[[], Executor]
"""Makes an executor. Its workers need access to the same files."""

TRIES_TOGETHER = 2
"""How often a run is tried beside others, if a worker dies: it may be the worker of another run."""

TRIES_ALONE = 2
"""How often a run is tried by itself after that."""

HOPELESS = 3
"""After so many runs have failed because their workers died, and none has ended, the rest isn't
tried."""

import_once = lru_cache(import_code)
"""Imports a Python file with registered functions, once in each process."""

PACKAGES = ("spacy-costner", "spacy")
"""Workers of a cluster need the driver's version of these. Ray checks its own and Python's."""


class Run(NamedTuple):
    """A task. Its result is cached in the file, if there is one: result and settings must then be
    valid JSON."""

    name: str
    function: Callable[..., Any]  # of a module
    settings: dict[str, Any]  # its keyword arguments
    path: Path | None = None

    @property
    def key(self) -> str:
        """The fingerprint of function and settings, by which the cached result is known."""
        function = f"{self.function.__module__}.{self.function.__qualname__}"
        return fingerprint(function, self.settings)


class Done(NamedTuple):
    """The return value of a finished run, and its CPU time in seconds."""

    value: Any
    seconds: float


class Failed(NamedTuple):
    """The error of a failed run in a line, and its traceback."""

    reason: str
    trace: str


Ended = Done | Failed

RunQueue = deque[tuple[Run, int]]
"""Runs to execute, and how often a worker has died with each."""


def run_all(
    runs: Iterable[Run], make_executor: MakeExecutor | None = None
) -> Iterator[tuple[Run, Ended]]:
    """Execute runs. One that fails doesn't stop the others.

    If a worker dies, the executor is made anew, and the runs that it had are repeated. After
    `TRIES_TOGETHER` deaths of its workers a run is repeated alone, and after `TRIES_ALONE` more it
    fails.

    runs (Iterable[Run]): The runs.
    make_executor (MakeExecutor | None): Makes the executor, such as `local_processes(4)` or
        `ray_cluster("auto")`. If it has a number of `jobs`, it is given so many runs at a time,
        and otherwise all. If it `outlives_workers`, it isn't made anew when one dies.
        None: execute in this process, one after another.
    YIELDS (tuple[Run, Ended]): The runs with their results, in the order in which they finish.
    """
    if make_executor is None:
        for run in runs:
            yield run, run_one(run)
        return
    run_together: RunQueue = deque((run, 0) for run in runs)
    run_alone: RunQueue = deque()
    n_lost = 0  # runs that have failed because their workers died
    is_any_done = False
    while run_together or run_alone:
        if n_lost >= HOPELESS and not is_any_done:
            break
        queue = run_together
        if run_alone:
            # A single run at a time: if a worker dies, it is known which run it had.
            queue = deque([run_alone.popleft()])
        for run, n_deaths, ended in run_until_broken(queue, make_executor):
            if ended is not None:
                is_any_done = True
                yield run, ended
            elif n_deaths < TRIES_TOGETHER:
                run_together.appendleft((run, n_deaths))
            elif n_deaths < TRIES_TOGETHER + TRIES_ALONE:
                run_alone.appendleft((run, n_deaths))
            else:
                n_lost += 1
                yield run, Failed(f"its worker died {n_deaths} times", "")
    for run, _ in [*run_alone, *run_together]:
        yield run, Failed("workers die: see what they have printed", "")


def run_until_broken(
    queue: RunQueue, make_executor: MakeExecutor
) -> Iterator[tuple[Run, int, Ended | None]]:
    """Execute runs from a queue until it is empty, or a worker dies and breaks the executor. Runs
    that the executor has not had are then still in the queue.

    YIELDS (tuple[Run, int, Ended | None]): A run, how often a worker has died with it, and its
        result; None if a worker has died with it now, so that it may be repeated.
    """
    executor = make_executor()
    max_pending = getattr(executor, "jobs", len(queue))
    pending: dict[Future, tuple[Run, int]] = {}  # the runs that the executor has
    is_broken = False
    try:
        while pending or (queue and not is_broken):
            # Give it as many runs as it may have
            while queue and len(pending) < max_pending and not is_broken:
                run, _ = queue[0]
                try:
                    future = executor.submit(run_one, run)
                except BrokenExecutor:
                    is_broken = True  # The run stays in the queue: no worker has had it.
                else:
                    pending[future] = queue.popleft()
            # Wait until any ends
            for future in futures.wait(pending, return_when=futures.FIRST_COMPLETED).done:
                run, n_deaths = pending.pop(future)
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    is_broken = not getattr(executor, "outlives_workers", False)
                    yield run, n_deaths + 1, None
                elif isinstance(error, Exception):
                    yield run, n_deaths, describe_failure(error)
                else:
                    yield run, n_deaths, future.result()
    finally:
        executor.shutdown(cancel_futures=True)


def run_one(run: Run) -> Ended:
    """Execute a run, or read its cached result: what a worker does. Errors are not raised, but
    returned as a `Failed`."""

    def execute() -> Done:
        """Call the function of the run, and measure its CPU time."""
        begin = process_time()
        value = run.function(**run.settings)
        return Done(value, process_time() - begin)

    try:
        if run.path is None:
            return execute()
        # The cache is JSON, which has a list of both fields in place of a `Done`.
        value, seconds = remembered(run.path, run.key, execute)
        return Done(value, seconds)
    except Exception as error:
        return describe_failure(error)


def describe_failure(error: BaseException) -> Failed:
    """The error of a run as text: an exception of another process may not be unpickled."""
    reason = f"{type(error).__name__}: {error}"
    return Failed(reason, trace="".join(format_exception(error)))


def remembered(path: Path, key: str, make: Callable[[], ValueT]) -> ValueT:
    """Read a cached value, or compute it and cache it. Either way the value is as JSON has it: a
    tuple has become a list. Floats stay exactly as they are.

    path (Path): The file of the cache.
    key (str): The fingerprint of what the value depends on.
    make (Callable[[], ValueT]): Computes the value, valid JSON and not None.
    """
    value = read_cache(path, key)
    if value is None:
        text = json.dumps({"key": key, "value": make()})
        save_text(path, text)
        value = json.loads(text)["value"]
    return value


def read_cache(path: Path, key: str) -> Any | None:
    """Read a cached value; None if there is no file, if it has another key, or is damaged."""
    with suppress(OSError, ValueError, RecursionError):
        cached = json.loads(path.read_bytes())
        if isinstance(cached, dict) and cached.get("key") == key:
            return cached.get("value")
    return None


def fingerprint(*parts: Any) -> str:
    """Compute a digest of settings, valid JSON, and of the files and folders that they name. It
    changes if a setting changes, or the content of a file."""
    texts = sorted(set(texts_of(parts)))
    # Any text may be a path.
    paths = [Path(text) for text in texts if exists(text)]
    return digest(parts, *paths)


def texts_of(settings: Any) -> Iterator[str]:
    """Find all texts among settings, however deep in mappings and lists."""
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        for setting in settings.values():
            yield from texts_of(setting)
    elif isinstance(settings, (list, tuple)):
        for setting in settings:
            yield from texts_of(setting)


class Processes(ProcessPoolExecutor):
    """Parallel processes on this machine. They end with this one, even if it is killed."""

    def __init__(self, jobs: int) -> None:
        if sys.platform == "linux":
            context: Any = get_context("forkserver")
            # The server imports the package once. Workers are its copies.
            context.set_forkserver_preload([__name__])
        else:
            context = get_context("spawn")
        super().__init__(jobs, mp_context=context, initializer=end_with_parent)
        self.jobs = jobs


def end_with_parent() -> None:
    """End this process as soon as the one that started it has ended."""
    parent: Any = parent_process()

    def wait_and_exit() -> None:
        """What a thread does in the background: wait for the other process, then end this one."""
        parent.join()
        # Not `sys.exit`, which would only end this thread.
        os._exit(1)

    Thread(target=wait_and_exit, daemon=True).start()


def local_processes(jobs: int) -> MakeExecutor | None:
    """The function that makes an executor of parallel processes on this machine, for `run_all`.
    None for one job, which needs no other process."""
    if jobs == 1:
        return None
    return partial(Processes, jobs)


def ray_cluster(address: str | None, use_gpu: int = -1) -> MakeExecutor | None:
    """The function that makes the executor of a Ray cluster, for `run_all`.

    address (str | None): "host:port" of its head, "auto" for the one that this machine belongs
        to, or another address for `ray.init`. None: no cluster.
    use_gpu (int): With 0, each run has a GPU, and sees no other. -1: none.
    RETURNS (MakeExecutor | None): The function; None if there is no address.
    RAISES (ImportError): If ray isn't installed.
    """
    if address is None:
        return None
    ray = require("ray", "distributed", "--address requires ray")
    n_gpus = 1 if use_gpu >= 0 else 0  # for each run
    return partial(RayCluster, ray, address, n_gpus)


class RayCluster(Executor):
    """Tasks on a Ray cluster. A process that is connected to one already stays so.

    A task whose worker or machine dies ends with a `BrokenExecutor`; others go on.

    jobs (int): How many tasks Ray is given at a time, whether or not it has workers for them.
    """

    jobs = 1000
    outlives_workers = True

    def __init__(self, ray: Any, address: str, n_gpus: int = 0) -> None:
        """Connect, and check all machines that there are. Later ones are checked by their tasks.

        ray (Any): The module.
        address (str): The address of the cluster: see `ray_cluster`.
        n_gpus (int): The number of GPUs that each task has.
        RAISES (ValueError): If a machine has another version of the packages, or other files.
        RAISES (ConnectionError): If there is no cluster.
        """
        self.ray = ray
        self.is_ours = not ray.is_initialized()
        if self.is_ours:
            check_address(address)
            ray.init(address, log_to_driver=False, logging_level="warning")
        # Ray's references to the tasks that have not ended, by the future that we made for each
        self.references: dict[Future, Any] = {}
        expected = {name: version(name) for name in PACKAGES}
        # Ray must not repeat a task whose worker died: `run_all` does, and counts how often.
        task = ray.remote(max_retries=0, num_cpus=1, num_gpus=n_gpus)(_make_task())
        self.start_task = partial(task.remote, os.getcwd(), expected)
        try:
            for node in ray.nodes():
                if node["Alive"] and node["Resources"].get("CPU"):
                    self.check_node(task, node["NodeID"], expected)
        except BaseException:
            self.shutdown(cancel_futures=True)
            raise

    def check_node(self, task: Any, node_id: str, expected: dict[str, str]) -> None:
        """Check the packages and files of a machine, by a task that does nothing else there. It
        isn't an error if the machine dies meanwhile: its tasks will go to others.

        task (Any): What a worker does: see `_make_task`.
        node_id (str): Ray's id of the machine.
        expected (dict[str, str]): The versions of packages that it has to have.
        RAISES (ValueError): If it has another version, or other files.
        """
        strategies = self.ray.util.scheduling_strategies
        only_there = strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
        # Without CPUs it doesn't wait for tasks of others that use all of them.
        check = task.options(num_cpus=0, num_gpus=0, scheduling_strategy=only_there)
        reference = check.remote(os.getcwd(), expected, None)
        future = self._make_future(reference)
        if not isinstance(future.exception(), BrokenExecutor):
            future.result()  # raises the error of the task

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Have a worker call a function. Its arguments and its value are pickled."""
        pickled = self.ray.cloudpickle.dumps((function, args, kwargs))
        return self._make_future(self.start_task(pickled))

    def _make_future(self, reference: Any) -> Future:
        """Make a future of Python for a task of Ray: it ends when the task ends."""
        future: Future = Future()
        future.set_running_or_notify_cancel()
        self.references[future] = reference
        reference.future().add_done_callback(partial(self._end, future))
        return future

    def _end(self, future: Future, answer: Future) -> None:
        """End our future when a task of Ray has ended: with its value, with the error of its
        function, or with a `BrokenExecutor` if its worker died.

        future (Future): Our future.
        answer (Future): The future that Ray has made for the task.
        """
        error = answer.exception()
        self.references.pop(future, None)
        if error is None:
            future.set_result(answer.result())
        elif isinstance(error, self.ray.exceptions.RayTaskError):
            future.set_exception(error.cause)
        else:
            future.set_exception(BrokenExecutor(f"{type(error).__name__}: {error}"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the cluster, unless the process was connected before.

        wait (bool): Wait until all tasks have ended.
        cancel_futures (bool): End them before.
        """
        references = dict(self.references)  # a copy: tasks that end are taken out
        if cancel_futures:
            for reference in references.values():
                self.ray.cancel(reference, force=True)
        if wait:
            futures.wait(references)
        if self.is_ours:
            self.ray.shutdown()


def check_address(address: str) -> None:
    """Check that something listens at a "host:port", as Ray would try for five minutes. Addresses
    of other forms aren't checked.

    RAISES (ConnectionError): If nothing listens there.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "/" in host:
        return
    host = host.strip("[]")  # of an IPv6 address
    try:
        create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ConnectionError(f"{address}: expected a Ray cluster, got: {error}") from error


def _make_task() -> Callable[..., Any]:
    """Make the function that a worker of Ray executes. It is within a function, as Ray sends such
    functions as a whole. It would send others by name only, and a worker with another version of
    the package may not have that name."""

    def task(folder: str, expected: dict[str, str], pickled: bytes | None) -> Any:
        """Check the worker's versions and files, and call a pickled function with its arguments, if
        there is one. Imports are here, as the worker gets this function alone."""
        import os
        import pickle
        import socket
        from importlib.metadata import PackageNotFoundError, version

        host = socket.gethostname()
        for name, expected_version in expected.items():
            try:
                installed = version(name)
            except PackageNotFoundError:
                installed = "none"
            if installed != expected_version:
                raise ValueError(
                    f"worker on {host}: expected {name} {expected_version}, got {installed}"
                )
        if not os.path.isdir(folder):
            raise ValueError(f"worker on {host}: expected the files of the driver, got no {folder}")
        os.chdir(folder)
        if pickled is not None:
            function, args, kwargs = pickle.loads(pickled)
            return function(*args, **kwargs)

    return task
