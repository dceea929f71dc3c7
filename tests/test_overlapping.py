"""Components that share a key of `doc.spans`: docs/overlapping.md."""

import json
import pickle
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

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

from spacy_costner.analysis.calibration import calibrate
from spacy_costner.analysis.guarantees import guarantee, observe
from spacy_costner.analysis.initial_config import choose_groups, init, measure_corpus
from spacy_costner.analysis.predictions import evaluate_dev, predict_dev
from spacy_costner.analysis.reporting import report
from spacy_costner.analysis.suggestions import suggest
from spacy_costner.analysis.tuning import tune
from spacy_costner.analysis.watching import watch
from spacy_costner.cli.options import load
from spacy_costner.ml import first_pass_of, linear_part
from spacy_costner.pipeline.annotations import Confidence
from spacy_costner.readers import ReadOptions, read_docs
from spacy_costner.spans import is_missing, replace_spans, spans_as_entities

from .support.commands import run
from .support.config import HAMMING
from .support.pipelines import LISTENING, SMALL
from .support.posteriors import probs_of_entities

Place = tuple[int, int, str]
GROUPS = {"places": ["GPE"], "others": ["ORG", "PER"]}
TEXTS: list[tuple[str, list[Place]]] = [
    ("the bank of Rome lost", [(0, 4, "ORG"), (3, 4, "GPE")]),
    ("Ann left the bank of Oslo", [(0, 1, "PER"), (2, 6, "ORG"), (5, 6, "GPE")]),
    ("Ann saw Oslo and Rome", [(0, 1, "PER"), (2, 3, "GPE"), (4, 5, "GPE")]),
    ("nobody lost", []),
]
WORDS: dict[str, Any] = {name: {"LOWER": 1} for name in ("windows", "memory", "document")}
FEATURES = {"@misc": "spacy_costner.Features.v1", **WORDS, "affixes": [], "flags": []}
SPARSE = {
    "@architectures": "spacy_costner.SparseCRF.v1",
    "features": {**FEATURES, "memory_unit": 1, "elsewhere": None},
}


def gold(
    nlp: Language, labels: Sequence[str] | None = None, texts: Any = TEXTS, key: str = "sc"
) -> list[Doc]:
    """The texts with the spans of all labels or some."""
    docs = []
    for text, places in texts:
        doc = Doc(nlp.vocab, words=text.split())
        doc.spans[key] = [Span(doc, *p) for p in places if labels is None or p[2] in labels]
        docs.append(doc)
    return docs


def examples(docs: Iterable[Doc]) -> list[Example]:
    return [Example(Doc(doc.vocab, words=[t.text for t in doc]), doc) for doc in docs]


def places(doc: Doc, key: str = "sc") -> list[Place]:
    return [(span.start, span.end, span.label_) for span in doc.spans[key]]


def answers(nlp: Language) -> list[list[Place]]:
    return [places(nlp(text)) for text, _ in TEXTS]


def make(
    model: Any = SPARSE, groups: Any = GROUPS, competing: bool = False, **settings: Any
) -> Language:
    """A pipeline with a component for each group of labels: the only ones that it knows or, if
    labels compete, its own."""
    labels = {name: {"labels": own} for name, own in groups.items() if not competing}
    nlp = spacy.blank("en", config={"initialize": {"components": labels}})
    if model is LISTENING:
        nlp.add_pipe("tok2vec", config={"model": SMALL["model"]["tok2vec"]})
    for name in groups:
        config = {"model": model, "spans_key": "sc", "scheme": "IOB2", **settings}
        config["own_labels"] = groups[name] if competing else None
        nlp.add_pipe("cost_sensitive_ner", name=name, config=config)
    return nlp


def train(nlp: Language, docs: Any = None, steps: int = 30, batch: Any = None) -> Language:
    fix_random_seed(0)
    batch = batch or examples(gold(nlp) if docs is None else docs)
    optimizer = nlp.initialize(lambda: batch)
    optimizer.learn_rate = 0.01
    for _ in range(steps):
        nlp.update(batch, sgd=optimizer)
    return nlp


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "competing"])
def trained(request: pytest.FixtureRequest) -> Language:
    return train(make(competing=request.param), steps=100)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "train.spacy"
    DocBin(docs=gold(spacy.blank("en")) * 6).to_disk(path)
    return path


