"""Components that share a key of `doc.spans`: docs/overlapping.md."""

import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy
import pytest
import spacy
from numpy.testing import assert_allclose, assert_array_equal
from spacy import displacy
from spacy.cli._util import app
from spacy.cli.evaluate import evaluate
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.training import Example
from spacy.util import load_model_from_config, registry
from thinc.api import Config, fix_random_seed
from typer.testing import CliRunner

from spacy_costner.annotation.span_groups import replace_spans
from spacy_costner.annotation.spans import is_missing, spans_as_entities
from spacy_costner.cli.options import load_with_examples
from spacy_costner.cli.report import report_page
from spacy_costner.ml import first_pass_of, linear_part
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.pipeline.confidence import Confidence
from spacy_costner.readers import ReadOptions, read_docs
from spacy_costner.workflows.calibration.guarantees import guarantee
from spacy_costner.workflows.calibration.observed_rates import observe
from spacy_costner.workflows.calibration.temperature import calibrate
from spacy_costner.workflows.calibration.tuning import tune
from spacy_costner.workflows.calibration.watching import watch
from spacy_costner.workflows.config.corpus_statistics import CorpusStatistics, measure_corpus
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.config.label_groups import choose_groups
from spacy_costner.workflows.evaluation.predictions import evaluate_dev, predict_dev
from spacy_costner.workflows.reports.reporting import report
from spacy_costner.workflows.sampling.suggestions import suggest

from ...support.commands import run
from ...support.config import HAMMING
from ...support.pipelines import LISTENING, SMALL
from ...support.posteriors import probs_of_entities

Place = tuple[int, int, str]
"""First token, last token + 1, label."""

GROUPS = {"places": ["GPE"], "others": ["ORG", "PER"]}
"""The labels of each component."""

BANK_OF_ROME = "the bank of Rome lost"
BANK_OF_OSLO = "Ann left the bank of Oslo"
TEXTS: list[tuple[str, list[Place]]] = [
    (BANK_OF_ROME, [(0, 4, "ORG"), (3, 4, "GPE")]),
    (BANK_OF_OSLO, [(0, 1, "PER"), (2, 6, "ORG"), (5, 6, "GPE")]),
    ("Ann saw Oslo and Rome", [(0, 1, "PER"), (2, 3, "GPE"), (4, 5, "GPE")]),
    ("nobody lost", []),
]
WORDS: dict[str, Any] = {name: {"LOWER": 1} for name in ("windows", "memory", "document")}
FEATURES = {"@misc": "spacy_costner.Features.v1", **WORDS, "affixes": [], "flags": []}
SPARSE = {
    "@architectures": "spacy_costner.SparseCRF.v1",
    "features": {**FEATURES, "memory_unit": 1, "elsewhere": None},
}
"""A linear model with label memory and a first pass."""

CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.01}


def docs_with_spans(
    nlp: Language,
    labels: Sequence[str] | None = None,
    texts: Sequence[tuple[str, list[Place]]] = TEXTS,
) -> list[Doc]:
    """The texts, with their spans in `doc.spans["sc"]` that have one of the labels."""
    docs = []
    for text, places in texts:
        doc = Doc(nlp.vocab, words=text.split())
        spans = [Span(doc, *place) for place in places]
        doc.spans["sc"] = [span for span in spans if labels is None or span.label_ in labels]
        docs.append(doc)
    return docs


def examples_of(docs: Iterable[Doc]) -> list[Example]:
    """The docs, and docs of the same words without annotation to predict."""
    examples = []
    for doc in docs:
        predicted = Doc(doc.vocab, words=[token.text for token in doc])
        examples.append(Example(predicted, doc))
    return examples


def places_of(doc: Doc, key: str = "sc") -> list[Place]:
    """The places of the spans of a key of `doc.spans`."""
    return [(span.start, span.end, span.label_) for span in doc.spans[key]]


def predicted_places(nlp: Language) -> list[list[Place]]:
    """The spans that a pipeline predicts in each of TEXTS."""
    return [places_of(nlp(text)) for text, _ in TEXTS]


def pipeline_of_groups(
    model: Any = SPARSE,
    groups: dict[str, list[str]] = GROUPS,
    competing: bool = False,
    **settings: Any,
) -> Language:
    """A pipeline with a component for each group of labels. A component knows only the labels of
    its group; if labels compete, it knows all labels and writes the labels of its group."""
    labels = {}
    if not competing:
        labels = {name: {"labels": labels_of_group} for name, labels_of_group in groups.items()}
    nlp = spacy.blank("xx", config={"initialize": {"components": labels}})
    if model is LISTENING:
        nlp.add_pipe("tok2vec", config={"model": SMALL["model"]["tok2vec"]})
    for name in groups:
        config = {"model": model, "spans_key": "sc", "scheme": "IOB2", **settings}
        config["own_labels"] = groups[name] if competing else None
        nlp.add_pipe("cost_sensitive_ner", name=name, config=config)
    return nlp


