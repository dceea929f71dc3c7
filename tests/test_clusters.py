"""Clusters of words from files, as features."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
import srsly
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_costner.features import Features, Template
from spacy_costner.features.clusters import k_means, read_clusters, to_unit_length

VOCAB = spacy.blank("xx").vocab
PATH = "0110" + "11" + "0101" + "1" * 10 + "00"
"""Of 22 bits: the path of Rome."""

BROWN = f"{PATH}\tRome\t12\n0110\tOslo\t3\n10\tgo\t7\n\n"
NUMBERS = {"rome": 3, "Oslo": 3, "go": 4, "gone": 4, "never": 5}
TRAIN = ["Rome", "ROME", "oslo", "go", "Ana"]


def collected(path: Path, words: list[str] = TRAIN, **settings: Any) -> Features:
    windows = settings.pop("windows", {"clusters": 0})
    features = Features(Template(windows=windows, clusters=[str(path)], **settings))
    features.build_vocab([Doc(VOCAB, words=words)])
    return features


def found_names(features: Features, words: list[str]) -> list[set[str]]:
    names = features.names()
    rows = features.find([Doc(VOCAB, words=words)]).rows
    return [{names[row] for row in token if row >= 0} for token in rows]


@pytest.fixture()
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps(NUMBERS), encoding="utf8")
    return path


def test_words_have_the_numbers_of_their_clusters(numbers: Path) -> None:
    """As written or in lower case; also words that are not in the training data, if another word
    of their cluster is."""
    features = collected(numbers)
    numbers.unlink()
    rome, go = {"clusters:numbers=3"}, {"clusters:numbers=4"}
    loaded = Features(features.template).from_bytes(features.to_bytes())
    for each in (features, loaded, pickle.loads(pickle.dumps(features)), features.copy()):
        found = found_names(each, ["Rome", "ROME", "oslo", "Oslo", "gone", "never", "Ana"])
        assert found == [rome, rome, set(), rome, go, set(), set()]


def test_paths_have_prefixes(tmp_path: Path) -> None:
    path = tmp_path / "brown.txt"
    path.write_text(BROWN, encoding="utf8")
    assert read_clusters(path) == {
        "Rome": [PATH[:20], PATH[:10], PATH[:6], "0110"], "Oslo": ["0110"], "go": ["10"],
    }  # fmt: skip
    features = collected(path, ["Rome", "Oslo"])
    rome = {f"clusters:brown={PATH[:size]}" for size in (20, 10, 6, 4)}
    assert found_names(features, ["Oslo", "Rome", "go"]) == [{"clusters:brown=0110"}, rome, set()]
    assert len(features) == len(set(features.names())) == 4
    path.with_suffix(".json").write_text(json.dumps({"Rome": PATH, "Oslo": "0110", "go": "10"}))
    assert read_clusters(path.with_suffix(".json")) == read_clusters(path)


def test_words_in_several_clusters(tmp_path: Path) -> None:
    """Their names are as they are written: one of bits is no path."""
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"Rome": ["4:1", "0110101"], "go": ["4:0"]}), encoding="utf8")
    rome = {"clusters:own=4:1", "clusters:own=0110101"}
    found = found_names(collected(path), ["ROME", "Rome", "go"])
    assert found == [set(), rome, {"clusters:own=4:0"}]


def test_clusters_are_shown_with_words(numbers: Path) -> None:
    """With those that the pipeline knows, whichever of them is in the training data."""
    features = collected(numbers, ["Oslo", "go"])
    vocab = Vocab(strings=["go", "Oslo", "gone"])
    names = ["clusters:numbers=3 (Oslo)", "clusters:numbers=4 (go gone)"]
    assert features.names(vocab.strings) == names
    assert features.names(Vocab().strings) == ["clusters:numbers=3", "clusters:numbers=4"]


def test_words_of_fewer_clusters_than_others_are_shown(tmp_path: Path) -> None:
    """Oslo has one cluster, Rome two. What Oslo lacks is no cluster without words."""
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"Rome": ["a", "b"], "Oslo": ["a"]}), encoding="utf8")
    features = collected(path, ["Rome", "Oslo"])
    names = ["clusters:own=a (Rome Oslo)", "clusters:own=b (Rome)"]
    assert features.names(VOCAB.strings) == names


def test_window_and_least_count(numbers: Path) -> None:
    """The window is 2 if none is given. A cluster occurs as often as its words."""
    features = collected(numbers, windows={"ORTH": 0}, min_count={"clusters": 2})
    assert found_names(features, ["go", "Ana", "Rome"])[0] == {"ORTH=go", "clusters:numbers[+2]=3"}
    default = Template(clusters=[str(numbers)])
    assert default.windows["clusters"] == 2 and default.windows["LOWER"] == 2


def test_damaged_clusters_are_refused(numbers: Path) -> None:
    features = collected(numbers)
    saved = srsly.msgpack_loads(features.to_bytes())
    found = saved["clusters"]["clusters:numbers"]
    damages: list[dict[str, Any]] = [{"keys": found["keys"][8:]}, {"width": 0}, {"numbers": b""}]
    for damage in damages:
        clusters = {"clusters:numbers": {**found, **damage}}
        data = srsly.msgpack_dumps({**saved, "clusters": clusters})
        with pytest.raises(ValueError, match="features of a linear CRF: expected what was saved"):
            Features(features.template).from_bytes(data)
    fewer = {**saved["values"], "clusters:numbers": ["3"]}
    with pytest.raises(ValueError, match="clusters: expected some of 1 for each word"):
        Features(features.template).from_bytes(srsly.msgpack_dumps({**saved, "values": fewer}))


BAD = '{|{"Rome": null}|{"Rome": ""}|{"Rome": []}|{"Rome": [1]}|0110 Rome 12|0110'


@pytest.mark.parametrize("text", BAD.split("|"))
def test_bad_files_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf8")
    with pytest.raises(ValueError, match=r"clusters: expected JSON of words.*in .*bad\.json"):
        collected(path)
    with pytest.raises(ValueError, match=r"clusters: expected JSON of words.*no\.json"):
        collected(tmp_path / "no.json")


NEAR = {"Rome": (0, 5), "oslo": (0.1, 2), "go": (3, 0), "went": (2, 0.1), "Ana": (-1, -1)}
"""Words with vectors: two places, two verbs and a name."""


def with_vectors() -> Vocab:
    vocab = Vocab(lex_attr_getters=VOCAB.lex_attr_getters)
    vocab.reset_vectors(width=2)
    for word, vector in NEAR.items():
        vocab.set_vector(word, numpy.asarray(vector, dtype="float32"))
    return vocab


def test_words_of_near_vectors_share_clusters() -> None:
    """Also those that are not in the training data, and after the vectors are gone."""
    features = Features(Template(windows={"vectors": 0}, vectors=[3, 1, 3]))
    vocab = with_vectors()
    features.build_vocab([Doc(vocab, words=["Rome", "go", "Ana"])])
    again = Features(features.template).from_bytes(features.to_bytes())
    rome, oslo, go, went, ana, other = found_names(again, [*NEAR, "other"])
    assert rome == oslo != go == went and other == set()
    assert len({*rome, *go, *ana}) == 4 and rome & go & ana == {"vectors=1:0"}
    assert found_names(again, ["OSLO"]) == [oslo]
    nothing = Features(features.template)
    nothing.build_vocab([])
    assert len(nothing) == 0 and found_names(nothing, ["Rome"]) == [set()]


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 3))
def test_k_means_ends_where_no_point_is_nearer_to_another_centre(k: int, n: int, seed: int) -> None:
    """With few points, 15 iterations are enough to end: the clusters are those of their means."""
    points = to_unit_length(numpy.random.default_rng(seed).normal(size=(n, 3)))
    found = k_means(points, k, seed=seed)
    numpy.testing.assert_array_equal(found, k_means(points, k, seed=seed))
    means = [points[found == i].sum(axis=0) for i in sorted(set(found.tolist()))]
    cosines = points @ to_unit_length(numpy.asarray(means)).T
    own = numpy.searchsorted(sorted(set(found.tolist())), found)
    assert (cosines[numpy.arange(n), own] >= cosines.max(axis=1) - 1e-5).all()


def test_vectors_have_to_be_there() -> None:
    features = Features(Template(vectors=[64]))
    with pytest.raises(ValueError, match="vectors: expected static vectors of words in the pipe"):
        features.build_vocab([Doc(VOCAB, words=["Rome"])])
