"""Losses that make gold probable."""

from ..chain import log_partition
from ..types import Gold, Loss, LossResult, Potentials
from .scored import difference, gold_score


def make_sequential() -> Loss:
    """Build the conditional likelihood of whole paths: see `sequential`."""
    return Loss(sequential)


def sequential(potentials: Potentials, gold: Gold) -> LossResult:
    """The negative log-likelihood of the gold path, the usual loss of a CRF.

        loss = log Z - s(y*)

    With partial annotation s(y*) is the log-sum over the paths that agree with it.

    potentials (Potentials): The scores of a batch.
    gold (Gold): Gold tags.
    RETURNS (LossResult): The sum over the sequences, in nats, and its gradient.

    Lafferty, McCallum & Pereira (2001); eq 3 of Gimpel & Smith (2010), eq 2.1 of Tsuboi
    & Kashima.
    """
    return difference(log_partition(potentials), gold_score(potentials, gold))
