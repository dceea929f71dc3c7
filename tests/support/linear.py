"""CRFs on sparse features, alone and with a Tok2Vec."""

from collections.abc import Sequence
from typing import Any

import numpy
from spacy.tokens import Doc
from thinc.api import Model

from spacy_costner.features import Features, Template
from spacy_costner.ml import build_sparse_crf, linear_part

from .config import FEATURES, TOK2VEC
from .vocabs import blank_vocab

SPARSE = {"@architectures": "spacy_costner.SparseCRF.v1", "features": FEATURES}
HYBRID = {**SPARSE, "@architectures": "spacy_costner.HybridCRF.v1", "tok2vec": TOK2VEC}
VOCAB = blank_vocab()
DOCS = [Doc(VOCAB, words=words.split()) for words in ("a b a c", "", "d A", "b")]


def crf(n_tags: int = 3, **settings: Any) -> Model:
    """A sparse CRF of random weights."""
    model = build_sparse_crf(Template(windows={"ORTH": 1, "LOWER": 0}), **settings, nO=n_tags)
    model.initialize(X=DOCS)
    weights = linear_part(model)[1]
    weights.rows[:] = numpy.random.default_rng(0).normal(size=weights.rows.shape)
    return model


def found_names(
    features: Features, docs: Sequence[Doc], *, is_train: bool = False
) -> list[list[str]]:
    """The names of the features of each token, in order."""
    names = features.names()
    names_of_tokens = []
    for rows_of_token in features.find(docs, is_train=is_train).rows:
        # A row below 0 is a feature that the training docs don't have.
        names_of_tokens.append(sorted(names[row] for row in rows_of_token if row >= 0))
    return names_of_tokens
