"""Find the voice that a client of another service means by a name, such as `alloy`.

Such clients have names built in that no voice here has. A name is looked for among the voices
first, then among the aliases that the operator has set; what is left of the well-known names means
the default voices, in turn.
"""

from __future__ import annotations

import difflib

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Case, OuterRef, Q, QuerySet, Subquery, Value, When

from ttsweb.refusals import POLL_SECONDS, SubmitRejectedError
from voices.access import EVERYBODYS, find_voice, visible_voices
from voices.models import Voice, VoiceAlias, VoiceVersion

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
