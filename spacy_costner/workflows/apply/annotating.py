"""Annotate text files, in parts, so that a run continues where an earlier one ended.

A part is some lines or rows of an input file. It has its own output file. Parts that an earlier run
has annotated are kept: see `manifest`. Workers annotate several parts at a time.
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


class PartCounts(NamedTuple):
    """The number of parts, by what earlier runs have done of them."""

    kept: int  # annotated by an earlier run, and not again
    changed: int  # annotated again: model, settings or input are others, or the output is damaged
    new: int  # annotated for the first time


class FailedDocs(NamedTuple):
    """The docs of an input file that failed, and became rows with their errors."""

    failed: int
    docs: int  # all docs of the file
    first_error: str  # the id and the error of the first one


class Summary(NamedTuple):
    """The result of `annotate`. Docs and tokens are counted in all parts of the inputs, including
    kept parts, but without the parts in `errors`."""

    parts: PartCounts
    docs: int  # the number of docs, also of those with an error
    failed: int  # the number of docs with an error
    tokens: int
    seconds: float  # how long the annotation of the new and changed parts took
    tokens_per_second: float  # the speed of that
    errors: dict[str, str]  # why a part was not written, keyed by the name of its output file
    shift: dict[str, Shift]  # the test for a shift of each component that has one: see `watch`
    failures: dict[str, FailedDocs]  # the docs that failed, keyed by the path of the input file
    wrapped: list[str]  # input files a doc a line whose lines seem to be wrapped

    @property
    def lost_files(self) -> list[str]:
        """The input files all of whose docs failed."""
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
    """Annotate files with a trained pipeline. Parts that an earlier run has annotated are kept if
    their model, settings and input are the same. The output of parts that the inputs no longer have
    is removed.

    model (str | Path): The pipeline, a package or a folder.
    inputs (Sequence[str | Path]): Files, or folders of files: see `readers.file_parts`.
    output_path (str | Path): The folder for the output. It may have the output of an earlier run.
    form (Literal["jsonl", "parquet", "spacy"]): Form of the output.
    jobs (int): Number of processes.
    n_rows (int): Lines or rows of a part, which has its own output file. A .spacy file is one part,
        and Parquet row groups are not divided.
    text (str): Key or column of the text.
    id_name (str): Key or column of the id.
    with_text (bool): Whether the output has the texts; .spacy always has them.
    whole_files (bool): Whether a .txt file is one doc, whose id is the name of the file, instead of
        a doc per line.
    on_error (Literal["row", "raise"]): What to do if a doc fails: write a row with its error, or
        stop the run.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Path | None): Python file with registered functions to be imported.
    make_executor (MakeExecutor | None): Makes the executor, such as `ray_cluster("auto")`;
        `jobs` local processes if None: see `runs.run_all`.
    RETURNS (Summary): The numbers of parts, docs and tokens, and the errors.
    RAISES (ValueError): If an argument is wrong, the model isn't a pipeline, an input is missing or
        isn't a text file, another process writes to the folder or, with `on_error = "raise"`, a doc
        or a part fails.
    RAISES (ImportError): If the form is Parquet and pyarrow isn't installed.
    """
    folder = Path(output_path)
    code = None if code_path is None else str(code_path)
    check_output(folder, form)
    if n_rows < 1:
        raise ValueError(f"annotate: n_rows: expected at least 1, got {n_rows}")
    sources = find_sources([Path(path) for path in inputs], folder)
    model_digest = digest_model(str(model), code)
    # What the output depends on, in addition to the input. If any of it has changed, all parts are
    # done again.
    versions = [version(name) for name in ("spacy-costner", "spacy")]
    settings = [model_digest, versions, form, text, id_name, with_text, use_gpu]
    # The parts, keyed by the names of their output files
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
        if is_ours is False:  # It is None if the file system has no locks: then it is unknown.
            raise ValueError(f"{folder}: expected no other process to write to it, got one")
        earlier_entries = read_manifest(folder)
        remove_vanished_parts(folder, earlier_entries, sources, planned)
        finished_entries = find_finished(folder, earlier_entries, planned)
        # Rewrite the manifest, without damaged lines and without the parts that were removed.
        save_text(folder / MANIFEST, "".join(entry.to_line() for entry in earlier_entries.values()))

        begin = perf_counter()
        groups = group_unfinished(planned, finished_entries)
        executor = make_executor or local_processes(jobs)
        written_entries, errors = annotate_parts(groups, part_settings, executor)
        seconds = perf_counter() - begin

    entry_of_file = {**finished_entries, **written_entries}
    # The entries are in the order of the parts, whichever worker was first.
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
    """Divide the parts that are not finished into groups that are annotated together.

    The last digits of scores depend on which docs are annotated together. So that a run that
    continues writes the same output as an uninterrupted one, groups are made of all parts first.
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
    """Count the planned parts by what earlier runs have done of them. `earlier` are the parts with
    output of an earlier run, and `finished` those whose output is kept."""
    n_new = sum(file not in earlier for file in planned)
    n_changed = len(planned) - len(finished) - n_new
    return PartCounts(kept=len(finished), changed=n_changed, new=n_new)


def count_failures(
    entries: Iterable[ManifestEntry], planned: Mapping[str, PlannedPart]
) -> dict[str, FailedDocs]:
    """Count the docs that failed, keyed by the path of their input file. Entries are in the order
    of their parts, which have the names of their output files."""
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
    """The warnings of all parts, each once, in the order in which they first came."""
    messages: dict[str, None] = {}  # The keys are an ordered set.
    for entry in entries:
        messages.update(dict.fromkeys(entry.warnings))
    return list(messages)


def check_output(folder: Path, form: str) -> None:
    """Check that the output can be written to a folder in this form, before anything is read.
    The form must be known, Parquet needs pyarrow, and the folder must not be a file."""
    if form not in OUTPUT_FORMS:
        raise ValueError(f"annotate: format: expected one of {[*OUTPUT_FORMS]}, got {form!r}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"annotate: output: expected a folder, got the file {folder}")
    if form == "parquet":
        require_pyarrow()
