"""An annotation session: choose the next text, propose entities, and train in the background.

The next training text is chosen based on its words until a model has been trained on 50 texts, and
by the model from then on. Evaluation texts are shown in between, without proposals, because
annotators tend to accept proposals. Whenever there are new answers, a background thread trains a
linear model from scratch on all answers for training texts. The previous model makes proposals in
the meantime. The model's features include word vectors learned from the texts. The F-score is
computed on the evaluation texts only.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from ..caching import cached_property
from ..readers import Task
from ..readers.files import SURROGATE, shown
from ..workflows.components import get_component
from ..workflows.fitting.pipeline_training import save_trained
from ..workflows.sampling.suggestions import suggest, suggest_first
from ..workflows.vectors import DIR_VECTORS
from .next_steps import advice, next_command
from .proposals import (
    Proposal,
    ProposedSpan,
    annotated_spans,
    check_spans,
    predict_tasks,
    propose_spans,
)
from .session_training import (
    COMPONENT,
    ENOUGH_EVALUATION_TEXTS,
    LEAST_TEXTS,
    MODEL,
    HistoryPoint,
    TrainedPipeline,
    digest_answers,
    expect_f,
    expect_next,
    f_on_answers,
    fit_answers,
    load_session_model,
)
from .session_vectors import RAW_FILE, learn_session_vectors
from .store import AnnotationStore, Answer, SessionError, StoredText, is_drawn

ENOUGH_TO_CHOOSE = 50
"""Minimum number of training texts before the model chooses the next texts. Until then, texts are
chosen based on their words, which worked better with 50 texts in experiments on two corpora. See
docs/no-annotation.md."""

TURN_OF_EVALUATION = 5
"""One in every `TURN_OF_EVALUATION` texts shown is an evaluation text, until all evaluation texts
have answers."""

MOST_CANDIDATES = 2000
"""Maximum number of texts, drawn at random, from which the next texts are chosen."""

N_EXPECTED = 500
"""Maximum number of unanswered texts, drawn at random, for computing the expected F-score."""

N_CHOSEN = 100
"""Number of texts to choose in advance, until the next model is trained."""

N_AT_ONCE = 64
"""Batch size for predicting texts from another tool. Requests that save answers have to wait for
the current batch."""

N_PROBLEMS = 10
"""Maximum number of problems with another tool's answers to include in the status."""


class UnknownTextError(SessionError):
    """Raised if the session has no text with the given key."""


