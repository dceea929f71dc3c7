"""Annotate files of texts, in parts, so that a run goes on where another one ended."""

import gc
import json
import re
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.metadata import version
from math import isnan
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.util import get_package_path, is_package, minibatch, raise_error
from spacy.vocab import Vocab
from srsly import msgpack

from ..metrics.shift import Shift, find_shift, in_random_order, rounded
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
"""A row of an input with its annotated doc, or with its error."""

Groups = dict[str, list[str]]
"""The names of lists of spans in the output. For "spans", the keys of their groups."""

Record = dict[str, Any]
"""An answer as a line of JSON, or a row of Parquet."""

Entry = dict[str, Any]
"""A line of the manifest: a part that is done. Its fields are those of `ENTRY_TYPES`, and maybe
"warnings"."""

ENTRY_TYPES = {
    "file": str,  # the output file, relative to the folder
    "key": str,  # the fingerprint of the part, the model and the settings
    "bytes": int,
    "docs": int,
    "failed": int,
    "tokens": int,
    "shift": dict,  # by component, the "scores" of docs and the "counts" of labels
}


class Summary(NamedTuple):
    """What was done. Parts are "kept", finished before; "changed", finished before with another
    model, other settings or another input; or "new"."""

    parts: dict[str, int]
    docs: int  # in all of the output, with parts that were kept
    failed: int  # those with an error
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
    if form not in OUTPUT_FORMS:
        raise ValueError(f"annotate: format: expected one of {[*OUTPUT_FORMS]}, got {form!r}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"annotate: output: expected a folder, got the file {folder}")
    if form == "parquet":
        require_pyarrow()
    sources = find_sources([Path(path) for path in inputs], folder)
    model_digest = digest_model(str(model), code)
    parts: dict[str, Part] = {}  # by their output files
    for source, path in sources.items():
        for number, part in enumerate(divide(path, n_rows)):
            parts[f"{source}-{number:05}.{form}"] = part
    if not parts:
        raise ValueError(f"annotate: expected files with text, got none in {[*map(str, inputs)]}")
    versions = [version(name) for name in ("spacy-costner", "spacy")]
    settings = [model_digest, versions, form, text, id_name, with_text, use_gpu]
    keys = {file: digest(settings, part.digest) for file, part in parts.items()}
    load = partial(load_once, str(model), model_digest, code, use_gpu)

    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder) as is_ours:
        if is_ours is False:
            raise ValueError(f"{folder}: expected no other process that writes to it, got one")
        earlier = read_manifest(folder)
        entries = keep_finished(folder, earlier, keys)
        n_kept = len(entries)
        n_new = sum(file not in earlier for file in parts)
        planned = {"kept": n_kept, "changed": len(parts) - n_kept - n_new, "new": n_new}
        remove_gone(folder, earlier, sources, parts)
        lines = [json.dumps(entry) + "\n" for entry in earlier.values()]
        save_text(folder / MANIFEST, "".join(lines))
        work = {
            "folder": folder,
            "load": load,
            "read": partial(read_rows, text=text, id_name=id_name),
            "form": form,
            "with_text": with_text,
            "on_error": on_error,
        }
        runs: list[Run] = []
        for file, part in parts.items():
            if file not in entries:
                runs.append(Run(file, annotate_part, {"file": file, "part": part, **work}))
        begin = perf_counter()
        n_failed = 0
        n_tokens = 0
        errors: dict[str, str] = {}
        bar = progress(desc="annotate", unit="part", total=len(runs))
        with bar, (folder / MANIFEST).open("a", encoding="utf8") as manifest:
            for run, ended in run_all(runs, make_executor or local_processes(jobs)):
                if isinstance(ended, Done):
                    entry = {"file": run.name, "key": keys[run.name], **ended.value}
                    entries[run.name] = entry
                    # A command that is killed finds what was finished before.
                    manifest.write(json.dumps(entry) + "\n")
                    manifest.flush()
                    n_failed += entry["failed"]
                    n_tokens += entry["tokens"]
                elif on_error == "raise":
                    raise ValueError(f"annotate: {run.name}: {ended.reason}")
                else:
                    errors[run.name] = ended.reason
                    clear(folder / run.name)
                speed = n_tokens / (perf_counter() - begin)
                bar.set_postfix({"tokens/s": f"{speed:,.0f}", "failed": n_failed})
                bar.update()
    seconds = perf_counter() - begin

    # In the order of the parts, whichever worker was first.
    in_order = [entries[file] for file in parts if file in entries]
    messages: dict[str, None] = {}
    for entry in in_order:
        messages.update(dict.fromkeys(entry.get("warnings", ())))
    for message in messages:
        warnings.warn(message, stacklevel=2)
    return Summary(
        planned,
        docs=sum(entry["docs"] for entry in in_order),
        failed=sum(entry["failed"] for entry in in_order),
        tokens=sum(entry["tokens"] for entry in in_order),
        seconds=seconds,
        tokens_per_second=n_tokens / seconds,
        errors=errors,
        shift=find_shift_of_parts(load, [entry["shift"] for entry in in_order]),
    )


