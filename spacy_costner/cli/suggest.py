"""Suggest the docs to annotate next: those of which a model is least sure. `simulate` shows what
that saves on a corpus that is annotated already."""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
)

import numpy
import typer
from spacy.attrs import LOWER
from spacy.cli._util import import_code, setup_gpu
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_model, load_model_from_config, minibatch
from spacy.vocab import Vocab
from thinc.api import Config
from thinc.types import Floats1d
from typer import Argument, Option

from ..decoding import Posterior
from ..metrics import as_json, text_table, to_percent
from ..metrics.diverse import Shares, choose_diverse, make_shares
from ..pipeline.annotations import Confidence, prob_of
from ..pipeline.component import CostSensitiveNER
from ..pipeline.scorers import compare_tags
from ..progress import progress
from ..readers import Task, check_task_form, doc_to_task, make_reader, read_texts, save_tasks
from ..readers.files import shown
from ..saving import check_file
from .options import CodeOption, GpuOption, NameOption, options_of, read_config, read_overrides
from .output import JsonOption, errors_shown, print_result, save_text
from .plots import ACCENT, DASHED, SECOND, drawing, require_matplotlib, save
from .predictions import check_ents, get_component, predict, run_before
from .preparation import fit_linear, load_linear

LEAST_SHARE = 0.02
"""Words with a smaller part of the largest uncertainty of a word of the doc don't count."""

DECAY = 0.5
"""A word that was unsure in a chosen doc is worth half as much in the next one."""

OVERHEAD = 20.0
"""What a doc costs besides its tokens, in tokens."""

PER_WORD = 10.0
"""What each of its words that the model is unsure of costs besides, in tokens. Without it, lists of
names come first."""

WAYS = ("suggested", "random")
N_SHOWN = 10


# How unsure a model is of each doc and of each token. Shapes: (B,), (N,)


def by_entropy(ner: CostSensitiveNER, posterior: Posterior) -> tuple[Floats1d, Floats1d]:
    """The entropy of the path, and of the tag of each token, in nats: - sum_y p(y) log p(y)"""
    probs = posterior.marginals.astype("float64")
    logs = numpy.log(probs, out=numpy.zeros_like(probs), where=probs > 0)
    return posterior.entropy, -(probs * logs).sum(axis=1)


def by_least_confidence(ner: CostSensitiveNER, posterior: Posterior) -> tuple[Floats1d, Floats1d]:
    """The probability of all paths but the best, and of all tags but the best: 1 - max_y p(y)

    Culotta & McCallum, 2005, "Reducing Labeling Effort for Structured Prediction Tasks".
    """
    doubts = 1.0 - posterior.marginals.max(axis=1).astype("float64")
    return -numpy.expm1(posterior.best_paths(1)[1][0]), numpy.maximum(doubts, 0.0)


def by_cost(ner: CostSensitiveNER, posterior: Posterior) -> tuple[Floats1d, Floats1d]:
    """The lowest expected cost of tags: min_a sum_t sum_k p(y_t = k) cost[k, a_t]"""
    costs = numpy.maximum(ner.expected_costs(posterior), 0.0)
    lengths = posterior.doc_lengths
    sequence = numpy.repeat(numpy.arange(len(lengths)), lengths)
    return numpy.bincount(sequence, costs, minlength=len(lengths)), costs


MEASURES = {"cost": by_cost, "entropy": by_entropy, "least-confidence": by_least_confidence}


class Suggestion(NamedTuple):
    """A doc to annotate, with the entities that the model predicts."""

    place: int  # among the docs, from 0
    score: float  # how unsure the model is of it
    doc: Doc

    def task(self) -> Task:
        """The prediction as a proposal to annotators, with the probability of each entity."""
        task = doc_to_task(self.doc, {"meta": {"score": round(self.score, 4), "doc": self.place}})
        probs = [prob_of(ent) for ent in self.doc.ents]
        spans = [
            span._replace(extra={**span.extra, "score": 1.0 if prob is None else round(prob, 4)})
            for span, prob in zip(task.spans or (), probs)
        ]
        return task._replace(spans=spans)


