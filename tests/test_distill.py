"""`costner distill`: from the answers of teachers to a student."""

import json
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.util import load_config
from thinc.api import Config, fix_random_seed

from spacy_costner.analysis import distillation as module
from spacy_costner.analysis.distillation import (
    Distilled,
    ask_teachers,
    check_dev,
    distill,
    entities_of,
    leave_out_uncertain,
    read_scores,
)
from spacy_costner.readers import read_texts
from spacy_costner.readers.sentences import copy_tokens
from spacy_costner.tags import Tags
from spacy_costner.training.soft_targets import KEY
from spacy_costner.training.targets import WEIGHT

from .support.commands import run
from .support.config import TOK2VEC
from .support.experiment import make_corpus
from .support.pipelines import TEXTS, pipeline, train

ROOT = Path(__file__).parent.parent
LINES = [text for text in TEXTS if text] * 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher, another, text, and a student's config."""
    path = tmp_path_factory.mktemp("distill")
    for name, settings in (("teacher", {}), ("other", {"scheme": "IOB2"})):
        fix_random_seed(0)
        nlp = pipeline(**settings)
        train(nlp)
        nlp.to_disk(path / name)
    (path / "raw.txt").write_text("\n\n".join(LINES), encoding="utf8")
    nlp = spacy.load(path / "teacher")
    DocBin(docs=list(nlp.pipe(LINES))).to_disk(path / "dev.spacy")
    config = load_config(ROOT / "configs" / "sparse.cfg", interpolate=False)
    config["paths"]["dev"] = str(path / "dev.spacy")
    config["training"]["max_epochs"] = 20
    config.to_disk(path / "student.cfg")
    return path


@pytest.fixture
def config(folder: Path) -> Config:
    return load_config(folder / "student.cfg", interpolate=False)


def run_distill(folder: Path, output: Path, config: Config, **options: Any) -> Distilled:
    raw = [folder / "raw.txt"]
    return distill([str(folder / "teacher")], config, raw, output, **options)


def train_docs(output: Path, name: str = "000000") -> list[Doc]:
    vocab = spacy.blank("xx").vocab
    return list(DocBin().from_disk(output / "train" / f"{name}.spacy").get_docs(vocab))


@pytest.mark.parametrize("soft", [False, True])
def test_a_student_learns_from_text(
    folder: Path, config: Config, tmp_path: Path, soft: bool
) -> None:
    result = run_distill(folder, tmp_path, config, soft=soft)
    teacher, student = result.rows
    assert teacher.f_score == 1.0 and student.f_score > 0.95
    assert student.name == "student" and student.tokens_per_second > 0
    assert 0 < student.megabytes < 1
    assert (result.n_docs, result.n_entities) == (15, 20)
    nlp = spacy.load(result.path)
    assert nlp.get_pipe("ner").labels == ("LOC", "PERSON", "sports-team")
    found = [(ent.text, ent.label_) for ent in nlp(TEXTS[1]).ents]
    assert found == [("London", "LOC"), ("Berlin", "LOC")]
    assert all((KEY in doc.user_data) is soft for doc in train_docs(tmp_path))


def test_answers_are_those_of_the_teacher(folder: Path) -> None:
    """Entities, confidences and soft targets."""
    path = folder / "teacher"
    nlp, expected = module.load_teacher(path), spacy.load(path)(TEXTS[1])
    (doc,) = ask_teachers([nlp], [nlp.make_doc(TEXTS[1])], soft=True)
    assert entities_of(doc) == entities_of(expected)
    assert {*entities_of(doc)} <= {*read_scores(doc)}
    assert all(0 < score <= 1 for score in read_scores(doc).values())
    ner, saved = nlp.get_pipe("ner"), doc.user_data[KEY]
    finest = Tags(saved["labels"]).finest
    marginals = saved["emissions"] @ (finest.counts_as(ner.tags)[:, None] == range(len(ner.tags)))
    numpy.testing.assert_allclose(marginals, ner.posterior([doc]).marginals, atol=1e-4)


def test_a_teacher_that_merges_tokens_is_refused(folder: Path) -> None:
    nlp = module.load_teacher(folder / "teacher")
    nlp.add_pipe("merge_entities")
    with pytest.raises(ValueError, match=r"teacher: expected .* the 5 tokens of 'Who is .* got 4"):
        ask_teachers([nlp], [nlp.make_doc(TEXTS[0])])


