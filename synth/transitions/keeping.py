"""Decide which of a segment's takes is kept once there are several, or one that is suspicious."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any, NamedTuple

from synth.models import Segment, Take
from synth.transitions.candidates import Candidate, best_of, with_candidate
from ttsweb import leases


class HeldRow(NamedTuple):
    """Hold what finishing a claimed segment needs to know of it."""

    job_id: uuid.UUID
    pause_ms: int
    seed: int
    candidates: list[Candidate]
    is_hand_picked: bool


def keep_best(segment_id: int, row: HeldRow, take: Take) -> tuple[Take, dict[str, Any]]:
    """Return the take that a segment keeps now that it has one more, and the columns of that.

    It is the best, or this one where a person asked for it. Call it in the transaction that writes
    the columns.
    """
    candidates = with_candidate(row.candidates, take, row.seed)
    kept, seed = take, row.seed
    if not row.is_hand_picked:
        best = best_of(candidates)
        found = Take.objects.filter(pk=best["take"]).first()
        if found is not None:
            kept, seed = found, best["seed"]
    take.candidate_of.add(segment_id)
    return kept, {"candidates": candidates, "seed": seed}


def keep_candidates(job_id: uuid.UUID, statuses: Collection[str]) -> dict[str, float]:
    """Move to DONE the segments that have suspicious takes, as no further one can be waited for.

    Call it with the job's row locked, and add what it returns to the job's counters.

    Args:
        statuses: of the segments that cannot wait.
    """
    amounts: dict[str, float] = {"segments_done": 0, "audio_seconds": 0.0}
    rows = Segment.objects.filter(
        job_id=job_id, status__in=statuses, retakes__gt=0, is_hand_picked=False
    )
    columns = leases.free(spend_attempt=True, is_name_kept=True)
    for segment in rows.order_by("pk"):
        best = best_of(segment.candidates) if segment.candidates else None
        take = Take.objects.filter(pk=best["take"]).first() if best else None
        if best is None or take is None:
            continue
        held = Segment.objects.filter(pk=segment.pk, status=segment.status)
        if held.update(
            status=Segment.Status.DONE,
            take=take,
            seed=best["seed"],
            finished_at=leases.database_now(),
            **columns,
        ):
            amounts["segments_done"] += 1
            amounts["audio_seconds"] += take.audio_seconds + segment.pause_after_ms / 1000
    return amounts
