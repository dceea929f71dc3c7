"""Tests of `audit`: held-out docs have no effect on their model, planted mistakes are found, and
accepted suggestions are applied."""

import json
import random
import re
from collections.abc import Sequence
from itertools import product
from math import log, sqrt
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

import numpy
import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.annotation.equal_texts import assign_folds
from spacy_costner.cli.audit import audit_page, audit_text
from spacy_costner.decoding import Temperature
from spacy_costner.readers import CorpusError, read_docs, write_tasks
from spacy_costner.tags import Tags
from spacy_costner.workflows.executors import local_processes
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.noisy_labels.auditing import audit, cross_fit
from spacy_costner.workflows.noisy_labels.corrections import (
    AnswerCounts,
    apply_answers,
    suspect_to_task,
)
from spacy_costner.workflows.noisy_labels.suspects import (
    MISSING_ODDS,
    SMOOTHING,
    SUSPECT_KINDS,
    Suspect,
    count_elsewhere,
    make_cost,
    rank,
)

from ...support.browser import Browser, needs_chromium
from ...support.commands import run

CONFIGS = Path(__file__).parents[3] / "configs"
VOCAB = spacy.blank("xx").vocab
PEOPLE = ["Ana Lee", "Bo Roth", "Cy Moss", "Di Shaw", "Ed Katz", "Flo Hart", "Gus Park"]
CITIES = ["Oslo", "Lima", "New York", "Rome", "Quito", "San Jose", "Tunis"]


class Planted(NamedTuple):
    """A mistake that was put into the annotation of a doc. Entities are (first token, end,
    label)."""

    doc: int
    kind: str
    annotated: list[Any]  # entities: first token, end, label
    right: list[Any]


def make_config(name: str = "sparse", **overrides: Any) -> Config:
    """A config of the repository, with few epochs."""
    changes = {"nlp.lang": "xx", "training.max_epochs": 4, **overrides}
    return load_config(CONFIGS / f"{name}.cfg", overrides=changes, interpolate=False)


def entities_of(doc: Doc) -> list[Any]:
    """The entities of a doc: the first token, the end and the label of each."""
    return [(ent.start, ent.end, ent.label_) for ent in doc.ents]


def all_entities(docs: Sequence[Doc]) -> list[list[Any]]:
    """The entities of each doc: see `entities_of`."""
    return [entities_of(doc) for doc in docs]


def set_entities(doc: Doc, entities: Sequence[Any]) -> None:
    """Replace the entities of a doc by others: the first token, the end and the label of each."""
    doc.set_ents([Span(doc, begin, end, label=label) for begin, end, label in entities])


def make_doc(*parts: Any) -> Doc:
    """Make a doc of parts. A part is a text outside of entities, or a pair of the text of an entity
    and its label."""
    words = []
    tags = []
    for part in parts:
        text, label = part if isinstance(part, tuple) else (part, "")
        words_of_part = text.split()
        words += words_of_part
        if label:
            tags += [f"B-{label}"] + [f"I-{label}"] * (len(words_of_part) - 1)
        else:
            tags += ["O"] * len(words_of_part)
    return Doc(VOCAB, words=words, ents=tags)


def right_docs() -> list[Doc]:
    """49 docs without mistakes, such as "Mr Ana Lee went to Oslo by train .": each of 7 people goes
    to each of 7 cities."""
    pairs = [((name, "person"), (city, "city")) for name, city in product(PEOPLE, CITIES)]
    random.Random(0).shuffle(pairs)
    return [make_doc("Mr", person, "went to", city, "by train .") for person, city in pairs]


def docs_with_mistakes() -> tuple[list[Doc], list[Planted]]:
    """The docs of `right_docs` with one mistake of each kind, in docs far from each other. Returns
    the docs and the mistakes."""
    docs = right_docs()
    # A city of two words, whose first word is left out: the doc has one token more than others.
    long_doc = next(i for i in range(20, 49) if len(docs[i]) > 9)
    city_of_3 = entities_of(docs[3])[1]
    city_of_11 = entities_of(docs[11])[1]
    long_city = entities_of(docs[long_doc])[1]

    as_person = (city_of_3[0], city_of_3[1], "person")
    without_first_word = (long_city[0] + 1, long_city[1], "city")
    doc_of_mr = 40 if long_doc != 40 else 41
    mistakes = [
        Planted(3, "wrong label", [as_person], [city_of_3]),
        Planted(11, "missing entity", [], [city_of_11]),
        Planted(long_doc, "wrong boundary", [without_first_word], [long_city]),
        Planted(doc_of_mr, "spurious entity", [(0, 1, "city")], []),
    ]

    for mistake in mistakes:
        doc = docs[mistake.doc]
        untouched = [entity for entity in entities_of(doc) if entity not in mistake.right]
        set_entities(doc, sorted([*untouched, *mistake.annotated]))
    return docs, mistakes


