"""Tests of the two ways to read a file: as `spacy evaluate` or as `spacy apply`. Which command
reads in which way, what the pipeline keeps of it, and the warning about docs that were read in the
other way."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from numpy.testing import assert_array_equal
from spacy.language import Language
from spacy.tokenizer import Tokenizer
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus, Example
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.annotation.tokens import read_presets
from spacy_costner.metrics.shift import find_shift, in_random_order
from spacy_costner.ml import linear_part
from spacy_costner.pipeline.component import CostSensitiveNER
from spacy_costner.pipeline.doc_entropy import measure_docs
from spacy_costner.pipeline.reading import Reading, find_reading
from spacy_costner.readers import (
    as_spacy_applies,
    as_spacy_evaluates,
    examples_to_measure,
    make_reader,
    read_docs,
)
from spacy_costner.workflows.calibration.guarantees import guarantee
from spacy_costner.workflows.calibration.temperature import calibrate
from spacy_costner.workflows.calibration.tuning import tune
from spacy_costner.workflows.config.checks import NO_STARTS, check

from ...support.commands import run
from ...support.reports import figures_left_out

NLP = spacy.blank("xx")
PEOPLE = ["Kim", "Ana", "Lee"]
PLACES = ["New-York", "Oslo", "Rome"]
VERBS = ["left", "likes", "saw", "avoids"]

Seen = tuple[tuple[str, ...], tuple[bool, ...]]
"""The words of a doc, and the words after the first that begin a sentence."""


def article(rng: numpy.random.Generator, vocab: Any = NLP.vocab) -> Doc:
    """A doc of sentences such as "Kim left New-York .", where "New-York" is one token."""
    words: list[str] = []
    spaces: list[bool] = []
    starts: list[bool] = []
    ents: list[str] = []
    for _ in range(rng.integers(2, 5)):
        words += [str(rng.choice(PEOPLE)), str(rng.choice(VERBS)), str(rng.choice(PLACES)), "."]
        spaces += [True, True, False, True]
        starts += [True, False, False, False]
        ents += ["B-PER", "O", "B-LOC", "O"]
    return Doc(vocab, words=words, spaces=spaces, sent_starts=starts, ents=ents)


def write_articles(path: Path, n_docs: int, seed: int) -> Path:
    """Save random articles as a .spacy file. RETURNS (Path): The file."""
    rng = numpy.random.default_rng(seed)
    DocBin(docs=[article(rng) for _ in range(n_docs)]).to_disk(path)
    return path


def seen_of(doc: Doc) -> Seen:
    """What a component sees of a doc: its tokens and its sentence starts."""
    words = tuple(token.text for token in doc)
    starts = tuple(token.is_sent_start is True for token in doc)
    return words, starts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.spacy and dev.spacy, and three pipelines: model-best, which `fit` has
    trained, and this one after `guarantee` on dev.spacy, read as text ("text") and with the tokens
    of the file ("file")."""
    folder = tmp_path_factory.mktemp("reading")
    train = write_articles(folder / "train.spacy", n_docs=30, seed=0)
    dev = write_articles(folder / "dev.spacy", n_docs=60, seed=1)
    succeed("fit", "--train", train, "--dev", dev, "--lang", "xx", "--output", folder)
    guarantee_on_dev = ["guarantee", folder / "model-best", dev, "--miss", "0.3"]
    succeed(*guarantee_on_dev, "--output", folder / "text")
    succeed(*guarantee_on_dev, "--file-tokens", "--output", folder / "file")
    return folder


