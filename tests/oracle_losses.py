"""What each loss means: its definition over the paths that `oracle` enumerates.

`sequences` lists the paths of a batch and what gold says of them; each loss takes that to
its value. Nothing here calls the package.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy

from spacy_costner.types import Gold, Potentials

from . import oracle
from .oracle import Path, Tags, log_sum_exp

Segment = tuple[int, int, Tags]
"""An entity of a path: its first token, the one after its last, its tags."""


class Chain(NamedTuple):
    """One sequence of a batch, of T tokens, and what gold says of it. There are K tags."""

    paths: list[Path]  # all legal paths
    right: list[Path]  # the legal paths that agree with gold
    wrong: list[Path]  # the legal paths that don't
    gold: Tags  # the gold tags, -1 where annotation is missing
    allowed: numpy.ndarray  # True for the tags that agree with gold. (T, K)
    cost: numpy.ndarray  # the cost of predicting each tag. (T, K)
    token_weights: numpy.ndarray  # (T,)
    weight: float  # the weight of the sequence
    opening: numpy.ndarray  # True for tags that begin an entity. (K,)
    continuing: numpy.ndarray  # True for tags that go on with the entity before. (K,)
    is_right: Callable[[int, Tags], bool]  # whether a path agrees with gold at a token
    features: list[list[Any]]  # the features of each token, each of the value 1
    goes_on: numpy.ndarray  # True for tags after which an entity may go on. (K,)
    on_chain: Callable[[Tags], Tags]  # takes a path of annotation to the tags of the chain

    def costs(self, y: Tags) -> float:
        """C(y*, y) = sum_t cost[t, y_t]"""
        return math.fsum(float(self.cost[t, tag]) for t, tag in enumerate(y))

    def raised(self, multiplier: float) -> list[float]:
        """Compute s(y) + m C(y*, y) of each path, with the multiplier m."""
        return [path.score + multiplier * self.costs(path.tags) for path in self.paths]

    @property
    def annotated(self) -> bool:
        """Whether gold rules out any path."""
        return bool(self.wrong)


Batch = list[Chain]


class Split(NamedTuple):
    """How tags of annotation become tags of a chain that has several tags for O."""

    chain_tag: Tags  # for each tag of annotation a tag of the chain. (K,)
    path: Callable[[Tags], Tags]  # takes a path of annotation to the path of the chain


Ends = Callable[[int, int, Tags], bool]
"""Whether an incorrect entity ends at a token: takes the number of a sequence, the number of the
token in it, and a path."""


def sequences(
    potentials: Potentials,
    gold: Gold,
    ends_incorrect: Ends = lambda b, t, y: False,
    split: Split | None = None,
) -> Batch:
    """List the paths of each sequence, and what gold says of them. Paths and gold have the tags of
    annotation; the potentials have the tags of the chain, if `split` is given."""
    # Defaults of what gold doesn't have: no tag opens or continues an entity, mistakes cost
    # nothing, and all tokens and sequences have the weight 1.
    n_tokens = len(potentials.emissions)
    n_tags = len(_or(gold.opening, potentials.start))
    gold_tags = numpy.asarray(gold.tags)
    no_tags = numpy.zeros(n_tags, dtype=bool)
    opening = _or(gold.opening, no_tags)
    continuing = _or(gold.continuing, no_tags)
    allowed = _or(gold.allowed, gold_tags[:, None] == numpy.arange(n_tags))
    cost = numpy.broadcast_to(_or(gold.costs, 0.0), (n_tokens, n_tags))
    token_weights = numpy.broadcast_to(_or(gold.token_weights, 1.0), n_tokens)
    weights = numpy.broadcast_to(_or(gold.weights, 1.0), len(potentials.lengths))

    if split is None:
        split = Split(chain_tag=tuple(range(n_tags)), path=lambda y: y)

    batch = []
    for b, tokens in enumerate(oracle.spans(potentials)):
        length = tokens.stop - tokens.start
        score = oracle.scorer(potentials, b)
        all_paths = [Path(y, score(split.path(y))) for y in product(range(n_tags), repeat=length)]
        paths = [path for path in all_paths if path.score > -math.inf]

        mask = allowed[tokens]

        def is_right(t: int, y: Tags, b: int = b, mask: numpy.ndarray = mask) -> bool:
            return bool(mask[t, y[t]]) and not ends_incorrect(b, t, y)

        right = []
        wrong = []
        for path in paths:
            if all(is_right(t, path.tags) for t in range(length)):
                right.append(path)
            else:
                wrong.append(path)

        if gold.features is None:
            token_features = [[("token", t)] for t in range(length)]
        else:
            token_features = [row[row >= 0].tolist() for row in gold.features[tokens]]

        chain = Chain(
            paths=paths,
            right=right,
            wrong=wrong,
            gold=tuple(gold_tags[tokens].tolist()),
            allowed=mask,
            cost=cost[tokens],
            token_weights=token_weights[tokens],
            weight=float(weights[b]),
            opening=opening,
            continuing=continuing,
            is_right=is_right,
            features=token_features,
            goes_on=goes_on(potentials, numpy.asarray(split.chain_tag), continuing),
            on_chain=split.path,
        )
        batch.append(chain)
    return batch


def goes_on(
    potentials: Potentials, chain_tag: numpy.ndarray, continuing: numpy.ndarray
) -> numpy.ndarray:
    """Whether a continuing tag may follow each tag of annotation. Shape: (K,)"""
    steps = potentials.transitions[numpy.ix_(chain_tag, chain_tag[continuing])]
    return (steps > -math.inf).any(axis=1)


def _or(array: Any | None, default: Any) -> Any:
    """What gold says, or else a default."""
    return default if array is None else array


def scores(paths: Sequence[Path]) -> list[float]:
    """s(y) of each path."""
    return [path.score for path in paths]


# The likelihood


def sequential(batch: Batch) -> float:
    """log Z - log sum_{y in Y*} exp s(y)"""
    return math.fsum(
        c.weight * (log_sum_exp(scores(c.paths)) - log_sum_exp(scores(c.right))) for c in batch
    )


def pointwise(batch: Batch) -> float:
    """- sum_t w_t log p(y_t in allowed_t)"""
    return -math.fsum(
        c.weight * float(c.token_weights[t]) * log_right(c, t)
        for c in batch
        for t in range(len(c.gold))
    )


def log_right(c: Chain, t: int) -> float:
    """log p(y_t in allowed_t)"""
    right = [path for path in c.paths if c.is_right(t, path.tags)]
    return log_sum_exp(scores(right)) - log_sum_exp(scores(c.paths))


def mixed(batch: Batch, lam: float) -> float:
    """lam Sequential + (1 - lam) Pointwise"""
    return lam * sequential(batch) + (1 - lam) * pointwise(batch)


def mixed_margin(batch: Batch, lam: float, multiplier: float) -> float:
    """The same of the paths with their scores raised: s(y) + m C(y)"""

    def raised(c: Chain, paths: list[Path]) -> list[Path]:
        return [Path(y, score + multiplier * c.costs(y)) for y, score in paths]

    raised_batch = []
    for c in batch:
        raised_batch.append(c._replace(paths=raised(c, c.paths), right=raised(c, c.right)))
    return mixed(raised_batch, lam)


# Margins and risks


def softmax_margin(batch: Batch, multiplier: float) -> float:
    """log sum_y exp(s(y) + m C(y)) - log sum_{y in Y*} exp s(y)"""
    return math.fsum(
        c.weight * (log_sum_exp(c.raised(multiplier)) - log_sum_exp(scores(c.right))) for c in batch
    )


def max_margin(batch: Batch, multiplier: float) -> float:
    """max_y (s(y) + m C(y)) - max_{y in Y*} s(y)"""
    return math.fsum(c.weight * violation(c, multiplier) for c in batch)


def violation(c: Chain, multiplier: float) -> float:
    """max_y (s(y) + m C(y)) - max_{y in Y*} s(y), of one sequence"""
    return max(c.raised(multiplier)) - max(scores(c.right))


def risk(batch: Batch) -> float:
    """E_p[C(y)]"""
    return math.fsum(
        c.weight * p * c.costs(path.tags)
        for c in batch
        for p, path in zip(oracle.probabilities(c.paths), c.paths)
    )


def jensen_risk_bound(batch: Batch, multiplier: float) -> float:
    """log E_p[exp(m C(y))]"""
    return math.fsum(
        c.weight * (log_sum_exp(c.raised(multiplier)) - log_sum_exp(scores(c.paths))) for c in batch
    )


# Mistake-driven


def perceptron(batch: Batch, alpha: float = 0.0) -> float:
    """s(y^) + alpha C(y^) - s(y*), y^ = argmax_y s(y) + alpha C(y)"""
    total = 0.0
    for c in batch:
        answer = rival(c, alpha)
        raised = answer.score + alpha * c.costs(answer.tags)
        total += c.weight * (raised - best(c.right).score)
    return total


def mira(batch: Batch, multiplier: float, aggressiveness: float) -> float:
    """h^2 / 2n where h < a n, else a h - a^2 n / 2; n = || f(y^) - f(y*) ||^2"""
    total = 0.0
    for c in batch:
        h = violation(c, multiplier)
        a = aggressiveness
        n = squared_distance(c, rival(c, multiplier).tags, best(c.right).tags)
        if 0 < h < a * n:
            total += c.weight * h * h / (2 * n)
        elif h > 0:
            total += c.weight * (a * h - a * a * n / 2)
    return total


def best(paths: Sequence[Path]) -> Path:
    """argmax_y s(y)"""
    return max(paths, key=lambda path: path.score)


def rival(c: Chain, multiplier: float) -> Path:
    """y^ = argmax_y s(y) + m C(y)"""
    return max(c.paths, key=lambda path: path.score + multiplier * c.costs(path.tags))


def squared_distance(c: Chain, y: Tags, other_y: Tags) -> int:
    """|| f(y) - f(y') ||^2, f how often a path has each feature with each tag, each pair of
    tags, start and end."""
    f = features(c, y)
    g = features(c, other_y)
    return sum((f[feature] - g[feature]) ** 2 for feature in f | g)


def features(c: Chain, y: Tags) -> Counter:
    """How often a path has each feature with each tag, each pair of tags, start and end."""
    y = c.on_chain(y)
    counts: Counter = Counter()
    for token_features, tag in zip(c.features, y):
        counts.update((feature, tag) for feature in token_features)
    counts.update(("pair", *pair) for pair in pairwise(y))
    if y:
        counts.update([("start", y[0]), ("end", y[-1])])
    return counts


# Minimum classification error


def mce(
    batch: Batch,
    smoothing: str,
    slope: float,
    offset: float,
    psi: float,
    normalise: bool,
    distance: str,
) -> float:
    """l(d), d = (all wrong paths, put together) - (all right ones); 0 where no path is wrong"""
    total = 0.0
    for c in batch:
        if not c.wrong:
            continue
        wrong = together(scores(c.wrong), psi, normalise)
        right = together(scores(c.right), psi, normalise)
        d = wrong - right
        if distance == "ratio":
            d = math.exp(d)
        if distance == "difference":
            log_z = log_sum_exp(scores(c.paths))
            d = math.exp(wrong - log_z) - math.exp(right - log_z)
        total += c.weight * smoothed(d, smoothing, slope, offset)
    return total


def mce_of_tokens(batch: Batch, smoothing: str, slope: float, offset: float) -> float:
    """sum_t w_t l(d_t), d_t = (best path with a wrong tag at t) - (best path with the right one)"""
    total = 0.0
    for c in batch:
        for t, weight in enumerate(c.token_weights):
            with_right, with_wrong = scores_by(c, partial(c.is_right, t))
            if with_wrong:
                d = max(with_wrong) - max(with_right)
                total += c.weight * weight * smoothed(d, smoothing, slope, offset)
    return total


def smoothed(d: float, smoothing: str, slope: float, offset: float) -> float:
    """l(d): the sigmoid or the logistic of x = slope d + offset"""
    x = slope * d + offset
    return sigmoid(x) if smoothing == "sigmoid" else logistic(x) / slope


def together(scores: Sequence[float], psi: float, normalise: bool) -> float:
    """(1 / psi) log(1 / n sum exp(psi g)); n is 1 unless normalised; the best for psi = inf."""
    if math.isinf(psi) or not scores:
        return max(scores, default=-math.inf)
    log_n = math.log(len(scores)) if normalise else 0.0
    return (log_sum_exp([psi * g for g in scores]) - log_n) / psi


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x))"""
    return math.exp(-log_sum_exp([0.0, -x]))


def logistic(x: float) -> float:
    """log(1 + exp(x))"""
    return log_sum_exp([0.0, x])


# The F-score of entities


class Counts(NamedTuple):
    """Entities found, made up, missed."""

    tp: float
    fp: float
    fn: float


def entities(c: Chain, y: Tags) -> set[Segment]:
    """An opening tag and the continuing ones after it; tags that are -1 are neither."""
    segments = set()
    for begin, tag in enumerate(y):
        if tag < 0 or not c.opening[tag]:
            continue
        end = begin + 1
        while end < len(y) and y[end] >= 0 and c.continuing[y[end]]:
            end += 1
        segments.add((begin, end, y[begin:end]))
    return segments


def made_up(c: Chain, y: Tags) -> set[Segment]:
    """The entities of a path that are not gold's, but begin where gold says something."""
    return {e for e in entities(c, y) - entities(c, c.gold) if c.gold[e[0]] >= 0}


def expected_counts(batch: Batch) -> Counts:
    """How many entities p is expected to find, to make up, to miss."""
    tp = fp = fn = 0.0
    for c in batch:
        gold = entities(c, c.gold)
        for p, path in zip(oracle.probabilities(c.paths), c.paths):
            predicted = entities(c, path.tags)
            tp += c.weight * p * len(predicted & gold)
            fp += c.weight * p * len(made_up(c, path.tags))
            fn += c.weight * p * len(gold - predicted)
    return Counts(tp, fp, fn)


def best_counts(batch: Batch, slope: float, offset: float) -> Counts:
    """l(without - with) of gold entities is missed, the rest of 1 is found; that of gold's tags
    in the place of the wrong entities of the best wrong path is made up."""
    tp = fp = fn = 0.0
    for c in batch:
        for e in entities(c, c.gold):
            missed = sigmoid(slope * lead_without(with_and_without(c, e)) + offset)
            tp += c.weight * (1 - missed)
            fn += c.weight * missed
        if not c.wrong:
            continue
        for e in made_up(c, best(c.wrong).tags):
            lead = lead_without(with_and_without_gold(c, e))
            fp += c.weight * sigmoid(slope * lead + offset)
    return Counts(tp, fp, fn)


def lead_without(with_and_without: tuple[list[float], list[float]]) -> float:
    """How far the best of the second scores is ahead of the best of the first."""
    scores_with, scores_without = with_and_without
    return max(scores_without, default=-math.inf) - max(scores_with, default=-math.inf)


def scores_by(c: Chain, which: Callable[[Tags], bool]) -> tuple[list[float], list[float]]:
    """The scores of the paths that `which` holds for, and of the others."""
    with_it: list[float] = []
    without_it: list[float] = []
    for path in c.paths:
        scores_of_kind = with_it if which(path.tags) else without_it
        scores_of_kind.append(path.score)
    return with_it, without_it


def with_and_without(c: Chain, e: Segment) -> tuple[list[float], list[float]]:
    """The scores of the paths that have an entity, and of those that have not."""
    return scores_by(c, lambda y: e in entities(c, y))


def with_and_without_gold(c: Chain, e: Segment) -> tuple[list[float], list[float]]:
    """The scores of the paths that have gold's tags in the place of an entity, and of those that
    have not. The place ends where gold is unknown; the token after the entity is of it if the
    entity might have gone on there."""
    begin, end, tags = e
    if c.goes_on[tags[-1]]:
        end = min(end + 1, len(c.gold))
    place = []
    for t in range(begin, end):
        if c.gold[t] < 0:
            break
        place.append(t)
    return scores_by(c, lambda y: all(y[t] == c.gold[t] for t in place))


def mce_f(counts: Counts, gamma: float) -> float:
    """(gamma^2 FN + FP) / ((gamma^2 + 1) TP)"""
    return (gamma**2 * counts.fn + counts.fp) / ((gamma**2 + 1) * counts.tp)


def mce_f_of_batch(batch: Batch, gamma: float, count: Callable[[Batch], Counts]) -> float:
    """The same of a batch, with an entity more, that is found."""
    counts = count(batch)
    return mce_f(counts._replace(tp=1 + counts.tp), gamma)


# The Z-score


def zscore(batch: Batch, multiplier: float = 0.0) -> float:
    """- sum (mean of Y* - mean of all) / sqrt(sum variance of all), of the raised scores, all
    paths being equally probable; 0 where nothing varies."""
    above = spread = 0.0
    for c in batch:
        if not c.annotated:
            continue
        raised = c.raised(multiplier)
        above += c.weight * (numpy.mean(scores(c.right)) - numpy.mean(raised))
        spread += c.weight * numpy.var(raised)
    return -float(above / spread**0.5) if spread > 0 else 0.0


# Where a loss picks the best of some, and so has kinks where two are equally good


def choices_of_margin(c: Chain, multiplier: float = 0.0) -> list[list[float]]:
    """The rival, and the best path of gold."""
    return [c.raised(multiplier), scores(c.right)]


def choices_of_mce(c: Chain) -> list[list[float]]:
    """The best wrong path, and the best right one."""
    return [scores(c.wrong), scores(c.right)]


def choices_of_tokens(c: Chain) -> list[list[float]]:
    """At each token the best path with the right tag, and the best path with a wrong one."""
    choices: list[list[float]] = []
    for t in range(len(c.gold)):
        choices += scores_by(c, partial(c.is_right, t))
    return choices


def choices_of_mce_f(c: Chain) -> list[list[float]]:
    """The best wrong path; for each gold entity the best path with and without it; for each that
    is made up, the best path with and without gold in its place."""
    if not c.wrong:
        return []
    choices = [scores(c.wrong)]
    for e in entities(c, c.gold):
        choices += with_and_without(c, e)
    for e in made_up(c, best(c.wrong).tags):
        choices += with_and_without_gold(c, e)
    return choices


def choices_of_zscore(c: Chain, multiplier: float = 0.0) -> list[list[float]]:
    """No choice, but as good as a kink where all scores are nearly equal: it is a ratio of
    differences of scores."""
    raised = c.raised(multiplier)
    return [[0.0, -numpy.std(raised) / 100]] if len(raised) > 1 else []


def gap(choice: Sequence[float]) -> float:
    """How far the best is above the next."""
    finite = sorted(score for score in choice if math.isfinite(score))
    if len(finite) < 2:
        return math.inf
    *_, second, first = finite
    return first - second


class Row(NamedTuple):
    """A loss with settings, and its definition."""

    settings: dict[str, Any]  # without a cost
    define: Callable[[Batch], float]  # takes the sequences of a batch to the value
    choices: Callable[[Chain], list[list[float]]] = lambda c: []  # of which it picks the best one
    has_cost: bool = False  # whether the settings have a cost


def cost_row(define: Any, choices: Any = lambda c, multiplier: [], **settings: Any) -> Row:
    """A loss with a cost; its definition takes the settings."""
    multiplier = settings.get("multiplier", settings.get("alpha"))
    return Row(
        settings,
        define=partial(define, **settings),
        choices=partial(choices, multiplier=multiplier),
        has_cost=True,
    )


def mce_row(**settings: Any) -> Row:
    """MCE with settings: defaults where nothing is said."""
    defaults = {
        "smoothing": "sigmoid",
        "slope": 1.0,
        "offset": 0.0,
        "normalise": False,
        "distance": "log-ratio",
    }
    define = partial(mce, **{**defaults, **settings})
    if math.isfinite(settings["psi"]):
        return Row(settings, define)
    return Row(settings, define, choices_of_mce)


BEST_COUNTS = partial(best_counts, slope=0.4, offset=-0.2)

LOSSES: dict[str, Row] = {
    "Sequential": Row({}, sequential),
    "Pointwise": Row({}, pointwise),
    "Mixed": Row(dict(k=1.5), partial(mixed, lam=0.6)),
    "Mixed, cost": cost_row(mixed_margin, lam=0.3, multiplier=0.7),
    "SoftmaxMargin": cost_row(softmax_margin, multiplier=0.7),
    "MaxMargin": cost_row(max_margin, choices_of_margin, multiplier=0.7),
    "Risk": Row({}, risk, has_cost=True),
    "JensenRiskBound": cost_row(jensen_risk_bound, multiplier=0.7),
    "Perceptron": Row({}, perceptron, choices_of_margin),
    "Perceptron, alpha 1.3": cost_row(perceptron, choices_of_margin, alpha=1.3),
    "MIRA": cost_row(mira, choices_of_margin, multiplier=0.7, aggressiveness=0.2),
    "MCE": mce_row(psi=1.0),
    "MCE, psi 0.5": mce_row(psi=0.5, slope=0.5, offset=-0.3, normalise=True),
    "MCE, logistic": mce_row(psi=5.0, smoothing="logistic", slope=2.0, offset=0.5),
    "MCE, psi inf": mce_row(psi=math.inf, slope=0.3, offset=0.1),
    "MCE, logistic, psi inf": mce_row(psi=math.inf, smoothing="logistic"),
    "MCE, ratio": mce_row(psi=2.0, distance="ratio", slope=0.5, offset=-0.5),
    "MCE, ratio, psi inf": mce_row(psi=math.inf, distance="ratio", offset=-1.0),
    "MCE, difference": mce_row(psi=1.0, distance="difference", slope=3.0),
    "MCE, difference, psi 2": mce_row(
        psi=2.0, distance="difference", smoothing="logistic", normalise=True
    ),
    "MCE, difference, psi inf": mce_row(psi=math.inf, distance="difference", slope=2.0),
    "MCE, token": Row(
        dict(unit="token", psi=math.inf, slope=0.6, offset=0.2),
        partial(mce_of_tokens, smoothing="sigmoid", slope=0.6, offset=0.2),
        choices_of_tokens,
    ),
    "MCE, token, logistic": Row(
        dict(unit="token", psi=math.inf, smoothing="logistic"),
        partial(mce_of_tokens, smoothing="logistic", slope=1.0, offset=0.0),
        choices_of_tokens,
    ),
    "MCEF": Row(dict(gamma=2.0), partial(mce_f_of_batch, gamma=2.0, count=expected_counts)),
    "MCEF, psi inf": Row(
        dict(psi=math.inf, slope=0.4, offset=-0.2),
        partial(mce_f_of_batch, gamma=1.0, count=BEST_COUNTS),
        choices_of_mce_f,
    ),
    "ZScore": Row({}, zscore, choices_of_zscore),
    "ZScore, cost": cost_row(zscore, choices_of_zscore, multiplier=0.8),
}
"""By the name of the loss and, after a comma, a variant."""
