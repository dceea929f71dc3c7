"""Annotate files of texts, in parts, so that a run goes on where an earlier one ended.

A part is some lines or rows of an input file. It has an output file of its own. As soon as that is
complete, the part gets an entry in the manifest, a file in the output folder. An entry has a *key*,
the fingerprint of the model, the settings and the input. A later run keeps the parts whose keys
would be the same now, and annotates the others. Workers annotate several parts at a time. A worker
annotates small parts in groups, so that a batch has enough docs.

A component may also *measure* each doc, to test whether docs are still like its calibration docs:
the test for a *shift*, see `metrics.shift`. The measures of a part are in its entry, so that parts
that are kept can be tested, too.
"""

import gc
import json
import math
import re
import threading
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc, DocBin, SpanGroup
from spacy.util import get_package_path, is_package, minibatch, raise_error
from spacy.vocab import Vocab
from srsly import msgpack

from ...annotation.spans import Place, read_group, realign
from ...files.saving import clear, locked, save_file, save_text
from ...metrics.shift import Counts, Shift, find_shift, in_random_order, rounded
from ...pipeline.annotations import ALTERNATIVES, GUARANTEED, add_measures, scored_groups
from ...pipeline.component import CostSensitiveNER
from ...progress import progress
from ...readers import CorpusError
from ...readers.files import digest, encodable, is_about_corpus
from ...readers.texts import (
    FilePart,
    TextRow,
    divide,
    has_wrapped_lines,
    make_doc,
    read_rows,
    require_pyarrow,
)
from ..config import loading
from ..executors import (
    Done,
    Failed,
    MakeExecutor,
    Run,
    describe_failure,
    local_processes,
    run_all,
)

MANIFEST = "manifest.jsonl"
"""The name of the manifest, in the output folder."""

OUTPUT = re.compile(r"(.+)-\d{5,}\.(jsonl|parquet|spacy)", re.DOTALL)
"""The name of an output file: the name of its input, and the number of the part."""

BYTES_OF_GROUP = 1 << 16
"""Parts of fewer bytes are annotated together, in groups of at most so many."""

MIN_GROUPS = 16
"""The least number of groups, if there are as many parts."""

Answer = tuple[TextRow, Doc | Exception]
"""A row of an input with what the pipeline made of it: the annotated doc, or the error."""

SpanLists = dict[str, list[str]]
"""The lists of spans that a record has beside its entities. A key is the name of such a list:
"spans", "alternatives" or "guaranteed". The value of "spans" says which groups of `doc.spans` the
list has, by their keys. The other values are empty: there, an attribute of each group says which
list it belongs to."""

N_COUNTS = 3
"""How many numbers a label has in `Counts`: see there."""

Record = dict[str, Any]
"""An answer as a dictionary: a line of JSON, or a row of Parquet. See `to_record`."""


class PartMeasures(NamedTuple):
    """What a component measured of the docs of a part. The test for a shift needs it."""

    scores: list[float]  # the score of each doc that has tokens to predict
    counts: Counts  # three numbers of entities for each label, summed over the docs


class Entry(NamedTuple):
    """A line of the manifest: a part that is done, and what its output has."""

    file: str  # the output file, relative to the folder
    key: str  # the fingerprint of the part, the model and the settings
    bytes: int  # the size of the output file
    docs: int  # the number of docs, also of those with an error
    failed: int  # the number of docs with an error
    tokens: int  # the number of tokens of the other docs
    shift: dict[str, PartMeasures]  # by component
    warnings: list[str]
    first_error: str  # the id and the error of the first doc that failed; empty if none did

    def to_line(self) -> str:
        """The entry as a line of JSON."""
        shift = {name: measures._asdict() for name, measures in self.shift.items()}
        return json.dumps({**self._asdict(), "shift": shift}) + "\n"


ENTRY_TYPES = {
    "file": str,
    "key": str,
    "bytes": int,
    "docs": int,
    "failed": int,
    "tokens": int,
    "shift": dict,
}
"""The types that the fields of an entry must have in JSON. "warnings" and "first_error" may be
missing: 0.3.0 wrote none."""


class PlannedPart(NamedTuple):
    """A part to annotate."""

    part: FilePart
    key: str  # the fingerprint of the part, the model and the settings


