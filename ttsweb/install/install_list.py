"""Print what pyproject.toml asks for, one requirement a line, without PyTorch.

Usage: install_list.py PYPROJECT [EXTRA ...]. Only the standard library is imported: `./tts` runs
this before anything is installed. PyTorch has its own installer, `torch_install.py`.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

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
    sys.stdout.write("\n".join(list_requirements(Path(sys.argv[1]), sys.argv[2:])) + "\n")
