"""What calibration docs say of a component, and whether it still holds.

A promise and the scores of calibration docs hold for the weights and for some settings of `cfg`,
which anybody may edit. So before each prediction `CalibrationState.check` looks for edits.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

import srsly
from spacy.tokens import Doc

from ..metrics.shift import Counts, Shift, find_shift, restore
from .annotations import Confidence, add_measures
from .promises import CalibrationScores, Promise, Settings, first_difference
from .reading import Reading, read_reading
from .serialization import Cfg

N_COMPARED = 100
"""Calls of `predict` whose docs are compared with those that the component was measured on."""

SHIFT_SETTINGS = ("labels", "scheme", "outside", "temperature")
"""The keys of `cfg` that the test for a shift depends on. It depends on the weights, too."""

PROMISE_SETTINGS = (*SHIFT_SETTINGS, "decoding")
"""The keys of `cfg` that a guarantee depends on, with the weights."""


@dataclass(eq=False)
class CalibrationState:
    """What calibration docs say of a component. It gives no warnings and knows no pipeline: that is
    for the component.

    promise (Promise | None): What is promised of the component's sets. None: nothing.
    scores (CalibrationScores | None): The scores that the test for a shift compares others with.
    reading (Reading | None): How the docs were read that the component was measured on.
    """

    promise: Promise | None = None
    scores: CalibrationScores | None = None
    reading: Reading | None = None
    _n_compared: int = field(default=0, init=False)
    # The settings at the last check. None: there was none since the state changed.
    _checked_settings: Cfg | None = field(default=None, init=False)

    def set_promise(self, promise: Promise | None) -> None:
        """Replace the promise, which the next check looks at."""
        self.promise = promise
        self._checked_settings = None

    def set_scores(self, scores: CalibrationScores | None) -> None:
        """Replace the scores of calibration docs, which the next check looks at."""
        self.scores = scores
        self._checked_settings = None

    def check(self, cfg: Cfg, own_labels: Sequence[str] | None) -> str | None:
        """Look whether settings were edited since the last check. Scores that don't hold for the
        current ones are dropped here.

        cfg (Cfg): The settings of the component.
        own_labels (Sequence[str] | None): The labels that it writes. None: all.
        RETURNS (str | None): The edited setting after which the promise doesn't hold, if any.
        """
        # Comparing with what a promise holds for takes long, and this is asked before each
        # prediction: only settings that differ from those of the last check are looked at.
        settings = {name: cfg[name] for name in (*PROMISE_SETTINGS, "confidence")}
        if settings == self._checked_settings:
            return None
        self._checked_settings = deepcopy(settings)
        shift_settings = current_settings(cfg, own_labels, SHIFT_SETTINGS)
        if self.scores is not None and self.scores.holds_for != shift_settings:
            self.scores = None
        return self.changed_setting(cfg, own_labels)

    def changed_setting(self, cfg: Cfg, own_labels: Sequence[str] | None) -> str | None:
        """The first setting that has changed since the promise was made, and that it depends on.
        None: nothing has changed, or there is no promise."""
        if self.promise is None:
            return None
        settings = current_settings(cfg, own_labels, PROMISE_SETTINGS)
        changed = first_difference(self.promise.holds_for or {}, settings)
        if changed is None and cfg["confidence"] is None:
            return "confidence"  # without it no set is written
        return changed

    def set_reading(self, reading: Reading) -> str | None:
        """Keep how the docs were read that the component was measured on. Returns why that doesn't
        go with how earlier ones were read, if it doesn't."""
        earlier = self.reading
        self.reading = reading
        self._n_compared = 0
        if earlier is None or earlier.file_tokens == reading.file_tokens:
            return None
        return (
            f"docs were read with {reading.as_text()}, and for an earlier `calibrate`, `tune` or "
            f"`guarantee` with {earlier.as_text()}: run all of them either with --file-tokens, or "
            "without"
        )

    def reading_to_compare(self) -> Reading | None:
        """The reading to compare the docs of this call of `predict` with. None after the first
        calls, and after `stop_comparing`."""
        if self.reading is None or self._n_compared >= N_COMPARED:
            return None
        self._n_compared += 1
        return self.reading

    def stop_comparing(self) -> None:
        """Compare no more docs with the reading, as they were found to differ."""
        self._n_compared = N_COMPARED

    def shift(
        self,
        docs: Iterable[Doc],
        confidence: Confidence | None,
        *,
        component: str,
        own_labels: Sequence[str],
        earlier: Shift | Mapping[str, Any] | None,
        seed: int,
    ) -> Shift:
        """The test of `CostSensitiveNER.shift`, with its arguments and the settings that it needs:
        where the component, by its name, writes probabilities, and of which labels."""
        if self.scores is None or confidence is None:
            raise ValueError(
                f"{component}: shift: expected scores of calibration docs, got none: run `python "
                "-m spacy costner guarantee`, or `calibrate`"
            )
        pool = self.scores.pool()
        if earlier is not None and not isinstance(earlier, Shift):
            earlier = restore(earlier, pool, seed)

        # The expected numbers of entities by label, to which those of each doc are added
        counts: Counts = {}
        if earlier is not None:
            counts = {**earlier.counts}
        scores: list[float] = []
        for doc in docs:
            scores += add_measures(doc, confidence.spans_key, component, own_labels, counts)
        return find_shift(pool, scores, counts, earlier=earlier, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON: the keys of a saved `cfg` that hold it."""
        saved: dict[str, Any] = {"guarantee": None, "shift": None, "reading": None}
        if self.promise is not None:
            saved["guarantee"] = self.promise.to_dict()
        if self.scores is not None:
            saved["shift"] = self.scores.to_dict()
        if self.reading is not None:
            saved["reading"] = asdict(self.reading)
        return saved

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "CalibrationState":
        """Read a state from a saved `cfg`: see `to_dict`.

        RAISES (ValueError): If a key is missing or unknown, or a term is out of its range.
        """
        state = cls(reading=read_reading(saved["reading"]))
        if saved["guarantee"] is not None:
            state.promise = Promise.from_dict(saved["guarantee"])
        if saved["shift"] is not None:
            state.scores = CalibrationScores.from_dict(saved["shift"])
        return state


def current_settings(cfg: Cfg, own_labels: Sequence[str] | None, names: Iterable[str]) -> Settings:
    """The current settings with these names, as they are saved, and the labels that the component
    writes, if these are not all."""
    settings: Settings = {name: cfg[name] for name in names}
    if own_labels is not None:
        settings["own_labels"] = own_labels
    # As JSON reads them, with lists for tuples, to be equal to those that were loaded.
    return srsly.json_loads(srsly.json_dumps(settings))
