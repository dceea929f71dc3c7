"""The result of `fit`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spacy.language import Language

from ...features import VectorCoverage
from ...ml import first_pass_of, linear_part
from ...pipeline.component import CostSensitiveNER
from ...readers import CorpusSummary
from ...training.online import INTERRUPTED, TrainingResult
from ..calibration.temperature import Calibration
from ..calibration.tuning import Tuning
from ..vectors import LearnedVectors

N_HELD_OUT_FOLDS = 4
"""The number of folds that the training docs are split into if there is no development corpus."""

HELD_OUT_FOLDS = f"{N_HELD_OUT_FOLDS} held-out folds of the training corpus"
"""The name of the held-out docs as a source of scores."""

DEV_SCORES = {"f": "F", "p": "precision", "r": "recall"}
"""The scores to show, keyed by the last letter of their names in `nlp.evaluate`, e.g. "ents_f"."""

STOPPED_MESSAGE = """
Stopped by Ctrl-C: this is the model so far, neither calibrated nor tuned. The same command starts
from scratch. To continue training, name the model in initialize.after_init:
spacy_costner.start_from.v1."""


@dataclass(frozen=True)
class Fitted:
    """A trained and saved pipeline.

    path (Path): The folder with the pipeline.
    outcomes (Mapping[str, TrainingResult]): How the training of each component ended, keyed by
        component name.
    scores (dict[str, Any]): The scores on the development corpus before calibration and tuning. If
        there is no development corpus, they are computed on an empty list of docs. Empty if
        evaluation was interrupted.
    nlp (Language): The pipeline.
    ners (Sequence[CostSensitiveNER]): The trained components. If there are several, they share a
        `spans_key`.
    has_dev (bool): Whether there is a development corpus.
    calibration (Calibration | None): The result of the calibration, if calibrated.
    tuning (Tuning | None): The result of tuning, if tuned.
    held_out (dict[str, Any] | None): The scores on the held-out docs, before calibration and
        tuning. None if no docs were held out.
    notes (Sequence[str]): Reasons why the scores on the development corpus may be misleading, and a
        note if many training docs are copies of each other.
    learned (LearnedVectors | None): The vectors learned from raw text, if any.
    corpora (Mapping[str, CorpusSummary]): Summaries of the "train" and "dev" corpora.
    """

    path: Path
    outcomes: Mapping[str, TrainingResult]
    scores: dict[str, Any]
    nlp: Language
    ners: Sequence[CostSensitiveNER]
    has_dev: bool
    calibration: Calibration | None = None
    tuning: Tuning | None = None
    held_out: dict[str, Any] | None = None
    notes: Sequence[str] = ()
    learned: LearnedVectors | None = None
    corpora: Mapping[str, CorpusSummary] = field(default_factory=dict)

    @property
    def is_interrupted(self) -> bool:
        """Whether training or evaluation was interrupted."""
        # `scores` isn't empty even if there is no development corpus.
        if not self.scores:
            return True
        return any(outcome.reason == INTERRUPTED for outcome in self.outcomes.values())

    @property
    def n_weights(self) -> int:
        """The total number of weights of all components, excluding first passes and hidden
        layers."""
        n_weights = 0
        for ner in self.ners:
            _, weights = linear_part(ner.model)
            n_weights += weights.rows.size
        return n_weights

    @property
    def vector_coverage(self) -> VectorCoverage | None:
        """The number of words in the training docs that have a static vector. None if the model
        doesn't use static vectors."""
        # All components were trained on the same docs, so use the first one.
        features, _ = linear_part(self.ners[0].model)
        return features.vector_coverage

    @property
    def n_bytes(self) -> int:
        """The size of the saved pipeline in bytes."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def training_text(self) -> str:
        """Describe how training ended, with one line per component."""
        lines: list[str] = []
        for name, outcome in self.outcomes.items():
            line = outcome.as_text()
            if len(self.ners) > 1:
                line = f"{name}: {line}"
            lines.append(line)
        return "\n".join(lines)

    def scores_text(self) -> str:
        """Describe the scores before calibration and tuning, and the docs they were measured on."""
        source = "dev"
        scores: dict[str, Any] | None = self.scores
        if not self.has_dev:
            source = HELD_OUT_FOLDS
            scores = self.held_out
        if scores is None:
            return "not evaluated: there is no development corpus"
        prefix = score_prefix(self.ners[0])  # all components have the same `spans_key`
        score_texts: list[str] = []
        for letter, word in DEV_SCORES.items():
            score = scores.get(f"{prefix}_{letter}")
            if score is not None:
                score_texts.append(f"{word} {100 * score:.2f}")
        if not score_texts:
            return f"{source}: not scored"
        return f"{source}: {', '.join(score_texts)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dictionary."""
        coverage = self.vector_coverage
        return {
            "path": self.path,
            "training": self.training_text(),
            "weights": self.n_weights,
            "vectors": None if coverage is None else coverage._asdict(),
            "raw_text": self.learned,
            "bytes": self.n_bytes,
            "scores": self.scores,
            "calibration": self.calibration,
            "tuning": self.tuning,
            "held_out": self.held_out,
            "notes": self.notes,
            "corpora": {name: corpus._asdict() for name, corpus in self.corpora.items()},
        }

    def as_text(self) -> str:
        """Describe how training ended, the scores, and the effects of calibration and tuning."""
        weights = f"{self.n_weights:,} weights"
        if any(first_pass_of(ner.model) for ner in self.ners):
            weights += ", two passes (features.document)"
        lines: list[str] = []
        if self.learned is not None:
            summary, *other_lines = self.learned.summary()
            lines += [f"raw text and training corpus: {summary}", *other_lines]
        lines += [self.training_text(), weights]
        coverage = self.vector_coverage
        if coverage is not None:
            lines.append(f"training docs: {coverage.as_text()}")
            # The vectors are saved with the pipeline and may account for most of its size.
            lines.append(f"pipeline with its vectors: {self.n_bytes / 1e6:.1f} MB")
        lines.append(self.scores_text())
        if self.calibration is not None:
            lines.append(self.calibration.as_text())
        if self.tuning is not None:
            lines.append(self.tuning.as_text())
        lines += [f"note: {note}" for note in self.notes]
        text = "\n".join(lines)
        if self.is_interrupted:
            text += STOPPED_MESSAGE
        return text


def score_prefix(ner: CostSensitiveNER) -> str:
    """Return the prefix of a component's scores in the result of `nlp.evaluate`: "ents", or
    "spans_KEY" if it has a `spans_key`."""
    spans_key = ner.annotation.spans_key
    return "ents" if spans_key is None else f"spans_{spans_key}"