class PartSettings(NamedTuple):
    """How all parts are annotated and written."""

    folder: Path  # the output folder
    load: Callable[[], Language]  # loads the pipeline
    read: Callable[[Language, FilePart], Iterable[TextRow]]  # reads the rows of a part
    form: str  # one of `OUTPUT_FORMS`
    with_text: bool  # see `annotate`
    on_error: str  # see `annotate`


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
    """What was done. Docs and tokens are those of all parts of the inputs, also of those that were
    kept, but without the parts in `errors`."""

    parts: PartCounts
    docs: int  # the number of docs, also of those with an error
    failed: int  # the number of docs with an error
    tokens: int
    seconds: float  # how long the annotation of the new and changed parts took
    tokens_per_second: float  # the speed of that
    errors: dict[str, str]  # why a part was not written, by the name of its output file
    shift: dict[str, Shift]  # the test for a shift of each component that has one: see `watch`
    failures: dict[str, FailedDocs]  # the docs that failed, by the path of the input file
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
    inputs (Sequence[str | Path]): Files, or folders of files: see `readers.texts`.
    output_path (str | Path): The folder for the output. It may have that of an earlier run.
    form (Literal["jsonl", "parquet", "spacy"]): Form of the output.
    jobs (int): Number of processes.
    n_rows (int): Lines or rows of a part, which has its own output file. A .spacy file is one part,
        and row groups of Parquet are not divided.
    text (str): Key or column of the text.
    id_name (str): Key or column of the id.
    with_text (bool): Whether the output has the texts; .spacy always has them.
    whole_files (bool): A .txt file is one doc, whose id is the file's name, and not a doc a line.
    on_error (Literal["row", "raise"]): What a doc that fails does: a row with its error, or stop
        all.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Path | None): Python file with registered functions to be imported.
    make_executor (MakeExecutor | None): Makes the executor, such as `ray_cluster("auto")`;
        `jobs` local processes if None: see `runs.run_all`.
    RETURNS (Summary): What was done.
    RAISES (ValueError): If an argument is wrong, the model is no pipeline, an input is not there or
        not a file of texts, another process writes to the folder or, with `on_error = "raise"`, a
        doc or a part fails.
    RAISES (ImportError): If the form is Parquet and pyarrow isn't installed.
    """
    folder = Path(output_path)
    code = None if code_path is None else str(code_path)
    check_output(folder, form)
    if n_rows < 1:
        raise ValueError(f"annotate: n_rows: expected at least 1, got {n_rows}")
    sources = find_sources([Path(path) for path in inputs], folder)
    model_digest = digest_model(str(model), code)
    # What the output depends on, beside the input. If any of it has changed, all parts are done
    # again.
    versions = [version(name) for name in ("spacy-costner", "spacy")]
    settings = [model_digest, versions, form, text, id_name, with_text, use_gpu]
    planned = plan_parts(sources, n_rows, form, settings, whole_files=whole_files)
    if not planned:
        names = [str(path) for path in inputs]
        raise ValueError(f"annotate: expected files with text, got none in {names}")
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
        if is_ours is False:  # It is None if the file system has no locks: then nobody knows.
            raise ValueError(f"{folder}: expected no other process that writes to it, got one")
        earlier_entries = read_manifest(folder)
        remove_vanished_parts(folder, earlier_entries, sources, planned)
        finished_entries = find_finished(folder, earlier_entries, planned)
        # Write the manifest anew, without damaged lines and without the parts that were removed.
        save_text(folder / MANIFEST, "".join(entry.to_line() for entry in earlier_entries.values()))

        begin = perf_counter()
        # The last digits of scores depend on which docs are annotated together. So that a run that
        # goes on writes what it would have written at once, groups are made of all parts.
        groups: list[dict[str, PlannedPart]] = []
        for group in group_parts(planned):
            unfinished = {file: group[file] for file in group if file not in finished_entries}
            if unfinished:
                groups.append(unfinished)
        executor = make_executor or local_processes(jobs)
        written_entries, errors = annotate_parts(groups, part_settings, executor)
        seconds = perf_counter() - begin

    entry_of_file = {**finished_entries, **written_entries}
    # The entries are in the order of the parts, whichever worker was first.
    entries = [entry_of_file[file] for file in planned if file in entry_of_file]
    for message in warnings_of(entries):
        warnings.warn(message, stacklevel=2)

    n_new = sum(file not in earlier_entries for file in planned)
    n_changed = len(planned) - len(finished_entries) - n_new
    return Summary(
        parts=PartCounts(kept=len(finished_entries), changed=n_changed, new=n_new),
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


def count_failures(
    entries: Iterable[Entry], planned: Mapping[str, PlannedPart]
) -> dict[str, FailedDocs]:
    """Count the docs of each input file that failed.

    entries (Iterable[Entry]): The entries of all parts that were written, in order.
    planned (Mapping[str, PlannedPart]): The parts, by the names of their output files.
    RETURNS (dict[str, FailedDocs]): The files with docs that failed, by their paths.
    """
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


def warnings_of(entries: Iterable[Entry]) -> list[str]:
    """The warnings of all parts, each once, in the order in which they first came."""
    messages: dict[str, None] = {}  # The keys are an ordered set.
    for entry in entries:
        messages.update(dict.fromkeys(entry.warnings))
    return list(messages)


def check_output(folder: Path, form: str) -> None:
    """Check that the output can be written to a folder in this form, before anything is read.

    RAISES (ValueError): If the form is unknown, or the folder is a file.
    RAISES (ImportError): If the form is Parquet and pyarrow isn't installed.
    """
    if form not in OUTPUT_FORMS:
        raise ValueError(f"annotate: format: expected one of {[*OUTPUT_FORMS]}, got {form!r}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"annotate: output: expected a folder, got the file {folder}")
    if form == "parquet":
        require_pyarrow()


def plan_parts(
    sources: Mapping[str, Path],
    n_rows: int,
    form: str,
    settings: Sequence[Any],
    *,
    whole_files: bool,
) -> dict[str, PlannedPart]:
    """Divide all inputs into parts.

    sources (Mapping[str, Path]): The input files by their names in the output.
    n_rows (int): Lines or rows of a part: see `divide`.
    form (str): The suffix of output files.
    settings (Sequence[Any]): What the output depends on beside its part, as JSON.
    whole_files (bool): Whether a .txt file is one doc: see `divide`.
    RETURNS (dict[str, PlannedPart]): The parts, by the names of their output files.
    RAISES (CorpusError): If an input is of a format that can't be divided.
    """
    planned: dict[str, PlannedPart] = {}
    for source, path in sources.items():
        for number, part in enumerate(divide(path, n_rows, whole_files=whole_files)):
            file = f"{source}-{number:05}.{form}"
            key = digest(settings, part.digest)
            planned[file] = PlannedPart(part, key)
    return planned


def annotate_parts(
    groups: Sequence[dict[str, PlannedPart]],
    part_settings: PartSettings,
    make_executor: MakeExecutor | None,
) -> tuple[dict[str, Entry], dict[str, str]]:
    """Annotate parts by workers. As soon as a part is done, its entry is added to the manifest; for
    small parts, as soon as those are done that are annotated together.

    groups (Sequence[dict[str, PlannedPart]]): The parts by the names of their output files, in
        groups that are annotated together: see `group_parts`.
    part_settings (PartSettings): How they are annotated.
    make_executor (MakeExecutor | None): Makes the executor of the workers: see `runs.run_all`.
    RETURNS (tuple[dict[str, Entry], dict[str, str]]): The entries of the parts that were written,
        and the errors of the parts that were not, both by the names of output files. The output
        that an earlier run wrote for such a part stays.
    RAISES (ValueError): If a part fails and `on_error` is "raise".
    """
    folder = part_settings.folder
    begin = perf_counter()
    n_failed = 0  # the number of docs that failed so far
    n_tokens = 0
    written_entries: dict[str, Entry] = {}
    errors: dict[str, str] = {}
    bar = progress(desc="annotate", unit="part", total=sum(map(len, groups)))
    with bar, (folder / MANIFEST).open("a", encoding="utf8") as manifest:
        for file, ended in run_groups(groups, part_settings, make_executor):
            if isinstance(ended, Entry):
                written_entries[file] = ended
                # Flush it, so that the next command finds it if this one is killed.
                manifest.write(ended.to_line())
                manifest.flush()
                n_failed += ended.failed
                n_tokens += ended.tokens
            elif part_settings.on_error == "raise":
                raise ValueError(f"annotate: {file}: {ended.reason}")
            else:
                errors[file] = ended.reason
                # A worker that was killed may have left a half-written file beside the output.
                clear(folder / file)
            speed = n_tokens / (perf_counter() - begin)
            bar.set_postfix({"tokens/s": f"{speed:,.0f}", "failed": n_failed})
            bar.update()
    return written_entries, errors


def group_parts(planned: Mapping[str, PlannedPart]) -> list[dict[str, PlannedPart]]:
    """Divide parts into groups that are annotated together. Parts of `BYTES_OF_GROUP` or more are
    alone. There are at least `MIN_GROUPS` groups, if there are so many parts, so that all workers
    have some, and a run that is killed has written some.

    planned (Mapping[str, PlannedPart]): The parts by the names of their output files.
    RETURNS (list[dict[str, PlannedPart]]): The groups, in the same order.
    """
    n_bytes = sum(part.n_bytes for part, _ in planned.values())
    bytes_of_group = min(BYTES_OF_GROUP, n_bytes / MIN_GROUPS)
    groups: list[dict[str, PlannedPart]] = []
    n_bytes_so_far = math.inf  # of the last group: the first part begins one
    for file, planned_part in planned.items():
        n_bytes_so_far += planned_part.part.n_bytes
        if n_bytes_so_far > bytes_of_group:
            groups.append({})
            n_bytes_so_far = planned_part.part.n_bytes
        groups[-1][file] = planned_part
    return groups


def run_groups(
    groups: Iterable[dict[str, PlannedPart]],
    part_settings: PartSettings,
    make_executor: MakeExecutor | None,
) -> Iterator[tuple[str, Entry | Failed]]:
    """Annotate groups of parts, each by a worker. If workers die with a group, its parts are
    annotated one by one, so that only the part on which they die fails.

    groups (Iterable[dict[str, PlannedPart]]): The groups: see `group_parts`.
    part_settings (PartSettings): How parts are annotated.
    make_executor (MakeExecutor | None): See `annotate_parts`.
    YIELDS (tuple[str, Entry | Failed]): The output file of each part, and its entry or its error.
    """
    runs: list[Run] = []
    for group in groups:
        arguments = {"planned": group, "part_settings": part_settings}
        runs.append(Run(", ".join(group), annotate_group, arguments))
    lone_parts: list[dict[str, PlannedPart]] = []
    for run, ended in run_all(runs, make_executor):
        group = run.settings["planned"]
        if isinstance(ended, Done):
            yield from ended.value
        elif len(group) > 1:
            lone_parts += [{file: planned_part} for file, planned_part in group.items()]
        else:
            (file,) = group
            yield file, ended
    if lone_parts:
        yield from run_groups(lone_parts, part_settings, make_executor)


def find_sources(inputs: Sequence[Path], folder: Path | None = None) -> dict[str, Path]:
    """List the input files by the names that their output files begin with.

    inputs (Sequence[Path]): Files, or folders of files. In a folder, hidden files don't count, nor
        do files about the corpus, such as a readme: see `is_about_corpus`.
    folder (Path | None): The output folder, which must not be in an input folder.
    RETURNS (dict[str, Path]): The path of each input file by its name. The name of a file in a
        folder is its path relative to that folder.
    RAISES (ValueError): If an input isn't there, the output folder is in an input folder, or two
        files have the same name.
    """
    sources: dict[str, Path] = {}
    for input_path in inputs:
        if not input_path.exists():
            raise CorpusError(f"{input_path}: expected a file or folder, got nothing there")
        if not input_path.is_dir():
            add_source(sources, input_path.name, input_path)
            continue
        if folder is not None and folder.resolve().is_relative_to(input_path.resolve()):
            raise ValueError(f"{folder}: expected an output outside of the input {input_path}")
        for path in sorted(input_path.rglob("*")):
            names = path.relative_to(input_path).parts
            is_hidden = any(name.startswith(".") for name in names)
            if path.is_file() and not is_hidden and not is_about_corpus(path):
                add_source(sources, "/".join(names), path)
    return sources


def add_source(sources: dict[str, Path], name: str, path: Path) -> None:
    """Add an input file to the files by name.

    RAISES (CorpusError): If another file has this name, so that both would have the same output.
    """
    earlier_path = sources.setdefault(name, path)
    if earlier_path != path:
        raise CorpusError(f"expected files of different names, got {earlier_path} and {path}")


def digest_model(model: str, code_path: str | None) -> str:
    """The fingerprint of a pipeline and of the Python file with its registered functions.

    model (str): The pipeline, a package or a folder.
    RAISES (ValueError): If it isn't a pipeline.
    """
    path = Path(model)
    loading.check_is_pipeline(model)
    if not path.exists() and is_package(model):
        path = get_package_path(model)
    elif not path.exists():
        raise ValueError(f"{model}: expected a trained pipeline, a package or a folder")
    if code_path is None:
        return digest(path)
    return digest(path, Path(code_path))


def read_manifest(folder: Path) -> dict[str, Entry]:
    """Read the entries of the manifest of an output folder, by output file. Damaged lines are left
    out. If a file has several entries, the last one counts."""
    path = folder / MANIFEST
    entries: dict[str, Entry] = {}
    if not path.is_file():
        return entries
    for line in path.read_bytes().split(b"\n"):
        entry = parse_entry(line)
        if entry is not None:
            entries[entry.file] = entry
    return entries


def parse_entry(line: bytes) -> Entry | None:
    """Read a line of the manifest. Returns None if it is damaged, or if its file doesn't have the
    name of an output file."""
    try:
        json_entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(json_entry, dict):
        return None
    for name, json_type in ENTRY_TYPES.items():
        if type(json_entry.get(name)) is not json_type:  # a boolean is an int for `isinstance`
            return None
    if not OUTPUT.fullmatch(json_entry["file"]):
        return None
    messages = json_entry.get("warnings", [])  # 0.3.0 wrote none
    first_error = json_entry.get("first_error", "")  # the same
    if not is_list_of(messages, str) or not isinstance(first_error, str):
        return None
    shift: dict[str, PartMeasures] = {}
    for component, measures in json_entry["shift"].items():
        if not are_measures(measures):
            return None
        shift[component] = PartMeasures(measures["scores"], measures["counts"])
    fields = {name: json_entry[name] for name in ENTRY_TYPES}
    return Entry(**{**fields, "shift": shift, "warnings": messages, "first_error": first_error})


def are_measures(value: Any) -> bool:
    """Whether a value of JSON has the fields of `PartMeasures`: the scores of docs, and the counts,
    which are lists of `N_COUNTS` numbers by label."""
    if not isinstance(value, dict) or not is_list_of(value.get("scores"), int, float):
        return False
    counts = value.get("counts")
    if not isinstance(counts, dict):
        return False
    for numbers in counts.values():
        if not is_list_of(numbers, int, float) or len(numbers) != N_COUNTS:
            return False
    return True


def is_list_of(value: Any, *types: type) -> bool:
    """Whether a value of JSON is a list, and each of its items is of one of these types."""
    return isinstance(value, list) and all(type(item) in types for item in value)


def find_finished(
    folder: Path, entries: Mapping[str, Entry], planned: Mapping[str, PlannedPart]
) -> dict[str, Entry]:
    """Find the planned parts that don't have to be done again. An earlier run has done them with
    the same input, model and settings, and the output file is still there and has the same size.

    folder (Path): The output folder.
    entries (Mapping[str, Entry]): The entries of earlier runs, by output file.
    planned (Mapping[str, PlannedPart]): The parts of this run, by output file.
    RETURNS (dict[str, Entry]): The entries of these parts, by output file.
    """
    finished_entries: dict[str, Entry] = {}
    for file, planned_part in planned.items():
        entry = entries.get(file)
        path = folder / file
        # Another key means another input, model or setting.
        if entry is None or entry.key != planned_part.key or not path.is_file():
            continue
        if path.stat().st_size == entry.bytes:
            finished_entries[file] = entry
    return finished_entries


def remove_vanished_parts(
    folder: Path, entries: dict[str, Entry], sources: Collection[str], planned: Collection[str]
) -> None:
    """Remove output files and entries of parts that no longer exist: their input has become
    shorter, parts are larger now, or the output has another form.

    folder (Path): The output folder.
    entries (dict[str, Entry]): The entries by output file. Those of removed files are removed.
    sources (Collection[str]): The names of the inputs of this run. The output of other inputs
        stays.
    planned (Collection[str]): The output files of all parts that the inputs have now.
    """
    for file in list(entries):
        # For example, the third part of a.jsonl is "a.jsonl-00002.spacy".
        source, _, _ = file.rpartition("-")
        # Somebody may have written any path into the manifest. But a file whose name begins with
        # that of an input is in the folder, so it may be removed.
        if source in sources and file not in planned:
            (folder / file).unlink(missing_ok=True)
            del entries[file]


def find_shift_of_parts(load: Callable[[], Language], entries: Sequence[Entry]) -> dict[str, Shift]:
    """Test whether the docs of all parts are like the calibration docs, for each component that
    measured them.

    load (Callable[[], Language]): Loads the pipeline.
    entries (Sequence[Entry]): The entries of all parts.
    RETURNS (dict[str, Shift]): The results, by component.
    """
    components: dict[str, None] = {}  # The keys are an ordered set.
    for entry in entries:
        components.update(dict.fromkeys(entry.shift))
    shift: dict[str, Shift] = {}
    for name in components:
        ner = dict(load().pipeline).get(name)
        if not isinstance(ner, CostSensitiveNER) or ner.calibration_scores is None:
            continue  # The manifest was changed: this component has measured nothing.
        total = PartMeasures(scores=[], counts={})
        for entry in entries:
            if name in entry.shift:
                add_part(total, entry.shift[name])
        calibration = ner.calibration_scores.pool()  # those of all calibration docs
        # A test in the order of the docs would find changes from the first to the last.
        scores = in_random_order(total.scores)
        shift[name] = find_shift(calibration, scores, total.counts)
    return shift


def add_part(total: PartMeasures, measures: PartMeasures) -> None:
    """Add what was measured of a part to what was measured of the parts before it.

    total (PartMeasures): The scores and the sums of the parts before. They are changed.
    measures (PartMeasures): What was measured of the part: the scores of its docs and, for each
        label, the `N_COUNTS` sums of `Counts`.
    """
    total.scores.extend(measures.scores)
    for label, counts in measures.counts.items():
        sums = total.counts.setdefault(label, [0.0] * N_COUNTS)
        for i, count in enumerate(counts):
            sums[i] += count


class AnswersOfParts:
    """Annotates the rows of parts. Parts are small, or alone: a batch has rows of several parts.

    nlp (Language): The pipeline.
    planned (Mapping[str, PlannedPart]): The parts by the names of their output files.
    read (Callable[[Language, FilePart], Iterable[TextRow]]): Reads the rows of a part.
    """

    def __init__(
        self,
        nlp: Language,
        planned: Mapping[str, PlannedPart],
        read: Callable[[Language, FilePart], Iterable[TextRow]],
    ) -> None:
        self._nlp = nlp
        self._read = read
        self._parts = [part for part, _ in planned.values()]
        self._number_of_file = {file: number for number, file in enumerate(planned)}
        self._rows = self._read_rows()
        # The answers that nobody has taken yet, each with the number of its part
        self._waiting: deque[tuple[int, Answer]] = deque()
        self._messages: list[dict[str, None]] = [{} for _ in planned]  # the keys are ordered sets
        self._errors: dict[int, Exception] = {}  # of the parts that couldn't be read

    def of_part(self, file: str) -> Iterator[Answer]:
        """Annotate the rows of a part. The parts have to be taken in order.

        file (str): The output file of the part.
        YIELDS (Answer): The rows, each with its doc or its error.
        RAISES (Exception): After the last row: if the part can't be read to its end.
        """
        number = self._number_of_file[file]
        waiting = self._waiting
        while True:
            while waiting and waiting[0][0] <= number:
                number_of_answer, answer = waiting.popleft()
                # An earlier part may have left some, as it couldn't be written.
                if number_of_answer == number:
                    yield answer
            # What is waiting now belongs to later parts.
            if waiting or not self._annotate_batch():
                break
        if number in self._errors:
            raise self._errors[number]

    def messages_of(self, file: str) -> list[str]:
        """The warnings of the batches that have rows of a part, each once, in order. Some may be of
        other parts in the same batch."""
        return list(self._messages[self._number_of_file[file]])

    def _annotate_batch(self) -> bool:
        """Annotate the next batch. Returns False if there are no rows left."""
        with warnings.catch_warnings(record=True) as caught:
            batch = list(islice(self._rows, self._nlp.batch_size))
            answers = annotate_batch(self._nlp, [row for _, row in batch])
        messages = dict.fromkeys(str(warning.message) for warning in caught)
        for number in dict.fromkeys(number for number, _ in batch):
            self._messages[number].update(messages)
        for (number, row), answer in zip(batch, answers):
            self._waiting.append((number, (row, answer)))
        return bool(batch)

    def _read_rows(self) -> Iterator[tuple[int, TextRow]]:
        """Read the rows of all parts, each with the number of its part. A part that can't be read
        ends early."""
        for number, part in enumerate(self._parts):
            try:
                for row in self._read(self._nlp, part):
                    yield number, row
            except Exception as error:
                self._errors[number] = error


def annotate_group(
    planned: Mapping[str, PlannedPart], part_settings: PartSettings
) -> list[tuple[str, Entry | Failed]]:
    """Annotate the parts of a group together, and write the output file of each. This is what a
    worker does.

    planned (Mapping[str, PlannedPart]): The parts by the names of their output files.
    part_settings (PartSettings): How the parts are annotated and written.
    RETURNS (list[tuple[str, Entry | Failed]]): The output file of each part, and its entry for the
        manifest or its error. A part fails if it can't be read or written, if the worker sees
        another model, input or folder than the command or, with `on_error = "raise"`, if one of its
        docs fails. Then the parts after it are missing.
    """
    folder = part_settings.folder
    try:
        # The command has written the manifest before. Without it this is another folder.
        if not (folder / MANIFEST).is_file():
            message = "expected the output folder of the command, got none on this worker"
            raise ValueError(f"{folder}: {message}")
        nlp = part_settings.load()
        clear(*[folder / file for file in planned])
    except Exception as error:
        return [(file, describe_failure(error)) for file in planned]

    ended_parts: list[tuple[str, Entry | Failed]] = []
    with collecting_new_objects_only():
        answers = AnswersOfParts(nlp, planned, part_settings.read)
        for file, planned_part in planned.items():
            try:
                entry = write_part(file, planned_part, answers, nlp, part_settings)
            except Exception as error:
                ended_parts.append((file, describe_failure(error)))
                if part_settings.on_error == "raise":
                    break
            else:
                ended_parts.append((file, entry))
    return ended_parts


def write_part(
    file: str,
    planned_part: PlannedPart,
    answers: AnswersOfParts,
    nlp: Language,
    part_settings: PartSettings,
) -> Entry:
    """Write the output file of a part, and count what is in it.

    file (str): The output file, relative to the folder.
    planned_part (PlannedPart): The part.
    answers (AnswersOfParts): Annotates its rows, and those of the parts after it.
    nlp (Language): The pipeline.
    part_settings (PartSettings): How the part is written.
    RETURNS (Entry): The entry for the manifest.
    RAISES (Exception): If the part can't be read or written.
    RAISES (ValueError): If a doc fails and `on_error` is "raise".
    """
    path = part_settings.folder / file
    # The lists of spans that each row of the output has beside its entities
    span_lists = span_lists_of(nlp)
    measuring = components_that_measure(nlp)
    # What each of these components has measured so far
    measures_of_components: dict[str, PartMeasures] = {}
    for name in measuring:
        measures_of_components[name] = PartMeasures(scores=[], counts={})
    output_form = OUTPUT_FORMS[part_settings.form]
    with_text = part_settings.with_text
    n_docs = 0
    n_failed = 0
    n_tokens = 0
    first_error = ""

    def encode_answers() -> Iterator[Any]:
        """Annotate the rows one batch after another, count them, and encode each for the file."""
        nonlocal n_docs, n_failed, n_tokens, first_error
        for row, answer in answers.of_part(file):
            try:
                encoded = output_form.encode((row, answer), span_lists, with_text)
            except Exception as error:
                # A component has written something to the doc that a file of this form can't hold.
                # The row gets this error in place of the doc.
                answer = error
                encoded = output_form.encode((row, answer), span_lists, with_text)
            n_docs += 1
            if isinstance(answer, Doc):
                n_tokens += len(answer)
                for name, ner in measuring.items():
                    measure_doc(ner, answer, measures_of_components[name])
            elif part_settings.on_error == "raise":
                source = planned_part.part.path
                message = f"{source}: id {row.id!r}: {describe_error(answer)}"
                raise ValueError(message) from answer
            else:
                n_failed += 1
                first_error = first_error or f"id {row.id!r}: {describe_error(answer)}"
            yield encoded

    def write(new_file: Path) -> None:
        """Annotate the rows and write the output, one answer after another. So the part is never in
        memory as a whole, unless its form needs that."""
        output_form.write(new_file, encode_answers(), span_lists, with_text)

    # Warnings are kept in the entry. The command shows them, also those of other processes, and of
    # parts that an earlier run has annotated.
    with warnings.catch_warnings(record=True) as caught:
        save_file(path, write, is_clear=True)

    shift: dict[str, PartMeasures] = {}
    for name, measures in measures_of_components.items():
        # The test for a shift compares rounded scores. More digits would vary with the batches.
        scores = rounded(measures.scores).tolist()
        shift[name] = PartMeasures(scores, measures.counts)
    messages = [*answers.messages_of(file), *(str(warning.message) for warning in caught)]
    return Entry(
        file=file,
        key=planned_part.key,
        bytes=path.stat().st_size,
        docs=n_docs,
        failed=n_failed,
        tokens=n_tokens,
        shift=shift,
        warnings=list(dict.fromkeys(messages)),  # each once, in order
        first_error=first_error,
    )


def components_that_measure(nlp: Language) -> dict[str, CostSensitiveNER]:
    """The components of a pipeline that measure docs for the test for a shift, by name. They write
    probabilities, and have scores of calibration docs to compare those of other docs with."""
    components: dict[str, CostSensitiveNER] = {}
    for name, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER) and pipe.confidence and pipe.calibration_scores:
            components[name] = pipe
    return components


def measure_doc(ner: CostSensitiveNER, doc: Doc, measures: PartMeasures) -> None:
    """Add what a component has measured of a doc to the measures of its part: the score of the doc
    for the test for a shift, unless all of its tokens are preset, and expected numbers of entities.
    The doc doesn't count if another component has since removed its spans.

    ner (CostSensitiveNER): The component, which has predicted the doc: one of
        `components_that_measure`.
    measures (PartMeasures): The measures of the part. They are changed.
    """
    assert ner.confidence is not None
    spans_key = ner.confidence.spans_key
    try:
        score = add_measures(doc, spans_key, ner.name, ner.own_labels, measures.counts)
    except ValueError:  # the spans of the component are no longer in the doc
        return
    if score is not None:
        measures.scores.append(score)


@contextmanager
def collecting_new_objects_only() -> Iterator[None]:
    """In a `with` block, the garbage collector skips all objects that existed before, such as those
    of the pipeline. Otherwise it would take a twelfth of the time of annotating."""
    # `unfreeze` would also release what the program itself has frozen, so it isn't called then.
    was_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()


@lru_cache(maxsize=1)
def load_once(model: str, model_digest: str, code_path: str | None, use_gpu: int) -> Language:
    """Load a pipeline, or return the one that this process has already loaded.

    model (str): The pipeline, a package or a folder.
    model_digest (str): The fingerprint that the pipeline had when the command began.
    code_path (str | None): Python file that is imported first.
    use_gpu (int): GPU ID or -1 for CPU.
    RAISES (ValueError): If somebody has changed the pipeline since then.
    """
    if digest_model(model, code_path) != model_digest:
        raise ValueError(f"{model}: expected the pipeline that the command began with, got another")
    return load_pipeline(model, code_path, use_gpu)


def load_pipeline(
    model: str | Path, code_path: str | Path | None = None, use_gpu: int = -1
) -> Language:
    """Load a pipeline for `annotate_texts`: it raises the errors of its components.

    model (str | Path): The pipeline, a package or a folder.
    code_path (str | Path | None): Python file with registered functions to be imported.
    use_gpu (int): GPU ID or -1 for CPU.
    RETURNS (Language): The pipeline.
    RAISES (ValueError): If the pipeline is a file.
    """
    nlp = loading.load_pipeline(model, code_path, use_gpu)
    # That is spaCy's default, but the code of the user may have set another handler.
    nlp.set_error_handler(raise_error)
    return nlp


def annotate_texts(nlp: Language, ids: Iterable[Any], texts: Iterable[Any]) -> Iterator[Record]:
    """Annotate texts, such as columns of a table. One that fails doesn't stop the others.

    nlp (Language): The pipeline: see `load_pipeline`.
    ids (Iterable[Any]): The ids of the texts, one for each.
    texts (Iterable[Any]): The texts.
    YIELDS (dict[str, Any]): For each text, in their order, the record that `annotate` would write,
        without the text.
    """
    rows = (TextRow(id, text, partial(make_doc, nlp, text)) for id, text in zip(ids, texts))
    span_lists = span_lists_of(nlp)
    for answer in annotate_rows(nlp, rows):
        yield to_record(answer, span_lists, with_text=False)


def annotate_rows(nlp: Language, rows: Iterable[TextRow]) -> Iterator[Answer]:
    """Annotate rows in batches. Yields each row with its doc or its error. The pipeline must raise
    the errors of its components, as that of `load_pipeline` does."""
    for batch in minibatch(rows, nlp.batch_size):
        yield from zip(batch, annotate_batch(nlp, batch))


def annotate_batch(nlp: Language, rows: Sequence[TextRow]) -> list[Doc | Exception]:
    """Annotate rows together. Returns the doc or the error of each row; no error is raised.

    If the pipeline fails, the first half of the rows is annotated by itself, and then the second,
    and so on, until the row that fails is alone. The halves get new docs, as the old ones may be
    half annotated.
    """
    results: dict[int, Doc | Exception] = {}  # by the index of the row
    docs_and_indices: list[tuple[Doc, int]] = []
    for i, row in enumerate(rows):
        try:
            docs_and_indices.append((row.make_doc(), i))
        except Exception as error:
            results[i] = error
    try:
        for doc, i in nlp.pipe(docs_and_indices, as_tuples=True):
            results[i] = doc
        if len(results) < len(rows):  # A component of the user has left docs out.
            raise ValueError("expected a doc of the pipeline, got none")
        return [results[i] for i in range(len(rows))]
    except Exception as error:
        if len(rows) == 1:
            return [error]
    n_in_first_half = len(rows) // 2
    return annotate_batch(nlp, rows[:n_in_first_half]) + annotate_batch(nlp, rows[n_in_first_half:])


def span_lists_of(nlp: Language) -> SpanLists:
    """Find which lists of spans the records of a pipeline have. They have "spans" if a component
    has a `spans_key`, "alternatives" if a component writes alternatives, and "guaranteed" if a
    component writes a guaranteed set.

    nlp (Language): The pipeline.
    RETURNS (SpanLists): The names of the lists. The value of "spans" is the `spans_key` of each
        component, the other values are empty: see `SpanLists`.
    """
    span_lists: SpanLists = {}
    for _, pipe in nlp.pipeline:
        if not isinstance(pipe, CostSensitiveNER):
            continue
        key = pipe.annotation.spans_key
        if key is not None:
            keys = span_lists.setdefault("spans", [])
            if key not in keys:
                keys.append(key)
        if pipe.confidence is not None and pipe.confidence.alternatives is not None:
            span_lists[ALTERNATIVES] = []
        if pipe.confidence is not None and pipe.guarantee is not None:
            span_lists[GUARANTEED] = []
    return span_lists


def to_record(answer: Answer, span_lists: SpanLists, with_text: bool) -> Record:
    """Make the record of an answer.

    answer (Answer): The row of the input, with its annotated doc or the error of annotating it.
    span_lists (SpanLists): The lists of spans that the record gets.
    with_text (bool): Whether it gets the text.
    RETURNS (dict[str, Any]): {"id": …, "text": …, "entities": […]} and the lists of spans, which
        are None if no component has written them; or {"id": …, "text": …, "error": …}. A span has
        "start" and "end", in characters, "label" and "score", which is its probability or None.
    """
    row, doc_or_error = answer
    record: Record = {"id": row.id}
    if with_text:
        record["text"] = row.text
    if isinstance(doc_or_error, Exception):
        record["error"] = describe_error(doc_or_error)
        return record
    doc = doc_or_error
    groups_with_scores = scored_groups(doc)
    groups_of_list: dict[str, list[SpanGroup]] = {}
    for name, keys in span_lists.items():
        if name == "spans":
            groups_of_list[name] = [doc.spans[key] for key in keys if key in doc.spans]
        else:
            # "alternatives" or "guaranteed": the groups of these lists say it as their "set".
            groups_of_list[name] = [
                group for group in groups_with_scores if group.attrs.get("set") == name
            ]

    # Several groups may have a score for the same characters and label. The last one that is read
    # here counts. `scored_groups` has predicted entities first, so it is reversed: the score of a
    # predicted entity replaces that of an alternative or of a guaranteed set.
    scores: dict[Place, float] = {}
    for group in [*reversed(groups_with_scores), *groups_of_list.get("spans", ())]:
        for span in read_group(group):
            if not math.isnan(span.score):
                scores[span.place] = span.score

    entity_places = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    record["entities"] = spans_to_json(entity_places, scores)
    for name, groups in groups_of_list.items():
        if not groups:
            # No component has written this list to the doc. An empty list would say that one has
            # looked for such spans and found none.
            record[name] = None
            continue
        places: list[Place] = []
        for group in groups:
            places += [span.place for span in read_group(group)]
        record[name] = spans_to_json(places, scores)
    return record


def spans_to_json(places: Iterable[Place], scores: Mapping[Place, float]) -> list[Record]:
    """Make a dictionary for each span.

    places (Iterable[Place]): The start and end of each span, in characters, and its label.
    scores (Mapping[Place, float]): The scores of the spans that have one.
    """
    spans: list[Record] = []
    for place in places:
        start, end, label = place
        spans.append({"start": start, "end": end, "label": label, "score": scores.get(place)})
    return spans


def describe_error(error: Exception) -> str:
    """The text of an error for the output. A message that this package may have written stands
    alone; others begin with the class of the error."""
    if type(error) in (ValueError, CorpusError):
        return encodable(error)
    return encodable(f"{type(error).__name__}: {error}")


def to_line(answer: Answer, span_lists: SpanLists, with_text: bool) -> str:
    """Encode an answer as a line of JSON."""
    return JSON.encode(to_record(answer, span_lists, with_text)) + "\n"


def write_jsonl(path: Path, lines: Iterable[str], *_: Any) -> None:
    """Write answers to a JSONL file. The other arguments of `OutputForm.write` are not needed."""
    # UTF-8 can't encode half of a surrogate pair. Python writes an escape for it, such as \ud83d,
    # which JSON reads in the same way.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        file.writelines(lines)


def write_parquet(
    path: Path, records: Iterable[Record], span_lists: SpanLists, with_text: bool
) -> None:
    """Write answers to a Parquet file. The column of ids has integers of 64 bits if all ids are
    such integers, and strings otherwise.

    records (Iterable[Record]): The rows: see `to_record`.
    span_lists (SpanLists): The lists of spans, each of which is a column.
    with_text (bool): Whether there is a column of texts.
    """
    parquet = require_pyarrow()
    import pyarrow

    rows = list(records)
    text = pyarrow.string()
    number = pyarrow.int64()
    # The type of a boolean is not int. Larger integers don't fit into 64 bits with a sign; those
    # that are too low were refused when the rows were read.
    has_number_ids = all(type(row["id"]) is int and row["id"] < 2**63 for row in rows)
    for row in rows:
        if not has_number_ids:
            row["id"] = str(row["id"])
        if row.get("text") is not None:
            row["text"] = encodable(row["text"])

    span_fields = [
        ("start", number),
        ("end", number),
        ("label", text),
        ("score", pyarrow.float64()),
    ]
    spans = pyarrow.list_(pyarrow.struct(span_fields))
    columns = [("id", number if has_number_ids else text)]
    if with_text:
        columns.append(("text", text))
    for name in ("entities", *span_lists):
        columns.append((name, spans))
    columns.append(("error", text))
    table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(columns))
    parquet.write_table(table, path)


class Packers(threading.local):
    """A packer of msgpack for each thread, as threads must not share one."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(use_bin_type=True)


