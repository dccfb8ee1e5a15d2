"""Two steps of `./tts`, before anything is installed: only the standard library is imported.

`steps.py lock LOCK_FILE PROGRAM [ARGUMENTS]` runs a command while holding a lock, so that two first
runs do not mix. `steps.py list PYPROJECT [EXTRA ...]` prints what pyproject.toml asks for, one
requirement a line, without PyTorch, which has its own installer, `torch_install.py`.
"""

import fcntl
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path


def lock_and_run(lock_file: Path, command: Sequence[str]) -> None:
    """Wait for the lock, then become `command`, which keeps it until it and its children end.

    The kernel frees the lock when its last holder ends, however that happens; a lock file that
    lies about means nothing.
    """
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write("Waiting for another installation to finish\n")
        sys.stderr.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    os.execvp(command[0], list(command))


_PYTORCH = re.compile(r"torch(audio)?(?![A-Za-z0-9._-])")


def list_requirements(pyproject: Path, extras: Iterable[str]) -> list[str]:
    """Return the base dependencies and those of `extras`, in the file's order.

    Raises:
        KeyError: the file has no such extra.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    wanted: list[str] = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return [requirement for requirement in wanted if not _PYTORCH.match(requirement)]


if __name__ == "__main__":
    step, path, *rest = sys.argv[1:]
    if step == "lock":
        lock_and_run(Path(path), rest)
    else:
        sys.stdout.write("\n".join(list_requirements(Path(path), rest)) + "\n")
