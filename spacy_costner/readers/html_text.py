"""The text of HTML, in which Label Studio counts the offsets of regions.

A browser makes a tree of HTML. Label Studio's `globalOffsets` count the characters of all text in
this tree, in its order, and one for each `<br>`: this is the *content*. Tags, comments and the head
of a page count nothing. An entity such as `&amp;` counts one, and so does each character of white
space between tags, although a browser doesn't show it.

The text that we read is the content with two changes. Style sheets in the body, which count as
well, are left out, and words of two blocks, such as two cells of a table, are separated by a line
break if nothing else stands between them.

Source: `domManager.ts` and `html.js` of Label Studio's editor.
"""

from bisect import bisect_right
from html.parser import HTMLParser
from typing import NamedTuple

BLOCK_NAMES = """
    address article aside blockquote body caption center dd details dialog dir div dl dt fieldset
    figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr html legend li main menu nav ol
    option p pre search section select summary table tbody td tfoot th thead tr ul
"""
BLOCKS = frozenset(BLOCK_NAMES.split())
"""The elements that a browser shows on lines or in cells of their own."""

REMOVED = frozenset(["iframe", "noscript", "option", "script", "textarea"])
"""The elements whose text Label Studio removes before a browser reads the HTML."""

HEAD = frozenset(["base", "head", "html", "link", "meta", "noscript", "script", "style", "title"])
"""The elements that may stand before the body of a page. Their text is no part of it."""

OPTION_LISTS = frozenset(["datalist", "optgroup", "select"])
"""The elements that end an `<option>`, whose own end tag may be left out."""


class Piece(NamedTuple):
    """A stretch of the content that stands in the text without a change, or is left out of it.

    content_start (int): The first character of the stretch in the content.
    text_start (int): Its place in the text.
    is_in_text (bool): Whether it is in the text.
    """

    content_start: int
    text_start: int
    is_in_text: bool


class HtmlText(NamedTuple):
    """The text of HTML.

    text (str): The text.
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
        return piece.text_start + place - piece.content_start + after


def read_html(html: str, *, is_page: bool = True) -> HtmlText:
    """Read the text of HTML.

    html (str): The HTML: a page, or a part of one.
    is_page (bool): Whether a browser reads it as a page, with a head and a body of which only the
        body counts, as Label Studio does by default. Otherwise the browser reads it as a part of a
        page, as with `inline="true"`: everything counts.
    """
    parser = _TextParser(is_in_body=not is_page)
    # Browsers read any line end as "\n", and drop null characters.
    parser.feed(html.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""))
    parser.close()
    return HtmlText("".join(parser.text), "".join(parser.content), parser.pieces)


class _TextParser(HTMLParser):
    """Collects the text and the content of HTML, in parts."""

    def __init__(self, *, is_in_body: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.content: list[str] = []
        self.pieces: list[Piece] = []
        self._n_text = 0
        self._n_content = 0
        self._is_in_body = is_in_body
        self._removed_element = ""  # whose text is being removed; "": none
        self._is_in_style = False
        self._is_in_head_text = False  # of the title or a style sheet in the head
        self._is_new_block = False  # whether a block has begun or ended since the last text
        self._is_after_pre = False  # directly after <pre>

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._is_after_pre = False
        if self._removed_element:
            return
        if not self._is_in_body and tag not in HEAD:
            self._is_in_body = True
        if tag in REMOVED:
            self._removed_element = tag
        elif tag == "br":
            self._add("\n", is_in_text=True)
        elif tag == "style":
            self._is_in_style = True
        elif tag == "title" and not self._is_in_body:
            self._is_in_head_text = True
        elif tag == "pre":
            self._is_after_pre = True
        if tag in BLOCKS:
            self._is_new_block = True

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        # In HTML "<p/>" is "<p>". Only elements that are never closed have no text.
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._is_after_pre = False
        if tag in BLOCKS:
            self._is_new_block = True
        if self._removed_element:
            ends_option = self._removed_element == "option" and tag in OPTION_LISTS
            if tag == self._removed_element or ends_option:
                self._removed_element = ""
        elif tag == "style":
            self._is_in_style = False
        elif tag == "title":
            self._is_in_head_text = False
        elif tag == "br":  # browsers read "</br>" as "<br>"
            self._add("\n", is_in_text=True)

    def handle_data(self, data: str) -> None:
        is_after_pre = self._is_after_pre
        self._is_after_pre = False
        if self._removed_element or self._is_in_head_text:
            return
        if not self._is_in_body:
            # The first word begins the body. White space before it is no part of the body.
            data = data.lstrip()
            if not data or self._is_in_style:
                return
            self._is_in_body = True
        if is_after_pre:
            data = data.removeprefix("\n")  # browsers leave out this line break
        if data:
            self._add(data, is_in_text=not self._is_in_style)

    def _add(self, data: str, *, is_in_text: bool) -> None:
        """Add characters to the content and, if they are in the text, to the text."""
        if is_in_text and self._is_new_block:
            self._is_new_block = False
            if self.text and not (self.text[-1][-1].isspace() or data[0].isspace()):
                self.text.append("\n")
                self._n_text += 1
        self.pieces.append(Piece(self._n_content, self._n_text, is_in_text))
        self.content.append(data)
        self._n_content += len(data)
        if is_in_text:
            self.text.append(data)
            self._n_text += len(data)
