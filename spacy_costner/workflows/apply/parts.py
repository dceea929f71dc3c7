"""Annotate parts of input files in parallel."""

import gc
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import get_package_path, is_package

from ...files.saving import clear, save_file
from ...metrics.shift import rounded
from ...pipeline.component import CostSensitiveNER
from ...progress import progress
from ...readers.file_parts import FilePart, TextRow
from ...readers.files import digest
from ..config import loading
from ..runs import Done, Failed, MakeExecutor, Run, describe_failure, run_all
from .batches import annotate_batch, load_annotator
from .inputs import PlannedPart
from .manifest import MANIFEST, ManifestEntry, PartMeasures
from .output_files import OUTPUT_FORMS
from .records import AnnotatedRow, describe_error, span_lists_of
from .shift_measures import components_that_measure, measure_doc

BYTES_OF_GROUP = 1 << 16
"""Smaller parts are annotated together in groups of at most this size, in bytes."""

MIN_GROUPS = 16
"""The size of a group is at most the total size of all parts divided by `MIN_GROUPS`, unless the
group consists of a single part."""


class PartSettings(NamedTuple):
    """The settings for annotating and writing all parts."""

    folder: Path  # the output directory
    load: Callable[[], Language]  # loads the pipeline
    read: Callable[[Language, FilePart], Iterable[TextRow]]  # reads the rows of a part
    form: str  # one of `OUTPUT_FORMS`
    with_text: bool  # see `annotate`
    on_error: str  # see `annotate`


def annotate_parts(
    groups: Sequence[dict[str, PlannedPart]],
    part_settings: PartSettings,
    make_executor: MakeExecutor | None,
) -> tuple[dict[str, ManifestEntry], dict[str, str]]:
    """Annotate parts with parallel workers. When a group is finished, the entries of its parts are
    added to the manifest.

    groups (Sequence[dict[str, PlannedPart]]): The groups of parts to annotate together, keyed by
        output file name. See `group_parts`.
    part_settings (PartSettings): The settings for annotating and writing the parts.
    make_executor (MakeExecutor | None): Creates the executor for the workers. See `runs.run_all`.
    RETURNS (tuple[dict[str, ManifestEntry], dict[str, str]]): The manifest entries of the parts
        that were written and the errors of the parts that failed, both keyed by output file name.
        If a part fails, its output from an earlier run is kept.
    RAISES (ValueError): If a part fails and `on_error` is "raise".
    """
    folder = part_settings.folder
    begin = perf_counter()
    n_failed = 0  # number of docs that failed so far
    n_tokens = 0
    written_entries: dict[str, ManifestEntry] = {}
    errors: dict[str, str] = {}
    bar = progress(desc="annotate", unit="part", total=sum(map(len, groups)))
    with bar, (folder / MANIFEST).open("a", encoding="utf8") as manifest:
        for file, ended in run_groups(groups, part_settings, make_executor):
            if isinstance(ended, ManifestEntry):
                written_entries[file] = ended
                # Flush the entry, so that it isn't lost if this process is killed.
                manifest.write(ended.to_line())
                manifest.flush()
                n_failed += ended.failed
                n_tokens += ended.tokens
            elif part_settings.on_error == "raise":
                raise ValueError(f"annotate: {file}: {ended.reason}")
            else:
                errors[file] = ended.reason
                # A killed worker may have left a partially written temporary file.
                clear(folder / file)
            speed = n_tokens / (perf_counter() - begin)
            bar.set_postfix({"tokens/s": f"{speed:,.0f}", "failed": n_failed})
            bar.update()
    return written_entries, errors


def group_parts(planned: Mapping[str, PlannedPart]) -> list[dict[str, PlannedPart]]:
    """Divide parts into groups to annotate together. A group is limited to `BYTES_OF_GROUP` bytes,
    and each larger part forms a separate group. If there is little text, groups are smaller (see
    `MIN_GROUPS`), so that all workers are used and results are saved frequently.

    planned (Mapping[str, PlannedPart]): The parts, keyed by output file name.
    RETURNS (list[dict[str, PlannedPart]]): The groups, with the parts in their original order.
    """
    n_bytes = sum(part.n_bytes for part, _ in planned.values())
    bytes_of_group = min(BYTES_OF_GROUP, n_bytes / MIN_GROUPS)
    groups: list[dict[str, PlannedPart]] = []
    n_bytes_so_far = math.inf  # size of the last group; infinite, so the first part starts a group
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
) -> Iterator[tuple[str, ManifestEntry | Failed]]:
    """Annotate groups of parts with parallel workers. If a group crashes its workers, its parts are
    retried separately, so that only the part that causes the crash fails. Yields the output file
    name of each part and its manifest entry or its error."""
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


