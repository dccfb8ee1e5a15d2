"""Fetch a job's file: go on where a try broke off, and publish it in one step."""

from __future__ import annotations

import glob
import os
import re
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ttsweb.client.errors import ApiError, DownloadError
from ttsweb.client.http import Http, pause_before

if TYPE_CHECKING:
    import httpx

TAG_CHARS = 16  # of the ETag, in the name of a part; enough to tell two files apart
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
OnBytes = Callable[[int, int | None], None]


class _BrokeOffError(Exception):
    """A try ended before the file was whole; another one goes on or begins anew."""


def download(http: Http, path: str, target: Path, on_bytes: OnBytes | None = None) -> Path:
    """Write the file at an address to `target`, all of it or nothing, and return `target`.

    What has arrived lies beside `target` in a hidden `.part`; a later call goes on from there if
    the server still has the same file.

    Args:
        on_bytes: called with the bytes that are there and those of the whole, None if unknown.

    Raises:
        ApiError: the server refused; such as 409 job_not_finished.
        DownloadError: several tries in a row brought nothing.
        OSError: the file cannot be written.
    """
    import httpx

    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    failures, most = 0, _size(find_part(target))
    while True:
        try:
            return _try(http, path, target, on_bytes)
        except (httpx.RequestError, _BrokeOffError) as error:
            size = _size(find_part(target))
            failures = 0 if size > most else failures + 1
            most = max(most, size)
            if failures > http.retries:
                raise DownloadError(
                    "download_incomplete",
                    f"{target} was not downloaded completely ({error}); the same call "
                    "continues the download.",
                ) from error
            http.sleep(pause_before(failures))


def find_part(target: Path) -> Path | None:
    """Return what an earlier try has left, the newest if there are several."""
    parts = target.parent.glob(f".{glob.escape(target.name)}.*.part")
    return max(parts, key=lambda part: part.stat().st_mtime, default=None)


def _try(http: Http, path: str, target: Path, on_bytes: OnBytes | None) -> Path:
    found = find_part(target)
    offset = _size(found)
    headers = {"Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    try:
        response = http.send("GET", path, headers=headers, stream=True)
    except ApiError as error:
        if error.status != 416 or found is None:
            raise
        found.unlink(missing_ok=True)
        raise _BrokeOffError("the file was replaced by another one") from error
    with closing(response):
        part = _part_for(target, response)
        if found is not None and part != found:
            found.unlink(missing_ok=True)
        start, total = _extent(response)
        if start and (part != found or start != offset):
            part.unlink(missing_ok=True)
            raise _BrokeOffError("the file was replaced by another one")
        _write(response, part, start, total, on_bytes)
    part.replace(target)
    return target


def _write(
    response: httpx.Response, part: Path, start: int, total: int | None, on_bytes: OnBytes | None
) -> None:
    size = start
    # Written at its place and not appended: two that fetch the same file do not spoil it.
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        # Of no fixed size: what was gathered for a chunk would be lost when the connection breaks.
        for chunk in response.iter_bytes():
            file.write(chunk)
            size += len(chunk)
            if on_bytes is not None:
                on_bytes(size, total)
        file.flush()
        os.fsync(file.fileno())
    if total is not None and size != total:
        raise _BrokeOffError(f"received {size} of {total} bytes")


def _part_for(target: Path, response: httpx.Response) -> Path:
    """Return where the file of this answer is gathered: one name for each content."""
    etag = response.headers.get("ETag", "")
    is_strong = len(etag) > 2 and not etag.startswith("W/")
    tag = re.sub(r"[^0-9A-Za-z]", "", etag)[:TAG_CHARS] if is_strong else ""
    # Without a strong tag nothing tells whether a later answer is the same file.
    return target.with_name(f".{target.name}.{tag or f'once-{uuid.uuid4().hex[:8]}'}.part")


def _extent(response: httpx.Response) -> tuple[int, int | None]:
    """Return where the bytes of an answer begin, and the size of the whole file."""
    if response.status_code == 206:
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None:
            raise _BrokeOffError("the answer does not say which part of the file it is")
        return int(found[1]), int(found[3])
    length = response.headers.get("Content-Length")
    if length is None or "Content-Encoding" in response.headers:
        return 0, None
    return 0, int(length)


def _size(part: Path | None) -> int:
    return part.stat().st_size if part is not None else 0
