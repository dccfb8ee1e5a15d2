"""Decide which of a segment's takes is kept once there are several, or one that is suspicious."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from synth.models import Take
from synth.transitions.candidates import Candidate, best_of, with_candidate


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