def train(nlp: Language, examples: list[Example] | None = None, steps: int = 30) -> Language:
    """Train on TEXTS, or on other examples."""
    fix_random_seed(0)
    batch = examples or examples_of(docs_with_spans(nlp))
    optimizer = nlp.initialize(lambda: batch)
    optimizer.learn_rate = 0.01
    for _ in range(steps):
        nlp.update(batch, sgd=optimizer)
    return nlp


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "competing"])
def trained(request: pytest.FixtureRequest) -> Language:
    """A pipeline that predicts the spans of TEXTS."""
    return train(pipeline_of_groups(competing=request.param), steps=80)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .spacy file with TEXTS, each six times."""
    path = tmp_path_factory.mktemp("corpus") / "train.spacy"
    DocBin(docs=docs_with_spans(spacy.blank("xx")) * 6).to_disk(path)
    return path


# Learning and writing


@pytest.mark.slow
def test_two_components_learn_spans_that_overlap(trained: Language) -> None:
    check_spans_of_texts(trained)


@pytest.mark.slow
def test_two_components_on_a_shared_tok2vec_learn_spans_that_overlap(nlp: Language) -> None:
    check_spans_of_texts(nlp)


def check_spans_of_texts(nlp: Language) -> None:
    """Check that a pipeline predicts the spans of TEXTS, and is scored for them and nothing
    else."""
    in_order = [sorted(places, key=lambda place: place[:2]) for _, places in TEXTS]
    assert predicted_places(nlp) == in_order
    scores = nlp.evaluate(examples_of(docs_with_spans(nlp)))
    assert (scores["spans_sc_p"], scores["spans_sc_r"], scores["spans_sc_f"]) == (1, 1, 1)
    assert sorted(scores["spans_sc_per_type"]) == ["GPE", "ORG", "PER"]
    assert not any(name.startswith("ents") for name in scores)


@pytest.mark.slow
def test_a_component_learns_the_same_from_spans_as_from_entities() -> None:
    """The weights are equal, also in the first pass: entities and presets of docs with the
    key, and spans of labels of other components, don't count."""
    spans = [(0, 1, "PER"), (2, 6, "ORG"), (5, 6, "GPE")]
    words = product(("Ann", "Bo"), ("left", "saw"), ("bank", "port"), ("Oslo", "Rome"))
    texts = [(f"{who} {did} the {what} of {where}", spans) for who, did, what, where in words]

    of_entities = spacy.blank("xx")
    config = {"model": SPARSE, "scheme": "IOB2"}
    of_entities.add_pipe("cost_sensitive_ner", name="others", config=config)
    docs = docs_with_spans(of_entities, GROUPS["others"], texts)
    for doc in docs:
        doc.set_ents(list(doc.spans["sc"]))
    train(of_entities, examples_of(docs))

    of_spans = pipeline_of_groups(groups={"others": GROUPS["others"]})
    docs = docs_with_spans(of_spans, texts=texts)
    for doc in docs:
        doc.set_ents([Span(doc, 1, 3, "ORG")])
    examples = examples_of(docs)
    for eg in examples:
        eg.predicted.set_ents([Span(eg.predicted, 0, 2, "PER")])
    train(of_spans, examples)

    weights = weights_of(of_spans.get_pipe("others").model)
    expected_weights = weights_of(of_entities.get_pipe("others").model)
    assert expected_weights[0].any()
    for array, expected in zip(weights, expected_weights, strict=True):
        assert_array_equal(array, expected)


def weights_of(model: Any) -> list[numpy.ndarray]:
    """The weights of a linear model, and of each fold of its first pass."""
    rows_of_folds = [fold.weights.rows for fold in first_pass_of(model)._folds]
    return [linear_part(model)[1].rows, numpy.stack(rows_of_folds)]


def gradient_of_tokens(ner: Any, reference: Doc) -> numpy.ndarray:
    """How far training on a doc would move the scores of each of its tokens."""
    (eg,) = examples_of([reference])
    _, gradient = ner.get_loss([eg], ner.model.predict([eg.predicted]))
    return numpy.abs(gradient.emissions).sum(1)


def test_a_doc_without_the_key_is_not_annotated() -> None:
    """The entities of the doc don't count for a component with a `spans_key`."""
    nlp = train(pipeline_of_groups(), steps=0)
    doc = Doc(nlp.vocab, words=["the", "bank", "of", "Rome"], ents=["O", "B-ORG", "O", "O"])

    assert not gradient_of_tokens(nlp.get_pipe("others"), doc).any()
    assert is_missing(doc, "sc").all()


def test_annotation_is_missing_at_tokens_of_the_key_for_missing_annotation() -> None:
    """Where a token also has a span, the span counts."""
    nlp = train(pipeline_of_groups(), steps=0)
    doc = Doc(nlp.vocab, words=["the", "bank", "of", "Rome"])
    doc.spans["sc"] = [Span(doc, 3, 4, "PER")]
    doc.spans["sc_missing"] = [doc[0:2], doc[3:4]]

    assert is_missing(doc, "sc").tolist() == [True, True, False, True]
    as_entities = spans_as_entities(doc, "sc", ["PER"])
    # ENT_IOB of spaCy: 0 is missing, 2 is O, 3 is B.
    assert [token.ent_iob for token in as_entities] == [0, 0, 2, 3]
    # Only annotated tokens need a gradient: the gradient of others depends on their neighbours.
    assert gradient_of_tokens(nlp.get_pipe("others"), doc)[3] > 0


@pytest.mark.parametrize(
    "labels, own_labels, expected",
    [
        (None, ["GPE"], [(0, 1, "PER"), (5, 6, "GPE")]),  # ORG overlaps with this GPE
        (["ORG", "GPE"], ["ORG"], [(2, 6, "ORG")]),  # PER is not among the labels
    ],
)
def test_spans_of_other_labels_count_where_they_do_not_overlap_with_own_ones(
    labels: list[str] | None, own_labels: list[str], expected: list[Place]
) -> None:
    (doc,) = docs_with_spans(spacy.blank("xx"), texts=[TEXTS[1]])

    as_entities = spans_as_entities(doc, "sc", labels, own_labels=own_labels)

    assert [(ent.start, ent.end, ent.label_) for ent in as_entities.ents] == expected


def test_a_component_learns_labels_of_others_and_writes_its_own() -> None:
    nlp = train(pipeline_of_groups(competing=True, confidence=CONFIDENCE), steps=2)
    places: Any = nlp.get_pipe("places")

    doc = nlp(BANK_OF_OSLO)

    # ORG is no label of `places`: each ORG of TEXTS overlaps with a GPE.
    assert places.labels == ("GPE", "PER")
    assert places.own_labels == ("GPE",)
    assert places.other_labels == (places.labels.index("PER"),)
    for key in ("places_confidence", "places_confidence_alternatives"):
        assert {span.label_ for span in doc.spans[key]} <= {"GPE"}
    alternatives = doc.spans["others_confidence_alternatives"]
    assert {span.label_ for span in alternatives} == {"ORG", "PER"}


def test_own_labels_that_the_corpus_lacks_are_refused() -> None:
    nlp = pipeline_of_groups(groups={"places": ["GPE", "CITY"]}, competing=True)

    with pytest.raises(ValueError, match=r"own_labels: expected a subset of .*, got \['CITY'\]"):
        train(nlp)


def test_filter_spans_is_refused_without_a_spans_key() -> None:
    with pytest.raises(ValueError, match="filter_spans: expected spans_key to be set, too"):
        pipeline_of_groups(spans_key=None, filter_spans=True)


