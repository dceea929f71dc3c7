"""Tsuboi & Kashima, "A New Loss Function with 'Markov Property' for Information Extraction": losses
between the loss of whole paths and the loss of single tags, on CoNLL-2002 Spanish.

A fit is a training method, such as L-BFGS ("batch"): see `training.FITS`. "seq" is the loss of
whole paths, the likelihood.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from spacy_costner.cli.tables import markdown_table

from .corpora import parts_of
from .runner import Figures, Runner, spec
from .scores import PRECISION, RECALL, F, System, Trial, best_on_dev, compare, tune
from .training import Block, features_of, in_turn, linear_block

SPEC = spec("mixed_loss")
LOSSES: dict[str, Block] = SPEC["losses"]
# The published figures, by score or size, then by loss.
PAPER_1 = {row: dict(zip(LOSSES, figures)) for row, figures in SPEC["paper_1"].items()}
PAPER_2 = {row: dict(zip(LOSSES, figures)) for row, figures in SPEC["paper_2"].items()}

FEATURES = features_of("mixed_loss")

Fits = Mapping[str, Sequence[System]]
"""For each loss, the systems of successive trainings."""


def trial(
    name: str,
    loss: str,
    limit: int | None,
    settings: Sequence[Mapping[str, Any]],
    fit: str = "batch",
) -> Trial:
    """Make the trial of a loss. It is trained with one setting of a fit (one of `training.FITS`)
    after another, each from the previous weights, on the first `limit` training sentences, or on
    all of them by default. The name of the run is `name`, followed by the loss: see
    mixed_loss.cfg."""
    stage = {"fit": fit, "loss": LOSSES[loss], "model": linear_block(FEATURES)}
    data = parts_of("assets/conll2002_es/esp", limit)
    return Trial(loss, name, data, in_turn(stage, settings))


def prior(variance: float, tolerance: float = 1e-2) -> Mapping[str, float]:
    """Get the settings for training with a Gaussian prior."""
    return {"c2": 1 / (2 * variance), "tolerance": tolerance}


def variance(fit: System) -> str:
    """Format the variance of the prior of a fit."""
    return f"{1 / (2 * fit.settings['c2']):g}"


def table_1(fits: Mapping[str, System]) -> str:
    """Make table 1, for all sentences: precision, recall and F for each loss, in the paper and
    here, with p-values for the difference of F from the F of "seq". The losses include "seq"."""
    rows: list[list[object]] = []
    for score in (PRECISION, RECALL, F):
        # A fit has a single seed, so it has a single score.
        our_scores = [fit.on("test", score)[0] for fit in fits.values()]
        rows.append([f"{score.name}, paper", *(PAPER_1[score.name][loss] for loss in fits)])
        rows.append([f"{score.name}, here", *our_scores])
    dev_f = [fit.on("dev", F)[0] for fit in fits.values()]
    n_samples = SPEC["full"]["n_samples"]
    (differences,) = compare(list(fits.values()), fits["seq"], n_samples=n_samples)
    p_values: list[object] = []
    for loss, difference in zip(fits, differences):
        p_values.append("" if loss == "seq" else difference.p)  # no comparison with itself
    rows += [
        ["p of F against seq", *p_values],
        ["F of the development set", *dev_f],
        ["variance of the prior", *(variance(fit) for fit in fits.values())],
    ]
    return markdown_table(["all sentences", *fits], rows)


def table_2(fits: Mapping[int, Fits], losses: Sequence[str]) -> str:
    """Make table 2, for the first sentences: the paper's figures and ours for each size, and their
    means over sizes."""
    published_f: list[list[float]] = []
    our_f: list[list[float]] = []
    for size, fits_of_size in fits.items():
        published_f.append([PAPER_2[str(size)][loss] for loss in losses])
        our_f.append(mean_f(fits_of_size, losses))
    published_f.append(_mean(published_f))
    our_f.append(_mean(our_f))
    rows: list[list[object]] = []
    for title, paper, here in zip([*fits, "mean"], published_f, our_f):
        rows.append([f"{title}, paper", *paper])
        rows.append([f"{title}, here", *here])
    return markdown_table(["sentences", *losses], rows)


def mean_f(fits: Fits, losses: Sequence[str], i: int = 0) -> list[float]:
    """Compute the mean F of the development and test sets, for each loss after the i-th
    training."""
    means: list[float] = []
    for loss in losses:
        fit = fits[loss][i]
        (dev_f,) = fit.on("dev", F)
        (test_f,) = fit.on("test", F)
        means.append(float(dev_f + test_f) / 2)
    return means


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    """Compute the mean of each column."""
    return numpy.mean(rows, axis=0).tolist()


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Make both tables. Table 2 comes first, because it is cheaper. For table 1, the variances in
    the same list are tried one after another, each from the previous weights."""
    losses = size["losses"]
    tolerance = size["tolerance"]
    cg_settings = [{"tolerance": tolerance}]
    cg_fits: dict[int, Fits] = {}
    for n in size["sizes"]:
        name = f"{n}-conjugate"
        trials = [trial(name, loss, n, cg_settings, "conjugate") for loss in losses]
        cg_fits[n] = tune(run, trials)

    # With one tolerance after another, for the table of optimizers
    lbfgs_settings = [{"c2": 0.0, "tolerance": tolerance} for tolerance in size["tolerances"]]
    lbfgs_fits: dict[int, Fits] = {}
    for n in size["sizes_of_lbfgs"]:
        lbfgs_fits[n] = tune(run, [trial(str(n), loss, n, lbfgs_settings) for loss in losses])

    fits_with_prior: dict[str, list[System]] = {loss: [] for loss in losses}
    for variances in size["variances"]:
        priors = [prior(variance, tolerance) for variance in variances]
        name = f"all-{variances[0]:g}"
        fits = tune(run, [trial(name, loss, size["limit"], priors) for loss in losses])
        for loss in losses:
            fits_with_prior[loss] += fits[loss]

    cg_means = _mean([mean_f(cg_fits[n], losses) for n in lbfgs_fits])
    rows: list[list[object]] = [[f"conjugate gradient, {tolerance:g}", *cg_means]]
    for i, lbfgs_tolerance in enumerate(size["tolerances"]):
        lbfgs_means = _mean([mean_f(lbfgs_fits[n], losses, i) for n in lbfgs_fits])
        rows.append([f"L-BFGS, {lbfgs_tolerance:g}", *lbfgs_means])
    return {
        "flags": FEATURES["flags"],
        "table_1": table_1({loss: best_on_dev(fits_with_prior[loss]) for loss in losses}),
        "table_2": table_2(cg_fits, losses),
        "optimizers": markdown_table(["optimizer, tolerance", *losses], rows),
    }