class Audited(NamedTuple):
    """Docs with planted mistakes, and the result of their audit."""

    docs: list[Doc]
    mistakes: list[Planted]
    suspects: list[Suspect]  # the most suspicious first

    @property
    def top(self) -> list[Suspect]:
        """The most probable suspects: as many as there are planted mistakes."""
        return self.suspects[: len(self.mistakes)]


@pytest.fixture(scope="module")
def audited() -> Audited:
    """The docs of `docs_with_mistakes`, and the result of their audit."""
    docs, mistakes = docs_with_mistakes()
    return Audited(docs, mistakes, audit(make_config(), docs).suspects)


@pytest.mark.slow
def test_planted_mistakes_are_the_first_suspects(audited: Audited) -> None:
    suspected = [(s.doc, s.kind, s.annotated, s.suggested) for s in audited.top]
    assert sorted(suspected) == sorted(audited.mistakes)
    assert {suspect.kind for suspect in audited.top} == {*SUSPECT_KINDS}


def test_suspects_are_sorted_and_only_mistakes_are_less_probable_than_what_is_suggested(
    audited: Audited,
) -> None:
    scores = [suspect.score for suspect in audited.suspects]
    assert scores == sorted(scores, reverse=True)
    for suspect in audited.top:
        assert suspect.prob_suggested > suspect.prob_annotated
    for suspect in audited.suspects[len(audited.mistakes) :]:
        assert suspect.prob_suggested < suspect.prob_annotated


def test_places_of_suspects_do_not_overlap(audited: Audited) -> None:
    tokens = []
    for suspect in audited.suspects:
        for token in range(*suspect.span):
            tokens.append((suspect.doc, token))
    assert len(tokens) == len(set(tokens))


def test_a_suspect_counts_the_same_words_elsewhere(audited: Audited) -> None:
    """A city is annotated as a person in one doc, and as a city in the others."""
    (suspect,) = (suspect for suspect in audited.top if suspect.kind == "wrong label")
    city = audited.docs[suspect.doc][slice(*suspect.span)].text
    n_elsewhere = sum(city in doc.text for doc in audited.docs) - 1
    assert n_elsewhere > 0
    assert suspect.as_annotated == 0
    assert suspect.as_suggested == n_elsewhere


def test_words_without_annotation_are_not_counted_as_annotated_elsewhere() -> None:
    """The suggestion is that Paris is no entity. Elsewhere it is one once, and once it is none. In
    three docs it isn't annotated, and in one only its second word is."""
    docs = [
        make_doc("He saw", ("Paris Plage", "city"), "."),
        make_doc("We love", ("Paris Plage", "city"), "."),
        make_doc("The bar Paris Plage ."),
    ]
    for n_missing in (2, 2, 2, 1):
        doc = make_doc("In Paris Plage today .")
        doc.set_ents([], missing=[doc[1 : 1 + n_missing]], default="outside")
        docs.append(doc)
    suspect = Suspect(0, "spurious entity", 1.0, [(2, 4, "city")], [], 0.1, 0.8)

    (counted,) = count_elsewhere([suspect], docs)

    assert (counted.as_annotated, counted.as_suggested) == (1, 1)
    assert not counted.is_inconsistent


def test_white_space_at_the_ends_of_entities_is_not_counted() -> None:
    """The entities of suspects don't have it either. Elsewhere, Paris is a person with a line break
    and once without, and a city with two spaces in front."""
    labels = ("person", "person", "person", "city")
    docs: list[Doc] = []
    for label, (begin, end) in zip(labels, [(1, 3), (1, 3), (1, 2), (0, 2)]):
        doc = Doc(spacy.blank("xx").vocab, words=["  ", "Paris", "\n", "left"])
        doc.set_ents([Span(doc, begin, end, label)])
        docs.append(doc)
    docs[3].set_ents([*docs[3].ents, Span(docs[3], 2, 3, "city")])  # only a line break
    suspect = Suspect(0, "wrong label", 1.0, [(1, 2, "person")], [(1, 2, "city")], 0.1, 0.8)

    (counted,) = count_elsewhere([suspect], docs)

    assert (counted.as_annotated, counted.as_suggested) == (2, 1)
    assert not counted.is_inconsistent


@pytest.mark.slow
def test_processes_find_the_same_to_the_last_digit(audited: Audited) -> None:
    result = audit(make_config(), audited.docs, make_executor=local_processes(2))
    assert result.suspects == audited.suspects


