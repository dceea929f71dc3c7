"""Record how the calibration docs of a component were read, and detect docs that are read
differently.

The results of `calibrate`, `tune` and `guarantee` are only valid for docs that are read in the same
way as the calibration docs: with or without sentence starts, and with tokens from the tokenizer or
from elsewhere.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from spacy.attrs import ORTH, SENT_START
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from .serialization import check_keys

GIVE_TEXT = (
    "give texts instead of docs, or run `calibrate`, `tune` and `guarantee` with `file_tokens`"
)
GIVE_STARTS = (
    "give docs with sentence starts, or run `calibrate`, `tune` and `guarantee` on docs without"
)
"""The advice in the warnings of `find_difference`."""


@dataclass(frozen=True)
class Reading:
    """How docs were read.

    file_tokens (bool): Whether the tokens and sentence starts of the file were used, as in `spacy
        apply`. Otherwise, docs were created from the text, as in `spacy evaluate`.
    tokenizer_tokens (bool): Whether the docs passed to the component had the tokens of the
        pipeline's tokenizer.
    sentence_starts (bool | None): Whether the docs passed to the component had sentence starts.
        None if only some of them did, or if it is unknown for some of their tokens.
    """

    file_tokens: bool
    tokenizer_tokens: bool
    sentence_starts: bool | None

    def as_text(self) -> str:
        """Describe the source of the docs, for messages."""
        if self.file_tokens:
            return "their own tokens and sentence starts"
        return "their text"


def find_reading(
    nlp: Language,
    name: str,
    examples: Iterable[Example],
    docs: Iterable[Doc],
    *,
    file_tokens: bool = False,
) -> Reading:
    """Determine how the predicted docs of examples were read.

    nlp (Language): The pipeline with the component.
    name (str): The name of the component.
    examples (Iterable[Example]): The examples, with predicted docs that aren't annotated yet.
    docs (Iterable[Doc]): The docs passed to the component: the predicted docs after the components
        before it were run.
    file_tokens (bool): Whether the tokens and sentence starts of the file were requested. If False,
        they may still have been used, which is inferred from the docs.
    RETURNS (Reading): How the docs were read.
    """
    for eg in examples:
        if begins_sentences(eg.predicted):
            # Docs created from text have no sentence starts before the pipeline is run, so docs
            # with sentence starts were read with the tokens of the file.
            file_tokens = True
        # If the original whitespace is unknown, the text can't be tokenized again. Docs then have
        # the tokens of the file, whether or not they were requested.
        has_known_text = not eg.reference.has_unknown_spaces
        if has_known_text and not has_tokens_of(nlp.tokenizer, eg.predicted):
            file_tokens = True

    # Earlier components may set sentence starts, or merge or split tokens, only in some docs. Docs
    # with other tokens than the tokenizer's, or with sentence starts, are then no difference.
    tokenizer_tokens = True
    has_starts = sets_sentence_starts(nlp, name)
    lacks_starts = False
    for doc in docs:
        tokenizer_tokens = tokenizer_tokens and has_tokens_of(nlp.tokenizer, doc)
        has_starts = has_starts or begins_sentences(doc)
        # `has_annotation("SENT_START")` is always True for a single token.
        if len(doc) > 1 and not doc.has_annotation("SENT_START", require_complete=True):
            lacks_starts = True
    sentence_starts: bool | None = has_starts
    if has_starts and lacks_starts:
        sentence_starts = None  # only in some docs, or at some tokens

    names_before = nlp.pipe_names[: nlp.pipe_names.index(name)]
    is_retokenized = any(nlp.get_pipe_meta(name_before).retokenizes for name_before in names_before)
    return Reading(
        file_tokens=file_tokens,
        tokenizer_tokens=tokenizer_tokens and not is_retokenized,
        sentence_starts=sentence_starts,
    )


def has_tokens_of(tokenizer: Callable[[str], Doc], doc: Doc) -> bool:
    """Check whether the tokens of a doc match the tokenizer's output for its text."""
    tokenized = tokenizer(doc.text)
    return numpy.array_equal(doc.to_array(ORTH), tokenized.to_array(ORTH))


def begins_sentences(doc: Doc) -> bool:
    """Check whether a doc has a sentence start other than its first token."""
    is_start = doc.to_array(SENT_START) == 1
    return bool(is_start[1:].any())


def sets_sentence_starts(nlp: Language, name: str) -> bool:
    """Check whether the components before the one with this name set sentence starts. Either one of
    them declares it in `assigns`, or they set them in a doc with two words."""
    doc = Doc(nlp.vocab, words=["a", "b"])
    for pipe_name, pipe in nlp.pipeline:
        if pipe_name == name:
            break
        # A component may only set the starts at certain words.
        if "token.is_sent_start" in nlp.get_pipe_meta(pipe_name).assigns:
            return True
        doc = pipe(doc)
    return doc.has_annotation("SENT_START")


def lacks_sentence_starts(nlp: Language, name: str, examples: Sequence[Example]) -> bool:
    """Check whether a component doesn't receive the sentence starts of the references: the
    predicted docs have no sentence starts, and no earlier component sets them.

    nlp (Language): The pipeline with the component.
    name (str): The name of the component.
    examples (Sequence[Example]): The examples, with predicted docs that aren't annotated yet.
    """
    has_starts = any(begins_sentences(eg.reference) for eg in examples)
    if not has_starts or any(begins_sentences(eg.predicted) for eg in examples):
        return False
    return not sets_sentence_starts(nlp, name)


def find_difference(
    reading: Reading, docs: Sequence[Doc], tokenizer: Callable[[str], Doc], *, uses_starts: bool
) -> str | None:
    """Check whether docs were read differently from the calibration docs. Only the longest doc is
    checked.

    reading (Reading): How the calibration docs were read.
    docs (Sequence[Doc]): The docs to compare.
    tokenizer (Callable[[str], Doc]): The tokenizer of the pipeline.
    uses_starts (bool): Whether the predictions of the component depend on sentence starts.
    RETURNS (str | None): A warning that describes the difference and suggests a fix. None if no
        difference was found.
    """
    doc = max(docs, key=len, default=None)
    if doc is None or len(doc) < 2:  # `has_annotation` is always True for a single token
        return None
    if uses_starts and reading.sentence_starts is False and begins_sentences(doc):
        return f"docs have sentence starts, but calibration docs had none: {GIVE_TEXT}"
    if uses_starts and reading.sentence_starts and not doc.has_annotation("SENT_START"):
        return f"docs have no sentence starts, but calibration docs had them: {GIVE_STARTS}"
    is_comparable = reading.tokenizer_tokens and not doc.has_unknown_spaces
    if is_comparable and not has_tokens_of(tokenizer, doc):
        return (
            "docs have tokens other than the tokenizer's, but calibration docs had the "
            f"tokenizer's tokens: {GIVE_TEXT}"
        )
    return None


def read_reading(saved: dict[str, Any] | None) -> Reading | None:
    """Create a `Reading` from a saved cfg. Return None if it is unknown how docs were read, or the
    pipeline was saved by a version that didn't record it.

    RAISES (ValueError): If a key is missing or unknown.
    """
    if saved is None:
        return None
    check_keys(saved, Reading.__dataclass_fields__, "reading")
    return Reading(**saved)
