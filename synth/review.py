"""Find the segments that need somebody's ears, over all jobs that a user may see, worst first.

What needs them is found from the few rows that can: failed segments, segments that have candidates,
and those of books that are partial for short takes. So 200 whole books beside them cost nothing.
Groups count what is left of each job, so that one job does not hide all others. A take that was
listened to is approved.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.cache.backends.locmem import LocMemCache
from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    Count,
    ExpressionWrapper,
    F,
    Field,
    FloatField,
    Func,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
    Window,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Coalesce, Left, Length, Replace, Round, RowNumber
from django.urls import reverse
from django.utils.text import Truncator

from synth.accounts.access import visible_jobs
from synth.audiobooks.proof import MOST_CHARS_PER_SECOND
from synth.jobs.retry import RetryRefusedError, may_retry, voices_to_check
from synth.models import BookSource, JobVoice, RenderJob, Segment
from synth.transitions.segment_edits import BOOK_SEGMENTS_SHORT, approve_takes
from ttsweb.refusals import POLL_SECONDS

FAILED, FLAGGED, SHORT = "failed", "flagged", "short"
REASONS = (FAILED, FLAGGED, SHORT)


class Flag(NamedTuple):
    """What a flag says of a take, and how its value and its limit are written; `{}` is a number."""

    sentence: str
    numbers: str = ""


FLAGS: dict[str, Flag] = {
    "too_short": Flag(
        "The take is too short for its text.",
        "It lasts {value:.1f} s; at least {limit:.1f} s are needed.",
    ),
    "too_long": Flag(
        "The take is too long for its text.",
        "It lasts {value:.1f} s; usually at most {limit:.1f} s.",
    ),
    "frame_limit": Flag("The take was cut off at the frame limit before the model ended it."),
    "context_full": Flag("The take was cut off because the model's context was full."),
    "silent": Flag("The take is silent."),
    "mostly_silence": Flag(
        "Most of the take is silence.",
        "{value:.0%} of it is silent; at most {limit:.0%} is allowed.",
    ),
    "leading_silence": Flag(
        "The take begins with a long silence.",
        "The silence lasts {value:.1f} s; the limit is {limit:.1f} s.",
    ),
    "trailing_silence": Flag(
        "The take ends with a long silence.",
        "The silence lasts {value:.1f} s; the limit is {limit:.1f} s.",
    ),
    "long_pause": Flag(
        "The take has a long pause inside.",
        "The pause lasts {value:.1f} s; the limit is {limit:.1f} s.",
    ),
    "clipping": Flag("The take clips at full scale.", "{value:.2%} of its samples are clipped."),
    "noise": Flag(
        "The take sounds like noise rather than a voice.",
        "Its noise value is {value:.2f}; the limit is {limit:.2f}.",
    ),
    "repetition": Flag(
        "The take repeats the same sound over and over.",
        "{value:.0%} of it is alike; the limit is {limit:.0%}.",
    ),
    "stuck": Flag(
        "The take holds one sound for too long.",
        "The sound lasts {value:.1f} s; the limit is {limit:.1f} s.",
    ),
    "level": Flag("The take is much louder or quieter than this speaker's other takes."),
    "rhythm": Flag("The take is much faster or slower than this speaker's other takes."),
    "asr_mismatch": Flag(
        "The words heard in the take differ from its text.",
        "{value:.0%} of the words are wrong; the limit is {limit:.0%}.",
    ),
}


def sentence_of(name: str, measures: Iterable[Mapping[str, Any]]) -> str:
    """Return what a flag says of a take, with the take's own number where one was measured."""
    flag = FLAGS.get(name)
    if flag is None:  # of another version of the program
        return f"The quality check found: {name}."
    measured = next((one for one in measures if one["name"] == name), None)
    if measured is None or not flag.numbers:
        return flag.sentence
    numbers = flag.numbers.format(value=measured["value"], limit=measured["limit"])
    return f"{flag.sentence} {numbers}"


MOST_ID = 2**63 - 1  # that a column of ids holds
MOST_JOBS = 1000  # that are remembered
MOST_IDS = 1000  # in one condition; databases bound how many values a query has
_PARTIAL = {"status": RenderJob.Status.PARTIAL, "error_code": BOOK_SEGMENTS_SHORT}
# As the proof of a book has it: nobody speaks so fast.
_IS_SHORT = Q(
    status=Segment.Status.DONE,
    is_hand_picked=False,
    take__audio_seconds__lt=Cast(
        Length(Replace("spoken_text", Value(" "), Value(""))), FloatField()
    )
    / Value(MOST_CHARS_PER_SECOND),
)
_Key = tuple[uuid.UUID, dt.datetime]
# The short segments of jobs as they were last changed; the least used go first.
_known = LocMemCache("short segments", {"timeout": None, "max_entries": MOST_JOBS})


