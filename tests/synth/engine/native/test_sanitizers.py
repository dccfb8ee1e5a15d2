"""Run the compiled code under sanitizers: no access out of bounds, nothing undefined."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[4]
_KINDS = "-fsanitize=address,undefined"
_TESTS = ("test_frame.py", "test_columns.py", "test_window.py")  # frames, codec, attention


def find_library(gcc: str, name: str) -> str:
    """Return the path of one of gcc's libraries, or only its name where there is none."""
    command = [gcc, f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.thorough
@pytest.mark.compiler
def test_compiled_code_runs_under_sanitizers(tmp_path: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed, whose sanitizers are used")
    # The second one so that the first finds what throws exceptions, which PyTorch loads later.
    libraries = [find_library(gcc, name) for name in ("libasan.so", "libstdc++.so")]
    if not all(Path(library).is_absolute() for library in libraries):
        pytest.skip("this gcc has no sanitizers")
    compiler = tmp_path / "cc"
    options = f"{_KINDS} -fno-sanitize-recover=undefined -O1"  # the last -O counts
    compiler.write_text(f'#!/bin/sh\nexec {gcc} "$@" {options}\n', encoding="ascii")
    compiler.chmod(0o755)
    folder = Path(__file__).parent
    arguments = [
        "-q",
        "-x",
        "--capture=no",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'inner'}",
    ]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *(str(folder / name) for name in _TESTS)],
        env=os.environ
        | {
            "CC": str(compiler),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "LD_PRELOAD": " ".join(libraries),
            # Python and PyTorch leave memory to the process's end, and exchange the allocators.
            "ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, (run.stdout + run.stderr)[-4000:]
    assert list((tmp_path / "cache").rglob("frame-*.so")), "nothing was compiled for this run"
