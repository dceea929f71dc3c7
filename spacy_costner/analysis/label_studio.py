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

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from ..readers import TASK_FORMS, CorpusError, Task
from ..readers.files import FilePlace, shown
from ..readers.label_studio import read_label_studio
from .annotation_session import AnnotationSession, SessionError
from .annotation_store import is_drawn

NAME = "spacy_costner"
"""The version of all predictions. The backend has to have this name in Label Studio."""

N_CERTAINTIES = 1000
"""The scores of measuring texts are spread over those of so many other texts, the last ones that
were predicted."""

DELETED = ("ANNOTATIONS_DELETED", "ANNOTATION_DELETED")
SAVED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
"""The actions of webhooks after which an annotation is removed, or saved."""

UPDATED_AT = "updated_at"
"""The key of the time of the last change of a task or an annotation, and in the metadata of an
answer."""


class LabelingInterface(NamedTuple):
    """What a labeling config names.

    labels_name (str): The name of the element with the labels.
    text_name (str): The name of the text that it is for.
    text_key (str): The key of the text in the data of a task.
    labels (list[str]): The labels.
    """

    labels_name: str
    text_name: str
    text_key: str
    labels: list[str]


def read_labeling_config(config: Any) -> LabelingInterface:
    """Read a labeling config, XML.

    RAISES (SessionError): If it has no labels of a text.
    """
    expected = 'label_config: expected <Labels name="…" toName="…"> and <Text name="…" value="$…">'
    # A document type, "<!DOCTYPE", is refused: its entities can be made to grow without end. A
    # comment, "<!--", is not.
    if not isinstance(config, str) or "<!" in config.replace("<!--", ""):
        raise SessionError(f"{expected}, got {shown(config)}")
    try:
        root = ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise SessionError(f"{expected}: {error}") from None
    texts = {element.get("name"): element for element in root.iter("Text")}
    for element in root.iter("Labels"):
        text = texts.get(element.get("toName"))
        if text is None:
            continue
        labels = [label.get("value") or "" for label in element.iter("Label")]
        return LabelingInterface(
            labels_name=element.get("name") or "",
            text_name=text.get("name") or "",
            text_key=(text.get("value") or "").removeprefix("$"),
            labels=[name for name in labels if name],
        )
    raise SessionError(f"{expected}, got {shown(config)}")


