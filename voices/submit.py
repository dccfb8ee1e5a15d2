"""Save what people send: voices, what makes a new version of one, and clips to be transcribed.

That their work is enqueued comes with the commit.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction
from django.db.models import Max, Model
from django.utils import timezone

from ttsweb.refusals import POLL_SECONDS, RefusedError
from ttsweb.storage import delete_objects
from ttsweb.work import Kind, enqueue
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript
from voices.models import StoredClip, Transcript, Voice, VoiceVersion
from voices.objects import collect_clips, evict_voice, store_clip, tenant_of
from voices.signals import clips_stored, voice_silenced

_NAME_CONSTRAINT = "voice_name_unique"
_CHANGEABLE = {
    "name",
    "description",
    "language",
    "shared",
    "cache_codes",
    "consent_statement",
    "archived",
    "consent_withdrawn",
}


class VoiceNameTakenError(RefusedError):
    """Another voice of the same owner has this name, in whatever case."""


class VoiceDeletedError(RefusedError):
    """The voice was deleted meanwhile, so that it takes no version."""


@dataclass(frozen=True)
class NewClip:
    """One clip of a version to be made: its transcript, and either its bytes or its stored row.

    `container` may be left empty: the bytes tell it.
    """

    transcript: str
    filename: str = ""
    content: bytes | None = None
    stored: StoredClip | None = None
    container: str = ""

    def __post_init__(self) -> None:
        if (self.content is None) == (self.stored is None):
            raise ValueError("a new clip has either its bytes or its stored row")

    @property
    def fingerprint(self) -> str:
        if self.stored is not None:
            return self.stored.fingerprint
        return hashlib.sha256(self.content or b"").hexdigest()


def create_voice(
    *,
    name: str,
    consent_statement: str,
    by: str,
    clips: Sequence[NewClip],
    owner: AbstractBaseUser | AnonymousUser | None = None,
    description: str = "",
    language: str = "",
    shared: bool = False,
    cache_codes: bool = True,
    api_key: Model | None = None,
) -> Voice:
    """Make a voice with its first version, which is encoded once the transaction has committed.

    Args:
        by: who says that the speaker has agreed; kept with the moment of saying so.
        owner: whose voice it is; None makes one that is everybody's and that superusers change.
        shared: whether every other user may speak with it too.

    Raises:
        ClipRejectedError: a clip or a transcript is not taken.
        VoiceNameTakenError: the name belongs to another voice of this owner.
        KeyLimitError: the user of the API key has too many bytes of voices.
        OSError: the storage cannot be written; nothing is kept.
    """
    voice = Voice(
        name=name,
        description=description,
        language=language,
        owner_id=owner.pk if owner else None,
        consent_statement=consent_statement,
        consent_by=by[:200],
        consent_at=timezone.now(),
        shared=shared,
        cache_codes=cache_codes,
    )
    with _store_clips(clips, tenant_of(voice.owner_id)) as stored_clips, transaction.atomic():
        _save(voice)
        create_version(voice, stored_clips)
        clips_stored.send(Voice, voice=voice, api_key=api_key)
    return voice


def update_voice(
    voice: Voice,
    *,
    by: str,
    changes: Mapping[str, Any] | None = None,
    clips: Sequence[NewClip] | None = None,
    api_key: Model | None = None,
) -> VoiceVersion | None:
    """Change a voice; return the version that other clips or transcripts made, or None.

    Jobs that may not speak with it any more, as it is shared no longer or the consent was
    withdrawn, end in the same transaction.

    Args:
        by: who made the change; kept with a consent statement that changed.
        changes: any of name, description, language, shared, cache_codes, consent_statement,
            archived, consent_withdrawn.
        clips: all clips of the voice from now on; None leaves them, and equal ones change nothing.

    Raises:
        ClipRejectedError, VoiceNameTakenError, KeyLimitError, OSError: as for `create_voice`.
        VoiceDeletedError: the voice was deleted meanwhile.
    """
    if unknown := set(changes or {}) - _CHANGEABLE:
        raise ValueError(f"not to be changed here: {', '.join(sorted(unknown))}")
    tenant = tenant_of(voice.owner_id)
    with _store_clips(clips or (), tenant) as stored_clips, transaction.atomic():
        _lock(voice)
        voice.refresh_from_db(fields=["shared", "consent_withdrawn_at"])
        if _apply(voice, changes or {}, by=by) & {"shared", "consent_withdrawn_at"}:
            voice_silenced.send(Voice, voice=voice)
        if clips is None or _contents(current_clips(voice)) == _contents(stored_clips):
            return None
        evict_voice(voice)
        version = create_version(voice, stored_clips)
        clips_stored.send(Voice, voice=voice, api_key=api_key)
        return version


def create_version(
    voice: Voice | None, clips: Sequence[NewClip], *, tenant: str = ""
) -> VoiceVersion:
    """Make a pending version with these clips in one transaction; enqueue it on commit.

    Args:
        voice: whose version it is; None makes the inline reference of a job, which then pins it.
        tenant: of an inline reference whose bytes are not stored yet, see `tenant_of`.

    Raises:
        ClipRejectedError: a clip or transcript is not taken, or there are too few or too many.
        VoiceDeletedError: the voice was deleted meanwhile.
        OSError: the storage cannot be written; nothing is kept.
    """
    tenant = tenant_of(voice.owner_id) if voice is not None else tenant
    with _store_clips(clips, tenant) as stored_clips, transaction.atomic():
        number = 1
        if voice is not None:
            _lock(voice)
            newest = VoiceVersion.objects.filter(voice=voice).aggregate(newest=Max("number"))
            number = (newest["newest"] or 0) + 1
        version = VoiceVersion.objects.create(voice=voice, number=number)
        _create_clips(version, stored_clips)
        enqueue(Kind.VERSION, [version.pk])
    return version


def current_clips(voice: Voice) -> list[NewClip]:
    """Return the clips of a voice's newest version, as clips that a further version may have."""
    version = VoiceVersion.objects.filter(voice=voice).order_by("-number").first()
    if version is None:
        return []
    rows = version.clips.select_related("stored").order_by("index")
    return [
        NewClip(transcript=row.transcript, filename=row.filename, stored=row.stored) for row in rows
    ]


