"""What a loss is told of docs: weights, forbidden spans, costs, and which loss it is."""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy
import pytest
from numpy.testing import assert_allclose
from spacy.tokens import Doc, Span, Token
from spacy.training import Example

from spacy_costner import chain
from spacy_costner.costs.tables import hamming_cost
from spacy_costner.losses import risk, sequential
from spacy_costner.losses.schedule import make_schedule
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.tags import Tags
from spacy_costner.training.objective import costs_given_gold
from spacy_costner.types import CostTable, Gold, Loss, LossResult, Potentials, Progress, TagSet

from .. import oracle, oracle_losses
from ..support.batches import random_potentials
from ..support.config import HAMMING, REQUIRED, declared
from ..support.fitting import examples_of, loss_block
from ..support.gradients import check_loss_directions
from ..support.pipelines import pipeline
from ..support.posteriors import entities
from ..support.split import split_of

TAGS = Tags(["LOC", "PER"], "IOB2")
SENTENCES = [
    ("Ana Lee sang", "B-PER I-PER O"),
    ("in Rome", "O B-LOC"),
    ("", ""),
    ("Lee or Rome", "B-PER O B-LOC"),
]
PATHS = [[3, 4, 0], [0, 1], [], [3, 0, 1]]
"""The gold tags of the sentences, as indices in `TAGS`: O, B-LOC, I-LOC, B-PER, I-PER."""

outsides = pytest.mark.parametrize("outside", ["single", "before"])


def recogniser(**settings: Any) -> CostSensitiveNER:
    """A component that knows the labels of `TAGS`."""
    nlp = pipeline(scheme="IOB2", **settings)
    nlp.initialize(lambda: examples_of(nlp, SENTENCES))
    return nlp.get_pipe("ner")


def scores_of(batch: Sequence[Example], seed: int = 0, tags: Tags = TAGS) -> Potentials:
    """Random scores of the tokens of a batch."""
    lengths = [len(eg.predicted) for eg in batch]
    return random_potentials(lengths, len(tags), scale=2.0, seed=seed)


def gold_of(paths: Sequence[Sequence[int]], weights: numpy.ndarray | None = None) -> Gold:
    """The gold of some paths and weights of tokens, with Hamming cost."""
    path = numpy.concatenate([numpy.asarray(tags, dtype="int32") for tags in paths])
    return Gold(
        tags=path,
        costs=costs_given_gold(path, hamming_cost(TAGS), weights),
        token_weights=weights,
        opening=TAGS.having("B"),
        continuing=TAGS.having("I"),
    )


def check_loss(
    ner: CostSensitiveNER, batch: list[Example], define: Any, gold: Gold, spans: Any = ()
) -> None:
    """Check value and gradient of a component against the definition of its loss, with these
    incorrect spans."""
    tags = ner.chain_tags
    split = split_of(tags) if tags.is_split else None
    # The value of a component is divided by the number of annotated tokens, unless it is a ratio.
    is_ratio = ner.objective.loss.stages[0].is_ratio
    n_annotated = 1 if is_ratio else int((gold.tags >= 0).sum())

    def ends_incorrect(b: int, t: int, path: oracle.Tags) -> bool:
        """Whether a path of sequence b has an incorrect span that ends with token t."""
        for begin, end, label in entities(TAGS, path):
            if end == t + 1:
                name = TAGS.labels[label]
                if (b, begin, end, name) in spans or (b, begin, end, "") in spans:
                    return True
        return False

    def expected(scores: Potentials) -> float:
        legal = chain.constrain(scores, tags.constraints)
        return define(oracle_losses.sequences(legal, gold, ends_incorrect, split))

    fresh_loss = ner.objective.loss
    for seed in range(5):
        scores = scores_of(batch, seed, tags)
        ner.objective.loss = deepcopy(fresh_loss)  # some losses keep counts of earlier batches
        value, gradient = ner.get_loss(batch, scores)
        assert value * n_annotated == pytest.approx(expected(scores))
    check_loss_directions(lambda moved: LossResult(expected(moved), gradient), scores)


# Weights


