"""Every page of the docs and every notebook, run: `make docs-test`.

A page is run from its top to its end, in a folder that has the demo corpus, and pipelines trained
on it, by the names that the docs use.
"""

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
from spacy.tokens import Doc, DocBin
from spacy.util import load_config

from .support.pages import (
    PAGES,
    ROOT,
    WITH_SMALL_PIPELINE,
    read_blocks,
    run_block,
    run_commands,
)

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SECONDS = 600
"""The longest that a cell may take on a busy machine. A notebook takes half a minute."""

N_TRAIN = 500
STEPS = {"training": {"max_steps": 40, "eval_frequency": 10}}
COMMANDS = """
for part in train dev test; do
  python -m spacy costner convert $part.spacy $part.conll
done
cp train.conll esp.train
cp configs/demo_tree.json tree.json
mkdir texts
cp raw.txt texts.txt
cp raw.txt texts
python -m spacy costner init linear.cfg --train train.spacy --dev dev.spacy
python -m spacy costner fit linear.cfg --output training
cp -r training/model-best training/model-last
python -m spacy costner calibrate training/model-best dev.spacy --output training/calibrated
python -m spacy costner guarantee training/calibrated other.spacy --miss 0.05 \
  --output training/guaranteed
"""
GIVEN = {"audit.md": "config.cfg", "suggest.md": "config.cfg"}
"""By page, the config that its commands read and don't write: a copy of linear.cfg."""
COMMANDS_FIRST = ["pii"]
"""Pages that begin with an example of the pipeline that their commands train."""

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the names that the docs use are there."""
    path = tmp_path_factory.mktemp("workplace")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(path)
        for name in ("configs", "scripts", "benchmarks"):
            Path(name).symlink_to(ROOT / name)
        write_corpora()
        load_config("configs/demo.cfg").merge(STEPS).to_disk("my.cfg")
        run_commands(COMMANDS, "the workplace")
    return path


def write_corpora() -> None:
    """Write the demo corpus, texts without annotation, costs and answers by their names."""
    run_commands("python scripts/make_demo_corpus.py .", "the workplace")
    run_commands("python scripts/make_demo_corpus.py more --seed 1", "the workplace")
    shutil.copy("more/dev.spacy", "other.spacy")
    vocab = spacy.blank("en").vocab
    docs = list(DocBin().from_disk("train.spacy").get_docs(vocab))
    DocBin(docs=docs[:N_TRAIN]).to_disk("train.spacy")
    lines = "\n".join(doc.text for doc in docs[N_TRAIN:])
    Path("raw.txt").write_text(lines, encoding="utf8")
    write_costs(sorted({ent.label_ for doc in docs for ent in doc.ents}))
    write_answers(docs[:N_TRAIN])


def write_costs(labels: list[str]) -> None:
    """costs.csv: 2 for a wrong label, 1 for the rest."""
    with Path("costs.csv").open("w", encoding="utf8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["gold", *labels, "O"])
        for gold in [*labels, "O"]:
            costs = []
            for predicted in [*labels, "O"]:
                if predicted == gold:
                    costs.append(0)
                elif "O" in (gold, predicted):
                    costs.append(1)
                else:
                    costs.append(2)
            rows.writerow([gold, *costs])


def write_answers(docs: list[Doc]) -> None:
    """answers.jsonl: as of a teacher that is less sure of every other entity."""
    lines = []
    for doc in docs:
        ents = doc.to_json()["ents"]
        spans = [{**ent, "score": 0.9 - i % 2 / 2} for i, ent in enumerate(ents)]
        lines.append({"text": doc.text, "spans": spans})
    srsly.write_jsonl("answers.jsonl", lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path, workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "clone"
    shutil.copytree(workplace, folder, symlinks=True)
    monkeypatch.chdir(folder)
    if page.name in GIVEN:
        shutil.copy("linear.cfg", GIVEN[page.name])
    names: dict[str, Any] = {}
    blocks = read_blocks(page)
    if page.stem in COMMANDS_FIRST:
        blocks.sort(key=lambda block: block.language == "python")
    for block in blocks:
        # `project/test_doc_examples.py` runs the Python of pages with a small pipeline.
        if page.stem not in WITH_SMALL_PIPELINE or block.language != "python":
            run_block(block, names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(ROOT / "examples")}}
    nbclient.NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()