# Learning and writing


@pytest.mark.parametrize("model, steps", [(SPARSE, 30), (LISTENING, 150)], ids=["own", "shared"])
def test_spans_of_different_components_overlap(model: Any, steps: int) -> None:
    """With features of their own and on a shared Tok2Vec."""
    nlp = train(make(model), steps=steps)
    assert answers(nlp) == [sorted(places, key=lambda p: p[:2]) for _, places in TEXTS]
    scores = nlp.evaluate(examples(gold(nlp)))
    assert (scores["spans_sc_p"], scores["spans_sc_r"], scores["spans_sc_f"]) == (1, 1, 1)
    assert sorted(scores["spans_sc_per_type"]) == ["GPE", "ORG", "PER"]
    assert not any(name.startswith("ents") for name in scores)


def test_a_component_learns_from_spans_as_others_from_entities() -> None:
    """The weights are the same, with label memory and a first pass. Entities and presets of the
    docs, and the spans of other labels, don't count."""
    flat = spacy.blank("en")
    config = {"model": SPARSE, "scheme": "IOB2"}
    flat.add_pipe("cost_sensitive_ner", name="others", config=config)
    spans = [(0, 1, "PER"), (2, 6, "ORG"), (5, 6, "GPE")]
    words = product(("Ann", "Bo"), ("left", "saw"), ("bank", "port"), ("Oslo", "Rome"))
    texts = [(f"{who} {did} the {what} of {where}", spans) for who, did, what, where in words]
    docs = gold(flat, GROUPS["others"], texts)
    for doc in docs:
        doc.set_ents(list(doc.spans["sc"]))
    train(flat, docs)
    nlp = make(groups={"others": GROUPS["others"]})
    docs = gold(nlp, texts=texts)
    for doc in docs:
        doc.set_ents([Span(doc, 1, 3, "ORG")])
    batch = examples(docs)
    for eg in batch:
        eg.predicted.set_ents([Span(eg.predicted, 0, 2, "PER")])
    train(nlp, batch=batch)
    rows = []
    for model in (n.get_pipe("others").model for n in (flat, nlp)):
        folds = [weights.rows for _, weights in first_pass_of(model)._folds]
        rows.append([linear_part(model)[1].rows, numpy.stack(folds)])
    assert rows[0][0].any()
    for expected, got in zip(*rows):
        assert_array_equal(got, expected)


def test_docs_without_the_key_and_missing_spans_are_not_annotated() -> None:
    nlp = make()
    train(nlp, steps=0)
    ner: Any = nlp.get_pipe("others")

    def gradient(doc: Doc) -> numpy.ndarray:
        (eg,) = examples([doc])
        return numpy.abs(ner.get_loss([eg], ner.model.predict([eg.predicted]))[1].emissions).sum(1)

    bare = Doc(nlp.vocab, words=["the", "bank", "of", "Rome"], ents=["O", "B-ORG", "O", "O"])
    assert not gradient(bare).any()
    partial = bare.copy()
    partial.spans["sc"] = [Span(partial, 3, 4, "PER")]
    partial.spans["sc_missing"] = [partial[0:2], partial[3:4]]
    assert is_missing(partial, "sc").tolist() == [True, True, False, True]
    seen = spans_as_entities(partial, "sc", ["PER"])
    assert [token.ent_iob for token in seen] == [0, 0, 2, 3]
    # Only a gradient of annotated tokens is needed: others are free but for their neighbours.
    assert gradient(partial)[3] > 0
    assert is_missing(bare, "sc").all()


