"""Read what requests say of a job to be made."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from rest_framework import serializers
from rest_framework.request import Request

from synth.contract import MAX_TOP_K
from synth.formats import FORMATS, MAX_SPEED, MIN_SPEED
from synth.models import RenderJob
from synth.request_fields import DataUrlField, StrictNumberField, StrictTextField
from synth.submit import Order
from ttsweb.api import ApiProblem, StrictSerializer
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript
from voices.submit import NewClip

PRIORITIES = {"interactive": RenderJob.Priority.INTERACTIVE, "bulk": RenderJob.Priority.BULK}
MAX_KEY_CHARS = 255


class ReferenceSerializer(StrictSerializer):
    """A clip that comes with the job, and what is said in it."""

    audio = DataUrlField(help_text="`data:audio/wav;base64,…`")
    text = StrictTextField(raw=True)


class _JobFields(StrictSerializer):
    """What a job in JSON and a job in a form have in common."""

    text = StrictTextField(raw=True, help_text="What is to be spoken.")
    voice = StrictTextField(required=False, max_length=100, help_text="Id or name of a voice.")
    seed = StrictNumberField(
        low=0, high=2**63 - 1, whole=True, default=0, help_text="The same seed, the same audio."
    )
    temperature = StrictNumberField(low=0, high=2, low_open=True, high_open=True, required=False)
    top_p = StrictNumberField(low=0, high=1, low_open=True, required=False)
    top_k = StrictNumberField(low=1, high=MAX_TOP_K, whole=True, required=False)
    format = serializers.ChoiceField(choices=list(FORMATS), default="wav")
    speed = StrictNumberField(
        low=MIN_SPEED,
        high=MAX_SPEED,
        default=1.0,
        help_text="Pace of the file, at the same pitch; nothing is rendered again for it.",
    )
    priority = serializers.ChoiceField(choices=list(PRIORITIES), default="interactive")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace all fields by `order`."""
        reference = self.take_reference(attrs)
        priority = PRIORITIES[attrs.pop("priority")]
        return {"order": Order(**attrs, priority=priority, reference=reference)}

    def take_reference(self, attrs: dict[str, Any]) -> NewClip | None:
        """Take the reference's fields out of `attrs` and return its clip, if there is one."""
        raise NotImplementedError


class JobCreateSerializer(_JobFields):
    """A job to be made: text, and a voice or a reference."""

    reference = ReferenceSerializer(
        required=False, help_text="A clip for this job alone, in place of a voice."
    )

    def take_reference(self, attrs: dict[str, Any]) -> NewClip | None:
        """Return the clip that is part of the JSON."""
        given = attrs.pop("reference", None)
        if given is None:
            return None
        return _checked_clip(given["audio"], given["text"], "", at="reference.")


class JobFormSerializer(_JobFields):
    """A job to be made whose reference is uploaded as a file."""

    reference_audio = serializers.FileField(
        required=False,
        allow_empty_file=True,
        max_length=255,
        help_text="A clip for this job alone, in place of a voice.",
    )
    reference_text = StrictTextField(raw=True, required=False)

    def take_reference(self, attrs: dict[str, Any]) -> NewClip | None:
        """Return the uploaded clip."""
        file: UploadedFile[bytes] | None = attrs.pop("reference_audio", None)
        text: str | None = attrs.pop("reference_text", None)
        if file is None and text is not None:
            raise ApiProblem(
                400, "clip_required", "The text of a reference needs its audio.",
                attr="reference_audio",
            )  # fmt: skip
        if file is None:
            return None
        return _checked_clip(file.read(), text or "", file.name or "", at="reference_")


def read_idempotency_key(request: Request) -> str:
    """Return the `Idempotency-Key` header, or the empty text where there is none.

    Raises:
        ApiProblem: it is empty, longer than 255 characters, or not printable ASCII.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return ""
    if not 1 <= len(key) <= MAX_KEY_CHARS or not (key.isascii() and key.isprintable()):
        raise ApiProblem(
            400,
            "idempotency_key_invalid",
            f"Idempotency-Key has {len(key)} characters; it must have 1 to {MAX_KEY_CHARS}, "
            "all of them printable ASCII.",
        )
    return key


def digest_of_body(data: Any) -> str:
    """Return the sha256 of what a request says: equal fields and file bytes, equal digest.

    Of a form the boundaries differ each time, so its fields are taken and not its bytes.
    """
    plain = dict(data.lists()) if hasattr(data, "lists") else data
    return hashlib.sha256(
        json.dumps(plain, sort_keys=True, default=_digest_of_file).encode()
    ).hexdigest()


def _digest_of_file(file: Any) -> str:
    """Return the digest of an uploaded file, which is left at its start."""
    if not isinstance(file, UploadedFile):
        raise TypeError(f"{type(file).__name__} is no part of a request")
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    file.seek(0)
    return f"file {digest.hexdigest()}"


def _checked_clip(content: bytes, text: str, filename: str, *, at: str) -> NewClip:
    """Return the clip of a reference, whose fields' names begin with `at`."""
    attr = f"{at}audio"
    try:
        container = check_clip(content)
        attr = f"{at}text"
        transcript = check_transcript(text)
    except ClipRejectedError as error:
        raise ApiProblem(error.status, error.code, str(error), attr=attr) from error
    return NewClip(transcript, filename, content=content, container=container)
