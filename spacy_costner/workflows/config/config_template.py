"""Fill in the template of a config, templates/init.cfg.jinja, with what follows from a plan."""

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
from .decoding_blocks import make_decoding
from .label_groups import has_overlaps, labels_of_components
from .loss_blocks import build_loss, choose_epochs, choose_multiplier, make_loss
from .plan import Plan
from .sizes import Sizes, choose_sizes
from .unknown_settings import check_settings

MIN_SENTENCES_OF_LONG_DOCS = 3
"""Docs with at least this number of sentences on average are long: words occur several times."""

LINE_LENGTH_OF_COMMENTS = 98
"""The maximum number of characters of a comment in the config, without its "# "."""


@dataclass(frozen=True)
class TemplateValues:
    """The values that follow from a `Plan`, for the template.

    version (str): The version of the package.
    has_mistakes (bool): Whether the cost of a kind of mistake is given.
    has_probabilities (bool): Whether scores are probabilities after the last loss.
    files (Mapping[str, str]): The files of costs: see `GivenCosts`.
    reading_settings (Mapping[str, Any]): The settings of the readers, except `spans_key`.
    has_many_labels (bool): Whether the corpus has more than `MANY_LABELS`.
    has_long_docs (bool): Whether docs have several sentences on average.
    transformer_name (str): The name or folder of the transformer.
    transformer_size_factor (int): Over how many batches gradients are summed, as spaCy recommends.
    components (Mapping[str, Sequence[str] | None]): The own labels of each component; None: all.
    lossy_components (Sequence[str]): The components that can't predict all of their spans.
    loss (Block): The block of the loss.
    decoding_block (Block): The block of the decoding.
    cost (Block | None): The block of the cost. None: no cost is given, and the aim needs none.
    has_tree (bool): Whether a label tree is given.
    sizes (Sizes): The settings that fit the size of the corpus.
    """

    # Values for the head of the file
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
    """Make the blocks and the other values that follow from a plan."""
    options = plan.options
    corpus = plan.corpus
    costs = plan.costs
    sizes = choose_sizes(options.model, corpus)

    # The cost stands in the config once, in the scorer. Loss and decoding refer to it.
    cost_block = costs.block(plan.aim)
    cost_or_reference: Any = None
    if cost_block is not None:
        cost_or_reference = "${components.ner.scorer.cost}"
    elif options.loss is None:
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
        plan.decoding, plan.aim, costs.mistakes, cost_or_reference, inner_nodes=options.inner_nodes
    )

    # If spans of the same component overlap, it learns and predicts only some of them.
    lossy_components: list[str] = []
    for name, labels in plan.groups.items():
        if has_overlaps(labels, corpus):
            lossy_components.append(name)

    transformer = recommended_transformer(options.lang)
    n_docs = len(corpus.doc_lengths)
    # Without a corpus nothing is known of its docs, and they count as short.
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
    """The transformer that spaCy recommends for a language: its "name" and "size_factor". For
    languages without one it is spaCy's default, which is multilingual."""
    default = RECOMMENDATIONS["__default__"]["transformer"]
    # A language may be missing in the table or, as Italian, have no transformer there: None.
    transformers = RECOMMENDATIONS.get(lang, {}).get("transformer") or default
    # The other one that spaCy recommends is for "accuracy".
    recommended: Mapping[str, Any] = transformers["efficiency"]
    return recommended


def render_config(plan: Plan) -> str:
    """Fill in the template. Returns the text of the config, after a check that each of its settings
    is read by something."""
    # The template calls these three functions.
    template = get_template(
        "init.cfg.jinja", config_value, read_comments, shlex.quote, package=__package__
    )
    text = template.render({**vars(plan.options), **vars(plan), **vars(make_values(plan))})
    # Where the template leaves out a block, the empty lines around it remain.
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    check_settings(Config().from_str(text, interpolate=False), plan.options.output_path)
    return text


def config_value(value: Any) -> str:
    """A value as it is written in the config: as JSON, but a variable such as ${paths.tree} without
    quotes. A `Path` becomes a string."""
    if isinstance(value, str) and value.startswith("${"):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def read_comments(block: Mapping[str, Any]) -> dict[str, list[str]]:
    """Make the comments of a loss in the config from its docstrings. Blocks that aren't losses
    get no comments. Returns the lines of the comment of each setting, by its name. The comment of
    the block itself has the name ""."""
    if "@losses" not in block:
        return {}
    comments = parameter_texts(registry.losses.get(block["@losses"]))
    comments.pop("cost", None)  # The block of the cost has its own comments.

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
        comments[""] = first_paragraph(compute)  # the comment of the block itself

    lines_of_comments: dict[str, list[str]] = {}
    for setting, comment in comments.items():
        on_one_line = " ".join(comment.split())
        lines_of_comments[setting] = textwrap.wrap(on_one_line, LINE_LENGTH_OF_COMMENTS)
    return lines_of_comments
