"""Tests of `check`: each problem of a corpus is found once, at its place."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.training.augment import create_lower_casing_augmenter

from spacy_costner.readers.examples import make_copies_augmenter
from spacy_costner.tags import Tags
from spacy_costner.training.soft_targets import SOFT_TARGETS_KEY
from spacy_costner.workflows.config.checks import NO_DEV, Check, check, check_corpora
from spacy_costner.workflows.config.findings import Finding

from ...support.commands import run
from ...support.experiment import CONFIG, make_corpus
from ...support.pipelines import pipeline

NLP = pipeline(sentence_boundaries=True, incorrect_spans_key="wrong")
"""Its component doesn't let entities cross sentence starts, and reads incorrect spans."""
WORDS = ["Paris", "in", "\n", "France", "."]
TAGS = ["B-city", "O", "O", "B-country", "O"]


def example(tags: Sequence[str | None] = TAGS, words: Sequence[str] = WORDS) -> Example:
    """An example with these words and IOB2 tags. The tag None is missing annotation."""
    reference = Doc(NLP.vocab, words=words, ents=list(tags))  # type: ignore[arg-type]
    return Example(Doc(NLP.vocab, words=words), reference)


def check_among_right_docs(
    train: list[Example], dev: list[Example] | None = None, **settings: Any
) -> Check:
    """Check corpora. The training corpus has twenty docs without problems, followed by the docs of
    `train`, which so begin with number 20. The development corpus has two docs without problems, or
    the examples of `dev`."""
    right_train = [example(TAGS, [*WORDS[:-1], f"{i}"]) for i in range(20)]
    right_dev = [example(TAGS, [*WORDS[:-1], f"dev{i}"]) for i in range(2)]
    corpora = {"train": [*right_train, *train], "dev": right_dev if dev is None else dev}
    return check_corpora(NLP.get_pipe("ner"), corpora, **settings)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    """The training corpus has twenty docs of five tokens, the development corpus two. Each doc has
    a city and a country."""
    result = check_among_right_docs([])
    assert result.findings == []
    assert not result.has_errors
    assert result.counts == [("city", 20, 2), ("country", 20, 2)]
    assert result.docs == {"train": 20, "dev": 2}
    assert result.tokens["train"] == 100


def example_with(word: str) -> Example:
    """The example without problems, with another word instead of its second one, "in"."""
    return example(words=[WORDS[0], word, *WORDS[2:]])


ENTITY_WITH_WHITESPACE = example(["B-city", "O", "B-country", "I-country", "O"])
ENTITY_OF_WHITESPACE = example(["B-city", "O", "B-city", "O", "O"])
ENTITY_OF_PUNCTUATION = example(["B-city", "O", "O", "O", "B-x"])
CROSSING_A_SENTENCE_START = example(["O", "B-city", "I-city", "I-city", "O"])
CROSSING_A_SENTENCE_START.predicted[3].is_sent_start = True
ALSO_AN_INCORRECT_SPAN = example()
ALSO_AN_INCORRECT_SPAN.reference.spans["wrong"] = [
    Span(ALSO_AN_INCORRECT_SPAN.reference, 0, 1, label="city")
]
MISALIGNED = example()
MISALIGNED.predicted = Doc(NLP.vocab, words=["Pa", "ris in", "\n", "France", "."])


@pytest.mark.parametrize(
    "wrong_example, message, text",
    [
        (
            CROSSING_A_SENTENCE_START,
            "warning: entities cross a sentence start",
            "'in \\n France' city",
        ),
        (
            ALSO_AN_INCORRECT_SPAN,
            "error: entities are among the incorrect spans",
            "'Paris' city",
        ),
        (ENTITY_OF_WHITESPACE, "warning: entities are only whitespace", "'\\n' city"),
        (
            ENTITY_WITH_WHITESPACE,
            "warning: entities begin or end with whitespace",
            "'\\n France' country",
        ),
        (MISALIGNED, "warning: entities don't begin and end with tokens", "'Paris' city"),
        (ENTITY_OF_PUNCTUATION, "warning: entities without a letter or digit", "'.' x"),
        (example_with("SÃ£o"), "(mojibake)", "'SÃ£o'"),
        (example_with("â€™s"), "(mojibake)", "'â€™s'"),
        (example_with("i\u200bn"), "invisible characters", r"'i\u200bn'"),
        (example([None] * 5), "warning: docs without entity annotation", ""),
    ],
)
def test_what_is_wrong_with_a_doc_is_found_at_its_place(
    wrong_example: Example, message: str, text: str
) -> None:
    """The doc is number 20, after twenty docs without problems. The finding shows its words."""
    result = check_among_right_docs([wrong_example], labels=["city", "country", "x"])

    (finding,) = [finding for finding in result.findings if finding.places]
    assert message in f"{finding.severity}: {finding.message}"
    assert finding.corpus == "train"
    assert result.has_errors is message.startswith("error")
    (place,) = finding.places
    assert place.doc == 20
    assert place.text == text
    assert "Paris" in place.words


