"""Features of tokens, against a slow and obvious version of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import srsly
from spacy.tokens import Doc, Token
from spacy.vocab import Vocab

from spacy_costner.features import Features, Template
from spacy_costner.features.gazetteers import Gazetteer
from spacy_costner.features.template import ATTRIBUTES
from spacy_costner.features.words import character_type, flag

from ..support.linear import found_names
from ..support.vocabs import blank_vocab

VOCAB = blank_vocab()
PHRASES = "new york\nYork\nnew york city\n\nIl-2\n"


def doc(*tagged: str) -> Doc:
    """A doc of tokens such as "York/PROPN": the word, and after the slash its tag and part of
    speech."""
    words = []
    tags = []
    for token in tagged:
        word, tag = token.rsplit("/", 1)
        words.append(word)
        tags.append(tag)
    return Doc(VOCAB, words=words, tags=tags, pos=tags)


TRAIN = [
    doc("In/ADP", "New/PROPN", "York/PROPN", "City/PROPN", "12/NUM", "IL-2/PROPN", "in/ADP"),
    doc(),
    doc("york/PROPN"),
    doc("in/ADP", "New/PROPN", "in/ADP", "New/PROPN", "./PUNCT"),
]
NEW = [
    doc("In/ADP", "Yorkshire/PROPN", "12/X", "new/ADJ", "york/PROPN"),
    doc(),
    doc("New/PROPN"),
    doc("YORK/X"),
]
TEMPLATE: dict[str, Any] = {
    "windows": {
        "ORTH": 2, "LOWER": 1, "SHAPE": 0, "prefix": 1, "suffix": 0, "flags": 1, "TAG": 1,
        "POS": 0, "NORM": 0, "character_type": 1, "_.source": 1, "caseless": 1,
    },
    "affixes": (2, 3),
    "flags": ("IS_TITLE", "has_hyphen", "has_digit", "IS_STOP"),
    "bigrams": {"LOWER": 1, "TAG": 2},
}  # fmt: skip


@pytest.fixture(autouse=True)
def source() -> Iterator[None]:
    """An extension attribute that says which list a word is in."""
    Token.set_extension("source", getter=lambda token: {"York": "places", "12": 12}.get(token.text))
    yield
    Token.remove_extension("source")


FLAGS: dict[str, Callable[[Token], bool]] = {
    "IS_TITLE": lambda token: token.is_title,
    "IS_STOP": lambda token: token.is_stop,
    "has_hyphen": lambda token: "-" in token.text,
    "has_digit": lambda token: any(character in "0123456789" for character in token.text),
}


def slow_values(token: Token) -> dict[str, str | None]:
    """The value of a token in each column of `TEMPLATE`, None if it has none."""
    letters = [character for character in token.doc.text if character.isalpha()]
    has_one_case = len({letter.isupper() for letter in letters}) == 1
    values = {
        "ORTH": token.text,
        "LOWER": token.text.lower(),
        "SHAPE": token.shape_,
        "NORM": token.norm_,
        "TAG": token.tag_,
        "POS": token.pos_,
        "character_type": character_type(token.text),
        "_.source": str(token._.source) if token._.source else None,
        "caseless": token.lower_ if has_one_case else None,
    }

    for name, has_flag in FLAGS.items():
        values[name] = "yes" if has_flag(token) else None
    for size in TEMPLATE["affixes"]:
        is_long_enough = len(token.text) >= size
        values[f"prefix{size}"] = token.text[:size] if is_long_enough else None
        values[f"suffix{size}"] = token.text[-size:] if is_long_enough else None
    return values


def columns_of(kind: str) -> list[str]:
    """The names of the columns of a kind in windows."""
    if kind in ("prefix", "suffix"):
        return [f"{kind}{size}" for size in TEMPLATE["affixes"]]
    if kind == "flags":
        return list(TEMPLATE["flags"])
    return [kind]


def slow_features(doc: Doc, i: int, frequent: dict[str, set[str]]) -> list[str]:
    """The names of the features of token i of a doc, by definition. `frequent` has the values of
    each column that are frequent in training."""
    names = []
    for kind, window in TEMPLATE["windows"].items():
        for column in columns_of(kind):
            for j in range(max(i - window, 0), min(i + window + 1, len(doc))):
                value = slow_values(doc[j])[column]
                offset = f"[{j - i:+d}]" if j != i else ""
                if value in frequent[column]:
                    names.append(f"{column}{offset}={value}")
    for kind, window in TEMPLATE["bigrams"].items():
        # Pairs that begin in the window and end in it.
        for j in range(max(i - window, 0), min(i + window, len(doc) - 1)):
            left = slow_values(doc[j])[kind]
            right = slow_values(doc[j + 1])[kind]
            pair = f"{left}+{right}"
            if pair in frequent[f"{kind}+{kind}"]:
                names.append(f"{kind}+{kind}[{j - i:+d},{j - i + 1:+d}]={pair}")
    return names


def frequent_values(min_count: int) -> dict[str, set[str]]:
    """The values of each column that occur at least `min_count` times in the training docs, and the
    pairs of neighbours. The values of a pair are frequent themselves."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for doc in TRAIN:
        for token in doc:
            for column, value in slow_values(token).items():
                if value:
                    counts[column][value] += 1

    for doc in TRAIN:
        for left, right in pairwise([slow_values(token) for token in doc]):
            for kind in TEMPLATE["bigrams"]:
                left_count = counts[kind][left[kind] or ""]
                right_count = counts[kind][right[kind] or ""]
                if min(left_count, right_count) >= min_count:
                    counts[f"{kind}+{kind}"][f"{left[kind]}+{right[kind]}"] += 1

    frequent: dict[str, set[str]] = defaultdict(set)
    for column, column_counts in counts.items():
        frequent[column] = {value for value, n in column_counts.items() if n >= min_count}
    return frequent


