"""Assign labels to components if spans overlap.

A component can't predict overlapping spans. If spans may overlap, the labels are divided into
groups, with a separate component for each group.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from operator import itemgetter
from pathlib import Path
from typing import Any

from .corpus_statistics import CorpusStatistics

MAX_OVERLAP = 0.01
"""The maximum share of a label's spans that may overlap with spans of other labels of the same
component. A component can only predict one of two overlapping spans."""


def has_overlaps(labels: Sequence[str], corpus: CorpusStatistics) -> bool:
    """Check whether any two spans with these labels overlap in the corpus."""
    # "with_replacement" includes pairs of a label with itself.
    return any(pair in corpus.overlaps for pair in combinations_with_replacement(labels, 2))


def choose_groups(corpus: CorpusStatistics, path: Path | None) -> dict[str, list[str]]:
    """Choose the labels of each component. They are read from a file, if one is given. Otherwise,
    they are divided into groups based on which spans overlap in the corpus.

    corpus (CorpusStatistics): The statistics of the training corpus.
    path (Path | None): The file: see `read_groups`.
    RETURNS (dict[str, list[str]]): The labels of each component, keyed by component name.
    RAISES (ValueError): If neither a file nor a corpus is given, or the file doesn't contain each
        label exactly once.
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

    Labels are assigned one by one, the most frequent first. Each label is added to the group with
    the fewest overlaps, among the groups in which all labels would keep `MAX_OVERLAP`. If there is
    no such group, a new one is created."""
    groups: list[list[str]] = []
    # The number of overlaps between the spans of each label and spans of other labels in its group
    n_overlaps_of: dict[str, int] = {}
    for label, _ in corpus.label_counts.most_common():
        # The groups that the label can be added to, with the overlaps that their labels would have
        possible_groups: list[tuple[int, dict[str, int], list[str]]] = []
        for group in groups:
            n_overlaps = {label: 0}
            for member in group:
                n_overlaps[member] = n_overlaps_of[member] + corpus.overlaps[label, member]
                n_overlaps[label] += corpus.overlaps[label, member]
            if keep_limit(n_overlaps, corpus.label_counts):
                possible_groups.append((n_overlaps[label], n_overlaps, group))
        if possible_groups:
            _, n_overlaps, best_group = min(possible_groups, key=itemgetter(0))
            best_group.append(label)
            n_overlaps_of |= n_overlaps
        else:
            groups.append([label])
            n_overlaps_of[label] = 0
    return [sorted(group) for group in groups]


def keep_limit(n_overlaps: Mapping[str, int], label_counts: Mapping[str, int]) -> bool:
    """Check that no label has more than `MAX_OVERLAP` overlaps per span."""
    return all(n <= MAX_OVERLAP * label_counts[label] for label, n in n_overlaps.items())


def labels_of_components(groups: Mapping[str, list[str]]) -> dict[str, list[str] | None]:
    """Choose the value of the `own_labels` setting of each component.

    groups (Mapping[str, list[str]]): The labels of each component, keyed by component name. If
        empty, the only component is "ner".
    RETURNS (dict[str, list[str] | None]): The value for each component, keyed by component name. It
        is None for a single component, which has all labels.
    """
    names = list(groups) or ["ner"]
    if len(names) == 1:
        return {names[0]: None}
    return dict(groups)


def read_groups(path: Path, label_counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Read the labels of each component from a JSON file in the format {component: [labels]}. The
    file must contain each label of the corpus, i.e. each key of `label_counts`, exactly once."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # skips a byte order mark
        groups: Any = json.loads(text)
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
    """Check whether a JSON value has the format {component: [labels]}: a dictionary that maps
    component names (letters, digits and underscores) to lists of at least one label."""
    if not isinstance(groups, dict) or not groups:
        return False
    for name, labels in groups.items():
        has_labels = isinstance(labels, list) and len(labels) > 0
        if not has_labels or not all(isinstance(label, str) for label in labels):
            return False
        # The name is used in section names, [components.NAME], where other characters such as dots
        # or brackets may have a special meaning.
        if re.fullmatch(r"\w+", name) is None:
            return False
    return True
