"""Compile the frame's C code for this machine's processor, once, and say why where it cannot be."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
BUILT = SOURCES / "built"  # where an image or a package may bring its own
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = (
    "-std=gnu11", "-O3", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-strict-aliasing",
    "-ffp-contract=fast",
)  # fmt: skip
_NO_COMPILER = "there is no C compiler"
_SECONDS = 120  # that a compiler may take; it takes two
_WIDE = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni")


@dataclass(frozen=True, slots=True)
class Target:
    """Name a class of processors: the flags of /proc/cpuinfo that it has."""

    name: str
    needs: tuple[str, ...]

    @property
    def flags(self) -> list[str]:
        return [f"-m{need.replace('_', '')}" for need in self.needs]


TARGETS = (
    Target("avx512_bf16", (*_WIDE, "avx512_bf16")),
    Target("avx512_vnni", _WIDE),
    Target("avx2", ("avx2", "fma")),
)


class NotCompiledError(Exception):
    """There is no compiled code for this machine; the text says why and what helps."""


def find_target(simd: str, *, bf16: bool, flags: frozenset[str] | None = None) -> Target:
    """Return the best class that the processor belongs to and that its libraries may use.

    Args:
        simd: PyTorch's name for what it uses, such as AVX2: no more than that is used here.
        bf16: whether the libraries may multiply bfloat16.
        flags: those of the processor; None means this machine's.

    Raises:
        NotCompiledError: it belongs to none.
    """
    has = processor_flags() if flags is None else flags
    for target in TARGETS:
        allowed = simd.startswith(("AVX2", "AVX512") if target.name == "avx2" else "AVX512")
        if allowed and set(target.needs) <= has and (bf16 or target.name != "avx512_bf16"):
            return target
    raise NotCompiledError(
        f"compiled frames need AVX2, but PyTorch uses {simd} on this processor "
        f"({platform.machine()})"
    )


@cache
def processor_flags() -> frozenset[str]:
    """Return the features that Linux lists for this processor; none where there is no list."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = [line.partition(":")[2] for line in lines if line.partition(":")[0].strip() == "flags"]
    return frozenset(flags[0].split()) if flags else frozenset()


def compiled_library(target: Target, folders: Sequence[Path]) -> ctypes.CDLL:
    """Load the compiled code for a class of processors; compile it into the first folder that can.

    Raises:
        NotCompiledError: it is in no folder, and there is no compiler, or the compiler failed.
    """
    name = library_name(target)
    for folder in (BUILT, *folders):
        path = folder / name
        with suppress(OSError):  # it is not there, of another machine or cut short: made again
            stat = path.stat()
            # Nobody but this user or root can have written it.
            if stat.st_uid in (0, os.getuid()) and not stat.st_mode & 0o022:
                return ctypes.CDLL(str(path))
    compiler = find_compiler()
    if compiler is None:
        named = os.environ.get("CC")
        missing = f"CC names {named}, which is no C compiler here" if named else _NO_COMPILER
        raise NotCompiledError(f"{missing}; install gcc, then start the worker again")
    problems = []
    for folder in folders:
        try:
            return ctypes.CDLL(str(compile_into(folder, target, compiler)))
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
    raise NotCompiledError(f"no folder for compiled code can be written ({'; '.join(problems)})")


def library_name(target: Target) -> str:
    """Return the file's name: other sources, flags or system libraries give another."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]):
        digest.update(path.read_bytes())
    facts = (*_FLAGS, *target.flags, platform.machine(), *platform.libc_ver())
    digest.update(" ".join(facts).encode())
    return f"frame-{target.name}-{digest.hexdigest()[:16]}.so"


def find_compiler() -> str | None:
    """Return the C compiler's path: what CC names, or the first known one; None without any."""
    named = os.environ.get("CC")
    names = (named,) if named else _COMPILERS
    return next((path for name in names if (path := shutil.which(name))), None)


def compile_into(folder: Path, target: Target, compiler: str) -> Path:
    """Compile into a folder, whole or not at all, and return the file.

    Raises:
        NotCompiledError: the compiler failed; the text has its first error.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, part = tempfile.mkstemp(suffix=".so.part", dir=folder)
    os.close(handle)
    source = str(SOURCES / "frame.c")
    command = [compiler, *_FLAGS, *target.flags, "-o", part, source, "-lm"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode:
            lines = done.stderr.splitlines()
            errors = [line for line in lines if "error" in line.lower()] or lines
            reason = errors[0][:300] if errors else "it wrote nothing"
            raise NotCompiledError(f"the C compiler {compiler} failed: {reason}")
        Path(part).chmod(0o755)
        return Path(part).replace(folder / library_name(target))
    except subprocess.TimeoutExpired as error:
        raise NotCompiledError(
            f"the C compiler {compiler} took more than {_SECONDS} seconds"
        ) from error
    finally:
        Path(part).unlink(missing_ok=True)


def cache_folders(cache_dir: Path | None) -> list[Path]:
    """Return where compiled code is kept: the user's caches, or else beside ours.

    The user's come first, as they serve every data folder and every checkout.
    """
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    own = Path(users) / "ttsweb" / "native"
    return [own] if cache_dir is None else [own, cache_dir / "native"]


def main(names: Sequence[str]) -> int:
    """Compile the classes named, or all, to be brought along: for an image that has no compiler."""
    if platform.machine() != "x86_64":  # an image for another one is whole without it
        sys.stdout.write(f"No frames are compiled for {platform.machine()}; PyTorch makes them.\n")
        return 0
    compiler = find_compiler()
    if compiler is None:
        sys.stderr.write("There is no C compiler; install gcc.\n")
        return 1
    for target in TARGETS:
        if not names or target.name in names:
            sys.stdout.write(f"{compile_into(BUILT, target, compiler)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
