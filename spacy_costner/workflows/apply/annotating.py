"""Annotate text files in parts, so that interrupted runs can be resumed.

A part is a range of lines or rows in an input file, and is written to a separate output file. Parts
annotated in an earlier run are kept (see `manifest`). Several parts can be annotated in parallel.
"""

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Literal, NamedTuple

from ...files.saving import locked, save_text
from ...metrics.shift import Shift
from ...readers.file_parts import read_rows, require_pyarrow
from ...readers.texts import has_wrapped_lines
from ..executors import local_processes
from ..runs import MakeExecutor
from .inputs import PlannedPart, find_sources, plan_parts
from .manifest import MANIFEST, ManifestEntry, find_finished, read_manifest, remove_vanished_parts
from .output_files import OUTPUT_FORMS
from .parts import PartSettings, annotate_parts, digest_model, group_parts, load_once
from .shift_measures import find_shift_of_parts

ON_ERROR = ("row", "raise")
"""The values of the setting `on_error`: see `annotate`."""


class PartCounts(NamedTuple):
    """The number of parts by status."""

    kept: int  # annotated in an earlier run
    # Annotated again: the model, settings, input or output file has changed, or docs failed
    changed: int
    new: int  # annotated for the first time


class FailedDocs(NamedTuple):
    """The number of failed docs in an input file. Their errors are in the output."""

    failed: int
    docs: int  # the total number of docs in the file
    first_error: str  # the ID and error of the first doc that failed


class Summary(NamedTuple):
    """The result of `annotate`. The counts of docs and tokens include kept parts, but exclude the
    parts in `errors`."""

    parts: PartCounts
    docs: int  # the number of docs, including failed docs
    failed: int  # the number of docs that failed
    tokens: int
    seconds: float  # the time for annotating new and changed parts
    tokens_per_second: float  # the annotation speed for new and changed parts
    errors: dict[str, str]  # the errors of parts that weren't written, by output file name
    shift: dict[str, Shift]  # the results of the shift test, by component name: see `watch`
    failures: dict[str, FailedDocs]  # the failed docs, by path of the input file
    wrapped: list[str]  # input files with a doc per line that seem to contain wrapped lines

    @property
    def lost_files(self) -> list[str]:
        """The input files in which all docs failed."""
        lost: list[str] = []
        for path, failed_docs in self.failures.items():
            if failed_docs.failed == failed_docs.docs:
                lost.append(path)
        return lost


def annotate(
    model: str | Path,
    inputs: Sequence[str | Path],
    output_path: str | Path,
    *,
    form: Literal["jsonl", "parquet", "spacy"] = "jsonl",
    jobs: int = 1,
    n_rows: int = 10_000,
    text: str = "text",
    id_name: str = "id",
    with_text: bool = True,
    whole_files: bool = False,
    on_error: Literal["row", "raise"] = "row",
    use_gpu: int = -1,
    code_path: Path | None = None,
    make_executor: MakeExecutor | None = None,
) -> Summary:
    """Annotate files with a trained pipeline. Parts from an earlier run are kept if the model,
    settings and input haven't changed. Output for parts that no longer exist is removed.

    model (str | Path): Package name or path of the pipeline.
    inputs (Sequence[str | Path]): Files or directories of files. See `readers.file_parts`.
    output_path (str | Path): The output directory. It may contain output from an earlier run.
    form (Literal["jsonl", "parquet", "spacy"]): The output format.
    jobs (int): Number of processes.
    n_rows (int): Number of lines or rows per part. A .spacy file is a single part, and Parquet row
        groups are never split.
    text (str): Key or column of the text.
    id_name (str): Key or column of the ID.
    with_text (bool): Whether to include the texts in the output. The .spacy format always includes
        them.
    whole_files (bool): Whether to read each .txt file as one doc, with the file name as its ID,
        instead of one doc per line.
    on_error (Literal["row", "raise"]): What to do if a doc fails: "row" writes a row with the
        error, "raise" stops the run. With "raise", parts in which docs failed in an earlier run are
        annotated again.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Path | None): Python file with registered functions to be imported.
    make_executor (MakeExecutor | None): Creates the executor, for example `ray_cluster("auto")`. If
        None, `jobs` local processes are used. See `runs.run_all`.
    RETURNS (Summary): The numbers of parts, docs and tokens, and any errors.
    RAISES (ValueError): If an argument is invalid, the model isn't a pipeline, an input is missing
        or isn't a text file, another process is writing to the output directory, or a doc or part
        fails and `on_error` is "raise".
    RAISES (ImportError): If the format is Parquet and pyarrow isn't installed.
    """
    folder = Path(output_path)
    code = None if code_path is None else str(code_path)
    check_output(folder, form)
    if on_error not in ON_ERROR:
        raise ValueError(f"annotate: on_error: expected one of {[*ON_ERROR]}, got {on_error!r}")
    if n_rows < 1:
        raise ValueError(f"annotate: n_rows: expected at least 1, got {n_rows}")
    sources = find_sources([Path(path) for path in inputs], folder)
    model_digest = digest_model(str(model), code)
    # Everything that the output depends on, except the input. If any of these settings changes, all
    # parts are annotated again.
    versions = [version(name) for name in ("spacy-costner", "spacy")]
    settings = [model_digest, versions, form, text, id_name, with_text, use_gpu]
    # The parts, keyed by output file name
    planned = plan_parts(sources, n_rows, form, settings, whole_files=whole_files)
    if not planned:
        names = [str(path) for path in inputs]
        raise ValueError(f"annotate: expected text files, found none in {names}")
    wrapped: list[str] = []
    if not whole_files:
        wrapped = [str(path) for path in sources.values() if has_wrapped_lines(path)]
    part_settings = PartSettings(
        folder=folder,
        load=partial(load_once, str(model), model_digest, code, use_gpu),
        read=partial(read_rows, text=text, id_name=id_name),
        form=form,
        with_text=with_text,
        on_error=on_error,
    )

    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder) as is_ours:
        if is_ours is False:  # None if the file system doesn't support locks
            raise ValueError(f"{folder}: expected no other process to write to it, got one")
        earlier_entries = read_manifest(folder)
        remove_vanished_parts(folder, earlier_entries, sources, planned)
        # If errors are raised, annotate parts with failed docs again to raise their errors.
        with_failed_docs = on_error != "raise"
        finished_entries = find_finished(
            folder, earlier_entries, planned, with_failed_docs=with_failed_docs
        )
        # Rewrite the manifest to drop damaged lines and removed parts.
        save_text(folder / MANIFEST, "".join(entry.to_line() for entry in earlier_entries.values()))

        begin = perf_counter()
        groups = group_unfinished(planned, finished_entries)
        executor = make_executor or local_processes(jobs)
        written_entries, errors = annotate_parts(groups, part_settings, executor)
        seconds = perf_counter() - begin

    entry_of_file = {**finished_entries, **written_entries}
    # Sort the entries by part. Workers may finish in any order.
    entries = [entry_of_file[file] for file in planned if file in entry_of_file]
    for message in warnings_of(entries):
        warnings.warn(message, stacklevel=2)

    return Summary(
        parts=count_parts(planned, earlier_entries, finished_entries),
        docs=sum(entry.docs for entry in entries),
        failed=sum(entry.failed for entry in entries),
        tokens=sum(entry.tokens for entry in entries),
        seconds=seconds,
        tokens_per_second=sum(entry.tokens for entry in written_entries.values()) / seconds,
        errors=errors,
        shift=find_shift_of_parts(part_settings.load, entries),
        failures=count_failures(entries, planned),
        wrapped=wrapped,
    )


