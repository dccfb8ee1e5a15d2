"""Test in which chunks a stream is decoded."""

from __future__ import annotations

from itertools import islice

import pytest

from synth.engine.codec.streams.chunk_schedule import ChunkSchedule
from synth.engine.errors import InvalidSpecError


def test_chunks_double_from_the_first_to_the_largest() -> None:
    assert list(islice(ChunkSchedule().sizes(), 6)) == [4, 8, 16, 32, 32, 32]
    assert list(islice(ChunkSchedule(first=1, largest=10).sizes(), 6)) == [1, 2, 4, 8, 10, 10]
    assert list(islice(ChunkSchedule(first=3, largest=3).sizes(), 3)) == [3, 3, 3]


@pytest.mark.parametrize("num_frames", [0, 1, 4, 5, 12, 100])
def test_split_covers_every_frame_once_and_only_its_last_chunk_is_cut(num_frames: int) -> None:
    sizes = list(ChunkSchedule().split(num_frames))

    assert sum(sizes) == num_frames
    whole = list(islice(ChunkSchedule().sizes(), len(sizes)))
    assert sizes[:-1] == whole[:-1]
    assert all(0 < size <= limit for size, limit in zip(sizes, whole, strict=True))


@pytest.mark.parametrize(
    ("first", "largest", "words"),
    [
        (0, 32, "1 to 4 frames, not 0"),
        (5, 32, "1 to 4 frames, not 5"),
        (4, 3, "4 .* to 256 frames, not 3"),
        (1, 257, "not 257"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(first: int, largest: int, words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        ChunkSchedule(first=first, largest=largest)


@pytest.mark.parametrize(
    ("first", "largest", "sizes"),
    [(1, 32, (1, 2, 4, 8, 16, 32)), (3, 10, (3, 6, 10)), (4, 4, (4,)), (2, 5, (2, 4, 5))],
)
def test_distinct_sizes_are_those_that_chunks_have(
    first: int, largest: int, sizes: tuple[int, ...]
) -> None:
    schedule = ChunkSchedule(first=first, largest=largest)

    assert schedule.distinct_sizes() == sizes
    assert set(schedule.split(sum(sizes) + 3 * largest)) == set(sizes)
