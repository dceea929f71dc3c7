"""A CRF on sparse features: the linear model.

It is a Thinc model without layers. Its shims do the work: `Features` finds the features of tokens,
and `SparseWeights` has their weights, sums them to scores, and is trained. Shims are saved and
copied with the model. A model that has the linear model as a part, next to a Tok2Vec, is called
hybrid: see `hybrid`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

from spacy.tokens import Doc
from thinc.api import Model, NumpyOps, to_numpy
from thinc.shims import Shim

from ..features import FeatureBatch, Features, Template
from ..sparse import AdaGrad
from ..types import Potentials, map_scores
from ..validation import above, as_number, at_least, check_cost
from .first_pass import FirstPass
from .hidden import HiddenLayer, WithHiddenLayer
from .weights import AVERAGE_POWER, SparseWeights, TableSize

AnyShim = TypeVar("AnyShim", bound=Shim)

DEFAULTS = AdaGrad()
"""The settings of AdaGrad that a config doesn't have to name: the same in all our configs."""


def build_sparse_crf(
    features: Template | None = None,
    learn_rate: float = DEFAULTS.learn_rate,
    L1: float = DEFAULTS.L1,
    L2: float = DEFAULTS.L2,
    dropout: float = 0.0,
    eps: float = DEFAULTS.eps,
    average_power: float = AVERAGE_POWER,
    first_pass_epochs: int = 6,
    keep_all: bool = False,
    hidden: int = 0,
    hidden_window: int = 1,
    nO: int | None = None,
) -> Model[list[Doc], Potentials]:
    """Build a linear-chain CRF on sparse features.

    features (Template | None): The template of features. None: the template of `Features.v1` with
        its default settings.
    learn_rate (float): The learning rate of AdaGrad, which trains this model with any
        optimizer in the config.
    L1 (float): The penalty of the sum of the absolute weights, for each update.
    L2 (float): The penalty of half the sum of the squared weights, for each update.
    dropout (float): The share of the features of tokens that is left out at random in training.
    eps (float): The updates of a weight are small as long as its gradients so far are small
        compared with this number. Near 0 even a small first gradient makes a full update.
    average_power (float): If averages are used, the weights after step t count t^p, and this is p.
        With 0 all steps count the same.
    first_pass_epochs (int): How often the training of the first pass goes through the examples. It
        is trained at initialization, if the features have `document`.
    keep_all (bool): Whether all weights and all values of features are kept. Otherwise weights and
        values that hardly matter are left out after training, and saved models take a tenth of the
        bytes.
    hidden (int): The number of units of a hidden layer over the static word vectors, which the
        features have to include. It is trained by the optimizer of the config. 0: no such layer.
    hidden_window (int): The inputs of the layer are the vectors of words up to this number of
        tokens to either side.
    nO (int | None): The number of tags. The component sets it from its labels.
    RETURNS (Model[list[Doc], Potentials]): The model. Its shims are `Features`, `SparseWeights`
        and, if it has them, `FirstPass` and `HiddenLayer`. Its attributes are functions that take
        the model as their first argument: see `build_vocab`, `find_features`, `score_features`
        and, as "resize_output", `resize_sparse_crf`.
    RAISES (ValueError): If a number is out of its range, or if there is a hidden layer, and the
        features don't include static vectors.
    """
    features = features or Template()
    where = "spacy_costner.SparseCRF"
    if not 0 <= as_number(dropout) < 1:
        raise ValueError(f"{where}: dropout: expected at least 0 and less than 1, got {dropout}")
    above(0, "SparseCRF", "learn_rate", learn_rate)
    above(0, "SparseCRF", "eps", eps)
    at_least(1, "SparseCRF", "first_pass_epochs", first_pass_epochs)
    check_cost(L1, f"{where}: L1")
    check_cost(L2, f"{where}: L2")
    check_cost(average_power, f"{where}: average_power")
    at_least(0, "SparseCRF", "hidden", hidden)
    at_least(0, "SparseCRF", "hidden_window", hidden_window)
    if hidden and not features.include_static_vectors:
        raise ValueError(
            f"{where}: hidden: expected 0 unless the features have include_static_vectors, as "
            f"static vectors are the inputs of the layer, got {hidden}"
        )
    if hidden:
        features = features.with_hidden_window(hidden_window)

    settings = AdaGrad(learn_rate=learn_rate, L1=L1, L2=L2, eps=eps)
    # `is_linear` and `linear_part` rely on these two being the first.
    shims: list[Shim] = [
        Features(features, dropout),
        SparseWeights(settings, average_power, keep_all),
    ]
    if features.document:
        shims.append(FirstPass(settings, average_power, first_pass_epochs, keep_all))
    if hidden:
        shims.append(HiddenLayer(hidden))
    attrs = {
        "build_vocab": build_vocab,
        "find_features": find_features,
        "score_features": score_features,
        "resize_output": resize_sparse_crf,
    }
    return Model("sparse_crf", forward, init=init, dims={"nO": nO}, shims=shims, attrs=attrs)


