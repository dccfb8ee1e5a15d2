"""Of the living processes on a host only one has a name; each counts frames and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from workers.process import status
from workers.process.status import (
    WINDOW_SECONDS,
    FrameRate,
    NameTakenError,
    held_if_ended,
    lock_name,
    resident_bytes,
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


def test_name_of_an_ended_process_is_known_by_the_start_that_it_noted(tmp_path: Path) -> None:
    lock = lock_name(tmp_path, "w1", is_fixed=True)
    lock.note("monday")
    with held_if_ended(tmp_path, "w1", "monday") as is_ended:
        assert not is_ended, "its process is there"

    lock.release()

    with held_if_ended(tmp_path, "w1", "tuesday") as is_ended:
        assert not is_ended, "that start was on another host"
    with held_if_ended(tmp_path, "w2", "monday") as is_ended:
        assert not is_ended
    with held_if_ended(tmp_path, "w1", "monday") as is_ended:
        assert is_ended
        with pytest.raises(NameTakenError):
            lock_name(tmp_path, "w1", is_fixed=True)
    lock_name(tmp_path, "w1", is_fixed=True).release()


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
