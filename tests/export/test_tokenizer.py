"""spaCy's tokenizer in JavaScript: the same tokens as in Python."""
# ruff: noqa: RUF001

import ast
import json
import lzma
import random
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.lang.char_classes import ALPHA
from spacy.language import Language
from spacy.tokenizer import Tokenizer

from spacy_costner.export.tokenizer import describe_tokenizer

from ..support.node import Node, needs_node, node
from ..support.web import utf16_places

LANGUAGES = ["es", "en", "de", "nl"]
SPACY_TESTS = Path(spacy.__file__).parent / "tests"
ROOT = Path(__file__).parents[2]
CORPORA = [ROOT / "assets", ROOT.parent / "shared" / "data"]
"""Folders that may have corpora. `costner page` is tested on them if they exist."""

SPACES = [
    "",
    " ",
    "   ",
    "\n",
    " \n\n a  b\tc \r\n d ",
    "a\u00a0b\u2003\u2003c\u3000d",
    "\x1c\x1d a\x85b\ufeffc\u200bd\u180ee\u2028f",
]
HARD = [
    "Años 1990–2000 (p. ej., «¿qué?»): 3,5 % y 1.000 km²…",
    "| Nombre | Edad |\n|--------|-----:|\n| Ana-María | 42 |\t€5",
    "👩\u200d👩\u200d👧 :-) <3 😀😀🇪🇸 ✌🏽",
    "e\u0301 n\u0303 Zu\u0308rich \u0345",
    "\u202eabc\u202c שָׁלוֹם (مرحبا) 中文。ｶﾅ",
    "𝔘𝔫𝔦 𝟜𝟚 🄰",
    "http://a.de/b?c=d#e, www.x.com; a.b@c.es. 10.0.0.1/24",
    "«(\"'U.S.'\")».",
    "=" * 500 + " " + "ab" * 500 + "..." * 300,
]
FRAMES = [
    "({})",
    "«{}».",
    "{},",
    "'{}'s",
    "x{}",
    "{}x",
    "{}-{}",
    "{}/{}",
    "_{}_…",
    "{}{}",
    "¿{} {}?",
    "5{}%",
]
"""Texts that may be next to special cases."""

WORDS = "... -- km cm² US$ http://a.de/b a@b.es 1.000,5 U.S. d.h. :-) <3 n't 'll p.ej. a.u.b."
ATOMS = [
    *".,;:!?()[]{}<>\"'’‘“”„«»…-–—~_/\\|*#&@%$€£°+=^0159aAbBéñßÖzZ \n\t",
    *"😀שלוםﬁ中文𝔘İſ\u202e\u200d\ufe0f\u00ad\u0301",
    *WORDS.split(),
    "z. B.",
]
"""Pieces from which random texts are made."""

SCRIPT = """
import { makeTokenizer } from "${MODULES}/tokenizer.js";
let tokenize = null;
function answer({ description, texts }) {
  tokenize = description === undefined ? tokenize : makeTokenizer(description);
  return texts.map((text) => tokenize(text).map(({ start, end, space }) => [start, end, space]));
}
"""


def copy_of(tokens: list[Any], text: str) -> list[list[Any]]:
    """The tokens of a doc in UTF-16 units: begin, end, and whether a space follows."""
    places = utf16_places(text)
    copied = []
    for token in tokens:
        end = token.idx + len(token)
        copied.append([places[token.idx], places[end], bool(token.whitespace_)])
    return copied


def check(process: Node, nlp: Language, texts: list[str]) -> None:
    """Check that texts have the same tokens in both."""
    for text, tokens in zip(texts, process.ask({"texts": texts}), strict=True):
        assert tokens == copy_of(list(nlp.tokenizer(text)), text), text


@pytest.fixture(scope="module", params=LANGUAGES)
def nlp(request: pytest.FixtureRequest) -> Language:
    """A pipeline of each language, one after another."""
    return spacy.blank(request.param)


