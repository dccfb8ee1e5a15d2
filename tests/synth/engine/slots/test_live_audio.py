"""Test streams: their audio is the segment's, comes early, and ends as the segment does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
from synth.engine.slots.requests import LiveAudio
from tests.synth.engine.engine_runs import CONFIG, spec, voice, wait_until, watch_frames

HOP = 2048


def load() -> Iterator[Engine]:
    loaded = Engine.load(replace(CONFIG, slots=4))
    yield loaded
    loaded.close()


engine = pytest.fixture(load, scope="module", name="engine")
# For one test alone: after memory ran out it uses fewer slots for a while.
own_engine = pytest.fixture(load, name="own_engine")


@pytest.mark.parametrize(
    "chunks", [None, ChunkSchedule(first=1, largest=1), ChunkSchedule(first=4, largest=16)]
)
def test_the_chunks_together_are_the_segment(engine: Engine, chunks: ChunkSchedule | None) -> None:
    request = spec("A text to be heard early.", voice(), max_frames=37)
    whole = engine.render(request)

    stream = engine.stream(request, chunks=chunks)
    audio = np.concatenate(list(stream))

    assert np.abs(audio - whole.audio).max() < 1e-4
    assert np.array_equal(stream.result.codes, whole.codes)
    assert np.array_equal(stream.result.audio, audio)
    assert stream.result.finish_reason is FinishReason.FRAME_LIMIT
    assert stream.sample_rate == whole.sample_rate


def test_chunks_begin_small_and_grow(engine: Engine) -> None:
    chunks = ChunkSchedule(first=1, largest=8)

    sizes = [len(chunk) // HOP for chunk in engine.stream(spec(max_frames=30), chunks=chunks)]

    assert sizes == [1, 2, 4, 8, 8, 7]


def test_sound_comes_before_the_segment_has_ended(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = watch_frames(monkeypatch, is_open=False)
    frames.after = lambda state: frames.gate.clear() if frames.count == 2 else None

    stream = engine.stream(spec(max_frames=20), chunks=ChunkSchedule(first=1))
    first = next(stream)  # its frame comes with the prompt

    assert len(first) == HOP
    assert frames.count == 0
    frames.gate.set()
    assert len(next(stream)) == 2 * HOP
    assert frames.count == 2
    frames.gate.set()
    assert sum(len(chunk) for chunk in stream) == 17 * HOP


def test_several_streams_and_segments_side_by_side_stay_what_they_are(engine: Engine) -> None:
    specs = [spec(f"Stream {n}.", voice(n), seed=n, max_frames=40 + n) for n in range(4)]
    alone = [engine.render(one).audio for one in specs]

    bulk = [engine.submit(spec(f"Bulk {n}.", max_frames=70), priority=10) for n in range(4)]
    streams = [engine.stream(one) for one in specs]
    heard = [np.concatenate(list(stream)) for stream in streams]

    assert all(np.abs(a - b).max() < 1e-4 for a, b in zip(alone, heard, strict=True))
    again = [engine.render(spec(f"Bulk {n}.", max_frames=70)) for n in range(4)]
    for future, take in zip(bulk, again, strict=True):
        assert np.abs(future.result(60).audio - take.audio).max() < 1e-4


def test_a_stream_that_is_closed_or_held_by_nobody_gives_its_slot_free(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = watch_frames(monkeypatch)
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


def test_what_is_wrong_with_a_request_shows_at_once(engine: Engine) -> None:
    with pytest.raises(InvalidSpecError):
        engine.stream(spec(max_frames=0))


def test_an_error_ends_the_sound(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = watch_frames(monkeypatch)
    weight = engine._models.dual_ar.slow.norm.weight
    healthy = weight.clone()

    def poison(state: DecodeState) -> None:
        if frames.count == 9:
            weight.fill_(float("nan"))

    frames.before = poison
    chunks = ChunkSchedule(first=2, largest=2)
    stream = engine.stream(spec(max_frames=40), chunks=chunks)
    heard = []
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


def test_a_stream_has_its_deadline(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = watch_frames(monkeypatch, is_open=False)
    stream = engine.stream(spec(max_frames=400), deadline_seconds=0.01)
    frames.gate.wait(0.02)

    frames.gate.set()

    with pytest.raises(DeadlineExceededError):
        list(stream)


def run_out_at(frames: int) -> Iterator[bool]:
    yield from (count == frames for count in range(10**6))


def test_a_stream_goes_on_where_it_was_when_memory_ran_out(
    own_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = spec("A text to be heard early.", voice(), max_frames=30)
    whole = own_engine.render(request)
    frames, tries = watch_frames(monkeypatch, is_open=False), run_out_at(20)

    def fail(state: DecodeState) -> None:
        if next(tries):
            raise torch.OutOfMemoryError("no memory")

    frames.before = fail
    neighbour = own_engine.submit(spec(max_frames=60))
    stream = own_engine.stream(request)
    frames.gate.set()

    audio = np.concatenate(list(stream))

    assert np.abs(audio - whole.audio).max() < 1e-4
    assert neighbour.result(60).codes.shape[1] == 60


def test_a_stream_that_takes_another_course_ends_instead_of_jumping(
    own_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, tries = watch_frames(monkeypatch, is_open=False), run_out_at(20)

    def fail(state: DecodeState) -> None:
        if next(tries):
            monkeypatch.setattr(LiveAudio, "agrees_with", lambda self, codes: False)
            raise torch.OutOfMemoryError("no memory")

    frames.before = fail
    neighbour = own_engine.submit(spec(max_frames=60))
    stream = own_engine.stream(spec(max_frames=40))
    frames.gate.set()

    with pytest.raises(DeviceOutOfMemoryError, match="cannot be continued"):
        list(stream)
    assert neighbour.result(60).codes.shape[1] == 60


def test_a_stream_knows_what_it_has_handed_on() -> None:
    live = LiveAudio(ChunkSchedule(first=2, largest=4))
    codes = torch.arange(30).view(3, 10)
    assert live.agrees_with(codes)

    assert [live.next_chunk(n) for n in (0, 1, 2)] == [0, 0, 2]
    live.note_handed(codes[:, :2])
    assert [live.next_chunk(n) for n in (5, 6)] == [0, 4]
    live.note_handed(codes[:, 2:6])

    assert live.agrees_with(codes)
    assert not live.agrees_with(codes[:, :5])
    assert not live.agrees_with(codes.flip(0))
