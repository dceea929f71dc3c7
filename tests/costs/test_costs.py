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

from ..support.config import declared, resolve

GENIA = Path(__file__).parents[2] / "experiments" / "genia_tree.json"
LABELS = ["city", "micro-state", "country", "doctor"]
TREE = {"location": {"city": {}, "country": {"micro-state": {}}}, "person": {"doctor": {}}}
# How many edges of TREE are between two labels.
EDGES = {
    ("city", "country"): 2, ("city", "micro-state"): 3, ("city", "doctor"): 4,
    ("country", "micro-state"): 1, ("country", "doctor"): 4, ("micro-state", "doctor"): 5,
}  # fmt: skip
NAMES = [*LABELS, "O"]
# A different cost for each pair: 10 times the row and the column. O is the last.
MATRIX = {
    gold: {name: float(10 * i + j) for j, name in enumerate(NAMES) if name != gold}
    for i, gold in enumerate(NAMES)
}
KIND_WEIGHTS = {"false_alarm": 2.0, "miss": 3.0, "wrong_label": 0.5, "wrong_boundary": 0.1}
OVERRIDES = {"micro-state": {"miss": 5.0}, "doctor": {"wrong_label": 0.0, "wrong_boundary": 0.3}}

Tag = tuple[str, str]
"""A prefix and a label, "" and "O" for O."""


# Of each cost the definition for two tags that differ.


def hamming(gold: Tag, predicted: Tag) -> float:
    """1 for every mistake."""
    return 1.0


def zero_one(gold: Tag, predicted: Tag) -> float:
    """1 for a wrong label, 0 for a wrong boundary."""
    return 0.0 if gold[1] == predicted[1] else 1.0


def hierarchical(gold: Tag, predicted: Tag) -> float:
    """The edges between labels. The farthest are 5 apart, and O is one more."""
    if gold[1] == predicted[1]:
        return 0.0
    if "O" in (gold[1], predicted[1]):
        return 6.0
    return float(EDGES.get((gold[1], predicted[1])) or EDGES[predicted[1], gold[1]])


def precision_recall(gold: Tag, predicted: Tag) -> float:
    """A weight for each kind of mistake, which a gold label may have of its own."""
    if gold[1] == "O":
        return KIND_WEIGHTS["false_alarm"]
    weights = {**KIND_WEIGHTS, **OVERRIDES.get(gold[1], {})}
    if predicted[1] == "O":
        return weights["miss"]
    return weights["wrong_label" if predicted[1] != gold[1] else "wrong_boundary"]


def matrix(gold: Tag, predicted: Tag) -> float:
    """The cost in MATRIX, 0.7 for a wrong boundary."""
    return 0.7 if gold[1] == predicted[1] else MATRIX[gold[1]][predicted[1]]


def weighted_sum(gold: Tag, predicted: Tag) -> float:
    """Hierarchical with the weight 0.5, and Hamming with 1, the default."""
    return 0.5 * hierarchical(gold, predicted) + hamming(gold, predicted)


BY_KIND = tables.make_precision_recall_cost
BY_TREE = tables.make_hierarchical_cost
BY_MATRIX = tables.make_matrix_cost
SUMMED_COSTS = {"tree": BY_TREE(tree=TREE), "tags": hamming_cost}
COSTS: dict[str, tuple[Cost, Callable[[Tag, Tag], float]]] = {
    "Hamming": (tables.make_hamming_cost(), hamming),
    "ZeroOne": (tables.make_zero_one_cost(), zero_one),
    "Hierarchical": (BY_TREE(tree=TREE), hierarchical),
    "PrecisionRecall": (BY_KIND(**KIND_WEIGHTS, labels=OVERRIDES), precision_recall),
    "Matrix": (BY_MATRIX(matrix=MATRIX, wrong_boundary=0.7), matrix),
    "Sum": (make_sum_cost(costs=SUMMED_COSTS, weights={"tree": 0.5}), weighted_sum),
}
each_cost = pytest.mark.parametrize("name", COSTS)