def group_unfinished(
    planned: Mapping[str, PlannedPart], finished: Collection[str]
) -> list[dict[str, PlannedPart]]:
    """Divide unfinished parts into groups to annotate together.

    The last digits of scores depend on how docs are batched. Groups are therefore formed from all
    parts before finished parts are removed, so that the output doesn't depend on interruptions.
    """
    groups: list[dict[str, PlannedPart]] = []
    for group in group_parts(planned):
        unfinished = {file: part for file, part in group.items() if file not in finished}
        if unfinished:
            groups.append(unfinished)
    return groups


def count_parts(
    planned: Collection[str], earlier: Collection[str], finished: Collection[str]
) -> PartCounts:
    """Count the planned parts by status. `earlier` contains the parts in the manifest of an earlier
    run, and `finished` the parts whose output is kept."""
    n_new = sum(file not in earlier for file in planned)
    n_changed = len(planned) - len(finished) - n_new
    return PartCounts(kept=len(finished), changed=n_changed, new=n_new)


def count_failures(
    entries: Iterable[ManifestEntry], planned: Mapping[str, PlannedPart]
) -> dict[str, FailedDocs]:
    """Count the failed docs in each input file, keyed by path. Files without failed docs are
    omitted. `entries` must be in the order of the parts, and `planned` is keyed by output file
    name."""
    failures: dict[str, FailedDocs] = {}
    for entry in entries:
        path = str(planned[entry.file].part.path)
        earlier = failures.get(path, FailedDocs(failed=0, docs=0, first_error=""))
        failures[path] = FailedDocs(
            failed=earlier.failed + entry.failed,
            docs=earlier.docs + entry.docs,
            first_error=earlier.first_error or entry.first_error,
        )
    return {path: failed_docs for path, failed_docs in failures.items() if failed_docs.failed}


def warnings_of(entries: Iterable[ManifestEntry]) -> list[str]:
    """Return the unique warnings of all parts in the order of their first occurrence."""
    messages: dict[str, None] = {}  # a dict as an ordered set
    for entry in entries:
        messages.update(dict.fromkeys(entry.warnings))
    return list(messages)


def check_output(folder: Path, form: str) -> None:
    """Check the output directory and format before any input is read. Raise a ValueError if the
    format is unknown or the directory is a file, and an ImportError if pyarrow is required but
    isn't installed."""
    if form not in OUTPUT_FORMS:
        raise ValueError(f"annotate: format: expected one of {[*OUTPUT_FORMS]}, got {form!r}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"annotate: output: expected a folder, got the file {folder}")
    if form == "parquet":
        require_pyarrow()
