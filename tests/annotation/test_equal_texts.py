"""Docs with equal texts go to one fold wherever docs are divided, and commands say which texts
recur."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
import srsly
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example

from spacy_costner.annotation.equal_texts import assign_folds, number_texts
from spacy_costner.annotation.settings import Annotation
from spacy_costner.pipeline.scorers import DocCounts
from spacy_costner.tags import Tags
from spacy_costner.training.folds import (
    N_LINEAR_FOLDS,
    divide_by_words,
    divide_for_first_pass,
)
from spacy_costner.training.known_text import Recurring, passage_ids
from spacy_costner.workflows.calibration.guarantees import guarantee
from spacy_costner.workflows.calibration.temperature import calibrate
from spacy_costner.workflows.calibration.tuning import tune
from spacy_costner.workflows.config.checks import check
from spacy_costner.workflows.config.loading import read_config
from spacy_costner.workflows.evaluation.recurrence import (
    KnownText,
    check_new,
    note_copies,
    note_known,
    note_recurrence,
)
from spacy_costner.workflows.fitting.comparison import compare
from spacy_costner.workflows.fitting.fitting import fit
from spacy_costner.workflows.fitting.variant_scores import Finished, summarise
from spacy_costner.workflows.noisy_labels.auditing import audit, cross_fit
from spacy_costner.workflows.noisy_labels.distillation import distill
from spacy_costner.workflows.reports.reporting import report
from spacy_costner.workflows.sampling.drawing import draw
from spacy_costner.workflows.sampling.estimation import estimate

from ..support.commands import run
from ..support.linear import SPARSE
from ..support.vocabs import blank_vocab

CONFIGS = Path(__file__).parents[2] / "configs"
FEW_EPOCHS = {"training.max_epochs": 1, "nlp.lang": "xx"}
NAMES = ["Ana", "Bo", "Cleo", "Dan", "Eve"]
PLACES = ["Oslo", "Rome", "Lima", "Kyiv"]


def doc_of(i: int) -> Doc:
    """Doc number i, such as "Ana saw Oslo in 7 .": six tokens, fewer than a long sentence has."""
    words = [NAMES[i % 5], "saw", PLACES[i % 4], "in", str(i), "."]
    ents = ["B-PER", "O", "B-LOC", "O", "O", "O"]
    return Doc(blank_vocab(), words=words, ents=ents)


def docs_of(numbers: Sequence[int]) -> list[Doc]:
    """The docs with these numbers."""
    return [doc_of(i) for i in numbers]


def examples_of(docs: Sequence[Doc]) -> list[Example]:
    """The docs, and docs of the same words without annotation to predict."""
    return [Example(Doc(doc.vocab, words=[t.text for t in doc]), doc) for doc in docs]


def save_docs(path: Path, numbers: Sequence[int]) -> Path:
    """Save the docs with these numbers to a .spacy file."""
    DocBin(docs=docs_of(numbers)).to_disk(path)
    return path


def texts_by_fold(fold_of_doc: Sequence[int], docs: Sequence[Doc]) -> list[set[str]]:
    """The texts of each fold."""
    folds: dict[int, set[str]] = {}
    for fold, doc in zip(fold_of_doc, docs):
        folds.setdefault(int(fold), set()).add(doc.text.lower())
    return [folds[fold] for fold in sorted(folds)]


# Folds


def test_equal_texts_have_the_same_number() -> None:
    """Capitals, punctuation and tokens don't matter."""
    vocab = blank_vocab()
    texts = [["Ana", "saw", "Oslo"], ["Bo"], ["ANA", "saw", "Oslo", "!"], ["Ana", "sawOslo"]]
    docs = [Doc(vocab, words=words) for words in texts]
    assert number_texts(docs).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("order", [[*range(12), *range(12)], [i // 3 for i in range(36)]])
def test_copies_are_in_one_fold_and_folds_have_as_many_texts(
    order: list[int], seed: int | None
) -> None:
    """A corpus of two copies, or of three next to each other, is divided as one."""
    docs = docs_of(order)
    folds = texts_by_fold(assign_folds(number_texts(docs), 4, seed), docs)
    once = docs_of(range(12))
    assert folds == texts_by_fold(assign_folds(numpy.arange(12), 4, seed), once)
    assert [len(texts) for texts in folds] == [3, 3, 3, 3]


def test_there_are_no_more_folds_than_texts() -> None:
    with pytest.raises(ValueError, match="got 4 folds of 3 texts"):
        assign_folds(number_texts(docs_of([0, 1, 2] * 5)), 4)


def linear_ner() -> Any:
    """A linear component that isn't trained."""
    return spacy.blank("xx").add_pipe("cost_sensitive_ner", config={"model": SPARSE})


@pytest.mark.parametrize("n_copies", [1, 2, 3])
def test_the_first_pass_divides_copies_as_one(n_copies: int) -> None:
    """Both folds have half of the texts, with all copies of them."""
    examples = examples_of(docs_of([*range(40)] * n_copies))
    objective = linear_ner().objective
    folds, fold_of_text = divide_for_first_pass(objective, Tags(["LOC", "PER"]), examples)

    texts: list[list[str]] = []
    for batches in folds:
        texts.append([eg.reference.text for batch in batches for eg in batch.examples])
    assert [len(texts_of_fold) for texts_of_fold in texts] == [20 * n_copies] * 2
    assert not set(texts[0]) & set(texts[1])
    assert len(fold_of_text) == 40


@pytest.mark.parametrize("n_copies", [1, 2, 3])
def test_the_linear_part_divides_copies_as_one(n_copies: int) -> None:
    examples = examples_of(docs_of([*range(40)] * n_copies))
    folds, _ = divide_by_words(examples, Annotation())
    assert [len(examples) for examples in folds] == [40 // N_LINEAR_FOLDS * n_copies] * 4


def test_audit_holds_copies_out_together() -> None:
    """So no copy of a held-out doc is a training doc."""
    config = read_config(CONFIGS / "sparse.cfg", FEW_EPOCHS)
    docs = docs_of([*range(9), *range(9)])
    held_out = [set(fold.docs.tolist()) for fold in cross_fit(config, docs, n_folds=3)]
    assert held_out == [{0, 1, 2, 9, 10, 11}, {3, 4, 5, 12, 13, 14}, {6, 7, 8, 15, 16, 17}]

    notes = audit(config, docs, n_folds=3).notes
    assert notes == [
        "the corpus: 9 of 9 texts (100 %) recur in it: where docs are divided, equal texts stay "
        "together"
    ]


GERMAN = """Anna/PER Schmidt/PER arbeitet bei Siemens/ORG .
Die Deutsche/ORG Bank/ORG sitzt in Frankfurt/LOC .
Peter/PER Müller/PER wohnt in Hamburg/LOC .
Bayern/ORG spielt gegen Werder/ORG Bremen/ORG .
Angela/PER Merkel/PER besuchte gestern Paris/LOC .
Volkswagen/ORG baut in Leipzig/LOC .
Der Zug nach Köln/LOC hat Verspätung .
Thomas/PER Mann/PER lebte in Lübeck/LOC .
Bosch/ORG sucht Leute in Stuttgart/LOC .
Maria/PER Weber/PER studiert in Heidelberg/LOC .
Das Wetter in Berlin/LOC bleibt schön .
Die Firma Henkel/ORG wächst .
Jürgen/PER Klopp/PER trainierte Borussia/ORG .
Morgen fährt Julia/PER nach Dresden/LOC .
SAP/ORG veröffentlicht Zahlen am Montag .
Günter/PER Grass/PER kam aus Danzig/LOC .
Der Flughafen München/LOC wird erweitert .
Lufthansa/ORG streicht Flüge nach Rom/LOC .
Klaus/PER Fischer/PER arbeitet bei Bosch/ORG .
Adidas/ORG kommt aus Herzogenaurach/LOC ."""
"""Twenty sentences. The words of entities have a label."""


def save_german(path: Path, n_copies: int) -> Path:
    """Save the sentences as columns, several times one after another."""
    lines: list[str] = []
    for sentence in GERMAN.split("\n"):
        label_before = ""
        for token in sentence.split(" "):
            word, _, label = token.partition("/")
            prefix = "I" if label == label_before else "B"
            lines.append(f"{word} {prefix}-{label}" if label else f"{word} O")
            label_before = label
        lines.append("")
    path.write_text("\n".join([*lines, ""] * n_copies), encoding="utf8")
    return path


@pytest.mark.slow
def test_fit_measures_copies_as_one(tmp_path: Path) -> None:
    """F of held-out folds and the temperature are nearly the same as with one copy. F was 100, with
    a third of the temperature."""
    results = []
    for n_copies in (1, 2):
        train_path = save_german(tmp_path / f"{n_copies}.conll", n_copies)
        output = tmp_path / f"output{n_copies}"
        results.append(fit(None, output, lang="xx", train_path=train_path, calibrate=True))
    once, twice = results

    assert once.held_out is not None and twice.held_out is not None
    assert once.calibration is not None and twice.calibration is not None
    assert once.held_out["ents_f"] < 0.9
    assert twice.held_out["ents_f"] == pytest.approx(once.held_out["ents_f"], abs=0.05)
    temperatures = [result.calibration.temperature.overall for result in (once, twice)]
    assert temperatures[1] == pytest.approx(temperatures[0], rel=0.2)
    assert once.notes == []
    assert [note for note in twice.notes if "20 of 20 texts (100 %) recur in it" in note]


def test_folds_of_tune_have_all_copies_of_a_text(
    unsure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten docs, three times, are in five folds: 0 0 1 1 2 2 3 3 4 4, three times."""
    folds_of_docs: list[list[int]] = []

    def remember_folds(values: Any, counts: Any, fold_of_doc: Any, beta: float) -> tuple[int, None]:
        """Instead of `choose_by_folds`: choose the first value."""
        folds_of_docs.append(fold_of_doc.tolist())
        return 0, None

    monkeypatch.setattr(
        "spacy_costner.workflows.calibration.tuning.choose_by_folds", remember_folds
    )
    nlp = spacy.load(unsure)
    docs = [nlp.make_doc(f"I like London {i}") for i in range(10)] * 3
    for doc in docs:
        doc.set_ents([doc.char_span(7, 13, label="LOC")])
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in docs]
    tune(nlp, examples)
    assert folds_of_docs == [[i // 2 for i in range(10)] * 3]


# What recurs in the training corpus


def test_passages_are_long_sentences_or_whole_short_docs() -> None:
    """A long sentence has at least eight tokens. The hash doesn't depend on tokens and capitals."""
    nlp = spacy.blank("xx")
    long = "Ana saw Oslo and Bo saw Rome in May."
    assert len(passage_ids(nlp.make_doc(f"{long} Too short."))) == 1
    assert len(passage_ids(nlp.make_doc(f"{long}\n{long}"))) == 2
    short = passage_ids(nlp.make_doc("Too short. It is."))
    assert len(short) == 1
    assert passage_ids(nlp.make_doc("TOO SHORT - it is")) == short
    assert passage_ids(nlp.make_doc("- .")) == []
    assert passage_ids(nlp.make_doc("")) == []


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], Recurring(0, 0)),
        ([1] * 8, Recurring(0, 8)),
        ([1] * 8 + [4], Recurring(4, 12)),
        ([2] * 8, Recurring(0, 8)),
        ([2] * 8 + [8], Recurring(4, 12)),
        ([3] * 8 + [1], Recurring(0, 9)),
    ],
)
def test_a_corpus_of_copies_recurs_as_one(times: list[int], expected: Recurring) -> None:
    """Passages that occur twice, where nearly all do, don't recur."""
    assert Recurring.from_counts(times) == expected


def known_of(numbers: Sequence[int]) -> KnownText:
    """The text of a training corpus with these docs."""
    return KnownText.from_docs(docs_of(numbers))


@pytest.mark.parametrize("n_copies", [1, 2, 3])
@pytest.mark.parametrize(
    ("n_shared", "is_noted"), [(0, False), (1, False), (3, False), (12, True), (40, True)]
)
def test_docs_that_are_in_the_training_corpus_are_noted(
    n_shared: int, is_noted: bool, n_copies: int
) -> None:
    """Of 100 docs of a training corpus, 10 are the same dateline. Of 40 development docs, 4 are,
    and some others may be training docs. Copies of the training corpus change nothing."""
    dateline = [0] * 10
    known = known_of([*dateline, *range(1, 91)] * n_copies)
    dev = docs_of([*[0] * 4, *range(1, 1 + n_shared), *range(500, 536 - n_shared)])
    notes = [note for note in note_recurrence(known, dev, "dev") if "training" in note]
    assert bool(notes) == is_noted


@pytest.mark.parametrize("n_docs", [5, 20, 1000])
def test_training_docs_are_noted_however_few_they_are(n_docs: int) -> None:
    notes = note_recurrence(known_of(range(n_docs)), docs_of(range(n_docs)), "dev.conll")
    assert notes == [
        f"dev.conll: {n_docs:,} of {n_docs:,} texts (100 %) recur in the training corpus: scores "
        "on them are too high"
    ]


def test_what_recurs_often_in_training_is_not_refused() -> None:
    """Messages such as "ok": half of the texts of the source are one of four."""
    known = known_of([i % 4 if i % 2 else i for i in range(200)])
    check_new(known, docs_of([i % 4 if i % 2 else i for i in range(300, 400)]), "dev")
    with pytest.raises(ValueError, match="got dev, where 100 of 100 texts"):
        check_new(known, docs_of([i % 4 if i % 2 else i for i in range(100)]), "dev")


CORPORA = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.slow
@pytest.mark.skipif(not CORPORA.exists(), reason="needs the corpora of the papers")
@pytest.mark.parametrize(
    ("train", "dev_names", "encoding"),
    [
        ("conll2002_es/esp.train", ["conll2002_es/esp.testa", "conll2002_es/esp.testb"], "latin1"),
        ("conll2000/train.txt", ["conll2000/test.txt"], "utf8"),
        ("genia/genia.iob2", [], "utf8"),
    ],
)
def test_nothing_is_noted_on_corpora_of_papers(
    train: str, dev_names: list[str], encoding: str
) -> None:
    """All of the corpus, or 100 or 600 sentences from its begin, end and middle. In Spanish news
    articles are printed twice: 16 % of the development corpus is in the training corpus, as 18 % of
    the training corpus is in it elsewhere. GENIA is compared with its last tenth."""
    vocab = blank_vocab()

    def read(name: str) -> list[Doc]:
        """The sentences of a corpus as docs."""
        text = (CORPORA / name).read_text(encoding=encoding)
        sentences = [block.splitlines() for block in text.split("\n\n") if block.strip()]
        return [Doc(vocab, words=[line.split()[0] for line in lines]) for lines in sentences]

    docs = read(train)
    dev_corpora = [read(name) for name in dev_names]
    if not dev_corpora:
        tenth = len(docs) // 10
        docs, dev_corpora = docs[:-tenth], [docs[-tenth:]]
    parts = [docs]
    for n_docs in (100, 600):
        for begin in (0, len(docs) // 2 - n_docs, len(docs) - n_docs):
            parts.append(docs[begin : begin + n_docs])
    for dev_docs in dev_corpora:
        assert note_copies(dev_docs, "dev") == []
    for part in parts:
        known = KnownText.from_docs(part)
        for dev_docs in dev_corpora:
            assert note_known(known, dev_docs, "dev") == []
        assert len(note_recurrence(known, part, "train")) == 1


# Commands

KNOWN = "20 of 20 texts (100 %) recur in the training corpus: scores on them are too high"
OWN = "20 of 20 texts (100 %) recur in it: scores on them are too high"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that was trained on the docs 0 to 19, which are in the file train.spacy of its
    folder. Another file, copy.spacy, has the same docs, and new.spacy has the docs 100 to 139."""
    folder = tmp_path_factory.mktemp("trained")
    train_path = save_docs(folder / "train.spacy", range(20))
    save_docs(folder / "copy.spacy", range(20))
    save_docs(folder / "new.spacy", range(100, 140))
    fit(None, folder / "output", lang="xx", train_path=train_path)
    return folder


def load(trained: Path) -> Language:
    """The trained pipeline."""
    return spacy.load(trained / "output" / "model-best")


@pytest.mark.parametrize("command", [calibrate, tune])
def test_measuring_on_training_docs_is_noted(trained: Path, command: Any) -> None:
    """Equal paths are said first."""
    docs = examples_of(docs_of(range(20)))
    path = str(trained / "train.spacy")
    assert command(load(trained), docs, source=path).notes[0] == (
        f"{path} is the training corpus: {OWN}"
    )
    assert command(load(trained), docs, source="copy").notes[0] == f"copy: {KNOWN}"


def test_a_relative_path_and_a_link_are_the_same_path(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link.spacy"
    link.symlink_to(trained / "train.spacy")
    monkeypatch.chdir(trained / "output")
    docs = examples_of(docs_of(range(20)))
    for path in (str(link), "../train.spacy"):
        notes = report(load(trained), docs, corpus=path).notes
        assert notes == [f"{path} is the training corpus: {OWN}"]


def test_the_same_path_of_other_docs_is_not_noted(trained: Path) -> None:
    """The file was replaced, or a relative path is of another folder."""
    docs = examples_of(docs_of(range(100, 140)))
    path = str(trained / "train.spacy")
    assert not any("training" in note for note in calibrate(load(trained), docs, source=path).notes)


def test_a_promise_on_training_docs_is_refused(trained: Path) -> None:
    with pytest.raises(ValueError, match=r"20 of 20 texts \(100 %\) recur in the training corpus"):
        guarantee(load(trained), examples_of(docs_of(range(20))), miss=0.2)


def test_a_promise_counts_copies_once(trained: Path) -> None:
    new_docs = docs_of(range(100, 140))
    once = guarantee(load(trained), examples_of(new_docs), miss=0.2)
    twice = guarantee(load(trained), examples_of(new_docs * 2), miss=0.2)

    assert twice.promise.docs == once.promise.docs == 40
    assert twice.promise.groups == once.promise.groups
    assert twice.promise.not_counted["copies of other docs"] == 40
    assert "calibration docs: 40 of 40 texts (100 %) recur in it" in twice.notes[0]
    assert once.notes == []


def test_estimates_on_training_docs_are_noted(trained: Path) -> None:
    nlp = load(trained)
    texts = docs_of(range(20))
    drawn = []
    for doc, drawing in draw(nlp, [nlp.make_doc(doc.text) for doc in texts], n=40):
        gold = next(other for other in texts if other.text.split() == doc.text.split())
        gold = gold.copy()
        gold.user_data.update(drawing.to_dict())
        drawn.append(gold)
    result = estimate(nlp, drawn, [nlp.make_doc(doc.text) for doc in texts])
    (note,) = result.notes
    assert "texts (100 %) recur in the training corpus: scores on them are too high" in note


@pytest.mark.parametrize("name", ["train", "copy"])
def test_check_and_compare_and_distill_note_training_docs(
    trained: Path, tmp_path: Path, name: str
) -> None:
    """Each says the same sentence."""
    dev_path = trained / f"{name}.spacy"
    paths = {"paths.train": str(trained / "train.spacy"), "paths.dev": str(dev_path)}
    expected = f"{dev_path}: {KNOWN}"
    if name == "train":
        expected = f"{dev_path} is the training corpus: {OWN}"

    findings = check(CONFIGS / "sparse.cfg", overrides={**FEW_EPOCHS, **paths}).findings
    (finding,) = [finding for finding in findings if "recur" in finding.message]
    assert finding.message == expected
    assert len(finding.places) == 20

    (row,) = compare(
        CONFIGS / "sparse.cfg",
        ["Sequential"],
        dev_path,
        tmp_path / "compared",
        overrides={**FEW_EPOCHS, **paths},
    )
    assert row.notes == [expected]

    answers = tmp_path / "answers.jsonl"
    spans = [{"start": 0, "end": 3, "label": "PER"}]
    srsly.write_jsonl(answers, [{"text": "Ana saw Ulm in May.", "spans": spans}])
    config = read_config(CONFIGS / "sparse.cfg", {**FEW_EPOCHS, **paths})
    distilled = distill(
        [str(answers)], config, [], tmp_path / "student", gold_path=trained / "train.spacy"
    )
    assert list(distilled.notes) == [f"{dev_path}: {KNOWN}"]


def test_compare_draws_copies_together() -> None:
    """With a test corpus of copies, the differences and their p are those of one copy."""
    differences = []
    for n_copies in (1, 2):
        units = [*range(12)] * n_copies
        runs = []
        for loss, n_correct in (("a", [1, 0, 1, 1, 0, 1]), ("b", [1, 1, 0, 1, 1, 1])):
            tp = numpy.asarray(n_correct * 2 * n_copies)
            ones = numpy.ones_like(tp)
            counts = DocCounts(tp=tp, fp=1 - tp, fn=1 - tp, cost=1.0 - tp, tokens=ones)
            runs.append(Finished(loss, 0, 1.0, counts, units=units))
        differences.append(summarise(runs, n_samples=100)[1].differences)
    assert differences[0] == differences[1]


def test_compare_notes_copies(trained: Path, tmp_path: Path) -> None:
    test_path = save_docs(tmp_path / "test.spacy", [*range(100, 112)] * 2)
    (row,) = compare(
        CONFIGS / "sparse.cfg",
        ["Sequential"],
        test_path,
        tmp_path / "compared",
        overrides={**FEW_EPOCHS, "paths.train": str(trained / "train.spacy")},
    )
    assert "12 of 12 texts (100 %) recur in it" in row.notes[-1]
    saved = srsly.read_json(tmp_path / "compared" / "Sequential" / "seed-0" / "counts.json")
    assert [*range(12)] * 2 in saved["value"]  # the units


def write_columns(folder: Path) -> Path:
    """The docs 0 to 19 as columns."""
    blocks = []
    for doc in docs_of(range(20)):
        blocks.append("\n".join(f"{t.text} {t.ent_iob_}-{t.ent_type_}" for t in doc))
    path = folder / "train.conll"
    path.write_text("\n\n".join(blocks).replace("O-", "O") + "\n", encoding="utf8")
    return path


def write_jsonl(folder: Path) -> Path:
    """The docs 0 to 19 as JSONL."""
    path = folder / "train.jsonl"
    tasks = []
    for doc in docs_of(range(20)):
        spans = [{"start": e.start_char, "end": e.end_char, "label": e.label_} for e in doc.ents]
        tasks.append({"text": doc.text, "spans": spans})
    srsly.write_jsonl(path, tasks)
    return path


def write_brat(folder: Path) -> Path:
    """The docs 0 to 19 as a folder of brat's files."""
    path = folder / "train"
    path.mkdir()
    for i, doc in enumerate(docs_of(range(20))):
        lines = []
        for j, ent in enumerate(doc.ents):
            lines.append(f"T{j}\t{ent.label_} {ent.start_char} {ent.end_char}\t{ent.text}\n")
        (path / f"{i}.txt").write_text(doc.text, encoding="utf8")
        (path / f"{i}.ann").write_text("".join(lines), encoding="utf8")
    return path


def write_spacy(folder: Path) -> Path:
    """The docs 0 to 19 as a .spacy file."""
    return save_docs(folder / "train.spacy", range(20))


FORMATS = [write_spacy, write_columns, write_jsonl, write_brat]


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize("is_same_path", [True, False])
def test_fit_notes_training_docs_in_all_formats(
    tmp_path: Path, write: Any, is_same_path: bool
) -> None:
    train_path = write(tmp_path)
    dev_path = train_path
    expected = f"{dev_path} is the training corpus: {OWN}"
    if not is_same_path:
        (tmp_path / "dev").mkdir()
        dev_path = write(tmp_path / "dev")
        expected = f"{dev_path}: {KNOWN}"
    fitted = fit(None, tmp_path / "output", lang="xx", train_path=train_path, dev_path=dev_path)
    assert fitted.notes == [expected]
    assert f"note: {expected}" in fitted.as_text()


def test_the_commands_print_the_notes(trained: Path, tmp_path: Path) -> None:
    model = trained / "output" / "model-best"
    copy = trained / "copy.spacy"
    for command in ("calibrate", "tune"):
        done = run(command, model, copy, "--output", tmp_path / command)
        assert f"note: {copy}: {KNOWN}" in done.output
    refused = run("guarantee", model, copy, "--miss", 0.1, "--output", tmp_path / "guaranteed")
    assert refused.exit_code == 1
    assert "20 of 20 texts (100 %) recur in the training corpus" in refused.output
    audited = run("audit", CONFIGS / "sparse.cfg", copy, "--nlp.lang", "xx", "--json")
    assert json.loads(audited.stdout)["notes"] == []
