"""Read every request and shape every answer of the REST API alike.

Bodies are read up to a limit of their own, nothing in JSON twice, and no field that is unknown;
errors are problem+json. DRF's own parser is not used: Django's limit for forms would hold for
whatever is a child of it.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, ClassVar, NoReturn

from django.conf import settings
from django.core.exceptions import (
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFilesSent,
)
from django.http import Http404
from django.utils.functional import cached_property
from rest_framework import exceptions, serializers
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.serializer_helpers import BindingDict

from ttsweb.http.problems import PROBLEM_TYPE, away_of, problem_body, status_of
from ttsweb.refusals import RefusedError


class ApiProblem(exceptions.APIException):
    """An error with a status, a stable code, and a sentence that a person can act on.

    Args:
        status_code: the HTTP status, 400 to 599.
        code: the stable name that clients match on, such as `voice_not_ready`.
        detail: the sentence.
        attr: the request field that is at fault; it is then also in `errors`.
        retry_after: seconds after which another try makes sense, sent as `Retry-After`.
        headers: further headers of the answer.
        errors: `{attr, code, detail}` of each error, where there are several.
    """

    def __init__(
        self,
        status_code: int,
        code: str,
        detail: str,
        *,
        attr: str | None = None,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(detail, code)
        self.status_code, self.code, self.attr, self.errors = status_code, code, attr, errors
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)


class StrictSerializer(serializers.Serializer[Any]):
    """Refuse request fields that are not acted on: unknown ones, and ones that only answers have.

    Put it before ModelSerializer among the bases. The refusal is a 400 with code `unknown_field`
    that names each field, together with whatever else is wrong.
    """

    default_error_messages: ClassVar[dict[str, Any]] = {
        "invalid": 'Expected an object of fields, such as {{"name": "value"}}, not {datatype}.'
    }
    # What the API's description says of the fields together, as JSON Schema; `validate` judges.
    described_rules: ClassVar[Mapping[str, Any]] = {}

    @cached_property
    def fields(self) -> BindingDict:
        """The fields, of whatever origin; those with choices name them where another is sent."""
        fields = super().fields
        for field in fields.values():
            choice = getattr(field, "child", field)
            if isinstance(choice, serializers.ChoiceField):
                names = ", ".join(str(name) for name in choice.choices)
                known = names.replace("{", "{{").replace("}", "}}")
                choice.error_messages["invalid_choice"] = f"{{input!r}} is not one of: {known}."
        return fields

    def to_internal_value(self, data: Any) -> Any:
        unknown: dict[str, Any] = {}
        if isinstance(data, Mapping):
            known = {name for name, field in self.fields.items() if not field.read_only}
            unknown = {str(name): [_unknown(name, known)] for name in data if name not in known}
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as error:
            if isinstance(error.detail, dict):
                raise serializers.ValidationError({**error.detail, **unknown}) from error
            raise
        if unknown:
            raise serializers.ValidationError(unknown)
        return value


class NoFieldsSerializer(StrictSerializer):
    """A request without fields, such as that of an action."""


class OneFormatNegotiation(DefaultContentNegotiation):
    """Answer in the only format a view has, whatever `Accept` says; choose where there are two."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[Any, str]:
        if len(renderers) == 1:
            return renderers[0], renderers[0].media_type
        chosen: tuple[Any, str] = super().select_renderer(request, renderers, format_suffix)
        return chosen


def check_query(request: Request, known: Collection[str]) -> None:
    """Refuse query parameters that a view does not act on.

    Raises:
        ValidationError: 400 `unknown_field` that names each of them.
    """
    unknown = {name: [_unknown(name, known)] for name in request.query_params if name not in known}
    if unknown:
        raise serializers.ValidationError(unknown)


def problem_response(exc: Exception, context: Mapping[str, Any]) -> Response | None:
    """Turn an exception of a view into problem+json (RFC 9457); None leaves it to be a 500."""
    from rest_framework.views import set_rollback  # views import this module while they load

    error = _as_api_exception(exc)
    if error is None:
        return None
    _name_remedy(error, context.get("view"))
    set_rollback()
    request = context.get("request")
    if request is not None:  # a view may have chosen YAML or a page, for what it did not come to
        request.accepted_renderer = JSONRenderer()
        request.accepted_media_type = PROBLEM_TYPE
    headers = dict(getattr(error, "headers", {}))
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]  # DRF sets it
    wait = getattr(error, "wait", None)  # of a throttled request, in seconds
    if wait is not None:
        headers["Retry-After"] = str(max(1, round(wait)))
    return Response(
        _body_of(error), status=error.status_code, headers=headers, content_type=PROBLEM_TYPE
    )


def _name_remedy(error: exceptions.APIException, view: Any) -> None:
    sentence = ""
    if isinstance(error, exceptions.NotAuthenticated):
        sentence = (
            "This needs an API key: send it as `Authorization: Bearer tts_…`. Keys are made in the "
            "admin at “API keys”, or by `./tts create_key`."
        )
    elif isinstance(error, exceptions.UnsupportedMediaType):
        given = str(error.args[0])[:100] if error.args and error.args[0] else ""
        what = f"The content type {given!r}" if given else "A body without content type"
        types = _one_of(parser.media_type for parser in getattr(view, "parser_classes", ()))
        sentence = f"{what} is not accepted here; set the header `Content-Type` to {types}."
    elif isinstance(error, exceptions.MethodNotAllowed):
        methods = _one_of(getattr(view, "allowed_methods", ()))
        sentence = f"{error.args[0]} is not possible at this address; use {methods}."
    elif isinstance(error, exceptions.NotAcceptable):
        types = _one_of(one.media_type for one in getattr(view, "renderer_classes", ()))
        sentence = f"The answer has no format of the header `Accept`; set it to {types}."
    if sentence:
        error.detail = exceptions.ErrorDetail(sentence, code=str(error.get_codes()))


