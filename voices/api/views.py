"""Serve voices over REST, also as files, and proposals of what is said in a clip."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ttsweb.http.api import ApiProblem, BoundedJSONParser, StrictSerializer, check_query
from ttsweb.http.fields import problems
from ttsweb.http.nouns import ListView, Noun, accepted_headers, get_row, operation, read_body
from ttsweb.http.ranged import ObjectResponse, StoredObject, object_response
from ttsweb.refusals import POLL_SECONDS, SubmitRejectedError
from ttsweb.rights import VOICES
from voices import submit
from voices.access import find_voice, may_change, visible_voices
from voices.api.serializers import (
    ClipQuerySerializer,
    TranscriptRequestSerializer,
    TranscriptSerializer,
    VoiceCodesSerializer,
    VoiceCreateSerializer,
    VoiceFieldsSerializer,
    VoiceFilterSerializer,
    VoiceImportSerializer,
    VoiceSerializer,
    VoiceUpdateSerializer,
)
from voices.archives import ImportRefusedError
from voices.clip_checks import ClipRejectedError
from voices.models import Transcript, Voice, VoiceVersion
from voices.objects import delete_voice
from voices.portable import create_voice_with_codes, export_voice, import_voice
from voices.submit import request_transcript
from voices.transitions import request_encoding

_NOT_FOUND = "voice_not_found", "No voice that you may use has this id."
CONTENT_TYPES = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "m4a": "audio/mp4",
    "webm": "audio/webm",
}


def _with_versions(voices: QuerySet[Voice]) -> QuerySet[Voice]:
    versions = VoiceVersion.objects.order_by("-number").prefetch_related("clips__stored")
    return voices.select_related("owner").prefetch_related(Prefetch("versions", queryset=versions))


def find_voice_of(request: Request, voice_id: uuid.UUID) -> Voice:
    return get_row(_with_versions(visible_voices(request.user)), *_NOT_FOUND, pk=voice_id)


def check_own(request: Request, voice: Voice) -> None:
    """Let a voice's owner and superusers change a voice that the user of this request sees.

    Raises:
        ApiProblem: 403 voice_not_yours.
    """
    if may_change(request.user, voice):
        return
    who = "its owner or a superuser" if voice.owner_id is not None else "a superuser"
    raise ApiProblem(
        403,
        "voice_not_yours",
        f"You may speak with the voice {voice.name!r}, but only {who} can change it; a "
        "superuser's API key also needs the scope 'admin'. Make a voice of your own instead.",
    )


def _find_own(request: Request, voice_id: uuid.UUID) -> Voice:
    voice = find_voice_of(request, voice_id)
    check_own(request, voice)
    return voice


def _encode(request: Request, voice: Voice, _: Mapping[str, Any]) -> None:
    check_own(request, voice)
    if voice.current_version is None or not request_encoding(voice.current_version):
        sentence = "The voice is already waiting to be encoded."
        raise ApiProblem(409, "voice_encoding", sentence, retry_after=POLL_SECONDS)


VOICE = Noun(
    "voice",
    VoiceSerializer,
    find_voice_of,
    lambda voice: voice.current_version and voice.current_version.status in ("pending", "encoding"),
    scope=VOICES,
)
encode_voice = VOICE.action(
    "encode_voice",
    "Encode a voice again; jobs that need the voice wait for it.",
    _encode,
    *(403, 409),
    is_accepted=True,
)


class VoicesView(ListView[Voice]):
    write_scopes = (VOICES,)
    serializer_class = VoiceSerializer
    parser_classes = (MultiPartParser,)
    lists = ("list_voices", "List voices, newest first.", 409)
    filters = VoiceFilterSerializer

    def rows(self) -> QuerySet[Voice]:
        voices = _with_versions(visible_voices(self.request.user))
        if (wanted := self.request.query_params.get("means")) is not None:
            try:
                meant = find_voice(self.request.user, wanted)  # type: ignore[arg-type]  # never anonymous
            except SubmitRejectedError as error:
                if error.code != "voice_not_found":
                    raise error.at("means") from error
                return voices.none()
            voices = voices.filter(pk=meant.pk)
        return voices

    @operation(
        "create_voice",
        {202: VoiceSerializer},
        409,
        413,
        415,
        request=VoiceCreateSerializer,
        parameters=accepted_headers(),
    )
    def post(self, request: Request) -> Response:
        """Make a voice from one or more clips; it can speak when its status is `ready`."""
        asked = read_body(request, VoiceCreateSerializer)
        voice = submit.create_voice(
            **asked, by=request.user.get_username(), owner=request.user, api_key=request.auth
        )
        return VOICE.answer(request, voice.pk, status=202)


class VoiceView(APIView):
    write_scopes = (VOICES,)
    parser_classes = (BoundedJSONParser, MultiPartParser)

    get = VOICE.getter(
        "get_voice",
        "Return a voice.\n\n"
        "With `wait`, the answer comes when its encoding has ended or the wait is over.",
        may_wait=True,
    )

    @operation(
        "update_voice",
        dict.fromkeys((200, 202), VoiceSerializer),
        403,
        404,
        409,
        413,
        415,
        request={
            "application/json": VoiceFieldsSerializer,
            "multipart/form-data": VoiceUpdateSerializer,
        },
        parameters=accepted_headers(),
    )
    def patch(self, request: Request, voice_id: uuid.UUID) -> Response:
        """Change a voice.

        New clips or transcripts make a new version, and the answer is then 202.
        """
        voice = _find_own(request, voice_id)
        context = {"clips": submit.current_clips(voice)}
        changes = dict(read_body(request, VoiceUpdateSerializer, partial=True, context=context))
        clips = changes.pop("clips")
        try:
            by, key = request.user.get_username(), request.auth
            version = submit.update_voice(voice, by=by, changes=changes, clips=clips, api_key=key)
        except submit.VoiceDeletedError as error:
            raise ApiProblem(404, *_NOT_FOUND) from error
        if version is None:
            return VOICE.shown(request, voice_id)
        return VOICE.answer(request, voice_id, status=202)

    @extend_schema(operation_id="delete_voice", responses={204: None, **problems(401, 403, 404)})
    def delete(self, request: Request, voice_id: uuid.UUID) -> Response:
        """Delete a voice and its clips; queued jobs that need it fail."""
        check_query(request, ())
        if not delete_voice(_find_own(request, voice_id)):
            raise ApiProblem(404, *_NOT_FOUND)
        return Response(status=204)


class VoiceAudioView(APIView):
    @operation("get_voice_audio", "audio/*", 404, 416, query=ClipQuerySerializer)
    def get(
        self, request: Request, voice_id: uuid.UUID, query: Mapping[str, int]
    ) -> HttpResponseBase:
        """Return a clip of the newest version, or a byte range of it."""
        index = query["clip"]
        voice = find_voice_of(request, voice_id)
        version = voice.current_version
        clips = version.clips.all() if version else ()
        stored = next((clip.stored for clip in clips if clip.index == index), None)
        if stored is None:
            sentence = f"The voice has no clip {index}; clips are counted from 0."
            raise ApiProblem(404, "clip_not_found", sentence, attr="clip")
        kind, name = CONTENT_TYPES[stored.container], f"{voice.name}-{index}.{stored.container}"
        found = StoredObject(stored.original_key, kind, name, etag=stored.fingerprint)
        return object_response(request._request, found)


# --- voices as files ------------------------------------------------------------------------------


class VoiceExportView(APIView):
    @operation("export_voice", {(200, "application/zip"): OpenApiTypes.BINARY}, 404, 409, 410)
    def get(self, request: Request, voice_id: uuid.UUID) -> HttpResponseBase:
        """Return clips, transcripts, codes and the consent record of a voice as one zip archive."""
        voice = find_voice_of(request, voice_id)
        version = voice.current_version
        if version is None or not version.clips.exists():
            sentence = "The voice has no clip to export; add one."
            raise ApiProblem(409, "voice_without_clips", sentence)
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


def _import(operation_id: str, body: type[StrictSerializer]) -> Callable[[Any], Any]:
    answers, form = dict.fromkeys((201, 202), VoiceSerializer), {"multipart/form-data": body}
    headers = accepted_headers(201)
    return operation(operation_id, answers, 409, 413, 415, request=form, parameters=headers)


class VoiceImportView(_ImportView):
    body, blamed = VoiceImportSerializer, "archive"
    make = staticmethod(lambda archive, **fields: import_voice(archive.file, **fields))

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Take an archive to disk: it may be larger than one clip, so that limit is not for it."""
        request.upload_handlers = [TemporaryFileUploadHandler(request)]
        return super().initialize_request(request, *args, **kwargs)

    @_import("import_voice", VoiceImportSerializer)
    def post(self, request: Request) -> Response:
        """Make a voice from an exported file: 201 if it is ready, 202 if it must be encoded first.

        It can speak at once if the archive has codes of the codec that a worker has loaded.
        """
        return self.answer(request)


