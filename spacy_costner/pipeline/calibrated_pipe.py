"""Base class that stores the calibration results of a component and warns when they are no longer
valid.

Calibration docs are the annotated docs used by `calibrate`, `tune` and `guarantee` to evaluate a
component. A *guarantee*, created by the command `guarantee`, is a statement such as "this set of
spans misses at most 5% of the entities".
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc
from thinc.types import Floats1d

from ..annotation.doc_arguments import refuse_doc
from ..annotation.settings import Annotation
from ..metrics.shift import Shift
from .calibration_state import CalibrationState, ConfigSettings
from .confidence import Confidence
from .promises import CalibrationScores, Promise
from .reading import Reading
from .serialization import Cfg


class CalibratedPipe(TrainablePipe):
    """A component that stores its calibration results. The results depend on the weights and on
    some of the settings. They are dropped when one of these changes, with a warning if there was a
    guarantee. The results are stored in `calibration`, which doesn't issue any warnings itself.

    cfg (Cfg): The settings that are saved with the component.
    meta (dict[str, Any]): The pipeline's meta, where users can see the guarantee.
    annotation (Annotation): Where the component reads and writes annotation.
    calibration (CalibrationState): The guarantee, the scores of the calibration docs, and how these
        docs were read.
    """

    cfg: Cfg
    meta: dict[str, Any]
    annotation: Annotation
    calibration: CalibrationState
    _tokenizer: Callable[[str], Doc]

    @property
    def own_labels(self) -> tuple[str, ...]:
        """The labels of the entities that the component writes."""
        raise NotImplementedError

    @property
    def confidence(self) -> Confidence | None:
        """Where the probabilities of entities are written. If None, they are not written."""
        raise NotImplementedError

    @property
    def guarantee(self) -> Promise | None:
        """The guarantee for the spans in `doc.spans[KEY + "_guaranteed"]`, where KEY is the
        `spans_key` of `confidence`. None if there is no guarantee or it isn't valid for the current
        settings."""
        promise = self.calibration.promise
        if promise is None or self.calibration.changed_setting(self.cfg, self._config_settings):
            return None
        return promise

    @property
    def calibration_scores(self) -> CalibrationScores | None:
        """The scores of the calibration docs, which `shift` compares with the scores of other docs.
        None if no scores are stored."""
        return self.calibration.scores

    @calibration_scores.setter
    def calibration_scores(self, scores: CalibrationScores | None) -> None:
        self.calibration.set_scores(scores)

    @property
    def reading(self) -> Reading | None:
        """How docs were read in the last call to `calibrate`, `tune` or `guarantee`. None if
        unknown."""
        return self.calibration.reading

    @reading.setter
    def reading(self, reading: Reading | None) -> None:
        self.calibration.reading = reading

    @property
    def decoding_digest(self) -> str | None:
        """The digest of the tables of the decoding: see `ConfigSettings`."""
        raise NotImplementedError

    @property
    def _config_settings(self) -> ConfigSettings:
        """The settings of the config that the calibration results depend on."""
        own_labels = None if self.annotation.own_labels is None else self.own_labels
        return ConfigSettings(
            own_labels=own_labels,
            sentence_boundaries=self.annotation.sentence_boundaries,
            decoding_tables=self.decoding_digest,
        )

    def set_guarantee(self, promise: Promise) -> None:
        """Store a guarantee. It is valid for the current settings of the component, and for docs
        that are read in the same way as the calibration docs: see `reading`. It is also added to
        `nlp.meta["guarantee"]` under the name of the component, where users can see it.

        promise (Promise): The guarantee, as created by `guarantee`.
        """
        for_people = self.calibration.keep_promise(promise, self.cfg, self._config_settings)
        self.meta.setdefault("guarantee", {})[self.name] = for_people.to_dict()

    def drop_guarantee(self, reason: str, *, keep_scores: bool = False) -> None:
        """Drop the guarantee and the scores of the calibration docs. Warn if there was a guarantee.

        reason (str): The change that makes the guarantee invalid. Shown in the warning.
        keep_scores (bool): Whether to keep the scores of the calibration docs.
        """
        had_guarantee = self.calibration.drop(keep_scores=keep_scores)
        if not had_guarantee:
            return
        self.meta.get("guarantee", {}).pop(self.name, None)
        warnings.warn(
            f"{self.name}: the guarantee is dropped, as it does not hold after {reason}. Run "
            "`python -m spacy costner guarantee` again",
            stacklevel=3,
        )

    def check_guarantee(self) -> None:
        """Check whether settings have changed, in `cfg` or in the config. Drop the guarantee and
        the scores of the calibration docs if they depend on a changed setting. Warn if a guarantee
        is dropped."""
        if self.calibration.is_empty:
            return
        # `check` has already dropped the scores if they are invalid.
        changed_setting = self.calibration.check(self.cfg, self._config_settings)
        if changed_setting is not None:
            self.drop_guarantee(f"another setting of {changed_setting}", keep_scores=True)

    def shift(
        self,
        docs: Iterable[Doc],
        *,
        earlier: Shift | Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> Shift:
        """Test whether docs are still similar to the calibration docs, and estimate the precision,
        recall and F of the predictions. No annotation is needed. The test only raises an alarm if
        the model is less certain about the docs than about the calibration docs.

        The result doesn't depend on the number of threads or processes. It may depend on how docs
        are batched: some scores, and therefore p-values, may differ in the fourth significant
        digit.

        docs (Iterable[Doc]): Docs in random order that this component has processed, for example
            with `nlp.pipe`. Docs in which all tokens are preset are not tested.
        earlier (Shift | Mapping[str, Any] | None): The result for earlier docs, or the output of
            its `to_json`. The test continues from this result.
        seed (int): The seed of the test. Use the same seed for all docs in a stream.
        RETURNS (Shift): The result of the test for all docs so far.
        RAISES (ValueError): If the component has no scores of calibration docs or no confidence, or
            lacked one of them when a doc was processed; if `docs` is a single doc; or if `earlier`
            is incomplete or was computed with a different seed or different calibration docs.
        """
        refuse_doc(docs)
        self.check_guarantee()
        return self.calibration.shift(
            docs,
            self.confidence,
            component=self.name,
            own_labels=self.own_labels,
            earlier=earlier,
            seed=seed,
        )

    def set_shift(
        self, docs: Sequence[Doc], scores: Floats1d, source: str, *, approximate: bool
    ) -> None:
        """Store the scores of calibration docs for `shift`, together with the current settings.

        docs (Sequence[Doc]): The calibration docs. Their `user_data` may define groups of docs.
        scores (Floats1d): The score of each doc: see `doc_entropy.measure_docs`. Shape: (B,)
        source (str): The name of the calibration docs.
        approximate (bool): Whether the temperature was fitted on the same docs. If so, the model
            fits these docs better than other docs, and the test may raise more false alarms.
        """
        self.calibration.keep_scores(
            docs,
            scores,
            source,
            approximate=approximate,
            cfg=self.cfg,
            config=self._config_settings,
        )

    def set_reading(self, reading: Reading, tokenizer: Callable[[str], Doc]) -> None:
        """Store how docs were read for `calibrate`, `tune` or `guarantee`: with the tokens and
        sentence starts of the file, or only from its text. Warn if docs were read differently in an
        earlier call to one of these functions.

        reading (Reading): How docs were read, as returned by `find_reading`.
        tokenizer (Callable[[str], Doc]): The tokenizer of the pipeline, which may not be the one
            that the component was created with.
        """
        self._tokenizer = tokenizer
        conflict = self.calibration.set_reading(reading)
        if conflict is not None:
            warnings.warn(f"{self.name}: {conflict}", stacklevel=2)

    def compare_reading(self, docs: Sequence[Doc]) -> None:
        """Warn once if docs were tokenized or split into sentences differently from the docs used
        by `calibrate`, `tune` or `guarantee`. Only some docs are compared: see
        `CalibrationState.compare_reading`.

        docs (Sequence[Doc]): The docs, before prediction.
        """
        uses_starts = bool(self.annotation.sentence_boundaries)
        difference = self.calibration.compare_reading(
            docs, self._tokenizer, uses_starts=uses_starts
        )
        if difference is not None:
            warnings.warn(f"{self.name}: {difference}", stacklevel=3)

    def _warn_of_new_groups(self, promise: Promise, groups: Iterable[str | None]) -> None:
        """Warn if docs belong to groups without a guarantee. These groups had too few calibration
        docs or none at all."""
        # Docs without a value for the key belong to the group None, shown as "None" in the message.
        new_groups = {str(group) for group in groups} - promise.groups.keys()
        if new_groups:
            group_names = ", ".join(sorted(new_groups))
            warnings.warn(
                f"{self.name}: no guaranteed set for docs whose {promise.by_group!r} is "
                f"{group_names}: there is no guarantee for them",
                stacklevel=3,
            )