def with_vocab(**settings: Any) -> Features:
    """The features of `TEMPLATE` with other settings, learned from `TRAIN`."""
    features = Features(Template(**{**TEMPLATE, **settings}))
    features.build_vocab(TRAIN)
    return features


@pytest.mark.parametrize("docs", [TRAIN, NEW], ids=["train", "new"])
@pytest.mark.parametrize("min_count", [1, 2])
def test_features_are_those_of_the_slow_version(docs: list[Doc], min_count: int) -> None:
    features = with_vocab(min_count=min_count)
    frequent = frequent_values(min_count)
    expected = []
    for doc in docs:
        for token in doc:
            expected.append(sorted(slow_features(doc, token.i, frequent)))
    assert found_names(features, docs) == expected
    assert any(expected), "there is nothing to compare"


def test_no_docs_and_empty_docs_have_no_rows() -> None:
    features = with_vocab()
    assert len(features.find([]).rows) == 0
    assert len(features.find([doc()]).rows) == 0


def test_without_training_docs_there_are_no_features() -> None:
    features = Features(Template())
    features.build_vocab([])
    assert len(features) == 0
    assert (features.find(NEW).rows == -1).all()


def test_each_kind_has_its_own_least_count() -> None:
    """In `TRAIN`, only "in" and "New" occur three times as they are written, and only "in new" is a
    pair of words that occurs twice. Kinds that aren't named have a least count of 1."""
    names = with_vocab(min_count={"ORTH": 3, "LOWER+LOWER": 2}).names()
    assert {name for name in names if name.startswith("ORTH=")} == {"ORTH=New", "ORTH=in"}
    pairs = {name for name in names if name.startswith("LOWER+LOWER[+0")}
    assert pairs == {"LOWER+LOWER[+0,+1]=in+new"}
    assert "LOWER=." in names


def gazetteer(tmp_path: Path) -> Features:
    """Features of the phrases in `PHRASES`. The file that they were read from is gone."""
    path = tmp_path / "places.txt"
    path.write_text(PHRASES, encoding="utf8")
    features = Features(Template(windows={"gazetteer": 0}, gazetteers={"places": str(path)}))
    features.build_vocab(TRAIN)
    path.unlink()
    return features


def test_gazetteers_find_the_longest_phrase(tmp_path: Path) -> None:
    """A token of a phrase has its position in the phrase as a feature: it is the first, an inner,
    the last or the only token (B, I, L, U). Upper and lower case are the same. "New York City" is
    found, though "New York" is a phrase, too."""
    positions = []
    for names in found_names(gazetteer(tmp_path), TRAIN):
        # A token has one feature or none.
        positions.append("".join(name.removeprefix("gazetteer:places=") for name in names))
    in_new_york_city_12_il2_in = ["", "B", "I", "L", "", "U", ""]
    york = ["U"]
    in_new_in_new = ["", "", "", "", ""]  # the last token is "."
    assert positions == [*in_new_york_city_12_il2_in, *york, *in_new_in_new]


def test_a_byte_order_mark_is_not_part_of_a_phrase(tmp_path: Path) -> None:
    path = tmp_path / "places.txt"
    path.write_bytes(b"\xef\xbb\xbfNew York\r\nOslo\r\n")
    assert Gazetteer.from_file(path).phrases == ["New York", "Oslo"]


