"""Answer errors that no view caught: JSON where programs ask, a page elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import DisallowedHost, PermissionDenied, RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views import defaults

from ttsweb.http.problems import (
    PROBLEM_TYPE,
    away_of,
    error_shape,
    problem_body,
)

API_START = "/api/"
_PARTS = {"database_unavailable": "database", "storage_unavailable": "storage"}
_MOST_HOST_CHARS = 100
Handler = Callable[[HttpRequest, Exception], HttpResponseBase]


def _problem(request: HttpRequest, status: int, code: str, detail: str) -> JsonResponse | None:
    """Return the answer where programs ask; None where people do."""
    shape = error_shape(request.path_info)
    if shape is not None:
        return JsonResponse(shape(status, code, detail), status=status)
    if request.path_info.startswith(API_START):
        body = problem_body(status, code, detail)
        return JsonResponse(body, status=status, content_type=PROBLEM_TYPE)
    return None


def _handler(status: int, code: str, detail: str, page: Handler) -> Handler:
    """Return what answers with a problem, or with a page of Django's."""

    def answer(request: HttpRequest, exception: Exception) -> HttpResponseBase:
        return _problem(request, status, code, detail) or page(request, exception)

    return answer


class RefusedByNameError(PermissionDenied):
    """Somebody is refused before any view, by what the request says of who they are."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    code, detail = "permission_denied", _NO_PERMISSION
    if isinstance(exception, RefusedByNameError):
        code, detail = exception.code, str(exception)
        # Not as a page of Django's, which would ask who the user is.
        return _problem(request, 403, code, detail) or HttpResponse(
            detail, status=403, content_type="text/plain; charset=utf-8"
        )
    return _problem(request, 403, code, detail) or defaults.permission_denied(request, exception)


_NO_PERMISSION = "Your user has no permission for this; an administrator can give it."
not_found = _handler(
    404,
    "not_found",
    "There is nothing at this address; /api/v1/docs lists all addresses.",
    defaults.page_not_found,
)
_malformed = _handler(
    400,
    "bad_request",
    "The request is malformed; /api/v1/docs describes what each address takes.",
    defaults.bad_request,
)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer a request that Django refused; one that is too large is a 413."""
    if isinstance(exception, RequestDataTooBig):
        code, detail = getattr(exception, "code", "body_too_large"), str(exception)
        # Not a page of the admin: its templates would read the form that could not be read.
        return _problem(request, 413, code, detail) or render(
            request, "ttsweb/too_large.html", {"detail": detail}, status=413
        )
    if isinstance(exception, DisallowedHost):
        detail = _host_not_allowed(request)
        return _problem(request, 400, "host_not_allowed", detail) or render(
            request, "400.html", {"detail": detail}, status=400
        )
    return _malformed(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Answer after an error of ours; its traceback is in the log.

    It comes here from every view and from what runs before one, so that a database or a storage
    that is away is told in one place.
    """
    if (away := away_of(sys.exc_info()[1])) is not None:
        answer: HttpResponse | None = _problem(request, 503, away.code, str(away))
        if answer is None:  # without the request, whose user and session the database has
            page = render_to_string("ttsweb/away.html", {"what": _PARTS[away.code]})
            answer = HttpResponse(page, status=503)
        answer.headers["Retry-After"] = str(away.retry_after)
        return answer
    detail = "The server failed unexpectedly; its log has the details."
    return _problem(request, 500, "server_error", detail) or defaults.server_error(request)


def _host_not_allowed(request: HttpRequest) -> str:
    """Return which host was asked for, and how whoever runs the server allows it."""
    given = request.META.get("HTTP_HOST", "")[:_MOST_HOST_CHARS]
    name = given if given.endswith("]") else given.rpartition(":")[0] or given
    hosts = ",".join([*settings.ALLOWED_HOSTS, name])
    return (
        f"This server does not answer under the name {name!r}. Its administrator can allow "
        f"the name: set TTS_ALLOWED_HOSTS={hosts} and restart the server."
    )
