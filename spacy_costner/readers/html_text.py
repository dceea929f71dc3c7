"""Extract text from HTML, so that Label Studio's offsets can be mapped to it.

Label Studio's `globalOffsets` count the characters of the DOM's text, in document order, plus one
for each `<br>`. These characters are the *content*. Tags, comments and the head of a page don't
count. A character reference such as `&amp;` counts as one character. Whitespace between tags also
counts, although browsers don't display it. Scripts and frames are removed beforehand.

The text that we read differs from the content in two ways. Anything that browsers don't display,
such as style sheets, is omitted. If there is nothing between the words of two blocks, such as two
cells of a table, they are separated by a line break.

Source: `domManager.ts` and `html.js` in Label Studio's editor and, for tags, section 13.2.5 of the
HTML standard. Python's `HTMLParser` isn't used because it takes quadratic time or fails for some
invalid HTML.
"""

import re
from bisect import bisect_right
from html import unescape
from typing import NamedTuple

BLOCK_NAMES = """
    address article aside blockquote body caption center dd details dialog dir div dl dt fieldset
    figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr html legend li main menu nav ol
    optgroup option p pre search section select summary table tbody td textarea tfoot th thead title
    tr ul
"""
BLOCKS = frozenset(BLOCK_NAMES.split())
"""The elements that browsers display on separate lines or in separate cells."""

HEAD = frozenset(["base", "head", "html", "link", "meta", "noscript", "script", "style", "title"])
"""The elements that may precede the body of a page. Their text isn't part of the body."""

REMOVED = frozenset(["iframe", "script"])
"""The elements that Label Studio removes."""

HIDDEN = frozenset(["noscript", "style"])
"""The elements whose text counts even though browsers don't display it."""

WHITE_SPACE = " \t\n\f"
"""The whitespace characters of HTML, which don't include `&nbsp;`."""

COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
"""Matches a comment. If it isn't closed, it extends to the end of the HTML."""

DECLARATION = re.compile(r"<(?:[!?]|/(?![a-zA-Z]))[^>]*(?:>|\Z)")
"""Matches a declaration, such as `<!DOCTYPE html>`, and other markup that browsers ignore."""

TAG = re.compile(
    r"""<(/?)([a-zA-Z][^\s/>]*)(?=[\s/>])  # the name
    (?:=\s*(?:"[^"]*"|'[^']*')|=(?!\s*["'])|[^>=])*>  # quoted values of attributes may have ">"
    """,
    re.VERBOSE,
)
"""Matches a tag. The groups are the slash of an end tag, and the name."""

START_OF_TAG = re.compile("</?[a-zA-Z]")
"""Matches the first characters of a tag, which may be unclosed."""

RAW_TEXT_ENDS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("iframe", "noscript", "script", "style", "textarea", "title", "xmp")
}
"""Patterns for the end tags of elements that contain only text, keyed by element name."""


class Piece(NamedTuple):
    """A piece of the content that is either copied to the text or omitted from it.

    content_start (int): The start of the piece in the content.
    text_start (int): The start of the piece in the text.
    is_in_text (bool): Whether the piece is copied to the text.
    """

    content_start: int
    text_start: int
    is_in_text: bool


class HtmlText(NamedTuple):
    """The text extracted from HTML.

    text (str): The text that we read.
    content (str): The characters that Label Studio's offsets count.
    pieces (list[Piece]): The mapping from the content to the text, in order.
    """

    text: str
    content: str
    pieces: list[Piece]

    def range_in_text(self, start: int, end: int) -> tuple[int, int]:
        """Convert a non-empty range of the content to a range of the text. If none of its
        characters are in the text, the range is empty."""
        # The end is computed from the last character of the range, because the text may contain an
        # additional line break after it.
        return self._place_in_text(start), self._place_in_text(end - 1, after=True)

    def _place_in_text(self, place: int, *, after: bool = False) -> int:
        """Convert the offset of a character in the content to its offset in the text. If `after` is
        True, the offset after the character is returned."""
        i = bisect_right(self.pieces, place, key=lambda piece: piece.content_start) - 1
        piece = self.pieces[i]
        if not piece.is_in_text:
            return piece.text_start
        place_in_text = piece.text_start + place - piece.content_start
        if after:
            return place_in_text + 1
        return place_in_text


