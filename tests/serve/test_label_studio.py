"""A session as a backend of Label Studio: its requests, as version 1.23 sends them."""

from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from spacy_costner.cli.output import errors_shown
from spacy_costner.readers import Task, TaskSpan
from spacy_costner.serve.label_studio import NAME, LabelStudioBackend, random_share
from spacy_costner.serve.labeling_config import read_labeling_config
from spacy_costner.serve.session import AnnotationSession
from spacy_costner.serve.store import AnnotationStore, SessionError, is_drawn

from ..support.annotation import LABELS, LANG, NAMES, TOWNS, make_texts

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


def test_the_session_has_the_labels_of_the_project(backend: LabelStudioBackend) -> None:
    """They are in the labeling config, which Label Studio sends when a project is connected. So are
    the names of the labels and of the text, and the key of the text in a task."""
    answer = backend.setup({"project": "1.1", "schema": CONFIG, "hostname": "http://localhost"})
    assert answer == {"model_version": "no model yet"}
    assert backend.session.labels == LABELS
    interface = read_labeling_config({"schema": CONFIG}, "schema")
    assert interface.labels == {"PER": "entities", "LOC": "entities"}
    assert interface.text_name == "body"
    assert interface.text_value == "$sentence"


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


@pytest.mark.parametrize(
    "text", ["https://example.org/a", "letter.pdf", "Ana left <b>Oslo</b>.", "data/upload/1.txt"]
)
def test_texts_that_look_like_something_else_are_saved_without_entities(
    text: str, backend: LabelStudioBackend
) -> None:
    """The labeling config says that the task has the text itself."""
    backend.webhook(webhook("ANNOTATION_CREATED", 7, text, result=[]))
    (answer,) = backend.session.store.answers.values()
    assert (answer.task.text, answer.task.spans) == (text, [])
    assert not backend.session.unsaved


def test_annotations_of_one_of_two_people_are_deleted(backend: LabelStudioBackend) -> None:
    backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0]))
    backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0], id=7))
    backend.webhook({"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 7}]})
    assert [*backend.session.store.answers] == ["task-7-annotation-107"]


def test_annotations_are_removed_with_their_task(backend: LabelStudioBackend) -> None:
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


def test_a_model_of_corrected_annotations_has_a_new_version_and_lower_scores(
    backend: LabelStudioBackend,
) -> None:
    """The number of annotations stays the same."""
    annotate(backend, TO_TRAIN[:12])
    backend.session.train()
    version = backend.model_version
    (prediction,) = predict(backend, TO_TRAIN[20])

    backend.webhook(webhook("ANNOTATION_UPDATED", 3, TO_TRAIN[3], result=[]))
    backend.session.train()

    assert backend.model_version != version
    (next_prediction,) = predict(backend, TO_TRAIN[20])
    # Scores are the certainty, from 0 to 1, less the number of trainings.
    assert -1 < prediction["score"] <= 0
    assert -2 < next_prediction["score"] <= -1


def test_proposals_of_another_annotator_are_predicted_instead_of_the_models_entities(
    tmp_path: Path,
) -> None:
    """Tasks are in random order, so their scores aren't the certainty of the model. Nothing is
    predicted for evaluation texts and for texts that the annotator hasn't annotated."""
    proposals: dict[str, Task] = {}
    for text in TEXTS:
        proposals[text] = Task(text, [TaskSpan(0, 9, "LOC")])  # Yesterday
    proposals["Not annotated"] = Task("Not annotated")
    store = AnnotationStore(tmp_path)
    session = AnnotationSession(store, labels=[], lang=LANG, proposals=proposals)
    backend = LabelStudioBackend(session)
    annotate(backend, TO_TRAIN[:12])
    backend.session.train()

    of_training, *of_others = predict(
        backend, TO_TRAIN[20], TO_MEASURE[0], "Hello", "Not annotated"
    )

    (found,) = of_training["result"]
    assert found["value"]["text"] == "Yesterday" and found["value"]["labels"] == ["LOC"]
    assert of_training["score"] == random_share(TO_TRAIN[20]) - 1
    assert [prediction["result"] for prediction in of_others] == [[], [], []]


def predict_task(backend: LabelStudioBackend, updated_at: str, *annotations: Any) -> None:
    """Ask for the prediction of task 7, as it was at a time, with its annotations."""
    task = {
        "id": 7,
        "data": {"sentence": TO_TRAIN[0]},
        "updated_at": updated_at,
        "annotations": list(annotations),
    }
    backend.predict({"tasks": [task], "label_config": CONFIG})


def test_annotations_made_while_the_server_was_down_come_with_the_tasks(
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


def test_answers_stay_if_tasks_have_only_ids_of_annotations(backend: LabelStudioBackend) -> None:
    """Annotation 107 still exists, annotation 108 was deleted."""
    for annotation_id in (107, 108):
        backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0], id=annotation_id))
    predict_task(backend, "2026-01-01T12:00:00Z", 107)
    assert [*backend.session.store.answers] == ["task-7-annotation-107"]


