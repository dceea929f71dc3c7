"""Two ways of reading a file, as `spacy evaluate` and as `spacy apply`: which command reads how,
what is kept of it, and what is said where other docs are given."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from numpy.testing import assert_array_equal
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus, Example
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.analysis.calibration import calibrate
from spacy_costner.analysis.checks import NO_STARTS, check
from spacy_costner.analysis.guarantees import guarantee
from spacy_costner.metrics.shift import find_shift, in_random_order
from spacy_costner.ml import linear_part
from spacy_costner.pipeline.annotations import measure
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.pipeline.reading import Reading, find_reading
from spacy_costner.readers import (
    as_spacy_applies,
    as_spacy_evaluates,
    examples_to_measure,
    make_reader,
    read_docs,
)
from spacy_costner.token_attrs import read_presets

from .support.commands import run

NLP = spacy.blank("xx")
PEOPLE = ["Kim", "Ana", "Lee"]
PLACES = ["New-York", "Oslo", "Rome"]
SAID = ["left", "likes", "saw", "avoids"]

Seen = tuple[tuple[str, ...], tuple[bool, ...]]
"""The words of a doc, and which of them, after the first, begin a sentence."""


def article(rng: numpy.random.Generator, vocab: Any = NLP.vocab) -> Doc:
    """Sentences such as "Kim left New-York .", with "New-York" as one token."""
    words: list[str] = []
    spaces: list[bool] = []
    starts: list[bool] = []
    ents: list[str] = []
    for _ in range(rng.integers(2, 5)):
        words += [str(rng.choice(PEOPLE)), str(rng.choice(SAID)), str(rng.choice(PLACES)), "."]
        spaces += [True, True, False, True]
        starts += [True, False, False, False]
        ents += ["B-PER", "O", "B-LOC", "O"]
    return Doc(vocab, words=words, spaces=spaces, sent_starts=starts, ents=ents)


def written(path: Path, n: int, seed: int) -> Path:
    rng = numpy.random.default_rng(seed)
    DocBin(docs=[article(rng) for _ in range(n)]).to_disk(path)
    return path


def seen_of(doc: Doc) -> Seen:
    return tuple(token.text for token in doc), tuple(token.is_sent_start is True for token in doc)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora, a pipeline that `fit` has trained, and ones calibrated and guaranteed on it, with
    their text ("text") and with the tokens of the file ("file")."""
    folder = tmp_path_factory.mktemp("reading")
    train, dev = written(folder / "train.spacy", 30, 0), written(folder / "dev.spacy", 60, 1)
    done(run("fit", "--train", train, "--dev", dev, "--lang", "xx", "--output", folder))
    for name, options in (("text", []), ("file", ["--file-tokens"])):
        both = [dev, *options, "--output", folder / name]
        done(run("guarantee", folder / "model-best", *both, "--miss", "0.3"))
    return folder


def done(result: Any) -> Any:
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """What components have seen, in order."""
    docs_seen: list[Seen] = []
    predict = CostSensitiveNER._posterior

    def watched(self: Any, docs: list[Doc], **options: Any) -> Any:
        docs_seen.extend(map(seen_of, docs))
        return predict(self, docs, **options)

    monkeypatch.setattr(CostSensitiveNER, "_posterior", watched)
    return docs_seen


def commands(folder: Path, output: Path) -> dict[str, list[Any]]:
    """The commands that measure, on the same docs."""
    model, dev, written_to = folder / "model-best", folder / "dev.spacy", ["--output", output]
    config = folder / "config.cfg"
    train = ["--train", folder / "train.spacy"]
    return {
        "fit": ["fit", *train, "--dev", dev, "--lang", "xx", *written_to],
        "calibrate": ["calibrate", model, dev, *written_to],
        "tune": ["tune", model, dev, *written_to, "--parameter", "threshold"],
        "guarantee": ["guarantee", model, dev, *written_to, "--miss", "0.3"],
        "report": ["report", model, dev, "--output", output / "report.html"],
        "compare": ["compare", config, "--test", dev, *written_to, "--losses", "Sequential"],
    }


MEASURING = ["fit", "calibrate", "tune", "guarantee", "report", "compare"]


