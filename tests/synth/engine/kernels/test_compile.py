"""Kernels compile for an H100 or H200: the interpreter accepts what the compiler refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[4]


_MOST_STACK = 32  # bytes, which a sine takes; more is registers that were spilled


@pytest.mark.thorough
def test_kernels_compile_at_the_full_models_shapes_without_spilling(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = {key: os.environ[key] for key in os.environ if key != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}

    run = subprocess.run(
        [sys.executable, "-m", "tests.synth.engine.kernels.compile_cases"],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    stacks = {line: int(line.split(" B stack")[0].split()[-1]) for line in run.stdout.splitlines()}
    assert len(stacks) > 10
    assert [line for line, stack in stacks.items() if stack > _MOST_STACK] == []
