"""Calibrate and tune a trained pipeline.

This takes predictions for docs that the model was not trained on. These docs are the development
corpus. Without one, the training docs are divided into folds, and each fold is predicted by a model
that was trained on the others: its docs are held out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spacy.language import Language
from spacy.scorer import Scorer
from spacy.training import Example

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
    *,
    calibrate: bool,
    aim: Mapping[str, float] | None,
    n_seeds: int,
    file_tokens: bool,
) -> Fitted:
    """Calibrate and tune a trained pipeline, and record its new scores. This takes predictions for
    the development docs or, without these, for held-out training docs.

    The component also keeps how these docs were read (`Reading`: with which tokens and sentence
    starts), so that it can warn when it is given docs that were read otherwise.

    fitted (Fitted): The pipeline, which is changed in place, and how it was trained.
    corpora (FitCorpora): The development docs and, to be divided into folds, the training docs.
    calibrate (bool): Whether to calibrate.
    aim (Mapping[str, float] | None): What to tune for: see `parse_aim`. None: it isn't tuned.
    n_seeds (int): How many times the models of folds are trained.
    file_tokens (bool): Whether development docs have the tokens and sentence starts of their file.
    RETURNS (Fitted): The same pipeline with its calibration, its tuning and, if docs were held out,
        the scores on these.
    RAISES (ValueError): If it can't be calibrated or tuned on these docs: see `calibrate_on`,
        `check_parameter` and `tune_on`. It may be changed by then.
    """
    nlp = fitted.nlp
    (ner,) = fitted.ners  # `check_fit_options` refuses several
    parameter = ""  # the setting of the decoding that is tuned
    if aim is not None:
        # This is checked first, as models of folds may have to be trained below.
        parameter = check_parameter(nlp, ner)

    # Predict docs that the model was not trained on: the development docs, or the docs of each fold
    # by a model of the others.
    if fitted.has_dev:
        source = corpora.dev_source
        predictions = [predict_dev(nlp, ner, corpora.dev)]
        reading = find_reading(nlp, ner.name, corpora.dev, file_tokens=file_tokens)
    else:
        source = HELD_OUT_FOLDS
        # A doc without tokens has nothing to predict.
        nonempty = [eg for eg in corpora.train if len(eg.predicted)]
        predictions = predict_held_out(nlp, ner, nonempty, n_seeds=n_seeds)
        fitted = replace(fitted, held_out=score_predictions(nlp, ner, predictions))
        # Models of folds predict docs without sentence starts, also if the corpus has some: see
        # `hold_out`.
        bare_docs = [copy_without_annotation(eg.predicted) for eg in nonempty]
        reading = find_reading(nlp, ner.name, replace_predicted(nonempty, bare_docs))
    ner.set_reading(reading)

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
    nlp: Language, ner: CostSensitiveNER, examples: Sequence[Example], *, n_seeds: int
) -> list[DevPredictions]:
    """Predict training docs, none of which is empty, by models that were not trained on them. The
    docs are divided into `N_HELD_OUT_FOLDS` folds, and a model is trained for each fold on the docs
    of the others, with the config of the pipeline. Returns the predictions of each fold."""
    folds = hold_out(
        nlp.config,
        examples,
        ner.labels,
        n_folds=N_HELD_OUT_FOLDS,
        n_seeds=n_seeds,
        desc="held-out folds",
    )
    return [fold.dev for fold in folds]


def score_predictions(
    nlp: Language, ner: CostSensitiveNER, predictions: Sequence[DevPredictions]
) -> dict[str, Any]:
    """Score the predictions of each fold for its held-out docs. The models of the folds give the
    probabilities, and the component decodes entities from them. The docs are not changed, and the
    components after this one don't run."""
    examples: list[Example] = []
    for predictions_of_fold in predictions:
        # `predict` writes entities to docs, so it gets copies.
        docs = [eg.predicted.copy() for eg in predictions_of_fold.examples]
        predict(ner, docs, predictions_of_fold.posterior, ner.confidence)
        examples += replace_predicted(predictions_of_fold.examples, docs)
    scores = Scorer(nlp).score(examples)
    return dict(as_json(scores))
