"""Files of texts as parts, and the rows of a part.

.txt               a text on each line; its id is the number of the line, from 1
.jsonl, .ndjson    an object on each line, with the text, an id and, if it has them, tokens
.spacy             docs; the id is their number, from 0
.parquet           a column of texts and one of ids; without ids the number of the row, from 0
"""

import gc
import json
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import (
    Annotated,
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import spacy
import typer
from spacy.cli._util import import_code, setup_gpu
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.util import get_package_path, is_package, minibatch, raise_error
from spacy.vocab import Vocab
from srsly import msgpack
from typer import Argument, Option

from ..pipeline.annotations import SOURCE
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..readers import DEFAULTS as READER
from ..readers import CorpusError, CorpusInfo, Task, task_to_doc
from ..readers.context import Context
from ..readers.corpus import read_docbin
from ..readers.files import BOM, Place, is_about, shown
from ..readers.sentences import copy_tokens
from ..readers.tasks import task_from_json
from ..saving import clear, locked, save_file
from ..validation import require
from .options import AddressOption, CodeOption, GpuOption, ModelArg
from .output import JsonOption, errors_shown, print_result, stdout_for
from .runs import Done, MakeExecutor, Run, local_processes, ray_cluster, run_all


class Columns(NamedTuple):
    """Names of keys of JSONL and of columns of Parquet.

    text (str): Of the text.
    id (str): Of the id.
    """

    text: str = "text"
    id: str = "id"


class Part(NamedTuple):
    """A part of an input file.

    path (str): The file.
    name (str): Its name in the output.
    number (int): The number of the part, from 0.
    start, stop (int): Bytes of lines; row groups of Parquet; 0 and 0 for a whole file.
    first (int): The number of its first line or row.
    digest (str): Of its content.
    """

    path: str
    name: str
    number: int
    start: int
    stop: int
    first: int
    digest: str


class Row(NamedTuple):
    """A text to be annotated.

    id (Any): Its id.
    text (Any): The text, if it is one.
    tokens (Union[Task, Doc, None]): What has its tokens. None: the tokenizer finds them.
    error (Optional[str]): Why it can't be read.
    """

    id: Any
    text: Any
    tokens: Union[Task, Doc, None] = None
    error: Optional[str] = None


def require_pyarrow() -> Any:
    """Import pyarrow's module for Parquet.

    RAISES (ImportError): If it isn't installed.
    """
    return require("pyarrow.parquet", "parquet", "Parquet requires pyarrow")


def plan(inputs: Sequence[Path], n_rows: int) -> Iterator[Part]:
    """Divide input files into parts.

    inputs (Sequence[Path]): Files and folders.
    n_rows (int): Lines or rows of a part. A .spacy file is one part, and row groups of Parquet
        are not divided.
    YIELDS (Part): The parts.
    RAISES (CorpusError): If a file isn't there or has another suffix, if two have the same name,
        or if a Parquet file can't be read.
    """
    seen: Dict[str, Path] = {}
    for path, name in _named(inputs):
        if path.suffix not in DIVIDE:
            raise CorpusError(f"{path}: expected one of {', '.join(DIVIDE)}, got {path.suffix!r}")
        if seen.setdefault(name, path) != path:
            raise CorpusError(f"expected files of different names, got {seen[name]} and {path}")
        for number, (start, stop, first, digest) in enumerate(DIVIDE[path.suffix](path, n_rows)):
            yield Part(str(path), name, number, start, stop, first, digest)


def _named(inputs: Sequence[Path]) -> Iterator[Tuple[Path, str]]:
    """The files, and their names in the output: within a folder its relative path."""
    for given in dict.fromkeys(inputs):
        if not given.exists():
            raise CorpusError(f"{given}: expected a file or folder, got nothing there")
        if not given.is_dir():
            yield given, given.name
            continue
        for path in sorted(given.rglob("*")):
            names = path.relative_to(given).parts
            hidden = any(name.startswith(".") for name in names)
            if path.is_file() and not hidden and not is_about(path):
                yield path, "/".join(names)


Divided = Iterator[Tuple[int, int, int, str]]


def _divide_lines(path: Path, n_rows: int) -> Divided:
    with path.open("rb") as file:
        start, first = 0, 1
        while lines := list(islice(file, n_rows)):
            data = b"".join(lines)
            yield start, start + len(data), first, _digest_of_lines(data, first)
            start, first = start + len(data), first + len(lines)


def _digest_of_lines(data: bytes, first: int) -> str:
    return sha256(data + b"%d" % first).hexdigest()


def _no_division(path: Path, n_rows: int) -> Divided:
    yield 0, 0, 0, digest_of(path)


def _divide_parquet(path: Path, n_rows: int) -> Divided:
    try:
        meta = require_pyarrow().read_metadata(path)
    except (ValueError, OSError) as error:
        # Its task fails then, and the others don't.
        yield 0, 0, 0, digest_of(path) + str(error)
        return
    digest, start, first, n = digest_of(path), 0, 0, 0
    for i in range(meta.num_row_groups):
        n += meta.row_group(i).num_rows
        if n >= n_rows or i + 1 == meta.num_row_groups:
            yield start, i + 1, first, f"{digest} {start} {i + 1}"
            start, first, n = i + 1, first + n, 0


DIVIDE: Dict[str, Callable[[Path, int], Divided]] = {
    ".txt": _divide_lines,
    ".jsonl": _divide_lines,
    ".ndjson": _divide_lines,
    ".spacy": _no_division,
    ".parquet": _divide_parquet,
}


def digest_of(path: Path) -> str:
    """The digest of a file, or of the files of a folder and their names."""
    digest = sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and file.suffix != ".pyc":
            digest.update(str(file.relative_to(path)).encode("utf8"))
            with file.open("rb") as opened:
                while data := opened.read(1 << 20):
                    digest.update(data)
    return digest.hexdigest()


def read_rows(nlp: Language, part: Part, columns: Columns) -> Iterator[Row]:
    """Read the rows of a part. A line that can't be read is a row with its error.

    nlp (Language): The pipeline.
    part (Part): The part.
    columns (Columns): Keys or columns.
    RETURNS (Iterator[Row]): The rows, without empty lines.
    RAISES (CorpusError): If the file can't be read.
    """
    path = Path(part.path)
    if path.suffix == ".spacy":
        return _docs(nlp, path)
    if path.suffix == ".parquet":
        return _table_rows(part, columns)
    return _lines(part, columns)


def _lines(part: Part, columns: Columns) -> Iterator[Row]:
    path = Path(part.path)
    with path.open("rb") as file:
        file.seek(part.start)
        data = file.read(part.stop - part.start)
    if _digest_of_lines(data, part.first) != part.digest:
        raise CorpusError(f"{path}: expected the file that the command began with, got another")
    for i, line in enumerate(data.split(b"\n")):
        number = part.first + i
        line = line.removeprefix(BOM) if number == 1 else line
        if line.strip():
            try:
                text = line.decode("utf8").removesuffix("\r")
                is_text = path.suffix == ".txt"
                yield Row(number, text) if is_text else _record(text, Place(path, number), columns)
            except ValueError as error:
                yield Row(number, line.decode("utf8", "replace"), error=described(error))


def _record(line: str, place: Place, columns: Columns) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise place.refuse(f"expected JSON, got {shown(line)}: {error}") from None
    if not isinstance(value, dict):
        raise place.refuse(f"expected an object with {columns.text!r}, got {shown(value)}")
    row = _row(value, place, columns)
    if row.error or not isinstance(row.text, str) or value.get("tokens") is None:
        return row
    try:
        given = {"text": row.text, "tokens": value["tokens"]}
        return row._replace(tokens=task_from_json(given, place))
    except CorpusError as error:
        return row._replace(error=described(error))


def _row(value: Dict[str, Any], place: Place, columns: Columns) -> Row:
    row = Row(value.get(columns.id, place.number), value.get(columns.text))
    if not isinstance(row.id, (dict, list)) and row.id is not None:
        return row
    message = f"{place}: {columns.id}: expected text or a number, got {shown(row.id)}"
    return row._replace(id=place.number, error=message)


def _docs(nlp: Language, path: Path) -> Iterator[Row]:
    for i, doc in enumerate(read_docbin(path, Context(nlp, READER, CorpusInfo()))):
        yield Row(i, doc.text, doc)


def _table_rows(part: Part, columns: Columns) -> Iterator[Row]:
    try:
        file = require_pyarrow().ParquetFile(part.path)
        names = file.schema_arrow.names
        there = [name for name in columns if name in names]
        groups = list(range(part.start, part.stop))
        values: List[Dict[str, Any]] = file.read_row_groups(groups, columns=there).to_pylist()
    except (ValueError, OSError) as error:
        raise CorpusError(f"{part.path}: expected a Parquet file: {error}") from None
    if columns.text not in names:
        raise CorpusError(f"{part.path}: expected the column {columns.text!r}, got {names}")
    for i, value in enumerate(values):
        yield _row(value, Place(Path(part.path), part.first + i, "row"), columns)


def make_doc(nlp: Language, row: Row) -> Doc:
    """Make the doc of a row, without annotation.

    RAISES (ValueError): If it can't be made.
    """
    if row.error is not None:
        raise ValueError(row.error)
    if isinstance(row.tokens, Doc):
        return copy_tokens(row.tokens)
    if isinstance(row.tokens, Task):
        context = Context(nlp, READER, CorpusInfo())
        return copy_tokens(task_to_doc(row.tokens, Place(Path(), 0), context))
    if not isinstance(row.text, str):
        raise ValueError(f"expected a text, got {shown(row.text)}")
    return nlp.make_doc(row.text)


def described(error: BaseException) -> str:
    """An error in a line: our own messages as they are, others with the name of their class."""
    own = type(error) in (ValueError, CorpusError)
    return str(error) if own else f"{type(error).__name__}: {error}"


Entry = Dict[str, Any]

NAME = "manifest.jsonl"


def read_manifest(folder: Path) -> Dict[str, Entry]:
    """The entries of a folder, by the name of the file. A line that was cut off doesn't count."""
    path, found = folder / NAME, {}
    for line in path.read_text(encoding="utf8").split("\n") if path.exists() else ():
        with suppress(ValueError):
            entry = json.loads(line)
            found[entry["file"]] = entry
    return found


def has_manifest(folder: Path) -> bool:
    """Whether a folder is one that is being written to."""
    return (folder / NAME).is_file()


def is_done(folder: Path, known: Dict[str, Entry], file: str, key: str) -> bool:
    """Whether a file is there as it was finished, with this key."""
    entry, path = known.get(file), folder / file
    same = entry is not None and entry["key"] == key and path.is_file()
    return same and entry is not None and path.stat().st_size == entry["bytes"]


def remove_others(
    folder: Path, known: Dict[str, Entry], files: Collection[str], sources: Collection[str]
) -> None:
    """Remove other files of these inputs than the given ones, such as those of lines that are
    gone; and write the manifest without them."""
    for file in [*known]:
        if known[file]["source"] in sources and file not in files:
            (folder / file).unlink(missing_ok=True)
            del known[file]
    lines = [json.dumps(entry) + "\n" for entry in known.values()]
    save_file(folder / NAME, lambda path: path.write_text("".join(lines), encoding="utf8"))


@contextmanager
def adding(folder: Path) -> Iterator[Callable[[Entry], None]]:
    """Add entries to a manifest.

    YIELDS (Callable[[Entry], None]): Adds one. It is there if the process is killed afterwards.
    """
    with (folder / NAME).open("a", encoding="utf8") as file:

        def add(entry: Entry) -> None:
            file.write(json.dumps(entry) + "\n")
            file.flush()

        yield add


Answer = Tuple[Row, Union[Doc, Exception]]
Value = Dict[str, Any]
Groups = Dict[str, List[str]]
Place = Tuple[int, int, str]


def annotate_rows(nlp: Language, rows: Iterable[Row]) -> Iterator[Answer]:
    """Annotate rows. One that fails doesn't stop the others.

    nlp (Language): The pipeline. Its error handlers have to raise errors.
    rows (Iterable[Row]): The rows.
    YIELDS (Answer): Each row with its doc or its error, in their order.
    """
    for batch in minibatch(rows, nlp.batch_size):
        yield from zip(batch, _annotate(nlp, batch))


def annotate_texts(nlp: Language, ids: Iterable[Any], texts: Iterable[Any]) -> Iterator[Value]:
    """Annotate texts, such as columns of a table. One that fails doesn't stop the others.

    nlp (Language): The pipeline: see `load_pipeline`.
    ids (Iterable[Any]), texts (Iterable[Any]): Ids and texts.
    YIELDS (Value): For each text, in their order, what is on a line of `annotate`, without text.
    """
    groups = groups_of(nlp)
    for answer in annotate_rows(nlp, map(Row, ids, texts)):
        yield as_value(answer, groups, with_text=False)


def _annotate(nlp: Language, rows: Sequence[Row]) -> List[Union[Doc, Exception]]:
    """If a batch fails, its halves are tried, with new docs: the old ones may be half annotated."""
    found = [_made(nlp, row) for row in rows]
    docs = [(doc, i) for i, doc in enumerate(found) if isinstance(doc, Doc)]
    try:
        answers = {i: doc for doc, i in nlp.pipe(docs, as_tuples=True)}
        if len(answers) < len(docs):
            raise ValueError("expected a doc of the pipeline, got none")
        return [answers.get(i, one) for i, one in enumerate(found)]
    except Exception as error:
        if len(rows) == 1:
            return [error]
    half = len(rows) // 2
    return _annotate(nlp, rows[:half]) + _annotate(nlp, rows[half:])


def _made(nlp: Language, row: Row) -> Union[Doc, Exception]:
    try:
        return make_doc(nlp, row)
    except Exception as error:
        return error


def groups_of(nlp: Language) -> Groups:
    """The keys of span groups of a pipeline: "alternatives" and "guaranteed", if it has them."""
    found: Groups = {}
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER) and pipe.confidence is not None:
            if pipe.confidence.alternatives is not None:
                found.setdefault("alternatives", []).append(pipe.confidence.alternatives_key)
            if pipe.guarantee is not None:
                found.setdefault("guaranteed", []).append(pipe.confidence.guaranteed_key)
    return found