def suggest(
    nlp: Language,
    docs: Iterable[Doc],
    n: Annotated[int, Option("--n", "-n", help="Number of docs, or of each round", min=1)] = 200,
    *,
    by: Annotated[
        Literal["cost", "entropy", "least-confidence"],
        Option("--by", help="How unsure the model is"),
    ] = "cost",
    per: Annotated[Literal["token", "doc"], Option("--per", help="Price of a doc")] = "token",
    diverse: Annotated[bool, Option(help="The same words count less in further docs")] = True,
    name: NameOption = "ner",
    annotated: Iterable[Doc] = (),
) -> list[Suggestion]:
    """Choose the docs whose annotation is worth most, and predict their entities.

    docs (Iterable[Doc]): The docs, without annotation or with preset entities. Docs without words
        and those with the same text as one before are left out.
    n (int): How many to choose, at least 1; all if there are fewer.
    diverse (bool): Whether a doc is worth less if the model is unsure of the same words there as
        in docs chosen before.
    RETURNS (list[Suggestion]): The docs, in the order in which they were chosen.
    RAISES (ValueError): If there is no such component, or it isn't trained; if there is no doc, or
        something is out of its range.
    """
    ner = get_component(nlp, name)
    check_ents("suggest", ner)
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    for setting, value, words in (("by", by, [*MEASURES]), ("per", per, ["token", "doc"])):
        if value not in words:
            raise ValueError(f"{setting}: expected one of {words}, got {value!r}")
    if not (ner.labels and ner.model.has_dim("nO")):
        raise ValueError(f"components.{name}: expected a trained component, got one without labels")

    seen = {"".join(doc.text.split()) for doc in annotated} | {""}
    places = []  # of docs with words, each text once whatever its white space

    def distinct() -> Iterable[Doc]:
        for place, doc in enumerate(docs):
            text = "".join(doc.text.split())
            if text not in seen:
                seen.add(text)
                places.append(place)
                yield doc

    pool: list[Doc] = []
    scores: list[float] = []
    shares: list[Shares] = []
    for batch in minibatch(distinct(), nlp.batch_size):
        batch = run_before(nlp, name, batch)
        of_docs, of_tokens = MEASURES[by](ner, ner.posterior(batch, preset=True))
        ends = numpy.cumsum([len(doc) for doc in batch])
        for doc, tokens in zip(batch, numpy.split(of_tokens, ends[:-1])):
            shares.append(make_shares(doc.to_array(LOWER), tokens, LEAST_SHARE))
        scores += numpy.maximum(of_docs, 0.0).tolist()
        pool += batch
    if not pool:
        raise ValueError("expected docs with words that are not annotated, got none")
    prices = [len(doc) + OVERHEAD + PER_WORD * len(of.kinds) for doc, of in zip(pool, shares)]
    values = numpy.asarray(scores) / (prices if per == "token" else 1.0)
    order = choose_diverse(values, shares, n, decay=DECAY if diverse else 1.0)
    for some in minibatch([pool[i] for i in order], nlp.batch_size):
        predict(ner, some, ner.posterior(some, preset=True), Confidence())
    return [Suggestion(places[i], scores[i], pool[i]) for i in order]


class Round(NamedTuple):
    """A model of the docs that are annotated so far."""

    way: str  # how they were chosen: "suggested", "random" or "all" docs
    seed: int
    docs: int
    tokens: int
    score: float


def curves_of(rounds: Sequence[Round], way: str) -> list[list[Round]]:
    """The curves of a way to choose docs, one for each seed."""
    chosen = [one for one in rounds if one.way == way]
    return [[*curve] for _, curve in groupby(chosen, key=lambda one: one.seed)]