def short_among(jobs: QuerySet[RenderJob]) -> Q:
    """Return the condition for segments that are too short, of those jobs that are partial for it.

    A job's row is written whenever a segment of it is approved, chosen or rendered again, so that
    what was found holds for as long as `updated_at` does. Beyond MOST_IDS the database looks again.
    """
    keys = list(jobs.filter(**_PARTIAL).order_by().values_list("pk", "updated_at"))
    found = _known.get_many([_name(key) for key in keys])
    unknown = [key for key in keys if _name(key) not in found]
    if unknown:
        found |= _look(unknown)
    ids = [one for some in found.values() for one in some]
    if len(ids) <= MOST_IDS:
        return Q(pk__in=ids)
    return _IS_SHORT & Q(job__in=[pk for pk, _ in keys])


def _name(key: _Key) -> str:
    return f"{key[0].hex}{key[1].timestamp()!r}"


def _look(keys: Sequence[_Key]) -> dict[str, list[int]]:
    jobs = dict(keys)
    rows = Segment.objects.filter(_IS_SHORT, job__in=list(jobs)).order_by()
    found: dict[str, list[int]] = {_name(key): [] for key in keys}
    # With the moment of the job as it is now: one that has moved since is not remembered.
    for job_id, updated_at, pk in rows.values_list("job", "job__updated_at", "pk"):
        if updated_at == jobs[job_id]:
            found[_name((job_id, updated_at))].append(pk)
    _known.set_many(found)
    return found


UNSCORED = 0.1  # the score of a take that nothing else was measured of
_Query = tuple[str, tuple[Any, ...]]


class OfKept(Func):
    """What SQL says of the candidate `one` whose take is kept; NULL where there is none."""

    def __init__(self, postgresql: str, sqlite: str, output_field: Field[Any, Any]) -> None:
        columns: tuple[Combinable, ...] = (F("candidates"), F("take_id"))
        super().__init__(*columns, output_field=output_field)
        self.postgresql, self.sqlite = postgresql, sqlite

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> _Query:
        return self._select(
            compiler,
            f"SELECT {self.postgresql} FROM jsonb_array_elements({{candidates}}) AS one(value)"
            " WHERE one.value ->> 'take' = {take}::text LIMIT 1",
        )

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> _Query:
        return self._select(  # ids have no hyphens there
            compiler,
            f"SELECT {self.sqlite} FROM json_each({{candidates}}) AS one"
            " WHERE replace(json_extract(one.value, '$.take'), '-', '') = {take} LIMIT 1",
        )

    def _select(self, compiler: Any, query: str) -> _Query:
        found = [compiler.compile(one) for one in self.get_source_expressions()]
        (candidates, first), (take, second) = found
        return f"({query.format(candidates=candidates, take=take)})", (*first, *second)


_KEPT_SCORE = OfKept(
    "CAST(one.value ->> 'score' AS double precision)",
    "json_extract(one.value, '$.score')",
    FloatField(),
)
# A text of JSON, such as `["noise"]`.
_KEPT_FLAGS = OfKept("one.value ->> 'flags'", "json_extract(one.value, '$.flags')", TextField())
# Whether a person listened to the take and said that it is good.
_KEPT_IS_CHOSEN = OfKept(
    "CAST(one.value ->> 'chosen' AS boolean)", "json_extract(one.value, '$.chosen')", BooleanField()
)
# The score of a take that has flags and that nobody approved; NULL of any other. One look at the
# candidates tells what ranks a segment: a list looks at many thousands of them.
_KEPT_FLAGGED_SCORE = OfKept(
    "CASE WHEN COALESCE(one.value ->> 'flags', '[]') <> '[]'"
    " AND COALESCE(CAST(one.value ->> 'chosen' AS boolean), false) = false"
    f" THEN COALESCE(CAST(one.value ->> 'score' AS double precision), {UNSCORED}) END",
    "CASE WHEN COALESCE(json_extract(one.value, '$.flags'), '[]') <> '[]'"
    " AND NOT COALESCE(json_extract(one.value, '$.chosen'), 0)"
    f" THEN COALESCE(json_extract(one.value, '$.score'), {UNSCORED}) END",
    FloatField(),
)


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
        kept_flags=Coalesce(_KEPT_FLAGS, Value("[]"), output_field=TextField()),
        kept_score=_KEPT_SCORE,
        flagged_score=_KEPT_FLAGGED_SCORE,
        approved=Coalesce(_KEPT_IS_CHOSEN, Value(False), output_field=BooleanField()),
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


