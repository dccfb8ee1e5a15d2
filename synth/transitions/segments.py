"""Move claimed segments: finish, take again, fail, cancel, release; reopen what is done."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Case, F, Q, Value, When

from synth.jobs.removal import lock_jobs
from synth.models import RenderedDay, RenderJob, Segment, Take
from synth.transitions.jobs import count_all_closed, count_closed
from synth.transitions.takes import best_of, keep_best, most_retakes, next_seed, with_candidate
from ttsweb import leases
from ttsweb.leases import AnyClaim, Claim
from ttsweb.work import Kind, enqueue


def finish_segments(
    done: Sequence[tuple[AnyClaim, Take]], *, reused: Collection[AnyClaim] = ()
) -> set[AnyClaim]:
    """Move many segments CLAIMED -> DONE, each with its take, in one transaction.

    A segment that had suspicious takes before gets the best of them all, unless a person asked for
    this one.

    Args:
        reused: those of the claims whose take was there already.

    Returns:
        The claims that were settled; the others are gone, and nothing was changed for them.
    """
    takes = {claim: take for claim, take in done}
    with transaction.atomic():
        jobs = Segment.objects.filter(pk__in=[claim.pk for claim in takes]).values("job")
        lock_jobs(RenderJob.objects.filter(pk__in=jobs))
        found = Segment.objects.filter(
            pk__in=[claim.pk for claim in takes], status=Segment.Status.CLAIMED
        ).defer("text", "spoken_text")
        held = found.select_for_update().order_by("pk")
        rows = {(row.pk, row.claim_token): row for row in held}
        settled = {claim: row for claim in takes if (row := rows.get((claim.pk, claim.token)))}
        if not settled:
            return set()
        rendered = [(takes[claim], claim in reused) for claim in settled]
        compared = {
            claim: keep_best(row, takes[claim])
            for claim, row in settled.items()
            if row.candidates or takes[claim].quality_flags
        }
        takes |= {claim: take for claim, (take, _) in compared.items()}
        Segment.objects.filter(pk__in=[claim.pk for claim in settled]).update(
            take=Case(*[When(pk=claim.pk, then=Value(takes[claim].pk)) for claim in settled]),
            status=Segment.Status.DONE,
            finished_at=leases.database_now(),
            **leases.free(spend_attempt=True, is_name_kept=True),
        )
        for claim, (_, changes) in compared.items():
            Segment.objects.filter(pk=claim.pk).update(**changes)
        amounts: dict[uuid.UUID, dict[str, float]] = {}
        for claim, row in settled.items():
            amount = amounts.setdefault(row.job_id, defaultdict(int))
            amount["segments_done"] += 1
            amount["takes_reused" if claim in reused else "takes_rendered"] += 1
            amount["audio_seconds"] += takes[claim].audio_seconds + row.pause_after_ms / 1000
        count_all_closed(amounts)
        count_rendered(rendered, segments=len(settled))
    return set(settled)


def finish_with_candidate(claim: Claim) -> bool:
    """Move CLAIMED -> DONE with the best take that there is, because another one cannot be made.

    Returns False where there is none, the claim is gone, or a person asked for another take.
    """
    held = Segment.objects.filter(pk=claim.pk, claim_token=claim.token, is_hand_picked=False)
    segment = held.only("candidates").first()
    if segment is None or not segment.candidates:
        return False
    take = Take.objects.filter(pk=best_of(segment.candidates)["take"]).first()
    return take is not None and bool(finish_segments([(claim, take)], reused=[claim]))


def fail_segment(claim: Claim, *, code: str, message: str) -> bool:
    """Move CLAIMED -> FAILED; its job goes on without it. False when the claim is gone."""
    return _close(claim, Segment.Status.FAILED, error_code=code, error_message=message)


def cancel_segment(claim: Claim) -> bool:
    """Move CLAIMED -> CANCELLED after its job was cancelled; False when the claim is gone."""
    return _close(claim, Segment.Status.CANCELLED)


def _close(claim: Claim, status: Segment.Status, **columns: Any) -> bool:
    with transaction.atomic():
        locked = lock_jobs(RenderJob.objects.filter(segments=claim.pk))
        is_ours = leases.end(Segment, claim, status, **columns)
        if is_ours:
            count_closed(locked[0], **{f"segments_{status}": 1})
    return is_ours


def reopen_segments(segment_ids: Iterable[int]) -> int:
    """Move DONE -> QUEUED because a take's audio is gone; the job is completed again afterwards."""
    reopened, ids = 0, list(segment_ids)
    with transaction.atomic():
        jobs = Segment.objects.filter(pk__in=ids).values("job")
        lock_jobs(RenderJob.objects.filter(pk__in=jobs))
        for segment in Segment.objects.filter(pk__in=ids).select_related("take"):
            again = leases.free(spend_attempt=True) | {"attempts": 0, "losses": 0, "take": None}
            done = Segment.objects.filter(pk=segment.pk, status=Segment.Status.DONE)
            if done.update(status=Segment.Status.QUEUED, **again):
                seconds = segment.pause_after_ms / 1000
                seconds += segment.take.audio_seconds if segment.take else 0.0
                count_closed(segment.job_id, segments_done=-1, audio_seconds=-seconds)
                reopened += 1
    return reopened


