"""Vocabs without a pipeline."""

from spacy.lang.xx import MultiLanguage
from spacy.vocab import Vocab, create_vocab


def blank_vocab() -> Vocab:
    """The vocab of a blank pipeline for many languages. The pipeline itself takes a thousand times
    as long to make, because of the special cases of its tokenizer."""
    return create_vocab("xx", MultiLanguage.Defaults)