def load_shims(model: Model, saved: Sequence[bytes], n_tags: int | None) -> None:
    """Load the shims of a linear CRF. The features come first: the number of weights has to fit
    them, which is checked before memory is allocated.

    model (Model): The linear CRF.
    saved (Sequence[bytes]): The saved bytes of each of its shims.
    n_tags (int | None): The number of tags. None: the number is still unknown.
    RAISES (ValueError): If a shim is missing, damaged, or doesn't fit the others.
    """
    if len(saved) != len(model.shims):
        raise ValueError(f"{model.name}: expected {len(model.shims)} shims, got {len(saved)}")
    features, weights = linear_part(model)
    features.from_bytes(saved[0])
    size = TableSize(len(features), features.n_vector_rows, n_tags)
    weights.from_bytes(saved[1], size)
    for shim, data in zip(model.shims[2:], saved[2:]):
        if isinstance(shim, FirstPass):
            shim.from_bytes(data, size)
        else:
            shim.from_bytes(data)


def is_linear(model: Model) -> bool:
    """Whether a model is a linear CRF, not a hybrid that has one as a part."""
    return len(model.shims) > 1 and isinstance(model.shims[1], SparseWeights)


def has_linear_part(model: Model) -> bool:
    """Whether a model is a linear CRF, or a hybrid that has one as a part."""
    return _find_linear(model) is not None


def linear_part(model: Model) -> tuple[Features, SparseWeights]:
    """The features and the weights of a linear CRF, or of the linear part of a hybrid.

    RAISES (ValueError): If the model is neither.
    """
    linear_model = _find_linear(model)
    if linear_model is None:
        raise ValueError(f"expected a model with sparse features, got {model.name}")
    features, weights = linear_model.shims[:2]
    return cast(Features, features), cast(SparseWeights, weights)


def first_pass_of(model: Model) -> FirstPass | None:
    """The first pass of a model with a linear part, if it has one."""
    return _find_shim(model, FirstPass)


def hidden_layer_of(model: Model) -> HiddenLayer | None:
    """The hidden layer of a linear CRF, if it has one with weights. If the model was initialized
    without docs, it doesn't know the static vectors, and its layer has no weights."""
    layer = _find_shim(model, HiddenLayer)
    if layer is None or not layer.is_allocated:
        return None
    return layer


def trained_parts(model: Model) -> SparseWeights | WithHiddenLayer:
    """The parts of a linear CRF, or of the linear part of a hybrid, that updates train: the weights
    and, if it has one, the hidden layer."""
    _, weights = linear_part(model)
    layer = hidden_layer_of(model)
    if layer is None:
        return weights
    return WithHiddenLayer(weights, layer)


def _find_shim(model: Model, kind: type[AnyShim]) -> AnyShim | None:
    """The shim of class `kind` of a linear CRF, or of the linear part of a hybrid, if it has
    one."""
    linear_model = _find_linear(model)
    if linear_model is None:
        return None
    for shim in linear_model.shims:
        if isinstance(shim, kind):
            return shim
    return None


def _find_linear(model: Model) -> Model | None:
    """The linear CRF among a model and its layers, if there is one."""
    if is_linear(model):  # usually so, and to walk over the layers is slow
        return model
    return next(filter(is_linear, model.walk()), None)


