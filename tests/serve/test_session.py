"""An annotation session: which text comes next, proposals, training in the background."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import Doc

from spacy_costner.decoding import make_viterbi
from spacy_costner.metrics.learning_curves import expect_with_more
from spacy_costner.readers import Task, TaskSpan
from spacy_costner.serve import session as annotation_session
from spacy_costner.serve.proposals import ProposedSpan
from spacy_costner.serve.session import AnnotationSession, UnknownTextError
from spacy_costner.serve.session_training import COMPONENT, LEAST_TEXTS, MODEL
from spacy_costner.serve.session_vectors import RAW_FILE, learn_session_vectors
from spacy_costner.serve.store import AnnotationStore, SessionError, is_drawn
from spacy_costner.workflows.components import run_before

from ..support.annotation import LABELS, LANG, answer_next, gold_spans, make_session


def answer(session: AnnotationSession, key: str, *spans: ProposedSpan, seen: int = 0) -> bool:
    """Answer a text. Returns whether that replaced an answer that wasn't shown."""
    return session.answer(key, spans, is_left_out=False, seen_version=seen)


def test_each_text_is_shown_until_it_has_an_answer(tmp_path: Path) -> None:
    session = make_session(tmp_path, 12)
    shown = answer_next(session, 12)
    assert len({proposal.key for proposal in shown}) == 12
    assert session.next_text() is None


