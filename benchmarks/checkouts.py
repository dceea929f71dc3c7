"""Compare this checkout with another, such as the previous commit: the same tasks, in turns.

    git worktree add ../before HEAD~1 && (cd ../before && make install)
    python -m spacy project run demo-corpus
    python benchmarks/checkouts.py ../before [turns]

Each checkout runs in a separate process, which performs tasks on request. The ratio is the time of
this checkout divided by the time of the other one, turn by turn: above 1, this one is slower.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "corpus" / "demo"
LEAST_SECONDS = 0.05
"""Short tasks are repeated for this many seconds per turn."""


def make_tasks() -> dict[str, Callable[[], object]]:
    """Make the tasks of a checkout: losses, the chain, training, tagging and saving."""
    # This imports benchmarks/losses.py of this checkout, also in the process of the other checkout.
    from losses import LOSSES, random_batch

    from spacy_costner import chain

    tasks: dict[str, Callable[[], object]] = {}
    for n_labels in (4, 18):
        potentials, gold = random_batch(n_labels)
        n_tags = len(potentials.start)
        for name, loss in LOSSES.items():
            tasks[f"{name}, K = {n_tags}"] = partial(loss, potentials, gold)
        tasks[f"best path, K = {n_tags}"] = partial(chain.best_path, potentials)
        tasks[f"marginals, K = {n_tags}"] = partial(chain.marginals, potentials)
    for config in ("sparse", "cnn", "hybrid"):
        tasks.update(pipeline_tasks(config))
    return tasks


def pipeline_tasks(config: str) -> dict[str, Callable[[], object]]:
    """Make the tasks of a config on the demo corpus: updates, tagging, saving and loading. Each
    checkout uses the config that it ships."""
    from spacy.training import Corpus
    from spacy.training.initialize import init_nlp
    from spacy.util import load_config
    from thinc.api import fix_random_seed

    import spacy_costner

    paths = {"paths.train": str(DEMO / "train.spacy"), "paths.dev": str(DEMO / "dev.spacy")}
    configs = Path(spacy_costner.__file__).parent.parent / "configs"
    fix_random_seed(0)
    nlp = init_nlp(load_config(configs / f"{config}.cfg", paths))
    examples = list(Corpus(DEMO / "train.spacy")(nlp))[:64]
    optimizer = nlp.resume_training()
    for _ in range(3):
        nlp.update(examples, sgd=optimizer)
    ner: Any = nlp.get_pipe("ner")
    texts = [eg.reference.text for eg in Corpus(DEMO / "test.spacy")(nlp)]
    return {
        f"{config}: update of 64 docs": lambda: nlp.update(examples, sgd=optimizer),
        f"{config}: tag {len(texts)} texts": lambda: list(nlp.pipe(texts)),
        f"{config}: tag one text": lambda: nlp(texts[0]),
        f"{config}: to bytes and back": lambda: ner.from_bytes(ner.to_bytes()),
    }


def work() -> None:
    """Print the names of the tasks. Then perform the tasks named on standard input, one per line,
    and print the mean seconds of each."""
    tasks = make_tasks()
    repeats: dict[str, int] = {}
    print(*tasks, sep="\t", flush=True)
    for line in sys.stdin:
        name = line.rstrip("\n")
        if name not in repeats:
            seconds = max(seconds_of(tasks[name], 1), 1e-6)
            repeats[name] = max(1, round(LEAST_SECONDS / seconds))
        print(seconds_of(tasks[name], repeats[name]), flush=True)


def seconds_of(task: Callable[[], object], n_times: int) -> float:
    """Measure the mean seconds of a task over several repetitions."""
    began = time.perf_counter()
    for _ in range(n_times):
        task()
    return (time.perf_counter() - began) / n_times


def start(checkout: Path) -> "subprocess.Popen[str]":
    """Start the process of a checkout. It uses the checkout's environment, for its entry points, or
    this environment if the checkout has none."""
    path = os.pathsep.join([str(checkout), str(ROOT / "benchmarks")])
    python = checkout / ".venv" / "bin" / "python"
    if not python.exists():
        python = Path(sys.executable)
    return subprocess.Popen(
        [str(python), "-W", "ignore", __file__, "--work"],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: "subprocess.Popen[str]", name: str) -> float:
    """Have the process of a checkout perform a task. Returns the seconds that it took."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(name + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main(other: str, turns: int = 15) -> None:
    """Print how long each common task takes in this checkout, compared with the other one."""
    this_process = start(ROOT)
    other_process = start(Path(other).resolve())
    tasks_of_checkouts: list[list[str]] = []
    for process in (this_process, other_process):
        assert process.stdout is not None
        tasks_of_checkouts.append(process.stdout.readline().rstrip("\n").split("\t"))
    our_tasks, their_tasks = tasks_of_checkouts
    print(f"\n## This checkout against {Path(other).name}\n")

    print("| task | ms | ratio: median | quartiles |\n|---|---|---|---|")
    for name in our_tasks:
        if name not in their_tasks:
            continue
        our_seconds: list[float] = []
        ratios: list[float] = []
        for turn in range(turns + 1):
            # They alternate in going first, because the second one may profit from a warm cache.
            order = [other_process, this_process]
            if turn % 2 == 1:
                order.reverse()
            seconds = {process.pid: ask(process, name) for process in order}
            if turn > 0:  # the first one warms up
                our_seconds.append(seconds[this_process.pid])
                ratios.append(seconds[this_process.pid] / seconds[other_process.pid])
        low, middle, high = quantiles(ratios, n=4)
        milliseconds = sorted(our_seconds)[turns // 2] * 1e3
        print(
            f"| {name} | {milliseconds:.3f} | {middle:.3f} | {low:.3f} to {high:.3f} |",
            flush=True,
        )
    for process in (this_process, other_process):
        process.communicate()


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        work()
    else:
        main(sys.argv[1], *map(int, sys.argv[2:]))
