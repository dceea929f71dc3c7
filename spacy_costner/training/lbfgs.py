"""The minimum of a smooth function, by L-BFGS."""

from typing import Any, Callable, Optional, Tuple

import numpy
from thinc.types import Floats1d

from ..validation import require
from .convergence import Convergence, Minimum
from .online import OnStep, ignore

MEMORIES = 6
"""Earlier steps that L-BFGS remembers; CRFsuite's default, too."""


def minimise(
    function: Callable[[Floats1d], Tuple[float, Floats1d]],
    start: Floats1d,
    *,
    max_iter: Optional[int] = None,
    tolerance: float = 1e-5,
    on_step: OnStep = ignore,
) -> Minimum:
    """Minimise a function by L-BFGS, until it converges or is stopped.

    function (Callable): Takes a vector to value and gradient.
    start (Floats1d): Where to start. Shape: (D,)
    max_iter (Optional[int]): The maximum number of iterations.
    tolerance (float): It ends when the last ten iterations made the value smaller by less
        than this share of it; CRFsuite's `delta`.
    on_step (Callable): Called after each iteration. After a KeyboardInterrupt the best vector so
        far is returned.
    RETURNS (Minimum): The result.
    RAISES (ImportError): If SciPy is missing.

    Liu & Nocedal (1989).
    """
    solve = scipy_minimize()
    descent = Convergence(tolerance, on_step, max_iter)
    best, n_evaluations, slope, at_start = start, 0, 0.0, float("nan")

    def evaluate(vector: Floats1d) -> Tuple[float, Floats1d]:
        nonlocal n_evaluations, slope, at_start
        value, gradient = function(vector)
        at_start = at_start if n_evaluations else value
        n_evaluations += 1
        slope = float(numpy.abs(gradient).max(initial=0))
        return value, gradient

    def after_iteration(intermediate_result: Any) -> None:
        nonlocal best
        best = intermediate_result.x.copy()
        descent.add(float(intermediate_result.fun), slope)
        if descent.has_settled:
            raise StopIteration

    reason, options = "interrupted", {"maxcor": MEMORIES, "ftol": 0.0, "maxfun": 10**9}
    options["maxiter"] = 10**9 if max_iter is None else max_iter
    try:
        result = solve(
            evaluate, start, jac=True, method="L-BFGS-B", callback=after_iteration, options=options
        )
        reason = _reason(len(descent), max_iter, str(result.message))
    except KeyboardInterrupt:
        pass
    descent.bar.close()
    value = descent.value if len(descent) else at_start
    return Minimum(best, value, len(descent), n_evaluations, reason)


def scipy_minimize() -> Callable[..., Any]:
    """SciPy's `minimize`.

    RAISES (ImportError): If SciPy is missing.
    """
    optimize = require("scipy.optimize", "fit", "fit: expected SciPy, it is not installed")
    return optimize.minimize


def _reason(n_iterations: int, max_iter: Optional[int], message: str) -> str:
    if max_iter is not None and n_iterations >= max_iter:
        return "iterations used up"
    if "ABNORMAL" in message:
        return "converged as far as the scores are exact"
    return "converged" if "StopIteration" in message or "CONVERGENCE" in message else message
