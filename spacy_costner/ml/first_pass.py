"""The first of two passes of a linear CRF: it predicts the labels that the second sees.

The second pass has features of these labels: see `features.document`. L is the number of labels.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import srsly
from spacy.tokens import Doc
from thinc.api import Optimizer
from thinc.shims import Shim
from thinc.types import Floats2d, Ints1d

from .. import chain
from ..borders import Boundaries, cut, find_borders
from ..doc_attributes import doc_lengths
from ..features import FeatureBatch, Features
from ..sparse import AdaGrad
from ..tags import Tags
from .weights import SparseWeights

ReadLabels = Callable[[Sequence[Doc]], Floats2d]
"""Takes docs to the probability of O and of each label at each token. Shape: (N, L + 1)"""


class FirstPass(Shim):
    """The weights of the first pass. It has the features of the second, but for the labels.

    The labels of the docs that the second pass is trained on come from models that were not trained
    on them: the training docs are divided into folds, and there is a model for each fold that was
    trained on the others, with label memory of the others. These models are there in training only.
    They are not saved. A label that is added to the component is not added here, where nothing
    would learn it.

    settings (AdaGrad), average_power (float), keep_all (bool): See `SparseWeights`.
    n_epochs (int): How often its training uses the examples.
    read_labels (ReadLabels | None): If set, it reads the labels that the second pass sees from
        the docs, and no model is trained or asked. It is not saved.
    boundaries (Boundaries): What the chain of a doc is cut at. The component sets it.
    """

    def __init__(
        self, settings: AdaGrad, average_power: float, n_epochs: int, keep_all: bool = False
    ) -> None:
        super().__init__(None)
        self.settings = settings
        self.average_power = average_power
        self.n_epochs = n_epochs
        self.tags = Tags(())
        self.weights = SparseWeights(settings, average_power, keep_all)
        self.read_labels: ReadLabels | None = None
        self.boundaries: Boundaries = False
        # In training: the features and weights for the docs of each fold, and the fold of each doc,
        # by the hash of its text. See `set_folds`.
        self._folds: list[tuple[Features, SparseWeights]] = []
        self._fold_of_text: dict[int, int] = {}

    def set_folds(
        self, folds: Sequence[tuple[Features, Floats2d]], fold_of_text: dict[int, int]
    ) -> None:
        """Set the weights that are used in training: see `SparseWeights.set_folds`. Here each fold
        has its transitions and its features, too.

        folds: The features of each fold, and the rows of weights. Shape of the rows, with V
            features, M inputs of static vectors and K tags: (V + M + K + 2, K)
        fold_of_text: See `SparseWeights.set_folds`.
        """
        self._folds = []
        self._fold_of_text = fold_of_text
        for features, rows in folds:
            self._folds.append((features, self.weights.with_rows(rows)))

    @property
    def can_predict(self) -> bool:
        """Whether it has labels to predict: not before it is trained."""
        return self.read_labels is not None or self.weights.is_allocated

    def predict(self, batch: FeatureBatch, docs: Sequence[Doc] = ()) -> Floats2d:
        """The probability of O and of each label at each token, (N, L + 1), from the features of
        docs. If there are hashes of texts, each training doc is predicted by a model that was not
        trained on it."""
        if self.read_labels is not None:
            return self.read_labels(docs)
        if batch.text_ids is None or not self._folds:
            return self._predict(self.weights, batch, docs)

        n_labels = len(self.tags.labels)
        probabilities = numpy.empty((len(batch.rows), n_labels + 1), dtype="float32")
        fold_of_doc = [self._fold_of_text.get(text_id, -1) for text_id in batch.text_ids.tolist()]
        for fold in sorted(set(fold_of_doc)):
            docs_of_fold: list[Doc] = []
            for doc, its_fold in zip(docs, fold_of_doc):
                if its_fold == fold:
                    docs_of_fold.append(doc)
            # True for the tokens of these docs. Shape: (N,)
            is_in_fold = numpy.repeat(numpy.asarray(fold_of_doc) == fold, batch.lengths)
            if fold < 0:  # docs that no fold was trained on, either
                weights = self.weights
                batch_of_fold = batch.select_tokens(is_in_fold)
            else:
                features, weights = self._folds[fold]
                batch_of_fold = features.find(docs_of_fold)
            probabilities[is_in_fold] = self._predict(weights, batch_of_fold, docs_of_fold)
        return probabilities

    def _predict(
        self, weights: SparseWeights, batch: FeatureBatch, docs: Sequence[Doc]
    ) -> Floats2d:
        """The probability of O and of each label at each token, with some weights: the sum over the
        tags that have it. Shape: (N, L + 1)"""
        lengths, _ = cut(doc_lengths(docs), find_borders(docs, self.boundaries))
        potentials = weights.potentials(batch)._replace(lengths=lengths)
        marginals = chain.marginals(chain.constrain(potentials, self.tags.constraints))
        return marginals @ self.tags.has_label

    def finish_update(self, optimizer: Optimizer) -> None:
        """Do nothing: it is trained before the second pass."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: the weights stay on the CPU."""

    def select(self, rows: Ints1d) -> "FirstPass":
        """The first pass with the weights of some features only, for saving. Shape: (V',)"""
        first_pass = FirstPass(
            self.settings, self.average_power, self.n_epochs, self.weights.keep_all
        )
        first_pass.tags = self.tags
        first_pass.weights = self.weights.select(rows)
        return first_pass

    def to_bytes(self) -> bytes:
        """Save the weights and their tags."""
        tags = [[*self.tags.labels], self.tags.scheme.name, self.tags.outside]
        return srsly.msgpack_dumps({"tags": tags, "weights": self.weights.to_bytes()})

    def from_bytes(self, data: bytes) -> "FirstPass":
        """Load the weights. Raises a ValueError if they are damaged."""
        try:
            saved: Any = srsly.msgpack_loads(data)
            self.tags = Tags(*saved["tags"])
            weights = saved["weights"]
        except Exception as error:
            raise ValueError(
                f"first pass of a linear CRF: expected saved weights, got damaged data: {error}"
            ) from error
        self.weights.from_bytes(weights)
        self.set_folds([], {})
        return self

    def __deepcopy__(self, memo: Any) -> "FirstPass":
        copied = FirstPass(self.settings, self.average_power, self.n_epochs, self.weights.keep_all)
        copied.boundaries = self.boundaries
        return copied.from_bytes(self.to_bytes())
