"""Test that memory that runs out makes the batch smaller and loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from synth.engine.device import is_out_of_memory
from synth.engine.errors import DeviceOutOfMemoryError
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.prefill import start_slots
from tests.synth.engine.engine_runs import Start, spec, wait_until, watch_frames


def fail_above(most: int) -> Callable[[DecodeState], None]:
    """Have memory run out in frames of more slots than `most`."""

    def check(state: DecodeState) -> None:
        if sum(1 for position in state.host_positions if position) > most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 byte")

    return check


@pytest.mark.parametrize("most", [4, 2])
def test_memory_that_runs_out_halves_the_slots_and_loses_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    engine = start(slots=8)
    specs = [spec(f"Number {n}.", seed=n, max_frames=5 + n) for n in range(10)]
    expected = [engine.render(one) for one in specs]
    frames, all_waiting, fail = watch_frames(monkeypatch), threading.Event(), fail_above(most)

    def hold_then_fail(state: DecodeState) -> None:
        all_waiting.wait(60)
        fail(state)

    frames.before = hold_then_fail
    first = engine.submit(spec("Hold.", max_frames=3))
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    futures = [engine.submit(one) for one in specs]
    all_waiting.set()
    takes = [future.result(60) for future in futures]

    first.result(60)
    assert engine.describe()["slot_limit"] == most
    assert all(np.array_equal(a.codes, b.codes) for a, b in zip(expected, takes, strict=True))


def test_more_slots_are_tried_again_after_a_while(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.engine.slots.requests.GROW_AFTER_FRAMES", 5)
    engine = start(slots=4)
    frames = watch_frames(monkeypatch)
    frames.before = fail_above(1)
    for future in [engine.submit(spec(max_frames=3)) for _ in range(4)]:
        future.result(60)
    low = engine.describe()["slot_limit"]

    frames.before = lambda state: None
    engine.render(spec(max_frames=60))

    assert low < 4
    assert engine.describe()["slot_limit"] == 4


def test_a_segment_that_does_not_fit_alone_fails_and_the_engine_goes_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()
    frames = watch_frames(monkeypatch)
    frames.before = fail_above(0)

    with pytest.raises(DeviceOutOfMemoryError) as caught:
        engine.render(spec())
    assert caught.value.retryable

    frames.before = lambda state: None
    assert engine.render(spec()).codes.shape[1] == 6


def test_memory_that_runs_out_with_a_prompt_leaves_those_at_work_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=4)
    frames = watch_frames(monkeypatch, is_open=False)
    tries: list[int] = []

    def fail_beside_others(*args: object) -> object:
        tries.append(engine.describe()["slots_in_use"])
        if tries[-1] > 2:
            raise torch.OutOfMemoryError("no memory")
        return start_slots(*args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr("synth.engine.slots.batch.start_slots", fail_beside_others)
    running = engine.submit(spec(max_frames=10))
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    others = [engine.submit(spec(f"Number {n}.", max_frames=4)) for n in range(3)]
    frames.gate.set()

    assert running.result(60).codes.shape[1] == 10
    assert [future.result(60).codes.shape[1] for future in others] == [4, 4, 4]
    assert max(tries) > 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("no memory"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("CUDA error: out of memory"), False),
    ],
)
def test_errors_of_memory_are_told_from_others(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
