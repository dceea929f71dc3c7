"""Tests of training with vectors that are learned from raw text: `fit --raw` and `init --raw`."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.tokens import Doc, DocBin
from spacy.util import load_config

from spacy_costner.readers import ReadOptions, make_reader
from spacy_costner.training.raw_sentences import FILE, read_raw_sentences
from spacy_costner.workflows.calibration.guarantees import guarantee
from spacy_costner.workflows.calibration.temperature import calibrate
from spacy_costner.workflows.config.initial_config import init
from spacy_costner.workflows.evaluation.recurrence import KnownText
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.vectors import learn_vectors

from ...support.commands import run
from ...support.vocabs import blank_vocab

N = 24
FORMS = [f"W{(7 * i) % 97:02}" for i in range(2 * N)]
"""Words whose letters do not tell names from places."""

PEOPLE = FORMS[:N]
CITIES = FORMS[N:]


N_RAW_TOKENS = N * 4 * (7 + 8)
"""Of the raw text: four sentences of seven words, and four of eight, for each name and place."""


def words_of_annotated(i: int) -> list[str]:
    """A sentence of nine words with a name and a place. Nothing in it tells them apart, only what
    the two words do in other texts. Every other sentence has the place first."""
    first, second = PEOPLE[i], CITIES[i]
    if i % 2:
        first, second = second, first
    return [first, "x", second, "x", "x", "x", "x", "x", f"n{i}"]


def save_docs(path: Path, numbers: range) -> None:
    """Save the annotated sentences with these numbers."""
    vocab = blank_vocab()
    docs: list[Doc] = []
    for i in numbers:
        tags = ["B-PER", "O", "B-LOC", *["O"] * 6]
        if i % 2:
            tags[0], tags[2] = tags[2], tags[0]
        docs.append(Doc(vocab, words=words_of_annotated(i), ents=tags))
    DocBin(docs=docs).to_disk(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with corpora and raw text. Some words are only in the training corpus, others only
    in the development corpus. The raw text has all of them: there people speak, and trains
    go to places."""
    save_docs(tmp_path / "train.spacy", range(12))
    save_docs(tmp_path / "dev.spacy", range(12, N))
    lines: list[str] = []
    for person, city in zip(PEOPLE, CITIES):
        for adverb in ("now", "then", "here", "often"):
            lines.append(f"yesterday {person} said {adverb} that it is")
            lines.append(f"a train to {city} leaves {adverb} from us")
    (tmp_path / "raw.txt").write_text("\n".join(lines), encoding="utf8")
    return tmp_path


def fit_options(folder: Path) -> list[Any]:
    """The options that name the corpora, and the language."""
    corpora = ["--train", folder / "train.spacy", "--dev", folder / "dev.spacy"]
    return [*corpora, "--raw", folder / "raw.txt", "--output", folder / "output"]


def test_fit_learns_vectors_of_raw_text_and_of_its_corpus(folder: Path) -> None:
    """The pipeline knows the new words of the development corpus, and needs no other folder. The
    output says what was read. The config in the output folder trains the same pipeline again."""
    result = run("fit", *fit_options(folder), "--lang", "xx")
    assert result.exit_code == 0, result.output
    n_tokens = N_RAW_TOKENS + 12 * 9  # of the raw text, and of the training corpus
    assert f"raw text and training corpus: {n_tokens:,} tokens, " in result.output
    assert "training docs: 96 of 108 words" in result.output  # n0 to n11 occur once
    assert "pipeline with its vectors: " in result.output
    assert "dev: F 100.00" in result.output
    head = (folder / "output" / "config.cfg").read_text(encoding="utf8")
    assert f"--raw {folder / 'raw.txt'}" in head

    shutil.move(folder / "output" / "vectors", folder / "moved")
    doc = spacy.load(folder / "output" / "model-best")(" ".join(words_of_annotated(13)))
    assert [(ent.text, ent.label_) for ent in doc.ents] == [
        (CITIES[13], "LOC"),
        (PEOPLE[13], "PER"),
    ]


def test_without_raw_text_new_words_are_not_known(folder: Path) -> None:
    """Nothing in the annotated sentences tells new names from new places. So half of them are right
    by chance."""
    fitted = fit(
        None,
        folder / "output",
        lang="xx",
        train_path=folder / "train.spacy",
        dev_path=folder / "dev.spacy",
    )
    assert fitted.scores["ents_f"] == pytest.approx(0.5, abs=0.1)
    assert fitted.learned is None


