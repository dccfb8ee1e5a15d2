"""Of the living processes on a host only one has a name; each counts frames and memory."""

from __future__ import annotations

import datetime as dt
import itertools
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from django.utils import timezone

from synth.models import WorkerStatus
from ttsweb.commands.base import CommandError
from workers.process import run_worker, status
from workers.process.status import (
    SILENT_SECONDS,
    WINDOW_SECONDS,
    FrameRate,
    NameTakenError,
    Run,
    find_namesake,
    held_if_ended,
    is_name_free,
    lock_name,
    resident_bytes,
    write_row,
)

PROJECT = Path(__file__).resolve().parents[3]
HOLD = (
    "import sys, time, django; from pathlib import Path; django.setup(); "
    "from workers.process.status import lock_name; "
    "lock = lock_name(Path(sys.argv[1]), 'w', is_fixed=True); "
    "print('held', flush=True); time.sleep(60)"
)


@pytest.fixture(autouse=True)
def one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for whoever frees what an ended process held."""
    monkeypatch.setattr(status, "TRIES", 2)


def test_second_process_gets_the_next_name(tmp_path: Path) -> None:
    first = lock_name(tmp_path, "host-gpu", is_fixed=False)
    second = lock_name(tmp_path, "host-gpu", is_fixed=False)
    first.release()
    third = lock_name(tmp_path, "host-gpu", is_fixed=False)

    assert (first.name, second.name, third.name) == ("host-gpu", "host-gpu-2", "host-gpu")


def test_name_that_was_given_is_never_changed(tmp_path: Path) -> None:
    lock_name(tmp_path, "gpu-1", is_fixed=True)

    with pytest.raises(NameTakenError, match="gpu-1"):
        lock_name(tmp_path, "gpu-1", is_fixed=True)


def test_killed_process_gives_its_name_up(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], cwd=PROJECT, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(NameTakenError):
            lock_name(tmp_path, "w", is_fixed=True)
        holder.kill()
        holder.wait()
        time.sleep(0.05)

        assert lock_name(tmp_path, "w", is_fixed=True).name == "w"


@pytest.mark.parametrize("name", ["", "a/b", "a b", "../up", "x" * 101])
def test_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NameTakenError, match="is not a valid name"):
        lock_name(tmp_path, name, is_fixed=True)


def test_name_of_an_ended_process_is_known_by_the_run_that_it_noted(tmp_path: Path) -> None:
    lock = lock_name(tmp_path, "w1", is_fixed=True)
    with held_if_ended(tmp_path, "w1", "") as is_ended:
        assert not is_ended
    lock.note()
    run = lock.run.own
    with held_if_ended(tmp_path, "w1", run) as is_ended:
        assert not is_ended, "its process is there"

    lock.release()

    with held_if_ended(tmp_path, "w1", "tuesday") as is_ended:
        assert not is_ended, "that run was on another host"
    with held_if_ended(tmp_path, "w2", run) as is_ended:
        assert not is_ended
    with held_if_ended(tmp_path, "w1", run) as is_ended:
        assert is_ended
        with pytest.raises(NameTakenError):
            lock_name(tmp_path, "w1", is_fixed=True)
    again = lock_name(tmp_path, "w1", is_fixed=True)
    assert again.run.previous == run != again.run.own
    again.release()


def write(run: str, *, is_start: bool = False, state: str = "ready") -> None:
    write_row("w", {"run": run, "role": "gpu", "state": state}, is_start=is_start)


@pytest.mark.django_db
def test_name_belongs_to_a_process_that_reports_and_to_who_knows_that_it_has_ended() -> None:
    assert find_namesake("w", Run("b")) == ""
    write("a", is_start=True)

    assert find_namesake("w", Run("b", "c"))
    assert find_namesake("v", Run("b")) == ""
    assert find_namesake("w", Run("a")) == "", "its own row"
    assert find_namesake("w", Run("b", "a")) == "", "its own earlier process"
    silent = timezone.now() - dt.timedelta(seconds=SILENT_SECONDS + 1)
    WorkerStatus.objects.update(last_seen_at=silent)
    assert find_namesake("w", Run("b")) == ""
    write("a", state="stopped")
    assert find_namesake("w", Run("b")) == ""


@pytest.mark.django_db
def test_process_whose_name_another_one_has_taken_reports_no_more() -> None:
    write("a", is_start=True)
    write("b", is_start=True)

    with pytest.raises(NameTakenError, match="another worker named 'w' has begun since"):
        write("a")
    write("b")
    assert WorkerStatus.objects.get().run == "b"
    WorkerStatus.objects.all().delete()
    write("b")
    assert WorkerStatus.objects.get().run == "b"


@pytest.mark.parametrize(
    ("moments", "is_free", "waits"),
    [
        ([""], True, 0),
        (["1", "1", ""], True, 1),
        (["1", "2", "2", ""], True, 1),  # a report that was on its way
        (["1", "2", "2", "3"], False, 1),
    ],
)
def test_a_name_is_free_once_nobody_reports_under_it(
    moments: list[str], is_free: bool, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "LOOK_SECONDS", 0.0)
    announce = Mock()

    assert is_name_free(Mock(side_effect=moments), announce) is is_free
    assert announce.call_count == waits


@pytest.mark.django_db
def test_worker_takes_the_next_name_where_another_host_has_its_own_unless_it_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status, "LOOK_SECONDS", 0.0)
    reports = itertools.count()

    def find(name: str, run: Run) -> str:
        return str(next(reports)) if name == "host-gpu" else ""

    monkeypatch.setattr(run_worker, "find_namesake", find)
    monkeypatch.setattr(run_worker, "default_name", lambda role: f"host-{role}")
    said: list[str] = []

    lock, site = run_worker._take_name({"name": "", "server": ""}, "gpu", said.append)
    assert (lock.name, site) == ("host-gpu-2", None)
    lock.release()
    assert len(said) == 1 and "to see whether it still runs" in said[0]
    with pytest.raises(CommandError, match="'host-gpu' is already running, on another host"):
        run_worker._take_name({"name": "host-gpu", "server": ""}, "gpu", said.append)
    again, _ = run_worker._take_name({"name": "host-gpu-2", "server": ""}, "gpu", said.append)
    assert again.run.previous == lock.run.own
    again.release()


def test_rate_is_that_of_the_last_half_minute_and_of_one_engine() -> None:
    rate = FrameRate()

    assert rate.note(0, now=0.0) == 0.0
    assert rate.note(100, now=10.0) == 10.0
    assert rate.note(100, now=10.0 + WINDOW_SECONDS) == 0.0
    assert rate.note(5, now=61.0) == 0.0  # another engine, which counts from 0
    assert rate.note(15, now=62.0) == 10.0


def test_a_process_holds_some_memory() -> None:
    found = resident_bytes()

    assert found is None or 10_000_000 < found < 10**12
