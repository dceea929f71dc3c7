"""Render the config template, templates/init.cfg.jinja, with the values derived from a plan."""

import json
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spacy.cli.init_config import RECOMMENDATIONS
from spacy.util import registry
from thinc.api import Config

import spacy_costner

from ...costs.tables import HAMMING
from ...docstrings import first_paragraph, parameter_texts
from ...pages.rendering import get_template
from ...training.lbfgs import MANY_LABELS
from .blocks import Block
from .cost_blocks import HIGH_COST_OF_MISSES
from .decoding_blocks import choose_thresholds, make_decoding
from .label_groups import has_overlaps, labels_of_components
from .loss_blocks import build_loss, choose_epochs, choose_multiplier, make_loss
from .plan import Plan
from .sizes import Sizes, choose_sizes
from .unknown_settings import check_settings

MIN_SENTENCES_OF_LONG_DOCS = 3
"""Docs are considered long if they have at least this number of sentences on average. Words often
recur in long docs."""

LINE_LENGTH_OF_COMMENTS = 98
"""The maximum number of characters in a line of a comment in the config, excluding "# "."""


@dataclass(frozen=True)
class TemplateValues:
    """The template values derived from a `Plan`.

    version (str): The version of the package.
    has_mistakes (bool): Whether the cost of any kind of mistake is given.
    has_probabilities (bool): Whether scores are probabilities after training with the last loss.
    files (Mapping[str, str]): The cost files: see `GivenCosts`.
    reading_settings (Mapping[str, Any]): The settings of the readers, except `spans_key`.
    has_many_labels (bool): Whether the corpus has more than `MANY_LABELS`.
    has_long_docs (bool): Whether docs have several sentences on average.
    transformer_name (str): The name or folder of the transformer.
    transformer_size_factor (int): The number of batches over which gradients are accumulated, as
        recommended by spaCy.
    components (Mapping[str, Sequence[str] | None]): Each component's own labels, or None for all
        labels.
    lossy_components (Sequence[str]): The components that can't predict all of their spans.
    loss (Block): The block of the loss.
    decoding_block (Block): The block of the decoding.
    cost (Block | None): The block of the cost. None if no cost is given and the aim doesn't need
        one.
    has_tree (bool): Whether a label tree is given.
    sizes (Sizes): The settings that depend on the size of the corpus.
    """

    # Values for the header of the file
    version: str
    has_mistakes: bool
    has_probabilities: bool

    # The corpora
    files: Mapping[str, str]
    reading_settings: Mapping[str, Any]
    has_many_labels: bool
    has_long_docs: bool

    # The pipeline
    transformer_name: str
    transformer_size_factor: int
    components: Mapping[str, Sequence[str] | None]
    lossy_components: Sequence[str]

    # The blocks of each component
    loss: Block
    decoding_block: Block
    cost: Block | None
    has_tree: bool

    sizes: Sizes


