"""Annotate files of texts, in parts, so that a run goes on where another one ended."""

import gc
import json
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from importlib.metadata import version
from math import isnan
from operator import add
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
from ..readers.files import digest, encodable, is_about
from ..readers.texts import Part, TextRow, divide, make_doc, read_rows, require_pyarrow
from ..saving import clear, locked, save_file, save_text
from ..spans import Place, read_group, realign
from . import loading
from .runs import Done, MakeExecutor, Run, local_processes, run_all

MANIFEST = "manifest.jsonl"

OUTPUT = re.compile(r"(.+)-\d{5,}\.(jsonl|parquet|spacy)", re.DOTALL)
"""The name of an output file: that of its input, and the number of the part."""

SHOWN = 5
"""Errors that are printed."""

Answer = tuple[TextRow, Doc | Exception]


Groups = dict[str, list[str]]
"""The names of lists of spans in the output. For "spans", the keys of their groups."""

Entry = dict[str, Any]


ENTRY = {
    "file": str,
    "key": str,
    "bytes": int,
    "docs": int,
    "failed": int,
    "tokens": int,
    "shift": dict,
}
"""The fields of a line of the manifest."""


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

    n_rows (int): Lines or rows of a part. A .spacy file is one part, and row groups of Parquet
        are not divided.
    with_text (bool): Whether the output has the texts; .spacy always has them.
    make_executor (MakeExecutor | None): Makes the executor, such as `ray_cluster("auto")`;
        `jobs` local processes if None: see `runs.run_all`.
    form (Literal["jsonl", "parquet", "spacy"]): Form of the output.
    jobs (int): Number of processes.
    text (str): Key or column of the text.
    id_name (str): Key or column of the id.
    on_error (Literal["row", "raise"]): What a doc that fails does: a row with its error, or stop
        all.
    use_gpu (int): GPU ID or -1 for CPU.
    code_path (Path | None): Python file with registered functions to be imported.
    RETURNS (Summary): What was done.
    RAISES (ValueError): If an argument is wrong, an input is not there, another process writes to
        the folder or, with `on_error = "raise"`, a doc fails.
    """
    folder, code = Path(output_path), None if code_path is None else str(code_path)
    if form not in OUTPUT_FORMS:
        raise ValueError(f"annotate: format: expected one of {[*OUTPUT_FORMS]}, got {form!r}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"annotate: output: expected a folder, got the file {folder}")
    if form == "parquet":
        require_pyarrow()
    sources = find_sources([Path(path) for path in inputs], folder)
    content = _digest_model(str(model), code)
    parts = {
        f"{source}-{number:05}.{form}": part
        for source, path in sources.items()
        for number, part in enumerate(divide(path, n_rows))
    }
    if not parts:
        raise ValueError(f"annotate: expected files with text, got none in {[*map(str, inputs)]}")
    versions = [version(name) for name in ("spacy-costner", "spacy")]
    settings = [content, versions, form, text, id_name, with_text, use_gpu]
    keys = {file: digest(settings, part.digest) for file, part in parts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder) as is_ours:
        if is_ours is False:
            raise ValueError(f"{folder}: expected no other process that writes to it, got one")
        known = _read_manifest(folder)
        done = {
            file: entry
            for file, entry in known.items()
            if keys.get(file) == entry["key"]
            and (folder / file).is_file()
            and (folder / file).stat().st_size == entry["bytes"]
        }
        n_known = sum(file in known for file in parts)
        planned = {"kept": len(done), "changed": n_known - len(done), "new": len(parts) - n_known}
        # Remove files of parts that are gone. Known files don't lead out of the folder.
        for file in [*known]:
            if file.rpartition("-")[0] in sources and file not in parts:
                (folder / file).unlink(missing_ok=True)
                del known[file]
        lines = [json.dumps(entry) + "\n" for entry in known.values()]
        save_text(folder / MANIFEST, "".join(lines))
        work = {
            "folder": folder,
            "load": partial(_load_once, str(model), content, code, use_gpu),
            "read": partial(read_rows, text=text, id_name=id_name),
            "form": form,
            "with_text": with_text,
            "on_error": on_error,
        }
        runs = [
            Run(file, annotate_part, {"file": file, "part": part, **work})
            for file, part in parts.items()
            if file not in done
        ]
        counts, errors, begin = Counter(tokens=0), {}, perf_counter()
        bar = progress(desc="annotate", unit="part", total=len(runs))
        with bar, (folder / MANIFEST).open("a", encoding="utf8") as manifest:
            for run, ended in run_all(runs, make_executor or local_processes(jobs)):
                if isinstance(ended, Done):
                    done[run.name] = {"file": run.name, "key": keys[run.name], **ended.value}
                    manifest.write(json.dumps(done[run.name]) + "\n")
                    manifest.flush()
                    counts.update(failed=ended.value["failed"], tokens=ended.value["tokens"])
                elif on_error == "raise":
                    raise ValueError(f"annotate: {run.name}: {ended.reason}")
                else:
                    errors[run.name] = ended.reason
                    clear(folder / run.name)
                speed = counts["tokens"] / (perf_counter() - begin)
                bar.set_postfix({"tokens/s": f"{speed:,.0f}", "failed": counts["failed"]})
                bar.update()
    seconds = perf_counter() - begin
    speed = counts["tokens"] / seconds
    # Those of all workers, and of parts that were kept.
    messages = [text for file in parts if file in done for text in done[file].get("warnings", ())]
    for message in dict.fromkeys(messages):
        warnings.warn(message, stacklevel=2)
    names = ("docs", "failed", "tokens")
    totals: Any = {name: sum(entry[name] for entry in done.values()) for name in names}
    measured = [done[file]["shift"] for file in parts if file in done]
    shift = {}
    for name in dict.fromkeys(name for of_part in measured for name in of_part):
        pipes = dict(_load_once(str(model), content, code, use_gpu).pipeline)
        ner = pipes.get(name)
        if not isinstance(ner, CostSensitiveNER) or ner.cfg["shift"] is None:
            continue  # The manifest is damaged.
        own = [of_part[name] for of_part in measured if name in of_part]
        scores = [score for each in own for score in each["scores"]]
        sums = {label: [0.0] * 3 for each in own for label in each["counts"]}
        for each in own:
            for label, row in each["counts"].items():
                sums[label] = [*map(add, sums[label], row)]
        shift[name] = find_shift(ner.cfg["shift"], in_random_order(scores), sums)
    speeds: Any = {"seconds": seconds, "tokens_per_second": speed}
    return Summary(planned, **totals, **speeds, errors=errors, shift=shift)


def find_sources(inputs: Sequence[Path], folder: Path | None = None) -> dict[str, Path]:
    """The input files by their names in the output: within a folder the relative path."""
    sources: dict[str, Path] = {}
    for given in inputs:
        if not given.exists():
            raise CorpusError(f"{given}: expected a file or folder, got nothing there")
        if folder and given.is_dir() and folder.resolve().is_relative_to(given.resolve()):
            raise ValueError(f"{folder}: expected an output outside of the input {given}")
        for path in sorted(given.rglob("*")) if given.is_dir() else [given]:
            names = path.relative_to(given).parts or (given.name,)
            is_hidden = any(name.startswith(".") for name in names)
            if path != given and (is_hidden or is_about(path) or not path.is_file()):
                continue
            other = sources.setdefault("/".join(names), path)
            if other != path:
                raise CorpusError(f"expected files of different names, got {other} and {path}")
    return sources


def _digest_model(model: str, code_path: str | None) -> str:
    path = Path(model)
    clear(path)
    if not path.exists() and is_package(model):
        path = get_package_path(model)
    elif not (path / "meta.json").is_file():
        raise ValueError(f"{model}: expected a trained pipeline, a package or a folder")
    return digest(path, *([Path(code_path)] if code_path else []))


def _read_manifest(folder: Path) -> dict[str, Entry]:
    """The entries by file. Damaged lines, and those of files that aren't ours, don't count."""
    path, known = folder / MANIFEST, {}
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        with suppress(ValueError, RecursionError, AttributeError):
            entry = json.loads(line)
            is_whole = ENTRY.items() <= {k: type(v) for k, v in entry.items()}.items()
            if is_whole and OUTPUT.fullmatch(entry["file"]) and _is_shift(entry["shift"]):
                known[entry["file"]] = entry
    return known


def _is_shift(by_name: dict[str, Any]) -> bool:
    """Whether a manifest has this of components: "scores", and three numbers for each label."""

    def are_numbers(values: Any) -> bool:
        return isinstance(values, list) and all(type(value) in (int, float) for value in values)

    for measured in by_name.values():
        if not isinstance(measured, dict) or not isinstance(measured.get("counts"), dict):
            return False
        rows = [*measured["counts"].values()]
        if not are_numbers(measured.get("scores")):
            return False
        if not all(are_numbers(row) and len(row) == 3 for row in rows):
            return False
    return True


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
    counts = {"docs": 0, "failed": 0, "tokens": 0}
    watched: dict[str, Any] = {
        name: (ner, ner.confidence.spans_key, [], {})
        for name, ner in nlp.pipeline
        if isinstance(ner, CostSensitiveNER) and ner.confidence and ner.cfg["shift"]
    }

    encode, write = OUTPUT_FORMS[form]
    groups = groups_of(nlp)

    def encoded() -> Iterator[Any]:
        for row, answer in annotate_rows(nlp, read(nlp, part)):
            try:
                value = encode((row, answer), groups, with_text)
            except Exception as error:  # A component has left what the output can't have.
                answer = error
                value = encode((row, answer), groups, with_text)
            if isinstance(answer, Exception) and on_error == "raise":
                message = f"{part.path}: id {row.id!r}: {describe_error(answer)}"
                raise ValueError(message) from answer
            counts["docs"] += 1
            counts["failed"] += isinstance(answer, Exception)
            if isinstance(answer, Doc):
                counts["tokens"] += len(answer)
                for ner, key, scores, expected in watched.values():
                    with suppress(ValueError):  # another component has changed the doc's spans
                        scores += add_measures(answer, key, ner.name, ner.own_labels, expected)
            yield value

    # Garbage collections leave out what is there now, such as the pipeline: it would take them a
    # twelfth of the time.
    was_frozen = gc.get_freeze_count()
    gc.freeze()
    try:
        with warnings.catch_warnings(record=True) as caught:
            save_file(folder / file, lambda path: write(path, encoded(), groups, with_text))
    finally:
        if not was_frozen:
            gc.unfreeze()
    shift = {
        name: {"scores": rounded(scores).tolist(), "counts": expected}
        for name, (_, _, scores, expected) in watched.items()
    }
    return {
        "bytes": (folder / file).stat().st_size,
        **counts,
        "shift": shift,
        "warnings": [*dict.fromkeys(str(warning.message) for warning in caught)],
    }


@lru_cache(maxsize=1)
def _load_once(model: str, content: str, code_path: str | None, use_gpu: int) -> Language:
    if _digest_model(model, code_path) != content:
        raise ValueError(f"{model}: expected the pipeline that the command began with, got another")
    return load_pipeline(model, code_path, use_gpu)


def load_pipeline(
    model: str | Path, code_path: str | Path | None = None, use_gpu: int = -1
) -> Language:
    """Load a pipeline, a package or a folder, for `annotate_texts`. Errors of its components are
    raised. See `annotate_cli` for the other arguments."""
    nlp = loading.load_pipeline(model, code_path, use_gpu)
    nlp.set_error_handler(raise_error)
    return nlp


def annotate_texts(nlp: Language, ids: Iterable[Any], texts: Iterable[Any]) -> Iterator[Entry]:
    """Annotate texts, such as columns of a table. One that fails doesn't stop the others.

    nlp (Language): The pipeline: see `load_pipeline`.
    ids (Iterable[Any]), texts (Iterable[Any]): Ids and texts.
    YIELDS (dict[str, Any]): For each text, in their order, what is on a line of `annotate`, without
        text.
    """
    rows = (TextRow(id, text, partial(make_doc, nlp, text)) for id, text in zip(ids, texts))
    groups = groups_of(nlp)
    for answer in annotate_rows(nlp, rows):
        yield as_value(answer, groups, with_text=False)


def annotate_rows(nlp: Language, rows: Iterable[TextRow]) -> Iterator[Answer]:
    """Annotate rows: each with its doc or its error. Error handlers have to raise."""
    for batch in minibatch(rows, nlp.batch_size):
        yield from zip(batch, _annotate(nlp, batch))


def _annotate(nlp: Language, rows: Sequence[TextRow]) -> list[Doc | Exception]:
    """If a batch fails, its halves are tried, with new docs: the old ones may be half annotated."""
    answers: dict[int, Doc | Exception] = {}
    docs: list[tuple[Doc, int]] = []
    for i, row in enumerate(rows):
        try:
            docs.append((row.make_doc(), i))
        except Exception as error:
            answers[i] = error
    try:
        answers.update({i: doc for doc, i in nlp.pipe(docs, as_tuples=True)})
        if len(answers) < len(rows):
            raise ValueError("expected a doc of the pipeline, got none")
        return [answers[i] for i in range(len(rows))]
    except Exception as error:
        if len(rows) == 1:
            return [error]
    half = len(rows) // 2
    return _annotate(nlp, rows[:half]) + _annotate(nlp, rows[half:])


def groups_of(nlp: Language) -> Groups:
    """What span groups a pipeline writes: "spans", with their keys, of components with a
    `spans_key`; "alternatives" and "guaranteed", whose groups say what they are."""
    groups: Groups = {}
    for _, pipe in nlp.pipeline:
        if not isinstance(pipe, CostSensitiveNER):
            continue
        key = pipe.objective.spans_key
        if key is not None:
            groups.setdefault("spans", [])
            if key not in groups["spans"]:
                groups["spans"].append(key)
        if pipe.confidence is not None and pipe.confidence.alternatives is not None:
            groups[ALTERNATIVES] = []
        if pipe.confidence is not None and pipe.guarantee is not None:
            groups[GUARANTEED] = []
    return groups


def as_value(answer: Answer, groups: Groups, with_text: bool) -> Entry:
    """An answer as a line of JSON.

    RETURNS (dict[str, Any]): {"id": …, "text": …, "entities": […]}, or with "error" in place of
        entities. Entities have start and end, in characters, label and score. If there is no
        probability, the score is None.
    """
    row, doc = answer
    value: Entry = {"id": row.id, "text": row.text} if with_text else {"id": row.id}
    if isinstance(doc, Exception):
        return {**value, "error": describe_error(doc)}
    shared = [doc.spans[key] for key in groups.get("spans", ()) if key in doc.spans]
    ours = scored_groups(doc)
    scores: dict[Place, float] = {}
    # A predicted entity's score is that of the component that predicts it: its group comes last.
    for group in [*reversed(ours), *shared]:
        for span in read_group(group):
            if not isnan(span.score):
                scores[span.place] = span.score

    def as_values(places: Iterable[Place]) -> list[Entry]:
        return [
            {"start": place[0], "end": place[1], "label": place[2], "score": scores.get(place)}
            for place in places
        ]

    value["entities"] = as_values((ent.start_char, ent.end_char, ent.label_) for ent in doc.ents)
    for name in groups:
        written = shared
        if name != "spans":
            written = [group for group in ours if group.attrs.get("set") == name]
        places = [span.place for group in written for span in read_group(group)]
        value[name] = as_values(places) if written else None  # no promise
    return value


def describe_error(error: Exception) -> str:
    """An error in a line: our own messages as they are, others with the name of their class."""
    own = type(error) in (ValueError, CorpusError)
    return encodable(error if own else f"{type(error).__name__}: {error}")


def to_line(answer: Answer, groups: Groups, with_text: bool) -> str:
    """Encode an answer as a line of JSON."""
    return JSON.encode(as_value(answer, groups, with_text)) + "\n"


def write_jsonl(path: Path, lines: Iterable[str], *_: Any) -> None:
    """Write the lines of answers."""
    # Python's escape for half of a surrogate pair is that of JSON.
    with path.open("w", encoding="utf8", errors="backslashreplace", newline="\n") as file:
        file.writelines(lines)


def write_parquet(path: Path, rows: Iterable[Entry], groups: Groups, with_text: bool) -> None:
    """Write the rows of answers: see `as_value`. Ids are numbers if all are, and text otherwise."""
    parquet = require_pyarrow()
    import pyarrow

    values = [*rows]
    are_numbers = all(type(value["id"]) is int and value["id"] < 2**63 for value in values)
    for value in values:
        value["id"] = value["id"] if are_numbers else str(value["id"])
        if value.get("text") is not None:
            value["text"] = encodable(value["text"])
    text, number, score = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    span = [("start", number), ("end", number), ("label", text), ("score", score)]
    spans = pyarrow.list_(pyarrow.struct(span))
    columns = [("id", number if are_numbers else text), *[("text", text)][: int(with_text)]]
    lists = [(name, spans) for name in ("entities", *groups)]
    schema = pyarrow.schema([*columns, *lists, ("error", text)])
    parquet.write_table(pyarrow.Table.from_pylist(values, schema=schema), path)


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
    # DocBin packs these when the part is complete, where one of them would stop all.
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
    "parquet": (as_value, write_parquet),
    "spacy": (to_packed_doc, write_docbin),
}
"""The forms of the output: what encodes an answer, and what writes the encoded ones to a file."""
