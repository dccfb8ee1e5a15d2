"""`./tts torture` on real installations: nothing is lost under any fault, and defects are found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lab.servers import why_no_postgres
from lab.torture.command import DEFECTS
from lab.torture.faults import NAMES
from tests.sources import PROJECT
from tests.workers.commands import children_of

PATIENCE_SECONDS = 700  # of a machine that runs everything at once
SOON_MINUTES = "0.4"
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a disk is mounted by root alone")


def run(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the JSON object and what was said beside it."""
    command = [sys.executable, "manage.py", "torture", "--json", *arguments]
    ended = subprocess.run(
        command,
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout)
    assert "error" not in found, found
    return ended.returncode, found, ended.stderr


def assert_unharmed(code: int, found: dict[str, Any], names: set[str]) -> None:
    """Hold a run's rows to what the service promises, and to having seen something."""
    rows = {row["fault"]: row for row in found["rows"]}
    tried = {name for name, row in rows.items() if row["not_run"] is None}
    assert (code, found["problems"]) == (0, [])
    assert tried == names
    for name in tried:
        row = rows[name]
        assert (row["lost"], row["twice"], row["corrupt"]) == (0, 0, 0)
        assert row["recovery_seconds"] is not None, f"nothing ended after {name}"
    assert found["accepted"] > 0 and found["checked_files"] > 0 and found["renders"] > 0


def left_behind(folder: Path) -> list[str]:
    """Return what an installation left of folders and mounts below the one for temporary files."""
    mounts = Path("/proc/mounts").read_text() if Path("/proc/mounts").exists() else ""
    # Kombu moves a message that it takes into this folder and then removes it: a kill between the
    # two leaves the file, which nothing reads.
    found = [str(path) for path in folder.iterdir() if path.suffix != ".msg"]
    return found + [line for line in mounts.splitlines() if str(folder) in line]


@pytest.fixture
def temporary(clean_env: dict[str, str], tmp_path: Path) -> Path:
    """The folder in which the command makes all that it needs."""
    clean_env["TMPDIR"] = str(folder := tmp_path / "temporary")
    folder.mkdir()
    return folder


@pytest.mark.thorough
def test_faults_lose_nothing_on_one_disk(
    clean_env: dict[str, str], temporary: Path, tmp_path: Path
) -> None:
    names = {
        "kill -9", "suspended", "messages lost", "messages thrice", "clock jump", "engine hangs",
        "out of memory", "poison",
    }  # fmt: skip
    plot = tmp_path / "plot.svg"

    code, found, _ = run(
        clean_env, "--minutes", "1", "--faults", ", ".join(names), "--plot", str(plot)
    )

    assert_unharmed(code, found, names)
    assert left_behind(temporary) == []
    assert {"kill -9", "poison"} <= set(plot.read_text().replace("<", ">").split(">"))


@NEEDS_ROOT
@pytest.mark.thorough
def test_full_disk_loses_nothing(clean_env: dict[str, str]) -> None:
    code, found, _ = run(clean_env, "--minutes", SOON_MINUTES, "--faults", "disk full")
    assert_unharmed(code, found, {"disk full"})


@pytest.mark.redis
@pytest.mark.thorough
@pytest.mark.skipif(why_no_postgres() is not None, reason=why_no_postgres() or "")
def test_servers_that_go_away_lose_nothing(clean_env: dict[str, str]) -> None:
    names = {"broker killed", "broker away", "database stopped", "partition", "clock jump"}
    services = ("--redis", "--postgres")
    code, found, _ = run(clean_env, "--minutes", "0.8", *services, "--faults", ",".join(names))
    assert_unharmed(code, found, names)
    assert (found["database"], found["broker"]) == ("postgresql", "redis")


@pytest.mark.thorough
def test_each_planted_defect_is_found_and_named(clean_env: dict[str, str]) -> None:
    code, found, errors = run(
        clean_env, "--minutes", "0.2", "--faults", "none", "--plant", ",".join(DEFECTS)
    )

    said = " ".join(problem["problem"] for problem in found["problems"])
    assert code == 1
    assert "CommandError: Not all is well: none: job" in errors
    assert (found["lost"], found["twice"] > 0, found["corrupt"]) == (2, True, 2)
    assert "has no row any more" in said
    assert "does not end" in said
    assert "is not the join of its takes" in said
    assert "are not those that the row names" in said
    assert "segments done and failed, and has" in said


@pytest.mark.thorough
def test_interrupt_ends_all_that_was_started(clean_env: dict[str, str], temporary: Path) -> None:
    command = [sys.executable, "manage.py", "torture", "--minutes", "5"]
    with subprocess.Popen(command, cwd=PROJECT, env=clean_env, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + PATIENCE_SECONDS
        while len(children_of(process.pid)) < 3 and time.monotonic() < until:
            time.sleep(0.2)
        started = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert len(started) == 3, "web and two workers"
    assert (process.returncode, children_of(process.pid)) == (130, [])
    assert b"what was started is gone" in errors
    assert left_behind(temporary) == []


@pytest.mark.thorough
def test_soak_with_restarts_renders_all_of_it(clean_env: dict[str, str]) -> None:
    code, found, errors = run(clean_env, "--soak", "600", "--restarts", "2")
    assert (found["lost"], found["twice"], found["corrupt"]) == (0, 0, 0)
    assert (found["segments"], found["restarts"], found["accepted"]) == (600, 2, 30)
    assert {row["process"] for row in found["rows"]} == {"web", "w1"}
    assert all(row["memory_mib"] > 0 and row["threads"] > 0 for row in found["rows"])
    # What grows shows in a run of some length; here it only has to be said.
    assert (code == 0) == (found["problems"] == []), errors


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--minutes", "0"), "expected minutes, more than 0"),
        (("--minutes", "soon"), "expected minutes, more than 0"),
        (("--soak", "5"), "expected a whole number from 100"),
        (("--soak", "100", "--minutes", "3"), "not allowed with argument"),
        (("--restarts", "3"), "--restarts goes with --soak"),
        (("--soak", "100", "--plot", "a.svg"), "--plot does not go with --soak"),
        (("--faults", "fire"), f"'fire' is none of {', '.join(NAMES)}"),
        (("--plant", "none"), "'none' is none of lost-job"),
        (("--plot", "a.png"), "pictures are SVG files here"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(
    clean_env: dict[str, str], arguments: tuple[str, ...], sentence: str
) -> None:
    command = [sys.executable, "manage.py", "torture", *arguments]
    ended = subprocess.run(command, cwd=PROJECT, env=clean_env, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


def test_missing_server_is_said_before_anything_starts(clean_env: dict[str, str]) -> None:
    environment = clean_env | {"TTS_TEST_REDIS_SERVER": "no-such-program"}
    command = [sys.executable, "manage.py", "torture", "--redis"]
    ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "--redis: no redis-server program was found" in ended.stderr


def test_defects_that_the_command_names_are_those_there_are() -> None:
    from lab.torture.defects import DEFECTS as PLANTED

    assert tuple(PLANTED) == DEFECTS