def test_an_answer_may_be_removed_by_another_request(
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


def test_each_model_gives_lower_scores_than_the_models_before(
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
    message = "annotation 101 of task 1: expected a text of at most 1,000,000 characters"
    with (
        pytest.warns(UserWarning, match=f"not saved: {message}"),
        pytest.raises(SessionError, match=f"{message}, got 1,200,000"),
    ):
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


def test_evaluation_texts_have_no_predictions_and_scores_between_the_others(
    backend: LabelStudioBackend,
) -> None:
    """Each of them gets the score of one of the others, drawn by lot: so Label Studio also shows
    evaluation texts, and not only at the end. Few of them have the same score."""
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


def test_an_answer_to_an_evaluation_text_stays_one_if_its_text_is_edited(
    backend: LabelStudioBackend,
) -> None:
    """The new text would be one to train on, if it was answered by itself."""
    backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_MEASURE[0]))
    backend.webhook(webhook("ANNOTATION_UPDATED", 7, TO_TRAIN[0]))
    (answer,) = AnnotationStore(backend.session.store.folder).answers.values()
    assert answer.is_evaluation and answer.task.text == TO_TRAIN[0]


# The labeling config


def config_of(elements: str) -> str:
    """A labeling config with labels of the text "body"."""
    labels = '<Labels name="entities" toName="body"><Label value="PER"/></Labels>'
    return f"<View>{labels}{elements}</View>"


TEXTS_OF_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "a variable with an underscore": (
        '<Text name="body" value="$r_TEXT"/>',
        {"title": "A letter", "r_TEXT": "Ana left"},
    ),
    "a name with other characters": (
        '<Text name="body" value="$r-TEXT 1"/>',
        {"title": "A letter", "r-TEXT 1": "Ana left"},
    ),
    "a value within a value": (
        '<Text name="body" value="$letter.body"/>',
        {"letter": {"title": "A letter", "body": "Ana left"}},
    ),
    "a value of a list": (
        '<Text name="body" value="$parts[1]"/>',
        {"parts": ["A letter", "Ana left"]},
    ),
    "two texts": (
        '<Text name="title" value="$text"/><Text name="body" value="$body"/>',
        {"text": "A letter", "body": "Ana left"},
    ),
    "a text that is not under its usual name": (
        '<Text name="body" value="$body"/>',
        {"text": "http://example.com/1", "body": "Ana left"},
    ),
    "a variable within text": (
        '<Text name="body" value="$name left"/>',
        {"name": "Ana", "title": "A letter"},
    ),
}
"""The text that is labelled, and the data of a task, where it is "Ana left"."""


