"""Run independent tasks in other processes on this machine, or on a Ray cluster, and cache their
results.

A run is a function of a module with its arguments. The result may be cached in a JSON file. The
file also has a key: the fingerprint of the arguments and of the files that they name. A file that
has another key, or is damaged, is not used.
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

from ..files.saving import save_text
from ..readers.files import digest
from ..validation import require

ValueT = TypeVar("ValueT")


MakeExecutor = Callable[[], Executor]
"""Makes an executor. Its workers need access to the same files as this process."""

TRIES_TOGETHER = 2
"""How often a run is tried beside others. If workers die then, it may be because of another run."""

TRIES_ALONE = 2
"""How often a run is tried alone after that."""

HOPELESS = 3
"""If so many runs have failed because their workers died, and no run has ended, the other runs are
not tried."""

import_once = lru_cache(import_code)
"""Imports a Python file with registered functions, once in each process."""

PACKAGES = ("spacy-costner", "spacy")
"""Workers of a cluster must have the versions of these packages that the driver has, which is the
process that starts the runs. (Ray itself checks the versions of Ray and Python.)"""


class Run(NamedTuple):
    """A task: a function to call.

    name (str): The name of the run, for people.
    function (Callable[..., Any]): A function of a module.
    settings (dict[str, Any]): The keyword arguments of the function. With a cache, these must be
        valid JSON, and so must the result.
    path (Path | None): The file in which the result is cached. None: it isn't cached.
    """

    name: str
    function: Callable[..., Any]
    settings: dict[str, Any]
    path: Path | None = None

    @property
    def key(self) -> str:
        """The fingerprint of the function and its arguments: the key of the cached result."""
        function = f"{self.function.__module__}.{self.function.__qualname__}"
        return fingerprint(function, self.settings)


class Done(NamedTuple):
    """The result of a run that has finished."""

    value: Any  # the return value of its function
    seconds: float  # its CPU time


class Failed(NamedTuple):
    """The error of a run that has failed."""

    reason: str  # the error in one line
    trace: str  # the traceback


Ended = Done | Failed
"""How a run has ended."""

RunQueue = deque[tuple[Run, int]]
"""The runs that are still to be executed, and for each how many workers have died with it."""


def run_all(
    runs: Iterable[Run], make_executor: MakeExecutor | None = None
) -> Iterator[tuple[Run, Ended]]:
    """Execute runs. A run that fails doesn't stop the others.

    If a worker dies, the executor is made anew, and the runs that it had are repeated. If workers
    die with the same run again and again, the run is repeated alone after `TRIES_TOGETHER` deaths,
    and fails after `TRIES_ALONE` more.

    runs (Iterable[Run]): The runs.
    make_executor (MakeExecutor | None): Makes the executor: see `local_processes` and
        `ray_cluster`. An executor may have two attributes. `jobs` is the number of runs that it
        gets at a time; without it, it gets all of them. `outlives_workers` says that it can still
        be used after a worker has died. None: runs are executed in this process, one after another.
    YIELDS (tuple[Run, Ended]): The runs with their results, in the order in which they end.
    """
    if make_executor is None:
        for run in runs:
            yield run, run_one(run)
        return
    # Each run with the number of workers that have died with it
    run_together: RunQueue = deque((run, 0) for run in runs)
    run_alone: RunQueue = deque()
    n_lost = 0  # the number of runs that have failed because their workers died
    has_any_ended = False
    while run_together or run_alone:
        # If no run has ended yet and several are lost, workers die whatever they execute.
        if n_lost >= HOPELESS and not has_any_ended:
            break
        queue = run_together
        if run_alone:
            # A single run at a time: if a worker dies, it is known which run it had. The executor
            # is new and not broken, so that the run is surely begun, and not left in this queue.
            queue = deque([run_alone.popleft()])
        for run, n_deaths, ended in run_until_broken(queue, make_executor):
            if ended is not None:
                has_any_ended = True
                yield run, ended
            elif n_deaths < TRIES_TOGETHER:
                # It is repeated first, so that a run that kills its workers is soon tried alone.
                run_together.appendleft((run, n_deaths))
            elif n_deaths < TRIES_TOGETHER + TRIES_ALONE:
                run_alone.appendleft((run, n_deaths))
            else:
                n_lost += 1
                yield run, Failed(f"its worker died {n_deaths} times", trace="")
    # If it is hopeless, these runs are left.
    for run, _ in [*run_alone, *run_together]:
        yield run, Failed("workers die: see what they have printed", trace="")


def run_until_broken(
    queue: RunQueue, make_executor: MakeExecutor
) -> Iterator[tuple[Run, int, Ended | None]]:
    """Execute the runs of a queue until the queue is empty, or until a worker dies and breaks the
    executor. Runs that were not begun then stay in the queue.

    queue (RunQueue): The runs. Those that are begun are taken out.
    make_executor (MakeExecutor): Makes the executor: see `run_all`.
    YIELDS (tuple[Run, int, Ended | None]): A run, the number of workers that have died with it, and
        its result. The result is None if a worker has just died with the run, which may then be
        repeated.
    """
    executor = make_executor()
    # Executors may lack the attributes `jobs` and `outlives_workers`: see `run_all`.
    max_pending = getattr(executor, "jobs", len(queue))
    pending: dict[Future, tuple[Run, int]] = {}  # the runs that the executor has
    is_broken = False
    try:
        while pending or (queue and not is_broken):
            # Give the executor as many runs as it may have.
            while queue and len(pending) < max_pending and not is_broken:
                run, _ = queue[0]
                try:
                    future = executor.submit(run_one, run)
                except BrokenExecutor:
                    is_broken = True  # The run stays in the queue, as no worker has had it.
                else:
                    pending[future] = queue.popleft()
            # Wait until at least one of them has ended.
            for future in futures.wait(pending, return_when=futures.FIRST_COMPLETED).done:
                run, n_deaths = pending.pop(future)
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    is_broken = not getattr(executor, "outlives_workers", False)
                    yield run, n_deaths + 1, None
                elif isinstance(error, Exception):
                    # `run_one` returns errors. This one is from before or after it: what can't be
                    # pickled, or a worker with other versions or files.
                    yield run, n_deaths, describe_failure(error)
                else:
                    # This raises other errors, such as a KeyboardInterrupt of the worker.
                    yield run, n_deaths, future.result()
    finally:
        executor.shutdown(cancel_futures=True)


def run_one(run: Run) -> Ended:
    """Execute a run, or read its cached result. This is what a worker does. An error isn't raised,
    but returned as a `Failed`."""

    def execute() -> Done:
        """Call the function of the run, and measure its CPU time."""
        begin = process_time()
        value = run.function(**run.settings)
        return Done(value, process_time() - begin)

    try:
        if run.path is None:
            return execute()
        # The cache is JSON, where a `Done` becomes a list of its two fields.
        value, seconds = remembered(run.path, run.key, execute)
        return Done(value, seconds)
    except Exception as error:
        return describe_failure(error)


def describe_failure(error: BaseException) -> Failed:
    """Describe the error of a run in words. The exception itself may be of a class that another
    process can't unpickle."""
    reason = f"{type(error).__name__}: {error}"
    return Failed(reason, trace="".join(format_exception(error)))