def messages(findings: list[Finding]) -> list[str]:
    """The severity, the corpus and the message of each finding, as one text."""
    return [f"{finding.severity} {finding.corpus}: {finding.message}" for finding in findings]


def test_rare_labels_are_found() -> None:
    """There is one river and one lake in the training corpus, and none in the development
    corpus."""
    river = example(["B-river", *TAGS[1:]], ["B-river", *WORDS[1:]])
    lake = example(["B-lake", *TAGS[1:]], ["B-lake", *WORDS[1:]])
    result = check_among_right_docs([river, lake])
    assert messages(result.findings) == [
        "warning train: labels of fewer than 20 entities: lake (1), river (1). `forecast` says "
        "what more docs add to their scores",
        "warning dev: labels without entities, whose scores are unknown: lake, river",
    ]


def test_labels_that_the_component_does_not_have_are_found() -> None:
    """The corpora also have countries, which the component doesn't have."""
    result = check_among_right_docs([], labels=["city"])
    train_findings = [f for f in result.findings if f.places and f.corpus == "train"]
    assert [finding.message for finding in train_findings] == [
        "entities of labels that the component doesn't have: they count as O"
    ]


def test_labels_that_are_cut_short_are_found() -> None:
    """C and SC are left if a wrong column is read, or if a prefix is cut off that isn't there."""
    tags = ["B-C", "O", "O", "B-SC", "O"]
    examples = [example(tags, [*WORDS[:-1], f"{i}"]) for i in range(20)]
    result = check_corpora(NLP.get_pipe("ner"), {"train": examples, "dev": examples[:1]})
    assert any("all labels are very short: C, SC" in f.message for f in result.findings)


def test_labels_that_differ_in_spelling_are_found() -> None:
    """The training corpus has City, city and sports-team, the development corpus has
    Sports_Team."""
    train = []
    for label in ("City", "sports-team", "x") * 20:
        train.append(example([f"B-{label}", *TAGS[1:]], [label, *WORDS[1:]]))
    dev = [example(["B-Sports_Team", *TAGS[1:]], ["x", *WORDS[1:]])]

    result = check_among_right_docs(train, dev)

    (finding,) = [finding for finding in result.findings if "differ only" in finding.message]
    assert finding.message.endswith(": City and city, Sports_Team and sports-team")
    assert finding.corpus == "train"
    assert finding.severity == "warning"


def findings_in_docs_with_towns(
    n_docs: int, shift: int = 0, n_without_cities: int = 0, tag_without_cities: str | None = "O"
) -> list[Finding]:
    """The findings in docs of eight random words, among them a town at a random place.

    n_docs (int): The number of docs.
    shift (int): How many tokens after the town the tag B-city stands.
    n_without_cities (int): How many of the docs, the last ones, have no city. All tokens of these
        have the same tag.
    tag_without_cities (str | None): The tag of these tokens: "O", or None if it is missing.
    """
    rng = random.Random(0)
    corpus = []
    for i in range(n_docs):
        words = rng.choices("abcdefghij", k=8)
        town = rng.randrange(1, 7)
        words[town] = rng.choice(["Rome", "Oslo"])
        tags: list[str | None] = ["O"] * 8
        tags[town + shift] = "B-city"
        if i >= n_docs - n_without_cities:
            tags = [tag_without_cities] * 8
        corpus.append(example(tags, words))
    return check_corpora(NLP.get_pipe("ner"), {"train": corpus, "dev": []}).findings


@pytest.mark.parametrize("shift, directions", [(-1, ["later"]), (0, []), (1, ["earlier"])])
def test_tags_shifted_by_a_token_are_found(shift: int, directions: list[str]) -> None:
    """The message says in which direction the entities would have to move: "… one token later"."""
    findings = findings_in_docs_with_towns(100, shift)
    text = "\n".join(finding.message for finding in findings)
    assert re.findall(r"one token (\w+)$", text, flags=re.MULTILINE) == directions


