"""The answer of the least expected cost, and which one where several cost the same: enumerated."""

import math
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner.costs.tables import (
    make_hierarchical_cost,
    make_precision_recall_cost,
    make_zero_one_cost,
)
from spacy_costner.decoding import Decoding, Posterior, make_min_cost
from spacy_costner.decoding.min_cost import MinCost
from spacy_costner.tags import Tags
from spacy_costner.types import TagSet

from .. import oracle
from ..support.posteriors import TREE, answer, collapsed_paths, posterior, relabelled, sure

SAME = 1e-6
"""What counts as the same expected cost of a token, in the cost of the worst mistake."""

HIERARCHICAL = make_hierarchical_cost(tree=TREE)


class Choice(NamedTuple):
    """An answer to a sequence. Of those that cost the same, the one with the fewest inner nodes of
    the tree is preferred, then the most probable."""

    tags: tuple[int, ...]
    cost: float  # expected
    n_nodes: int  # inner nodes
    log_prob: float  # sum over tokens of the log probability of the tag


def choices(posterior: Posterior, decoding: Decoding, b: int) -> list[Choice]:
    """All legal answers to a sequence."""
    tags = posterior.tags.collapsed
    n_tags = len(tags)
    labels, covers, table = decoding.check(tags, {})
    # The tags of answers: those of the model, then those of inner nodes.
    answer_tags = Tags(labels, tags.scheme.name)
    label_of = answer_tags.label_of
    prefix_of = numpy.asarray(answer_tags.prefix_of)

    legal = collapsed_paths(posterior, b)
    prob_of_tag = numpy.zeros((int(posterior.scores.lengths[b]), n_tags))
    for p, path in zip(oracle.probabilities(legal), legal):
        prob_of_tag[range(len(path.tags)), path.tags] += p

    def log_prob(t: int, tag: int) -> float:
        """Of O, or of any tag with the same prefix and a label that the answer stands for."""
        is_meant = numpy.arange(n_tags) == tag
        if label_of[tag] >= 0:
            has_prefix = prefix_of[:n_tags] == prefix_of[tag]
            is_covered = covers[label_of[tag]][label_of[:n_tags]]
            is_meant = has_prefix & is_covered
        return math.log(max(prob_of_tag[t, is_meant].sum(), 1e-30))

    def choice(path: tuple[int, ...]) -> Choice:
        costs = [float(prob_of_tag[t] @ table[:, tag]) for t, tag in enumerate(path)]
        log_probs = [log_prob(t, tag) for t, tag in enumerate(path)]
        n_nodes = sum(tag >= n_tags for tag in path)
        return Choice(path, math.fsum(costs), n_nodes, sum(log_probs))

    answers: set[tuple[int, ...]] = set()
    for path in legal:
        answers.update(relabelled(path.tags, tags, answer_tags, covers))
    return [choice(path) for path in sorted(answers)]


def tied(all_choices: list[Choice], tolerance: float) -> list[Choice]:
    """The answers of which each tag costs no more, with the best tags after it, than the best
    tag in its place does."""
    least_with_beginning: dict[tuple[int, ...], float] = {}
    for choice in all_choices:
        for t in range(len(choice.tags) + 1):
            beginning = choice.tags[:t]
            least = least_with_beginning.get(beginning, math.inf)
            least_with_beginning[beginning] = min(least, choice.cost)

    def is_tied(tags: tuple[int, ...]) -> bool:
        for t in range(len(tags)):
            if least_with_beginning[tags[: t + 1]] > least_with_beginning[tags[:t]] + tolerance:
                return False
        return True

    return [choice for choice in all_choices if is_tied(choice.tags)]


DECODINGS = (
    make_min_cost(cost=make_zero_one_cost()),
    make_min_cost(cost=make_precision_recall_cost(miss=3.0, wrong_boundary=0.5)),
    make_min_cost(cost=HIERARCHICAL),
    make_min_cost(cost=HIERARCHICAL, tree=TREE),
    make_min_cost(cost=lambda tags: numpy.zeros((len(tags), len(tags))), tree=TREE),
)


