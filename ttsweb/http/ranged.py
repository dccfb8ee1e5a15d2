"""Answer with a stored object, or the one byte range of it that was asked for.

The caller has decided that this user may have the object; nothing is authorised here.
Django's own FileResponse ignores `Range`, and a browser then cannot seek in a player.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from asgiref.sync import sync_to_async
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    StreamingHttpResponse,
)
from django.utils.cache import get_conditional_response
from django.utils.http import (
    content_disposition_header,
    http_date,
    parse_http_date_safe,
    quote_etag,
)

from ttsweb.http.problems import PROBLEM_TYPE, problem_body

CHUNK_BYTES = 128 * 1024
_ONE_RANGE = re.compile(r"bytes[ \t]*=[ \t]*([0-9]*)-([0-9]*)[ \t]*", re.IGNORECASE)
_HEADERS = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}
_MAX_POSITION = 2**62  # stands for every number too long to be a place in a file


class ObjectMissingError(Http404):
    """A row names an object that the storage does not have; becomes a 404 unless caught."""


@dataclass(frozen=True)
class StoredObject:
    """Name an object and what its response says of it.

    `etag` is a digest of the content, without quotes, or empty for none. `filename` is what a
    browser saves it as; only its last part is used. `download` asks browsers to save, not play.
    `is_finished` is true of files that people download, which may be fetched from the storage
    itself where TTS_STORAGE has `signed_urls`.
    """

    key: str
    content_type: str
    filename: str
    etag: str = ""
    download: bool = False
    is_finished: bool = False


class ObjectResponse(StreamingHttpResponse):
    """Stream a file under WSGI and ASGI alike; under ASGI no thread is held between two chunks."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the chunks; each is read in a pool thread, so that a slow disk blocks nobody."""
        parts: Iterator[bytes] = iter(self.streaming_content)  # type: ignore[arg-type]  # is sync
        read = sync_to_async(lambda: next(parts, b""), thread_sensitive=False)
        while part := await read():
            yield part


def object_response(request: HttpRequest, stored: StoredObject) -> HttpResponseBase:
    """Return 200, 206, 302, 304, 412 or 416 for a GET or HEAD of an object.

    One range is honoured: `a-b`, `a-`, `-n`. A list of ranges, another unit or a malformed header
    is ignored and the whole object sent, as RFC 9110 allows.

    Raises:
        ObjectMissingError: the storage has no such object.
    """
    size, modified = _look_up(stored.key)
    etag = quote_etag(stored.etag) if stored.etag else None
    modified_seconds = int(modified.timestamp()) if modified else None
    if (conditional := get_conditional_response(request, etag, modified_seconds)) is not None:
        return _finish(conditional, stored, etag, modified_seconds)
    if _may_redirect(request, stored):
        return _redirect(stored)
    bounds: tuple[int, int] | None = None
    if _range_applies(request, etag, modified_seconds):
        bounds = parse_range(request.headers["Range"], size)
    if bounds is None:
        return _finish(_body(request, stored, 0, size), stored, etag, modified_seconds)
    start, end = bounds
    if start >= end:
        sentence = f"The range lies outside the file, which has {size} bytes."
        problem = problem_body(416, "range_not_satisfiable", sentence)
        refusal = JsonResponse(problem, status=416, content_type=PROBLEM_TYPE)
        refusal.headers["Content-Range"] = f"bytes */{size}"
        return _finish(refusal, stored, etag, modified_seconds)
    response = _body(request, stored, start, end)
    response.status_code = 206
    response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return _finish(response, stored, etag, modified_seconds)


def _may_redirect(request: HttpRequest, stored: StoredObject) -> bool:
    """Say whether the storage itself may answer: it can, and what asks can follow.

    A signed URL is good for GET alone. What a page loads stays here, as the page's policy says.
    """
    inside_page = request.headers.get("Sec-Fetch-Dest", "document") != "document"
    signs = getattr(default_storage, "signs_urls", False)
    return bool(signs and stored.is_finished and request.method == "GET" and not inside_page)


