"""The models of the papers' corpora that have a CNN: alone, or with sparse features beside it."""

import random
from typing import Any, Dict, Sequence

from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from thinc.api import Adam

from .tagger import Block, Tagger

WIDTH = 96
DROPOUT = 0.2
LEARN_RATE = 0.001
"""That of the CNN; sparse features have AdaGrad's."""

ROWS = {"NORM": 5000, "PREFIX": 1000, "SUFFIX": 2500, "SHAPE": 2500, "TAG": 500}


def cnn_block(attributes: Sequence[str]) -> Block:
    """The CNN of configs/cnn.cfg.

    attributes (Sequence[str]): What it sees of tokens, some of ROWS.
    """
    return {"@architectures": "spacy_costner.LinearChainCRF.v1", "tok2vec": _tok2vec(attributes)}


def hybrid_block(attributes: Sequence[str], features: Block, learn_rate: float) -> Block:
    """The hybrid of configs/hybrid.cfg.

    attributes (Sequence[str]): What the CNN sees of tokens, some of ROWS.
    features (Block): What the linear part sees.
    learn_rate (float): That of AdaGrad.
    """
    return {
        "@architectures": "spacy_costner.HybridCRF.v1",
        "tok2vec": _tok2vec(attributes),
        "features": features,
        "learn_rate": learn_rate,
        "part_dropout": 1.0,
    }


def _tok2vec(attributes: Sequence[str]) -> Dict[str, Any]:
    embed = {
        "@architectures": "spacy.MultiHashEmbed.v2",
        "width": WIDTH,
        "attrs": list(attributes),
        "rows": [ROWS[name] for name in attributes],
        "include_static_vectors": False,
    }
    encode = {
        "@architectures": "spacy.MaxoutWindowEncoder.v2",
        "width": WIDTH,
        "depth": 4,
        "window_size": 1,
        "maxout_pieces": 3,
    }
    return {"@architectures": "spacy.Tok2Vec.v2", "embed": embed, "encode": encode}


def fit_neural(
    tagger: Tagger,
    examples: Sequence[Example],
    *,
    epochs: int,
    words: int,
    learn_rate: float = LEARN_RATE,
) -> None:
    """Train by Adam in small batches; the weights are their averages then.

    tagger (Tagger): A model with a CNN.
    examples (Sequence[Example]): What it learns from, in another order in each epoch.
    epochs (int): How often it goes through them.
    words (int): Tokens in a batch, about.
    learn_rate (float): Of Adam.
    """
    optimizer = Adam(learn_rate, L2=0.01, L2_is_weight_decay=True, grad_clip=1.0, use_averages=True)
    for _ in range(epochs):
        shuffled = random.sample(list(examples), len(examples))
        for batch in minibatch_by_words(shuffled, words):
            tagger.ner.update(batch, drop=DROPOUT, sgd=optimizer)
    tagger.write_weights(tagger.read_weights(optimizer))
