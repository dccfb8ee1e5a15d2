"""A report as JSON and as a table, and its picture."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from lab.bench.report import Plot, Report, check_plot, draw_plot
from synth.engine.errors import InvalidSpecError

ROWS = (
    {"batch": 1, "dtype": "float32", "frames_per_second": 9.87654, "reason": None},
    {"batch": 16, "dtype": "float32", "frames_per_second": 12345.6, "reason": "none"},
)


def _report(plot: Plot | None = None) -> Report:
    columns = ("batch", "frames_per_second", "reason")
    return Report("ar", {"preset": "tiny", "seed": 0}, ROWS, columns, plot)


def test_json_has_the_facts_and_every_key_of_the_rows() -> None:
    content = json.loads(_report().as_json())

    assert content["name"] == "ar"
    assert content["seed"] == 0
    assert content["rows"][0]["dtype"] == "float32"
    assert content["rows"][0]["reason"] is None


def test_a_value_that_json_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Report("ar", {"speed": float("nan")}, (), ()).as_json()


def test_the_table_is_aligned_on_the_right() -> None:
    *_, heading, first, second = _report().as_table().splitlines()

    assert heading.split() == ["batch", "frames_per_second", "reason"]
    assert first.split() == ["1", "9.877", "-"]
    assert second.split() == ["16", "12345.6", "none"]
    assert len({len(line) for line in (heading, first, second)}) == 1


def test_a_missing_matplotlib_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidSpecError, match=r"pip install -c constraints\.txt matplotlib"):
        check_plot(tmp_path / "ar.png")


@pytest.mark.parametrize(
    ("name", "sentence"), [("ar.svg", "PNG files"), ("none/ar.png", "is not a folder")]
)
def test_a_picture_that_cannot_be_written_is_told(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(InvalidSpecError, match=sentence):
        check_plot(tmp_path / name)


def test_a_report_without_axes_has_no_picture(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match="has no picture"):
        draw_plot(_report(), tmp_path / "ar.png")


def test_the_rows_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "ar.png"
    draw_plot(_report(Plot("batch", "frames_per_second", ("dtype",))), path)
    assert path.read_bytes().startswith(b"\x89PNG")
