"""`costner distill`: from the answers of teachers to a student."""

import json
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.util import load_config
from spacy.vocab import Vocab
from thinc.api import Config, fix_random_seed

from spacy_costner.pipeline.confidence import Confidence
from spacy_costner.readers import ReadOptions, read_texts
from spacy_costner.readers.sentences import copy_without_annotation
from spacy_costner.tags import Tags
from spacy_costner.training.soft_targets import SOFT_TARGETS_KEY
from spacy_costner.training.targets import WEIGHT
from spacy_costner.workflows.noisy_labels import student_corpus
from spacy_costner.workflows.noisy_labels import teachers as module
from spacy_costner.workflows.noisy_labels.distillation import Distilled, check_dev, distill
from spacy_costner.workflows.noisy_labels.student_corpus import leave_out_uncertain
from spacy_costner.workflows.noisy_labels.teachers import ask_teachers, entities_of, read_scores

from ...support.commands import run
from ...support.config import TOK2VEC
from ...support.experiment import make_corpus
from ...support.pipelines import TEXTS, pipeline, train

ROOT = Path(__file__).parents[3]
LINES = [text for text in TEXTS if text] * 5
"""15 texts with 20 entities: 5 times 1 person, 2 places and 1 team."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pipelines that have learned TEXTS, "teacher" (BILUO) and "other" (IOB2); texts, raw.txt;
    the answers of the teacher to them, dev.spacy; and student.cfg, of a linear model."""
    path = tmp_path_factory.mktemp("distill")
    for name, scheme in (("teacher", "BILUO"), ("other", "IOB2")):
        fix_random_seed(0)
        nlp = pipeline(scheme=scheme)
        train(nlp)
        nlp.to_disk(path / name)
    (path / "raw.txt").write_text("\n\n".join(LINES), encoding="utf8")
    teacher = spacy.load(path / "teacher")
    DocBin(docs=list(teacher.pipe(LINES))).to_disk(path / "dev.spacy")
    config = load_config(ROOT / "configs" / "sparse.cfg", interpolate=False)
    config["nlp"]["lang"] = "xx"
    config["paths"]["dev"] = str(path / "dev.spacy")
    config["training"]["max_epochs"] = 20
    config.to_disk(path / "student.cfg")
    return path


@pytest.fixture
def config(folder: Path) -> Config:
    """The config of the student."""
    return load_config(folder / "student.cfg", interpolate=False)


def run_distill(folder: Path, output: Path, config: Config, **options: Any) -> Distilled:
    """Distill the teacher by its answers to raw.txt."""
    raw = [folder / "raw.txt"]
    return distill([str(folder / "teacher")], config, raw, output, **options)


def train_docs(output: Path, name: str = "000000") -> list[Doc]:
    """The docs of a file that the student was trained on."""
    vocab = spacy.blank("xx").vocab
    return list(DocBin().from_disk(output / "train" / f"{name}.spacy").get_docs(vocab))


@pytest.mark.parametrize("soft", [False, True])
def test_a_student_learns_from_the_answers_of_its_teacher(
    folder: Path, config: Config, tmp_path: Path, soft: bool
) -> None:
    """They are compared on the development corpus. It has the teacher's own answers as gold
    annotation, so the teacher has an F of 1."""
    result = run_distill(folder, tmp_path, config, soft=soft)

    nlp = spacy.load(result.path)
    assert nlp.get_pipe("ner").labels == ("LOC", "PERSON", "sports-team")
    entities = [(ent.text, ent.label_) for ent in nlp("I like London and Berlin.").ents]
    assert entities == [("London", "LOC"), ("Berlin", "LOC")]
    assert (result.n_docs, result.n_entities) == (15, 20)
    assert all((SOFT_TARGETS_KEY in doc.user_data) is soft for doc in train_docs(tmp_path))
    teacher, student = result.rows
    assert teacher.f_score == 1.0
    assert student.name == "student"
    assert student.f_score > 0.95
    assert student.tokens_per_second > 0
    assert 0 < student.megabytes < 1


def test_answers_are_entities_and_confidences_of_the_teacher(folder: Path) -> None:
    nlp = module.load_teacher(folder / "teacher")
    (answer,) = ask_teachers([nlp], [nlp.make_doc(TEXTS[1])])
    expected = spacy.load(folder / "teacher")(TEXTS[1])
    confidences = read_scores(answer)
    assert entities_of(answer) == entities_of(expected)
    assert set(entities_of(answer)) <= set(confidences)
    assert all(0 < confidence <= 1 for confidence in confidences.values())


