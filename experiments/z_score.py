"""The Z-score (Ricci et al.): hidden Markov models in figure 1 and table 1, CoNLL-2002 Spanish in
table 2, and training times.

Errors are percentages of wrong tags, times are CPU seconds.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise, product
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
    best_constrained_z_score,
    best_hamming_z_score,
    best_z_score,
    hidden_markov_perceptron,
    most_likely,
    sequence_margin,
)
from .corpora import ASSETS, as_examples, read_docs, tags_of
from .runner import Figures, Runner, spec
from .training import BEST_PATH, features_of, linear_block, loss_block, make_ner, predict

# The names of the methods in tables. (100) means sampled paths, (H) the Hamming loss.
Z = "Z-score"
Z_100 = "Z-score (100)"
Z_H = "Z-score (H)"
Z_3 = "Z-score, constraints (3)"
MM = "MM"
MM_H = "MM (H)"
MM_H_OPTIMUM = "MM (H), cutting planes"
HMP = "HMP"
HMP_AVERAGED = "HMP, averaged"
CRF = "CRF"
TRUE = "true HMM"
ALL_O = "O for everything"
APART = "Z-score, transitions penalised more"

SPEC = spec("z_score")
FULL = SPEC["full"]
METHODS = SPEC["methods"]
PAPER_1 = {int(n_symbols): figures for n_symbols, figures in SPEC["paper_1"].items()}
FEATURES = {name: {**features_of("z_score"), **more} for name, more in SPEC["features"].items()}
TRAINED_BY = {Z: best_z_score, Z_H: best_hamming_z_score, CRF: most_likely}
COLOURS = {
    TRUE: MUTED,
    Z: ACCENT,
    Z_3: "#123f66",
    Z_H: "#6ea8dc",
    MM: "#e59a8f",
    MM_H: ALERT,
    HMP: "#c9a227",
    HMP_AVERAGED: "#7d6411",
    CRF: SECOND,
}
"""The methods of figure 1, with their colours."""

N_FOLDS = 5
MOST_DRAWN = 20_000
"""The number of HMMs drawn before `hmms_as_hard` gives up."""


Measured = dict[str, list[float]]
"""The test error in per cent and the seconds of training, by method."""


def measured(hmm: HMM, train: Sequences, test: Sequences, *, of_figure_1: bool) -> Measured:
    """Train with each method of figure 1 or table 1. Penalties aren't tuned: they are in the
    spec."""
    c2 = FULL["c2"]
    methods: dict[str, Callable[[], Floats1d]] = {
        TRUE: lambda: hmm.weights,
        Z: lambda: best_z_score(train, c2=c2),
        Z_H: lambda: best_hamming_z_score(train, c2=c2),
        MM_H: lambda: chains.largest_margin(train, **FULL["margin"]).vector,
        CRF: lambda: most_likely(train, c2=FULL["crf_c2"]),
    }
    if not of_figure_1:
        methods[Z_100] = lambda: best_z_score(train, c2=c2, n_sampled=100)
    else:
        n_epochs = FULL["hmp_epochs_of_hmms"]
        margin = FULL["margin_of_sequences"]
        methods |= {
            Z_3: lambda: best_constrained_z_score(train, c2=c2, **FULL["violation"]).vector,
            MM: lambda: chains.largest_margin(train, loss=sequence_margin, **margin).vector,
            HMP: lambda: hidden_markov_perceptron(train, n_epochs=n_epochs),
            HMP_AVERAGED: lambda: hidden_markov_perceptron(train, n_epochs=n_epochs, averaged=True),
        }
    error_and_seconds: Measured = {}
    for name, train_by_method in methods.items():
        weights, seconds = timed(train_by_method)
        error_and_seconds[name] = [test.error(weights), seconds]
    return error_and_seconds


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Call a function. Returns its result and the CPU seconds."""
    began = time.process_time()
    value = function()
    return value, time.process_time() - began


def mean_of(measurements: Sequence[Measured]) -> Measured:
    """Compute the means of one or more measurements."""
    means: Measured = {}
    for name in measurements[0]:
        rows = [measurement[name] for measurement in measurements]
        means[name] = numpy.mean(rows, axis=0).tolist()
    return means


