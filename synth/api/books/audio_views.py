"""Serve the file of a book over REST, or that of one of its chapters."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.api.books.file_options import MAX_CHAPTER
from synth.api.books.file_views import content_answer
from synth.api.books.views import POLL_SECONDS, find_book, started_job
from synth.api.jobs.serializers import has_audio
from synth.bookshelf.files.names import safe_name
from synth.bookshelf.metadata import title_of
from synth.formats import BOOK_FORMATS
from synth.models import BookFile, BookSource, Export, RenderJob
from synth.options.request_fields import StrictNumberField
from synth.transitions import UNFINISHED
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.ranged import ObjectMissingError, StoredObject, object_response
from ttsweb.http.schema import problems

MAX_FILE_NAME_CHARS = 100


class BookAudioQuerySerializer(StrictSerializer):
    """Which audio of a book is wanted."""

    chapter = StrictNumberField(
        low=0,
        high=MAX_CHAPTER,
        whole=True,
        required=False,
        help_text=(
            "Index of a chapter, from 0 as in the proof. Returns the newest single-chapter "
            "file, made by a POST to `files` with the kind `chapters`."
        ),
    )


class BookAudioView(APIView):
    """The file of a book."""

    @extend_schema(
        operation_id="get_book_audio",
        parameters=[
            BookAudioQuerySerializer,
            OpenApiParameter("Range", str, OpenApiParameter.HEADER),
        ],
        responses={
            (200, "audio/*"): OpenApiTypes.BINARY,
            (206, "audio/*"): OpenApiTypes.BINARY,
            **problems(400, 401, 404, 409, 410, 416),
        },
    )
    def get(self, request: Request, book_id: uuid.UUID) -> HttpResponseBase:
        """Return the audio of a book or of one chapter, or a byte range of it."""
        check_query(request, ("chapter",))
        query = BookAudioQuerySerializer(
            data=request.query_params.dict(), context={"is_form": True}
        )
        query.is_valid(raise_exception=True)
        book = find_book(request, book_id)
        job = started_job(book)
        chapter = query.validated_data.get("chapter")
        if chapter is not None:
            return _chapter_answer(request, book, job, int(chapter))
        export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
        if not has_audio(job) or export is None:
            raise _why_no_audio(job)
        name = safe_name(title_of(book)[:MAX_FILE_NAME_CHARS], f"book-{str(book.pk)[:8]}")
        stored = StoredObject(
            key=export.key,
            content_type=BOOK_FORMATS[export.format].content_type,
            filename=f"{name}.{BOOK_FORMATS[export.format].extension}",
            etag=export.sha256,
        )
        try:
            return object_response(request._request, stored)
        except ObjectMissingError as error:
            raise ApiProblem(
                410,
                "audio_gone",
                "The book's audio file is no longer stored; start the book again.",
            ) from error


def _chapter_answer(
    request: Request, book: BookSource, job: RenderJob, chapter: int
) -> HttpResponseBase:
    """Return the newest file that was made of one chapter alone."""
    files: Any = BookFile.objects.filter(
        job=job.pk, kind=BookFile.Kind.CHAPTERS, status=BookFile.Status.DONE
    )
    row = files.filter(options__chapter=chapter).first()
    if row is None:
        raise ApiProblem(
            404,
            "chapter_not_made",
            "This chapter has no file of its own; make one by a POST to the book's `files` "
            f'with {{"kind": "chapters", "chapter": {chapter}}}.',
        )
    return content_answer(request, row, book)


def _why_no_audio(job: RenderJob) -> ApiProblem:
    if job.status in UNFINISHED:
        return ApiProblem(
            409,
            "book_not_finished",
            "The book is not finished yet; ask again after `Retry-After` seconds.",
            retry_after=POLL_SECONDS,
        )
    reason = f": {job.error_message}" if job.error_message else "."
    return ApiProblem(404, "book_without_audio", f"The book is {job.status}{reason}")
