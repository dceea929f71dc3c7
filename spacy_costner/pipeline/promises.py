"""Guarantees, and the scores of calibration docs. Both are saved with a component.

A *guarantee* says, for example, that the sets of spans that the component writes miss at most 5 %
of the entities. Its class is called `Promise`, as the class `Guarantee` is the result of the
function `workflows.guarantee`. The test for a shift compares the *scores* of calibration docs with
the scores of new docs. Both hold only for the settings that the component had at calibration. They
are saved in its `cfg`, under "guarantee" and "shift".
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
"""The scores of docs, ascending, by key of `doc.user_data` and by value under this key:
{"source": {"news": [0.1, 0.4, ...], ...}, ...}."""

CalibratedSettings = dict[str, Any]
"""The settings of a component on which a guarantee, or the test for a shift, depends, as JSON."""

FOUND = ("exact", "covered")
"""When an entity counts as found. "exact": its span is in the set. "covered": each of its tokens is
in a span of the set."""

UNITS = ("doc", "any")
"""The rate that is limited, if misses are. "doc": the mean share of the entities of a doc that are
missed. "any": the share of docs in which any entity is missed."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a guarantee. They are arguments of `guarantee`, which explains them.

    miss (float | None): The maximum share of entities that may be missing in the set. None: false
        alarms are limited.
    false_alarm (float | None): The maximum share of the set that may be wrong. None: misses are
        limited.
    confidence (float | None): The probability that the guarantee holds. None: it holds on
        average over calibration docs.
    found (str): When an entity counts as found: one of `FOUND`.
    by (str): What is limited: one of `UNITS`; "doc" for false alarms.
    per_label (bool): Whether there is a guarantee for each label.
    by_group (str | None): A key of `doc.user_data`. There is a guarantee for each of its values.
        None: there is one guarantee for all docs.
    RAISES (ValueError): If a term is out of its range, or not exactly one of `miss` and
        `false_alarm` is given.
    """

    miss: float | None = None
    false_alarm: float | None = None
    confidence: float | None = None
    found: str = "exact"
    by: str = "doc"
    per_label: bool = False
    by_group: str | None = None

    def __post_init__(self) -> None:
        """Check the terms. Errors: see the class."""
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
        """Select the terms from the arguments of `guarantee`. Errors: see the class."""
        return cls(**{name: arguments[name] for name in Terms.__dataclass_fields__})

    @property
    def limits_misses(self) -> bool:
        """Whether the guarantee limits misses. Otherwise it limits false alarms."""
        return self.miss is not None

    @property
    def limit(self) -> float:
        """The maximum share of misses or false alarms."""
        if self.miss is not None:
            return self.miss
        assert self.false_alarm is not None  # one of the two is given
        return self.false_alarm


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of a guaranteed set: a span is in the set if its score is at least the
    threshold.

    threshold (float): The threshold of labels that don't have their own.
    labels (dict[str, float]): The thresholds of labels that have their own.
    levels (Sequence[Sequence[float]]): Pairs of a limit and the threshold that keeps it, for the
        limit of the guarantee and others. `report` shows them.
    """

    threshold: float
    labels: dict[str, float]
    levels: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, kw_only=True)
