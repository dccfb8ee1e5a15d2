"""Choose among a segment's takes: the best is kept, one that stands out in its job is made again.

A candidate is what `Segment.candidates` holds of one take: its id, seed, length, score and flags;
`heard`, where it was transcribed, and `chosen`, where a person found it good.
"""

from __future__ import annotations

import hashlib
import statistics
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from django.db.models import F

from synth.models import RenderJob, Segment, Take
from ttsweb import leases
from ttsweb.work import Kind, enqueue

Candidate = dict[str, Any]

# Further takes, each with another seed, that follow a suspicious one where the job says no number.
QUALITY_RETAKES = 2
# The same for a take of a book that is too short for its text: the book cannot succeed with it.
BOOK_SHORT_RETAKES = 32
TOO_SHORT = "too_short"  # the flag of the quality screen that keeps a book from succeeding
_MOST_IN_SERIES = 64
_NO_WORDS = {TOO_SHORT, "silent"}


def retake_seed(seed: int, number: int) -> int:
    """Return the seed, 0 to 2**63 - 1, of a segment's take number 1, 2, … after its first one.

    It depends on nothing else, so that a retry, and another book with the sentence, find the take.
    """
    digest = hashlib.sha256(f"retake\n{seed}\n{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def next_seed(seed: int, candidates: Sequence[Candidate]) -> int:
    """Return the first seed of a segment's series that none of its takes has.

    Args:
        seed: that of its present take, which may be none of the candidates.
    """
    known = {seed, *(one["seed"] for one in candidates)}
    first = candidates[0]["seed"] if candidates else seed
    return next(
        found
        for number in range(1, len(known) + 2)
        if (found := retake_seed(first, number)) not in known
    )


def place_in_series(seed: int, candidates: Sequence[Candidate]) -> int:
    """Return which retake of a segment's series has this seed, from 1; 0 is the first take.

    A seed that is none of the series, such as one that somebody gave, has no place in it: 0.
    """
    if not candidates or seed == candidates[0]["seed"]:
        return 0
    first = candidates[0]["seed"]
    places = range(1, len(candidates) + _MOST_IN_SERIES)
    return next((one for one in places if retake_seed(first, one) == seed), 0)


def most_retakes(job: RenderJob, flags: Collection[str]) -> int:
    """Return how many further takes may follow one of this job with these flags."""
    if job.max_retakes is not None:
        return job.max_retakes
    if job.kind == RenderJob.Kind.BOOK and TOO_SHORT in flags:
        return max(QUALITY_RETAKES, BOOK_SHORT_RETAKES)
    return QUALITY_RETAKES


def with_candidate(candidates: Collection[Candidate], take: Take, seed: int) -> list[Candidate]:
    """Return the candidates with this take among them, once; what is known of it already stays."""
    if any(one["take"] == str(take.pk) for one in candidates):
        return list(candidates)
    heard = take.measures.get("asr_text")
    candidate = {
        "take": str(take.pk),
        "seed": seed,
        "seconds": round(take.audio_seconds, 3),
        "score": take.quality_score,
        "flags": list(take.quality_flags),
        "measures": list(take.measures.get("screen", ())),
        **({} if heard is None else {"heard": heard}),
    }
    return [*candidates, candidate]


def approved(candidates: Collection[Candidate], take: Take) -> list[Candidate]:
    """Return the candidates with this take marked as one that a person found good."""
    return [one | {"chosen": True} if one["take"] == str(take.pk) else one for one in candidates]


def flagged(candidate: Candidate, flags: Mapping[str, float]) -> Candidate:
    """Return a candidate with further flags, each with what it leaves of the score, 0 to 1."""
    score = 1.0 if candidate["score"] is None else candidate["score"]
    for factor in flags.values():
        score *= factor
    return candidate | {"flags": [*candidate["flags"], *flags], "score": round(score, 4)}


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the highest score, of equal ones the first; without one is 1.

    One that is too short for its text lacks words: any other, however poor, goes before it.
    """

    def worth(candidate: Candidate) -> tuple[bool, float]:
        score = candidate["score"]
        return _NO_WORDS.isdisjoint(candidate["flags"]), 1.0 if score is None else score

    return max(candidates, key=worth)


def keep_best(row: Segment, take: Take) -> tuple[Take, dict[str, Any]]:
    """Return the take that a segment keeps now that it has one more, and the columns of that.

    It is the best, or this one where a person asked for it. Call it in the transaction that writes
    the columns.
    """
    candidates = with_candidate(row.candidates, take, row.seed)
    take.candidate_of.add(row.pk)
    if row.is_hand_picked:
        return take, {"candidates": candidates, "seed": row.seed}
    return _best(candidates, take, row.seed)


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
    freed = leases.free(spend_attempt=True, is_name_kept=True)
    for segment in rows.order_by("pk"):
        if not segment.candidates:
            continue
        best = best_of(segment.candidates)
        take = Take.objects.filter(pk=best["take"]).first()
        columns = freed | {"take": take, "seed": best["seed"]}
        held = Segment.objects.filter(pk=segment.pk, status=segment.status)
        if take is not None and held.update(
            status=Segment.Status.DONE, finished_at=leases.database_now(), **columns
        ):
            amounts["segments_done"] += 1
            amounts["audio_seconds"] += take.audio_seconds + segment.pause_after_ms / 1000
    return amounts


FEWEST_TAKES = 8  # of one speaker; what is usual cannot be told from fewer
LEVEL_DB, LEVEL_SPREADS = 8.0, 6.0  # off the middle, in dB and in medians of how far all are off it
FASTEST_SHARE, SLOWEST_SHARE = 0.5, 2.0  # of the middle one's time for its text
_FACTOR = 0.5  # of the score: worse than a take without a flag, better than half a sentence


def retake_outliers(jobs: Sequence[RenderJob]) -> set[uuid.UUID]:
    """Queue again the segments whose takes stand out among those of their speaker in their job.

    Call it with all of the jobs' segments closed and their rows locked. Where no further take may
    follow, the best of a segment's takes is kept.

    Returns:
        The jobs of which segments were queued, so that they are not complete.
    """
    fresh = [job for job in jobs if not job.takes_compared]
    again: dict[uuid.UUID, list[int]] = {}
    for job in fresh:
        if job.segments_done < FEWEST_TAKES:
            continue
        for segment, flags in _outliers(job):
            if _note(segment, flags, job):
                again.setdefault(job.pk, []).append(segment.pk)
    compared = [job.pk for job in fresh if job.pk not in again]
    RenderJob.objects.filter(pk__in=compared).update(takes_compared=True)
    for ids in again.values():
        enqueue(Kind.SEGMENT, ids)
    return set(again)


def _outliers(job: RenderJob) -> Iterator[tuple[Segment, dict[str, float]]]:
    """Yield the segments whose takes stand out and were not found to do so before, with flags."""
    done = job.segments.filter(status=Segment.Status.DONE, take__quality_score__isnull=False)
    by_speaker: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
    for speaker, pk, active_dbfs, pace in done.order_by("pk").values_list(
        "speaker", "pk", "take__measures__active_dbfs", "take__measures__pace"
    ):
        if active_dbfs is not None and pace is not None:
            by_speaker[speaker].append((pk, active_dbfs, pace))
    found: dict[int, dict[str, float]] = {}
    for rows in by_speaker.values():
        if len(rows) >= FEWEST_TAKES:
            _compare(rows, found)
    segments = job.segments.filter(pk__in=found, is_hand_picked=False).select_related("take")
    for segment in segments.order_by("pk"):
        mine = [one for one in segment.candidates if one["take"] == str(segment.take_id)]
        if not any("level" in one["flags"] or "rhythm" in one["flags"] for one in mine):
            yield segment, found[segment.pk]


def _compare(rows: Sequence[tuple[int, float, float]], found: dict[int, dict[str, float]]) -> None:
    """Add the flags of one speaker's takes that stand out, by segment."""
    level = statistics.median(row[1] for row in rows)
    spread = statistics.median(abs(row[1] - level) for row in rows)
    pace = statistics.median(row[2] for row in rows)
    far = max(LEVEL_DB, LEVEL_SPREADS * spread)
    for pk, active_dbfs, own_pace in rows:
        flags = {}
        if abs(active_dbfs - level) > far:
            flags["level"] = _FACTOR * far / abs(active_dbfs - level)
        if pace and not FASTEST_SHARE <= own_pace / pace <= SLOWEST_SHARE:
            flags["rhythm"] = _FACTOR
        if flags:
            found[pk] = flags


def _note(segment: Segment, flags: dict[str, float], job: RenderJob) -> bool:
    """Write flags into a segment's candidates; return whether it was queued for another take."""
    take = segment.take
    if take is None:
        return False
    candidates = [
        flagged(one, flags) if one["take"] == str(take.pk) else one
        for one in with_candidate(segment.candidates, take, segment.seed)
    ]
    held = Segment.objects.filter(pk=segment.pk, status=Segment.Status.DONE, take=take)
    if segment.retakes < most_retakes(job, take.quality_flags):
        moved = held.update(
            status=Segment.Status.QUEUED,
            take=None,
            seed=next_seed(segment.seed, candidates),
            retakes=segment.retakes + 1,
            candidates=candidates,
            finished_at=None,
            **leases.untried(),
        )
        if moved:
            seconds = take.audio_seconds + segment.pause_after_ms / 1000
            _count(job, segments_done=-1, audio_seconds=-seconds)
    else:
        moved = 0
        kept, columns = _best(candidates, take, segment.seed)
        if held.update(take=kept, **columns):
            _count(job, audio_seconds=kept.audio_seconds - take.audio_seconds)
    segment.candidate_takes.add(take)
    return bool(moved)


def _best(candidates: list[Candidate], take: Take, seed: int) -> tuple[Take, dict[str, Any]]:
    """Return the best of the takes, `take` where that is gone, and the columns of it."""
    best = best_of(candidates)
    kept = Take.objects.filter(pk=best["take"]).first()
    seed = seed if kept is None else best["seed"]
    return kept or take, {"candidates": candidates, "seed": seed}


def _count(job: RenderJob, **amounts: float) -> None:
    RenderJob.objects.filter(pk=job.pk).update(
        **{name: F(name) + amount for name, amount in amounts.items()}
    )
