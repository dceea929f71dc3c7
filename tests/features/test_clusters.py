"""Clusters of words as features: from files, and of static vectors."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest
import srsly
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_costner.features import Features, Template
from spacy_costner.features.clusters import k_means, read_clusters, to_unit_length
from spacy_costner.features.ids import pack_hashes, unpack_hashes

from ..support.vocabs import blank_vocab

VOCAB = blank_vocab()
PATH_OF_ROME = "0110" + "11" + "0101" + "1" * 10 + "00"
"""A path of 22 bits. Features are its prefixes of 20, 10, 6 and 4 bits."""

BROWN = f"{PATH_OF_ROME}\tRome\t12\n0110\tOslo\t3\n10\tgo\t7\n\n"
"""A file of Brown clustering: the path, the word, and its count. The path of Oslo is the first four
bits of the path of Rome."""

CLUSTER_NUMBERS = {"rome": 3, "Oslo": 3, "go": 4, "gone": 4, "never": 5}
"""Words and the numbers of their clusters, as a JSON file has them."""

TRAINING_WORDS = ["Rome", "ROME", "oslo", "go", "Ana"]


def learn_features(
    cluster_file: Path, training_words: list[str] = TRAINING_WORDS, **settings: Any
) -> Features:
    """Features of the clusters in a file, collected from one doc of the training words. Without
    other `windows`, only the cluster of the word itself is a feature."""
    windows = settings.pop("windows", {"clusters": 0})
    features = Features(Template(windows=windows, clusters=[str(cluster_file)], **settings))
    features.build_vocab([Doc(VOCAB, words=training_words)])
    return features


def features_of_words(features: Features, words: list[str]) -> list[set[str]]:
    """The names of the features of each word, in a doc of these words."""
    names = features.names()
    rows = features.find([Doc(VOCAB, words=words)]).rows
    # A row below 0 is a feature that the training docs don't have.
    return [{names[row] for row in rows_of_word if row >= 0} for rows_of_word in rows]


@pytest.fixture()
def numbers_file(tmp_path: Path) -> Path:
    """`numbers.json` with `CLUSTER_NUMBERS`."""
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps(CLUSTER_NUMBERS), encoding="utf8")
    return path


def test_words_have_the_numbers_of_their_clusters(numbers_file: Path) -> None:
    """The file's words count as written or in lower case. A word that the training words lack has
    its cluster, too, if another word of the cluster is one of them."""
    features = learn_features(numbers_file)
    numbers_file.unlink()  # The saved features don't need it.
    expected = {
        "Rome": {"clusters:numbers=3"},
        "ROME": {"clusters:numbers=3"},
        "oslo": set(),  # The file has it with a capital only.
        "Oslo": {"clusters:numbers=3"},
        "gone": {"clusters:numbers=4"},
        "never": set(),  # No training word is in its cluster, 5.
        "Ana": set(),
    }

    loaded = Features(features.template).from_bytes(features.to_bytes())
    pickled = pickle.loads(pickle.dumps(features))

    for same_features in (features, loaded, pickled, features.copy()):
        names = features_of_words(same_features, list(expected))
        assert dict(zip(expected, names)) == expected


BROWN_CLUSTERS = {
    "Rome": [PATH_OF_ROME[:20], PATH_OF_ROME[:10], PATH_OF_ROME[:6], PATH_OF_ROME[:4]],
    "Oslo": ["0110"],
    "go": ["10"],
}
"""The clusters of each word in `BROWN`: the prefixes of its path."""


def test_a_brown_cluster_is_read_as_the_prefixes_of_its_path(tmp_path: Path) -> None:
    """The file has lines of Brown clustering, or JSON."""
    lines = tmp_path / "brown.txt"
    lines.write_text(BROWN, encoding="utf8")
    as_json = tmp_path / "brown.json"
    as_json.write_text(json.dumps({"Rome": PATH_OF_ROME, "Oslo": "0110", "go": "10"}))

    assert read_clusters(lines) == BROWN_CLUSTERS
    assert read_clusters(as_json) == BROWN_CLUSTERS


def test_only_line_breaks_end_a_line_of_clusters(tmp_path: Path) -> None:
    """Python's `splitlines` splits at other characters, too. Words from the web have them."""
    path = tmp_path / "brown.txt"
    path.write_text("0110\tOs\u2028lo\t3\n10\tgo\x85\t2\n", encoding="utf8")
    assert read_clusters(path) == {"Os\u2028lo": ["0110"], "go\x85": ["10"]}


@pytest.mark.parametrize("text", ["0110\tOslo\t3\n", '{"Oslo": "0110"}'], ids=["lines", "JSON"])
def test_a_byte_order_mark_is_not_part_of_a_cluster(tmp_path: Path, text: str) -> None:
    path = tmp_path / "brown"
    path.write_text(text, encoding="utf-8-sig")
    assert read_clusters(path) == {"Oslo": ["0110"]}