def digest_model(model: str, code_path: str | None) -> str:
    """Compute the fingerprint of a pipeline and the Python file with its registered functions.

    model (str): Package name or path of the pipeline.
    code_path (str | None): Path to the Python file, if any.
    RETURNS (str): The fingerprint.
    RAISES (ValueError): If `model` isn't a pipeline.
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


class AnswersOfParts:
    """An annotator for a group of parts. Batches may contain rows from several parts, because the
    parts of a group are small.

    nlp (Language): The pipeline.
    planned (Mapping[str, PlannedPart]): The parts, keyed by output file name.
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
        # Part indices and answers that haven't been yielded yet
        self._waiting: deque[tuple[int, AnnotatedRow]] = deque()
        self._messages: list[dict[str, None]] = [{} for _ in planned]  # dicts as ordered sets
        self._errors: dict[int, Exception] = {}  # read errors by part index

    def of_part(self, file: str) -> Iterator[AnnotatedRow]:
        """Annotate the rows of the part with the given output file name. This method must be called
        for the parts in order. If reading the part fails, the error is raised after the last row
        that could be read."""
        number = self._number_of_file[file]
        waiting = self._waiting
        while True:
            while waiting and waiting[0][0] <= number:
                number_of_answer, answer = waiting.popleft()
                # Skip answers left over from an earlier part that couldn't be written.
                if number_of_answer == number:
                    yield answer
            # Any answers that are still waiting belong to later parts.
            if waiting or not self._annotate_batch():
                break
        if number in self._errors:
            raise self._errors[number]

    def messages_of(self, file: str) -> list[str]:
        """Return the unique warnings for the batches that contain rows of a part, in order. They
        may include warnings for other parts in the same batches."""
        return list(self._messages[self._number_of_file[file]])

    def _annotate_batch(self) -> bool:
        """Annotate the next batch. Return False if there are no more rows."""
        with warnings.catch_warnings(record=True) as caught:
            batch = list(islice(self._rows, self._nlp.batch_size))
            answers = annotate_batch(self._nlp, [row for _, row in batch])
        # It isn't known which doc caused a warning, so warnings are recorded for all parts in the
        # batch. The dicts are ordered sets.
        messages = dict.fromkeys(str(warning.message) for warning in caught)
        for number in dict.fromkeys(number for number, _ in batch):
            self._messages[number].update(messages)
        for (number, row), answer in zip(batch, answers):
            self._waiting.append((number, (row, answer)))
        return bool(batch)

    def _read_rows(self) -> Iterator[tuple[int, TextRow]]:
        """Read the rows of all parts. Yields the index of the part and the row. If reading a part
        fails, its remaining rows are skipped."""
        for number, part in enumerate(self._parts):
            try:
                for row in self._read(self._nlp, part):
                    yield number, row
            except Exception as error:
                self._errors[number] = error


