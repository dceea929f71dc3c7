"""What a pipeline gets of the doc of a file. spaCy has two ways, and there is a function for each.

`spacy evaluate`, `as_spacy_evaluates`: the text. Commands that measure read so.
`spacy apply`, `as_spacy_applies`: the tokens and sentence starts of the file. `annotate` reads so.
"""

from spacy.language import Language
from spacy.tokens import Doc

from .documents import with_metadata
from .sentences import copy_tokens


def as_spacy_evaluates(nlp: Language, doc: Doc) -> Doc:
    """Make what a pipeline gets of a doc in `spacy evaluate`: its text, tokenized by the pipeline,
    without sentence starts. Components of the pipeline may set these. The words are kept only where
    it isn't known which spaces were between them, as in columns.

    nlp (Language): The pipeline.
    doc (Doc): The doc, with annotation or without.
    RETURNS (Doc): A new doc, with the short values of `user_data`.
    """
    predicted = copy_tokens(doc) if doc.has_unknown_spaces else nlp.make_doc(doc.text)
    return with_metadata(predicted, doc.user_data)


def as_spacy_applies(doc: Doc) -> Doc:
    """Make what a pipeline gets of a doc in `spacy apply`: the doc's own tokens and sentence
    starts, without other annotation.

    doc (Doc): The doc, with annotation or without.
    RETURNS (Doc): A new doc, with the short values of `user_data`.
    """
    return copy_tokens(doc, sentences=True)