def test_an_update_makes_entities_of_spans_once_unless_a_label_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A label that isn't known may be one to add, so spans are made entities for that, too."""
    nlp = spacy.blank("xx")
    ner: Any = nlp.add_pipe("cost_sensitive_ner", config={"model": SPARSE, "spans_key": "sc"})
    examples = examples_of(docs_with_spans(nlp, ["ORG"]))
    nlp.initialize(lambda: examples)
    converted = Mock(side_effect=spans_as_entities)
    monkeypatch.setattr("spacy_costner.annotation.settings.spans_as_entities", converted)

    nlp.update(examples)
    assert converted.call_count == len(examples)
    nlp.update(examples_of(docs_with_spans(nlp, ["ORG", "PER"])))
    assert converted.call_count > 2 * len(examples)
    assert ner.labels == ("ORG", "PER")


def test_an_added_label_is_untrained_until_an_update_with_it() -> None:
    nlp = spacy.blank("xx")
    ner: Any = nlp.add_pipe("cost_sensitive_ner", config={"model": SPARSE, "spans_key": "sc"})
    without_per = examples_of(docs_with_spans(nlp, ["ORG"]))
    train(nlp, without_per, steps=1)
    assert ner.labels == ("ORG",)

    ner.add_label("PER")
    nlp.update(without_per)
    assert ner.cfg["untrained"] == ["PER"]
    nlp.update(examples_of(docs_with_spans(nlp, ["ORG", "PER"])))
    assert ner.cfg["untrained"] == []


def test_scores_of_spans_are_probabilities_by_enumeration(trained: Language) -> None:
    doc = trained("the bank of Rome")

    probs = {}
    for name in GROUPS:
        ner: Any = trained.get_pipe(name)
        for (begin, end, label), prob in probs_of_entities(ner.posterior([doc])).items():
            if ner.labels[label] in GROUPS[name]:
                probs[begin, end, ner.labels[label]] = prob
    assert places_of(doc) == [(0, 4, "ORG"), (3, 4, "GPE")]
    expected = [probs[place] for place in places_of(doc)]
    assert_allclose(doc.spans["sc"].attrs["scores"], expected, rtol=1e-5)


def test_entities_and_spans_of_other_labels_stay(trained: Language) -> None:
    """Spans of labels of the components are predicted anew, as often as they are called."""
    doc = trained.make_doc(BANK_OF_ROME)
    doc.set_ents([Span(doc, 4, 5, "EVENT")])
    doc.spans["sc"] = [Span(doc, 4, 5, "EVENT"), Span(doc, 0, 2, "ORG"), Span(doc, 0, 1, "GPE")]

    for _ in range(2):
        doc = trained(doc)

        assert places_of(doc) == [(0, 4, "ORG"), (3, 4, "GPE"), (4, 5, "EVENT")]
        (ent,) = doc.ents
        assert (ent.start, ent.end, ent.label_) == (4, 5, "EVENT")
        *scores, score_of_event = doc.spans["sc"].attrs["scores"]
        assert min(scores) > 0.5
        assert numpy.isnan(score_of_event)


def test_an_empty_text_has_no_spans(trained: Language) -> None:
    assert places_of(trained("")) == []


def test_scores_of_others_stay_with_their_spans() -> None:
    """Spans are in the order of the text, and their scores with them."""
    doc = spacy.blank("xx").make_doc("a b c")
    spans = [Span(doc, 1, 3, "X"), Span(doc, 0, 1, "ORG"), Span(doc, 2, 3, "Y")]
    attrs = {"scores": numpy.asarray([0.25, 0.5, 0.75]), "more": 1}
    doc.spans["sc"] = SpanGroup(doc, name="sc", spans=spans, attrs=attrs)

    # ORG and PER are the labels of the component: its ORG goes.
    new_spans = [Span(doc, 0, 2, "PER")]
    replace_spans(doc, "sc", new_spans, numpy.asarray([0.9]), ("ORG", "PER"))

    assert places_of(doc) == [(0, 2, "PER"), (1, 3, "X"), (2, 3, "Y")]
    assert doc.spans["sc"].attrs["scores"].tolist() == [0.9, 0.25, 0.75]
    assert doc.spans["sc"].attrs["more"] == 1


def test_gold_spans_of_one_component_that_overlap_are_refused() -> None:
    nlp = pipeline_of_groups(groups={"ner": ["GPE", "ORG"]})

    message = (
        r"ner: doc.spans\['sc'\]: expected spans .* got ORG 'the bank of Rome' \(0-4\) and GPE "
        r"'Rome' \(3-4\) in 'the bank of Rome lost': .*filter_spans = true"
    )
    with pytest.raises(ValueError, match=message):
        train(nlp)


def test_filter_spans_trains_on_the_longest_of_spans_that_overlap() -> None:
    nlp = train(pipeline_of_groups(groups={"ner": ["GPE", "ORG"]}, filter_spans=True))

    assert places_of(nlp(BANK_OF_ROME)) == [(0, 4, "ORG")]
    assert places_of(nlp(BANK_OF_OSLO)) == [(2, 6, "ORG")]


def test_the_same_span_twice_is_no_overlap() -> None:
    (doc,) = docs_with_spans(spacy.blank("xx"), ["ORG"], [TEXTS[0]])
    doc.spans["sc"].extend(doc.spans["sc"])

    assert [ent.label_ for ent in spans_as_entities(doc, "sc", ["ORG"]).ents] == ["ORG"]


def test_each_component_writes_confidences_to_a_key_of_its_own() -> None:
    nlp = train(pipeline_of_groups(confidence=CONFIDENCE), steps=3)

    doc = nlp(BANK_OF_OSLO)

    score_of_place = dict(zip(places_of(doc), doc.spans["sc"].attrs["scores"]))
    for name, labels in GROUPS.items():
        scores_of_component = {}
        for place, score in score_of_place.items():
            if place[2] in labels:
                scores_of_component[place] = pytest.approx(score)
        confidences = {}
        for span in doc.spans[f"{name}_confidence"]:
            confidences[span.start, span.end, span.label_] = span._.confidence
        assert confidences
        assert confidences == scores_of_component
        assert doc.spans[f"{name}_confidence_alternatives"]


def test_confidences_need_another_key_than_the_spans() -> None:
    ner: Any = train(pipeline_of_groups(confidence=CONFIDENCE), steps=0).get_pipe("places")

    with pytest.raises(ValueError, match=r"places: confidence\.spans_key: expected a key other"):
        ner.set_confidence(Confidence("sc"))
    ner.set_confidence(Confidence("mine"))
    assert ner.confidence == Confidence("mine")


