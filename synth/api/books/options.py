"""Read what a request says of a book: the file, the job's options, what is spoken of it."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.core.files.uploadhandler import MemoryFileUploadHandler, TemporaryFileUploadHandler
from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.request import Request

from synth.api.books.fields import CREDITS, CastingField, CreditsField, MetadataField
from synth.api.fields import StrictNumberField, StrictTextField, any_file, identifier, optional_name
from synth.api.jobs.requests import OptionsSerializer
from synth.api.option_fields import BookPausesField, SpeakersField
from synth.audiobooks.files import ONE_FILE, PRESETS, check_loudness
from synth.books.rules import AltTexts, Notes, SpeakerNames, Tables
from synth.formats import BOOK_FORMATS
from synth.models import PRIORITIES
from synth.text.pauses import BOOK_PAUSE_NAMES, MAX_PAUSE_MS
from ttsweb.http.api import StrictSerializer
from ttsweb.http.body_limit import LimitHandler
from ttsweb.http.fields import StrictBooleanField
from ttsweb.refusals import SubmitRejectedError

# A book is not heard while it is rendered, and its deadline is the job's, once that is there.
NOT_OF_BOOKS = ("live", "deadline")
DEFAULT_FORMAT = "m4b"
POLICIES = ("notes", "tables", "alt_texts", "speaker_names")
PRODUCTION = (*CREDITS, "preset")  # how its files are made


class BookFormSerializer(OptionsSerializer):
    """A book to be uploaded as a form; objects and lists are JSON."""

    file = any_file(
        "EPUB, TXT, Markdown, HTML, DOCX, or PDF with text; at most TTS_MAX_BOOK_BYTES."
    )
    voice = optional_name("Id or name of the voice that reads the book.")
    voices = SpeakersField(
        child=StrictTextField(max_length=100),
        required=False,
        help_text="Instead of `voice`: a voice for each number in the text's `<|speaker:N|>` tags. "
        "Speaker 0 reads the book.",
    )
    start = StrictBooleanField(
        default=False,
        help_text="Start rendering as soon as the book is planned, without waiting for a review of "
        "the plan.",
    )
    notes = serializers.ChoiceField(
        choices=[str(one) for one in Notes],
        required=False,
        help_text="Footnotes and endnotes: left out, spoken after their paragraph, or spoken at "
        "the end of the chapter.",
    )
    tables = serializers.ChoiceField(choices=[str(one) for one in Tables], required=False)
    alt_texts = serializers.ChoiceField(
        choices=[str(one) for one in AltTexts],
        required=False,
        help_text="Whether the descriptions of images are spoken, if the book has any.",
    )

    speaker_names = serializers.ChoiceField(
        choices=[str(one) for one in SpeakerNames],
        required=False,
        help_text="In a play, whether the names of the characters are spoken before their "
        "speeches.",
    )
    casting = CastingField(
        required=False,
        help_text="Voices besides the narrator, as JSON: `dialogue` (`off` or `detect`) with "
        "`dialogue_voice`, and `characters` and `languages` with a voice for each.",
    )
    opening_credits = CreditsField(
        required=False,
        help_text="Text that is spoken before the book. {title}, {subtitle}, {authors}, "
        "{narrators}, {publisher} and {year} are replaced by the book's metadata.",
    )
    closing_credits = CreditsField(required=False, help_text="Text that is spoken after the book.")

    preset = serializers.ChoiceField(
        choices=PRESETS,
        required=False,
        help_text="Mastering of the audio files. standard: -18 LUFS; acx: the requirements of the "
        "shop ACX.",
    )
    metadata = MetadataField(
        required=False,
        help_text="Title, authors and other metadata as JSON; they replace what the file says.",
    )
    book_batch = identifier(
        "Id of a batch of books. The batch's entry for this file then sets all other options.",
        required=False,
    )
    entry = StrictTextField(
        required=False,
        max_length=255,
        help_text="With `book_batch`: the path of the entry that this file belongs to, if several "
        "entries have its name.",
    )

    pauses = BookPausesField(
        required=False,
        help_text="Lengths of pauses in ms: sentence, phrase, word, line, speaker, paragraph, "
        "heading, scene, chapter. A change does not render anything again.",
    )

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().get_fields()
        fields["priority"] = serializers.ChoiceField(choices=list(PRIORITIES), default="bulk")
        formats = list(BOOK_FORMATS)
        fields["format"] = serializers.ChoiceField(choices=formats, default=DEFAULT_FORMAT)
        return {name: field for name, field in fields.items() if name not in NOT_OF_BOOKS}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the file, `start`, what the book's row keeps, and the options of the job."""
        found = dict(attrs)
        _check_preset(found.get("preset"), found["format"], found.get("loudness"))
        said = found.pop("metadata", {})
        return {
            "file": found.pop("file"),
            "start": found.pop("start"),
            "policies": {name: found.pop(name) for name in POLICIES if name in found},
            "casting": found.pop("casting", {}),
            "production": {name: value for name in PRODUCTION if (value := found.pop(name, None))},
            "metadata": {name: value for name, value in said.items() if value is not None},
            "options": found,
        }


def _check_preset(preset: str | None, form: str, loudness: float | None) -> None:
    """Refuse a preset of a book beside what does not go with it.

    Raises:
        ValidationError: loudness_unfit or preset_unfit.
    """
    try:
        check_loudness(preset, loudness)
    except SubmitRejectedError as error:
        raise serializers.ValidationError(
            {"loudness": [ErrorDetail(str(error), code=error.code)]}
        ) from error
    if preset is not None and form not in ONE_FILE:
        sentence = f"A book in the format {form} cannot be mastered; choose {', '.join(ONE_FILE)}."
        raise serializers.ValidationError({"preset": [ErrorDetail(sentence, code="preset_unfit")]})


class StartSerializer(StrictSerializer):
    """The options of starting a book."""

    voice = optional_name(
        "Id or name of the voice that reads the book, instead of its present voice."
    )


class BookPausesSerializer(StrictSerializer):
    """Lengths of pauses in ms.

    Null restores the default, and fields that are left out do not change.
    """

    def get_fields(self) -> dict[str, Any]:
        return {
            name: StrictNumberField(0, MAX_PAUSE_MS, whole=True, required=False, allow_null=True)
            for name in BOOK_PAUSE_NAMES
        }


class BookPrioritySerializer(StrictSerializer):
    """A priority."""

    priority = serializers.ChoiceField(choices=list(PRIORITIES))


class BookLimitHandler(LimitHandler):
    code = "book_too_large"

    def max_bytes(self) -> int:
        limit: int = settings.MAX_BOOK_BYTES
        return limit

    def sentence(self) -> str:
        return (
            f"The book is too large: at most {settings.MAX_BOOK_BYTES} bytes are allowed. "
            "TTS_MAX_BOOK_BYTES sets the limit."
        )


class LimitedFiles:
    """Take files as large as a handler allows; elsewhere they are clips, which are smaller."""

    limit_handler: ClassVar[type[LimitHandler]]

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Return the request with the handlers that count the bytes of its files."""
        handlers = (self.limit_handler, MemoryFileUploadHandler, TemporaryFileUploadHandler)
        request.upload_handlers = [handler(request) for handler in handlers]
        found: Request = super().initialize_request(request, *args, **kwargs)  # type: ignore[misc]  # APIView's
        return found


class BookFilesMixin(LimitedFiles):
    limit_handler = BookLimitHandler
