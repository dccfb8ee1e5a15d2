"""The files of a book beside its job's, its metadata and its cover, as the client sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, cast

from synth.formats import BookFileFormat
from ttsweb.client.download import OnBytes, download
from ttsweb.client.errors import NotFoundError
from ttsweb.client.http import Http, read_json
from ttsweb.client.paths import deadline_after, is_id, path_of, within

if TYPE_CHECKING:
    from ttsweb.client.books import Book

POLL_SECONDS = 1.0
SENDING_SECONDS = 120.0  # twenty megabytes over a slow line
FILE_FINAL: frozenset[str] = frozenset({"done", "failed"})
BookFileKind = Literal[
    BookFileFormat, "chapters", "shelf", "read_along", "sample", "srt", "vtt", "report"
]


class BookFile(TypedDict):
    """A file of a book; `status` is queued, claimed, done or failed.

    `report` is None until it is done, and not there in lists.
    """

    id: str
    kind: BookFileKind
    options: dict[str, Any]
    status: str
    is_partial: bool
    is_current: bool
    filename: str
    content_type: str
    size_bytes: int
    sha256: str
    duration_seconds: float
    content_url: str | None
    plot_url: str | None
    error_code: str
    error_message: str
    created_at: str
    finished_at: str | None
    report: NotRequired[dict[str, Any] | None]


class BookFiles:
    """What `Books` can do with files, metadata and covers."""

    _http: Http

    def files(self, book_id: str) -> Iterator[BookFile]:
        """Yield the files of a book beside its job's, newest first, without their reports."""
        path = path_of("books", book_id, "/files")
        return cast("Iterator[BookFile]", self._http.pages(path, {}))

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
        body = {"kind": kind, **options}
        return cast("BookFile", read_json(self._http.send("POST", path, json=body)))

    def file(self, book_id: str, file_id: str) -> BookFile:
        """Return a file of a book and how far it is."""
        return cast("BookFile", read_json(self._http.get(_path(book_id, file_id))))

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
        deadline = deadline_after(timeout)
        while True:
            file = self.file(book_id, file_id)
            if on_update is not None:
                on_update(file)
            if file["status"] in FILE_FINAL:
                return file
            self._http.sleep(within(deadline, POLL_SECONDS, f"the file {file_id}"))

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

    def metadata(self, book_id: str) -> dict[str, Any]:
        """Return what is said of a book: by its `file`, what was `set`, and what is `shown`."""
        answer = self._http.get(path_of("books", book_id, "/metadata"))
        return cast("dict[str, Any]", read_json(answer))

    def set_metadata(
        self, book_id: str, values: Mapping[str, Any] | None = None, **more: Any
    ) -> Book:
        """Say something else of a book; None takes back what was said.

        Args:
            values, more: title, subtitle, authors, narrators, series, series_index, publisher,
                date, description, genres, language, rights.
        """
        body = {"metadata": {**(values or {}), **more}}
        answer = self._http.send("PATCH", path_of("books", book_id), json=body)
        return cast("Book", read_json(answer))

    def set_cover(self, book_id: str, file: Path | str) -> Book:
        """Give a book another cover: a JPEG, PNG or WebP image.

        Raises:
            OSError: the file cannot be read.
        """
        path = Path(file)
        answer = self._http.send(
            "PUT",
            path_of("books", book_id, "/cover"),
            timeout=max(self._http.timeout, SENDING_SECONDS),
            files={"file": (path.name, path.read_bytes())},
        )
        return cast("Book", read_json(answer))

    def download_cover(self, book_id: str, target: Path | str) -> Path:
        """Write the cover of a book, as it was uploaded or as its file has it."""
        return download(self._http, path_of("books", book_id, "/cover"), Path(target))

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
