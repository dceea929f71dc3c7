"""Progress bars."""

from typing import Any, Iterable, Optional

from tqdm import tqdm


def progress(
    items: Optional[Iterable[Any]] = None,
    *,
    desc: str,
    unit: str,
    total: Optional[int] = None,
) -> tqdm:
    """Make a progress bar for the terminal. Where stderr is none, nothing is shown.

    items (Optional[Iterable[Any]]): What to iterate over. None: call `update` of the bar.
    desc (str): What is done.
    unit (str): What is counted.
    total (Optional[int]): How many there are. None: their number if they have a length; otherwise
        it isn't known, and only what is done is shown.
    RETURNS (tqdm): The bar. It begins to measure time when it is made.
    """
    return tqdm(items, desc=desc, unit=unit, total=total, disable=None, leave=False)
