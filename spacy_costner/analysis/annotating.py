"""Annotate files of texts, in parts, so that a run goes on where another one ended.

A part is some lines or rows of an input file. Each part has an output file of its own, and an entry
in the manifest of the output folder as soon as the output is complete. A later run keeps the parts
whose entries fit its model, settings and inputs. Workers annotate parts, several at a time.
"""

import gc
import json
import re
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from importlib.metadata import version
from math import isnan
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc, DocBin, SpanGroup
from spacy.util import get_package_path, is_package, minibatch, raise_error
from spacy.vocab import Vocab
from srsly import msgpack

from ..metrics.shift import Counts, Shift, find_shift, in_random_order, rounded
from ..pipeline.annotations import ALTERNATIVES, GUARANTEED, add_measures, scored_groups
from ..pipeline.component import CostSensitiveNER
from ..progress import progress
from ..readers import CorpusError
from ..readers.files import digest, encodable, is_about_corpus
from ..readers.texts import Part, TextRow, divide, make_doc, read_rows, require_pyarrow
from ..saving import clear, locked, save_file, save_text
from ..spans import Place, read_group, realign
from . import loading
from .runs import Done, MakeExecutor, Run, local_processes, run_all

MANIFEST = "manifest.jsonl"

OUTPUT = re.compile(r"(.+)-\d{5,}\.(jsonl|parquet|spacy)", re.DOTALL)
"""The name of an output file: that of its input, and the number of the part."""

Answer = tuple[TextRow, Doc | Exception]
"""A row of an input with its annotated doc or, if it failed, with its error."""

SpanLists = dict[str, list[str]]
"""The lists of spans that a record has beside its entities, by name: "spans", "alternatives" and
"guaranteed". The value of "spans" are the keys of its groups in `doc.spans`. Those of the other two
are empty: their groups are found by their attributes."""

Record = dict[str, Any]
"""An answer as a line of JSON, or a row of Parquet."""


class PartMeasures(NamedTuple):
    """What a component measured of the docs of a part, to test them for a shift."""

    scores: list[float]  # of each doc that has tokens to predict
    counts: Counts  # expected numbers of entities by label


class Entry(NamedTuple):
    """A line of the manifest: a part that is done, and what its output has."""

    file: str  # the output file, relative to the folder
    key: str  # the fingerprint of the part, the model and the settings
    bytes: int
    docs: int
    failed: int
    tokens: int
    shift: dict[str, PartMeasures]  # by component
    warnings: list[str]

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
"""The types that JSON has for the fields of an entry. "warnings" may be missing."""


class PlannedPart(NamedTuple):
    """A part to annotate."""

    part: Part
    key: str  # the fingerprint of the part, the model and the settings


class PartSettings(NamedTuple):
    """How all parts are annotated and written."""

    folder: Path  # of the output
    load: Callable[[], Language]
    read: Callable[[Language, Part], Iterable[TextRow]]
    form: str  # one of `OUTPUT_FORMS`
    with_text: bool  # see `annotate`
    on_error: str  # see `annotate`


class PartCounts(NamedTuple):
    """The number of parts by what happened to them."""

    kept: int  # finished before
    changed: int  # finished before with another model, other settings or another input
    new: int


