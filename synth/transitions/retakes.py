"""Have suspicious takes followed by others: CLAIMED -> QUEUED with the next seed of the series."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db import transaction
from django.db.models import F

from synth.jobs.removal import lock_jobs
from synth.models import RenderJob, Segment, Take
from synth.transitions.candidates import most_retakes, next_seed, with_candidate
from synth.transitions.enqueue import enqueue_segments
from synth.transitions.rendered_days import count_rendered
from ttsweb import leases
from ttsweb.leases import Claim


def retake_segments(
    done: Sequence[tuple[Claim, Take]], *, reused: Collection[Claim] = ()
) -> set[Claim]:
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
        enqueue_segments([claim.pk for claim in moved])
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
