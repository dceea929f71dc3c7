"""Find out what the columns of a file have: tokens, tags, parts of speech, or numbers of tokens.

The user's options decide first, and then the file: names of columns, as in CoNLL-U Plus, or ten
columns as in CoNLL-U. Otherwise the content decides. A column that counts the tokens of each
sentence has no tokens. The last column has the tags, as in the CoNLL shared tasks, or a key of a
column of keys and values: "name=B-PER|SpaceAfter=No". Readers report what was found, and other
columns with tags.
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
"""The names of the columns of CoNLL-U."""

NUMBER = re.compile(r"(\d{1,9})(?:([-.])\d{1,9})?")
"""The number of a token or, in CoNLL-U, of a multiword token (1-2) or an empty node (1.1)."""


class Table(NamedTuple):
    """The fields of a column file.

    fields (list[str]): The fields of all N rows, row after row. A row is a line with a token.
    n_columns (int): The number of columns.
    names (Sequence[str]): The names of the columns. Empty: the columns have no names.
    sent_start (Array1d): True for the first row of a sentence. Shape: (N,)
    has_tabs (bool): Whether TABs separate columns.
    place (FilePlace): The place of the first row.
    """

    fields: list[str]
    n_columns: int
    names: Sequence[str]
    sent_start: Array1d
    has_tabs: bool
    place: FilePlace

    def column(self, index: int) -> list[str]:
        """The fields of a column. `index` counts from 0."""
        return self.fields[index :: self.n_columns]

    def name(self, index: int) -> str:
        """The name of a column in messages. `index` counts from 0."""
        name = f"column {index + 1}"
        return f"{name} ({self.names[index]})" if self.names else name


class Columns(NamedTuple):
    """The roles of the columns of a file. Columns are indices from 0.

    token (int): The column of the tokens.
    tag (int): The column of the tags.
    key (str | None): The key before each tag, if the column has keys and values.
    number (int | None): The column that numbers the tokens of a sentence. None: no column does.
    pos (int | None): The column of the parts of speech. None: no column has them.
    text (str): A description of these columns, for messages.
    """

    token: int
    tag: int
    key: str | None
    number: int | None
    pos: int | None
    text: str


class TagColumn(NamedTuple):
    """The column of the tags.

    column (int): The index of the column, from 0.
    key (str | None): The key of the tags, if the column has keys and values.
    """

    column: int
    key: str | None = None


def find_columns(table: Table, options: ReadOptions) -> Columns:
    """Find out what the columns of a file have.

    table (Table): The fields of the file.
    options (ReadOptions): The user's options `token_column` and `tag_column`.
    RETURNS (Columns): Which column has what.
    RAISES (CorpusError): If no column has tags, it isn't clear which column has tokens, or a column
        that the user has set doesn't exist.
    """
    number = _find_numbers(table, is_token_column_set=options.token_column is not None)
    if number is not None and not table.names and table.has_tabs and table.n_columns == len(CONLLU):
        table = table._replace(names=CONLLU)
    token = _find_tokens(table, number, options.token_column)
    if token == number:
        number = None
    tag_columns = [i for i in range(table.n_columns) if i != token and _has_only_tags(table, i)]
    tag, key = _find_tags(table, token, number, tag_columns, options.tag_column)
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
    return Columns(token, tag, key, number, pos, text)


def is_tag(field: str) -> bool:
    """Whether a field may be a tag of entities: O, a prefix and a label, such as B-PER, or "-" or
    "_", which mean that annotation is missing."""
    return field == "O" or field in NOT_ANNOTATED or PREFIXED.fullmatch(field) is not None


def _find_numbers(table: Table, *, is_token_column_set: bool) -> int | None:
    """Find the column that numbers tokens: the column ID, or the first column if it counts. None:
    no column does. If the first column has numbers, it has to be clear that they count tokens,
    unless the user has set the column of the tokens."""
    if table.names:
        names = [name.upper() for name in table.names]
        return names.index("ID") if "ID" in names else None
    numbers = table.column(0)
    # With two columns, the first has the tokens.
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
    """Whether numbers count the tokens of each sentence or of the whole file, from 1 or from 0.
    Some sentence needs two tokens, so that this is certain. In CoNLL-U, the line of a multiword
    token is before its first token, and the line of an empty node is after a token."""
    first = int(numbers[0].partition("-")[0].partition(".")[0])
    last = first - 1  # the number of the last token
    begins = False  # whether a sentence has begun, and has had no token yet
    is_sure = False  # whether a sentence has had a second token
    for number, starts_sentence in zip(numbers, sent_start.tolist()):
        match = NUMBER.fullmatch(number)
        assert match is not None
        value = int(match[1])
        begins = begins or starts_sentence
        if match[2] == ".":  # an empty node; one before the first token has the number 0.1
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
    """Find the column of the tokens: the user's choice (the option `token_column`), the column
    FORM, or the first column other than `number`, which numbers tokens. A column that can't have
    tokens is refused."""
    if choice is not None:
        return _resolve(table, "token_column", choice)
    if table.names:
        names = [name.upper() for name in table.names]
        if "FORM" in names:
            return names.index("FORM")
    token = 0 if number != 0 else 1
    words = table.column(token)
    # A column with the same text on each line of a sentence has the names of docs or sentences.
    pairs = zip(words, words[1:], table.sent_start[1:].tolist())
    within = [word == other for word, other, starts_sentence in pairs if not starts_sentence]
    if table.n_columns > 2 and len(within) > 1 and all(within):
        raise _refuse_tokens(table, f"expected tokens in {table.name(token)}", words)
    return token


def _refuse_tokens(table: Table, expected: str, words: Sequence[str]) -> CorpusError:
    """Make the error for a column that may have no tokens."""
    got = ", ".join(map(shown, words[:3]))
    hint = "the setting `token_column` says which column has the tokens (the first is 1)"
    return table.place.refuse(f"{expected}, got {got}: {hint}")


def _resolve(table: Table, option: str, choice: int | str) -> int:
    """The index of a column that the user has given by its number or its name, as the value
    `choice` of an option. An unknown column is refused."""
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
    """Find the column of the tags. The columns `token` and `number` have the tokens and their
    numbers, and `tag_columns` have only tags. `choice` is the user's option `tag_column`. An
    unknown column, or one without tags, is refused."""
    if choice is None:
        found = _guess_tags(table, token, number, tag_columns)
    else:
        found = _find_chosen_tags(table, choice)
    if found.key is not None:
        return found
    if found.column == token:
        expected = "expected a column other than the token column (token_column)"
        raise table.place.refuse(f"tag_column: {expected}, got {choice or found.column + 1}")
    # A file of two columns always has tags in the second.
    if table.n_columns > 2 and not _has_tags(table, found.column):
        expected = f"{table.name(found.column)}: expected entity tags"
        first_tag = table.column(found.column)[0]
        got = f"got only tags such as {first_tag!r}: {_hint_at_tags(table, token)}"
        raise table.place.refuse(f"{expected}, {got}")
    return found


def _guess_tags(
    table: Table, token: int, number: int | None, tag_columns: Sequence[int]
) -> TagColumn:
    """Find the column of the tags if the user hasn't chosen one: the last column or, if it has no
    tags, a column with keys of tags, or the only column with tags of a file that names its columns.
    For the parameters see `_find_tags`."""
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
    """Find the column that the user has chosen: by its number, its name, or a key in it."""
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
    """Find the column of the tags if the last column has tags. There may be several layers of the
    same annotation, as in GermEval 2014. The first of them has the outer entities, which are the
    most frequent. Layers have labels in common (tags of chunks have other labels), or they are all
    columns after numbered tokens."""
    layers = range(token + 1, table.n_columns)
    if number is not None and set(layers).issubset(tag_columns):
        return layers[0]
    tag = table.n_columns - 1
    labels = _labels_of(table, tag)
    while tag - 1 in tag_columns and labels & _labels_of(table, tag - 1):
        tag -= 1
    return tag


def _labels_of(table: Table, column: int) -> set[str]:
    """The labels of the tags of a column."""
    matches = map(PREFIXED.fullmatch, set(table.column(column)))
    return {match["label"] for match in matches if match is not None}


def _has_only_tags(table: Table, column: int) -> bool:
    """Whether a column has entity tags and nothing else."""
    fields = set(table.column(column))
    return all(map(is_tag, fields)) and not fields.issubset(NOT_ANNOTATED)


def _has_tags(table: Table, column: int) -> bool:
    """Whether a column has entity tags. "_" doesn't count: in CoNLL-U, it marks any empty field."""
    return any(is_tag(field) for field in set(table.column(column)) - {"_"})


def _find_keys(table: Table, column: int) -> list[str]:
    """Find the keys of a column of keys and values whose values are tags, in the order of their
    first occurrence. Empty: no key has tags, or the column has other fields."""
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
    """The tags of a column of keys and values. Where the key is missing, the tag is "-", for
    missing annotation.

    column (Sequence[str]): The fields of the column.
    key (str): The key.
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
    """Name a column that has entity tags, for the error that the column of the tags has none."""
    for column in range(table.n_columns):
        if column == token:
            continue
        for field in table.column(column):
            if PREFIXED.fullmatch(field):
                return f"{table.name(column)} has tags such as {field!r} (tag_column)"
    return "no column has entities"


def _find_parts_of_speech(table: Table, token: int, tag: int, number: int | None) -> int | None:
    """Find the column of the parts of speech: the column XPOS or UPOS or, if columns have no names,
    the column after the tokens, as `spacy convert -c ner` does. After numbered tokens there may be
    lemmas or other fields, so it must be the only column before the tags. None: this column is
    missing, or it has tags with prefixes, such as the entity tags or chunks."""
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
