"""Progress bars, which tqdm draws."""

import sys
from collections.abc import Iterable
from multiprocessing import parent_process
from shutil import get_terminal_size
from typing import Any

from tqdm import tqdm


def progress(
    items: Iterable[Any] | None = None, *, desc: str, unit: str, total: int | None = None
) -> tqdm:
    """Make a progress bar on stderr. Nothing is shown if stderr is closed or is not a terminal, nor
    in a worker.

    items (Iterable[Any] | None): What to iterate over: the bar moves with each item. None: it moves
        when its `update` is called.
    desc (str): What is done.
    unit (str): What is counted, such as "doc".
    total (int | None): The number of items. None: their length, if they have one.
    RETURNS (tqdm): The bar, which is iterated over in place of the items.
    """
    is_silent = sys.stderr is None or parent_process() is not None
    # The size is given, as tqdm shows nothing on a terminal that says it has 0 lines.
    size = get_terminal_size()
    return tqdm(
        items,
        desc=desc,
        unit=unit,
        total=total,
        disable=True if is_silent else None,  # None: unless stderr is a terminal
        leave=False,
        ncols=size.columns - 1,
        nrows=size.lines - 1,
    )