def test_every_registered_cost_has_its_definition_here() -> None:
    registered = {name for name in declared("spacy_misc") if name.endswith("Cost.v1")}

    assert registered == {f"spacy_costner.{name}Cost.v1" for name in COSTS}


@pytest.fixture(params=["BILUO", "IOB2"])
def tags(request: pytest.FixtureRequest) -> Tags:
    """Those of LABELS, in both schemes."""
    return Tags(LABELS, request.param)


@each_cost
def test_tables_are_as_defined_for_each_pair_of_tags(name: str, tags: Tags) -> None:
    cost, definition = COSTS[name]

    table = cost(tags)

    # The label of O is -1: the last of NAMES.
    prefixes_and_labels = [
        (prefix, NAMES[label]) for prefix, label in zip(tags.prefix_of, tags.label_of)
    ]
    expected = numpy.zeros((len(tags), len(tags)))
    for i, gold in enumerate(prefixes_and_labels):
        for j, predicted in enumerate(prefixes_and_labels):
            if gold != predicted:
                expected[i, j] = definition(gold, predicted)
    assert table.dtype == "float32"
    numpy.testing.assert_allclose(table, expected, rtol=1e-6)


def test_o_is_one_edge_farther_than_the_farthest_labels_in_use() -> None:
    """city and country are 2 apart; with the other labels of the tree micro-state and doctor are
    5. Row 0 is O."""
    cost = BY_TREE(tree=TREE)

    assert cost(Tags(["city", "country"]))[0, 1] == 2 + 1
    assert cost(Tags(LABELS))[0, 1] == 5 + 1


def test_a_miss_in_genia_costs_what_the_paper_says() -> None:
    """11 between an entity and O (eq 9 and 10 of the paper, see docs/reproduction.md). There are 36
    labels without others below, so there are 2 * 36 + 1 = 73 tags: B and I of each, and O. Row 0 is
    O, and column 1 is of the first label."""
    lineages = make_tree(GENIA, "tree").lineages
    inner_nodes = {node for lineage in lineages.values() for node in lineage[:-1]}
    tags = Tags([*lineages.keys() - inner_nodes], "IOB2")

    table = BY_TREE(tree=GENIA)(tags)

    assert len(table) == 73
    assert table.max() == table[0, 1] == 11


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("path_type", [str, Path])
def test_a_matrix_can_stand_in_a_csv_file(
    tmp_path: Path, tags: Tags, line_end: str, path_type: type
) -> None:
    """With a byte order mark, columns in another order than rows, blanks after commas, and nothing
    on the diagonal."""
    columns = ["O", *reversed(LABELS)]
    lines = [", ".join(["gold", *columns])]
    for gold in NAMES:
        costs = [str(MATRIX[gold].get(name, "")) for name in columns]
        lines.append(", ".join([gold, *costs]))
    path = tmp_path / "costs.csv"
    path.write_bytes(("\ufeff" + line_end.join(lines)).encode("utf8"))

    table = BY_MATRIX(matrix=path_type(path))(tags)

    numpy.testing.assert_array_equal(table, BY_MATRIX(matrix=MATRIX)(tags))


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
def test_a_sum_of_costs_is_written_as_blocks_of_a_config(rewritten: bool, tags: Tags) -> None:
    """Read from text, or from what the config writes itself."""
    config = Config().from_str(CONFIG)
    if rewritten:
        config = Config().from_str(config.to_str())
    settings = dict(config["block"])
    cost = resolve("misc", settings.pop("@misc"), **settings)

    expected, _ = COSTS["Sum"]
    numpy.testing.assert_array_equal(cost(tags), expected(tags))


# Parts of messages: what was expected, and where.
NUMBER = "expected a finite number of at least 0, got "
LARGE = r"expected at most 3\.4e\+38, the largest number of float32, got "
MATRIX_OF_CITY = {"city": {"O": 1.0}, "O": {"city": 1.0}}