def test_an_entity_is_not_missing_where_nothing_is_annotated() -> None:
    """The city of a doc becomes missing annotation. With O in its place, the doc would be a
    suspect, as other docs have a city there."""
    docs = right_docs()
    doc_index = 7  # any doc would do
    person, city = docs[doc_index].ents
    docs[doc_index].set_ents([person], missing=[city], default="outside")

    suspects = audit(make_config(), docs, n_folds=3).suspects

    kinds_of_doc = [suspect.kind for suspect in suspects if suspect.doc == doc_index]
    assert "missing entity" not in kinds_of_doc


@pytest.mark.slow
@pytest.mark.parametrize("label", ["city", "${paths.train}"])
def test_entities_over_a_border_and_labels_like_variables(label: str) -> None:
    """An entity that is on two lines can't be predicted. A label that looks like a variable of the
    config is not replaced by the value of the variable."""
    docs = right_docs()
    for doc in docs:
        (person, (begin, end, _)) = entities_of(doc)
        set_entities(doc, [person, (begin, end, label)])
    words = ["in", "New", "\n", "York", "by", "train", "."]
    tags = ["O", f"B-{label}", f"I-{label}", f"I-{label}", "O", "O", "O"]
    docs.insert(30, Doc(VOCAB, words=words, ents=tags))

    result = audit(make_config(**{"paths.train": "elsewhere"}), docs, n_folds=3)

    over_border = [(1, 4, label)]
    (suspect,) = (s for s in result.suspects if s.doc == 30 and s.annotated == over_border)
    other_suspects = [s for s in result.suspects if s.doc != 30]
    assert result.over_borders == 1
    assert suspect.prob_annotated == 0
    assert max(s.prob_annotated for s in other_suspects) > 0.9
    labels = {entity[2] for s in other_suspects for entity in s.annotated}
    assert labels == {"person", label}
    page = audit_page(result.suspects, docs)
    assert f"{label} <i>can't be predicted</i>" in page
    text = audit_text(result, [suspect_to_task(suspect, docs) for suspect in result.suspects])
    assert "1 annotated entities can't be predicted" in text
    assert "New York" in text
    assert "New\n" not in text


@pytest.mark.parametrize(("n_docs", "n_folds"), [(2, 2), (7, 3), (49, 5)])
@pytest.mark.parametrize("seed", [None, 1])
def test_folds_have_the_same_size(n_docs: int, n_folds: int, seed: int | None) -> None:
    """The sizes differ by at most one doc, and no fold is empty. Without a seed, docs stay in
    order."""
    folds = assign_folds(numpy.arange(n_docs), n_folds, seed)

    sizes = numpy.bincount(folds, minlength=n_folds)
    assert len(folds) == n_docs
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1
    if seed is None:
        assert (numpy.diff(folds) >= 0).all()


def held_out_scores(docs: Sequence[Doc], doc_index: int, config_name: str) -> Any:
    """The scores of the tokens of a doc, by the model that was trained without it."""
    config = make_config(config_name, **{"training.max_epochs": 1})
    folds = cross_fit(config, docs, n_folds=3)
    (fold,) = (fold for fold in folds if doc_index in fold.docs)
    scores = fold.dev.posterior.scores
    scores_of_docs = numpy.split(scores.emissions, numpy.cumsum(scores.lengths)[:-1])
    return scores_of_docs[fold.docs.tolist().index(doc_index)]


@pytest.mark.slow
@pytest.mark.parametrize("config_name", ["sparse", "sparse_document"])
def test_annotation_of_a_held_out_doc_has_no_effect_on_its_scores(config_name: str) -> None:
    """The annotation of a doc of another fold has an effect. The held-out doc is in the first of
    three folds, the other one is not."""
    docs = right_docs()
    held_out = 5
    of_another_fold = 40
    before = held_out_scores(docs, held_out, config_name)

    (_, (begin, end, _)) = entities_of(docs[held_out])
    set_entities(docs[held_out], [(begin, end, "person")])
    numpy.testing.assert_array_equal(held_out_scores(docs, held_out, config_name), before)

    set_entities(docs[of_another_fold], [])
    assert not numpy.array_equal(held_out_scores(docs, held_out, config_name), before)


@pytest.mark.slow
def test_second_pass_sees_the_annotation_of_other_occurrences_only() -> None:
    """A city occurs twice in a doc. When the annotation of the first occurrence is changed to a
    person, the scores of the second one change, and those of the first don't."""
    docs = []
    n_docs_of_city = 3  # so that each city is in other folds, too
    for name in CITIES * n_docs_of_city:
        city = (name, "city")
        docs.append(make_doc("In", city, "we saw that the sun of", city, "shone ."))
    docs += right_docs()[:5]  # these have persons, so that the model has the label
    changed_doc = CITIES.index("Rome")
    before = held_out_scores(docs, changed_doc, "sparse_document")
    (first_begin, first_end, _), second = entities_of(docs[changed_doc])
    second_begin, second_end, _ = second

    set_entities(docs[changed_doc], [(first_begin, first_end, "person"), second])
    after = held_out_scores(docs, changed_doc, "sparse_document")

    first_tokens = slice(first_begin, first_end)
    second_tokens = slice(second_begin, second_end)
    numpy.testing.assert_array_equal(after[first_tokens], before[first_tokens])
    assert (after[second_tokens] != before[second_tokens]).any()


