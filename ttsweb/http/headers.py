"""Headers of answers: whether something has changed, HTTPS alone, pages of other origins.

A poll for something unchanged is answered without its body: weak ETag, `If-None-Match`, 304. The
tag is a digest of what the answer says, not of a row's time: a queue position or a voice's name
changes while the job's own row stays as it is. Weak, because equal answers may differ in bytes.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from corsheaders.middleware import CorsMiddleware
from django.http import HttpRequest, HttpResponse
from django.utils.http import http_date, parse_etags
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ttsweb.http.asgi_ask import AsgiApp, Message, Receive, Scope, Send, path_of

CONDITIONAL_PARAMETERS = [
    OpenApiParameter(
        "If-None-Match",
        str,
        OpenApiParameter.HEADER,
        description="ETag of an earlier answer. If nothing has changed since, the answer is 304 "
        "without a body.",
    ),
    OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=[200, 304]),
]
UNCHANGED = {304: OpenApiResponse(None, "Nothing has changed since the answer with that ETag.")}


def conditional(request: Request, answer: Response) -> Response:
    """Return the answer to a GET with its ETag, or a 304 when the client has just that.

    A 304 carries the other headers of the answer, such as `Retry-After`. `If-None-Match: *` matches
    whatever there is, as RFC 9110 has it.
    """
    tag = weak_etag(answer.data)
    known = parse_etags(request.headers.get("If-None-Match", ""))
    if "*" in known or _opaque(tag) in map(_opaque, known):
        answer = Response(status=304, headers=dict(answer.items()))
    answer["ETag"] = tag
    answer["Cache-Control"] = "private, no-cache"  # may be kept by its user; asked for every time
    return answer


def weak_etag(data: Any) -> str:
    return f'W/"{hashlib.sha256(JSONRenderer().render(data)).hexdigest()[:32]}"'


def _opaque(tag: str) -> str:
    """Return a tag without its weakness: for a GET both kinds are compared alike."""
    return tag.removeprefix("W/")


MIN_NOTICE = dt.timedelta(days=90)


View = TypeVar("View", bound=type[APIView])


def deprecated(
    *, since: dt.date, sunset: dt.date | None = None, successor: str = "", more: str = ""
) -> Callable[[View], View]:
    """Return a decorator of a view that announces the end of its routes, and changes nothing else.

    `Deprecation` is that of RFC 9745 and `Sunset` that of RFC 8594.

    Args:
        since: the day from which new clients should not use it; it may lie ahead.
        sunset: the day from which it may be gone; None while that is open.
        successor: address of what does the same from now on.
        more: address of a page that tells how to change over.

    Raises:
        ValueError: there are fewer than 90 days between the two.
    """
    if sunset is not None and sunset - since < MIN_NOTICE:
        raise ValueError(f"a route is announced {MIN_NOTICE.days} days before it goes")
    headers = {"Deprecation": f"@{_seconds(since)}"}
    if sunset is not None:
        headers["Sunset"] = http_date(_seconds(sunset))
    links = {"successor-version": successor, "deprecation": more}
    shown = [f'<{address}>; rel="{name}"' for name, address in links.items() if address]

    def announce(view: View) -> View:
        finalize: Any = view.finalize_response

        def finalize_response(self: APIView, *args: Any, **kwargs: Any) -> Any:
            answer = finalize(self, *args, **kwargs)
            for name, value in headers.items():
                answer[name] = value
            if shown:  # beside those that the view set
                answer["Link"] = ", ".join(filter(None, [answer.get("Link"), *shown]))
            return answer

        view.finalize_response = finalize_response  # type: ignore[method-assign]  # as wanted
        marked: View = extend_schema(deprecated=True)(view)
        return marked

    return announce


def _seconds(day: dt.date) -> int:
    return int(dt.datetime.combine(day, dt.time(), tzinfo=dt.UTC).timestamp())


class StrictTransport:
    """Wrap an ASGI application: each answer over HTTPS asks browsers for nothing else from now on.

    Django's middleware says so in its own answers; live audio, events and early errors go past it.
    As RFC 6797 has it, an answer over plain HTTP says nothing.
    """

    def __init__(self, app: AsgiApp, *, seconds: int) -> None:
        self._app = app
        self._header = (b"strict-transport-security", f"max-age={seconds}".encode())
        self._is_on = seconds > 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What the proxy says, whose word counts where this wrapper is on, as Django reads it.
        scheme = (_header_of(scope, b"x-forwarded-proto") or "").split(",")[0].strip()
        if self._is_on and scheme == "https":
            send = _adding(send, self._header[0], lambda: [self._header])
        await self._app(scope, receive, send)


class CorsHeaders:
    """Wrap an ASGI application; each answer to a page of an allowed origin says so.

    Django's middleware decides about its own answers; where one goes out without having passed
    there, such as live audio and early errors, the same middleware is asked here.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._rules = CorsMiddleware(lambda request: HttpResponse())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _header_of(scope, b"origin")
        if origin is not None:
            allowed = partial(self._headers, scope, origin)
            send = _adding(send, b"access-control-allow-origin", allowed)
        await self._app(scope, receive, send)

    def _headers(self, scope: Scope, origin: str) -> list[Header]:
        request = HttpRequest()
        request.method = scope["method"]
        request.path = request.path_info = path_of(scope)
        request.META["HTTP_ORIGIN"] = origin
        answer = self._rules.add_response_headers(request, HttpResponse())
        return [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in answer.items()
            if name.lower().startswith("access-control-")
        ]


Header = tuple[bytes, bytes]


def _header_of(scope: Scope, name: bytes) -> str | None:
    """Return the first header of this name that a request brings; None of anything else."""
    if scope["type"] != "http":
        return None
    given = (value for key, value in scope["headers"] if key.lower() == name)
    found: bytes | None = next(given, None)
    return None if found is None else found.decode("latin-1")


def _adding(send: Send, name: bytes, more: Callable[[], list[Header]]) -> Send:
    """Return what sends an answer on, with more headers where it has none of this name."""

    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            if all(key.lower() != name for key, _ in headers):
                message = {**message, "headers": [*headers, *more()]}
        await send(message)

    return send_more
