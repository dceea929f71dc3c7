"""An annotation session as a web app: the page of `costner serve`, and what it asks for.

An ASGI app, which can be mounted in another one. A local server can be reached by every web page
that its user has open. So `Origin` is checked, and `Host` or a token, requests that change
something have to be JSON of a limited size, and nothing is shared with other origins.

Needs the extra `serve`; nothing else imports this module.
"""

import base64
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn
from urllib.parse import quote, unquote_to_bytes

from ..pages.label_colours import label_colours
from ..pages.rendering import render
from ..readers.files import SHOWN, SURROGATE, shown
from .label_studio import LabelStudioBackend
from .session import ENOUGH_MEASURING, AnnotationSession, Proposal, ProposedSpan, UnknownTextError
from .store import SessionError, field

try:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError as error:
    raise ImportError(
        "costner serve: expected starlette and uvicorn, they are not installed: "
        "pip install 'spacy-costner[serve]'"
    ) from error

MOST_BYTES = 4_000_000
"""The largest body of a request. Longer texts are no texts to annotate."""

MOST_BYTES_OF_TASKS = 200_000_000
"""The largest body of a request for predictions: Label Studio sends all tasks at once."""

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""What a browser names in `Host` if it asks the loopback. Another name is that of a web page whose
owner has pointed it here ("DNS rebinding")."""

COOKIE = "spacy-costner-token"
"""The name of the cookie that keeps the token, in the form that addresses have."""

Endpoint = Callable[[Request], Awaitable[Response]]


class RefusedError(Exception):
    """A request that is refused.

    status (int): The status of HTTP.
    message (str): What was expected, and what came.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def make_app(session: AnnotationSession, *, token: str | None = None) -> ASGIApp:
    """Make the app of a session.

    session (AnnotationSession): The session. Its training has to be started by `start`.
    token (str | None): A secret that every request has to have: as the password of HTTP's Basic
        authentication, as Bearer token, or once in the address of the page, `/?token=...`. None or
        empty: only the loopback is served.
    RETURNS (ASGIApp): The app.
    RAISES (ValueError): If the token can't be UTF-8, in which requests have it.
    """
    if token and SURROGATE.search(token):
        raise ValueError("token: expected text that can be UTF-8")
    handlers = Handlers(session)
    routes = [
        Route("/", answered(handlers.page)),
        Route("/next", answered(handlers.next_text)),
        Route("/text", answered(handlers.text)),
        Route("/status", answered(handlers.status)),
        Route("/answer", answered(handlers.answer), methods=["POST"]),
        Route("/remove", answered(handlers.remove), methods=["POST"]),
        # What Label Studio asks a backend for
        Route("/health", answered(handlers.health)),
        Route("/setup", answered(handlers.ask_backend), methods=["POST"]),
        Route("/predict", answered(handlers.ask_backend), methods=["POST"]),
        Route("/webhook", answered(handlers.ask_backend), methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token or None)


class Guard:
    """Refuses requests that don't come from the page itself, before the app sees them.

    app (ASGIApp): The app.
    token (str | None): See `make_app`.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it: see `check`."""
        if scope["type"] != "http":  # the start and end of the server, websockets
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        try:
            self.check(request)
        except RefusedError as error:
            await error_response(error.status, str(error))(scope, receive, send)
            return
        if is_page(request) and self.token and "token" in request.query_params:
            await self._keep_token(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def check(self, request: Request) -> None:
        """Check that a request has the token or, if there is no token, that its host is the
        loopback; that it comes from no other page; and that it has JSON, if it may change
        something.

        RAISES (RefusedError): If one of these doesn't hold.
        """
        host = request.headers.get("host", "")
        if self.token is None:
            if without_port(host) not in LOCAL_HOSTS:
                raise RefusedError(
                    403, f"Host: expected this computer, {LOCAL_HOSTS[0]}, got {shown(host)}"
                )
        elif not self._has_token(request):
            raise RefusedError(401, "expected the token of the server: open its page as /?token=…")
        origin = request.headers.get("origin")
        if origin is not None:
            _, _, host_of_origin = origin.partition("://")
            if host_of_origin != host:
                expected = "expected the page of this server"
                raise RefusedError(403, f"Origin: {expected}, got {shown(origin)}")
        if request.method == "POST":
            # What follows is a parameter, such as the charset.
            content_type, _, _ = request.headers.get("content-type", "").partition(";")
            content_type = content_type.strip()
            if content_type != "application/json":
                raise RefusedError(
                    415, f"Content-Type: expected application/json, got {shown(content_type)}"
                )

    def _has_token(self, request: Request) -> bool:
        """Whether a request has the token of the server, in one of the places where it may be. Ask
        this only if the server has a token."""
        assert self.token is not None
        candidates = [unquote_to_bytes(request.cookies.get(COOKIE, ""))]
        if is_page(request):
            candidates.append(request.query_params.get("token", "").encode())
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            candidates += readings(value.encode("latin-1"))
        if kind.lower() == "basic":
            try:
                user_and_password = base64.b64decode(value)
            except ValueError:  # not Base64, or not even ASCII
                user_and_password = b""
            _, _, password = user_and_password.partition(b":")
            candidates += readings(password)
        token = self.token.encode()
        # In constant time: otherwise the time would tell how much of a guess is right.
        return any(secrets.compare_digest(candidate, token) for candidate in candidates)

    async def _keep_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep the token in a cookie, and show the page without it in the address. The request has
        the token, so there is one."""
        assert self.token is not None
        # The address is relative, as the app may be mounted under a path.
        response = Response(status_code=303, headers={"Location": "./"})
        # A cookie can't have all characters of a token.
        value = quote(self.token, safe="")
        response.set_cookie(COOKIE, value, httponly=True, samesite="strict")
        await response(scope, receive, send)


def readings(token: bytes) -> list[bytes]:
    """What a token in a header may be in UTF-8. Some clients send UTF-8, others Latin-1. Starlette
    reads headers as Latin-1, which any byte is."""
    return [token, token.decode("latin-1").encode()]


def is_page(request: Request) -> bool:
    """Whether a request asks for the page of the app. If the app is mounted in another one, the
    path of the request begins with the path that it is mounted under (`root_path`)."""
    path: str = request.scope["path"]
    mount_path: str = request.scope.get("root_path", "")
    return path.removeprefix(mount_path) == "/"


def without_port(host: str) -> str:
    """What stands in `Host` before the port: [::1] for "[::1]:8765", localhost for "localhost"."""
    name, colon, port = host.rpartition(":")
    # The colons of an IPv6 address are between brackets, and no port follows the last of them.
    has_port = colon and not port.endswith("]")
    return name if has_port else host


class AsciiJSONResponse(JSONResponse):
    """A response of JSON in ASCII: also half of a surrogate pair, which can't be UTF-8, has an
    escape."""

    def render(self, content: Any) -> bytes:
        """The bytes of a value."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def error_response(status: int, message: str) -> Response:
    """The response to a request that can't be fulfilled: a line as JSON."""
    return AsciiJSONResponse({"error": message}, status_code=status)


def answered(endpoint: Endpoint) -> Endpoint:
    """An endpoint whose errors are responses with a clear line."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RefusedError as error:
            return error_response(error.status, str(error))
        except UnknownTextError as error:
            return error_response(404, str(error))
        except SessionError as error:
            return error_response(400, str(error))
        except RecursionError:  # Reading it has succeeded, but what it has can't be shown or saved.
            return error_response(400, "expected JSON, got values that are nested too deeply")
        except OSError as error:  # a full disk, for example
            return error_response(507, f"not saved: {error}")
        except Exception as error:
            return error_response(500, f"{type(error).__name__}: {error}")

    return answer


async def read_json(request: Request, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Read the object of JSON that a request has.

    request (Request): The request.
    most_bytes (int): The largest size of its body.
    RAISES (RefusedError): If it is too large, or no such object.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most_bytes:
            raise RefusedError(413, f"expected at most {most_bytes:,} bytes of JSON, got more")
    try:
        value = json.loads(body, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            400, f"expected JSON, got {shown(bytes(body[:SHOWN]))}: {error}"
        ) from None
    if not isinstance(value, dict):
        raise RefusedError(400, f"expected an object of JSON, got {shown(value)}")
    return value


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinity, which Python reads, but JSON doesn't have.

    RAISES (ValueError): Always.
    """
    raise ValueError(f"{name} is no number of JSON")


def read_spans(record: dict[str, Any]) -> list[ProposedSpan]:
    """The entities of an answer: {"spans": [{"start": 0, "end": 2, "label": "PER"}]}, in tokens.
    Without "spans" there are none.

    RAISES (SessionError): If the spans are not of this form.
    """
    spans: list[ProposedSpan] = []
    for json_span in field(record, "spans", list, []):
        if not isinstance(json_span, dict):
            raise SessionError(f"spans: expected objects, got {shown(json_span)}")
        start = field(json_span, "start", int)
        end = field(json_span, "end", int)
        spans.append(ProposedSpan(start, end, field(json_span, "label", str)))
    return spans


class Handlers:
    """What the app does for each address.

    session (AnnotationSession): The session.
    """

    def __init__(self, session: AnnotationSession) -> None:
        self.session = session
        backend = LabelStudioBackend(session)
        self.backend_calls = {
            "setup": backend.setup,
            "predict": backend.predict,
            "webhook": backend.webhook,
        }

    async def page(self, request: Request) -> Response:
        """The page on which people annotate. It is not kept by the browser, as it has the labels of
        this session, and no other page may show it in a frame."""
        data = {
            "labels": self.session.labels,
            "colours": label_colours(self.session.labels),
            "enough_measuring": ENOUGH_MEASURING,
        }
        html = render("serve.html", data=data, folder=str(self.session.store.folder))
        headers = {"Cache-Control": "no-store", "X-Frame-Options": "DENY"}
        return HTMLResponse(html, headers=headers)

    async def next_text(self, request: Request) -> Response:
        """The next text to annotate."""
        return await self._next()

    async def _next(self, **more: Any) -> Response:
        """A response with the next text, how far the session is, and more fields."""

        # This may take a while. It runs in a thread, so that the server can answer other requests.
        def find() -> dict[str, Any]:
            proposal = self.session.next_text()
            return {"text": as_json(proposal), "status": self.session.status(), **more}

        return AsciiJSONResponse(await run_in_threadpool(find))

    async def text(self, request: Request) -> Response:
        """A text, to look at an answer again, or to change it."""
        key = request.query_params.get("key", "")

        def find() -> dict[str, Any]:
            proposal = self.session.proposal(key)
            return {"text": as_json(proposal), "status": self.session.status()}

        return AsciiJSONResponse(await run_in_threadpool(find))

    async def status(self, request: Request) -> Response:
        """How far the session is."""
        return AsciiJSONResponse(await run_in_threadpool(self.session.status))

    async def answer(self, request: Request) -> Response:
        """Save an answer. Respond with the next text, and whether an answer that wasn't shown was
        replaced."""
        record = await read_json(request)
        key = field(record, "key", str)
        spans = read_spans(record)
        is_left_out = field(record, "left_out", bool, False)
        # The version of the answer that the page has shown, 0 if it has shown none
        seen_version = field(record, "version", int, 0)

        def save() -> bool:
            return self.session.answer(
                key, spans, is_left_out=is_left_out, seen_version=seen_version
            )

        is_replaced = await run_in_threadpool(save)
        return await self._next(replaced=is_replaced)

    async def remove(self, request: Request) -> Response:
        """Remove the answer to a text."""
        record = await read_json(request)
        key = field(record, "key", str)
        was_there = await run_in_threadpool(self.session.remove, key)
        return AsciiJSONResponse({"removed": was_there})

    async def health(self, request: Request) -> Response:
        """Say to Label Studio that the server is up."""
        return AsciiJSONResponse({"status": "UP", "model_class": "spacy_costner"})

    async def ask_backend(self, request: Request) -> Response:
        """Answer a call of Label Studio. The last part of the address is the name of the call."""
        _, _, name = request.url.path.rpartition("/")
        most_bytes = MOST_BYTES_OF_TASKS if name == "predict" else MOST_BYTES
        record = await read_json(request, most_bytes)
        return AsciiJSONResponse(await run_in_threadpool(self.backend_calls[name], record))


def as_json(proposal: Proposal | None) -> dict[str, Any] | None:
    """A text for the page; None if there is none."""
    return None if proposal is None else proposal.as_dict()