def as_value(answer: Answer, groups: Groups, with_text: bool) -> Value:
    """An answer as a line of JSON.

    answer (Answer): The answer.
    groups (Groups): See `groups_of`.
    with_text (bool): Whether it has the text.
    RETURNS (Value): {"id": …, "text": …, "entities": […]}, or with "error" in place of entities.
        Entities have start and end, in characters, label and score. If there is no probability,
        the score is None.
    """
    row, found = answer
    value: Value = {"id": row.id, "text": row.text} if with_text else {"id": row.id}
    if isinstance(found, Exception):
        return {**value, "error": described(found)}
    scores: Dict[Place, float] = {}
    for group in found.spans.values():
        if group.attrs.get("source") == SOURCE and group.attrs["scores"] is not None:
            scores.update(zip(map(_place, group), map(float, group.attrs["scores"])))
    value["entities"] = _spans(found.ents, scores)
    for name, keys in groups.items():
        value[name] = [one for key in keys for one in _spans(found.spans.get(key, ()), scores)]
    return value


def _place(span: Span) -> Place:
    return span.start_char, span.end_char, span.label_


def _spans(spans: Iterable[Span], scores: Dict[Place, float]) -> List[Value]:
    return [
        {"start": place[0], "end": place[1], "label": place[2], "score": scores.get(place)}
        for place in map(_place, spans)
    ]


