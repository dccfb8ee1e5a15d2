"""Let pages of other origins read also what is answered outside Django: live audio, early errors.

Django's middleware decides about its own answers; where one goes out without having passed there,
the same middleware is asked here.
"""

from __future__ import annotations

from corsheaders.middleware import CorsMiddleware
from django.http import HttpRequest, HttpResponse

from ttsweb.http.asgi_ask import AsgiApp, Message, Receive, Scope, Send, path_of

_NAME = b"access-control-allow-origin"


class CorsHeaders:
    """Wrap an ASGI application; each answer to a page of an allowed origin says so."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._rules = CorsMiddleware(lambda request: HttpResponse())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _origin(scope) if scope["type"] == "http" else None
        if origin is None:
            await self._app(scope, receive, send)
            return

        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(name.lower() != _NAME for name, _ in headers):
                    headers += self._headers(scope, origin)
                    message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_allowed)

    def _headers(self, scope: Scope, origin: str) -> list[tuple[bytes, bytes]]:
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


def _origin(scope: Scope) -> str | None:
    found: bytes | None = next(
        (value for name, value in scope["headers"] if name.lower() == b"origin"), None
    )
    return None if found is None else found.decode("latin-1")
