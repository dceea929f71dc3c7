"""Cost-sensitive named entity recognition for spaCy."""

from importlib.machinery import PathFinder
from pathlib import Path

__version__ = "0.5.0.dev0"


def _require_compiled() -> None:
    """Raise an ImportError with instructions if this package is a clone without compiled modules.
    When Python is started in a clone, it imports this source instead of the installed package."""
    package = Path(__file__).parent
    for folder in ("chain", "sparse"):
        if PathFinder.find_spec("native", [str(package / folder)]) is None:
            raise ImportError(
                f"{package} is the source, not compiled for this Python: "
                f"leave {package.parent}, or run `make` there"
            )


_require_compiled()
