"""Submit a text from a command, and name the voices that there are when one is not."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User

from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.submit import Order, submit_job
from synth.models import RenderJob
from synth.options.voice_choice import find_voice
from synth.text.normalise import TextRejectedError, clean_text
from ttsweb.commands.errors import StepError
from voices.models import Voice, VoiceVersion

LARGEST_SEED = 2**63 - 1
NAMES_LISTED = 20


def check_text(text: str) -> None:
    """Refuse at once what `submit_text` would refuse after the wait for a worker.

    Raises:
        StepError: with the text's own code and sentence.
    """
    try:
        clean_text(text, max_chars=settings.MAX_TEXT_CHARS)
    except TextRejectedError as error:
        raise StepError(error.code, error.message) from error


def submit_text(
    text: str, voice: Voice, *, owner: User | None, audio_format: str, seed: int = 0
) -> RenderJob:
    """Make a job as the API does and return it.

    Raises:
        StepError: with the code and sentence that the API would answer.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise StepError("seed_invalid", f"A seed must be a whole number from 0 to {LARGEST_SEED}.")
    order = Order(text=text, voice=voice, seed=seed, format=audio_format)
    try:
        job, _ = submit_job(order, owner=owner)
    except SubmitRejectedError as error:
        raise StepError(error.code, str(error)) from error
    return job


def find_speaker(wanted: str) -> tuple[Voice, VoiceVersion]:
    """Return a voice, by its name in whatever case or its id, and its newest version.

    Raises:
        StepError: voice_not_found, with the names that there are; voice_not_ready without a clip;
            a failed version's own code and sentence.
    """
    try:
        voice = find_voice(None, wanted)
    except SubmitRejectedError as error:
        raise StepError(error.code, f"No voice is named {wanted!r}. {_names()}") from error
    version = voice.current_version
    if version is None:
        raise StepError("voice_not_ready", f"The voice {voice.name!r} has no clip yet; add one.")
    if version.status == VoiceVersion.Status.FAILED:
        raise StepError(version.error_code, version.error_message)
    return voice, version


def _names() -> str:
    voices = Voice.objects.filter(deleted_at__isnull=True, archived=False)
    names = list(voices.values_list("name", flat=True)[: NAMES_LISTED + 1])
    if not names:
        return "There are no voices yet; ./tts demo makes one."
    more = " and more" if len(names) > NAMES_LISTED else ""
    return f"There are: {', '.join(names[:NAMES_LISTED])}{more}."
