"""Write a commented config for `spacy train`, as `spacy init config` does.

The template is templates/init.cfg.jinja; this module chooses its values. Options say what the
config is for: its aim, and what mistakes cost. The rest follows from them and from the training
corpus, which is measured once: `init` makes a `Plan`, and `make_settings` the blocks of the config.
Labels whose spans may overlap are divided into groups, and each group gets a component.
"""

import json
import math
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from inspect import signature
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, Literal

import spacy
from spacy.cli.init_config import RECOMMENDATIONS
from spacy.tokens import Span
from spacy.util import get_lang_class, is_package, registry
from thinc.api import Config

import spacy_costner

from ..costs.cost_matrix import make_matrix
from ..costs.label_tree import make_tree
from ..costs.tables import HAMMING
from ..docstrings import parameter_texts, summary_text
from ..readers import ReadOptions, read_docs
from ..rendering import get_template
from ..saving import save_text
from ..settings import check_settings
from ..tags import OUTSIDE, Tags
from ..training.lbfgs import MANY_LABELS
from ..types import Loss
from .preparation import FEW_SENTENCES, count_sentences
from .tuning import parse_aim
from .vectors import DIR_VECTORS, learn_beside

Model = Literal["linear", "cnn", "hybrid", "transformer"]
Decoding = Literal["viterbi", "threshold", "min-cost"]
Block = dict[str, Any]
"""A block of a config."""

MISTAKES = ("miss", "false_alarm", "wrong_label", "wrong_boundary")
"""The kinds of mistakes whose costs are options."""

RECOMMENDED = {"Mixed": {"k": 3.0}, "Perceptron": {"alpha": 1.0}, "ZScore": {"multiplier": 20.0}}
"""Settings of losses where they are not the defaults."""

HIGH_COST_OF_MISSES = {
    "@misc": "spacy_costner.PrecisionRecallCost.v1",
    "miss": 2.0,
    "false_alarm": 1.0,
    "wrong_label": 1.0,
    "wrong_boundary": 1.0,
}
"""The cost in training on few sentences, where models miss too many entities."""

MAX_OVERLAP = 0.01
"""At most this share of the spans of a label may overlap with spans of other labels in its
component, which can't predict both."""

LATER_EPOCHS = 2
"""Passes over the training data for each loss of a schedule but the first."""

HIGHEST_SCORE = 5
"""No mistake has a higher score in a loss that scales its cost."""