@pytest.mark.parametrize(
    "scorer, settings", [("cost_scorer", {"cost": HAMMING}), ("confidence_scorer", {})]
)
def test_scorers_of_entities_refuse_a_component_of_spans(
    scorer: str, settings: dict[str, Any]
) -> None:
    """A component with a `spans_key` has no entities in `doc.ents`."""
    block = {"@scorers": f"spacy_costner.{scorer}.v1", **settings}
    nlp = train(pipeline_of_groups(scorer=block), steps=0)

    with pytest.raises(ValueError, match=f"{scorer}: works on doc.ents, .* spans_key 'sc'"):
        nlp.evaluate(examples_of(docs_with_spans(nlp)))


# Round trips. Each function copies a pipeline in another way, in a folder for its files.


def through_disk(nlp: Language, folder: Path) -> Language:
    nlp.to_disk(folder)
    return spacy.load(folder)


def through_pickle(nlp: Language, folder: Path) -> Language:
    return pickle.loads(pickle.dumps(nlp))


def through_bytes(nlp: Language, folder: Path) -> Language:
    return load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())


def through_source(nlp: Language, folder: Path) -> Language:
    """The components of a pipeline in a new pipeline with the same vocab, by spaCy's `source`."""
    new = spacy.blank("xx", vocab=nlp.vocab)
    for name in GROUPS:
        new.add_pipe(name, source=nlp)
    return new


