"""What a linear model says of itself."""

from itertools import pairwise
from pathlib import Path

import numpy
import pytest
import spacy
import srsly
from spacy.language import Language

from spacy_costner.analysis.explanation import FeatureWeight, explain, transition_weights
from spacy_costner.cli.explain import explanation_text
from spacy_costner.ml import linear_part
from spacy_costner.saving import as_json

from .support.commands import run
from .support.config import TOK2VEC
from .support.fitting import initialized


@pytest.fixture
def nlp() -> Language:
    """A pipeline with tags O, B-X, I-X and weights that are known."""
    nlp, _ = initialized()
    features, weights = linear_part(nlp.get_pipe("ner").model)
    row = {name: i for i, name in enumerate(features.names())}
    weights.emissions[row["ORTH=Rome"]] = [-1, 3, 0]
    weights.emissions[row["SHAPE=Xxxx"]] = [0, 2, -4]
    weights.emissions[row["LOWER=saw"]] = [1, -5, 0]
    weights.transitions[:] = numpy.arange(9).reshape(3, 3)
    weights.start[:], weights.end[:] = [0.5, 1.5, 2.5], [10, 20, 30]
    return nlp


def test_strongest_features(nlp: Language) -> None:
    outside, begin, inside = explain(nlp, n_features=2).tags
    assert begin.in_favour == [("ORTH=Rome", 3.0), ("SHAPE=Xxxx", 2.0)]
    assert begin.against == [FeatureWeight("LOWER=saw", -5.0)]
    assert outside.in_favour == [("LOWER=saw", 1.0)]
    assert outside.against == [("ORTH=Rome", -1.0)]
    assert inside.in_favour == []
    assert inside.against == [("SHAPE=Xxxx", -4.0)]
    assert explain(nlp, n_features=1).tags[1].in_favour == [("ORTH=Rome", 3.0)]


def test_transition_weights(nlp: Language) -> None:
    ner = nlp.get_pipe("ner")
    table = transition_weights(ner.tags, linear_part(ner.model)[1])
    assert table == transition_weights(ner.tags, ner.model.predict([nlp.make_doc("Rome")]))
    assert table.origins == ["O", "B-X", "I-X", "(start)"]
    assert table.targets == ["O", "B-X", "I-X", "(end)"]
    assert table.weights == [
        [0.0, 1.0, None, 10.0],
        [3.0, 4.0, 5.0, 20.0],
        [6.0, 7.0, 8.0, 30.0],
        [0.5, 1.5, None, None],
    ]
    lines = explanation_text(explain(nlp)).splitlines()
    (start,) = (line for line in lines if line.startswith("(start)"))
    assert start.split() == ["(start)", "+0.50", "+1.50", ".", "."]


def test_reasons_add_up_to_the_score_of_the_path(nlp: Language) -> None:
    ner = nlp.get_pipe("ner")
    reasons = explain(nlp, text="Rome saw Rome").tokens
    path = [ner.tags.names.index(reason.tag) for reason in reasons]
    entities = ner.tags.decode(numpy.asarray(path), numpy.asarray([3]))
    doc = nlp("Rome saw Rome")
    assert [*zip(entities.begin, entities.end)] == [(ent.start, ent.end) for ent in doc.ents]
    assert len(doc.ents) > 0
    assert reasons[0].features == [("ORTH=Rome", 3.0), ("SHAPE=Xxxx", 2.0)]
    potentials = ner.model.predict([nlp.make_doc("Rome saw Rome")])
    score = sum(potentials.emissions[t, k] for t, k in enumerate(path))
    score += sum(potentials.transitions[i, j] for i, j in pairwise(path))
    score += potentials.start[path[0]] + potentials.end[path[-1]]
    assert sum(reason.score + reason.transition for reason in reasons) == pytest.approx(score)
    assert explain(nlp).tokens == explain(nlp, text="").tokens == []


def test_what_cannot_be_explained(nlp: Language) -> None:
    with pytest.raises(ValueError, match=r"one of \['ner'\], got 'other'"):
        explain(nlp, name="other")
    dense = {"@architectures": "spacy_costner.LinearChainCRF.v1", "tok2vec": TOK2VEC}
    with pytest.raises(ValueError, match=r"components\.ner\.model: expected a model with sparse"):
        explain(initialized(model=dense)[0])


def test_command_line(nlp: Language, tmp_path: Path) -> None:
    nlp.to_disk(tmp_path / "pipeline")
    output = ["--json", tmp_path / "out.json"]
    result = run("explain", tmp_path / "pipeline", "--text", "Rome", *output)
    assert result.exit_code == 0, result.output
    assert "ORTH=Rome +3.00" in result.output and "from \\ to" in result.output
    saved = srsly.read_json(tmp_path / "out.json")
    again = as_json(explain(spacy.load(tmp_path / "pipeline"), text="Rome"))
    assert saved == srsly.json_loads(srsly.json_dumps(again))
    first = saved["tokens"][0]["features"][0]
    assert first == {"feature": "ORTH=Rome", "weight": pytest.approx(3, abs=2e-3)}
    assert run("explain", tmp_path / "pipeline", "--name", "x").exit_code == 1
