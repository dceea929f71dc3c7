"""Clusters of words that are learned from text."""

import json
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_costner.analysis.clusters import learn_clusters
from spacy_costner.features.clusters import read_clusters

from .support.commands import run

CITIES = ["Rome", "Oslo", "Lima", "Bonn"]
NAMES = ["Ana", "Eva", "Ben", "Tom"]


def make_sentences() -> list[list[str]]:
    """24 sentences: two for each of 12 pairs of a city and a name."""
    sentences = []
    for city, name in zip(CITIES * 3, NAMES * 2 + NAMES[::-1]):
        sentences.append([name, "lives", "in", city, "."])
        sentences.append(["Today", name, "left", "for", city, "now"])
    return sentences


SENTENCES = make_sentences()
"""Cities after "in" and "for", names before verbs."""

N_TOKENS = 12 * (5 + 6)
"""Of `SENTENCES`: 12 pairs of a sentence of five words and one of six."""

SMALL: dict[str, Any] = {"sizes": [4], "dim": 3, "min_count": 2}
SMALL_OPTIONS = ("--sizes", 4, "--dim", 3, "--min-count", 2)
"""The same on the command line. A word needs to occur twice, and vectors have three numbers."""


def test_words_of_the_same_neighbours_share_clusters() -> None:
    """Cities are one cluster, names another. Each word is in one of four and in one of two."""
    settings: dict[str, Any] = {"sizes": [4, 2], "dim": 3, "min_count": 2}
    n_tokens, clusters = learn_clusters(SENTENCES, **settings)

    assert n_tokens == N_TOKENS
    assert {word for word in clusters if clusters[word] == clusters["Rome"]} == {*CITIES}
    assert {clusters[name][0] for name in NAMES} == {clusters["Ana"][0]}
    sizes = [cluster.split(":")[0] for cluster in clusters["Ana"]]  # such as "4:0"
    assert sizes == ["4", "2"]
    assert learn_clusters(SENTENCES, **settings) == (n_tokens, clusters)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with `SENTENCES` as text, as columns with the suffix of text, and as docs."""
    folder = tmp_path / "sources"
    folder.mkdir()
    text = "\n\n".join(" ".join(words) for words in SENTENCES)
    (folder / "raw.txt").write_text(text, encoding="utf8")
    columns = "\n\n".join("\n".join(f"{word} O" for word in words) for words in SENTENCES)
    (folder / "train.txt").write_text(columns, encoding="utf8")
    assert run("convert", folder / "train.txt", folder / "train.spacy").exit_code == 0
    return folder


def test_text_columns_and_docs_have_the_same_clusters(sources: Path, tmp_path: Path) -> None:
    """The features read the output."""
    output = tmp_path / "clusters.json"
    clusters = []
    for name in ("raw.txt", "train.txt", "train.spacy"):
        result = run("clusters", sources / name, "--output", output, *SMALL_OPTIONS)
        assert result.exit_code == 0
        assert f"{N_TOKENS} tokens, 15 words in clusters" in result.output
        clusters.append(read_clusters(output))

    of_text, of_columns, of_docs = clusters
    assert of_text == of_columns == of_docs
    assert of_text["Rome"] == of_text["Oslo"]


def test_clusters_are_learned_from_several_files(sources: Path, tmp_path: Path) -> None:
    text = sources / "raw.txt"
    result = run("clusters", text, text, "-o", tmp_path / "clusters.json", *SMALL_OPTIONS)
    assert f"{2 * N_TOKENS} tokens, 15 words" in result.output


def test_json_has_the_number_of_tokens(sources: Path, tmp_path: Path) -> None:
    output = tmp_path / "clusters.json"
    result = run("clusters", sources / "raw.txt", "-o", output, *SMALL_OPTIONS, "--json")
    assert json.loads(result.stdout)["tokens"] == N_TOKENS


def test_words_of_different_sentences_of_a_doc_are_no_neighbours(tmp_path: Path) -> None:
    """One doc, whose sentences end with a line break, has the clusters of its sentences."""
    words = []
    sent_starts = []
    for sentence in SENTENCES:
        words += [*sentence, "\n"]
        sent_starts += [True, *[False] * len(sentence)]
    doc = Doc(spacy.blank("xx").vocab, words=words, sent_starts=sent_starts)
    DocBin(docs=[doc]).to_disk(tmp_path / "doc.spacy")
    output = tmp_path / "clusters.json"

    result = run("clusters", tmp_path / "doc.spacy", "-o", output, *SMALL_OPTIONS)

    assert result.exit_code == 0, result.output
    _, clusters = learn_clusters(SENTENCES, **SMALL)
    assert read_clusters(output) == clusters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "many"], "clusters: sizes: expected numbers such as 64,256, got 'many'"),
        (["--sizes", "0"], "clusters: sizes: expected numbers such as 64,256, got '0'"),
        ([], "expected words that occur 3 times or more, beside others that do, got 0"),
    ],
)
def test_wrong_sizes_and_too_short_texts_are_refused(
    tmp_path: Path, options: list[str], message: str
) -> None:
    (tmp_path / "raw.txt").write_text("Ana left.\n", encoding="utf8")
    output = tmp_path / "clusters.json"
    result = run("clusters", tmp_path / "raw.txt", "--output", output, *options)
    assert result.exit_code == 1
    assert message in result.output
    assert not output.exists()