def through_assemble(nlp: Language, folder: Path) -> Language:
    """`spacy assemble`, of a config whose components name the saved pipeline as their source."""
    nlp.to_disk(folder / "pipeline")
    components = {name: {"source": str(folder / "pipeline")} for name in GROUPS}
    config = Config({"nlp": {"lang": "xx", "pipeline": [*GROUPS]}, "components": components})
    config.to_disk(folder / "config.cfg")
    arguments = ["assemble", str(folder / "config.cfg"), str(folder / "assembled")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return spacy.load(folder / "assembled")


@pytest.mark.parametrize(
    "copy", [through_disk, through_pickle, through_bytes, through_source, through_assemble]
)
def test_a_copied_pipeline_predicts_the_same(
    copy: Callable[[Language, Path], Language], trained: Language, tmp_path: Path
) -> None:
    copied = copy(trained, tmp_path)

    assert copied.pipe_names == ["places", "others"]
    assert predicted_places(copied) == predicted_places(trained)


def test_a_component_predicts_its_spans_without_the_other(trained: Language) -> None:
    nlp = spacy.blank("xx", vocab=trained.vocab)
    nlp.add_pipe("others", source=trained)

    assert places_of(nlp(BANK_OF_ROME)) == [(0, 4, "ORG")]


def test_the_key_may_change_when_a_pipeline_is_loaded(trained: Language, tmp_path: Path) -> None:
    trained.to_disk(tmp_path)
    settings = {name: {"spans_key": "new"} for name in GROUPS}
    nlp = spacy.load(tmp_path, config={"components": settings})

    doc = nlp(BANK_OF_ROME)

    assert places_of(doc, "new") == [(0, 4, "ORG"), (3, 4, "GPE")] and "sc" not in doc.spans


def test_processes_predict_the_same(trained: Language) -> None:
    texts = [text for text, _ in TEXTS] * 3
    docs = trained.pipe(texts, n_process=2, batch_size=2)
    assert [places_of(doc) for doc in docs] == predicted_places(trained) * 3


def test_threads_predict_the_same(trained: Language) -> None:
    texts = [text for text, _ in TEXTS] * 3
    expected = predicted_places(trained) * 3
    with ThreadPoolExecutor(4) as pool:
        docs = list(pool.map(trained, texts))
    assert [places_of(doc) for doc in docs] == expected


def test_displacy_shows_the_spans(trained: Language) -> None:
    """The label is written once for each span, at its start."""
    html = displacy.render(trained(BANK_OF_ROME), style="span", options={"spans_key": "sc"})
    assert re.findall(r"\b(?:ORG|GPE|PER)\b", html) == ["ORG", "GPE"]


def test_spacy_evaluate_scores_the_spans(trained: Language, tmp_path: Path, corpus: Path) -> None:
    trained.to_disk(tmp_path)
    scores = evaluate(str(tmp_path), corpus, silent=True)
    assert scores["spans_sc_f"] == 1.0


def test_a_docbin_keeps_the_spans_and_their_scores(trained: Language) -> None:
    saved = DocBin(docs=[trained(BANK_OF_ROME)]).to_bytes()
    (doc,) = DocBin().from_bytes(saved).get_docs(trained.vocab)
    assert places_of(doc) == [(0, 4, "ORG"), (3, 4, "GPE")]
    assert (doc.spans["sc"].attrs["scores"] > 0.5).all()


# Reading


TASKS: list[dict[str, Any]] = [
    {"text": "the bank of Rome", "spans": [[0, 16, "ORG"], [12, 16, "GPE"], [12, 16, "GPE"]]},
    {"text": "Ann saw Oslo", "spans": [[0, 3, "PER"], [8, 11, "GPE"]], "missing": [[4, 7]]},
    {"text": "nobody", "spans": []},
    {"text": "not annotated"},
]
READ: list[tuple[list[Place] | None, list[bool]]] = [
    ([(0, 4, "ORG"), (3, 4, "GPE")], [False] * 4),
    ([(0, 1, "PER")], [False, True, True]),  # the GPE ends within "Oslo", which is missing then
    ([], [False]),
    (None, [True, True]),
]
"""Of each task: the spans of its doc, or None without the key; and which tokens are missing."""

WITH_SPANS_KEY = ReadOptions(spans_key="sc")
reads_tasks = pytest.mark.filterwarnings(
    "ignore:spans don't begin:UserWarning", "ignore:texts without"
)


def write_jsonl(path: Path, records: list[Any]) -> Path:
    """Write a line of JSON for each record. RETURNS (Path): The path."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def check_docs_of_tasks(docs: Sequence[Doc]) -> None:
    """Check that docs have what TASKS say."""
    for doc, (expected_places, expected_missing) in zip(docs, READ, strict=True):
        places = sorted(places_of(doc)) if "sc" in doc.spans else None
        assert places == expected_places
        assert is_missing(doc, "sc").tolist() == expected_missing


@reads_tasks
def test_jsonl_is_read_with_spans_that_overlap(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "tasks.jsonl", TASKS)
    docs = list(read_docs(spacy.blank("xx"), path, WITH_SPANS_KEY))
    check_docs_of_tasks(docs)
    assert not any(doc.ents for doc in docs)


@reads_tasks
@pytest.mark.parametrize("suffix", [".spacy", ".jsonl"])
def test_convert_keeps_spans_that_overlap(suffix: str, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "tasks.jsonl", TASKS)
    output = tmp_path / f"converted{suffix}"

    result = run("convert", path, output, "--spans-key", "sc", "--json")

    assert result.exit_code == 0, result.output
    counts = json.loads(result.stdout)
    # Two equal GPE are one. Of "Ann saw Oslo" two tokens have no annotation, and both of the last
    # text.
    assert counts["corpus"]["labels"] == {"GPE": 1, "ORG": 1, "PER": 1}
    assert counts["missing"] == 4
    check_docs_of_tasks(list(read_docs(spacy.blank("xx"), output, WITH_SPANS_KEY)))


@reads_tasks
def test_convert_refuses_formats_that_have_no_spans(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "tasks.jsonl", TASKS)
    result = run("convert", path, tmp_path / "c.iob", "--spans-key", "sc")
    assert result.exit_code == 1
    assert "expected .spacy or .jsonl with --spans-key" in result.output


@reads_tasks
def test_the_reader_of_configs_reads_spans(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "tasks.jsonl", TASKS)
    block = {"@readers": "spacy_costner.read.v1", "path": str(path), "spans_key": "sc"}
    reader = registry.resolve({"reader": block})["reader"]
    check_docs_of_tasks([eg.reference for eg in reader(spacy.blank("xx"))])


@reads_tasks
def test_commands_read_the_spans_of_the_pipeline_they_load(
    trained: Language, tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "tasks.jsonl", TASKS)
    trained.to_disk(tmp_path / "pipeline")
    _, examples = load_with_examples(str(tmp_path / "pipeline"), path, use_gpu=-1, code_path=None)
    check_docs_of_tasks([eg.reference for eg in examples])


def test_label_studio_is_read_with_spans_that_overlap(tmp_path: Path) -> None:
    values = [
        {"start": 0, "end": 16, "labels": ["ORG"]},
        {"start": 12, "end": 16, "labels": ["GPE"]},
    ]
    results = [{"value": value, "type": "labels"} for value in values]
    task = {"data": {"text": "the bank of Rome"}, "annotations": [{"result": results}]}
    path = write_jsonl(tmp_path / "tasks.json", [task])

    (doc,) = read_docs(spacy.blank("xx"), path, WITH_SPANS_KEY)

    assert places_of(doc) == [(0, 4, "ORG"), (3, 4, "GPE")]


def test_rejected_spans_of_prodigy_are_incorrect_ones(tmp_path: Path) -> None:
    rejected = {"text": "the bank of Rome", "spans": [[12, 16, "ORG"]], "answer": "reject"}
    path = write_jsonl(tmp_path / "tasks.jsonl", [rejected])
    options = ReadOptions(spans_key="sc", incorrect_spans_key="no")

    (doc,) = read_docs(spacy.blank("xx"), path, options)

    assert places_of(doc, "no") == [(3, 4, "ORG")] and "sc" not in doc.spans


def test_entities_in_columns_are_read_as_spans(tmp_path: Path) -> None:
    """The tag "-" says that a token has no annotation."""
    path = tmp_path / "columns.iob"
    path.write_text("the O\nbank B-ORG\nof -\nRome B-GPE\n")

    (doc,) = read_docs(spacy.blank("xx"), path, WITH_SPANS_KEY)

    assert places_of(doc) == [(1, 2, "ORG"), (3, 4, "GPE")]
    assert is_missing(doc, "sc").tolist() == [False, False, True, False]


def test_entities_of_a_docbin_are_read_as_spans_where_it_has_none(tmp_path: Path) -> None:
    """The first doc has spans under the key, and keeps them. The second has only an entity, and the
    third no annotation at all."""
    vocab = spacy.blank("xx").vocab
    docs = [
        Doc(vocab, words=["Rome"], ents=["B-GPE"]),
        Doc(vocab, words=["Oslo"], ents=["B-GPE"]),
        Doc(vocab, words=["Bonn"]),
    ]
    docs[0].spans["sc"] = [Span(docs[0], 0, 1, "ORG")]
    path = tmp_path / "docs.spacy"
    DocBin(docs=docs, store_user_data=True).to_disk(path)

    read = list(read_docs(spacy.blank("xx"), path, WITH_SPANS_KEY))

    assert [places_of(doc) for doc in read[:2]] == [[(0, 1, "ORG")], [(0, 1, "GPE")]]
    assert "sc" not in read[2].spans


# Commands


@pytest.mark.slow
def test_check_and_fit_take_the_groups_that_init_finds(corpus: Path, tmp_path: Path) -> None:
    config_path = tmp_path / "config.cfg"

    corpora = ["--train", corpus, "--dev", corpus]
    result = run("init", config_path, *corpora, "--spans-key", "sc", "--lang", "xx")

    assert result.exit_code == 0, result.output
    config = Config().from_disk(config_path)
    labels = {name: block["own_labels"] for name, block in config["components"].items()}
    # ORG overlaps with GPE in half of the docs, so they are in two components.
    assert labels == {"ner_1": ["GPE", "PER"], "ner_2": ["ORG"]}
    assert config["nlp"]["pipeline"] == ["ner_1", "ner_2"]
    weights = config["training"]["score_weights"]
    assert {score: weight for score, weight in weights.items() if weight} == {"spans_sc_f": 1.0}

    result = run("check", config_path, "--name", "ner_1")
    assert result.exit_code == 0 and "overlap" not in result.output, result.output

    result = run("fit", config_path, "--output", tmp_path / "fitted")
    assert result.exit_code == 0, result.output
    assert "ner_1: " in result.output and "ner_2: " in result.output
    assert "dev: F 100.00" in result.output
    nlp = spacy.load(tmp_path / "fitted" / "model-best")
    assert places_of(nlp(BANK_OF_ROME)) == [(0, 4, "ORG"), (3, 4, "GPE")]
    assert nlp.meta["performance"]["spans_sc_f"] == 1.0

    result = run("fit", config_path, "--output", tmp_path / "again", "--calibrate")
    assert result.exit_code == 1 and "expected one component to train" in result.output


@pytest.fixture
def init_with_groups(corpus: Path, tmp_path: Path) -> Callable[..., Config]:
    """A function: the config that `init` makes of a file with these groups, and of the corpus. The
    file has a byte order mark."""

    def make_config(groups: Any, **options: Any) -> Config:
        path = tmp_path / "groups.json"
        path.write_text(json.dumps(groups), encoding="utf-8-sig")
        return Config().from_str(init(groups_path=path, train_path=corpus, lang="xx", **options))

    return make_config


def test_init_filters_spans_of_a_group_whose_labels_overlap(
    init_with_groups: Callable[..., Config],
) -> None:
    config = init_with_groups({"ner": ["ORG", "GPE", "PER"]})
    assert config["components"]["ner"]["spans_key"] == "sc"
    assert config["components"]["ner"]["filter_spans"] is True


def test_init_filters_no_spans_where_it_has_no_corpus(tmp_path: Path) -> None:
    """Without a corpus `init` can't know whether labels overlap."""
    path = tmp_path / "groups.json"
    path.write_text(json.dumps({"ner": ["ORG", "GPE", "PER"]}))
    assert init(groups_path=path, lang="xx").count("filter_spans = false") == 1


def test_init_makes_a_component_of_each_group(init_with_groups: Callable[..., Config]) -> None:
    config = init_with_groups(GROUPS, model="cnn", aim="guarantee")
    places = config["components"]["places"]
    assert config["nlp"]["pipeline"] == ["tok2vec", "places", "others"]
    assert places["confidence"]["spans_key"] == "places_confidence"
    assert places["filter_spans"] is False
    assert config["corpora"]["dev"]["spans_key"] == "sc"


@pytest.mark.parametrize(
    "groups, message",
    [
        ({"a": ["ORG", "GPE"], "b": ["PER", "GPE"]}, r"each label in one component, got \['GPE'\]"),
        ({"a": ["ORG", "GPE"]}, r"all labels of the corpus, got them without \['PER'\]"),
        ({"a.b": ["ORG"]}, r"groups.json: expected {component: \[labels\]}, got "),
        ([], r"groups.json: expected {component: \[labels\]}, got "),
        ({"a": [["ORG"]]}, r"groups.json: expected {component: \[labels\]}, got "),
    ],
    ids=["a label twice", "a label missing", "a name with a dot", "a list", "a list of lists"],
)
def test_init_refuses_groups(
    groups: Any, message: str, init_with_groups: Callable[..., Config]
) -> None:
    with pytest.raises(ValueError, match=message):
        init_with_groups(groups)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"spans_key": "terms"}, r"expected docs with entities in doc.spans\['terms'\]"),
        ({"miss": 5.0}, "`spans_key`: expected no costs"),
    ],
    ids=["a key without spans", "a cost"],
)
def test_init_refuses_options_with_groups(
    options: dict[str, Any], message: str, init_with_groups: Callable[..., Config]
) -> None:
    with pytest.raises(ValueError, match=message):
        init_with_groups(GROUPS, **options)


