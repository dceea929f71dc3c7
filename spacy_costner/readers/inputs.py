"""Convert the docs of a corpus to the docs that are passed to a pipeline.

spaCy does this in two ways:

- `spacy evaluate` tokenizes the text: see `as_spacy_evaluates`. Our functions that evaluate a
  pipeline do the same by default.
- `spacy apply` keeps the tokens and sentence starts of a .spacy file: see `as_spacy_applies`. Our
  function `annotate` and all functions with `file_tokens=True` do the same.
"""

from spacy.language import Language
from spacy.tokens import Doc

from .documents import with_metadata
from .sentences import copy_without_annotation


def as_spacy_evaluates(nlp: Language, doc: Doc) -> Doc:
    """Create a doc as in `spacy evaluate`: tokenize the text with the pipeline, and don't set any
    sentence starts. If the original whitespace is unknown, as in column files, the tokens of the
    doc are kept, because there is no text to tokenize.

    nlp (Language): The pipeline.
    doc (Doc): The doc, with or without annotation.
    RETURNS (Doc): A new doc, with the metadata of the original doc: see `with_metadata`.
    """
    predicted = copy_without_annotation(doc) if doc.has_unknown_spaces else nlp.make_doc(doc.text)
    return with_metadata(predicted, doc.user_data)


def as_spacy_applies(doc: Doc) -> Doc:
    """Create a doc as in `spacy apply`: copy the tokens and sentence starts of a doc. Unlike
    `spacy apply`, this doesn't copy any other annotation, because the pipeline predicts it.

    doc (Doc): The doc, with or without annotation.
    RETURNS (Doc): A new doc, with the metadata of the original doc: see `with_metadata`.
    """
    return copy_without_annotation(doc, sentences=True)
