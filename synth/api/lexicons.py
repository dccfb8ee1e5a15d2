"""Serve lexicons and their entries over REST, and lexicons as files: CSV and PLS."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.fields import (
    NOT_BLANK,
    NOT_BLANK_AT_ENDS,
    StrictTextField,
    any_file,
    identifier,
    integer,
    optional_name,
    optional_whole,
    string,
    strings,
)
from synth.api.option_fields import LanguageField
from synth.lexicons import files, store
from synth.lexicons.book import find_visible_lexicons
from synth.lexicons.store import MAX_INDEX, MODES, may_change
from synth.models import ApiKey, Lexicon, LexiconEntry
from synth.text.rules import MAX_RULE_CHARS
from ttsweb.http.api import ApiProblem, BoundedParser, StrictSerializer
from ttsweb.http.fields import ShownField, StrictBooleanField
from ttsweb.http.nouns import ListView, Noun, get_row, operation
from ttsweb.http.pagination import IndexCursorPagination
from ttsweb.http.query_filters import names_filter
from voices.access import find_voice

_KINDS_HELP = (
    "`word`: whole words; `literal`: this text anywhere; `regex`: a pattern of the Python "
    "library regex."
)


class LexiconVoiceSerializer(serializers.Serializer[Any]):
    """The voice that a lexicon belongs to."""

    id = identifier()
    name = string()


class LexiconSerializer(serializers.ModelSerializer[Lexicon]):
    """A lexicon."""

    scope = serializers.ChoiceField(choices=Lexicon.Scope.choices)
    voice = LexiconVoiceSerializer(allow_null=True)
    shared = ShownField(
        lambda lexicon: lexicon.owner_id is None,
        serializers.BooleanField(help_text="True: it applies to the texts of all users."),
    )
    may_change = serializers.SerializerMethodField()
    entries_total = integer()

    class Meta:
        model = Lexicon
        fields = (
            "id", "name", "scope", "voice", "language", "enabled", "shared", "may_change",
            "entries_total", "created_at", "updated_at",
        )  # fmt: skip
        read_only_fields = fields

    def get_may_change(self, lexicon: Lexicon) -> bool:
        """Return whether you may change it."""
        return may_change(self.context["user"], lexicon)


class LexiconChangeSerializer(StrictSerializer):
    """Changes of a lexicon; with PATCH, fields that are left out do not change."""

    name = StrictTextField(max_length=100, pattern=NOT_BLANK_AT_ENDS)
    scope = serializers.ChoiceField(choices=Lexicon.Scope.choices, default="named")
    voice = optional_name("Id or name of the voice; only for the scope `voice`.", allow_null=True)
    language = LanguageField(
        required=False, allow_blank=True, help_text="Language of the texts; empty: any language."
    )
    enabled = StrictBooleanField(default=True)

    def validate_name(self, value: str) -> str:
        if not value.strip() or value != value.strip():
            sentence = "Give a name without blanks at its start or end."
            raise serializers.ValidationError(sentence, code="name_invalid")
        return value


class LexiconCreateSerializer(LexiconChangeSerializer):
    """A lexicon to create."""

    shared = StrictBooleanField(
        default=False, help_text="True: it applies to all users; only an administrator may set it."
    )


class EntryRowSerializer(serializers.ModelSerializer[LexiconEntry]):
    """An entry: each `find` in a text is spoken as `say`."""

    kind = serializers.ChoiceField(choices=LexiconEntry.Kind.choices)

    class Meta:
        model = LexiconEntry
        fields = ("id", "index", "find", "say", "kind", "case_sensitive", "language", "enabled")
        read_only_fields = fields


class EntryChangeSerializer(StrictSerializer):
    """Changes of an entry; with PATCH, fields that are left out do not change."""

    find = StrictTextField(max_length=MAX_RULE_CHARS, pattern=NOT_BLANK)
    say = StrictTextField(
        max_length=MAX_RULE_CHARS, help_text="What is spoken instead; empty: nothing is spoken."
    )
    kind = serializers.ChoiceField(
        choices=LexiconEntry.Kind.choices, default="word", help_text=_KINDS_HELP
    )
    case_sensitive = StrictBooleanField(default=False)
    language = LanguageField(
        required=False,
        allow_blank=True,
        help_text="Language of the texts; empty: that of the lexicon.",
    )
    enabled = StrictBooleanField(default=True)
    index = optional_whole(0, MAX_INDEX, "Position among the entries; at the end if left out.")


class LexiconFilterSerializer(StrictSerializer):
    """The filters of the list of lexicons."""

    scope = names_filter(
        Lexicon.Scope.values,
        f"One or more of {', '.join(Lexicon.Scope.values)}, separated by commas.",
    )
    name = serializers.CharField(
        required=False, max_length=100, help_text="Upper and lower case are the same."
    )

    def validate_name(self, value: str) -> Q:
        return Q(name__iexact=value)


class ExportQuerySerializer(StrictSerializer):
    """The format of a lexicon's file."""

    format = serializers.ChoiceField(choices=("csv", "pls"), default="csv")


