"""Suggest the next steps to the user of an annotation session."""

import shlex

from .session_training import ENOUGH_EVALUATION_TEXTS, LEAST_TEXTS
from .session_vectors import RAW_FILE
from .store import AnnotationStore


def advice(*, n_train: int, n_measured: int, n_waiting: int, has_texts: bool) -> str:
    """Suggest what to do next.

    n_train (int): The number of annotated training texts.
    n_measured (int): The number of annotated evaluation texts.
    n_waiting (int): The number of evaluation texts without an answer.
    has_texts (bool): Whether the store contains texts. This is False if the texts come from Label
        Studio, in which case the store only contains answers.
    RETURNS (str): A sentence to show to the user.
    """
    if n_train < LEAST_TEXTS:
        n_more = LEAST_TEXTS - n_train
        return f"Annotate {n_more} more texts for a first model. Evaluation texts don't count."
    n_missing = ENOUGH_EVALUATION_TEXTS - n_measured
    if has_texts and n_missing > n_waiting:
        return f"Add texts: calibration requires {ENOUGH_EVALUATION_TEXTS} evaluation texts."
    if n_missing > 0:
        return f"Annotate {n_missing} more evaluation texts to calibrate on them."
    # The page shows the output of `next_command` below this sentence.
    return "Calibrate and tune on the evaluation texts:"


def next_command(store: AnnotationStore, *, lang: str, n_measured: int) -> str:
    """Create the command to run next, which users can copy from the page to a terminal.

    store (AnnotationStore): The store of the session.
    lang (str): Language code.
    n_measured (int): The number of annotated evaluation texts.
    RETURNS (str): The command with its options.
    """
    options = ["--lang", lang, "--train", str(store.train_path)]
    if n_measured >= ENOUGH_EVALUATION_TEXTS:
        options += ["--dev", str(store.measure_path)]
    raw_path = store.folder / RAW_FILE
    if raw_path.exists():
        options += ["--raw", str(raw_path)]
    options += ["--output", "training", "--calibrate", "--tune", "f"]
    return f"python -m spacy costner fit {shlex.join(options)}"
