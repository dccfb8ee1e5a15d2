"""Hold ranged responses to RFC 9110, under WSGI and under ASGI."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, default_storage
from django.http import HttpResponseBase, StreamingHttpResponse
from django.test import RequestFactory

from ttsweb.http import ranged
from ttsweb.http.ranged import ObjectMissingError, StoredObject, object_response, parse_range

CONTENT = bytes(range(256)) * 4
WRITTEN = 1_700_000_000  # Tue, 14 Nov 2023 22:13:20 GMT
WRITTEN_DATE = "Tue, 14 Nov 2023 22:13:20 GMT"


@pytest.fixture
def stored(storage_folder: Path) -> StoredObject:
    key = default_storage.save("exports/one.wav", ContentFile(CONTENT))
    os.utime(default_storage.path(key), (WRITTEN, WRITTEN))
    return StoredObject(key, "audio/wav", "one.wav", etag="abc")


def ask(stored: StoredObject, method: str = "GET", **headers: str) -> HttpResponseBase:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = RequestFactory().generic(method, "/audio", headers=names)
    return object_response(request, stored)


def body(response: HttpResponseBase) -> bytes:
    if isinstance(response, StreamingHttpResponse):
        return response.getvalue()
    content: bytes = response.content  # type: ignore[attr-defined]  # every other response has it
    return content


def test_request_without_a_range_gets_the_whole_object(stored: StoredObject) -> None:
    response = ask(stored)
    assert (response.status_code, body(response)) == (200, CONTENT)
    assert response.headers.items() >= {
        "Content-Length": "1024", "Accept-Ranges": "bytes", "Content-Type": "audio/wav",
    }.items()  # fmt: skip
    assert "Content-Range" not in response.headers


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1), ("bytes=100-199", 100, 200), ("bytes=1000-", 1000, 1024),
        ("bytes=1000-99999", 1000, 1024), ("bytes=-10", 1014, 1024), ("bytes=-99999", 0, 1024),
        ("Bytes = 5-6", 5, 7), ("bytes=0-" + "9" * 5000, 0, 1024),
    ],
)  # fmt: skip
def test_one_range_gets_exactly_its_bytes(
    stored: StoredObject, header: str, start: int, end: int
) -> None:
    response = ask(stored, Range=header)
    assert (response.status_code, body(response)) == (206, CONTENT[start:end])
    assert response.headers["Content-Range"] == f"bytes {start}-{end - 1}/1024"
    assert response.headers["Content-Length"] == str(end - start)


@pytest.mark.parametrize("header", ["bytes=1024-", "bytes=5000-6000", "bytes=-0"])
def test_range_outside_the_object_is_a_416_that_names_the_size(
    stored: StoredObject, header: str
) -> None:
    response = ask(stored, Range=header)
    assert response.status_code == 416
    assert response.headers["Content-Range"] == "bytes */1024"
    assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("header", "condition"),
    [
        *((header, None) for header in (
            "bytes=0-1,5-6", "items=0-1", "bytes=9-3", "bytes=-", "bytes=a-b", "bytes",
            "bytes=0-1-2", "",
        )),  # which we do not honour
        *(("bytes=0-9", condition) for condition in (
            '"other"', 'W/"abc"', "Tue, 14 Nov 2023 22:13:21 GMT", "rubbish"
        )),  # of another object
    ],
)  # fmt: skip
def test_range_that_does_not_apply_is_ignored(
    stored: StoredObject, header: str, condition: str | None
) -> None:
    more = {} if condition is None else {"If_Range": condition}
    response = ask(stored, Range=header, **more)
    assert (response.status_code, body(response)) == (200, CONTENT)


def test_every_range_of_an_empty_object_cannot_be_satisfied() -> None:
    start, end = parse_range("bytes=0-", 0) or (-1, -1)
    assert start >= end


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Range": "bytes=0-9", "If_Range": '"abc"'}, 206),
        ({"Range": "bytes=0-9", "If_Range": WRITTEN_DATE}, 206),
        ({"Range": "bytes=0-9", "If_None_Match": '"x", W/"abc"'}, 304),
        ({"If_Modified_Since": WRITTEN_DATE}, 304),
        ({"If_Modified_Since": "Tue, 14 Nov 2023 22:13:19 GMT"}, 200),
        ({"If_Match": '"other"'}, 412),
    ],
)
def test_conditions_are_held_to_the_tag_and_the_time_of_the_object(
    stored: StoredObject, headers: dict[str, str], status: int
) -> None:
    response = ask(stored, **headers)
    assert (response.status_code, response.headers["ETag"]) == (status, '"abc"')
    assert status != 304 or body(response) == b""


def test_head_gives_the_length_and_no_bytes(stored: StoredObject) -> None:
    response = ask(stored, "HEAD", Range="bytes=0-9")
    assert response.status_code == 200
    assert response.headers["Content-Length"] == "1024"
    assert response.headers["Last-Modified"] == WRITTEN_DATE
    assert body(response) == b""


@pytest.mark.parametrize("range_header", [{}, {"Range": "bytes=0-9"}, {"Range": "bytes=9999-"}])
def test_no_answer_can_be_cached_sniffed_or_run_as_a_page(
    stored: StoredObject, range_header: dict[str, str]
) -> None:
    headers = ask(stored, **range_header).headers
    assert headers["Cache-Control"] == "private, no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    ("filename", "shown"),
    [
        ("take 1.wav", 'inline; filename="take 1.wav"'),
        ('a"b.wav', 'inline; filename="a\\"b.wav"'),
        ("朗読.wav", "inline; filename*=utf-8''%E6%9C%97%E8%AA%AD.wav"),
        ("../../etc/passwd", 'inline; filename="passwd"'),
        ("C:\\clips\\a.wav", 'inline; filename="a.wav"'),
        ("a.wav\r\nSet-Cookie: x=1", 'inline; filename="a.wavSet-Cookie: x=1"'),
        ("a.wav\n", 'inline; filename="a.wav"'),
        ("", 'inline; filename="file"'),
    ],
)
def test_file_name_is_quoted_and_has_no_folder(
    stored: StoredObject, filename: str, shown: str
) -> None:
    response = ask(StoredObject(stored.key, "audio/wav", filename))
    assert response.headers["Content-Disposition"] == shown


def test_missing_object_raises_what_becomes_a_404(stored: StoredObject) -> None:
    default_storage.delete(stored.key)
    with pytest.raises(ObjectMissingError):
        ask(stored)


def test_asgi_streams_in_chunks_without_a_warning(
    stored: StoredObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranged, "CHUNK_BYTES", 100)
    response = ask(stored, Range="bytes=10-1009")

    async def read(parts: AsyncIterator[bytes]) -> list[bytes]:
        return [part async for part in parts]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = asyncio.run(read(aiter(response)))  # type: ignore[arg-type]  # a streaming response

    assert b"".join(parts) == CONTENT[10:1010]
    assert len(parts) == 10


@pytest.mark.django_db  # closing a response ends a request, which looks at the connections
def test_file_is_closed_when_the_client_leaves_before_the_first_byte(
    stored: StoredObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[File[bytes]] = []
    real_open = FileSystemStorage._open  # type: ignore[attr-defined]  # not in the stubs

    def remember(storage: FileSystemStorage, name: str, mode: str = "rb") -> File[bytes]:
        opened.append(real_open(storage, name, mode))
        return opened[-1]

    monkeypatch.setattr(FileSystemStorage, "_open", remember)
    response = ask(stored)
    response.close()

    assert opened[0].closed