@dataclass(frozen=True)
class TrainingCorpus:
    """What the config depends on in a training corpus. Without one, it is taken to be large."""

    doc_lengths: Sequence[int] = ()  # in tokens
    n_sentences: float = math.inf
    n_word_forms: int = 5000
    label_counts: Counter[str] = field(default_factory=Counter)  # the number of spans of each label
    overlaps: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of pairs of spans that overlap, by the labels of both. A pair of a DRUG and a DOSE
    counts at ("DRUG", "DOSE") and at ("DOSE", "DRUG")."""

    @property
    def is_small(self) -> bool:
        """Whether it has so few sentences that a linear model is trained on all at once."""
        return self.n_sentences < FEW_SENTENCES


@dataclass(frozen=True)
class Costs:
    """What mistakes cost by the options. If several say so, their costs are added."""

    blocks: Mapping[str, Block]
    """The blocks of the costs that are given, by "tree", "matrix", "tags" and "mistakes"."""
    files: Mapping[str, str]
    """The files of the costs, by their names in the block [paths]: "tree" and "costs"."""
    mistakes: Mapping[str, float]
    """The cost of each kind of mistake that is given: see `MISTAKES`."""

    def block(self, aim: str) -> Block | None:
        """The block of the cost, for scores, training and decoding; None if nothing has a cost."""
        if len(self.blocks) > 1:
            return {"@misc": "spacy_costner.SumCost.v1", "costs": dict(self.blocks)}
        if len(self.blocks) == 1:
            (block,) = self.blocks.values()
            return block
        if aim == "cost":
            return HAMMING
        return None


@dataclass(frozen=True)
class Sizes:
    """Settings that fit the size of a corpus."""

    batcher: Block
    eval_frequency: int
    patience: int
    max_epochs: int
    max_steps: int
    n_embed_rows: int


@dataclass(frozen=True)
class Plan:
    """What the config is for, and what was chosen for it, by options or here. The template uses
    these fields by their names, and those of `Settings`."""

    # The file, and the command that makes it
    config_path: Path
    command: str

    # The corpora
    train_path: Path | None
    dev_path: Path | None
    corpus: TrainingCorpus

    # The pipeline
    lang: str
    model: Model
    transformer: str | None  # None: the one that spaCy recommends for the language
    vectors: str | None  # a package or folder with static vectors
    groups: Mapping[str, list[str]]  # the labels of each component; empty if none may overlap
    spans_key: str | None

    # Training and decoding
    aim: str
    costs: Costs
    losses: Sequence[str]
    has_loss_option: bool  # whether an option names the losses
    decoding: Decoding
    inner_nodes: bool


@dataclass(frozen=True)
class Settings:
    """What follows from a `Plan`, for the template."""

    # What the head of the file says
    version: str
    has_mistakes: bool  # whether the cost of a kind of mistake is given
    has_probabilities: bool  # whether scores are probabilities after the last loss

    # The corpora
    files: Mapping[str, str]
    has_many_labels: bool
    has_long_docs: bool

    # The pipeline
    transformer_name: str
    transformer_size_factor: int
    components: Mapping[str, Sequence[str] | None]  # the labels of each; None: all
    lossy_components: Sequence[str]  # those with labels whose spans overlap

    # The blocks of each component
    loss: Block
    decoding_block: Block
    cost: Block | None
    has_tree: bool

    sizes: Sizes


def init(
    output_path: Path = Path("config.cfg"),
    *,
    model: Model = "linear",
    lang: str = "en",
    train_path: Path | None = None,
    dev_path: Path | None = None,
    aim: str | None = None,
    miss: float | None = None,
    false_alarm: float | None = None,
    wrong_label: float | None = None,
    wrong_boundary: float | None = None,
    tree_path: Path | None = None,
    tree_by_prefix: str | None = None,
    cost: str | None = None,
    loss: str | None = None,
    decoding: Decoding | None = None,
    inner_nodes: bool = False,
    spans_key: str | None = None,
    groups_path: Path | None = None,
    transformer: str | None = None,
    vectors: str | None = None,
    raw_paths: list[Path] | None = None,
    force: bool = False,
    command: str = "python -m spacy costner init",
) -> str:
    """Make a config. docs/init.md says what is chosen where an argument is None. Costs are by
    token. Of all files only that of `tree_by_prefix` is written here.

    output_path (Path): Where the config will be, for the commands at its head.
    model (Literal["linear", "cnn", "hybrid", "transformer"]): Kind of model.
    lang (str): Code of the language.
    train_path (Path | None): Training corpus, to choose sizes; any format.
    dev_path (Path | None): Development corpus; any format.
    aim (str | None): f (best F), cost (lowest cost), guarantee (a promised miss rate),
        precision=0.9 (best recall with at least this precision) or recall=0.9.
    miss (float | None): Cost of a missed entity, for each token.
    false_alarm (float | None): Cost of a false alarm, for each token.
    wrong_label (float | None): Cost of a wrong label, for each token.
    wrong_boundary (float | None): Cost of a wrong boundary, where the label is right, for each
        token.
    tree_path (Path | None): Label tree, a JSON or YAML file: near labels cost less.
    tree_by_prefix (str | None): Write the label tree, by default to tree.json beside the config:
        each label is below its part before this separator, such as _.
    cost (str | None): hamming, zero-one or a CSV file: the cost of each pair of labels.
    loss (str | None): Loss, or several, separated by commas.
    decoding (Literal["viterbi", "threshold", "min-cost"] | None): How entities are chosen.
    inner_nodes (bool): Also predict inner nodes of the tree.
    spans_key (str | None): Entities may overlap: the key of doc.spans.
    groups_path (Path | None): JSON file, {component: [labels]}: labels of different components may
        overlap.
    transformer (str | None): Name or folder of the transformer.
    vectors (str | None): Package or folder of a pipeline whose static vectors are inputs.
    raw_paths (list[Path] | None): Text without annotation: learn vectors from it and from --train,
        to the folder vectors beside the config. See `costner vectors`.
    force (bool): Overwrite the file of the tree and the folder of the vectors.
    command (str): The command that makes the config, for its head.
    RETURNS (str): The config.
    RAISES (ValueError): If there is no such loss, cost or aim, if arguments don't go together, or
        if a file can't be read or lacks a label of the corpus.
    RAISES (ImportError): If spaCy has no such language.
    """
    get_lang_class(lang)  # an error if there is no such language
    if transformer is not None and model != "transformer":
        raise ValueError(f"--transformer: expected --model transformer, got --model {model}")
    if raw_paths:
        check_raw_option(vectors, model)
        if not force:
            refuse_existing(output_path.with_name(DIR_VECTORS))
    elif vectors is not None:
        check_vectors_option(vectors, model)
    if aim is not None:
        parse_aim(aim, "cost", "guarantee", option="--aim")

    # What the corpus and the files say
    if spans_key is None and groups_path is not None:
        spans_key = "sc"  # that of spaCy's SpanCategorizer
    if tree_path is None and tree_by_prefix is not None:
        tree_path = output_path.with_name("tree.json")
    corpus = measure_corpus(train_path, lang, spans_key)
    groups: dict[str, list[str]] = {}
    if spans_key is not None:
        groups = choose_groups(corpus, groups_path)
    cost_options = {
        "miss": miss,
        "false_alarm": false_alarm,
        "wrong_label": wrong_label,
        "wrong_boundary": wrong_boundary,
    }
    mistake_costs: dict[str, float] = {}
    for mistake, mistake_cost in cost_options.items():
        if mistake_cost is not None:
            mistake_costs[mistake] = mistake_cost
    costs = choose_costs(tree_path, cost, mistake_costs)

    # What the options leave open
    if aim is None:
        aim = "cost" if costs.blocks or decoding == "min-cost" else "f"
    if spans_key is not None and costs.block(aim) is not None:
        raise ValueError("--spans-key: expected no costs with it, as their scores are of doc.ents")
    if loss is None:
        losses = choose_losses(model, aim, costs.blocks, is_small=corpus.is_small)
    else:
        losses = parse_losses(loss)
    if decoding is None:
        decoding = choose_decoding(model, aim, build_loss(losses[-1]), inner_nodes=inner_nodes)
    check_choices(aim, losses, decoding, costs, inner_nodes=inner_nodes)

    if tree_by_prefix is not None:
        if train_path is None or tree_path is None:
            raise ValueError("--tree-by-prefix: expected --train, whose labels are in the tree")
        if not force:
            refuse_existing(tree_path)
        write_tree(tree_path, sorted(corpus.label_counts), tree_by_prefix)
    if raw_paths:
        vectors = str(learn_beside(raw_paths, train_path, output_path.parent, lang).path)
    plan = Plan(
        config_path=output_path,
        command=command,
        train_path=train_path,
        dev_path=dev_path,
        corpus=corpus,
        lang=lang,
        model=model,
        transformer=transformer,
        vectors=vectors,
        groups=groups,
        spans_key=spans_key,
        aim=aim,
        costs=costs,
        losses=losses,
        has_loss_option=loss is not None,
        decoding=decoding,
        inner_nodes=inner_nodes,
    )
    return render_config(plan, make_settings(plan))


def check_raw_option(vectors: str | None, model: Model) -> None:
    """RAISES (ValueError): If vectors are given, too, or the model takes no static vectors."""
    if vectors is not None:
        raise ValueError("--raw: expected no --vectors with it, as these are learned")
    if model == "transformer":
        raise ValueError("--raw: expected --model linear, cnn or hybrid, got transformer")


def check_vectors_option(vectors: str, model: Model) -> None:
    """Check the option --vectors.

    RAISES (ValueError): If there is no such pipeline, or the model takes no static vectors.
    """
    if model == "transformer":
        raise ValueError("--vectors: expected --model linear, cnn or hybrid, got transformer")
    if not is_package(vectors) and not Path(vectors).is_dir():
        raise ValueError(
            "--vectors: expected the package or the folder of a pipeline with static vectors, got "
            f"{vectors!r}"
        )


def make_settings(plan: Plan) -> Settings:
    """Make the blocks and the other settings that follow from a plan."""
    corpus = plan.corpus
    costs = plan.costs
    sizes = choose_sizes(plan.model, corpus)

    # The cost stands in the config once, in the scorer. Training and decoding refer to it.
    cost_block = costs.block(plan.aim)
    used_cost: Any = None
    if cost_block is not None:
        used_cost = "${components.ner.scorer.cost}"
    elif not plan.has_loss_option:
        used_cost = HIGH_COST_OF_MISSES
    loss_block = make_loss(
        plan.losses,
        used_cost,
        multiplier=choose_multiplier(cost_block, costs.files, corpus),
        epochs=choose_epochs(plan.losses, sizes),
    )
    decoding_block = make_decoding(
        plan.decoding, plan.aim, costs.mistakes, used_cost, inner_nodes=plan.inner_nodes
    )

    # These components learn and predict only some of the spans of their labels.
    lossy_components: list[str] = []
    for name, labels in plan.groups.items():
        if has_overlaps(labels, corpus):
            lossy_components.append(name)

    recommended = RECOMMENDATIONS.get(plan.lang, RECOMMENDATIONS["__default__"])
    transformer = recommended["transformer"]["efficiency"]
    # In docs of three sentences and more, on average, the same words come again.
    n_docs = len(corpus.doc_lengths)
    has_long_docs = 0 < 3 * n_docs <= corpus.n_sentences
    return Settings(
        version=spacy_costner.__version__,
        has_mistakes=bool(costs.mistakes),
        has_probabilities=build_loss(plan.losses[-1]).has_probabilities,
        files=costs.files,
        has_many_labels=len(corpus.label_counts) > MANY_LABELS,  # see docs/linear.md
        has_long_docs=has_long_docs,
        transformer_name=plan.transformer or transformer["name"],
        transformer_size_factor=transformer["size_factor"],
        components=labels_of_components(plan.groups),
        lossy_components=lossy_components,
        loss=loss_block,
        decoding_block=decoding_block,
        cost=cost_block,
        has_tree="tree" in costs.files,
        sizes=sizes,
    )


def render_config(plan: Plan, settings: Settings) -> str:
    """Fill the template, and check that something reads each setting of the config."""
    template = get_template("init.cfg.jinja", config_value, read_comments, shlex.quote)
    text = template.render({**vars(plan), **vars(settings)})
    # A block that is left out leaves its empty lines.
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    check_settings(Config().from_str(text, interpolate=False), plan.config_path)
    return text


def measure_corpus(
    path: Path | None, lang: str = "en", spans_key: str | None = None
) -> TrainingCorpus:
    """Measure a training corpus.

    path (Path | None): The corpus; any format. None: there is none.
    lang (str): Code of the language.
    spans_key (str | None): Count the spans under this key of `doc.spans`. None: count `doc.ents`.
    RAISES (ValueError): If it has no spans.
    """
    if path is None:
        return TrainingCorpus()
    doc_lengths: list[int] = []
    label_counts: Counter[str] = Counter()
    overlaps: Counter[tuple[str, str]] = Counter()
    n_sentences = 0
    word_forms = set[int]()
    filled_keys = set[str]()  # the keys of `doc.spans` that have spans in any doc
    for doc in read_docs(spacy.blank(lang), path, ReadOptions(spans_key=spans_key)):
        doc_lengths.append(len(doc))
        n_sentences += count_sentences(doc)
        word_forms.update(token.norm for token in doc)
        for key, group in doc.spans.items():
            if len(group):
                filled_keys.add(key)
        spans = doc.ents
        if spans_key is not None:
            spans = sorted(set(doc.spans.get(spans_key, ())))
        label_counts.update(span.label_ for span in spans)
        count_overlaps(spans, overlaps)
    if not label_counts:
        message = no_spans_message(len(doc_lengths), spans_key, filled_keys)
        raise ValueError(f"{path}: {message}")
    return TrainingCorpus(doc_lengths, n_sentences, len(word_forms), label_counts, overlaps)


def no_spans_message(n_docs: int, spans_key: str | None, filled_keys: Iterable[str]) -> str:
    """The message for a corpus without spans.

    n_docs (int): The number of docs.
    spans_key (str | None): The key of `doc.spans` that has no spans. None: `doc.ents` has none.
    filled_keys (Iterable[str]): The keys of `doc.spans` that have some.
    """
    if spans_key is not None:
        return f"expected docs with entities in doc.spans[{spans_key!r}], got none in {n_docs} docs"
    # `doc.ents` has none where entities overlap: they are in groups of spans.
    key = min(filled_keys, default="sc")
    return (
        f"expected docs with entities, got none in {n_docs} docs. If entities overlap, write a "
        f"config with `costner init --spans-key {key}`, and train with it"
    )


def count_overlaps(spans: Sequence[Span], overlaps: Counter[tuple[str, str]]) -> None:
    """Count the pairs of spans of a doc that overlap, by their labels in both orders.

    spans (Sequence[Span]): The spans of the doc, sorted.
    overlaps (Counter[tuple[str, str]]): The pairs are added to these: see `TrainingCorpus`.
    """
    for i, span in enumerate(spans):
        for later in spans[i + 1 :]:
            if later.start >= span.end:
                break  # As spans are sorted, those that follow begin later still.
            overlaps[span.label_, later.label_] += 1
            if later.label_ != span.label_:
                overlaps[later.label_, span.label_] += 1


def has_overlaps(labels: Sequence[str], corpus: TrainingCorpus) -> bool:
    """Whether spans of these labels overlap with each other."""
    # With replacement: spans of the same label may overlap, too.
    return any(pair in corpus.overlaps for pair in combinations_with_replacement(labels, 2))


def choose_groups(corpus: TrainingCorpus, path: Path | None) -> dict[str, list[str]]:
    """The labels of each component, from a file or, without one, by what overlaps in the corpus.

    RAISES (ValueError): If there is neither, or the file doesn't have each label once.
    """
    if path is not None:
        return read_groups(path, corpus.label_counts)
    if not corpus.label_counts:
        raise ValueError("--spans-key: expected --groups or --train, to find groups of labels")
    groups = group_labels(corpus)
    if len(groups) == 1:
        return {"ner": groups[0]}
    return {f"ner_{i}": labels for i, labels in enumerate(groups, start=1)}


def group_labels(corpus: TrainingCorpus) -> list[list[str]]:
    """Divide labels into groups whose spans rarely overlap.

    Labels are assigned one after another, the most frequent first. Each joins the group with which
    the fewest of its spans overlap. If these are more than `MAX_OVERLAP`, it opens a new group.
    """
    groups: list[list[str]] = []
    for label, n_spans in corpus.label_counts.most_common():
        # How many spans of this label overlap with those of each group.
        n_overlaps: list[int] = []
        for group in groups:
            n_overlaps.append(sum(corpus.overlaps[label, member] for member in group))
        if groups and min(n_overlaps) <= MAX_OVERLAP * n_spans:
            best_group = groups[n_overlaps.index(min(n_overlaps))]
            best_group.append(label)
        else:
            groups.append([label])
    return [sorted(group) for group in groups]


def labels_of_components(groups: Mapping[str, list[str]]) -> dict[str, list[str] | None]:
    """The labels of each component, by its name. None: it has all labels, as a single component
    does. Without groups it is named "ner"."""
    if not groups:
        return {"ner": None}
    if len(groups) == 1:
        return dict.fromkeys(groups)
    return dict(groups)


def read_groups(path: Path, label_counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Read the labels of each component, and check that each label of the corpus has one."""
    try:
        groups: Any = json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        message = f"{path}: --groups: expected JSON, {{component: [labels]}}, got {error}"
        raise ValueError(message) from None
    if not are_groups(groups):
        raise ValueError(f"{path}: expected {{component: [labels]}}, got {groups!r}")
    n_components: Counter[str] = Counter()  # of each label
    for labels in groups.values():
        n_components.update(labels)
    repeated = [label for label, n in n_components.items() if n > 1]
    if repeated:
        raise ValueError(f"{path}: expected each label in one component, got {repeated} in several")
    missing = sorted(set(label_counts) - set(n_components))
    if missing:
        raise ValueError(f"{path}: expected all labels of the corpus, got none of {missing}")
    return groups


