"""Test frame: frames in one call are those of the engine's own steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lab.golden.case import GoldenFolder
from synth.contract import Sampling
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model.decode import decode_step
from synth.engine.model.decode_state import FAILED, RUNNING, DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.linear import LinearForm
from synth.engine.model.prefill import PrefixCache, SlotStart, start_slots
from synth.engine.native.frame import NativeFrames
from synth.engine.native.library import Library
from tests.synth.engine.random_checkpoint import write_checkpoint

pytestmark = pytest.mark.compiler

CPU = torch.device("cpu")
CHANGED = ("columns", "window", "position", "frame", "active", "status", "history")
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.9, "top_p": 0.95, "top_k": 20},
    {"temperature": 1.7, "top_p": 1.0, "top_k": 64},
    {"top_k": 1},
    {"temperature": 0.3, "top_p": 0.05, "top_k": 30},
    {"temperature": 1e-6, "top_k": 24},
]


def model_of(folder: Path, form: LinearForm, dtype: torch.dtype = torch.float32) -> DualAR:
    model, _ = load_dual_ar(folder, device=CPU, dtype=dtype, form=form)
    return model


def plain_and_native(folder: Path) -> tuple[DualAR, DualAR]:
    return model_of(folder, LinearForm.PLAIN), model_of(folder, LinearForm.NATIVE)


def native_model(folder: Path, form: str) -> DualAR:
    """Return a model of compiled frames in float32, bfloat16 or int8."""
    native = LinearForm.NATIVE_INT8 if form == "int8" else LinearForm.NATIVE
    return model_of(folder, native, torch.bfloat16 if form == "bfloat16" else torch.float32)


def begun(model: DualAR, slots: int, *, longest: int = 60) -> DecodeState:
    """Return running slots behind made-up prompts of different lengths and their first frames."""
    state = DecodeState.allocate(model, num_slots=slots, max_positions=256)
    size, special = model.fast.codebook_size, model.special
    for slot in range(slots):
        generator = torch.Generator().manual_seed(slot)
        shape = (1 + model.slow.num_codebooks, 3 + (slot * 17) % longest)
        prompt = torch.randint(size, shape, generator=generator)
        prompt[0] = prompt[1] + special.semantic_begin
        prompt[:, ::3] = 0
        prompt[0, ::3] = 65 + slot
        values: dict[str, Any] = {"seed": slot, "max_frames": 40, **SAMPLINGS[slot % 5]}
        state.assign(slot, Sampling(**values), prompt_positions=shape[1])
        start_slots(model, state, [SlotStart(slot, prompt)])
    decode_step(model, state)
    return state


def assert_equal_states(found: DecodeState, expected: DecodeState) -> None:
    for name in CHANGED:
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


CHECKPOINTS: dict[str, dict[str, Any]] = {
    "golden": {},
    "odd-sizes": {},
    "projected": {"audio": {"dim": 32, "intermediate_size": 24}},
    "biased": {"text": {"attention_qkv_bias": True, "attention_o_bias": True}},
    "plain-heads": {"text": {"attention_qk_norm": False}},
    "normed-fast-heads": {"audio": {"attention_qk_norm": True}},
    "many-key-heads": {"text": {"n_head": 6, "n_local_heads": 3, "head_dim": 24}},
}


@pytest.fixture(params=CHECKPOINTS)
def checkpoint(request: pytest.FixtureRequest, golden: GoldenFolder, tmp_path: Path) -> Path:
    if request.param == "golden":
        return golden.checkpoint
    write_checkpoint(tmp_path, **CHECKPOINTS[request.param])
    return tmp_path


def test_frames_are_those_of_the_engine(library: Library, checkpoint: Path) -> None:
    plain, native = plain_and_native(checkpoint)
    assert native.native is not None
    assert native.native.library is library
    expected, found = begun(plain, 7), begun(native, 7)
    expected.active[1] = found.active[1] = False
    assert_equal_states(found, expected)

    for _ in range(25):
        one, other = decode_step(native, found), decode_step(plain, expected)
        for name in ("columns", "made", "is_speech", "first_draw", "second_draw"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert_equal_states(found, expected)
    live = int(found.position.min())
    for name in ("keys", "values"):
        a, b = (getattr(state.cache, name)[:, :, :, :live] for state in (found, expected))
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_a_repeated_token_is_replaced_as_the_engine_does(
    library: Library, golden: GoldenFolder
) -> None:
    plain, native = plain_and_native(golden.checkpoint)
    expected, found = begun(plain, 20), begun(native, 20)
    said = decode_step(plain, begun(plain, 20)).first_draw
    for state in (expected, found):
        state.window[:, 3] = said

    one, other = decode_step(native, found), decode_step(plain, expected)

    assert torch.equal(one.columns, other.columns)
    replaced = one.columns[:, 0] != one.first_draw
    assert bool(replaced.any())
    assert torch.equal(one.columns[replaced, 0], one.second_draw[replaced])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_hidden_states_are_as_near_to_float32_as_those_of_pytorch(
    library: Library, golden: GoldenFolder, dtype: torch.dtype
) -> None:
    exact = hidden_states(model_of(golden.checkpoint, LinearForm.PLAIN))
    own = hidden_states(model_of(golden.checkpoint, LinearForm.PLAIN, dtype))
    found = hidden_states(model_of(golden.checkpoint, LinearForm.NATIVE, dtype))
    error, usual = (float((each - exact).norm() / exact.norm()) for each in (found, own))
    assert error <= max(1.2 * usual, 1e-5)


@torch.inference_mode()
def hidden_states(model: DualAR) -> Tensor:
    """Return the states behind the first frames of some slots, [B, D]."""
    state = begun(model, 6)
    state.columns[:, 0] = model.special.semantic_begin + 5  # formats draw different first frames
    state.columns[:, 1:] = 5
    if model.native is not None:
        decode_step(model, state)
        return model.native.states(state).clone()
    length = state.live_length()
    return model.slow.step(state.columns, state.position, state.cache, length=length).float()


@pytest.mark.parametrize("form", ["float32", "bfloat16", "int8"])
def test_a_slot_has_the_same_bits_alone_and_among_others(
    library: Library, golden: GoldenFolder, form: str
) -> None:
    model = native_model(golden.checkpoint, form)
    many, alone = begun(model, 9), begun(model, 1)
    states = model.native
    assert isinstance(states, NativeFrames)

    for _ in range(6):
        decode_step(model, many)
        decode_step(model, alone)
        assert torch.equal(states.states(many)[0], states.states(alone)[0])
    assert torch.equal(many.columns[0], alone.columns[0])
    end = int(alone.position[0])
    assert torch.equal(many.cache.keys[:, 0, :, :end], alone.cache.keys[:, 0, :, :end])


def test_any_number_of_threads_gives_the_same_bits(library: Library, golden: GoldenFolder) -> None:
    model = model_of(golden.checkpoint, LinearForm.NATIVE)
    counts, before = (1, 2, 3, 8), torch.get_num_threads()
    one, *others = states = [begun(model, 5) for _ in counts]
    for _ in range(10):
        for count, state in zip(counts, states, strict=True):
            torch.set_num_threads(count)
            decode_step(model, state)
    torch.set_num_threads(before)
    for many in others:
        assert_equal_states(many, one)
        assert torch.equal(many.cache.keys, one.cache.keys)


def test_a_part_of_the_slots_is_computed_and_a_poisoned_one_fails_alone(
    library: Library, golden: GoldenFolder
) -> None:
    model = model_of(golden.checkpoint, LinearForm.NATIVE)
    whole, part = begun(model, 6), begun(model, 6)
    decode_step(model, whole)
    decode_step(model, part.bucket(2))  # fewer slots of a state over the same memory
    assert torch.equal(part.columns[:2], whole.columns[:2])
    assert part.frame.tolist() == [2, 2, 1, 1, 1, 1]

    state, sound = begun(model, 5), begun(model, 5)
    state.cache.values[:, 1, :, 0] = float("nan")

    made, expected = decode_step(model, state), decode_step(model, sound)

    assert state.status.tolist() == [RUNNING, FAILED, RUNNING, RUNNING, RUNNING]
    assert made.is_speech.tolist() == [True, False, True, True, True]
    kept = [0, 2, 3, 4]
    assert torch.equal(made.columns[kept], expected.columns[kept])


def test_a_long_stream_attends_to_all_of_it(library: Library, golden: GoldenFolder) -> None:
    plain, native = plain_and_native(golden.checkpoint)
    expected, found = (begun(model, 3, longest=200) for model in (plain, native))
    for _ in range(12):
        decode_step(native, found)
        decode_step(plain, expected)
    assert torch.equal(found.history, expected.history)


def behind_prefix(model: DualAR, state: DecodeState, slots: dict[int, str]) -> None:
    """Start streams, each behind one of two voices' prefixes, which are kept."""
    special, size = model.special, model.fast.codebook_size
    starts, kept = [], PrefixCache(10**8)
    for slot, voice in slots.items():
        own, prefix = (
            torch.randint(size, (1 + model.slow.num_codebooks, length), generator=generator)
            for seed, length in ((slot, 3 + slot), (sum(map(ord, voice)), 41))
            for generator in [torch.Generator().manual_seed(seed)]
        )
        for columns in (own, prefix):
            columns[0] = columns[1] + special.semantic_begin
        sampling = Sampling(seed=slot, max_frames=40)
        state.assign(slot, sampling, prompt_positions=44 + slot)
        starts.append(SlotStart(slot, own, prefix, voice))
    start_slots(model, state, starts, kept)


