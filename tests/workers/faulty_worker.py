"""Run `manage.py` with one fault built in; `TTS_TEST_FAULT` names it.

triple: every message is sent three times. poison: asking the engine for a text with the word
"poison" kills the process. full: no take and no book can be stored while the file `disk-is-full` is
there, and no file for people while `no-room-for-files` is. chapters: the process dies once it has
encoded as many chapters as `die-after-chapters` says. storing: it dies before or after it stores
what it read of a book, as `die-storing` says.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def triple() -> None:
    """Send every message three times."""
    from synth import queue

    send = queue._send

    def thrice(name: str, argument: Any, *, queue: str) -> bool:
        return all([send(name, argument, queue=queue) for _ in range(3)])

    queue._send = thrice


def poison() -> None:
    """Die as a crash in native code would, without a word."""
    from synth.engine import Engine

    submit = Engine.submit

    def deadly(self: Engine, spec: Any, **options: Any) -> Any:
        if "poison" in spec.text:
            os._exit(66)
        return submit(self, spec, **options)

    Engine.submit = deadly  # type: ignore[method-assign]


def full() -> None:
    """Refuse to store things, as a full disk does, while a flag file is there."""
    from ttsweb.storage import AtomicFileSystemStorage

    save = AtomicFileSystemStorage._save
    folder = Path(os.environ["TTS_DATA_DIR"])
    flags = {name: folder / "disk-is-full" for name in ("takes", "books")}
    flags["exports"] = folder / "no-room-for-files"

    def refusing(self: AtomicFileSystemStorage, name: str, content: Any) -> str:
        flag = flags.get(name.partition("/")[0])
        if flag is not None and flag.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return save(self, name, content)

    AtomicFileSystemStorage._save = refusing  # type: ignore[method-assign]


def chapters() -> None:
    """Die with some chapters of a file encoded."""
    from workers.book_files.encode_cache import EncodeCache

    finish = EncodeCache.finish
    flag = Path(os.environ["TTS_DATA_DIR"]) / "die-after-chapters"
    encoded = []

    def deadly(self: EncodeCache, key: str, facts: dict[str, Any]) -> dict[str, Any]:
        finished = finish(self, key, facts)
        encoded.append(key)
        if len(encoded) == int(flag.read_text()):
            os._exit(66)
        return finished

    EncodeCache.finish = deadly  # type: ignore[method-assign]


def storing() -> None:
    """Die with a book read, before or after what was read is stored."""
    from workers import book_import

    store = book_import._store
    moment = (Path(os.environ["TTS_DATA_DIR"]) / "die-storing").read_text()

    def deadly(source: Any, read: Any) -> dict[str, str]:
        if moment == "after":
            store(source, read)
        os._exit(66)

    book_import._store = deadly


FAULTS = {
    "triple": triple,
    "poison": poison,
    "full": full,
    "chapters": chapters,
    "storing": storing,
}

if __name__ == "__main__":
    import django
    from django.core.management import execute_from_command_line

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")
    django.setup()
    FAULTS[os.environ["TTS_TEST_FAULT"]]()
    execute_from_command_line(sys.argv)
