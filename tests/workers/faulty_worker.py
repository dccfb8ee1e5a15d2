"""Run `manage.py` with one fault built in; `TTS_TEST_FAULT` names it.

triple: every message is sent three times. poison: asking the engine for a text with the word
"poison" kills the process. full: no take can be stored while the file `disk-is-full` is there.
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
    """Refuse to store takes, as a full disk does, while a flag file is there."""
    from ttsweb.storage import AtomicFileSystemStorage

    save = AtomicFileSystemStorage._save
    flag = Path(os.environ["TTS_DATA_DIR"]) / "disk-is-full"

    def refusing(self: AtomicFileSystemStorage, name: str, content: Any) -> str:
        if name.startswith("takes/") and flag.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return save(self, name, content)

    AtomicFileSystemStorage._save = refusing  # type: ignore[method-assign]


if __name__ == "__main__":
    import django
    from django.core.management import execute_from_command_line

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")
    django.setup()
    {"triple": triple, "poison": poison, "full": full}[os.environ["TTS_TEST_FAULT"]]()
    execute_from_command_line(sys.argv)
