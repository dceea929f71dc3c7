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
    """A tree of up to nine nodes, each below an earlier one or at the top."""
    root: dict[str, Any] = {}
    nodes = [root]
    for i in range(draw(st.integers(1, 9))):
        children: dict[str, Any] = {}
        parent = nodes[draw(st.integers(0, i))]
        parent[f"node-{i}"] = children
        nodes.append(children)
    return root


def edges_between(tree: dict[str, Any], start: str, goal: str) -> int:
    """The length of the shortest path, found by walking."""
    neighbours: dict[str, set] = {}

    def join(name: str, children: dict[str, Any]) -> None:
        for child, grandchildren in children.items():
            neighbours.setdefault(name, set()).add(child)
            neighbours.setdefault(child, set()).add(name)
            join(child, grandchildren)

    join("the root", tree)
    steps = {start: 0}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for neighbour in neighbours[node] - set(steps):
            steps[neighbour] = steps[node] + 1
            queue.append(neighbour)
    return steps[goal]


@given(nested())
def test_distances_are_those_of_a_walk(nodes: dict[str, Any]) -> None:
    """Between all labels, or between some of them."""
    tree = make_tree(nodes, "tree")
    labels = sorted(tree.lineages)

    distances = tree.distances(labels)
    distances_of_two = tree.distances([labels[0], labels[-1]])

    for i, label in enumerate(labels):
        assert distances[i].tolist() == [edges_between(nodes, label, other) for other in labels]
    assert distances_of_two[0, 1] == distances[0, -1]


def test_a_lineage_has_all_nodes_from_the_top_to_a_label() -> None:
    tree = make_tree(PLACES, "tree")

    assert tree.depth == 3
    assert tree.lineage("micro-state") == ("location", "country", "micro-state")
    assert tree.lineage("sports-team") == ("sports-team",)


def test_the_ancestor_at_a_level_is_counted_from_the_top() -> None:
    """Below a label there is nothing: there it is the label itself."""
    tree = make_tree(PLACES, "tree")

    assert tree.ancestor("micro-state", 1) == "location"
    assert tree.ancestor("micro-state", 2) == "country"
    assert tree.ancestor("micro-state", 3) == "micro-state"
    assert tree.ancestor("micro-state", 9) == "micro-state"
    assert tree.ancestor("location", 2) == "location"


@pytest.mark.parametrize(
    "name, text",
    [
        ("tree.json", '{"location": {"city": {}, "micro-state": null}, "person": {}}'),
        ("tree.yaml", "location:\n  city: {}\n  micro-state:\nperson: {}\n"),
        ("tree.yml", '{"location": {"city": {}, "micro-state": null}, "person": {}}'),
    ],
)
@pytest.mark.parametrize("path_type", [str, Path])
@pytest.mark.parametrize("encoding", ["utf8", "utf-8-sig"], ids=["plain", "byte order mark"])
def test_a_tree_can_stand_in_a_json_or_yaml_file(
    tmp_path: Path, name: str, text: str, encoding: str, path_type: type
) -> None:
    (tmp_path / name).write_text(text, encoding=encoding)

    tree = make_tree(path_type(tmp_path / name), "tree")

    assert [*tree.lineages] == ["location", "city", "micro-state", "person"]
    assert tree.lineages["micro-state"] == ("location", "micro-state")
    assert tree.lineages["person"] == ("person",)


NO_TREES: list[tuple[Any, str]] = [
    ({"a": {"b": {}}, "b": {}}, "expected each node once, got 'b' twice"),
    ({"a": {"b": {"a": {}}}}, "expected a tree, got 'a' under itself"),
    ({"a": ["b", "c"]}, r"expected a mapping of nodes under 'a', got \['b', 'c'\]"),
    ({"a": {"b": 3}}, "expected a mapping of nodes under 'b', got 3"),
    ({"": {}}, "expected strings as names, got ''"),
    ({}, "expected at least one node, got none"),
]
NO_MAPPING = (["a"], "expected a mapping of nodes at the top")


@pytest.mark.parametrize("nodes, message", NO_TREES)
def test_a_block_of_the_config_that_is_no_tree_is_refused_at_once(nodes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^SomeCost: tree: {message}$"):
        make_tree(nodes, "SomeCost: tree")


@pytest.mark.parametrize("nodes, message", [*NO_TREES, NO_MAPPING])
def test_a_file_that_has_no_tree_is_refused_when_it_is_read(
    tmp_path: Path, nodes: Any, message: str
) -> None:
    """That is when the tree is used first, not when the config is resolved."""
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


@pytest.mark.parametrize("name", ["e.g.", "a\n", "[a]\n[b]"])
def test_a_name_that_a_config_can_not_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="tree: expected names that a spaCy config can"):
        make_tree({"top": {name: {}}}, "tree")


def test_a_label_without_node_is_named() -> None:
    tree = make_tree(PLACES, "tree")

    with pytest.raises(ValueError, match="tree: expected a node for every label, got none for 'x'"):
        tree.distances(["city", "x"])
