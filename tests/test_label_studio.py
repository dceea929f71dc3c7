"""A session as a backend of Label Studio: its requests, as version 1.23 sends them."""

from pathlib import Path
from typing import Any

import pytest

from spacy_costner.analysis.annotation_session import AnnotationSession, SessionError
from spacy_costner.analysis.annotation_store import AnnotationStore, is_drawn
from spacy_costner.analysis.label_studio import NAME, LabelStudioBackend, read_labeling_config

from .support.annotation import LABELS, LANG, NAMES, TOWNS, make_texts

CONFIG = """
<View>
  <!-- what is annotated -->
  <Labels name="entities" toName="body"><Label value="PER"/><Label value="LOC"/></Labels>
  <Text name="body" value="$sentence"/>
</View>
"""
TEXTS = make_texts(120)
TO_TRAIN = [text for text in TEXTS if not is_drawn(text)]
TO_MEASURE = [text for text in TEXTS if is_drawn(text)]


@pytest.fixture
def backend(tmp_path: Path) -> LabelStudioBackend:
    session = AnnotationSession(AnnotationStore(tmp_path), labels=[], lang=LANG)
    return LabelStudioBackend(session)


def utf16_offset(text: str, n_characters: int) -> int:
    return len(text[:n_characters].encode("utf-16-le")) // 2


def result(text: str) -> list[dict[str, Any]]:
    """The entities of a text of `make_texts`, as results of Label Studio."""
    results: list[dict[str, Any]] = []
    for label, words in (("PER", NAMES), ("LOC", TOWNS)):
        for word in words:
            if word in text.split():
                start = text.index(word)
                value = {
                    "start": utf16_offset(text, start),
                    "end": utf16_offset(text, start + len(word)),
                    "text": word,
                    "labels": [label],
                }
                names = {"from_name": "entities", "to_name": "body", "type": "labels"}
                results.append({**names, "id": word, "value": value})
    return results


def webhook(action: str, i: int, text: str, **annotation: Any) -> dict[str, Any]:
    """What Label Studio sends when task `i` is annotated, as annotation 100 + i."""
    return {
        "action": action,
        "task": {"id": i, "data": {"sentence": text}},
        "annotation": {"id": 100 + i, "result": result(text), **annotation},
        "project": {"id": 1, "label_config": CONFIG},
    }


def annotate(backend: LabelStudioBackend, texts: list[str]) -> None:
    for i, text in enumerate(texts):
        backend.webhook(webhook("ANNOTATION_CREATED", i, text))


def predict(backend: LabelStudioBackend, *texts: str) -> list[dict[str, Any]]:
    tasks = [{"id": i, "data": {"sentence": text}} for i, text in enumerate(texts)]
    response = backend.predict({"tasks": tasks, "label_config": CONFIG, "project": "1.1"})
    results: list[dict[str, Any]] = response["results"]
    return results


def test_the_labels_are_those_of_the_project(backend: LabelStudioBackend) -> None:
    """They are in the labeling config, which Label Studio sends when a project is connected. So are
    the names of the labels and of the text, and the key of the text in a task."""
    answer = backend.setup({"project": "1.1", "schema": CONFIG, "hostname": "http://localhost"})
    assert answer == {"model_version": "no model yet"}
    assert backend.session.labels == LABELS
    interface = read_labeling_config(CONFIG)
    assert interface.labels_name == "entities"
    assert interface.text_name == "body"
    assert interface.text_key == "sentence"


def test_annotations_are_saved_changed_and_deleted(backend: LabelStudioBackend) -> None:
    text = TO_TRAIN[0]  # Yesterday Ana left Oslo with bag 0 .
    backend.webhook(webhook("ANNOTATION_CREATED", 7, text))
    (answer,) = backend.session.store.answers.values()
    spans: list[tuple[str, str]] = []
    for span in answer.task.spans or ():
        spans.append((text[span.start : span.end], span.label))
    assert spans == [("Ana", "PER"), ("Oslo", "LOC")]

    backend.webhook(webhook("ANNOTATION_UPDATED", 7, text, result=[]))
    (answer,) = backend.session.store.answers.values()
    assert answer.task.spans == []

    backend.webhook({"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 107}]})
    assert not backend.session.store.answers


def test_of_two_people_the_annotations_of_one_are_deleted(backend: LabelStudioBackend) -> None:
    backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0]))
    backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0], id=7))
    backend.webhook({"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 7}]})
    assert [*backend.session.store.answers] == ["task-7-annotation-107"]


def test_annotations_go_with_their_task(backend: LabelStudioBackend) -> None:
    annotate(backend, TO_TRAIN[:12])
    backend.webhook({"action": "TASKS_DELETED", "tasks": [{"id": 1}]})
    assert len(backend.session.store.answers) == 11  # task 11 stays
    assert "task-1-annotation-101" not in backend.session.store.answers


def test_a_skipped_task_is_left_out(backend: LabelStudioBackend) -> None:
    backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0], was_cancelled=True))
    (answer,) = backend.session.store.answers.values()
    assert answer.is_left_out


