"""Progress bars on the terminal, drawn by tqdm."""

import sys
from collections.abc import Iterable
from multiprocessing import parent_process
from shutil import get_terminal_size
from typing import Any

from tqdm import tqdm


def progress(
    items: Iterable[Any] | None = None, *, desc: str, unit: str, total: int | None = None
) -> tqdm:
    """Make a progress bar on stderr. It is invisible in a worker process, or if stderr is closed or
    isn't a terminal.

    items (Iterable[Any] | None): The items to iterate over. The bar moves with each item. None: the
        bar moves when its method `update` is called.
    desc (str): The text before the bar, which says what is done.
    unit (str): What is counted, such as "doc".
    total (int | None): The number of items. None: their length, if they have one.
    RETURNS (tqdm): The bar. Iterate over it in place of the items.
    """
    is_silent = sys.stderr is None or parent_process() is not None
    # tqdm gets the size, as it would show nothing on a terminal that says that it has 0 lines. The
    # last column is left free, as some terminals begin a new line after it.
    size = get_terminal_size()
    return tqdm(
        items,
        desc=desc,
        unit=unit,
        total=total,
        disable=True if is_silent else None,  # None disables the bar if stderr isn't a terminal.
        leave=False,
        ncols=size.columns - 1,
        nrows=size.lines,
    )
