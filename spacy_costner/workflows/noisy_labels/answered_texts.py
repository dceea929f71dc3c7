"""Texts annotated by several annotators, some of which were checked by a person.

Each annotator has answers for some of the texts. Checked texts have gold annotation. An answer is
matched to the text with the same characters, ignoring case and whitespace, and its entities are
aligned with the tokens of that text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import load_model, minibatch
from thinc.types import Array1d, Ints1d

from ...annotation.spans import missing_spans
from ...annotation.tokens import read_reference, read_token_attrs
from ...pipeline.scorers import Entity
from ...readers import DEFAULTS, ReadOptions, read_docs
from ...readers.inputs import as_spacy_applies, as_spacy_evaluates
from ...readers.sentences import copy_sentences, copy_without_annotation
from ...tags import Tags
from ..config.loading import META, check_is_pipeline
from ..sampling.suggestions import without_space
from .teachers import check_tokens, majority

MIN_COUNT = 5
"""If an annotator's label coincides with a different label of the checked docs at least this many
times, it may be rejected as another name for that label."""

DOCS_PER_BATCH = 256
"""The number of docs that are aligned or predicted at a time."""


@dataclass
class AnsweredText:
    """A text with the answers of annotators.

    doc (Doc): The text. It has gold annotation if it was checked, and no annotation otherwise.
    is_checked (bool): Whether the text was checked.
    answers (dict[int, Doc]): The answers, keyed by the index of the annotator.
    observed (list[Ints1d]): The IOB2 tags assigned by each annotator; -1 if there is no answer, or
        its annotation is missing. Shape of each: (T,)
    true_tags (Ints1d): The gold IOB2 tags; -1 if annotation is missing. Shape: (T,)
    """

    doc: Doc
    is_checked: bool
    answers: dict[int, Doc] = field(default_factory=dict)
    observed: list[Ints1d] = field(default_factory=list)
    true_tags: Ints1d = None

    def is_annotated(self, number: int, entity: Entity) -> bool:
        """Check whether the annotator with this index annotated all tokens of an entity, as this or
        another entity or as O."""
        begin, end, _ = entity
        return bool((self.observed[number][begin:end] >= 0).all())


class AnsweredTexts:
    """Texts with the answers of annotators.

    nlp (Language): The pipeline that tokenizes the unchecked texts.
    labels (tuple[str, ...]): The labels in the gold annotation and the answers, sorted.
    annotators (list[str]): The names of the annotators: files or pipelines.
    checked (list[AnsweredText]): The checked texts.
    unchecked (list[AnsweredText]): The unchecked texts.
    n_repeated (list[int]): The number of each annotator's answers that are ignored because there is
        an earlier answer for the same text.
    """

    def __init__(
        self,
        nlp: Language,
        gold: Iterable[Doc],
        annotators: Sequence[str],
        raw: Iterable[Doc] = (),
        reading: ReadOptions = DEFAULTS,
    ) -> None:
        """Read the answers of all annotators.

        nlp (Language): The pipeline that tokenizes the texts.
        gold (Iterable[Doc]): The checked docs.
        annotators (Sequence[str]): Corpora with answers, or pipelines. Pipelines annotate all
            texts.
        raw (Iterable[Doc]): Additional texts, annotated only by pipelines.
        reading (ReadOptions): The options for reading the corpora.
        RAISES (ValueError): If there are no checked docs, if no other text has an answer, or if an
            annotator uses different label names than the checked docs.
        """
        self.nlp = nlp
        self.annotators = list(annotators)
        self.checked = [AnsweredText(doc, is_checked=True) for doc in gold]
        self.unchecked: list[AnsweredText] = []
        self.n_repeated = [0] * len(annotators)
        if not self.checked:
            raise ValueError("gold_path: expected checked docs, got none")
        self._text_of_key: dict[str, AnsweredText] = {}
        for text in self.checked:
            self._text_of_key.setdefault(characters(text.doc), text)

        pipelines: dict[int, Language] = {}
        for number, name in enumerate(annotators):
            if is_corpus(name):
                self._add_answers(number, read_docs(nlp, Path(name), reading))
            else:
                check_is_pipeline(name)
                pipelines[number] = load_model(name)
        if pipelines:
            for doc in raw:
                self._find_text(doc)
        if not self.unchecked:
            raise ValueError(
                f"teachers: expected answers to texts that aren't in `gold_path`, got none in "
                f"{', '.join(annotators)}"
            )
        for number, pipeline in pipelines.items():
            self._add_predictions(number, pipeline)

        self.labels = self._find_labels()
        self._observe()
        self._check_labels()

    def __iter__(self) -> Iterator[AnsweredText]:
        yield from self.checked
        yield from self.unchecked

    def _add_answers(self, number: int, docs: Iterable[Doc]) -> None:
        """Add the answers of the annotator with this index. A doc without annotation is a text, but
        not an answer."""
        for doc in docs:
            text = self._find_text(doc)
            if not doc.has_annotation("ENT_IOB"):
                continue
            if number in text.answers:
                self.n_repeated[number] += 1
            else:
                text.answers[number] = doc

    def _find_text(self, doc: Doc) -> AnsweredText:
        """Return the text that matches a doc. If there is none, add a new unchecked text."""
        key = characters(doc)
        if key not in self._text_of_key:
            text = AnsweredText(self._tokenize(doc), is_checked=False)
            self._text_of_key[key] = text
            self.unchecked.append(text)
        return self._text_of_key[key]

    def _tokenize(self, doc: Doc) -> Doc:
        """Copy the text and the sentences of a doc. The student can only use the soft targets of
        texts with the tokens that its tokenizer creates, so the tokens of a file are only kept if
        the original whitespace is unknown."""
        if doc.has_unknown_spaces:
            return as_spacy_applies(doc)
        copy = as_spacy_evaluates(self.nlp, doc)
        copy_sentences(doc, copy)
        return copy

    def _add_predictions(self, number: int, nlp: Language) -> None:
        """Annotate all texts with a pipeline."""
        for batch in minibatch(self, DOCS_PER_BATCH):
            docs = [text.doc for text in batch]
            copies = [copy_without_annotation(doc, nlp.vocab, sentences=True) for doc in docs]
            predicted = list(nlp.pipe(copies))
            check_tokens(docs, predicted)
            for text, doc in zip(batch, predicted):
                text.answers[number] = doc

    def _find_labels(self) -> tuple[str, ...]:
        """Return the labels in the gold annotation and the answers, sorted."""
        labels: set[str] = set()
        for text in self:
            for doc in (text.doc, *text.answers.values()):
                labels.update(ent.label_ for ent in doc.ents)
        return tuple(sorted(labels))

    def _observe(self) -> None:
        """Set the observed tags and the true tags of each text."""
        for batch in minibatch(self, DOCS_PER_BATCH):
            docs = [text.doc for text in batch]
            for text, true_tags in zip(batch, observed_tags(docs, docs, self.labels)):
                text.true_tags = true_tags
            for number in range(len(self.annotators)):
                answers = [text.answers.get(number) for text in batch]
                for text, tags in zip(batch, observed_tags(docs, answers, self.labels)):
                    text.observed.append(tags)

    def _count_label_pairs(self, annotator: int) -> tuple[set[str], Counter[tuple[str, str]]]:
        """Return all labels used by an annotator, and count the pairs of annotator label and gold
        label for entities with the same tokens."""
        own_labels: set[str] = set()
        pairs: Counter[tuple[str, str]] = Counter()
        for text in self:
            if annotator not in text.answers:
                continue
            label_of_span: dict[tuple[int, int], str] = {}
            if text.is_checked:
                for begin, end, label in self.true_entities(text):
                    label_of_span[begin, end] = label
            for begin, end, label in self.entities(text, annotator):
                own_labels.add(label)
                if (begin, end) in label_of_span:
                    pairs[label, label_of_span[begin, end]] += 1
        return own_labels, pairs

    def _check_labels(self) -> None:
        """Check that annotators use the same label names as the checked docs.

        RAISES (ValueError): If an annotator seems to use another name for a label: its label often
            coincides with a gold label, and neither side uses the other's label.
        """
        for number, name in enumerate(self.annotators):
            own_labels, pairs = self._count_label_pairs(number)
            gold_labels = {gold_label for _, gold_label in pairs}
            for (label, gold_label), n in pairs.items():
                is_other_name = label not in gold_labels and gold_label not in own_labels
                if n >= MIN_COUNT and is_other_name:
                    raise ValueError(
                        f"{name}: expected the labels of the checked docs, got {label!r} where "
                        f"these have {gold_label!r}, {n} times: rename it in the file"
                    )

    def entities(self, text: AnsweredText, number: int) -> list[Entity]:
        """Return the entities of a text according to the annotator with this index."""
        return self._decode(text.observed[number])

    def true_entities(self, text: AnsweredText) -> list[Entity]:
        """Return the gold entities of a text."""
        return self._decode(text.true_tags)

    def _decode(self, path: Ints1d) -> list[Entity]:
        """Decode the IOB2 tags of a text into entities. There are none where annotation is missing
        (-1). Shape: (T,)"""
        return entities_of_path(Tags(self.labels, "IOB2"), numpy.maximum(path, 0))

    def vote(self, text: AnsweredText) -> list[Entity]:
        """Return the entities that more than half of the annotators of their tokens agree on. An
        annotator who didn't annotate all tokens of an entity doesn't vote on it."""
        shares: dict[Entity, float] = {}
        for number in text.answers:
            for entity in self.entities(text, number):
                n_voters = sum(text.is_annotated(voter, entity) for voter in text.answers)
                shares[entity] = shares.get(entity, 0.0) + 1 / n_voters
        return majority(shares)

    def voted_doc(self, text: AnsweredText) -> Doc:
        """Copy a text, and add the entities of the majority vote. The annotation of a token is
        missing if it is missing in all answers."""
        is_missing = (numpy.stack(text.observed) < 0).all(axis=0)
        return with_entities(text.doc, self.vote(text), is_missing)

    def agreement(self, number: int, other: int) -> float:
        """Compute the F-score of an annotator's answers, evaluated against another annotator's
        answers. Only entities whose tokens were annotated by both count. The score is 0 if there
        are none."""
        n_same = 0
        n_entities = 0
        for text in self:
            if number in text.answers and other in text.answers:
                entities = self._entities_known_to(text, number, other)
                other_entities = self._entities_known_to(text, other, number)
                n_same += len(entities & other_entities)
                n_entities += len(entities) + len(other_entities)
        return 2 * n_same / n_entities if n_entities else 0.0

    def _entities_known_to(self, text: AnsweredText, number: int, other: int) -> set[Entity]:
        """Return the entities of an annotator whose tokens were all annotated by another one."""
        entities = self.entities(text, number)
        return {entity for entity in entities if text.is_annotated(other, entity)}


def entities_of_path(tags: Tags, path: Ints1d) -> list[Entity]:
    """Decode the tags of a text into entities. Shape of the path: (T,)"""
    decoded = tags.decode(path, numpy.asarray([len(path)]))
    return [(begin, end, tags.labels[label]) for begin, end, label in decoded.as_tuples()]


def with_entities(doc: Doc, entities: Iterable[Entity], is_missing: Array1d) -> Doc:
    """Copy a doc, and set its entities. `is_missing` is True for tokens with missing annotation.
    Shape: (T,)"""
    copy = copy_without_annotation(doc, sentences=True)
    spans = [Span(copy, *entity) for entity in entities]
    copy.set_ents(spans, missing=missing_spans(copy, is_missing))
    return copy


def characters(doc: Doc) -> str:
    """Return the characters of a doc in lowercase, without whitespace. If these are equal for two
    docs, spaCy can align their tokens."""
    return without_space(doc.text.lower())


def is_corpus(name: str) -> bool:
    """Check whether a name is the path of a corpus (a file or folder) rather than a pipeline."""
    path = Path(name)
    return path.exists() and not (path / META).exists()


def observed_tags(
    docs: Sequence[Doc], answers: Sequence[Doc | None], labels: Sequence[str]
) -> list[Ints1d]:
    """Compute the tags that an annotator assigns to the tokens of docs. If the tokenization
    differs, entities are aligned. Annotation that can't be aligned is treated as missing. As in
    training, whitespace at the ends of entities is removed, because models can't predict it.

    docs (Sequence[Doc]): The docs.
    answers (Sequence[Doc | None]): The annotator's answers, or None for docs without an answer.
    labels (Sequence[str]): The labels.
    RETURNS (list[Ints1d]): The IOB2 tags of each doc; -1 if annotation is missing. Shape of each:
        (T,)
    """
    examples: list[Example] = []
    for doc, answer in zip(docs, answers):
        copy = copy_without_annotation(doc)
        # The copy has no entity annotation, so when it is used as the reference, the annotation of
        # all tokens is missing.
        examples.append(Example(copy, copy if answer is None else answer))
    predicted = read_token_attrs([eg.predicted for eg in examples])
    tokens = read_reference(examples, predicted)
    tags = Tags(labels, "IOB2")
    entities = tokens.entities(tags, docs[0].vocab.strings).trim(tokens.is_space)
    path = tags.gold_path(entities, tokens.is_annotated)
    ends = numpy.cumsum([len(doc) for doc in docs])
    return numpy.split(path, ends[:-1])
