"""Train the pipeline of any config: by `fit` or, if it can't, as `spacy train` does."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from spacy.language import Language
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from thinc.api import Config

from ...progress import progress
from ..config.trainable import can_be_fitted
from .fitting import DIR_MODEL, fit


def train_pipeline(
    config: Config, output_path: Path, log: IO[str], *, n_seeds: int = 1, use_gpu: int = -1
) -> Path:
    """Train and save a pipeline: by `fit` if it can (see `can_be_fitted`), otherwise as `spacy
    train` does.

    config (Config): A config for `spacy train`, with variables filled in.
    output_path (Path): The folder for the pipeline.
    log (IO[str]): The file to which messages about training are written.
    n_seeds (int): How many times `fit` trains. The weights are averaged.
    use_gpu (int): GPU ID or -1 for CPU. `fit` always trains on the CPU.
    RETURNS (Path): The folder of the trained pipeline.
    RAISES (KeyboardInterrupt): If somebody stopped `fit`, in training or in evaluation.
    """
    if can_be_fitted(config):
        fitted = fit(config, output_path, n_seeds=n_seeds)
        if fitted.is_interrupted:
            raise KeyboardInterrupt
        log.write(fitted.as_text() + "\n")
        return fitted.path
    nlp = init_nlp(config, use_gpu=use_gpu)
    if log.isatty():
        # spaCy prints a table of the scores, which shows how far training is.
        train(nlp, output_path, use_gpu=use_gpu, stdout=log, stderr=log)
    else:
        with updates_shown(nlp):
            train(nlp, output_path, use_gpu=use_gpu, stdout=log, stderr=log)
    return output_path / DIR_MODEL


@contextmanager
def updates_shown(nlp: Language) -> Iterator[None]:
    """In a `with` block, show a progress bar that counts the updates of a pipeline. It is for
    trainings whose log isn't on the terminal."""
    training = nlp.config.interpolate()["training"]
    update = nlp.update
    total = None
    if training["max_steps"]:
        # spaCy counts steps from 0 up to max_steps, and both are done. A step is one update or, if
        # gradients are accumulated, several.
        n_steps = training["max_steps"] + 1
        total = n_steps * training["accumulate_gradient"]
    bar = progress(desc="train", unit="update", total=total)

    def update_and_count(*args: Any, **kwargs: Any) -> dict[str, float]:
        """Update the pipeline as `nlp.update` does, and count it."""
        losses = update(*args, **kwargs)
        bar.update()
        return losses

    # spaCy has no callback after an update, so the method is replaced: an attribute of the object
    # hides the method of its class until it is deleted.
    vars(nlp)["update"] = update_and_count
    try:
        with bar:
            yield
    finally:
        del vars(nlp)["update"]
