"""Name files by their content, and remember digests so that a restart need not read all weights."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from synth.engine.errors import CheckpointError

CACHE_NAME = "digests.json"
MAX_ENTRIES = 64  # in memory and in the file

_memo: OrderedDict[str, str] = OrderedDict()
_memo_lock, _file_lock = threading.Lock(), threading.Lock()


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the same folder, then put it in the place of `path`.

    Readers see the old file or the whole new one. When `write` fails, as on a full disk, the
    temporary file is removed and `path` is untouched.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    temporary.touch(exist_ok=False)  # with the mode that the process's umask leaves
    try:
        write(temporary)
        with temporary.open("rb+") as opened:
            os.fsync(opened.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def file_sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def file_identity(path: Path) -> str:
    """Return path, size and time of change (ns); CheckpointError for a file that is not there."""
    try:
        found = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} is missing or cannot be read: {error}.") from error
    return f"{path.resolve()}|{found.st_size}|{found.st_mtime_ns}"


def file_digest(path: Path, *, cache_dir: Path | None = None) -> str:
    """Return the SHA-256 of a file's content; CheckpointError where it is missing.

    A file that kept path, size and modification time is not read again.
    """
    return remembered_digest(file_identity(path), lambda: file_sha256(path), cache_dir)


def remembered_digest(key: str, compute: Callable[[], str], cache_dir: Path | None) -> str:
    """Return the digest kept under a key in this process or in a folder, or compute and keep it."""
    with _memo_lock:
        digest = _memo.get(key)
    if digest is None and cache_dir is not None:
        digest = _read_cache(cache_dir / CACHE_NAME).get(key)
    if digest is not None:
        return digest
    digest = compute()
    with _memo_lock:
        _memo[key] = digest
        while len(_memo) > MAX_ENTRIES:
            _memo.popitem(last=False)
    if cache_dir is not None:
        cache_dir.mkdir(parents=True, exist_ok=True)
        path = cache_dir / CACHE_NAME
        with _file_lock:
            entries = list(_read_cache(path).items())[1 - MAX_ENTRIES :]
            text = json.dumps(dict([*entries, (key, digest)]), indent=1)
            # Two processes that write at once lose one entry, which is then computed again.
            replace_file(path, lambda part: part.write_text(text, encoding="utf-8"))
    return digest


def _read_cache(path: Path) -> dict[str, str]:
    """Return the kept digests; none where the file is missing or damaged: they are made again."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    items = kept.items() if isinstance(kept, dict) else ()
    return {str(key): value for key, value in items if isinstance(value, str)}