def test_init_refuses_a_spans_key_without_groups_and_corpus() -> None:
    with pytest.raises(ValueError, match="expected `groups_path` or `train_path`"):
        init(spans_key="sc")


def test_labels_that_seldom_overlap_share_a_component(tmp_path: Path) -> None:
    """At most 1 % of the spans of a label may be lost: A and B overlap in 2 tokens of 100 of B, A
    and C in 1 of 100 of C, B and C in 99."""
    doc = Doc(spacy.blank("xx").vocab, words=["w"] * 400)
    tokens_of_label = {"A": range(300), "B": range(298, 398), "C": range(299, 399)}
    spans = [Span(doc, i, i + 1, label) for label in "ABC" for i in tokens_of_label[label]]
    doc.spans["sc"] = spans
    path = tmp_path / "train.spacy"
    DocBin(docs=[doc]).to_disk(path)

    corpus = measure_corpus(path, "xx", "sc")

    assert corpus.overlaps["A", "B"] == 2 and corpus.overlaps["B", "C"] == 99
    assert choose_groups(corpus, None) == {"ner_1": ["A", "C"], "ner_2": ["B"]}


def test_rarer_labels_together_do_not_exceed_the_limit_of_a_label() -> None:
    """Each of B and C may be in a group with A, but not both: A would then have 15 overlaps, which
    is more than 1 % of its 1,000 spans. D has fewer overlaps with A than with C."""
    counts = Counter({"A": 1000, "B": 900, "C": 800, "D": 700})
    overlaps: Counter[tuple[str, str]] = Counter()
    for label, other, n in (("A", "B", 8), ("A", "C", 7), ("A", "D", 1), ("C", "D", 3)):
        overlaps[label, other] = overlaps[other, label] = n
    corpus = CorpusStatistics(label_counts=counts, overlaps=overlaps)
    assert choose_groups(corpus, None) == {"ner_1": ["A", "B", "D"], "ner_2": ["C"]}


@pytest.mark.parametrize("severity, filter_spans", [("warning", "true"), ("error", "false")])
def test_check_counts_the_spans_that_overlap_in_a_component(
    severity: str, filter_spans: str, corpus: Path, tmp_path: Path
) -> None:
    groups_path = tmp_path / "groups.json"
    groups_path.write_text(json.dumps({"ner": ["ORG", "GPE", "PER"]}))
    config = init(groups_path=groups_path, train_path=corpus, dev_path=corpus, lang="xx")
    config = config.replace("filter_spans = true", f"filter_spans = {filter_spans}")
    config_path = tmp_path / "config.cfg"
    config_path.write_text(config)

    result = run("check", config_path)

    assert result.exit_code == (1 if severity == "error" else 0), result.output
    line = f"{severity}: train: spans overlap with longer ones of the same component"
    assert line in result.output
    # Two of TEXTS have a GPE in an ORG, and each of them is six times in the corpus.
    assert "(12)" in result.output and "'Rome' GPE" in result.output


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "competing"])
def saved_on_tok2vec(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A saved pipeline that predicts the spans of TEXTS, without label memory: that would know the
    docs that commands measure on."""
    folder = tmp_path_factory.mktemp("tok2vec")
    train(pipeline_of_groups(LISTENING, competing=request.param), steps=150).to_disk(folder)
    return folder


@pytest.fixture
def nlp(saved_on_tok2vec: Path) -> Language:
    return spacy.load(saved_on_tok2vec)


def texts_30_times(nlp: Language) -> list[Example]:
    """120 examples with 60 PER, 60 ORG and 120 GPE."""
    return examples_of(docs_with_spans(nlp) * 30)


@pytest.fixture
def copies_are_new(nlp: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have training docs and copies of docs count for a guarantee."""
    monkeypatch.setattr(
        "spacy_costner.workflows.evaluation.recurrence.find_copies", lambda docs: None
    )
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER):
            pipe.cfg["trained_on"] = ""


