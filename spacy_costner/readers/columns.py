"""Read and write column files, as in the CoNLL shared tasks: one token and its tag per line.

Columns are separated by a single tab, or by any number of spaces and tabs. A blank line ends a
sentence. A line that begins with -DOCSTART- begins a document. At the beginning of a sentence, a
line that begins with "#" is a comment, unless it contains a token and its tag.

A *field* is the text in one column of one line. For speed, the fields of all token lines are stored
in a single list, line by line. In a file with n columns, `fields[column::n]` are the fields of one
column. The module `layout` infers which columns contain the tokens and tags.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy
from spacy.attrs import ENT_IOB, SENT_START
from spacy.tokens import Doc, Span, Token
from thinc.types import Array1d, Ints1d

from ..annotation.iob import BEGIN, INSIDE, MISSING
from .context import Context, CorpusInfo, ReadOptions
from .files import FilePlace, read_text, shown
from .layout import InferredTags, Table, check_inferred, find_columns, is_tag, tags_of_key
from .schemes import NOT_ANNOTATED
from .sentences import TaggedTokens, make_docs

DOCSTART = "-DOCSTART-"
BLANKS = re.compile(r"[ \t]+")
ODD_SPACES = [char for char in map(chr, range(0x3001)) if char.isspace() and char not in " \t\n"]
"""Whitespace characters that `str.split` splits at but that don't separate columns, such as
no-break spaces. U+3000 is the last whitespace character in Unicode."""

ODD_TOKEN = re.compile(r"[\t\n\r\0]| $|^-DOCSTART-")
"""Matches tokens that can't be written and read back unchanged. A trailing space, for example,
would be read as padding before the tab."""

ODD_LABEL = re.compile(r"[\t\n\r\0]| $|^[-_]+$")
"""Matches labels that can't be written and read back unchanged."""


COLUMN_NAMES = re.compile(r"# *global\.columns *= *(\S.*)")
"""Matches the first line of a CoNLL-U Plus file, which contains the names of the columns."""

NO_TOKENS = "multiword tokens and empty nodes are left out: their words have their own lines"


class Layout(NamedTuple):
    """How to split the lines of a file into fields.

    split (Callable[[str], list[str]]): Splits a line into its fields. Returns an empty list for a
        blank line.
    separator (str): The name of the separator: "TABs" or "blanks".
    n_columns (int): The number of columns.
    """

    split: Callable[[str], list[str]]
    separator: str
    n_columns: int


class ColumnsFile(NamedTuple):
    """The content of a column file.

    tokens (TaggedTokens): The tokens and tags.
    place_of (Callable[[int], FilePlace]): Returns the location of the token at an index.
    format_name (str): The name of the format.
    columns (str): A description of the columns that were read.
    inferred (InferredTags | None): The inferred tag column: see `layout.Columns`.
    """

    tokens: TaggedTokens
    place_of: Callable[[int], FilePlace]
    format_name: str
    columns: str
    inferred: InferredTags | None


class TokenRows(NamedTuple):
    """The N rows of a column file that contain tokens.

    table (Table): The fields of the rows.
    line_of_token (Ints1d): The index of each token's line. Shape: (N,)
    sent_start (Array1d): Whether each token begins a sentence. Shape: (N,)
    """

    table: Table
    line_of_token: Ints1d
    sent_start: Array1d


def read_columns(path: Path, context: Context) -> Iterator[Doc]:
    """Read the docs of a column file.

    path (Path): The column file.
    context (Context): The pipeline and the options. The format and any problems are added to
        `context.info`.
    RETURNS (Iterator[Doc]): The docs, with their entities.
    RAISES (CorpusError): If the file isn't UTF-8 text or contains no tokens, if the number of
        columns varies, if the tag column contains anything other than tags of one scheme, or if the
        token column or tag column is ambiguous.
    """
    file = read_tokens(path, context.options, context.info)
    # If the scheme is known, the columns of all files have been checked together.
    if context.scheme is None and file.inferred is not None:
        check_inferred([file.inferred])
    n_sents = context.options.n_sents
    return make_docs(file.tokens, file.place_of, file.format_name, context, n_sents, file.columns)


