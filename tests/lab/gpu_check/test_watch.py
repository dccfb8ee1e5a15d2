"""A step that takes its process with it, or never ends, costs that step alone."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from lab.gpu_check.records import FAILED, Records
from lab.gpu_check.watch import watch

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