class Form(NamedTuple):
    """What is written.

    groups (Groups): See `groups_of`.
    with_text (bool): Whether rows have their text.
    """

    groups: Groups
    with_text: bool


def write_jsonl(path: Path, answers: Iterable[Answer], form: Form) -> None:
    """Write a line for each answer."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    # Half of a surrogate pair can't be UTF-8: Python's escape for it is that of JSON.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        for answer in answers:
            file.write(encode(as_value(answer, *form)) + "\n")


def write_parquet(path: Path, answers: Iterable[Answer], form: Form) -> None:
    """Write a row for each answer. Ids are numbers if all are, and text otherwise."""
    parquet = require_pyarrow()
    import pyarrow

    values = [as_value(answer, *form) for answer in answers]
    are_numbers = all(type(value["id"]) is int for value in values)
    for value in values:
        value["id"] = value["id"] if are_numbers else _encodable(value["id"])
        if form.with_text and value["text"] is not None:
            value["text"] = _encodable(value["text"])
    text, number, score = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    span = [("start", number), ("end", number), ("label", text), ("score", score)]
    spans = pyarrow.list_(pyarrow.struct(span))
    names = ["entities", *form.groups]
    columns = [("id", number if are_numbers else text), *[("text", text)][: form.with_text]]
    schema = pyarrow.schema([*columns, *((name, spans) for name in names), ("error", text)])
    parquet.write_table(pyarrow.Table.from_pylist(values, schema=schema), path)


def _encodable(value: Any) -> str:
    return str(value).encode("utf8", "backslashreplace").decode("utf8")


def write_docbin(path: Path, answers: Iterable[Answer], form: Form) -> None:
    """Write a doc for each answer; its `user_data` has "id" and, if it failed, "error"."""
    docs, packer = DocBin(), msgpack.Packer(use_bin_type=True)
    for row, found in answers:
        doc = Doc(Vocab()) if isinstance(found, Exception) else found
        doc.user_data["id"] = row.id
        if isinstance(found, Exception):
            doc.user_data["error"] = described(found)
        docs.add(doc)
        # As DocBin does, which makes a packer for each doc: that takes three quarters of the time.
        docs.user_data.append(packer.pack(doc.user_data))
    docs.store_user_data = True
    docs.to_disk(path)


Write = Callable[[Path, Iterable[Answer], Form], None]
WRITERS: Dict[str, Write] = {"jsonl": write_jsonl, "parquet": write_parquet, "spacy": write_docbin}
"""The formats of outputs."""


ON_ERROR = ("row", "raise")

NOTHING: Entry = {"docs": 0, "failed": 0, "tokens": 0}


class Settings(NamedTuple):
    """What the answers depend on, besides model and input.

    format (str): Of the output: "jsonl", "parquet" or "spacy".
    columns (Columns): Keys of JSONL and columns of Parquet.
    with_text (bool): Whether the output has the texts; .spacy always has them.
    on_error (str): "row": a doc that fails becomes a row with its error. "raise": it stops all.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Optional[str]): A Python file with registered functions to be imported.
    """

    format: str = "jsonl"
    columns: Columns = Columns()
    with_text: bool = True
    on_error: str = "row"
    use_gpu: int = -1
    code_path: Optional[str] = None


DEFAULTS = Settings()


class Plan(NamedTuple):
    """What there is to do.

    kept, changed, new (int): Numbers of parts: finished before; finished with another model, other
        settings or another input; others.
    """

    kept: int
    changed: int
    new: int


class Summary(NamedTuple):
    """What was done.

    parts (Plan): Numbers of parts.
    docs, failed, tokens (int): Numbers of docs, of those with an error, and of tokens, in all of
        the output, with parts that were kept.
    seconds (float): Time, without planning.
    tokens_per_second (float): Of the parts that were done now.
    errors (Dict[str, str]): Why a part has no output, by the name of its file.
    """

    parts: Plan
    docs: int
    failed: int
    tokens: int
    seconds: float
    tokens_per_second: float
    errors: Dict[str, str]


def annotate_files(
    model: Union[str, Path],
    inputs: Sequence[Union[str, Path]],
    output: Union[str, Path],
    settings: Settings = DEFAULTS,
    *,
    jobs: int = 1,
    n_rows: int = 10_000,
    make_executor: Optional[MakeExecutor] = None,
    on_plan: Optional[Callable[[Plan], None]] = None,
    on_part: Optional[Callable[[Entry], None]] = None,
) -> Summary:
    """Annotate files with a trained pipeline. What a finished run has left is kept, if model,
    settings and input are the same.

    model (Union[str, Path]): The pipeline: a package or a folder.
    inputs (Sequence[Union[str, Path]]): Files of texts, and folders of these: see `inputs`.
    output (Union[str, Path]): The folder for the output.
    settings (Settings): What the answers depend on.
    jobs (int): Number of processes.
    n_rows (int): Lines or rows of a part.
    make_executor (Optional[MakeExecutor]): Makes the executor, such as `ray_cluster("auto")`;
        `jobs` local processes if None: see `runs.run_all`.
    on_plan (Optional[Callable[[Plan], None]]): Called before the work.
    on_part (Optional[Callable[[Entry], None]]): Called with the numbers of each part that ends.
    RETURNS (Summary): What was done.
    RAISES (ValueError): If an argument is wrong, an input is not there, another process writes to
        the folder or, with `on_error = "raise"`, a doc fails.
    """
    given, folder = [Path(path) for path in inputs], Path(output)
    _check(given, folder, settings, jobs, n_rows)
    digest = _digest_of_model(str(model), settings.code_path)
    parts = {_file(part, settings): part for part in plan(given, n_rows)}
    if not parts:
        raise ValueError(f"annotate: expected files with text, got none in {[*map(str, given)]}")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder) as is_ours:
        if is_ours is False:
            raise ValueError(f"{folder}: expected no other process that writes to it, got one")
        keys = {file: _key(digest, settings, part) for file, part in parts.items()}
        known = read_manifest(folder)
        done = {file: known[file] for file in parts if is_done(folder, known, file, keys[file])}
        n_known = len([file for file in parts if file in known])
        planned = Plan(len(done), n_known - len(done), len(parts) - n_known)
        if on_plan is not None:
            on_plan(planned)
        remove_others(folder, known, parts, {part.name for part in parts.values()})
        shared = {"model": str(model), "digest": digest, "folder": folder, "settings": settings}
        runs = [
            Run(file, annotate_part, {**shared, "part": part, "key": keys[file]})
            for file, part in parts.items()
            if file not in done
        ]
        begin, n_kept, errors = perf_counter(), _sum(done, "tokens"), {}
        with adding(folder) as add:
            for run, ended in run_all(runs, make_executor or local_processes(jobs)):
                if isinstance(ended, Done):
                    add(ended.value)
                    done[run.name] = ended.value
                elif settings.on_error == "raise":
                    raise ValueError(f"annotate: {run.name}: {ended.reason}")
                else:
                    errors[run.name] = ended.reason
                    clear(folder / run.name)
                if on_part is not None:
                    on_part(done.get(run.name, NOTHING))
    seconds = perf_counter() - begin
    docs, failed, tokens = (_sum(done, name) for name in NOTHING)
    return Summary(planned, docs, failed, tokens, seconds, (tokens - n_kept) / seconds, errors)


def annotate_part(
    model: str, digest: str, folder: Path, settings: Settings, part: Part, key: str
) -> Entry:
    """Annotate a part of a file.

    RETURNS (Entry): The line of the manifest.
    RAISES (CorpusError): If the file can't be read, or has changed.
    RAISES (ValueError): If a doc fails and `on_error` is "raise", or if model or folder are not
        those that the command has.
    """
    if not has_manifest(folder):
        raise ValueError(
            f"{folder}: expected the output folder of the command, got none on this worker"
        )
    nlp = _load(model, digest, settings.code_path, settings.use_gpu)
    counts = dict(NOTHING)

    def answers() -> Iterator[Answer]:
        for row, found in annotate_rows(nlp, read_rows(nlp, part, settings.columns)):
            if isinstance(found, Exception) and settings.on_error == "raise":
                raise ValueError(f"{part.path}: id {row.id!r}: {described(found)}") from found
            counts["docs"] += 1
            counts["failed"] += isinstance(found, Exception)
            counts["tokens"] += len(found) if isinstance(found, Doc) else 0
            yield row, found

    file, form = _file(part, settings), Form(groups_of(nlp), settings.with_text)
    write = WRITERS[settings.format]
    with _frozen():
        save_file(folder / file, lambda path: write(path, answers(), form))
    size = (folder / file).stat().st_size
    return {"file": file, "source": part.name, "key": key, "bytes": size, **counts}


@contextmanager
def _frozen() -> Iterator[None]:
    """Garbage collections leave out what is there now, such as the pipeline. They take a twelfth of
    the time otherwise."""
    was_frozen = gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()


@lru_cache(maxsize=1)
def _load(model: str, digest: str, code_path: Optional[str], use_gpu: int) -> Language:
    """Load a pipeline, once in each process."""
    if _digest_of_model(model, code_path) != digest:
        raise ValueError(f"{model}: expected the pipeline that the command began with, got another")
    return load_pipeline(model, code_path, use_gpu)


def load_pipeline(
    model: Union[str, Path], code_path: Optional[str] = None, use_gpu: int = -1
) -> Language:
    """Load a pipeline for `annotate_texts`.

    model (Union[str, Path]): A package or a folder.
    code_path (Optional[str]): A Python file with registered functions to be imported.
    use_gpu (int): GPU ID or -1 for CPU.
    RETURNS (Language): The pipeline. Errors of its components are raised.
    """
    setup_gpu(use_gpu, silent=True)
    import_code(code_path)
    nlp = spacy.load(model)
    nlp.set_error_handler(raise_error)
    return nlp


def _check(
    inputs: Sequence[Path], folder: Path, settings: Settings, jobs: int, n_rows: int
) -> None:
    for name, n in {"jobs": jobs, "part": n_rows}.items():
        if n < 1:
            raise ValueError(f"annotate: {name}: expected at least 1, got {n}")
    for name, given, known in (
        ("format", settings.format, [*WRITERS]),
        ("on_error", settings.on_error, [*ON_ERROR]),
    ):
        if given not in known:
            raise ValueError(f"annotate: {name}: expected one of {known}, got {given!r}")
    for path in inputs:
        if path.is_dir() and path.resolve() in (folder.resolve(), *folder.resolve().parents):
            raise ValueError(f"{folder}: expected an output outside of the input {path}")
    if settings.format == "parquet":
        require_pyarrow()


def _file(part: Part, settings: Settings) -> str:
    return f"{part.name}-{part.number:05}.{settings.format}"


def _sum(entries: Dict[str, Entry], name: str) -> int:
    return sum(entry[name] for entry in entries.values())


def _digest_of_model(model: str, code_path: Optional[str]) -> str:
    path = Path(model)
    if not path.exists() and is_package(model):
        path = get_package_path(model)
    elif not (path / "meta.json").is_file():
        raise ValueError(f"{model}: expected a trained pipeline, a package or a folder")
    paths = [path, *([Path(code_path)] if code_path else [])]
    return " ".join(map(digest_of, paths))


def _key(digest: str, settings: Settings, part: Part) -> str:
    """The fingerprint of model, settings, versions and input."""
    versions = [version(name) for name in ("spacy-costner", "spacy")]
    chosen = settings._replace(code_path=None, on_error="")
    text = json.dumps([digest, chosen, versions, part.digest])
    return sha256(text.encode("utf8")).hexdigest()


SHOWN = 5
"""Errors that are printed."""


def annotate_cli(
    model: ModelArg,
    inputs: Annotated[
        List[Path],
        Argument(help="Files or folders: .txt with a text a line, .jsonl, .spacy, .parquet"),
    ],
    output_path: Annotated[Path, Option("--output", "-o", help="Output folder")],
    form: Annotated[
        str, Option("--format", "-f", help="Form of the output: jsonl, parquet, spacy")
    ] = Settings().format,
    jobs: Annotated[int, Option("--jobs", "-j", help="Number of processes")] = 1,
    address: AddressOption = None,
    n_rows: Annotated[
        int, Option("--part", help="Lines or rows of a part, which has its own output file")
    ] = 10_000,
    text: Annotated[str, Option("--text", help="Key or column of the text")] = Columns().text,
    id_name: Annotated[str, Option("--id", help="Key or column of the id")] = Columns().id,
    with_text: Annotated[
        bool, Option("--with-text/--no-text", help="Whether the output has the texts")
    ] = True,
    on_error: Annotated[
        str, Option("--on-error", help="What a doc that fails does: row, in the output, or raise")
    ] = Settings().on_error,
    print_json: JsonOption = False,
    use_gpu: GpuOption = -1,
    code_path: CodeOption = None,
) -> None:
    """
    Annotate files of texts. Writes the entities with their probabilities and, if the pipeline has
    them, alternatives and guaranteed sets. A doc that fails becomes a row with its error. Run
    the command again to do what is missing, or what has changed: the model, a setting, an input.
    """
    code = None if code_path is None else str(code_path)
    columns = Columns(text, id_name)
    settings = Settings(form, columns, with_text, on_error, use_gpu, code)
    with errors_shown(), stdout_for(address), progress(desc="annotate", unit="part") as bar:
        n_tokens = n_failed = 0

        def on_plan(planned: Plan) -> None:
            typer.echo(describe_plan(planned), err=True)
            bar.reset(planned.changed + planned.new)

        def on_part(entry: dict) -> None:
            nonlocal n_tokens, n_failed
            n_tokens, n_failed = n_tokens + entry["tokens"], n_failed + entry["failed"]
            bar.update()
            seconds = max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix({"tokens/s": f"{n_tokens / seconds:,.0f}", "failed": n_failed})

        summary = annotate_files(
            model,
            inputs,
            output_path,
            settings,
            jobs=jobs,
            n_rows=n_rows,
            make_executor=ray_cluster(address, use_gpu),
            on_plan=on_plan,
            on_part=on_part,
        )
    print_result(summary, describe(summary), print_json, output_path)
    if summary.errors:
        raise typer.Exit(1)


def describe_plan(planned: Plan) -> str:
    """Say what there is to do."""
    return "parts: {kept} kept, {changed} changed, {new} new".format(**planned._asdict())


def describe(summary: Summary) -> str:
    """Describe what was done."""
    lines = [
        f"{summary.docs:,} docs, {summary.failed:,} failed, {summary.tokens:,} tokens",
        f"{summary.seconds:.1f} s, {summary.tokens_per_second:,.0f} tokens/s",
    ]
    for file, reason in list(summary.errors.items())[:SHOWN]:
        lines.append(f"not written: {file}: {reason}")
    if len(summary.errors) > SHOWN:
        lines.append(f"and {len(summary.errors) - SHOWN} others")
    return "\n".join(lines)
