"""An annotation session: which text comes next, what the model proposes, and training in the
background.

The next training text is chosen by its words or, once a model was trained on 50 texts, by the
model. Evaluation texts come in between, without proposals, because people tend to accept what they
see. Whenever there are new answers, a thread trains a linear model from scratch on all answers to
training texts, while the previous model proposes. The inputs of the model include word vectors that
were learned from the texts. F is measured on the evaluation texts alone.
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
    expect_f,
    expect_next,
    f_on_answers,
    fit_answers,
    load_session_model,
)
from .session_vectors import RAW_FILE, learn_session_vectors
from .store import AnnotationStore, Answer, SessionError, StoredText, is_drawn

ENOUGH_TO_CHOOSE = 50
"""A model that was trained on at least this number of texts chooses the next texts. Until then,
texts are chosen by their words, which is better at 50 texts on two corpora: see
docs/no-annotation.md."""

TURN_OF_EVALUATION = 5
"""One in this number of shown texts is an evaluation text, until all evaluation texts have
answers."""

MOST_CANDIDATES = 2000
"""The next texts are chosen among at most this number of texts, which are drawn at random."""

N_EXPECTED = 500
"""The expected F is computed on at most this number of texts without an answer, which are drawn at
random."""

N_CHOSEN = 100
"""The number of texts that are chosen ahead, until the next model is trained."""

N_AT_ONCE = 64
"""The number of texts of another tool that are predicted at once. Answers wait meanwhile."""

N_PROBLEMS = 10
"""The status has at most this number of problems with answers of another tool."""


class UnknownTextError(SessionError):
    """The session has no text with this key."""


class AnnotationSession:
    """An annotation session in a folder. Several threads may call its methods.

    store (AnnotationStore): The texts and the answers.
    labels (Sequence[str]): The labels that can be annotated.
    lang (str): Code of the language, for the tokenizer and the model.
    start_model (Language | None): A trained pipeline to start from. It proposes until a model of
        the session has a higher F on the evaluation texts. If the folder already has a model of the
        session, that model is used instead.
    proposals (Mapping[str, Task] | None): The entities that an annotator, such as a language model,
        has found in texts, by text. They are proposed instead of the model's entities, and texts
        come in random order, so that the answers show how often the annotator errs.
    seed (int): Random seed of the samples of texts among which the next texts are chosen, and on
        which the expected F is computed.
    RAISES (ValueError): If the pipeline has no `cost_sensitive_ner` with the name `ner`, or its
        entities can't be used to choose texts: see `suggest`. Also if a text is longer than spaCy
        allows.
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
        self.problem: str | None = None  # the error of the last training
        # The reasons why answers of another tool can't be saved, keyed like the answers
        self.unsaved: dict[str, str] = {}
        self.is_training = False
        self._tokenizer = spacy.blank(lang)
        for stored in store.texts.values():
            if len(stored.text) > self._tokenizer.max_length:
                expected = f"expected a text of at most {self._tokenizer.max_length:,} characters"
                raise ValueError(f"{stored.key}: {expected}, got {len(stored.text):,}")
        self._random = numpy.random.default_rng(seed)
        # The lock for the store and all attributes below. Training replaces `_nlp` and `_chosen` as
        # a whole, which needs no lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._n_changes = 0  # the number of changes of answers in this process
        # The number of changes before the last training; -1 before the first training
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
        # A model that was trained on few texts doesn't choose yet: see `ENOUGH_TO_CHOOSE`.
        choosing_model = None
        if start_model is not None or n_train >= ENOUGH_TO_CHOOSE:
            choosing_model = self._nlp
        # The keys of the next texts, the best first
        self._chosen = self._choose(choosing_model)

    # The texts

    def next_text(self) -> Proposal | None:
        """Get the next text to annotate. None if all texts have answers."""
        with self._lock:
            answers = self.store.answers
            waiting = [key for key in self._evaluation_keys if key not in answers]
            # If all chosen texts have answers, take the first of the others.
            others = (key for key in [*self._chosen, *self._training_keys] if key not in answers)
            key = next(others, None)
            if waiting and (key is None or self._is_turn_of_evaluation()):
                key = self._next_evaluation_text(waiting)
            if key is None:
                return None
            return self.proposal(key)

    def _next_evaluation_text(self, waiting: Sequence[str]) -> str:
        """Choose the next evaluation text among the keys of evaluation texts without an answer.
        It is from the addition with the smallest share of answers, so that all additions are
        evaluated. (The texts that were added together are an addition.) Within an addition the
        keys have a random order."""
        n_evaluation = Counter(
            self.store.texts[key].addition_number for key in self._evaluation_keys
        )
        n_waiting = Counter(self.store.texts[key].addition_number for key in waiting)

        def waiting_share(key: str) -> float:
            """The share of evaluation texts without an answer, in the addition of this text."""
            addition = self.store.texts[key].addition_number
            return n_waiting[addition] / n_evaluation[addition]

        # If shares are equal, `max` takes the first key. The order of `waiting` is random.
        return max(waiting, key=waiting_share)

    def _is_turn_of_evaluation(self) -> bool:
        """Whether the next text should be an evaluation text."""
        answers = self.store.answers.values()
        n_evaluation = sum(answer.is_evaluation for answer in answers)
        # With it, at most one in `TURN_OF_EVALUATION` answers may be to an evaluation text.
        return (n_evaluation + 1) * TURN_OF_EVALUATION <= len(answers) + 1

    def proposal(self, key: str) -> Proposal:
        """Get a text with its annotated entities or, without an answer, with the entities that the
        model proposes. An evaluation text has no proposals.

        key (str): The key of the text.
        RETURNS (Proposal): The text.
        RAISES (UnknownTextError): If the session has no such text.
        """
        with self._lock:
            if key not in self.store.texts:
                raise UnknownTextError(f"key: expected the key of a text, got {key!r}")
            stored = self.store.texts[key]
            answer = self.store.answers.get(key)
            doc = self._tokenizer.make_doc(self._text_of(stored))
            version = 0  # no answer
            spans: list[ProposedSpan] = []
            if answer is not None:
                version = answer.version
                spans = annotated_spans(doc, answer.task)
            elif not stored.is_evaluation:
                spans = self._propose_for(doc)
            tokens = [(token.text, token.whitespace_) for token in doc]
            return Proposal(key, tokens, spans, stored.is_evaluation, version)

    def _propose_for(self, doc: Doc) -> list[ProposedSpan]:
        """Propose entities for a text: the entities of the annotator or, without one, of the
        model."""
        if self._proposals is None:
            return self.propose(doc.text)
        task = self._proposals.get(doc.text)
        if task is None:
            return []
        return [span for span in annotated_spans(doc, task) if span.label in self.labels]

    def propose(self, text: str) -> list[ProposedSpan]:
        """Predict the entities of a text that have a label of the session, with their
        probabilities. Without a model, there are no entities."""
        with self._lock:
            if self._nlp is None or not text.strip():
                return []
            return propose_spans(self._nlp, self._tokenizer, text, self.labels)

    def predict_texts(self, texts: Sequence[str]) -> list[tuple[Task, float | None]]:
        """Predict texts of another tool.

            certainty = 1 / (1 + expected cost / price of the annotation)

        texts (Sequence[str]): The texts.
        RETURNS (list[tuple[Task, float | None]]): Each text with the predicted entities, which have
            their probabilities as "score", and the certainty of the model about the text, from 0
            to 1. The certainty is None without a model, or if the text is empty or longer than
            spaCy allows. For cost and price see `suggest`.
        RAISES (ValueError): If spaCy can't make a doc from a text.
        """
        predicted: list[tuple[Task, float | None]] = []
        for batch in minibatch(texts, N_AT_ONCE):
            with self._lock:
                predicted += predict_tasks(self._nlp, self._tokenizer, batch)
        return predicted

    # The answers

    def answer(
        self, key: str, spans: Iterable[ProposedSpan], *, is_left_out: bool, seen_version: int
    ) -> bool:
        """Save the answer to a text.

        key (str): The key of the text.
        spans (Iterable[ProposedSpan]): The entities.
        is_left_out (bool): Whether the text is left out.
        seen_version (int): The version of the answer that was shown, 0 for no answer.
        RETURNS (bool): Whether this replaces an answer that wasn't shown, such as the answer of
            another tab.
        RAISES (SessionError): If the session has no such text, or the text can't have these
            entities.
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
            # Somebody may have moved the answer to the other file.
            is_evaluation = stored.is_evaluation if earlier is None else earlier.is_evaluation
            self.store.save(key, task, is_evaluation=is_evaluation, is_left_out=is_left_out)
            self._note_change()
            return is_replaced

    def _text_of(self, stored: StoredText) -> str:
        """The words of a text of the session. If the text has an answer, they come from the file of
        answers, which somebody may have edited."""
        answer = self.store.answers.get(stored.key)
        return stored.text if answer is None else answer.task.text

    def answer_task(
        self, key: str, task: Task, *, is_left_out: bool = False, meta: Mapping[str, Any] = {}
    ) -> None:
        """Save the answer to a text of another tool. At the first answer, the digest of the text
        decides whether it is an evaluation text: see `is_drawn`. Later answers don't change this.

        key (str): The key of the answer.
        task (Task): The text and its entities.
        is_left_out (bool): Whether the text is left out.
        meta (Mapping[str, Any]): Metadata of the other tool, which are saved with the answer.
        RAISES (SessionError): If the text is longer than spaCy allows or can't be UTF-8, or the
            answer has a value that JSON doesn't have.
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
        """Remove the answer to a text. Returns whether the text had an answer."""
        with self._lock:
            self.unsaved.pop(key, None)
            was_there = self.store.remove(key)
            if was_there:
                self._note_change()
            return was_there

    def _note_change(self) -> None:
        """Count a change of the answers, and wake the thread that trains."""
        self._n_changes += 1
        self._changed.notify_all()

    # Training

    def start(self) -> None:
        """Start the thread that trains models."""
        self._thread = threading.Thread(target=self._train_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread that trains models. If a training is running, the thread ends after
        it."""
        with self._lock:
            self._is_stopped = True
            self._changed.notify_all()

    def wait_until_trained(self, timeout: float = 60.0) -> bool:
        """Wait until the last training has used all answers. It may have failed (see `problem`), or
        have had too few answers.

        timeout (float): The time to wait, in seconds.
        RETURNS (bool): Whether the last training has used all answers. False after the timeout.
        """
        with self._lock:
            return self._changed.wait_for(self._has_learned_all, timeout)

    def _has_learned_all(self) -> bool:
        """Whether no training is running, and the last training, even if it failed, has used all
        answers."""
        return not self.is_training and self._n_learned == self._n_changes

    def _train_forever(self) -> None:
        """Train once at the start, and then whenever there are new answers."""
        # Learn vectors while the first texts are annotated. If this fails, the first training tries
        # again and reports the error.
        with suppress(Exception):
            self.vectors  # noqa: B018 (a cached property: reading it learns them)
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._is_stopped or not self._has_learned_all())
                if self._is_stopped:
                    return
                self.is_training = True
                # Changes during this training are for the next training.
                n_changes = self._n_changes
            problem = None
            try:
                self.train()
            except Exception as error:  # people can answer even if training fails
                problem = f"training: {type(error).__name__}: {error}"
            with self._lock:
                self.is_training = False
                self.problem = problem
                self._n_learned = n_changes
                self._changed.notify_all()

    def train(self) -> TrainedPipeline | None:
        """Train a model from scratch on all answers to training texts, and evaluate it on the
        answers to evaluation texts. Then use it to propose entities and to choose the next texts,
        and save it. If a `start_model` is at least as good, it stays, and the new model isn't
        saved.

        RETURNS (TrainedPipeline | None): The new model. None if there are too few answers to
            training texts, or no entity in them.
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
            # The model proposes at once: choosing texts takes about as long as training.
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
        self._add_to_history(point)
        if is_better:
            scores = {} if point.f is None else {"ents_f": point.f}
            save_trained(self.store.folder / MODEL, nlp, training, scores, {COMPONENT: loss})
        return TrainedPipeline(nlp, training, loss, point)

    def _is_better(self, f: float | None, evaluation_answers: Sequence[Answer]) -> bool:
        """Whether a new model, whose F on answers to evaluation texts is `f`, replaces the present
        one: if it isn't the `start_model`, or has a lower F."""
        if self._start_model is None or self._nlp is not self._start_model:
            return True
        start_f = f_on_answers(self.store, self._start_model, evaluation_answers)
        # F is None if no entity is annotated or predicted. This counts as 0 here.
        return (f or 0.0) > (start_f or 0.0)

    def train_on_all(self) -> TrainedPipeline:
        """Train a model on all answers, including answers to evaluation texts. So nothing measures
        this model.

        RETURNS (TrainedPipeline): The model.
        RAISES (ValueError): If there are too few answers, or no entity in them.
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
        """The folder of the vectors that were learned from the texts. They are learned when this is
        first read. None if no vectors can be learned."""
        return learn_session_vectors(self.store, self.lang)

    def _add_to_history(self, point: HistoryPoint) -> None:
        """Add the scores of a training to the history, unless the last training had the same
        numbers of texts: at the start of a continued session, the same texts are trained on
        again."""
        if self.store.history:
            last = self.store.history[-1]
            if (last.get("n_texts"), last.get("n_measured")) == (point.n_texts, point.n_measured):
                return
        with self._lock:
            self.store.add_to_history(asdict(point))

    def _draw_unanswered(self, n: int) -> list[str]:
        """Draw `n` training texts without an answer at random, or all if there are fewer. Returns
        their keys."""
        with self._lock:
            keys = [key for key in self._training_keys if key not in self.store.answers]
            order = self._random.permutation(len(keys))[:n]
        return [keys[i] for i in order.tolist()]

    def _choose(self, nlp: Language | None) -> list[str]:
        """Choose the next texts, by the uncertainty of the model or, without a model, by their
        frequent words. Returns their keys, the best first."""
        keys = self._draw_unanswered(MOST_CANDIDATES)
        # The keys of training texts have a random order, in which texts come that aren't chosen.
        if not keys or self._proposals is not None:
            return []
        make_doc = (nlp or self._tokenizer).make_doc
        docs = [make_doc(self.store.texts[key].text) for key in keys]
        if nlp is None:
            suggestions = suggest_first(docs, n=N_CHOSEN)
        else:
            suggestions = suggest(nlp, docs, n=N_CHOSEN, name=COMPONENT)
        return [keys[suggestion.place] for suggestion in suggestions]

    # Progress

    def status(self) -> dict[str, Any]:
        """The progress of the session, as JSON. The page shows it."""
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
                # The numbers of evaluation texts: annotated, all, left out
                "measured": len(measured),
                "measuring": len(self._evaluation_keys),
                "measuring_left_out": sum(answer.is_evaluation for answer in left_out),
                "points": self.store.history,
                "next": expect_next(self.store.history),
                "is_training": self.is_training,
                "problem": self.problem,
                # Answers of another tool that can't be saved: their number, and the last reasons
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
