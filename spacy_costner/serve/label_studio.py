"""An annotation session as a machine learning backend of Label Studio.

Label Studio asks for predictions of its tasks, and tells what people annotate (webhooks). Values
are those of its JSON. A fixed share of the texts measures the model, and is not trained on: see
`is_drawn`. They have no predictions, and their scores are spread over those of the other tasks, so
that they come between them.

With "Uncertainty sampling", the task with the lowest score comes next, among the predictions whose
version is the name that the backend has in the project. So all predictions have the version
`NAME`. A task keeps its earlier predictions, and the lowest score counts: so the scores of each
model are below those of the models before. Label Studio asks again for predictions if /setup has
another version than they have.

What people annotate while the server is down isn't told again. But a request for predictions has
the annotations of its tasks, and those that are missing are saved then.

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
"""The version of all predictions. The backend has to have this name in Label Studio."""

N_CERTAINTIES = 1000
"""The scores of evaluation texts are spread over the scores of this number of other texts, the last
ones that were predicted."""

DELETED = ("ANNOTATIONS_DELETED", "ANNOTATION_DELETED")
SAVED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
"""The actions of webhooks after which an annotation is removed, or saved."""

UPDATED_AT = "updated_at"
"""The key of the time of the last change of a task or an annotation, and in the metadata of an
answer."""


class LabelStudioBackend:
    """What Label Studio asks a session for.

    session (AnnotationSession): The session.
    """

    def __init__(self, session: AnnotationSession) -> None:
        self.session = session
        # The labeling config that Label Studio has sent last
        self._interface: LabelingInterface | None = None
        # How certain the model was of the last texts that don't measure, each from 0 to 1
        self._certainties: deque[float] = deque(maxlen=N_CERTAINTIES)
        self._n_trainings_before = 0  # how many trainings were before these certainties

    @property
    def model_version(self) -> str:
        """The name of the model. It says how many texts the model was trained on, and how many
        measure it."""
        history = self.session.store.history
        if not history:
            return "no model yet"
        # Somebody may have edited the history.
        n_texts, n_measured = history[-1].get("n_texts"), history[-1].get("n_measured")
        return f"{n_texts} texts, {n_measured} measure"

    def setup(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Connect a project: its labels become those of the session.

        RAISES (SessionError): If the labeling config of the project has no labels of a text.
        """
        interface = self._read_config(request, "schema")
        self.session.labels = list(interface.labels)
        return {"model_version": self.model_version}

    def predict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Predict tasks, and save what was annotated in them while the server was down.

        RAISES (SessionError): If the labeling config has no labels of a text, a task has no text,
            or spaCy can't make a doc of it.
        RAISES (OSError): If an annotation can't be saved.
        """
        interface = self._read_config(request, "label_config")
        tasks = field(request, "tasks", list)
        texts = [interface.text_of(task) for task in tasks]
        self._catch_up(tasks, interface)
        return {"results": self._predict_texts(texts, interface)}

    def _read_config(self, record: Mapping[str, Any], name: str) -> LabelingInterface:
        """Read a labeling config, and keep it for webhooks that have none. If it has labels of
        several texts, a warning names those that are not read."""
        interface = read_labeling_config(record, name)
        if interface.other_texts and interface != self._interface:
            warnings.warn(
                f"{name}: labels of several texts: only those of {interface.text_name!r} are read, "
                f"not those of {', '.join(map(repr, interface.other_texts))}",
                stacklevel=2,
            )
        self._interface = interface
        return interface

    def _config_of_project(self, request: Mapping[str, Any]) -> LabelingInterface:
        """The labeling config of the project that a webhook is of or, if it has none, the one that
        Label Studio has sent last.

        RAISES (SessionError): If there is none.
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
        """The prediction of each text, as Label Studio's JSON has it.

        RAISES (SessionError): If spaCy can't make a doc of a text.
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
                certainty = random_share(text)  # Without a model, for example, the order is random.
            self._certainties.append(certainty)
        certainties = sorted(self._certainties)

        predictions: list[dict[str, Any]] = []
        for text in texts:
            # A text that measures isn't predicted: it has no entities, and no certainty.
            task, certainty = predicted.get(text, (Task(text, []), None))
            if certainty is None:
                certainty = random_share(text)
                if is_drawn(text) and certainties:
                    # It gets the certainty of another text, at a random rank.
                    rank = int(certainty * len(certainties))
                    certainty = certainties[rank]
            task_as_json = TASK_FORMS["label-studio"].to_json(task)
            # Nobody has annotated the task, so its entities are a single prediction.
            (prediction,) = task_as_json["predictions"]
            for result in prediction["result"]:
                (label,) = result["value"]["labels"]
                # A model that isn't of this project may predict other labels.
                result["from_name"] = interface.labels.get(label, interface.labels_names[0])
                result["to_name"] = interface.text_name
            score = certainty - n_trainings  # below all scores of the model before
            predictions.append({**prediction, "score": score, "model_version": NAME})
        return predictions

    def webhook(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Save or remove what was annotated, changed or deleted.

        RAISES (SessionError): If an annotation can't be read, or something has no id.
        RAISES (OSError): If it can't be saved.
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
        """Save the annotations of a webhook. If some can't be saved, the others are.

        RAISES (SessionError): If one can't be read.
        RAISES (OSError): If one can't be saved.
        """
        tasks = objects_of(request, "task")
        annotations = objects_of(request, "annotation")
        pairs = [(task_of(annotation, tasks), annotation) for annotation in annotations]
        errors: list[SessionError] = []
        try:
            interface = self._config_of_project(request)
        except SessionError as error:
            errors = [self._note_unsaved(task, annotation, error) for task, annotation in pairs]
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
        """Save an annotation of a task, unless a later state of it was saved. If it can't be saved,
        that is noted in the session.

        task, annotation (Mapping[str, Any]): Both have an id.
        interface (LabelingInterface): What is annotated.
        RAISES (SessionError): If it can't be read.
        RAISES (OSError): If it can't be saved.
        """
        key = answer_key(task, annotation)
        try:
            updated_at = text_or_none(annotation, UPDATED_AT)
            if time_of(updated_at) < self._time_of_answer(key):
                return
            answer = read_annotation(task, annotation, interface)
            meta = {} if updated_at is None else {UPDATED_AT: updated_at}
            # An annotation that was skipped has no spans.
            self.session.answer_task(key, answer, is_left_out=answer.spans is None, meta=meta)
        except SessionError as error:
            raise self._note_unsaved(task, annotation, error) from None

    def _note_unsaved(
        self, task: Mapping[str, Any], annotation: Mapping[str, Any], error: SessionError
    ) -> SessionError:
        """Note in the session that an annotation can't be saved, and why. Returns an error that
        names the annotation, too."""
        problem = f"annotation {annotation['id']} of task {task['id']}: {error}"
        self.session.unsaved[answer_key(task, annotation)] = problem
        return SessionError(problem)

    def _warn(self, errors: Sequence[SessionError]) -> None:
        """Warn of annotations that can't be saved."""
        others = f"; {len(errors) - 1} others" if len(errors) > 1 else ""
        warnings.warn(f"not saved: {errors[0]}{others}", stacklevel=2)

    def _catch_up(self, tasks: Sequence[Mapping[str, Any]], interface: LabelingInterface) -> None:
        """Save the annotations that tasks have and the session hasn't, or has in an earlier state,
        and remove those that were deleted. Label Studio told this when the server was down. An
        annotation that can't be saved doesn't prevent the predictions.

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
            id_of(task, "task")  # raises an error if it has none
            updated_at = time_of(text_or_none(task, UPDATED_AT))
            keys_of_annotations: set[str] = set()
            for annotation in field(task, "annotations", list):
                is_id = type(annotation) is int  # A task may have the ids of its annotations alone.
                record = {"id": annotation} if is_id else annotation
                id_of(record, "annotation")  # raises an error if it has none
                key = answer_key(task, record)
                keys_of_annotations.add(key)
                if is_id or not self._is_new(key, annotation):
                    continue
                try:
                    self._save(task, annotation, interface)
                except SessionError as error:
                    errors.append(error)
            # Remove an answer without annotation only if it is older than this state of the task.
            # A newer one was given after Label Studio had sent the task.
            for key in keys_by_task.get(f"task-{task['id']}", []):
                is_older = self._time_of_answer(key) < updated_at
                if key not in keys_of_annotations and is_older:
                    self.session.remove(key)
        if errors:
            self._warn(errors)

    def _is_new(self, key: str, annotation: Mapping[str, Any]) -> bool:
        """Whether an annotation isn't saved under its key yet, or only an earlier state of it."""
        if key not in self.session.store.answers:
            return True
        return time_of(annotation.get(UPDATED_AT)) > self._time_of_answer(key)

    def _time_of_answer(self, key: str) -> datetime:
        """When Label Studio has last changed the annotation of an answer. If there is no such
        answer, as another request may have removed it meanwhile, a time before all others."""
        answer = self.session.store.answers.get(key)
        if answer is None:
            return time_of(None)
        return time_of(answer.meta.get(UPDATED_AT))

    def _remove_all(self, part: str) -> None:
        """Remove the answers whose keys begin or end with a part, such as "task-7-" or
        "-annotation-12"."""
        for key in [*list(self.session.store.answers), *list(self.session.unsaved)]:
            if key.startswith(part) or key.endswith(part):
                self.session.remove(key)


