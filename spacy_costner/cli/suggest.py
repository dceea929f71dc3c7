"""Suggest the docs to annotate next: those of which a model is least sure."""

from itertools import product
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy
from spacy.attrs import LOWER
from spacy.cli._util import import_code, setup_gpu
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_config, load_model, load_model_from_config, minibatch
from spacy.vocab import Vocab
from thinc.api import Config
from thinc.types import Floats1d
from typer import Argument, Option

from ..decoding import Posterior
from ..metrics import text_table, to_percent
from ..metrics.diverse import Shares, choose_diverse, make_shares
from ..pipeline.annotations import Confidence, annotate, confidence_of, make_prediction
from ..pipeline.component import CostSensitiveNER
from ..pipeline.scorers import compare_tags
from ..progress import progress
from ..readers import Task, check_form, doc_to_task, make_reader, read_texts, save_tasks
from ..readers.files import shown
from ..saving import check_file
from ..training.online import INTERRUPTED
from ..training.token_attrs import read_presets
from .options import CodeOption, GpuOption, NameOption
from .output import JsonOption, errors_shown, print_result
from .plots import ACCENT, MUTED, SECOND, drawing, require_matplotlib, save
from .predictions import get_component, run_before
from .preparation import check_end, prepare, train_online

LEAST_SHARE = 0.02
"""Words with a smaller part of the largest uncertainty of a word of the doc don't count."""

DECAY = 0.5
"""A word that was unsure in a chosen doc is worth half as much in the next one."""

OVERHEAD = 20.0
"""What a doc costs besides its tokens, in tokens."""

Uncertainty = Tuple[Floats1d, Floats1d]
"""Of each doc and of each token. Shapes: (B,), (N,)"""


class Suggestion(NamedTuple):
    """A doc to annotate.

    place (int): Its place among the docs, from 0.
    score (float): How unsure the model is of it.
    doc (Doc): The doc, with the entities that the model predicts.
    """

    place: int
    score: float
    doc: Doc

    def task(self) -> Task:
        """The prediction as a proposal to annotators, with the probability of each entity."""
        task = doc_to_task(self.doc, {"meta": {"score": round(self.score, 4), "doc": self.place}})
        probs = [confidence_of(ent) for ent in self.doc.ents]
        spans = [
            span._replace(extra={**span.extra, "score": 1.0 if prob is None else round(prob, 4)})
            for span, prob in zip(task.spans or (), probs)
        ]
        return task._replace(spans=spans)