def test_a_number_is_one_cluster(tmp_path: Path) -> None:
    """The number 11011 is no path of bits, so the word isn't in the cluster 1101, too."""
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps({"Rome": 11011, "Oslo": 1101}))
    assert read_clusters(path) == {"Rome": ["11011"], "Oslo": ["1101"]}


def test_words_share_the_prefixes_of_their_paths(tmp_path: Path) -> None:
    """The path of Oslo, 0110, is also the first four bits of the path of Rome: they share this
    feature. "go" has none, as it isn't a training word and its path begins in another way."""
    path = tmp_path / "brown.txt"
    path.write_text(f"{PATH_OF_ROME}\tRome\t12\n0110\tOslo\t3\n10\tgo\t7\n", encoding="utf8")
    features = learn_features(path, training_words=["Rome", "Oslo"])

    oslo, rome, go = features_of_words(features, ["Oslo", "Rome", "go"])

    assert oslo == {"clusters:brown=0110"}
    assert rome == {
        "clusters:brown=0110",
        f"clusters:brown={PATH_OF_ROME[:6]}",
        f"clusters:brown={PATH_OF_ROME[:10]}",
        f"clusters:brown={PATH_OF_ROME[:20]}",
    }
    assert go == set()
    assert set(features.names()) == rome
    assert len(features) == 4


def test_words_can_have_several_clusters(tmp_path: Path) -> None:
    """Clusters in a list are names, and stay as they are written: "0110101" isn't a path here, so
    its prefixes are no clusters."""
    path = tmp_path / "lists.json"
    clusters = {"Rome": ["4:1", "0110101"], "go": ["4:0"]}
    path.write_text(json.dumps(clusters), encoding="utf8")

    capitals, rome, go = features_of_words(learn_features(path), ["ROME", "Rome", "go"])

    assert capitals == set()
    assert rome == {"clusters:lists=4:1", "clusters:lists=0110101"}
    assert go == {"clusters:lists=4:0"}


def test_clusters_are_shown_with_words(numbers_file: Path) -> None:
    """With those words of the cluster that the pipeline's strings have, be they training words
    ("go") or not ("gone")."""
    features = learn_features(numbers_file, training_words=["Oslo", "go"])
    strings = Vocab(strings=["go", "Oslo", "gone"]).strings

    with_words = features.names(strings)
    without_strings = features.names(Vocab().strings)

    assert with_words == ["clusters:numbers=3 (Oslo)", "clusters:numbers=4 (go gone)"]
    assert without_strings == ["clusters:numbers=3", "clusters:numbers=4"]


def test_words_of_fewer_clusters_than_others_are_shown(tmp_path: Path) -> None:
    """Rome is in two clusters, Oslo in one: the second is shown without Oslo."""
    path = tmp_path / "lists.json"
    path.write_text(json.dumps({"Rome": ["a", "b"], "Oslo": ["a"]}), encoding="utf8")

    features = learn_features(path, training_words=["Rome", "Oslo"])

    names = ["clusters:lists=a (Rome Oslo)", "clusters:lists=b (Rome)"]
    assert features.names(VOCAB.strings) == names


def test_a_cluster_occurs_as_often_as_its_words(numbers_file: Path) -> None:
    """Two training words are in cluster 3, Rome and ROME; one is in cluster 4, go. With a least
    count of 2, only cluster 3 is a feature."""
    training_words = ["Rome", "ROME", "oslo", "go", "Ana"]
    features = learn_features(numbers_file, training_words, min_count={"clusters": 2})
    assert features.names() == ["clusters:numbers=3"]


def test_the_window_of_clusters_is_2_beside_other_windows(numbers_file: Path) -> None:
    """Windows are set for the words as written, not for clusters: "go" sees the cluster of the word
    two places after it. It has no feature of its own cluster, 4, which occurs only once in the
    training words."""
    windows = {"ORTH": 0}
    features = learn_features(numbers_file, windows=windows, min_count={"clusters": 2})
    go, _, _ = features_of_words(features, ["go", "Ana", "Rome"])
    assert go == {"ORTH=go", "clusters:numbers[+2]=3"}


def test_the_window_of_clusters_is_2_without_windows(numbers_file: Path) -> None:
    template = Template(clusters=[str(numbers_file)])
    assert template.windows["clusters"] == 2
    assert template.windows["LOWER"] == 2


