"""What all kinds of rows share: get, list, wait for, follow, act on, download and delete them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar, cast

from ttsweb.client.download import OnBytes, download
from ttsweb.client.errors import NotFoundError, WaitTimeoutError, retry_after_of
from ttsweb.client.http import WAIT_RETRIES, Http, pause_before, read_json
from ttsweb.client.types import JOB_FINAL

POLL_SECONDS = 25.0  # how long the server is asked to keep an answer back
UPDATE_SECONDS = 1.0  # the same where somebody watches
SENDING_SECONDS = 300.0  # a hundred megabytes over a slow line, or ten thousand items looked at
SILENT_SECONDS = 60.0  # a stream that lives says something every 15 seconds
_NO_CONTENT = 204  # it has ended, and all of it was seen


Row = TypeVar("Row")


class Event(TypedDict):
    """One event; with its `id` (empty for some) a listener goes on after it."""

    id: str
    event: str
    data: dict[str, Any]


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
        """Use a connection pool; `Client` makes this."""
        self._http = http

    def get(self, row_id: str, /) -> Row:
        """Return one."""
        return cast("Row", self._read("GET", path_of(self.kind, row_id)))

    def delete(self, row_id: str, /) -> None:
        """Delete one in any state, with what belongs to it and all files."""
        self._http.send("DELETE", path_of(self.kind, row_id), repeatable=False)

    def poll(self, row_id: str, seconds: float, /) -> Row:
        """Return one once it has ended or about so many seconds are over."""
        if not self.keeps_back:
            return self.get(row_id)
        started, path = time.monotonic(), path_of(self.kind, row_id)
        wait = {"wait": f"{seconds:.3f}"}
        answer = self._http.get(path, wait, wait_seconds=seconds, retries=WAIT_RETRIES)
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
        return wait_for(
            lambda seconds: self.poll(row_id, seconds),
            is_over,
            what,
            timeout=timeout,
            on_update=on_update,
            sleep=None if self.keeps_back else self._http.sleep,
        )

    def _is_over(self, row: Row) -> bool:
        found = cast("Mapping[str, Any]", row)
        return found["status"] in self.final

    def _read(self, method: str, path: str, *, repeatable: bool = True, **parts: Any) -> Any:
        """Send a request and return the object that the answer holds."""
        return read_json(self._http.send(method, path, repeatable=repeatable, **parts))

    def _act(
        self,
        row_id: str,
        action: str,
        body: Mapping[str, Any] | None = None,
        *,
        repeatable: bool = True,
    ) -> Row:
        """Send an action, which answers with the row."""
        parts: dict[str, Any] = {} if body is None else {"json": dict(body)}
        path = path_of(self.kind, row_id, f"/{action}")
        return cast("Row", self._read("POST", path, repeatable=repeatable, **parts))

    def _make(self, path: str, *, key: str | None, **parts: Any) -> Any:
        """Send what makes something, once however often it arrives, with time for a large body."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        timeout = max(self._http.timeout, SENDING_SECONDS)
        return self._read("POST", path, headers=headers, timeout=timeout, **parts)

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


def wait_for(
    poll: Callable[[float], Row],
    is_over: Callable[[Row], bool],
    what: str,
    *,
    timeout: float | None,
    on_update: Callable[[Row], None] | None,
    sleep: Callable[[float], None] | None = None,
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


def follow(http: Http, path: str, last_event_id: str | None = None) -> Iterator[Event]:
    """Yield events until the `state` that is final, or until what they tell of was deleted.

    Args:
        last_event_id: of an event that was seen; what came after it is told.

    Raises:
        ApiError: the server answered with an error.
        ServerUnreachableError: it did not answer, or its streams broke too often in a row.
    """
    import httpx

    seen, attempt = last_event_id or "", 0
    while True:
        headers = {"Last-Event-ID": seen} if seen else {}
        timeout = httpx.Timeout(http.timeout, read=SILENT_SECONDS)
        answer = http.send(
            "GET", path, headers=headers, timeout=timeout, stream=True, retries=WAIT_RETRIES
        )
        try:
            if answer.status_code == _NO_CONTENT:
                return
            for event in _events_of(answer.iter_lines()):
                seen, attempt = event["id"] or seen, 0
                yield event
                if event["event"] == "deleted" or event["data"].get("final"):
                    return
        except httpx.RequestError as error:
            if attempt >= WAIT_RETRIES:
                raise http.unreachable(error) from error
        finally:
            answer.close()
        http.sleep(pause_before(attempt))
        attempt += 1


def _events_of(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:  # not a comment
            fields[name] = value.removeprefix(" ")
        elif not line and "event" in fields:
            data = cast("dict[str, Any]", json.loads(fields.get("data", "{}")))
            yield Event(id=fields.get("id", ""), event=fields["event"], data=data)
            fields = {}


def form_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return fields as a form has them: what is no text is JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in fields.items()
    }