def test_other_actions_change_nothing(backend: LabelStudioBackend) -> None:
    assert backend.webhook({"action": "PROJECT_UPDATED"}) == {"action": "PROJECT_UPDATED"}
    assert not backend.session.store.answers


def test_predictions_count_utf_16_and_have_the_names_of_the_project(
    backend: LabelStudioBackend,
) -> None:
    """The editor of Label Studio counts as JavaScript does: 😀 is two units there, and one
    character in Python. The text begins with it, so all offsets are one larger than in Python."""
    annotate(backend, TO_TRAIN[:40])
    backend.session.train()
    text = next(f"😀 {text}" for text in TO_TRAIN if not is_drawn(f"😀 {text}"))

    (prediction,) = predict(backend, text)

    assert prediction["model_version"] == NAME
    assert backend.model_version != "no model yet"
    first = prediction["result"][0]
    assert (first["from_name"], first["to_name"], first["type"]) == ("entities", "body", "labels")
    expected = [found["value"] for found in result(text)]
    assert [found["value"] for found in prediction["result"]] == expected
    assert all(0 < found["score"] <= 1 for found in prediction["result"])
    # The score is the certainty, from 0 to 1, less the number of trainings, which is 1.
    assert -1 < prediction["score"] <= 0


def predict_task(backend: LabelStudioBackend, updated_at: str, *annotations: Any) -> None:
    """Ask for the prediction of task 7, as it was at a time, with its annotations."""
    task = {
        "id": 7,
        "data": {"sentence": TO_TRAIN[0]},
        "updated_at": updated_at,
        "annotations": list(annotations),
    }
    backend.predict({"tasks": [task], "label_config": CONFIG})


def test_what_was_told_while_the_server_was_down_comes_with_the_tasks(
    backend: LabelStudioBackend,
) -> None:
    """A made, a changed and a deleted annotation. What is older than an answer changes nothing."""
    answers = backend.session.store.answers
    made = {"id": 1, "result": result(TO_TRAIN[0]), "updated_at": "2026-01-01T10:00:00.5Z"}
    changed = {**made, "result": [], "updated_at": "2026-01-01T11:00:00Z"}

    predict_task(backend, "2026-01-01T10:00:01Z", made)
    assert len(answers["task-7-annotation-1"].task.spans or ()) == 2
    predict_task(backend, "2026-01-01T11:00:01Z", changed)
    assert answers["task-7-annotation-1"].task.spans == []

    predict_task(backend, "2026-01-01T10:00:01Z", made)  # late
    predict_task(backend, "2026-01-01T09:00:00Z")  # before there was an annotation
    assert answers["task-7-annotation-1"].task.spans == []

    predict_task(backend, "2026-01-01T12:00:00Z")
    assert not answers


