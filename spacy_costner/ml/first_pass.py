"""The first of two passes of a linear CRF. It predicts labels that are used as features in the
second pass: see `features.document`.

In shapes, B is the number of docs, N the number of tokens, L the number of labels, K the number of
tags, V the number of features, and M the number of weight rows for static vectors (see `weights`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple

import numpy
import srsly
from spacy.tokens import Doc
from thinc.api import Optimizer
from thinc.shims import Shim
from thinc.types import Floats2d, Ints1d

from .. import chain
from ..annotation.borders import Boundaries, cut, find_borders
from ..annotation.doc_attributes import doc_lengths
from ..features import FeatureBatch, Features
from ..sparse import AdaGrad
from ..tags import Tags
from .weights import SparseWeights, TableSize

ReadLabels = Callable[[Sequence[Doc]], Floats2d]
"""Function that returns the probability of O and of each label for each token in docs.
Shape: (N, L + 1)"""


class FirstPassFold(NamedTuple):
    """What predicts the labels of the training docs in a fold. It was trained on the other folds.

    features (Features): The features. Their label memory has only counted the other folds.
    weights (SparseWeights): The weights of these features.
    tags (Tags): The tags of the weights.
    """

    features: Features
    weights: SparseWeights
    tags: Tags


class FirstPass(Shim):
    """The weights of the first pass. It uses the same features as the second pass, except for the
    label features.

    In training, the labels for the second pass must not be predicted by weights that were trained
    on the same docs, because these predictions would be unrealistically accurate. The training docs
    are therefore divided into folds. The weights and the label memory (how often words had each
    label) of each fold are computed from the docs of the other folds (see `set_folds`). Folds
    aren't saved.

    If a label is added to the component later, the first pass doesn't change. It's only trained
    during initialization and can't learn the new label.

    settings (AdaGrad): The learning rate and regularisation.
    average_power (float): The exponent p of weight averaging: see `SparseWeights`.
    keep_all (bool): Whether to keep all weights after training. Otherwise, small weights are set to
        0 and the others are rounded.
    n_epochs (int): The number of training epochs.
    read_labels (ReadLabels | None): Optional function to read the labels for the second pass from
        docs. If set, the first pass is neither trained nor used for predictions. The function isn't
        saved.
    boundaries (Boundaries): Where to split docs into sequences. Set by the component.
    tags (Tags): The tags of the chain. Only contains O before training.
    weights (SparseWeights): The weights for new docs, trained on all training docs.
    """

    def __init__(
        self, settings: AdaGrad, average_power: float, n_epochs: int, keep_all: bool = False
    ) -> None:
        super().__init__(None)  # unlike most shims, this one doesn't wrap another model
        self.settings = settings
        self.average_power = average_power
        self.n_epochs = n_epochs
        self.tags = Tags(())
        self.weights = SparseWeights(settings, average_power, keep_all)
        self.read_labels: ReadLabels | None = None
        self.boundaries: Boundaries = False  # docs aren't split
        # Only set in training: see `set_folds`.
        self._folds: list[FirstPassFold] = []
        self._fold_of_text: dict[int, int] = {}

    def set_folds(
        self, folds: Sequence[tuple[Features, Floats2d]], fold_of_text: dict[int, int]
    ) -> None:
        """Set the weights that predict the labels of training docs. The weights of each fold were
        trained on the other folds. Unlike in `SparseWeights.set_folds`, each fold has separate
        transitions and features.

        folds (Sequence[tuple[Features, Floats2d]]): The features and the weight table of each fold.
            The last K + 2 rows contain the transitions, start and end. Shape: (V + M + K + 2, K)
        fold_of_text (dict[int, int]): The fold of each doc, keyed by the hash of its text.
        """
        self._folds = []
        self._fold_of_text = fold_of_text
        for features, rows in folds:
            self._folds.append(FirstPassFold(features, self.weights.with_rows(rows), self.tags))

    @contextmanager
    def keep_folds(self) -> Iterator[None]:
        """Keep the folds when the model is loaded within this context. Otherwise, `from_bytes`
        removes them. The folds are not affected by the loaded model: they keep the features and
        tags that they were trained with, because its weight rows may belong to other features."""
        # Loading modifies the features of the model, which the folds may share. Folds that share
        # their features also share the copy.
        copied_features = deepcopy([fold.features for fold in self._folds])
        folds: list[FirstPassFold] = []
        for fold, features in zip(self._folds, copied_features):
            folds.append(fold._replace(features=features))
        fold_of_text = self._fold_of_text
        yield
        self._folds = folds
        self._fold_of_text = fold_of_text

    @property
    def can_predict(self) -> bool:
        """Whether the first pass can predict labels. False before it's trained."""
        return self.read_labels is not None or self.weights.is_allocated

    def predict(self, batch: FeatureBatch, docs: Sequence[Doc] = ()) -> Floats2d:
        """Predict the probability of O and of each label for each token. In training, the labels of
        each doc are predicted by weights that weren't trained on it.

        batch (FeatureBatch): The features of the docs. In training, they have to include
            `text_ids`.
        docs (Sequence[Doc]): The docs. (Required. The default value only exists because Thinc
            declares `Shim.predict` with a single argument.)
        RETURNS (Floats2d): The probabilities, with O first. Shape: (N, L + 1)
        """
        if self.read_labels is not None:
            return self.read_labels(docs)
        if batch.text_ids is None or not self._folds:  # not in training, or no folds
            return self._predict(self.weights, self.tags, batch, docs)

        n_labels = len(self.tags.labels)
        probabilities = numpy.empty((len(batch.rows), n_labels + 1), dtype="float32")
        # The fold of each doc (-1 if none) and of each token. Shapes: (B,), (N,)
        fold_of_doc = [self._fold_of_text.get(text_id, -1) for text_id in batch.text_ids.tolist()]
        fold_of_token = numpy.repeat(fold_of_doc, batch.lengths)
        for fold in sorted(set(fold_of_doc)):
            docs_of_fold: list[Doc] = []
            for i, doc in enumerate(docs):
                if fold_of_doc[i] == fold:
                    docs_of_fold.append(doc)
            is_in_fold = fold_of_token == fold
            if fold == -1:
                # These docs aren't in any fold, so the final weights weren't trained on them
                # either.
                weights, tags = self.weights, self.tags
                batch_of_fold = batch.select_tokens(is_in_fold)
            else:
                # Each fold has a different label memory, so extract the features again. The fold's
                # memory hasn't counted these docs, so they're treated like new docs.
                features, weights, tags = self._folds[fold]
                batch_of_fold = features.find(docs_of_fold)
            of_fold = self._predict(weights, tags, batch_of_fold, docs_of_fold)
            probabilities[is_in_fold] = select_labels(of_fold, tags.labels, self.tags.labels)
        return probabilities

    def _predict(
        self, weights: SparseWeights, tags: Tags, batch: FeatureBatch, docs: Sequence[Doc]
    ) -> Floats2d:
        """Predict the probability of O and of each label for each token with the given weights. The
        probability of a label is the sum of the probabilities of its tags. Shape: (N, L + 1)"""
        # Split the docs into sequences for the chain. (`batch` may still contain the lengths of all
        # docs: see `FeatureBatch.select_tokens`.)
        lengths, _ = cut(doc_lengths(docs), find_borders(docs, self.boundaries))
        potentials = weights.potentials(batch)._replace(lengths=lengths)
        marginals = chain.marginals(chain.constrain(potentials, tags.constraints))
        return marginals @ tags.has_label

    def finish_update(self, optimizer: Optimizer) -> None:
        """Do nothing, because the first pass is trained before the second pass."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing, because the weights stay on the CPU."""

    def select(self, rows: Ints1d) -> "FirstPass":
        """Create a first pass with only some of the features, for saving. `rows` contains the
        indices of the V' features to keep. Shape: (V',)"""
        first_pass = FirstPass(
            self.settings, self.average_power, self.n_epochs, self.weights.keep_all
        )
        first_pass.tags = self.tags
        first_pass.weights = self.weights.select(rows)
        return first_pass

    def to_bytes(self) -> bytes:
        """Serialize the weights and tags to a bytestring."""
        tags = [[*self.tags.labels], self.tags.scheme.name, self.tags.outside]
        return srsly.msgpack_dumps({"tags": tags, "weights": self.weights.to_bytes()})

    def from_bytes(self, data: bytes, expected: TableSize | None = None) -> "FirstPass":
        """Load the weights and tags from a bytestring.

        data (bytes): The bytestring returned by `to_bytes`.
        expected (TableSize | None): The size of the weights of the second pass, which has the same
            features but may have additional tags. None: any size.
        RETURNS (FirstPass): The modified object.
        RAISES (ValueError): If the data is damaged or the weights have a different size.
        """
        try:
            saved: Any = srsly.msgpack_loads(data)
            self.tags = Tags(*saved["tags"])
            weights = saved["weights"]
        except Exception as error:
            raise ValueError(
                f"first pass of a linear CRF: expected saved weights, got damaged data: {error}"
            ) from error
        if expected is not None:
            expected = expected._replace(n_tags=len(self.tags))
        self.weights.from_bytes(weights, expected)
        self.set_folds(folds=[], fold_of_text={})
        return self

    def __deepcopy__(self, memo: Any) -> "FirstPass":
        """Copy the saved data and the boundaries, but not the folds and `read_labels`."""
        copied = FirstPass(self.settings, self.average_power, self.n_epochs, self.weights.keep_all)
        copied.boundaries = self.boundaries
        copied.tags = self.tags
        copied.weights = self.weights.with_rows(self.weights.rows)
        return copied


def select_labels(
    probabilities: Floats2d, labels: Sequence[str], selected: Sequence[str]
) -> Floats2d:
    """Select the probabilities of O and of some labels. The probabilities of all other labels are
    added to the probability of O. Shapes: (N, labels + 1) to (N, selected + 1)"""
    if tuple(labels) == tuple(selected):
        return probabilities
    columns = [labels.index(label) + 1 for label in selected]  # O comes first
    of_selected = probabilities[:, columns]
    of_others = numpy.delete(probabilities, columns, axis=1).sum(axis=1, keepdims=True)
    return numpy.hstack([of_others, of_selected])