def simulate(
    config: Config,
    examples: Sequence[Example],
    dev: Sequence[Example],
    *,
    vocab: Vocab,
    start: int = 200,
    n: int = 200,
    share: float = 0.95,
    seeds: Sequence[int] = (0,),
    **choice: Any,
) -> dict[str, Any]:
    """Draw learning curves, as if an annotated corpus was annotated bit by bit, and a linear model
    trained anew after each round.

    config (Config): A config for `spacy train`, with a linear model.
    examples (Sequence[Example]): The annotated docs.
    dev (Sequence[Example]): Other annotated docs, to score models on.
    vocab (Vocab): The vocabulary of all docs.
    start (int): How many docs are annotated at the beginning, drawn at random.
    n (int): How many more in each round.
    share (float): The share of the score of models of all docs where a curve ends.
    seeds (Sequence[int]): The seeds of what is drawn and of training: a curve of each way for each.
    **choice (Any): How docs are suggested, `by`, `per` and `diverse`: see `suggest`.
    RETURNS (dict[str, Any]): The "measure", "F" or "savings"; the "goal"; and the "rounds" up to
        it, with those of models of all docs: see `curves_of`.
    RAISES (ValueError): If something is out of its range, or the config can't be trained so.
    """
    if not 0 < start < len(examples):
        raise ValueError(
            f"start: expected from 1 to {len(examples) - 1}, one less than docs, got {start}"
        )
    if not 0 < share <= 1:
        raise ValueError(f"share: expected more than 0 and at most 1, got {share}")
    if not seeds:
        raise ValueError("seeds: expected at least one, got none")
    rounds: list[Round] = []
    bar = progress(desc="simulate", unit="training")

    def learn(way: str, seed: int, places: Sequence[int]) -> tuple[Language, CostSensitiveNER]:
        chosen = [examples[i] for i in sorted(places)]
        seeded = config.copy()
        seeded["training"]["seed"] = seed
        linear = load_linear(seeded, vocab)
        check_ents("suggest", linear[1])
        fit_linear(linear, lambda nlp: chosen)
        nlp, ner, _ = linear
        tokens = sum(len(eg.predicted) for eg in chosen)
        rounds.append(Round(way, seed, len(chosen), tokens, score(nlp, ner, dev)))
        bar.set_postfix(rounds[-1]._asdict(), refresh=False)
        bar.update()
        return nlp, ner

    with bar:
        for seed in seeds:
            _, ner = learn("all", seed, range(len(examples)))
        goal = share * float(numpy.mean([one.score for one in rounds]))
        choice["name"] = ner.name
        for seed, way in product(seeds, WAYS):
            rest = numpy.random.default_rng(seed).permutation(len(examples)).tolist()
            chosen, rest = rest[:start], rest[start:]
            nlp, ner = learn(way, seed, chosen)
            while rounds[-1].score < goal and rest:
                more = rest[:n]
                if way == "suggested":
                    pool = (examples[i].predicted.copy() for i in rest)
                    more = [rest[s.place] for s in suggest(nlp, pool, n, **choice)]
                chosen, rest = chosen + more, [i for i in rest if i not in {*more}]
                nlp, ner = learn(way, seed, chosen)
    return {"measure": "F" if ner.cost is None else "savings", "goal": goal, "rounds": rounds}


def score(nlp: Language, ner: CostSensitiveNER, dev: Sequence[Example]) -> float:
    """F of a pipeline or, if its component decodes by cost, the share of costs that its
    predictions save, compared with no predictions; below 0 if these were better.

        1 - cost(predicted) / cost(O everywhere)

    RAISES (ValueError): If the docs have no entities.

    Bahnsen et al., 2014, "Example-Dependent Cost-Sensitive Logistic Regression".
    """
    if not any(len(eg.reference.ents) for eg in dev):
        raise ValueError("expected development docs with entities, got none")
    docs = nlp.pipe([eg.predicted.copy() for eg in dev])
    predicted = [Example(doc, eg.reference) for doc, eg in zip(docs, dev)]
    if ner.cost is None:
        return float(ner.score(predicted)["ents_f"])
    pairs = compare_tags(predicted, labels=ner.labels, scheme=ner.tags.scheme.name)
    table, outside = ner.cost(pairs.tags), pairs.tags.names.index("O")
    nothing = pairs._replace(predicted=numpy.full_like(pairs.predicted, outside))
    return 1.0 - float(pairs.look_up(table).sum()) / float(nothing.look_up(table).sum())


