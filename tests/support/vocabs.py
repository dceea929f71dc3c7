"""Vocabs without a pipeline."""

from spacy.lang.xx import MultiLanguage
from spacy.vocab import Vocab, create_vocab


def blank_vocab() -> Vocab:
    """The vocab of a blank pipeline for many languages. The pipeline itself takes a hundred times
    as long to make."""
    return create_vocab("xx", MultiLanguage.Defaults)
