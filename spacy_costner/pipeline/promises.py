"""What calibration docs say of a component: what is promised of its sets of spans, and the scores
that the test for a shift compares those of other docs with.

Both hold for the settings that the component had then. They are saved in its `cfg`, under
"guarantee" and "shift".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from operator import itemgetter
from typing import Any

from spacy.tokens import Doc
from thinc.types import Floats1d

from ..metrics.shift import ENOUGH, digest_of, rounded
from ..readers.documents import short_values
from ..validation import number
from .reading import Reading, read_reading
from .serialization import check_keys

Settings = dict[str, Any]
"""The settings of a component that a promise, or the test for a shift, depends on, as JSON."""

FOUND = ("exact", "covered")
"""When an entity is found: its span is in the set, or each of its tokens is in a span there."""

UNITS = ("doc", "any")
"""What a limit is a share of: the entities of each doc, or the docs in which any is missed."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a promise: the arguments of `guarantee`, where they are explained.

    miss (float | None): The highest share of entities that are not in the set.
    false_alarm (float | None): In place of it, the highest share of the set that is wrong.
    confidence (float | None): The probability that the promise holds. None: it is about the mean.
    found (str): One of `FOUND`.
    by (str): One of `UNITS`; "doc" for false alarms.
    per_label (bool): Whether there is a promise for each label.
    by_group (str | None): The key of `doc.user_data` for whose values there are promises.
    RAISES (ValueError): If a term is out of its range.
    """

    miss: float | None = None
    false_alarm: float | None = None
    confidence: float | None = None
    found: str = "exact"
    by: str = "doc"
    per_label: bool = False
    by_group: str | None = None

    def __post_init__(self) -> None:
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
            _check_choice("by", self.by, ["doc"])  # how false alarms are always counted

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> "Terms":
        """The terms among all arguments of `guarantee`."""
        return cls(**{name: arguments[name] for name in Terms.__dataclass_fields__})

    @property
    def limits_misses(self) -> bool:
        """Whether missed entities are limited; false alarms otherwise."""
        return self.miss is not None

    @property
    def limit(self) -> float:
        """The highest share of what is limited."""
        if self.miss is not None:
            return self.miss
        assert self.false_alarm is not None  # one of the two is given
        return self.false_alarm


@dataclass(frozen=True)
class Thresholds:
    """The least scores of the spans in the set of a group of docs.

    threshold (float): The least score of a span of any label.
    labels (dict[str, float]): That of each label which has its own.
    levels (list[list[float]]): Other limits and the thresholds that keep them: see `report`.
    """

    threshold: float
    labels: dict[str, float]
    levels: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, kw_only=True)
class Promise(Terms):
    """What is promised of the set of spans of a component, with its terms.

    groups (dict[str, Thresholds]): The thresholds of each group of docs, "" for all docs.
    source (str): The name of the calibration docs.
    docs (int): Their number.
    entities (int): The number of their entities.
    not_counted (dict[str, int]): The numbers of other docs, by the reason why they don't count.
    drawings (int | None): If the docs were drawn from texts with known probabilities: how often.
    reading (Reading | None): How the calibration docs were read, if that is known.
    holds_for (Settings | None): The settings that the promise depends on, once a component has it.
    """

    groups: dict[str, Thresholds]
    source: str
    docs: int
    entities: int
    not_counted: dict[str, int]
    drawings: int | None = None
    reading: Reading | None = None
    holds_for: Settings | None = None

    @classmethod
    def from_dict(cls, saved: Any) -> "Promise":
        """Read a promise that `to_dict` has made.

        saved (Any): The promise, as it was read from a file.
        RETURNS (Promise): The promise.
        RAISES (ValueError): If a key is missing or unknown, or a term is out of its range.
        """
        optional = ("drawings", "reading", "holds_for")  # saved only if they are known
        needed = [name for name in cls.__dataclass_fields__ if name not in optional]
        check_keys(saved, needed, "guarantee", optional=optional)
        groups: dict[str, Thresholds] = {}
        for group, thresholds in saved["groups"].items():
            where = f"guarantee.groups.{group}"
            check_keys(thresholds, ["threshold", "labels"], where, optional=["levels"])
            groups[group] = Thresholds(**thresholds)
        reading = read_reading(saved.get("reading"))
        return cls(**{**saved, "groups": groups, "reading": reading})

    def to_dict(self) -> dict[str, Any]:
        """Returns the promise as JSON, without drawings, a reading or settings that it doesn't
        have."""
        return _without_none(asdict(self), ("drawings", "reading", "holds_for"))


@dataclass(frozen=True, kw_only=True)
class CalibrationScores:
    """The scores of calibration docs, which the test for a shift compares those of others with.

    scores (list[float]): The score of each doc with free tokens, ascending: see `measure`.
    digest (str | None): The digest of all scores in the order of the docs. None: the scores were
        saved before it was kept.
    keys (dict[str, dict[str, list[float]]]): For each key of `doc.user_data`, the scores of the
        docs with each of its values that enough docs have.
    source (str): The name of the calibration docs.
    approximate (bool): Whether the temperature was fitted on the same docs.
    reading (Reading | None): How the docs were read, if that is known.
    holds_for (Settings | None): The settings that the scores depend on.
    """

    scores: list[float]
    digest: str | None = None
    keys: dict[str, dict[str, list[float]]]
    source: str
    approximate: bool
    reading: Reading | None = None
    holds_for: Settings | None = None

    @classmethod
    def from_docs(
        cls,
        docs: Sequence[Doc],
        scores: Floats1d,
        source: str,
        *,
        approximate: bool,
        reading: Reading | None,
        holds_for: Settings,
    ) -> "CalibrationScores":
        """Collect the scores of calibration docs, also for each value of their `user_data` that
        enough docs have. Docs without a score, NaN, are left out.

        docs (Sequence[Doc]): The docs.
        scores (Floats1d): Their scores. Shape: (B,)
        RETURNS (CalibrationScores): The scores. The other arguments are its fields.
        """
        scored_docs: list[tuple[float, Doc]] = []
        for score, doc in zip(rounded(scores).tolist(), docs):
            if not isnan(score):
                scored_docs.append((score, doc))
        scored_docs.sort(key=itemgetter(0))  # by score alone, as docs can't be compared

        # For each key of `user_data` and each of its values the scores of its docs. After that only
        # the values that enough docs have are left.
        scores_of_keys: dict[str, dict[str, list[float]]] = {}
        for score, doc in scored_docs:
            for key, value in short_values(doc.user_data).items():
                scores_of_values = scores_of_keys.setdefault(key, {})
                scores_of_values.setdefault(str(value), []).append(score)
        testable_keys: dict[str, dict[str, list[float]]] = {}
        for key, scores_of_values in scores_of_keys.items():
            for value, scores_of_value in scores_of_values.items():
                if len(scores_of_value) >= ENOUGH:
                    testable_keys.setdefault(key, {})[value] = scores_of_value

        return cls(
            scores=[score for score, _ in scored_docs],
            digest=digest_of(scores),
            keys=testable_keys,
            source=source,
            approximate=approximate,
            reading=reading,
            holds_for=holds_for,
        )

    @classmethod
    def from_dict(cls, saved: Any) -> "CalibrationScores":
        """Read scores that `to_dict` has made.

        saved (Any): The scores, as they were read from a file.
        RETURNS (CalibrationScores): The scores.
        RAISES (ValueError): If a key is missing or unknown.
        """
        optional = ("digest", "reading", "holds_for")
        needed = [name for name in cls.__dataclass_fields__ if name not in optional]
        check_keys(saved, needed, "shift", optional=optional)
        return cls(**{**saved, "reading": read_reading(saved.get("reading"))})

    def to_dict(self) -> dict[str, Any]:
        """Returns the scores as JSON, without what they don't have."""
        return _without_none(asdict(self), ("digest", "reading", "holds_for"))

    def pool(self, key: str | None = None, value: str = "") -> dict[str, Any]:
        """The scores of all docs, or of those with a value of a key, as `find_shift` takes them.

        key (str | None): A key of `keys`. None: all docs.
        value (str): A value that the key has there.
        RETURNS (dict[str, Any]): The "scores", their "digest", if it is known, and whether they are
            "approximate".
        """
        scores = self.scores
        if key is not None:
            scores = self.keys[key][value]
        pool = {"scores": scores, "digest": self.digest, "approximate": self.approximate}
        return _without_none(pool, ("digest",))


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The name of the first setting that has another value now, or that only one of the two has."""
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            return name
    return None


def _check_share(name: str, share: float | None) -> None:
    """Check that a term, if it is given, is between 0 and 1."""
    if share is not None and not 0 < number(share) < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1, got {share!r}")


def _check_choice(name: str, choice: str, choices: Sequence[str]) -> None:
    """Check that a term is one of its possible values."""
    if choice not in choices:
        raise ValueError(f"{name}: expected {' or '.join(choices)}, got {choice!r}")


def _without_none(values: dict[str, Any], optional: Collection[str]) -> dict[str, Any]:
    """A dictionary without those of the optional keys whose value is None."""
    present = dict(values)
    for name in optional:
        if present[name] is None:
            del present[name]
    return present
