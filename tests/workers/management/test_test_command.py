"""`manage.py test` is pytest, with every argument passed on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import get_commands

from ttsweb.commands.errors import CommandError
from workers.management.commands import test as command

PROJECT = Path(__file__).resolve().parents[3]


def test_command_replaces_the_one_that_django_brings() -> None:
    assert get_commands()["test"] == "workers"


def test_arguments_reach_pytest_unread_and_its_exit_code_comes_back(
    tmp_path: Path, clean_env: dict[str, str]
) -> None:
    (tmp_path / "test_one.py").write_text("def test_fails():\n    raise SystemError\n")
    options = ["-p", "no:cacheprovider", "-q", "--tb=no", "--help-is-no-option"]

    unknown = _manage(clean_env, "test", *options, tmp_path)
    failed = _manage(clean_env, "test", *options[:-1], tmp_path)

    assert unknown.returncode == 4
    assert "unrecognized arguments: --help-is-no-option" in unknown.stderr
    assert failed.returncode == 1
    assert "1 failed" in failed.stdout


def test_missing_pytest_is_an_error_that_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(CommandError, match=r"run \./tts test"):
        command.run_pytest([])


@pytest.mark.parametrize(
    ("arguments", "shares"),
    [
        ([], True),
        (["-x", "--durations=15"], True),
        (["tests/api"], False),
        (["-k", "voice"], False),
        (["-n0"], False),
        (["--numprocesses=3"], False),
        (["--pdb"], False),
    ],
)
def test_run_of_everything_takes_a_process_for_each_core(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], shares: bool
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("os.chdir", lambda folder: None)
    monkeypatch.setattr("os.execv", lambda program, command: started.append(command))

    command.run_pytest(arguments)

    assert started[0][3:] == [*(command.PROCESSES if shares else []), *arguments]


def _manage(env: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run manage.py from another folder."""
    return subprocess.run(
        [sys.executable, str(PROJECT / "manage.py"), *map(str, arguments)],
        cwd="/",
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
