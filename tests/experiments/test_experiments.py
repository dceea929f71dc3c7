"""The parts of experiments: kept runs, pages, corpora, training in stages, scores."""

import re
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binomtest
from spacy.tokens import Doc
from spacy.util import registry

from experiments import combinations, runner, training
from experiments.corpora import ROOT, as_examples, read_docs
from experiments.runner import PAGE, Runner, fill, template, write_section
from experiments.scores import (
    COST,
    PRECISION,
    RECALL,
    WHOLE,
    F,
    System,
    best_on_dev,
    binomial_p,
    mcnemar,
    system,
)
from experiments.training import linear_block, make_ner, read_weights, run_stages, train_and_count
from spacy_costner.workflows.runs import Run

from ..support.config import FEATURES
from ..support.experiment import SENTENCES
from ..support.runs import square
from ..support.vocabs import blank_vocab

NAMES = sorted(path.stem for path in (ROOT / "experiments").glob("*.md"))


def look_at_nothing(**facts: Any) -> None:
    """For fits without looks."""


def runs_of_squares(*numbers: int) -> list[Run]:
    """A run for each number, which computes its square. Below 0 it fails."""
    return [Run(f"square-{x}", square, {"x": x}) for x in numbers]


def refuse_to_run() -> Executor:
    """Replaces an executor, which is made only if two runs or more have no result."""
    raise AssertionError("there is nothing to run")


def test_runs_are_kept_for_their_settings(tmp_path: Path) -> None:
    """A second runner finds both results and runs nothing. A run of the same name with another
    setting is run."""
    first = Runner(tmp_path)
    assert [result["square"] for result in first(runs_of_squares(2, 3))] == [4, 9]
    assert 0 <= first.seconds < 1

    second = Runner(tmp_path, make_executor=refuse_to_run)
    assert [result["square"] for result in second(runs_of_squares(2, 3))] == [4, 9]
    assert second.seconds == first.seconds

    same_name = Run("square-2", square, {"x": 5})
    assert [result["square"] for result in Runner(tmp_path)([same_name])] == [25]


def test_runs_that_finish_beside_an_error_are_kept(tmp_path: Path) -> None:
    run = Runner(tmp_path)
    with pytest.raises(ValueError, match=r"1 of 3 runs failed\nsquare--1: ValueError: below 0"):
        run(runs_of_squares(2, -1, 4))
    assert {path.name for path in tmp_path.iterdir()} == {"square-2.json", "square-4.json"}


def test_sections_are_replaced(tmp_path: Path) -> None:
    """Section "a" is written twice. It keeps its place before "b"."""
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    write_section(page, "a", "## A\n\nfirst")
    write_section(page, "b", "## B\n\nsecond")
    write_section(page, "a", "## A\n\nthird")

    text = page.read_text()
    assert "first" not in text
    assert text.index("# Page") < text.index("## A\n\nthird") < text.index("## B\n\nsecond")


def test_rows_of_the_tables_of_the_page_have_as_many_cells_as_the_header() -> None:
    page = PAGE.read_text(encoding="utf8")
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    assert len(tables) > 20
    for table in tables:
        assert len({row.count("|") for row in table.splitlines()}) == 1, table


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_the_templates_filled_in(name: str) -> None:
    """Line breaks may differ, and where the template has a name in braces there may be any text."""
    page = PAGE.read_text(encoding="utf8")
    section = page.split(f"<!-- {name} -->")[1].split(f"<!-- end of {name} -->")[0]
    fixed_texts = re.split(r"\{[^}]*\}", " ".join(template(name).split()))
    pattern = ".*".join(re.escape(text) for text in fixed_texts)
    assert re.fullmatch(pattern, " ".join(section.split()))