@pytest.fixture
def extensions() -> Any:
    """Extension attributes for weights: `token._.worth` and `doc._.trust`."""
    Token.set_extension("worth", default=1.0)
    Doc.set_extension("trust", default=1.0)
    yield
    Token.remove_extension("worth")
    Doc.remove_extension("trust")


@outsides
@pytest.mark.parametrize("name", ["Pointwise", "SoftmaxMargin"])
def test_weights_of_tokens_and_examples_multiply_the_loss(
    name: str, outside: str, extensions: None
) -> None:
    weights = {
        "@misc": "spacy_costner.Weights.v1",
        "labels": {"PER": 2.0, "O": 0.5},
        "boundary": 3.0,
        "token": "worth",
        "example": "trust",
    }
    settings = {} if name == "Pointwise" else {"cost": HAMMING}
    ner = recogniser(loss=loss_block(name, **settings), weights=weights, outside=outside)
    batch = examples_of(ner, SENTENCES)
    batch[0].reference[1]._.worth = 5.0
    batch[3].reference._.trust = 0.25
    # The tokens are Ana Lee sang in Rome Lee or Rome. Each token of these entities is at a border:
    # a PER has 2 * 3, a LOC 1 * 3, and O 0.5. The first Lee counts 5 times: 5 * 2 * 3.
    token_weights = numpy.asarray([6.0, 30.0, 0.5, 0.5, 3.0, 6.0, 0.5, 3.0])
    gold = gold_of(PATHS, token_weights)
    gold = gold._replace(weights=numpy.asarray([1.0, 1.0, 1.0, 0.25]))
    define = {
        "Pointwise": oracle_losses.pointwise,
        "SoftmaxMargin": partial(oracle_losses.softmax_margin, multiplier=1.0),
    }[name]
    check_loss(ner, batch, define, gold)


@pytest.mark.parametrize("value", [None, -1.0, float("nan"), "high"])
@pytest.mark.parametrize("setting, name", [("token", "token._.worth"), ("example", "doc._.trust")])
def test_extension_attributes_that_are_no_weights_are_refused(
    setting: str, name: str, value: Any, extensions: None
) -> None:
    weights = {"@misc": "spacy_costner.Weights.v1", setting: name.rpartition(".")[2]}
    ner = recogniser(loss=loss_block("Pointwise"), weights=weights)
    batch = examples_of(ner, SENTENCES)
    batch[0].reference._.trust = value
    batch[0].reference[1]._.worth = value

    message = f"Weights: {setting}: {name}: expected a finite number of at least 0, got {value!r}"
    with pytest.raises(ValueError, match=message):
        ner.objective.targets(batch, ner.chain_tags)


def test_weights_are_refused_if_the_loss_does_not_use_them() -> None:
    weights = {"@misc": "spacy_costner.Weights.v1", "boundary": 2.0}
    with pytest.raises(ValueError, match=r"ner: weights: expected none .* Pointwise or Mixed"):
        pipeline(loss=loss_block("Sequential"), weights=weights)
    pipeline(loss=loss_block("Mixed", k=1.0), weights=weights)
    pipeline(loss=loss_block("Risk", cost=HAMMING), weights=weights)


def test_weights_of_an_unknown_label_are_refused() -> None:
    weights = {"@misc": "spacy_costner.Weights.v1", "labels": {"PER": 2.0, "DRUG": 5.0}}
    with pytest.raises(ValueError, match=r"ner: weights: labels: .*'PER', 'O'.*got \['DRUG'\]"):
        recogniser(loss=loss_block("Pointwise"), weights=weights)


# Incorrect spans

WRONG = [
    (0, 0, 1, "PER"),
    (0, 1, 3, "LOC"),
    (0, 2, 3, ""),
    (3, 0, 2, "PER"),
    (3, 1, 3, "LOC"),
    (3, 1, 2, ""),
]
"""Spans that are no entities: sentence, first token, the one after the last, label ("" for any)."""


def with_spans(batch: list[Example], spans: list[Any] = WRONG) -> list[Example]:
    """The batch, after spans are written to its references."""
    for eg in batch:
        eg.reference.spans["wrong"] = []
    for i, begin, end, label in spans:
        reference = batch[i].reference
        reference.spans["wrong"].append(Span(reference, begin, end, label))
    return batch


