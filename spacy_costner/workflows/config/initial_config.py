"""Write a commented config for `spacy train`, as `spacy init config` does.

The template of the config is templates/init.cfg.jinja, and this module chooses the values in it.
Arguments say what the config is for: its aim (what should be best), and what mistakes cost. The
rest follows from these and from the training corpus, which is measured once. First `init` collects
all choices in a `Plan`; then `make_settings` makes the blocks of the config.

One component can't predict spans that overlap. If spans may overlap, labels are divided into
groups, and each group gets a component.
"""

import json
import math
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from inspect import signature
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, Literal

import spacy
from spacy.attrs import NORM
from spacy.cli.init_config import RECOMMENDATIONS
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import get_lang_class, is_package, registry
from thinc.api import Config

import spacy_costner

from ...costs.cost_matrix import make_matrix
from ...costs.label_tree import make_tree
from ...costs.tables import HAMMING
from ...docstrings import parameter_texts, summary_text
from ...files.saving import save_text
from ...pages.rendering import get_template
from ...readers import DEFAULTS, KeptDocs, ReadOptions, read_docs
from ...tags import OUTSIDE, Tags
from ...training.lbfgs import MANY_LABELS
from ...types import Loss
from ..corpora import FEW_SENTENCES, count_sentences
from ..vectors import DIR_VECTORS, learn_beside
from .aims import parse_aim
from .unknown_settings import check_settings

Model = Literal["linear", "cnn", "hybrid", "transformer"]
Decoding = Literal["viterbi", "threshold", "min-cost"]
Block = dict[str, Any]
"""A block of a config."""

MISTAKES = ("miss", "false_alarm", "wrong_label", "wrong_boundary")
"""The kinds of mistakes whose costs are options."""

RECOMMENDED = {"Mixed": {"k": 3.0}, "Perceptron": {"alpha": 1.0}, "ZScore": {"multiplier": 20.0}}
"""The settings of losses for which another value than the default is recommended."""

HIGH_COST_OF_MISSES = {
    "@misc": "spacy_costner.PrecisionRecallCost.v1",
    "miss": 2.0,
    "false_alarm": 1.0,
    "wrong_label": 1.0,
    "wrong_boundary": 1.0,
}
"""The cost in training on few sentences, where models would otherwise miss too many entities."""

MAX_OVERLAP = 0.01
"""A component can't predict both of two spans that overlap. So at most this share of the spans of a
label may overlap with spans of other labels of the same component."""

LATER_EPOCHS = 2
"""How many epochs each loss of a schedule has, except the first."""

FIRST_STEPS = 500
"""About how many steps the first loss of a schedule has, if training has no last epoch."""

HIGHEST_SCORE = 5
"""Some losses turn costs into scores by a factor. It is chosen so that no mistake has a higher
score than this, except with ZScore, whose recommended factor is larger."""

SPACY_EMBED_ROWS = 5000
"""How many rows the tables of word forms have in spaCy's own configs."""

MIN_EMBED_ROWS = 1000
"""The least number of these rows, however small the corpus is."""

MIN_SENTENCES_OF_LONG_DOCS = 3
"""Docs are long if they have so many sentences on average: then words occur several times."""

LINE_LENGTH_OF_COMMENTS = 98
"""The most characters of a comment in the config, without its "# "."""


