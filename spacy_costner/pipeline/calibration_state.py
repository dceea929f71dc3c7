"""The calibration results of a component, and checks that they are still valid.

A *guarantee* is a statement such as "this set of spans misses at most 5% of the entities". The
shift test compares the *scores* of the calibration docs with the scores of other docs. Both are
only valid for the weights and certain settings at the time of calibration. Users may edit `cfg`, or
load the component with another config, so `CalibrationState.check` looks for changes before each
prediction.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from spacy.tokens import Doc
from thinc.types import Floats1d

from ..annotation.borders import Boundaries
from ..metrics.shift import EntityCounts, Shift, find_shift, restore
from .confidence import Confidence
from .doc_entropy import add_measures
from .promises import CalibratedSettings, CalibrationScores, Promise, find_changed_setting
from .reading import Reading, find_difference, read_reading
from .serialization import Cfg, as_read

N_COMPARED = 100
"""The maximum number of batches for which `predict` checks how docs were read."""

SHIFT_SETTINGS = (
    "labels",
    "scheme",
    "outside",
    "temperature",
    "own_labels",
    "sentence_boundaries",
)
"""The settings that the shift test depends on: keys of `cfg` and fields of `ConfigSettings`. It
also depends on the weights."""

PROMISE_SETTINGS = (*SHIFT_SETTINGS, "decoding", "decoding_tables")
"""The settings that a guarantee depends on: keys of `cfg` and fields of `ConfigSettings`. It also
depends on the weights."""

LATER_SETTINGS = ("sentence_boundaries", "decoding_tables")
"""The settings that versions before 0.5.0 don't compare. They are saved under "holds_for" in `cfg`,
which these versions ignore. They would drop a guarantee with settings that they don't know."""

LATER_SETTINGS_OF_SHIFT = [name for name in LATER_SETTINGS if name in SHIFT_SETTINGS]
"""The settings of these that the shift test depends on."""

ResultT = TypeVar("ResultT", Promise, CalibrationScores)


class ConfigSettings(NamedTuple):
    """The settings that calibration results depend on and that are defined in the config, not in
    `cfg`.

    own_labels (tuple[str, ...] | None): The labels that the component writes. If None, it writes
        all its labels.
    sentence_boundaries (Boundaries): Where docs are split into separate chains.
    decoding_tables (str | None): The digest of the tables of the decoding (`Decoding.tables`), such
        as the costs of mistakes. If None, it has no tables.
    """

    own_labels: tuple[str, ...] | None = None
    sentence_boundaries: Boundaries = False
    decoding_tables: str | None = None


