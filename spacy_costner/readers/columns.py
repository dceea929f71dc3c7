"""Columns as in the CoNLL shared tasks: a line for each token, with its tag.

Columns are separated by one TAB or by blanks. A line of nothing but white space ends a sentence. A
line that begins with -DOCSTART- begins a document. A line that begins with "#", at the beginning of
a sentence, is a comment if it isn't a token and its tag.
"""

import re
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy
from spacy.attrs import SENT_START
from spacy.tokens import Doc, Token

from .context import Context, CorpusInfo
from .files import Place, read_text, shown
from .schemes import BEGIN, MISSING, NOT_ANNOTATED, PREFIXED
from .sentences import Sentences, make_docs

DOCSTART = "-DOCSTART-"
BLANKS = re.compile(r"[ \t]+")
ODD_SPACES = "".join(filter(str.isspace, map(chr, range(0x3001)))).translate(
    {9: "", 10: "", 32: ""}
)
"""White space at which `str.split` splits, but no column ends: no-break spaces and others."""

Split = Callable[[str], List[str]]


def read_columns(path: Path, context: Context) -> Iterator[Doc]:
    """Read a file of columns.

    RAISES (CorpusError): If a line has another number of columns than the first, or something else
        than a tag in its tag column.
    """
    text, source = read_text(path), Place(path, 1)
    lines = text.split("\n")
    docstart = numpy.zeros(len(lines), dtype="int64")
    for i in [i for i, line in enumerate(lines) if line.startswith(DOCSTART)]:
        docstart[i], lines[i] = 1, ""
    part = numpy.cumsum(docstart)
    split, separator = find_separator(text, lines)
    n_columns, column = _find_columns(lines, split, context.options.column, source)
    if text.startswith("#") or "\n#" in text:
        _take_comments(lines, split, (n_columns, column), source, context.info)
    fields: List[str] = []
    lengths: List[int] = []
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
    sent_start = numpy.diff(at, prepend=-2) > 1
    sentences = Sentences(words, fields[column::n_columns], at + 1, sent_start, part[at])
    form = f"{n_columns} columns, separated by {separator}"
    return make_docs(sentences, source, form, context, context.options.n_sents)


def find_separator(text: str, lines: Iterable[str]) -> Tuple[Split, str]:
    """Find how the columns of a file are separated: a function that splits a line into columns,
    none for white space, and the name of the separator."""
    first = next((line for line in lines if line.strip() and line[0] not in "#-"), "")
    if "\t" in first.strip():
        return (_split_padded if " \t" in text or "\t " in text else _split_at_tabs), "TABs"
    has_odd_spaces = any(map(text.__contains__, ODD_SPACES))
    return (_split_at_blanks if has_odd_spaces else str.split), "blanks"


def _split_at_blanks(line: str) -> List[str]:
    return BLANKS.split(line.strip(" \t")) if line.strip() else []


def _split_at_tabs(line: str) -> List[str]:
    return line.rstrip(" \t").split("\t") if line.strip() else []


def _split_padded(line: str) -> List[str]:
    return [column.strip(" ") or column for column in _split_at_tabs(line)]


def _find_columns(
    lines: Iterable[str], split: Split, column: Optional[int], source: Place
) -> Tuple[int, int]:
    """The number of columns, and the one of the tags as an index."""
    tokens = ((i, line) for i, line in enumerate(lines) if line[:1] != "#" and line.strip())
    i, line = next(tokens, (0, ""))
    if not line:
        raise source.refuse("expected tokens and their tags, got none")
    n, source = len(split(line)), source._replace(number=i + 1)
    if n < 2:
        raise source.refuse(f"expected a token and its tag, got one column: {shown(line)}")
    column = n if column is None else column if column > 0 else n + 1 + column
    if not 1 < column <= n:
        raise source.refuse(f"column: expected a column of tags from 2 to {n}, got {column}")
    return n, column - 1


def _take_comments(
    lines: List[str], split: Split, columns: Tuple[int, int], source: Place, info: CorpusInfo
) -> None:
    """Empty the comments."""
    n_columns, column = columns
    for i, line in enumerate(lines):
        if line[:1] == "#" and (i == 0 or not lines[i - 1].strip()):
            row = split(line)
            tag = row[column] if len(row) == n_columns else ""
            if not (tag == "O" or tag in NOT_ANNOTATED or PREFIXED.fullmatch(tag)):
                lines[i] = ""
                info.add_problem("comments are left out", source._replace(number=i + 1), line)


def write_columns(path: Path, docs: Sequence[Doc]) -> int:
    """Write docs in two columns with a TAB between them: tokens, and tags in IOB2 or, where
    annotation is missing, "-". If a doc has several sentences, docs begin with -DOCSTART- lines.
    Returns the number of white-space tokens: columns can't have them, they are left out."""
    has_documents = any((doc.to_array(SENT_START)[1:] == 1).any() for doc in docs)
    n_left_out = 0
    with path.open("w", encoding="utf8", newline="\n") as file:
        for doc in docs:
            file.write(f"{DOCSTART}\tO\n\n" if has_documents else "")
            for sent in doc.sents if has_documents and doc.has_annotation("SENT_START") else [doc]:
                lines = [*_lines(sent)]
                file.write("".join(lines) + "\n" if lines else "")
                n_left_out += len(sent) - len(lines)
    return n_left_out


def _lines(sent: Iterable[Token]) -> Iterator[str]:
    begins = False
    for token in sent:
        begins = begins or token.ent_iob == BEGIN
        if token.is_space:
            continue
        if "\t" in token.text or "\n" in token.text:
            raise ValueError(f"expected tokens that columns can have, got {token.text!r}")
        tag = f"{'B' if begins else 'I'}-{token.ent_type_}" if token.ent_type_ else "O"
        yield f"{token.text}\t{'-' if token.ent_iob == MISSING else tag}\n"
        begins = False