@dataclass(frozen=True)
class TrainingCorpus:
    """The properties of a training corpus that the config depends on. The defaults stand for an
    unknown corpus, which is taken to be large."""

    doc_lengths: Sequence[int] = ()  # in tokens
    n_sentences: float = math.inf
    n_word_forms: int = SPACY_EMBED_ROWS
    label_counts: Counter[str] = field(default_factory=Counter)  # the number of spans of each label
    overlaps: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of pairs of spans that overlap, by the labels of both. A DRUG that overlaps a DOSE
    is counted twice: at ("DRUG", "DOSE") and at ("DOSE", "DRUG")."""

    @property
    def is_small(self) -> bool:
        """Whether the corpus has so few sentences that a linear model is trained on all of them at
        once, by L-BFGS."""
        return self.n_sentences < FEW_SENTENCES


@dataclass(frozen=True)
class Costs:
    """What mistakes cost. If several arguments of `init` give a cost, the costs are added.

    blocks (Mapping[str, Block]): The block of each given cost, by what it was given as: "tree",
        "matrix", "tags" or "mistakes".
    files (Mapping[str, str]): The files of costs, by their names in the block [paths] of the
        config: "tree" and "costs".
    mistakes (Mapping[str, float]): The given costs of kinds of mistakes: see `MISTAKES`.
    """

    blocks: Mapping[str, Block]
    files: Mapping[str, str]
    mistakes: Mapping[str, float]

    def block(self, aim: str) -> Block | None:
        """The block of the cost of the config. None if no cost is given and the aim needs none.

        aim (str): What should be best: see `init`.
        """
        if len(self.blocks) > 1:
            return {"@misc": "spacy_costner.SumCost.v1", "costs": dict(self.blocks)}
        if len(self.blocks) == 1:
            (block,) = self.blocks.values()
            return block
        if aim == "cost":
            return HAMMING  # Every wrong tag costs 1.
        return None


@dataclass(frozen=True)
class Sizes:
    """Settings that fit the size of a corpus. All but the last are settings of [training]."""

    batcher: Block
    eval_frequency: int
    patience: int
    max_epochs: int
    max_steps: int
    n_embed_rows: int  # how many rows the table of word forms has


@dataclass(frozen=True)
class Plan:
    """All choices for a config: those that the arguments of `init` make, and those that they leave
    open. The template uses the fields of `Plan` and `Settings` by their names."""

    # The file, and the command that makes it
    config_path: Path
    command: str

    # The corpora
    train_path: Path | None
    dev_path: Path | None
    corpus: TrainingCorpus
    reading: Mapping[str, Any]  # the settings of the readers

    # The pipeline
    lang: str
    model: Model
    transformer: str | None  # None: the one that spaCy recommends for the language
    vectors: str | None  # a package or folder with static vectors
    groups: Mapping[str, list[str]]  # the labels of each component; empty if no spans may overlap
    spans_key: str | None  # the key of `doc.spans` for spans that may overlap

    # Training and decoding
    aim: str
    costs: Costs
    losses: Sequence[str]
    has_loss_option: bool  # whether an option names the losses
    decoding: Decoding
    inner_nodes: bool


@dataclass(frozen=True)
class Settings:
    """The values that follow from a `Plan`. The template needs them, too."""

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
    transformer_size_factor: int  # over how many batches gradients are summed, as spaCy recommends
    components: Mapping[str, Sequence[str] | None]  # the own labels of each component; None: all
    lossy_components: Sequence[str]  # the components that can't predict all of their spans

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
    reading: ReadOptions = DEFAULTS,
    kept: KeptDocs | None = None,
    force: bool = False,
    command: str = "python -m spacy costner init",
) -> str:
    """Make a config for `spacy train`. docs/init.md says what is chosen where an argument is None.
    Costs are by token. The config itself is not written to a file; only the label tree of
    `tree_by_prefix` and the vectors of `raw_paths` are.

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
    reading (ReadOptions): How to read the corpora, also in training.
    kept (KeptDocs | None): The docs of the training corpus are kept in it, and what was reported of
        them. None: they aren't kept, and problems become warnings.
    force (bool): Overwrite the file of the tree and the folder of the vectors.
    command (str): The command that makes the config, for its head.
    RETURNS (str): The config.
    RAISES (ValueError): If there is no such loss, cost or aim, if arguments don't go together, or
        if a file can't be read, lacks a label of the corpus, or is there already.
    RAISES (ImportError): If spaCy has no such language, or vectors can't be learned without SciPy.
    """
    # Check what can be checked before the corpus is read.
    get_lang_class(lang)  # raises an error if there is no such language
    if transformer is not None and model != "transformer":
        raise ValueError(f"`transformer`: expected `model` transformer, got `model` {model}")
    if raw_paths:
        check_raw_option(vectors, model)
        if not force:
            refuse_existing(output_path.with_name(DIR_VECTORS))
    elif vectors is not None:
        check_vectors_option(vectors, model)
    if aim is not None:
        # This raises an error if the text is neither one of these two names, nor an aim of `tune`.
        parse_aim(aim, "cost", "guarantee", option="`aim`")

    # Read the corpus and the files.
    if spans_key is None and groups_path is not None:
        spans_key = "sc"  # the default of spaCy's SpanCategorizer
    if tree_path is None and tree_by_prefix is not None:
        tree_path = output_path.with_name("tree.json")
    corpus = measure_corpus(train_path, lang, spans_key, reading, kept)
    groups: dict[str, list[str]] = {}
    if spans_key is not None:
        groups = choose_groups(corpus, groups_path)
    mistake_costs = given_costs(
        miss=miss,
        false_alarm=false_alarm,
        wrong_label=wrong_label,
        wrong_boundary=wrong_boundary,
    )
    costs = choose_costs(tree_path, cost, mistake_costs)

    # Choose what the arguments leave open.
    if aim is None:
        aim = "cost" if costs.blocks or decoding == "min-cost" else "f"
    if spans_key is not None and costs.block(aim) is not None:
        raise ValueError("`spans_key`: expected no costs with it, as their scores are of doc.ents")
    if loss is None:
        losses = choose_losses(model, aim, costs.blocks, is_small=corpus.is_small)
    else:
        losses = parse_losses(loss)
    if decoding is None:
        last_loss = build_loss(losses[-1])  # The trained model has the scores of this loss.
        decoding = choose_decoding(model, aim, last_loss, inner_nodes=inner_nodes)
    check_choices(aim, losses, decoding, costs, inner_nodes=inner_nodes)

    # Write the files that the config refers to.
    if tree_by_prefix is not None:
        if train_path is None:
            raise ValueError(
                "`tree_by_prefix`: expected `train_path`, whose labels are in the tree"
            )
        assert tree_path is not None  # it was chosen above
        if not force:
            refuse_existing(tree_path)
        write_tree(tree_path, sorted(corpus.label_counts), tree_by_prefix)
    if raw_paths:
        # Learn vectors, and save them in a folder beside the config.
        learned = learn_beside(raw_paths, train_path, output_path.parent, lang, reading)
        vectors = str(learned.path)
    plan = Plan(
        config_path=output_path,
        command=command,
        train_path=train_path,
        dev_path=dev_path,
        corpus=corpus,
        reading=replace(reading, spans_key=None).settings(),  # the template has `spans_key`
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


def given_costs(**cost_of_mistake: float | None) -> dict[str, float]:
    """Leave out the kinds of mistakes without a cost, None: those that the user hasn't given."""
    costs: dict[str, float] = {}
    for mistake, cost in cost_of_mistake.items():
        if cost is not None:
            costs[mistake] = cost
    return costs


