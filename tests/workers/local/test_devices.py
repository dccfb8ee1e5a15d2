"""One supervisor and a worker for each device: named, started again, stopped together."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from synth.models import WorkerStatus
from tests.workers import commands
from tests.workers.commands import PATIENCE_SECONDS, child_pid, children_of
from tests.workers.conftest import TINY
from tests.workers.pairs import (
    Pair,
    assert_whole,
    new_voice,
    submit,
    wait_encoded,
    wait_ended,
    wait_for,
)
from ttsweb.commands.base import UsageError
from workers.local.children import choose_devices, name_workers

State = WorkerStatus.State
CARDS = ["cuda:0", "cuda:1", "cuda:2"]
Supervise = Callable[..., subprocess.Popen[str]]
files_alone = pytest.mark.parametrize("pair", ["files"], indirect=True)


@pytest.mark.parametrize(
    ("given", "present", "chosen"),
    [
        ("all", CARDS, CARDS),
        ("all", [], ["cpu"]),
        ("cuda:2, cuda:0", CARDS, ["cuda:2", "cuda:0"]),
        ("cuda:1,cpu", CARDS, ["cuda:1", "cpu"]),
        ("cpu,cpu", [], ["cpu", "cpu"]),
    ],
)
def test_devices_are_those_that_are_named_and_here(
    given: str, present: list[str], chosen: list[str]
) -> None:
    assert choose_devices(given, present) == chosen


@pytest.mark.parametrize(
    ("given", "present", "words"),
    [
        ("cuda:3", CARDS, "there is no device 'cuda:3'; here are cuda:0, cuda:1, cuda:2, cpu"),
        ("cuda:0", [], "there is no device 'cuda:0'; here is the cpu alone"),
        ("cuda:0,", CARDS, "there is no device ''"),
        ("", CARDS, "there is no device ''"),
        ("cuda:1,cuda:1", CARDS, "cuda:1 is named 2 times"),
        ("all,cpu", CARDS, "there is no device 'all'"),
    ],
)
def test_devices_that_are_not_here_are_refused_with_those_that_are(
    given: str, present: list[str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        choose_devices(given, present)


def test_name_of_a_worker_follows_from_its_device_alone() -> None:
    names = name_workers("host-gpu", ["cuda:2", "cpu", "cpu"])
    assert names == ["host-gpu-cuda2", "host-gpu-cpu", "host-gpu-cpu-2"]


@pytest.fixture
def supervise(pair: Pair) -> Iterator[Supervise]:
    """Start `worker --devices`; whatever is left of it ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **env: str) -> subprocess.Popen[str]:
        started.append(commands.start(pair.environment | env, "worker", *arguments))
        return started[-1]

    yield start
    for popen in started:
        popen.terminate()
        popen.communicate(timeout=PATIENCE_SECONDS)
        assert children_of(popen.pid) == []


def wait_ready(name: str, *, not_as: dt.datetime | None = None) -> WorkerStatus:
    """Return the row of a worker that is ready, of another start than one."""
    rows = WorkerStatus.objects.filter(pk=name, state=State.READY)
    if not_as is not None:
        rows = rows.exclude(started_at=not_as)
    found: WorkerStatus = wait_for(rows.first, what=f"{name} is ready")
    return found


@files_alone
def test_died_worker_comes_back_under_its_name_and_all_drain_together(
    pair: Pair, supervise: Supervise
) -> None:
    names = ["host-cpu", "host-cpu-2"]
    popen = supervise("--role", "all", "--name", "host", "--devices", "cpu,cpu")
    first = {name: wait_ready(name) for name in names}
    assert {row.device for row in first.values()} == {"cpu"}
    voice = new_voice()
    wait_encoded(voice)

    os.kill(child_pid(popen.pid, "--name host-cpu-2"), signal.SIGKILL)
    job = submit(voice, sentences=6)
    wait_ended(job)
    assert_whole(job)
    wait_ready("host-cpu-2", not_as=first["host-cpu-2"].started_at)
    assert wait_ready("host-cpu").started_at == first["host-cpu"].started_at

    popen.send_signal(signal.SIGTERM)
    output, errors = popen.communicate(timeout=PATIENCE_SECONDS)
    assert popen.returncode == 0, errors
    assert [line.split(" started: ")[0] for line in output.splitlines()] == [
        f"worker {name}" for name in names
    ]
    assert "worker host-cpu-2 ended: exit=-9, starting it again" in errors
    states = WorkerStatus.objects.filter(pk__in=names).values_list("state", flat=True)
    assert set(states) == {State.STOPPED}


@files_alone
def test_workers_that_cannot_start_end_their_supervisor_which_says_each(
    pair: Pair, supervise: Supervise
) -> None:
    broken = shutil.copytree(TINY, pair.data_dir / "broken")
    (broken / "codec.pth").unlink()

    popen = supervise("--name", "host", "--devices", "cpu,cpu", TTS_CHECKPOINT=str(broken))

    _, errors = popen.communicate(timeout=PATIENCE_SECONDS)
    assert popen.returncode == 1
    assert "worker host-cpu cannot start: " in errors and "codec.pth" in errors
    last = errors.strip().splitlines()[-1]
    for name in ("host-cpu", "host-cpu-2"):
        assert f"worker {name} on cpu ended with exit code 1" in last


@files_alone
def test_all_is_the_cpu_where_nothing_else_is_and_says_so(supervise: Supervise) -> None:
    popen = supervise("--name", "host", "--devices", "all", CUDA_VISIBLE_DEVICES="")

    assert popen.stdout is not None
    assert popen.stdout.readline() == "No CUDA device is here: one worker runs on the CPU.\n"
    assert popen.stdout.readline().startswith("worker host-cpu started: device=cpu pid=")
    popen.send_signal(signal.SIGTERM)
    assert popen.wait(PATIENCE_SECONDS) == 0


@files_alone
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--devices", "cuda:77"), "there is no device 'cuda:77'; here "),
        (("--role", "cpu", "--devices", "all"), "a worker of the role cpu uses no device"),
    ],
)
def test_wrong_use_ends_before_anything_starts(
    supervise: Supervise, arguments: tuple[str, ...], words: str
) -> None:
    popen = supervise(*arguments)

    output, errors = popen.communicate(timeout=PATIENCE_SECONDS)
    assert (popen.returncode, output) == (2, "")
    assert words in errors
