"""WebAnno TSV 3.2 and 3.3, which WebAnno and INCEpTION export: a line for each token, a column for
each feature of each layer of annotation.

    #FORMAT=WebAnno TSV 3.3
    #T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value


    #Text=Kim Lee left 😊
    1-1	0-3	Kim	*[1]	PER[1]
    1-2	4-7	Lee	*[1]	PER[1]
    1-3	8-12	left	_	_
    1-4	13-15	😊	_	_

Lines with the same number in brackets have the same entity. "|" separates stacked entities, and "*"
is an entity without a value. A line 1-1.1 has a part of a token. Offsets count the UTF-16 code
units of the whole text. A backslash escapes characters that otherwise have a meaning.

A file names only the layers that have annotations in it. So the feature with the labels is found
for all files of a corpus together: `find_label_feature`.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from spacy.tokens import Doc

from .context import Context, ReadOptions
from .files import FilePlace, read_text, shown
from .offsets import Range, range_in_characters, utf16_ends, utf16_length
from .task_docs import tasks_to_docs
from .tasks import AnnotatedTask, Task, TaskSpan, TaskToken, check_all_words

FORMAT = "#FORMAT=WebAnno TSV "
"""The beginning of every file, before the version."""

VERSIONS = ("3.2", "3.3")
TEXT = "#Text="
LAYER = re.compile(r"#T_(SP|CH|RL)=([^|]+)\|?(.*)")
"""A layer in the head of a file: its type, its name, and the names of its features. It has spans
(SP), chains of spans (CH) or relations between spans (RL)."""

SPANS = "SP"
"""The type of a layer of spans. Only such a layer has entities."""

ENTITY_FEATURE = "NamedEntity.value"
"""The feature that has the labels, in the layer for named entities that every project has."""

BUILT_IN = "de.tudarmstadt.ukp."
"""The beginning of the names of the layers that every project has. Except for the layer of named
entities, they are for lemmas, parts of speech and other things that aren't entities."""

N_BEFORE_FEATURES = 3
"""The first three columns have the number of a token, its offsets and its text."""

MOST_BETWEEN = 1_000_000
"""The maximum number of code units between two sentences. Each becomes a blank, so that without a
limit a wrong offset could make a text of any size."""

TOKEN = re.compile(r"\d+-\d+(\.\d+)?\t(\d{1,15})-(\d{1,15})\t.*")
"""Matches the line of a token or of a part of it. The groups are the number of the part, with a
dot, and the offsets of start and end. `int` refuses numbers of more than 4,300 digits."""

VALUE = re.compile(r"((?:[^\\|\[\]]|\\.)+)(?:\[(\d+)\])?")
"""Matches the value of an entity, and its number."""

VALUES = re.compile(rf"{VALUE.pattern}(?:\|{VALUE.pattern})*")
"""Matches one or more values, with | between them."""

NO_ENTITY = "_"
"""The value of a column on the line of a token without an entity."""

WITHOUT_VALUE = "*"
"""The value of an entity whose value is missing."""

ESCAPED = re.compile(r"\\(.)")
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "b": "\b"}
NO_VALUE = "entities have no value: their tokens are missing annotation"
NO_LABELS = "files have no layer for labels, such as NamedEntity: their annotation is missing"
NO_LAYER = "files don't have {}, which other files have: their annotation is missing"


class Feature(NamedTuple):
    """A feature of a layer: a column of a file.

    name (str): The names of the layer and of the feature, such as `ENTITY_FEATURE`.
    may_be_label (bool): Whether it may have the labels of entities: see `BUILT_IN`.
    """

    name: str
    may_be_label: bool


class TokenLine(NamedTuple):
    """The line of a token or of a part of a token.

    place (FilePlace): The line.
    start (int): The first code unit of the token.
    end (int): The code unit after its last.
    text (str): Its text.
    entities (str): The values of its entities, as they are written.
    is_part (bool): Whether it is a part of a token.
    """

    place: FilePlace
    start: int
    end: int
    text: str
    entities: str
    is_part: bool


class WebannoEntity(NamedTuple):
    """An entity, in code units. Its value is as in the file: `WITHOUT_VALUE` if it is missing."""

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


