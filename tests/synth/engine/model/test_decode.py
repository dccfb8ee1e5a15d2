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
from synth.engine.model.prefill import SlotPrompt, prefill

GREEDY = Sampling(top_k=1, temperature=1.0, max_frames=20)
NOISE = CounterNoise()


@pytest.fixture
def prompts(golden: GoldenFolder) -> dict[str, Tensor]:
    arrays = golden.tensors("greedy")
    cases = ("no_voice", "one_voice", "two_voices", "stops_early")
    return {case: arrays[f"{case}.prompt"] for case in cases}


def _state(loaded: Loaded, num_slots: int, max_positions: int = 256) -> DecodeState:
    return DecodeState.allocate(loaded.model, num_slots=num_slots, max_positions=max_positions)


def _start(
    loaded: Loaded, state: DecodeState, slot: int, prompt: Tensor, sampling: Sampling = GREEDY
) -> StepOutput:
    state.assign(slot, sampling, prompt_positions=prompt.shape[1])
    return prefill(loaded.model, state, [SlotPrompt(slot, prompt)], NOISE)


def _run(loaded: Loaded, state: DecodeState, outputs: list[StepOutput], steps: int) -> None:
    outputs.extend(decode_step(loaded.model, state, NOISE) for _ in range(steps))


def _columns(outputs: list[StepOutput], slot: int) -> Tensor:
    made = [output for output in outputs if bool(output.made[slot])]
    return torch.stack([output.columns[slot] for output in made], dim=1)