def are_groups(groups: Any) -> bool:
    """Whether a value of JSON is {component: [labels]}: names of components, with at least one
    label each."""
    if not isinstance(groups, dict) or not groups:
        return False
    for name, labels in groups.items():
        has_labels = isinstance(labels, list) and len(labels) > 0
        if not has_labels or re.fullmatch(r"\w+", name) is None:
            return False
    return True


def choose_costs(
    tree_path: Path | None, cost: str | None, mistake_costs: Mapping[str, float]
) -> Costs:
    """Make the block of each cost that options name.

    tree_path (Path | None): The file of the label tree.
    cost (str | None): The name of a registered cost, or a CSV file: see `init`.
    mistake_costs (Mapping[str, float]): The cost of each kind of mistake that is given.
    RETURNS (Costs): The blocks and their files.
    RAISES (ValueError): If there is no such cost.
    """
    blocks: dict[str, Block] = {}
    files: dict[str, str] = {}
    if tree_path is not None:
        files["tree"] = str(tree_path)
        blocks["tree"] = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": "${paths.tree}"}
    if cost is not None and Path(cost).is_file():
        files["costs"] = str(Path(cost))
        blocks["matrix"] = {"@misc": "spacy_costner.MatrixCost.v1", "matrix": "${paths.costs}"}
    elif cost is not None:
        name = find_name("Cost", cost, "a CSV file")
        blocks["tags"] = {"@misc": f"spacy_costner.{name}Cost.v1"}
    if mistake_costs:
        # Beside another cost, a mistake that isn't named adds nothing to it.
        default = 0.0 if blocks else 1.0
        block: Block = {"@misc": "spacy_costner.PrecisionRecallCost.v1"}
        for mistake in MISTAKES:
            block[mistake] = mistake_costs.get(mistake, default)
        blocks["mistakes"] = block
    return Costs(blocks, files, mistake_costs)


