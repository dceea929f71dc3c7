"""Linear equations, solved by conjugate gradients."""

from typing import Callable, Optional

import numpy
from thinc.types import Floats1d

from .convergence import Convergence, Minimum
from .online import OnStep, ignore


def solve(
    multiply: Callable[[Floats1d], Floats1d],
    right: Floats1d,
    *,
    max_iter: Optional[int] = None,
    tolerance: float = 1e-5,
    precision: Optional[float] = None,
    on_step: OnStep = ignore,
) -> Minimum:
    """Solve A x = b by conjugate gradient, starting from 0. What is minimised by it is

        x'A x / 2 - b'x

    multiply (Callable): Takes a vector to A times it; A is symmetric and has no negative
        eigenvalue. Where it is singular, what is found is the shortest solution.
    right (Floats1d): b. Shape: (D,)
    max_iter (Optional[int]), tolerance (float), on_step (Callable): See `lbfgs.minimise`. The
        slope is the largest residual.
    precision (Optional[float]): The relative error of A x and b; None: that of b's numbers. It
        ends where the residual is as small beside b, as what is left then is but error: steps
        along it would lead away from the shortest solution.
    RETURNS (Minimum): What it came to, in float64.

    Hestenes & Stiefel (1952).
    """
    descent, reason = Convergence(tolerance, on_step, max_iter), "converged"
    noise = 4 * (numpy.finfo(right.dtype).eps if precision is None else precision)
    residual = direction = right = right.astype("float64")
    best, value = numpy.zeros_like(right), 0.0
    try:
        while residual.any() and not descent.has_settled:
            if len(descent) == max_iter:
                reason = "iterations used up"
                break
            product = multiply(direction)
            curvature, length = float(direction @ product), float(residual @ residual)
            if not (curvature > 0 and length > noise**2 * float(right @ right)):
                reason = "converged as far as the scores are exact"
                break
            best = best + length / curvature * direction
            residual = residual - length / curvature * product
            direction = residual + float(residual @ residual) / length * direction
            value = -0.5 * float(best @ (right + residual))
            descent.add(value, float(numpy.abs(residual).max(initial=0)))
    except KeyboardInterrupt:
        reason = "interrupted"
    descent.bar.close()
    return Minimum(best, value, len(descent), len(descent), reason)
