"""Count what is rendered on each day (UTC), in rows that stay when jobs are deleted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection

from django.db.models import F

from synth.models import RenderedDay, Take
from ttsweb import leases


def count_rendered(takes: Collection[tuple[Take, bool]], *, segments: int) -> None:
    """Add to today's row; call it last in a transaction, since other workers wait for that row.

    Args:
        takes: each with whether it was there already.
        segments: how many segments were finished with them.
    """
    new = [take for take, is_reused in takes if not is_reused]
    day = leases.database_now().astimezone(dt.UTC).date()
    changes = {
        "segments": F("segments") + segments,
        "reused": F("reused") + len(takes) - len(new),
        "audio_seconds": F("audio_seconds") + sum(take.audio_seconds for take in new),
    }
    if not RenderedDay.objects.filter(day=day).update(**changes):
        RenderedDay.objects.bulk_create([RenderedDay(day=day)], ignore_conflicts=True)
        RenderedDay.objects.filter(day=day).update(**changes)
