"""Check the docs of a corpus: their texts, sentences and entities."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spacy.attrs import ENT_IOB
from spacy.tokens import Span
from spacy.training import Example
from thinc.types import Array1d

from ...annotation import iob as ent_iob
from ...pipeline.component import CostSensitiveNER
from ...training.soft_targets import has_soft_targets
from .findings import ERROR, WARNING, Finding, place_in_doc

LONG_SENTENCE = 500
"""A doc with at least this number of tokens can't be a single sentence."""

MOJIBAKE = re.compile(r"\S*(?:[ÂÃÐÑ][\x80-\xba\xbc-\xbf]|â[\x80€]|\ufffd)\S*")
"""A word with UTF-8 text that was decoded as Latin-1 or Windows-1252 ("Ã©" for "é"), or with the
replacement character for undecodable bytes."""

INVISIBLE = re.compile(r"\S*[\xad\u200b\u2060\ufeff]\S*")
"""A word with a soft hyphen, a zero-width space, a word joiner or a byte order mark. (Zero-width
joiners are allowed, because some scripts need them.)"""

CONTRADICTION = "docs with the same words have different entities"

OTHER_LABELS = "entities of labels that the component doesn't have: they count as O"

MISALIGNED_ENTITIES = (
    "entities don't begin and end with tokens: their tokens count as missing values"
)

ONE_LONG_SENTENCE = (
    f"docs of {LONG_SENTENCE} tokens or more are one sentence. `spacy convert` doesn't know "
    "separators of whitespace, and joins the sentences: use `costner convert`"
)

CROSSING = (
    "entities cross a sentence start or line break (sentence_boundaries): they are learned, but "
    "can't be predicted if the pipeline cuts docs there"
)


class DocProblem(NamedTuple):
    """A problem in a single doc.

    severity (str): "error" or "warning".
    message (str): The problem and its effect.
    text (str): The affected text, e.g. an entity.
    """

    severity: str
    message: str
    text: str = ""


class AnnotatedDoc(NamedTuple):
    """A doc in which all tokens are annotated.

    number (int): The index of the doc in its corpus.
    ents (set[tuple[str, str, int]]): The text, label and first token of each entity.
    """

    number: int
    ents: set[tuple[str, str, int]]


def contradiction(doc: AnnotatedDoc, first_doc: AnnotatedDoc) -> DocProblem:
    """Create the problem for a doc with the same words as an earlier doc, but different
    entities."""
    only_in_this_doc = sorted(doc.ents - first_doc.ents)
    only_in_first_doc = sorted(first_doc.ents - doc.ents)
    text = f"{only_in_this_doc} against {only_in_first_doc} in doc {first_doc.number}"
    return DocProblem(WARNING, CONTRADICTION, text)


