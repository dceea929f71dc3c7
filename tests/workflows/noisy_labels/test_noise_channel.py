"""The noise channel, from corpora of annotators who err to a student."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
import srsly
from numpy.testing import assert_allclose
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Config

from spacy_costner.annotation.tokens import first_words
from spacy_costner.cli.distill import noise_lines, noise_page
from spacy_costner.pipeline.scorers import Entity, as_entity
from spacy_costner.readers import make_reader
from spacy_costner.training.lbfgs import MOST_ITERATIONS
from spacy_costner.training.soft_targets import SOFT_TARGETS_KEY, has_soft_targets
from spacy_costner.workflows import distill, fit, init
from spacy_costner.workflows.config.loss_blocks import make_loss
from spacy_costner.workflows.noisy_labels.annotator_errors import (
    AnnotatorErrors,
    describe_errors,
    score_answers,
)
from spacy_costner.workflows.noisy_labels.answered_texts import AnsweredTexts
from spacy_costner.workflows.noisy_labels.channel_distillation import (
    LearnedNoise,
    note_annotators,
    short_training,
)
from spacy_costner.workflows.noisy_labels.distillation import Distilled
from spacy_costner.workflows.noisy_labels.evidence_weights import log_probs_of_gold
from spacy_costner.workflows.noisy_labels.noise_channel import (
    ANSWERS,
    CHANNEL,
    GOLD,
    ChannelTraining,
    Corrections,
    Fold,
    MethodScores,
    choose_method,
    count_differences,
    docs_of,
    soft_docs,
)
from spacy_costner.workflows.noisy_labels.teachers import save_docs

from ...support.commands import run
from ...support.vocabs import blank_vocab

VERBS = [f"{a}{b}s" for a in "bdfg" for b in ("ar", "en", "il", "ot", "um")]
"""After the first ten, a person is in front, and a city behind; with the others it is inverse."""


def make_docs(n: int, seed: int, vocab: Vocab) -> list[Doc]:
    """Docs such as "Then Xano bars Rumi", with a person and a city whose names say nothing."""
    rng = random.Random(seed)
    docs: list[Doc] = []
    for _ in range(n):
        names = ["".join(rng.sample("aeioknmrstl", 6)).title() for _ in range(2)]
        verb = rng.randrange(len(VERBS))
        doc = Doc(vocab, words=["Then", names[0], VERBS[verb], names[1]])
        labels = ("PER", "LOC") if verb < 10 else ("LOC", "PER")
        doc.set_ents([Span(doc, 1, 2, labels[0]), Span(doc, 3, 4, labels[1])])
        docs.append(doc)
    return docs


def annotate(docs: list[Doc], seed: int, *, missed: float, confused: float) -> list[Doc]:
    """What an annotator says of docs who misses entities, and takes a person for a city."""
    rng = random.Random(seed)
    answers: list[Doc] = []
    for doc in docs:
        answer = doc.copy()
        ents: list[Span] = []
        for ent in doc.ents:
            label = ent.label_
            if label == "PER" and rng.random() < confused:
                label = "LOC"
            if rng.random() >= missed:
                ents.append(Span(answer, ent.start, ent.end, label))
        answer.set_ents(ents)
        answers.append(answer)
    return answers


def save(docs: list[Doc], path: Path) -> str:
    """Save docs. Returns the path."""
    DocBin(docs=docs).to_disk(path)
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 checked texts, gold.spacy; dev.spacy; the answers of two annotators to these and 80
    others, a.spacy and b.spacy: a misses half of the entities, b takes half of the people for
    cities; and student.cfg, of a linear model."""
    path = tmp_path_factory.mktemp("channel")
    vocab = blank_vocab()
    checked = make_docs(20, 1, vocab)
    unchecked = make_docs(80, 2, vocab)
    save(checked, path / "gold.spacy")
    save(make_docs(30, 3, vocab), path / "dev.spacy")
    save(annotate(checked + unchecked, 4, missed=0.5, confused=0.0), path / "a.spacy")
    save(annotate(checked + unchecked, 5, missed=0.1, confused=0.5), path / "b.spacy")
    config = init(lang="xx", train_path=path / "gold.spacy", dev_path=path / "dev.spacy")
    (path / "student.cfg").write_text(config, encoding="utf8")
    return path


