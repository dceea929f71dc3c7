"""A CRF with sparse features: the linear model.

This is a Thinc model without layers. The work is done by its shims: `Features` extracts the
features of tokens, and `SparseWeights` stores their weights, computes the scores and is trained.
Shims are saved and copied together with the model. If the linear model is combined with a Tok2Vec,
the result is called a hybrid: see `hybrid`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

from spacy.tokens import Doc
from spacy.vocab import Vocab
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
"""The default AdaGrad settings."""


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
    """Build a linear-chain CRF with sparse features.

    features (Template | None): The feature template. None: `Features.v1` with its default settings.
    learn_rate (float): The learning rate of AdaGrad, which trains the sparse weights regardless of
        the optimizer in the config.
    L1 (float): The L1 penalty per update: the coefficient of the sum of the absolute weights.
    L2 (float): The L2 penalty per update: the coefficient of half the sum of the squared weights.
    dropout (float): The proportion of features that is dropped at random in training.
    eps (float): Updates to a weight are small while its accumulated gradients are small compared
        with this value. If it's close to 0, even a small first gradient causes a full update.
    average_power (float): The exponent p of weight averaging: step t has the weight t^p in the
        average. If 0, all steps have the same weight. Only used if the optimizer uses averages.
    first_pass_epochs (int): The number of epochs for training the first pass. It's trained during
        initialization if the features include `document`.
    keep_all (bool): Whether to keep all weights and feature values. Otherwise, unimportant weights
        and values are removed after training, which makes saved models about ten times smaller.
    hidden (int): The number of units in a hidden layer over the static word vectors, which the
        features have to include. The layer is trained by the optimizer in the config. If 0, there
        is no hidden layer.
    hidden_window (int): The number of tokens on either side whose vectors are inputs to the hidden
        layer.
    nO (int | None): The number of tags. Set by the component, based on its labels.
    RETURNS (Model[list[Doc], Potentials]): The model. Its shims are `Features`, `SparseWeights`
        and, if used, `FirstPass` and `HiddenLayer`. Its attributes are functions whose first
        argument is the model: `build_vocab`, `find_features`, `score_features`, `begin_rehearsal`
        and, as "resize_output", `resize_sparse_crf`.
    RAISES (ValueError): If a number is out of range, or if there is a hidden layer but the features
        don't include static vectors.
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
    # `is_linear` and `linear_part` expect these two to be first.
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
        "begin_rehearsal": begin_rehearsal,
        "resize_output": resize_sparse_crf,
    }
    return Model("sparse_crf", forward, init=init, dims={"nO": nO}, shims=shims, attrs=attrs)


def load_shims(model: Model, saved: Sequence[bytes], n_tags: int | None) -> None:
    """Load the shims of a linear CRF. The features are loaded first, so that the expected number of
    weights can be checked before memory is allocated.

    model (Model): The linear CRF.
    saved (Sequence[bytes]): The saved bytes of each shim.
    n_tags (int | None): The number of tags. None if it isn't known yet.
    RAISES (ValueError): If a shim is missing, damaged, or incompatible with the others.
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
        elif isinstance(shim, HiddenLayer):
            shim.from_bytes(data, features.n_hidden_rows, n_tags)
        else:
            shim.from_bytes(data)


def is_linear(model: Model) -> bool:
    """Check whether a model is a linear CRF, and not a hybrid that contains one."""
    return len(model.shims) > 1 and isinstance(model.shims[1], SparseWeights)


def has_linear_part(model: Model) -> bool:
    """Check whether a model is a linear CRF or a hybrid that contains one."""
    return _find_linear(model) is not None


def linear_part(model: Model) -> tuple[Features, SparseWeights]:
    """Return the features and weights of a linear CRF or of the linear part of a hybrid.

    RAISES (ValueError): If the model is neither.
    """
    linear_model = _find_linear(model)
    if linear_model is None:
        raise ValueError(f"expected a model with sparse features, got {model.name}")
    features, weights = linear_model.shims[:2]
    return cast(Features, features), cast(SparseWeights, weights)


def first_pass_of(model: Model) -> FirstPass | None:
    """Return the first pass of a linear CRF or of the linear part of a hybrid, if any."""
    return _find_shim(model, FirstPass)


def hidden_layer_of(model: Model) -> HiddenLayer | None:
    """Return the hidden layer of a linear CRF if its weights have been created. They don't exist if
    the model was initialized without docs, because the static vectors aren't known in this case."""
    layer = _find_shim(model, HiddenLayer)
    if layer is None or not layer.is_allocated:
        return None
    return layer


def trained_parts(model: Model) -> SparseWeights | WithHiddenLayer:
    """Return the parts of a linear CRF, or of the linear part of a hybrid, that are trained by
    updates: the weights and, if any, the hidden layer."""
    _, weights = linear_part(model)
    layer = hidden_layer_of(model)
    if layer is None:
        return weights
    return WithHiddenLayer(weights, layer)


