"""`python -m spacy costner suggest`."""

from pathlib import Path
from typing import Annotated, Any, Dict, List, Optional, Sequence

from spacy.cli._util import import_code, setup_gpu
from spacy.util import load_config, load_model, load_model_from_config
from typer import Argument, Option

from ..commands.learning_curve import (
    Plan,
    Round,
    Simulation,
    describe_simulation,
    draw_curves,
    simulate,
)
from ..commands.plots import require_matplotlib, save
from ..commands.suggest import Choice, Suggestion, check, suggest
from ..metrics import text_table
from ..progress import progress
from ..readers import check_form, make_reader, read_texts, save_tasks
from ..readers.files import shown
from ..saving import check_file
from .options import CodeOption, GpuOption, NameOption
from .output import JsonOption, errors_shown, print_result

SHOWN = 10
"""Docs that are printed."""


def suggest_cli(
    model: Annotated[
        str,
        Argument(help="Trained pipeline; with --simulate also a config of a linear model, .cfg"),
    ],
    pool_path: Annotated[
        Path,
        Argument(help="Docs to choose from: .txt with a text a line, or a corpus", exists=True),
    ],
    output_path: Annotated[
        Optional[Path],
        Option("--output", "-o", help="Output file: the docs with the entities that are predicted"),
    ] = None,
    form: Annotated[
        str, Option("--format", "-f", help="Form of the output: prodigy, doccano, label-studio")
    ] = "prodigy",
    n: Annotated[int, Option("--n", "-n", help="Number of docs, or of those of a round")] = 200,
    by: Annotated[
        str, Option("--by", help="How unsure the model is: cost, entropy, least-confidence")
    ] = Choice().by,
    per: Annotated[
        str, Option("--per", help="What a doc costs annotators: by token, or the same for each doc")
    ] = Choice().per,
    diverse: Annotated[
        bool, Option(help="Whether the same unsure words count less in further docs")
    ] = True,
    annotated_path: Annotated[
        Optional[Path],
        Option("--annotated", help="Annotated corpus: its texts are left out", exists=True),
    ] = None,
    dev_path: Annotated[
        Optional[Path],
        Option("--simulate", help="Learning curves, scored on this annotated corpus", exists=True),
    ] = None,
    start: Annotated[
        int, Option("--start", help="With --simulate: number of docs of the beginning")
    ] = Plan().start,
    seeds: Annotated[
        str, Option("--seeds", "-s", help="With --simulate: comma-separated random seeds")
    ] = "0",
    share: Annotated[
        float,
        Option("--share", help="With --simulate: where curves end, as a share of F of all docs"),
    ] = Plan().share,
    plot_path: Annotated[
        Optional[Path], Option("--plot", help="With --simulate: output file for a plot")
    ] = None,
    print_json: JsonOption = False,
    name: NameOption = "ner",
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Choose the docs whose annotation is worth most: those of which the model is least sure, and
    not the same words over and over. Writes them with the entities that the model predicts, and
    their probabilities, for Prodigy, doccano or Label Studio.

    With --simulate, the docs are an annotated corpus. The linear model is trained again and
    again, with more and more suggested docs, and with random ones.
    """
    choice = Choice(by, per, diverse)
    with errors_shown():
        check(n, choice)
        for path in (output_path, plot_path):
            check_file(path, [p for p in (model, pool_path, annotated_path, dev_path) if p])
        setup_gpu(use_gpu, silent=True)
        import_code(code_path)
        if dev_path is None:
            if output_path is None:
                raise ValueError("expected --output, a file for the docs, or --simulate")
            check_form(form, output_path)
            nlp = load_model(model)
            known = () if annotated_path is None else read_texts(nlp, annotated_path)
            pool = progress(read_texts(nlp, pool_path), desc="suggest", unit="doc")
            found = suggest(nlp, pool, n, choice, name=name, annotated=known)
            save_tasks(output_path, (one.task() for one in found), form)
            written: Optional[Path] = output_path
            result: Any = {"docs": as_rows(found)}
            text = describe(found)
        else:
            plan = Plan(start, n, share, [int(seed) for seed in seeds.split(",")])
            curves = run_simulation(model, pool_path, dev_path, plan, choice, plot_path)
            result, text, written = curves, describe_simulation(curves), plot_path
    print_result(result, text, print_json, written)


def run_simulation(
    model: str,
    corpus_path: Path,
    dev_path: Path,
    plan: Plan,
    choice: Choice,
    plot_path: Optional[Path],
) -> Simulation:
    """Read the corpora, simulate with a progress bar, and draw the plot."""
    if plot_path is not None:
        require_matplotlib()
    if model.endswith(".cfg"):
        config = load_config(model, interpolate=False)
        nlp = load_model_from_config(config, auto_fill=True)
    else:
        nlp = load_model(model)
        config = nlp.config
    corpora = [list(make_reader(path)(nlp)) for path in (corpus_path, dev_path)]
    with progress(desc="simulate", unit="training") as bar:

        def on_round(found: Round) -> None:
            bar.set_postfix(found._asdict(), refresh=False)
            bar.update()

        curves = simulate(
            config, *corpora, vocab=nlp.vocab, plan=plan, choice=choice, on_round=on_round
        )
    if plot_path is not None:
        save(draw_curves(curves), plot_path)
    return curves


def as_rows(found: Sequence[Suggestion]) -> List[Dict[str, Any]]:
    """The suggestions as JSON."""
    return [
        {
            "doc": one.place,
            "score": round(one.score, 4),
            "tokens": len(one.doc),
            "entities": len(one.doc.ents),
            "text": one.doc.text,
        }
        for one in found
    ]


def describe(found: Sequence[Suggestion]) -> str:
    """Describe suggestions: their number, and the first of them."""
    rows = [
        [shown(row["text"]), *(row[key] for key in ("doc", "score", "tokens", "entities"))]
        for row in as_rows(found[:SHOWN])
    ]
    n_tokens = sum(len(one.doc) for one in found)
    table = text_table([["text", "doc", "score", "tokens", "entities"], *rows])
    return f"{table}\n\n{len(found):,} docs, {n_tokens:,} tokens"
