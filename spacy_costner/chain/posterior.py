"""The distribution of paths and what can be asked of it, by compiled or by array code."""

from typing import Callable, Sequence, Tuple, Union, cast

import numpy
from thinc.types import Array1d, Floats1d
from thinc.util import get_array_module

from ..types import Potentials, Scored, add_to, map_scores
from . import batched
from .batched import Segments
from .batched.log_domain import zero_if_infinite
from .batched.packing import add_selected, select
from .batched.posterior import OfEach, WayBack
from .batched.segments import select_segments
from .compiled import asked_of, is_used_for, native
from .constraints import Allowed
from .validation import check_derivatives, check_potentials


def posterior(potentials: Potentials) -> "Posterior":
    """Run the messages of both sides, once for all that is to be asked.

    potentials (Potentials): The scores of a batch.
    RETURNS (Posterior): p(y) = exp(s(y)) / Z over the paths of each sequence. Its methods are
        the functions of this module that have their name, and `log_partition`.
    """
    if is_used_for(potentials):
        return CompiledPosterior(potentials)
    return batched.Posterior(potentials)


class CompiledPosterior:
    """`batched.Posterior` by compiled code, and by array code for the sequences that scaled
    messages lose."""

    def __init__(self, potentials: Potentials) -> None:
        self.potentials = potentials
        self.compiled = native.Posterior(potentials)

    def backprop(self, *ways_back: WayBack) -> Potentials:
        if all(isinstance(backprop, native.Answer) for backprop, _ in ways_back):
            return self.compiled.backprop(cast(Sequence[Tuple[native.Answer, Floats1d]], ways_back))
        return add_to(*(backprop(d_values) for backprop, d_values in ways_back))

    def log_partition(self) -> Scored:
        return self._rescue(
            self.compiled.log_partition(), self._sequences, lambda rest, _: rest.log_partition()
        )

    def log_marginals(self, allowed: Allowed) -> OfEach:
        return self._rescue(
            self.compiled.log_marginals(allowed),
            self._tokens,
            lambda rest, tokens: rest.log_marginals(allowed[tokens]),
        )

    def expectation(self, values: Potentials) -> Scored:
        return self._rescue(
            self.compiled.expectation(values),
            self._sequences,
            lambda rest, tokens: rest.expectation(
                values._replace(emissions=values.emissions[tokens], lengths=rest.potentials.lengths)
            ),
        )

    def log_partition_outside(self, allowed: Allowed) -> Scored:
        return self._rescue(
            self.compiled.log_partition_outside(allowed),
            self._sequences,
            lambda rest, tokens: rest.log_partition_outside(allowed[tokens]),
        )

    def segment_log_probs(self, segments: Segments) -> OfEach:
        return self._rescue(
            self.compiled.segment_log_probs(segments),
            lambda lost: self._tokens(lost)[segments.begin],
            lambda rest, tokens: rest.segment_log_probs(select_segments(segments, tokens)),
        )

    def _rescue(
        self,
        answer: Tuple[Floats1d, "native.Answer"],
        answers_of: Callable[[Array1d], Array1d],
        ask: Callable[[batched.Posterior, Array1d], OfEach],
    ) -> OfEach:
        """Have array code answer for the sequences that are lost.

        answer (Tuple): What compiled code says.
        answers_of (Callable): Takes which sequences are lost to which answers are theirs.
        ask (Callable): Asks the same of some sequences, given which tokens are theirs.
        """
        values, backprop = answer
        lost = backprop.lost
        if lost is None:
            return answer
        taken, tokens = select(self.potentials, lost)
        which = answers_of(lost)
        values[which], backprop_rest = ask(batched.Posterior(taken), tokens)

        def backprop_all(d_values: Floats1d) -> Potentials:
            d_values = numpy.asarray(d_values)
            return add_selected(backprop(d_values), backprop_rest(d_values[which]), tokens)

        return values, backprop_all

    def _sequences(self, lost: Array1d) -> Array1d:
        return lost

    def _tokens(self, lost: Array1d) -> Array1d:
        return numpy.repeat(lost, self.potentials.lengths)


Posterior = Union[CompiledPosterior, batched.Posterior]


expectation = asked_of(posterior, batched.expectation)
log_marginals = asked_of(posterior, batched.log_marginals)
log_partition_outside = asked_of(posterior, batched.log_partition_outside)
segment_log_probs = asked_of(posterior, batched.segment_log_probs)


def marginals_jvp(potentials: Potentials, direction: Potentials) -> Potentials:
    """The derivative of all marginals as the potentials move in a direction.

        H v = Cov_p[f] v,  H the Hessian of log Z, f(y) how often y takes each step

    potentials (Potentials): The scores of a batch.
    direction (Potentials): How much each score moves; minus infinity counts as 0.
    RETURNS (Potentials): How much the expected number of times that each step is taken
        changes, summed over the batch where the step is one of all sequences.
    """
    xp = get_array_module(potentials.emissions)
    return expectation(potentials, direction)[1](xp.ones(len(potentials.lengths)))


def entropy(potentials: Potentials) -> Scored:
    """How uncertain the path is.

        -E_p[log p(y)] = log Z - E_p[s(y)]

    potentials (Potentials): The scores of a batch.
    RETURNS (Scored): The entropies in nats, 0 for a sequence without a legal path; and the
        callback to their gradient, which is the covariance of the features times the
        potentials, negative. Shape: (B,)
    """
    check_potentials(potentials)
    dtype = potentials.emissions.dtype
    exact = map_scores(lambda scores: scores.astype("float64"), potentials)
    paths = posterior(exact)
    log_z, (mean_score, backprop_mean) = paths.log_partition()[0], paths.expectation(exact)

    def backprop(d_entropy: Floats1d) -> Potentials:
        check_derivatives(d_entropy, log_z.shape)
        return map_scores(lambda scores: scores.astype(dtype), backprop_mean(-d_entropy))

    return zero_if_infinite(log_z) - mean_score, backprop
