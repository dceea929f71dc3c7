"""Progress reporting for commands on stderr: tqdm progress bars on a terminal, or one line per
phase if stderr is not a terminal, e.g. in a log file.

A phase is a potentially long part of a command, e.g. reading or training. Every progress bar is a
phase, and additional phases can be defined with `phase`. Phases can be nested, but only the
outermost phase prints a line. During a long phase, a line is printed every minute. Lines are only
printed for commands (see `phases_shown`), not for functions called from Python.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing import parent_process
from shutil import get_terminal_size
from time import monotonic
from typing import Any

from tqdm import tqdm

LINE_INTERVAL = 60.0
"""The interval in seconds after which a running phase prints a line with its progress."""


class ShownPhases:
    """The phases of a command whose output is not a terminal.

    depth (int): The number of nested phases that are currently running.
    last_line (float): The time of the last line, in seconds.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.last_line = monotonic()

    def print_line(self, text: str) -> None:
        """Print a line to stderr."""
        self.last_line = monotonic()
        print(text, file=sys.stderr, flush=True)


SHOWN: ContextVar[ShownPhases | None] = ContextVar("spacy_costner_phases", default=None)
"""The phases of the running command. None if no command is running or its phases aren't shown."""


@contextmanager
def phases_shown() -> Iterator[None]:
    """Print a line to stderr for each phase in a `with` block, unless stderr is a terminal."""
    token = SHOWN.set(ShownPhases())
    try:
        yield
    finally:
        SHOWN.reset(token)


class PhaseLine:
    """A replacement for progress bars that prints lines if the output is not a terminal. It
    implements the progress bar methods used in this package.

    items (Iterable[Any] | None): The items to iterate over. If None, the phase begins immediately,
        and `update` has to be called for each item.
    desc (str): The name of the phase, e.g. "train".
    unit (str): The name of the counted items, e.g. "doc". If empty, nothing is counted.
    total (int | None): The number of items, if known.
    shown (ShownPhases): The phases of the command.
    """

    def __init__(
        self,
        items: Iterable[Any] | None,
        *,
        desc: str,
        unit: str,
        total: int | None,
        shown: ShownPhases,
    ) -> None:
        self.items = items
        self.desc = desc
        self.unit = unit
        self.total = total
        self.shown = shown
        self.n = 0
        self.is_open = False
        if items is None:
            self.begin()

    def __iter__(self) -> Iterator[Any]:
        assert self.items is not None
        self.begin()
        try:
            for item in self.items:
                yield item
                self.update()
            self.close()
        finally:
            self.end()

    def __enter__(self) -> "PhaseLine":
        return self

    def __exit__(self, error_type: Any, *_: Any) -> None:
        if error_type is None:
            self.close()
        self.end()

    def begin(self) -> None:
        """Begin the phase."""
        self.is_open = True
        self.is_outermost = self.shown.depth == 0
        self.shown.depth += 1
        self.began = monotonic()

    def update(self, n: int = 1) -> None:
        """Count items, and print the progress if enough time has passed since the last line."""
        self.n += n
        if monotonic() - self.shown.last_line >= LINE_INTERVAL:
            self.shown.print_line(f"{self.as_text()} so far")

    def set_postfix(self, values: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Do nothing. Unlike progress bars, lines don't show these values."""

    def close(self) -> None:
        """End the phase. Print its line if it is the outermost phase."""
        if self.is_open and self.is_outermost:
            self.shown.print_line(self.as_text())
        self.end()

    def end(self) -> None:
        """End the phase without printing a line, e.g. after an error."""
        if self.is_open:
            self.is_open = False
            self.shown.depth -= 1

    def as_text(self) -> str:
        """Return the name of the phase, the count and the duration: "read: 20 docs, 0.1 s"."""
        counted = ""
        if self.unit:
            of_total = f" of {self.total:,}" if self.total and self.total != self.n else ""
            plural = "" if self.n == 1 and not of_total else "s"
            counted = f"{self.n:,}{of_total} {self.unit}{plural}, "
        return f"{self.desc}: {counted}{monotonic() - self.began:.1f} s"


def progress(
    items: Iterable[Any] | None = None, *, desc: str, unit: str, total: int | None = None
) -> tqdm | PhaseLine:
    """Create a progress bar on stderr. It is disabled in worker processes and if stderr is closed.
    If stderr is not a terminal, commands print a line at the end of the phase instead.

    items (Iterable[Any] | None): The items to iterate over. If None, the bar is advanced by calling
        its method `update`.
    desc (str): The text before the bar, i.e. the name of the phase, e.g. "train".
    unit (str): The name of the counted items, e.g. "doc".
    total (int | None): The number of items. Defaults to the length of `items`, if available.
    RETURNS (tqdm | PhaseLine): The progress bar. Iterate over it instead of the items.
    """
    phases = phases_to_print()
    if phases is not None:
        return PhaseLine(items, desc=desc, unit=unit, total=total, shown=phases)
    is_silent = sys.stderr is None or parent_process() is not None
    # Pass the size explicitly, because tqdm shows nothing if the terminal reports 0 lines. Leave
    # the last column empty, because some terminals start a new line after it.
    size = get_terminal_size()
    return tqdm(
        items,
        desc=desc,
        unit=unit,
        total=total,
        disable=True if is_silent else None,  # None disables the bar if stderr isn't a terminal
        leave=False,
        ncols=size.columns - 1,
        nrows=size.lines,
    )


@contextmanager
def phase(desc: str) -> Iterator[None]:
    """Run a `with` block as a phase. On a terminal, only the progress bars of nested phases are
    shown.

    desc (str): The name of the phase, e.g. "calibrate".
    """
    phases = phases_to_print()
    if phases is None:
        yield
        return
    with PhaseLine(None, desc=desc, unit="", total=None, shown=phases):
        yield


def phases_to_print() -> ShownPhases | None:
    """Return the phases of the command if lines should be printed for them, i.e. if stderr is open
    and not a terminal, and this is not a worker process. Otherwise, return None."""
    shown = SHOWN.get()
    if shown is None or sys.stderr is None or parent_process() is not None:
        return None
    return None if sys.stderr.isatty() else shown
