"""Tests of `suggest`: how unsure a model is of docs, which docs are chosen, and the files that are
written."""

import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span

from spacy_costner.decoding import Posterior, make_min_cost
from spacy_costner.readers import TASK_FORMS, CorpusInfo, Task, TaskSpan, read_docs, save_tasks
from spacy_costner.workflows.sampling.diverse import choose_diverse, make_shares
from spacy_costner.workflows.sampling.suggestions import (
    UNCERTAINTY_MEASURES,
    Suggestion,
    Uncertainty,
    by_cost,
    by_entropy,
    by_least_confidence,
    suggest,
    suggest_first,
)

from ... import oracle
from ...support.commands import run
from ...support.pipelines import TEXTS, ents, load, pipeline
from ...support.posteriors import collapsed_paths, posterior
from ...support.strategies import seeds

POOL = [
    "London and Berlin like Shaka Khan",
    "London  and Berlin like Shaka Khan",  # the same but for whitespace
    "",
    "The Red Sox lost",
    "Who is it",
    "I like London",
]


def make_docs(nlp: Language, texts: list[str] = POOL) -> list[Doc]:
    """Tokenize texts. Returns a doc for each."""
    return [nlp.make_doc(text) for text in texts]


@given(posterior())
def test_uncertainty_equals_the_enumeration_of_all_paths(posterior: Posterior) -> None:
    """All paths are enumerated here. Uncertainty is the entropy of the paths, or of the tags of a
    token; or it is one minus the probability of the best path, or of the best tag."""
    ner: Any = None
    entropies, tag_entropies = by_entropy(ner, posterior)
    doubts, tag_doubts = by_least_confidence(ner, posterior)

    lengths = posterior.scores.lengths
    starts = numpy.cumsum(lengths) - lengths
    for b in range(len(lengths)):
        legal = collapsed_paths(posterior, b)
        probs = oracle.probabilities(legal)
        assert entropies[b] == pytest.approx(oracle.entropy(posterior.scores, b).value, abs=1e-5)
        if not legal:
            continue
        assert doubts[b] == pytest.approx(1 - max(probs), abs=1e-5)
        for t in range(int(lengths[b])):
            marginals: dict[int, float] = {}
            for p, path in zip(probs, legal):
                marginals[path.tags[t]] = marginals.get(path.tags[t], 0.0) + p
            entropy = -sum(p * math.log(p) for p in marginals.values() if p > 0)
            token = starts[b] + t
            assert tag_doubts[token] == pytest.approx(1 - max(marginals.values()), abs=1e-5)
            assert tag_entropies[token] == pytest.approx(entropy, abs=1e-5)


