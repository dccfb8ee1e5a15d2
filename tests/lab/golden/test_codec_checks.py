"""Run every codec vector, and show that the checks can fail."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lab.golden.case import GoldenFolder
from lab.golden.codec_checks import CHECKS, COMPANIONS, check_voices, check_wav_voices

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "golden"
RESAMPLED = ("resample.safetensors", "voices.safetensors")  # checked with torchaudio and our own


@pytest.fixture
def copied(tmp_path: Path) -> GoldenFolder:
    """Return a copy of the golden folder that a test may damage."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    return GoldenFolder(tmp_path / "golden")


@pytest.mark.parametrize("file", CHECKS)
def test_every_case_of_the_file_passes(file: str) -> None:
    results = list(CHECKS[file](GoldenFolder(GOLDEN)))
    assert results
    assert [result for result in results if not result.passed] == []
    assert {result.file for result in results} == {file}


def test_every_array_of_every_file_is_compared() -> None:
    folder = GoldenFolder(GOLDEN)
    inputs = ("codes", "in")  # of decoding and resampling: given, and compared by what comes out
    for file in [name for name in CHECKS if name.endswith(".safetensors")]:
        compared = " ".join(result.case for result in CHECKS[file](folder))
        for name in folder.tensors(file):
            case, _, entry = name.rpartition(".")
            assert (name if entry not in (*inputs, "out") else case) in compared, (file, name)


@pytest.mark.parametrize(
    ("file", "entry"),
    [
        ("codec_encode.safetensors", "speech_0p4s.codes"),
        ("codec_encode.safetensors", "speech_0p4s.residual_vq"),
        ("codec_decode.safetensors", "tiny_700.audio"),
        ("codec_long.safetensors", "audio_frames_0_8"),
        ("resample.safetensors", "48000.out"),
        ("end_to_end.safetensors", "audio"),
        ("voices.safetensors", "stereo_96k.server.codes"),
    ],
)
def test_one_wrong_number_is_one_miss_for_each_resampler(
    copied: GoldenFolder, file: str, entry: str
) -> None:
    path = copied.vectors / file
    arrays = load_file(path)
    arrays[entry].view(-1)[-1] += 1
    save_file(arrays, path)

    misses = [result.case for result in CHECKS[file](copied) if not result.passed]

    resamplers = 2 if file in RESAMPLED else 1
    assert len(misses) == resamplers
    assert all(miss.startswith(entry.removesuffix(".out")) for miss in misses)


@pytest.mark.parametrize(
    "file", ["codec_encode.safetensors", "codec_decode.safetensors", "voices.safetensors"]
)
def test_an_entry_that_is_not_known_is_a_miss(copied: GoldenFolder, file: str) -> None:
    path = copied.vectors / file
    arrays = load_file(path)
    case = sorted(arrays)[-1].partition(".")[0]
    save_file(arrays | {f"{case}.surprise": torch.ones(3)}, path)

    misses = [result for result in CHECKS[file](copied) if not result.passed]

    resamplers = 2 if file in RESAMPLED else 1
    assert [miss.found for miss in misses] == ["not understood"] * resamplers


def test_an_input_file_that_no_case_uses_is_a_miss(copied: GoldenFolder) -> None:
    for folder in ("wav", "wav_voices"):
        source = next((copied.vectors / folder).iterdir())
        shutil.copy(source, source.with_name("unused.wav"))

        misses = [r.case for r in CHECKS[f"vectors/{folder}/"](copied) if not r.passed]

        assert misses == ["unused.wav"]


def test_companions_are_read_by_a_check_of_this_module() -> None:
    assert set(COMPANIONS.values()) <= CHECKS.keys()


def test_each_rate_is_resampled_by_torchaudio_too_where_its_filter_fits() -> None:
    results = [*CHECKS["resample.safetensors"](GoldenFolder(GOLDEN))]
    by_torchaudio = {r.case.split()[0] for r in results if r.case.endswith(" torchaudio")}
    assert [r for r in results if not r.passed] == []
    assert by_torchaudio == {"8000", "16000", "22050", "48000"}


RESAMPLERS = ("builtin", "torchaudio")


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
