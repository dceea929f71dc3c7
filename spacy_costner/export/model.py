"""A trained pipeline as a model file for a page or a JavaScript module, which needs no Python.

The file has all that `javascript/recognizer.js` reads. What a page can't do is refused by name,
before anything is written. V is the number of features, K the number of tags.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
from spacy.language import Language
from thinc.types import Array1d, ArrayXd, Floats2d

import spacy_costner

from ..decoding import MinCost
from ..decoding.decoders import decode_threshold, viterbi
from ..decoding.min_cost import node_masks
from ..features import Features
from ..ml import SparseWeights, first_pass_of, hidden_layer_of, is_linear, linear_part
from ..ml.pruning import find_distinct, to_whole_numbers
from ..pipeline.component import CostSensitiveNER
from ..pipeline.promises import Promise
from ..pipeline.reading import sets_sentence_starts
from ..tags import Tags
from ..workflows.components import find_components
from .features import WHOLE_WORDS, describe_features, find_private_rows, refusal, spacy_symbols
from .model_file import pack_file
from .tokenizer import describe_tokenizer

HARMLESS = frozenset(["attribute_ruler", "doc_cleaner"])
"""Factories of components that don't declare what they set, and change nothing that a page does."""

CHANGES_ENTITIES = frozenset(["doc.ents", "token.ent_iob", "token.ent_type"])
"""The values of spaCy's `assigns` that show that a component changes entities."""


@dataclass(frozen=True)
class WebModel:
    """A model file for a page.

    data (bytes): The file.
    info (dict[str, Any]): What the page knows of the pipeline, as JSON: see `describe_pipeline`.
    n_words (int): The number of whole words that anybody can read in the file.
    n_remembered (int): The number of words of label memory (see `features.memory`), which are there
        as hashes: whether a given word is one of them can be found.
    """

    data: bytes
    info: dict[str, Any]
    n_words: int
    n_remembered: int


def make_web_model(nlp: Language, *, keep_memory: bool = True) -> WebModel:
    """Make the model file of a pipeline for a page or a JavaScript module.

    nlp (Language): The pipeline, with one trained `cost_sensitive_ner` that is linear.
    keep_memory (bool): Whether label memory and the words that are rare in the training data are
        in the file. A page publishes them, names of people included.
    RETURNS (WebModel): The file.
    RAISES (ValueError): If the pipeline has something that a page can't do. The message names it.
    """
    ner = _find_component(nlp)
    _check_other_components(nlp, ner)
    tokenizer = describe_tokenizer(nlp)

    features, weights = linear_part(ner.model)
    weights_of_passes = [weights]
    tags_of_passes = [ner.chain_tags]
    # A first pass has no weights if labels were read from docs instead.
    first_pass = first_pass_of(ner.model)
    if first_pass is not None and first_pass.weights.is_allocated:
        weights_of_passes.insert(0, first_pass.weights)
        tags_of_passes.insert(0, first_pass.tags)
    _check_finite(ner.name, weights_of_passes)
    features, emissions_of_passes = _select_used(features, weights_of_passes, keep_memory)
    columns, arrays = describe_features(features, nlp.vocab)

    passes: list[dict[str, Any]] = []
    for i, (pass_weights, emissions, tags) in enumerate(
        zip(weights_of_passes, emissions_of_passes, tags_of_passes)
    ):
        passes.append(_describe_pass(f"pass{i}", pass_weights, emissions, tags, arrays))
    decoding = _describe_decoding(ner, arrays)
    info = describe_pipeline(nlp, ner)
    header = {
        "info": info,
        "tokenizer": tokenizer,
        "symbols": spacy_symbols(),
        "columns": columns,
        "passes": passes,
        "decoding": decoding,
        "temperature": _describe_temperature(ner),
        "promise": info["promise"],
        # True means sentence starts and line breaks. A page only has line breaks.
        "cuts_at_lines": ner.annotation.sentence_boundaries is True,
        "impossible_tags": _untrained_tags(ner),
        # Labels that the component learns but doesn't write
        "hidden_labels": [ner.labels[i] for i in ner.other_labels],
    }
    data = pack_file(header, arrays)
    n_words, n_remembered = count_published_words(columns, arrays)
    return WebModel(data, info, n_words=n_words, n_remembered=n_remembered)


