"""How much annotation suggestions save: learning curves on an annotated corpus."""

from itertools import product
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Config

from ..metrics import text_table, to_percent
from ..pipeline.component import CostSensitiveNER
from ..pipeline.online import INTERRUPTED
from ..pipeline.scorers import compare_tags
from ..training import check_end, prepare, train_online
from .plots import ACCENT, MUTED, SECOND, drawing
from .suggest import Choice, suggest

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