def _one_of(names: Iterable[str]) -> str:
    *first, last = list(dict.fromkeys(names)) or ["none"]
    return f"{', '.join(first)} or {last}" if first else last


def error_items(detail: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield `{attr, code, detail}` for each error of a nested validation detail.

    `attr` is the dotted path of the field, such as `parts.1.text`; None is the request as a whole.
    """
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            is_whole = name == "non_field_errors"
            yield from error_items(inner, path if is_whole else f"{path}.{name}".lstrip("."))
    elif isinstance(detail, list):
        for index, inner in enumerate(detail):
            nested = isinstance(inner, (Mapping, list))
            yield from error_items(inner, f"{path}.{index}".lstrip(".") if nested else path)
    else:
        code = getattr(detail, "code", None) or "invalid"
        yield {"attr": path or None, "code": code, "detail": str(detail)}


def problem_of(error: RefusedError) -> ApiProblem:
    return ApiProblem(
        status_of(error), error.code, str(error), attr=error.attr, retry_after=error.retry_after
    )


def _as_api_exception(exc: Exception) -> exceptions.APIException | None:
    """Return the DRF exception that says the same, or None for one that is a 500."""
    if isinstance(exc, exceptions.APIException):
        return exc
    if isinstance(exc, RefusedError):
        return problem_of(exc)
    if isinstance(exc, Http404):
        return exceptions.NotFound()
    if isinstance(exc, PermissionDenied):
        return exceptions.PermissionDenied()
    if isinstance(exc, RequestDataTooBig):
        sentence, limit = str(exc), settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if "settings." in sentence:  # Django's own names a setting of its own
            sentence = f"The body is too large: at most {limit} bytes are allowed."
        return ApiProblem(413, getattr(exc, "code", "body_too_large"), sentence)
    if isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT):
        sentence = "The server's disk is full; nothing was saved. Try again when there is space."
        return ApiProblem(507, "storage_full", sentence)
    if (away := away_of(exc)) is not None:
        return problem_of(away)
    if isinstance(exc, TooManyFilesSent):
        most = settings.DATA_UPLOAD_MAX_NUMBER_FILES
        sentence = f"The form has more than {most} files; send several requests."
        return ApiProblem(400, "too_many_files", sentence)
    if isinstance(exc, SuspiciousOperation):  # too many fields
        return ApiProblem(400, "bad_request", str(exc) or "This request was refused.")
    return None


def _body_of(error: exceptions.APIException) -> dict[str, Any]:
    """Return the problem of one exception.

    The problem's code is that of its errors where they all have one; else it is `invalid`.
    """
    if isinstance(error.detail, (dict, list)):
        items = list(error_items(error.detail))
        codes = {item["code"] for item in items}
        code = codes.pop() if len(codes) == 1 else "invalid"
        parts = (f"{item['attr']}: " * bool(item["attr"]) + item["detail"] for item in items)
        sentence = "; ".join(parts)
        return problem_body(error.status_code, code, sentence, items)
    code = str(error.detail.code or error.default_code)
    attr = getattr(error, "attr", None)
    items = [{"attr": attr, "code": code, "detail": str(error.detail)}] if attr else []
    several = getattr(error, "errors", ())
    return problem_body(error.status_code, code, str(error.detail), several or items)


def _unknown(name: str, known: Collection[str]) -> exceptions.ErrorDetail:
    allowed = ", ".join(sorted(known)) or "none"
    return exceptions.ErrorDetail(
        f"{str(name)[:100]!r} cannot be set here; the allowed names are {allowed}.",
        code="unknown_field",
    )


class BoundedParser(BaseParser):
    """Read a body up to a limit of its own; `read` makes of it what the view gets."""

    too_large = "The body is too large: at most {limit} bytes are allowed."

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return what `read` makes of the body.

        Raises:
            RequestDataTooBig: the body is longer than the limit (a 413).
        """
        limit = self.max_bytes()
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise RequestDataTooBig(self.too_large.format(limit=limit))
        return self.read(body)

    def max_bytes(self) -> int:
        return settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0

    def read(self, body: bytes) -> Any:
        raise NotImplementedError


class BoundedJSONParser(BoundedParser):
    """Parse UTF-8 JSON of at most `DATA_UPLOAD_MAX_MEMORY_SIZE` bytes."""

    media_type = "application/json"
    renderer_class = JSONRenderer

    def read(self, body: bytes) -> Any:
        """Return the parsed body.

        Raises:
            ParseError: it is not JSON, not UTF-8, nested too deeply, or says a name twice.
        """
        try:
            return read_json(body)
        except ValueError as error:
            raise exceptions.ParseError(f"The body cannot be read as JSON: {error}.") from error


class ClipJSONParser(BoundedJSONParser):
    """Parse JSON that may hold one clip as base64, which takes four letters for three bytes."""

    def max_bytes(self) -> int:
        limit: int = super().max_bytes() + 4 * settings.MAX_CLIP_BYTES // 3
        return limit


def read_json(content: bytes) -> Any:
    """Return the value of some JSON.

    Raises:
        ValueError: it is none, is not UTF-8, is nested too deeply, has a number that cannot be
            counted with, or an object that says a name twice; the text is the end of a sentence.
    """
    try:
        return json.loads(
            content.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_each_once
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8, {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        if "int_max_str_digits" in str(error):  # Python's own words name a function of it
            raise ValueError("it has a number with thousands of digits") from error
        raise


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of two values with one name either would be ignored without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"one object has the name {twice[:100]!r} twice")
    return found