def test_soft_targets_are_the_marginals_of_the_teacher(folder: Path) -> None:
    """Soft targets are those of the finest tags. Their sums over the finest tags of each tag of the
    teacher are the teacher's marginals."""
    nlp = module.load_teacher(folder / "teacher")
    ner = nlp.get_pipe("ner")

    (answer,) = ask_teachers([nlp], [nlp.make_doc(TEXTS[1])], soft=True)

    soft_targets = answer.user_data[SOFT_TARGETS_KEY]
    tag_of_finest = Tags(soft_targets["labels"]).finest.counts_as(ner.tags)
    counts_as = tag_of_finest[:, None] == range(len(ner.tags))  # (finest tags, the teacher's tags)
    marginals = soft_targets["emissions"] @ counts_as
    numpy.testing.assert_allclose(marginals, ner.posterior([answer]).marginals, atol=1e-4)


def test_a_teacher_that_merges_tokens_is_refused(folder: Path) -> None:
    nlp = module.load_teacher(folder / "teacher")
    nlp.add_pipe("merge_entities")
    with pytest.raises(ValueError, match=r"teacher: expected .* all 5 tokens of 'Who is .* got 4"):
        ask_teachers([nlp], [nlp.make_doc(TEXTS[0])])


def test_texts_lose_their_entities_but_keep_tokens_and_sentences(tmp_path: Path) -> None:
    """They also keep that it isn't known where there are spaces: the doc is made of words alone. A
    copy of a doc has its sentence starts only with `sentences=True`."""
    nlp = spacy.blank("xx")
    words = ["Ana", "sleeps", ".", "She", "snores", "."]
    tags = ["B-PER", "O", "O", "O", "O", "O"]
    doc = Doc(nlp.vocab, words=words, sent_starts=[1, 0, 0, 1, 0, 0], ents=tags)
    DocBin(docs=[doc, Doc(nlp.vocab)]).to_disk(tmp_path / "a.spacy")  # an empty doc is left out

    (read,) = read_texts(nlp, tmp_path / "a.spacy")
    copy_with_sentences = copy_without_annotation(read, spacy.blank("xx").vocab, sentences=True)
    copy = copy_without_annotation(read)

    for text in (read, copy_with_sentences):
        assert not text.ents
        assert text.has_unknown_spaces
        assert [sent.text for sent in text.sents] == ["Ana sleeps .", "She snores ."]
    assert not copy.has_unknown_spaces
    assert not copy.has_annotation("SENT_START")


def test_a_copy_gets_a_vocab_that_is_still_empty() -> None:
    """A vocab without words counts as false in Python."""
    doc = spacy.blank("xx").make_doc("Ana sleeps")
    vocab = Vocab()
    copy = copy_without_annotation(doc, vocab)
    assert copy.vocab is vocab
    assert copy.text == "Ana sleeps"


def test_texts_are_read_from_all_files_of_a_folder(tmp_path: Path) -> None:
    """Without their annotation. Lines are tokenized by the language: "can't" is the tokens "ca" and
    "n't", and spaCy gives the second the norm "not"."""
    (tmp_path / "lines.txt").write_text("Ana can't\n\n  Bo \n")
    (tmp_path / "spans.jsonl").write_text('{"text": "In Rome", "spans": [[3, 7, "LOC"]]}\n')
    (tmp_path / "tags.conll").write_text("Rome B-LOC\nwaits O\n")

    docs = list(read_texts(spacy.blank("en"), tmp_path))

    assert [doc.text.strip() for doc in docs] == ["Ana can't", "Bo", "In Rome", "Rome waits"]
    assert docs[0][2].norm_ == "not"
    assert not any(doc.has_annotation("ENT_IOB") for doc in docs)


# Answers on disk


