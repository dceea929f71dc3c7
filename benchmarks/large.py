"""Memory, disk and time of training on large corpora, in memory and with `--cache`.

    python benchmarks/large.py train.spacy dev.spacy folder [5,20,50] [config.cfg]

The corpora, of so many million tokens, are the training corpus again and again, in files of one
copy. In each copy 3 % of the words have another letter, and one word of each doc at least. They are
made in the folder, as is the cache. Memory is the most that isn't a file's (`RssAnon`), seconds are
those of the processor. Linux only.
"""

import json
import os
import string
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import numpy
from spacy.attrs import ORTH
from spacy.strings import StringStore
from spacy.tokens import DocBin

CONFIG = str(Path(__file__).parent.parent / "configs" / "sparse.cfg")
SHARE = 0.03
LETTERS = string.ascii_lowercase
MILLION = 1_000_000
N_TABLES = 4
"""Numbers for each weight: itself, the squared gradients, the sum and the average."""


class Row(NamedTuple):
    """What a training took.

    tokens (int), epochs (int), where (str): The corpus, how often, "memory" or "cache".
    seconds (float): Of the processor.
    memory (int), disk (int): The most bytes, of the process and of the cache.
    model (int): The bytes of weights in training: `N_TABLES` numbers for each.
    """

    tokens: int
    epochs: int
    where: str
    seconds: float
    memory: int
    disk: int
    model: int


def make_corpus(source: Path, folder: Path, n_tokens: int) -> int:
    """Write files of altered copies until there are enough tokens, and return their number."""
    docs, total, copy = DocBin().from_disk(source), 0, 0
    folder.mkdir(parents=True, exist_ok=True)
    while total < n_tokens:
        path = folder / f"{copy:04}.spacy"
        if not path.exists():
            altered(docs, copy).to_disk(path)
        total, copy = total + sum(map(len, docs.tokens)), copy + 1
    return total


def altered(docs: DocBin, seed: int) -> DocBin:
    """A copy in which some words have another letter."""
    rng, strings = numpy.random.default_rng(seed), StringStore(docs.strings)
    copied = DocBin(store_user_data=False)
    copied.attrs, copied.spaces, copied.cats = docs.attrs, docs.spaces, docs.cats
    copied.flags, copied.span_groups = docs.flags, docs.span_groups
    copied.strings, column = set(docs.strings), docs.attrs.index(ORTH)
    for table in docs.tokens:
        table = table.copy()
        chosen = rng.random(len(table)) < SHARE
        chosen[rng.integers(len(table))] = True
        for i in numpy.flatnonzero(chosen).tolist():
            word = strings[int(table[i, column])]
            at = int(rng.integers(len(word)))
            word = word[:at] + LETTERS[rng.integers(len(LETTERS))] + word[at + 1 :]
            table[i, column] = strings.add(word)
            copied.strings.add(word)
        copied.tokens.append(table)
    return copied


def train(paths: Dict[str, Path], tokens: int, epochs: int, cache: Optional[Path]) -> Row:
    """Train in a process of its own, and watch it."""
    settings = {"nlp.lang": "es", "training.max_epochs": epochs, "paths.dev": paths["dev"]}
    settings["paths.train"] = paths["folder"] / str(tokens // MILLION)
    command = [sys.executable, "-m", "spacy", "costner", "fit", str(paths["config"]), "--online"]
    command += ["--output", str(paths["folder"] / "model"), "--json"]
    command += [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    command += ["--cache", str(cache)] if cache else []
    before = sum(os.times()[2:4])  # of children
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        memory = disk = 0
        while process.poll() is None:
            memory = max(memory, anonymous(process.pid))
            disk = max(disk, open_files(process.pid, cache) if cache else 0)
            time.sleep(0.1)
        assert process.stdout is not None
        result: Dict[str, Any] = json.loads(process.stdout.read())
    seconds = sum(os.times()[2:4]) - before
    where = "cache" if cache else "memory"
    return Row(tokens, epochs, where, seconds, memory, disk, 4 * N_TABLES * result["weights"])


def anonymous(pid: int) -> int:
    """The bytes of memory of a process that are not a file's."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def open_files(pid: int, folder: Path) -> int:
    """The bytes of the files in a folder that a process has open, with a name or without."""
    sizes = {}
    for handle in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            if str(folder.resolve()) in os.readlink(handle):
                sizes[handle.stat().st_ino] = handle.stat().st_blocks * 512
    return sum(sizes.values())


def main() -> None:
    source, dev, folder = map(Path, sys.argv[1:4])
    sizes = [int(n) * MILLION for n in (sys.argv[4:5] or ["5,20,50"])[0].split(",")]
    paths = {"dev": dev, "folder": folder, "config": Path((sys.argv[5:] or [CONFIG])[0])}
    print("| tokens | epochs | in | CPU s | us a token | GB | of which weights | GB of disk |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows: List[Row] = []
    for size in sizes:
        tokens = make_corpus(source, folder / str(size // MILLION), size)
        first = [(2, folder), (1, None), (2, None)] if size == min(sizes) else []
        for epochs, cache in [(1, folder), *first]:
            row = train(paths, size, epochs, cache)._replace(tokens=tokens)
            rows.append(row)
            print(
                f"| {tokens:,} | {epochs} | {row.where} | {row.seconds:.0f} | "
                f"{1e6 * row.seconds / tokens:.1f} | {row.memory / 1e9:.2f} | "
                f"{row.model / 1e9:.2f} | {row.disk / 1e9:.2f} |",
                flush=True,
            )
    same = [row for row in rows if row.where == "cache" and row.epochs == 1]
    for name in ("seconds", "memory", "disk", "model") if len(same) > 1 else ():
        values = numpy.log([[row.tokens, getattr(row, name)] for row in same])
        slope = float(numpy.polyfit(values[:, 0], values[:, 1], 1)[0])
        print(f"\n{name}: tokens to the power {slope:.2f}")


if __name__ == "__main__":
    main()