def test_labels_of_others_compete_where_they_do_not_overlap(trained: Language) -> None:
    """The component learns them as entities, and writes only its own."""
    doc = gold(trained)[1]
    seen = spans_as_entities(doc, "sc", own_labels=["GPE"])
    assert [(e.start, e.end, e.label_) for e in seen.ents] == [(0, 1, "PER"), (5, 6, "GPE")]
    seen = spans_as_entities(doc, "sc", ["ORG", "GPE"], own_labels=["ORG"])
    assert [(e.start, e.end, e.label_) for e in seen.ents] == [(2, 6, "ORG")]
    confidence = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.01}
    nlp = train(make(competing=True, confidence=confidence), steps=2)
    ner: Any = nlp.get_pipe("places")
    # Each ORG overlaps with a GPE.
    assert (ner.labels, ner.own_labels, ner.other_labels) == (("GPE", "PER"), ("GPE",), (1,))
    doc = nlp(TEXTS[1][0])
    for key in ("places_confidence", "places_confidence_alternatives"):
        assert {span.label_ for span in doc.spans[key]} <= {"GPE"}
    assert {label for *_, label in places(doc, "others_confidence_alternatives")} == {"ORG", "PER"}
    with pytest.raises(ValueError, match=r"own_labels: expected some of .*, got \['CITY'\]"):
        train(make(groups={"places": ["GPE", "CITY"]}, competing=True))
    with pytest.raises(ValueError, match="filter_spans: expected a spans_key with them"):
        make(spans_key=None, filter_spans=True)


def test_labels_of_the_corpus_and_added_ones() -> None:
    """One that is added is predicted after an update with it."""
    nlp = spacy.blank("en")
    ner: Any = nlp.add_pipe("cost_sensitive_ner", config={"model": SPARSE, "spans_key": "sc"})
    train(nlp, gold(nlp, ["ORG"]), steps=1)
    assert ner.labels == ("ORG",)
    ner.add_label("PER")
    nlp.update(examples(gold(nlp, ["ORG"])))
    assert ner.cfg["untrained"] == ["PER"]
    nlp.update(examples(gold(nlp, GROUPS["others"])))
    assert ner.cfg["untrained"] == []


def test_probabilities_are_those_of_the_enumeration(trained: Language) -> None:
    doc = trained("the bank of Rome")
    group, probs = doc.spans["sc"], {}
    for name in GROUPS:
        ner: Any = trained.get_pipe(name)
        for (b, e, label), p in probs_of_entities(ner.posterior([doc])).items():
            if ner.labels[label] in GROUPS[name]:
                probs[b, e, ner.labels[label]] = p
    assert places(doc) == [(0, 4, "ORG"), (3, 4, "GPE")]
    assert_allclose(group.attrs["scores"], [probs[p] for p in places(doc)], rtol=1e-5)


def test_entities_and_spans_of_others_stay(trained: Language) -> None:
    doc = trained.make_doc(TEXTS[0][0])
    doc.set_ents([Span(doc, 4, 5, "EVENT")])
    doc.spans["sc"] = [Span(doc, 4, 5, "EVENT"), Span(doc, 0, 2, "ORG"), Span(doc, 0, 1, "GPE")]
    expected = [(0, 4, "ORG"), (3, 4, "GPE"), (4, 5, "EVENT")]
    for _ in range(2):
        doc = trained(doc)
        assert places(doc) == expected
        assert [(ent.start, ent.end, ent.label_) for ent in doc.ents] == [(4, 5, "EVENT")]
        scores = doc.spans["sc"].attrs["scores"]
        assert (scores[:2] > 0.5).all() and numpy.isnan(scores[2])
    assert places(trained("")) == []


def test_scores_of_others_stay_with_their_spans(trained: Language) -> None:
    doc = trained.make_doc("a b c")
    spans = [Span(doc, 1, 3, "X"), Span(doc, 0, 1, "ORG"), Span(doc, 2, 3, "Y")]
    attrs = {"scores": numpy.asarray([0.25, 0.5, 0.75]), "more": 1}
    doc.spans["sc"] = SpanGroup(doc, name="sc", spans=spans, attrs=attrs)
    replace_spans(doc, "sc", [Span(doc, 0, 2, "PER")], numpy.asarray([0.9]), ("ORG", "PER"))
    assert places(doc) == [(0, 2, "PER"), (1, 3, "X"), (2, 3, "Y")]
    assert doc.spans["sc"].attrs["scores"].tolist() == [0.9, 0.25, 0.75]
    assert doc.spans["sc"].attrs["more"] == 1