def by_entropy(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """The entropy of the path, and of the tag of each token, in nats.

    - sum_y p(y) log p(y)
    """
    probs = posterior.marginals.astype("float64")
    logs = numpy.log(probs, out=numpy.zeros_like(probs), where=probs > 0)
    return posterior.entropy, -(probs * logs).sum(axis=1)


def by_least_confidence(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """The probability that another path than the best is right, and another tag than the most
    probable.

        1 - max_y p(y)

    Culotta & McCallum, 2005, "Reducing Labeling Effort for Structured Prediction Tasks".
    """
    doubts = 1.0 - posterior.marginals.max(axis=1).astype("float64")
    return 1.0 - posterior.best_paths(1)[1][0].astype("float64"), numpy.maximum(doubts, 0.0)


def by_cost(ner: CostSensitiveNER, posterior: Posterior) -> Uncertainty:
    """The expected cost of the tags with the lowest expected cost: what min-cost decoding still
    risks.

        min_a sum_t sum_k p(y_t = k) cost[k, a_t]
    """
    costs = numpy.maximum(ner.expected_costs(posterior), 0.0)
    lengths = posterior.potentials.lengths
    sequence = numpy.repeat(numpy.arange(len(lengths)), lengths)
    return numpy.bincount(sequence, costs, minlength=len(lengths)), costs


MEASURES: Dict[str, Callable[[CostSensitiveNER, Posterior], Uncertainty]] = {
    "cost": by_cost,
    "entropy": by_entropy,
    "least-confidence": by_least_confidence,
}
PRICES = ("token", "doc")


class Choice(NamedTuple):
    """How docs are chosen.

    by (str): How unsure the model is of a doc: "cost", "entropy" or "least-confidence".
    per (str): What a doc costs annotators: by "token", or the same for each "doc".
    diverse (bool): Whether a doc is worth less if the model is unsure of the same words there as in
        docs chosen before.
    """

    by: str = "cost"
    per: str = "token"
    diverse: bool = True


def suggest(
    nlp: Language,
    docs: Iterable[Doc],
    n: int = 100,
    choice: Choice = Choice(),  # noqa: B008
    *,
    name: str = "ner",
    annotated: Iterable[Doc] = (),
) -> List[Suggestion]:
    """Choose the docs whose annotation is worth most, and predict their entities.

    nlp (Language): A trained pipeline.
    docs (Iterable[Doc]): The docs, without annotation or with preset entities. Docs without words
        and those with the same text as one before are left out.
    n (int): How many to choose, at least 1; all if there are fewer.
    choice (Choice): How they are chosen.
    name (str): The name of the component.
    annotated (Iterable[Doc]): Docs that are annotated: those with the same text are left out.
    RETURNS (List[Suggestion]): The docs, in the order in which they were chosen.
    RAISES (ValueError): If there is no such component, or it isn't trained; if there is no doc, or
        something is out of its range.
    """
    check(n, choice)
    ner = get_component(nlp, name)
    if not (ner.labels and ner.model.has_dim("nO")):
        raise ValueError(f"components.{name}: expected a trained component, got one without labels")
    found: List[Suggestion] = []
    shares: List[Shares] = []
    for batch in minibatch(_distinct(docs, annotated), nlp.batch_size):
        some = run_before(nlp, name, [doc for _, doc in batch])
        measured = measure(ner, some, choice.by)
        for (place, _), doc, (score, share) in zip(batch, some, measured):
            found.append(Suggestion(place, score, doc))
            shares.append(share)
    if not found:
        raise ValueError("expected docs with words that are not annotated, got none")
    prices = [len(one.doc) + OVERHEAD if choice.per == "token" else 1.0 for one in found]
    values = numpy.asarray([one.score for one in found]) / prices
    order = choose_diverse(values, shares, n, decay=DECAY if choice.diverse else 1.0)
    predict(ner, [found[i].doc for i in order], nlp.batch_size)
    return [found[i] for i in order]


def check(n: int, choice: Choice) -> None:
    """Check the arguments.

    RAISES (ValueError): If one is out of its range.
    """
    if n < 1:
        raise ValueError(f"n: expected at least 1, got {n}")
    for field, known in (("by", [*MEASURES]), ("per", [*PRICES])):
        if getattr(choice, field) not in known:
            raise ValueError(f"{field}: expected one of {known}, got {getattr(choice, field)!r}")


def _distinct(docs: Iterable[Doc], annotated: Iterable[Doc]) -> Iterator[Tuple[int, Doc]]:
    """The docs with words, each text once whatever its white space, with their places."""
    seen = {_without_space(doc) for doc in annotated}
    for i, doc in enumerate(docs):
        text = _without_space(doc)
        if text and text not in seen:
            seen.add(text)
            yield i, doc


def _without_space(doc: Doc) -> str:
    return "".join(doc.text.split())


def measure(ner: CostSensitiveNER, docs: Sequence[Doc], by: str) -> Iterator[Tuple[float, Shares]]:
    """Measure how unsure a component is of docs.

    ner (CostSensitiveNER): The component.
    docs (Sequence[Doc]): The docs, not all of them empty.
    by (str): The measure.
    YIELDS (Tuple[float, Shares]): For each doc, how unsure it is, and the shares of words in that.
    """
    of_docs, of_tokens = MEASURES[by](ner, ner.posterior(docs, preset=True))
    ends = numpy.cumsum([len(doc) for doc in docs])
    for score, tokens, doc in zip(of_docs.tolist(), numpy.split(of_tokens, ends[:-1]), docs):
        yield max(score, 0.0), make_shares(doc.to_array(LOWER), tokens, LEAST_SHARE)


def predict(ner: CostSensitiveNER, docs: Sequence[Doc], batch_size: int) -> None:
    """Write the entities of docs and their probabilities to the docs.

    ner (CostSensitiveNER): The component.
    docs (Sequence[Doc]): The docs with tokens.
    batch_size (int): How many to predict together.
    """
    settings: Any = Confidence()
    for batch in minibatch(docs, batch_size):
        tokens, posterior = read_presets(batch), ner.posterior(batch, preset=True)
        prediction = make_prediction(ner.decode(posterior), posterior, tokens, settings)
        annotate(batch, prediction, ner.vocab.strings, settings)


SHOWN = 10
"""Docs that are printed."""


WAYS = ("suggested", "random")


class Plan(NamedTuple):
    """What is simulated.

    start (int): How many docs are annotated at the beginning, drawn at random.
    n (int): How many more in each round.
    share (float): The share of the score of models of all docs where a curve ends.
    seeds (Sequence[int]): The seeds of what is drawn and of training: a curve of each way for each.
    """

    start: int = 200
    n: int = 200
    share: float = 0.95
    seeds: Sequence[int] = (0,)


class Round(NamedTuple):
    """A model of the docs that are annotated so far.

    way (str): How they were chosen: "suggested", "random", or "all" of them.
    seed (int): The seed.
    docs (int), tokens (int): The number of docs and of their tokens.
    score (float): F of the model or, if it decodes by cost, what it saves: see `savings`.
    """

    way: str
    seed: int
    docs: int
    tokens: int
    score: float


class Simulation(NamedTuple):
    """Learning curves.

    measure (str): "F" or "savings".
    goal (float): The score where curves end.
    rounds (List[Round]): The rounds of all curves, and models of all docs.
    """

    measure: str
    goal: float
    rounds: List[Round]

    def curves(self, way: str) -> List[List[Round]]:
        """The curves of a way to choose docs, one for each seed."""
        curves: Dict[int, List[Round]] = {}
        for one in self.rounds:
            if one.way == way:
                curves.setdefault(one.seed, []).append(one)
        return [*curves.values()]


def simulate(
    config: Config,
    examples: Sequence[Example],
    dev: Sequence[Example],
    *,
    vocab: Vocab,
    plan: Plan = Plan(),  # noqa: B008
    choice: Choice = Choice(),  # noqa: B008
    on_round: Callable[[Round], Any] = lambda found: None,
) -> Simulation:
    """Draw learning curves, as if an annotated corpus was annotated bit by bit, and a linear model
    trained anew after each round.

    config (Config): A config for `spacy train`, with a linear model.
    examples (Sequence[Example]): The annotated docs.
    dev (Sequence[Example]): Other annotated docs, to score models on.
    vocab (Vocab): The vocabulary of all docs.
    plan (Plan): What to simulate.
    choice (Choice): How docs are suggested.
    on_round (Callable): Gets each round after its training.
    RETURNS (Simulation): The curves.
    RAISES (ValueError): If the plan is out of its range, or the config can't be trained so.
    """
    check_plan(plan, len(examples))
    rounds: List[Round] = []

    def learn(way: str, seed: int, places: Sequence[int]) -> Tuple[Language, CostSensitiveNER]:
        chosen = [examples[i] for i in sorted(places)]
        nlp, ner = retrain(config, chosen, seed, vocab)
        tokens = sum(len(eg.predicted) for eg in chosen)
        rounds.append(Round(way, seed, len(chosen), tokens, score(nlp, ner, dev)))
        on_round(rounds[-1])
        return nlp, ner

    for seed in plan.seeds:
        _, ner = learn("all", seed, range(len(examples)))
    goal = plan.share * float(numpy.mean([found.score for found in rounds]))
    for seed, way in product(plan.seeds, WAYS):
        rest = numpy.random.default_rng(seed).permutation(len(examples)).tolist()
        chosen, rest = rest[: plan.start], rest[plan.start :]
        nlp, ner = learn(way, seed, chosen)
        while rounds[-1].score < goal and rest:
            more = rest[: plan.n]
            if way == WAYS[0]:
                pool = (examples[i].predicted.copy() for i in rest)
                more = [rest[s.place] for s in suggest(nlp, pool, plan.n, choice, name=ner.name)]
            chosen, rest = chosen + more, [i for i in rest if i not in {*more}]
            nlp, ner = learn(way, seed, chosen)
    return Simulation("F" if ner.cost is None else "savings", goal, rounds)


def check_plan(plan: Plan, n_docs: int) -> None:
    """Check a plan.

    RAISES (ValueError): If something is out of its range.
    """
    if not 0 < plan.start < n_docs:
        raise ValueError(
            f"start: expected from 1 to {n_docs - 1}, one less than docs, got {plan.start}"
        )
    if plan.n < 1:
        raise ValueError(f"n: expected at least 1, got {plan.n}")
    if not 0 < plan.share <= 1:
        raise ValueError(f"share: expected more than 0 and at most 1, got {plan.share}")
    if not plan.seeds:
        raise ValueError("seeds: expected at least one, got none")


def retrain(
    config: Config, examples: Sequence[Example], seed: int, vocab: Vocab
) -> Tuple[Language, CostSensitiveNER]:
    """Train the linear model of a config.

    config (Config): A config for `spacy train`. Its corpora are not read.
    examples (Sequence[Example]): The training examples.
    seed (int): The seed.
    vocab (Vocab): The vocabulary of the examples.
    RETURNS (Tuple[Language, CostSensitiveNER]): The pipeline and its component.
    """
    config = config.copy()
    config["training"]["seed"] = seed
    ready = prepare(config, None, lambda nlp, ner: check_end(nlp), lambda nlp: examples, vocab)
    if train_online(ready).reason == INTERRUPTED:
        raise KeyboardInterrupt
    return ready.nlp, ready.ner


def score(nlp: Language, ner: CostSensitiveNER, dev: Sequence[Example]) -> float:
    """F of a pipeline or, if its component decodes by cost, what it saves.

    nlp (Language): The pipeline.
    ner (CostSensitiveNER): Its component.
    dev (Sequence[Example]): Annotated docs.
    RETURNS (float): The score.
    RAISES (ValueError): If the docs have no entities.
    """
    docs = nlp.pipe([eg.predicted.copy() for eg in dev])
    predicted = [Example(doc, eg.reference) for doc, eg in zip(docs, dev)]
    if not any(len(eg.reference.ents) for eg in dev):
        raise ValueError("expected development docs with entities, got none")
    if ner.cost is not None:
        return savings(ner, predicted)
    return float(ner.score(predicted)["ents_f"])


def savings(ner: CostSensitiveNER, examples: Sequence[Example]) -> float:
    """The share of costs that predictions save, compared with no predictions.

        1 - cost(predicted) / cost(O everywhere)

    ner (CostSensitiveNER): The component. It decodes by cost.
    examples (Sequence[Example]): The examples, with predicted docs.
    RETURNS (float): 1 if nothing is wrong; below 0 if no predictions were better.

    Bahnsen et al., 2014, "Example-Dependent Cost-Sensitive Logistic Regression".
    """
    assert ner.cost is not None
    pairs = compare_tags(examples, labels=ner.labels, scheme=ner.tags.scheme.name)
    table = ner.cost(pairs.tags)
    nothing = pairs._replace(
        predicted=numpy.full_like(pairs.predicted, pairs.tags.names.index("O"))
    )
    cost, most = (float(each.look_up(table).sum()) for each in (pairs, nothing))
    return 1.0 - cost / most


def describe_simulation(found: Simulation) -> str:
    """Describe learning curves: what they needed."""
    rows: List[Any] = [["docs", "seed", "number", "tokens", found.measure]]
    for way in ("all", *WAYS):
        ends = [curve[-1] for curve in found.curves(way)]
        rows += [[way, one.seed, one.docs, one.tokens, 100 * one.score] for one in ends]
        if len(ends) > 1:
            docs, tokens, mean = numpy.mean([one[2:] for one in ends], axis=0)
            rows.append([way, "mean", round(docs), round(tokens), 100 * float(mean)])
    return f"Docs for {found.measure} of at least {100 * found.goal:.2f}:\n\n{text_table(rows)}"


def draw_curves(found: Simulation) -> Any:
    """Plot the score by the number of annotated tokens.

    found (Simulation): The curves.
    RETURNS (Figure): The figure.
    RAISES (ImportError): If matplotlib is not installed.
    """
    with drawing() as figure_class:
        figure = figure_class(figsize=(5.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(found.goal, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        for way, colour in zip(WAYS, (ACCENT, SECOND)):
            for i, curve in enumerate(found.curves(way)):
                points = zip(*[one[3:] for one in curve])
                name = None if i else way
                axes.plot(*points, color=colour, linewidth=1.0, marker=".", label=name)
        axes.set(xlabel="annotated tokens", ylabel=f"{found.measure} (%)")
        axes.yaxis.set_major_formatter(to_percent)
        axes.grid(axis="y")
        axes.legend(loc="lower right", frameon=False, fontsize=8)
        return figure


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