def test_texts_lose_their_annotation(tmp_path: Path) -> None:
    """But tokens, sentences, and that spaces are not known."""
    nlp, words = spacy.blank("en"), ["Ana", "sleeps", ".", "She", "snores", "."]
    doc = Doc(nlp.vocab, words=words, sent_starts=[1, 0, 0, 1, 0, 0], ents=["B-PER", *"OOOOO"])
    DocBin(docs=[doc, Doc(nlp.vocab)]).to_disk(tmp_path / "a.spacy")
    (read,) = read_texts(nlp, tmp_path / "a.spacy")
    for copy in (read, copy_tokens(read, spacy.blank("xx").vocab, sentences=True)):
        assert not copy.ents and copy.has_unknown_spaces
        assert [sent.text for sent in copy.sents] == ["Ana sleeps .", "She snores ."]
    plain = copy_tokens(read)
    assert not plain.has_unknown_spaces and not plain.has_annotation("SENT_START")
    (tmp_path / "lines.txt").write_text("Ana can't\n\n  Bo \n")
    (tmp_path / "spans.jsonl").write_text('{"text": "In Rome", "spans": [[3, 7, "LOC"]]}\n')
    (tmp_path / "tags.conll").write_text("Rome B-LOC\nwaits O\n")
    (tmp_path / "a.spacy").unlink()
    docs = list(read_texts(nlp, tmp_path))
    assert [doc.text.strip() for doc in docs] == ["Ana can't", "Bo", "In Rome", "Rome waits"]
    assert docs[0][2].norm_ == "not"
    assert not any(doc.has_annotation("ENT_IOB") for doc in docs)


# Answers on disk