LOST_ANNOTATION = "but have words that are"
"""In the message about docs without entities whose words are entities in other docs."""


def test_docs_whose_annotation_is_lost_are_found() -> None:
    """The last 30 of 100 docs have the towns of the others, but all their tags are O."""
    findings = findings_in_docs_with_towns(100, n_without_cities=30)
    (finding,) = [finding for finding in findings if LOST_ANNOTATION in finding.message]
    assert len(finding.places) == 30
    assert finding.places[0].doc == 70
    assert finding.places[0].text in ("Rome", "Oslo")


@pytest.mark.parametrize("n_without_cities", [0, 8])
def test_a_few_docs_without_entities_may_be_right(n_without_cities: int) -> None:
    """Up to 8 % of docs may be without entities though their words are entities in others."""
    findings = findings_in_docs_with_towns(100, n_without_cities=n_without_cities)
    assert not any(LOST_ANNOTATION in finding.message for finding in findings)


@pytest.mark.parametrize("n_without_cities", [0, 8, 30])
def test_annotation_that_is_missing_is_not_lost(n_without_cities: int) -> None:
    """If tags are missing, not O, nobody has annotated these docs."""
    findings = findings_in_docs_with_towns(
        100, n_without_cities=n_without_cities, tag_without_cities=None
    )
    assert not any(LOST_ANNOTATION in finding.message for finding in findings)


LEAK = (
    "warning dev: dev: 2 of 2 texts (100 %) recur in the training corpus: scores on them are too "
    "high"
)


def test_docs_of_the_same_words_are_found() -> None:
    """Docs 20 and 21 have the same words, but Paris is a city in one and a country in the other.
    Both development docs have these words, too, one of them without annotation of its last token: a
    leak is one of words, with any annotation."""
    train = [example(), example(["B-country", *TAGS[1:]])]
    dev = [example(), example([*TAGS[:4], None])]

    result = check_among_right_docs(train, dev)

    assert messages(result.findings) == [
        "warning train: docs with the same words have different entities",
        LEAK,
        "warning dev: dev: 1 of 1 texts (100 %) recur in it: where docs are divided, equal texts "
        "stay together",
    ]
    contradiction, leak, _ = result.findings
    assert contradiction.places[0].doc == 21
    # An entity is shown as its text, its label and its first token.
    against = "'country', 0)] against [('Paris', 'city', 0)] in doc 20"
    assert against in contradiction.places[0].text
    assert [place.doc for place in leak.places] == [0, 1]


def test_docs_may_be_equal_by_chance() -> None:
    """One of four development docs is a training doc, as one of twenty training docs is another
    one, too."""
    dateline = example(["B-city", "O", "O", "B-country"], words=WORDS[:4])
    other_docs = [example(TAGS, [*WORDS[:-1], f"dev{i}"]) for i in range(3)]
    result = check_among_right_docs([dateline, dateline], dev=[dateline, *other_docs])
    assert not result.findings


def test_a_corpus_without_o_is_an_error() -> None:
    """Only the city of each doc has a tag. So nothing says what isn't an entity."""
    only_entities = [example(["B-city", None, None, None, None])] * 20
    result = check_corpora(NLP.get_pipe("ner"), {"train": only_entities, "dev": []})
    assert "error train: no token is annotated as O" in messages(result.findings)[0]


def test_an_empty_corpus_is_an_error() -> None:
    assert check_corpora(NLP.get_pipe("ner"), {"train": [], "dev": []}).has_errors


def test_settings_of_other_labels_than_the_corpus_are_errors() -> None:
    """The corpus has cities and countries. The label tree of the cost lacks country, and the
    decoding has a threshold for river."""
    tree = {"place": {"city": {}}}
    cost = {"@misc": "spacy_costner.HierarchicalCost.v1", "tree": tree}
    loss = {"@losses": "spacy_costner.SoftmaxMargin.v1", "cost": cost}
    decoding = {"@misc": "spacy_costner.ThresholdDecoding.v1", "labels": {"river": 0.5}}
    nlp = pipeline(loss=loss, decoding=decoding)
    examples = [example() for _ in range(20)]

    result = check_corpora(nlp.get_pipe("ner"), {"train": examples, "dev": examples})

    errors = [finding.message for finding in result.findings if finding.severity == "error"]
    assert len(errors) == 2
    assert "tree: expected a node for every label, got none for 'country'" in errors[0]
    assert "decoding: labels: expected " in errors[1] and "got 'river'" in errors[1]