@pytest.mark.parametrize(
    "quick, seeds, limit", [(True, "0", "200"), (False, "0, 1", "None")], ids=["quick", "full"]
)
def test_an_experiment_fills_its_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool, seeds: str, limit: str
) -> None:
    """Only a full run writes the page. The only figure of this experiment is its limit."""

    def fill_in_the_limit(run: Runner, size: dict[str, Any]) -> dict[str, str]:
        return {"corpora": str(size["limit"])}

    monkeypatch.setattr(runner, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(runner, "OUTPUT", tmp_path)
    monkeypatch.setattr(combinations, "experiment", fill_in_the_limit)

    text = runner.run_experiment("combinations", quick=quick, jobs=1)

    assert "`python -m experiments combinations`, 20" in text  # and more of a date
    assert f"Seeds ({seeds})" in text
    assert text.endswith(limit)
    assert (tmp_path / "page.md").exists() != quick


def test_a_variant_has_a_section_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heading and its command name it, and the section of the experiment is left as it is."""
    page = tmp_path / "page.md"
    write_section(page, "combinations", "first")
    monkeypatch.setattr(runner, "PAGE", page)
    monkeypatch.setattr(runner, "OUTPUT", tmp_path)
    monkeypatch.setattr(combinations, "experiment", lambda run, size: {"corpora": size["limit"]})
    full = dict(combinations.SPEC["full"])
    spec = {"full": full, "variants": {"small": {"limit": 7}}}
    monkeypatch.setattr(runner, "spec", lambda name: spec)

    text = runner.run_experiment("combinations", quick=False, jobs=1, variant="small")

    assert text.startswith("## Beyond the papers, variant: small\n")
    assert "`python -m experiments combinations --variant small`" in text
    assert text.endswith("7")
    assert "<!-- combinations -->\n\nfirst" in page.read_text()
    assert "<!-- combinations-small -->" in page.read_text()


def test_a_variant_can_have_its_own_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "a.md").write_text("## Title\ntext")
    (folder / "a-small.md").write_text("### Small\nother text")
    monkeypatch.setattr(runner, "ROOT", tmp_path)

    assert template("a") == "## Title\ntext"
    assert template("a", "small") == "### Small\nother text"
    assert template("a", "large") == "## Title, variant: large\ntext"


def test_templates_are_filled_with_figures_and_lists() -> None:
    assert fill("{a} {b[c]:g}\n", {"a": 1, "b": {"c": 2.0}}) == "1 2"
    lists = {"a": [1, 2.0, 3], "b": [4]}
    assert fill("{a}; {a: or }; {a[1]:.1f}; {b}", lists) == "1, 2, 3; 1, 2 or 3; 2.0; 4"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Columns of two sentences: "Ana Lee ve Roma" and "Roma duerme"."""
    path = tmp_path / "corpus.txt"
    path.write_text(SENTENCES)
    return path


@pytest.fixture
def docs(file: Path) -> list[Doc]:
    """Ana Lee (PER) ve Roma (LOC); Roma (LOC) duerme."""
    return read_docs(file, blank_vocab())


def test_entities_of_corpora_are_read(docs: list[Doc]) -> None:
    """The first Roma has the tag I-LOC, which continues nothing: it begins an entity."""
    assert [[(ent.text, ent.label_) for ent in doc.ents] for doc in docs] == [
        [("Ana Lee", "PER"), ("Roma", "LOC")],
        [("Roma", "LOC")],
    ]


def test_docs_to_predict_have_parts_of_speech_and_no_entities(docs: list[Doc]) -> None:
    first, second = [eg.predicted for eg in as_examples(docs)]
    assert not first.ents
    assert not second.ents
    assert [token.tag_ for token in second] == ["NC", "VMI"]


def test_the_last_sentences_of_a_corpus_can_be_read(docs: list[Doc], file: Path) -> None:
    """The sentences begin with number -1, as in a slice: the last one."""
    last = read_docs(file, docs[0].vocab, begin=-1)
    assert [doc.text for doc in last] == [docs[1].text]


def test_a_corpus_that_is_missing_is_named(docs: list[Doc], file: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.txt: expected the corpus"):
        read_docs(file.parent / "none.txt", docs[0].vocab)


LINEAR = linear_block(FEATURES)
MODELS = {
    "linear": LINEAR,
    "CNN": combinations.model(combinations.CORPORA["English chunks, 4,000 sentences"], "CNN"),
    "hybrid": combinations.model(combinations.CORPORA["GENIA terms"], "hybrid"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model, fit, settings",
    [
        ("linear", "batch", {"c2": 0.01}),
        ("linear", "online", {"epochs": [30]}),
        ("CNN", "neural", {"epochs": 40, "words": 5, "learn_rate": 0.01}),
        ("hybrid", "neural", {"epochs": 40, "words": 5, "learn_rate": 0.01}),
    ],
)
def test_models_learn_two_sentences_by_heart(
    docs: list[Doc], model: str, fit: str, settings: dict[str, Any]
) -> None:
    """Counts of a sentence: true positives, false positives, false negatives, the cost, tokens,
    whether all of it is right, and 1 for the sentence."""
    examples = as_examples(docs)
    ner = make_ner(examples, model=MODELS[model])
    training.FITS[fit](ner, examples, look_at_nothing, **settings)
    counts = training.counts_of(training.predict(ner, docs)["best path"], ner)
    assert counts.tolist() == [[2, 0, 0, 0, 4, 1, 1], [1, 0, 0, 0, 2, 1, 1]]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_with_the_weights_of_another_predicts_the_same(docs: list[Doc], model: str) -> None:
    examples = as_examples(docs)
    trained = make_ner(examples, model=MODELS[model], seed=0)
    other = make_ner(examples, model=MODELS[model], seed=1)
    training.fit_neural(trained, examples, look_at_nothing, epochs=2, words=5)
    emissions = trained.model.predict(docs).emissions
    assert abs(other.model.predict(docs).emissions - emissions).max() > 0

    training.write_weights(other, read_weights(trained))

    assert_allclose(other.model.predict(docs).emissions, emissions, atol=1e-6)
    assert_allclose(trained.model.predict(docs).emissions, emissions)


def test_stages_go_on_from_each_other(docs: list[Doc]) -> None:
    """The second stage begins with the weights of stage 0, so that L-BFGS needs few iterations. The
    third begins with zeros, like the first."""
    from_zero = {"fit": "batch", "model": LINEAR, "settings": {"c2": 0.1}}
    weights: list[numpy.ndarray] = []
    facts_of_stages: list[dict[str, Any]] = []

    def look(ner: Any, **facts: Any) -> None:
        weights.append(read_weights(ner)[0])
        facts_of_stages.append(facts)

    examples = as_examples(docs)
    last = run_stages(examples, [from_zero, {**from_zero, "after": 0}, from_zero], None, look)

    assert [facts["stage"] for facts in facts_of_stages] == [0, 1, 2]
    n_first, n_second, n_third = [facts["iterations"] for facts in facts_of_stages]
    assert n_second <= 12
    assert n_second < n_first == n_third
    assert_allclose(weights[1], weights[0], atol=0.02)
    assert_allclose(weights[2], weights[0])
    assert_allclose(last[0], weights[2])

    # Weights from elsewhere are a start as well.
    run_stages(examples, [from_zero], last, look)
    assert facts_of_stages[-1]["iterations"] <= 12


def test_averages_are_of_the_weights_after_each_step(docs: list[Doc]) -> None:
    """An epoch is one step here. After two steps the average is half the sum of the weights after
    the first and after the second."""
    examples = as_examples(docs)
    ner = make_ner(examples, model=LINEAR)
    weights = {}

    def look(epochs: int, averaged: bool) -> None:
        (weights[epochs, averaged],) = read_weights(ner)

    training.fit_online(ner, examples, look, epochs=[1, 2], averaged=[False, True])

    first, second = weights[1, False], weights[2, False]
    assert not numpy.allclose(first, second)
    assert_allclose(weights[1, True], first, atol=1e-6)
    assert_allclose(weights[2, True], (first + second) / 2, atol=1e-6)
    assert_allclose(read_weights(ner)[0], weights[2, True])
    # Looks at the weights don't change the training.
    for averaged in (False, True):
        unobserved = make_ner(examples, model=LINEAR)
        training.fit_online(unobserved, examples, look_at_nothing, epochs=[2], averaged=[averaged])
        assert_allclose(read_weights(unobserved)[0], weights[2, averaged], atol=1e-6)


ONLINE_STAGE = {"fit": "online", "model": LINEAR, "settings": {"epochs": [2]}}


def parts_of(file: Path) -> dict[str, list[Any]]:
    """Train: the first sentence of a file; dev: all of it; test: from the second sentence on."""
    path = str(file)
    return {"train": [path, 0, 1], "dev": [path, 0, None], "test": [path, 1, None]}


def test_a_stage_behind_another_begins_where_that_ended(file: Path) -> None:
    """Be it a stage of this run, or one that was the start of the run."""
    first, behind_first = train_and_count(
        parts_of(file), [ONLINE_STAGE, {**ONLINE_STAGE, "after": 0}]
    )
    (behind_start,) = train_and_count(parts_of(file), [ONLINE_STAGE], start=[ONLINE_STAGE])
    assert {**behind_start, "stage": 1} == behind_first
    assert behind_first != first


def test_counts_of_dev_are_summed_and_those_of_test_are_by_sentence(file: Path) -> None:
    """Of the seven counts, number 4 are the tokens and number 6 the sentences: dev has two, and
    test has one, of two tokens."""
    (look,) = train_and_count(parts_of(file), [ONLINE_STAGE])
    (dev_sums,) = look["dev"].values()
    (test_rows,) = look["test"].values()
    assert dev_sums[6] == 2
    assert len(test_rows) == 1
    assert test_rows[0][4] == 2


def test_a_tree_has_counts_for_each_of_its_levels(file: Path) -> None:
    tree = {"name": {"PER": {}, "LOC": {}}}
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": tree}
    (look,) = train_and_count(parts_of(file), [ONLINE_STAGE], cost=cost)
    assert len(look["levels"]) == 2  # "name", and the labels below it


def places(doc: Doc) -> tuple[tuple[int, int, str], ...]:
    """Begin, end and label of the entities of a doc."""
    return tuple((ent.start, ent.end, ent.label_) for ent in doc.ents)


def test_what_is_decoded_in_many_ways_is_what_the_pipeline_answers(docs: list[Doc]) -> None:
    """The weights are random, so that decodings answer differently."""
    corpus = combinations.CORPORA["Spanish entities"]
    ner = make_ner(as_examples(docs), model=combinations.model(corpus, "linear"))
    (weights,) = training.weights_of(ner)
    weights[:] = numpy.random.default_rng(0).normal(size=weights.shape)
    decodings = combinations.blocks("decodings", corpus)

    predictions = training.predict(ner, docs, decodings)

    answers = set()
    for name, block in decodings.items():
        ner.set_decoding(registry.resolve({"decoding": block})["decoding"])
        piped_docs = ner.pipe([eg.predicted for eg in as_examples(docs)])
        answer = [places(piped) for piped in piped_docs]
        assert [places(eg.predicted) for eg in predictions[name]] == answer
        answers.add(tuple(answer))
    assert len(answers) > 1


def system_with_hits(name: str, dev: list[int], test: list[int]) -> System:
    """A system that was run with several seeds, on 30 docs of two tokens and one entity each. For
    each seed: in how many docs of dev and of test it finds the entity."""

    def counts_of_docs(n_hits: int) -> numpy.ndarray:
        hit = (numpy.arange(30) < n_hits).astype(float)
        missed = 1 - hit
        one = numpy.ones(30)
        # True positives, false positives, false negatives, cost, tokens, docs all right, docs.
        return numpy.stack([hit, 0 * one, missed, missed, 2 * one, hit, one], axis=1)

    dev_sums = [counts_of_docs(n_hits).sum(axis=0) for n_hits in dev]
    test_rows = [counts_of_docs(n_hits) for n_hits in test]
    return System(name, numpy.stack(dev_sums), test_rows, {})


def test_scores_are_those_of_the_counts() -> None:
    """On test the first seed finds all of 30 entities, the second 24 and nothing else: F is 2 * 24
    / (24 + 30), and 6 of 60 tokens cost 1. 100 % and 80 % of the docs are right: the sample
    deviation is 20 / sqrt(2) = 14.14. Together the seeds find 54 of 60 entities."""
    system = system_with_hits("good", dev=[30, 30], test=[30, 24])
    assert system.on("test", WHOLE).tolist() == [100, 80]
    assert system.on("test", F).tolist() == pytest.approx([100, 100 * 2 * 24 / (24 + 30)])
    assert system.on("test", PRECISION).tolist() == [100, 100]
    assert system.on("test", RECALL).tolist() == [100, 80]
    assert system.on("test", COST).tolist() == pytest.approx([0, 6 / 60])
    assert system.spread(WHOLE) == "90.00 ± 14.14"
    f_of_both_seeds = system.with_seeds_summed().on("test", F).tolist()
    assert f_of_both_seeds == pytest.approx([100 * 2 * 54 / (54 + 60)])
    assert system.with_folds_joined().test[0].shape == (2 * 30, 7)


@pytest.mark.parametrize("n_first, n_second", [(0, 0), (0, 5), (3, 1), (8, 2), (400, 300)])
def test_mcnemar_is_the_binomial_test(n_first: int, n_second: int) -> None:
    n = max(n_first + n_second, 1)  # without any unit, p is 1
    expected = binomtest(n_first, n).pvalue if n_first + n_second else 1.0
    assert binomial_p(n_first, n_second) == pytest.approx(expected)


def test_mcnemar_counts_what_one_system_alone_has_right() -> None:
    """The first system has 6 sentences right that the second one has wrong, and all 4 wrong tags of
    the second one that are not its own."""
    first = system_with_hits("first", [30], [30])._replace(wrong_tags=[[0, 1]])
    second = system_with_hits("second", [30], [24])._replace(wrong_tags=[[1, 5, 6, 7, 8]])
    p_of_tags, p_of_sentences = mcnemar(first, second)
    assert p_of_tags == pytest.approx(binomtest(1, 5).pvalue)
    assert p_of_sentences == pytest.approx(2 / 2**6)


def test_tokens_with_a_wrong_tag_are_noted(docs: list[Doc]) -> None:
    """A model of weights of 0 finds no entity: the tokens Ana, Lee, Roma; Roma are wrong."""
    ner = make_ner(as_examples(docs), model=LINEAR)
    assert training.count(ner, {"test": docs})["wrong_tags"] == [0, 1, 3, 4]


def test_a_system_has_the_counts_of_its_decoding() -> None:
    look = {"dev": {"a": [1], "b": [2]}, "test": {"a": [[3]], "b": [[4]]}}
    assert system("b", [look], "b").dev.tolist() == [[2]]


def test_the_best_system_is_chosen_on_dev() -> None:
    """Though the other is better on test. Of equals the first is chosen. By the cost, the lowest is
    the best."""
    good = system_with_hits("good", dev=[30, 30], test=[15, 15])
    bad = system_with_hits("bad", dev=[10, 10], test=[30, 30])
    assert best_on_dev([bad, good, good._replace(name="later")]).name == "good"
    assert best_on_dev([bad, good], COST).name == "good"
