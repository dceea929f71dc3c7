"""An annotation session as a web app: the page of `costner serve` and its endpoints.

This is an ASGI app, which can be mounted in another app. Any web page open in the user's browser
can send requests to a local server. The app therefore checks `Origin` and either `Host` or a token.
POST requests must contain JSON of limited size, and responses aren't shared with other origins.

This module requires the extra `serve`. Other modules only import it inside functions.
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
from .proposals import Proposal, ProposedSpan
from .session import AnnotationSession, UnknownTextError
from .session_training import ENOUGH_EVALUATION_TEXTS
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
        "costner serve: starlette and uvicorn are not installed: pip install 'spacy-costner[serve]'"
    ) from error

MAX_BODY = 4_000_000
"""Maximum size of a request body, in bytes. No text to annotate is likely to be longer."""

MAX_BODY_WITH_TASKS = 200_000_000
"""Maximum size of the body of a prediction request, in bytes. Label Studio sends all tasks in one
request."""

LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""The allowed values of `Host` in requests to the loopback address. Other values may come from a
web page whose domain resolves to this computer (DNS rebinding)."""

COOKIE = "spacy-costner-token"
"""The name of the cookie that stores the percent-encoded token."""

Endpoint = Callable[[Request], Awaitable[Response]]


class RefusedError(Exception):
    """Raised if a request is refused.

    status (int): The HTTP status code of the response.
    message (str): The error message, with the expected and the actual value.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def make_app(session: AnnotationSession, *, token: str | None = None) -> ASGIApp:
    """Create the app for a session.

    session (AnnotationSession): The session. Call its `start` method to train in the background.
    token (str | None): A secret that every request must provide, either as the password of HTTP
        Basic authentication or as a bearer token. Alternatively, it can be passed once in the URL
        of the page, as in `/?token=...`, which sets a cookie. If it is None or empty, only requests
        to the loopback address are served.
    RETURNS (ASGIApp): The app.
    RAISES (ValueError): If the token can't be encoded in UTF-8.
    """
    if token and SURROGATE.search(token):
        raise ValueError("token: expected text that can be encoded in UTF-8")
    handlers = Handlers(session)
    routes = [
        Route("/", answered(handlers.page)),
        Route("/next", answered(handlers.next_text)),
        Route("/text", answered(handlers.text)),
        Route("/status", answered(handlers.status)),
        Route("/answer", answered(handlers.answer), methods=["POST"]),
        Route("/remove", answered(handlers.remove), methods=["POST"]),
        # The endpoints of a Label Studio backend
        Route("/health", answered(handlers.health)),
        Route("/setup", answered(handlers.call_backend), methods=["POST"]),
        Route("/predict", answered(handlers.call_backend), methods=["POST"]),
        Route("/webhook", answered(handlers.call_backend), methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token or None)


class Guard:
    """ASGI middleware that refuses requests without the token or from other web pages.

    app (ASGIApp): The app to protect.
    token (str | None): The token. If it is None, only requests to the loopback address are allowed.
        See `make_app`.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or refuse it if it fails the checks in `check`."""
        if scope["type"] != "http":  # lifespan events, websockets
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
        """Check that a request contains the token or, if the server has no token, is sent to the
        loopback address. Also check that it doesn't come from another web page, and that the
        content type of a POST request is JSON.

        RAISES (RefusedError): If a check fails.
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
            # The content type may be followed by parameters such as the charset.
            content_type, _, _ = request.headers.get("content-type", "").partition(";")
            content_type = content_type.strip()
            if content_type != "application/json":
                raise RefusedError(
                    415, f"Content-Type: expected application/json, got {shown(content_type)}"
                )

    def _has_token(self, request: Request) -> bool:
        """Check whether a request contains the server's token in a cookie, in the URL of the page,
        or in the `Authorization` header. The server must have a token."""
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
            except ValueError:  # not valid Base64, or not ASCII
                user_and_password = b""
            _, _, password = user_and_password.partition(b":")
            candidates += readings(password)
        token = self.token.encode()
        # Compare in constant time. Otherwise, the timing would reveal how much of a guess is
        # correct.
        return any(secrets.compare_digest(candidate, token) for candidate in candidates)

    async def _keep_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set a cookie with the token and redirect to the URL without the token. The server must
        have a token."""
        assert self.token is not None
        # The URL is relative because the app may be mounted under a path.
        response = Response(status_code=303, headers={"Location": "./"})
        # A token may contain characters that aren't allowed in a cookie.
        value = quote(self.token, safe="")
        response.set_cookie(COOKIE, value, httponly=True, samesite="strict")
        await response(scope, receive, send)


def readings(token: bytes) -> list[bytes]:
    """Return the possible UTF-8 encodings of a token in a header. Clients may send the token as
    UTF-8 or as Latin-1, and any bytes are valid Latin-1."""
    return [token, token.decode("latin-1").encode()]


def is_page(request: Request) -> bool:
    """Check whether a request is for the app's page. If the app is mounted in another app, the path
    of the request starts with the mount path (`root_path`)."""
    path: str = request.scope["path"]
    mount_path: str = request.scope.get("root_path", "")
    return path.removeprefix(mount_path) == "/"


def without_port(host: str) -> str:
    """Remove the port from the value of a `Host` header. For example, "[::1]:8765" becomes "[::1]",
    and "localhost" remains unchanged."""
    name, colon, port = host.rpartition(":")
    # IPv6 addresses also contain colons, but are enclosed in brackets.
    has_port = colon and not port.endswith("]")
    return name if has_port else host


class AsciiJSONResponse(JSONResponse):
    """A JSON response in ASCII. Lone surrogates, which UTF-8 can't encode, are escaped."""

    def render(self, content: Any) -> bytes:
        """Serialize a value to JSON bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def error_response(status: int, message: str) -> Response:
    """Create a JSON response with an error message."""
    return AsciiJSONResponse({"error": message}, status_code=status)


def answered(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint to convert its errors to JSON responses with a one-line message."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RefusedError as error:
            return error_response(error.status, str(error))
        except UnknownTextError as error:
            return error_response(404, str(error))
        except SessionError as error:
            return error_response(400, str(error))
        except RecursionError:  # the JSON was parsed, but is nested too deeply to save
            return error_response(400, "expected JSON, got values that are nested too deeply")
        except OSError as error:  # for example a full disk
            return error_response(507, f"not saved: {error}")
        except Exception as error:
            return error_response(500, f"{type(error).__name__}: {error}")

    return answer


async def read_json(request: Request, most_bytes: int = MAX_BODY) -> dict[str, Any]:
    """Read the JSON object in the body of a request.

    RAISES (RefusedError): If the body has more than `most_bytes` bytes or isn't a JSON object.
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
        raise RefusedError(400, f"expected a JSON object, got {shown(value)}")
    return value


