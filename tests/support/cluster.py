"""Ray clusters of several machines, all of them this one; nothing listens beyond it."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENV = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray leaves 127.0.0.1 as it is
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
LISTEN = "0A"
"""The state of a socket that listens, as /proc/net has it."""

# The addresses that only this machine reaches, as /proc/net has them
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def start_cluster(n_nodes: int, temp_dir: Path) -> Any:
    """A head that runs nothing, and nodes of a CPU each. Ray has to be imported here first, as it
    reads these variables then."""
    (temp_dir / "ray").mkdir(parents=True)  # where Ray writes the address
    os.environ.update(ENV, RAY_TMPDIR=str(temp_dir))
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    from ray.cluster_utils import Cluster

    head = {**_node(), "num_cpus": 0, "temp_dir": str(temp_dir)}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(n_nodes):
        add_node(cluster)
    return cluster


def _node() -> dict[str, Any]:
    """The settings of a node, which is on this machine only."""
    quiet = {"include_dashboard": False, "include_log_monitor": False}
    return {"node_ip_address": "127.0.0.1", "object_store_memory": 80_000_000, **quiet}


def add_node(cluster: Any, **settings: Any) -> Any:
    """Add a node of a CPU to a cluster."""
    return cluster.add_node(**_node(), num_cpus=1, **settings)


def descendants(process: int) -> set[int]:
    """The numbers of the processes that a process has started, and that these have started, and so
    on."""
    processes: set[int] = set()
    for path in Path("/proc", str(process), "task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            processes |= {child} | descendants(child)
    return processes


def command(process: int) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return Path("/proc", str(process), "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def listening_elsewhere(processes: set[int]) -> Iterator[str]:
    """The sockets of processes that other machines could connect to: the address and the command
    line of each."""
    process_of_socket = {}
    for process in processes:
        for link in Path("/proc", str(process), "fd").glob("*"):
            try:
                process_of_socket[os.readlink(link)] = process
            except OSError:
                continue
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            # The second field is the local address, the fourth the state, the tenth the inode.
            _, local_address, _, state, *_, inode = line.split()[:10]
            socket = f"socket:[{inode}]"
            is_loopback = local_address.split(":")[0] in LOOPBACK
            if state == LISTEN and socket in process_of_socket and not is_loopback:
                yield f"{local_address} {command(process_of_socket[socket])}"


def wait_for_end(processes: set[int], seconds: float = 30) -> set[int]:
    """Wait until processes have ended. RETURNS (set[int]): Those that have not."""
    end = time.monotonic() + seconds
    alive = {process for process in processes if _is_alive(process)}
    while alive and time.monotonic() < end:
        time.sleep(0.1)
        alive = {process for process in alive if _is_alive(process)}
    return alive


def _is_alive(process: int) -> bool:
    """Whether a process runs: one that has ended may still have a number, with the state Z."""
    try:
        stat = Path("/proc", str(process), "stat").read_text()
    except OSError:
        return False
    # The state is the first field after the name, which is in brackets and may have any characters.
    _, fields_after_name = stat.rsplit(")", 1)
    return fields_after_name.split()[0] != "Z"


def other_version(folder: Path) -> dict[str, str]:
    """The environment of a node that has another version of spacy-costner."""
    metadata = folder / "spacy_costner-0.0.1.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: spacy-costner\nVersion: 0.0.1\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