def test_saved_gazetteers_find_the_same(tmp_path: Path) -> None:
    features = gazetteer(tmp_path)
    loaded = Features(features.template).from_bytes(features.to_bytes())
    assert found_names(loaded, NEW) == found_names(features, NEW)


def test_damaged_features_are_refused() -> None:
    features = with_vocab()
    data = features.to_bytes()
    for damaged in (data[: len(data) // 2], b"", srsly.msgpack_dumps({"values": 3})):
        with pytest.raises(ValueError, match="features of a linear CRF: expected saved features"):
            Features(features.template).from_bytes(damaged)


def test_features_of_another_template_are_refused() -> None:
    """The message has the columns of the config with their offsets: here only the word itself."""
    data = with_vocab().to_bytes()
    with pytest.raises(ValueError, match=r"columns of the config, \[\['ORTH', \[0\]\]\]"):
        Features(Template(windows={"ORTH": 0})).from_bytes(data)


def test_words_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache may have too many words after a batch, but then begins again: it has at most those
    of one doc more. The longest doc of `TRAIN` has 7 words."""
    expected = found_names(with_vocab(), TRAIN)
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_CACHED_WORDS", 2)
    features = with_vocab()
    for _ in range(2):
        names = [name for doc in TRAIN for name in found_names(features, [doc])]
        assert names == expected
    assert features.lookup._word_cache.n_words <= 7


def without_annotation() -> Features:
    """The features of `TEMPLATE` that need no tags, learned from `TRAIN`, with an empty cache."""
    windows = {**TEMPLATE["windows"], "TAG": 0, "POS": 0, "NORM": 0}
    return with_vocab(bigrams=None, windows=windows)


def find_rows(docs: list[Doc], features: Features, *, by_word: bool) -> list[list[int]]:
    """The rows of the tokens of docs or, with `by_word`, what the cache has of their words."""
    batch = features.find(docs, by_word=by_word)
    if batch.word_cache is None:
        return batch.rows.tolist()
    return batch.word_cache.table[batch.word_ids].tolist()


@pytest.mark.parametrize("by_word", [False, True])
def test_features_of_a_doc_are_those_of_its_vocab(by_word: bool) -> None:
    """A bare vocab has no lower case, no shapes and no stop words. Docs of a bare vocab and docs of
    the pipeline's vocab don't change each other's features, whichever are found first, and in one
    batch."""
    bare_docs = [Doc(Vocab(), words=[token.text for token in doc]) for doc in NEW]
    rows = find_rows(NEW, without_annotation(), by_word=by_word)
    bare_rows = find_rows(bare_docs, without_annotation(), by_word=by_word)
    assert rows != bare_rows
    features = without_annotation()
    for _ in range(2):
        assert find_rows(bare_docs, features, by_word=by_word) == bare_rows
        assert find_rows(NEW, features, by_word=by_word) == rows
    in_one_batch = find_rows([*NEW, *bare_docs], without_annotation(), by_word=by_word)
    assert in_one_batch == rows + bare_rows
    bare_docs_first = find_rows([*bare_docs, *NEW], without_annotation(), by_word=by_word)
    assert bare_docs_first == bare_rows + rows


@pytest.mark.parametrize("bare_first", [False, True])
def test_training_docs_may_have_several_vocabs(bare_first: bool) -> None:
    """A vocab computes the attributes of its words, such as their lower case. A bare vocab knows no
    lower case. So "Lima", which is only in the doc with the bare vocab, has no feature of its lower
    case. "York" has one, as it is also in a doc with another vocab. The order of the docs doesn't
    matter."""
    bare_doc = Doc(Vocab(), words=["Lima", "York"])
    docs = [*TRAIN, bare_doc]
    if bare_first:
        docs = [bare_doc, *TRAIN]
    features = Features(Template(windows={"ORTH": 0, "LOWER": 0, "TAG": 0}))

    features.build_vocab(docs)

    names = set(features.names())
    assert {"ORTH=Lima", "ORTH=New", "LOWER=new", "LOWER=york", "TAG=NUM"} <= names
    assert "LOWER=lima" not in names


def test_too_many_features_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real limit is the number of rows that 32 bits can count. Here it is 5."""
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_ROWS", 5)
    with pytest.raises(ValueError, match=r"linear CRF: expected at most 5, got \d+"):
        with_vocab(bigrams=None).find(NEW)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"windows": {"WORD": 1}}, r"windows: expected one of ORTH.*got 'WORD'"),
        ({"windows": {"ORTH": -1}}, r"windows\.ORTH: expected a whole number of at least 0"),
        ({"windows": {"_.": 1}}, r"windows: expected one of"),
        ({"windows": {"CLUSTER": 1}}, r"windows: expected one of ORTH.*got 'CLUSTER'"),
        ({"bigrams": {"words": 1}}, r"bigrams: expected one of ORTH"),
        ({"bigrams": {"LOWER": 0}}, r"bigrams\.LOWER: expected a whole number of at least 1"),
        ({"bigrams": {"TAG": 1}}, r"bigrams: expected one of the kinds in windows, .*'TAG'"),
        ({"vectors": [8], "bigrams": {"vectors": 1}}, r"bigrams: expected one of ORTH.*'vectors'"),
        ({"affixes": [0]}, r"affixes: expected a whole number of at least 1, got 0"),
        ({"flags": ["IS_NICE"]}, r"flags: expected one of .*IS_TITLE.*got 'IS_NICE'"),
        ({"min_count": 0}, r"min_count: expected a whole number of at least 1"),
        ({"min_count": {"ORTHO": 2}}, r"min_count: expected one of .*ORTH.*got 'ORTHO'"),
        ({"vectors": [0]}, r"vectors: expected a whole number of at least 1, got 0"),
        (
            {"clusters": ["a/p.json", "b/p.txt"]},
            "clusters: expected files with different names, got",
        ),
        ({"memory": {"LOWER": -1}}, r"memory\.LOWER: expected a whole number of at least 0"),
        ({"memory": {"prefix": 1}}, r"memory: expected one of ORTH.*got 'prefix'"),
        ({"memory_unit": 0}, r"memory_unit: expected 'doc', a number of docs or.*got 0"),
        ({"memory_unit": "article"}, r"memory_unit: expected 'doc'.*_\.name, got 'article'"),
        ({"elsewhere": {"LOWER": 0}}, r"elsewhere\.LOWER: expected a whole number of at least 1"),
        ({"elsewhere": {"suffix": 1}}, r"elsewhere: expected one of ORTH.*got 'suffix'"),
        ({"elsewhere": {"TAG": 1}}, r"elsewhere: expected one of the kinds in windows.*'TAG'"),
    ],
)
def test_bad_templates_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"spacy_costner.Features: {message}"):
        Template(**settings)


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_spacy_has_each_attribute(attribute: str) -> None:
    features = Features(Template(windows={attribute: 0}))
    features.build_vocab(TRAIN)
    assert len(features.find(NEW).rows) == sum(len(doc) for doc in NEW)


