"""`./tts worker` says when it is ready, and why when it never will be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workers.commands import environment_for

PROJECT = Path(__file__).resolve().parents[3]
TINY = PROJECT / "tests" / "data" / "golden" / "tiny-s2"
RUN_AND_LIST_TORCH = """
import atexit, os, sys, django
from django.core.management import execute_from_command_line
django.setup()
leave = os._exit
def report(status):
    print("torch" in sys.modules, "safetensors" in sys.modules, flush=True)
    leave(status)
os._exit = report
execute_from_command_line(["manage.py", "worker", "--role", "cpu", "--name", "c1"])
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a migrated database, of which each test gets a copy."""
    folder = tmp_path_factory.mktemp("migrated")
    migrate = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
    subprocess.run(migrate, cwd=PROJECT, env=environment_for(folder), check=True)
    return folder / "data"


@pytest.fixture
def environment(clean_env: dict[str, str], migrated: Path) -> dict[str, str]:
    """A migrated data folder of its own, and the tiny checkpoint."""
    shutil.copytree(migrated, clean_env["TTS_DATA_DIR"])
    return clean_env | {"TTS_CHECKPOINT": str(TINY)}


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Start a worker, or other code in its environment; all are ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, code: str = "", **env: str) -> subprocess.Popen[str]:
        command = ["-c", code] if code else ["manage.py", "worker", *arguments]
        popen = subprocess.Popen(
            [sys.executable, *command],
            cwd=PROJECT,
            env=environment | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if code else subprocess.PIPE,
            text=True,
        )
        started.append(popen)
        return popen

    yield run
    for popen in started:
        popen.kill()
        popen.communicate()


def first_line(popen: subprocess.Popen[str]) -> str:
    assert popen.stdout is not None
    return popen.stdout.readline().strip()


def ask_rows(environment: dict[str, str], query: str) -> str:
    """Return what an expression over WorkerStatus gives in the worker's database."""
    code = f"import django; django.setup(); from synth.models import WorkerStatus; print({query})"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def test_worker_of_files_never_loads_the_engine(start: Start) -> None:
    popen = start(code=RUN_AND_LIST_TORCH)
    assert first_line(popen) == "worker c1 ready: role=cpu queues=cpu"
    assert popen.stdout is not None
    while "c1@ttsweb ready" not in popen.stdout.readline():  # the tasks are loaded by then
        assert popen.poll() is None

    popen.send_signal(signal.SIGTERM)
    out, _ = popen.communicate(timeout=180)

    assert popen.returncode == 0, out
    assert out.split()[-2:] == ["False", "False"]


def test_checkpoint_with_a_missing_file_ends_the_worker_with_that_sentence(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(TINY, broken)
    (broken / "codec.pth").unlink()

    popen = start("--name", "g1", TTS_CHECKPOINT=str(broken))
    line = first_line(popen)

    assert popen.wait(180) == 1
    assert line.startswith("worker g1 cannot start: ")
    assert "codec.pth" in line
    row = ask_rows(environment, "*WorkerStatus.objects.values_list('state', 'detail').get(pk='g1')")
    assert row.startswith("failed ") and "codec.pth" in row


def test_second_worker_of_a_name_is_refused_and_without_one_gets_the_next(start: Start) -> None:
    first = start("--role", "cpu", "--name", "same")
    assert "worker same ready" in first_line(first)
    again = start("--role", "cpu", "--name", "same")
    _, message = again.communicate(timeout=60)
    assert again.returncode == 1
    assert "a worker named 'same' is already running" in message

    host = os.uname().nodename.split(".")[0]
    names = [first_line(start("--role", "cpu")).split()[1] for _ in range(2)]
    assert names == [f"{host}-cpu", f"{host}-cpu-2"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--role", "cpu", "--queues", "synth"), "does not serve synth"),
        (("--concurrency", "0"), "at least 1"),
        (("--name", "a/b"), "is not a valid name of a worker"),
    ],
)
def test_wrong_option_is_refused_with_a_sentence(
    start: Start, arguments: tuple[str, ...], sentence: str
) -> None:
    popen = start(*arguments)
    _, message = popen.communicate(timeout=60)
    assert popen.returncode == 1
    assert sentence in message


def test_worker_stopped_while_it_loads_ends_at_once(
    start: Start, environment: dict[str, str]
) -> None:
    popen = start("--name", "g1")
    deadline = time.monotonic() + 180
    while ask_rows(environment, "WorkerStatus.objects.filter(pk='g1').exists()") != "True":
        assert time.monotonic() < deadline
    popen.send_signal(signal.SIGINT)
    assert popen.wait(180) == 0
    assert ask_rows(environment, "WorkerStatus.objects.get(pk='g1').state") == "stopped"