def _find_shim(model: Model, kind: type[AnyShim]) -> AnyShim | None:
    """Return the shim of the given class in a linear CRF or in the linear part of a hybrid, if
    any."""
    linear_model = _find_linear(model)
    if linear_model is None:
        return None
    for shim in linear_model.shims:
        if isinstance(shim, kind):
            return shim
    return None


def _find_linear(model: Model) -> Model | None:
    """Return the first linear CRF among a model and its layers, if any."""
    if is_linear(model):  # the usual case, and faster than walking the layers
        return model
    return next(filter(is_linear, model.walk()), None)


def forward(
    model: Model[list[Doc], Potentials], docs: list[Doc], is_train: bool
) -> tuple[Potentials, Callable[[Potentials], list[Doc]]]:
    """Score docs based on their features. This is the model's forward function. The backprop
    callback stores the gradient with respect to the scores for the next update and returns the
    docs, which have no gradient."""
    if not is_train:
        # The weights of each word are summed once and cached: see `WordSums`.
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
    """Score training docs based on the features that `find_features` returned. The backprop
    callback stores the gradient for the next update. If the weights have folds, the callback does
    nothing, and each doc is scored by weights that weren't trained on it: see
    `SparseWeights.set_folds`."""
    features, weights = linear_part(model)
    if weights.emissions_of_folds:
        # The weights were trained during initialization and are no longer updated.
        return _copy_to_device(model, weights.score_held_out(batch)), lambda gradient: None
    scores, add_gradient = trained_parts(model).begin_update(batch, features.dropout)

    def backprop(gradient: Potentials) -> None:
        add_gradient(map_scores(to_numpy, gradient))  # the weights are on the CPU

    return _copy_to_device(model, scores), backprop


def begin_rehearsal(
    model: Model[list[Doc], Potentials], docs: list[Doc]
) -> tuple[Potentials, Callable[[Potentials], None]]:
    """Score docs in rehearsal, with the same scores as in prediction: without dropout, and even for
    training docs, with all of the label memory and with weights that were trained on all docs. The
    backprop callback stores the gradient for the next update, unless the weights have folds: see
    `score_features`."""
    features = find_features(model, docs)
    _, weights = linear_part(model)
    if weights.emissions_of_folds:
        # The weights were trained during initialization and are no longer updated.
        return _copy_to_device(model, weights.potentials(features)), lambda gradient: None
    scores, add_gradient = trained_parts(model).begin_rehearsal(features)

    def backprop(gradient: Potentials) -> None:
        add_gradient(map_scores(to_numpy, gradient))  # the weights are on the CPU

    return _copy_to_device(model, scores), backprop


def _copy_to_device(model: Model, scores: Potentials) -> Potentials:
    """Copy scores to the model's device. The sparse weights stay on the CPU."""
    if isinstance(model.ops, NumpyOps):
        return scores
    return map_scores(model.ops.asarray, scores)


def init(
    model: Model[list[Doc], Potentials],
    X: list[Doc] | None = None,
    Y: Potentials | None = None,
) -> None:
    """Build the feature vocabulary from the docs `X`, unless this was already done by
    `build_vocab`. If the number of tags is known, create the sparse weights, which are all 0, and
    the weights of the hidden layer, if any: see `HiddenLayer.allocate`. `Y` is not used."""
    features, weights = linear_part(model)
    if not features.has_vocab and X is not None:
        features.build_vocab(X)
    if model.has_dim("nO"):
        n_tags = model.get_dim("nO")
        weights.allocate(len(features), n_tags, features.n_vector_rows)
        layer = _find_shim(model, HiddenLayer)  # `hidden_layer_of` requires weights
        if layer is not None:
            layer.allocate(features.n_hidden_rows, n_tags)


def build_vocab(
    model: Model[list[Doc], Potentials], docs: Iterable[Doc], vocab: Vocab | None = None
) -> None:
    """Build the feature vocabulary from docs with entity annotations. `vocab` contains the static
    vectors. If it's None, they are in the vocab of the docs."""
    features, _ = linear_part(model)
    features.build_vocab(docs, vocab)


def find_features(
    model: Model[list[Doc], Potentials],
    docs: Sequence[Doc],
    *,
    is_train: bool = False,
    by_word: bool = False,
) -> FeatureBatch:
    """Extract the features of the tokens in docs. If the model has a first pass, this includes
    features based on the labels it predicts.

    docs (Sequence[Doc]): The docs, with all attributes that the template uses.
    is_train (bool): Whether the model is being trained on the labels of these docs. If so, label
        memory (see `features.memory`) ignores the labels counted in these docs.
    by_word (bool): Whether the batch should contain word ids instead of the weight rows that depend
        only on the word.
    RETURNS (FeatureBatch): The features of all tokens in the docs.
    """
    features, _ = linear_part(model)
    batch = features.find(docs, is_train=is_train, by_word=by_word)
    first_pass = first_pass_of(model)
    # The first pass can't predict before it's trained. If no words are repeated within a doc, no
    # tokens have label features.
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
    model.set_dim("nO", nO, force=True)  # replace the previous value, if any
    return model
