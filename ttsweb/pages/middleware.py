"""What stands around all views: hosts and users are checked, changes noted, errors answered."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import (
    DisallowedHost,
    MiddlewareNotUsed,
    PermissionDenied,
    RequestDataTooBig,
    ValidationError,
)
from django.db import Error as DatabaseError
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponsePermanentRedirect,
    JsonResponse,
)
from django.middleware.common import CommonMiddleware
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin
from django.views import defaults

from synth.accounts.sign_in import user_of_proxy
from synth.api.authentication import write_audit
from ttsweb.configuration.library import (
    ADMIN_CONTENT_POLICY,
    CONTENT_POLICY,
    CONTENT_POLICY_HEADER,
)
from ttsweb.http.problems import PROBLEM_TYPE, away_of, error_shape, problem_body

logger = logging.getLogger(__name__)

_CHANGING = ("POST", "PUT", "PATCH", "DELETE")
API_START = "/api/"
_PARTS = {"database_unavailable": "database", "storage_unavailable": "storage"}
_MOST_HOST_CHARS = 100
Handler = Callable[[HttpRequest, Exception], HttpResponseBase]


class ContentSecurityPolicyMiddleware(MiddlewareMixin):
    """Set the policy on every answer that has none of its own; audio files have a stricter one."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        # By the resolved view and not by the path's letters: `/administer` is not the admin.
        found = request.resolver_match
        is_admin = found is not None and "admin" in found.app_names
        policy = ADMIN_CONTENT_POLICY if is_admin else CONTENT_POLICY
        response.headers.setdefault(CONTENT_POLICY_HEADER, policy)
        return response


class HostCheckMiddleware(CommonMiddleware):
    """Check the Host header as Django does, except for the two pages of health.

    Who probes names an address, such as 127.0.0.1 or a container's own, whatever
    TTS_ALLOWED_HOSTS says. Neither page builds a link from the name that it was asked by.
    """

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        if request.path_info in (reverse("healthz"), reverse("readyz")):
            return None
        return super().process_request(request)


class AuditMiddleware(MiddlewareMixin):
    """Keep a row of each changing request of somebody known, after the view's own transactions.

    Of requests by nobody only tries to sign in are kept (`note_try`): strangers must not fill the
    disk. Nor do the steps of workers, of which each beginning alone is kept (`is_audited`), and
    what a view has kept itself (`audit_within`).
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        if request.resolver_match is not None:
            user = request.user
            is_change = request.method in _CHANGING
            if getattr(request, "is_audited", is_change and user.is_authenticated):
                try:
                    made = getattr(response, "data", None) if request.method == "POST" else None
                    row = made.get("id") if isinstance(made, Mapping) else None
                    # The answer to a call for speech is mostly kept back until there is audio.
                    status = getattr(request, "noted_status", response.status_code)
                    write_audit(request, status, made=getattr(request, "noted_job", row))
                except DatabaseError:
                    logger.exception("audit entry not written: %s", request.resolver_match.route)
        return response


def note_try(request: Any, name: str, *, is_noted: bool = True) -> None:
    """Have the audit log keep a try to sign in, with the name that was tried, or leave it out."""
    request.is_audited, request.tried_name = is_noted, name


class ProxyUserMiddleware(MiddlewareMixin):
    """Take the user of each request from TTS_LOGIN_HEADER, if a proxy that it lists has sent it.

    The user is that of this request alone, without a session: it ends with the header.
    """

    def __init__(self, get_response: Any) -> None:
        super().__init__(get_response)
        if settings.LOGIN_HEADER is None:
            raise MiddlewareNotUsed

    def process_request(self, request: HttpRequest) -> None:
        """Set the user that the proxy names.

        Raises:
            RefusedByNameError: the header is from an address that is no proxy's, is there twice or
                in another spelling, or names nobody who may be let in.
        """
        name = self._named(request)
        if not name:
            return
        try:
            user = user_of_proxy(name)
        except ValidationError as error:
            raise _refusal("The reverse proxy names a user that cannot be.") from error
        if user is None:
            raise _refusal("Your account here is switched off.")
        request.user = user

    def _named(self, request: HttpRequest) -> str:
        """Return the name in the header, empty if there is none."""
        header = settings.LOGIN_HEADER
        assert header is not None  # or this middleware would not be used
        wanted = header.name
        # As they came: Django joins headers that differ by `_` and `-` alone, and a proxy that
        # sets the one may let the other pass.
        sent = [
            (name.decode("latin-1").lower(), value)
            for name, value in getattr(request, "scope", {}).get("headers", ())
            if name.decode("latin-1").lower().replace("_", "-") == wanted
        ]
        if not sent:
            return ""
        is_single = len(sent) == 1 and sent[0][0] == wanted
        if not is_single or not header.is_proxy(request.META.get("REMOTE_ADDR", "")):
            raise _refusal("Only the reverse proxy may say who you are.")
        name: bytes = sent[0][1]
        return name.decode("utf-8", "replace").strip()


def _refusal(sentence: str) -> RefusedByNameError:
    return RefusedByNameError("login_header_refused", sentence)


class RefusedByNameError(PermissionDenied):
    """Somebody is refused before any view, by what the request says of who they are."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


# Errors that no view caught: JSON where programs ask, a page elsewhere.


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
