"""Tests of `vectors`: static vectors that are learned from raw text."""

import io
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from numpy.testing import assert_allclose
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from spacy_costner.readers import raw_text
from spacy_costner.readers.raw_text import BoundedPipeline, cut_line, find_raw_files, map_docs
from spacy_costner.workflows import vectors as module
from spacy_costner.workflows.vectors import learn_vectors, learn_with_corpus

from ..support.commands import run
from ..support.raw_text import CITIES, N_TOKENS, NAMES, SENTENCES
from ..support.vocabs import blank_vocab

OPTIONS = ("--dim", 9, "--min-count", 2, "--lang", "xx")


def cosine(folder: Path, word: str, other: str) -> float:
    """The cosine of the vectors of two words of a saved pipeline."""
    vocab = spacy.load(folder).vocab
    return float(vocab.get_vector(word) @ vocab.get_vector(other))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with `SENTENCES`, in which names are in capitals, in four formats: text, columns,
    docs and JSONL."""
    folder = tmp_path / "sources"
    folder.mkdir()
    sentences = [[word.capitalize() for word in words] for words in SENTENCES]
    texts = [" ".join(words) for words in sentences]
    (folder / "raw.txt").write_text("\n\n".join(texts), encoding="utf8")
    columns = "\n\n".join("\n".join(f"{word} O" for word in words) for words in sentences)
    (folder / "train.conll").write_text(columns, encoding="utf8")
    vocab = blank_vocab()
    DocBin(docs=[Doc(vocab, words) for words in sentences]).to_disk(folder / "train.spacy")
    lines = "\n".join(json.dumps({"text": text}) for text in texts)
    (folder / "texts.jsonl").write_text(lines, encoding="utf8")
    return folder


@pytest.mark.parametrize("name", ["raw.txt", "train.conll", "train.spacy", "texts.jsonl"])
def test_a_pipeline_has_the_vectors_of_lower_case_words(
    sources: Path, tmp_path: Path, name: str
) -> None:
    """The vectors are the same for all formats of the text. All forms of a word that the text has,
    such as "Rome" and "rome", have the same vector. The 15 words are 4 cities, 4 names, "lives",
    "in", "today", "left", "for", "now" and the full stop."""
    output = tmp_path / "vectors"
    result = run("vectors", sources / name, "--output", output, *OPTIONS)
    assert result.exit_code == 0, result.output
    assert f"{N_TOKENS} tokens, 15 words with a vector of 9 numbers" in result.output
    assert f"Written to {output}" in result.output
    vectors = spacy.load(output).vocab.vectors
    assert vectors.shape == (15, 9)
    for city, person in zip(CITIES, NAMES):
        assert cosine(output, "Rome", city) > 0.8
        assert cosine(output, "Rome", person) < 0.5


def test_spacy_takes_them_as_initial_vectors(sources: Path, tmp_path: Path) -> None:
    """Any component of spaCy can use them with `include_static_vectors`."""
    learn_vectors([sources / "raw.txt"], tmp_path / "vectors", lang="xx", dim=9, min_count=2)
    nlp = spacy.blank("xx")
    nlp.config["initialize"]["vectors"] = str(tmp_path / "vectors")
    nlp.initialize(lambda: [])
    assert nlp("Ana left for Oslo")[3].vector.any()
    nlp.to_disk(tmp_path / "pipeline")
    assert spacy.load(tmp_path / "pipeline")("Oslo")[0].vector.any()


def files_of(folder: Path) -> dict[str, bytes]:
    """The content of each file in a folder and the folders within it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_same_text_and_seed_make_the_same_files(sources: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert run("vectors", sources / "raw.txt", "-o", tmp_path / name, *OPTIONS).exit_code == 0
    assert files_of(tmp_path / "first") == files_of(tmp_path / "second")


def test_json_has_what_was_learned(sources: Path, tmp_path: Path) -> None:
    """There are two files with the same text, so its tokens count twice."""
    copied = shutil.copy(sources / "raw.txt", tmp_path / "copy.txt")
    options = (*OPTIONS, "--output", tmp_path / "vectors", "--json")
    result = run("vectors", sources / "raw.txt", copied, *options)
    learned = json.loads(result.stdout)
    assert learned["n_tokens"] == 2 * N_TOKENS
    assert (learned["n_words"], learned["dim"], learned["wanted_dim"]) == (15, 9, 9)
    assert learned["path"] == str(tmp_path / "vectors")
    assert learned["skipped"] == []


def test_neighbours_of_some_words_are_shown(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word most similar to a name is another name."""
    monkeypatch.setattr(module, "N_EXAMPLES", 15)
    monkeypatch.setattr(module, "FIRST_EXAMPLE", 0)
    output = tmp_path / "vectors"
    learned = learn_vectors([sources / "raw.txt"], output, lang="xx", dim=9, min_count=2)
    assert "." not in learned.neighbours
    shown_names = [name for name in NAMES if name in learned.neighbours]
    assert shown_names
    for name in shown_names:
        assert learned.neighbours[name][0] in NAMES
        assert name not in learned.neighbours[name]
        assert f"{name:>20}  {' '.join(learned.neighbours[name])}" in learned.as_text()


def test_fewer_words_than_dimensions_are_told(sources: Path, tmp_path: Path) -> None:
    """By default vectors have 100 numbers. The text has 15 words, so its vectors have fewer than
    16."""
    result = run("vectors", sources / "raw.txt", "-o", tmp_path / "vectors", "--lang", "xx")
    assert result.exit_code == 0
    assert "a dimension of 100 needs more words" in result.output
    assert spacy.load(tmp_path / "vectors").vocab.vectors.shape[1] < 16


@pytest.mark.slow
def test_words_of_different_sentences_of_a_doc_are_no_neighbours(tmp_path: Path) -> None:
    """A doc whose sentences end with a line break gives the same vectors as its sentences alone."""
    words: list[str] = []
    sent_starts: list[bool] = []
    for sentence in SENTENCES:
        words += [*sentence, "\n"]
        sent_starts += [True, *[False] * len(sentence)]
    doc = Doc(blank_vocab(), words=words, sent_starts=sent_starts)
    DocBin(docs=[doc]).to_disk(tmp_path / "doc.spacy")

    learned = learn_vectors([tmp_path / "doc.spacy"], tmp_path / "vectors", dim=9, min_count=2)

    assert learned.n_tokens == N_TOKENS  # line breaks are no words
    expected = module.learn_word_vectors(SENTENCES, dim=9, min_count=2)
    row = {word: i for i, word in enumerate(expected.words)}
    for word in ("ana", "rome", "."):
        assert_allclose(
            cosine(tmp_path / "vectors", "oslo", word),
            expected.data[row["oslo"]] @ expected.data[row[word]],
            atol=1e-5,
        )


def test_standard_input_is_text(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (sources / "raw.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    learned = learn_vectors([Path("-")], tmp_path / "vectors", lang="xx", dim=9, min_count=2)
    assert learned.n_tokens == N_TOKENS


def test_what_is_skipped_in_folders_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    """Files are skipped if they are about the corpus, are of an unknown kind, or are empty. Hidden
    files aren't named."""
    folder = tmp_path / "texts"
    (folder / "more").mkdir(parents=True)
    text = "\n".join(" ".join(words) for words in SENTENCES)
    for name in ("a.txt", "more/b.txt", "README.md", ".hidden"):
        (folder / name).write_text(text, encoding="utf8")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (folder / "latin1.txt").write_bytes("Málaga\n".encode("latin1") * 1000)
    (folder / "empty.txt").write_text("\n", encoding="utf8")
    # A character may be cut where the head ends that is looked at.
    (folder / "long.txt").write_text("x" + "é" * 5000, encoding="utf8")

    files = find_raw_files([folder])
    assert [path.name for path in files.paths] == ["a.txt", "long.txt", "b.txt"]
    skipped = ["README.md", "empty.txt", "latin1.txt", "picture.png"]
    assert [path.name for path in files.skipped] == skipped

    result = run("vectors", folder, "--output", tmp_path / "vectors", *OPTIONS)
    assert result.exit_code == 0, result.output
    # Of a.txt and b.txt, and the one word of long.txt.
    assert f"{2 * N_TOKENS + 1} tokens" in result.output
    assert f"skipped (not text, or about the texts): {folder / 'README.md'}, " in result.output


def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they are given by several paths: by their folders, links, or a relative path. A file
    that is about the corpus is read if it is given itself, so it isn't skipped."""
    folder = tmp_path / "texts"
    (folder / "more").mkdir(parents=True)
    for name in ("a.txt", "more/b.txt", "more/c.txt", "README.md", "empty.txt"):
        (folder / name).write_text("" if name == "empty.txt" else "Oslo", encoding="utf8")
    (folder / "more/c.ann").write_text("T1\tLOC 0 4\tOslo\n")
    (tmp_path / "link.txt").symlink_to(folder / "a.txt")
    monkeypatch.chdir(folder)
    more = folder / "more"
    paths = [Path("a.txt"), more, folder, folder, tmp_path / "link.txt", more / "c.txt"]

    files = find_raw_files([*paths, folder / "README.md"])

    assert [path.name for path in files.paths] == ["a.txt", "b.txt", "c.ann", "README.md"]
    assert files.skipped == [folder / "empty.txt"]


def test_a_training_corpus_within_raw_text_is_read_once(sources: Path, tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    for name in ("raw.txt", "train.conll"):
        shutil.copy(sources / name, folder)
    learned = learn_with_corpus([folder], folder / "train.conll", tmp_path / "vectors", "xx")
    assert learned.n_tokens == 2 * N_TOKENS


def test_texts_of_brat_are_read_by_their_annotation(tmp_path: Path) -> None:
    """Both files of a text count as one, even if the .ann file is empty."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("Kim Lee left\n")
    (tmp_path / "a.ann").write_text("T1\tPER 0 7\tKim Lee\n")
    (tmp_path / "b.ann").write_text("")

    files = find_raw_files([tmp_path])

    assert [path.name for path in files.paths] == ["a.ann", "b.ann"] and not files.skipped


def test_long_lines_are_cut_at_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part has at most five characters, with the blank at its beginning. So " three" is cut,
    too."""
    monkeypatch.setattr(raw_text, "MAX_LENGTH", 5)
    assert list(cut_line("one two three")) == ["one", " two", " thre", "e"]
    assert list(cut_line("")) == [""]


def test_a_line_that_is_too_long_for_spacy_is_read(tmp_path: Path) -> None:
    """spaCy itself refuses texts of more than a million characters. The words are long, so that
    there are few."""
    nlp = spacy.blank("xx")
    line = f"{'word' * 30} " * 10_000
    assert len(line) > nlp.max_length
    path = tmp_path / "raw.txt"
    path.write_text(line, encoding="utf8")
    assert sum(map_docs(len, BoundedPipeline(lambda: nlp), path)) >= 10_000


def test_the_vocab_of_raw_text_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So memory doesn't grow with the text."""
    monkeypatch.setattr(raw_text, "MAX_STRINGS", 2000)
    path = tmp_path / "raw.txt"
    path.write_text("\n".join(f"word{i} x." for i in range(3000)), encoding="utf8")
    vocabs: list[Vocab] = []

    def make_pipeline() -> Language:
        nlp = spacy.blank("xx")
        vocabs.append(nlp.vocab)
        return nlp

    def texts(doc: Doc) -> list[str]:
        """The words of a doc."""
        return [token.text for token in doc]

    bounded = BoundedPipeline(make_pipeline)
    words = list(map_docs(texts, bounded, path))

    assert words == [[f"word{i}", "x", "."] for i in range(3000)]
    assert len(vocabs) > 1
    # spaCy's own bound of 10,000 cached strings would make the tokenizer slow.
    assert bounded.nlp.tokenizer.max_cache_size == raw_text.MAX_CACHED
    # A doc may add a few strings to a vocab that has as many as it may have.
    assert max(len(vocab.strings) for vocab in vocabs) <= 2010


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected words that occur at least 3 times, next to other such words, got 0 in 0"),
        (b"one\n" * 1000, "expected words that occur at least 3 times"),
        (b"one " * 1000, "expected words that occur at least 3 times"),
        (b"one\n\xff\xfe\n", "raw.txt, line 2: expected UTF-8 text, got the byte 0xff"),
        (b"one\n\n\0\n", "raw.txt, line 3: expected UTF-8 text, got a null character"),
    ],
)
def test_what_has_no_text_is_refused_in_a_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "raw.txt").write_bytes(content)
    result = run("vectors", tmp_path / "raw.txt", "--output", tmp_path / "vectors")
    assert result.exit_code == 1
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert not (tmp_path / "vectors").exists()


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sounds").mkdir()
    (tmp_path / "sounds" / "a.wav").write_bytes(b"RIFF\0")
    result = run("vectors", tmp_path / "sounds", "--output", tmp_path / "vectors")
    assert result.exit_code == 1
    assert "expected a folder with text files, found none" in result.output