def forward(
    model: Model[list[Doc], Potentials], docs: list[Doc], is_train: bool
) -> tuple[Potentials, Callable[[Potentials], list[Doc]]]:
    """Score docs by their features. This is the `forward` of the Thinc model. The backprop keeps
    the gradient with respect to the scores for the next update. Docs have no gradient: the backprop
    returns them."""
    if not is_train:
        # The weights of each word are summed only once, and kept: see `WordSums`.
        features = find_features(model, docs, by_word=True)
        scores = trained_parts(model).potentials(features)
        return _copy_to_device(model, scores), lambda gradient: docs

    features = find_features(model, docs, is_train=True)
    scores, backprop_scores = score_features(model, features)

    def backprop(gradient: Potentials) -> list[Doc]:
        backprop_scores(gradient)
        return docs

    return scores, backprop


def score_features(
    model: Model[list[Doc], Potentials], batch: FeatureBatch
) -> tuple[Potentials, Callable[[Potentials], None]]:
    """Score training docs by their features, as `find_features` returns them. The backprop keeps
    the gradient for the next update. But if the weights have folds, it does nothing, and each doc
    is scored by weights that were not trained on it: see `SparseWeights.set_folds`."""
    features, weights = linear_part(model)
    if weights.emissions_of_folds:
        # The weights were trained at initialization, and don't change any more.
        return _copy_to_device(model, weights.score_held_out(batch)), lambda gradient: None
    scores, add_gradient = trained_parts(model).begin_update(batch, features.dropout)

    def backprop(gradient: Potentials) -> None:
        add_gradient(map_scores(to_numpy, gradient))  # the weights are on the CPU

    return _copy_to_device(model, scores), backprop


def _copy_to_device(model: Model, scores: Potentials) -> Potentials:
    """Copy scores to the device of a model. The sparse weights themselves stay on the CPU."""
    if isinstance(model.ops, NumpyOps):
        return scores
    return map_scores(model.ops.asarray, scores)


def init(
    model: Model[list[Doc], Potentials],
    X: list[Doc] | None = None,
    Y: Potentials | None = None,
) -> None:
    """Build the vocabulary of features from the docs `X`, unless `build_vocab` has done so. Then,
    if the number of tags is known, make the sparse weights, which are all 0, and the weights of the
    hidden layer, if the model has one: see `HiddenLayer.allocate`. `Y` is not used."""
    features, weights = linear_part(model)
    if not features.has_vocab and X is not None:
        features.build_vocab(X)
    if model.has_dim("nO"):
        n_tags = model.get_dim("nO")
        weights.allocate(len(features), n_tags, features.n_vector_rows)
        layer = _find_shim(model, HiddenLayer)  # `hidden_layer_of` finds it only if it has weights
        if layer is not None:
            layer.allocate(features.n_hidden_rows, n_tags)


def build_vocab(model: Model[list[Doc], Potentials], docs: Iterable[Doc]) -> None:
    """Build the vocabulary of features from docs with their entities."""
    features, _ = linear_part(model)
    features.build_vocab(docs)


def find_features(
    model: Model[list[Doc], Potentials],
    docs: Sequence[Doc],
    *,
    is_train: bool = False,
    by_word: bool = False,
) -> FeatureBatch:
    """Find the features of the tokens of docs. If the model has a first pass, there are features of
    the labels that it predicts, too.

    docs (Sequence[Doc]): The docs, with the attributes that the template reads.
    is_train (bool): Whether the model learns from the labels of these docs. The label memory (see
        `features.memory`) then ignores the labels that it has counted in them.
    by_word (bool): Whether the batch has the ids of words instead of the rows of weights that
        depend on the word alone.
    RETURNS (FeatureBatch): The features.
    """
    features, _ = linear_part(model)
    batch = features.find(docs, is_train=is_train, by_word=by_word)
    first_pass = first_pass_of(model)
    # A first pass that isn't trained yet predicts nothing. And if no word occurs again in its doc,
    # no token has features of labels.
    if first_pass is None or not first_pass.can_predict or not features.need_labels(batch):
        return batch
    probabilities = first_pass.predict(batch, docs)
    return features.add_labels(batch, probabilities, first_pass.tags.labels)


def resize_sparse_crf(model: Model[list[Doc], Potentials], nO: int) -> Model[list[Doc], Potentials]:
    """Add tags after the existing tags, whose scores don't change. `nO` is the new number of
    tags."""
    _, weights = linear_part(model)
    if weights.is_allocated:
        weights.resize(nO)
    layer = hidden_layer_of(model)
    if layer is not None:
        layer.resize(nO)
    model.set_dim("nO", nO, force=True)  # `force`: it may be set to the earlier number of tags
    return model
