"""Read what requests say of a job to be made."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.request import Request

from synth.accounts.access import visible_jobs
from synth.api import fields, option_fields
from synth.api.authentication import key_of
from synth.contract import Limits
from synth.jobs.options import (
    COLUMNS,
    MAX_JOB_ENTRIES,
    MAX_JOB_LEXICONS,
    OPTIONS,
    Option,
    Value,
)
from synth.jobs.orders import UrlClip, deadline_past
from synth.jobs.planning import Order
from synth.jobs.submit import Sender
from synth.models import PRIORITIES, LexiconEntry, RenderJob
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import StrictBooleanField
from ttsweb.http.nouns import get_row
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript
from voices.submit import NewClip

MAX_KEY_CHARS = 255
IDEMPOTENCY_PARAMETER = OpenApiParameter(
    "Idempotency-Key",
    # Blanks at a header's ends are no part of its value.
    {"type": "string", "maxLength": MAX_KEY_CHARS, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    OpenApiParameter.HEADER,
    description=(
        "A key that you choose for this request. If you send it again with the same body, "
        "nothing new is made and the answer is 200."
    ),
)


class ReferenceSerializer(StrictSerializer):
    """A clip that comes with the job, and the words that are spoken in it."""

    audio = fields.ReferenceAudioField(
        help_text="`data:audio/wav;base64,…`, or an http(s) URL if TTS_URL_REFERENCES is on."
    )
    text = fields.StrictTextField(raw=True, help_text="The words that are spoken in the clip.")

    def validate(self, attrs: dict[str, Any]) -> Any:
        """Return the clip in place of its fields; one with a URL is fetched later."""
        audio, text = attrs["audio"], attrs["text"]
        try:
            transcript = check_transcript(text)
        except ClipRejectedError as error:
            detail = ErrorDetail(str(error), code=error.code)
            raise serializers.ValidationError({"text": [detail]}) from error
        if isinstance(audio, str):
            return UrlClip(audio, transcript)
        try:
            return NewClip(transcript, content=audio, container=check_clip(audio))
        except ClipRejectedError as error:
            raise error.at("reference.audio") from error


class EntrySerializer(StrictSerializer):
    """A lexicon entry for one job: each `find` in its text is spoken as `say`."""

    find = fields.StrictTextField(max_length=500, pattern=fields.NOT_BLANK)
    say = fields.StrictTextField(max_length=500)
    kind = serializers.ChoiceField(choices=LexiconEntry.Kind.choices, default="word")
    case_sensitive = StrictBooleanField(default=False)
    language = option_fields.LanguageField(
        required=False, help_text="Apply only to text in this language."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {**attrs, "language": attrs.get("language", "")}


class OptionsSerializer(StrictSerializer):
    """What a job may be told beside its text and its speakers: a field for each of `OPTIONS`.

    One instance may read many: `run_validation` keeps nothing.
    """

    def get_fields(self) -> dict[str, Any]:
        return {**{name: field_of(one) for name, one in OPTIONS.items()}, **super().get_fields()}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return {
            **{COLUMNS.get(name, name): value for name, value in attrs.items()},
            "priority": PRIORITIES[attrs["priority"]],
        }


_MAKERS: dict[Value, Callable[..., Any]] = {
    Value.SWITCH: StrictBooleanField,
    Value.LANGUAGE: option_fields.LanguageField,
    Value.URL: fields.UrlField,
    Value.MOMENT: option_fields.DeadlineField,
    Value.DURATION: option_fields.RetentionField,
    Value.PAUSES: option_fields.PausesField,
    Value.NAMES: lambda **more: option_fields.ListField(
        child=fields.StrictTextField(max_length=100), most=MAX_JOB_LEXICONS, **more
    ),
    Value.ENTRIES: lambda **more: option_fields.ListField(
        child=EntrySerializer(), most=MAX_JOB_ENTRIES, **more
    ),
}


def field_of(one: Option) -> Any:
    """Return the field of a request that reads an option; what is left out has its default."""
    more: dict[str, Any] = {"help_text": one.help}
    if isinstance(one.value, Mapping):
        default = next(name for name, stored in one.value.items() if stored == one.default)
        return serializers.ChoiceField(choices=list(one.value), default=default, **more)
    more |= {"required": False} if one.default in (None, "", [], {}) else {"default": one.default}
    if isinstance(one.value, Limits):
        return fields.StrictNumberField(**asdict(one.value), **more)
    return _MAKERS[one.value](**more)


class _JobFields(OptionsSerializer):
    """What a job in JSON and a job in a form have in common."""

    text = fields.StrictTextField(raw=True, help_text="The text to speak.")
    voice = fields.optional_name("Id or name of the voice of speaker 0.")
    voices = option_fields.SpeakersField(
        child=fields.StrictTextField(max_length=100),
        required=False,
        help_text='A voice for each number in the text\'s tags: `{"0": "Ada", "1": "Bob"}` '
        "for `<|speaker:0|>` and `<|speaker:1|>`. Speaker 0 speaks the words before the first tag.",
    )
    references = option_fields.SpeakersField(
        child=ReferenceSerializer(),
        required=False,
        help_text="Clips for this job only, by speaker.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        reference = self.take_reference(attrs)
        return {"order": Order(**super().validate(attrs), reference=reference)}

    def take_reference(self, attrs: dict[str, Any]) -> NewClip | UrlClip | None:
        """Take the reference's fields out of `attrs` and return its clip, if there is one."""
        raise NotImplementedError


