"""`costner serve` as the backend of a real Label Studio: `make test-label-studio`."""

import json
import os
import random
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spacy
from make_demo_corpus import make_corpus
from spacy.tokens import Doc

from spacy_costner.readers import CorpusInfo, read_docs
from spacy_costner.serve.label_studio import NAME
from spacy_costner.serve.store import AnnotationStore, Answer, is_drawn

from ..support.label_studio import LabelStudio, free_port, label_studio, needs_label_studio
from ..support.serving import served

pytestmark = needs_label_studio

SPANISH = Path(__file__).parents[3] / "shared" / "data" / "conll2002_es" / "esp.train"
N_TEXTS = 160
N_ANNOTATED = 60
N_FIRST = 14
"""The number of annotated texts after which the predictions are compared with the predictions after
all answers."""

Span = tuple[int, int, str]
"""Begin and end in characters, and the label."""


def read_gold() -> tuple[str, dict[str, list[Span]]]:
    """The language and the entities of different texts: Spanish news or, where these are missing,
    the demo corpus."""
    docs: list[Doc]
    if SPANISH.exists():
        lang = "es"
        docs = list(read_docs(spacy.blank(lang), SPANISH, info=CorpusInfo()))
    else:
        lang = "en"
        docs = list(make_corpus("train").get_docs(spacy.blank(lang).vocab))
    gold: dict[str, list[Span]] = {}
    random.Random(0).shuffle(docs)  # sentences of an article are alike
    for doc in docs:
        if len(doc) > 5 and len(gold) < N_TEXTS:
            gold[doc.text] = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    return lang, gold


def labeling_config(labels: list[str]) -> str:
    elements = "".join(f'<Label value="{label}"/>' for label in labels)
    return (
        f'<View><Labels name="entity" toName="body">{elements}</Labels>'
        '<Text name="body" value="$text"/></View>'
    )


def as_result(text: str, spans: list[Span]) -> list[dict[str, Any]]:
    """Entities as the editor of Label Studio sends them."""
    results: list[dict[str, Any]] = []
    for i, (start, end, label) in enumerate(spans):
        value = {"start": start, "end": end, "text": text[start:end], "labels": [label]}
        names = {"from_name": "entity", "to_name": "body", "type": "labels", "origin": "manual"}
        results.append({"id": f"region-{i}", "value": value, **names})
    return results


