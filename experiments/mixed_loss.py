"""Tsuboi & Kashima, "A New Loss Function with 'Markov Property' for Information Extraction":
losses between that of whole paths and that of single tags, on CoNLL-2002 Spanish."""

from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy

from spacy_costner.commands.runs import Run
from spacy_costner.metrics import markdown_table

from .corpora import SPANISH
from .runner import Figures, Runner, listed, spec
from .scores import F, P, R, System, best_on_dev, compare, system
from .tagger import Block, features_of, linear_block
from .training import training

SPEC = spec("mixed_loss")
LOSSES: Dict[str, Block] = SPEC["losses"]
PAPER_1 = SPEC["paper_1"]
PAPER_2 = {int(size): figures for size, figures in SPEC["paper_2"].items()}
VARIANCES = ((4.0,), (16.0, 64.0))
"""Of the prior of table 1. Those that stand together are tried one after another, each from the
weights of the one before."""

TOLERANCES = (1e-1, 1e-2)
TOLERANCE = 1e-2
N_SAMPLES = 10_000
FEATURES = features_of("mixed_loss")

Fits = Mapping[str, Sequence[System]]
"""By loss, the systems of one training after another."""


def fit_all(
    run: Runner,
    name: str,
    losses: Sequence[str],
    limit: Optional[int],
    settings: Sequence[Mapping[str, Any]],
    fit: str = "batch",
) -> Fits:
    """Train each loss with one setting after another, each time from the weights that it has.

    run (Runner): Runs the trainings.
    name (str): What their names begin with.
    losses (Sequence[str]): The losses.
    limit (Optional[int]): How many sentences they learn from, the first ones; None: all.
    settings (Sequence[Mapping[str, Any]]): Those of the fit.
    fit (str): The fit, see `training.FITS`.
    """
    found = run([task(f"{name}-{loss}", loss, limit, settings, fit) for loss in losses])
    return {
        loss: [system(loss, [look], **each) for look, each in zip(looks, settings)]
        for loss, looks in zip(losses, found)
    }


def task(
    name: str, loss: str, limit: Optional[int], settings: Sequence[Mapping[str, Any]], fit: str
) -> Run:
    """The run of a loss: see `fit_all`."""
    ends = {"train": limit}
    data = {p: [f"assets/conll2002_es/{f}", 0, ends.get(p)] for p, f in SPANISH.items()}
    block = {"fit": fit, "loss": LOSSES[loss], "model": linear_block(FEATURES)}
    after = [None, *range(len(settings))]
    return training(
        name, data, [{**block, "settings": one, "after": i} for one, i in zip(settings, after)]
    )


def prior(variance: float) -> Mapping[str, float]:
    """The settings of a training with a Gaussian prior."""
    return {"c2": 1 / (2 * variance), "tolerance": TOLERANCE}


def variance(fit: System) -> str:
    """That of the prior of a fit."""
    return f"{1 / (2 * fit.settings['c2']):g}"


def table_1(fits: Mapping[str, System]) -> str:
    """All sentences: the paper's figures and ours, by loss, "seq" among them; and whether F differs
    from that of "seq" by more than chance."""
    rows: List[List[object]] = []
    for score in (P, R, F):
        rows.append([f"{score.name}, paper", *_of(fits, PAPER_1[score.name])])
        rows.append([f"{score.name}, here", *(fit.on("test", score)[0] for fit in fits.values())])
    (found,) = compare([*fits.values()], fits["seq"], n_samples=N_SAMPLES)
    levels = ["" if loss == "seq" else one.p for loss, one in zip(fits, found)]
    rows.append(["p of F against seq", *levels])
    rows.append(["F of the development set", *(fit.on("dev", F)[0] for fit in fits.values())])
    rows.append(["variance of the prior", *(variance(fit) for fit in fits.values())])
    return markdown_table(["all sentences", *fits], rows)


def table_of_priors(tried: Fits) -> str:
    """What each loss comes to with each prior, on the development set."""
    rows = [
        [f"variance {variance(fits[0])}", *(fit.on("dev", F)[0] for fit in fits)]
        for fits in zip(*tried.values())
    ]
    return markdown_table(["F of the development set", *tried], rows)


def table_2(fits: Mapping[int, Fits], losses: Sequence[str]) -> str:
    """The first sentences: the paper's figures and ours, by size and on the average of sizes."""
    published = [_of(losses, PAPER_2[size]) for size in fits]
    found = [[mean_f(tried[0]) for tried in by_loss.values()] for by_loss in fits.values()]
    rows: List[List[object]] = []
    for size, theirs, ours in zip(
        [*fits, "mean"], [*published, _mean(published)], [*found, _mean(found)]
    ):
        rows += [[f"{size}, paper", *theirs], [f"{size}, here", *ours]]
    return markdown_table(["sentences", *losses], rows)


def table_of_optimizers(
    conjugate: Mapping[int, Fits], lbfgs: Mapping[int, Fits], losses: Sequence[str]
) -> str:
    """The means over the sizes of L-BFGS by conjugate gradient, and by it to each tolerance."""
    rows = [
        (
            f"{name}, {tolerance:g}",
            [[mean_f(fits[size][loss][i]) for loss in losses] for size in lbfgs],
        )
        for name, fits, tolerances in (
            ("conjugate gradient", conjugate, [TOLERANCE]),
            ("L-BFGS", lbfgs, TOLERANCES),
        )
        for i, tolerance in enumerate(tolerances)
    ]
    return markdown_table(
        ["optimizer, tolerance", *losses], [[name, *_mean(found)] for name, found in rows]
    )


def mean_f(fit: System) -> float:
    """The mean F of development and test set."""
    return float(fit.on("dev", F)[0] + fit.on("test", F)[0]) / 2


def _of(losses: Sequence[str] | Mapping[str, Any], values: Sequence[float]) -> List[float]:
    by_loss = dict(zip(LOSSES, values))
    return [by_loss[loss] for loss in losses]


def _mean(rows: Sequence[Sequence[float]]) -> List[float]:
    return numpy.mean(rows, axis=0).tolist()


def experiment(run: Runner, quick: bool) -> Figures:
    """Both tables. The second one is made first, as it is cheaper."""
    losses, sizes, sizes_of_lbfgs, limit = SPEC["quick" if quick else "full"].values()
    of_cg = [{"tolerance": TOLERANCE}]
    of_lbfgs = [{"c2": 0.0, "tolerance": tolerance} for tolerance in TOLERANCES]
    small = {
        size: fit_all(run, f"{size}-conjugate", losses, size, of_cg, "conjugate") for size in sizes
    }
    compared = {size: fit_all(run, str(size), losses, size, of_lbfgs) for size in sizes_of_lbfgs}
    series = [
        fit_all(run, f"all-{some[0]:g}", losses, limit, [*map(prior, some)]) for some in VARIANCES
    ]
    tried = {loss: [fit for fits in series for fit in fits[loss]] for loss in losses}
    return {
        "flags": listed(FEATURES["flags"]),
        "tolerance": TOLERANCE,
        "n_samples": N_SAMPLES,
        "table_1": table_1({loss: best_on_dev(fits) for loss, fits in tried.items()}),
        "priors": table_of_priors(tried),
        "table_2": table_2(small, losses),
        "sizes": listed([*compared]),
        "optimizers": table_of_optimizers(small, compared, losses),
    }
