"""The progress of commands on stderr: tqdm's progress bars on a terminal, and a line for each phase
elsewhere, such as in a log file.

A phase is a part of a command that may take long, such as reading or training. Each progress bar is
a phase, and `phase` makes others. Phases can be nested: only the outermost phase has a line. A long
phase also has a line each minute. Lines are only printed for commands (see `phases_shown`), and not
for functions that are called from Python.
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
"""After this many seconds without a line, a phase prints its progress."""


class ShownPhases:
    """The phases of a command whose output isn't a terminal.

    depth (int): The number of phases that have begun and not ended: nested phases.
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
"""The phases of the running command. None: no command is running, or its phases aren't shown."""


@contextmanager
def phases_shown() -> Iterator[None]:
    """Print a line on stderr for each phase in a `with` block, unless stderr is a terminal."""
    token = SHOWN.set(ShownPhases())
    try:
        yield
    finally:
        SHOWN.reset(token)


class PhaseLine:
    """Prints lines instead of a progress bar, if the output isn't a terminal. It has the methods of
    a bar that our code calls.

    items (Iterable[Any] | None): The items to iterate over. None: the phase begins now, and
        `update` is called for each item.
    desc (str): The name of the phase, such as "train".
    unit (str): What is counted, such as "doc". Empty: nothing is counted.
    total (int | None): The number of items, if it is known.
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
        """Count items. Print the progress if the last line was long ago."""
        self.n += n
        if monotonic() - self.shown.last_line >= LINE_INTERVAL:
            self.shown.print_line(f"{self.as_text()} so far")

    def set_postfix(self, values: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Do nothing: bars show these values, but lines don't."""

    def close(self) -> None:
        """End the phase. If it is the outermost, print its line."""
        if self.is_open and self.is_outermost:
            self.shown.print_line(self.as_text())
        self.end()

    def end(self) -> None:
        """End the phase without a line, as after an error."""
        if self.is_open:
            self.is_open = False
            self.shown.depth -= 1

    def as_text(self) -> str:
        """The name of the phase, the count, and the seconds: "read: 20 docs, 0.1 s"."""
        counted = ""
        if self.unit:
            of_total = f" of {self.total:,}" if self.total and self.total != self.n else ""
            plural = "" if self.n == 1 and not of_total else "s"
            counted = f"{self.n:,}{of_total} {self.unit}{plural}, "
        return f"{self.desc}: {counted}{monotonic() - self.began:.1f} s"


def progress(
    items: Iterable[Any] | None = None, *, desc: str, unit: str, total: int | None = None
) -> tqdm | PhaseLine:
    """Make a progress bar on stderr. It is invisible in a worker process, or if stderr is closed.
    If stderr isn't a terminal, commands print a line when the phase has ended.

    items (Iterable[Any] | None): The items to iterate over. The bar moves with each item. None: the
        bar moves when its method `update` is called.
    desc (str): The text before the bar: the name of the phase, such as "train".
    unit (str): What is counted, such as "doc".
    total (int | None): The number of items. None: their length, if they have one.
    RETURNS (tqdm | PhaseLine): The bar. Iterate over it instead of the items.
    """
    phases = phases_to_print()
    if phases is not None:
        return PhaseLine(items, desc=desc, unit=unit, total=total, shown=phases)
    is_silent = sys.stderr is None or parent_process() is not None
    # tqdm gets the size, as it shows nothing on a terminal that reports 0 lines. The last column is
    # left free, as some terminals begin a new line after it.
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
    """Name the phase of a `with` block. On a terminal nothing is shown, except for the bars of
    nested phases.

    desc (str): The name of the phase, such as "calibrate".
    """
    phases = phases_to_print()
    if phases is None:
        yield
        return
    with PhaseLine(None, desc=desc, unit="", total=None, shown=phases):
        yield


def phases_to_print() -> ShownPhases | None:
    """The phases of the command if lines are printed for them: stderr is open and isn't a terminal,
    and this isn't a worker process. None: no lines are printed."""
    shown = SHOWN.get()
    if shown is None or sys.stderr is None or parent_process() is not None:
        return None
    return None if sys.stderr.isatty() else shown
