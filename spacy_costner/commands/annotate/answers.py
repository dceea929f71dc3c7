"""What a pipeline answers to rows: docs, or errors; and files of both."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple, Union

from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.util import minibatch
from spacy.vocab import Vocab
from srsly import msgpack

from ...pipeline.annotations import SOURCE
from ...pipeline.component import CostSensitiveNER
from .inputs import Row, described, make_doc, require_pyarrow

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
            if pipe.confidence.least is not None:
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