def test_score_of_a_suspect_is_the_log_of_the_odds(audited: Audited) -> None:
    """The odds are those of the suggestion against the annotation. For a missing entity they are
    multiplied by MISSING_ODDS, as annotators overlook more than they make up."""
    for suspect in audited.suspects:
        odds = log(suspect.prob_suggested + SMOOTHING) - log(suspect.prob_annotated + SMOOTHING)
        if not suspect.annotated:
            odds += log(MISSING_ODDS)
        assert suspect.score == pytest.approx(odds)
        assert suspect.kind in SUSPECT_KINDS


def test_mistakes_that_cost_nothing_come_last_and_expensive_ones_first(audited: Audited) -> None:
    """In this test, to overlook an entity costs 100; to annotate one where there is none, or with
    the wrong label, costs nothing."""

    def cost(right: Any, annotated: Any) -> float:
        """The cost of annotating these entities in place of the right ones."""
        if not annotated:
            return 100.0 if right else 0.0
        if not right:
            return 0.0
        return float(right[0][2] == annotated[0][2])

    suspects = rank(cross_fit(make_config(), audited.docs), audited.docs, cost)

    assert suspects[0].kind == "missing entity"
    free = [s for s in suspects if s.kind in ("wrong label", "spurious entity")]
    assert all(suspect.score <= 0 for suspect in free)


def test_temperature_of_a_fold_is_that_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the geometric mean of the temperatures of the other two folds. The temperature 0.01
    counts as 0.5, the lowest that is allowed."""
    fitted = iter([Temperature(1.0), Temperature(4.0), Temperature(0.01)])
    monkeypatch.setattr(f"{audit.__module__}.fit_temperature", lambda *_, **__: next(fitted))

    folds = cross_fit(make_config(), right_docs(), n_folds=3)

    temperatures = [fold.dev.posterior.temperature.overall for fold in folds]
    assert temperatures == pytest.approx([sqrt(4 * 0.5), sqrt(1 * 0.5), sqrt(1 * 4)])


def test_cost_of_a_mistake_is_the_sum_over_its_tokens() -> None:
    tags = Tags(["a", "b"], "IOB2")  # O, B-a, I-a, B-b, I-b
    table = numpy.arange(25.0).reshape(5, 5)
    cost = make_cost(table, tags)

    wrong_boundary = cost([(3, 5, "a")], [(4, 5, "b")])
    spurious = cost([], [(3, 5, "b")])
    missing = cost([(3, 4, "a")], [])

    assert wrong_boundary == table[1, 0] + table[2, 3]  # B-a as O, I-a as B-b
    assert spurious == table[0, 3] + table[0, 4]  # O as B-b, O as I-b
    assert missing == table[1, 0]  # B-a as O


def write_lines(suspects: Sequence[Suspect], docs: Sequence[Doc], path: Path) -> list[Any]:
    """Write the file of an audit with these suspects. Returns its lines, read as JSON."""
    write_tasks(path, [suspect_to_task(suspect, docs) for suspect in suspects])
    return read_json_lines(path)


def read_json_lines(path: Path) -> list[Any]:
    """Read a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]


