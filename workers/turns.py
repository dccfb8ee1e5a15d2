"""Give each round of periodic work to one worker; the clock is a column."""

from __future__ import annotations

import datetime as dt

from synth.models import SweepTurn
from ttsweb import leases


def open_turn(name: str) -> SweepTurn:
    """Start the clock of a kind of work that was never done here, so that a lateness shows."""
    start = {"next_at": leases.database_now()}
    return SweepTurn.objects.get_or_create(name=name, defaults=start)[0]


def take_turn(name: str, *, seconds: float) -> dt.timedelta | None:
    """Return by how much this kind of work is overdue if the round is ours, else None.

    The next round is `seconds` later.
    """
    turn, now = open_turn(name), leases.database_now()
    ours = SweepTurn.objects.filter(pk=name, next_at__lte=now, next_at=turn.next_at).update(
        next_at=now + dt.timedelta(seconds=seconds)
    )
    return now - turn.next_at if ours else None


def postpone_turn(name: str, *, seconds: float) -> None:
    """Have the next round of a kind of work no sooner than in `seconds`."""
    SweepTurn.objects.filter(pk=name).update(
        next_at=leases.database_now() + dt.timedelta(seconds=seconds)
    )
