"""The labels of each component, where spans overlap.

One component can't predict spans that overlap. If spans may overlap, labels are divided into
groups, and each group gets a component.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from .corpus_statistics import CorpusStatistics

MAX_OVERLAP = 0.01
"""A component can't predict both of two spans that overlap. So at most this share of the spans of a
label may overlap with spans of other labels of the same component."""


def has_overlaps(labels: Sequence[str], corpus: CorpusStatistics) -> bool:
    """Whether any two spans with these labels overlap in the corpus."""
    # "With replacement" gives pairs of a label with itself, too.
    return any(pair in corpus.overlaps for pair in combinations_with_replacement(labels, 2))


def choose_groups(corpus: CorpusStatistics, path: Path | None) -> dict[str, list[str]]:
    """Choose the labels of each component. They are read from a file or, without one, divided by
    which spans overlap in the corpus.

    corpus (CorpusStatistics): The corpus.
    path (Path | None): The file: see `read_groups`.
    RETURNS (dict[str, list[str]]): The labels of each component, keyed by its name.
    RAISES (ValueError): If there is neither a file nor a corpus, or the file doesn't have each
        label once.
    """
    if path is not None:
        return read_groups(path, corpus.label_counts)
    if not corpus.label_counts:
        raise ValueError(
            "`spans_key`: expected `groups_path` or `train_path`, to find groups of labels"
        )
    groups = group_labels(corpus)
    if len(groups) == 1:
        return {"ner": groups[0]}
    return {f"ner_{i}": labels for i, labels in enumerate(groups, start=1)}


def group_labels(corpus: CorpusStatistics) -> list[list[str]]:
    """Divide labels into groups whose spans rarely overlap.

    Labels are assigned one after another, the most frequent first. Each label joins the group with
    which its spans overlap least often. If even there they overlap more often than `MAX_OVERLAP`
    times for each span, the label opens a new group.
    """
    groups: list[list[str]] = []
    for label, n_spans in corpus.label_counts.most_common():
        # For each group the number of overlaps between a span with this label and a span of the
        # group
        n_overlaps: list[int] = []
        for group in groups:
            n_overlaps.append(sum(corpus.overlaps[label, member] for member in group))
        fewest_overlaps = min(n_overlaps, default=0)
        if groups and fewest_overlaps <= MAX_OVERLAP * n_spans:
            best_group = groups[n_overlaps.index(fewest_overlaps)]
            best_group.append(label)
        else:
            groups.append([label])
    return [sorted(group) for group in groups]


def labels_of_components(groups: Mapping[str, list[str]]) -> dict[str, list[str] | None]:
    """Choose the value of the setting `own_labels` of each component.

    groups (Mapping[str, list[str]]): The labels of each component, keyed by its name. Empty: there
        is one component, "ner".
    RETURNS (dict[str, list[str] | None]): The value for each component, keyed by its name. A single
        component has all labels, so its value is None.
    """
    names = list(groups) or ["ner"]
    if len(names) == 1:
        return {names[0]: None}
    return dict(groups)


def read_groups(path: Path, label_counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Read the labels of each component from a JSON file: {component: [labels]}. The keys of
    `label_counts` are the labels of the corpus. The file must have each of them once."""
    try:
        groups: Any = json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        message = f"{path}: `groups_path`: expected JSON, {{component: [labels]}}, got {error}"
        raise ValueError(message) from None
    if not are_groups(groups):
        raise ValueError(f"{path}: expected {{component: [labels]}}, got {groups!r}")
    n_components_of_label: Counter[str] = Counter()
    for labels in groups.values():
        n_components_of_label.update(labels)
    repeated = [label for label, n in n_components_of_label.items() if n > 1]
    if repeated:
        raise ValueError(f"{path}: expected each label in one component, got {repeated} in several")
    missing = sorted(set(label_counts) - set(n_components_of_label))
    if missing:
        raise ValueError(f"{path}: expected all labels of the corpus, got them without {missing}")
    return groups


def are_groups(groups: Any) -> bool:
    """Whether a JSON value is {component: [labels]}: a dictionary from the names of components, of
    letters, digits and underscores, to lists of at least one label."""
    if not isinstance(groups, dict) or not groups:
        return False
    for name, labels in groups.items():
        has_labels = isinstance(labels, list) and len(labels) > 0
        if not has_labels or not all(isinstance(label, str) for label in labels):
            return False
        # The name is part of the names of sections, [components.NAME], where other characters, such
        # as a dot or a bracket, may have a meaning.
        if re.fullmatch(r"\w+", name) is None:
            return False
    return True
