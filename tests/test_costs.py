"""Each cost table, judged by a definition that looks at one pair of tags at a time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from thinc.api import Config

from spacy_costner.costs import tables
from spacy_costner.costs.label_tree import make_tree
from spacy_costner.costs.tables import hamming_cost, make_sum_cost
from spacy_costner.tags import Tags
from spacy_costner.types import Cost

from .support.config import declared, resolve

GENIA = Path(__file__).parents[1] / "experiments" / "genia_tree.json"
LABELS = ["city", "micro-state", "country", "doctor"]
TREE = {"location": {"city": {}, "country": {"micro-state": {}}}, "person": {"doctor": {}}}
EDGES = {
    ("city", "country"): 2, ("city", "micro-state"): 3, ("city", "doctor"): 4,
    ("country", "micro-state"): 1, ("country", "doctor"): 4, ("micro-state", "doctor"): 5,
}  # fmt: skip
NAMES = [*LABELS, "O"]
MATRIX = {
    gold: {name: float(10 * i + j) for j, name in enumerate(NAMES) if name != gold}
    for i, gold in enumerate(NAMES)
}
KIND_WEIGHTS = {"false_alarm": 2.0, "miss": 3.0, "wrong_label": 0.5, "wrong_boundary": 0.1}
OVERRIDES = {"micro-state": {"miss": 5.0}, "doctor": {"wrong_label": 0.0, "wrong_boundary": 0.3}}

Tag = tuple[str, str]
"""A prefix and a label, "" and "O" for O."""


def hamming(gold: Tag, predicted: Tag) -> float:
    return 1.0


def zero_one(gold: Tag, predicted: Tag) -> float:
    return 0.0 if gold[1] == predicted[1] else 1.0


def hierarchical(gold: Tag, predicted: Tag) -> float:
    if gold[1] == predicted[1]:
        return 0.0
    if "O" in (gold[1], predicted[1]):
        return 6.0
    return float(EDGES.get((gold[1], predicted[1])) or EDGES[predicted[1], gold[1]])


def precision_recall(gold: Tag, predicted: Tag) -> float:
    if gold[1] == "O":
        return KIND_WEIGHTS["false_alarm"]
    weights = {**KIND_WEIGHTS, **OVERRIDES.get(gold[1], {})}
    if predicted[1] == "O":
        return weights["miss"]
    return weights["wrong_label" if predicted[1] != gold[1] else "wrong_boundary"]


def matrix(gold: Tag, predicted: Tag) -> float:
    return 0.7 if gold[1] == predicted[1] else MATRIX[gold[1]][predicted[1]]


def total(gold: Tag, predicted: Tag) -> float:
    return 0.5 * hierarchical(gold, predicted) + hamming(gold, predicted)


BY_KIND, BY_TREE = tables.make_precision_recall_cost, tables.make_hierarchical_cost
BY_MATRIX = tables.make_matrix_cost
OF_SUM = {"tree": BY_TREE(tree=TREE), "tags": hamming_cost}
COSTS: dict[str, tuple[Cost, Callable[[Tag, Tag], float]]] = {
    "Hamming": (tables.make_hamming_cost(), hamming),
    "ZeroOne": (tables.make_zero_one_cost(), zero_one),
    "Hierarchical": (BY_TREE(tree=TREE), hierarchical),
    "PrecisionRecall": (BY_KIND(**KIND_WEIGHTS, labels=OVERRIDES), precision_recall),
    "Matrix": (BY_MATRIX(matrix=MATRIX, wrong_boundary=0.7), matrix),
    "Sum": (make_sum_cost(costs=OF_SUM, weights={"tree": 0.5}), total),
}
each_cost = pytest.mark.parametrize("name", COSTS)


def test_every_cost_is_defined_here() -> None:
    declared_ = {name for name in declared("spacy_misc") if name.endswith("Cost.v1")}
    assert declared_ == {f"spacy_costner.{name}Cost.v1" for name in COSTS}


@pytest.fixture(params=["BILUO", "IOB2"])
def tags(request: pytest.FixtureRequest) -> Tags:
    return Tags(LABELS, request.param)


@each_cost
def test_tables_are_as_defined(name: str, tags: Tags) -> None:
    cost, definition = COSTS[name]
    parts = [(prefix, NAMES[label]) for prefix, label in zip(tags.prefix_of, tags.label_of)]
    expected = [[definition(g, p) * (g != p) for p in parts] for g in parts]
    table = cost(tags)
    assert table.dtype == "float32"
    numpy.testing.assert_allclose(table, expected, rtol=1e-6)


def test_the_farthest_labels_are_those_in_use() -> None:
    cost = BY_TREE(tree=TREE)
    assert cost(Tags(["city", "country"]))[0, 1] == 3
    assert cost(Tags(LABELS))[0, 1] == 6


def test_a_miss_in_genia_costs_what_the_paper_says() -> None:
    lineages = make_tree(GENIA, "tree").lineages
    inner = {node for lineage in lineages.values() for node in lineage[:-1]}
    table = BY_TREE(tree=GENIA)(Tags([*lineages.keys() - inner], "IOB2"))
    assert len(table) == 73
    assert table.max() == table[0, 1] == 11


@pytest.mark.parametrize("suffix", ["\n", "\r\n"])
def test_a_matrix_can_stand_in_a_file(tmp_path: Path, tags: Tags, suffix: str) -> None:
    path = tmp_path / "costs.csv"
    columns = ["O", *reversed(LABELS)]
    lines = [["gold", *columns]]
    lines += [[gold, *(str(MATRIX[gold].get(name, "")) for name in columns)] for gold in NAMES]
    path.write_bytes(("\ufeff" + suffix.join(", ".join(line) for line in lines)).encode("utf8"))
    expected = BY_MATRIX(matrix=MATRIX)(tags)
    for each in (path, str(path)):
        numpy.testing.assert_array_equal(BY_MATRIX(matrix=each)(tags), expected)


CONFIG = """
[block]
@misc = "spacy_costner.SumCost.v1"

