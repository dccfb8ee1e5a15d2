"""The books of a server, their plans, casting, files and covers, as the client sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ttsweb.client.book_types import (
    FILE_FINAL,
    Book,
    BookFile,
    BookFileKind,
    BookMetadata,
    Casting,
    Plan,
    Proof,
)
from ttsweb.client.download import OnBytes, download
from ttsweb.client.errors import NotFoundError
from ttsweb.client.resource import SENDING_SECONDS, Resource, form_of, is_id, path_of, wait_for
from ttsweb.client.types import JOB_FINAL


class Books(Resource[Book]):
    """The books of the key's user; every method raises `ClientError`s."""

    kind = "books"
    keeps_back = False

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
        parts = {"data": form_of(fields), "files": {"file": (path.name, path.read_bytes())}}
        return cast("Book", self._make("/api/v1/books", key=idempotency_key, **parts))

    def list(self) -> Iterator[Book]:
        """Yield books, newest first."""
        return self._rows()

    def plan(self, book_id: str) -> Plan:
        """Return the plan of a book: what is spoken, and what is skipped and why."""
        return cast("Plan", self._read("GET", path_of("books", book_id, "/plan")))

    def edit(
        self, book_id: str, edits: Sequence[Mapping[str, Any]], *, plan_number: int | None = None
    ) -> Plan:
        """Change a plan before it is started, and return it; all edits hold or none.

        Args:
            plan_number: of the plan that was looked at; another one meanwhile is a ConflictError.
        """
        return self._change_plan(book_id, {"edits": list(edits)}, plan_number)

    def proof(self, book_id: str) -> Proof:
        """Return where all characters of a book are: spoken, skipped with a reason, or failed."""
        return cast("Proof", self._read("GET", path_of("books", book_id, "/proof")))

    def start(self, book_id: str, *, voice: str | None = None) -> Book:
        """Have a planned book rendered."""
        body = {} if voice is None else {"voice": voice}
        return self._act(book_id, "start", body, repeatable=False)

    def pause(self, book_id: str) -> Book:
        """Start no more segments of a book."""
        return self._act(book_id, "pause")

    def resume(self, book_id: str) -> Book:
        """Go on with a paused book."""
        return self._act(book_id, "resume")

    def cancel(self, book_id: str) -> Book:
        """Cancel a book's job; what is rendered is kept."""
        return self._act(book_id, "cancel")

    def retry(self, book_id: str) -> Book:
        """Queue what failed or was cancelled once more."""
        return self._act(book_id, "retry", repeatable=False)

    def approve(self, book_id: str) -> Book:
        """Approve a book's sample, so that its rest is rendered."""
        return self._act(book_id, "approve")

    def download_sample(
        self, book_id: str, target: Path | str, on_bytes: OnBytes | None = None
    ) -> Path:
        """Write the chapter that a batch had rendered first, an MP3.

        Raises:
            ConflictError: sample_not_ready.
            NotFoundError: book_without_sample.
        """
        return self._download(book_id, "/sample", target, on_bytes)

    def download(self, book_id: str, target: Path | str, on_bytes: OnBytes | None = None) -> Path:
        """Write the file of a book, all of it or nothing; a broken download is gone on with.

        Raises:
            ConflictError: book_not_started, book_not_finished.
            NotFoundError: book_without_audio.
            DownloadError: the connection broke too often.
            OSError: the file cannot be written.
        """
        return self._download(book_id, "/audio", target, on_bytes)

    def wait_planned(self, book_id: str, *, timeout: float | None = None) -> Book:
        """Return a book once it was read, or could not be; it may have been started by then.

        Raises:
            WaitTimeoutError: it was not read after `timeout` seconds.
        """
        return self._wait(book_id, lambda book: book["status"] != "importing", timeout, None)

    def _is_over(self, book: Book) -> bool:
        """Return whether nothing more happens to a book by itself."""
        if book["job"] is None:
            is_to_start = book["status"] in ("importing", "planned") and book["start_wanted"]
            return not is_to_start
        return book["status"] in JOB_FINAL

    def set_casting(
        self, book_id: str, casting: Casting | None, *, plan_number: int | None = None
    ) -> Plan:
        """Say before the start who speaks beside the narrator, and return the plan.

        Args:
            casting: takes the place of the one so far; None lets the narrator speak all.
            plan_number: of the plan that was looked at; another one meanwhile is a ConflictError.
        """
        return self._change_plan(book_id, {"casting": casting}, plan_number)

    def set_credits(
        self,
        book_id: str,
        *,
        opening: str | None = None,
        closing: str | None = None,
        plan_number: int | None = None,
    ) -> Plan:
        """Give a book credits before its start, and return the plan.

        Args:
            opening, closing: templates; empty for none, None leaves what there is.
        """
        given = {"opening_credits": opening, "closing_credits": closing}
        body = {name: value for name, value in given.items() if value is not None}
        return self._change_plan(book_id, body, plan_number)

    def set_pauses(self, book_id: str, pauses: Mapping[str, int | None]) -> Book:
        """Change how long pauses are, in ms by name; None is the usual length.

        Of a book that has its file only that is made again; nothing is rendered.
        """
        path = path_of("books", book_id, "/pauses")
        return cast("Book", self._read("PATCH", path, json=dict(pauses)))

    def set_priority(self, book_id: str, priority: str) -> Book:
        """Move a book to the class `interactive` or `bulk`.

        Raises:
            ConflictError: job_ended.
        """
        return self._act(book_id, "priority", {"priority": priority})

    def _change_plan(self, book_id: str, body: Mapping[str, Any], plan_number: int | None) -> Plan:
        fields = dict(body) if plan_number is None else {**body, "plan_number": plan_number}
        path = path_of("books", book_id, "/plan")
        found = self._read("PATCH", path, json=fields, repeatable=False)
        return cast("Plan", found)

    def files(self, book_id: str) -> Iterator[BookFile]:
        """Yield the files of a book beside its job's, newest first, without their reports."""
        return self._pages(path_of("books", book_id, "/files"))

    def request_file(self, book_id: str, kind: BookFileKind | str, **options: Any) -> BookFile:
        """Have a file of a started book made, or return the one that was made so before.

        Args:
            options: those that the kind takes: `format`, `preset` (standard or acx), `loudness`,
                `bit_rate`, `sample_rate`, `minutes`, `chapter`; and `partial`, for the chapters
                that are complete while others are not.

        Raises:
            ConflictError: book_not_started, book_not_finished.
        """
        path = path_of("books", book_id, "/files")
        return cast("BookFile", self._read("POST", path, json={"kind": kind, **options}))

    def file(self, book_id: str, file_id: str) -> BookFile:
        """Return a file of a book and how far it is."""
        return cast("BookFile", self._read("GET", _path(book_id, file_id)))

    def wait_file(
        self,
        book_id: str,
        file_id: str,
        *,
        timeout: float | None = None,
        on_update: Callable[[BookFile], None] | None = None,
    ) -> BookFile:
        """Return a file once it is done or has failed; its `status` says which.

        Args:
            on_update: called with the file about once a second.

        Raises:
            WaitTimeoutError: it was not there after `timeout` seconds; it goes on.
        """
        return wait_for(
            lambda _: self.file(book_id, file_id),
            lambda file: file["status"] in FILE_FINAL,
            f"the file {file_id}",
            timeout=timeout,
            on_update=on_update,
            sleep=self._http.sleep,
        )

    def download_file(
        self, book_id: str, file_id: str, target: Path | str, on_bytes: OnBytes | None = None
    ) -> Path:
        """Write a file of a book, all of it or nothing; a broken download is gone on with.

        Raises:
            ConflictError: book_file_not_ready, book_file_failed.
            DownloadError: the connection broke too often.
            OSError: the file cannot be written.
        """
        return download(self._http, _path(book_id, file_id, "/content"), Path(target), on_bytes)

    def plot(self, book_id: str, file_id: str) -> str:
        """Return the levels of a file's chapters as SVG."""
        return self._http.get(_path(book_id, file_id, "/plot")).text

    def delete_file(self, book_id: str, file_id: str) -> None:
        """Delete a file of a book in any state; the book stays as it is."""
        self._http.send("DELETE", _path(book_id, file_id), repeatable=False)

    def metadata(self, book_id: str) -> BookMetadata:
        """Return what is said of a book: by its `file`, what was `set`, and what is `shown`."""
        return cast("BookMetadata", self._read("GET", path_of("books", book_id, "/metadata")))

    def set_metadata(
        self, book_id: str, values: Mapping[str, Any] | None = None, **more: Any
    ) -> Book:
        """Say something else of a book; None takes back what was said.

        Args:
            values, more: title, subtitle, authors, narrators, series, series_index, publisher,
                date, description, genres, language, rights.
        """
        body = {"metadata": {**(values or {}), **more}}
        return cast("Book", self._read("PATCH", path_of("books", book_id), json=body))

    def set_cover(self, book_id: str, file: Path | str) -> Book:
        """Give a book another cover: a JPEG, PNG or WebP image.

        Raises:
            OSError: the file cannot be read.
        """
        path = Path(file)
        found = self._read(
            "PUT",
            path_of("books", book_id, "/cover"),
            timeout=max(self._http.timeout, SENDING_SECONDS),
            files={"file": (path.name, path.read_bytes())},
        )
        return cast("Book", found)

    def download_cover(self, book_id: str, target: Path | str) -> Path:
        """Write the cover of a book, as it was uploaded or as its file has it."""
        return self._download(book_id, "/cover", target)

    def delete_cover(self, book_id: str) -> None:
        """Remove a book's cover; its files then show its title."""
        self._http.send("DELETE", path_of("books", book_id, "/cover"), repeatable=False)


def _path(book_id: str, file_id: str, rest: str = "") -> str:
    """Return the path of one file.

    Raises:
        NotFoundError: what is no id would be another address.
    """
    if not is_id(file_id):
        raise NotFoundError(404, "book_file_not_found", f"{file_id!r} is not the id of a file.")
    return path_of("books", book_id, f"/files/{file_id}{rest}")
