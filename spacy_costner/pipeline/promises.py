"""Guarantees and the scores of calibration docs, both of which are saved with a component.

A *guarantee* is a statement such as "the component's sets of spans miss at most 5% of the
entities". The class is called `Promise` because `Guarantee` is the result of the function
`workflows.guarantee`. The shift test compares the *scores* of calibration docs with the scores of
new docs. Guarantees and scores are only valid for the component's settings at the time of
calibration. They are saved in the component's `cfg` under "guarantee" and "shift".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from operator import itemgetter
from typing import Any

from spacy.tokens import Doc
from thinc.types import Floats1d

from ..metrics.shift import ENOUGH, digest_of_scores, rounded
from ..readers.documents import short_values
from ..validation import as_number
from .reading import Reading, read_reading
from .serialization import check_keys

ScoresByValue = dict[str, dict[str, list[float]]]
"""The sorted scores of docs for each key and value in `doc.user_data`:
{"source": {"news": [0.1, 0.4, ...], ...}, ...}."""

CalibratedSettings = dict[str, Any]
"""The settings of a component that a guarantee or the shift test depends on, in JSON format."""

FOUND = ("exact", "covered")
"""When an entity counts as found. "exact": its span is in the set. "covered": all of its tokens are
in spans of the set."""

UNITS = ("doc", "any")
"""The miss rate that a guarantee limits. "doc": the proportion of missed entities per doc, averaged
over docs. "any": the proportion of docs with at least one missed entity."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a guarantee. See `guarantee` for details.

    miss (float | None): The maximum proportion of entities that are missing from the set. If None,
        `false_alarm` is set.
    false_alarm (float | None): The maximum proportion of wrong spans in the set. If None, `miss` is
        set.
    confidence (float | None): The probability that the guarantee holds. If None, it holds on
        average over calibration docs.
    found (str): When an entity counts as found: one of `FOUND`.
    by (str): The rate to limit: one of `UNITS`. Always "doc" for false alarms.
    per_label (bool): Whether there is a separate guarantee for each label.
    by_group (str | None): A key in `doc.user_data` that divides docs into groups with separate
        guarantees. If None, there is one guarantee for all docs.
    RAISES (ValueError): If a term is out of range, or if `miss` and `false_alarm` are both set or
        both None.
    """

    miss: float | None = None
    false_alarm: float | None = None
    confidence: float | None = None
    found: str = "exact"
    by: str = "doc"
    per_label: bool = False
    by_group: str | None = None

    def __post_init__(self) -> None:
        """Check the terms. Raise a ValueError if a term is invalid."""
        if self.miss is None and self.false_alarm is None:
            raise ValueError("expected miss or false_alarm, got none")
        if self.miss is not None and self.false_alarm is not None:
            raise ValueError("expected miss or false_alarm, got miss and false_alarm")
        _check_share("miss", self.miss)
        _check_share("false_alarm", self.false_alarm)
        _check_share("confidence", self.confidence)
        _check_choice("found", self.found, FOUND)
        if self.limits_misses:
            _check_choice("by", self.by, UNITS)
        else:
            _check_choice("by", self.by, ["doc"])  # false alarms are always counted by doc

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "Terms":
        """Create terms from the arguments of `guarantee`. Raise a ValueError if a term is
        invalid."""
        return cls(**{name: arguments[name] for name in Terms.__dataclass_fields__})

    @property
    def limits_misses(self) -> bool:
        """Whether the guarantee limits misses. Otherwise, it limits false alarms."""
        return self.miss is not None

    @property
    def limit(self) -> float:
        """The maximum proportion of misses or false alarms."""
        if self.miss is not None:
            return self.miss
        assert self.false_alarm is not None  # exactly one of the two is set
        return self.false_alarm


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of a guaranteed set. A span is in the set if its score is at least the
    threshold.

    threshold (float): The default threshold.
    labels (dict[str, float]): The thresholds of specific labels, which override the default.
    levels (Sequence[Sequence[float]]): Pairs of a limit and the corresponding threshold, for the
        limit of the guarantee and other limits. They are shown by `report`.
    """

    threshold: float
    labels: dict[str, float]
    levels: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, kw_only=True)
