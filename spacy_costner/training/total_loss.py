"""The loss over all examples with a penalty, as a function of one vector."""

from typing import Iterator, Sequence, Tuple

from spacy.training import Example
from thinc.types import Floats1d

from ..pipeline.component import CostSensitiveNER
from ..types import Potentials, Progress
from .examples import AllExamples, Batch


class TotalLoss(AllExamples):
    """The loss over all examples with a penalty, as a function of one vector.

        f(w) = sum over the examples of the loss + c2 |w|^2

    The penalty is that of CRFsuite.
    """

    def __init__(self, ner: CostSensitiveNER, examples: Sequence[Example], *, c2: float) -> None:
        """Read the examples.

        ner (CostSensitiveNER): An initialized component with a linear model.
        examples (Sequence[Example]): All examples.
        c2 (float): Weight of the penalty.
        """
        is_ratio = ner.objective.loss.at(Progress()).is_ratio
        super().__init__(ner, examples, batch_size=len(examples) if is_ratio else 0)
        self.c2 = c2

    def __call__(self, vector: Floats1d) -> Tuple[float, Floats1d]:
        """Compute the function and its gradient.

        vector (Floats1d): Shape: (D,)
        RETURNS (Tuple[float, Floats1d]): Both in float64. Shape: (), (D,)
        """
        self.ner.objective.loss.at(Progress()).forget()
        value = self.c2 * float(vector @ vector)

        def gradients() -> Iterator[Tuple[Batch, Potentials]]:
            nonlocal value
            for batch, scores in self.score(vector):
                result, _ = self.ner.objective.evaluate(
                    batch.targets, scores, self.ner.tags, Progress()
                )
                value += result.value
                yield batch, result.gradient

        gradient = self.sum_gradients(gradients()) + 2 * self.c2 * vector
        return value, gradient
