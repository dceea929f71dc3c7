"""What `fit` does before and after training: write a config, calibrate and tune."""

from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from spacy.language import Language
from spacy.scorer import Scorer
from spacy.training import Example

from ..metrics import as_json
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..saving import save_file, save_folder
from ..training import Fitted, Preparation, describe_scores, has_dev
from .calibrate import Calibration, calibrate_on
from .cross_fit import hold_out
from .dev_predictions import DevPredictions, predict, predict_dev, record_scores
from .init import Corpora, look, make_plan, write_config
from .tune import Aim, Tuning, check_parameter, tune_on

N_FOLDS = 4
HELD_OUT = f"{N_FOLDS} held-out folds of the training corpus"


class Improved(NamedTuple):
    """What was done after training.

    calibration (Optional[Calibration]): The result of `calibrate`.
    tuning (Optional[Tuning]): The result of `tune`.
    held_out (Optional[Mapping[str, Any]]): Without a development corpus: the scores before, on
        held-out folds.
    """

    calibration: Optional[Calibration] = None
    tuning: Optional[Tuning] = None
    held_out: Optional[Mapping[str, Any]] = None

    def lines(self) -> List[str]:
        """What it came to, before -> after."""
        lines = [] if self.held_out is None else [f"{HELD_OUT}: {describe_scores(self.held_out)}"]
        for result in (self.calibration, self.tuning):
            lines += [] if result is None else [result.describe()]
        return lines


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
    train_path (Optional[Path]), dev_path (Optional[Path]): The corpora; the first is needed.
    aim (Optional[Aim]): What the model will be tuned for.
    command (str): The command that makes it, for its head.
    RETURNS (Path): The config.
    RAISES (ValueError): If the corpus is missing, `fit` can't train the model, or there is another
        config.
    """
    if model != "linear":
        raise ValueError(
            f"fit: --model: expected linear, the only one that fit trains, got {model}: use "
            "`costner init` and `spacy train`"
        )
    if train_path is None:
        raise ValueError("fit: --train: expected a corpus if there is no config, got none")
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


def improve(fitted: Fitted, *, calibrated: bool, aim: Optional[Aim], n_seeds: int = 1) -> Improved:
    """Calibrate and tune a fitted pipeline on its development corpus, or if it has none on
    held-out folds of the training corpus, and save it again.

    fitted (Fitted): The pipeline.
    calibrated (bool): Whether to calibrate it.
    aim (Optional[Aim]): What to tune it for. None: it isn't tuned.
    n_seeds (int): Number of trainings of the models of folds.
    RETURNS (Improved): The results.
    RAISES (ValueError): If there is no entity in the development docs, no value with the required
        score, or the decoding has nothing to tune.
    """
    ready, dev, is_held_out = fitted.ready, fitted.dev, not has_dev(fitted.ready.nlp)
    nlp, ner, name = ready.nlp, ready.ner, ready.ner.name
    calibration, tuning = None, None
    try:
        parameter = "" if aim is None else check_parameter(nlp, name)
        devs = held_out(ready, n_seeds) if is_held_out else [predict_dev(nlp, name, dev)]
        before = score(nlp, ner, devs) if is_held_out else None
        if calibrated:
            calibration = calibrate_on(devs, nlp, name)
            devs = [each.at(calibration.temperature) for each in devs]
        if aim is not None:
            tuning = tune_on(devs, nlp, name, parameter=parameter, aim=aim)
    except ValueError as error:
        kept = f"{fitted.path} is trained, but neither calibrated nor tuned"
        raise ValueError(f"{error}\n{kept}") from error
    if is_held_out:
        n_docs = sum(len(each.examples) for each in devs)
        record_scores(nlp, score(nlp, ner, devs), HELD_OUT, n_docs)
    else:
        source = nlp.config.interpolate().get("paths", {}).get("dev")
        record_scores(nlp, nlp.evaluate(dev), str(source or "development docs"), len(dev))
    save_folder(fitted.path, nlp.to_disk)
    return Improved(calibration, tuning, before)


def held_out(ready: Preparation, n_seeds: int) -> List[DevPredictions]:
    """The predictions for folds of a training corpus, by models that were trained on the others."""
    examples = [eg for eg in ready.examples if len(eg.predicted)]
    settings: Dict[str, Any] = {"n_folds": N_FOLDS, "n_seeds": n_seeds}
    with progress(desc="held-out folds", unit="fold", total=N_FOLDS) as bar:
        folds = hold_out(
            ready.nlp.config, examples, ready.ner.labels, **settings, on_fold=bar.update
        )
    return [fold.dev for fold in folds]


def score(nlp: Language, ner: CostSensitiveNER, devs: Sequence[DevPredictions]) -> Dict[str, Any]:
    """Score what a component predicts by posteriors that others have computed."""
    examples: List[Example] = []
    for dev in devs:
        copies = [Example(eg.predicted.copy(), eg.reference) for eg in dev.examples]
        predict(ner, dev._replace(examples=copies), ner.confidence)
        examples += copies
    scores: Dict[str, Any] = as_json(Scorer(nlp).score(examples))
    return scores
