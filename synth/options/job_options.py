"""Read the options of a job, and the clips that come with one."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from synth.contract import MAX_TOP_K
from synth.formats import FORMATS, MAX_SPEED, MIN_SPEED
from synth.models import LexiconEntry, RenderJob
from synth.options.fields import (
    DeadlineField,
    LanguageField,
    ListField,
    PausesField,
    RetentionField,
    StrictBooleanField,
)
from synth.options.file_options import MAX_BIT_RATE, MIN_BIT_RATE, SAMPLE_RATES
from synth.options.request_fields import (
    NOT_BLANK,
    ReferenceAudioField,
    StrictNumberField,
    StrictTextField,
    UrlField,
)
from synth.options.url_references import UrlClip
from ttsweb.http.api import ApiProblem, StrictSerializer
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript
from voices.submit import NewClip

PRIORITIES = {"interactive": RenderJob.Priority.INTERACTIVE, "bulk": RenderJob.Priority.BULK}
MIN_LOUDNESS, MAX_LOUDNESS = -36, -6  # LUFS
MOST_RETAKES = 8
MAX_JOB_LEXICONS, MAX_JOB_ENTRIES = 50, 500
# What a request calls a column of the job otherwise.
COLUMNS = {
    "deadline": "deadline_at",
    "retention": "retention_seconds",
    "webhook": "webhook_url",
}


class ReferenceSerializer(StrictSerializer):
    """A clip that comes with the job, and the words that are spoken in it."""

    audio = ReferenceAudioField(
        help_text="`data:audio/wav;base64,…`, or an http(s) URL if TTS_URL_REFERENCES is on."
    )
    text = StrictTextField(raw=True, help_text="The words that are spoken in the clip.")

    def validate(self, attrs: dict[str, Any]) -> Any:
        """Return the clip in place of its fields; one with a URL is fetched later."""
        audio, text = attrs["audio"], attrs["text"]
        try:
            transcript = check_transcript(text)
        except ClipRejectedError as error:
            raise serializers.ValidationError({"text": [_detail(error)]}) from error
        if isinstance(audio, str):
            return UrlClip(audio, transcript)
        try:
            return NewClip(transcript, content=audio, container=check_clip(audio))
        except ClipRejectedError as error:
            raise ApiProblem(
                error.status, error.code, str(error), attr="reference.audio"
            ) from error


class EntrySerializer(StrictSerializer):
    """A lexicon entry for one job: each `find` in its text is spoken as `say`."""

    find = StrictTextField(max_length=500, pattern=NOT_BLANK)
    say = StrictTextField(max_length=500)
    kind = serializers.ChoiceField(choices=LexiconEntry.Kind.choices, default="word")
    case_sensitive = StrictBooleanField(default=False)
    language = LanguageField(required=False, help_text="Apply only to text in this language.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the entry with all its fields."""
        return {**attrs, "language": attrs.get("language", "")}


class OptionsSerializer(StrictSerializer):
    """What a job may be told beside its text and its speakers.

    One instance may read many: `run_validation` keeps nothing.
    """

    seed = StrictNumberField(
        low=0,
        high=2**63 - 1,
        whole=True,
        default=0,
        help_text="The same seed gives the same audio.",
    )
    temperature = StrictNumberField(low=0, high=2, low_open=True, high_open=True, required=False)
    top_p = StrictNumberField(low=0, high=1, low_open=True, required=False)
    top_k = StrictNumberField(low=1, high=MAX_TOP_K, whole=True, required=False)
    language = LanguageField(
        required=False,
        help_text="Language of the text as a BCP 47 tag; the voice's language if left out.",
    )
    format = serializers.ChoiceField(choices=list(FORMATS), default="wav")
    sample_rate = StrictNumberField(
        low=SAMPLE_RATES[0],
        high=SAMPLE_RATES[-1],
        whole=True,
        required=False,
        help_text=(
            f"Sample rate of the file in Hz: one of {', '.join(map(str, SAMPLE_RATES))} that "
            "the format supports; that of the model if left out."
        ),
    )
    bit_rate = StrictNumberField(
        low=MIN_BIT_RATE,
        high=MAX_BIT_RATE,
        whole=True,
        required=False,
        help_text=(
            "Bit rate of the file in bits per second: mp3 32000 to 320000, opus 6000 to 256000, "
            "aac 16000 to 256000."
        ),
    )
    loudness = StrictNumberField(
        low=MIN_LOUDNESS,
        high=MAX_LOUDNESS,
        required=False,
        help_text="Target loudness of the whole file, in LUFS.",
    )
    speed = StrictNumberField(
        low=MIN_SPEED,
        high=MAX_SPEED,
        default=1.0,
        help_text=(
            "Tempo of the file; the pitch does not change. A change does not render anything again."
        ),
    )
    pauses = PausesField(
        required=False,
        help_text=(
            "Lengths of pauses in ms: sentence, phrase, word, line, speaker, paragraph, "
            "heading, scene. A change does not render anything again."
        ),
    )
    normalise = StrictBooleanField(
        default=False,
        help_text="Spell out numbers, dates and the like, by the rules of the text's language.",
    )
    lexicons = ListField(
        child=StrictTextField(max_length=100),
        most=MAX_JOB_LEXICONS,
        required=False,
        help_text="Ids or names of lexicons.",
    )
    lexicon = ListField(
        child=EntrySerializer(),
        most=MAX_JOB_ENTRIES,
        required=False,
        help_text="Lexicon entries for this job only; they apply before those of lexicons.",
    )
    max_retakes = StrictNumberField(
        low=0,
        high=MOST_RETAKES,
        whole=True,
        required=False,
        help_text="How often a suspicious take is rendered again with another seed, at most.",
    )
    priority = serializers.ChoiceField(choices=list(PRIORITIES), default="interactive")
    deadline = DeadlineField(
        required=False,
        help_text="A time with its zone, or seconds from now. At that time the job stops.",
    )
    retention = RetentionField(
        required=False,
        help_text=(
            "Seconds that the job and its file are kept after the job's end, or `forever`; "
            "TTS_RETENTION_DAYS if left out."
        ),
    )
    webhook = UrlField(
        required=False,
        help_text="URL that gets a message when the job has ended.",
    )
    live = StrictBooleanField(
        default=False, help_text="Prepare the audio for listening while it is rendered."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values by the names that `Order` has for them."""
        return {
            **{COLUMNS.get(name, name): value for name, value in attrs.items()},
            "priority": PRIORITIES[attrs["priority"]],
        }


def _detail(error: ClipRejectedError) -> ErrorDetail:
    return ErrorDetail(str(error), code=error.code)