def test_nothing_is_written_when_it_is_interrupted(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(sentences: Iterable[list[str]], **_: Any) -> None:
        """Read one sentence. Then do as if somebody had pressed Ctrl-C."""
        next(iter(sentences))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "learn_word_vectors", interrupt)
    result = run("vectors", sources / "raw.txt", "--output", tmp_path / "vectors")
    assert result.exit_code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["sources"]


def test_a_folder_without_a_pipeline_is_not_replaced(sources: Path) -> None:
    """The folder is checked before the text is read: the text isn't UTF-8, which would be another
    error."""
    (sources / "latin1.txt").write_bytes(b"M\xe1laga")
    result = run("vectors", sources / "latin1.txt", "--output", sources)
    assert result.exit_code == 1
    assert "expected a new folder, an empty one or a pipeline" in result.output
    assert (sources / "raw.txt").exists()


def test_without_scipy_nothing_is_read(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    result = run("vectors", sources / "nowhere.txt", "--output", tmp_path / "vectors")
    assert result.exit_code == 2  # typer: there is no such file
    result = run("vectors", sources / "raw.txt", "--output", tmp_path / "vectors")
    assert result.exit_code == 1
    assert "vectors: SciPy is not installed: pip install" in result.output


def test_carriage_returns_end_lines(tmp_path: Path) -> None:
    (tmp_path / "raw.txt").write_bytes(b"\xef\xbb\xbfone\rtwo\r\nthree\n")
    pipeline = BoundedPipeline(lambda: spacy.blank("xx"))
    texts = map_docs(lambda doc: doc.text, pipeline, tmp_path / "raw.txt")
    assert list(texts) == ["one", "two", "three"]


def test_vectors_have_unit_length(sources: Path, tmp_path: Path) -> None:
    learn_vectors([sources], tmp_path / "vectors", lang="xx", dim=9, min_count=2)
    data = spacy.load(tmp_path / "vectors").vocab.vectors.data
    assert_allclose(numpy.linalg.norm(data, axis=1), 1, atol=1e-5)