def test_one_of_five_texts_is_an_evaluation_text_and_not_trained_on(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    shown = answer_next(session, 20)
    assert [i for i, proposal in enumerate(shown, start=1) if proposal.is_evaluation] == [
        5, 10, 15, 20,
    ]  # fmt: skip
    assert len(session.store.accepted(is_evaluation=False)) == 16


def test_vectors_that_somebody_has_removed_are_learned_again(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    vectors_path = learn_session_vectors(session.store, LANG)
    assert vectors_path is not None
    shutil.rmtree(vectors_path)
    assert learn_session_vectors(session.store, LANG) == vectors_path
    assert spacy.load(vectors_path).vocab.vectors.data.any()


def test_evaluation_texts_are_never_chosen(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    measuring = {text.key for text in session.store.texts.values() if text.is_evaluation}
    assert measuring and session._chosen
    assert measuring.isdisjoint(session._chosen)


def test_a_model_learns_from_the_answers_and_proposes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 30 answers, one of five is to an evaluation text: 6, which are enough here. The model is
    trained on the other 24."""
    monkeypatch.setattr(annotation_session, "ENOUGH_EVALUATION_TEXTS", 6)
    session = make_session(tmp_path)
    assert session.propose("Today Ana left Oslo with bag 7 .") == []
    answer_next(session, 30)

    trained = session.train()

    assert trained is not None and trained.point.n_texts == 24 and trained.point.n_measured == 6
    assert trained.point.f is not None and trained.point.f > 0.9
    assert trained.point.expected_f is not None and trained.point.expected_f > 0.5
    expected = expect_with_more(trained.point.f, 24, 100)
    assert session.status()["next"] == {"n_texts": 124, "f": expected}
    person, town = session.propose("Today Ana left Oslo with bag 7 .")
    assert person[:3] == (1, 2, "PER") and town[:3] == (3, 4, "LOC")
    assert person.prob is not None and 0.5 < person.prob <= 1
    saved = spacy.load(tmp_path / MODEL)
    assert saved.meta["performance"]["ents_f"] == trained.point.f
    assert [ent.text for ent in saved("Today Ana left Oslo with bag 7 .").ents] == ["Ana", "Oslo"]
    assert saved.config["paths"]["train"] == str(session.store.train_path)


def test_few_evaluation_texts_give_no_f(tmp_path: Path) -> None:
    """An F of 100 on six evaluation texts would say little. 30 are needed."""
    session = make_session(tmp_path)
    answer_next(session, 30)
    trained = session.train()
    assert trained is not None and trained.point.n_measured == 6
    assert trained.point.f is None and trained.point.expected_f is not None
    status = session.status()
    assert [point["f"] for point in status["points"]] == [None]
    assert status["next"] is None


@pytest.mark.parametrize("chooses", [True, False])
def test_a_model_of_enough_texts_chooses_the_next_ones(
    chooses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model chooses texts with names that it has not seen before texts with names that it has
    seen often. Without a model the first texts are of seen names, as their words are the frequent
    ones. (Not all of these come first: a word is worth half as much in the next text.) There are 12
    answers: a model of them chooses if 12 are enough, and doesn't if 13 are asked for."""
    monkeypatch.setattr(annotation_session, "ENOUGH_TO_CHOOSE", 12 if chooses else 13)
    store = AnnotationStore(tmp_path)
    texts_of_seen_names = [f"Yesterday Ana left Oslo with bag {i} ." for i in range(60)]
    texts_of_new_names = []
    for word in ("Aaron", "Berta", "Cleo"):
        texts_of_new_names.append(f"Tomorrow {word} Zik came to Wudu of Pim")
    store.add_texts([*texts_of_seen_names, *texts_of_new_names])
    session = AnnotationSession(store, labels=LABELS, lang=LANG)
    n_answers = 0
    for stored in list(store.texts.values()):
        if stored.text.startswith("Yesterday") and not stored.is_evaluation and n_answers < 12:
            # As a person would answer: of the proposal, `gold_spans` takes only the words.
            answer(session, stored.key, *gold_spans(session.proposal(stored.key)))
            n_answers += 1
    session.train()
    texts = [store.texts[key].text for key in session._chosen]
    # Some may be evaluation texts, which are never chosen.
    n_new = sum(not text.is_evaluation and "Zik" in text.text for text in store.texts.values())
    assert n_new
    assert ["Zik" in text for text in texts[:n_new]] == [chooses] * n_new


def test_evaluation_texts_have_no_proposals(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    answer_next(session, 30)
    session.train()
    for key, stored in session.store.texts.items():
        if key not in session.store.answers:
            assert bool(session.proposal(key).spans) != stored.is_evaluation


def test_what_an_annotator_has_found_is_proposed_and_texts_come_in_random_order(
    tmp_path: Path,
) -> None:
    """Only labels of the session are proposed, only for training texts, and only where the
    annotator has the text."""
    session = make_session(tmp_path)
    tasks: dict[str, Task] = {}
    for stored in list(session.store.texts.values())[:40]:
        spans = [TaskSpan(0, 9, "LOC"), TaskSpan(10, 13, "TIME")]
        tasks[stored.text] = Task(stored.text, spans)
    session = AnnotationSession(session.store, labels=LABELS, lang=LANG, proposals=tasks)

    shown = answer_next(session, 60)

    for proposal in shown:
        text = session.store.texts[proposal.key].text
        is_proposed = text in tasks and not proposal.is_evaluation
        assert proposal.spans == ([ProposedSpan(0, 1, "LOC")] if is_proposed else [])
    training = [proposal.key for proposal in shown if not proposal.is_evaluation]
    assert training == session._training_keys[: len(training)]


def test_a_model_proposes_while_training_chooses_texts_with_it(tmp_path: Path) -> None:
    """In a session, one thread trains, and then runs the model on texts to choose the next ones. At
    the same time another thread asks for proposals. Here the model proposes between two steps of
    such a run: when the run asks for its first doc."""
    session = make_session(tmp_path)
    answer_next(session, 30)
    session.train()
    nlp = session._nlp
    assert nlp is not None
    proposed: list[ProposedSpan] = []

    def candidates() -> Iterator[Doc]:
        """A doc, before which the model proposes, while it is run on this doc."""
        proposed.extend(session.propose("Today Ana left Oslo with bag 7 ."))
        yield nlp.make_doc("Tomorrow Bo left Rome")

    run_before(nlp, COMPONENT, candidates())
    assert [span.label for span in proposed] == ["PER", "LOC"]


def test_an_answer_is_shown_again_as_it_was_given(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    (shown,) = answer_next(session, 1)
    again = session.proposal(shown.key)
    assert [*again.spans] == gold_spans(shown)
    assert again.version == 1


def test_the_last_answer_of_two_tabs_wins_and_is_reported(tmp_path: Path) -> None:
    """Both tabs have seen the text without an answer, which is version 0. So the second answer
    replaces one that its tab hasn't shown. The third answer replaces version 2, which was shown."""
    session = make_session(tmp_path)
    proposal = session.next_text()
    assert proposal is not None
    assert not answer(session, proposal.key, ProposedSpan(1, 2, "PER"), seen=0)
    assert answer(session, proposal.key, ProposedSpan(3, 4, "LOC"), seen=0)
    assert not answer(session, proposal.key, seen=2)
    assert session.proposal(proposal.key).spans == []


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 0, "PER")], "spans: expected a start before its end in a text of 8 tokens"),
        ([(7, 9, "PER")], "in a text of 8 tokens, got 7 to 9"),
        ([(-1, 2, "PER")], "in a text of 8 tokens, got -1 to 2"),
        ([(0, 2, "PER"), (1, 3, "LOC")], "expected no overlapping spans, got two at 1"),
        ([(0, 1, "<b>")], r"label: expected one of \['PER', 'LOC'\], got '<b>'"),
    ],
)
def test_an_answer_that_cannot_be_is_refused_and_not_saved(
    spans: list[Any], message: str, tmp_path: Path
) -> None:
    session = make_session(tmp_path)
    with pytest.raises(SessionError, match=message):
        answer(session, "text-0", *[ProposedSpan(*span) for span in spans])
    assert not session.store.answers


