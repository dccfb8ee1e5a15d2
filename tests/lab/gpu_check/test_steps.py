"""Steps run one after the other: what is done stays, what fails stops nothing else."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from lab.gpu_check import steps as steps_module
from lab.gpu_check.records import BEGUN, DONE, FAILED, MISMATCH, NOT_MEASURED, Records
from lab.gpu_check.steps import DEVICE_LOST, Context, Found, NotMeasuredError, Part, Step, watch

FACTS = {"device": "cpu", "preset": "tiny", "commit": "abc"}


class Steps:
    """Make steps that note when they run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def step(self, name: str, *, fails: Exception | None = None, wrong: str = "") -> Step:
        def run(context: Context) -> Found:
            self.ran.append(name)
            if fails is not None:
                raise fails
            return Found(
                rows=[{"n": 1}],
                columns=("n",),
                figures={"x": 2.0},
                mismatches=[wrong] * bool(wrong),
            )

        return Step(name, 10, run)


@pytest.fixture
def made() -> Steps:
    return Steps()


def _context(tmp_path: Path, device: str = "cpu") -> Context:
    return Context(torch.device(device), "tiny", tmp_path, tmp_path, lambda line: None)


def _run(
    tmp_path: Path,
    steps: Sequence[Step],
    run: str = "first",
    *,
    seconds: float = 100,
    again: bool = False,
    facts: dict[str, str] = FACTS,
    device: str = "cpu",
) -> Records:
    records = Records(tmp_path / "out")
    part = Part("speed", steps, records, run, time.monotonic() + seconds, facts, again=again)
    assert part.run(_context(tmp_path, device)) == 0
    return records


def _status(records: Records, step: str) -> str | None:
    record = records.read("speed", step)
    return None if record is None else str(record["status"])


def test_a_step_that_raises_is_kept_with_its_error_and_the_next_goes_on(
    tmp_path: Path, made: Steps
) -> None:
    steps = [
        made.step("bad", fails=ValueError("no such thing\nmore")),
        made.step("absent", fails=NotMeasuredError("no GPU here")),
        made.step("unequal", wrong="frame 3 differs"),
        made.step("good"),
    ]

    records = _run(tmp_path, steps)

    assert made.ran == ["bad", "absent", "unequal", "good"]
    bad, absent = records.read("speed", "bad"), records.read("speed", "absent")
    assert bad is not None
    assert (bad["status"], bad["reason"]) == (FAILED, "ValueError: no such thing")
    assert "test_steps.py" in bad["traceback"]
    assert absent is not None
    assert (absent["status"], absent["reason"]) == (NOT_MEASURED, "no GPU here")
    assert _status(records, "unequal") == MISMATCH
    good = records.read("speed", "good")
    assert good is not None
    assert (good["status"], good["figures"], good["device"]) == (DONE, {"x": 2.0}, "cpu")


def test_another_run_leaves_what_is_done_and_tries_the_rest_again(
    tmp_path: Path, made: Steps
) -> None:
    steps = [made.step("good"), made.step("bad", fails=ValueError("x"))]
    _run(tmp_path, steps)
    _run(tmp_path, steps, "second")
    assert made.ran == ["good", "bad", "bad"]


@pytest.mark.parametrize("changed", ["device", "preset", "commit"])
def test_what_was_found_elsewhere_is_found_again(tmp_path: Path, made: Steps, changed: str) -> None:
    _run(tmp_path, [made.step("good")])
    _run(tmp_path, [made.step("good")], "second", facts={**FACTS, changed: "other"})
    assert made.ran == ["good", "good"]


def test_again_means_also_what_is_done(tmp_path: Path, made: Steps) -> None:
    _run(tmp_path, [made.step("good")])
    _run(tmp_path, [made.step("good")], "second", again=True)
    assert made.ran == ["good", "good"]


def test_within_a_run_no_step_is_begun_twice(tmp_path: Path, made: Steps) -> None:
    steps = [made.step("bad", fails=ValueError("x")), made.step("good")]
    _run(tmp_path, steps)
    _run(tmp_path, steps, again=True)  # the run goes on in another process
    assert made.ran == ["bad", "good"]


