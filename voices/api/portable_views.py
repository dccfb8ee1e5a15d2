"""Serve voices as files over REST: export one, import one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.nouns import read_body
from ttsweb.http.ranged import ObjectResponse
from ttsweb.http.schema import problems
from ttsweb.refusals import POLL_SECONDS
from ttsweb.rights import VOICES
from voices.api.serializers import (
    FormBooleanField,
    FormCharField,
    VoiceCreateSerializer,
    VoiceSerializer,
)
from voices.api.views import find_voice_of
from voices.clip_checks import ClipRejectedError
from voices.models import Voice
from voices.portable.archive import MAX_CODES_BYTES, ImportRefusedError
from voices.portable.export import export_voice
from voices.portable.import_ import create_voice_with_codes, import_voice

_MADE_HEADERS = [
    OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201, 202]),
    OpenApiParameter("Retry-After", int, OpenApiParameter.HEADER, response=[202]),
]


class VoiceImportSerializer(StrictSerializer):
    """An exported voice, and its name here."""

    archive = serializers.FileField(help_text="A file from `GET /api/v1/voices/{id}/export`.")
    name = FormCharField(
        max_length=100, required=False, help_text="A name that replaces the one in the archive."
    )
    shared = FormBooleanField(
        default=False,
        help_text="True: every user may speak with the voice; it belongs to you in any case.",
    )


class VoiceCodesSerializer(VoiceCreateSerializer):
    """A voice to create, with the codes of each of its clips."""

    codes = serializers.ListField(
        child=serializers.FileField(allow_empty_file=True, max_length=255),
        min_length=1,
        help_text="For each clip a safetensors file with `codes` int16 [K, T] and the metadata "
        "clip (sha256 of the clip), codec (its fingerprint), frames and resampler.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        files = attrs.pop("codes")
        codes = [file.read(MAX_CODES_BYTES + 1) for file in files]
        return super().validate(attrs) | {"codes": codes}


class VoiceExportView(APIView):
    @extend_schema(
        operation_id="export_voice",
        responses={
            (200, "application/zip"): OpenApiTypes.BINARY,
            **problems(400, 401, 404, 409, 410),
        },
    )
    def get(self, request: Request, voice_id: uuid.UUID) -> HttpResponseBase:
        """Return clips, transcripts, codes and the consent record of a voice as one zip archive."""
        check_query(request, ())
        voice = find_voice_of(request, voice_id)
        version = voice.current_version
        if version is None or not version.clips.exists():
            raise ApiProblem(
                409, "voice_without_clips", "The voice has no clip to export; add one."
            )
        archive = export_voice(voice, version)
        response: HttpResponseBase
        if request.method == "HEAD":
            archive.close()
            response = HttpResponse(content_type="application/zip")
        else:
            response = ObjectResponse(archive, content_type="application/zip")
        name = "".join(one if one.isalnum() or one in " -_." else "_" for one in voice.name)
        disposition = content_disposition_header(True, f"{name}.voice.zip")
        response.headers["Content-Disposition"] = disposition or "attachment"
        response.headers["Content-Length"] = str(archive.size)
        response.headers["Cache-Control"] = "private, no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


class _ImportView(APIView):
    """Make a voice of files: 201 if it is ready, 202 if it waits for the encoder."""

    write_scopes = (VOICES,)
    parser_classes = (MultiPartParser,)
    body: type[StrictSerializer]
    blamed: str  # the field that refusals name

    make: Callable[..., Voice]

    def answer(self, request: Request) -> Response:
        fields = read_body(request, self.body)
        try:
            voice = self.make(
                **fields, by=request.user.get_username(), owner=request.user, api_key=request.auth
            )
        except (ClipRejectedError, ImportRefusedError) as error:
            raise error.at(self.blamed) from error
        voice = Voice.objects.select_related("owner").get(pk=voice.pk)  # changed beside the object
        version = voice.current_version
        is_ready = version is not None and version.status == version.Status.READY
        headers = {"Location": reverse("voice", args=[voice.pk])}
        if not is_ready:
            headers["Retry-After"] = str(POLL_SECONDS)
        status = 201 if is_ready else 202
        return Response(VoiceSerializer(voice).data, status=status, headers=headers)


Post = Callable[[Any, Request], Response]


def _describe_import(operation_id: str, body: type[StrictSerializer]) -> Callable[[Post], Post]:
    return extend_schema(
        operation_id=operation_id,
        request={"multipart/form-data": body},
        parameters=_MADE_HEADERS,
        responses={201: VoiceSerializer, 202: VoiceSerializer, **problems(400, 401, 409, 413, 415)},
    )


class VoiceImportView(_ImportView):
    body, blamed = VoiceImportSerializer, "archive"
    make = staticmethod(lambda archive, **fields: import_voice(archive.file, **fields))

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Take an archive to disk: it may be larger than one clip, so that limit is not for it."""
        request.upload_handlers = [TemporaryFileUploadHandler(request)]
        return super().initialize_request(request, *args, **kwargs)

    @_describe_import("import_voice", VoiceImportSerializer)
    def post(self, request: Request) -> Response:
        """Make a voice from an exported file: 201 if it is ready, 202 if it must be encoded first.

        It can speak at once if the archive has codes of the codec that a worker has loaded.
        """
        return self.answer(request)


class VoiceCodesImportView(_ImportView):
    body, blamed = VoiceCodesSerializer, "codes"
    make = staticmethod(create_voice_with_codes)

    @_describe_import("import_voice_codes", VoiceCodesSerializer)
    def post(self, request: Request) -> Response:
        """Make a voice from clips and their codes, which must belong to the loaded codec.

        Codes that a clip has here already stay instead of those that are sent.
        """
        return self.answer(request)