@pytest.fixture(scope="module")
def process(nlp: Language) -> Iterator[Node]:
    """A process of Node with the tokenizer of a pipeline."""
    with node(SCRIPT) as process:
        process.ask({"description": describe_tokenizer(nlp), "texts": []})
        yield process


@pytest.mark.slow
@needs_node
def test_hard_texts(process: Node, nlp: Language) -> None:
    sentences = import_module(f"spacy.lang.{nlp.lang}.examples").sentences
    check(process, nlp, [*SPACES, *HARD, *sentences])


@needs_node
def test_texts_of_the_tests_of_spacy(process: Node, nlp: Language) -> None:
    folders = [SPACY_TESTS / "tokenizer", SPACY_TESTS / "lang" / nlp.lang]
    files = [*folders[0].glob("*.py"), *folders[1].glob("*.py")]
    texts = [(SPACY_TESTS / "tokenizer" / "sun.txt").read_text(encoding="utf8")]
    for path in files:
        for item in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                texts.append(item.value)
    assert len(texts) > 700
    check(process, nlp, texts)


@needs_node
def test_special_cases_beside_affixes(process: Node, nlp: Language) -> None:
    random_state = random.Random(0)
    rules = list(nlp.tokenizer.rules)
    texts = [*rules]
    # A language may have thousands of rules of the same form.
    for rule in random_state.sample(rules, min(len(rules), 400)):
        other = random_state.choice(rules)
        texts += [frame.format(rule, other) for frame in random_state.sample(FRAMES, 3)]
        texts += [rule.upper(), " ".join(rule), rule.replace(" ", "  ")]
    for _ in range(2000):
        atoms = random_state.choices(ATOMS, k=random_state.randint(1, 12))
        texts.append("".join(atoms))
    check(process, nlp, texts)


@pytest.fixture(scope="module")
def lists_of_texts(nlp: Language) -> st.SearchStrategy[list[str]]:
    """Lists of texts that are made of special cases, ATOMS and any characters."""
    pieces = st.one_of(
        st.sampled_from(ATOMS),
        st.sampled_from(sorted(nlp.tokenizer.rules)),
        st.characters(exclude_categories=["Cs"]),
    )
    texts = st.lists(pieces, max_size=12).map("".join)
    return st.lists(texts, max_size=20)


@pytest.mark.slow
@needs_node
@given(data=st.data())
def test_any_text(
    process: Node,
    nlp: Language,
    lists_of_texts: st.SearchStrategy[list[str]],
    data: st.DataObject,
) -> None:
    check(process, nlp, data.draw(lists_of_texts))


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("nlp", ["es"], indirect=True)
def test_a_megabyte_in_one_line(process: Node, nlp: Language) -> None:
    words = "La señora García-Page (Sr. del PP), 3,5 % o sea 1.000€ 😀 «vive» en EE.UU. "
    text = (words * 14_000)[:1_000_000]
    assert len(text) == 1_000_000
    check(process, nlp, [text, "a" * 1_000_000])


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize(
    "nlp, name",
    [("es", "conll2002_es/esp.testa"), ("en", "raw/news.txt.xz")],
    indirect=["nlp"],
)
def test_corpora(process: Node, nlp: Language, name: str) -> None:
    paths = [folder / name for folder in CORPORA if (folder / name).is_file()]
    if not paths:
        pytest.skip(f"requires {name}")
    opener: Any = lzma.open if name.endswith(".xz") else open
    sentences: list[list[str]] = [[]]
    with opener(paths[0], "rt", encoding="utf8") as lines:
        for line in lines:
            if name.endswith(".xz"):
                sentences.append(line.split())
            elif line.strip():
                sentences[-1].append(line.split()[0])
            else:
                sentences.append([])
            if len(sentences) > 2001:
                break
    texts = [" ".join(sentence) for sentence in sentences]
    without_spaces = [re.sub(r" (?=[,.;:!?)»%])|(?<=[(«¿¡]) ", "", text) for text in texts]
    check(process, nlp, [*texts, *without_spaces])


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize("lang", ["fi", "hu", "it", "pt", "ru", "sv", "tr", "xx"])
def test_other_languages(lang: str) -> None:
    nlp = spacy.blank(lang)
    with node(SCRIPT) as process:
        process.ask({"description": describe_tokenizer(nlp), "texts": []})
        rules = [f"({rule})." for rule in nlp.tokenizer.rules]
        check(process, nlp, [*SPACES, *HARD, *rules])


