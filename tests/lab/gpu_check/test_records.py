"""What a step found outlives the process that found it."""

from __future__ import annotations

import json
from pathlib import Path

from lab.gpu_check.records import BEGUN, DONE, Records


def _record(step: str, run: str = "a", status: str = DONE, **more: object) -> dict[str, object]:
    return {"part": "speed", "step": step, "run": run, "status": status, **more}


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = Records(tmp_path / "new")
    records.write(_record("ar", rows=[{"batch": 1, "rate": 2.5, "what": None}]))
    assert records.read("speed", "ar") == _record(
        "ar", rows=[{"batch": 1, "rate": 2.5, "what": None}]
    )
    assert records.read("speed", "other") is None


def test_what_json_cannot_say_is_written_as_text(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write(_record("ar", error=float("nan"), path=Path("x"), sizes=(1, float("inf"))))
    content = (tmp_path / "speed.ar.json").read_text(encoding="utf-8")
    assert json.loads(content, parse_constant=lambda name: 1 / 0) == _record(
        "ar", error="nan", path="x", sizes=[1, "inf"]
    )


def test_files_that_are_no_records_are_left_alone(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write(_record("ar"))
    (tmp_path / "speed.half.json").write_text('{"part": "spe', encoding="utf-8")
    (tmp_path / "notes.json").write_text("[]", encoding="utf-8")

    assert [record["step"] for record in records.all()] == ["ar"]


def test_only_the_running_steps_record_of_a_run_is_its_begun_one(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write(_record("one", run="before", status=BEGUN))
    records.write(_record("two"))
    assert records.begun("a") is None

    records.write(_record("three", status=BEGUN))
    begun = records.begun("a")
    assert begun is not None
    assert begun["step"] == "three"