@pytest.mark.parametrize("file_tokens", [False, True], ids=["text", "file"])
@pytest.mark.parametrize("command", MEASURING)
def test_commands_that_measure_read_alike(
    command: str, file_tokens: bool, folder: Path, seen: list[Seen], tmp_path: Path
) -> None:
    """As `spacy evaluate`, or with the option as `spacy apply`."""
    if command == "report":
        pytest.importorskip("matplotlib")
    option = ["--file-tokens"] if file_tokens else []
    tmp_path.joinpath("out").mkdir()
    done(run(*commands(folder, tmp_path / "out")[command], *option))
    expected = expected_docs(folder / "dev.spacy", file_tokens)
    if command == "fit" and not file_tokens:
        # Then it measures the docs with the sentence starts of the annotation, for its note.
        with_starts = seen[len(expected) :]
        assert all(any(starts[1:]) for _, starts in with_starts)
        assert [words for words, _ in with_starts] == [words for words, _ in expected]
        seen = seen[: len(expected)]
    assert seen[-len(expected) :] == expected
    if command in ("calibrate", "tune", "guarantee"):
        ner: Any = spacy.load(tmp_path / "out").get_pipe("ner")
        assert ner.reading == Reading(file_tokens, not file_tokens, file_tokens)


def expected_docs(path: Path, file_tokens: bool) -> list[Seen]:
    """What a component sees, by spaCy's own readers."""
    docs = list(DocBin().from_disk(path).get_docs(NLP.vocab))
    if not file_tokens:
        docs = [eg.predicted for eg in Corpus(path)(NLP)]
    expected = [seen_of(doc) for doc in docs]
    assert ("New-York" in {word for words, _ in expected for word in words}) is file_tokens
    assert any(any(starts[1:]) for _, starts in expected) is file_tokens
    return expected


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("way", ["text", "file"])
def test_watch_reads_as_calibration_docs_were_read(
    way: str, folder: Path, seen: list[Seen], tmp_path: Path
) -> None:
    """A .spacy file, and tokens in JSONL. `annotate` keeps the tokens of the file."""
    dev = folder / "dev.spacy"
    result = done(run("watch", folder / way, dev, "--json"))
    assert f'"file_tokens": {str(way == "file").lower()}' in result.stdout
    assert seen == expected_docs(dev, way == "file")
    promise = spacy.load(folder / way).meta["guarantee"]["ner"]
    assert promise["reading"]["file_tokens"] is (way == "file")

    done(run("convert", dev, tmp_path / "dev.jsonl"))
    seen.clear()
    done(run("watch", folder / way, tmp_path / "dev.jsonl"))
    words = [words for words, _ in expected_docs(dev, way == "file")]
    assert [words for words, _ in seen] == words

    seen.clear()
    annotated = done(run("annotate", folder / way, dev, "--output", tmp_path / "annotated"))
    assert seen == expected_docs(dev, True)
    assert annotated.output.count("Warning: ner: docs have sentence starts") == (way == "text")
    again = done(run("annotate", folder / way, dev, "--output", tmp_path / "annotated"))
    assert ("Warning" in again.output) is (way == "text")


@pytest.mark.parametrize("file_tokens", [False, True], ids=["text", "file"])
def test_audit_sees_tokens_of_the_file(
    file_tokens: bool, folder: Path, seen: list[Seen], tmp_path: Path
) -> None:
    """And sentence starts with the option alone."""
    option = ["--file-tokens"] if file_tokens else []
    done(run("audit", folder / "config.cfg", folder / "dev.spacy", "--folds", "2", *option))
    expected = expected_docs(folder / "dev.spacy", True)
    assert [words for words, _ in seen] == [words for words, _ in expected]
    assert ([starts for _, starts in seen] == [starts for _, starts in expected]) is file_tokens
    assert file_tokens or not any(any(starts[1:]) for _, starts in seen)


def test_starts_are_those_of_components(folder: Path, seen: list[Seen], tmp_path: Path) -> None:
    """As `spacy evaluate` has them: of a sentencizer. Then no doc lacks them."""
    nlp = spacy.load(folder / "model-best")
    nlp.add_pipe("sentencizer", first=True)
    examples = list(examples_to_measure(nlp, make_reader(folder / "dev.spacy")))
    calibrate(nlp, examples)
    assert all(any(starts[1:]) for _, starts in seen)
    assert nlp.get_pipe("ner").reading == Reading(False, True, True)
    nlp("Kim left New-York. Ana saw Oslo.")
    nlp.disable_pipe("sentencizer")
    with pytest.warns(UserWarning, match="ner: docs have no sentence starts, where"):
        nlp("Kim left New-York. Ana saw Oslo.")


GIVEN: dict[str, tuple[Callable[[Doc], Doc], str]] = {
    "starts": (as_spacy_applies, "ner: docs have sentence starts, where .* give texts"),
    "tokens": (
        lambda doc: Doc(doc.vocab, [t.text for t in doc], [bool(t.whitespace_) for t in doc]),
        "ner: docs have other tokens than the tokenizer makes .* --file-tokens",
    ),
}


