"""How the docs were read on which a component was measured, and whether other docs are read in the
same way.

`calibrate`, `tune` and `guarantee` measure a component. The results hold for docs that are read in
the same way: with sentence starts or without, with the tokenizer's tokens or with others.
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
"""The ends of two warnings, which say what to do if docs differ: see `find_difference`."""


@dataclass(frozen=True)
class Reading:
    """How docs were read.

    file_tokens (bool): Whether docs had the tokens and sentence starts of their file, as in `spacy
        apply`. Otherwise they were made from its text, as in `spacy evaluate`.
    tokenizer_tokens (bool): Whether the component got the tokens of the pipeline's tokenizer.
    sentence_starts (bool | None): Whether the component got docs with sentence starts. None: some
        docs had them, but not all.
    """

    file_tokens: bool
    tokenizer_tokens: bool
    sentence_starts: bool | None

    def as_text(self) -> str:
        """A description of the source of the docs, for messages."""
        if self.file_tokens:
            return "their own tokens and sentence starts"
        return "their text"


def find_reading(
    nlp: Language, name: str, examples: Iterable[Example], *, file_tokens: bool = False
) -> Reading:
    """Find how the predicted docs of examples were read, before the pipeline annotates them.

    nlp (Language): The pipeline with the component.
    name (str): The name of the component that is measured.
    examples (Iterable[Example]): The examples, with predicted docs that aren't annotated yet.
    file_tokens (bool): Whether the user has requested the tokens and sentence starts of the file.
        If not, docs may still have them.
    RETURNS (Reading): How the docs were read.
    """
    has_file_tokens = False
    has_other_tokens = False
    has_starts = False
    lacks_starts = False
    for eg in examples:
        doc = eg.predicted
        if not has_tokens_of(nlp.tokenizer, doc):
            has_other_tokens = True
            # If the original whitespace is unknown, there is no text to tokenize: docs have the
            # tokens of the file in both ways of reading.
            if not eg.reference.has_unknown_spaces:
                has_file_tokens = True
        if begins_sentences(doc):
            has_starts = True
        # A single token doesn't show whether sentence starts are known.
        if len(doc) > 1 and not doc.has_annotation("SENT_START"):
            lacks_starts = True

    sentence_starts: bool | None = has_starts
    if sets_sentence_starts(nlp, name):
        sentence_starts = True
    elif has_starts and lacks_starts:
        sentence_starts = None  # in some docs, but not in all

    # A component before this one may merge or split tokens.
    names_before = nlp.pipe_names[: nlp.pipe_names.index(name)]
    is_retokenized = any(nlp.get_pipe_meta(name_before).retokenizes for name_before in names_before)
    # A doc that was made from text has no sentence starts before the pipeline annotates it. So docs
    # with sentence starts have the tokens of the file.
    return Reading(
        file_tokens=file_tokens or has_file_tokens or has_starts,
        tokenizer_tokens=not has_other_tokens and not is_retokenized,
        sentence_starts=sentence_starts,
    )


def has_tokens_of(tokenizer: Callable[[str], Doc], doc: Doc) -> bool:
    """Whether a doc has the tokens that a tokenizer makes from its text."""
    tokenized = tokenizer(doc.text)
    return numpy.array_equal(doc.to_array(ORTH), tokenized.to_array(ORTH))


def begins_sentences(doc: Doc) -> bool:
    """Whether a token of a doc other than the first is known to begin a sentence."""
    is_start = doc.to_array(SENT_START) == 1
    return bool(is_start[1:].any())


def sets_sentence_starts(nlp: Language, name: str) -> bool:
    """Whether the components of a pipeline before the component with this name set sentence starts.
    They are tried on a doc of two words."""
    doc = Doc(nlp.vocab, words=["a", "b"])
    for pipe_name, pipe in nlp.pipeline:
        if pipe_name == name:
            break
        doc = pipe(doc)
    return doc.has_annotation("SENT_START")


def lacks_sentence_starts(nlp: Language, name: str, examples: Sequence[Example]) -> bool:
    """Whether the references of examples have sentence starts that a component doesn't get: their
    predicted docs have none, and no component before this one sets them.

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
    """Compare the longest of several docs with the calibration docs of a component: the docs on
    which `calibrate`, `tune` or `guarantee` measured it.

    reading (Reading): How the calibration docs were read.
    docs (Sequence[Doc]): The docs to compare.
    tokenizer (Callable[[str], Doc]): The tokenizer of the pipeline.
    uses_starts (bool): Whether the predictions of the component depend on sentence starts.
    RETURNS (str | None): A warning that says what differs and what to do. None: nothing differs.
    """
    doc = max(docs, key=len, default=None)
    if doc is None or len(doc) < 2:  # a single token doesn't show whether sentence starts are known
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
    """Make a `Reading` from a saved cfg. None: it was unknown how docs were read, or the version
    that saved the pipeline didn't save it.

    RAISES (ValueError): If a key is missing or unknown.
    """
    if saved is None:
        return None
    check_keys(saved, Reading.__dataclass_fields__, "reading")
    return Reading(**saved)