def keep_or_fail_segment(claim: Claim, *, code: str, message: str) -> bool:
    """End a segment that cannot be rendered, with the best of the takes before or as failed."""
    return finish_with_candidate(claim) or fail_segment(claim, code=code, message=message)


def free_lost_segments(lost: Q) -> int:
    """Give back segments whose claim meets `lost`, as `settle_lost` does all rows.

    Those of a cancelled job are cancelled, and what may run no more gets the best of its
    suspicious takes.
    """
    rows = Segment.objects.filter(lost, status=Segment.Status.CLAIMED, job__cancel_requested=True)
    cancelled = list(rows.values_list("pk", "claim_token"))
    count = sum(cancel_segment(Claim(pk, token)) for pk, token in cancelled if token is not None)
    return count + leases.settle_lost(Segment, lost, fail=keep_or_fail_segment)


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


def retake_segments(
    done: Sequence[tuple[AnyClaim, Take]], *, reused: Collection[AnyClaim] = ()
) -> set[AnyClaim]:
    """Queue again the segments whose take is suspicious and may be followed by another one.

    The take becomes a candidate. No attempt is spent: nothing went wrong with the work itself.

    Args:
        reused: those of the claims whose take was there already.

    Returns:
        The claims that were let go; the others are to be finished with their takes.
    """
    suspicious = {claim: take for claim, take in done if take.quality_flags}
    if not suspicious:
        return set()
    with transaction.atomic():
        jobs = Segment.objects.filter(pk__in=[claim.pk for claim in suspicious]).values("job")
        lock_jobs(RenderJob.objects.filter(pk__in=jobs))
        moved = [claim for claim, take in suspicious.items() if _retake(claim, take)]
        for claim in moved:
            column = "takes_reused" if claim in reused else "takes_rendered"
            job = Segment.objects.filter(pk=claim.pk).values("job")
            RenderJob.objects.filter(pk__in=job).update(**{column: F(column) + 1})
        enqueue(Kind.SEGMENT, [claim.pk for claim in moved])
        if new := [(suspicious[claim], False) for claim in moved if claim not in reused]:
            count_rendered(new, segments=0)
    return set(moved)


def _retake(claim: Claim, take: Take) -> bool:
    held = leases.held(Segment, claim).filter(
        is_hand_picked=False, job__in=RenderJob.objects.filter(cancel_requested=False)
    )
    segment = held.select_related("job").defer("job__text").first()
    if segment is None or segment.retakes >= most_retakes(segment.job, take.quality_flags):
        return False
    candidates = with_candidate(segment.candidates, take, segment.seed)
    moved = held.update(
        status=Segment.Status.QUEUED,
        seed=next_seed(segment.seed, candidates),
        retakes=segment.retakes + 1,
        candidates=candidates,
        content_key="",
        **leases.free(spend_attempt=False),
    )
    if moved:
        segment.candidate_takes.add(take)
    return bool(moved)
