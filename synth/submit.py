"""Take a job: text and a voice become a job, its chapter and its segments, in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from synth.key_limits import check_job
from synth.models import ApiKey, Chapter, JobVoice, RenderJob, Segment
from synth.rejections import SubmitRejectedError, clip_rejected, text_rejected
from synth.text.normalise import TextRejectedError, clean_text
from synth.text.segments import Piece, cut_text
from synth.transitions import enqueue_segments
from synth.voice_choice import find_voice, note_use, speaking_version
from ttsweb.card import Card, CardError, read_card
from voices.clip_checks import ClipRejectedError, check_clip
from voices.models import Voice, VoiceVersion
from voices.objects import collect_clips, store_clip
from voices.submit import NewClip, create_version

_KEY_COLUMN = "idempotency_key"
_STORE_ATTEMPTS = 3


@dataclass(frozen=True)
class Order:
    """Say what is to be rendered, and how.

    `voice` is a voice, its id or its name; `reference` is a clip that comes with the job; exactly
    one of them is given. What is None is taken from the checkpoint's card. `seed` is in
    [0, 2**63), `format` a key of FORMATS, `speed` in [0.25, 4] the pace of the file.
    """

    text: str
    voice: Voice | str | None = None
    reference: NewClip | None = None
    seed: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    format: str = "wav"
    speed: float = 1.0
    priority: RenderJob.Priority = RenderJob.Priority.INTERACTIVE


def submit_job(
    order: Order,
    *,
    owner: AbstractBaseUser | None,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
    body_digest: str = "",
) -> tuple[RenderJob, bool]:
    """Make a job with all its rows, or return the one that this owner's key has made before.

    Messages go out on commit, and only where the voice is ready: otherwise the rows wait for it.

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
    known = _made_before(owner, idempotency_key, body_digest)
    if known is not None:
        return known, False
    card = _card()
    version = _version_of(order, owner)
    text, pieces = _cut(order.text, card, version)
    row = RenderJob(
        owner_id=owner.pk if owner else None,
        api_key=api_key,
        text=text,
        priority=order.priority,
        format=order.format,
        speed=order.speed,
        seed=order.seed,
        temperature=card.temperature if order.temperature is None else order.temperature,
        top_p=card.top_p if order.top_p is None else order.top_p,
        top_k=card.top_k if order.top_k is None else order.top_k,
        idempotency_key=idempotency_key,
        body_digest=body_digest,
        segments_total=len(pieces),
    )
    try:
        _save(row, pieces, version, order.reference)
    except IntegrityError as error:
        if _KEY_COLUMN not in str(error):  # the rule's name holds it, and so does the column's
            raise
        known = _made_before(owner, idempotency_key, body_digest)
        if known is None:
            raise
        return known, False
    return row, True


def check_order(order: Order, *, owner: AbstractBaseUser | None) -> None:
    """Look at an order as `submit_job` would, and make nothing.

    Raises:
        SubmitRejectedError: as `submit_job`, as far as that shows before rows are written.
    """
    card = _card()
    _cut(order.text, card, _version_of(order, owner))


