"""Make the doc that a pipeline gets from a doc of a file. spaCy does this in two ways, and there is
a function for each.

- `spacy evaluate` gives the pipeline the text: `as_spacy_evaluates`. Functions that evaluate a
  pipeline do so.
- `spacy apply` gives it the tokens and the sentence starts of a .spacy file: `as_spacy_applies`.
  `annotate` does so, and so do other functions with `file_tokens`.
"""

from spacy.language import Language
from spacy.tokens import Doc

from .documents import with_metadata
from .sentences import copy_without_annotation


def as_spacy_evaluates(nlp: Language, doc: Doc) -> Doc:
    """Make the doc that a pipeline gets in `spacy evaluate`: the text of a doc, tokenized by the
    pipeline, without sentence starts. If the original whitespace is unknown, as in column files,
    there is no text to tokenize, and the tokens of the doc are kept.

    nlp (Language): The pipeline.
    doc (Doc): The doc, with annotation or without.
    RETURNS (Doc): A new doc, with the metadata of the doc: see `with_metadata`.
    """
    predicted = copy_without_annotation(doc) if doc.has_unknown_spaces else nlp.make_doc(doc.text)
    return with_metadata(predicted, doc.user_data)


def as_spacy_applies(doc: Doc) -> Doc:
    """Make the doc that a pipeline gets in `spacy apply`: one with the tokens and the sentence
    starts of a doc. Other annotation, which `spacy apply` keeps, is left out, as the
    pipeline predicts it.

    doc (Doc): The doc, with annotation or without.
    RETURNS (Doc): A new doc, with the metadata of the doc: see `with_metadata`.
    """
    return copy_without_annotation(doc, sentences=True)