def test_an_unknown_text_is_refused(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    with pytest.raises(UnknownTextError, match="key: expected the key of a text, got 'text-99999'"):
        session.proposal("text-99999")
    with pytest.raises(UnknownTextError):
        answer(session, "text-99999")


def test_white_space_at_the_ends_of_an_entity_is_left_out(tmp_path: Path) -> None:
    """An answer counts tokens: "Ana" and a second space. The saved span counts characters:
    "Ana"."""
    store = AnnotationStore(tmp_path)
    store.add_texts(["Ana  left  Oslo"])
    session = AnnotationSession(store, labels=LABELS, lang=LANG)
    words = [word for word, _ in session.proposal("text-0").tokens]
    assert words == ["Ana", " ", "left", " ", "Oslo"]
    answer(session, "text-0", ProposedSpan(0, 2, "PER"))
    assert store.answers["text-0"].task.spans == [TaskSpan(0, 3, "PER")]
    with pytest.raises(SessionError, match="expected words, got whitespace at 1"):
        answer(session, "text-0", ProposedSpan(1, 2, "PER"))


def test_an_answer_whose_text_was_edited_is_shown_as_it_is_in_its_file(tmp_path: Path) -> None:
    """The text has a word more at its beginning than the text of the session."""
    session = make_session(tmp_path)
    answer(session, "text-0", ProposedSpan(1, 2, "PER"))
    path = session.store.train_path
    if session.store.answers["text-0"].is_evaluation:
        path = session.store.measure_path
    edited = path.read_text("utf8").replace("Yesterday", "Or yesterday")
    path.write_text(edited.replace('"start": 10, "end": 13', '"start": 13, "end": 16'), "utf8")

    again = make_session(tmp_path)
    proposal = again.proposal("text-0")

    assert [word for word, _ in proposal.tokens[:3]] == ["Or", "yesterday", "Ana"]
    assert proposal.spans == [ProposedSpan(2, 3, "PER")]
    answer(again, "text-0", ProposedSpan(2, 3, "LOC"), seen=1)
    assert again.store.answers["text-0"].task.text.startswith("Or yesterday Ana")


def test_texts_stay_in_the_folder_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process leaves what it has written to the folder for temporary files. Training and
    learning vectors write nothing there: here it doesn't exist."""
    session = make_session(tmp_path)
    answer_next(session, 30)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    trained = session.train()
    assert trained is not None and trained.point.n_measured == 6


def test_what_a_killed_process_has_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    answer_next(session, 30)
    session.train()
    before = {path for path in tmp_path.rglob("*")}
    for name in (".working-x", ".model.0123abcd.saving", ".vectors.0123abcd.saving"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_text("secret")
    (tmp_path / ".raw.jsonl.0123abcd.saving").write_text("secret")
    # It was killed while it replaced the model.
    (tmp_path / MODEL).rename(tmp_path / ".model.0123abcd.old")

    again = make_session(tmp_path)

    assert {path for path in tmp_path.rglob("*")} == before
    assert again.propose("Today Ana left Oslo with bag 7 .")


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    make_session(tmp_path)
    (tmp_path / MODEL).mkdir()
    (tmp_path / MODEL / "config.cfg").write_bytes(b"[nlp]\nlang = \xe9")
    with pytest.raises(ValueError, match="model: expected the last pipeline of the session"):
        make_session(tmp_path)


def test_texts_of_vectors_in_another_encoding_differ(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    (tmp_path / RAW_FILE).write_bytes(b"\xe9")
    assert learn_session_vectors(session.store, LANG) is not None


def test_too_few_answers_train_nothing(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    answer_next(session, LEAST_TEXTS)  # two evaluation texts, and 8 texts to train on
    assert session.train() is None
    # A session without any answer
    with pytest.raises(ValueError, match="expected at least 10 annotated texts with an entity"):
        make_session(tmp_path / "other").train_on_all()


@pytest.mark.slow
def test_a_thread_trains_whenever_there_are_new_answers(tmp_path: Path) -> None:
    """A model is trained on four of five texts that have an answer. The fifth measures how good the
    model is."""
    session = make_session(tmp_path)
    session.start()
    try:
        answer_next(session, 20)
        assert session.wait_until_trained()
        assert session.store.history[-1]["n_texts"] == 20 * 4 // 5
        answer_next(session, 5)
        assert session.wait_until_trained()
        assert session.store.history[-1]["n_texts"] == 25 * 4 // 5
        assert session.problem is None
    finally:
        session.stop()


def test_an_error_of_training_is_reported_and_answers_are_still_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(tmp_path)

    def fail() -> None:
        raise MemoryError("too much")

    monkeypatch.setattr(session, "train", fail)
    session.start()
    try:
        answer_next(session, 1)
        assert session.wait_until_trained()
        assert session.status()["problem"] == "training: MemoryError: too much"
        answer_next(session, 1)
        assert session.status()["annotated"] == 2
    finally:
        session.stop()


@pytest.mark.slow
def test_a_session_continues_with_its_model_and_its_history(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    answer_next(session, 30)
    session.train()

    again = make_session(tmp_path)

    assert again.propose("Today Ana left Oslo with bag 7 .")
    assert again.status()["annotated"] == 30
    again.train()
    assert len(again.store.history) == 1  # the same texts are no new point


def answer_all(session: AnnotationSession, keys: list[str], *, is_right: bool) -> None:
    """Answer texts, or replace their answers: with their entities, or with none."""
    for key in keys:
        proposal = session.proposal(key)
        spans = gold_spans(proposal) if is_right else []
        answer(session, key, *spans, seen=proposal.version)


def test_corrected_answers_are_a_new_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of texts stay the same. A skipped text doesn't change the model, and its training
    run is no new point. A label that was changed in the file is one, in the next session."""
    monkeypatch.setattr(annotation_session, "ENOUGH_EVALUATION_TEXTS", 6)
    session = make_session(tmp_path)
    texts = session.store.texts.values()
    measuring = [text.key for text in texts if text.is_evaluation][:6]
    training = [text.key for text in texts if not text.is_evaluation]
    answer_all(session, training[:15], is_right=True)
    answer_all(session, measuring, is_right=False)
    session.train()

    answer_all(session, measuring, is_right=True)
    session.train()
    session.answer(training[15], [], is_left_out=True, seen_version=0)
    session.train()

    assert [point["f"] for point in session.status()["points"]] == [0.0, 1.0]
    train_path = session.store.train_path
    text = train_path.read_text("utf8")
    train_path.write_text(text.replace('"PER"', '"LOC"', 1), encoding="utf8")
    again = make_session(tmp_path)
    again.train()
    assert len(again.store.history) == 3


@pytest.mark.slow
@pytest.mark.parametrize("is_good", [True, False])
def test_a_given_model_stays_until_one_of_the_session_is_better(
    is_good: bool, tmp_path: Path
) -> None:
    """The F of the given model is 1, so that no other one is better, or 0, as its bias is so low
    that it finds nothing."""
    teacher = make_session(tmp_path / "teacher")
    answer_next(teacher, 60)
    trained = teacher.train()
    assert trained is not None
    store = AnnotationStore(tmp_path / "session")
    store.add_texts([stored.text for stored in teacher.store.texts.values()])
    if not is_good:
        trained.nlp.get_pipe(COMPONENT).set_decoding(make_viterbi(bias=-1000.0))
    session = AnnotationSession(store, labels=LABELS, lang=LANG, start_model=trained.nlp)
    assert bool(session.propose("Today Ana left Oslo with bag 7 .")) is is_good
    answer_next(session, 15)
    session.train()
    assert (session._nlp is trained.nlp) is is_good
    assert session.propose("Today Ana left Oslo with bag 7 .")


@pytest.mark.slow
def test_a_session_of_few_texts_continues_to_choose_by_the_given_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The given model finds nothing, so that the model of 12 texts replaces it."""
    teacher = make_session(tmp_path / "teacher")
    answer_next(teacher, 60)
    trained = teacher.train()
    assert trained is not None
    trained.nlp.get_pipe(COMPONENT).set_decoding(make_viterbi(bias=-1000.0))
    choosing_models: list[Any] = []
    monkeypatch.setattr(
        AnnotationSession, "_choose", lambda session, nlp: choosing_models.append(nlp) or []
    )

    def start() -> AnnotationSession:
        """Start the session, or resume it."""
        store = AnnotationStore(tmp_path / "session")
        store.add_texts([stored.text for stored in teacher.store.texts.values()])
        return AnnotationSession(store, labels=LABELS, lang=LANG, start_model=trained.nlp)

    session = start()
    answer_next(session, 15)
    session.train()
    again = start()

    assert again._nlp is not trained.nlp
    assert choosing_models == [trained.nlp, trained.nlp]


def test_a_given_model_without_our_component_is_refused(tmp_path: Path) -> None:
    store = AnnotationStore(tmp_path)
    with pytest.raises(ValueError, match="expected a pipeline with a component of factory"):
        AnnotationSession(store, labels=LABELS, lang=LANG, start_model=spacy.blank(LANG))


def test_proposals_of_a_given_model_have_tokens_and_labels_of_the_session(tmp_path: Path) -> None:
    """The model has two tokens in "don't", the session has one. The session has no towns either."""
    teacher = make_session(tmp_path / "teacher")
    answer_next(teacher, 60)
    trained = teacher.train()
    assert trained is not None
    trained.nlp.tokenizer.add_special_case("don't", [{"ORTH": "do"}, {"ORTH": "n't"}])
    store = AnnotationStore(tmp_path / "session")
    session = AnnotationSession(store, labels=["PER"], lang=LANG, start_model=trained.nlp)

    (person,) = session.propose("I don't know . Yesterday Ana left Oslo with bag 7 .")

    assert person[:3] == (5, 6, "PER")


def test_the_last_training_is_on_all_answers(tmp_path: Path) -> None:
    """Answers to evaluation texts are among them. So none is left to measure F."""
    session = make_session(tmp_path)
    answer_next(session, 20)
    trained = session.train_on_all()
    assert trained.point.n_texts == 20 and trained.point.f is None


def test_texts_of_another_tool_are_drawn_for_evaluation_by_their_digest(tmp_path: Path) -> None:
    """The text alone decides, by `is_drawn`, whether it is an evaluation text. Some are."""
    session = make_session(tmp_path)
    texts = [f"Text number {i}" for i in range(40)]

    for i, text in enumerate(texts):
        session.answer_task(f"task-{i}", Task(text, []))

    are_evaluation = [answer.is_evaluation for answer in session.store.answers.values()]
    assert are_evaluation == [is_drawn(text) for text in texts]
    assert 0 < sum(are_evaluation) < 40
    status = session.status()
    assert status["annotated"] == 40
    assert status["measured"] == sum(are_evaluation)


@pytest.mark.parametrize(
    ("n_texts", "advice"), [(80, "more evaluation texts"), (40, "Add texts: calibration requires")]
)
def test_advice_is_to_add_texts_if_evaluation_texts_are_too_few(
    n_texts: int, advice: str, tmp_path: Path
) -> None:
    """Of 80 texts 30 are evaluation texts, enough for a calibration; of 40 texts only 20."""
    session = make_session(tmp_path, n_texts)
    answer_next(session, 20)
    assert advice in session.status()["advice"]


def test_the_first_model_comes_after_ten_texts_without_evaluation_texts(tmp_path: Path) -> None:
    """Of the first 12 texts 2 are evaluation texts, which docs/serve.md says."""
    session = make_session(tmp_path)
    for n_annotated in range(1, 13):
        assert session.train() is None
        answer_next(session, 1)
        n_evaluation = n_annotated // 5
        n_more = 10 - (n_annotated - n_evaluation)
        advice = session.status()["advice"]
        assert advice.startswith(f"Annotate {n_more} more texts for a first model.") == (n_more > 0)
        assert ("Evaluation texts don't count" in advice) == (n_more > 0)
    assert session.train() is not None


def test_the_status_says_what_to_do_next(tmp_path: Path) -> None:
    """A first model needs `LEAST_TEXTS` = 10 texts. Nothing has been measured, so there is no
    corpus for the option --dev."""
    session = make_session(tmp_path / "my texts")
    assert "Annotate 10 more texts" in session.status()["advice"]
    proposal = session.next_text()
    assert proposal is not None
    session.answer(proposal.key, [], is_left_out=True, seen_version=0)
    status = session.status()
    assert status["left_out"] == 1 and status["annotated"] == 0 and status["entities"] == 0
    # A shell takes the quoted path, which has a space, as a single word.
    assert f"--train '{session.store.train_path}'" in status["command"]
    assert "--dev" not in status["command"]
