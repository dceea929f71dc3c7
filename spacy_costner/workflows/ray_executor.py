"""An executor for running tasks on a Ray cluster. See `run_all`.

Ray Data can also be used to annotate tables on a cluster (see docs/scale.md). Like this executor,
it returns each row exactly once even if a worker or node dies. However, if a text crashes every
worker that processes it, Ray Data retries it forever or, if retries are limited, also loses other
texts. `run_all` tries a part four times, reports it and continues. Ray Data also can't distribute
the training runs of `compare`, `audit` and the experiments.
"""

import os
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import partial
from importlib.metadata import version
from socket import create_connection
from typing import Any

from ..validation import require
from .runs import MakeExecutor

PACKAGES = ("spacy-costner", "spacy")
"""Packages that must have the same version on the workers and the driver, which is the process that
starts the runs. (Ray itself checks the versions of Ray and Python.)"""


def ray_cluster(address: str | None, use_gpu: int = -1) -> MakeExecutor | None:
    """Return a function that creates an executor for a Ray cluster, for `run_all`.

    address (str | None): The address of the cluster: "host:port" of its head node, "auto" for the
        cluster that this machine belongs to, or any other address accepted by `ray.init`. None to
        run without a cluster.
    use_gpu (int): 0 to assign one GPU to each run, or -1 for CPU.
    RETURNS (MakeExecutor | None): The function, or None if `address` is None.
    RAISES (ImportError): If Ray isn't installed.
    """
    if address is None:
        return None
    ray = require("ray", extra="distributed", missing="`address` requires ray")
    gpus_per_run = 1 if use_gpu >= 0 else 0
    return partial(RayCluster, ray, address, gpus_per_run)


class RayCluster(Executor):
    """An executor that runs tasks on a Ray cluster. If this process is already connected to a
    cluster, the connection is reused and kept open.

    If a worker or its node dies, its task fails with a `BrokenExecutor`. Other tasks continue.

    jobs (int): Maximum number of tasks to submit at a time. It may exceed the number of workers.
    outlives_workers (bool): Whether the executor can still be used after a worker has died. See
        `run_all`.
    """

    jobs = 1000
    outlives_workers = True

    def __init__(self, ray: Any, address: str, n_gpus: int = 0) -> None:
        """Connect to the cluster and check the packages and files on its nodes. Nodes that join
        later are checked by their tasks. Each task is assigned `n_gpus` GPUs."""
        self.ray = ray
        self.is_ours = not ray.is_initialized()
        if self.is_ours:
            check_address(address)
            ray.init(address, log_to_driver=False, logging_level="warning")
        # Maps the futures of unfinished tasks to Ray object references
        self.references: dict[Future, Any] = {}
        versions = {name: version(name) for name in PACKAGES}
        # Disable Ray's retries. `run_all` retries tasks whose worker has died and counts the
        # deaths.
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
        """Check the packages and files on a node of the cluster by running a task that does nothing
        else. Raise an error if they don't match the driver. If the node dies during the check, it
        is ignored, because its tasks will run on other nodes."""
        strategies = self.ray.util.scheduling_strategies
        on_this_node = strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
        # Don't request a CPU, so that the check doesn't have to wait for running tasks.
        check = task.options(num_cpus=0, num_gpus=0, scheduling_strategy=on_this_node)
        pickled_call = None  # only check versions and files
        reference = check.remote(os.getcwd(), versions, pickled_call)
        future = self._make_future(reference)
        if not isinstance(future.exception(), BrokenExecutor):
            future.result()  # raises the error of the task, if any

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Call a function on a worker. The function, its arguments and its return value are
        pickled."""
        pickled_call = self.ray.cloudpickle.dumps((function, args, kwargs))
        return self._make_future(self.start_task(pickled_call))

    def _make_future(self, reference: Any) -> Future:
        """Create a future for a Ray task. It is resolved when the task completes."""
        future: Future = Future()
        future.set_running_or_notify_cancel()  # prevent cancellation
        self.references[future] = reference
        reference.future().add_done_callback(partial(self._end, future))
        return future

    def _end(self, future: Future, ray_future: Future) -> None:
        """Resolve the future of a completed Ray task with the return value or the error of the
        function. If the worker has died, set a `BrokenExecutor` as the error."""
        error = ray_future.exception()
        self.references.pop(future, None)
        if error is None:
            future.set_result(ray_future.result())
        elif isinstance(error, self.ray.exceptions.RayTaskError):
            future.set_exception(error.cause)
        else:
            future.set_exception(BrokenExecutor(f"{type(error).__name__}: {error}"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the cluster, unless this process was already connected when the executor
        was created.

        wait (bool): Whether to wait until all tasks have completed.
        cancel_futures (bool): Whether to cancel the tasks first.
        """
        # Use a copy, because completed tasks are removed from the original.
        references = dict(self.references)
        if cancel_futures:
            for reference in references.values():
                self.ray.cancel(reference, force=True)
        if wait:
            futures.wait(references)
        if self.is_ours:
            self.ray.shutdown()


def check_address(address: str) -> None:
    """Check that a server is listening at a "host:port" address. Without this check, Ray would
    retry for five minutes. Addresses in other formats aren't checked."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "/" in host:
        return  # not "host:port", but for example "auto" or "ray://host:port"
    host = host.strip("[]")  # IPv6 addresses are enclosed in brackets
    try:
        create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ConnectionError(f"{address}: expected a Ray cluster, got: {error}") from error


def _make_task() -> Callable[..., Any]:
    """Create the function that Ray workers execute.

    Ray pickles module-level functions by name, and the function may not exist on a worker with a
    different version of this package. Nested functions are pickled by value."""

    def task(folder: str, versions: dict[str, str], pickled_call: bytes | None) -> Any:
        """Check the packages and files on the worker, and call the pickled function, if any. The
        driver's working directory must also exist on the worker."""
        # Only this function is sent to the worker, without the imports of the module.
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