@pytest.fixture(scope="module")
def distilled(folder: Path) -> Any:
    """What the command prints as JSON. The student is in the folder "distilled"."""
    arguments = ["distill", folder / "a.spacy", folder / "student.cfg"]
    arguments += ["--teacher", folder / "b.spacy", "--gold", folder / "gold.spacy"]
    arguments += ["--noise", "channel", "--html", folder / "noise.html"]
    result = run(*arguments, "--output", folder / "distilled", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_errors_of_annotators_are_learned_from_checked_texts_and_from_others(
    distilled: Any, folder: Path
) -> None:
    """What annotators miss and confuse is in the tables, and the student finds it."""
    first, second = distilled["noise"]["annotators"]
    assert (first["n_texts"], first["n_checked"], first["n_repeated"]) == (100, 20, 0)
    assert first["missed"]["PER"] == pytest.approx(0.5, abs=0.15)
    assert first["found"]["PER"]["LOC"] < 0.05
    assert second["found"]["PER"]["LOC"] == pytest.approx(0.45, abs=0.15)
    assert second["found"]["LOC"]["LOC"] > 0.8
    assert [method["name"] for method in distilled["noise"]["methods"]] == [GOLD, ANSWERS, CHANNEL]
    assert distilled["noise"]["kept"] == CHANNEL
    assert distilled["noise"]["corrections"]["n_added"] > 20
    assert distilled["n_docs"] == 80
    assert distilled["n_entities"] == pytest.approx(160, abs=16)
    assert distilled["rows"][-1]["f_score"] > 0.95
    assert distilled["notes"] == []
    assert f"Kept: {CHANNEL}." in (folder / "noise.html").read_text(encoding="utf8")


def test_a_student_learns_from_the_saved_corpus_alone(
    distilled: Any, folder: Path, tmp_path: Path
) -> None:
    """`fit` on docs with soft targets and no entities, and without a config: the labels are those
    of the soft targets."""
    train_path = folder / "distilled" / "train" / "000000.spacy"
    docs = list(DocBin().from_disk(train_path).get_docs(Vocab()))
    assert len(docs) == 80
    assert all(SOFT_TARGETS_KEY in doc.user_data and not doc.ents for doc in docs)

    fitted = fit(None, tmp_path, lang="xx", train_path=train_path, dev_path=folder / "dev.spacy")

    assert fitted.scores["ents_f"] > 0.9


def make_noise(name: str) -> LearnedNoise:
    """What was learned of an annotator with this name."""
    errors = AnnotatorErrors(
        name=name,
        n_texts=362,
        n_checked=50,
        n_repeated=0,
        precision=0.6,
        recall=0.5,
        f_score=0.5454,
        found={"LOC": {"LOC": 0.7, "PER": 0.1}, "PER": {"LOC": 0.0, "PER": 0.8}},
        missed={"LOC": 0.2, "PER": 0.2},
        false_alarms=3.14,
    )
    methods = [
        MethodScores(GOLD, 0.8, 0.7, 0.7467, -0.3, -0.05, 0.01),
        MethodScores(CHANNEL, 0.9, 0.7, 0.7875, -0.25, 0.0, 0.0),
    ]
    return LearnedNoise([errors], 50, methods, CHANNEL, Corrections(12, 3, 4))


def test_the_tables_of_errors_are_printed() -> None:
    """The scores of annotators, what they say of each label, corrections, and the methods."""
    noise = make_noise("llm.jsonl")

    lines = [line.split() for line in noise_lines(noise)[0].splitlines()]
    assert lines[1] == ["llm.jsonl", "362", "50", "60.00", "50.00", "54.54", "3.1"]
    text = "\n".join(noise_lines(noise))
    assert ["LOC", "70.0", "10.0", "20.0"] in [line.split() for line in text.splitlines()]
    assert "12 entities added to the annotators' labels, 3 removed, 4 changed" in text
    rows = [line.split() for line in text.splitlines()]
    assert [*GOLD.split(), "80.00", "70.00", "74.67", "-0.3000", "-0.0500", "±", "0.0100"] in rows
    assert [*CHANNEL.split(), "90.00", "70.00", "78.75", "-0.2500"] in rows
    assert text.endswith(f"kept: {CHANNEL}")


def test_the_page_has_the_tables_of_errors() -> None:
    """The same numbers as in the text. The name of a file may be markup."""
    noise = make_noise("<i>llm</i>.jsonl")
    distilled = Distilled(
        Path("student"), n_docs=1, n_entities=1, n_missing=0, n_unknown=0, rows=[], noise=noise
    )

    page = noise_page(distilled)

    assert "<h3>&lt;i&gt;llm&lt;/i&gt;.jsonl</h3>" in page
    assert "<i>" not in page
    cell = r"<t[dh](?: [^>]*)?>(?:<b>)?([^<]*)"
    _, methods, annotators, labels = [re.findall(cell, part) for part in page.split("<table>")]
    assert methods[7:14] == [GOLD, "80.00", "70.00", "74.67", "-0.3000", "-0.0500", "0.0100"]
    assert annotators[8:] == ["362", "50", "60.00", "50.00", "54.54", "3.1"]
    assert labels[4:8] == ["LOC", "70.0", "10.0", "20.0"]
    assert f"Kept: {CHANNEL}." in page


@pytest.mark.parametrize(
    ("lead_of_gold", "lead_of_answers", "expected"),
    [(-0.1, -0.2, CHANNEL), (0.02, -0.2, CHANNEL), (0.04, -0.2, GOLD), (0.04, 0.05, ANSWERS)],
    ids=["worse", "better by less than the error", "better", "both better"],
)
def test_the_channel_is_kept_unless_another_method_is_better(
    lead_of_gold: float, lead_of_answers: float, expected: str
) -> None:
    """By more than the standard error of the log-probability. F doesn't count."""
    methods: list[MethodScores] = []
    for name, lead in [(GOLD, lead_of_gold), (ANSWERS, lead_of_answers), (CHANNEL, 0.0)]:
        f = 0.9 - lead
        methods.append(MethodScores(name, f, f, f, -0.3 + lead, lead, 0.03))

    assert choose_method(methods).name == expected


def test_methods_are_scored_on_checked_texts(folder: Path, tmp_path: Path) -> None:
    """F counts entities. The log-probability is lower for a model trained on wrong labels, but not
    as low as without temperature scaling, and 0 if no annotation is known. The error of the lead is
    found from the differences of docs."""
    vocab = blank_vocab()
    gold = make_docs(8, 1, vocab)
    wrong = annotate(gold, 1, missed=0.0, confused=1.0)
    name = save([*gold, *make_docs(1, 2, vocab)], tmp_path / "a.spacy")
    config = Config().from_disk(folder / "student.cfg", interpolate=False)
    texts = AnsweredTexts(spacy.blank("xx"), gold, [name])
    training = ChannelTraining(short_training(config, texts.labels), texts)
    learned = training.train(gold)
    models = {GOLD: learned, ANSWERS: training.train(wrong), CHANNEL: learned}
    fold = Fold(texts.checked, [], models)

    scores, scores_of_wrong, _ = training.score_methods([fold])

    assert (scores.precision, scores.recall, scores.f_score) == (1, 1, 1)
    assert (scores.lead, scores.lead_error) == (0, 0)
    assert scores_of_wrong.f_score == pytest.approx(0.5)
    assert scores_of_wrong.log_prob < scores.log_prob < 0
    assert scores_of_wrong.lead == pytest.approx(scores_of_wrong.log_prob - scores.log_prob)
    leads = training.find_log_probs(ANSWERS, [fold]) - training.find_log_probs(GOLD, [fold])
    assert len(leads) == len(gold)
    variance = sum((lead - leads.mean()) ** 2 for lead in leads) / len(gold)
    assert scores_of_wrong.lead_error == pytest.approx((variance / len(gold)) ** 0.5 / 4)
    (batch,) = training.make_batches(models[ANSWERS], fold.checked)
    checked_batches = training.with_annotation(fold, [batch], [[batch.potentials]])
    log_probs, _ = log_probs_of_gold(checked_batches[0], numpy.ones(1))
    assert scores_of_wrong.log_prob > log_probs.sum() / sum(map(len, gold))
    unknown = [replace(text, true_tags=numpy.full(4, -1)) for text in texts.checked]
    assert_allclose(training.find_log_probs(GOLD, [Fold(unknown, [], models)]), numpy.zeros(8))


def make_checked_training(folder: Path, tmp_path: Path, doc: Doc) -> ChannelTraining:
    """Train on eight docs and another doc, which are all checked, and have an answer each."""
    gold = [doc, *make_docs(8, 1, doc.vocab)]
    answers = [*annotate(gold, 1, missed=0.2, confused=0.2), *make_docs(4, 2, doc.vocab)]
    config = Config().from_disk(folder / "student.cfg", interpolate=False)
    texts = AnsweredTexts(spacy.blank("xx"), gold, [save(answers, tmp_path / "a.spacy")])
    return ChannelTraining(short_training(config, texts.labels), texts)


@pytest.mark.parametrize(
    ("words", "sent_starts"),
    [
        (["Then", "Xano", "bars", "Rumi", "\n", "Alta"], None),
        (["Then", "Xano", "bars", "Rumi", ".", "Alta"], [True, False, False, False, False, True]),
    ],
    ids=["line", "sentence"],
)
def test_a_checked_entity_may_cross_a_border(
    folder: Path, tmp_path: Path, words: list[str], sent_starts: list[bool] | None
) -> None:
    """A model can't predict it, because its sequences end there. As in training, the doc isn't cut
    within it, and the methods are compared."""
    doc = Doc(blank_vocab(), words=words, sent_starts=sent_starts)
    doc.set_ents([Span(doc, 1, 2, "PER"), Span(doc, 3, 6, "LOC")])
    training = make_checked_training(folder, tmp_path, doc)

    folds = training.make_folds()
    methods = training.compare_methods(folds).methods

    for method in methods:
        assert numpy.isfinite([method.log_prob, method.lead, method.lead_error]).all()
    model = folds[0].models[GOLD]
    fold = Fold(training.texts.checked[:1], [], {GOLD: model})
    log_probs = training.find_log_probs(GOLD, [fold])
    model.ner.annotation = replace(model.ner.annotation, sentence_boundaries=False)
    assert_allclose(log_probs, training.find_log_probs(GOLD, [fold]))


def test_white_space_at_the_ends_of_checked_entities_is_removed(
    folder: Path, tmp_path: Path
) -> None:
    """As in training. A model can't predict it, and an annotator may leave it out."""
    doc = Doc(blank_vocab(), words=["Then", "Xano", " ", "bars", "  ", "Rumi"])
    doc.set_ents([Span(doc, 1, 3, "PER"), Span(doc, 4, 6, "LOC")])
    training = make_checked_training(folder, tmp_path, doc)
    text = training.texts.checked[0]
    fold = Fold([text], [], {GOLD: training.train(docs_of(training.texts.checked[1:]))})

    assert training.texts.true_entities(text) == [(1, 2, "PER"), (5, 6, "LOC")]
    assert numpy.isfinite(training.find_log_probs(GOLD, [fold])).all()


def test_an_annotator_is_not_wrong_about_white_space(tmp_path: Path) -> None:
    """At the ends of an entity, of the annotator or of the checked text. It counts as the same
    entity."""
    words = ["Then", "Xano", " ", "bars", "Rumi", "\n"]
    gold = Doc(blank_vocab(), words=words)
    gold.set_ents([Span(gold, 1, 3, "PER"), Span(gold, 4, 5, "LOC")])
    answer = Doc(gold.vocab, words=words)
    answer.set_ents([Span(answer, 1, 2, "PER"), Span(answer, 4, 6, "LOC")])
    name = save([answer, *make_docs(1, 2, gold.vocab)], tmp_path / "a.spacy")

    texts = AnsweredTexts(spacy.blank("xx"), [gold], [name])

    assert score_answers(texts, 0) == (1, 1, 1)


def test_checked_texts_whose_annotation_is_impossible_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    """Such as I- at the start of a text, which `AnsweredTexts` never makes. The methods couldn't be
    compared."""
    vocab = blank_vocab()
    training = make_checked_training(folder, tmp_path, *make_docs(1, 3, vocab))
    first, second, *_ = training.texts.checked
    impossible = replace(second, true_tags=numpy.asarray([2, 0, 0, 0]))
    model = training.train(docs_of(training.texts.checked))
    fold = Fold([first, impossible], [], {GOLD: model})

    words = re.escape(first_words(second.doc))
    with pytest.raises(ValueError, match=f"a finite log-probability, got -inf for {words}"):
        training.find_log_probs(GOLD, [fold])


def test_answers_are_joined_by_text_and_aligned_to_the_tokens_of_the_checked_one(
    tmp_path: Path,
) -> None:
    """An annotator's tokens may be others, its text may have other whitespace, and it may answer
    a text twice: the first answer counts."""
    nlp = spacy.blank("xx")
    gold = Doc(nlp.vocab, words=["Ana", "Bob", "visits", "New", "York", "."])
    gold.set_ents([Span(gold, 0, 2, "PER"), Span(gold, 3, 5, "LOC")])
    other_tokens = {
        "text": "Ana  Bob visits NewYork.",
        "spans": [
            {"start": 0, "end": 8, "label": "PER"},
            {"start": 16, "end": 23, "label": "LOC"},
        ],
    }
    unchecked = {"text": "Eve left.", "spans": [{"start": 0, "end": 3, "label": "PER"}]}
    later = {"text": "Eve left.", "spans": []}
    srsly.write_jsonl(tmp_path / "answers.jsonl", [other_tokens, unchecked, later])

    with pytest.warns(UserWarning, match="annotated in several ways: all are kept"):
        texts = AnsweredTexts(nlp, [gold], [str(tmp_path / "answers.jsonl")])

    assert texts.labels == ("LOC", "PER")
    assert texts.n_repeated == [1]
    (checked,) = texts.checked
    assert checked.observed[0].tolist() == [3, 4, 0, 1, 2, 0]  # B-PER I-PER O B-LOC I-LOC O
    (text,) = texts.unchecked
    assert texts.vote(text) == [(0, 1, "PER")]


@pytest.mark.parametrize("has_spaces", [True, False], ids=["text", "tokens only"])
def test_soft_targets_have_the_tokens_of_the_student(tmp_path: Path, has_spaces: bool) -> None:
    """An annotator's tokens may differ from those of the student's tokenizer, for which soft
    targets couldn't be used. If the whitespace is unknown, the student keeps the file's tokens."""
    nlp = spacy.blank("en")
    answer = Doc(nlp.vocab, words=["Eve", "didn't", "leave.", "Bob"], sent_starts=[1, -1, -1, 1])
    answer.set_ents([Span(answer, 0, 1, "PER"), Span(answer, 3, 4, "PER")])
    answer.has_unknown_spaces = not has_spaces
    name = save([answer], tmp_path / "a.spacy")

    texts = AnsweredTexts(nlp, make_docs(1, 1, blank_vocab()), [name])
    (text,) = texts.unchecked
    (soft,) = soft_docs([text], [])
    soft.user_data[SOFT_TARGETS_KEY] = {}
    save_docs(tmp_path / "train.spacy", [soft])
    (eg,) = make_reader(tmp_path / "train.spacy")(nlp)

    assert has_soft_targets(eg)
    assert [sent.text for sent in eg.reference.sents] == ["Eve didn't leave.", "Bob"]
    expected = ["Eve", "did", "n't", "leave", ".", "Bob"] if has_spaces else [*map(str, answer)]
    assert [token.text for token in text.doc] == expected
    assert texts.vote(text) == [(0, 1, "PER"), (len(expected) - 1, len(expected), "PER")]


def test_a_text_without_the_answer_of_an_annotator_has_no_tags_of_it(tmp_path: Path) -> None:
    """The votes are those of the annotators who have seen it."""
    vocab = blank_vocab()
    first, second = make_docs(2, 1, vocab)
    with_city = second.copy()
    with_city.set_ents([ent for ent in with_city.ents if ent.label_ == "LOC"])
    names = [save([first, second], tmp_path / "a.spacy"), save([with_city], tmp_path / "b.spacy")]

    texts = AnsweredTexts(spacy.blank("xx"), make_docs(1, 2, vocab), names)

    text_of_both = texts.unchecked[1]
    assert [tags.tolist() for tags in texts.unchecked[0].observed] == [[0, 3, 0, 1], [-1] * 4]
    assert texts.vote(texts.unchecked[0]) == [(1, 2, "PER"), (3, 4, "LOC")]
    assert texts.vote(text_of_both) == [(3, 4, "LOC")]  # others: not more than half


def test_what_no_annotator_has_annotated_is_missing_and_not_outside(tmp_path: Path) -> None:
    """A token without annotation, in the only answer to the text."""
    vocab = blank_vocab()
    (doc,) = make_docs(1, 1, vocab)
    doc.set_ents([doc.ents[0]], missing=[doc[3:4]])
    name = save([doc], tmp_path / "a.spacy")

    texts = AnsweredTexts(spacy.blank("xx"), make_docs(1, 2, vocab), [name])

    voted = texts.voted_doc(texts.unchecked[0])
    assert voted.to_array("ENT_IOB").tolist() == [2, 3, 2, 0]  # O, B, O, missing


def make_partial(words: list[str], ents: list[Entity], missing: tuple[int, int]) -> Doc:
    """A doc with these entities. The annotation of the tokens in the range `missing` is missing."""
    doc = Doc(blank_vocab(), words=words)
    begin, end = missing
    doc.set_ents(
        [Span(doc, *ent) for ent in ents], missing=[doc[i : i + 1] for i in range(begin, end)]
    )
    return doc


WORDS = ["Ana", "saw", "New", "York", "today"]
PERSON = (0, 1, "PER")
CITY = (2, 4, "LOC")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        # The other annotator has annotated no token of the city, or one.
        ([([PERSON, CITY], (0, 0)), ([PERSON], (2, 4))], [PERSON, CITY]),
        ([([PERSON, CITY], (0, 0)), ([PERSON], (3, 4))], [PERSON, CITY]),
        # One of two, and two of three, of those who have annotated all of it
        ([([CITY], (0, 0)), ([], (0, 0)), ([], (2, 4))], []),
        ([([CITY], (0, 0)), ([CITY], (0, 1)), ([], (0, 0)), ([], (2, 5))], [CITY]),
        # Different entities can win the votes of different annotators: the most probable is kept.
        ([([(2, 3, "PER")], (3, 4)), ([(2, 3, "PER")], (3, 4)), ([CITY], (0, 0))], [CITY]),
    ],
)
def test_missing_annotation_is_no_vote(
    tmp_path: Path, answers: list[tuple[list[Entity], tuple[int, int]]], expected: list[Entity]
) -> None:
    """An annotator votes on an entity if it has annotated all of its tokens."""
    names: list[str] = []
    for number, (ents, missing) in enumerate(answers):
        names.append(save([make_partial(WORDS, ents, missing)], tmp_path / f"{number}.spacy"))

    texts = AnsweredTexts(spacy.blank("xx"), make_docs(1, 2, blank_vocab()), names)

    (text,) = texts.unchecked
    assert sorted(texts.vote(text)) == expected
    voted = texts.voted_doc(text)
    assert [as_entity(ent) for ent in voted.ents] == expected
    assert voted[4].ent_iob_ == "O"  # "today" is annotated by at least one of them


