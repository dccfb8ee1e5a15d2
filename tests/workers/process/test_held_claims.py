"""What is held is counted by kind; a worker claims ahead what its engine needs for a moment."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from contextlib import suppress

import pytest

from synth.models import RenderJob
from ttsweb.work import Kind
from workers.process.held_claims import (
    SURE_SECONDS,
    SURE_SEGMENTS,
    URGENT_SECONDS,
    ClaimAhead,
    HeldClaim,
    HeldClaims,
    Room,
)

SLOTS = 16
BULK, URGENT = RenderJob.Priority.BULK, RenderJob.Priority.INTERACTIVE


def test_claims_are_counted_by_kind() -> None:
    held = HeldClaims()
    segment = held.add(Kind.SEGMENT, 1, uuid.uuid4())
    held.add(Kind.VERSION, uuid.uuid4(), uuid.uuid4())

    assert (len(held), held.count(Kind.SEGMENT), held.count(Kind.EXPORT)) == (2, 1, 0)
    assert held.count(Kind.SEGMENT, Kind.VERSION) == 2
    for _ in range(2):
        held.drop(segment)
    assert held.of(Kind.SEGMENT) == []


def test_rows_of_one_batch_with_one_token_are_told_apart() -> None:
    held, token = HeldClaims(), uuid.uuid4()

    first, second = (held.add(Kind.SEGMENT, pk, token) for pk in (1, 2))
    held.drop(first)

    assert held.of(Kind.SEGMENT) == [second]


def test_claim_held_for_a_block_is_dropped_when_it_fails() -> None:
    held = HeldClaims()

    with suppress(RuntimeError), held.holding(Kind.CODES, 1, uuid.uuid4()):
        assert len(held) == 1
        raise RuntimeError

    assert len(held) == 0


def test_abandoned_claim_stops_its_request() -> None:
    claim = HeldClaims().add(Kind.SEGMENT, 1, uuid.uuid4())
    claim.future = Future()

    claim.abandon()

    assert claim.is_lost and claim.future.cancelled()


class Clock:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ahead(clock: Clock) -> ClaimAhead:
    return ClaimAhead(clock)


def claims(count: int, priority: int = BULK) -> list[HeldClaim]:
    numbers = range(count)
    return [
        HeldClaim(pk, uuid.uuid4(), kind=Kind.SEGMENT, job_id=uuid.uuid4(), priority=priority)
        for pk in numbers
    ]


def end(ahead: ClaimAhead, number: int) -> None:
    for _ in range(number):
        ahead.note_end(is_idle=False)


def run_at(ahead: ClaimAhead, clock: Clock, *, per_second: float) -> None:
    """Let the engine end so many segments a second for forty seconds."""
    ahead.note_claims()
    for _ in range(round(per_second * 40)):
        clock.now += 1 / per_second
        end(ahead, 1)


def test_before_any_segment_ended_each_slot_has_one_waiting(ahead: ClaimAhead) -> None:
    assert ahead.room([], SLOTS) == Room(2 * SLOTS, 2 * SLOTS)
    assert ahead.room(claims(2 * SLOTS), SLOTS).any_class == 0


@pytest.mark.parametrize(
    ("per_second", "most"), [(0.1, SLOTS + 4), (4, SLOTS + 8), (20, SLOTS + 40), (1000, SLOTS + 48)]
)
def test_what_lies_ahead_is_some_seconds_of_work_between_its_bounds(
    ahead: ClaimAhead, clock: Clock, per_second: float, most: int
) -> None:
    run_at(ahead, clock, per_second=per_second)

    assert ahead.most(SLOTS) == pytest.approx(most, abs=1)


def test_engine_that_ends_nothing_for_long_is_given_little_ahead(
    ahead: ClaimAhead, clock: Clock
) -> None:
    ahead.note_claims()
    clock.now += 31

    assert ahead.most(SLOTS) == SLOTS + 4


def test_pace_of_work_before_a_pause_does_not_count(ahead: ClaimAhead, clock: Clock) -> None:
    run_at(ahead, clock, per_second=0.1)
    ahead.note_end(is_idle=True)
    clock.now += 3600
    ahead.note_claims()

    assert ahead.most(SLOTS) == 2 * SLOTS


def reuse(ahead: ClaimAhead, clock: Clock, *, rounds: int) -> None:
    """Have claims of twenty segments reused, one a second, while the engine has nothing to do."""
    for _ in range(rounds):
        ahead.note_claims()
        clock.now += 1
        ahead.note_reused(20, is_idle=True)


def test_segments_that_need_no_engine_count_for_the_pace(ahead: ClaimAhead, clock: Clock) -> None:
    reuse(ahead, clock, rounds=40)

    assert ahead.most(SLOTS) == pytest.approx(SLOTS + 40, abs=2)


def test_pace_of_reused_segments_before_a_pause_does_not_count(
    ahead: ClaimAhead, clock: Clock
) -> None:
    reuse(ahead, clock, rounds=1)
    clock.now += 40
    assert ahead.most(SLOTS) < 2 * SLOTS
    ahead.note_claims()

    assert ahead.most(SLOTS) == 2 * SLOTS


def test_room_is_given_in_one_piece_once_half_of_what_lay_ahead_is_used(ahead: ClaimAhead) -> None:
    held = range(2 * SLOTS, -1, -1)
    rooms = [ahead.room(claims(number), SLOTS) for number in held]

    half = SLOTS // 2
    assert [ahead.is_low(number, SLOTS) for number in held] == [False] * half + [True] * (
        len(held) - half
    )
    assert [room.any_class for room in rooms[:half]] == [0] * half
    assert [room.any_class for room in rooms[half:]] == list(range(half, 2 * SLOTS + 1))
    assert {room.interactive for room in rooms} == {2 * SLOTS}


def test_bulk_work_leaves_the_room_of_interactive_work_alone(ahead: ClaimAhead) -> None:
    bulk, urgent = claims(2 * SLOTS, BULK), claims(5, URGENT)

    assert ahead.room(bulk, SLOTS) == Room(0, 2 * SLOTS)
    assert ahead.room(bulk + urgent, SLOTS) == Room(0, 2 * SLOTS - 5)
    assert ahead.room(claims(2 * SLOTS, URGENT), SLOTS) == Room(0, 0)


def any_class(ahead: ClaimAhead, *, is_urgent: bool = False) -> bool:
    room = ahead.room([], SLOTS, is_urgent=is_urgent)
    assert room.interactive == 2 * SLOTS  # nothing puts off what somebody waits for
    return room.any_class > 0


def test_jobs_that_come_one_by_one_are_left_to_gather_for_a_moment(
    ahead: ClaimAhead, clock: Clock
) -> None:
    ahead.note_look(8, 0)
    assert any_class(ahead)  # the first to come after a pause is claimed at once
    ahead.note_look(8, 8)
    assert any_class(ahead)  # more may be there
    ahead.note_look(8, 1)
    assert not any_class(ahead)

    clock.now += ahead.put_off(is_urgent=False)
    assert any_class(ahead)


def test_bulk_work_is_put_off_for_what_somebody_waits_for_and_goes_on_beside_it(
    ahead: ClaimAhead, clock: Clock
) -> None:
    assert not any_class(ahead, is_urgent=True)
    assert any_class(ahead)  # it has ended
    assert not any_class(ahead, is_urgent=True)
    clock.now += URGENT_SECONDS
    assert any_class(ahead, is_urgent=True)  # it never waits for longer at once
    ahead.note_look(8, 8)
    assert not any_class(ahead, is_urgent=True)


def test_segments_that_wait_for_the_codec_leave_their_room_to_others_within_a_bound(
    ahead: ClaimAhead,
) -> None:
    assert ahead.room(claims(2 * SLOTS), SLOTS, at_codec=10).any_class == 10
    assert ahead.is_low(SLOTS + SLOTS // 2 + 10, SLOTS, at_codec=10)
    assert ahead.room(claims(1000), SLOTS, at_codec=990).any_class == 0
    assert ahead.room(claims(2 * SLOTS), SLOTS, at_codec=-1).any_class == 0


def test_what_waits_to_be_stored_counts_among_the_most_that_a_kill_takes(
    ahead: ClaimAhead, clock: Clock
) -> None:
    run_at(ahead, clock, per_second=20)

    assert ahead.most(SLOTS, unstored=8) == pytest.approx(SLOTS + 40, abs=1)
    assert ahead.most(SLOTS, unstored=28) == SLOTS + 20
    assert ahead.most(SLOTS, unstored=1000) == SLOTS + 4, "a slow disk let the slots run dry"
    assert ahead.room(claims(SLOTS), SLOTS, unstored=28).any_class == 20
    assert not ahead.is_low(SLOTS + 11, SLOTS, unstored=28)
    assert ahead.is_low(SLOTS + 11, SLOTS)


def test_one_slot_has_work_ahead_at_any_pace(ahead: ClaimAhead, clock: Clock) -> None:
    assert ahead.most(1) == 2

    run_at(ahead, clock, per_second=0.05)

    assert ahead.most(1) == 2


def test_limit_grows_with_what_is_rendered_after_a_loss(ahead: ClaimAhead) -> None:
    assert ahead.held_limit() is None, "it was never killed"
    ahead.note_loss(8)

    assert ahead.held_limit() == 8
    end(ahead, 3 * SURE_SEGMENTS)
    assert ahead.held_limit() == 11


@pytest.mark.parametrize("between", [1, 14, 40, 200, 2000])
def test_kills_that_go_on_cost_a_tenth_of_what_is_rendered_between_them(between: int) -> None:
    limit = SLOTS
    for _ in range(12):
        ahead = ClaimAhead(Clock())
        ahead.note_loss(limit // 2)
        end(ahead, between)
        limit = ahead.held_limit() or 0

    assert limit <= max(1, 0.1 * between)


def test_worker_is_at_its_full_pace_a_minute_after_a_loss_and_some_segments(
    ahead: ClaimAhead, clock: Clock
) -> None:
    ahead.note_loss(2)
    clock.now += SURE_SECONDS
    end(ahead, SURE_SEGMENTS - 1)

    assert ahead.held_limit() == 2
    end(ahead, 1)
    assert ahead.held_limit() is None


def test_many_slots_are_full_again_soon_after_one_kill(ahead: ClaimAhead, clock: Clock) -> None:
    slots, seconds_each = 64, 5.0
    ahead.note_loss(slots // 2)
    spent, rendered = 0.0, 0
    while (limit := ahead.held_limit()) is not None and limit < slots:
        clock.now += seconds_each / limit
        spent += seconds_each / limit
        rendered += 1
        end(ahead, 1)

    assert spent < 1.6 * rendered * seconds_each / slots
    assert spent <= SURE_SECONDS + seconds_each
