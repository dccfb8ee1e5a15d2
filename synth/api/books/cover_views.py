"""Serve and change what is shown of a book: its cover, and what is said of it."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.files.uploadhandler import MemoryFileUploadHandler, TemporaryFileUploadHandler
from django.http import HttpRequest, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.books.metadata_fields import MetadataSerializer
from synth.api.books.serializers import BookSerializer
from synth.api.books.views import find_book
from synth.audiobooks.changes import book_gone
from synth.audiobooks.covers import CoverLimitHandler, change_cover
from synth.audiobooks.metadata import METADATA_FIELDS, metadata_of_file
from synth.books.book import StoredBookError
from synth.models import ApiKey
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.ranged import ObjectMissingError, StoredObject, object_response
from ttsweb.http.schema import problems


class CoverFormSerializer(StrictSerializer):
    """A cover, sent as a form."""

    file = serializers.FileField(
        allow_empty_file=True, max_length=255, help_text="A JPEG, PNG or WebP image."
    )


class BookMetadataSerializer(serializers.Serializer[Any]):
    """The metadata of a book."""

    file = MetadataSerializer(help_text="From the book's file.")
    set = MetadataSerializer(help_text="Set by users; these values replace those of the file.")
    shown = MetadataSerializer(help_text="The values that tags and file names use.")


class BookCoverView(APIView):
    """The cover of a book."""

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
        parameters=[OpenApiParameter("Range", str, OpenApiParameter.HEADER)],
        responses={
            (200, "image/*"): OpenApiTypes.BINARY,
            (206, "image/*"): OpenApiTypes.BINARY,
            **problems(400, 401, 404, 410, 416),
        },
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
        try:
            return object_response(request._request, stored)
        except ObjectMissingError as error:
            raise ApiProblem(
                410, "cover_gone", "The cover is no longer stored; upload it again."
            ) from error

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


class BookMetadataView(APIView):
    """What is said of a book."""

    @extend_schema(
        operation_id="get_book_metadata",
        responses={200: BookMetadataSerializer, **problems(400, 401, 404, 410)},
    )
    def get(self, request: Request, book_id: uuid.UUID) -> Response:
        """Return a book's metadata: from its file, set by users, and the values in use."""
        check_query(request, ())
        book = find_book(request, book_id)
        try:
            of_file = metadata_of_file(book)
        except (FileNotFoundError, StoredBookError) as error:
            raise book_gone() from error
        said = {name: book.metadata[name] for name in METADATA_FIELDS if name in book.metadata}
        return Response({"file": of_file, "set": said, "shown": {**of_file, **said}})
