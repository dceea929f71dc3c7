"""What the experiments are made with: kept runs, pages, corpora, training in stages, scores."""

import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from numpy.testing import assert_allclose
from spacy.tokens import Doc
from spacy.util import registry

from experiments import combinations, runner, training
from experiments.corpora import ROOT, as_examples, read_docs
from experiments.runner import PAGE, Runner, fill, template, write_section
from experiments.scores import COST, WHOLE, F, P, R, System, best_on_dev, system
from experiments.training import linear_block, make_ner, read_weights, run_stages, train_and_count
from spacy_costner.analysis.runs import Run

from .support.config import FEATURES
from .support.experiment import SENTENCES
from .support.runs import square

NAMES = sorted(path.stem for path in (ROOT / "experiments").glob("*.md"))


def no_look(**facts: Any) -> None:
    """For fits that nobody looks at."""


def squares(*numbers: int) -> list[Run]:
    return [Run(f"square-{x}", square, {"x": x}) for x in numbers]


def test_runs_are_kept_and_what_is_finished_beside_an_error(tmp_path: Path) -> None:
    run = Runner(tmp_path)
    assert [found["square"] for found in run(squares(2, 3))] == [4, 9]
    assert 0 <= run.seconds < 1
    other = Run("square-2", square, {"x": 5})
    assert [found["square"] for found in Runner(tmp_path)([other])] == [25]
    with pytest.raises(ValueError, match=r"1 of 3 runs failed\nsquare--1: ValueError: below 0"):
        run(squares(2, -1, 4))
    assert {path.name for path in tmp_path.iterdir()} == {f"square-{x}.json" for x in (2, 3, 4)}


def test_sections_are_replaced(tmp_path: Path) -> None:
    """And the rows of each table of the page have as many cells as its header."""
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    for name, text in (("a", "first"), ("b", "second"), ("a", "third")):
        write_section(page, name, f"## {name.upper()}\n\n{text}")
    text = page.read_text()
    assert "first" not in text
    assert text.index("# Page") < text.index("## A\n\nthird") < text.index("## B\n\nsecond")
    tables = re.findall(r"(?:^\|.*\n)+", PAGE.read_text(encoding="utf8"), re.MULTILINE)
    assert len(tables) > 20
    for table in tables:
        assert len({row.count("|") for row in table.splitlines()}) == 1, table


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_the_templates_filled_in(name: str) -> None:
    section = PAGE.read_text(encoding="utf8").split(f"<!-- {name} -->")[1]
    text = section.split(f"<!-- end of {name} -->")[0].split()
    pieces = re.split(r"\{[^}]*\}", " ".join(template(name).split()))
    assert re.fullmatch(".*".join(map(re.escape, pieces)), " ".join(text))