@pytest.fixture
def sizes_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many docs teachers were asked about each time. A file has 4, so 15 are 4, 4, 4 and 3."""
    monkeypatch.setattr(module, "DOCS_PER_FILE", 4)
    monkeypatch.setattr(student_corpus, "DOCS_PER_FILE", 4)
    sizes: list[int] = []

    def ask(teachers: Any, docs: Any, **options: Any) -> list[Doc]:
        sizes.append(len(docs))
        return ask_teachers(teachers, docs, **options)

    monkeypatch.setattr(module, "ask_teachers", ask)
    return sizes


def test_a_run_that_was_killed_goes_on_with_the_answers_that_it_has(
    folder: Path,
    config: Config,
    tmp_path: Path,
    sizes_asked: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is killed as the third file is asked for."""
    config["training"]["max_epochs"] = 1
    ask = module.ask_teachers

    def ask_or_die(teachers: Any, docs: Any, **options: Any) -> list[Doc]:
        if len(sizes_asked) == 2:
            raise KeyboardInterrupt
        return ask(teachers, docs, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "ask_teachers", ask_or_die)
        run_distill(folder, tmp_path, config)
    (answers,) = tmp_path.glob("answers-*")
    assert sorted(path.name for path in answers.iterdir()) == ["000000.spacy", "000001.spacy"]

    run_distill(folder, tmp_path, config)

    assert sizes_asked == [4, 4, 4, 3]


@pytest.mark.slow
def test_answers_are_kept_for_other_settings_but_not_for_another_teacher(
    folder: Path, config: Config, tmp_path: Path, sizes_asked: list[int]
) -> None:
    """A teacher is asked about the 15 texts, four at a time, only if it has not answered yet."""
    sizes_for_all_texts = [4, 4, 4, 3]
    config["training"]["max_epochs"] = 1
    run_distill(folder, tmp_path, config)
    assert sizes_asked == sizes_for_all_texts

    run_distill(folder, tmp_path, config, min_confidence=0.2)
    assert sizes_asked == sizes_for_all_texts  # nobody was asked again

    distill([str(folder / "other")], config, [folder / "raw.txt"], tmp_path)
    assert sizes_asked == sizes_for_all_texts + sizes_for_all_texts
    assert len(list(tmp_path.glob("answers-*"))) == 2  # the answers of each teacher


def test_files_of_an_older_run_are_not_trained_on(
    folder: Path, config: Config, tmp_path: Path, sizes_asked: list[int]
) -> None:
    config["training"]["max_epochs"] = 1
    (tmp_path / "train").mkdir()
    DocBin().to_disk(tmp_path / "train" / "999999.spacy")

    run_distill(folder, tmp_path, config)

    names = [f"{i:06}" for i in range(4)]
    assert sorted(path.stem for path in (tmp_path / "train").iterdir()) == names
    assert sum(len(train_docs(tmp_path, name)) for name in names) == 15


# Confidence


PERSON = (0, 1, "PER")
NEW_YORK = (2, 4, "LOC")
TODAY = (4, 5, "DATE")


def answer_with(confidences: dict[Any, float], entities: Any = ()) -> Doc:
    """The doc "Ana saw New York today" with entities, and confidences of these and others."""
    doc = Doc(spacy.blank("xx").vocab, words=["Ana", "saw", "New", "York", "today"])
    doc.set_ents([Span(doc, *entity) for entity in entities])
    module.write_scores(doc, confidences)
    return doc


@pytest.mark.parametrize(
    ("min_confidence", "counts", "iob"),
    [
        (0.5, (2, 0), ["B", "O", "B", "I", "O"]),
        (0.65, (1, 1), ["B", "O", "", "", "O"]),  # New York has .6
        (0.75, (1, 1), ["B", "O", "", "", ""]),  # today may be a date: .3 is above 1 - .75
    ],
)
def test_uncertain_entities_are_missing_annotation(
    min_confidence: float, counts: tuple[int, int], iob: list[str]
) -> None:
    """`counts` are the entities that stay and those that are left out."""
    doc = answer_with({PERSON: 0.9, NEW_YORK: 0.6, TODAY: 0.3}, [PERSON, NEW_YORK])
    assert leave_out_uncertain(doc, min_confidence) == counts
    assert [token.ent_iob_ for token in doc] == iob


def test_missing_annotation_stays_missing() -> None:
    doc = answer_with({})
    doc.set_ents([], missing=[doc[2:4]])
    leave_out_uncertain(doc, 0.0)
    assert [token.ent_iob_ for token in doc] == ["O", "O", "", "", "O"]


def test_confidences_of_several_teachers_are_averaged() -> None:
    """An entity of a teacher without confidences counts 1, what a teacher doesn't name 0. The
    entities are those of more than half."""
    with_confidences = answer_with({NEW_YORK: 0.8, PERSON: 0.4}, [NEW_YORK])
    without = answer_with({})
    without.set_ents([Span(without, 2, 4, label="LOC"), Span(without, 0, 1, label="ORG")])

    means = module.mean_scores([with_confidences, without])

    # (0.8 + 1) / 2, (0.4 + 0) / 2 and (0 + 1) / 2
    assert means == {NEW_YORK: pytest.approx(0.9), PERSON: 0.2, (0, 1, "ORG"): 0.5}
    assert module.majority(means) == [NEW_YORK]


