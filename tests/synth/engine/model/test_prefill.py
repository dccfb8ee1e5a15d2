"""Test prefill: reused prefixes and packed prompts change nothing but the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lab.golden.models import Loaded
from synth.contract import Sampling
from synth.engine.errors import InvalidSpecError
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model.decode import decode_step
from synth.engine.model.decode_state import FAILED, RUNNING, DecodeState
from synth.engine.model.dual_ar import DualAR, SlowAR, Span
from synth.engine.model.prefill import (
    MAX_PACK_POSITIONS,
    KeptPrefix,
    PrefixCache,
    SlotStart,
    start_slots,
)
from tests.synth.engine.model.test_dual_ar import SHAPES
from tests.synth.engine.random_checkpoint import write_checkpoint

GREEDY = Sampling(top_k=1, temperature=1.0, max_frames=12)
SAMPLED = Sampling(seed=5, max_frames=12)
PLENTY = 10**9


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[Span]]:
    """The spans of every pass through the slow AR's prompts, while it computes as it does."""
    seen: list[list[Span]] = []
    compute = SlowAR.prefill

    def prefill(
        self: SlowAR, columns: Tensor, spans: Sequence[Span], *rest: Any, **more: Any
    ) -> Tensor:
        seen.append(list(spans))
        return compute(self, columns, spans, *rest, **more)

    monkeypatch.setattr(SlowAR, "prefill", prefill)
    return seen


def _columns(model: DualAR, positions: int, seed: int) -> Tensor:
    """Columns of speech with a text column here and there, int64 [1 + K, S]."""
    generator = torch.Generator().manual_seed(seed)
    size = model.slow.codebook_size
    codes = torch.randint(size, (model.slow.num_codebooks, positions), generator=generator)
    columns = torch.cat([codes[:1] + model.special.semantic_begin, codes])
    columns[:, ::3] = 0
    columns[0, ::3] = torch.randint(600, (columns[:, ::3].shape[1],), generator=generator)
    return columns


def _state(model: DualAR, slots: int, *, strict: bool = False, positions: int = 768) -> DecodeState:
    return DecodeState.allocate(model, num_slots=slots, max_positions=positions, strict=strict)


def _begin(
    model: DualAR,
    state: DecodeState,
    starts: Sequence[SlotStart],
    sampling: Sampling,
    prefixes: PrefixCache | None = None,
) -> None:
    for start in starts:
        state.assign(start.slot, sampling, prompt_positions=start.positions)
    start_slots(model, state, starts, prefixes)


def _whole(start: SlotStart) -> Tensor:
    assert start.prefix is not None
    return torch.cat([start.prefix, start.own], dim=1)


def _finish(model: DualAR, state: DecodeState, slots: Sequence[int]) -> list[Tensor]:
    """Decode to the end and return all frames of each slot."""
    while bool(state.active.any()):
        decode_step(model, state)
    return [state.history[slot, : state.frame[slot]].clone() for slot in slots]


def _alone(model: DualAR, prompt: Tensor, sampling: Sampling) -> Tensor:
    """Return the frames of a prompt that went through in one piece, in a slot of its own."""
    state = _state(model, 1)
    _begin(model, state, [SlotStart(0, prompt)], sampling)
    return _finish(model, state, [0])[0]


@pytest.fixture(params=["golden", *SHAPES])
def model(request: pytest.FixtureRequest, loaded: Loaded, tmp_path: Path) -> Iterator[DualAR]:
    if request.param == "golden":
        yield loaded.model
    else:
        write_checkpoint(tmp_path, text=SHAPES[request.param])
        yield load_dual_ar(tmp_path, dtype=torch.float32)[0]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "seeded"])
def test_reused_prefixes_give_the_codes_of_whole_prompts(model: DualAR, sampling: Sampling) -> None:
    voices = [_columns(model, 90, seed=1), _columns(model, 41, seed=2)]
    starts = [
        SlotStart(
            slot, _columns(model, 9 + 4 * slot, seed=10 + slot), voices[slot % 2], str(slot % 2)
        )
        for slot in (3, 0, 4, 1)
    ]
    state, prefixes = _state(model, 5), PrefixCache(PLENTY)

    _begin(model, state, starts[:2], sampling, prefixes)
    _begin(model, state, starts[2:], sampling, prefixes)
    found = _finish(model, state, [start.slot for start in starts])

    for start, frames in zip(starts, found, strict=True):
        assert torch.equal(frames, _alone(model, _whole(start), sampling))