def check_docs(
    corpus: str, examples: Sequence[Example], ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[Finding]:
    """Check each doc of a corpus individually (see `check_doc`). Also check that docs with the same
    words have the same entities, and that at least one token of the corpus is annotated as O.

    YIELDS (Finding): A finding for each problem in each doc. Identical problems can be merged with
        `join_findings`.
    """
    first_doc_with_words: dict[tuple[str, ...], AnnotatedDoc] = {}
    has_outside = False
    for i, eg in enumerate(examples):
        doc = eg.reference
        iob = doc.to_array(ENT_IOB)
        problems = list(check_doc(eg, ner, labels))
        is_annotated = (iob != ent_iob.MISSING).all()
        if len(doc) and is_annotated:
            words = tuple(token.text for token in doc)
            annotated_doc = AnnotatedDoc(i, {(ent.text, ent.label_, ent.start) for ent in doc.ents})
            first_doc = first_doc_with_words.setdefault(words, annotated_doc)
            if annotated_doc.ents != first_doc.ents:
                problems.append(contradiction(annotated_doc, first_doc))
        for severity, message, text in problems:
            yield Finding(severity, corpus, message, [place_in_doc(i, doc, text)])
        if (iob == ent_iob.OUTSIDE).any() or has_soft_targets(eg):
            has_outside = True
    if not has_outside:
        severity = ERROR if corpus == "train" else WARNING
        message = "no token is annotated as O: the model can't learn what is not an entity"
        yield Finding(severity, corpus, message)


def check_doc(eg: Example, ner: CostSensitiveNER, labels: Sequence[str]) -> Iterator[DocProblem]:
    """Check the text, sentences and entities of an example's reference doc. `labels` are the labels
    of the component."""
    doc = eg.reference
    is_annotated = (doc.to_array(ENT_IOB) != ent_iob.MISSING).any() or has_soft_targets(eg)
    if len(doc) and not is_annotated:
        yield DocProblem(WARNING, "docs without entity annotation: they are not used")
    has_sentences = doc.has_annotation("SENT_START", require_complete=True)
    if len(doc) >= LONG_SENTENCE and has_sentences:
        # spaCy's value for a sentence start is 1. The first token is skipped, because it always
        # starts a sentence.
        starts_sentence = doc.to_array("SENT_START")[1:] == 1
        if not starts_sentence.any():
            yield DocProblem(WARNING, ONE_LONG_SENTENCE)
    misread = MOJIBAKE.search(doc.text)
    if misread is not None:
        message = "texts were decoded with the wrong encoding (mojibake)"
        yield DocProblem(WARNING, message, repr(misread[0]))
    invisible = INVISIBLE.search(doc.text)
    if invisible is not None:
        message = "texts have invisible characters, which turn their words into different words"
        yield DocProblem(WARNING, message, ascii(invisible[0]))
    yield from check_entities(eg, ner, labels)


def check_entities(
    eg: Example, ner: CostSensitiveNER, labels: Sequence[str]
) -> Iterator[DocProblem]:
    """Find annotated entities that a component can't learn or predict, or that are modified before
    training."""
    doc = eg.reference
    has_same_tokens = [token.text for token in doc] == [token.text for token in eg.predicted]
    # The spans rejected by annotators, as (start, end, label)
    rejected_spans = doc.spans.get(ner.annotation.incorrect_spans_key or "", ())
    rejected = {(span.start, span.end, span.label_) for span in rejected_spans}
    borders = ner.annotation.find_training_borders([eg])
    for ent in doc.ents:
        text = f"{ent.text!r} {ent.label_}"
        # Most docs have no borders, so skip the slow alignment of entities.
        if borders.any() and crosses_border(eg, ent, borders):
            yield DocProblem(WARNING, CROSSING, text)
        # A rejected span without a label rejects all labels.
        if rejected & {(ent.start, ent.end, ""), (ent.start, ent.end, ent.label_)}:
            message = "entities are among the incorrect spans: their docs are not used"
            yield DocProblem(ERROR, message, text)
        if ent.label_ not in labels:
            yield DocProblem(WARNING, OTHER_LABELS, text)
        if all(token.is_space for token in ent):
            yield DocProblem(WARNING, "entities are only whitespace: they are not used", text)
        elif ent[0].is_space or ent[-1].is_space:
            yield DocProblem(WARNING, "entities begin or end with whitespace: it is removed", text)
        elif not any(map(str.isalnum, ent.text)):
            yield DocProblem(WARNING, "entities without a letter or digit", text)
        if not has_same_tokens and not eg.get_aligned_spans_y2x([ent]):
            yield DocProblem(WARNING, MISALIGNED_ENTITIES, text)


def crosses_border(eg: Example, ent: Span, borders: Array1d) -> bool:
    """Check whether an annotated entity can't be predicted because it spans several sequences of
    the chain. Whitespace at its ends is ignored. `borders` is True for the first token of each
    sequence of the predicted doc, where the chain is cut. Shape: (T,)"""
    for span in eg.get_aligned_spans_y2x([ent]):
        words = [token.i for token in span if not token.is_space]
        if not words:
            continue
        # A sequence may begin at the first word of the entity, but not at a later word.
        after_first_word = words[0] + 1
        after_last_word = words[-1] + 1
        if borders[after_first_word:after_last_word].any():
            return True
    return False