def find_sources(inputs: Sequence[Path], folder: Path | None = None) -> dict[str, Path]:
    """The input files by their names in the output: within an input folder the relative path. The
    output folder must be outside of them."""
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
    """Add an input file. RAISES (CorpusError): If another one has its name."""
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
    """The entries by file. Damaged lines, and those of files that aren't ours, don't count."""
    path = folder / MANIFEST
    entries: dict[str, Entry] = {}
    if not path.is_file():
        return entries
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if is_entry(entry):
                entries[entry["file"]] = entry
    return entries


def is_entry(value: Any) -> bool:
    """Whether a line of JSON is an entry of the manifest."""
    if not isinstance(value, dict):
        return False
    if any(type(value.get(name)) is not kind for name, kind in ENTRY_TYPES.items()):
        return False
    if not OUTPUT.fullmatch(value["file"]):
        return False
    return all(are_measures(measures) for measures in value["shift"].values())


def are_measures(value: Any) -> bool:
    """Whether a value of JSON is what `Measures` has of a component: "scores", and three numbers
    for each label."""
    if not isinstance(value, dict) or not isinstance(value.get("counts"), dict):
        return False
    rows = list(value["counts"].values())
    if not all(are_numbers(row) and len(row) == 3 for row in rows):
        return False
    return are_numbers(value.get("scores"))


def are_numbers(value: Any) -> bool:
    """Whether a value of JSON is a list of numbers."""
    return isinstance(value, list) and all(type(item) in (int, float) for item in value)


def keep_finished(
    folder: Path, entries: Mapping[str, Entry], keys: Mapping[str, str]
) -> dict[str, Entry]:
    """The entries of parts whose output is there, as long as it was, and of the same input, model
    and settings, whose fingerprints are the keys."""
    finished: dict[str, Entry] = {}
    for file, entry in entries.items():
        path = folder / file
        has_same_key = keys.get(file) == entry["key"]
        if has_same_key and path.is_file() and path.stat().st_size == entry["bytes"]:
            finished[file] = entry
    return finished


def remove_gone(
    folder: Path, entries: dict[str, Entry], sources: Collection[str], parts: Collection[str]
) -> None:
    """Remove the files and entries of parts that an input had and has no longer. Files with an
    entry don't lead out of the folder."""
    for file in list(entries):
        source = file.rpartition("-")[0]
        if source in sources and file not in parts:
            (folder / file).unlink(missing_ok=True)
            del entries[file]


def find_shift_of_parts(
    load: Callable[[], Language], parts: Sequence[Mapping[str, Any]]
) -> dict[str, Shift]:
    """Test whether the docs of all parts are like the calibration docs, for each component that
    measured them.

    parts (Sequence[Mapping[str, Any]]): What a part of the output says of each component.
    """
    names: dict[str, None] = {}
    for part in parts:
        names.update(dict.fromkeys(part))
    shift: dict[str, Shift] = {}
    for name in names:
        ner = dict(load().pipeline).get(name)
        if not isinstance(ner, CostSensitiveNER) or ner.calibration_scores is None:
            continue  # The manifest is damaged.
        scores: list[float] = []
        counts: dict[str, list[float]] = {}
        for part in parts:
            if name not in part:
                continue
            scores += part[name]["scores"]
            for label, row in part[name]["counts"].items():
                total = counts.get(label, [0.0, 0.0, 0.0])
                counts[label] = [x + y for x, y in zip(total, row)]
        shift[name] = find_shift(ner.calibration_scores.pool(), in_random_order(scores), counts)
    return shift


@dataclass
class Measures:
    """What a component measures of the docs of a part, to test them for a shift."""

    ner: CostSensitiveNER
    scores: list[float] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)  # by label: see `add_measures`

    def add(self, doc: Doc) -> None:
        """Measure a doc, unless another component has changed its spans."""
        ner = self.ner
        if ner.confidence is None:
            return
        with suppress(ValueError):
            self.scores += add_measures(
                doc, ner.confidence.spans_key, ner.name, ner.own_labels, self.counts
            )

    def to_dict(self) -> dict[str, Any]:
        """What the manifest says."""
        return {"scores": rounded(self.scores).tolist(), "counts": self.counts}


