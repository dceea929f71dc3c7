"""`costner serve`: the app without a network, its refusals, and the command."""

import base64
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spacy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spacy_costner.cli.serve import page_address
from spacy_costner.serve import answer_file
from spacy_costner.serve.app import MAX_BODY, make_app
from spacy_costner.serve.session import AnnotationSession
from spacy_costner.serve.store import AnnotationStore

from ..support.annotation import LANG, answer_next, make_session, make_texts
from ..support.commands import run

starlette_testclient = pytest.importorskip("starlette.testclient")
Client = starlette_testclient.TestClient
Starlette = pytest.importorskip("starlette.applications").Starlette

LOCAL = "http://127.0.0.1:8765"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def session(tmp_path: Path) -> AnnotationSession:
    return make_session(tmp_path)


@pytest.fixture
def client(session: AnnotationSession) -> Iterator[Any]:
    with Client(make_app(session), base_url=LOCAL) as client:
        yield client


def test_a_text_is_annotated_and_the_next_one_comes(
    client: Any, session: AnnotationSession
) -> None:
    first = client.get("/next").json()["text"]
    spans = [{"start": 1, "end": 2, "label": "PER"}]

    response = client.post("/answer", json={"key": first["key"], "version": 0, "spans": spans})

    assert response.status_code == 200
    answer = response.json()
    assert answer["text"]["key"] != first["key"]
    assert answer["status"]["annotated"] == 1 and answer["status"]["entities"] == 1
    assert answer["replaced"] is False
    assert session.store.train_path.read_text("utf8").count("PER") == 1
    again = client.get("/text", params={"key": first["key"]}).json()["text"]
    assert again["spans"] == [{**spans[0], "prob": None}]  # only proposals have a probability


def test_a_text_is_left_out_and_its_answer_removed(client: Any) -> None:
    key = client.get("/next").json()["text"]["key"]
    left_out = client.post("/answer", json={"key": key, "left_out": True}).json()
    assert left_out["status"]["left_out"] == 1
    assert client.post("/remove", json={"key": key}).json() == {"removed": True}
    assert client.get("/status").json()["left_out"] == 0


def test_the_second_of_two_tabs_is_warned(client: Any) -> None:
    key = client.get("/next").json()["text"]["key"]
    answer = {"key": key, "version": 0, "spans": []}
    assert client.post("/answer", json=answer).json()["replaced"] is False
    assert client.post("/answer", json=answer).json()["replaced"] is True


def test_the_page_sends_requests_only_to_its_server(client: Any) -> None:
    response = client.get("/")
    assert response.status_code == 200
    policy = response.text.partition("Content-Security-Policy")[2].partition(">")[0]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert "unsafe-inline" not in policy.partition("script-src ")[2].partition(";")[0]
    assert "http://" not in response.text and "https://" not in response.text
    assert response.headers["X-Frame-Options"] == "DENY"


def test_names_with_markup_are_no_markup_of_the_page(tmp_path: Path) -> None:
    session = make_session(tmp_path / "<b>x")
    session.labels = ["</script><script>alert(1)</script>"]
    with Client(make_app(session), base_url=LOCAL) as client:
        page = client.get("/").text
    assert "<script>alert(1)" not in page and "<b>x" not in page
    assert "alert(1)" in page and "&lt;b&gt;x" in page  # they are shown as text


