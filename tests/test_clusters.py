"""Clusters of words as features: from files, and of static vectors."""

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
from spacy_costner.features.ids import pack_hashes, unpack_hashes

VOCAB = spacy.blank("xx").vocab
PATH = "0110" + "11" + "0101" + "1" * 10 + "00"
"""Of 22 bits: the path of Rome."""

BROWN = f"{PATH}\tRome\t12\n0110\tOslo\t3\n10\tgo\t7\n\n"
"""A file of Brown clustering: the path, the word, and how often it was there."""

NUMBERS = {"rome": 3, "Oslo": 3, "go": 4, "gone": 4, "never": 5}
"""A file of words and the numbers of their clusters."""

TRAIN = ["Rome", "ROME", "oslo", "go", "Ana"]


def collected(path: Path, words: list[str] = TRAIN, **settings: Any) -> Features:
    """Features of the clusters in a file, learned from a doc of these words."""
    windows = settings.pop("windows", {"clusters": 0})
    features = Features(Template(windows=windows, clusters=[str(path)], **settings))
    features.build_vocab([Doc(VOCAB, words=words)])
    return features


def found_names(features: Features, words: list[str]) -> list[set[str]]:
    """The names of the features of each word, in one doc."""
    names = features.names()
    rows = features.find([Doc(VOCAB, words=words)]).rows
    return [{names[row] for row in token if row >= 0} for token in rows]


@pytest.fixture()
def numbers(tmp_path: Path) -> Path:
    """The file of `NUMBERS`."""
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps(NUMBERS), encoding="utf8")
    return path


def test_words_have_the_numbers_of_their_clusters(numbers: Path) -> None:
    """As written or in lower case; also words that are not in the training data, if another word
    of their cluster is."""
    features = collected(numbers)
    numbers.unlink()
    expected = {
        "Rome": {"clusters:numbers=3"},
        "ROME": {"clusters:numbers=3"},
        "oslo": set(),  # the file has it with a capital only
        "Oslo": {"clusters:numbers=3"},
        "gone": {"clusters:numbers=4"},
        "never": set(),  # the only word of its cluster, and not in the training data
        "Ana": set(),
    }
    loaded = Features(features.template).from_bytes(features.to_bytes())
    pickled = pickle.loads(pickle.dumps(features))
    for same_features in (features, loaded, pickled, features.copy()):
        names = found_names(same_features, list(expected))
        assert dict(zip(expected, names)) == expected


BROWN_CLUSTERS = {
    "Rome": [PATH[:20], PATH[:10], PATH[:6], PATH[:4]],
    "Oslo": ["0110"],
    "go": ["10"],
}
"""What `BROWN` says: each word has the prefixes of its path, of 20, 10, 6 and 4 bits."""


def test_paths_are_read_as_their_prefixes(tmp_path: Path) -> None:
    """From lines or from JSON."""
    lines = tmp_path / "brown.txt"
    lines.write_text(BROWN, encoding="utf8")
    assert read_clusters(lines) == BROWN_CLUSTERS
    as_json = tmp_path / "brown.json"
    as_json.write_text(json.dumps({"Rome": PATH, "Oslo": "0110", "go": "10"}))
    assert read_clusters(as_json) == BROWN_CLUSTERS


def test_words_share_the_prefixes_of_their_paths(tmp_path: Path) -> None:
    """Rome and Oslo share the first four bits. "go" is not in the training data."""
    path = tmp_path / "brown.txt"
    path.write_text(BROWN, encoding="utf8")
    features = collected(path, ["Rome", "Oslo"])
    oslo, rome, go = found_names(features, ["Oslo", "Rome", "go"])
    assert oslo == {"clusters:brown=0110"}
    assert rome == {f"clusters:brown={prefix}" for prefix in BROWN_CLUSTERS["Rome"]}
    assert go == set()
    assert set(features.names()) == rome
    assert len(features) == 4


def test_words_can_have_several_clusters(tmp_path: Path) -> None:
    """Their names are as they are written: one of bits is no path."""
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"Rome": ["4:1", "0110101"], "go": ["4:0"]}), encoding="utf8")
    capitals, rome, go = found_names(collected(path), ["ROME", "Rome", "go"])
    assert capitals == set()
    assert rome == {"clusters:own=4:1", "clusters:own=0110101"}
    assert go == {"clusters:own=4:0"}


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


def test_a_cluster_occurs_as_often_as_its_words(numbers: Path) -> None:
    """In `TRAIN`, words of cluster 3 are there twice, words of cluster 4 once."""
    features = collected(numbers, min_count={"clusters": 2})
    assert features.names() == ["clusters:numbers=3"]