def remembered(path: Path, key: str, make: Callable[[], ValueT]) -> ValueT:
    """Return a cached value, or compute it and cache it. In both cases the value has gone through
    JSON: a tuple has become a list, for example. Floats are exactly the same.

    path (Path): The file of the cache.
    key (str): The fingerprint of what the value depends on.
    make (Callable[[], ValueT]): Computes the value, which must be valid JSON and not None.
    """
    value = read_cache(path, key)
    if value is None:
        text = json.dumps({"key": key, "value": make()})
        save_text(path, text)
        value = json.loads(text)["value"]
    return value


def read_cache(path: Path, key: str) -> Any | None:
    """Read a cached value. Returns None if there is no file, or if the file has another key or is
    damaged."""
    with suppress(OSError, ValueError, RecursionError):
        cached = json.loads(path.read_bytes())
        if isinstance(cached, dict) and cached.get("key") == key:
            return cached.get("value")
    return None


def fingerprint(*parts: Any) -> str:
    """Compute a digest of settings, and of the files and folders that they name. It is another one
    if a setting or the content of a file has changed.

    *parts (Any): The settings, as JSON.
    """
    texts = sorted(set(texts_of(parts)))
    # Any text may be a path. It is one if there is something under it.
    paths = [Path(text) for text in texts if exists(text)]
    return digest(parts, *paths)


