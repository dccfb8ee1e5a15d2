"""Test decode_state and kv_cache: what is known on the host, and what need not be copied."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lab.golden.models import Loaded
from synth.contract import Sampling
from synth.engine.model.config import TransformerConfig
from synth.engine.model.decode_state import (
    FAILED,
    FLOATS,
    FRAME_LIMIT,
    INTEGERS,
    DecodeState,
    SlotRows,
)
from synth.engine.model.kv_cache import FrameCache, KVCache
from tests.synth.engine.model.stand_in_graphs import Recorder

NAN = float("nan")


@pytest.fixture
def state(loaded: Loaded) -> DecodeState:
    return DecodeState.allocate(loaded.model, num_slots=2, max_positions=64)


def assign(state: DecodeState, slot: int, max_frames: int = 5) -> None:
    state.assign(slot, Sampling(seed=3, max_frames=max_frames), prompt_positions=10)


def is_wiped(state: DecodeState, slot: int) -> bool:
    return bool((state.cache.keys[:, slot] == 0).all())


@pytest.mark.parametrize(
    ("status", "failed", "wiped"),
    [
        (FAILED, None, True),  # nobody looked: the device is asked
        (FRAME_LIMIT, None, False),
        (FRAME_LIMIT, True, True),  # somebody looked: it is not
        (FAILED, False, False),
    ],
)
def test_a_slot_is_wiped_where_its_last_request_was_seen_to_fail_or_may_have(
    state: DecodeState, status: int, failed: bool | None, wiped: bool
) -> None:
    assign(state, 0)
    state.cache.keys[:, 0] = 1.0
    state.status[0] = status
    state.release(0, failed=failed)

    assign(state, 0)

    assert is_wiped(state, 0) is wiped


def test_what_was_seen_of_one_request_says_nothing_of_the_next(state: DecodeState) -> None:
    assign(state, 0)
    state.release(0, failed=False)
    assign(state, 0)
    state.cache.keys[:, 0] = NAN
    state.status[0] = FAILED
    state.release(0)
    assign(state, 0)

    assert is_wiped(state, 0)


def test_a_slot_known_to_be_clean_is_given_away_without_waiting_for_the_device(
    state: DecodeState,
) -> None:
    assign(state, 0)

    with Recorder() as recorder:
        state.release(0, failed=False)
        assign(state, 0)

    names = [str(one.function) for one in recorder.operations]
    assert "aten._local_scalar_dense.default" not in names  # no value is asked for
    copies = [one for one in recorder.operations if str(one.function) == "aten.copy_.default"]
    # Nor is a single number set by its index, which torch copies and waits for.
    assert [one.args[1].dim() for one in copies] == [3, 1, 1]
    assert state.host_failed[0] is None


def test_a_move_copies_the_frames_that_may_be_made_and_no_others(state: DecodeState) -> None:
    assign(state, 1, max_frames=5)
    state.history[1] = 7
    state.words[1, :5] += 1
    state.columns[1], state.window[1] = 8, 9
    state.frame[1], state.position[1], state.active[1] = 4, 13, True
    before = {
        name: value[1].clone() for name, value in vars(state).items() if isinstance(value, Tensor)
    }

    state.move(1, 0)

    for name, value in before.items():
        live = slice(0, 5) if name in ("history", "words") else ...
        assert torch.equal(getattr(state, name)[0][live], value[live]), name
    assert not state.history[0, 5:].any()
    assert (state.host_positions, state.host_limits) == ([10, 0], [5, 5])
    assert not bool(state.active[1])


CPU = torch.device("cpu")


@pytest.fixture
def rows() -> SlotRows:
    return SlotRows.allocate(3, CPU)


def test_writing_sets_one_slot_and_names_not_given_to_0(rows: SlotRows) -> None:
    tensors = rows.tensors()
    assert tensors.keys() == {*INTEGERS, *FLOATS}
    # Each number of all slots lies in one piece, so that kernels can read it.
    assert all(tensor.is_contiguous() and tensor.shape == (3,) for tensor in tensors.values())
    for tensor in tensors.values():
        tensor.fill_(7)

    rows.write(1, {"seed": 2**62 + 1, "top_p": 0.9})

    assert tensors["seed"].tolist() == [7, 2**62 + 1, 7]
    assert torch.equal(tensors["top_p"], torch.tensor([7.0, 0.9, 7.0]))
    assert tensors["frame"].tolist() == tensors["temperature"].tolist() == [7, 0, 7]
    with pytest.raises(ValueError, match="sede"):
        rows.write(0, {"sede": 1})


def test_moving_takes_all_numbers_of_a_slot_and_leaves_the_others(rows: SlotRows) -> None:
    rows.write(1, {"status": 4, "frame": 17})
    rows.write(2, {"frame": 3, "position": 4, "temperature": 0.5})

    rows.move(2, 0)

    assert torch.equal(rows.integers[:, 0], rows.integers[:, 2])
    assert torch.equal(rows.floats[:, 0], rows.floats[:, 2])
    assert rows.progress.tolist() == [[0, 4, 0], [3, 17, 3]]  # status, frame
    assert rows.progress.is_contiguous()


CONFIG = TransformerConfig(1, 16, 2, 4, 2, 8, 24, False, False, False)


@pytest.fixture
def cache() -> KVCache:
    return KVCache.allocate(CONFIG, num_slots=3, num_positions=6, device=CPU, dtype=torch.float32)


def test_a_step_writes_each_stream_at_its_own_position(cache: KVCache) -> None:
    k, v = torch.randn(2, 3, 2, 8)

    cache.write_step(1, cache.rows(torch.tensor([0, 5, 2])), k, v)

    for slot, position in enumerate((0, 5, 2)):
        assert torch.equal(cache.keys[1, slot, :, position], k[slot])
        assert torch.equal(cache.values[1, slot, :, position], v[slot])
    assert int((cache.keys != 0).sum()) == k.numel()


def test_a_prefix_read_from_one_slot_and_written_to_another_is_the_same(cache: KVCache) -> None:
    k, v = torch.randn(2, 4, 2, 8)
    for layer in range(2):
        cache.write_prompt(layer, 0, 0, k, v)

    cache.write_prefix(2, *cache.read_prefix(0, 4))

    assert torch.equal(cache.keys[:, 2], cache.keys[:, 0])
    assert torch.equal(cache.values[:, 2], cache.values[:, 0])
    keys, _ = cache.read_prefix(1, 2)
    cache.keys.fill_(1.0)
    assert int(keys.count_nonzero()) == 0  # what was read does not change with the cache


def test_wiping_a_slot_leaves_its_neighbours(cache: KVCache) -> None:
    cache.keys.fill_(float("nan"))
    cache.values.fill_(float("nan"))

    cache.wipe(1)

    for tensor in (cache.keys, cache.values):
        assert tensor[:, 1].isfinite().all()
        assert tensor[:, [0, 2]].isnan().all()
    assert cache.num_bytes == 2 * 2 * 3 * 2 * 6 * 8 * 4


def _cache() -> FrameCache:
    return FrameCache.allocate(
        CONFIG, num_slots=3, num_positions=5, device=CPU, dtype=torch.float32
    )


def test_what_is_written_at_a_place_is_read_there_and_behind_it() -> None:
    cache = _cache()
    k, v = torch.randn(2, 3, 2, 8)

    cache.places[2][1].key.copy_(k)
    cache.places[2][1].value.copy_(v)

    later = cache.places[4][1]
    assert torch.equal(later.keys.view(3, 2, 8, 5)[..., 2], k)
    assert torch.equal(later.values.view(3, 2, 5, 8)[:, :, 2], v)
    assert cache.places[1][1].keys.shape == (6, 8, 2)
    assert int(cache.keys.count_nonzero()) == k.numel()


def test_the_first_streams_share_the_memory() -> None:
    cache = _cache()

    cache.first(2).places[0][0].key.fill_(1.0)

    assert (cache.keys[0, :2, :, 0] == 1).all()
    assert int(cache.keys.count_nonzero()) == 2 * 2 * 8
    assert cache.num_bytes == 2 * 2 * 3 * 2 * 5 * 8 * 4
