"""Read and write files of columns, as in the CoNLL shared tasks: a line for each token, with its
tag.

Columns are separated by one TAB or by blanks. A line of white space ends a sentence. A line that
begins with -DOCSTART- begins a document. A line that begins with "#", at the beginning of a
sentence, is a comment if it isn't a token and its tag.

A *field* is the text of a line in one column. For speed, the fields of all lines with a token stand
in one list, line after line. So in a file with n columns, every n-th field is of the same column:
`fields[column::n]`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy
from spacy.attrs import SENT_START
from spacy.tokens import Doc, Span, Token
from thinc.types import Ints1d

from ..ent_iob import BEGIN, MISSING
from .context import Context, CorpusInfo
from .files import FilePlace, read_text, shown
from .schemes import NOT_ANNOTATED, PREFIXED
from .sentences import TaggedTokens, make_docs

DOCSTART = "-DOCSTART-"
BLANKS = re.compile(r"[ \t]+")
ODD_SPACES = [char for char in map(chr, range(0x3001)) if char.isspace() and char not in " \t\n"]
"""White space that doesn't separate columns, though `str.split` splits there: no-break spaces and
others. U+3000 is the last character of white space in Unicode."""

ODD_TOKEN = re.compile(r"[\t\n\r\0]| $|^-DOCSTART-")
"""Matches a token that would be read otherwise than it is written. A blank before a TAB, say, is
taken for padding."""

ODD_LABEL = re.compile(r"[\t\n\r\0]| $|^[-_]+$")
"""Matches a label that would be read otherwise than it is written."""


class Layout(NamedTuple):
    """The columns of a file.

    split (Callable[[str], list[str]]): Splits a line into its fields. A line of white space has
        none.
    separator (str): The name of what separates columns: "TABs" or "blanks".
    n_columns (int): The number of columns.
    tag_column (int): The index of the column of the tags.
    """

    split: Callable[[str], list[str]]
    separator: str
    n_columns: int
    tag_column: int


def read_columns(path: Path, context: Context) -> Iterator[Doc]:
    """Read a file of columns.

    path (Path): The file.
    context (Context): What the reader needs. The format and the problems are added to its info.
    RETURNS (Iterator[Doc]): The docs.
    RAISES (CorpusError): If the file isn't text in UTF-8, has no tokens, has lines with different
        numbers of columns, or has something other than tags of one scheme in the column of the
        tags.
    """
    text = read_text(path)
    lines = text.split("\n")
    is_docstart = numpy.asarray([line.startswith(DOCSTART) for line in lines])
    for i in numpy.flatnonzero(is_docstart).tolist():
        lines[i] = ""  # a -DOCSTART- line ends a sentence, as an empty line does

    layout = _find_layout(path, text, lines, context.options.column)
    _remove_comments(path, lines, layout, context.info)
    fields, line_of_token = _split_lines(path, lines, layout)
    if not fields:  # all lines are comments, also the one that looked like the first token
        raise FilePlace(path, 1).refuse("expected tokens and their tags, got none")
    words = fields[:: layout.n_columns]
    tags = fields[layout.tag_column :: layout.n_columns]

    def place_of(token: int) -> FilePlace:
        return FilePlace(path, int(line_of_token[token]) + 1)

    if "" in words:  # the line begins with a TAB
        token = words.index("")
        got = shown(lines[line_of_token[token]])
        raise place_of(token).refuse(f"expected a token, got {got}")
    _check_tag_column(fields, layout, place=place_of(token=0))

    # A token begins a sentence if there is a line without a token above it: if its line is not the
    # one after that of the token before. The first token always does: the token before it is said
    # to be on line -2. Shape: (N,)
    sent_start = numpy.diff(line_of_token, prepend=-2) > 1
    n_docstarts_up_to_line = numpy.cumsum(is_docstart)
    tokens = TaggedTokens(
        words,
        tags,
        sent_start,
        n_docstarts=n_docstarts_up_to_line[line_of_token],
        pos=_find_parts_of_speech(fields, layout),
    )
    format_name = f"{layout.n_columns} columns, separated by {layout.separator}"
    return make_docs(tokens, place_of, format_name, context, context.options.n_sents)


def _check_tag_column(fields: list[str], layout: Layout, place: FilePlace) -> None:
    """Check that the column of the tags has tags of entities. A file of two columns always passes:
    its second column has the tags, whatever they are.

    fields (list[str]): The fields of all tokens.
    layout (Layout): The columns of the file.
    place (FilePlace): The place of the first token, for the error.
    RAISES (CorpusError): If it has none.
    """
    tags = fields[layout.tag_column :: layout.n_columns]
    if layout.n_columns == 2 or _has_tags(tags):
        return
    hint = _hint_at_tags(fields, layout.n_columns)
    expected = f"column {layout.tag_column + 1}: expected tags of entities"
    raise place.refuse(f"{expected}, got only such as {tags[0]!r}: {hint}")


def _split_lines(path: Path, lines: list[str], layout: Layout) -> tuple[list[str], Ints1d]:
    """Split all lines into fields.

    path (Path): The file, for errors.
    lines (list[str]): Its lines. Comments and lines of -DOCSTART- are empty.
    layout (Layout): The columns of the file.
    RETURNS (tuple[list[str], Ints1d]): The fields of all tokens in one list; and the index of the
        line of each token, (N,).
    RAISES (CorpusError): If a line has another number of columns than the layout.
    """
    split = layout.split
    fields: list[str] = []
    n_fields_of_lines: list[int] = []
    for line in lines:
        line_fields = split(line)
        fields += line_fields
        n_fields_of_lines.append(len(line_fields))

    n_fields = numpy.asarray(n_fields_of_lines)
    has_token = n_fields > 0  # other lines are white space
    wrong_lines = numpy.flatnonzero(has_token & (n_fields != layout.n_columns))
    if len(wrong_lines):
        i = int(wrong_lines[0])
        message = f"expected {layout.n_columns} columns, got {n_fields[i]}: {shown(lines[i])}"
        raise FilePlace(path, i + 1).refuse(message)
    return fields, numpy.flatnonzero(has_token)


def _find_layout(path: Path, text: str, lines: list[str], column: int | None) -> Layout:
    """Find how the lines of a file are split into columns, and which column has the tags. The first
    line with a token shows it.

    path (Path): The file, for errors.
    text (str): The text of the file.
    lines (list[str]): Its lines.
    column (int | None): The user's option for the column of the tags: see `_tag_column`.
    RETURNS (Layout): The columns of the file.
    RAISES (CorpusError): If there is no token, only one column, or no such column of tags.
    """
    first_row = _find_first_row(lines)
    if first_row is None:
        raise FilePlace(path, 1).refuse("expected tokens and their tags, got none")
    line = lines[first_row]
    place = FilePlace(path, first_row + 1)

    split: Callable[[str], list[str]]
    if "\t" in line.strip():
        separator = "TABs"
        is_padded = " \t" in text or "\t " in text
        split = partial(_split_at_tabs, is_padded=is_padded)
    else:
        separator = "blanks"
        # `str.split` is faster. It gives the same fields if there is no odd white space.
        has_odd_space = any(space in text for space in ODD_SPACES)
        split = _split_at_blanks if has_odd_space else str.split

    n_columns = len(split(line))
    if n_columns < 2:
        raise place.refuse(f"expected a token and its tag, got one column: {shown(line)}")
    return Layout(split, separator, n_columns, _tag_column(column, n_columns, place))


def _tag_column(column: int | None, n_columns: int, place: FilePlace) -> int:
    """Find the index of the column of the tags.

    column (int | None): The user's option: the number of the column, where the first column is 1
        and the last is -1. None: the last.
    n_columns (int): The number of columns.
    place (FilePlace): The place of the first token, for the error.
    RETURNS (int): The index, from 0.
    RAISES (CorpusError): If there is no such column, or it is the first, which has the tokens.
    """
    if column is None:
        return n_columns - 1
    number = column
    if column < 0:
        number = column + n_columns + 1  # so that -1 becomes n_columns
    if not 1 < number <= n_columns:
        expected = f"expected a column of tags from 2 to {n_columns}"
        raise place.refuse(f"column: {expected}, got {column}")
    return number - 1


def _find_first_row(lines: list[str]) -> int | None:
    """Find the first line that has a token, and return its index. Lines that begin with "#" are
    taken for comments. If there are no other lines, "#" may be a token, and the first line that
    ends with a tag is returned. None: no line has a token."""
    for i, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            return i
    for i, line in enumerate(lines):
        if _is_tag(line.split("\t")[-1]) or _is_tag(line.split(" ")[-1]):
            return i
    return None


def _split_at_blanks(line: str) -> list[str]:
    """Split a line at blanks and TABs. `str.split` would split at other white space, too, such as
    no-break spaces. A line of white space has no fields."""
    if not line.strip():
        return []
    return BLANKS.split(line.strip(" \t"))


def _split_at_tabs(line: str, *, is_padded: bool) -> list[str]:
    """Split a line at TABs. Blanks and TABs at its end are left out. A line of white space has no
    fields.

    line (str): The line.
    is_padded (bool): Whether there may be blanks beside TABs. They are left out, but a field of
        blanks alone stays as it is.
    RETURNS (list[str]): The fields.
    """
    if not line.strip():
        return []
    fields = line.rstrip(" \t").split("\t")
    if not is_padded:
        return fields
    return [field.strip(" ") or field for field in fields]


def _remove_comments(path: Path, lines: list[str], layout: Layout, info: CorpusInfo) -> None:
    """Replace the comments of a file by empty lines, and report them as a problem. A comment is a
    line at the beginning of a sentence that begins with "#", unless it is a token and its tag.

    path (Path): The file, for the report.
    lines (list[str]): Its lines, which are changed.
    layout (Layout): Its columns.
    info (CorpusInfo): The problem is added to it.
    """
    for i, line in enumerate(lines):
        if not line.startswith("#"):
            continue
        # A comment on the line before is empty by now.
        begins_sentence = i == 0 or not lines[i - 1].strip()
        fields = layout.split(line)
        is_token = len(fields) == layout.n_columns and _is_tag(fields[layout.tag_column])
        if begins_sentence and not is_token:
            lines[i] = ""
            info.add_problem("comments are left out", FilePlace(path, i + 1), line)


def _is_tag(field: str) -> bool:
    """Whether a field may be a tag of entities: O, a prefix and a label, such as B-PER, or "-" or
    "_", which stand for missing annotation."""
    return field == "O" or field in NOT_ANNOTATED or PREFIXED.fullmatch(field) is not None


def _has_tags(column: list[str]) -> bool:
    """Whether a column has tags of entities. "_" doesn't count, as in CoNLL-U any empty field has
    it."""
    return any(_is_tag(field) for field in set(column) - {"_"})


def _hint_at_tags(fields: list[str], n_columns: int) -> str:
    """Say which column has tags of entities, for the error that the column of the tags has none.

    fields (list[str]): The fields of all tokens.
    n_columns (int): The number of columns.
    RETURNS (str): The end of the message.
    """
    for column in range(1, n_columns):
        for field in fields[column::n_columns]:
            if PREFIXED.fullmatch(field):
                return f"column {column + 1} has tags such as {field!r}"
    return "no column has entities"


def _find_parts_of_speech(fields: list[str], layout: Layout) -> list[str] | None:
    """Read parts of speech from the second column, as `spacy convert -c ner` does.

    fields (list[str]): The fields of all tokens.
    layout (Layout): The columns of the file.
    RETURNS (list[str] | None): The part of speech of each token, "" where it is missing. None:
        there are none, as the second column has the tags of entities, or other tags with prefixes,
        such as those of chunks.
    """
    if layout.tag_column == 1:  # always so with two columns
        return None
    column = fields[1 :: layout.n_columns]
    pos_of_text: dict[str, str] = {}
    for text in set(column):
        if PREFIXED.fullmatch(text):
            return None
        pos_of_text[text] = "" if text in NOT_ANNOTATED else text
    return [pos_of_text[text] for text in column]


def write_columns(path: Path, docs: Sequence[Doc]) -> int:
    """Write docs in two columns with a TAB between them: the tokens, and their tags in the scheme
    IOB2, or "-" where annotation is missing. If any doc has several sentences, each doc begins with
    a -DOCSTART- line. Tokens of white space are left out, as columns can't have them.

    path (Path): The file.
    docs (Sequence[Doc]): The docs.
    RETURNS (int): The number of tokens that are left out.
    RAISES (ValueError): If a token or a label would be read otherwise than it is written.
    """
    has_documents = any(map(_has_several_sentences, docs))
    n_left_out = 0
    blocks: list[str] = []  # the text of the file, in pieces
    for doc in docs:
        sents: Iterable[Doc | Span] = [doc]
        if has_documents:
            blocks.append(f"{DOCSTART}\tO\n\n")
            if doc.has_annotation("SENT_START"):
                sents = doc.sents
        for sent in sents:
            lines = list(_to_lines(sent))
            n_left_out += len(sent) - len(lines)
            if lines:
                blocks += lines
                blocks.append("\n")  # an empty line ends the sentence

    text = "".join(blocks)
    if text.startswith("\ufeff"):
        # At the beginning of a file this character would be read as a byte order mark.
        text = f"\n{text}"
    path.write_text(text, encoding="utf8", newline="\n")
    return n_left_out


def _has_several_sentences(doc: Doc) -> bool:
    """Whether a doc is known to have several sentences: one begins after its first token."""
    return bool((doc.to_array(SENT_START)[1:] == 1).any())


def _to_lines(sent: Iterable[Token]) -> Iterator[str]:
    """Yield the line of each token of a sentence: the token and its tag in the scheme IOB2. Tokens
    of white space are left out.

    RAISES (ValueError): If a token or a label would be read otherwise than it is written.
    """
    begins_entity = False
    for token in sent:
        # If the first token of an entity is white space, which is left out, the next token gets the
        # prefix B.
        if token.ent_iob == BEGIN:
            begins_entity = True
        if token.is_space:
            continue

        if ODD_TOKEN.search(token.text):
            raise ValueError(f"expected a token that columns can have, got {token.text!r}")
        label = token.ent_type_
        if ODD_LABEL.search(label):
            raise ValueError(f"expected a label that columns can have, got {label!r}")

        tag = "O"
        if token.ent_iob == MISSING:
            tag = "-"
        elif label:
            prefix = "B" if begins_entity else "I"
            tag = f"{prefix}-{label}"
        yield f"{token.text}\t{tag}\n"
        begins_entity = False
