"""Comparing replays with eager steps can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from lab.bench.presets import preset_dual_ar
from lab.gpu_check.graphs import compare_runs
from synth.engine.model.decode import StepOutput
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.graphs import CapturedStep
from synth.engine.presets import preset
from tests.synth.engine.model.stand_in_graphs import StandInGraphs


@pytest.fixture(scope="module")
def model() -> DualAR:
    cpu = torch.device("cpu")  # with what runs on a device: tensors' operations alone
    return preset_dual_ar(preset("tiny"), device=cpu, dtype="float32", kernels="off")


class Wrong(StandInGraphs):
    """Give one wrong code in the third replay of each step."""

    def capture(self, run: Callable[[], StepOutput]) -> CapturedStep:
        captured = super().capture(run)
        calls: list[None] = []

        @torch.inference_mode()
        def replay() -> None:
            captured.replay()
            calls.append(None)
            if len(calls) == 3:
                captured.output.columns[0, 3] += 1

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