def succeed(*arguments: Any) -> Any:
    """Run a command, and check that it succeeds."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """A list of the docs that components have predicted, in order. It grows during the test."""
    docs_seen: list[Seen] = []
    posterior_of = CostSensitiveNER._posterior

    def recorded_posterior(self: Any, docs: list[Doc], **options: Any) -> Any:
        """Compute the posterior, and note the docs."""
        docs_seen.extend(seen_of(doc) for doc in docs)
        return posterior_of(self, docs, **options)

    monkeypatch.setattr(CostSensitiveNER, "_posterior", recorded_posterior)
    return docs_seen


def commands(folder: Path, output: Path) -> dict[str, list[Any]]:
    """The words of all commands that measure, on the same docs."""
    model = folder / "model-best"
    config = folder / "config.cfg"
    dev = folder / "dev.spacy"
    train = ["--train", folder / "train.spacy"]
    written_to = ["--output", output]
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
def test_commands_that_measure_read_as_spacy_does(
    command: str, file_tokens: bool, folder: Path, seen: list[Seen], tmp_path: Path
) -> None:
    """They read as `spacy evaluate` or, with --file-tokens, as `spacy apply`. The docs that a
    command predicts last are those of the development corpus."""
    if command == "report":
        pytest.importorskip("matplotlib")
    option = ["--file-tokens"] if file_tokens else []
    tmp_path.joinpath("out").mkdir()

    with figures_left_out():
        succeed(*commands(folder, tmp_path / "out")[command], *option)

    expected = expected_docs(folder / "dev.spacy", file_tokens)
    if command == "fit" and not file_tokens:
        # Then it measures the docs with the sentence starts of a sentencizer, for its note.
        with_starts = seen[len(expected) :]
        assert all(any(starts[1:]) for _, starts in with_starts)
        assert [words for words, _ in with_starts] == [words for words, _ in expected]
        seen = seen[: len(expected)]
    assert seen[-len(expected) :] == expected
    if command in ("calibrate", "tune", "guarantee"):
        ner: Any = spacy.load(tmp_path / "out").get_pipe("ner")
        assert ner.reading == Reading(
            file_tokens=file_tokens,
            tokenizer_tokens=not file_tokens,
            sentence_starts=file_tokens,
        )


def expected_docs(path: Path, file_tokens: bool) -> list[Seen]:
    """What a component sees if spaCy's own readers read the file. The tokenizer makes three tokens
    of "New-York", and sets no sentence starts."""
    docs = list(DocBin().from_disk(path).get_docs(NLP.vocab))
    if not file_tokens:
        docs = [eg.predicted for eg in Corpus(path)(NLP)]
    expected = [seen_of(doc) for doc in docs]
    assert ("New-York" in {word for words, _ in expected for word in words}) is file_tokens
    assert any(any(starts[1:]) for _, starts in expected) is file_tokens
    return expected


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("way", ["text", "file"])
def test_watch_reads_as_calibration_docs_were_read_and_annotate_keeps_tokens(
    way: str, folder: Path, seen: list[Seen], tmp_path: Path
) -> None:
    """`watch` reads a .spacy file and JSONL with tokens in the same way. `annotate` keeps the
    tokens of the file. If the calibration docs were read otherwise, it says so each time."""
    dev = folder / "dev.spacy"

    result = succeed("watch", folder / way, dev, "--json")

    assert f'"file_tokens": {str(way == "file").lower()}' in result.stdout
    assert seen == expected_docs(dev, way == "file")
    promise = spacy.load(folder / way).meta["guarantee"]["ner"]
    assert promise["reading"]["file_tokens"] is (way == "file")

    succeed("convert", dev, tmp_path / "dev.jsonl")
    seen.clear()
    succeed("watch", folder / way, tmp_path / "dev.jsonl")
    # JSONL has tokens, but no sentence starts.
    words = [words for words, _ in expected_docs(dev, way == "file")]
    assert [words for words, _ in seen] == words

    seen.clear()
    first_run = succeed("annotate", folder / way, dev, "--output", tmp_path / "annotated")
    assert seen == expected_docs(dev, True)
    n_warnings = first_run.output.count("Warning: ner: docs have sentence starts")
    assert n_warnings == (1 if way == "text" else 0)
    second_run = succeed("annotate", folder / way, dev, "--output", tmp_path / "annotated")
    assert ("Warning" in second_run.output) is (way == "text")


@pytest.mark.parametrize("file_tokens", [False, True], ids=["text", "file"])
def test_audit_reads_tokens_of_the_file_and_sentence_starts_only_with_the_option(
    file_tokens: bool, folder: Path, seen: list[Seen], tmp_path: Path
) -> None:
    option = ["--file-tokens"] if file_tokens else []

    succeed("audit", folder / "config.cfg", folder / "dev.spacy", "--folds", "2", *option)

    expected = expected_docs(folder / "dev.spacy", True)
    assert [words for words, _ in seen] == [words for words, _ in expected]
    if file_tokens:
        assert [starts for _, starts in seen] == [starts for _, starts in expected]
    else:
        assert not any(any(starts[1:]) for _, starts in seen)


def test_sentence_starts_of_a_component_before_are_read(folder: Path, seen: list[Seen]) -> None:
    """They are read as `spacy evaluate` does; here a sentencizer sets them. There is a warning
    about a doc without them."""
    nlp = spacy.load(folder / "model-best")
    nlp.add_pipe("sentencizer", first=True)
    examples = list(examples_to_measure(nlp, make_reader(folder / "dev.spacy")))
    calibrate(nlp, examples)
    assert all(any(starts[1:]) for _, starts in seen)
    assert nlp.get_pipe("ner").reading == Reading(
        file_tokens=False, tokenizer_tokens=True, sentence_starts=True
    )

    nlp("Kim left New-York. Ana saw Oslo.")
    nlp.disable_pipe("sentencizer")
    with pytest.warns(UserWarning, match="ner: docs have no sentence starts, but"):
        nlp("Kim left New-York. Ana saw Oslo.")


def begin_sentences_after_full_stops(doc: Doc) -> Doc:
    """A component that doesn't set the sentence starts of docs without full stops."""
    for token in doc[:-1]:
        if token.text == ".":
            doc[token.i + 1].is_sent_start = True
    return doc