def test_answers_are_kept(
    folder: Path, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed goes on; another teacher or text has other answers."""
    monkeypatch.setattr(module, "DOCS_PER_FILE", 4)
    config["training"]["max_epochs"] = 1
    (tmp_path / "train").mkdir()
    DocBin().to_disk(tmp_path / "train" / "999999.spacy")  # of an older run
    asked: list[int] = []

    def dies(teachers: Any, docs: Any, **options: Any) -> list[Doc]:
        asked.append(len(docs))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return ask_teachers(teachers, docs, **options)

    monkeypatch.setattr(module, "ask_teachers", dies)
    with pytest.raises(KeyboardInterrupt):
        run_distill(folder, tmp_path, config)
    (kept,) = tmp_path.glob("answers-*")
    assert [path.name for path in sorted(kept.iterdir())] == ["000000.spacy", "000001.spacy"]
    run_distill(folder, tmp_path, config)
    assert asked == [4, 4, 4, 4, 3]
    run_distill(folder, tmp_path, config, min_confidence=0.2)
    assert len(asked) == 5
    distill([str(folder / "other")], config, [folder / "raw.txt"], tmp_path)
    assert len(asked) == 9 and len([*tmp_path.glob("answers-*")]) == 2
    assert len([*(tmp_path / "train").iterdir()]) == 4
    assert sum(len(train_docs(tmp_path, f"{i:06}")) for i in range(4)) == 15


# Confidence


def doc_with(scores: dict[Any, float], ents: Any = ()) -> Doc:
    doc = Doc(spacy.blank("xx").vocab, words=["Ana", "saw", "New", "York", "today"])
    doc.set_ents([Span(doc, *entity) for entity in ents])
    module.write_scores(doc, scores)
    return doc


def test_uncertain_entities_are_missing() -> None:
    new_york = (2, 4, "LOC")
    scores = {(0, 1, "PER"): 0.9, new_york: 0.6, (4, 5, "DATE"): 0.3}
    doc = doc_with(scores, [(0, 1, "PER"), new_york])
    assert leave_out_uncertain(doc, 0.5) == (2, 0)
    assert [token.ent_iob for token in doc] == [3, 2, 3, 1, 2]
    assert leave_out_uncertain(doc, 0.65) == (1, 1)
    assert [token.ent_iob for token in doc] == [3, 2, 0, 0, 2]
    doc = doc_with(scores, [(0, 1, "PER"), new_york])
    assert leave_out_uncertain(doc, 0.75) == (1, 1)
    assert [token.ent_iob for token in doc] == [3, 2, 0, 0, 0]  # 0.3 is above 1 - 0.75
    doc = doc_with({}, [])
    doc.set_ents([], missing=[doc[2:4]])
    leave_out_uncertain(doc, 0.0)
    assert [token.ent_iob for token in doc] == [2, 2, 0, 0, 2]


def test_several_teachers_are_averaged() -> None:
    other = doc_with({(2, 4, "LOC"): 0.8, (0, 1, "PER"): 0.4}, [(2, 4, "LOC")])
    plain = doc_with({}, [])
    plain.set_ents([Span(plain, 2, 4, label="LOC"), Span(plain, 0, 1, label="ORG")])
    scores = module.mean_scores([other, plain])
    assert scores == {(2, 4, "LOC"): pytest.approx(0.9), (0, 1, "PER"): 0.2, (0, 1, "ORG"): 0.5}
    assert module.majority(scores) == [(2, 4, "LOC")]


def test_two_teachers(folder: Path, config: Config, tmp_path: Path) -> None:
    names = [str(folder / "teacher"), str(folder / "other")]
    result = distill(names, config, [folder / "raw.txt"], tmp_path, soft=True)
    assert [row.name for row in result.rows] == [*names, "all teachers", "student"]
    one, other, both, student = result.rows
    assert both.f_score > 0.95 and student.f_score > 0.95
    assert both.megabytes == one.megabytes + other.megabytes
    assert both.tokens_per_second < min(one.tokens_per_second, other.tokens_per_second)
    nlp = spacy.load(names[0])
    nlp.get_pipe("ner").add_label("MISC")
    nlp.to_disk(tmp_path / "more")
    names[1] = str(tmp_path / "more")
    with pytest.raises(ValueError, match="soft: expected teachers with the same labels, got"):
        distill(names, config, [folder / "raw.txt"], tmp_path, soft=True)


# Other teachers and students


def test_answers_of_anything(tmp_path: Path) -> None:
    path, nlp = tmp_path / "a.jsonl", spacy.blank("xx")
    for score in (0.4, "high", 1.5, True, -0.1):
        spans = [{"start": 0, "end": 3, "label": "PER", "score": score}]
        spans.append({"start": 8, "end": 16, "label": "LOC"})
        path.write_text(json.dumps({"text": "Ana saw New York today", "spans": spans}), "utf8")
        if score != 0.4:
            with pytest.raises(ValueError, match=r"a.jsonl, line 1: score: expected a number fr"):
                list(module.read_answers(nlp, path))
            continue
        (doc,) = module.read_answers(nlp, path)
        assert read_scores(doc) == {(0, 1, "PER"): 0.4, (2, 4, "LOC"): 1.0}
        assert leave_out_uncertain(doc, 0.5) == (1, 1)
        assert [token.ent_iob for token in doc] == [0, 2, 3, 1, 2]


def test_a_file_as_teacher(folder: Path, config: Config, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    doc = spacy.load(folder / "teacher")(TEXTS[1])
    spans = [[ent.start_char, ent.end_char, ent.label_] for ent in doc.ents]
    path.write_text((json.dumps({"text": TEXTS[1], "spans": spans}) + "\n") * 3, encoding="utf8")
    result = distill([str(path)], config, [], tmp_path / "output")
    assert (result.n_docs, result.n_entities) == (3, 6)
    assert [row.name for row in result.rows] == ["student"]
    assert spacy.load(result.path)(TEXTS[1]).ents


def test_gold_has_its_weight(folder: Path, config: Config, tmp_path: Path) -> None:
    gold = tmp_path / "gold.spacy"
    make_corpus(gold)
    config["training"]["max_epochs"] = 1
    run_distill(folder, tmp_path, config, gold_path=gold, gold_weight=2.5)
    assert [doc.user_data[WEIGHT] for doc in train_docs(tmp_path, "gold")] == [2.5] * 4
    assert not any(WEIGHT in doc.user_data for doc in train_docs(tmp_path))
    labels = spacy.load(tmp_path / "model-best").get_pipe("ner").labels
    assert {"city", "country", "LOC"} <= {*labels}


def test_a_student_that_is_not_linear(
    folder: Path, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = {"@architectures": "spacy_costner.LinearChainCRF.v1", "tok2vec": TOK2VEC}
    config["components"]["ner"]["model"] = model
    config["training"].update(max_epochs=0, max_steps=4)
    result = run_distill(folder, tmp_path, config, soft=True)
    assert result.path == tmp_path / "model-best" and not capsys.readouterr().out
    assert result.rows[-1].name == "student"
    assert spacy.load(result.path).get_pipe("ner").labels == ("LOC", "PERSON", "sports-team")


def test_one_student_is_built(
    folder: Path, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config is checked without a pipeline. Others are loaded from disk."""
    built: list[str] = []
    make_component = Language.create_pipe

    def create_pipe(nlp: Language, factory_name: str, *args: Any, **options: Any) -> Any:
        built.append(factory_name)
        return make_component(nlp, factory_name, *args, **options)

    monkeypatch.setattr(Language, "create_pipe", create_pipe)
    config["training"]["max_epochs"] = 1
    # The teacher for answers and for its scores, the student to train, the saved one
    run_distill(folder, tmp_path, config)
    assert built == ["cost_sensitive_ner"] * 4


@pytest.mark.parametrize("is_sourced", [False, True])
def test_a_student_that_learns_no_ents_is_refused_unbuilt(
    folder: Path, config: Config, tmp_path: Path, is_sourced: bool
) -> None:
    nlp = pipeline(spans_key="nested")
    nlp.to_disk(tmp_path / "nested")
    config["components"]["ner"]["spans_key"] = "nested"
    if is_sourced:
        config["components"]["ner"] = {"source": str(tmp_path / "nested")}
    message = "distill: works on doc.ents, but ner has the spans_key 'nested'"
    with pytest.raises(ValueError, match=message):
        run_distill(folder, tmp_path / "output", config)
    config["components"]["ner"] = {"factory": "entity_ruler"}
    with pytest.raises(ValueError, match=r"soft: expected a student with one cost_s.*, got .*'ner"):
        run_distill(folder, tmp_path / "output", config, soft=True)
    assert not (tmp_path / "output").exists()


# Errors


@pytest.mark.parametrize(
    "teachers, n_raw, options, message",
    [
        (["a.jsonl", "b"], 0, {}, "file of answers without other teachers and raw text"),
        (["a.jsonl"], 1, {}, "file of answers without other teachers and raw text"),
        (["a"], 0, {}, "raw: expected files of text"),
        (["a.jsonl"], 0, {"soft": True}, "soft: expected pipelines as teachers"),
        (["a"], 1, {"soft": True, "min_confidence": 0.5}, "got min_confidence 0.5"),
        (["a"], 1, {"n_seeds": 2}, "seeds: expected 1 for a student that `fit` can't"),
        (["a"], 1, {}, "expected a config whose training corpus is"),
    ],
)
def test_what_does_not_go_together(
    config: Config, tmp_path: Path, teachers: Any, n_raw: int, options: Any, message: str
) -> None:
    config["components"]["ner"]["model"] = {"@architectures": "spacy_costner.LinearChainCRF.v1"}
    config["corpora"]["train"]["path"] = "train.spacy"
    with pytest.raises(ValueError, match=message):
        distill(teachers, config, [tmp_path / "raw.txt"] * n_raw, tmp_path, **options)


def test_any_pipeline_that_sets_entities_is_a_teacher(
    folder: Path, config: Config, tmp_path: Path
) -> None:
    """Answers depend on its config. A dev corpus without entities has no scores. What needs
    probabilities is refused."""
    nlp = spacy.blank("xx")
    ruler: Any = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "LOC", "pattern": "London"}])
    nlp.to_disk(tmp_path / "rules")
    given: Any = [str(tmp_path / "rules")], config, [folder / "raw.txt"], tmp_path / "output"
    with pytest.raises(ValueError, match=r"soft: expected teachers with one cost_s.*'entity_ruler"):
        distill(*given, soft=True)
    with pytest.raises(ValueError, match="min_confidence: expected a teacher with confidences"):
        distill(*given, min_confidence=0.5)
    DocBin(docs=[spacy.blank("xx")("Nothing")]).to_disk(tmp_path / "dev.spacy")
    config["paths"]["dev"], config["training"]["max_epochs"] = str(tmp_path / "dev.spacy"), 1
    path, asked = tmp_path / "rules" / "config.cfg", []
    text = path.read_text("utf8")
    for changed in (text, text.replace("overwrite_ents = false", "overwrite_ents = true")):
        path.write_text(changed, encoding="utf8")
        result = distill(*given)
        asked.append(len([*tmp_path.glob("output/answers-*")]))
    assert asked == [1, 2] and result.n_entities == 5
    assert [row.f_score for row in result.rows] == [0, 0]
    assert spacy.load(result.path).get_pipe("ner").labels == ("LOC",)


