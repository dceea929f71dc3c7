"""The tree of labels, judged by walking along its edges."""

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner.costs.label_tree import make_tree

PLACES = {
    "location": {"city": {}, "country": {"micro-state": {}}},
    "person": {},
    "sports-team": None,
}


@st.composite
def nested(draw: st.DrawFn) -> dict[str, Any]:
    """A tree of up to nine nodes, each below an earlier one or on top."""
    root: dict[str, Any] = {}
    nodes = [root]
    for i in range(draw(st.integers(1, 9))):
        below: dict[str, Any] = {}
        nodes[draw(st.integers(0, i))][f"node-{i}"] = below
        nodes.append(below)
    return root


def edges_between(tree: dict[str, Any], one: str, other: str) -> int:
    """The length of the shortest path, found by walking."""
    neighbours: dict[str, set] = {}

    def join(name: str, below: dict[str, Any]) -> None:
        for child, grandchildren in below.items():
            neighbours.setdefault(name, set()).add(child)
            neighbours.setdefault(child, set()).add(name)
            join(child, grandchildren)

    join("the root", tree)
    steps, queue = {one: 0}, deque([one])
    while queue:
        here = queue.popleft()
        for there in neighbours[here] - set(steps):
            steps[there] = steps[here] + 1
            queue.append(there)
    return steps[other]


@given(nested())
def test_distances_are_those_of_a_walk(nodes: dict[str, Any]) -> None:
    tree = make_tree(nodes, "tree")
    labels = sorted(tree.lineages)
    distances = tree.distances(labels)
    assert distances.tolist() == [
        [edges_between(nodes, one, other) for other in labels] for one in labels
    ]
    assert tree.distances([labels[0], labels[-1]])[0, 1] == distances[0, -1]


def test_levels_count_from_the_top() -> None:
    tree = make_tree(PLACES, "tree")
    assert tree.depth == 3
    assert tree.lineage("micro-state") == ("location", "country", "micro-state")
    assert tree.lineage("sports-team") == ("sports-team",)
    above = [tree.ancestor("micro-state", level) for level in (1, 2, 3, 9)]
    assert above == ["location", "country", "micro-state", "micro-state"]
    assert tree.ancestor("location", 2) == "location"


@pytest.mark.parametrize(
    "name, text",
    [
        ("tree.json", '{"location": {"city": {}, "micro-state": null}, "person": {}}'),
        ("tree.yaml", "location:\n  city: {}\n  micro-state:\nperson: {}\n"),
        ("tree.yml", '{"location": {"city": {}, "micro-state": null}, "person": {}}'),
    ],
)
@pytest.mark.parametrize("as_path", [str, Path])
def test_files_hold_the_same_tree(tmp_path: Path, name: str, text: str, as_path: type) -> None:
    (tmp_path / name).write_text(text, encoding="utf8")
    tree = make_tree(as_path(tmp_path / name), "tree")
    assert [*tree.lineages] == ["location", "city", "micro-state", "person"]
    assert tree.lineages["micro-state"] == ("location", "micro-state")
    assert tree.lineages["person"] == ("person",)


BAD = [
    ({"a": {"b": {}}, "b": {}}, "expected each node once, got 'b' twice"),
    ({"a": {"b": {"a": {}}}}, "expected a tree, got 'a' under itself"),
    ({"a": ["b", "c"]}, r"expected a mapping of nodes under 'a', got \['b', 'c'\]"),
    ({"a": {"b": 3}}, "expected a mapping of nodes under 'b', got 3"),
    ({"": {}}, "expected strings as names, got ''"),
    ({}, "expected at least one node, got none"),
]


@pytest.mark.parametrize("nodes, message", [*BAD, (["a"], r"expected a mapping of nodes on top")])
def test_what_is_no_tree_is_refused(tmp_path: Path, nodes: Any, message: str) -> None:
    """A block at once, a file when it is read."""
    if isinstance(nodes, dict):
        with pytest.raises(ValueError, match=f"^SomeCost: tree: {message}$"):
            make_tree(nodes, "SomeCost: tree")
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(nodes), encoding="utf8")
    tree = make_tree(path, "SomeCost: tree")
    with pytest.raises(ValueError, match=rf"SomeCost: tree: .*tree\.json: {message}"):
        tree.distances(["a"])


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("missing.json", None, "could not read it: .*No such file"),
        ("missing.yaml", None, "could not read it"),
        ("broken.json", b"{", "could not read it"),
        ("broken.yaml", b"a: [", "could not read it"),
        ("twice.json", b'{"a": {"b": {}, "b": {}}}', "got 'b' twice"),
        ("twice.yaml", b"a:\n  b: {}\n  b: {}\n", 'duplicate key "b"'),
        ("cycle.yaml", b"a: &a\n  b: *a\n", "got 'b' under itself"),
        ("number.yaml", b"a:\n  7: {}\n", "expected strings as names, got 7"),
        ("binary.json", b"\xff\xfe", "could not read it"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, text: Any, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text)
    with pytest.raises(ValueError, match=rf"(?s){name}: .*{message}"):
        make_tree(tmp_path / name, "tree").lineage("a")


def test_names_that_are_lost_or_missing() -> None:
    for name in ("e.g.", "a\n", "[a]\n[b]"):
        with pytest.raises(ValueError, match="tree: expected names that a spaCy config can"):
            make_tree({"top": {name: {}}}, "tree")
    with pytest.raises(ValueError, match="tree: expected a node for every label, got none for 'x'"):
        make_tree(PLACES, "tree").distances(["city", "x"])
