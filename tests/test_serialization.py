"""Files that were saved together are loaded together, and with the config that they are of."""

import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
import srsly
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Optimizer, fix_random_seed

from spacy_costner.decoding import make_viterbi
from spacy_costner.ml import linear_part
from spacy_costner.pipeline.serialization import sign
from spacy_costner.types import Progress

from .damage import FEATURES, MODELS, corrupt, is_right
from .damage import KINDS as CORRUPTIONS
from .support.pipelines import TEXTS, ents, examples, pipeline, train
from .support.slow import slow_but

BEGUN = Progress()._asdict()
GONE: Any = object()
"""In place of a value: the key is gone."""
VITERBI = {"@misc": "spacy_costner.ViterbiDecoding.v1", "bias": 0.0, "labels": {}}
SEEN = {"memory": {"LOWER": 1}, "elsewhere": {"ORTH": 2}, "document": {"LOWER": 1}}
"""Features that need more than their names: counts, other occurrences, a first pass."""

KINDS: dict[str, dict[str, Any]] = {
    **{kind: {"model": model} for kind, model in MODELS.items()},
    "split": {"model": {**MODELS["sparse"], "features": {**FEATURES, **SEEN}}, "outside": "before"},
}
kinds = pytest.mark.parametrize("kind", slow_but(KINDS, "hybrid", "split"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pipeline of each kind."""
    folder = tmp_path_factory.mktemp("saved")
    for kind, settings in KINDS.items():
        fix_random_seed(0)
        nlp = pipeline(**settings, decoding=VITERBI)
        train(nlp, steps=20)
        nlp.to_disk(folder / kind)
    return folder


def load(path: Path, **settings: Any) -> Language:
    """Load a pipeline with other settings of its component."""
    return spacy.load(path, config={f"components.ner.{k}": v for k, v in settings.items()})


def edit_cfg(path: Path, to: Path, **settings: Any) -> Path:
    """A copy of a pipeline with other values in cfg, or without them."""
    shutil.copytree(path, to)
    cfg = {**srsly.read_json(to / "ner" / "cfg"), **settings}
    srsly.write_json(to / "ner" / "cfg", {k: v for k, v in cfg.items() if v is not GONE})
    return to


def answers(nlp: Language) -> list[Any]:
    return [ents(nlp(text)) for text in TEXTS]


# Models that were saved before


@pytest.mark.parametrize(
    "epochs, n_examples, expected",
    [
        (sum([0.1] * 10), 10, Progress(10, 1, 0, 10)),  # it is below 1
        (2.3, 10, Progress(10, 2, 3, 10)),
        (6.0, 0, Progress(10, 6, 0, 1)),
    ],
)
def test_progress_whose_epochs_are_a_sum_of_shares(
    epochs: float, n_examples: int, expected: Progress, saved: Path, tmp_path: Path
) -> None:
    progress = {"steps": 10, "epochs": epochs}
    old = edit_cfg(saved / "sparse", tmp_path / "old", progress=progress, n_examples=n_examples)
    assert spacy.load(old).get_pipe("ner").progress == expected


def without_keys(path: Path, to: Path, *names: str) -> Path:
    """A copy of a pipeline that was saved without these keys."""
    files = edit_cfg(path, to, **dict.fromkeys([*names, "digest"], GONE)) / "ner"
    cfg = sign(srsly.read_json(files / "cfg"), (files / "model").read_bytes())
    srsly.write_json(files / "cfg", cfg)
    return to


def test_keys_that_were_not_always_saved(saved: Path, tmp_path: Path) -> None:
    nlp = spacy.load(saved / "sparse")
    old = spacy.load(without_keys(saved / "sparse", tmp_path / "old", "reading", "trained_on"))
    assert answers(old) == answers(nlp)
    ner = old.get_pipe("ner")
    assert ner.reading is None and not len(ner.trained_on)


@pytest.mark.parametrize("name", ["outside", "guarantee", "shift", "untrained", "cost_tables"])
def test_without_a_key_that_is_needed_it_is_refused(name: str, saved: Path, tmp_path: Path) -> None:
    old = without_keys(saved / "sparse", tmp_path / "old", name)
    with pytest.raises(ValueError, match=rf"ner.cfg: .*got no {name}: train again"):
        spacy.load(old)


def test_without_a_digest_it_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ner.model: expected a digest .*got none: train again"):
        spacy.load(edit_cfg(saved / "sparse", tmp_path / "old", digest=GONE))


# What is not of one save, or not of the config


@pytest.mark.parametrize("part", ["cfg", "model"])
def test_files_of_two_saves_don_t_mix(part: str, saved: Path, tmp_path: Path) -> None:
    nlp = spacy.load(saved / "sparse")
    shutil.copytree(saved / "sparse", tmp_path / "mixed")
    nlp.update(examples(nlp), sgd=Optimizer(0.01))
    nlp.to_disk(tmp_path / "later")
    assert spacy.load(tmp_path / "mixed")
    shutil.copy(tmp_path / "later" / "ner" / part, tmp_path / "mixed" / "ner" / part)
    message = r"ner.model: expected the model that was saved with this cfg, digest '\w+', got '\w+'"
    with pytest.raises(ValueError, match=message):
        spacy.load(tmp_path / "mixed")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("labels", value) for value in (["PERSON", "LOC", "sports-team"], "LOC")),
        *(("cost_tables", [[[0.0]]]), ("scheme", "IOB2"), ("configured", None)),
    ],
)
def test_the_digest_covers_what_belongs_to_the_weights(
    name: str, value: Any, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"ner.model: expected the model that was saved with"):
        spacy.load(edit_cfg(saved / "sparse", tmp_path / "model", **{name: value}))


@pytest.mark.parametrize(
    ("kind", "setting", "own", "other"),
    [
        ("sparse", "scheme", "BILUO", "IOB2"),
        ("cnn", "scheme", "BILUO", "IOB2"),
        ("sparse", "outside", "single", "before"),
        ("split", "outside", "before", "single"),
    ],
)
def test_other_tags_are_refused(kind: str, setting: str, own: str, other: str, saved: Path) -> None:
    message = rf"{setting}: expected '{own}', which .* trained with, got '{other}' in the"
    with pytest.raises(ValueError, match=rf"ner.cfg: .*{message}"):
        load(saved / kind, **{setting: other})
    of_other = pipeline(**{**KINDS[kind], setting: other}).get_pipe("ner")
    with pytest.raises(ValueError, match=message):
        of_other.from_bytes(spacy.load(saved / kind).get_pipe("ner").to_bytes())


@pytest.mark.parametrize("kind", ["sparse", "hybrid"])
@pytest.mark.parametrize(
    "settings",
    [
        {"windows": {"ORTH": 3, "SHAPE": 1, "prefix": 0, "flags": 1}},
        {"windows": {"SHAPE": 1, "ORTH": 1, "prefix": 0, "flags": 1}},
        {"windows": {"LOWER": 1, "SHAPE": 1, "prefix": 0, "flags": 1}},
        {"affixes": [2, 1]},
        {"bigrams": {}},
    ],
)
def test_another_template_is_refused(kind: str, settings: dict[str, Any], saved: Path) -> None:
    with pytest.raises(ValueError, match=r"ner.model: .* expected those of the config, \[\['"):
        load(saved / kind, **{"model.features": {**FEATURES, **settings}})


def test_another_look_at_words_is_refused(tmp_path: Path) -> None:
    path = Path(__file__).parent.parent / "configs" / "cnn.cfg"
    tok2vec = spacy.util.load_config(path).interpolate()["components"]["tok2vec"]["model"]
    nlp = pipeline(model={**MODELS["cnn"], "tok2vec": tok2vec})
    train(nlp, steps=1)
    nlp.to_disk(tmp_path)
    assert load(tmp_path)
    with pytest.raises(ValueError, match="extract_features: expected the attrs of the config"):
        load(tmp_path, **{"model.tok2vec.embed.attrs": ["SHAPE", "PREFIX", "SUFFIX", "NORM"]})


def test_as_many_tags_as_weights(saved: Path) -> None:
    """Also where only one of the files is loaded."""
    ner = spacy.load(saved / "sparse").get_pipe("ner")
    other = pipeline(**KINDS["sparse"]).get_pipe("ner")
    other.add_label("LOC")
    with pytest.raises(ValueError, match=r"expected weights of 5 tags, got 13"):
        other.from_bytes(ner.to_bytes(exclude=["cfg", "vocab"]))


@kinds
@pytest.mark.parametrize("value", [numpy.nan, numpy.inf])
def test_weights_have_to_be_finite(kind: str, value: float, saved: Path, tmp_path: Path) -> None:
    nlp = spacy.load(saved / kind)
    model = nlp.get_pipe("ner").model
    if kind in ("sparse", "split"):
        linear_part(model)[1].rows[3, 2] = value
    else:
        model.get_ref("emissions").get_param("b")[2] = value
    with numpy.errstate(invalid="ignore"):
        nlp.to_disk(tmp_path)
    with pytest.raises(ValueError, match=r"ner.model: .*expected finite weights"):
        spacy.load(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": None}, "temperature: expected a mapping"),
        ({"temperature": {"overall": 1.0}}, "temperature: expected a mapping with"),
        ({"temperature": {"overall": 0, "labels": {}}}, "temperature: overall: .* got 0"),
        ({"temperature": {"overall": 1, "labels": {"LOC": -1}}}, "temperature: LOC: .* got -1"),
        ({"temperature": {"overall": 1, "labels": {"x": 1}}}, "temperature.labels: .*'x'"),
        ({"decoding": {"bias": 1.0}}, "decoding: expected a mapping with .*labels"),
        ({"decoding": {"bias": 0, "labels": {"x": 1}}}, "decoding: labels: expected any of"),
        ({"confidence": {"spans_key": 3}}, "Confidence: spans_key: expected a name, got 3"),
        ({"confidence": {"alternatives": "x"}}, "Confidence: alternatives: expected null or"),
        ({"progress": {"steps": None, "epochs": 1}}, "steps: expected a finite number"),
        (
            {"progress": {**BEGUN, "epochs": 1.5}},
            "epochs: expected an integer of at least 0, got 1",
        ),
        (
            {"progress": {**BEGUN, "n_examples": 0}},
            "n_examples: expected an integer of at least 1",
        ),
        ({"n_examples": "x"}, "n_examples: expected a finite number of at least 0"),
        ({"temperature": GONE}, "got no temperature"),
        ({"decoding": GONE}, "got no decoding"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_named(
    settings: dict[str, Any], message: str, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"ner.cfg: expected the cfg .*{message}"):
        spacy.load(edit_cfg(saved / "sparse", tmp_path / "model", **settings))


def test_free_settings_may_be_edited(saved: Path, tmp_path: Path) -> None:
    free = {
        "decoding": {"bias": 50.0, "labels": {}},
        "temperature": {"overall": 2.0, "labels": {"LOC": 3.0}},
        "confidence": {"spans_key": "sure", "extension": "sure", "alternatives": 0.5},
    }
    nlp = spacy.load(edit_cfg(saved / "sparse", tmp_path / "model", **free))
    ner = nlp.get_pipe("ner")
    assert {name: ner.cfg[name] for name in free} == free
    doc = nlp("Rome fell")
    assert len(doc.spans["sure"]) > 0 and doc.ents[0]._.sure < 1


# What a model survives


def through_disk(nlp: Language, path: Path) -> Language:
    nlp.to_disk(path)
    return spacy.load(path)


def through_bytes(nlp: Language, path: Path) -> Language:
    return spacy.blank("xx").from_config(nlp.config).from_bytes(nlp.to_bytes())


def through_the_component(nlp: Language, path: Path) -> Language:
    other = spacy.blank("xx").from_config(nlp.config)
    other.get_pipe("ner").from_bytes(nlp.get_pipe("ner").to_bytes(exclude=["vocab"]))
    return other


def in_parts(nlp: Language, path: Path) -> Language:
    """The files one by one, the vocab and the model first."""
    nlp.get_pipe("ner").to_disk(path)
    other = spacy.blank("xx", vocab=nlp.vocab).from_config(nlp.config, vocab=nlp.vocab)
    ner = other.get_pipe("ner")
    ner.from_disk(path, exclude=["cfg", "vocab"]).from_disk(path, exclude=["model"])
    return other


WAYS: list[Callable[[Language, Path], Language]] = [
    through_disk, through_bytes, through_the_component, in_parts,
    lambda nlp, path: pickle.loads(pickle.dumps(nlp)),
]  # fmt: skip


@kinds
@pytest.mark.parametrize("way", WAYS)
def test_models_survive(
    kind: str, way: Callable[[Language, Path], Language], saved: Path, tmp_path: Path
) -> None:
    nlp = spacy.load(saved / kind)
    again = way(nlp, tmp_path / "model")
    assert answers(again) == answers(nlp)
    assert answers(through_disk(again, tmp_path / "again")) == answers(nlp)


@kinds
def test_a_changed_model_can_be_saved_again(kind: str, saved: Path, tmp_path: Path) -> None:
    nlp = spacy.load(saved / kind)
    optimizer = Optimizer(0.01, use_averages=True)
    nlp.get_pipe("ner").add_label("GPE")
    for i in range(3):
        nlp.update(examples(nlp), sgd=optimizer)
        again = through_disk(nlp, tmp_path / str(i))
    assert again.get_pipe("ner").labels == nlp.get_pipe("ner").labels
    with nlp.use_params(optimizer.averages):
        expected = answers(nlp)
        averaged = through_disk(nlp, tmp_path / "averaged")
    assert answers(averaged) == expected
    nlp.initialize(lambda: examples(nlp))
    assert through_disk(nlp, tmp_path / "initialized")


def test_what_was_not_trained_can_be_saved(tmp_path: Path) -> None:
    nlp = pipeline()
    assert through_disk(nlp, tmp_path / "empty").get_pipe("ner").labels == ()
    nlp.get_pipe("ner").add_label("LOC")
    assert through_bytes(nlp, tmp_path).get_pipe("ner").labels == ("LOC",)


# One home for a setting


def test_sentence_boundaries_hold_everywhere(saved: Path) -> None:
    nlp = load(saved / "sparse", sentence_boundaries=True)
    ner = nlp.get_pipe("ner")
    ner.set_decoding(make_viterbi(bias=60.0))
    doc = Doc(nlp.vocab, words=["Shaka", "Khan"], sent_starts=[True, True])
    assert [ent.text for ent in ner(doc.copy()).ents] == ["Shaka", "Khan"]
    example = spacy.training.Example.from_dict(doc, {"entities": ["B-PERSON", "L-PERSON"]})
    ner.get_loss([example], ner.model.predict([doc]))  # and no warning: it joins the sentences
    again = spacy.blank("xx").from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert again.get_pipe("ner").annotation.sentence_boundaries
    assert "sentence_boundaries" not in ner.cfg


@pytest.mark.parametrize(
    "kind, setting, value",
    [("sparse", "dropout", 0.9), ("hybrid", "dropout", 0.9), ("hybrid", "part_dropout", 1.0)],
)
def test_dropout_is_that_of_the_config(kind: str, setting: str, value: float, saved: Path) -> None:
    nlp = load(saved / kind, **{f"model.{setting}": value})
    model = nlp.get_pipe("ner").model
    docs = [nlp.make_doc(text) for text in TEXTS * 5]
    first, second = (model(docs, is_train=True)[0].emissions for _ in range(2))
    assert (first != second).any()


def test_predicting_writes_to_no_setting(saved: Path, tmp_path: Path) -> None:
    """A tree is saved with the model, and has to know its labels."""
    tree = tmp_path / "tree.json"
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": str(tree)}
    min_cost = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost, "tree": str(tree)}
    tree.write_text('{"LOC": {}}')
    ner = spacy.load(saved / "sparse").get_pipe("ner")
    with pytest.raises(ValueError, match=r"tree: .*'PERSON'"):
        ner.set_decoding(spacy.registry.resolve({"decoding": min_cost})["decoding"])
    assert ner.cfg["decoding"] == {"bias": 0.0, "labels": {}}
    tree.write_text('{"name": {"LOC": {}, "PERSON": {}, "sports-team": {}}}')
    nlp = load(saved / "sparse", decoding=min_cost)
    before = json.dumps(nlp.get_pipe("ner").cfg)
    expected = answers(nlp)
    assert json.dumps(nlp.get_pipe("ner").cfg) == before and '"decoding": {}' in before
    nlp.to_disk(tmp_path / "model")
    with pytest.raises(ValueError, match=r"tree: .*'GPE'"):
        nlp.get_pipe("ner").add_label("GPE")
    tree.unlink()
    again = spacy.load(tmp_path / "model")
    assert answers(again) == answers(through_disk(again, tmp_path / "again")) == expected
    with pytest.raises(ValueError, match=r"another\.json"):
        load(tmp_path / "model", decoding={**min_cost, "tree": str(tmp_path / "another.json")})


# Damage at random


@pytest.mark.parametrize("kind", slow_but(["sparse", "cnn"], "sparse"))
def test_damaged_models_are_refused_or_answer_as_before(kind: str) -> None:
    results = corrupt(kind, 130, seed=3)
    wrong = [(case.name, case.config, end) for case, end in results if not is_right(case, end)]
    assert not wrong
    assert {case.name.split()[0] for case, _ in results} == set(CORRUPTIONS)
    ends = Counter(end for _, end in results)
    assert ends["refused"] > 60 and ends["same"] > 5