def count_published_words(
    columns: Iterable[Mapping[str, Any]], arrays: Mapping[str, ArrayXd]
) -> tuple[int, int]:
    """Count what anybody can read in a model file: words, and the hashes of words in label
    memory."""
    words: set[str] = set()
    n_remembered = 0
    for column in columns:
        if column["name"] in WHOLE_WORDS:
            words.update(column["values"])
        if column["kind"] == "memory":
            n_remembered += len(arrays[column["arrays"]["keys"]])
    return len(words), n_remembered


def describe_pipeline(nlp: Language, ner: CostSensitiveNER) -> dict[str, Any]:
    """Collect the description of a pipeline for its page, as JSON: its name, language and version;
    the labels; the settings of prediction; the guarantee, if the pipeline has one. A decoding that
    is not one of this package is refused."""
    settings = ner.cfg["decoding"]
    return {
        "name": nlp.meta["name"],
        "lang": nlp.lang,
        "version": nlp.meta["version"],
        "spacy_costner": spacy_costner.__version__,
        "component": ner.name,
        "labels": [*ner.own_labels],
        "scheme": ner.cfg["scheme"],
        "passes": 1 if first_pass_of(ner.model) is None else 2,
        "decoding": kind_of_decoding(ner),
        "threshold": settings.get("threshold"),
        "bias": settings.get("bias"),
        "thresholds_of_labels": dict(settings.get("labels", {})),
        "temperature": ner.cfg["temperature"]["overall"],
        "promise": _describe_promise(ner.guarantee),
    }


def kind_of_decoding(ner: CostSensitiveNER) -> str:
    """Name the decoding of a component as the parameter `decoding` of `init` does. Other decodings
    are refused."""
    decode = ner.decoding.decode
    if isinstance(decode, MinCost):
        return "min-cost"
    if decode is viterbi:
        return "viterbi"
    if decode is decode_threshold:
        return "threshold"
    raise refusal(f"the decoding {getattr(decode, '__name__', decode)}")


# What a page can't do


def _find_component(nlp: Language) -> CostSensitiveNER:
    """Return the component of a pipeline. Refuses a pipeline without a component or with several, a
    component that isn't trained, and a model that a page can't have."""
    components = find_components(nlp)
    if not components:
        raise ValueError(
            "page: expected a pipeline with a component of factory 'cost_sensitive_ner', got "
            f"{nlp.pipe_names}"
        )
    if len(components) > 1:
        raise refusal(f"several components, {', '.join(components)}")
    (ner,) = components.values()
    if not is_linear(ner.model):
        raise refusal(f"a model with a Tok2Vec, {ner.model.name}, in {ner.name}")
    _, weights = linear_part(ner.model)
    if not weights.is_allocated or not ner.labels:
        raise ValueError(f"page: expected a trained pipeline, got {ner.name} without weights")
    layer = hidden_layer_of(ner.model)
    if layer is not None:
        raise refusal(f"a hidden layer over static vectors in {ner.name}, hidden = {layer.width}")
    return ner


