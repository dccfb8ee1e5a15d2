"""Keep the data folder to the service's own user: 0600 for its files, 0700 for its folders."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ttsweb.refusals import counted

PRIVATE_UMASK = 0o077
FILE_MODE, FOLDER_MODE = 0o600, 0o700
# What the service makes in the data folder; anything else there was put there by somebody.
_OWN = (
    "*.lock", "bench", "cache", "db.sqlite3*", "logs", "out", "queue", "secret_key", "storage",
    "tmp", "workers",
)  # fmt: skip
_users_umask: int | None = None

logger = logging.getLogger(__name__)


def keep_files_private() -> None:
    """Let what this process and its children make from now on be readable by its user alone."""
    global _users_umask  # the umask belongs to the whole process as well
    before = os.umask(PRIVATE_UMASK)
    if _users_umask is None:
        _users_umask = before


@contextmanager
def users_umask() -> Iterator[None]:
    """Make files with the modes that the user's shell asks for: what a command hands out."""
    if _users_umask is None:
        yield
        return
    before = os.umask(_users_umask)
    try:
        yield
    finally:
        os.umask(before)


def mend_modes(data_dir: Path, storage_dir: Path | None) -> int:
    """Take others' rights from what an earlier version has left; return how many paths changed.

    A folder is changed after all that is in it, and one that is private already is not looked
    into, so that this costs nothing at later starts and goes on where it was cut off.
    """
    own = [path for pattern in _OWN for path in data_dir.glob(pattern)]
    changed = sum(_mend(path) for path in (*own, *filter(None, (storage_dir,))))
    if not _is_shared(data_dir):
        changed += _take_rights(data_dir)
    if changed:
        what = counted(changed, "file or folder", "files and folders")
        logger.info("data folder: removed other users' access to %s", what)
    return changed


def _mend(path: Path) -> int:
    if not _is_open(path):
        return 0
    changed = 0
    if path.is_dir() and not _is_shared(path):
        for folder, folders, files in os.walk(path, topdown=False):
            changed += sum(_take_rights(Path(folder, name)) for name in (*files, *folders))
    return changed + _take_rights(path)


def _take_rights(path: Path) -> int:
    """Return 1 where others had rights and have none now, else 0."""
    if not _is_open(path):
        return 0
    try:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~PRIVATE_UMASK)
    except OSError as error:  # gone meanwhile, or on a file system without modes
        logger.warning("data folder: other users can still read %s: %s", path, error.strerror)
        return 0
    return 1


def _is_open(path: Path) -> bool:
    """Say whether others have rights on a file or folder of this process's user."""
    try:
        found = path.lstat()
    except OSError:
        return False
    is_kept = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return is_kept and found.st_uid == os.geteuid() and bool(found.st_mode & PRIVATE_UMASK)


def _is_shared(folder: Path) -> bool:
    """Say whether a folder serves other things too, such as /tmp or the user's home."""
    try:
        is_sticky = bool(folder.stat().st_mode & stat.S_ISVTX)
        return is_sticky or folder.resolve() in (Path.home().resolve(), Path("/"))
    except (OSError, RuntimeError):
        return True
