"""Test what synth.engine.model.decode_state knows on the host, and what it so need not copy."""

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
from tests.synth.engine.stand_in_graphs import Recorder

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


def test_each_number_of_all_slots_lies_in_one_piece_so_that_kernels_can_read_it(
    rows: SlotRows,
) -> None:
    tensors = rows.tensors()

    assert tensors.keys() == {*INTEGERS, *FLOATS}
    assert all(tensor.is_contiguous() and tensor.shape == (3,) for tensor in tensors.values())


def test_writing_sets_one_slot_and_names_not_given_to_0(rows: SlotRows) -> None:
    tensors = rows.tensors()
    for tensor in tensors.values():
        tensor.fill_(7)

    rows.write(1, {"seed": 2**62 + 1, "top_p": 0.9})

    assert tensors["seed"].tolist() == [7, 2**62 + 1, 7]
    assert torch.equal(tensors["top_p"], torch.tensor([7.0, 0.9, 7.0]))
    assert tensors["frame"].tolist() == tensors["temperature"].tolist() == [7, 0, 7]


def test_a_number_that_no_slot_has_is_refused(rows: SlotRows) -> None:
    with pytest.raises(ValueError, match="sede"):
        rows.write(0, {"sede": 1})


def test_moving_takes_all_numbers_of_a_slot_and_leaves_the_others(rows: SlotRows) -> None:
    rows.write(2, {"frame": 3, "position": 4, "temperature": 0.5})

    rows.move(2, 0)

    assert torch.equal(rows.integers[:, 0], rows.integers[:, 2])
    assert torch.equal(rows.floats[:, 0], rows.floats[:, 2])
    assert rows.tensors()["frame"].tolist() == [3, 0, 3]


def test_progress_is_the_status_and_the_frame_of_every_slot(rows: SlotRows) -> None:
    rows.write(1, {"status": 4, "frame": 17})

    assert rows.progress.tolist() == [[0, 4, 0], [0, 17, 0]]
    assert rows.progress.is_contiguous()
