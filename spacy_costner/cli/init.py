"""Configs as text: sections with their comments, which spaCy's parser would drop."""

import json
import math
import re
import shlex
from contextlib import suppress
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Sized,
    Tuple,
)

import spacy
import typer
from spacy.cli.init_config import RECOMMENDATIONS
from spacy.pipeline import Sentencizer
from spacy.util import get_lang_class, registry
from thinc.api import Config
from typer import Argument, Option

import spacy_costner

from ..costs.cost_matrix import make_matrix
from ..costs.label_tree import make_tree
from ..readers import read_docs
from ..saving import save_file
from ..settings import check_settings
from ..tags import OUTSIDE, SINGLE, Tags
from .output import errors_shown

PACKAGE = Path(spacy_costner.__file__).parent
CONFIGS = PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"
"""The configs that are installed with the package; in a clone, the folder beside it."""

HEADER = re.compile(r"\[([^\]]+)\]")


class Section(NamedTuple):
    """A section of a config.

    name (str): Its name, such as "components.ner.loss".
    comment (Tuple[str, ...]): The lines above its name, without "# ".
    body (Tuple[str, ...]): The lines below it, comments included.
    """

    name: str
    comment: Tuple[str, ...] = ()
    body: Tuple[str, ...] = ()

    def with_value(self, setting: str, value: Any) -> "Section":
        """Replace the value of a setting, or add the setting at the end.

        setting (str): The name of the setting.
        value (Any): JSON, or a variable such as "${paths.tree}".
        RETURNS (Section): The new section.
        """
        line = f"{setting} = {as_text(value)}"
        body = [line if re.match(rf"{re.escape(setting)}\s*=", old) else old for old in self.body]
        return self._replace(body=tuple(body if line in body else [*body, line]))


def as_text(value: Any) -> str:
    """A value as a config has it."""
    is_variable = isinstance(value, str) and re.fullmatch(r"\$\{[^}]+\}", value)
    return str(value) if is_variable else json.dumps(value, ensure_ascii=False)


def make_section(name: str, comment: str = "", **settings: Any) -> Section:
    """Build a section.

    name (str): Its name.
    comment (str): What it is, on one line or several.
    **settings (Any): The settings: JSON or variables. `function` is the registered function, such
        as "@misc = spacy_costner.HammingCost.v1".
    RETURNS (Section): The section.
    """
    function = settings.pop("function", None)
    section = Section(name, tuple(comment.splitlines()))
    if function is not None:
        registry, registered = function.split(" = ")
        section = section.with_value(registry, registered)
    for setting, value in settings.items():
        section = section.with_value(setting, value)
    return section


def parse(text: str) -> Tuple[List[str], List[Section]]:
    """Split a config into sections.

    text (str): The config.
    RETURNS (Tuple[List[str], List[Section]]): The comment at its head, a paragraph each, and the
        sections.
    """
    tops: List[Tuple[str, List[str]]] = []
    bodies: List[List[str]] = [[]]
    for line in text.splitlines():
        header = HEADER.fullmatch(line)
        if header is None:
            bodies[-1].append(line)
        else:
            tops.append((header[1], _take_comment(bodies[-1])))
            bodies.append([])
    head = "\n".join(line.removeprefix("#").removeprefix(" ") for line in bodies[0]).strip()
    return re.split(r"\n\n+", head), [
        Section(name, tuple(comment), tuple(filter(None, body)))
        for (name, comment), body in zip(tops, bodies[1:])
    ]


def _take_comment(lines: List[str]) -> List[str]:
    """Remove the comment at the end of a block, which belongs to the next section."""
    start = len(lines)
    while start and lines[start - 1].startswith("#"):
        start -= 1
    comment = [line.removeprefix("#").removeprefix(" ") for line in lines[start:]]
    del lines[start:]
    return comment


def read(name: str) -> Tuple[List[str], List[Section]]:
    """Read a config that is installed with the package.

    name (str): Its path in the folder, without suffix, such as "losses/risk".
    RETURNS (Tuple[List[str], List[Section]]): See `parse`.
    """
    return parse((CONFIGS / f"{name}.cfg").read_text(encoding="utf8"))


def find(sections: Sequence[Section], name: str) -> Optional[Section]:
    """The section of a name, if there is one."""
    return next((section for section in sections if section.name == name), None)


def below(sections: Sequence[Section], name: str) -> List[Section]:
    """The section of a name and those below it."""
    return [each for each in sections if f"{each.name}.".startswith(f"{name}.")]


def rename(sections: Sequence[Section], name: str, new: str) -> List[Section]:
    """Move a section, and those below it, to another name."""
    return [each._replace(name=new + each.name[len(name) :]) for each in below(sections, name)]


