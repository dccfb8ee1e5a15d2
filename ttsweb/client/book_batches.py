"""The batches of books of a server, as the client sees them."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypedDict, cast

from ttsweb.client.books import Book, BookProgress
from ttsweb.client.errors import ConflictError, retry_after_of
from ttsweb.client.events import Event, follow
from ttsweb.client.http import WAIT_RETRIES, Http, read_json
from ttsweb.client.paths import deadline_after, path_of, within

SENDING_SECONDS = 300.0
POLL_SECONDS = 25.0
UPDATE_SECONDS = 1.0
BOOK_SUFFIXES = (".epub", ".docx", ".html", ".htm", ".xhtml", ".pdf", ".txt", ".md")
ENDED: frozenset[str] = frozenset({"ended", "cancelled"})
_PATH = "/api/v1/book-batches"


class BatchProgress(TypedDict):
    """How far a batch is."""

    share: float
    books_total: int
    books_ended: int
    segments_total: int
    segments_done: int
    segments_failed: int
    takes_rendered: int
    takes_reused: int
    audio_seconds: float
    expected_seconds: float
    real_time_factor: float | None
    eta_seconds: int | None


class BookBatch(TypedDict):
    """A batch of books; `status` is open, running, paused, to_approve, cancelling, or its end."""

    id: str
    name: str
    status: str
    sample: str
    priority: str
    webhook: str
    defaults: dict[str, Any]
    counts: dict[str, int]
    progress: BatchProgress
    stored_bytes: dict[str, int]
    skipped: list[dict[str, Any]]
    summary: dict[str, Any] | None
    closed_at: str | None
    approved_at: str | None
    paused_at: str | None
    cancelled_at: str | None
    ended_at: str | None
    created_at: str
    updated_at: str


class BookBatchEntry(TypedDict):
    """An entry of a batch: what its manifest says, and how far its book is."""

    index: int
    file: str
    state: str
    options: dict[str, Any]
    metadata: dict[str, Any]
    book: str | None
    title: str
    sample: dict[str, Any] | None
    plan: dict[str, Any] | None
    progress: BookProgress | None
    stored_bytes: dict[str, int]
    audio_url: str | None
    waits_for: str
    error_code: str
    error_message: str


class BookBatches:
    """The batches of books of the key's user; every method raises `ClientError`s."""

    def __init__(self, http: Http) -> None:
        """Use a connection pool; `Client` makes this."""
        self._http = http

    def create(
        self,
        entries: Sequence[Mapping[str, Any]] | Path | str,
        *,
        name: str = "",
        defaults: Mapping[str, Any] | None = None,
        sample: Literal["none", "first", "hold"] = "none",
        webhook: str | None = None,
        on_error: Literal["reject", "skip"] = "reject",
        idempotency_key: str | None = None,
    ) -> BookBatch:
        """Make a batch of entries `{"file", "voice", …}`, or of a manifest; no file is sent yet.

        The request carries an `Idempotency-Key`, made here unless given: however often it is
        repeated, one batch is made.

        Args:
            entries: a list, or the path of a CSV or JSONL file.
            defaults: options of entries that do not say otherwise, such as `voice`.

        Raises:
            InvalidRequestError: `book_batch_entries_invalid`, its `errors` name lines or entries.
            OSError: the manifest cannot be read.
        """
        fields: dict[str, Any] = {
            "name": name,
            "defaults": dict(defaults or {}),
            "sample": sample,
            "on_error": on_error,
        }
        if webhook is not None:
            fields["webhook"] = webhook
        answer = self._http.send(
            "POST",
            _PATH,
            headers={"Idempotency-Key": idempotency_key or uuid.uuid4().hex},
            timeout=max(self._http.timeout, SENDING_SECONDS),
            **_parts(fields, entries),
        )
        return cast("BookBatch", read_json(answer))

    def add(
        self,
        batch_id: str,
        entries: Sequence[Mapping[str, Any]] | Path | str,
        *,
        on_error: Literal["reject", "skip"] = "reject",
    ) -> BookBatch:
        """Add entries to a batch that was not closed."""
        answer = self._http.send(
            "POST",
            path_of("book-batches", batch_id, "/entries"),
            repeatable=False,
            timeout=max(self._http.timeout, SENDING_SECONDS),
            **_parts({"on_error": on_error}, entries),
        )
        return cast("BookBatch", read_json(answer))

    def upload(self, batch_id: str, file: Path | str, *, entry: str | None = None) -> Book:
        """Send the file of an entry, whose options and metadata it then has.

        Args:
            entry: the entry's `file`, where the name of the file does not say which one it is.

        Raises:
            ConflictError: entry_has_file, it is there already; book_batch_closed.
            OSError: the file cannot be read.
        """
        path = Path(file)
        data = {"book_batch": batch_id, **({"entry": entry} if entry is not None else {})}
        answer = self._http.send(
            "POST",
            "/api/v1/books",
            headers={"Idempotency-Key": uuid.uuid4().hex},
            timeout=max(self._http.timeout, SENDING_SECONDS),
            data=data,
            files={"file": (path.name, path.read_bytes())},
        )
        return cast("Book", read_json(answer))

    def upload_missing(
        self,
        batch_id: str,
        folder: Path | str,
        *,
        on_file: Callable[[str, int, int], None] | None = None,
    ) -> list[str]:
        """Send the files that a batch still lacks, and return the names of those not found.

        What is there already is not sent again, so that a broken upload is gone on with.

        Args:
            folder: what the entries' paths are below.
            on_file: called with a file's name, its number from 1, and how many are sent.
        """
        wanted = [one["file"] for one in self.entries(batch_id, state="missing")]
        paths = {name: Path(folder, *PurePosixPath(name).parts) for name in wanted}
        there = [name for name in wanted if paths[name].is_file()]
        for number, name in enumerate(there, 1):
            if on_file is not None:
                on_file(name, number, len(there))
            try:
                self.upload(batch_id, paths[name], entry=name)
            except ConflictError as error:
                if error.code != "entry_has_file":  # another one has sent it meanwhile
                    raise
        return [name for name in wanted if name not in there]

    def list(self) -> Iterator[BookBatch]:
        """Yield batches of books, newest first."""
        return cast("Iterator[BookBatch]", self._http.pages(_PATH, {}))

    def get(self, batch_id: str) -> BookBatch:
        """Return a batch."""
        return cast("BookBatch", read_json(self._http.get(path_of("book-batches", batch_id))))

    def entries(self, batch_id: str, *, state: str | None = None) -> Iterator[BookBatchEntry]:
        """Yield the entries of a batch in their order; `state` is one or several, by commas."""
        params = {"state": state} if state is not None else {}
        pages = self._http.pages(path_of("book-batches", batch_id, "/entries"), params)
        return cast("Iterator[BookBatchEntry]", pages)

    def report(self, batch_id: str) -> dict[str, Any]:
        """Return the summary of a batch that has ended: totals, and its books one by one."""
        path = path_of("book-batches", batch_id, "/report")
        return cast("dict[str, Any]", read_json(self._http.get(path)))

    def poll(self, batch_id: str, seconds: float) -> BookBatch:
        """Return a batch once it has ended or about so many seconds are over."""
        path = path_of("book-batches", batch_id)
        params = {"wait": f"{seconds:.3f}"}
        started = time.monotonic()
        answer = self._http.get(path, params, wait_seconds=seconds, retries=WAIT_RETRIES)
        batch = cast("BookBatch", read_json(answer))
        if batch["ended_at"] is None:
            # A server with too many waiting polls answers at once.
            pause = min(seconds, retry_after_of(answer) or 0.0)
            self._http.sleep(max(0.0, pause - (time.monotonic() - started)))
        return batch

    def wait(
        self,
        batch_id: str,
        *,
        timeout: float | None = None,
        on_update: Callable[[BookBatch], None] | None = None,
    ) -> BookBatch:
        """Return a batch once it has ended, in whatever way.

        Args:
            on_update: called with the batch about once a second.

        Raises:
            WaitTimeoutError: it had not ended after `timeout` seconds; it goes on.
        """
        deadline = deadline_after(timeout)
        longest = UPDATE_SECONDS if on_update is not None else POLL_SECONDS
        while True:
            batch = self.poll(batch_id, within(deadline, longest, f"the batch {batch_id}"))
            if on_update is not None:
                on_update(batch)
            if batch["ended_at"] is not None:
                return batch

    def events(self, batch_id: str, *, last_event_id: str | None = None) -> Iterator[Event]:
        """Yield what happens to a batch until it has ended: `state`, `book`, `progress`, `deleted`.

        Args:
            last_event_id: of an event that was seen; what came after it is told.
        """
        return follow(self._http, path_of("book-batches", batch_id, "/events"), last_event_id)

    def close(self, batch_id: str) -> BookBatch:
        """Say that no more entries and files come: the batch ends once its books have."""
        return self._do(batch_id, "close")

    def pause(self, batch_id: str) -> BookBatch:
        """Start nothing more of a batch."""
        return self._do(batch_id, "pause")

    def resume(self, batch_id: str) -> BookBatch:
        """Go on with a paused batch."""
        return self._do(batch_id, "resume")

    def cancel(self, batch_id: str) -> BookBatch:
        """Cancel the unfinished books of a batch; what is rendered is kept."""
        return self._do(batch_id, "cancel")

    def retry(self, batch_id: str) -> BookBatch:
        """Queue what failed or was cancelled once more."""
        return self._do(batch_id, "retry", repeatable=False)

    def approve(self, batch_id: str, books: Sequence[str] | None = None) -> BookBatch:
        """Approve samples, so that the rest of their books is rendered."""
        return self._do(batch_id, "approve", {} if books is None else {"books": list(books)})

    def set_priority(
        self, batch_id: str, priority: Literal["interactive", "bulk"] | str
    ) -> BookBatch:
        """Give a batch and its unfinished books another priority."""
        return self._do(batch_id, "priority", {"priority": priority})

    def delete(self, batch_id: str) -> None:
        """Delete a batch in any state, its books, their jobs and all files."""
        self._http.send("DELETE", path_of("book-batches", batch_id), repeatable=False)

    def _do(
        self,
        batch_id: str,
        action: str,
        body: Mapping[str, Any] | None = None,
        *,
        repeatable: bool = True,
    ) -> BookBatch:
        path = path_of("book-batches", batch_id, f"/{action}")
        parts: dict[str, Any] = {} if body is None else {"json": dict(body)}
        answer = self._http.send("POST", path, repeatable=repeatable, **parts)
        return cast("BookBatch", read_json(answer))


def entries_of_folder(folder: Path) -> list[dict[str, Any]]:
    """Return an entry for each book below a folder, in the order of their names.

    Raises:
        OSError: the folder cannot be read.
    """
    found = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in BOOK_SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return [{"file": name} for name in sorted(found)]


def digest_of_request(*parts: Any) -> str:
    """Return a key that is the same for the same parts, so that a request is made once."""
    spelled = [one if isinstance(one, bytes) else json.dumps(one, sort_keys=True).encode()
               for one in parts]  # fmt: skip
    digest = hashlib.sha256()
    for one in spelled:
        digest.update(len(one).to_bytes(8, "big") + one)
    return digest.hexdigest()


def _parts(
    fields: Mapping[str, Any], entries: Sequence[Mapping[str, Any]] | Path | str
) -> dict[str, Any]:
    if not isinstance(entries, (Path, str)):
        return {"json": {**fields, "entries": [dict(one) for one in entries]}}
    path = Path(entries)
    spelled = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in fields.items()
    }
    return {"data": spelled, "files": {"manifest": (path.name, path.read_bytes())}}
