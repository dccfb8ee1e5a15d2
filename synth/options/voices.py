"""Find the voice that a request names, and the version of it that speaks. Never another one."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet
from django.utils import timezone

from synth.jobs.rejections import SubmitRejectedError, voice_not_found
from ttsweb.http.guarded_fetch import FetchError, fetch
from ttsweb.refusals import POLL_SECONDS
from voices.access import visible_voices
from voices.clip_checks import ClipRejectedError, check_clip
from voices.models import Voice, VoiceVersion
from voices.submit import NewClip

FETCH_SECONDS = 10.0  # that a download may take, redirects included: its request waits meanwhile
MAX_URLS_PER_REQUEST = 32
MAX_URL_CHARS = 2000
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True)
class UrlClip:
    """A clip that is to be fetched, and what is said in it (checked already)."""

    url: str
    transcript: str


def is_url(text: str) -> bool:
    """Say whether a text begins as a URL that could be fetched."""
    return _URL.match(text) is not None


class UrlClips:
    """Fetch the clips of one request; each URL once, and not many of them."""

    def __init__(self) -> None:
        self._found: dict[str, NewClip | SubmitRejectedError] = {}

    def get(self, clip: UrlClip, attr: str) -> NewClip:
        """Return a clip with its bytes.

        Raises:
            SubmitRejectedError: url_references_off, url_* (it cannot be fetched), too_many_urls,
                clip_*.
        """
        if not settings.URL_REFERENCES:
            raise urls_are_off().at(attr)
        if clip.url not in self._found:
            if len(self._found) >= MAX_URLS_PER_REQUEST:
                raise SubmitRejectedError(
                    "too_many_urls",
                    f"A request may have at most {MAX_URLS_PER_REQUEST} clips by URL. Make "
                    "voices of the clips, or send several requests.",
                    attr=attr,
                )
            try:
                self._found[clip.url] = _fetch(clip)
            except SubmitRejectedError as error:
                self._found[clip.url] = error
        found = self._found[clip.url]
        if isinstance(found, SubmitRejectedError):
            raise found.at(attr)
        return NewClip(
            clip.transcript, found.filename, content=found.content, container=found.container
        )


def urls_are_off() -> SubmitRejectedError:
    """Return the error for a URL where none is fetched."""
    return SubmitRejectedError(
        "url_references_off",
        "This server does not fetch URLs. Send the clip as a file or a data URL, or ask the "
        "administrator to turn on TTS_URL_REFERENCES.",
    )


def _fetch(clip: UrlClip) -> NewClip:
    try:
        found = fetch(
            clip.url,
            max_bytes=settings.MAX_CLIP_BYTES,
            seconds=FETCH_SECONDS,
            allow_private=settings.ALLOW_PRIVATE_URLS,
        )
    except FetchError as error:
        raise SubmitRejectedError(error.code, str(error)) from error
    try:
        container = check_clip(found.content)
    except ClipRejectedError as error:
        raise SubmitRejectedError(error.code, str(error)) from error
    return NewClip(
        clip.transcript, _file_name(found.url), content=found.content, container=container
    )


def _file_name(url: str) -> str:
    """Return the last part of a URL's path, as far as it can be a file's name."""
    try:
        name = unquote(urlsplit(url).path.rpartition("/")[2], errors="replace")
    except ValueError:
        return ""
    return "".join(letter for letter in name if letter.isprintable())[:200]


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
            "voice_failed",
            f"The voice {voice.name!r} could not be encoded: {version.error_message} Use "
            "another voice, or correct this one.",
            attr="voice",
        )
    if version is None or version.encoded_at is None:
        raise SubmitRejectedError(
            "voice_not_ready",
            f"The voice {voice.name!r} is not encoded yet; try again after `Retry-After` seconds.",
            attr="voice",
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
    visible = visible_voices(user) if user else Voice.objects.filter(deleted_at__isnull=True)
    speaking = visible.filter(pk=str(version.voice_id))
    if speaking.filter(consent_withdrawn_at__isnull=True).update(last_used_at=timezone.now()):
        return
    voice = speaking.first()
    raise _consent_withdrawn(voice) if voice is not None else voice_not_found()


def _consent_withdrawn(voice: Voice) -> SubmitRejectedError:
    return SubmitRejectedError(
        "consent_withdrawn",
        f"The consent to use the voice {voice.name!r} was withdrawn; use another voice.",
        attr="voice",
    )
