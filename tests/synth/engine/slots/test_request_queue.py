"""Test the order of waiting requests: class, voice, length, and that nobody waits for ever."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from synth.contract import Sampling
from synth.engine.codec.streams import ChunkSchedule
from synth.engine.model.prefill import start_slots
from synth.engine.slots.requests import LiveAudio, RequestQueue, SlotRequest
from tests.synth.engine.engine_runs import (
    HOP,
    Frames,
    Start,
    lengths,
    spec,
    wait_for_slots,
    wait_until,
)


def request(
    name: str, *, tokens: int = 10, priority: int = 0, max_frames: int = 1000, heard: bool = False
) -> SlotRequest:
    prefix, own = (torch.zeros(11, length, dtype=torch.int64) for length in (3, tokens))
    live = LiveAudio(ChunkSchedule()) if heard else None
    return SlotRequest(prefix, own, name, Sampling(max_frames=max_frames), priority, live=live)


def filled(*requests: SlotRequest, patience: int = 100) -> RequestQueue:
    queue = RequestQueue(patience=patience)
    for one in requests:
        queue.push(one)
    return queue


def order(queue: RequestQueue, *voices: str) -> list[SlotRequest]:
    return [taken for _ in range(len(queue)) if (taken := queue.pop(voices)) is not None]


A, OTHER = request("at work", tokens=5), request("other", tokens=50)
BULK = request("at work", tokens=99, priority=10)
CAPPED = request("other", tokens=90, max_frames=10)
EQUALS = [request("other") for _ in range(4)]
HEARD = [request("at work", tokens=tokens, heard=True) for tokens in (5, 40, 9)]


@pytest.mark.parametrize(
    ("waiting", "at_work", "expected"),
    [
        pytest.param([BULK, OTHER], "at work", [OTHER, BULK], id="class before voice and length"),
        pytest.param([OTHER, A], "at work", [A, OTHER], id="voice at work before length"),
        pytest.param([OTHER, A], "", [OTHER, A], id="the longest first"),
        pytest.param([A, CAPPED, OTHER], "", [OTHER, A, CAPPED], id="its frame limit counts"),
        pytest.param(EQUALS, "", EQUALS, id="equals in the order they came"),
        pytest.param(HEARD, "at work", HEARD, id="what is heard in the order it came"),
    ],
)
def test_what_goes_first(
    waiting: list[SlotRequest], at_work: str, expected: list[SlotRequest]
) -> None:
    assert order(filled(*waiting), at_work) == expected


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


def test_requests_that_are_over_are_not_taken_and_forgotten() -> None:
    cancelled, good = request("a", tokens=90), request("b", priority=2)
    queue = filled(cancelled, good)
    cancelled.future.cancel()
    assert (queue.pop(), queue.pop()) == (good, None)
    queue = filled(cancelled, good)
    queue.drop_done()
    assert (len(queue), queue.next_priority()) == (1, 2)
    assert queue.drain() == [good]
    assert queue.next_priority() is None


def note_starts(held: Frames, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return where the frames that were made before each pass of prompts will stand."""
    begun: list[int] = []

    def note(*args: object) -> object:
        begun.append(held.count)
        return start_slots(*args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr("synth.engine.slots.batch.start_slots", note)
    return begun


def test_prompts_keep_their_distance_while_a_stream_is_heard(
    start: Start, held: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.engine.slots.loop.MAX_PACK_POSITIONS", 1)  # one prompt in a pass
    monkeypatch.setattr("synth.engine.slots.loop.MOST_FRAMES_ALONE", 0)  # as on a GPU
    engine, begun = start(slots=8), note_starts(held, monkeypatch)
    stream = engine.stream(spec(max_frames=40), priority=0)
    wait_for_slots(engine, 1)
    bulk = [engine.submit(spec(f"Number {n}.", max_frames=30), priority=10) for n in range(5)]
    held.gate.set()

    assert lengths(bulk) == [30] * 5
    assert sum(len(chunk) for chunk in stream) == 40 * HOP
    assert np.diff(begun[1:6]).tolist() == [4, 4, 4, 4]


def test_an_urgent_request_does_not_keep_that_distance(
    start: Start, held: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, begun = start(slots=8), note_starts(held, monkeypatch)
    first = engine.stream(spec(max_frames=30), priority=0)
    wait_for_slots(engine, 1)
    engine.submit(spec(), priority=10)
    second = engine.submit(spec("Urgent too."), priority=0)
    held.gate.set()
    assert lengths([second]) == [6]
    assert begun[1] + 6 < 30  # and was done before the first one
    first.close()


def test_a_codec_that_falls_behind_holds_back_its_class_alone(start: Start) -> None:
    engine = start(slots=2)
    codec = engine._codec
    codec._most_waiting = 10
    with codec.paused():
        futures = [engine.submit(spec(max_frames=6), priority=10) for _ in range(8)]
        wait_until(lambda: codec.waiting_frames > 10)
        wait_for_slots(engine, 0)
        held_back = engine.describe()["waiting"]
        urgent = engine.submit(spec(max_frames=6), priority=0)
        wait_until(lambda: codec.waiting_frames > 6 * (8 - held_back))

    assert held_back > 0
    assert lengths([urgent, *futures]) == [6] * 9
