"""Test decode_state: the numbers of a slot, written and moved together."""

from __future__ import annotations

import pytest
import torch

from synth.engine.model.decode_state import FLOATS, INTEGERS, SlotRows

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
