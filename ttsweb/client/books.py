"""The books of a server with their plans, casting, files and covers, and its batches of books."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

from ttsweb.client.book_types import (
    FILE_FINAL,
    Book,
    BookBatch,
    BookBatchEntry,
    BookBatchReport,
    BookFile,
    BookFileKind,
    BookMetadata,
    Casting,
    Plan,
    Proof,
)
from ttsweb.client.http import ConflictError, Event, NotFoundError, follow
from ttsweb.client.resource import (
    SENDING_SECONDS,
    FileResource,
    OnBytes,
    PausableResource,
    download,
    file_part,
    form_of,
    is_id,
    path_of,
    speakers,
    wait_for,
)
from ttsweb.client.types import JOB_FINAL


class Books(PausableResource[Book], FileResource[Book]):
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
        fields = {"start": start, **options, **speakers(voice, voices)}
        parts = {"data": form_of(fields), "files": {"file": file_part(file)}}
        return cast("Book", self._make("books", idempotency_key, **parts))

    def plan(self, book_id: str) -> Plan:
        """Return the plan of a book: what is spoken, and what is skipped and why."""
        return self._ask(Plan, "GET", book_id, "/plan")

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
        return self._ask(Proof, "GET", book_id, "/proof")

    def start(self, book_id: str, *, voice: str | None = None) -> Book:
        """Have a planned book rendered."""
        return self._act(book_id, "start", json=speakers(voice, None), repeatable=False)

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

    def wait_planned(self, book_id: str, *, timeout: float | None = None) -> Book:
        """Return a book once it was read, or could not be; it may have been started by then.

        Raises:
            WaitTimeoutError: it was not read after `timeout` seconds.
        """
        return self._wait(book_id, lambda book: book["status"] != "importing", timeout, None)

    def _is_over(self, book: Book) -> bool:
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
        return self._ask(Book, "PATCH", book_id, "/pauses", json=dict(pauses))

    def _change_plan(self, book_id: str, body: Mapping[str, Any], plan_number: int | None) -> Plan:
        fields = dict(body) if plan_number is None else {**body, "plan_number": plan_number}
        return self._ask(Plan, "PATCH", book_id, "/plan", json=fields, repeatable=False)

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
        return self._ask(BookFile, "POST", book_id, "/files", json={"kind": kind, **options})

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
            timeout,
            on_update,
            self._http.sleep,
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
        return self._http.send("GET", _path(book_id, file_id, "/plot")).text

    def delete_file(self, book_id: str, file_id: str) -> None:
        """Delete a file of a book in any state; the book stays as it is."""
        self._http.send("DELETE", _path(book_id, file_id), repeatable=False)

    def metadata(self, book_id: str) -> BookMetadata:
        """Return what is said of a book: by its `file`, what was `set`, and what is `shown`."""
        return self._ask(BookMetadata, "GET", book_id, "/metadata")

    def set_metadata(
        self, book_id: str, values: Mapping[str, Any] | None = None, **more: Any
    ) -> Book:
        """Say something else of a book; None takes back what was said.

        Args:
            values, more: title, subtitle, authors, narrators, series, series_index, publisher,
                date, description, genres, language, rights.
        """
        body = {"metadata": {**(values or {}), **more}}
        return self._ask(Book, "PATCH", book_id, json=body)

    def set_cover(self, book_id: str, file: Path | str) -> Book:
        """Give a book another cover: a JPEG, PNG or WebP image.

        Raises:
            OSError: the file cannot be read.
        """
        timeout = max(self._http.timeout, SENDING_SECONDS)
        files = {"file": file_part(file)}
        return self._ask(Book, "PUT", book_id, "/cover", timeout=timeout, files=files)

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


class BookBatches(PausableResource[BookBatch]):
    """The batches of books of the key's user; every method raises `ClientError`s."""

    kind = "book-batches"

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
        made = self._make(self.kind, idempotency_key, **_parts(fields, entries))
        return cast("BookBatch", made)

    def add(
        self,
        batch_id: str,
        entries: Sequence[Mapping[str, Any]] | Path | str,
        *,
        on_error: Literal["reject", "skip"] = "reject",
    ) -> BookBatch:
        """Add entries to a batch that was not closed."""
        parts = _parts({"on_error": on_error}, entries)
        parts["timeout"] = max(self._http.timeout, SENDING_SECONDS)
        return self._ask(BookBatch, "POST", batch_id, "/entries", repeatable=False, **parts)

    def upload(self, batch_id: str, file: Path | str, *, entry: str | None = None) -> Book:
        """Send the file of an entry, whose options and metadata it then has.

        Args:
            entry: the entry's `file`, where the name of the file does not say which one it is.

        Raises:
            ConflictError: entry_has_file, it is there already; book_batch_closed.
            OSError: the file cannot be read.
        """
        data = {"book_batch": batch_id, **({"entry": entry} if entry is not None else {})}
        made = self._make("books", None, data=data, files={"file": file_part(file)})
        return cast("Book", made)

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

    def entries(self, batch_id: str, *, state: str | None = None) -> Iterator[BookBatchEntry]:
        """Yield the entries of a batch in their order; `state` is one or several, by commas."""
        return self._pages(path_of("book-batches", batch_id, "/entries"), state=state)

    def report(self, batch_id: str) -> BookBatchReport:
        """Return the summary of a batch that has ended: totals, and its books one by one."""
        return self._ask(BookBatchReport, "GET", batch_id, "/report")

    def events(self, batch_id: str, *, last_event_id: str | None = None) -> Iterator[Event]:
        """Yield what happens to a batch until it has ended: `state`, `book`, `progress`, `deleted`.

        Args:
            last_event_id: of an event that was seen; what came after it is told.
        """
        return follow(self._http, path_of("book-batches", batch_id, "/events"), last_event_id)

    def close(self, batch_id: str) -> BookBatch:
        """Say that no more entries and files come: the batch ends once its books have."""
        return self._act(batch_id, "close")

    def approve(self, batch_id: str, books: Sequence[str] | None = None) -> BookBatch:
        """Approve samples, so that the rest of their books is rendered."""
        return self._act(batch_id, "approve", json={} if books is None else {"books": list(books)})

    def _is_over(self, batch: BookBatch) -> bool:
        return batch["ended_at"] is not None


def _parts(
    fields: Mapping[str, Any], entries: Sequence[Mapping[str, Any]] | Path | str
) -> dict[str, Any]:
    if not isinstance(entries, (Path, str)):
        return {"json": {**fields, "entries": [dict(one) for one in entries]}}
    return {"data": form_of(fields), "files": {"manifest": file_part(entries)}}
