"""The text of HTML, in which Label Studio counts the offsets of regions.

A browser makes a tree of HTML. Label Studio's `globalOffsets` count the characters of all text in
this tree, in its order, and one for each `<br>`: this is the *content*. Tags, comments and the head
of a page don't count. An entity such as `&amp;` counts as one character. Whitespace between tags
counts, too, although a browser doesn't show it. Scripts and frames are removed first.

The text that we read is the content with two changes. What a browser doesn't show, such as style
sheets, is left out, and words of two blocks, such as two cells of a table, are separated by a line
break if nothing else is between them.

Source: `domManager.ts` and `html.js` of Label Studio's editor; for tags, section 13.2.5 of the HTML
standard. Python's `HTMLParser` takes quadratic time for some invalid HTML, and fails for other.
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
"""The elements that a browser shows on lines or in separate cells."""

HEAD = frozenset(["base", "head", "html", "link", "meta", "noscript", "script", "style", "title"])
"""The elements that may precede the body of a page. Their text is not part of the body."""

REMOVED = frozenset(["iframe", "script"])
"""The elements that Label Studio removes."""

HIDDEN = frozenset(["noscript", "style"])
"""The elements whose text counts, though a browser doesn't show it."""

WHITE_SPACE = " \t\n\f"
"""The whitespace of HTML, which `&nbsp;` isn't."""

COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)
"""Matches a comment, which extends to the end if it isn't closed."""

DECLARATION = re.compile(r"<(?:[!?]|/(?![a-zA-Z]))[^>]*(?:>|\Z)")
"""Matches a declaration, such as `<!DOCTYPE html>`, and other things that browsers ignore."""

TAG = re.compile(
    r"""<(/?)([a-zA-Z][^\s/>]*)(?=[\s/>])  # the name
    (?:=\s*(?:"[^"]*"|'[^']*')|=(?!\s*["'])|[^>=])*>  # quoted values of attributes may have ">"
    """,
    re.VERBOSE,
)
"""Matches a tag. The groups are the slash of an end tag and the name."""

START_OF_TAG = re.compile("</?[a-zA-Z]")
"""Matches the first characters of a tag, which may not be closed."""

RAW_TEXT_ENDS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("iframe", "noscript", "script", "style", "textarea", "title", "xmp")
}
"""The elements that have only text, by name: what matches the beginning of the end tag."""


class Piece(NamedTuple):
    """A piece of the content that is in the text without a change, or is left out of it.

    content_start (int): The first character of the piece in the content.
    text_start (int): Its place in the text.
    is_in_text (bool): Whether it is in the text.
    """

    content_start: int
    text_start: int
    is_in_text: bool


class HtmlText(NamedTuple):
    """The text of HTML.

    text (str): The text that we read.
    content (str): The characters that offsets count.
    pieces (list[Piece]): Which parts of the content are where in the text, in order.
    """

    text: str
    content: str
    pieces: list[Piece]

    def range_in_text(self, start: int, end: int) -> tuple[int, int]:
        """Convert a range of the content, of at least one character, to a range of the text. If
        all of its characters are left out of the text, the range is empty."""
        # The end is the character after the last one of the range. The text may have a line break
        # there that the content doesn't have.
        return self._place_in_text(start), self._place_in_text(end - 1, after=True)

    def _place_in_text(self, place: int, *, after: bool = False) -> int:
        """Convert the place of a character of the content to its place in the text or, with
        `after`, to the place after it."""
        i = bisect_right(self.pieces, place, key=lambda piece: piece.content_start) - 1
        piece = self.pieces[i]
        if not piece.is_in_text:
            return piece.text_start
        place_in_text = piece.text_start + place - piece.content_start
        if after:
            return place_in_text + 1
        return place_in_text


def read_html(html: str, *, is_page: bool = True) -> HtmlText:
    """Read the text of HTML.

    html (str): The HTML: a page, or a part of one.
    is_page (bool): Whether a browser reads it as a page with a head and a body, where only the
        body counts, as Label Studio does by default. Otherwise the browser reads it as a part of a
        page, as with `inline="true"`: everything counts.
    RETURNS (HtmlText): The text.
    """
    # Browsers read any line end as "\n", and drop null characters.
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
    """Read what a "<" begins: a tag, with the text of an element that has only text, something that
    is ignored, or text. Returns the place after it."""
    ignored = COMMENT.match(html, begin) or DECLARATION.match(html, begin)
    if ignored is not None:
        return ignored.end()
    tag = TAG.match(html, begin)
    if tag is None:
        if START_OF_TAG.match(html, begin):  # not closed: browsers ignore it and the rest
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
    """Collects the text and the content of HTML, in parts."""

    def __init__(self, *, is_in_body: bool) -> None:
        self.text: list[str] = []
        self.content: list[str] = []
        self.pieces: list[Piece] = []
        self._n_text = 0
        self._n_content = 0
        self._is_in_body = is_in_body
        self._is_new_block = False  # whether a block has begun or ended since the last text
        self._is_after_pre = False  # directly after <pre>

    def start(self, name: str) -> None:
        """Begin an element."""
        self._is_new_block = self._is_new_block or name in BLOCKS
        self._is_after_pre = name == "pre"
        self._is_in_body = self._is_in_body or name not in HEAD
        if name == "br":
            self._add("\n")

    def end(self, name: str) -> None:
        """End an element."""
        self._is_new_block = self._is_new_block or name in BLOCKS
        self._is_after_pre = False
        self._is_in_body = self._is_in_body or name in ("body", "br", "html")
        if name == "br":  # browsers read "</br>" as "<br>"
            self._add("\n")

    def add_text(self, text: str) -> None:
        """Add text."""
        if not self._is_in_body:
            # The first word begins the body. Whitespace before it isn't part of the body.
            text = text.lstrip(WHITE_SPACE)
            self._is_in_body = bool(text)
        if self._is_after_pre:  # browsers leave out this line break
            text = text.removeprefix("\n")
        self._is_after_pre = False
        self._add(text)

    def add_raw_text(self, name: str, text: str) -> None:
        """Add the text of an element that has only text."""
        if not self._is_in_body or name in REMOVED:
            return
        if name == "textarea":
            text = text.removeprefix("\n")
        if name in ("textarea", "title"):
            text = unescape(text)
        self._add(text, is_in_text=name not in HIDDEN)

    def _add(self, characters: str, *, is_in_text: bool = True) -> None:
        """Add characters to the content and, if a browser shows them, to the text."""
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
