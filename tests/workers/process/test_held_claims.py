"""What is held is counted by kind, and lost work is stopped."""

from __future__ import annotations

import uuid
from concurrent.futures import Future

from ttsweb.work import Kind
from workers.process.held_claims import HeldClaims


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

    try:
        with held.holding(Kind.CODES, 1, uuid.uuid4()):
            assert len(held) == 1
            raise RuntimeError
    except RuntimeError:
        pass

    assert len(held) == 0


def test_abandoned_claim_stops_its_request() -> None:
    claim = HeldClaims().add(Kind.SEGMENT, 1, uuid.uuid4())
    claim.future = Future()

    claim.abandon()

    assert claim.is_lost
    assert claim.future.cancelled()
