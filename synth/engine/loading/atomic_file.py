"""Write a file so that readers see the old one or the whole new one, never a part."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the same folder, then put it in the place of `path`.

    When `write` fails, as on a full disk, the temporary file is removed and `path` is untouched.
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
