"""Steps run one after the other; what a step found outlives its process; the table of figures."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.gpu_check import steps as steps_module
from lab.gpu_check.figures import FIGURES, as_table, figure_rows
from lab.gpu_check.parity import STEPS as PARITY
from lab.gpu_check.records import BEGUN, DONE, FAILED, MISMATCH, NOT_MEASURED, Records
from lab.gpu_check.serving import STEPS as SERVING
from lab.gpu_check.speed import STEPS as SPEED
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


def _run_steps(
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
    return (records.read("speed", step) or {}).get("status")


def test_a_step_that_raises_is_kept_with_its_error_and_the_next_goes_on(
    tmp_path: Path, made: Steps
) -> None:
    steps = [
        made.step("bad", fails=ValueError("no such thing\nmore")),
        made.step("absent", fails=NotMeasuredError("no GPU here")),
        made.step("unequal", wrong="frame 3 differs"),
        made.step("good"),
    ]

    records = _run_steps(tmp_path, steps)

    assert made.ran == ["bad", "absent", "unequal", "good"]
    found = {name: records.read("speed", name) or {} for name in made.ran}
    assert {name: record["status"] for name, record in found.items()} == {
        "bad": FAILED, "absent": NOT_MEASURED, "unequal": MISMATCH, "good": DONE
    }  # fmt: skip
    assert found["bad"]["reason"] == "ValueError: no such thing"
    assert "test_steps.py" in found["bad"]["traceback"]
    assert found["absent"]["reason"] == "no GPU here"
    assert (found["good"]["figures"], found["good"]["device"]) == ({"x": 2.0}, "cpu")


@pytest.mark.parametrize(
    ("run", "options", "ran"),
    [
        ("second", {}, ["good", "bad", "bad"]),  # what is done stays, the rest is tried again
        ("second", {"facts": {**FACTS, "device": "other"}}, ["good", "bad"] * 2),
        ("second", {"facts": {**FACTS, "preset": "other"}}, ["good", "bad"] * 2),
        ("second", {"facts": {**FACTS, "commit": "other"}}, ["good", "bad"] * 2),
        ("second", {"again": True}, ["good", "bad"] * 2),
        ("first", {"again": True}, ["good", "bad"]),  # the run goes on in another process
    ],
)
def test_another_run_takes_the_steps_that_are_not_done_here(
    tmp_path: Path, made: Steps, run: str, options: dict[str, Any], ran: list[str]
) -> None:
    steps = [made.step("good"), made.step("bad", fails=ValueError("x"))]
    _run_steps(tmp_path, steps)
    _run_steps(tmp_path, steps, run, **options)
    assert made.ran == ran


def test_a_step_that_was_cut_off_goes_last(tmp_path: Path, made: Steps) -> None:
    Records(tmp_path / "out").write(
        {"part": "speed", "step": "slow", "run": "before", "status": BEGUN}
    )
    _run_steps(tmp_path, [made.step("slow"), made.step("one"), made.step("two")])
    assert made.ran == ["one", "two", "slow"]


def test_what_does_not_fit_is_left_out_and_says_so(
    tmp_path: Path, made: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_module, "_device_answers", lambda device: True)
    records = _run_steps(tmp_path, [made.step("long")], seconds=4, device="cuda")
    record = records.read("speed", "long") or {}
    assert record["status"] == NOT_MEASURED and "would take 10 s" in record["reason"]
    assert made.ran == []
    # On a CPU nobody knows how long it takes: it is begun while there is time at all.
    _run_steps(tmp_path, [made.step("long")], "second", seconds=4)
    assert made.ran == ["long"]


def test_what_was_found_is_not_lost_to_a_run_that_has_no_time_for_it(
    tmp_path: Path, made: Steps
) -> None:
    _run_steps(tmp_path, [made.step("good")])
    records = _run_steps(tmp_path, [made.step("good")], "second", seconds=-1, again=True)
    assert _status(records, "good") == DONE


def test_a_device_that_answers_no_more_ends_the_process(
    tmp_path: Path, made: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_module, "_device_answers", lambda device: False)
    steps = [made.step("breaks"), made.step("other")]
    part = Part("speed", steps, Records(tmp_path), "run", time.monotonic() + 100, FACTS)
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
    record = records.read("p", step) or {}
    return record["status"], record.get("reason", "")


def test_the_other_steps_run_in_another_process(tmp_path: Path) -> None:
    steps = {
        "one": (DONE, ""),
        "aborts": (FAILED, "ended the process with SIGABRT"),
        "exits": (FAILED, "ended the process with exit code 3"),
        "loses": (FAILED, "said itself"),
        "hangs": (FAILED, "took too long and was stopped"),
        "two": (DONE, ""),
    }
    problem, records = _watch(tmp_path, ",".join(steps))
    assert problem is None
    assert {step: _found(records, step) for step in steps} == steps


def test_a_process_that_begins_nothing_is_not_started_again(tmp_path: Path) -> None:
    problem, _ = _watch(tmp_path, "one", worker="raise SystemExit(4)")
    assert problem == "the process that runs the steps ended the process with exit code 4"


def _of_step(step: str, run: str = "a", status: str = DONE, **more: object) -> dict[str, object]:
    return {"part": "speed", "step": step, "run": run, "status": status, **more}


def test_a_record_is_read_as_it_was_written_and_what_json_cannot_say_is_text(
    tmp_path: Path,
) -> None:
    records, rows = Records(tmp_path / "new"), [{"batch": 1, "rate": 2.5, "what": None}]
    records.write(_of_step("ar", rows=rows))
    assert records.read("speed", "ar") == _of_step("ar", rows=rows)
    assert records.read("speed", "other") is None

    records.write(_of_step("ar", error=float("nan"), path=Path("x"), sizes=(1, float("inf"))))
    content = (tmp_path / "new" / "speed.ar.json").read_text(encoding="utf-8")
    assert json.loads(content, parse_constant=lambda name: 1 / 0) == _of_step(
        "ar", error="nan", path="x", sizes=[1, "inf"]
    )
    # Files that are no records are left alone.
    (tmp_path / "new" / "speed.half.json").write_text('{"part": "spe', encoding="utf-8")
    (tmp_path / "new" / "notes.json").write_text("[]", encoding="utf-8")
    assert [record["step"] for record in records.all()] == ["ar"]


def test_only_the_running_steps_record_of_a_run_is_its_begun_one(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write(_of_step("one", run="before", status=BEGUN))
    records.write(_of_step("two"))
    assert records.begun("a") is None
    records.write(_of_step("three", status=BEGUN))
    begun = records.begun("a")
    assert begun is not None
    assert begun["step"] == "three"


GPU = "cuda:0 NVIDIA H200"


def _record(status: str = "done", device: str = GPU, **figures: float) -> dict[str, Any]:
    head = {"part": "speed", "step": "ar", "status": status, "device": device, "preset": "full"}
    return {**head, "figures": figures, "reason": "out of luck"}


def _rtf(*records: dict[str, Any], on_gpu: bool = True, preset: str = "full") -> dict[str, str]:
    rows = figure_rows(records, device=GPU, preset=preset, on_gpu=on_gpu)
    return next(row for row in rows if row["figure"].startswith("RTF"))


@pytest.mark.parametrize(
    ("key", "value", "verdict"),
    [
        *(("rtf", 0.121, "MISSED"), ("rtf", 0.12, "reach met"), ("rtf", 0.1, "reach met")),
        *(("rtf", 0.095, "aim met"), ("tokens_per_second", 49_999.0, "MISSED")),
        ("tokens_per_second", 50_000.0, "reach met"),
        ("tokens_per_second", 75_000.0, "aim met"),
    ],
)
def test_less_is_better_for_a_time_and_more_for_a_rate(
    key: str, value: float, verdict: str
) -> None:
    assert next(figure for figure in FIGURES if figure.key == key).verdict(value) == verdict
    assert key != "rtf" or _rtf(_record(rtf=value))["verdict"] == verdict


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (_record("failed"), "speed ar: out of luck"),
        (_record("not measured"), "speed ar: out of luck"),
        (_record(), "speed ar did not give it"),
        (_record("done", "cuda:0 another", rtf=0.01), "speed ar has not run here"),
    ],
)
def test_what_was_not_measured_has_a_reason_and_no_verdict(
    record: dict[str, Any], reason: str
) -> None:
    row = _rtf(record)
    assert row["found"] == "-"
    assert row["verdict"] == f"not measured: {reason}"


@pytest.mark.parametrize(("on_gpu", "preset"), [(False, "full"), (True, "tiny")])
def test_a_cpu_or_another_shape_meets_no_mark(on_gpu: bool, preset: str) -> None:
    record = {**_record(rtf=0.01), "preset": preset}
    assert _rtf(record, on_gpu=on_gpu, preset=preset)["verdict"].startswith("none:")


def test_every_figure_has_a_step_that_can_give_it_and_a_parts_steps_fit_into_its_time() -> None:
    steps = {"parity": PARITY, "speed": SPEED, "serving": SERVING}
    for figure in FIGURES:
        assert figure.step in {step.name for step in steps[figure.part]}
    for part in steps.values():
        assert sum(step.seconds for step in part) <= 480
        assert len({step.name for step in part}) == len(part)


def test_a_table_is_aligned() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": None}, {"a": 12345.678, "b": True}]
    assert as_table(rows, ("a", "b")) == "a        b\n1        -\n12345.7  yes"
