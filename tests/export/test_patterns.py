"""Regular expressions of Python find the same in JavaScript."""
# ruff: noqa: RUF001

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_costner.export.patterns import can_be_empty, to_javascript

from ..support.node import Node, needs_node, node
from ..support.web import utf16_places

TEXTS = [
    "",
    "a",
    "A-b c_d",
    "línea\nsiguiente\n",
    "x\u0085y\u200bz\ufeff\u001c\u2028",
    "a😀b😀😀",
    "e\u0301 ñ n\u0303",
    "İıiIſsSKkKåÅÅ",
    "١٢٣ ৩ 42 ²½",
    "שלום مرحبا 中文 ﬁ ß ẞ ς σ Σ",
    "aaa---bbb...ccc",
    "$5 [x] {y} (z) ^ \\ / | * + ?",
]
PATTERNS = [
    r"a|ab|\w+",
    r"\W",
    r"\d+\b",
    r"\B\w",
    r"\s",
    r"\S+",
    r"\D",
    r"(?a)\w+",
    r"[^\W\d_]+",
    r"[^a-z]",
    r"(?i)[a-z]+",
    r"(?i)[^k]",
    r"(?i)straße|σ|ı|s",
    r"(?ai)k|s",
    r"$",
    r"(?m)^.|.$",
    r"\A.|.\Z",
    r".",
    r"(?s).",
    r"(?<=[a-z])(?=[A-Z\-])",
    r"(?<![a-z])b",
    r"a(?!a)|\.{2,}|-{2}|c{1,2}?",
    r"(?:x|y)?z|(a)(b)?",
    r"[\]\-^\\]|[\[{}]",
    r"[$()*+.?/|]",
    r"😀+|[😀-😂]",
    "(?x) a  # a comment\n | [ ]",
    r"(?i:A)b|(?s:.)c",
    r"",
    r"(?!)|b",
    r"[\ud800-\udfff]|x",
]
PIECES = [
    "a",
    "B",
    "é",
    "😀",
    r"\w",
    r"\s",
    r"\d",
    r"\W",
    "[a-c]",
    "[^b]",
    "[Kſ]",
    ".",
    "-",
    r"\.",
    r"\b",
]
LOOKS = ["(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)"]
SCRIPT = """
function answer([source, texts]) {
  const regex = new RegExp(source, "gu");
  const place = (match) => [match.index, match.index + match[0].length];
  return texts.map((text) => [...text.matchAll(regex)].map(place));
}
"""


@pytest.fixture(scope="module")
def javascript() -> Iterator[Node]:
    """Answers a source and texts with the matches in each."""
    with node(SCRIPT) as process:
        yield process


def check(javascript: Node, pattern: str, texts: list[str]) -> None:
    """Check that JavaScript finds what Python finds. JavaScript counts 😀 as two units, and Python
    as one character: places are compared in units."""
    regex = re.compile(pattern)
    answers = javascript.ask([to_javascript(regex), texts])
    for text, matches in zip(texts, answers, strict=True):
        places = utf16_places(text)
        expected = [[places[match.start()], places[match.end()]] for match in regex.finditer(text)]
        assert matches == expected, (pattern, text)


@needs_node
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_same_matches(javascript: Node, pattern: str) -> None:
    check(javascript, pattern, TEXTS)


@needs_node
@pytest.mark.parametrize(
    "pattern", [r"\w+", r"\d+", r"\s+", "(?i)[k-t]+", "(?i)[^à-ɏ]+", r"(?i)[^\w]+"]
)
def test_every_character(javascript: Node, pattern: str) -> None:
    """All characters that Unicode has assigned: the first four planes, and tags."""
    codes = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]
    check(javascript, pattern, ["".join(map(chr, codes))])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """A pattern of up to three alternatives, with repeats, look-behind and look-ahead."""
    alternatives = []
    for _ in range(draw(st.integers(1, 3))):
        items = []
        for _ in range(draw(st.integers(1, 3))):
            piece = draw(st.sampled_from(PIECES))
            if draw(st.booleans()):
                piece = draw(st.sampled_from(LOOKS)) % piece
            elif piece != r"\b":
                piece += draw(st.sampled_from(["", "+", "*", "?", "{2}", "+?", "{1,2}"]))
            items.append(piece)
        alternatives.append("".join(items))
    flags = draw(st.sampled_from(["", "(?i)", "(?a)", "(?s)"]))
    return f"{flags}(?:{'|'.join(alternatives)})[^ab]"


@pytest.mark.slow
@needs_node
@given(
    pattern=patterns(),
    texts=st.lists(st.text(st.sampled_from("aAbBcé\u0301😀kKſs1 -.\n")), max_size=8),
)
def test_any_pattern(javascript: Node, pattern: str, texts: list[str]) -> None:
    check(javascript, pattern, texts)


@pytest.mark.parametrize(
    "pattern, message",
    [
        (r"(a)\1", "no groupref in a pattern"),
        (r"(a)?(?(1)b|c)", "no groupref_exists in a pattern"),
        (r"(?:a*)*", "a pattern that doesn't repeat an empty match"),
        (r"(?:|a)+", "a pattern that doesn't repeat an empty match"),
    ],
)
def test_what_javascript_cannot_have_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_javascript(re.compile(pattern))


def test_what_can_be_empty() -> None:
    """Looking ahead and behind takes no character."""
    assert can_be_empty(re.compile("(?<=a)(?=b)|-"))
    assert not can_be_empty(re.compile("a|-"))