def _check_other_components(nlp: Language, ner: CostSensitiveNER) -> None:
    """Check that the other components of a pipeline change neither tokens nor entities, nor the
    sentence starts at which texts are cut. A page only has our component. Refuses a component that
    changes them, or that doesn't declare what it sets."""
    for name in nlp.pipe_names:
        if name == ner.name:
            continue
        meta = nlp.get_pipe_meta(name)
        if meta.retokenizes:
            raise _component_refusal(ner.name, f"{name}, which changes tokens")
        if CHANGES_ENTITIES.intersection(meta.assigns):
            raise _component_refusal(ner.name, f"{name}, which sets entities")
        if not meta.assigns and meta.factory not in HARMLESS:
            reason = (
                f"{name}, whose factory {meta.factory} doesn't declare in `assigns` what it sets"
            )
            raise _component_refusal(ner.name, reason)
    if ner.annotation.sentence_boundaries and sets_sentence_starts(nlp, ner.name):
        raise _component_refusal(ner.name, "one before it that sets sentence starts")


def _component_refusal(ner_name: str, component: str) -> ValueError:
    """Make the error for a component that changes what ours predicts, or its tokens. `component` is
    the name of the other component, and what it does."""
    return ValueError(
        f"page: expected no component next to {ner_name} that changes tokens, entities or sentence "
        f"starts, got {component}"
    )


def _check_finite(ner_name: str, weights_of_passes: list[SparseWeights]) -> None:
    """Check that no weight is infinite or not a number."""
    for number, weights in enumerate(weights_of_passes, start=1):
        rows = weights.rows
        non_finite_weights = rows[~numpy.isfinite(rows)]
        if len(non_finite_weights):
            raise ValueError(
                f"page: weights of {ner_name}, pass {number}: expected finite numbers, got "
                f"{non_finite_weights[0]}"
            )


# Parts of the file


def _select_used(
    features: Features, weights_of_passes: list[SparseWeights], keep_memory: bool
) -> tuple[Features, list[Floats2d]]:
    """Select the features that have weights in any pass.

    features (Features): The features of the model.
    weights_of_passes (list[SparseWeights]): The weights of each pass, for all V features.
    keep_memory (bool): Whether label memory and rare words are kept: see `find_private_rows`.
    RETURNS (tuple[Features, list[Floats2d]]): The V' features; and their weights in each pass.
        Shapes: (V', K)
    """
    has_weights = numpy.zeros(len(features), dtype=bool)
    for weights in weights_of_passes:
        has_weights |= weights.emissions.any(axis=1)
    if not keep_memory:
        has_weights &= ~find_private_rows(features)
    selected_features, rows = features.select(has_weights)
    emissions_of_passes: list[Floats2d] = []
    for weights in weights_of_passes:
        # `select` keeps a value at all offsets of its column if it has weights at one of them. At
        # the other offsets its weights are 0 here, even weights that are left out.
        is_kept = has_weights[rows]
        emissions_of_passes.append(numpy.where(is_kept[:, None], weights.emissions[rows], 0))
    return selected_features, emissions_of_passes


def _describe_pass(
    name: str,
    weights: SparseWeights,
    emissions: Floats2d,
    tags: Tags,
    arrays: dict[str, ArrayXd],
) -> dict[str, Any]:
    """Make the header of one pass of a model, and add its weights to the arrays of the file. A
    model has one pass, or two: see `FirstPass`. The names of the arrays begin with the name of the
    pass. The class `Pass` in recognizer.js reads the header.

    Weights become whole numbers, which are small in the file: a weight is number * 2 ** exponent.
    Rows in which all numbers are 0 are left out. Many of the other features have the same row. So
    the file has each distinct row once, and for each of these features the index of its row. The
    weights of features are `emissions`, with the shape (V, K). Of `weights` only the weights of
    transitions, start and end are used. They are all in the file."""
    # Shape: (K + 2, K)
    chain_rows = numpy.concatenate([weights.transitions, weights.start[None], weights.end[None]])
    numbers, exponent = to_whole_numbers(emissions)
    used_rows = numpy.flatnonzero(numbers.any(axis=1)).astype("int32")
    distinct_rows, row_ids = find_distinct(numbers[used_rows])
    chain_numbers, chain_exponent = to_whole_numbers(chain_rows)
    arrays[f"{name}.used_rows"] = used_rows
    arrays[f"{name}.row_ids"] = row_ids.astype("int32")
    arrays[f"{name}.weights"] = distinct_rows
    arrays[f"{name}.chain"] = chain_numbers
    return {
        "name": name,
        "exponent": exponent,
        "chain_exponent": chain_exponent,
        "tags": describe_tags(tags),
    }