@pytest.mark.parametrize("form", ["float32", "bfloat16", "int8"])
def test_streams_behind_one_prefix_read_one_copy_of_it_and_get_the_same_bits(
    library: Library, golden: GoldenFolder, form: str
) -> None:
    model = native_model(golden.checkpoint, form)
    voices = {0: "a", 1: "b", 2: "a", 3: "a", 5: "b"}
    states = [DecodeState.allocate(model, num_slots=6, max_positions=256) for _ in range(2)]
    for state in states:
        behind_prefix(model, state, voices)
    sharing, apart = states
    apart.prefix.zero_()
    for copies in (sharing.cache.keys, sharing.cache.values):
        copies[:, [2, 3, 5], :, :41] = float("nan")  # nobody reads these

    for _ in range(12):
        made, expected = decode_step(model, sharing), decode_step(model, apart)
        assert torch.equal(made.columns, expected.columns)

    assert made.is_speech.tolist() == [slot in voices for slot in range(6)]
    assert_equal_states(sharing, apart)
    assert torch.equal(sharing.cache.keys[:, :, :, 41:60], apart.cache.keys[:, :, :, 41:60])


def test_streams_share_no_more_once_the_slot_they_read_has_other_content(
    library: Library, golden: GoldenFolder
) -> None:
    model = model_of(golden.checkpoint, LinearForm.NATIVE)
    voices = {0: "a", 1: "a", 2: "a", 3: "a"}
    sharing, alone = (DecodeState.allocate(model, num_slots=5, max_positions=256) for _ in range(2))
    behind_prefix(model, sharing, voices)
    behind_prefix(model, alone, {3: "a"})

    def step() -> None:
        made, expected = decode_step(model, sharing), decode_step(model, alone)
        assert torch.equal(made.columns[3], expected.columns[3])
        assert bool(made.is_speech[3])

    step()
    sharing.release(0)
    step()  # a free slot takes part, and writes its first position
    sharing.assign(0, Sampling(seed=9, max_frames=40), prompt_positions=50)
    prompt = torch.zeros(1 + model.slow.num_codebooks, 50, dtype=torch.int64)
    start_slots(model, sharing, [SlotStart(0, prompt)])
    step()
    sharing.release(1)
    sharing.move(2, 1)
    behind_prefix(model, sharing, {2: "b"})
    assert sharing.prefix[1] == sharing.prefix[3] != sharing.prefix[2]
    for _ in range(5):
        step()