def books_of(job_ids: set[uuid.UUID]) -> dict[uuid.UUID, tuple[uuid.UUID, str]]:
    """Return id and title of the books of jobs, by the job; a sample's is that of its book."""
    books = BookSource.objects.filter(Q(job__in=job_ids) | Q(sample_job__in=job_ids))
    found: dict[uuid.UUID, tuple[uuid.UUID, str]] = {}
    for pk, title, filename, *jobs in books.values_list(
        "pk", "title", "filename", "job_id", "sample_job_id"
    ):
        found |= {job_id: (pk, title or filename) for job_id in jobs if job_id is not None}
    return found


def approve(
    user: AbstractBaseUser | AnonymousUser, seen: Mapping[int, uuid.UUID]
) -> dict[int, RetryRefusedError]:
    """Approve takes, by segment, as they were listened to; return those that are refused, and why.

    The reasons are segment_not_found, job_cancelled, segment_unfinished, segment_without_audio
    and take_changed. All others are approved, once more or for the first time.
    """
    jobs = visible_jobs(user).order_by().values("pk")
    # An address can name any number; `=` would look whether the column can hold it, `in` does not.
    known = [pk for pk in seen if pk <= MOST_ID]
    mine = Segment.objects.filter(pk__in=known, job__in=jobs)
    approved = approve_takes({pk: seen[pk] for pk in mine.values_list("pk", flat=True)})
    left = set(seen) - approved
    rows = mine.filter(pk__in=left).select_related("job").defer("job__text").in_bulk()
    return {pk: _refusal(rows.get(pk)) for pk in sorted(left)}


def _refusal(segment: Segment | None) -> RetryRefusedError:
    """Say why a segment was not approved."""
    if segment is None:
        return RetryRefusedError("segment_not_found", "No segment that you may see has this id.")
    if segment.job.cancel_requested or segment.job.status == RenderJob.Status.CANCELLED:
        sentence = "The job was cancelled; retry the job before you approve its takes."
        return RetryRefusedError("job_cancelled", sentence)
    if segment.status in (Segment.Status.QUEUED, Segment.Status.CLAIMED):
        sentence = "The segment is being rendered; listen to it when it is done."
        return RetryRefusedError("segment_unfinished", sentence, retry_after=POLL_SECONDS)
    if segment.take_id is None:
        sentence = "The segment has no take to approve; render it again, or edit its text."
        return RetryRefusedError("segment_without_audio", sentence)
    return RetryRefusedError(
        "take_changed",
        f"The segment now has another chosen take, {segment.take_id}; listen to that one first.",
    )


MOST_GROUPS = 50
MOST_AT_ONCE = 200  # takes that one request approves


def groups_of(user: AbstractBaseUser | AnonymousUser) -> list[dict[str, Any]]:
    """Return the jobs with something to review: how much of it is heard, what can be done at once.

    Those of which the most can be heard come first.
    """
    needed = Segment.objects.filter(pk__in=to_review(user).order_by().values("pk")).order_by()
    counts = needed.values("job").annotate(
        heard=Count("take"), unheard=Count("pk", filter=Q(take__isnull=True))
    )
    found = {row["job"]: row for row in counts.order_by("-heard", "-unheard")[:MOST_GROUPS]}
    order = list(found)
    takes: dict[uuid.UUID, list[dict[str, Any]]] = {job_id: [] for job_id in order}
    spoken = needed.filter(job__in=order, status=Segment.Status.DONE, take__isnull=False)
    numbered = spoken.annotate(place=Window(RowNumber(), partition_by="job", order_by="pk"))
    first = numbered.filter(place__lte=MOST_AT_ONCE).order_by("pk")
    for pk, job_id, take in first.values_list("pk", "job", "take"):
        takes[job_id].append({"segment": pk, "take": str(take)})
    rows = visible_jobs(user).filter(pk__in=order).defer("text", "lexicon")
    jobs = rows.annotate(start=Left("text", 2 * TITLE_CHARS)).in_bulk()
    books = books_of(set(order))
    pinned: dict[uuid.UUID, list[JobVoice]] = {job_id: [] for job_id in order}
    for one in voices_to_check(order):
        pinned[one.job_id].append(one)
    groups = []
    for job_id in order:
        job, group = jobs.get(job_id), found[job_id]
        if job is None:  # deleted meanwhile
            continue
        title = books[job_id][1] if job_id in books else Truncator(job.start).chars(TITLE_CHARS)
        num_takes = len(takes[job_id])
        has_more = num_takes == MOST_AT_ONCE < group["heard"]
        groups.append(
            group
            | {
                "job": job,
                "title": title or str(job),
                "takes": takes[job_id],
                "approves": f"the first {num_takes}" if has_more else num_takes,
                "body": json.dumps({"takes": takes[job_id]}),
                "retry_url": reverse("job-retry", args=[job_id])
                if group["unheard"] and may_retry(job, pinned=pinned[job_id])
                else "",
            }
        )
    return groups
