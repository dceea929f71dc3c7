"""The first of two passes of a linear CRF. It predicts labels, and the second pass has features of
these labels: see `features.document`.

In shapes, B is the number of docs, N of tokens, L of labels, K of tags, V of features, and M of
rows of weights for static vectors (see `weights`).
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
from ..annotation.borders import Boundaries, cut, find_borders
from ..annotation.doc_attributes import doc_lengths
from ..features import FeatureBatch, Features
from ..sparse import AdaGrad
from ..tags import Tags
from .weights import SparseWeights, TableSize

ReadLabels = Callable[[Sequence[Doc]], Floats2d]
"""Takes docs to the probability of O and of each label at each token. Shape: (N, L + 1)"""


class FirstPass(Shim):
    """The weights of the first pass. It has the features of the second pass, without the features
    of labels.

    In training, the second pass must not see labels that were predicted by weights trained on the
    same docs: they would be too good. So the training docs are divided into folds. For each fold
    there are weights, and features with a label memory (how often words had each label), that were
    made of the docs of the other folds (see `set_folds`). Folds are not saved.

    If a label is added to the component later, the first pass stays as it is: it is trained only at
    initialization, so it could not learn the label.

    settings (AdaGrad): Learning rate and regularisation.
    average_power (float): How much later steps count more in the average of the weights: p in
        `SparseWeights`.
    keep_all (bool): Whether all weights are kept after training. Otherwise small ones are set to 0
        and the others rounded.
    n_epochs (int): How often its training goes through the examples.
    read_labels (ReadLabels | None): If you set this function, the labels that the second pass sees
        are read from docs by it, and the first pass is neither trained nor used. It is not saved.
    boundaries (Boundaries): Where the chain of a doc is cut. The component sets it.
    tags (Tags): The tags of its chain. Training sets them. Before that there is only O.
    weights (SparseWeights): The weights for new docs, which were trained on all training docs.
    """

    def __init__(
        self, settings: AdaGrad, average_power: float, n_epochs: int, keep_all: bool = False
    ) -> None:
        super().__init__(None)  # a Thinc shim may wrap a model, this one does not
        self.settings = settings
        self.average_power = average_power
        self.n_epochs = n_epochs
        self.tags = Tags(())
        self.weights = SparseWeights(settings, average_power, keep_all)
        self.read_labels: ReadLabels | None = None
        self.boundaries: Boundaries = False  # a doc isn't cut
        # Only in training: see `set_folds`.
        self._folds: list[tuple[Features, SparseWeights]] = []
        self._fold_of_text: dict[int, int] = {}

    def set_folds(
        self, folds: Sequence[tuple[Features, Floats2d]], fold_of_text: dict[int, int]
    ) -> None:
        """Set the weights that predict the labels of training docs: for each fold of the docs, the
        weights that were trained on the other folds. Unlike in `SparseWeights.set_folds`, each fold
        has its own transitions and its own features.

        folds (Sequence[tuple[Features, Floats2d]]): For each fold the features, and all rows of
            weights. The last K + 2 rows are transitions, start and end. Shape: (V + M + K + 2, K)
        fold_of_text (dict[int, int]): The fold of each doc, keyed by the hash of its text.
        """
        self._folds = []
        self._fold_of_text = fold_of_text
        for features, rows in folds:
            self._folds.append((features, self.weights.with_rows(rows)))

    @property
    def can_predict(self) -> bool:
        """Whether it can predict labels. It can't before it is trained."""
        return self.read_labels is not None or self.weights.is_allocated

    def predict(self, batch: FeatureBatch, docs: Sequence[Doc] = ()) -> Floats2d:
        """Predict the probability of O and of each label at each token. In training, each doc is
        predicted by weights that were not trained on it.

        batch (FeatureBatch): The features of the docs. In training it has the hashes of the texts,
            as `text_ids`.
        docs (Sequence[Doc]): The docs. (They are always given. The default is there because Thinc
            declares `Shim.predict` with a single argument.)
        RETURNS (Floats2d): The probabilities. Shape: (N, L + 1)
        """
        if self.read_labels is not None:
            return self.read_labels(docs)
        if batch.text_ids is None or not self._folds:  # outside of training, or without folds
            return self._predict(self.weights, batch, docs)

        n_labels = len(self.tags.labels)
        probabilities = numpy.empty((len(batch.rows), n_labels + 1), dtype="float32")
        # The fold of each doc, -1 for none, and the fold of each token. Shapes: (B,), (N,)
        fold_of_doc = [self._fold_of_text.get(text_id, -1) for text_id in batch.text_ids.tolist()]
        fold_of_token = numpy.repeat(fold_of_doc, batch.lengths)
        for fold in sorted(set(fold_of_doc)):
            docs_of_fold: list[Doc] = []
            for i, doc in enumerate(docs):
                if fold_of_doc[i] == fold:
                    docs_of_fold.append(doc)
            is_in_fold = fold_of_token == fold
            if fold == -1:
                # These docs were in no fold, so the weights of all docs have not seen them either.
                weights = self.weights
                batch_of_fold = batch.select_tokens(is_in_fold)
            else:
                # The label memory of the fold differs, so features are found again. It hasn't
                # counted these docs, so they are found as outside of training.
                features, weights = self._folds[fold]
                batch_of_fold = features.find(docs_of_fold)
            probabilities[is_in_fold] = self._predict(weights, batch_of_fold, docs_of_fold)
        return probabilities

    def _predict(
        self, weights: SparseWeights, batch: FeatureBatch, docs: Sequence[Doc]
    ) -> Floats2d:
        """Predict the probability of O and of each label at each token by the given weights. The
        probability of a label is the sum over its tags. Shape: (N, L + 1)"""
        # The chain takes the sequences between the borders of docs. (`batch` may have the lengths
        # of more docs: see `FeatureBatch.select_tokens`.)
        lengths, _ = cut(doc_lengths(docs), find_borders(docs, self.boundaries))
        potentials = weights.potentials(batch)._replace(lengths=lengths)
        marginals = chain.marginals(chain.constrain(potentials, self.tags.constraints))
        return marginals @ self.tags.has_label

    def finish_update(self, optimizer: Optimizer) -> None:
        """Do nothing: it is trained before the second pass."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: the weights stay on the CPU."""

    def select(self, rows: Ints1d) -> "FirstPass":
        """Make a first pass of some features only, to be saved. `rows` has the indices of the V'
        features to keep. Shape: (V',)"""
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

    def from_bytes(self, data: bytes, expected: TableSize | None = None) -> "FirstPass":
        """Load the weights and their tags.

        data (bytes): The bytes that `to_bytes` returned.
        expected (TableSize | None): The size of the weights of the second pass, whose features are
            the same; tags may have been added to it. None: any size.
        RETURNS (FirstPass): This first pass.
        RAISES (ValueError): If they are damaged, or of another size.
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
        """Copy everything that is saved, and the boundaries. Folds and `read_labels` are not
        copied."""
        copied = FirstPass(self.settings, self.average_power, self.n_epochs, self.weights.keep_all)
        copied.boundaries = self.boundaries
        copied.tags = self.tags
        copied.weights = self.weights.with_rows(self.weights.rows)
        return copied
