"""An annotation session as a machine learning backend for Label Studio.

Label Studio requests predictions for its tasks and sends annotations to a webhook, both in its JSON
format. A fixed proportion of the texts are evaluation texts, which are never used for training (see
`is_drawn`). Evaluation texts get no predicted entities. Their scores are sampled from the scores of
the other tasks, so that evaluation texts are mixed in with other texts.

With "Uncertainty sampling", Label Studio shows the task with the lowest score next. It only
considers predictions whose version is the name of the backend, so all predictions have the version
`NAME`. A task keeps its earlier predictions and is ranked by the lowest score. Each model therefore
assigns lower scores than all previous models. If the version returned by /setup differs from the
version of a prediction, Label Studio requests the prediction again.

Label Studio doesn't resend annotations that were created while the server was down. However,
requests for predictions include the annotations of their tasks, so any missing annotations are
saved then.

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
"""The version of all predictions. It must also be the name of the backend in Label Studio."""

N_CERTAINTIES = 1000
"""The scores of evaluation texts are sampled from the certainties of the last `N_CERTAINTIES` texts
that were predicted."""

DELETED = ("ANNOTATIONS_DELETED", "ANNOTATION_DELETED")
SAVED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
"""The webhook actions for removing and saving annotations."""

UPDATED_AT = "updated_at"
"""The key for the time of the last update in tasks, annotations and the metadata of answers."""


class LabelStudioBackend:
    """A Label Studio backend for an annotation session.

    session (AnnotationSession): The session that provides predictions and saves annotations.
    """

    def __init__(self, session: AnnotationSession) -> None:
        self.session = session
        # The last labeling config sent by Label Studio
        self._interface: LabelingInterface | None = None
        # The certainty of the model, from 0 to 1, for each of the most recently predicted training
        # texts
        self._certainties: deque[float] = deque(maxlen=N_CERTAINTIES)
        # The number of training runs before these certainties were computed
        self._n_trainings_before = 0

    @property
    def model_version(self) -> str:
        """The version of the model in Label Studio. It consists of the number of training runs and
        the numbers of training texts and annotated evaluation texts."""
        history = self.session.store.history
        if not history:
            return "no model yet"
        # The user may have edited the history, so a field may be missing.
        n_texts, n_measured = history[-1].get("n_texts"), history[-1].get("n_measured")
        return f"model {len(history)}: {n_texts} texts, {n_measured} measure"

    def setup(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Connect a project and use its labels in the session.

        request (Mapping[str, Any]): The JSON body of the request.
        RETURNS (dict[str, Any]): The JSON body of the response.
        RAISES (SessionError): If the project's labeling config defines no labels for a text.
        """
        interface = self._read_config(request, "schema")
        self.session.labels = list(interface.labels)
        return {"model_version": self.model_version}

    def predict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Predict the entities of tasks. Annotations of these tasks that were created while the
        server was down are saved as well.

        request (Mapping[str, Any]): The JSON body of the request.
        RETURNS (dict[str, Any]): The JSON body of the response.
        RAISES (SessionError): If the labeling config defines no labels for a text, a task has no
            text, or spaCy can't create a `Doc` from it.
        RAISES (OSError): If an annotation can't be saved.
        """
        interface = self._read_config(request, "label_config")
        tasks = field(request, "tasks", list)
        texts = [interface.text_of(task) for task in tasks]
        self._catch_up(tasks, interface)
        return {"results": self._predict_texts(texts, interface)}

    def _read_config(self, record: Mapping[str, Any], name: str) -> LabelingInterface:
        """Read a labeling config and keep it for webhooks that don't include one. If several texts
        have labels, warn about the texts that are ignored."""
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
        """Return the project's labeling config from a webhook request. If the request has none,
        return the last labeling config sent by Label Studio.

        RAISES (SessionError): If Label Studio hasn't sent a labeling config yet.
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
        """Predict the entities of texts. Return one prediction per text in Label Studio's JSON
        format.

        RAISES (SessionError): If spaCy can't create a `Doc` from a text.
        """
        n_trainings = len(self.session.store.history)
        if n_trainings != self._n_trainings_before:  # a new model has been trained
            self._certainties.clear()
            self._n_trainings_before = n_trainings
        to_predict = [text for text in texts if not is_drawn(text)]
        try:
            predicted = dict(zip(to_predict, self.session.predict_texts(to_predict)))
        except ValueError as error:
            raise SessionError(f"expected a text that spaCy can read: {error}") from None
        for text, (_, certainty) in predicted.items():
            if certainty is None:
                certainty = random_share(text)  # no model yet, for example
            self._certainties.append(certainty)
        certainties = sorted(self._certainties)

        predictions: list[dict[str, Any]] = []
        for text in texts:
            # Evaluation texts aren't predicted, so they have no entities and no certainty.
            task, certainty = predicted.get(text, (Task(text, []), None))
            if certainty is None:
                certainty = random_share(text)
                if is_drawn(text) and certainties:
                    # Use the certainty of a random other text.
                    rank = int(certainty * len(certainties))
                    certainty = certainties[rank]
            prediction = prediction_to_json(task, interface)
            score = certainty - n_trainings  # below all scores of the previous model
            predictions.append({**prediction, "score": score, "model_version": NAME})
        return predictions

    def webhook(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Save or remove annotations in response to a webhook request.

        request (Mapping[str, Any]): The JSON body of the request.
        RETURNS (dict[str, Any]): The JSON body of the response.
        RAISES (SessionError): If an annotation can't be read, or a task or an annotation has no ID.
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
        """Save the annotations in a webhook request. If one can't be read, the others are still
        saved.

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
        """Save an annotation of a task, unless a later version has already been saved. If it can't
        be read, record the error in the session. Both the task and the annotation must have an ID.

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
            # Skipped annotations have no spans.
            self.session.answer_task(key, answer, is_left_out=answer.spans is None, meta=meta)
        except SessionError as error:
            raise self._unsaved_error(task, annotation, error) from None

    def _unsaved_error(
        self, task: Mapping[str, Any], annotation: Mapping[str, Any], error: SessionError
    ) -> SessionError:
        """Create the error for an annotation that can't be saved, and record its message in the
        session. The message names the task and the annotation."""
        problem = f"annotation {annotation['id']} of task {task['id']}: {error}"
        self.session.unsaved[answer_key(task, annotation)] = problem
        return SessionError(problem)

    def _warn(self, errors: Sequence[SessionError]) -> None:
        """Warn about annotations that can't be saved."""
        others = f"; {len(errors) - 1} others" if len(errors) > 1 else ""
        warnings.warn(f"not saved: {errors[0]}{others}", stacklevel=2)

    def _catch_up(self, tasks: Sequence[Mapping[str, Any]], interface: LabelingInterface) -> None:
        """Save annotations that are new or newer than the session's answers. Remove answers
        whose annotations were deleted. This makes up for changes that Label Studio sent while the
        server was down. If an annotation can't be read, warn and continue.

        RAISES (SessionError): If a task or an annotation has no ID.
        RAISES (OSError): If an annotation can't be saved.
        """
        # Maps a prefix such as "task-7" to keys of answers such as "task-7-annotation-12"
        keys_by_task: dict[str, list[str]] = {}
        # Iterate over copies, because other requests may add answers in the meantime.
        for key in [*list(self.session.store.answers), *list(self.session.unsaved)]:
            task_part, _, _ = key.partition("-annotation-")
            keys_by_task.setdefault(task_part, []).append(key)
        errors: list[SessionError] = []
        for task in tasks:
            if task.get("id") is None or task.get("annotations") is None:
                continue
            id_of(task, "task")  # raises an error if the ID is missing
            updated_at = time_of(text_or_none(task, UPDATED_AT))
            keys_of_annotations: set[str] = set()
            for annotation in field(task, "annotations", list):
                is_id = type(annotation) is int  # some tasks only list annotation IDs
                record = {"id": annotation} if is_id else annotation
                id_of(record, "annotation")  # raises an error if the ID is missing
                key = answer_key(task, record)
                keys_of_annotations.add(key)
                if is_id or not self._is_new(key, annotation):
                    continue
                try:
                    self._save(task, annotation, interface)
                except SessionError as error:
                    errors.append(error)
            # If an answer's annotation isn't in the task, only remove the answer if it is older
            # than the task. Newer answers may have been saved after Label Studio sent the request.
            for key in keys_by_task.get(f"task-{task['id']}", []):
                is_older = self._time_of_answer(key) < updated_at
                if key not in keys_of_annotations and is_older:
                    self.session.remove(key)
        if errors:
            self._warn(errors)

    def _is_new(self, key: str, annotation: Mapping[str, Any]) -> bool:
        """Check that neither this version of the annotation nor a later one has been saved."""
        if key not in self.session.store.answers:
            return True
        return time_of(annotation.get(UPDATED_AT)) > self._time_of_answer(key)

    def _time_of_answer(self, key: str) -> datetime:
        """Return the time at which the annotation of an answer was last updated in Label Studio. If
        the answer doesn't exist, for example because another request has removed it, return the
        earliest possible time."""
        answer = self.session.store.answers.get(key)
        if answer is None:
            return time_of(None)
        return time_of(answer.meta.get(UPDATED_AT))

    def _remove_all(self, part: str) -> None:
        """Remove all answers whose key starts or ends with `part`, such as "task-7-" or
        "-annotation-12"."""
        for key in [*list(self.session.store.answers), *list(self.session.unsaved)]:
            if key.startswith(part) or key.endswith(part):
                self.session.remove(key)


def read_annotation_of_task(
    task: Mapping[str, Any], annotation: Mapping[str, Any], interface: LabelingInterface
) -> Task:
    """Read an annotation of a task using the project's labeling config. Return the text and its
    entities. The spans are None if the task was skipped.

    RAISES (SessionError): If the annotation can't be read.
    """
    text = interface.text_of(task)
    record = {
        "data": {"text": text},
        "annotations": [{**annotation, "result": interface.results_of(annotation)}],
    }
    place = FilePlace(Path("webhook"), task["id"], "task")  # for error messages
    info = CorpusInfo()
    try:
        # The labeling config says that this is the text, even if it looks like a URL or HTML.
        annotated = list(read_label_studio(iter([(place, record)]), text_key="text", info=info))
    except CorpusError as error:
        raise SessionError(str(error)) from None
    # In exports, the reader skips invalid regions. Here, they are an error.
    for problem in info.problems:
        raise SessionError(problem.as_text())
    return annotated[0].task


def answer_key(task: Mapping[str, Any], annotation: Mapping[str, Any]) -> str:
    """Return the key under which the session stores an annotation of a task."""
    return f"task-{task['id']}-annotation-{annotation['id']}"


def objects_of(request: Mapping[str, Any], name: str) -> list[Any]:
    """Get the objects with the given name, or its plural, from a webhook request. The value may be
    an object or a list of objects.

    RAISES (SessionError): If the request contains no such object, or an object has no ID.
    """
    value = request.get(f"{name}s")
    if value is None:
        value = request.get(name)
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value:
        raise SessionError(f"{name}: expected an object with an id, got {shown(value)}")
    for item in value:
        id_of(item, name)  # raises an error if the ID is missing
    return value


def task_of(annotation: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Find the task of an annotation. If there are several tasks, it is looked up by the task ID in
    the annotation.

    RAISES (SessionError): If the task can't be found.
    """
    if len(tasks) == 1:
        return tasks[0]
    for task in tasks:
        if task["id"] == annotation.get("task"):
            return task
    expected = "expected the task of each annotation"
    raise SessionError(f"task: {expected}, got none for {shown(annotation)}")


def text_or_none(record: Mapping[str, Any], name: str) -> str | None:
    """Get an optional string from an object. Return None if it is missing.

    RAISES (SessionError): If the value isn't a string.
    """
    if record.get(name) is None:
        return None
    text: str = field(record, name, str)
    return text


def id_of(record: Any, name: str) -> int:
    """Get the ID of a task or an annotation.

    RAISES (SessionError): If the ID is missing or isn't an integer.
    """
    record_id = record.get("id") if isinstance(record, dict) else None
    if type(record_id) is not int:  # `isinstance` would accept True
        raise SessionError(f"{name}: expected an object with an id, got {shown(record)}")
    return record_id


def random_share(text: str) -> float:
    """Compute a pseudorandom number from 0 (inclusive) to 1 (exclusive) from the digest of a text.
    `is_drawn` uses different bytes of the digest."""
    digest = sha256(text.encode("utf8", "surrogatepass")).digest()
    return int.from_bytes(digest[4:8], "big") / 2**32


def time_of(value: Any) -> datetime:
    """Parse a timestamp from Label Studio. It is assumed to be in UTC if it has no time zone. If it
    can't be parsed, return the earliest possible time."""
    try:
        # Python 3.10 can't parse "Z".
        time = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        return datetime.min.replace(tzinfo=timezone.utc)
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def prediction_to_json(task: Task, interface: LabelingInterface) -> dict[str, Any]:
    """Convert the predicted entities of a task to Label Studio's JSON format, using the element
    names in the labeling config."""
    # The task isn't annotated, so its entities are converted to a single prediction.
    (prediction,) = TASK_FORMS["label-studio"].to_json(task)["predictions"]
    for result in prediction["result"]:
        (label,) = result["value"]["labels"]
        # A model from another project may predict labels that aren't in the config.
        result["from_name"] = interface.labels.get(label, interface.labels_names[0])
        result["to_name"] = interface.text_name
    return prediction
