"""Test decode and decode_state: slots that share a step and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lab.golden.case import GoldenFolder
from lab.golden.generate import CodeRequest, generate_codes
from lab.golden.models import Loaded
from lab.golden.noise import CounterNoise
from synth.contract import Sampling
from synth.engine.errors import InvalidSpecError
from synth.engine.model.decode import StepOutput, decode_step, step_tensors
from synth.engine.model.decode_state import (
    CONTEXT_FULL,
    ENDED,
    FAILED,
    FRAME_LIMIT,
    RUNNING,
    DecodeState,
)
from synth.engine.model.prefill import SlotStart, start_slots
from synth.engine.model.sampling import NoiseSource

GREEDY = Sampling(top_k=1, temperature=1.0, max_frames=20)


@pytest.fixture
def prompts(golden: GoldenFolder) -> dict[str, Tensor]:
    arrays = golden.tensors("greedy")
    cases = ("no_voice", "one_voice", "two_voices", "stops_early")
    return {case: arrays[f"{case}.prompt"] for case in cases}


def _state(
    loaded: Loaded,
    num_slots: int,
    max_positions: int = 256,
    noise: NoiseSource | None = CounterNoise(),  # noqa: B008  # it has no state
) -> DecodeState:
    return DecodeState.allocate(
        loaded.model, num_slots=num_slots, max_positions=max_positions, noise=noise
    )


def _start(
    loaded: Loaded, state: DecodeState, slot: int, prompt: Tensor, sampling: Sampling = GREEDY
) -> None:
    state.assign(slot, sampling, prompt_positions=prompt.shape[1])
    start_slots(loaded.model, state, [SlotStart(slot, prompt)])


def _run(loaded: Loaded, state: DecodeState, steps: int) -> list[StepOutput]:
    return [decode_step(loaded.model, state) for _ in range(steps)]


def _columns(outputs: list[StepOutput], slot: int) -> Tensor:
    made = [output for output in outputs if bool(output.made[slot])]
    return torch.stack([output.columns[slot] for output in made], dim=1)


def test_a_slot_filled_in_the_middle_or_used_again_gives_what_it_gives_alone(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    alone = {
        case: generate_codes(loaded.model, [CodeRequest(prompts[case], GREEDY)])[0].columns
        for case in ("no_voice", "two_voices")
    }
    state = _state(loaded, 3)

    _start(loaded, state, 2, prompts["no_voice"])
    outputs = _run(loaded, state, 6)
    _start(loaded, state, 0, prompts["two_voices"])
    outputs += _run(loaded, state, 26)

    assert torch.equal(_columns(outputs, 2), alone["no_voice"])
    assert torch.equal(_columns(outputs, 0), alone["two_voices"])
    assert state.status.tolist() == [FRAME_LIMIT, RUNNING, FRAME_LIMIT]
    # The history holds every frame that was made.
    assert torch.equal(state.history[0, :20].T, alone["two_voices"].to(torch.int32))

    state.release(0)
    _start(loaded, state, 0, prompts["no_voice"])
    again = _run(loaded, state, 21)
    assert torch.equal(_columns(again, 0), alone["no_voice"])


def test_a_stopped_slot_keeps_its_state_while_others_go_on(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    state = _state(loaded, 2)
    short = Sampling(top_k=1, temperature=1.0, max_frames=3)
    _start(loaded, state, 0, prompts["no_voice"], short)
    _start(loaded, state, 1, prompts["one_voice"])
    outputs = _run(loaded, state, 3)
    before = [tensor[0].clone() for tensor in (state.columns, state.position, state.frame)]

    outputs += _run(loaded, state, 6)

    assert _columns(outputs, 0).shape[1] == 3
    after = [tensor[0] for tensor in (state.columns, state.position, state.frame)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert int(state.frame[1]) == 9


def test_a_slot_with_non_finite_logits_fails_alone_and_serves_the_next_request(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    state, clean = _state(loaded, 2), _state(loaded, 2)
    for one in (state, clean):
        _start(loaded, one, 0, prompts["one_voice"])
        _start(loaded, one, 1, prompts["no_voice"])

    state.cache.values[:, 0, :, 3] = float("nan")
    outputs, expected = (_run(loaded, one, 10) for one in (state, clean))

    assert state.status.tolist() == [FAILED, RUNNING]
    assert not any(bool(output.is_speech[0]) for output in outputs)
    assert torch.equal(_columns(outputs, 1), _columns(expected, 1))

    state.release(0)
    _start(loaded, state, 0, prompts["no_voice"])
    again = _run(loaded, state, 20)
    assert state.status.tolist() == [FRAME_LIMIT, FRAME_LIMIT]
    assert all(bool(output.is_speech[0]) for output in again)


def test_attending_over_more_than_the_live_part_changes_no_code(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    live, fixed = _state(loaded, 1), _state(loaded, 1)
    for state in (live, fixed):
        _start(loaded, state, 0, prompts["one_voice"])
    found = _run(loaded, live, 15)
    wide = [step_tensors(loaded.model, fixed, length=fixed.max_positions) for _ in range(15)]
    assert torch.equal(_columns(found, 0), _columns(wide, 0))


def test_the_end_token_stops_a_slot_and_is_no_speech(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    state, long = _state(loaded, 1), Sampling(top_k=1, temperature=1.0, max_frames=64)
    _start(loaded, state, 0, prompts["stops_early"], long)
    outputs = _run(loaded, state, 41)
    assert state.status.tolist() == [ENDED]
    columns = _columns(outputs, 0)
    assert int(columns[0, -1]) == loaded.tokenizer.special.im_end
    assert sum(bool(output.is_speech[0]) for output in outputs) == columns.shape[1] - 1


@pytest.mark.thorough  # quick tests of graphs look at the operations
def test_a_step_asks_no_tensor_for_its_value(loaded: Loaded, prompts: dict[str, Tensor]) -> None:
    state = _state(loaded, 2, noise=None)
    _start(loaded, state, 0, prompts["no_voice"])

    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        # A fake tensor has shapes and no values: reading one raises.
        fake: dict[str, Any] = {
            name: mode.from_tensor(value) if isinstance(value, Tensor) else value
            for name, value in vars(state).items()
        }
        output = step_tensors(loaded.model, DecodeState(**fake), length=128)

    assert output.columns.shape == state.columns.shape


@pytest.mark.parametrize(("room", "frames"), [(5, 5), (1, 1)])
def test_a_full_context_is_a_named_end(
    loaded: Loaded, prompts: dict[str, Tensor], room: int, frames: int
) -> None:
    prompt = prompts["one_voice"]
    state = _state(loaded, 1, max_positions=prompt.shape[1] + room)
    _start(loaded, state, 0, prompt)
    outputs = _run(loaded, state, 9)
    assert _columns(outputs, 0).shape[1] == frames
    assert state.status.tolist() == [CONTEXT_FULL]


def test_prompts_without_room_and_slots_longer_than_the_context_are_refused(
    loaded: Loaded,
) -> None:
    with pytest.raises(InvalidSpecError, match="no room"):
        _state(loaded, 1, max_positions=30).assign(0, GREEDY, prompt_positions=30)
    with pytest.raises(InvalidSpecError, match="4097"):
        _state(loaded, 1, max_positions=4097)


def test_the_live_length_follows_the_longest_slot_in_steps(loaded: Loaded) -> None:
    state = _state(loaded, 2, max_positions=200)
    state.assign(0, GREEDY, prompt_positions=10)
    short = state.live_length()
    state.assign(1, GREEDY, prompt_positions=130)
    long = state.live_length()
    state.release(1)
    assert (short, long, state.live_length()) == (64, 192, 64)


def test_a_stream_that_moves_to_another_slot_goes_on_as_if_it_had_not(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    stays, moves = _state(loaded, 3), _state(loaded, 3)
    sampled = Sampling(seed=5, max_frames=20)
    for one in (stays, moves):
        _start(loaded, one, 2, prompts["one_voice"], sampled)
        for _ in range(6):
            decode_step(loaded.model, one)
    moves.cache.keys[:, 0] = float("nan")  # what a failed request may have left
    moves.status[0] = FAILED

    moves.move(2, 0)
    while bool(stays.active.any()):
        decode_step(loaded.model, stays)
        decode_step(loaded.model, moves.bucket(1))

    assert moves.status[0] == stays.status[2]
    assert moves.frame[0] == stays.frame[2] == 20
    assert torch.equal(moves.history[0, :20], stays.history[2, :20])


def test_no_tensor_of_a_state_is_ever_replaced(loaded: Loaded, prompts: dict[str, Tensor]) -> None:
    state = _state(loaded, 2)
    before = {n: v.data_ptr() for n, v in vars(state).items() if isinstance(v, Tensor)}
    _start(loaded, state, 1, prompts["no_voice"])
    _run(loaded, state, 22)
    state.release(1)
    assert before == {n: v.data_ptr() for n, v in vars(state).items() if isinstance(v, Tensor)}


def test_a_state_has_the_noise_of_each_request_in_store(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    sampled = Sampling(seed=11, max_frames=12)
    histories = []
    for noise in (CounterNoise(), None):
        state = _state(loaded, 1, noise=noise)
        prompt = prompts["one_voice"]
        state.assign(0, sampled, prompt_positions=prompt.shape[1], noise_offset=3)
        start_slots(loaded.model, state, [SlotStart(0, prompt)])
        while bool(state.active.any()):
            decode_step(loaded.model, state)
        histories.append(state.history[0, :12].clone())

    assert torch.equal(*histories)
