"""Which columns of a file are read, in which scheme, and what is printed of it."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import spacy
from thinc.api import Config

from spacy_costner.readers import (
    CorpusError,
    CorpusInfo,
    ReadOptions,
    make_reader,
    read_docs,
    read_texts,
)
from spacy_costner.readers.raw_text import BoundedPipeline, map_docs
from spacy_costner.workflows.config.loading import with_reading

from ..support.commands import run

NLP = spacy.blank("xx")

GERMEVAL = "# http://de.wikipedia.org/ 2010\n1 Kim B-PER O\n2 lives O O\n3 in O O\n4 Bonn O B-LOC\n"

CONLLU_ROW = "{}\t{}\t_\tPROPN\t_\t_\t_\t_\t_\t{}\n"


def conllu(*rows: tuple[str, str, str]) -> str:
    """A sentence of CoNLL-U: the number, the word and the field MISC of each row."""
    return "# text = x\n" + "".join(CONLLU_ROW.format(*row) for row in rows)


def read(path: Path, text: str | None = None, **options: Any) -> tuple[list[Any], CorpusInfo]:
    """The words and the entities of each doc of a corpus, and what was reported. `text` is written
    to the file first."""
    if text is not None:
        path.write_text(text, encoding="utf8")
    info = CorpusInfo()
    docs = []
    for doc in read_docs(NLP, path, ReadOptions(**options), info):
        ents = [(ent.text, ent.label_) for ent in doc.ents]
        docs.append(([token.text for token in doc], ents))
    return docs, info


def entities(path: Path, text: str, **options: Any) -> list[tuple[str, str]]:
    """The entities of a file with this text."""
    docs, _ = read(path, text, **options)
    return [ent for _, ents in docs for ent in ents]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.conll"


# Columns


def test_a_column_that_numbers_tokens_has_no_tokens(path: Path) -> None:
    docs, info = read(path, GERMEVAL + "\n1 Oslo B-LOC O\n")

    assert docs == [
        (["Kim", "lives", "in", "Bonn"], [("Kim", "PER")]),
        (["Oslo"], [("Oslo", "LOC")]),
    ]
    (columns,) = info.columns
    assert columns == (
        "token in column 2, tag in column 3; column 1 numbers tokens; column 4 has tags, too "
        "(tag_column)"
    )
    assert entities(path, GERMEVAL, tag_column=4) == [("Bonn", "LOC")]


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_may_begin_with_0_and_run_through_the_file(first: int, path: Path) -> None:
    sentence = "{} Kim B-PER\n{} left O\n"
    anew = sentence.format(first, first + 1) + "\n" + sentence.format(first, first + 1)
    on = sentence.format(first, first + 1) + "\n" + sentence.format(first + 2, first + 3)

    for text in (anew, on):
        docs, _ = read(path, text)
        assert docs == [(["Kim", "left"], [("Kim", "PER")])] * 2


def test_multiword_tokens_and_empty_nodes_are_left_out(path: Path) -> None:
    text = conllu(
        ("1-2", "zum", "_"),
        ("1", "zu", "name=O"),
        ("2", "dem", "SpaceAfter=No|name=O"),
        ("2.1", "gap", "_"),
        ("3", "Rhein", "name=B-LOC"),
    )
    docs, info = read(path, text)

    assert docs == [(["zu", "dem", "Rhein"], [("Rhein", "LOC")])]
    _comments, no_words = info.problems
    assert no_words.n == 2 and ", line 2: 1-2\tzum" in no_words.places[0]
    assert "tag in column 10 (MISC) after name=" in "".join(info.columns)


def test_where_a_key_is_missing_annotation_is_missing(path: Path) -> None:
    text = conllu(("1", "Kim", "ner=B-PER"), ("2", "left", "_"), ("3", "now", "x=1|ner=O"))
    path.write_text(text)
    info = CorpusInfo()
    (doc,) = read_docs(NLP, path, info=info)

    assert [token.ent_iob_ for token in doc] == ["B", "", "O"]
    assert [token.tag_ for token in doc] == ["PROPN"] * 3
    problem = info.problems[1]
    assert problem.message == "tokens without ner= are missing annotation"
    assert problem.n == 1 and problem.places[0].endswith("line 3: left")


def test_names_of_columns_are_followed(path: Path) -> None:
    text = "# global.columns = ID FORM NER X:ROLE\n1\tKim\tB-PER\tA\n2\tleft\tO\t_\n"
    docs, info = read(path, text)

    assert docs == [(["Kim", "left"], [("Kim", "PER")])]
    assert not info.problems  # the line with the names is no comment
    layers = text.replace("A\n", "B-Agent\n").replace("_\n", "O\n")
    assert entities(path, layers, tag_column="x:role") == [("Kim", "Agent")]
    assert entities(path, layers, token_column="NER", tag_column=-1) == [("B-PER", "Agent")]
    with pytest.raises(CorpusError, match="tag_column: expected one of ID, FORM, NER, X:ROLE, got"):
        read(path, text, tag_column="name")
    with pytest.raises(CorpusError, match="line 1: expected 3 columns, as `global"):
        read(path, text.replace(" X:ROLE", ""))


def test_tokens_and_tags_may_be_in_any_column(path: Path) -> None:
    assert entities(path, "B-PER x Kim\nO x left\n", token_column=3, tag_column=1) == [
        ("Kim", "PER")
    ]
    assert entities(path, "B-PER x Kim\nO x left\n", token_column=-1, tag_column=-3) == [
        ("Kim", "PER")
    ]


def test_of_layers_with_the_same_labels_the_first_is_read(path: Path) -> None:
    """It has the outer entities. Chunks have other labels than entities."""
    docs, info = read(path, "Bonn B-LOC O\nTimes I-LOC B-LOC\n")
    assert docs == [(["Bonn", "Times"], [("Bonn Times", "LOC")])]
    assert "column 3 has tags, too" in "".join(info.columns)

    docs, info = read(path, "Bonn NNP B-NP B-LOC\nTimes NNP I-NP I-LOC\n")
    assert docs == [(["Bonn", "Times"], [("Bonn Times", "LOC")])]
    assert "column 3 has tags, too" in "".join(info.columns)


@pytest.mark.parametrize(
    "text, got",
    [
        ("1 Kim B-PER\n3 left O\n", "to number the tokens of each sentence, got '1', '3'"),
        ("1 Kim B-PER\n\n1 left O\n", "to number the tokens"),
        ("7 Kim B-PER\n7 left O\n", "to number the tokens"),
        ("a1 Kim B-PER\na1 left O\na1 now O\n", "expected tokens in column 1, got 'a1', 'a1'"),
    ],
    ids=["numbers that skip", "sentences of one token", "numbers of sentences", "names of docs"],
)
def test_a_first_column_that_may_have_no_tokens_is_refused(text: str, got: str, path: Path) -> None:
    with pytest.raises(CorpusError, match=f"line 1: .*{got}.*the setting `token_column`"):
        read(path, text)
    assert entities(path, text, token_column=2) == [("Kim", "PER")]
    path.write_text(text)
    with pytest.raises(CorpusError, match="token_column"):
        list(read_texts(NLP, path))
    texts = read_texts(NLP, path, ReadOptions(token_column=2))
    assert [token.text for doc in texts for token in doc][:2] == ["Kim", "left"]


ONLY_OUTER = "Ana B-PER O\nleft O O\n"
WITH_INNER = "Rome B-LOC O\nOslo B-ORG B-LOC\nTimes I-ORG O\n"


@pytest.mark.parametrize("text", [ONLY_OUTER, "Kim NNP B-PER -\nleft VBD O -\n"])
@pytest.mark.parametrize("suffix", [".conll", ".csv"])
def test_a_last_column_without_entities_is_refused_if_another_has_some(
    suffix: str, text: str, path: Path
) -> None:
    path = path.with_suffix(suffix)
    if suffix == ".csv":
        text = text.replace(" ", ",")
    with pytest.raises(CorpusError, match=r"got none, but column \d has .*`tag_column`"):
        read(path, text)
    assert len(entities(path, text, tag_column=-2)) == 1
    assert entities(path, text, tag_column=-1) == []


def test_files_of_a_folder_have_the_same_tag_column(tmp_path: Path) -> None:
    """A file without inner entities would be read from another column than the others. A file
    without any entities is read from the column of the others, though it has chunks."""
    (tmp_path / "a.conll").write_text(WITH_INNER)
    (tmp_path / "b.conll").write_text(ONLY_OUTER)
    message = r"b\.conll, line 1: expected tags in column 2, as in .*a\.conll, got column 3: .*"
    with pytest.raises(CorpusError, match=message):
        read(tmp_path)
    docs, _ = read(tmp_path, tag_column=2)
    assert [len(ents) for _, ents in docs] == [2, 1]

    (tmp_path / "a.conll").write_text("Kim NNP B-NP B-PER\n")
    (tmp_path / "b.conll").write_text("Rain NN B-NP O\n")
    docs, _ = read(tmp_path)
    assert [ents for _, ents in docs] == [[("Kim", "PER")], []]


@pytest.mark.parametrize("tag", ["LOC", "LOC-B"])
def test_a_token_that_begins_with_a_hash_is_no_comment_if_its_tag_is_used(
    tag: str, path: Path
) -> None:
    """At the beginning of a sentence. The tags have no prefix, or it follows the label."""
    text = f"# a comment\n#Oslo {tag}\nis O\n\nRome {tag}\nKim {tag.replace('B', 'I')}\n"
    docs, info = read(path, text)
    assert docs == [(["#Oslo", "is"], [("#Oslo", "LOC")]), (["Rome", "Kim"], [("Rome Kim", "LOC")])]
    (problem,) = info.problems
    assert problem.n == 1


def test_words_may_be_numbers(path: Path) -> None:
    """With two columns there is nothing else; a single number isn't 1."""
    assert [words for words, _ in read(path, "1 B-X\n2 O\n")[0]] == [["1", "2"]]
    assert [words for words, _ in read(path, "1990 CD B-X\n")[0]] == [["1990"]]