def test_settings_of_labels_that_only_a_sourced_component_has_are_right() -> None:
    """A trained component keeps its labels, even if they aren't in the corpus."""
    decoding = {"@misc": "spacy_costner.ThresholdDecoding.v1", "labels": {"river": 0.5}}
    ner: Any = pipeline(decoding=decoding).get_pipe("ner")
    ner.add_label("river")
    examples = [example(TAGS, [*WORDS[:-1], f"{i}"]) for i in range(20)]

    for labels in (None, ["city", "country"]):
        result = check_corpora(ner, {"train": examples}, labels)

        assert not result.has_errors
        assert result.counts == [("city", 20, 0), ("country", 20, 0), ("river", 0, 0)]
        (finding,) = messages(result.findings)
        assert "labels of fewer than 20 entities: river (0)." in finding


def soft_example(word: str, predicted: Sequence[str] | None = None) -> Example:
    """An example without entities, whose soft targets expect 0.75 cities and 0.25 countries."""
    eg = example([None] * 5, [*WORDS[:-1], word])
    eg.predicted = Doc(NLP.vocab, words=predicted) if predicted else eg.predicted
    opens_label = Tags(["city", "country"]).finest.opens_label
    emissions = numpy.zeros((5, len(opens_label)))
    emissions[0] = opens_label @ ([0.75, 0.25] / opens_label.sum(axis=0))
    targets = {"labels": ["city", "country"], "emissions": emissions}
    eg.reference.user_data[SOFT_TARGETS_KEY] = targets
    return eg


def test_soft_targets_are_annotation() -> None:
    """Their expected entities are counted. They also say what isn't an entity."""
    examples = [soft_example(f"{i}") for i in range(80)]

    result = check_corpora(NLP.get_pipe("ner"), {"train": examples})

    assert result.findings == []
    assert result.counts == [("city", 60, 0), ("country", 20, 0)]


def test_soft_targets_of_other_tokens_are_not_used() -> None:
    """They can't be aligned."""
    unused = soft_example("a", predicted=["Paris", "in", "\n", "France", "a", "b"])
    (finding,) = messages(check_among_right_docs([unused]).findings)
    assert "docs without entity annotation: they are not used" in finding
    assert check_corpora(NLP.get_pipe("ner"), {"train": [unused]}).has_errors


def test_augmented_copies_are_not_recurring_texts() -> None:
    """The augmenter adds a copy in lower case to each doc. Docs that are twice in the corpus are
    found nevertheless."""
    augment = make_copies_augmenter(create_lower_casing_augmenter(level=1.0))
    examples = [example(TAGS, [*WORDS[:-1], f"{i}"]) for i in range(20)]

    def check_copies(examples: list[Example]) -> list[str]:
        augmented = [copy for eg in examples for copy in augment(NLP, eg)]
        assert len(augmented) == 2 * len(examples)
        return messages(check_corpora(NLP.get_pipe("ner"), {"train": augmented}).findings)

    assert check_copies(examples) == []
    (finding,) = check_copies([*examples, *examples])
    assert "20 of 20 texts (100 %) recur in it" in finding


def test_a_doc_of_joined_sentences_is_found() -> None:
    """If sentences have whitespace between them, spaCy's converter joins them. Here a doc of 500
    tokens has a single sentence start, at its first token."""
    long = example(["O"] * 500, ["word"] * 500)
    for token in long.reference[1:]:
        token.is_sent_start = False

    (finding,) = check_among_right_docs([long]).findings

    assert "500 tokens or more are one sentence" in finding.message
    assert [place.doc for place in finding.places] == [20]


def test_long_docs_of_several_sentences_are_right() -> None:
    """A doc of 500 tokens is right if it has no sentence starts, or has one in the middle."""
    long = example(["O"] * 500, ["word"] * 500)
    assert not check_among_right_docs([long]).findings

    for token in long.reference[1:]:
        token.is_sent_start = False
    long.reference[250].is_sent_start = True
    assert not check_among_right_docs([long]).findings


def check_columns(folder: Path, columns: str) -> str:
    """The output of `check` for a config whose two corpora are the same file of columns."""
    (folder / "corpus.conll").write_text(columns, encoding="utf8")
    config = CONFIG.format(corpus=folder / "corpus.conll") + "\n[corpora]\n"
    for corpus in ("train", "dev"):
        config += f'\n[corpora.{corpus}]\n@readers = "spacy_costner.read.v1"\n'
        config += f"path = ${{paths.{corpus}}}\n"
    (folder / "config.cfg").write_text(config, encoding="utf8")
    return run("check", folder / "config.cfg").output


