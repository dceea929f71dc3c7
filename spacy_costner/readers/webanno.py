"""Read WebAnno TSV 3.2 and 3.3, which is exported by WebAnno and INCEpTION. There is one line per
token, and one column per feature of each annotation layer.

    #FORMAT=WebAnno TSV 3.3
    #T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value


    #Text=Kim Lee left 😊
    1-1	0-3	Kim	*[1]	PER[1]
    1-2	4-7	Lee	*[1]	PER[1]
    1-3	8-12	left	_	_
    1-4	13-15	😊	_	_

Lines with the same number in brackets belong to the same entity. Stacked entities are separated by
"|", and "*" is an entity without a value. Lines such as 1-1.1 contain a part of a token. Offsets
count the UTF-16 code units of the whole text. Special characters are escaped with a backslash.

A file only defines the layers that contain annotations. Therefore, the label feature is determined
for all files of a corpus at once: see `find_label_feature`.
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
"""The beginning of every file, before the version number."""

VERSIONS = ("3.2", "3.3")
TEXT = "#Text="
LAYER = re.compile(r"#T_(SP|CH|RL)=([^|]+)\|?(.*)")
"""Matches the definition of a layer. The groups are its type, its name, and the names of its
features. The type is SP (spans), CH (chains of spans) or RL (relations between spans)."""

SPANS = "SP"
"""The type of span layers. Only these can contain entities."""

ENTITY_FEATURE = "NamedEntity.value"
"""The label feature of the built-in layer for named entities."""

BUILT_IN = "de.tudarmstadt.ukp."
"""The prefix of the names of built-in layers. Except for the layer of named entities, they contain
lemmas, parts of speech and other annotations that aren't entities."""

N_BEFORE_FEATURES = 3
"""The number of columns before the features: the token number, the offsets and the text."""

MOST_BETWEEN = 1_000_000
"""The maximum number of code units between two sentences. They are replaced with spaces, so a wrong
offset could otherwise create a text of any size."""

TOKEN = re.compile(r"\d+-\d+(\.\d+)?\t(\d{1,15})-(\d{1,15})\t.*")
"""Matches the line of a token or of a part of a token. The groups are the number of the part, with
a dot, and the offsets. The number of digits is limited because `int` rejects very long numbers."""

VALUE = re.compile(r"((?:[^\\|\[\]]|\\.)+)(?:\[(\d+)\])?")
"""Matches the value of an entity and its number."""

VALUES = re.compile(rf"{VALUE.pattern}(?:\|{VALUE.pattern})*")
"""Matches one or more values, separated by |."""

NO_ENTITY = "_"
"""The value of a feature if the token has no entity."""

WITHOUT_VALUE = "*"
"""The value of a feature if the entity has no value."""

ESCAPED = re.compile(r"\\(.)")
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "b": "\b"}
NO_VALUE = "entities have no value: their tokens are missing annotation"
NO_LABELS = "files have no layer for labels, such as NamedEntity: their annotation is missing"
NO_LAYER = "files don't have {}, which other files have: their annotation is missing"


class Feature(NamedTuple):
    """A feature of a layer. Each feature is a column in the file.

    name (str): The names of the layer and the feature, such as `ENTITY_FEATURE`.
    may_be_label (bool): Whether the feature may contain entity labels: see `BUILT_IN`.
    """

    name: str
    may_be_label: bool


class TokenLine(NamedTuple):
    """The line of a token or of a part of a token.

    place (FilePlace): The location of the line.
    start (int): The index of the first code unit.
    end (int): The index after the last code unit.
    text (str): The text.
    entities (str): The values of the entities, as written in the file.
    is_part (bool): Whether the line contains a part of a token.
    """

    place: FilePlace
    start: int
    end: int
    text: str
    entities: str
    is_part: bool


class WebannoEntity(NamedTuple):
    """An entity with offsets in code units. `value` is the value as written in the file, or
    `WITHOUT_VALUE` if there is none."""

    place: FilePlace
    start: int
    end: int
    value: str


class Sentence(NamedTuple):
    """The text of a sentence and its token lines. There is at least one line."""

    text: str
    tokens: list[TokenLine]


def is_webanno(head: str) -> bool:
    """Check whether a file that begins with this text is WebAnno TSV of any version."""
    return head.startswith(FORMAT)


