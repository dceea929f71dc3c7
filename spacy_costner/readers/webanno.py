"""WebAnno TSV 3.3, which WebAnno and INCEpTION export: a line for each token, a column for each
feature of each layer of annotation.

    #FORMAT=WebAnno TSV 3.3
    #T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value


    #Text=Kim Lee left 😊
    1-1	0-3	Kim	*[1]	PER[1]
    1-2	4-7	Lee	*[1]	PER[1]
    1-3	8-12	left	_	_
    1-4	13-15	😊	_	_

Lines with the same number in brackets have the same entity. "|" is between stacked entities, "*" is
an entity without a value. A line 1-1.1 has a part of a token. Offsets count the UTF-16 code units
of the whole text. A backslash stands before characters that otherwise have a meaning.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from spacy.tokens import Doc

from .context import Context
from .files import FilePlace, read_text, shown
from .task_docs import tasks_to_docs
from .tasks import (
    AnnotatedTask,
    Range,
    Task,
    TaskSpan,
    TaskToken,
    check_all_words,
    range_in_characters,
    utf16_ends,
    utf16_length,
)

FORMAT = "#FORMAT=WebAnno TSV "
"""The beginning of every file, before the version."""

VERSION = "3.3"
TEXT = "#Text="
LAYER = re.compile(r"#T_(?:SP|CH|RL)=([^|]+)\|?(.*)")
"""A layer in the head of a file: its name, and the names of its features. It has spans (SP), chains
of spans (CH) or relations between spans (RL)."""

ENTITY_FEATURE = "NamedEntity.value"
"""The feature that has the labels, in the layer for named entities that every project has."""

N_BEFORE_FEATURES = 3
"""The first three columns have the number of a token, its offsets and its text."""

MOST_BETWEEN = 1_000_000
"""The largest number of code units between two sentences. Each becomes a blank, so that a wrong
offset must not be taken for a text of any size."""

TOKEN = re.compile(r"\d+-\d+(\.\d+)?\t(\d{1,15})-(\d{1,15})\t.*")
"""The line of a token or of a part of it. The groups are the number of the part, with a dot, and
the offsets of start and end. `int` refuses numbers of more than 4,300 digits."""

VALUE = re.compile(r"((?:[^\\|\[\]]|\\.)+)(?:\[(\d+)\])?")
"""The value of an entity, and its number."""

VALUES = re.compile(rf"{VALUE.pattern}(?:\|{VALUE.pattern})*")
"""One or more of these, with | between them."""

ESCAPED = re.compile(r"\\(.)")
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "b": "\b"}
NO_VALUE = "entities have no value: their tokens are missing annotation"


class TokenLine(NamedTuple):
    """The line of a token or of a part of a token. Offsets are in code units."""

    place: FilePlace
    start: int
    end: int
    text: str
    entities: str  # the values of its entities, as they are written
    is_part: bool


class WebannoEntity(NamedTuple):
    """An entity, in code units. Its value, as it is written, is "*" if it has none."""

    place: FilePlace
    start: int
    end: int
    value: str


class Sentence(NamedTuple):
    """The text of a sentence, and the lines of its tokens, at least one."""

    text: str
    tokens: list[TokenLine]


def is_webanno(head: str) -> bool:
    """Whether a file with this beginning is WebAnno TSV, of any version."""
    return head.startswith(FORMAT)


def read_webanno(path: Path, context: Context) -> Iterator[Doc]:
    """Read a file: one doc, with the tokens and sentences of the file. Entities without a value are
    missing annotation, and are reported.

    path (Path): The file.
    context (Context): What the reader needs. The option `tag_column` is the column of the labels.
        None: that of named entities or, without these, the only feature.
    RETURNS (Iterator[Doc]): The doc.
    RAISES (CorpusError): If the file is of another version, a line isn't of the format, or it isn't
        clear which column has labels.
    """
    begin = FilePlace(path, number=1)
    lines = read_text(path).split("\n")
    version = lines[0].removeprefix(FORMAT)
    if version != VERSION:
        raise begin.refuse(f"expected WebAnno TSV {VERSION}, got {shown(version)}")
    context.info.add_file(f"WebAnno TSV {VERSION}")
    sentences = list(_read_sentences(path, lines, context.options.tag_column))
    text = _join_texts(sentences)

    ends = utf16_ends(text)  # the end of each character, in code units
    tokens: list[TaskToken] = []
    for sentence in sentences:
        for i, line in enumerate(sentence.tokens):
            start, end = range_in_characters((line.start, line.end), ends)
            if text[start:end] != line.text:
                expected = f"expected {shown(line.text)} at its offsets"
                raise line.place.refuse(f"{expected}, got {shown(text[start:end])}")
            if not line.is_part:
                tokens.append(TaskToken(start, end, sent_start=i == 0))
    check_all_words(tokens, text, begin)

    spans: list[TaskSpan] = []
    missing: list[Range] = []
    for entity in _join_entities(sentences):
        start, end = range_in_characters((entity.start, entity.end), ends)
        if entity.value == "*":
            context.info.add_problem(NO_VALUE, entity.place, shown(text[start:end]))
            missing.append((start, end))
        else:
            spans.append(TaskSpan(start, end, _unescape(entity.value)))
    task = Task(text, spans, tokens, missing=tuple(missing))
    return tasks_to_docs([AnnotatedTask(begin, text_key=None, task=task)], context)


def _read_sentences(path: Path, lines: list[str], column: int | str | None) -> Iterator[Sentence]:
    """Read the sentences of a file.

    path (Path): The file, for errors.
    lines (list[str]): Its lines.
    column (int | str | None): The user's option for the column of the labels: see `_find_column`.
    RAISES (CorpusError): If a line isn't of the format.
    """
    features: list[str] = []  # the name of each column after the first three
    text_lines: list[str] = []
    tokens: list[TokenLine] = []
    # The empty line at the end ends the last sentence.
    for number, line in enumerate([*lines, ""], start=1):
        place = FilePlace(path, number)
        layer = LAYER.fullmatch(line)
        if layer is not None:
            layer_name = layer[1].rpartition(".")[2]
            features += [f"{layer_name}.{feature}" for feature in layer[2].split("|")]
        elif line.startswith(TEXT):
            # A sentence with line breaks has several lines of text.
            text_lines.append(_unescape(line.removeprefix(TEXT)))
        elif not line.strip():  # the end of a sentence
            if tokens:
                yield Sentence("\n".join(text_lines), tokens)
            text_lines = []
            tokens = []
        elif not line.startswith("#"):
            tokens.append(_read_token(place, line, features, column))


def _read_token(
    place: FilePlace, line: str, features: list[str], column: int | str | None
) -> TokenLine:
    """Read the line of a token, which ends with a TAB.

    place (FilePlace): The place of the line.
    line (str): The line.
    features (list[str]): The features of the file, one for each column after the token.
    column (int | str | None): The user's option for the column of the labels: see `_find_column`.
    RAISES (CorpusError): If it isn't the line of a token with these features.
    """
    match = TOKEN.fullmatch(line)
    fields = line.removesuffix("\t").split("\t")
    n_columns = N_BEFORE_FEATURES + len(features)
    if match is None or len(fields) != n_columns:
        expected = f"a number, offsets, a token and {len(features)} features"
        raise place.refuse(f"expected {expected}, got {shown(line)}")
    entities = fields[_find_column(place, features, column)]
    part, start, end = match.groups()
    return TokenLine(
        place,
        start=int(start),
        end=int(end),
        text=_unescape(fields[2]),
        entities=entities,
        is_part=part is not None,
    )


def _find_column(place: FilePlace, features: list[str], column: int | str | None) -> int:
    """The index of the column with the labels of entities. `place` is the line of a token, for the
    error.

    column (int | str | None): The user's option: the number of the column, where the first column
        is 1 and the last is -1, or the name of the feature. None: the column of `ENTITY_FEATURE`
        or, without it, the only feature.
    RAISES (CorpusError): If there is no such column.
    """
    n_columns = N_BEFORE_FEATURES + len(features)
    if isinstance(column, str):
        names = [name.upper() for name in features]
        if column.upper() in names:
            return N_BEFORE_FEATURES + names.index(column.upper())
    elif column is not None:
        index = column - 1 if column > 0 else n_columns + column
        if N_BEFORE_FEATURES <= index < n_columns:
            return index
    elif ENTITY_FEATURE in features:
        return N_BEFORE_FEATURES + features.index(ENTITY_FEATURE)
    elif len(features) == 1:
        return N_BEFORE_FEATURES
    columns = {i: name for i, name in enumerate(features, start=N_BEFORE_FEATURES + 1)}
    expected = f"expected the column of the labels in the option `tag_column`, one of {columns}"
    raise place.refuse(f"{expected}, got {column}")


def _join_texts(sentences: list[Sentence]) -> str:
    """The text of a file. What is between sentences isn't in the file: it becomes blanks.

    RAISES (CorpusError): If sentences aren't in order, or a token isn't in its sentence.
    """
    texts: list[str] = []
    n_units = 0  # of all texts so far
    for text, tokens in sentences:
        begin = tokens[0].start
        n_between = begin - n_units
        # Without a limit, a wrong offset could add any number of blanks.
        if not 0 <= n_between <= MOST_BETWEEN:
            expected = f"expected a sentence that begins at {n_units} or soon after it"
            raise tokens[0].place.refuse(f"{expected}, got {begin}")
        n_units = begin + utf16_length(text)
        for line in tokens:
            if not begin <= line.start <= line.end <= n_units:
                expected = f"expected offsets in the sentence, which ends at {n_units}"
                raise line.place.refuse(f"{expected}, got {line.start}-{line.end}")
        texts += [" " * n_between, text]
    return "".join(texts)


def _join_entities(sentences: list[Sentence]) -> Iterator[WebannoEntity]:
    """Find the entities of a file. An entity of several tokens has a number, and stands on the line
    of each of its tokens. An entity without a number has a single token."""
    numbered: dict[str, WebannoEntity] = {}
    for line in chain.from_iterable(sentence.tokens for sentence in sentences):
        if line.entities == "_":
            continue
        if not VALUES.fullmatch(line.entities):
            expected = "expected values of entities with | between them"
            raise line.place.refuse(f"{expected}, got {shown(line.entities)}")
        for value, number in VALUE.findall(line.entities):
            entity = WebannoEntity(line.place, line.start, line.end, value)
            if not number:
                yield entity
                continue
            # The entity begins on the first of its lines, and each line may make it longer.
            earlier_part = numbered.setdefault(number, entity)
            numbered[number] = earlier_part._replace(end=max(earlier_part.end, line.end))
    yield from numbered.values()


def _unescape(written: str) -> str:
    """A text or value without its backslashes."""
    return ESCAPED.sub(lambda match: CONTROLS.get(match[1], match[1]), written)
