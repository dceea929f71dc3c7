"""Infer which columns of a file contain tokens, tags, parts of speech, or token numbers.

The user's options take precedence over column names, which a file may define, as in CoNLL-U Plus.
Files with the ten columns of CoNLL-U are also recognized. In all other files, the columns are
inferred from their content. A column that numbers the tokens of each sentence is skipped. Tags are
in the last column, as in the CoNLL shared tasks, or in a column with keys and values, such as
"name=B-PER|SpaceAfter=No". Readers report which columns were read, and which other columns contain
tags.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from thinc.types import Array1d

from .context import ReadOptions
from .files import CorpusError, FilePlace, shown
from .schemes import NOT_ANNOTATED, PREFIXED

CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
"""The column names of CoNLL-U."""

TOKEN_NAMES = frozenset(["token", "tokens", "word", "words", "text", "form"])
TAG_NAMES = frozenset(
    ["tag", "tags", "ner", "ner_tag", "ner_tags", "label", "labels", "entity", "iob", "bio"]
)
"""The names, in lowercase, that a header may give to the columns with tokens and tags."""

NUMBER = re.compile(r"(\d{1,9})(?:([-.])\d{1,9})?")
"""Matches the number of a token or, in CoNLL-U, of a multiword token (1-2) or empty node (1.1)."""


class Table(NamedTuple):
    """The fields of a column file.

    fields (list[str]): The fields of all N rows, row by row. A row is a line with a token.
    n_columns (int): The number of columns.
    names (Sequence[str]): The names of the columns. Empty if the columns aren't named.
    sent_start (Array1d): True for the first row of a sentence. Shape: (N,)
    has_tabs (bool): Whether columns are separated by tabs.
    place (FilePlace): The location of the first row.
    """

    fields: list[str]
    n_columns: int
    names: Sequence[str]
    sent_start: Array1d
    has_tabs: bool
    place: FilePlace

    def column(self, index: int) -> list[str]:
        """Return the fields of a column. `index` starts at 0."""
        return self.fields[index :: self.n_columns]

    def name(self, index: int) -> str:
        """Return the name of a column for messages. `index` starts at 0."""
        name = f"column {index + 1}"
        return f"{name} ({self.names[index]})" if self.names else name


class InferredTags(NamedTuple):
    """The tag column that was inferred for a file.

    place (FilePlace): The location of the first row.
    n_columns (int): The number of columns.
    column (int): The index of the tag column, starting at 0.
    has_entities (bool): Whether the tag column contains entities.
    entities_elsewhere (str): If the tag column contains no entities, but another column does: a
        description of that column. Otherwise "".
    """

    place: FilePlace
    n_columns: int
    column: int
    has_entities: bool
    entities_elsewhere: str


class Columns(NamedTuple):
    """The roles of a file's columns. Indices start at 0.

    token (int): The token column.
    tag (int): The tag column.
    key (str | None): The key of the tags, if the tag column contains keys and values.
    number (int | None): The column with token numbers, if any.
    pos (int | None): The part-of-speech column, if any.
    text (str): A description of the columns, for messages.
    inferred (InferredTags | None): The tag column for `check_inferred`, or None if the user has set
        it or the tag column contains keys and values.
    """

    token: int
    tag: int
    key: str | None
    number: int | None
    pos: int | None
    text: str
    inferred: InferredTags | None


class TagColumn(NamedTuple):
    """The column that contains the tags.

    column (int): The index of the column, starting at 0.
    key (str | None): The key of the tags, if the column contains keys and values.
    """

    column: int
    key: str | None = None


def find_columns(table: Table, options: ReadOptions) -> Columns:
    """Infer which columns of a file contain tokens and tags.

    table (Table): The fields of the file.
    options (ReadOptions): The user's options `token_column` and `tag_column`.
    RETURNS (Columns): The columns and their description. Call `check_inferred` when the columns of
        all files are known, because a single file may contain no entities.
    RAISES (CorpusError): If no column contains tags, the token column is ambiguous, a column in the
        options doesn't exist, or the first row is a header.
    """
    number = _find_numbers(table, is_token_column_set=options.token_column is not None)
    if number is not None and not table.names and table.has_tabs and table.n_columns == len(CONLLU):
        table = table._replace(names=CONLLU)
    token = _find_tokens(table, number, options.token_column)
    if token == number:
        number = None
    tag_columns = [i for i in range(table.n_columns) if i != token and _has_only_tags(table, i)]
    tag, key = _find_tags(table, token, number, tag_columns, options.tag_column)
    _check_no_header(table, token, tag)
    pos = _find_parts_of_speech(table, token, tag, number)

    text = f"token in {table.name(token)}, "
    if pos is not None:
        text += f"part of speech in {table.name(pos)}, "
    text += f"tag in {table.name(tag)}"
    if key is not None:
        text += f" after {key}="
    if number is not None:
        text += f"; {table.name(number)} numbers tokens"
    others = [table.name(i) for i in tag_columns if i != tag]
    others += [f"{other}=" for other in _find_keys(table, tag) if key not in (None, other)]
    if others:
        have = "has tags, too" if len(others) == 1 else "have tags, too"
        text += f"; {', '.join(others)} {have} (tag_column)"
    inferred = None
    if options.tag_column is None and key is None:
        inferred = _describe_inferred(table, tag, tag_columns)
    return Columns(token, tag, key, number, pos, text, inferred)


def _describe_inferred(table: Table, tag: int, tag_columns: Sequence[int]) -> InferredTags:
    """Describe the inferred tag column. `tag_columns` are the columns that only contain tags."""
    # Tags without prefixes are entities, too.
    has_entities = not set(table.column(tag)).issubset({"O", *NOT_ANNOTATED})
    entities_elsewhere = ""
    if not has_entities:
        entities_elsewhere = _describe_entities(table, tag_columns)
    return InferredTags(table.place, table.n_columns, tag, has_entities, entities_elsewhere)


def _describe_entities(table: Table, tag_columns: Sequence[int]) -> str:
    """Describe the first of these columns that contains entities. Returns "" if none does."""
    for column in tag_columns:
        labels = _labels_of(table, column)
        if labels:
            return f"{table.name(column)} has entities such as {min(labels)}"
    return ""


def check_inferred(files: Sequence[InferredTags]) -> None:
    """Check the tag columns that were inferred for the files of a corpus. Among the files with the
    same number of columns, all must have the same tag column. If none of them contains entities in
    this column, other columns must not contain any, either.

    files (Sequence[InferredTags]): The tag column of each file.
    RAISES (CorpusError): If the user should set the tag column.
    """
    files_by_n_columns: dict[int, list[InferredTags]] = defaultdict(list)
    for file in files:
        files_by_n_columns[file.n_columns].append(file)
    hint = "the setting `tag_column` says which column has the tags (the first is 1)"
    for group in files_by_n_columns.values():
        first = group[0]
        for file in group:
            if file.column != first.column:
                expected = f"expected tags in column {first.column + 1}, as in {first.place.path}"
                raise file.place.refuse(f"{expected}, got column {file.column + 1}: {hint}")
        if any(file.has_entities for file in group):
            continue
        for file in group:
            if file.entities_elsewhere:
                expected = f"expected entities in column {file.column + 1}, got none"
                raise file.place.refuse(f"{expected}, but {file.entities_elsewhere}: {hint}")


def is_tag(field: str) -> bool:
    """Check whether a field may be an entity tag: O, a prefix and a label such as B-PER, or a tag
    for missing annotation, "-" or "_"."""
    return field == "O" or field in NOT_ANNOTATED or PREFIXED.fullmatch(field) is not None


def _find_numbers(table: Table, *, is_token_column_set: bool) -> int | None:
    """Find the column that numbers the tokens: the ID column, or the first column if it contains
    consecutive numbers. Returns None if there is no such column. Raises an error if the first
    column contains other numbers, unless the user has set the token column."""
    if table.names:
        names = [name.upper() for name in table.names]
        return names.index("ID") if "ID" in names else None
    numbers = table.column(0)
    # If there are only two columns, the first one contains the tokens.
    if table.n_columns < 3 or not all(map(NUMBER.fullmatch, set(numbers))):
        return None
    if _are_token_numbers(numbers, table.sent_start):
        return 0
    is_other_number = len(numbers) == 1 and numbers[0] not in ("0", "1")
    if is_token_column_set or is_other_number:
        return None
    expected = "expected the first column to have tokens, or to number the tokens of each sentence"
    raise _refuse_tokens(table, expected, numbers)


def _are_token_numbers(numbers: Sequence[str], sent_start: Array1d) -> bool:
    """Check whether numbers count the tokens of each sentence or of the whole file, starting at 1
    or 0. This is only certain if at least one sentence has two tokens. In CoNLL-U, the line of a
    multiword token precedes its first token, and the line of an empty node follows a token."""
    first = int(numbers[0].partition("-")[0].partition(".")[0])
    last = first - 1  # the number of the previous token
    begins = False  # whether a sentence has begun but contains no token yet
    is_sure = False  # whether any sentence so far has a second token
    for number, starts_sentence in zip(numbers, sent_start.tolist()):
        match = NUMBER.fullmatch(number)
        assert match is not None
        value = int(match[1])
        begins = begins or starts_sentence
        if match[2] == ".":  # an empty node (0.1 if it precedes the first token)
            if value != (0 if begins else last):
                return False
            continue
        if value != last + 1 and not (begins and value == first):
            return False
        if match[2] != "-":  # a token, not a multiword token
            is_sure = is_sure or (not begins) or value > first
            last = value
            begins = False
    return is_sure and first <= 1


def _find_tokens(table: Table, number: int | None, choice: int | str | None) -> int:
    """Find the token column: the option `token_column` (`choice`), the FORM column, or the first
    column that doesn't contain the token numbers (`number`). Raises an error if the column can't
    contain tokens."""
    if choice is not None:
        return _resolve(table, "token_column", choice)
    if table.names:
        names = [name.upper() for name in table.names]
        if "FORM" in names:
            return names.index("FORM")
    token = 0 if number != 0 else 1
    words = table.column(token)
    # If all fields of a sentence are the same, the column contains names of docs or sentences.
    pairs = zip(words, words[1:], table.sent_start[1:].tolist())
    within = [word == other for word, other, starts_sentence in pairs if not starts_sentence]
    if table.n_columns > 2 and len(within) > 1 and all(within):
        raise _refuse_tokens(table, f"expected tokens in {table.name(token)}", words)
    return token


def _refuse_tokens(table: Table, expected: str, words: Sequence[str]) -> CorpusError:
    """Create the error for a column that doesn't seem to contain tokens."""
    got = ", ".join(map(shown, words[:3]))
    hint = "the setting `token_column` says which column has the tokens (the first is 1)"
    return table.place.refuse(f"{expected}, got {got}: {hint}")


