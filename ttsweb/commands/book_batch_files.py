"""Write the finished books of a batch below a folder, as Audiobookshelf reads it; none twice."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from ttsweb.client import Client, ClientError
from ttsweb.client.book_batches import BookBatchEntry
from ttsweb.zips import ZipLimits, ZipRefusedError, open_zip

SHELF, FLAT = "shelf", "flat"
LAYOUTS = (SHELF, FLAT)
LEDGER_FOLDER = ".ttsweb"  # below the folder: which books of which batch are there already


class BatchFiles:
    """The folder that a batch's books are written to.

    What is there and was not written for this batch is never written over.
    """

    def __init__(self, client: Client, batch_id: str, folder: Path, layout: str) -> None:
        self._client, self._folder, self._layout = client, folder, layout
        self._ledger = folder / LEDGER_FOLDER / f"{batch_id}.json"
        self.written: dict[str, list[str]] = self._read_ledger()

    def has(self, entry: BookBatchEntry) -> bool:
        """Return whether an entry's book is there."""
        paths = self.written.get(str(entry["index"]))
        return bool(paths) and all((self._folder / path).is_file() for path in paths or ())

    def fetch(self, entry: BookBatchEntry) -> list[Path]:
        """Write an entry's finished book, and return its files.

        Raises:
            ClientError: file_exists, book_file_failed, archive_invalid, and those of the server.
            OSError: a file cannot be written.
        """
        if self.has(entry):
            return [self._folder / path for path in self.written[str(entry["index"])]]
        fetch = self._fetch_shelf if self._layout == SHELF else self._fetch_flat
        paths = fetch(entry)
        self.written[str(entry["index"])] = [path.as_posix() for path in paths]
        self._write_ledger()
        return [self._folder / path for path in paths]

    def _fetch_flat(self, entry: BookBatchEntry) -> list[Path]:
        """Write the book's own file at the entry's place, with the ending of its format."""
        book = self._client.books.get(str(entry["book"]))
        ending = book["options"].get("format", "m4b")
        relative = Path(*PurePosixPath(entry["file"]).parts).with_suffix(f".{ending}")
        self._check_free(relative, entry)
        self._client.books.download(book["id"], self._folder / relative)
        return [relative]

    def _fetch_shelf(self, entry: BookBatchEntry) -> list[Path]:
        """Have the book laid out by the server, and unpack it."""
        book_id = str(entry["book"])
        made = self._client.books.request_file(book_id, "shelf")
        made = self._client.books.wait_file(book_id, made["id"])
        if made["status"] == "failed":
            raise ClientError("book_file_failed", f"{entry['file']}: {made['error_message']}")
        self._ledger.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._ledger.parent, prefix="shelf-") as name:
            archive = self._client.books.download_file(book_id, made["id"], Path(name, "shelf.zip"))
            return self._unpack(archive, Path(name, "files"), entry)

    def _unpack(self, archive: Path, scratch: Path, entry: BookBatchEntry) -> list[Path]:
        with _opened(archive) as opened:
            members = [member for member in opened.infolist() if not member.is_dir()]
            paths = [_place_of(member.filename) for member in members]
            for path in paths:
                self._check_free(path, entry)
            for member, path in zip(members, paths, strict=True):
                target = scratch / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(member) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
        for path in paths:
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / path).replace(self._folder / path)
        return paths

    def _check_free(self, path: Path, entry: BookBatchEntry) -> None:
        mine = self.written.get(str(entry["index"]), [])
        if (self._folder / path).exists() and path.as_posix() not in mine:
            raise ClientError(
                "file_exists",
                f"{entry['file']}: {self._folder / path} exists already and is not overwritten; "
                "move it away, or give another folder with --out.",
            )

    def _read_ledger(self) -> dict[str, list[str]]:
        try:
            found: dict[str, Any] = json.loads(self._ledger.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return {
            index: [str(path) for path in paths]
            for index, paths in found.items()
            if isinstance(paths, list)
        }

    def _write_ledger(self) -> None:
        self._ledger.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._ledger.with_suffix(".part")
        temporary.write_text(json.dumps(self.written), encoding="utf-8")
        temporary.replace(self._ledger)


def _opened(archive: Path) -> zipfile.ZipFile:
    """Open what the server packed: audio, stored as it is, which does not grow."""
    limits = ZipLimits(entries=100_000, directory_bytes=1 << 26, growth_bytes=1 << 26)
    try:
        with archive.open("rb") as file:
            open_zip(file, limits).close()
    except ZipRefusedError as error:
        raise ClientError("archive_invalid", f"The server's archive {error.why}.") from error
    return zipfile.ZipFile(archive)


def _place_of(name: str) -> Path:
    """Return where a member of the archive goes; one that leads elsewhere is refused."""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or name.startswith("/") or "\\" in name or ":" in parts[0]:
        raise ClientError("archive_invalid", f"The server's archive names a path {name!r}.")
    return Path(*parts)
