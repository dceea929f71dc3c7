"""Collect the vocabulary of features from docs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc
from spacy.util import minibatch
from spacy.vocab import Vocab

from .clusters import Clusters, cluster_vectors, collect_clusters, read_clusters
from .lookup import Lookup, pair_up
from .memory import LabelCounts, LabelMemory
from .template import GAZETTEER, VECTORS, Form, Template, attributes_of
from .tokens import PLACES, Gazetteer, Tokens, read_tokens
from .vocabulary import Vocabulary

N_DOCS = 256
"""Number of docs that are read together."""

WORDS = ""
"""In place of an attribute: the words themselves."""


def collect_vocabulary(docs: Iterable[Doc], template: Template) -> Vocabulary:
    """Collect the values of columns from docs with their entities. Docs are read once, and not
    kept."""
    gazetteers = {
        f"{GAZETTEER}:{name}": Gazetteer.from_file(path)
        for name, path in template.gazetteers.items()
    }
    strings = StringStore(PLACES)
    vocab, n_times, seen, tokens = _read_all(docs, template, gazetteers, strings)
    clustered: dict[str, dict[int, list[str]]] = {
        name: {get_string_id(word): names for word, names in read_clusters(path).items()}
        for name, path in template.cluster_files.items()
    }
    if template.vectors:
        clustered[VECTORS] = cluster_vectors(vocab, template.vectors) if n_times[WORDS] else {}
    values: dict[str, list[str]] = {}
    clusters: dict[str, Clusters] = {}
    for column in template.columns:
        name, least = column.name, template.least_count(column.kind)
        if column.form == Form.CLUSTER:
            values[name], clusters[name] = collect_clusters(
                clustered[name], n_times[WORDS], vocab, least
            )
        elif column.form in (Form.WORD, Form.TOKEN):
            counts: Counter[str] = Counter()
            for key, times in n_times[WORDS if column.view else name].items():
                known: Any = strings
                word = (strings if key in known else vocab.strings)[key]
                if value := column.view(vocab[key], word) if column.view else word:
                    counts[value] += times
            values[name] = sorted(value for value, n in counts.items() if n >= least)
    collected = Vocabulary(
        values=values,
        pairs={},
        phrases={name: gazetteer.phrases for name, gazetteer in gazetteers.items()},
        labels=seen.names(vocab.strings) if template.document else (),
        memory=seen.memory(vocab.strings) if template.memory else None,
        clusters=clusters,
    )
    if template.bigrams:
        lookup = Lookup([column for column in template.columns if column.name in values], collected)
        words, numbers = lookup.words(tokens.orth, [vocab])
        values_of = lookup.values(tokens, words.table[numbers])
    for column in template.columns:
        if column.form == Form.PAIR:
            there = pair_up(values_of[:, lookup.places[column.of].start], tokens.lengths)
            keys, n = numpy.unique(there[there >= 0], return_counts=True)
            collected.pairs[column.name] = keys[n >= template.least_count(column.kind)]
    return collected


def _read_all(
    docs: Iterable[Doc], template: Template, gazetteers: dict[str, Gazetteer], strings: StringStore
) -> tuple[Vocab, dict[str, "Counter[int]"], LabelCounts, Tokens]:
    """The vocab of the docs; how often each hash is there, by attribute, or `WORDS`; the labels if
    they are wanted; and all tokens if there are pairs. Strings keep what the hashes mean."""
    vocab, attributes = Vocab(strings=strings), attributes_of(template.columns)
    counts: dict[str, Counter[int]] = {name: Counter() for name in (WORDS, *attributes)}
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
    keys = {name: numpy.concatenate([part.keys[name] for part in parts]) for name in attributes}
    orth, lengths = (numpy.concatenate(each) for each in zip(*[(p.orth, p.lengths) for p in parts]))
    return vocab, counts, labels, Tokens(orth, keys, lengths)


def count_labels(docs: Sequence[Doc], template: Template, known: Vocabulary) -> LabelMemory:
    """Count the labels of docs, at least one. The memory knows all labels of a vocabulary."""
    gazetteers = {name: Gazetteer(lines) for name, lines in known.phrases.items()}
    labels, strings = LabelCounts([*template.memory], template.memory_unit), docs[0].vocab.strings
    for batch in minibatch(docs, N_DOCS):
        labels.add(batch, read_tokens(batch, [*template.memory], gazetteers))
    assert known.memory is not None
    labels.labels.update(map(strings.add, known.memory.labels[1:]))
    return labels.memory(strings)