@pytest.mark.parametrize("case", TEXTS_OF_CONFIGS)
def test_predictions_and_answers_have_the_same_text(case: str, backend: LabelStudioBackend) -> None:
    """Answers come by a webhook, and with the tasks to predict."""
    text, data = TEXTS_OF_CONFIGS[case]
    config = config_of(text)
    names = {"from_name": "entities", "to_name": "body", "type": "labels"}
    value = {"start": 0, "end": 3, "text": "Ana", "labels": ["PER"]}
    annotation = {"id": 1, "result": [{**names, "value": value}]}
    task = {"id": 7, "data": data}

    backend.webhook(
        {
            "action": "ANNOTATION_CREATED",
            "task": task,
            "annotation": annotation,
            "project": {"label_config": config},
        }
    )
    answers = backend.session.store.answers
    assert answers["task-7-annotation-1"].task[:2] == (
        "Ana left",
        [TaskSpan(0, 3, "PER", {"text": "Ana"})],
    )

    task = {**task, "annotations": [annotation, {**annotation, "id": 2}]}
    response = backend.predict({"tasks": [task], "label_config": config})
    assert len(response["results"]) == 1
    assert answers["task-7-annotation-2"].task.text == "Ana left"


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ('<Text name="body" value="text"/>', "got the value 'text'"),
        ('<Text name="body"/>', "got the value ''"),
        ('<Text name="body" value="$url" valueType="url"/>', "got one with valueType='url'"),
        ('<Text name="body" value="$x" encoding="base64"/>', "got one with encoding='base64'"),
        ('<HyperText name="body" value="$html"/>', "expected <Labels"),
        ("\ud800", "expected <Labels"),
    ],
)
def test_a_text_that_tasks_do_not_have_is_refused(
    elements: str, message: str, backend: LabelStudioBackend
) -> None:
    with pytest.raises(SessionError, match=f"^label_config: .*{message}"):
        backend.predict({"tasks": [], "label_config": config_of(elements)})


TWO_LABELS = """
<View>
  <Labels name="people" toName="body"><Label value="Person" alias="PER"/></Labels>
  <Labels name="places" toName="body"><Label value="LOC"/></Labels>
  <Text name="body" value="$sentence"/>
  <Choices name="mood" toName="body" perRegion="true"><Choice value="good"/></Choices>
</View>
"""


def test_each_label_has_the_name_of_its_element(backend: LabelStudioBackend) -> None:
    """Choices are no labels."""
    element_of = {"PER": "people", "LOC": "places"}
    for i, text in enumerate(TO_TRAIN[:40]):
        request = webhook("ANNOTATION_CREATED", i, text)
        results = request["annotation"]["result"]
        for found in results:
            found["from_name"] = element_of[found["value"]["labels"][0]]
        choice = {"from_name": "mood", "to_name": "body", "type": "choices"}
        results.append({**choice, "value": {"start": 0, "end": 9, "choices": ["good"]}})
        backend.webhook({**request, "project": {"label_config": TWO_LABELS}})
    assert backend.session.status()["entities"] == 80
    backend.session.train()

    tasks = [{"id": 1, "data": {"sentence": TO_TRAIN[0]}}]
    response = backend.predict({"tasks": tasks, "label_config": TWO_LABELS})

    names: list[tuple[str, str]] = []
    for found in response["results"][0]["result"]:
        names.append((found["value"]["labels"][0], found["from_name"]))
    assert names == [("PER", "people"), ("LOC", "places")]
    backend.setup({"schema": TWO_LABELS})
    assert backend.session.labels == ["PER", "LOC"]


def test_labels_of_a_second_text_are_named_and_not_read(backend: LabelStudioBackend) -> None:
    config = config_of(
        '<Text name="body" value="$sentence"/><Text name="title" value="$title"/>'
        '<Labels name="topics" toName="title"><Label value="TOPIC"/></Labels>'
    )
    request = webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0])
    topic = {"from_name": "topics", "to_name": "title", "type": "labels"}
    request["annotation"]["result"].append(
        {**topic, "value": {"start": 0, "end": 2, "text": "My", "labels": ["TOPIC"]}}
    )
    request = {**request, "project": {"label_config": config}}
    with pytest.warns(UserWarning, match="only labels of 'body' are read, not labels of 'title'"):
        backend.webhook(request)
    (answer,) = backend.session.store.answers.values()
    assert [span.label for span in answer.task.spans or ()] == ["PER", "LOC"]
    backend.webhook(request)  # no second warning


