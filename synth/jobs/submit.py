"""Take jobs: what was planned is written in one transaction, and messages go out.

A job is of one text, an item of a batch, or a book with its chapters.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, connection, transaction
from django.db.models import AutoField, Field, Model, Q, QuerySet
from django.utils import timezone

from synth.accounts.limits import check_job, check_upload_bytes
from synth.jobs.planning import Order as Order
from synth.jobs.planning import PlannedJob, Planner, links_of
from synth.jobs.queue import lane_of
from synth.models import ApiKey, Batch, BookSource, Chapter, JobVoice, RenderJob, Segment
from synth.transitions.jobs import UNFINISHED
from ttsweb.refusals import SubmitRejectedError
from ttsweb.work import Kind, enqueue
from voices.access import note_use
from voices.clip_checks import ClipRejectedError, check_clip
from voices.models import VoiceVersion
from voices.objects import collect_clips, store_clip, tenant_of
from voices.submit import NewClip, create_version

if TYPE_CHECKING:
    _Field = Field[Any, Any]

Row = TypeVar("Row", RenderJob, Batch, BookSource)
_STORE_ATTEMPTS = 3


@dataclass(frozen=True)
class Sender:
    """Who asks for work, and by which key a request that is sent again is recognised.

    Args:
        owner: the user whose work it is; None where it is no user's.
        api_key: the API key that asks, whose limits hold.
        idempotency_key: at most 255 characters; empty makes something new in any case.
        body_digest: digest of the request, which must be the same for the same key.
        on_made: called with the id of a job that is made, within the transaction that makes it.
    """

    owner: AbstractBaseUser | None
    api_key: ApiKey | None = None
    idempotency_key: str = ""
    body_digest: str = ""
    on_made: Callable[[uuid.UUID], None] | None = None

    @property
    def owner_id(self) -> int | None:
        return self.owner.pk if self.owner is not None else None


def submit_job(order: Order, sender: Sender) -> tuple[RenderJob, bool]:
    """Make a job with all its rows, or return the one that this owner's key has made before.

    Messages go out on commit, and only where all voices are ready: otherwise the rows wait.

    Returns:
        The job, and whether it was made by this call.

    Raises:
        SubmitRejectedError: text_*, voice_*, speaker_unknown, clip_*, transcript_*,
            idempotency_key_reused, checkpoint_card_invalid.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
        OSError: a reference cannot be stored; nothing is kept.
    """

    def make() -> RenderJob:
        planned = Planner(sender.owner).plan(order)
        planned.job.idempotency_key = sender.idempotency_key
        planned.job.body_digest = sender.body_digest
        on_begun = partial(sender.on_made, planned.job.pk) if sender.on_made is not None else None
        return write_job(planned, api_key=sender.api_key, on_begun=on_begun)

    return make_once(RenderJob.objects.all(), make, sender)


def make_once(rows: QuerySet[Row], make: Callable[[], Row], sender: Sender) -> tuple[Row, bool]:
    """Return the row that this owner's key has made, or what `make` makes; and whether it did.

    Args:
        rows: those among which a key of an owner is used once.
        make: writes the row with the key and the digest.

    Raises:
        SubmitRejectedError: idempotency_key_reused, and whatever `make` raises.
    """
    if (known := find_made(rows, sender)) is not None:
        return known, False
    try:
        return make(), True
    except IntegrityError as error:  # another request with the key was faster
        # The constraints' names hold this word, and so do the columns.
        if "idempotency_key" not in str(error):
            raise
        if (known := find_made(rows, sender)) is None:
            raise
        return known, False


def find_made(rows: QuerySet[Row], sender: Sender) -> Row | None:
    """Return the row that this owner's key has made.

    Raises:
        SubmitRejectedError: idempotency_key_reused, the key came with another body.
    """
    if not sender.idempotency_key:
        return None
    row = rows.filter(owner_id=sender.owner_id, idempotency_key=sender.idempotency_key).first()
    if row is not None:
        noun = str(rows.model._meta.verbose_name)
        check_digest(row.body_digest, sender.body_digest, noun=noun, pk=row.pk)
    return row


def check_digest(known: str, digest: str, *, noun: str, pk: uuid.UUID) -> None:
    """Refuse a key that came with another body than the first time.

    Raises:
        SubmitRejectedError: idempotency_key_reused.
    """
    if known != digest:
        raise SubmitRejectedError(
            "idempotency_key_reused",
            f"This Idempotency-Key was used with another body, for the {noun} {pk}. Use a new "
            f"key for a new {noun}.",
        )


def write_job(
    planned: PlannedJob,
    *,
    api_key: ApiKey | None = None,
    on_begun: Callable[[], None] | None = None,
) -> RenderJob:
    """Store the references' bytes, then write all rows of a job, as `write_jobs` does.

    Raises:
        SubmitRejectedError: clip_*, transcript_*, voice_not_found (deleted meanwhile).
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
        IntegrityError: another request has made a job with this idempotency key meanwhile.
        OSError: a reference cannot be stored; nothing is kept.
    """
    # The bytes may be let go between the two steps, when another job with the same clip ends then.
    for attempt in range(1, _STORE_ATTEMPTS + 1):
        clips: dict[int, NewClip] = {}
        try:
            for speaker, clip in planned.references.items():
                clips[speaker] = clip
                if clip.content is not None:
                    container = clip.container or check_clip(clip.content)
                    tenant = tenant_of(planned.job.owner_id)
                    stored = store_clip(clip.content, container=container, tenant=tenant)
                    stored_clip = replace(clip, content=None, stored=stored, container=container)
                    clips[speaker] = stored_clip
            plans = [replace(planned, references=clips)]
            write_jobs(plans, api_key=api_key, on_begun=on_begun)
            break
        except BaseException as error:
            collect_clips(clip.stored.pk for clip in clips.values() if clip.stored is not None)
            if not isinstance(error, ClipRejectedError):
                raise
            if error.code != "clip_gone" or attempt == _STORE_ATTEMPTS:
                raise SubmitRejectedError(error.code, str(error), attr="reference") from error
    return planned.job


ROWS_AT_ONCE = 1000  # that one INSERT writes
WAKING_SEGMENTS = 64  # messages for these wake the workers; their pumps find the rest
_PLAIN = frozenset({str, int, float, bool, type(None)})  # every database takes these as they are
_CONVERTED = frozenset({"JSONField", "FloatField"})  # an array must not mix int and float
_SEGMENT_COLUMNS = (
    "job_id", "chapter_id", "index", "text", "spoken_text", "speaker", "seed", "pause_after_ms",
    "chain", "chain_place", "chain_left",
)  # fmt: skip
_UNLINKED = (None, None, None)


@transaction.atomic
def write_jobs(
    plans: Sequence[PlannedJob],
    *,
    api_key: ApiKey | None = None,
    on_begun: Callable[[], None] | None = None,
) -> None:
    """Write all rows of planned jobs of one owner, and wake workers for what may be rendered.

    Args:
        plans: of one job, or of all items of a batch. The bytes of their references are stored. A
            job that has ended already has no segments.
        api_key: the key that asks for them, whose limits hold.
        on_begun: called once the jobs' own rows are written and nothing else is; what it raises
            takes them back.

    Raises:
        SubmitRejectedError: voice_not_found, a voice was deleted meanwhile.
        ClipRejectedError: clip_gone, a clip was being removed at this moment.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
        IntegrityError: another request has made a job with this idempotency key meanwhile.
    """
    _insert_jobs(plans, api_key)  # first: another request with the same key collides with these
    if on_begun is not None:
        on_begun()
    if api_key is not None:
        queued = [plan for plan in plans if plan.job.status in UNFINISHED]
        chars = sum(plan.num_chars for plan in queued)
        first = plans[0].job
        own = Q(batch=first.batch_id) if first.batch_id else Q(pk=first.pk)
        check_job(api_key, own, chars=chars, jobs=len(queued))
    spoken_by = list(zip(plans, _versions(plans), strict=True))
    voices = (
        (plan.job.pk, speaker, version.pk, plan.roles.get(speaker, ""))
        for plan, versions in spoken_by
        for speaker, version in versions.items()
    )
    insert_rows(JobVoice, _columns(("job_id", "speaker", "version_id", "role"), voices))
    if any(plan.references for plan in plans):
        check_upload_bytes(api_key)
    _insert_segments(plans)
    ready = VoiceVersion.Status.READY
    speaking = (
        plan.job.pk
        for plan, versions in spoken_by
        if plan.chapters and all(version.status == ready for version in versions.values())
    )
    segments = Segment.objects.filter(job__in=list(itertools.islice(speaking, WAKING_SEGMENTS)))
    first_ones = segments.order_by("pk").values_list("pk", flat=True)[:WAKING_SEGMENTS]
    enqueue(Kind.SEGMENT, list(first_ones))


def segment_seed(job_seed: int, spoken_text: str, speaker: int) -> int:
    """Return a segment's seed in [0, 2**63): the same words of the same job always get the same.

    The segment's place is no part of it, so text put in elsewhere leaves its take as it is.
    """
    digest = hashlib.sha256(f"{job_seed}\n{speaker}\n{spoken_text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _insert_jobs(plans: Sequence[PlannedJob], api_key: ApiKey | None) -> None:
    jobs = [plan.job for plan in plans]
    began = timezone.now()
    lane = lane_of(jobs[0].owner_id, api_key)
    for place, job in enumerate(jobs):
        job.api_key, job.lane = api_key, lane
        # Each a moment of its own: what waits is rendered in the order in which it was made.
        job.created_at = job.updated_at = began + dt.timedelta(microseconds=place)
    for start in range(0, len(jobs), ROWS_AT_ONCE):
        insert_rows(RenderJob, columns_of(jobs[start : start + ROWS_AT_ONCE]))
    for job in jobs:
        job._state.adding = False


def _versions(plans: Sequence[PlannedJob]) -> list[dict[int, VoiceVersion]]:
    """Return who speaks in each job, by speaker; the versions of its references are made.

    The voices' rows are locked, in one order.
    """
    used = {version for plan in plans for version in plan.versions.values()}
    for version in sorted(used, key=lambda one: str(one.voice_id)):
        note_use(version, plans[0].job.owner)
    found = []
    for plan in plans:
        made = {number: create_version(None, [clip]) for number, clip in plan.references.items()}
        found.append(dict(sorted({**plan.versions, **made}.items())))
    return found


def _insert_segments(plans: Sequence[PlannedJob]) -> None:
    """Write the chapters of jobs and their segments, of which a book has tens of thousands."""
    chapters = [
        (plan.job.pk, index, chapter.title)
        for plan in plans
        for index, chapter in enumerate(plan.chapters)
    ]
    keys: dict[tuple[Any, int], int] = {}
    for start in range(0, len(chapters), ROWS_AT_ONCE):
        some = chapters[start : start + ROWS_AT_ONCE]
        insert_rows(Chapter, _columns(("job_id", "index", "title"), some))
        rows = Chapter.objects.filter(job__in={job_id for job_id, _, _ in some}).order_by()
        keys |= {
            (job_id, index): pk for job_id, index, pk in rows.values_list("job", "index", "pk")
        }
    segments = _segments(plans, keys)
    while some_segments := list(itertools.islice(segments, ROWS_AT_ONCE)):
        insert_rows(Segment, _columns(_SEGMENT_COLUMNS, some_segments))


def _segments(
    plans: Iterable[PlannedJob], keys: Mapping[tuple[Any, int], int]
) -> Iterator[tuple[Any, ...]]:
    for plan in plans:
        job = plan.job
        for place, chapter in enumerate(plan.chapters):
            key, pieces = keys[job.pk, place], chapter.pieces
            # By the speaker of the text: a voice that another chapter or role of a book gets, and
            # which may move this one's number, leaves its takes as they are.
            seeds = [segment_seed(job.seed, one.spoken_text, one.speaker) for one in pieces]
            speakers = chapter.speakers or [piece.speaker for piece in pieces]
            links: Sequence[Sequence[int | None]] = [_UNLINKED] * len(pieces)
            if job.history:
                links = links_of(speakers, seeds)
            for index, piece in enumerate(pieces):
                said = piece.text, piece.spoken_text, speakers[index], seeds[index]
                yield job.pk, key, index, *said, piece.pause_after_ms, *links[index]


def _columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return dict(zip(names, columns, strict=True))


def insert_rows(model: type[Model], columns: Mapping[str, Sequence[Any]]) -> None:
    """Insert rows in their order, as `bulk_create` would: no signal is sent, nothing is read back.

    What all rows have in common is prepared and sent once: for thousands of rows `bulk_create`
    spends most of its time on the values of each object.

    Args:
        columns: values by the names of columns (`job_id`, not `job`), all equally many; the other
            columns have the defaults of their fields.

    Raises:
        IntegrityError: as with `bulk_create`.
    """
    count = len(next(iter(columns.values())))
    if not count:
        return
    varying: dict[_Field, list[Any]] = {}
    common: dict[_Field, Any] = {}
    for field in model._meta.concrete_fields:
        values = columns.get(field.attname)
        if values is None and isinstance(field, AutoField):
            continue  # the database counts
        if values is None:
            is_now = getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False)
            common[field] = _prepare(field, timezone.now() if is_now else field.get_default())
        elif list(values).count(values[0]) == count:
            common[field] = _prepare(field, values[0])
        else:
            varying[field] = [_prepare(field, value) for value in values]
    quote = connection.ops.quote_name
    names = ", ".join(quote(str(field.column)) for field in [*varying, *common])  # all are ours
    sql = f"INSERT INTO {quote(model._meta.db_table)} ({names})"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # an array for each column whose values differ
            same = [f"%s::{_type_of(field)}" for field in common]
            arrays = ", ".join(f"%s::{_type_of(field)}[]" for field in varying)
            source = f"UNNEST({arrays}) AS given" if varying else "generate_series(1, %s)"
            chosen = ", ".join(["given.*", *same] if varying else same)
            given: list[Any] = list(varying.values()) or [count]
            cursor.execute(f"{sql} SELECT {chosen} FROM {source}", [*common.values(), *given])
        else:  # a statement that is repeated inside the database's own library
            marks = ", ".join(["%s"] * (len(varying) + len(common)))
            same_values = [repeat(value, count) for value in common.values()]
            rows = zip(*varying.values(), *same_values, strict=True)
            cursor.executemany(f"{sql} VALUES ({marks})", list(rows))


def _prepare(field: _Field, value: Any) -> Any:
    if type(value) in _PLAIN and field.get_internal_type() not in _CONVERTED:
        return value
    return field.get_db_prep_save(value, connection)


def _type_of(field: _Field) -> str:
    """Return a column's type without its length: a cast to that would cut what is too long."""
    return str(field.db_type(connection)).partition("(")[0]


def columns_of(rows: Sequence[Model]) -> dict[str, list[Any]]:
    fields = type(rows[0])._meta.concrete_fields
    return {field.attname: [getattr(row, field.attname) for row in rows] for field in fields}