@given(posterior(), st.sampled_from(DECODINGS))
def test_the_predicted_path_is_the_most_probable_of_those_that_cost_least(
    posterior: Posterior, decoding: Decoding
) -> None:
    labels, _, table = decoding.check(posterior.tags.collapsed, {})
    answer_tags = Tags(labels, posterior.tags.scheme.name)
    n_tokens = len(posterior.scores.emissions)

    entities = decoding.decode(posterior, decoding.settings)[0]

    path = answer_tags.encode(entities, n_tokens)
    tolerance = SAME * float(table.max())  # for each token
    least_total = 0.0
    for b, tokens in enumerate(oracle.spans(posterior.scores)):
        all_choices = choices(posterior, decoding, b)
        (answered,) = [c for c in all_choices if c.tags == tuple(path[tokens].tolist())]
        least = min(choice.cost for choice in all_choices)
        least_total += least
        candidates = tied(all_choices, tolerance)
        assert answered in candidates
        assert answered.cost <= least + tolerance * len(answered.tags) + 1e-12
        best = max(candidates, key=lambda choice: (-choice.n_nodes, choice.log_prob))
        assert answered.n_nodes == best.n_nodes
        assert answered.log_prob >= best.log_prob - 1e-6
    assert isinstance(decoding.decode, MinCost)
    total = decoding.decode.expected_costs(posterior).sum()
    assert total == pytest.approx(least_total, abs=tolerance * n_tokens + 1e-9)


def cost_of_answers(costs: dict[str, dict[str, float]], otherwise: float) -> Any:
    """A cost: costs[predicted][gold] of two labels, for all their tags, and 0 of the same label;
    `otherwise` where `costs` says nothing."""

    def cost(tags: TagSet) -> numpy.ndarray:
        names = [*tags.labels, "O"]
        table = numpy.full((len(names), len(names)), otherwise)
        for i, gold in enumerate(names):
            for j, predicted in enumerate(names):
                table[i, j] = costs.get(predicted, {}).get(gold, otherwise)
        numpy.fill_diagonal(table, 0.0)
        # The label of O is -1: the last row and column.
        return table[numpy.ix_(tags.label_of, tags.label_of)]

    return cost


@pytest.mark.parametrize("gaps", [(6.5e-5, 2e-6, 5e-7), (2e-6, 6.5e-5, 5e-7), (5e-7, 2e-6, 5e-7)])
@pytest.mark.parametrize("lengths", [[1, 1, 1], [3]])
def test_no_probability_makes_up_for_a_cost(gaps: tuple[float, ...], lengths: list[int]) -> None:
    """Each of three tokens has the label a, with the probability 1 - gap, or is O. To predict a
    costs the gap, to predict b costs nothing, though b has the probability 0. A gap of less than
    1e-6 counts as a tie: then a is predicted, else b. The gap of each token decides by itself, next
    to tokens with a much larger or a smaller gap, and in three sequences as in one."""
    decoding = make_min_cost(cost=cost_of_answers({"b": {"a": 0.0, "O": 0.0}}, otherwise=1.0))
    posterior = sure(*({"a": 1 - gap, "O": gap} for gap in gaps))
    posterior.scores = posterior.scores._replace(lengths=numpy.asarray(lengths, dtype="int32"))

    labels = []
    for begin, end, label in answer(decoding, posterior):
        labels += [label] * (end - begin)

    assert labels == ["a" if gap < SAME else "b" for gap in gaps]


def test_a_tie_goes_to_an_improbable_label_before_a_node() -> None:
    """d, with the probability 0.1, and x, which stands for a, b and c, cost the same:
    0.5 * 0.4 + 0.4 * 0.4 + 0.1 * 0 = 0.36. All other answers cost at least
    (0.4 + 0.1) * 2 = 1, the cost of a."""
    tree = {"y": {"x": {"a": {}, "b": {}, "c": {}}, "d": {}}}
    costs = {"a": 0.4, "b": 0.4, "d": 0.0}
    cost = cost_of_answers({"x": costs, "d": costs}, otherwise=2.0)
    decoding = make_min_cost(cost=cost, tree=tree)

    assert answer(decoding, sure({"a": 0.5, "b": 0.4, "d": 0.1})) == [(0, 1, "d")]