@dataclass(eq=False)
class CalibrationState:
    """The calibration results of a component. Warnings are issued by the component.

    promise (Promise | None): The guarantee for the component's sets of spans, if any.
    scores (CalibrationScores | None): The scores of the calibration docs, if any.
    reading (Reading | None): How the calibration docs were read. None if unknown.
    """

    promise: Promise | None = None
    scores: CalibrationScores | None = None
    reading: Reading | None = None
    _n_compared: int = field(default=0, init=False)
    # The settings at the last check. None if the state has changed since then.
    _checked_settings: Cfg | None = field(default=None, init=False)

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a guarantee nor scores, so that there is nothing to check."""
        return self.promise is None and self.scores is None

    def set_promise(self, promise: Promise | None) -> None:
        """Replace the guarantee. The next `check` determines whether it is valid."""
        self.promise = promise
        self._checked_settings = None

    def keep_promise(self, promise: Promise, cfg: Cfg, config: ConfigSettings) -> Promise:
        """Store a guarantee. It is valid for the current settings of the component, and for docs
        that are read in the same way as the calibration docs: see `reading`.

        promise (Promise): The guarantee, as created by `guarantee`.
        cfg (Cfg): The settings of the component.
        config (ConfigSettings): Its settings in the config.
        RETURNS (Promise): The guarantee without the settings, for display to users.
        """
        promise = replace(promise, reading=self.reading, holds_for=None)
        holds_for = current_settings(cfg, config, PROMISE_SETTINGS)
        self.set_promise(replace(promise, holds_for=holds_for))
        return promise

    def drop(self, *, keep_scores: bool) -> bool:
        """Drop the guarantee and, unless `keep_scores` is set, the scores of the calibration docs.

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
        config: ConfigSettings,
    ) -> None:
        """Store the scores of calibration docs. They are valid for the current settings of the
        component. See `CalibratedPipe.set_shift` for the first four parameters.

        cfg (Cfg): The settings of the component.
        config (ConfigSettings): Its settings in the config.
        """
        calibration_scores = CalibrationScores.from_docs(
            docs,
            scores,
            source,
            approximate=approximate,
            reading=self.reading,
            holds_for=current_settings(cfg, config, SHIFT_SETTINGS),
        )
        self.set_scores(calibration_scores)

    def set_scores(self, scores: CalibrationScores | None) -> None:
        """Replace the scores of the calibration docs. The next `check` determines whether they are
        valid."""
        self.scores = scores
        self._checked_settings = None

    def check(self, cfg: Cfg, config: ConfigSettings) -> str | None:
        """Check whether settings have changed since the last check. Drop the scores of the
        calibration docs if they are no longer valid.

        cfg (Cfg): The settings of the component.
        config (ConfigSettings): Its settings in the config.
        RETURNS (str | None): The name of a changed setting that the guarantee depends on. None if
            the guarantee is valid, if there is no guarantee, or if nothing has changed since the
            last check, even if that check returned a name.
        """
        # This runs before each prediction, and comparing settings with a guarantee is slow, so
        # first compare them with the settings at the last check. They include the confidence,
        # because guarantees require one: see `changed_setting`.
        values = {**cfg, **config._asdict()}
        settings = {name: values[name] for name in (*PROMISE_SETTINGS, "confidence")}
        if settings == self._checked_settings:
            return None
        self._checked_settings = deepcopy(settings)  # `cfg` may be edited in place
        shift_settings = current_settings(cfg, config, SHIFT_SETTINGS)
        if self.scores is not None and self.scores.holds_for != shift_settings:
            self.scores = None
        return self.changed_setting(cfg, config)

    def changed_setting(self, cfg: Cfg, config: ConfigSettings) -> str | None:
        """Return the name of the first setting that the guarantee depends on and that has changed
        since the guarantee was stored. Return None if no such setting has changed or there is no
        guarantee."""
        if self.promise is None:
            return None
        settings = current_settings(cfg, config, PROMISE_SETTINGS)
        # A guarantee that was saved without settings is never valid.
        settings_of_promise = self.promise.holds_for or {}
        changed_setting = find_changed_setting(settings_of_promise, settings)
        if changed_setting is None and cfg["confidence"] is None:
            return "confidence"  # without a confidence, no guaranteed set is written
        if changed_setting == "decoding_tables":
            return "decoding"  # its name in the config
        return changed_setting

    def set_reading(self, reading: Reading) -> str | None:
        """Store how the calibration docs were read.

        reading (Reading): How the docs were read.
        RETURNS (str | None): A warning if earlier calibration docs were read differently.
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
        """Check whether docs were read in the same way as the calibration docs. This is called by
        `predict` for each batch. To save time, only the longest doc of a batch is compared, only in
        the first `N_COMPARED` batches, and only until a difference is found.

        docs (Sequence[Doc]): The docs, before prediction.
        tokenizer (Callable[[str], Doc]): The tokenizer of the pipeline.
        uses_starts (bool): Whether the predictions of the component depend on sentence starts.
        RETURNS (str | None): A warning if the docs were read differently.
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
        """Test whether docs are still similar to the calibration docs: see `CalibratedPipe.shift`.

        docs (Iterable[Doc]): Docs that the component has processed.
        confidence (Confidence | None): Where the component writes probabilities.
        component (str): The name of the component.
        own_labels (Sequence[str]): The labels that the component writes.
        earlier (Shift | Mapping[str, Any] | None): The result for earlier docs.
        seed (int): The seed of the test.
        RETURNS (Shift): The result of the test for all docs so far.
        RAISES (ValueError): If the component has no scores of calibration docs or no confidence, or
            lacked one of them when a doc was processed; or if `earlier` belongs to a different
            test.
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

        # The expected entity counts by label. `add_measures` adds the counts of each doc to this
        # copy, so that the earlier result isn't modified.
        counts: EntityCounts = {}
        if earlier is not None:
            counts = {**earlier.counts}
        scores: list[float] = []
        for doc in docs:
            score = add_measures(doc, confidence.spans_key, component, own_labels, counts)
            if score is not None:  # None if all tokens of the doc are preset
                scores.append(score)
        return find_shift(pool, scores, counts, earlier=earlier, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """Convert the state to the JSON values that are saved in `cfg` under "guarantee", "shift",
        "reading" and, if there is a guarantee or scores, "holds_for"."""
        saved: dict[str, Any] = {"guarantee": None, "shift": None, "reading": None}
        later_settings: dict[str, CalibratedSettings] = {}
        for name, result in (("guarantee", self.promise), ("shift", self.scores)):
            if result is None:
                continue
            saved[name] = result.to_dict()
            later_settings[name] = {}
            for setting in LATER_SETTINGS:
                if setting in (result.holds_for or {}):
                    later_settings[name][setting] = saved[name]["holds_for"].pop(setting)
        if later_settings:
            saved["holds_for"] = later_settings
        if self.reading is not None:
            saved["reading"] = asdict(self.reading)
        return saved

    @classmethod
    def from_dict(
        cls, saved: Mapping[str, Any], assumed: ConfigSettings | None = None
    ) -> "CalibrationState":
        """Create a state from a saved `cfg`: see `to_dict`.

        saved (Mapping[str, Any]): The saved `cfg`.
        assumed (ConfigSettings | None): The settings to assume for results that were saved by a
            version that didn't save all settings. If None, the default settings.
        RETURNS (CalibrationState): The state.
        RAISES (ValueError): If a key is missing or unknown, or a term of the guarantee is out of
            range.
        """
        state = cls(reading=read_reading(saved["reading"]))
        later_settings = saved.get("holds_for")
        if later_settings is None:
            config = assumed or ConfigSettings()
            later_settings = {
                "guarantee": current_settings({}, config, LATER_SETTINGS),
                "shift": current_settings({}, config, LATER_SETTINGS_OF_SHIFT),
            }
        if saved["guarantee"] is not None:
            promise = Promise.from_dict(saved["guarantee"])
            state.promise = _add_settings(promise, later_settings["guarantee"])
        if saved["shift"] is not None:
            scores = CalibrationScores.from_dict(saved["shift"])
            state.scores = _add_settings(scores, later_settings["shift"])
        return state


def _add_settings(result: ResultT, settings: CalibratedSettings) -> ResultT:
    """Add settings to those that a result is valid for. A result without settings is never
    valid, and remains so."""
    if result.holds_for is None:
        return result
    return replace(result, holds_for={**result.holds_for, **settings})


def current_settings(cfg: Cfg, config: ConfigSettings, names: Iterable[str]) -> CalibratedSettings:
    """Collect the settings with the given names from `cfg` and the config, except settings that are
    None. Returns the settings in the format in which they are saved."""
    values = {**cfg, **config._asdict()}
    return as_read({name: values[name] for name in names if values[name] is not None})


def digest_of_tables(tables: Any) -> str | None:
    """Compute the digest of the tables of a decoding, as returned by `Decoding.tables` or as saved.
    Returns None if there are no tables. "of" is left out: it identifies the config of the tables,
    and may contain the path of a file, which doesn't change the predictions."""
    if tables is None:
        return None
    if isinstance(tables, Mapping):
        tables = {name: table for name, table in tables.items() if name != "of"}
    text = json.dumps(as_read(tables), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