def replace(sections: Sequence[Section], name: str, new: Sequence[Section]) -> List[Section]:
    """Replace a section and those below it, where the first of them is.

    RAISES (KeyError): If there is no such section.
    """
    old = below(sections, name)
    if not old:
        raise KeyError(name)
    at = sections.index(old[0])
    kept = [each for each in sections[at:] if each not in old]
    return [*sections[:at], *new, *kept]


def set_values(sections: Sequence[Section], values: Dict[str, Any]) -> List[Section]:
    """Set values by their path, such as "training.max_steps".

    RAISES (KeyError): If there is no such section.
    """
    changed = {section.name: section for section in sections}
    for path, value in values.items():
        name, _, setting = path.rpartition(".")
        changed[name] = changed[name].with_value(setting, value)
    return list(changed.values())


def render(head: Sequence[str], sections: Sequence[Section]) -> str:
    """Write a config.

    head (Sequence[str]): The lines of the comment at its head.
    sections (Sequence[Section]): The sections.
    RETURNS (str): The config.
    """
    blocks = [_comment(head)]
    blocks += [[*_comment(each.comment), f"[{each.name}]", *each.body] for each in sections]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _comment(lines: Sequence[str]) -> List[str]:
    return [f"# {line}".rstrip() for line in lines]


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


LAST_STEP = "training.optimizer.learn_rate.total_steps"

WORDS = 25
"""Words of a sentence, where only the number of sentences is known."""

SENTENCES = 3
"""Sentences of a doc, on average, from which a second pass of a linear model pays."""

MANY_LABELS = 20
"""More labels have a single O: see docs/linear.md."""

UPDATES = 100
"""Updates of a linear model in an epoch, at least; batches of a small corpus are smaller."""

BATCHES = 100
"""The same for a Tok2Vec, at its largest batches."""

SHUFFLED = 0.9
"""Share of the batches that an epoch has at least, however docs are shuffled."""

EPOCHS = 5
"""Epochs that a large corpus is trained for at least, unless there is no better score."""

FIRST_EPOCHS, FIRST_STEPS, LATER_EPOCHS = 5, 500, 2
"""Epochs and steps of the first loss of a schedule, at least; epochs of each later one."""

ROWS = 1000
"""Rows of the table of words, at least."""


class Size(NamedTuple):
    """The size of a training corpus.

    lengths (Tuple[int, ...]): Number of tokens of each doc.
    sentences (int): Number of sentences: see `look`.
    forms (Optional[int]): Number of different words, if known.
    entities (int): Number of entities.
    labels (Tuple[str, ...]): Their labels, in alphabetical order.
    """

    lengths: Tuple[int, ...]
    sentences: int
    forms: Optional[int] = None
    entities: int = 0
    labels: Tuple[str, ...] = ()

    @property
    def docs(self) -> int:
        return len(self.lengths)

    @property
    def words(self) -> int:
        return sum(self.lengths)


def look(path: Path, lang: str) -> Size:
    """Read a training corpus and measure it. Where docs have no sentence starts, as texts without
    tokens, sentences end with punctuation, as spaCy's `sentencizer` has it.

    path (Path): The corpus.
    lang (str): Its language.
    RETURNS (Size): Its size.
    RAISES (ValueError): If it has no entities.
    """
    lengths: List[int] = []
    forms: Set[int] = set()
    labels: Set[str] = set()
    sentences = entities = 0
    sentencizer = Sentencizer()
    for doc in read_docs(spacy.blank(lang), path):
        lengths.append(len(doc))
        split = doc if doc.has_annotation("SENT_START") else sentencizer(doc)
        sentences += sum(1 for _ in split.sents)
        forms.update(token.norm for token in doc)
        labels.update(ent.label_ for ent in doc.ents)
        entities += len(doc.ents)
    if not entities:
        raise ValueError(f"{path}: expected docs with entities, got none in {len(lengths)} docs")
    return Size(tuple(lengths), sentences, len(forms), entities, tuple(sorted(labels)))


def size_of_sentences(number: int) -> Size:
    """The size of a corpus of which only the number of sentences is known."""
    return Size((WORDS,) * number, number)


def settings(model: str, size: Size, sections: Sequence[Section]) -> Dict[str, Any]:
    """The settings of training that fit the size of a corpus: at least one evaluation an epoch.

    model (str): The model: "linear", "cnn", "hybrid" or "transformer".
    size (Size): The size of the corpus.
    sections (Sequence[Section]): The config without them. Its settings are for large corpora.
    RETURNS (Dict[str, Any]): Values by path, such as "training.eval_frequency".
    """
    if model == "linear":
        return _of_linear(size, sections)
    chosen = {} if model == "transformer" else _of_tok2vec(size, sections)
    if model == "hybrid":
        chosen.update(_of_tags(size))
    n_batches = _count_batches(size, set_values(sections, chosen))
    return {**chosen, **_of_steps(max(1, int(n_batches * SHUFFLED)), sections)}


