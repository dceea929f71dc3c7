"""Print the lowest package versions that setup.cfg allows, as constraints for pip.

    python scripts/lowest_versions.py [EXTRA ...]

`make test-lowest` installs these versions. Packages without a lower bound are left out.
"""

import re
import sys
from collections.abc import Iterable
from configparser import ConfigParser
from pathlib import Path

SETUP = Path(__file__).parents[1] / "setup.cfg"
BOUND = re.compile(r"([\w-]+)(?:\[.+\])?>=([\w.]+)")
"""A requirement with a lower bound: its name, optional extras, and the bound."""


def lowest_versions(extras: Iterable[str] = (), path: Path = SETUP) -> dict[str, str]:
    """Read the lower bounds of the package and of some of its extras.

    extras (Iterable[str]): The extras to include.
    path (Path): The path of setup.cfg.
    RETURNS (dict[str, str]): The lowest version of each package that has a lower bound.
    RAISES (KeyError): If an extra doesn't exist.
    """
    setup = ConfigParser()
    setup.read(path, encoding="utf8")
    blocks = [setup["options"]["install_requires"]]
    blocks += [setup["options.extras_require"][extra] for extra in extras]
    versions: dict[str, str] = {}
    for requirement in "\n".join(blocks).split():
        if bound := BOUND.match(requirement):
            versions[bound[1]] = bound[2]
    return versions


if __name__ == "__main__":
    for name, version in lowest_versions(sys.argv[1:]).items():
        print(f"{name}=={version}")