def save_lines(lines: Sequence[Any], path: Path) -> None:
    """Write values to a JSONL file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf8")


def test_lines_of_an_audit_are_a_corpus_of_what_is_suggested(
    audited: Audited, tmp_path: Path
) -> None:
    write_lines(audited.top, audited.docs, tmp_path / "audit.jsonl")
    read = read_docs(spacy.blank("xx"), tmp_path / "audit.jsonl")
    right = right_docs()
    assert all_entities(list(read)) == [entities_of(right[s.doc]) for s in audited.top]


def test_accepted_suggestions_give_the_right_corpus(audited: Audited, tmp_path: Path) -> None:
    docs = docs_with_mistakes()[0]
    write_lines(audited.top, docs, tmp_path / "audit.jsonl")

    answers = apply_answers(docs, tmp_path / "audit.jsonl", unanswered="accept")

    assert answers == AnswerCounts(accepted=4, rejected=0, unanswered=0)
    assert all_entities(docs) == all_entities(right_docs())


def test_unanswered_suggestions_leave_the_corpus_as_it_is(audited: Audited, tmp_path: Path) -> None:
    docs = docs_with_mistakes()[0]
    write_lines(audited.top, docs, tmp_path / "audit.jsonl")

    answers = apply_answers(docs, tmp_path / "audit.jsonl")

    assert answers == AnswerCounts(accepted=0, rejected=0, unanswered=4)
    assert all_entities(docs) == all_entities(docs_with_mistakes()[0])
    with pytest.raises(ValueError, match="unanswered: expected leave or accept, got 'all'"):
        apply_answers(docs, tmp_path / "audit.jsonl", unanswered="all")


def test_a_rejected_suggestion_leaves_its_doc_as_it_is(audited: Audited, tmp_path: Path) -> None:
    docs = docs_with_mistakes()[0]
    lines = write_lines(audited.top, docs, tmp_path / "audit.jsonl")
    lines[1]["answer"] = "reject"
    save_lines(lines, tmp_path / "audit.jsonl")

    answers = apply_answers(docs, tmp_path / "audit.jsonl", unanswered="accept")

    assert answers == AnswerCounts(accepted=3, rejected=1, unanswered=0)
    assert docs_with_other_entities(docs) == [lines[1]["doc"]]


def docs_with_other_entities(docs: Sequence[Doc]) -> list[int]:
    """The indices of the docs whose entities differ from those of `right_docs`."""
    pairs = enumerate(zip(docs, right_docs(), strict=True))
    return [i for i, (doc, right) in pairs if entities_of(doc) != entities_of(right)]


def test_an_edited_suggestion_is_applied_as_edited(audited: Audited, tmp_path: Path) -> None:
    """Somebody has removed all spans of the suggestion before accepting it, so the doc has no
    entities afterwards."""
    docs = docs_with_mistakes()[0]
    lines = write_lines(audited.top, docs, tmp_path / "audit.jsonl")
    (line,) = (line for line in lines if line["kind"] == "wrong label")
    save_lines([{**line, "answer": "accept", "spans": []}], tmp_path / "audit.jsonl")

    apply_answers(docs, tmp_path / "audit.jsonl")

    assert entities_of(docs[line["doc"]]) == []


def test_long_texts_are_cut_and_white_space_does_not_matter(tmp_path: Path) -> None:
    """The doc has 122 tokens: 61 people of two tokens each. The suspect is in the 31st one, "Oslo"
    and a line break, which are the tokens 60 and 61. The shown part cuts through other people at
    both ends; these stay as they are."""
    words = [*["Ana", "Lee"] * 30, "Oslo", "\n", *["Bo", "Roth"] * 30]
    doc = Doc(VOCAB, words=words)
    people = [(i, i + 2, "person") for i in range(0, 122, 2)]
    set_entities(doc, people)
    # Doc, kind, score, what is annotated, what is suggested, and the probabilities of both
    suspect = Suspect(0, "wrong label", 1.0, [(60, 61, "person")], [(60, 61, "city")], 0.1, 0.9)

    (line,) = write_lines([suspect], [doc], tmp_path / "audit.jsonl")
    answers = apply_answers([doc], tmp_path / "audit.jsonl", unanswered="accept")

    assert len(line["tokens"]) < 70 < len(doc)
    assert answers.accepted == 1
    assert entities_of(doc) == [*people[:30], (60, 61, "city"), *people[31:]]


LINE = {"text": "Mr Bo", "spans": [], "annotated": [], "doc": 0, "start": 0}
"""A line of an audit of the doc "Mr Bo went home", in which nothing is annotated."""
BO = {"start": 3, "end": 5, "label": "person"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"start": None}], "line 1: expected a line of an audit, with doc, start and annotated"),
        ([{"doc": 1}], "line 1: doc: expected a number below 1, the number of docs, got 1"),
        ([{"text": "Ms Bo"}], "line 1: expected the text of doc 0, 'Mr Bo', got 'Ms Bo'"),
        ([{"start": 1}], "expected the text of doc 0, 'r Bo ', got 'Mr Bo'"),
        ([{"annotated": [BO]}], "annotated: expected an entity of the doc, got 'Bo person'"),
        ([{"spans": [{**BO, "start": 2}]}], "spans: expected whole tokens, got ' Bo' person"),
        (
            [{"spans": [BO]}, {"spans": [{**BO, "label": "city"}]}],
            "line 2: spans: expected entities that don't overlap, got 'Bo' city and 'Bo' person",
        ),
        ([{"answer": "yes"}], "answer: expected accept, reject, ignore, got 'yes'"),
    ],
)
def test_lines_that_do_not_fit_the_docs_are_refused(
    changes: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    """Each item of `changes` is a line of the file: LINE with these changes."""
    doc = make_doc("Mr Bo went home")
    save_lines([{**LINE, **change} for change in changes], tmp_path / "audit.jsonl")
    with pytest.raises(CorpusError, match=re.escape(message)):
        apply_answers([doc], tmp_path / "audit.jsonl", unanswered="accept")


def test_missing_annotation_stays_missing_when_an_answer_is_applied(tmp_path: Path) -> None:
    """The last two tokens have no annotation. The answer makes "Bo" an entity."""
    doc = make_doc("Mr Bo went home")
    doc.set_ents([], missing=[doc[2:4]], default="outside")
    save_lines([{**LINE, "spans": [BO]}], tmp_path / "audit.jsonl")

    apply_answers([doc], tmp_path / "audit.jsonl", unanswered="accept")

    assert [token.ent_iob_ for token in doc] == ["O", "B", "", ""]


@pytest.mark.parametrize(
    ("config_name", "docs", "n_folds", "message"),
    [
        ("sparse", right_docs()[:3], 4, "got 4 folds of 3 texts"),
        ("sparse", right_docs()[:3], 1, "folds: expected at least 2, got 1"),
        ("sparse", [make_doc("so")] * 5, 5, "audit: expected docs with annotated entities, got no"),
        ("cnn", right_docs()[:3], 3, r"^nlp\.pipeline: expected one component to t"),
    ],
    ids=["more folds than docs", "one fold", "no entities", "not linear"],
)
def test_what_cannot_be_audited_is_refused(
    config_name: str, docs: list[Doc], n_folds: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        audit(make_config(config_name), docs, n_folds=n_folds)


def test_an_error_in_a_process_names_its_fold() -> None:
    config = make_config(**{"nlp.no_such_setting": 1})
    with pytest.raises(ValueError, match=r"fold \d: ValueError: .*no_such_setting"):
        cross_fit(config, right_docs(), make_executor=local_processes(2))


def test_page_lists_the_suspects(audited: Audited) -> None:
    """There is one for each planted mistake. The name of the corpus, "<train>", is escaped."""
    page = audit_page(audited.top, audited.docs, "<train>")
    assert page.count("<li>") == 4
    assert "&lt;train&gt;" in page
    for kind in SUSPECT_KINDS:
        assert f"<b>{kind}</b>" in page
    # Wrong label and wrong boundary are marked as annotated and as suggested, a missing and a
    # spurious entity once; and there is the legend.
    assert page.count('class="error"') == 2 * 2 + 2 + 1


def test_page_says_of_a_suspect_where_it_is_and_how_probable() -> None:
    """The first suspect is spurious, so its suggestion, of 80 %, is no entity. The second one is
    missing, so its annotation, of 30 %, is none. It is in line 2 of the file of the audit. Only the
    second one has the same words elsewhere."""
    docs = [make_doc(("Bo", "person"), "saw Lima & Rome"), make_doc("so", ("it", "city"))]
    missing = Suspect(0, "missing entity", 0.5, [], [(4, 5, "city")], 0.3, 0.7)
    missing = missing._replace(as_annotated=2, as_suggested=3)
    spurious = Suspect(1, "spurious entity", 0.1, [(1, 2, "city")], [], 0.2, 0.8)

    _, text_of_spurious, text_of_missing = audit_page([spurious, missing], docs).split("<li>")

    assert "missing entity</b> &middot; line 2 &middot; doc 0" in text_of_missing
    assert "no entity: 30 %" in text_of_missing
    assert "3 as suggested, 2 as annotated" in text_of_missing
    assert "doc 1 &middot; no entity: 80 %" in text_of_spurious
    assert "elsewhere" not in text_of_spurious


def test_page_marks_all_places_of_a_doc() -> None:
    """The doc is shown first as annotated, then as suggested. Correct entities, the suspect, and
    other suspects have different marks."""
    doc = make_doc(("Bo", "person"), "saw", ("Lima", "person"), "&", "<b>Rome")
    suspects = [
        Suspect(0, "wrong label", 1.0, [(2, 3, "person")], [(2, 3, "<i>city")], 0.1, 0.9),
        Suspect(0, "missing entity", 0.5, [], [(4, 5, "city")], 0.3, 0.7),
    ]

    _, text_of_first, _ = audit_page(suspects, [doc]).split("<li>")

    mark = r'<mark class="(\w+)">(.*?)<span class="label">(.*?)</span>'
    assert re.findall(mark, text_of_first) == [
        ("correct", "Bo", "person"),
        ("error", "Lima", "person <i>10 %</i>"),
        ("correct", "Bo", "person"),
        ("error", "Lima", "&lt;i&gt;city <i>90 %</i>"),
        ("other", "&lt;b&gt;Rome", "city <i>70 %</i>"),
    ]


def test_page_has_the_lines_of_the_file(audited: Audited, tmp_path: Path) -> None:
    """The lines are data of a script in the page. Markup in a text doesn't end the script."""
    doc = make_doc("so", ("</script><b>Rome\u2028</b>", "city"), "&lt;")
    docs = [*audited.docs, doc]
    of_doc = Suspect(len(docs) - 1, "spurious entity", 0.1, [(1, 2, "city")], [], 0, 1)
    suspects = [*audited.suspects[:3], of_doc]

    page = audit_page(suspects, docs)

    assert page.count("<script") == page.count("</script>") == 2
    (data,) = re.findall(r'(?s)<script type="application/json" id="data">(.*?)</script>', page)
    assert json.loads(data) == write_lines(suspects, docs, tmp_path / "audit.jsonl")
    assert page.count('<fieldset hidden="">') == 4  # for each suspect: accept or reject
    assert page.count('type="radio"') == 4 * 2