@pytest.mark.parametrize("missing", [(2, 4), (3, 4)], ids=["whole entity", "part of it"])
def test_missing_annotation_is_no_error(tmp_path: Path, missing: tuple[int, int]) -> None:
    """An annotator who is right on all tokens that it has annotated misses nothing. What it adds
    elsewhere is wrong. One who has annotated none of the checked tokens has no scores."""
    gold = make_partial(WORDS, [PERSON, CITY], (4, 5))
    answers = {
        "right": make_partial(WORDS, [PERSON], missing),
        "wrong": make_partial(WORDS, [PERSON, (1, 2, "LOC")], missing),
        "elsewhere": make_partial(WORDS, [], (0, 4)),
        "silent": make_partial(WORDS, [], (0, 5)),
    }
    unchecked = make_docs(1, 2, blank_vocab())
    names = [save([doc, *unchecked], tmp_path / f"{name}.spacy") for name, doc in answers.items()]

    texts = AnsweredTexts(spacy.blank("xx"), [gold], names)

    assert score_answers(texts, 0) == (1, 1, 1)
    assert score_answers(texts, 1) == pytest.approx((1 / 2, 1, 2 / 3))
    n_tags = 2 * len(texts.labels) + 1
    counts = [numpy.zeros((len(texts.labels) + 1, n_tags, n_tags))] * len(names)
    errors = describe_errors(texts, counts)
    assert [row.n_checked for row in errors] == [1, 1, 1, 0]
    assert [row.f_score for row in errors] == [1, pytest.approx(2 / 3), None, None]


