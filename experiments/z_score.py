"""The Z-score (Ricci et al.): hidden Markov models in figure 1 and table 1, CoNLL-2002 Spanish in
table 2 and the times of training."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy
import spacy
from numpy.random import default_rng
from spacy.tokens import Doc
from spacy.training import Example
from thinc.types import Floats1d

from spacy_costner.cli.plots import ACCENT, ALERT, MUTED, SECOND, drawing
from spacy_costner.cli.tables import markdown_table
from spacy_costner.costs.tables import HAMMING
from spacy_costner.ml import linear_part
from spacy_costner.pipeline.component import CostSensitiveNER

from . import chains, training
from .chains import (
    HMM,
    ComponentSequences,
    Sequences,
    best_hamming_z_score,
    best_z_score,
    most_likely,
)
from .corpora import ASSETS, as_examples, read_docs, tags_of
from .runner import Figures, Runner, spec
from .training import BEST_PATH, features_of, linear_block, loss_block, make_ner, predict

Z, Z_100, Z_H, MM_H, CRF = "Z-score", "Z-score (100)", "Z-score (H)", "MM (H)", "CRF"
TRUE, ALL_O = "true HMM", "O for everything"
APART = "Z-score, transitions penalised more"

SPEC = spec("z_score")
FULL, METHODS = SPEC["full"], SPEC["methods"]
PAPER_1 = {int(n_symbols): figures for n_symbols, figures in SPEC["paper_1"].items()}
FEATURES = {name: {**features_of("z_score"), **more} for name, more in SPEC["features"].items()}
TRAINED_BY = {Z: best_z_score, Z_H: best_hamming_z_score, CRF: most_likely}
COLOURS = {TRUE: MUTED, Z: ACCENT, Z_H: "#6ea8dc", MM_H: ALERT, CRF: SECOND}
"""What figure 1 shows."""

N_FOLDS = 5
MOST_DRAWN = 20_000


Measured = dict[str, list[float]]
"""By method, the test error in per cent and the seconds of training."""


def measured(hmm: HMM, train: Sequences, test: Sequences, *, sampled: bool) -> Measured:
    """Train by each method, by sampled paths, too, if asked for. Those with a penalty have the same
    everywhere."""
    c2 = FULL["c2"]
    methods: dict[str, Callable[[], Floats1d]] = {
        TRUE: lambda: hmm.weights,
        Z: lambda: best_z_score(train, c2=c2),
        Z_H: lambda: best_hamming_z_score(train, c2=c2),
        MM_H: lambda: chains.largest_margin(train, **FULL["margin"]).vector,
        CRF: lambda: most_likely(train, c2=FULL["crf_c2"]),
    }
    if sampled:
        methods[Z_100] = lambda: best_z_score(train, c2=c2, n_sampled=100)
    figures = {}
    for name, method in methods.items():
        weights, seconds = timed(method)
        figures[name] = [test.error(weights), seconds]
    return figures


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the seconds of the processor that it takes."""
    began = time.process_time()
    value = function()
    return value, time.process_time() - began


def mean_of(found: Iterable[Measured]) -> Measured:
    """The means of what was measured several times."""
    rows = list(found)
    return {name: numpy.mean([row[name] for row in rows], axis=0).tolist() for name in rows[0]}


def short_sequences(size: int, n_runs: int) -> dict[str, Any]:
    """Figure 1: sequences of 10 tokens, so many for training, of HMMs of 3 states and 4 symbols,
    another one in each run: the means of "methods"."""
    figures = []
    for run in range(n_runs):
        rng = default_rng([1, run])
        hmm = chains.random_hmm(3, 4, rng)
        test = hmm.sample(FULL["n_test"], 10, rng)
        train = hmm.sample(size, 10, rng)
        figures.append(measured(hmm, train, test, sampled=False))
    return {"methods": mean_of(figures)}


