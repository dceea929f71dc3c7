"""Kill a server of `costner serve` while it answers and trains, and send it hostile requests.

python -m tests.hostile_serve 20 500

kills it 20 times and sends 500 requests. A few of each are a test: `serve/test_hostile.py`.
"""

import http.client
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from spacy_costner.serve.session import AnnotationSession
from spacy_costner.serve.session_vectors import RAW_FILE
from spacy_costner.serve.store import WORKING, AnnotationStore
from spacy_costner.workflows.vectors import DIR_VECTORS

from .support.annotation import LANG, NAMES, TOWNS, make_texts
from .support.serving import served

N_TEXTS = 512
LABELS = ["PER", "LOC"]
OPTIONS = ("--labels", ",".join(LABELS), "--lang", LANG)

MARKUP = [
    "<script>document.title='hacked'</script>",
    "<img src=x onerror=document.title='hacked'>",
    "\"'><svg onload=alert(1)>",
    "{{ 7 * 7 }}",
    "\u0000\u202e\ud83d\ude00",
]

Span = dict[str, Any]
"""An entity, as the page sends it."""


def ask(
    address: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Send a request to a server. Returns the status and the JSON of the answer, or its bytes."""
    host = address.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        data = body
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
        connection.request(
            method, path, data, {"Content-Type": "application/json", **(headers or {})}
        )
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    try:
        return response.status, json.loads(answer)
    except ValueError:
        return response.status, answer


def gold_spans(text: dict[str, Any]) -> list[Span]:
    """The entities of a text that the server sends."""
    spans: list[Span] = []
    for i, (word, _) in enumerate(text["tokens"]):
        if word in NAMES:
            spans.append({"start": i, "end": i + 1, "label": "PER"})
        if word in TOWNS:
            spans.append({"start": i, "end": i + 1, "label": "LOC"})
    return spans


def write_texts(folder: Path, n: int) -> Path:
    """Write a file of different texts."""
    path = folder / "raw.txt"
    path.write_text("\n".join(make_texts(n)))
    return path


def annotate_until_killed(address: str, acknowledged: dict[str, int]) -> None:
    """Annotate texts until the server doesn't answer. Now and then an answer is changed: the
    entities of a text are left out, or are there again.

    address (str): Where the server is.
    acknowledged (dict[str, int]): Gets the number of entities of each answer that the server has
        acknowledged, by the key of the text. -1: one is under way, whose fate nobody knows.
    """
    try:
        text = ask(address, "GET", "/next")[1]["text"]
        while text is not None:
            spans = gold_spans(text)
            key = text["key"]
            answers_to_send = [spans]
            if random.random() < 0.3:
                answers_to_send = [[], spans]
            for spans_sent in answers_to_send:
                acknowledged[key] = -1
                status, answer = ask(address, "POST", "/answer", {"key": key, "spans": spans_sent})
                assert status == 200, answer
                acknowledged[key] = len(spans_sent)
            text = answer["text"]
    except (OSError, http.client.HTTPException):
        return


def kill_often(folder: Path, n_kills: int) -> int:
    """Kill a server at random moments, and start it again.

    folder (Path): An empty folder.
    n_kills (int): How often.
    RETURNS (int): The number of answers that it has acknowledged. All of them are in its files, as
        they were. No text is in a file outside of the folder of the session, nor in a temporary one
        when the next session begins.
    """
    texts = write_texts(folder, N_TEXTS)
    temporary = folder / "temporary"
    temporary.mkdir()
    session = folder / "session"
    acknowledged: dict[str, int] = {}
    for i in range(n_kills):
        options = [*OPTIONS, "--texts", str(texts)] if i == 0 else []
        with served(session, *options, temporary=temporary) as (process, address):
            timer = threading.Timer(random.uniform(0.0, 6.0), process.kill)
            timer.start()
            annotate_until_killed(address, acknowledged)
            process.wait()
            timer.cancel()
        store = AnnotationStore(session)
        answers = store.answers
        assert not any(temporary.iterdir()), f"kill {i}: {list(temporary.iterdir())}"
        # This clears the folder, as each start does.
        AnnotationSession(store, labels=LABELS, lang=LANG)
        hidden_names = [path.name for path in session.rglob("*") if path.name.startswith(".")]
        assert not hidden_names, f"kill {i}: {hidden_names}"
        for key, n_spans in acknowledged.items():
            if n_spans >= 0:
                assert key in answers, f"kill {i}: the answer to {key} is lost"
                assert len(answers[key].task.spans or ()) == n_spans, f"kill {i}: {key}"
        # What was under way is in the file, or it isn't.
        for key in [key for key, n_spans in acknowledged.items() if n_spans < 0]:
            if key in answers:
                acknowledged[key] = len(answers[key].task.spans or ())
            else:
                del acknowledged[key]
        assert set(answers) == set(acknowledged)
        print(f"kill {i + 1}: {len(answers)} answers", flush=True)
    return len(acknowledged)


def hostile_request(rng: random.Random) -> tuple[str, str, Any, dict[str, str]]:
    """A request that has to be refused: its method, path, body and headers."""
    path = rng.choice(["/answer", "/remove", "/predict", "/setup", "/webhook"])
    markup = rng.choice(MARKUP)
    good = {"key": "text-0", "spans": [], "version": 0}
    kind = rng.randrange(8)
    if kind == 0:  # of another site
        origin = rng.choice(["https://evil.example", "null", "http://127.0.0.1:1", markup[:7]])
        return "POST", path, good, {"Origin": origin.encode("ascii", "ignore").decode()}
    if kind == 1:  # a name that points here
        return "POST", path, good, {"Host": rng.choice(["evil.example", "127.0.0.1.evil", ""])}
    if kind == 2:  # a form
        types = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
        return "POST", path, good, {"Content-Type": rng.choice(types)}
    if kind == 3:  # no JSON
        return "POST", path, rng.randbytes(rng.randrange(2000)), {}
    if kind == 4:  # too large, or too deep
        body = rng.choice([b" " * 4_000_001, b"[" * 200_000, b'{"a":' * 50_000])
        return "POST", "/answer", body, {}
    if kind == 5:  # labels and keys with markup
        span = {"start": rng.choice([0, -1, 10**30]), "end": rng.choice([1, 0]), "label": markup}
        return "POST", "/answer", {"key": rng.choice(["text-0", markup]), "spans": [span]}, {}
    if kind == 6:  # values of other types
        value = rng.choice([None, True, 1e308, [], {}, markup, "\ud800", [[1]], {"id": markup}])
        names = ["key", "spans", "tasks", "label_config", "schema", "task", "annotation"]
        names += ["annotations", "project", "action"]
        body = {name: value for name in rng.sample(names, 4)}
        if path == "/webhook":
            body["action"] = "ANNOTATION_CREATED"
        if path == "/remove":
            body["key"] = value if not isinstance(value, str) else None
        return "POST", path, body, {}
    method = rng.choice(["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
    return (
        method,
        rng.choice(["/", "/answer", "/../../etc/passwd", "/%00", "/" + "a" * 9000]),
        {},
        {},
    )


def attack(folder: Path, n_requests: int, seed: int = 0) -> dict[int, int]:
    """Send hostile requests to a server.

    folder (Path): An empty folder.
    n_requests (int): How many.
    seed (int): Their seed.
    RETURNS (dict[int, int]): How many got each status. None is above 499, the server prints
        nothing, and no file with texts or answers has changed.
    """
    session = folder / "session"
    rng = random.Random(seed)
    statuses: dict[int, int] = {}
    texts = write_texts(folder, 40)
    with served(session, *OPTIONS, "--texts", str(texts)) as (process, address):
        before = read_files(session)
        for _ in range(n_requests):
            request = hostile_request(rng)
            try:
                status, _ = ask(address, *request)
            except (OSError, http.client.HTTPException, ValueError):
                status = 0  # closed, or refused by our own client
            assert status < 500 and status != 200, (status, request)
            statuses[status] = statuses.get(status, 0) + 1
        assert ask(address, "GET", "/status")[1]["annotated"] == 0
        assert read_files(session) == before
        process.terminate()
        process.wait()
        assert process.stdout is not None
        printed = process.stdout.read()
        assert "Traceback" not in printed, printed[-2000:]
    return statuses


def read_files(session: Path) -> dict[str, bytes]:
    """The content of all files in the folder of a session, but for the vectors of words, which the
    server learns from the texts meanwhile, the texts that they were learned from, and temporary
    files."""
    contents: dict[str, bytes] = {}
    for path in session.rglob("*"):
        name = path.relative_to(session)
        # While a file or folder is written, its name begins with a dot.
        first_part = name.parts[0].lstrip(".")
        is_learned = first_part.startswith((str(DIR_VECTORS), RAW_FILE.name))
        is_learned = is_learned or name.parts[0].startswith(WORKING)
        if not is_learned and path.is_file():
            contents[str(name)] = path.read_bytes()
    return contents


def main(n_kills: int, n_requests: int) -> None:
    """Kill and attack in temporary folders, and say what happened."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{n_requests} hostile requests: {attack(Path(folder), n_requests)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        n_answers = kill_often(Path(folder), n_kills)
    print(f"{n_kills} kills, {n_answers} answers: none is lost. {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