def test_the_known_part_of_an_entity_is_no_error(tmp_path: Path) -> None:
    """An annotator ends an entity where its annotation becomes missing."""
    gold = make_partial(WORDS, [PERSON, CITY], (0, 0))
    answer = make_partial(WORDS, [PERSON, (2, 3, "LOC")], (3, 4))
    name = save([answer, *make_docs(1, 2, blank_vocab())], tmp_path / "a.spacy")

    texts = AnsweredTexts(spacy.blank("xx"), [gold], [name])

    assert score_answers(texts, 0) == (1, 1, 1)


def test_a_doc_without_annotation_is_no_answer(tmp_path: Path) -> None:
    """The next doc with the same text is."""
    docs = make_docs(2, 1, blank_vocab())
    without = Doc(docs[0].vocab, words=[token.text for token in docs[0]])
    name = save([without, *docs], tmp_path / "a.spacy")

    texts = AnsweredTexts(spacy.blank("xx"), make_docs(1, 2, blank_vocab()), [name])

    assert texts.n_repeated == [0]
    assert texts.vote(texts.unchecked[0]) == [as_entity(ent) for ent in docs[0].ents]


def test_annotators_are_compared_where_both_have_annotated(tmp_path: Path) -> None:
    """One has left the city out."""
    whole = save([make_partial(WORDS, [PERSON, CITY], (0, 0))], tmp_path / "whole.spacy")
    part = save([make_partial(WORDS, [PERSON], (2, 3))], tmp_path / "part.spacy")

    texts = AnsweredTexts(spacy.blank("xx"), make_docs(1, 2, blank_vocab()), [whole, part])

    assert texts.agreement(0, 1) == 1
    assert texts.agreement(1, 0) == 1


