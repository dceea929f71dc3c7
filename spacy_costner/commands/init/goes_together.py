"""What goes together: models, losses, costs, decodings and aims. No other module knows."""

from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Callable, Collection, List, Mapping, NamedTuple, Optional, Tuple

from spacy.util import registry

MODELS = {"linear": "sparse", "cnn": "cnn", "hybrid": "hybrid", "transformer": "transformer"}
"""The config of each model."""

LOSSES = {
    "Sequential": "sequential",
    "Pointwise": "pointwise",
    "Mixed": "mixed",
    "SoftmaxMargin": "softmax_margin",
    "MaxMargin": "max_margin",
    "Risk": "risk",
    "JensenRiskBound": "jensen_risk_bound",
    "Perceptron": "perceptron",
    "MIRA": "mira",
    "MCE": "mce",
    "MCEF": "mce_f",
    "ZScore": "zscore",
}
"""The config of each loss, in configs/losses."""

NO_PROBABILITIES = frozenset(["MaxMargin", "Perceptron", "MIRA", "ZScore"])
"""Losses after which scores are not probabilities: see docs/which-loss.md."""

COST_AUGMENTED = frozenset(["SoftmaxMargin", "JensenRiskBound", "Mixed"])
"""Losses with cost-augmented scores: a cost shifts probabilities. To calibrate them makes
predictions of minimum expected cost worse: see docs/init.md."""

NO_START = frozenset(["Risk", "JensenRiskBound", "MCE", "MCEF", "ZScore"])
"""Losses that need a likelihood model to start from."""

DECODINGS = ("viterbi", "threshold", "min-cost")
PLAIN_COSTS = ("hamming", "zero-one")
NAMED_AIMS = ("f", "cost", "guarantee")
AIMS = (*NAMED_AIMS, "precision", "recall")
"""Best F; lowest cost; a guaranteed miss rate; best recall at a required precision; best precision
at a required recall."""

FEW = 1000
"""Below this number of sentences the losses for small corpora are the default."""


class Costs(NamedTuple):
    """What mistakes cost. If several are given, their costs are added.

    tree (Optional[Path]): A label tree.
    matrix (Optional[Path]): A CSV file of costs.
    plain (Optional[str]): "hamming" or "zero-one".
    mistakes (Mapping[str, float]): The settings of PrecisionRecallCost.
    """

    tree: Optional[Path] = None
    matrix: Optional[Path] = None
    plain: Optional[str] = None
    mistakes: Mapping[str, float] = MappingProxyType({})

    def __bool__(self) -> bool:
        return any(self)


NOTHING = Costs()


class Plan(NamedTuple):
    """What a config is to have.

    model (str): One of `MODELS`.
    losses (Tuple[str, ...]): One of `LOSSES`, or several, one after another.
    decoding (str): One of `DECODINGS`.
    aim (str): One of `AIMS`.
    required (Optional[float]): The required precision or recall.
    costs (Costs): What mistakes cost.
    inner_nodes (bool): Whether inner nodes of the tree can be predicted.
    """

    model: str
    losses: Tuple[str, ...]
    decoding: str
    aim: str
    required: Optional[float] = None
    costs: Costs = NOTHING
    inner_nodes: bool = False

    @property
    def has_cost(self) -> bool:
        """Whether the config has a cost that training, decoding and scores share."""
        return bool(self.costs) or self.aim == "cost"

    @property
    def has_probabilities(self) -> bool:
        """Whether the scores of the trained model are probabilities."""
        return self.losses[-1] not in NO_PROBABILITIES

    @property
    def is_calibrated(self) -> bool:
        """Whether `costner calibrate` comes after training."""
        is_shifted = self.decoding == "min-cost" and self.losses[-1] in COST_AUGMENTED
        return self.has_probabilities and not is_shifted

    @property
    def is_tuned(self) -> bool:
        """Whether `costner tune` comes after training."""
        return self.aim not in ("cost", "guarantee")


def takes_cost(loss: str) -> bool:
    """Whether a loss has a setting `cost`."""
    return "cost" in signature(registry.get("losses", f"spacy_costner.{loss}.v1")).parameters


