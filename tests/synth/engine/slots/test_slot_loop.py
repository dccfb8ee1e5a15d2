"""Test the loop of the slots: order, deadlines, cancels, failures of one, memory, late readings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lab.golden.models import Loaded
from synth.contract import FinishReason, Sampling, SegmentAudio
from synth.engine import Engine
from synth.engine.codec.streams import ChunkSchedule
from synth.engine.device import is_out_of_memory
from synth.engine.errors import (
    DeadlineExceededError,
    DeviceOutOfMemoryError,
    EngineClosedError,
    InvalidSpecError,
    NonFiniteLogitsError,
    PromptTooLongError,
)
from synth.engine.model.decode_state import ENDED, RUNNING, DecodeState
from synth.engine.model.prefill import start_slots
from synth.engine.slots import requests
from synth.engine.slots.batch import StatusReader
from synth.engine.slots.requests import LiveAudio, SlotRequest
from tests.synth.engine.engine_runs import (
    Frames,
    Start,
    assert_same_codes,
    begin,
    lengths,
    render,
    spec,
    voice,
    wait_for_slots,
    wait_until,
)


@pytest.fixture
def hours_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the clock that deadlines are compared with go on by three hours."""
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + 3 * 3600, perf_counter=time.perf_counter
    )
    return lambda: monkeypatch.setattr(requests, "time", clock)


def test_classes_then_voices_then_lengths_decide_who_is_next(start: Start, held: Frames) -> None:
    engine = start(slots=1)
    futures = {
        "first": begin(engine, spec("First.", voice(1)), priority=10),
        "long": engine.submit(
            spec("A text of very many words indeed.", max_frames=40), priority=10
        ),
        "short": engine.submit(spec("Few.", max_frames=3), priority=10),
        "same voice": engine.submit(spec("Few.", voice(1), max_frames=3), priority=10),
        "urgent": engine.submit(spec("Few.", max_frames=3), priority=0),
    }

    held.gate.set()

    lengths(futures.values())
    names = {future: name for name, future in futures.items()}
    # The urgent one has no voice, so that is the voice that was at work when the next one is taken.
    expected = ["first", "urgent", "long", "short", "same voice"]
    assert [names[future] for future in held.begun] == expected


def test_a_slot_that_is_free_goes_to_the_next_at_once(start: Start, held: Frames) -> None:
    engine = start(slots=2)
    futures = [engine.submit(spec(max_frames=n)) for n in (30, 2, 2, 2)]
    held.gate.set()
    assert lengths(futures) == [30, 2, 2, 2]
    assert held.count <= 30  # the short ones took turns beside the long one


def test_a_request_that_waits_too_long_ends_with_its_deadline(
    start: Start, held: Frames, hours_pass: Callable[[], None]
) -> None:
    engine = start(slots=1)
    running = begin(engine, spec(max_frames=20))
    late = engine.submit(spec(), deadline_seconds=7200)
    hours_pass()

    held.gate.set()

    with pytest.raises(
        DeadlineExceededError, match="7200 s passed while the segment waited"
    ) as caught:
        late.result(60)
    assert caught.value.code == "deadline_exceeded"
    assert lengths([running]) == [20]


def test_a_request_that_takes_too_long_ends_between_two_frames(
    start: Start, held: Frames, hours_pass: Callable[[], None]
) -> None:
    engine = start(slots=2)
    late = engine.submit(spec(max_frames=450), deadline_seconds=7200)
    neighbour = engine.submit(spec(max_frames=20))
    wait_until(lambda: engine.describe()["slots_in_use"] > 0)
    hours_pass()

    held.gate.set()

    with pytest.raises(DeadlineExceededError, match="while the segment was rendered"):
        late.result(60)
    assert lengths([neighbour]) == [20]
    assert held.count < 100
    wait_for_slots(engine, 0)