def test_two_annotators_with_the_same_answers_are_noted(tmp_path: Path) -> None:
    """Both are believed, so their errors count twice."""
    vocab = blank_vocab()
    docs = make_docs(10, 2, vocab)
    names = [save(docs, tmp_path / name) for name in ("a.spacy", "b.spacy")]
    texts = AnsweredTexts(spacy.blank("xx"), make_docs(4, 1, vocab), names)

    (note,) = note_annotators(texts)

    assert "have nearly the same answers" in note


def test_other_names_of_labels_are_refused(tmp_path: Path) -> None:
    """An annotator who says PERSON where the checked docs say PER. One who also says PER has a
    label more."""
    vocab = blank_vocab()
    gold = make_docs(6, 1, vocab)
    answers = [doc.copy() for doc in gold]
    for answer in answers:
        (begin, end) = next((ent.start, ent.end) for ent in answer.ents if ent.label_ == "PER")
        answer.set_ents([Span(answer, begin, end, "PERSON")])
    unchecked = Doc(vocab, words=["Eve"])
    unchecked.set_ents([Span(unchecked, 0, 1, "PERSON")])
    name = save([*answers, unchecked], tmp_path / "llm.spacy")

    with pytest.raises(ValueError, match="got 'PERSON' where these have 'PER', 6 times"):
        AnsweredTexts(spacy.blank("xx"), gold, [name])

    unchecked.set_ents([Span(unchecked, 0, 1, "PER")])
    name = save([*answers, unchecked], tmp_path / "llm.spacy")
    assert AnsweredTexts(spacy.blank("xx"), gold, [name]).labels == ("LOC", "PER", "PERSON")