def test_a_step_that_was_cut_off_goes_last(tmp_path: Path, made: Steps) -> None:
    Records(tmp_path / "out").write(
        {"part": "speed", "step": "slow", "run": "before", "status": BEGUN}
    )
    _run(tmp_path, [made.step("slow"), made.step("one"), made.step("two")])
    assert made.ran == ["one", "two", "slow"]


def test_what_does_not_fit_is_left_out_and_says_so(
    tmp_path: Path, made: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_module, "_device_answers", lambda device: True)

    records = _run(tmp_path, [made.step("long")], seconds=4, device="cuda")

    record = records.read("speed", "long")
    assert record is not None
    assert record["status"] == NOT_MEASURED
    assert "would take 10 s" in record["reason"]
    assert made.ran == []
    # On a CPU nobody knows how long it takes: it is begun while there is time at all.
    _run(tmp_path, [made.step("long")], "second", seconds=4)
    assert made.ran == ["long"]


def test_what_was_found_is_not_lost_to_a_run_that_has_no_time_for_it(
    tmp_path: Path, made: Steps
) -> None:
    _run(tmp_path, [made.step("good")])
    records = _run(tmp_path, [made.step("good")], "second", seconds=-1, again=True)
    assert _status(records, "good") == DONE


def test_a_device_that_answers_no_more_ends_the_process(
    tmp_path: Path, made: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_module, "_device_answers", lambda device: False)
    part = Part(
        "speed",
        [made.step("breaks"), made.step("other")],
        Records(tmp_path),
        "run",
        time.monotonic() + 100,
        FACTS,
    )

    assert part.run(_context(tmp_path)) == DEVICE_LOST
    assert made.ran == ["breaks"]


# Plays a worker: begins the first step that this run has no record of, and does what it says.
WORKER = """
import json, os, sys, time
from pathlib import Path
folder, run = Path(sys.argv[1]), sys.argv[2]
def write(step, status, **more):
    record = {"part": "p", "step": step, "run": run, "status": status, **more}
    (folder / f"p.{step}.json").write_text(json.dumps(record))
for step in sys.argv[3].split(","):
    if (folder / f"p.{step}.json").exists():
        continue
    limit = 0.5 if step == "hangs" else 60
    write(step, "begun", ends_by=time.monotonic() + limit)
    if step == "aborts": os.abort()
    if step == "exits": os._exit(3)
    if step == "hangs": time.sleep(60)
    if step == "loses": write(step, "failed", reason="said itself"); os._exit(75)
    write(step, "done")
"""


def _watch(tmp_path: Path, steps: str, worker: str = WORKER) -> tuple[str | None, Records]:
    records = Records(tmp_path)
    command = [sys.executable, "-c", worker, str(tmp_path), "run", steps]
    problem = watch(command, records, run="run", deadline=time.monotonic() + 100)
    return problem, records


def _found(records: Records, step: str) -> tuple[str, str]:
    record = records.read("p", step)
    assert record is not None
    return record["status"], record.get("reason", "")


def test_the_other_steps_run_in_another_process(tmp_path: Path) -> None:
    problem, records = _watch(tmp_path, "one,aborts,exits,loses,two")

    assert problem is None
    assert _found(records, "aborts") == (FAILED, "ended the process with SIGABRT")
    assert _found(records, "exits") == (FAILED, "ended the process with exit code 3")
    assert _found(records, "loses") == (FAILED, "said itself")
    assert [_found(records, step)[0] for step in ("one", "two")] == ["done", "done"]


def test_a_step_that_hangs_is_stopped(tmp_path: Path) -> None:
    problem, records = _watch(tmp_path, "hangs,two")
    assert problem is None
    assert _found(records, "hangs") == (FAILED, "took too long and was stopped")
    assert _found(records, "two")[0] == "done"


def test_a_process_that_begins_nothing_is_not_started_again(tmp_path: Path) -> None:
    problem, _ = _watch(tmp_path, "one", worker="raise SystemExit(4)")
    assert problem == "the process that runs the steps ended the process with exit code 4"