# Columns or text

NAME_ROWS = conllu(("1", "Kim", "name=B-PER"), ("2", "left", "name=O"))


@pytest.mark.parametrize(
    "name, text, options",
    [
        ("a.conllu", NAME_ROWS, {}),
        ("a.conllu", "# global.columns = FORM NER MISC\nKim\tB-PER\t_\nleft\tO\t_\n", {}),
        ("a.txt", NAME_ROWS, {}),
        ("a.txt", NAME_ROWS, {"tag_column": "name"}),
        ("a.txt", "# id = 1\n# date = 2\n" + NAME_ROWS, {}),
        ("a.txt", "# global.columns = FORM NER MISC\nKim\tB-PER\t_\n", {}),
        ("a.txt", "Kim B-PER NNP\nleft O VBD\n", {"tag_column": 2}),
        ("a.txt", "Kim PER-B NNP\nJo PER-I NNP\nhas O V\nleft O V\nnow O A\n", {"tag_column": 2}),
        ("a.txt", "Kim B-PER -\n\nleft O -\n", {"tag_column": -2}),
        ("a.txt", "Kim B-PER NNP\nleft O VBD\n" * 400, {"tag_column": 2, "n_sents": 0}),
    ],
    ids=["CoNLL-U", "CoNLL-U Plus", "keys", "named key", "comments", "names", "second column",
         "suffixes", "second from the right", "more than the head"],
)  # fmt: skip
def test_columns_are_not_read_as_raw_text(
    name: str, text: str, options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / name
    docs, _info = read(path, text, **options)
    reading = ReadOptions(**options)
    expected = [words for words, _ents in docs]
    assert [word for words in expected for word in words][:1] == ["Kim"]
    text_docs = read_texts(NLP, path, reading)
    assert [[token.text for token in doc] for doc in text_docs] == expected
    pipeline = BoundedPipeline(lambda: NLP)
    assert [
        *map_docs(lambda doc: [token.text for token in doc], pipeline, path, reading)
    ] == expected


@pytest.mark.parametrize(
    "text",
    [
        "Give type O blood\n",
        "Kim bought a T-shirt .\nLee bought a T-shirt too .\n",
        "Vitamin B-12 tablets\nVitamin B-6 tablets\n",
        "Kim has blood of type O\nLee likes the letter O most\nBoth left town\n",
        "# Notes\nKim has type O\nLee went home\n",
        "7\tKim left Oslo.\n8\tLee has type O.\n",
        "New York\nLos Angeles\n",
        "Kim left.\n" + "x" * 5000 + " O\n",
    ],
)
def test_text_is_not_read_as_columns(text: str, tmp_path: Path) -> None:
    """Nor if columns of another file are set, as in `fit --raw` with `--tag-column`."""
    path = tmp_path / "a.txt"
    path.write_text(text)
    docs = read_texts(NLP, path, ReadOptions(tag_column=2))
    assert [doc.text for doc in docs] == [line.strip() for line in text.strip().split("\n")]


# Schemes

BMES = "Kim B-PER\nJong M-PER\nIl E-PER\nOslo S-LOC\nx O\n"


@pytest.mark.parametrize(
    "text, scheme, expected",
    [
        (BMES, "BMES", [("Kim Jong Il", "PER"), ("Oslo", "LOC")]),
        ("Kim PER-B\nJong PER-I\nx O\n", "IOB2-suffix", [("Kim Jong", "PER")]),
        ("Kim PER_I\nJong PER_E\nx O\n", "IOE-suffix", [("Kim Jong", "PER")]),
        ("Kim PER\na@x.org E-MAIL\nx O\n", "IO without prefixes",
         [("Kim", "PER"), ("a@x.org", "E-MAIL")]),
        ("a S_DATE\nb E_DATE\nKim PER\nx O\n", "IO without prefixes",
         [("a", "S_DATE"), ("b", "E_DATE"), ("Kim", "PER")]),
        ("a SIZE-S\nb SIZE-L\nx O\n", "IO without prefixes", [("a", "SIZE-S"), ("b", "SIZE-L")]),
        ("Kim B-B-cell\nJong I-B-cell\nx O\n", "IOB2", [("Kim Jong", "B-cell")]),
        ("a U-LOC\nx O\n", "BILUO", [("a", "LOC")]),
    ],
)  # fmt: skip
def test_the_scheme_is_found(
    text: str, scheme: str, expected: list[tuple[str, str]], path: Path
) -> None:
    docs, info = read(path, text)
    assert info.schemes == {scheme: 1}
    assert docs[0][1] == expected
    assert entities(path, text, scheme=scheme.lower()) == expected


@pytest.mark.parametrize(
    "tags, tag",
    [
        (["B-PER", "I-O", "O"], "I-O"),
        (["B-B-PER", "I-I-PER", "O"], "B-B-PER"),
        (["O", "E-MAIL", "E-MAIL"], "E-MAIL"),
        (["B-PER", "I-PER", "E-MAIL", "O"], "E-MAIL"),
        (["B-PER", "E-PER", "E-MAIL", "O"], "E-MAIL"),
        (["S_DATE", "E_DATE", "O"], "S_DATE"),
        (["B-PER", "S-PER", "O"], "S-PER"),
        (["B-PER", "L-CARNITINE", "O"], "L-CARNITINE"),
        (["M-PER", "O"], "M-PER"),
        (["B-PER", "I-PER", "M-PER", "O"], "M-PER"),
        (["PER-B", "LOC-B", "O"], "PER-B"),
        (["b-PER", "i-PER", "O"], "b-PER"),
        (["b-PER", "O"], "b-PER"),
        (["B:PER", "I:PER", "LOC", "O"], "B:PER"),
        (["B-PER", "LOC", "O"], "LOC"),
        (["B-PER", "B_LOC", "O"], "B_LOC"),
        (["S-PER", "U-PER", "O"], "S-PER"),
    ],
)
def test_tags_that_no_scheme_or_several_explain_are_refused(
    tags: list[str], tag: str, path: Path
) -> None:
    text = "".join(f"w {tag}\n" for tag in tags)
    line = tags.index(tag) + 1

    with pytest.raises(CorpusError, match=rf"a.conll, line {line}: .*{tag}.* setting `scheme`"):
        read(path, text)
    words = [ent for _, ents in read(path, text, scheme="labels")[0] for ent in ents]
    assert {label for _, label in words} == {*tags} - {"O"}  # each tag is a label


def test_a_named_scheme_refuses_other_tags(path: Path) -> None:
    assert entities(path, "a E-MAIL\nb E-MAIL\n", scheme="IOBES") == [("a", "MAIL"), ("b", "MAIL")]
    assert entities(path, "a PER-B\nb PER-I\n", scheme="bio-suffix") == [("a b", "PER")]
    with pytest.raises(CorpusError, match=r"line 2: scheme: expected tags of IOB2 .* got 'E-MAIL'"):
        read(path, "a B-MAIL\nb E-MAIL\n", scheme="BIO")
    with pytest.raises(CorpusError, match=r"line 1: scheme: .* got 'I-O': O isn't a label"):
        read(path, "a I-O\n", scheme="IO")


def test_all_files_of_a_corpus_show_its_scheme(tmp_path: Path) -> None:
    """S-LOC alone may be a label. With B- and E- in another file it isn't."""
    (tmp_path / "a.conll").write_text("Oslo S-LOC\nx O\n")
    with pytest.raises(CorpusError, match="got 'S-LOC'"):
        read(tmp_path)
    (text_doc,) = read_texts(NLP, tmp_path)  # of texts the scheme doesn't matter
    assert [token.text for token in text_doc] == ["Oslo", "x"]
    (tmp_path / "b.conll").write_text("Kim B-PER\nJong E-PER\nx O\n")
    docs, info = read(tmp_path)
    assert [ents for _, ents in docs] == [[("Oslo", "LOC")], [("Kim Jong", "PER")]]
    assert info.schemes == {"IOBES": 2}

    (tmp_path / "b.conll").write_text("Kim PER\nx O\n")
    docs, info = read(tmp_path)
    assert [ents for _, ents in docs] == [[("Oslo", "S-LOC")], [("Kim", "PER")]]

    # The error is at the first place of the tag, in any file.
    (tmp_path / "a.conll").write_text("Kim B-PER\nx O\n")
    with pytest.raises(CorpusError, match=r"b\.conll, line 1: .* such as 'B-PER', got 'PER'"):
        read(tmp_path)


# Of each scheme: the prefixes of the first token of an entity, of those within it, of its last and
# of its only one.
PREFIXES = {
    "IOB2": "BIIB",
    "BILUO": "BILU",
    "IOBES": "BIES",
    "BMES": "BMES",
    "IOE": "IIEE",
}


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("scheme", PREFIXES)
def test_random_entities_are_read_as_they_were_written(
    scheme: str, is_behind: bool, path: Path
) -> None:
    """`scripts/compare_schemes.py` compares many more with seqeval."""
    rng = random.Random(scheme)
    first, inner, last, only = PREFIXES[scheme]
    lines: list[str] = []
    written: list[tuple[str, str]] = []
    for i in range(300):
        n = rng.randint(1, 4)
        label = rng.choice(["PER", "E-MAIL", "I"])
        words = [f"w{i}-{k}" for k in range(n)]
        prefixes = only if n == 1 else first + inner * (n - 2) + last
        for word, prefix in zip(words, prefixes):
            tag = f"{label}-{prefix}" if is_behind else f"{prefix}-{label}"
            lines.append(f"{word} {tag}\n")
        written.append((" ".join(words), label))
        lines.append(rng.choice(["", "x O\n", "\n"]))

    docs, info = read(path, "".join(lines))

    assert [ent for _, ents in docs for ent in ents] == written
    assert info.schemes == {scheme + "-suffix" * is_behind: 1} and not info.problems


# What is printed, and the settings of commands

CONFIG = """
[paths]
train = {path}
dev = {path}
[nlp]
lang = "xx"
pipeline = ["ner"]
[components]
[components.ner]
factory = "cost_sensitive_ner"
[corpora]
[corpora.train]
@readers = "spacy_costner.read.v1"
path = ${{paths.train}}
[corpora.dev]
@readers = "spacy_costner.read.v1"
path = ${{paths.dev}}
[training]
"""


def test_convert_and_check_print_a_line_for_each_corpus(path: Path) -> None:
    path.write_text(GERMEVAL)
    columns = "token in column 2, tag in column 3; column 1 numbers tokens"
    line = f"a.conll: 4 columns, separated by blanks, IOB2 tags; {columns}; column 4 has tags, too"

    output = path.with_suffix(".spacy")
    converted = run("convert", path, output)
    assert converted.output.startswith(line)
    assert "(tag_column); 1 docs; 1 entities (PER 1)\n" in converted.output
    assert "comments are left out (1)\n" in converted.output
    config = path.with_suffix(".cfg")
    config.write_text(CONFIG.format(path=json.dumps(str(path))))
    checked = run("check", config, "--tag-column", 4)
    for corpus in ("train", "dev"):
        assert f"{corpus}: 4 columns, separated by blanks, IOB2 tags; " in checked.output
    assert "tag in column 4; " in checked.output and "1 entities (LOC 1)" in checked.output

    as_json = json.loads(run("convert", path, output, "--scheme", "BIO", "--json").stdout)["corpus"]
    assert as_json["labels"] == {"PER": 1} and as_json["schemes"] == {"IOB2": 1}
    (problem,) = as_json["problems"]
    assert problem["places"][0].startswith(f"{path}, line 1: # http")
    as_json = json.loads(run("check", config, "--json").stdout)["corpora"]
    assert as_json["dev"]["docs"] == as_json["train"]["entities"] == 1


@pytest.mark.filterwarnings("default:comments are left out")
def test_fit_reads_as_told_and_prints_how(path: Path) -> None:
    path.write_text("a1 Kim B-PER\na1 left O\na1 now O\n\n" * 5 + "# the end\n")
    output = path.with_suffix("")

    refused = run("fit", "--train", path, "-o", output, "--lang", "xx")
    assert refused.exit_code == 1 and "the setting --token-column" in refused.output
    options = ["--train", path, "--dev", path, "-o", output, "--lang", "xx", "--token-column", 2]
    result = run("fit", *options)
    assert result.exit_code == 0, result.output
    line = "3 columns, separated by blanks, IOB2 tags; token in column 2, tag in column 3; 5 docs; "
    for corpus in ("train", "dev"):
        assert f"{corpus}: {line}5 entities (PER 5)\n" in result.output
    warning = f"Warning: comments are left out (1); {path}, line 21: # the end\n"
    assert result.output.count(warning) == 1
    config = Config().from_disk(output / "config.cfg", interpolate=False)
    assert config["corpora"]["train"]["token_column"] == 2

    # The model is measured on the same columns. In other commands, problems are warnings.
    path.write_text(path.read_text().replace("# the end\n", ""))
    report = ["calibrate", output / "model-best", path, "-o", output / "calibrated"]
    assert run(*report).exit_code == 1
    assert run(*report, "--token-column", 2).exit_code == 0


def test_options_become_settings_of_our_readers() -> None:
    reading = ReadOptions(token_column=2, tag_column="name", scheme="BIO")
    text = CONFIG.format(path="null")
    config = with_reading(Config().from_str(text, interpolate=False), reading)

    for corpus in ("train", "dev"):
        block = dict(config["corpora"][corpus])
        del block["@readers"], block["path"]
        assert block == {"token_column": 2, "tag_column": "name", "scheme": "IOB2"}
    with pytest.raises(ValueError, match=r"token_column and .*: expected a config with the reader"):
        with_reading(Config({"corpora": {}}), reading)


def test_the_reader_has_these_settings(path: Path) -> None:
    path.write_text("PER-B Kim\nPER-I Jong\n")
    settings = {"token_column": 2, "tag_column": 1, "scheme": "BIO-suffix"}
    (eg,) = make_reader(path, **settings)(NLP)  # type: ignore[arg-type]
    assert [ent.text for ent in eg.reference.ents] == ["Kim Jong"]
    settings = {"token_column": 2, "column": 1}  # the name up to 0.3.0
    (eg,) = make_reader(path, **settings)(NLP)  # type: ignore[arg-type]
    assert [ent.text for ent in eg.reference.ents] == ["Kim Jong"]
