"""The layers: gradients down to every parameter."""

import numpy
import pytest
import spacy
from spacy.ml.models import build_hash_embed_cnn_tok2vec
from spacy.tokens import Doc
from thinc.api import Model, use_ops

from spacy_costner.losses import sequential
from spacy_costner.ml import build_linear_chain_crf
from spacy_costner.types import Gold

from .support.gradients import central_difference

VOCAB = spacy.blank("xx").vocab
DOCS = [Doc(VOCAB, words=words.split()) for words in ("a b c", "", "d")]
GOLD = Gold(numpy.asarray([0, 2, 1, 1], dtype="int32"))


def crf(n_tags: int) -> Model:
    tok2vec = build_hash_embed_cnn_tok2vec(
        width=4,
        depth=1,
        embed_size=20,
        window_size=1,
        maxout_pieces=2,
        subword_features=False,
        pretrained_vectors=None,
    )
    model = build_linear_chain_crf(tok2vec, nO=n_tags)
    model.initialize(X=DOCS)
    rng = numpy.random.default_rng(0)
    for layer in (model.get_ref("emissions"), model.get_ref("output_layer")):
        for name in layer.param_names:
            layer.get_param(name)[:] = rng.normal(size=layer.get_param(name).shape)
    return model


def loss(model: Model) -> float:
    return sequential(model.predict(DOCS), GOLD).value


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("emissions", "W"),
        ("emissions", "b"),
        ("output_layer", "transitions"),
        ("output_layer", "start"),
        ("output_layer", "end"),
    ],
)
def test_gradients_are_those_of_the_loss(ref: str, name: str) -> None:
    with use_ops("numpy"):
        model = crf(3)
    potentials, backprop = model.begin_update(DOCS)
    backprop(sequential(potentials, GOLD).gradient)
    layer = model.get_ref(ref)
    param, gradient = layer.get_param(name), layer.get_grad(name)
    for index in numpy.ndindex(param.shape):
        expected = central_difference(lambda: loss(model), param, index)
        assert gradient[index] == pytest.approx(expected, abs=2e-3)
