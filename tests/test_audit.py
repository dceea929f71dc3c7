"""Audits: held-out docs stay held out, planted mistakes are found, accepted ones are corrected."""

import json
import random
import re
from collections.abc import Sequence
from itertools import product
from math import log, sqrt
from pathlib import Path
from time import sleep
from typing import Any

import numpy
import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.analysis.auditing import (
    KINDS,
    MISSING_ODDS,
    SMOOTHING,
    AnswerCounts,
    Suspect,
    apply_answers,
    audit,
    cross_fit,
    make_cost,
    rank,
    suspect_to_task,
)
from spacy_costner.analysis.preparation import assign_folds
from spacy_costner.analysis.runs import local_processes
from spacy_costner.cli.audit import audit_page, audit_text
from spacy_costner.decoding import Temperature
from spacy_costner.readers import CorpusError, read_docs, write_tasks
from spacy_costner.tags import Tags

from .support.browser import browser, needs_chromium
from .support.commands import run

CONFIGS = Path(__file__).parent.parent / "configs"
VOCAB = spacy.blank("en").vocab
PEOPLE = ["Ana Lee", "Bo Roth", "Cy Moss", "Di Shaw", "Ed Katz", "Flo Hart", "Gus Park"]
CITIES = ["Oslo", "Lima", "New York", "Rome", "Quito", "San Jose", "Tunis"]

Planted = tuple[int, str, list[Any], list[Any]]
"""A doc, the kind of the mistake, the annotated entities and the right ones."""


def make_config(name: str = "sparse", **overrides: Any) -> Config:
    changes = {"training.max_epochs": 4, **overrides}
    return load_config(CONFIGS / f"{name}.cfg", overrides=changes, interpolate=False)


def entities(doc: Doc) -> list[Any]:
    return [(ent.start, ent.end, ent.label_) for ent in doc.ents]


def change(doc: Doc, ents: Sequence[Any]) -> None:
    doc.set_ents([Span(doc, begin, end, label=label) for begin, end, label in ents])


def make_doc(*parts: Any) -> Doc:
    """A doc of words, and of pairs of words and a label."""
    pairs = [part if isinstance(part, tuple) else (part, "") for part in parts]
    words, tags = " ".join(text for text, _ in pairs).split(), []
    for text, label in pairs:
        n = len(text.split())
        tags += [f"B-{label}"] + [f"I-{label}"] * (n - 1) if label else ["O"] * n
    return Doc(VOCAB, words=words, ents=tags)


def make_docs() -> list[Doc]:
    """49 docs: "Mr Ana Lee went to Oslo by train ." """
    every = [((a, "person"), (b, "city")) for a, b in product(PEOPLE, CITIES)]
    random.Random(0).shuffle(every)
    return [make_doc("Mr", person, "went to", city, "by train .") for person, city in every]


def plant() -> tuple[list[Doc], list[Planted]]:
    """A mistake of each kind, in docs far from each other."""
    docs = make_docs()
    two = next(i for i in range(20, 49) if len(docs[i]) > 9)
    city, other, second = (entities(docs[i])[1] for i in (3, 11, two))
    shorter = (second[0] + 1, *second[1:])
    planted: list[Planted] = [
        (3, "wrong label", [(*city[:2], "person")], [city]),
        (11, "missing entity", [], [other]),
        (two, "wrong boundary", [shorter], [second]),
        (40 if two != 40 else 41, "spurious entity", [(0, 1, "city")], []),
    ]
    for i, _, annotated, right in planted:
        change(docs[i], sorted([*(e for e in entities(docs[i]) if e not in right), *annotated]))
    return docs, planted


@pytest.fixture(scope="module")
def audited() -> tuple[list[Doc], list[Planted], list[Suspect]]:
    docs, planted = plant()
    return docs, planted, audit(make_config(), docs).suspects


def test_planted_mistakes_are_found(audited: Any) -> None:
    """The same in processes of their own, to the last digit. Missing annotation is no mistake."""
    docs, planted, suspects = audited
    assert audit(make_config(), docs, make_executor=local_processes(2)).suspects == suspects
    first = [(s.doc, s.kind, s.annotated, s.suggested) for s in suspects[: len(planted)]]
    assert sorted(first) == sorted(planted)
    assert {kind for _, kind, _, _ in first} == {*KINDS}
    assert all(s.prob_suggested > s.prob_annotated for s in suspects[: len(planted)])
    assert all(s.prob_suggested < s.prob_annotated for s in suspects[len(planted) :])
    scores = [suspect.score for suspect in suspects]
    assert scores == sorted(scores, reverse=True)
    tokens = [(s.doc, token) for s in suspects for token in range(*s.extent)]
    assert len(tokens) == len({*tokens})  # places don't overlap
    label = next(s for s in suspects if s.kind == "wrong label")
    n_same = sum(docs[label.doc][slice(*label.extent)].text in doc.text for doc in docs) - 1
    assert (label.as_annotated, label.as_suggested) == (0, n_same) and n_same > 0
    docs = make_docs()
    (person, city) = docs[7].ents
    docs[7].set_ents([person], missing=[city], default="outside")
    suspects = audit(make_config(), docs, n_folds=3).suspects
    assert not any(s.doc == 7 and s.kind == "missing entity" for s in suspects)