# The command


def test_command_line(folder: Path, tmp_path: Path) -> None:
    given = [folder / "teacher", folder / "student.cfg", folder / "raw.txt", "--output", tmp_path]
    more = ["--training.max_epochs", 3, "--min-confidence", 0.3, "--seeds", 2]
    result = run("distill", *given, *more)
    assert result.exit_code == 0, result.output
    assert "15 docs with 20 entities of the teacher" in result.output
    assert "tokens/s" in result.output and "student" in result.output
    assert spacy.load(tmp_path / "model-best").config["training"]["max_epochs"] == 3
    result = run("distill", *given, "--json", "--training.max_epochs=3")
    value = json.loads(result.stdout)
    assert value["n_docs"] == 15 and value["rows"][1]["name"] == "student"
    page = (ROOT / "docs" / "distill.md").read_text("utf8")
    options = re.findall(r"--[a-z-]+", run("distill", "--help").output)
    assert {*options} - {"--help", "--paths"} <= {*re.findall(r"--[a-z-]+", page)}


def test_without_a_dev_corpus_it_is_refused_before_training() -> None:
    nlp = spacy.blank("xx")
    nlp.config["paths"]["dev"] = None
    config = nlp.config.interpolate()
    with pytest.raises(ValueError, match=r"corpora.dev: expected a development corpus, .* --paths"):
        check_dev(config)
