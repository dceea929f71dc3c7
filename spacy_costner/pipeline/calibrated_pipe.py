"""The results of calibration docs that a component keeps, and warnings when they no longer hold.

Calibration docs are annotated docs on which `calibrate`, `tune` and `guarantee` measure a
component. A *guarantee* (of the command `guarantee`) says, for example, that a set of spans misses
at most 5 % of the entities.
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
from .calibration_state import CalibrationState
from .confidence import Confidence
from .promises import CalibrationScores, Promise
from .reading import Reading
from .serialization import Cfg


class CalibratedPipe(TrainablePipe):
    """A component that keeps results of calibration docs. They hold for its weights and for some of
    its settings, and are dropped with a warning when these change. The results themselves are in
    `calibration`, which gives no warnings.

    cfg (Cfg): The settings that are saved.
    meta (dict[str, Any]): The meta of the pipeline, where people can read the guarantee.
    annotation (Annotation): Where the annotation of the component is in docs.
    calibration (CalibrationState): The guarantee, the scores and how calibration docs were read.
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
        """Where the probabilities of entities are written. None: they are not written."""
        raise NotImplementedError

    @property
    def guarantee(self) -> Promise | None:
        """The guarantee about the spans in `doc.spans[KEY + "_guaranteed"]`, where KEY is the key
        of the confidence: its terms, its thresholds and its calibration docs. None: there is no
        guarantee, or it doesn't hold for the current settings."""
        if self.calibration.changed_setting(self.cfg, self._labels_if_not_all) is not None:
            return None
        return self.calibration.promise

    @property
    def calibration_scores(self) -> CalibrationScores | None:
        """The scores of calibration docs, with which `shift` compares the scores of other docs.
        None: the component has no calibration docs."""
        return self.calibration.scores

    @calibration_scores.setter
    def calibration_scores(self, scores: CalibrationScores | None) -> None:
        self.calibration.set_scores(scores)

    @property
    def reading(self) -> Reading | None:
        """How docs were read for the last `calibrate`, `tune` or `guarantee`. None: unknown."""
        return self.calibration.reading

    @reading.setter
    def reading(self, reading: Reading | None) -> None:
        self.calibration.reading = reading

    @property
    def _labels_if_not_all(self) -> tuple[str, ...] | None:
        """The labels of the entities that the component writes, as a setting on which guarantees
        depend. None: all its labels, which are in `cfg["labels"]` already."""
        if self.annotation.own_labels is None:
            return None
        return self.own_labels

    def set_guarantee(self, promise: Promise) -> None:
        """Store a guarantee, which holds for the current settings of the component, and for docs
        that are read as `reading` says. `nlp.meta["guarantee"]` shows it to people, under the name
        of the component.

        promise (Promise): The guarantee, as `guarantee` makes it.
        """
        for_people = self.calibration.keep_promise(promise, self.cfg, self._labels_if_not_all)
        self.meta.setdefault("guarantee", {})[self.name] = for_people.to_dict()

    def drop_guarantee(self, reason: str, *, keep_scores: bool = False) -> None:
        """Drop the scores of calibration docs and the guarantee. Warn if there was a guarantee.

        reason (str): The change after which the guarantee doesn't hold.
        keep_scores (bool): Whether the scores of calibration docs still hold, and are kept.
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
        """Drop the guarantee, with a warning, if a setting that it depends on was edited. Drop the
        scores of calibration docs, too, if they depend on an edited setting."""
        # `check` itself drops the scores, if they depend on it. Otherwise they are kept.
        changed_setting = self.calibration.check(self.cfg, self._labels_if_not_all)
        if changed_setting is not None:
            self.drop_guarantee(f"another setting of {changed_setting}", keep_scores=True)

    def shift(
        self,
        docs: Iterable[Doc],
        *,
        earlier: Shift | Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> Shift:
        """Test, without annotation, whether docs are still like the calibration docs, and estimate
        precision, recall and F on them. The test gives an alarm only if the model is less sure of
        the docs than of the calibration docs.

        The same docs in the same batches have the same result with any number of threads and
        processes. In other batches, some scores differ in their fourth significant digit, and so do
        their p-values.

        docs (Iterable[Doc]): Docs that this component has predicted, as `nlp.pipe` returns them, in
            random order. Docs in which all tokens are preset are not tested.
        earlier (Shift | Mapping[str, Any] | None): The result for earlier docs, or its `to_json`.
            The test continues from there, without these docs.
        seed (int): The seed of the test. Use the same seed for all docs of one stream.
        RETURNS (Shift): The test of all docs so far.
        RAISES (ValueError): If there are no scores of calibration docs or no confidence now, or
            there were none when a doc was predicted; if `docs` is a single doc; or if `earlier` is
            incomplete, or is from another seed or other calibration docs.
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
        """Keep the scores of calibration docs for `shift`, with the current settings.

        docs (Sequence[Doc]): The calibration docs, whose `user_data` may have groups.
        scores (Floats1d): The score of each doc: see `doc_entropy.measure_docs`. Shape: (B,)
        source (str): The name of the docs.
        approximate (bool): Whether the temperature was fitted on the same docs. The model then fits
            them better than other docs, and false alarms of the test may be more frequent.
        """
        self.calibration.keep_scores(
            docs,
            scores,
            source,
            approximate=approximate,
            cfg=self.cfg,
            own_labels=self._labels_if_not_all,
        )

    def set_reading(self, reading: Reading) -> None:
        """Keep how docs were read for `calibrate`, `tune` or `guarantee`: with the tokens and
        sentence starts of their file, or made from its text. Warn if docs were read in the other
        way for an earlier one of these functions.

        reading (Reading): How docs were read, as `find_reading` finds it.
        """
        conflict = self.calibration.set_reading(reading)
        if conflict is not None:
            warnings.warn(f"{self.name}: {conflict}", stacklevel=2)

    def compare_reading(self, docs: Sequence[Doc]) -> None:
        """Warn once if docs differ in their sentence starts or tokens from the docs on which
        `calibrate`, `tune` or `guarantee` measured the component. Not all docs are compared: see
        `CalibrationState.compare_reading`.

        docs (Sequence[Doc]): The docs, before the component has predicted them.
        """
        uses_starts = bool(self.annotation.sentence_boundaries)
        difference = self.calibration.compare_reading(
            docs, self._tokenizer, uses_starts=uses_starts
        )
        if difference is not None:
            warnings.warn(f"{self.name}: {difference}", stacklevel=3)

    def _warn_of_new_groups(self, promise: Promise, groups: Iterable[str | None]) -> None:
        """Warn if docs are in groups without a guarantee, as no calibration docs were in the group,
        or too few."""
        # Docs without a value for the key are in the group None. The message says "None".
        new_groups = {str(group) for group in groups} - promise.groups.keys()
        if new_groups:
            group_names = ", ".join(sorted(new_groups))
            warnings.warn(
                f"{self.name}: no guaranteed set for docs whose {promise.by_group!r} is "
                f"{group_names}: there is no guarantee for them",
                stacklevel=3,
            )