def read_tokens(path: Path, options: ReadOptions, info: CorpusInfo) -> ColumnsFile:
    """Read the tokens and tags of a column file: see `read_columns`.

    path (Path): The column file.
    options (ReadOptions): The options for the token column and the tag column.
    info (CorpusInfo): Collects problems.
    RETURNS (ColumnsFile): The tokens and tags.
    RAISES (CorpusError): If the file can't be read.
    """
    text = read_text(path)
    lines = text.split("\n")
    is_docstart = numpy.asarray([line.startswith(DOCSTART) for line in lines])
    for i in numpy.flatnonzero(is_docstart).tolist():
        lines[i] = ""  # like an empty line, a -DOCSTART- line ends a sentence

    names = _take_column_names(lines)
    layout = _find_layout(path, text, lines)
    if names and len(names) != layout.n_columns:
        expected = f"expected {len(names)} columns, as `global.columns` names"
        raise FilePlace(path, 1).refuse(f"{expected}, got {layout.n_columns}")
    _remove_comments(path, lines, layout, options.tag_column, info)
    fields, line_of_row = _split_lines(path, lines, layout)
    if not fields:  # all lines are comments, including the one that looked like the first token
        raise FilePlace(path, 1).refuse("expected tokens and their tags, got none")

    # A row begins a sentence if its line doesn't directly follow the line of the previous row. The
    # first row always begins one, because `prepend` puts a row on line -2. Shape: (number of rows,)
    begins_sentence = numpy.diff(line_of_row, prepend=-2) > 1
    place = FilePlace(path, int(line_of_row[0]) + 1)
    has_tabs = layout.separator == "TABs"
    table = Table(fields, layout.n_columns, names, begins_sentence, has_tabs, place)
    columns = find_columns(table, options)

    rows = TokenRows(table, line_of_row, begins_sentence)
    if columns.number is not None:
        rows = _leave_out_other_rows(path, lines, rows, columns.number, info)
    words = rows.table.column(columns.token)
    tags = rows.table.column(columns.tag)

    def place_of(token: int) -> FilePlace:
        return FilePlace(path, int(rows.line_of_token[token]) + 1)

    if not words:
        raise place.refuse("expected tokens and their tags, got none")
    if "" in words:  # a line begins with a tab
        token = words.index("")
        got = shown(lines[rows.line_of_token[token]])
        raise place_of(token).refuse(f"expected a token, got {got}")
    if columns.key is not None:
        tags = tags_of_key(tags, columns.key)
        if "-" in tags:
            message = f"tokens without {columns.key}= are missing annotation"
            first_token = tags.index("-")
            n_others = tags.count("-") - 1
            info.add_problem(message, place_of(first_token), words[first_token], more=n_others)
    pos = None
    if columns.pos is not None:
        column = rows.table.column(columns.pos)
        pos = ["" if text in NOT_ANNOTATED else text for text in column]

    n_docstarts_up_to_line = numpy.cumsum(is_docstart)
    n_docstarts = n_docstarts_up_to_line[rows.line_of_token]
    tokens = TaggedTokens(words, tags, rows.sent_start, n_docstarts, pos)
    format_name = f"{layout.n_columns} columns, separated by {layout.separator}"
    return ColumnsFile(tokens, place_of, format_name, columns.text, columns.inferred)


def _take_column_names(lines: list[str]) -> list[str]:
    """Read the column names in the first line of CoNLL-U Plus, and clear the line. Returns an empty
    list if the file doesn't begin with column names."""
    match = COLUMN_NAMES.fullmatch(lines[0].rstrip())
    if match is None:
        return []
    lines[0] = ""
    return match[1].split()


def _leave_out_other_rows(
    path: Path, lines: list[str], rows: TokenRows, number_column: int, info: CorpusInfo
) -> TokenRows:
    """Remove the CoNLL-U rows that aren't tokens, and report them as problems: multiword tokens,
    whose number is a range such as 1-2, and empty nodes, such as 1.1."""
    table, line_of_row, begins_sentence = rows
    is_token = numpy.asarray([number.isdigit() for number in table.column(number_column)])
    if is_token.all():
        return rows
    first_line = int(line_of_row[numpy.argmin(is_token)])  # of the first row that isn't a token
    n_others = int((~is_token).sum()) - 1
    place = FilePlace(path, first_line + 1)
    info.add_problem(NO_TOKENS, place, lines[first_line], more=n_others)

    # Sentences are numbered first, because a row that isn't a token may begin a sentence.
    # Shape: (number of tokens,)
    sentence_of_token = numpy.cumsum(begins_sentence)[is_token]
    sent_start = numpy.diff(sentence_of_token, prepend=0) > 0
    fields = _keep_rows(table.fields, table.n_columns, is_token)
    return TokenRows(table._replace(fields=fields), line_of_row[is_token], sent_start)


