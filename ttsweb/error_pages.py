"""Answer errors that no view caught: JSON below /api/ and /v1/, a page elsewhere."""

from __future__ import annotations

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.views import defaults

from synth.openai.error_body import START as OPENAI_START
from synth.openai.error_body import error_body
from ttsweb.api import PROBLEM_TYPE, problem_body

API_START = "/api/"


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer a request that Django refused; one that is too large is a 413."""
    if isinstance(exception, RequestDataTooBig):
        return _too_large(request, exception)
    if _is_api(request):
        return _problem(request, 400, "bad_request", "The request cannot be understood.")
    return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer a request that its user may not make."""
    if _is_api(request):
        return _problem(request, 403, "permission_denied", "You may not do this.")
    return defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer an address that leads nowhere."""
    if _is_api(request):
        return _problem(request, 404, "not_found", "There is nothing at this address.")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Answer after an error of ours; its traceback is in the log."""
    if _is_api(request):
        return _problem(request, 500, "server_error", "The server failed; its log says more.")
    return defaults.server_error(request)


def _is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith((API_START, OPENAI_START))


def _problem(request: HttpRequest, status: int, code: str, detail: str) -> JsonResponse:
    if request.path_info.startswith(OPENAI_START):
        return JsonResponse(error_body(status, code, detail), status=status)
    body = problem_body(status, code, detail)
    return JsonResponse(body, status=status, content_type=PROBLEM_TYPE)


def _too_large(request: HttpRequest, exception: RequestDataTooBig) -> HttpResponse:
    detail = str(exception)
    if _is_api(request):
        return _problem(request, 413, getattr(exception, "code", "body_too_large"), detail)
    # Not a page of the admin: its templates would read the form that could not be read.
    return render(request, "ttsweb/too_large.html", {"detail": detail}, status=413)