def test_a_voice_of_600_positions_is_run_once_for_all_its_segments(
    loaded: Loaded, passes: list[list[Span]]
) -> None:
    model, voice = loaded.model, _columns(loaded.model, 600, seed=1)
    starts = [SlotStart(slot, _columns(model, 20, seed=slot), voice, "voice") for slot in range(6)]
    state, prefixes = _state(model, 4), PrefixCache(PLENTY)

    _begin(model, state, starts[:4], GREEDY, prefixes)
    for slot in range(4):
        state.release(slot)
    again = [replace(start, slot=start.slot - 4) for start in starts[4:]]
    _begin(model, state, again, GREEDY, prefixes)

    lengths = [[span.length for span in spans] for spans in passes]
    assert lengths == [[512], [88], [19] * 4, [19] * 2]
    assert (prefixes.misses, prefixes.hits) == (1, 2)


def test_a_prefix_too_large_to_keep_is_run_once_for_a_call(
    loaded: Loaded, passes: list[list[Span]]
) -> None:
    model, voice = loaded.model, _columns(loaded.model, 50, seed=1)
    starts = [SlotStart(slot, _columns(model, 8, seed=slot), voice, "voice") for slot in (0, 1)]
    state, prefixes = _state(model, 2), PrefixCache(100)
    _begin(model, state, starts, GREEDY, prefixes)
    found = _finish(model, state, [0, 1])
    assert [len(spans) for spans in passes] == [1, 2]
    assert len(prefixes) == 0
    for start, frames in zip(starts, found, strict=True):
        assert torch.equal(frames, _alone(model, _whole(start), GREEDY))


