"""Test without labels whether docs are still like the calibration docs.

If new docs and calibration docs are exchangeable, the conformal p-values of the new ones are
independent and uniform. A martingale bets against that. It grows where the model is less sure of
new docs than of calibration docs.

Vovk, Gammerman & Shafer (2005): Algorithmic Learning in a Random World, chapter 7. Vovk et al.
(2021): Retrain or Not Retrain: Conformal Test Martingales for Change-Point Detection.
"""

import numpy
from thinc.types import Floats1d

ALARM = 100.0
"""The martingale at which the test alarms. Of exchangeable docs at most 1 / ALARM ever does, by
Ville's inequality."""

BETS = numpy.arange(1, 20) / 20
"""The exponents of the bets: see `log_martingale`."""

BLOCK = 1024
"""The number of docs that are ranked together."""


def conformal_p_values(calibration: Floats1d, scores: Floats1d, *, seed: int = 0) -> Floats1d:
    """The p-value of each new doc: its rank among the calibration docs and the new docs before it,
    of which ties count a random share u.

        p_t = (#{i: a_i > a_t} + u_t (#{i: a_i = a_t} + 1)) / (n_t + 1)

    calibration (Floats1d): The scores of the calibration docs. Shape: (n,)
    scores (Floats1d): The scores of the new docs, in their order. Shape: (T,)
    seed (int): The random seed. The first p-values are the same if more docs follow.
    RETURNS (Floats1d): The p-values, above 0 and up to 1. Shape: (T,)

    Vovk, Gammerman & Shafer (2005), eq. 2.20.
    """
    u, pool = 1 - numpy.random.default_rng(seed).random(len(scores)), numpy.sort(calibration)
    p = numpy.zeros(len(scores))
    for begin in range(0, len(scores), BLOCK):
        new = scores[begin : begin + BLOCK]
        is_earlier = numpy.tri(len(new), k=-1, dtype=bool)
        left, right = (numpy.searchsorted(pool, new, side=side) for side in ("left", "right"))
        n_above = len(pool) - right + (is_earlier & (new > new[:, None])).sum(axis=1)
        n_equal = right - left + (is_earlier & (new == new[:, None])).sum(axis=1)
        n = len(pool) + numpy.arange(len(new))
        p[begin : begin + BLOCK] = (n_above + u[begin : begin + BLOCK] * (n_equal + 1)) / (n + 1)
        pool = numpy.sort(numpy.concatenate([pool, new]), kind="stable")
    return p


def log_martingale(p_values: Floats1d) -> Floats1d:
    """The logarithm of the martingale after each doc, a mean over bets. Shape: (T,)

        M_t = mean over b in BETS of  prod_{s <= t} b p_s^(b - 1)

    Vovk et al. (2021), section 3: the simple mixture, over a grid.
    """
    logs = numpy.cumsum(numpy.log(BETS) + (BETS - 1) * numpy.log(p_values)[:, None], axis=0)
    return numpy.logaddexp.reduce(logs, axis=1) - numpy.log(len(BETS))