class VoiceCodesImportView(_ImportView):
    body, blamed = VoiceCodesSerializer, "codes"
    make = staticmethod(create_voice_with_codes)

    @_import("import_voice_codes", VoiceCodesSerializer)
    def post(self, request: Request) -> Response:
        """Make a voice from clips and their codes, which must belong to the loaded codec.

        Codes that a clip has here already stay instead of those that are sent.
        """
        return self.answer(request)


_WAITING = (Transcript.Status.QUEUED, Transcript.Status.TRANSCRIBING)


def find_transcript(request: Request, transcript_id: uuid.UUID) -> Transcript:
    return get_row(
        Transcript.objects.filter(owner_id=request.user.pk),
        "transcript_not_found",
        "No transcript of yours has this id; they are kept for an hour.",
        pk=transcript_id,
    )


TRANSCRIPT = Noun(
    "voice-transcript",
    TranscriptSerializer,
    find_transcript,
    lambda row: row.status in _WAITING,
    scope=VOICES,
)


class TranscriptsView(APIView):
    write_scopes = (VOICES,)
    parser_classes = (MultiPartParser,)

    @operation(
        "propose_transcript", {202: TranscriptSerializer}, 409, 413, 415, 429,
        request=TranscriptRequestSerializer, parameters=accepted_headers(),
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Have the words of a clip proposed; correct them, then send them with the clip.

        Needs a transcriber, which the operator sets up; 409 `transcriber_missing` without one.
        """
        asked = read_body(request, TranscriptRequestSerializer)
        owner: AbstractBaseUser = request.user  # type: ignore[assignment]  # never anonymous
        content: bytes = asked["audio"].read()
        row = request_transcript(content, owner=owner, language=asked["language"])
        return TRANSCRIPT.answer(request, row.pk, status=202)


class TranscriptView(APIView):
    get = TRANSCRIPT.getter(
        "get_transcript",
        "Return a proposed transcript, or how far it is; it is kept for an hour.",
    )