@pytest.mark.parametrize("label", ["city", "${paths.train}"])
def test_entities_over_a_border_and_labels_like_variables(label: str) -> None:
    """An entity over two lines can't be predicted. A label isn't interpolated as a setting."""
    docs = make_docs()
    for doc in docs:
        change(doc, [(*e[:2], label) if e[2] == "city" else e for e in entities(doc)])
    words = ["in", "New", "\n", "York", "by", "train", "."]
    over = Doc(VOCAB, words=words, ents=["O", f"B-{label}", f"I-{label}", f"I-{label}", *"OOO"])
    docs.insert(30, over)
    result = audit(make_config(**{"paths.train": "elsewhere"}), docs, n_folds=3)
    assert result.over_borders == 1
    (suspect,) = (s for s in result.suspects if s.doc == 30 and s.annotated == entities(over))
    assert suspect.prob_annotated == 0 and suspect.annotated == [(1, 4, label)]
    others = [s for s in result.suspects if s.doc != 30]
    assert max(s.prob_annotated for s in others) > 0.9
    assert {e[2] for s in others for e in s.annotated} == {"person", label}
    html = audit_page(result.suspects, docs)
    assert f"{label} <i>can't be predicted</i>" in html
    tasks = [suspect_to_task(suspect, docs) for suspect in result.suspects]
    text = audit_text(result, tasks)
    assert "1 annotated entities can't be predicted" in text
    assert "New York" in text and "New\n" not in text


@pytest.mark.parametrize(("n_docs", "n_folds"), [(2, 2), (7, 3), (49, 5)])
@pytest.mark.parametrize("seed", [None, 1])
def test_folds(n_docs: int, n_folds: int, seed: int | None) -> None:
    folds = assign_folds(n_docs, n_folds, seed)
    sizes = numpy.bincount(folds, minlength=n_folds)
    assert len(folds) == n_docs and sizes.max() - sizes.min() <= 1 and sizes.min() >= 1
    assert seed is not None or (numpy.diff(folds) >= 0).all()


def scores_of(docs: Sequence[Doc], i: int, name: str) -> Any:
    """The scores of a doc's tokens by the model that it was held out from."""
    folds = cross_fit(make_config(name, **{"training.max_epochs": 1}), docs, n_folds=3)
    (fold,) = (fold for fold in folds if i in fold.docs)
    scores, at = fold.dev.posterior.scores, fold.docs.tolist().index(i)
    return numpy.split(scores.emissions, numpy.cumsum(scores.lengths)[:-1])[at]


@pytest.mark.parametrize("name", ["sparse", "sparse_document"])
def test_annotation_of_a_held_out_doc_has_no_effect_on_its_scores(name: str) -> None:
    docs = make_docs()
    before = scores_of(docs, 5, name)
    (_, city) = entities(docs[5])
    change(docs[5], [(*city[:2], "person")])
    numpy.testing.assert_array_equal(scores_of(docs, 5, name), before)
    change(docs[40], [])  # of another fold
    assert not numpy.array_equal(scores_of(docs, 5, name), before)


def test_second_pass_sees_the_annotation_of_other_occurrences_only() -> None:
    cities = [(city, "city") for city in CITIES * 3]
    docs = [make_doc("In", city, "we saw that the sun of", city, "shone .") for city in cities]
    docs += make_docs()[:5]
    before = scores_of(docs, 3, "sparse_document")
    first, second = entities(docs[3])
    change(docs[3], [(*first[:2], "person"), second])
    after = scores_of(docs, 3, "sparse_document")
    numpy.testing.assert_array_equal(after[slice(*first[:2])], before[slice(*first[:2])])
    assert (after[slice(*second[:2])] != before[slice(*second[:2])]).any()


