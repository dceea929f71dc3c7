"""How much annotation suggestions save: learning curves on an annotated corpus."""

from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from spacy.language import Language
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Config

from ..metrics import text_table
from ..pipeline.component import CostSensitiveNER
from ..pipeline.scorers import compare_tags
from ..training import check_end, prepare, train_online
from .plots import learning_curves
from .suggest import Choice, suggest

RANDOM = "random"
WAYS = ("suggested", RANDOM)


class Plan(NamedTuple):
    """What is simulated.

    start (int): How many docs are annotated at the beginning, drawn at random.
    n (int): How many more in each round.
    share (float): The share of the score of a model of all docs where a curve ends.
    seeds (Sequence[int]): The seeds of what is drawn and of training: a curve of each way for each.
    """

    start: int = 200
    n: int = 200
    share: float = 0.95
    seeds: Sequence[int] = (0,)


class Round(NamedTuple):
    """A model of the docs that are annotated so far.

    docs (int): Their number.
    tokens (int): Their tokens.
    score (float): F of the model or, if it decodes by cost, what it saves: see `savings`.
    """

    docs: int
    tokens: int
    score: float


Learned = Tuple[Language, CostSensitiveNER, Round]
"""A pipeline, its component, and its round."""


class Curve(NamedTuple):
    """The rounds of a way to choose docs.

    way (str): "suggested" or "random".
    seed (int): The seed.
    rounds (List[Round]): The rounds. The last one reached the goal, or there were no more docs.
    """

    way: str
    seed: int
    rounds: List[Round]


class Simulation(NamedTuple):
    """Learning curves.

    measure (str): "F" or "savings".
    everything (List[Round]): The model of all docs, for each seed.
    goal (float): The score where curves end.
    curves (List[Curve]): The curves.
    """

    measure: str
    everything: List[Round]
    goal: float
    curves: List[Curve]

    def to_dict(self) -> Dict[str, Any]:
        """The curves as JSON."""
        curves = [{**c._asdict(), "rounds": [r._asdict() for r in c.rounds]} for c in self.curves]
        everything = [one._asdict() for one in self.everything]
        return {**self._asdict(), "everything": everything, "curves": curves}


def simulate(
    config: Config,
    examples: Sequence[Example],
    dev: Sequence[Example],
    *,
    vocab: Vocab,
    plan: Plan = Plan(),  # noqa: B008
    choice: Choice = Choice(),  # noqa: B008
    on_round: Callable[[str, int, Round], Any] = lambda way, seed, found: None,
) -> Simulation:
    """Draw learning curves, as if an annotated corpus was annotated bit by bit, and a linear model
    trained anew after each round.

    config (Config): A config for `spacy train`, with a linear model.
    examples (Sequence[Example]): The annotated docs.
    dev (Sequence[Example]): Other annotated docs, to score models on.
    vocab (Vocab): The vocabulary of all docs.
    plan (Plan): What to simulate.
    choice (Choice): How docs are suggested.
    on_round (Callable): Gets way ("all", "suggested" or "random"), seed and round after a training.
    RETURNS (Simulation): The curves.
    RAISES (ValueError): If the plan is out of its range, or the config can't be trained so.
    """
    check_plan(plan, len(examples))

    def learn(way: str, seed: int, places: Sequence[int]) -> Learned:
        chosen = [examples[i] for i in sorted(places)]
        nlp, ner = retrain(config, chosen, seed, vocab)
        tokens = sum(len(eg.predicted) for eg in chosen)
        found = Round(len(chosen), tokens, score(nlp, ner, dev))
        on_round(way, seed, found)
        return nlp, ner, found

    models = [learn("all", seed, range(len(examples))) for seed in plan.seeds]
    everything = [found for _, _, found in models]
    goal = plan.share * float(numpy.mean([found.score for found in everything]))
    curves = []
    for seed in plan.seeds:
        order = numpy.random.default_rng(seed).permutation(len(examples)).tolist()
        for way in WAYS:
            follow = partial(following, examples, order, plan.n, choice if way != RANDOM else None)
            learn_chosen = partial(learn, way, seed)
            curves.append(Curve(way, seed, draw(learn_chosen, follow, order[: plan.start], goal)))
    return Simulation("F" if models[0][1].cost is None else "savings", everything, goal, curves)


def draw(
    learn: Callable[[List[int]], Learned],
    follow: Callable[[List[int], Learned], List[int]],
    chosen: List[int],
    goal: float,
) -> List[Round]:
    """Train and choose more docs, until the goal is reached or there are no more."""
    rounds: List[Round] = []
    while True:
        learned = learn(chosen)
        rounds.append(learned[-1])
        more = [] if rounds[-1].score >= goal else follow(chosen, learned)
        if not more:
            return rounds
        chosen = chosen + more


def following(
    examples: Sequence[Example],
    order: Sequence[int],
    n: int,
    choice: Optional[Choice],
    chosen: List[int],
    learned: Learned,
) -> List[int]:
    """The docs to annotate after those chosen: the next of a random order, or those that a model
    suggests.

    RETURNS (List[int]): Their places; none if all are chosen.
    """
    nlp, ner, _ = learned
    known = {*chosen}
    rest = [i for i in order if i not in known]
    if choice is None or not rest:
        return rest[:n]
    pool = (examples[i].predicted.copy() for i in rest)
    return [rest[one.place] for one in suggest(nlp, pool, n, choice, name=ner.name)]


def check_plan(plan: Plan, n_docs: int) -> None:
    """Check a plan.

    RAISES (ValueError): If something is out of its range.
    """
    if n_docs < 2:
        raise ValueError(f"expected at least 2 annotated docs, got {n_docs}")
    if not 0 < plan.start < n_docs:
        raise ValueError(f"start: expected from 1 to {n_docs - 1} of the docs, got {plan.start}")
    if not 0 < plan.share <= 1:
        raise ValueError(f"share: expected more than 0 and at most 1, got {plan.share}")
    if plan.n < 1:
        raise ValueError(f"n: expected at least 1, got {plan.n}")
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
    train_online(ready)
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
    """Describe learning curves."""
    rows: List[List[Any]] = [["docs", "seed", "number", "tokens", found.measure]]
    for curve in found.curves:
        last = curve.rounds[-1]
        rows.append([curve.way, curve.seed, last.docs, last.tokens, f"{last.score:.4f}"])
    for way in WAYS if len(found.everything) > 1 else ():
        ends = [curve.rounds[-1] for curve in found.curves if curve.way == way]
        docs, tokens, mean = numpy.mean(ends, axis=0)
        rows.append([way, "mean", round(docs), round(tokens), f"{mean:.4f}"])
    whole = found.everything[0]
    mean = numpy.mean([one.score for one in found.everything])
    return (
        f"{whole.docs:,} docs, {whole.tokens:,} tokens: {found.measure} {mean:.4f}. "
        f"Docs to annotate for {found.goal:.4f}:\n\n{text_table(rows)}"
    )


def draw_curves(found: Simulation) -> Any:
    """Plot the score by the number of annotated tokens.

    found (Simulation): The curves.
    RETURNS (Figure): The figure.
    RAISES (ImportError): If matplotlib is not installed.
    """
    lines = {
        way: [[one[1:] for one in curve.rounds] for curve in found.curves if curve.way == way]
        for way in WAYS
    }
    return learning_curves(lines, found.goal, ylabel=found.measure)