def _resolve(table: Table, option: str, choice: int | str) -> int:
    """Return the index of the column that an option specifies. `choice` is the value of the option:
    the column's name or number. Raises an error if the column doesn't exist."""
    if isinstance(choice, str):
        names = [name.upper() for name in table.names]
        if choice.upper() in names:
            return names.index(choice.upper())
        expected = (
            f"one of {', '.join(table.names)}" if names else "a number: columns have no names"
        )
        raise table.place.refuse(f"{option}: expected {expected}, got {choice!r}")
    index = choice - 1 if choice > 0 else table.n_columns + choice
    if not 0 <= index < table.n_columns:
        expected = f"expected a column from 1 to {table.n_columns}, or from -1 at the end"
        raise table.place.refuse(f"{option}: {expected}, got {choice}")
    return index


def _find_tags(
    table: Table,
    token: int,
    number: int | None,
    tag_columns: Sequence[int],
    choice: int | str | None,
) -> TagColumn:
    """Find the tag column. `token` and `number` are the columns with tokens and token numbers,
    `tag_columns` are columns that only contain tags, and `choice` is the option `tag_column`.
    Raises an error if the column doesn't exist or contains no tags."""
    if choice is None:
        found = _guess_tags(table, token, number, tag_columns)
    else:
        found = _find_chosen_tags(table, choice)
    if found.key is not None:
        return found
    if found.column == token:
        expected = "expected a column other than the token column (token_column)"
        raise table.place.refuse(f"tag_column: {expected}, got {choice or found.column + 1}")
    # If there are only two columns, the second one always contains the tags.
    if table.n_columns > 2 and not _has_tags(table, found.column):
        expected = f"{table.name(found.column)}: expected entity tags"
        first_tag = table.column(found.column)[0]
        got = f"got only tags such as {first_tag!r}: {_hint_at_tags(table, token)}"
        raise table.place.refuse(f"{expected}, {got}")
    return found


