"""Clusters of words that are learned from text."""

import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy
import pytest
import spacy

from spacy_costner.analysis import clusters as module
from spacy_costner.analysis.clusters import count_contexts, embed, learn_clusters, number_words
from spacy_costner.features.clusters import read_clusters

from .support.commands import run

CITIES, NAMES = ["Rome", "Oslo", "Lima", "Bonn"], ["Ana", "Eva", "Ben", "Tom"]
SENTENCES = [
    words
    for city, name in zip(CITIES * 3, NAMES * 2 + NAMES[::-1])
    for words in ([name, "lives", "in", city, "."], ["Today", name, "left", "for", city, "now"])
]
"""Cities after "in" and "for", names before verbs."""

SMALL = {"sizes": [4], "dim": 3, "min_count": 2}


def test_words_of_the_same_neighbours_share_clusters() -> None:
    n_tokens, clusters = learn_clusters(SENTENCES, sizes=[4, 2], dim=3, min_count=2)
    assert n_tokens == 12 * 11
    assert {word for word in clusters if clusters[word] == clusters["Rome"]} == {*CITIES}
    assert {word for word in clusters if clusters[word] == clusters["Ana"]} == {*NAMES}
    assert [name.split(":")[0] for name in clusters["Ana"]] == ["4", "2"]
    again = learn_clusters(SENTENCES, sizes=[4, 2], dim=3, min_count=2)
    assert again == (n_tokens, clusters)


def slow_pmi(sentences: list[list[str]], words: list[str]) -> numpy.ndarray:
    """The matrix of `embed`, pair by pair."""
    offsets, n_times = (-2, -1, 1, 2), Counter()
    for sentence in sentences:
        for i, word in enumerate(sentence):
            for o in offsets:
                if 0 <= i + o < len(sentence) and {word, sentence[i + o]} <= {*words}:
                    n_times[word, (sentence[i + o], o)] += 1
    contexts = [(word, o) for o in offsets for word in words]
    of_word = {w: sum(n for (v, _), n in n_times.items() if v == w) for w in words}
    of_context = {c: sum(n for (_, d), n in n_times.items() if d == c) ** 0.75 for c in contexts}
    total, matrix = sum(of_context.values()), numpy.zeros((len(words), len(contexts)))
    for (word, context), n in n_times.items():
        pmi = math.log(n * total / (of_word[word] * of_context[context]))
        matrix[words.index(word), contexts.index(context)] = max(pmi, 0)
    return matrix


@pytest.mark.parametrize("chunk", [3, 7, 1000])
def test_vectors_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Words that are not counted, here those that occur once, stay where they are: neighbours of
    their neighbours don't come nearer. Cosines don't depend on the signs of singular vectors."""
    monkeypatch.setattr(module, "CHUNK", chunk)
    sentences = [*SENTENCES[:9], ["Ana", "once", "left"]]
    words, tokens, _ = number_words(sentences, 2)
    assert "once" not in words
    found = embed(tokens, len(words), dim=9, seed=1)
    left, values, _ = numpy.linalg.svd(slow_pmi(sentences, words))
    expected = left[:, :9] * values[:9] ** module.POWER
    expected /= numpy.linalg.norm(expected, axis=1, keepdims=True)
    numpy.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4)


def test_contexts_are_the_most_frequent_words() -> None:
    tokens = numpy.asarray([-1, -1, 0, 1, 2, -1, -1])
    found = count_contexts(tokens, (3, 8)).toarray()
    # Offsets -2, -1, 1, 2 of words 0 and 1.
    places = [numpy.flatnonzero(row).tolist() for row in found]
    assert (places, found.sum()) == ([[5], [2], [0, 3]], 4)


def test_sources(tmp_path: Path) -> None:
    """Text, columns of any suffix and .spacy files, several at once; the features read the output,
    and --json prints what was learned."""
    lines = [" ".join(words) for words in SENTENCES]
    (tmp_path / "raw.txt").write_text("\n\n".join(lines), encoding="utf8")
    columns = "\n\n".join("\n".join(f"{w} O" for w in words) for words in SENTENCES)
    (tmp_path / "train.txt").write_text(columns, encoding="utf8")
    assert run("convert", tmp_path / "train.txt", tmp_path / "train.spacy").exit_code == 0
    path, options = tmp_path / "own.json", ("--sizes", "4", "--dim", 3, "--min-count", 2)
    found = []
    for name in ("raw.txt", "train.txt", "train.spacy"):
        result = run("clusters", tmp_path / name, "--output", path, *options)
        assert result.exit_code == 0 and "132 tokens, 15 words in clusters" in result.output
        found.append(read_clusters(path))
    assert found[0] == found[1] == found[2] and found[0]["Rome"] == found[0]["Oslo"]
    result = run("clusters", tmp_path, "--output", tmp_path / "2.json", *options, "--json")
    assert json.loads(result.stdout)["tokens"] == 132
    result = run("clusters", tmp_path / "raw.txt", path.with_name("raw.txt"), "-o", path, *options)
    assert "264 tokens, 15 words" in result.output


def test_sentences_are_those_of_docs(tmp_path: Path) -> None:
    """Words of different sentences are no neighbours."""
    words = [word for sentence in SENTENCES for word in [*sentence, "\n"]]
    starts = [i == 0 for sentence in SENTENCES for i in range(len(sentence) + 1)]
    doc = spacy.tokens.Doc(spacy.blank("xx").vocab, words=words, sent_starts=starts)
    spacy.tokens.DocBin(docs=[doc]).to_disk(tmp_path / "x.spacy")
    options = ("--sizes", 4, "--dim", 3, "--min-count", 2)
    result = run("clusters", tmp_path / "x.spacy", "-o", tmp_path / "own.json", *options)
    assert result.exit_code == 0, result.output
    assert read_clusters(tmp_path / "own.json") == learn_clusters(SENTENCES, **SMALL)[1]


def test_what_is_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raw.txt").write_text("Ana left.\n", encoding="utf8")
    for options, message in (
        (["--sizes", "many"], "clusters: sizes: expected numbers such as 64,256, got 'many'"),
        (["--sizes", "0"], "clusters: sizes: expected numbers such as 64,256, got '0'"),
        ([], "expected more than 100 words that occur 3 times or more, got 0"),
    ):
        result = run("clusters", tmp_path / "raw.txt", "--output", tmp_path / "own.json", *options)
        assert result.exit_code == 1 and message in result.output
        assert not (tmp_path / "own.json").exists()
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ImportError, match=r"clusters: expected SciPy.*spacy-costner\[clusters\]"):
        learn_clusters(SENTENCES, **SMALL)  # type: ignore[arg-type]