@contextmanager
def _store_clips(clips: Sequence[NewClip], tenant: str) -> Iterator[list[NewClip]]:
    """Give the checked clips, their bytes stored; on an error let go of the bytes again.

    The bytes are written before the rows, so that no transaction is held open by a disk.
    """
    checked = [
        replace(
            clip,
            transcript=check_transcript(clip.transcript),
            container=check_clip(clip.content) if clip.content is not None else clip.container,
            filename=clip.filename[:200],
        )
        for clip in clips
    ]
    written: list[uuid.UUID] = []
    try:
        kept = []
        for clip in checked:
            if clip.content is not None:
                row = store_clip(clip.content, container=clip.container, tenant=tenant)
                written.append(row.pk)
                clip = replace(clip, content=None, stored=row)
            kept.append(clip)
        yield kept
    except BaseException:
        collect_clips(written)
        raise


def _create_clips(version: VoiceVersion, clips: Sequence[NewClip]) -> None:
    """Make the version's clip rows; inside a transaction."""
    most = settings.MAX_CLIPS_PER_VOICE
    if not clips:
        raise ClipRejectedError("clip_required", "A voice needs at least one clip; send one.")
    if len(clips) > most:
        sentence = f"There are {len(clips)} clips; at most {most} are allowed."
        raise ClipRejectedError("too_many_clips", sentence)
    stored = [clip.stored for clip in clips if clip.stored is not None]
    wanted = {row.pk for row in stored}
    # The lock keeps them: whoever collects unused clips waits for it and then sees our rows.
    rows = StoredClip.objects.select_for_update().filter(pk__in=wanted).order_by("pk")
    if {row.pk for row in rows if row.original_key} != wanted:
        raise ClipRejectedError(
            "clip_gone", "The clip was removed at the same time; send it again."
        )
    for index, (clip, row) in enumerate(zip(clips, stored, strict=True)):
        version.clips.create(
            index=index, stored=row, filename=clip.filename, transcript=clip.transcript
        )


