"""Serve lexicons as files: export and import, CSV and PLS."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.lexicons import (
    ExportQuerySerializer,
    ImportedSerializer,
    ImportFormSerializer,
    ImportQuerySerializer,
    find_lexicon,
    find_to_change,
)
from synth.lexicons.files import (
    BadLine,
    BadLinesError,
    import_entries,
    max_file_bytes,
    write_csv,
    write_pls,
)
from synth.models import ApiKey, Lexicon
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.nouns import read_query
from ttsweb.http.parsers import BoundedParser
from ttsweb.http.schema import problems


@dataclass(frozen=True)
class LexiconFile:
    """Hold a file that came as a request's body, and its format by its media type."""

    content: bytes
    format: str


class _FileParser(BoundedParser):
    too_large = "The file is too large: at most {limit} bytes are allowed."
    format: ClassVar[str]

    def max_bytes(self) -> int:
        return max_file_bytes()

    def read(self, body: bytes) -> LexiconFile:
        return LexiconFile(body, self.format)


class CsvParser(_FileParser):
    """Take CSV."""

    media_type = "text/csv"
    format = "csv"


class PlsParser(_FileParser):
    """Take PLS."""

    media_type = "application/pls+xml"
    format = "pls"


class XmlParser(PlsParser):
    """Take PLS that is called XML."""

    media_type = "application/xml"


class TextXmlParser(PlsParser):
    """Take PLS that is called XML, the other way."""

    media_type = "text/xml"


FILE_PARSERS = (CsvParser, PlsParser, XmlParser, TextXmlParser)


LEFT_OUT_HEADER = "X-Left-Out"
_TYPES = {"csv": "text/csv; charset=utf-8", "pls": "application/pls+xml"}


class LexiconExportView(APIView):
    @extend_schema(
        operation_id="export_lexicon",
        parameters=[
            ExportQuerySerializer,
            OpenApiParameter(
                LEFT_OUT_HEADER,
                int,
                OpenApiParameter.HEADER,
                response=[200],
                description=(
                    "Number of entries that PLS cannot hold: patterns, entries that speak "
                    "nothing, and entries that are switched off. CSV holds all entries."
                ),
            ),
        ],
        responses={
            (200, "text/csv"): OpenApiTypes.BINARY,
            (200, "application/pls+xml"): OpenApiTypes.BINARY,
            **problems(400, 401, 404),
        },
    )
    def get(self, request: Request, lexicon_id: uuid.UUID) -> HttpResponse:
        """Return all entries as CSV or PLS."""
        query = read_query(request, ExportQuerySerializer)
        return exported(find_lexicon(request, lexicon_id), query["format"])


class LexiconImportView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)
    parser_classes = (*FILE_PARSERS, MultiPartParser)

    @extend_schema(
        operation_id="import_lexicon",
        request={
            "text/csv": OpenApiTypes.BINARY,
            "application/pls+xml": OpenApiTypes.BINARY,
            "application/xml": OpenApiTypes.BINARY,
            "text/xml": OpenApiTypes.BINARY,
            "multipart/form-data": ImportFormSerializer,
        },
        parameters=[ImportQuerySerializer],
        responses={200: ImportedSerializer, **problems(400, 401, 404, 409, 413, 415)},
    )
    def post(self, request: Request, lexicon_id: uuid.UUID) -> Response:
        """Import all entries of a file; they are added to the present entries or replace them.

        Where one line cannot be used nothing is changed; `errors` name each such line, up to 20.
        """
        check_query(request, ("mode",))
        lexicon = find_to_change(request, lexicon_id)
        query = ImportQuerySerializer(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        file, mode = _file_of(request, query.validated_data["mode"])
        try:
            done = import_entries(lexicon, file.content, mode=mode, format=file.format)
        except BadLinesError as error:
            raise ValidationError({"lines": _details(error.lines)}) from error
        return Response(ImportedSerializer(done).data)


def exported(lexicon: Lexicon, format: str) -> HttpResponse:
    """Return a lexicon as a file to be saved; `format` is csv or pls."""
    left_out: list[str] = []
    if format == "csv":
        content = write_csv(lexicon.entries.all())
    else:
        content, left_out = write_pls(lexicon, lexicon.entries.all())
    answer = HttpResponse(content, content_type=_TYPES[format])
    answer["Content-Disposition"] = f'attachment; filename="lexicon-{str(lexicon.pk)[:8]}.{format}"'
    answer["X-Content-Type-Options"] = "nosniff"
    if format == "pls":
        answer[LEFT_OUT_HEADER] = str(len(left_out))
    return answer


def _file_of(request: Request, mode: Any) -> tuple[LexiconFile, Any]:
    """Return the file, and the mode of the form where it has one."""
    if isinstance(request.data, LexiconFile):
        return request.data, mode
    if not request.content_type.startswith("multipart/"):
        # No parser is asked to read a body without a byte.
        raise ApiProblem(
            400,
            "file_empty",
            "The file is empty; send a CSV or PLS file with entries.",
            attr="file",
        )
    form = ImportFormSerializer(data=request.data)
    form.is_valid(raise_exception=True)
    content = form.validated_data["file"].read()
    return LexiconFile(content, ""), form.validated_data.get("mode", mode)


def _details(lines: list[BadLine]) -> dict[str, Any]:
    """Return errors by line and field."""
    details: dict[str, Any] = {}
    for bad in lines:
        name = bad.attr or "non_field_errors"
        fields = details.setdefault(str(bad.line), {})
        fields.setdefault(name, []).append(ErrorDetail(bad.message, code=bad.code))
    return details
