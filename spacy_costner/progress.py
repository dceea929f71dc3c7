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
    """Make a progress bar for items or, without them, for calls of its `update`. Nothing is shown
    where stderr is not a terminal."""
    return tqdm(items, desc=desc, unit=unit, total=total, disable=None, leave=False)
