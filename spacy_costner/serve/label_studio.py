"""An annotation session as a machine learning backend for Label Studio.

Label Studio requests predictions for its tasks, and sends annotations (webhooks). Values have the
form of its JSON. A fixed share of the texts are evaluation texts, and are not trained on: see
`is_drawn`. Evaluation texts get no predictions. Their scores are drawn from the scores of the other
tasks, so that they are shown among them.

With "Uncertainty sampling", the task with the lowest score comes next. Only predictions with the
name of the backend as their version count, so all predictions have the version `NAME`. A task keeps
its earlier predictions, and the lowest score counts. So each model gives lower scores than all
models before it. If /setup returns another version than a prediction has, Label Studio requests the
prediction again.

Annotations that are made while the server is down are not sent again. But a request for predictions
has the annotations of its tasks, so missing annotations are saved then.

https://labelstud.io/guide/ml_create
"""

import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..readers import TASK_FORMS, CorpusError, Task
from ..readers.context import CorpusInfo
from ..readers.files import FilePlace, shown
from ..readers.label_studio import read_label_studio
from .labeling_config import LabelingInterface, read_labeling_config
from .session import AnnotationSession
from .store import SessionError, field, is_drawn

NAME = "spacy_costner"
"""The version of all predictions. The backend must have this name in Label Studio."""

N_CERTAINTIES = 1000
"""The scores of evaluation texts are drawn from the scores of at most this number of other texts,
the last ones that were predicted."""

DELETED = ("ANNOTATIONS_DELETED", "ANNOTATION_DELETED")
SAVED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
"""The webhook actions after which an annotation is removed, or saved."""

UPDATED_AT = "updated_at"
"""The key of the time of the last change: of a task, of an annotation, and in the metadata of an
answer."""