def make_teacher(later: Any) -> Language:
    """A pipeline that isn't sure of its entities, so it has alternatives, and a component after
    `ner` that changes the entities."""
    fix_random_seed(0)
    nlp = pipeline()
    train(nlp, steps=6)
    ner: Any = nlp.get_pipe("ner")
    ner.set_confidence(Confidence(alternatives=0.01))
    Language.component("later", func=later)
    nlp.add_pipe("later")
    return nlp


def test_entities_that_a_later_component_removes_are_not_answers() -> None:
    """Neither of one teacher nor of two. The second teacher has no entities at all."""

    def remove(doc: Doc) -> Doc:
        doc.ents = [ent for ent in doc.ents if ent.text != "London"]
        return doc

    nlp = make_teacher(remove)
    doc = nlp.make_doc(TEXTS[1])  # I like London and Berlin.

    for teachers in ([nlp], [nlp, nlp]):
        (answer,) = ask_teachers(teachers, [doc])

        scores = read_scores(answer)
        assert entities_of(answer) == [(4, 5, "LOC")]
        assert (2, 3, "LOC") not in scores
        assert 0.5 < scores[4, 5, "LOC"] < 1
        assert len(scores) > 1  # alternatives of this component


def test_alternatives_that_overlap_entities_of_other_components_are_no_answers() -> None:
    """Berlin has become a team. An entity without a score has the confidence 1."""

    def relabel(doc: Doc) -> Doc:
        doc.ents = [doc.ents[0], Span(doc, 4, 5, "TEAM")]
        return doc

    nlp = make_teacher(relabel)

    (answer,) = ask_teachers([nlp], [nlp.make_doc(TEXTS[1])])

    scores = read_scores(answer)
    assert entities_of(answer) == [(2, 3, "LOC"), (4, 5, "TEAM")]
    assert scores[4, 5, "TEAM"] == 1
    assert 0.5 < scores[2, 3, "LOC"] < 1
    assert {entity for entity in scores if entity[0] < 5 and entity[1] > 4} == {(4, 5, "TEAM")}
    assert {entity for entity in scores if entity[0] < 3 and entity[1] > 2} > {(2, 3, "LOC")}


def test_spans_of_a_spancat_are_scores_of_entities_and_no_entities() -> None:
    """A span that isn't in `doc.ents` has no confidence."""
    doc = answer_with({}, [PERSON])
    spans = [Span(doc, *PERSON), Span(doc, *NEW_YORK)]
    doc.spans["sc"] = SpanGroup(doc, name="sc", attrs={"scores": [0.9, 0.8]}, spans=spans)

    assert module.mean_scores([doc]) == {PERSON: 0.9}


def test_a_student_of_two_teachers_is_compared_with_each_and_both(
    folder: Path, config: Config, tmp_path: Path
) -> None:
    names = [str(folder / "teacher"), str(folder / "other")]

    result = distill(names, config, [folder / "raw.txt"], tmp_path, soft=True)

    assert [row.name for row in result.rows] == [*names, "all teachers", "student"]
    teacher, other, both, student = result.rows
    assert both.f_score > 0.95
    assert student.f_score > 0.95
    assert both.megabytes == teacher.megabytes + other.megabytes
    assert both.tokens_per_second < min(teacher.tokens_per_second, other.tokens_per_second)


def test_soft_targets_need_teachers_with_the_same_labels(
    folder: Path, config: Config, tmp_path: Path
) -> None:
    nlp = spacy.load(folder / "other")
    nlp.get_pipe("ner").add_label("MISC")
    nlp.to_disk(tmp_path / "more_labels")
    teachers = [str(folder / "teacher"), str(tmp_path / "more_labels")]
    with pytest.raises(ValueError, match="soft: expected teachers with the same labels, got"):
        distill(teachers, config, [folder / "raw.txt"], tmp_path, soft=True)


# Other teachers and students