def short_sequences(size: int, n_runs: int) -> dict[str, Any]:
    """Train for figure 1, on `size` sequences of 10 tokens from HMMs with 3 states and 4 symbols.
    Each run uses a different HMM. Returns the means of "methods"."""
    measurements: list[Measured] = []
    for run in range(n_runs):
        rng = default_rng([1, run])
        hmm = chains.random_hmm(3, 4, rng)
        test = hmm.sample(FULL["n_test"], 10, rng)
        train = hmm.sample(size, 10, rng)
        measurements.append(measured(hmm, train, test, of_figure_1=True))
    return {"methods": mean_of(measurements)}


def long_sequences(n_symbols: int, kind: str, n_hmms: int, n_runs: int) -> dict[str, Any]:
    """Train for table 1, on sequences of 100 tokens from HMMs with 2 states that are as hard as the
    paper's. For the kinds of HMMs, see [kinds] in the spec. Training is repeated `n_runs` times for
    each HMM. Returns the means of "methods", the results "of_each" HMM, and the number of HMMs that
    were "drawn"."""
    paper_error, _ = PAPER_1[n_symbols][MM_H]
    hmms, n_drawn = hmms_as_hard(paper_error, n_symbols, n_hmms, **SPEC["kinds"][kind])
    length = FULL["long"]
    means_of_hmms: list[Measured] = []
    for i, hmm in enumerate(hmms):
        measurements: list[Measured] = []
        for run in range(n_runs):
            rng = default_rng([3, n_symbols, i, run])
            train = hmm.sample(FULL["n_training"], length, rng)
            test = hmm.sample(FULL["n_test"], length, rng)
            measurements.append(measured(hmm, train, test, of_figure_1=False))
        means_of_hmms.append(mean_of(measurements))
    return {"methods": mean_of(means_of_hmms), "of_each": means_of_hmms, "drawn": n_drawn}


