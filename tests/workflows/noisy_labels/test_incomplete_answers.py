"""`costner distill --incomplete`: teachers that find only some of the entities, such as rules."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span
from spacy.util import load_config
from thinc.api import Config

from spacy_costner.workflows.noisy_labels.distillation import distill
from spacy_costner.workflows.noisy_labels.incomplete_answers import (
    find_outside_words,
    leave_out_unknown,
)

from ...support.commands import run
from ...support.vocabs import blank_vocab

ROOT = Path(__file__).parents[3]
VOCAB = blank_vocab()

CITIES = ("London", "Berlin", "Paris", "Rome")
TEXTS = [f"I live in {city} now ." for city in CITIES] * 5 + ["we all like this song ."] * 10
"""The rules know London alone."""


def make_doc(text: str, *entities: tuple[int, int]) -> Doc:
    """A doc of words, with entities of one label."""
    doc = Doc(VOCAB, text.split(" "))
    doc.set_ents([Span(doc, begin, end, "LOC") for begin, end in entities])
    return doc


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """The config of a student, with a development corpus in which all cities are annotated."""
    docs = [make_doc(f"I live in {city} now .", (3, 4)) for city in CITIES]
    DocBin(docs=docs).to_disk(tmp_path / "dev.spacy")
    config = load_config(ROOT / "configs" / "sparse.cfg", interpolate=False)
    config["nlp"]["lang"] = "xx"
    config["paths"]["dev"] = str(tmp_path / "dev.spacy")
    config.to_disk(tmp_path / "student.cfg")
    return config


@pytest.fixture
def files(config: Config, tmp_path: Path) -> list[Path]:
    """A pipeline of rules, the student's config, and texts."""
    nlp = spacy.blank("xx")
    entity_ruler: Any = nlp.add_pipe("entity_ruler")
    entity_ruler.add_patterns([{"label": "LOC", "pattern": "London"}])
    nlp.to_disk(tmp_path / "rules")
    (tmp_path / "raw.txt").write_text("\n".join(TEXTS), encoding="utf8")
    return [tmp_path / "rules", tmp_path / "student.cfg", tmp_path / "raw.txt"]


def test_frequent_words_that_are_rarely_in_entities_are_outside() -> None:
    """4 of 36 tokens are in entities. A word may be in entities half as often: in 1 of 18 places.
    It is frequent if it is there three times."""
    docs = [
        make_doc("we saw the Isle of Man", (3, 6)),
        make_doc("a song of the sea by the sea", (1, 2)),
        *[make_doc("of the song of We , 7")] * 3,
        make_doc("!"),
    ]
    # "of" is in entities in 1 of 8 places, "song" in 1 of 4. "sea" is there twice, "We" has a
    # capital letter. "!" is there once, but has no letter.
    assert find_outside_words(docs) == {"the", ",", "7", "!"}


def test_a_word_may_be_in_entities_half_as_often_as_the_average() -> None:
    """3 of 24 tokens are in entities, so a word may be there in 1 of 16 places. "of" is in entities
    in 1 of 16 places, and then in 1 of 15 places, which is too often."""
    inside = make_doc("Isle of Man", (0, 3))
    assert "of" in find_outside_words([inside, make_doc("of " * 15 + "a b c d e f")])
    assert "of" not in find_outside_words([inside, make_doc("of " * 14 + "a b c d e f g")])


def test_other_words_are_unknown() -> None:
    """Entities stay, and so does annotation that is missing already, of the first "we". The two
    words that become unknown are "saw" and "Bonn"."""
    doc = make_doc("we saw Rome and Bonn", (2, 3))
    doc.set_ents(list(doc.ents), missing=[doc[0:1]])
    assert leave_out_unknown(doc, {"we", "and"}) == 2
    assert [token.ent_iob_ for token in doc] == ["", "", "B", "O", ""]
    assert [ent.text for ent in doc.ents] == ["Rome"]


@pytest.mark.slow
def test_a_student_finds_what_the_rules_miss(
    config: Config, files: list[Path], tmp_path: Path
) -> None:
    """It doesn't find them if all that the rules miss is O in its training data."""
    rules, _, raw = files
    complete = distill([str(rules)], config, [raw], tmp_path / "complete")
    incomplete = distill([str(rules)], config, [raw], tmp_path / "incomplete", incomplete=True)

    text = "I live in Rome now ."
    assert not spacy.load(complete.path)(text).ents
    assert [ent.text for ent in spacy.load(incomplete.path)(text).ents] == ["Rome"]
    assert incomplete.rows[-1].f_score == 1
    # The tokens of the 15 other cities, and "I" in 20 texts, which has a capital letter.
    assert (complete.n_unknown, incomplete.n_unknown) == (0, 35)
    assert incomplete.n_entities == 5


def test_answers_in_a_file_may_be_incomplete(config: Config, tmp_path: Path) -> None:
    """Each of the three docs has one unknown token: "I" has a capital letter. The other words are
    there three times, which is often enough."""
    line = '{"text": "I live in London now .", "spans": [[10, 16, "LOC"]]}\n'
    (tmp_path / "answers.jsonl").write_text(line * 3, encoding="utf8")
    answers = [str(tmp_path / "answers.jsonl")]
    result = distill(answers, config, [], tmp_path / "output", incomplete=True)
    docs = list(DocBin().from_disk(tmp_path / "output/train/000000.spacy").get_docs(VOCAB))
    assert [token.ent_iob_ for token in docs[0]] == ["", "O", "O", "B", "O", "O"]
    assert result.n_unknown == 3


def test_texts_in_which_nothing_is_surely_outside_are_refused(
    config: Config, tmp_path: Path
) -> None:
    """All words have capital letters."""
    (tmp_path / "answers.jsonl").write_text('{"text": "I LIVE", "spans": []}\n', encoding="utf8")
    answers = [str(tmp_path / "answers.jsonl")]
    with pytest.raises(ValueError, match="incomplete: expected lowercase words"):
        distill(answers, config, [], tmp_path / "output", incomplete=True)


def test_soft_targets_of_an_incomplete_teacher_are_refused(
    config: Config, files: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="soft: expected teachers that find all entities"):
        distill([str(files[0])], config, [files[2]], tmp_path, soft=True, incomplete=True)


def test_the_command_says_how_many_tokens_are_unknown(files: list[Path], tmp_path: Path) -> None:
    result = run("distill", *files, "--output", tmp_path / "output", "--incomplete")
    assert result.exit_code == 0, result.output
    assert "30 docs with 5 entities of the teacher; 35 tokens are unknown" in result.output