def test_an_experiment_fills_its_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a full run writes the page."""
    monkeypatch.setattr(runner, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(runner, "OUTPUT", tmp_path)
    figures: Any = lambda run, size: {"corpora": str(size["limit"])}  # noqa: E731
    monkeypatch.setattr(combinations, "experiment", figures)
    for quick in (True, False):
        text = runner.run_experiment("combinations", quick=quick, jobs=1)
        assert "`python -m experiments combinations`, 20" in text
        assert "Seeds (0)" in text if quick else "Seeds (0, 1, 2)" in text
        assert text.endswith("200" if quick else "None")
        assert (tmp_path / "page.md").exists() != quick
    assert fill("{a} {b[c]:g}\n", {"a": 1, "b": {"c": 2.0}}) == "1 2"
    lists = {"a": [1, 2.0, 3], "b": [4]}
    assert fill("{a}; {a: or }; {a[1]:.1f}; {b}", lists) == "1, 2, 3; 1, 2 or 3; 2.0; 4"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(SENTENCES)
    return path


@pytest.fixture
def docs(file: Path) -> list[Doc]:
    return read_docs(file, spacy.blank("xx").vocab)


def test_corpora_are_read(docs: list[Doc], file: Path) -> None:
    """An I- tag that continues nothing begins an entity."""
    assert [[(ent.text, ent.label_) for ent in doc.ents] for doc in docs] == [
        [("Ana Lee", "PER"), ("Roma", "LOC")],
        [("Roma", "LOC")],
    ]
    bare = [eg.predicted for eg in as_examples(docs)]
    assert not any(doc.ents for doc in bare)
    assert [token.tag_ for token in bare[1]] == ["NC", "VMI"]
    assert [d.text for d in read_docs(file, docs[0].vocab, -1)] == [docs[1].text]
    with pytest.raises(FileNotFoundError, match=r"none\.txt: expected the corpus"):
        read_docs(file.parent / "none.txt", docs[0].vocab)


LINEAR = linear_block(FEATURES)
MODELS = {"linear": LINEAR} | {
    name: combinations.model(combinations.CORPORA[corpus], name)
    for name, corpus in (("CNN", "English chunks, 4,000 sentences"), ("hybrid", "GENIA terms"))
}


@pytest.mark.parametrize(
    "model, fit, settings",
    [
        ("linear", "batch", {"c2": 0.01}),
        ("linear", "online", {"epochs": [30]}),
        ("CNN", "neural", {"epochs": 40, "words": 5, "learn_rate": 0.01}),
        ("hybrid", "neural", {"epochs": 40, "words": 5, "learn_rate": 0.01}),
    ],
)
def test_models_learn(docs: list[Doc], model: str, fit: str, settings: dict[str, Any]) -> None:
    examples = as_examples(docs)
    ner = make_ner(examples, model=MODELS[model])
    training.FITS[fit](ner, examples, no_look, **settings)
    counts = training.counts_of(training.predict(ner, docs)["best path"], ner)
    assert counts.tolist() == [[2, 0, 0, 0, 4, 1, 1], [1, 0, 0, 0, 2, 1, 1]]


@pytest.mark.parametrize("model", MODELS)
def test_all_weights_can_be_handed_on(docs: list[Doc], model: str) -> None:
    examples = as_examples(docs)
    one, other = (make_ner(examples, model=MODELS[model], seed=seed) for seed in (0, 1))
    training.fit_neural(one, examples, no_look, epochs=2, words=5)
    before = one.model.predict(docs).emissions
    assert abs(other.model.predict(docs).emissions - before).max() > 0
    training.write_weights(other, read_weights(one))
    assert_allclose(other.model.predict(docs).emissions, before, atol=1e-6)
    assert_allclose(one.model.predict(docs).emissions, before)


def test_stages_go_on_from_each_other(docs: list[Doc]) -> None:
    batch = {"fit": "batch", "model": LINEAR, "settings": {"c2": 0.1}}
    seen: list[Any] = []
    stages = [batch, {**batch, "after": 0}, batch]

    def look(ner: Any, **facts: Any) -> None:
        seen.append((read_weights(ner)[0], facts))

    last = run_stages(as_examples(docs), stages, None, look)
    (first, one), (second, two), (third, three) = seen
    assert [facts["stage"] for _, facts in seen] == [0, 1, 2]
    assert two["iterations"] <= 12 and two["iterations"] < one["iterations"] == three["iterations"]
    assert_allclose(second, first, atol=0.02)
    assert_allclose(third, first)
    assert_allclose(last[0], third)
    run_stages(as_examples(docs), [batch], last, look)
    assert seen[-1][1]["iterations"] <= 12


def test_averages_are_of_the_weights_after_each_step(docs: list[Doc]) -> None:
    examples, seen = as_examples(docs), {}
    ner = make_ner(examples, model=LINEAR)

    def look(epochs: int, averaged: bool) -> None:
        (seen[epochs, averaged],) = read_weights(ner)

    training.fit_online(ner, examples, look, epochs=[1, 2], averaged=[False, True])
    assert not numpy.allclose(seen[1, False], seen[2, False])
    assert_allclose(seen[1, True], seen[1, False], atol=1e-6)
    assert_allclose(seen[2, True], (seen[1, False] + seen[2, False]) / 2, atol=1e-6)
    assert_allclose(read_weights(ner)[0], seen[2, True])
    for averaged in (False, True):
        again = make_ner(examples, model=LINEAR)
        training.fit_online(again, examples, no_look, epochs=[2], averaged=[averaged])
        assert_allclose(read_weights(again)[0], seen[2, averaged], atol=1e-6)


def test_dev_is_summed_test_is_counted_and_the_start_is_kept(file: Path) -> None:
    data = {"train": [str(file), 0, 1], "dev": [str(file), 0, None], "test": [str(file), 1, None]}
    online = {"fit": "online", "model": LINEAR, "settings": {"epochs": [2]}}
    one, two = train_and_count(data, [online, {**online, "after": 0}])
    (again,) = train_and_count(data, [online], start=[online])
    assert {**again, "stage": 1} == two != one
    (sums,), (rows,) = two["dev"].values(), two["test"].values()
    assert sums[6] == 2 and len(rows) == 1 and rows[0][4] == 2
    tree = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": {"name": {"PER": {}, "LOC": {}}}}
    (look,) = train_and_count(data, [online], cost=tree)
    assert len(look["levels"]) == 2


def test_what_is_decoded_in_many_ways_is_what_the_pipeline_answers(docs: list[Doc]) -> None:
    corpus = combinations.CORPORA["Spanish entities"]
    ner = make_ner(as_examples(docs), model=combinations.model(corpus, "linear"))
    (rows,) = training.weights_of(ner)
    rows[:] = numpy.random.default_rng(0).normal(size=rows.shape)
    found = training.predict(ner, docs, combinations.blocks("decodings", corpus))
    for name, block in combinations.blocks("decodings", corpus).items():
        ner.set_decoding(registry.resolve({"decoding": block})["decoding"])
        piped = ner.pipe([eg.predicted for eg in as_examples(docs)])
        for eg, doc in zip(found[name], piped):
            one, other = ([(e.start, e.end, e.label) for e in d.ents] for d in (eg.x, doc))
            assert one == other


def system_of(name: str, dev: list[int], test: list[int]) -> System:
    """For each seed, 30 docs with an entity each, of which so many are found."""

    def rows(right: int) -> numpy.ndarray:
        found, ones = (numpy.arange(30) < right).astype(float), numpy.ones(30)
        missed = 1 - found
        return numpy.stack([found, 0 * ones, missed, missed, 2 * ones, found, ones], axis=1)

    return System(name, numpy.stack([rows(n).sum(axis=0) for n in dev]), [*map(rows, test)], {})


def test_scores_are_those_of_the_counts_and_the_best_is_chosen_on_dev() -> None:
    good = system_of("good", [30, 30], [30, 24])
    assert good.on("test", F).tolist() == pytest.approx([100, 100 * 48 / 54])
    assert good.on("test", P).tolist() == [100, 100]
    assert good.on("test", R).tolist() == good.on("test", WHOLE).tolist() == [100, 80]
    assert good.on("test", COST).tolist() == pytest.approx([0, 0.1])
    assert good.spread(WHOLE) == "90.00 ± 14.14"
    assert good.with_seeds_summed().on("test", F).tolist() == pytest.approx([100 * 108 / 114])
    assert good.with_folds_joined().test[0].shape == (60, 7)
    look = {"dev": {"a": [1], "b": [2]}, "test": {"a": [[3]], "b": [[4]]}}
    assert system("b", [look], "b").dev.tolist() == [[2]]
    good, bad = system_of("good", [30, 30], [15, 15]), system_of("bad", [10, 10], [30, 30])
    assert best_on_dev([bad, good, good._replace(name="later")]).name == "good"
    assert best_on_dev([bad, good], COST).name == "good"
