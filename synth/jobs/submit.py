"""Take a job: what was planned is written, in one transaction, and its messages go out."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import AbstractBaseUser

from synth.jobs.idempotency import make_once
from synth.jobs.planning import Order as Order
from synth.jobs.planning import PlannedJob, plan_job
from synth.jobs.rejections import clip_rejected
from synth.jobs.rows import write_jobs
from synth.models import ApiKey, RenderJob
from voices.clip_checks import ClipRejectedError, check_clip
from voices.objects import collect_clips, store_clip, tenant_of
from voices.submit import NewClip

_STORE_ATTEMPTS = 3


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

    def make() -> RenderJob:
        planned = plan_job(order, owner=owner)
        planned.job.idempotency_key, planned.job.body_digest = idempotency_key, body_digest
        return write_job(planned, api_key=api_key)

    return make_once(
        RenderJob.objects.all(), make, owner=owner, key=idempotency_key, digest=body_digest
    )


def check_order(order: Order, *, owner: AbstractBaseUser | None) -> None:
    """Look at an order as `submit_job` would, and make nothing.

    Raises:
        SubmitRejectedError: as `submit_job`, as far as that shows before rows are written.
    """
    plan_job(order, owner=owner)


def write_job(planned: PlannedJob, *, api_key: ApiKey | None = None) -> RenderJob:
    """Store the references' bytes, then write all rows of a job in one transaction.

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
            for speaker, reference in planned.references.items():
                clips[speaker] = _stored(reference, tenant_of(planned.job.owner_id))
            write_jobs([replace(planned, references=clips)], api_key=api_key)
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