def choose_losses(model: str, aim: str, costs: Mapping[str, Any], *, is_small: bool) -> list[str]:
    """The losses that docs/which-loss.md recommends, several for a schedule.

    model (str): The kind of model.
    aim (str): What is best: see `init`.
    costs (Mapping[str, Any]): By kind, what options say mistakes cost: see `Costs.blocks`.
    is_small (bool): Whether there are few training sentences.
    RETURNS (list[str]): The names of the losses.
    """
    if aim == "guarantee":
        return ["Sequential"]
    has_tree = "tree" in costs
    if has_tree and aim != "cost":
        if model == "linear":
            return ["SoftmaxMargin", "MCEF"]
        return ["Sequential"]
    if has_tree and model != "linear":
        return ["SoftmaxMargin", "Risk"]
    if costs or aim == "cost":
        return ["SoftmaxMargin"]
    if model == "linear" and is_small:
        return ["SoftmaxMargin"]  # with `HIGH_COST_OF_MISSES`
    return ["Sequential"]


def choose_decoding(model: str, aim: str, last_loss: Loss, *, inner_nodes: bool) -> Decoding:
    """Choose how entities are chosen from scores. It is by expected cost if the aim is the lowest
    cost and scores are probabilities.

    model (str): The kind of model.
    aim (str): What is best: see `init`.
    last_loss (Loss): The loss that training ends with.
    inner_nodes (bool): Whether inner nodes of the label tree are predicted, too.
    """
    if aim != "cost" or not last_loss.has_probabilities:
        return "viterbi"
    # A linear model learns the cost well: its best path costs less than decoding by the expected
    # cost of its shifted probabilities. See docs/init.md.
    if model == "linear" and last_loss.shifts_probabilities and not inner_nodes:
        return "viterbi"
    return "min-cost"