def test_fit_takes_raw_text_with_a_config(folder: Path) -> None:
    """Raw text may be in several files: here they have the same text. The config has the language
    and the corpus; the corpus is read as text, too. JSON has the number of tokens."""
    config_path = folder / "config.cfg"
    text = init(lang="xx", train_path=folder / "train.spacy", dev_path=folder / "dev.spacy")
    config_path.write_text(text, encoding="utf8")
    copied = shutil.copy(folder / "raw.txt", folder / "copy.txt")
    options = ["--raw", folder / "raw.txt", "--raw", copied, "--json"]
    result = run("fit", config_path, "--output", folder / "output", *options)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    # The training corpus has 12 sentences of 9 words.
    assert printed["raw_text"]["n_tokens"] == 2 * N_RAW_TOKENS + 12 * 9
    assert printed["bytes"] > 1000
    assert printed["scores"]["ents_f"] == 1.0


@pytest.mark.parametrize("is_in_folder", [False, True], ids=["own file", "file of raw text"])
def test_the_corpus_is_read_as_text_with_the_settings_of_the_config(
    folder: Path, is_in_folder: bool
) -> None:
    """Its token column, which isn't that of other files. The corpus may be part of the raw text."""
    rows = [f"l{i % 3}\tname{i % 3}\tB-PER\nlast\tspeaks\tO" for i in range(12)]
    raw = folder / "raw"
    raw.mkdir()
    shutil.move(folder / "raw.txt", raw)
    (raw / "other.conll").write_text("other\tpos\tO\nword\tpos\tO\n" * 4, encoding="utf8")
    train_path = (raw if is_in_folder else folder) / "train.conll"
    train_path.write_text("\n\n".join(rows) + "\n", encoding="utf8")
    reading = ReadOptions(token_column=2)
    config_path = folder / "config.cfg"
    config_path.write_text(init(lang="xx", train_path=train_path, reading=reading), encoding="utf8")

    fit(config_path, folder / "output", raw_paths=[raw])

    vocab = spacy.load(folder / "output" / "vectors").vocab
    assert all(map(vocab.has_vector, ["name0", "name1", "name2", "speaks", "other", "word"]))
    assert not any(map(vocab.has_vector, ["l0", "l1", "l2", "last", "pos"]))


@pytest.mark.slow
def test_fit_again_learns_again(folder: Path) -> None:
    """The vectors that it has learned before are replaced, but nothing else with that name is.
    Vectors without the file of hashes are of somebody else."""
    assert run("fit", *fit_options(folder)).exit_code == 0
    assert run("fit", *fit_options(folder)).exit_code == 0
    (folder / "output" / "vectors" / FILE).unlink()
    result = run("fit", *fit_options(folder))
    assert result.exit_code == 1
    assert "output/vectors: expected a new folder, or vectors that were learned" in result.output


