"""Pages in Chromium, with real keys: DevTools over a pipe, so nothing listens on the network."""

import json
import os
import select
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

LONGEST_ANSWER = 120.0
"""After how many seconds without a message a test fails."""

DIALOG = "Page.javascriptDialogOpening"
"""The event of a dialog, such as that of a page with unsaved answers that is left."""


class Browser:
    """A tab of a browser.

    read, write: The pipes of DevTools: messages from the browser, and to it.
    """

    def __init__(self, read: Any, write: Any) -> None:
        self.output = read
        self.input = write
        self.received = b""  # what the browser has sent after the last message that was read
        self.n_calls = 0
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, until: str | None = None, **parameters: Any) -> Any:
        """Call a method of DevTools, and wait for an event if one is given. Returns the result of
        the method."""
        self.n_calls += 1
        self.send(self.n_calls, method, parameters)
        result = None
        has_event = until is None
        # The event may come before the result.
        while result is None or not has_event:
            answer = self.receive()
            if answer.get("id") == self.n_calls:
                assert "error" not in answer, answer
                result = answer["result"]
            if answer.get("method") == until:
                has_event = True
            if answer.get("method") == DIALOG:
                # The page goes on after that. No call has the id 0, so the result is skipped.
                self.send(0, "Page.handleJavaScriptDialog", {"accept": True})
        return result

    def send(self, message_id: int, method: str, parameters: dict[str, Any]) -> None:
        """Send a message, which ends with a null character."""
        message: dict[str, Any] = {"id": message_id, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        self.input.write(json.dumps(message).encode() + b"\0")

    def receive(self) -> Any:
        """The next message, which ends with a null character."""
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.output], [], [], LONGEST_ANSWER)
            assert ready, f"the browser sent nothing for {LONGEST_ANSWER} s"
            part = os.read(self.output.fileno(), 1 << 16)
            assert part, "the browser has ended"
            self.received += part
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def save_in(self, folder: Path) -> None:
        """Have files that pages save written to a folder."""
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def open(self, page: Path | str, width: int = 1200, dark: bool = False) -> None:
        """Open a file or an address in a window of this width, in light or dark colours, and wait
        until it is loaded."""
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
        start_place = self.centre_of(start)
        end_place = self.centre_of(end)
        events = [
            ("mousePressed", start_place),
            ("mouseMoved", end_place),
            ("mouseReleased", end_place),
        ]
        for kind, (x, y) in events:
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                buttons=1,
                clickCount=1,
            )

    def centre_of(self, selector: str) -> tuple[float, float]:
        """The middle of an element in the window, x and y."""
        x, y = self.run(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        return x, y

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
    """Start Chromium, with its profile in a folder, and end it."""
    assert CHROMIUM is not None
    # Pipes to the browser and back, each with the end to read from and the end to write to.
    browser_read, write = os.pipe()
    read, browser_write = os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
    options += [f"--user-data-dir={folder / 'profile'}", "--no-first-run"]
    command = 'exec 3<&"$0" 4>&"$1" "${@:2}"'  # DevTools reads from 3 and writes to 4
    process = subprocess.Popen(
        ["bash", "-c", command, str(browser_read), str(browser_write), CHROMIUM, *options],
        pass_fds=(browser_read, browser_write),
        stderr=subprocess.DEVNULL,
    )
    os.close(browser_read)
    os.close(browser_write)
    try:
        with os.fdopen(read, "rb", 0) as output, os.fdopen(write, "wb", 0) as keys:
            yield Browser(output, keys)
    finally:  # it ends with its pipe
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