def merge_new_york(doc: Doc) -> Doc:
    """A component that changes the tokens of some docs."""
    with doc.retokenize() as retokenizer:
        for token in doc[:-2]:
            if token.text == "New":
                retokenizer.merge(doc[token.i : token.i + 3])
    return doc


@pytest.mark.parametrize("component", [begin_sentences_after_full_stops, merge_new_york])
@pytest.mark.parametrize("command", [calibrate, tune, guarantee])
def test_texts_get_no_warning_if_an_earlier_component_changes_some_docs(
    command: Callable[..., Any], component: Callable[[Doc], Doc], folder: Path
) -> None:
    """The component before doesn't declare what it changes."""
    nlp = spacy.load(folder / "model-best")
    Language.component(component.__name__, func=component)
    nlp.add_pipe(component.__name__, first=True)
    reader = make_reader(folder / "dev.spacy")
    examples = list(examples_to_measure(nlp, reader))
    reference = examples[0].reference[:3].as_doc()  # one sentence, which has no full stop
    examples.append(Example(nlp.make_doc(reference.text), reference))

    command(nlp, examples, **({"miss": 0.3} if command is guarantee else {}))

    assert nlp.get_pipe("ner").reading.file_tokens is False
    for text in ("Kim left New-York. Ana saw Oslo.", "Kim left Oslo"):
        nlp(text)  # a warning would be an error


@Language.component("full_stops", assigns=["token.is_sent_start"])
def declared_full_stops(doc: Doc) -> Doc:
    """A component that declares that it sets sentence starts."""
    return begin_sentences_after_full_stops(doc)


def test_texts_get_no_warning_if_calibration_docs_happen_to_have_no_sentence_starts(
    folder: Path,
) -> None:
    nlp = spacy.load(folder / "model-best")
    nlp.add_pipe("full_stops", first=True)
    sentences: list[Example] = []
    for doc in read_docs(nlp, folder / "dev.spacy"):
        reference = doc[:3].as_doc()
        sentences.append(Example(nlp.make_doc(reference.text), reference))

    calibrate(nlp, sentences)

    assert nlp.get_pipe("ner").reading.sentence_starts is None
    nlp("Kim left New-York. Ana saw Oslo.")  # a warning would be an error


