"""Run the codec's vectors in chunks, and show that the checks can fail."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from lab.golden import codec_checks
from lab.golden.case import GoldenFolder
from lab.golden.streamed_checks import CHECKS
from synth.engine.codec.streams import CodecStream

pytestmark = pytest.mark.thorough

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "golden"
AUDIO = ("codec_decode.safetensors", "codec_long.safetensors", "end_to_end.safetensors")


@pytest.mark.parametrize("file", CHECKS)
def test_every_case_of_the_file_passes(file: str) -> None:
    results = list(CHECKS[file](GoldenFolder(GOLDEN)))

    assert results
    assert [result for result in results if not result.passed] == []
    assert {result.file for result in results} == {file}
    assert len({result.case for result in results}) == len(results)


def test_every_audio_of_the_vectors_is_decoded_in_chunks() -> None:
    folder = GoldenFolder(GOLDEN)

    for file in AUDIO:
        cases = [result.case for result in CHECKS[file](folder)]
        for name in folder.tensors(file):
            if "audio" in name:
                # One frame is one chunk, however it is cut.
                ways = sum(case.startswith(f"{name} ") for case in cases)
                assert ways >= (2 if "tiny_700" in name else 4), name
    assert set(AUDIO) <= codec_checks.CHECKS.keys()


@pytest.mark.parametrize(
    ("file", "entry"),
    [
        ("codec_decode.safetensors", "speech_3p3s.audio"),
        ("codec_long.safetensors", "audio_frames_112_400"),
        ("end_to_end.safetensors", "audio"),
    ],
)
def test_one_wrong_number_is_a_miss_of_every_way_to_cut(
    tmp_path: Path, file: str, entry: str
) -> None:
    shutil.copytree(GOLDEN, tmp_path / "golden")
    copied = GoldenFolder(tmp_path / "golden")
    arrays = load_file(copied.vectors / file)
    arrays[entry].view(-1)[-1] += 0.001
    save_file(arrays, copied.vectors / file)

    results = list(CHECKS[file](copied))

    misses = {result.case for result in results if not result.passed}
    compared = {r.case for r in results if r.case.startswith(entry) and "whole" not in r.case}
    assert misses == compared


def test_chunks_decoded_each_on_its_own_are_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(stream: CodecStream, codes: Tensor) -> Tensor:
        return stream.decoder.decode([codes])[0]

    monkeypatch.setattr(CodecStream, "decode", forget)

    results = list(CHECKS["end_to_end.safetensors"](GoldenFolder(GOLDEN)))

    cut = [result for result in results if " by 64" not in result.case]
    assert len(cut) >= 8
    assert not any(result.passed for result in cut)
