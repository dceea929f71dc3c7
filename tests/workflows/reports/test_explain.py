"""Tests of `explain`: the weights of a linear model, and the reasons for its predictions."""

from itertools import pairwise
from pathlib import Path

import numpy
import pytest
import spacy
import srsly
from spacy.language import Language

from spacy_costner.cli.explain import explanation_text
from spacy_costner.files.saving import as_json
from spacy_costner.ml import linear_part
from spacy_costner.workflows.reports.explanation import FeatureWeight, explain, transition_weights

from ...support.commands import run
from ...support.config import TOK2VEC
from ...support.fitting import initialized


@pytest.fixture
def nlp() -> Language:
    """A pipeline with a linear model and the tags O, B-X, I-X. The three features
    below have weights, one for each tag. The weights of transitions from a tag (row) to the next
    (column) are 0 to 8, row by row. `start` has the weights of the first tag of a sequence, and
    `end` the weights of the last tag."""
    nlp, _ = initialized()
    features, weights = linear_part(nlp.get_pipe("ner").model)
    # The row of each feature in the table of weights.
    row = {name: i for i, name in enumerate(features.names())}
    weights.emissions[row["ORTH=Rome"]] = [-1, 3, 0]
    weights.emissions[row["SHAPE=Xxxx"]] = [0, 2, -4]
    weights.emissions[row["LOWER=saw"]] = [1, -5, 0]
    weights.transitions[:] = numpy.arange(9).reshape(3, 3)
    weights.start[:] = [0.5, 1.5, 2.5]
    weights.end[:] = [10, 20, 30]
    return nlp


def test_strongest_features_of_each_tag_are_shown(nlp: Language) -> None:
    """The weights for O, B-X and I-X are -1, 3, 0 (ORTH=Rome), 0, 2, -4 (SHAPE=Xxxx) and 1, -5, 0
    (LOWER=saw). A weight above 0 is in favour of the tag."""
    outside, begin, inside = explain(nlp, n_features=2).tags
    assert outside.in_favour == [("LOWER=saw", 1.0)]
    assert outside.against == [("ORTH=Rome", -1.0)]
    assert begin.in_favour == [("ORTH=Rome", 3.0), ("SHAPE=Xxxx", 2.0)]
    assert begin.against == [FeatureWeight("LOWER=saw", -5.0)]
    assert inside.in_favour == []
    assert inside.against == [("SHAPE=Xxxx", -4.0)]


def test_as_many_features_are_shown_as_asked_for(nlp: Language) -> None:
    _, begin, _ = explain(nlp, n_features=1).tags
    assert begin.in_favour == [("ORTH=Rome", 3.0)]


def test_transition_weights_are_a_table_without_forbidden_ones(nlp: Language) -> None:
    """The last row is the start, and the last column is the end. I-X can't follow O or the start,
    so these weights are None. There is no weight from the start to the end."""
    ner = nlp.get_pipe("ner")

    table = transition_weights(ner.tags, linear_part(ner.model)[1])

    assert table.origins == ["O", "B-X", "I-X", "(start)"]
    assert table.targets == ["O", "B-X", "I-X", "(end)"]
    assert table.weights == [
        [0.0, 1.0, None, 10.0],
        [3.0, 4.0, 5.0, 20.0],
        [6.0, 7.0, 8.0, 30.0],
        [0.5, 1.5, None, None],
    ]
    # The potentials of a doc have the same transitions.
    assert table == transition_weights(ner.tags, ner.model.predict([nlp.make_doc("Rome")]))


def test_forbidden_transitions_are_dots_in_the_text(nlp: Language) -> None:
    """The start is followed by O (0.5) or B-X (1.5), but not by I-X or the end."""
    lines = explanation_text(explain(nlp)).splitlines()
    (start,) = [line for line in lines if line.startswith("(start)")]
    assert start.split() == ["(start)", "+0.50", "+1.50", ".", "."]


def test_reasons_are_of_the_predicted_entities(nlp: Language) -> None:
    ner = nlp.get_pipe("ner")

    reasons = explain(nlp, text="Rome saw Rome").tokens

    path = numpy.asarray([ner.tags.names.index(reason.tag) for reason in reasons])
    entities = ner.tags.decode(path, lengths=numpy.asarray([3]))
    predicted = nlp("Rome saw Rome").ents
    assert [*zip(entities.begin, entities.end)] == [(ent.start, ent.end) for ent in predicted]
    assert len(predicted) > 0
    # "Rome" begins an entity: the weights of its features for B-X.
    assert reasons[0].features == [("ORTH=Rome", 3.0), ("SHAPE=Xxxx", 2.0)]


def test_reasons_add_up_to_the_score_of_the_path(nlp: Language) -> None:
    """The score of a path is the sum of its emissions and transitions, of the start of its first
    tag and of the end of its last one."""
    ner = nlp.get_pipe("ner")

    reasons = explain(nlp, text="Rome saw Rome").tokens

    path = [ner.tags.names.index(reason.tag) for reason in reasons]
    potentials = ner.model.predict([nlp.make_doc("Rome saw Rome")])
    score = potentials.start[path[0]] + potentials.end[path[-1]]
    for token, tag in enumerate(path):
        score += potentials.emissions[token, tag]
    for tag, next_tag in pairwise(path):
        score += potentials.transitions[tag, next_tag]
    assert sum(reason.score + reason.transition for reason in reasons) == pytest.approx(score)


def test_without_text_no_tokens_are_explained(nlp: Language) -> None:
    assert explain(nlp).tokens == []
    assert explain(nlp, text="").tokens == []


def test_explain_names_the_components_that_it_can_explain(nlp: Language) -> None:
    with pytest.raises(ValueError, match=r"one of \['ner'\], got 'other'"):
        explain(nlp, name="other")


def test_a_model_without_sparse_features_is_not_explained() -> None:
    dense = {"@architectures": "spacy_costner.LinearChainCRF.v1", "tok2vec": TOK2VEC}
    nlp, _ = initialized(model=dense)
    with pytest.raises(ValueError, match=r"components\.ner\.model: expected a model with sparse"):
        explain(nlp)


def test_the_command_prints_and_saves_the_explanation(nlp: Language, tmp_path: Path) -> None:
    nlp.to_disk(tmp_path / "pipeline")
    json_path = tmp_path / "new" / "out.json"

    result = run("explain", tmp_path / "pipeline", "--text", "Rome", "--json", json_path)

    assert result.exit_code == 0, result.output
    assert "ORTH=Rome +3.00" in result.output
    assert "from \\ to" in result.output
    saved = srsly.read_json(json_path)
    explanation = as_json(explain(spacy.load(tmp_path / "pipeline"), text="Rome"))
    assert saved == srsly.json_loads(srsly.json_dumps(explanation))
    # Weights are saved in 16 bits: 3 only nearly.
    strongest = saved["tokens"][0]["features"][0]
    assert strongest == {"feature": "ORTH=Rome", "weight": pytest.approx(3, abs=2e-3)}


def test_the_command_fails_for_an_unknown_component(nlp: Language, tmp_path: Path) -> None:
    """The message is tested above, without the command."""
    nlp.to_disk(tmp_path / "pipeline")
    assert run("explain", tmp_path / "pipeline", "--name", "x").exit_code == 1