BEST = partial(oracle_losses.best_counts, slope=1.0, offset=0.0)
MCE_F = partial(oracle_losses.mce_f_of_batch, gamma=1.0, count=BEST)


MISSING: list[list[int]] = [[], [0], [1], [2], [0, 1], [1, 2]]


@outsides
@pytest.mark.parametrize("spans", [[], WRONG])
@pytest.mark.parametrize(
    "name, settings, define, missing",
    [
        *(("Sequential", {}, oracle_losses.sequential, missing) for missing in MISSING),
        ("MCEF", {"psi": "inf"}, MCE_F, [0, 1]),
    ],
)
def test_paths_with_incorrect_spans_are_wrong(
    name: str, settings: Any, define: Any, missing: list[int], spans: list[Any], outside: str
) -> None:
    """If the chain has several tags for O, a gold O before a missing token may be any of them. One
    loss of sequences, and one that is a ratio of the whole batch: `test_losses` has all."""
    loss = loss_block(name, **settings)
    ner = recogniser(loss=loss, incorrect_spans_key="wrong", outside=outside)
    batch = with_spans(examples_of(ner, SENTENCES), spans)
    doc = batch[3].reference
    annotated = [ent for ent in doc.ents if ent.start not in missing]
    doc.set_ents(annotated, missing=[doc[t : t + 1] for t in missing])

    *other_paths, last_path = PATHS
    last_path = [-1 if t in missing else tag for t, tag in enumerate(last_path)]
    gold = gold_of([*other_paths, last_path])
    allowed = (gold.tags < 0)[:, None] | (gold.tags[:, None] == numpy.arange(len(TAGS)))
    first_token = 5  # of the last sentence
    for t in missing:
        # An annotated entity has all of its tokens, so it doesn't go on in the missing token after
        # it.
        follows_entity = t > 0 and last_path[t - 1] > 0
        if follows_entity:
            allowed[first_token + t] &= ~TAGS.continuing

    check_loss(ner, batch, define, gold._replace(allowed=allowed), spans)


def test_an_incorrect_span_that_no_path_has_changes_nothing() -> None:
    """The last sentence is cut into "Lee or" and "Rome", so the span "or Rome" is in no path. Its
    tokens have no annotation besides."""
    ner = recogniser(
        loss=loss_block("ZScore"), incorrect_spans_key="wrong", sentence_boundaries="sentences"
    )
    ner.cfg["progress"] = Progress(epochs=1)._asdict()  # of sequences, not of whole docs
    batch = examples_of(ner, SENTENCES)
    for eg in (batch[0], batch[3]):
        for doc in (eg.predicted, eg.reference):
            for token in doc:
                token.is_sent_start = token.i != 1
    batch[3].reference.set_ents([], default="missing")
    scores = scores_of(batch)
    expected, expected_gradient = ner.get_loss(batch, scores)

    value, gradient = ner.get_loss(with_spans(batch, [(3, 1, 3, "LOC")]), scores)

    assert value == pytest.approx(expected)
    assert_allclose(gradient.emissions, expected_gradient.emissions, atol=1e-6)


