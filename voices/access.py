"""Decide which voices a user may see, change and speak with, and which one a name means.

Every queryset of voices starts here. Clients of other services have names built in that no voice
here has, such as `alloy`: a name is looked for among the voices first, then among the aliases that
the operator has set; what is left of the well-known names means the default voices, in turn.
"""

from __future__ import annotations

import difflib
import uuid

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Case, OuterRef, Q, QuerySet, Subquery, Value, When
from django.utils import timezone

from ttsweb.refusals import POLL_SECONDS, SubmitRejectedError
from voices.models import Voice, VoiceAlias, VoiceVersion

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


# The names of OpenAI's voices, in the order in which they take the default voices.
WELL_KNOWN = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage", "shimmer", "verse",
    "marin", "cedar",
)  # fmt: skip
MOST_NAMES = 1000  # of voices that a misspelled name is compared with
_MOST_NEAR = 3


def find_named_voice(user: AbstractBaseUser, wanted: str, *, may_default: bool = True) -> Voice:
    """Return the voice of this id, name or alias, or the default voice of a well-known name.

    Args:
        may_default: let well-known names without an alias mean the default voices.

    Raises:
        SubmitRejectedError: voice_not_found, which names those with a similar name;
            voice_ambiguous_name; voices_not_ready.
    """
    try:
        return find_voice(user, wanted)
    except SubmitRejectedError as error:
        if error.code != "voice_not_found":
            raise
    name = wanted.lower()
    alias = aliases_of(user).filter(name=name).first()
    if alias is not None:
        return alias.voice
    if may_default and name in WELL_KNOWN:
        return default_voice(user, WELL_KNOWN.index(name))
    raise SubmitRejectedError("voice_not_found", _unknown(user, wanted), attr="voice")


def default_voice(user: AbstractBaseUser, index: int = 0) -> Voice:
    """Return one of the default voices; after the last one comes the first again.

    Raises:
        SubmitRejectedError: voices_not_ready, no voice of the user's can speak.
    """
    voices = default_voices(user)
    count = voices.count()
    if not count:
        raise _none_ready(user)
    return voices[index % count]


def default_voices(user: AbstractBaseUser) -> QuerySet[Voice]:
    """Return the voices that can speak: first those of everybody, then the user's; oldest first.

    A superuser's are not those that others keep for themselves.
    """
    newest = VoiceVersion.objects.filter(voice=OuterRef("pk")).order_by("-number")
    voices = visible_voices(user).filter(EVERYBODYS | Q(owner_id=user.pk))
    return (
        voices.filter(archived=False, consent_withdrawn_at=None)
        .annotate(encoded_at=Subquery(newest.values("encoded_at")[:1]))
        .annotate(status=Subquery(newest.values("status")[:1]))
        .exclude(status=VoiceVersion.Status.FAILED)
        .filter(encoded_at__isnull=False)
        .annotate(is_own=Case(When(EVERYBODYS, then=Value(0)), default=Value(1)))
        .order_by("is_own", "created_at", "pk")
    )


def aliases_of(user: AbstractBaseUser) -> QuerySet[VoiceAlias]:
    """Return the aliases of voices that a user may use."""
    return VoiceAlias.objects.filter(voice__in=visible_voices(user)).select_related("voice")


def sent_names(voices: list[Voice]) -> dict[Voice, str]:
    """Return what a client sends to mean each voice: its name, or its id where several have one."""
    counts: dict[str, int] = {}
    for voice in voices:
        counts[voice.name.lower()] = counts.get(voice.name.lower(), 0) + 1
    return {
        voice: voice.name if counts[voice.name.lower()] == 1 else str(voice.pk) for voice in voices
    }


def _none_ready(user: AbstractBaseUser) -> SubmitRejectedError:
    encoding = (VoiceVersion.Status.PENDING, VoiceVersion.Status.ENCODING)
    will_be = visible_voices(user).filter(versions__status__in=encoding).exists()
    advice = (
        "one is being encoded, so try again after `Retry-After` seconds."
        if will_be
        else "make one in the admin at “Voices”, or with POST /api/v1/voices."
    )
    return SubmitRejectedError(
        "voices_not_ready",
        f"No voice that you may use can speak; {advice}",
        attr="voice",
        retry_after=POLL_SECONDS if will_be else None,
    )


def _unknown(user: AbstractBaseUser, wanted: str) -> str:
    names = list(visible_voices(user).order_by("name").values_list("name", flat=True)[:MOST_NAMES])
    names += [alias.name for alias in aliases_of(user)[:MOST_NAMES]]
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wanted.lower(), by_lower, n=_MOST_NEAR)
    found = f" Similar names: {', '.join(by_lower[name] for name in near)}." if near else ""
    return (
        f"There is no voice {wanted!r}.{found} GET /v1/audio/voices lists the voices; the admin's "
        "page “Voice names” gives a voice further names."
    )