def _count_batches(size: Size, sections: Sequence[Section]) -> int:
    """The number of batches of an epoch, at their largest."""
    return sum(1 for _ in _batcher(sections)([range(length) for length in size.lengths]))


def _of_linear(size: Size, sections: Sequence[Section]) -> Dict[str, Any]:
    """Smaller batches in a small corpus, and two evaluations an epoch. In docs of several
    sentences, a second pass sees the labels of words elsewhere in the doc."""
    chosen = _of_tags(size)
    if size.sentences >= SENTENCES * size.docs:
        chosen["components.ner.model.features.document"] = {"LOWER": 1}
    most = value(sections, "training.batcher.size")
    chosen["training.batcher.size"] = max(1, min(most, size.words // UPDATES))
    n_batches = _count_batches(size, set_values(sections, chosen))
    return {**chosen, "training.eval_frequency": max(1, int(n_batches * SHUFFLED) // 2)}


def _of_tags(size: Size) -> Dict[str, Any]:
    """One tag for O with many labels, which would have as many tags more."""
    return {"components.ner.outside": SINGLE} if len(size.labels) > MANY_LABELS else {}


def _of_tok2vec(size: Size, sections: Sequence[Section]) -> Dict[str, Any]:
    """Smaller batches in a small corpus, and no more rows for words than there are words."""
    start, most = (value(sections, f"training.batcher.size.{end}") for end in ("start", "stop"))
    chosen = {"training.batcher.size.stop": max(start, min(most, size.words // BATCHES))}
    if size.forms is not None:
        path = "components.tok2vec.model.embed.rows"
        rows, *others = value(sections, path)
        chosen[path] = [min(rows, max(ROWS, size.forms)), *others]
    return chosen


def _batcher(sections: Sequence[Section]) -> Callable[[Iterable[Sized]], Iterable[List[Sized]]]:
    """The batcher of a config, with its largest batches."""
    names = [make_section("training"), *below(sections, "training.batcher")]
    block = Config().from_str(render([], names))["training"]["batcher"]
    if isinstance(block["size"], dict):
        block["size"] = block["size"]["stop"]
    return registry.resolve({"batcher": block})["batcher"]


def _of_steps(epoch: int, sections: Sequence[Section]) -> Dict[str, Any]:
    """When to evaluate and to stop, where an epoch has about this number of steps. A learning rate
    that falls to 0 does so at the last step."""
    max_steps = max(value(sections, "training.max_steps"), EPOCHS * epoch)
    chosen = {
        "training.eval_frequency": min(value(sections, "training.eval_frequency"), epoch),
        "training.patience": max(value(sections, "training.patience"), 2 * epoch),
        "training.max_steps": max_steps,
    }
    with suppress(KeyError):
        value(sections, LAST_STEP)
        chosen[LAST_STEP] = max_steps
    return chosen


def ends(n_later: int, sections: Sequence[Section]) -> List[float]:
    """The epochs after which the losses of a schedule end.

    n_later (int): The number of losses after the first.
    sections (Sequence[Section]): The config, with its settings of training.
    RETURNS (List[float]): The ends of all losses but the last. Where the number of epochs is fixed,
        each later loss has the last ones.
    """
    try:
        first = value(sections, "training.max_epochs") - LATER_EPOCHS * n_later
    except KeyError:
        first = math.ceil(FIRST_STEPS / value(sections, "training.eval_frequency"))
        first = max(first, FIRST_EPOCHS)
    return [float(max(1, first) + LATER_EPOCHS * i) for i in range(n_later)]


def value(sections: Sequence[Section], path: str) -> Any:
    """The value of a setting.

    sections (Sequence[Section]): The config.
    path (str): The setting, such as "training.max_steps".
    RETURNS (Any): JSON.
    RAISES (KeyError): If there is none.
    """
    name, _, setting = path.rpartition(".")
    section = find(sections, name)
    for line in section.body if section is not None else ():
        if line.split("=")[0].strip() == setting:
            return json.loads(line.split("=", 1)[1])
    raise KeyError(path)


LOSS, COST, DECODING, SCORER, CONFIDENCE = (
    f"components.ner.{name}" for name in ("loss", "scorer.cost", "decoding", "scorer", "confidence")
)
SHARED = f"${{{COST}}}"
"""The cost, as other sections refer to it."""

MARGIN = 5.0
"""Largest score in training for a cost: that of a miss in configs/costs/recall.cfg."""

MULTIPLIERS = ("multiplier", "alpha")
"""What losses call the score per unit of cost."""

REFERENCE = "# README.md lists all costs."


def cost_sections(costs: Costs) -> List[Section]:
    """The sections of a cost; of the Hamming cost if none is given.

    costs (Costs): What mistakes cost.
    RETURNS (List[Section]): The sections, a sum if there are several costs.
    """
    parts: Dict[str, Dict[str, Any]] = {}
    if costs.tree is not None:
        parts["tree"] = {"function": _misc("HierarchicalCost"), "tree": "${paths.tree}"}
    if costs.matrix is not None:
        parts["matrix"] = {"function": _misc("MatrixCost"), "matrix": "${paths.costs}"}
    if costs.plain is not None or not costs:
        parts["tags"] = {
            "function": _misc("ZeroOneCost" if costs.plain == "zero-one" else "HammingCost")
        }
    if costs.mistakes:
        other = 0.0 if parts else 1.0
        kinds = ("miss", "false_alarm", "wrong_label", "wrong_boundary")
        weights = {kind: costs.mistakes.get(kind, other) for kind in kinds}
        parts["mistakes"] = {"function": _misc("PrecisionRecallCost"), **weights}
    comment = "What each mistake costs, per token. Training, decoding and scores refer to it."
    if len(parts) == 1:
        return [make_section(COST, comment, **settings) for settings in parts.values()]
    return [
        make_section(COST, f"{comment}\nThe sum of the costs below.", function=_misc("SumCost")),
        make_section(f"{COST}.costs"),
        *(make_section(f"{COST}.costs.{name}", **settings) for name, settings in parts.items()),
    ]


def _misc(name: str) -> str:
    return f"@misc = spacy_costner.{name}.v1"


def cost_paths(costs: Costs) -> Dict[str, Path]:
    """The files of costs, by their names in [paths]."""
    files = {"tree": costs.tree, "costs": costs.matrix}
    return {name: path for name, path in files.items() if path is not None}


def largest_cost(costs: Costs, labels: Sequence[str]) -> float:
    """The cost of the most expensive mistake. Reads and checks the files.

    costs (Costs): What mistakes cost.
    labels (Sequence[str]): The labels of the corpus; none if unknown.
    RETURNS (float): The highest cost of a token.
    RAISES (ValueError): If a number is not a cost, a file can't be read, or a label is missing in
        it.
    """
    paths = {name: str(path) for name, path in cost_paths(costs).items()}
    parents = [make_section(name) for name in ("components", "components.ner", SCORER)]
    text = render([], [make_section("paths", **paths), *parents, *cost_sections(costs)])
    block = Config().from_str(text)["components"]["ner"]["scorer"]["cost"]
    cost = registry.resolve({"cost": block})["cost"]
    return float(cost(Tags(labels or _labels_of(costs))).max())


def _labels_of(costs: Costs) -> List[str]:
    """The labels that the files speak of."""
    if costs.matrix is not None:
        rows = make_matrix(costs.matrix, "spacy_costner.MatrixCost: matrix").rows
        return [label for label in rows if label != OUTSIDE]
    if costs.tree is not None:
        return list(make_tree(costs.tree, "spacy_costner.HierarchicalCost: tree").lineages)
    return ["label"]


def score_per_cost(largest: float, has_tree: bool) -> float:
    """The multiplier of losses: 1, or 0.5 with a tree, less if mistakes are very expensive."""
    most = 0.5 if has_tree else 1.0
    return most if largest * most <= MARGIN else float(f"{MARGIN / largest:.2g}")


def loss_sections(plan: Plan, scale: float, ends: Sequence[float]) -> List[Section]:
    """The sections of a loss, from its config in configs/losses.

    plan (Plan): The plan.
    scale (float): See `score_per_cost`.
    ends (Sequence[float]): In a schedule, the epochs after which all losses but the last end.
    RETURNS (List[Section]): The sections. Losses with a cost refer to that of the scorer.
    """
    templates = [_template(loss) for loss in plan.losses]
    sections = templates[0] if len(templates) == 1 else _in_turn(plan.losses, templates)
    if find(sections, f"{LOSS}.*") is not None:
        sections = [sections[0].with_value("epochs", list(ends)), *sections[1:]]
    for stage in [each for each in sections if any("@losses" in line for line in each.body)]:
        sections = _with_cost(sections, stage, plan, scale)
    return sections


def is_schedule(losses: Sequence[str]) -> bool:
    """Whether losses become a schedule: several, or one that needs a likelihood model."""
    return len(losses) > 1 or losses[0] in NO_START


def _template(loss: str) -> List[Section]:
    """The sections of a loss, with the first paragraph of its config as a comment."""
    head, sections = read(f"losses/{LOSSES[loss]}")
    first, *others = below(sections, LOSS)
    return [first._replace(comment=tuple(head[0].splitlines())), *others]


def _in_turn(losses: Sequence[str], templates: Sequence[List[Section]]) -> List[Section]:
    """The sections of a schedule of losses."""
    n_losses = len(losses)
    names = ["first", "then"] if n_losses == 2 else [f"loss_{i + 1}" for i in range(n_losses)]
    schedule, star = read("losses/risk")[1], f"{LOSS}.*"
    head = next(each for each in schedule if each.name == LOSS)
    sections = [head._replace(comment=(f"What training minimises: {', then '.join(losses)}.",))]
    sections.append(make_section(star))
    for name, template in zip(names, templates):
        own = f"{star}.then" if find(template, f"{star}.then") is not None else LOSS
        first, *others = rename(template, own, f"{star}.{name}")
        comment = first.comment or template[0].comment
        sections += [first._replace(comment=comment), *others]
    return sections


def _with_cost(
    sections: Sequence[Section], stage: Section, plan: Plan, scale: float
) -> List[Section]:
    """Let a loss refer to the shared cost, if there is one."""
    registered = value([stage], f"{stage.name}.@losses")
    loss = registered.removeprefix("spacy_costner.").removesuffix(".v1")
    own = f"{stage.name}.cost"
    if loss == "Schedule" or not takes_cost(loss):
        return list(sections)
    if not plan.has_cost:
        return [
            each._replace(body=tuple(line for line in each.body if line != REFERENCE))
            for each in sections
        ]
    changed = stage.with_value("cost", SHARED)
    if loss == "Mixed":
        changed = changed.with_value("multiplier", 1.0)
    for name in MULTIPLIERS:
        if any(line.startswith(f"{name} =") for line in changed.body):
            most = value([changed], f"{stage.name}.{name}")
            changed = changed.with_value(name, float(f"{most * scale:.2g}"))
    kept = [each for each in sections if each not in below(sections, own)]
    return [changed if each == stage else each for each in kept]


def decoding_sections(plan: Plan, template: Sequence[Section]) -> List[Section]:
    """The sections of a decoding.

    plan (Plan): The plan.
    template (Sequence[Section]): The config of the model, which has ViterbiDecoding.
    RETURNS (List[Section]): The sections.
    """
    comment = "How entities are chosen from scores. It can be changed without retraining."
    if plan.decoding == "min-cost":
        comment += "\nHere: the tags with the lowest expected cost."
        tree: Dict[str, Any] = {"tree": "${paths.tree}"} if plan.inner_nodes else {}
        return [
            make_section(DECODING, comment, function=_misc("MinCostDecoding"), **tree, cost=SHARED)
        ]
    if plan.is_tuned:
        comment += "\n`costner tune` replaces it by the best threshold or bias."
    if plan.decoding == "threshold":
        comment += "\nHere: the entities whose probability is at least the threshold."
        section = make_section(
            DECODING, comment, function=_misc("ThresholdDecoding"), threshold=_threshold(plan)
        )
        return [section, make_section(f"{DECODING}.labels")]
    first, *others = below(template, DECODING)
    comment += "\nHere: the best path."
    return [first._replace(comment=tuple(comment.splitlines())), *others]


def _threshold(plan: Plan) -> float:
    """The threshold of the lowest expected cost: see docs/decoding.md."""
    miss = plan.costs.mistakes.get("miss", 1.0)
    false_alarm = plan.costs.mistakes.get("false_alarm", 1.0)
    if plan.aim != "cost" or not miss + false_alarm:
        return 0.5
    return round(false_alarm / (miss + false_alarm), 4)


def scorer_sections(plan: Plan) -> List[Section]:
    """The scorer with its cost, and the scores that select the best model."""
    has_tree = plan.costs.tree is not None
    tree: Dict[str, Any] = {"tree": "${paths.tree}"} if has_tree else {}
    levels = "\nWith the tree: F on each of its levels." if has_tree else ""
    comment = f"Scores: precision, recall, F, and ents_cost, the average cost per token.{levels}"
    return [
        make_section(
            SCORER,
            comment,
            function="@scorers = spacy_costner.cost_scorer.v1",
            **tree,
        ),
        *cost_sections(plan.costs),
    ]


def confidence_section() -> Section:
    """The probabilities of entities, and where `costner guarantee` writes its set."""
    comment = (
        'The exact probability of each entity is in doc.spans["confidence"].\nThe set that misses '
        'at most a promised share of entities will be in doc.spans["confidence_guaranteed"]:\n'
        "`costner guarantee` chooses it on docs that neither training nor `calibrate` has seen."
    )
    settings = {"spans_key": "confidence", "extension": "confidence"}
    return make_section(CONFIDENCE, comment, function=_misc("Confidence"), **settings)


def score_weights(plan: Plan) -> Section:
    """The scores that select the best model."""
    by_cost = plan.aim == "cost"
    comment = "The best model is the one with the " + ("lowest cost." if by_cost else "highest F.")
    weights: Dict[str, Any] = {"ents_cost": -1.0 if by_cost else 0.0}
    weights.update(ents_f=0.0 if by_cost else 1.0, ents_p=0.0, ents_r=0.0, ents_per_type=None)
    if plan.costs.tree is not None:
        weights["ents_f_level_1"] = 0.0
    comment += " Scores in the training table are times 100."
    return make_section("training.score_weights", comment, **weights)


def describe(plan: Plan) -> List[Tuple[str, str]]:
    """A plan in words, by part."""
    costs = [f"{name} {path}" for name, path in cost_paths(plan.costs).items()]
    costs += [plan.costs.plain] if plan.costs.plain is not None else []
    costs += [f"{kind} {cost:g}" for kind, cost in plan.costs.mistakes.items()]
    aims = {
        "f": "the best F",
        "precision": f"the best recall at a precision of at least {plan.required}",
        "recall": f"the best precision at a recall of at least {plan.required}",
        "cost": "the lowest cost",
        "guarantee": "a guaranteed miss rate",
    }
    words = [
        ("model", plan.model),
        ("loss", ", then ".join(plan.losses)),
        ("cost", " + ".join(costs) or "1 for every wrong tag"),
        ("decoding", plan.decoding),
        ("aim", aims[plan.aim]),
    ]
    is_used = plan.has_cost or any(map(takes_cost, plan.losses))
    return [each for each in words if is_used or each[0] != "cost"]


class Corpora(NamedTuple):
    """What is known of the corpora.

    train (Optional[Path]): The training corpus.
    dev (Optional[Path]): The development corpus.
    size (Optional[Size]): The size of the training corpus.
    """

    train: Optional[Path] = None
    dev: Optional[Path] = None
    size: Optional[Size] = None


def write_config(
    plan: Plan,
    lang: str,
    corpora: Corpora = Corpora(),  # noqa: B008
    *,
    command: str = "python -m spacy costner init",
    path: str = "config.cfg",
    transformer: Optional[str] = None,
) -> str:
    """Write a config for a plan.

    plan (Plan): What it is to have.
    lang (str): The language.
    corpora (Corpora): The corpora, and their size.
    command (str): The command that makes it, for its head.
    path (str): Where it will be, for its head.
    transformer (Optional[str]): The name of the transformer. None: that of `spacy init config`.
    RETURNS (str): The config, with comments.
    RAISES (ValueError): If a file of costs can't be read, or doesn't fit the labels.
    """
    labels = corpora.size.labels if corpora.size is not None else ()
    scale = score_per_cost(largest_cost(plan.costs, labels), plan.costs.tree is not None)
    sections = _for_size(plan.model, _template(plan.model), corpora.size)
    paths = {"train": corpora.train, "dev": corpora.dev, **cost_paths(plan.costs)}
    given = {f"paths.{name}": str(file) for name, file in paths.items() if file is not None}
    sections = set_values(sections, {"nlp.lang": lang, **given})
    if plan.model == "transformer":
        sections = set_values(sections, _of_transformer(lang, transformer))
    n_later = max(1, len(plan.losses) - 1) if is_schedule(plan.losses) else 0
    loss = loss_sections(plan, scale, ends(n_later, sections))
    sections = replace(sections, LOSS, loss)
    sections = replace(sections, DECODING, decoding_sections(plan, sections))
    if plan.has_cost:
        sections = replace(sections, SCORER, scorer_sections(plan))
        sections = _put(sections, score_weights(plan))
    if plan.aim == "guarantee":
        ner = next(section for section in sections if section.name == "components.ner")
        off = f"{CONFIDENCE.rpartition('.')[2]} = null"
        body = tuple(line for line in ner.body if line != off)
        sections = [ner._replace(body=body) if each == ner else each for each in sections]
        sections = _put(sections, confidence_section())
    text = render(_head(plan, corpora, command, path), sections)
    check_settings(Config().from_str(text, interpolate=False), path)
    return text


def _template(model: str) -> List[Section]:
    """The config of a model, with batches in it."""
    _, whole = read(MODELS[model])
    sections = [section for section in whole if not _is_empty(section, whole)]
    if find(sections, "training.batcher") is None:
        for section in below(read("base")[1], "training.batcher"):
            sections = _put(sections, section)
    return sections


def _is_empty(section: Section, sections: Sequence[Section]) -> bool:
    """Whether a section outside of the components says nothing."""
    is_leaf = len(below(sections, section.name)) == 1 and not section.body
    return is_leaf and not section.name.startswith("components")


def _for_size(model: str, sections: List[Section], size: Optional[Size]) -> List[Section]:
    return sections if size is None else set_values(sections, settings(model, size, sections))


def _of_transformer(lang: str, name: Optional[str]) -> Dict[str, Any]:
    """The transformer that `spacy init config` chooses for the language."""
    known = RECOMMENDATIONS.get(lang, RECOMMENDATIONS["__default__"])["transformer"]["efficiency"]
    return {
        "components.transformer.model.name": name or known["name"],
        "training.accumulate_gradient": known["size_factor"],
    }


def _put(sections: Sequence[Section], section: Section) -> List[Section]:
    """Replace a section, or add it after the others of its parent."""
    if find(sections, section.name) is not None:
        return replace(sections, section.name, [section])
    at = sections.index(below(sections, section.name.rpartition(".")[0])[-1])
    return [*sections[: at + 1], section, *sections[at + 1 :]]


def _head(plan: Plan, corpora: Corpora, command: str, path: str) -> List[str]:
    """The comment at the head: the command, what it chose, and the next commands."""
    lines = [f"Made by spacy-costner {spacy_costner.__version__}:", "", f"    {command}", ""]
    lines += [f"{name + ':':<10}{words}" for name, words in describe(plan)]
    if corpora.size is not None:
        lines.append(f"{'corpus:':<10}{describe_size(corpora.size)}")
    lines += ["", "Next:", "", *(f"    {each}" for each in next_commands(plan, corpora, path))]
    return lines


def describe_size(size: Size) -> str:
    """A size in words."""
    counts = f"{size.docs:,} docs, {size.sentences:,} sentences, {size.words:,} words"
    if not size.labels:
        return f"about {size.sentences:,} sentences"
    return f"{counts}, {size.entities:,} entities of {len(size.labels)} labels"


def next_commands(plan: Plan, corpora: Corpora, path: str) -> List[str]:
    """The commands to run with a config.

    plan (Plan): What it has.
    corpora (Corpora): The corpora; those that are missing are named train.spacy and dev.spacy.
    path (str): Where the config is.
    RETURNS (List[str]): The commands, in order.
    """
    dev = shlex.quote(str(corpora.dev or "dev.spacy"))
    missing = "" if corpora.train else " --paths.train train.spacy"
    missing += "" if corpora.dev else f" --paths.dev {dev}"
    config = shlex.quote(path)
    commands = [
        f"python -m spacy costner check {config}{missing}",
        f"python -m spacy train {config}{missing} --output training",
    ]
    model = "training/model-best"
    if plan.is_calibrated:
        commands.append(
            f"python -m spacy costner calibrate {model} {dev} --output training/calibrated"
        )
        model = "training/calibrated"
    if plan.is_tuned:
        by = "" if plan.has_probabilities else " --parameter bias"
        aim = f" --{plan.aim} {plan.required}" if plan.required is not None else ""
        commands.append(
            f"python -m spacy costner tune {model} {dev} --output training/tuned{by}{aim}"
        )
        model = "training/tuned"
    if plan.aim == "guarantee":
        options = "--miss 0.05 --output training/guaranteed"
        commands.append(f"python -m spacy costner guarantee {model} other.spacy {options}")
        report = "training/guaranteed test.spacy --output report.html"
        return [*commands, f"python -m spacy costner report {report}"]
    return [*commands, f"python -m spacy evaluate {model} test.spacy --output scores.json"]


TERMINAL = Path("-")


@errors_shown()
def init_cli(
    ctx: typer.Context,
    output_path: Annotated[
        Path, Argument(help="Config file to write, or - for the terminal", allow_dash=True)
    ],
    model: Annotated[
        str, Option("--model", "-m", help="Model: linear, cnn, hybrid or transformer")
    ] = "linear",
    lang: Annotated[str, Option("--lang", "-l", help="Code of the language")] = "en",
    train_path: Annotated[
        Optional[Path],
        Option(
            "--train", help="Training corpus, to choose sizes: see `costner convert`", exists=True
        ),
    ] = None,
    dev_path: Annotated[
        Optional[Path],
        Option("--dev", help="Development corpus: see `costner convert`", exists=True),
    ] = None,
    sentences: Annotated[
        Optional[int],
        Option("--sentences", help="Number of training sentences, without --train", min=1),
    ] = None,
    aim: Annotated[
        Optional[str],
        Option(
            "--aim",
            "-a",
            help="f (best F), cost (lowest cost) or guarantee (a promised miss rate)",
            show_default="cost if you say what mistakes cost, otherwise f",
        ),
    ] = None,
    precision: Annotated[
        Optional[float], Option("--precision", help="Aim: best recall with at least this precision")
    ] = None,
    recall: Annotated[
        Optional[float], Option("--recall", help="Aim: best precision with at least this recall")
    ] = None,
    miss: Annotated[
        Optional[float],
        Option("--miss", help="Cost of a miss, where other mistakes cost 1", show_default="1"),
    ] = None,
    false_alarm: Annotated[
        Optional[float], Option("--false-alarm", help="Cost of a false alarm", show_default="1")
    ] = None,
    wrong_label: Annotated[
        Optional[float], Option("--wrong-label", help="Cost of a wrong label", show_default="1")
    ] = None,
    wrong_boundary: Annotated[
        Optional[float],
        Option("--wrong-boundary", help="Cost of a wrong boundary", show_default="1"),
    ] = None,
    tree_path: Annotated[
        Optional[Path],
        Option("--tree", help="Label tree, a JSON or YAML file: near labels cost less"),
    ] = None,
    cost: Annotated[
        Optional[str],
        Option("--cost", help="hamming, zero-one or a CSV file: the cost of each pair of labels"),
    ] = None,
    loss: Annotated[
        Optional[str],
        Option(
            "--loss",
            help="Loss, or several, separated by commas, to train with one after another",
            show_default="by model, aim and size",
        ),
    ] = None,
    decoding: Annotated[
        Optional[str],
        Option(
            "--decoding",
            help="viterbi, threshold or min-cost",
            show_default="min-cost for --aim cost, otherwise viterbi",
        ),
    ] = None,
    inner_nodes: Annotated[
        bool, Option("--inner-nodes", help="Also predict inner nodes of the tree")
    ] = False,
    transformer: Annotated[
        Optional[str],
        Option(
            "--transformer",
            help="Name or folder of the transformer",
            show_default="that of `spacy init config`",
        ),
    ] = None,
    force: Annotated[bool, Option("--force", "-F", help="Overwrite the output file")] = False,
) -> None:
    """
    Write a config for `spacy train`: for your model, language and corpus, for what mistakes
    cost and for your aim. With --train, batches and evaluations fit the size of the corpus. The
    config begins with the commands to run next. Several costs are added.
    """
    if output_path != TERMINAL and output_path.exists() and not force:
        raise ValueError(f"{output_path}: expected a new file, got one that exists: use --force")
    if transformer is not None and model != "transformer":
        raise ValueError(f"--transformer: expected --model transformer, got --model {model}")
    check_lang(lang)
    mistakes = {
        "miss": miss,
        "false_alarm": false_alarm,
        "wrong_label": wrong_label,
        "wrong_boundary": wrong_boundary,
    }
    size = get_size(train_path, sentences, lang)
    plan = make_plan(
        model=model,
        losses=loss,
        decoding=decoding,
        aim=aim,
        precision=precision,
        recall=recall,
        costs=get_costs(tree_path, cost, mistakes),
        inner_nodes=inner_nodes,
        sentences=None if size is None else size.sentences,
    )
    corpora = Corpora(train_path, dev_path, size)
    path = "config.cfg" if output_path == TERMINAL else str(output_path)
    text = write_config(
        plan, lang, corpora, command=command_line(ctx), path=path, transformer=transformer
    )
    if output_path == TERMINAL:
        typer.echo(text, nl=False)
        return
    save_file(output_path, lambda new: new.write_text(text, encoding="utf8"))
    show(plan, corpora, path)


def get_size(train_path: Optional[Path], sentences: Optional[int], lang: str) -> Optional[Size]:
    """The size of the training corpus, if it is known.

    RAISES (ValueError): If it is given and counted.
    """
    if train_path is None:
        return None if sentences is None else size_of_sentences(sentences)
    if sentences is not None:
        raise ValueError("--sentences: expected no --train, which is counted, got both")
    return look(train_path, lang)


def get_costs(
    tree_path: Optional[Path], cost: Optional[str], mistakes: Mapping[str, Optional[float]]
) -> Costs:
    """What mistakes cost, by the options that are given."""
    costs = Costs() if cost is None else parse_cost(cost)
    given = {kind: number for kind, number in mistakes.items() if number is not None}
    return costs._replace(tree=tree_path, mistakes=given)


def show(plan: Plan, corpora: Corpora, path: str) -> None:
    """Print what was found and what to do next."""
    size = corpora.size
    if corpora.train is not None and size is not None:
        typer.echo(f"{corpora.train}: {describe_size(size)}")
    if size is not None and size.sentences < FEW and plan.model == "linear":
        typer.echo(f"With fewer than {FEW:,} sentences also try --model hybrid.")
    typer.echo(f"Written to {path}. Next:\n")
    for command in next_commands(plan, corpora, path):
        typer.echo(f"    {command}")


def check_lang(lang: str) -> None:
    """Check the code of a language.

    RAISES (ValueError): If spaCy has no such language.
    """
    try:
        get_lang_class(lang)
    except ImportError as error:
        raise ValueError(f"--lang: expected a language of spaCy, got {lang!r}") from error


def command_line(ctx: typer.Context) -> str:
    """The command as it was given."""
    words: List[str] = []
    for param in ctx.command.params:
        name = param.name or ""
        source, value = ctx.get_parameter_source(name), ctx.params[name]
        if source is None or source.name != "COMMANDLINE" or value is None:
            continue
        options = [] if param.param_type_name == "argument" else [param.opts[0]]
        words += options if value is True else [*options, str(value)]
    return f"python -m spacy costner {ctx.command.name} {shlex.join([*words, *ctx.args])}"
