"""The corpora that `fit` trains and evaluates with, and how it reports them."""

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
"""Is called when a corpus was read, with "train" or "dev" and how it was read."""


@dataclass(frozen=True)
class FitCorpora:
    """The corpora of a pipeline that `fit` trains.

    train (Iterable[Example]): An iterator that can be used once, unless docs are in memory.
    train_info (CorpusInfo): What the reader of the training corpus reports so far.
    dev (list[Example]): Empty without a development corpus.
    has_dev (bool): Whether the config has a development corpus.
    dev_source (str): The name of the development docs.
    notes (list[str]): What may make scores misleading, and which training docs are copies.
    summaries (Mapping[str, CorpusSummary]): How "train" and "dev" were read, as far as they are.
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
    """Initialize a pipeline, and read its corpora. The development docs are read before training,
    too, so that errors in them are found at once.

    linear (LinearPipeline): The pipeline, which isn't initialized yet.
    kept (KeptDocs): The docs of the training corpus, if they were read before.
    in_memory (bool): Whether the training docs are kept in memory. Otherwise they are read in
        training, and not reported here.
    file_tokens (bool): Whether development docs have the tokens and sentence starts of their file.
    on_corpus (OnCorpus): Called when a corpus was read.
    RAISES (ValueError): If a corpus can't be read, or doesn't fit the pipeline.
    """
    nlp, ner, _ = linear
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
        # Of several components, the first stands for all: they learn from the same docs.
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
    """Initialize a pipeline, and read its training corpus: see `prepare`.

    linear (LinearPipeline): The pipeline, which isn't initialized yet.
    kept (KeptDocs): The docs of the corpus, if they were read before.
    in_memory (bool): Whether the docs are kept in memory.
    RETURNS (tuple[Iterable[Example], CorpusInfo]): The examples, and what the reader reports.
    RAISES (ValueError): If the corpus can't be read, or doesn't fit the pipeline.
    """
    nlp, ner, _ = linear
    train_corpus, _ = find_corpora(nlp)
    train_corpus, train_info = with_info(train_corpus, ner.annotation.spans_key, kept)
    try:
        examples = prepare(linear, train_corpus, in_memory=in_memory)
    except ValueError:
        warn_of_problems(train_info)  # they may be the cause
        raise
    return examples, train_info


def ignore_corpus(name: str, corpus: CorpusSummary) -> None:
    """Do nothing when a corpus was read: the default of `fit`."""


def report_corpus(name: str, info: CorpusInfo, on_corpus: OnCorpus) -> CorpusSummary:
    """Report how a corpus was read: its problems are warnings."""
    corpus = info.summary()
    on_corpus(name, corpus)
    warn_of_problems(info)
    return corpus


def warn_of_problems(info: CorpusInfo) -> None:
    """Warn of what a corpus has, but docs can't have."""
    for problem in info.problems:
        warnings.warn(problem.as_text(), stacklevel=4)