def _guess_tags(
    table: Table, token: int, number: int | None, tag_columns: Sequence[int]
) -> TagColumn:
    """Infer the tag column if the option isn't set. If the last column contains no tags, use a
    column with a key for tags or, if columns are named, the only column with tags. For the
    parameters, see `_find_tags`."""
    last = table.n_columns - 1
    if last in tag_columns:
        return TagColumn(_find_outer_layer(table, token, number, tag_columns))
    if table.n_columns <= 2 or _has_tags(table, last):
        return TagColumn(last)
    for index in range(table.n_columns):
        keys = _find_keys(table, index)
        if keys:
            return TagColumn(index, keys[0])
    if table.names and len(tag_columns) == 1:
        return TagColumn(tag_columns[0])
    return TagColumn(last)


def _find_chosen_tags(table: Table, choice: int | str) -> TagColumn:
    """Find the tag column that the user has specified by its number, its name, or a key that it
    contains."""
    names = [name.upper() for name in table.names]
    if isinstance(choice, str) and choice.upper() not in names:
        for index in range(table.n_columns):
            if choice in _find_keys(table, index):
                return TagColumn(index, choice)
    index = _resolve(table, "tag_column", choice)
    keys = _find_keys(table, index)
    if keys:
        return TagColumn(index, keys[0])
    return TagColumn(index)


