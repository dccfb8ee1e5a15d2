"""Find the segments that need somebody's ears, over all jobs that a user may see, worst first.

What needs them is found from the few rows that can: failed segments, segments that have candidates,
and those of books that are partial for short takes. So 200 whole books beside them cost nothing.
"""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    ExpressionWrapper,
    F,
    FloatField,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Cast, Coalesce, Left, Length, Replace, Round

from synth.access import visible_jobs
from synth.bookshelf.proof import MOST_CHARS_PER_SECOND
from synth.models import RenderJob, Segment
from synth.review.kept_take import KeptFlags, KeptIsChosen, KeptScore
from synth.transitions.approving import BOOK_SEGMENTS_SHORT

TITLE_CHARS = 80
_SCORES, _IDS = 10_000, 2**40  # a score has four decimals; an id is below this
_SHORT_SCORE = 0.1  # of a take that nothing else was measured of
_IS_FAILED = Q(status=Segment.Status.FAILED)
_HAS_FLAGS = Q(status=Segment.Status.DONE, kept_flags__startswith='["')
# As the proof of a book has it: nobody speaks so fast.
_IS_SHORT = Q(
    status=Segment.Status.DONE,
    is_hand_picked=False,
    job__status=RenderJob.Status.PARTIAL,
    job__error_code=BOOK_SEGMENTS_SHORT,
    take__audio_seconds__lt=Cast(
        Length(Replace("spoken_text", Value(" "), Value(""))), FloatField()
    )
    / Value(MOST_CHARS_PER_SECOND),
)


def reviewable(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Segment]:
    """Return all segments of a user's jobs, with what a review asks of each.

    `rank` is less for a worse one and unique; `score` is 0 for a failed one, else that of its take.
    """
    jobs = visible_jobs(user).order_by().values("pk")
    segments = Segment.objects.filter(job__in=jobs).annotate(
        kept_flags=Coalesce(KeptFlags(), Value("[]"), output_field=TextField()),
        kept_score=KeptScore(),
        approved=Coalesce(KeptIsChosen(), Value(False), output_field=BooleanField()),
        is_short=Case(When(_IS_SHORT, then=Value(True)), default=Value(False)),
        job_title=Left("job__text", TITLE_CHARS),
    )
    score = Case(
        When(_IS_FAILED, then=Value(0.0)),
        When(_HAS_FLAGS, then=Coalesce(F("kept_score"), Value(_SHORT_SCORE))),
        When(is_short=True, then=Value(_SHORT_SCORE)),
        default=Coalesce(F("kept_score"), Value(1.0)),
        output_field=FloatField(),
    )
    whole = BigIntegerField()
    worst_first = Case(
        When(_IS_FAILED, then=Value(0)),
        default=Cast(Round(F("score") * _SCORES), whole) + 1,
        output_field=whole,
    )
    # A sum of whole numbers would be an IntegerField, which on PostgreSQL has 32 bits.
    rank = ExpressionWrapper(worst_first * Value(_IDS, whole) + F("pk"), output_field=whole)
    return (
        segments.annotate(score=score)
        .annotate(rank=rank)
        .select_related("take", "chapter", "job")
        .defer("job__text", "job__lexicon")
    )


def to_review(
    user: AbstractBaseUser | AnonymousUser, *, approved: bool = False
) -> QuerySet[Segment]:
    """Return the segments that need ears, or those whose take a person approved; not ordered.

    Those of cancelled jobs, which nobody can change, are left out.
    """
    changeable = reviewable(user).filter(job__cancel_requested=False)
    changeable = changeable.exclude(job__status=RenderJob.Status.CANCELLED)
    compared = Segment.candidate_takes.through.objects.values("segment_id")
    if approved:
        return changeable.filter(pk__in=compared, status=Segment.Status.DONE, approved=True)
    failed = Segment.objects.filter(_IS_FAILED).order_by().values("pk")
    short = Segment.objects.filter(_IS_SHORT).order_by().values("pk")
    needs = _IS_FAILED | (_HAS_FLAGS & Q(approved=False)) | Q(is_short=True)
    return changeable.filter(needs, pk__in=compared.union(failed, short))
