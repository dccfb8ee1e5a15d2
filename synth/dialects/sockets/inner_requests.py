"""Ask this service's own routes from a WebSocket: its key, its limits and its errors are theirs.

A socket has no view. What it wants goes through Django as a request of the same sender, so that
nothing about keys, voices or options is written a second time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ttsweb.http.asgi_ask import COUNTED, AsgiApp, Message, Scope

# Of the handshake alone.
_OF_HANDSHAKE = (b"sec-websocket-", b"connection", b"upgrade", b"content-")


@dataclass
class InnerAnswer:
    """Hold an answer; `headers` have small letters."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        """Return the body as an object, empty where it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


async def ask_inside(
    app: AsgiApp,
    scope: Scope,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    is_counted: bool = True,
) -> InnerAnswer:
    """Return what the application answers to a request of a socket's sender.

    Args:
        scope: the socket's.
        headers: what the request has besides the headers of the handshake.
        is_counted: False lets the request count towards the key's limit of requests.
    """
    answer, is_read = InnerAnswer(), False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()  # Django watches for the end of the connection here
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, value in message.get("headers", ()):
                answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        elif message["type"] == "http.response.body":
            answer.body += message.get("body", b"")

    await app(_http_scope(scope, method, path, body, headers or {}, is_counted), receive, keep)
    return answer


def _http_scope(
    scope: Scope,
    method: str,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    is_counted: bool,
) -> Scope:
    kept = [pair for pair in scope["headers"] if not pair[0].lower().startswith(_OF_HANDSHAKE)]
    added = {**headers, "content-length": str(len(body))} if body else dict(headers)
    more: dict[str, Any] = {COUNTED: True} if is_counted else {}
    shared = ("asgi", "client", "server", "root_path", "state")
    full_path = scope.get("root_path", "") + path
    return {
        **{name: scope[name] for name in shared if name in scope},
        **more,
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "https" if scope.get("scheme") == "wss" else "http",
        "path": full_path,
        "raw_path": full_path.encode(),
        "query_string": b"",
        "headers": [*kept, *((name.encode(), value.encode()) for name, value in added.items())],
    }
