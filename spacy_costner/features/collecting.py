"""Collect the vocabulary of features from docs."""

from collections import Counter
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

import numpy
from spacy.strings import StringStore
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.types import Array1d

from .clusters import Clusters, count_clusters, keep_clusters, number_clusters, read_clusters
from .counting import OUTSIDE, Gold, count_labels, read_gold
from .gazetteer import PLACES, Gazetteer
from .k_means import cluster_vectors
from .lookup import Lookup, pair_up
from .template import GAZETTEER, VECTORS, Column, Form, Template, attributes_of
from .tokens import Tokens, concatenate, read_tokens
from .vocabulary import Vocabulary

Named = Tuple[Clusters, List[str]]


def collect_vocabulary(docs: Iterable[Doc], template: Template) -> Vocabulary:
    """Collect the values of columns.

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
    tokens, gold, vocab = _read_all(docs, template, gazetteers, strings)
    phrases = {name: gazetteer.phrases for name, gazetteer in gazetteers.items()}
    clusters, values = _read_clusters(template, vocab), {}
    for column in columns:
        if column.has_values:
            least = template.least_count(column.kind)
            counts: Mapping[str, int]
            if column.form == Form.CLUSTER:
                lower = tokens.keys[column.of]
                counts = count_clusters(*clusters[column.name], tokens.orth, lower)
            else:
                counts = _count_values(column, tokens, vocab, strings)
            values[column.name] = sorted(value for value, n in counts.items() if n >= least)
    kept = {name: keep_clusters(*found, values[name]) for name, found in clusters.items()}
    found = Vocabulary(values, {}, phrases, None, kept)
    labels = vocab.strings if vocab else strings
    if template.document:
        names = {labels[key] for doc in gold for key in numpy.unique(doc.label).tolist() if key}
        found = found._replace(labels=[OUTSIDE, *sorted(names)])
    if template.memory:
        found = found._replace(memory=count_labels(tokens, gold, [*template.memory], labels))
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
) -> Tuple[Tokens, List[Gold], Optional[Vocab]]:
    """The tokens of all docs, the labels of each if they are wanted, and the vocab of the docs.
    Keeps what the hashes mean."""
    vocab, attributes = None, attributes_of(template.columns)
    has_labels = bool(template.memory or template.document)
    parts, gold = [read_tokens([], attributes, gazetteers, strings)], []
    for i, doc in enumerate(docs):
        vocab = doc.vocab
        parts.append(read_tokens([doc], attributes, gazetteers, strings))
        if has_labels:
            gold.append(read_gold(doc, i, template.memory_unit))
    return concatenate(parts), gold, vocab


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
    column: Column, tokens: Tokens, vocab: Optional[Vocab], strings: StringStore
) -> "Counter[str]":
    counts: Counter[str] = Counter()
    if vocab is None:
        return counts
    keys = tokens.orth if column.view is not None else tokens.keys[column.name]
    for key, count in zip(*(array.tolist() for array in numpy.unique(keys, return_counts=True))):
        if column.view is not None:
            value = column.view(vocab[key])
        elif key in strings:
            value = strings[key]
        else:
            value = vocab.strings[key]
        if value:
            counts[value] += count
    return counts