def read_html(html: str, *, is_page: bool = True) -> HtmlText:
    """Extract text from HTML.

    html (str): The HTML: a page, or a part of one.
    is_page (bool): Whether the HTML is parsed as a page with a head and a body, where only the body
        counts, as in Label Studio by default. Otherwise, it is parsed as a part of a page, where
        everything counts, as with `inline="true"`.
    RETURNS (HtmlText): The text.
    """
    # Browsers normalize line endings to "\n" and drop null characters.
    html = html.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    collector = _TextCollector(is_in_body=not is_page)
    position = 0
    while position < len(html):
        begin = html.find("<", position)
        if begin < 0:
            begin = len(html)
        if begin > position:
            collector.add_text(unescape(html[position:begin]))
        position = _read_markup(html, begin, collector)
    return HtmlText("".join(collector.text), "".join(collector.content), collector.pieces)


def _read_markup(html: str, begin: int, collector: "_TextCollector") -> int:
    """Read the markup that begins with "<": a tag (followed by the text of an element that contains
    only text), ignored markup, or a literal "<". Returns the position after it."""
    ignored = COMMENT.match(html, begin) or DECLARATION.match(html, begin)
    if ignored is not None:
        return ignored.end()
    tag = TAG.match(html, begin)
    if tag is None:
        if START_OF_TAG.match(html, begin):  # browsers ignore an unclosed tag and the rest
            return len(html)
        collector.add_text(html[begin : begin + 1])
        return begin + 1

    slash, name = tag.groups()
    name = name.lower()
    if slash:
        collector.end(name)
        return tag.end()
    collector.start(name)
    if name not in RAW_TEXT_ENDS:
        return tag.end()
    end_tag = RAW_TEXT_ENDS[name].search(html, tag.end())
    end = len(html) if end_tag is None else end_tag.start()
    collector.add_raw_text(name, html[tag.end() : end])
    return end


class _TextCollector:
    """Collects the text and the content of HTML piece by piece."""

    def __init__(self, *, is_in_body: bool) -> None:
        self.text: list[str] = []
        self.content: list[str] = []
        self.pieces: list[Piece] = []
        self._n_text = 0
        self._n_content = 0
        self._is_in_body = is_in_body
        self._is_new_block = False  # whether a block has begun or ended since the last text
        self._is_after_pre = False  # whether the previous markup was <pre>

    def start(self, name: str) -> None:
        """Process the start tag of an element."""
        self._is_new_block = self._is_new_block or name in BLOCKS
        self._is_after_pre = name == "pre"
        self._is_in_body = self._is_in_body or name not in HEAD
        if name == "br":
            self._add("\n")

    def end(self, name: str) -> None:
        """Process the end tag of an element."""
        self._is_new_block = self._is_new_block or name in BLOCKS
        self._is_after_pre = False
        self._is_in_body = self._is_in_body or name in ("body", "br", "html")
        if name == "br":  # browsers read "</br>" as "<br>"
            self._add("\n")

    def add_text(self, text: str) -> None:
        """Add the text between two tags."""
        if not self._is_in_body:
            # The body begins with the first word, without the whitespace before it.
            text = text.lstrip(WHITE_SPACE)
            self._is_in_body = bool(text)
        if self._is_after_pre:  # browsers drop a line break after <pre>
            text = text.removeprefix("\n")
        self._is_after_pre = False
        self._add(text)

    def add_raw_text(self, name: str, text: str) -> None:
        """Add the text of an element that contains only text."""
        if not self._is_in_body or name in REMOVED:
            return
        if name == "textarea":
            text = text.removeprefix("\n")
        if name in ("textarea", "title"):
            text = unescape(text)
        self._add(text, is_in_text=name not in HIDDEN)

    def _add(self, characters: str, *, is_in_text: bool = True) -> None:
        """Add characters to the content and, if browsers display them, to the text."""
        if not characters:
            return
        if is_in_text and self._is_new_block:
            self._is_new_block = False
            if self.text and not (self.text[-1][-1].isspace() or characters[0].isspace()):
                self.text.append("\n")
                self._n_text += 1
        self.pieces.append(Piece(self._n_content, self._n_text, is_in_text))
        self.content.append(characters)
        self._n_content += len(characters)
        if is_in_text:
            self.text.append(characters)
            self._n_text += len(characters)
