"""Tsuboi & Kashima, "A New Loss Function with 'Markov Property' for Information Extraction":
losses between that of whole paths and that of single tags, on CoNLL-2002 Spanish."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from spacy_costner.cli.tables import markdown_table

from .corpora import parts_of
from .runner import Figures, Runner, spec
from .scores import F, System, Trial, best_on_dev, compare, tune
from .training import Block, features_of, in_turn, linear_block

SPEC = spec("mixed_loss")
LOSSES: dict[str, Block] = SPEC["losses"]
PAPER_1, PAPER_2 = (
    {row: dict(zip(LOSSES, figures)) for row, figures in SPEC[table].items()}
    for table in ("paper_1", "paper_2")
)
"""The published figures, by score or size and by loss."""

FEATURES = features_of("mixed_loss")

Fits = Mapping[str, Sequence[System]]
"""By loss, the systems of one training after another."""


def trial(
    name: str,
    loss: str,
    limit: int | None,
    settings: Sequence[Mapping[str, Any]],
    fit: str = "batch",
) -> Trial:
    """The first sentences, or all, and a loss, trained with one setting of a fit after another,
    each time from the weights that it has: see `training.FITS`."""
    stage = {"fit": fit, "loss": LOSSES[loss], "model": linear_block(FEATURES)}
    data = parts_of("assets/conll2002_es/esp", limit)
    return Trial(loss, name, data, in_turn(stage, settings))


def prior(variance: float, tolerance: float = 1e-2) -> Mapping[str, float]:
    """The settings of a training with a Gaussian prior."""
    return {"c2": 1 / (2 * variance), "tolerance": tolerance}


def variance(fit: System) -> str:
    """That of the prior of a fit."""
    return f"{1 / (2 * fit.settings['c2']):g}"


def table_1(fits: Mapping[str, System]) -> str:
    """All sentences: the paper's figures and ours, by loss, "seq" among them; and whether F differs
    from that of "seq" by more than chance."""
    rows: list[list[object]] = [
        ["F, paper", *(PAPER_1["F"][loss] for loss in fits)],
        ["F, here", *(fit.on("test", F)[0] for fit in fits.values())],
    ]
    (found,) = compare([*fits.values()], fits["seq"], n_samples=SPEC["full"]["n_samples"])
    levels = ["" if loss == "seq" else one.p for loss, one in zip(fits, found)]
    rows.append(["p of F against seq", *levels])
    rows.append(["F of the development set", *(fit.on("dev", F)[0] for fit in fits.values())])
    rows.append(["variance of the prior", *(variance(fit) for fit in fits.values())])
    return markdown_table(["all sentences", *fits], rows)


def table_2(fits: Mapping[int, Fits], losses: Sequence[str]) -> str:
    """The first sentences: the paper's figures and ours, by size and on the average of sizes."""
    published = [[PAPER_2[str(size)][loss] for loss in losses] for size in fits]
    found = [mean_f(of_size, losses) for of_size in fits.values()]
    rows: list[list[object]] = []
    for size, theirs, ours in zip(
        [*fits, "mean"], [*published, _mean(published)], [*found, _mean(found)]
    ):
        rows += [[f"{size}, paper", *theirs], [f"{size}, here", *ours]]
    return markdown_table(["sentences", *losses], rows)


def mean_f(fits: Fits, losses: Sequence[str], i: int = 0) -> list[float]:
    """The mean F of development and test set, for each loss after the i-th training."""
    own = [fits[loss][i] for loss in losses]
    return [float(fit.on("dev", F)[0] + fit.on("test", F)[0]) / 2 for fit in own]


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return numpy.mean(rows, axis=0).tolist()


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Both tables. The second one is made first, as it is cheaper. The variances of table 1 that
    stand together are tried one after another, each from the weights of the one before."""
    losses, tolerance, tolerances = size["losses"], size["tolerance"], size["tolerances"]
    of_cg = [{"tolerance": tolerance}]
    of_lbfgs = [{"c2": 0.0, "tolerance": one} for one in tolerances]
    small, compared = (
        {n: tune(run, [trial(name.format(n), loss, n, *how) for loss in losses]) for n in sizes}
        for name, sizes, how in (
            ("{}-conjugate", size["sizes"], (of_cg, "conjugate")),
            ("{}", size["sizes_of_lbfgs"], (of_lbfgs,)),
        )
    )
    priors = [[prior(one, tolerance) for one in some] for some in size["variances"]]
    series = [
        tune(run, [trial(f"all-{some[0]:g}", loss, size["limit"], each) for loss in losses])
        for some, each in zip(size["variances"], priors)
    ]
    tried = {loss: [fit for fits in series for fit in fits[loss]] for loss in losses}
    optimizers = [("conjugate gradient", tolerance, small, 0)]
    optimizers += [("L-BFGS", one, compared, i) for i, one in enumerate(tolerances)]
    means = [
        [f"{name}, {one:g}", *_mean([mean_f(fits[n], losses, i) for n in compared])]
        for name, one, fits, i in optimizers
    ]
    return {
        "flags": FEATURES["flags"],
        "table_1": table_1({loss: best_on_dev(fits) for loss, fits in tried.items()}),
        "table_2": table_2(small, losses),
        "optimizers": markdown_table(["optimizer, tolerance", *losses], means),
    }
