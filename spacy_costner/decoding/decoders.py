"""Viterbi and threshold decoding, and the parts that all decodings share.

A decoding chooses the entities of a batch, from the posterior. It has settings, such as a
threshold, and values of the settings for single labels. You can change them without training. In
shapes, E is the number of entities.
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
"""The settings of a decoding, as JSON. You can change them on a trained component."""


class DecodedSpans(NamedTuple):
    """The predicted entities of a batch.

    entities (Entities): The entities, in order and without overlap.
    labels (tuple[str, ...]): The names that the numbers in `entities.label` stand for.
    covers (Array2d | None): For each of these labels, True at the labels of the chain that it
        covers, as a node of a label tree does. None: the labels are the labels of the chain.
        Shape: (labels, labels of the chain)
    """

    entities: Entities
    labels: tuple[str, ...]
    covers: Array2d | None = None


@dataclass(frozen=True)
class Decoding:
    """A decoding, as the config names it.

    decode (Callable[[Posterior, DecodingSettings], DecodedSpans]): Decodes a batch.
    check (Callable[[Tags, DecodingSettings], Any]): Raises a ValueError if a setting is out of its
        range or doesn't fit the labels. It is called before training and when a model is loaded.
    settings (DecodingSettings): The settings that a component starts with. You can change them in
        its `cfg["decoding"]`. They are saved with it.
    tables (Callable[[Tags], Any] | None): Returns, as JSON, what has to be saved with the settings.
        None: nothing has to be saved.
    restore (Callable[[Any], None] | None): Takes that JSON when a saved model is loaded.
    """

    decode: Callable[[Posterior, DecodingSettings], DecodedSpans]
    check: Callable[[Tags, DecodingSettings], Any]
    settings: DecodingSettings = field(default_factory=dict)
    tables: Callable[[Tags], Any] | None = None
    restore: Callable[[Any], None] | None = None


def make_viterbi(*, bias: float = 0.0, labels: dict[str, float] = EMPTY_BLOCK) -> Decoding:
    """Build decoding by the best path: see `viterbi`.

        [components.ner.decoding]
        @misc = "spacy_costner.ViterbiDecoding.v1"
        bias = 0.5

    bias (float): A number that is added to the scores of all tags but O. Above 0, more entities are
        predicted.
    labels (dict[str, float]): The bias of single labels, instead of the overall one.
    RAISES (ValueError): If a bias is not finite, or a label has a name that can't be written in a
        config: see `check_config_names`.
    """
    # Any finite number is in the range.
    check = partial(_check_numbers, "bias", "ViterbiDecoding", least=-numpy.inf, most=numpy.inf)
    settings = {"bias": bias, "labels": dict(labels)}
    check(tags=None, settings=settings)  # There are no tags yet, so the labels are checked later.
    return Decoding(viterbi, check, settings)


def viterbi(posterior: Posterior, settings: DecodingSettings) -> DecodedSpans:
    """Predict the entities of the best path. For the settings see `make_viterbi`.

        argmax_y s(y) + sum_t bias[label(y_t)]

    s(y) is the score of the model, which the temperature doesn't change: it is there to calibrate
    probabilities.

    With a bias: Minkov et al., 2006, "NER Systems that Suit User's Preferences: Adjusting the
    Recall-Precision Trade-off for Entity Extraction".
    """
    tags = posterior.tags
    scores = posterior.scores
    if settings["bias"] or settings["labels"]:
        # O has no bias. Its label is -1, which as an index is the last entry: 0 is appended.
        bias_of_label = numpy.append(by_label("bias", tags, settings), 0.0)
        bias_of_tag = bias_of_label[tags.label_of]
        xp = get_array_module(scores.emissions)
        biased = scores.emissions + xp.asarray(bias_of_tag, dtype=scores.emissions.dtype)
        scores = scores._replace(emissions=biased)
    path = to_numpy(chain.best_path(scores).tags)
    return DecodedSpans(tags.decode(path, scores.lengths), tags.labels)


def make_threshold(*, threshold: float = 0.5, labels: dict[str, float] = EMPTY_BLOCK) -> Decoding:
    """Build decoding by the probability of entities: see `decode_threshold`.

        [components.ner.decoding]
        @misc = "spacy_costner.ThresholdDecoding.v1"
        threshold = 0.7
        labels = {"drug": 0.2}

    threshold (float): The least probability of entities that are predicted.
    labels (dict[str, float]): The threshold of single labels, instead of the overall one.
    RAISES (ValueError): If a threshold is not from 0 to 1, or a label has a name that can't be
        written in a config: see `check_config_names`.
    """
    check = partial(_check_numbers, "threshold", "ThresholdDecoding", least=0, most=1)
    settings = {"threshold": threshold, "labels": dict(labels)}
    check(tags=None, settings=settings)  # There are no tags yet, so the labels are checked later.
    return Decoding(decode_threshold, check, settings)


def decode_threshold(posterior: Posterior, settings: DecodingSettings) -> DecodedSpans:
    """Predict all entities whose probability is at least the threshold. For the settings see
    `make_threshold`.

    If the threshold is 0.5 or less, such entities may overlap. Then the decoding chooses the
    entities with the largest sum of gains. The gain of an entity is its probability minus the
    threshold of its label.

        argmax sum_e (p(e) - threshold[label(e)]),  over sets of entities without overlap

    This is the set with the lowest expected cost, if a false alarm costs the threshold, and a miss
    1 minus the threshold. Entities with a probability below `LEAST_PROB` are never found.
    """
    tags = posterior.tags
    thresholds = by_label("threshold", tags, settings)
    lowest_threshold = float(thresholds.min(initial=1.0))
    entities, probs = posterior.likely_entities(lowest_threshold)
    gains = probs - thresholds[entities.label]
    return DecodedSpans(without_overlap(entities, gains), tags.labels)


def without_overlap(entities: Entities, gains: Floats1d) -> Entities:
    """Choose entities that don't overlap and have the largest sum of gains: weighted interval
    scheduling. Entities with a negative gain are never chosen.

    With the entities ordered by their ends, and best_i the largest sum among the first i,

        best_i = max(best_{i-1}, gain_i + best_n),  where the first n end before entity i begins

    entities (Entities): The entities. They may overlap.
    gains (Floats1d): The gain of each. Shape: (E,)
    RETURNS (Entities): The chosen entities, in order.
    """
    is_candidate = gains >= 0
    candidates = entities.select(is_candidate)
    if (candidates.begin[1:] >= candidates.end[:-1]).all():  # nothing overlaps, as is usual
        return candidates

    by_end = numpy.argsort(candidates.end, kind="stable")
    candidates = candidates.select(by_end)
    candidate_gains = gains[is_candidate][by_end]
    # For each candidate the number of candidates that end before it begins. They are the first
    # ones.
    n_before = numpy.searchsorted(candidates.end, candidates.begin, side="right").tolist()

    # `best_gains[i]` is the largest sum of gains among the first i candidates. `is_in_best[i]` says
    # whether candidate i is chosen when there are only candidates 0 to i.
    best_gains = [0.0]
    is_in_best: list[bool] = []
    for gain, n_compatible in zip(candidate_gains.tolist(), n_before):
        gain_with = gain + best_gains[n_compatible]
        gain_without = best_gains[-1]
        is_in_best.append(gain_with >= gain_without)
        best_gains.append(max(gain_with, gain_without))

    # Go back from the last candidate. After one that is chosen, continue with the candidates that
    # end before it begins.
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

    name (str): The name of the setting, such as "bias".
    tags (Tags): The tags of the chain.
    settings (DecodingSettings): The settings. Under "labels" are the values of single labels; other
        labels have the value under `name`.
    RETURNS (Floats1d): The values. Shape: (labels,)
    RAISES (ValueError): If the settings have a label that the chain doesn't have.
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
    """Check that a setting, such as "bias", and its exceptions for labels are finite numbers from
    `least` to `most`, and that the chain has these labels. Without `tags` the labels are not known
    yet, and not checked. `decoding` is the name of the decoding, for messages.

    RAISES (ValueError): If something is wrong.
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