def annotate_group(
    planned: Mapping[str, PlannedPart], part_settings: PartSettings
) -> list[tuple[str, ManifestEntry | Failed]]:
    """Annotate a group of parts and write their output files. This function is executed by workers.
    Return the output file name of each part and its manifest entry or its error.

    A part fails if it can't be read or written, or if the worker's model, input or output directory
    isn't the same as in the main process. If `on_error` is "raise", a part also fails if one of its
    docs fails, and the remaining parts of the group are not annotated.
    """
    folder = part_settings.folder
    try:
        # The manifest was written before the workers started. If it's missing, this is a different
        # directory, for example on another machine.
        if not (folder / MANIFEST).is_file():
            message = "expected the output folder of this run, got none on this worker"
            raise ValueError(f"{folder}: {message}")
        nlp = part_settings.load()
        clear(*[folder / file for file in planned])
    except Exception as error:
        return [(file, describe_failure(error)) for file in planned]

    ended_parts: list[tuple[str, ManifestEntry | Failed]] = []
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
) -> ManifestEntry:
    """Annotate a part, write its output file and create its manifest entry. `file` is relative to
    the output directory. Raise a ValueError if a doc fails and `on_error` is "raise"."""
    path = part_settings.folder / file
    source = planned_part.part.path
    # The lists of spans to output in addition to the entities
    span_lists = span_lists_of(nlp)
    output_form = OUTPUT_FORMS[part_settings.form]
    with_text = part_settings.with_text
    counts = OutputCounts(components_that_measure(nlp))

    def encode_answers() -> Iterator[Any]:
        """Annotate the rows in batches, and encode and count the results."""
        for row, answer in answers.of_part(file):
            try:
                encoded = output_form.encode((row, answer), span_lists, with_text)
            except Exception as error:
                # A component has stored data on the doc that can't be written in this format. Write
                # the error instead of the doc.
                answer = error
                encoded = output_form.encode((row, answer), span_lists, with_text)
            if isinstance(answer, Doc):
                counts.add_doc(answer)
            else:
                message = f"id {row.id!r}: {describe_error(answer)}"
                if part_settings.on_error == "raise":
                    raise ValueError(f"{source}: {message}") from answer
                counts.add_error(message)
            yield encoded

    def write(new_file: Path) -> None:
        """Annotate the rows and write the output incrementally, so that the part isn't loaded into
        memory unless the format requires it."""
        output_form.write(new_file, encode_answers(), span_lists, with_text)

    # Store the warnings in the entry, so that the command can also show warnings from other
    # processes and earlier runs.
    with warnings.catch_warnings(record=True) as caught:
        save_file(path, write, is_clear=True)

    messages = [*answers.messages_of(file), *(str(warning.message) for warning in caught)]
    return ManifestEntry(
        file=file,
        key=planned_part.key,
        bytes=path.stat().st_size,
        docs=counts.n_docs,
        failed=counts.n_failed,
        tokens=counts.n_tokens,
        shift=counts.rounded_measures(),
        warnings=list(dict.fromkeys(messages)),  # unique, in order
        first_error=counts.first_error,
    )


class OutputCounts:
    """Running counts of the docs, tokens and errors in a part, and the measures for the shift test.

    measuring (Mapping[str, CostSensitiveNER]): The components that compute these measures,
        keyed by name.
    """

    def __init__(self, measuring: Mapping[str, CostSensitiveNER]) -> None:
        self.n_docs = 0
        self.n_failed = 0
        self.n_tokens = 0
        self.first_error = ""
        self._measuring = measuring
        self._measures: dict[str, PartMeasures] = {}
        for name in measuring:
            self._measures[name] = PartMeasures(scores=[], counts={})

    def add_doc(self, doc: Doc) -> None:
        """Count an annotated doc and add its measures."""
        self.n_docs += 1
        self.n_tokens += len(doc)
        for name, ner in self._measuring.items():
            measure_doc(ner, doc, self._measures[name])

    def add_error(self, message: str) -> None:
        """Count a doc that failed. Only the first error message is kept."""
        self.n_docs += 1
        self.n_failed += 1
        self.first_error = self.first_error or message

    def rounded_measures(self) -> dict[str, PartMeasures]:
        """Return the measures of each component. Scores are rounded because their last digits
        depend on how docs are batched."""
        measures_of_components: dict[str, PartMeasures] = {}
        for name, measures in self._measures.items():
            scores = rounded(measures.scores).tolist()
            measures_of_components[name] = PartMeasures(scores, measures.counts)
        return measures_of_components


@contextmanager
def collecting_new_objects_only() -> Iterator[None]:
    """Exclude existing objects, such as the pipeline, from garbage collection during a `with`
    block. Otherwise, garbage collection would take a twelfth of the annotation time."""
    # Don't unfreeze objects that were already frozen by the program.
    was_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()


@lru_cache(maxsize=1)
def load_once(model: str, model_digest: str, code_path: str | None, use_gpu: int) -> Language:
    """Load a pipeline, or return it if this process has already loaded it.

    model (str): Package name or path of the pipeline.
    model_digest (str): The fingerprint of the pipeline at the start of the run.
    code_path (str | None): Python file with registered functions to be imported.
    use_gpu (int): GPU ID or -1 for CPU.
    RETURNS (Language): The loaded pipeline.
    RAISES (ValueError): If the pipeline has changed since the start of the run.
    """
    if digest_model(model, code_path) != model_digest:
        raise ValueError(
            f"{model}: expected the pipeline that the run started with, got a different one"
        )
    return load_annotator(model, code_path, use_gpu)