def test_passes_are_bounded_keep_their_order_and_leave_last_columns_to_the_step(
    loaded: Loaded, passes: list[list[Span]]
) -> None:
    model, most = loaded.model, MAX_PACK_POSITIONS
    lengths = [most // 2, most // 2, 2, 1, most + 30, 7, 8]
    starts = [SlotStart(slot, _columns(model, n, seed=slot)) for slot, n in enumerate(lengths)]
    state = _state(model, 7)
    _begin(model, state, starts, GREEDY)
    found = [[(span.slot, span.start, span.length) for span in spans] for spans in passes]
    assert found == [
        [(0, 0, most // 2 - 1), (1, 0, most // 2 - 1)],
        [(2, 0, 1)],
        [(4, 0, most)],
        [(4, most, 29), (5, 0, 6), (6, 0, 7)],
    ]
    assert state.position.tolist() == [length - 1 for length in lengths]
    assert bool(decode_step(model, state).made.all())


def test_starting_slots_leaves_the_running_ones_alone(loaded: Loaded) -> None:
    model = loaded.model
    first, second = (_columns(model, 30, seed=seed) for seed in (1, 2))
    state = _state(model, 3)
    _begin(model, state, [SlotStart(1, first)], SAMPLED)
    for _ in range(3):
        decode_step(model, state)
    tensors = {name: value for name, value in vars(state).items() if isinstance(value, Tensor)}
    before = {name: value[1].clone() for name, value in tensors.items()}

    _begin(model, state, [SlotStart(2, second)], GREEDY)

    assert all(torch.equal(before[name], value[1]) for name, value in tensors.items())
    assert torch.equal(_finish(model, state, [1])[0], _alone(model, first, SAMPLED))


def test_a_slot_assigned_and_not_started_makes_no_frame(loaded: Loaded) -> None:
    model, prompt = loaded.model, _columns(loaded.model, 30, seed=1)
    state = _state(model, 2)
    for slot in (0, 1):
        state.assign(slot, GREEDY, prompt_positions=30)
    start_slots(model, state, [SlotStart(0, prompt)])
    decode_step(model, state)
    assert state.frame.tolist() == [1, 0]
    assert state.active.tolist() == [True, False]


def test_a_prefix_forgotten_while_it_is_spoken_behind_changes_nothing(loaded: Loaded) -> None:
    model = loaded.model
    start = SlotStart(0, _columns(model, 12, seed=3), _columns(model, 40, seed=4), "voice")
    state, prefixes = _state(model, 1), PrefixCache(PLENTY)
    _begin(model, state, [start], SAMPLED, prefixes)
    kept = prefixes.get("voice")
    assert kept is not None

    prefixes.evict("voice")
    with torch.inference_mode():
        kept.keys.fill_(float("nan"))  # its memory is somebody else's now
        kept.values.fill_(float("nan"))
    found = _finish(model, state, [0])[0]

    assert torch.equal(found, _alone(model, _whole(start), SAMPLED))


def test_a_prefix_that_is_not_finite_fails_its_slots_and_is_not_kept(loaded: Loaded) -> None:
    model = loaded.model
    voice = _columns(model, 40, seed=4)
    starts = [
        SlotStart(0, _columns(model, 12, seed=3), voice, "poisoned"),
        SlotStart(1, _columns(model, 12, seed=3), _columns(model, 40, seed=5), "sound"),
    ]
    state, prefixes = _state(model, 2), PrefixCache(PLENTY)
    weight = model.slow.embeddings.weight
    token = int(voice[0, 0])
    assert token not in torch.cat([_whole(starts[1])[0], starts[0].own[0]])
    before = weight[token].clone()

    try:
        weight.data[token] = float("nan")
        _begin(model, state, starts, GREEDY, prefixes)
        decode_step(model, state)
    finally:
        weight.data[token] = before

    assert state.status.tolist() == [FAILED, RUNNING]
    assert ["poisoned" in prefixes, "sound" in prefixes] == [False, True]


def test_strict_slots_have_the_same_bits_alone_packed_and_cached(
    loaded: Loaded, passes: list[list[Span]]
) -> None:
    model, voice = loaded.model, _columns(loaded.model, 60, seed=1)
    owns = [_columns(model, 9 + 5 * slot, seed=20 + slot) for slot in range(3)]
    starts = [SlotStart(slot, own, voice, "voice") for slot, own in enumerate(owns)]
    together, prefixes = _state(model, 3, strict=True), PrefixCache(PLENTY)

    _begin(model, together, starts, SAMPLED, prefixes)
    assert [len(spans) for spans in passes] == [1, 1, 1, 1]
    decode_step(model, together)

    for start in starts:
        for kept in (None, prefixes):
            alone = _state(model, 3, strict=True)
            other = SlotStart(2 - start.slot, start.own, voice, "voice")
            _begin(model, alone, [other], SAMPLED, kept)
            decode_step(model, alone)
            end = int(alone.position[other.slot])
            for name in ("keys", "values"):
                found = getattr(alone.cache, name)[:, other.slot, :, :end]
                expected = getattr(together.cache, name)[:, start.slot, :, :end]
                assert torch.equal(found, expected)
            assert torch.equal(alone.columns[other.slot], together.columns[start.slot])


@pytest.mark.parametrize(
    ("own", "prefix", "name", "message"),
    [
        (0, 10, "v", "column of its own"),
        (11, 0, "v", "assigned 10 positions; its prompt has 11"),
        (4, 6, "", "needs a name"),  # another one without a name would be taken for it
    ],
)
def test_a_prompt_that_is_empty_nameless_or_not_the_assigned_one_is_refused(
    loaded: Loaded, own: int, prefix: int, name: str, message: str
) -> None:
    state = _state(loaded.model, 1)
    state.assign(0, GREEDY, prompt_positions=10)
    columns = _columns(loaded.model, 11, seed=1)
    with pytest.raises(InvalidSpecError, match=message):
        start_slots(
            loaded.model, state, [SlotStart(0, columns[:, :own], columns[:, :prefix], name)]
        )


ONE = 2 * 2 * 3 * 4 * 5 * 4  # bytes of the prefix below


def _filled(max_bytes: int, keys: str) -> PrefixCache:
    cache = PrefixCache(max_bytes)
    for key in keys:
        cache.put(key, KeptPrefix(torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4, 5)))
    return cache


@pytest.mark.parametrize(
    ("most", "keys", "kept"), [(0, "a", ""), (1, "a", "a"), (4, "aa", "a"), (3, "abcd", "bcd")]
)
def test_prefixes_are_kept_within_the_budget(most: int, keys: str, kept: str) -> None:
    cache = _filled(most * ONE, keys)
    assert [key for key in "abcd" if key in cache] == list(kept)
    assert (len(cache), cache.num_bytes) == (len(kept), len(kept) * ONE)
    assert [cache.get(key) is not None for key in "abcd"] == [key in kept for key in "abcd"]
    assert (cache.hits, cache.misses) == (len(kept), 4 - len(kept))


def test_the_least_recently_used_prefix_goes_first_and_none_for_one_above_the_budget() -> None:
    cache = _filled(3 * ONE, "abc")
    cache.get("a")
    cache.put("large", KeptPrefix(torch.ones(2, 3, 99, 5), torch.ones(2, 3, 99, 5)))
    assert [key in cache for key in (*"abc", "large")] == [True, True, True, False]
    cache.put("d", KeptPrefix(torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4, 5)))
    assert [key in cache for key in "abcd"] == [True, False, True, True]
    assert cache.num_bytes == 3 * ONE


def test_forgotten_prefixes_give_their_memory_back() -> None:
    cache = _filled(4 * ONE, "abc")
    for key in ("a", "c", "never kept"):
        cache.evict(key)
    assert (len(cache), cache.num_bytes) == (1, ONE)
    cache.clear()
    assert (len(cache), cache.num_bytes) == (0, 0)