class ImportQuerySerializer(StrictSerializer):
    """Whether a file's entries are added or replace the present ones."""

    mode = serializers.ChoiceField(choices=MODES, default="append")


class ImportFormSerializer(StrictSerializer):
    """A form with a file, CSV or PLS; the format is found by its first character."""

    file = any_file()
    mode = serializers.ChoiceField(choices=MODES, required=False)


class ImportedSerializer(serializers.Serializer[Any]):
    """The result of an import."""

    added = integer()
    entries_total = integer()
    warnings = strings("The lines of the file that were left out, and the reasons.")


def find_lexicon(request: Request, lexicon_id: uuid.UUID) -> Lexicon:
    lexicon = _shown(find_visible_lexicons(request.user)).filter(pk=lexicon_id).first()
    if lexicon is None:
        raise store.not_found()
    return lexicon


def find_to_change(request: Request, lexicon_id: uuid.UUID) -> Lexicon:
    lexicon = find_lexicon(request, lexicon_id)
    store.check_may_change(request.user, lexicon)
    return lexicon


def _find_entry(request: Request, lexicon_id: uuid.UUID, entry_id: int) -> LexiconEntry:
    entries = find_to_change(request, lexicon_id).entries.all()
    return get_row(
        entries, "entry_not_found", "The lexicon has no entry with this id.", pk=entry_id
    )


def _with_voice(request: Request, values: Mapping[str, Any]) -> Mapping[str, Any]:
    if values.get("voice") is None:
        return values
    return {**values, "voice": find_voice(request.user, values["voice"])}  # type: ignore[arg-type]  # never anonymous


def _shown(lexicons: QuerySet[Lexicon]) -> QuerySet[Lexicon]:
    return lexicons.select_related("voice").annotate(entries_total=Count("entries"))


def _make(request: Request, asked: Mapping[str, Any]) -> Lexicon:
    values = dict(asked)
    is_shared = values.pop("shared")
    if is_shared and not getattr(request.user, "is_superuser", False):
        sentence = "Only an administrator can create a lexicon for all users; leave `shared` out."
        raise ApiProblem(403, "lexicon_shared", sentence, attr="shared")
    owner_id = None if is_shared else request.user.pk
    made = store.save_lexicon(Lexicon(owner_id=owner_id), _with_voice(request, values))
    return find_lexicon(request, made.pk)


LEXICON = Noun("lexicon", LexiconSerializer, find_lexicon)
ENTRY = Noun("lexicon-entry", EntryRowSerializer, _find_entry)


class LexiconsView(ListView[Lexicon]):
    write_scopes = (ApiKey.Scope.JOBS,)
    lists = ("list_lexicons", "List lexicons, newest first.")
    serializer_class = LexiconSerializer
    filters = LexiconFilterSerializer

    def rows(self) -> QuerySet[Lexicon]:
        return _shown(find_visible_lexicons(self.request.user))

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "user": self.request.user}

    post = LEXICON.maker(
        "create_lexicon",
        "Create a lexicon without entries.",
        _make,
        LexiconCreateSerializer,
        *(404, 409),
    )


class LexiconView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    get = LEXICON.getter(
        "get_lexicon", "Return a lexicon; GET its `entries` for the entries.", is_conditional=True
    )
    patch = LEXICON.changer(
        "update_lexicon",
        "Change a lexicon; existing jobs are not changed.",
        lambda request, lexicon, asked: store.save_lexicon(lexicon, _with_voice(request, asked)),
        LexiconChangeSerializer,
        409,
        find=find_to_change,
    )
    delete = LEXICON.deleter(
        "delete_lexicon",
        "Delete a lexicon and its entries; existing jobs are not changed.",
        store.delete_lexicon,
        find=find_to_change,
    )


