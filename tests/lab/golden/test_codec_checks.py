"""Run every codec vector and row, whole and in chunks, and show that the checks can fail."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lab.golden.case import CaseResult, GoldenFolder
from lab.golden.codec_checks import CHECKS, COMPANIONS, check_voices, check_wav_voices
from lab.golden.codec_variants import checkpoint_codec_variants
from lab.golden.streamed_checks import CHECKS as STREAMED
from synth.engine.codec.streams import CodecStream
from tests.synth.engine.conftest import GOLDEN

FOLDER = GoldenFolder(GOLDEN)
RESAMPLED = ("resample.safetensors", "voices.safetensors")  # checked with torchaudio and our own


@pytest.fixture
def copied(tmp_path: Path) -> GoldenFolder:
    """Return a copy of the golden folder that a test may damage."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    return GoldenFolder(tmp_path / "golden")


@cache
def results_of(file: str, *, streamed: bool = False) -> list[CaseResult]:
    """Return the results of a file that nobody has damaged."""
    return list((STREAMED if streamed else CHECKS)[file](FOLDER))


def misses_of(folder: GoldenFolder, file: str) -> list[CaseResult]:
    return [result for result in CHECKS[file](folder) if not result.passed]


def change_arrays(
    folder: GoldenFolder, file: str, change: Callable[[dict[str, Tensor]], object]
) -> None:
    arrays = load_file(folder.vectors / file)
    change(arrays)
    save_file(arrays, folder.vectors / file)


@pytest.mark.parametrize(
    ("file", "streamed"),
    [
        *((file, False) for file in CHECKS),
        *(pytest.param(file, True, marks=pytest.mark.thorough) for file in STREAMED),
    ],
)
def test_every_case_of_the_file_passes(file: str, streamed: bool) -> None:
    results = results_of(file, streamed=streamed)
    assert results
    assert [result for result in results if not result.passed] == []
    assert {result.file for result in results} == {file}
    assert not streamed or len({result.case for result in results}) == len(results)


def test_every_array_of_every_file_is_compared_and_every_rate_by_torchaudio_too() -> None:
    inputs = ("codes", "in")  # of decoding and resampling: given, and compared by what comes out
    for file in [name for name in CHECKS if name.endswith(".safetensors")]:
        compared = " ".join(result.case for result in results_of(file))
        for name in FOLDER.tensors(file):
            case, _, entry = name.rpartition(".")
            assert (name if entry not in (*inputs, "out") else case) in compared, (file, name)
    assert set(COMPANIONS.values()) <= CHECKS.keys()
    cases = [result.case for result in results_of("resample.safetensors")]
    by_torchaudio = {case.split()[0] for case in cases if case.endswith(" torchaudio")}
    assert by_torchaudio == {"8000", "16000", "22050", "48000"}


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
    change_arrays(copied, file, lambda arrays: arrays[entry].view(-1)[-1].add_(1))
    misses = misses_of(copied, file)
    assert len(misses) == (2 if file in RESAMPLED else 1)
    assert all(miss.case.startswith(entry.removesuffix(".out")) for miss in misses)


@pytest.mark.parametrize(
    "file", ["codec_encode.safetensors", "codec_decode.safetensors", "voices.safetensors"]
)
def test_an_entry_that_is_not_known_is_a_miss(copied: GoldenFolder, file: str) -> None:
    case = max(FOLDER.tensors(file)).partition(".")[0]
    change_arrays(copied, file, lambda arrays: arrays.update({f"{case}.surprise": torch.ones(3)}))
    misses = [miss.found for miss in misses_of(copied, file)]
    assert misses == ["not understood"] * (2 if file in RESAMPLED else 1)


def test_an_input_file_that_no_case_uses_is_a_miss(copied: GoldenFolder) -> None:
    for folder in ("wav", "wav_voices"):
        source = next((copied.vectors / folder).iterdir())
        shutil.copy(source, source.with_name("unused.wav"))
        misses = misses_of(copied, f"vectors/{folder}/")
        assert [miss.case for miss in misses] == ["unused.wav"]


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
    every = results_of("voices.safetensors")
    results = [r for r in every if r.case.startswith("samples_0_channels_1.")]
    assert {r.found for r in results} == {"equal", "reference_audio_invalid"}
    assert all(r.passed for r in results)


@pytest.mark.parametrize(
    "row",
    [
        {"case": "plain", "outcome": "error"},
        {"case": "plain", "outcome": "ok", "audio": "different"},
        {"case": "plain", "outcome": "ok", "audio": "nearly the same"},
        {"case": "missing_tensor", "outcome": "ok", "audio": "same"},
        {"case": "float16", "outcome": "ok", "audio": "same"},
        {"case": "never_heard_of", "outcome": "ok", "audio": "same"},
    ],
)
def test_a_row_that_says_otherwise_is_a_miss(row: dict[str, Any]) -> None:
    (result,) = checkpoint_codec_variants(FOLDER, [row])
    assert not result.passed


AUDIO = ("codec_decode.safetensors", "codec_long.safetensors", "end_to_end.safetensors")


@pytest.mark.thorough
def test_every_audio_of_the_vectors_is_decoded_in_chunks() -> None:
    for file in AUDIO:
        cases = [result.case for result in results_of(file, streamed=True)]
        for name in FOLDER.tensors(file):
            if "audio" in name:
                # One frame is one chunk, however it is cut.
                ways = sum(case.startswith(f"{name} ") for case in cases)
                assert ways >= (2 if "tiny_700" in name else 4), name
    assert set(AUDIO) <= CHECKS.keys()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "entry"),
    [
        ("codec_decode.safetensors", "speech_3p3s.audio"),
        ("codec_long.safetensors", "audio_frames_112_400"),
        ("end_to_end.safetensors", "audio"),
    ],
)
def test_one_wrong_number_is_a_miss_of_every_way_to_cut(
    copied: GoldenFolder, file: str, entry: str
) -> None:
    change_arrays(copied, file, lambda arrays: arrays[entry].view(-1)[-1].add_(0.001))
    results = list(STREAMED[file](copied))
    misses = {result.case for result in results if not result.passed}
    compared = {r.case for r in results if r.case.startswith(entry) and "whole" not in r.case}
    assert misses == compared


@pytest.mark.thorough
def test_chunks_decoded_each_on_its_own_are_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(stream: CodecStream, codes: Tensor) -> Tensor:
        return stream.decoder.decode([codes])[0]

    monkeypatch.setattr(CodecStream, "decode", forget)
    results = list(STREAMED["end_to_end.safetensors"](FOLDER))
    cut = [result for result in results if " by 64" not in result.case]
    assert len(cut) >= 8
    assert not any(result.passed for result in cut)
