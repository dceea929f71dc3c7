"""Annotate files with a trained pipeline: a task for each part of them, and what was done of it.

The output is a folder with a file for each part, and a manifest.
"""

import gc
import json
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Callable, Dict, Iterator, NamedTuple, Optional, Sequence, Union

import spacy
from spacy.cli._util import import_code, setup_gpu
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import get_package_path, is_package, raise_error

from ...saving import clear, locked, save_file
from ..runs import Done, MakeExecutor, Run, local_processes, run_all
from .answers import WRITERS, Answer, Form, annotate_rows, groups_of
from .inputs import Columns, Part, described, digest_of, plan, read_rows, require_pyarrow
from .manifest import Entry, adding, has_manifest, is_done, read_manifest, remove_others

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