class LabelStudioBackend:
    """Answers Label Studio's requests for a session.

    session (AnnotationSession): The session.
    """

    def __init__(self, session: AnnotationSession) -> None:
        self.session = session
        # The last labeling config that Label Studio has sent
        self._interface: LabelingInterface | None = None
        # How certain the model was of each of the last training texts, from 0 to 1
        self._certainties: deque[float] = deque(maxlen=N_CERTAINTIES)
        self._n_trainings_before = 0  # the number of trainings before these certainties

    @property
    def model_version(self) -> str:
        """The version of the model in Label Studio. It has the number of training texts, and the
        number of annotated evaluation texts."""
        history = self.session.store.history
        if not history:
            return "no model yet"
        # Somebody may have edited the history.
        n_texts, n_measured = history[-1].get("n_texts"), history[-1].get("n_measured")
        return f"{n_texts} texts, {n_measured} measure"

    def setup(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Connect a project: the session uses its labels from now on.

        request (Mapping[str, Any]): The JSON of the request.
        RETURNS (dict[str, Any]): The JSON of the response.
        RAISES (SessionError): If the labeling config of the project has no labels of a text.
        """
        interface = self._read_config(request, "schema")
        self.session.labels = list(interface.labels)
        return {"model_version": self.model_version}

    def predict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Predict tasks, and save the annotations that were made in them while the server was down.

        request (Mapping[str, Any]): The JSON of the request.
        RETURNS (dict[str, Any]): The JSON of the response.
        RAISES (SessionError): If the labeling config has no labels of a text, a task has no text,
            or spaCy can't make a doc from it.
        RAISES (OSError): If an annotation can't be saved.
        """
        interface = self._read_config(request, "label_config")
        tasks = field(request, "tasks", list)
        texts = [interface.text_of(task) for task in tasks]
        self._catch_up(tasks, interface)
        return {"results": self._predict_texts(texts, interface)}

    def _read_config(self, record: Mapping[str, Any], name: str) -> LabelingInterface:
        """Read a labeling config, and keep it for webhooks without one. If several texts have
        labels, warn of the texts that are not read."""
        interface = read_labeling_config(record, name)
        if interface.other_texts and interface != self._interface:
            warnings.warn(
                f"{name}: labels of several texts: only labels of {interface.text_name!r} are "
                f"read, not labels of {', '.join(map(repr, interface.other_texts))}",
                stacklevel=2,
            )
        self._interface = interface
        return interface

    def _config_of_project(self, request: Mapping[str, Any]) -> LabelingInterface:
        """The labeling config of the project in a webhook or, if it is missing, the last one that
        Label Studio has sent.

        RAISES (SessionError): If Label Studio has sent no labeling config.
        """
        project = field(request, "project", dict, {})
        if "label_config" in project:
            return self._read_config(project, "label_config")
        if self._interface is None:
            raise SessionError(f"project: expected an object with label_config, got {project}")
        return self._interface

    def _predict_texts(
        self, texts: Sequence[str], interface: LabelingInterface
    ) -> list[dict[str, Any]]:
        """Predict texts. Returns a prediction for each, in the form of Label Studio's JSON.

        RAISES (SessionError): If spaCy can't make a doc from a text.
        """
        n_trainings = len(self.session.store.history)
        if n_trainings != self._n_trainings_before:  # There is a new model.
            self._certainties.clear()
            self._n_trainings_before = n_trainings
        to_predict = [text for text in texts if not is_drawn(text)]
        try:
            predicted = dict(zip(to_predict, self.session.predict_texts(to_predict)))
        except ValueError as error:
            raise SessionError(f"expected a text that spaCy can read: {error}") from None
        for text, (_, certainty) in predicted.items():
            if certainty is None:
                certainty = random_share(text)  # For example without a model: a random order.
            self._certainties.append(certainty)
        certainties = sorted(self._certainties)

        predictions: list[dict[str, Any]] = []
        for text in texts:
            # An evaluation text isn't predicted: it has no entities, and no certainty.
            task, certainty = predicted.get(text, (Task(text, []), None))
            if certainty is None:
                certainty = random_share(text)
                if is_drawn(text) and certainties:
                    # Use the certainty of another text, at a random rank.
                    rank = int(certainty * len(certainties))
                    certainty = certainties[rank]
            prediction = prediction_to_json(task, interface)
            score = certainty - n_trainings  # below all scores of the previous model
            predictions.append({**prediction, "score": score, "model_version": NAME})
        return predictions

    def webhook(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Save the annotations of a webhook, or remove the deleted ones.

        request (Mapping[str, Any]): The JSON of the request.
        RETURNS (dict[str, Any]): The JSON of the response.
        RAISES (SessionError): If an annotation can't be read, or a task or an annotation has no id.
        RAISES (OSError): If an annotation can't be saved.
        """
        action = field(request, "action", str)
        if action in SAVED:
            self._save_all(request)
        elif action in DELETED:
            for deleted in objects_of(request, "annotation"):
                self._remove_all(f"-annotation-{id_of(deleted, 'annotation')}")
        elif action == "TASKS_DELETED":
            for deleted in objects_of(request, "task"):
                self._remove_all(f"task-{id_of(deleted, 'task')}-")
        return {"action": action}

    def _save_all(self, request: Mapping[str, Any]) -> None:
        """Save the annotations of a webhook. If one can't be read, the others are still saved.

        RAISES (SessionError): If an annotation can't be read.
        RAISES (OSError): If an annotation can't be saved.
        """
        tasks = objects_of(request, "task")
        annotations = objects_of(request, "annotation")
        pairs = [(task_of(annotation, tasks), annotation) for annotation in annotations]
        errors: list[SessionError] = []
        try:
            interface = self._config_of_project(request)
        except SessionError as error:
            errors = [self._unsaved_error(task, annotation, error) for task, annotation in pairs]
            pairs = []
        for task, annotation in pairs:
            try:
                self._save(task, annotation, interface)
            except SessionError as error:
                errors.append(error)
        if errors:
            self._warn(errors)
            raise errors[0]

    def _save(
        self, task: Mapping[str, Any], annotation: Mapping[str, Any], interface: LabelingInterface
    ) -> None:
        """Save an annotation of a task, unless a later state of it was saved already. If it can't
        be read, the session keeps the reason. Both the task and the annotation have an id.

        RAISES (SessionError): If the annotation can't be read.
        RAISES (OSError): If the annotation can't be saved.
        """
        key = answer_key(task, annotation)
        try:
            updated_at = text_or_none(annotation, UPDATED_AT)
            if time_of(updated_at) < self._time_of_answer(key):
                return
            answer = read_annotation_of_task(task, annotation, interface)
            meta = {} if updated_at is None else {UPDATED_AT: updated_at}
            # An annotation that was skipped has no spans.
            self.session.answer_task(key, answer, is_left_out=answer.spans is None, meta=meta)
        except SessionError as error:
            raise self._unsaved_error(task, annotation, error) from None

    def _unsaved_error(
        self, task: Mapping[str, Any], annotation: Mapping[str, Any], error: SessionError
    ) -> SessionError:
        """Make the error for an annotation that can't be saved, which names the annotation. The
        session also keeps the reason."""
        problem = f"annotation {annotation['id']} of task {task['id']}: {error}"
        self.session.unsaved[answer_key(task, annotation)] = problem
        return SessionError(problem)

    def _warn(self, errors: Sequence[SessionError]) -> None:
        """Warn of annotations that can't be saved."""
        others = f"; {len(errors) - 1} others" if len(errors) > 1 else ""
        warnings.warn(f"not saved: {errors[0]}{others}", stacklevel=2)

    def _catch_up(self, tasks: Sequence[Mapping[str, Any]], interface: LabelingInterface) -> None:
        """Save the annotations of tasks that the session lacks or has in an earlier state, and
        remove the answers whose annotations were deleted. Label Studio has sent these changes while
        the server was down. An annotation that can't be read doesn't prevent the predictions.

        RAISES (SessionError): If a task or an annotation has no id.
        RAISES (OSError): If an annotation can't be saved.
        """
        # The keys of answers, such as task-7-annotation-12, by the part before "-annotation-"
        keys_by_task: dict[str, list[str]] = {}
        # This iterates over copies, as other requests may add answers meanwhile.
        for key in [*list(self.session.store.answers), *list(self.session.unsaved)]:
            task_part, _, _ = key.partition("-annotation-")
            keys_by_task.setdefault(task_part, []).append(key)
        errors: list[SessionError] = []
        for task in tasks:
            if task.get("id") is None or task.get("annotations") is None:
                continue
            id_of(task, "task")  # raises an error if the id is missing
            updated_at = time_of(text_or_none(task, UPDATED_AT))
            keys_of_annotations: set[str] = set()
            for annotation in field(task, "annotations", list):
                is_id = type(annotation) is int  # A task may have only the ids of its annotations.
                record = {"id": annotation} if is_id else annotation
                id_of(record, "annotation")  # raises an error if the id is missing
                key = answer_key(task, record)
                keys_of_annotations.add(key)
                if is_id or not self._is_new(key, annotation):
                    continue
                try:
                    self._save(task, annotation, interface)
                except SessionError as error:
                    errors.append(error)
            # Remove an answer whose annotation is missing only if it is older than this state of
            # the task. A newer one was given after Label Studio had sent the task.
            for key in keys_by_task.get(f"task-{task['id']}", []):
                is_older = self._time_of_answer(key) < updated_at
                if key not in keys_of_annotations and is_older:
                    self.session.remove(key)
        if errors:
            self._warn(errors)

    def _is_new(self, key: str, annotation: Mapping[str, Any]) -> bool:
        """Whether neither this annotation nor a later state of it is saved under its key."""
        if key not in self.session.store.answers:
            return True
        return time_of(annotation.get(UPDATED_AT)) > self._time_of_answer(key)

    def _time_of_answer(self, key: str) -> datetime:
        """The time when Label Studio last changed the annotation of an answer. If the answer is
        missing, because another request may have removed it, a time before all others."""
        answer = self.session.store.answers.get(key)
        if answer is None:
            return time_of(None)
        return time_of(answer.meta.get(UPDATED_AT))

    def _remove_all(self, part: str) -> None:
        """Remove the answers whose keys begin or end with `part`, such as "task-7-" or
        "-annotation-12"."""
        for key in [*list(self.session.store.answers), *list(self.session.unsaved)]:
            if key.startswith(part) or key.endswith(part):
                self.session.remove(key)


def read_annotation_of_task(
    task: Mapping[str, Any], annotation: Mapping[str, Any], interface: LabelingInterface
) -> Task:
    """Read an annotation of a task, by the labeling config of the project. Returns the text with
    its entities, or without spans if the task was skipped.

    RAISES (SessionError): If the annotation can't be read.
    """
    text = interface.text_of(task)
    record = {
        "data": {"text": text},
        "annotations": [{**annotation, "result": interface.results_of(annotation)}],
    }
    place = FilePlace(Path("webhook"), task["id"], "task")  # what an error names
    info = CorpusInfo()
    try:
        annotated = list(read_label_studio(iter([(place, record)]), info=info))
    except CorpusError as error:
        raise SessionError(str(error)) from None
    # In an export, regions that can't be read are left out. In an answer, they are an error.
    for problem in info.problems:
        raise SessionError(problem.as_text())
    return annotated[0].task


def answer_key(task: Mapping[str, Any], annotation: Mapping[str, Any]) -> str:
    """The key in the session of an annotation of a task."""
    return f"task-{task['id']}-annotation-{annotation['id']}"


def objects_of(request: Mapping[str, Any], name: str) -> list[Any]:
    """Get the objects of a webhook with a name, or with its plural: an object, or a list of them.

    RAISES (SessionError): If the webhook has neither, or an object has no id.
    """
    value = request.get(f"{name}s")
    if value is None:
        value = request.get(name)
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value:
        raise SessionError(f"{name}: expected an object with an id, got {shown(value)}")
    for item in value:
        id_of(item, name)  # raises an error if the id is missing
    return value


def task_of(annotation: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Find the task of an annotation: the only task, or the task with the id in the annotation.

    RAISES (SessionError): If the task is missing.
    """
    if len(tasks) == 1:
        return tasks[0]
    for task in tasks:
        if task["id"] == annotation.get("task"):
            return task
    expected = "expected the task of each annotation"
    raise SessionError(f"task: {expected}, got none for {shown(annotation)}")


def text_or_none(record: Mapping[str, Any], name: str) -> str | None:
    """Get a text of an object. None if it is missing.

    RAISES (SessionError): If the value isn't text.
    """
    if record.get(name) is None:
        return None
    text: str = field(record, name, str)
    return text


def id_of(record: Any, name: str) -> int:
    """Get the id of a task or an annotation.

    RAISES (SessionError): If the id is missing.
    """
    record_id = record.get("id") if isinstance(record, dict) else None
    if type(record_id) is not int:  # `isinstance` would accept True
        raise SessionError(f"{name}: expected an object with an id, got {shown(record)}")
    return record_id


def random_share(text: str) -> float:
    """A number from 0 to 1 (exclusive) that is as good as random, and the same for the same text.
    `is_drawn` uses other bytes of the digest."""
    digest = sha256(text.encode("utf8", "surrogatepass")).digest()
    return int.from_bytes(digest[4:8], "big") / 2**32


def time_of(value: Any) -> datetime:
    """Read a time that Label Studio has written, with its time zone or in UTC. If it can't be read,
    return a time before all others."""
    try:
        # Python 3.10 doesn't read "Z".
        time = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        return datetime.min.replace(tzinfo=timezone.utc)
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def prediction_to_json(task: Task, interface: LabelingInterface) -> dict[str, Any]:
    """The predicted entities of a task in the form of Label Studio's JSON, under the names of the
    labeling config."""
    # The task isn't annotated, so its entities are a single prediction.
    (prediction,) = TASK_FORMS["label-studio"].to_json(task)["predictions"]
    for result in prediction["result"]:
        (label,) = result["value"]["labels"]
        # A model of another project may predict other labels.
        result["from_name"] = interface.labels.get(label, interface.labels_names[0])
        result["to_name"] = interface.text_name
    return prediction
