"""Columns as in the CoNLL shared tasks: a line for each token, with its tag.

Columns are separated by one TAB or by blanks. A line of nothing but white space ends a sentence. A
line that begins with -DOCSTART- begins a document. A line that begins with "#", at the beginning of
a sentence, is a comment if it isn't a token and its tag.

A field is what a line has in a column. The fields of all lines with a token stand in one list, line
after line: of n columns, every n-th field is of the same column.
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
"""White space at which `str.split` splits, but no column ends: no-break spaces and others, up to
U+3000, the last that Unicode has."""

ODD_TOKEN = re.compile(r"[\t\n\r\0]| $|^-DOCSTART-")
ODD_LABEL = re.compile(r"[\t\n\r\0]| $|^[-_]+$")
"""Tokens and labels that would not be read as they were written."""


class Layout(NamedTuple):
    """The columns of a file.

    split (Callable[[str], list[str]]): Makes the fields of a line: none if it is white space.
    separator (str): "TABs" or "blanks".
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
    context (Context): What the reader needs. Its info gets the format and the problems.
    RETURNS (Iterator[Doc]): The docs.
    RAISES (CorpusError): If a line has another number of columns than the first, or something else
        than a tag in its tag column.
    """
    text = read_text(path)
    lines = text.split("\n")
    is_docstart = numpy.asarray([line.startswith(DOCSTART) for line in lines])
    for i in numpy.flatnonzero(is_docstart).tolist():
        lines[i] = ""  # such a line ends the sentence before it, as an empty line does

    layout = _find_layout(path, text, lines, context.options.column)
    _remove_comments(path, lines, layout, context.info)
    fields, line_of_token = _split_lines(path, lines, layout)
    words = fields[:: layout.n_columns]
    tags = fields[layout.tag_column :: layout.n_columns]

    def place_of(token: int) -> FilePlace:
        return FilePlace(path, int(line_of_token[token]) + 1)

    if "" in words:  # the line begins with a TAB
        token = words.index("")
        got = shown(lines[line_of_token[token]])
        raise place_of(token).refuse(f"expected a token, got {got}")
    _check_tag_column(fields, layout, place_of(0))

    # A token begins a sentence if the line before it has no token, (N,). The first token begins
    # one, too: -2 is as if the last token before it were two lines above the file.
    sent_start = numpy.diff(line_of_token, prepend=-2) > 1
    tokens = TaggedTokens(
        words,
        tags,
        sent_start,
        n_docstarts=numpy.cumsum(is_docstart)[line_of_token],
        pos=_find_parts_of_speech(fields, layout),
    )
    format_name = f"{layout.n_columns} columns, separated by {layout.separator}"
    return make_docs(tokens, place_of, format_name, context, context.options.n_sents)


def _check_tag_column(fields: list[str], layout: Layout, place: FilePlace) -> None:
    """Check that there are tags of entities in their column, unless the file has only two: then the
    second has the tags, whatever they are. `fields` are those of all tokens; `place` is that of the
    first."""
    tags = fields[layout.tag_column :: layout.n_columns]
    if layout.n_columns == 2 or _has_tags(tags):
        return
    hint = _hint_at_tags(fields, layout.n_columns)
    expected = f"column {layout.tag_column + 1}: expected tags of entities"
    raise place.refuse(f"{expected}, got only such as {tags[0]!r}: {hint}")


def _split_lines(path: Path, lines: list[str], layout: Layout) -> tuple[list[str], Ints1d]:
    """Split all lines into fields. Returns the fields of all tokens as one list; and the index of
    the line of each token, (N,). Refuses a line that has another number of columns than the
    layout."""
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
    """Find how the lines of a file are split into columns, and which column has the tags, from the
    first line with a token. `text` is all of the file, `column` the option for the column of the
    tags: see `_tag_column`."""
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
        # `str.split` is faster, so it is used where it does the same.
        has_odd_space = any(space in text for space in ODD_SPACES)
        split = _split_at_blanks if has_odd_space else str.split

    n_columns = len(split(line))
    if n_columns < 2:
        raise place.refuse(f"expected a token and its tag, got one column: {shown(line)}")
    return Layout(split, separator, n_columns, _tag_column(column, n_columns, place))


def _tag_column(column: int | None, n_columns: int, place: FilePlace) -> int:
    """The index of the column of the tags, from 0. `column` is the option for it: from 1, or from
    -1 at the end; None: the last. `place` is for the error that there is no such column."""
    if column is None:
        column = n_columns
    elif column < 0:
        column += n_columns + 1  # -1 is the last
    if not 1 < column <= n_columns:  # the first has the tokens
        expected = f"expected a column of tags from 2 to {n_columns}"
        raise place.refuse(f"column: {expected}, got {column}")
    return column - 1


def _find_first_row(lines: list[str]) -> int | None:
    """The index of the first line that has a token; None if no line has one. Lines that begin with
    "#" are taken for comments. If all do, it is the first that ends with a tag, as "#" may be a
    token."""
    for i, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            return i
    for i, line in enumerate(lines):
        if _is_tag(line.split("\t")[-1]) or _is_tag(line.split(" ")[-1]):
            return i
    return None


def _split_at_blanks(line: str) -> list[str]:
    """Split at blanks and TABs only: unlike `str.split`, not at no-break spaces. A line of white
    space has no fields."""
    if not line.strip():
        return []
    return BLANKS.split(line.strip(" \t"))


def _split_at_tabs(line: str, *, is_padded: bool) -> list[str]:
    """Split at TABs. If columns are padded with blanks, these are no part of a field; but a field
    of nothing but blanks stays as it is. A line of white space has no fields."""
    if not line.strip():
        return []
    fields = line.rstrip(" \t").split("\t")
    if not is_padded:
        return fields
    stripped_fields = []
    for field in fields:
        stripped = field.strip(" ")
        stripped_fields.append(stripped if stripped else field)
    return stripped_fields


def _remove_comments(path: Path, lines: list[str], layout: Layout, info: CorpusInfo) -> None:
    """Replace comments by empty lines, in place, and report them: lines that begin with "#" at the
    beginning of a sentence, unless "#" is a token there and has its tag."""
    for i, line in enumerate(lines):
        if not line.startswith("#"):
            continue
        begins_sentence = i == 0 or not lines[i - 1].strip()
        fields = layout.split(line)
        is_token = len(fields) == layout.n_columns and _is_tag(fields[layout.tag_column])
        if begins_sentence and not is_token:
            lines[i] = ""
            info.add_problem("comments are left out", FilePlace(path, i + 1), line)


def _is_tag(field: str) -> bool:
    """Whether a field may be a tag of entities: O, a sign for missing annotation, or a prefix and a
    label, such as B-PER."""
    return field == "O" or field in NOT_ANNOTATED or PREFIXED.fullmatch(field) is not None


def _has_tags(column: list[str]) -> bool:
    """Whether a column has tags of entities. In CoNLL-U "_" is any empty field, so it is no sign of
    tags."""
    return any(_is_tag(field) for field in set(column) - {"_"})


def _hint_at_tags(fields: list[str], n_columns: int) -> str:
    """Say in which column tags of entities are, for the error that the chosen column has none.
    `fields` are those of all tokens, one token after another."""
    for column in range(1, n_columns):
        for field in fields[column::n_columns]:
            if PREFIXED.match(field):
                return f"column {column + 1} has tags such as {field!r}"
    return "no column has entities"


def _find_parts_of_speech(fields: list[str], layout: Layout) -> list[str] | None:
    """The second column as the part of speech of each token, as `spacy convert -c ner` reads it; ""
    where it is missing. Returns None if that is the column of the tags, or if it has prefixes, as
    tags of chunks have. `fields` are those of all tokens, one token after another."""
    if layout.n_columns < 3 or layout.tag_column == 1:
        return None
    column = fields[1 :: layout.n_columns]
    pos_of_text: dict[str, str] = {}
    for text in set(column):
        if PREFIXED.fullmatch(text):
            return None
        pos_of_text[text] = "" if text in NOT_ANNOTATED else text
    return [pos_of_text[text] for text in column]


def write_columns(path: Path, docs: Sequence[Doc]) -> int:
    """Write docs in two columns with a TAB between them: tokens, and tags in IOB2 or, where
    annotation is missing, "-". If a doc has several sentences, docs begin with -DOCSTART- lines.

    path (Path): The file.
    docs (Sequence[Doc]): The docs.
    RETURNS (int): The number of white-space tokens: columns can't have them, they are left out.
    RAISES (ValueError): If a token or a label would not be read as it is.
    """
    has_documents = any(map(_has_several_sentences, docs))
    n_left_out = 0
    blocks: list[str] = []  # of the text of the file
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
    if text.startswith("\ufeff"):  # at the beginning of a file it would be a byte order mark
        text = f"\n{text}"
    path.write_text(text, encoding="utf8", newline="\n")
    return n_left_out


def _has_several_sentences(doc: Doc) -> bool:
    """Whether a sentence begins after the first token."""
    return bool((doc.to_array(SENT_START)[1:] == 1).any())


def _to_lines(sent: Iterable[Token]) -> Iterator[str]:
    """The lines of the tokens of a sentence, each a token and its IOB2 tag. White-space tokens have
    none."""
    begins_entity = False
    for token in sent:
        # Where an entity begins with white space, which is left out, the next token has the B.
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