def test_docs_are_compared_with_the_tokenizer_that_read_the_calibration_docs(folder: Path) -> None:
    nlp = spacy.load(folder / "model-best")
    nlp.tokenizer = Tokenizer(nlp.vocab)  # splits at spaces only
    calibrate(nlp, list(examples_to_measure(nlp, make_reader(folder / "dev.spacy"))))

    nlp("Kim left New-York .")  # a warning would be an error
    with pytest.warns(UserWarning, match="docs have tokens other than the tokenizer's"):
        nlp(Doc(nlp.vocab, words=["New", "-", "York"], spaces=[False, False, False]))


NEW_YORK: dict[str, Any] = {
    "words": ["Kim", "left", "New-York", ".", "Ana", "saw", "Oslo", "."],
    "spaces": [True, True, False, True, True, True, False, False],
}


@pytest.mark.parametrize(
    "sent_starts, message",
    [
        ([0, 4], "ner: docs have sentence starts, but .* give texts"),
        ([], "ner: docs have tokens other than the tokenizer's.* `file_tokens`"),
    ],
    ids=["sentence starts", "tokens"],
)
def test_docs_read_otherwise_than_calibration_docs_get_one_warning(
    sent_starts: list[int], message: str, folder: Path
) -> None:
    """Docs keep their tokens and sentence starts, so there is one warning. There is none about
    texts."""
    nlp = spacy.load(folder / "text")
    nlp("Kim left New-York. Ana saw Oslo.")
    starts = [i in sent_starts for i in range(8)] if sent_starts else None
    doc = Doc(nlp.vocab, **NEW_YORK, sent_starts=starts)
    expected = seen_of(doc)

    with pytest.warns(UserWarning, match=message) as warned:
        (predicted,) = nlp.pipe([doc.copy()])
        nlp(doc.copy())

    assert len(warned) == 1
    assert seen_of(predicted) == expected


def test_docs_read_as_calibration_docs_get_no_warning(folder: Path) -> None:
    nlp = spacy.load(folder / "file")
    doc = Doc(nlp.vocab, **NEW_YORK, sent_starts=[i in (0, 4) for i in range(8)])
    nlp(doc)  # a warning would be an error


@pytest.mark.filterwarnings("default")
def test_calibrate_warns_of_another_reading_than_that_of_the_guarantee(
    folder: Path, tmp_path: Path
) -> None:
    options = [folder / "dev.spacy", "--file-tokens", "--output", tmp_path / "out"]
    result = succeed("calibrate", folder / "text", *options)
    assert "run all of them either with --file-tokens, or without" in result.output


def test_fit_trains_the_same_weights_from_columns_and_from_spacys_format(
    folder: Path, tmp_path: Path
) -> None:
    """Both files have the same docs. Without sentence starts, the weights are others."""
    columns = tmp_path / "train.conll"
    succeed("convert", folder / "train.spacy", columns)
    docbin = tmp_path / "train.spacy"
    succeed("convert", columns, docbin)
    no_starts = ["--corpora.train.sentences", "false"]
    trainings = {"columns": [columns], "docbin": [docbin], "uncut": [docbin, *no_starts]}
    weights = {}
    for name, (train, *settings) in trainings.items():
        paths = ["--train", train, "--output", tmp_path / name]
        succeed("fit", folder / "config.cfg", *paths, *settings)
        ner: Any = spacy.load(tmp_path / name / "model-best").get_pipe("ner")
        weights[name] = linear_part(ner.model)[1].rows
    assert_array_equal(weights["columns"], weights["docbin"])
    assert (weights["columns"] != weights["uncut"]).any()


