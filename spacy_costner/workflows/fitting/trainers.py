"""Train the pipeline of any config, with `fit` if possible, otherwise as in `spacy train`."""

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
    """Train and save a pipeline, with `fit` if possible (see `can_be_fitted`), otherwise as in
    `spacy train`.

    config (Config): A config for `spacy train` with interpolated variables.
    output_path (Path): The output folder.
    log (IO[str]): The file for messages about training.
    n_seeds (int): The number of training runs with `fit`. The weights are averaged.
    use_gpu (int): GPU ID, or -1 for CPU. `fit` always trains on CPU.
    RETURNS (Path): The folder of the trained pipeline.
    RAISES (KeyboardInterrupt): If training or evaluation by `fit` was interrupted.
    """
    if can_be_fitted(config):
        fitted = fit(config, output_path, n_seeds=n_seeds)
        if fitted.is_interrupted:
            raise KeyboardInterrupt
        log.write(fitted.as_text() + "\n")
        return fitted.path
    nlp = init_nlp(config, use_gpu=use_gpu)
    if log.isatty():
        # spaCy prints a table of scores, which shows the progress of training.
        train(nlp, output_path, use_gpu=use_gpu, stdout=log, stderr=log)
    else:
        with updates_shown(nlp):
            train(nlp, output_path, use_gpu=use_gpu, stdout=log, stderr=log)
    return output_path / DIR_MODEL


@contextmanager
def updates_shown(nlp: Language) -> Iterator[None]:
    """Context manager that shows a progress bar for the updates of a pipeline. Used if the training
    log isn't written to the terminal."""
    training = nlp.config.interpolate()["training"]
    update = nlp.update
    total = None
    if training["max_steps"]:
        # spaCy's steps range from 0 to max_steps, inclusive. A step consists of several updates if
        # gradients are accumulated.
        n_steps = training["max_steps"] + 1
        total = n_steps * training["accumulate_gradient"]
    bar = progress(desc="train", unit="update", total=total)

    def update_and_count(*args: Any, **kwargs: Any) -> dict[str, float]:
        """Call `nlp.update` and advance the progress bar."""
        losses = update(*args, **kwargs)
        bar.update()
        return losses

    # spaCy has no callback after an update, so temporarily override the method with an instance
    # attribute.
    vars(nlp)["update"] = update_and_count
    try:
        with bar:
            yield
    finally:
        del vars(nlp)["update"]
