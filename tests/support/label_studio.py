"""A Label Studio of its own in a temporary folder, and its API."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LABEL_STUDIO = os.environ.get("LABEL_STUDIO") or shutil.which("label-studio")
needs_label_studio = pytest.mark.skipif(
    LABEL_STUDIO is None, reason="requires Label Studio: make test-label-studio"
)

TOKEN = "0123456789abcdef0123456789abcdef01234567"

SETTINGS = {
    # Backends on this computer, and webhooks to it
    "ML_BLOCK_LOCAL_IP": "false",
    "SSRF_PROTECTION_ENABLED": "false",
    # Nothing is sent to its makers.
    "COLLECT_ANALYTICS": "false",
    "LATEST_VERSION_CHECK": "false",
    "SENTRY_DSN": "",
    "FRONTEND_SENTRY_DSN": "",
}

SECONDS_TO_START = 900
"""It makes its database first, with hundreds of migrations."""


class LabelStudio:
    """The API of a Label Studio.

    address (str): Where it is.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API. Returns the JSON that it answers; None if that is nothing."""
        request = urllib.request.Request(
            f"{self.address}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Token {TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=600) as response:
                answer = response.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from None
        return json.loads(answer) if answer else None

    def act(self, project: int, action: str, **options: Any) -> Any:
        """Do something with all tasks of a project, as the Data Manager does."""
        everything = {"selectedItems": {"all": True, "excluded": []}}
        return self.call("POST", f"dm/actions?id={action}&project={project}", everything | options)


@contextmanager
def label_studio(folder: Path) -> Iterator[LabelStudio]:
    """Start Label Studio with its data in a folder, and end it."""
    assert LABEL_STUDIO is not None
    port = free_port()
    command = [
        *(LABEL_STUDIO, "start", "--no-browser", "--internal-host", "127.0.0.1"),
        *("--port", str(port), "--data-dir", str(folder), "--log-level", "WARNING"),
        *("--username", "annotator@example.com", "--password", "secret-password"),
        *("--user-token", TOKEN, "--enable-legacy-api-token"),
    ]
    log_path = folder / "log.txt"
    with log_path.open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **SETTINGS, "LABEL_STUDIO_BASE_DATA_DIR": str(folder)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + SECONDS_TO_START
            while not is_up(address):
                assert process.poll() is None, log_path.read_text()[-2000:]
                assert time.monotonic() < deadline, log_path.read_text()[-2000:]
                time.sleep(0.5)
            yield LabelStudio(address)
        finally:
            process.kill()
            process.wait()


def is_up(address: str) -> bool:
    """Whether a server answers."""
    try:
        urllib.request.urlopen(f"{address}/health", timeout=10).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