def check_raw_option(vectors: str | None, model: Model) -> None:
    """Check that vectors that are learned from raw text can be inputs of the model.

    RAISES (ValueError): If other vectors are given, too, or the model takes no static vectors.
    """
    if vectors is not None:
        raise ValueError("`raw_paths`: expected no `vectors` with it, as these are learned")
    if model == "transformer":
        raise ValueError("`raw_paths`: expected `model` linear, cnn or hybrid, got transformer")


def check_vectors_option(vectors: str, model: Model) -> None:
    """Check that given vectors can be inputs of the model.

    RAISES (ValueError): If there is no such pipeline, or the model takes no static vectors.
    """
    if model == "transformer":
        raise ValueError("`vectors`: expected `model` linear, cnn or hybrid, got transformer")
    if not is_package(vectors) and not Path(vectors).is_dir():
        raise ValueError(
            "`vectors`: expected the package or the folder of a pipeline with static vectors, got "
            f"{vectors!r}"
        )


def make_settings(plan: Plan) -> Settings:
    """Make the blocks and the other settings that follow from a plan."""
    corpus = plan.corpus
    costs = plan.costs
    sizes = choose_sizes(plan.model, corpus)

    # The cost stands in the config once, in the scorer. Loss and decoding refer to it.
    cost_block = costs.block(plan.aim)
    cost_or_reference: Any = None
    if cost_block is not None:
        cost_or_reference = "${components.ner.scorer.cost}"
    elif not plan.has_loss_option:
        # No cost is given. `choose_losses` still chooses a loss that takes a cost if there are few
        # sentences, and that loss gets this one. The other losses that it chooses take no cost.
        cost_or_reference = HIGH_COST_OF_MISSES
    loss_block = make_loss(
        plan.losses,
        cost_or_reference,
        multiplier=choose_multiplier(cost_block, costs.files, corpus),
        epochs=choose_epochs(plan.losses, sizes),
    )
    decoding_block = make_decoding(
        plan.decoding, plan.aim, costs.mistakes, cost_or_reference, inner_nodes=plan.inner_nodes
    )

    # If spans of the same component overlap, it learns and predicts only some of them.
    lossy_components: list[str] = []
    for name, labels in plan.groups.items():
        if has_overlaps(labels, corpus):
            lossy_components.append(name)

    transformer = recommended_transformer(plan.lang)
    n_docs = len(corpus.doc_lengths)
    # Without a corpus nothing is known of its docs, and they count as short.
    has_long_docs = n_docs > 0 and corpus.n_sentences >= MIN_SENTENCES_OF_LONG_DOCS * n_docs
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


def recommended_transformer(lang: str) -> Mapping[str, Any]:
    """The transformer that spaCy recommends for a language: its "name" and "size_factor". For
    languages without one it is spaCy's default, which is multilingual."""
    default = RECOMMENDATIONS["__default__"]["transformer"]
    # A language may be missing in the table or, as Italian, have no transformer there: None.
    transformers = RECOMMENDATIONS.get(lang, {}).get("transformer") or default
    # The other one that spaCy recommends is for "accuracy".
    recommended: Mapping[str, Any] = transformers["efficiency"]
    return recommended


def render_config(plan: Plan, settings: Settings) -> str:
    """Fill the template. Returns the text of the config, after a check that each of its settings is
    read by something."""
    # The template calls these three functions.
    template = get_template(
        "init.cfg.jinja", config_value, read_comments, shlex.quote, package=__package__
    )
    text = template.render({**vars(plan), **vars(settings)})
    # Where the template leaves out a block, the empty lines around it remain.
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    check_settings(Config().from_str(text, interpolate=False), plan.config_path)
    return text