def test_an_answer_that_another_request_removes_meanwhile_is_no_error(
    backend: LabelStudioBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both annotations of a task were deleted. While the first answer is removed, another request
    removes the second one."""
    for annotation_id in (1, 2):
        backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0], id=annotation_id))
    answers = backend.session.store.answers
    remove = backend.session.remove

    def remove_all(key: str) -> bool:
        return all([remove(other_key) for other_key in list(answers)])

    monkeypatch.setattr(backend.session, "remove", remove_all)
    predict_task(backend, "2026-01-01T12:00:00Z")

    assert not answers


def test_the_scores_of_a_model_are_below_those_of_the_models_before(
    backend: LabelStudioBackend,
) -> None:
    """A task keeps its earlier predictions, and Label Studio takes the lowest score. Three models
    are compared: with 0, 20 and 40 answers."""
    highest = 1.0
    for begin, end in ((0, 0), (0, 20), (20, 40)):
        for i in range(begin, end):
            backend.webhook(webhook("ANNOTATION_CREATED", i, TO_TRAIN[i]))
        backend.session.train()
        scores = [prediction["score"] for prediction in predict(backend, *TEXTS)]
        assert max(scores) <= highest
        highest = min(scores)


def test_a_text_that_spacy_refuses_has_no_prediction_and_no_answer(
    backend: LabelStudioBackend,
) -> None:
    text = "a " * 600_000  # 1,200,000 characters
    (prediction,) = predict(backend, text)
    assert prediction["result"] == []
    with pytest.raises(SessionError, match="at most 1,000,000 characters, got 1,200,000"):
        backend.webhook(webhook("ANNOTATION_CREATED", 1, text))
    assert not backend.session.store.answers


def test_the_least_certain_text_has_the_lowest_score(backend: LabelStudioBackend) -> None:
    """The model has seen no name and no town of the strange text."""
    annotate(backend, TO_TRAIN[:40])
    backend.session.train()
    strange = next(
        text
        for text in (f"Tomorrow {word} Zik came to Wudu of Pim" for word in "ABCDEFGH")
        if not is_drawn(text)
    )
    known, unknown = predict(backend, TO_TRAIN[0], strange)
    assert unknown["score"] < known["score"]


def test_texts_that_measure_have_no_predictions_and_scores_between_the_others(
    backend: LabelStudioBackend,
) -> None:
    """Each of them gets the score of one of the others, drawn by lot: so Label Studio also shows
    texts that measure, and not only at the end. Few of them have the same score."""
    annotate(backend, TO_TRAIN[:40])
    backend.session.train()
    others = [prediction["score"] for prediction in predict(backend, *TO_TRAIN)]
    measuring = predict(backend, *TO_MEASURE)
    assert len(measuring) >= 8
    assert all(prediction["result"] == [] for prediction in measuring)
    scores = [prediction["score"] for prediction in measuring]
    assert set(scores) <= set(others)
    assert len(set(scores)) > len(scores) // 2
    for i, text in enumerate(TO_MEASURE):
        backend.webhook(webhook("ANNOTATION_CREATED", 1000 + i, text))
    assert backend.session.status()["measured"] == len(TO_MEASURE)


def test_an_answer_that_measures_stays_so_if_its_text_is_edited(
    backend: LabelStudioBackend,
) -> None:
    """The new text would be one to train on, if it was answered by itself."""
    backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_MEASURE[0]))
    backend.webhook(webhook("ANNOTATION_UPDATED", 7, TO_TRAIN[0]))
    (answer,) = AnnotationStore(backend.session.store.folder).answers.values()
    assert answer.is_measuring and answer.task.text == TO_TRAIN[0]


BAD_REQUESTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no config": ("predict", {"tasks": []}, "label_config: expected <Labels"),
    "no XML": (
        "predict",
        {"tasks": [], "label_config": "<View>"},
        "label_config: expected <Labels",
    ),
    "no labels": ("predict", {"tasks": [], "label_config": "<View/>"}, "expected <Labels"),
    "entities that grow": (
        "setup",
        {"schema": f'<!DOCTYPE x [<!ENTITY a "aa">]>{CONFIG.strip()}'},
        "label_config: expected <Labels",
    ),
    "tasks of text": (
        "predict",
        {"tasks": "all", "label_config": CONFIG},
        "tasks: expected a list",
    ),
    "no text": (
        "predict",
        {"tasks": [{"id": 1, "data": {"text": "Ana"}}], "label_config": CONFIG},
        "tasks: expected a task with a text under 'sentence'",
    ),
    "half a character": (
        "predict",
        {"tasks": [{"id": 1, "data": {"sentence": "\ud800"}}], "label_config": CONFIG},
        "expected a text that spaCy can read",
    ),
    "no task": ("webhook", {"action": "ANNOTATION_CREATED"}, "task: expected an object with an id"),
    "no annotation": (
        "webhook",
        {"action": "ANNOTATION_CREATED", "task": {"id": 1, "data": {"sentence": "Ana"}}},
        "annotation: expected an object with an id",
    ),
    "a span outside": (
        "webhook",
        webhook(
            "ANNOTATION_CREATED",
            1,
            "Ana",
            result=[{"value": {"start": 0, "end": 9, "labels": ["PER"]}}],
        ),
        "webhook, task 1: annotations: expected a start before its end",
    ),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_a_bad_request_is_refused_and_nothing_saved(case: str, backend: LabelStudioBackend) -> None:
    call, request, message = BAD_REQUESTS[case]
    with pytest.raises(SessionError, match=message):
        getattr(backend, call)(request)
    assert not backend.session.store.answers


def test_the_app_answers_label_studio(backend: LabelStudioBackend) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    from spacy_costner.serve import make_app

    app = make_app(backend.session)
    with testclient.TestClient(app, base_url="http://127.0.0.1:8765") as client:
        assert client.get("/health").json()["status"] == "UP"
        setup = client.post("/setup", json={"schema": CONFIG})
        assert setup.json() == {"model_version": "no model yet"}
        saved = client.post("/webhook", json=webhook("ANNOTATION_CREATED", 3, TO_TRAIN[0]))
        assert saved.status_code == 200
        tasks = [{"id": 1, "data": {"sentence": TO_TRAIN[1]}}]
        answer = client.post("/predict", json={"tasks": tasks, "label_config": CONFIG})
        assert len(answer.json()["results"]) == 1
        assert client.post("/predict", json={}).status_code == 400
    assert len(backend.session.store.answers) == 1
