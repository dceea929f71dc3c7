"""What `fit` does before and after training: write a config, calibrate and tune."""

from pathlib import Path
from typing import List, NamedTuple, Optional

from ..saving import save_file, save_folder
from ..training import Fitted
from .calibrate import Calibration, calibrate
from .init import Corpora, look, make_plan, write_config
from .tune import Aim, Tuning, tune


class Improved(NamedTuple):
    """What was done after training.

    calibration (Optional[Calibration]): The result of `calibrate`.
    tuning (Optional[Tuning]): The result of `tune`.
    """

    calibration: Optional[Calibration] = None
    tuning: Optional[Tuning] = None

    def lines(self) -> List[str]:
        """What it came to, before -> after."""
        return [result.describe() for result in self if result is not None]


def parse_aim(text: str) -> Aim:
    """Read what to tune for.

    text (str): "f", or a required score such as "precision=0.9" or "recall=0.9".
    RETURNS (Aim): The aim.
    RAISES (ValueError): If it is none of these.
    """
    name, _, least = text.partition("=")
    try:
        if text == "f":
            return Aim()
        if name in ("precision", "recall") and 0 < float(least) < 1:
            return Aim(**{name: float(least)})
    except ValueError:
        pass
    raise ValueError(f"fit: --tune: expected f, precision=0.9 or recall=0.9, got {text!r}")


def write_fit_config(
    output_path: Path,
    model: str,
    lang: str,
    train_path: Optional[Path],
    dev_path: Optional[Path],
    *,
    aim: Optional[Aim] = None,
    command: str = "",
) -> Path:
    """Write the config that `init` writes for corpora to an output folder.

    output_path (Path): The folder. If it has another config already, that is kept.
    model (str): One of `init`'s models, of which `fit` trains the linear one.
    lang (str): The language.
    train_path (Optional[Path]), dev_path (Optional[Path]): The corpora, both needed.
    aim (Optional[Aim]): What the model will be tuned for.
    command (str): The command that makes it, for its head.
    RETURNS (Path): The config.
    RAISES (ValueError): If a corpus is missing, `fit` can't train the model, or there is another
        config.
    """
    if model != "linear":
        raise ValueError(
            f"fit: --model: expected linear, the only one that fit trains, got {model}: use "
            "`costner init` and `spacy train`"
        )
    for option, corpus in (("train", train_path), ("dev", dev_path)):
        if corpus is None:
            raise ValueError(
                f"fit: --{option}: expected a corpus if there is no config, got none: fit trains "
                "on --train, and evaluates, calibrates and tunes on --dev"
            )
    assert train_path is not None
    size = look(train_path, lang)
    wanted = aim or Aim()
    plan = make_plan(sentences=size.sentences, precision=wanted.precision, recall=wanted.recall)
    path = output_path / "config.cfg"
    text = write_config(
        plan, lang, Corpora(train_path, dev_path, size), command=command, path=str(path)
    )
    if path.exists() and path.read_text(encoding="utf8") != text:
        raise ValueError(
            f"{path}: expected the config of this command, got another: give it as the config, "
            "remove it, or choose another --output"
        )
    output_path.mkdir(parents=True, exist_ok=True)
    save_file(path, lambda new: new.write_text(text, encoding="utf8"))
    return path


def improve(fitted: Fitted, *, calibrated: bool, aim: Optional[Aim]) -> Improved:
    """Calibrate and tune a fitted pipeline on its development corpus, and save it again.

    fitted (Fitted): The pipeline.
    calibrated (bool): Whether to calibrate it.
    aim (Optional[Aim]): What to tune it for. None: it isn't tuned.
    RETURNS (Improved): The results.
    RAISES (ValueError): If there is no entity in the development docs, no value with the required
        score, or the decoding has nothing to tune.
    """
    nlp, dev = fitted.ready.nlp, fitted.dev
    name, paths = fitted.ready.ner.name, nlp.config.interpolate().get("paths", {})
    source = str(paths.get("dev") or "development docs")
    try:
        better = Improved(
            calibrate(nlp, dev, name=name, source=source) if calibrated else None,
            None if aim is None else tune(nlp, dev, name=name, aim=aim, source=source),
        )
    except ValueError as error:
        kept = f"{fitted.path} is trained, but neither calibrated nor tuned"
        raise ValueError(f"{error}\n{kept}") from error
    save_folder(fitted.path, nlp.to_disk)
    return better