def test_fit_scores_docs_with_a_sentencizer_where_no_component_sets_sentence_starts(
    folder: Path, tmp_path: Path
) -> None:
    """A note has both scores. `check` has a warning for both corpora."""
    dev = folder / "dev.spacy"
    result = succeed("fit", folder / "config.cfg", "--output", tmp_path)
    nlp = spacy.load(tmp_path / "model-best")
    f = {}
    for has_starts in (False, True):
        if has_starts:
            nlp.add_pipe("sentencizer", before="ner")
        examples = make_reader(dev, sentences=False)(nlp)
        f[has_starts] = 100 * nlp.evaluate(list(examples))["ents_f"]
    note = (
        f"note: {dev}: F {f[False]:.2f} without sentence starts, as no component before ner sets "
        f"them, and {f[True]:.2f} with spaCy's sentencizer"
    )
    assert result.output.count(note) == 1
    messages = [finding.message for finding in check(folder / "config.cfg").findings]
    assert messages.count(NO_STARTS) == 2


def with_sentencizer(config: Config) -> None:
    """Add a component before that sets sentence starts."""
    config["nlp"]["pipeline"] = ["sentencizer", "ner"]
    config["components"]["sentencizer"] = {"factory": "sentencizer"}


def without_borders(config: Config) -> None:
    """Have the component ignore sentence starts."""
    config["components"]["ner"]["sentence_boundaries"] = False


def with_starts_of_files(config: Config) -> None:
    """Have the corpus reader keep the sentence starts of the annotation."""
    for reader in config["corpora"].values():
        reader["sentences"] = True


@pytest.mark.parametrize("change", [with_sentencizer, without_borders, with_starts_of_files])
def test_nothing_is_said_of_sentence_starts_that_are_seen_or_not_used(
    change: Callable[[Config], None], folder: Path, tmp_path: Path
) -> None:
    """Neither `fit` nor `check` speaks of them, as the component sees the sentence starts of the
    annotation or others, or ignores all."""
    config = load_config(folder / "config.cfg")
    change(config)
    config.to_disk(tmp_path / "config.cfg")
    result = succeed("fit", tmp_path / "config.cfg", "--output", tmp_path)
    assert "sentence starts" not in result.output
    findings = check(tmp_path / "config.cfg").findings
    assert NO_STARTS not in [finding.message for finding in findings]


def test_fit_refuses_file_tokens_without_a_development_corpus(folder: Path, tmp_path: Path) -> None:
    options = ["--lang", "xx", "--calibrate", "--file-tokens", "--output", tmp_path]
    result = run("fit", "--train", folder / "train.spacy", *options)
    assert result.exit_code == 1
    assert "fit: --file-tokens: expected a development corpus, got none" in result.output


def test_a_pipeline_saved_without_a_reading_is_watched_on_text(
    folder: Path, tmp_path: Path
) -> None:
    """It was calibrated on text. There are no warnings about docs."""
    nlp = spacy.load(folder / "text")
    ner: Any = nlp.get_pipe("ner")
    ner.reading = None
    ner.calibration_scores = replace(ner.calibration_scores, reading=None)
    nlp.to_disk(tmp_path / "old")

    old = spacy.load(tmp_path / "old")

    old(article(numpy.random.default_rng(0), old.vocab))
    assert old.get_pipe("ner").reading is None
    succeed("watch", tmp_path / "old", folder / "dev.spacy")


def test_columns_are_read_as_the_same_docs_in_spacys_format(tmp_path: Path) -> None:
    """Columns don't say where there are spaces, so their words are kept. They have sentence starts
    only with the option."""
    columns = "-DOCSTART- O\n\nKim B-PER\nleft O\n. O\n\nOslo. B-LOC\nSo O\n"
    (tmp_path / "a.conll").write_text(columns)
    DocBin(docs=read_docs(NLP, tmp_path / "a.conll")).to_disk(tmp_path / "a.spacy")

    for file_tokens in (False, True):
        seen_of_file = {}
        for name in ("a.conll", "a.spacy"):
            reader = make_reader(tmp_path / name)
            (eg,) = examples_to_measure(NLP, reader, file_tokens=file_tokens)
            seen_of_file[name] = seen_of(eg.predicted)
        assert seen_of_file["a.conll"] == seen_of_file["a.spacy"]
        words, starts = seen_of_file["a.conll"]
        assert words == ("Kim", "left", ".", "Oslo.", "So")
        # The second sentence begins at the token "Oslo.".
        assert starts[1:] == (False, False, file_tokens, False)


