"""Keep the order of chained segments: each waits for the earlier ones, and goes where these go.

A segment waits while an earlier one of its chain is queued or claimed, and no longer: what failed
or was cancelled holds up nothing, and the next one is rendered without it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence

from django.db.models import F

from synth.jobs.removal import delete_takes
from synth.models import RenderJob, Segment
from synth.transitions.jobs import OPEN, reopen_job
from ttsweb import leases
from ttsweb.leases import AnyClaim
from ttsweb.work import Kind, enqueue


def earlier_segments(chained: Collection[Segment]) -> dict[int, list[Segment]]:
    """Return by primary key the earlier segments of chained ones, the next before first.

    With their takes, in a query for all.
    """
    rows = Segment.objects.filter(
        chapter__in={one.chapter_id for one in chained}, chain__in={one.chain for one in chained}
    )
    by_chain: dict[tuple[int, int | None], list[Segment]] = defaultdict(list)
    names = ("chapter_id", "chain", "index", "status", "spoken_text", "take")
    for row in rows.select_related("take").only(*names, *_TAKE).order_by("-index"):
        by_chain[row.chapter_id, row.chain].append(row)
    return {
        one.pk: [row for row in by_chain[one.chapter_id, one.chain] if row.index < one.index]
        for one in chained
    }


_TAKE = ("take__content_key", "take__codes_key", "take__frames")


def note_history(used: Mapping[AnyClaim, int]) -> None:
    """Write after how many earlier segments claimed ones are rendered."""
    for number in set(used.values()):
        tokens = {claim.token for claim, count in used.items() if count == number}
        pks = [claim.pk for claim, count in used.items() if count == number]
        rows = Segment.objects.filter(pk__in=pks, claim_token__in=tokens)
        rows.update(history_used=number)


def reopen_followers(segment: Segment) -> int:
    """Queue again what was rendered after a segment that changes, and what after that; see `_move`.

    What a person chose stays. Call it with the job's row locked; returns how many were done.
    """
    history = RenderJob.objects.values_list("history", flat=True).get(pk=segment.job_id)
    if segment.chain is None or not history or not segment.chain_left:
        return 0
    later = Segment.objects.select_for_update(of=("self",)).filter(
        chapter=segment.chapter_id, chain=segment.chain, index__gt=segment.index
    )
    changed = deque([True], maxlen=history)  # of the last few segments, those that were spoken
    moved: list[Segment] = []
    for row in later.order_by("index"):
        is_spoken = row.status in (*OPEN, Segment.Status.DONE)
        is_kept = row.status == Segment.Status.DONE and row.is_hand_picked
        if not is_spoken:
            changed.clear()
        is_moved = is_spoken and not is_kept and any(changed)
        changed.append(is_moved)
        if is_moved:
            moved.append(row)
    _move(moved)
    return sum(row.status == Segment.Status.DONE for row in moved)


def _move(rows: Sequence[Segment]) -> None:
    """Move DONE, CLAIMED or QUEUED -> QUEUED, as if nothing had been rendered of them."""
    takes = {row.take_id for row in rows if row.take_id is not None}
    for row in rows:
        takes.update(row.candidate_takes.values_list("pk", flat=True))
        row.candidate_takes.clear()
        first = row.candidates[0]["seed"] if row.candidates and not row.is_hand_picked else row.seed
        Segment.objects.filter(pk=row.pk).update(
            status=Segment.Status.QUEUED,
            take=None,
            seed=first,
            candidates=[],
            retakes=0,
            history_used=None,
            content_key="",
            finished_at=None,
            **leases.free(spend_attempt=True) | leases.untried(),
        )
    done = [row for row in rows if row.status == Segment.Status.DONE]
    if done:
        reopen_job(done[0].job_id, segments_done=F("segments_done") - len(done))
    delete_takes(takes)
    if rows:
        enqueue(Kind.SEGMENT, [row.pk for row in rows])
