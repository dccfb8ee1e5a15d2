"""Frames made of kernels alone are the engine's: each one leaves what the next one reads."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="kernels are written in triton, which is not installed")

from lab.golden.case import GoldenFolder
from lab.golden.models import Loaded
from synth.contract import Sampling
from synth.engine.errors import CheckpointError
from synth.engine.model.decode import decode_step
from synth.engine.model.decode_state import FAILED, RUNNING, DecodeState
from synth.engine.model.prefill import SlotPrompt, prefill
from tests.synth.engine.kernels.quick_interpreter import hasten

pytestmark = pytest.mark.thorough

NUM_FRAMES = 2
CHANGED = ("columns", "history", "window", "position", "frame", "active", "status")


@pytest.fixture(autouse=True)
def quick_interpreter(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    if device.type == "cpu":
        hasten(monkeypatch)


@pytest.fixture
def state(loaded: Loaded, golden: GoldenFolder) -> DecodeState:
    """Return three slots behind prompts of different lengths, with their first frames made."""
    arrays = golden.tensors("greedy")
    state = DecodeState.allocate(loaded.model, num_slots=3, max_positions=256)
    for slot, case in enumerate(("no_voice", "one_voice", "two_voices")):
        prompt = arrays[f"{case}.prompt"]
        sampling = Sampling(seed=slot, temperature=0.9, top_p=0.95, top_k=20, max_frames=20)
        state.assign(slot, sampling, prompt_positions=prompt.shape[1])
        prefill(loaded.model, state, [SlotPrompt(slot, prompt)])
    return state


def test_frames_of_kernels_are_those_of_the_engine(loaded: Loaded, state: DecodeState) -> None:
    model, other = loaded.model, copy.deepcopy(state)
    other.active[1] = state.active[1] = False

    for _ in range(NUM_FRAMES):
        expected = decode_step(model, state)
        model.use_kernels()
        found = decode_step(model, other)
        model.has_kernels = False

        for name in ("columns", "made", "is_speech", "first_draw", "second_draw"):
            assert torch.equal(getattr(found, name), getattr(expected, name)), name
        for name in CHANGED:
            assert torch.equal(getattr(other, name), getattr(state, name)), name
    live = int(other.position.min())
    torch.testing.assert_close(
        other.cache.keys[:, :, :, :live], state.cache.keys[:, :, :, :live], atol=1e-4, rtol=1e-4
    )


def test_poisoned_slot_fails_alone_among_kernels(loaded: Loaded, state: DecodeState) -> None:
    model = loaded.model
    state.cache.values[:, 1, :, 0] = float("nan")

    model.use_kernels()
    made = decode_step(model, state)
    model.has_kernels = False

    assert state.status.tolist() == [RUNNING, FAILED, RUNNING]
    assert made.is_speech.tolist() == [True, False, True]


def test_model_of_another_form_is_refused(loaded: Loaded) -> None:
    matrix = loaded.model.slow.blocks[0].attention.wo
    assert isinstance(matrix, nn.Linear)
    weight = matrix.weight
    matrix.weight = nn.Parameter(weight.T.contiguous().T, requires_grad=False)

    with pytest.raises(CheckpointError, match="TTS_ENGINE_WITHOUT=kernels"):
        loaded.model.use_kernels()
    matrix.weight = weight
    assert not loaded.model.has_kernels