def check_choices(
    aim: str, losses: Sequence[str], decoding: str, costs: Costs, *, inner_nodes: bool
) -> None:
    """Check that no choice makes another one pointless or impossible.

    aim (str): What is best: see `init`.
    losses (Sequence[str]): The names of the losses, in order.
    decoding (str): How entities are chosen: see `Decoding`.
    costs (Costs): What mistakes cost.
    inner_nodes (bool): Whether inner nodes of the label tree are predicted, too.
    RAISES (ValueError): If one does.
    """
    if decoding == "min-cost" and aim != "cost":
        raise ValueError(
            "--decoding: expected min-cost with --aim cost only: `costner tune` would replace it, "
            "and `costner guarantee` chooses a set of spans"
        )

    # Some options are pointless if scores are not probabilities after training.
    option_of_probabilities = None
    if aim == "guarantee":
        option_of_probabilities = "--aim guarantee"
    elif decoding != "viterbi":
        option_of_probabilities = f"--decoding {decoding}"
    if option_of_probabilities is not None and not build_loss(losses[-1]).has_probabilities:
        raise ValueError(
            f"--loss: expected a loss such as Sequential with {option_of_probabilities}, got "
            f"{losses[-1]}: its scores are not probabilities"
        )

    # A cost is used by a loss or by the aim. A tree is used by the scorer, whatever the loss.
    has_cost_in_training = any(build_loss(name).cost for name in losses)
    is_cost_used = has_cost_in_training or aim == "cost" or "tree" in costs.blocks
    if costs.blocks and not is_cost_used:
        raise ValueError(
            f"--loss: expected a loss that takes a cost, or --aim cost, got {', '.join(losses)}: "
            "nothing would use what you say mistakes cost"
        )

    if inner_nodes and (decoding != "min-cost" or "tree" not in costs.blocks):
        raise ValueError("--inner-nodes: expected --tree and --decoding min-cost with it")


