"""The check on a machine with a CPU, torch and nothing else of the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
ABSENT = ("tokenizers", "soundfile", "av", "django", "celery", "torchaudio", "triton")
BLOCK = f"import sys\nfor name in {ABSENT!r}:\n    sys.modules[name] = None\n"


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the check without the libraries, from another folder than the project's."""
    (folder / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO")}
    path = os.pathsep.join((str(folder), str(PROJECT)))
    return subprocess.run(
        [sys.executable, "-m", "lab.gpu_check", *arguments],
        env=env | {"PYTHONPATH": path, "OUT": str(folder / "out")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def _steps(folder: Path) -> dict[str, dict[str, object]]:
    found = [
        json.loads(path.read_text(encoding="utf-8")) for path in (folder / "out").glob("*.json")
    ]
    return {record["step"]: record for record in found}


def test_steps_run_without_the_libraries_and_are_not_run_again(tmp_path: Path) -> None:
    only = ("--device", "cpu", "--part", "parity", "--only", "kernels-float32,forced,golden-plain")

    first = _run(tmp_path, *only)

    assert first.returncode == 0, first.stdout + first.stderr
    steps = _steps(tmp_path)
    assert steps["kernels-float32"]["status"] == "not measured"
    assert steps["forced"]["status"] == steps["golden-plain"]["status"] == "done"
    assert "a compiled kernel needs a GPU" in first.stdout
    assert "not measured: speed ar has not run here" in first.stdout

    second = _run(tmp_path, *only)

    assert second.returncode == 0
    assert _steps(tmp_path)["forced"] == steps["forced"]
    assert "golden-plain" not in second.stderr


@pytest.mark.thorough
def test_an_engine_renders_without_the_libraries(tmp_path: Path) -> None:
    done = _run(tmp_path, "--device", "cpu", "--part", "serving", "--only", "segments,cold")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = _steps(tmp_path)
    assert steps["segments"]["status"] == "done"
    assert "tokenizers" in str(steps["cold"]["reason"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--part is needed"),
        (("--part", "parity", "--only", "none", "--device", "cpu"), "has no step none"),
        (("--part", "speed", "--device", "cuda:9"), "sees 0 CUDA devices"),
    ],
)
def test_what_cannot_be_done_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = _run(tmp_path, *arguments)
    assert done.returncode != 0
    assert sentence in done.stderr


def test_all_steps_are_listed(tmp_path: Path) -> None:
    done = _run(tmp_path, "--list")
    assert done.returncode == 0
    for step in ("kernels-bfloat16", "graphs", "strict", "forced", "memory", "segments", "cold"):
        assert f" {step} " in done.stdout
