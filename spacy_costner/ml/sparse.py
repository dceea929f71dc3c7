"""A CRF on sparse features: the linear model."""

from typing import Callable, Iterable, List, Optional, Sequence, Tuple, cast

import numpy
from spacy.tokens import Doc
from thinc.api import Model, to_numpy
from thinc.types import Floats2d, Ints2d

from ..features import FeatureBatch, Features, Template, TokenValues
from ..sparse import AdaGrad, sum_rows
from ..types import Potentials, map_scores
from ..validation import check_cost, number
from .first_pass import FirstPass, divide
from .weights import AVERAGE_POWER, SparseWeights


def build_sparse_crf(
    features: Template,
    learn_rate: float = 0.05,
    L1: float = 0.0,
    L2: float = 0.0,
    dropout: float = 0.0,
    eps: float = 1e-8,
    average_power: float = AVERAGE_POWER,
    first_pass_epochs: int = 6,
    nO: Optional[int] = None,
) -> Model[List[Doc], Potentials]:
    """Build a linear-chain CRF on sparse features.

    features (Template): The template of features.
    learn_rate (float): Of AdaGrad, which trains this model, whatever the optimizer of the config
        is.
    L1 (float): Weight of the sum of the absolute weights, for each update.
    L2 (float): Weight of half the sum of the squared weights, for each update.
    dropout (float): The share of features that tokens lose in training.
    eps (float): How large the sum of gradients has to be before updates have full size. Near 0
        even a small first gradient gives a full update.
    average_power (float): p: where averages are used, the weights after step t count t^p. 0: all
        steps count the same.
    first_pass_epochs (int): How often the first pass uses the examples, at initialization, if the
        features have `document`.
    nO (Optional[int]): K, the number of tags. The component sets it from its labels.
    RETURNS (Model[List[Doc], Potentials]): The model. Its shims are `Features`,
        `SparseWeights` and, if there is one, `FirstPass`. Its attribute "build_vocab" takes
        it and docs, and builds the vocabulary from them; "find_features" takes the same and
        returns their features; "resize_output" takes it and a larger K.
    RAISES (ValueError): If a number is out of its range.
    """
    where = "spacy_costner.SparseCRF"
    if not 0 <= number(dropout) < 1:
        raise ValueError(f"{where}: dropout: expected at least 0 and less than 1, got {dropout}")
    if not number(learn_rate) > 0:
        raise ValueError(f"{where}: learn_rate: expected more than 0, got {learn_rate}")
    if not number(eps) > 0:
        raise ValueError(f"{where}: eps: expected more than 0, got {eps}")
    check_cost(average_power, f"{where}: average_power")
    if not number(first_pass_epochs) >= 1:
        raise ValueError(
            f"{where}: first_pass_epochs: expected at least 1, got {first_pass_epochs}"
        )
    settings = AdaGrad(
        learn_rate, check_cost(L1, f"{where}: L1"), check_cost(L2, f"{where}: L2"), eps
    )
    first_pass = FirstPass(settings, average_power, first_pass_epochs)
    model: Model[List[Doc], Potentials] = Model(
        "sparse_crf",
        forward,
        init=init,
        dims={"nO": nO},
        shims=[
            Features(features, dropout),
            SparseWeights(settings, average_power),
            *([first_pass] if features.document else []),
        ],
        attrs={
            "build_vocab": build_vocab,
            "find_features": find_features,
            "resize_output": resize_sparse_crf,
        },
    )
    return model


def linear_part(model: Model) -> Tuple[Features, SparseWeights]:
    """The features and the weights of a linear CRF, or of the linear part of a hybrid.

    model (Model): The model.
    RETURNS (Tuple[Features, SparseWeights]): The features and the weights.
    RAISES (ValueError): If it has no such part.
    """
    for node in model.walk():
        if len(node.shims) >= 2 and isinstance(node.shims[1], SparseWeights):
            return cast(Features, node.shims[0]), node.shims[1]
    raise ValueError(f"expected a model with sparse features, got {model.name}")


def first_pass_of(model: Model) -> Optional[FirstPass]:
    """The first pass of a model with a linear part, if it has one.

    model (Model): Any model.
    RETURNS (Optional[FirstPass]): The first pass.
    """
    shims = [shim for node in model.walk() for shim in node.shims]
    return next((shim for shim in shims if isinstance(shim, FirstPass)), None)


def forward(
    model: Model[List[Doc], Potentials], docs: List[Doc], is_train: bool
) -> Tuple[Potentials, Callable[[Potentials], List[Doc]]]:
    seen = find_features(model, docs, is_train=is_train)
    potentials, add_gradient = score_seen(model, seen, is_train)

    def backprop(gradient: Potentials) -> List[Doc]:
        add_gradient(gradient)
        return docs

    return potentials, backprop