def refuse_existing(path: Path) -> None:
    """Check that a new file would overwrite none.

    RAISES (ValueError): If it would.
    """
    if path.exists():
        raise ValueError(f"{path}: expected a new file, got one that exists: use --force")


def write_tree(path: Path, labels: Sequence[str], separator: str) -> None:
    """Write a label tree of two levels: each label below its part before the separator. With "_",
    LOC_city and LOC_river are below LOC. A label without the separator, or that begins with it, is
    on the first level.

    RAISES (ValueError): If no label has the separator.
    """
    if not separator or not any(separator in label for label in labels):
        raise ValueError(
            f"--tree-by-prefix: expected a separator in labels, got {separator!r} for "
            f"{', '.join(labels)}"
        )
    tree: dict[str, Any] = {}
    for label in labels:
        prefix, _, _ = label.partition(separator)
        if not prefix:  # it begins with the separator
            prefix = label
        children = tree.setdefault(prefix, {})
        if label != prefix:
            children[label] = {}
    save_text(path, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")


def parse_losses(text: str, option: str = "--loss") -> list[str]:
    """The names of losses that are separated by commas. If the first one needs a trained model to
    start from, Sequential comes before it. An error names the option."""
    losses = [find_name("Loss", name, option=option) for name in text.split(",")]
    if build_loss(losses[0]).needs_start:
        losses.insert(0, "Sequential")
    return losses


def find_name(
    kind: Literal["Loss", "Cost"], text: str, *other_choices: str, option: str | None = None
) -> str:
    """The short name of a registered loss or cost: SoftmaxMargin for softmax_margin, softmax-margin
    and spacy_costner.SoftmaxMargin.v1.

    kind (Literal["Loss", "Cost"]): What it is the name of.
    text (str): The name as somebody typed it.
    *other_choices (str): What the option also takes, for the error.
    option (str | None): The option, for the error. None: --loss or --cost.
    RETURNS (str): The short name.
    RAISES (ValueError): If there is no such loss or cost. The message has all names.
    """
    # Some have no name here: a schedule is several losses, and costs with files have options of
    # their own. The pattern captures the short name.
    if kind == "Loss":
        group = "thinc_losses"
        pattern = r"spacy_costner\.(?!Schedule)(\w+)\.v1"
    else:
        group = "spacy_misc"
        pattern = r"spacy_costner\.((?!Hierarchical|Matrix|Sum)\w+)Cost\.v1"
    short_names: dict[str, str] = {}  # by themselves in lower case
    for entry_point in entry_points(group=group):
        match = re.fullmatch(pattern, entry_point.name)
        if match is not None:
            short_name = match[1]
            short_names[short_name.lower()] = short_name

    # Without "spacy_costner." and "Cost.v1" around it, and without what separates words.
    typed_name = re.sub(r"^spacy_costner\.|(cost)?(\.v1)?$|[ _-]", "", text.strip().lower())
    if typed_name not in short_names:
        if option is None:
            option = f"--{kind.lower()}"
        choices = ", ".join([*short_names.values(), *other_choices])
        message = f"{option}: expected any of {choices}, got {text!r}"
        if typed_name == "schedule":
            message += ": separate losses by commas for a schedule"
        raise ValueError(message)
    return short_names[typed_name]


def build_loss(name: str) -> Loss:
    """Make the loss of this short name, with the Hamming cost if it takes one."""
    loss: Loss = registry.resolve({"loss": make_loss([name], HAMMING)})["loss"]
    return loss


def make_loss(
    losses: Sequence[str],
    cost: Any = None,
    *,
    multiplier: float = 1.0,
    epochs: Sequence[float] = (5.0,),
) -> Block:
    """The block of a loss, or of a schedule of losses, with recommended settings.

    losses (Sequence[str]): The name of the loss, or those of the schedule.
    cost (Any): The block of the cost, or a variable that names one. None: the Hamming cost.
    multiplier (float): A factor of the recommended score per unit of cost.
    epochs (Sequence[float]): After how many epochs each loss of a schedule but the last ends.
    RETURNS (Block): The block.
    """
    blocks = [make_single_loss(name, cost, multiplier) for name in losses]
    if len(blocks) == 1:
        return blocks[0]
    # The sections of the schedule, which run in order
    stage_names = ["first", "then"]
    if len(blocks) > 2:
        stage_names = [f"loss_{i}" for i in range(1, len(blocks) + 1)]
    stages = dict(zip(stage_names, blocks))
    return {"@losses": "spacy_costner.Schedule.v1", "epochs": [*epochs], "*": stages}


def make_single_loss(loss: str, cost: Any, multiplier: float) -> Block:
    """The block of a loss: the defaults of its factory, and what is recommended. See `make_loss`
    for the arguments."""
    name = f"spacy_costner.{loss}.v1"
    parameters = signature(registry.losses.get(name)).parameters
    block: Block = {"@losses": name}
    for parameter in parameters.values():
        if parameter.default is not None:
            block[parameter.name] = parameter.default
    block.update(RECOMMENDED.get(loss, {}))
    # The score per unit of cost is named "multiplier" in some losses, and "alpha" in others.
    for setting in ("multiplier", "alpha"):
        if setting in block:
            block[setting] = round_to_two_digits(block[setting] * multiplier)
    if "cost" in parameters:
        if cost is not None:
            block["cost"] = cost
        elif loss != "Mixed":  # which has a cost only if one is given
            block["cost"] = HAMMING
    return block


def round_to_two_digits(value: float) -> float:
    """Round to two significant digits: 0.0123 to 0.012."""
    return float(f"{value:.2g}")


def choose_multiplier(
    cost: Block | None, files: Mapping[str, str], corpus: TrainingCorpus
) -> float:
    """Choose the score per unit of cost: 1, or 0.5 with a tree. It is less if the worst mistake
    would have a score above `HIGHEST_SCORE`.

    cost (Block | None): The block of the cost. None: mistakes have none.
    files (Mapping[str, str]): The files of the cost: see `Costs`.
    corpus (TrainingCorpus): The training corpus, whose labels are those of mistakes.
    """
    multiplier = 0.5 if "tree" in files else 1.0
    if cost is None:
        return multiplier
    highest_cost = find_highest_cost(cost, files, corpus.label_counts)
    if multiplier * highest_cost > HIGHEST_SCORE:
        return round_to_two_digits(HIGHEST_SCORE / highest_cost)
    return multiplier


def find_highest_cost(
    cost: Block, files: Mapping[str, str], label_counts: Mapping[str, int]
) -> float:
    """The highest cost that a token can have, with the labels of the corpus or, without a corpus,
    with those that the files of the cost name.

    cost (Block): The block of the cost.
    files (Mapping[str, str]): The files of the cost: see `Costs`.
    label_counts (Mapping[str, int]): The number of spans of each label of the corpus.
    """
    labels = list(label_counts)
    if not labels and "costs" in files:
        labels = list(make_matrix(files["costs"], "spacy_costner.MatrixCost: matrix").rows)
    elif not labels and "tree" in files:
        labels = list(make_tree(files["tree"], "spacy_costner.HierarchicalCost: tree").lineages)
    labels = [label for label in labels if label != OUTSIDE]  # a row of a matrix, but no label
    if not labels:
        labels = ["label"]  # costs without files are the same for all labels
    # Interpolated: the block names its files by variables such as ${paths.tree}.
    block = Config({"paths": dict(files), "cost": cost}).interpolate()["cost"]
    make_table = registry.resolve({"cost": block})["cost"]
    return float(make_table(Tags(labels)).max())


def choose_epochs(losses: Sequence[str], sizes: Sizes) -> list[float]:
    """Choose after how many epochs each loss of a schedule ends. The last one has no end.

    If training has a last epoch, the first loss ends such that each later one has `LATER_EPOCHS`.
    Otherwise it ends after about 500 steps.
    """
    n_later_losses = len(losses) - 1
    if sizes.max_epochs > 0:
        first_end = max(1, sizes.max_epochs - LATER_EPOCHS * n_later_losses)
    else:
        # An epoch has at least `eval_frequency` steps, as it is evaluated at least once.
        first_end = max(5, math.ceil(500 / sizes.eval_frequency))
    return [float(first_end + LATER_EPOCHS * i) for i in range(n_later_losses)]


def make_decoding(
    decoding: Decoding,
    aim: str,
    mistakes: Mapping[str, float],
    cost: Any,
    *,
    inner_nodes: bool,
) -> Block:
    """Make the block of decoding.

    decoding (Decoding): How entities are chosen.
    aim (str): What is best: see `init`.
    mistakes (Mapping[str, float]): The cost of each kind of mistake that is given. With the aim of
        the lowest cost they give the threshold: an entity is predicted if its probability is above
        1 - c(miss) / (c(miss) + c(false alarm)). See docs/decoding.md.
    cost (Any): The block of the cost, or a variable that names one.
    inner_nodes (bool): Whether inner nodes of the label tree are predicted, too.
    """
    if decoding == "viterbi":
        return {"@misc": "spacy_costner.ViterbiDecoding.v1", "bias": 0.0, "labels": {}}
    if decoding == "min-cost":
        block = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost}
        if inner_nodes:
            block["tree"] = "${paths.tree}"
        return block
    threshold = 0.5
    cost_of_miss = mistakes.get("miss", 1.0)
    total_cost = cost_of_miss + mistakes.get("false_alarm", 1.0)
    if aim == "cost" and total_cost > 0:
        threshold = round(1 - cost_of_miss / total_cost, 4)
    return {
        "@misc": "spacy_costner.ThresholdDecoding.v1",
        "threshold": threshold,
        "labels": {},
    }