KIND, TREE_ = "PrecisionRecallCost", "HierarchicalCost: tree"
ROWS, SUM = "MatrixCost: matrix", "SumCost"
ONE_COST = {"a": hamming_cost}
KINDS = "expected one of false_alarm, miss, wrong_label, wrong_boundary, got 'mis'"
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
    (BY_MATRIX, {"matrix": MATRIX_OF_CITY, "wrong_boundary": -0.5},
     f"MatrixCost: wrong_boundary: {NUMBER}-0.5"),
    (BY_MATRIX, {"matrix": {"a": {"O": 1e39}}}, rf"{ROWS}: a\.O: {LARGE}1e\+39"),
    (BY_MATRIX, {"matrix": MATRIX_OF_CITY, "wrong_boundary": 1e39},
     rf"MatrixCost: wrong_boundary: {LARGE}1e\+39"),
    (make_sum_cost, {"costs": ONE_COST, "weights": {"a": 1e39}},
     rf"{SUM}: weights\.a: {LARGE}1e\+39"),
    (make_sum_cost, {"costs": {}}, f"{SUM}: costs: expected at least one cost, got none"),
    (make_sum_cost, {"costs": {"a": 3}}, f"{SUM}: costs.a: expected a cost, got 3"),
    (make_sum_cost, {"costs": ONE_COST, "weights": {"a": -1.0}}, f"{SUM}: weights.a: {NUMBER}-1.0"),
    (make_sum_cost, {"costs": ONE_COST, "weights": {"b": 1.0}},
     rf"{SUM}: weights: expected one of \['a'\], got 'b'"),
])  # fmt: skip
def test_a_setting_that_is_wrong_is_named_at_once(
    make: Callable, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^spacy_costner.{message}"):
        make(**settings)


@pytest.mark.parametrize("cost, message", [
    (BY_KIND(labels={"drug": {"miss": 2.0}}),
     rf"{KIND}: labels: expected one of \('city', .*, got 'drug'"),
    (BY_TREE(tree={"city": {}}),
     f"{TREE_}: expected a node for every label, got none for 'micro-state'"),
    (BY_TREE(tree="no/tree.json"), f"{TREE_}: no/tree.json: expected a JSON or YAML file"),
    (BY_MATRIX(matrix=MATRIX_OF_CITY),
     f"{ROWS}: expected a cost for gold 'city' and predicted 'micro-state'"),
    (make_sum_cost(costs={"a": BY_KIND(miss=3e38)}, weights={"a": 2.0}),
     f"{SUM}: weights: largest sum: {NUMBER}inf"),
    (BY_MATRIX(matrix="no/costs.csv"),
     f"{ROWS}: no/costs.csv: expected a CSV file of costs, but could not read"),
])  # fmt: skip
def test_a_setting_that_does_not_fit_the_labels_is_named_when_the_table_is_made(
    cost: Cost, message: str
) -> None:
    with pytest.raises(ValueError, match=f"^spacy_costner.{message}"):
        cost(Tags(LABELS))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected a cost for gold 'city' and predicted 'O'"),  # an empty file
        ("gold,city,O\ncity,0,x\n", "could not read it: .*'x'"),
        ("gold,city,O\ncity,0\n", "row 'city': expected 2 costs, got 1"),
        ("gold,city,city\ncity,0,1\n", "got 'city' twice"),
        ("gold,city,O\ncity,0,1\ncity,0,1\n", "got 'city' twice"),
        ("gold,city,O\ncity,0,-1\n", f"city.O: {NUMBER}-1.0"),
        ("gold,city,O\ncity,0,inf\n", f"city.O: {NUMBER}inf"),
        ("gold,city,O\ncity,0,1e39\n", rf"city\.O: {LARGE}1e\+39"),
        ("gold,city,O\ncity,2,1\n", "city.city: expected 0"),
        ("gold,city,O\ncity,0,\n", "expected a cost for gold 'city' and predicted 'O'"),
        (b"\xff\xfe", "could not read it"),  # this isn't UTF-8
    ],
)
def test_a_file_of_costs_that_is_wrong_is_named(tmp_path: Path, text: Any, message: str) -> None:
    path = tmp_path / "costs.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf8"))
    with pytest.raises(ValueError, match=rf"MatrixCost: matrix: .*costs\.csv: .*{message}"):
        BY_MATRIX(matrix=path)(Tags(["city"]))
