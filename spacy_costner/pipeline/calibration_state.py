"""The results of calibration docs that a component keeps, and whether they still hold.

A *guarantee* says, for example, that a set of spans misses at most 5 % of the entities. The test
for a shift compares the *scores* of calibration docs with the scores of other docs. Both hold for
the weights that the model had, and for some settings in `cfg`, which anybody may edit. So before
each prediction, `CalibrationState.check` looks for edits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import srsly
from spacy.tokens import Doc
from thinc.types import Floats1d

from ..metrics.shift import EntityCounts, Shift, find_shift, restore
from .confidence import Confidence
from .doc_entropy import add_measures
from .promises import CalibratedSettings, CalibrationScores, Promise, find_changed_setting
from .reading import Reading, find_difference, read_reading
from .serialization import Cfg

N_COMPARED = 100
"""The number of calls of `predict` in which a doc is checked: was it read in the same way as the
docs on which the component was measured?"""

SHIFT_SETTINGS = ("labels", "scheme", "outside", "temperature")
"""The keys of `cfg` on which the test for a shift depends. It depends on the weights and on the own
labels, too."""

PROMISE_SETTINGS = (*SHIFT_SETTINGS, "decoding")
"""The keys of `cfg` on which a guarantee depends. It depends on the weights and on the own labels,
too."""


@dataclass(eq=False)
class CalibrationState:
    """The results of calibration docs that a component keeps. The component gives the warnings.

    promise (Promise | None): What is guaranteed about the component's sets of spans. None: nothing.
    scores (CalibrationScores | None): The scores of calibration docs. None: no calibration docs.
    reading (Reading | None): How the docs were read on which the component was measured. None:
        unknown.
    """

    promise: Promise | None = None
    scores: CalibrationScores | None = None
    reading: Reading | None = None
    _n_compared: int = field(default=0, init=False)
    # The settings and the own labels at the last check. None: the state has changed since then.
    _checked_settings: Cfg | None = field(default=None, init=False)

    def set_promise(self, promise: Promise | None) -> None:
        """Replace the guarantee. The next `check` finds out whether it holds."""
        self.promise = promise
        self._checked_settings = None

    def keep_promise(self, promise: Promise, cfg: Cfg, own_labels: Sequence[str] | None) -> Promise:
        """Store a guarantee, which holds for the current settings of the component, and for docs
        that are read as `reading` says.

        promise (Promise): The guarantee, as `guarantee` makes it.
        cfg (Cfg): The settings of the component.
        own_labels (Sequence[str] | None): The labels that it writes. None: all its labels.
        RETURNS (Promise): The guarantee without the settings, for people to read. They find the
            settings in the config and in `cfg`.
        """
        promise = replace(promise, reading=self.reading, holds_for=None)
        holds_for = current_settings(cfg, own_labels, PROMISE_SETTINGS)
        self.set_promise(replace(promise, holds_for=holds_for))
        return promise

    def drop(self, *, keep_scores: bool) -> bool:
        """Drop the guarantee and, unless they are kept, the scores of calibration docs.

        RETURNS (bool): Whether there was a guarantee.
        """
        if not keep_scores:
            self.scores = None
        had_promise = self.promise is not None
        self.promise = None
        return had_promise

    def keep_scores(
        self,
        docs: Sequence[Doc],
        scores: Floats1d,
        source: str,
        *,
        approximate: bool,
        cfg: Cfg,
        own_labels: Sequence[str] | None,
    ) -> None:
        """Keep the scores of calibration docs, which hold for the current settings of the
        component. For the first four parameters see `CalibratedPipe.set_shift`.

        cfg (Cfg): The settings of the component.
        own_labels (Sequence[str] | None): The labels that it writes. None: all its labels.
        """
        calibration_scores = CalibrationScores.from_docs(
            docs,
            scores,
            source,
            approximate=approximate,
            reading=self.reading,
            holds_for=current_settings(cfg, own_labels, SHIFT_SETTINGS),
        )
        self.set_scores(calibration_scores)

    def set_scores(self, scores: CalibrationScores | None) -> None:
        """Replace the scores of calibration docs. The next `check` finds out whether they hold."""
        self.scores = scores
        self._checked_settings = None

    def check(self, cfg: Cfg, own_labels: Sequence[str] | None) -> str | None:
        """Check whether settings were edited after the last check. If the scores of calibration
        docs no longer hold, they are dropped.

        cfg (Cfg): The settings of the component.
        own_labels (Sequence[str] | None): The labels that it writes. None: all its labels.
        RETURNS (str | None): The name of an edited setting on which the guarantee depends. None:
            the guarantee holds, there is no guarantee, or nothing was edited after the last check,
            which may have returned the name of a setting.
        """
        # This is done before each prediction, and comparing with the settings of a guarantee takes
        # long. So the settings are first compared with the settings at the last check. They include
        # the confidence, as a guarantee doesn't hold without one: see `changed_setting`.
        settings = {name: cfg[name] for name in (*PROMISE_SETTINGS, "confidence")}
        settings["own_labels"] = own_labels
        if settings == self._checked_settings:
            return None
        self._checked_settings = deepcopy(settings)  # as `cfg` may be edited in place
        shift_settings = current_settings(cfg, own_labels, SHIFT_SETTINGS)
        if self.scores is not None and self.scores.holds_for != shift_settings:
            self.scores = None
        return self.changed_setting(cfg, own_labels)

    def changed_setting(self, cfg: Cfg, own_labels: Sequence[str] | None) -> str | None:
        """Find the first setting on which the guarantee depends, and which has changed since the
        guarantee was given. None: no such setting has changed, or there is no guarantee."""
        if self.promise is None:
            return None
        settings = current_settings(cfg, own_labels, PROMISE_SETTINGS)
        # A guarantee that was saved without settings doesn't hold for any.
        settings_of_promise = self.promise.holds_for or {}
        changed_setting = find_changed_setting(settings_of_promise, settings)
        if changed_setting is None and cfg["confidence"] is None:
            return "confidence"  # without a confidence, no set of spans is written
        return changed_setting

    def set_reading(self, reading: Reading) -> str | None:
        """Keep how the docs were read on which the component was measured.

        reading (Reading): How the docs were read.
        RETURNS (str | None): A warning, if docs were read differently for an earlier measurement.
        """
        earlier_reading = self.reading
        self.reading = reading
        self._n_compared = 0  # `predict` compares its docs with the new reading
        if earlier_reading is None or earlier_reading.file_tokens == reading.file_tokens:
            return None
        return (
            f"docs were read with {reading.as_text()}, and for an earlier `calibrate`, `tune` or "
            f"`guarantee` with {earlier_reading.as_text()}: run all of them either with "
            "`file_tokens`, or without"
        )

    def compare_reading(
        self, docs: Sequence[Doc], tokenizer: Callable[[str], Doc], *, uses_starts: bool
    ) -> str | None:
        """Compare how docs were read with how the calibration docs were read. `predict` calls this
        each time. To save time, only the longest doc of a batch is compared, only in the first
        `N_COMPARED` batches, and only until a difference is found.

        docs (Sequence[Doc]): The docs, before the component has predicted them.
        tokenizer (Callable[[str], Doc]): The tokenizer of the pipeline.
        uses_starts (bool): Whether the predictions of the component depend on sentence starts.
        RETURNS (str | None): A warning, if the docs were read differently.
        """
        if self.reading is None or self._n_compared >= N_COMPARED:
            return None
        self._n_compared += 1
        difference = find_difference(self.reading, docs, tokenizer, uses_starts=uses_starts)
        if difference is not None:
            self._n_compared = N_COMPARED  # one warning is enough
        return difference

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
        """Test whether docs are still like the calibration docs: see `CalibratedPipe.shift`.

        docs (Iterable[Doc]): Docs that the component has predicted.
        confidence (Confidence | None): Where the component writes probabilities.
        component (str): The name of the component.
        own_labels (Sequence[str]): The labels that it writes.
        earlier (Shift | Mapping[str, Any] | None): The result for earlier docs.
        seed (int): The seed of the test.
        RETURNS (Shift): The test of all docs so far.
        RAISES (ValueError): If there are no scores of calibration docs or no confidence now, or
            there were none when a doc was predicted; or if `earlier` is from another test.
        """
        if self.scores is None:
            raise ValueError(
                f"{component}: shift: expected scores of calibration docs, got none: run `python "
                "-m spacy costner guarantee`, or `calibrate`"
            )
        if confidence is None:
            raise ValueError(
                f"{component}: shift: expected a confidence setting, as the scores of docs are "
                "saved with the probabilities, got none: see set_confidence"
            )
        pool = self.scores.pool()  # the scores of the docs are ranked among these
        if earlier is not None and not isinstance(earlier, Shift):
            earlier = restore(earlier, pool, seed)

        # The expected numbers of entities by label. `add_measures` adds the numbers of each doc. It
        # is a copy, so that the earlier result doesn't change.
        counts: EntityCounts = {}
        if earlier is not None:
            counts = {**earlier.counts}
        scores: list[float] = []
        for doc in docs:
            score = add_measures(doc, confidence.spans_key, component, own_labels, counts)
            if score is not None:  # None: all tokens of the doc are preset
                scores.append(score)
        return find_shift(pool, scores, counts, earlier=earlier, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON: the keys "guarantee", "shift" and "reading" of a saved `cfg`."""
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


def current_settings(
    cfg: Cfg, own_labels: Sequence[str] | None, names: Iterable[str]
) -> CalibratedSettings:
    """Collect settings on which a guarantee, or the test for a shift, depends: the keys `names` of
    `cfg` and, unless the component writes all its labels, its own labels. Returns them in the form
    in which they are saved."""
    settings: CalibratedSettings = {name: cfg[name] for name in names}
    if own_labels is not None:
        settings["own_labels"] = own_labels
    # JSON turns tuples into lists. So these settings are equal to the same settings after loading.
    return srsly.json_loads(srsly.json_dumps(settings))