def test_a_missing_gazetteer_is_named(tmp_path: Path) -> None:
    features = Features(Template(gazetteers={"places": str(tmp_path / "no.txt")}))
    with pytest.raises(ValueError, match=r"gazetteers: expected a UTF-8 text file.*no\.txt"):
        features.build_vocab(TRAIN)


def test_features_without_a_vocabulary_say_so() -> None:
    with pytest.raises(ValueError, match=r"expected a vocabulary, made by `nlp\.initialize`"):
        Features(Template()).find(NEW)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            Template(memory={"LOWER": 0}, memory_unit="_.page"),
            r"memory_unit: .*, registered with Doc\.set_extension, got '_\.page'",
        ),
        (Template(windows={"_.nothing": 0}), r"with Token\.set_extension, got '_\.nothing'"),
    ],
    ids=["of docs", "of tokens"],
)
def test_missing_extension_attributes_are_named(template: Template, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Features(template).build_vocab(TRAIN)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (",", "comma"), ("...", "full stop"), ("(", "bracket"), ("--", "punctuation"),
        ("XIV", "Roman numeral"), ("II", "Roman numeral"), ("beta", "Greek letter"),
        ("β", "Greek letter"), ("AACAAAG", "base sequence"), ("5", "one digit"),
        ("60", "digits"), ("1,25", "number"), ("0.5", "number"), ("T", "one capital"),
        ("CSF", "capitals"), ("All", "capitalised"), ("kinase", "lower case"),
        ("IgM", "mixed case"), ("kDa", "mixed case"), ("Il-2", "letters, then digits"),
        ("T4", "letters, then digits"), ("19D", "digits, then letters"), ("6C2", "other"),
        ("Éric", "capitalised"), ("año", "lower case"),
    ],
)  # fmt: skip
def test_each_word_has_its_character_type(word: str, expected: str) -> None:
    assert character_type(word) == expected


@pytest.mark.parametrize("word, expected", [("Sr.", "yes"), (".", "yes"), ("3.5", None)])
def test_words_that_end_with_a_period_have_the_flag(word: str, expected: str | None) -> None:
    assert flag("ends_with_period").value_of(VOCAB[word], word) == expected
