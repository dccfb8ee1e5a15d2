"""Take a job: what was planned is written, in one transaction, and its messages go out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from synth.accounts.limits import check_job, check_upload_bytes
from synth.jobs.lanes import lane_of
from synth.jobs.planning import Order as Order
from synth.jobs.planning import PlannedJob, plan_job
from synth.jobs.rejections import SubmitRejectedError, clip_rejected
from synth.models import ApiKey, Chapter, JobVoice, RenderJob, Segment
from synth.options.voice_choice import note_use
from synth.text.segments import Piece
from synth.transitions import enqueue_segments
from voices.clip_checks import ClipRejectedError, check_clip
from voices.models import VoiceVersion
from voices.objects import collect_clips, store_clip, tenant_of
from voices.submit import NewClip, create_version

_KEY_COLUMN = "idempotency_key"
_STORE_ATTEMPTS = 3


@dataclass(frozen=True)
class JobRows:
    """Hold the unsaved rows of a job, to be written in this order."""

    job: RenderJob
    voices: list[JobVoice]
    chapter: Chapter
    segments: list[Segment]


def submit_job(
    order: Order,
    *,
    owner: AbstractBaseUser | None,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
    body_digest: str = "",
) -> tuple[RenderJob, bool]:
    """Make a job with all its rows, or return the one that this owner's key has made before.

    Messages go out on commit, and only where all voices are ready: otherwise the rows wait.

    Args:
        idempotency_key: at most 255 characters; empty makes a new job in any case.
        body_digest: digest of the request, which must be the same for the same key.

    Returns:
        The job, and whether it was made by this call.

    Raises:
        SubmitRejectedError: text_*, voice_*, speaker_unknown, clip_*, transcript_*,
            idempotency_key_reused, checkpoint_card_invalid.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
        OSError: a reference cannot be stored; nothing is kept.
    """
    known = made_before(owner, idempotency_key, body_digest)
    if known is not None:
        return known, False
    planned = plan_job(order, owner=owner)
    try:
        job = write_job(
            planned, api_key=api_key, idempotency_key=idempotency_key, body_digest=body_digest
        )
    except IntegrityError as error:
        if _KEY_COLUMN not in str(error):  # the rule's name holds it, and so does the column's
            raise
        known = made_before(owner, idempotency_key, body_digest)
        if known is None:
            raise
        return known, False
    return job, True


def check_order(order: Order, *, owner: AbstractBaseUser | None) -> None:
    """Look at an order as `submit_job` would, and make nothing.

    Raises:
        SubmitRejectedError: as `submit_job`, as far as that shows before rows are written.
    """
    plan_job(order, owner=owner)


def write_job(
    planned: PlannedJob,
    *,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
    body_digest: str = "",
    batch: RenderJob | None = None,
    item_index: int | None = None,
    custom_id: str = "",
) -> RenderJob:
    """Store the references' bytes, then write all rows of a job in one transaction.

    Args:
        batch: the batch that the job is an item of; `item_index` and `custom_id` are its place and
            its name there.

    Raises:
        SubmitRejectedError: clip_*, transcript_*, voice_not_found (deleted meanwhile).
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
        IntegrityError: another request has made a job with this idempotency key meanwhile.
        OSError: a reference cannot be stored; nothing is kept.
    """
    bind_job(
        planned.job,
        api_key=api_key,
        idempotency_key=idempotency_key,
        body_digest=body_digest,
        batch=batch,
        item_index=item_index,
        custom_id=custom_id,
    )
    # The bytes may be let go between the two steps, when another job with the same clip ends then.
    for attempt in range(1, _STORE_ATTEMPTS + 1):
        clips: dict[int, NewClip] = {}
        try:
            for speaker, reference in planned.references.items():
                clips[speaker] = _stored(reference, tenant_of(planned.job.owner_id))
            _write_rows(planned, clips)
            break
        except BaseException as error:
            collect_clips(clip.stored.pk for clip in clips.values() if clip.stored is not None)
            is_gone = isinstance(error, ClipRejectedError) and error.code == "clip_gone"
            if is_gone and attempt < _STORE_ATTEMPTS:
                continue
            if isinstance(error, ClipRejectedError):
                raise clip_rejected(error) from error
            raise
    return planned.job


def bind_job(
    job: RenderJob,
    *,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
    body_digest: str = "",
    batch: RenderJob | None = None,
    item_index: int | None = None,
    custom_id: str = "",
) -> None:
    """Fill the columns of an unsaved row that say who asked for it, and in which batch."""
    job.api_key = api_key
    job.lane = lane_of(job.owner_id, api_key)
    job.idempotency_key, job.body_digest = idempotency_key, body_digest
    job.batch, job.item_index, job.custom_id = batch, item_index, custom_id


def rows_of(planned: PlannedJob, versions: Mapping[int, VoiceVersion]) -> JobRows:
    """Return the unsaved rows of a planned job; a batch writes those of many jobs together.

    Args:
        versions: who speaks, by speaker; those of references are made by then.
    """
    job = planned.job
    chapter = Chapter(job=job)
    return JobRows(
        job,
        [JobVoice(job=job, speaker=speaker, version=one) for speaker, one in versions.items()],
        chapter,
        [_segment(job, chapter, index, piece) for index, piece in enumerate(planned.pieces)],
    )


def segment_seed(job_seed: int, spoken_text: str, speaker: int) -> int:
    """Return a segment's seed in [0, 2**63): the same words of the same job always get the same.

    The segment's place is no part of it, so text put in elsewhere leaves its take as it is.
    """
    digest = hashlib.sha256(f"{job_seed}\n{speaker}\n{spoken_text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def made_before(
    owner: AbstractBaseUser | None, idempotency_key: str, body_digest: str
) -> RenderJob | None:
    """Return the job that this owner's key has made.

    Raises:
        SubmitRejectedError: idempotency_key_reused, the key came with another body.
    """
    if not idempotency_key:
        return None
    owner_id = owner.pk if owner else None
    job = RenderJob.objects.filter(owner_id=owner_id, idempotency_key=idempotency_key).first()
    if job is not None and job.body_digest != body_digest:
        raise SubmitRejectedError(
            422,
            "idempotency_key_reused",
            f"This Idempotency-Key was used with another body, for the job {job.pk}. Use a "
            "new key for a new job.",
        )
    return job


def speaking_versions(planned: PlannedJob, clips: Mapping[int, NewClip]) -> dict[int, VoiceVersion]:
    """Return who speaks, by speaker; call it in the transaction that writes the job.

    The voices' rows are locked, in one order, and the versions of inline clips are made.

    Args:
        clips: the job's references with their bytes stored.

    Raises:
        SubmitRejectedError: voice_not_found, a voice was deleted meanwhile.
        ClipRejectedError: clip_gone, a clip was being removed at this moment.
    """
    for version in sorted(set(planned.versions.values()), key=lambda one: str(one.voice_id)):
        note_use(version, planned.job.owner)
    made = {speaker: create_version(None, [clip]) for speaker, clip in clips.items()}
    return dict(sorted({**planned.versions, **made}.items()))


def _stored(reference: NewClip, tenant: str) -> NewClip:
    """Return the reference with its bytes in the storage."""
    if reference.content is None:
        return reference
    try:
        container = reference.container or check_clip(reference.content)
    except ClipRejectedError as error:
        raise clip_rejected(error) from error
    stored = store_clip(reference.content, container=container, tenant=tenant)
    return replace(reference, content=None, stored=stored, container=container)


@transaction.atomic
def _write_rows(planned: PlannedJob, clips: Mapping[int, NewClip]) -> None:
    job = planned.job
    job.save(force_insert=True)  # first: it is what another request with the same key collides with
    if job.api_key is not None:
        check_job(job.api_key, job, chars=len(job.text))
    versions = speaking_versions(planned, clips)
    rows = rows_of(planned, versions)
    JobVoice.objects.bulk_create(rows.voices)
    if clips:
        check_upload_bytes(job.api_key)
    rows.chapter.save(force_insert=True)
    segments = Segment.objects.bulk_create(rows.segments, batch_size=1000)
    if all(one.status == VoiceVersion.Status.READY for one in versions.values()):
        enqueue_segments([segment.pk for segment in segments])


def _segment(job: RenderJob, chapter: Chapter, index: int, piece: Piece) -> Segment:
    return Segment(
        job=job,
        chapter=chapter,
        index=index,
        text=piece.text,
        spoken_text=piece.spoken_text,
        speaker=piece.speaker,
        seed=segment_seed(job.seed, piece.spoken_text, piece.speaker),
        pause_after_ms=piece.pause_after_ms,
    )