def test_costs_weigh_mistakes(audited: Any) -> None:
    """A mistake that costs nothing comes last, an expensive one first: to miss an entity where
    one is, not to annotate one where none is."""
    docs, _, suspects = audited
    folds = cross_fit(make_config(), docs)
    for s in suspects:
        assert s.kind in KINDS
        score = log(s.prob_suggested + SMOOTHING) - log(s.prob_annotated + SMOOTHING)
        assert s.score == pytest.approx(score if s.annotated else score + log(MISSING_ODDS))

    def cost(true: Any, annotated: Any) -> float:
        if not (true and annotated):
            return 100.0 if true else 0.0
        return float(true[0][2] == annotated[0][2])

    suspects = rank(folds, docs, cost)
    assert suspects[0].kind == "missing entity"
    assert all(s.score <= 0 for s in suspects if s.kind in ("wrong label", "spurious entity"))


def test_temperature_of_a_fold_is_that_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their geometric mean, each within a range."""
    fitted = map(Temperature, (1.0, 4.0, 0.01))
    monkeypatch.setattr(f"{audit.__module__}.fit_temperature", lambda *_, **__: next(fitted))
    folds = cross_fit(make_config(), make_docs(), n_folds=3)
    temperatures = [fold.dev.posterior.temperature.overall for fold in folds]
    assert temperatures == pytest.approx([sqrt(x) for x in (4 * 0.5, 1 * 0.5, 1 * 4)])


def test_cost_of_a_mistake_is_the_sum_over_its_tokens() -> None:
    tags = Tags(["a", "b"], "IOB2")  # O, B-a, I-a, B-b, I-b
    table = numpy.arange(25.0).reshape(5, 5)
    cost = make_cost(table, tags)
    assert cost([(3, 5, "a")], [(4, 5, "b")]) == table[1, 0] + table[2, 3]
    assert cost([], [(3, 5, "b")]) == table[0, 3] + table[0, 4]
    assert cost([(3, 4, "a")], []) == table[1, 0]


def write(suspects: Sequence[Suspect], docs: Sequence[Doc], path: Path) -> list[Any]:
    write_tasks(path, [suspect_to_task(suspect, docs) for suspect in suspects])
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]


def save(lines: Sequence[Any], path: Path) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf8")


def test_accepted_corrections_give_the_right_corpus(audited: Any, tmp_path: Path) -> None:
    _, planted, suspects = audited
    docs, path = plant()[0], tmp_path / "audit.jsonl"
    lines = write(suspects[: len(planted)], docs, path)
    # Other commands read them as a corpus of what is proposed.
    read = [*read_docs(spacy.blank("en"), path)]
    assert [*map(entities, read)] == [entities(make_docs()[s.doc]) for s in suspects[:4]]
    assert apply_answers(docs, path) == AnswerCounts(accepted=0, rejected=0, unanswered=4)
    assert [*map(entities, docs)] == [*map(entities, plant()[0])]
    with pytest.raises(ValueError, match="unanswered: expected leave or accept, got 'all'"):
        apply_answers(docs, path, unanswered="all")
    accepted = apply_answers(docs, path, unanswered="accept")
    assert accepted == AnswerCounts(accepted=4, rejected=0, unanswered=0)
    assert [*map(entities, docs)] == [*map(entities, make_docs())]
    lines[1]["answer"] = "reject"
    save(lines, path)
    docs = plant()[0]
    accepted = apply_answers(docs, path, unanswered="accept")
    assert accepted == AnswerCounts(accepted=3, rejected=1, unanswered=0)
    wrong = [i for i, doc in enumerate(make_docs()) if entities(doc) != entities(docs[i])]
    assert wrong == [lines[1]["doc"]]
    (line,) = (line for line in lines if line["kind"] == "wrong label")
    save([{**line, "answer": "accept", "spans": []}], path)  # edited
    apply_answers(docs := plant()[0], path)
    assert entities(docs[line["doc"]]) == []


def test_long_texts_are_cut_and_white_space_does_not_matter(tmp_path: Path) -> None:
    """Also through other entities, which stay as they are."""
    words = [*["Ana", "Lee"] * 30, "Oslo", "\n", *["Bo", "Roth"] * 30]
    names = [Span(Doc(VOCAB, words=words), i, i + 2, label="person") for i in range(0, 122, 2)]
    doc = names[0].doc
    doc.set_ents(names)
    place = Suspect(0, "wrong label", 1.0, [(60, 61, "person")], [(60, 61, "city")], 0.1, 0.9)
    (line,) = write([place], [doc], tmp_path / "audit.jsonl")
    assert len(line["tokens"]) < 70 < len(doc)
    assert apply_answers([doc], tmp_path / "audit.jsonl", unanswered="accept").accepted == 1
    expected = [(i, i + 2, "person") for i in range(0, 122, 2)]
    expected[30] = (60, 61, "city")
    assert entities(doc) == expected


LINE = {"text": "Mr Bo", "spans": [], "annotated": [], "doc": 0, "start": 0}
BO = {"start": 3, "end": 5, "label": "person"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"start": None}], "line 1: expected a line of an audit, with doc, start and annotated"),
        ([{"doc": 1}], "line 1: doc: expected less than 1, the number of docs, got 1"),
        ([{"text": "Ms Bo"}], "line 1: expected the text of doc 0, 'Mr Bo', got 'Ms Bo'"),
        ([{"start": 1}], "expected the text of doc 0, 'r Bo ', got 'Mr Bo'"),
        ([{"annotated": [BO]}], "annotated: expected an entity of the doc, got 'Bo person'"),
        ([{"spans": [{**BO, "start": 2}]}], "spans: expected whole tokens, got ' Bo' person"),
        (
            [{"spans": [BO]}, {"spans": [{**BO, "label": "city"}]}],
            "line 2: spans: expected entities without overlap, got 'Bo' city and 'Bo' person",
        ),
        ([{"answer": "yes"}], "answer: expected accept, reject, ignore, got 'yes'"),
    ],
)
def test_lines_that_do_not_fit(changes: Any, message: str, tmp_path: Path) -> None:
    """Missing annotation stays missing."""
    doc = make_doc("Mr Bo went home")
    doc.set_ents([], missing=[doc[2:4]], default="outside")
    save([{**LINE, **change} for change in changes], tmp_path / "audit.jsonl")
    with pytest.raises(CorpusError, match=re.escape(message)):
        apply_answers([doc], tmp_path / "audit.jsonl", unanswered="accept")
    save([{**LINE, "spans": [BO]}], tmp_path / "audit.jsonl")
    apply_answers([doc], tmp_path / "audit.jsonl", unanswered="accept")
    assert [token.ent_iob_ for token in doc] == ["O", "B", "", ""]


def test_what_cannot_be_audited() -> None:
    docs, config = make_docs()[:3], make_config()
    for config_, docs_, n_folds, message in (
        (config, docs, 4, "folds: expected at most as many as docs, got 4 folds of 3 docs"),
        (config, docs, 1, "folds: expected at least 2, got 1"),
        (config, [make_doc("so")] * 5, 5, "audit: expected docs with annotated entities, got none"),
        (make_config("cnn"), docs, 3, r"^nlp\.pipeline: expected one component to t"),
    ):
        with pytest.raises(ValueError, match=message):
            audit(config_, docs_, n_folds=n_folds)
    with pytest.raises(ValueError, match=r"fold \d: ValueError: .*no_such_setting"):
        wrong = make_config(**{"nlp.no_such_setting": 1})
        cross_fit(wrong, make_docs(), make_executor=local_processes(2))


def test_page(audited: Any) -> None:
    """All places of a doc are marked."""
    docs, _, suspects = audited
    html = audit_page(suspects[:4], docs, "<train>")
    assert html.count("<li>") == 4 and "&lt;train&gt;" in html
    assert all(f"<b>{kind}</b>" in html for kind in KINDS)
    assert html.count('class="error"') == 6 + 1  # two sides of two, one of the others; the legend
    doc = make_doc(("Bo", "person"), "saw", ("Lima", "person"), "&", "<b>Rome")
    missing = Suspect(0, "missing entity", 0.5, [], [(4, 5, "city")], 0.3, 0.7)
    places = [
        Suspect(0, "wrong label", 1.0, [(2, 3, "person")], [(2, 3, "<i>city")], 0.1, 0.9),
        missing._replace(as_annotated=2, as_suggested=3),
        Suspect(1, "spurious entity", 0.1, [(1, 2, "city")], [], 0.2, 0.8),
    ]
    _, first, second, third = audit_page(places, [doc, make_doc("so", ("it", "city"))]).split(
        "<li>"
    )
    assert "doc 1 &middot; no entity: 80 %" in third
    assert "missing entity</b> &middot; line 2 &middot; doc 0 &middot; no entity: 30 %" in second
    assert "3 as suggested, 2 as annotated" in second and "elsewhere" not in first
    marks = re.findall(r'<mark class="(\w+)">(.*?)<span class="label">(.*?)</span>', first)
    assert marks == [
        ("correct", "Bo", "person"),
        ("error", "Lima", "person <i>10 %</i>"),
        ("correct", "Bo", "person"),
        ("error", "Lima", "&lt;i&gt;city <i>90 %</i>"),
        ("other", "&lt;b&gt;Rome", "city <i>70 %</i>"),
    ]


def test_page_has_the_lines(audited: Any, tmp_path: Path) -> None:
    """Those of the JSONL file, whatever the texts are."""
    doc = make_doc("so", ("</script><b>Rome\u2028</b>", "city"), "&lt;")
    docs, _, suspects = audited
    places = [*suspects[:3], Suspect(len(docs), "spurious entity", 0.1, [(1, 2, "city")], [], 0, 1)]
    html = audit_page(places, [*docs, doc])
    assert html.count("<script") == html.count("</script>") == 2
    (data,) = re.findall(r'(?s)<script type="application/json" id="data">(.*?)</script>', html)
    assert json.loads(data) == write(places, [*docs, doc], tmp_path / "audit.jsonl")
    assert html.count('<fieldset hidden="">') == 4 and html.count('type="radio"') == 8


@needs_chromium
@pytest.mark.slow
def test_answers_are_given_by_keys_and_saved(audited: Any, tmp_path: Path) -> None:
    """The first is accepted, the second accepted and then rejected, the third rejected."""
    docs, planted, suspects = audited
    path, saved = tmp_path / "audit.html", tmp_path / "answers.jsonl"
    path.write_text(audit_page(suspects[: len(planted)], docs), encoding="utf8")
    with browser(tmp_path) as tab:
        tab.open(path, width=420)
        assert tab.run("document.documentElement.scrollWidth") <= 420
        assert tab.run("[...document.querySelectorAll('input')].every(e => e.labels.length)")
        tab.run("document.querySelector('input').focus()")
        for key in (" ", "Tab", " ", "ArrowRight", "Tab", "ArrowRight"):
            tab.press(key)
        assert tab.run("byId('answered').textContent") == "1 accepted, 2 rejected, 1 to do"
        tab.run("byId('save').focus()")
        tab.press("Enter")
        for _ in range(100):
            if saved.exists() and saved.stat().st_size:
                break
            sleep(0.1)
    lines = [json.loads(line) for line in saved.read_text(encoding="utf8").splitlines()]
    assert [line.pop("answer") for line in lines] == ["accept", "reject", "reject", "ignore"]
    assert lines == write(suspects[: len(planted)], docs, tmp_path / "audit.jsonl")
    corrected = plant()[0]
    assert apply_answers(corrected, saved) == AnswerCounts(accepted=1, rejected=2, unanswered=1)
    wrong = [i for i, doc in enumerate(make_docs()) if entities(doc) != entities(corrected[i])]
    assert wrong == sorted(suspect.doc for suspect in suspects[1:4])


def test_command_line(tmp_path: Path) -> None:
    docs, _ = plant()
    corpus, lines, html = (tmp_path / name for name in ("c.spacy", "audit.jsonl", "audit.html"))
    DocBin(docs=docs).to_disk(corpus)
    arguments = ["audit", CONFIGS / "sparse.cfg", corpus, "--nlp.lang", "en"]
    short = ["--folds", 3, "--places", 4, "--training.max_epochs", 4]
    done = run(*arguments, *short, "--output", lines, "--html", html, "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["docs"] == 49 and {*shown["kinds"]} == {*KINDS, "inconsistent"}
    assert shown["suspects"] == [json.loads(line) for line in lines.read_text().splitlines()]
    assert {s["kind"] for s in shown["suspects"]} == {*KINDS} and html.stat().st_size > 1000
    corrected = tmp_path / "corrected.spacy"
    apply = [*arguments, "--apply", lines, "--output", corrected]
    done = run(*apply)
    assert "0 accepted, 0 rejected, 4 unanswered\n" in done.output, done.output
    done = run(*apply, "--unanswered", "accept")
    assert done.exit_code == 0 and "4 accepted" in done.output, done.output
    read = [*DocBin().from_disk(corrected).get_docs(VOCAB)]
    assert [*map(entities, read)] == [*map(entities, make_docs())]
    for wrong, message in (
        (["--apply", lines], "audit: output: expected a corpus with --apply, got none"),
        (["--apply", lines, "--output", corpus], "expected another file than the input"),
        (["--apply", lines, "--output", tmp_path / "c.txt"], "expected a name that ends in .spacy"),
        (["--folds", 50], "got 50 folds of 49 docs"),
    ):
        done = run(*arguments, *wrong)
        assert done.exit_code == 1 and message in done.output, done.output