REFUSED: dict[str, tuple[dict[str, str], int, str]] = {
    "another site": ({"Origin": "http://evil.example"}, 403, "Origin: expected the page of this"),
    "another port": ({"Origin": "http://127.0.0.1:1"}, 403, "Origin: expected the page of this"),
    "a file": ({"Origin": "null"}, 403, "Origin: expected the page of this server, got 'null'"),
    "a name for this computer": ({"Host": "evil.example:8765"}, 403, "expected this computer"),
    "no host": ({"Host": ""}, 403, "Host: expected this computer"),
    "a form": ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "application/json"),
    "plain text": ({"Content-Type": "text/plain"}, 415, "Content-Type: expected application/json"),
    "no type": ({"Content-Type": ""}, 415, "Content-Type: expected application/json"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_requests_of_others_are_refused(case: str, client: Any, session: AnnotationSession) -> None:
    headers, status, message = REFUSED[case]
    body = json.dumps({"key": "text-0", "spans": []})
    response = client.post("/answer", content=body, headers={**JSON, **headers})
    assert response.status_code == status
    assert message in response.json()["error"]
    assert not session.store.answers
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "localhost"])
def test_this_computer_has_several_names(host: str, client: Any) -> None:
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert client.get("/status", headers=headers).status_code == 200


BAD_BODIES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "expected JSON"),
    "half": (b'{"key": "text-0"', 400, "expected JSON"),
    "no UTF-8": (b'{"key": "\xff"}', 400, "expected JSON"),
    "too deep": (b"[" * 100_000, 400, "expected JSON"),
    "a list": (b"[]", 400, "expected a JSON object, got []"),
    "no key": (b"{}", 400, "key: expected str, got None"),
    "an unknown key": (b'{"key": "text-99"}', 404, "key: expected the key of a text"),
    "a surrogate": (b'{"key": "\\ud800"}', 400, "key: expected text that can be encoded in UTF-8"),
    "not a number of JSON": (b'{"key": "text-0", "version": NaN}', 400, "NaN isn't a JSON number"),
    "spans of text": (b'{"key": "text-0", "spans": "all"}', 400, "spans: expected list"),
    "a span of text": (b'{"key": "text-0", "spans": ["a"]}', 400, "spans: expected objects"),
    "true": (b'{"key": "text-0", "spans": [{"start": true}]}', 400, "start: expected int"),
    "an unknown label": (
        b'{"key": "text-0", "spans": [{"start": 0, "end": 1, "label": "<img src=x>"}]}',
        400,
        "label: expected one of",
    ),
    "a huge number": (
        b'{"key": "text-0", "spans": [{"start": 0, "end": 1' + b"0" * 99 + b', "label": "PER"}]}',
        400,
        "expected a start before its end",
    ),
    "too large": (b" " * (MAX_BODY + 1), 413, "expected at most 4,000,000 bytes"),
}


@pytest.mark.parametrize("case", BAD_BODIES)
def test_a_bad_body_gets_a_clear_line(case: str, client: Any, session: AnnotationSession) -> None:
    body, status, message = BAD_BODIES[case]
    response = client.post("/answer", content=body, headers=JSON)
    assert response.status_code == status, response.text
    assert message in response.json()["error"]
    assert not session.store.answers


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(["key", "spans", "version", "left_out", "start", "end", "label"]),
            values,
        )
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES, path=st.sampled_from(["/answer", "/remove"]))
def test_json_of_any_kind_never_stops_the_server(
    value: Any, path: str, client: Any, session: AnnotationSession
) -> None:
    # A key that is in no answer may be removed, which changes nothing. All else is refused.
    response = client.post(path, content=json.dumps(value), headers=JSON)
    assert response.status_code in (400, 404) or response.json() == {"removed": False}
    assert not session.store.answers


VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "number": 7,
    "fraction": 1.5,
    "text": "Ana left",
    "half a character": "\ud800",
    "list": [],
    "list of numbers": [1],
    "object": {},
    "nested": [[[[{"a": [1]}]]]],
}
"""A value of each type."""

CONFIG = """<View><Labels name="label" toName="body"><Label value="PER"/></Labels>
<Text name="body" value="$sentence"/></View>"""


def annotation_request(action: str, **more: Any) -> dict[str, Any]:
    """A webhook of Label Studio, with the annotation of a task."""
    value = {"start": 0, "end": 3, "text": "Ana", "labels": ["PER"]}
    names = {"from_name": "label", "to_name": "body", "type": "labels"}
    annotation = {"id": 1, "updated_at": "2026-01-01", "result": [{**names, "value": value}]}
    task = {"id": 7, "data": {"sentence": "Ana left"}, "updated_at": "2026-01-01"}
    request = {"annotation": annotation, "task": task, "project": {"label_config": CONFIG}}
    return {"action": action, **request, **more}