@needs_chromium
@pytest.mark.slow
def test_answers_are_given_by_keys_and_saved(
    audited: Audited, tab: Browser, tmp_path: Path
) -> None:
    """Keys accept the first suspect, accept and then reject the second one, and reject the third
    one."""
    path = tmp_path / "audit.html"
    path.write_text(audit_page(audited.top, audited.docs), encoding="utf8")
    saved = tmp_path / "answers.jsonl"

    tab.open(path, width=420)
    assert tab.run("document.documentElement.scrollWidth") <= 420
    assert tab.run("[...document.querySelectorAll('input')].every(e => e.labels.length)")
    tab.run("document.querySelector('input').focus()")
    # A suspect has two radio buttons: accept, then reject. Space chooses the first one, an
    # arrow the next one, and Tab goes on to the next suspect.
    for key in (" ", "Tab", " ", "ArrowRight", "Tab", "ArrowRight"):
        tab.press(key)
    assert tab.run("byId('answered').textContent") == "1 accepted, 2 rejected, 1 to do"
    tab.run("byId('save').focus()")
    tab.press("Enter")
    for _ in range(100):  # until the browser has saved it
        if saved.exists() and saved.stat().st_size:
            break
        sleep(0.1)

    lines = read_json_lines(saved)
    answers = [line.pop("answer") for line in lines]
    assert answers == ["accept", "reject", "reject", "ignore"]
    assert lines == write_lines(audited.top, audited.docs, tmp_path / "audit.jsonl")
    # The answers correct the doc of the suspect that was accepted. The docs of the others still
    # have their mistakes.
    docs, _ = docs_with_mistakes()
    assert apply_answers(docs, saved) == AnswerCounts(accepted=1, rejected=2, unanswered=1)
    assert docs_with_other_entities(docs) == sorted(suspect.doc for suspect in audited.top[1:])


