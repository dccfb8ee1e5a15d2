"""`manage.py test` is pytest, with every argument passed on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import get_commands

from tests.conftest import pytest_collection_modifyitems
from ttsweb.commands.base import CommandError
from workers.management.commands import test as command

PROJECT = Path(__file__).resolve().parents[3]
_MARKED = """
import pytest

def test_quick():
    pass

@pytest.mark.thorough
@pytest.mark.parametrize("number", [1, 2])
def test_thorough(number):
    pass

@pytest.mark.postgres
def test_with_postgres():
    pass
"""


def test_command_replaces_the_one_that_django_brings() -> None:
    assert get_commands()["test"] == "workers"


def test_arguments_reach_pytest_and_its_code_back(
    tmp_path: Path, clean_env: dict[str, str]
) -> None:
    (tmp_path / "test_one.py").write_text(
        "def test_fails():\n    raise SystemError\n\n"
        "def test_settings(settings):\n    assert 'MD5' in settings.PASSWORD_HASHERS[0]\n"
    )
    options = ["-p", "no:cacheprovider", "-q", "--tb=no", "--help-is-no-option"]
    unknown = _manage(clean_env, "test", *options, tmp_path)
    failed = _manage(clean_env, "test", *options[:-1], tmp_path)
    assert unknown.returncode == 4
    assert "unrecognized arguments: --help-is-no-option" in unknown.stderr
    assert failed.returncode == 1
    assert "1 failed, 1 passed" in failed.stdout, "tests have settings of their own"


def test_missing_pytest_is_an_error_that_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CommandError, match=r"run \./tts test"):
        command.run_pytest([])


@pytest.mark.parametrize(
    ("arguments", "shares", "selects"),
    [
        ([], True, True), (["-x", "--durations=15"], True, True), (["--all"], True, False),
        (["tests/api"], False, False), (["--all", "tests/api"], False, False),
        (["-k", "voice"], False, False), (["-n0"], False, True), (["-n", "2"], False, True),
        (["-n", "2", "tests/api"], False, False), (["--numprocesses=3", "--all"], False, False),
        (["--pdb"], False, True),
    ],
)  # fmt: skip
def test_run_that_names_no_tests_takes_the_quick_ones_in_a_process_for_each_core(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], shares: bool, selects: bool
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("os.chdir", lambda folder: None)
    monkeypatch.setattr("os.execv", lambda program, command: started.append(command))
    command.run_pytest(arguments)
    own = [*(command.PROCESSES if shares else ()), *(command.SELECTION if selects else ())]
    given = [one for one in arguments if one != "--all"]
    assert started[0][3:] == [command.SETTINGS, *own, *given]


@pytest.mark.parametrize("processes", [pytest.param("-n0", marks=pytest.mark.thorough), "-n2"])
def test_summary_tells_what_is_left(
    tmp_path: Path, clean_env: dict[str, str], processes: str
) -> None:
    (tmp_path / "test_some.py").write_text(_MARKED)
    options = [processes, "-p", "no:cacheprovider", "-p", "tests.conftest", *command.SELECTION]
    ended = _manage(clean_env, "test", *options, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 tests: 2 thorough, 1 postgres" in ended.stdout
    assert "1 passed" in ended.stdout


def test_processes_begin_with_the_files_of_long_tests() -> None:
    marks = {"a": "", "browser": "browser", "many": "", "z": "", "long": "thorough"}
    files = [name for name in marks for _ in range({"many": 9, "long": 2}.get(name, 1))]
    items: list[Any] = [
        SimpleNamespace(path=Path(name), nodeid=number, get_closest_marker=marks[name].__eq__)
        for number, name in enumerate(files)
    ]
    config: Any = SimpleNamespace(workerinput={})
    pytest_collection_modifyitems(config, items)
    names = [item.path.name for item in items]
    assert list(dict.fromkeys(names)) == ["long", "browser", "many", "a", "z"]
    assert "--no-loadscope-reorder" in command.PROCESSES, "or xdist has an order of its own"


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