@pytest.mark.parametrize("given", GIVEN)
def test_other_docs_get_one_warning(given: str, folder: Path) -> None:
    """Texts get none; docs keep what they are given."""
    nlp = spacy.load(folder / "text")
    nlp("Kim left New-York. Ana saw Oslo.")
    make, message = GIVEN[given]
    doc = article(numpy.random.default_rng(3), nlp.vocab)
    while "New-York" not in doc.text:
        doc = article(numpy.random.default_rng(len(doc)), nlp.vocab)
    before = make(doc)
    with pytest.warns(UserWarning, match=message) as warned:
        (after,) = nlp.pipe([make(doc)])
        nlp(make(doc))
    assert len(warned) == 1
    assert seen_of(after) == seen_of(before)
    # Where it was calibrated on such docs nothing is said.
    spacy.load(folder / "file")(as_spacy_applies(doc))


@pytest.mark.filterwarnings("default")
def test_another_way_than_before_is_said(folder: Path, tmp_path: Path) -> None:
    options = [folder / "dev.spacy", "--file-tokens", "--output", tmp_path / "out"]
    result = done(run("calibrate", folder / "text", *options))
    assert "run all of them either with --file-tokens, or without" in result.output


def test_fit_trains_the_same_weights_from_columns_and_from_spacys_format(
    folder: Path, tmp_path: Path
) -> None:
    """Of the same docs. They are not those of training without sentence starts."""
    columns = tmp_path / "train.conll"
    done(run("convert", folder / "train.spacy", columns))
    docbin = tmp_path / "train.spacy"
    done(run("convert", columns, docbin))
    no_starts = ["--corpora.train.sentences", "false"]
    trainings = {"columns": [columns], "docbin": [docbin], "uncut": [docbin, *no_starts]}
    weights = {}
    for name, (train, *settings) in trainings.items():
        paths = ["--train", train, "--output", tmp_path / name]
        done(run("fit", folder / "config.cfg", *paths, *settings))
        ner: Any = spacy.load(tmp_path / name / "model-best").get_pipe("ner")
        weights[name] = linear_part(ner.model)[1].rows
    assert_array_equal(weights["columns"], weights["docbin"])
    assert (weights["columns"] != weights["uncut"]).any()


def test_fit_scores_docs_with_the_sentence_starts_that_no_component_sets(
    folder: Path, tmp_path: Path
) -> None:
    """In one note. `check` says it of both corpora."""
    dev = folder / "dev.spacy"
    result = done(run("fit", folder / "config.cfg", "--output", tmp_path))
    nlp = spacy.load(tmp_path / "model-best")
    f = {}
    for has_starts in (False, True):
        examples = make_reader(dev, sentences=has_starts)(nlp)
        f[has_starts] = 100 * nlp.evaluate(list(examples))["ents_f"]
    note = (
        f"note: {dev}: F {f[False]:.2f} without sentence starts, as no component before ner sets "
        f"them, and {f[True]:.2f} with those of the annotation"
    )
    assert result.output.count(note) == 1
    messages = [finding.message for finding in check(folder / "config.cfg").findings]
    assert messages.count(NO_STARTS) == 2


def with_sentencizer(config: Config) -> None:
    config["nlp"]["pipeline"] = ["sentencizer", "ner"]
    config["components"]["sentencizer"] = {"factory": "sentencizer"}


def without_borders(config: Config) -> None:
    config["components"]["ner"]["sentence_boundaries"] = False


def with_starts_of_files(config: Config) -> None:
    for reader in config["corpora"].values():
        reader["sentences"] = True


@pytest.mark.parametrize("change", [with_sentencizer, without_borders, with_starts_of_files])
def test_nothing_is_said_of_sentence_starts_that_are_seen_or_not_used(
    change: Callable[[Config], None], folder: Path, tmp_path: Path
) -> None:
    config = load_config(folder / "config.cfg")
    change(config)
    config.to_disk(tmp_path / "config.cfg")
    result = done(run("fit", tmp_path / "config.cfg", "--output", tmp_path))
    assert "sentence starts" not in result.output
    findings = check(tmp_path / "config.cfg").findings
    assert NO_STARTS not in [finding.message for finding in findings]


def test_fit_has_no_file_tokens_without_dev(folder: Path, tmp_path: Path) -> None:
    given = ["--train", folder / "train.spacy", "--lang", "xx", "--calibrate", "--file-tokens"]
    result = run("fit", *given, "--output", tmp_path)
    assert result.exit_code == 1
    assert "fit: --file-tokens: expected a development corpus with it, got none" in result.output