def _find_outer_layer(
    table: Table, token: int, number: int | None, tag_columns: Sequence[int]
) -> int:
    """Find the column with the outer entities if the last column contains tags. Several columns may
    be layers of the same annotation, as in GermEval 2014. The first layer contains the outer
    entities, which are the most frequent. Columns are assumed to be layers if their labels overlap
    (chunks have different labels), or if all columns after numbered tokens contain only tags."""
    layers = range(token + 1, table.n_columns)
    if number is not None and set(layers).issubset(tag_columns):
        return layers[0]
    tag = table.n_columns - 1
    labels = _labels_of(table, tag)
    while tag - 1 in tag_columns and labels & _labels_of(table, tag - 1):
        tag -= 1
    return tag


def _labels_of(table: Table, column: int) -> set[str]:
    """Return the labels of all tags in a column."""
    matches = map(PREFIXED.fullmatch, set(table.column(column)))
    return {match["label"] for match in matches if match is not None}


def _has_only_tags(table: Table, column: int) -> bool:
    """Check whether a column contains nothing but entity tags. Returns False if all of them stand
    for missing annotation."""
    fields = set(table.column(column))
    return all(map(is_tag, fields)) and not fields.issubset(NOT_ANNOTATED)


def _has_tags(table: Table, column: int) -> bool:
    """Check whether a column contains any entity tags. "_" isn't counted, because it marks empty
    fields in CoNLL-U."""
    return any(is_tag(field) for field in set(table.column(column)) - {"_"})


def _find_keys(table: Table, column: int) -> list[str]:
    """In a column with keys and values, find the keys whose values are all tags, in order of
    occurrence. Returns an empty list if there are no such keys, or the column contains other
    fields."""
    values: dict[str, set[str]] = defaultdict(set)
    for field in dict.fromkeys(table.column(column)):
        if field == "_":
            continue
        if "=" not in field:
            return []
        for part in field.split("|"):
            key, _, value = part.partition("=")
            values[key].add(value)
    keys: list[str] = []
    for key, values_of_key in values.items():
        tags = values_of_key - {"_"}
        if tags and all(map(is_tag, tags)):
            keys.append(key)
    return keys


def tags_of_key(column: Sequence[str], key: str) -> list[str]:
    """Extract the tags from a column with keys and values. If a field doesn't contain the key, its
    tag is "-", for missing annotation.

    column (Sequence[str]): The fields of the column.
    key (str): The key of the tags.
    """
    tag_of_field: dict[str, str] = {}
    for field in set(column):
        tag_of_field[field] = "-"
        for part in field.split("|"):
            name, _, value = part.partition("=")
            if name == key:
                tag_of_field[field] = value
    return [tag_of_field[field] for field in column]


def _hint_at_tags(table: Table, token: int) -> str:
    """Name a column that contains entity tags, for the error raised if the tag column contains
    none."""
    for column in range(table.n_columns):
        if column == token:
            continue
        for field in table.column(column):
            if PREFIXED.fullmatch(field):
                return f"{table.name(column)} has tags such as {field!r} (tag_column)"
    return "no column has entities"


def _check_no_header(table: Table, token: int, tag: int) -> None:
    """Check that the first row isn't a header, which would be read as a token and its tag. Column
    files have none."""
    tags = table.column(tag)
    names = [table.column(token)[0], tags[0]]
    is_header = names[0].lower() in TOKEN_NAMES and names[1].lower() in TAG_NAMES
    if is_header and tags[0] not in tags[1:]:
        raise table.place.refuse(f"expected a token and its tag, got the names of columns, {names}")


def _find_parts_of_speech(table: Table, token: int, tag: int, number: int | None) -> int | None:
    """Find the part-of-speech column: XPOS or UPOS or, if columns aren't named, the column after
    the tokens, as in `spacy convert -c ner`. If tokens are numbered, it must be the only column
    between tokens and tags, because it could otherwise contain lemmas. Returns None if there is no
    such column, or if it contains tags with prefixes, such as entity or chunk tags."""
    if table.names:
        names = [name.upper() for name in table.names]
        for name in ("XPOS", "UPOS"):
            if name in names and set(table.column(names.index(name))) != {"_"}:
                return names.index(name)
        return None
    pos = token + 1
    if pos in (tag, table.n_columns) or (number is not None and pos + 1 != tag):
        return None
    if any(map(PREFIXED.fullmatch, set(table.column(pos)))):
        return None
    return pos
