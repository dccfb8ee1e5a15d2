"""Reading the status of slots late, as on CUDA, changes nothing but when ends are seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.golden.models import Loaded
from synth.contract import Sampling
from synth.engine import Engine
from synth.engine.codec.streams import ChunkSchedule
from synth.engine.model.decode_state import ENDED, RUNNING, DecodeState
from synth.engine.slots.batch import RunningSlot, StatusReader
from synth.engine.slots.requests import LiveAudio, SlotRequest
from tests.synth.engine.engine_runs import CONFIG, spec, voice, wait_until, watch_frames


@pytest.fixture
def late_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Load an engine that reads the status every four frames, one reading late."""
    monkeypatch.setattr("synth.engine.slots.loop.STATUS_EVERY", {"cpu": 4})
    monkeypatch.setattr(StatusReader, "is_async", True)
    loaded = Engine.load(replace(CONFIG, slots=4))
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    loaded = Engine.load(replace(CONFIG, slots=4))
    yield loaded
    loaded.close()


SPECS = [spec(f"Number {n}.", voice(n % 2), seed=n, max_frames=1 + 5 * (n % 6)) for n in range(14)]


def test_every_request_gets_the_same_codes(late_engine: Engine, engine: Engine) -> None:
    expected = [engine.render(one) for one in SPECS]

    takes = [future.result(60) for future in [late_engine.submit(one) for one in SPECS]]

    for take, other in zip(takes, expected, strict=True):
        assert np.array_equal(take.codes, other.codes)
        assert take.finish_reason is other.finish_reason


def test_no_more_than_two_readings_of_frames_are_computed_in_vain(
    late_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = watch_frames(monkeypatch)

    for limit in (1, 2, 5, 23):
        frames.count = 0
        take = late_engine.render(spec(max_frames=limit))
        wait_until(lambda: not late_engine.is_busy)
        assert take.codes.shape[1] == limit
        # The host knows the limit and begins no frame behind it.
        assert frames.count == limit - 1


def test_streams_begin_without_waiting_for_a_late_reading(
    late_engine: Engine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = spec("To be heard.", voice(), max_frames=30)
    whole = engine.render(request)
    frames = watch_frames(monkeypatch)
    frames.after = lambda state: frames.gate.clear() if frames.count == 1 else None

    stream = late_engine.stream(request, chunks=ChunkSchedule(first=2, largest=8))
    first = next(stream)

    assert frames.count == 1
    frames.gate.set()
    audio = np.concatenate([first, *stream])
    assert np.abs(audio - whole.audio).max() < 1e-4


def test_a_cancel_between_two_readings_frees_the_slot_for_another(
    late_engine: Engine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [engine.render(one) for one in SPECS[:6]]
    frames = watch_frames(monkeypatch, is_open=False)
    long = [late_engine.submit(spec(max_frames=400)) for _ in range(4)]
    wait_until(lambda: late_engine.describe()["slots_in_use"] > 0)
    futures = [late_engine.submit(one) for one in SPECS[:6]]
    frames.after = lambda state: [one.cancel() for one in long] if frames.count == 6 else None  # type: ignore[assignment]  # nobody reads it

    frames.gate.set()

    for future, other in zip(futures, expected, strict=True):
        assert np.array_equal(future.result(60).codes, other.codes)
    assert frames.count < 100


def test_a_reading_shows_what_was_when_it_was_begun(loaded: Loaded) -> None:
    state = DecodeState.allocate(loaded.model, num_slots=2, max_positions=64)
    heard = SlotRequest(
        prefix=torch.zeros(11, 0), own=torch.zeros(11, 4), voice="", sampling=Sampling()
    )
    heard.live = LiveAudio(ChunkSchedule())
    running = RunningSlot(heard, 1, 0.0, 0.0, 9)
    state.frame[1] = 3

    copy = StatusReader(state).begin([running])
    state.frame[1] = 4
    state.status[1] = ENDED

    assert [(status, frames) for _, status, frames in copy.read()] == [(RUNNING, 3)]
