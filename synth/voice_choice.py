"""Find the voice that a request names, and the version of it that speaks. Never another one."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractBaseUser
from django.utils import timezone

from synth.rejections import SubmitRejectedError, voice_not_found
from voices.access import visible_voices
from voices.models import Voice, VoiceVersion

ENCODING_RETRY_SECONDS = 2


def find_voice(user: AbstractBaseUser | None, wanted: str) -> Voice:
    """Return the voice with this id or name, as far as the user may use it.

    Args:
        user: None is the system itself, which may use all.
        wanted: an id, or a name in whatever case.

    Raises:
        SubmitRejectedError: voice_not_found.
    """
    voices = visible_voices(user) if user else Voice.objects.filter(deleted_at__isnull=True)
    try:
        found = voices.filter(pk=uuid.UUID(wanted)).first()
    except ValueError:
        found = None
    if found is None:
        # Two at once only where two databases' ideas of a letter's case differ: then spell it out.
        named = list(voices.filter(name__iexact=wanted)[:2])
        named = [voice for voice in named if voice.name == wanted] or named
        found = named[0] if len(named) == 1 else None
    if found is None:
        raise voice_not_found()
    return found


def speaking_version(voice: Voice) -> VoiceVersion:
    """Return a voice's newest version if it speaks now or, being encoded again, soon will.

    Raises:
        SubmitRejectedError: voice_failed, voice_not_ready.
    """
    version = voice.current_version
    if version is not None and version.status == VoiceVersion.Status.FAILED:
        raise SubmitRejectedError(
            409,
            "voice_failed",
            f"The voice {voice.name!r} could not be encoded: {version.error_message}",
            attr="voice",
        )
    if version is None or version.encoded_at is None:
        raise SubmitRejectedError(
            409,
            "voice_not_ready",
            f"The voice {voice.name!r} is not encoded yet; try again in a moment.",
            attr="voice",
            retry_after=ENCODING_RETRY_SECONDS,
        )
    return version


def note_use(version: VoiceVersion) -> None:
    """Write when a version's voice was last used; call inside the transaction that pins it.

    The UPDATE also locks the voice's row: a deletion of the voice comes before us and is seen
    here, or after us and sees our job.

    Raises:
        SubmitRejectedError: voice_not_found, it was deleted meanwhile.
    """
    alive = Voice.objects.filter(pk=str(version.voice_id), deleted_at__isnull=True)
    if not alive.update(last_used_at=timezone.now()):
        raise voice_not_found()
