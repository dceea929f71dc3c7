"""A `spacy train` logger for hybrid models, which combine a linear part with a Tok2Vec. The linear
part is trained during initialization, before the first step of `spacy train`."""

import sys
from collections.abc import Callable
from typing import IO, Any

from spacy.language import Language
from spacy.training.loggers import console_logger
from wasabi import Printer

NOTHING_LEARNED = """\
The hybrid is no better than its linear part, with which training began: no evaluation was better
than the first. A linear model is as good, smaller and faster: `python -m spacy costner fit`.\
"""

LogStep = Callable[[dict[str, Any] | None], None]
"""Log a training step. The argument contains the scores and other information if the step was
followed by an evaluation. Otherwise, it is None."""

Finish = Callable[[], None]
"""Finish logging."""


def make_hybrid_logger() -> Callable[..., tuple[LogStep, Finish]]:
    """Create a logger for a hybrid model whose linear part is trained during initialization. It
    extends spaCy's ConsoleLogger with a final warning if no score was higher than the first, which
    means that the hybrid is no better than its linear part.

        [training.logger]
        @loggers = "spacy_costner.HybridLogger.v1"
    """
    console = console_logger()

    def setup(
        nlp: Language, stdout: IO = sys.stdout, stderr: IO = sys.stderr
    ) -> tuple[LogStep, Finish]:
        """Set up the logger. Called by `spacy train`."""
        log_to_console, finish_console = console(nlp, stdout, stderr)
        scores: list[float] = []

        def log_step(info: dict[str, Any] | None) -> None:
            if info is not None:  # None for steps without an evaluation
                scores.append(info["score"])
            log_to_console(info)

        def finish() -> None:
            """Finish logging and compare the best score with the first. The first score is measured
            after a single step, so it is close to the score of the linear part."""
            finish_console()
            if len(scores) > 1 and max(scores) == scores[0]:
                warning = Printer(no_print=True).warn(NOTHING_LEARNED)
                stdout.write(f"{warning}\n")
                stdout.flush()

        return log_step, finish

    return setup