def refuse_constant(name: str) -> NoReturn:
    """Reject NaN and infinity, which Python's parser accepts but which aren't valid JSON.

    RAISES (ValueError): Always.
    """
    raise ValueError(f"{name} isn't a JSON number")


def read_answer_spans(record: dict[str, Any]) -> list[ProposedSpan]:
    """Read the entities of an answer, such as {"spans": [{"start": 0, "end": 2, "label": "PER"}]}.
    The offsets are in tokens. If "spans" is missing, the answer has no entities.

    RAISES (SessionError): If the spans don't have this format.
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
    """The request handlers of the app.

    session (AnnotationSession): The annotation session to serve.
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
        """Return the annotation page. It must not be cached, because it contains the labels of this
        session, and must not be embedded in a frame."""
        data = {
            "labels": self.session.labels,
            "colours": label_colours(self.session.labels),
            "enough_measuring": ENOUGH_EVALUATION_TEXTS,
        }
        html = render("serve.html", data=data, folder=str(self.session.store.folder))
        headers = {"Cache-Control": "no-store", "X-Frame-Options": "DENY"}
        return HTMLResponse(html, headers=headers)

    async def next_text(self, request: Request) -> Response:
        """Return the next text to annotate and the progress of the session."""
        return await self._next()

    async def _next(self, **more: Any) -> Response:
        """Create a response with the next text, the progress of the session, and the additional
        fields `more`."""

        # Predicting may be slow, so run it in a thread to keep the server responsive.
        def find() -> dict[str, Any]:
            proposal = self.session.next_text()
            return {"text": proposal_json(proposal), "status": self.session.status(), **more}

        return AsciiJSONResponse(await run_in_threadpool(find))

    async def text(self, request: Request) -> Response:
        """Return the text with the key in the query, so that the page can show or change its
        answer."""
        key = request.query_params.get("key", "")

        def find() -> dict[str, Any]:
            proposal = self.session.proposal(key)
            return {"text": proposal_json(proposal), "status": self.session.status()}

        return AsciiJSONResponse(await run_in_threadpool(find))

    async def status(self, request: Request) -> Response:
        """Return the progress of the session."""
        return AsciiJSONResponse(await run_in_threadpool(self.session.status))

    async def answer(self, request: Request) -> Response:
        """Save an answer. The response contains the next text, and whether the answer replaced one
        that the page hadn't shown."""
        record = await read_json(request)
        key = field(record, "key", str)
        spans = read_answer_spans(record)
        is_left_out = field(record, "left_out", bool, False)
        # The version of the answer that the page has shown, or 0 if the text had no answer
        seen_version = field(record, "version", int, 0)

        def save() -> bool:
            return self.session.answer(
                key, spans, is_left_out=is_left_out, seen_version=seen_version
            )

        is_replaced = await run_in_threadpool(save)
        return await self._next(replaced=is_replaced)

    async def remove(self, request: Request) -> Response:
        """Remove the answer for a text."""
        record = await read_json(request)
        key = field(record, "key", str)
        was_there = await run_in_threadpool(self.session.remove, key)
        return AsciiJSONResponse({"removed": was_there})

    async def health(self, request: Request) -> Response:
        """Report to Label Studio that the server is running."""
        return AsciiJSONResponse({"status": "UP", "model_class": "spacy_costner"})

    async def call_backend(self, request: Request) -> Response:
        """Handle a request from Label Studio. The last component of the path is the name of the
        backend method to call."""
        _, _, name = request.url.path.rpartition("/")
        most_bytes = MAX_BODY_WITH_TASKS if name == "predict" else MAX_BODY
        record = await read_json(request, most_bytes)
        return AsciiJSONResponse(await run_in_threadpool(self.backend_calls[name], record))


def proposal_json(proposal: Proposal | None) -> dict[str, Any] | None:
    """Convert a text and its entities to a JSON-serializable dict for the page."""
    return None if proposal is None else proposal.as_dict()