def test_a_slot_filled_in_the_middle_gives_what_it_gives_alone(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    alone = {
        case: generate_codes(loaded.model, [CodeRequest(prompts[case], GREEDY)])[0].columns
        for case in ("no_voice", "two_voices")
    }
    state = _state(loaded, 3)

    outputs = [_start(loaded, state, 2, prompts["no_voice"])]
    _run(loaded, state, outputs, 5)
    outputs.append(_start(loaded, state, 0, prompts["two_voices"]))
    _run(loaded, state, outputs, 25)

    assert torch.equal(_columns(outputs, 2), alone["no_voice"])
    assert torch.equal(_columns(outputs, 0), alone["two_voices"])
    assert state.status.tolist() == [FRAME_LIMIT, RUNNING, FRAME_LIMIT]


def test_a_slot_used_again_gives_what_a_fresh_one_gives(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    used, fresh = _state(loaded, 1), _state(loaded, 1)
    sampling = Sampling(seed=9, max_frames=20)
    first = [_start(loaded, used, 0, prompts["two_voices"], sampling)]
    _run(loaded, used, first, 25)
    used.release(0)

    again = [_start(loaded, used, 0, prompts["no_voice"], sampling)]
    _run(loaded, used, again, 20)
    expected = [_start(loaded, fresh, 0, prompts["no_voice"], sampling)]
    _run(loaded, fresh, expected, 20)

    assert torch.equal(_columns(again, 0), _columns(expected, 0))


def test_a_stopped_slot_keeps_its_state_while_others_go_on(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    state = _state(loaded, 2)
    short = Sampling(top_k=1, temperature=1.0, max_frames=3)
    outputs = [_start(loaded, state, 0, prompts["no_voice"], short)]
    outputs.append(_start(loaded, state, 1, prompts["one_voice"]))
    _run(loaded, state, outputs, 2)
    before = [tensor[0].clone() for tensor in (state.columns, state.position, state.frame)]

    _run(loaded, state, outputs, 6)

    assert _columns(outputs, 0).shape[1] == 3
    after = [tensor[0] for tensor in (state.columns, state.position, state.frame)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert int(state.frame[1]) == 9


def test_a_slot_with_non_finite_logits_fails_alone(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    state, clean = _state(loaded, 2), _state(loaded, 2)
    outputs: list[StepOutput] = []
    expected: list[StepOutput] = []
    for one, kept in ((state, outputs), (clean, expected)):
        kept.append(_start(loaded, one, 0, prompts["one_voice"]))
        kept.append(_start(loaded, one, 1, prompts["no_voice"]))

    state.cache.values[:, 0, :, 3] = float("nan")
    _run(loaded, state, outputs, 10)
    _run(loaded, clean, expected, 10)

    assert state.status.tolist() == [FAILED, RUNNING]
    assert not any(bool(output.is_speech[0]) for output in outputs[2:])
    assert torch.equal(_columns(outputs, 1), _columns(expected, 1))


def test_a_slot_that_failed_serves_the_next_request(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    state = _state(loaded, 1)
    state.cache.values.fill_(float("nan"))
    state.cache.keys.fill_(float("nan"))
    state.status.fill_(FAILED)

    outputs = [_start(loaded, state, 0, prompts["no_voice"])]
    _run(loaded, state, outputs, 19)

    assert state.status.tolist() == [FRAME_LIMIT]
    assert all(bool(output.is_speech[0]) for output in outputs)


def test_a_copied_prefix_gives_the_codes_of_a_whole_prefill(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    prompt, length = prompts["one_voice"], 60
    state = _state(loaded, 2)
    state.cache.keys[:, 1] = float("nan")  # what a failed request may have left
    state.status[1] = FAILED
    whole = [_start(loaded, state, 0, prompt)]
    keys, values = state.cache.read_prefix(0, length)

    state.assign(1, GREEDY, prompt_positions=prompt.shape[1])
    state.cache.write_prefix(1, keys, values)
    rest = SlotPrompt(1, prompt[:, length:], start=length)
    outputs = [prefill(loaded.model, state, [rest], NOISE)]
    _run(loaded, state, outputs, 19)

    assert torch.equal(_columns([whole[0], *outputs[1:]], 0), _columns(outputs, 1))


def test_attending_over_more_than_the_live_part_changes_no_code(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    live, fixed = _state(loaded, 1), _state(loaded, 1)
    a = [_start(loaded, live, 0, prompts["one_voice"])]
    b = [_start(loaded, fixed, 0, prompts["one_voice"])]

    _run(loaded, live, a, 15)
    for _ in range(15):
        b.append(step_tensors(loaded.model, fixed, NOISE, length=fixed.max_positions))

    assert torch.equal(_columns(a, 0), _columns(b, 0))


def test_a_step_asks_no_tensor_for_its_value(loaded: Loaded, prompts: dict[str, Tensor]) -> None:
    state = _state(loaded, 2)
    _start(loaded, state, 0, prompts["no_voice"])

    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        # A fake tensor has shapes and no values: reading one raises.
        fake: dict[str, Any] = {
            name: mode.from_tensor(value) if isinstance(value, Tensor) else value
            for name, value in vars(state).items()
        }
        output = step_tensors(loaded.model, DecodeState(**fake), None, length=128)

    assert output.columns.shape == state.columns.shape


@pytest.mark.parametrize(("room", "frames"), [(5, 5), (1, 1)])
def test_a_full_context_is_a_named_end(
    loaded: Loaded, prompts: dict[str, Tensor], room: int, frames: int
) -> None:
    prompt = prompts["one_voice"]
    state = _state(loaded, 1, max_positions=prompt.shape[1] + room)

    outputs = [_start(loaded, state, 0, prompt)]
    _run(loaded, state, outputs, 8)

    assert _columns(outputs, 0).shape[1] == frames
    assert state.status.tolist() == [CONTEXT_FULL]


def test_prompts_without_room_and_slots_longer_than_the_context_are_refused(
    loaded: Loaded,
) -> None:
    with pytest.raises(InvalidSpecError, match="no room"):
        _state(loaded, 1, max_positions=30).assign(0, GREEDY, prompt_positions=30)
    with pytest.raises(InvalidSpecError, match="4097"):
        _state(loaded, 1, max_positions=4097)


def test_the_end_token_stops_a_slot(loaded: Loaded, prompts: dict[str, Tensor]) -> None:
    state = _state(loaded, 1)
    long = Sampling(top_k=1, temperature=1.0, max_frames=64)

    outputs = [_start(loaded, state, 0, prompts["stops_early"], long)]
    _run(loaded, state, outputs, 40)

    assert state.status.tolist() == [ENDED]
    columns = _columns(outputs, 0)
    assert int(columns[0, -1]) == loaded.tokenizer.special.im_end
    assert sum(bool(output.is_speech[0]) for output in outputs) == columns.shape[1] - 1


def test_the_live_length_follows_the_longest_slot_in_steps(loaded: Loaded) -> None:
    state = _state(loaded, 2, max_positions=200)

    state.assign(0, GREEDY, prompt_positions=10)
    short = state.live_length()
    state.assign(1, GREEDY, prompt_positions=130)
    long = state.live_length()
    state.release(1)

    assert (short, long, state.live_length()) == (64, 192, 64)


def test_a_bucket_advances_its_slots_as_the_whole_state_does(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    whole, state = _state(loaded, 4), _state(loaded, 4)
    for one in (whole, state):
        for slot, name in enumerate(("no_voice", "one_voice")):
            _start(loaded, one, slot, prompts[name])

    for _ in range(10):
        decode_step(loaded.model, whole)
        decode_step(loaded.model, state.bucket(2))

    assert torch.equal(state.history[:2], whole.history[:2])
    assert state.host_positions == whole.host_positions
    assert state.position[2:].tolist() == [0, 0]


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


def test_the_history_holds_every_frame_that_was_made(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    state = _state(loaded, 2)
    before = {n: v.data_ptr() for n, v in vars(state).items() if isinstance(v, Tensor)}
    outputs = [_start(loaded, state, 1, prompts["no_voice"])]
    _run(loaded, state, outputs, 22)

    made = _columns(outputs, 1)
    assert int(state.frame[1]) == made.shape[1] == 20
    assert torch.equal(state.history[1, :20].T, made.to(torch.int32))
    state.release(1)
    # No tensor of a state is ever replaced.
    assert before == {n: v.data_ptr() for n, v in vars(state).items() if isinstance(v, Tensor)}


def test_a_state_has_the_noise_of_each_request_in_store(
    loaded: Loaded, prompts: dict[str, Tensor]
) -> None:
    sampled = Sampling(seed=11, max_frames=12)
    histories = []
    for noise in (NOISE, None):
        state = _state(loaded, 1)
        prompt = prompts["one_voice"]
        state.assign(0, sampled, prompt_positions=prompt.shape[1], noise_offset=3)
        prefill(loaded.model, state, [SlotPrompt(0, prompt)], noise)
        while bool(state.active.any()):
            decode_step(loaded.model, state, noise)
        histories.append(state.history[0, :12].clone())

    assert torch.equal(*histories)


def test_the_bytes_of_the_slots_are_those_of_its_tensors(loaded: Loaded) -> None:
    one, four = (_state(loaded, slots).num_bytes for slots in (1, 4))

    assert four == 4 * one
    assert one > loaded.model.config.text_config.n_layer * 2 * 256 * 2 * 32 * 4
