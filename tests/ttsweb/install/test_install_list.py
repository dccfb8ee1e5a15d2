"""The list of packages that `./tts` hands to pip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ttsweb.install import install_list
from ttsweb.install.install_list import list_requirements

PYPROJECT = """
[project]
dependencies = ["django>=5.2", "torchlike>=1", "celery[redis]>=5.7,<6"]
[project.optional-dependencies]
engine = ["torch>=2.11", "torchaudio", "safetensors; python_version > '3'"]
dev = ["pytest"]
"""


@pytest.fixture
def pyproject(tmp_path: Path) -> Path:
    path = tmp_path / "pyproject.toml"
    path.write_text(PYPROJECT)
    return path


def test_base_list_holds_no_extra(pyproject: Path) -> None:
    assert list_requirements(pyproject, []) == [
        "django>=5.2",
        "torchlike>=1",
        "celery[redis]>=5.7,<6",
    ]


def test_engine_list_leaves_out_pytorch_and_nothing_else(pyproject: Path) -> None:
    extra = list_requirements(pyproject, ["engine", "dev"])[3:]
    assert extra == ["safetensors; python_version > '3'", "pytest"]


def test_unknown_extra_is_an_error(pyproject: Path) -> None:
    with pytest.raises(KeyError):
        list_requirements(pyproject, ["enginee"])


def test_script_needs_the_standard_library_alone(pyproject: Path) -> None:
    script = Path(install_list.__file__)

    printed = subprocess.run(
        [sys.executable, "-ISP", script, pyproject, "dev"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert printed.splitlines()[-1] == "pytest"
