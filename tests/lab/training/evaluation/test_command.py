"""The command measures what it is asked for, and says what is missing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from lab.training.evaluation import report
from lab.training.evaluation.scores import GOALS, SUBJECTS, Figure, as_json
from synth.contract import Sampling
from ttsweb.commands.base import CommandError, StepError

RESULT = {
    **as_json({name: Figure(0.5, None, None, 0.4, 0.5, 3) for name in GOALS}),
    "median_pitch_hz": {"slt": 171.0},
}


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> tuple[str, Any]:
    """Return what the command prints with a checkpoint in `folder`, and what it asked for."""
    asked: list[Any] = []

    def evaluate(checkpoint: Path, out: Path, **options: Any) -> dict[str, Any]:
        asked.append((checkpoint, out, options))
        return RESULT

    monkeypatch.setattr(report, "evaluate", evaluate)
    (folder / "card.json").write_text('{"name": "x", "licence": "y", "temperature": 0.25}')
    shown = io.StringIO()
    call_command("eval-demo", "--checkpoint", str(folder), *arguments, stdout=shown)
    return shown.getvalue(), asked[0]


def test_json_is_one_object_with_the_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown, (checkpoint, out, options) = run(monkeypatch, tmp_path, "--json", "--out", "pictures")
    assert json.loads(shown) == RESULT
    assert (checkpoint, out) == (tmp_path, Path("pictures"))
    assert options["sampling"] == Sampling(temperature=0.25)
    assert (options["subjects"], options["most"]) == (SUBJECTS, None)
    assert options["gpu_dtype"] is None


def test_a_part_is_measured_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    only = ("--only", "words,pitch", "--sentences", "5", "--gpu-dtype", "fp8")
    arguments = (*only, "--out", str(tmp_path))
    (tmp_path / report.MELODIES).write_text("<svg/>")
    shown, (_, _, options) = run(monkeypatch, tmp_path, *arguments)
    assert (options["subjects"], options["most"]) == (("words", "pitch"), 5)
    assert options["gpu_dtype"] == "fp8"
    assert shown.startswith("figure ")
    assert str(tmp_path / report.MELODIES) in shown and report.SPECTROGRAMS not in shown


@pytest.mark.parametrize(
    "arguments", [("--only", "words,smell"), ("--only", ""), ("--sentences", "0")]
)
def test_a_wrong_argument_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, str]
) -> None:
    with pytest.raises(CommandError, match=r"expected (some of words,|a whole number above 0)"):
        run(monkeypatch, tmp_path, *arguments)


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    arguments = ("--checkpoint", str(tmp_path), "--only", "pitch")
    with pytest.raises(CommandError, match=r"config\.json is missing"):
        call_command("eval-demo", *arguments, stderr=io.StringIO())


def test_a_missing_package_is_said_before_the_checkpoint_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse() -> None:
        raise StepError("extra_missing", "needs more packages: ./tts install asr")

    monkeypatch.setattr(report, "recogniser", refuse)
    arguments = ("--checkpoint", str(tmp_path), "--only", "numbers")
    with pytest.raises(CommandError, match=r"\./tts install asr$"):
        call_command("eval-demo", *arguments, stderr=io.StringIO())
