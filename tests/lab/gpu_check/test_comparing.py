"""Comparing kernels, chunks, replays and whole steps can fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from lab.bench.models.presets import preset_dual_ar, preset_models
from lab.bench.models.shapes import preset
from lab.bench.stepping import has_kernels, without_kernels
from lab.gpu_check.agreement import Forced, forced_steps
from lab.gpu_check.codec_parity import LEAST_DB, check_codec, compare_streams
from lab.gpu_check.graphs import compare_runs
from lab.gpu_check.kernels import check_kernels, compare, poisoned_memory
from lab.gpu_check.steps import Context, NotMeasuredError
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.streams import Work
from synth.engine.model.decode import Captured, StepOutput
from synth.engine.model.dual_ar import DualAR
from tests.synth.engine.model.stand_in_graphs import StandInGraphs

CHUNKS, REPLAYED = range(2)
T = TypeVar("T")


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


FRAMES = 6


@pytest.fixture(scope="module")
def forced_model() -> DualAR:
    return preset_dual_ar(preset("tiny"), device=torch.device("cpu"), dtype="float32")


@pytest.fixture(scope="module")
def steps(forced_model: DualAR) -> Forced:
    return forced_steps(forced_model, frames=FRAMES)


def test_a_model_agrees_with_itself(forced_model: DualAR, steps: Forced) -> None:
    again = forced_steps(without_kernels(forced_model), frames=FRAMES)
    assert steps.columns.shape == (FRAMES, 2, 11)
    assert steps.compared(again) == {"cache_error": 0.0, "same_tokens": 1.0, "same_codes": 1.0}


def test_what_is_stepped_over_is_given_and_not_what_was_taken(steps: Forced) -> None:
    other = preset_dual_ar(preset("tiny"), device=torch.device("cpu"), dtype="bfloat16")
    found = steps.compared(forced_steps(other, frames=FRAMES))
    assert 0 < found["cache_error"] < 0.05  # the same columns went in, whatever was drawn


def test_a_code_counts_only_behind_equal_ones(steps: Forced) -> None:
    columns = steps.columns.clone()
    columns[0, 0, 3] += 1  # what follows in its frame is another frame's continuation
    columns[0, 0, 4:] += 1
    columns[1, 1, 0] += 1
    found = steps.compared(replace(steps, columns=columns))
    assert found["same_tokens"] == pytest.approx(1 - 1 / (2 * FRAMES))
    # One whole frame less, and of another one what comes behind the code that differs.
    judged = 9 * (2 * FRAMES - 1) - 7
    assert found["same_codes"] == pytest.approx(1 - 1 / judged)


def test_a_model_without_kernels_shares_every_weight(forced_model: DualAR) -> None:
    forced_model.has_kernels = True
    try:
        plain = without_kernels(forced_model)

        assert has_kernels(forced_model)
        assert not has_kernels(plain)
        table = forced_model.slow.embeddings.weight
        assert plain.slow.embeddings.weight.data_ptr() == table.data_ptr()
    finally:
        forced_model.has_kernels = False


@pytest.fixture(scope="module")
def model() -> DualAR:
    cpu = torch.device("cpu")  # with what runs on a device: tensors' operations alone
    return preset_dual_ar(preset("tiny"), device=cpu, dtype="float32", kernels="off")


class Wrong(StandInGraphs):
    """Give one wrong code in the third replay of each step."""

    def capture(self, run: Callable[[], T]) -> Captured[T]:
        captured = super().capture(run)
        calls: list[None] = []

        @torch.inference_mode()
        def replay() -> None:
            captured.replay()
            calls.append(None)
            if len(calls) == 3:
                output = captured.output
                if isinstance(output, StepOutput):
                    output.columns[0, 3] += 1

        return replace(captured, replay=replay)


def test_recorded_steps_give_every_frame_of_eager_ones(model: DualAR) -> None:
    found = compare_runs(model, StandInGraphs())
    assert found.mismatches == []
    assert {row["bucket"] for row in found.rows} == {1, 2, 4, 8}
    assert sum(int(row["frames"]) for row in found.rows) == 50


def test_one_wrong_code_of_one_frame_is_told(model: DualAR) -> None:
    found = compare_runs(model, Wrong())
    assert found.mismatches
    assert "columns" in found.mismatches[0]


INF = float("inf")
ONES = torch.ones(4)


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([ONES], [ONES], 0.0),
        ([1.5 * ONES], [ONES], 0.5),
        ([torch.tensor([1.0, 1.0, 1.0, float("nan")])], [ONES], INF),
        ([torch.tensor([1, 2])], [torch.tensor([1, 2])], 0.0),
        ([torch.tensor([1, 3])], [torch.tensor([1, 2])], INF),
        ([ONES[:3]], [ONES], INF),
        ([ONES.bfloat16()], [ONES], INF),
        ([ONES], [torch.zeros(4)], 2.0),
        ([ONES, 2 * ONES], [ONES, ONES], 1.0),  # the worst result counts
        ([ONES], [ONES, ONES], INF),
    ],
)
def test_the_error_is_a_share_and_infinite_where_nothing_is_equal(
    found: list[Tensor], expected: list[Tensor], error: float
) -> None:
    assert compare(found, expected) == pytest.approx(error)


def test_new_memory_holds_nan_until_it_is_written() -> None:
    with poisoned_memory():
        assert torch.empty(1000).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("check", [check_codec, partial(check_kernels, dtype=torch.float32)])
def test_a_cpu_has_nothing_to_compare(tmp_path: Path, check: Callable[[Context], object]) -> None:
    with pytest.raises(NotMeasuredError, match="needs a GPU"):
        check(Context(torch.device("cpu"), "tiny", tmp_path, tmp_path, print))