@pytest.mark.parametrize("field", ["short_keys", "width", "numbers"])
def test_damaged_clusters_are_refused(numbers_file: Path, field: str) -> None:
    """A saved table of clusters has keys, which are packed hashes of 32 bits, and for each key
    so many numbers as the width says."""
    features = learn_features(numbers_file)
    saved = srsly.msgpack_loads(features.to_bytes())
    table = saved["clusters"]["clusters:numbers"]
    fewer_keys = pack_hashes(unpack_hashes(table["short_keys"])[1:])
    damages = {"short_keys": fewer_keys, "width": 0, "numbers": b""}
    damaged_table = {**table, field: damages[field]}
    damaged = {**saved, "clusters": {"clusters:numbers": damaged_table}}

    with pytest.raises(ValueError, match="features of a linear CRF: expected saved features"):
        Features(features.template).from_bytes(srsly.msgpack_dumps(damaged))


def test_words_of_a_cluster_that_was_not_saved_are_refused(numbers_file: Path) -> None:
    """The words are in two clusters, 3 and 4, and only one is among the saved values."""
    features = learn_features(numbers_file)
    saved = srsly.msgpack_loads(features.to_bytes())
    damaged = {**saved, "values": {**saved["values"], "clusters:numbers": ["3"]}}

    with pytest.raises(ValueError, match="clusters: expected numbers below 1 for each word"):
        Features(features.template).from_bytes(srsly.msgpack_dumps(damaged))


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
def test_a_file_without_clusters_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf8")
    with pytest.raises(ValueError, match=r"clusters: expected a JSON file of words.*bad\.json"):
        learn_features(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"clusters: expected a JSON file of words.*no\.json"):
        learn_features(tmp_path / "no.json")


VECTORS = {"Rome": (0, 5), "oslo": (0.1, 2), "go": (3, 0), "went": (2, 0.1), "Ana": (-1, -1)}
"""Words with vectors in three directions: two places, two verbs and a name."""


def vocab_with_vectors() -> Vocab:
    """A vocab whose static vectors are `VECTORS`."""
    vocab = Vocab(lex_attr_getters=VOCAB.lex_attr_getters)
    vocab.reset_vectors(width=2)
    for word, vector in VECTORS.items():
        vocab.set_vector(word, numpy.asarray(vector, dtype="float32"))
    return vocab


def test_words_of_near_vectors_share_clusters() -> None:
    """Oslo and went, which are no training words, are in the clusters of Rome and go. The features
    have learned the clusters: they find them in docs of a vocab without vectors."""
    # 3 clusters, and 1 cluster of all words. The second 3 adds none.
    features = Features(Template(windows={"vectors": 0}, vectors=[3, 1, 3]))
    features.build_vocab([Doc(vocab_with_vectors(), words=["Rome", "go", "Ana"])])
    loaded = Features(features.template).from_bytes(features.to_bytes())

    words = ["Rome", "oslo", "go", "went", "Ana", "other"]
    rome, oslo, go, went, ana, other = features_of_words(loaded, words)

    assert rome == oslo
    assert go == went
    assert other == set()
    assert rome & go == rome & ana == go & ana == {"vectors=1:0"}
    assert rome | go | ana == {"vectors=1:0", "vectors=3:0", "vectors=3:1", "vectors=3:2"}
    # Only "oslo" has a vector: it is found in lower case.
    assert features_of_words(loaded, ["OSLO"]) == [oslo]


def test_without_training_docs_there_are_no_clusters() -> None:
    features = Features(Template(windows={"vectors": 0}, vectors=[3]))
    features.build_vocab([])
    assert len(features) == 0
    assert features_of_words(features, ["Rome"]) == [set()]


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 3))
def test_k_means_ends_where_no_point_is_nearer_to_another_centre(
    n_clusters: int, n_points: int, seed: int
) -> None:
    """The centre of a cluster is the direction of the sum of its points, and near is a large
    cosine. For so few points the 15 steps of k-means are enough to end."""
    points = to_unit_length(numpy.random.default_rng(seed).normal(size=(n_points, 3)))

    clusters = k_means(points, n_clusters, seed=seed)

    # Some clusters may have no points. The others are numbered again.
    used_clusters, cluster_of_point = numpy.unique(clusters, return_inverse=True)
    sums = numpy.asarray([points[clusters == cluster].sum(axis=0) for cluster in used_clusters])
    centres = to_unit_length(sums)
    cosines = points @ centres.T
    cosine_to_centre = cosines[numpy.arange(n_points), cluster_of_point]
    assert (cosine_to_centre >= cosines.max(axis=1) - 1e-5).all()


def test_k_means_of_a_seed_is_always_the_same() -> None:
    points = to_unit_length(numpy.random.default_rng(0).normal(size=(40, 3)))
    clusters = k_means(points, 5, seed=1)
    numpy.testing.assert_array_equal(k_means(points, 5, seed=1), clusters)


def test_clusters_of_vectors_need_a_vocab_with_vectors() -> None:
    features = Features(Template(vectors=[64]))
    with pytest.raises(ValueError, match="vectors: expected static word vectors in the pipeline"):
        features.build_vocab([Doc(VOCAB, words=["Rome"])])