def test_without_texts_to_learn_from_an_error_says_so(folder: Path, tmp_path: Path) -> None:
    """No checked docs; no other docs; options that don't go together."""
    vocab = blank_vocab()
    docs = make_docs(4, 1, vocab)
    name = save(docs, tmp_path / "a.spacy")

    with pytest.raises(ValueError, match="gold_path: expected checked docs, got none"):
        AnsweredTexts(spacy.blank("xx"), [], [name])
    with pytest.raises(ValueError, match="expected answers to texts that aren't in `gold_path`"):
        AnsweredTexts(spacy.blank("xx"), docs, [name])
    config = Config().from_disk(folder / "student.cfg", interpolate=False)
    with pytest.raises(ValueError, match="gold_path: expected checked texts"):
        distill([name], config, [], tmp_path, noise="channel")
    gold_path = folder / "gold.spacy"
    with pytest.raises(ValueError, match="noise: expected no `soft`"):
        distill([name], config, [], tmp_path, noise="channel", gold_path=gold_path, incomplete=True)


def test_checked_texts_are_counted_by_true_and_observed_tags(folder: Path, tmp_path: Path) -> None:
    """An annotator misses a person of two tokens, and finds a city. A token whose gold annotation
    is missing counts nowhere."""
    nlp = spacy.blank("xx")
    words = ["Ana", "Bob", "visits", "Rome", "today"]
    gold = Doc(nlp.vocab, words=words)
    gold.set_ents([Span(gold, 0, 2, "PER"), Span(gold, 3, 4, "LOC")], missing=[gold[4:5]])
    answer = Doc(nlp.vocab, words=words)
    answer.set_ents([Span(answer, 3, 4, "LOC")])
    other = Doc(nlp.vocab, words=["Eve"])
    other.set_ents([])
    name = save([answer, other], tmp_path / "a.spacy")
    config = Config().from_disk(folder / "student.cfg", interpolate=False)
    texts = AnsweredTexts(nlp, [gold], [name])

    training = ChannelTraining(short_training(config, texts.labels), texts)
    (counts,) = training.count_checked(texts.checked)

    # O, B-LOC, I-LOC, B-PER, I-PER: state, true tag, observed tag
    expected = numpy.zeros((3, 5, 5))
    for place in [(0, 3, 0), (0, 4, 0), (0, 0, 0), (0, 1, 1)]:
        expected[place] = 1
    assert_allclose(counts, expected)


