"""Generated requests are the same wherever they are drawn, and others with another seed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.workers.commands import PROJECT, environment_for

pytestmark = pytest.mark.thorough

# A test file as test_schema_holds.py is one; it writes down what that would send. Of twenty draws
# one is a constant, where there are any: few requests may have none, the plain draws have some.
_RECORDING = """
import importlib, json, os
import hypothesis
from hypothesis import strategies
for name in os.environ["MODULES"].split():
    importlib.import_module(name)
import pytest
from tests.api.generated import OPERATIONS, send_requests, settings

def record(what, drawn):
    with open(os.environ["DRAWN"], "a") as file:
        file.write(json.dumps([what, drawn]) + chr(10))

@hypothesis.given(strategies.integers(), strategies.text())
@hypothesis.settings(settings, max_examples=200)
@hypothesis.seed(0)
def test_recording_plain_draws(number, text):
    record("plain draws", repr((number, text)))

@pytest.mark.parametrize("label", [name for name in OPERATIONS if " /api/v1/lexicons" in name])
def test_recording(label):
    send_requests(OPERATIONS[label], record_case)

def record_case(case):
    parts = (case.path_parameters, case.query, case.headers, case.cookies, case.body)
    record(case.operation.label, case.method + repr(parts))
"""
# A module as ours are, which nothing else loads: Django loads most of the project in any case. Of
# one with many more constants Hypothesis takes none.
_LOADED = f"NUMBERS = {list(range(1000, 2000, 10))}\nTEXTS = {[f'text {n}' for n in range(100)]}\n"
_LAYOUTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "modules loaded besides": ([], {"MODULES": "loaded"}),
    "two processes": (["--numprocesses=2", "--dist=loadfile"], {}),
    "as in CI": ([], {"CI": "true", "PYTHONHASHSEED": "1"}),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Requests by operation, drawn in a process that loads nothing else."""
    return _draw(tmp_path_factory.mktemp("alone"))[0]


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_the_same_requests_are_drawn(
    layout: str, alone: dict[str, list[str]], tmp_path: Path
) -> None:
    arguments, settings = _LAYOUTS[layout]

    drawn, _ = _draw(tmp_path, arguments, **settings)

    assert len(drawn) >= 9  # operations and plain draws: two tests with one id would be one
    assert drawn.keys() == alone.keys()
    assert [name for name in drawn if drawn[name] != alone[name]] == []


def test_a_random_seed_draws_others_and_the_same_again(
    alone: dict[str, list[str]], tmp_path: Path
) -> None:
    drawn, seed = _draw(tmp_path / "random", TTS_TEST_SEED="random")
    again, _ = _draw(tmp_path / "again", TTS_TEST_SEED=seed)

    assert seed != "0"
    assert any(drawn[name] != alone[name] for name in drawn)
    assert again == drawn


def test_tests_that_share_an_id_are_refused(tmp_path: Path) -> None:
    code = "def test_it():\n    pass\n"

    ended = _run_pytest(tmp_path, code, "--keep-duplicates", str(tmp_path / "test_recording.py"))

    assert ended.returncode == 4, ended.stdout
    assert "several tests have the id" in ended.stderr


def _draw(
    folder: Path, arguments: Sequence[str] = (), **settings: str
) -> tuple[dict[str, list[str]], str]:
    """Return the requests that a process of its own draws, and the seed that it names."""
    folder.mkdir(exist_ok=True)
    drawn = folder / "drawn"
    ended = _run_pytest(folder, _RECORDING, *arguments, DRAWN=str(drawn), **settings)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    found: dict[str, list[str]] = {}
    for line in drawn.read_text().splitlines():
        operation, request = json.loads(line)
        found.setdefault(operation, []).append(re.sub(r"object at 0x[0-9a-f]+", "", request))
    seed = re.search(r"TTS_TEST_SEED=(\d+)", ended.stdout)
    assert seed is not None, ended.stdout
    return found, seed[1]


def _run_pytest(
    folder: Path, code: str, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a file of tests, in a process of its own with our conftest.py."""
    file = folder / "test_recording.py"
    file.write_text(code)
    (folder / "loaded.py").write_text(_LOADED)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-c", str(PROJECT / "pyproject.toml"), *arguments, str(file)]
    environment = environment_for(folder) | {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": os.pathsep.join((str(PROJECT), str(folder))),
        "MODULES": "",
        "TTS_TEST_EXAMPLES": "10",
    }
    return subprocess.run(
        command,
        env=environment | settings,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
