"""Viterbi and threshold decoding, and the parts shared by all decodings.

A decoding selects the entities of a batch based on the posterior. Its settings, e.g. a threshold,
can be overridden for individual labels and changed without retraining. In shapes, E is the number
of entities.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy
from thinc.api import to_numpy
from thinc.types import Array2d, Floats1d
from thinc.util import get_array_module

from .. import chain
from ..costs.tables import EMPTY_BLOCK
from ..tags import Entities, Tags
from ..validation import as_number, check_config_names
from .posterior import Posterior

DecodingSettings = dict[str, Any]
"""The settings of a decoding, in JSON format. They can be changed after training."""


class DecodedSpans(NamedTuple):
    """The predicted entities of a batch.

    entities (Entities): The entities, in order and without overlaps.
    labels (tuple[str, ...]): The label names that `entities.label` refers to.
    covers (Array2d | None): True for the chain labels covered by each label. For example, a node of
        a label tree covers the labels below it. If None, the labels are the chain labels.
        Shape: (labels, labels of the chain)
    """

    entities: Entities
    labels: tuple[str, ...]
    covers: Array2d | None = None


@dataclass(frozen=True)
class Decoding:
    """A decoding defined in the config.

    decode (Callable[[Posterior, DecodingSettings], DecodedSpans]): Decodes a batch.
    check (Callable[[Tags, DecodingSettings], Any]): Raises a ValueError if a setting is out of
        range or not compatible with the labels. Called before training and when a model is loaded.
    settings (DecodingSettings): The component's initial settings. They can be changed in
        `cfg["decoding"]` and are saved with the component.
    tables (Callable[[Tags], Any] | None): Returns additional data to save with the settings, in
        JSON format. None if there is no such data. A guarantee depends on them, except on the key
        "of", which identifies the config that they were created from.
    restore (Callable[[Any], None] | None): Restores the data when a saved model is loaded.
    """

    decode: Callable[[Posterior, DecodingSettings], DecodedSpans]
    check: Callable[[Tags, DecodingSettings], Any]
    settings: DecodingSettings = field(default_factory=dict)
    tables: Callable[[Tags], Any] | None = None
    restore: Callable[[Any], None] | None = None


def make_viterbi(*, bias: float = 0.0, labels: dict[str, float] = EMPTY_BLOCK) -> Decoding:
    """Create a Viterbi decoding, which uses the best path. See `viterbi`.

        [components.ner.decoding]
        @misc = "spacy_costner.ViterbiDecoding.v1"
        bias = 0.5

    bias (float): A constant added to the scores of all tags except O. A positive bias increases the
        number of predicted entities.
    labels (dict[str, float]): The biases of individual labels, which override the overall bias.
    RAISES (ValueError): If a bias is not finite, or a label is not a valid name in a config. See
        `check_config_names`.
    """
    # All finite numbers are in range.
    check = partial(_check_numbers, "bias", "ViterbiDecoding", least=-numpy.inf, most=numpy.inf)
    settings = {"bias": bias, "labels": dict(labels)}
    check(tags=None, settings=settings)  # the labels are not known yet and are checked later
    return Decoding(viterbi, check, settings)


def viterbi(posterior: Posterior, settings: DecodingSettings) -> DecodedSpans:
    """Predict the entities of the best path. See `make_viterbi` for the settings.

        argmax_y s(y) + sum_t bias[label(y_t)]

    s(y) is the score of the model without temperature scaling, which is only used to calibrate
    probabilities.

    With a bias: Minkov et al., 2006, "NER Systems that Suit User's Preferences: Adjusting the
    Recall-Precision Trade-off for Entity Extraction".
    """
    tags = posterior.tags
    scores = posterior.scores
    if settings["bias"] or settings["labels"]:
        # O has no bias. Its label index is -1, which selects the appended 0.
        bias_of_label = numpy.append(by_label("bias", tags, settings), 0.0)
        bias_of_tag = bias_of_label[tags.label_of]
        xp = get_array_module(scores.emissions)
        biased = scores.emissions + xp.asarray(bias_of_tag, dtype=scores.emissions.dtype)
        scores = scores._replace(emissions=biased)
    path = to_numpy(chain.best_path(scores).tags)
    return DecodedSpans(tags.decode(path, scores.lengths), tags.labels)


def make_threshold(*, threshold: float = 0.5, labels: dict[str, float] = EMPTY_BLOCK) -> Decoding:
    """Create a threshold decoding, which uses entity probabilities. See `decode_threshold`.

        [components.ner.decoding]
        @misc = "spacy_costner.ThresholdDecoding.v1"
        threshold = 0.7
        labels = {"drug": 0.2}

    threshold (float): The minimum probability of predicted entities.
    labels (dict[str, float]): The thresholds of individual labels, which override the overall
        threshold.
    RAISES (ValueError): If a threshold is not between 0 and 1, or a label is not a valid name in a
        config. See `check_config_names`.
    """
    check = partial(_check_numbers, "threshold", "ThresholdDecoding", least=0, most=1)
    settings = {"threshold": threshold, "labels": dict(labels)}
    check(tags=None, settings=settings)  # the labels are not known yet and are checked later
    return Decoding(decode_threshold, check, settings)


def decode_threshold(posterior: Posterior, settings: DecodingSettings) -> DecodedSpans:
    """Predict all entities with at least the threshold probability. See `make_threshold` for the
    settings.

    If the threshold is 0.5 or less, these entities may overlap. In this case, select the
    non-overlapping entities with the largest total gain. The gain of an entity is its probability
    minus the threshold of its label.

        argmax sum_e (p(e) - threshold[label(e)]),  over sets of entities without overlap

    These entities have the lowest expected cost if the threshold is the cost of a false alarm and 1
    minus the threshold is the cost of a miss. Entities with a probability below `LEAST_PROB` are
    never predicted.
    """
    tags = posterior.tags
    thresholds = by_label("threshold", tags, settings)
    lowest_threshold = float(thresholds.min(initial=1.0))
    entities, probs = posterior.likely_entities(lowest_threshold)
    gains = probs - thresholds[entities.label]
    return DecodedSpans(without_overlap(entities, gains), tags.labels)


def without_overlap(entities: Entities, gains: Floats1d) -> Entities:
    """Select non-overlapping entities with the largest total gain (weighted interval scheduling).
    Entities with a negative gain are never selected.

    If the entities are sorted by their ends and best_i is the largest total gain of the first i,

        best_i = max(best_{i-1}, gain_i + best_n),  where the first n end before entity i begins

    entities (Entities): The entities. They may overlap.
    gains (Floats1d): The gain of each entity. Shape: (E,)
    RETURNS (Entities): The selected entities, in order.
    """
    is_candidate = gains >= 0
    candidates = entities.select(is_candidate)
    if (candidates.begin[1:] >= candidates.end[:-1]).all():  # usually there are no overlaps
        return candidates

    by_end = numpy.argsort(candidates.end, kind="stable")
    candidates = candidates.select(by_end)
    candidate_gains = gains[is_candidate][by_end]
    # For each candidate, the number of candidates that end before it begins. They come first.
    n_before = numpy.searchsorted(candidates.end, candidates.begin, side="right").tolist()

    # `best_gains[i]` is the largest total gain of the first i candidates. `is_in_best[i]` is True
    # if candidate i is selected from candidates 0 to i.
    best_gains = [0.0]
    is_in_best: list[bool] = []
    for gain, n_compatible in zip(candidate_gains.tolist(), n_before):
        gain_with = gain + best_gains[n_compatible]
        gain_without = best_gains[-1]
        is_in_best.append(gain_with >= gain_without)
        best_gains.append(max(gain_with, gain_without))

    # Trace back from the last candidate. After a selected candidate, continue with the candidates
    # that end before it begins.
    chosen_indices: list[int] = []
    n_left = len(is_in_best)
    while n_left > 0:
        last = n_left - 1
        if is_in_best[last]:
            chosen_indices.append(last)
            n_left = n_before[last]
        else:
            n_left = last
    chosen_indices.reverse()
    return candidates.select(numpy.asarray(chosen_indices, dtype="int64"))


def by_label(name: str, tags: Tags, settings: DecodingSettings) -> Floats1d:
    """Return the value of a setting for each label of a chain.

    name (str): The name of the setting, e.g. "bias".
    tags (Tags): The chain tags.
    settings (DecodingSettings): The settings. The values in "labels" override the value of `name`
        for individual labels.
    RETURNS (Floats1d): The values. Shape: (labels,)
    RAISES (ValueError): If the settings contain an unknown label.
    """
    exceptions = settings["labels"]
    unknown_labels = sorted(set(exceptions) - set(tags.labels))
    if unknown_labels:
        expected = f"expected one of {tags.labels}"
        raise ValueError(f"decoding: labels: {expected}, got {unknown_labels[0]!r}")
    overall = settings[name]
    values = [exceptions.get(label, overall) for label in tags.labels]
    return numpy.asarray(values, dtype="float64")


def _check_numbers(
    name: str,
    decoding: str,
    tags: Tags | None,
    settings: DecodingSettings,
    *,
    least: float,
    most: float,
) -> None:
    """Check that a setting, e.g. "bias", and its values for individual labels are finite numbers
    between `least` and `most`. If `tags` are given, also check that the labels are known.
    `decoding` is the name of the decoding in error messages.

    RAISES (ValueError): If a value or a label is invalid.
    """
    where = f"spacy_costner.{decoding}"
    exceptions = settings["labels"]
    if not isinstance(exceptions, Mapping):
        raise ValueError(f"{where}: labels: expected a mapping, got {exceptions!r}")
    check_config_names(exceptions, f"{where}: labels")
    values = {name: settings[name]}
    for label, value in exceptions.items():
        values[f"labels.{label}"] = value
    expected = "expected a finite number"
    if numpy.isfinite(least):
        expected += f" from {least} to {most}"
    for full_name, value in values.items():
        is_in_range = least <= as_number(value) <= most
        if not (is_in_range and numpy.isfinite(as_number(value))):
            raise ValueError(f"{where}: {full_name}: {expected}, got {value!r}")
    if tags is not None:
        by_label(name, tags, settings)
