"""Keep objects as files, of which a reader sees all or nothing and which nothing replaces.

TTS_STORAGE says whether they are in a folder, as here, or in a bucket (`ttsweb/s3.py`). A file that
people download is one value from its writer into the storage and into its row.
"""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import os
import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from django.core.files.base import File
from django.core.files.storage import FileSystemStorage, default_storage
from django.db import transaction

from ttsweb.private_files import FILE_MODE, FOLDER_MODE

logger = logging.getLogger(__name__)

TEMPORARY_SUFFIX = ".part"  # the sweep removes what a killed process left under this suffix


MOST_FOLDERS = 10_000  # in one listing of keys; of more, others are chosen each time


class StorageAwayError(OSError):
    """The storage cannot be used at the moment; the text says why, and holds no address.

    Only storages over the network raise it: a folder's own errors say which path is at fault.
    """

    def __init__(self, sentence: str, number: int = errno.EIO) -> None:
        super().__init__(number, sentence.removesuffix("."))  # as the system's own texts are

    def __str__(self) -> str:
        return f"{self.strerror}."


class AtomicFileSystemStorage(FileSystemStorage):
    """Write to a temporary name in the same folder, sync, then publish by one link."""

    def _save(self, name: str, content: File[bytes]) -> str:
        """Publish `content` under `name`, or under another where that was taken meanwhile.

        Raises:
            OSError: the disk is full or cannot be written; no object appears and nothing is left.
        """
        while not self._publish(Path(self.path(name)), content):
            name = self.get_available_name(name)
        return name

    def open_range(self, name: str, start: int, end: int | None) -> File[bytes]:
        """Open an object to read it from `start` on; `end` is where the reader will stop."""
        file = self.open(name)
        file.seek(start)
        return file

    def list_keys(self, prefix: str) -> Iterator[str]:
        """Yield the names of the objects in the folders whose names begin with a prefix."""
        parent, _, start = prefix.rpartition("/")
        folders = [name for name in self._listed(parent)[0] if name.startswith(start)]
        if len(folders) > MOST_FOLDERS:
            folders = random.sample(folders, MOST_FOLDERS)
        for folder in folders:
            for name in self._listed(f"{parent}/{folder}")[1]:
                yield f"{parent}/{folder}/{name}"

    def _listed(self, folder: str) -> tuple[list[str], list[str]]:
        try:
            return self.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return [], []

    def _publish(self, target: Path, content: File[bytes]) -> bool:
        """Write an object, and return whether the name was free."""
        self._make_folders(target.parent)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            mode = self.file_permissions_mode or FILE_MODE
            with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
                for chunk in content.chunks():
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            if not _link(temporary, target):
                return False
        finally:
            temporary.unlink(missing_ok=True)
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # so that the name survives a power cut
        finally:
            os.close(descriptor)
        return True

    def _make_folders(self, folder: Path) -> None:
        """Make what is missing of a path, each folder of it with the mode of folders."""
        if not folder.is_dir():
            self._make_folders(folder.parent)
            folder.mkdir(exist_ok=True, mode=self.directory_permissions_mode or FOLDER_MODE)


_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def _link(temporary: Path, target: Path) -> bool:
    """Give a finished file its name, and return whether the name was free."""
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        # Some file systems have no links: of two writers of one name the later one is then seen.
        if error.errno not in _NO_LINKS:
            raise
        temporary.replace(target)
    return True


def storage_place() -> str:
    """Return where the objects are, for people: a folder, or a bucket and its server."""
    return str(default_storage.location)  # type: ignore[attr-defined]  # of both kinds


def fetch_object(key: str) -> io.BytesIO:
    """Return a small object whole: a decoder takes what reading raises for the file's end.

    Raises:
        OSError: it is not there, or the storage is away.
    """
    with default_storage.open(key) as file:
        return io.BytesIO(file.read())


def delete_objects_on_commit(keys: Iterable[str]) -> None:
    """Remove objects once the rows that named them are gone for good."""
    transaction.on_commit(partial(delete_objects, list(keys)))


def delete_objects(keys: Iterable[str]) -> None:
    """Remove objects; one that cannot be removed is logged and left."""
    for key in keys:
        try:
            default_storage.delete(key)
        except OSError as error:
            logger.warning("cannot remove object: key=%s error=%s", key, error)


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file that was written, and what was measured of it.

    `key` names its object, "" until it is stored. `report` is what was measured, `peaks` its
    waveform, at most 1,000 values of 0 to 255; `cues` holds (segment id, first sample, sample after
    the last) at `sample_rate`.
    """

    sha256: str
    size_bytes: int
    duration_seconds: float
    report: dict[str, Any] = field(default_factory=dict)
    peaks: Sequence[int] = ()
    cues: Sequence[tuple[int, int, int]] = ()
    sample_rate: int = 0
    key: str = ""

    @classmethod
    def of(cls, path: Path, *, duration_seconds: float, **measured: Any) -> Self:
        """Return the file at `path`, with what else was measured of it."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(digest, path.stat().st_size, duration_seconds, **measured)

    def stored(self, path: Path, extension: str) -> Self:
        """Return the file once its bytes, which are at `path`, are an object of their own.

        Raises:
            OSError: the storage cannot be written.
        """
        with path.open("rb") as file:
            name = f"exports/{self.sha256}/{uuid.uuid4().hex}.{extension}"
            return replace(self, key=default_storage.save(name, File(file)))

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns that all rows of files have."""
        return {
            "key": self.key,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "duration_seconds": self.duration_seconds,
            "report": self.report,
        }
