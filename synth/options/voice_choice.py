"""Find the voice that a request names, and the version of it that speaks. Never another one."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet
from django.utils import timezone

from synth.jobs.rejections import SubmitRejectedError, voice_not_found
from voices.access import visible_voices
from voices.models import Voice, VoiceVersion

ENCODING_RETRY_SECONDS = 2
MOST_LOOKED_AT = 100  # of voices with one name: enough to see whether one is spelled that way


def find_voice(user: AbstractBaseUser | None, wanted: str) -> Voice:
    """Return the voice with this id or name, as far as the user may use it.

    A name means the user's own voice; else the one without an owner, which nobody can take away
    by sharing another of its name; else the shared one; else one that only a superuser sees.

    Args:
        user: None is the system itself, which may use all.
        wanted: an id, or a name in whatever case.

    Raises:
        SubmitRejectedError: voice_not_found, voice_ambiguous_name.
    """
    voices = visible_voices(user) if user else Voice.objects.filter(deleted_at__isnull=True)
    try:
        found = voices.filter(pk=uuid.UUID(wanted)).first()
    except ValueError:
        found = None
    return found or _named(voices, wanted, user.pk if user else None)


def _named(voices: QuerySet[Voice], name: str, user_id: int | None) -> Voice:
    """Return the one voice of this name that is nearest to the user."""
    named = voices.filter(name__iexact=name).order_by("pk")
    own = Q(owner_id=user_id) if user_id is not None else Q(pk__in=())
    others = Q(owner__isnull=False) & ~own
    for near in (own, Q(owner__isnull=True), others & Q(shared=True), others):
        found = list(named.filter(near)[:MOST_LOOKED_AT])
        # Two of one owner only where two databases' ideas of a letter's case differ.
        found = [voice for voice in found if voice.name == name] or found
        if len(found) == 1:
            return found[0]
        if found:
            raise SubmitRejectedError(
                409,
                "voice_ambiguous_name",
                f"Several voices that you may use are named {name!r}; give the id of the "
                "one that you want.",
                attr="voice",
            )
    raise voice_not_found()


def speaking_version(voice: Voice) -> VoiceVersion:
    """Return a voice's newest version if it speaks now or, being encoded again, soon will.

    Raises:
        SubmitRejectedError: consent_withdrawn, voice_failed, voice_not_ready.
    """
    if voice.consent_withdrawn_at is not None:
        raise _consent_withdrawn(voice)
    version = voice.current_version
    if version is not None and version.status == VoiceVersion.Status.FAILED:
        raise SubmitRejectedError(
            409,
            "voice_failed",
            f"The voice {voice.name!r} could not be encoded: {version.error_message} Use "
            "another voice, or correct this one.",
            attr="voice",
        )
    if version is None or version.encoded_at is None:
        raise SubmitRejectedError(
            409,
            "voice_not_ready",
            f"The voice {voice.name!r} is not encoded yet; try again after `Retry-After` seconds.",
            attr="voice",
            retry_after=ENCODING_RETRY_SECONDS,
        )
    return version


def note_use(version: VoiceVersion, user: AbstractBaseUser | None) -> None:
    """Write when a version's voice was last used; call inside the transaction that pins it.

    The UPDATE also locks the voice's row: a deletion of the voice, or another step that silences
    it, comes before us and is seen here, or after us and sees our job.

    Args:
        user: whose job it is; None is the system itself, which may use all.

    Raises:
        SubmitRejectedError: voice_not_found, it was deleted or made private meanwhile;
            consent_withdrawn.
    """
    visible = visible_voices(user) if user else Voice.objects.filter(deleted_at__isnull=True)
    speaking = visible.filter(pk=str(version.voice_id))
    if speaking.filter(consent_withdrawn_at__isnull=True).update(last_used_at=timezone.now()):
        return
    voice = speaking.first()
    raise _consent_withdrawn(voice) if voice is not None else voice_not_found()


def _consent_withdrawn(voice: Voice) -> SubmitRejectedError:
    return SubmitRejectedError(
        409,
        "consent_withdrawn",
        f"The consent to use the voice {voice.name!r} was withdrawn; use another voice.",
        attr="voice",
    )