class Promise(Terms):
    """A guarantee for a component's sets of spans, including its terms, the thresholds that satisfy
    them, and information about the calibration docs.

    groups (dict[str, Thresholds]): The thresholds for each group of docs with a guarantee. Without
        `by_group`, all docs are in the group "".
    source (str): The name of the calibration docs.
    docs (int): The number of calibration docs.
    entities (int): The number of entities in the calibration docs.
    not_counted (dict[str, int]): The number of docs that were excluded, for each reason.
    drawings (int | None): The number of draws, if the docs were sampled with known probabilities.
    reading (Reading | None): How the calibration docs were read, if known.
    holds_for (CalibratedSettings | None): The settings that the guarantee is valid for. None if it
        hasn't been stored in a component yet.
    """

    groups: dict[str, Thresholds]
    source: str
    docs: int
    entities: int
    not_counted: dict[str, int]
    drawings: int | None = None
    reading: Reading | None = None
    holds_for: CalibratedSettings | None = None

    @classmethod
    def from_dict(cls, saved: Any) -> "Promise":
        """Create a guarantee from the output of `to_dict`.

        saved (Any): The guarantee, as read from a file.
        RETURNS (Promise): The guarantee.
        RAISES (ValueError): If a key is missing or unknown, or a term is out of range.
        """
        optional = ("drawings", "reading", "holds_for")  # not saved if None
        needed = [name for name in cls.__dataclass_fields__ if name not in optional]
        check_keys(saved, needed, where="guarantee", optional=optional)
        groups: dict[str, Thresholds] = {}
        for group, thresholds in saved["groups"].items():
            where = f"guarantee.groups.{group}"
            check_keys(thresholds, ["threshold", "labels"], where, optional=["levels"])
            groups[group] = Thresholds(**thresholds)
        reading = read_reading(saved.get("reading"))
        return cls(**{**saved, "groups": groups, "reading": reading})

    def to_dict(self) -> dict[str, Any]:
        """Convert the guarantee to a JSON-serializable dictionary. The fields `drawings`, `reading`
        and `holds_for` are omitted if they are None."""
        return _without_none(asdict(self), ("drawings", "reading", "holds_for"))


