"""Make what the demo needs and a fresh installation lacks: an admin user and a voice."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User

from ttsweb.commands.errors import StepError
from voices.clip_checks import ClipRejectedError
from voices.models import Voice, VoiceVersion
from voices.submit import NewClip, create_voice, update_voice
from voices.transitions import request_encoding

ADMIN_NAME = "admin"
PASSWORD_BYTES = 12


@dataclass(frozen=True)
class ClipSource:
    """A clip on disk, what is said in it, the voice it makes and why that is allowed."""

    path: Path
    transcript: str
    voice_name: str
    consent: str


def _demo_clip(file_name: str, voice_name: str) -> ClipSource:
    return ClipSource(
        path=Path(__file__).resolve().parents[2] / "synth" / "demo" / "clips" / file_name,
        transcript="The thing had a strange look in the lamp light.",
        voice_name=voice_name,
        consent="Made by a speech synthesiser for this project; no person speaks in it.",
    )


DEMO_CLIP = _demo_clip("ref_f2.wav", "demo")  # the one that speaks
MORE_DEMO_CLIPS = (_demo_clip("ref_m7.wav", "demo low"), _demo_clip("ref_f5.wav", "demo high"))


def find_or_make_admin() -> tuple[User, str]:
    """Return the user that owns the demo, and the password if the user was made just now.

    An installation that has a superuser keeps it: no second one is made.
    """
    users = get_user_model().objects
    found = (
        users.filter(username=ADMIN_NAME).first()
        or users.filter(is_superuser=True, is_active=True).order_by("pk").first()
    )
    if found is not None:
        return found, ""
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    return users.create_superuser(ADMIN_NAME, password=password), password


def find_or_make_voice(source: ClipSource, owner: User) -> Voice:
    """Return the voice with this clip; made, or encoded again, if need be.

    Raises:
        StepError: the clip cannot be read, or is refused with a code and a sentence.
    """
    own = Voice.objects.filter(owner=owner, deleted_at__isnull=True)
    voice = own.filter(name__iexact=source.voice_name).first()
    clip = _read(source)
    try:
        if voice is None:
            voice = create_voice(
                name=source.voice_name,
                consent_statement=source.consent,
                by=owner.get_username(),
                clips=[clip],
                owner=owner,
                shared=True,  # users who are made later find it too
            )
        else:
            update_voice(voice, by=owner.get_username(), clips=[clip])
    except OSError as error:
        reason = f"{error.strerror or error}: {settings.STORAGE_DIR}"
        raise StepError(
            "storage_unavailable", f"The clip could not be stored ({reason})."
        ) from error
    except ClipRejectedError as error:
        raise StepError(error.code, str(error)) from error
    version = newest_version(voice)
    if version.status == VoiceVersion.Status.FAILED:
        request_encoding(version)
    return voice


def newest_version(voice: Voice) -> VoiceVersion:
    """Return the version that speaks; raise StepError when the voice was deleted meanwhile."""
    version = voice.current_version
    if version is None:
        raise StepError(
            "voice_not_found",
            f"The voice {voice.name!r} was deleted meanwhile; run the command again.",
        )
    return version


def _read(source: ClipSource) -> NewClip:
    try:
        content = source.path.read_bytes()
    except OSError as error:
        raise StepError("clip_not_read", f"{source.path}: {error.strerror}.") from error
    return NewClip(transcript=source.transcript, filename=source.path.name, content=content)