class Summary(NamedTuple):
    """What was done."""

    parts: PartCounts
    docs: int  # in all of the output, with parts that were kept
    failed: int  # docs with an error
    tokens: int
    seconds: float  # without planning
    tokens_per_second: float  # of the parts that were done now
    errors: dict[str, str]  # why a part has no output, by the name of its file
    shift: dict[str, Shift]  # by component, if it can test for a shift: see `watch`


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
    on_error: Literal["row", "raise"] = "row",
    use_gpu: int = -1,
    code_path: Path | None = None,
    make_executor: MakeExecutor | None = None,
) -> Summary:
    """Annotate files with a trained pipeline. What a finished run has left is kept, if model,
    settings and input are the same.

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
    on_error (Literal["row", "raise"]): What a doc that fails does: a row with its error, or stop
        all.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Path | None): Python file with registered functions to be imported.
    make_executor (MakeExecutor | None): Makes the executor, such as `ray_cluster("auto")`;
        `jobs` local processes if None: see `runs.run_all`.
    RETURNS (Summary): What was done.
    RAISES (ValueError): If an argument is wrong, an input is not there, another process writes to
        the folder or, with `on_error = "raise"`, a doc fails.
    """
    folder = Path(output_path)
    code = None if code_path is None else str(code_path)
    check_output(folder, form)
    sources = find_sources([Path(path) for path in inputs], folder)
    model_digest = digest_model(str(model), code)
    # A part is done again if one of these or its input is another than before.
    versions = [version(name) for name in ("spacy-costner", "spacy")]
    settings = [model_digest, versions, form, text, id_name, with_text, use_gpu]
    planned = plan_parts(sources, n_rows, form, settings)
    if not planned:
        names = [str(path) for path in inputs]
        raise ValueError(f"annotate: expected files with text, got none in {names}")
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
        if is_ours is False:  # None: the file system has no locks.
            raise ValueError(f"{folder}: expected no other process that writes to it, got one")
        earlier = read_manifest(folder)
        remove_vanished_parts(folder, earlier, sources, planned)
        finished = keep_finished(folder, earlier, planned)
        # Written anew, without damaged lines and without the parts that were removed
        save_text(folder / MANIFEST, "".join(entry.to_line() for entry in earlier.values()))

        begin = perf_counter()
        unfinished = {file: planned[file] for file in planned if file not in finished}
        executor = make_executor or local_processes(jobs)
        written, errors = annotate_parts(unfinished, part_settings, executor)
        seconds = perf_counter() - begin

    entry_of_file = {**finished, **written}
    # In the order of the parts, whichever worker was first
    entries = [entry_of_file[file] for file in planned if file in entry_of_file]
    messages: dict[str, None] = {}  # each once, in order
    for entry in entries:
        messages.update(dict.fromkeys(entry.warnings))
    for message in messages:
        warnings.warn(message, stacklevel=2)

    n_new = sum(file not in earlier for file in planned)
    n_changed = len(planned) - len(finished) - n_new
    return Summary(
        parts=PartCounts(kept=len(finished), changed=n_changed, new=n_new),
        docs=sum(entry.docs for entry in entries),
        failed=sum(entry.failed for entry in entries),
        tokens=sum(entry.tokens for entry in entries),
        seconds=seconds,
        tokens_per_second=sum(entry.tokens for entry in written.values()) / seconds,
        errors=errors,
        shift=find_shift_of_parts(part_settings.load, entries),
    )