class LabelStudioBackend:
    """What Label Studio asks a session for.

    session (AnnotationSession): The session.
    """

    def __init__(self, session: AnnotationSession) -> None:
        self.session = session
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
        return f"{history[-1]['n_texts']} texts, {history[-1]['n_measured']} measure"

    def setup(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Connect a project: its labels become those of the session.

        RAISES (SessionError): If the labeling config of the project has no labels of a text.
        """
        self.session.labels = read_labeling_config(request.get("schema")).labels
        return {"model_version": self.model_version}

    def predict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Predict tasks, and save what was annotated in them while the server was down.

        RAISES (SessionError): If the labeling config has no labels of a text, a task has no text,
            or spaCy can't make a doc of it.
        RAISES (OSError): If an annotation can't be saved.
        """
        interface = read_labeling_config(request.get("label_config"))
        tasks = request.get("tasks")
        if not isinstance(tasks, list):
            raise SessionError(f"tasks: expected a list, got {shown(tasks)}")
        texts = [text_of(task, interface) for task in tasks]
        self._catch_up(tasks)
        return {"results": self._predict_texts(texts, interface)}

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
                result["from_name"] = interface.labels_name
                result["to_name"] = interface.text_name
            score = certainty - n_trainings  # below all scores of the model before
            predictions.append({**prediction, "score": score, "model_version": NAME})
        return predictions

    def webhook(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Save or remove what was annotated, changed or deleted.

        RAISES (SessionError): If an annotation can't be read, or something has no id.
        RAISES (OSError): If it can't be saved.
        """
        action = request.get("action")
        # Label Studio sends several "annotations" or a single "annotation".
        if action in SAVED:
            task = request.get("task")
            annotations = request.get("annotations") or [request.get("annotation")]
            for annotation in annotations:
                self._save(task, annotation)
        elif action in DELETED:
            for deleted in request.get("annotations") or [request.get("annotation")]:
                self._remove_all(f"-annotation-{id_of(deleted, 'annotation')}")
        elif action == "TASKS_DELETED":
            for deleted in request.get("tasks") or []:
                self._remove_all(f"task-{id_of(deleted, 'task')}-")
        return {"action": str(action)}

    def _save(self, task: Any, annotation: Any) -> None:
        """Save an annotation of a task, unless a later state of it was saved.

        RAISES (SessionError): If one of both has no id, or the annotation can't be read.
        RAISES (OSError): If it can't be saved.
        """
        task_id = id_of(task, "task")
        annotation_id = id_of(annotation, "annotation")
        key = f"task-{task_id}-annotation-{annotation_id}"
        updated_at = annotation.get(UPDATED_AT)
        if time_of(updated_at) < self._time_of_answer(key):
            return
        record = {"data": task.get("data"), "annotations": [annotation]}
        place = FilePlace(Path("webhook"), task_id, "task")  # what an error names
        try:
            tasks = list(read_label_studio(iter([(place, record)])))
        except CorpusError as error:
            raise SessionError(str(error)) from None
        # An annotation that was skipped has no spans.
        is_left_out = tasks[0].task.spans is None
        meta = {UPDATED_AT: updated_at} if isinstance(updated_at, str) else {}
        self.session.answer_task(key, tasks[0].task, is_left_out=is_left_out, meta=meta)

    def _catch_up(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Save the annotations that tasks have and the session hasn't, or has in an earlier state,
        and remove those that were deleted. Label Studio told this when the server was down."""
        # The keys of answers, such as task-7-annotation-12, by the part before "-annotation-"
        keys_by_task: dict[str, list[str]] = {}
        # This iterates over a copy, as other requests may add answers meanwhile.
        for key in list(self.session.store.answers):
            task_part, _, _ = key.partition("-annotation-")
            keys_by_task.setdefault(task_part, []).append(key)
        for task in tasks:
            annotations = task.get("annotations")
            if type(task.get("id")) is not int or not isinstance(annotations, list):
                continue
            keys_of_annotations: set[str] = set()
            for annotation in annotations:
                if isinstance(annotation, dict):
                    keys_of_annotations.add(self._catch_up_with(task, annotation))
            # Remove an answer without annotation only if it is older than this state of the task.
            # A newer one was given after Label Studio had sent the task.
            for key in keys_by_task.get(f"task-{task['id']}", []):
                is_older = self._time_of_answer(key) < time_of(task.get(UPDATED_AT))
                if key not in keys_of_annotations and is_older:
                    self.session.remove(key)

    def _catch_up_with(self, task: Mapping[str, Any], annotation: Mapping[str, Any]) -> str:
        """Save an annotation that a task has, if it is new. Returns the key of its answer."""
        key = f"task-{task['id']}-annotation-{annotation.get('id')}"
        is_there = key in self.session.store.answers
        if not is_there or time_of(annotation.get(UPDATED_AT)) > self._time_of_answer(key):
            # An annotation that can't be read must not prevent the predictions. A webhook would
            # have refused it.
            with suppress(SessionError):
                self._save(task, annotation)
        return key

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
        for key in list(self.session.store.answers):
            if key.startswith(part) or key.endswith(part):
                self.session.remove(key)


def text_of(task: Any, interface: LabelingInterface) -> str:
    """The text of a task.

    RAISES (SessionError): If it has none.
    """
    data = task.get("data") if isinstance(task, dict) else None
    text = data.get(interface.text_key) if isinstance(data, dict) else None
    if not isinstance(text, str):
        expected = f"a task with a text under {interface.text_key!r} in its data"
        raise SessionError(f"tasks: expected {expected}, got {shown(task)}")
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
