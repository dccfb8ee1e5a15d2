"""The books of a server, as the client sees them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from ttsweb.client.book_files import BookFiles
from ttsweb.client.book_work import BookWork, Casting
from ttsweb.client.download import OnBytes, download
from ttsweb.client.http import Http, read_json
from ttsweb.client.paths import deadline_after, path_of, within
from ttsweb.client.types import JOB_FINAL, JobVoice

POLL_SECONDS = 1.0
SENDING_SECONDS = 300.0  # a hundred megabytes over a slow line
IMPORTED: frozenset[str] = frozenset({"planned", "failed"})


class BookProgress(TypedDict):
    """How far the job of a book is."""

    share: float
    chapters_total: int
    chapters_done: int
    segments_total: int
    segments_done: int
    segments_failed: int
    segments_cancelled: int
    takes_rendered: int
    takes_reused: int
    audio_seconds: float
    real_time_factor: float | None
    eta_seconds: int | None


class Book(TypedDict):
    """A book and how far it is; `status` is importing, planned, paused, or that of its job."""

    id: str
    status: str
    job: str | None
    title: str
    authors: list[str]
    language: str
    filename: str
    size_bytes: int
    sha256: str
    plan_number: int
    plan: dict[str, Any] | None
    progress: BookProgress | None
    options: dict[str, Any]
    policies: dict[str, str]
    casting: Casting
    opening_credits: str
    closing_credits: str
    voices: list[JobVoice]
    metadata: dict[str, Any]
    cover_url: str | None
    start_wanted: bool
    audio_url: str | None
    error_code: str
    error_message: str
    created_at: str
    updated_at: str


class Books(BookFiles, BookWork):
    """The books of the key's user; every method raises `ClientError`s."""

    def __init__(self, http: Http) -> None:
        """Use a connection pool; `Client` makes this."""
        self._http = http

    def upload(
        self,
        file: Path | str,
        *,
        voice: str | None = None,
        voices: Mapping[int, str] | None = None,
        start: bool = False,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Book:
        """Send a book, which is then read and planned; with `start` it is rendered at once.

        The request carries an `Idempotency-Key`, made here unless given: however often it is
        repeated, one book is made.

        Args:
            options: `notes`, `tables`, `alt_texts`, `speaker_names`, `casting`,
                `opening_credits`, `closing_credits`, and the options of a job.

        Raises:
            OSError: the file cannot be read.
        """
        path = Path(file)
        fields: dict[str, Any] = {"start": start, **options}
        if voice is not None:
            fields["voice"] = voice
        if voices is not None:
            fields["voices"] = {str(speaker): name for speaker, name in voices.items()}
        answer = self._http.send(
            "POST",
            "/api/v1/books",
            headers={"Idempotency-Key": idempotency_key or uuid.uuid4().hex},
            timeout=max(self._http.timeout, SENDING_SECONDS),
            data={name: _spelled(value) for name, value in fields.items()},
            files={"file": (path.name, path.read_bytes())},
        )
        return cast("Book", read_json(answer))

    def list(self) -> Iterator[Book]:
        """Yield books, newest first."""
        return cast("Iterator[Book]", self._http.pages("/api/v1/books", {}))

    def get(self, book_id: str) -> Book:
        """Return a book."""
        return cast("Book", read_json(self._http.get(path_of("books", book_id))))

    def plan(self, book_id: str) -> dict[str, Any]:
        """Return the plan of a book: what is spoken, and what is skipped and why."""
        return cast("dict[str, Any]", read_json(self._http.get(path_of("books", book_id, "/plan"))))

    def edit(
        self, book_id: str, edits: Sequence[Mapping[str, Any]], *, plan_number: int | None = None
    ) -> dict[str, Any]:
        """Change a plan before it is started, and return it; all edits hold or none.

        Args:
            plan_number: of the plan that was looked at; another one meanwhile is a ConflictError.
        """
        body: dict[str, Any] = {"edits": list(edits)}
        if plan_number is not None:
            body["plan_number"] = plan_number
        path = path_of("books", book_id, "/plan")
        answer = self._http.send("PATCH", path, json=body, repeatable=False)
        return cast("dict[str, Any]", read_json(answer))

    def proof(self, book_id: str) -> dict[str, Any]:
        """Return where all characters of a book are: spoken, skipped with a reason, or failed."""
        path = path_of("books", book_id, "/proof")
        return cast("dict[str, Any]", read_json(self._http.get(path)))

    def start(self, book_id: str, *, voice: str | None = None) -> Book:
        """Have a planned book rendered."""
        body = {} if voice is None else {"voice": voice}
        path = path_of("books", book_id, "/start")
        return cast("Book", read_json(self._http.send("POST", path, json=body, repeatable=False)))

    def pause(self, book_id: str) -> Book:
        """Start no more segments of a book."""
        return self._do(book_id, "pause")

    def resume(self, book_id: str) -> Book:
        """Go on with a paused book."""
        return self._do(book_id, "resume")

    def cancel(self, book_id: str) -> Book:
        """Cancel a book's job; what is rendered is kept."""
        return self._do(book_id, "cancel")

    def retry(self, book_id: str) -> Book:
        """Queue what failed or was cancelled once more."""
        return self._do(book_id, "retry", repeatable=False)

    def approve(self, book_id: str) -> Book:
        """Approve a book's sample, so that its rest is rendered."""
        return self._do(book_id, "approve")

    def download_sample(
        self, book_id: str, target: Path | str, on_bytes: OnBytes | None = None
    ) -> Path:
        """Write the chapter that a batch had rendered first, an MP3.

        Raises:
            ConflictError: sample_not_ready.
            NotFoundError: book_without_sample.
        """
        return download(self._http, path_of("books", book_id, "/sample"), Path(target), on_bytes)

    def delete(self, book_id: str) -> None:
        """Delete a book in any state, its job and all files."""
        self._http.send("DELETE", path_of("books", book_id), repeatable=False)

    def download(self, book_id: str, target: Path | str, on_bytes: OnBytes | None = None) -> Path:
        """Write the file of a book, all of it or nothing; a broken download is gone on with.

        Raises:
            ConflictError: book_not_started, book_not_finished.
            NotFoundError: book_without_audio.
            DownloadError: the connection broke too often.
            OSError: the file cannot be written.
        """
        return download(self._http, path_of("books", book_id, "/audio"), Path(target), on_bytes)

    def wait_planned(self, book_id: str, *, timeout: float | None = None) -> Book:
        """Return a book once it was read, or could not be; it may have been started by then.

        Raises:
            WaitTimeoutError: it was not read after `timeout` seconds.
        """
        return self._wait(book_id, lambda book: book["status"] != "importing", timeout, None)

    def wait(
        self,
        book_id: str,
        *,
        timeout: float | None = None,
        on_update: Callable[[Book], None] | None = None,
    ) -> Book:
        """Return a started book once it has ended, in whatever way; its `status` says how.

        Args:
            on_update: called with the book about once a second.

        Raises:
            WaitTimeoutError: it had not ended after `timeout` seconds; it goes on.
        """
        return self._wait(book_id, _has_ended, timeout, on_update)

    def _wait(
        self,
        book_id: str,
        is_over: Callable[[Book], bool],
        timeout: float | None,
        on_update: Callable[[Book], None] | None,
    ) -> Book:
        deadline = deadline_after(timeout)
        while True:
            book = self.get(book_id)
            if on_update is not None:
                on_update(book)
            if is_over(book):
                return book
            self._http.sleep(within(deadline, POLL_SECONDS, f"the book {book_id}"))

    def _do(self, book_id: str, action: str, *, repeatable: bool = True) -> Book:
        path = path_of("books", book_id, f"/{action}")
        return cast("Book", read_json(self._http.send("POST", path, repeatable=repeatable)))


def _has_ended(book: Book) -> bool:
    """Say whether nothing more happens to a book by itself."""
    if book["job"] is None:
        is_to_start = book["status"] in ("importing", "planned") and book["start_wanted"]
        return not is_to_start
    return book["status"] in JOB_FINAL


def _spelled(value: Any) -> str:
    """Return a value as a form has it."""
    return value if isinstance(value, str) else json.dumps(value)