@outsides
@pytest.mark.parametrize("name", declared("thinc_losses"))
def test_a_doc_that_contradicts_itself_is_left_out(name: str, outside: str) -> None:
    """The gold of "in Rome", tokens 3 and 4 of the batch, contradicts a preset entity, or is among
    the incorrect spans; or no path is left at all, as it is preset, too."""
    loss = {"@losses": name, **REQUIRED.get(name, {})}
    ner = recogniser(loss=loss, incorrect_spans_key="wrong", outside=outside)
    batch = with_spans(examples_of(ner, SENTENCES))
    predicted = batch[1].predicted
    reference = batch[1].reference
    scores = scores_of(batch, tags=ner.chain_tags)
    fresh_loss = ner.objective.loss
    ner.objective.loss = deepcopy(fresh_loss)
    other_scores = scores._replace(
        emissions=numpy.delete(scores.emissions, [3, 4], axis=0),
        lengths=numpy.asarray([3, 3], dtype="int32"),
    )
    expected, expected_gradient = ner.get_loss([batch[0], batch[3]], other_scores)

    in_preset = [Span(predicted, 0, 1, "LOC")]
    rome_preset = [Span(predicted, 1, 2, "LOC")]
    for presets, incorrect_spans in (
        (in_preset, []),
        ([], reference.ents),
        (rome_preset, reference.ents),
    ):
        predicted.ents = presets
        reference.spans["wrong"] = list(incorrect_spans)
        ner.objective.loss = deepcopy(fresh_loss)
        with pytest.warns(UserWarning, match="left out of training.*'in Rome'"):
            value, gradient = ner.get_loss(batch, scores)

        assert value == pytest.approx(expected)
        assert_allclose(gradient.emissions[3:5], 0, atol=1e-12)
        gradient_of_others = gradient._replace(
            emissions=numpy.delete(gradient.emissions, [3, 4], axis=0)
        )
        for array, expected_array in zip(gradient_of_others[:4], expected_gradient):
            assert_allclose(array, expected_array, atol=1e-9)


def test_a_warning_about_a_doc_that_is_left_out_points_to_the_caller_of_get_loss() -> None:
    ner = recogniser()
    batch = examples_of(ner, SENTENCES)
    predicted = batch[1].predicted
    predicted.ents = [Span(predicted, 0, 1, "LOC")]  # but "in" is no entity in the gold

    with pytest.warns(UserWarning, match="left out of training") as warned:
        ner.get_loss(batch, scores_of(batch, tags=ner.chain_tags))

    assert [warning.filename for warning in warned] == [__file__]


# Costs


def test_a_cost_table_is_made_once_for_each_tag_set() -> None:
    labels_of_tables = []

    def cost(tags: TagSet) -> CostTable:
        labels_of_tables.append(tags.labels)
        return hamming_cost(tags)

    ner = recogniser()
    ner.objective.loss = make_schedule(Loss(risk, cost), Loss(sequential), steps=[5])
    ner.objective.check_costs(ner.tags)
    batch = examples_of(ner, SENTENCES)
    for _ in range(3):
        ner.get_loss(batch, scores_of(batch))
    assert labels_of_tables == [("LOC", "PER")]
    ner.add_label("DATE")
    ner.get_loss(batch, random_potentials([3, 2, 0, 3], len(ner.tags)))
    assert labels_of_tables == [("LOC", "PER"), ("LOC", "PER", "DATE")]


def test_a_cost_without_one_of_the_labels_is_refused() -> None:
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": {"LOC": {}}}
    later = {"first": loss_block("Sequential"), "then": loss_block("Risk", cost=cost)}
    with pytest.raises(ValueError, match=r"HierarchicalCost: tree: .*'PER'"):
        recogniser(loss=loss_block("Schedule", steps=[10], **{"*": later}))


# Schedules


@pytest.mark.parametrize("ends", [{"steps": [2]}, {"epochs": [0.5]}])
def test_a_schedule_switches_losses_in_training(ends: dict[str, list[float]]) -> None:
    """The first loss ends after two steps, or after half of an epoch of four examples. Updates have
    one example each, so both are the third update. With `initialize` the schedule begins anew."""
    used_losses = []

    def stage(name: str) -> Loss:
        def compute(potentials: Potentials, gold: Gold) -> LossResult:
            used_losses.append(name)
            return sequential(potentials, gold)

        return Loss(compute)

    nlp = pipeline(scheme="IOB2")
    batch = examples_of(nlp, SENTENCES)
    optimizer = nlp.initialize(lambda: batch)
    nlp.get_pipe("ner").objective.loss = make_schedule(stage("first"), stage("then"), **ends)
    for eg in (batch[0], batch[1], batch[3], batch[0]):  # batch[2] is empty: no loss is computed
        nlp.update([eg], sgd=optimizer)
    assert used_losses == ["first", "first", "then", "then"]
    nlp.initialize(lambda: batch)
    nlp.update(batch[:1], sgd=optimizer)
    assert used_losses[-1] == "first"