PACKERS = Packers()


def to_packed_doc(answer: Answer, *_: Any) -> tuple[Doc, bytes]:
    """Make the doc of an answer, and pack its `user_data`.

    answer (Answer): The row of the input, with its annotated doc or the error of annotating it.
    *_: Arguments that only the other formats of output need.
    RETURNS (tuple[Doc, bytes]): The doc, whose user data are those of the input and "id"; and the
        packed user data. For an error, the doc is empty, and its user data have "error", too.
    """
    row, doc_or_error = answer
    if isinstance(doc_or_error, Exception):
        doc = Doc(Vocab())
        doc.user_data["error"] = describe_error(doc_or_error)
    else:
        doc = doc_or_error
        realign(doc)  # DocBin can't read spans whose tokens were merged or split since.
        doc.user_data.pop("error", None)  # The input may have such a key.
    doc.user_data["id"] = row.id
    # DocBin packs categories and groups of spans only when the part is complete. An error would
    # then stop all docs of the part. They are packed here as a trial, so that only this doc fails.
    pack = PACKERS.packer.pack  # the packer of this thread
    pack([doc.cats, [(group.name, group.attrs) for group in doc.spans.values()]])
    # The user data are packed as DocBin packs them, but by one packer for all docs. DocBin would
    # make a packer for each doc, which takes three quarters of the time.
    return doc, pack(doc.user_data)


