"""A hybrid CRF with both sparse features and a Tok2Vec.

The emissions are the sum of the emissions of two parts. The sparse part is a linear model (see
`sparse`). The dense part is a Tok2Vec with a linear layer. In shapes, B is the number of docs, and
N the number of tokens.
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
    """Build a linear-chain CRF with sparse features and a Tok2Vec. The emissions are the sum of the
    emissions of both parts.

    tok2vec (Model[list[Doc], list[Floats2d]]): The Tok2Vec or listener. It's trained by the
        optimizer in the config.
    features (Template | None): The feature template: see `build_sparse_crf`.
    learn_rate, L1, L2, dropout, eps, average_power, first_pass_epochs: Settings of the sparse part:
        see `build_sparse_crf`.
    part_dropout (float): The proportion of docs for which one of the two parts is dropped in an
        update. Both parts are dropped equally often, and the emissions of the remaining part are
        doubled. As a result, each part learns to predict without the other.
    linear_epochs (int): If greater than 0, the sparse part is trained for this number of epochs
        during initialization and then frozen, and the Tok2Vec is trained to correct its scores. If
        0, both parts are trained together.
    keep_all (bool): Whether to keep all weights of the sparse part: see `build_sparse_crf`.
    nO (int | None): The number of tags. Set by the component, based on its labels.
    RETURNS (Model[list[Doc], Potentials]): The model. It has the attributes "build_vocab",
        "begin_rehearsal", "resize_output" and "linear_epochs", and a reference "tok2vec" to the
        Tok2Vec.
    RAISES (ValueError): If a number is out of range.
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
            "begin_rehearsal": begin_rehearsal,
            "resize_output": resize_hybrid_crf,
            "linear_epochs": linear_epochs,
        },
    )


def forward(
    model: Model[list[Doc], Potentials], docs: list[Doc], is_train: bool, *, part_dropout: float
) -> tuple[Potentials, Callable[[Potentials], list[Doc]]]:
    """Add up the emissions of both parts. In training, one of the parts is dropped for some of the
    docs: see `part_dropout` in `build_hybrid_crf`. This is the model's forward function."""
    sparse, dense = model.layers
    potentials, backprop_sparse = sparse(docs, is_train)
    dense_emissions, backprop_dense = dense(docs, is_train)

    # The factors of the two parts for each doc: (1, 1) by default, (2, 0) or (0, 2) if one part is
    # dropped. Shape: (B, 2)
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


def begin_rehearsal(
    model: Model[list[Doc], Potentials], docs: list[Doc]
) -> tuple[Potentials, Callable[[Potentials], None]]:
    """Score docs in rehearsal: no part is dropped, and the sparse part has the same scores as in
    prediction (see `sparse.begin_rehearsal`). The backprop callback stores the gradients of both
    parts."""
    sparse, dense = model.layers
    potentials, backprop_sparse = sparse.attrs["begin_rehearsal"](sparse, docs)
    dense_emissions, backprop_dense = dense.begin_update(docs)

    def backprop(gradient: Potentials) -> None:
        backprop_sparse(gradient)
        backprop_dense(Ragged(gradient.emissions, dense_emissions.lengths))

    total = potentials.emissions + dense_emissions.data
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
    resize_emissions(model, nO)  # the dense part: the model has a reference to its linear layer
    model.set_dim("nO", nO, force=True)
    return model