def wait_until(is_so: Callable[[], Any], seconds: float = 600) -> Any:
    """Wait until something is true. Returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = is_so()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"not so in {seconds} seconds")


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelStudio]:
    """With a database that is kept in the folder LABEL_STUDIO_DATA, or in a new one: this takes a
    minute or more."""
    kept = os.environ.get("LABEL_STUDIO_DATA")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("label-studio")
    with label_studio(folder) as running:
        yield running


class Project:
    """A project with texts, and the backend that is connected to it.

    studio (LabelStudio): The Label Studio.
    folder (Path): The folder of the session.
    """

    def __init__(self, studio: LabelStudio, folder: Path) -> None:
        self.studio = studio
        self.folder = folder
        self.lang, self.gold = read_gold()
        self.port = free_port()
        labels: set[str] = set()
        for spans in self.gold.values():
            labels.update(label for _, _, label in spans)
        self.labels = sorted(labels)
        settings = {"title": "entities", "label_config": labeling_config(self.labels)}
        self.id: int = studio.call("POST", "projects/", settings)["id"]
        studio.call("POST", f"projects/{self.id}/import", [{"text": text} for text in self.gold])

    def serve(self, *options: str) -> Any:
        """Serve the session, always at the same port."""
        return served(self.folder, "--label-studio", "--lang", self.lang, *options, port=self.port)

    def connect(self, **options: str) -> None:
        """Connect the backend, as docs/serve.md says."""
        backend = {"project": self.id, "url": f"http://127.0.0.1:{self.port}", "title": NAME}
        backend |= options
        assert self.studio.call("POST", "ml", backend)["readable_state"] == "Connected"
        self.studio.call("PATCH", f"projects/{self.id}/", {"sampling": "Uncertainty sampling"})

    def next_task(self) -> dict[str, Any]:
        """The task that an annotator sees next, by "Label All Tasks"."""
        task: dict[str, Any] = self.studio.call(
            "POST", f"dm/actions?id=next_task&project={self.id}", {}
        )
        return task

    def annotate(self, task: dict[str, Any]) -> int:
        """Annotate a task from gold. Returns the id of the annotation."""
        text = task["data"]["text"]
        annotation = {"result": as_result(text, self.gold[text]), "lead_time": 1.0}
        made: dict[str, Any] = self.studio.call(
            "POST", f"tasks/{task['id']}/annotations/", annotation
        )
        annotation_id: int = made["id"]
        return annotation_id

    def tasks(self) -> list[dict[str, Any]]:
        """All tasks, with predictions and annotations."""
        query = f"tasks?project={self.id}&page_size={N_TEXTS}&fields=all"
        tasks: list[dict[str, Any]] = self.studio.call("GET", query)["tasks"]
        return tasks

    def status(self) -> dict[str, Any]:
        """The status of the session."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status") as response:
            status: dict[str, Any] = json.loads(response.read())
        return status

    def wait_for_answers(self, n: int) -> None:
        """Wait until the session has this number of answers."""
        wait_until(lambda: self.status()["annotated"] == n)

    def wait_for_training(self) -> None:
        """Wait until the model has learned all answers."""

        def has_learned() -> bool:
            status = self.status()
            n_texts = status["annotated"] - status["measured"]
            points = status["points"]
            return bool(points) and points[-1]["n_texts"] == n_texts and not status["is_training"]

        wait_until(has_learned)

    def answers(self) -> dict[str, Answer]:
        """The answers in the folder."""
        return AnnotationStore(self.folder).answers


def newest_prediction(task: dict[str, Any]) -> dict[str, Any]:
    prediction: dict[str, Any] = max(task["predictions"], key=lambda found: found["id"])
    return prediction


def f_score(project: Project, keys: set[int]) -> float:
    """F of the newest predictions of some tasks."""
    n_correct = n_predicted = n_gold = 0
    for task in project.tasks():
        if task["id"] in keys:
            predicted: set[Span] = set()
            for result in newest_prediction(task)["result"]:
                value = result["value"]
                predicted.add((value["start"], value["end"], value["labels"][0]))
            gold = set(project.gold[task["data"]["text"]])
            n_correct += len(predicted & gold)
            n_predicted += len(predicted)
            n_gold += len(gold)
    return 2 * n_correct / max(n_predicted + n_gold, 1)