def read_annotation(
    task: Mapping[str, Any], annotation: Mapping[str, Any], interface: LabelingInterface
) -> Task:
    """Read an annotation of a task, by the labeling config that its predictions are made by.

    RETURNS (Task): The text with its entities; without entities if the task was skipped.
    RAISES (SessionError): If it can't be read.
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
    # An export with regions that aren't understood is read without them. An answer is not.
    for problem in info.problems:
        raise SessionError(problem.as_text())
    return annotated[0].task


def answer_key(task: Mapping[str, Any], annotation: Mapping[str, Any]) -> str:
    """The key of the answer that an annotation of a task is in the session."""
    return f"task-{task['id']}-annotation-{annotation['id']}"


def objects_of(request: Mapping[str, Any], name: str) -> list[Any]:
    """What a webhook has under a name, or under its plural: an object, or a list of them.

    RAISES (SessionError): If it has neither.
    """
    value = request.get(f"{name}s")
    if value is None:
        value = request.get(name)
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value:
        raise SessionError(f"{name}: expected an object with an id, got {shown(value)}")
    for item in value:
        id_of(item, name)  # raises an error if it has none
    return value


def task_of(annotation: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The task of an annotation: the only one, or the one whose id it has.

    RAISES (SessionError): If it is missing.
    """
    if len(tasks) == 1:
        return tasks[0]
    for task in tasks:
        if task["id"] == annotation.get("task"):
            return task
    raise SessionError(f"task: expected that of each annotation, got none of {shown(annotation)}")


def text_or_none(record: Mapping[str, Any], name: str) -> str | None:
    """A text that an object may have.

    RAISES (SessionError): If it is something else.
    """
    if record.get(name) is None:
        return None
    text: str = field(record, name, str)
    return text


def id_of(record: Any, name: str) -> int:
    """The id of a task or an annotation.

    RAISES (SessionError): If it has none.
    """
    record_id = record.get("id") if isinstance(record, dict) else None
    if type(record_id) is not int:  # `isinstance` would accept True
        raise SessionError(f"{name}: expected an object with an id, got {shown(record)}")
    return record_id


def random_share(text: str) -> float:
    """A number of at least 0 and below 1 that is as good as random, and the same each time.
    `is_drawn` uses other bytes of the digest."""
    digest = sha256(text.encode("utf8", "surrogatepass")).digest()
    return int.from_bytes(digest[4:8], "big") / 2**32


def time_of(value: Any) -> datetime:
    """A time that Label Studio has written, with its time zone or in UTC; without one, a time
    before all others."""
    try:
        # Python 3.10 doesn't read "Z".
        time = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        return datetime.min.replace(tzinfo=timezone.utc)
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)