class EntriesView(ListView[LexiconEntry]):
    write_scopes = (ApiKey.Scope.JOBS,)
    lists = ("list_lexicon_entries", "List the entries in their order.", 404)
    serializer_class = EntryRowSerializer
    pagination_class = IndexCursorPagination

    def rows(self) -> QuerySet[LexiconEntry]:
        lexicon = find_lexicon(self.request, self.kwargs["lexicon_id"])
        return LexiconEntry.objects.filter(lexicon=lexicon)

    post = ENTRY.maker(
        "create_lexicon_entry",
        "Add an entry. A pattern that takes too long is refused with `pattern_too_slow`.",
        lambda request, asked, lexicon: store.add_entry(lexicon, asked),
        EntryChangeSerializer,
        *(404, 409),
        within=find_to_change,
    )


class EntryView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    patch = ENTRY.changer(
        "update_lexicon_entry",
        "Change an entry.",
        lambda request, entry, asked: store.change_entry(entry, asked),
        EntryChangeSerializer,
    )
    delete = ENTRY.deleter("delete_lexicon_entry", "Delete an entry.", store.delete_entry)


@dataclass(frozen=True)
class LexiconFile:
    """Hold a file that came as a request's body, and its format by its media type."""

    content: bytes
    format: str


class _FileParser(BoundedParser):
    too_large = "The file is too large: at most {limit} bytes are allowed."
    format: ClassVar[str]

    def max_bytes(self) -> int:
        return files.max_file_bytes()

    def read(self, body: bytes) -> LexiconFile:
        return LexiconFile(body, self.format)


_FORMATS = {  # by media type; PLS is also called XML, in two ways
    "text/csv": "csv",
    "application/pls+xml": "pls",
    "application/xml": "pls",
    "text/xml": "pls",
}
_FILE_PARSERS = tuple(
    type("FileParser", (_FileParser,), {"media_type": media_type, "format": form})
    for media_type, form in _FORMATS.items()
)
LEFT_OUT_HEADER = "X-Left-Out"
_TYPES = {"csv": "text/csv; charset=utf-8", "pls": "application/pls+xml"}


class LexiconExportView(APIView):
    @operation(
        "export_lexicon",
        {
            (200, "text/csv"): OpenApiTypes.BINARY,
            (200, "application/pls+xml"): OpenApiTypes.BINARY,
        },
        404,
        query=ExportQuerySerializer,
        parameters=[
            OpenApiParameter(
                LEFT_OUT_HEADER,
                int,
                OpenApiParameter.HEADER,
                response=[200],
                description=(
                    "Number of entries that PLS cannot hold: patterns, entries that speak "
                    "nothing, and entries that are switched off. CSV holds all entries."
                ),
            )
        ],
    )
    def get(self, request: Request, lexicon_id: uuid.UUID, query: dict[str, str]) -> HttpResponse:
        """Return all entries as CSV or PLS."""
        return exported(find_lexicon(request, lexicon_id), query["format"])


class LexiconImportView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)
    parser_classes = (*_FILE_PARSERS, MultiPartParser)

    @operation(
        "import_lexicon",
        ImportedSerializer,
        *(404, 409, 413, 415),
        query=ImportQuerySerializer,
        request={
            **dict.fromkeys(_FORMATS, OpenApiTypes.BINARY),
            "multipart/form-data": ImportFormSerializer,
        },
    )
    def post(self, request: Request, lexicon_id: uuid.UUID, query: dict[str, str]) -> Response:
        """Import all entries of a file; they are added to the present entries or replace them.

        Where one line cannot be used nothing is changed; `errors` name each such line, up to 20.
        """
        lexicon = find_to_change(request, lexicon_id)
        file, mode = _file_of(request, query["mode"])
        try:
            done = files.import_entries(lexicon, file.content, mode=mode, format=file.format)
        except files.BadLinesError as error:
            details: dict[str, Any] = {}  # by line and field
            for bad in error.lines:
                fields = details.setdefault(str(bad.line), {})
                detail = ErrorDetail(bad.message, code=bad.code)
                fields.setdefault(bad.attr or "non_field_errors", []).append(detail)
            raise serializers.ValidationError({"lines": details}) from error
        return Response(ImportedSerializer(done).data)


def exported(lexicon: Lexicon, format: str) -> HttpResponse:
    """Return a lexicon as a file to be saved; `format` is csv or pls."""
    left_out: list[str] = []
    if format == "csv":
        content = files.write_csv(lexicon.entries.all())
    else:
        content, left_out = files.write_pls(lexicon, lexicon.entries.all())
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
        sentence = "The file is empty; send a CSV or PLS file with entries."
        raise ApiProblem(400, "file_empty", sentence, attr="file")
    form = ImportFormSerializer(data=request.data)
    form.is_valid(raise_exception=True)
    content = form.validated_data["file"].read()
    return LexiconFile(content, ""), form.validated_data.get("mode", mode)