def write_answer(path: Path, confidence: Any) -> None:
    """The answer of some tool: Ana with a confidence, New York without."""
    ana = {"start": 0, "end": 3, "label": "PER", "score": confidence}
    new_york = {"start": 8, "end": 16, "label": "LOC"}
    answer = {"text": "Ana saw New York today", "spans": [ana, new_york]}
    path.write_text(json.dumps(answer), "utf8")


def test_answers_of_other_tools_may_have_confidences(tmp_path: Path) -> None:
    """An entity without one is sure."""
    write_answer(tmp_path / "a.jsonl", 0.4)
    (doc,) = module.read_answers(spacy.blank("xx"), tmp_path / "a.jsonl")
    assert read_scores(doc) == {PERSON: 0.4, NEW_YORK: 1.0}
    assert leave_out_uncertain(doc, 0.5) == (1, 1)
    assert [token.ent_iob_ for token in doc] == ["", "O", "B", "I", "O"]


def test_a_span_with_white_space_at_its_ends_keeps_its_confidence(tmp_path: Path) -> None:
    ana = {"start": 0, "end": 4, "label": "PER", "score": 0.4}
    answer = {"text": "Ana saw her", "spans": [ana]}
    (tmp_path / "a.jsonl").write_text(json.dumps(answer), "utf8")
    with pytest.warns(UserWarning, match="the whitespace is left out"):
        (doc,) = module.read_answers(spacy.blank("xx"), tmp_path / "a.jsonl")
    assert [ent.text for ent in doc.ents] == ["Ana"]
    assert read_scores(doc) == {PERSON: 0.4}


@pytest.mark.parametrize("confidence", ["high", 1.5, True, -0.1])
def test_confidences_that_are_no_probabilities_are_refused(tmp_path: Path, confidence: Any) -> None:
    write_answer(tmp_path / "a.jsonl", confidence)
    with pytest.raises(ValueError, match=r"a.jsonl, line 1: score: expected a number fr"):
        list(module.read_answers(spacy.blank("xx"), tmp_path / "a.jsonl"))


def test_rejected_and_ignored_answers_are_skipped_with_a_warning(tmp_path: Path) -> None:
    """As in any corpus. A span that ends within a token is reported, too, and its tokens are
    missing annotation."""
    answers = [
        {"text": "Ana saw her", "spans": [[0, 3, "PER"], [4, 6, "LOC"]], "answer": "accept"},
        {"text": "Kim left early", "spans": [[0, 8, "LOC"]], "answer": "reject"},
        {"text": "Bob left", "spans": [[0, 3, "LOC"]], "answer": "ignore"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, answers)), "utf8")

    with pytest.warns(UserWarning) as warned:
        (doc,) = module.read_answers(spacy.blank("xx"), tmp_path / "a.jsonl")

    assert entities_of(doc) == [PERSON]
    assert read_scores(doc) == {PERSON: 1.0}
    assert [token.ent_iob_ for token in doc] == ["B", "", "O"]
    misaligned, skipped = [str(warning.message) for warning in warned]
    assert "spans don't begin and end with tokens" in misaligned
    assert "examples that were rejected or ignored are left out (2)" in skipped
    assert "a.jsonl, line 2: reject: 'Kim left early'" in skipped


def test_a_rejected_span_has_no_confidence(tmp_path: Path) -> None:
    """Its tokens are missing annotation. Spans that overlap are missing, too, and keep theirs."""
    spans = [
        {"start": 0, "end": 3, "label": "PER", "score": 0.9, "answer": "reject"},
        {"start": 8, "end": 16, "label": "LOC", "score": 0.6},
        {"start": 8, "end": 11, "label": "ORG", "score": 0.3},
    ]
    answer = {"text": "Ana saw New York today", "spans": spans}
    (tmp_path / "a.jsonl").write_text(json.dumps(answer), "utf8")

    with pytest.warns(UserWarning, match="overlap|spans were rejected"):
        (doc,) = module.read_answers(spacy.blank("xx"), tmp_path / "a.jsonl")

    assert [token.ent_iob_ for token in doc] == ["", "O", "", "", "O"]
    assert read_scores(doc) == {NEW_YORK: 0.6, (2, 3, "ORG"): 0.3}


def test_answers_can_be_tokens_and_tags(tmp_path: Path) -> None:
    """Any JSONL corpus can be the answers. Entities without a confidence are sure."""
    answer = {"tokens": ["Ana", "saw", "New", "York"], "ner_tags": ["B-PER", "O", "B-LOC", "I-LOC"]}
    (tmp_path / "a.jsonl").write_text(json.dumps(answer), "utf8")

    (doc,) = module.read_answers(spacy.blank("xx"), tmp_path / "a.jsonl")

    assert read_scores(doc) == {PERSON: 1.0, NEW_YORK: 1.0}


