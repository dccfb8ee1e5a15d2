"""No body, no JSON and no file above a limit is read to its end, whatever a header says."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParser
from pytest_django import Settings

from ttsweb.http.api import BoundedJSONParser
from ttsweb.http.asgi_ask import Message
from ttsweb.http.body_limit import BodyLimit, UploadTooLargeError

MEBIBYTE = 1024 * 1024


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


class Endless(io.RawIOBase):
    """A body that is made while it is read, and counts what was read of it."""

    def __init__(self, head: bytes, size: int) -> None:
        self.head, self.left = head, size
        self.sent = 0

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None and size >= 0, "the whole body was asked for"
        part, self.head = self.head or bytes(min(size, self.left)), b""
        self.left -= len(part)
        self.sent += len(part)
        return part


def test_json_of_exactly_the_limit_is_read_and_more_is_read_no_further(settings: Settings) -> None:
    body = b'{"text": "abc"}'
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = len(body)
    assert BoundedJSONParser().parse(io.BytesIO(body)) == {"text": "abc"}

    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    endless = Endless(b"", 10**9)
    with pytest.raises(RequestDataTooBig, match="100 bytes"):
        BoundedJSONParser().parse(endless)  # type: ignore[arg-type]  # it is only read
    assert endless.sent == 101


def test_an_upload_of_ten_gigabytes_is_not_read_to_its_end(
    settings: Settings, tmp_path: Path
) -> None:
    settings.MAX_CLIP_BYTES = 3 * MEBIBYTE
    settings.FILE_UPLOAD_TEMP_DIR = tmp_path
    part = 'Content-Disposition: form-data; name="audio"; filename="a.wav"'
    size = 10_000 * MEBIBYTE
    body = Endless(f"--limit\r\n{part}\r\n\r\n".encode(), size)
    meta = {"CONTENT_TYPE": "multipart/form-data; boundary=limit", "CONTENT_LENGTH": str(size)}

    with pytest.raises(UploadTooLargeError, match="larger than 3") as caught:
        MultiPartParser(meta, body, HttpRequest().upload_handlers).parse()

    assert body.sent < 10 * MEBIBYTE
    assert caught.tb is not None  # while the error lives, no collector has removed anything
    assert list(tmp_path.iterdir()) == []
