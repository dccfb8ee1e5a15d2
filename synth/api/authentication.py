"""Know who asks, by an API key, what the key may do, and keep who did what."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request

from synth.accounts.access import KeyRejectedError, find_key
from synth.accounts.limits import KeyLimitError, count_request
from synth.models import ApiKey, AuditEntry
from ttsweb import leases
from ttsweb.http.api import ApiProblem, problem_of
from ttsweb.http.asgi_ask import COUNTED

# Where clients of other services put their key: Azure's and ElevenLabs'.
KEY_HEADERS = ("api-key", "xi-api-key")
_MOST_IDS = 100  # of rows that an action of the admin was asked for


def bearer_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of `Authorization: Bearer …`; headers are looked up in lower case."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def presented_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of a client of any service; an empty one counts only where there is no other.

    Args:
        headers: of a request or of a WebSocket's handshake, looked up in lower case.
    """
    keys = [bearer_key(headers), *(headers.get(name) for name in KEY_HEADERS)]
    given = [key.strip() for key in keys if key is not None]
    return next((key for key in given if key), given[0] if given else None)


class ApiKeyAuthentication(BaseAuthentication):
    """Authenticate by `Authorization: Bearer tts_…`; `request.auth` is then the ApiKey row."""

    def authenticate(self, request: Request) -> tuple[Any, ApiKey] | None:
        """Return the key's user and the key, or None when the request carries no bearer key.

        Every request with a key passes here, whatever it asks for, and so is counted here.
        """
        key = self.presented_key(request)
        if key is None:
            return None
        try:
            row = find_key(key)
        except KeyRejectedError as error:
            raise exceptions.AuthenticationFailed(str(error), code=error.code) from error
        if not getattr(request._request, "scope", {}).get(COUNTED):
            try:
                count_request(row)
            except KeyLimitError as error:
                raise problem_of(error) from error
        request._request.api_key = row  # type: ignore[attr-defined]  # for the audit log
        if ApiKey.Scope.ADMIN not in row.scopes:
            row.user.is_superuser = False  # in this request alone; the row is never saved here
        return row.user, row

    def presented_key(self, request: Request) -> str | None:
        """Return the key that a request carries, or None where it carries none."""
        return bearer_key(request.headers)

    def authenticate_header(self, request: Request) -> str:
        """Return what makes an unauthenticated request a 401."""
        return 'Bearer realm="api"'


class DialectKeyAuthentication(ApiKeyAuthentication):
    """Take the key also where clients of other services put it."""

    def presented_key(self, request: Request) -> str | None:
        return presented_key(request.headers)


class KeyPermission(IsAuthenticated):
    """Let users do what they may, and an API key only what its scopes name.

    Reading takes the scope `read`. A view that writes says by `write_scopes` which scope that
    takes; one that says nothing takes `admin`, so that a forgotten line gives nothing away.
    `read_scopes` names others for reading. One of several scopes is enough.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return whether there is a user at all.

        Raises:
            ApiProblem: 403 scope_missing.
        """
        if not super().has_permission(request, view):
            return False
        key = key_of(request)
        is_served = hasattr(view, str(request.method).lower())  # else it is going to be a 405
        if key is not None and is_served:
            is_read = request.method in SAFE_METHODS
            default = (ApiKey.Scope.READ,) if is_read else (ApiKey.Scope.ADMIN,)
            needed = getattr(view, "read_scopes" if is_read else "write_scopes", default)
            if not set(needed) & set(key.scopes):
                sentence = (
                    f"This API key lacks the scope {str(needed[0])!r}; it has: "
                    f"{', '.join(key.scopes) or 'none'}. Use another key, or have the scope "
                    "added in the admin at “API keys”."
                )
                raise ApiProblem(403, "scope_missing", sentence)
        return True


def key_of(request: Request) -> ApiKey | None:
    """Return the API key of a request; None where a session opened it."""
    return request.auth if isinstance(request.auth, ApiKey) else None


def audit_within(request: Request, *, status: int) -> Callable[[uuid.UUID], None]:
    """Return what keeps a request's audit entry in the transaction that makes its row.

    A transaction of its own, as other requests have, would wait for another turn to write. Once the
    row is made, `note_audited` says that there is an entry.

    Args:
        status: of the answer, once the row is made.
    """
    return lambda made: write_audit(request._request, status, made=made)


def note_audited(request: Request) -> None:
    request._request.is_audited = False  # type: ignore[attr-defined]  # as the middleware reads it


def write_audit(request: HttpRequest, status: int, *, made: object = None) -> None:
    """Keep who did what, when and from where; never a text.

    Args:
        status: of the answer.
        made: the id of the row that the request has made.
    """
    key = getattr(request, "api_key", None)
    match: Any = request.resolver_match
    AuditEntry.objects.create(
        created_at=leases.database_now(),
        user_id=request.user.pk,
        username=request.user.get_username() or getattr(request, "tried_name", ""),
        key_id=key.pk if key is not None else None,
        key_prefix=key.prefix if key is not None else "",
        method=str(request.method),
        route=(match.view_name or match.route)[:100],
        ids=_ids_of(request, match, made),
        address=client_address(request),
        status=status,
    )


def _ids_of(request: HttpRequest, match: Any, made: object) -> dict[str, Any]:
    """Return the ids in the path, those that an action of the admin was for, and a new row's.

    Whatever is no id may be words of somebody's, and is left out.
    """
    ids: dict[str, Any] = {name: one for name, one in match.kwargs.items() if _is_id(one)}
    if "admin" in match.app_names:
        chosen = [one for one in request.POST.getlist("_selected_action") if _is_id(one)]
        if chosen:
            ids["chosen"] = chosen[:_MOST_IDS]
    if _is_id(made):
        ids["id"] = made
    return {name: one if isinstance(one, list | int) else str(one) for name, one in ids.items()}


def _is_id(value: object) -> bool:
    if isinstance(value, uuid.UUID | int):
        return True
    if not isinstance(value, str):
        return False
    try:
        return bool((value.isascii() and value.isdigit() and len(value) < 20) or uuid.UUID(value))
    except ValueError:
        return False


def client_address(request: HttpRequest) -> str:
    """Return who connects or, where the site is told that it stands behind a proxy, whom that saw.

    A proxy adds the address to those that it was told: only the last one is its own word.
    """
    if settings.BEHIND_HTTPS_PROXY:
        forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        if forwarded:
            return forwarded[:45]
    return str(request.META.get("REMOTE_ADDR", ""))[:45]
