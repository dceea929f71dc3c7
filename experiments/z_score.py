"""The Z-score (Ricci et al.): hidden Markov models in figure 1 and table 1, CoNLL-2002 Spanish in
table 2 and the times of training."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, List, Mapping, Sequence

import numpy
from spacy.tokens import Doc

from spacy_costner.commands.plots import ACCENT, ALERT, MUTED, SECOND, drawing, save
from spacy_costner.commands.runs import Run
from spacy_costner.metrics import markdown_table

from . import z_score_runs as of
from .runner import ROOT, Figures, Runner, listed
from .tagger import FLAGS
from .z_score_runs import CRF, FEATURES, KINDS, METHODS, MM_H, TRUE, Z_100, Z_H, Setting, Z

PAPER_1 = {
    3: {Z: (15.82, 0.88), Z_100: (15.91, 0.43), MM_H: (15.81, 5.63)},
    5: {Z: (10.10, 1.28), Z_100: (10.13, 0.63), MM_H: (10.02, 8.29)},
    7: {Z: (7.49, 1.80), Z_100: (7.58, 0.68), MM_H: (7.22, 10.68)},
    9: {Z: (4.99, 2.48), Z_100: (4.99, 0.69), MM_H: (4.94, 14.24)},
    11: {Z: (4.74, 3.29), Z_100: (4.78, 0.72), MM_H: (4.58, 16.03)},
}
"""The paper's table 1: by the number of symbols, test error in per cent and seconds."""

PAPER_2 = {
    "S1": {Z: 11.66, Z_H: 11.07, MM_H: 10.97, CRF: 12.01},
    "S2": {Z: 8.01, Z_H: 7.89, MM_H: 8.11, CRF: 8.29},
}
"""The paper's table 2: test error in per cent."""

PAPER_SECONDS = {"exact": 9465.34, "sampled": 607.45, "margin": 1043.16}
"""Section 6: the average running times with S1."""

TIMED = {"exact": "Z-score, all paths", "sampled": "Z-score, 150 sampled paths", "margin": MM_H}
SIZES = (10, 20, 50, 100)
FIGURE_RUNS, N_HMMS, N_RUNS = 20, 5, 2
FIGURE = ROOT / "docs" / "figures" / "z_score.svg"
COLOURS = {TRUE: MUTED, Z: ACCENT, Z_H: "#6ea8dc", MM_H: ALERT, CRF: SECOND}
"""What figure 1 shows."""


