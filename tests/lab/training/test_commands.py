"""The commands hand their options on, and say what is wrong in one sentence."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from lab.training.evaluation import report
from lab.training.evaluation.report import KEYS, table
from ttsweb.commands.base import CommandError

RESULT: dict[str, Any] = {
    **{key: 0.5 for key in KEYS},
    "rtf": 0.3,
    "bytes": 1000,
    "length_ratio": 1.0,
    "median_pitch_hz": {"m7": 86.1},
    "control": {"nearest_of_40": 1.0},
    "chance": {"nearest_of_40": 0.025},
}


def test_json_is_one_object_with_the_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def evaluate(checkpoint: Path, out: Path, **options: Any) -> dict[str, Any]:
        asked.append((checkpoint, out, options["sampling"].temperature))
        return RESULT

    monkeypatch.setattr(report, "evaluate", evaluate)
    shown = io.StringIO()
    (tmp_path / "card.json").write_text('{"name": "x", "licence": "y", "temperature": 0.25}')

    call_command(
        "eval-demo", "--json", "--checkpoint", str(tmp_path), "--out", "pictures", stdout=shown
    )

    assert json.loads(shown.getvalue()) == RESULT
    assert asked == [(tmp_path, Path("pictures"), 0.25)]


def test_the_table_has_a_line_for_every_figure() -> None:
    lines = table(RESULT).splitlines()

    for key in (*KEYS, "rtf", "bytes"):
        assert sum(line.startswith(f"{key} ") for line in lines) == 1
    assert "1.0" in next(line for line in lines if line.startswith("nearest_of_40"))


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"config\.json is missing"):
        call_command("eval-demo", "--checkpoint", str(tmp_path), stderr=io.StringIO())


def test_a_failed_stage_ends_in_exit_code_1(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        call_command("train-demo", "--stage", "codes", "--folder", str(tmp_path))
    assert caught.value.code == 1