def test_models_that_make_soft_targets_have_half_of_the_training(folder: Path) -> None:
    """The config of the student stays as it is."""
    config = Config().from_disk(folder / "student.cfg", interpolate=False)
    config["components"]["ner"]["outside"] = "before"
    config["components"]["ner"]["model"]["features"]["document"] = {"LOWER": 1}
    config["components"]["ner"]["loss"] = make_loss(["Sequential", "Risk"], epochs=[5.0])
    config["training"].update(max_epochs=7, max_steps=0)
    before = config.copy()

    training = short_training(config, ["LOC"])

    component = training.config["components"]["ner"]
    assert component["outside"] == "single"
    assert component["model"]["features"]["document"] == {}
    assert component["loss"]["epochs"] == [2.5]
    assert training.config["training"]["max_epochs"] == 4
    assert training.config["training"]["max_steps"] == 0  # no limit
    assert training.max_iterations == MOST_ITERATIONS // 2
    assert config == before


def test_limits_of_training_that_a_config_does_not_have_are_those_of_spacy(folder: Path) -> None:
    """spaCy trains for 20,000 steps, and without a limit on epochs. A limit may be a variable."""
    config = Config().from_disk(folder / "student.cfg", interpolate=False)
    del config["training"]["max_epochs"]
    del config["training"]["max_steps"]
    shortened = short_training(config, ["LOC"]).config["training"]
    assert (shortened["max_epochs"], shortened["max_steps"]) == (0, 10_000)

    config["vars"] = {"steps": 7}
    config["training"]["max_steps"] = "${vars.steps}"
    assert short_training(config, ["LOC"]).config["training"]["max_steps"] == 4


def test_models_take_the_given_number_of_iterations(folder: Path) -> None:
    """The start is evaluated, too."""
    config = Config().from_disk(folder / "student.cfg", interpolate=False)
    docs = make_docs(4, 1, blank_vocab())
    training = replace(short_training(config, ["LOC", "PER"]), max_iterations=2)

    trained = training.train(Example(doc, doc) for doc in docs)

    assert trained.ner.progress.steps == 3


def test_what_is_changed_is_counted_by_overlap() -> None:
    """An entity elsewhere is added, one with another border or label is changed, and one that
    nothing overlaps is dropped: (9, 10) is next to an entity."""
    voted = [(0, 1, "PER"), (3, 5, "LOC"), (7, 8, "PER"), (9, 10, "LOC")]
    corrected = [(0, 1, "PER"), (3, 4, "LOC"), (7, 8, "LOC"), (10, 11, "LOC"), (12, 13, "PER")]

    assert count_differences(voted, corrected) == (2, 1, 2)
