"""The logger of `spacy train` for a hybrid: a model with a linear part next to a Tok2Vec. The
linear part is trained at initialization, before the first step of `spacy train`."""

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
"""Logs a step of training. Its argument has the scores and other numbers after a step with an
evaluation, and is None after other steps."""

Finish = Callable[[], None]
"""Ends the log."""


def make_hybrid_logger() -> Callable[..., tuple[LogStep, Finish]]:
    """Build the logger of a hybrid whose linear part is trained at initialization. It is spaCy's
    ConsoleLogger. If no later evaluation was better than the first, it also says at the end that
    the hybrid is no better than its linear part.

        [training.logger]
        @loggers = "spacy_costner.HybridLogger.v1"
    """
    console = console_logger()

    def setup(
        nlp: Language, stdout: IO = sys.stdout, stderr: IO = sys.stderr
    ) -> tuple[LogStep, Finish]:
        """Begin the log. `spacy train` calls this function."""
        log_to_console, finish_console = console(nlp, stdout, stderr)
        scores: list[float] = []

        def log_step(info: dict[str, Any] | None) -> None:
            if info is not None:  # it is None after steps without an evaluation
                scores.append(info["score"])
            log_to_console(info)

        def finish() -> None:
            """End the log, and compare the best evaluation with the first. As the first is made
            after a single step, it is nearly the evaluation of the linear part."""
            finish_console()
            if len(scores) > 1 and max(scores) == scores[0]:
                warning = Printer(no_print=True).warn(NOTHING_LEARNED)
                stdout.write(f"{warning}\n")
                stdout.flush()

        return log_step, finish

    return setup
