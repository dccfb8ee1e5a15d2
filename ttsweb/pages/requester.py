"""Know who asks and from where: whom a reverse proxy names, and a row of each changing request."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed, ValidationError
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from synth.accounts.sign_in import user_of_proxy
from synth.models import AuditEntry
from ttsweb import leases
from ttsweb.http.error_pages import RefusedByNameError

logger = logging.getLogger(__name__)

_CHANGING = ("POST", "PUT", "PATCH", "DELETE")
_MOST_IDS = 100  # of rows that an action of the admin was asked for


def client_address(request: HttpRequest) -> str:
    """Return who connects or, where the site is told that it stands behind a proxy, whom that saw.

    A proxy adds the address to those that it was told: only the last one is its own word.
    """
    if settings.BEHIND_HTTPS_PROXY:
        forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        if forwarded:
            return forwarded[:45]
    return str(request.META.get("REMOTE_ADDR", ""))[:45]


class AuditMiddleware(MiddlewareMixin):
    """Keep a row of each changing request of somebody known, after the view's own transactions.

    Of requests by nobody only those are kept that a view marks with `is_audited`: strangers must
    not fill the disk. Nor do the steps of workers, of which each beginning alone is kept.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        if request.method in _CHANGING and request.resolver_match is not None:
            user = request.user
            if getattr(request, "is_audited", user.is_authenticated):
                try:
                    _write(request, response, user)
                except DatabaseError:
                    logger.exception("audit entry not written: %s", request.resolver_match.route)
        return response


def _write(request: HttpRequest, response: HttpResponseBase, user: Any) -> None:
    key = getattr(request, "api_key", None)
    match: Any = request.resolver_match
    AuditEntry.objects.create(
        created_at=leases.database_now(),
        user_id=user.pk,
        username=user.get_username(),
        key_id=key.pk if key is not None else None,
        key_prefix=key.prefix if key is not None else "",
        method=str(request.method),
        route=(match.view_name or match.route)[:100],
        ids=_ids_of(request, response, match),
        address=client_address(request),
        status=response.status_code,
    )


def _ids_of(request: HttpRequest, response: HttpResponseBase, match: Any) -> dict[str, Any]:
    """Return the ids in the path, those that an action of the admin was for, and a new row's.

    Whatever is no id may be words of somebody's, and is left out.
    """
    ids: dict[str, Any] = {name: one for name, one in match.kwargs.items() if _is_id(one)}
    if "admin" in match.app_names:
        chosen = [one for one in request.POST.getlist("_selected_action") if _is_id(one)]
        if chosen:
            ids["chosen"] = chosen[:_MOST_IDS]
    made = getattr(response, "data", None)
    if isinstance(made, Mapping) and request.method == "POST" and _is_id(made.get("id")):
        ids["id"] = made["id"]
    return {name: one if isinstance(one, list | int) else str(one) for name, one in ids.items()}


def _is_id(value: Any) -> bool:
    if isinstance(value, uuid.UUID | int):
        return True
    if not isinstance(value, str):
        return False
    try:
        return bool((value.isascii() and value.isdigit() and len(value) < 20) or uuid.UUID(value))
    except ValueError:
        return False


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