SAVED_BY_WEBHOOK = annotation_request("ANNOTATION_CREATED")
TASK_WITH_ANNOTATION = {
    **SAVED_BY_WEBHOOK["task"],
    "annotations": [SAVED_BY_WEBHOOK["annotation"]],
}
SAVED_SEVERAL = {**SAVED_BY_WEBHOOK, "annotations": [SAVED_BY_WEBHOOK["annotation"]]}
ANSWER = {"key": "text-0", "version": 0, "spans": [{"start": 1, "end": 2, "label": "PER"}]}
PREDICT = {"label_config": CONFIG, "tasks": [TASK_WITH_ANNOTATION]}
DELETED = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 1}]}
DELETED_TASKS = {"action": "TASKS_DELETED", "tasks": [{"id": 7}]}
NOTHING: set[str] = set()
ANY = {*VALUES}
"""The field has other values, too, that aren't read, or whose errors are noted in the status."""

FIELDS: list[tuple[str, dict[str, Any], str, set[str]]] = [
    ("answer", ANSWER, "key", NOTHING),
    ("answer", ANSWER, "version", {"number"}),
    ("answer", {**ANSWER, "left_out": True}, "left_out", {"true"}),
    ("answer", ANSWER, "spans", {"list"}),
    ("answer", ANSWER, "spans.0", NOTHING),
    ("answer", ANSWER, "spans.0.start", NOTHING),
    ("answer", ANSWER, "spans.0.end", {"number"}),
    ("answer", ANSWER, "spans.0.label", NOTHING),
    ("remove", {"key": "text-0"}, "key", {"text"}),
    ("setup", {"schema": CONFIG}, "schema", NOTHING),
    ("predict", PREDICT, "label_config", NOTHING),
    ("predict", PREDICT, "tasks", {"list"}),
    ("predict", PREDICT, "tasks.0", NOTHING),
    ("predict", PREDICT, "tasks.0.id", {"null", "number"}),
    ("predict", PREDICT, "tasks.0.data", NOTHING),
    ("predict", PREDICT, "tasks.0.data.sentence", {"text"}),
    ("predict", PREDICT, "tasks.0.updated_at", {"null", "text"}),
    ("predict", PREDICT, "tasks.0.annotations", {"null", "list", "list of numbers"}),
    ("predict", PREDICT, "tasks.0.annotations.0", {"number"}),
    ("predict", PREDICT, "tasks.0.annotations.0.id", {"number"}),
    ("predict", PREDICT, "tasks.0.annotations.0.updated_at", ANY),
    ("predict", PREDICT, "tasks.0.annotations.0.result", ANY),
    ("webhook", SAVED_BY_WEBHOOK, "action", {"text"}),
    ("webhook", SAVED_BY_WEBHOOK, "task", NOTHING),
    ("webhook", SAVED_BY_WEBHOOK, "task.id", {"number"}),
    ("webhook", SAVED_BY_WEBHOOK, "task.data", NOTHING),
    ("webhook", SAVED_BY_WEBHOOK, "task.data.sentence", {"text"}),
    ("webhook", SAVED_BY_WEBHOOK, "annotation", NOTHING),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.id", {"number"}),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.updated_at", {"null", "text"}),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.was_cancelled", ANY),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.result", {"list"}),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.result.0", {"object"}),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.result.0.from_name", NOTHING),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.result.0.to_name", NOTHING),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.result.0.value", NOTHING),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.result.0.value.start", NOTHING),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.result.0.value.end", {"number"}),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.result.0.value.labels", {"text"}),
    ("webhook", SAVED_BY_WEBHOOK, "annotation.result.0.value.text", ANY),
    ("webhook", SAVED_SEVERAL, "annotations", {"null"}),
    ("webhook", SAVED_BY_WEBHOOK, "project", {"object"}),
    ("webhook", SAVED_BY_WEBHOOK, "project.label_config", NOTHING),
    ("webhook", DELETED, "annotations", NOTHING),
    ("webhook", DELETED, "annotations.0", NOTHING),
    ("webhook", DELETED, "annotations.0.id", {"number"}),
    ("webhook", DELETED_TASKS, "tasks", NOTHING),
    ("webhook", DELETED_TASKS, "tasks.0.id", {"number"}),
]
"""Each field of each request: the address, a valid request, the path of the field, and the names in
`VALUES` of its valid values."""


