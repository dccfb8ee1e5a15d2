"""Import torchaudio, without its binary part where that does not load beside this torch.

Its resampling is plain Python. The binary part fits one build of torch only: the plain package
brings the one for CUDA, which does not load beside a torch for the CPU.

The installer runs this file by its path, before the project's other packages are there: only the
standard library and torch are imported. Exit code 0: whole, 3: without the binary part, 1: not.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import logging
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

EXIT_WITHOUT_BINARY = 3
# What an import raises where a library is missing, belongs to another torch, or to another CUDA.
_LOAD_ERRORS = (ImportError, OSError, RuntimeError, AttributeError)
_lock = threading.Lock()

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TorchaudioImport:
    """What came of the import.

    `module` is None where torchaudio cannot be used at all; `problem` says what does not load, and
    is None where all of it does.
    """

    module: ModuleType | None
    problem: str | None

    def __str__(self) -> str:
        """Return one clause for a log line, the doctor or the installer."""
        if self.module is None:
            return f"torchaudio cannot be imported ({self.problem})"
        version = getattr(self.module, "__version__", "of unknown version")
        if self.problem is None:
            return f"torchaudio {version} imports"
        return (
            f"torchaudio {version} without its binary part, which cannot be loaded ({self.problem})"
        )


def import_torchaudio() -> TorchaudioImport:
    """Import torchaudio once in this process, and log what came of it."""
    with _lock:
        return _import_once()


@functools.cache
def _import_once() -> TorchaudioImport:
    found = _try_import()
    logger.log(logging.INFO if found.problem else logging.DEBUG, "resampling: %s", found)
    return found


def _try_import() -> TorchaudioImport:
    try:
        return TorchaudioImport(_import_whole(), None)
    except _LOAD_ERRORS as error:
        whole = _sentence(error)
        _forget()
    try:
        return TorchaudioImport(_import_without_binary(), whole)
    except _LOAD_ERRORS as error:
        _forget()
        without = _sentence(error)
        return TorchaudioImport(None, whole if whole == without else f"{whole}; {without}")


def _import_whole() -> ModuleType:
    importlib.import_module("torchaudio.transforms")
    return sys.modules["torchaudio"]


def _import_without_binary() -> ModuleType:
    """Import torchaudio as its source builds it where the binary part was left out.

    Whether that part is there is asked in its own ways: up to 2.10 by the module's spec, which a
    None in sys.modules hides; from 2.11 by `_load_lib`, which returns False where no file is.
    """
    package = importlib.machinery.PathFinder.find_spec("torchaudio")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'torchaudio'")
    name, path = "torchaudio._extension.utils", Path(package.origin).parent / "_extension/utils.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError("this torchaudio loads its binary part in an unknown way")
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)
    setattr(utils, "_load_lib", lambda _lib: False)  # noqa: B010  # mypy knows no such attribute
    sys.modules[name] = utils
    sys.modules["torchaudio.lib._torchaudio"] = None  # type: ignore[assignment]  # hides it
    return _import_whole()


def _forget() -> None:
    """Take the modules of a failed import away: it would find them half-made."""
    for name in [one for one in sys.modules if one.split(".")[0] == "torchaudio"]:
        del sys.modules[name]


def _sentence(error: BaseException) -> str:
    error = error.__cause__ or error  # the loader's own words, where torch only names the file
    lines = str(error).splitlines() or ["no reason given"]
    return f"{type(error).__name__}: {lines[0]}"


def main() -> int:
    """Say what came of the import, on standard output; return an exit code."""
    found = import_torchaudio()
    sys.stdout.write(f"{found}\n")
    if found.module is None:
        return 1
    return 0 if found.problem is None else EXIT_WITHOUT_BINARY


if __name__ == "__main__":
    sys.exit(main())