class Promise(Terms):
    """A guarantee about the sets of spans of a component: its terms, the thresholds that satisfy
    them, and the calibration docs.

    groups (dict[str, Thresholds]): The thresholds for each group of docs with a guarantee. Without
        `by_group`, the group "" has all docs.
    source (str): The name of the calibration docs.
    docs (int): The number of calibration docs.
    entities (int): The number of their entities.
    not_counted (dict[str, int]): The numbers of docs that were left out, keyed by the reason.
    drawings (int | None): If the docs were drawn from texts with known probabilities, the number of
        drawings.
    reading (Reading | None): How the calibration docs were read, if that is known.
    holds_for (CalibratedSettings | None): The settings for which the guarantee holds. None: no
        component has the guarantee yet.
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
        """Read a guarantee that `to_dict` has made.

        saved (Any): The guarantee, as it was read from a file.
        RETURNS (Promise): The checked guarantee.
        RAISES (ValueError): If a key is missing or unknown, or a term is out of its range.
        """
        optional = ("drawings", "reading", "holds_for")  # saved only if they are known
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
        """Return the guarantee as JSON. The fields `drawings`, `reading` and `holds_for` are left
        out if they are None."""
        return _without_none(asdict(self), ("drawings", "reading", "holds_for"))


@dataclass(frozen=True, kw_only=True)
class CalibrationScores:
    """The scores of calibration docs, with which the test for a shift compares the scores of other
    docs.

    scores (list[float]): The scores of the docs, ascending: see `doc_entropy.measure_docs`. Docs in
        which all tokens are preset have no score.
    digest (str): The digest of all scores, not rounded, in the order of the docs. It identifies the
        docs: see `digest_of_scores`.
    keys (ScoresByValue): The scores of the docs with the same value of a key of `doc.user_data`.
        Values with fewer than `ENOUGH` docs are left out.
    source (str): The name of the calibration docs.
    approximate (bool): Whether the temperature was fitted on the same docs.
    reading (Reading | None): How the docs were read, if that is known.
    holds_for (CalibratedSettings | None): The settings for which the scores hold.
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
        """Collect the scores of all calibration docs, and of the docs with each value in
        `user_data`. For the other parameters see the class.

        docs (Sequence[Doc]): The calibration docs.
        scores (Floats1d): The score of each doc. A doc with NaN is left out. Shape: (B,)
        RETURNS (CalibrationScores): The scores, ready to be saved.
        """
        # Scores are rounded, as the test for a shift compares rounded scores.
        scored_docs: list[tuple[float, Doc]] = []
        for score, doc in zip(rounded(scores).tolist(), docs):
            if not isnan(score):
                scored_docs.append((score, doc))
        scored_docs.sort(key=itemgetter(0))  # by score alone, as docs can't be compared
        return cls(
            scores=[score for score, _ in scored_docs],
            digest=digest_of_scores(scores),  # not rounded, as it identifies the docs
            keys=_scores_by_value(scored_docs),
            source=source,
            approximate=approximate,
            reading=reading,
            holds_for=holds_for,
        )

    @classmethod
    def from_dict(cls, saved: Any) -> "CalibrationScores":
        """Read scores that `to_dict` has made.

        saved (Any): The scores, as they were read from a file.
        RETURNS (CalibrationScores): The checked scores.
        RAISES (ValueError): If a key is missing or unknown.
        """
        optional = ("reading", "holds_for")
        needed = [name for name in cls.__dataclass_fields__ if name not in optional]
        check_keys(saved, needed, where="shift", optional=optional)
        return cls(**{**saved, "reading": read_reading(saved.get("reading"))})

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON. The fields `reading` and `holds_for` are left out if they are
        None."""
        return _without_none(asdict(self), ("reading", "holds_for"))

    def pool(self, key: str | None = None, value: str = "") -> dict[str, Any]:
        """Return the argument `calibration` of `find_shift`: the scores of all docs, or of the docs
        with a value of a key.

        key (str | None): A key of `keys`. None: the scores of all docs.
        value (str): A value of the key in `keys`.
        RETURNS (dict[str, Any]): The "scores", the "digest", and whether the scores are
            "approximate".
        """
        scores = self.scores
        if key is not None:
            scores = self.keys[key][value]
        # The digest identifies the calibration docs. It is the same for the scores of each value.
        return {"scores": scores, "digest": self.digest, "approximate": self.approximate}


def _scores_by_value(
    scored_docs: Sequence[tuple[float, Doc]],
) -> ScoresByValue:
    """Group the scores of docs by the values that the docs have in `user_data`, such as a source.
    The docs are ordered by their scores. Long texts and other values that don't make groups are
    left out (see `short_values`), and so are values with fewer than `ENOUGH` docs, which can't be
    tested."""
    # Docs with the same value under the same key are a group.
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
    """Compare two dictionaries of settings, in which a missing setting counts as None. Returns the
    name of the first setting, in the order of `now`, that has another value. None: all values are
    the same."""
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            return name
    return None


def _check_share(name: str, share: float | None) -> None:
    """Check that a term is between 0 and 1, or None."""
    if share is not None and not 0 < as_number(share) < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1, got {share!r}")


def _check_choice(name: str, choice: str, choices: Sequence[str]) -> None:
    """Check that a term is one of its possible values."""
    if choice not in choices:
        raise ValueError(f"{name}: expected {' or '.join(choices)}, got {choice!r}")


def _without_none(values: dict[str, Any], optional: Collection[str]) -> dict[str, Any]:
    """Copy a dictionary. Optional keys whose value is None are left out."""
    present_values = dict(values)
    for name in optional:
        if present_values[name] is None:
            del present_values[name]
    return present_values
