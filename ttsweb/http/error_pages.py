"""Answer errors that no view caught: JSON below /api/ and /v1/, a page elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

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
Handler = Callable[[HttpRequest, Exception], HttpResponseBase]


def _problem(request: HttpRequest, status: int, code: str, detail: str) -> JsonResponse | None:
    """Return the answer where programs ask; None where people do."""
    if request.path_info.startswith(OPENAI_START):
        return JsonResponse(error_body(status, code, detail), status=status)
    if request.path_info.startswith(API_START):
        body = problem_body(status, code, detail)
        return JsonResponse(body, status=status, content_type=PROBLEM_TYPE)
    return None


def _handler(status: int, code: str, detail: str, page: Handler) -> Handler:
    """Return what answers with a problem, or with a page of Django's."""

    def answer(request: HttpRequest, exception: Exception) -> HttpResponseBase:
        return _problem(request, status, code, detail) or page(request, exception)

    return answer


permission_denied = _handler(
    403,
    "permission_denied",
    "Your user has no permission for this; an administrator can give it.",
    defaults.permission_denied,
)
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

    It comes here from every view and from what runs before one, so that a database that is away is
    told in one place.
    """
    answer: HttpResponseBase | None
    if is_database_away(sys.exc_info()[1]):
        answer = _problem(request, 503, AWAY_CODE, AWAY_SENTENCE)
        if answer is None:  # without the request, whose user and session the database has
            answer = HttpResponse(render_to_string("ttsweb/database_away.html"), status=503)
        answer.headers["Retry-After"] = str(AWAY_RETRY_SECONDS)
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