def check_output(folder: Path, form: str) -> None:
    """Check, before anything is read, that the output can be written in this form."""
    if form not in OUTPUT_FORMS:
        raise ValueError(f"annotate: format: expected one of {[*OUTPUT_FORMS]}, got {form!r}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"annotate: output: expected a folder, got the file {folder}")
    if form == "parquet":
        require_pyarrow()


def plan_parts(
    sources: Mapping[str, Path], n_rows: int, form: str, settings: Sequence[Any]
) -> dict[str, PlannedPart]:
    """Divide all inputs into parts.

    sources (Mapping[str, Path]): The input files by their names in the output.
    n_rows (int): Lines or rows of a part: see `divide`.
    form (str): The suffix of output files.
    settings (Sequence[Any]): What the output depends on besides its part, valid JSON.
    RETURNS (dict[str, PlannedPart]): The parts, by the names of their output files.
    """
    planned: dict[str, PlannedPart] = {}
    for source, path in sources.items():
        for number, part in enumerate(divide(path, n_rows)):
            file = f"{source}-{number:05}.{form}"
            planned[file] = PlannedPart(part, digest(settings, part.digest))
    return planned


def annotate_parts(
    planned: Mapping[str, PlannedPart],
    part_settings: PartSettings,
    make_executor: MakeExecutor | None,
) -> tuple[dict[str, Entry], dict[str, str]]:
    """Annotate parts, each by a worker, and add each that is done to the manifest.

    planned (Mapping[str, PlannedPart]): The parts by their output files.
    part_settings (PartSettings): How they are annotated.
    make_executor (MakeExecutor | None): Makes the executor of the workers: see `runs.run_all`.
    RETURNS (tuple[dict[str, Entry], dict[str, str]]): The entries, and the errors of parts that
        have no output, by their files.
    RAISES (ValueError): If a part failed, with `on_error = "raise"`.
    """
    folder = part_settings.folder
    runs: list[Run] = []
    for file, (part, key) in planned.items():
        arguments = {"file": file, "key": key, "part": part, "part_settings": part_settings}
        runs.append(Run(file, annotate_part, arguments))

    begin = perf_counter()
    n_failed = 0  # docs
    n_tokens = 0
    written: dict[str, Entry] = {}
    errors: dict[str, str] = {}
    bar = progress(desc="annotate", unit="part", total=len(runs))
    with bar, (folder / MANIFEST).open("a", encoding="utf8") as manifest:
        for run, ended in run_all(runs, make_executor):
            if isinstance(ended, Done):
                entry: Entry = ended.value
                written[entry.file] = entry
                # Flushed, so that the next command finds it if this one is killed.
                manifest.write(entry.to_line())
                manifest.flush()
                n_failed += entry.failed
                n_tokens += entry.tokens
            elif part_settings.on_error == "raise":
                raise ValueError(f"annotate: {run.name}: {ended.reason}")
            else:
                errors[run.name] = ended.reason
                clear(folder / run.name)
            speed = n_tokens / (perf_counter() - begin)
            bar.set_postfix({"tokens/s": f"{speed:,.0f}", "failed": n_failed})
            bar.update()
    return written, errors


def find_sources(inputs: Sequence[Path], folder: Path | None = None) -> dict[str, Path]:
    """List the input files, and choose the names of their output.

    inputs (Sequence[Path]): Files, or folders of files. Of a folder, hidden files don't count, nor
        files about the corpus, such as a readme: see `is_about_corpus`.
    folder (Path | None): The output folder, which must be outside of input folders.
    RETURNS (dict[str, Path]): The input files by the names of their output: the name of a file or,
        in a folder, its path from there.
    RAISES (ValueError): If an input isn't there, or two files have the same name.
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
    """Add an input file.

    RAISES (CorpusError): If another file has its name, so that their outputs would be one.
    """
    earlier = sources.setdefault(name, path)
    if earlier != path:
        raise CorpusError(f"expected files of different names, got {earlier} and {path}")


def digest_model(model: str, code_path: str | None) -> str:
    """The fingerprint of a pipeline and of the file of its registered functions.

    RAISES (ValueError): If it isn't a pipeline.
    """
    path = Path(model)
    clear(path)
    if not path.exists() and is_package(model):
        path = get_package_path(model)
    elif not (path / "meta.json").is_file():
        raise ValueError(f"{model}: expected a trained pipeline, a package or a folder")
    if code_path is None:
        return digest(path)
    return digest(path, Path(code_path))


def read_manifest(folder: Path) -> dict[str, Entry]:
    """The entries of an output folder by file. Damaged lines, and those of files that aren't ours,
    don't count."""
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
    """Read a line of the manifest. None if it is damaged, or if its file doesn't have the name of
    an output file."""
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
    messages = json_entry.get("warnings", [])
    if not is_list_of(messages, str):
        return None
    shift: dict[str, PartMeasures] = {}
    for component, measures in json_entry["shift"].items():
        if not are_measures(measures):
            return None
        shift[component] = PartMeasures(measures["scores"], measures["counts"])
    fields = {name: json_entry[name] for name in ENTRY_TYPES}
    return Entry(**{**fields, "shift": shift, "warnings": messages})


def are_measures(value: Any) -> bool:
    """Whether a value of JSON has the fields of `PartMeasures`: the scores of docs, and three
    numbers for each label."""
    if not isinstance(value, dict) or not is_list_of(value.get("scores"), int, float):
        return False
    counts = value.get("counts")
    if not isinstance(counts, dict):
        return False
    for numbers in counts.values():
        if not is_list_of(numbers, int, float) or len(numbers) != 3:
            return False
    return True


def is_list_of(value: Any, *types: type) -> bool:
    """Whether a value of JSON is a list, and each of its items is of one of these types."""
    return isinstance(value, list) and all(type(item) in types for item in value)


def keep_finished(
    folder: Path, entries: Mapping[str, Entry], planned: Mapping[str, PlannedPart]
) -> dict[str, Entry]:
    """The entries of planned parts that need not be done again: their input, model and settings
    are the same, and the output file is there, of the same size.

    folder (Path): The output folder.
    entries (Mapping[str, Entry]): The entries of earlier runs, by output file.
    planned (Mapping[str, PlannedPart]): The parts of this run, by output file.
    """
    finished: dict[str, Entry] = {}
    for file, (_, key) in planned.items():
        entry = entries.get(file)
        path = folder / file
        if entry is None or entry.key != key or not path.is_file():
            continue
        if path.stat().st_size == entry.bytes:
            finished[file] = entry
    return finished


def remove_vanished_parts(
    folder: Path, entries: dict[str, Entry], sources: Collection[str], planned: Collection[str]
) -> None:
    """Remove the output and the entry of parts that an input had before it became shorter.

    folder (Path): The output folder.
    entries (dict[str, Entry]): The entries by output file. Those of removed files are removed.
    sources (Collection[str]): The names of the inputs of this run. The output of other inputs
        stays.
    planned (Collection[str]): The output files of all parts that the inputs have now.
    """
    for file in list(entries):
        # The third part of a.jsonl is "a.jsonl-00002.spacy", say.
        source = file.rpartition("-")[0]
        # Entries were checked when they were read: none leads out of the folder.
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
    components: dict[str, None] = {}  # each once, in order
    for entry in entries:
        components.update(dict.fromkeys(entry.shift))
    shift: dict[str, Shift] = {}
    for name in components:
        ner = dict(load().pipeline).get(name)
        if not isinstance(ner, CostSensitiveNER) or ner.calibration_scores is None:
            continue  # The manifest is damaged.
        total = PartMeasures([], {})
        for entry in entries:
            if name in entry.shift:
                add_part(total, entry.shift[name])
        shift[name] = find_shift(
            ner.calibration_scores.pool(), in_random_order(total.scores), total.counts
        )
    return shift


def add_part(total: PartMeasures, measures: PartMeasures) -> None:
    """Add what was measured of a part to a sum over parts."""
    total.scores.extend(measures.scores)
    for label, counts in measures.counts.items():
        sums = total.counts.setdefault(label, [0.0, 0.0, 0.0])  # see `Counts`
        for i, count in enumerate(counts):
            sums[i] += count


def annotate_part(file: str, key: str, part: Part, part_settings: PartSettings) -> Entry:
    """Annotate a part of an input, and write its output file: the work of a worker.

    file (str): The output file, relative to the folder.
    key (str): The fingerprint that the entry gets.
    part (Part): The part.
    part_settings (PartSettings): How it is annotated and written.
    RETURNS (Entry): The entry for the manifest.
    RAISES (ValueError): If the part can't be read, model, input or folder are not those of the
        command, or a doc fails and `on_error` is "raise".
    """
    folder = part_settings.folder
    if not (folder / MANIFEST).is_file():
        message = "expected the output folder of the command, got none on this worker"
        raise ValueError(f"{folder}: {message}")
    nlp = part_settings.load()
    span_lists = span_lists_of(nlp)
    # The components that can test for a shift, and what they have measured so far, by name
    measured: dict[str, tuple[CostSensitiveNER, PartMeasures]] = {}
    for name, pipe in nlp.pipeline:
        if isinstance(pipe, CostSensitiveNER) and pipe.confidence and pipe.calibration_scores:
            measured[name] = (pipe, PartMeasures([], {}))
    output_form = OUTPUT_FORMS[part_settings.form]
    with_text = part_settings.with_text
    n_docs = 0
    n_failed = 0
    n_tokens = 0

    def encode_answers() -> Iterator[Any]:
        """Annotate the rows one batch after another, count them, and encode each for the file."""
        nonlocal n_docs, n_failed, n_tokens
        for row, answer in annotate_rows(nlp, part_settings.read(nlp, part)):
            try:
                encoded = output_form.encode((row, answer), span_lists, with_text)
            except Exception as error:
                # A component has written to the doc what a file of this form can't hold.
                answer = error
                encoded = output_form.encode((row, answer), span_lists, with_text)
            n_docs += 1
            if isinstance(answer, Doc):
                n_tokens += len(answer)
                for ner, measures in measured.values():
                    measure_doc(ner, answer, measures)
            elif part_settings.on_error == "raise":
                message = f"{part.path}: id {row.id!r}: {describe_error(answer)}"
                raise ValueError(message) from answer
            else:
                n_failed += 1
            yield encoded

    def write(path: Path) -> None:
        """Write the output. Rows are annotated meanwhile: the file takes one answer after another,
        and the part is never in memory as a whole, unless its form needs that."""
        output_form.write(path, encode_answers(), span_lists, with_text)

    with collecting_new_objects_only(), warnings.catch_warnings(record=True) as caught:
        save_file(folder / file, write)

    shift: dict[str, PartMeasures] = {}
    for name, (_, measures) in measured.items():
        scores = rounded(measures.scores).tolist()
        shift[name] = PartMeasures(scores, measures.counts)
    messages = dict.fromkeys(str(warning.message) for warning in caught)  # each once
    return Entry(
        file=file,
        key=key,
        bytes=(folder / file).stat().st_size,
        docs=n_docs,
        failed=n_failed,
        tokens=n_tokens,
        shift=shift,
        warnings=list(messages),
    )


def measure_doc(ner: CostSensitiveNER, doc: Doc, measures: PartMeasures) -> None:
    """Add what a component has measured of a doc that it predicted to the measures of the part. A
    doc whose spans another component has changed doesn't count."""
    if ner.confidence is None:
        return
    with suppress(ValueError):
        measures.scores.extend(
            add_measures(doc, ner.confidence.spans_key, ner.name, ner.own_labels, measures.counts)
        )


@contextmanager
def collecting_new_objects_only() -> Iterator[None]:
    """Make garbage collections skip all objects that exist now, such as those of the pipeline.
    Otherwise collections would take a twelfth of the time of annotating."""
    was_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()


@lru_cache(maxsize=1)
def load_once(model: str, model_digest: str, code_path: str | None, use_gpu: int) -> Language:
    """Load a pipeline once in each process.

    RAISES (ValueError): If its fingerprint is another: somebody has changed it since the command
        began.
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
    """
    nlp = loading.load_pipeline(model, code_path, use_gpu)
    nlp.set_error_handler(raise_error)
    return nlp


def annotate_texts(nlp: Language, ids: Iterable[Any], texts: Iterable[Any]) -> Iterator[Record]:
    """Annotate texts, such as columns of a table. One that fails doesn't stop the others.

    nlp (Language): The pipeline: see `load_pipeline`.
    ids (Iterable[Any]): The ids of the texts.
    texts (Iterable[Any]): The texts.
    YIELDS (dict[str, Any]): For each text, in their order, what is on a line of `annotate`, without
        text.
    """
    rows = (TextRow(id, text, partial(make_doc, nlp, text)) for id, text in zip(ids, texts))
    span_lists = span_lists_of(nlp)
    for answer in annotate_rows(nlp, rows):
        yield to_record(answer, span_lists, with_text=False)


def annotate_rows(nlp: Language, rows: Iterable[TextRow]) -> Iterator[Answer]:
    """Annotate rows in batches. Yields each with its doc or its error; so the error handlers of the
    pipeline have to raise, as those of `load_pipeline` do."""
    for batch in minibatch(rows, nlp.batch_size):
        yield from zip(batch, annotate_batch(nlp, batch))


def annotate_batch(nlp: Language, rows: Sequence[TextRow]) -> list[Doc | Exception]:
    """Annotate rows together: the doc or the error of each.

    If the pipeline fails, each half of the rows is tried by itself, and so on, until the row that
    fails is alone. The halves get new docs, as the old ones may be half annotated.
    """
    answer_of_row: dict[int, Doc | Exception] = {}  # by the index of the row
    docs_and_indices: list[tuple[Doc, int]] = []
    for i, row in enumerate(rows):
        try:
            docs_and_indices.append((row.make_doc(), i))
        except Exception as error:
            answer_of_row[i] = error
    try:
        for doc, i in nlp.pipe(docs_and_indices, as_tuples=True):
            answer_of_row[i] = doc
        if len(answer_of_row) < len(rows):
            raise ValueError("expected a doc of the pipeline, got none")
        return [answer_of_row[i] for i in range(len(rows))]
    except Exception as error:
        if len(rows) == 1:
            return [error]
    half = len(rows) // 2
    return annotate_batch(nlp, rows[:half]) + annotate_batch(nlp, rows[half:])


def span_lists_of(nlp: Language) -> SpanLists:
    """The lists of spans that the records of a pipeline have: "spans" if a component has a
    `spans_key`, and "alternatives" and "guaranteed" if one writes them. See `SpanLists`."""
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
    """An answer as a line of JSON.

    RETURNS (dict[str, Any]): {"id": …, "text": …, "entities": […]} and the lists of spans, or
        {"id": …, "text": …, "error": …}. Spans have start and end, in characters, label and score.
        If there is no probability, the score is None.
    """
    row, doc = answer
    record: Record = {"id": row.id}
    if with_text:
        record["text"] = row.text
    if isinstance(doc, Exception):
        record["error"] = describe_error(doc)
        return record
    scored = scored_groups(doc)
    groups_of_list: dict[str, list[SpanGroup]] = {}
    for name, keys in span_lists.items():
        if name == "spans":
            groups_of_list[name] = [doc.spans[key] for key in keys if key in doc.spans]
        else:
            groups_of_list[name] = [group for group in scored if group.attrs.get("set") == name]

    # Groups may have different scores for the same characters and label. That of the component that
    # predicts the entity counts: its group overwrites those of alternatives and guaranteed sets.
    scores: dict[Place, float] = {}
    for group in [*reversed(scored), *groups_of_list.get("spans", ())]:
        for span in read_group(group):
            if not isnan(span.score):
                scores[span.place] = span.score

    entity_places = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    record["entities"] = spans_to_json(entity_places, scores)
    for name, groups in groups_of_list.items():
        if not groups:
            # No component has written this list to the doc. An empty list would say that one has,
            # and that there are no such spans.
            record[name] = None
            continue
        places: list[Place] = []
        for group in groups:
            places += [span.place for span in read_group(group)]
        record[name] = spans_to_json(places, scores)
    return record


def spans_to_json(places: Iterable[Place], scores: Mapping[Place, float]) -> list[Record]:
    """Spans as JSON.

    places (Iterable[Place]): Begin and end of each span in characters, and its label.
    scores (Mapping[Place, float]): The scores of those that have one.
    """
    spans: list[Record] = []
    for place in places:
        start, end, label = place
        spans.append({"start": start, "end": end, "label": label, "score": scores.get(place)})
    return spans


def describe_error(error: Exception) -> str:
    """The text of an error: our own messages as they are, others with the name of their class."""
    if type(error) in (ValueError, CorpusError):
        return encodable(error)
    return encodable(f"{type(error).__name__}: {error}")


def to_line(answer: Answer, span_lists: SpanLists, with_text: bool) -> str:
    """Encode an answer as a line of JSON."""
    return JSON.encode(to_record(answer, span_lists, with_text)) + "\n"


def write_jsonl(path: Path, lines: Iterable[str], *_: Any) -> None:
    """Write the lines of answers."""
    # UTF-8 can't encode half of a surrogate pair. It becomes Python's escape for it, such as
    # \ud83d, which is also that of JSON.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        file.writelines(lines)


def write_parquet(
    path: Path, records: Iterable[Record], span_lists: SpanLists, with_text: bool
) -> None:
    """Write the rows of answers: see `to_record`. Ids are numbers if all are, and text
    otherwise."""
    parquet = require_pyarrow()
    import pyarrow

    rows = list(records)
    text = pyarrow.string()
    number = pyarrow.int64()
    has_numbers = all(type(row["id"]) is int and row["id"] < 2**63 for row in rows)
    for row in rows:
        if not has_numbers:
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
    columns = [("id", number if has_numbers else text)]
    if with_text:
        columns.append(("text", text))
    for name in ("entities", *span_lists):
        columns.append((name, spans))
    columns.append(("error", text))
    table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(columns))
    parquet.write_table(table, path)