[block.weights]
tree = 0.5

[block.costs]

[block.costs.tags]
@misc = "spacy_costner.HammingCost.v1"

[block.costs.tree]
@misc = "spacy_costner.HierarchicalCost.v1"

[block.costs.tree.tree]
location = {"city": {}, "country": {"micro-state": {}}}

[block.costs.tree.tree.person]

[block.costs.tree.tree.person.doctor]
"""


@pytest.mark.parametrize("rewritten", [False, True])
def test_costs_are_written_as_blocks(rewritten: bool, tags: Tags) -> None:
    config = Config().from_str(CONFIG)
    if rewritten:
        config = Config().from_str(config.to_str())
    name = config["block"].pop("@misc")
    table = resolve("misc", name, **config["block"])(tags)
    numpy.testing.assert_array_equal(table, COSTS["Sum"][0](tags))


NUMBER = "expected a finite number of at least 0, got "
LARGE = r"expected at most 3\.4e\+38, the largest number of float32, got "
ONE_LABEL = {"city": {"O": 1.0}, "O": {"city": 1.0}}


KIND, TREE_ = "PrecisionRecallCost", "HierarchicalCost: tree"
ROWS, SUM = "MatrixCost: matrix", "SumCost"
TAGS = {"a": hamming_cost}
KINDS = "expected any of false_alarm, miss, wrong_label, wrong_boundary, got 'mis'"
UNREADABLE = "expected names that a spaCy config can .*"


@pytest.mark.parametrize("make, settings, message", [
    (BY_KIND, {"miss": -1.0}, f"{KIND}: miss: {NUMBER}-1.0"),
    (BY_KIND, {"false_alarm": float("nan")}, f"{KIND}: false_alarm: {NUMBER}nan"),
    (BY_KIND, {"labels": {"a": {"miss": float("inf")}}}, f"{KIND}: labels.a: miss: {NUMBER}inf"),
    (BY_KIND, {"false_alarm": 1e39}, rf"{KIND}: false_alarm: {LARGE}1e\+39"),
    (BY_KIND, {"labels": {"a": {"miss": 1e39}}}, rf"{KIND}: labels\.a: miss: {LARGE}1e\+39"),
    (BY_KIND, {"labels": {"a": {"mis": 2.0}}}, f"{KIND}: labels.a: {KINDS}"),
    (BY_KIND, {"labels": {"e.g.": {"miss": 2.0}}}, f"{KIND}: labels: {UNREADABLE}'e.g.'"),
    (BY_TREE, {"tree": {"a": 1}}, f"{TREE_}: expected a mapping"),
    (BY_MATRIX, {"matrix": {"a": {"O": -1.0}}}, f"{ROWS}: a.O: {NUMBER}-1.0"),
    (BY_MATRIX, {"matrix": {"O": {"O": 1.0}}}, f"{ROWS}: O.O: expected 0 on the diagonal, got 1.0"),
    (BY_MATRIX, {"matrix": {"O": {"a:b": 1.0}}}, f"{ROWS}: {UNREADABLE}'a:b'"),
    (BY_MATRIX, {"matrix": ONE_LABEL, "wrong_boundary": -0.5},
     f"MatrixCost: wrong_boundary: {NUMBER}-0.5"),
    (BY_MATRIX, {"matrix": {"a": {"O": 1e39}}}, rf"{ROWS}: a\.O: {LARGE}1e\+39"),
    (BY_MATRIX, {"matrix": ONE_LABEL, "wrong_boundary": 1e39},
     rf"MatrixCost: wrong_boundary: {LARGE}1e\+39"),
    (make_sum_cost, {"costs": TAGS, "weights": {"a": 1e39}}, rf"{SUM}: weights\.a: {LARGE}1e\+39"),
    (make_sum_cost, {"costs": {}}, f"{SUM}: costs: expected at least one cost, got none"),
    (make_sum_cost, {"costs": {"a": 3}}, f"{SUM}: costs.a: expected a cost, got 3"),
    (make_sum_cost, {"costs": TAGS, "weights": {"a": -1.0}}, f"{SUM}: weights.a: {NUMBER}-1.0"),
    (make_sum_cost, {"costs": TAGS, "weights": {"b": 1.0}},
     rf"{SUM}: weights: expected any of \['a'\], got 'b'"),
])  # fmt: skip
def test_what_is_wrong_in_the_config_is_named_at_once(
    make: Callable, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^spacy_costner.{message}"):
        make(**settings)


@pytest.mark.parametrize("cost, message", [
    (BY_KIND(labels={"drug": {"miss": 2.0}}),
     rf"{KIND}: labels: expected any of \('city', .*, got 'drug'"),
    (BY_TREE(tree={"city": {}}),
     f"{TREE_}: expected a node for every label, got none for 'micro-state'"),
    (BY_TREE(tree="no/tree.json"), f"{TREE_}: no/tree.json: expected a JSON or YAML file"),
    (BY_MATRIX(matrix=ONE_LABEL),
     f"{ROWS}: expected a cost for gold 'city' and predicted 'micro-state'"),
    (make_sum_cost(costs={"a": BY_KIND(miss=3e38)}, weights={"a": 2.0}),
     f"{SUM}: weights: largest sum: {NUMBER}inf"),
    (BY_MATRIX(matrix="no/costs.csv"),
     f"{ROWS}: no/costs.csv: expected a CSV file of costs, could not read"),
])  # fmt: skip
def test_what_is_wrong_with_the_labels_is_named_with_the_table(cost: Cost, message: str) -> None:
    with pytest.raises(ValueError, match=f"^spacy_costner.{message}"):
        cost(Tags(LABELS))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected a cost for gold 'city' and predicted 'O'"),
        ("gold,city,O\ncity,0,x\n", "could not read it: .*'x'"),
        ("gold,city,O\ncity,0\n", "row 'city': expected 2 costs, got 1"),
        ("gold,city,city\ncity,0,1\n", "got 'city' twice"),
        ("gold,city,O\ncity,0,1\ncity,0,1\n", "got 'city' twice"),
        ("gold,city,O\ncity,0,-1\n", f"city.O: {NUMBER}-1.0"),
        ("gold,city,O\ncity,0,inf\n", f"city.O: {NUMBER}inf"),
        ("gold,city,O\ncity,0,1e39\n", rf"city\.O: {LARGE}1e\+39"),
        ("gold,city,O\ncity,2,1\n", "city.city: expected 0"),
        ("gold,city,O\ncity,0,\n", "expected a cost for gold 'city' and predicted 'O'"),
        (b"\xff\xfe", "could not read it"),
    ],
)
def test_a_file_of_costs_that_is_wrong_is_named(tmp_path: Path, text: Any, message: str) -> None:
    path = tmp_path / "costs.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf8"))
    with pytest.raises(ValueError, match=rf"MatrixCost: matrix: .*costs\.csv: .*{message}"):
        BY_MATRIX(matrix=path)(Tags(["city"]))
