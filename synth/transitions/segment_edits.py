"""Change segments at a person's wish: render one again, keep another take, or approve takes.

The job is opened again and its file made anew. No other segment moves but those of its chain that
were rendered after it, in a job with history. An approval makes no file.

In a chain each segment waits while an earlier one is queued or claimed, and no longer: what failed
or was cancelled holds up nothing, and the next one is rendered without it.
"""

from __future__ import annotations

import uuid
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet

from synth.audiobooks.proof import gap_of
from synth.jobs.removal import delete_takes, lock_jobs
from synth.models import RenderJob, Segment, Take
from synth.signals import job_approved
from synth.transitions.jobs import OPEN, JobStatus, complete_jobs, reopen_job
from synth.transitions.segments import reopen_segments
from synth.transitions.takes import Candidate, approved, next_seed, with_candidate
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


CHANGEABLE = (Segment.Status.DONE, Segment.Status.FAILED)


def render_again(segment_id: int, *, seed: int | None = None) -> bool:
    """Move DONE or FAILED -> QUEUED, to be rendered with another seed.

    The take so far stays a candidate.

    Args:
        seed: in [0, 2**63); None takes the next of the segment's series.

    Returns:
        False when the segment is in another state or its job is cancelled; nothing was changed.
    """
    with transaction.atomic():
        segment = _lock(segment_id)
        if segment is None:
            return False
        candidates = _keep_take(segment)
        chosen = next_seed(segment.seed, candidates) if seed is None else seed
        reopen_followers(segment)
        _queue(segment, seed=chosen, candidates=candidates, is_hand_picked=True)
    return True


def say_otherwise(segment_id: int, *, spoken_text: str, seed: int, is_hand_picked: bool) -> bool:
    """Move DONE or FAILED -> QUEUED, to be rendered as another text; the takes so far go.

    Args:
        is_hand_picked: a person asked for this seed, so that its take is kept as it comes.

    Returns:
        False when the segment is in another state or its job is cancelled; nothing was changed.
    """
    with transaction.atomic():
        segment = _lock(segment_id)
        if segment is None:
            return False
        takes = set(segment.candidate_takes.values_list("pk", flat=True))
        if segment.take is not None:
            takes.add(segment.take.pk)
        segment.candidate_takes.clear()
        reopen_followers(segment)
        _queue(
            segment,
            spoken_text=spoken_text,
            seed=seed,
            is_hand_picked=is_hand_picked,
            candidates=[],
            retakes=0,
        )
        delete_takes(takes)
    return True


def choose_take(segment_id: int, take_id: uuid.UUID) -> bool:
    """Keep another one of a segment's takes; the job's file is made again.

    Nothing is rendered but what was rendered after it. The one that it keeps already is approved,
    and the file stays.

    Returns False when the segment is being rendered, its job is cancelled, or it has no such take.
    """
    with transaction.atomic():
        segment = _lock(segment_id)
        if segment is None:
            return False
        if segment.take_id == take_id:
            return bool(approve_takes({segment_id: take_id}))
        take = segment.candidate_takes.filter(pk=take_id).first()
        known = [one["seed"] for one in segment.candidates if one["take"] == str(take_id)]
        if take is None or not known:
            return False
        Segment.objects.filter(pk=segment_id).update(
            status=Segment.Status.DONE,
            take=take,
            seed=known[0],
            candidates=approved(_keep_take(segment), take),
            is_hand_picked=True,
            error_code="",
            error_message="",
            finished_at=leases.database_now(),
        )
        if segment.status == Segment.Status.DONE:
            reopen_job(segment.job_id)
        else:
            done, failed = F("segments_done") + 1, F("segments_failed") - 1
            reopen_job(segment.job_id, segments_done=done, segments_failed=failed)
        reopen_followers(segment)
        complete_jobs([segment.job_id])
    return True


