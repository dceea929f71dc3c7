"""Columns as in the CoNLL shared tasks: a line for each token, with its tag.

Columns are separated by one TAB or by blanks. A line of nothing but white space ends a sentence. A
line that begins with -DOCSTART- begins a document. A line that begins with "#", at the beginning of
a sentence, is a comment if it isn't a token and its tag.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy
from spacy.attrs import SENT_START
from spacy.tokens import Doc, Token

from ..ent_iob import BEGIN, MISSING
from .context import Context
from .files import Place, read_text, shown
from .schemes import NOT_ANNOTATED, PREFIXED
from .sentences import make_docs

DOCSTART = "-DOCSTART-"
BLANKS = re.compile(r"[ \t]+")
ODD_SPACES = [char for char in map(chr, range(0x3001)) if char.isspace() and char not in " \t\n"]
"""White space at which `str.split` splits, but no column ends: no-break spaces and others."""

ODD_TOKEN, ODD_LABEL = map(re.compile, (r"[\t\n\r\0]| $|^-DOCSTART-", r"[\t\n\r\0]| $|^[-_]+$"))
"""Tokens and labels that would not be read as they were written."""

Split = Callable[[str], list[str]]


def read_columns(path: Path, context: Context) -> Iterator[Doc]:
    """Read a file of columns.

    RAISES (CorpusError): If a line has another number of columns than the first, or something else
        than a tag in its tag column.
    """
    text, source = read_text(path), Place(path, 1)
    lines = text.split("\n")
    part = numpy.cumsum([line.startswith(DOCSTART) for line in lines])
    lines = ["" if line.startswith(DOCSTART) else line for line in lines]
    split, separator, n_columns, column = _find_columns(text, lines, context, source)
    for i, line in enumerate(lines):
        if line[:1] == "#" and (i == 0 or not lines[i - 1].strip()):
            row = split(line)
            if len(row) != n_columns or not _is_tag(row[column]):
                lines[i], at_line = "", source._replace(number=i + 1)
                context.info.add_problem("comments are left out", at_line, line)
    fields: list[str] = []
    lengths: list[int] = []
    for row in map(split, lines):
        fields += row
        lengths.append(len(row))
    n_fields = numpy.asarray(lengths)
    for i in numpy.flatnonzero((n_fields != n_columns) & (n_fields > 0)).tolist():
        message = f"expected {n_columns} columns, got {n_fields[i]}: {shown(lines[i])}"
        raise source._replace(number=i + 1).refuse(message)
    at, words = numpy.flatnonzero(n_fields), fields[::n_columns]
    if "" in words:
        i = int(at[words.index("")])
        raise source._replace(number=i + 1).refuse(f"expected a token, got {shown(lines[i])}")
    tags, form = fields[column::n_columns], f"{n_columns} columns, separated by {separator}"
    if n_columns > 2 and not any(tag != "_" and _is_tag(tag) for tag in {*tags}):
        others = [(i + 1, tag) for i in range(1, n_columns) for tag in fields[i::n_columns]]
        known = [f"column {i} has tags such as {tag!r}" for i, tag in others if PREFIXED.match(tag)]
        message = f"column {column + 1}: expected tags of entities, got only such as {tags[0]!r}: "
        message += next(iter(known), "no column has entities")
        raise source._replace(number=int(at[0]) + 1).refuse(message)
    sent_start = numpy.diff(at, prepend=-2) > 1
    place = lambda token: source._replace(number=int(at[token]) + 1)  # noqa: E731
    n_sents = context.options.n_sents
    pos = find_parts_of_speech(fields, n_columns, column)
    return make_docs(words, tags, sent_start, part[at], place, form, context, n_sents, pos)


def find_parts_of_speech(fields: list[str], n_columns: int, column: int) -> list[str] | None:
    """The part of speech of each token, "" where it is missing: the second column, as `spacy
    convert -c ner` reads it. None if that is the column of the tags, or has others of entities or
    chunks. `fields` are those of all tokens, `column` is the one of the tags."""
    if n_columns < 3 or column == 1:
        return None
    names = {tag: "" if tag in NOT_ANNOTATED else tag for tag in {*fields[1::n_columns]}}
    if any(PREFIXED.fullmatch(name) for name in names):
        return None
    return [names[tag] for tag in fields[1::n_columns]]


def _find_columns(
    text: str, lines: list[str], context: Context, source: Place
) -> tuple[Split, str, int, int]:
    """Find how lines are split into columns, and none if they are white space; the name of the
    separator; the number of columns; and the one of the tags, as an index."""
    first = (i for i, line in enumerate(lines) if line.strip() and line[0] != "#")
    tagged = (i for i, line in enumerate(lines) if any(_is_tag(line.split(c)[-1]) for c in "\t "))
    i = next(chain(first, tagged), None)
    if i is None:
        raise source.refuse("expected tokens and their tags, got none")
    line, source = lines[i], source._replace(number=i + 1)
    split: Split = str.split
    separator = "TABs" if "\t" in line.strip() else "blanks"
    if separator == "TABs":
        is_padded = " \t" in text or "\t " in text
        split = partial(_split_at_tabs, is_padded=True) if is_padded else _split_at_tabs
    elif any(map(text.__contains__, ODD_SPACES)):
        split = _split_at_blanks
    n, column = len(split(line)), context.options.column
    if n < 2:
        raise source.refuse(f"expected a token and its tag, got one column: {shown(line)}")
    column = n if column is None else column if column > 0 else n + 1 + column
    if not 1 < column <= n:
        raise source.refuse(f"column: expected a column of tags from 2 to {n}, got {column}")
    return split, separator, n, column - 1


def _is_tag(text: str) -> bool:
    return text == "O" or text in NOT_ANNOTATED or PREFIXED.fullmatch(text) is not None


def _split_at_blanks(line: str) -> list[str]:
    return BLANKS.split(line.strip(" \t")) if line.strip() else []


def _split_at_tabs(line: str, is_padded: bool = False) -> list[str]:
    columns = line.rstrip(" \t").split("\t") if line.strip() else []
    return [column.strip(" ") or column for column in columns] if is_padded else columns


def write_columns(path: Path, docs: Sequence[Doc]) -> int:
    """Write docs in two columns with a TAB between them: tokens, and tags in IOB2 or, where
    annotation is missing, "-". If a doc has several sentences, docs begin with -DOCSTART- lines.
    Returns the number of white-space tokens: columns can't have them, they are left out."""
    has_documents = any((doc.to_array(SENT_START)[1:] == 1).any() for doc in docs)
    n_left_out = 0
    blocks: list[str] = []
    for doc in docs:
        blocks += [f"{DOCSTART}\tO\n\n"] if has_documents else []
        for sent in doc.sents if has_documents and doc.has_annotation("SENT_START") else [doc]:
            lines = [*_lines(sent)]
            blocks += [*lines, "\n"] if lines else []
            n_left_out += len(sent) - len(lines)
    text = "".join(blocks)
    text = f"\n{text}" if text[:1] == "\ufeff" else text  # here it would be a byte order mark
    path.write_text(text, encoding="utf8", newline="\n")
    return n_left_out


def _lines(sent: Iterable[Token]) -> Iterator[str]:
    begins = False
    for token in sent:
        begins = begins or token.ent_iob == BEGIN
        if token.is_space:
            continue
        if ODD_TOKEN.search(token.text):
            raise ValueError(f"expected a token that columns can have, got {token.text!r}")
        if ODD_LABEL.search(token.ent_type_):
            raise ValueError(f"expected a label that columns can have, got {token.ent_type_!r}")
        tag = f"{'B' if begins else 'I'}-{token.ent_type_}" if token.ent_type_ else "O"
        yield f"{token.text}\t{'-' if token.ent_iob == MISSING else tag}\n"
        begins = False