@pytest.mark.slow
def test_init_writes_vectors_beside_the_config(folder: Path) -> None:
    """`fit` can use them. Vectors that are there are replaced only with --force, even if they
    belong to another config in the folder."""
    config_path = folder / "configs" / "config.cfg"
    config_path.parent.mkdir()
    options = ["--raw", folder / "raw.txt", "--lang", "xx"]
    corpora = ["--train", folder / "train.spacy", "--dev", folder / "dev.spacy"]
    result = run("init", config_path, *corpora, *options)
    assert result.exit_code == 0, result.output
    config = load_config(config_path, interpolate=True)
    assert config["initialize"]["vectors"] == str(folder / "configs" / "vectors")
    assert config["components"]["ner"]["model"]["features"]["include_static_vectors"] is True
    assert fit(config_path, folder / "output").scores["ents_f"] == 1.0

    again = run("init", folder / "configs" / "other.cfg", *corpora, *options)
    assert again.exit_code == 1
    assert f"{folder / 'configs' / 'vectors'}: expected a new file, got one that" in again.output
    assert run("init", config_path, *corpora, *options, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-", "--raw", "raw.txt"], "--raw: expected a file for the config"),
        (
            ["c.cfg", "--raw", "raw.txt", "--vectors", "v"],
            "--raw: expected no --vectors, as they are learned from the raw text",
        ),
        (
            ["c.cfg", "--raw", "raw.txt", "--model", "transformer"],
            "--raw: expected --model linear, cnn or hybrid, got transformer",
        ),
    ],
)
def test_init_refuses_raw_text_where_no_vectors_can_be(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    result = run("init", *options)
    assert result.exit_code == 1
    assert message in result.output
    assert not (folder / "vectors").exists()


def test_fit_refuses_raw_text_before_it_is_read(folder: Path) -> None:
    """The text isn't UTF-8, so reading it would be another error."""
    raw_path = folder / "raw.txt"
    raw_path.write_bytes(b"\xff")
    output = folder / "output"
    train_path = folder / "train.spacy"

    with pytest.raises(ValueError, match="`raw_paths`: expected no `vectors`"):
        fit(None, output, train_path=train_path, raw_paths=[raw_path], vectors="vectors")
    with pytest.raises(ValueError, match=r"^`train_path`: expected a corpus"):
        fit(None, output, raw_paths=[raw_path])


# What measures stays unseen


@pytest.fixture
def transductive(folder: Path) -> Path:
    """The folder with a second file of raw text: the sentences of the development corpus, but in
    capitals, and with a full stop."""
    lines = [" ".join(words_of_annotated(i)).upper() + " ." for i in range(12, N)]
    (folder / "dev.txt").write_text("\n".join(lines), encoding="utf8")
    return folder


def test_docs_that_were_raw_text_are_known(transductive: Path) -> None:
    """The hashes of their sentences are kept like the hashes of training docs, also on disk.
    Capitals and punctuation don't matter. Docs that are neither aren't known."""
    folder = transductive
    result = run("fit", *fit_options(folder), "--raw", folder / "dev.txt", "--lang", "xx")
    assert result.exit_code == 0, result.output
    assert (
        "dev.spacy: 12 of 12 texts (100 %) recur in the training corpus or in the raw text that "
        "the vectors were learned from: scores on them are too high"
    ) in result.output.replace("\n", " ")

    nlp = spacy.load(folder / "output" / "model-best")
    ner: Any = nlp.get_pipe("ner")
    known = KnownText.from_component(nlp, ner)
    training_text = KnownText.from_component(nlp, ner, with_raw_text=False)
    dev = [eg.reference for eg in make_reader(folder / "dev.spacy")(nlp)]
    train = [eg.reference for eg in make_reader(folder / "train.spacy")(nlp)]

    assert all(known.knows(doc) for doc in [*dev, *train])
    assert known.find_in(dev).n_recurring == 12
    assert training_text.find_in(dev).n_recurring == 0
    assert not known.knows(nlp("This is a sentence which is in neither of them ."))


def test_a_promise_on_raw_text_is_refused(transductive: Path) -> None:
    """`calibrate` only says that the docs are known."""
    folder = transductive
    learn_vectors([folder / "raw.txt", folder / "dev.txt"], folder / "vectors", lang="xx")
    fitted = fit(
        None,
        folder / "output",
        lang="xx",
        train_path=folder / "train.spacy",
        vectors=str(folder / "vectors"),
    )
    dev = list(make_reader(folder / "dev.spacy")(fitted.nlp))
    with pytest.raises(ValueError, match="or in the raw text that the vectors were learned from"):
        guarantee(fitted.nlp, dev, miss=0.5)
    calibrated = calibrate(fitted.nlp, dev)
    assert "raw text that the vectors" in calibrated.as_text()


def test_other_vectors_have_no_raw_text(folder: Path) -> None:
    """Neither have pipelines without vectors."""
    nlp = spacy.blank("xx")
    nlp.vocab.set_vector("said", numpy.ones(2, dtype="float32"))
    nlp.to_disk(folder / "others")
    assert not len(read_raw_sentences(str(folder / "others")))
    assert not len(read_raw_sentences(None))


@pytest.mark.parametrize("damaged", ["[]", '{"sentences": "packed:bm90IGNvbXByZXNzZWQ="}'])
def test_damaged_hashes_are_named(folder: Path, damaged: str) -> None:
    learn_vectors([folder / "raw.txt"], folder / "vectors", lang="xx")
    assert len(read_raw_sentences(str(folder / "vectors")))
    (folder / "vectors" / FILE).write_text(damaged, encoding="utf8")
    with pytest.raises(ValueError, match=r"raw_text.json: expected hashes as `learn_vectors`"):
        read_raw_sentences(str(folder / "vectors"))