def choose_sizes(model: Model, corpus: TrainingCorpus) -> Sizes:
    """Choose settings that fit the size of a corpus: an epoch has 100 batches or more, and is
    evaluated at least once."""
    batcher, batch_size = choose_batcher(model, corpus)
    # The steps of an epoch: those of a large corpus if there is none to count them in.
    n_steps = 2000 if model == "linear" else 200
    if corpus.doc_lengths:
        make_batches = registry.resolve({"batcher": batcher})["batcher"]
        # Batchers only ask for the length of a doc.
        docs = [range(length) for length in corpus.doc_lengths]
        n_batches = len(list(make_batches(docs)))
        n_steps = max(1, int(n_batches * 0.9))  # An epoch may have fewer if docs are shuffled.
    # A row for each word form; 5000 rows are those of spaCy's own configs.
    n_embed_rows = min(5000, max(1000, corpus.n_word_forms))

    # A linear model has learned after a few epochs: it takes them all.
    if model == "linear":
        return Sizes(
            batcher,
            eval_frequency=max(1, n_steps // 2),
            patience=0,
            max_epochs=8,
            max_steps=0,
            n_embed_rows=n_embed_rows,
        )

    # The others train until the best score is `patience` steps old.
    if model != "transformer":
        # Batches grow.
        batcher["size"] = {
            "@schedules": "compounding.v1",
            "start": 100,
            "stop": batch_size,
            "compound": 1.001,
        }
    least_patience = 1600
    least_steps = 20000
    if model == "hybrid":  # it begins with a trained linear part
        least_patience = 1000
        least_steps = 3000
    return Sizes(
        batcher,
        eval_frequency=min(200, n_steps),
        patience=max(least_patience, 2 * n_steps),
        max_epochs=0,
        max_steps=max(least_steps, 5 * n_steps),
        n_embed_rows=n_embed_rows,
    )


def choose_batcher(model: Model, corpus: TrainingCorpus) -> tuple[Block, int]:
    """Choose the batcher.

    RETURNS (tuple[Block, int]): Its block, and the number of words of a batch: about a hundredth of
        the corpus, within limits. With a transformer it is fixed, and counts padding.
    """
    if model == "transformer":
        size = 2000
        block = {
            "@batchers": "spacy.batch_by_padded.v1",
            "size": size,
            "buffer": 256,
            "discard_oversize": True,
        }
        return block, size
    min_size = 100
    max_size = 1000
    if model == "linear":
        min_size = 1
        max_size = 500
    size = max_size
    if corpus.doc_lengths:
        hundredth = sum(corpus.doc_lengths) // 100
        size = max(min_size, min(max_size, hundredth))
    block = {
        "@batchers": "spacy.batch_by_words.v1",
        "tolerance": 0.2,
        "discard_oversize": False,
        "size": size,
    }
    return block, size


def config_value(value: Any) -> str:
    """A value as the config has it: a variable such as ${paths.tree} as it is, or JSON."""
    if isinstance(value, str) and value.startswith("${"):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def read_comments(block: Mapping[str, Any]) -> dict[str, list[str]]:
    """Make the comments of a loss in the config from its docstrings.

    block (Mapping[str, Any]): The block of the loss. A block of something else has no comments.
    RETURNS (dict[str, list[str]]): The lines of the comment of each setting, by its name. The
        comment of the block itself has the name "".
    """
    if "@losses" not in block:
        return {}
    comments = parameter_texts(registry.losses.get(block["@losses"]))
    comments.pop("cost", None)  # the block of the cost has comments of its own

    # A loss is described by the docstring of the function that computes it. A schedule has none:
    # its losses are sections below it, under "*".
    if "*" not in block:
        settings = dict(block)
        if "cost" in settings:
            settings["cost"] = HAMMING  # in place of a variable, which has no value here
        compute = registry.resolve({"loss": settings})["loss"].compute
        # It may be the `compute` of a composition, or the `func` of a partial.
        for attribute in ("compute", "func"):
            compute = getattr(compute, attribute, compute)
        comments[""] = summary_text(compute)

    lines_of_comments: dict[str, list[str]] = {}
    for setting, comment in comments.items():
        on_one_line = " ".join(comment.split())
        lines_of_comments[setting] = textwrap.wrap(on_one_line, 98)
    return lines_of_comments