def test_a_deadline_that_is_kept_changes_nothing_and_one_in_the_past_is_refused(
    engine: Engine,
) -> None:
    assert lengths([engine.submit(spec(), deadline_seconds=60)]) == [6]
    with pytest.raises(InvalidSpecError, match="deadline"):
        engine.submit(spec(), deadline_seconds=0.0).result(60)


def test_a_cancel_in_the_frame_that_ends_a_request_frees_the_slot(
    start: Start, held: Frames
) -> None:
    engine = start(slots=2)
    cancelled, neighbour = (engine.submit(spec(max_frames=n)) for n in (4, 9))

    def cancel_in_last_frame(state: DecodeState) -> None:
        if held.count == 4:
            assert int(state.frame[0]) == 4
            assert cancelled.cancel()

    held.after = cancel_in_last_frame
    held.gate.set()

    assert lengths([neighbour]) == [9]
    assert cancelled.cancelled()
    wait_until(lambda: engine.describe()["slots_in_use"] == 0 and not engine.is_busy)
    assert lengths([engine.submit(spec())]) == [6]


def test_one_poisoned_segment_fails_alone_among_sixteen(start: Start) -> None:
    engine = start(slots=16)
    specs = [spec(f"Number {n} of these.") for n in range(15)]
    healthy = render(engine, specs)
    tokenizer, table = engine._models.tokenizer, engine._models.dual_ar.slow.embeddings.weight
    (token,) = set(tokenizer.encode("~")) - {i for one in specs for i in tokenizer.encode(one.text)}

    before = table[token].clone()
    table[token] = float("nan")
    try:
        poisoned = engine.submit(spec("Bad ~ word."))
        assert_same_codes(render(engine, specs), healthy)
        with pytest.raises(NonFiniteLogitsError):
            poisoned.result(60)
    finally:
        table[token] = before
    assert_same_codes(render(engine, specs), healthy)  # slots that held NaN are clean again


def test_a_prompt_that_fails_alone_does_not_take_its_pack_along(start: Start, held: Frames) -> None:
    engine = start(slots=4)
    begin(engine, spec("Keeps the loop in a frame.", max_frames=2))
    futures = [engine.submit(spec(f"Number {n}.")) for n in range(3)]
    with engine._slots._wake:
        request = engine._slots._queue._classes[0].waiting[1]
        request.own[0, 0] = 10**6  # no such token: the pass with it raises
    held.gate.set()
    assert lengths([futures[0], futures[2]]) == [6, 6]
    assert isinstance(futures[1].exception(60), IndexError)


def test_a_prompt_that_leaves_half_of_the_frames_is_rendered_and_one_position_more_refused(
    start: Start,
) -> None:
    engine = start(max_positions=128)
    prompts = engine._prompts
    positions = prompts.prefix(())[1].shape[1] + prompts.own("Hello there.").shape[1]
    room = 128 - positions
    assert lengths([engine.submit(spec(max_frames=room))])[0] <= room
    # A cap is several times what speech takes: what does not end before is told apart.
    take = engine.render(spec(max_frames=2 * room))
    assert take.finish_reason is FinishReason.CONTEXT_FULL
    assert take.codes.shape[1] == room
    match = f"{positions} positions, but at most {positions - 1}"
    with pytest.raises(PromptTooLongError, match=match):
        engine.render(spec(max_frames=2 * room + 1))


def test_only_the_slots_in_use_are_computed(start: Start, held: Frames) -> None:
    engine = start(slots=16)
    held.gate.set()
    alone = engine.render(spec("The long one.", max_frames=60))
    held.gate.clear()
    held.sizes.clear()
    begin(engine, spec(max_frames=2))
    first = "A long text, so that it goes first."
    short = [engine.submit(spec(first, max_frames=8)) for _ in range(9)]
    long = engine.submit(spec("The long one.", max_frames=60), priority=1)

    held.gate.set()

    assert_same_codes([long.result(60)], [alone])
    assert lengths(short) == [8] * 9
    # It began in one of the last slots, and was moved to the first when the others had left.
    assert (held.sizes[0], max(held.sizes), held.sizes[-40:]) == (1, 16, [1] * 40)