def test_sentence_starts_that_the_config_asks_for_are_kept(folder: Path) -> None:
    reader = make_reader(folder / "dev.spacy", sentences=True)
    (eg, *_) = examples_to_measure(NLP, reader)
    _, starts = seen_of(eg.predicted)
    assert any(starts[1:])


@pytest.mark.parametrize("file_tokens", [False, True], ids=["text", "file"])
def test_spacys_reader_can_be_read_in_both_ways(file_tokens: bool, folder: Path) -> None:
    dev = folder / "dev.spacy"
    examples = examples_to_measure(NLP, Corpus(dev), file_tokens=file_tokens)
    assert [seen_of(eg.predicted) for eg in examples] == expected_docs(dev, file_tokens)


def test_the_reading_of_examples_made_elsewhere_is_found_from_their_docs(folder: Path) -> None:
    nlp = spacy.load(folder / "model-best")
    docs = list(read_docs(nlp, folder / "dev.spacy"))
    as_applied = [Example(as_spacy_applies(doc), doc) for doc in docs]
    as_evaluated = [Example(as_spacy_evaluates(nlp, doc), doc) for doc in docs]
    of_file = Reading(file_tokens=True, tokenizer_tokens=False, sentence_starts=True)
    of_text = Reading(file_tokens=False, tokenizer_tokens=True, sentence_starts=False)
    # Docs that were read in both ways have other tokens than the tokenizer makes. Only some of them
    # have sentence starts.
    of_either = Reading(file_tokens=True, tokenizer_tokens=False, sentence_starts=None)

    for examples, expected in [
        (as_applied, of_file),
        (as_evaluated, of_text),
        (as_applied + as_evaluated, of_either),
    ]:
        # There are no components before.
        predicted = [eg.predicted for eg in examples]
        assert find_reading(nlp, "ner", examples, predicted) == expected
    result = guarantee(nlp, as_applied, miss=0.3)
    assert result.promise.reading is None  # only the saved guarantee has the reading
    assert nlp.meta["guarantee"]["ner"]["reading"] == asdict(of_file)


def entropies(nlp: Language, docs: list[Doc]) -> numpy.ndarray:
    """The scores of docs that `watch` compares: one number for each doc."""
    ner: Any = nlp.get_pipe("ner")
    posterior = ner.posterior(docs, preset=True)
    return measure_docs(posterior, read_presets(docs))[0]


@pytest.mark.slow
def test_random_halves_alarm_only_where_they_are_read_in_different_ways(folder: Path) -> None:
    """If both halves are read in the same way, at most 1 % of 300 random splits alarm, with a
    margin of two standard errors. If they are read in different ways, more than a third of them do
    in at least one of the two directions."""
    nlp = spacy.load(folder / "text")
    rng = numpy.random.default_rng(0)
    docs = [article(rng, nlp.vocab) for _ in range(200)]
    of_text = entropies(nlp, [as_spacy_evaluates(nlp, doc) for doc in docs])
    of_file = entropies(nlp, [as_spacy_applies(doc) for doc in docs])

    def alarms(calibration: numpy.ndarray, new: numpy.ndarray) -> Iterator[bool]:
        """Whether the test alarms for random halves of the docs, read in these two ways."""
        for seed in range(300):
            # A hundred docs are for calibration, the other hundred are new.
            order = numpy.random.default_rng(seed).permutation(len(docs))
            known = calibration[order[:100]].tolist()
            scores = {"scores": known, "digest": "0", "approximate": False}
            ordered = in_random_order(new[order[100:]].tolist(), seed)
            yield find_shift(scores, ordered, seed=seed).alarm is not None

    highest = 300 * (0.01 + 2 * numpy.sqrt(0.01 * 0.99 / 300))
    assert sum(alarms(of_text, of_text)) <= highest
    assert sum(alarms(of_file, of_file)) <= highest
    of_different_ways = [sum(alarms(of_file, of_text)), sum(alarms(of_text, of_file))]
    assert max(of_different_ways) > 100