def test_tune_measures_the_spans_of_a_component(nlp: Language) -> None:
    """It finds all of them: precision, recall and F are 1."""
    examples = texts_30_times(nlp)
    assert tune(nlp, examples, name="others").chosen.scores == (1, 1, 1)
    assert nlp.meta["performance"]["measured_on"]["docs"] == 120


def test_calibrate_does_not_lower_the_f_of_spans(nlp: Language) -> None:
    """It is the F of spaCy's `evaluate`, and the one that our commands compute."""
    examples = texts_30_times(nlp)
    f_before = nlp.evaluate(examples)["spans_sc_f"]

    calibrate(nlp, examples, name="others")

    f_after = nlp.evaluate(examples)["spans_sc_f"]
    assert f_after >= f_before
    ner: Any = nlp.get_pipe("others")
    scores = evaluate_dev(nlp, ner, predict_dev(nlp, ner, examples))
    assert scores["spans_sc_f"] == pytest.approx(f_after)


@pytest.mark.slow
@pytest.mark.usefixtures("copies_are_new")
def test_guarantee_counts_the_spans_of_a_component(nlp: Language) -> None:
    examples = texts_30_times(nlp)

    result = guarantee(nlp, examples, name="others", miss=0.1)

    assert result.promise.entities == 120  # 60 PER, 60 ORG
    assert (0, 4, "ORG") in places_of(nlp(BANK_OF_ROME), "others_confidence_guaranteed")
    assert observe(nlp, "others", examples)[0].miss_rate == 0.0


@pytest.mark.usefixtures("copies_are_new")
def test_guarantee_per_label_has_the_labels_of_the_component(nlp: Language) -> None:
    result = guarantee(nlp, texts_30_times(nlp), name="others", miss=0.1, per_label=True)
    assert [part.label for part in result.parts] == ["ORG", "PER"]


@pytest.mark.usefixtures("copies_are_new")
def test_guarantee_of_false_alarms_counts_spans(nlp: Language) -> None:
    """The set has one span for each annotated GPE."""
    result = guarantee(nlp, texts_30_times(nlp), name="places", false_alarm=0.1)
    assert result.parts[0].spans == 1.0


@pytest.mark.usefixtures("copies_are_new")
@pytest.mark.parametrize("saved_on_tok2vec", [True], indirect=True, ids=["competing"])
def test_a_promise_holds_only_for_the_own_labels_it_was_made_for(nlp: Language) -> None:
    guarantee(nlp, texts_30_times(nlp), name="others", miss=0.1)
    ner: Any = nlp.get_pipe("others")
    annotation = ner.annotation

    ner.annotation = replace(annotation, own_labels=["ORG"])
    assert ner.guarantee is None
    ner.annotation = annotation
    assert ner.guarantee is not None


def test_report_counts_the_spans_of_a_component(nlp: Language) -> None:
    result = report(nlp, texts_30_times(nlp), name="others")
    # 60 PER and 60 ORG, all found
    assert (result.total.tp, result.total.fp, result.total.fn) == (120, 0, 0)
    assert sorted(result.labels) == ["ORG", "PER"]


def test_watch_expects_scores_of_the_labels_of_the_component(nlp: Language) -> None:
    calibrate(nlp, texts_30_times(nlp), name="others")
    docs = nlp.pipe([BANK_OF_ROME, BANK_OF_OSLO])

    watched = watch(nlp.get_pipe("others"), docs)

    # The precision, recall and F that the probabilities of spans let expect
    scores_of_label = watched.shift.expected["ents_per_type"]
    assert sorted(scores_of_label) == ["ORG", "PER"]
    assert min(scores["r"] for scores in scores_of_label.values()) > 0.9


def test_suggest_refuses_a_component_of_spans(nlp: Language) -> None:
    with pytest.raises(ValueError, match=r"suggest: works on doc\.ents, but others has"):
        suggest(nlp, [nlp(BANK_OF_ROME)], name="others")


def test_annotate_writes_spans_that_overlap(trained: Language, tmp_path: Path) -> None:
    trained.to_disk(tmp_path / "pipeline")
    (tmp_path / "texts.txt").write_text("\n".join(text for text, _ in TEXTS))

    result = run("annotate", tmp_path / "pipeline", tmp_path / "texts.txt", "--output", tmp_path)

    assert result.exit_code == 0, result.output
    (output_path,) = tmp_path.glob("texts.txt-*")
    bank_of_rome = json.loads(output_path.read_text().splitlines()[0])
    spans = bank_of_rome["spans"]
    in_characters = [(span["start"], span["end"], span["label"]) for span in spans]
    assert in_characters == [(0, 16, "ORG"), (12, 16, "GPE")]
    assert all(0.5 < span["score"] <= 1 for span in spans)
    assert bank_of_rome["entities"] == []


# Evaluation with `filter_spans`

NESTED = [(2, 6, "ORG"), (5, 6, "GPE"), (8, 9, "GPE")]


def nested_examples(
    nlp: Language, n: int, source: str, places: Sequence[Place] = NESTED
) -> list[Example]:
    """Docs such as "They saw the bank of Rome , and Oslo . dev-1"."""
    rng = numpy.random.default_rng(0)
    texts: list[tuple[str, list[Place]]] = []
    for i in range(n):
        first, second = rng.choice(["Rome", "Oslo", "Bonn", "Lima", "Cairo", "Quito"], 2)
        text = f"They saw the bank of {first} , and {second} . {source}-{i}"
        texts.append((text, [*places]))
    return examples_of(docs_with_spans(nlp, texts=texts))