def long_sequences(n_symbols: int, kind: str, n_hmms: int, n_runs: int) -> dict[str, Any]:
    """Table 1: sequences of 100 tokens, of HMMs of 2 states that are as hard as the paper's.

    n_symbols (int), kind (str): Symbols, and the kind of HMMs: see [kinds] in the spec.
    n_hmms (int), n_runs (int): How many, and how often each is trained.
    RETURNS (dict[str, Any]): The means of "methods", and those "of_each" HMM; how many were
        "drawn".
    """
    error = PAPER_1[n_symbols][MM_H][0]
    hmms, n_drawn = hmms_as_hard(error, n_symbols, n_hmms, **SPEC["kinds"][kind])
    n_training, n_test, long = FULL["n_training"], FULL["n_test"], FULL["long"]
    of_each = []
    for i, hmm in enumerate(hmms):
        figures = []
        for run in range(n_runs):
            rng = default_rng([3, n_symbols, i, run])
            train = hmm.sample(n_training, long, rng)
            test = hmm.sample(n_test, long, rng)
            figures.append(measured(hmm, train, test, sampled=True))
        of_each.append(mean_of(figures))
    return {"methods": mean_of(of_each), "of_each": of_each, "drawn": n_drawn}


def hmms_as_hard(error: float, n_symbols: int, n: int, **settings: Any) -> tuple[list[HMM], int]:
    """Draw HMMs of 2 states until there are so many whose own error is as wanted.

    error (float): The error of the best path under the true probabilities, in per cent, with
        the tolerance "near" of the spec.
    n_symbols (int), **settings (Any): See `random_hmm`.
    n (int): How many.
    RETURNS (tuple[list[HMM], int]): The HMMs, and how many were drawn.
    RAISES (ValueError): If they are too rare.
    """
    near, n_judging, long = FULL["near"], FULL["n_judging"], FULL["long"]

    def is_near(hmm: HMM, rng: numpy.random.Generator, size: int, tolerance: float) -> bool:
        return abs(hmm.sample(size, long, rng).error(hmm.weights) - error) < tolerance

    hmms: list[HMM] = []
    for n_drawn in range(1, MOST_DRAWN + 1):
        rng = default_rng([2, n_symbols, n_drawn])
        hmm = chains.random_hmm(2, n_symbols, rng, **settings)
        # Most are refused by a few sequences, which is quick.
        if is_near(hmm, rng, n_judging // 20, 10 * near) and is_near(hmm, rng, n_judging, near):
            hmms.append(hmm)
        if len(hmms) == n:
            return hmms, n_drawn
    raise ValueError(f"hmms_as_hard: error: expected one that occurs, got {error}")


def folds(source: str) -> list[list[Doc]]:
    """The sentences of a source, in 5 folds: see [sources] in the spec."""
    n = FULL["n_sentences"]
    path = ASSETS / "conll2002_es" / "esp.train"
    docs = read_docs(path, spacy.blank("xx").vocab, 0, n)
    if source == "shuffled":
        docs = random.Random(0).sample(docs, n)
    return [docs[i : i + n // N_FOLDS] for i in range(0, n, n // N_FOLDS)]


def as_sequences(ner: CostSensitiveNER, docs: Sequence[Doc]) -> Sequences:
    """Annotated docs as sequences, with the features and the tags of a component."""
    features, weights = linear_part(ner.model)
    number = {name: i for i, name in enumerate(ner.tags.names)}
    tags = [number[tag] for doc in docs for tag in tags_of(doc)]
    return Sequences(
        chains.features_as_matrix(features.find(docs).rows, weights.n_features),
        numpy.asarray(tags, dtype="int32"),
        numpy.asarray([len(doc) for doc in docs], dtype="int32"),
        numpy.ones((len(number), len(number))),
    )


def vary(
    sequences: Sequences,
    ner: CostSensitiveNER,
    *,
    step: float = 1.0,
    o_after_o: bool = True,
    legal: bool = False,
) -> Sequences:
    """The same sequences with other transitions.

    step (float): The value of a transition as a feature; its penalty is c2 / step^2 then, and at
        0 it has no weight.
    o_after_o (bool): Whether the transition from O to O has a weight.
    legal (bool): Whether only legal paths are possible.
    """
    steps = numpy.full_like(sequences.steps, step)
    if not o_after_o:
        steps[0, 0] = 0.0
    constraints = ner.tags.constraints if legal else sequences.constraints
    return sequences._replace(steps=steps, constraints=constraints)


def chosen_error(
    ner: CostSensitiveNER, parts: Sequence[Sequences], method: Mapping[str, Any]
) -> list[Any]:
    """Choose the setting of a method on the first two parts, train and test on the others: the
    error in per cent and the setting."""
    train, held_out, all_train, test = parts
    grid = {"c2": [0.0], "step": [1.0], **method}
    fixed = {key: value for key, value in method.items() if key not in ("by", "c2", "step")}
    settings = [{"c2": c2, "step": step} for c2, step in product(grid["c2"], grid["step"])]

    def error(setting: Mapping[str, float], some: Sequences, others: Sequences) -> float:
        more = {"step": setting["step"], **fixed}
        weights = TRAINED_BY[method["by"]](vary(some, ner, **more), c2=setting["c2"])
        return vary(others, ner, **more).error(weights)

    errors = [error(setting, train, held_out) for setting in settings]
    best = settings[int(numpy.argmin(errors))]
    return [error(best, all_train, test), best]


def named_entities(source: str, features: str, fold: int) -> dict[str, Any]:
    """Table 2: train on all folds but one by each method, and count its errors on that one. What
    there is to choose is chosen by training on three of the four and counting on the fourth.

    source (str), features (str), fold (int): See the spec, and which fold is the test set.
    RETURNS (dict[str, Any]): How many "tokens" there are; of each of the "methods" its error in per
        cent and the chosen setting; and of the first of them the "largest" weights.
    """
    parts = folds(source)
    test, held_out = parts[fold], parts[(fold + 1) % N_FOLDS]
    inner = [doc for part in parts if part not in (test, held_out) for doc in part]
    train = inner + held_out
    ner = make_ner(as_examples(train), model=linear_block(FEATURES[features]))
    sequences = [as_sequences(ner, docs) for docs in (inner, held_out, train, test)]
    tags, k = sequences[3].tags, len(sequences[3].steps)
    found = {name: chosen_error(ner, sequences, method) for name, method in METHODS.items()}
    found[ALL_O] = [100 * float((tags != 0).mean()), None]
    found[MM_H] = [token_error(predict(fitted_margin(train, features), test)[BEST_PATH]), None]
    plain = best_z_score(sequences[2], c2=FULL["c2"]).reshape(-1, k)
    largest = [float(plain[-k, 0]), float(plain[:-k].max())]
    return {"tokens": len(tags), "methods": found, "largest": largest}


def fitted_margin(train: Sequence[Doc], features: str) -> CostSensitiveNER:
    """The margin method with the Hamming loss as the library has it: by online training."""
    examples, loss = as_examples(train), loss_block("MaxMargin", cost=HAMMING)
    ner = make_ner(examples, model=linear_block(FEATURES[features]), loss=loss)
    training.fit_online(ner, examples, lambda **facts: None, epochs=[FULL["n_epochs"]])
    return ner


def token_error(found: Iterable[Example]) -> float:
    """How many tags are wrong, in per cent."""
    pairs = [pair for eg in found for pair in zip(tags_of(eg.reference), tags_of(eg.predicted))]
    return 100 * sum(tag != answer for tag, answer in pairs) / len(pairs)


def training_times(features: str) -> dict[str, Any]:
    """How long training a component takes, on four of the shuffled folds: the Z-score by
    `best_z_score`, with all paths and with sampled ones, and the margin. Of each of the
    "methods" the error on the fifth fold and the seconds."""
    test, *others = folds("shuffled")
    train = [doc for part in others for doc in part]
    examples, model = as_examples(train), linear_block(FEATURES[features])
    fitted = {}
    for name, n_sampled in (("exact", None), ("sampled", FULL["n_sampled"])):
        ner = make_ner(examples, model=model, loss=loss_block("ZScore"))
        fitted[name] = ner, timed(partial(fit_z_score, ner, examples, n_sampled))[1]
    fitted["margin"] = timed(partial(fitted_margin, train, features))
    return {
        "methods": {
            name: [token_error(predict(ner, test)[BEST_PATH]), seconds]
            for name, (ner, seconds) in fitted.items()
        }
    }


def fit_z_score(ner: CostSensitiveNER, examples: Any, n_sampled: int | None) -> None:
    """Give a component the weights of the best Z-score."""
    sequences = ComponentSequences(ner, examples)
    weights = best_z_score(sequences, c2=FULL["timed_c2"], n_sampled=n_sampled)
    sequences.total.write_weights(weights)


def draw(found: Mapping[int, Measured]) -> Any:
    """Draw figure 1: by the number of sequences, of each method the error and the seconds."""
    sizes = list(found)
    with drawing() as figure_class:
        figure = figure_class(figsize=(6.4, 2.7), layout="constrained")
        for i, (axes, label) in enumerate(
            zip(figure.subplots(1, 2), ("test error, %", "seconds of training"))
        ):
            for name, colour in COLOURS.items():
                if i == 0 or name != TRUE:
                    values = [found[size][name][i] for size in sizes]
                    axes.plot(sizes, values, color=colour, label=name, marker=".")
            axes.set(xlabel="training sequences", ylabel=label, xscale="log")
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.minorticks_off()
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center")
        return figure


def figure_1(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Figure 1, as a picture and as a table."""
    sizes, n_runs = size["sizes"], size["n_runs"]
    results = run.grid("figure-1", short_sequences, size=sizes, n_runs=[n_runs])
    found = {n: result["methods"] for (n, _), result in results.items()}
    last = found[max(sizes)]
    rows = [
        [name, *(of_size[name][0] for of_size in found.values()), f"{last[name][1]:.3f}"]
        for name in COLOURS
    ]
    header = ["test error, %", *(f"{n} sequences" for n in sizes), f"seconds, {max(sizes)}"]
    figure = run.picture("z_score", draw(found))
    return {"figure_1": markdown_table(header, rows), "last_seed": n_runs - 1, "figure": figure}


HEADER_1 = ["HMMs", "symbols", TRUE, Z, Z_100, MM_H, Z_H, CRF, f"{MM_H} : {Z}, seconds"]


def table_1(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Table 1, of the paper and for HMMs of each kind."""
    counts = {"n_hmms": [size["n_hmms"]], "n_runs": [size["times"]]}
    grid = {"n_symbols": size["symbols"], "kind": size["kinds"], **counts}
    results = run.grid("table-1", long_sequences, **grid)
    rows = [["paper", n, *paper_row(PAPER_1[n])] for n in size["symbols"]]
    rows += [
        [kind, *table_1_row(cell[0], result)]
        for kind in size["kinds"]
        for cell, result in results.items()
        if cell[1] == kind
    ]
    return {"table_1": markdown_table(HEADER_1, rows)}


def paper_row(paper: Mapping[str, Sequence[float]]) -> list[object]:
    """What the paper has in a row of table 1: errors, and seconds in brackets."""
    cells = ["{:.2f} ({:.2f})".format(*paper[name]) for name in (Z, Z_100, MM_H)]
    return ["", *cells, "", "", f"{paper[MM_H][1] / paper[Z][1]:.0f}"]


def table_1_row(n_symbols: int, result: Mapping[str, Any]) -> list[object]:
    """A row of table 1 that is ours."""
    found = result["methods"]
    row: list[object] = [n_symbols, found[TRUE][0]]
    for name in (Z, Z_100, MM_H, Z_H, CRF):
        cell = "{:.2f} ({:.3f})".format(*found[name])
        if name == Z:
            errors = [of_one[Z][0] for of_one in result["of_each"]]
            cell += f" [{min(errors):.2f}, {max(errors):.2f}]"
        row.append(cell)
    return [*row, f"{found[MM_H][1] / found[Z][1]:.0f}"]


def table_2(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Table 2, for each way to have sentences and folds; and what was chosen for it."""
    sources, n_folds = size["sources_used"], size["tested"]
    grid = {"features": [*FEATURES], "source": sources, "fold": range(n_folds)}
    results = run.grid("table-2", named_entities, **grid)
    columns = [*product(FEATURES, sources)]
    found = [[results[kind, source, i] for i in range(n_folds)] for kind, source in columns]
    papers = SPEC["paper_2"]
    errors = {name: [pooled(some, name) for some in found] for name in (ALL_O, *METHODS, MM_H)}
    same = [name for name in METHODS if name != Z and errors[name] == errors[Z]]
    rows = [
        [name, *of_name, *(paper.get(name, "") for paper in papers.values())]
        for name, of_name in errors.items()
        if name not in same
    ]
    header = ["error, %", *(f"{features}, {source}" for features, source in columns)]
    header += [f"{features}, paper" for features in papers]
    step, word = numpy.mean([result["largest"] for result in found[0]], axis=0)
    return {
        "table_2": markdown_table(header, rows),
        "same": "; ".join(same) or "no other",
        "sources": "; ".join(f'"{source}": {SPEC["sources"][source]}' for source in sources),
        "chosen": chosen(found[0], APART),
        "step": step,
        "expected": expected_step(folds(sources[0])),
        "word": word,
    }


def expected_step(parts: Sequence[Sequence[Doc]]) -> float:
    """The weight that O after O has beyond those of its tags, were nothing else to be learned:

    K^2 p(O, O) - 2 K p(O) + 1
    """
    sequences = [tags_of(doc) for part in parts for doc in part]
    pairs = [pair for tags in sequences for pair in pairwise(tags)]
    k = len({tag for tags in sequences for tag in tags})
    both = sum(pair == ("O", "O") for pair in pairs) / len(pairs)
    one = sum(tag == "O" for pair in pairs for tag in pair) / (2 * len(pairs))
    return k**2 * both - 2 * k * one + 1


def pooled(results: Sequence[Mapping[str, Any]], name: str) -> float:
    """The error of a method on the tokens of all folds."""
    weights = [result["tokens"] for result in results]
    return float(numpy.average([result["methods"][name][0] for result in results], weights=weights))


def chosen(results: Sequence[Mapping[str, Any]], name: str) -> str:
    """The settings that a method was given, and in how many folds."""
    found = [result["methods"][name][1] for result in results]
    settings = Counter((setting["c2"], setting["step"]) for setting in found)
    return ", ".join(f"({c2:g}, {step:g}) in {n}" for (c2, step), n in settings.most_common())


def times(run: Runner, size: Mapping[str, Any]) -> Figures:
    """The times of section 6."""
    results = run.grid("times", training_times, features=size["timed"]).values()
    rows = []
    for key, label in SPEC["timed"].items():
        ours = [result["methods"][key] for result in results]
        cells = (f"{seconds:.2f} ({error:.2f})" for error, seconds in ours)
        rows.append([label, f"*{SPEC['paper_seconds'][key]:.0f}*", *cells])
    header = ["seconds (error, %)", "*S1, paper*", *size["timed"]]
    return {"seconds": markdown_table(header, rows)}


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Figure 1, tables 1 and 2, and the times."""
    parts = [part(run, size) for part in (figure_1, table_1, table_2, times)]
    return {"flags": FEATURES["S2+"]["flags"], **parts[0], **parts[1], **parts[2], **parts[3]}
