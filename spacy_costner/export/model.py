"""Export of a trained pipeline to a model file for a web page or JavaScript module, which doesn't
require Python.

The file contains everything that `javascript/recognizer.js` reads. If a feature is
unsupported, an error that names it is raised before anything is written. V is the number of
features, K the number of tags.
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
from ..workflows.components import find_components, sets_entities
from .features import describe_features, find_private_rows, has_words, refusal, spacy_symbols
from .model_file import pack_file
from .tokenizer import describe_tokenizer

HARMLESS = frozenset(["attribute_ruler", "doc_cleaner"])
"""Factories of components that don't declare what they set but don't affect a page's results."""


@dataclass(frozen=True)
class WebModel:
    """A model file for a web page.

    data (bytes): The contents of the file.
    info (dict[str, Any]): The description of the pipeline for the page, in JSON format. See
        `describe_pipeline`.
    n_words (int): The number of words that are readable in the file, including prefixes and
        suffixes of more than `LONGEST_AFFIX` characters, which may be complete words.
    n_remembered (int): The number of words in label memory (see `features.memory`). They are stored
        as hashes, which reveal whether a given word is included.
    """

    data: bytes
    info: dict[str, Any]
    n_words: int
    n_remembered: int


def make_web_model(nlp: Language, *, keep_memory: bool = True) -> WebModel:
    """Create the model file of a pipeline for a web page or JavaScript module.

    nlp (Language): The pipeline. It must have a single trained `cost_sensitive_ner` component with
        a linear model.
    keep_memory (bool): Whether to include label memory and words that are rare in the training
        data. If included, they are published with the page, even if they are names of people.
    RETURNS (WebModel): The model file.
    RAISES (ValueError): If the pipeline uses a feature that isn't supported in a page. The message
        names the feature.
    """
    ner = _find_component(nlp)
    _check_other_components(nlp, ner)
    tokenizer = describe_tokenizer(nlp)

    features, weights = linear_part(ner.model)
    weights_of_passes = [weights]
    tags_of_passes = [ner.chain_tags]
    # A first pass has no weights if its labels are read from docs instead.
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
        # True means sentence starts and line breaks. In a page, there are only line breaks.
        "cuts_at_lines": ner.annotation.sentence_boundaries is True,
        "impossible_tags": _untrained_tags(ner),
        # Labels that the component learns but doesn't predict
        "hidden_labels": [ner.labels[i] for i in ner.other_labels],
    }
    data = pack_file(header, arrays)
    n_words, n_remembered = count_published_words(columns, arrays)
    return WebModel(data, info, n_words=n_words, n_remembered=n_remembered)


def count_published_words(
    columns: Iterable[Mapping[str, Any]], arrays: Mapping[str, ArrayXd]
) -> tuple[int, int]:
    """Count the readable contents of a model file: words (see `has_words`), and hashes of words in
    label memory."""
    words: set[str] = set()
    n_remembered = 0
    for column in columns:
        if has_words(column["name"]):
            words.update(column["values"])
        if column["kind"] == "memory":
            n_remembered += len(arrays[column["arrays"]["keys"]])
    return len(words), n_remembered


def describe_pipeline(nlp: Language, ner: CostSensitiveNER) -> dict[str, Any]:
    """Return the description of a pipeline for its web page, in JSON format: the name, language and
    version; the labels; the prediction settings; and the guarantee, if any.

    RAISES (ValueError): If the decoding is not defined in this package.
    """
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
    """Return the name of a component's decoding, as used by the `decoding` argument of `init`.

    RAISES (ValueError): If the decoding has no such name.
    """
    decode = ner.decoding.decode
    if isinstance(decode, MinCost):
        return "min-cost"
    if decode is viterbi:
        return "viterbi"
    if decode is decode_threshold:
        return "threshold"
    raise refusal(f"the decoding {getattr(decode, '__name__', decode)}")


# Checks for unsupported features


def _find_component(nlp: Language) -> CostSensitiveNER:
    """Return the `cost_sensitive_ner` component of a pipeline.

    RAISES (ValueError): If the pipeline doesn't contain exactly one such component, or if it
        isn't trained or has an unsupported model.
    """
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
    """Check that the other components of a pipeline don't change tokens, entities or the sentence
    starts used to split texts, because the page only runs our component.

    RAISES (ValueError): If a component changes them or doesn't declare what it sets.
    """
    for name in nlp.pipe_names:
        if name == ner.name:
            continue
        meta = nlp.get_pipe_meta(name)
        if meta.retokenizes:
            raise _component_refusal(ner.name, f"{name}, which changes tokens")
        if sets_entities(nlp, name):
            raise _component_refusal(ner.name, f"{name}, which sets entities")
        if not meta.assigns and meta.factory not in HARMLESS:
            reason = (
                f"{name}, whose factory {meta.factory} doesn't declare in `assigns` what it sets"
            )
            raise _component_refusal(ner.name, reason)
    if ner.annotation.sentence_boundaries and sets_sentence_starts(nlp, ner.name):
        raise _component_refusal(ner.name, "one before it that sets sentence starts")


