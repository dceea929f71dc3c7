"""`costner serve` in a process of its own."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(
    folder: Path, *options: str, port: int = 0
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve a session by the command, in a process of its own, at a port; 0: a free one. Yields the
    process and its address."""
    command = [sys.executable, "-m", "spacy", "costner", "serve", str(folder), "--port", str(port)]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Annotate at "):
                break
        assert lines and lines[-1].startswith("Annotate at "), lines
        address = lines[-1].split()[2]
        wait_for(address)
        yield process, address
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_for(address: str) -> None:
    """Wait until a server answers."""
    for _ in range(300):
        try:
            urllib.request.urlopen(address).close()
            return
        except urllib.error.HTTPError:  # it wants its token
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"no answer from {address}")