def measure_corpus(
    path: Path | None,
    lang: str = "en",
    spans_key: str | None = None,
    reading: ReadOptions = DEFAULTS,
    kept: KeptDocs | None = None,
) -> TrainingCorpus:
    """Measure a training corpus.

    path (Path | None): The corpus, in any format. None: there is no corpus.
    lang (str): Code of the language.
    spans_key (str | None): The key of `doc.spans` whose spans are counted. None: the entities of
        `doc.ents` are counted.
    reading (ReadOptions): How to read the corpus.
    kept (KeptDocs | None): See `init`.
    RAISES (ValueError): If the corpus can't be read, or has no such spans.
    """
    if path is None:
        return TrainingCorpus()
    doc_lengths: list[int] = []
    label_counts: Counter[str] = Counter()
    overlaps: Counter[tuple[str, str]] = Counter()
    n_sentences = 0
    word_forms: set[int] = set()  # the hashes of the norms of tokens
    filled_keys: set[str] = set()  # the keys of `doc.spans` that have spans in any doc
    options = replace(reading, spans_key=spans_key)
    read: Callable[[Language, Path, ReadOptions], Iterable[Doc]]
    read = read_docs if kept is None else kept.read
    for doc in read(spacy.blank(lang), path, options):
        doc_lengths.append(len(doc))
        n_sentences += count_sentences(doc)
        word_forms.update(doc.to_array(NORM).tolist())
        for key, group in doc.spans.items():
            if len(group):
                filled_keys.add(key)
        spans = doc.ents
        if spans_key is not None:
            # A group of `doc.spans` may have a span several times, and in any order.
            spans = sorted(set(doc.spans.get(spans_key, ())))
        label_counts.update(span.label_ for span in spans)
        count_overlaps(spans, overlaps)
    if not label_counts:
        message = no_spans_message(len(doc_lengths), spans_key, filled_keys)
        raise ValueError(f"{path}: {message}")
    return TrainingCorpus(
        doc_lengths=doc_lengths,
        n_sentences=n_sentences,
        n_word_forms=len(word_forms),
        label_counts=label_counts,
        overlaps=overlaps,
    )


def no_spans_message(n_docs: int, spans_key: str | None, filled_keys: Iterable[str]) -> str:
    """The message of the error that a corpus has no spans.

    n_docs (int): The number of docs.
    spans_key (str | None): The key of `doc.spans` that has no spans in any doc. None: `doc.ents`
        is empty in all docs.
    filled_keys (Iterable[str]): The keys of `doc.spans` that have spans in any doc.
    """
    if spans_key is not None:
        return f"expected docs with entities in doc.spans[{spans_key!r}], got none in {n_docs} docs"
    # Entities that overlap can't be in `doc.ents`. They may be in a group of `doc.spans`.
    key = min(filled_keys, default="sc")  # "sc" is the default of spaCy's SpanCategorizer
    return (
        f"expected docs with entities, got none in {n_docs} docs. If entities overlap, write a "
        f"config with `costner init --spans-key {key}`, and train with it"
    )


def count_overlaps(spans: Sequence[Span], overlaps: Counter[tuple[str, str]]) -> None:
    """Count the pairs of spans of a doc that overlap, by their labels.

    spans (Sequence[Span]): The spans of the doc, sorted.
    overlaps (Counter[tuple[str, str]]): The counter to which the pairs are added: see
        `TrainingCorpus`.
    """
    for i, span in enumerate(spans):
        for later_span in spans[i + 1 :]:
            if later_span.start >= span.end:
                break  # Spans are sorted, so all that follow begin even later.
            overlaps[span.label_, later_span.label_] += 1
            # A pair of two labels is counted in both orders.
            if later_span.label_ != span.label_:
                overlaps[later_span.label_, span.label_] += 1


def has_overlaps(labels: Sequence[str], corpus: TrainingCorpus) -> bool:
    """Whether any two spans with these labels overlap in the corpus."""
    # "With replacement" gives pairs of a label with itself, too.
    return any(pair in corpus.overlaps for pair in combinations_with_replacement(labels, 2))


def choose_groups(corpus: TrainingCorpus, path: Path | None) -> dict[str, list[str]]:
    """Choose the labels of each component. They are read from a file or, without one, divided by
    which spans overlap in the corpus.

    corpus (TrainingCorpus): The corpus.
    path (Path | None): The file: see `read_groups`.
    RETURNS (dict[str, list[str]]): The labels of each component, by its name.
    RAISES (ValueError): If there is neither a file nor a corpus, or the file doesn't have each
        label once.
    """
    if path is not None:
        return read_groups(path, corpus.label_counts)
    if not corpus.label_counts:
        raise ValueError(
            "`spans_key`: expected `groups_path` or `train_path`, to find groups of labels"
        )
    groups = group_labels(corpus)
    if len(groups) == 1:
        return {"ner": groups[0]}
    return {f"ner_{i}": labels for i, labels in enumerate(groups, start=1)}