def _uses_cost(plan: Plan) -> bool:
    in_training = any(map(takes_cost, plan.losses))
    return in_training or plan.aim == "cost" or plan.costs.tree is not None


def _has_other_cost(plan: Plan) -> bool:
    return plan.costs.tree is not None or plan.costs.matrix is not None


class Rule(NamedTuple):
    """A combination that is refused.

    is_broken (Callable[[Plan], bool]): Whether a plan has it.
    option (str): The option to change.
    reason (str): What was expected, and why.
    """

    is_broken: Callable[[Plan], bool]
    option: str
    reason: str


RULES: List[Rule] = [
    Rule(
        lambda plan: plan.decoding == "min-cost" and plan.aim != "cost",
        "decoding",
        "expected min-cost with --aim cost only: `costner tune`, which reaches most other aims, "
        "chooses a threshold or a bias in its place, and `costner guarantee` a set of spans",
    ),
    Rule(
        lambda plan: plan.aim == "guarantee" and not plan.has_probabilities,
        "loss",
        "expected a loss such as Sequential with --aim guarantee: scores after {last} are not "
        "probabilities, by which `costner guarantee` chooses spans",
    ),
    Rule(
        lambda plan: plan.decoding != "viterbi" and not plan.has_probabilities,
        "decoding",
        "expected viterbi after {last}: its scores are not probabilities, which {decoding} needs",
    ),
    Rule(
        lambda plan: plan.decoding == "threshold" and plan.aim == "cost" and _has_other_cost(plan),
        "decoding",
        "expected min-cost or viterbi with --aim cost and a tree or matrix: a threshold only "
        "weighs misses against false alarms",
    ),
    Rule(
        lambda plan: bool(plan.costs) and not _uses_cost(plan),
        "loss",
        "expected a loss that takes a cost, or --aim cost: {losses} takes none, so nothing would "
        "use what you say mistakes cost",
    ),
    Rule(
        lambda plan: len(plan.losses) > 1 and plan.losses[0] in NO_START,
        "loss",
        "expected another loss before {first}, for example Sequential: {first} needs a likelihood "
        "model to start from",
    ),
    Rule(
        lambda plan: plan.inner_nodes and (plan.decoding != "min-cost" or plan.costs.tree is None),
        "inner-nodes",
        "expected --tree and --decoding min-cost, which alone can predict nodes of a tree",
    ),
]


def check_plan(plan: Plan) -> None:
    """Check that the parts of a plan go together.

    plan (Plan): The plan.
    RAISES (ValueError): If they don't, with the reason.
    """
    for is_broken, option, reason in RULES:
        if is_broken(plan):
            words = plan._asdict()
            words.update(losses=", ".join(plan.losses), first=plan.losses[0], last=plan.losses[-1])
            raise ValueError(f"--{option}: {reason.format(**words)}")


def make_plan(
    *,
    model: str = "linear",
    losses: Optional[str] = None,
    decoding: Optional[str] = None,
    aim: Optional[str] = None,
    precision: Optional[float] = None,
    recall: Optional[float] = None,
    costs: Costs = NOTHING,
    inner_nodes: bool = False,
    sentences: Optional[int] = None,
) -> Plan:
    """Complete what a user wants by what goes with it.

    model (str): One of `MODELS`.
    losses (Optional[str]): Names of losses: see `parse_losses`. None: `default_losses`.
    decoding (Optional[str]): One of `DECODINGS`. None: `default_decoding`.
    aim (Optional[str]): One of `NAMED_AIMS`. None: "cost" if costs or min-cost decoding are given,
        otherwise "f".
    precision (Optional[float]): A required precision, in place of an aim.
    recall (Optional[float]): A required recall, in place of an aim.
    costs (Costs): What mistakes cost.
    inner_nodes (bool): Whether inner nodes of the tree can be predicted.
    sentences (Optional[int]): The number of training sentences, if known.
    RETURNS (Plan): The plan.
    RAISES (ValueError): If there is no such thing, or the parts don't go together.
    """
    _one_of("model", model, MODELS)
    found = _find_aim(aim, {"precision": precision, "recall": recall})
    if found is None:
        found = "cost" if costs or decoding == "min-cost" else "f"
    if losses:
        chosen = parse_losses(losses)
    else:
        chosen = default_losses(model, found, costs, decoding, sentences)
    decoding = decoding or default_decoding(found, chosen)
    _one_of("decoding", decoding, DECODINGS)
    required = precision if precision is not None else recall
    plan = Plan(model, chosen, decoding, found, required, costs, inner_nodes)
    check_plan(plan)
    return plan