def render_lost_again(segment_ids: Sequence[int]) -> bool:
    """Move DONE -> QUEUED where the audio of takes is gone, of a job that may have ended.

    Returns False when the job is cancelled: nothing of it is rendered until it is retried.
    """
    with transaction.atomic():
        jobs = Segment.objects.filter(pk__in=segment_ids).order_by().values("job")
        locked = lock_jobs(RenderJob.objects.filter(pk__in=jobs))
        open_jobs = RenderJob.objects.filter(pk__in=locked, cancel_requested=False)
        if open_jobs.exclude(status=JobStatus.CANCELLED).count() < len(locked) or not locked:
            return False
        for job_id in locked:
            reopen_job(job_id)
        reopen_segments(segment_ids)
        enqueue(Kind.SEGMENT, segment_ids)
    return True


def _lock(segment_id: int) -> Segment | None:
    """Lock a segment that may be changed, after its job; None where it may not."""
    lock_jobs(RenderJob.objects.filter(segments=segment_id))
    segment = _of_living_jobs().filter(pk=segment_id, status__in=CHANGEABLE).first()
    if segment is not None and segment.take_id is not None:
        segment.take = Take.objects.filter(pk=segment.take_id).first()
    return segment


def _of_living_jobs() -> QuerySet[Segment]:
    rows = Segment.objects.select_for_update(of=("self",))
    return rows.filter(~Q(job__status=JobStatus.CANCELLED), job__cancel_requested=False)


def _keep_take(segment: Segment) -> list[Candidate]:
    """Note a segment's take among its candidates; return these."""
    candidates: list[Candidate] = segment.candidates
    if segment.take is not None:
        candidates = with_candidate(candidates, segment.take, segment.seed)
        segment.candidate_takes.add(segment.take)
    return candidates


def _queue(segment: Segment, **changes: Any) -> None:
    Segment.objects.filter(pk=segment.pk).update(
        status=Segment.Status.QUEUED,
        take=None,
        error_code="",
        error_message="",
        finished_at=None,
        content_key="",
        history_used=None,
        **leases.untried(),
        **changes,
    )
    counter = f"segments_{segment.status}"
    reopen_job(segment.job_id, **{counter: F(counter) - 1})
    enqueue(Kind.SEGMENT, [segment.pk])


BOOK_SEGMENTS_SHORT = "book_segments_short"


def approve_takes(seen: Mapping[int, uuid.UUID]) -> set[int]:
    """Keep takes as good; a book that was partial for short takes alone succeeds after the last.

    Once more it changes nothing.

    Args:
        seen: by segment, the take that was listened to.

    Returns:
        The segments that are approved; the others keep another take by now, have none, or belong
        to a cancelled job, and nothing was changed of them.
    """
    with transaction.atomic():
        jobs = Segment.objects.filter(pk__in=seen).values("job")
        lock_jobs(RenderJob.objects.filter(pk__in=jobs))
        rows = _of_living_jobs().filter(pk__in=seen, status=Segment.Status.DONE)
        found = [row for row in rows.order_by("pk") if row.take_id == seen[row.pk]]
        takes = Take.objects.in_bulk({row.take_id for row in found if row.take_id is not None})
        for segment in found:
            _approve(segment, takes[seen[segment.pk]])
        for job_id in sorted({segment.job_id for segment in found}):
            end_as_whole(job_id)
    return {segment.pk for segment in found}


def end_as_whole(job_id: uuid.UUID) -> bool:
    """Move a book PARTIAL -> SUCCEEDED whose short takes are all approved by now.

    Its file is there and stays: no take of it changed; the summary of a batch that has ended says
    so as well. Call it with the job's row locked.
    """
    partial = RenderJob.objects.filter(
        pk=job_id, status=JobStatus.PARTIAL, error_code=BOOK_SEGMENTS_SHORT
    )
    job = partial.defer("text").first()
    if job is None:
        return False
    gap, now = gap_of(job), leases.database_now()
    if gap is not None:
        partial.update(error_code=gap.code, error_message=gap.message, updated_at=now)
        return False
    moved = partial.update(
        status=JobStatus.SUCCEEDED, error_code="", error_message="", updated_at=now
    )
    if moved:
        job_approved.send(RenderJob, job=job)
    return bool(moved)


def _approve(segment: Segment, take: Take) -> None:
    candidates = approved(with_candidate(segment.candidates, take, segment.seed), take)
    if segment.is_hand_picked and candidates == segment.candidates:
        return
    segment.candidate_takes.add(take)
    Segment.objects.filter(pk=segment.pk).update(is_hand_picked=True, candidates=candidates)