def draw(found: Mapping[int, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Draw figure 1.

    found (Mapping[int, Mapping[str, Sequence[float]]]): By the number of sequences, of each
        method the error and the seconds.
    path (Path): The picture.
    RAISES (ImportError): If matplotlib is not installed.
    """
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
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)


def figure_1(run: Runner, quick: bool) -> Figures:
    """Figure 1, as a picture and as a table."""
    sizes, n_runs = (SIZES[:2], 5) if quick else (SIZES, FIGURE_RUNS)
    results = run(
        [
            Run(f"figure-1-{size}", of.short_sequences, {"size": size, "n_runs": n_runs})
            for size in sizes
        ]
    )
    found = {size: result["methods"] for size, result in zip(sizes, results)}
    draw(found, run.folder / FIGURE.name if quick else FIGURE)
    last = found[max(sizes)]
    rows = [
        [name, *(of_size[name][0] for of_size in found.values()), f"{last[name][1]:.3f}"]
        for name in COLOURS
    ]
    header = ["test error, %", *(f"{size} sequences" for size in sizes), f"seconds, {max(sizes)}"]
    return {"figure_1": markdown_table(header, rows), "n_runs": n_runs, "last_seed": n_runs - 1}


HEADER_1 = ["symbols", TRUE, Z, Z_100, MM_H, Z_H, CRF, f"{MM_H} : {Z}, seconds"]


def table_1(run: Runner, quick: bool) -> Figures:
    """Table 1, for HMMs of each kind."""
    symbols, kinds = ((3, 7), list(KINDS)[:1]) if quick else (tuple(PAPER_1), list(KINDS))
    sizes = {"n_hmms": 2, "n_runs": 1} if quick else {"n_hmms": N_HMMS, "n_runs": N_RUNS}
    results = iter(
        run(
            [
                Run(
                    f"table-1-{kind.split()[0]}-{n}",
                    of.long_sequences,
                    {"error": PAPER_1[n][MM_H][0], "n_symbols": n, "kind": kind, **sizes},
                )
                for kind in kinds
                for n in symbols
            ]
        )
    )
    parts = []
    for kind in kinds:
        found = {n: next(results) for n in symbols}
        rows = [table_1_row(n, result) for n, result in found.items()]
        drawn = listed([result["drawn"] for result in found.values()])
        parts.append(
            f"HMMs {KINDS_IN_WORDS[kind]} ({drawn} drawn):\n\n{markdown_table(HEADER_1, rows)}"
        )
    return {"table_1": "\n\n".join(parts), "n_hmms": sizes["n_hmms"], "times": sizes["n_runs"]}


KINDS_IN_WORDS = {kind: "of any kind" if kind == "any" else f"with {kind}" for kind in KINDS}


def table_1_row(n_symbols: int, result: Mapping[str, Any]) -> List[object]:
    """A row of table 1."""
    found, paper = result["methods"], PAPER_1[n_symbols]
    row: List[object] = [n_symbols, found[TRUE][0]]
    for name in (Z, Z_100, MM_H, Z_H, CRF):
        cell = "{:.2f} ({:.3f})".format(*found[name])
        if name == Z:
            errors = [of_one[Z][0] for of_one in result["of_each"]]
            cell += f" {min(errors):.2f} to {max(errors):.2f}"
        row.append("*{:.2f} ({:.2f})* ".format(*paper[name]) + cell if name in paper else cell)
    return [*row, f"{found[MM_H][1] / found[Z][1]:.0f}"]


def table_2(run: Runner, quick: bool) -> Figures:
    """Table 2, for each way to have sentences and folds; and what was chosen for it."""
    sources, n_folds = (["shuffled"], 2) if quick else (list(of.SOURCES), of.N_FOLDS)
    columns = [(features, source) for features in FEATURES for source in sources]
    results = iter(
        run(
            [
                Run(
                    f"table-2-{source}-{features}-{fold}",
                    of.named_entities,
                    {"source": source, "features": features, "fold": fold},
                )
                for features, source in columns
                for fold in range(n_folds)
            ]
        )
    )
    found = {column: [next(results) for _ in range(n_folds)] for column in columns}
    rows = [
        [name, *(pooled(found[column], name) for column in columns)]
        for name in (of.ALL_O, *METHODS, MM_H)
    ]
    published = [
        [f"*{name}, paper*", *(PAPER_2[features[:2]][name] for features, _ in columns)]
        for name in (Z, Z_H, MM_H, CRF)
    ]
    header = ["error, %", *(f"{features}, {source}" for features, source in columns)]
    first = found[columns[0]]
    step, word = numpy.mean([result["largest"] for result in first], axis=0)
    return {
        "table_2": markdown_table(header, rows + published),
        "tested": n_folds,
        "sources": "; ".join(f'"{source}": {of.SOURCES[source]}' for source in sources),
        "chosen": chosen(first, of.APART),
        "step": step,
        "expected": expected_step(of.folds(sources[0])),
        "word": word,
    }


def expected_step(parts: Sequence[Sequence[Doc]]) -> float:
    """The weight that O after O has beyond those of its tags, were nothing else to be learned:

        K^2 p(O, O) - 2 K p(O) + 1

    parts (Sequence[Sequence[Doc]]): The docs.
    """
    sequences = [of.tags_of(doc) for part in parts for doc in part]
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
    settings = Counter(Setting(*result["methods"][name][1]) for result in results)
    return ", ".join(
        f"({setting.c2:g}, {setting.step:g}) in {n}" for setting, n in settings.most_common()
    )


def times(run: Runner, quick: bool) -> Figures:
    """The times of section 6."""
    features = ["S1"] if quick else ["S1", "S2"]
    results = run(
        [Run(f"times-{name}", of.training_times, {"features": name}) for name in features]
    )
    rows = []
    for key, label in TIMED.items():
        ours = [result["methods"][key] for result in results]
        cells = (f"{seconds:.2f} ({error:.2f})" for error, seconds in ours)
        rows.append([label, f"*{PAPER_SECONDS[key]:.0f}*", *cells])
    return {"seconds": markdown_table(["seconds (error, %)", "*S1, paper*", *features], rows)}


def experiment(run: Runner, quick: bool) -> Figures:
    """Figure 1, tables 1 and 2, and the times."""
    found: Figures = {}
    for part in (figure_1, table_1, table_2, times):
        found |= part(run, quick)
    return {
        **found,
        "n_test": of.N_TEST,
        "long": of.LONG,
        "n_training": of.N_TRAINING,
        "near": of.NEAR,
        "n_judging": of.N_JUDGING,
        "c2": of.C2,
        "crf_c2": of.CRF_C2,
        "margin": of.MARGIN,
        "n_sentences": of.N_SENTENCES,
        "flags": listed(FLAGS),
        "penalties": listed(of.PENALTIES),
        "low_penalties": listed(of.LOW_PENALTIES),
        "n_epochs": of.EPOCHS,
        "n_sampled": of.N_SAMPLED,
        "figure": FIGURE.name,
    }
