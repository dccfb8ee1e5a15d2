"""Serve what is heard and seen of a book over REST: its file, its sample, its cover."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.files.uploadhandler import MemoryFileUploadHandler, TemporaryFileUploadHandler
from django.http import HttpRequest, HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.books.file_views import content_answer
from synth.api.books.serializers import BookSerializer
from synth.api.books.views import find_book, started_job
from synth.api.fields import StrictNumberField
from synth.api.jobs.serializers import has_audio
from synth.audiobooks.changes import CoverLimitHandler, change_cover
from synth.audiobooks.files import MAX_CHAPTER
from synth.audiobooks.plans import title_of
from synth.books.file_names import safe_name
from synth.formats import BOOK_FORMATS, FORMATS
from synth.models import ApiKey, BookFile, BookSource, Export, RenderJob
from synth.transitions.jobs import UNFINISHED
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.nouns import RANGE, file_responses, read_query, send_stored, without_file
from ttsweb.http.ranged import StoredObject
from ttsweb.http.schema import problems
from ttsweb.refusals import POLL_SECONDS

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
    @extend_schema(
        operation_id="get_book_audio",
        parameters=[BookAudioQuerySerializer, RANGE],
        responses=file_responses("audio/*", 400, 401, 404, 409, 410, 416),
    )
    def get(self, request: Request, book_id: uuid.UUID) -> HttpResponseBase:
        """Return the audio of a book or of one chapter, or a byte range of it."""
        query = read_query(request, BookAudioQuerySerializer, context={"is_form": True})
        book = find_book(request, book_id)
        job = started_job(book)
        chapter = query.get("chapter")
        if chapter is not None:
            return _chapter_answer(request, book, job, int(chapter))
        export = _export_of(job, "book", "book_not_finished")
        name = safe_name(title_of(book)[:MAX_FILE_NAME_CHARS], f"book-{str(book.pk)[:8]}")
        stored = StoredObject(
            key=export.key,
            content_type=BOOK_FORMATS[export.format].content_type,
            filename=f"{name}.{BOOK_FORMATS[export.format].extension}",
            etag=export.sha256,
        )
        gone = "The book's audio file is no longer stored; start the book again."
        return send_stored(request, stored, "audio_gone", gone)


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


def _export_of(job: RenderJob, noun: str, open_code: str) -> Export:
    """Return the file of a job that is a book's or its sample's.

    Raises:
        ApiProblem: 409 with `open_code` while the job goes on, 404 where it has ended without.
    """
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    if has_audio(job) and export is not None:
        return export
    if job.status in UNFINISHED:
        raise ApiProblem(
            409,
            open_code,
            f"The {noun} is not finished yet; ask again after `Retry-After` seconds.",
            retry_after=POLL_SECONDS,
        )
    missing = "book_without_audio" if noun == "book" else "book_without_sample"
    raise without_file(job, noun, missing)


class BookSampleView(APIView):
    @extend_schema(
        operation_id="get_book_sample",
        parameters=[RANGE],
        responses=file_responses("audio/*", 400, 401, 404, 409, 410, 416),
    )
    def get(self, request: Request, book_id: uuid.UUID) -> HttpResponseBase:
        """Return the audio of the book's sample, its first rendered chapter, or a byte range."""
        check_query(request, ())
        book = find_book(request, book_id)
        job = book.sample_job
        if job is None:
            raise ApiProblem(404, "book_without_sample", "This book has no sample.")
        export = _export_of(job, "sample", "sample_not_ready")
        stored = StoredObject(
            key=export.key,
            content_type=FORMATS[export.format].content_type,
            filename=f"sample-{str(book.pk)[:8]}.{FORMATS[export.format].extension}",
            etag=export.sha256,
        )
        gone = "The sample is no longer stored; its chapter is rendered again with the book."
        return send_stored(request, stored, "audio_gone", gone)


class CoverFormSerializer(StrictSerializer):
    """A cover, sent as a form."""

    file = serializers.FileField(
        allow_empty_file=True, max_length=255, help_text="A JPEG, PNG or WebP image."
    )


class BookCoverView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)
    parser_classes = (MultiPartParser,)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Take pictures as large as a cover may be."""
        request.upload_handlers = [
            CoverLimitHandler(request),
            MemoryFileUploadHandler(request),
            TemporaryFileUploadHandler(request),
        ]
        return super().initialize_request(request, *args, **kwargs)

    @extend_schema(
        operation_id="get_book_cover",
        parameters=[RANGE],
        responses=file_responses("image/*", 400, 401, 404, 410, 416),
    )
    def get(self, request: Request, book_id: uuid.UUID) -> HttpResponseBase:
        """Return the cover that was uploaded, or the cover in the book's file."""
        check_query(request, ())
        book = find_book(request, book_id)
        if not book.cover_key:
            raise ApiProblem(
                404, "book_without_cover", "The book has no cover; its audio files show its title."
            )
        ending = book.cover_key.rpartition(".")[2]
        etag = book.cover_key.rpartition("/")[2].partition(".")[0]
        stored = StoredObject(book.cover_key, book.cover_type, f"cover.{ending}", etag=etag)
        gone = "The cover is no longer stored; upload it again."
        return send_stored(request, stored, "cover_gone", gone)

    @extend_schema(
        operation_id="put_book_cover",
        request={"multipart/form-data": CoverFormSerializer},
        responses={200: BookSerializer, **problems(400, 401, 404, 409, 413, 415)},
    )
    def put(self, request: Request, book_id: uuid.UUID) -> Response:
        """Replace a book's cover; files that are made after this have it."""
        check_query(request, ())
        book = find_book(request, book_id)
        serializer = CoverFormSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        change_cover(book, serializer.validated_data["file"].read())
        return Response(BookSerializer(find_book(request, book_id)).data)

    @extend_schema(
        operation_id="delete_book_cover", responses={204: None, **problems(400, 401, 404, 409)}
    )
    def delete(self, request: Request, book_id: uuid.UUID) -> Response:
        """Remove a book's cover; files that are made after this show the title."""
        check_query(request, ())
        change_cover(find_book(request, book_id), None)
        return Response(status=204)
