"""A look at corpora: each thing that is wrong is found, once, where it is."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example

from spacy_costner.analysis.checks import Check, Finding, check, check_corpora

from .support.commands import run
from .support.experiment import CONFIG, make_corpus
from .support.pipelines import pipeline

NLP = pipeline(sentence_boundaries=True, incorrect_spans_key="wrong")
WORDS = ["Paris", "in", "\n", "France", "."]
TAGS = ["B-city", "O", "O", "B-country", "O"]


def example(tags: Sequence[str | None] = TAGS, words: Sequence[str] = WORDS) -> Example:
    reference = Doc(NLP.vocab, words=words, ents=list(tags))  # type: ignore[arg-type]
    return Example(Doc(NLP.vocab, words=words), reference)


def found(train: list[Example], dev: list[Example] | None = None, **settings: Any) -> Check:
    plenty = [example(TAGS, [*WORDS[:-1], f"{i}"]) for i in range(20)]
    others = [example(TAGS, [*WORDS[:-1], f"-{i}"]) for i in range(2)]
    corpora = {"train": [*plenty, *train], "dev": others if dev is None else dev}
    return check_corpora(NLP.get_pipe("ner"), corpora, **settings)


def test_nothing_wrong() -> None:
    result = found([])
    assert result.findings == [] and not result.has_errors
    assert result.counts == [("city", 20, 2), ("country", 20, 2)]
    assert result.docs == {"train": 20, "dev": 2} and result.tokens["train"] == 100


def in_place_of_in(word: str) -> Example:
    return example(words=[WORDS[0], word, *WORDS[2:]])


AROUND = example(["B-city", "O", "B-country", "I-country", "O"])
IN_SPACE = example(["B-city", "O", "B-city", "O", "O"])
IN_STOP = example(["B-city", "O", "O", "O", "B-x"])
CROSSING = example(["O", "B-city", "I-city", "I-city", "O"])
CROSSING.predicted[3].is_sent_start = True
INCORRECT = example()
INCORRECT.reference.spans["wrong"] = [Span(INCORRECT.reference, 0, 1, label="city")]
MISALIGNED = example()
MISALIGNED.predicted = Doc(NLP.vocab, words=["Pa", "ris in", "\n", "France", "."])


@pytest.mark.parametrize(
    "eg, message, text",
    [
        (CROSSING, "warning: entities cross a sentence start", "'in \\n France' city"),
        (INCORRECT, "error: entities are among the incorrect spans", "'Paris' city"),
        (IN_SPACE, "warning: entities are only whitespace", "'\\n' city"),
        (AROUND, "warning: entities begin or end with whitespace", "'\\n France' country"),
        (MISALIGNED, "warning: entities don't begin and end with tokens", "'Paris' city"),
        (IN_STOP, "warning: entities without a letter or digit", "'.' x"),
        (in_place_of_in("SÃ£o"), "(mojibake)", "'SÃ£o'"),
        (in_place_of_in("â€™s"), "(mojibake)", "'â€™s'"),
        (in_place_of_in("i\u200bn"), "characters that can't be seen", r"'i\u200bn'"),
        (example([None] * 5), "warning: docs without annotation", ""),
    ],
)
def test_what_is_wrong_with_a_doc(eg: Example, message: str, text: str) -> None:
    result = found([eg], labels=["city", "country", "x"])
    (finding,) = [one for one in result.findings if one.places]
    assert message in f"{finding.severity}: {finding.message}"
    assert finding.corpus == "train" and result.has_errors is message.startswith("error")
    (place,) = finding.places
    assert (place.doc, place.text) == (20, text) and "Paris" in place.words


def messages(findings: list[Finding]) -> list[str]:
    return [f"{f.severity} {f.corpus}: {f.message}" for f in findings]


def test_what_is_wrong_with_labels() -> None:
    result = found([example([tag, *TAGS[1:]], [tag, *WORDS[1:]]) for tag in ("B-river", "B-lake")])
    assert messages(result.findings) == [
        "warning train: labels of fewer than 20 entities: lake (1), river (1)",
        "warning dev: labels of no entity, their scores are unknown: lake, river",
    ]
    result = found([], labels=["city"])
    assert [f.message for f in result.findings if f.places and f.corpus == "train"] == [
        "entities of labels that the component doesn't have: they count as O"
    ]
    cut = [example(["B-C", "O", "O", "B-SC", "O"], [*WORDS[:-1], f"{i}"]) for i in range(20)]
    result = check_corpora(NLP.get_pipe("ner"), {"train": cut, "dev": cut[:1]})
    assert any("all labels are very short: C, SC" in f.message for f in result.findings)


def test_labels_that_differ_in_spelling() -> None:
    labels = ("City", "sports-team", "x") * 20
    plenty = [example([f"B-{label}", *TAGS[1:]], [label, *WORDS[1:]]) for label in labels]
    dev = [example(["B-Sports_Team", *TAGS[1:]], ["x", *WORDS[1:]])]
    (finding,) = (f for f in found(plenty, dev).findings if "differ only" in f.message)
    assert finding.message.endswith(": City and city, Sports_Team and sports-team")
    assert finding.corpus == "train" and finding.severity == "warning"


def towns(n: int, shift: int = 0, n_empty: int = 0, left: str | None = "O") -> list[Finding]:
    """What is found in random docs with a town each, annotated beside it or, in the last, not."""
    rng, corpus = random.Random(0), []
    for i in range(n):
        words, at = rng.choices("abcdefghij", k=8), rng.randrange(1, 7)
        words[at] = rng.choice(["Rome", "Oslo"])
        tags = ["B-city" if t == at + shift else "O" for t in range(8)]
        corpus.append(example(tags if i < n - n_empty else [left] * 8, words))
    return check_corpora(NLP.get_pipe("ner"), {"train": corpus, "dev": []}).findings


@pytest.mark.parametrize("shift, expected", [(-1, ["later"]), (0, []), (1, ["earlier"])])
def test_tags_shifted_by_a_token(shift: int, expected: list[str]) -> None:
    found = [re.search(r"one token (\w+)$", finding.message) for finding in towns(100, shift)]
    assert [match[1] for match in found if match] == expected


@pytest.mark.parametrize("n_empty", [0, 8, 30])
def test_docs_whose_annotation_is_lost(n_empty: int) -> None:
    """A few such docs may be right, and what nobody has annotated is not lost."""
    missing = messages(towns(100, n_empty=n_empty, left=None))
    assert not any("but words that are" in message for message in missing)
    found = [f for f in towns(100, n_empty=n_empty) if "but words that are" in f.message]
    assert [len(finding.places) for finding in found] == [30] * (n_empty == 30)
    assert all(f.places[0].doc == 70 and f.places[0].text in ("Rome", "Oslo") for f in found)


def test_what_is_wrong_with_corpora() -> None:
    one, other = example(), example(["B-country", *TAGS[1:]])
    result = found([one, other], dev=[example(), example([*TAGS[:4], None])])
    assert messages(result.findings) == [
        "warning train: docs with the same words have different entities",
        "warning dev: docs are in the training corpus as well",
    ]
    assert result.findings[0].places[0].doc == 21
    against = "'country', 0)] against [('Paris', 'city', 0)] in doc 20"
    assert against in result.findings[0].places[0].text
    assert [place.doc for place in result.findings[1].places] == [0, 1]
    # Short docs are equal by chance.
    short = example(["B-city", "O", "O", "B-country"], words=WORDS[:4])
    leak = "warning dev: docs are in the training corpus as well"
    assert leak not in messages(found([short], dev=[short]).findings)
    # Without O nothing is learned.
    only = [example(["B-city", None, None, None, None])] * 20
    result = check_corpora(NLP.get_pipe("ner"), {"train": only, "dev": []})
    assert "error train: no token is annotated as O" in messages(result.findings)[0]
    assert check_corpora(NLP.get_pipe("ner"), {"train": [], "dev": []}).has_errors


def test_costs_and_trees_that_don_t_fit() -> None:
    tree = {"place": {"city": {}}}
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": tree}
    loss = {"@losses": "spacy_costner.SoftmaxMargin.v1", "cost": cost}
    threshold = {"@misc": "spacy_costner.ThresholdDecoding.v1", "labels": {"river": 0.5}}
    nlp = pipeline(loss=loss, decoding=threshold)
    batch = [example() for _ in range(20)]
    result = check_corpora(nlp.get_pipe("ner"), {"train": batch, "dev": batch})
    errors = [f.message for f in result.findings if f.severity == "error"]
    assert len(errors) == 2 and "'country'" in errors[0] and "'river'" in errors[1]


def test_sentences_joined_by_another_converter() -> None:
    """spaCy's converter makes one sentence of those with white space between them."""
    long = example(["O"] * 500, ["word"] * 500)
    assert not found([long]).findings
    for token in long.reference[1:]:
        token.is_sent_start = False
    (finding,) = found([long]).findings
    assert "500 tokens or more are one sentence" in finding.message
    assert [place.doc for place in finding.places] == [20]
    long.reference[250].is_sent_start = True
    assert not found([long]).findings