def score_seen(
    model: Model[List[Doc], Potentials], seen: FeatureBatch, is_train: bool
) -> Tuple[Potentials, Callable[[Potentials], None]]:
    """Score tokens from their features.

    model (Model[List[Doc], Potentials]): A linear CRF.
    seen (FeatureBatch): The features of the tokens.
    is_train (bool): Whether features are dropped and, if the weights have folds, docs are scored
        with those of their folds, which have no gradient.
    RETURNS (Tuple[Potentials, Callable[[Potentials], None]]): The scores, and the callback that
        keeps their gradient for the next update.
    """
    features, weights = linear_part(model)
    if is_train and weights.folds:
        fixed = weights.potentials(seen.rows[:0], seen.lengths)
        fixed = fixed._replace(emissions=_score_in_folds(weights, seen))
        return map_scores(model.ops.asarray, fixed), lambda gradient: None
    rows, scale = seen.rows, 1.0
    if is_train and features.dropout:
        rows, scale = _drop(rows, features.dropout)
    potentials = weights.potentials(rows, seen.lengths)
    potentials = potentials._replace(emissions=potentials.emissions * numpy.float32(scale))

    def add_gradient(gradient: Potentials) -> None:
        on_host = map_scores(to_numpy, gradient)
        emissions = on_host.emissions * numpy.float32(scale)
        weights.add_gradient(rows, on_host._replace(emissions=emissions))

    return map_scores(model.ops.asarray, potentials), add_gradient


def _score_in_folds(weights: SparseWeights, seen: FeatureBatch) -> Floats2d:
    """Emissions of each doc from weights that were not trained on it. Shape: (N, K)"""
    emissions = numpy.empty((len(seen.rows), weights.n_tags), dtype="float32")
    for table, some, tokens in divide(seen, weights.fold_of, weights.folds, weights.emissions):
        emissions[tokens] = sum_rows(some.rows, table)
    return emissions


def _drop(rows: Ints2d, rate: float) -> Tuple[Ints2d, float]:
    """Drop some features, and return the factor of the scores that makes up for them."""
    lost = numpy.random.uniform(size=rows.shape) < rate
    return numpy.where(lost, numpy.int32(-1), rows), 1 / (1 - rate)


def init(
    model: Model[List[Doc], Potentials],
    X: Optional[List[Doc]] = None,
    Y: Optional[Potentials] = None,
) -> None:
    features, weights = linear_part(model)
    if not features.has_vocab and X is not None:
        features.build_vocab(X)
    if model.has_dim("nO"):
        weights.allocate(len(features), model.get_dim("nO"))


def build_vocab(model: Model[List[Doc], Potentials], docs: Iterable[Doc]) -> None:
    """Build the vocabulary of features of a model.

    model (Model[List[Doc], Potentials]): A model with sparse features.
    docs (Iterable[Doc]): The docs to take features from, with their entities.
    """
    linear_part(model)[0].build_vocab(docs)


def find_features(
    model: Model[List[Doc], Potentials], docs: Sequence[Doc], *, is_train: bool = False
) -> FeatureBatch:
    """Find the features of tokens, whose weights sum to their scores.

    model (Model[List[Doc], Potentials]): A model with sparse features.
    docs (Sequence[Doc]): The docs.
    is_train (bool): Whether the model learns from the labels of these docs: see `Features.find`.
    RETURNS (FeatureBatch): Their features, including those that dropout drops.
    """
    features, _ = linear_part(model)
    seen, first_pass = features.find(docs, is_train=is_train), first_pass_of(model)
    if first_pass is None or not first_pass.is_ready:
        return seen
    return features.add_labels(seen, first_pass.predict(seen, docs), first_pass.tags.labels)


def find_values(
    model: Model[List[Doc], Potentials], docs: Sequence[Doc], *, is_train: bool = False
) -> TokenValues:
    """What `Features.gather` makes features of: see `find_features` and `Features.find_values`."""
    features, _ = linear_part(model)
    values, first_pass = features.find_values(docs, is_train=is_train), first_pass_of(model)
    if first_pass is None or not first_pass.is_ready:
        return values
    seen = features.gather(values)
    labels = features.label_values(seen, first_pass.predict(seen, docs), first_pass.tags.labels)
    return values._replace(values=numpy.maximum(values.values, labels))


def resize_sparse_crf(model: Model[List[Doc], Potentials], nO: int) -> Model[List[Doc], Potentials]:
    """Add tags after the existing ones, whose scores don't change.

    model (Model[List[Doc], Potentials]): A model of `build_sparse_crf`.
    nO (int): The new K.
    RETURNS (Model[List[Doc], Potentials]): The same model.
    """
    _, weights = linear_part(model)
    if weights.is_allocated:
        weights.resize(nO)
    model.set_dim("nO", nO, force=True)
    return model