def make_values(plan: Plan) -> TemplateValues:
    """Create the blocks and other values derived from a plan."""
    options = plan.options
    corpus = plan.corpus
    costs = plan.costs
    sizes = choose_sizes(options.model, corpus, n_losses=len(plan.losses))

    # The config defines the cost once, in the scorer. Loss and decoding refer to it.
    cost_block = costs.block(plan.aim)
    cost_or_reference: Any = None
    if cost_block is not None:
        cost_or_reference = "${components.ner.scorer.cost}"
    elif options.loss is None:
        # No cost is given. For small corpora, `choose_losses` may still choose a loss that requires
        # a cost. The cost is then set to `HIGH_COST_OF_MISSES`. The other losses that may be chosen
        # don't use a cost.
        cost_or_reference = HIGH_COST_OF_MISSES
    loss_block = make_loss(
        plan.losses,
        cost_or_reference,
        multiplier=choose_multiplier(cost_block, costs.files, corpus),
        epochs=choose_epochs(plan.losses, sizes.n_epochs),
    )
    thresholds: dict[str, float] = {}
    if cost_block is not None and plan.aim == "cost":
        thresholds = choose_thresholds(cost_block, costs.files, corpus.label_counts)
    decoding_block = make_decoding(
        plan.decoding, cost_or_reference, thresholds, inner_nodes=options.inner_nodes
    )

    # A component with overlapping spans only learns and predicts some of them.
    lossy_components: list[str] = []
    for name, labels in plan.groups.items():
        if has_overlaps(labels, corpus):
            lossy_components.append(name)

    transformer = recommended_transformer(options.lang)
    n_docs = len(corpus.doc_lengths)
    # Without a corpus, docs are assumed to be short.
    has_long_docs = n_docs > 0 and corpus.n_sentences >= MIN_SENTENCES_OF_LONG_DOCS * n_docs
    return TemplateValues(
        version=spacy_costner.__version__,
        has_mistakes=bool(costs.mistakes),
        has_probabilities=build_loss(plan.losses[-1]).has_probabilities,
        files=costs.files,
        reading_settings=replace(options.reading, spans_key=None).settings(),
        has_many_labels=len(corpus.label_counts) > MANY_LABELS,  # see docs/linear.md
        has_long_docs=has_long_docs,
        transformer_name=options.transformer or transformer["name"],
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
    """Return the "name" and "size_factor" of the transformer that spaCy recommends for a language.
    If there is no recommendation, spaCy's multilingual default is used."""
    default = RECOMMENDATIONS["__default__"]["transformer"]
    # A language may be missing from the table or, like Italian, have no transformer (None).
    transformers = RECOMMENDATIONS.get(lang, {}).get("transformer") or default
    # spaCy also recommends a transformer for "accuracy".
    recommended: Mapping[str, Any] = transformers["efficiency"]
    return recommended


def render_config(plan: Plan) -> str:
    """Render the template. Returns the text of the config, after checking that all of its settings
    are known."""
    # The template calls these three functions.
    template = get_template(
        "init.cfg.jinja", config_value, read_comments, shlex.quote, package=__package__
    )
    text = template.render({**vars(plan.options), **vars(plan), **vars(make_values(plan))})
    # Remove the extra blank lines left by omitted blocks.
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    check_settings(Config().from_str(text, interpolate=False), plan.options.output_path)
    return text


def config_value(value: Any) -> str:
    """Format a value for the config: as JSON, except for variables such as ${paths.tree}, which
    aren't quoted. A `Path` is converted to a string."""
    if isinstance(value, str) and value.startswith("${"):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def read_comments(block: Mapping[str, Any]) -> dict[str, list[str]]:
    """Create the config comments for a loss from its docstrings. Returns the lines of each comment,
    keyed by the name of the setting. The comment for the block itself is stored under "". Blocks
    that aren't losses have no comments."""
    if "@losses" not in block:
        return {}
    comments = parameter_texts(registry.losses.get(block["@losses"]))
    comments.pop("cost", None)  # the cost block has its own comments

    # A loss is described by the docstring of the function that computes it. A schedule has no such
    # function: the losses it contains are in subsections of its block, under "*".
    if "*" not in block:
        settings = dict(block)
        if "cost" in settings:
            # The cost may be an unresolved variable, so replace it with any valid cost.
            settings["cost"] = HAMMING
        loss = registry.resolve({"loss": settings})["loss"]
        compute = loss.compute
        # Unwrap the function with the docstring from a composition of scores, which stores it as
        # `compute`, and from a partial, which stores it as `func`.
        for attribute in ("compute", "func"):
            compute = getattr(compute, attribute, compute)
        comments[""] = first_paragraph(compute)  # the comment of the block itself

    lines_of_comments: dict[str, list[str]] = {}
    for setting, comment in comments.items():
        on_one_line = " ".join(comment.split())
        lines_of_comments[setting] = textwrap.wrap(on_one_line, LINE_LENGTH_OF_COMMENTS)
    return lines_of_comments
