"""Find the segments that need somebody's ears, over all jobs that a user may see, worst first.

What needs them is found from the few rows that can: failed segments, segments that have candidates,
and those of books that are partial for short takes. So 200 whole books beside them cost nothing.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Coalesce, Left, Round

from synth.accounts.access import visible_jobs
from synth.models import RenderJob, Segment
from synth.review.short_segments import short_among

UNSCORED = 0.1  # the score of a take that nothing else was measured of
_Query = tuple[str, tuple[Any, ...]]


class _OfKept(Func):
    """One value of the candidate whose take is kept; NULL where there is none.

    Takes the columns of the candidates and of the take; `name` is the candidate's key.
    """

    name = ""
    postgresql_value = "one.value ->> '{name}'"
    sqlite_value = "json_extract(one.value, '$.{name}')"

    def __init__(self) -> None:
        columns: tuple[Combinable, ...] = (F("candidates"), F("take_id"))
        super().__init__(*columns)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> _Query:
        """Return the query for PostgreSQL."""
        value = self.postgresql_value.format(name=self.name, unscored=UNSCORED)
        return self._select(
            compiler,
            f"SELECT {value} FROM jsonb_array_elements({{candidates}}) AS one(value)"
            " WHERE one.value ->> 'take' = {take}::text LIMIT 1",
        )

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> _Query:
        """Return the query for SQLite, whose ids have no hyphens."""
        value = self.sqlite_value.format(name=self.name, unscored=UNSCORED)
        return self._select(
            compiler,
            f"SELECT {value} FROM json_each({{candidates}}) AS one"
            " WHERE replace(json_extract(one.value, '$.take'), '-', '') = {take} LIMIT 1",
        )

    def _select(self, compiler: Any, query: str) -> _Query:
        found = [compiler.compile(one) for one in self.get_source_expressions()]
        (candidates, first), (take, second) = found
        return f"({query.format(candidates=candidates, take=take)})", (*first, *second)


class KeptScore(_OfKept):
    """The score of the kept take among the segment's takes; NULL where nothing was screened."""

    name = "score"
    postgresql_value = "CAST(one.value ->> '{name}' AS double precision)"
    output_field = FloatField()


class KeptFlags(_OfKept):
    """The flags of the kept take as a text of JSON, such as `["noise"]`."""

    name = "flags"
    output_field = TextField()


class KeptIsChosen(_OfKept):
    """Whether a person listened to the kept take and said that it is good."""

    name = "chosen"
    postgresql_value = "CAST(one.value ->> '{name}' AS boolean)"
    output_field = BooleanField()


class KeptFlaggedScore(_OfKept):
    """The score of a kept take that has flags and that nobody approved; NULL of any other.

    One look at the candidates tells what ranks a segment: a list looks at many thousands of them.
    """

    name = "score"
    postgresql_value = (
        "CASE WHEN COALESCE(one.value ->> 'flags', '[]') <> '[]'"
        " AND COALESCE(CAST(one.value ->> 'chosen' AS boolean), false) = false"
        " THEN COALESCE(CAST(one.value ->> '{name}' AS double precision), {unscored}) END"
    )
    sqlite_value = (
        "CASE WHEN COALESCE(json_extract(one.value, '$.flags'), '[]') <> '[]'"
        " AND NOT COALESCE(json_extract(one.value, '$.chosen'), 0)"
        " THEN COALESCE(json_extract(one.value, '$.{name}'), {unscored}) END"
    )
    output_field = FloatField()


TITLE_CHARS = 80
_SCORES, _IDS = 10_000, 2**40  # a score has four decimals; an id is below this
_IS_FAILED = Q(status=Segment.Status.FAILED)
_IS_FLAGGED = Q(status=Segment.Status.DONE, flagged_score__isnull=False)


def reviewable(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Segment]:
    """Return all segments of a user's jobs, with what a review asks of each.

    `rank` is less for a worse one and unique.
    """
    return _reviewable(user, short_among(visible_jobs(user)))


def to_review(
    user: AbstractBaseUser | AnonymousUser, *, approved: bool = False
) -> QuerySet[Segment]:
    """Return the segments that need ears, or those whose take a person approved; not ordered.

    Those of cancelled jobs, which nobody can change, are left out.
    """
    short = short_among(visible_jobs(user))
    changeable = _reviewable(user, short).filter(job__cancel_requested=False)
    changeable = changeable.exclude(job__status=RenderJob.Status.CANCELLED)
    compared = Segment.candidate_takes.through.objects.values("segment_id")
    if approved:
        return changeable.filter(pk__in=compared, status=Segment.Status.DONE, approved=True)
    failed = Segment.objects.filter(_IS_FAILED).order_by().values("pk")
    others = Segment.objects.filter(short).order_by().values("pk")
    needs = _IS_FAILED | _IS_FLAGGED | Q(is_short=True)
    return changeable.filter(needs, pk__in=compared.union(failed, others))


def _reviewable(user: AbstractBaseUser | AnonymousUser, short: Q) -> QuerySet[Segment]:
    jobs = visible_jobs(user).order_by().values("pk")
    segments = Segment.objects.filter(job__in=jobs).annotate(
        kept_flags=Coalesce(KeptFlags(), Value("[]"), output_field=TextField()),
        kept_score=KeptScore(),
        flagged_score=KeptFlaggedScore(),
        approved=Coalesce(KeptIsChosen(), Value(False), output_field=BooleanField()),
        is_short=Case(When(short, then=Value(True)), default=Value(False)),
        job_title=Left("job__text", TITLE_CHARS),
    )
    whole = BigIntegerField()
    score = Coalesce(
        "flagged_score",
        Case(When(is_short=True, then=Value(UNSCORED)), output_field=FloatField()),
        "kept_score",
        Value(1.0),
    )
    worst_first = Case(
        When(_IS_FAILED, then=Value(0)),
        default=Cast(Round(score * _SCORES), whole) + 1,
        output_field=whole,
    )
    # A sum of whole numbers would be an IntegerField, which on PostgreSQL has 32 bits.
    rank = ExpressionWrapper(worst_first * Value(_IDS, whole) + F("pk"), output_field=whole)
    return (
        segments.annotate(rank=rank)
        .select_related("take", "chapter", "job")
        .defer("job__text", "job__lexicon")
    )