def _find_aim(aim: Optional[str], required: Mapping[str, Optional[float]]) -> Optional[str]:
    """The aim: given by name, or by what is required."""
    given = {name: least for name, least in required.items() if least is not None}
    for name, least in given.items():
        if not 0 < least < 1:
            raise ValueError(f"--{name}: expected a number between 0 and 1, got {least!r}")
    if aim is not None:
        _one_of("aim", aim, NAMED_AIMS)
    options = [*(f"--{name}" for name in given), *([f"--aim {aim}"] if aim else [])]
    if len(options) > 1:
        raise ValueError(f"--aim: expected one aim, got {' and '.join(options)}")
    return next(iter(given), aim)


def parse_cost(text: str) -> Costs:
    """Read the name of a cost, or the path of a cost matrix.

    text (str): "hamming", "zero-one" or the path of a CSV file.
    RETURNS (Costs): The cost.
    RAISES (ValueError): If it is neither.
    """
    if text in PLAIN_COSTS:
        return Costs(plain=text)
    if not Path(text).is_file():
        raise ValueError(f"--cost: expected {' or '.join(PLAIN_COSTS)} or a CSV file, got {text!r}")
    return Costs(matrix=Path(text))


def _one_of(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise ValueError(f"--{option}: expected one of {', '.join(choices)}, got {value!r}")


def default_losses(
    model: str, aim: str, costs: Costs, decoding: Optional[str], sentences: Optional[int]
) -> Tuple[str, ...]:
    """The losses that docs/which-loss.md recommends.

    model (str): One of `MODELS`.
    aim (str): One of `AIMS`.
    costs (Costs): What mistakes cost.
    decoding (Optional[str]): One of `DECODINGS`. None: that of the aim.
    sentences (Optional[int]): The number of training sentences, if known.
    RETURNS (Tuple[str, ...]): The losses, first to last.
    """
    is_linear = model == "linear"
    if aim == "guarantee":
        return ("Sequential",)
    if costs.tree is not None:
        if aim == "cost":
            return "SoftmaxMargin", "Risk"
        return ("SoftmaxMargin", "MCEF") if is_linear else ("Sequential",)
    by_cost = aim == "cost" and decoding in (None, "min-cost")
    if is_linear and by_cost and costs and costs == Costs(mistakes=costs.mistakes):
        return ("Sequential",)
    if costs or aim == "cost":
        return ("SoftmaxMargin",)
    is_small = sentences is not None and sentences < FEW
    return ("SoftmaxMargin", "Risk") if is_linear and is_small else ("Sequential",)


def default_decoding(aim: str, losses: Tuple[str, ...]) -> str:
    """The decoding for an aim: minimum expected cost where scores are probabilities."""
    return "min-cost" if aim == "cost" and losses[-1] not in NO_PROBABILITIES else "viterbi"


def parse_losses(text: str) -> Tuple[str, ...]:
    """Read the names of losses, as the docs, the config or its files have them.

    text (str): The names, separated by commas: "SoftmaxMargin", "softmax_margin",
        "spacy_costner.SoftmaxMargin.v1".
    RETURNS (Tuple[str, ...]): The names as in `LOSSES`.
    RAISES (ValueError): If there is no such loss.
    """
    known = {name.lower(): name for name in LOSSES}
    found = []
    for given in text.split(","):
        name = given.strip().removeprefix("spacy_costner.").removesuffix(".v1")
        key = name.lower().replace("_", "").replace("-", "")
        if key not in known:
            hint = ": separate losses by commas for a schedule" if key == "schedule" else ""
            raise ValueError(f"--loss: expected any of {', '.join(LOSSES)}, got {given!r}{hint}")
        found.append(known[key])
    return tuple(found)