@options_of(suggest)
def suggest_cli(
    ctx: typer.Context,
    model: Annotated[
        str,
        Argument(help="Trained pipeline; with --simulate also a config of a linear model, .cfg"),
    ],
    pool_path: Annotated[
        Path,
        Argument(help="Docs to choose from: .txt with a text a line, or a corpus", exists=True),
    ],
    output_path: Annotated[
        Path | None,
        Option("--output", "-o", help="Output file: docs with predicted entities, or the curves"),
    ] = None,
    form: Annotated[
        str, Option("--format", "-f", help="Form of the output: prodigy, doccano, label-studio")
    ] = "prodigy",
    annotated_path: Annotated[
        Path | None,
        Option("--annotated", help="Annotated corpus: its texts are left out", exists=True),
    ] = None,
    dev_path: Annotated[
        Path | None,
        Option("--simulate", help="Learning curves, scored on this annotated corpus", exists=True),
    ] = None,
    start: Annotated[
        int, Option("--start", help="With --simulate: number of docs of the beginning", min=1)
    ] = 200,
    seeds: Annotated[
        str, Option("--seeds", "-s", help="With --simulate: comma-separated random seeds")
    ] = "0",
    share: Annotated[
        float,
        Option("--share", help="With --simulate: where curves end, as a share of F of all docs"),
    ] = 0.95,
    plot_path: Annotated[
        Path | None, Option("--plot", help="With --simulate: output file for a plot")
    ] = None,
    *,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
    **choice: Any,
) -> None:
    """
    Choose the docs whose annotation is worth most: those of which the model is least sure, and
    not the same words over and over. Writes them with the entities that the model predicts, and
    their probabilities, for Prodigy, doccano or Label Studio.

    With --simulate, the docs are an annotated corpus. The linear model is trained again and
    again, with more and more suggested docs, and with random ones. Writes the curves as JSON.
    Override settings of a config as in `spacy train`, e.g. --nlp.lang es.
    """
    overrides = read_overrides(ctx)
    with errors_shown():
        for path in (output_path, plot_path):
            check_file(path, [p for p in (model, pool_path, annotated_path, dev_path) if p])
        setup_gpu(use_gpu, silent=True)
        import_code(code_path)
        is_config = dev_path is not None and model.endswith(".cfg")
        if overrides and not is_config:
            raise ValueError(f"expected a config and --simulate with settings, got {[*overrides]}")
        if dev_path is None:
            if output_path is None:
                raise ValueError("expected --output, a file for the docs, or --simulate")
            check_task_form(form, output_path)
            nlp = load_model(model)
            known = () if annotated_path is None else read_texts(nlp, annotated_path)
            pool = progress(read_texts(nlp, pool_path), desc="suggest", unit="doc")
            docs = suggest(nlp, pool, annotated=known, **choice)
            save_tasks(output_path, (one.task() for one in docs), form)
            (result, text), plot_path = describe(docs), None
        else:
            if plot_path is not None:
                require_matplotlib()
            if is_config:
                config = read_config(model, overrides)
                nlp = load_model_from_config(config, auto_fill=True)
            else:
                nlp = load_model(model)
                config = nlp.config
            train, dev = (list(make_reader(path)(nlp)) for path in (pool_path, dev_path))
            plan: Any = {"start": start, "share": share, **choice}
            del plan["name"]
            plan["seeds"] = [int(seed) for seed in seeds.split(",")]
            result = simulate(config, train, dev, vocab=nlp.vocab, **plan)
            if output_path is not None:
                save_text(output_path, json.dumps(as_json(result)))
            if plot_path is not None:
                save(draw(result), plot_path)
            text = describe_simulation(result)
    print_result(result, text, print_json, output_path, plot_path)


def describe(docs: Sequence[Suggestion]) -> tuple[dict[str, Any], str]:
    """Describe suggestions, as JSON and as text: their number, and the first of them."""
    names = ["text", "doc", "score", "tokens", "entities"]
    rows = [
        (one.doc.text, one.place, round(one.score, 4), len(one.doc), len(one.doc.ents))
        for one in docs
    ]
    table = text_table([names, *([shown(row[0]), *row[1:]] for row in rows[:N_SHOWN])])
    summary = f"{len(docs):,} docs, {sum(row[3] for row in rows):,} tokens"
    return {"docs": [dict(zip(names, row)) for row in rows]}, f"{table}\n\n{summary}"


def describe_simulation(found: dict[str, Any]) -> str:
    """Describe learning curves: what they needed."""
    rows: list[Any] = [["docs", "seed", "number", "tokens", found["measure"]]]
    for way in ("all", *WAYS):
        ends = [curve[-1] for curve in curves_of(found["rounds"], way)]
        rows += [[way, one.seed, one.docs, one.tokens, 100 * one.score] for one in ends]
        if len(ends) > 1:
            docs, tokens, mean = numpy.mean([one[2:] for one in ends], axis=0)
            rows.append([way, "mean", round(docs), round(tokens), 100 * float(mean)])
    title = "Docs for {} of at least {:.2f}:".format(found["measure"], 100 * found["goal"])
    return f"{title}\n\n{text_table(rows)}"


def draw(found: dict[str, Any]) -> Any:
    """Plot the score by the number of annotated tokens."""
    with drawing() as figure_class:
        figure = figure_class(figsize=(5.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(found["goal"], **DASHED)
        for way, colour in zip(WAYS, (ACCENT, SECOND)):
            for i, curve in enumerate(curves_of(found["rounds"], way)):
                points = zip(*[one[3:] for one in curve])
                name = None if i else way
                axes.plot(*points, color=colour, linewidth=1.0, marker=".", label=name)
        axes.set(xlabel="annotated tokens", ylabel=f"{found['measure']} (%)")
        axes.yaxis.set_major_formatter(to_percent)
        axes.grid(axis="y")
        axes.legend(loc="lower right", frameon=False, fontsize=8)
        return figure