def group_labels(corpus: TrainingCorpus) -> list[list[str]]:
    """Divide labels into groups whose spans rarely overlap.

    Labels are assigned one after another, the most frequent first. Each label joins the group with
    which its spans overlap least often. If even there they overlap more often than `MAX_OVERLAP`
    times for each span, the label opens a new group.
    """
    groups: list[list[str]] = []
    for label, n_spans in corpus.label_counts.most_common():
        # For each group the number of pairs of a span of this label and a span of the group that
        # overlap
        n_overlaps: list[int] = []
        for group in groups:
            n_overlaps.append(sum(corpus.overlaps[label, member] for member in group))
        fewest_overlaps = min(n_overlaps, default=0)
        if groups and fewest_overlaps <= MAX_OVERLAP * n_spans:
            best_group = groups[n_overlaps.index(fewest_overlaps)]
            best_group.append(label)
        else:
            groups.append([label])
    return [sorted(group) for group in groups]


def labels_of_components(groups: Mapping[str, list[str]]) -> dict[str, list[str] | None]:
    """Choose the value of the setting `own_labels` of each component.

    groups (Mapping[str, list[str]]): The labels of each component, by its name. Empty: there is one
        component, "ner".
    RETURNS (dict[str, list[str] | None]): The value by the name of the component. A single
        component has all labels, so its value is None.
    """
    names = list(groups) or ["ner"]
    if len(names) == 1:
        return {names[0]: None}
    return dict(groups)


