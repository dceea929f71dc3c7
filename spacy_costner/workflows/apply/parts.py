"""Annotate parts of input files. Workers annotate several parts at a time."""

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
"""Parts of fewer bytes are annotated together, in groups of at most this size."""

MIN_GROUPS = 16
"""The minimum number of groups, if there are as many parts."""


class PartSettings(NamedTuple):
    """How all parts are annotated and written."""

    folder: Path  # the output folder
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
    """Annotate parts by workers. As soon as a part is done, its entry is added to the manifest; for
    small parts, as soon as their group is done.

    groups (Sequence[dict[str, PlannedPart]]): The parts, keyed by the names of their output files,
        in groups that are annotated together: see `group_parts`.
    part_settings (PartSettings): How they are annotated.
    make_executor (MakeExecutor | None): Makes the executor of the workers: see `runs.run_all`.
    RETURNS (tuple[dict[str, ManifestEntry], dict[str, str]]): The entries of the parts that were
        written, and the errors of the parts that were not, both keyed by the names of output files.
        The output that an earlier run wrote for such a part stays.
    RAISES (ValueError): If a part fails and `on_error` is "raise".
    """
    folder = part_settings.folder
    begin = perf_counter()
    n_failed = 0  # the number of docs that failed so far
    n_tokens = 0
    written_entries: dict[str, ManifestEntry] = {}
    errors: dict[str, str] = {}
    bar = progress(desc="annotate", unit="part", total=sum(map(len, groups)))
    with bar, (folder / MANIFEST).open("a", encoding="utf8") as manifest:
        for file, ended in run_groups(groups, part_settings, make_executor):
            if isinstance(ended, ManifestEntry):
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
                # A worker that was killed may have left a half-written file next to the output.
                clear(folder / file)
            speed = n_tokens / (perf_counter() - begin)
            bar.set_postfix({"tokens/s": f"{speed:,.0f}", "failed": n_failed})
            bar.update()
    return written_entries, errors


def group_parts(planned: Mapping[str, PlannedPart]) -> list[dict[str, PlannedPart]]:
    """Divide parts into groups that are annotated together. Parts of `BYTES_OF_GROUP` or more are
    alone. There are at least `MIN_GROUPS` groups, if there are as many parts, so that all workers
    have some, and a run that is killed has written some.

    planned (Mapping[str, PlannedPart]): The parts, keyed by the names of their output files.
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
) -> Iterator[tuple[str, ManifestEntry | Failed]]:
    """Annotate groups of parts, each by a worker. If workers die with a group, its parts are
    annotated one by one, so that only the part on which they die fails. Yields
    the output file of each part, and its entry or its error."""
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


class AnswersOfParts:
    """Annotates the rows of parts. Parts are small, or alone: a batch has rows of several parts.

    nlp (Language): The pipeline.
    planned (Mapping[str, PlannedPart]): The parts, keyed by the names of their output files.
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
        # The answers that have not been taken yet, each with the index of its part
        self._waiting: deque[tuple[int, AnnotatedRow]] = deque()
        self._messages: list[dict[str, None]] = [{} for _ in planned]  # the keys are ordered sets
        self._errors: dict[int, Exception] = {}  # of the parts that couldn't be read

    def of_part(self, file: str) -> Iterator[AnnotatedRow]:
        """Annotate the rows of a part. The part is named by its output file, and parts have to be
        taken in order. If the part can't be read to its end, the error is raised after the last
        row."""
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
        """Read the rows of all parts, each with the index of its part. A part that can't be read
        ends early."""
        for number, part in enumerate(self._parts):
            try:
                for row in self._read(self._nlp, part):
                    yield number, row
            except Exception as error:
                self._errors[number] = error


def annotate_group(
    planned: Mapping[str, PlannedPart], part_settings: PartSettings
) -> list[tuple[str, ManifestEntry | Failed]]:
    """Annotate the parts of a group together, and write the output file of each. This is what a
    worker does. Returns the output file of each part, and its entry for the manifest or its error.

    A part fails if it can't be read or written, if the worker sees another model, input or folder
    than this run has or, with `on_error = "raise"`, if one of its docs fails. Then the parts after
    it are missing.
    """
    folder = part_settings.folder
    try:
        # The manifest was written before. Without it this is another folder.
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
    """Write the output file of a part, and count what is in it, for the manifest. The file is
    relative to the folder. It is an error if a doc fails and `on_error` is "raise"."""
    path = part_settings.folder / file
    source = planned_part.part.path
    # The lists of spans that each row of the output has in addition to its entities
    span_lists = span_lists_of(nlp)
    output_form = OUTPUT_FORMS[part_settings.form]
    with_text = part_settings.with_text
    counts = OutputCounts(components_that_measure(nlp))

    def encode_answers() -> Iterator[Any]:
        """Annotate the rows one batch after another, count them, and encode each for the file."""
        for row, answer in answers.of_part(file):
            try:
                encoded = output_form.encode((row, answer), span_lists, with_text)
            except Exception as error:
                # A component has written something to the doc that a file of this form can't hold.
                # The row gets this error instead of the doc.
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
        """Annotate the rows and write the output, one answer after another. So the part is never in
        memory as a whole, unless its form needs that."""
        output_form.write(new_file, encode_answers(), span_lists, with_text)

    # Warnings are kept in the entry. The command shows them, also from other processes, and for
    # parts that an earlier run has annotated.
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
        warnings=list(dict.fromkeys(messages)),  # each once, in order
        first_error=counts.first_error,
    )


class OutputCounts:
    """What the output of a part has so far: its docs, its tokens, the docs that failed, and what
    components have measured for the test for a shift.

    measuring (Mapping[str, CostSensitiveNER]): The components that measure docs, by name.
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
        """Count an annotated doc, and measure it."""
        self.n_docs += 1
        self.n_tokens += len(doc)
        for name, ner in self._measuring.items():
            measure_doc(ner, doc, self._measures[name])

    def add_error(self, message: str) -> None:
        """Count a doc that failed."""
        self.n_docs += 1
        self.n_failed += 1
        self.first_error = self.first_error or message

    def rounded_measures(self) -> dict[str, PartMeasures]:
        """The measures of each component. The test for a shift compares rounded scores, as more
        digits would vary with the batches."""
        measures_of_components: dict[str, PartMeasures] = {}
        for name, measures in self._measures.items():
            scores = rounded(measures.scores).tolist()
            measures_of_components[name] = PartMeasures(scores, measures.counts)
        return measures_of_components


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
    model_digest (str): The fingerprint that the pipeline had when the run began.
    code_path (str | None): Python file that is imported first.
    use_gpu (int): GPU ID or -1 for CPU.
    RAISES (ValueError): If somebody has changed the pipeline since then.
    """
    if digest_model(model, code_path) != model_digest:
        raise ValueError(
            f"{model}: expected the pipeline that the run started with, got a different one"
        )
    return load_annotator(model, code_path, use_gpu)
