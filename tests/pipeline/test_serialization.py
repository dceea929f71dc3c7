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
from spacy_costner.pipeline.promises import Thresholds
from spacy_costner.pipeline.serialization import sign
from spacy_costner.training.known_text import Recurring
from spacy_costner.types import Progress

from ..damage import FEATURES, MODELS, corrupt, is_right
from ..damage import KINDS as CORRUPTIONS
from ..support.pipelines import TEXTS, ents, examples, pipeline, promise_of, train
from ..support.slow import slow_but

BEGUN = Progress()._asdict()
REMOVED: Any = object()
"""Instead of a value: the key is removed."""
VITERBI = {"@misc": "spacy_costner.ViterbiDecoding.v1", "bias": 0.0, "labels": {}}
SEEN = {"memory": {"LOWER": 1}, "elsewhere": {"ORTH": 2}, "document": {"LOWER": 1}}
"""Features that need more than their names: counts, other occurrences, a first pass."""

KINDS: dict[str, dict[str, Any]] = {
    # sparse, cnn and hybrid
    **{kind: {"model": model} for kind, model in MODELS.items()},
    "split": {"model": {**MODELS["sparse"], "features": {**FEATURES, **SEEN}}, "outside": "before"},
}
# Only these two kinds are in the fast tests.
all_kinds = pytest.mark.parametrize("kind", slow_but(KINDS, "hybrid", "split"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained pipeline of each kind, in a folder of its name."""
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


def copy_with_cfg(path: Path, to: Path, **values: Any) -> Path:
    """A copy of a pipeline with other values in the component's file cfg, or without them
    (REMOVED). Its digest stays."""
    shutil.copytree(path, to)
    cfg = {**srsly.read_json(to / "ner" / "cfg"), **values}
    remaining = {key: value for key, value in cfg.items() if value is not REMOVED}
    srsly.write_json(to / "ner" / "cfg", remaining)
    return to


def entities_of_texts(nlp: Language) -> list[list[tuple[int, int, str]]]:
    """The entities that a pipeline predicts in the training texts."""
    return [ents(nlp(text)) for text in TEXTS]


# Models that were saved before


def copy_without_keys(path: Path, to: Path, *names: str) -> Path:
    """A copy of a pipeline as if it had been saved without these keys: its digest is right."""
    copy_with_cfg(path, to, **dict.fromkeys([*names, "digest"], REMOVED))
    files = to / "ner"
    cfg = sign(srsly.read_json(files / "cfg"), (files / "model").read_bytes())
    srsly.write_json(files / "cfg", cfg)
    return to


def test_a_model_without_keys_of_later_versions_is_loaded(saved: Path, tmp_path: Path) -> None:
    path = copy_without_keys(saved / "sparse", tmp_path / "old", "n_recurring", "n_passages")

    old = spacy.load(path)

    assert entities_of_texts(old) == entities_of_texts(spacy.load(saved / "sparse"))
    assert old.get_pipe("ner").recurring == Recurring(0, 0)


@pytest.mark.parametrize("name", ["outside", "guarantee", "reading", "untrained", "trained_on"])
def test_a_model_without_a_necessary_key_is_refused(name: str, saved: Path, tmp_path: Path) -> None:
    old = copy_without_keys(saved / "sparse", tmp_path / "old", name)
    with pytest.raises(ValueError, match=rf"ner.cfg: .*got no {name}: train again"):
        spacy.load(old)


def test_a_model_without_a_digest_is_refused(saved: Path, tmp_path: Path) -> None:
    old = copy_with_cfg(saved / "sparse", tmp_path / "old", digest=REMOVED)
    with pytest.raises(ValueError, match=r"ner.model: expected a digest .*got none: train again"):
        spacy.load(old)


# What is not of one save, or not of the config


@pytest.mark.parametrize("part", ["cfg", "model"])
def test_a_file_of_another_save_is_refused(part: str, saved: Path, tmp_path: Path) -> None:
    """The other save is of the same pipeline after an update."""
    nlp = spacy.load(saved / "sparse")
    nlp.update(examples(nlp), sgd=Optimizer(0.01))
    nlp.to_disk(tmp_path / "later")
    shutil.copytree(saved / "sparse", tmp_path / "mixed")
    assert spacy.load(tmp_path / "mixed")

    shutil.copy(tmp_path / "later" / "ner" / part, tmp_path / "mixed" / "ner" / part)

    message = r"ner.model: expected the model that was saved with this cfg, digest '\w+', got '\w+'"
    with pytest.raises(ValueError, match=message):
        spacy.load(tmp_path / "mixed")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", ["PERSON", "LOC", "sports-team"]),  # in another order
        ("labels", "LOC"),
        ("cost_tables", [[[0.0]]]),
        ("scheme", "IOB2"),
        ("configured", None),
    ],
    ids=str,
)
def test_a_cfg_edited_in_what_belongs_to_the_weights_is_refused(
    name: str, value: Any, saved: Path, tmp_path: Path
) -> None:
    """The digest covers it."""
    edited = copy_with_cfg(saved / "sparse", tmp_path / "model", **{name: value})
    with pytest.raises(ValueError, match=r"ner.model: expected the model that was saved with"):
        spacy.load(edited)


@pytest.mark.parametrize(
    ("kind", "setting", "saved_value", "other_value"),
    [
        ("sparse", "scheme", "BILUO", "IOB2"),
        ("cnn", "scheme", "BILUO", "IOB2"),
        ("sparse", "outside", "single", "before"),
        ("split", "outside", "before", "single"),
    ],
)
def test_a_config_with_other_tags_than_the_model_is_refused(
    kind: str, setting: str, saved_value: str, other_value: str, saved: Path
) -> None:
    message = (
        rf"{setting}: expected '{saved_value}', which .* trained with, got '{other_value}' in the"
    )
    with pytest.raises(ValueError, match=rf"ner.cfg: .*{message}"):
        load(saved / kind, **{setting: other_value})

    saved_bytes = spacy.load(saved / kind).get_pipe("ner").to_bytes()
    ner_of_other_tags = pipeline(**{**KINDS[kind], setting: other_value}).get_pipe("ner")
    with pytest.raises(ValueError, match=message):
        ner_of_other_tags.from_bytes(saved_bytes)


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
    ids=["larger window", "another order", "another attribute", "affixes", "bigrams"],
)
def test_a_config_with_other_features_than_the_model_is_refused(
    kind: str, settings: dict[str, Any], saved: Path
) -> None:
    with pytest.raises(ValueError, match=r"ner.model: .* the columns of the config, \[\['"):
        load(saved / kind, **{"model.features": {**FEATURES, **settings}})


def test_a_config_with_other_attributes_of_the_tok2vec_is_refused(tmp_path: Path) -> None:
    """Their order is another: the sizes of all layers are the same."""
    path = Path(__file__).parents[2] / "configs" / "cnn.cfg"
    tok2vec = spacy.util.load_config(path).interpolate()["components"]["tok2vec"]["model"]
    nlp = pipeline(model={**MODELS["cnn"], "tok2vec": tok2vec})
    train(nlp, steps=1)
    nlp.to_disk(tmp_path)
    assert load(tmp_path)

    with pytest.raises(ValueError, match="extract_features: expected the attrs of the config"):
        load(tmp_path, **{"model.tok2vec.embed.attrs": ["SHAPE", "PREFIX", "SUFFIX", "NORM"]})


def test_weights_for_another_number_of_tags_are_refused(saved: Path) -> None:
    """The model is loaded without its cfg, which has the labels. BILUO has O and four tags for each
    label: 1 + 4 tags of one label, 1 + 3 * 4 of three."""
    ner = spacy.load(saved / "sparse").get_pipe("ner")
    ner_of_one_label = pipeline(**KINDS["sparse"]).get_pipe("ner")
    ner_of_one_label.add_label("LOC")

    with pytest.raises(ValueError, match=r"expected weights for 5 tags, got 13"):
        ner_of_one_label.from_bytes(ner.to_bytes(exclude=["cfg", "vocab"]))


@all_kinds
@pytest.mark.parametrize("value", [numpy.nan, numpy.inf])
def test_weights_that_are_not_finite_are_refused(
    kind: str, value: float, saved: Path, tmp_path: Path
) -> None:
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
        ({"decoding": {"bias": 0, "labels": {"x": 1}}}, "decoding: labels: expected one of"),
        ({"confidence": []}, r"confidence: expected a mapping with .*got \[\]"),
        ({"confidence": {"spans_key": 3}}, "Confidence: spans_key: expected a name, got 3"),
        ({"confidence": {"alternatives": "x"}}, "Confidence: alternatives: expected null or"),
        ({"progress": {"steps": 10, "epochs": 1.5}}, "progress: expected a mapping with"),
        (
            {"progress": {**BEGUN, "epochs": 1.5}},
            "epochs: expected an integer of at least 0, got 1",
        ),
        (
            {"progress": {**BEGUN, "n_examples": 0}},
            "n_examples: expected an integer of at least 1",
        ),
        ({"n_examples": "x"}, "n_examples: expected a finite number of at least 0"),
        ({"temperature": REMOVED}, "got no temperature"),
        ({"decoding": REMOVED}, "got no decoding"),
    ],
)
def test_a_setting_of_the_wrong_kind_in_cfg_is_refused_by_name(
    settings: dict[str, Any], message: str, saved: Path, tmp_path: Path
) -> None:
    edited = copy_with_cfg(saved / "sparse", tmp_path / "model", **settings)
    with pytest.raises(ValueError, match=rf"ner.cfg: expected the cfg .*{message}"):
        spacy.load(edited)


def test_settings_that_do_not_belong_to_the_weights_may_be_edited(
    saved: Path, tmp_path: Path
) -> None:
    settings = {
        "decoding": {"bias": 50.0, "labels": {}},
        "temperature": {"overall": 2.0, "labels": {"LOC": 3.0}},
        "confidence": {"spans_key": "sure", "extension": "sure", "alternatives": 0.5},
    }
    nlp = spacy.load(copy_with_cfg(saved / "sparse", tmp_path / "model", **settings))

    ner = nlp.get_pipe("ner")
    assert {name: ner.cfg[name] for name in settings} == settings
    doc = nlp("Rome fell")  # the bias for O makes it an entity, unless it is forgotten
    assert len(doc.spans["sure"]) > 0 and doc.ents[0]._.sure < 1


@pytest.mark.parametrize("edited", [0.9, None])
def test_a_threshold_with_many_digits_is_saved_by_the_config(
    edited: float | None, saved: Path, tmp_path: Path
) -> None:
    """The file cfg has ten decimals of a number, the config has all. A threshold that was edited in
    `cfg` is used instead of the config's, and loses no more digits in the second save."""
    threshold = {"@misc": "spacy_costner.ThresholdDecoding.v1", "threshold": 1 / 3, "labels": {}}
    nlp = load(saved / "sparse", decoding=threshold)
    if edited is not None:
        nlp.get_pipe("ner").cfg["decoding"]["threshold"] = edited

    once = through_disk(nlp, tmp_path / "once")
    twice = through_disk(once, tmp_path / "twice")

    for copied in (once, twice):
        assert copied.get_pipe("ner").cfg["decoding"]["threshold"] == (edited or 1 / 3)


def test_a_bias_that_was_edited_in_cfg_gives_way_to_a_config_edited_later(
    saved: Path, tmp_path: Path
) -> None:
    nlp = load(saved / "sparse", decoding={**VITERBI, "bias": 2 / 3})
    nlp.get_pipe("ner").cfg["decoding"]["bias"] = 5.0
    nlp.to_disk(tmp_path)

    assert load(tmp_path).get_pipe("ner").cfg["decoding"]["bias"] == 5.0
    edited = load(tmp_path, **{"decoding.bias": 1 / 3})
    assert edited.get_pipe("ner").cfg["decoding"]["bias"] == 1 / 3
    # As docs/decoding.md says, an override that equals the saved config isn't noticed.
    equal = load(tmp_path, **{"decoding.bias": 2 / 3})
    assert equal.get_pipe("ner").cfg["decoding"]["bias"] == 5.0


# What a model survives. Each function copies a pipeline in another way, in a folder for its files.


def through_disk(nlp: Language, path: Path) -> Language:
    nlp.to_disk(path)
    return spacy.load(path)


def through_bytes(nlp: Language, path: Path) -> Language:
    return spacy.blank("xx").from_config(nlp.config).from_bytes(nlp.to_bytes())


def through_the_component(nlp: Language, path: Path) -> Language:
    other = spacy.blank("xx").from_config(nlp.config)
    other.get_pipe("ner").from_bytes(nlp.get_pipe("ner").to_bytes(exclude=["vocab"]))
    return other


def through_pickle(nlp: Language, path: Path) -> Language:
    return pickle.loads(pickle.dumps(nlp))


def in_parts(nlp: Language, path: Path) -> Language:
    """The model is loaded first, the cfg after it. The vocab is shared."""
    nlp.get_pipe("ner").to_disk(path)
    other = spacy.blank("xx", vocab=nlp.vocab).from_config(nlp.config, vocab=nlp.vocab)
    ner = other.get_pipe("ner")
    ner.from_disk(path, exclude=["cfg", "vocab"]).from_disk(path, exclude=["model"])
    return other


@all_kinds
@pytest.mark.parametrize(
    "copy", [through_disk, through_bytes, through_the_component, in_parts, through_pickle]
)
def test_a_copied_model_predicts_the_same(
    kind: str, copy: Callable[[Language, Path], Language], saved: Path, tmp_path: Path
) -> None:
    """A copy of the copy does so, too."""
    nlp = spacy.load(saved / kind)
    expected = entities_of_texts(nlp)

    copied = copy(nlp, tmp_path / "copy")

    assert entities_of_texts(copied) == expected
    assert entities_of_texts(through_disk(copied, tmp_path / "second copy")) == expected


@all_kinds
def test_a_model_is_saved_between_updates_with_a_new_label(
    kind: str, saved: Path, tmp_path: Path
) -> None:
    """With its weights, with their averages, and after it is initialized anew."""
    nlp = spacy.load(saved / kind)
    optimizer = Optimizer(0.01, use_averages=True)
    nlp.get_pipe("ner").add_label("GPE")
    for i in range(3):
        nlp.update(examples(nlp), sgd=optimizer)
        loaded = through_disk(nlp, tmp_path / str(i))
    assert loaded.get_pipe("ner").labels == nlp.get_pipe("ner").labels

    with nlp.use_params(optimizer.averages):
        expected = entities_of_texts(nlp)
        averaged = through_disk(nlp, tmp_path / "averaged")
    assert entities_of_texts(averaged) == expected

    nlp.initialize(lambda: examples(nlp))
    assert through_disk(nlp, tmp_path / "initialized")


def test_a_component_without_training_keeps_its_labels(tmp_path: Path) -> None:
    """It has no labels, or one that was added."""
    nlp = pipeline()
    assert through_disk(nlp, tmp_path / "empty").get_pipe("ner").labels == ()
    nlp.get_pipe("ner").add_label("LOC")
    assert through_bytes(nlp, tmp_path).get_pipe("ner").labels == ("LOC",)


# One home for a setting


@pytest.fixture
def nlp_of_sentences(saved: Path) -> Language:
    """No entity of it has tokens of two sentences. All tokens are entities, by their bias."""
    nlp = load(saved / "sparse", sentence_boundaries=True)
    nlp.get_pipe("ner").set_decoding(make_viterbi(bias=60.0))
    return nlp


def two_sentences(nlp: Language) -> Doc:
    """The doc "Shaka Khan", in which each word is a sentence."""
    return Doc(nlp.vocab, words=["Shaka", "Khan"], sent_starts=[True, True])


def test_no_entity_is_predicted_across_sentences(nlp_of_sentences: Language) -> None:
    doc = nlp_of_sentences.get_pipe("ner")(two_sentences(nlp_of_sentences))
    assert [ent.text for ent in doc.ents] == ["Shaka", "Khan"]


def test_a_gold_entity_across_sentences_joins_them_without_a_warning(
    nlp_of_sentences: Language,
) -> None:
    ner = nlp_of_sentences.get_pipe("ner")
    doc = two_sentences(nlp_of_sentences)
    example = spacy.training.Example.from_dict(doc, {"entities": ["B-PERSON", "L-PERSON"]})
    ner.get_loss([example], ner.model.predict([doc]))  # a warning would be an error


def test_sentence_boundaries_are_saved_in_the_config(
    nlp_of_sentences: Language, tmp_path: Path
) -> None:
    loaded = through_bytes(nlp_of_sentences, tmp_path)
    assert loaded.get_pipe("ner").annotation.sentence_boundaries
    assert "sentence_boundaries" not in nlp_of_sentences.get_pipe("ner").cfg


@pytest.mark.parametrize(
    "kind, setting, value",
    [("sparse", "dropout", 0.9), ("hybrid", "dropout", 0.9), ("hybrid", "part_dropout", 1.0)],
)
def test_dropout_of_the_config_replaces_the_saved_one(
    kind: str, setting: str, value: float, saved: Path
) -> None:
    """The model was trained without: its scores in training would always be the same."""
    nlp = load(saved / kind, **{f"model.{setting}": value})
    model = nlp.get_pipe("ner").model
    docs = [nlp.make_doc(text) for text in TEXTS * 5]

    first_potentials, _ = model(docs, is_train=True)
    second_potentials, _ = model(docs, is_train=True)

    assert (first_potentials.emissions != second_potentials.emissions).any()


# The tree of a decoding is read from a file and saved with the model.


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A file with a tree of all labels."""
    path = tmp_path / "tree.json"
    path.write_text('{"name": {"LOC": {}, "PERSON": {}, "sports-team": {}}}')
    return path


@pytest.fixture
def min_cost(tree: Path) -> dict[str, Any]:
    """The block of a decoding with the tree of that file."""
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": str(tree)}
    return {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost, "tree": str(tree)}


def test_a_tree_that_lacks_a_label_is_refused_and_the_decoding_stays(
    saved: Path, tree: Path, min_cost: dict[str, Any]
) -> None:
    tree.write_text('{"LOC": {}}')
    ner = spacy.load(saved / "sparse").get_pipe("ner")

    with pytest.raises(
        ValueError, match=r"tree: .*expected a node for every label, got none for 'PERSON'"
    ):
        ner.set_decoding(spacy.registry.resolve({"decoding": min_cost})["decoding"])

    assert ner.cfg["decoding"] == {"bias": 0.0, "labels": {}}


def test_a_label_that_the_tree_lacks_is_not_added(saved: Path, min_cost: dict[str, Any]) -> None:
    ner = load(saved / "sparse", decoding=min_cost).get_pipe("ner")

    with pytest.raises(
        ValueError, match=r"tree: .*expected a node for every label, got none for 'GPE'"
    ):
        ner.add_label("GPE")

    assert "GPE" not in ner.labels
    assert ner.model.get_dim("nO") == len(ner.chain_tags)


def test_predicting_changes_no_setting(saved: Path, min_cost: dict[str, Any]) -> None:
    nlp = load(saved / "sparse", decoding=min_cost)
    before = json.dumps(nlp.get_pipe("ner").cfg)

    entities_of_texts(nlp)

    assert json.dumps(nlp.get_pipe("ner").cfg) == before and '"decoding": {}' in before


# A guarantee depends on the cost of the decoding and on the boundaries, which only the config has.

CONFIDENCE = {"@misc": "spacy_costner.Confidence.v1"}


@pytest.fixture
def guaranteed(saved: Path, min_cost: dict[str, Any], tmp_path: Path) -> Path:
    """A pipeline with a guarantee and scores, whose decoding has the tree, saved."""
    settings = {"decoding": min_cost, "confidence": CONFIDENCE, "sentence_boundaries": True}
    nlp = load(saved / "sparse", **settings)
    ner = nlp.get_pipe("ner")
    ner.set_guarantee(promise_of({"": Thresholds(0.25, {})}, miss=0.1))
    docs = [nlp.make_doc(text) for text in TEXTS]
    ner.set_shift(docs, numpy.asarray([0.5, 0.25, 0.125, 0.1]), "dev", approximate=False)
    nlp.to_disk(tmp_path / "guaranteed")
    return tmp_path / "guaranteed"


def as_saved_before(path: Path, to: Path, version: str) -> Path:
    """A copy of a pipeline as the current version saves it, or as 0.4.0 did."""
    if version == "current":
        return shutil.copytree(path, to)
    return copy_without_keys(path, to, "holds_for", "labels_are_given")


@pytest.mark.parametrize("version", ["current", "0.4.0"])
def test_a_guarantee_is_kept_with_the_config_it_was_saved_with(
    version: str, guaranteed: Path, tree: Path, tmp_path: Path
) -> None:
    """The same tree may be in another file, and the first file may be missing."""
    path = as_saved_before(guaranteed, tmp_path / "copy", version)
    moved = tree.with_name("moved.json")
    shutil.copy(tree, moved)
    settings = {"decoding.tree": str(moved), "decoding.cost.tree": str(moved)}
    loaded = [load(path), load(path, **settings)]
    tree.unlink()
    loaded += [load(path), through_disk(load(path), tmp_path / "again")]

    for nlp in loaded:  # a warning would be an error
        nlp("Rome fell")
        ner = nlp.get_pipe("ner")
        assert ner.guarantee.miss == 0.1 and ner.calibration_scores.source == "dev"


@pytest.mark.parametrize("version", ["current", "0.4.0"])
def test_another_cost_ends_a_guarantee(version: str, guaranteed: Path, tmp_path: Path) -> None:
    """The settings in cfg are the same: {}. The scores don't depend on the decoding."""
    path = as_saved_before(guaranteed, tmp_path / "copy", version)
    cost = {"@misc": "spacy_costner.PrecisionRecallCost.v1", "miss": 20.0}
    decoding = {"@misc": "spacy_costner.MinCostDecoding.v1", "cost": cost}
    with pytest.warns(UserWarning, match="guarantee is dropped.*another setting of decoding"):
        ner = load(path, decoding=decoding).get_pipe("ner")
    assert ner.guarantee is None and ner.calibration_scores.source == "dev"


def test_other_boundaries_end_a_guarantee_and_the_scores(guaranteed: Path) -> None:
    with pytest.warns(UserWarning, match="guarantee is dropped.*setting of sentence_boundaries"):
        ner = load(guaranteed, sentence_boundaries="sentences").get_pipe("ner")
    assert ner.guarantee is None and ner.calibration_scores is None


def test_a_tree_is_saved_with_the_model(
    saved: Path, tmp_path: Path, tree: Path, min_cost: dict[str, Any]
) -> None:
    """Its file may be gone; another file that a config names has to be there."""
    nlp = load(saved / "sparse", decoding=min_cost)
    expected = entities_of_texts(nlp)
    nlp.to_disk(tmp_path / "model")
    tree.unlink()

    loaded = spacy.load(tmp_path / "model")

    assert entities_of_texts(loaded) == expected
    assert entities_of_texts(through_disk(loaded, tmp_path / "second copy")) == expected
    with pytest.raises(ValueError, match=r"another\.json.*could not read it: .*No such file"):
        load(tmp_path / "model", decoding={**min_cost, "tree": str(tmp_path / "another.json")})


# Damage at random


@pytest.mark.parametrize(
    ("kind", "n_cases", "seed"),
    [
        ("sparse", 50, 3),
        pytest.param("sparse", 80, 4, marks=pytest.mark.slow),
        pytest.param("cnn", 130, 3, marks=pytest.mark.slow),
    ],
)
def test_damaged_models_are_refused_or_answer_as_before(kind: str, n_cases: int, seed: int) -> None:
    """The models have random damage of every kind."""
    results = corrupt(kind, n_cases, seed=seed)

    wrong = [(case.name, case.config, end) for case, end in results if not is_right(case, end)]
    assert not wrong
    # Otherwise nothing would be tested: both ends occur, and each kind of damage.
    ends = Counter(end for _, end in results)
    assert ends["refused"] > 0.4 * n_cases and ends["same"] > 0.03 * n_cases
    assert {case.name.split()[0] for case, _ in results} == set(CORRUPTIONS)