def replaced(value: Any, path: list[str], new_value: Any) -> Any:
    """A copy of a value of JSON with another value in one place."""
    if not path:
        return new_value
    first, *rest = path
    if isinstance(value, list):
        place = int(first)
        return [*value[:place], replaced(value[place], rest, new_value), *value[place + 1 :]]
    return {**value, first: replaced(value.get(first), rest, new_value)}


@pytest.mark.filterwarnings("ignore:not saved")
@pytest.mark.parametrize(
    ("address", "request_body", "place", "allowed"),
    FIELDS,
    ids=[f"{address} {place}" for address, _, place, _ in FIELDS],
)
def test_a_value_of_another_type_is_refused(
    address: str, request_body: dict[str, Any], place: str, allowed: set[str], client: Any
) -> None:
    """An error of the server is never the answer. Without a change the request is right."""
    assert client.post(f"/{address}", json=request_body).status_code == 200
    for name, value in VALUES.items():
        body = json.dumps(replaced(request_body, place.split("."), value))
        response = client.post(f"/{address}", content=body, headers=JSON)
        if name in allowed:
            assert response.status_code in (200, 400), (name, response.text)
        else:
            assert response.status_code in (400, 404), (name, response.text)
            assert response.json()["error"]
    assert client.get("/status").status_code == 200


def test_half_a_character_in_an_answer_of_label_studio_is_kept(
    client: Any, session: AnnotationSession
) -> None:
    """In the text of a span, which nothing reads. In the file it has an escape."""
    body = annotation_request("ANNOTATION_CREATED")
    body["annotation"]["result"][0]["value"]["note"] = "\ud800"
    response = client.post("/webhook", content=json.dumps(body), headers=JSON)
    assert response.status_code == 200
    (answer,) = AnnotationStore(session.store.folder).answers.values()
    (span,) = answer.task.spans or ()
    assert span.extra["note"] == "\ud800"


