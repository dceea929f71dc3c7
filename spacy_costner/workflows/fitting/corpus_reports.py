"""How `fit` reports the corpora that it reads."""

import warnings
from collections.abc import Callable

from ...readers import (
    CorpusInfo,
    CorpusSummary,
)


def ignore_corpus(name: str, corpus: CorpusSummary) -> None:
    """Do nothing when a corpus was read: the default of `fit`."""


def report_corpus(
    name: str, info: CorpusInfo, on_corpus: Callable[[str, CorpusSummary], None]
) -> CorpusSummary:
    """Report how a corpus was read: its problems are warnings. See `fit` for `on_corpus`."""
    corpus = info.summary()
    on_corpus(name, corpus)
    warn_of_problems(info)
    return corpus


def warn_of_problems(info: CorpusInfo) -> None:
    """Warn of what a corpus has, but docs can't have."""
    for problem in info.problems:
        warnings.warn(problem.as_text(), stacklevel=4)