def test_a_model_learns_while_people_annotate_in_label_studio(
    studio: LabelStudio, tmp_path: Path
) -> None:
    """60 texts, with the backend killed and started again in between."""
    project = Project(studio, tmp_path / "session")
    with project.serve() as (process, _):
        project.connect()
        (webhook,) = studio.call("GET", f"webhooks/?project={project.id}")
        assert webhook["url"] == f"http://127.0.0.1:{project.port}/webhook"
        assert webhook["send_for_all_actions"] and webhook["send_payload"]

        for _ in range(N_FIRST):
            project.annotate(project.next_task())
        project.wait_for_answers(N_FIRST)
        project.wait_for_training()
        studio.act(project.id, "retrieve_tasks_predictions")
        process.kill()
        process.wait()

    # While the server is down, a task is annotated, and an annotation changed.
    assert len(project.answers()) == N_FIRST
    missed = project.annotate(project.next_task())
    changed_key, changed = next(
        (key, answer) for key, answer in project.answers().items() if answer.task.spans
    )
    changed_id = int(changed_key.rpartition("-")[2])
    studio.call("PATCH", f"annotations/{changed_id}/", {"result": []})
    assert len(project.answers()) == N_FIRST

    with project.serve():
        studio.act(project.id, "retrieve_tasks_predictions")
        project.wait_for_answers(N_FIRST + 1)
        answers = project.answers()
        assert any(key.endswith(f"-annotation-{missed}") for key in answers)
        assert changed.task.spans and answers[changed_key].task.spans == []
        restored = as_result(changed.task.text, project.gold[changed.task.text])
        studio.call("PATCH", f"annotations/{changed_id}/", {"result": restored})

        held_out = {
            task["id"]
            for task in project.tasks()
            if not task["is_labeled"] and not is_drawn(task["data"]["text"])
        }
        for _ in range(N_ANNOTATED - N_FIRST - 1):
            project.annotate(project.next_task())
        project.wait_for_answers(N_ANNOTATED)
        assert set(project.answers()) == {
            f"task-{task['id']}-annotation-{annotation['id']}"
            for task in project.tasks()
            for annotation in task["annotations"]
        }

        # Predictions improve.
        project.wait_for_training()
        held_out -= {task["id"] for task in project.tasks() if task["is_labeled"]}
        f_before = f_score(project, held_out)
        studio.act(project.id, "retrieve_tasks_predictions")
        f_after = f_score(project, held_out)
        print(f"F of {len(held_out)} texts: {100 * f_before:.1f} to {100 * f_after:.1f}")
        assert f_after > f_before

        # The least certain tasks come first, with evaluation texts between them.
        waiting = {task["id"]: task for task in project.tasks() if not task["is_labeled"]}
        scores = {key: newest_prediction(task)["score"] for key, task in waiting.items()}
        in_order = sorted(waiting, key=lambda key: (scores[key], key))
        measuring = [key for key in in_order if is_drawn(waiting[key]["data"]["text"])]
        assert measuring
        for key in in_order[:5]:
            task = project.next_task()
            assert scores[task["id"]] == scores[key]
            annotation = {"result": [], "was_cancelled": True}
            studio.call("POST", f"tasks/{task['id']}/annotations/", annotation)
        wait_until(lambda: project.status()["left_out"] == 5)


def test_changes_and_deletions_reach_the_corpus(studio: LabelStudio, tmp_path: Path) -> None:
    project = Project(studio, tmp_path / "session")
    with project.serve():
        project.connect()
        annotations: dict[int, int] = {}
        for task in project.tasks()[:4]:
            annotations[task["id"]] = project.annotate(task)
        project.wait_for_answers(4)
        changed, unannotated, deleted, kept = annotations
        text = {task["id"]: task["data"]["text"] for task in project.tasks()}[changed]
        word_end = text.index(" ")
        label = project.labels[0]

        result = as_result(text, [(0, word_end, label)])
        studio.call("PATCH", f"annotations/{annotations[changed]}/", {"result": result})
        studio.call("DELETE", f"annotations/{annotations[unannotated]}/")
        studio.call("DELETE", f"tasks/{deleted}/")

        project.wait_for_answers(2)
        answers = project.answers()
        changed_key = f"task-{changed}-annotation-{annotations[changed]}"
        assert set(answers) == {changed_key, f"task-{kept}-annotation-{annotations[kept]}"}
        (span,) = answers[changed_key].task.spans or ()
        assert (span.start, span.end, span.label) == (0, word_end, label)


def test_a_server_with_a_token_is_connected_as_the_page_says(
    studio: LabelStudio, tmp_path: Path
) -> None:
    """The backend by Basic authentication, its webhook by a header."""
    project = Project(studio, tmp_path / "session")
    with project.serve("--token", "s3cret"):
        project.connect(
            auth_method="BASIC_AUTH", basic_auth_user="anybody", basic_auth_pass="s3cret"
        )
        (webhook,) = studio.call("GET", f"webhooks/?project={project.id}")
        headers = {"Authorization": "Bearer s3cret"}
        studio.call("PATCH", f"webhooks/{webhook['id']}/", {"headers": headers})
        task = project.next_task()
        assert task["predictions"][0]["model_version"] == NAME
        project.annotate(task)
        wait_until(lambda: len(project.answers()) == 1)