def test_check_prints_what_the_reader_of_columns_finds(tmp_path: Path) -> None:
    without_prefixes = check_columns(tmp_path, "In O\nOslo LOC\nLima LOC\n \nIn O\nRome LOC\n")
    assert "tags have no prefixes such as B-" in without_prefixes

    # I- begins an entity in IOB1 and B- in IOB2: here both do, in train and in dev.
    mixed_schemes = "In O\nOslo I-LOC\nLima B-LOC\n \nIn O\nRome B-LOC\n"
    assert check_columns(tmp_path, mixed_schemes * 9).count("tags don't fit") == 2


def test_check_ends_with_the_number_of_errors_and_warnings(tmp_path: Path) -> None:
    """There is a warning as the corpora are the same file, and another one as each label should
    have 20 entities."""
    docs = [f"In O\nOslo B-LOC\n{i} O\n\n" for i in range(20)]
    enough = check_columns(tmp_path, "".join(docs))
    too_few = check_columns(tmp_path, "".join(docs[1:]))
    assert enough.endswith("\nno errors, 1 warning\n")
    assert too_few.endswith("\nno errors, 2 warnings\n")


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    """A config that doesn't name its corpora. They are given as overrides."""
    path = tmp_path / "config.cfg"
    path.write_text(CONFIG.format(corpus="nowhere"), encoding="utf8")
    return path


def test_check_prints_as_many_places_as_asked_for(config_path: Path, tmp_path: Path) -> None:
    """The training corpus is also the development corpus, so both docs of the latter are found in
    the former. With `--places 1` only the first of them is printed."""
    corpus = tmp_path / "corpus.spacy"
    texts = ["Rain in Paris , France .", "Snow in Oslo , Norway ."]
    tags = ["O", "O", "B-city", "O", "B-country", "O"]
    docs = [Doc(NLP.vocab, words=text.split(), ents=tags) for text in texts]
    DocBin(docs=docs).to_disk(corpus)
    paths = ["--paths.train", corpus, "--paths.dev", corpus]

    result = run("check", config_path, *paths, "--places", 1)
    result_with_both = run("check", config_path, *paths, "--places", 2)

    assert result.exit_code == 0, result.output
    assert f"{corpus} is the training corpus: 2 of 2 texts (100 %) recur in it" in result.output
    assert "doc 0: 'Rain in Paris" in result.output
    assert "doc 1" not in result.output
    assert "doc 1: 'Snow in Oslo" in result_with_both.output


def test_check_exits_with_1_after_an_error(config_path: Path, tmp_path: Path) -> None:
    """The training corpus is a single word without annotation."""
    make_corpus(tmp_path / "corpus.spacy")
    DocBin(docs=[Doc(NLP.vocab, words=["a"])]).to_disk(tmp_path / "bad.spacy")
    paths = ["--paths.train", tmp_path / "bad.spacy", "--paths.dev", tmp_path / "corpus.spacy"]

    result = run("check", config_path, *paths)

    assert result.exit_code == 1
    assert "error: train: no entities" in result.output


def test_without_a_development_corpus_fit_can_train_and_spacy_cannot(
    config_path: Path, tmp_path: Path
) -> None:
    """`fit` trains the linear model that `init` chooses, but not the neural one of the other
    config. Nothing is said of a corpus that isn't there."""
    corpus = tmp_path / "corpus.spacy"
    make_corpus(corpus)
    run("init", tmp_path / "linear.cfg", "--train", corpus)
    linear = check(tmp_path / "linear.cfg")
    neural = check(config_path, overrides={"paths.train": str(corpus), "paths.dev": None})

    assert linear.docs["train"] > 0 and linear.docs["dev"] == 0
    assert {finding.corpus for finding in linear.findings} == {"train"}
    assert not linear.has_errors
    errors = [finding.message for finding in neural.findings if finding.severity == "error"]
    assert errors == [NO_DEV]


def test_check_needs_a_config_of_our_component(config_path: Path) -> None:
    config = config_path.read_text().replace('"cost_sensitive_ner"', '"sentencizer"')
    # The settings of the component, from `scheme` on, are ours.
    config_path.write_text(config.split("scheme")[0] + "[training]\n", encoding="utf8")
    with pytest.raises(ValueError, match="expected a config with one cost_sensitive_ner"):
        check(config_path)