def hmms_as_hard(error: float, n_symbols: int, n: int, **settings: Any) -> tuple[list[HMM], int]:
    """Draw HMMs with 2 states until n of them have the given error.

    error (float): The error of the best path under the true probabilities, in per cent, within the
        tolerance "near" in the spec.
    n_symbols (int), **settings (Any): See `random_hmm`.
    n (int): The number of HMMs to find.
    RETURNS (tuple[list[HMM], int]): The HMMs, and the number of HMMs that were drawn.
    RAISES (ValueError): If fewer than n are found among the first `MOST_DRAWN`.
    """
    tolerance = FULL["near"]
    n_judging = FULL["n_judging"]

    def is_near(hmm: HMM, rng: numpy.random.Generator, n: int, tolerance: float) -> bool:
        """Check whether the error on n new sequences is within a tolerance."""
        sequences = hmm.sample(n, FULL["long"], rng)
        return abs(sequences.error(hmm.weights) - error) < tolerance

    hmms: list[HMM] = []
    for n_drawn in range(1, MOST_DRAWN + 1):
        rng = default_rng([2, n_symbols, n_drawn])
        hmm = chains.random_hmm(2, n_symbols, rng, **settings)
        # A few sequences are enough to reject most HMMs, which is quick.
        is_worth_judging = is_near(hmm, rng, n_judging // 20, 10 * tolerance)
        if is_worth_judging and is_near(hmm, rng, n_judging, tolerance):
            hmms.append(hmm)
        if len(hmms) == n:
            return hmms, n_drawn
    raise ValueError(f"hmms_as_hard: error: expected one that occurs, got {error}")


def folds(source: str) -> list[list[Doc]]:
    """Divide the sentences of a source into 5 folds: see [sources] in the spec."""
    n = FULL["n_sentences"]
    path = ASSETS / "conll2002_es" / "esp.train"
    docs = read_docs(path, spacy.blank("xx").vocab, 0, n)
    if source == "shuffled":
        docs = random.Random(0).sample(docs, n)
    size = n // N_FOLDS
    return [docs[i : i + size] for i in range(0, n, size)]


def as_sequences(ner: CostSensitiveNER, docs: Sequence[Doc]) -> Sequences:
    """Convert annotated docs to sequences, with the features and tags of a component."""
    features, weights = linear_part(ner.model)
    index_of_tag = {name: i for i, name in enumerate(ner.tags.names)}
    tags: list[int] = []
    for doc in docs:
        tags += [index_of_tag[tag] for tag in tags_of(doc)]
    n_tags = len(index_of_tag)
    return Sequences(
        features=chains.features_as_matrix(features.find(docs).rows, weights.n_features),
        tags=numpy.asarray(tags, dtype="int32"),
        lengths=numpy.asarray([len(doc) for doc in docs], dtype="int32"),
        steps=numpy.ones((n_tags, n_tags)),
    )


def vary(
    sequences: Sequences,
    ner: CostSensitiveNER,
    *,
    step: float = 1.0,
    o_after_o: bool = True,
    legal: bool = False,
) -> Sequences:
    """Change the transitions of sequences. `step` is the value of a transition as a feature: its
    penalty is c2 / step^2, and at 0 it has no weight. `o_after_o` is whether the transition from O
    to O has a weight, `legal` whether only legal paths are possible."""
    steps = numpy.full_like(sequences.steps, step)
    if not o_after_o:
        steps[0, 0] = 0.0
    constraints = ner.tags.constraints if legal else sequences.constraints
    return sequences._replace(steps=steps, constraints=constraints)


def chosen_error(
    ner: CostSensitiveNER, parts: Sequence[Sequences], method: Mapping[str, Any]
) -> list[Any]:
    """Choose the setting of a method (its penalty c2 and value of transitions, see [methods] in the
    spec), and test it. `parts` contains the training and scoring sequences for choosing the
    setting, then both for the test, with the features of the component. Returns the error in
    percent, and the setting."""
    train, held_out, all_train, test = parts
    grid = {"c2": [0.0], "step": [1.0], **method}
    settings = [{"c2": c2, "step": step} for c2, step in product(grid["c2"], grid["step"])]
    # The fixed settings: other arguments of `vary`.
    fixed = {name: value for name, value in method.items() if name not in ("by", "c2", "step")}

    def error(setting: Mapping[str, float], train: Sequences, test: Sequences) -> float:
        varied_train = vary(train, ner, step=setting["step"], **fixed)
        varied_test = vary(test, ner, step=setting["step"], **fixed)
        weights = TRAINED_BY[method["by"]](varied_train, c2=setting["c2"])
        return varied_test.error(weights)

    errors = [error(setting, train, held_out) for setting in settings]
    best_setting = settings[int(numpy.argmin(errors))]
    return [error(best_setting, all_train, test), best_setting]


def named_entities(source: str, features: str, fold: int) -> dict[str, Any]:
    """Train for table 2, with each method on all folds but one, and count its errors on that fold.
    Settings are chosen by training on three of the four folds and counting on the fourth. Returns
    the number of "tokens"; the error in percent and the chosen setting of each of the "methods";
    and the "largest" weights of the first method."""
    inner, held_out, test = parts_of_fold(source, fold)
    train = inner + held_out
    ner = make_ner(as_examples(train), model=linear_block(FEATURES[features]))
    sequences = [as_sequences(ner, docs) for docs in (inner, held_out, train, test)]
    train_sequences = sequences[2]
    test_tags = sequences[3].tags

    # The error of each method, and its chosen setting, if any.
    results = {name: chosen_error(ner, sequences, method) for name, method in METHODS.items()}
    results[ALL_O] = [100 * float((test_tags != 0).mean()), None]
    by_margin = predict(fitted_margin(train, features), test)
    results[MM_H] = [token_error(by_margin[BEST_PATH]), None]

    # For the Z-score with a small penalty: the weight of O after O, in the first of the last K
    # rows, and the largest weight of a feature.
    n_tags = len(train_sequences.steps)
    weights = best_z_score(train_sequences, c2=FULL["c2"]).reshape(-1, n_tags)
    largest = [float(weights[-n_tags, 0]), float(weights[:-n_tags].max())]
    return {"tokens": len(test_tags), "methods": results, "largest": largest}


def parts_of_fold(source: str, fold: int) -> tuple[list[Doc], list[Doc], list[Doc]]:
    """Get the docs of three training folds, of the fold after the test fold, for choosing settings,
    and of the test fold."""
    docs_of_folds = folds(source)
    held_out_fold = (fold + 1) % N_FOLDS
    inner: list[Doc] = []
    for i, docs in enumerate(docs_of_folds):
        if i not in (fold, held_out_fold):
            inner += docs
    return inner, docs_of_folds[held_out_fold], docs_of_folds[fold]


def iterative_methods(source: str, features: str, fold: int, n_epochs: int) -> dict[str, Any]:
    """Train for table 2 with the methods that repeatedly search for the best wrong path, on the
    folds of `named_entities`, with all paths. The spec contains the paper's settings. Returns the
    number of "tokens", and the error in percent and the seconds of each of the "methods"."""
    inner, held_out, test = parts_of_fold(source, fold)
    train = inner + held_out
    ner = make_ner(as_examples(train), model=linear_block(FEATURES[features]))
    train_sequences, test_sequences = (as_sequences(ner, docs) for docs in (train, test))
    margin = FULL["margin_of_entities"]
    violation = FULL["violation_of_entities"]
    perceptron = partial(hidden_markov_perceptron, train_sequences, n_epochs=n_epochs)
    trained: dict[str, Callable[[], Floats1d]] = {
        Z_3: lambda: best_constrained_z_score(train_sequences, **violation).vector,
        MM: lambda: chains.largest_margin(train_sequences, loss=sequence_margin, **margin).vector,
        MM_H_OPTIMUM: lambda: chains.largest_margin(train_sequences, **margin).vector,
        HMP: perceptron,
        HMP_AVERAGED: partial(perceptron, averaged=True),
    }
    results: Measured = {}
    for name, train_by_method in trained.items():
        weights, seconds = timed(train_by_method)
        results[name] = [test_sequences.error(weights), seconds]
    return {"tokens": len(test_sequences.tags), "methods": results}


def fitted_margin(train: Sequence[Doc], features: str) -> CostSensitiveNER:
    """Train the library's version of the margin method with the Hamming loss: online."""
    examples = as_examples(train)
    loss = loss_block("MaxMargin", cost=HAMMING)
    ner = make_ner(examples, model=linear_block(FEATURES[features]), loss=loss)
    training.fit_online(ner, examples, lambda **facts: None, epochs=[FULL["n_epochs"]])
    return ner


def token_error(examples: Iterable[Example]) -> float:
    """Compute the percentage of wrong tags."""
    n_tokens = 0
    n_wrong = 0
    for eg in examples:
        for gold_tag, predicted_tag in zip(tags_of(eg.reference), tags_of(eg.predicted)):
            n_tokens += 1
            if predicted_tag != gold_tag:
                n_wrong += 1
    return 100 * n_wrong / n_tokens


def training_times(features: str) -> dict[str, Any]:
    """Measure the time to train a component on four of the shuffled folds: the Z-score by
    `best_z_score`, with all paths and with sampled paths, and the margin. Returns the error on the
    fifth fold and the seconds of each of the "methods"."""
    test, *other_folds = folds("shuffled")
    train = list(chain.from_iterable(other_folds))
    examples = as_examples(train)
    model = linear_block(FEATURES[features])
    fitted: dict[str, tuple[CostSensitiveNER, float]] = {}  # with the seconds
    for name, n_sampled in (("exact", None), ("sampled", FULL["n_sampled"])):
        ner = make_ner(examples, model=model, loss=loss_block("ZScore"))
        _, seconds = timed(partial(fit_z_score, ner, examples, n_sampled))
        fitted[name] = (ner, seconds)
    fitted["margin"] = timed(partial(fitted_margin, train, features))

    error_and_seconds: Measured = {}
    for name, (ner, seconds) in fitted.items():
        predicted = predict(ner, test)[BEST_PATH]
        error_and_seconds[name] = [token_error(predicted), seconds]
    return {"methods": error_and_seconds}


def fit_z_score(ner: CostSensitiveNER, examples: Any, n_sampled: int | None) -> None:
    """Set the weights of a component to the weights with the best Z-score."""
    sequences = ComponentSequences(ner, examples)
    weights = best_z_score(sequences, c2=FULL["timed_c2"], n_sampled=n_sampled)
    sequences.total.write_weights(weights)


def draw(measured_by_size: Mapping[int, Measured]) -> Any:
    """Plot figure 1: the error and the seconds of each method against the number of sequences."""
    sizes = list(measured_by_size)
    with drawing() as figure_class:
        figure = figure_class(figsize=(6.4, 2.7), layout="constrained")
        error_axes, seconds_axes = figure.subplots(1, 2)
        for name, colour in COLOURS.items():
            errors = [measured_by_size[size][name][0] for size in sizes]
            error_axes.plot(sizes, errors, color=colour, label=name, marker=".")
            if name != TRUE:  # which isn't trained
                seconds = [measured_by_size[size][name][1] for size in sizes]
                seconds_axes.plot(sizes, seconds, color=colour, label=name, marker=".")

        for axes, label in ((error_axes, "test error, %"), (seconds_axes, "seconds of training")):
            axes.set(xlabel="training sequences", ylabel=label, xscale="log")
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.minorticks_off()
        seconds_axes.set_yscale("log")
        seconds_axes.yaxis.set_major_formatter("{x:g}")
        figure.legend(*error_axes.get_legend_handles_labels(), loc="outside right center")
        return figure


def figure_1(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Make figure 1, as a picture and as a table."""
    sizes = size["sizes"]
    n_runs = size["n_runs"]
    results = run.grid("figure-1", short_sequences, size=sizes, n_runs=[n_runs])
    measured_by_size: dict[int, Measured] = {}
    for (n_sequences, _), result in results.items():
        measured_by_size[n_sequences] = result["methods"]
    rows: list[list[object]] = []
    for name in COLOURS:
        errors = [measured_of_size[name][0] for measured_of_size in measured_by_size.values()]
        _, seconds = measured_by_size[max(sizes)][name]
        rows.append([name, *errors, f"{seconds:.3f}"])
    header = ["test error, %", *(f"{n} sequences" for n in sizes), f"seconds, {max(sizes)}"]
    return {
        "figure_1": markdown_table(header, rows),
        "last_seed": n_runs - 1,
        "figure": run.picture("z_score", draw(measured_by_size)),
    }


HEADER_1 = ["HMMs", "symbols", TRUE, Z, Z_100, MM_H, Z_H, CRF, f"{MM_H} : {Z}, seconds"]


def table_1(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Make table 1, with the paper's rows and ours for each kind of HMMs."""
    results = run.grid(
        "table-1",
        long_sequences,
        n_symbols=size["symbols"],
        kind=size["kinds"],
        n_hmms=[size["n_hmms"]],
        n_runs=[size["times"]],
    )
    rows = [["paper", n_symbols, *paper_row(PAPER_1[n_symbols])] for n_symbols in size["symbols"]]
    for kind, n_symbols in product(size["kinds"], size["symbols"]):
        result = results[n_symbols, kind, size["n_hmms"], size["times"]]
        rows.append([kind, n_symbols, *our_row(result)])
    return {"table_1": markdown_table(HEADER_1, rows)}


def paper_row(published: Mapping[str, Sequence[float]]) -> list[object]:
    """Format the paper's figures for a row of table 1, from the third column on: errors, with
    seconds in brackets. `published` contains both, by method."""
    cells: list[str] = []
    for name in (Z, Z_100, MM_H):
        error, seconds = published[name]
        cells.append(f"{error:.2f} ({seconds:.2f})")
    return ["", *cells, "", "", ratio_of_seconds(published)]


def our_row(result: Mapping[str, Any]) -> list[object]:
    """Format our figures for a row of table 1, from the third column on. For Z, this includes the
    lowest and highest error on an HMM. `result` is the result of `long_sequences`."""
    means: Measured = result["methods"]
    true_error, _ = means[TRUE]
    row: list[object] = [true_error]
    for name in (Z, Z_100, MM_H, Z_H, CRF):
        error, seconds = means[name]
        cell = f"{error:.2f} ({seconds:.3f})"
        if name == Z:
            errors = [means_of_hmm[Z][0] for means_of_hmm in result["of_each"]]
            cell += f" [{min(errors):.2f}, {max(errors):.2f}]"
        row.append(cell)
    return [*row, ratio_of_seconds(means)]


def ratio_of_seconds(measured: Mapping[str, Sequence[float]]) -> str:
    """Compute how many times as long the margin method takes as the Z-score."""
    _, seconds_of_margin = measured[MM_H]
    _, seconds_of_z_score = measured[Z]
    return f"{seconds_of_margin / seconds_of_z_score:.0f}"


def table_2(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Make table 2, with columns for each way to choose sentences and folds, and the text on the
    chosen settings."""
    sources = size["sources_used"]
    n_folds = size["tested"]
    grid = {"features": [*FEATURES], "source": sources, "fold": range(n_folds)}
    results = run.grid("table-2", named_entities, **grid)
    # A column for each kind of features and each source, with the results of its folds.
    columns = [*product(FEATURES, sources)]
    results_of_columns: list[list[dict[str, Any]]] = []
    for features, source in columns:
        results_of_columns.append([results[features, source, fold] for fold in range(n_folds)])

    errors: dict[str, list[float | str]] = {}  # by method, for each column
    for name in (ALL_O, *METHODS, MM_H):
        errors[name] = [pooled(fold_results, name) for fold_results in results_of_columns]
    errors |= errors_of_iterative_methods(run, size, columns)
    # Methods with the same errors as the Z-score are named below the table.
    same = [name for name in METHODS if name != Z and errors[name] == errors[Z]]
    published = SPEC["paper_2"]
    rows: list[list[object]] = []
    for name, errors_of_method in errors.items():
        if name not in same:
            paper_errors = [paper.get(name, "") for paper in published.values()]
            rows.append([name, *errors_of_method, *paper_errors])
    header = ["error, %", *(f"{features}, {source}" for features, source in columns)]
    header += [f"{features}, paper" for features in published]

    first_column = results_of_columns[0]
    step, word = numpy.mean([result["largest"] for result in first_column], axis=0)
    return {
        "table_2": markdown_table(header, rows),
        "same": "; ".join(same) or "no other",
        "sources": "; ".join(f'"{source}": {SPEC["sources"][source]}' for source in sources),
        "chosen": chosen(first_column, APART),
        "step": step,
        "expected": expected_step(folds(sources[0])),
        "word": word,
    }


def errors_of_iterative_methods(
    run: Runner, size: Mapping[str, Any], columns: Sequence[tuple[str, str]]
) -> dict[str, list[float | str]]:
    """Get the errors of `iterative_methods` for the columns of table 2, by method. A column is a
    kind of features and a source. It is empty for features that these methods are not run with,
    because they take minutes."""
    grid = {
        "source": size["sources_used"],
        "features": size["iterative_features"],
        "fold": range(size["tested"]),
        "n_epochs": [size["hmp_epochs"]],
    }
    results = run.grid("table-2-iterative", iterative_methods, **grid)
    errors: dict[str, list[float | str]] = {}
    for name in (Z_3, MM, MM_H_OPTIMUM, HMP, HMP_AVERAGED):
        errors[name] = []
        for features, source in columns:
            of_column = [
                result
                for (source_of_run, features_of_run, *_), result in results.items()
                if (source_of_run, features_of_run) == (source, features)
            ]
            errors[name].append(pooled(of_column, name) if of_column else "")
    return errors


def expected_step(parts: Sequence[Sequence[Doc]]) -> float:
    """Compute the expected weight of O after O, in addition to the weights of its tags, if nothing
    else were learned:

        K^2 p(O, O) - 2 K p(O) + 1

    with the proportion of transitions from O to O, and the proportion of O among tags. `parts`
    contains the docs of each fold."""
    distinct_tags: set[str] = set()
    transitions: list[tuple[str, str]] = []
    for doc in chain.from_iterable(parts):
        tags = tags_of(doc)
        distinct_tags.update(tags)
        transitions += pairwise(tags)
    n_tags = len(distinct_tags)
    n_both = sum(pair == ("O", "O") for pair in transitions)
    n_outside = sum(pair.count("O") for pair in transitions)
    p_both = n_both / len(transitions)
    p_outside = n_outside / (2 * len(transitions))
    return n_tags**2 * p_both - 2 * n_tags * p_outside + 1


def pooled(results: Sequence[Mapping[str, Any]], name: str) -> float:
    """Compute the error of a method on the tokens of all folds, from the results of
    `named_entities`."""
    errors = [result["methods"][name][0] for result in results]
    n_tokens = [result["tokens"] for result in results]
    return float(numpy.average(errors, weights=n_tokens))


def chosen(results: Sequence[Mapping[str, Any]], name: str) -> str:
    """Format the settings chosen for a method, and the number of folds for each."""
    n_folds: Counter[tuple[float, float]] = Counter()
    for result in results:
        _, setting = result["methods"][name]
        n_folds[setting["c2"], setting["step"]] += 1
    return ", ".join(f"({c2:g}, {step:g}) in {n}" for (c2, step), n in n_folds.most_common())


def times(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Make the table of training times: section 6."""
    results = run.grid("times", training_times, features=size["timed"]).values()
    rows = []
    for method, title in SPEC["timed"].items():
        cells: list[str] = []
        for result in results:
            error, seconds = result["methods"][method]
            cells.append(f"{seconds:.2f} ({error:.2f})")
        rows.append([title, f"*{SPEC['paper_seconds'][method]:.0f}*", *cells])
    header = ["seconds (error, %)", "*S1, paper*", *size["timed"]]
    return {"seconds": markdown_table(header, rows)}


def experiment(run: Runner, size: Mapping[str, Any]) -> Figures:
    """Make figure 1, tables 1 and 2, and the table of training times."""
    return {
        "flags": FEATURES["S2+"]["flags"],
        **figure_1(run, size),
        **table_1(run, size),
        **table_2(run, size),
        **times(run, size),
    }
