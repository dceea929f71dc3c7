"""Read the corpora that `fit` uses for training and evaluation, and report on them."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from spacy.training import Example

from ...progress import progress
from ...readers import CorpusInfo, CorpusSummary, KeptDocs, examples_to_measure, with_info
from ..corpora import find_corpora
from ..evaluation.recurrence import note_copies
from ..evaluation.valid_data import find_faults
from .linear_training import LinearPipeline, prepare

OnCorpus = Callable[[str, CorpusSummary], None]
"""Callback that is called after a corpus is read, with "train" or "dev" and a summary of the
corpus."""


@dataclass(frozen=True)
class FitCorpora:
    """The corpora of a pipeline that is trained by `fit`.

    train (Iterable[Example]): The training examples. Can only be iterated over once, unless the
        docs are in memory.
    train_info (CorpusInfo): The information reported by the reader of the training corpus so far.
    dev (list[Example]): The development examples. Empty if there is no development corpus.
    has_dev (bool): Whether the config has a development corpus.
    dev_source (str): The name of the development docs.
    notes (list[str]): Reasons why scores may be misleading, and a note if many training docs are
        copies.
    summaries (Mapping[str, CorpusSummary]): The summaries of "train" and "dev", if already read.
    """

    train: Iterable[Example]
    train_info: CorpusInfo
    dev: list[Example]
    has_dev: bool
    dev_source: str
    notes: list[str]
    summaries: Mapping[str, CorpusSummary]


def read_corpora(
    linear: LinearPipeline,
    kept: KeptDocs,
    *,
    in_memory: bool,
    file_tokens: bool,
    on_corpus: OnCorpus,
) -> FitCorpora:
    """Initialize a pipeline and read its corpora. The development docs are also read before
    training, to detect errors in them early.

    linear (LinearPipeline): The uninitialized pipeline.
    kept (KeptDocs): The docs of the training corpus, if already read.
    in_memory (bool): Whether to keep the training docs in memory. Otherwise, they are read during
        training and aren't reported here.
    file_tokens (bool): Whether to use the tokens and sentence starts of the development file.
    on_corpus (OnCorpus): Callback that is called after each corpus is read.
    RAISES (ValueError): If a corpus can't be read or isn't suitable for the pipeline.
    """
    nlp, ner, _, _ = linear
    examples, train_info = read_training_corpus(linear, kept, in_memory=in_memory)
    _, dev_corpus = find_corpora(nlp)
    paths = nlp.config.interpolate().get("paths", {})
    summaries: dict[str, CorpusSummary] = {}
    notes: list[str] = []
    if in_memory:
        summaries["train"] = report_corpus("train", train_info, on_corpus)

    dev: list[Example] = []
    dev_source = str(paths.get("dev") or "development docs")
    if dev_corpus is not None:
        dev_corpus, dev_info = with_info(dev_corpus, ner.annotation.spans_key)
        dev_examples = examples_to_measure(nlp, dev_corpus, file_tokens=file_tokens)
        dev = list(progress(dev_examples, desc="read dev", unit="doc"))
        summaries["dev"] = report_corpus("dev", dev_info, on_corpus)
        # Only check the first component, because all of them are trained on the same docs.
        notes = find_faults(nlp, ner, dev, dev_source)
    if in_memory:
        train_source = str(paths.get("train") or "training docs")
        notes += note_copies((eg.reference for eg in examples), train_source)
    return FitCorpora(
        train=examples,
        train_info=train_info,
        dev=dev,
        has_dev=dev_corpus is not None,
        dev_source=dev_source,
        notes=notes,
        summaries=summaries,
    )


def read_training_corpus(
    linear: LinearPipeline, kept: KeptDocs, *, in_memory: bool = True
) -> tuple[Iterable[Example], CorpusInfo]:
    """Initialize a pipeline and read its training corpus: see `prepare`.

    linear (LinearPipeline): The uninitialized pipeline.
    kept (KeptDocs): The docs of the corpus, if already read.
    in_memory (bool): Whether to keep the docs in memory.
    RETURNS (tuple[Iterable[Example], CorpusInfo]): The examples, and the information reported by
        the reader.
    RAISES (ValueError): If the corpus can't be read or isn't suitable for the pipeline.
    """
    nlp, ner, _, _ = linear
    train_corpus, _ = find_corpora(nlp)
    train_corpus, train_info = with_info(train_corpus, ner.annotation.spans_key, kept)
    try:
        examples = prepare(linear, train_corpus, in_memory=in_memory)
    except ValueError:
        warn_of_problems(train_info)  # a possible cause of the error
        raise
    return examples, train_info


def ignore_corpus(name: str, corpus: CorpusSummary) -> None:
    """Do nothing after reading a corpus. Default callback of `fit`."""


def report_corpus(name: str, info: CorpusInfo, on_corpus: OnCorpus) -> CorpusSummary:
    """Report how a corpus was read, and warn about problems in it. Returns a summary of the
    corpus."""
    corpus = info.summary()
    on_corpus(name, corpus)
    warn_of_problems(info)
    return corpus


def warn_of_problems(info: CorpusInfo) -> None:
    """Warn about content in a corpus that docs can't represent."""
    for problem in info.problems:
        warnings.warn(problem.as_text(), stacklevel=4)
