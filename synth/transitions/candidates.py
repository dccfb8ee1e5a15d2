"""Keep what was found of a segment's takes beside each other, and pick the best; no rows here.

A candidate is what `Segment.candidates` holds of one take: its id, seed, length, score and flags;
`heard`, where it was transcribed, and `chosen`, where a person found it good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.conf import settings

from synth.models import RenderJob, Take

Candidate = dict[str, Any]

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
        return max(settings.QUALITY_RETAKES, settings.BOOK_SHORT_RETAKES)
    return settings.QUALITY_RETAKES


def candidate_of(take: Take, seed: int) -> Candidate:
    """Return what is kept of a take."""
    heard = take.measures.get("asr_text")
    return {
        "take": str(take.pk),
        "seed": seed,
        "seconds": round(take.audio_seconds, 3),
        "score": take.quality_score,
        "flags": list(take.quality_flags),
        "measures": list(take.measures.get("screen", ())),
        **({} if heard is None else {"heard": heard}),
    }


def with_candidate(candidates: Collection[Candidate], take: Take, seed: int) -> list[Candidate]:
    """Return the candidates with this take among them, once; what is known of it already stays."""
    if any(one["take"] == str(take.pk) for one in candidates):
        return list(candidates)
    return [*candidates, candidate_of(take, seed)]


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
    return max(candidates, key=_worth)


def _worth(candidate: Candidate) -> tuple[bool, float]:
    score = candidate["score"]
    return _NO_WORDS.isdisjoint(candidate["flags"]), 1.0 if score is None else score
