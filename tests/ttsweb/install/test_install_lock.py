"""The lock that keeps two installations apart."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ttsweb.install import install_lock

SCRIPT = Path(install_lock.__file__)
# Writes the times at which it starts and ends.
BUSY = "import sys, time; print(time.time()); time.sleep(0.3); print(time.time())"


def start(lock: Path, *command: str) -> subprocess.Popen[str]:
    """Start `command` under the lock, with nothing but the standard library."""
    return subprocess.Popen(
        [sys.executable, "-ISP", str(SCRIPT), str(lock), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_commands_under_one_lock_never_overlap(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    processes = [start(lock, sys.executable, "-c", BUSY) for _ in range(3)]
    spans = [tuple(map(float, process.communicate()[0].split())) for process in processes]
    spans.sort()
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))


def test_child_of_a_killed_holder_still_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = start(lock, "/bin/sh", "-c", "sleep 0.8 & echo started; wait")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "started\n"
    began = time.monotonic()
    holder.kill()

    err = start(lock, "/bin/sh", "-c", ":").communicate()[1]

    assert time.monotonic() - began > 0.5
    assert "Waiting for another installation" in err
    holder.communicate()


def test_lock_file_that_lies_about_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("12345\n")
    process = start(tmp_path / "lock", "/bin/sh", "-c", "echo done")
    assert process.communicate(timeout=180) == ("done\n", "")


@pytest.mark.parametrize("code", [0, 3])
def test_exit_code_of_the_command_is_passed_on(tmp_path: Path, code: int) -> None:
    process = start(tmp_path / "lock", "/bin/sh", "-c", f"exit {code}")
    assert process.wait(timeout=180) == code