def test_values_that_are_nested_too_deeply_are_refused(
    client: Any, session: AnnotationSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python may read JSON that it can't show or write: which, depends on its version and stack."""

    def fail(key: str) -> bool:
        raise RecursionError

    monkeypatch.setattr(session, "remove", fail)
    response = client.post("/remove", json={"key": "text-0"})
    assert response.status_code == 400 and "nested too deeply" in response.json()["error"]


def test_a_full_disk_is_reported_and_the_text_stays(
    client: Any, session: AnnotationSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    key = client.get("/next").json()["text"]["key"]
    with monkeypatch.context() as patch:
        patch.setattr(answer_file.os, "fsync", fail)
        response = client.post("/answer", json={"key": key, "spans": []})
    assert response.status_code == 507
    assert "not saved" in response.json()["error"] and "No space left" in response.json()["error"]
    assert client.get("/next").json()["text"]["key"] == key


def test_requests_without_the_token_are_refused(session: AnnotationSession) -> None:
    bearer = {"Authorization": "Bearer s3cret"}
    password = {"Authorization": "Basic eDpzM2NyZXQ="}  # x:s3cret
    with Client(make_app(session, token="s3cret"), base_url="http://box:9000") as client:
        assert client.get("/status").status_code == 401
        assert client.get("/", params={"token": "wrong"}).status_code == 401
        for not_base64 in (b"!", b"\xe9"):
            basic = {"Authorization": b"Basic " + not_base64}
            assert client.get("/status", headers=basic).status_code == 401
        assert client.get("/status", headers=bearer).status_code == 200
        assert client.get("/status", headers=password).status_code == 200

        page = client.get("/", params={"token": "s3cret"})
        assert page.status_code == 200 and "token" not in str(page.url)
        assert client.get("/status").status_code == 200  # by the cookie
        foreign = client.get("/status", headers={"Origin": "http://evil.example"})
        assert foreign.status_code == 403


def test_a_mounted_app_takes_the_token_from_the_address_of_its_page(
    session: AnnotationSession,
) -> None:
    outer_app = Starlette()
    outer_app.mount("/annotate", make_app(session, token="s3cret"))
    with Client(outer_app, base_url="http://box:9000") as client:
        page = client.get("/annotate/", params={"token": "s3cret"})
        assert page.status_code == 200
        assert str(page.url) == "http://box:9000/annotate/"
        assert client.get("/annotate/status").status_code == 200  # by the cookie


TOKENS = ["s3cret", "a+b&c#d%20e=/?", "schl\u00fcssel", "\u9375", "\U0001f511; x", '"', "two words"]


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_may_have_any_characters(token: str, session: AnnotationSession) -> None:
    """In the printed address, in the cookie that follows, as Bearer token and as password."""
    address = page_address("box", 9000, token)
    assert address.startswith("http://box:9000/?token=") and address.isascii()
    with Client(make_app(session, token=token), base_url="http://box:9000") as client:
        assert client.get("/status").status_code == 401
        bearer = {"Authorization": b"Bearer " + token.encode()}
        assert client.get("/status", headers=bearer).status_code == 200
        password = {"Authorization": b"Basic " + base64.b64encode(f"x:{token}".encode())}
        assert client.get("/status", headers=password).status_code == 200
        for wrong in (b"", b"\xff", "\u9376".encode(), token.encode()[:-1]):
            header = {"Authorization": b"Bearer " + wrong}
            assert client.get("/status", headers=header).status_code == 401
        page = client.get(address)
        assert page.status_code == 200 and "token" not in str(page.url)
        assert client.get("/status").status_code == 200  # by the cookie


def test_a_token_may_be_sent_in_latin_1(session: AnnotationSession) -> None:
    """Some clients send headers in Latin-1."""
    with Client(make_app(session, token="schl\u00fcssel"), base_url="http://box") as client:
        bearer = {"Authorization": b"Bearer schl\xfcssel"}
        assert client.get("/status", headers=bearer).status_code == 200


def test_a_token_that_cannot_be_utf_8_is_refused(
    session: AnnotationSession, tmp_path: Path
) -> None:
    """A terminal in another encoding gives half of surrogate pairs."""
    with pytest.raises(ValueError, match=r"^token: expected text that can be encoded in UTF-8$"):
        make_app(session, token="\udce9")
    result = run("serve", tmp_path / "s", "--labels", "PER", "--token", "\udce9")
    assert result.exit_code == 1
    assert "--token: expected text that can be encoded in UTF-8" in result.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", "http://127.0.0.1:7/"), ("::1", "http://[::1]:7/")]
)
def test_an_address_without_a_token(host: str, expected: str) -> None:
    assert page_address(host, 7, None) == expected


def test_an_empty_token_is_no_token(session: AnnotationSession) -> None:
    with Client(make_app(session, token=""), base_url="http://box:9000") as client:
        assert client.get("/status").status_code == 403


# The command


def write_texts(folder: Path, n: int = 40) -> Path:
    path = folder / "raw.txt"
    path.write_text("\n".join(make_texts(n)))
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--texts", "raw.txt"], "--labels: expected labels in a new session, such as PER,ORG"),
        (["--labels", "PER"], "--texts: expected texts in a new session, got none"),
        (["--labels", ","], "--labels: expected labels in a new session"),
        (["--host", "0.0.0.0"], "--host: expected a --token"),
        (["--labels", "PER", "--texts", "empty.txt"], "empty.txt, line 1: expected text, got an"),
        (
            ["--labels", "PER", "--texts", "long.txt"],
            "long.txt, line 2: expected a text that spaCy",
        ),
        (
            ["--labels", "PER", "--texts", "raw.txt", "--final", "model"],
            "expected at least 10 annotated texts with an entity, got 0 texts",
        ),
    ],
)
def test_the_command_says_what_is_missing(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path)
    Path("empty.txt").write_text("")
    Path("long.txt").write_text("Ana left\n" + "a " * 600_000)
    result = run("serve", "session", *arguments)
    assert result.exit_code == 1 and message in result.stderr, result.output


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    texts = write_texts(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        arguments = ["--labels", "PER", "--texts", texts, "--port", port]
        result = run("serve", tmp_path / "s", *arguments)
    assert result.exit_code == 1
    assert f"--port: expected a free port at 127.0.0.1, got {port}" in result.stderr


def test_the_language_of_a_session_stays(tmp_path: Path) -> None:
    texts = write_texts(tmp_path)
    # This makes the session. It doesn't serve, as --final is refused: nothing is annotated.
    run("serve", tmp_path / "s", "--labels", "A", "--lang", "en", "--texts", texts, "--final", "m")
    result = run("serve", tmp_path / "s", "--lang", "es")
    assert result.exit_code == 1
    assert "--lang: expected 'en', the language of the session, got 'es'" in result.stderr


def test_the_last_training_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = make_session(tmp_path / "s")
    session.store.save_settings({"labels": session.labels, "lang": LANG})
    answer_next(session, 20)
    result = run("serve", "s", "--final", "final")
    assert result.exit_code == 0, result.output
    message = "trained on all 20 annotated texts: none is left to evaluate this pipeline"
    assert message in result.stdout
    nlp = spacy.load(tmp_path / "final")
    # Rare words of the texts aren't saved with it; frequent ones have a vector.
    assert "37" not in nlp.vocab.strings and "Yesterday" in nlp.vocab.strings
    doc = nlp("Yesterday Ana left Oslo with bag 1 .")
    assert [ent.text for ent in doc.ents] == ["Ana", "Oslo"]


@pytest.mark.slow
def test_without_starlette_the_command_says_what_to_install(tmp_path: Path) -> None:
    """In a process of its own, where the module can't be imported."""
    texts = write_texts(tmp_path)
    arguments = ["costner", "serve", str(tmp_path / "s"), "--labels", "PER", "--texts", str(texts)]
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "from spacy.cli import setup_cli\n"
        f"sys.argv = ['spacy', *{arguments}]\n"
        "setup_cli()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    line = result.stderr.strip().splitlines()[-1]
    assert line.endswith("starlette and uvicorn: pip install 'spacy-costner[serve]'"), result.stderr
    assert "Traceback" not in result.stderr
    # That is said before anything is read or written.
    assert not result.stdout and not (tmp_path / "s").exists()


def test_repeated_and_empty_texts_are_counted(tmp_path: Path) -> None:
    texts = make_texts(40)
    path = tmp_path / "raw.jsonl"
    lines = [*texts, f"  {texts[0]}", texts[1].replace(" ", "  "), " "]
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    # Nothing is annotated, so the last training is refused, after the texts were read.
    arguments = ["--labels", "PER", "--texts", path, "--final", tmp_path / "model"]

    first = run("serve", tmp_path / "s", *arguments)
    again = run("serve", tmp_path / "s", *arguments)

    added, counted = first.stdout.splitlines()
    assert added == f"40 texts added from {path}; 3 skipped, because they are repeated or empty"
    # At least 30 texts are for evaluation, but at most half of all: 20.
    assert counted == "40 texts, 20 of them evaluation texts; 0 have answers"
    added, _ = again.stdout.splitlines()
    assert added == f"0 texts added from {path}; 43 skipped, because they are repeated or empty"
