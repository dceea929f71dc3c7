"""A callback for configs that starts training from the weights of a trained pipeline.

For example, a model that was trained with the likelihood can continue training with another loss.
"""

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

    spaCy's `source = …` in the block of a component isn't enough for another loss: it copies the
    whole component, with its old loss.

    path (str | Path): The trained pipeline: a folder or the name of a package.
    components (Sequence[str] | None): The components that get the weights of the trained pipeline.
        Name the tok2vec that they listen to, too. None: all components with a model whose names are
        in both pipelines.
    RETURNS (Callable[[Language], Language]): The callback. It changes the pipeline and returns it.
    RAISES (ValueError): In the callback, if a named component is missing in one of the two
        pipelines, or has other labels, other tags or another model in the trained one.
    """
    return partial(_start, path, components)


def _start(path: str | Path, components: Sequence[str] | None, nlp: Language) -> Language:
    """Copy the weights of components from a trained pipeline to `nlp`, and return `nlp`. For the
    parameters and errors see `make_start_from`."""
    trained = load_model(path)
    models = _models(nlp)
    trained_models = _models(trained)
    if components is None:
        components = sorted(models.keys() & trained_models.keys())

    for name in components:
        where = f"spacy_costner.start_from: {path}: {name}"
        if name not in models or name not in trained_models:
            raise ValueError(f"{where}: expected a component with a model in both pipelines")
        # The weights fit only the tags that they were trained for.
        trained_settings = _tag_settings(trained, name)
        for setting, value in _tag_settings(nlp, name).items():
            trained_value = trained_settings[setting]
            if value != trained_value:
                raise ValueError(f"{where}: expected {setting} {value!r}, got {trained_value!r}")

        try:
            models[name].from_bytes(trained_models[name].to_bytes())
        except Exception as error:
            raise ValueError(
                f"{where}: expected the model that the config describes: {error}"
            ) from error
        _keep_training_text(nlp.get_pipe(name), trained.get_pipe(name))
    return nlp


def _keep_training_text(pipe: Any, trained: Any) -> None:
    """Add the training passages of a trained component to the known text of a component. The raw
    text of static vectors isn't added, as the component keeps its own vectors."""
    if isinstance(pipe, CostSensitiveNER) and isinstance(trained, CostSensitiveNER):
        passages = {*pipe.trained_on.tolist(), *trained.trained_on.tolist()}
        pipe.cfg["trained_on"] = pack_ids(passages)
        for name in ("n_recurring", "n_passages"):
            pipe.cfg[name] += trained.cfg[name]


def _tag_settings(nlp: Language, name: str) -> dict[str, Any]:
    """The settings of a component on which its tags depend."""
    cfg = getattr(nlp.get_pipe(name), "cfg", {})
    return {
        "labels": nlp.pipe_labels.get(name),
        "scheme": cfg.get("scheme"),
        "outside": cfg.get("outside"),
    }


def _models(nlp: Language) -> dict[str, Model]:
    """The models of the components of a pipeline, keyed by component name. Components without a
    model are left out."""
    models: dict[str, Model] = {}
    for name, pipe in nlp.pipeline:
        model = getattr(pipe, "model", None)
        if isinstance(model, Model):
            models[name] = model
    return models
