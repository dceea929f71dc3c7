"""Viterbi and threshold decoding, and what all decodings share.

A decoding chooses entities from the posterior of a batch. It has settings, such as a threshold,
with exceptions for single labels, which can be changed without training.
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
from ..validation import check_config_names, number
from .posterior import Posterior

Settings = dict[str, Any]
"""Settings that can be changed on a trained component, as JSON."""


class DecodedSpans(NamedTuple):
    """The predicted entities of a batch.

    entities (Entities): The entities, in order and without overlap.
    labels (tuple[str, ...]): The names of the labels, by index.
    covers (Array2d | None): The labels of the chain that each of these covers; None if they are
        the labels of the chain. Shape: (labels, labels of the chain)
    """

    entities: Entities
    labels: tuple[str, ...]
    covers: Array2d | None = None


@dataclass(frozen=True)
class Decoding:
    """A decoding, as the config names it.

    decode (Callable[[Posterior, Settings], DecodedSpans]): Decodes a batch.
    check (Callable[[Tags, Settings], Any]): Raises a ValueError if a setting is out of its
        range or doesn't fit the labels: before training begins, and at load.
    settings (Settings): The settings that a component starts with. They can be changed on a
        trained one, in its `cfg["decoding"]`, and are saved with it.
    tables (Callable[[Tags], Any] | None): What else to save: JSON that `restore` takes.
    restore (Callable[[Any], None] | None): Restores it from a saved model.
    """

    decode: Callable[[Posterior, Settings], DecodedSpans]
    check: Callable[[Tags, Settings], Any]
    settings: Settings = field(default_factory=dict)
    tables: Callable[[Tags], Any] | None = None
    restore: Callable[[Any], None] | None = None


def make_viterbi(*, bias: float = 0.0, labels: dict[str, float] = EMPTY_BLOCK) -> Decoding:
    """Build decoding by the best path: see `viterbi`.

        [components.ner.decoding]
        @misc = "spacy_costner.ViterbiDecoding.v1"
        bias = 0.5

    bias (float): Added to the scores of all tags but O: above 0 for more entities.
    labels (dict[str, float]): Bias per label, in place of the overall one.
    RAISES (ValueError): If a bias is not finite.
    """
    check = partial(_check_numbers, "bias", "ViterbiDecoding", least=-numpy.inf, most=numpy.inf)
    settings = {"bias": bias, "labels": dict(labels)}
    check(None, settings)
    return Decoding(viterbi, check, settings)


def viterbi(posterior: Posterior, settings: Settings) -> DecodedSpans:
    """The entities of the best path.

        argmax_y s(y) + sum_t bias[label(y_t)]

    With a bias: Minkov et al., 2006, "NER Systems that Suit User's Preferences: Adjusting the
    Recall-Precision Trade-off for Entity Extraction".
    """
    tags = posterior.tags
    scores = posterior.scores
    if settings["bias"] or settings["labels"]:
        # The bias of each label, and at the end that of O, whose label is -1.
        bias_of_label = numpy.append(by_label("bias", tags, settings), 0.0)
        bias_of_tag = bias_of_label[tags.label_of]
        xp = get_array_module(scores.emissions)
        biased = scores.emissions + xp.asarray(bias_of_tag, dtype=scores.emissions.dtype)
        scores = scores._replace(emissions=biased)
    path = to_numpy(chain.best_path(scores).tags)
    return DecodedSpans(tags.decode(path, scores.lengths), tags.labels)


def make_threshold(*, threshold: float = 0.5, labels: dict[str, float] = EMPTY_BLOCK) -> Decoding:
    """Build decoding by the probability of entities: see `threshold`.

        [components.ner.decoding]
        @misc = "spacy_costner.ThresholdDecoding.v1"
        threshold = 0.7
        labels = {"drug": 0.2}

    threshold (float): The least probability of predicted entities.
    labels (dict[str, float]): Threshold per label, in place of the overall one.
    RAISES (ValueError): If a threshold is not between 0 and 1.
    """
    check = partial(_check_numbers, "threshold", "ThresholdDecoding", least=0, most=1)
    settings = {"threshold": threshold, "labels": dict(labels)}
    check(None, settings)
    return Decoding(decode_threshold, check, settings)


def decode_threshold(posterior: Posterior, settings: Settings) -> DecodedSpans:
    """All entities with at least the threshold as probability. Of overlapping ones, those with the
    lowest expected cost if a false alarm costs the threshold and a miss 1 minus the threshold.

        argmax sum_e p(e) - threshold[label(e)],  over sets of entities without overlap

    With a threshold of 0.5 or more, these entities never overlap. None has a probability below
    `LEAST`.
    """
    tags = posterior.tags
    thresholds = by_label("threshold", tags, settings)
    lowest_threshold = float(thresholds.min(initial=1.0))
    entities, probs = posterior.likely_entities(lowest_threshold)
    gains = probs - thresholds[entities.label]
    return DecodedSpans(without_overlap(entities, gains), tags.labels)


def without_overlap(entities: Entities, gains: Floats1d) -> Entities:
    """Choose entities without overlap and with the largest gain (weighted interval scheduling), in
    order. Those with a negative gain, (E,), are never chosen.

        best_i = max(best_{i-1}, gain_i + best of the entities that end before i begins)
    """
    is_candidate = gains >= 0
    candidates = entities.select(is_candidate)
    if (candidates.begin[1:] >= candidates.end[:-1]).all():  # nothing overlaps, as is usual
        return candidates

    # The number of candidates that end before each begins. By end, they are the first ones.
    by_end = numpy.argsort(candidates.end, kind="stable")
    candidates = candidates.select(by_end)
    candidate_gains = gains[is_candidate][by_end]
    n_before = numpy.searchsorted(candidates.end, candidates.begin, side="right").tolist()

    # Item i of `best_gains` is the gain of the best choice among the first i candidates. Item i of
    # `is_in_best` says whether the best choice among the first i + 1 has the last of them.
    best_gains = [0.0]
    is_in_best: list[bool] = []
    for gain, n in zip(candidate_gains.tolist(), n_before):
        gain_with = gain + best_gains[n]
        gain_without = best_gains[-1]
        is_in_best.append(gain_with >= gain_without)
        best_gains.append(max(gain_with, gain_without))

    # From the last candidate back: if it is in the best choice, those that overlap with it aren't.
    chosen: list[int] = []
    n_left = len(is_in_best)
    while n_left > 0:
        last = n_left - 1
        if is_in_best[last]:
            chosen.append(last)
            n_left = n_before[last]
        else:
            n_left = last
    chosen.reverse()
    return candidates.select(numpy.asarray(chosen, dtype="int64"))


def by_label(name: str, tags: Tags, settings: Settings) -> Floats1d:
    """The value of a setting for each label: its own, or else the overall one. Raises a ValueError
    if `labels` has another label. Shape: (labels,)"""
    exceptions = settings["labels"]
    unknown_labels = sorted(set(exceptions) - set(tags.labels))
    if unknown_labels:
        expected = f"expected any of {tags.labels}"
        raise ValueError(f"decoding: labels: {expected}, got {unknown_labels[0]!r}")
    overall = settings[name]
    values = [exceptions.get(label, overall) for label in tags.labels]
    return numpy.asarray(values, dtype="float64")


def _check_numbers(
    name: str, decoding: str, tags: Tags | None, settings: Settings, *, least: float, most: float
) -> None:
    """Check that a setting and its exceptions for labels are finite numbers of the range, and that
    the chain has these labels, if they are known.

    name (str): The setting, such as "bias".
    decoding (str): The name of the decoding, for errors.
    tags (Tags | None): The tags of the chain. None: they are not known yet.
    settings (Settings): The settings, with the exceptions under "labels".
    least (float), most (float): The range.
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
        is_in_range = least <= number(value) <= most
        if not (is_in_range and numpy.isfinite(number(value))):
            raise ValueError(f"{where}: {full_name}: {expected}, got {value!r}")
    if tags is not None:
        by_label(name, tags, settings)
