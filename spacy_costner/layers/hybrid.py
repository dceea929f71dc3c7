"""A CRF on sparse features and on the vectors of a Tok2Vec, trained together."""

from typing import Callable, List, Optional, Tuple, cast

from spacy.tokens import Doc
from thinc.api import Linear, Model, chain, list2ragged, with_array, zero_init
from thinc.types import Floats2d, Ragged

from ..features import Template
from ..types import Potentials
from .dense import resize_emissions
from .sparse import build_sparse_crf, collect_features


def build_hybrid_crf(
    tok2vec: Model[List[Doc], List[Floats2d]],
    features: Template,
    learn_rate: float = 0.05,
    L1: float = 0.0,
    L2: float = 0.0,
    dropout: float = 0.0,
    nO: Optional[int] = None,
) -> Model[List[Doc], Potentials]:
    """Build a linear-chain CRF whose emissions are the sum of those of sparse features and of
    those of a Tok2Vec.

    tok2vec (Model[List[Doc], List[Floats2d]]): Any Tok2Vec, a listener too. It learns with
        the optimizer of the config.
    features (Template): What is seen of tokens.
    learn_rate, L1, L2, dropout (float): Of the sparse part: see `build_sparse_crf`.
    nO (Optional[int]): K, the number of tags. The component sets it from its labels.
    RETURNS (Model[List[Doc], Potentials]): The model, with the attributes "collect_features"
        and "resize_output"; reference "tok2vec" is the Tok2Vec.
    RAISES (ValueError): If a number is out of its range.
    """
    sparse = build_sparse_crf(features, learn_rate=learn_rate, L1=L1, L2=L2, dropout=dropout, nO=nO)
    emissions = Linear(nO, tok2vec.maybe_get_dim("nO"), init_W=zero_init)
    dense: Model[List[Doc], Ragged] = chain(
        tok2vec, cast(Model, list2ragged()), with_array(emissions)
    )
    return Model(
        "hybrid_crf",
        forward,
        init=init,
        dims={"nO": nO},
        layers=[sparse, dense],
        refs={"tok2vec": tok2vec, "emissions": emissions},
        attrs={"collect_features": collect_features, "resize_output": resize_hybrid_crf},
    )


def forward(
    model: Model[List[Doc], Potentials], docs: List[Doc], is_train: bool
) -> Tuple[Potentials, Callable[[Potentials], List[Doc]]]:
    sparse, dense = model.layers
    potentials, backprop_sparse = sparse(docs, is_train)
    ragged, backprop_dense = dense(docs, is_train)
    potentials = potentials._replace(emissions=potentials.emissions + ragged.data)

    def backprop(gradient: Potentials) -> List[Doc]:
        backprop_sparse(gradient)
        return backprop_dense(Ragged(gradient.emissions, ragged.lengths))

    return potentials, backprop


def init(
    model: Model[List[Doc], Potentials],
    X: Optional[List[Doc]] = None,
    Y: Optional[Potentials] = None,
) -> None:
    sparse, dense = model.layers
    sparse.initialize(X=X)
    dense.initialize(X=X)


def resize_hybrid_crf(model: Model[List[Doc], Potentials], nO: int) -> Model[List[Doc], Potentials]:
    """Make room for new tags behind the old ones, whose scores stay as they are.

    model (Model[List[Doc], Potentials]): A model of `build_hybrid_crf`.
    nO (int): The new K.
    RETURNS (Model[List[Doc], Potentials]): The same model.
    """
    sparse, _ = model.layers
    sparse.attrs["resize_output"](sparse, nO)
    resize_emissions(model, nO)
    model.set_dim("nO", nO, force=True)
    return model