def test_answers_are_read_with_the_options_for_reading(config: Config, tmp_path: Path) -> None:
    """Two of three annotators agree on London. The key of the text has to be set."""
    text = TEXTS[1]  # I like London and Berlin.
    london = {"value": {"start": 7, "end": 13, "labels": ["LOC"]}}
    data = {"text": "A title", "body": text}
    results = ([london], [], [london])
    tasks = [{"data": data, "annotations": [{"result": result}]} for result in results]
    (tmp_path / "answers.json").write_text(json.dumps(tasks), encoding="utf8")
    config["training"]["max_epochs"] = 1
    reading = ReadOptions(text_key="body", conflicts="majority")

    with pytest.warns(UserWarning, match="the majority annotation is kept"):
        distill([str(tmp_path / "answers.json")], config, [], tmp_path, reading=reading)

    (doc,) = train_docs(tmp_path)
    assert doc.text == text and [ent.text for ent in doc.ents] == ["London"]


def write_spans(path: Path, *records: dict[str, Any]) -> Path:
    """Write a JSONL file of texts and spans."""
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf8")
    return path


@pytest.mark.filterwarnings("default:texts (were|are) annotated")
@pytest.mark.parametrize("is_in_config", [False, True], ids=["option", "config"])
def test_gold_docs_are_not_merged_with_answers(
    folder: Path, tmp_path: Path, is_in_config: bool
) -> None:
    """`conflicts` merges the answers to a text. Its gold doc has another entity, and the student
    learns from it."""
    answer = {"text": TEXTS[1], "spans": [[7, 13, "LOC"]]}  # I like London and Berlin.
    answers = write_spans(tmp_path / "answers.jsonl", answer, answer)
    gold = write_spans(tmp_path / "gold.jsonl", {"text": TEXTS[1], "spans": [[18, 24, "CITY"]]})
    setting = "--corpora.train.conflicts" if is_in_config else "--conflicts"
    arguments = ["distill", answers, folder / "student.cfg", "--gold", gold, "--output", tmp_path]

    result = run(*arguments, "--training.max_epochs", 3, setting, "first", "--json")

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["n_docs"] == 1
    nlp = spacy.load(tmp_path / "model-best")
    assert nlp.get_pipe("ner").labels == ("CITY", "LOC")
    assert nlp.config["corpora"]["train"]["conflicts"] is None


def test_texts_answers_and_gold_docs_are_joined_by_the_document_of_the_config(
    folder: Path, config: Config, tmp_path: Path
) -> None:
    """The training corpus of the config has `doc_id`. The saved docs are documents already."""
    london = {"text": TEXTS[1], "spans": [[7, 13, "LOC"]], "article": 1}
    answers = write_spans(tmp_path / "a.jsonl", london, london)
    others = [{"text": "I like London", "spans": [[7, 13, "LOC"]], "article": 2}] * 2
    gold_path = write_spans(tmp_path / "gold.jsonl", *others)
    config["corpora"]["train"]["doc_id"] = "article"
    config["training"]["max_epochs"] = 1

    distill([str(answers)], config, [], tmp_path / "of_file", gold_path=gold_path)
    teacher = str(folder / "teacher")
    distill([teacher], config, [answers], tmp_path / "of_pipeline", gold_path=gold_path)

    for output in (tmp_path / "of_file", tmp_path / "of_pipeline"):
        for name, text in (("000000", TEXTS[1]), ("gold", "I like London")):
            (doc,) = train_docs(output, name)
            assert [sent.text for sent in doc.sents] == [text, text]
            assert {ent.text for ent in doc.ents} >= {"London"}
    assert config["corpora"]["train"]["doc_id"] == "article"  # the given config isn't modified


def test_a_file_of_answers_can_be_the_teacher(folder: Path, config: Config, tmp_path: Path) -> None:
    """The file has a text with two entities three times. A file can't be scored on the development
    corpus, so only the student has a row."""
    doc = spacy.load(folder / "teacher")(TEXTS[1])
    spans = [[ent.start_char, ent.end_char, ent.label_] for ent in doc.ents]
    line = json.dumps({"text": TEXTS[1], "spans": spans}) + "\n"
    (tmp_path / "answers.jsonl").write_text(line * 3, encoding="utf8")

    result = distill([str(tmp_path / "answers.jsonl")], config, [], tmp_path / "output")

    assert (result.n_docs, result.n_entities) == (3, 3 * 2)
    assert [row.name for row in result.rows] == ["student"]
    assert spacy.load(result.path)(TEXTS[1]).ents