@given(seeds, st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_each_choice_has_the_highest_gain(rng: numpy.random.Generator, decay: float) -> None:
    """Here all gains are computed at each step, while `choose_diverse` computes as few as it can.
    The gain of a doc is the sum of the shares of its words in its value. A share falls with each
    chosen doc that has the word."""
    values = rng.uniform(size=12)
    shares = [make_shares(rng.integers(6, size=4), rng.uniform(size=4)) for _ in values]

    chosen = choose_diverse(values, shares, 9, decay=decay)

    n_chosen_with_word = numpy.zeros(6)
    expected: list[int] = []
    for _ in range(9):
        gains = []
        for i, (value, share) in enumerate(zip(values, shares)):
            decayed = share.shares * decay ** n_chosen_with_word[share.features]
            gains.append(-1.0 if i in expected else value * float(decayed.sum()))
        if max(gains) <= 0:  # with a decay of 0: the others may come in any order
            break
        best = int(numpy.argmax(gains))
        expected.append(best)
        n_chosen_with_word[shares[best].features] += 1
    assert chosen[: len(expected)] == expected
    assert len(set(chosen)) == len(chosen) == 9


def test_shares_of_a_doc_are_divided_among_its_words() -> None:
    """Word 7 occurs twice with the weight 0.1, so it has 0.2 of the sum 0.8."""
    words, parts = make_shares(numpy.asarray([7, 3, 7]), numpy.asarray([0.1, 0.6, 0.1]))
    assert words.tolist() == [3, 7]
    assert parts.tolist() == pytest.approx([0.75, 0.25])


def test_words_that_the_model_is_sure_of_have_no_share() -> None:
    with_limit = make_shares(numpy.asarray([7, 3]), numpy.asarray([0.01, 1.0]), 0.02)
    without_uncertainty = make_shares(numpy.asarray([7]), numpy.zeros(1))
    assert with_limit.features.tolist() == [3]
    assert len(without_uncertainty.features) == 0


def doc_indices_of(suggestions: list[Suggestion]) -> list[int]:
    """The indices of the suggested docs in the pool, in the order of the suggestions."""
    return [suggestion.doc_index for suggestion in suggestions]


@pytest.mark.parametrize("by", UNCERTAINTY_MEASURES)
@pytest.mark.parametrize("per", ["doc", "token"])
def test_each_text_is_suggested_once(unsure: Path, by: str, per: str) -> None:
    """Text 2 is empty, and is not suggested. Texts 0 and 1 have the same words, so only one of them
    is."""
    nlp = load(unsure)
    suggestions = suggest(nlp, make_docs(nlp), n=10, by=by, per=per)
    assert sorted(doc_indices_of(suggestions)) == [0, 3, 4, 5]


@pytest.mark.parametrize("by", UNCERTAINTY_MEASURES)
def test_annotated_texts_are_not_suggested(unsure: Path, by: str) -> None:
    nlp = load(unsure)
    annotated = make_docs(nlp, ["The Red Sox lost", "Who is it"])
    suggestions = suggest(nlp, make_docs(nlp), n=10, by=by, annotated=annotated)
    assert sorted(doc_indices_of(suggestions)) == [0, 5]


@pytest.mark.parametrize("by", UNCERTAINTY_MEASURES)
def test_without_diversity_the_highest_scores_are_suggested(unsure: Path, by: str) -> None:
    nlp = load(unsure)
    score_of = {s.doc_index: s.score for s in suggest(nlp, make_docs(nlp), n=10, by=by, per="doc")}

    two = suggest(nlp, make_docs(nlp), n=2, by=by, per="doc", diverse=False)

    assert doc_indices_of(two) == sorted(score_of, key=lambda i: -score_of[i])[:2]


def test_per_token_sentences_come_before_long_tables(
    unsure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is a little unsure of each of the 12 names of a table, in sum 12 * 0.25 = 3. Of the 3
    names of a sentence it is less sure, in sum 3 * 0.6 = 1.8. A table has 24 tokens and a sentence
    12, and a doc takes as much work as 20 more: 3 / 44 is more than 1.8 / 32. But each name takes a
    decision of the annotator, as much work as 10 tokens: 3 / 164 is less than 1.8 / 62. So it is
    with the last docs: 0.1 / 31 of "Once" is less than 0.24 / 70 of the long one."""
    nlp = load(unsure)
    tables = []
    sentences = []
    for x in "abc":
        # Such as "Teamaa 0 Teamab 1 ...": twelve names and their points.
        names_and_points = [f"Team{x}{y} {i}" for i, y in enumerate("abcdefghijkl")]
        tables.append(" ".join(names_and_points))
        sentences.append(f"when we met Ann{x} and Bob{x} of Ely{x} , it was late")
    docs = make_docs(nlp, [*tables, *sentences, "Once", "Twice " + "and " * 39])
    # By the first letters of a word; others are sure.
    uncertainty_of = {"Te": 0.25, "An": 0.6, "Bo": 0.6, "El": 0.6, "On": 0.1, "Tw": 0.24}

    def measure(ner: Any, posterior: Any) -> Uncertainty:
        """A measure with the uncertainties of `uncertainty_of`. A doc has their sum."""
        of_docs = []
        of_tokens = []
        for doc in docs:
            uncertainties = [uncertainty_of.get(token.text[:2], 0.0) for token in doc]
            of_docs.append(sum(uncertainties))
            of_tokens += uncertainties
        return Uncertainty(numpy.asarray(of_docs), numpy.asarray(of_tokens))

    monkeypatch.setitem(UNCERTAINTY_MEASURES, "cost", measure)
    per_token = suggest(nlp, docs, n=9)
    per_doc = suggest(nlp, docs, n=9, per="doc")

    # Tables are 0 to 2, sentences 3 to 5, the short doc 6 and the long one 7.
    assert doc_indices_of(per_token) == [3, 4, 5, 0, 1, 2, 7, 6]
    assert doc_indices_of(per_doc) == [0, 1, 2, 3, 4, 5, 7, 6]


def test_scores_by_cost_use_the_costs_of_the_user(unsure: Path) -> None:
    """Each mistake costs 3, so scores are three times the scores with the Hamming cost."""
    nlp = load(unsure)
    by_hamming = suggest(nlp, make_docs(nlp), n=9, by="cost")
    score_of = {suggestion.doc_index: suggestion.score for suggestion in by_hamming}
    ner: Any = nlp.get_pipe("ner")

    ner.set_decoding(make_min_cost(cost=lambda tags: 3 - 3 * numpy.eye(len(tags))))

    for suggestion in suggest(nlp, make_docs(nlp), n=9, by="cost"):
        assert suggestion.score == pytest.approx(3 * score_of[suggestion.doc_index], rel=1e-4)


def test_cost_of_a_doc_is_the_sum_of_the_expected_costs_of_its_tokens(unsure: Path) -> None:
    nlp = load(unsure)
    ner: Any = nlp.get_pipe("ner")
    ner.set_decoding(make_min_cost(cost=lambda tags: 3 - 3 * numpy.eye(len(tags))))
    posterior = ner.posterior(make_docs(nlp, POOL[:1]))

    cost_of_docs, cost_of_tokens = by_cost(ner, posterior)

    prob_of_best_tag = posterior.marginals.max(axis=1)
    assert cost_of_tokens == pytest.approx(3 * (1 - prob_of_best_tag), abs=1e-5)
    assert cost_of_tokens.std() > 0
    assert cost_of_docs == pytest.approx([cost_of_tokens.sum()])


def test_a_task_proposes_the_predicted_entities_with_their_confidences(unsure: Path) -> None:
    nlp = load(unsure, confidence={"@misc": "spacy_costner.Confidence.v1"})
    assert any(nlp(text).ents for text in TEXTS)
    for suggestion in suggest(nlp, make_docs(nlp, TEXTS), n=9):
        task = suggestion.task()
        expected = nlp(TEXTS[suggestion.doc_index])
        assert [span[:3] for span in task.spans or ()] == ents(expected)
        probs = [span.extra["score"] for span in task.spans or ()]
        assert probs == pytest.approx([ent._.confidence for ent in expected.ents], abs=1e-4)
        assert task.extra["meta"] == {
            "score": round(suggestion.score, 4),
            "doc": suggestion.doc_index,
            "chosen_by": "suggest",
        }


def test_tasks_have_the_metadata_of_the_docs(unsure: Path) -> None:
    """Long values are left out, and the record of the suggestion replaces earlier records."""
    nlp = load(unsure)
    (doc,) = make_docs(nlp, TEXTS[:1])
    earlier = {"drawn_by": "costner serve", "drawings": 50, "doc": 7}
    doc.user_data |= {"source": "news", "body": "long " * 50, **earlier}
    for (suggestion,) in (suggest(nlp, [doc]), suggest_first([doc])):
        assert suggestion.task().extra["meta"] == {
            "source": "news",
            "score": round(suggestion.score, 4),
            "doc": 0,
            "chosen_by": "suggest",
        }


def test_docs_of_the_pool_do_not_change(unsure: Path) -> None:
    """A preset entity of a doc counts in each call. Predictions of the first call don't: the second
    call would take them for preset entities, whose probability is 1."""
    nlp = load(unsure)
    pool = make_docs(nlp, [f"I like London and Oslo {i}" for i in range(3)])
    pool[0].set_ents([Span(pool[0], 2, 3, "LOC")], default="missing")
    ents_before = [ents(doc) for doc in pool]
    first = suggest(nlp, pool, n=1)
    tasks_before = [suggestion.task() for suggestion in first]

    second = suggest(nlp, pool, n=3)
    again = suggest(nlp, pool, n=3)

    assert [ents(doc) for doc in pool] == ents_before
    assert [suggestion.task() for suggestion in first] == tasks_before
    assert second[0].task() == first[0].task()
    assert [suggestion.task() for suggestion in again] == [s.task() for s in second]
    (with_preset,) = [suggestion for suggestion in second if suggestion.doc_index == 0]
    assert (7, 13, "LOC") in ents(with_preset.doc)


def test_before_there_is_a_model_texts_with_other_frequent_words_come_first() -> None:
    """Text 0 has the frequent words "red", "wine" and "is", and text 2 has other ones. After these
    are chosen, a word that they have counts half, and text 1 has three such words. The words of
    text 3 occur nowhere else."""
    texts = ["red wine is", "wine is red", "old town hall", "qua quo qui", "town hall", "old wine"]
    first = suggest_first(make_docs(spacy.blank("xx"), texts), n=6)
    assert doc_indices_of(first) == [0, 2, 1, 4, 5, 3]
    frequent = 3**0.5 + 2**0.5 + 2**0.5  # "wine" is in three texts, "red" and "is" in two
    assert first[0].score == pytest.approx(frequent) and first[-1].score == 0


def test_first_texts_are_tasks_without_annotation() -> None:
    """A text that is already annotated isn't suggested, and each text is suggested once."""
    docs = make_docs(spacy.blank("xx"))
    first = suggest_first(docs, n=9, annotated=docs[:1])
    assert sorted(doc_indices_of(first)) == [3, 4, 5]
    assert all(suggestion.task().spans is None for suggestion in first)


@pytest.mark.parametrize(
    ("texts", "n", "message"),
    [
        (POOL, 0, "n: expected at least 1, got 0"),
        ([" "], 5, "expected unannotated docs with words"),
    ],
)
def test_first_texts_need_words_and_a_number(texts: list[str], n: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        suggest_first(make_docs(spacy.blank("xx"), texts), n=n)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n: expected at least 1, got 0"),
        ({"by": "luck"}, r"by: expected one of \['cost'.*-confidence'\], got 'luck'"),
        ({"per": "hour"}, r"per: expected one of \['token', 'doc'\], got 'hour'"),
        ({"name": "tagger"}, "expected the name of a cost_sensitive_ner"),
    ],
)
def test_options_that_cannot_be_are_refused(
    unsure: Path, options: dict[str, Any], message: str
) -> None:
    nlp = load(unsure)
    with pytest.raises(ValueError, match=message):
        suggest(nlp, make_docs(nlp), **options)


@pytest.mark.parametrize("texts", [[], ["", " "]], ids=["none", "empty"])
def test_docs_without_words_are_refused(unsure: Path, texts: list[str]) -> None:
    nlp = load(unsure)
    with pytest.raises(ValueError, match="unannotated docs with words, got none"):
        suggest(nlp, make_docs(nlp, texts))


def test_a_pipeline_with_another_component_for_entities_is_refused_with_what_to_do() -> None:
    nlp = spacy.blank("xx")
    nlp.add_pipe("ner")
    with pytest.raises(ValueError, match=r"got \['ner'\], which .*with `distill`"):
        suggest(nlp, make_docs(nlp))


@pytest.mark.parametrize(
    ("factory", "settings"), [("entity_ruler", {}), ("span_ruler", {"annotate_ents": True})]
)
def test_entities_of_a_component_before_ours_are_reported(
    factory: str, settings: dict[str, Any], unsure: Path
) -> None:
    """A component after ours isn't reported. If it were, the warning would be an error in this
    test."""
    patterns: list[dict[str, Any]] = [{"label": "LOC", "pattern": "London"}]
    nlp = load(unsure)
    behind: Any = nlp.add_pipe(factory, "behind", last=True, config=settings)
    behind.add_patterns(patterns)
    suggest(nlp, make_docs(nlp))
    ruler: Any = nlp.add_pipe(factory, "ruler", first=True, config=settings)
    ruler.add_patterns(patterns)
    with pytest.warns(UserWarning, match=r"\['ruler'\] set entities before ner.*exclude="):
        suggest(nlp, make_docs(nlp))


def test_a_component_that_was_not_trained_is_refused() -> None:
    nlp = pipeline()
    with pytest.raises(ValueError, match="ner: expected a trained component"):
        suggest(nlp, make_docs(nlp))


def annotated_docs(nlp: Language) -> list[Doc]:
    """Three docs: one with a character of two UTF-16 code units, which Label Studio counts as two,
    one without entities, and one with two entities."""
    place, nobody, people = make_docs(nlp, ["🙂 in New York", "Nobody here", "Ana met Bo"])
    place.ents = [place.char_span(5, 13, "LOC")]
    nobody.ents = []
    people.ents = [people.char_span(0, 3, "PER"), people.char_span(8, 10, "PER")]
    return [place, nobody, people]


def save_suggestions(docs: list[Doc], folder: Path, form: str) -> Path:
    """Save docs as suggestions in the form of an annotation tool. Returns the file."""
    path = folder / f"out{TASK_FORMS[form].suffix}"
    tasks = [Suggestion(i, 0.5, doc).task() for i, doc in enumerate(docs)]
    save_tasks(path, tasks, form)
    return path


def accept_predictions(path: Path) -> None:
    """Do what people do in Label Studio: make an annotation of each prediction."""
    tasks = json.loads(path.read_text("utf8"))
    accepted = [{"data": task["data"], "annotations": task["predictions"]} for task in tasks]
    path.write_text(json.dumps(accepted))


@pytest.mark.parametrize("form", TASK_FORMS)
def test_files_are_read_back(form: str, tmp_path: Path) -> None:
    nlp = spacy.blank("xx")
    docs = annotated_docs(nlp)
    path = save_suggestions(docs, tmp_path, form)
    text = path.read_text("utf8")
    if form == "label-studio":
        accept_predictions(path)
    info = CorpusInfo()

    read = list(read_docs(nlp, path, info=info))

    assert not info.problems
    for doc, expected in zip(read, docs, strict=True):
        assert doc.text == expected.text
        assert doc.has_annotation("ENT_IOB")
        entities = [(ent.text, ent.label_) for ent in doc.ents]
        assert entities == [(ent.text, ent.label_) for ent in expected.ents]
    # Entities without a confidence are preset: their score is 1.
    assert '"score": 1.0' in text or '"scores": [1.0]' in text


def test_spans_of_the_same_thing_are_results_of_their_own_in_label_studio() -> None:
    """Results need different ids. The id of a span names what it is about."""
    spans = [TaskSpan(0, 3, "PER", {"id": "Q1"}), TaskSpan(4, 7, "PER", {"id": "Q1"})]
    record = TASK_FORMS["label-studio"].to_json(Task("Kim Kim", spans))
    assert [result["id"] for result in record["predictions"][0]["result"]] == ["0", "1"]


def test_predictions_of_label_studio_are_no_annotation(tmp_path: Path) -> None:
    """The smile counts as two characters there, so "New York" begins at 6."""
    nlp = spacy.blank("xx")
    path = save_suggestions(annotated_docs(nlp), tmp_path, "label-studio")
    tasks = json.loads(path.read_text("utf8"))
    assert tasks[0]["predictions"][0]["result"][0]["value"]["start"] == 6
    docs = list(read_docs(nlp, path, info=CorpusInfo()))
    assert not any(doc.has_annotation("ENT_IOB") for doc in docs)


@pytest.fixture
def pool_path(tmp_path: Path) -> Path:
    """A file with the texts of POOL, one on each line."""
    (tmp_path / "pool.txt").write_text("\n".join(POOL))
    return tmp_path / "pool.txt"


def test_the_command_writes_the_docs_that_it_prints(
    unsure: Path, pool_path: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"

    result = run("suggest", unsure, pool_path, "-o", output, "-n", 2, "-f", "doccano", "--json")

    assert result.exit_code == 0, result.output
    written = [json.loads(line)["text"] for line in output.read_text("utf8").splitlines()]
    printed = [doc["text"] for doc in json.loads(result.stdout)["docs"]]
    assert written == printed
    assert len(written) == 2


def test_the_command_suggests_other_docs_than_annotated_ones(
    unsure: Path, pool_path: Path, tmp_path: Path
) -> None:
    """The annotated corpus has two of the four texts of the pool."""
    output = tmp_path / "out.jsonl"
    docs = make_docs(spacy.blank("xx"), ["The Red Sox lost", "Who is it"])
    for doc in docs:
        doc.set_ents([], default="outside")
    DocBin(docs=docs).to_disk(tmp_path / "annotated.spacy")
    annotated = ["--annotated", tmp_path / "annotated.spacy"]

    result = run("suggest", unsure, pool_path, "-o", output, "-n", 9, *annotated)

    assert "2 docs" in result.stdout, result.output
    assert f"Written to {output}" in result.stdout
    assert len(output.read_text("utf8").splitlines()) == 2


@pytest.mark.parametrize(("options", "diverse"), [([], True), (["--no-diverse"], False)])
def test_the_command_can_do_without_diversity(
    options: list[str], diverse: bool, unsure: Path, tmp_path: Path
) -> None:
    """Three of the texts have the same words. Only with diversity does the other text come before
    one of them."""
    texts = ["London and Berlin", "Berlin and London", "London and Berlin and London", "Who is it"]
    pool_path = tmp_path / "pool.txt"
    pool_path.write_text("\n".join(texts))

    result = run("suggest", unsure, pool_path, "-o", tmp_path / "out.jsonl", *options, "--json")

    assert result.exit_code == 0, result.output
    chosen = [doc["text"] for doc in json.loads(result.stdout)["docs"]]
    nlp = load(unsure)
    expected = suggest(nlp, make_docs(nlp, texts), diverse=diverse)
    assert chosen == [texts[place] for place in doc_indices_of(expected)]
    assert (chosen[-1] != "Who is it") is diverse


@pytest.mark.parametrize("form", TASK_FORMS)
def test_the_command_chooses_without_a_model(form: str, pool_path: Path, tmp_path: Path) -> None:
    output = tmp_path / f"first{TASK_FORMS[form].suffix}"
    result = run("suggest", "--start", pool_path, "--lang", "xx", "-n", 2, "-o", output, "-f", form)
    assert result.exit_code == 0, result.output
    docs = list(read_docs(spacy.blank("xx"), output, info=CorpusInfo()))
    assert "2 docs" in result.stdout and len(docs) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--start", "pool.txt", "a-model"], "--start: expected no pipeline, got a-model"),
        (["a-model"], "expected a trained pipeline and docs to choose from, or --start DOCS"),
        ([], "expected a trained pipeline and docs to choose from, or --start DOCS"),
    ],
)
def test_the_command_needs_a_model_or_a_start(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pool.txt").write_text("Ana\n")
    result = run("suggest", *arguments, "-o", "out.jsonl")
    assert result.exit_code == 1 and message in result.stderr


def test_the_command_names_a_pool_with_nothing_to_annotate(
    unsure: Path, pool_path: Path, tmp_path: Path
) -> None:
    """All of its texts are already annotated."""
    output = tmp_path / "out.jsonl"
    result = run("suggest", unsure, pool_path, "-o", output, "--annotated", pool_path)
    assert result.exit_code == 1
    assert f"{pool_path}: expected unannotated docs with words" in result.stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.txt"], "out.txt: expected a name that ends in .jsonl, for prodigy"),
        (["-o", "o.jsonl", "-f", "label-studio"], "expected a name that ends in .json, for label-"),
        (["-o", "o.jsonl", "-f", "brat"], "format: expected one of ['prodigy', 'doccano', 'label-"),
        (["-o", "pool.txt"], "expected a file other than the input"),
    ],
)
def test_the_command_refuses_outputs_that_do_not_fit(
    unsure: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pool.txt").write_text("Ana\n")
    result = run("suggest", unsure, "pool.txt", *arguments)
    assert result.exit_code == 1 and message in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pool.txt"]
