"""The batches of books of a server, as the client sees them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

from ttsweb.client.book_types import Book, BookBatch, BookBatchEntry, BookBatchReport
from ttsweb.client.errors import ConflictError
from ttsweb.client.resource import SENDING_SECONDS, Event, Resource, follow, form_of, path_of

BOOK_SUFFIXES = (".epub", ".docx", ".html", ".htm", ".xhtml", ".pdf", ".txt", ".md")
ENDED: frozenset[str] = frozenset({"ended", "cancelled"})


class BookBatches(Resource[BookBatch]):
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
        parts = _parts(fields, entries)
        return cast("BookBatch", self._make("/api/v1/book-batches", key=idempotency_key, **parts))

    def add(
        self,
        batch_id: str,
        entries: Sequence[Mapping[str, Any]] | Path | str,
        *,
        on_error: Literal["reject", "skip"] = "reject",
    ) -> BookBatch:
        """Add entries to a batch that was not closed."""
        found = self._read(
            "POST",
            path_of("book-batches", batch_id, "/entries"),
            repeatable=False,
            timeout=max(self._http.timeout, SENDING_SECONDS),
            **_parts({"on_error": on_error}, entries),
        )
        return cast("BookBatch", found)

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
        parts = {"data": data, "files": {"file": (path.name, path.read_bytes())}}
        return cast("Book", self._make("/api/v1/books", key=None, **parts))

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
        return self._rows()

    def entries(self, batch_id: str, *, state: str | None = None) -> Iterator[BookBatchEntry]:
        """Yield the entries of a batch in their order; `state` is one or several, by commas."""
        return self._pages(path_of("book-batches", batch_id, "/entries"), state=state)

    def report(self, batch_id: str) -> BookBatchReport:
        """Return the summary of a batch that has ended: totals, and its books one by one."""
        found = self._read("GET", path_of("book-batches", batch_id, "/report"))
        return cast("BookBatchReport", found)

    def events(self, batch_id: str, *, last_event_id: str | None = None) -> Iterator[Event]:
        """Yield what happens to a batch until it has ended: `state`, `book`, `progress`, `deleted`.

        Args:
            last_event_id: of an event that was seen; what came after it is told.
        """
        return follow(self._http, path_of("book-batches", batch_id, "/events"), last_event_id)

    def close(self, batch_id: str) -> BookBatch:
        """Say that no more entries and files come: the batch ends once its books have."""
        return self._act(batch_id, "close")

    def pause(self, batch_id: str) -> BookBatch:
        """Start nothing more of a batch."""
        return self._act(batch_id, "pause")

    def resume(self, batch_id: str) -> BookBatch:
        """Go on with a paused batch."""
        return self._act(batch_id, "resume")

    def cancel(self, batch_id: str) -> BookBatch:
        """Cancel the unfinished books of a batch; what is rendered is kept."""
        return self._act(batch_id, "cancel")

    def retry(self, batch_id: str) -> BookBatch:
        """Queue what failed or was cancelled once more."""
        return self._act(batch_id, "retry", repeatable=False)

    def approve(self, batch_id: str, books: Sequence[str] | None = None) -> BookBatch:
        """Approve samples, so that the rest of their books is rendered."""
        return self._act(batch_id, "approve", {} if books is None else {"books": list(books)})

    def set_priority(
        self, batch_id: str, priority: Literal["interactive", "bulk"] | str
    ) -> BookBatch:
        """Give a batch and its unfinished books another priority."""
        return self._act(batch_id, "priority", {"priority": priority})

    def _is_over(self, batch: BookBatch) -> bool:
        return batch["ended_at"] is not None


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
    return {"data": form_of(fields), "files": {"manifest": (path.name, path.read_bytes())}}
