"""A config callback for starting training from the weights of a trained pipeline.

For example, a model trained with the likelihood can be trained further with a different loss.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.util import load_model
from thinc.api import Model

from ..ml import first_pass_of
from ..training.known_text import pack_ids
from .component import CostSensitiveNER


def make_start_from(
    path: str | Path, components: Sequence[str] | None = None
) -> Callable[[Language], Language]:
    """Create a callback that initializes components with the weights of a trained pipeline.

        [initialize.after_init]
        @callbacks = "spacy_costner.start_from.v1"
        path = "training/likelihood/model-best"

    Use this callback to change the loss. spaCy's `source` setting copies the whole component,
    including its original loss.

    path (str | Path): The trained pipeline: a directory or a package name.
    components (Sequence[str] | None): The names of the components to initialize, including the
        tok2vec that they listen to. If None, all components that have a model in both pipelines are
        initialized.
    RETURNS (Callable[[Language], Language]): The callback. It modifies the pipeline in place and
        returns it.
    RAISES (ValueError): In the callback, if a component is missing from one of the pipelines, or
        its labels, tags or model differ between the pipelines.
    """
    return partial(_start, path, components)


def _start(path: str | Path, components: Sequence[str] | None, nlp: Language) -> Language:
    """Copy the weights of components from a trained pipeline to `nlp` and return `nlp`. See
    `make_start_from` for the parameters and errors."""
    trained = load_model(path)
    models = _models(nlp)
    trained_models = _models(trained)
    if components is None:
        components = sorted(models.keys() & trained_models.keys())

    for name in components:
        where = f"spacy_costner.start_from: {path}: {name}"
        if name not in models or name not in trained_models:
            raise ValueError(f"{where}: expected a component with a model in both pipelines")
        # The weights can only be used for the tags that they were trained on.
        trained_settings = _tag_settings(trained, name)
        for setting, value in _tag_settings(nlp, name).items():
            trained_value = trained_settings[setting]
            if value != trained_value:
                raise ValueError(f"{where}: expected {setting} {value!r}, got {trained_value!r}")

        # The trained first pass may have seen the training docs. The folds haven't.
        first_pass = first_pass_of(models[name])
        keep_folds = nullcontext() if first_pass is None else first_pass.keep_folds()
        try:
            with keep_folds:
                models[name].from_bytes(trained_models[name].to_bytes())
        except Exception as error:
            raise ValueError(
                f"{where}: expected the model that the config describes: {error}"
            ) from error
        _keep_training_text(nlp.get_pipe(name), trained.get_pipe(name))
    return nlp


def _keep_training_text(pipe: Any, trained: Any) -> None:
    """Add the training passages of a trained component to the known text of a component. The raw
    text of static vectors isn't added, because the vectors aren't copied."""
    if isinstance(pipe, CostSensitiveNER) and isinstance(trained, CostSensitiveNER):
        passages = {*pipe.trained_on.tolist(), *trained.trained_on.tolist()}
        pipe.cfg["trained_on"] = pack_ids(passages)
        for name in ("n_recurring", "n_passages"):
            pipe.cfg[name] += trained.cfg[name]


def _tag_settings(nlp: Language, name: str) -> dict[str, Any]:
    """Return the settings that determine the tags of a component."""
    cfg = getattr(nlp.get_pipe(name), "cfg", {})
    return {
        "labels": nlp.pipe_labels.get(name),
        "scheme": cfg.get("scheme"),
        "outside": cfg.get("outside"),
    }


def _models(nlp: Language) -> dict[str, Model]:
    """Collect the models of a pipeline, keyed by component name. Components without a model are
    skipped."""
    models: dict[str, Model] = {}
    for name, pipe in nlp.pipeline:
        model = getattr(pipe, "model", None)
        if isinstance(model, Model):
            models[name] = model
    return models