def annotate_part(
    file: str,
    part: Part,
    *,
    folder: Path,
    load: Callable[[], Language],
    read: Callable[[Language, Part], Iterable[TextRow]],
    form: str,
    with_text: bool,
    on_error: str,
) -> dict[str, Any]:
    """Annotate a part of a file.

    RETURNS (dict[str, Any]): What the manifest says of the output: bytes, docs, failed, tokens,
        warnings, and by component the "scores" and "counts" that test it for a shift.
    RAISES (ValueError): If the part can't be read, model, input or folder are not those of the
        command, or a doc fails and `on_error` is "raise".
    """
    if not (folder / MANIFEST).is_file():
        message = "expected the output folder of the command, got none on this worker"
        raise ValueError(f"{folder}: {message}")
    nlp = load()
    measures: dict[str, Measures] = {}
    for name, ner in nlp.pipeline:
        if isinstance(ner, CostSensitiveNER) and ner.confidence and ner.calibration_scores:
            measures[name] = Measures(ner)
    encode, write = OUTPUT_FORMS[form]
    groups = groups_of(nlp)
    counts = {"docs": 0, "failed": 0, "tokens": 0}

    def encode_answers() -> Iterator[Any]:
        for row, answer in annotate_rows(nlp, read(nlp, part)):
            try:
                encoded = encode((row, answer), groups, with_text)
            except Exception as error:  # A component has left what the output can't have.
                answer = error
                encoded = encode((row, answer), groups, with_text)
            counts["docs"] += 1
            if isinstance(answer, Doc):
                counts["tokens"] += len(answer)
                for measure in measures.values():
                    measure.add(answer)
            elif on_error == "raise":
                message = f"{part.path}: id {row.id!r}: {describe_error(answer)}"
                raise ValueError(message) from answer
            else:
                counts["failed"] += 1
            yield encoded

    # Garbage collections leave out what is there now, such as the pipeline: it would take them a
    # twelfth of the time.
    was_frozen = gc.get_freeze_count()
    gc.freeze()
    try:
        with warnings.catch_warnings(record=True) as caught:
            save_file(folder / file, lambda path: write(path, encode_answers(), groups, with_text))
    finally:
        if not was_frozen:
            gc.unfreeze()
    return {
        "bytes": (folder / file).stat().st_size,
        **counts,
        "shift": {name: measure.to_dict() for name, measure in measures.items()},
        "warnings": list(dict.fromkeys(str(warning.message) for warning in caught)),
    }


@lru_cache(maxsize=1)
def load_once(model: str, model_digest: str, code_path: str | None, use_gpu: int) -> Language:
    """Load a pipeline once in each process. It has to be the one with this fingerprint."""
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
    groups = groups_of(nlp)
    for answer in annotate_rows(nlp, rows):
        yield to_record(answer, groups, with_text=False)


def annotate_rows(nlp: Language, rows: Iterable[TextRow]) -> Iterator[Answer]:
    """Annotate rows: each with its doc or its error. Error handlers have to raise."""
    for batch in minibatch(rows, nlp.batch_size):
        yield from zip(batch, annotate_batch(nlp, batch))


def annotate_batch(nlp: Language, rows: Sequence[TextRow]) -> list[Doc | Exception]:
    """Annotate rows together: the doc or the error of each. If the pipeline fails, its halves are
    tried, with new docs: the old ones may be half annotated."""
    answers: dict[int, Doc | Exception] = {}  # by the number of the row
    docs: list[tuple[Doc, int]] = []
    for i, row in enumerate(rows):
        try:
            docs.append((row.make_doc(), i))
        except Exception as error:
            answers[i] = error
    try:
        for doc, i in nlp.pipe(docs, as_tuples=True):
            answers[i] = doc
        if len(answers) < len(rows):
            raise ValueError("expected a doc of the pipeline, got none")
        return [answers[i] for i in range(len(rows))]
    except Exception as error:
        if len(rows) == 1:
            return [error]
    half = len(rows) // 2
    return annotate_batch(nlp, rows[:half]) + annotate_batch(nlp, rows[half:])


def groups_of(nlp: Language) -> Groups:
    """What span groups a pipeline writes: "spans", with their keys, of components with a
    `spans_key`; "alternatives" and "guaranteed", whose groups say what they are."""
    groups: Groups = {}
    for _, pipe in nlp.pipeline:
        if not isinstance(pipe, CostSensitiveNER):
            continue
        key = pipe.annotation.spans_key
        if key is not None:
            groups.setdefault("spans", [])
            if key not in groups["spans"]:
                groups["spans"].append(key)
        if pipe.confidence is not None and pipe.confidence.alternatives is not None:
            groups[ALTERNATIVES] = []
        if pipe.confidence is not None and pipe.guarantee is not None:
            groups[GUARANTEED] = []
    return groups


