"""Test the loop of the slots: order, deadlines, cancels, failures of one, memory that runs out."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest

from synth.contract import SegmentAudio
from synth.engine.errors import (
    DeadlineExceededError,
    EngineClosedError,
    InvalidSpecError,
    NonFiniteLogitsError,
    PromptTooLongError,
)
from synth.engine.model.decode_state import DecodeState
from synth.engine.slots import requests
from tests.synth.engine.engine_runs import Start, spec, voice, wait_until, watch_frames


def ends(futures: dict[str, Future[SegmentAudio]]) -> list[str]:
    """Wait for all; return the names in the order in which they ended."""
    ended: list[str] = []
    for name, future in futures.items():
        future.add_done_callback(lambda _, name=name: ended.append(name))  # type: ignore[misc]  # bound now
    for future in futures.values():
        future.result(60)
    wait_until(lambda: len(ended) == len(futures))
    return ended


def pass_hours(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """Let the clock that deadlines are compared with go on by some hours."""
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + 3600 * hours, perf_counter=time.perf_counter
    )
    monkeypatch.setattr(requests, "time", clock)


def test_classes_then_voices_then_lengths_decide_who_is_next(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=1)
    frames = watch_frames(monkeypatch, is_open=False)
    first = engine.submit(spec("First.", voice(1)), priority=10)
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    waiting = {
        "long": engine.submit(
            spec("A text of very many words indeed.", max_frames=40), priority=10
        ),
        "short": engine.submit(spec("Few.", max_frames=3), priority=10),
        "same voice": engine.submit(spec("Few.", voice(1), max_frames=3), priority=10),
        "urgent": engine.submit(spec("Few.", max_frames=3), priority=0),
    }

    frames.gate.set()

    # The urgent one has no voice, so that is the voice that was at work when the next one is taken.
    assert ends({"first": first, **waiting}) == ["first", "urgent", "long", "short", "same voice"]


def test_a_slot_that_is_free_goes_to_the_next_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=2)
    frames = watch_frames(monkeypatch, is_open=False)
    futures = [engine.submit(spec(max_frames=n)) for n in (30, 2, 2, 2)]

    frames.gate.set()
    for future in futures:
        future.result(60)

    assert frames.count <= 30  # the short ones took turns beside the long one


def test_a_request_that_waits_too_long_ends_with_its_deadline(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=1)
    frames = watch_frames(monkeypatch, is_open=False)
    running = engine.submit(spec(max_frames=20))
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    late = engine.submit(spec(), deadline_seconds=7200)
    pass_hours(monkeypatch, 3)

    frames.gate.set()

    with pytest.raises(
        DeadlineExceededError, match=r"7200 s passed while the segment waited"
    ) as caught:
        late.result(60)
    assert caught.value.code == "deadline_exceeded"
    assert running.result(60).codes.shape[1] == 20


def test_a_request_that_takes_too_long_ends_between_two_frames(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=2)
    frames = watch_frames(monkeypatch, is_open=False)
    late = engine.submit(spec(max_frames=450), deadline_seconds=7200)
    neighbour = engine.submit(spec(max_frames=20))
    wait_until(lambda: engine.describe()["slots_in_use"] > 0)
    pass_hours(monkeypatch, 3)

    frames.gate.set()

    with pytest.raises(DeadlineExceededError, match="while the segment was rendered"):
        late.result(60)
    assert neighbour.result(60).codes.shape[1] == 20
    assert frames.count < 100
    wait_until(lambda: engine.describe()["slots_in_use"] == 0)


def test_a_deadline_that_is_kept_changes_nothing(start: Start) -> None:
    assert start().submit(spec(), deadline_seconds=60).result(60).codes.shape[1] == 6


def test_a_deadline_in_the_past_is_refused(start: Start) -> None:
    with pytest.raises(InvalidSpecError, match="deadline"):
        start().submit(spec(), deadline_seconds=0.0).result(60)


def test_a_cancel_in_the_frame_that_ends_a_request_frees_the_slot(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=2)
    frames = watch_frames(monkeypatch, is_open=False)
    cancelled, neighbour = (engine.submit(spec(max_frames=n)) for n in (4, 9))

    def cancel_in_last_frame(state: DecodeState) -> None:
        if frames.count == 3:  # the first frame came with the prompt
            assert int(state.frame[0]) == 4
            assert cancelled.cancel()

    frames.after = cancel_in_last_frame
    frames.gate.set()

    assert neighbour.result(60).codes.shape[1] == 9
    assert cancelled.cancelled()
    wait_until(lambda: engine.describe()["slots_in_use"] == 0 and not engine.is_busy)
    assert engine.render(spec()).codes.shape[1] == 6


def test_one_poisoned_segment_fails_alone_among_sixteen(start: Start) -> None:
    engine = start(slots=16)
    texts = [f"Number {n} of these." for n in range(15)]
    healthy = [future.result(60) for future in [engine.submit(spec(text)) for text in texts]]
    model, tokenizer = engine._models.dual_ar, engine._models.tokenizer
    (token,) = set(tokenizer.encode("~")) - {i for text in texts for i in tokenizer.encode(text)}

    model.slow.embeddings.weight[token] = float("nan")
    try:
        poisoned = engine.submit(spec("Bad ~ word."))
        futures = [engine.submit(spec(text)) for text in texts]
        again = [future.result(60) for future in futures]

        with pytest.raises(NonFiniteLogitsError):
            poisoned.result(60)
    finally:
        model.slow.embeddings.weight[token] = 0.0
    assert all(np.array_equal(a.codes, b.codes) for a, b in zip(healthy, again, strict=True))
    # Slots that held NaN are clean again.
    after = [future.result(60) for future in [engine.submit(spec(text)) for text in texts]]
    assert all(np.array_equal(a.codes, b.codes) for a, b in zip(healthy, after, strict=True))


def test_a_prompt_that_fails_alone_does_not_take_its_pack_along(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=4)
    frames = watch_frames(monkeypatch, is_open=False)
    engine.submit(spec("Keeps the loop in a frame.", max_frames=2))
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    futures = [engine.submit(spec(f"Number {n}.")) for n in range(3)]
    with engine._threads.slots._wake:
        request = engine._threads.slots._queue._classes[0].waiting[1]
        request.own[0, 0] = 10**6  # no such token: the pass with it raises

    frames.gate.set()

    assert futures[0].result(60).codes.shape[1] == 6
    assert futures[2].result(60).codes.shape[1] == 6
    assert isinstance(futures[1].exception(60), IndexError)


def test_a_prompt_one_position_too_long_is_refused_with_the_numbers(start: Start) -> None:
    engine = start(max_positions=128)
    prompts = engine._prompts
    positions = prompts.prefix(()).columns.shape[1] + prompts.own("Hello there.").shape[1]
    most = 128 - positions

    assert engine.render(spec(max_frames=most)).codes.shape[1] <= most
    with pytest.raises(
        PromptTooLongError, match=f"{positions} positions, but at most {positions - 1}"
    ):
        engine.render(spec(max_frames=most + 1))


def test_only_the_slots_in_use_are_computed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(slots=16)
    alone = engine.render(spec("The long one.", max_frames=60))
    frames = watch_frames(monkeypatch, is_open=False)
    engine.submit(spec(max_frames=2))
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    short = [
        engine.submit(spec("A long text, so that it goes first.", max_frames=8)) for _ in range(9)
    ]
    long = engine.submit(spec("The long one.", max_frames=60), priority=1)

    frames.gate.set()

    assert np.array_equal(long.result(60).codes, alone.codes)
    assert [future.result(60).codes.shape[1] for future in short] == [8] * 9
    # It began in one of the last slots, and was moved to the first when the others had left.
    assert frames.sizes[0] == 1
    assert max(frames.sizes) == 16
    assert frames.sizes[-40:] == [1] * 40


def test_a_strict_engine_always_computes_all_slots(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=5, strict=True)
    frames = watch_frames(monkeypatch)

    engine.render(spec())

    assert set(frames.sizes) == {5}


def test_closing_ends_requests_wherever_they_are(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=2)
    frames = watch_frames(monkeypatch)
    with engine._threads.codec.paused():
        decoding = engine.submit(spec(max_frames=2))
        wait_until(lambda: engine.describe()["codec_waiting_frames"] == 2)
        running = [engine.submit(spec(max_frames=400)) for _ in range(2)]
        waiting = engine.submit(spec())
        stream = engine.stream(spec())
        wait_until(lambda: engine.describe()["slots_in_use"] == 2)
        assert frames.gate.is_set()

        engine.close()

    for future in (decoding, *running, waiting):
        with pytest.raises(EngineClosedError):
            future.result(60)
    with pytest.raises(EngineClosedError):
        next(stream)
