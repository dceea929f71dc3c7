"""A CRF on top of a Tok2Vec.

A linear layer maps the vector of each token to its emissions. The output layer, "transitions", adds
the weights for transitions, start and end, which are the same for all docs. In shapes, N is the
number of tokens, and K the number of tags.
"""

from collections.abc import Callable
from typing import cast

from spacy.tokens import Doc
from thinc.api import Linear, Model, chain, list2ragged, to_numpy, with_array, zero_init
from thinc.layers.resizable import resize_linear_weighted
from thinc.types import Floats1d, Floats2d, Ragged

from ..types import Potentials

TRANSITION_PARAMS = ("transitions", "start", "end")
"""The names of the output layer's parameters, which are fields of `Potentials`."""


def build_linear_chain_crf(
    tok2vec: Model[list[Doc], list[Floats2d]], nO: int | None = None
) -> Model[list[Doc], Potentials]:
    """Build a linear-chain CRF on top of a Tok2Vec.

    tok2vec (Model[list[Doc], list[Floats2d]]): The Tok2Vec or listener.
    nO (int | None): The number of tags. Set by the component, based on its labels.
    RETURNS (Model[list[Doc], Potentials]): The model. It has the attribute "resize_output", which
        is the function `resize_linear_chain_crf`, and a reference "tok2vec" to the Tok2Vec.
    """
    width = tok2vec.maybe_get_dim("nO")
    emissions = Linear(nO, width, init_W=zero_init)  # all emissions start at 0
    transitions = Transitions(nO)
    model: Model[list[Doc], Potentials] = chain(
        tok2vec, cast(Model, list2ragged()), with_array(emissions), transitions
    )
    model.set_ref("tok2vec", tok2vec)
    model.set_ref("emissions", emissions)
    model.set_ref("output_layer", transitions)
    model.attrs["resize_output"] = resize_linear_chain_crf
    return model


def Transitions(nO: int | None = None) -> Model[Ragged, Potentials]:
    """Build the output layer of a CRF, which maps ragged emissions to potentials. Shape of the
    emissions: (N, K)"""
    return Model(
        "transitions",
        forward,
        init=init,
        dims={"nO": nO},
        params={name: None for name in TRANSITION_PARAMS},
    )


def forward(
    model: Model[Ragged, Potentials], emissions: Ragged, is_train: bool
) -> tuple[Potentials, Callable[[Potentials], Ragged]]:
    """Combine the emissions with the weights of the chain. The backprop callback increments the
    gradients of the weights and returns the gradient of the emissions."""
    potentials = Potentials(
        emissions=cast(Floats2d, emissions.data),
        transitions=cast(Floats2d, model.get_param("transitions")),
        start=cast(Floats1d, model.get_param("start")),
        end=cast(Floats1d, model.get_param("end")),
        lengths=to_numpy(emissions.lengths),
    )

    def backprop(gradient: Potentials) -> Ragged:
        for name in TRANSITION_PARAMS:
            model.inc_grad(name, getattr(gradient, name))
        return Ragged(gradient.emissions, emissions.lengths)

    return potentials, backprop


def init(
    model: Model[Ragged, Potentials],
    X: Ragged | None = None,
    Y: Potentials | None = None,
) -> None:
    """Set the scores of transitions, start and end to 0. Called by Thinc when the model is
    initialized.

    X (Ragged | None): The emissions of sample docs, used to infer the number of tags if it isn't
        set yet. Shape of the data: (N, K)
    Y (Potentials | None): Not used. Thinc passes it in for every model.
    """
    # `has_dim` returns None if the dimension has no value.
    is_unset = model.has_dim("nO") is None
    if X is not None and is_unset:
        model.set_dim("nO", X.data.shape[1])
    n_tags = model.get_dim("nO")
    # `alloc1f` and `alloc2f` return arrays of zeros.
    model.set_param("transitions", model.ops.alloc2f(n_tags, n_tags))
    model.set_param("start", model.ops.alloc1f(n_tags))
    model.set_param("end", model.ops.alloc1f(n_tags))


def resize_linear_chain_crf(
    model: Model[list[Doc], Potentials], nO: int
) -> Model[list[Doc], Potentials]:
    """Add tags after the existing tags, whose scores don't change. `nO` is the new number of tags.
    The output layer is replaced with a new one, so that optimizers don't reuse their state for the
    smaller layer."""
    transitions = model.get_ref("output_layer")
    larger = Transitions(nO)
    if transitions.has_param("transitions"):  # the model is initialized
        larger.initialize()
        # The old tags come first on each axis: [:K, :K] for the transitions and [:K] for the
        # others.
        for name in TRANSITION_PARAMS:
            weights = transitions.get_param(name)
            old_tags = tuple(slice(n_tags) for n_tags in weights.shape)
            larger.get_param(name)[old_tags] = weights
    resize_emissions(model, nO)
    model.replace_node(transitions, larger)
    model.set_dim("nO", nO, force=True)
    return model


def resize_emissions(model: Model[list[Doc], Potentials], nO: int) -> None:
    """Add tags to the linear layer that maps vectors to emissions.

    nO (int): The new number of tags.
    """
    old_layer = model.get_ref("emissions")
    larger_layer = resize_linear_weighted(old_layer, nO)
    model.replace_node(old_layer, larger_layer)
    # Update the width of the layers that contain it.
    for node in model.walk():
        if larger_layer in node.layers:
            node.set_dim("nO", nO, force=True)
