"""Statistics of the training corpus, which determine settings in the config."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import spacy
from spacy.attrs import NORM
from spacy.language import Language
from spacy.tokens import Doc, Span

from ...readers import DEFAULTS, KeptDocs, ReadOptions, read_docs
from ...training.soft_targets import count_expected_entities
from ..corpora import FEW_SENTENCES, count_sentences

SPACY_EMBED_ROWS = 5000
"""The number of rows of the word form embeddings in spaCy's default configs."""


@dataclass(frozen=True)
class CorpusStatistics:
    """The properties of a training corpus, which determine settings in the config. The defaults
    represent an unknown corpus, which is assumed to be large.

    doc_lengths (Sequence[int]): The number of tokens of each doc.
    n_sentences (float): The number of sentences.
    n_word_forms (int): The number of distinct token norms.
    label_counts (Counter[str]): The number of spans of each label, including the expected number of
        spans in soft targets.
    overlaps (Counter[tuple[str, str]]): The number of pairs of overlapping spans, keyed by their
        labels. A DRUG that overlaps with a DOSE is counted twice: for ("DRUG", "DOSE") and for
        ("DOSE", "DRUG").
    """

    doc_lengths: Sequence[int] = ()
    n_sentences: float = math.inf
    n_word_forms: int = SPACY_EMBED_ROWS
    label_counts: Counter[str] = field(default_factory=Counter)
    overlaps: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def is_small(self) -> bool:
        """Whether the corpus has so few sentences that a linear model is trained on all of them at
        once with L-BFGS."""
        return self.n_sentences < FEW_SENTENCES


def measure_corpus(
    path: Path | None,
    lang: str = "en",
    spans_key: str | None = None,
    reading: ReadOptions = DEFAULTS,
    kept: KeptDocs | None = None,
) -> CorpusStatistics:
    """Compute the statistics of a training corpus.

    path (Path | None): The corpus, in any format. None if there is no corpus.
    lang (str): The language code.
    spans_key (str | None): The key of the spans to count in `doc.spans`. If None, the entities in
        `doc.ents` are counted.
    reading (ReadOptions): Options for reading the corpus.
    kept (KeptDocs | None): See `make_config`.
    RAISES (ValueError): If the corpus can't be read, or has no spans or entities to count.
    """
    if path is None:
        return CorpusStatistics()
    doc_lengths: list[int] = []
    label_counts: Counter[str] = Counter()
    expected_counts: Counter[str] = Counter()  # expected entities in soft targets
    overlaps: Counter[tuple[str, str]] = Counter()
    n_sentences = 0
    word_forms: set[int] = set()  # hashes of token norms
    filled_keys: set[str] = set()  # keys of non-empty span groups
    options = replace(reading, spans_key=spans_key)
    read: Callable[[Language, Path, ReadOptions], Iterable[Doc]]
    read = read_docs if kept is None else kept.read
    for doc in read(spacy.blank(lang), path, options):
        doc_lengths.append(len(doc))
        n_sentences += count_sentences(doc)
        word_forms.update(doc.to_array(NORM).tolist())
        for key, group in doc.spans.items():
            if len(group):
                filled_keys.add(key)
        spans = doc.ents
        if spans_key is not None:
            # A span group may contain duplicates, and spans in any order.
            spans = sorted(set(doc.spans.get(spans_key, ())))
        label_counts.update(span.label_ for span in spans)
        count_overlaps(spans, overlaps)
        if spans_key is None:
            expected_counts.update(count_expected_entities(doc))
    for label, n in expected_counts.items():
        label_counts[label] += max(round(n), 1)
    if not label_counts:
        message = no_spans_message(len(doc_lengths), spans_key, filled_keys)
        raise ValueError(f"{path}: {message}")
    return CorpusStatistics(
        doc_lengths=doc_lengths,
        n_sentences=n_sentences,
        n_word_forms=len(word_forms),
        label_counts=label_counts,
        overlaps=overlaps,
    )


def no_spans_message(n_docs: int, spans_key: str | None, filled_keys: Iterable[str]) -> str:
    """Create the error message for a corpus without spans in `doc.spans[spans_key]` or, if the key
    is None, in `doc.ents`. `filled_keys` are the keys of `doc.spans` that contain spans in at least
    one doc."""
    if spans_key is not None:
        return f"expected docs with entities in doc.spans[{spans_key!r}], got none in {n_docs} docs"
    # Overlapping entities can't be stored in `doc.ents`, but may be in a span group.
    key = min(filled_keys, default="sc")  # the default of spaCy's SpanCategorizer
    return (
        f"expected docs with entities, got none in {n_docs} docs. If entities overlap, write a "
        f"config with `init` and `spans_key` {key}, and train with that config"
    )


def count_overlaps(spans: Sequence[Span], overlaps: Counter[tuple[str, str]]) -> None:
    """Count the pairs of overlapping spans in a doc by their labels: see `CorpusStatistics`. The
    spans must be sorted."""
    for i, span in enumerate(spans):
        for later_span in spans[i + 1 :]:
            if later_span.start >= span.end:
                break  # all following spans start even later
            overlaps[span.label_, later_span.label_] += 1
            # Pairs with different labels are counted in both orders.
            if later_span.label_ != span.label_:
                overlaps[later_span.label_, span.label_] += 1