class AnnotationSession:
    """An annotation session stored in a folder. Its methods can be called from several
    threads.

    store (AnnotationStore): The texts and the answers.
    labels (Sequence[str]): The entity labels to annotate.
    lang (str): Language code for the tokenizer and the model.
    start_model (Language | None): A trained pipeline to start from. It makes proposals until a
        model trained in the session has a higher F-score on the evaluation texts. If the folder
        already contains a model trained in the session, that model is used instead.
    proposals (Mapping[str, Task] | None): Entities predicted by another annotator, such as a
        language model, keyed by text. They are proposed instead of the model's predictions, and
        texts are shown in random order, so that the annotator's error rate can be estimated from
        the answers.
    seed (int): Random seed for drawing the candidates for the next texts and the texts on which the
        expected F-score is computed.
    RAISES (ValueError): If the pipeline has no `cost_sensitive_ner` component named `ner`, if the
        component's predictions can't be used to choose texts (see `suggest`), or if a text is
        longer than spaCy allows.
    """

    def __init__(
        self,
        store: AnnotationStore,
        *,
        labels: Sequence[str],
        lang: str,
        start_model: Language | None = None,
        proposals: Mapping[str, Task] | None = None,
        seed: int = 0,
    ) -> None:
        if start_model is not None:
            get_component(start_model, COMPONENT)  # raises an error if it is missing
        self.store = store
        self.labels = list(labels)
        self.lang = lang
        self.problem: str | None = None  # the error raised by the last training run
        # The reasons why answers from another tool couldn't be saved, keyed by answer key
        self.unsaved: dict[str, str] = {}
        self.is_training = False
        self._tokenizer = spacy.blank(lang)
        for stored in store.texts.values():
            if len(stored.text) > self._tokenizer.max_length:
                expected = f"expected a text of at most {self._tokenizer.max_length:,} characters"
                raise ValueError(f"{stored.key}: {expected}, got {len(stored.text):,}")
        self._random = numpy.random.default_rng(seed)
        # Guards the store and all attributes below. Training only rebinds `_nlp` and `_chosen`,
        # which is atomic and needs no lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._n_changes = 0  # number of changes to answers in this process
        # The value of `_n_changes` when the last training run started, or -1 if none has finished
        self._n_learned = -1
        self._is_stopped = False
        self._nlp = start_model
        self._start_model = start_model
        self._proposals = proposals
        self._evaluation_keys = [text.key for text in store.texts.values() if text.is_evaluation]
        self._training_keys = [text.key for text in store.texts.values() if not text.is_evaluation]
        self._thread: threading.Thread | None = None
        store.clear_leftovers(MODEL, DIR_VECTORS, RAW_FILE)
        model_path = store.folder / MODEL
        if (model_path / "config.cfg").exists():
            self._nlp = load_session_model(model_path)
        n_train = len(store.accepted(is_evaluation=False))
        # Unlike `start_model`, a model trained on few texts isn't used to choose texts. See
        # `ENOUGH_TO_CHOOSE`.
        choosing_model = self._nlp if n_train >= ENOUGH_TO_CHOOSE else start_model
        # The keys of the next texts, best first
        self._chosen = self._choose(choosing_model)

    # Texts

    def next_text(self) -> Proposal | None:
        """Return the next text to annotate, or None if all texts have answers."""
        with self._lock:
            answers = self.store.answers
            waiting = [key for key in self._evaluation_keys if key not in answers]
            # If all chosen texts have answers, use the first other text without an answer.
            others = (key for key in [*self._chosen, *self._training_keys] if key not in answers)
            key = next(others, None)
            if waiting and (key is None or self._is_turn_of_evaluation()):
                key = self._next_evaluation_text(waiting)
            if key is None:
                return None
            return self.proposal(key)

    def _next_evaluation_text(self, waiting: Sequence[str]) -> str:
        """Choose the next evaluation text and return its key. `waiting` contains the keys of the
        evaluation texts without an answer. An addition is a set of texts added together. The text
        is chosen from the addition with the smallest proportion of answered evaluation texts, so
        that all additions are evaluated. The texts of an addition are in random order."""
        n_evaluation = Counter(
            self.store.texts[key].addition_number for key in self._evaluation_keys
        )
        n_waiting = Counter(self.store.texts[key].addition_number for key in waiting)

        def waiting_share(key: str) -> float:
            """Return the proportion of unanswered evaluation texts in the text's addition."""
            addition = self.store.texts[key].addition_number
            return n_waiting[addition] / n_evaluation[addition]

        # `max` breaks ties by returning the first key. The order of `waiting` is random.
        return max(waiting, key=waiting_share)

    def _is_turn_of_evaluation(self) -> bool:
        """Check whether the next text should be an evaluation text."""
        answers = self.store.answers.values()
        n_evaluation = sum(answer.is_evaluation for answer in answers)
        # Including the next answer, at most one in `TURN_OF_EVALUATION` answers may be for
        # evaluation texts.
        return (n_evaluation + 1) * TURN_OF_EVALUATION <= len(answers) + 1

    def proposal(self, key: str) -> Proposal:
        """Return a text with its annotated entities. If the text has no answer yet, return it with
        proposed entities. Nothing is proposed for evaluation texts.

        key (str): The key of the text.
        RETURNS (Proposal): The text and its entities.
        RAISES (UnknownTextError): If the session has no text with this key.
        """
        with self._lock:
            if key not in self.store.texts:
                raise UnknownTextError(f"key: expected the key of a text, got {key!r}")
            stored = self.store.texts[key]
            answer = self.store.answers.get(key)
            doc = self._tokenizer.make_doc(self._text_of(stored))
            version = 0  # no answer yet
            spans: list[ProposedSpan] = []
            if answer is not None:
                version = answer.version
                spans = annotated_spans(doc, answer.task)
            elif not stored.is_evaluation:
                spans = self._propose_for(doc)
            tokens = [(token.text, token.whitespace_) for token in doc]
            return Proposal(key, tokens, spans, stored.is_evaluation, version)

    def _propose_for(self, doc: Doc) -> list[ProposedSpan]:
        """Propose entities for a text. Use the entities in `proposals` if the session has an
        external annotator, and the model's predictions otherwise."""
        if self._proposals is None:
            return self.propose(doc.text)
        task = self._proposals.get(doc.text)
        if task is None:
            return []
        return [span for span in annotated_spans(doc, task) if span.label in self.labels]

    def propose(self, text: str) -> list[ProposedSpan]:
        """Predict the entities of a text and their probabilities. Only entities with one of the
        session's labels are returned. Return an empty list if there is no model yet."""
        with self._lock:
            if self._nlp is None or not text.strip():
                return []
            return propose_spans(self._nlp, self._tokenizer, text, self.labels)

    def predict_texts(self, texts: Sequence[str]) -> list[tuple[Task, float | None]]:
        """Predict the entities of texts from another tool, and compute the model's certainty.

            certainty = 1 / (1 + expected cost / price of the annotation)

        See `suggest` for the expected cost and the price. If the session has an external annotator,
        its entities are returned instead, without a certainty.

        texts (Sequence[str]): The texts. They don't have to be texts of the session.
        RETURNS (list[tuple[Task, float | None]]): For each text, the predicted entities, with their
            probabilities as "score", and the model's certainty from 0 to 1. The certainty is None
            if there is no model yet, or if the text is empty or longer than spaCy allows.
        RAISES (ValueError): If spaCy can't create a `Doc` from a text.
        """
        predicted: list[tuple[Task, float | None]] = []
        if self._proposals is not None:
            for text in texts:
                proposed = self._proposals.get(text)
                spans = [] if proposed is None else proposed.spans or []
                predicted.append((Task(text, spans), None))
            return predicted
        for batch in minibatch(texts, N_AT_ONCE):
            with self._lock:
                predicted += predict_tasks(self._nlp, self._tokenizer, batch)
        return predicted

    # Answers

    def answer(
        self, key: str, spans: Iterable[ProposedSpan], *, is_left_out: bool, seen_version: int
    ) -> bool:
        """Save the answer for a text.

        key (str): The key of the text.
        spans (Iterable[ProposedSpan]): The annotated entities.
        is_left_out (bool): Whether the annotator skipped the text.
        seen_version (int): The version of the answer that was shown to the annotator. 0 if the text
            had no answer.
        RETURNS (bool): Whether this replaces an answer that the annotator hasn't seen, such as an
            answer from another browser tab.
        RAISES (SessionError): If the session has no text with this key, or the entities are invalid
            for the text.
        RAISES (OSError): If the answer can't be saved.
        """
        with self._lock:
            if key not in self.store.texts:
                raise UnknownTextError(f"key: expected the key of a text, got {key!r}")
            stored = self.store.texts[key]
            text = self._text_of(stored)
            doc = self._tokenizer.make_doc(text)
            task = Task(text, check_spans(doc, spans, self.labels))
            earlier = self.store.answers.get(key)
            is_replaced = earlier is not None and earlier.version != seen_version
            # The user may have moved the answer to the other file.
            is_evaluation = stored.is_evaluation if earlier is None else earlier.is_evaluation
            self.store.save(key, task, is_evaluation=is_evaluation, is_left_out=is_left_out)
            self._note_change()
            return is_replaced

    def _text_of(self, stored: StoredText) -> str:
        """Return the text as a string. If it has an answer, return the text in the answer file,
        which the user may have edited."""
        answer = self.store.answers.get(stored.key)
        return stored.text if answer is None else answer.task.text

    def answer_task(
        self, key: str, task: Task, *, is_left_out: bool = False, meta: Mapping[str, Any] = {}
    ) -> None:
        """Save an answer from another tool. When a text gets its first answer, the text's digest
        determines whether it is an evaluation text (see `is_drawn`). Later answers don't change
        this.

        key (str): The key of the answer.
        task (Task): The text and its annotated entities.
        is_left_out (bool): Whether the annotator skipped the text.
        meta (Mapping[str, Any]): The other tool's metadata to save with the answer.
        RAISES (SessionError): If the text is longer than spaCy allows or can't be encoded in UTF-8,
            or if the answer contains a value that isn't valid in JSON.
        RAISES (OSError): If the answer can't be saved.
        """
        if len(task.text) > self._tokenizer.max_length:
            expected = f"expected a text of at most {self._tokenizer.max_length:,} characters"
            raise SessionError(f"{expected}, got {len(task.text):,}")
        if SURROGATE.search(task.text):
            raise SessionError(
                f"expected a text that can be encoded in UTF-8, got {shown(task.text)}"
            )
        with self._lock:
            earlier = self.store.answers.get(key)
            is_evaluation = is_drawn(task.text) if earlier is None else earlier.is_evaluation
            try:
                self.store.save(
                    key, task, is_evaluation=is_evaluation, is_left_out=is_left_out, meta=meta
                )
            except ValueError as error:
                raise SessionError(f"expected an answer that JSON can have: {error}") from None
            self.unsaved.pop(key, None)
            self._note_change()

    def remove(self, key: str) -> bool:
        """Remove the answer for a text. Return whether the text had an answer."""
        with self._lock:
            self.unsaved.pop(key, None)
            was_there = self.store.remove(key)
            if was_there:
                self._note_change()
            return was_there

    def _note_change(self) -> None:
        """Count a change to the answers and wake the training thread."""
        self._n_changes += 1
        self._changed.notify_all()

    # Training

    def start(self) -> None:
        """Start the training thread."""
        self._thread = threading.Thread(target=self._train_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the training thread. A training run in progress is completed first."""
        with self._lock:
            self._is_stopped = True
            self._changed.notify_all()

    def wait_until_trained(self, timeout: float = 60.0) -> bool:
        """Wait until a training run that included all answers has finished. The run may have failed
        (see `problem`) or been skipped because there were too few answers.

        timeout (float): The maximum time to wait, in seconds.
        RETURNS (bool): Whether the last run included all answers. False if the wait timed out.
        """
        with self._lock:
            return self._changed.wait_for(self._has_learned_all, timeout)

    def _has_learned_all(self) -> bool:
        """Check that no training is in progress and that the last run, even if it failed, included
        all answers."""
        return not self.is_training and self._n_learned == self._n_changes

    def _train_forever(self) -> None:
        """Train once at the start, and again whenever there are new answers."""
        # Learn the vectors while the first texts are annotated. If this fails, the first training
        # run tries again and reports the error.
        with suppress(Exception):
            self.vectors  # noqa: B018 (the cached property learns them)
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._is_stopped or not self._has_learned_all())
                if self._is_stopped:
                    return
                self.is_training = True
                # Answers that change during this run are included in the next one.
                n_changes = self._n_changes
            problem = None
            try:
                self.train()
            except Exception as error:  # annotation continues even if training fails
                problem = f"training: {type(error).__name__}: {error}"
            with self._lock:
                self.is_training = False
                self.problem = problem
                self._n_learned = n_changes
                self._changed.notify_all()

    def train(self) -> TrainedPipeline | None:
        """Train a model from scratch on all answers for training texts, and evaluate it on the
        answers for evaluation texts. The new model is then saved and used to propose entities and
        choose the next texts. If the session still uses `start_model` and that model is at least as
        good, it is kept and the new model isn't saved.

        RETURNS (TrainedPipeline | None): The new model. None if there are too few answers for
            training texts, or if they contain no entities.
        """
        with self._lock:
            train_answers = self.store.accepted(is_evaluation=False)
            evaluation_answers = self.store.accepted(is_evaluation=True)
        n_entities = sum(len(answer.task.spans or ()) for answer in train_answers)
        if len(train_answers) < LEAST_TEXTS or not n_entities:
            return None
        begin = time.monotonic()
        nlp, training, loss = fit_answers(
            self.store, train_answers, lang=self.lang, vectors_path=self.vectors
        )
        f = f_on_answers(self.store, nlp, evaluation_answers)
        is_better = self._is_better(f, evaluation_answers)
        if is_better:
            # Use the model for proposals right away, because choosing texts takes about as long as
            # training.
            self._nlp = nlp
            if len(train_answers) >= ENOUGH_TO_CHOOSE:
                self._chosen = self._choose(nlp)
        sample = [self.store.texts[key].text for key in self._draw_unanswered(N_EXPECTED)]
        expected_f = expect_f(nlp, sample)
        point = HistoryPoint(
            n_texts=len(train_answers),
            n_entities=n_entities,
            n_measured=len(evaluation_answers),
            f=f if len(evaluation_answers) >= ENOUGH_EVALUATION_TEXTS else None,
            expected_f=expected_f,
            seconds=round(time.monotonic() - begin, 3),
        )
        self._add_to_history(point, digest_answers(train_answers, evaluation_answers))
        if is_better:
            scores = {} if point.f is None else {"ents_f": point.f}
            save_trained(self.store.folder / MODEL, nlp, training, scores, {COMPONENT: loss})
        return TrainedPipeline(nlp, training, loss, point)

    def _is_better(self, f: float | None, evaluation_answers: Sequence[Answer]) -> bool:
        """Check whether to replace the current model with a new one. `f` is the new model's F-score
        on the answers for evaluation texts. The current model is only kept if it is `start_model`
        and its F-score is at least as high."""
        if self._start_model is None or self._nlp is not self._start_model:
            return True
        start_f = f_on_answers(self.store, self._start_model, evaluation_answers)
        # The F-score is None if no entity is annotated or predicted. Treat this as 0.
        return (f or 0.0) > (start_f or 0.0)

    def train_on_all(self) -> TrainedPipeline:
        """Train a model on all answers, including the answers for evaluation texts. No texts are
        left to evaluate this model.

        RETURNS (TrainedPipeline): The trained model.
        RAISES (ValueError): If there are too few answers, or if they contain no entities.
        """
        with self._lock:
            answers = [
                *self.store.accepted(is_evaluation=False),
                *self.store.accepted(is_evaluation=True),
            ]
        n_entities = sum(len(answer.task.spans or ()) for answer in answers)
        if len(answers) < LEAST_TEXTS or not n_entities:
            expected = f"expected at least {LEAST_TEXTS} annotated texts with an entity"
            raise ValueError(f"{expected}, got {len(answers)} texts and {n_entities} entities")
        begin = time.monotonic()
        nlp, training, loss = fit_answers(
            self.store, answers, lang=self.lang, vectors_path=self.vectors
        )
        point = HistoryPoint(
            n_texts=len(answers),
            n_entities=n_entities,
            n_measured=0,
            f=None,
            expected_f=None,
            seconds=round(time.monotonic() - begin, 3),
        )
        return TrainedPipeline(nlp, training, loss, point)

    @cached_property
    def vectors(self) -> Path | None:
        """The directory of the pipeline with the vectors learned from the texts, or None if no
        vectors can be learned. They are learned on first access."""
        return learn_session_vectors(self.store, self.lang)

    def _add_to_history(self, point: HistoryPoint, answers_digest: str) -> None:
        """Add the scores of a training run to the history. Skip them if the previous run used the
        same answers and has the same F-score: a resumed session first trains on the same answers
        again, and skipped texts aren't trained on.

        The numbers of texts aren't compared, because an answer may have been corrected.
        """
        record = {**asdict(point), "answers": answers_digest}
        last = self.store.history[-1] if self.store.history else {}
        if all(last.get(name) == record[name] for name in ("answers", "f")):
            return
        with self._lock:
            self.store.add_to_history(record)

    def _draw_unanswered(self, n: int) -> list[str]:
        """Draw up to `n` unanswered training texts at random and return their keys."""
        with self._lock:
            keys = [key for key in self._training_keys if key not in self.store.answers]
            order = self._random.permutation(len(keys))[:n]
        return [keys[i] for i in order.tolist()]

    def _choose(self, nlp: Language | None) -> list[str]:
        """Choose the next texts and return their keys, best first. Texts are ranked by the model's
        uncertainty or, if there is no model, by their frequent words."""
        keys = self._draw_unanswered(MOST_CANDIDATES)
        # If no texts are chosen, `next_text` uses the training texts in their random order.
        if not keys or self._proposals is not None:
            return []
        make_doc = (nlp or self._tokenizer).make_doc
        docs = [make_doc(self.store.texts[key].text) for key in keys]
        if nlp is None:
            suggestions = suggest_first(docs, n=N_CHOSEN)
        else:
            suggestions = suggest(nlp, docs, n=N_CHOSEN, name=COMPONENT)
        return [keys[suggestion.doc_index] for suggestion in suggestions]

    # Progress

    def status(self) -> dict[str, Any]:
        """Return the progress of the session as a JSON-serializable dict, for the annotation
        page."""
        with self._lock:
            answers = list(self.store.answers.values())
            accepted = [answer for answer in answers if not answer.is_left_out]
            measured = [answer for answer in accepted if answer.is_evaluation]
            left_out = [answer for answer in answers if answer.is_left_out]
            return {
                "texts": len(self.store.texts),
                "annotated": len(accepted),
                "entities": sum(len(answer.task.spans or ()) for answer in accepted),
                "left_out": len(left_out),
                # Numbers of evaluation texts: annotated, total, skipped
                "measured": len(measured),
                "measuring": len(self._evaluation_keys),
                "measuring_left_out": sum(answer.is_evaluation for answer in left_out),
                "points": self.store.history,
                "next": expect_next(self.store.history),
                "is_training": self.is_training,
                "problem": self.problem,
                # Answers from another tool that weren't saved: their number and the last errors
                "unsaved": len(self.unsaved),
                "unsaved_problems": list(self.unsaved.values())[-N_PROBLEMS:],
                "advice": advice(
                    n_train=len(accepted) - len(measured),
                    n_measured=len(measured),
                    n_waiting=sum(key not in self.store.answers for key in self._evaluation_keys),
                    has_texts=bool(self.store.texts),
                ),
                "command": next_command(self.store, lang=self.lang, n_measured=len(measured)),
            }