def _component_refusal(ner_name: str, component: str) -> ValueError:
    """Create the error for a component that changes tokens or our component's predictions.
    `component` is its name and a description of what it changes."""
    return ValueError(
        f"page: expected no component next to {ner_name} that changes tokens, entities or sentence "
        f"starts, got {component}"
    )


def _check_finite(ner_name: str, weights_of_passes: list[SparseWeights]) -> None:
    """Check that all weights are finite."""
    for number, weights in enumerate(weights_of_passes, start=1):
        rows = weights.rows
        non_finite_weights = rows[~numpy.isfinite(rows)]
        if len(non_finite_weights):
            raise ValueError(
                f"page: weights of {ner_name}, pass {number}: expected finite numbers, got "
                f"{non_finite_weights[0]}"
            )


# Contents of the file


def _select_used(
    features: Features, weights_of_passes: list[SparseWeights], keep_memory: bool
) -> tuple[Features, list[Floats2d]]:
    """Select the features with nonzero weights in any pass.

    features (Features): The features of the model.
    weights_of_passes (list[SparseWeights]): The weights of each pass for all V features.
    keep_memory (bool): Whether to keep label memory and rare words. See `find_private_rows`.
    RETURNS (tuple[Features, list[Floats2d]]): The V' selected features and their weights in each
        pass. Shapes: (V', K)
    """
    has_weights = numpy.zeros(len(features), dtype=bool)
    for weights in weights_of_passes:
        has_weights |= weights.emissions.any(axis=1)
    if not keep_memory:
        has_weights &= ~find_private_rows(features)
    selected_features, rows = features.select(has_weights)
    emissions_of_passes: list[Floats2d] = []
    for weights in weights_of_passes:
        # If a value has weights at one offset, `select` keeps it at all offsets of its column. Set
        # its weights at the other offsets to 0, because some may have been excluded as private.
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
    """Create the header of a pass of the model, and add its weights to the arrays of the file. A
    model has one or two passes, see `FirstPass`. The array names start with the name of the pass.
    The header is read by the class `Pass` in recognizer.js.

    To reduce the file size, weights are converted to integers: a weight is number * 2 ** exponent.
    Rows in which all numbers are 0 are omitted. Since many of the remaining features have identical
    rows, the file contains each distinct row once, and the index of the row for each feature.

    The feature weights are passed as `emissions`, with shape (V, K). `weights` only provides the
    weights for transitions, start and end, all of which are included in the file."""
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
    """Describe the chain tags in JSON format: the meaning of each tag, and the possible paths. See
    the typedef `Tags` in chain.js for the keys."""
    constraints = tags.constraints
    assert constraints.transitions is not None  # every scheme forbids some transitions
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
    """Return the indices at which a mask is True. Shape of the mask: (K,)"""
    return numpy.flatnonzero(mask).tolist()


def _describe_decoding(ner: CostSensitiveNER, arrays: dict[str, ArrayXd]) -> dict[str, Any]:
    """Describe the decoding of a component in JSON format: its "kind" and its settings, or its
    "choices" for minimum-expected-cost decoding (see the typedef `Choices` in min_cost.js). The
    costs are added to the arrays of the file."""
    kind = kind_of_decoding(ner)
    decode = ner.decoding.decode
    if not isinstance(decode, MinCost):
        return {"kind": kind, **ner.cfg["decoding"]}
    leaf_tags = ner.tags  # the tags with a single O, as used by decodings
    choices = decode.choices(leaf_tags)
    # The tags that can be predicted, including the inner nodes of the label tree, if any
    tags = Tags(choices.labels, leaf_tags.scheme.name)
    masks = node_masks(choices, tags, leaf_tags)
    arrays["costs"] = choices.costs
    return {
        "kind": kind,
        "choices": {
            "tags": describe_tags(tags),
            "covers": [_true_places(row) for row in choices.covers],
            "members": [_true_places(mask) for mask in masks],
            "arrays": {"costs": "costs"},  # the name of the costs array in the file
        },
    }


def _describe_temperature(ner: CostSensitiveNER) -> dict[str, Any]:
    """Describe the overall and per-label temperatures of a component in JSON format."""
    temperature = ner.cfg["temperature"]
    return {"overall": temperature["overall"], "labels": dict(temperature["labels"])}


def _describe_promise(promise: Promise | None) -> dict[str, Any] | None:
    """Describe the guarantee for the guaranteed set in JSON format. Return None if there is no
    guarantee, or if it depends on groups of docs, because the text on a page has no group."""
    if promise is None or promise.by_group is not None:
        return None
    thresholds = promise.groups[""]  # the key for all docs
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
    """Return the tags of labels that were added after training. They are never predicted."""
    tags = ner.chain_tags
    untrained = [tags.labels.index(label) for label in ner.cfg["untrained"]]
    return _true_places(numpy.isin(tags.label_of, untrained))
