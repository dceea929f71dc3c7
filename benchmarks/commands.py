"""Compare the commands of this checkout with those of another one, such as the previous release.

    git worktree add ../before HEAD~1 && (cd ../before && make install)
    PYTHONPATH=. OMP_NUM_THREADS=1 python benchmarks/commands.py ../before FOLDER [turns] [task ...]

The checkouts perform each task in turns, and alternate in going first. The table contains the
minimum CPU seconds of each, including imports, and the size of the saved pipeline, relative to the
other checkout. The corpora are Spanish, chunks and GENIA of experiments/linear.cfg, with a sentence
per doc, and Spanish with an article per doc. FOLDER must contain news.txt, raw text with a sentence
per line and tokens separated by spaces. Afterwards it also contains the corpora, and the output of
the last turn of each task, so that the pipelines can be compared.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import spacy
from spacy.tokens import Doc, DocBin

from experiments import corpora

ROOT = Path(__file__).parent.parent
N_GENIA = 14_829
"""The training sentences of GENIA: all except the development and test parts."""
N_SMALL = 100
"""The sentences of the small corpus."""
N_LINES = 20_000
"""The lines of raw text to annotate."""
N_FILES = 2_000
"""The number of files to annotate. Each contains one of these lines."""

FIRST_TASK = "fit: Spanish, as in README"
COMMANDS = {
    FIRST_TASK: "fit --lang es --train {data}/esp.conll --dev {data}/esp_dev.conll "
    "--calibrate --tune f --output {output}",
    "fit: GENIA": "fit --train {data}/genia.spacy --dev {data}/genia_dev.spacy --output {output}",
    "fit: chunks": "fit --train {data}/chunks.spacy --dev {data}/chunks_dev.spacy "
    "--output {output}",
    "fit: Spanish articles, two passes": "fit --lang es --train {data}/articles.spacy "
    "--dev {data}/articles_dev.spacy --output {output}",
    "fit: 100 sentences and raw text": "fit --lang en --train {data}/small.spacy "
    "--dev {data}/chunks_dev.spacy --raw {data}/news.txt --output {output}",
    "calibrate": "calibrate {spanish} {data}/esp_dev.conll --output {output}",
    "guarantee": "guarantee {spanish} {data}/esp_dev.conll --miss 0.1 --output {output}",
    "annotate: one file": "annotate {spanish} {data}/lines.txt --output {output}",
    "annotate: many files": "annotate {spanish} {data}/files --output {output}",
}
"""The arguments of each task. `spanish` is the pipeline that the first task has trained."""


def write_corpora(folder: Path) -> None:
    """Write the corpora. Spanish sentences stay in their original format."""
    conll = corpora.ASSETS / "conll2002_es"
    shutil.copy(conll / "esp.train", folder / "esp.conll")
    shutil.copy(conll / "esp.testa", folder / "esp_dev.conll")

    vocab = spacy.blank("xx").vocab
    for name, file in (("articles", "esp.train"), ("articles_dev", "esp.testa")):
        sentences = corpora.read_docs(conll / file, vocab)
        write(folder / name, corpora.join_groups(sentences, corpora.by_dateline(sentences)))

    chunks = corpora.read_docs(corpora.ASSETS / "conll2000" / "train.txt", vocab)
    write(folder / "chunks", chunks[:8_000])
    write(folder / "chunks_dev", chunks[8_000:])
    write(folder / "small", chunks[:N_SMALL])

    genia, _ = corpora.read_genia("genia")
    write(folder / "genia", genia[:N_GENIA])
    write(folder / "genia_dev", genia[N_GENIA : N_GENIA + 1_853])

    lines = (folder / "news.txt").read_text(encoding="utf8").splitlines(keepends=True)[:N_LINES]
    (folder / "lines.txt").write_text("".join(lines), encoding="utf8")
    files = folder / "files"
    files.mkdir(exist_ok=True)
    for i, line in enumerate(lines[:N_FILES]):
        (files / f"{i}.txt").write_text(line, encoding="utf8")


def write(path: Path, docs: Sequence[Doc]) -> None:
    """Write docs to a .spacy file."""
    DocBin(docs=docs).to_disk(path.with_suffix(".spacy"))


def cpu_seconds(checkout: Path, arguments: Sequence[str]) -> float:
    """Run a command of a checkout. Returns its CPU seconds, including those of its subprocesses.

    RAISES (CalledProcessError): If the command fails.
    """
    before = os.times()
    # In the folder of the checkout, because Python imports from the current folder first.
    subprocess.run(
        [str(checkout / ".venv" / "bin" / "python"), "-m", "spacy", "costner", *arguments],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system


def size_of(folder: Path) -> int:
    """Sum the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(other: str, folder: str, turns: int = 5, *names: str) -> None:
    """Print the CPU seconds of the tasks in both checkouts. By default, of all tasks."""
    data = Path(folder).resolve()
    write_corpora(data)
    checkouts = {"before": Path(other).resolve(), "after": ROOT.resolve()}
    print("| task | CPU seconds before | after | ratio | ratio of bytes |\n|---|---|---|---|---|")
    for task in names or COMMANDS:
        seconds: dict[str, list[float]] = {name: [] for name in checkouts}
        outputs: dict[str, Path] = {}
        for turn in range(turns):
            # They alternate in going first, because the second one may profit from a warm cache.
            order = [*checkouts]
            if turn % 2 == 1:
                order.reverse()
            for name in order:
                outputs[name] = data / name / slug(task)
                shutil.rmtree(outputs[name], ignore_errors=True)
                paths = {
                    "data": data,
                    "output": outputs[name],
                    "spanish": data / name / slug(FIRST_TASK) / "model-best",
                }
                arguments = [argument.format(**paths) for argument in COMMANDS[task].split()]
                seconds[name].append(cpu_seconds(checkouts[name], arguments))
        before = min(seconds["before"])
        after = min(seconds["after"])
        ratio = after / before
        ratio_of_bytes = size_of(outputs["after"]) / size_of(outputs["before"])
        row = f"| {task} | {before:.1f} | {after:.1f} | {ratio:.2f} | {ratio_of_bytes:.3f} |"
        print(row, flush=True)


def slug(task: str) -> str:
    """Make a folder name from the name of a task."""
    return "".join(character if character.isalnum() else "_" for character in task)


if __name__ == "__main__":
    other_checkout, data_folder, *rest = sys.argv[1:]
    main(other_checkout, data_folder, int(rest[0]) if rest else 5, *rest[1:])