def segment_seed(job_seed: int, spoken_text: str, speaker: int) -> int:
    """Return a segment's seed in [0, 2**63): the same words of the same job always get the same.

    The segment's place is no part of it, so text put in elsewhere leaves its take as it is.
    """
    digest = hashlib.sha256(f"{job_seed}\n{speaker}\n{spoken_text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _made_before(
    owner: AbstractBaseUser | None, idempotency_key: str, body_digest: str
) -> RenderJob | None:
    """Return the job of this key.

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
            f"This Idempotency-Key has made the job {job.pk} from another body; "
            "use a new key for a new job.",
        )
    return job


def _card() -> Card:
    try:
        return read_card(settings.CHECKPOINT)
    except CardError as error:
        raise SubmitRejectedError(503, "checkpoint_card_invalid", str(error)) from error


def _version_of(order: Order, owner: AbstractBaseUser | None) -> VoiceVersion | None:
    """Return the version that will speak; None for a job that brings its own reference.

    Raises:
        SubmitRejectedError: voice_required, voice_ambiguous, voice_not_found, voice_not_ready,
            voice_failed.
    """
    if order.voice and order.reference:
        raise SubmitRejectedError(
            400, "voice_ambiguous", "Give either a voice or a reference, not both.", attr="voice"
        )
    if order.reference:
        return None
    if not order.voice:
        raise SubmitRejectedError(
            400, "voice_required", "Give a voice (its id or name) or a reference.", attr="voice"
        )
    if isinstance(order.voice, str):
        return speaking_version(find_voice(owner, order.voice))
    return speaking_version(order.voice)


def _cut(text: str, card: Card, version: VoiceVersion | None) -> tuple[str, list[Piece]]:
    """Return the cleaned text and its pieces, which all have a speaker."""
    voice = version.voice if version else None
    language = (voice.language if voice else "") or next(iter(card.languages), "en")
    try:
        cleaned = clean_text(text, max_chars=settings.MAX_TEXT_CHARS)
        pieces = cut_text(cleaned, max_chars=card.segment_chars, language=language)
    except TextRejectedError as error:
        raise text_rejected(error) from error
    unknown = [piece.speaker for piece in pieces if piece.speaker != 0]
    if unknown:
        raise SubmitRejectedError(
            400,
            "speaker_unknown",
            f"The text names speaker {unknown[0]}; this job has one voice, speaker 0.",
            attr="text",
        )
    return cleaned, pieces


def _save(
    row: RenderJob,
    pieces: Sequence[Piece],
    version: VoiceVersion | None,
    reference: NewClip | None,
) -> None:
    """Store the reference's bytes, then write all rows in one transaction.

    The bytes may be let go between the two, when another job with the same clip ends just then.
    """
    for attempt in range(1, _STORE_ATTEMPTS + 1):
        clip = _stored(reference) if reference else None
        try:
            _write_rows(row, pieces, version, clip)
            return
        except BaseException as error:
            if clip is not None and clip.stored is not None:
                collect_clips([clip.stored.pk])
            is_gone = isinstance(error, ClipRejectedError) and error.code == "clip_gone"
            if is_gone and attempt < _STORE_ATTEMPTS:
                continue
            if isinstance(error, ClipRejectedError):
                raise clip_rejected(error) from error
            raise


def _stored(reference: NewClip) -> NewClip:
    """Return the reference with its bytes in the storage."""
    if reference.content is None:
        return reference
    try:
        container = reference.container or check_clip(reference.content)
    except ClipRejectedError as error:
        raise clip_rejected(error) from error
    stored = store_clip(reference.content, container=container)
    return replace(reference, content=None, stored=stored, container=container)


@transaction.atomic
def _write_rows(
    row: RenderJob,
    pieces: Sequence[Piece],
    version: VoiceVersion | None,
    reference: NewClip | None,
) -> None:
    row.save(force_insert=True)  # first: it is what another request with the same key collides with
    if row.api_key is not None:
        check_job(row.api_key, row, chars=len(row.text))
    if version is None:
        version = create_version(None, [reference] if reference else [])
    else:
        note_use(version)
    JobVoice.objects.create(job=row, version=version)
    chapter = Chapter.objects.create(job=row)
    segments = Segment.objects.bulk_create(
        [_segment(row, chapter, index, piece) for index, piece in enumerate(pieces)],
        batch_size=1000,
    )
    if version.status == VoiceVersion.Status.READY:
        enqueue_segments([segment.pk for segment in segments])


def _segment(row: RenderJob, chapter: Chapter, index: int, piece: Piece) -> Segment:
    return Segment(
        job=row,
        chapter=chapter,
        index=index,
        text=piece.text,
        spoken_text=piece.spoken_text,
        speaker=piece.speaker,
        seed=segment_seed(row.seed, piece.spoken_text, piece.speaker),
        pause_after_ms=piece.pause_after_ms,
    )
