"""Answer errors that no view caught: JSON below /api/ and /v1/, a page elsewhere."""

from __future__ import annotations

import sys

from django.conf import settings
from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views import defaults

from ttsweb.http.problems import (
    AWAY_CODE,
    AWAY_RETRY_SECONDS,
    AWAY_SENTENCE,
    OPENAI_START,
    PROBLEM_TYPE,
    error_body,
    is_database_away,
    problem_body,
)

API_START = "/api/"
_MOST_HOST_CHARS = 100


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if isinstance(exception, RequestDataTooBig):
        return _too_large(request, exception)
    if isinstance(exception, DisallowedHost):
        detail = _host_not_allowed(request)
        if _is_api(request):
            return _problem(request, 400, "host_not_allowed", detail)
        return render(request, "400.html", {"detail": detail}, status=400)
    if _is_api(request):
        return _problem(
            request,
            400,
            "bad_request",
            "The request is malformed; /api/v1/docs describes what each address takes.",
        )
    return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if _is_api(request):
        return _problem(
            request,
            403,
            "permission_denied",
            "Your user has no permission for this; an administrator can give it.",
        )
    return defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if _is_api(request):
        return _problem(
            request,
            404,
            "not_found",
            "There is nothing at this address; /api/v1/docs lists all addresses.",
        )
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Answer after an error of ours; its traceback is in the log.

    It comes here from every view and from what runs before one, so that a database that is away is
    told in one place.
    """
    if is_database_away(sys.exc_info()[1]):
        return _database_away(request)
    if _is_api(request):
        return _problem(
            request, 500, "server_error", "The server failed unexpectedly; its log has the details."
        )
    return defaults.server_error(request)


def _host_not_allowed(request: HttpRequest) -> str:
    """Return which host was asked for, and how whoever runs the server allows it."""
    given = request.META.get("HTTP_HOST", "")[:_MOST_HOST_CHARS]
    name = given if given.endswith("]") else given.rpartition(":")[0] or given
    hosts = ",".join([*settings.ALLOWED_HOSTS, name])
    return (
        f"This server does not answer under the name {name!r}. Its administrator can allow "
        f"the name: set TTS_ALLOWED_HOSTS={hosts} and restart the server."
    )


def _is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith((API_START, OPENAI_START))


def _problem(request: HttpRequest, status: int, code: str, detail: str) -> JsonResponse:
    if request.path_info.startswith(OPENAI_START):
        return JsonResponse(error_body(status, code, detail), status=status)
    body = problem_body(status, code, detail)
    return JsonResponse(body, status=status, content_type=PROBLEM_TYPE)


def _database_away(request: HttpRequest) -> HttpResponse:
    if _is_api(request):
        answer: HttpResponse = _problem(request, 503, AWAY_CODE, AWAY_SENTENCE)
    else:  # without the request, whose user and session would be read from the database
        answer = HttpResponse(render_to_string("ttsweb/database_away.html"), status=503)
    answer["Retry-After"] = str(AWAY_RETRY_SECONDS)
    return answer


def _too_large(request: HttpRequest, exception: RequestDataTooBig) -> HttpResponse:
    detail = str(exception)
    if _is_api(request):
        return _problem(request, 413, getattr(exception, "code", "body_too_large"), detail)
    # Not a page of the admin: its templates would read the form that could not be read.
    return render(request, "ttsweb/too_large.html", {"detail": detail}, status=413)