def texts_of(settings: Any) -> Iterator[str]:
    """Find all strings in settings, however deep in mappings and lists."""
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        for setting in settings.values():
            yield from texts_of(setting)
    elif isinstance(settings, (list, tuple)):
        for setting in settings:
            yield from texts_of(setting)


class Processes(ProcessPoolExecutor):
    """An executor of parallel processes on this machine. They end when this process ends, even if
    it is killed."""

    def __init__(self, jobs: int) -> None:
        if sys.platform == "linux":
            context: Any = get_context("forkserver")
            # A server process imports this package once, and workers are copies of the server.
            context.set_forkserver_preload([__name__])
        else:
            context = get_context("spawn")
        super().__init__(jobs, mp_context=context, initializer=end_with_parent)
        self.jobs = jobs  # for `run_all`
        self._executor_manager_thread: Any

    def _adjust_process_count(self) -> None:
        """Start all workers at the first call of `submit`, before the thread that watches them.

        The base class starts one in each call if none is idle. In CPython before 3.13 it may do so
        while it terminates the others because one has died, and then it waits for the new one
        without end.
        """
        pool: Any = super()
        if self._executor_manager_thread is None:
            for _ in range(self.jobs):
                pool._adjust_process_count()


def end_with_parent() -> None:
    """Let this process end as soon as the process that started it has ended."""
    parent: Any = parent_process()

    def wait_and_exit() -> None:
        """Wait in a thread until the other process has ended. Then end this process."""
        parent.join()
        # `sys.exit` would only end this thread.
        os._exit(1)

    Thread(target=wait_and_exit, daemon=True).start()


def local_processes(jobs: int) -> MakeExecutor | None:
    """Return the argument of `run_all` for so many parallel processes on this machine: a function
    that makes their executor. For one job it is None, as no other process is needed."""
    if jobs == 1:
        return None
    return partial(Processes, jobs)


def ray_cluster(address: str | None, use_gpu: int = -1) -> MakeExecutor | None:
    """Return the argument of `run_all` for a Ray cluster: a function that makes its executor.

    address (str | None): The address of the cluster: "host:port" of its head, "auto" for the
        cluster that this machine belongs to, or another address for `ray.init`. None: no cluster.
    use_gpu (int): 0: each run has a GPU for itself. -1: runs have no GPU.
    RETURNS (MakeExecutor | None): The function. None if there is no address.
    RAISES (ImportError): If ray isn't installed.
    """
    if address is None:
        return None
    ray = require("ray", extra="distributed", missing="--address requires ray")
    gpus_per_run = 1 if use_gpu >= 0 else 0
    return partial(RayCluster, ray, address, gpus_per_run)