def write_docbin(path: Path, packed_docs: Iterable[tuple[Doc, bytes]], *_: Any) -> None:
    """Write docs with their packed user data to a .spacy file. The other arguments of
    `OutputForm.write` are not needed."""
    # `store_user_data` is off while docs are added, so that DocBin doesn't pack the user data
    # again, and on when they are saved.
    doc_bin = DocBin(store_user_data=False)
    for doc, user_data in packed_docs:
        doc_bin.add(doc)
        doc_bin.user_data.append(user_data)
    doc_bin.store_user_data = True
    doc_bin.to_disk(path)


JSON = json.JSONEncoder(ensure_ascii=False)
"""Encodes all records. `json.dumps` would make an encoder for each."""


class OutputForm(NamedTuple):
    """How answers are written in one form of the output.

    encode (Callable[[Answer, SpanLists, bool], Any]): Encodes an answer: see `to_record`. If it
        raises an error, the row gets the error in place of its doc.
    write (Callable[..., None]): Writes encoded answers to a file. Its arguments are the path, the
        encoded answers, and then those of `encode`.
    """

    encode: Callable[[Answer, SpanLists, bool], Any]
    write: Callable[..., None]


OUTPUT_FORMS = {
    "jsonl": OutputForm(to_line, write_jsonl),
    "parquet": OutputForm(to_record, write_parquet),
    "spacy": OutputForm(to_packed_doc, write_docbin),
}
