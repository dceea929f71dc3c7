"""Gimpel & Smith (2010): steps and penalties by hand, settings, the whole experiment."""

from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy.testing import assert_allclose
from spacy.training import Example

from experiments import softmax_margin
from experiments.corpora import as_examples, read_docs
from experiments.runner import Runner, fill, size_of, template
from experiments.scores import COUNTS, System
from experiments.softmax_margin import METHODS, Plan, table_by_epochs
from experiments.training import run_stages

from ..support.vocabs import blank_vocab

SENTENCES = """\
-DOCSTART- -X- O O

Ana NNP I-NP I-PER
Lee NNP I-NP I-PER
Bo NNP I-NP B-PER
sees VBZ I-VP O
Rome NNP I-NP I-LOC

Rome NNP I-NP I-LOC
sleeps VBZ I-VP O
"""

FULL = softmax_margin.SPEC["full"]
PLAN = Plan({}, FULL, n_train=4 * FULL["batch_size"])
"""The plan for a corpus of four batches."""

STEP = FULL["step"]
"""The size of the steps of methods that have none of their own: 0.01."""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the three parts of a corpus, without ".train" and so on. All are `SENTENCES`."""
    for part in ("train", "testa", "testb"):
        (tmp_path / f"eng.{part}").write_text(SENTENCES)
    for module in ("softmax_margin", "corpora"):
        monkeypatch.setattr(f"experiments.{module}.ROOT", tmp_path)
    return tmp_path / "eng"


@pytest.fixture
def examples(path: Path) -> list[Example]:
    """The two sentences."""
    return as_examples(read_docs(path.with_suffix(".train"), blank_vocab()))


def weights(
    examples: list[Example], name: str, c: Any = None, m: Any = None, start: Any = None
) -> numpy.ndarray:
    """The weights after an epoch of a method with C and m. The epoch is a single step, as the
    examples are fewer than a batch. It starts from the weights `start`, by default 0."""
    stage = PLAN.stage(name, {"c": c, "m": m, "epochs": 1, "averaged": False}, 0)
    first = None if start is None else [start]
    return run_stages(examples, [stage], first, lambda ner, **facts: None)[0]


def test_corpus_of_2003_is_read(examples: list[Example]) -> None:
    """Its tags are IOB1: only an entity right after another one of its label begins with B, as Bo
    does after Ana Lee. The parts of speech are in the second of four columns."""
    assert [[(e.text, e.label_) for e in eg.reference.ents] for eg in examples] == [
        [("Ana Lee", "PER"), ("Bo", "PER"), ("Rome", "LOC")],
        [("Rome", "LOC")],
    ]
    assert [token.tag_ for token in examples[1].predicted] == ["NNP", "VBZ"]


@pytest.mark.parametrize(
    "name, c, m", [("perceptron_built_in", 1, None), ("mira_built_in", 1e-3, 5)]
)
def test_steps_are_whole(name: str, c: float, m: Any, examples: list[Example]) -> None:
    """A weight moves by C times the difference of a feature's counts, which is a whole number. For
    MIRA, C is the largest size of a step, and it is so small here that the step has this size. The
    step of the perceptron has the size 1."""
    whole_numbers = weights(examples[:1], name, c, m) / c
    assert_allclose(whole_numbers, whole_numbers.round(), atol=1e-4)
    assert whole_numbers.any()


def test_m_multiplies_the_gradient_of_risk_but_not_its_penalty(examples: list[Example]) -> None:
    """A step takes the weights w to (w - STEP * m * gradient) / (1 + STEP * penalty). The gradient
    is known from a step with m = 1 and no penalty. It is tested by a step with m = 5 and C = 3."""
    start = weights(examples, "crf", c=0.0)
    after_plain_step = weights(examples, "risk", c=0.0, m=1, start=start)
    gradient = (start - after_plain_step) / STEP
    assert numpy.abs(gradient).max() > 0.01

    after_step = weights(examples, "risk", c=3.0, m=5, start=start)

    expected = (start - STEP * 5 * gradient) / (1 + STEP * PLAN.penalty(3.0))
    assert_allclose(after_step, expected, atol=1e-5)


def test_the_penalties_of_an_epoch_add_up_to_c() -> None:
    """The objective has C ||w||^2 for an epoch. A step adds penalty / 2 ||w||^2, and an epoch has
    four steps."""
    assert 4 * PLAN.penalty(0.1) / 2 == pytest.approx(0.1)


@pytest.mark.slow
def test_the_experiment_tunes_and_tests_all_methods_and_fills_its_page(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax_margin, "CORPORA", {"tiny": path.name})
    size = size_of(softmax_margin.SPEC, quick=True)

    figures = softmax_margin.experiment(Runner(tmp_path / "runs"), size)

    page = fill(template("softmax_margin"), {**size, **figures, "provenance": ""})
    assert "tiny: 2 sentences" in page
    assert list(figures["ours"]) == list(METHODS)
    # A run is saved under its name: "tune", C, m and the method, or "test", seed and method.
    runs = {file.stem for file in (tmp_path / "runs").iterdir()}
    assert {f"test-0-{name}" for name in METHODS} < runs
    assert {"tune-None-None-perceptron", "tune-0.01-1-mira_built_in"} < runs


def test_the_variant_of_the_paper_has_its_epochs_and_grids() -> None:
    """Next to ours. [quick] comes last."""
    size = size_of(softmax_margin.SPEC, quick=False, variant="paper")
    assert {30, 100} < set(size["epochs"])
    assert {1, 5, 10, 20} < set(size["m"]) & set(size["m_of_risk"])
    assert size["c_of_risk"] == [0.0, 0.01]
    plan = Plan({}, size, n_train=100)
    assert plan.values(METHODS["jrb"]["c"]) == [0.0, 0.01]
    for name in ("crf", "max_margin", "softmax_margin", "mira"):
        assert plan.values(METHODS[name]["c"]) == [0.01, 0.1, 1.0]
    assert plan.values(METHODS["mira_built_in"]["m"]) == [1, 5, 10, 20]

    assert size_of(softmax_margin.SPEC, quick=True, variant="paper")["epochs"] == [3]
    assert {30, 100} < set(size_of(softmax_margin.SPEC, quick=False, variant="epochs")["epochs"])
    with pytest.raises(ValueError, match="variant: expected paper, epochs, gazetteers, got 'all'"):
        size_of(softmax_margin.SPEC, quick=False, variant="all")


def test_f_of_each_number_of_epochs_is_with_the_best_settings() -> None:
    """All methods have the same scores here. The best C differs between few and many epochs. Risk
    and JRB have 2 and 5 epochs instead of 3 and 6."""
    tuned: dict[str, list[System]] = {}
    for name, method in METHODS.items():
        few, many = (2, 5) if method["from_crf"] else (3, 6)
        m = None if method["m"] == [None] else 1
        tuned[name] = [
            dev_system(n_right=2, epochs=few, m=m, c=0.1),
            dev_system(n_right=4, epochs=few, m=m, c=0.2),
            dev_system(n_right=8, epochs=many, m=m, c=0.1),
            dev_system(n_right=2, epochs=many, m=m, c=0.2),
        ]

    table = table_by_epochs(tuned, {"epochs": [3, 6], "epochs_of_risk": [2, 5]})

    header, _, *rows = table.splitlines()
    assert header == "|  | m | 3 epochs (risk and JRB: 2) | 6 epochs (risk and JRB: 5) |"
    assert len(rows) == len(METHODS)
    assert rows[0] == "| Perceptron |  | 57.14 | 88.89 |"
    assert rows[-1] == "| Softmax-Margin | 1 | 57.14 | 88.89 |"


def dev_system(n_right: int, **settings: Any) -> System:
    """Make a system with this number of right entities in the dev part, out of 10, and no wrong
    ones: F is 100 x 2 n_right / (n_right + 10)."""
    counts = dict.fromkeys(COUNTS, 0) | {"right": n_right, "missed": 10 - n_right}
    return System("", numpy.array([[*counts.values()]], dtype="float64"), settings=settings)


def test_gazetteers_are_features(path: Path, tmp_path: Path) -> None:
    """The list has Rome and Ana Lee, which are in the corpus: three positions, U, B and L, each at
    three offsets, if there is a token."""
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "names.txt").write_text("Rome\nAna Lee\n")
    data = {part: [f"eng.{part}", 0, None] for part in ("train", "testa", "testb")}
    data = {"train": data["train"], "dev": data["testa"], "test": data["testb"]}

    with_list = softmax_margin.survey(data, "lists")
    without_list = softmax_margin.survey(data, None)

    assert with_list["features"] > without_list["features"]
    (gazetteer,) = softmax_margin.features_with("lists")["gazetteers"]
    assert gazetteer == "names"
    with pytest.raises(FileNotFoundError, match="none: expected gazetteers"):
        softmax_margin.features_with("none")
