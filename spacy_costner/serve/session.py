"""An annotation session: which text comes next, what the model proposes, and training in the
background.

A text to train on is chosen by its words or, from 50 texts on, by the model. Between them come
evaluation texts: without proposals, as people accept what they see. Whenever there are new
answers, a thread trains a linear model from scratch on all of them but those for evaluation texts,
while the model before proposes. Vectors of words that were learned from the texts are among its
inputs. F is measured on the evaluation texts, and only there.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.api import Config

from ..caching import cached_property
from ..metrics.shift import expected_prf
from ..pipeline.confidence import Confidence, prob_of
from ..readers import Task, TaskSpan, examples_to_measure, make_reader, write_tasks
from ..readers.files import SURROGATE, shown
from ..workflows.components import get_component, run_before
from ..workflows.config.initial_config import init
from ..workflows.corpora import find_corpora
from ..workflows.evaluation.predictions import predict
from ..workflows.fitting.linear_training import load_linear, prepare, train_linear
from ..workflows.fitting.pipeline_training import save_trained
from ..workflows.sampling.expected_counts import expect_counts
from ..workflows.sampling.suggestions import PRICE_PER_DOC, by_cost, suggest, suggest_first
from ..workflows.vectors import DIR_VECTORS
from .session_vectors import RAW_FILE, learn_session_vectors
from .store import AnnotationStore, Answer, SessionError, StoredText, is_drawn

COMPONENT = "ner"
"""The name of the component in the pipelines that `init` writes."""

LEAST_TEXTS = 10
"""The number of annotated texts that a first model needs."""

ENOUGH_TO_CHOOSE = 50
"""A model that was trained on this number of texts chooses the next ones. Before, texts are chosen
by their words, which is better at 50 texts on two corpora: see docs/no-annotation.md."""

TURN_TO_MEASURE = 5
"""One in this number of shown texts is an evaluation text, as long as there are some."""

MOST_CANDIDATES = 2000
"""The next texts are chosen among at most this number, drawn at random."""

N_EXPECTED = 500
"""F is expected of at most this number of texts without an answer, drawn at random."""

N_CHOSEN = 100
"""How many texts are chosen ahead. They last until the next model is there."""

N_AT_ONCE = 64
"""So many texts of another tool are predicted at once. Answers wait meanwhile."""

ENOUGH_MEASURING = 30
"""From this number of annotated evaluation texts on, there is an F on them, and the page advises to
calibrate on them."""

N_PROBLEMS = 10
"""The status has at most this number of problems with answers of another tool."""

MODEL = "model"
"""The folder of the last pipeline, in the folder of the session."""


class UnknownTextError(SessionError):
    """There is no text with this key."""


class ProposedSpan(NamedTuple):
    """An entity of a text, in tokens: proposed by the model, with its probability, or annotated."""

    start: int
    end: int
    label: str
    prob: float | None = None


@dataclass(frozen=True)
class Proposal:
    """A text to annotate, as the page shows it."""

    key: str
    tokens: Sequence[tuple[str, str]]  # each with the white space after it
    spans: Sequence[ProposedSpan]
    is_measuring: bool
    version: int  # of the answer that it has; 0: none

    def as_dict(self) -> dict[str, Any]:
        """The proposal as JSON has it."""
        return {**asdict(self), "spans": [span._asdict() for span in self.spans]}


@dataclass(frozen=True)
class HistoryPoint:
    """What a training has brought."""

    n_texts: int  # annotated texts that it was trained on
    n_entities: int  # entities of these texts
    n_measured: int  # annotated evaluation texts
    f: float | None  # on those that measure; None: they are too few, or have no entity
    expected_f: float | None  # what the model expects of the texts that nobody annotated
    seconds: float


class TrainedPipeline(NamedTuple):
    """A pipeline that was trained on the answers, with its scores."""

    nlp: Language
    training: dict[str, Any]  # the block [training] of its config, resolved
    loss: float  # the last loss of its training: see `training.online.TrainingResult`
    point: HistoryPoint


class AnnotationSession:
    """A session of annotation in a folder. Its methods may be called by several threads.

    store (AnnotationStore): The texts and the answers.
    labels (Sequence[str]): The labels that can be annotated.
    lang (str): Code of the language, for the tokenizer and the model.
    start_model (Language | None): A trained pipeline to begin with. It stays until a model of the
        session has a higher F on the evaluation texts. If the folder has a model, that one goes
        on instead.
    seed (int): Seed of the draws of texts that the next ones are chosen among, and of those that F
        is expected of.
    RAISES (ValueError): If the pipeline has no `cost_sensitive_ner` by the name `ner`, or its
        entities can't be used to choose texts: see `suggest`. If a text is longer than spaCy
        allows.
    """

    def __init__(
        self,
        store: AnnotationStore,
        *,
        labels: Sequence[str],
        lang: str,
        start_model: Language | None = None,
        seed: int = 0,
    ) -> None:
        if start_model is not None:
            get_component(start_model, COMPONENT)  # raises an error if there is none
        self.store = store
        self.labels = list(labels)
        self.lang = lang
        self.problem: str | None = None  # of the last training
        # Why answers of another tool can't be saved, by their keys
        self.unsaved: dict[str, str] = {}
        self.is_training = False
        self._tokenizer = spacy.blank(lang)
        for stored in store.texts.values():
            if len(stored.text) > self._tokenizer.max_length:
                expected = f"expected a text of at most {self._tokenizer.max_length:,} characters"
                raise ValueError(f"{stored.key}: {expected}, got {len(stored.text):,}")
        self._random = numpy.random.default_rng(seed)
        # For the store and everything below. Training replaces `_nlp` and `_chosen` as a whole,
        # which needs no lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._n_changes = 0  # of answers, in this process
        self._n_learned = -1  # the changes before the last training; -1: there was none
        self._is_stopped = False
        self._nlp = start_model
        self._start_model = start_model
        self._measuring = [text.key for text in store.texts.values() if text.is_measuring]
        self._others = [text.key for text in store.texts.values() if not text.is_measuring]
        self._thread: threading.Thread | None = None
        store.clear_leftovers(MODEL, DIR_VECTORS, RAW_FILE)
        model_path = store.folder / MODEL
        if (model_path / "config.cfg").exists():
            self._nlp = load_model(model_path)
        n_train = len(store.accepted(is_measuring=False))
        # A model that has seen few texts doesn't choose yet: see `ENOUGH_TO_CHOOSE`.
        choosing_model = None
        if start_model is not None or n_train >= ENOUGH_TO_CHOOSE:
            choosing_model = self._nlp
        # The keys of the next texts, the best first
        self._chosen = self._choose(choosing_model)

    # The texts

    def next_text(self) -> Proposal | None:
        """The next text to annotate. None: all have answers."""
        with self._lock:
            answers = self.store.answers
            waiting = [key for key in self._measuring if key not in answers]
            # If all chosen texts have answers, the first of the others comes.
            others = (key for key in [*self._chosen, *self._others] if key not in answers)
            key = next(others, None)
            if waiting and (key is None or self._is_turn_to_measure()):
                key = self._next_to_measure(waiting)
            if key is None:
                return None
            return self.proposal(key)

    def _next_to_measure(self, waiting: Sequence[str]) -> str:
        """Choose the next text that measures. The texts that were added together are an addition.
        The text is from the addition with the smallest share of answers, so that all additions are
        measured. Within an addition the order is random.

        waiting (Sequence[str]): Keys of evaluation texts that have no answer, in their order in
            the store, which is random within an addition.
        """
        n_measuring = Counter(self.store.texts[key].addition_number for key in self._measuring)
        n_waiting = Counter(self.store.texts[key].addition_number for key in waiting)

        def waiting_share(key: str) -> float:
            """Of the evaluation texts that were added together with this one, the share that has
            no answer."""
            addition = self.store.texts[key].addition_number
            return n_waiting[addition] / n_measuring[addition]

        # Of texts with the same share `max` takes the first. The order of `waiting` is random.
        return max(waiting, key=waiting_share)

    def _is_turn_to_measure(self) -> bool:
        """Whether too few of the answers are for evaluation texts."""
        answers = self.store.answers.values()
        n_measuring = sum(answer.is_measuring for answer in answers)
        # If the next text measures, at most one in `TURN_TO_MEASURE` of all answers may measure.
        return (n_measuring + 1) * TURN_TO_MEASURE <= len(answers) + 1

    def proposal(self, key: str) -> Proposal:
        """A text with its annotation or, if it has none, with what the model proposes. A text that
        measures has no proposals.

        RAISES (UnknownTextError): If there is no such text.
        """
        with self._lock:
            if key not in self.store.texts:
                raise UnknownTextError(f"key: expected that of a text, got {key!r}")
            stored = self.store.texts[key]
            answer = self.store.answers.get(key)
            doc = self._tokenizer.make_doc(self._text_of(stored))
            version = 0  # There is no answer.
            spans: list[ProposedSpan] = []
            if answer is not None:
                version = answer.version
                spans = annotated_spans(doc, answer)
            elif not stored.is_measuring:
                spans = self.propose(stored.text)
            tokens = [(token.text, token.whitespace_) for token in doc]
            return Proposal(key, tokens, spans, stored.is_measuring, version)

    def propose(self, text: str) -> list[ProposedSpan]:
        """The entities with labels of the session that the model predicts in a text, each with its
        probability. There are none before there is a model."""
        with self._lock:
            nlp = self._nlp
            if nlp is None or not text.strip():
                return []
            ner = get_component(nlp, COMPONENT)
            docs = run_before(nlp, COMPONENT, [nlp.make_doc(text)])
            posterior = ner.posterior(docs)
            # With `Confidence`, the probabilities are written to the doc, where `prob_of` reads
            # them.
            predict(ner, docs, posterior, Confidence())
        (doc,) = docs
        # A `start_model` may have other tokens than the session. If its entity ends within a token
        # of the session, the whole token is proposed, unless it is in the entity before.
        session_doc = self._tokenizer.make_doc(text)
        spans: list[ProposedSpan] = []
        last_end = 0
        for ent in doc.ents:
            span = session_doc.char_span(ent.start_char, ent.end_char, alignment_mode="expand")
            if span is None or span.start < last_end or ent.label_ not in self.labels:
                continue
            spans.append(ProposedSpan(span.start, span.end, ent.label_, prob_of(ent)))
            last_end = span.end
        return spans

    def predict_texts(self, texts: Sequence[str]) -> list[tuple[Task, float | None]]:
        """Predict texts that another tool has.

        texts (Sequence[str]): The texts.
        RETURNS (list[tuple[Task, float | None]]): Each text with the predicted entities, each with
            its probability as "score"; and how certain the model is of the text, from 0 to 1:
            1 / (1 + expected cost / price of the annotation), see `suggest`. None: there is no
            model, or the text is empty or longer than spaCy allows.
        RAISES (ValueError): If spaCy can't make a doc of a text.
        """
        predicted: list[tuple[Task, float | None]] = []
        for batch in minibatch(texts, N_AT_ONCE):
            with self._lock:
                predicted += self._predict_batch(batch)
        return predicted

    def _predict_batch(self, texts: Sequence[str]) -> list[tuple[Task, float | None]]:
        """Predict some texts: see `predict_texts`."""
        nlp = self._nlp or self._tokenizer  # without a model, a pipeline that only has a tokenizer
        results: list[tuple[Task, float | None]] = [(Task(text, []), None) for text in texts]
        places: list[int] = []  # of the texts that are predicted
        docs: list[Doc] = []
        # Docs are made even without a model, so that a text that spaCy can't read is refused.
        for place, text in enumerate(texts):
            if len(text) > nlp.max_length:
                continue
            doc = nlp.make_doc(text)
            if len(doc):
                places.append(place)
                docs.append(doc)
        # Not `self._nlp is None`: training may have set it since the first line.
        if nlp is self._tokenizer or not docs:
            return results
        ner = get_component(nlp, COMPONENT)
        docs = run_before(nlp, COMPONENT, docs)
        posterior = ner.posterior(docs)
        uncertainties = by_cost(ner, posterior).docs.tolist()
        # With `Confidence`, the probabilities are written to the docs, where `prob_of` reads them.
        predict(ner, docs, posterior, Confidence())
        for place, doc, uncertainty in zip(places, docs, uncertainties):
            spans = [
                TaskSpan(ent.start_char, ent.end_char, ent.label_, {"score": prob_of(ent)})
                for ent in doc.ents
            ]
            price = len(doc) + PRICE_PER_DOC  # of the annotation, in tokens
            certainty = 1.0 / (1.0 + uncertainty / price)
            results[place] = (Task(texts[place], spans), certainty)
        return results

    # The answers

    def answer(
        self, key: str, spans: Iterable[ProposedSpan], *, is_left_out: bool, seen_version: int
    ) -> bool:
        """Save the answer to a text.

        key (str): The key of the text.
        spans (Iterable[ProposedSpan]): Its entities.
        is_left_out (bool): Whether it is left out.
        seen_version (int): The version of the answer that was shown, 0 for none.
        RETURNS (bool): Whether this replaces an answer that wasn't shown: of another tab.
        RAISES (SessionError): If there is no such text, or it can't have these entities.
        RAISES (OSError): If the answer can't be saved.
        """
        with self._lock:
            if key not in self.store.texts:
                raise UnknownTextError(f"key: expected that of a text, got {key!r}")
            stored = self.store.texts[key]
            text = self._text_of(stored)
            doc = self._tokenizer.make_doc(text)
            task = Task(text, self._check_spans(doc, spans))
            earlier = self.store.answers.get(key)
            is_replaced = earlier is not None and earlier.version != seen_version
            # Somebody may have moved the answer to the other file.
            is_measuring = stored.is_measuring if earlier is None else earlier.is_measuring
            self.store.save(key, task, is_measuring=is_measuring, is_left_out=is_left_out)
            self._note_change()
            return is_replaced

    def _text_of(self, stored: StoredText) -> str:
        """The text of a text of the session. If it has an answer, somebody may have edited the text
        in the file of answers."""
        answer = self.store.answers.get(stored.key)
        return stored.text if answer is None else answer.task.text

    def answer_task(
        self, key: str, task: Task, *, is_left_out: bool = False, meta: Mapping[str, Any] = {}
    ) -> None:
        """Save the answer to a text that another tool has. Whether it measures is drawn by a digest
        of the text at its first answer (see `is_drawn`). Later answers don't change it.

        key (str): A name of the answer.
        task (Task): The text and its entities.
        is_left_out (bool): Whether it is left out.
        meta (Mapping[str, Any]): What the other tool wants to know of the answer later.
        RAISES (SessionError): If the text is longer than spaCy allows or can't be UTF-8, or the
            answer has a value that JSON doesn't have.
        RAISES (OSError): If the answer can't be saved.
        """
        if len(task.text) > self._tokenizer.max_length:
            expected = f"expected a text of at most {self._tokenizer.max_length:,} characters"
            raise SessionError(f"{expected}, got {len(task.text):,}")
        if SURROGATE.search(task.text):
            raise SessionError(f"expected a text that can be UTF-8, got {shown(task.text)}")
        with self._lock:
            earlier = self.store.answers.get(key)
            is_measuring = is_drawn(task.text) if earlier is None else earlier.is_measuring
            try:
                self.store.save(
                    key, task, is_measuring=is_measuring, is_left_out=is_left_out, meta=meta
                )
            except ValueError as error:
                raise SessionError(f"expected an answer that JSON can have: {error}") from None
            self.unsaved.pop(key, None)
            self._note_change()

    def remove(self, key: str) -> bool:
        """Remove the answer to a text. Returns whether there was one."""
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

    def _check_spans(self, doc: Doc, spans: Iterable[ProposedSpan]) -> list[TaskSpan]:
        """Check the spans of an answer, and turn their tokens into characters. White space at the
        ends of a span is left out.

        doc (Doc): The doc of the text.
        spans (Iterable[ProposedSpan]): The spans of the answer.
        RETURNS (list[TaskSpan]): The spans, from left to right.
        RAISES (SessionError): If one is not in the doc, is only white space, has another label, or
            overlaps another.
        """
        task_spans: list[TaskSpan] = []
        last_end = 0
        for start, end, label, _ in sorted(spans, key=lambda span: (span.start, span.end)):
            if not 0 <= start < end <= len(doc):
                expected = f"expected a start before its end in a text of {len(doc)} tokens"
                raise SessionError(f"spans: {expected}, got {start} to {end}")
            if start < last_end:
                raise SessionError(f"spans: expected none that overlap, got two at {start}")
            if label not in self.labels:
                raise SessionError(f"label: expected one of {self.labels}, got {label!r}")
            last_end = end
            span = doc[start:end]
            stripped_text = span.text.strip()
            if not stripped_text:
                raise SessionError(f"spans: expected words, got white space at {start}")
            n_leading_spaces = len(span.text) - len(span.text.lstrip())
            start_char = span.start_char + n_leading_spaces
            task_spans.append(TaskSpan(start_char, start_char + len(stripped_text), label))
        return task_spans

    # Training

    def start(self) -> None:
        """Start the thread that trains."""
        self._thread = threading.Thread(target=self._train_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread that trains. It ends after a training that is running."""
        with self._lock:
            self._is_stopped = True
            self._changed.notify_all()

    def wait_until_trained(self, timeout: float = 60.0) -> bool:
        """Wait until there is nothing to train: the last training saw all answers. It may have
        failed (see `problem`), or have had too few. Returns False if time is up before."""
        with self._lock:
            return self._changed.wait_for(self._has_learned_all, timeout)

    def _has_learned_all(self) -> bool:
        """Whether there is nothing to train: the last training, even if it failed, saw all answers,
        and none is running."""
        return not self.is_training and self._n_learned == self._n_changes

    def _train_forever(self) -> None:
        """Train once at the start, and then whenever there are new answers."""
        # Vectors are learned while the first texts are annotated. If that fails, the first training
        # tries again, and says why.
        with suppress(Exception):
            self.vectors  # noqa: B018 (a cached property: reading it learns them)
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._is_stopped or not self._has_learned_all())
                if self._is_stopped:
                    return
                self.is_training = True
                # What changes during the training is for the next one.
                n_changes = self._n_changes
            problem = None
            try:
                self.train()
            except Exception as error:  # answers go on even if training fails
                problem = f"training: {type(error).__name__}: {error}"
            with self._lock:
                self.is_training = False
                self.problem = problem
                self._n_learned = n_changes
                self._changed.notify_all()

    def train(self) -> TrainedPipeline | None:
        """Train a model from scratch on all answers but those for evaluation texts. Measure it on
        these, choose the next texts, save it, and propose with it from now on. A `start_model` that
        is not worse proposes further, and the new model isn't saved. None: there are too few
        answers to train on, or none of them has an entity."""
        with self._lock:
            train_answers = self.store.accepted(is_measuring=False)
            measure_answers = self.store.accepted(is_measuring=True)
        n_entities = sum(len(answer.task.spans or ()) for answer in train_answers)
        if len(train_answers) < LEAST_TEXTS or not n_entities:
            return None
        begin = time.monotonic()
        nlp, training, loss = self._fit(train_answers)
        f = self._measure(nlp, measure_answers)
        is_better = True
        if self._start_model is not None and self._nlp is self._start_model:
            start_f = self._measure(self._start_model, measure_answers)
            # F is None if no entity is annotated or predicted. That counts as 0 here.
            is_better = (f or 0.0) > (start_f or 0.0)
        if is_better:
            # It proposes at once. Choosing texts takes about as long as training.
            self._nlp = nlp
            if len(train_answers) >= ENOUGH_TO_CHOOSE:
                self._chosen = self._choose(nlp)
        expected_f = self._expect_f(nlp)
        point = HistoryPoint(
            n_texts=len(train_answers),
            n_entities=n_entities,
            n_measured=len(measure_answers),
            f=f if len(measure_answers) >= ENOUGH_MEASURING else None,
            expected_f=expected_f,
            seconds=round(time.monotonic() - begin, 3),
        )
        self._add_to_history(point)
        if is_better:
            scores = {} if point.f is None else {"ents_f": point.f}
            save_trained(self.store.folder / MODEL, nlp, training, scores, {COMPONENT: loss})
        return TrainedPipeline(nlp, training, loss, point)

    def train_on_all(self) -> TrainedPipeline:
        """Train on all answers, also on those for evaluation texts: nothing measures the result.

        RAISES (ValueError): If there are too few, or none of them has an entity.
        """
        with self._lock:
            answers = [
                *self.store.accepted(is_measuring=False),
                *self.store.accepted(is_measuring=True),
            ]
        n_entities = sum(len(answer.task.spans or ()) for answer in answers)
        if len(answers) < LEAST_TEXTS or not n_entities:
            expected = f"expected at least {LEAST_TEXTS} annotated texts, and an entity"
            raise ValueError(f"{expected}, got {len(answers)} texts and {n_entities} entities")
        begin = time.monotonic()
        nlp, training, loss = self._fit(answers)
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
        """The folder of vectors that were learned from the texts; None if there are none. They are
        learned when this is read first."""
        return learn_session_vectors(self.store, self.lang)

    def _add_to_history(self, point: HistoryPoint) -> None:
        """Keep what a training has brought, unless the last one had as many texts of each kind. So
        the training at the start of a session that goes on doesn't count twice."""
        if self.store.history:
            last = self.store.history[-1]
            if (last.get("n_texts"), last.get("n_measured")) == (point.n_texts, point.n_measured):
                return
        with self._lock:
            self.store.add_to_history(asdict(point))

    def _fit(self, answers: Sequence[Answer]) -> tuple[Language, dict[str, Any], float]:
        """Train the model of `fit`, but without a hidden layer, on answers. Returns the pipeline,
        the block [training], and the loss."""
        with self.store.working_folder() as folder:
            # The corpus itself may get answers while it is read.
            snapshot = folder / "train.jsonl"
            write_tasks(snapshot, [answer.task for answer in answers])
            vectors = None if self.vectors is None else str(self.vectors)
            text = init(folder / "config.cfg", lang=self.lang, train_path=snapshot, vectors=vectors)
            # A hidden layer over the vectors would take twice as long.
            overrides = {"components.ner.model.hidden": 0}
            linear = load_linear(Config().from_str(text, overrides=overrides))
            corpus, _ = find_corpora(linear.nlp)  # the second one, for development, is not used
            examples = prepare(linear, corpus)
        outcome = train_linear(linear, examples)
        # The snapshot is gone. So the config names the file of the session.
        linear.nlp.config["paths"]["train"] = str(self.store.train_path)
        return linear.nlp, linear.training, outcome.value

    def _measure(self, nlp: Language, answers: Sequence[Answer]) -> float | None:
        """F of a pipeline on answers; None if no entity is annotated or predicted there."""
        if not answers:
            return None
        with self.store.working_folder() as folder:
            snapshot = folder / "measure.jsonl"
            write_tasks(snapshot, [answer.task for answer in answers])
            examples = list(examples_to_measure(nlp, make_reader(snapshot)))
        f = nlp.evaluate(examples).get("ents_f")
        return None if f is None else float(f)

    def _draw_unanswered(self, n: int) -> list[str]:
        """Keys of `n` texts that have no answer, or of all if there are fewer, at random. None of
        them measures."""
        with self._lock:
            keys = [key for key in self._others if key not in self.store.answers]
            order = self._random.permutation(len(keys))[:n]
        return [keys[i] for i in order.tolist()]

    def _choose(self, nlp: Language | None) -> list[str]:
        """The next texts: those that the model is least sure of or, without one, those with the
        frequent words."""
        keys = self._draw_unanswered(MOST_CANDIDATES)
        if not keys:
            return []
        make_doc = (nlp or self._tokenizer).make_doc
        docs = [make_doc(self.store.texts[key].text) for key in keys]
        if nlp is None:
            suggestions = suggest_first(docs, n=N_CHOSEN)
        else:
            suggestions = suggest(nlp, docs, n=N_CHOSEN, name=COMPONENT)
        return [keys[suggestion.place] for suggestion in suggestions]

    def _expect_f(self, nlp: Language) -> float | None:
        """F that the model expects of the texts that nobody annotated, on a sample of them. None:
        it predicts no entity there, or there are no such texts."""
        keys = self._draw_unanswered(N_EXPECTED)
        docs = [nlp.make_doc(self.store.texts[key].text) for key in keys]
        # Sums over all docs and labels
        n_correct = 0.0
        n_predicted = 0.0
        n_annotated = 0.0
        for _, counts in expect_counts(nlp, COMPONENT, docs):
            n_correct += float(counts.correct.sum())
            n_predicted += float(counts.predicted.sum())
            n_annotated += float(counts.annotated.sum())
        return expected_prf([n_correct, n_predicted, n_annotated])["f"]

    # What the page says

    def status(self) -> dict[str, Any]:
        """How far the session is: a dictionary for JSON, which the page shows."""
        with self._lock:
            answers = list(self.store.answers.values())
            accepted = [answer for answer in answers if not answer.is_left_out]
            measured = [answer for answer in accepted if answer.is_measuring]
            left_out = [answer for answer in answers if answer.is_left_out]
            return {
                "texts": len(self.store.texts),
                "annotated": len(accepted),
                "entities": sum(len(answer.task.spans or ()) for answer in accepted),
                "left_out": len(left_out),
                # Of the evaluation texts: how many are annotated, how many there are, and how
                # many are left out
                "measured": len(measured),
                "measuring": len(self._measuring),
                "measuring_left_out": sum(answer.is_measuring for answer in left_out),
                "points": self.store.history,
                "is_training": self.is_training,
                "problem": self.problem,
                # Of another tool's answers that can't be saved: their number, and why the last ones
                # can't
                "unsaved": len(self.unsaved),
                "unsaved_problems": list(self.unsaved.values())[-N_PROBLEMS:],
                "advice": self._advice(len(accepted) - len(measured), len(measured)),
                "command": self._next_command(len(measured)),
            }

    def _advice(self, n_train: int, n_measured: int) -> str:
        """What to do next, in a sentence."""
        if n_train < LEAST_TEXTS:
            return f"Annotate {LEAST_TEXTS - n_train} more texts for a first model."
        n_missing = ENOUGH_MEASURING - n_measured
        n_waiting = sum(key not in self.store.answers for key in self._measuring)
        # The texts of a session that only Label Studio answers are not in the store.
        if self.store.texts and n_missing > n_waiting:
            return f"Add texts: calibration needs {ENOUGH_MEASURING} evaluation texts."
        if n_missing > 0:
            return f"{n_missing} more evaluation texts, and you can calibrate on them."
        # The page shows `_next_command` below this.
        return "Calibrate and tune on the evaluation texts:"

    def _next_command(self, n_measured: int) -> str:
        """The command to run next. It is shown to be copied to a terminal, so it has options."""
        options = ["--lang", self.lang, "--train", str(self.store.train_path)]
        if n_measured >= ENOUGH_MEASURING:
            options += ["--dev", str(self.store.measure_path)]
        raw_path = self.store.folder / RAW_FILE
        if raw_path.exists():
            options += ["--raw", str(raw_path)]
        options += ["--output", "training", "--calibrate", "--tune", "f"]
        return f"python -m spacy costner fit {shlex.join(options)}"


def load_model(path: Path) -> Language:
    """Load the last pipeline of a session.

    RAISES (ValueError): If that fails, as somebody has changed its files, for example.
    """
    try:
        return spacy.load(path)
    except Exception as error:
        raise ValueError(
            f"{path}: expected the last pipeline of the session, which can't be loaded "
            f"({type(error).__name__}: {error}). Remove the folder: a new one is trained"
        ) from error


def annotated_spans(doc: Doc, answer: Answer) -> list[ProposedSpan]:
    """The spans of an answer, in tokens of the doc of its text. A span that ends within a token,
    as another tool may have made it, gets the whole token."""
    spans: list[ProposedSpan] = []
    for task_span in answer.task.spans or ():
        span = doc.char_span(task_span.start, task_span.end, alignment_mode="expand")
        if span is not None:
            spans.append(ProposedSpan(span.start, span.end, task_span.label))
    return spans
