"""Training that starts from a trained pipeline, with another loss."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.util import load_model
from thinc.api import Model

from ..training.known_text import pack_ids
from .component import CostSensitiveNER


def make_start_from(
    path: str | Path, components: Sequence[str] | None = None
) -> Callable[[Language], Language]:
    """Build a callback that starts training from the weights of a trained pipeline.

        [initialize.after_init]
        @callbacks = "spacy_costner.start_from.v1"
        path = "training/likelihood/model-best"

    `source = …` in the block of a component takes the whole component, with the loss that it was
    trained with.

    path (str | Path): The trained pipeline: a folder or the name of a package.
    components (Sequence[str] | None): The components to start from there, with those that
        they listen to. If left out: all with a model that have their names in both.
    RAISES (ValueError): In the callback, if the trained pipeline lacks a component, or has other
        labels, other tags or another model.
    """
    return partial(_start, path, components)


def _start(path: str | Path, components: Sequence[str] | None, nlp: Language) -> Language:
    """Give components of a pipeline the weights that they have in a trained one."""
    trained = load_model(path)
    models = _models(nlp)
    trained_models = _models(trained)
    if components is None:
        components = sorted(models.keys() & trained_models.keys())

    for name in components:
        where = f"spacy_costner.start_from: {path}: {name}"
        if name not in models or name not in trained_models:
            raise ValueError(f"{where}: expected a component with a model in both pipelines")
        # The same weights for other tags would be of no use.
        trained_settings = _tag_settings(trained, name)
        for setting, value in _tag_settings(nlp, name).items():
            trained_value = trained_settings[setting]
            if value != trained_value:
                raise ValueError(f"{where}: expected {setting} {value!r}, got {trained_value!r}")

        try:
            models[name].from_bytes(trained_models[name].to_bytes())
        except Exception as error:
            raise ValueError(f"{where}: expected a model as in the config: {error}") from error
        _keep_training_text(nlp.get_pipe(name), trained.get_pipe(name))
    return nlp


def _keep_training_text(pipe: Any, trained: Any) -> None:
    """Have a component know what the other one was trained on, too. Vectors are those of the
    component itself, and so is their raw text."""
    if isinstance(pipe, CostSensitiveNER) and isinstance(trained, CostSensitiveNER):
        sentence_ids = {*pipe.trained_on.tolist(), *trained.trained_on.tolist()}
        pipe.cfg["trained_on"] = pack_ids(sentence_ids)


def _tag_settings(nlp: Language, name: str) -> dict[str, Any]:
    """The settings of a component that define its tags."""
    cfg = getattr(nlp.get_pipe(name), "cfg", {})
    return {
        "labels": nlp.pipe_labels.get(name),
        "scheme": cfg.get("scheme"),
        "outside": cfg.get("outside"),
    }


def _models(nlp: Language) -> dict[str, Model]:
    """The models of a pipeline's components."""
    models: dict[str, Model] = {}
    for name, pipe in nlp.pipeline:
        model = getattr(pipe, "model", None)
        if isinstance(model, Model):
            models[name] = model
    return models