def find_label_feature(paths: Iterable[Path], options: ReadOptions) -> str | None:
    """Find the feature that has the labels of entities in the files of a corpus. Each file names
    only the layers that have annotations in it, so one file isn't enough.

    paths (Iterable[Path]): All WebAnno TSV files of the corpus.
    options (ReadOptions): `tag_column` is the name of a feature, such as `ENTITY_FEATURE`, or of a
        layer with one feature; or the number of its column, where the first column is 1 and the
        last is -1. None: the feature of named entities or, if no file has it, the only feature of
        the layers of spans that the user has added.
    RETURNS (str | None): The name of the feature. None: no file has a layer that may have labels.
    RAISES (CorpusError): If it isn't clear which feature it is.
    """
    features_of_file = {path: list(_read_features(_read_head_lines(path))) for path in paths}
    if not features_of_file:
        return None
    may_be_label: dict[str, bool] = {}  # keyed by the names of all features
    for features in features_of_file.values():
        may_be_label |= {feature.name: feature.may_be_label for feature in features}

    # Find the features that the option means, or that may have the labels without it.
    choice = options.tag_column
    file_of_name: dict[str, Path] = {}
    if isinstance(choice, int):
        file_of_name = _names_in_column(features_of_file, choice)
        names = [*file_of_name]
    elif choice is not None:
        names = [name for name in may_be_label if _is_of_layer(name, choice)]
    elif ENTITY_FEATURE in may_be_label:
        names = [ENTITY_FEATURE]
    else:
        names = [name for name, may_be in may_be_label.items() if may_be]
        if not names:
            return None
    if len(names) == 1:
        return names[0]

    # It isn't clear: the error names the features of the file with the most of them.
    path, features = max(features_of_file.items(), key=lambda item: len(item[1]))
    columns = {i: feature.name for i, feature in enumerate(features, start=N_BEFORE_FEATURES + 1)}
    expected = "expected the feature of the labels in the option `tag_column`"
    got = f"{choice}"
    if len(file_of_name) > 1:
        places = [f"{name} in {file}" for name, file in file_of_name.items()]
        got = f"{got}, which is {', '.join(places)}"
    raise FilePlace(path, number=1).refuse(f"{expected}, one of {columns}, got {got}")


def _names_in_column(features_of_file: dict[Path, list[Feature]], column: int) -> dict[str, Path]:
    """The names of the features that files have in the column with this number, and the first file
    with each name."""
    file_of_name: dict[str, Path] = {}
    for path, features in features_of_file.items():
        i = _index_of_column(column, len(features))
        if i is not None:
            file_of_name.setdefault(features[i].name, path)
    return file_of_name


def _index_of_column(column: int, n_features: int) -> int | None:
    """The index of the feature in a column, where the first column is 1 and the last is -1. None:
    this column doesn't exist, or has no feature."""
    index = column - 1 - N_BEFORE_FEATURES if column > 0 else n_features + column
    return index if 0 <= index < n_features else None


def _is_of_layer(name: str, tag_column: str) -> bool:
    """Whether the user's option `tag_column` names this feature: by its own name, such as
    "NamedEntity.value", or by the name of its layer, such as "NamedEntity"."""
    layer, _, _ = name.partition(".")
    return tag_column.upper() in (name.upper(), layer.upper())


def _read_head_lines(path: Path) -> list[str]:
    """Read the lines of a file up to the first text, which name its layers."""
    return read_text(path).partition(f"\n{TEXT}")[0].split("\n")


def _read_features(lines: Iterable[str]) -> Iterator[Feature]:
    """Find the features of the layers in the head of a file, in the order of their columns."""
    for line in lines:
        match = LAYER.fullmatch(line)
        if match is None:
            continue
        layer_type, layer, names = match.groups()
        layer_name = layer.rpartition(".")[2]
        for feature in names.split("|"):
            name = f"{layer_name}.{feature}"
            may_be_label = layer_type == SPANS and not layer.startswith(BUILT_IN)
            yield Feature(name, may_be_label or name == ENTITY_FEATURE)


