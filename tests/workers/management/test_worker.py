"""What './tts worker' says when it is ready, why when it never will be, and its probe."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.factories import make_worker
from tests.workers.commands import environment_for
from ttsweb.commands.base import CommandError

PROJECT = Path(__file__).resolve().parents[3]
TINY = PROJECT / "tests" / "data" / "golden" / "tiny-s2"
RUN_AND_LIST_LOADED = """
import atexit, os, sys, django
from django.core.management import execute_from_command_line
django.setup()
leave = os._exit
def report(status):
    names = ("torch", "synth.engine.engine", "ttsweb.urls", "synth.admin", "unfold.admin")
    print("loaded:", *(name for name in names if name in sys.modules), flush=True)
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


def ask_row(environment: dict[str, str]) -> tuple[str, ...] | None:
    """Return state and detail of the worker g1 in its database."""
    path = Path(environment["TTS_DATA_DIR"], "db.sqlite3")
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT state, detail FROM synth_workerstatus WHERE name = 'g1'"
        row: tuple[str, ...] | None = database.execute(query).fetchone()
    return row


def test_worker_of_files_loads_neither_the_engine_nor_the_pages(start: Start) -> None:
    popen = start(code=RUN_AND_LIST_LOADED)
    assert first_line(popen) == "worker c1 ready: role=cpu queues=cpu"
    assert popen.stdout is not None
    while "c1@ttsweb ready" not in popen.stdout.readline():  # the tasks are loaded by then
        assert popen.poll() is None
    popen.send_signal(signal.SIGTERM)
    out, _ = popen.communicate(timeout=180)
    assert popen.returncode == 0, out
    assert out.split()[-1] == "loaded:"


def test_checkpoint_with_a_missing_file_ends_the_worker_with_that_sentence(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    broken = shutil.copytree(TINY, tmp_path / "broken")
    (broken / "codec.pth").unlink()
    popen = start("--name", "g1", TTS_CHECKPOINT=str(broken))
    line = first_line(popen)
    assert popen.wait(180) == 1
    assert line.startswith("worker g1 cannot start: ")
    assert "codec.pth" in line
    state, detail = ask_row(environment) or ("", "")
    assert state == "failed" and "codec.pth" in detail


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
def test_wrong_option_is_told(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command("worker", *arguments, skip_checks=True)


def test_worker_stopped_as_it_loads_ends_at_once(start: Start, environment: dict[str, str]) -> None:
    popen = start("--name", "g1")
    deadline = time.monotonic() + 180
    while ask_row(environment) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    popen.send_signal(signal.SIGINT)
    assert popen.wait(180) == 0
    assert (ask_row(environment) or ())[0] == "stopped"


OURS = f"{socket.gethostname()}-gpu"
NONE = r"No worker with the role gpu .* has reported for 60 s"


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["starting", "warming", "ready", "unloaded", "draining"])
def test_worker_that_was_seen_now_is_alive(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_worker(OURS, state=state)
    call_command("worker_alive", "--role", "gpu")
    assert capsys.readouterr().out == f"{OURS} is {state}\n"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seconds_ago": 90.0}, NONE), ({"role": "cpu"}, NONE), ({"name": "another-gpu"}, NONE),
        ({"state": "failed", "detail": "It lacks a key."}, r"failed\. It lacks a key\."),
    ],
)  # fmt: skip
def test_other_silent_or_failed_worker_does_not_count(fields: dict[str, Any], words: str) -> None:
    make_worker(**{"name": OURS} | fields)
    with pytest.raises(CommandError, match=words):
        call_command("worker_alive", "--role", "gpu")