def custom(**settings: Any) -> Language:
    """A pipeline whose tokenizer has some other settings."""
    nlp = spacy.blank("xx")
    patterns = {
        "prefix_search": re.compile(r"[(«]|x(?=y)").search,
        "suffix_search": re.compile(r"[)»]$|!+$").search,
        "infix_finditer": re.compile(r"(?<=[a-z])(?=[A-Z])|-|~").finditer,
    }
    cases = [["(a", ")"], ["b c", "-d"], ["ca", "b"], ["a)", "b"], ["z ", "(a)b"]]
    rules = {"".join(case): [{"ORTH": word} for word in case] for case in cases}
    nlp.tokenizer = Tokenizer(nlp.vocab, **{"rules": rules, **patterns, **settings})
    return nlp


@needs_node
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rules": None},
        {"prefix_search": None, "suffix_search": None, "infix_finditer": None},
        {"faster_heuristics": False},
        {"infix_finditer": re.compile(r"|bb|--").finditer},
        {"infix_finditer": re.compile(rf"(?<=[{ALPHA}])|~+").finditer},
        {"token_match": re.compile(r"[(]\w+[)]$").match},
        {"url_match": re.compile(r"(?i)WWW\.").match},
        {"prefix_search": re.compile(r"a").search},
    ],
)
def test_other_settings(settings: dict[str, Any]) -> None:
    nlp = custom(**settings)
    nlp.tokenizer.from_bytes(nlp.tokenizer.to_bytes())  # only a loaded one has its last case cached
    texts = [
        "(a) b c-d xyz camelCase (camelCase-😀Ab)!! a~~b --a- 😀-b",
        "((a)) (b c-d) b  c-d b c -d",
        "www.a-b (www.A-b) babAbb xxyy",
        "(a)(a) «(a)» b c-d b c-d",
        "a-cab cab",
        "x (a)b",
        *["a", "-", "~a~", "😀"],
    ]
    with node(SCRIPT) as process:
        process.ask({"description": describe_tokenizer(nlp), "texts": []})
        check(process, nlp, texts)


def test_the_description_is_json_and_small(nlp: Language) -> None:
    description = describe_tokenizer(nlp)
    text = json.dumps(description)
    assert len(text) < 200_000
    assert json.loads(text) == description


@pytest.mark.slow
@pytest.mark.parametrize("nlp", ["de"], indirect=True)
def test_a_saved_pipeline_has_the_same_description(nlp: Language, tmp_path: Path) -> None:
    nlp.to_disk(tmp_path)
    assert describe_tokenizer(spacy.load(tmp_path)) == describe_tokenizer(nlp)


class OtherTokenizer(Tokenizer):
    """A subclass of the tokenizer, which may do anything."""


def test_other_tokenizers_are_refused() -> None:
    nlp = spacy.blank("xx")
    nlp.tokenizer = OtherTokenizer(nlp.vocab)
    message = r"tokenizer: expected spaCy's rule tokenizer.*, got tests.*\.OtherTokenizer"
    with pytest.raises(ValueError, match=message):
        describe_tokenizer(nlp)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"url_match": re.compile(r"(a)\1").match}, "tokenizer: url_match: expected no groupref"),
        ({"token_match": str.isdigit}, "expected token_match to be the method match of a regular"),
        (
            {"prefix_search": re.compile("a").match},
            "expected prefix_search to be the method search",
        ),
    ],
)
def test_settings_that_javascript_cannot_have_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        describe_tokenizer(custom(**settings))