@pytest.mark.parametrize(
    ("most", "sizes"), [(100, [1] * 8 + [4] * 22), (5, [1] * 5 + [5, 1, 5] + [4] * 20)]
)
def test_what_is_urgent_goes_on_alone_for_a_while_and_costs_the_others_nothing_else(
    start: Start, held: Frames, monkeypatch: pytest.MonkeyPatch, most: int, sizes: list[int]
) -> None:
    monkeypatch.setattr("synth.engine.slots.loop.MOST_FRAMES_ALONE", most)
    asked = [spec(f"Bulk {n}.", voice(n), max_frames=25) for n in range(4)]
    urgent = spec("Urgent.", max_frames=8)
    engine = start(slots=5)
    held.gate.set()
    alone = [engine.render(one) for one in (*asked, urgent)]
    held.gate.clear()
    held.sizes.clear()
    futures = [begin(engine, asked[0], priority=10)]
    futures += [engine.submit(one, priority=10) for one in asked[1:3]]
    held.count = 0

    def ask_for_more(_: DecodeState) -> None:
        if held.count == 3:  # on the engine's thread, so that the next frame is the first with both
            futures.extend(
                [engine.submit(urgent, priority=0), engine.submit(asked[3], priority=10)]
            )

    held.after = ask_for_more
    held.gate.set()
    wait_until(lambda: len(futures) == 5)

    futures.append(futures.pop(3))  # the urgent one, as it was rendered alone
    assert_same_codes([one.result(60) for one in futures], alone)
    assert held.sizes == [1, 4, 4, *sizes, 4, 1, 1]


def test_a_strict_engine_always_computes_all_slots(start: Start, frames: Frames) -> None:
    start(slots=5, strict=True).render(spec())
    assert set(frames.sizes) == {5}


def test_closing_ends_requests_wherever_they_are(start: Start, frames: Frames) -> None:
    engine = start(slots=2)
    with engine._codec.paused():
        decoding = engine.submit(spec(max_frames=2))
        wait_until(lambda: engine.describe()["codec_waiting_frames"] == 2)
        running = [engine.submit(spec(max_frames=400)) for _ in range(2)]
        waiting, stream = engine.submit(spec()), engine.stream(spec())
        wait_for_slots(engine, 2)

        engine.close()

    for future in (decoding, *running, waiting):
        with pytest.raises(EngineClosedError):
            future.result(60)
    with pytest.raises(EngineClosedError):
        next(stream)
    with pytest.raises(EngineClosedError):
        engine.submit(spec())


def fail_above(most: int) -> Callable[[DecodeState], None]:
    """Have memory run out in frames of more slots than `most`."""

    def check(state: DecodeState) -> None:
        if sum(1 for position in state.host_positions if position) > most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 byte")

    return check


@pytest.mark.parametrize("most", [4, 2])
def test_memory_that_runs_out_halves_the_slots_and_loses_nothing(
    start: Start, held: Frames, most: int
) -> None:
    engine = start(slots=8)
    specs = [spec(f"Number {n}.", seed=n, max_frames=5 + n) for n in range(10)]
    held.gate.set()
    expected = render(engine, specs)
    held.gate.clear()
    held.before = fail_above(most)
    first = begin(engine, spec("Hold.", max_frames=3))
    futures = [engine.submit(one) for one in specs]

    held.gate.set()

    assert_same_codes([future.result(60) for future in futures], expected)
    assert lengths([first]) == [3]
    assert engine.describe()["slot_limit"] == most


def test_more_slots_are_tried_again_after_a_while(
    start: Start, frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "GROW_AFTER_FRAMES", 5)
    engine = start(slots=4)
    frames.before = fail_above(1)
    render(engine, [spec(max_frames=3)] * 4)
    low = engine.describe()["slot_limit"]
    frames.before = lambda state: None
    engine.render(spec(max_frames=60))
    assert low < 4
    assert engine.describe()["slot_limit"] == 4


