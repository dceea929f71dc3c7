"""Collect the vocabulary of features from docs."""

from collections import Counter
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.util import minibatch
from spacy.vocab import Vocab
from thinc.types import Array1d

from .clusters import Clusters, count_clusters, keep_clusters, number_clusters, read_clusters
from .counting import LabelCounts
from .gazetteer import PLACES, Gazetteer
from .k_means import cluster_vectors
from .lookup import Lookup, pair_up
from .template import GAZETTEER, VECTORS, Column, Form, Template, attributes_of
from .tokens import Tokens, concatenate, read_tokens
from .vocabulary import Vocabulary

Named = Tuple[Clusters, List[str]]

HashCounts = Dict[str, "Counter[int]"]
"""How often each hash is there, by attribute; `WORDS` has those of words."""

N_DOCS = 256
"""Number of docs that are read together."""

WORDS = ""
"""In place of an attribute: the words themselves."""


def collect_vocabulary(docs: Iterable[Doc], template: Template) -> Vocabulary:
    """Collect the values of columns. Docs are read once, and not kept.

    docs (Iterable[Doc]): The docs to take them from, with their entities.
    template (Template): The template of the features.
    RETURNS (Vocabulary): The values.
    """
    columns = template.columns
    gazetteers = {
        f"{GAZETTEER}:{name}": Gazetteer.from_file(path)
        for name, path in template.gazetteers.items()
    }
    strings = StringStore(PLACES)
    vocab, n_times, seen, tokens = _read_all(docs, template, gazetteers, strings)
    phrases = {name: gazetteer.phrases for name, gazetteer in gazetteers.items()}
    clusters, values = _read_clusters(template, vocab), {}
    for column in columns:
        if column.has_values:
            least = template.least_count(column.kind)
            counts: Mapping[str, int]
            if column.form == Form.CLUSTER:
                lower = [vocab[key].lower for key in n_times[WORDS]] if vocab else []
                counts = count_clusters(*clusters[column.name], n_times[WORDS], lower)
            else:
                counts = _count_values(column, n_times, vocab, strings)
            values[column.name] = sorted(value for value, n in counts.items() if n >= least)
    kept = {name: keep_clusters(*found, values[name]) for name, found in clusters.items()}
    found = Vocabulary(values, {}, phrases, None, kept)
    labels = vocab.strings if vocab else strings
    if template.document:
        found = found._replace(labels=seen.names(labels))
    if template.memory:
        found = found._replace(memory=seen.memory(labels))
    return found._replace(pairs=_find_pairs(found, template, tokens, vocab))


def _find_pairs(
    vocabulary: Vocabulary, template: Template, tokens: Tokens, vocab: Optional[Vocab]
) -> Dict[str, Array1d]:
    """The pairs of values that have their numbers."""
    columns, pairs = template.columns, {}
    if template.bigrams:
        look = Lookup([column for column in columns if column.has_values], vocabulary)
        values = look.values(tokens, vocab)
    for column in columns:
        if column.form == Form.PAIR:
            found = pair_up(values[:, look.places[column.of].start], tokens.lengths)
            keys, n_times = numpy.unique(found[found >= 0], return_counts=True)
            pairs[column.name] = keys[n_times >= template.least_count(column.kind)]
    return pairs


def _read_all(
    docs: Iterable[Doc],
    template: Template,
    gazetteers: Dict[str, Gazetteer],
    strings: StringStore,
) -> Tuple[Optional[Vocab], HashCounts, LabelCounts, Tokens]:
    """The vocab of the docs, how often each hash is there, the labels if they are wanted, and all
    tokens if there are pairs. Keeps what the hashes mean."""
    vocab, attributes = None, attributes_of(template.columns)
    counts: HashCounts = {name: Counter() for name in (WORDS, *attributes)}
    labels = LabelCounts([*template.memory], template.memory_unit)
    parts = [read_tokens([], attributes, gazetteers, strings)]
    for batch in minibatch(docs, N_DOCS):
        vocab = batch[0].vocab
        tokens = read_tokens(batch, attributes, gazetteers, strings)
        for name, counter in counts.items():
            keys = tokens.keys[name] if name else tokens.orth
            found, n_times = numpy.unique(keys, return_counts=True)
            counter.update(dict(zip(found.tolist(), n_times.tolist())))
        if template.memory or template.document:
            labels.add(batch, tokens)
        if template.bigrams:
            parts.append(tokens)
    return vocab, counts, labels, concatenate(parts)


def _read_clusters(template: Template, vocab: Optional[Vocab]) -> Dict[str, Named]:
    """The clusters of words with their names, by column."""
    found = {
        name: number_clusters(read_clusters(path)) for name, path in template.cluster_files.items()
    }
    if template.vectors:
        no_words = number_clusters({})
        found[VECTORS] = cluster_vectors(vocab, template.vectors) if vocab else no_words
    return found


def _count_values(
    column: Column, n_times: HashCounts, vocab: Optional[Vocab], strings: StringStore
) -> "Counter[str]":
    counts: Counter[str] = Counter()
    known: Any = strings
    if vocab is None:
        return counts
    for key, count in n_times[WORDS if column.view is not None else column.name].items():
        if column.view is not None:
            value = column.view(vocab[key])
        elif key in known:
            value = strings[key]
        else:
            value = vocab.strings[key]
        if value:
            counts[value] += count
    return counts
