"""Calibrate and tune a trained pipeline.

This requires predictions for docs that the model wasn't trained on. The docs of the development
corpus are used, if there is one. Otherwise, the training docs are split into folds, and each fold
is predicted by a model that was trained on the other folds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spacy.language import Language
from spacy.scorer import Scorer
from spacy.training import Example
from thinc.api import Config

from ...files.saving import as_json
from ...pipeline.component import CostSensitiveNER
from ...pipeline.reading import find_reading
from ...readers import copy_without_annotation
from ..calibration.temperature import calibrate_on
from ..calibration.tuning import check_parameter, tune_on
from ..evaluation.predictions import (
    DevPredictions,
    evaluate_dev,
    predict,
    predict_dev,
    record_scores,
    replace_predicted,
)
from .fit_corpora import FitCorpora
from .fitted import HELD_OUT_FOLDS, N_HELD_OUT_FOLDS, Fitted
from .folds import hold_out


def improve(
    fitted: Fitted,
    corpora: FitCorpora,
    config: Config,
    *,
    calibrate: bool,
    aim: Mapping[str, float] | None,
    n_seeds: int,
    file_tokens: bool,
) -> Fitted:
    """Calibrate and tune a trained pipeline, and record its new scores. Uses predictions for the
    development docs or, if there are none, for held-out training docs.

    The component also stores how these docs were read (`Reading`: the source of tokens and sentence
    starts), so that it can warn about docs that were read differently.

    fitted (Fitted): The trained pipeline, which is modified in place, and its training results.
    corpora (FitCorpora): The development docs, and the training docs to split into folds.
    config (Config): The config of the pipeline, with which the models of folds are trained. Unlike
        `nlp.config`, it contains the sources of components.
    calibrate (bool): Whether to calibrate.
    aim (Mapping[str, float] | None): The aim of tuning: see `parse_aim`. If None, the pipeline
        isn't tuned.
    n_seeds (int): The number of training runs for each fold's model.
    file_tokens (bool): Whether to use the tokens and sentence starts of the development file.
    RETURNS (Fitted): The same pipeline, with its calibration, its tuning and, if docs were held
        out, the scores on these docs.
    RAISES (ValueError): If the pipeline can't be calibrated or tuned on these docs: see
        `calibrate_on`, `check_parameter` and `tune_on`. The pipeline may already have been
        modified.
    """
    nlp = fitted.nlp
    (ner,) = fitted.ners  # checked by `check_fit_options`
    parameter = ""  # the decoding setting to tune
    if aim is not None:
        # Check this before training the models of the folds.
        parameter = check_parameter(nlp, ner)

    # Make predictions for docs that the model wasn't trained on: the development docs, or the docs
    # in each fold with a model trained on the other folds.
    if fitted.has_dev:
        source = corpora.dev_source
        predictions = [predict_dev(nlp, ner, corpora.dev)]
        examples = corpora.dev
    else:
        source = HELD_OUT_FOLDS
        # Docs without tokens can't be predicted.
        nonempty = [eg for eg in corpora.train if len(eg.predicted)]
        predictions = predict_held_out(config, ner, nonempty, n_seeds=n_seeds)
        fitted = replace(fitted, held_out=score_predictions(nlp, ner, predictions))
        # The fold models don't see sentence starts in the predicted docs, even if the corpus
        # contains them: see `hold_out`.
        bare_docs = [copy_without_annotation(eg.predicted) for eg in nonempty]
        examples = replace_predicted(nonempty, bare_docs)
    docs = [eg.predicted for predicted in predictions for eg in predicted.originals]
    reading = find_reading(nlp, ner.name, examples, docs, file_tokens=file_tokens)
    ner.set_reading(reading, nlp.tokenizer)

    if calibrate:
        calibration = calibrate_on(predictions, nlp, ner, source)
        fitted = replace(fitted, calibration=calibration)
        temperature = calibration.temperature
        predictions = [predicted.with_temperature(temperature) for predicted in predictions]
    if aim is not None:
        tuning = tune_on(
            predictions,
            nlp,
            ner,
            parameter,
            precision=aim.get("precision"),
            recall=aim.get("recall"),
        )
        fitted = replace(fitted, tuning=tuning)

    # Record the scores with the new temperature and decoding.
    if fitted.has_dev:
        scores = evaluate_dev(nlp, ner, predictions[0])
        n_docs = len(corpora.dev)
    else:
        scores = score_predictions(nlp, ner, predictions)
        n_docs = sum(len(predicted.examples) for predicted in predictions)
    record_scores(nlp, scores, source, n_docs)
    return fitted


def predict_held_out(
    config: Config, ner: CostSensitiveNER, examples: Sequence[Example], *, n_seeds: int
) -> list[DevPredictions]:
    """Make predictions for non-empty training docs with models that weren't trained on them. The
    docs are split into `N_HELD_OUT_FOLDS` folds. For each fold, a model is trained on the docs in
    the other folds, with the config of the pipeline. Returns the predictions for each fold."""
    folds = hold_out(
        config,
        examples,
        ner.labels,
        n_folds=N_HELD_OUT_FOLDS,
        n_seeds=n_seeds,
        annotation=ner.annotation,
        desc="held-out folds",
    )
    return [fold.dev for fold in folds]


def score_predictions(
    nlp: Language, ner: CostSensitiveNER, predictions: Sequence[DevPredictions]
) -> dict[str, Any]:
    """Score the held-out predictions of all folds. The component decodes entities from the
    posteriors of the fold models. The docs aren't modified, and later components aren't run."""
    examples: list[Example] = []
    for predictions_of_fold in predictions:
        # Copy the docs, because `predict` writes entities to them.
        docs = [eg.predicted.copy() for eg in predictions_of_fold.examples]
        predict(ner, docs, predictions_of_fold.posterior, ner.confidence)
        examples += replace_predicted(predictions_of_fold.examples, docs)
    scores = Scorer(nlp).score(examples)
    return dict(as_json(scores))
