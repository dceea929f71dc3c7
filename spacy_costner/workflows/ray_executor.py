"""An executor of tasks on a Ray cluster, for `run_all`.

Ray Data annotates tables on a cluster: see docs/scale.md. Like this executor, it returns each row
once if a worker or a node dies. But if a text kills each worker that gets it, Ray Data repeats it
without end or, with limits, loses other texts, too. `run_all` repeats a part four times, names it
and continues. Ray Data doesn't run trainings, which `compare`, `audit` and the experiments
distribute.
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
"""Workers of a cluster must have the versions of these packages that the driver has, which is the
process that starts the runs. (Ray itself checks the versions of Ray and Python.)"""


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
    ray = require("ray", extra="distributed", missing="`address` requires ray")
    gpus_per_run = 1 if use_gpu >= 0 else 0
    return partial(RayCluster, ray, address, gpus_per_run)


class RayCluster(Executor):
    """An executor of tasks on a Ray cluster. If this process is already connected to a cluster, the
    connection is used, and stays.

    If a worker or its machine dies, its task ends with a `BrokenExecutor`. Other tasks continue.

    jobs (int): How many tasks Ray gets at a time, whether or not it has workers for all of them.
    outlives_workers (bool): That it can still be used after a worker has died: see `run_all`.
    """

    jobs = 1000
    outlives_workers = True

    def __init__(self, ray: Any, address: str, n_gpus: int = 0) -> None:
        """Connect to the cluster, and check the packages and files of its machines. Machines that
        join the cluster later are checked by their tasks. Each task has `n_gpus` GPUs."""
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
        Another version of a package is an error, and so are other files."""
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
        """Make a future for a Ray task. It ends when the task ends."""
        future: Future = Future()
        future.set_running_or_notify_cancel()  # From now on it can't be cancelled, only ended.
        self.references[future] = reference
        reference.future().add_done_callback(partial(self._end, future))
        return future

    def _end(self, future: Future, ray_future: Future) -> None:
        """Resolve our future when a Ray task has ended: with the value of the task, with the
        error of its function or, if its worker has died, with a `BrokenExecutor`."""
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
    five minutes. Other addresses aren't checked."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "/" in host:
        return  # It is not "host:port", but "auto" or "ray://host:port", for example.
    host = host.strip("[]")  # An IPv6 address stands in brackets.
    try:
        create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ConnectionError(f"{address}: expected a Ray cluster, got: {error}") from error


def _make_task() -> Callable[..., Any]:
    """Make the function that a Ray worker executes.

    Ray sends a function of a module only by its name, and a worker with another version of this
    package may not have the name. An inner function such as this one is sent as a whole."""

    def task(folder: str, versions: dict[str, str], pickled_call: bytes | None) -> Any:
        """Check the packages and the files of the worker, and call a function with its
        arguments, if there is one. The worker must have the working folder of the driver, too."""
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
