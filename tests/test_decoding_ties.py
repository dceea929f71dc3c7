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

from . import oracle
from .support.posteriors import TREE, answer, collapsed_paths, posterior, relabelled, sure

SAME = 1e-6
"""What counts as the same expected cost of a token, in the cost of the worst mistake."""

HIERARCHICAL = make_hierarchical_cost(tree=TREE)


class Choice(NamedTuple):
    """An answer to a sequence. `prefers` is what decides among ties, the largest first."""

    tags: tuple[int, ...]
    cost: float
    prefers: tuple[int, float]


def choices(posterior: Posterior, decoding: Decoding, b: int) -> list[Choice]:
    """All legal answers to a sequence."""
    tags_ = posterior.tags.collapsed
    labels, covers, table = decoding.check(tags_, {})
    answers, n_tags = Tags(labels, tags_.scheme.name), len(tags_)
    legal = collapsed_paths(posterior, b)
    of_tag = numpy.zeros((int(posterior.scores.lengths[b]), n_tags))
    for p, path in zip(oracle.probabilities(legal), legal):
        of_tag[range(len(path.tags)), path.tags] += p
    prefixes, label_of = numpy.asarray(answers.prefix_of), answers.label_of

    def log_prob(t: int, tag: int) -> float:
        same = prefixes[:n_tags] == prefixes[tag]
        if label_of[tag] < 0:
            return math.log(max(of_tag[t, tag], 1e-30))
        below = same & covers[label_of[tag]][label_of[:n_tags]]
        return math.log(max(of_tag[t, below].sum(), 1e-30))

    def choice(tags: tuple[int, ...]) -> Choice:
        cost = math.fsum(float(of_tag[t] @ table[:, tag]) for t, tag in enumerate(tags))
        n_nodes = sum(tag >= n_tags for tag in tags)
        return Choice(tags, cost, (-n_nodes, sum(log_prob(t, tag) for t, tag in enumerate(tags))))

    some = {tags for y in legal for tags in relabelled(y.tags, tags_, answers, covers)}
    return [choice(tags) for tags in sorted(some)]


def tied(some: list[Choice], same: float) -> list[Choice]:
    """The answers of which each tag costs no more, with the best tags after it, than the best
    tag in its place does."""
    least: dict[tuple[int, ...], float] = {}
    for each in some:
        for t in range(len(each.tags) + 1):
            least[each.tags[:t]] = min(least.get(each.tags[:t], math.inf), each.cost)

    def is_tied(tags: tuple[int, ...]) -> bool:
        return all(least[tags[: t + 1]] <= least[tags[:t]] + same for t in range(len(tags)))

    return [each for each in some if is_tied(each.tags)]


DECODINGS = (
    make_min_cost(cost=make_zero_one_cost()),
    make_min_cost(cost=make_precision_recall_cost(miss=3.0, wrong_boundary=0.5)),
    make_min_cost(cost=HIERARCHICAL),
    make_min_cost(cost=HIERARCHICAL, tree=TREE),
    make_min_cost(cost=lambda tags: numpy.zeros((len(tags), len(tags))), tree=TREE),
)


@given(posterior(), st.sampled_from(DECODINGS))
def test_the_most_probable_of_answers_that_cost_least(
    posterior: Posterior, decoding: Decoding
) -> None:
    labels, _, table = decoding.check(posterior.tags.collapsed, {})
    entities = decoding.decode(posterior, decoding.settings)[0]
    given_ = Tags(labels, posterior.tags.scheme.name).encode(
        entities, len(posterior.scores.emissions)
    )
    same, least = SAME * float(table.max()), 0.0
    for b, here in enumerate(oracle.spans(posterior.scores)):
        some = choices(posterior, decoding, b)
        found = next(each for each in some if each.tags == tuple(given_[here].tolist()))
        candidates = tied(some, same)
        least += min(each.cost for each in some)
        assert found.tags in {each.tags for each in candidates}
        assert found.cost <= min(each.cost for each in some) + same * len(found.tags) + 1e-12
        n_nodes, log_p = max(each.prefers for each in candidates)
        assert found.prefers[0] == n_nodes
        assert found.prefers[1] >= log_p - 1e-6
    assert isinstance(decoding.decode, MinCost)
    found_cost = decoding.decode.expected_costs(posterior).sum()
    assert found_cost == pytest.approx(least, abs=same * len(given_) + 1e-9)


def table_of(columns: dict[str, dict[str, float]], otherwise: float) -> Any:
    """A cost: what each answer costs by what is right, alike for all prefixes."""

    def cost(tags: TagSet) -> numpy.ndarray:
        names = [*tags.labels, "O"]
        of = [[columns.get(a, {}).get(g, otherwise) * (a != g) for a in names] for g in names]
        return numpy.asarray(of)[numpy.ix_(tags.label_of, tags.label_of)]

    return cost


@pytest.mark.parametrize("gaps", [(6.5e-5, 2e-6, 5e-7), (2e-6, 6.5e-5, 5e-7), (5e-7, 2e-6, 5e-7)])
@pytest.mark.parametrize("lengths", [[1, 1, 1], [3]])
def test_no_probability_makes_up_for_a_cost(gaps: tuple[float, ...], lengths: list[int]) -> None:
    """b is out of the question, and costs less than a all the same: by 6.5e-5 and 2e-6 of the
    worst mistake; less than 1e-6 is nothing."""
    decoding = make_min_cost(cost=table_of({"b": {"a": 0.0, "O": 0.0}}, otherwise=1.0))
    posterior = sure(*({"a": 1 - gap, "O": gap} for gap in gaps))
    posterior.scores = posterior.scores._replace(lengths=numpy.asarray(lengths, dtype="int32"))
    found = answer(decoding, posterior)
    of_tokens = [label for begin, end, label in found for _ in range(begin, end)]
    assert of_tokens == ["a" if gap < SAME else "b" for gap in gaps]


def test_a_tie_goes_to_an_improbable_label_before_a_node() -> None:
    tree = {"y": {"x": {"a": {}, "b": {}, "c": {}}, "d": {}}}
    same = {"a": 0.4, "b": 0.4, "d": 0.0}
    decoding = make_min_cost(cost=table_of({"x": same, "d": same}, otherwise=2.0), tree=tree)
    assert answer(decoding, sure({"a": 0.5, "b": 0.4, "d": 0.1})) == [(0, 1, "d")]