def read_groups(path: Path, label_counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Read the labels of each component from a JSON file: {component: [labels]}.

    label_counts (Mapping[str, int]): The labels of the corpus are the keys.
    RAISES (ValueError): If the file has another form, has a label twice, or lacks a label of the
        corpus.
    """
    try:
        groups: Any = json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        message = f"{path}: `groups_path`: expected JSON, {{component: [labels]}}, got {error}"
        raise ValueError(message) from None
    if not are_groups(groups):
        raise ValueError(f"{path}: expected {{component: [labels]}}, got {groups!r}")
    n_components_of_label: Counter[str] = Counter()
    for labels in groups.values():
        n_components_of_label.update(labels)
    repeated = [label for label, n in n_components_of_label.items() if n > 1]
    if repeated:
        raise ValueError(f"{path}: expected each label in one component, got {repeated} in several")
    missing = sorted(set(label_counts) - set(n_components_of_label))
    if missing:
        raise ValueError(f"{path}: expected all labels of the corpus, got none of {missing}")
    return groups


def are_groups(groups: Any) -> bool:
    """Whether a value of JSON is {component: [labels]}: a dictionary from the names of components,
    of letters, digits and underscores, to lists of at least one label."""
    if not isinstance(groups, dict) or not groups:
        return False
    for name, labels in groups.items():
        has_labels = isinstance(labels, list) and len(labels) > 0
        if not has_labels or not all(isinstance(label, str) for label in labels):
            return False
        # The name is part of the names of sections, [components.NAME], where other characters, such
        # as a dot or a bracket, may have a meaning.
        if re.fullmatch(r"\w+", name) is None:
            return False
    return True


def choose_costs(
    tree_path: Path | None, cost: str | None, mistake_costs: Mapping[str, float]
) -> Costs:
    """Make the block of each given cost.

    tree_path (Path | None): The file of the label tree.
    cost (str | None): The name of a registered cost, or a CSV file: see `init`.
    mistake_costs (Mapping[str, float]): The given costs of kinds of mistakes.
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
        name = find_name("Cost", cost, other_choices=["a CSV file"])
        blocks["tags"] = {"@misc": f"spacy_costner.{name}Cost.v1"}
    if mistake_costs:
        # A kind of mistake without a given cost costs 1. But if this cost is added to another one,
        # such a kind adds nothing.
        default_cost = 0.0 if blocks else 1.0
        block: Block = {"@misc": "spacy_costner.PrecisionRecallCost.v1"}
        for mistake in MISTAKES:
            block[mistake] = mistake_costs.get(mistake, default_cost)
        blocks["mistakes"] = block
    return Costs(blocks, files, mistake_costs)


def choose_losses(model: str, aim: str, costs: Mapping[str, Any], *, is_small: bool) -> list[str]:
    """Choose the loss that docs/which-loss.md recommends.

    model (str): The kind of model.
    aim (str): What should be best: see `init`.
    costs (Mapping[str, Any]): The blocks of the given costs: see `Costs.blocks`.
    is_small (bool): Whether there are few training sentences.
    RETURNS (list[str]): The name of the loss, or the names of the losses of a schedule.
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
        return ["SoftmaxMargin"]  # Its cost is `HIGH_COST_OF_MISSES`.
    return ["Sequential"]


def choose_decoding(model: str, aim: str, last_loss: Loss, *, inner_nodes: bool) -> Decoding:
    """Choose the decoding. It is the best path ("viterbi") or, if the aim is the lowest cost and
    scores are probabilities after training, the lowest expected cost ("min-cost"). But a linear
    model that has learned the costs keeps the best path.

    model (str): The kind of model.
    aim (str): What should be best: see `init`.
    last_loss (Loss): The loss that training ends with.
    inner_nodes (bool): Whether inner nodes of the label tree are predicted, too.
    """
    if aim != "cost" or not last_loss.has_probabilities:
        return "viterbi"
    # A loss that adds the cost to the scores in training shifts the probabilities. A linear model
    # learns the cost well by it: its best path costs less than what the lowest expected cost by
    # these probabilities chooses. See docs/init.md.
    if model == "linear" and last_loss.shifts_probabilities and not inner_nodes:
        return "viterbi"
    return "min-cost"


def check_choices(
    aim: str, losses: Sequence[str], decoding: str, costs: Costs, *, inner_nodes: bool
) -> None:
    """Check that no choice makes another one pointless or impossible.

    aim (str): What should be best: see `init`.
    losses (Sequence[str]): The names of the losses, in order.
    decoding (str): How entities are chosen: see `Decoding`.
    costs (Costs): What mistakes cost.
    inner_nodes (bool): Whether inner nodes of the label tree are predicted, too.
    RAISES (ValueError): If a choice does so.
    """
    if decoding == "min-cost" and aim != "cost":
        raise ValueError(
            "`decoding`: expected min-cost with `aim` cost only: `costner tune` would replace it, "
            "and `costner guarantee` chooses a set of spans"
        )

    # Some options are pointless if scores are not probabilities after training.
    option_of_probabilities = None
    if aim == "guarantee":
        option_of_probabilities = "`aim` guarantee"
    elif decoding != "viterbi":
        option_of_probabilities = f"`decoding` {decoding}"
    if option_of_probabilities is not None and not build_loss(losses[-1]).has_probabilities:
        raise ValueError(
            f"`loss`: expected a loss such as Sequential with {option_of_probabilities}, got "
            f"{losses[-1]}: its scores are not probabilities"
        )

    # A cost is used by a loss or by the aim. A tree is used by the scorer, whatever the loss.
    has_cost_in_training = any(build_loss(name).cost for name in losses)
    is_cost_used = has_cost_in_training or aim == "cost" or "tree" in costs.blocks
    if costs.blocks and not is_cost_used:
        raise ValueError(
            f"`loss`: expected a loss that takes a cost, or `aim` cost, got {', '.join(losses)}: "
            "nothing would use what you say mistakes cost"
        )

    if inner_nodes and (decoding != "min-cost" or "tree" not in costs.blocks):
        raise ValueError("`inner_nodes`: expected `tree_path` and `decoding` min-cost with it")


def refuse_existing(path: Path) -> None:
    """Check that there is nothing at the path of a new file or folder.

    RAISES (ValueError): If there is something.
    """
    if path.exists():
        raise ValueError(f"{path}: expected a new file, got one that exists: use `force`")


def write_tree(path: Path, labels: Sequence[str], separator: str) -> None:
    """Write a label tree of two levels to a JSON file. The part of a label before the separator is
    the node above it: with "_", LOC_city and LOC_river are below LOC. A label that lacks the
    separator, or that begins with it, is on the first level itself.

    path (Path): The file.
    labels (Sequence[str]): The labels.
    separator (str): The separator.
    RAISES (ValueError): If no label has the separator.
    """
    if not separator or not any(separator in label for label in labels):
        raise ValueError(
            f"`tree_by_prefix`: expected a separator in labels, got {separator!r} for "
            f"{', '.join(labels)}"
        )
    tree: dict[str, Any] = {}
    for label in labels:
        prefix, _, _ = label.partition(separator)
        if not prefix:  # The label begins with the separator.
            prefix = label
        children = tree.setdefault(prefix, {})
        if label != prefix:
            children[label] = {}
    save_text(path, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")


def parse_losses(text: str, option: str = "`loss`") -> list[str]:
    """Read the names of losses that are separated by commas. If the first loss needs a trained
    model to start from, Sequential is put before it.

    option (str): The parameter with the text, for errors.
    RETURNS (list[str]): The short names of the losses: see `find_name`.
    RAISES (ValueError): If there is no such loss.
    """
    losses = [find_name("Loss", name, option=option) for name in text.split(",")]
    if build_loss(losses[0]).needs_start:
        losses.insert(0, "Sequential")
    return losses


def find_name(
    kind: Literal["Loss", "Cost"],
    text: str,
    *,
    other_choices: Sequence[str] = (),
    option: str | None = None,
) -> str:
    """Find the short name of a registered loss or cost. For example, it is SoftmaxMargin for
    softmax_margin, softmax-margin and spacy_costner.SoftmaxMargin.v1.

    kind (Literal["Loss", "Cost"]): Whether it is a loss or a cost.
    text (str): The name as the user typed it.
    other_choices (Sequence[str]): What the option also takes, for the error.
    option (str | None): The parameter with the text, for the error. None: `loss` or `cost`.
    RETURNS (str): The short name.
    RAISES (ValueError): If there is no such loss or cost. The message has all names.
    """
    # The patterns capture the short name. They leave out what can't be named here: a schedule,
    # which is given as several losses, and costs with files, which have options of their own.
    if kind == "Loss":
        group = "thinc_losses"
        pattern = r"spacy_costner\.(?!Schedule)(\w+)\.v1"
    else:
        group = "spacy_misc"
        pattern = r"spacy_costner\.((?!Hierarchical|Matrix|Sum)\w+)Cost\.v1"
    short_names: dict[str, str] = {}  # The keys are in lower case.
    for entry_point in entry_points(group=group):
        match = re.fullmatch(pattern, entry_point.name)
        if match is not None:
            short_name = match[1]
            short_names[short_name.lower()] = short_name

    # Remove "spacy_costner." and "Cost.v1" around the name, and what separates its words.
    typed_name = re.sub(r"^spacy_costner\.|(cost)?(\.v1)?$|[ _-]", "", text.strip().lower())
    if typed_name not in short_names:
        if option is None:
            option = f"`{kind.lower()}`"
        choices = ", ".join([*short_names.values(), *other_choices])
        message = f"{option}: expected any of {choices}, got {text!r}"
        if typed_name == "schedule":
            message += ": separate losses by commas for a schedule"
        raise ValueError(message)
    return short_names[typed_name]


def build_loss(name: str) -> Loss:
    """Make the loss with a short name, such as SoftmaxMargin. If it takes a cost, it gets the
    Hamming cost."""
    block = make_loss([name], HAMMING)
    loss: Loss = registry.resolve({"loss": block})["loss"]
    return loss


def make_loss(
    losses: Sequence[str],
    cost: Any = None,
    *,
    multiplier: float = 1.0,
    epochs: Sequence[float] = (5.0,),
) -> Block:
    """Make the block of a loss, or of a schedule of losses, with the recommended settings.

    losses (Sequence[str]): The short name of the loss, or those of the losses of the schedule.
    cost (Any): The block of the cost, or a variable such as ${components.ner.scorer.cost} in its
        place. None: the Hamming cost.
    multiplier (float): The recommended setting of the score per unit of cost is multiplied by this.
    epochs (Sequence[float]): After how many epochs each loss of a schedule but the last ends. The
        default is for two losses.
    """
    blocks = [make_single_loss(name, cost, multiplier) for name in losses]
    if len(blocks) == 1:
        return blocks[0]
    # Each loss of a schedule is a section of its block. The sections run in order.
    stage_names = ["first", "then"]
    if len(blocks) > 2:
        stage_names = [f"loss_{i}" for i in range(1, len(blocks) + 1)]
    stages = dict(zip(stage_names, blocks))
    return {"@losses": "spacy_costner.Schedule.v1", "epochs": [*epochs], "*": stages}


def make_single_loss(loss: str, cost: Any, multiplier: float) -> Block:
    """Make the block of a loss that isn't a schedule. It has the defaults of its factory or, where
    another value is recommended, that value.

    loss (str): The name of the loss, such as "SoftmaxMargin".
    cost (Any): The block of the cost. None: the Hamming cost, if the loss has one.
    multiplier (float): The setting of the loss that says what a unit of cost adds to a score is
        multiplied by this number.
    RETURNS (Block): The block.
    """
    name = f"spacy_costner.{loss}.v1"
    parameters = signature(registry.losses.get(name)).parameters
    block: Block = {"@losses": name}
    for parameter in parameters.values():
        # None is the default of the cost, which is added below, and of the two settings of Mixed,
        # of which only one may be set: `RECOMMENDED` has it.
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
        elif loss != "Mixed":  # The loss Mixed needs no cost.
            block["cost"] = HAMMING
    return block


def round_to_two_digits(value: float) -> float:
    """Round to two significant digits: 0.0123 to 0.012."""
    return float(f"{value:.2g}")


def choose_multiplier(
    cost: Block | None, files: Mapping[str, str], corpus: TrainingCorpus
) -> float:
    """Choose a factor for the setting of a loss that says what a unit of cost adds to a score. The
    factor is 1, or 0.5 with a label tree. It is lower if the worst mistake would otherwise have a
    score above `HIGHEST_SCORE`.

    cost (Block | None): The block of the cost. None: mistakes have no cost.
    files (Mapping[str, str]): The files of the cost: see `Costs`.
    corpus (TrainingCorpus): The training corpus, whose labels may be confused.
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
    """The highest cost that a mistake at one token can have.

    cost (Block): The block of the cost.
    files (Mapping[str, str]): The files of the cost: see `Costs`.
    label_counts (Mapping[str, int]): The labels of the corpus are the keys. Without a corpus, the
        labels are those that the files of the cost name.
    RAISES (ValueError): If a file can't be read, or lacks a label.
    """
    labels = list(label_counts)
    if not labels and "costs" in files:
        matrix = make_matrix(files["costs"], "spacy_costner.MatrixCost: matrix")
        labels = list(matrix.rows)
    elif not labels and "tree" in files:
        tree = make_tree(files["tree"], "spacy_costner.HierarchicalCost: tree")
        labels = list(tree.lineages)
    # A matrix also has a row for "O", which is not a label.
    labels = [label for label in labels if label != OUTSIDE]
    if not labels:
        labels = ["label"]  # Costs without files are the same for all labels, so any name will do.
    # The block refers to its files by variables such as ${paths.tree}.
    config = Config({"paths": dict(files), "cost": cost}).interpolate()
    resolved = registry.resolve({"cost": config["cost"]})
    make_table = resolved["cost"]  # A cost is a function that makes the table of a tag set.
    cost_table = make_table(Tags(labels))
    return float(cost_table.max())


def choose_epochs(losses: Sequence[str], sizes: Sizes) -> list[float]:
    """Choose after how many epochs each loss of a schedule ends. The last loss has no end, so there
    is one number less than there are losses.

    Each loss except the first has `LATER_EPOCHS`. If training has a last epoch, the first loss has
    the rest. Otherwise it ends after about `FIRST_STEPS`, but after at least five epochs.
    """
    n_later_losses = len(losses) - 1
    if sizes.max_epochs > 0:
        first_end = max(1, sizes.max_epochs - LATER_EPOCHS * n_later_losses)
    else:
        # An epoch has at least `eval_frequency` steps, as it is evaluated at least once.
        first_end = max(5, math.ceil(FIRST_STEPS / sizes.eval_frequency))
    return [float(first_end + LATER_EPOCHS * i) for i in range(n_later_losses)]


def make_decoding(
    decoding: Decoding,
    aim: str,
    mistakes: Mapping[str, float],
    cost: Any,
    *,
    inner_nodes: bool,
) -> Block:
    """Make the block of the decoding.

    If the aim is the lowest cost, the threshold of threshold decoding follows from the costs of
    mistakes: it pays to predict an entity if its probability is above
    1 - c(miss) / (c(miss) + c(false alarm)). See docs/decoding.md.

    decoding (Decoding): How entities are chosen.
    aim (str): What should be best: see `init`.
    mistakes (Mapping[str, float]): The given costs of kinds of mistakes.
    cost (Any): The block of the cost, or a variable in its place: see `make_loss`.
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
    """Choose settings that fit the size of a corpus. If the corpus has enough words, an epoch has
    100 batches or more. It is evaluated at least once."""
    batcher, batch_size = choose_batcher(model, corpus)
    # The number of steps of an epoch. Without a corpus, take a number as of a large corpus.
    n_steps = 2000 if model == "linear" else 200
    if corpus.doc_lengths:
        make_batches = registry.resolve({"batcher": batcher})["batcher"]
        # A batcher only asks for the length of a doc, so a range of that length will do.
        docs = [range(length) for length in corpus.doc_lengths]
        n_batches = len(list(make_batches(docs)))
        # Shuffled docs may make fewer batches than docs in order. A tenth less is safe.
        n_steps = max(1, int(n_batches * 0.9))
    # A row for each word form, within limits
    n_embed_rows = min(SPACY_EMBED_ROWS, max(MIN_EMBED_ROWS, corpus.n_word_forms))

    # A linear model has a fixed number of epochs, as it learns quickly, and is evaluated twice in
    # each. 0 is no limit.
    if model == "linear":
        return Sizes(
            batcher,
            eval_frequency=max(1, n_steps // 2),
            patience=0,
            max_epochs=8,
            max_steps=0,
            n_embed_rows=n_embed_rows,
        )

    # Other models are trained until there was no better score for `patience` steps.
    if model != "transformer":
        # Their batches grow, as in spaCy's own configs.
        batcher["size"] = {
            "@schedules": "compounding.v1",
            "start": 100,
            "stop": batch_size,
            "compound": 1.001,
        }
    # The values of spaCy's own configs, or more if an epoch is long
    least_patience = 1600
    least_steps = 20000
    if model == "hybrid":  # Its linear part is already trained when training begins.
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
    """Choose the batcher of training. A batch has about a hundredth of the words of the corpus,
    within limits. With a transformer its size is fixed, and padding counts, too. The sizes of
    transformers, the tolerance, and the limits of models other than the linear one are those of
    spaCy's quickstart.

    RETURNS (tuple[Block, int]): The block of the batcher, and the number of words of a batch.
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
    """A value as it is written in the config: as JSON, but a variable such as ${paths.tree} without
    quotes. A `Path` becomes a string."""
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
    comments.pop("cost", None)  # The block of the cost has comments of its own.

    # A loss is described by the docstring of the function that computes it. A schedule has none:
    # its losses are sections below it, under "*".
    if "*" not in block:
        settings = dict(block)
        if "cost" in settings:
            # The cost may be a variable, which has no value here. Any cost will do.
            settings["cost"] = HAMMING
        loss = registry.resolve({"loss": settings})["loss"]
        compute = loss.compute
        # The function with the docstring may be wrapped: in a composition of scores, which keeps
        # it as `compute`, or in a partial, which keeps it as `func`.
        for attribute in ("compute", "func"):
            compute = getattr(compute, attribute, compute)
        comments[""] = summary_text(compute)  # the comment of the block itself

    lines_of_comments: dict[str, list[str]] = {}
    for setting, comment in comments.items():
        on_one_line = " ".join(comment.split())
        lines_of_comments[setting] = textwrap.wrap(on_one_line, LINE_LENGTH_OF_COMMENTS)
    return lines_of_comments
