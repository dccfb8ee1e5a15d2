"""Keep objects on a file system so that a reader sees all of an object or nothing."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from django.core.files.base import File
from django.core.files.storage import FileSystemStorage

from ttsweb.private_files import FILE_MODE, FOLDER_MODE

TEMPORARY_SUFFIX = ".part"  # the sweep removes what a killed process left under this suffix


class AtomicFileSystemStorage(FileSystemStorage):
    """Write to a temporary name in the same folder, sync, then publish by one rename."""

    def _save(self, name: str, content: File[bytes]) -> str:
        """Publish `content` under `name`; on any error nothing is left behind.

        Raises:
            OSError: the disk is full or cannot be written; no object appears.
        """
        target = Path(self.path(name))
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
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # so that the rename survives a power cut
        finally:
            os.close(descriptor)
        return name

    def _make_folders(self, folder: Path) -> None:
        """Make what is missing of a path, each folder of it with the mode of folders."""
        if not folder.is_dir():
            self._make_folders(folder.parent)
            folder.mkdir(exist_ok=True, mode=self.directory_permissions_mode or FOLDER_MODE)