class RayCluster(Executor):
    """An executor of tasks on a Ray cluster. If this process is already connected to a cluster, the
    connection is used, and stays.

    If a worker or its machine dies, its task ends with a `BrokenExecutor`. Other tasks go on.

    jobs (int): How many tasks Ray gets at a time, whether or not it has workers for all of them.
    outlives_workers (bool): That it can still be used after a worker has died: see `run_all`.
    """

    jobs = 1000
    outlives_workers = True

    def __init__(self, ray: Any, address: str, n_gpus: int = 0) -> None:
        """Connect to the cluster, and check the packages and files of its machines. Machines that
        join the cluster later are checked by their tasks.

        ray (Any): The module `ray`.
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
        # Ray's references to the tasks that have not ended, by our futures for them
        self.references: dict[Future, Any] = {}
        versions = {name: version(name) for name in PACKAGES}
        # Ray itself must not repeat a task whose worker has died: `run_all` does that, and counts
        # how often.
        task = ray.remote(max_retries=0, num_cpus=1, num_gpus=n_gpus)(_make_task())
        self.start_task = partial(task.remote, os.getcwd(), versions)
        try:
            for node in ray.nodes():
                if node["Alive"] and node["Resources"].get("CPU"):
                    self.check_node(task, node["NodeID"], versions)
        except BaseException:
            self.shutdown(cancel_futures=True)
            raise

    def check_node(self, task: Any, node_id: str, versions: dict[str, str]) -> None:
        """Check the packages and files of a machine of the cluster, by a task that does nothing
        else there. It isn't an error if the machine dies meanwhile, as its tasks will go to others.

        task (Any): The task of Ray: see `_make_task`.
        node_id (str): Ray's id of the machine.
        versions (dict[str, str]): The versions of packages that the machine must have.
        RAISES (ValueError): If it has another version, or other files.
        """
        strategies = self.ray.util.scheduling_strategies
        on_this_node = strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
        # The check needs no CPU, so that it doesn't wait for tasks that use all of them.
        check = task.options(num_cpus=0, num_gpus=0, scheduling_strategy=on_this_node)
        pickled_call = None  # Only versions and files are checked: there is nothing to call.
        reference = check.remote(os.getcwd(), versions, pickled_call)
        future = self._make_future(reference)
        if not isinstance(future.exception(), BrokenExecutor):
            future.result()  # raises the error of the task, if there is one

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Let a worker call a function. Its arguments and its value are pickled."""
        pickled_call = self.ray.cloudpickle.dumps((function, args, kwargs))
        return self._make_future(self.start_task(pickled_call))

    def _make_future(self, reference: Any) -> Future:
        """Make a future for a task of Ray. It ends when the task ends.

        reference (Any): Ray's reference to the task.
        """
        future: Future = Future()
        future.set_running_or_notify_cancel()  # From now on it can't be cancelled, only ended.
        self.references[future] = reference
        reference.future().add_done_callback(partial(self._end, future))
        return future

    def _end(self, future: Future, ray_future: Future) -> None:
        """End our future after a task of Ray has ended. It ends with the value of the task, with
        the error of its function or, if its worker has died, with a `BrokenExecutor`.

        future (Future): Our future.
        ray_future (Future): Ray's own future for the task.
        """
        error = ray_future.exception()
        self.references.pop(future, None)
        if error is None:
            future.set_result(ray_future.result())
        elif isinstance(error, self.ray.exceptions.RayTaskError):
            future.set_exception(error.cause)
        else:
            future.set_exception(BrokenExecutor(f"{type(error).__name__}: {error}"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the cluster, unless this process was already connected before.

        wait (bool): Whether to wait until all tasks have ended.
        cancel_futures (bool): Whether to cancel the tasks first.
        """
        # Ray's references by our futures: a copy, as tasks that end are taken out
        references = dict(self.references)
        if cancel_futures:
            for reference in references.values():
                self.ray.cancel(reference, force=True)
        if wait:
            futures.wait(references)
        if self.is_ours:
            self.ray.shutdown()


def check_address(address: str) -> None:
    """Check that something listens at an address of the form "host:port". Ray itself would try for
    five minutes. Other addresses aren't checked.

    RAISES (ConnectionError): If nothing listens there.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "/" in host:
        return  # It is not "host:port", but "auto" or "ray://host:port", for example.
    host = host.strip("[]")  # An IPv6 address stands in brackets.
    try:
        create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ConnectionError(f"{address}: expected a Ray cluster, got: {error}") from error


def _make_task() -> Callable[..., Any]:
    """Make the function that a worker of Ray executes.

    Ray sends a function of a module only by its name, and a worker with another version of this
    package may not have the name. An inner function such as this one is sent as a whole."""

    def task(folder: str, versions: dict[str, str], pickled_call: bytes | None) -> Any:
        """Check the packages and the files of the worker, and call a function.

        folder (str): The working folder of the driver, which the worker must have, too.
        versions (dict[str, str]): The versions of packages that the worker must have.
        pickled_call (bytes | None): The function and its arguments. None: nothing is called.
        RAISES (ValueError): If the worker has other versions, or not the folder.
        """
        # The worker gets this function alone, without the imports of the module.
        import os
        import pickle
        import socket
        from importlib.metadata import PackageNotFoundError, version

        host = socket.gethostname()
        for name, expected_version in versions.items():
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
        if pickled_call is not None:
            function, args, kwargs = pickle.loads(pickled_call)
            return function(*args, **kwargs)

    return task