class Packers(threading.local):
    """A packer of msgpack for each thread: threads must not share one."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(use_bin_type=True)


PACKERS = Packers()


def to_packed_doc(answer: Answer, *_: Any) -> tuple[Doc, bytes]:
    """An answer as a doc, empty if there is an error, and its packed `user_data`: "id", "error" and
    what the input had."""
    row, doc = answer
    if isinstance(doc, Exception):
        error = describe_error(doc)
        doc = Doc(Vocab())
        doc.user_data["error"] = error
    else:
        realign(doc)
        doc.user_data.pop("error", None)  # The input may have such a key.
    doc.user_data["id"] = row.id
    # DocBin packs categories and groups of spans only when the part is complete. An error would
    # then stop all docs of the part. They are packed here as a trial, so that only this doc fails.
    pack = PACKERS.packer.pack
    pack([doc.cats, [(group.name, group.attrs) for group in doc.spans.values()]])
    # As DocBin packs it, but with one packer for all docs. DocBin would make one for each doc,
    # which takes three quarters of the time.
    return doc, pack(doc.user_data)


def write_docbin(path: Path, packed_docs: Iterable[tuple[Doc, bytes]], *_: Any) -> None:
    """Write the docs of answers."""
    doc_bin = DocBin()  # doesn't pack user data when docs are added
    for doc, user_data in packed_docs:
        doc_bin.add(doc)
        doc_bin.user_data.append(user_data)
    doc_bin.store_user_data = True  # but saves it
    doc_bin.to_disk(path)


JSON = json.JSONEncoder(ensure_ascii=False)


class OutputForm(NamedTuple):
    """How answers are written in a form of the output."""

    encode: Callable[[Answer, SpanLists, bool], Any]  # an answer as soon as it is there
    write: Callable[..., None]  # all encoded answers to a file


OUTPUT_FORMS = {
    "jsonl": OutputForm(to_line, write_jsonl),
    "parquet": OutputForm(to_record, write_parquet),
    "spacy": OutputForm(to_packed_doc, write_docbin),
}
