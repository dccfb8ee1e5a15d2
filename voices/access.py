"""Decide which voices a user may see, change and speak with; every queryset of them starts here."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet
from django.utils import timezone

from ttsweb.refusals import POLL_SECONDS, SubmitRejectedError
from voices.models import Voice, VoiceVersion

MOST_LOOKED_AT = 100  # of voices with one name: enough to see whether one is spelled that way
EVERYBODYS = Q(shared=True) | Q(owner__isnull=True)  # a voice without an owner is built in


def visible_voices(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Voice]:
    """Return the voices that this user may see and speak with; a superuser's are all.

    A user's own voices, those that others share, and those without an owner.
    """
    if not user.is_authenticated:
        return Voice.objects.none()
    alive = Voice.objects.filter(deleted_at__isnull=True)
    if getattr(user, "is_superuser", False):
        return alive
    return alive.filter(EVERYBODYS | Q(owner_id=user.pk))


def offered_voices(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Voice]:
    """Return the visible voices that can speak at once, without those that were put away."""
    ready = visible_voices(user).filter(versions__status=VoiceVersion.Status.READY)
    return ready.filter(archived=False, consent_withdrawn_at=None).distinct()


def public_voices() -> QuerySet[Voice]:
    """Return the voices that every user may speak with."""
    return Voice.objects.filter(EVERYBODYS, deleted_at__isnull=True)


def may_change(user: AbstractBaseUser | AnonymousUser, voice: Voice) -> bool:
    """Return whether a user who sees a voice may also change, encode and delete it."""
    if getattr(user, "is_superuser", False):
        return True
    return user.pk is not None and voice.owner_id == user.pk


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
    voices = _usable_voices(user)
    try:
        found = voices.filter(pk=uuid.UUID(wanted)).first()
    except ValueError:
        found = None
    if found is not None:
        return found
    named = voices.filter(name__iexact=wanted).order_by("pk")
    own = Q(owner_id=user.pk) if user else Q(pk__in=())
    others = Q(owner__isnull=False) & ~own
    for near in (own, Q(owner__isnull=True), others & Q(shared=True), others):
        looked_at = list(named.filter(near)[:MOST_LOOKED_AT])
        # Two of one owner only where two databases' ideas of a letter's case differ.
        fitting = [voice for voice in looked_at if voice.name == wanted] or looked_at
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise _refused(
                "voice_ambiguous_name",
                f"Several voices that you may use are named {wanted!r}; give the id of the "
                "one that you want.",
            )
    raise _voice_not_found()


def speaking_version(voice: Voice) -> VoiceVersion:
    """Return a voice's newest version if it speaks now or, being encoded again, soon will.

    Raises:
        SubmitRejectedError: consent_withdrawn, voice_failed, voice_not_ready.
    """
    if voice.consent_withdrawn_at is not None:
        raise _consent_withdrawn(voice)
    version = voice.current_version
    if version is not None and version.status == VoiceVersion.Status.FAILED:
        raise _refused(
            "voice_failed",
            f"The voice {voice.name!r} could not be encoded: {version.error_message} Use "
            "another voice, or correct this one.",
        )
    if version is None or version.encoded_at is None:
        raise _refused(
            "voice_not_ready",
            f"The voice {voice.name!r} is not encoded yet; try again after `Retry-After` seconds.",
            retry_after=POLL_SECONDS,
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
    speaking = _usable_voices(user).filter(pk=str(version.voice_id))
    if speaking.filter(consent_withdrawn_at__isnull=True).update(last_used_at=timezone.now()):
        return
    voice = speaking.first()
    raise _consent_withdrawn(voice) if voice is not None else _voice_not_found()


def _usable_voices(user: AbstractBaseUser | None) -> QuerySet[Voice]:
    return visible_voices(user) if user else Voice.objects.filter(deleted_at__isnull=True)


def _refused(code: str, message: str, retry_after: int | None = None) -> SubmitRejectedError:
    return SubmitRejectedError(code, message, attr="voice", retry_after=retry_after)


def _consent_withdrawn(voice: Voice) -> SubmitRejectedError:
    sentence = f"The consent to use the voice {voice.name!r} was withdrawn; use another voice."
    return _refused("consent_withdrawn", sentence)


def _voice_not_found() -> SubmitRejectedError:
    return _refused(
        "voice_not_found",
        "There is no voice with this id or name, or you may not use it; look at the list "
        "of voices.",
    )