def test_gold_docs_have_their_weight_and_their_labels(
    folder: Path, config: Config, tmp_path: Path
) -> None:
    """The gold corpus has 4 docs, with the labels city and country."""
    gold = tmp_path / "gold.spacy"
    make_corpus(gold)
    config["training"]["max_epochs"] = 1
    run_distill(folder, tmp_path, config, gold_path=gold, gold_weight=2.5)
    assert [doc.user_data[WEIGHT] for doc in train_docs(tmp_path, "gold")] == [2.5] * 4
    assert not any(WEIGHT in doc.user_data for doc in train_docs(tmp_path))
    labels = spacy.load(tmp_path / "model-best").get_pipe("ner").labels
    assert {"city", "country", "LOC"} <= {*labels}


def test_a_student_that_is_not_linear_is_trained_by_spacy(
    folder: Path, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = {"@architectures": "spacy_costner.LinearChainCRF.v1", "tok2vec": TOK2VEC}
    config["components"]["ner"]["model"] = model
    config["training"].update(max_epochs=0, max_steps=4)
    result = run_distill(folder, tmp_path, config, soft=True)
    assert result.path == tmp_path / "model-best" and not capsys.readouterr().out
    assert result.rows[-1].name == "student"
    assert spacy.load(result.path).get_pipe("ner").labels == ("LOC", "PERSON", "sports-team")


def test_a_student_is_built_once(
    folder: Path, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config is checked without building it. The other three pipelines are loaded from disk:
    the teacher twice, and the saved student."""
    built: list[str] = []
    make_component = Language.create_pipe

    def create_pipe(nlp: Language, factory_name: str, *args: Any, **options: Any) -> Any:
        built.append(factory_name)
        return make_component(nlp, factory_name, *args, **options)

    monkeypatch.setattr(Language, "create_pipe", create_pipe)
    config["training"]["max_epochs"] = 1
    run_distill(folder, tmp_path, config)
    assert built == ["cost_sensitive_ner"] * 4


@pytest.mark.parametrize("is_sourced", [False, True])
def test_a_student_whose_entities_overlap_is_refused_before_it_is_built(
    folder: Path, config: Config, tmp_path: Path, is_sourced: bool
) -> None:
    nlp = pipeline(spans_key="nested")
    nlp.to_disk(tmp_path / "nested")
    config["components"]["ner"]["spans_key"] = "nested"
    if is_sourced:
        config["components"]["ner"] = {"source": str(tmp_path / "nested")}
    message = "distill: works on doc.ents, but ner has the spans_key 'nested'"
    with pytest.raises(ValueError, match=message):
        run_distill(folder, tmp_path / "output", config)
    assert not (tmp_path / "output").exists()


def test_soft_targets_need_a_student_of_this_package(
    folder: Path, config: Config, tmp_path: Path
) -> None:
    config["components"]["ner"] = {"factory": "entity_ruler"}
    with pytest.raises(ValueError, match=r"soft: expected a student with one cost_s.*, got .*'ner"):
        run_distill(folder, tmp_path / "output", config, soft=True)
    assert not (tmp_path / "output").exists()


# Errors


@pytest.mark.parametrize(
    "teachers, n_raw, options, message",
    [
        (["a.jsonl", "b"], 0, {}, "file of answers without other teachers and raw text"),
        (["a.jsonl"], 1, {}, "file of answers without other teachers and raw text"),
        (["a"], 0, {}, "raw: expected text files"),
        (["a.jsonl"], 0, {"soft": True}, "soft: expected pipelines as teachers"),
        (["a"], 1, {"soft": True, "min_confidence": 0.5}, "got min_confidence 0.5"),
        (["a"], 1, {"n_seeds": 2}, "seeds: expected 1 for a student that `fit` can't"),
        (["a"], 1, {}, "expected a config whose training corpus is"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    config: Config, tmp_path: Path, teachers: Any, n_raw: int, options: Any, message: str
) -> None:
    """They are refused before anything is read: none of the files is there. The student isn't
    linear, so `fit` can't train it, and its training corpus isn't that of the distillation."""
    config["components"]["ner"]["model"] = {"@architectures": "spacy_costner.LinearChainCRF.v1"}
    config["corpora"]["train"]["path"] = "train.spacy"
    with pytest.raises(ValueError, match=message):
        distill(teachers, config, [tmp_path / "raw.txt"] * n_raw, tmp_path, **options)


@pytest.fixture
def ruler(tmp_path: Path) -> Path:
    """A pipeline of rules, saved: London is a place."""
    nlp = spacy.blank("xx")
    entity_ruler: Any = nlp.add_pipe("entity_ruler")
    entity_ruler.add_patterns([{"label": "LOC", "pattern": "London"}])
    nlp.to_disk(tmp_path / "rules")
    return tmp_path / "rules"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"soft": True}, r"soft: expected teachers with one cost_s.*'entity_ruler"),
        ({"min_confidence": 0.5}, "min_confidence: expected a teacher with confidences"),
    ],
    ids=["soft", "min_confidence"],
)
def test_what_needs_probabilities_is_refused_for_a_teacher_of_rules(
    folder: Path, config: Config, tmp_path: Path, ruler: Path, options: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        distill([str(ruler)], config, [folder / "raw.txt"], tmp_path / "output", **options)


def test_any_pipeline_that_sets_entities_is_a_teacher(
    folder: Path, config: Config, tmp_path: Path, ruler: Path
) -> None:
    """A dev corpus without entities has no scores. London is in 5 of the 15 texts."""
    DocBin(docs=[spacy.blank("xx")("Nothing")]).to_disk(tmp_path / "dev.spacy")
    config["paths"]["dev"] = str(tmp_path / "dev.spacy")
    config["training"]["max_epochs"] = 1

    result = distill([str(ruler)], config, [folder / "raw.txt"], tmp_path / "output")

    assert result.n_entities == 5
    assert [row.f_score for row in result.rows] == [0, 0]
    assert spacy.load(result.path).get_pipe("ner").labels == ("LOC",)


@pytest.mark.slow
def test_a_teacher_whose_config_changed_is_asked_again(
    folder: Path, config: Config, tmp_path: Path, ruler: Path
) -> None:
    config["training"]["max_epochs"] = 1
    distill([str(ruler)], config, [folder / "raw.txt"], tmp_path / "output")
    text = (ruler / "config.cfg").read_text("utf8")
    changed = text.replace("overwrite_ents = false", "overwrite_ents = true")
    (ruler / "config.cfg").write_text(changed, encoding="utf8")

    distill([str(ruler)], config, [folder / "raw.txt"], tmp_path / "output")

    assert changed != text
    assert len(list(tmp_path.glob("output/answers-*"))) == 2


# The command


@pytest.fixture
def command(folder: Path, tmp_path: Path) -> list[Any]:
    """The arguments that distill the teacher to `tmp_path`, in 3 epochs."""
    files = [folder / "teacher", folder / "student.cfg", folder / "raw.txt"]
    return ["distill", *files, "--output", tmp_path, "--training.max_epochs", 3]


def test_the_command_says_and_saves_what_it_has_made(command: list[Any], tmp_path: Path) -> None:
    result = run(*command, "--min-confidence", 0.3, "--seeds", 2)
    assert result.exit_code == 0, result.output
    assert "15 docs with 20 entities of the teacher" in result.output
    assert "tokens/s" in result.output
    assert "student" in result.output
    assert spacy.load(tmp_path / "model-best").config["training"]["max_epochs"] == 3


def test_the_command_prints_json(command: list[Any]) -> None:
    result = json.loads(run(*command, "--json").stdout)
    assert result["n_docs"] == 15
    assert [row["name"] for row in result["rows"]][1] == "student"


def test_options_are_in_the_docs() -> None:
    """The help also has --paths.dev, as an example of a setting of the config."""
    page = (ROOT / "docs" / "distill.md").read_text("utf8")
    options = re.findall(r"--[a-z-]+", run("distill", "--help").output)
    assert {*options} - {"--help", "--paths"} <= {*re.findall(r"--[a-z-]+", page)}


def test_without_a_dev_corpus_it_is_refused_before_training() -> None:
    nlp = spacy.blank("xx")
    nlp.config["paths"]["dev"] = None
    config = nlp.config.interpolate()
    with pytest.raises(
        ValueError, match=r"corpora.dev: expected a development corpus, .* set paths.dev"
    ):
        check_dev(config)