class JobCreateSerializer(_JobFields):
    """A job to create: text, and a voice or a reference for each speaker."""

    reference = ReferenceSerializer(
        required=False, help_text="A clip for this job only, instead of a voice."
    )

    def take_reference(self, attrs: dict[str, Any]) -> NewClip | UrlClip | None:
        return attrs.pop("reference", None)  # type: ignore[no-any-return]  # of its serializer


class JobFormSerializer(_JobFields):
    """A job to create whose reference is uploaded as a file; objects and lists are JSON."""

    reference_audio = fields.any_file(
        "A clip for this job only, instead of a voice.", required=False
    )
    reference_text = fields.StrictTextField(raw=True, required=False)

    def take_reference(self, attrs: dict[str, Any]) -> NewClip | None:
        file: UploadedFile[bytes] | None = attrs.pop("reference_audio", None)
        text: str | None = attrs.pop("reference_text", None)
        if file is None and text is not None:
            raise ApiProblem(
                400, "clip_required", "Send the clip of this transcript as well.",
                attr="reference_audio",
            )  # fmt: skip
        if file is None:
            return None
        content, attr = file.read(), "reference_audio"
        try:
            container = check_clip(content)
            attr = "reference_text"
            transcript = check_transcript(text or "")
        except ClipRejectedError as error:
            raise error.at(attr) from error
        return NewClip(transcript, file.name or "", content=content, container=container)


class JobPatchSerializer(StrictSerializer):
    """The fields of an existing job that can be changed."""

    priority = serializers.ChoiceField(
        choices=list(PRIORITIES), required=False, help_text="Only for a job that has not ended."
    )
    deadline = option_fields.DeadlineField(
        required=False,
        allow_null=True,
        help_text="Only for a job that has not ended: a time with its zone, or seconds from now; "
        "null for none.",
    )
    retention = option_fields.RetentionField(
        required=False,
        allow_null=True,
        help_text="Seconds after the job's end, or `forever`; null for TTS_RETENTION_DAYS.",
    )

    def validate_deadline(self, value: dt.datetime | None) -> dt.datetime | None:
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError(str(deadline_past()), code=deadline_past().code)
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        found = {COLUMNS.get(name, name): value for name, value in attrs.items()}
        if "priority" in found:
            found["priority"] = PRIORITIES[found["priority"]]
        return found


def find_job(
    request: Request,
    job_id: uuid.UUID,
    shape: Callable[[QuerySet[RenderJob]], QuerySet[RenderJob]] = lambda jobs: jobs.defer("text"),
) -> RenderJob:
    """Return a job that this user may see, or raise the 404.

    Args:
        shape: adds what is read of it besides, or leaves something out.
    """
    jobs = shape(visible_jobs(request.user))
    return get_row(jobs, "job_not_found", "No job that you may see has this id.", pk=job_id)


def read_idempotency_key(request: Request) -> str:
    """Return the `Idempotency-Key` header, or the empty text where there is none.

    Raises:
        ApiProblem: it is empty, longer than 255 characters, or not printable ASCII.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return ""
    if not 1 <= len(key) <= MAX_KEY_CHARS or not (key.isascii() and key.isprintable()):
        sentence = (
            f"Idempotency-Key has {len(key)} characters; send 1 to {MAX_KEY_CHARS} "
            "printable ASCII characters."
        )
        raise ApiProblem(400, "idempotency_key_invalid", sentence)
    return key


def digest_of_body(data: Any) -> str:
    """Return the sha256 of what a request says: equal fields and file bytes, equal digest.

    Of a form the boundaries differ each time, so its fields are taken and not its bytes.
    """
    plain = dict(data.lists()) if hasattr(data, "lists") else data
    text = json.dumps(plain, sort_keys=True, default=_digest_of_file)
    return hashlib.sha256(text.encode()).hexdigest()


def sender_of(request: Request, key: str, digest: Callable[[Request], str] | None = None) -> Sender:
    """Return who sends a request and by which key it is recognised when it is sent again.

    With a key the whole body is read and hashed, uploaded files as well. So call this after the
    checks that may refuse the request.

    Args:
        key: what `read_idempotency_key` returned, before the body was read.
        digest: returns the digest of the request; that of its whole body unless given.
    """
    return Sender(
        owner=request.user,  # type: ignore[arg-type]  # permission: never anonymous
        api_key=key_of(request),
        idempotency_key=key,
        body_digest=(digest or _digest_of_request)(request) if key else "",
    )


def _digest_of_request(request: Request) -> str:
    data: Any = request.data
    if hasattr(data, "getbuffer"):  # JSONL, whose options are in the query
        body = hashlib.sha256(data.getbuffer()).hexdigest()
        data = {"body": body, "query": request.query_params.dict()}
    return digest_of_body(data)


def _digest_of_file(file: Any) -> str:
    """Return the digest of an uploaded file, which is left at its start."""
    if not isinstance(file, UploadedFile):
        raise TypeError(f"{type(file).__name__} is no part of a request")
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    file.seek(0)
    return f"file {digest.hexdigest()}"
