"""Where a benchmark ran, and with what.

python benchmarks/machine.py
"""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("spacy-costner", "spacy", "thinc", "numpy", "torch", "pytorch-crf", "torch-struct")


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def versions() -> str:
    """The packages that take part."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> None:
    from spacy_costner.chain import native

    print("# Benchmarks\n")
    print("Written by `make bench`. One thread each; peers and ours take turns in one run.\n")
    print(f"- machine: {processor()}, {platform.system()} {platform.machine()}")
    print(f"- compiled chain: {native.instruction_sets()[0]}")
    print(f"- Python {platform.python_version()}, {versions()}")


if __name__ == "__main__":
    main()