def test_the_window_of_clusters_is_2_if_none_is_given(numbers: Path) -> None:
    """With windows of other kinds, or without any."""
    features = collected(numbers, windows={"ORTH": 0}, min_count={"clusters": 2})
    go, _, _ = found_names(features, ["go", "Ana", "Rome"])
    assert go == {"ORTH=go", "clusters:numbers[+2]=3"}
    default = Template(clusters=[str(numbers)])
    assert default.windows["clusters"] == 2
    assert default.windows["LOWER"] == 2


def test_damaged_clusters_are_refused(numbers: Path) -> None:
    features = collected(numbers)
    saved = srsly.msgpack_loads(features.to_bytes())
    column = saved["clusters"]["clusters:numbers"]
    fewer_keys = pack_hashes(unpack_hashes(column["short_keys"])[1:])
    damages: list[dict[str, Any]] = [{"short_keys": fewer_keys}, {"width": 0}, {"numbers": b""}]
    for damage in damages:
        clusters = {"clusters:numbers": {**column, **damage}}
        data = srsly.msgpack_dumps({**saved, "clusters": clusters})
        with pytest.raises(ValueError, match="features of a linear CRF: expected what was saved"):
            Features(features.template).from_bytes(data)
    # Words of two clusters, of which only one is a value.
    fewer_values = {**saved["values"], "clusters:numbers": ["3"]}
    data = srsly.msgpack_dumps({**saved, "values": fewer_values})
    with pytest.raises(ValueError, match="clusters: expected some of 1 for each word"):
        Features(features.template).from_bytes(data)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"Rome": null}',
        '{"Rome": ""}',
        '{"Rome": []}',
        '{"Rome": [1]}',
        "0110 Rome 12",
        "0110",
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf8")
    with pytest.raises(ValueError, match=r"clusters: expected JSON of words.*in .*bad\.json"):
        collected(path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"clusters: expected JSON of words.*no\.json"):
        collected(tmp_path / "no.json")


VECTORS = {"Rome": (0, 5), "oslo": (0.1, 2), "go": (3, 0), "went": (2, 0.1), "Ana": (-1, -1)}
"""Words with vectors in three directions: two places, two verbs and a name."""


def vocab_with_vectors() -> Vocab:
    vocab = Vocab(lex_attr_getters=VOCAB.lex_attr_getters)
    vocab.reset_vectors(width=2)
    for word, vector in VECTORS.items():
        vocab.set_vector(word, numpy.asarray(vector, dtype="float32"))
    return vocab


def test_words_of_near_vectors_share_clusters() -> None:
    """Also words that are not in the training data, and after the vectors are gone: those docs have
    another vocab. A number of clusters that is there twice counts once."""
    features = Features(Template(windows={"vectors": 0}, vectors=[3, 1, 3]))
    features.build_vocab([Doc(vocab_with_vectors(), words=["Rome", "go", "Ana"])])
    loaded = Features(features.template).from_bytes(features.to_bytes())
    rome, oslo, go, went, ana, other = found_names(loaded, [*VECTORS, "other"])
    assert rome == oslo
    assert go == went
    assert other == set()
    # Each has its cluster of three, and the one cluster of all words.
    assert rome & go == rome & ana == go & ana == {"vectors=1:0"}
    assert rome | go | ana == {"vectors=1:0", "vectors=3:0", "vectors=3:1", "vectors=3:2"}
    # In lower case it has a vector.
    assert found_names(loaded, ["OSLO"]) == [oslo]


def test_without_training_docs_there_are_no_clusters() -> None:
    features = Features(Template(windows={"vectors": 0}, vectors=[3]))
    features.build_vocab([])
    assert len(features) == 0
    assert found_names(features, ["Rome"]) == [set()]


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 3))
def test_k_means_ends_where_no_point_is_nearer_to_another_centre(
    n_clusters: int, n_points: int, seed: int
) -> None:
    """With few points, 15 steps are enough to end: the clusters are those of their means."""
    points = to_unit_length(numpy.random.default_rng(seed).normal(size=(n_points, 3)))
    clusters = k_means(points, n_clusters, seed=seed)
    # Some clusters may have no points. The others are numbered again.
    used_clusters, cluster_of_point = numpy.unique(clusters, return_inverse=True)
    means = numpy.asarray([points[clusters == cluster].sum(axis=0) for cluster in used_clusters])
    cosines = points @ to_unit_length(means).T
    cosine_to_own_mean = cosines[numpy.arange(n_points), cluster_of_point]
    assert (cosine_to_own_mean >= cosines.max(axis=1) - 1e-5).all()


def test_k_means_of_a_seed_is_always_the_same() -> None:
    points = to_unit_length(numpy.random.default_rng(0).normal(size=(40, 3)))
    clusters = k_means(points, 5, seed=1)
    numpy.testing.assert_array_equal(k_means(points, 5, seed=1), clusters)


def test_vectors_have_to_be_there() -> None:
    features = Features(Template(vectors=[64]))
    with pytest.raises(ValueError, match="vectors: expected static vectors of words in the pipe"):
        features.build_vocab([Doc(VOCAB, words=["Rome"])])