def describe_tags(tags: Tags) -> dict[str, Any]:
    """Describe the tags of a chain as JSON: what each tag means, and which paths are possible. The
    typedef `Tags` in chain.js describes the keys."""
    constraints = tags.constraints
    assert constraints.transitions is not None  # every scheme forbids some
    entity_tags = tags.entity_tags
    return {
        "labels": [*tags.labels],
        "label_of": tags.label_of.tolist(),
        "opening": _true_places(tags.opening),
        "continuing": _true_places(tags.continuing),
        "closing": _true_places(entity_tags.closing),
        "at_border": _true_places(tags.at_border),
        "collapsed_of": tags.collapsed_of.tolist(),
        "inside": numpy.argwhere(tags.within).tolist(),
        "transitions": numpy.argwhere(constraints.transitions).tolist(),
        "start": _true_places(constraints.start),
        "end": _true_places(constraints.end),
    }


def _true_places(mask: Array1d) -> list[int]:
    """Find the indices at which a mask is True. Shape of the mask: (K,)"""
    return numpy.flatnonzero(mask).tolist()


def _describe_decoding(ner: CostSensitiveNER, arrays: dict[str, ArrayXd]) -> dict[str, Any]:
    """Describe the decoding of a component as JSON: its "kind" and its settings or, if it minimises
    expected costs, its "choices" (the typedef `Choices` of min_cost.js). Costs of mistakes are
    added to the arrays of the file."""
    kind = kind_of_decoding(ner)
    decode = ner.decoding.decode
    if not isinstance(decode, MinCost):
        return {"kind": kind, **ner.cfg["decoding"]}
    leaf_tags = ner.tags  # with a single O, as decodings have them, unlike `ner.chain_tags`
    choices = decode.choices(leaf_tags)
    # The tags that can be predicted: if there is a label tree, also the tags of its inner nodes
    tags = Tags(choices.labels, leaf_tags.scheme.name)
    masks = node_masks(choices, tags, leaf_tags)
    arrays["costs"] = choices.costs
    return {
        "kind": kind,
        "choices": {
            "tags": describe_tags(tags),
            "covers": [_true_places(row) for row in choices.covers],
            "members": [_true_places(mask) for mask in masks],
            "arrays": {"costs": "costs"},  # the name of the array of costs in the file
        },
    }


def _describe_temperature(ner: CostSensitiveNER) -> dict[str, Any]:
    """Describe the temperature of a component, overall and of single labels, as JSON."""
    temperature = ner.cfg["temperature"]
    return {"overall": temperature["overall"], "labels": dict(temperature["labels"])}


def _describe_promise(promise: Promise | None) -> dict[str, Any] | None:
    """Describe the guarantee of the guaranteed set as JSON. None if there is no guarantee, or one
    for groups of docs: the text of a page belongs to no group."""
    if promise is None or promise.by_group is not None:
        return None
    thresholds = promise.groups[""]  # the key of all docs
    return {
        "miss": promise.miss,
        "false_alarm": promise.false_alarm,
        "confidence": promise.confidence,
        "found": promise.found,
        "by": promise.by,
        "per_label": promise.per_label,
        "threshold": thresholds.threshold,
        "labels": dict(thresholds.labels),
        "source": promise.source,
        "docs": promise.docs,
        "entities": promise.entities,
    }


def _untrained_tags(ner: CostSensitiveNER) -> list[int]:
    """Find the tags of labels that were added since training. They are never predicted."""
    tags = ner.chain_tags
    untrained = [tags.labels.index(label) for label in ner.cfg["untrained"]]
    return _true_places(numpy.isin(tags.label_of, untrained))
