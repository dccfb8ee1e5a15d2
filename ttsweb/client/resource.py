"""The rows of every kind at a server: get, list, wait for, follow, act on, download, delete one."""

from __future__ import annotations

import glob
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from ttsweb.client.http import (
    WAIT_RETRIES,
    ApiError,
    DownloadError,
    Http,
    NotFoundError,
    WaitTimeoutError,
    pause_before,
    read_json,
    retry_after_of,
)
from ttsweb.client.types import JOB_FINAL

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
        _write_part(response, part, start, total, on_bytes)
    part.replace(target)
    return target


def _write_part(
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


POLL_SECONDS = 25.0  # how long the server is asked to keep an answer back
UPDATE_SECONDS = 1.0  # the same where somebody watches
SENDING_SECONDS = 300.0  # a hundred megabytes over a slow line, or ten thousand items looked at


Row = TypeVar("Row")
Shape = TypeVar("Shape")


class Resource(Generic[Row]):
    """The rows of one kind at a server; `Row` is the dictionary that describes one.

    Attributes:
        kind: its name in addresses, such as `jobs`.
        final: the statuses in which a row has ended.
        keeps_back: whether the server keeps an answer back with `?wait=` until the end.
    """

    kind = ""
    final = JOB_FINAL
    keeps_back = True

    def __init__(self, http: Http) -> None:
        self._http = http

    def get(self, row_id: str, /) -> Row:
        return cast("Row", self._read("GET", path_of(self.kind, row_id)))

    def list(self) -> Iterator[Row]:
        """Yield all, newest first."""
        return self._rows()

    def delete(self, row_id: str, /) -> None:
        """Delete one in any state, with what belongs to it and all files."""
        self._http.send("DELETE", path_of(self.kind, row_id), repeatable=False)

    def poll(self, row_id: str, seconds: float, /) -> Row:
        """Return one once it has ended or about so many seconds are over."""
        if not self.keeps_back:
            return self.get(row_id)
        import httpx

        started, path = time.monotonic(), path_of(self.kind, row_id)
        wait = {"wait": f"{seconds:.3f}"}
        timeout = httpx.Timeout(self._http.timeout, read=self._http.timeout + seconds)
        answer = self._http.send("GET", path, params=wait, timeout=timeout, retries=WAIT_RETRIES)
        row = cast("Row", read_json(answer))
        if not self._is_over(row):
            # A server with too many waiting polls answers at once.
            pause = min(seconds, retry_after_of(answer) or 0.0)
            self._http.sleep(max(0.0, pause - (time.monotonic() - started)))
        return row

    def wait(
        self,
        row_id: str,
        /,
        *,
        timeout: float | None = None,
        on_update: Callable[[Row], None] | None = None,
    ) -> Row:
        """Return one once it has ended, in whatever way; its `status` says how.

        Args:
            on_update: called with it about once a second.

        Raises:
            WaitTimeoutError: it had not ended after `timeout` seconds; it goes on.
        """
        return self._wait(row_id, self._is_over, timeout, on_update)

    def _wait(
        self,
        row_id: str,
        is_over: Callable[[Row], bool],
        timeout: float | None,
        on_update: Callable[[Row], None] | None,
    ) -> Row:
        what = f"the {noun_of(self.kind)} {row_id}"
        sleep = None if self.keeps_back else self._http.sleep
        return wait_for(
            lambda seconds: self.poll(row_id, seconds), is_over, what, timeout, on_update, sleep
        )

    def _is_over(self, row: Row) -> bool:
        return cast("Mapping[str, Any]", row)["status"] in self.final

    def _read(self, method: str, path: str, **parts: Any) -> Any:
        return read_json(self._http.send(method, path, **parts))

    def _ask(
        self, shape: type[Shape], method: str, row_id: str, rest: str = "", **parts: Any
    ) -> Shape:
        found: Shape = self._read(method, path_of(self.kind, row_id, rest), **parts)
        return found

    def _act(self, row_id: str, action: str, **parts: Any) -> Row:
        return cast("Row", self._read("POST", path_of(self.kind, row_id, f"/{action}"), **parts))

    def _make(self, kind: str, key: str | None, **parts: Any) -> Any:
        """Send what makes a row, once however often it arrives, with time for a large body."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        timeout = max(self._http.timeout, SENDING_SECONDS)
        return self._read("POST", f"/api/v1/{kind}", headers=headers, timeout=timeout, **parts)

    def _pages(self, path: str, **given: Any) -> Iterator[Any]:
        """Yield the items of a list; what is None asks for nothing."""
        params = {name: value for name, value in given.items() if value is not None}
        return self._http.pages(path, params)

    def _rows(self, **given: Any) -> Iterator[Row]:
        return self._pages(f"/api/v1/{self.kind}", **given)

    def _download(
        self, row_id: str, rest: str, target: Path | str, on_bytes: OnBytes | None = None
    ) -> Path:
        return download(self._http, path_of(self.kind, row_id, rest), Path(target), on_bytes)


class StoppableResource(Resource[Row]):
    """Rows whose work can be cancelled and begun again."""

    def cancel(self, row_id: str, /) -> Row:
        """Cancel what of one has not ended; what is rendered is kept."""
        return self._act(row_id, "cancel")

    def retry(self, row_id: str, /) -> Row:
        """Queue once more what failed or was cancelled; what is finished is kept."""
        return self._act(row_id, "retry", repeatable=False)


class FileResource(StoppableResource[Row]):
    """Rows whose work becomes a file.

    Attributes:
        file_path: where it is, below the address of a row.
    """

    file_path = "/audio"

    def download(self, row_id: str, /, target: Path | str, on_bytes: OnBytes | None = None) -> Path:
        """Write the file of one, all of it or nothing; a broken download is gone on with.

        Args:
            on_bytes: called with the bytes that are there and those of the whole, None if unknown.

        Raises:
            ConflictError: its code ends in `_not_finished` or `_not_started`.
            NotFoundError: `…_without_audio` or `…_without_results`: it failed or was cancelled.
            DownloadError: the connection broke too often.
            OSError: the file cannot be written.
        """
        return self._download(row_id, self.file_path, target, on_bytes)


class PausableResource(StoppableResource[Row]):
    """Rows whose work can also be held up, and whose samples are approved."""

    def pause(self, row_id: str, /) -> Row:
        """Start no more of one."""
        return self._act(row_id, "pause")

    def resume(self, row_id: str, /) -> Row:
        """Go on with a paused one."""
        return self._act(row_id, "resume")

    def set_priority(self, row_id: str, priority: Literal["interactive", "bulk"] | str, /) -> Row:
        """Move the unfinished work of one to the class `interactive` or `bulk`.

        Raises:
            ConflictError: job_ended.
        """
        return self._act(row_id, "priority", json={"priority": priority})


def wait_for(
    poll: Callable[[float], Row],
    is_over: Callable[[Row], bool],
    what: str,
    timeout: float | None,
    on_update: Callable[[Row], None] | None,
    sleep: Callable[[float], None] | None,
) -> Row:
    """Poll until the end; `on_update` is called about once a second, `what` names it in the error.

    Args:
        sleep: what pauses between polls of a server that answers at once.

    Raises:
        WaitTimeoutError: it had not ended after `timeout` seconds; it goes on.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    longest = UPDATE_SECONDS if on_update is not None or sleep is not None else POLL_SECONDS
    while True:
        row = poll(longest if sleep is not None else _within(deadline, longest, what))
        if on_update is not None:
            on_update(row)
        if is_over(row):
            return row
        if sleep is not None:
            sleep(_within(deadline, longest, what))


def path_of(kind: str, row_id: str, rest: str = "") -> str:
    """Return the path of one row.

    Raises:
        NotFoundError: what is no id would be another address.
    """
    if not is_id(row_id):
        noun = noun_of(kind)
        raise NotFoundError(404, f"{noun}_not_found", f"{row_id!r} is not the id of a {noun}.")
    return f"/api/v1/{kind}/{uuid.UUID(row_id)}{rest}"


def noun_of(kind: str) -> str:
    return "batch" if kind == "batches" else kind.removesuffix("s")


def is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _within(deadline: float | None, seconds: float, what: str) -> float:
    """Return `seconds`, cut to what is left until the deadline.

    Raises:
        WaitTimeoutError: nothing is left.
    """
    if deadline is None:
        return seconds
    left = deadline - time.monotonic()
    if left <= 0:
        raise WaitTimeoutError(
            "wait_timeout", f"Waiting for {what} timed out; try again, or allow more time."
        )
    return min(seconds, left)


def speakers(voice: str | None, voices: Mapping[int, str] | None) -> dict[str, Any]:
    """Return the fields of who speaks, as far as they are given."""
    found: dict[str, Any] = {} if voice is None else {"voice": voice}
    if voices is not None:
        found["voices"] = {str(speaker): name for speaker, name in voices.items()}
    return found


def file_part(file: Path | str, *media_type: str) -> tuple[Any, ...]:
    """Return a file as httpx sends one.

    Raises:
        OSError: it cannot be read.
    """
    path = Path(file)
    return (path.name, path.read_bytes(), *media_type)


def form_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return fields as a form has them: what is no text is JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in fields.items()
    }
