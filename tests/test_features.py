"""Features of tokens, against a slow and obvious version of them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
from spacy.tokens import Doc, Token
from spacy.vocab import Vocab

from spacy_costner.features import Features, Template
from spacy_costner.features.words import character_type, flag

from .support.linear import found_names

VOCAB = spacy.blank("xx").vocab
PHRASES = "new york\nYork\nnew york city\n\nIl-2\n"


def doc(*tagged: str) -> Doc:
    """A doc of word/TAG."""
    pairs = [token.rsplit("/", 1) for token in tagged]
    tags = [tag for _, tag in pairs]
    return Doc(VOCAB, words=[word for word, _ in pairs], tags=tags, pos=tags)


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
    """An extension attribute: which list a word is in."""
    Token.set_extension("source", getter=lambda token: {"York": "places", "12": 12}.get(token.text))
    yield
    Token.remove_extension("source")


FLAGS: dict[str, Callable[[Token], bool]] = {
    "IS_TITLE": lambda token: token.is_title,
    "IS_STOP": lambda token: token.is_stop,
    "has_hyphen": lambda token: "-" in token.text,
    "has_digit": lambda token: any(character in "0123456789" for character in token.text),
}


def values(token: Token) -> dict[str, str | None]:
    """All that is to be seen of a token."""
    letters = [character for character in token.doc.text if character.isalpha()]
    seen = {
        "ORTH": token.text,
        "LOWER": token.text.lower(),
        "SHAPE": token.shape_,
        "NORM": token.norm_,
        "TAG": token.tag_,
        "POS": token.pos_,
        "character_type": character_type(token.text),
        "_.source": str(token._.source) if token._.source else None,
        "caseless": token.lower_ if len({c.isupper() for c in letters}) == 1 else None,
        **{name: "yes" if is_so(token) else None for name, is_so in FLAGS.items()},
    }  # fmt: skip
    for size in TEMPLATE["affixes"]:
        long_enough = len(token.text) >= size
        seen[f"prefix{size}"] = token.text[:size] if long_enough else None
        seen[f"suffix{size}"] = token.text[-size:] if long_enough else None
    return seen


def columns_of(kind: str) -> list[str]:
    if kind in ("prefix", "suffix"):
        return [f"{kind}{size}" for size in TEMPLATE["affixes"]]
    return list(TEMPLATE["flags"]) if kind == "flags" else [kind]


def name_of(column: str, offset: int, value: str) -> str:
    return f"{column}[{offset:+d}]={value}" if offset else f"{column}={value}"


def slow_features(doc: Doc, i: int) -> list[str]:
    """The names of the features of a token, known ones and others."""
    found = []
    for kind, window in TEMPLATE["windows"].items():
        for column in columns_of(kind):
            for j in range(max(i - window, 0), min(i + window + 1, len(doc))):
                value = values(doc[j])[column]
                found += [name_of(column, j - i, value)] if value else []
    for kind, window in TEMPLATE["bigrams"].items():
        for j in range(max(i - window, 0), min(i + window, len(doc) - 1)):
            left, right = values(doc[j])[kind], values(doc[j + 1])[kind]
            if left and right:
                found.append(f"{kind}+{kind}[{j - i:+d},{j - i + 1:+d}]={left}+{right}")
    return found


def known_values(min_count: int) -> dict[str, set[str | None]]:
    """How often each value of a column, and each pair of such, is in the training docs."""
    counts: dict[str, Counter] = defaultdict(Counter)
    seen = [[values(token) for token in doc] for doc in TRAIN]
    for token in chain.from_iterable(seen):
        for column, value in token.items():
            counts[column][value] += bool(value)
    single = {column: dict(counter) for column, counter in counts.items()}
    for left, right in chain.from_iterable(map(pairwise, seen)):
        for kind in TEMPLATE["bigrams"]:
            if min(single[kind][side[kind]] for side in (left, right)) >= min_count:
                counts[f"{kind}+{kind}"][f"{left[kind]}+{right[kind]}"] += 1
    return {name: {x for x in each if each[x] >= min_count} for name, each in counts.items()}


def with_vocab(**settings: Any) -> Features:
    features = Features(Template(**{**TEMPLATE, **settings}))
    features.build_vocab(TRAIN)
    return features


@pytest.mark.parametrize("docs", [TRAIN, NEW], ids=["train", "new"])
@pytest.mark.parametrize("min_count", [1, 2])
def test_features_are_those_of_the_slow_version(docs: list[Doc], min_count: int) -> None:
    features, known = with_vocab(min_count=min_count), known_values(min_count)
    expected = []
    for token in chain.from_iterable(docs):
        slow = [name.split("=", 1) for name in slow_features(token.doc, token.i)]
        some = [name for name in slow if name[1] in known[name[0].split("[")[0]]]
        expected.append(sorted(map("=".join, some)))
    assert found_names(features, docs) == expected
    assert any(expected), "there is nothing to compare"


def test_no_docs_have_no_rows() -> None:
    features = with_vocab()
    assert len(features.find([]).rows) == len(features.find([doc()]).rows) == 0
    nothing = Features(Template())
    nothing.build_vocab([])
    assert len(nothing) == 0 and (nothing.find(NEW).rows == -1).all()


def test_min_count_by_kind() -> None:
    names = with_vocab(min_count={"ORTH": 3, "LOWER+LOWER": 2}).names()
    assert {name for name in names if name.startswith("ORTH=")} == {"ORTH=New", "ORTH=in"}
    pairs = {name for name in names if name.startswith("LOWER+LOWER[+0")}
    assert pairs == {"LOWER+LOWER[+0,+1]=in+new"} and "LOWER=." in names


def test_gazetteers_find_the_longest_phrase(tmp_path: Path) -> None:
    path = tmp_path / "places.txt"
    path.write_text(PHRASES, encoding="utf8")
    features = Features(Template(windows={"gazetteer": 0}, gazetteers={"places": str(path)}))
    features.build_vocab(TRAIN)
    path.unlink()
    places = [name[0].removeprefix("gazetteer:places=") if name else "" for name in
              found_names(features, TRAIN)]  # fmt: skip
    assert places == ["", "B", "I", "L", "", "U", "", "U", *[""] * 5]
    again = Features(features.template).from_bytes(features.to_bytes())
    assert found_names(again, NEW) == found_names(features, NEW)


def test_damaged_features_are_refused() -> None:
    features = with_vocab()
    data = features.to_bytes()
    for damaged in (data[: len(data) // 2], b"", srsly.msgpack_dumps({"values": 3})):
        with pytest.raises(ValueError, match="features of a linear CRF: expected what was saved"):
            Features(features.template).from_bytes(damaged)
    with pytest.raises(ValueError, match=r"expected those of the config, \[\['ORTH', \[0\]\]\]"):
        Features(Template(windows={"ORTH": 0})).from_bytes(data)


def test_words_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_WORDS", 2)
    features = with_vocab()
    expected = found_names(with_vocab(), TRAIN)
    for _ in range(2):
        assert [name for doc in TRAIN for name in found_names(features, [doc])] == expected
    assert features.lookup._word_cache.n_words <= 7


@pytest.mark.parametrize("by_word", [False, True])
def test_features_of_a_doc_are_those_of_its_vocab(by_word: bool) -> None:
    """A bare vocab has no lower case, shapes and stop words. Neither its docs nor those of the
    pipeline change what the others see, whoever comes first, and in one batch."""
    bare_docs = [Doc(Vocab(), words=[token.text for token in doc]) for doc in NEW]
    windows = {**TEMPLATE["windows"], "TAG": 0, "POS": 0, "NORM": 0}

    def fresh_features() -> Features:
        return with_vocab(bigrams=None, windows=windows)

    def find_rows(docs: list[Doc], features: Features) -> list[list[int]]:
        batch = features.find(docs, by_word=by_word)
        if batch.word_cache is None:
            return batch.rows.tolist()
        return batch.word_cache.table[batch.word_ids].tolist()

    rows = find_rows(NEW, fresh_features())
    bare_rows = find_rows(bare_docs, fresh_features())
    assert rows != bare_rows
    features = fresh_features()
    for _ in range(2):
        assert find_rows(bare_docs, features) == bare_rows
        assert find_rows(NEW, features) == rows
    assert find_rows([*NEW, *bare_docs], fresh_features()) == rows + bare_rows
    assert find_rows([*bare_docs, *NEW], fresh_features()) == bare_rows + rows


@pytest.mark.parametrize("bare_first", [False, True])
def test_training_docs_of_several_vocabs(bare_first: bool) -> None:
    """Each word is counted as the vocab of its doc has it."""
    bare = [Doc(Vocab(), words=["Lima", "York"])]
    docs = [*bare, *TRAIN] if bare_first else [*TRAIN, *bare]
    features = Features(Template(windows={"ORTH": 0, "LOWER": 0, "TAG": 0}))
    features.build_vocab(docs)
    names = set(features.names())
    assert {"ORTH=Lima", "ORTH=New", "LOWER=new", "LOWER=york", "TAG=NUM"} <= names
    assert "LOWER=lima" not in names


def test_features_have_numbers_in_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spacy_costner.features.lookup.MOST_ROWS", 5)
    with pytest.raises(ValueError, match=r"linear CRF: expected at most 5, got \d+"):
        with_vocab(bigrams=None).find(NEW)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"windows": {"WORD": 1}}, r"windows: expected some of ORTH.*got 'WORD'"),
        ({"windows": {"ORTH": -1}}, r"windows\.ORTH: expected a whole number of at least 0"),
        ({"windows": {"_.": 1}}, r"windows: expected some of"),
        ({"bigrams": {"words": 1}}, r"bigrams: expected some of ORTH"),
        ({"bigrams": {"LOWER": 0}}, r"bigrams\.LOWER: expected a whole number of at least 1"),
        ({"bigrams": {"TAG": 1}}, r"bigrams: expected some of the kinds in windows, .*'TAG'"),
        ({"affixes": [0]}, r"affixes: expected a whole number of at least 1, got 0"),
        ({"flags": ["IS_NICE"]}, r"flags: expected some of .*IS_TITLE.*got 'IS_NICE'"),
        ({"min_count": 0}, r"min_count: expected a whole number of at least 1"),
        ({"min_count": {"ORTHO": 2}}, r"min_count: expected some of .*ORTH.*got 'ORTHO'"),
        ({"vectors": [0]}, r"vectors: expected a whole number of at least 1, got 0"),
        ({"clusters": ["a/p.json", "b/p.txt"]}, "clusters: expected files of different names, got"),
        ({"memory": {"LOWER": -1}}, r"memory\.LOWER: expected a whole number of at least 0"),
        ({"memory": {"prefix": 1}}, r"memory: expected some of ORTH.*got 'prefix'"),
        ({"memory_unit": 0}, r"memory_unit: expected 'doc', a number of docs or.*got 0"),
        ({"memory_unit": "article"}, r"memory_unit: expected 'doc'.*_\.name, got 'article'"),
        ({"elsewhere": {"LOWER": 0}}, r"elsewhere\.LOWER: expected a whole number of at least 1"),
        ({"elsewhere": {"suffix": 1}}, r"elsewhere: expected some of ORTH.*got 'suffix'"),
        ({"elsewhere": {"TAG": 1}}, r"elsewhere: expected some of the kinds in windows.*'TAG'"),
    ],
)
def test_bad_templates_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"spacy_costner.Features: {message}"):
        Template(**settings)


def test_what_features_need_is_named(tmp_path: Path) -> None:
    features = Features(Template(gazetteers={"places": str(tmp_path / "no.txt")}))
    with pytest.raises(ValueError, match=r"gazetteers: expected a text file.*no\.txt"):
        features.build_vocab(TRAIN)
    with pytest.raises(ValueError, match="expected a vocabulary"):
        Features(Template()).find(NEW)
    with pytest.raises(ValueError, match=r"memory_unit: expected _\.page to be set with Doc"):
        Features(Template(memory={"LOWER": 0}, memory_unit="_.page")).build_vocab(TRAIN)
    features = Features(Template(windows={"_.nothing": 0}))
    with pytest.raises(ValueError, match=r"expected _\.nothing to be set with Token"):
        features.build_vocab(TRAIN)


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
def test_character_types(word: str, expected: str) -> None:
    assert character_type(word) == expected


@pytest.mark.parametrize("word, expected", [("Sr.", "yes"), (".", "yes"), ("3.5", None)])
def test_words_that_end_with_a_period(word: str, expected: str | None) -> None:
    assert flag("ends_with_period").value_of(VOCAB[word], word) == expected
