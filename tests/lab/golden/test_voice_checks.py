"""Show that the checks of reference voices can fail."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lab.golden.case import GoldenFolder
from lab.golden.voice_checks import check_voices, check_wav_voices

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "golden"
RESAMPLERS = ("builtin", "torchaudio")


@pytest.fixture
def copied(tmp_path: Path) -> GoldenFolder:
    """Return a copy of the golden folder that a test may damage."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    return GoldenFolder(tmp_path / "golden")


def change(folder: GoldenFolder, case: str, changes: dict[str, Any]) -> None:
    """Change fields of one row of voices.json."""
    rows = folder.json("voices.json")
    for row in rows:
        if row["case"] == case:
            row.update(changes)
    (folder.vectors / "voices.json").write_text(json.dumps(rows), encoding="utf-8")


@pytest.mark.parametrize(
    ("case", "changes", "missed"),
    [
        ("stereo_96k", {"rate": 48000}, ["stereo_96k.file"]),
        ("stereo_96k", {"resampled": 1}, [f"stereo_96k.sizes ({name})" for name in RESAMPLERS]),
        (
            "samples_2_channels_1",
            {"cli": {"outcome": "ok", "frames": 2}},
            ["samples_2_channels_1.cli"],
        ),
    ],
)
def test_a_fact_that_does_not_hold_is_a_miss(
    copied: GoldenFolder, case: str, changes: dict[str, Any], missed: list[str]
) -> None:
    change(copied, case, changes)

    assert [r.case for r in check_voices(copied) if not r.passed] == missed


def test_arrays_of_a_case_without_facts_are_misses(copied: GoldenFolder) -> None:
    rows = [row for row in copied.json("voices.json") if row["case"] != "mono_88k"]
    (copied.vectors / "voices.json").write_text(json.dumps(rows), encoding="utf-8")

    misses = [r.case for r in check_voices(copied) if not r.passed]

    assert len(misses) == 4 and all(case.startswith("mono_88k.") for case in misses)
    assert [r.case for r in check_wav_voices(copied) if not r.passed] == ["mono_88k.wav"]


def test_a_file_without_samples_must_be_refused() -> None:
    results = [
        r for r in check_voices(GoldenFolder(GOLDEN)) if r.case.startswith("samples_0_channels_1.")
    ]

    assert {r.found for r in results} == {"equal", "reference_audio_invalid"}
    assert all(r.passed for r in results)