def test_what_the_reader_finds(tmp_path: Path) -> None:
    """The end is a count."""
    text = CONFIG.format(corpus=tmp_path / "corpus.conll") + "\n[corpora]\n"
    for corpus in ("train", "dev"):
        text += f'\n[corpora.{corpus}]\n@readers = "spacy_costner.read.v1"\n'
        text += f"path = ${{paths.{corpus}}}\n"
    (tmp_path / "config.cfg").write_text(text, encoding="utf8")

    def printed(columns: str) -> str:
        (tmp_path / "corpus.conll").write_text(columns, encoding="utf8")
        return run("check", tmp_path / "config.cfg").output

    shown = printed("In O\nOslo LOC\nLima LOC\n \nIn O\nRome LOC\n")
    assert "tags have no prefixes such as B-" in shown
    shown = printed("In O\nOslo I-LOC\nLima B-LOC\n \nIn O\nRome B-LOC\n" * 9)
    assert shown.count("tags don't fit") == 2
    assert "\nno errors, no warnings" in printed("In O\nOslo B-LOC\n\n" * 20)
    assert printed("In O\nOslo B-LOC\n\n" * 19).endswith("\nno errors, 1 warning\n")


def test_command_line(tmp_path: Path) -> None:
    make_corpus(tmp_path / "corpus.spacy")
    config = tmp_path / "config.cfg"
    config.write_text(CONFIG.format(corpus="nowhere"), encoding="utf8")
    paths = ["--paths.train", tmp_path / "corpus.spacy", "--paths.dev", tmp_path / "corpus.spacy"]
    result = run("check", config, *paths, "--places", 1)
    assert result.exit_code == 0, result.output
    assert "country" in result.output and "doc 0: 'Rain in Paris" in result.output
    assert "doc 1" not in result.output
    bad = DocBin(docs=[Doc(NLP.vocab, words=["a"])])
    bad.to_disk(tmp_path / "bad.spacy")
    result = run("check", config, *paths[2:], "--paths.train", tmp_path / "bad.spacy")
    assert result.exit_code == 1 and "error: train: no entities" in result.output
    text = config.read_text().replace('"cost_sensitive_ner"', '"sentencizer"')
    config.write_text(text.split("scheme")[0] + "[training]\n", encoding="utf8")
    with pytest.raises(ValueError, match="one cost_sensitive_ner"):
        check(config)