def test_a_segment_that_does_not_fit_alone_fails_and_the_engine_goes_on(
    start: Start, frames: Frames
) -> None:
    engine = start()
    frames.before = fail_above(0)
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        engine.render(spec())
    assert caught.value.retryable
    frames.before = lambda state: None
    assert lengths([engine.submit(spec())]) == [6]


def test_memory_that_runs_out_with_a_prompt_leaves_those_at_work_alone(
    start: Start, held: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, tries = start(slots=4), []

    def fail_beside_others(*args: object) -> object:
        tries.append(engine.describe()["slots_in_use"])
        if tries[-1] > 2:
            raise torch.OutOfMemoryError("no memory")
        return start_slots(*args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr("synth.engine.slots.batch.start_slots", fail_beside_others)
    running = begin(engine, spec(max_frames=10))
    others = [engine.submit(spec(f"Number {n}.", max_frames=4)) for n in range(3)]
    held.gate.set()

    assert lengths([running, *others]) == [10, 4, 4, 4]
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


@pytest.fixture
def late_engine(start: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine that reads the status when the next frame is begun, as on CUDA."""
    monkeypatch.setattr(StatusReader, "is_async", True)
    yield start(slots=4)


SPECS = [spec(f"Number {n}.", voice(n % 2), seed=n, max_frames=1 + 5 * (n % 6)) for n in range(14)]


@pytest.fixture(scope="module")
def expected(engine: Engine) -> list[SegmentAudio]:
    """What an engine gives for SPECS that reads at once."""
    return render(engine, SPECS)


def test_read_late_every_request_gets_the_same_codes_and_no_frame_is_computed_in_vain(
    late_engine: Engine, expected: list[SegmentAudio], frames: Frames
) -> None:
    assert_same_codes(render(late_engine, SPECS), expected)
    for limit in (1, 2, 5, 23):
        frames.count = 0
        assert late_engine.render(spec(max_frames=limit)).codes.shape[1] == limit
        wait_until(lambda: not late_engine.is_busy)
        # The host knows the limit and begins no frame behind it.
        assert frames.count == limit


def test_streams_begin_without_waiting_for_a_late_reading(
    late_engine: Engine, engine: Engine, frames: Frames
) -> None:
    request = spec("To be heard.", voice(), max_frames=30)
    whole = engine.render(request)
    frames.count = 0
    frames.after = lambda state: frames.gate.clear() if frames.count == 2 else None
    stream = late_engine.stream(request, chunks=ChunkSchedule(first=2, largest=8))
    first = next(stream)
    assert frames.count == 2
    frames.gate.set()
    assert np.abs(np.concatenate([first, *stream]) - whole.audio).max() < 1e-4


def test_a_cancel_between_two_readings_frees_the_slot_for_another(
    late_engine: Engine, expected: list[SegmentAudio], held: Frames
) -> None:
    long: list[Future[SegmentAudio]] = [late_engine.submit(spec(max_frames=400)) for _ in range(4)]
    wait_until(lambda: late_engine.describe()["slots_in_use"] > 0)
    futures = [late_engine.submit(one) for one in SPECS[:6]]
    held.after = lambda state: [one.cancel() for one in long] if held.count == 6 else None
    held.gate.set()
    assert_same_codes([future.result(60) for future in futures], expected[:6])
    assert held.count < 100


def test_a_reading_shows_what_was_when_it_was_begun(loaded: Loaded) -> None:
    state = DecodeState.allocate(loaded.model, num_slots=2, max_positions=64)
    heard = SlotRequest(torch.zeros(11, 0), torch.zeros(11, 4), "", Sampling(), slot=1)
    heard.live = LiveAudio(ChunkSchedule())
    state.frame[1] = 3
    read = StatusReader(state).begin([heard])
    state.frame[1], state.status[1] = 4, ENDED
    assert [(status, made) for _, status, made in read()] == [(RUNNING, 3)]
