"""`costner serve` in a process of its own, and its server in a thread."""

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spacy_costner.serve.session import AnnotationSession


@contextmanager
def served(
    folder: Path, *options: str, port: int = 0, temporary: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve a session by the command, in a process of its own, at a port; 0: a free one. Its
    temporary files are written to a folder, or to that of the system. Yields the process and its
    address."""
    command = [sys.executable, "-m", "spacy", "costner", "serve", str(folder), "--port", str(port)]
    environment = dict(os.environ)
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    process = subprocess.Popen(
        [*command, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
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


@contextmanager
def served_in_thread(session: AnnotationSession) -> Iterator[str]:
    """Serve a session in a thread of this process, at a free port, which starts sooner than another
    process. Yields the address."""
    import uvicorn

    from spacy_costner.serve.app import make_app

    server = uvicorn.Server(uvicorn.Config(make_app(session), log_level="warning"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        session.start()
        thread.start()
        try:
            address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            wait_for(address)
            yield address
        finally:
            server.should_exit = True
            thread.join()
            session.stop()


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
