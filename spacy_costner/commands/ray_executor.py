"""Runs on a Ray cluster: an executor as `runs.run_all` takes it, beside `runs.Processes`.

All machines need the same files under the same paths as the driver, such as those of a network
file system. Workers change to the driver's working directory, so that paths may be relative.
"""

import os
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures import wait as wait_for
from functools import partial
from importlib.metadata import version
from socket import create_connection
from typing import Any, Callable, Dict, Optional

from ..validation import require
from .runs import MakeExecutor

PACKAGES = ("spacy-costner", "spacy")
"""Workers need the driver's version of these. Ray checks its own and Python's."""


def ray_cluster(address: Optional[str], use_gpu: int = -1) -> Optional[MakeExecutor]:
    """An executor of a Ray cluster.

    address (Optional[str]): "host:port" of its head, "auto" for the one that this machine belongs
        to, or another address for `ray.init`. None: no cluster.
    use_gpu (int): With 0, each run has a GPU, and sees no other. -1: none.
    RETURNS (Optional[MakeExecutor]): The executor; None if there is no address.
    RAISES (ImportError): If ray isn't installed.
    """
    if address is None:
        return None
    ray = require("ray", "distributed", "--address requires ray")
    return partial(RayCluster, ray, address, int(use_gpu >= 0))


def check_address(address: str) -> None:
    """Check that something listens at a "host:port": Ray would try for five minutes.

    RAISES (ConnectionError): If nothing does.
    """
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        try:
            create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise ConnectionError(f"{address}: expected a Ray cluster, got: {error}") from error


class RayCluster(Executor):
    """Tasks on a Ray cluster. A process that is connected to one already stays so.

    A task whose worker or machine dies ends with a `BrokenExecutor`; others go on.

    jobs (int): How many tasks Ray is given at a time, whether or not it has workers for them.
    """

    jobs = 1000
    outlives_workers = True

    def __init__(self, ray: Any, address: str, n_gpus: int = 0) -> None:
        """Connect, and check all machines.

        ray (Any): The module.
        address (str): See `ray_cluster`.
        n_gpus (int): Number of GPUs of a task.
        RAISES (ValueError): If a machine has another version of the packages, or other files.
        RAISES (ConnectionError): If there is no cluster.
        """
        self.ray = ray
        self.is_ours = not ray.is_initialized()
        if self.is_ours:
            check_address(address)
            ray.init(address, log_to_driver=False, logging_level="warning")
        self.refs: Dict[Future, Any] = {}
        expected = {name: version(name) for name in PACKAGES}
        task = ray.remote(max_retries=0, num_cpus=1, num_gpus=n_gpus)(_task())
        self.call = partial(task.remote, os.getcwd(), expected)
        try:
            self._check(partial(task.options, num_cpus=0, num_gpus=0), expected)
        except BaseException:
            self.shutdown(cancel_futures=True)
            raise

    def _check(self, options: Callable[..., Any], expected: Dict[str, str]) -> None:
        """Check the machines that there are. Later ones are checked by their tasks."""
        on = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        for node in self.ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                task = options(scheduling_strategy=on(node["NodeID"], soft=False))
                future = self._future(task.remote(os.getcwd(), expected, None))
                if not isinstance(future.exception(), BrokenExecutor):
                    future.result()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Execute a function. Its arguments and its value are pickled."""
        return self._future(self.call(self.ray.cloudpickle.dumps((function, args, kwargs))))

    def _future(self, ref: Any) -> Future:
        future: Future = Future()
        future.set_running_or_notify_cancel()
        self.refs[future] = ref
        ref.future().add_done_callback(partial(self._end, future))
        return future

    def _end(self, future: Future, found: Future) -> None:
        error = found.exception()
        self.refs.pop(future, None)
        if error is None:
            future.set_result(found.result())
        elif isinstance(error, self.ray.exceptions.RayTaskError):
            future.set_exception(error.cause)
        else:
            future.set_exception(BrokenExecutor(f"{type(error).__name__}: {error}"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End tasks, if they are cancelled, or wait for them; and disconnect."""
        refs = dict(self.refs)
        for ref in refs.values() if cancel_futures else ():
            self.ray.cancel(ref, force=True)
        if wait:
            wait_for(refs)
        if self.is_ours:
            self.ray.shutdown()


def _task() -> Callable[..., Any]:
    """What a worker does. Ray sends functions of functions as a whole, and others by name, which
    a worker with another version may not have."""

    def task(folder: str, expected: Dict[str, str], pickled: Optional[bytes]) -> Any:
        import os
        import pickle
        import socket
        from importlib.metadata import PackageNotFoundError, version

        here = socket.gethostname()
        for name, one in expected.items():
            try:
                found = version(name)
            except PackageNotFoundError:
                found = "none"
            if found != one:
                raise ValueError(f"worker on {here}: expected {name} {one}, got {found}")
        if not os.path.isdir(folder):
            raise ValueError(f"worker on {here}: expected the files of the driver, got no {folder}")
        os.chdir(folder)
        if pickled is not None:
            function, args, kwargs = pickle.loads(pickled)
            return function(*args, **kwargs)

    return task
