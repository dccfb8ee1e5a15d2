"""Keep objects on a file system so that a reader sees all of an object or nothing."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from django.core.files.base import File
from django.core.files.storage import FileSystemStorage

TEMPORARY_SUFFIX = ".part"  # the sweep removes what a killed process left under this suffix


class AtomicFileSystemStorage(FileSystemStorage):
    """Write to a temporary name in the same folder, sync, then publish by one rename."""

    def _save(self, name: str, content: File[bytes]) -> str:
        """Publish `content` under `name`; on any error nothing is left behind.

        Raises:
            OSError: the disk is full or cannot be written; no object appears.
        """
        target = Path(self.path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
        try:
            with temporary.open("wb") as file:
                for chunk in content.chunks():
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
        return name


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
