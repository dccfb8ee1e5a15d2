"""Child processes: started, started again, stopped, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from ttsweb.commands.base import signals_held
from workers.local import children
from workers.local.children import Child, last_line, open_log, signals_interrupt, stop_all

PROJECT = Path(__file__).resolve().parents[3]
SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(60)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPER
PARENT = """
import sys, time
import django; django.setup()
from ttsweb.commands.base import signals_held
from workers.local.children import Child
child = Child("sleeper", sys.argv[1]); child.start(); print(child.pid, flush=True); time.sleep(60)
"""


Make = Callable[[str], Child]


@pytest.fixture
def make_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a child that runs the given code; its log is tmp_path/log."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made: list[Child] = []

    def make(code: str) -> Child:
        name = f"child_module_{len(made)}"
        (tmp_path / f"{name}.py").write_text(code)
        child = Child("child", name, log=open_log(tmp_path / "log"))
        made.append(child)
        return child

    yield make
    for child in made:
        if child.pid is not None and child.is_running:
            os.kill(child.pid, signal.SIGKILL)
            child.wait_stopped(time.monotonic() + 5)


def wait_until(condition: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_child_runs_once_and_its_output_goes_to_the_log(make_child: Make, tmp_path: Path) -> None:
    child = make_child(SLEEPER)
    child.start()
    pid = child.pid
    child.restart_if_dead()
    assert child.pid == pid
    wait_until(lambda: last_line(tmp_path / "log") == "up")
    assert child.is_running
    stop_all([child])
    assert child.exit_code == -signal.SIGTERM


def test_child_that_died_is_started_again_after_pauses_that_grow(make_child: Make) -> None:
    child = make_child("raise SystemExit(3)")
    child.start()
    pids, started = {child.pid}, time.monotonic()

    def has_started_thrice() -> bool:
        child.restart_if_dead()
        pids.add(child.pid)
        return len(pids) == 3

    wait_until(has_started_thrice)
    assert time.monotonic() - started >= 3 * children.FIRST_PAUSE_SECONDS


def test_child_that_does_not_stop_is_killed(
    make_child: Make, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DRAIN_SECONDS = 0.3
    monkeypatch.setattr(children, "STOP_MARGIN_SECONDS", 0.2)
    child = make_child(STUBBORN)
    child.start()
    wait_until(lambda: last_line(tmp_path / "log") == "up")
    started = time.monotonic()
    stop_all([child])
    assert child.exit_code == -signal.SIGKILL
    assert time.monotonic() - started >= 0.5


def test_child_ends_when_its_parent_is_killed(tmp_path: Path, clean_env: dict[str, str]) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    environment = clean_env | {"PYTHONPATH": f"{PROJECT}:{tmp_path}"}
    command = [sys.executable, "-c", PARENT, "sleeper"]
    with subprocess.Popen(
        command, env=environment, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        wait_until(lambda: is_alive(child_pid))
        parent.kill()
    wait_until(lambda: not is_alive(child_pid))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_ends_the_block_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert signal.getsignal(number) is before


def test_signal_waits_for_the_end_of_a_block_that_holds_it() -> None:
    before, steps = signal.getsignal(signal.SIGTERM), []
    with pytest.raises(KeyboardInterrupt), signals_interrupt():
        with signals_held():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
            steps.append("done")
        steps.append("never")
    assert steps == ["done"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_log_is_for_this_user_alone_and_a_large_one_is_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a.log"
    open_log(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"x" * 10_000_001)
    open_log(path).close()
    assert path.stat().st_size == 0
    assert path.with_name("a.log.1").stat().st_size == 10_000_001


def test_closed_standard_streams_are_opened_on_nothing(clean_env: dict[str, str]) -> None:
    code = (
        "import os, django; django.setup()\n"
        "from workers.local.children import open_standard_streams\n"
        "os.close(0); open_standard_streams(); assert os.read(0, 1) == b''\n"
        "assert os.open('/dev/null', os.O_RDONLY) > 2"
    )
    subprocess.run([sys.executable, "-c", code], env=clean_env, cwd=PROJECT, check=True)