def find_label_feature(paths: Iterable[Path], options: ReadOptions) -> str | None:
    """Find the feature that contains the entity labels of a corpus. All files are needed, because
    each file only defines the layers that contain annotations.

    paths (Iterable[Path]): All WebAnno TSV files of the corpus.
    options (ReadOptions): `tag_column` is the name of a feature, such as `ENTITY_FEATURE`, the name
        of a layer with one feature, or the column number of the feature, counted from 1 on the left
        or from -1 on the right. Defaults to the named entity feature or, if no file contains it,
        the only feature of the custom span layers.
    RETURNS (str | None): The name of the feature, or None if no file contains a layer that may
        provide labels.
    RAISES (CorpusError): If the feature is ambiguous or doesn't exist.
    """
    features_of_file = {path: list(_read_features(_read_head_lines(path))) for path in paths}
    if not features_of_file:
        return None
    may_be_label: dict[str, bool] = {}  # keyed by feature name
    for features in features_of_file.values():
        may_be_label |= {feature.name: feature.may_be_label for feature in features}

    # Find the features that match the option or, if it isn't set, that may contain labels.
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

    # The error message lists the features of the file with the most features.
    path, features = max(features_of_file.items(), key=lambda item: len(item[1]))
    columns = {i: feature.name for i, feature in enumerate(features, start=N_BEFORE_FEATURES + 1)}
    expected = "expected the feature of the labels in the option `tag_column`"
    got = f"{choice}"
    if len(file_of_name) > 1:
        places = [f"{name} in {file}" for name, file in file_of_name.items()]
        got = f"{got}, which is {', '.join(places)}"
    raise FilePlace(path, number=1).refuse(f"{expected}, one of {columns}, got {got}")


def _names_in_column(features_of_file: dict[Path, list[Feature]], column: int) -> dict[str, Path]:
    """Return the names of the features in the column with this number, mapped to the first file
    that has the feature in this column."""
    file_of_name: dict[str, Path] = {}
    for path, features in features_of_file.items():
        i = _index_of_column(column, len(features))
        if i is not None:
            file_of_name.setdefault(features[i].name, path)
    return file_of_name


def _index_of_column(column: int, n_features: int) -> int | None:
    """Return the index of the feature in a column, which is counted from 1 on the left or from -1
    on the right. Returns None if the column doesn't exist or isn't a feature."""
    index = column - 1 - N_BEFORE_FEATURES if column > 0 else n_features + column
    return index if 0 <= index < n_features else None


def _is_of_layer(name: str, tag_column: str) -> bool:
    """Check whether the option `tag_column` is the name of this feature, such as
    "NamedEntity.value", or of its layer, such as "NamedEntity"."""
    layer, _, _ = name.partition(".")
    return tag_column.upper() in (name.upper(), layer.upper())


def _read_head_lines(path: Path) -> list[str]:
    """Read the header of a file: the lines before the first text, which define the layers."""
    return read_text(path).partition(f"\n{TEXT}")[0].split("\n")


def _read_features(lines: Iterable[str]) -> Iterator[Feature]:
    """Yield the features that the header of a file defines, in the order of their columns."""
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
    """Read a file as a single doc, with the tokens and sentences of the file. Entities without a
    value are reported, and the annotation of their tokens is treated as missing. A file without the
    label feature is also reported, because it is unknown whether it was annotated.

    path (Path): The WebAnno TSV file.
    context (Context): The pipeline and the options, with the `label_feature` of the corpus.
    RETURNS (Iterator[Doc]): The doc.
    RAISES (CorpusError): If the version isn't supported, or a line is invalid.
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

    ends = utf16_ends(text)  # the end offset of each character, in code units
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
    """Read the sentences of a file with `n_columns` columns. If `label_column` is None, the labels
    are missing. Raises an error for an invalid line."""
    text_lines: list[str] = []
    tokens: list[TokenLine] = []
    # Append an empty line to end the last sentence.
    for number, line in enumerate([*lines, ""], start=1):
        if line.startswith(TEXT):
            # If a sentence contains line breaks, there are several lines of text.
            text_lines.append(_unescape(line.removeprefix(TEXT)))
        elif not line.strip():  # the end of a sentence
            if tokens:
                yield Sentence("\n".join(text_lines), tokens)
            text_lines = []
            tokens = []
        elif not line.startswith("#"):
            tokens.append(_read_token(FilePlace(path, number), line, n_columns, label_column))


def _read_token(place: FilePlace, line: str, n_columns: int, label_column: int | None) -> TokenLine:
    """Read the line of a token, which ends with a tab: see `_read_sentences`. Raises an error if
    the line doesn't have the expected columns."""
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
    """Convert the offsets of all tokens to characters. `ends` contains the end of each character in
    code units. Raises an error if the text of a token isn't at its offsets."""
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
    """Join the sentences of a file into a text. The file doesn't contain the characters between
    sentences, so these are replaced with spaces. Raises an error if sentences aren't in order, or a
    token is outside its sentence."""
    texts: list[str] = []
    n_units = 0  # the total length of the texts so far
    for text, tokens in sentences:
        begin = tokens[0].start
        n_between = begin - n_units
        # Without a limit, a wrong offset could add any number of spaces.
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
    """Yield the entities of a file. An entity that covers several tokens has a number and occurs on
    the line of each token. An entity without a number covers a single token."""
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
            # The entity begins on the first line with its number, and later lines extend it.
            earlier_part = numbered.setdefault(number, entity)
            numbered[number] = earlier_part._replace(end=max(earlier_part.end, line.end))
    yield from numbered.values()


def _unescape(written: str) -> str:
    """Replace the escape sequences in a text or value."""
    return ESCAPED.sub(lambda match: CONTROLS.get(match[1], match[1]), written)
