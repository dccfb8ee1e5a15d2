"""Test streams: their audio is the segment's, comes early, and ends as the segment does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from synth.contract import FinishReason
from synth.engine import Engine
from synth.engine.codec.streams import ChunkSchedule
from synth.engine.errors import (
    DeadlineExceededError,
    DeviceOutOfMemoryError,
    InvalidSpecError,
    NonFiniteLogitsError,
    RenderCancelledError,
)
from synth.engine.model.decode_state import DecodeState
from synth.engine.slots.loop import OPENING_FRAMES
from synth.engine.slots.requests import LiveAudio
from tests.synth.engine.engine_runs import (
    HOP,
    Frames,
    Start,
    lengths,
    render,
    spec,
    voice,
    wait_until,
)

HEARD = spec("A text to be heard early.", voice(), max_frames=37)


@pytest.mark.parametrize(
    ("chunks", "sizes"),
    [
        (None, None),
        (ChunkSchedule(first=1, largest=1), [1] * 37),
        (ChunkSchedule(first=1, largest=8), [1, 2, 4, 8, 8, 8, 6]),
        (ChunkSchedule(first=4, largest=16), [4, 8, 16, 9]),
    ],
)
def test_the_chunks_together_are_the_segment(
    engine: Engine, chunks: ChunkSchedule | None, sizes: list[int] | None
) -> None:
    whole = engine.render(HEARD)

    stream = engine.stream(HEARD, chunks=chunks)
    heard = list(stream)

    audio = np.concatenate(heard)
    assert np.abs(audio - whole.audio).max() < 1e-4
    assert sizes is None or [len(chunk) // HOP for chunk in heard] == sizes
    assert np.array_equal(stream.result.codes, whole.codes)
    assert np.array_equal(stream.result.audio, audio)
    assert stream.result.finish_reason is FinishReason.FRAME_LIMIT
    assert stream.sample_rate == whole.sample_rate


def test_sound_comes_before_the_segment_has_ended(engine: Engine, held: Frames) -> None:
    held.after = lambda state: held.gate.clear() if held.count in (1, 3) else None
    stream = engine.stream(spec(max_frames=20), chunks=ChunkSchedule(first=1))
    held.gate.set()
    assert (len(next(stream)), held.count) == (HOP, 1)
    held.gate.set()
    assert (len(next(stream)), held.count) == (2 * HOP, 3)
    held.gate.set()
    assert sum(len(chunk) for chunk in stream) == 17 * HOP


def test_a_stream_that_begins_alone_is_joined_when_its_first_sound_is_made(
    start: Start, held: Frames
) -> None:
    engine = start(slots=4)
    first = engine.stream(spec("The first.", max_frames=20))
    others = [engine.submit(spec(f"Another, {n}.", max_frames=20)) for n in range(3)]

    held.gate.set()

    assert lengths(others) == [20] * 3
    assert sum(map(len, first)) == 20 * HOP
    assert held.sizes[:OPENING_FRAMES] == [1] * OPENING_FRAMES
    assert held.sizes[OPENING_FRAMES] == 4


def test_several_streams_and_segments_side_by_side_stay_what_they_are(engine: Engine) -> None:
    specs = [spec(f"Stream {n}.", voice(n), seed=n, max_frames=40 + n) for n in range(4)]
    others = [spec(f"Bulk {n}.", max_frames=70) for n in range(4)]
    alone = [engine.render(one).audio for one in [*specs, *others]]
    bulk = [engine.submit(one, priority=10) for one in others]
    heard = [np.concatenate(list(stream)) for stream in [engine.stream(one) for one in specs]]
    heard += [future.result(60).audio for future in bulk]
    assert all(np.abs(a - b).max() < 1e-4 for a, b in zip(alone, heard, strict=True))


def test_a_stream_that_is_closed_or_held_by_nobody_gives_its_slot_free(
    engine: Engine, frames: Frames
) -> None:
    with engine.stream(spec(max_frames=450)) as closed:
        next(closed)
    dropped = engine.stream(spec(max_frames=450))
    next(dropped)

    del dropped

    wait_until(lambda: engine.describe()["slots_in_use"] == 0 and not engine.is_busy)
    assert frames.count < 450
    assert list(closed) == []
    with pytest.raises(RenderCancelledError):
        _ = closed.result


def test_what_is_wrong_with_a_request_shows_at_once_and_a_deadline_ends_it(
    engine: Engine, held: Frames
) -> None:
    with pytest.raises(InvalidSpecError):
        engine.stream(spec(max_frames=0))
    stream = engine.stream(spec(max_frames=400), deadline_seconds=0.01)
    held.gate.wait(0.02)
    held.gate.set()
    with pytest.raises(DeadlineExceededError):
        list(stream)


def test_an_error_ends_the_sound(engine: Engine, frames: Frames) -> None:
    weight = engine._models.dual_ar.slow.norm.weight
    healthy, heard = weight.clone(), []
    frames.before = lambda state: weight.fill_(float("nan")) if frames.count == 9 else None
    stream = engine.stream(spec(max_frames=40), chunks=ChunkSchedule(first=2, largest=2))
    try:
        with pytest.raises(NonFiniteLogitsError):
            for chunk in stream:
                heard.append(len(chunk))
    finally:
        weight.copy_(healthy)

    assert heard == [2 * HOP] * len(heard)
    assert len(heard) <= 5
    with pytest.raises(NonFiniteLogitsError):
        _ = stream.result


def run_out_once(frames: Frames, then: Callable[[], object] = lambda: None) -> None:
    """Have memory run out in frame 20, once."""
    tries: list[None] = []

    def fail(state: DecodeState) -> None:
        tries.append(None)
        if len(tries) == 21:
            then()
            raise torch.OutOfMemoryError("no memory")

    frames.before = fail


def test_a_stream_goes_on_where_it_was_when_memory_ran_out(start: Start, held: Frames) -> None:
    engine = start(slots=4)
    held.gate.set()
    (whole,) = render(engine, [HEARD])
    held.gate.clear()
    run_out_once(held)
    neighbour, stream = engine.submit(spec(max_frames=60)), engine.stream(HEARD)
    held.gate.set()
    assert np.abs(np.concatenate(list(stream)) - whole.audio).max() < 1e-4
    assert lengths([neighbour]) == [60]


def test_a_stream_that_takes_another_course_ends_instead_of_jumping(
    start: Start, held: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=4)
    other = lambda self, codes: False  # noqa: E731
    run_out_once(held, lambda: monkeypatch.setattr(LiveAudio, "agrees_with", other))
    neighbour, stream = engine.submit(spec(max_frames=60)), engine.stream(spec(max_frames=40))
    held.gate.set()
    with pytest.raises(DeviceOutOfMemoryError, match="cannot be continued"):
        list(stream)
    assert lengths([neighbour]) == [60]


def test_a_stream_knows_what_it_has_handed_on() -> None:
    live = LiveAudio(ChunkSchedule(first=2, largest=4))
    codes = torch.arange(30).view(3, 10)
    assert live.agrees_with(codes)
    assert [live.next_chunk(n) for n in (0, 1, 2)] == [0, 0, 2]
    live.note_handed(codes[:, :2])
    assert [live.next_chunk(n) for n in (5, 6)] == [0, 4]
    live.note_handed(codes[:, 2:6])
    agrees = [live.agrees_with(one) for one in (codes, codes[:, :5], codes.flip(0))]
    assert agrees == [True, False, False]