def to_record(answer: Answer, groups: Groups, with_text: bool) -> Record:
    """An answer as a line of JSON.

    RETURNS (dict[str, Any]): {"id": …, "text": …, "entities": […]}, or with "error" in place of
        entities. Entities have start and end, in characters, label and score. If there is no
        probability, the score is None.
    """
    row, doc = answer
    record: Record = {"id": row.id}
    if with_text:
        record["text"] = row.text
    if isinstance(doc, Exception):
        record["error"] = describe_error(doc)
        return record
    key_groups = [doc.spans[key] for key in groups.get("spans", ()) if key in doc.spans]
    scored = scored_groups(doc)
    scores: dict[Place, float] = {}
    # A predicted entity's score is that of the component that predicts it: its group comes last.
    for group in [*reversed(scored), *key_groups]:
        for span in read_group(group):
            if not isnan(span.score):
                scores[span.place] = span.score

    def to_spans(places: Iterable[Place]) -> list[Record]:
        spans: list[Record] = []
        for place in places:
            start, end, label = place
            spans.append({"start": start, "end": end, "label": label, "score": scores.get(place)})
        return spans

    record["entities"] = to_spans((ent.start_char, ent.end_char, ent.label_) for ent in doc.ents)
    for name in groups:
        written = key_groups
        if name != "spans":
            written = [group for group in scored if group.attrs.get("set") == name]
        places = [span.place for group in written for span in read_group(group)]
        record[name] = to_spans(places) if written else None  # no promise
    return record


def describe_error(error: Exception) -> str:
    """An error in a line: our own messages as they are, others with the name of their class."""
    if type(error) in (ValueError, CorpusError):
        return encodable(error)
    return encodable(f"{type(error).__name__}: {error}")


def to_line(answer: Answer, groups: Groups, with_text: bool) -> str:
    """Encode an answer as a line of JSON."""
    return JSON.encode(to_record(answer, groups, with_text)) + "\n"


def write_jsonl(path: Path, lines: Iterable[str], *_: Any) -> None:
    """Write the lines of answers."""
    # Python's escape for half of a surrogate pair is that of JSON.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        file.writelines(lines)


def write_parquet(path: Path, records: Iterable[Record], groups: Groups, with_text: bool) -> None:
    """Write the rows of answers: see `to_record`. Ids are numbers if all are, and text
    otherwise."""
    parquet = require_pyarrow()
    import pyarrow

    rows = list(records)
    has_numbers = all(type(row["id"]) is int and row["id"] < 2**63 for row in rows)
    for row in rows:
        if not has_numbers:
            row["id"] = str(row["id"])
        if row.get("text") is not None:
            row["text"] = encodable(row["text"])
    text = pyarrow.string()
    number = pyarrow.int64()
    span = [("start", number), ("end", number), ("label", text), ("score", pyarrow.float64())]
    spans = pyarrow.list_(pyarrow.struct(span))
    columns = [("id", number if has_numbers else text)]
    if with_text:
        columns.append(("text", text))
    columns += [(name, spans) for name in ("entities", *groups)]
    columns.append(("error", text))
    table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(columns))
    parquet.write_table(table, path)


class Packers(threading.local):
    """A packer of msgpack for each thread."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(use_bin_type=True)


PACKERS = Packers()


def to_packed_doc(answer: Answer, *_: Any) -> tuple[Doc, bytes]:
    """Pack the `user_data` of a doc, which has "id" and, if it failed, "error"."""
    row, doc = answer
    if isinstance(doc, Exception):
        error = describe_error(doc)
        doc = Doc(Vocab())
        doc.user_data["error"] = error
    else:
        realign(doc)
        doc.user_data.pop("error", None)  # The input may have such a key.
    doc.user_data["id"] = row.id
    # DocBin packs these when the part is complete, where an error would stop all docs.
    pack = PACKERS.packer.pack
    pack([doc.cats, [(group.name, group.attrs) for group in doc.spans.values()]])
    # As DocBin does, which makes a packer for each doc: that takes three quarters of the time.
    return doc, pack(doc.user_data)


def write_docbin(path: Path, packed_docs: Iterable[tuple[Doc, bytes]], *_: Any) -> None:
    """Write the docs of answers."""
    docs = DocBin()
    for doc, user_data in packed_docs:
        docs.add(doc)
        docs.user_data.append(user_data)
    docs.store_user_data = True
    docs.to_disk(path)


JSON = json.JSONEncoder(ensure_ascii=False)

OUTPUT_FORMS: dict[str, tuple[Callable[[Answer, Groups, bool], Any], Callable[..., None]]] = {
    "jsonl": (to_line, write_jsonl),
    "parquet": (to_record, write_parquet),
    "spacy": (to_packed_doc, write_docbin),
}
"""The forms of the output: what encodes an answer, and what writes the encoded ones to a file."""