def _keep_rows(fields: list[str], n_columns: int, is_kept: Array1d) -> list[str]:
    """Return the fields of selected rows. `is_kept` is a mask of shape (number of rows,)."""
    kept_fields: list[str] = []
    for row in numpy.flatnonzero(is_kept).tolist():
        kept_fields += fields[row * n_columns : (row + 1) * n_columns]
    return kept_fields


def _split_lines(path: Path, lines: list[str], layout: Layout) -> tuple[list[str], Ints1d]:
    """Split all lines of a file into fields. Comments and -DOCSTART- lines have already been
    cleared. Returns the fields of all N tokens in one list, and the index of each token's line, of
    shape (N,). Raises an error for a line with the wrong number of columns."""
    split = layout.split
    fields: list[str] = []
    n_fields_of_lines: list[int] = []
    for line in lines:
        line_fields = split(line)
        fields += line_fields
        n_fields_of_lines.append(len(line_fields))

    n_fields = numpy.asarray(n_fields_of_lines)
    has_token = n_fields > 0  # all other lines are blank
    wrong_lines = numpy.flatnonzero(has_token & (n_fields != layout.n_columns))
    if len(wrong_lines):
        i = int(wrong_lines[0])
        message = f"expected {layout.n_columns} columns, got {n_fields[i]}: {shown(lines[i])}"
        raise FilePlace(path, i + 1).refuse(message)
    return fields, numpy.flatnonzero(has_token)


def _find_layout(path: Path, text: str, lines: list[str]) -> Layout:
    """Infer how to split lines into columns from the first line that contains a token. `text` is
    the whole text of the file. Raises an error if the file has no tokens or only one column."""
    first_row = _find_first_row(lines)
    if first_row is None:
        raise FilePlace(path, 1).refuse("expected tokens and their tags, got none")
    line = lines[first_row]

    split: Callable[[str], list[str]]
    if "\t" in line.strip():
        separator = "TABs"
        is_padded = " \t" in text or "\t " in text
        split = partial(_split_at_tabs, is_padded=is_padded)
    else:
        separator = "blanks"
        # `str.split` is faster, and returns the same fields if there is no odd whitespace.
        has_odd_space = any(space in text for space in ODD_SPACES)
        split = _split_at_blanks if has_odd_space else str.split

    n_columns = len(split(line))
    if n_columns < 2:
        place = FilePlace(path, first_row + 1)
        raise place.refuse(f"expected a token and its tag, got one column: {shown(line)}")
    return Layout(split, separator, n_columns)


def _find_first_row(lines: list[str]) -> int | None:
    """Return the index of the first line that contains a token. Lines that begin with "#" are
    assumed to be comments. If there are no other lines, "#" may be a token, and the first line that
    ends with a tag is used. Returns None if no line contains a token."""
    for i, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            return i
    for i, line in enumerate(lines):
        if is_tag(line.split("\t")[-1]) or is_tag(line.split(" ")[-1]):
            return i
    return None


def _split_at_blanks(line: str) -> list[str]:
    """Split a line at spaces and tabs only. `str.split` also splits at other whitespace, such as
    no-break spaces. A blank line has no fields."""
    if not line.strip():
        return []
    return BLANKS.split(line.strip(" \t"))


def _split_at_tabs(line: str, *, is_padded: bool) -> list[str]:
    """Split a line at tabs. Trailing spaces and tabs are removed. If `is_padded` is True, spaces
    next to tabs are also removed, unless a field consists only of spaces. A blank line has no
    fields."""
    if not line.strip():
        return []
    fields = line.rstrip(" \t").split("\t")
    if not is_padded:
        return fields
    return [field.strip(" ") or field for field in fields]