def _redirect(stored: StoredObject) -> HttpResponseBase:
    url = default_storage.signed_url(  # type: ignore[attr-defined]  # of a bucket
        stored.key, content_type=stored.content_type, disposition=_disposition(stored)
    )
    response = HttpResponse(status=302, headers={"Location": url} | _HEADERS)
    del response.headers["Accept-Ranges"]
    return response


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Return (start, end) with end exclusive, or None when the header must be ignored.

    An empty span, start >= end, is a range that this object cannot satisfy.
    """
    match = _ONE_RANGE.fullmatch(header.strip())
    if match is None:
        return None
    first, last = match.groups()
    if not first and not last:
        return None
    if not first:
        return max(0, size - _position(last)), size
    start = _position(first)
    if last and _position(last) < start:
        return None
    return start, min(size, _position(last) + 1 if last else size)


def _position(digits: str) -> int:
    return int(digits) if len(digits) <= 18 else _MAX_POSITION


def _look_up(key: str) -> tuple[int, dt.datetime | None]:
    """Return an object's size in bytes and when it was written, where the storage knows that."""
    try:
        size = default_storage.size(key)
    except FileNotFoundError as error:
        raise ObjectMissingError("The stored file no longer exists.") from error
    try:
        return size, default_storage.get_modified_time(key)
    except (NotImplementedError, FileNotFoundError):
        return size, None


def _range_applies(request: HttpRequest, etag: str | None, modified_seconds: int | None) -> bool:
    """Say whether `Range` is to be read: a GET whose If-Range, if any, names this very object."""
    if request.method != "GET" or "Range" not in request.headers:
        return False
    condition = request.headers.get("If-Range")
    if condition is None:
        return True
    if '"' in condition:  # a weak tag never matches: W/ is not part of ours
        return condition.strip() == etag
    return modified_seconds is not None and parse_http_date_safe(condition) == modified_seconds


def _body(request: HttpRequest, stored: StoredObject, start: int, end: int) -> HttpResponseBase:
    """Return the response with the bytes from `start` up to `end`; a HEAD gets the length alone."""
    response: HttpResponseBase
    if request.method == "HEAD":
        response = HttpResponse()
    else:
        try:
            file = default_storage.open_range(stored.key, start, end)  # type: ignore[attr-defined]  # of both kinds
        except FileNotFoundError as error:  # deleted since its size was read
            raise ObjectMissingError("The stored file no longer exists.") from error
        response = ObjectResponse(_FileSlice(file, end - start))
    response.headers["Content-Length"] = str(end - start)
    return response


class _FileSlice:
    """Iterate over the next bytes of an open file, in chunks.

    A class and not a generator: closing one that never started would leave the file open.
    """

    def __init__(self, file: File[bytes], num_bytes: int) -> None:
        self.file, self.left = file, num_bytes
        self.close = file.close

    def __iter__(self) -> Iterator[bytes]:
        while self.left > 0 and (part := self.file.read(min(CHUNK_BYTES, self.left))):
            self.left -= len(part)
            yield part


def _disposition(stored: StoredObject) -> str:
    """Return the header, without what in the name could end it or leave a folder."""
    last = stored.filename.replace("\\", "/").rsplit("/", 1)[-1]
    name = "".join(character for character in last if character.isprintable()) or "file"
    return content_disposition_header(stored.download, name) or "inline"


def _finish(
    response: HttpResponseBase, stored: StoredObject, etag: str | None, modified_seconds: int | None
) -> HttpResponseBase:
    """Set the headers that every answer carries; uploaded bytes are never trusted as a page."""
    if response.status_code in (200, 206):
        response.headers["Content-Type"] = stored.content_type
        response.headers["Content-Disposition"] = _disposition(stored)
    if etag:
        response.headers["ETag"] = etag
    if modified_seconds is not None:
        response.headers["Last-Modified"] = http_date(modified_seconds)
    for name, value in _HEADERS.items():
        response.headers[name] = value
    return response
