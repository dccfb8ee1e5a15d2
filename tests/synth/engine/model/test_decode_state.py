"""Test decode_state: what is known on the host, and what need not be copied."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lab.golden.models import Loaded
from synth.contract import Sampling
from synth.engine.model.decode_state import (
    FAILED,
    FLOATS,
    FRAME_LIMIT,
    INTEGERS,
    DecodeState,
    SlotRows,
)
from tests.synth.engine.model.stand_in_graphs import Recorder, launches

CPU = torch.device("cpu")


@pytest.fixture
def state(loaded: Loaded) -> DecodeState:
    return DecodeState.allocate(loaded.model, num_slots=2, max_positions=64)


def assign(state: DecodeState, slot: int, max_frames: int = 5) -> None:
    state.assign(slot, Sampling(seed=3, max_frames=max_frames), prompt_positions=10)


@pytest.mark.parametrize(
    ("status", "seen", "wiped"),
    [
        (FAILED, [None], True),  # nobody looked: the device is asked
        (FRAME_LIMIT, [None], False),
        (FRAME_LIMIT, [True], True),  # somebody looked: it is not
        (FAILED, [False], False),
        (FAILED, [False, None], True),  # what was seen of one request says nothing of the next
    ],
)
def test_a_slot_is_wiped_where_its_last_request_was_seen_to_fail_or_may_have(
    state: DecodeState, status: int, seen: list[bool | None], wiped: bool
) -> None:
    for failed in seen:
        assign(state, 0)
        state.cache.keys[:, 0] = 1.0
        state.status[0] = status
        state.release(0, failed=failed)
    assign(state, 0)
    assert bool((state.cache.keys[:, 0] == 0).all()) is wiped


def test_a_slot_known_to_be_clean_is_given_away_without_waiting_for_the_device(
    state: DecodeState,
) -> None:
    assign(state, 0)

    with Recorder() as recorder:
        state.release(0, failed=False)
        assign(state, 0)

    names = [str(one.function) for one in recorder.operations]
    assert "aten._local_scalar_dense.default" not in names  # no value is asked for
    # Nor is a single number set by its index, which torch copies and waits for.
    assert "aten.copy_.default" not in names
    assert state.host_failed[0] is None


def test_slots_that_begin_get_all_their_numbers_at_once_and_others_keep_theirs(
    loaded: Loaded,
) -> None:
    state = DecodeState.allocate(loaded.model, num_slots=4, max_positions=64)
    state.columns.fill_(9)
    state.window.fill_(9)
    columns = torch.arange(2 * state.columns.shape[1]).view(2, -1)
    for slot in (3, 1):
        sampling = Sampling(seed=2**40 + slot, temperature=0.5, max_frames=slot)
        state.assign(slot, sampling, prompt_positions=10 + slot)
    state.note_prefix(3, 77, 4)
    assert not state.active.any()

    with Recorder() as recorder:
        state.begin([3, 1], columns)

    assert state.active.tolist() == [False, True, False, True]
    assert state.position.tolist() == [0, 10, 0, 12]
    assert state.frame_limit.tolist() == [0, 1, 0, 3]
    assert state.seed.tolist() == [0, 2**40 + 1, 0, 2**40 + 3]
    assert state.temperature.tolist() == [1.0, 0.5, 1.0, 0.5]
    assert state.prefix.tolist() == [0, 0, 0, 77]
    assert torch.equal(state.columns[[3, 1]], columns)
    assert state.window.sum(1).tolist() == [90, 0, 90, 0]
    assert bool((state.columns[[0, 2]] == 9).all())
    assert len(launches(recorder)) <= 12


def test_a_move_copies_the_frames_that_may_be_made_and_no_others(state: DecodeState) -> None:
    assign(state, 1, max_frames=5)
    state.history[1] = 7
    state.columns[1], state.window[1] = 8, 9
    state.frame[1], state.position[1], state.active[1] = 4, 13, True
    before = {
        name: value[1].clone() for name, value in vars(state).items() if isinstance(value, Tensor)
    }

    state.move(1, 0)

    for name, value in before.items():
        live = slice(0, 5) if name == "history" else ...
        assert torch.equal(getattr(state, name)[0][live], value[live]), name
    assert not state.history[0, 5:].any()
    assert (state.host_positions, state.host_limits) == ([10, 0], [5, 5])
    assert not bool(state.active[1])


@pytest.fixture
def rows() -> SlotRows:
    return SlotRows.allocate(3, CPU)


def test_numbers_are_written_and_moved_slot_by_slot(rows: SlotRows) -> None:
    tensors = rows.tensors()
    assert tensors.keys() == {*INTEGERS, *FLOATS}
    # Each number of all slots lies in one piece, so that kernels can read it.
    assert all(tensor.is_contiguous() and tensor.shape == (3,) for tensor in tensors.values())
    for tensor in tensors.values():
        tensor.fill_(7)

    rows.write(torch.tensor([1]), [{"seed": 2**62 + 1, "top_p": 0.9}])

    assert tensors["seed"].tolist() == [7, 2**62 + 1, 7]
    assert torch.equal(tensors["top_p"], torch.tensor([7.0, 0.9, 7.0]))
    assert tensors["frame"].tolist() == tensors["temperature"].tolist() == [7, 0, 7]
    with pytest.raises(ValueError, match="sede"):
        rows.write(torch.tensor([0]), [{"sede": 1}])

    rows = SlotRows.allocate(3, CPU)  # a move takes all numbers of a slot and leaves the others
    moving = {"frame": 3, "position": 4, "temperature": 0.5}
    rows.write(torch.tensor([2, 1]), [moving, {"status": 4, "frame": 17}])

    rows.move(2, 0)

    assert torch.equal(rows.integers[:, 0], rows.integers[:, 2])
    assert torch.equal(rows.floats[:, 0], rows.floats[:, 2])
    assert rows.progress.tolist() == [[0, 4, 0], [3, 17, 3]]  # status, frame
    assert rows.progress.is_contiguous()
