"""Comparing the codec's chunks and replays can fail."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lab.bench.presets import preset_models
from lab.gpu_check.codec_parity import LEAST_DB, check_codec, compare_streams
from lab.gpu_check.steps import Context, NotMeasuredError
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.streams import Work
from synth.engine.presets import preset

CHUNKS, REPLAYED = range(2)


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    return preset_models("tiny", device="cpu").decoder


@pytest.fixture(scope="module")
def codes() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(64, (10, 20), generator=generator) for _ in range(2)]


def test_chunks_and_replays_are_the_whole(decoder: CodecDecoder, codes: list[Tensor]) -> None:
    errors = compare_streams(decoder, codes, "float32", lambda work: work)
    assert [what.partition(" ")[2] for what, _, _ in errors] == [
        "in chunks against whole",
        "chunks replayed against eager",
    ]
    assert all(error.snr_db >= LEAST_DB["float32"] for _, _, error in errors)


def test_a_replay_that_does_nothing_is_far_off(decoder: CodecDecoder, codes: list[Tensor]) -> None:
    def forget(work: Work) -> Work:
        work()
        return lambda: None

    errors = compare_streams(decoder, codes, "float32", forget)

    assert errors[CHUNKS][2].snr_db >= LEAST_DB["float32"]
    assert not math.isnan(errors[REPLAYED][2].snr_db)
    assert errors[REPLAYED][2].snr_db < LEAST_DB["bfloat16"]


def test_a_cpu_has_nothing_to_compare(tmp_path: Path) -> None:
    context = Context(torch.device("cpu"), preset("tiny").name, tmp_path, tmp_path, print)
    with pytest.raises(NotMeasuredError, match="needs a GPU"):
        check_codec(context)
