"""An annotation session as a machine learning backend of Label Studio.

Label Studio asks for predictions of its tasks, and tells what people annotate (webhooks). Values
are those of its JSON. With "Uncertainty sampling", the task with the lowest score comes next: the
one that the model is least certain of. A fixed share of the texts measures: see `is_drawn`. They
have no predictions, and their scores are spread over those of the other tasks, so that they come
between them.

https://labelstud.io/guide/ml_create
"""

from collections import deque
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from ..readers import TASK_FORMS, CorpusError, Task
from ..readers.files import FilePlace, shown
from ..readers.tasks import read_label_studio
from .annotation_session import AnnotationSession, SessionError
from .annotation_store import is_drawn

N_SCORES = 1000
"""The scores of measuring texts are spread over so many of the last scores of others."""

DELETED = ("ANNOTATIONS_DELETED", "ANNOTATION_DELETED")
SAVED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
"""Actions of webhooks."""


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
    # Entities of a document type can be made to grow without end.
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
        self._scores: deque[float] = deque(maxlen=N_SCORES)  # of texts that don't measure

    @property
    def model_version(self) -> str:
        """The name of the model, which changes with each training that had other texts."""
        history = self.session.store.history
        if not history:
            return "no model yet"
        return f"{history[-1]['n_texts']} texts, {history[-1]['n_measured']} measure"

    def setup(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Connect a project: its labels become those of the session."""
        self.session.labels = read_labeling_config(request.get("schema")).labels
        return {"model_version": self.model_version}

    def predict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Predict tasks.

        RAISES (SessionError): If there are no tasks with a text, or no labels.
        """
        interface = read_labeling_config(request.get("label_config"))
        tasks = request.get("tasks")
        if not isinstance(tasks, list):
            raise SessionError(f"tasks: expected a list, got {shown(tasks)}")
        texts = [text_of(task, interface) for task in tasks]
        return {"results": [self._predict_text(text, interface) for text in texts]}

    def _predict_text(self, text: str, interface: LabelingInterface) -> dict[str, Any]:
        """The prediction of a text."""
        task = Task(text, [])
        if is_drawn(text):
            score = self._score_between(text)
        else:
            try:
                task, certainty = self.session.predict_text(text)
            except ValueError as error:
                raise SessionError(f"expected a text that spaCy can read: {error}") from None
            # Without a model the order is random.
            score = random_share(text) if certainty is None else certainty
            self._scores.append(score)
        (prediction,) = TASK_FORMS["label-studio"].to_json(task)["predictions"]
        for result in prediction["result"]:
            result["from_name"] = interface.labels_name
            result["to_name"] = interface.text_name
        return {**prediction, "score": score, "model_version": self.model_version}

    def _score_between(self, text: str) -> float:
        """The score of a text that measures: that of a text at a random rank among the others."""
        share = random_share(text)
        scores = sorted(self._scores)
        if not scores:
            return share
        return scores[int(share * len(scores))]

    def webhook(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Save or remove what was annotated, changed or deleted.

        RAISES (SessionError): If an annotation can't be read.
        RAISES (OSError): If it can't be saved.
        """
        action = request.get("action")
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
        """Save an annotation of a task."""
        task_id = id_of(task, "task")
        annotation_id = id_of(annotation, "annotation")
        record = {"data": task.get("data"), "annotations": [annotation]}
        place = FilePlace(Path("webhook"), task_id, "task")
        try:
            tasks = list(read_label_studio(iter([(place, record)])))
        except CorpusError as error:
            raise SessionError(str(error)) from None
        # An annotation that was skipped has no spans.
        is_left_out = tasks[0].task.spans is None
        key = f"task-{task_id}-annotation-{annotation_id}"
        self.session.answer_task(key, tasks[0].task, is_left_out=is_left_out)

    def _remove_all(self, part: str) -> None:
        """Remove the answers whose keys begin or end with this."""
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
    if type(record_id) is not int:
        raise SessionError(f"{name}: expected an object with an id, got {shown(record)}")
    return record_id


def random_share(text: str) -> float:
    """A number from 0 to 1 that is as good as random, and the same each time. `is_drawn` uses other
    bytes of the digest."""
    digest = sha256(text.encode("utf8", "surrogatepass")).digest()
    return int.from_bytes(digest[4:8], "big") / 2**32
