"""Tests of the executor on Ray that need no cluster: `apply/test_distributed.py` starts one."""

import socket
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

from spacy_costner.workflows.ray_executor import _make_task, check_address, ray_cluster


def test_a_worker_on_ray_checks_versions_and_files(tmp_path: Path) -> None:
    """The function that it runs doesn't use this package, as the worker may have another version of
    it."""
    task = FunctionType(_make_task().__code__, {})
    here = socket.gethostname()
    with pytest.raises(ValueError, match=rf"worker on {here}: expected spacy 0\.1, got 3"):
        task(str(tmp_path), {"spacy": "0.1"}, None)
    with pytest.raises(ValueError, match=r"expected no-such-package 0\.1, got none"):
        task(str(tmp_path), {"no-such-package": "0.1"}, None)
    with pytest.raises(ValueError, match=r"expected the files of the driver, got no .*nowhere"):
        task(str(tmp_path / "nowhere"), {}, None)


def test_without_ray_an_address_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert ray_cluster(None) is None
    message = r"`address` requires ray: pip install 'spacy-costner\[distributed\]'"
    with pytest.raises(ImportError, match=message):
        ray_cluster("auto")


def test_an_address_where_nobody_listens_is_refused() -> None:
    """A server listens during the `with` block, and not after it. The address "auto" is left to
    Ray."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        check_address(address)
    with pytest.raises(ConnectionError, match=f"{address}: expected a Ray cluster, got: .*refused"):
        check_address(address)
    check_address("auto")


@pytest.mark.slow
def test_ray_is_imported_for_an_address_only() -> None:
    # The status is 1, which `check` refuses, if ray was imported.
    code = "import sys, spacy_costner.cli, experiments.runner; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
