"""A CRF on sparse features and on the vectors of a Tok2Vec: a hybrid.

Its emissions are the sum of the emissions of two parts. The sparse part is a linear model (see
`sparse`). The dense part is a Tok2Vec with a linear layer. In shapes, B is the number of docs, and
N of tokens.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import numpy
from spacy.tokens import Doc
from thinc.api import Linear, Model, chain, list2ragged, with_array, zero_init
from thinc.types import Floats2d, Ragged

from ..features import Template
from ..types import Potentials
from ..validation import at_least, within
from .dense import resize_emissions
from .sparse import DEFAULTS, build_sparse_crf, build_vocab
from .weights import AVERAGE_POWER


def build_hybrid_crf(
    tok2vec: Model[list[Doc], list[Floats2d]],
    features: Template | None = None,
    learn_rate: float = DEFAULTS.learn_rate,
    L1: float = DEFAULTS.L1,
    L2: float = DEFAULTS.L2,
    dropout: float = 0.0,
    eps: float = DEFAULTS.eps,
    average_power: float = AVERAGE_POWER,
    part_dropout: float = 0.0,
    first_pass_epochs: int = 6,
    linear_epochs: int = 0,
    keep_all: bool = False,
    nO: int | None = None,
) -> Model[list[Doc], Potentials]:
    """Build a linear-chain CRF on sparse features and a Tok2Vec. Its emissions are the sum of the
    emissions of both parts.

    tok2vec (Model[list[Doc], list[Floats2d]]): Any Tok2Vec or listener. It is trained by the
        optimizer of the config.
    features (Template | None): The template of features: see `build_sparse_crf`.
    learn_rate, L1, L2, dropout, eps, average_power, first_pass_epochs: Settings of the sparse part:
        see `build_sparse_crf`.
    part_dropout (float): The share of docs that use only one of the two parts in an update, each
        part equally often; its emissions are doubled. Each part thus learns to predict without the
        other.
    linear_epochs (int): If it isn't 0, the sparse part is trained at initialization, and goes
        through the examples this number of times. After that it doesn't change, and the Tok2Vec is
        trained to correct its scores. 0: both parts are trained together.
    keep_all (bool): Whether all weights of the sparse part are kept: see `build_sparse_crf`.
    nO (int | None): The number of tags. The component sets it from its labels.
    RETURNS (Model[list[Doc], Potentials]): The model, with the attributes "build_vocab",
        "resize_output" and "linear_epochs"; reference "tok2vec" is the Tok2Vec.
    RAISES (ValueError): If a number is out of its range.
    """
    within(0, 1, "HybridCRF", "part_dropout", part_dropout)
    at_least(0, "HybridCRF", "linear_epochs", linear_epochs)
    sparse = build_sparse_crf(
        features,
        learn_rate=learn_rate,
        L1=L1,
        L2=L2,
        dropout=dropout,
        eps=eps,
        average_power=average_power,
        first_pass_epochs=first_pass_epochs,
        keep_all=keep_all,
        nO=nO,
    )

    emissions = Linear(nO, tok2vec.maybe_get_dim("nO"), init_W=zero_init)
    dense: Model[list[Doc], Ragged] = chain(
        tok2vec, cast(Model, list2ragged()), with_array(emissions)
    )
    return Model(
        "hybrid_crf",
        partial(forward, part_dropout=part_dropout),
        init=init,
        dims={"nO": nO},
        layers=[sparse, dense],
        refs={"tok2vec": tok2vec, "emissions": emissions},
        attrs={
            "build_vocab": build_vocab,
            "resize_output": resize_hybrid_crf,
            "linear_epochs": linear_epochs,
        },
    )


def forward(
    model: Model[list[Doc], Potentials], docs: list[Doc], is_train: bool, *, part_dropout: float
) -> tuple[Potentials, Callable[[Potentials], list[Doc]]]:
    """Add the emissions of both parts. In training, the share `part_dropout` of the docs uses only
    one of the parts. This is the `forward` of the Thinc model."""
    sparse, dense = model.layers
    potentials, backprop_sparse = sparse(docs, is_train)
    dense_emissions, backprop_dense = dense(docs, is_train)

    # The factors of the two parts in each doc: 1 and 1 or, in the share `part_dropout` of the docs,
    # 2 and 0 or 0 and 2. Shape: (B, 2)
    factors = numpy.ones((len(docs), 2), dtype="float32")
    if is_train and part_dropout:
        chance = numpy.random.uniform(size=len(docs))
        factors[chance < part_dropout] = (2, 0)
        factors[chance < part_dropout / 2] = (0, 2)
    token_factors = model.ops.asarray2f(numpy.repeat(factors, potentials.lengths, axis=0))
    sparse_factor = token_factors[:, :1]  # (N, 1)
    dense_factor = token_factors[:, 1:]  # (N, 1)
    total = sparse_factor * potentials.emissions + dense_factor * dense_emissions.data

    def backprop(gradient: Potentials) -> list[Doc]:
        d_total = gradient.emissions
        backprop_sparse(gradient._replace(emissions=sparse_factor * d_total))
        return backprop_dense(Ragged(dense_factor * d_total, dense_emissions.lengths))

    return potentials._replace(emissions=total), backprop


def init(
    model: Model[list[Doc], Potentials],
    X: list[Doc] | None = None,
    Y: Potentials | None = None,
) -> None:
    """Initialize both parts with the docs `X`: see `sparse.init`. `Y` is not used."""
    sparse, dense = model.layers
    sparse.initialize(X=X)
    dense.initialize(X=X)


def resize_hybrid_crf(model: Model[list[Doc], Potentials], nO: int) -> Model[list[Doc], Potentials]:
    """Add tags after the existing tags, whose scores don't change. `nO` is the new number of
    tags."""
    sparse, _ = model.layers
    sparse.attrs["resize_output"](sparse, nO)
    resize_emissions(model, nO)  # of the dense part: its linear layer is a reference of the model
    model.set_dim("nO", nO, force=True)
    return model
