"""Test the order of waiting requests: class, voice, length, and that nobody waits for ever."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from synth.contract import Sampling
from synth.engine.codec.streams import ChunkSchedule
from synth.engine.model.prefill import start_slots
from synth.engine.slots.requests import LiveAudio, RequestQueue, SlotRequest
from tests.synth.engine.engine_runs import Start, spec, wait_until, watch_frames


def request(
    name: str, *, tokens: int = 10, priority: int = 0, max_frames: int = 1000
) -> SlotRequest:
    return SlotRequest(
        prefix=torch.zeros(11, 3, dtype=torch.int64),
        own=torch.zeros(11, tokens, dtype=torch.int64),
        voice=name,
        sampling=Sampling(max_frames=max_frames),
        priority=priority,
    )


def filled(*requests: SlotRequest, patience: int = 100) -> RequestQueue:
    queue = RequestQueue(patience=patience)
    for one in requests:
        queue.push(one)
    return queue


def order(queue: RequestQueue, *voices: str) -> list[SlotRequest]:
    return [taken for _ in range(len(queue)) if (taken := queue.pop(voices)) is not None]


def test_a_more_urgent_class_goes_before_any_length_and_voice() -> None:
    bulk = request("at work", tokens=99, priority=10)
    urgent = request("other", tokens=2, priority=0)

    assert order(filled(bulk, urgent), "at work") == [urgent, bulk]


def test_a_voice_at_work_goes_before_a_longer_request() -> None:
    same, longer = request("at work", tokens=5), request("other", tokens=50)

    assert order(filled(longer, same), "at work") == [same, longer]
    assert order(filled(longer, same)) == [longer, same]


def test_the_longest_goes_first_and_its_frame_limit_counts() -> None:
    short, long = request("a", tokens=5), request("a", tokens=40)
    capped = request("a", tokens=90, max_frames=10)

    assert order(filled(short, capped, long)) == [long, short, capped]


def test_equals_go_in_the_order_they_came() -> None:
    requests = [request("a") for _ in range(4)]

    assert order(filled(*requests)) == requests


def test_no_more_than_so_many_later_ones_pass_a_request_over() -> None:
    patience = 5
    queue = filled(request("rare", tokens=2), patience=patience)
    passed = 0
    while True:
        queue.push(request("usual", tokens=50))
        taken = queue.pop(["usual"])
        assert taken is not None
        if taken.voice == "rare":
            break
        passed += 1

    assert passed == patience


def test_earlier_ones_do_not_count_as_passing_over() -> None:
    earlier = [request("usual", tokens=50) for _ in range(8)]
    rare = request("rare", tokens=2)
    later = [request("usual", tokens=50) for _ in range(8)]

    taken = order(filled(*earlier, rare, *later, patience=3), "usual")

    assert taken.index(rare) == len(earlier) + 3


def test_what_is_put_back_goes_first_in_its_class_and_in_order() -> None:
    one, two, long = request("a"), request("b"), request("c", tokens=90)
    queue = filled(one, two, long)
    taken = [queue.pop(), queue.pop()]
    assert taken == [long, one]

    queue.push_front([one, long])
    queue.push(request("d", tokens=200))
    urgent = request("e", priority=-1)
    queue.push(urgent)

    assert order(queue)[:3] == [urgent, one, long]


def test_requests_that_are_over_are_not_taken() -> None:
    cancelled, good = request("a", tokens=90), request("b")
    queue = filled(cancelled, good)
    cancelled.future.cancel()

    assert queue.pop() is good
    assert queue.pop() is None


def test_forgetting_what_is_over_leaves_the_rest() -> None:
    cancelled, good = request("a", priority=1), request("b", priority=2)
    queue = filled(cancelled, good)
    cancelled.future.cancel()

    queue.drop_done()

    assert len(queue) == 1
    assert queue.next_priority() == 2
    assert queue.drain() == [good]
    assert queue.next_priority() is None


def test_what_is_heard_meanwhile_goes_in_the_order_it_came() -> None:
    heard = [request("a", tokens=tokens) for tokens in (5, 40, 9)]
    for one in heard:
        one.live = LiveAudio(ChunkSchedule())

    assert order(filled(*heard), "a") == heard


def test_prompts_keep_their_distance_while_a_stream_is_heard(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.engine.slots.loop.MAX_PACK_POSITIONS", 1)  # one prompt in a pass
    engine = start(slots=8)
    frames = watch_frames(monkeypatch, is_open=False)
    begun: list[int] = []

    def note(*args: object) -> object:
        begun.append(frames.count)
        return start_slots(*args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr("synth.engine.slots.batch.start_slots", note)
    stream = engine.stream(spec(max_frames=40), priority=0)
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    bulk = [engine.submit(spec(f"Number {n}.", max_frames=30), priority=10) for n in range(5)]
    frames.gate.set()
    for future in bulk:
        future.result(60)

    assert sum(len(chunk) for chunk in stream) == 40 * 2048
    gaps = np.diff(begun[1:6])
    assert list(gaps) == [4, 4, 4, 4]


def test_an_urgent_request_does_not_keep_that_distance(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=8)
    frames = watch_frames(monkeypatch, is_open=False)
    first = engine.stream(spec(max_frames=30), priority=0)
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    engine.submit(spec(), priority=10)
    second = engine.submit(spec("Urgent too."), priority=0)

    frames.gate.set()
    second.result(60)

    assert frames.count < 30
    first.close()


def test_a_codec_that_falls_behind_holds_back_its_class_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=2)
    codec = engine._threads.codec
    codec._most_waiting = 10
    with codec.paused():
        futures = [engine.submit(spec(max_frames=6), priority=10) for _ in range(8)]
        wait_until(lambda: engine.describe()["codec_waiting_frames"] > 10)
        wait_until(lambda: engine.describe()["slots_in_use"] == 0)
        held_back = engine.describe()["waiting"]
        urgent = engine.submit(spec(max_frames=6), priority=0)
        wait_until(lambda: engine.describe()["codec_waiting_frames"] > 6 * (8 - held_back))

    assert held_back > 0
    assert urgent.result(60).codes.shape[1] == 6
    assert [future.result(60).codes.shape[1] for future in futures] == [6] * 8
