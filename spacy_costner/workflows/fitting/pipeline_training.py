"""Train the components of a pipeline, and save the pipeline as `spacy train` does."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from math import isfinite
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.pipeline import Sentencizer
from spacy.training import Example
from spacy.training.loop import create_before_to_disk_callback, update_meta
from spacy.vocab import Vocab

from ...pipeline.component import CostSensitiveNER
from ...pipeline.learn_rate import make_optimizer
from ...pipeline.reading import lacks_sentence_starts
from ...progress import phase
from ...readers import KeptDocs
from ...training.online import INTERRUPTED, TrainingResult
from ...training.stages import resolve_batcher
from ..config.trainable import components_to_fit
from ..saved_strings import save_pipeline
from .fit_corpora import FitCorpora
from .fitted import Fitted, score_prefix
from .linear_training import LinearPipeline, ignore_epoch, train_linear


def vocab_of_kept(kept: KeptDocs, overrides: Mapping[str, Any]) -> Vocab | bool:
    """Return the vocab of the docs that were read by `init`, so that the pipeline trained on them
    can share it. Returns True to create a new vocab if there are no such docs, or if the pipeline
    may read them differently because a setting in [nlp] (e.g. the tokenizer) is overridden."""
    if kept.nlp is None or any(name.startswith("nlp.") for name in overrides):
        return True
    return kept.nlp.vocab


def fit_linear(
    linear: LinearPipeline,
    corpora: FitCorpora,
    path: Path,
    *,
    n_seeds: int,
    cache: Path | None,
) -> Fitted:
    """Train the linear models of a pipeline on its corpora, and evaluate the pipeline. The pipeline
    isn't calibrated or tuned, and is only saved if there is a cache.

    linear (LinearPipeline): The pipeline and its training settings.
    corpora (FitCorpora): Its corpora: see `read_corpora`.
    path (Path): The folder where the pipeline will be saved.
    n_seeds (int): The number of training runs for each component. The weights are averaged.
    cache (Path | None): Folder for features and targets. With a cache, the pipeline is saved after
        each epoch, because training takes a long time.
    RETURNS (Fitted): The pipeline and the results. If training or evaluation is interrupted by
        Ctrl-C, this is the current state of the pipeline.
    """
    nlp, _, training, _ = linear
    ners = components_to_fit(nlp, training["frozen_components"])
    with phase("train"):
        outcomes = train_components(linear, ners, corpora.train, path, n_seeds=n_seeds, cache=cache)
    notes = [*corpora.notes]
    scores: dict[str, Any] = {}
    # If evaluation is interrupted, there are no scores.
    with suppress(KeyboardInterrupt), phase("evaluate") if corpora.dev else nullcontext():
        scores_of_dev = nlp.evaluate(corpora.dev)
        notes += note_sentence_starts(nlp, ners, corpora.dev, corpora.dev_source, scores_of_dev)
        scores = scores_of_dev
    return Fitted(
        path=path,
        outcomes=outcomes,
        scores=scores,
        nlp=nlp,
        ners=ners,
        has_dev=corpora.has_dev,
        notes=notes,
    )


def train_components(
    linear: LinearPipeline,
    ners: Sequence[CostSensitiveNER],
    examples: Iterable[Example],
    path: Path,
    *,
    n_seeds: int,
    cache: Path | None,
) -> dict[str, TrainingResult]:
    """Train the components of a pipeline one by one. For the arguments, see `fit_linear`. Returns
    how the training of each component ended. If training is interrupted by Ctrl-C, the remaining
    components aren't trained."""
    nlp, _, training, _ = linear

    def save_unfinished(trained: TrainingResult) -> None:
        """Save the current state of the pipeline after an epoch, without scores."""
        (ner,) = ners  # one component with a cache: see `check_fit_options`
        # Save the averaged weights, as `spacy train` does.
        with nlp.use_params(settings["optimizer"].averages or {}):
            losses = {ner.name: trained.value}
            save_trained(path, nlp, training, scores={}, losses=losses)

    outcomes: dict[str, TrainingResult] = {}
    settings = training
    for ner in ners:
        outcome = train_linear(
            linear._replace(ner=ner, training=settings),
            examples,
            n_seeds=n_seeds,
            cache=cache,
            on_epoch=ignore_epoch if cache is None else save_unfinished,
        )
        outcomes[ner.name] = outcome
        if outcome.reason == INTERRUPTED:
            break
        # The schedules of the optimizer and the batcher begin anew for the next component.
        batcher = resolve_batcher(nlp.config.interpolate()["training"])
        settings = {**training, "optimizer": make_optimizer(nlp), "batcher": batcher}
    return outcomes


def note_sentence_starts(
    nlp: Language,
    ners: Sequence[CostSensitiveNER],
    dev: Sequence[Example],
    source: str,
    scores: Mapping[str, Any],
) -> list[str]:
    """Create a note about the score of a pipeline with spaCy's sentencizer. This is only relevant
    if sequences are cut at sentence starts, and sentence starts are only available in the annotated
    docs. In that case, the pipeline is evaluated again with the sentence starts set by the
    sentencizer. Returns a sentence with both F scores, or an empty list."""
    first_ner = ners[0]
    uses_starts = any(ner.annotation.sentence_boundaries for ner in ners)
    if not uses_starts or not lacks_sentence_starts(nlp, first_ner.name, dev):
        return []
    # Don't use the annotated sentence starts, because no component predicts exactly these. The
    # scores would be too high.
    sentencizer = Sentencizer()
    dev_with_starts = [Example(sentencizer(eg.predicted.copy()), eg.reference) for eg in dev]
    name_of_f = f"{score_prefix(first_ner)}_f"
    f = scores.get(name_of_f)
    f_with_starts = nlp.evaluate(dev_with_starts).get(name_of_f)
    if f is None or f_with_starts is None:
        return []
    return [
        f"{source}: F {100 * f:.2f} without sentence starts, as no component before "
        f"{first_ner.name} sets them, and {100 * f_with_starts:.2f} with spaCy's "
        "sentencizer"
    ]


def save_fitted(fitted: Fitted, training: Mapping[str, Any]) -> None:
    """Save a trained pipeline to its path, with its scores and losses: see `save_trained`."""
    losses = {name: outcome.value for name, outcome in fitted.outcomes.items()}
    save_trained(fitted.path, fitted.nlp, training, fitted.scores, losses)


def save_trained(
    path: Path,
    nlp: Language,
    training: Mapping[str, Any],
    scores: Mapping[str, Any],
    losses: Mapping[str, float],
) -> None:
    """Save a pipeline as `spacy train` does. Its meta contains the scores and the finite losses.

    path (Path): The output folder.
    nlp (Language): The pipeline.
    training (Mapping[str, Any]): The settings of the [training] block.
    scores (Mapping[str, Any]): The scores. Empty if the pipeline wasn't evaluated.
    losses (Mapping[str, float]): The loss of each component.
    """
    # JSON doesn't support infinity.
    finite_losses = {name: loss for name, loss in losses.items() if isfinite(loss)}
    update_meta(dict(training), nlp, {"other_scores": scores, "losses": finite_losses})
    before_to_disk = create_before_to_disk_callback(training["before_to_disk"])
    save_pipeline(path, before_to_disk(nlp))
