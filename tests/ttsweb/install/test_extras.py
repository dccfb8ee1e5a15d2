"""An extra is installed at the pinned versions, and what pip cannot bring is told."""

from __future__ import annotations

import io
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from tests.sources import PROJECT
from ttsweb.commands.base import CommandError
from ttsweb.install import extras
from workers.management.commands.install import Command

EXTRAS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_extras_are_those_of_the_project_and_of_the_command() -> None:
    [(_, options)] = Command.arguments
    assert tuple(extras.EXTRAS) == options["choices"]
    assert set(EXTRAS) - set(extras.EXTRAS) == {"engine", "dev", "bench", "fuzz", "audit"}


@pytest.mark.parametrize("extra", sorted(extras.EXTRAS))
def test_tests_have_each_extra(extra: str) -> None:
    assert set(EXTRAS[extra]) <= set(EXTRAS["dev"])


@pytest.mark.parametrize(
    ("codes", "said"),
    [((0, 0), ""), ((1, 0), "pip could not install wyoming"), ((0, 1), "there is none for this")],
    ids=["installed", "pip failed", "no such package here"],
)
def test_pip_is_asked_with_the_constraints(
    codes: tuple[int, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, codes[len(asked) - 1])

    monkeypatch.setattr(subprocess, "run", run)
    out = io.StringIO()
    command = Command(stdout=out)
    if said:
        with pytest.raises(CommandError, match=said):
            extras.install(command, {"extra": "wyoming"})
    else:
        extras.install(command, {"extra": "wyoming"})
        assert out.getvalue() == f"installed: {EXTRAS['wyoming'][0]}\n"
    pins = [str(PROJECT / name) for name in ("constraints.txt", "constraints.hashes.txt")]
    pip = [sys.executable, "-m", "pip", "install", "-c", pins[0], "-c", pins[1]]
    assert asked[0] == [*pip, *EXTRAS["wyoming"]]
