"""No body above the limit reaches Django, whatever its header says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ttsweb.http.asgi_ask import Message
from ttsweb.http.body_limit import BodyLimit


class Exchange:
    """One request to an application that reads the whole body, and what came back."""

    def __init__(self, parts: list[bytes], *, length: str | None = None, path: str = "/x") -> None:
        self.parts, self.headers, self.path = parts, [], path
        if length is not None:
            self.headers = [(b"content-length", length.encode())]
        self.taken = self.seen = 0
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        self.taken += 1
        more = self.taken < len(self.parts)
        return {"type": "http.request", "body": self.parts[self.taken - 1], "more_body": more}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            self.seen += len(message["body"])
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})

    def run(self, max_bytes: int) -> int:
        scope = {"type": "http", "path": self.path, "headers": self.headers}
        limited = BodyLimit(self.app, max_bytes=max_bytes)
        asyncio.run(limited(scope, self.receive, self.send))
        return int(self.sent[0]["status"])


def test_a_body_of_exactly_the_limit_passes() -> None:
    exchange = Exchange([b"12345", b"67890"], length="10")
    assert exchange.run(max_bytes=10) == 200
    assert exchange.seen == 10


def test_a_declared_length_above_the_limit_is_refused_before_a_byte_is_read() -> None:
    exchange = Exchange([b"1"], length="11")
    assert exchange.run(max_bytes=10) == 413
    assert exchange.taken == 0
    assert json.loads(exchange.sent[1]["body"])["code"] == "body_too_large"
    assert (b"connection", b"close") in exchange.sent[0]["headers"]


def test_a_call_like_openais_is_refused_in_its_form() -> None:
    exchange = Exchange([b"1"], length="11", path="/v1/audio/voices")
    assert exchange.run(max_bytes=10) == 413
    error = json.loads(exchange.sent[1]["body"])["error"]
    assert (error["code"], error["type"]) == ("body_too_large", "invalid_request_error")


@pytest.mark.parametrize("length", ["5", None])
def test_a_body_that_is_longer_than_declared_is_cut_off(length: str | None) -> None:
    exchange = Exchange([b"123456"] * 1000, length=length)
    assert exchange.run(max_bytes=10) == 413
    assert (exchange.taken, exchange.seen) == (2, 6)


def test_what_is_no_request_passes_untouched() -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    asyncio.run(BodyLimit(app, max_bytes=1)({"type": "lifespan"}, None, None))  # type: ignore[arg-type]  # unused

    assert seen == ["lifespan"]