AUDIT = ["audit", CONFIGS / "sparse.cfg"]
SHORT = ["--nlp.lang", "xx", "--folds", 3, "--places", 4, "--training.max_epochs", 4]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file with the docs of `docs_with_mistakes`."""
    DocBin(docs=docs_with_mistakes()[0]).to_disk(tmp_path / "corpus.spacy")
    return tmp_path / "corpus.spacy"


def test_command_writes_suspects_as_lines_and_a_page(corpus: Path, tmp_path: Path) -> None:
    lines = tmp_path / "audit.jsonl"
    page = tmp_path / "audit.html"

    done = run(*AUDIT, corpus, *SHORT, "--output", lines, "--html", page, "--json")

    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["docs"] == 49
    # "inconsistent" counts suspects of any kind whose words are annotated elsewhere as suggested
    # more often than as here.
    assert {*result["kinds"]} == {*SUSPECT_KINDS, "inconsistent"}
    assert result["suspects"] == read_json_lines(lines)
    assert {suspect["kind"] for suspect in result["suspects"]} == {*SUSPECT_KINDS}
    assert page.stat().st_size > 1000


def test_the_command_takes_the_config_of_a_pipeline(corpus: Path, tmp_path: Path) -> None:
    """Of its folder, or of the output folder of `fit`. A folder without a config is refused, and
    a pipeline in it is named."""
    make_config().to_disk(tmp_path / "config.cfg")
    fit(tmp_path / "config.cfg", tmp_path / "out", train_path=corpus)
    lines = tmp_path / "audit.jsonl"
    of_pipeline = ["audit", tmp_path / "out" / "model-best", corpus, "--folds", 2]
    done = run(*of_pipeline, "--places", 4, "--output", lines)
    assert done.exit_code == 0, done.output
    assert len(read_json_lines(lines)) == 4

    (tmp_path / "out" / "model-last").mkdir()
    refused = run("audit", tmp_path / "out", corpus)
    assert refused.exit_code == 1
    expected = f"{tmp_path / 'out'}: expected a config, got a folder without one: did you mean "
    assert f"{expected}{tmp_path / 'out' / 'model-best'}?" in refused.output


def test_only_probable_mistakes_are_printed() -> None:
    """The others are in the file, though, and keep their places there."""
    docs = right_docs()
    audited = audit(make_config(), docs, n_folds=2)
    assert audited.suspects
    tasks = [suspect_to_task(suspect, docs) for suspect in audited.suspects]
    assert not any(suspect.is_probable for suspect in audited.suspects)
    text = audit_text(audited, tasks)
    assert text.endswith("\nno alternative is more probable than the annotation")

    # An improbable suspect may stand before a probable one if mistakes have costs.
    second = audited.suspects[1]._replace(prob_annotated=0.1, prob_suggested=0.9)
    audited = audited._replace(suspects=[audited.suspects[0], second])
    (line,) = audit_text(audited, tasks).split("\n\n")[-1].splitlines()
    assert "0.10 -> 0.90" in line
    assert f"doc {second.doc} " in line


def test_command_applies_answers_to_a_copy_of_the_corpus(
    audited: Audited, corpus: Path, tmp_path: Path
) -> None:
    """The four suspects are the four planted mistakes: if all are accepted, the copy is right. The
    corpus itself stays as it is."""
    write_lines(audited.top, audited.docs, tmp_path / "audit.jsonl")
    corrected = tmp_path / "corrected.spacy"
    apply = [*AUDIT, corpus, "--nlp.lang", "xx", "--apply", tmp_path / "audit.jsonl"]
    apply += ["--output", corrected]

    unanswered = run(*apply)
    accepted = run(*apply, "--unanswered", "accept")

    assert unanswered.exit_code == 0
    assert "0 accepted, 0 rejected, 4 unanswered\n" in unanswered.output, unanswered.output
    assert accepted.exit_code == 0
    assert "4 accepted" in accepted.output, accepted.output
    docs = list(DocBin().from_disk(corrected).get_docs(VOCAB))
    assert all_entities(docs) == all_entities(right_docs())
    docs_of_corpus = list(DocBin().from_disk(corpus).get_docs(VOCAB))
    assert all_entities(docs_of_corpus) == all_entities(audited.docs)


def test_corrected_corpus_has_the_scores_and_metadata_of_the_corpus(tmp_path: Path) -> None:
    """Of entities that stay as they are. `distill --min-confidence` and `--doc-id` need them."""
    bo = {"start": 3, "end": 5, "label": "PER", "score": 0.9}
    oslo = {"start": 14, "end": 18, "label": "LOC", "score": 0.25}
    text = "Mr Bo went to Oslo"
    save_lines([{"text": text, "spans": [bo, oslo], "article": 7}], tmp_path / "a.jsonl")
    added = {"start": 0, "end": 5, "label": "PER"}
    answer = {"text": text, "doc": 0, "start": 0, "annotated": [bo, oslo], "spans": [added, oslo]}
    save_lines([{**answer, "answer": "accept"}], tmp_path / "answers.jsonl")
    output = tmp_path / "corrected.jsonl"

    apply = [
        *AUDIT,
        tmp_path / "a.jsonl",
        "--nlp.lang",
        "xx",
        "--apply",
        tmp_path / "answers.jsonl",
    ]
    done = run(*apply, "--output", output)

    assert done.exit_code == 0, done.output
    (line,) = read_json_lines(output)
    assert line["meta"] == {"article": 7}
    assert [(span["start"], span.get("score")) for span in line["spans"]] == [(0, None), (14, 0.25)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--apply", "audit.jsonl"],
            "audit: --output: expected a path for the corrected corpus, got none",
        ),
        (
            ["--apply", "audit.jsonl", "--output", "corpus.spacy"],
            "expected a file other than the input",
        ),
        (
            ["--apply", "audit.jsonl", "--output", "c.txt"],
            "expected a name that ends in .spacy",
        ),
        (["--output", "audit.html"], "expected a .jsonl file, got a page: --html writes the page"),
        (["--output", "audit.spacy"], "audit.spacy: expected a name that ends in .jsonl"),
        (["--folds", 50], "got 50 folds of 49 texts"),
    ],
    ids=[
        "no output",
        "output is the input",
        "output is no corpus",
        "lines are a page",
        "lines are a corpus",
        "more folds than docs",
    ],
)
def test_command_refuses_options_that_do_not_fit(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, options: list[Any], message: str
) -> None:
    monkeypatch.chdir(corpus.parent)
    Path("audit.jsonl").write_text("")
    done = run(*AUDIT, corpus, "--nlp.lang", "xx", *options)
    assert done.exit_code == 1
    assert message in done.output, done.output
