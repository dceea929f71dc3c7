"""What the papers' experiments are made with: cells that are kept, corpora, the linear CRF."""

import json
from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest
import spacy
from numpy.testing import assert_allclose
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_config

from experiments.cells import ROOT, Cell, Runner, table, write_section
from experiments.corpora import as_examples, read_docs
from experiments.linear import fit_batch, fit_online, make_linear
from experiments.neural import ROWS, cnn_block, fit_neural, hybrid_block
from experiments.scores import entity_scores, sentence_counts
from experiments.tagger import answers, features_of, make_tagger

from .test_entry_points import FEATURES

CORPUS = """\
Ana NC B-PER
Lee AQ I-PER
ve VMI O
Roma NC I-LOC

Roma NC B-LOC
duerme VMI O
"""


def square(x: int) -> Dict[str, Any]:
    if x < 0:
        raise ValueError("below 0")
    return {"x": x, "square": x * x}


def cells(*numbers: int) -> List[Cell]:
    return [Cell(f"square-{x}", square, {"x": x}) for x in numbers]


@pytest.mark.parametrize("jobs", [1, 2])
def test_cells_are_run_and_kept(tmp_path: Path, jobs: int) -> None:
    run = Runner(tmp_path, jobs)
    assert [found["square"] for found in run(cells(2, 3))] == [4, 9]
    assert run.seconds > 0
    kept = tmp_path / "square-3.json"
    changed = json.loads(kept.read_text())
    changed["result"]["square"] = 99
    kept.write_text(json.dumps(changed))
    assert [found["square"] for found in Runner(tmp_path, jobs)(cells(3, 4))] == [99, 16]


def test_a_cell_with_other_settings_is_run_anew(tmp_path: Path) -> None:
    Runner(tmp_path)([Cell("one", square, {"x": 2})])
    assert Runner(tmp_path)([Cell("one", square, {"x": 3})])[0]["square"] == 9


def test_what_is_finished_before_an_error_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="below 0"):
        Runner(tmp_path)(cells(2, -1))
    assert [path.name for path in tmp_path.iterdir()] == ["square-2.json"]


def test_sections_are_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    for name, text in (("a", "first"), ("b", "second"), ("a", "third")):
        write_section(page, name, name.upper(), text)
    text = page.read_text()
    assert "first" not in text
    assert text.index("# Page") < text.index("## A\n\nthird") < text.index("## B\n\nsecond")


def test_tables_are_markdown() -> None:
    assert table(["", "F"], [["ours", 1 / 3]]) == "|  | F |\n| --- | --- |\n| ours | 0.33 |"


@pytest.fixture
def docs(tmp_path: Path) -> List[Doc]:
    path = tmp_path / "corpus.txt"
    path.write_text(CORPUS)
    return read_docs(path, spacy.blank("xx").vocab)


def test_corpora_are_read(docs: List[Doc]) -> None:
    """An I- tag that continues nothing begins an entity."""
    assert [[(ent.text, ent.label_) for ent in doc.ents] for doc in docs] == [
        [("Ana Lee", "PER"), ("Roma", "LOC")],
        [("Roma", "LOC")],
    ]
    bare = [eg.predicted for eg in as_examples(docs)]
    assert not any(doc.ents for doc in bare)
    assert [token.tag_ for token in bare[1]] == ["NC", "VMI"]


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.txt: expected the corpus"):
        read_docs(tmp_path / "none.txt", spacy.blank("xx").vocab)


@pytest.mark.parametrize("online", [False, True])
def test_the_linear_crf_learns(docs: List[Doc], online: bool) -> None:
    examples = as_examples(docs)
    linear = make_linear(examples, features=FEATURES)
    if online:
        fit_online(linear, examples, epochs=30)
    else:
        fit_batch(linear, examples, c2=0.01)
    found = answers(linear, docs)
    assert entity_scores(found) == {"p": 100, "r": 100, "f": 100}
    assert sentence_counts(found) == [[2, 2, 2], [1, 1, 1]]


def test_weights_can_be_handed_on(docs: List[Doc]) -> None:
    examples = as_examples(docs)
    one, other = (make_linear(examples, features=FEATURES) for _ in range(2))
    fit_batch(one, examples, c2=0.1)
    other.rows[:] = one.rows
    assert fit_batch(other, examples, c2=0.1).n_iterations <= 12
    assert_allclose(other.rows, one.rows, atol=0.02)


LINEAR = {"@architectures": "spacy_costner.SparseCRF.v1", "features": FEATURES}
MODELS = {
    "linear": LINEAR,
    "CNN": cnn_block(["NORM", "TAG"]),
    "hybrid": hybrid_block(["NORM", "SHAPE"], FEATURES, 0.1),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=[*MODELS])
def test_all_weights_can_be_handed_on(docs: List[Doc], model: Dict[str, Any]) -> None:
    examples = as_examples(docs)
    one, other = (make_tagger(examples, model=model, seed=seed) for seed in (0, 1))
    fit_neural(one, examples, epochs=2, words=5)
    before = one.ner.model.predict(docs).emissions
    assert abs(other.ner.model.predict(docs).emissions - before).max() > 0
    other.write_weights(one.read_weights())
    assert_allclose(other.ner.model.predict(docs).emissions, before, atol=1e-6)
    assert_allclose(one.ner.model.predict(docs).emissions, before)


@pytest.mark.parametrize("name", ["CNN", "hybrid"])
def test_a_cnn_learns(docs: List[Doc], name: str) -> None:
    examples = as_examples(docs)
    tagger = make_tagger(examples, model=MODELS[name])
    fit_neural(tagger, examples, epochs=40, words=5, learn_rate=0.01)
    assert entity_scores(answers(tagger, docs))["f"] == 100


def test_the_cnn_is_that_of_the_configs() -> None:
    expected = load_config(ROOT / "configs" / "cnn.cfg")["components"]["tok2vec"]["model"]
    attributes = expected["embed"]["attrs"]
    model = cnn_block(attributes)["tok2vec"]
    assert [ROWS[name] for name in attributes] == expected["embed"]["rows"]
    assert model["embed"] == {**expected["embed"], "width": model["encode"]["width"]}
    assert model["encode"] == expected["encode"]


def test_features_come_from_the_configs() -> None:
    assert features_of("z_score")["windows"] == {"ORTH": 1}


def test_counts_are_of_exact_entities(docs: List[Doc]) -> None:
    answer = Doc(docs[0].vocab, words=[t.text for t in docs[0]], ents=["B-PER", "O", "O", "B-LOC"])
    counts = sentence_counts([Example(answer, docs[0])])
    assert numpy.asarray(counts).tolist() == [[2, 2, 1]]