def test_spans_of_a_component_must_not_overlap() -> None:
    nlp = make(groups={"ner": ["GPE", "ORG"]})
    message = (
        r"ner: doc.spans\['sc'\]: expected spans .* got ORG 'the bank of Rome' \(0-4\) and GPE "
        r"'Rome' \(3-4\) in 'the bank of Rome lost': .*filter_spans = true"
    )
    with pytest.raises(ValueError, match=message):
        train(nlp)
    nlp = train(make(groups={"ner": ["GPE", "ORG"]}, filter_spans=True))
    assert answers(nlp)[:2] == [[(0, 4, "ORG")], [(2, 6, "ORG")]]
    doc = gold(nlp)[0]
    doc.spans["sc"].extend(doc.spans["sc"])  # the same span twice is no overlap
    assert [ent.label_ for ent in spans_as_entities(doc, "sc", ["ORG"]).ents] == ["ORG"]


def test_confidences_have_keys_of_their_own() -> None:
    confidence = {"@misc": "spacy_costner.Confidence.v1", "alternatives": 0.01}
    nlp = train(make(confidence=confidence), steps=3)
    doc = nlp(TEXTS[1][0])
    for name, labels in GROUPS.items():
        own = [place for place in places(doc) if place[2] in labels]
        assert places(doc, f"{name}_confidence") == own and own
        assert doc.spans[f"{name}_confidence_alternatives"]
        p = doc.spans["sc"].attrs["scores"][places(doc).index(own[0])]
        assert doc.spans[f"{name}_confidence"][0]._.confidence == pytest.approx(p)
    with pytest.raises(ValueError, match=r"places: confidence\.spans_key: expected another key"):
        nlp.get_pipe("places").set_confidence(Confidence("sc"))
    nlp.get_pipe("places").set_confidence(Confidence("mine"))
    assert nlp.get_pipe("places").confidence == Confidence("mine")


@pytest.mark.parametrize(
    "scorer, settings", [("cost_scorer", {"cost": HAMMING}), ("confidence_scorer", {})]
)
def test_scorers_of_entities_refuse_spans(scorer: str, settings: dict[str, Any]) -> None:
    nlp = train(make(scorer={"@scorers": f"spacy_costner.{scorer}.v1", **settings}), steps=0)
    with pytest.raises(ValueError, match=f"{scorer}: works on doc.ents, .* spans_key 'sc'"):
        nlp.evaluate(examples(gold(nlp)))


# Round trips


