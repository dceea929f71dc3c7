"""Pages in Chromium, with real keys: DevTools over a pipe, so nothing listens on the network."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="requires Chromium")
KEYS = {
    "Tab": 9,
    "Enter": 13,
    " ": 32,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Delete": 46,
    "1": 49,
    "2": 50,
    "u": 85,
    "x": 88,
}
"""The codes of keys, as Windows has them."""

SHIFT = 8
"""The modifier of DevTools."""


class Browser:
    """A tab of a browser."""

    def __init__(self, read: Any, write: Any) -> None:
        self.input, self.output = write, read
        self.n, self.session = 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, until: str | None = None, **parameters: Any) -> Any:
        """Call a method and return its result, or wait for an event and return that."""
        self.n += 1
        message = {"id": self.n, "method": method, "params": parameters}
        message |= {} if self.session is None else {"sessionId": self.session}
        self.input.write(json.dumps(message).encode() + b"\0")
        result, is_there = None, until is None
        while result is None or not is_there:
            answer = self.receive()
            if answer.get("id") == self.n:
                assert "error" not in answer, answer
                result = answer["result"]
            is_there = is_there or answer.get("method") == until
        return result

    def receive(self) -> Any:
        """The next message, which ends with a null character."""
        text = b""
        while not text.endswith(b"\0"):
            text += self.output.read(1)
        return json.loads(text[:-1])

    def open(self, page: Path | str, width: int = 1200, dark: bool = False) -> None:
        """Open a file or an address in a window of this width, in the colours of light or dark."""
        size = {"width": width, "height": 1100, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        url = page.as_uri() if isinstance(page, Path) else page
        self.call("Page.navigate", until="Page.loadEventFired", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, times: int = 1, *, shift: bool = False) -> None:
        """Press and release a key, with the Shift key held if asked."""
        code: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": KEYS[key]}
        if len(key) == 1 or key == "Enter":  # the key writes a character
            code["text"] = "\r" if key == "Enter" else key
        if shift:
            code["modifiers"] = SHIFT
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, **code)

    def drag(self, start: str, end: str) -> None:
        """Press the mouse at one element, and release it at another; both as CSS selectors."""
        places: list[tuple[float, float]] = []
        for selector in (start, end):
            box = self.run(
                "(() => { const box = document.querySelector("
                f"{json.dumps(selector)}).getBoundingClientRect();"
                " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
            )
            places.append((box[0], box[1]))
        kinds = [
            ("mousePressed", places[0]),
            ("mouseMoved", places[1]),
            ("mouseReleased", places[1]),
        ]
        for kind, (x, y) in kinds:
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                buttons=1,
                clickCount=1,
            )

    def click(self, selector: str) -> None:
        """Click on an element."""
        self.drag(selector, selector)

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Wait until an expression of the page is true."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"not true after {seconds} s: {condition}"
            time.sleep(0.02)


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium, with its profile and its downloads in a folder, and end it."""
    assert CHROMIUM is not None
    (theirs, write), (read, back) = os.pipe(), os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
    options += [f"--user-data-dir={folder / 'profile'}", "--no-first-run"]
    command = 'exec 3<&"$0" 4>&"$1" "${@:2}"'  # DevTools reads from 3 and writes to 4
    process = subprocess.Popen(
        ["bash", "-c", command, str(theirs), str(back), CHROMIUM, *options],
        pass_fds=(theirs, back),
        stderr=subprocess.DEVNULL,
    )
    for end in (theirs, back):
        os.close(end)
    try:
        with os.fdopen(read, "rb") as output, os.fdopen(write, "wb", 0) as keys:
            tab = Browser(output, keys)
            tab.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
            yield tab
    finally:  # it ends with its pipe
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
