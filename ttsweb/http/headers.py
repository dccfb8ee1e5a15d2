"""Headers of answers: whether something has changed, that a route will go, HTTPS and nothing else.

A poll for something unchanged is answered without its body: weak ETag, `If-None-Match`, 304. The
tag is a digest of what the answer says, not of a row's time: a queue position or a voice's name
changes while the job's own row stays as it is. Weak, because equal answers may differ in bytes.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from django.utils.http import http_date, parse_etags
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ttsweb.http.asgi_ask import AsgiApp, Message, Receive, Scope, Send

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
        if not self._is_on or scope["type"] != "http" or not _came_by_https(scope):
            await self._app(scope, receive, send)
            return

        async def send_strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(name.lower() != self._header[0] for name, _ in headers):
                    message = {**message, "headers": [*headers, self._header]}
            await send(message)

        await self._app(scope, receive, send_strict)


def _came_by_https(scope: Scope) -> bool:
    """Say what the proxy says, whose word counts where this wrapper is on, as Django reads it."""
    given = [value for name, value in scope["headers"] if name.lower() == b"x-forwarded-proto"]
    return bool(given) and given[0].split(b",")[0].strip() == b"https"