@dataclass(frozen=True, kw_only=True)
class CalibrationScores:
    """The scores of calibration docs. The shift test compares them with the scores of other docs.

    scores (list[float]): The sorted scores of the docs (see `doc_entropy.measure_docs`). Docs with
        only preset tokens have no score.
    digest (str): The digest of the unrounded scores in document order. It identifies the docs: see
        `digest_of_scores`.
    keys (ScoresByValue): The scores grouped by the values in `doc.user_data`. Values with fewer
        than `ENOUGH` docs are omitted.
    source (str): The name of the calibration docs.
    approximate (bool): Whether the temperature was fitted on the same docs.
    reading (Reading | None): How the docs were read, if known.
    holds_for (CalibratedSettings | None): The settings that the scores are valid for.
    """

    scores: list[float]
    digest: str
    keys: ScoresByValue
    source: str
    approximate: bool
    reading: Reading | None = None
    holds_for: CalibratedSettings | None = None

    @classmethod
    def from_docs(
        cls,
        docs: Sequence[Doc],
        scores: Floats1d,
        source: str,
        *,
        approximate: bool,
        reading: Reading | None,
        holds_for: CalibratedSettings,
    ) -> "CalibrationScores":
        """Collect the scores of calibration docs, and group them by the values in `user_data`. See
        the class for the other parameters.

        docs (Sequence[Doc]): The calibration docs.
        scores (Floats1d): The score of each doc. Docs whose score is NaN are skipped. Shape: (B,)
        RETURNS (CalibrationScores): The collected scores.
        """
        # The shift test compares rounded scores.
        scored_docs: list[tuple[float, Doc]] = []
        for score, doc in zip(rounded(scores).tolist(), docs):
            if not isnan(score):
                scored_docs.append((score, doc))
        scored_docs.sort(key=itemgetter(0))  # only by score, because docs can't be compared
        return cls(
            scores=[score for score, _ in scored_docs],
            digest=digest_of_scores(scores),  # not rounded, because it identifies the docs
            keys=_scores_by_value(scored_docs),
            source=source,
            approximate=approximate,
            reading=reading,
            holds_for=holds_for,
        )

    @classmethod
    def from_dict(cls, saved: Any) -> "CalibrationScores":
        """Create scores from the output of `to_dict`.

        saved (Any): The scores, as read from a file.
        RETURNS (CalibrationScores): The scores.
        RAISES (ValueError): If a key is missing or unknown.
        """
        optional = ("reading", "holds_for")
        needed = [name for name in cls.__dataclass_fields__ if name not in optional]
        check_keys(saved, needed, where="shift", optional=optional)
        return cls(**{**saved, "reading": read_reading(saved.get("reading"))})

    def to_dict(self) -> dict[str, Any]:
        """Convert the scores to a JSON-serializable dictionary. The fields `reading` and
        `holds_for` are omitted if they are None."""
        return _without_none(asdict(self), ("reading", "holds_for"))

    def pool(self, key: str | None = None, value: str = "") -> dict[str, Any]:
        """Return the scores of all docs, or of the docs with a given value, in the format expected
        by `find_shift`.

        key (str | None): A key in `keys`. If None, the scores of all docs are returned.
        value (str): A value under this key.
        RETURNS (dict[str, Any]): A dictionary with the keys "scores", "digest" and "approximate".
        """
        scores = self.scores
        if key is not None:
            scores = self.keys[key][value]
        # The digest identifies the complete set of calibration docs, even for a single value.
        return {"scores": scores, "digest": self.digest, "approximate": self.approximate}


def _scores_by_value(
    scored_docs: Sequence[tuple[float, Doc]],
) -> ScoresByValue:
    """Group the scores of docs by the values in their `user_data`, such as their source. The docs
    are sorted by score. Long texts and other values that don't define groups (see `short_values`)
    are omitted, as are values with fewer than `ENOUGH` docs, which can't be tested."""
    # Docs with the same value under the same key form a group.
    scores_of_group: dict[tuple[str, str], list[float]] = {}
    for score, doc in scored_docs:
        for key, value in short_values(doc.user_data).items():
            group = (key, str(value))
            scores_of_group.setdefault(group, []).append(score)

    scores_by_value: ScoresByValue = {}
    for (key, value), group_scores in scores_of_group.items():
        if len(group_scores) >= ENOUGH:
            scores_by_value.setdefault(key, {})[value] = group_scores
    return scores_by_value


def find_changed_setting(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return the name of the first setting, in the order of `now`, whose value has changed. Return
    None if no value has changed. Missing settings are treated as None."""
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            return name
    return None


def _check_share(name: str, share: float | None) -> None:
    """Check that a term is between 0 and 1, or None."""
    if share is not None and not 0 < as_number(share) < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1, got {share!r}")


def _check_choice(name: str, choice: str, choices: Sequence[str]) -> None:
    """Check that a term has one of the given values."""
    if choice not in choices:
        raise ValueError(f"{name}: expected {' or '.join(choices)}, got {choice!r}")


def _without_none(values: dict[str, Any], optional: Collection[str]) -> dict[str, Any]:
    """Copy a dictionary without the optional keys whose value is None."""
    present_values = dict(values)
    for name in optional:
        if present_values[name] is None:
            del present_values[name]
    return present_values