def test_pipelines_without_a_reading_load(folder: Path, tmp_path: Path) -> None:
    """Those that were saved before: they are watched on text, as they were calibrated."""
    nlp = spacy.load(folder / "text")
    ner: Any = nlp.get_pipe("ner")
    ner.reading = None
    ner.calibration_scores = replace(ner.calibration_scores, reading=None)
    nlp.to_disk(tmp_path / "old")
    old = spacy.load(tmp_path / "old")
    old(article(numpy.random.default_rng(0), old.vocab))
    assert old.get_pipe("ner").reading is None
    done(run("watch", tmp_path / "old", folder / "dev.spacy"))


def test_columns_are_read_as_the_same_docs_in_spacys_format(tmp_path: Path) -> None:
    """Their words are kept, as spaces are unknown; their sentence starts only with the option."""
    columns = "-DOCSTART- O\n\nKim B-PER\nleft O\n. O\n\nOslo. B-LOC\nSo O\n"
    (tmp_path / "a.conll").write_text(columns)
    DocBin(docs=read_docs(NLP, tmp_path / "a.conll")).to_disk(tmp_path / "a.spacy")
    for file_tokens in (False, True):
        both = []
        for name in ("a.conll", "a.spacy"):
            reader = make_reader(tmp_path / name)
            (eg,) = examples_to_measure(NLP, reader, file_tokens=file_tokens)
            both.append(seen_of(eg.predicted))
        assert both[0] == both[1]
        assert both[0][0] == ("Kim", "left", ".", "Oslo.", "So")
        assert both[0][1][1:] == (False, False, file_tokens, False)


def test_settings_of_a_reader_and_spacys_reader(folder: Path) -> None:
    """Sentence starts that the config asks for are kept. spaCy's reader has both ways, too."""
    dev = folder / "dev.spacy"
    (eg, *_) = examples_to_measure(NLP, make_reader(dev, sentences=True))
    assert any(seen_of(eg.predicted)[1][1:])
    for file_tokens in (False, True):
        examples = examples_to_measure(NLP, Corpus(dev), file_tokens=file_tokens)
        assert [seen_of(eg.predicted) for eg in examples] == expected_docs(dev, file_tokens)


def test_a_reading_is_found_from_docs(folder: Path) -> None:
    """Of examples that nobody has said anything of."""
    nlp = spacy.load(folder / "model-best")
    docs = list(read_docs(nlp, folder / "dev.spacy"))
    as_applied = [Example(as_spacy_applies(doc), doc) for doc in docs]
    as_evaluated = [Example(as_spacy_evaluates(nlp, doc), doc) for doc in docs]
    assert find_reading(nlp, "ner", as_evaluated) == Reading(False, True, False)
    assert find_reading(nlp, "ner", as_applied) == Reading(True, False, True)
    assert find_reading(nlp, "ner", as_applied + as_evaluated) == Reading(True, False, None)
    result = guarantee(nlp, as_applied, miss=0.3)
    assert result.promise.reading is None
    assert nlp.meta["guarantee"]["ner"]["reading"] == asdict(Reading(True, False, True))


def entropies(nlp: Language, docs: list[Doc]) -> numpy.ndarray:
    ner: Any = nlp.get_pipe("ner")
    posterior = ner.posterior(docs, preset=True)
    return measure(posterior, read_presets(docs))[0]


@pytest.mark.slow
def test_false_alarms_of_random_halves(folder: Path) -> None:
    """At most 1 % of halves alarm, and two standard errors, where both are read alike: in either
    way. Halves that are read in different ways alarm far more often."""
    nlp = spacy.load(folder / "text")
    rng = numpy.random.default_rng(0)
    docs = [article(rng, nlp.vocab) for _ in range(200)]
    of_text = entropies(nlp, [as_spacy_evaluates(nlp, doc) for doc in docs])
    of_file = entropies(nlp, [as_spacy_applies(doc) for doc in docs])

    def alarms(calibration: numpy.ndarray, new: numpy.ndarray) -> Iterator[bool]:
        for seed in range(300):
            order = numpy.random.default_rng(seed).permutation(len(docs))
            scores = {"scores": calibration[order[:100]].tolist(), "approximate": False}
            ordered = in_random_order(new[order[100:]].tolist(), seed)
            yield find_shift(scores, ordered, seed=seed).alarm is not None

    highest = 300 * (0.01 + 2 * numpy.sqrt(0.01 * 0.99 / 300))
    assert sum(alarms(of_text, of_text)) <= highest
    assert sum(alarms(of_file, of_file)) <= highest
    mixed = sum(alarms(of_file, of_text)), sum(alarms(of_text, of_file))
    assert max(mixed) > 100