def test_an_answer_that_cannot_be_saved_is_in_the_status(backend: LabelStudioBackend) -> None:
    """The element with its labels isn't in the labeling config. It comes by a webhook, then with a
    task to predict, which is predicted nevertheless. Then it is mended, and another one deleted."""
    renamed = result(TO_TRAIN[0])
    renamed[0]["from_name"] = "old"
    message = r"labels by \['entities'\] of 'body', got \['old', 'body'\]"
    with (
        pytest.warns(UserWarning, match=f"not saved: annotation 107 of task 7: .*{message}"),
        pytest.raises(SessionError, match=message),
    ):
        backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0], result=renamed))
    status = backend.session.status()
    assert status["unsaved"] == 1 and not backend.session.store.answers
    assert status["unsaved_problems"][0].startswith("annotation 107 of task 7: annotations: exp")

    annotations = [{"id": i, "result": renamed} for i in (107, 108, 109)]
    with pytest.warns(UserWarning, match="annotation 107 of task 7: .*; 2 others"):
        predict_task(backend, "2026-01-01T10:00:00Z", *annotations)
    assert backend.session.status()["unsaved"] == 3

    backend.webhook(webhook("ANNOTATION_UPDATED", 7, TO_TRAIN[0]))
    backend.webhook({"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 108}]})
    predict_task(backend, "2026-01-01T11:00:00Z", {"id": 107, "result": result(TO_TRAIN[0])})
    assert backend.session.status()["unsaved"] == 0
    assert [*backend.session.store.answers] == ["task-7-annotation-107"]


@pytest.mark.filterwarnings("default:not saved")
def test_an_answer_that_cannot_be_saved_is_named_on_the_terminal(
    backend: LabelStudioBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server answers requests in threads."""

    def send() -> None:
        """Send an annotation without results."""
        with suppress(SessionError):
            backend.webhook(webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0], result=None))

    with errors_shown():
        thread = Thread(target=send)
        thread.start()
        thread.join()
    line = "Warning: not saved: annotation 107 of task 7: result: expected list, got None"
    assert capsys.readouterr().err == f"{line}\n"


def test_annotations_are_saved_even_if_others_cannot_be(backend: LabelStudioBackend) -> None:
    """Label Studio sends lists when predictions become annotations. Each annotation has the id of
    its task."""
    requests = [webhook("ANNOTATIONS_CREATED", i, TO_TRAIN[i]) for i in range(3)]
    annotations: list[dict[str, Any]] = []
    for i, request in enumerate(requests):
        annotations.append({**request["annotation"], "task": i})
    annotations[1]["result"] = [7]
    with (
        pytest.warns(UserWarning, match="not saved: annotation 101 of task 1"),
        pytest.raises(SessionError, match="annotation 101 of task 1: annotations: expected res"),
    ):
        backend.webhook(
            {
                **requests[0],
                "task": [request["task"] for request in requests],
                "annotation": annotations,
            }
        )
    assert [*backend.session.store.answers] == ["task-0-annotation-100", "task-2-annotation-102"]


def test_a_webhook_without_a_labeling_config_is_read_by_the_last_one(
    backend: LabelStudioBackend,
) -> None:
    request = webhook("ANNOTATION_CREATED", 7, TO_TRAIN[0])
    del request["project"]
    message = "annotation 107 of task 7: project: expected an object with label_config"
    with (
        pytest.warns(UserWarning, match=message),
        pytest.raises(SessionError, match=message),
    ):
        backend.webhook(request)
    assert backend.session.status()["unsaved"] == 1
    backend.setup({"schema": CONFIG})
    backend.webhook(request)
    assert backend.session.status()["unsaved"] == 0 and len(backend.session.store.answers) == 1


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
        "schema: expected <Labels",
    ),
    "tasks of text": (
        "predict",
        {"tasks": "all", "label_config": CONFIG},
        "tasks: expected list, got 'all'",
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
            result=[
                {
                    "from_name": "entities",
                    "to_name": "body",
                    "value": {"start": 0, "end": 9, "labels": ["PER"]},
                }
            ],
        ),
        "webhook, task 1: annotations: expected a start before its end",
    ),
}


@pytest.mark.filterwarnings("ignore:not saved")
@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_a_bad_request_is_refused_and_nothing_saved(case: str, backend: LabelStudioBackend) -> None:
    call, request, message = BAD_REQUESTS[case]
    with pytest.raises(SessionError, match=message):
        getattr(backend, call)(request)
    assert not backend.session.store.answers


def test_the_app_answers_label_studio(backend: LabelStudioBackend) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    from spacy_costner.serve.app import make_app

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
