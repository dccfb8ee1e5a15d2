"""Serve what is heard and seen of a book over REST: its file, its sample, its cover."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.books.file_views import content_answer
from synth.api.books.options import LimitedFiles
from synth.api.books.serializers import BookSerializer
from synth.api.books.views import BOOK, find_book, started_job
from synth.api.fields import StrictNumberField
from synth.api.jobs.serializers import file_name_of, made_export, stored_export
from synth.audiobooks.changes import CoverLimitHandler, change_cover
from synth.audiobooks.files import MAX_CHAPTER
from synth.audiobooks.plans import title_of
from synth.books.file_names import safe_name
from synth.models import ApiKey, BookFile, BookSource, RenderJob
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.nouns import get_row, operation, read_body, send_stored
from ttsweb.http.ranged import StoredObject

MAX_FILE_NAME_CHARS = 100


class BookAudioQuerySerializer(StrictSerializer):
    """Which audio of a book is wanted."""

    chapter = StrictNumberField(
        *(0, MAX_CHAPTER),
        whole=True,
        required=False,
        help_text="Index of a chapter, from 0 as in the proof. Returns the newest single-chapter "
        "file, made by a POST to `files` with the kind `chapters`.",
    )


class BookAudioView(APIView):
    @operation("get_book_audio", "audio/*", *(404, 409, 410, 416), query=BookAudioQuerySerializer)
    def get(self, request: Request, book_id: uuid.UUID, query: dict[str, Any]) -> HttpResponseBase:
        """Return the audio of a book or of one chapter, or a byte range of it."""
        book = find_book(request, book_id)
        job = started_job(book)
        if "chapter" in query:
            return _chapter_answer(request, book, job, int(query["chapter"]))
        export = made_export(job, "book", "book_not_finished", "book_without_audio")
        name = safe_name(title_of(book)[:MAX_FILE_NAME_CHARS], f"book-{str(book.pk)[:8]}")
        gone = "The book's audio file is no longer stored; start the book again."
        stored = stored_export(export, file_name_of(job, name))
        return send_stored(request, stored, "audio_gone", gone)


def _chapter_answer(
    request: Request, book: BookSource, job: RenderJob, chapter: int
) -> HttpResponseBase:
    """Return the newest file that was made of one chapter alone."""
    files: Any = BookFile.objects.filter(
        job=job.pk, kind=BookFile.Kind.CHAPTERS, status=BookFile.Status.DONE
    )
    missing = (
        "This chapter has no file of its own; make one by a POST to the book's `files` "
        f'with {{"kind": "chapters", "chapter": {chapter}}}.'
    )
    row = get_row(files, "chapter_not_made", missing, options__chapter=chapter)
    return content_answer(request, row, book)


class BookSampleView(APIView):
    @operation("get_book_sample", "audio/*", 404, 409, 410, 416)
    def get(self, request: Request, book_id: uuid.UUID) -> HttpResponseBase:
        """Return the audio of the book's sample, its first rendered chapter, or a byte range."""
        book = find_book(request, book_id)
        job = book.sample_job
        if job is None:
            raise ApiProblem(404, "book_without_sample", "This book has no sample.")
        export = made_export(job, "sample", "sample_not_ready", "book_without_sample")
        gone = "The sample is no longer stored; its chapter is rendered again with the book."
        stored = stored_export(export, file_name_of(job, f"sample-{str(book.pk)[:8]}"))
        return send_stored(request, stored, "audio_gone", gone)


class CoverFormSerializer(StrictSerializer):
    """A cover, sent as a form."""

    file = serializers.FileField(
        allow_empty_file=True, max_length=255, help_text="A JPEG, PNG or WebP image."
    )


class BookCoverView(LimitedFiles, APIView):
    write_scopes = (ApiKey.Scope.JOBS,)
    parser_classes = (MultiPartParser,)
    limit_handler = CoverLimitHandler

    @operation("get_book_cover", "image/*", 404, 410, 416)
    def get(self, request: Request, book_id: uuid.UUID) -> HttpResponseBase:
        """Return the cover that was uploaded, or the cover in the book's file."""
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

    @operation(
        "put_book_cover",
        BookSerializer,
        *(404, 409, 413, 415),
        request={"multipart/form-data": CoverFormSerializer},
    )
    def put(self, request: Request, book_id: uuid.UUID) -> Response:
        """Replace a book's cover; files that are made after this have it."""
        book = find_book(request, book_id)
        change_cover(book, read_body(request, CoverFormSerializer)["file"].read())
        return BOOK.shown(request, book_id)

    delete = BOOK.deleter(
        "delete_book_cover",
        "Remove a book's cover; files that are made after this show the title.",
        lambda book: change_cover(book, None),
        409,
    )