def _remove_comments(
    path: Path, lines: list[str], layout: Layout, tag_column: int | str | None, info: CorpusInfo
) -> None:
    """Replace the comments in `lines` with empty lines, and report them as problems. At the
    beginning of a sentence, a line that begins with "#" is a comment, unless it contains a token
    and its tag. A tag without a prefix is recognized if it occurs in another line. For
    `tag_column`, see `ReadOptions`."""
    index = -1  # the index of the tag's field, which is nearly always the last
    if isinstance(tag_column, int) and abs(tag_column) <= layout.n_columns:
        index = tag_column - 1 if tag_column > 0 else tag_column

    @cache
    def find_other_tags() -> set[str]:
        """Find the tags of lines that don't begin with "#". Few files need them."""
        tags: set[str] = set()
        for line in lines:
            fields = layout.split(line)
            if len(fields) == layout.n_columns and not line.startswith("#"):
                tags.add(fields[index])
        return tags

    for i, line in enumerate(lines):
        if not line.startswith("#"):
            continue
        # If the previous line was a comment, it has already been cleared.
        begins_sentence = i == 0 or not lines[i - 1].strip()
        fields = layout.split(line)
        is_token = len(fields) == layout.n_columns and (
            is_tag(fields[index]) or fields[index] in find_other_tags()
        )
        if begins_sentence and not is_token:
            lines[i] = ""
            info.add_problem("comments are left out", FilePlace(path, i + 1), line)


def write_columns(path: Path, docs: Sequence[Doc]) -> int:
    """Write docs in two tab-separated columns. The first column contains the tokens, and the second
    contains their tags in the IOB2 scheme, or "-" if annotation is missing. If any doc contains
    several sentences, each doc begins with a -DOCSTART- line. Columns can't contain whitespace
    tokens, which are omitted, or entities that cross sentences, whose sentences are joined.

    path (Path): The output file.
    docs (Sequence[Doc]): The docs to write.
    RETURNS (int): The number of omitted tokens.
    RAISES (ValueError): If a token or label can't be written and read back unchanged.
    """
    has_documents = any(map(_has_several_sentences, docs))
    n_left_out = 0
    blocks: list[str] = []  # the parts of the file's text
    for doc in docs:
        sents: Iterable[Doc | Span] = [doc]
        if has_documents:
            blocks.append(f"{DOCSTART}\tO\n\n")
            if doc.has_annotation("SENT_START"):
                sents = _sentences_with_entities(doc)
        for sent in sents:
            lines = list(_to_lines(sent))
            n_left_out += len(sent) - len(lines)
            if lines:
                blocks += lines
                blocks.append("\n")  # an empty line ends the sentence

    text = "".join(blocks)
    if text.startswith("\ufeff"):
        # At the beginning of a file, this character would be read as a byte order mark.
        text = f"\n{text}"
    path.write_text(text, encoding="utf8", newline="\n")
    return n_left_out


def _has_several_sentences(doc: Doc) -> bool:
    """Check whether any token after the first one begins a sentence."""
    return bool((doc.to_array(SENT_START)[1:] == 1).any())


def count_starts_in_entities(doc: Doc) -> int:
    """Count the sentence starts inside entities, which `write_columns` can't write."""
    return int(_starts_in_entities(doc).sum())


def _starts_in_entities(doc: Doc) -> Array1d:
    """Return a mask of the tokens that begin a sentence inside an entity. Shape: (T,)"""
    is_sent_start = doc.to_array(SENT_START) == 1
    is_inside = doc.to_array(ENT_IOB) == INSIDE
    return is_sent_start & is_inside


def _sentences_with_entities(doc: Doc) -> Iterator[Span]:
    """Yield the sentences of a doc. Sentences that share an entity are joined, because an entity
    ends with its sentence when columns are read."""
    is_start_in_entity = _starts_in_entities(doc)
    start = 0
    for sent in doc.sents:
        is_last = sent.end == len(doc)
        if is_last or not is_start_in_entity[sent.end]:
            yield doc[start : sent.end]
            start = sent.end


def _to_lines(sent: Iterable[Token]) -> Iterator[str]:
    """Yield one line per token of a sentence: the token and its tag in the IOB2 scheme. Whitespace
    tokens are omitted. Raises a ValueError if a token or label can't be written and read back
    unchanged."""
    begins_entity = False
    for token in sent:
        # If an entity begins with a whitespace token, which is omitted, the next token gets the
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
