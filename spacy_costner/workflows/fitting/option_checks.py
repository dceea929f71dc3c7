"""Check whether the options of `fit` can be combined with each other and with the config."""

from typing import Any

from spacy.language import Language
from spacy.util import dot_to_object

from ...ml import linear_part
from ...pipeline.component import CostSensitiveNER
from ..config.trainable import components_to_fit
from ..corpora import lacks_path
from .folds import SEEN_BY_START
from .linear_training import LinearPipeline


def check_fit_options(
    linear: LinearPipeline,
    *,
    needs_improvement: bool,
    file_tokens: bool,
    has_cache: bool,
    n_seeds: int,
) -> None:
    """Check before training whether the options of `fit` can be combined with each other and with
    the config.

    linear (LinearPipeline): The pipeline.
    needs_improvement (bool): Whether to calibrate or tune the pipeline.
    file_tokens (bool): Whether to use the tokens of the development file.
    has_cache (bool): Whether features are cached.
    n_seeds (int): The number of training runs for each component.
    RAISES (ValueError): If the options can't be combined.
    """
    nlp, _, training, sourced = linear
    ners = components_to_fit(nlp, training["frozen_components"])
    has_dev = not lacks_path(nlp.config.interpolate(), training["dev_corpus"])
    if len(ners) > 1 and (needs_improvement or has_cache):
        raise ValueError(
            "fit: `calibrate`, `tune`, `cache`: expected one component to train, got "
            f"{[ner.name for ner in ners]}: calibrate and tune each of them afterwards, by its "
            "`name`"
        )
    if file_tokens and not has_dev:
        raise ValueError(
            "fit: `file_tokens`: expected a development corpus, got none: held-out training docs "
            "are read in the same way as training docs"
        )
    needs_folds = needs_improvement and not has_dev
    # This callback may load the weights of a model that has seen all training docs. Then the docs
    # of a fold wouldn't be new to the model trained on the other folds.
    if needs_folds and nlp.config["initialize"]["after_init"] is not None:
        raise ValueError(f"fit: initialize.after_init: {SEEN_BY_START}")
    sourced_ners = [ner.name for ner in ners if ner.name in sourced]
    if needs_folds and sourced_ners:
        raise ValueError(f"fit: components.{sourced_ners[0]}.source: {SEEN_BY_START}")
    if needs_folds and has_cache:
        raise ValueError(
            "fit: paths.dev: expected a development corpus with `cache` and `calibrate` or "
            "`tune`, got none: docs of the training corpus can't be held out"
        )
    if has_cache:
        check_cache(nlp, ners[0], n_seeds)


def check_cache(nlp: Language, ner: CostSensitiveNER, n_seeds: int) -> None:
    """Check that all settings of the component to train are compatible with a cache. With a cache,
    docs are read twice and not kept."""
    features, _ = linear_part(ner.model)
    corpus_name = nlp.config["training"]["train_corpus"]
    corpus = dot_to_object(nlp.config.interpolate(), corpus_name)
    component = f"components.{ner.name}"
    if n_seeds > 1 and features.template.hidden_window is not None:
        raise ValueError(
            "fit: `n_seeds`: expected 1 with `cache` and a hidden layer "
            f"({component}.model.hidden), got {n_seeds}: the layer would be trained after all of "
            "them, on docs in memory"
        )
    # The first three settings require docs or the whole corpus in memory. The others change the
    # docs each time they are read.
    refused: dict[str, Any] = {
        f"{component}.incorrect_spans_key": ner.annotation.incorrect_spans_key,
        f"{component}.model.features.bigrams": features.template.bigrams,
        f"{component}.model.features.document": features.template.document,
        f"{corpus_name}.augmenter": corpus.get("augmenter"),
        f"{corpus_name}.shuffle": corpus.get("shuffle"),
    }
    for setting, value in refused.items():
        if value:
            raise ValueError(
                f"fit: {setting}: expected no value with `cache`, which reads docs twice and "
                f"doesn't keep them, got {value}"
            )