def _lock(voice: Voice) -> None:
    """Let one change of a voice follow the other."""
    alive = Voice.objects.select_for_update().filter(pk=voice.pk, deleted_at__isnull=True)
    if alive.first() is None:
        raise VoiceDeletedError("voice_not_found", "The voice was deleted.")


def _apply(voice: Voice, changes: Mapping[str, Any], *, by: str) -> set[str]:
    """Set and save the columns that differ; return their names."""
    values = dict(changes)
    is_withdrawn = values.pop("consent_withdrawn", voice.consent_withdrawn_at is not None)
    if is_withdrawn != (voice.consent_withdrawn_at is not None):
        values["consent_withdrawn_at"] = timezone.now() if is_withdrawn else None
    changed = {name for name, value in values.items() if getattr(voice, name) != value}
    for name in changed:
        setattr(voice, name, values[name])
    if changed & {"consent_statement", "consent_withdrawn_at"}:
        voice.consent_by, voice.consent_at = by[:200], timezone.now()
        changed |= {"consent_by", "consent_at"}
    if changed:
        _save(voice, update_fields=[*sorted(changed), "updated_at"])
    return changed


def _save(voice: Voice, *, update_fields: Sequence[str] | None = None) -> None:
    try:
        with transaction.atomic():
            voice.save(update_fields=update_fields)
    except IntegrityError as error:
        if _NAME_CONSTRAINT not in str(error):
            raise
        whose = "Another voice of yours" if voice.owner_id else "Another voice without an owner"
        sentence = f"{whose} is named {voice.name!r}; choose another name."
        raise VoiceNameTakenError("voice_name_taken", sentence, attr="name") from error


def _contents(clips: Sequence[NewClip]) -> list[tuple[str, str]]:
    return [(clip.fingerprint, clip.transcript) for clip in clips]


MOST_WAITING = 16  # clips of one user that wait for a transcriber


class TranscriptRefusedError(RefusedError):
    """No transcript can be proposed: code and sentence say why."""


def request_transcript(
    content: bytes, *, owner: AbstractBaseUser, language: str = ""
) -> Transcript:
    """Store a clip and have its words proposed, once the transaction has committed.

    Args:
        language: a tag of what is spoken; empty where nobody says.

    Raises:
        TranscriptRefusedError: transcriber_missing, too_many_transcripts.
        ClipRejectedError: the clip is not taken.
        OSError: the storage cannot be written; nothing is kept.
    """
    if not settings.TRANSCRIBER:
        raise TranscriptRefusedError(
            "transcriber_missing",
            "No transcriber is set up here that could propose a transcript, so send the words "
            "that are spoken in the clip. An operator sets one up by TTS_TRANSCRIBER.",
        )
    container = check_clip(content)
    waiting = Transcript.objects.filter(owner_id=owner.pk, finished_at__isnull=True)
    if waiting.count() >= MOST_WAITING:
        raise TranscriptRefusedError(
            "too_many_transcripts",
            f"{MOST_WAITING} clips of yours wait for a transcriber; send this one later.",
            retry_after=POLL_SECONDS,
        )
    name = f"transcripts/{uuid.uuid4()}/{uuid.uuid4().hex}.{container}"
    key = default_storage.save(name, ContentFile(content))
    try:
        with transaction.atomic():
            row = Transcript.objects.create(
                owner_id=owner.pk, language=language, original_key=key, container=container
            )
            enqueue(Kind.TRANSCRIPT, [row.pk])
    except BaseException:
        delete_objects([key])
        raise
    return row