def read_webanno(path: Path, context: Context) -> Iterator[Doc]:
    """Read a file: one doc, with the tokens and sentences of the file. Entities without a value are
    missing annotation, and are reported. Files that lack the layer of the labels are reported,
    too: it is unknown whether they were annotated.

    path (Path): The WebAnno TSV file.
    context (Context): The pipeline and the options, with the `label_feature` of the corpus.
    RETURNS (Iterator[Doc]): One doc.
    RAISES (CorpusError): If the file is of another version, or a line isn't of the format.
    """
    begin = FilePlace(path, number=1)
    lines = read_text(path).split("\n")
    version = lines[0].removeprefix(FORMAT)
    if version not in VERSIONS:
        expected = f"expected WebAnno TSV {' or '.join(VERSIONS)}"
        raise begin.refuse(f"{expected}, got {shown(version)}")
    features = [feature.name for feature in _read_features(_read_head_lines(path))]
    label_feature = context.label_feature
    format_name = f"WebAnno TSV {version}"
    if label_feature not in (None, ENTITY_FEATURE):
        format_name += f", labels of {label_feature}"
    context.info.add_file(format_name)
    column = None
    if label_feature in features:
        column = N_BEFORE_FEATURES + features.index(label_feature)
    n_columns = N_BEFORE_FEATURES + len(features)
    sentences = list(_read_sentences(path, lines, n_columns, column))
    text = _join_texts(sentences)

    ends = utf16_ends(text)  # the end of each character, in code units
    tokens = _place_tokens(sentences, text, ends)
    check_all_words(tokens, text, begin)

    if column is None:
        message = NO_LABELS if label_feature is None else NO_LAYER.format(label_feature)
        context.info.add_problem(message, begin)
        task = Task(text, spans=None, tokens=tokens)
        return tasks_to_docs([AnnotatedTask(begin, text_key=None, task=task)], context)

    spans: list[TaskSpan] = []
    missing: list[Range] = []
    for entity in _join_entities(sentences):
        start, end = range_in_characters((entity.start, entity.end), ends)
        if entity.value == WITHOUT_VALUE:
            context.info.add_problem(NO_VALUE, entity.place, shown(text[start:end]))
            missing.append((start, end))
        else:
            spans.append(TaskSpan(start, end, _unescape(entity.value)))
    task = Task(text, spans, tokens, missing=tuple(missing))
    return tasks_to_docs([AnnotatedTask(begin, text_key=None, task=task)], context)


def _read_sentences(
    path: Path, lines: list[str], n_columns: int, label_column: int | None
) -> Iterator[Sentence]:
    """Read the sentences of a file of `n_columns` columns. The labels are in a column or, if it is
    None, missing. A line that isn't of the format is refused."""
    text_lines: list[str] = []
    tokens: list[TokenLine] = []
    # The empty line at the end ends the last sentence.
    for number, line in enumerate([*lines, ""], start=1):
        if line.startswith(TEXT):
            # A sentence with line breaks has several lines of text.
            text_lines.append(_unescape(line.removeprefix(TEXT)))
        elif not line.strip():  # the end of a sentence
            if tokens:
                yield Sentence("\n".join(text_lines), tokens)
            text_lines = []
            tokens = []
        elif not line.startswith("#"):
            tokens.append(_read_token(FilePlace(path, number), line, n_columns, label_column))


def _read_token(place: FilePlace, line: str, n_columns: int, label_column: int | None) -> TokenLine:
    """Read the line of a token, which ends with a TAB: see `_read_sentences`. A line without these
    columns is refused."""
    match = TOKEN.fullmatch(line)
    fields = line.removesuffix("\t").split("\t")
    if match is None or len(fields) != n_columns:
        n_features = n_columns - N_BEFORE_FEATURES
        expected = f"a number, offsets, a token and {n_features} features"
        raise place.refuse(f"expected {expected}, got {shown(line)}")
    part, start, end = match.groups()
    return TokenLine(
        place,
        start=int(start),
        end=int(end),
        text=_unescape(fields[2]),
        entities=NO_ENTITY if label_column is None else fields[label_column],
        is_part=part is not None,
    )


def _place_tokens(sentences: list[Sentence], text: str, ends: list[int]) -> list[TaskToken]:
    """Find the characters of all tokens in the text of a file. `ends` has the end of each character
    in code units. A token whose text isn't at its offsets is refused."""
    tokens: list[TaskToken] = []
    for sentence in sentences:
        for i, line in enumerate(sentence.tokens):
            start, end = range_in_characters((line.start, line.end), ends)
            if text[start:end] != line.text:
                expected = f"expected {shown(line.text)} at its offsets"
                raise line.place.refuse(f"{expected}, got {shown(text[start:end])}")
            if not line.is_part:
                tokens.append(TaskToken(start, end, sent_start=i == 0))
    return tokens


def _join_texts(sentences: list[Sentence]) -> str:
    """The text of a file. The characters between sentences aren't in the file: they become blanks.
    Sentences have to be in order, and each token in its sentence."""
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
    """Find the entities of a file. An entity of several tokens has a number, and is on the line of
    each of its tokens. An entity without a number has a single token."""
    numbered: dict[str, WebannoEntity] = {}
    for line in chain.from_iterable(sentence.tokens for sentence in sentences):
        if line.entities == NO_ENTITY:
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
