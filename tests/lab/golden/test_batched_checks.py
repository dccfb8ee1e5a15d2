"""Run the language model's vectors in a batch, and show that the checks can fail."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lab.golden.batched_checks import CHECKS
from lab.golden.batched_run import StreamNoise
from lab.golden.case import CaseResult, GoldenFolder
from lab.golden.noise import CounterNoise, TorchNoise
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import SlowAR, Span
from synth.engine.model.kv_cache import KVCache
from synth.engine.model.sampling import FrameNoise
from tests.synth.engine.conftest import GOLDEN

GENERATIONS = ("greedy", "sampling", "edge", "limits")


def _misses(golden: GoldenFolder, name: str) -> list[CaseResult]:
    return [result for result in CHECKS[f"{name}.safetensors"](golden) if not result.passed]


@cache
def results_of(file: str) -> list[CaseResult]:
    """Return the results of a file that nobody has damaged."""
    return list(CHECKS[file](GoldenFolder(GOLDEN)))


@pytest.mark.parametrize("file", CHECKS)
def test_every_case_of_the_file_passes(file: str) -> None:
    results = results_of(file)
    assert results
    assert [result for result in results if not result.passed] == []


def test_every_stored_sequence_is_generated(golden: GoldenFolder) -> None:
    for name in GENERATIONS:
        cases = {result.case for result in results_of(f"{name}.safetensors")}
        stored = {key for key in golden.tensors(name) if ".frames" in key}
        assert stored <= cases | {"cut_61_40_3.frames.0"}


def test_streams_are_moved_and_prompts_packed_on_the_way(
    golden: GoldenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[tuple[int, int]] = []
    passes: list[list[Span]] = []
    buckets: set[int] = set()
    move, bucket, prefill = DecodeState.move, DecodeState.bucket, SlowAR.prefill

    def count_move(state: DecodeState, source: int, target: int) -> None:
        moves.append((source, target))
        move(state, source, target)

    def count_bucket(state: DecodeState, num_slots: int) -> DecodeState:
        buckets.add(num_slots)
        return bucket(state, num_slots)

    def count_pass(
        slow: SlowAR, columns: Tensor, spans: Sequence[Span], *rest: Any, **more: Any
    ) -> Tensor:
        passes.append(list(spans))
        return prefill(slow, columns, spans, *rest, **more)

    monkeypatch.setattr(DecodeState, "move", count_move)
    monkeypatch.setattr(DecodeState, "bucket", count_bucket)
    monkeypatch.setattr(SlowAR, "prefill", count_pass)

    assert not _misses(golden, "edge")

    assert len(moves) > 5
    assert len(buckets) > 1
    assert any(len(spans) > 1 and all(span.start for span in spans) for spans in passes)


def test_a_prefix_not_copied_and_a_move_that_leaves_a_position_behind_are_misses(
    golden: GoldenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = KVCache.move

    def short(cache: KVCache, source: int, target: int, length: int) -> None:
        move(cache, source, target, length // 2)

    with monkeypatch.context() as patch:
        patch.setattr(KVCache, "write_prefix", lambda *_: None)
        assert len(_misses(golden, "sampling")) > 3
    monkeypatch.setattr(KVCache, "move", short)
    assert _misses(golden, "edge")


def test_one_wrong_code_is_a_miss_of_its_case_alone(tmp_path: Path, golden: GoldenFolder) -> None:
    shutil.copytree(golden.root, tmp_path / "golden")
    copied = GoldenFolder(tmp_path / "golden")
    arrays = load_file(copied.vectors / "greedy.safetensors")
    arrays["two_voices.frames"][4, 60] += 1
    save_file(arrays, copied.vectors / "greedy.safetensors")
    assert [result.case for result in _misses(copied, "greedy")] == ["two_voices.frames"]


def test_a_streams_numbers_are_its_sources_wherever_its_row_is() -> None:
    def source() -> TorchNoise:
        return TorchNoise(torch.Generator().manual_seed(3), vocab_size=50, codebook_size=20)

    ids = torch.arange(10).expand(3, 10)
    one = torch.zeros(1, dtype=torch.int64)
    alone = [frame.uniform(0, ids[:1])[0] for frame in _frames(source(), one, 4)]
    noise = StreamNoise()
    noise.add(7, source())

    def row(seeds: list[int], frames: list[int], index: int) -> Tensor:
        frame = noise.frame(torch.tensor(seeds), torch.tensor(frames), 11)
        return frame.uniform(0, ids)[index]

    assert torch.equal(row([1, 7, 2], [9, 2, 9], 1), alone[2])
    assert torch.equal(row([7, 1, 2], [0, 9, 9], 0), alone[0])
    assert torch.equal(row([1, 2, 7], [0, 0, 3], 2), alone[3])
    expected = CounterNoise().frame(torch.tensor([1, 7, 2]), torch.tensor([5, 0, 6]), 11)
    assert torch.equal(row([1, 7, 2], [5, 0, 6], 2), expected.uniform(0, ids)[2])


def _frames(source: TorchNoise, one: Tensor, count: int) -> list[FrameNoise]:
    return [source.frame(one, one, 11) for _ in range(count)]