@pytest.fixture(scope="module")
def saved_filtering(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Saved pipelines with one component for overlapping labels. One predicts the longest spans,
    which are kept in training, and the other one the GPE in them."""
    folders: dict[str, Path] = {}
    for found, places in (("outer", NESTED), ("inner", NESTED[1:])):
        nlp = pipeline_of_groups(groups={"ner": ["GPE", "ORG"]}, filter_spans=True)
        batch = nested_examples(nlp, 20, "train", places) + nested_examples(nlp, 1, "one")
        folders[found] = tmp_path_factory.mktemp(found)
        train(nlp, batch).to_disk(folders[found])
    return folders


@pytest.fixture(params=["outer", "inner"])
def filtering(request: pytest.FixtureRequest, saved_filtering: dict[str, Path]) -> Language:
    nlp = spacy.load(saved_filtering[request.param])
    nlp.meta["name"] = request.param
    return nlp


def test_guarantee_counts_spans_that_training_drops(filtering: Language) -> None:
    """At a high temperature, sets contain the ORG and the GPE in it."""
    ner: Any = filtering.get_pipe("ner")
    ner.cfg["temperature"]["overall"] = 4.0

    result = guarantee(filtering, nested_examples(filtering, 100, "calibration"), miss=0.1)

    assert result.promise.entities == 3 * result.promise.docs
    new_examples = nested_examples(filtering, 100, "new")
    shares_missed = []
    for doc in filtering.pipe(eg.predicted for eg in new_examples):
        missed = set(NESTED).difference(places_of(doc, "ner_confidence_guaranteed"))
        shares_missed.append(len(missed) / len(NESTED))
    assert numpy.mean(shares_missed) <= 0.1


@pytest.mark.parametrize("parameter", ["threshold", "bias"])
def test_tune_has_the_scores_of_spacy_if_training_drops_spans(
    filtering: Language, parameter: str
) -> None:
    tuning = tune(filtering, nested_examples(filtering, 20, "dev"), parameter=parameter)

    decoding = filtering.get_pipe("ner").cfg["decoding"]
    for point in [*tuning.points[::20], tuning.chosen]:
        decoding[parameter] = point.value
        scores = filtering.evaluate(nested_examples(filtering, 20, "dev"))
        assert point.recall == pytest.approx(scores["spans_sc_r"] or 0)
        assert point.f_score() == pytest.approx(scores["spans_sc_f"] or 0)
    assert tuning.chosen.scores == pytest.approx((1, 2 / 3, 0.8))


def test_calibrate_counts_spans_that_training_drops_as_correct(filtering: Language) -> None:
    result = calibrate(filtering, nested_examples(filtering, 50, "dev"))
    assert result.temperature.overall < 1
    assert result.error < result.error_before < 0.1


def test_report_has_the_scores_of_spacy_if_training_drops_spans(filtering: Language) -> None:
    scores = filtering.evaluate(nested_examples(filtering, 50, "test"))

    result = report(filtering, nested_examples(filtering, 50, "test"))

    total = result.total
    expected = tuple(scores[f"spans_sc_{name}"] for name in "prf")
    assert (total.precision, total.recall, total.fscore) == expected == (1, 2 / 3, 0.8)
    assert tuple(result.scores[f"ents_{name}"] for name in "prf") == expected
    by_label = {label: counts.to_dict() for label, counts in result.labels.items()}
    assert by_label == scores["spans_sc_per_type"] == result.scores["ents_per_type"]
    assert result.scores["ents_sent_acc"] == 0
    assert result.scores["ents_ece"] < 0.1
    assert result.thresholds[40].n_missing == 50
    assert result.intervals is not None and result.intervals.recall == pytest.approx((2 / 3, 2 / 3))


def test_report_shows_spans_that_training_drops(filtering: Language) -> None:
    """The mistakes are entities that the component missed. The text is shown twice, because two of
    its annotated entities overlap."""
    result = report(filtering, nested_examples(filtering, 50, "test"))

    missed = {"outer": "GPE", "inner": "ORG"}[filtering.meta["name"]]
    assert result.kinds["missing entity"].n_mistakes == 50
    assert sum(total.n_mistakes for total in result.kinds.values()) == 50
    for mistake in result.mistakes:
        assert [mark.label for mark in mistake.annotated] == ["ORG", "GPE", "GPE"]
        assert [mark.label for mark in mistake.annotated if mark.state == "error"] == [missed]
        assert {mark.state for mark in mistake.predicted} == {"correct"}
    html = report_page(result)
    (annotated, *_) = re.findall(r"<dt>annotated</dt><dd>(.*?)</dd>", html, re.DOTALL)
    lines = [re.sub(r"<span.*?</span>|<.*?>", "", line) for line in annotated.split("<br>")]
    assert lines == [result.mistakes[0].text] * 2


def test_spans_that_training_drops_are_aligned(saved_filtering: dict[str, Path]) -> None:
    """In the second doc, the GPE in the ORG is a part of the token "Rome's"."""
    nlp = spacy.load(saved_filtering["outer"])
    words = ["the", "bank", "of", "Rome", "'s", "lost"]
    spaces = [True, True, True, False, True, True]
    reference = Doc(nlp.vocab, words=words, spaces=spaces)
    reference.spans["sc"] = [Span(reference, 1, 5, "ORG"), Span(reference, 3, 4, "GPE")]
    same_tokens = Doc(nlp.vocab, words=words, spaces=spaces)
    other_tokens = Doc(nlp.vocab, words=["the", "bank", "of", "Rome's", "lost"])
    examples = [Example(same_tokens, reference), Example(other_tokens, reference)]
    ner: Any = nlp.get_pipe("ner")

    dev = predict_dev(nlp, ner, examples)

    gpe, org = (ner.labels.index(label) for label in ("GPE", "ORG"))
    assert sorted(dev.gold.as_tuples()) == [(1, 5, org), (3, 4, gpe), (7, 10, org)]
    assert dev.misaligned.as_tuples() == [(9, 10, gpe)]
    assert dev.n_annotated == 4


def test_tokens_of_spans_that_training_drops_are_annotated(
    saved_filtering: dict[str, Path],
) -> None:
    nlp = spacy.load(saved_filtering["outer"])
    (eg,) = nested_examples(nlp, 1, "dev", [(2, 6, "ORG"), (5, 7, "GPE")])
    eg.reference.spans["sc_missing"] = [eg.reference[6:8]]

    dev = predict_dev(nlp, nlp.get_pipe("ner"), [eg])

    assert dev.n_annotated == 2
    assert numpy.flatnonzero(~dev.is_counted).tolist() == [7]


def test_spans_that_overlap_are_refused_in_evaluation_without_filter_spans(nlp: Language) -> None:
    examples = examples_of(docs_with_spans(nlp, texts=[("a b c", [(0, 2, "PER"), (1, 3, "ORG")])]))
    for evaluate_docs in (report, tune, calibrate):
        with pytest.raises(ValueError, match=r"others: doc.spans\['sc'\]: expected spans of one"):
            evaluate_docs(nlp, examples, name="others")