def test_round_trips(trained: Language, tmp_path: Path) -> None:
    path, expected = tmp_path / "pipeline", answers(trained)
    trained.to_disk(path)
    again = {"disk": spacy.load(path), "pickle": pickle.loads(pickle.dumps(trained))}
    again["bytes"] = load_model_from_config(trained.config).from_bytes(trained.to_bytes())
    again["source"] = spacy.blank("en", vocab=trained.vocab)
    for name in GROUPS:
        again["source"].add_pipe(name, source=trained)
    config: dict[str, Any] = {"nlp": {"lang": "en", "pipeline": [*GROUPS]}}
    config["components"] = {name: {"source": str(path)} for name in GROUPS}
    Config(config).to_disk(tmp_path / "config.cfg")
    arguments = ["assemble", str(tmp_path / "config.cfg"), str(tmp_path / "assembled")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    again["assemble"] = spacy.load(tmp_path / "assembled")
    for way, nlp in again.items():
        assert (nlp.pipe_names, answers(nlp)) == ([*GROUPS], expected), way
    one = spacy.blank("en", vocab=trained.vocab)
    one.add_pipe("others", source=trained)
    assert answers(one)[0] == [(0, 4, "ORG")]
    # The key may change.
    nlp = spacy.load(path, config={"components": {n: {"spans_key": "new"} for n in GROUPS}})
    doc = nlp(TEXTS[0][0])
    assert places(doc, "new") == expected[0] and "sc" not in doc.spans


def test_processes_and_threads(trained: Language) -> None:
    texts = [text for text, _ in TEXTS] * 3
    expected = answers(trained) * 3
    assert [places(doc) for doc in trained.pipe(texts, n_process=2, batch_size=2)] == expected
    with ThreadPoolExecutor(4) as pool:
        assert [places(doc) for doc in pool.map(trained, texts)] == expected


def test_spacy_shows_and_evaluates_them(trained: Language, tmp_path: Path, corpus: Path) -> None:
    html = displacy.render(trained(TEXTS[0][0]), style="span", options={"spans_key": "sc"})
    assert "ORG" in html and "GPE" in html
    trained.to_disk(tmp_path / "pipeline")
    scores = evaluate(str(tmp_path / "pipeline"), corpus, silent=True)
    assert scores["spans_sc_f"] == 1.0
    doc = DocBin(docs=[trained(TEXTS[0][0])]).to_bytes()
    (again,) = DocBin().from_bytes(doc).get_docs(trained.vocab)
    assert places(again) == answers(trained)[0]
    assert (again.spans["sc"].attrs["scores"] > 0.5).all()


# Reading


TASKS: list[dict[str, Any]] = [
    {"text": "the bank of Rome", "spans": [[0, 16, "ORG"], [12, 16, "GPE"], [12, 16, "GPE"]]},
    {"text": "Ann saw Oslo", "spans": [[0, 3, "PER"], [8, 11, "GPE"]], "missing": [[4, 7]]},
    {"text": "nobody", "spans": []},
    {"text": "not annotated"},
]
READ: list[Any] = [
    ([(0, 4, "ORG"), (3, 4, "GPE")], [False] * 4),
    ([(0, 1, "PER")], [False, True, True]),
    ([], [False]),
    (None, [True, True]),
]
SPANS_KEY = ReadOptions(spans_key="sc")


def written(path: Path, tasks: list[Any]) -> Path:
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return path


def check_read(docs: Sequence[Doc]) -> None:
    for doc, (expected, missing) in zip(docs, READ, strict=True):
        assert (sorted(places(doc)) if "sc" in doc.spans else None) == expected
        assert is_missing(doc, "sc").tolist() == missing


@pytest.mark.filterwarnings("ignore:spans don't begin:UserWarning", "ignore:texts without")
def test_jsonl_keeps_overlapping_spans(trained: Language, tmp_path: Path) -> None:
    """And back, by `convert`, as .spacy and JSONL. Commands and the reader of configs read them,
    too."""
    path, nlp = written(tmp_path / "tasks.jsonl", TASKS), spacy.blank("en")
    docs = list(read_docs(nlp, path, SPANS_KEY))
    check_read(docs)
    assert not any(doc.ents for doc in docs)
    for suffix in (".spacy", ".jsonl"):
        output = tmp_path / f"converted{suffix}"
        result = run("convert", path, output, "--spans-key", "sc", "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["labels"] == {"GPE": 1, "ORG": 1, "PER": 1} and found["missing"] == 4
        check_read(list(read_docs(nlp, output, SPANS_KEY)))
    result = run("convert", path, tmp_path / "c.iob", "--spans-key", "sc")
    assert result.exit_code == 1 and "expected .spacy or .jsonl with --spans-key" in result.output
    reader = {"@readers": "spacy_costner.read.v1", "path": str(path), "spans_key": "sc"}
    read = registry.resolve({"reader": reader})["reader"]
    check_read([eg.reference for eg in read(nlp)])
    trained.to_disk(tmp_path / "pipeline")
    _, egs = load(str(tmp_path / "pipeline"), path, -1, None)
    check_read([eg.reference for eg in egs])


def test_other_formats(tmp_path: Path) -> None:
    """Label Studio, rejected spans of Prodigy, and columns."""
    nlp = spacy.blank("en")
    values = [{"start": b, "end": e, "labels": [x]} for b, e, x in TASKS[0]["spans"][:2]]
    results = [{"value": value, "type": "labels"} for value in values]
    task = {"data": {"text": TASKS[0]["text"]}, "annotations": [{"result": results}]}
    (doc,) = read_docs(nlp, written(tmp_path / "tasks.json", [task]), SPANS_KEY)
    assert places(doc) == [(0, 4, "ORG"), (3, 4, "GPE")]
    rejected = {**TASKS[0], "spans": [[12, 16, "ORG"]], "answer": "reject"}
    options = ReadOptions(spans_key="sc", incorrect_spans_key="no")
    (doc,) = read_docs(nlp, written(tmp_path / "tasks.jsonl", [rejected]), options)
    assert places(doc, "no") == [(3, 4, "ORG")] and "sc" not in doc.spans
    path = tmp_path / "columns.iob"
    path.write_text("the O\nbank B-ORG\nof -\nRome B-GPE\n")
    (doc,) = read_docs(nlp, path, SPANS_KEY)
    assert places(doc) == [(1, 2, "ORG"), (3, 4, "GPE")]
    assert is_missing(doc, "sc").tolist() == [False, False, True, False]


# Commands


def test_init_finds_groups_of_labels(corpus: Path, tmp_path: Path) -> None:
    """And `check` and `fit` take what it writes."""
    path = tmp_path / "config.cfg"
    arguments = ["--train", corpus, "--dev", corpus, "--spans-key", "sc"]
    result = run("init", path, *arguments)
    assert result.exit_code == 0, result.output
    config = Config().from_disk(path)
    labels = {name: block["own_labels"] for name, block in config["components"].items()}
    assert labels == {"ner_1": ["GPE", "PER"], "ner_2": ["ORG"]}
    assert config["nlp"]["pipeline"] == [*labels]
    weights = config["training"]["score_weights"]
    assert {k: v for k, v in weights.items() if v} == {"spans_sc_f": 1.0}
    result = run("check", path, "--name", "ner_1")
    assert result.exit_code == 0 and "overlap" not in result.output, result.output
    result = run("fit", path, "--output", tmp_path / "fitted")
    assert result.exit_code == 0, result.output
    assert "ner_1: " in result.output and "ner_2: " in result.output
    assert "dev: F 100.00" in result.output
    nlp = spacy.load(tmp_path / "fitted" / "model-best")
    assert answers(nlp)[0] == [(0, 4, "ORG"), (3, 4, "GPE")]
    assert nlp.meta["performance"]["spans_sc_f"] == 1.0
    result = run("fit", path, "--output", tmp_path / "again", "--calibrate")
    assert result.exit_code == 1 and "expected one component to train" in result.output


def test_init_reads_groups(corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "groups.json"

    def read(groups: Any, **options: Any) -> Config:
        path.write_text(json.dumps(groups))
        return Config().from_str(init(groups_path=path, train_path=corpus, **options))

    config = read({"ner": ["ORG", "GPE", "PER"]})
    component = config["components"]["ner"]
    assert component["spans_key"] == "sc" and component["filter_spans"] is True
    assert init(groups_path=path).count("filter_spans = false") == 1  # overlaps are not known
    config = read(GROUPS, model="cnn", aim="guarantee")
    assert config["nlp"]["pipeline"] == ["tok2vec", *GROUPS]
    assert config["components"]["places"]["confidence"]["spans_key"] == "places_confidence"
    assert config["corpora"]["dev"]["spans_key"] == "sc"
    assert config["components"]["places"]["filter_spans"] is False
    for groups, message in (
        ({"a": ["ORG", "GPE"], "b": ["PER", "GPE"]}, r"each label in one component, got \['GPE'\]"),
        ({"a": ["ORG", "GPE"]}, r"all labels of the corpus, got none of \['PER'\]"),
        ({"a.b": ["ORG"]}, "expected {component: "),
        ([], "expected {component: "),
    ):
        with pytest.raises(ValueError, match=message):
            read(groups)
    with pytest.raises(ValueError, match=r"expected docs with entities in doc.spans\['terms'\]"):
        read(GROUPS, spans_key="terms")
    with pytest.raises(ValueError, match="--spans-key: expected no costs with it"):
        read(GROUPS, miss=5.0)
    with pytest.raises(ValueError, match="expected --groups or --train"):
        init(spans_key="sc")


def test_labels_that_seldom_overlap_share_a_component(tmp_path: Path) -> None:
    """At most 1 % of the spans of a label may be lost. Those that overlap with their own label have
    to be."""
    doc = Doc(spacy.blank("en").vocab, words=["w"] * 400)
    doc.spans["sc"] = [
        *(Span(doc, i, i + 1, "A") for i in range(300)),
        *(Span(doc, i, i + 1, "B") for i in range(298, 398)),
        *(Span(doc, i, i + 1, "C") for i in range(299, 399)),
    ]
    path = tmp_path / "train.spacy"
    DocBin(docs=[doc]).to_disk(path)
    corpus = measure_corpus(path, "en", "sc")
    assert corpus.overlaps["A", "B"] == 2 and corpus.overlaps["B", "C"] == 99
    assert choose_groups(corpus, None) == {"ner_1": ["A", "C"], "ner_2": ["B"]}


def test_check_counts_what_is_lost(corpus: Path, tmp_path: Path) -> None:
    path, groups = tmp_path / "config.cfg", tmp_path / "groups.json"
    groups.write_text(json.dumps({"ner": ["ORG", "GPE", "PER"]}))
    text = init(groups_path=groups, train_path=corpus, dev_path=corpus)
    for severity in ("warning", "error"):
        is_error = severity == "error"
        text = text.replace("filter_spans = true", f"filter_spans = {str(not is_error).lower()}")
        path.write_text(text)
        result = run("check", path)
        assert result.exit_code == is_error, result.output
        line = f"{severity}: train: spans overlap with longer ones of the same component"
        assert line in result.output and "(12)" in result.output and "'Rome' GPE" in result.output


@pytest.mark.parametrize("competing", [False, True])
def test_commands_take_a_component_by_its_name(competing: bool) -> None:
    # Without label memory, which knows training docs.
    nlp = train(make(LISTENING, competing=competing), steps=150)
    egs = examples(gold(nlp) * 30)
    before = nlp.evaluate(egs)["spans_sc_f"]
    assert tune(nlp, egs, name="others").chosen.scores == (1, 1, 1)
    assert nlp.meta["performance"]["measured_on"]["docs"] == len(egs)
    assert calibrate(nlp, egs, name="others").error < 0.5
    after = nlp.evaluate(egs)["spans_sc_f"]
    assert after >= before
    ner: Any = nlp.get_pipe("others")
    scores = evaluate_dev(nlp, ner, predict_dev(nlp, ner, egs))
    assert scores["spans_sc_f"] == pytest.approx(after)
    result = guarantee(nlp, egs, name="others", miss=0.1)
    assert result.promise.entities == 30 * 4
    doc = nlp(TEXTS[0][0])
    assert (0, 4, "ORG") in places(doc, "others_confidence_guaranteed")
    assert observe(nlp, "others", egs)[0][1] == 0.0
    found = report(nlp, egs, name="others")
    assert (found.total.tp, found.total.fp, found.total.fn) == (120, 0, 0)
    assert sorted(found.labels) == ["ORG", "PER"]
    watched = watch(nlp.get_pipe("others"), nlp.pipe([text for text, _ in TEXTS[:2]]))
    expected_by_label = watched.shift.expected["ents_per_type"]
    assert sorted(expected_by_label) == ["ORG", "PER"]
    assert min(scores["r"] for scores in expected_by_label.values()) > 0.9
    ner: Any = nlp.get_pipe("others")
    if competing:  # the promise is of these labels
        annotation = ner.annotation
        ner.annotation = replace(annotation, own_labels=["ORG"])
        assert ner.guarantee is None
        ner.annotation = annotation
        assert ner.guarantee is not None
    result = guarantee(nlp, egs, name="others", miss=0.1, per_label=True)
    assert [part.label for part in result.parts] == ["ORG", "PER"]
    result = guarantee(nlp, egs, name="places", false_alarm=0.1)
    assert result.parts[0].spans == 1.0
    with pytest.raises(ValueError, match=r"suggest: works on doc\.ents, but others has"):
        suggest(nlp, [doc], name="others")


def test_annotate_writes_all_spans(trained: Language, tmp_path: Path) -> None:
    trained.to_disk(tmp_path / "pipeline")
    (tmp_path / "texts.txt").write_text("\n".join(text for text, _ in TEXTS))
    result = run("annotate", tmp_path / "pipeline", tmp_path / "texts.txt", "--output", tmp_path)
    assert result.exit_code == 0, result.output
    (file,) = [path for path in tmp_path.glob("texts.txt-*")]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    spans = rows[0]["spans"]
    found = [(one["start"], one["end"], one["label"]) for one in spans]
    assert found == [(0, 16, "ORG"), (12, 16, "GPE")]
    assert all(0.5 < one["score"] <= 1 for one in spans) and rows[0]["entities"] == []
